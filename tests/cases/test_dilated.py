"""Convolutions whose taps lie apart: Winograd's tiles of results that many points apart, and pieces of far taps."""
import re

import numpy as np
import pytest
from onnx import TensorProto

from support.compare import Model, difference, floats, node
from support.tool import mcc, value

LEVELS = ("-march=x86-64-v2", "-march=x86-64-v3", "-march=native")


def network(folder, size, dilations, pads, channels=(24, 40), batch=1, strides=(1, 1), group=1, taps=3):
    """A map before the convolution, so that its operand is stored, and one behind."""
    w = floats(channels[1], channels[0] // group, taps, taps, scale=0.1)
    nodes = [node("Relu", "x", "r"), node("Conv", "r w b", "c", "conv", dilations=list(dilations), pads=list(pads), strides=list(strides), group=group),
             node("Relu", "c", "y")]
    return Model(folder, nodes, [value("x", [batch, channels[0], *size])], [value("y", None)], {"w": w, "b": floats(channels[1], seed=1)})


def near(model, x, *flags):
    got, want = model.run([x], *flags)[0], model.want([x])[0]
    text = difference(want, got, 0, 3e-5 * np.abs(want).max(initial=1))
    assert not text, (flags, text)


@pytest.mark.parametrize("form", ["2", "4", "6"])
@pytest.mark.parametrize("size, dilations, pads", [
    ((33, 33), (6, 6), (6, 6, 6, 6)), ((13, 12), (2, 3), (2, 3, 2, 3)), ((13, 9), (5, 1), (0, 3, 9, 1)), ((7, 30), (1, 4), (1, 4, 1, 0)),
    ((25, 26), (7, 5), (10, 2, 5, 9)), ((16, 16), (4, 4), (0, 0, 0, 0)), ((5, 31), (1, 10), (1, 10, 1, 10)), ((40, 12), (13, 2), (13, 0, 13, 4))])
def test_winograd(size, dilations, pads, form, tmp_path):
    """Extents below a tile, remainders of phases, asymmetric zeros, on every level."""
    model = network(tmp_path, size, dilations, pads)
    told = f"--choose=conv:winograd={form}"
    assert "winograd.m" in mcc(model.path, told, "-stop-after=schedule", "-o", "-").stdout
    for level in LEVELS:
        near(model, floats(1, 24, *size, seed=2), level, told)


@pytest.mark.parametrize("size, dilation, tiles", [((28, 28), 4, "4"), ((33, 33), 6, "6"), ((33, 33), 20, None), ((20, 20), 1, "4")])
def test_what_is_chosen(size, dilation, tiles, tmp_path):
    model = network(tmp_path, size, [dilation] * 2, [dilation] * 4, (64, 64))
    schedules = mcc(model.path, "-march=x86-64-v3", "-stop-after=schedule", "-o", "-").stdout
    chosen = [line.split()[1] for line in schedules.splitlines() if line.split()[:1] == ["winograd.m"]]
    assert chosen == ([tiles] if tiles else [])
    near(model, floats(1, 64, *size, seed=2))


@pytest.mark.parametrize("dims", [["n", 16, "h", "w"], [1, 16, 20, "w"], ["n", 16, 12, 12]])
def test_open_extents(dims, tmp_path):
    model = network(tmp_path, dims[2:], (3, 2), (3, 2, 3, 2), (16, 32), batch=dims[0])
    for size in ((1, 1), (2, 5), (12, 12), (20, 19)):
        fixed = [have if isinstance(have, int) else want for have, want in zip(dims[2:], size)]
        for form in ("2", "4"):
            near(model, floats(1 if dims[0] == 1 else 2, 16, *fixed, seed=3), f"--choose=conv:winograd={form}")


@pytest.mark.parametrize("stride, group", [((2, 1), 1), ((2, 2), 2), ((1, 1), 4), ((1, 1), 24)])
def test_no_form(stride, group, tmp_path):
    """Strides and groups beside dilation are computed directly."""
    model = network(tmp_path, (19, 17), (2, 4), (2, 4, 1, 3), (24, 48), strides=stride, group=group)
    assert "winograd.m" not in mcc(model.path, "--winograd=6", "-stop-after=schedule", "-o", "-").stdout
    for level in LEVELS:
        near(model, floats(1, 24, 19, 17, seed=4), level)


@pytest.mark.parametrize("size, dilation", [(32, 24), (16, 12), (9, 7)])
def test_pieces_share_their_weights(size, dilation, tmp_path):
    """Nine pieces, each with the taps that it reads, of weights that are stored once."""
    model = network(tmp_path, (size, size), [dilation] * 2, [dilation] * 4, (32, 32))
    stored = mcc(model.path, "--stats", "-o", tmp_path / "a.so", "-march=native").stdout
    assert re.search(r"^constants: .*, 1.000 times$", stored, re.M), stored
    assert mcc("-stop-after=legalize", model.path, "-o", "-").stdout.count(" = conv(") == 9
    for level in LEVELS:
        near(model, floats(1, 32, size, size, seed=5), level)


@pytest.mark.parametrize("taps, pads", [(2, (20, 20, 0, 0)), (2, (16, 16, 16, 16)), (3, (0, 30, 40, 10)), (4, (24, 24, 24, 24))])
def test_results_without_taps(taps, pads, tmp_path):
    """Pieces that read padding only are zeros, and the bias."""
    model = network(tmp_path, (9, 9), (11, 12), pads, (16, 16), taps=taps, batch="n")
    model.compare([floats(2, 16, 9, 9, seed=6)])


@pytest.mark.parametrize("x_zero", [0, 131])
def test_pieces_of_bytes(x_zero, tmp_path):
    """Products of integers are exact; padding is the zero point."""
    rng = np.random.default_rng(7)
    w = rng.integers(-128, 128, (16, 8, 3, 3)).astype(np.int8)
    model = Model(tmp_path, [node("ConvInteger", "x w z", "y", pads=[12] * 4, dilations=[12, 12])], [value("x", ["n", 8, 16, 16], TensorProto.UINT8)],
                  [value("y", None, TensorProto.INT32)], {"w": w, "z": np.uint8(x_zero)})
    x = rng.integers(0, 256, (2, 8, 16, 16)).astype(np.uint8)
    padded, want = np.pad(x.astype(np.int32) - x_zero, ((0, 0), (0, 0), (12, 12), (12, 12))), 0
    for i in range(3):
        for j in range(3):
            want = want + np.einsum("nchw,oc->nohw", padded[:, :, 12 * i:12 * i + 16, 12 * j:12 * j + 16], w[:, :, i, j].astype(np.int32))
    model.compare([x], [want.astype(np.int32)], ["-O0", *[(level,) for level in LEVELS]])


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_precision(precision, tmp_path):
    for i, (size, dilation) in enumerate([(28, 4), (16, 12)]):
        (folder := tmp_path / str(i)).mkdir()
        model = network(folder, (size, size), [dilation] * 2, [dilation] * 4, (64, 64))
        x = floats(1, 64, size, size, seed=8)
        got, want = model.run([x], f"--precision={precision}")[0], model.want([x])[0]
        assert np.abs(got - want).max() < 2e-2 * np.abs(want).max()


def test_double(tmp_path):
    """Far taps of f64, three dims, one of them without taps apart."""
    w = floats(8, 4, 3, 1, 3).astype(np.float64)
    model = Model(tmp_path, [node("Conv", "x w", "y", dilations=[7, 1, 9], pads=[7, 0, 9, 7, 0, 9])], [value("x", [2, 4, 9, 3, 10], TensorProto.DOUBLE)],
                  [value("y", None, TensorProto.DOUBLE)], {"w": w})
    model.compare([floats(2, 4, 9, 3, 10, seed=9).astype(np.float64)], [reference_3d(floats(2, 4, 9, 3, 10, seed=9), w)])


def reference_3d(x, w):
    padded, y = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (7, 7), (0, 0), (9, 9))), 0
    for i in range(3):
        for j in range(3):
            y = y + np.einsum("ncdhw,oc->nodhw", padded[:, :, 7 * i:7 * i + 9, :, 9 * j:9 * j + 10], w[:, :, i, 0, j])
    return y

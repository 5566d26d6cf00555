"""Zeros around the operand of a convolution are its padding, whoever else reads them; other pads stay."""
import numpy as np
import pytest
from onnx import TensorProto

from support.compare import Model, floats, node
from support.tool import mcc, value

F, I64 = np.float32, np.int64


def padded(folder, around, dims, taps=(3, 3), fill=None, mode="constant", more=(), outputs=("y",), **attributes):
    """Pad and Conv of 4 channels of x."""
    channels = 4 + around[1] + around[len(around) // 2 + 1]
    constants = {"around": np.array(around, I64), "w": floats(6, channels // attributes.get("group", 1), *taps, scale=0.3)}
    if fill is not None:
        constants["fill"] = np.array(fill, F)
    nodes = [node("Pad", "x around" + (" fill" if fill is not None else ""), "p", mode=mode), node("Conv", "p w", "y", **attributes), *more]
    return Model(folder, nodes, [value("x", dims)], [value(name, [None] * len(dims)) for name in outputs], constants)


def left(model, op="pad"):
    return mcc("-stop-after=legalize", model.path, "-o", "-").stdout.count(f" = {op}(")


@pytest.mark.parametrize("seed", range(20))
def test_drawn(seed, tmp_path):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    taps, dilations = rng.integers(1, 5, n), rng.integers(1, 4, n)
    reach = (taps - 1) * dilations + 1
    lo, hi, more_lo, more_hi = (rng.integers(0, reach + 1) for _ in range(4))
    size = np.maximum(rng.integers(1, 12, n), reach - lo - hi - more_lo - more_hi)
    model = padded(tmp_path, [0, 0, *map(int, lo), 0, 0, *map(int, hi)], ["n", 4, *map(int, size)], taps.tolist(), [None, 0.0][seed % 2],
                   dilations=dilations.tolist(), strides=rng.integers(1, 3, n).tolist(), group=int(rng.choice([1, 2])),
                   pads=[*map(int, more_lo), *map(int, more_hi)])
    fits = (lo + more_lo < reach).all() and (hi + more_hi < reach).all()
    assert left(model) == (not fits and bool((lo + hi).any()))
    for batch in (1, 3):
        model.compare([floats(batch, 4, *size, seed=seed)])


@pytest.mark.parametrize("pads, fill, mode, stays", [
    ([0, 0, 1, 1, 0, 0, 1, 1], None, "constant", 0), ([0, 0, 1, 1, 0, 0, 1, 1], 1.0, "constant", 1), ([0, 0, 1, 1, 0, 0, 1, 1], None, "reflect", 1),
    ([0, 1, 1, 1, 0, 1, 1, 1], None, "constant", 1), ([1, 0, 1, 1, 0, 0, 1, 1], None, "constant", 1), ([0, 0, -1, 1, 0, 0, 1, 1], None, "constant", 1),
    ([0, 0, 5, 1, 0, 0, 1, 1], None, "constant", 1), ([0, 0, 2, 2, 0, 0, 0, 0], None, "constant", 0)])
def test_which(pads, fill, mode, stays, tmp_path):
    model = padded(tmp_path, pads, [2, 4, 9, 8], fill=fill, mode=mode)
    assert left(model) == stays or mode == "reflect"
    model.compare([floats(2, 4, 9, 8)])


def test_open_sizes(tmp_path):
    model = padded(tmp_path, [0, 0, 1, 2, 0, 0, 1, 0], ["n", 4, "h", "w"], strides=[2, 1])
    assert left(model) == 0
    for shape in ((1, 4, 1, 1), (2, 4, 9, 8), (3, 4, 32, 17)):
        model.compare([floats(*shape)])


def test_other_readers(tmp_path):
    """What is padded is an output, too, and read by another product."""
    more = [node("Conv", "p w", "z", strides=[2, 2]), node("Relu", "p", "q")]
    model = padded(tmp_path, [0, 0, 2, 1, 0, 0, 2, 1], [1, 4, 9, 8], more=more, outputs=("y", "z", "q"))
    assert left(model) == 1
    model.compare([floats(1, 4, 9, 8)])


def test_same_upper(tmp_path):
    """Padding for the padded size comes on top."""
    model = padded(tmp_path, [0, 0, 1, 0, 0, 0, 0, 1], [1, 4, 9, 8], (5, 5), auto_pad="SAME_UPPER", strides=[2, 2])
    assert left(model) == 0
    model.compare([floats(1, 4, 9, 8)])


def test_integers_with_a_zero_point(tmp_path):
    """Zeros are not the zero point: they stay numbers."""
    constants = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], I64), "w": np.arange(-36, 36, dtype=np.int8).reshape(2, 4, 3, 3), "zx": np.uint8(7),
                 "zw": np.int8(0)}
    model = Model(tmp_path, [node("Pad", "x pads", "p"), node("ConvInteger", "p w zx zw", "y")], [value("x", [1, 4, 5, 5], TensorProto.UINT8)],
                  [value("y", [None] * 4, TensorProto.INT32)], constants)
    model.compare([np.random.default_rng(1).integers(0, 255, (1, 4, 5, 5)).astype(np.uint8)])

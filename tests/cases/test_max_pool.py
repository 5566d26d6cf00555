"""MaxPool along the last dim and then along the others: drawn windows, pads, strides and dilations, open sizes, against NumPy."""
import itertools
import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from support import cpu
from support.artifact import Artifact
from support.compare import Model, floats, node
from support.tool import mcc, save, value


def pooled(x, kernel, strides, dilations, pads):
    n = len(kernel)
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:n], pads[n:])], constant_values=least)
    sizes = [(x.shape[2 + d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d] + 1 for d in range(n)]
    y = np.full((*x.shape[:2], *sizes), least, x.dtype)
    for tap in itertools.product(*(range(k) for k in kernel)):
        cut = tuple(slice(t * d, t * d + (s - 1) * r + 1, r) for t, d, s, r in zip(tap, dilations, sizes, strides))
        y = np.maximum(y, x[(slice(None), slice(None), *cut)])
    return y


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("spatial", [2, 3])
def test_windows(tmp_path, spatial, open_):
    rng = np.random.default_rng([spatial, open_])
    for i in range(8 if spatial == 2 else 4):
        kernel = [int(k) for k in rng.integers(2, 8 if spatial == 2 else 4, spatial)]
        strides = [int(s) for s in rng.choice([1, 1, 1, 2], spatial)]
        dilations = [int(d) for d in rng.choice([1, 1, 2], spatial)]
        pads = [int(rng.integers(0, (k - 1) * d + 1)) for k, d in zip(kernel, dilations)] * 2
        elem, dtype = [(TensorProto.FLOAT, np.float32), (TensorProto.UINT8, np.uint8)][i % 2]
        shape = (1, int(rng.integers(1, 20)), *(int(n) for n in rng.integers(14, 20, spatial)))
        x = rng.integers(0, 200, shape).astype(dtype)
        if dtype == np.float32:
            x[0, 0].flat[3] = np.nan
        want = pooled(x, kernel, strides, dilations, pads)
        folder = tmp_path / str(i)
        folder.mkdir()
        node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads)
        dims = [1, shape[1], *"hwd"[:spatial]] if open_ else shape
        path = save(folder / "net.onnx", [node], [value("x", dims, elem)], [value("y", [1, shape[1], *"abc"[:spatial]], elem)])
        assert mcc(path, "-o", folder / "net.so").returncode == 0
        with Artifact(folder / "net.so") as a:
            assert np.array_equal(a.run([x])[0], want, equal_nan=dtype == np.float32), (shape, kernel, strides, dilations, pads)


def test_few_comparisons(tmp_path):
    """9 and 9 taps, not 81."""
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[9, 9], pads=[4] * 4)
    path = save(tmp_path / "net.onnx", [node], [value("x", (1, 16, 20, 20), TensorProto.FLOAT)], [value("y", (1, 16, 20, 20), TensorProto.FLOAT)])
    text = mcc(path, "-o", "-", "--stop-after=legalize").stdout
    assert text.count("= window(") == 2


@pytest.mark.parametrize("march", cpu.levels())
@pytest.mark.parametrize("elem, dtype", [(TensorProto.FLOAT, np.float32), (TensorProto.UINT8, np.uint8), (TensorProto.INT8, np.int8)],
                         ids=["f32", "u8", "i8"])
def test_strided_ports(tmp_path, elem, dtype, march):
    """The other dims first, then the last one: one or several spatial dims, NaN, infinities, pads, dilations, strides past the limit."""
    rng = np.random.default_rng([int(elem), len(cpu.levels())])
    rows = [((3, 3), (2, 2), (1, 1), (1, 1), (9, 56, 56)), ((5, 5), (1, 3), (1, 1), (2, 2), (3, 21, 37)), ((2, 7), (2, 2), (2, 1), (1, 3), (17, 11, 19)),
            ((3, 5), (3, 2), (1, 2), (2, 4), (2, 13, 33)),
            ((4, 4), (2, 9), (1, 1), (0, 0), (5, 8, 40)), ((2, 3, 3), (1, 2, 2), (1, 1, 1), (0, 1, 1), (4, 3, 9, 18))]
    for i, (kernel, strides, dilations, pads, dims) in enumerate(rows):
        x = rng.integers(-100 if dtype != np.uint8 else 0, 100, (1, *dims)).astype(dtype)
        if dtype == np.float32:
            x.flat[rng.integers(0, x.size, 9)] = np.nan
            x.flat[rng.integers(0, x.size, 9)] = np.inf
            x[0, 0] = -np.inf
        want = pooled(x, kernel, strides, dilations, pads * 2)
        folder = tmp_path / str(i)
        folder.mkdir()
        node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads * 2)
        path = save(folder / "net.onnx", [node], [value("x", x.shape, elem)], [value("y", want.shape, elem)])
        assert mcc(path, "-o", folder / "net.so", march).returncode == 0
        with Artifact(folder / "net.so") as a:
            assert np.array_equal(a.run([x])[0], want, equal_nan=dtype == np.float32), (kernel, strides, dilations, pads, dims)


@pytest.mark.parametrize("kernel, stride, size, windows", [(3, 2, 56, 2), (5, 3, 57, 2), (3, 3, 60, 1), (2, 2, 56, 1), (3, 16, 56, 1), (3, 2, 448, 1),
                                                            (3, 2, "s", 1)])
def test_rows_first(tmp_path, kernel, stride, size, windows):
    """A strided port's taps are picked out of vectors last, unless that saves little, or what lies in between is large or of an open size."""
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[kernel, kernel], strides=[stride, stride])
    path = save(tmp_path / "net.onnx", [node], [value("x", (1, 16, size, size), TensorProto.FLOAT)], [value("y", None, TensorProto.FLOAT)])
    text = mcc(path, "-o", "-", "--stop-after=legalize").stdout
    found = re.findall(r"= window\(.*kernel=\[([^\]]*)\]", text)
    assert len(found) == windows and (windows == 1 or [k.split(", ")[-1] for k in found] == ["1", str(kernel)]), text


@pytest.mark.parametrize("op", ["GlobalMaxPool", "GlobalAveragePool"])
@pytest.mark.parametrize("size, sums", [((9, 56), 4), ((5, 31), 4), ((30, 16), 4), ((3, 200), 4), ((1, 40), 4)])
def test_short_rows(size, sums, op, tmp_path):
    """Rows that are one in memory are passed in several sums, which do not wait for one another; NaN stays."""
    model = Model(tmp_path, [node(op, "x", "y")], [value("x", [2, 3, *size])], [value("y", None)])
    schedule = model.dump("schedule", "-march=x86-64-v4")
    assert int(re.search(r"^  reduce.0.sums +(\d+)", schedule, re.M)[1]) == sums
    x = floats(2, 3, *size)
    x[0, 1, -1, -1] = x[1, 2, 0, size[1] // 2] = np.nan
    want = (x.max if op == "GlobalMaxPool" else x.mean)((2, 3), keepdims=True)
    model.compare([x], [want], ("-O0", ("-march=x86-64-v2",), ("-march=x86-64-v3",), "-O2"))


@pytest.mark.parametrize("operand, given, f", [
    ("Slice", {"from": [1], "to": [30], "axes": [3]}, lambda x: x[..., 1:30]),
    ("Slice", {"from": [2], "to": [8], "axes": [2]}, lambda x: x[:, :, 2:8]),
    ("Add", {"c": np.arange(9, dtype=np.float32).reshape(1, 1, 9, 1)}, lambda x: x + np.arange(9, dtype=np.float32).reshape(1, 1, 9, 1)),
    ("Pad", {"pads": [0, 0, 0, 1, 0, 0, 0, 2]}, lambda x: np.pad(x, ((0, 0), (0, 0), (0, 0), (1, 2)))),
    ("Transpose", {}, lambda x: x[..., ::1].transpose(0, 1, 3, 2)),
    ("Concat", {"d": np.ones((2, 3, 9, 4), np.float32)}, lambda x: np.concatenate([x, np.ones((2, 3, 9, 4), np.float32)], 3))])
def test_rows_apart(operand, given, f, tmp_path):
    """Rows are one only where all that is read lies so: not columns of a wider map, a factor of each row, a border, a view the other way."""
    attributes = {"Transpose": {"perm": [0, 1, 3, 2]}, "Concat": {"axis": 3}}.get(operand, {})
    model = Model(tmp_path, [node(operand, " ".join(["x", *given]), "t", **attributes), node("ReduceSum", "t axes2", "y", keepdims=0)],
                  [value("x", [2, 3, 9, 31])], [value("y", None)], given | {"axes2": [2, 3]})
    x = floats(2, 3, 9, 31)
    model.compare([x], [f(x).sum((2, 3))], ("-O0", ("-march=x86-64-v2",), ("-march=x86-64-v3",), "-O2"))


def test_rows_first_between_ports(tmp_path):
    """What a convolution reads lies in blocks of channels, so all taps are vectors there."""
    nodes = [node("MaxPool", "x", "p", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), node("Conv", "p w", "y")]
    model = Model(tmp_path, nodes, [value("x", [1, 32, 20, 20])], [value("y", None)], {"w": floats(24, 32, 1, 1, seed=1, scale=0.1)})
    assert model.dump("legalize").count("= window(") == 1
    model.compare([floats(1, 32, 20, 20, seed=2)])


@pytest.mark.parametrize("beside, blocked", [([], 0), ([node("Conv", "p w", "y")], 2), ([node("Relu", "p", "r"), node("Conv", "r w", "y")], 2)],
                         ids=["ports", "before a convolution", "with a map between"])
def test_layout(tmp_path, beside, blocked):
    """Windows between ports stay row-major, as both are; what a convolution reads lies in blocks of channels, through windows, too."""
    nodes = [node("MaxPool", "x", "p" if beside else "y", kernel_shape=[5, 5], pads=[2] * 4), *beside]
    model = Model(tmp_path, nodes, [value("x", [1, 32, 20, 20])], [value("y", None)], {"w": floats(24, 32, 1, 1, seed=1, scale=0.1)} if beside else {})
    assert len(re.findall(r"^value .* arena \d+ blocked", model.dump("plan", "-march=x86-64-v4"), re.M)) == blocked
    model.compare([floats(1, 32, 20, 20, seed=2)])

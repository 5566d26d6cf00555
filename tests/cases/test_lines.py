"""Scans and scatters whose other dims lie in lanes, against NumPy: drawn extents around whole vectors, open ones, several types."""
import numpy as np
import pytest
from onnx import TensorProto, helper

from support.artifact import Artifact
from support.tool import mcc, save, value

ELEMENTS = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.INT32: np.int32, TensorProto.INT64: np.int64}
MEDIUM = {**ELEMENTS, TensorProto.FLOAT16: np.float16, TensorProto.INT8: np.int8, TensorProto.BOOL: np.bool_}
WIDTHS = [1, 2, 7, 16, 17, 63, 65, 72, 127, 128, 129, 200, 300]


def built(folder, nodes, inputs, outputs):
    path = save(folder / "net.onnx", nodes, inputs, outputs)
    assert mcc(path, "-o", folder / "net.so").returncode == 0
    return folder / "net.so"


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("elem", ELEMENTS)
def test_scans(tmp_path, elem, open_):
    rng = np.random.default_rng([elem, open_])
    for i, width in enumerate(WIDTHS if not open_ else WIDTHS[::5]):
        exclusive, reverse = (int(n) for n in rng.integers(0, 2, 2))
        x = rng.integers(-9, 9, (2, 5, width)).astype(ELEMENTS[elem])
        folder = tmp_path / str(i)
        folder.mkdir()
        dims = ["a", "b", "c"] if open_ else x.shape
        node = helper.make_node("CumSum", ["x", "axis"], ["y"], exclusive=exclusive, reverse=reverse)
        axis = helper.make_node("Constant", [], ["axis"], value_int=1)
        so = built(folder, [axis, node], [value("x", dims, elem)], [value("y", dims, elem)])
        line = x[:, ::-1] if reverse else x
        want = np.cumsum(line, axis=1, dtype=x.dtype) - (line if exclusive else 0)
        with Artifact(so) as a:
            assert np.array_equal(a.run([x])[0], want[:, ::-1] if reverse else want)


def scattered(x, at, updates, reduction):
    y = x.copy()
    for place, update in zip(at.reshape(-1, at.shape[-1]), updates.reshape(-1, *updates.shape[at.ndim - 1:])):
        key = tuple(place)
        y[key] = {"none": update, "add": y[key] + update, "max": np.maximum(y[key], update)}[reduction]
    return y


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("elem", MEDIUM)
def test_rows_scattered(tmp_path, elem, open_):
    rng = np.random.default_rng([elem, open_, 1])
    for i, width in enumerate(WIDTHS[::2] if not open_ else WIDTHS[::5]):
        shape = [(9, width), (4, 5, width), (6, 3, width)][i % 3]
        depth = 1 if i % 3 != 1 else 2
        reduction = "none" if elem in (TensorProto.BOOL, TensorProto.INT8) else ["none", "add", "max"][i % 3]
        x = rng.integers(-9, 9, shape).astype(MEDIUM[elem])
        at = np.stack([rng.integers(-shape[d], shape[d], 7) for d in range(depth)], -1)      # the same row more than once
        updates = rng.integers(-9, 9, (7, *shape[depth:])).astype(MEDIUM[elem])
        folder = tmp_path / str(i)
        folder.mkdir()
        dims, u_dims = (list("abc")[:len(shape)], ["n", *list("abc")[depth:len(shape)]]) if open_ else (shape, updates.shape)
        node = helper.make_node("ScatterND", ["x", "at", "u"], ["y"], reduction=reduction)
        so = built(folder, [node], [value("x", dims, elem), value("at", ["n" if open_ else 7, depth], TensorProto.INT64),
                                    value("u", u_dims, elem)], [value("y", dims, elem)])
        with Artifact(so) as a:
            assert np.array_equal(a.run([x, at, updates])[0], scattered(x, at, updates, reduction)), (shape, reduction)


def test_lanes_are_vectors(tmp_path):
    """No element comes alone where a vector's worth lies side by side."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Constant", [], ["axis"], value_int=0), helper.make_node("CumSum", ["x", "axis"], ["y"])],
                [value("x", (64, 512), TensorProto.FLOAT)], [value("y", (64, 512), TensorProto.FLOAT)])
    text = mcc(path, "-o", "-", "--stop-after=emit", "--march=x86-64-v3").stdout
    assert "f32x64" in text and "load f32 " not in text

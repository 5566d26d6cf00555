"""Loads whose lanes lie together, though not one after another: elements twice, again and again, backwards. No gather; against NumPy."""
import numpy as np
import pytest
from onnx import TensorProto, helper

from support.artifact import Artifact
from support.tool import mcc, save, value

ELEMENTS = {TensorProto.FLOAT: np.float32, TensorProto.UINT8: np.uint8, TensorProto.FLOAT16: np.float16, TensorProto.INT64: np.int64}


def resized(x, rows, columns):
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest", coordinate_transformation_mode="asymmetric",
                            nearest_mode="floor")
    scales = helper.make_node("Constant", [], ["scales"], value_floats=[1.0, 1.0, float(rows), float(columns)])
    return [scales, node], x.repeat(rows, 2).repeat(columns, 3)


def backwards(x):
    ends = [helper.make_node("Constant", [], [n], value_ints=[v]) for n, v in (("s", -1), ("e", -10 ** 6), ("a", 3), ("b", -1))]
    return [*ends, helper.make_node("Slice", ["x", "s", "e", "a", "b"], ["y"])], x[..., ::-1]


def tiled(x, times):
    node = helper.make_node("Tile", ["x", "r"], ["y"])
    return [helper.make_node("Constant", [], ["r"], value_ints=[1, 1, 1, times]), node], np.tile(x, (1, 1, 1, times))


FORMS = {"twice": lambda x: resized(x, 2, 2), "three times": lambda x: resized(x, 1, 3), "four rows": lambda x: resized(x, 4, 2),
         "backwards": backwards, "tiled": lambda x: tiled(x, 8)}


@pytest.mark.parametrize("elem", ELEMENTS)
@pytest.mark.parametrize("form", FORMS)
def test_forms(tmp_path, form, elem):
    rng = np.random.default_rng(7)
    for i, width in enumerate([3, 4, 8, 11, 16, 28, 33, 64] if elem == TensorProto.FLOAT else [3, 16, 29]):
        folder = tmp_path / str(i)
        folder.mkdir()
        x = rng.integers(0, 99, (1, 2, 5, width)).astype(ELEMENTS[elem])
        nodes, want = FORMS[form](x)
        path = save(folder / "net.onnx", nodes, [value("x", x.shape, elem)], [value("y", want.shape, elem)])
        assert mcc(path, "-o", folder / "net.so").returncode == 0
        with Artifact(folder / "net.so") as a:
            assert np.array_equal(a.run([x])[0], want), (form, width)


@pytest.mark.parametrize("form", ["twice", "backwards", "tiled"])
def test_no_gather(tmp_path, form):
    x = np.zeros((1, 2, 5, 32), np.float32)
    nodes, want = FORMS[form](x)
    path = save(tmp_path / "net.onnx", nodes, [value("x", x.shape, TensorProto.FLOAT)], [value("y", want.shape, TensorProto.FLOAT)])
    text = mcc(path, "-o", "-", "--stop-after=emit", "--march=x86-64-v3").stdout
    assert "gather" not in text and "loads" not in text

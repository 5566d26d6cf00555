"""Transposes that are made by squares of registers: no strided load is left where both dims hold a square."""
import numpy as np
import pytest
from onnx import TensorProto, helper

from support.artifact import Artifact
from support.tool import mcc, save, value

ORDERS = {"2-D": ((48, 80), (1, 0)), "last two": ((3, 40, 64), (0, 2, 1)), "to NCHW": ((1, 9, 16, 32), (0, 3, 1, 2)),
          "to NHWC": ((1, 32, 9, 17), (0, 2, 3, 1)), "reversed": ((33, 5, 47), (2, 1, 0))}
ELEMENTS = {TensorProto.FLOAT: np.float32, TensorProto.UINT8: np.uint8, TensorProto.FLOAT16: np.float16, TensorProto.INT64: np.int64}


@pytest.mark.parametrize("elem", ELEMENTS)
@pytest.mark.parametrize("order", ORDERS)
def test_squares(tmp_path, order, elem):
    shape, perm = ORDERS[order]
    path = save(tmp_path / "net.onnx", [helper.make_node("Transpose", ["x"], ["y"], perm=perm)], [value("x", shape, elem)],
                [value("y", [shape[p] for p in perm], elem)])
    text = mcc(path, "-o", "-", "--stop-after=emit", "--march=x86-64-v3").stdout
    assert "shuffle" in text and "loads" not in text and "gather" not in text
    assert mcc(path, "-o", tmp_path / "net.so").returncode == 0
    x = np.random.default_rng(3).integers(0, 200, shape).astype(ELEMENTS[elem])
    with Artifact(tmp_path / "net.so") as a:
        assert np.array_equal(a.run([x])[0], x.transpose(perm))

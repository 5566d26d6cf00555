"""Products whose results are one sum for each row: their lanes lie along what is summed, so nothing is loaded with a stride."""
import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from support.artifact import Artifact
from support.tool import mcc, save, value

F = TensorProto.FLOAT
FORMS = {   # operator, attributes, shapes, which are fixed; NumPy's formula
    "matrix by vector": ("MatMul", {}, [(33, 70), (70,)], np.matmul),
    "matrix by column": ("MatMul", {}, [(33, 70), (70, 1)], np.matmul),
    "batch by column": ("MatMul", {}, [(3, 5, 129), (129, 1)], np.matmul),
    "one row": ("MatMul", {}, [(1, 300), (300, 1)], np.matmul),
    "Gemm of one column": ("Gemm", {"transB": 1}, [(17, 65), (1, 65)], lambda a, b: a @ b.T),
    "ij,ij->i": ("Einsum", {"equation": "ij,ij->i"}, [(19, 130), (19, 130)], lambda a, b: (a * b).sum(1)),
    "abc,cab->b": ("Einsum", {"equation": "abc,cab->b"}, [(4, 5, 40), (40, 4, 5)], lambda a, b: np.einsum("abc,cab->b", a, b)),
    "ij,ij->": ("Einsum", {"equation": "ij,ij->"}, [(19, 130), (19, 130)], lambda a, b: (a * b).sum()),
    "ij,ij->j": ("Einsum", {"equation": "ij,ij->j"}, [(19, 130), (19, 130)], lambda a, b: (a * b).sum(0)),
}


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_forms(tmp_path, form, constant):
    op, attributes, shapes, formula = FORMS[form]
    x, y = (np.random.default_rng([i, 9]).standard_normal(s).astype(np.float32) for i, s in enumerate(shapes))
    want = formula(x.astype(np.float64), y.astype(np.float64))
    nodes = [helper.make_node(op, ["x", "w"], ["y"], **attributes)]
    inputs = [value("x", x.shape, F), value("w", y.shape, F)]
    if constant:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=helper.make_tensor("w", F, y.shape, y.ravel())))
        inputs.pop()
    path = save(tmp_path / "net.onnx", nodes, inputs, [value("y", np.shape(want), F)])
    assert mcc(path, "-o", tmp_path / "net.so").returncode == 0
    with Artifact(tmp_path / "net.so") as a:
        assert np.allclose(a.run([x] if constant else [x, y])[0], want, rtol=1e-5, atol=1e-5)
    text = mcc(path, "-o", "-", "--stop-after=emit", "--march=x86-64-v3").stdout
    assert "->j" in form or "cab" in form or "loads" not in text


@pytest.mark.parametrize("length, most", [(1024, 8), (2048, 8), (1040, 32)])
def test_rows_pages_apart(length, most, tmp_path):
    """Lines of rows that lie whole pages apart share a set of L1: a tile of one vector of columns has eight rows."""
    w = np.random.default_rng(3).standard_normal((length, 3)).astype(np.float32)
    x = np.random.default_rng(4).standard_normal((50, length)).astype(np.float32)
    path = save(tmp_path / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", x.shape)], [value("y", [50, 3])], {"w": w})
    schedule = mcc(path, "-march=x86-64-v4", "-stop-after=schedule", "-o", "-").stdout
    rows = int(re.search(r"^  tile.columns +(\d+)", schedule, re.M)[1])
    assert rows <= most and (most == 8 or rows > 8)
    assert mcc(path, "-o", tmp_path / "net.so").returncode == 0
    with Artifact(tmp_path / "net.so") as a:
        assert np.allclose(a.run([x])[0], x.astype(np.float64) @ w, rtol=1e-4, atol=1e-3)

"""Exponentials of operands whose range the graph shows need no clamps; others keep them."""
import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from support.artifact import Artifact
from support.tool import mcc, save, value

N = h.make_node
TYPES = {"f32": (T.FLOAT, np.float32), "f64": (T.DOUBLE, np.float64), "f16": (T.FLOAT16, np.float16)}


def less_maximum(axis, keepdims):
    return [N("ReduceMax", ["x"], ["m"], axes=[axis], keepdims=keepdims), N("Sub", ["x", "m"], ["d"]), N("Exp", ["d"], ["y"])]


def between(operator, low, high):
    return [N("Constant", [], ["low"], value_float=low), N("Constant", [], ["high"], value_float=high),
            N("Less", ["x", "low"], ["c"]), N("Where", ["c", "low", "x"], ["d"]), N(operator, ["d", "high"], ["e"]), N("Exp", ["e"], ["y"])]


FORMS = {   # nodes, the clamps that are left
    "its own line's maximum": (less_maximum(1, 1), ["maxnum"]),
    "another line's maximum": (less_maximum(0, 0)[:1] + [N("Unsqueeze", ["m", "one"], ["k"]), N("Sub", ["x", "k"], ["d"]), N("Exp", ["d"], ["y"])],
                               ["minnum", "maxnum"]),
    "broadcast across lines": (less_maximum(1, 0), ["minnum", "maxnum"]),
    "softmax": ([N("Softmax", ["x"], ["y"], axis=1)], []),
    "within": (between("Min", -50.0, 60.0), []),
    "too wide": (between("Min", -300.0, 400.0), ["minnum", "maxnum"]),
    "from below": (between("Max", -50.0, 60.0), ["minnum"]),
}


def draw(dtype):
    x = (np.random.default_rng(3).standard_normal((37, 37)) * 60).astype(dtype)
    x[3, 4:9], x[5, 6], x[8, :] = -np.inf, np.nan, 0
    x[9, 2], x[11, 1] = np.inf, 6e4
    return x


@pytest.mark.parametrize("name", FORMS)
def test_clamps(name, tmp_path):
    nodes, clamps = FORMS[name]
    save(tmp_path / "net.onnx", nodes, [value("x", [37, 37])], [value("y", [37, 37])], {"one": np.array([1])}, opset=13)
    assert mcc(tmp_path / "net.onnx", "-march=x86-64-v4", "-stop-after=emit", "-o", tmp_path / "net.loops").returncode == 0
    text = (tmp_path / "net.loops").read_text()
    assert [c for c in ("minnum", "maxnum") if f" {c} " in text] == clamps


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", FORMS)
def test_values(name, level, tmp_path):
    nodes, _ = FORMS[name]
    x = draw(np.float32)
    save(tmp_path / "net.onnx", nodes, [value("x", [37, 37])], [value("y", [37, 37])], {"one": np.array([1])}, opset=13)
    np.save(tmp_path / "x.npy", x)
    done = mcc("diff", tmp_path / "net.onnx", "-i", f"x={tmp_path / 'x.npy'}", f"-march={level}")
    assert done.returncode == 0, done.stdout + done.stderr

"""Two reductions of one operand over the same dims are one kernel with two results, whose loop reads the operand once."""
import re

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from support.artifact import Artifact
from support.tool import mcc, result, save, value

N = h.make_node
TYPES = {"f32": (T.FLOAT, np.float32), "f64": (T.DOUBLE, np.float64), "f16": (T.FLOAT16, np.float16), "i32": (T.INT32, np.int32),
         "i64": (T.INT64, np.int64), "u8": (T.UINT8, np.uint8)}
NUMPY = {"ReduceMax": np.max, "ReduceMin": np.min, "ReduceSum": np.sum, "ReduceProd": np.prod}
SHAPES = [((3, 1), 1), ((5, 33), 1), ((40, 1000), 1), ((2, 70001), 1), ((1, 90000), 1), ((3, 4, 5, 7), 3), ((17, 6), 0)]
FORMS = [(*ops, elem, shape, axis) for elem in TYPES for ops in [("ReduceMax", "ReduceMin")] for shape, axis in SHAPES] + [
    ("ReduceSum", "ReduceMax", elem, shape, axis) for elem in ("f32", "i32") for shape, axis in SHAPES] + [
    ("ReduceProd", "ReduceSum", "f32", (40, 100), 1), ("ReduceMax", "ReduceMax", "f32", (40, 100), 1)]


def build(folder, first, second, elem, shape, axis, *flags, opened=False):
    nodes = [N("Constant", [], ["axis"], value_ints=[axis]), N(first, ["x", "axis"], ["a"], keepdims=0), N(second, ["x", "axis"], ["b"], keepdims=0),
             N("Sub", ["a", "b"], ["d"]), N("Abs", ["a"], ["p"]), N("Abs", ["b"], ["q"])] if elem != "u8" else [
        N("Constant", [], ["axis"], value_ints=[axis]), N(first, ["x", "axis"], ["a"], keepdims=0), N(second, ["x", "axis"], ["b"], keepdims=0),
        N("Max", ["a", "b"], ["d"]), N("Min", ["a", "b"], ["p"]), N("Sub", ["a", "b"], ["q"])]
    dims = [f"n{i}" for i in range(len(shape))] if opened else shape
    of = [d for i, d in enumerate(dims) if i != axis]
    save(folder / "net.onnx", nodes, [value("x", dims, TYPES[elem][0])], [value(o, of, TYPES[elem][0]) for o in "dpq"], opset=18)
    done = mcc(folder / "net.onnx", *flags)
    assert done.returncode == 0, done.stderr


def draw(elem, shape):
    rng = np.random.default_rng(7)
    x = rng.standard_normal(shape) if elem[0] == "f" else rng.integers(0 if elem == "u8" else -99, 99, shape)
    return x.astype(TYPES[elem][1])


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=lambda f: "-".join(map(str, f)))
def test_values(form, opened, tmp_path):
    first, second, elem, shape, axis = form
    build(tmp_path, *form, "-o", tmp_path / "net.so", opened=opened)
    x = draw(elem, shape)
    kind = np.float64 if elem[0] == "f" else x.dtype
    a, b = (NUMPY[op](x.astype(kind), axis).astype(kind) for op in (first, second))
    want = (a - b, abs(a), abs(b)) if elem != "u8" else (np.maximum(a, b), np.minimum(a, b), a - b)
    got = []
    for threads in (1, 2):
        with Artifact(str(tmp_path / "net.so"), threads=threads) as artifact:
            got.append(artifact.run([x]))
    for w, one, two in zip(want, *got):
        assert np.array_equal(one, two)
        np.testing.assert_allclose(one.astype(kind), w, **({"rtol": 2e-3, "atol": 2e-3} if elem == "f16" else {"rtol": 1e-5, "atol": 2e-3}
                                                           if elem == "f32" else {}))


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_levels(level, tmp_path):
    """NaN in one row, infinities in another, beside the interpreter."""
    x = draw("f32", (40, 1000))
    x[3, 777], x[5, 0], x[5, 999] = np.nan, np.inf, -np.inf
    build(tmp_path, "ReduceMax", "ReduceMin", "f32", x.shape, 1, "-o", tmp_path / "net.so")
    np.save(tmp_path / "x.npy", x)
    done = mcc("diff", tmp_path / "net.onnx", "-i", f"x={tmp_path / 'x.npy'}", f"-march={level}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("second, axis, kernels", [("ReduceMin", 1, 1), ("ReduceMin", 0, 2)])
def test_one_kernel(second, axis, kernels, tmp_path):
    """Along memory alone: else a vector's lanes are points, and each has its loop."""
    nodes = [N("ReduceMax", ["x"], ["a"], axes=[axis], keepdims=0), N(second, ["x"], ["b"], axes=[axis], keepdims=0), N("Exp", ["a"], ["y"]),
             N("Exp", ["b"], ["z"]), N("Mul", ["a", "b"], ["w"])]
    save(tmp_path / "net.onnx", nodes, [value("x", [64, 64])], [value(o, [64]) for o in "yzw"], opset=13)
    done = mcc(tmp_path / "net.onnx", "-march=x86-64-v4", "-stop-after=emit", "-o", tmp_path / "net.loops")
    assert done.returncode == 0, done.stderr
    reducing = [k for k in re.split(r"^(?=kernel )", (tmp_path / "net.loops").read_text(), flags=re.M) if " for " in k and " max " in k or " min " in k]
    assert len(reducing) == kernels
    assert not kernels == 1 or len(re.findall(r" for ", reducing[0])) == 1

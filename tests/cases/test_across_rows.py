"""Reductions along the first dim: lanes are columns, and a tile holds so many vectors of a row that its lines come together."""
import re

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from support.artifact import Artifact
from support.compare import Model, floats, node
from support.cpu import levels
from support.tool import mcc, save, value

TYPES = {"f32": (T.FLOAT, np.float32), "f64": (T.DOUBLE, np.float64), "f16": (T.FLOAT16, np.float16), "i32": (T.INT32, np.int32)}


def build(folder, operator, elem, shape, *flags):
    nodes = [h.make_node("Constant", [], ["axis"], value_ints=[0]), h.make_node(operator, ["x", "axis"], ["y"], keepdims=0)]
    save(folder / "net.onnx", nodes, [value("x", shape, TYPES[elem][0])], [value("y", shape[1:], TYPES[elem][0])], opset=18)
    done = mcc(folder / "net.onnx", *flags)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("elem", TYPES)
@pytest.mark.parametrize("operator, numpy", [("ReduceSum", np.sum), ("ReduceMax", np.max)])
@pytest.mark.parametrize("shape", [(3, 5), (40, 127), (33, 128), (17, 257), (64, 1000), (9, 3, 70)])
def test_values(elem, operator, numpy, shape, tmp_path):
    build(tmp_path, operator, elem, shape, "-o", tmp_path / "net.so")
    x = (np.random.default_rng(2).standard_normal(shape) * 9).astype(TYPES[elem][1])
    with Artifact(str(tmp_path / "net.so")) as artifact:
        got = artifact.run([x])[0]
    kind = np.float64 if elem[0] == "f" else np.int32
    np.testing.assert_allclose(got.astype(kind), numpy(x.astype(kind), 0), rtol=2e-3 if elem == "f16" else 1e-6, atol=0.1 if elem == "f16" else 1e-4)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_vectors_of_a_tile(level, tmp_path):
    done = build(tmp_path, "ReduceSum", "f32", (1024, 1024), f"-march={level}", "-print-after=schedule", "-o", tmp_path / "net.so")
    assert re.search(r"tile\.vectors +8", done.stdout + done.stderr)


ALL_SHAPES = [((1100, 500), 0), ((33, 9000), 0), ((130, 20, 200), 0), ((3, 61, 3000), 1), ((2, 5, 31, 1801), 2)]


@pytest.mark.parametrize("operator, numpy", [("ReduceSum", np.sum), ("ReduceMin", np.min), ("ReduceProd", np.prod)])
@pytest.mark.parametrize("shape, axis", ALL_SHAPES)
def test_whole_rows(shape, axis, operator, numpy, tmp_path):
    """A large operand is read row by row, a few rows at a time added to sums of all columns, in the order of the rows."""
    nodes = [node("Constant", "", "axis", value_ints=[axis]), node(operator, "x axis", "s", keepdims=0), node("Relu", "s", "y")]
    model = Model(tmp_path, nodes, [value("x", shape)], [value("y", [n for i, n in enumerate(shape) if i != axis])], opset=18)
    x = floats(*shape) if operator != "ReduceProd" else 1 + floats(*shape, scale=0.01)
    for level in levels():
        assert re.search(r"reduce\.columns +[1-9]", model.dump("schedule", level))
        chosen = [(), ("--choose=s:reduce.columns=2",), ("--choose=s:reduce.columns=0", "--choose=s:reduce.block=0")]
        rows, *others = [model.run([x], level, *flags)[0] for flags in chosen]
        np.testing.assert_allclose(rows, np.maximum(numpy(x.astype(np.float64), axis=axis), 0), rtol=2e-4, atol=1e-3)
        for other in others:
            np.testing.assert_array_equal(rows, other)

"""What is computed behind a product before it is stored, and quotients: those that become products with a reciprocal, and those that
do not; long epilogues of several points, whose statements stand in turn.
"""
import re

import numpy as np
import pytest
from onnx import TensorProto as T

from support.compare import Model, floats, node
from support.tool import value

F = np.float32
ROOT = np.sqrt(2)
GELU = [node("Erf", "q", "e"), node("Add", "e one", "s"), node("Mul", "h s", "p"), node("Mul", "p half", "y")]


def gelu(folder, divide, outputs=("y",), elem=T.FLOAT, dtype=F, root=ROOT):
    """x @ w + b, then Gelu as exporters spell it."""
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "h"), divide, *GELU]
    constants = {"w": floats(24, 80, seed=1), "b": floats(80, seed=2), "one": F(1), "half": F(0.5), "root": F(root)}
    return Model(folder, nodes, [value("x", [30, 24], elem)], [value(o, [30, 80], elem) for o in outputs],
                 {k: v.astype(dtype) for k, v in constants.items()}, 17)


def divisions(model):
    return model.dump("legalize").count("= div(")


def test_quotient_of_erf(tmp_path):
    model = gelu(tmp_path, node("Div", "h root", "q"))
    assert divisions(model) == 0
    model.compare([floats(30, 24)])


def test_quotient_that_others_read(tmp_path):
    """It stays what it is for them, to the last bit."""
    model = gelu(tmp_path, node("Div", "h root", "q"), outputs=("y", "q", "h"))
    assert divisions(model) == 1
    y, q, h = model.run([floats(30, 24)])
    assert (q == h / F(ROOT)).all()
    model.compare([floats(30, 24)])


@pytest.mark.parametrize("divide, more", [
    (node("Div", "root h", "q"), {}),
    (node("Div", "h root", "q"), {"elem": T.FLOAT16, "dtype": np.float16}),
    (node("Div", "h root", "q"), {"elem": T.DOUBLE, "dtype": np.float64}),
    (node("Div", "h root", "q"), {"root": 1e-38}),
    (node("Div", "h root", "q"), {"root": 0.0}),
    (node("Div", "h root", "q"), {"root": np.inf}),
], ids=["the other way", "f16", "f64", "no reciprocal", "zero", "infinity"])
def test_quotient_that_stays(divide, more, tmp_path):
    assert divisions(gelu(tmp_path, divide, **more)) == 1


def runs(text, statement):
    """Lengths of the runs of lines that hold the statement."""
    hits = "".join("x" if re.search(statement, line) else " " for line in text.splitlines())
    return [len(run) for run in hits.split()]


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_statements_in_turn(cpu, tmp_path):
    model = gelu(tmp_path, node("Div", "h root", "q"))
    text = model.dump("emit", f"--march={cpu}")
    assert max(runs(text, "= minnum ")) == 4 and max(runs(text, "= abs ")) == 4
    model.compare([floats(30, 24)], flags=(f"--march={cpu}",) if cpu == "x86-64-v2" else ("-O2",))


def test_short_chains_stay(tmp_path):
    """Relu needs no turns: each point is stored before the next one is begun."""
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "h"), node("Relu", "h", "y")]
    model = Model(tmp_path, nodes, [value("x", [30, 24])], [value("y", [30, 80])], {"w": floats(24, 80), "b": floats(80)}, 17)
    assert max(runs(model.dump("emit", "--march=x86-64-v4"), "= max ")) == 1


def test_checks_stay_in_order(tmp_path):
    """An epilogue that can fail the run is left as it is: an index out of range, named."""
    nodes = [node("MatMul", "x w", "m"), node("Cast", "m", "i", to=T.INT64), node("Gather", "t i", "g"), node("Erf", "g", "e"),
             node("Erf", "e", "y")]
    model = Model(tmp_path, nodes, [value("x", [30, 24])], [value("y", [30, 80])],
                  {"w": np.abs(floats(24, 80)), "t": floats(4000)}, 17)
    model.compare([np.abs(floats(30, 24))])


def roots(folder, shape, elem=T.FLOAT, x=(6, 40)):
    """x / sqrt(v), v of the given shape."""
    nodes = [node("Sqrt", "v", "r"), node("Div", "x r", "y")]
    return Model(folder, nodes, [value("x", list(x), elem), value("v", list(shape), elem)], [value("y", list(x), elem)], {}, 17)


def quotient_shape(model):
    """Of the one division in the legal graph."""
    line, = [line for line in model.dump("legalize").splitlines() if "= div(" in line]
    return [int(n) for n in re.search(r"f\d+\[([\d, ]*)\]", line).group(1).split(",") if n.strip()]


@pytest.mark.parametrize("shape", [[6, 1], [1, 40], [40], []])
def test_quotient_by_root_of_few(shape, tmp_path):
    """As LayerNormalization has it: one reciprocal for many elements. Zeros, infinities and NaN as the quotient has them."""
    model = roots(tmp_path, shape)
    assert quotient_shape(model) == shape
    odd = F([0, -0.0, np.inf, np.nan, -1, 1e-45, 3e38, 4, 2, 1])
    x = np.concatenate([floats(230), odd]).astype(F).reshape(6, 40)
    for v in np.resize(odd, max(1, int(np.prod(shape)))), np.abs(floats(max(1, int(np.prod(shape))), seed=3)):
        v = v.reshape(shape).astype(F)
        with np.errstate(all="ignore"):
            model.compare([x, v], [x / np.sqrt(v)], rtol=3e-7, atol=0)


@pytest.mark.parametrize("shape, elem, dtype", [([6, 40], T.FLOAT, F), ([6, 1], T.DOUBLE, np.float64)])
def test_quotient_by_root_that_stays(shape, elem, dtype, tmp_path):
    model = roots(tmp_path, shape, elem)
    assert quotient_shape(model) == [6, 40]
    x, v = floats(6, 40).astype(dtype), np.abs(floats(*shape, seed=1)).astype(dtype)
    assert (model.run([x, v])[0] == x / np.sqrt(v)).all()

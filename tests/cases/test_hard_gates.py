"""HardSwish and HardSigmoid: their own operators, every spelling that exporters give them, and what only looks like one.

A spelling is recognised when the legal graph holds no division and none of the constants 3 and 6: it is then the same few
operators as HardSwish itself. References: the formula in double precision.
"""
import re

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from support.compare import Model, difference, floats, node
from support.tool import value

F = np.float32
X = np.concatenate([np.linspace(-8, 8, 297, dtype=F), F([-3, 3, 0, -np.inf, np.inf, np.nan, -0.0, 3e38, -3e38])])
SHAPE = [1, 3, 6, 17]
SCALARS = {"c3": F(3), "c0": F(0), "c6": F(6), "c1": F(1), "sixth": F(1 / 6), "less3": F(-3), "v3": F([3]), "v6": F([6])}


def swish(x, gate):
    with np.errstate(invalid="ignore"):
        return (x.astype(np.float64) * gate).astype(x.dtype)


def gate_of(x, alpha=1 / 6, beta=0.5):
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64) * alpha + beta
    return np.where(np.isnan(wide), wide, np.clip(wide, 0, 1))


def relu6(*tail):
    return [node("Add", "x c3", "a"), node("Clip", "a c0 c6", "r"), *tail]


# name -> (nodes, opset); each computes hard swish of x into y
SPELLINGS = {
    "operator": ([node("HardSwish", "x", "y")], 14),
    "1 HardSigmoid": ([node("HardSigmoid", "x", "g", alpha=1 / 6, beta=0.5), node("Mul", "x g", "y")], 13),
    "2 divide, then multiply": (relu6(node("Div", "r c6", "g"), node("Mul", "x g", "y")), 13),
    "2 commuted": ([node("Add", "c3 x", "a"), node("Clip", "a c0 c6", "r"), node("Div", "r c6", "g"), node("Mul", "g x", "y")], 13),
    "3 multiply, then divide": (relu6(node("Mul", "x r", "m"), node("Div", "m c6", "y")), 13),
    "3 commuted": (relu6(node("Mul", "r x", "m"), node("Div", "m c6", "y")), 13),
    "4 Relu, Min, times a sixth": ([node("Add", "x c3", "a"), node("Relu", "a", "b"), node("Min", "b c6", "r"),
                                    node("Mul", "r sixth", "g"), node("Mul", "x g", "y")], 13),
    "4 commuted": ([node("Add", "c3 x", "a"), node("Relu", "a", "b"), node("Min", "c6 b", "r"), node("Mul", "sixth r", "g"),
                    node("Mul", "g x", "y")], 13),
    "4 a sixth last": ([node("Add", "x c3", "a"), node("Relu", "a", "b"), node("Min", "b c6", "r"), node("Mul", "r x", "m"),
                        node("Mul", "sixth m", "y")], 13),
    "5 Max, Min": ([node("Add", "x c3", "a"), node("Max", "a c0", "b"), node("Min", "b c6", "r"), node("Div", "r c6", "g"),
                    node("Mul", "x g", "y")], 13),
    "5 Min, Max": ([node("Add", "x c3", "a"), node("Min", "a c6", "b"), node("Max", "c0 b", "r"), node("Mul", "x r", "m"),
                    node("Div", "m c6", "y")], 13),
    "5 two one-sided Clips": ([node("Add", "x c3", "a"), node("Clip", "a c0", "b"), node("Clip", "b _ c6", "r"),
                               node("Mul", "x r", "m"), node("Div", "m c6", "y")], 13),
    "6 Clip with attributes": ([node("Add", "x c3", "a"), node("Clip", "a", "r", min=0.0, max=6.0), node("Div", "r c6", "g"),
                                node("Mul", "x g", "y")], 10),
    "6 Clip with one attribute each": ([node("Add", "x c3", "a"), node("Clip", "a", "b", min=0.0), node("Clip", "b", "r", max=6.0),
                                        node("Mul", "x r", "m"), node("Mul", "m sixth", "y")], 10),
}
OLD = {"broadcast": 1}           # versions before 7: the second operand alone is spread, where the node says so
SPELLINGS["8 version 6, divide"] = ([node("Add", "x c3", "a", **OLD), node("Clip", "a", "r", min=0.0, max=6.0),
                                     node("Div", "r c6", "g", **OLD), node("Mul", "x g", "y")], 6)
SPELLINGS["8 version 6, multiply"] = ([node("Add", "x c3", "a", **OLD), node("Clip", "a", "r", min=0.0, max=6.0),
                                       node("Mul", "x r", "m"), node("Mul", "m sixth", "y", **OLD)], 6)
SPELLINGS["8 version 6, an axis"] = ([node("Add", "x v3", "a", axis=1, **OLD), node("Clip", "a", "r", min=0.0, max=6.0),
                                      node("Mul", "r x", "m"), node("Div", "m v6", "y", axis=3, **OLD)], 6)
SPELLINGS["8 version 1"] = ([node("Add", "x c3", "a", **OLD), node("Clip", "a", "r", min=0.0, max=6.0),
                             node("Div", "r c6", "g", **OLD), node("Mul", "g x", "y")], 5)
SPELLINGS["9 less -3"] = ([node("Sub", "x less3", "a"), node("Clip", "a c0 c6", "r"), node("Mul", "x r", "m"), node("Div", "m c6", "y")], 13)
SPELLINGS["7 Constant nodes"] = ([node("Constant", "", n, value=numpy_helper.from_array(v)) for n, v in SCALARS.items()] +
                                 SPELLINGS["2 divide, then multiply"][0], 13)


def recognised(model):
    """No division, and no constant but those of x / 6 + 0.5 clamped to [0, 1]."""
    text = model.dump("legalize")
    numbers = {float(n) for n in re.findall(r"= constant\(\).*; (\S+)$", text, re.M)}
    return "= div(" not in text and numbers == {0.166667, 0.5, 0.0, 1.0}


def build(folder, nodes, opset, constants=SCALARS, elem=T.FLOAT, shape=SHAPE):
    names = {i for n in nodes for i in n.input} - {o for n in nodes for o in n.output}
    return Model(folder, nodes, [value("x", shape, elem)], [value("y", shape, elem)],
                 {k: v for k, v in constants.items() if k in names}, opset)


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name, tmp_path):
    nodes, opset = SPELLINGS[name]
    model = build(tmp_path, nodes, opset)
    assert recognised(model)
    x = X.reshape(SHAPE)
    model.compare([x], [swish(x, gate_of(x))], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [[1], [1, 1, 1, 1]])
def test_constants_of_one_element(shape, tmp_path):
    constants = {k: v if k in ("c0", "c6") else v.reshape(shape) for k, v in SCALARS.items()}
    nodes, opset = SPELLINGS["4 Relu, Min, times a sixth"]
    assert recognised(build(tmp_path, nodes, opset, constants))


@pytest.mark.parametrize("elem, dtype", [(T.FLOAT16, np.float16), (T.DOUBLE, np.float64), (T.BFLOAT16, ml_dtypes.bfloat16)])
def test_other_types(elem, dtype, tmp_path):
    constants = {k: v.astype(dtype) for k, v in SCALARS.items()} | {"sixth": np.float64(1 / 6).astype(dtype)}
    nodes, opset = SPELLINGS["4 Relu, Min, times a sixth"]
    model = build(tmp_path, nodes, opset, constants, elem)
    assert recognised(model)
    x = np.clip(X, -100, 100).astype(dtype).reshape(SHAPE)
    got = model.run([x])[0]
    wide = x.astype(np.float64)
    want = wide * gate_of(wide)
    assert got.dtype == dtype
    assert not difference(want, got.astype(np.float64), rtol=2.0 ** -7 if dtype is ml_dtypes.bfloat16 else 1e-3, atol=1e-6)


def test_inside_quantization_pairs(tmp_path):
    """Dequantize, hard swish in pieces, quantize: exact integers, ties included."""
    nodes = [node("DequantizeLinear", "q s z", "x"), *SPELLINGS["2 divide, then multiply"][0],
             node("QuantizeLinear", "y s z", "o")]
    model = Model(tmp_path, nodes, [value("q", [4, 64], T.UINT8)], [value("o", [4, 64], T.UINT8)],
                  SCALARS | {"s": F(0.0625), "z": np.uint8(128)}, 13)
    model.compare([np.arange(256, dtype=np.uint8).reshape(4, 64)])


def changed(**constants):
    return SCALARS | {k: F(v) for k, v in constants.items()}


@pytest.mark.parametrize("nodes, constants", [
    (SPELLINGS["2 divide, then multiply"][0], changed(c3=2.5)),
    (SPELLINGS["3 multiply, then divide"][0], changed(c3=np.nextafter(F(3), F(4)))),
    ([node("Add", "x c3", "a"), node("Clip", "a c0 c5", "r"), node("Div", "r c6", "g"), node("Mul", "x g", "y")], changed(c5=5)),
    (relu6(node("Div", "r c5", "g"), node("Mul", "x g", "y")), changed(c5=5)),
    (relu6(node("Mul", "r c5", "g"), node("Mul", "x g", "y")), changed(c5=0.16)),
    (relu6(node("Div", "c6 r", "g"), node("Mul", "x g", "y")), SCALARS),
    ([node("Sub", "x c3", "a"), node("Clip", "a c0 c6", "r"), node("Div", "r c6", "g"), node("Mul", "x g", "y")], SCALARS),
    (relu6(node("Neg", "x", "w"), node("Mul", "w r", "m"), node("Div", "m c6", "y")), SCALARS),
    ([node("Add", "x c3", "a"), node("Clip", "a c1 c6", "r"), node("Div", "r c6", "g"), node("Mul", "x g", "y")], SCALARS),
    ([node("HardSigmoid", "x", "g", alpha=0.2, beta=0.5), node("Mul", "x g", "y")], SCALARS),
], ids=["3 is 2.5", "3 is the next float", "upper 5", "divisor 5", "factor 0.16", "divided the other way", "minus 3", "another x",
        "lower 1", "another slope"])
def test_near_miss(nodes, constants, tmp_path):
    model = build(tmp_path, nodes, 13, constants)
    assert not recognised(model)
    x = X[:-9].reshape([1, 3, 9, 11])
    model = build(tmp_path, nodes, 13, constants, shape=[1, 3, 9, 11])
    model.compare([x], rtol=1e-5, atol=1e-6)


def test_the_other_factor_differs(tmp_path):
    """The gate of x times another tensor: the gate alone is recognised."""
    nodes = relu6(node("Div", "r c6", "g"), node("Mul", "z g", "y"))
    model = Model(tmp_path, nodes, [value("x", [5, 7]), value("z", [5, 7])], [value("y", [5, 7])], SCALARS, 13)
    x, z = floats(5, 7, scale=4), floats(5, 7, seed=1)
    model.compare([x, z], [swish(z, gate_of(x))])


@pytest.mark.parametrize("shape, op", [([1, 3, 10, 10], "HardSwish"), ([1, 3, 10, 10], "HardSigmoid"), ([32, 32], "HardSwish"),
                                       ([2, 3], "HardSigmoid")])
def test_units(shape, op, tmp_path):
    model = build(tmp_path, [node(op, "x", "y")], 14, {}, shape=shape)
    model.compare([floats(*shape, scale=4)], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("attributes", [{}, {"alpha": 1 / 6}, {"beta": 0.6}, {"alpha": 0.0}, {"alpha": -0.3},
                                        {"alpha": 0.5, "beta": 0.6}])
@pytest.mark.parametrize("opset", [1, 6, 22])
def test_hard_sigmoid_attributes(attributes, opset, tmp_path):
    if opset == 1:
        attributes = {k: float(v) for k, v in attributes.items()}
    nodes = [helper.make_node("HardSigmoid", ["x"], ["y"], **attributes)]
    model = build(tmp_path, nodes, opset, {})
    x = X.reshape(SHAPE)
    want = gate_of(x, F(attributes.get("alpha", 0.2)), F(attributes.get("beta", 0.5))).astype(F)
    model.compare([x], [want], flags=["-O2"], rtol=1e-5, atol=1e-6)

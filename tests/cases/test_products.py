"""Narrow products of one operand, merged into one (passes/graph/merge_products.c): which are, and that answers stay."""
import re

import numpy as np
import pytest
from onnx import helper, numpy_helper

from support.compare import Model, floats, node
from support.tool import value


def products(columns, k, bias, x="x"):
    """x times one matrix for each number of columns, plus a bias: o0, o1, ...; nodes and constants."""
    nodes, constants = [], {}
    for i, n in enumerate(columns):
        constants[f"w{i}"] = floats(k, n, seed=i, scale=k ** -0.5)
        nodes.append(node("MatMul", f"{x} w{i}", f"p{i}" if bias else f"o{i}", f"product{i}"))
        if bias:
            constants[f"b{i}"] = floats(*[1] * (i % 2), n, seed=i + 50)
            nodes.append(node("Add", f"b{i} p{i}" if i % 2 else f"p{i} b{i}", f"o{i}", f"bias{i}"))
    return nodes, constants


def constant(name, data):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(data))


def parallel(folder, rows, k, columns, bias=True):
    nodes, constants = products(columns, k, bias)
    return Model(folder, nodes, [value("x", [*rows, k])], [value(f"o{i}", [*rows, n]) for i, n in enumerate(columns)], constants)


def dots(model):
    """The columns of each product that is left."""
    return [int(n) for n in re.findall(r": f32\[[^\]]*?(\d+)\] = dot\(", model.dump("merge-products"))]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("columns, left", [((16, 7, 33), [56]), ((3, 2, 3), [8]), ((32, 32), [64]), ((64, 64, 64), [64, 64, 64]),
                                           ((48, 48), [48, 48]), ((5, 100, 6), [11, 100]), ((20,), [20])])
def test_merged(columns, left, bias, tmp_path):
    model = parallel(tmp_path, [9], 40, columns, bias)
    assert sorted(dots(model)) == sorted(left)
    model.compare([floats(9, 40)])


def test_symbolic_rows_of_any_rank(tmp_path):
    model = parallel(tmp_path, ["b", "s"], 24, (8, 16, 3))
    assert dots(model) == [27]
    for rows in ((1, 1), (3, 5), (2, 0)):
        model.compare([floats(*rows, 24)])


def test_bias_stays_in_the_kernel(tmp_path):
    """One contraction does all; only copies to the three results remain beside it."""
    model = parallel(tmp_path, [50], 64, (16, 16, 16))
    assert sorted(model.kernels()) == ["contract: dot add", *["map: slice"] * 3]


def test_bias_of_some(tmp_path):
    """Those with a bias are one product, those without another; what is added to all columns alike is no bias."""
    nodes, constants = products((8, 8, 8, 8, 8), 32, True)
    nodes = [n for n in nodes if n.name not in ("bias1", "bias3")] + [node("Relu", "p1", "o1"), node("Add", "p3 one", "o3")]
    constants["one"] = np.float32(1)
    model = Model(tmp_path, nodes, [value("x", [6, 32])], [value(f"o{i}", [6, 8]) for i in range(5)], constants)
    assert sorted(dots(model)) == [16, 24]
    model.compare([floats(6, 32)])


def test_gemm_with_transposed_weights(tmp_path):
    """The transposes stand behind the first product, and are written again in front of it."""
    constants = {f"{name}{i}": floats(*shape, seed=i) for i in range(3) for name, shape in (("w", (12, 30)), ("b", (12,)))}
    nodes = [node("Gemm", f"x w{i} b{i}", f"o{i}", transB=1, alpha=0.25) for i in range(3)]
    model = Model(tmp_path, nodes, [value("x", ["n", 30])], [value(f"o{i}", ["n", 12]) for i in range(3)], constants)
    assert len(re.findall(r" = dot\(", model.dump("merge-products"))) == 1
    model.compare([floats(5, 30)])


def test_shared_weights_stay(tmp_path):
    """Merged, they would be stored twice."""
    nodes, constants = products((16, 16, 16), 64, True)
    nodes.append(node("MatMul", "z w1", "y"))
    model = Model(tmp_path, nodes, [value("x", [4, 64]), value("z", [7, 64])],
                  [*(value(f"o{i}", [4, 16]) for i in range(3)), value("y", [7, 16])], constants)
    assert sorted(dots(model)) == [16, 16, 32]
    model.compare([floats(4, 64), floats(7, 64)])


def test_weights_are_stored_once(tmp_path):
    k = 4000
    apart, merged = parallel(tmp_path, [2], k, (15,)).compile(), parallel(tmp_path, [2], k, (8, 8, 16)).compile()
    assert merged.stat().st_size - apart.stat().st_size < 4 * k * 24


def test_large_weights_stay(tmp_path):
    """Two fit below 4 MiB, the third has none to go with."""
    model = parallel(tmp_path, [1], 16000, (32, 32, 32))
    assert sorted(dots(model)) == [32, 64]


def test_other_dims_and_operands_stay(tmp_path):
    nodes = [node("MatMul", "x w0", "o0"), node("MatMul", "y w1", "o1"), node("Einsum", "x w2", "o2", equation="ij,ik->jk"),
             node("MatMul", "x y", "o3")]
    constants = {f"w{i}": floats(16, 8, seed=i) for i in range(3)}
    model = Model(tmp_path, nodes, [value("x", [16, 16]), value("y", [16, 16])],
                  [value(f"o{i}", [16, 16 if i == 3 else 8]) for i in range(4)], constants)
    assert sorted(dots(model)) == [8, 8, 8, 16]
    model.compare([floats(16, 16), floats(16, 16, seed=1)])


@pytest.mark.parametrize("inside", [True, False])
def test_in_a_loop(inside, tmp_path):
    """Gates of a recurrent cell; their constants are outside of the body, or in it, each in front of the node that reads it."""
    gates, constants = products((24, 24, 24), 24, True, "t")
    if inside:
        gates = [n for gate in gates for n in (*(constant(i, constants[i]) for i in gate.input if i in constants), gate)]
    nodes = [node("Add", "h x", "t"), *gates, node("Sigmoid", "o0", "s0"), node("Tanh", "o1", "s1"), node("Mul", "s0 s1", "m"),
             node("Sub", "m o2", "n")]
    body = helper.make_graph(nodes, "body", [value("h", [2, 24]), value("x", [2, 24])], [value("n", [2, 24]), value("y", [2, 24])])
    body.node.append(node("Identity", "n", "y"))
    model = Model(tmp_path, [helper.make_node("Scan", ["h0", "xs"], ["h", "ys"], body=body, num_scan_inputs=1)],
                  [value("h0", [2, 24]), value("xs", ["s", 2, 24])], [value("h", [2, 24]), value("ys", ["s", 2, 24])],
                  {} if inside else constants)
    assert dots(model) == [72]
    model.compare([floats(2, 24), floats(5, 2, 24, scale=0.5)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transposed_weights_are_read_as_they_are_stored(dtype, tmp_path):
    """Panels are made of the file's matrix: no view is between it and the product (Gemm with transB, linear layers of .pt2)."""
    weights, elem = floats(70, 300, scale=0.06).astype(dtype), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = Model(tmp_path, [helper.make_node("Gemm", ["x", "w"], ["o"], transB=1)], [value("x", [40, 300], elem)],
                  [value("o", [40, 70], elem)], {"w": weights})
    text = model.dump("legalize")
    assert "transpose(" not in text and "contract_b=[1]" in text
    model.compare([floats(40, 300).astype(dtype)])

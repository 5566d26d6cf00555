"""Constants that are others transposed, reshaped or rows of them are stored once (passes/graph/share_constants.c), unless reading them
there is slower; --stats says which and why. Answers stay those of ONNX Runtime."""
import itertools
import random

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from support.compare import Model, floats, node
from support.tool import mcc, result, value

INT64 = TensorProto.INT64


def stats(model):
    done = mcc("--stats", model.path, "-o", model.path.with_suffix(".stats.so"))
    assert done.returncode == 0, done.stderr
    shared = [line for line in done.stdout.splitlines() if line.startswith("constant '")]
    return shared, result("inspect", model.path)["weights_bytes"]


def tied(folder, vocabulary, width, kind=np.float32, **more):
    """Rows of a table, and the product with the table transposed, a second initializer."""
    table = floats(vocabulary, width).astype(kind)
    nodes = [node("Gather", "w ids", "rows", "embed"), node("Relu", "rows", "h", "act"), node("MatMul", "h t", "y", "head")]
    element = numpy_helper.from_array(table).data_type
    return Model(folder, nodes, [value("ids", ["n"], INT64)], [value("y", ["n", vocabulary], element)],
                 {"w": table, "t": np.ascontiguousarray(table.T)}, **more), table


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_tied_embedding(kind, tmp_path):
    model, table = tied(tmp_path, 3000, 64, kind)
    lines, stored = stats(model)
    assert lines == [f"constant 't', {table.nbytes} bytes, is 'w' transposed: stored once"]
    assert stored < 1.01 * table.nbytes
    ids = np.array([0, 2999, 17, 17, 1024])
    model.compare([ids], rtol=1e-2 if kind == np.float16 else 1e-4, atol=1e-2 if kind == np.float16 else 1e-5)


def layered(folder, vocabulary, width, rows, layers):
    """The same behind some dense layers."""
    table, r = floats(vocabulary, width), np.random.default_rng(4)
    nodes, constants = [node("Gather", "w ids", "h0", "embed")], {"w": table, "t": np.ascontiguousarray(table.T)}
    for k in range(layers):
        nodes += [node("MatMul", f"h{k} l{k}", f"m{k}", f"layer{k}"), node("Relu", f"m{k}", f"h{k + 1}", f"act{k}")]
        constants[f"l{k}"] = (r.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
    nodes.append(node("MatMul", f"h{layers} t", "y", "head"))
    return Model(folder, nodes, [value("ids", [rows], INT64)], [value("y", [rows, vocabulary])], constants), table


@pytest.mark.parametrize("vocabulary, width, rows, layers, once", [(500, 64, 64, 0, False), (128, 256, 16, 12, True), (128, 256, 1, 12, True),
                                                                   (60, 64, 64, 2, False), (500, 64, "n", 20, True)])
def test_short_tables(vocabulary, width, rows, layers, once, tmp_path):
    """Stored once where fetching rows from panels is at most 2 % of the network's time."""
    model, table = layered(tmp_path, vocabulary, width, rows, layers)
    lines, stored = stats(model)
    rest = layers * width * width * 4
    if once:
        assert lines[0].endswith("transposed: stored once") and stored < 1.2 * table.nbytes + 1.02 * rest
    else:
        assert "both are stored: to fetch rows of so short a table" in lines[0] and stored >= 2 * table.nbytes + rest
    model.compare([np.arange(3 if rows == "n" else rows) * 7 % vocabulary], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("second, says", [
    (node("MatMul", "h t", "y", "back"), "the products want different panels"),
    (node("Add", "h u", "y", "bias"), "each is read in its own order")])
def test_both_stay(second, says, tmp_path):
    """An encoder and a decoder with one matrix: x w, then (x w) w transposed; and readers that are no products."""
    w = floats(40, 60)
    if second.op_type == "MatMul":
        nodes, out, constants = [node("MatMul", "x w", "h", "there"), second], [3, 40], {"w": w, "t": np.ascontiguousarray(w.T)}
        inputs, fed = [value("x", [3, 40])], [floats(3, 40, seed=1)]
    else:
        nodes, out, constants = [node("Mul", "x w", "m", "scale"), node("Transpose", "m", "h", "turn", perm=[1, 0]), second], [60, 40], \
            {"w": w, "u": np.ascontiguousarray(w.T)}
        inputs, fed = [value("x", [40, 60])], [floats(40, 60, seed=1)]
    model = Model(tmp_path, nodes, inputs, [value("y", out)], constants)
    lines, stored = stats(model)
    assert len(lines) == 1 and lines[0].endswith(f"is 'w' transposed; both are stored: {says}") and stored >= 2 * w.nbytes
    model.compare(fed)


def test_one_matrix_in_both_spellings(tmp_path):
    """Gemm with transB, and MatMul: the panels are the same."""
    w = floats(70, 90)
    nodes = [node("MatMul", "x w", "a", "plain"), node("Gemm", "x t", "b", "turned", transB=1), node("Add", "a b", "y", "sum")]
    model = Model(tmp_path, nodes, [value("x", ["n", 70])], [value("y", ["n", 90])], {"w": w, "t": np.ascontiguousarray(w.T)})
    lines, stored = stats(model)
    assert lines == ["constant 't', 25200 bytes, is 'w' transposed: stored once"] and stored < 1.5 * w.nbytes
    model.compare([floats(5, 70, seed=1)])


@pytest.mark.parametrize("seed", range(6))
def test_permutations_of_products(seed, tmp_path):
    """Batched products of one stack of matrices, drawn: the second reads it permuted, through a Transpose of its own or not."""
    draw = random.Random(seed)
    batch, k, n = draw.choice([(3, 16, 40), (4, 4, 100), (5, 33, 17), (2, 30, 30)])
    w = floats(batch, k, n, seed=seed)
    perm = draw.choice([p for p in itertools.permutations(range(3)) if p != (0, 1, 2)])
    back = np.argsort(perm)
    nodes = [node("MatMul", "x w", "a", "first"), node("Transpose", "t", "u", "back", perm=[int(i) for i in back]),
             node("MatMul", "x u", "b", "second"), node("Sub", "a b", "d", "difference"), node("Add", "d a", "y", "sum")]
    model = Model(tmp_path, nodes, [value("x", [batch, 2, k])], [value("y", [batch, 2, n])],
                  {"w": w, "t": np.ascontiguousarray(w.transpose(perm))})
    lines, stored = stats(model)
    assert len(lines) == 1 and lines[0].endswith("transposed: stored once") and stored < 1.8 * w.nbytes + 4096
    model.compare([floats(batch, 2, k, seed=1)])


@pytest.mark.parametrize("shapes, once", [(((1, 50, 40), (50, 1, 40)), True), (((2000,), (50, 40)), True), (((50, 40), (25, 80)), False)])
def test_reshaped(shapes, once, tmp_path):
    first, second = shapes
    w = floats(*first)
    nodes = [node("Mul", "x w", "a", "m1"), node("Mul", "z v", "b", "m2")]
    model = Model(tmp_path, nodes, [value("x", first), value("z", second)], [value("a", first), value("b", second)],
                  {"w": w, "v": w.reshape(second)})
    lines, stored = stats(model)
    assert len(lines) == 1 and lines[0].endswith("in another shape: stored once" if once else "the other shape costs a division for each element")
    assert (stored < 1.5 * w.nbytes) == once
    model.compare([floats(*first, seed=1), floats(*second, seed=2)])


@pytest.mark.parametrize("start, rows, once", [(0, 100, True), (4, 200, True), (412, 100, True), (3, 100, False)])
def test_rows(start, rows, once, tmp_path):
    """Position tables of several lengths; parts that do not begin at a cache line are their own."""
    table = floats(512, 20)
    nodes = [node("Gather", "w i", "a", "long"), node("Mul", "x v", "b", "short")]
    model = Model(tmp_path, nodes, [value("i", ["n"], INT64), value("x", [rows, 20])], [value("a", ["n", 20]), value("b", [rows, 20])],
                  {"w": table, "v": table[start:start + rows].copy()})
    lines, stored = stats(model)
    assert lines == ([f"constant 'v', {rows * 80} bytes, is 'w' in part, some of its rows: stored once"] if once else [])
    assert (stored < table.nbytes + 2048) == once
    model.compare([np.array([0, 511, 5]), floats(rows, 20, seed=1)])


def test_slices_of_the_file(tmp_path):
    """A Slice node over a table that something else reads as a whole."""
    table = floats(600, 32)
    nodes = [node("Slice", "w from to", "v", "cut"), node("Add", "x v", "a", "short"), node("Mul", "z w", "b", "long")]
    model = Model(tmp_path, nodes, [value("x", [300, 32]), value("z", [600, 32])], [value("a", [300, 32]), value("b", [600, 32])],
                  {"w": table, "from": np.array([100]), "to": np.array([400])})
    assert stats(model)[1] < table.nbytes + 2048
    model.compare([floats(300, 32, seed=1), floats(600, 32, seed=2)])


def test_both_branches(tmp_path):
    """The table above an If, and its transpose inside of a branch."""
    from onnx import helper
    table = floats(2000, 32)
    inner = helper.make_graph([node("MatMul", "h t", "p", "head"), node("Neg", "p", "q", "neg")], "yes", [], [value("q", ["n", 2000])],
                              [numpy_helper.from_array(np.ascontiguousarray(table.T), "t")])
    other = helper.make_graph([node("MatMul", "h s", "r", "head2")], "no", [], [value("r", ["n", 2000])],
                              [numpy_helper.from_array(np.ascontiguousarray(table.T), "s")])
    nodes = [node("Gather", "w ids", "h", "embed"), node("If", "c", "y", "choose", then_branch=inner, else_branch=other)]
    model = Model(tmp_path, nodes, [value("ids", ["n"], INT64), value("c", [], TensorProto.BOOL)], [value("y", ["n", 2000])], {"w": table})
    lines, stored = stats(model)
    assert len(lines) == 1 and lines[0].endswith("transposed: stored once") and stored < 1.01 * table.nbytes
    for c in (True, False):
        model.compare([np.array([1, 1999]), np.array(c)])


def test_look_alikes_are_different(tmp_path):
    """First and last element and all but one of the others agree."""
    w = floats(1500, 32)
    t = np.ascontiguousarray(w.T)
    t[17, 900] += 1
    nodes = [node("Gather", "w ids", "h", "embed"), node("MatMul", "h t", "y", "head")]
    model = Model(tmp_path, nodes, [value("ids", ["n"], INT64)], [value("y", ["n", 1500])], {"w": w, "t": t})
    assert stats(model)[0] == []
    model.compare([np.array([900, 3])])

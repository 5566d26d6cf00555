"""Loops, scans and branches: what unrolls, what stays one loop in the code, and what one shared object answers for every
number of trips. References: ONNX Runtime, and numpy where it is said."""
import re
import resource

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from support.artifact import Artifact, ModelError
from support.compare import Model, difference, floats, interpreted, ints, node, node_graph
from support.tool import mcc, value

WEIGHT = floats(1, 8, scale=0.5)
F = np.float32


def graph(nodes, inputs, outputs, constants=()):
    return helper.make_graph(nodes, "region", inputs, outputs, list(constants))


def loops_in_program(model):
    """`for` statements of the run function (of the first CPU variant)."""
    text = model.dump("emit", "-march=native")
    program = re.search(r"^program .*?^}", text, re.M | re.S)[0]
    return len(re.findall(r"= for |^ *for ", program, re.M))


# ---- Loop ---------------------------------------------------------------------------------------------------------------

def stepping(trip_count, stop_early=False):
    """s <- tanh(s * w), rows collected; goes on while (stop_early) sum(s) < limit."""
    go = [node("ReduceSum", "s2", "sum", keepdims=0), node("Less", "sum limit", "go")] if stop_early else [node("Identity", "more", "go")]
    body = graph([node("Mul", "s w", "t"), node("Add", "t one", "t1"), node("Tanh", "t1", "s2"), node("Identity", "s2", "row"), *go],
                 [value("i", [], T.INT64), value("more", [], T.BOOL), value("s", [1, 8])],
                 [value("go", [], T.BOOL), value("s2", [1, 8]), value("row", [1, 8])])
    constants = {"w": WEIGHT, "true": np.array(True), "one": F(0.5)}
    inputs = [value("s0", [1, 8])]
    if trip_count is None:
        inputs.append(value("m", [], T.INT64))
    else:
        constants["m"] = np.array(trip_count, np.int64)
    if stop_early:
        inputs.append(value("limit", []))
    return [node("Loop", "m true s0", "sf rows", "steps", body=body)], inputs, [value("sf", [1, 8]), value("rows", [None, 1, 8])], constants


def test_static_loop_is_unrolled(tmp_path):
    model = Model(tmp_path, *stepping(4))
    assert loops_in_program(model) == 0 and "loop(" not in model.dump("legalize")
    got = model.compare([floats(1, 8, seed=2)])
    assert got[1].shape == (4, 1, 8)


def test_long_static_loop_stays_a_loop(tmp_path):
    """Unrolling ends where the size threshold says; the answer is the same on either side."""
    model = Model(tmp_path, *stepping(500))
    assert "loop(" in model.dump("legalize") and loops_in_program(model) == 1
    assert "loop(" not in model.dump("legalize", "--limit-unroll-nodes=100000")
    model.compare([floats(1, 8, seed=2)], flags=["-O2", "--limit-unroll-nodes=100000"])


def test_dynamic_loop_is_one_loop(tmp_path):
    model = Model(tmp_path, *stepping(None))
    assert loops_in_program(model) == 1
    for trips in (0, 1, 4, 100):
        got = model.compare([floats(1, 8, seed=2), np.array(trips)])
        assert got[1].shape == (trips, 1, 8)


def test_early_exit(tmp_path):
    """The rows are those of the trips that ran."""
    model = Model(tmp_path, *stepping(None, stop_early=True))
    lengths = set()
    for trips, limit in ((100, 2.0), (100, 3.9), (100, -9.0), (3, 99.0), (0, 99.0)):
        got = model.compare([np.zeros((1, 8), F), np.array(trips), F(limit)])
        lengths.add(len(got[1]))
    assert {0, 1, 3} < lengths and max(lengths) < 100


def test_loop_without_a_count_and_without_a_condition(tmp_path):
    """Both omitted would run for ever; the condition omitted means true, the count omitted means no limit."""
    body = graph([node("Add", "s one", "s2"), node("Less", "s2 limit", "go")],
                 [value("i", [], T.INT64), value("more", [], T.BOOL), value("s", [])], [value("go", [], T.BOOL), value("s2", [])])
    model = Model(tmp_path, [node("Loop", "_ _ s0", "sf", body=body)], [value("s0", []), value("limit", [])], [value("sf", [])],
                  {"one": F(1)})
    model.compare([F(0.5), F(7)])


def test_carried_value_that_grows(tmp_path):
    body = graph([node("Identity", "more", "go"), node("Concat", "s s", "s2", axis=0)],
                 [value("i", [], T.INT64), value("more", [], T.BOOL), value("s", [None, 2])],
                 [value("go", [], T.BOOL), value("s2", [None, 2])])
    model = Model(tmp_path, [node("Loop", "m true s0", "sf", body=body)], [value("s0", ["n", 2]), value("m", [], T.INT64)],
                  [value("sf", [None, 2])], {"true": np.array(True)})
    for trips in (0, 1, 7):
        model.compare([floats(3, 2), np.array(trips)])


# ---- Scan -----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("attributes, axes", [
    ({}, (0, 0)), ({"scan_input_directions": [1, 0]}, (0, 0)), ({"scan_input_directions": [0, 1], "scan_output_directions": [1, 0]}, (0, 0)),
    ({"scan_input_axes": [1, 0]}, (1, 0)), ({"scan_input_axes": [-1, 1], "scan_output_axes": [1, -1]}, (2, 1)),
    ({"scan_input_axes": [2, 1], "scan_input_directions": [1, 1], "scan_output_axes": [2, 0], "scan_output_directions": [1, 1]}, (2, 1)),
])
@pytest.mark.parametrize("length", ["t", 5])
def test_scan(attributes, axes, length, tmp_path):
    """Two states, two scan inputs, two scan outputs; directions, axes; length symbolic and fixed."""
    body = graph([node("Add", "a x", "a2"), node("ReduceSum", "y", "total", keepdims=0), node("Mul", "b half", "bh"), node("Add", "bh total", "b2"),
                  node("Mul", "x y", "p"), node("Add", "p b2", "q")],
                 [value("a", [2, 3]), value("b", []), value("x", [2, 3]), value("y", [2, 3])],
                 [value("a2", [2, 3]), value("b2", []), value("p", [2, 3]), value("q", [2, 3])])
    shapes = [list(np.insert(np.array([2, 3], object), axis, length)) for axis in axes]
    model = Model(tmp_path, [node("Scan", "a0 b0 xs ys", "an bn ps qs", body=body, num_scan_inputs=2, **attributes)],
                  [value("a0", [2, 3]), value("b0", []), value("xs", shapes[0]), value("ys", shapes[1])],
                  [value("an", [2, 3]), value("bn", []), value("ps", [None] * 3), value("qs", [None] * 3)], {"half": F(0.5)})
    for t in ((1, 4, 9) if length == "t" else (5,)):
        data = [floats(*(t if d == "t" else d for d in s), seed=k) for k, s in enumerate(shapes)]
        model.compare([floats(2, 3, seed=5), F(1.5), *data])


# ---- If ---------------------------------------------------------------------------------------------------------------------

def branch(nodes, outputs):
    return graph(nodes, [], outputs)


def nested(shape, fixed=None):
    """If in an If, two outputs each, captures from every level."""
    out = lambda *names: [value(n, [3]) for n in names]
    inner = node("If", "q", "i1 i2", then_branch=branch([node("Add", "x h", "t1"), node("Sub", "x h", "t2")], out("t1", "t2")),
                 else_branch=branch([node("Mul", "x x", "e1"), node("Identity", "x", "e2")], out("e1", "e2")))
    then = branch([node("Neg", "x", "h"), inner], out("i1", "i2"))
    other = branch([node("Relu", "x", "o1"), node("Exp", "x", "o2")], out("o1", "o2"))
    constants = {} if fixed is None else {k: np.full(shape, v) for k, v in zip("pq", fixed)}
    inputs = [value("x", [3])] + [value(k, shape, T.BOOL) for k in "pq" if k not in constants]
    return [node("If", "p", "y z", then_branch=then, else_branch=other)], inputs, out("y", "z"), constants


@pytest.mark.parametrize("shape", [[], [1]])
def test_nested_if(shape, tmp_path):
    model = Model(tmp_path, *nested(shape))
    for p in (True, False):
        for q in (True, False):
            model.compare([floats(3), np.full(shape, p), np.full(shape, q)])


@pytest.mark.parametrize("fixed", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("shape", [[], [1]])
def test_constant_conditions_leave_no_branch(shape, fixed, tmp_path):
    model = Model(tmp_path, *nested(shape, fixed))
    assert " if(" not in model.dump("legalize")
    model.compare([floats(3)])


def test_branches_with_initializers_and_shadowed_names(tmp_path):
    """An initializer inside a branch, with a name that means something else in the other branch."""
    w = helper.make_tensor("w", T.FLOAT, [3], [1, 2, 3])
    then = graph([node("Mul", "x w", "t")], [], [value("t", [3])], [w])
    other = graph([node("Neg", "x", "w"), node("Add", "w w", "e")], [], [value("e", [3])])
    model = Model(tmp_path, [node("If", "p", "y", then_branch=then, else_branch=other)], [value("x", [3]), value("p", [], T.BOOL)],
                  [value("y", [3])])
    for p in (True, False):
        x = floats(3)
        model.compare([x, np.array(p)], [x * F([1, 2, 3]) if p else -2 * x])


def test_branches_of_different_sizes(tmp_path):
    """Equal ranks, different dims: a run-time branch whose result has a symbolic shape."""
    then = branch([node("Concat", "x x", "t", axis=0)], [value("t", [None, 3])])
    other = branch([node("Identity", "x", "e")], [value("e", [None, 3])])
    model = Model(tmp_path, [node("If", "p", "r", then_branch=then, else_branch=other), node("Relu", "r", "y")],
                  [value("x", ["n", 3]), value("p", [], T.BOOL)], [value("y", [None, 3])])
    for p in (True, False):
        for n in (0, 1, 4):
            model.compare([floats(n, 3), np.array(p)])


def test_what_a_branch_asks_of_numbers_holds_there(tmp_path):
    """The repeats are at least 0 for Tile: the other branch runs with others. Elements of an input of the whole network."""
    then = branch([node("Tile", "x r", "t")], [value("t", ["k"])])
    other = branch([node("Cast", "r", "e", to=T.FLOAT)], [value("e", ["k"])])
    model = Model(tmp_path, [node("If", "p", "y", then_branch=then, else_branch=other)],
                  [value("x", ["n"]), value("r", [1], T.INT64), value("p", [], T.BOOL)], [value("y", ["m"])])
    for p, r in ((True, 2), (True, 0), (False, -1), (False, 3)):
        model.compare([floats(4), ints(r), np.array(p)])
    with pytest.raises(ModelError, match="node 't' .Tile.: a value is below 0"):
        model.run([floats(4), ints(-1), np.array(True)])


def test_loop_in_branch_in_loop(tmp_path):
    inner = graph([node("Identity", "m2", "g2"), node("Add", "v x", "v2")],
                  [value("j", [], T.INT64), value("m2", [], T.BOOL), value("v", [3])], [value("g2", [], T.BOOL), value("v2", [3])])
    then = branch([node("Loop", "i true s", "t", body=inner)], [value("t", [3])])
    other = branch([node("Neg", "s", "e")], [value("e", [3])])
    body = graph([node("Identity", "more", "go"), node("Mod", "i two", "odd"), node("Cast", "odd", "c", to=T.BOOL),
                  node("If", "c", "s2", then_branch=then, else_branch=other)],
                 [value("i", [], T.INT64), value("more", [], T.BOOL), value("s", [3])], [value("go", [], T.BOOL), value("s2", [3])])
    model = Model(tmp_path, [node("Loop", "m true s0", "y", body=body)], [value("m", [], T.INT64), value("s0", [3]), value("x", [3])],
                  [value("y", [3])], {"true": np.array(True), "two": np.array(2)})
    for m in (0, 1, 2, 5):
        model.compare([np.array(m), floats(3), floats(3, seed=1)])


# ---- branches that cannot run, branches of different ranks ------------------------------------------------------------------

def fails(model, feed, *names):
    """Both the compiled code and the interpreter end with an error that has these words."""
    for flag in ("-O0", "-O2"):
        with pytest.raises(ModelError, match="-2: ") as raised:
            model.run(feed, flag)
        assert all(n in raised.value.text for n in names), raised.value.text
    done = interpreted(model, feed)
    assert done.returncode == 1 and names[-1] in done.stderr, done.stderr


def agrees(model, feed, want=None):
    """Compiled and interpreted are what ONNX Runtime says, or want."""
    want = model.want(feed) if want is None else want
    model.compare(feed, want)
    done = interpreted(model, feed)
    assert done.returncode == 0, done.stderr
    for o, w in zip(node_graph(model).graph.output, want):
        assert not difference(w, np.load(model.folder / "eval" / f"{o.name}.npy"))


def if_then(predicate, output, then, other, name="choice"):
    """If whose branches give one output each; their nodes name it t and e."""
    return node("If", predicate, output, name, then_branch=branch(then, [value("t", None)]), else_branch=branch(other, [value("e", None)]))


def test_branch_that_cannot_be_typed(tmp_path):
    """x w is no product at this size: that branch is an error of the run that chooses it, and of no other."""
    nodes = [if_then("p", "r", [node("MatMul", "x w", "t", "product")], [node("Relu", "x", "e")]), node("Neg", "r", "y")]
    model = Model(tmp_path, nodes, [value("x", ["n", 3]), value("p", [], T.BOOL)], [value("y", None)], {"w": floats(4, 3)})
    agrees(model, [floats(2, 3), np.array(False)], [-np.maximum(floats(2, 3), 0)])    # ONNX Runtime refuses the whole model
    fails(model, [floats(2, 3), np.array(True)], "product", "differ")
    assert "[-Wif]" in mcc("check", model.path).stderr
    assert "product" in model.refused("--Werror")


def test_branch_with_a_check_that_always_fails(tmp_path):
    """The types of the else branch are fine, but the sizes of its sum contradict each other."""
    nodes = [node("Concat", "x x", "xx", axis=0), if_then("p", "y", [node("Identity", "xx", "t")], [
        node("Reshape", "xx three", "h", "odd"), node("Relu", "h", "e")], name="choice")]
    model = Model(tmp_path, nodes, [value("x", [2, 2]), value("p", [], T.BOOL)], [value("y", None)], {"three": ints(3, 2)})
    agrees(model, [floats(2, 2), np.array(True)])
    fails(model, [floats(2, 2), np.array(False)], "odd", "elements")


def test_no_branch_can_run(tmp_path):
    nodes = [if_then("p", "y", [node("MatMul", "x w", "t", "one")], [node("MatMul", "w x", "e", "other")])]
    model = Model(tmp_path, nodes, [value("x", [2, 3]), value("p", [], T.BOOL)], [value("y", None)], {"w": floats(4, 5)})
    text = model.refused()
    assert "'one'" in text and "'other'" in text


def test_operator_without_lowering_in_a_branch_is_refused(tmp_path):
    """Only what is wrong in itself becomes an error of the run."""
    nodes = [if_then("p", "y", [node("RoiAlign", "x r i", "t", "sampled", sampling_ratio=0)], [node("Identity", "x", "e")])]
    model = Model(tmp_path, nodes, [value("x", [1, 1, 4, 4]), value("p", [], T.BOOL)], [value("y", None)],
                  {"r": floats(1, 4), "i": ints(0)}, 16)
    assert "unsupported operators: RoiAlign" in model.refused()


def length_is_one(output="c"):
    return [node("Shape", "x", "s"), node("Gather", "s last", "d"), node("Equal", "d one", output)]


LENGTH = {"last": ints(-1), "one": ints(1)}


def squeezed(output="q", name="squeezing"):
    """x without its last dim if that is 1."""
    return [*length_is_one(), if_then("c", output, [node("Squeeze", "x last", "t")], [node("Identity", "x", "e")], name)]


def test_rank_that_a_length_decides(tmp_path):
    """Gemm takes rank 2 only, so a length other than 1 is an error of the run; the dims stay symbolic, and no If is left."""
    nodes = [*squeezed(), node("Gemm", "q w", "g", "dense"), node("Relu", "g", "y")]
    model = Model(tmp_path, nodes, [value("x", ["n", 3, "k"])], [value("y", None)], {"w": floats(3, 4), **LENGTH})
    assert " if(" not in model.dump("legalize")
    for n in (1, 2, 5):
        agrees(model, [floats(n, 3, 1)])
    fails(model, [floats(2, 3, 2)], "dense", "rank")


def test_rank_in_a_branch(tmp_path):
    """As above, the other way round, and in both branches of another If."""
    then = [*squeezed(), node("Gemm", "q w", "t", "dense")]
    other = [node("Sub", "one one", "axis"), node("Equal", "rows one", "b"),
             node("If", "b", "u", "unsqueezing", then_branch=branch([node("Identity", "x", "i")], [value("i", None)]),
                  else_branch=branch([node("Squeeze", "x last", "j")], [value("j", None)])), node("Gemm", "u w", "e", "second")]
    nodes = [node("Shape", "x", "dims"), node("Gather", "dims zero", "rows"), if_then("p", "y", then, other, "outer")]
    model = Model(tmp_path, nodes, [value("x", ["n", 3, "k"]), value("p", [], T.BOOL)], [value("y", None)],
                  {"w": floats(3, 4), "zero": ints(0), **LENGTH})
    for n in (2, 5):
        for p in (True, False):
            agrees(model, [floats(n, 3, 1), np.array(p)])
    fails(model, [floats(2, 3, 2), np.array(True)], "dense", "rank")
    fails(model, [floats(1, 3, 1), np.array(False)], "second", "rank")


def test_both_ranks_run(tmp_path):
    """What follows is compiled for both ranks; a second If with the same predicate is decided in each."""
    tail = [node("Relu", "q", "h"), if_then("c", "u", [node("Unsqueeze", "h last", "t")], [node("Neg", "h", "e")], "back"),
            node("Add", "u x", "y"), node("ReduceSum", "h", "m", keepdims=0)]
    model = Model(tmp_path, [*squeezed(), *tail], [value("x", ["n", 3, "k"])], [value("y", None), value("m", [])], LENGTH)
    for n, k in ((1, 1), (4, 1), (4, 2), (1, 5), (0, 3)):
        agrees(model, [floats(n, 3, k, seed=k)])


def test_both_ranks_in_a_loop(tmp_path):
    body = graph([node("Identity", "more", "go"), *squeezed(), node("ReduceSum", "q", "sum", keepdims=0), node("Add", "v sum", "v2")],
                 [value("i", [], T.INT64), value("more", [], T.BOOL), value("v", [])], [value("go", [], T.BOOL), value("v2", [])])
    model = Model(tmp_path, [node("Loop", "m true v0", "y", body=body)], [value("x", ["n", "k"]), value("m", [], T.INT64), value("v0", [])],
                  [value("y", [])], {"true": np.array(True), **LENGTH})
    for n, k, m in ((3, 1, 4), (2, 3, 2), (2, 3, 0)):
        agrees(model, [floats(n, k), np.array(m), F(0.5)])


def test_squeeze_of_all_dims_that_are_one(tmp_path):
    """Squeeze without axes, where the run says whether one of the dims goes."""
    both = Model(tmp_path, [node("Squeeze", "x", "q"), node("Exp", "q", "h"), node("ReduceSum", "h", "y", keepdims=0)],
                 [value("x", ["n", 1, 3])], [value("y", [])])
    for n in (0, 1, 4):
        agrees(both, [floats(n, 1, 3)])
    (tmp_path / "one").mkdir()
    one = Model(tmp_path / "one", [node("Squeeze", "x", "q", "flat"), node("Gemm", "q w", "y", "dense")], [value("x", ["n", 1, 3])],
                [value("y", None)], {"w": floats(3, 4)})
    agrees(one, [floats(4, 1, 3)])
    fails(one, [floats(1, 1, 3)], "dense", "only dim 0 other than 1 of 'flat' can run")


def test_ranks_at_the_end_of_a_branch_that_is_inlined(tmp_path):
    """The If that decides the rank is the last of a branch, which a known predicate chooses: what follows that If goes on twice."""
    outer = node("If", "yes", "u v", "outer", then_branch=branch([*squeezed("q"), node("Neg", "x", "m")], [value("q", None), value("m", None)]),
                 else_branch=branch([node("Abs", "x", "e"), node("Exp", "x", "f")], [value("e", None), value("f", None)]))
    tail = [node("Relu", "u", "r"), node("ReduceMax", "r", "y", keepdims=0), node("Add", "v v", "z")]
    model = Model(tmp_path, [outer, *tail], [value("x", ["n", 3, "k"])], [value("y", []), value("z", None)], {"yes": np.array(True), **LENGTH})
    for k in (1, 4):
        agrees(model, [floats(2, 3, k)])


def test_ranks_at_the_end_of_a_function(tmp_path):
    """The product behind the first call leaves one rank; the second call's is known."""
    opset = [helper.make_opsetid("", 17)]
    consts = [node("Constant", "", "last", value_ints=[-1]), node("Constant", "", "one", value_ints=[1])]
    function = helper.make_function("my", "Squeezed", ["x"], ["q"], [*consts, *squeezed("q")], opset)
    nodes = [node("Squeezed", "x", "a", "first", domain="my"), node("Gemm", "a w", "b", "dense"),
             node("Unsqueeze", "b zero", "c"), node("Transpose", "c", "d", perm=[1, 2, 0]),
             node("Squeezed", "d", "e", "second", domain="my"), node("Gemm", "e v", "y")]
    constants = {"w": floats(3, 4), "v": floats(4, 2), "zero": ints(0)}
    graph_of = helper.make_graph(nodes, "net", [value("x", ["n", 3, "k"])], [value("y", None)],
                                 [numpy_helper.from_array(v, k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph_of, opset_imports=[*opset, helper.make_opsetid("my", 1)], functions=[function], ir_version=8),
              tmp_path / "net.onnx")
    model = Model(tmp_path, path=tmp_path / "net.onnx")
    agrees(model, [floats(5, 3, 1)])
    fails(model, [floats(5, 3, 2)], "dense", "rank")


def test_branch_that_gives_a_value_from_outside(tmp_path):
    """Walks that are given up leave what they only pass on as it was."""
    then = [*squeezed(), node("Exp", "q", "q1"), node("MatMul", "w w", "wrong")]
    both = node("If", "p", "a b", "choice", then_branch=branch([*then, node("Add", "wrong q1", "u")], [value("x", None), value("u", None)]),
                else_branch=branch([node("Abs", "x", "e"), node("Exp", "x", "f")], [value("e", None), value("f", None)]))
    model = Model(tmp_path, [both, node("Add", "a x", "y"), node("Add", "b x", "z")], [value("x", ["n", 3, "k"]), value("p", [], T.BOOL)],
                  [value("y", None), value("z", None)], {"w": floats(7, 4), **LENGTH})
    x = floats(2, 3, 5)
    agrees(model, [x, np.array(False)], [np.abs(x) + x, np.exp(x) + x])


def test_result_of_both_ranks(tmp_path):
    """A graph output has the rank that the run chooses, whatever the model declares; at the end of a loop's body it is refused."""
    nodes = [*squeezed(), node("Relu", "q", "y")]
    model = Model(tmp_path, nodes, [value("x", ["n", 3, "k"])], [value("y", None)], LENGTH)
    for n, k in ((2, 1), (2, 4), (0, 1), (1, 0)):
        agrees(model, [floats(n, 3, k)])
    (tmp_path / "loop").mkdir()
    body = graph([node("Identity", "more", "go"), *squeezed("v2")], [value("i", [], T.INT64), value("more", [], T.BOOL), value("v", None)],
                 [value("go", [], T.BOOL), value("v2", None)])
    carried = Model(tmp_path / "loop", [node("Loop", "m true x", "y", body=body)], [value("x", ["n", 3, "k"]), value("m", [], T.INT64)],
                    [value("y", None)], {"true": np.array(True), **LENGTH})
    text = carried.refused()
    assert "squeezing" in text and "rank 2 or 3" in text and "--input" in text
    (tmp_path / "declared").mkdir()
    declared = Model(tmp_path / "declared", nodes, [value("x", ["n", 3, "k"])], [value("y", [None, None, None])], LENGTH)
    for k in (4, 1):
        agrees(declared, [floats(2, 3, k)])


def test_list_in_front_of_forks(tmp_path):
    """A sequence is made before tuples of a length known only at run time give four ways, one inside the other."""
    nodes = [node("SplitToSequence", "a two", "s", axis=0), node("SequenceInsert", "s b last", "z"), node("GatherND", "x i", "y")]
    outputs = [helper.make_tensor_sequence_value_info("z", T.FLOAT, None), value("y", None)]
    model = Model(tmp_path, nodes, [value("a", [4]), value("b", [2]), value("x", ["k", "k", 2, "n"]), value("i", [9, "t"], T.INT64)], outputs,
                  {"two": np.array(2), "last": np.array(-2)})
    a, b, x = floats(4), floats(2), floats(3, 3, 2, 5)
    with Artifact(model.compile("-O2")) as made:
        for t in (1, 2, 3, 4):
            i = np.random.default_rng(t).integers(0, 2, (9, t))
            z, y = made.call([a, b, x, i])
            assert np.array_equal(z, [b, a[:2], a[2:]]) and np.array_equal(y, x[tuple(i.T)])


@pytest.mark.parametrize("one_rank", [True, False])
def test_many_forks_are_bounded(one_rank, tmp_path):
    """25 Ifs one behind the other. Where one of each pair cannot go on, nothing multiplies; else it is refused, and soon."""
    nodes, inputs = [node("Identity", "x0", "a0")], [value("x0", [3])]
    for i in range(25):
        inputs.append(value(f"p{i}", [], T.BOOL))
        nodes.append(if_then(f"p{i}", f"r{i}", [node("Unsqueeze", f"a{i} zero", "t")], [node("Identity", f"a{i}", "e")], f"if{i}"))
        nodes.append(node("Squeeze" if one_rank else "Relu", f"r{i} zero" if one_rank else f"r{i}", f"a{i + 1}"))
    nodes.append(node("ReduceSum", "a25", "y", keepdims=0))
    model = Model(tmp_path, nodes, inputs, [value("y", [])], {"zero": ints(0)})
    start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    if one_rank:
        feed = [floats(3)] + [np.array(True)] * 25
        model.compare(feed)
        feed[9] = np.array(False)
        fails(model, feed, "Squeeze", "if8")
    else:
        assert "has rank" in model.refused()
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start < 60      # of three or four compilations and a run of ours


def nodes_of(text, op):
    """How many nodes of the operator a graph's text has, in all regions."""
    return len(re.findall(rf" = {op}\(", text))


def test_forks_beside_each_other(tmp_path):
    """13 parts of one graph, each of two ranks: each is compiled twice and not as often as all of them have ways, and what depends
    on none is compiled once."""
    nodes, inputs, outputs = [], [value("w", [4])], []
    for i in range(13):
        nodes += [node("Squeeze", f"x{i}", f"q{i}", f"squeezing{i}"), node("Exp", f"q{i}", f"h{i}"), node("Neg", f"h{i}", f"y{i}"),
                  node("Cos" if i == 6 else "Identity", "w" if i == 6 else f"x{i}", f"z{i}")]
        inputs.append(value(f"x{i}", [f"n{i}", 1]))
        outputs += [value(f"y{i}", None), value(f"z{i}", None)]
    model = Model(tmp_path, nodes, inputs, outputs)
    text = model.dump("legalize")
    assert (nodes_of(text, "if"), nodes_of(text, "exp"), nodes_of(text, "cos")) == (13, 26, 1), text
    for seed in (1, 2):
        sizes = np.random.default_rng(seed).integers(1, 3, 13)
        agrees(model, [floats(4), *(floats(n, 1, seed=i) for i, n in enumerate(sizes))])


def test_shapes_of_unknown_length_beside_each_other(tmp_path):
    """Nine ways each."""
    nodes, inputs, outputs = [], [], []
    for i in range(6):
        nodes += [node("Reshape", f"x{i} s{i}", f"r{i}", f"shaping{i}"), node("Exp", f"r{i}", f"y{i}")]
        inputs += [value(f"x{i}", [f"n{i}"]), value(f"s{i}", [f"k{i}"], T.INT64)]
        outputs.append(value(f"y{i}", None))
    model = Model(tmp_path, nodes, inputs, outputs)
    assert nodes_of(model.dump("legalize"), "exp") == 6 * 9
    agrees(model, [x for i in range(6) for x in (floats(4, seed=i), ints(*([1] * i), -1))])


def test_forks_that_meet(tmp_path):
    """What depends on two forks is compiled in each way of both; what depends on one of them is in no way of the other but where
    it leads on to both. One part asks what another one decides: the product wants k to be 1."""
    nodes = [node("Squeeze", "a", "p"), node("Squeeze", "b", "q"), node("Sin", "p", "s"), node("Add", "p q", "y"), node("Cos", "c", "z")]
    model = Model(tmp_path, nodes, [value("a", ["n", 1]), value("b", ["m", 1]), value("c", ["k"])],
                  [value("y", None), value("z", None), value("s", None)])
    assert nodes_of(model.dump("legalize"), "cos") == 1
    for n, m in ((1, 1), (1, 3), (3, 1), (3, 3)):
        agrees(model, [floats(n, 1), floats(m, 1, seed=2), floats(5)])
    (tmp_path / "same").mkdir()
    nodes = [*squeezed(), node("Relu", "q", "y"), if_then("c", "u", [node("Squeeze", "w last", "t")], [node("Identity", "w", "e")], "second"),
             node("Gemm", "u v", "z", "dense")]
    model = Model(tmp_path / "same", nodes, [value("x", ["n", 3, "k"]), value("w", ["n", 3, "k"])], [value("y", None), value("z", None)],
                  {"v": floats(3, 4), **LENGTH})
    assert nodes_of(model.dump("legalize"), "if") == 0
    agrees(model, [floats(2, 3, 1), floats(2, 3, 1, seed=1)])
    fails(model, [floats(2, 3, 2), floats(2, 3, 2)], "dense", "rank")


def test_forks_in_regions(tmp_path):
    """Two forks beside each other in a loop's body, whose values the body's other nodes read inside of a branch; two in a branch
    that stands in the place of its If, one of which goes on behind it."""
    body = graph([node("Identity", "more", "go"), node("Squeeze", "x", "q"), node("Squeeze", "w", "r"), node("ReduceSum", "q", "a", keepdims=0),
                  if_then("more", "c", [node("ReduceMax", "r", "t", keepdims=0)], [node("Identity", "v", "e")]),
                  node("Add", "a c", "ac"), node("Add", "v ac", "v2")],
                 [value("i", [], T.INT64), value("more", [], T.BOOL), value("v", [])], [value("go", [], T.BOOL), value("v2", [])])
    model = Model(tmp_path, [node("Loop", "m true v0", "y", body=body)],
                  [value("x", ["n", 1]), value("w", ["k", 1]), value("m", [], T.INT64), value("v0", [])], [value("y", [])],
                  {"true": np.array(True)})
    for n, k, m in ((3, 1, 4), (1, 3, 2), (1, 1, 2), (2, 2, 0)):
        agrees(model, [floats(n, 1), floats(k, 1, seed=1), np.array(m), F(0.5)])
    (tmp_path / "inlined").mkdir()
    then = branch([node("Squeeze", "x", "q"), node("Squeeze", "w", "r"), node("ReduceSum", "r", "m", keepdims=0), node("Exp", "x", "h")],
                  [value(k, None) for k in ("q", "m", "h")])
    other = branch([node("Abs", "x", "e"), node("ReduceSum", "x", "f", keepdims=0), node("Exp", "x", "g")], [value(k, None) for k in "efg"])
    outer = node("If", "yes", "u v o", "outer", then_branch=then, else_branch=other)
    model = Model(tmp_path / "inlined", [outer, node("Add", "u v", "y"), node("Neg", "o", "z")], [value("x", ["n", 1]), value("w", ["k", 1])],
                  [value("y", None), value("z", None)], {"yes": np.array(True)})
    for n, k in ((3, 1), (1, 3), (1, 1), (2, 2)):
        agrees(model, [floats(n, 1), floats(k, 1, seed=1)])


# ---- extents known only at run time ------------------------------------------------------------------------------------

def test_one_context_many_sizes(tmp_path):
    """NonZero and Compress: one context, run after run, growing and shrinking."""
    nodes = [node("NonZero", "x", "nz"), node("Cast", "x", "c", to=T.BOOL), node("Compress", "x c", "k"), node("Add", "k k", "y")]
    model = Model(tmp_path, nodes, [value("x", ["n"])], [value("nz", [1, None], T.INT64), value("y", [None])])
    with Artifact(model.compile("-O2")) as a:
        for n in (0, 1, 1000, 3, 0, 20):
            x = np.maximum(floats(n, seed=n), 0)
            want = model.want([x])
            assert not [t for w, g in zip(want, a.run([x])) if (t := difference(w, g))]


@pytest.mark.parametrize("k", [0, 1, 3, 6])
def test_top_k_of_the_run(k, tmp_path):
    model = Model(tmp_path, [node("TopK", "x k", "v i", axis=-1)], [value("x", ["n", 6]), value("k", [1], T.INT64)],
                  [value("v", [None, None]), value("i", [None, None], T.INT64)])
    model.compare([floats(2, 6), ints(k)])


def test_unique_and_nms(tmp_path):
    model = Model(tmp_path, [node("Unique", "x", "u i n c")], [value("x", ["n"])],
                  [value("u", [None])] + [value(k, [None], T.INT64) for k in "inc"])
    for n in (1, 9):
        model.compare([np.round(floats(n, scale=2))])
    (tmp_path / "nms").mkdir()
    corner = np.random.default_rng(0).uniform(0, 5, (1, 20, 2)).astype(F)
    model = Model(tmp_path / "nms", [node("NonMaxSuppression", "b s m t", "y")],
                  [value("b", [1, "n", 4]), value("s", [1, 2, "n"]), value("m", [1], T.INT64), value("t", [1])],
                  [value("y", [None, 3], T.INT64)])
    boxes = np.concatenate([corner, corner + 2], 2)
    for most in (0, 3, 100):
        model.compare([boxes, np.random.default_rng(1).uniform(0, 1, (1, 2, 20)).astype(F), ints(most), F([0.4])])


def test_scores_of_nms(tmp_path):
    """Boxes have to be above the threshold, which none are of NaN; without one they stay."""
    boxes, scores = np.array([[[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]], F), np.array([[[-np.inf, 0, np.inf]]], F)
    for name, least in (("absent", None), ("given", value("t", [1]))):
        (tmp_path / name).mkdir()
        model = Model(tmp_path / name, [node("NonMaxSuppression", "b s m i t" if least else "b s m i", "y")],
                      [value("b", [1, 3, 4]), value("s", [1, 1, 3])] + [least] * (least is not None), [value("y", [None, 3], T.INT64)],
                      {"m": ints(9), "i": F([0.5])})
        for threshold in (np.nan, np.inf, -np.inf, 0):
            model.compare([boxes, scores] + [F([threshold])] * (least is not None))


# ---- shapes of numbers and conditions ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("shapes", [([1], []), ([], [1]), ([1], [1]), ([None], [None])])
@pytest.mark.parametrize("count", [3, None])
def test_loop_with_its_number_and_condition_as_rows(shapes, count, tmp_path):
    """The body declares them int64[1] and bool[1] and takes them apart; the loop's own operands are of either shape, too."""
    number, condition = shapes
    nodes = [node("Squeeze", "i zero", "n0") if number else node("Identity", "i", "n0"), node("Cast", "n0", "n", to=T.FLOAT),
             node("Concat", "i i", "twice", axis=0) if number else node("Unsqueeze", "i zero", "twice"), node("ReduceSum", "twice", "t2", keepdims=0),
             node("Cast", "t2", "t", to=T.FLOAT), node("Add", "s n", "s1"), node("Add", "s1 t", "s2"), node("Less", "s2 limit", "below"),
             node("And", "below more", "go0"), node("Identity", "go0", "go") if condition else node("Reshape", "go0 one", "go"),
             node("Not", "more", "row")]
    body = graph(nodes, [value("i", number, T.INT64), value("more", condition, T.BOOL), value("s", [])],
                 [value("go", [] if condition is None else condition or [1], T.BOOL), value("s2", []), value("row", condition, T.BOOL)])
    inputs = [value("limit", [])] + ([value("m", [1], T.INT64)] if count is None else [])
    model = Model(tmp_path, [node("Loop", "m true s0", "s rows", body=body)], inputs, [value("s", None), value("rows", None, T.BOOL)],
                  {"true": np.full([1] if condition else [], True), "zero": ints(0), "one": ints(1), "s0": F(0.5),
                   **({} if count is None else {"m": ints(count)})})
    for limit in (-1, 2, 99):
        feed = [F(limit)] + ([ints(4)] if count is None else [])
        model.compare(feed)
        model.compare(feed, flags=[("-O2", "--limit-unroll-nodes=1")])


def test_body_that_declares_other_shapes(tmp_path):
    """What flows in counts: the declared shapes of carried values, scan elements, iteration results are not looked at."""
    body = graph([node("Add", "s x", "s2"), node("Neg", "s2", "row")], [value("s", ["p", "q"]), value("x", [7])], [value("s2", ["k"]), value("row", None)])
    model = Model(tmp_path, [node("Scan", "s0 xs", "s rows", body=body, num_scan_inputs=1)], [value("s0", ["n", 3]), value("xs", ["t", "n", 3])],
                  [value("s", None), value("rows", None)])
    s0, xs = floats(2, 3), floats(4, 2, 3, seed=1)
    sums = s0 + np.cumsum(xs, 0)
    model.compare([s0, xs], [sums[-1], -sums])
    loop = graph([node("Identity", "more", "go"), node("Add", "s x", "s2")], [value("i", [], T.INT64), value("more", [], T.BOOL), value("s", [1, 9])],
                 [value("go", [], T.BOOL), value("s2", [9])])
    (tmp_path / "loop").mkdir()
    model = Model(tmp_path / "loop", [node("Loop", "m true x", "y", body=loop)], [value("x", ["n", 3]), value("m", [], T.INT64)], [value("y", None)],
                  {"true": np.array(True)})
    for m in (0, 3):
        model.compare([s0, np.array(m)], [s0 * F(m + 1)])


@pytest.mark.parametrize("wrong", ["count", "condition", "result", "predicate", "two", "two later"])
def test_conditions_of_another_type_are_refused(wrong, tmp_path):
    go = node("Cast", "more", "go", to=T.FLOAT) if wrong == "result" else node("Concat", "more more", "go", axis=0)
    if wrong != "result" and wrong != "two later":
        go = node("Not", "more", "go")
    body = graph([go, node("Add", "s s", "s2")], [value("i", [], T.INT64), value("more", [1] if wrong == "two later" else [], T.BOOL), value("s", [])],
                 [value("go", [], T.BOOL), value("s2", [])])
    copies = [node("Identity", f"{k}0", k) for k in "mcp"]     # operands whose types the file does not say
    inputs = [value("m0", [], T.FLOAT if wrong == "count" else T.INT64),
              value("c0", [2] if wrong == "two" else [], T.FLOAT if wrong == "condition" else T.BOOL),
              value("p0", [2] if wrong == "two" else [], T.FLOAT if wrong == "predicate" else T.BOOL), value("x", [])]
    nodes = [node("Loop", "m c x", "l", body=body), if_then("p", "y", [node("Neg", "l", "t")], [node("Abs", "l", "e")])]
    text = Model(tmp_path, [*copies, *nodes], inputs, [value("y", [])]).refused()
    assert "internal error" not in text and any(w in text for w in ("bool", "int64", "elements")), text

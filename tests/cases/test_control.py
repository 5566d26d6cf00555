"""Loops, scans and branches: what unrolls, what stays one loop in the code, and what one shared object answers for every
number of trips. References: ONNX Runtime, and numpy where it is said."""
import re

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.artifact import Artifact
from support.compare import Model, difference, floats, ints, node
from support.tool import value

WEIGHT = floats(1, 8, scale=0.5)
F = np.float32


def graph(nodes, inputs, outputs, constants=()):
    return helper.make_graph(nodes, "region", inputs, outputs, list(constants))


def loops_in_program(model):
    """`for` statements of the run function (of the first CPU variant)."""
    text = model.dump("schedule", "-march=native")
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


# ---- extents that only the run knows ------------------------------------------------------------------------------------

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

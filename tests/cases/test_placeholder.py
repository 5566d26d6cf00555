"""Loops whose carried values begin as placeholders of another rank or shape than the body gives. Reference: ONNX Runtime."""
import re

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.compare import Model, floats, interpreted, ints, node
from support.tool import mcc, value

F = np.float32
STARTS = {"scalar": F(2), "one": F([3]), "two": F([3, 4]), "cube": np.ones((1, 1, 1), F), "empty": np.zeros(0, F), "flat": np.zeros((0, 7), F)}
CONSTANTS = {"true": np.array(True), "zero": np.array(0), "none": np.array(2**62)}


def open_value(name, elem=T.FLOAT):
    """Of any rank."""
    return helper.make_tensor_value_info(name, elem, None)


def body(nodes, carried, rows=()):
    """iteration i, condition more -> go; carried names are pairs "before after"."""
    before, after = zip(*(c.split() for c in carried))
    return helper.make_graph(nodes, "body", [value("i", [], T.INT64), value("more", [], T.BOOL), *map(open_value, before)],
                             [value("go", [], T.BOOL), *map(open_value, after), *map(open_value, rows)])


def scaled():
    """v <- x (i + 1): [b, n] whatever v was."""
    return [node("Cast", "i", "f", to=T.FLOAT), node("Add", "f one", "f1"), node("Mul", "x f1", "v2")]


def added():
    """v <- x + sum(v)."""
    return [node("ReduceSum", "v", "total", keepdims=0), node("Add", "x total", "v2")]


def chosen():
    """v <- x at first, x + v afterwards, which needs v's rank."""
    then = helper.make_graph([node("Identity", "x", "t")], "then", [], [open_value("t")])
    other = helper.make_graph([node("Transpose", "v", "vt", perm=[1, 0]), node("Transpose", "x", "xt", perm=[1, 0]), node("Add", "vt xt", "s"),
                               node("Transpose", "s", "e", perm=[1, 0])], "else", [], [open_value("e")])
    return [node("Equal", "i zero", "is_first"), node("If", "is_first", "v2", then_branch=then, else_branch=other)]


def grown():
    """v <- concat(v, x): the empty placeholder has another rank."""
    return [node("Concat", "v x", "v2", axis=0)]


STEPS = {"scaled": scaled, "added": added, "chosen": chosen, "grown": grown}
GO = {"always": [node("Identity", "more", "go")], "below": [node("ReduceMax", "v2", "top", keepdims=0), node("Less", "top limit", "go")]}


def loop(step, go, rows, count="m"):
    steps = [*STEPS[step](), *GO[go]] + ([node("Neg", "v2", "row")] if rows else [])
    return node("Loop", f"{count} true v0", "v rows" if rows else "v", "steps", body=body(steps, ["v v2"], ["row"] if rows else []))


def model_of(folder, step, start, go="always", rows=False, count=None, tail=()):
    """count: None: an input m, else fixed. The declared output has the rank that the body gives."""
    inputs, constants = [value("x", ["b", 3])], {**CONSTANTS, "one": F(1), "v0": STARTS[start]}
    if count is None:
        inputs.append(value("m", [], T.INT64))
    else:
        constants["m"] = np.array(count)
    if go == "below":
        inputs.append(value("limit", []))
    outputs = [value(tail[-1].output[0] if tail else "v", [None, None])]
    if rows and step != "grown":
        outputs.append(value("rows", [None, None, None]))
    return Model(folder, [loop(step, go, rows and step != "grown"), *tail], inputs, outputs, constants)


def rows_grown(x, m, limit=()):
    """What `grown` gives; ONNX Runtime aborts at operands of two ranks, though one is empty."""
    return [np.concatenate([x] * (m if not limit or x.max() < limit[0] else 1))]


def served(step, start):
    return step != "grown" or start in ("empty", "flat")


@pytest.mark.parametrize("step", STEPS)
def test_first_iteration_settles_the_rank(step, tmp_path):
    """The number of trips and the condition are the run's. With none the output is the start, of its own rank."""
    rng = np.random.default_rng(list(STEPS).index(step))
    for start in rng.permutation([s for s in STARTS if served(step, s)])[:4]:
        for go in rng.permutation(list(GO))[:rng.integers(1, 3)]:
            folder = tmp_path / f"{start}-{go}"
            folder.mkdir()
            model = model_of(folder, step, start, go, rows=bool(rng.integers(2)))
            limit = [F(rng.uniform(2, 9))] if go == "below" else []
            for m in (1, 2, 5):
                x = floats(rng.integers(1, 4), 3, seed=m)
                model.compare([x, np.array(m), *limit], rows_grown(x, m, limit) if step == "grown" else None)
            for level in ("-O0", "-O2"):
                assert np.array_equal(model.run([floats(2, 3), np.array(0), *limit], level)[0], STARTS[start])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("count", [1, 4, 700])
def test_trips_that_are_known(step, count, tmp_path):
    starts = [s for s in STARTS if served(step, s)]
    for start in np.random.default_rng(count + list(STEPS).index(step)).permutation(starts)[:2]:
        (tmp_path / start).mkdir()
        model = model_of(tmp_path / start, step, start, rows=True, count=count)
        assert step == "grown" or ("loop(" in model.dump("legalize")) == (count == 700)
        want = rows_grown(floats(2, 3), count) if step == "grown" else None
        model.compare([floats(2, 3)], want)
        model.compare([floats(2, 3)], want, flags=[("-O2", "--limit-unroll-nodes=1")])


def test_no_trip_gives_the_placeholder(tmp_path):
    """What follows takes either rank."""
    for start in STARTS:
        (tmp_path / start).mkdir()
        tail = [node("ReduceSum", "v", "sum", keepdims=0), node("Mul", "x sum", "y")]
        model = model_of(tmp_path / start, "scaled", start, tail=tail)
        for m in (0, 1, 3):
            model.compare([floats(2, 3), np.array(m)])


def test_placeholders_that_settle_one_after_the_other(tmp_path):
    """a <- b, b <- x: the second iteration settles a, where the number of trips is known."""
    nodes = [node("Identity", "more", "go"), node("Identity", "b", "a2"), node("Add", "x x", "b2")]
    step = body(nodes, ["a a2", "b b2"])
    for m in (1, 2, 400):
        (tmp_path / str(m)).mkdir()
        model = Model(tmp_path / str(m), [node("Loop", "m true a0 b0", "a b", body=step)], [value("x", ["n", 2])],
                      [open_value("a"), open_value("b")], {**CONSTANTS, "m": np.array(m), "a0": F(1), "b0": F([1])})
        model.compare([floats(3, 2)])
        model.compare([floats(3, 2)], flags=[("-O2", "--limit-unroll-nodes=1")])
    (tmp_path / "run").mkdir()
    model = Model(tmp_path / "run", [node("Loop", "m true a0 b0", "a b", body=step)], [value("x", ["n", 2]), value("m", [], T.INT64)],
                  [open_value("a"), value("b", [None, None])], {**CONSTANTS, "a0": F(1), "b0": F([1])})
    assert "the number of iterations is dynamic" in model.refused()


def test_rank_that_never_settles_is_refused(tmp_path):
    nodes = [node("Identity", "more", "go"), node("Unsqueeze", "v at", "v2")]
    model = Model(tmp_path, [node("Loop", "m true x", "y", body=body(nodes, ["v v2"]))], [value("x", [2]), value("m", [], T.INT64)],
                  [open_value("y")], {**CONSTANTS, "at": ints(0)})
    assert "carried value 1" in model.refused()


def test_placeholder_that_nobody_reads_afterwards(tmp_path):
    """Its rank then does not matter behind the loop: no check, no copy of what follows."""
    nodes = [*scaled(), node("Identity", "more", "go"), node("ReduceSum", "v2", "part", keepdims=0), node("Add", "s part", "s2")]
    model = Model(tmp_path, [node("Loop", "m true v0 s0", "v s", body=body(nodes, ["v v2", "s s2"]))],
                  [value("x", ["n", 2]), value("m", [], T.INT64)], [value("s", [])],
                  {**CONSTANTS, "v0": F([0]), "s0": F(4), "one": F(1)})
    assert "assert" not in model.dump("legalize")
    for m in (0, 1, 3):
        model.compare([floats(3, 2), np.array(m)])


def test_placeholder_in_a_loop_in_a_loop(tmp_path):
    """Both loops have one; the inner one may run no times."""
    inner = node("Loop", "i true w0", "w", body=body([*(n for n in added() if n.op_type != "Add"), node("Add", "x total", "v2"),
                                                       node("Identity", "more", "go")], ["v v2"]))
    outer = body([inner, node("ReduceSum", "w", "part", keepdims=0), node("ReduceSum", "u", "old", keepdims=0), node("Add", "part old", "new"),
                  node("Add", "x new", "u2"), node("Identity", "more", "go"), node("Neg", "u2", "row")], ["u u2"], ["row"])
    model = Model(tmp_path, [node("Loop", "m true u0", "u rows", body=outer)], [value("x", ["n", 2]), value("m", [], T.INT64)],
                  [value("u", [None, None]), value("rows", [None, None, None])], {**CONSTANTS, "u0": F([1]), "w0": F(2)})
    for m in (1, 2, 4):
        model.compare([floats(3, 2), np.array(m)])


def test_rows_whose_size_the_data_decides(tmp_path):
    """One trip: the loop behind the first iteration collects nothing, and knows no size for it."""
    nodes = [node("NonZero", "x", "row"), *scaled(), node("Identity", "more", "go")]
    step = body(nodes, ["v v2"], [])
    step.output.append(open_value("row", T.INT64))
    model = Model(tmp_path, [node("Loop", "m true v0", "v rows", body=step)], [value("x", ["n", 2]), value("m", [], T.INT64)],
                  [value("v", [None, None]), value("rows", [None, 2, None], T.INT64)], {**CONSTANTS, "v0": F([0]), "one": F(1)})
    for m in (1, 2, 3):
        model.compare([np.maximum(floats(3, 2, seed=m), 0), np.array(m)])


@pytest.mark.parametrize("length, reverse", [("t", 0), ("t", 1), (1, 1), (4, 0), (200, 1)])
def test_scan(length, reverse, tmp_path):
    """A state that begins as a scalar. ONNX Runtime wants states of one shape: numpy says what is right."""
    step = helper.make_graph([node("ReduceMean", "s", "mean", keepdims=0), node("Add", "r mean", "s2"), node("Neg", "s2", "row")], "body",
                             [open_value("s"), value("r", [3])], [open_value("s2"), open_value("row")])
    model = Model(tmp_path, [node("Scan", "s0 xs", "s rows", body=step, num_scan_inputs=1, scan_input_directions=[reverse], scan_output_axes=[1])],
                  [value("xs", [length, 3])], [value("s", [3]), value("rows", [3, None])], {"s0": F(0.25)})
    for n in ((1, 2, 5) if length == "t" else (length,)):
        xs, rows, state = floats(n, 3, scale=0.1), [], F(0.25)
        for r in xs[::-1] if reverse else xs:
            state = r + np.mean(state, dtype=F)
            rows.append(-state)
        model.compare([xs], [state, np.stack(rows, 1)], rtol=1e-3)


def test_dims_that_the_first_iteration_sets(tmp_path):
    """[1, 1] becomes [n, 8] and stays that: no dim of it is left to the run. A value that grows all the time is no placeholder."""
    nodes = [node("Add", "v x", "v2"), node("Concat", "g v2", "g2", axis=0), node("Identity", "more", "go")]
    inputs = [value("x", ["n", 8]), value("m", [], T.INT64)]
    model = Model(tmp_path, [node("Loop", "m true v0 g0", "v g", body=body(nodes, ["v v2", "g g2"]))], inputs,
                  [value("v", [None, None]), value("g", [None, 8])], {**CONSTANTS, "v0": F([[1]]), "g0": np.zeros((0, 8), F)})
    assert re.search(r": f32\[n, 8\], %\d+: f32\[\w+, 8\]\) \{", model.dump("legalize"))
    for m in (0, 1, 2, 4):
        model.compare([floats(3, 8), np.array(m)])
        assert interpreted(model, [floats(3, 8), np.array(m)]).returncode == 0
    (tmp_path / "grows").mkdir()
    grows = Model(tmp_path / "grows", [node("Loop", "m true g0", "g", body=body([node("Concat", "g x", "g2", axis=0), node("Identity", "more", "go")],
                  ["g g2"]))], inputs, [value("g", [None, 8])], {**CONSTANTS, "g0": np.zeros((0, 8), F)})
    assert grows.dump("legalize").count("concat(") == 1


@pytest.mark.parametrize("seed", range(6))
def test_sizes_that_may_be_equal_are_no_placeholder(seed, tmp_path):
    """Two symbols, or a symbol and a size, may be one number at run time: such a dim is the run's, and the body is compiled once.
    The rank, 0, 1 and a size that surely differs are what a placeholder has."""
    rng = np.random.default_rng(seed)
    n = 2 if seed % 2 else "n"
    dims = [["p", 3][rng.integers(2)] if d == "q" else ["p", 3, 0, 1][rng.integers(4)] for d in ("q", n)]
    start = [d if isinstance(d, int) else f"p{k}" for k, d in enumerate(dims)]
    peeled = any(d in (0, 1) for d in dims) or (dims[1] == 3 and n == 2)
    nodes = [node("Identity", "more", "go"), node("ReduceProd", "v", "part", keepdims=0), node("Add", "x part", "v2")]
    model = Model(tmp_path, [node("Loop", "m true v0", "v", body=body(nodes, ["v v2"]))],
                  [value("v0", start), value("x", ["q", n]), value("m", [], T.INT64)], [value("v", [None, None])], CONSTANTS)
    assert model.dump("legalize").count("= reduce") == 1 + peeled
    for m in (0, 1, 3):
        for p in (2, 3):
            v0 = floats(*(d if isinstance(d, int) else p for d in dims), seed=m)
            model.compare([v0, floats(3, 2, seed=p), np.array(m)])


def test_placeholders_of_a_loop_in_an_operator(tmp_path):
    """Scan-8 is a loop for each batch: where it is dynamic whether there is an iteration, its dims are dynamic."""
    step = helper.make_graph([node("ReduceSum", "s", "total", keepdims=0), node("Add", "r total", "s2"), node("Neg", "s2", "row")], "body",
                             [open_value("s"), value("r", [3])], [open_value("s2"), open_value("row")])
    for size in (0, 1, 2):
        (tmp_path / str(size)).mkdir()
        model = Model(tmp_path / str(size), [node("Scan", "_ s0 xs", "s rows", body=step, num_scan_inputs=1)], [value("xs", [2, "t", 3])],
                      [value("s", [2, 3]), value("rows", [2, None, 3])], {"s0": np.full((2, size), 0.25, F)}, opset=8)
        for t in (1, 2, 4):
            xs, rows = floats(2, t, 3, seed=t), []
            for batch in xs:
                state = np.full(size, 0.25, F)
                for r in batch:
                    state = r + np.sum(state, dtype=F)
                    rows.append(-state)
            rows = np.reshape(rows, (2, t, 3)).astype(F)
            model.compare([xs], [-rows[:, -1], rows], rtol=1e-3)


@pytest.mark.parametrize("count", [0, 3, 2**32 + 1, 2**63 - 1])
def test_scans_with_more_inputs_than_operands(tmp_path, count):
    step = helper.make_graph([node("Add", "s r", "a"), *(node("Identity", "a", k) for k in "bcd")], "body", [value("s", [2]), value("r", [2])],
                             [value(k, [2]) for k in "abcd"])
    for opset, operands in ((8, "_ s0 xs"), (11, "s0 xs")):
        (tmp_path / str(opset)).mkdir()
        model = Model(tmp_path / str(opset), [node("Scan", operands, "s p q t", body=step, num_scan_inputs=count)],
                      [value("s0", [1, 2][opset == 11:]), value("xs", [1, 3, 2][opset == 11:])], [value("s", None)], {}, opset=opset)
        done = mcc("check", model.path)
        assert done.returncode == 1 and f"num_scan_inputs is {count} for" in done.stderr, done.stderr


def test_said_with_a_remark(tmp_path):
    model = model_of(tmp_path, "scaled", "one")
    assert "carried value 1 begins as f32[1] and goes on as f32[b, 3]" in mcc("check", model.path, "-v").stderr


def test_concat_leaves_out_what_is_empty(tmp_path):
    """An operand of no elements and another rank: ONNX Runtime and PyTorch leave it out, wherever it stands."""
    for k, order in enumerate(("e x", "x e", "e x e y e", "x e y")):
        for axis in (0, -1, 1):
            folder = tmp_path / f"{k}{axis}"
            folder.mkdir()
            model = Model(folder, [node("Concat", order, "z", axis=axis)], [value("x", ["n", 2]), value("y", ["n", 2])], [value("z", [None, None])],
                          {"e": np.zeros(0, F)})
            order_of = [n for n in order.split() if n != "e"]
            x = {"x": floats(3, 2), "y": floats(3, 2, seed=1)}
            model.compare([x["x"], x["y"]], [np.concatenate([x[n] for n in order_of], axis)])

"""Optionals and sequences that cross branches and loops. References: ONNX Runtime, and numpy where it is said."""
import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.artifact import ModelError
from support.compare import Model, floats, ints, node
from support.tool import value

F = np.float32
TENSOR = helper.make_tensor_type_proto(T.FLOAT, None)
SEQUENCE = helper.make_sequence_type_proto(TENSOR)
CONSTANTS = {"true": np.array(True), "zero": np.array(0), "one": np.array(1), "two": np.array(2)}


def typed(name, of):
    return helper.make_value_info(name, of)


def optional(name, of=TENSOR):
    return typed(name, helper.make_optional_type_proto(of))


def branch(nodes, *outputs):
    return helper.make_graph(nodes, "branch", [], list(outputs))


def either(predicate, output, then, other, of, name="choice"):
    """If whose branches end in t and e, of this type."""
    return node("If", predicate, output, name, then_branch=branch(then, typed("t", of)), else_branch=branch(other, typed("e", of)))


def maybe(predicate, output, some, of=TENSOR):
    """An optional with what `some` makes (as v), or without."""
    return either(predicate, output, [*some, node("Optional", "v", "t")], [node("Optional", "", "e", type=of)], helper.make_optional_type_proto(of))


KINDS = {
    "tensor": (TENSOR, [node("Exp", "x", "v")], [node("OptionalGetElement", "o", "g"), node("Neg", "g", "t")]),
    "sequence": (SEQUENCE, [node("SequenceConstruct", "x x", "v")],
                 [node("OptionalGetElement", "o", "held"), node("SequenceAt", "held k", "g"), node("Neg", "g", "t")]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_optional_out_of_a_branch(kind, tmp_path):
    """Asked whether it holds something, and taken from where it does."""
    of, some, take = KINDS[kind]
    nodes = [maybe("p", "o", some, of), node("OptionalHasElement", "o", "h"), either("h", "y", take, [node("Identity", "x", "e")], TENSOR, "read")]
    model = Model(tmp_path, nodes, [value("x", ["n", 3]), value("p", [], T.BOOL), value("k", [], T.INT64)],
                  [value("y", None), value("h", [], T.BOOL)], CONSTANTS, 18)
    for p in (True, False):
        model.compare([floats(2, 3), np.array(p), np.array(1)])


@pytest.mark.parametrize("kind", KINDS)
def test_taking_from_an_empty_optional(kind, tmp_path):
    """Fails the run, as ONNX Runtime's does; that of a branch that never holds anything is none that can run."""
    of, some, take = KINDS[kind]
    take = [n for n in take if n.op_type != "Neg"] + [node("Neg", "g", "y")]
    model = Model(tmp_path, [maybe("p", "o", some, of), *take], [value("x", ["n", 3]), value("p", [], T.BOOL), value("k", [], T.INT64)],
                  [value("y", ["n", 3])], CONSTANTS, 18)
    model.compare([floats(2, 3), np.array(True), np.array(0)])
    with pytest.raises(ModelError, match="the optional is empty"):
        model.run([floats(2, 3), np.array(False), np.array(0)], "-O2")


@pytest.mark.parametrize("kind", KINDS)
def test_optional_through_nested_branches(kind, tmp_path):
    """Two Ifs, three ways to hold something and one to hold nothing."""
    of, some, take = KINDS[kind]
    opt = helper.make_optional_type_proto(of)
    other = [node("Neg", "x", "x2"), node(some[0].op_type, "x2" if kind == "tensor" else "x2 x", "w")]
    inner = either("q", "t", [*some, node("Optional", "v", "t")], [node("Optional", "", "e", type=of)], opt, "inner")
    inner.output[0] = "t"
    second = either("q", "e", [*other, node("Optional", "w", "t")], [*some, node("Optional", "v", "e")], opt, "second")
    nodes = [either("p", "o", [inner], [second], opt, "outer"), node("OptionalHasElement", "o", "h"),
             either("h", "y", take, [node("Identity", "x", "e")], TENSOR, "read")]
    model = Model(tmp_path, nodes, [value("x", ["n", 3]), value("p", [], T.BOOL), value("q", [], T.BOOL), value("k", [], T.INT64)],
                  [value("y", None), value("h", [], T.BOOL)], CONSTANTS, 18)
    for p in (True, False):
        for q in (True, False):
            x = floats(2, 3)
            first = -x if not p and q else x
            held = np.exp(first) if kind == "tensor" else first
            model.compare([x, np.array(p), np.array(q), np.array(0)], [x if p and not q else -held, np.array(not p or q)])


def body(nodes, carried, rows=()):
    """carried: pairs of the value infos before and after."""
    return helper.make_graph(nodes, "body", [value("i", [], T.INT64), value("more", [], T.BOOL), *(c[0] for c in carried)],
                             [value("go", [], T.BOOL), *(c[1] for c in carried), *rows])


GO = node("Identity", "more", "go")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [4, None])
def test_optional_carried_by_a_loop(kind, count, tmp_path):
    """Filled in odd iterations, emptied in even ones; read in the next one and behind the loop."""
    of, some, take = KINDS[kind]
    nodes = [node("OptionalHasElement", "o", "h"), either("h", "got", take, [node("Identity", "x", "e")], TENSOR, "read"),
             node("Add", "s got", "s2"), node("Mod", "i two", "m2"), node("Cast", "m2", "odd", to=T.BOOL), maybe("odd", "o2", some, of), GO,
             node("Cast", "h", "row", to=T.FLOAT)]
    step = body(nodes, [(optional("o", of), optional("o2", of)), (value("s", None), value("s2", None))], [value("row", [])])
    loop = node("Loop", "m true o0 s0", "of sf rows", body=step)
    tail = [node("OptionalHasElement", "of", "hf")]
    inputs = [value("x", ["n", 3]), value("k", [], T.INT64)] + ([value("m", [], T.INT64)] if count is None else [])
    model = Model(tmp_path, [node("Optional", "", "o0", type=of), node("Sub", "x x", "s0"), loop, *tail], inputs,
                  [value("sf", ["n", 3]), value("rows", None), value("hf", [], T.BOOL)], {**CONSTANTS, **({} if count is None else {"m": np.array(count)})}, 18)
    for m in ([count] if count else [0, 1, 2, 5]):
        x, total, rows, held = floats(2, 3), np.zeros((2, 3), F), [], False
        for i in range(m):
            total += -(np.exp(x) if kind == "tensor" else x) if held else x
            rows.append(held)
            held = i % 2 == 1
        feed = [x, np.array(0)] + ([] if count else [np.array(m)])
        model.compare(feed, [total, np.array(rows, F), np.array(held)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 3, 300, None])
def test_nothing_that_becomes_something(kind, count, tmp_path):
    """Carried as an optional into the first iteration and as its content from then on. No iteration: it has to hold something."""
    of, _, take = KINDS[kind]
    if kind == "tensor":
        first, later, read = [node("Identity", "x", "e")], [node("OptionalGetElement", "o", "g"), node("Add", "g x", "t")], [node("Neg", "v", "y")]
    else:
        first = [node("SequenceConstruct", "x", "e")]
        later = [node("OptionalGetElement", "o", "g"), node("SequenceInsert", "g x", "t")]
        read = [node("SequenceAt", "v k", "at"), node("SequenceLength", "v", "n"), node("Cast", "n", "nf", to=T.FLOAT),
                node("Mul", "at nf", "y0"), node("Neg", "y0", "y")]
    step = body([node("OptionalHasElement", "o", "h"), either("h", "v2", later, first, of), GO], [(optional("o", of), typed("v2", of))])
    inputs = [value("x", ["n", 3]), value("k", [], T.INT64)] + ([value("m", [], T.INT64)] if count is None else [])
    model = Model(tmp_path, [node("Optional", "", "o0", type=of), node("Loop", "m true o0", "v", "steps", body=step), *read], inputs,
                  [value("y", ["n", 3])], {**CONSTANTS, **({} if count is None else {"m": np.array(count)})}, 18)
    for m in ([count] if count else [1, 2, 5]):
        model.compare([floats(2, 3), np.array(-1)] + ([] if count else [np.array(m)]), [-floats(2, 3) * F(m)], atol=1e-3)
    if not count:
        with pytest.raises(ModelError, match="(-2: .*always empty here; only|-9: .*the optional is empty)"):
            model.run([floats(2, 3), np.array(-1), np.array(0)], "-O2")


def test_sequence_that_a_loop_fills_and_reads(tmp_path):
    """It begins empty, so its elements' rank is what is inserted; read at places of the run, in the body and behind it."""
    first = either("is_first", "got", [node("Identity", "x", "t")], [node("Sub", "i one", "before"), node("SequenceAt", "s before", "e")], TENSOR)
    step = body([node("Equal", "i zero", "is_first"), first, node("Add", "got x", "new"), node("SequenceInsert", "s new", "s2"), GO],
                [(typed("s", SEQUENCE), typed("s2", SEQUENCE))])
    model = Model(tmp_path, [node("SequenceEmpty", "", "s0"), node("Loop", "m true s0", "s", body=step), node("SequenceAt", "s k", "y"),
                             node("ConcatFromSequence", "s", "all", axis=0)],
                  [value("x", ["n", 3]), value("m", [], T.INT64), value("k", [], T.INT64)], [value("y", [None, 3]), value("all", [None, 3])], CONSTANTS)
    for m, k in ((1, 0), (3, 1), (5, -1)):
        model.compare([floats(2, 3), np.array(m), np.array(k)])


def test_elements_of_several_ranks(tmp_path):
    """Then the rank is the run's, and taking one out is refused."""
    nodes = [node("SequenceConstruct", "x flat", "s"), either("p", "u", [node("SequenceInsert", "s x", "t")], [node("Identity", "s", "e")], SEQUENCE),
             node("SequenceAt", "u k", "y")]
    model = Model(tmp_path, nodes, [value("x", ["n", 3]), value("flat", ["n"]), value("p", [], T.BOOL), value("k", [], T.INT64)], [value("y", None)], CONSTANTS)
    assert "rank of the element" in model.refused()


def test_an_optional_beside_its_content(tmp_path):
    """One branch gives the tensor itself: the result is an optional."""
    nodes = [either("p", "o", [node("Optional", "", "t", type=TENSOR)], [node("Neg", "x", "e")], TENSOR), node("OptionalHasElement", "o", "h")]
    model = Model(tmp_path, nodes, [value("x", ["n", 3]), value("p", [], T.BOOL)], [optional("o"), value("h", [], T.BOOL)], CONSTANTS, 18)
    model.compare([floats(2, 3), np.array(True)], [None, np.array(False)])
    model.compare([floats(2, 3), np.array(False)], [-floats(2, 3), np.array(True)])


def test_sequence_of_a_view_of_a_result(tmp_path):
    """The call reads what lies behind the views, past the result that is stored on the way."""
    nodes = [node("ReduceMax", "x", "most", axes=[2, 3], keepdims=1), node("Squeeze", "most axes", "flat"), node("SequenceConstruct", "flat", "one"),
             node("SequenceInsert", "one more k", "both"), node("ConcatFromSequence", "both", "y", axis=0)]
    model = Model(tmp_path, nodes, [value("x", [3, 8, 4, 4]), value("more", [2, 8]), value("k", [], T.INT64)],
                  [value("most", [3, 8, 1, 1]), value("y", [5, 8])], {"axes": np.array([2, 3])})
    model.compare([floats(3, 8, 4, 4), floats(2, 8), np.array(0)])

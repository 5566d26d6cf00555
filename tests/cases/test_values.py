"""The program around the kernels, compiled, beside ONNX Runtime: loops that collect, grow and stop by themselves, branches
of different sizes, sequences and optionals."""
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from support.artifact import Artifact, ModelError
from support.tool import mcc

F, I, B = T.FLOAT, T.INT64, T.BOOL
N, V, S = h.make_node, h.make_tensor_value_info, h.make_tensor_sequence_value_info
TRIP = [V("i", I, []), V("more", B, [])]
GO = [V("go", B, [])]


def floats(*shape):
    return np.random.RandomState(sum(shape) + 7).randn(*shape).astype(np.float32)


def num(x, dtype=np.int64):
    return np.array(x, dtype)


def region(nodes, ins, outs):
    return h.make_graph(nodes, "region", ins, outs)


def body(nodes, ins, outs, go=True):
    return region(nodes + ([N("Identity", ["more"], ["go"])] if go else []), TRIP + ins, GO + outs)


def forever():
    b = body([N("Add", ["x", "x"], ["y"]), N("ReduceSum", ["y"], ["s"], keepdims=0), N("Less", ["s", "lim"], ["go"]),
              N("Identity", ["y"], ["row"])], [V("x", F, [None])], [V("y", F, [None]), V("row", F, [None])], go=False)
    return ([N("Loop", ["", "", "x0"], ["xf", "rows"], body=b)], [V("x0", F, ["n"]), V("lim", F, [])],
            [V("xf", F, ["n"]), V("rows", F, [None, None])],
            [[np.abs(floats(k)), num(limit, np.float32)] for k, limit in ((1, 10), (3, 100), (4, 0.1))])


def growing():
    inner = region([N("Concat", ["q", "e"], ["q2"], axis=0), N("Identity", ["ci"], ["go2"])],
                   [V("j", I, []), V("ci", B, []), V("q", F, [None])], [V("go2", B, []), V("q2", F, [None])])
    b = body([N("Loop", ["i", "", "x"], ["y"], body=inner), N("ReduceSum", ["y"], ["s"], keepdims=0)],
             [V("x", F, [None])], [V("y", F, [None]), V("s", F, [])])
    return ([N("Loop", ["m", "", "x0"], ["xf", "ss"], body=b)], [V("m", I, []), V("x0", F, ["n"]), V("e", F, ["k"])],
            [V("xf", F, [None]), V("ss", F, [None])], [[num(t), floats(k), floats(2)] for t, k in ((0, 2), (1, 2), (5, 1), (20, 3))])


def swapped():
    b = body([N("Concat", ["a", "b"], ["b2"], axis=0), N("Identity", ["b"], ["a2"])], [V("a", F, [None]), V("b", F, [None])],
             [V("a2", F, [None]), V("b2", F, [None])])
    return ([N("Loop", ["m", "", "x", "y"], ["p", "q"], body=b)], [V("m", I, []), V("x", F, ["n"]), V("y", F, ["k"])],
            [V("p", F, [None]), V("q", F, [None])], [[num(t), floats(2), floats(3)] for t in (0, 1, 2, 8)])


def late_rows():
    b = body([N("NonZero", ["a"], ["nz"]), N("Add", ["nz", "i"], ["row"])], [], [V("row", I, [1, None])])
    return ([N("Loop", ["m", ""], ["rows"], body=b)], [V("m", I, []), V("a", F, ["n"])], [V("rows", I, [None, 1, None])],
            [[num(t), num(a, np.float32)] for t, a in ((1, [1, 0, 2]), (4, [0, 0, 3, 4, 5]), (3, [0, 0]))])


def late_branches():
    then = region([N("NonZero", ["a"], ["t"])], [], [V("t", I, [1, None])])
    other = region([N("Add", ["k", "k"], ["e"])], [], [V("e", I, [1, None])])
    return ([N("ReduceMax", ["a"], ["s"], keepdims=0), N("Cast", ["s"], ["p"], to=B), N("If", ["p"], ["r"], then_branch=then, else_branch=other),
             N("Neg", ["r"], ["y"])], [V("a", F, ["n"]), V("k", I, [1, "m"])], [V("y", I, [1, None])],
            [[num(a, np.float32), num([[7, 8, 9]])] for a in ([1, 0, 2], [0, -1, -2, 0], [5])])


def sequence_in_loop():
    b = body([N("Cast", ["i"], ["f"], to=F), N("Add", ["x", "f"], ["y"]), N("SequenceInsert", ["s", "y"], ["s2"])],
             [S("s", F, None)], [S("s2", F, None)])
    return ([N("SequenceEmpty", [], ["s0"], dtype=F), N("Loop", ["m", "", "s0"], ["sf"], body=b), N("SequenceLength", ["sf"], ["n"])],
            [V("m", I, []), V("x", F, ["k"])], [S("sf", F, None), V("n", I, [])], [[num(t), floats(3)] for t in (0, 1, 6)])


def sequence_ports():
    return ([N("SequenceAt", ["s", "p"], ["a"]), N("Relu", ["a"], ["r"]), N("SequenceErase", ["s", "p"], ["s2"]),
             N("ConcatFromSequence", ["s2"], ["c"], axis=0), N("SequenceInsert", ["s2", "r", "p"], ["s3"])],
            [S("s", F, [None, 4]), V("p", I, [])], [V("r", F, [None, 4]), S("s3", F, [None, 4]), V("c", F, [None, 4])],
            [[[floats(k, 4) for k in ks], num(p)] for ks, p in (((1, 2, 3), 0), ((2, 2), -1), ((3, 1, 4, 2), 2))])


def optional_input():
    port = h.make_value_info("o", h.make_optional_type_proto(h.make_tensor_type_proto(F, ["n", 3])))
    then = region([N("OptionalGetElement", ["o"], ["g"]), N("Relu", ["g"], ["t"])], [], [V("t", F, [None, 3])])
    other = region([N("Identity", ["d"], ["e"])], [], [V("e", F, [None, 3])])
    return ([N("OptionalHasElement", ["o"], ["p"]), N("If", ["p"], ["r"], then_branch=then, else_branch=other)],
            [port, V("d", F, ["k", 3])], [V("r", F, [None, 3])], [[floats(2, 3), floats(4, 3)], [None, floats(4, 3)]])


CASES = [forever, growing, swapped, late_rows, late_branches, sequence_in_loop, sequence_ports, optional_input]


def build(case, folder):
    nodes, ins, outs, feeds = case()
    model = h.make_model(h.make_graph(nodes, "g", ins, outs), opset_imports=[h.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, folder / "net.onnx")
    return [v.name for v in ins], feeds


def equal(want, got):
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(map(equal, want, got))
    return want.shape == got.shape and want.dtype == got.dtype and np.allclose(want, got, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("case", CASES, ids=[c.__name__ for c in CASES])
def test_compiled(case, level, tmp_path):
    names, feeds = build(case, tmp_path)
    done = mcc(tmp_path / "net.onnx", "-o", tmp_path / "net.so", level, "-march=native")
    assert done.returncode == 0, done.stderr
    reference = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    with Artifact(str(tmp_path / "net.so"), threads=1) as a:
        for feed in feeds:
            want, got = reference.run(None, dict(zip(names, feed))), a.run_values(feed)
            assert equal(want, got), f"{feed}: {want}, got {got}"


def rows_that_change():
    b = body([N("Concat", ["x", "x1"], ["y"], axis=0), N("Identity", ["y"], ["row"])], [V("x", F, [None])],
             [V("y", F, [None]), V("row", F, [None])])
    return ([N("Loop", ["m", "", "x0"], ["xf", "rows"], body=b)], [V("m", I, []), V("x0", F, ["n"]), V("x1", F, ["k"])],
            [V("xf", F, [None]), V("rows", F, [None, None])], [[num(3), floats(2), floats(1)]])


@pytest.mark.parametrize("case, feed, text", [
    (rows_that_change, [num(3), floats(2), floats(1)], "-2: .*changes its shape"),
    (sequence_ports, [[floats(1, 4)], num(5)], "-9: .*position out of range"),
    (sequence_ports, [[floats(1, 3), floats(1, 4)], num(0)], "-2: .*another shape"),
])
def test_run_fails(case, feed, text, tmp_path):
    build(case, tmp_path)
    assert mcc(tmp_path / "net.onnx", "-o", tmp_path / "net.so", "-march=native").returncode == 0
    with Artifact(str(tmp_path / "net.so"), threads=1) as a, pytest.raises(ModelError, match=text):
        a.run_values(feed)

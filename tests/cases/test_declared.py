"""What a model declares of its outputs beside what is computed: a shape that differs is a warning and the computed one counts, as
in ONNX Runtime; element types, and declarations that are larger in every dim, are refused. Operands with an element for each
channel, which a declared shape no longer catches, are looked at themselves."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T

from support.artifact import Artifact, ModelError
from support.compare import Model, floats, ints, node
from support.tool import mcc, value

X = floats(2, 3, 4)
# declared shapes of Neg of f32[2,3,4] or f32[n,3,4]; None: a dim that the file leaves open
WRONG = [[2, 3, 5], [2, 3, 3], [1, 3, 4], [9, 3, 4], [2, 12], [24], [], [1, 2, 3, 4], [9, 9, 1], [1, 1, 1], [None, None, 3], [4, 4, 4],
         ["m", "m", 5], [2, None, 4, 1], [0, 3, 4]]
RIGHT = [[2, 3, 4], ["n", 3, 4], [None, None, None], ["a", "b", "c"], ["n", "n", 4]]


def negation(folder, declared, first=2, name="y"):
    return Model(folder, [node("Neg", "x", name)], [value("x", [first, 3, 4])], [value(name, declared)])


def warnings(model, *flags):
    done = mcc("check", model.path, *flags)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if "[-Wdeclared-shape]" in line]


def shown(shape):
    return f"f32[{', '.join('?' if d is None else str(d) for d in shape)}]"


@pytest.mark.parametrize("declared", WRONG, ids=shown)
def test_computed_shape_counts(tmp_path, declared):
    model = negation(tmp_path, declared)
    (line,) = warnings(model)
    for word in ("warning: ", "'y'", shown(declared), "f32[2, 3, 4]"):
        assert word in line, line
    assert not mcc("check", "-q", model.path).stderr
    model.compare([X], model.want([X]) if declared != [0, 3, 4] else [-X], flags=["-O2"])
    done = mcc("check", "-Werror", model.path)
    assert done.returncode == 1 and "[-Werror=declared-shape]" in done.stderr, done.stderr
    assert "-Werror=declared-shape" in model.refused("-Werror")


@pytest.mark.parametrize("declared", RIGHT, ids=shown)
def test_shapes_that_may_hold_are_silent(tmp_path, declared):
    assert not warnings(negation(tmp_path, declared))


def test_symbolic_dims(tmp_path):
    """Against a symbol only what no size can make equal differs: another name or a number may be right."""
    for k, (declared, wrong) in enumerate([([7, 3, 4], False), (["m", 3, 4], False), (["n", 3, 5], True), ([7, 4, 4], True), (["n"], True)]):
        folder = tmp_path / str(k)
        folder.mkdir()
        model = negation(folder, declared, "n")
        assert bool(warnings(model)) == wrong, declared
        model.compare([X], [-X], flags=["-O2"])
    nodes = [node("Concat", "x row", "y", axis=0)]
    model = Model(tmp_path, nodes, [value("x", ["n", 3])], [value("y", ["n", 3])], {"row": floats(1, 3)})
    (line,) = warnings(model)
    assert "f32[n, 3]" in line and "f32[n + 1, 3]" in line
    model.compare([floats(4, 3)], flags=["-O2"])


def test_reported_shape_is_the_computed_one(tmp_path):
    model = negation(tmp_path, [1, 3, 7])
    with Artifact(model.compile()) as a:
        assert a.call([X])[0].shape == (2, 3, 4)
    assert "f32[1, 3, 7]" not in model.dump("legalize")


def test_several_outputs(tmp_path):
    """Each is named; those that are right are not."""
    nodes = [node("Neg", "x", "a"), node("Abs", "x", "b"), node("ReduceSum", "x", "c", keepdims=0)]
    model = Model(tmp_path, nodes, [value("x", [2, 3])], [value("a", [3, 3]), value("b", [2, 3]), value("c", [1])])
    lines = warnings(model)
    assert len(lines) == 2 and "'a'" in lines[0] and "'c'" in lines[1]
    model.compare([floats(2, 3)], flags=["-O2"])


@pytest.mark.parametrize("declared", [[9, 9], [3, 4]], ids=str)
def test_larger_in_every_dim_is_refused(tmp_path, declared):
    text = Model(tmp_path, [node("Neg", "x", "y")], [value("x", [2, 3])], [value("y", declared)]).refused()
    assert "'y'" in text and shown(declared) in text


def test_element_type_is_refused(tmp_path):
    text = Model(tmp_path, [node("Neg", "x", "y")], [value("x", [2, 3])], [value("y", [2, 3], T.INT64)]).refused()
    assert "the output is declared as i64 and computed as f32" in text


CHANNELS = {
    "BatchNormalization": ("x v v v v", {}),
    "InstanceNormalization": ("x v v", {}),
    "GroupNormalization": ("x v v", {"num_groups": 1}),
    "Conv": ("x w v", {}),
    "ConvTranspose": ("x w v", {}),
}


@pytest.mark.parametrize("channels", [1, "c"])
@pytest.mark.parametrize("op", CHANNELS)
def test_vectors_of_channels(tmp_path, op, channels):
    """One channel does not spread over five elements of a scale or a bias: at compile time, or in the run."""
    names, attributes = CHANNELS[op]
    constants = {"v": np.ones(5, np.float32), "w": np.ones((1, 1, 1, 1), np.float32)}
    constants = {k: v for k, v in constants.items() if k in names.split()}
    model = Model(tmp_path, [node(op, names, "y", **attributes)], [value("x", [2, channels, 3, 3])], [value("y", [2, None, 3, 3])], constants,
                  opset=21)
    if channels == 1 or "w" in constants:
        assert "channel" in model.refused()
        return
    model.compare([floats(2, 5, 3, 3)], flags=["-O2"])
    with pytest.raises(ModelError, match="channel"):
        model.run([floats(2, 1, 3, 3)], "-O2")


@pytest.mark.parametrize("declared", [["d0"], [None, None], None, [7], [], [None, 12, 1]], ids=str)
def test_rank_that_the_run_decides(tmp_path, declared):
    """Squeeze without axes: whatever rank the file declares, each run gives the one that its sizes give."""
    nodes = [node("MatMul", "x w", "h"), node("Squeeze", "h", "y")]
    model = Model(tmp_path, nodes, [value("x", ["n", 8])], [value("y", declared)], {"w": floats(8, 12)})
    for n in (1, 3, 0):
        x = floats(n, 8)
        model.compare([x], [np.squeeze(x @ floats(8, 12), 0) if n == 1 else x @ floats(8, 12)])


@pytest.mark.parametrize("declared", [["d0"], None, [1, 3, "n", "m"]], ids=str)
@pytest.mark.parametrize("behind", [False, True])
def test_squeeze_of_several_open_dims(tmp_path, declared, behind):
    """As many ways as there are ranks, with the dims of each; what follows is walked for each of them."""
    nodes = [node("Neg", "x", "h"), node("Squeeze", "h", "s" if behind else "y"), *([node("Relu", "s", "y")] if behind else [])]
    model = Model(tmp_path, nodes, [value("x", [1, 3, "n", "m", "k"])], [value("y", declared)])
    for dims in ((1, 1, 1), (1, 4, 1), (4, 1, 1), (2, 1, 3), (1, 2, 3), (2, 3, 4), (0, 1, 2)):
        want = np.squeeze(-floats(1, 3, *dims))
        model.compare([floats(1, 3, *dims)], [np.maximum(want, 0) if behind else want])


def test_branches_of_two_ranks_and_a_declared_one(tmp_path):
    """The declaration of a traced export chooses no branch: both run."""
    then = onnx.helper.make_graph([node("Squeeze", "x axis", "t")], "then", [], [value("t", None)])
    other = onnx.helper.make_graph([node("Identity", "x", "e")], "else", [], [value("e", None)])
    nodes = [node("Shape", "x", "s"), node("Gather", "s axis", "d"), node("Equal", "d axis", "c"),
             node("If", "c", "y", then_branch=then, else_branch=other)]
    model = Model(tmp_path, nodes, [value("x", [3, "n"])], [value("y", ["a"])], {"axis": ints(1)}, 13)
    for n in (1, 4):
        model.compare([floats(3, n)], [np.squeeze(floats(3, n), 1) if n == 1 else floats(3, n)])

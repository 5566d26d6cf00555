"""Symbolic dims: one artifact for every size, derived dims, shape arithmetic that folds, ranges and what is said when an input
does not fit them; training mode, executed as written or refused."""
import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import numpy_helper

from support.artifact import Artifact, ModelError
from support.compare import Model, difference, floats, ints, node
from support.guard import Heap
from support.tool import mcc, result, value

F = np.float32


def test_every_batch_and_length(tmp_path):
    """(batch, length, 8), both unknown: a linear layer, a softmax over the length, a sum."""
    nodes = [node("MatMul", "x w", "h"), node("Softmax", "h", "s", axis=1), node("Mul", "s x", "m"), node("ReduceSum", "m one", "y", keepdims=0)]
    model = Model(tmp_path, nodes, [value("x", ["batch", "length", 8])], [value("y", ["batch", 8])], {"w": floats(8, 8), "one": ints(1)})
    with Artifact(model.compile("-O2")) as a:
        for batch in (0, 1, 3):
            for length in (1, 2, 17, 100):
                x = floats(batch, length, 8)
                want = model.want([x])
                assert not difference(want[0], a.run([x])[0]), (batch, length)


def test_derived_dims(tmp_path):
    """n + 1, n - 1, 2 n, n / 2 as dims of results and of what follows."""
    nodes = [node("Concat", "x row", "plus", axis=0), node("Slice", "x from to", "minus"), node("Concat", "x x", "twice", axis=0),
             node("Reshape", "x pairs", "r"), node("ReduceSum", "r one", "half", keepdims=0),
             node("Slice", "plus from to", "again"), node("Sub", "twice_head x", "zero"), node("Slice", "twice none n", "twice_head"),
             node("Shape", "x", "s"), node("Slice", "s none first", "n")]
    constants = {"row": floats(1, 4), "from": ints(1), "to": ints(2 ** 62), "pairs": ints(-1, 2, 4), "one": ints(1), "none": ints(0), "first": ints(1)}
    names = ["plus", "minus", "twice", "half", "again", "zero"]
    order = [0, 1, 2, 3, 4, 5, 8, 9, 7, 6]
    model = Model(tmp_path, [nodes[i] for i in order], [value("x", ["n", 4])], [value(k, [None, 4]) for k in names], constants)
    path = model.compile("--input=x:f32[n=2..,4]")
    assert {port["name"]: port["dims"] for port in result("inspect", path)["outputs"]} == {
        name: [dim, 4] for name, dim in zip(names, ("n + 1", "n - 1", "2*n", "floordiv(n, 2)", "n", "n"))}
    shown = mcc("inspect", path).stdout
    assert "half: f32[?1,4]" in shown and "extent   ?1: floordiv(n, 2)\n" in shown, shown
    for n in (2, 8, 30):
        model.compare([floats(n, 4)])


def test_shape_arithmetic_folds(tmp_path):
    """Shape, Gather, Slice with attributes, Concat, Cast, Mul, Div, Floor, Unsqueeze, Where, Equal, ConstantOfShape, Range, Expand and
    Reshape: nothing of it is left in the graph."""
    nodes = [node("Shape", "x", "s"), node("Gather", "s i0", "n"), node("Gather", "s i1", "c"), node("Shape", "x", "tail", start=1, end=3),
             node("Mul", "c two", "c2"), node("Div", "c2 two", "c1"), node("Cast", "c1", "cf", to=T.FLOAT), node("Floor", "cf", "cg"),
             node("Cast", "cg", "ci", to=T.INT64), node("Unsqueeze", "n axis", "n1"), node("Unsqueeze", "ci axis", "ci1"),
             node("Concat", "n1 ci1 minus_one", "shape", axis=0), node("Reshape", "x shape", "r"),
             node("ConstantOfShape", "three", "ones", value=numpy_helper.from_array(ints(1))), node("Mul", "ones minus_one", "m"),
             node("Equal", "wish m", "q"), node("Where", "q ones wish", "target"), node("Expand", "r target", "e"),
             node("Range", "zero ci one", "steps"), node("Cast", "steps", "sf", to=T.FLOAT), node("Reshape", "sf column", "sc"),
             node("Add", "e sc", "y"), node("Identity", "tail", "z")]
    constants = {"i0": np.array(0), "i1": np.array(1), "two": np.array(2), "axis": ints(0), "minus_one": ints(-1), "three": ints(3),
                 "wish": ints(-1, 6, 1), "zero": np.array(0), "one": np.array(1), "column": ints(1, -1, 1)}
    model = Model(tmp_path, nodes, [value("x", ["n", 6, "h"])], [value("y", [None] * 3), value("z", [2], T.INT64)], constants)
    left = {l.split("= ")[1].split("(")[0] for l in model.dump("legalize").splitlines() if " = " in l}
    assert left <= {"add", "broadcast", "reshape", "iota", "convert", "constant", "from_exprs"}, left
    for n, h in ((1, 1), (3, 5)):
        model.compare([floats(n, 6, h)])


@pytest.mark.parametrize("shape, allowzero", [([0, -1], 0), ([0, 0, 4], 0), ([-1], 0), ([2, -1, 2], 0), ([0, 4], 1)])
def test_reshape(shape, allowzero, tmp_path):
    x = floats(0, 4) if allowzero else floats(4, 4) if len(shape) < 3 or shape[0] else floats(2, 3, 4)
    model = Model(tmp_path, [node("Reshape", "x s", "y", allowzero=allowzero)], [value("x", [f"d{i}" for i in range(x.ndim)])],
                  [value("y", [None] * len(shape))], {"s": ints(*shape)})
    model.compare([x])


def test_reshape_to_a_size_that_is_an_input(tmp_path):
    model = Model(tmp_path, [node("Reshape", "x s", "y"), node("Relu", "y", "z")], [value("x", ["n", 6]), value("s", [3], T.INT64)],
                  [value("z", [None] * 3)])
    for shape in ((1, 2, -1), (3, 4, 1), (0, 3, 2)):
        model.compare([floats(2, 6), ints(*shape)])
    with pytest.raises(ModelError, match="-2|-9"):
        model.run([floats(2, 6), ints(5, 5, 5)])


def test_unknown_dims_and_shapes_from_the_command_line(tmp_path):
    """Dims without a name are symbols of their own; an input without a shape gets it from --input, or is refused with that hint."""
    (tmp_path / "dims").mkdir()
    model = Model(tmp_path / "dims", [node("Relu", "x", "y")], [value("x", [None, 3, None])], [value("y", [None, 3, None])])
    model.compare([floats(2, 3, 5)])
    model = Model(tmp_path, [node("Relu", "x", "y")], [value("x", None)], [value("y", None)])
    assert model.run([floats(2, 5)], "--input=x:f32[n,5]")[0].shape == (2, 5)


# ---- what does not fit -------------------------------------------------------------------------------------------------------

def said(model, feed, *flags):
    with pytest.raises(ModelError) as caught:
        model.run(feed, *flags)
    return caught.value.code, caught.value.text


def two_inputs(folder):
    return Model(folder, [node("Add", "x y", "z")], [value("x", ["n", 3]), value("y", ["n", 3])], [value("z", ["n", 3])])


@pytest.mark.parametrize("feed, code, words", [
    ([floats(2, 3), floats(4, 3)], -2, ("y", "2", "4")), ([floats(2, 4), floats(2, 3)], -2, ("x", "3", "4")),
    ([floats(2, 3, 1), floats(2, 3)], -2, ("x", "rank", "2", "3")), ([floats(2, 3).astype(np.float64), floats(2, 3)], -3, ("x", "32", "64")),
    ([ints(1, 2), floats(2, 3)], None, ("x",)),
])
def test_wrong_inputs_are_named(feed, code, words, tmp_path):
    """One symbol on two inputs, a fixed dim, the rank, the type: code and text say what was expected and what came."""
    got, text = said(two_inputs(tmp_path), feed)
    assert got < 0 and got == (code or got) and all(w in text for w in words), text


def test_ranges(tmp_path):
    model = two_inputs(tmp_path)
    flag = "--input=x:f32[n=2..5,3]"
    for n in (2, 5):
        assert model.run([floats(n, 3), floats(n, 3)], flag)[0].shape == (n, 3)
    for n in (0, 1, 6):
        code, text = said(model, [floats(n, 3), floats(n, 3)], flag)
        assert code == -2 and str(n) in text and "x" in text and "2" in text and "5" in text, text
    flag = "--input=x:f32[n=4..64%4,3]"
    assert model.run([floats(8, 3), floats(8, 3)], flag)[0].shape == (8, 3)
    code, text = said(model, [floats(6, 3), floats(6, 3)], flag)
    assert code == -2 and "4" in text, text


def test_an_upper_bound_bounds_the_workspace(tmp_path):
    """With a range the memory of a context is known before any input is."""
    nodes = [node("Exp", "x", "a"), node("CumSum", "a axis", "b"), node("Mul", "b a", "y")]
    model = Model(tmp_path, nodes, [value("x", ["n", 100])], [value("y", ["n", 100])], {"axis": np.array(0)})
    few, many = (result("inspect", model.compile("--input=x:f32[n=1..64,100]"), f"--dim=n={n}")["workspace"] for n in (2, 64))
    assert 0 < few["bytes"] < many["bytes"]


def test_yaml_and_command_line_say_the_same(tmp_path):
    model = two_inputs(tmp_path)
    config = tmp_path / "net.yaml"
    config.write_text("march: native\ninput:\n  - {name: x, dtype: f32, shape: [n=2..5, 3]}\n")
    assert mcc(model.path, f"--config={config}", "-o", tmp_path / "y.so").returncode == 0
    assert (tmp_path / "y.so").read_bytes() == model.compile("--input=x:f32[n=2..5,3]").read_bytes()


# ---- training mode -----------------------------------------------------------------------------------------------------------

def test_training_mode_is_executed_or_refused(tmp_path):
    """Dropout in training mode with ratio 0 and a seed, BatchNormalization that returns its new statistics; the form without a settled
    meaning is refused by name."""
    (tmp_path / "dropout").mkdir()
    model = Model(tmp_path / "dropout", [node("Dropout", "x r t", "y m", seed=3)], [value("x", ["n", 50])],
                  [value("y", ["n", 50]), value("m", ["n", 50], T.BOOL)], {"r": F(0.5), "t": np.array(True)})
    x = np.ones((40, 50), F)
    y, mask = model.run([x], "-O2")
    assert set(np.unique(y)) == {0, 2} and 0.4 < mask.mean() < 0.6 and np.array_equal(y != 0, mask)
    assert np.array_equal(model.run([x], "-O2")[0], y)     # seeded: the same again
    (tmp_path / "norm").mkdir()
    stats = {"s": floats(3), "b": floats(3), "m": floats(3), "v": np.abs(floats(3))}
    model = Model(tmp_path / "norm", [node("BatchNormalization", "x s b m v", "y rm rv", training_mode=1)], [value("x", ["n", 3, 4])],
                  [value("y", ["n", 3, 4]), value("rm", [3]), value("rv", [3])], stats)
    model.compare([floats(5, 3, 4)])
    model = Model(tmp_path, [node("BatchNormalization", "x s b m v", "y m2 v2 sm sv", is_test=0)], [value("x", [5, 3, 4])], [value("y", [5, 3, 4])],
                  stats, opset=6)
    text = model.refused()
    assert "BatchNormalization" in text and "training" in text


@pytest.mark.parametrize("word", ["None", "none", "?", "-1", "", "*", "null", "NaN", "unknown", "Unknown", "unk", "undefined", "Any", "Dynamic"])
def test_words_for_unknown_are_no_names(tmp_path, word):
    """Dims that only say that they are unknown may all differ; an equal one, known by no name, is checked by the run."""
    nodes = [node("ReduceSum", "x", "a", keepdims=0), node("ReduceSum", "z", "b", keepdims=0), node("Add", "a b", "y")]
    model = Model(tmp_path, nodes, [value("x", [word, 3, word]), value("z", [word])], [value("y", [])])
    for n, m, k in ((1, 2, 3), (4, 4, 4)):
        model.compare([floats(n, 3, m), floats(k)], flags=["-O2"])


@pytest.mark.parametrize("word", ["N", "unk__1", "unknown_size", "None_1", "batch", "dynamic_axes_0"])
def test_names_are_names(tmp_path, word):
    model = Model(tmp_path, [node("Add", "x z", "y")], [value("x", [word]), value("z", [word])], [value("y", [word])])
    model.compare([floats(3), floats(3)], flags=["-O2"])
    with pytest.raises(ModelError, match=word):
        model.run([floats(3), floats(1)], "-O2")


# What makes [2, 5, 4, w] of x [2, 4, 5, w]; a Reshape to [10, 4] then says that w is 1.
ASKED_TO_BE_ONE = {
    "product": [node("MatMul", "a x", "c"), node("Transpose", "c", "t", perm=[0, 2, 1, 3])],
    "map": [node("Relu", "x", "c"), node("Transpose", "c", "t", perm=[0, 2, 1, 3])],
    "plain": [node("Add", "x one", "c"), node("Reshape", "c other", "t")],
    "sums": [node("Unsqueeze", "x end", "u"), node("Concat", "u u", "p", axis=4), node("ReduceSum", "p end", "c", keepdims=0),
             node("Transpose", "c", "t", perm=[0, 2, 1, 3])],
    "rows": [node("Softmax", "x", "c", axis=2), node("Transpose", "c", "t", perm=[0, 2, 1, 3])],
    "running": [node("CumSum", "x axis", "c"), node("Transpose", "c", "t", perm=[0, 2, 1, 3])],
    "bytes": [node("QuantizeLinear", "x scale", "q"), node("Transpose", "q", "t", perm=[0, 2, 1, 3])],
}


@pytest.mark.parametrize("form", ASKED_TO_BE_ONE)
def test_an_extent_that_the_run_asks_to_be_one(form, tmp_path):
    """Vectors over such an axis: only their first element has a place. What lies behind the output is not written."""
    constants = {"a": floats(1, 1, 5, 5), "to": ints(10, 4), "other": ints(2, 5, 4, -1), "end": ints(4), "axis": np.array(1, np.int32), "one": F(1),
                 "scale": F(0.1)}
    output = value("y", [10, 4], T.UINT8 if form == "bytes" else T.FLOAT)
    model = Model(tmp_path, [*ASKED_TO_BE_ONE[form], node("Reshape", "t to", "y")], [value("x", [2, 4, 5, "w"])], [output], constants)
    x = floats(2, 4, 5, 1)
    want = model.want([x])[0]
    for flags in ((), ("-O1",), ("-O0",), ("-march=x86-64-v2",), ("-march=x86-64-v3",)):
        heap = Heap()
        with Artifact(model.compile(*flags), threads=1, alloc=heap.alloc, release=heap.release) as a:
            got = a.run([x])[0]
            assert not difference(want, got), flags
            with pytest.raises(ModelError, match="number of elements"):
                a.run([floats(2, 4, 5, 3)])
        assert not heap.broken and not heap.blocks, flags

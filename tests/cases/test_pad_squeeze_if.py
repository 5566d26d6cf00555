"""Pad, Squeeze, Unsqueeze and If in every form, and the networks of the ReflectionPad3d case. References: PyTorch (torch.npz), ONNX Runtime where
it has the form, numpy or what is written here where it has not (mixed signs on one axis, reflection that turns round more
than once: docs/notes/onnx-decisions.md)."""
import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from cases import torch_references
from support.artifact import ModelError
from support.compare import Model, floats, ints, node
from support.tool import ROOT, mcc, value

F = np.float32
STORED = np.load(ROOT / "tests/cases/torch.npz")


def periodic(n, k, mode):
    """Where element k of a padded axis of n elements comes from; k counts from the first element of the original."""
    if mode == "wrap":
        return k % n
    if mode == "edge":
        return min(max(k, 0), n - 1)
    if n == 1:
        return 0
    k %= 2 * (n - 1)
    return k if k < n else 2 * (n - 1) - k


def pad_axis(x, axis, lo, hi, mode, fill):
    n = x.shape[axis]
    wanted = range(-lo, n + hi)
    if mode == "constant":
        wide = np.full(x.shape[:axis] + (n + max(lo, 0) + max(hi, 0),) + x.shape[axis + 1:], fill, x.dtype)
        np.moveaxis(wide, axis, 0)[max(lo, 0):max(lo, 0) + n] = np.moveaxis(x, axis, 0)
        return np.take(wide, [k + max(lo, 0) for k in wanted], axis)
    return np.take(x, [periodic(n, k, mode) for k in wanted], axis)


def padded(x, pads, mode="constant", fill=0, axes=None):
    """Pad on the original axis, then crop: PyTorch's meaning."""
    axes = range(x.ndim) if axes is None else axes
    half = len(pads) // 2
    for i, axis in enumerate(axes):
        x = pad_axis(x, axis % x.ndim, pads[i], pads[half + i], mode, fill)
    return x


def operators(model):
    """Of the legal graph."""
    return {l.split("= ")[1].split("(")[0] for l in model.dump("legalize").splitlines() if " = " in l}


def test_mixed_signs_are_torchs():
    """padded() is what PyTorch answers: pad on the original, then crop."""
    for k, pads in enumerate(torch_references.PADS):
        assert np.array_equal(padded(np.arange(5, dtype=F), pads, "reflect"), STORED[f"pad{k}"])


def pad_model(folder, x, pads, mode, fill=None, axes=None, opset=21, symbolic=True):
    constants = {"pads": ints(*pads)}
    names = "x pads"
    if fill is not None or axes is not None:
        names += " _" if fill is None else " fill"
    if fill is not None:
        constants["fill"] = np.asarray(fill, x.dtype)
    if axes is not None:
        names += " axes"
        constants["axes"] = ints(*axes)
    elem = helper.np_dtype_to_tensor_dtype(x.dtype)
    shape = [f"d{i}" for i in range(x.ndim)] if symbolic else list(x.shape)
    return Model(folder, [node("Pad", names, "y", mode=mode)], [value("x", shape, elem)], [value("y", [None] * x.ndim, elem)], constants, opset)


FORMS = [([5], [2, 3]), ([5], [-2, 0]), ([5], [-2, -2]), ([5], [-2, 3]), ([5], [3, -3]), ([5], [0, 0]), ([1], [2, 1]), ([2], [2, 3]),
         ([3], [7, 8]), ([4, 3], [0, 1, 2, -1]), ([2, 3, 4], [1, 0, 2, 0, -1, 1]), ([1, 2, 4, 5], [0, 0, 1, 2, 0, 0, 2, 3]),
         ([1, 1, 3, 4, 3], [0, 0, 1, 2, 1, 0, 0, -1, 2, 0]), ([2, 1, 2, 1, 3, 2], [0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1])]


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("run_time", [False, True], ids=["constant pads", "run-time pads"])
def test_pads(mode, run_time, tmp_path):
    """Ranks 1 to 6, mixed signs, more than the axis has, one-element axes: all in one network, every dim symbolic."""
    x = [floats(*shape) for shape, _ in FORMS]
    pads = [ints(*p) for _, p in FORMS]
    nodes = [node("Pad", f"x{i} p{i}", f"y{i}", f"pad{i}", mode=mode) for i in range(len(FORMS))]
    inputs = [value(f"x{i}", [f"d{i}_{k}" for k in range(len(shape))]) for i, (shape, _) in enumerate(FORMS)]
    outputs = [value(f"y{i}", [None] * len(shape)) for i, (shape, _) in enumerate(FORMS)]
    if run_time:
        inputs += [value(f"p{i}", [len(p)], T.INT64) for i, p in enumerate(pads)]
    model = Model(tmp_path, nodes, inputs, outputs, None if run_time else {f"p{i}": p for i, p in enumerate(pads)}, 21)
    model.compare(x + (pads if run_time else []), [padded(a, list(p), mode) for a, p in zip(x, pads)])


@pytest.mark.parametrize("dtype, fill", [(np.int8, 7), (np.int32, -5), (np.int64, 2 ** 40), (np.bool_, True), (np.float16, 1.5),
                                         (np.float32, np.nan), (np.float32, -np.inf), (np.float64, 1e300), (np.uint8, 255),
                                         (ml_dtypes.bfloat16, 2.0)])
def test_pad_types(dtype, fill, tmp_path):
    x = np.arange(6).reshape(2, 3).astype(dtype)
    model = pad_model(tmp_path, x, [1, 0, 0, 2], "constant", fill)
    model.compare([x], [padded(x, [1, 0, 0, 2], fill=fill)])


@pytest.mark.parametrize("fill", [None, F(3), F([3])], ids=["absent", "scalar", "one element"])
@pytest.mark.parametrize("axes, pads", [(None, [0, 1, 2, 3]), ([1], [1, 2]), ([-1, 0], [1, 2, 3, 4]), ([0, 1], [1, 2, 3, 4]), ([], [])])
def test_pad_axes(fill, axes, pads, tmp_path):
    x = floats(2, 3)
    model = pad_model(tmp_path, x, pads, "constant", fill, axes, 18)
    model.compare([x], [padded(x, pads, fill=0 if fill is None else 3, axes=axes)])


@pytest.mark.parametrize("opset, attributes", [(1, {"paddings": [0, 1, 2, 3], "value": 1.5}), (2, {"pads": [0, 1, 2, 3], "value": 1.5}),
                                               (10, {"pads": [0, -1, 2, 3], "mode": "reflect"})])
def test_pad_attributes(opset, attributes, tmp_path):
    x = floats(4, 4)
    model = Model(tmp_path, [node("Pad", "x", "y", **attributes)], [value("x", ["a", "b"])], [value("y", [None, None])], opset=opset)
    pads = attributes.get("pads") or attributes["paddings"]
    model.compare([x], [padded(x, pads, attributes.get("mode", "constant"), attributes.get("value", 0))])


@pytest.mark.parametrize("pads, axes, word", [([1, 2, 3], None, "pads"), ([1, 1, 1, 1], [0, 0], "axes"), ([1, 1], [2], "ax"), ([1, 1], [-3], "ax"),
                                              ([-4, 0, 0, 0], None, "dim")])
def test_pad_refused(pads, axes, word, tmp_path):
    """A wrong length, an axis twice or out of range, more cropped than there is."""
    text = pad_model(tmp_path, floats(3, 3), pads, "constant", None, axes, 18, symbolic=False).refused()
    assert word in text and "Pad" in text


def test_pads_of_zero_vanish_and_crops_to_nothing(tmp_path):
    (tmp_path / "zero").mkdir()
    assert "pad(" not in pad_model(tmp_path / "zero", floats(2, 3), [0, 0, 0, 0], "reflect").dump("legalize")
    x = floats(4, 3)
    pad_model(tmp_path, x, [-2, 0, -2, 0], "constant").compare([x], [np.zeros((0, 3), F)])


def test_crop_beyond_the_size_at_run_time(tmp_path):
    model = pad_model(tmp_path, floats(3), [-2, -2], "constant")
    assert model.run([floats(4)])[0].shape == (0,)
    with pytest.raises(ModelError, match="-2|-9"):
        model.run([floats(3)])


def test_pads_from_a_chain_of_constants(tmp_path):
    """As the TorchScript exporter writes them: filled up, reversed pairwise, transposed, cast."""
    nodes = [node("Constant", "", "given", value=numpy_helper.from_array(ints(1, 2, 0, 3))), node("Shape", "x", "s"), node("Size", "s", "rank"),
             node("Mul", "rank two", "twice"), node("Size", "given", "n"), node("Sub", "twice n", "missing"), node("Reshape", "missing one", "m1"),
             node("ConstantOfShape", "m1", "zeros", value=numpy_helper.from_array(ints(0))), node("Concat", "given zeros", "all", axis=0),
             node("Reshape", "all pairs", "p2"), node("Slice", "p2 minus_one lowest zero minus_one", "rev"),
             node("Transpose", "rev", "t", perm=[1, 0]), node("Reshape", "t minus_one", "flat"), node("Cast", "flat", "pads", to=T.INT64),
             node("Pad", "x pads", "y", mode="reflect")]
    constants = {"two": np.array(2), "one": ints(1), "pairs": ints(-1, 2), "minus_one": ints(-1), "lowest": ints(-2 ** 63), "zero": ints(0)}
    model = Model(tmp_path, nodes, [value("x", ["n", "c", 5, 6])], [value("y", [None] * 4)], constants)
    assert operators(model) == {"pad"}
    x = floats(2, 3, 5, 6)
    model.compare([x], [padded(x, [0, 0, 0, 1, 0, 0, 3, 2], "reflect")])


@pytest.mark.parametrize("rank, crossed", [(3, False), (3, True), (5, False), (7, True)])
def test_views_behind_pads_that_only_the_run_knows(rank, crossed, tmp_path):
    """Each view divides by sizes that are sums of what the run gives: what `mcc check` accepts compiles, at indices that stay short."""
    crossing = [node("Reshape", "b u", "c"), node("Transpose", "c", "d", perm=[1, 0]), node("Reshape", "d w", "e"),
                node("Transpose", "e", "f", perm=[1, 0, 2]), node("Reshape", "f t", "y")]
    nodes = [node("Pad", "x p", "a"), node("Reshape", "a s", "b"), *(crossing if crossed else [node("Reshape", "b t", "g"), node("Neg", "g", "y")])]
    dims = (6, 33, 1, 2, 3, 2, 1)[:rank]
    constants = {"s": ints(3, 1, -1, 1, 3), "t": ints(-1), "u": ints(2, -1), "w": ints(-1, 3, 2)}
    model = Model(tmp_path, nodes, [value("x", dims), value("p", [2 * rank], T.INT64)], [value("y", [None])], constants, opset=13)
    assert mcc("check", model.path).returncode == 0
    x = floats(*dims)
    for pads in ([0] * 2 * rank, [0, 1] + [0] * (rank - 2) + [0, 2] + [0] * (rank - 2), [1, -2] + [0] * (rank - 3) + [1, 5, -1] + [0] * (rank - 3) + [1]):
        y = padded(x, pads)
        y = np.moveaxis(y.reshape(2, -1).T.reshape(-1, 3, 2), 0, 1) if crossed else -y
        model.compare([x, ints(*pads)], [y.reshape(-1)])
    with pytest.raises(ModelError):
        model.run([x, ints(-1, -1, *[0] * (2 * rank - 2))], "-O2")       # 5 * 32 * ... does not divide by 9


@pytest.mark.parametrize("pool", ["Conv", "MaxPool", "AveragePool"])
def test_pad_before_a_window(pool, tmp_path):
    """Constant zero padding in front of a convolution or pooling."""
    nodes = [node("Pad", "x pads", "p"), node("Conv", "p w", "y") if pool == "Conv" else node(pool, "p", "y", kernel_shape=[3, 3])]
    model = Model(tmp_path, nodes, [value("x", ["n", 16, 9, 9])], [value("y", ["n", 16, None, None])],
                  {"pads": ints(0, 0, 1, 2, 0, 0, 2, 0), "w": floats(16, 16, 3, 3, scale=0.1)})
    model.compare([floats(2, 16, 9, 9)], atol=1e-4)


@pytest.mark.parametrize("op, attributes", [("Conv", {"kernel_shape": [2, 2]}), ("MaxPool", {"kernel_shape": [2, 2]}),
                                            ("AveragePool", {"kernel_shape": [2, 2]}), ("ConvTranspose", {})])
def test_negative_pads_of_windows_are_refused(op, attributes, tmp_path):
    w = {} if "Pool" in op else {"w": floats(3, 3, 2, 2)}
    model = Model(tmp_path, [node(op, "x w" if w else "x", "y", pads=[-1, 0, 0, 0], **attributes)], [value("x", [1, 3, 8, 8])],
                  [value("y", [1, 3, None, None])], w)
    assert "pads" in model.refused()


# ---- Squeeze, Unsqueeze ----------------------------------------------------------------------------------------------------

def forms(opsets, axes):
    """Every pair; negative axes are of version 11 and later."""
    return pytest.mark.parametrize("opset, axes", [(o, a) for o in opsets for a in axes if o >= 11 or not a or min(a) >= 0])


@forms([1, 11, 13, 21], [None, [0], [2], [0, 2], [2, 0], [-1], [-4, -2]])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_squeeze(opset, axes, dtype, tmp_path):
    """A view: no kernel does arithmetic."""
    x = np.arange(4).reshape(1, 2, 1, 2).astype(dtype)
    if axes and 3 in [a % 4 for a in axes]:
        x = x.reshape(1, 4, 1, 1)
    want = np.squeeze(x, tuple(axes) if axes else None)
    elem = helper.np_dtype_to_tensor_dtype(x.dtype)
    given = axes is not None
    nodes = [node("Squeeze", "x axes" if given and opset >= 13 else "x", "y", **({"axes": axes} if given and opset < 13 else {}))]
    model = Model(tmp_path, nodes, [value("x", x.shape, elem)], [value("y", want.shape, elem)],
                  {"axes": ints(*axes)} if given and opset >= 13 else None, opset)
    assert operators(model) == {"reshape"}
    model.compare([x], [want], flags=["-O2"])


@forms([1, 11, 13], [[0], [1, 2], [2, 1], [-1], [0, -1]])
def test_unsqueeze(opset, axes, tmp_path):
    x = floats(2, 3)
    want = np.expand_dims(x, tuple(axes))
    nodes = [node("Unsqueeze", "x axes" if opset >= 13 else "x", "y", **({} if opset >= 13 else {"axes": axes}))]
    model = Model(tmp_path, nodes, [value("x", ["n", 3])], [value("y", [None] * want.ndim)], {"axes": ints(*axes)} if opset >= 13 else None, opset)
    model.compare([x], [want])


@pytest.mark.parametrize("op, axes, word", [("Squeeze", [1], "1"), ("Squeeze", [4], "axis"), ("Squeeze", [-5], "axis"), ("Squeeze", [0, 0], "axis"),
                                            ("Squeeze", [0, -4], "axis"), ("Unsqueeze", [7], "axis"), ("Unsqueeze", [1, 1], "axis")])
def test_squeeze_refused(op, axes, word, tmp_path):
    """A dim that is not 1 (torch calls it a no-op, ONNX an error), axes out of range, an axis twice."""
    model = Model(tmp_path, [node(op, "x axes", "y")], [value("x", [1, 2, 1, 2])], [value("y", None)], {"axes": ints(*axes)})
    text = model.refused()
    assert op in text and word in text, text


def test_squeeze_of_a_symbolic_dim_is_checked_by_the_run(tmp_path):
    model = Model(tmp_path, [node("Squeeze", "x axes", "y")], [value("x", ["n", 3])], [value("y", [3])], {"axes": ints(0)})
    model.compare([floats(1, 3)])
    with pytest.raises(ModelError, match="-2"):
        model.run([floats(2, 3)])


def test_squeeze_run_time_axes_of_known_number(tmp_path):
    model = Model(tmp_path, [node("Squeeze", "x axes", "y")], [value("x", ["a", "b", "c"]), value("axes", [1], T.INT64)], [value("y", [None, None])])
    model.compare([floats(1, 2, 3), ints(0)])
    model.compare([floats(2, 3, 1), ints(-1)])


def test_squeeze_to_a_scalar_and_of_a_scalar(tmp_path):
    model = Model(tmp_path, [node("Squeeze", "x", "s"), node("Squeeze", "s", "t"), node("Unsqueeze", "t axes", "y")], [value("x", [1, 1])],
                  [value("y", [1])], {"axes": ints(0)})
    model.compare([floats(1, 1)])


def test_squeeze_of_empty_axes_is_no_change(tmp_path):
    """numpy's meaning of an empty tuple; ONNX is silent (docs/notes/onnx-decisions.md)."""
    model = Model(tmp_path, [node("Squeeze", "x axes", "y")], [value("x", [1, 2])], [value("y", [None, None])], {"axes": ints()})
    model.compare([floats(1, 2)], [floats(1, 2)])


# ---- predicates that fold ---------------------------------------------------------------------------------------------------

def branch(name, nodes, output):
    return helper.make_graph(nodes, name, [], [output])


def squeezing_if(predicate):
    """If predicate then Squeeze(p, 1) else Identity(p): branches whose ranks differ."""
    return node("If", predicate, "y", "torn", then_branch=branch("then", [node("Squeeze", "p axis", "t")], value("t", None)),
                else_branch=branch("else", [node("Identity", "p", "e")], value("e", None)))


def exported(chain):
    """ReflectionPad3d((0, 0, -43, 0, 0, -46)) and squeeze(1) as the TorchScript exporter writes them."""
    test = [node("Shape", "p", "s"), node("Gather", "s axis", "d"), node("Equal", "d one", "c"), squeezing_if("c")]
    constants = {"axis": ints(1), "one": ints(1)}
    if not chain:
        return [node("Pad", "x pads", "p", mode="reflect"), *test], constants
    nodes = [node("ConstantOfShape", "missing", "zeros", value=numpy_helper.from_array(ints(0))), node("Concat", "given zeros", "all", axis=0),
             node("Reshape", "all pairs", "p2"), node("Slice", "p2 minus_one lowest zero minus_one", "rev"),
             node("Transpose", "rev", "t0", perm=[1, 0]), node("Reshape", "t0 minus_one", "flat"), node("Cast", "flat", "pads", to=T.INT64)]
    constants |= {"given": ints(0, 0, -43, 0, 0, -46), "pairs": ints(-1, 2), "minus_one": ints(-1), "lowest": ints(-2 ** 63), "zero": ints(0)}
    return [*nodes, node("Pad", "x pads", "p", mode="reflect"), *test], constants


@pytest.mark.parametrize("chain", [False, True], ids=["folded pads", "chain of pads"])
@pytest.mark.parametrize("shape, want", [([13, 47, 44, 1], (13, 1, 1)), ([13, 1, 47, 44, 1], (13, 1, 1, 1))])
def test_reflection_pad_and_squeeze(chain, shape, want, tmp_path):
    nodes, constants = exported(chain)
    rank = len(shape)
    if chain:
        constants["missing"] = ints(2 * rank - 6)
    else:
        constants["pads"] = ints(*[0] * (rank - 3), 0, -43, 0, *[0] * (rank - 3), -46, 0, 0)
    model = Model(tmp_path, nodes, [value("x", shape)], [value("y", None)], constants, 13)
    assert operators(model) <= {"pad", "reshape", "slice", "reverse"}
    x = torch_references.drawn(5, *shape)
    got = model.compare([x], [STORED[f"reflection{rank}"]])
    assert got[0].shape == want


@pytest.mark.parametrize("predicate", ["initializer", "Constant", "shape arithmetic"])
@pytest.mark.parametrize("holds", [True, False])
def test_only_the_live_branch_is_imported(predicate, holds, tmp_path):
    """An unknown operator in the dead branch is no error; 5x5x3x4 beside 5x5x3x4x1."""
    live = branch("live", [node("Relu", "x", "a")], value("a", [5, 5, 3, 4]))
    dead = branch("dead", [node("Unsqueeze", "x last", "u"), node("NoSuchThing", "u", "b", domain="my.own")], value("b", [5, 5, 3, 4, 1]))
    first = {"initializer": [], "Constant": [node("Constant", "", "c", value=numpy_helper.from_array(np.array(holds)))],
             "shape arithmetic": [node("Shape", "x", "s"), node("Size", "s", "r"), node("Equal", "r want", "c")]}[predicate]
    constants = {"last": ints(4)} | {"initializer": {"c": np.array(holds)}, "Constant": {},
                                     "shape arithmetic": {"want": np.array(4 if holds else 5)}}[predicate]
    nodes = [*first, node("If", "c", "y", then_branch=live if holds else dead, else_branch=dead if holds else live)]
    tensors = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "g", [value("x", [5, 5, 3, 4])], [value("y", None)], tensors)
    path = tmp_path / "net.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.own", 1)],
                                       ir_version=8).SerializeToString())
    model = Model(tmp_path, path=path)
    x = floats(5, 5, 3, 4)
    model.compare([x], [np.maximum(x, 0)])


def test_predicate_of_a_symbolic_dim(tmp_path):
    """dim == 1: the range decides; where it does not, the output has the rank that the run chooses."""
    nodes = [node("Shape", "p", "s"), node("Gather", "s axis", "d"), node("Equal", "d one", "c"), squeezing_if("c"), node("Relu", "y", "z")]
    model = Model(tmp_path, nodes, [value("p", [3, "n", 2])], [value("z", None)], {"axis": ints(1), "one": ints(1)}, 13)
    for dim, n, shape in (("n=2..9", 4, (3, 4, 2)), ("n=1..1", 1, (3, 2)), ("1", 1, (3, 2))):
        assert model.run([floats(3, n, 2)], f"--input=p:f32[3,{dim},2]")[0].shape == shape
    for n, shape in ((4, (3, 4, 2)), (1, (3, 2))):
        assert model.run([floats(3, n, 2)], "--input=p:f32[3,n=1..9,2]")[0].shape == shape


def test_predicate_undecided_with_equal_ranks(tmp_path):
    """A run-time branch; the result's shape is symbolic."""
    nodes = [node("Shape", "x", "s"), node("Gather", "s axis", "d"), node("Equal", "d one", "c"),
             node("If", "c", "y", then_branch=branch("then", [node("Concat", "x x", "t", axis=0)], value("t", None)),
                  else_branch=branch("else", [node("Identity", "x", "e")], value("e", None)))]
    model = Model(tmp_path, nodes, [value("x", ["n", 2])], [value("y", [None, 2])], {"axis": ints(0), "one": ints(1)}, 13)
    for n in (1, 3):
        model.compare([floats(n, 2)])

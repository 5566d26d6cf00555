"""Operands that say how many dims or axes there are, of a length known only at run time: the rank of the result is the run's, or
follows from other operands. Drawn forms against ONNX Runtime, each operand's length static, symbolic, or made by the run."""
import itertools
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.artifact import ModelError
from support.compare import Model, floats, ints, node
from support.tool import mcc, value

FLAGS = ("-O1",)


def shape_of(kind, given):
    """A declared shape: the sizes, symbols of their own."""
    return list(given) if kind == "static" else [f"d{i}" for i in range(len(given))]


class Drawn:
    """One model for operands of every length: y = op(x, s, ...) with s of unknown length, then what `tail` adds."""

    def __init__(self, folder, op, rank, more=(), tail=(), output="y", declared=None, opset=21, attributes=None, inputs=None):
        ports = [value("x", [f"d{i}" for i in range(rank)])] if rank is not None else []
        ports += inputs or [value("s", ["k"], T.INT64)]
        operands = " ".join(p.name for p in ports)
        self.model = Model(folder, [node(op, operands, "y", "open", **(attributes or {})), *tail], ports, [value(output, declared)], dict(more), opset)

    def agrees(self, *feed, **how):
        return self.model.compare(list(feed), flags=FLAGS, **how)

    def fails(self, *feed, code=(-2, -9), says=""):
        with pytest.raises(ModelError) as caught:
            self.model.run(list(feed), *FLAGS)
        assert caught.value.code in code and says in caught.value.text, caught.value.text


@pytest.mark.parametrize("at", [3, -3, (0, 2)], ids=str)
def test_an_extent_of_a_rank_that_the_run_chooses(at, tmp_path):
    """Gather of a Shape: ranks that have no such axis are errors of the run, not of the file."""
    tail = [node("Shape", "y", "shape"), node("Gather", "shape at", "extent"), node("Cast", "extent", "z", to=T.FLOAT)]
    given, declared = (ints(*at), [None]) if isinstance(at, tuple) else (np.int64(at), [])
    open_ = Drawn(tmp_path, "Reshape", 1, {"at": given}, tail, "z", declared)
    x = floats(24)
    least = 4 if at == 3 else 3
    for shape in ([2, 3, 4], [2, 1, 3, 4], [1, 2, 3, 2, 2]):
        if len(shape) >= least:
            open_.agrees(x, ints(*shape))
        else:
            open_.fails(x, ints(*shape))
    open_.fails(x, ints(24))


# ---- shapes ---------------------------------------------------------------------------------------------------------------

def factors(rng, n):
    """A shape of n elements: random factors, ones, perhaps a -1."""
    out = []
    for p in (2, 2, 2, 3):
        at = rng.integers(0, len(out) + 1)
        if out and rng.random() < 0.4:
            out[min(at, len(out) - 1)] *= p
        else:
            out.insert(at, p)
    for _ in range(rng.integers(0, 3)):
        out.insert(rng.integers(0, len(out) + 1), 1)
    assert np.prod(out) == n
    if rng.random() < 0.5:
        out[rng.integers(0, len(out))] = -1
    return out


def test_reshape(tmp_path):
    rng = np.random.default_rng(5)
    drawn = Drawn(tmp_path, "Reshape", 3)
    x = floats(2, 3, 4)
    for shape in ([-1], [24], [0, -1], [0, 0, 0], [4, 0, 2], [2, 12], *(factors(rng, 24) for _ in range(12))):
        if len(shape) <= 8:
            drawn.agrees(x, ints(*shape))
    assert drawn.agrees(floats(1, 1, 1), ints(), want=[floats(1, 1, 1).reshape(())])[0].shape == ()
    drawn.fails(x, ints(5, 5))
    drawn.fails(x, ints(2, 1, 1, 1, 3, 1, 1, 2, 2), says="0 to 8 dims")


def test_reshape_of_a_length_that_the_data_decides(tmp_path):
    """The dims that are not 0 are the shape."""
    nodes = [node("NonZero", "s", "at"), node("Squeeze", "at zero", "i"), node("Gather", "s i", "shape"), node("Reshape", "x shape", "y")]
    model = Model(tmp_path, nodes, [value("x", ["n", 6]), value("s", ["k"], T.INT64)], [value("y", None)], {"zero": ints(0)})
    for shape in ((0, 4, 0, 3), (0, 0, -1), (2, 1, 3, 0, 2)):
        model.compare([floats(2, 6), ints(*shape)], flags=FLAGS)


def test_what_follows_takes_one_rank(tmp_path):
    """A product needs rank 2: other lengths are errors of the run, nothing is compiled twice, and dims stay symbolic."""
    drawn = Drawn(tmp_path, "Reshape", 3, {"w": floats(4, 5)}, [node("Gemm", "y w", "g", "dense"), node("Relu", "g", "z")], "z")
    assert " if(" not in drawn.model.dump("legalize")
    for shape in ([6, 4], [-1, 4], [3, 4]):
        drawn.agrees(floats(3, 2, 4) if shape[0] != 3 else floats(3, 2, 2), ints(*shape))
    drawn.fails(floats(3, 2, 4), ints(3, 2, 4), says="dense")


def test_a_declared_rank_decides_nothing(tmp_path):
    drawn = Drawn(tmp_path, "Reshape", 3, declared=[None, None])
    for shape in ([4, 6], [24], [2, 3, 4]):
        drawn.agrees(floats(3, 2, 4), ints(*shape))


def test_what_follows_takes_every_rank(tmp_path):
    tail = [node("Exp", "y", "e"), node("ReduceSum", "e last", "r"), node("Div", "e r", "z")]
    drawn = Drawn(tmp_path, "Reshape", 2, {"last": ints(-1)}, tail, "z")
    for shape in ([12], [3, 4], [2, 3, 2], [1, 2, 1, 6], [2, 1, 3, 1, 2]):
        drawn.agrees(floats(4, 3), ints(*shape))


def test_in_a_branch_a_loop_and_a_function(tmp_path):
    """Inside of regions of their own the rank has to come to one again; a function's result goes on in the caller."""
    steps = [node("Reshape", "x s", "r"), node("ReduceSum", "r", "t", keepdims=0)]
    then = helper.make_graph(steps, "then", [], [value("t", [])])
    other = helper.make_graph([node("ReduceMax", "x", "e", keepdims=0)], "else", [], [value("e", [])])
    for folder in ("if", "loop", "call"):
        (tmp_path / folder).mkdir()
    inputs = [value("x", ["n", 6]), value("s", ["k"], T.INT64)]
    model = Model(tmp_path / "if", [node("If", "p", "y", then_branch=then, else_branch=other)], [*inputs, value("p", [], T.BOOL)], [value("y", [])])
    for p in (True, False):
        model.compare([floats(2, 6), ints(3, 4), np.array(p)], flags=FLAGS)
    body = helper.make_graph([node("Identity", "more", "go"), *steps, node("Add", "v t", "v2")], "body",
                             [value("i", [], T.INT64), value("more", [], T.BOOL), value("v", [])], [value("go", [], T.BOOL), value("v2", [])])
    model = Model(tmp_path / "loop", [node("Loop", "m true v0", "y", body=body)], [*inputs, value("m", [], T.INT64), value("v0", [])],
                  [value("y", [])], {"true": np.array(True)})
    model.compare([floats(2, 6), ints(3, 2, 2), np.array(3), np.float32(0.5)], flags=FLAGS)
    opset = [helper.make_opsetid("", 17)]
    function = helper.make_function("my", "Shaped", ["x", "s"], ["q"], [node("Reshape", "x s", "r"), node("Neg", "r", "q")], opset)
    nodes = [node("Shaped", "x s", "a", domain="my"), node("Exp", "a", "b"), node("Shaped", "b t", "y", domain="my")]
    made = helper.make_graph(nodes, "net", [*inputs, value("t", [2], T.INT64)], [value("y", None)])
    onnx.save(helper.make_model(made, opset_imports=[*opset, helper.make_opsetid("my", 1)], functions=[function], ir_version=8), tmp_path / "call/net.onnx")
    model = Model(tmp_path / "call", path=tmp_path / "call/net.onnx")
    for s, t in (((3, 4), (12, 1)), ((12,), (2, 6)), ((2, 1, 6), (4, -1))):
        model.compare([floats(2, 6), ints(*s), ints(*t)], flags=FLAGS)


def test_expand(tmp_path):
    drawn = Drawn(tmp_path, "Expand", 2)
    for x, shapes in (((3, 1), ([3, 4], [1, 4], [4], [1], [], [2, 3, 4], [5, 1, 2, 3, 1])), ((1, 2), ([2], [3, 1], [1, 1], [2, 1, 3, 3, 2]))):
        for shape in shapes:
            drawn.agrees(floats(*x), ints(*shape))
    drawn.fails(floats(3, 1), ints(2, 4))


def test_constant_of_shape(tmp_path):
    fill = helper.make_tensor("v", T.INT32, [1], [7])
    drawn = Drawn(tmp_path, "ConstantOfShape", None, attributes={"value": fill})
    drawn.model = Model(tmp_path, [node("ConstantOfShape", "s", "y", value=fill)], [value("s", ["k"], T.INT64)], [value("y", None, T.INT32)])
    for shape in ([], [3], [2, 0], [1, 2, 3], [2, 1, 1, 1, 2]):
        drawn.agrees(ints(*shape))


# ---- axes -----------------------------------------------------------------------------------------------------------------

REDUCTIONS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"]


def axes_of(rank):
    """Sets of axes in some order, some counted from the end."""
    rng = np.random.default_rng(rank)
    for n in range(1, rank + 1):
        for chosen in itertools.combinations(range(rank), n):
            yield [int(a) - rank * int(rng.integers(0, 2)) for a in rng.permutation(chosen)]


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_without_the_dims(op, tmp_path):
    drawn = Drawn(tmp_path, op, 3, opset=18, attributes={"keepdims": 0})
    x = np.abs(floats(2, 3, 4)) + 0.5
    for axes in axes_of(3):
        drawn.agrees(x, ints(*axes))
    drawn.agrees(x, ints())
    drawn.fails(x, ints(0, 0))
    drawn.fails(x, ints(0, 1, 1))
    drawn.fails(x, ints(3))


def test_reduction_of_no_axes_is_none(tmp_path):
    drawn = Drawn(tmp_path, "ReduceSum", 2, opset=18, attributes={"keepdims": 0, "noop_with_empty_axes": 1})
    for axes in ([], [0], [-1], [1, 0]):
        drawn.agrees(floats(2, 3), ints(*axes))


def test_mean_of_nothing(tmp_path):
    """The text leaves it open: NaN, as of 0 / 0, at sizes that the file or the run says."""
    for given in ([2, 0], ["n", "m"]):
        model = Model(tmp_path, [node("ReduceMean", "x", "y", axes=[1], keepdims=0)], [value("x", given)], [value("y", given[:1])])
        assert np.isnan(model.run([np.zeros((2, 0), np.float32)])[0]).all()


def test_squeeze(tmp_path):
    drawn = Drawn(tmp_path, "Squeeze", 4)
    for dims, axes in (((1, 3, 1, 5), [0]), ((1, 3, 1, 5), [2, 0]), ((1, 3, 1, 5), [-2]), ((1, 1, 1, 5), [2, 0, -3]), ((1, 1, 1, 1), [3, 1, 2, 0])):
        drawn.agrees(floats(*dims), ints(*axes))
    x = floats(1, 3, 1, 5)
    drawn.agrees(x, ints(), want=[x])    # docs/notes/onnx-decisions.md
    for axes in ([1], [0, 0], [4]):
        drawn.fails(x, ints(*axes))


def test_unsqueeze(tmp_path):
    drawn = Drawn(tmp_path, "Unsqueeze", 2)
    x = floats(2, 3)
    for axes in ([0], [1], [2], [-1], [-3], [0, 1], [3, 0], [-1, 1], [0, 4, 2], [5, 4, 3, 0], [0, 1, 2, 3, 4, 5], [7, 5, 3, 1, 0, 2]):
        drawn.agrees(x, ints(*axes))
    drawn.agrees(x, ints(), want=[x])
    for axes in ([0, 0], [4], [-4], [1, 1, 3]):
        drawn.fails(x, ints(*axes))


def test_lengths_from_the_command_line(tmp_path):
    """What is refused or bounded for its length is decided by --input."""
    drawn = Drawn(tmp_path, "Unsqueeze", 2)
    flag = "--input=s:i64[2]"
    assert " if(" not in drawn.model.dump("legalize", flag)
    assert drawn.model.run([floats(2, 3), ints(0, 3)], flag)[0].shape == (1, 2, 3, 1)


def test_a_rank_of_the_run_is_shown(tmp_path):
    drawn = Drawn(tmp_path, "Reshape", 2)
    shown = mcc("inspect", drawn.model.compile("-O1"))
    assert shown.returncode == 0 and "y" in shown.stdout, shown.stderr


def test_what_comes_before_stays(tmp_path):
    """An output that is made before a rank is open, where one of several ranks cannot go on."""
    nodes = [node("Neg", "x", "n"), node("GatherND", "x i", "g", "open"), node("Concat", "g g", "c", axis=1)]
    model = Model(tmp_path, nodes, [value("x", [3, 4, 5]), value("i", [2, "k"], T.INT64)], [value("n", None), value("c", None)])
    for k in (1, 2):
        model.compare([floats(3, 4, 5), np.arange(2 * k).reshape(2, k)], flags=FLAGS)


@pytest.mark.parametrize("chain", [2, 3, 6])
def test_many_are_bounded(chain, tmp_path):
    """Each of a chain of shapes multiplies what follows: refused, and soon, with what to do. (Two would be 81 ways with kernels of their own.)"""
    nodes, inputs = [], [value("x", ["n", 6])]
    for i in range(chain):
        inputs.append(value(f"s{i}", [f"k{i}"], T.INT64))
        nodes.append(node("Reshape", f"{f'a{i}' if i else 'x'} s{i}", f"a{i + 1}", f"shape{i}"))
    model = Model(tmp_path, nodes, inputs, [value(f"a{chain}", None)])
    start = time.monotonic()
    text = model.refused()
    assert time.monotonic() - start < 10
    assert "--input" in text and "shape" in text


# ---- lengths that do not change the rank ------------------------------------------------------------------------------------

def pad_inputs(axes="j"):
    return [value("p", ["k"], T.INT64), value("v", []), value("a", [axes], T.INT64)]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad_axes(mode, tmp_path):
    drawn = Drawn(tmp_path, "Pad", 3, opset=19, attributes={"mode": mode}, inputs=pad_inputs())
    rng = np.random.default_rng(len(mode))
    for axes in axes_of(3):
        pads = rng.integers(0 if mode != "constant" else -1, 2, 2 * len(axes))
        drawn.agrees(floats(4, 3, 5), ints(*pads), np.float32(2), ints(*axes))
    x = floats(4, 3, 5)
    drawn.agrees(x, ints(), np.float32(2), ints(), want=[x])
    for pads, axes in (((1, 1, 1), (0,)), ((1, 1), (0, 1)), ((1, 1), (3,)), ((1, 1, 1, 1), (0, 0)), ((1, 1, 1, 1), (0, -3))):
        drawn.fails(x, ints(*pads), np.float32(2), ints(*axes))


def test_pad_axes_as_many_as_pads_say(tmp_path):
    """One of the two lengths is known."""
    drawn = Drawn(tmp_path, "Pad", 3, opset=19, inputs=[value("p", [4], T.INT64), value("v", []), value("a", ["j"], T.INT64)])
    drawn.agrees(floats(2, 3, 4), ints(1, 0, 2, 1), np.float32(1), ints(2, -3))
    drawn.fails(floats(2, 3, 4), ints(1, 0, 2, 1), np.float32(1), ints(2))


@pytest.mark.parametrize("known", [None, 0, 1, 2, 3])
def test_slice(known, tmp_path):
    """Starts, ends, axes and steps, of which one may say how many there are."""
    lengths = [2 if known == i else f"k{i}" for i in range(4)]
    drawn = Drawn(tmp_path, "Slice", 3, inputs=[value(p, [n], T.INT64) for p, n in zip("seat", lengths)])
    rng = np.random.default_rng(known)
    x = floats(4, 5, 6)
    for axes in axes_of(3):
        if known is None or len(axes) == 2:
            starts, ends = rng.integers(-6, 6, len(axes)), rng.integers(-7, 9, len(axes))
            drawn.agrees(x, ints(*starts), ints(*ends), ints(*axes), ints(*rng.choice([1, 2, -1, -3], len(axes))))
    if known is None:
        drawn.fails(x, ints(0), ints(1), ints(3), ints(1))
        drawn.fails(x, ints(0, 0, 0, 0), ints(1, 1, 1, 1), ints(0, 1, 2, 0), ints(1, 1, 1, 1))


@pytest.mark.parametrize("batch", [0, 1])
def test_gather_nd(batch, tmp_path):
    drawn = Drawn(tmp_path, "GatherND", 3, attributes={"batch_dims": batch}, inputs=[value("i", ["a", "b", "k"], T.INT64)])
    rng = np.random.default_rng(batch)
    x = floats(2, 3, 4)
    for k in range(1, 4 - batch):
        top = np.array(x.shape[batch:batch + k])
        drawn.agrees(x, rng.integers(-top, top, (2, 5, k)))
    drawn.fails(x, np.zeros((2, 5, 4 - batch), np.int64))
    drawn.fails(x, np.full((2, 5, 1), 9))


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_scatter_nd(k, reduction, tmp_path):
    """The rank of the updates says how long the tuples are."""
    updates = ["a"] + [f"u{i}" for i in range(3 - k)]
    drawn = Drawn(tmp_path, "ScatterND", 3, opset=18, attributes={"reduction": reduction},
                  inputs=[value("i", ["a", "k"], T.INT64), value("u", updates)])
    rng = np.random.default_rng(k)
    x = floats(4, 3, 5)
    places = rng.permutation(int(np.prod(x.shape[:k])))[:3]
    idx = np.stack(np.unravel_index(places, x.shape[:k]), axis=1).astype(np.int64)
    drawn.agrees(x, idx, floats(3, *x.shape[k:], seed=1))
    drawn.fails(x, np.zeros((3, k + 1), np.int64), floats(3, *x.shape[k:]))


@pytest.mark.parametrize("align", [0, 1])
def test_affine_grid(align, tmp_path):
    drawn = Drawn(tmp_path, "AffineGrid", 3, opset=20, attributes={"align_corners": align})
    drawn.agrees(floats(2, 2, 3), ints(2, 3, 4, 5))
    drawn.agrees(floats(1, 3, 4), ints(1, 2, 3, 4, 5))
    drawn.fails(floats(2, 3, 4), ints(2, 3, 4, 5))
    drawn.fails(floats(2, 2, 3), ints(2, 3, 4))


@pytest.mark.parametrize("attributes", [{}, {"strides": [2, 1]}, {"pads": [1, 0, 1, 0]}, {"dilations": [1, 2]}])
def test_col2im(attributes, tmp_path):
    drawn = Drawn(tmp_path, "Col2Im", 3, opset=18, attributes=attributes,
                  inputs=[value("image", ["k"], T.INT64), value("block", ["j"], T.INT64)])
    for image, block in (((5, 6), (2, 3)), ((4, 4), (1, 1)), ((6,), (2,)), ((3, 4, 3), (2, 2, 1))):
        if attributes and len(image) != 2:
            continue
        strides, pads, dilations = (attributes.get(k, [v] * 6) for k, v in (("strides", 1), ("pads", 0), ("dilations", 1)))
        places = [(s + pads[i] + pads[len(image) + i] - dilations[i] * (b - 1) - 1) // strides[i] + 1 for i, (s, b) in enumerate(zip(image, block))]
        drawn.agrees(floats(2, 3 * int(np.prod(block)), int(np.prod(places))), ints(*image), ints(*block))
    if not attributes:  # -4 by -3 places are as many as 12 columns
        drawn.fails(floats(1, 40, 12), ints(0, 0, 2), ints(5, 4, 2))


@pytest.mark.parametrize("opset, at", [(17, None), (20, None), (20, "axis")])
def test_dft_of_reals_or_complex_numbers(opset, at, tmp_path):
    """Whether the last dim is 1 or 2 is the run's."""
    ports = [value("x", ["a", "b", "c"], T.DOUBLE)] + ([value("n", [], T.INT64), value("at", [], T.INT64)] if at else [])
    model = Model(tmp_path, [node("DFT", "x n at" if at else "x", "y", **({"axis": 1} if opset < 20 else {}))], ports, [value("y", None, T.DOUBLE)], {}, opset)
    for parts in (1, 2):
        x = floats(3, 5, parts).astype(np.float64)
        full = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
        for axis in (0, 1) if at else (1,):
            y = np.fft.fft(full, axis=axis)
            more = [np.array(x.shape[axis]), np.array(axis)] if at else []
            model.compare([x, *more], [np.stack([y.real, y.imag], -1)], flags=FLAGS)
    with pytest.raises(ModelError):
        model.run([np.zeros((3, 5, 3)), *([np.array(5), np.array(1)] if at else [])], *FLAGS)


def test_one_scale_where_several_have_no_axis(tmp_path):
    inputs = [value("x", ["n"]), value("s", ["k"]), value("z", ["j"], T.UINT8)]
    model = Model(tmp_path, [node("QuantizeLinear", "x s z", "y")], inputs, [value("y", ["n"], T.UINT8)], {}, 19)
    x = floats(7)
    model.compare([x, np.array([0.1], np.float32), np.array([3], np.uint8)], flags=FLAGS)
    with pytest.raises(ModelError):
        model.run([x, np.ones(7, np.float32), np.zeros(7, np.uint8)], *FLAGS)


def test_strings_of_one_row(tmp_path):
    model = Model(tmp_path, [node("StringNormalizer", "x", "y", case_change_action="UPPER", stopwords=["b"], is_case_sensitive=1)],
                  [value("x", ["n", "c"], T.STRING)], [value("y", None, T.STRING)])
    model.compare([np.array([["a", "b", "c"]], dtype=object)], [np.array([["A", "C"]], dtype=object)], flags=FLAGS)
    with pytest.raises(ModelError):
        model.run([np.array([["a"], ["b"]], dtype=object)], *FLAGS)


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("activation", ["none", "silu"])
def test_causal_conv_of_any_number_of_channels(activation, state, tmp_path):
    inputs = [value("x", ["b", "c", "n"]), value("w", ["c2", "one", "k"]), value("bias", ["c3"])] + ([value("past", ["p", "q", "r"])] if state else [])
    model = Model(tmp_path, [node("CausalConvWithState", "x w bias past" if state else "x w bias", "y present", activation=activation)],
                  inputs, [value("y", None), value("present", None)], {}, 27)
    for b, c, n, k in ((1, 1, 1, 1), (2, 3, 5, 4), (1, 4, 2, 3)):
        x, w, bias, past = floats(b, c, n), floats(c, 1, k, seed=1), floats(c, seed=2), floats(b, c, k - 1, seed=3)
        padded = np.concatenate([past if state else np.zeros_like(past), x], axis=2)
        y = sum(padded[:, :, i:i + n] * w[:, 0, i][None, :, None] for i in range(k)) + bias[None, :, None]
        y = y / (1 + np.exp(-y)) if activation == "silu" else y
        model.compare([x, w, bias] + ([past] if state else []), [y, padded[:, :, n:]], flags=FLAGS)


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("dims", [["w"], ["h", "w"], [5, "w"]], ids=len)
def test_group_norm_in_pieces_of_open_dims(dims, groups, tmp_path):
    """Reshape, InstanceNormalization, Reshape: sums go over channels and image, without a division of each index by an extent of the run."""
    nodes = [node("Relu", "x", "h"), node("Reshape", "h flat", "f"), node("InstanceNormalization", "f one zero", "i"), node("Shape", "h", "dims"),
             node("Reshape", "i dims", "r"), node("Mul", "r scale", "m"), node("Add", "m bias", "y")]
    whole = [8] + [1] * len(dims)
    constants = {"flat": ints(0, groups, -1), "one": np.linspace(0.5, 2, groups, dtype=np.float32), "zero": floats(groups),
                 "scale": floats(*whole, seed=1), "bias": floats(*whole, seed=2)}
    model = Model(tmp_path, nodes, [value("x", ["n", 8, *dims])], [value("y", None)], constants)
    for batch, size in ((1, [5, 33]), (3, [5, 1]), (2, [5, 200])):
        model.compare([floats(batch, 8, *size[2 - len(dims):], seed=batch)])
    if groups < 8 or len(dims) > 1:     # else the first Reshape changes nothing
        assert model.dump("legalize").count(f"axes={list(range(2, 3 + len(dims)))}") == 2


@pytest.mark.parametrize("length, kept", [("n", False), (64, True), (40000, False)], ids=str)
def test_dear_epilogue_of_a_long_row(length, kept, tmp_path):
    """An activation that several stages of a row want is kept in scratch for it, or, where that has no room, stored by the product in front."""
    nodes = [node("MatMul", "w x", "p"), node("Tanh", "p", "t"), node("ReduceMean", "t", "m", axes=[1], keepdims=1), node("Sub", "t m", "c"),
             node("Mul", "c c", "s"), node("ReduceMean", "s", "v", axes=[1], keepdims=1), node("Div", "c v", "y")]
    model = Model(tmp_path, nodes, [value("x", [16, length])], [value("y", None)], {"w": floats(24, 16, seed=3, scale=0.3)})
    for n in ((1000, 64) if length == "n" else (length,)):
        model.compare([floats(16, n)], atol=1e-3)
    made = [k for k in model.kernels() if "tanh" in k]
    assert len(made) == 1 and made[0].startswith("map" if kept else "contract"), made

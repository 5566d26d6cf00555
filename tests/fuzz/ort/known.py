"""Disagreements that were looked at and are no defect of mcc, or are not decided: (kind, operator or "", condition, pattern, whose, why).

A verdict is known when its kind is the row's, the pattern is found in its text, the operator is one of at most NODES nodes of the
reduced network (of any number where the condition is a computed extent of 0), and the condition holds there. `theirs`: ONNX
Runtime is wrong, or the standard says nothing; `open`: not settled.
docs/notes/onnx-decisions.md says more of those where the meaning of an operator was decided.
"""
import re

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fuzz.ort.judge import runtime

NODES = 4
INTEGERS = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16, TensorProto.INT32, TensorProto.UINT32,
         TensorProto.INT64, TensorProto.UINT64)


def always(node, model, feeds):
    return True


def has(name, value):
    """The node has this attribute."""
    return lambda node, model, feeds: any(a.name == name and helper.get_attribute_value(a) == value for a in node.attribute)


def f16(node, model, feeds):
    return any(a.dtype == np.float16 for a in tensors(model, feeds))


def inside(graph, op):
    return any(n.op_type == op or any(a.HasField("g") and inside(a.g, op) for a in n.attribute) for n in graph.node)


def beside(op):
    """This operator is in the network, too, or in one of its regions."""
    return lambda node, model, feeds: inside(model.graph, op)


def below(opset):
    return lambda node, model, feeds: model.opset_import[0].version < opset


def tensors(model, feeds):
    constants = [a.t for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"]
    return [*feeds.values(), *(numpy_helper.to_array(t) for t in [*model.graph.initializer, *constants])]


def nan(node, model, feeds):
    """NaN, an infinity, or what overflows when squared comes in."""
    return any(a.dtype.kind == "f" and not np.all(np.abs(a.astype(np.float64)) < 1e18) for a in tensors(model, feeds))


def number_missing(node, model, feeds):
    """NaN comes in."""
    x = operand(node, model, feeds)
    return x is not None and x.dtype.kind == "f" and bool(np.isnan(x).any())


def same_dilated(node, model, feeds):
    a = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return a.get("auto_pad", b"").startswith(b"SAME") and any(d != 1 for d in a.get("dilations", ()))


def whole(node, model, feeds):
    """The first operand is of integers."""
    types = {p.name: p.type.tensor_type.elem_type for p in model.graph.input} | {t.name: t.data_type for t in model.graph.initializer} | {
        n.output[0]: a.t.data_type for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"}
    return types.get(node.input[0]) in INTEGERS


def drawn_mask(node, model, feeds):
    """The mask is drawn: training_mode is true, or dynamic."""
    given = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer} | feeds
    return len(node.input) > 2 and bool(np.any(given.get(node.input[2], True)))


def doubles(node, model, feeds):
    return any(a.dtype == np.float64 for a in tensors(model, feeds))


def computed_zero(node, model, feeds):
    """An operand that says a shape, and that the run computes, has a 0 or a -1."""
    shape = operand(node, model, feeds, 1)
    return shape is not None and bool(np.any(shape <= 0))


def padding_alone(node, model, feeds):
    """Dilations and paddings, which some window may lie in altogether, and which do not count."""
    return not has("count_include_pad", 1)(node, model, feeds) and {"dilations", "pads"} <= {a.name for a in node.attribute}


def masked(node, model, feeds):
    """A mask of booleans leaves some row no key."""
    return any(a.dtype == np.bool_ and a.ndim and not a.any(-1).all() for a in tensors(model, feeds))


def whole_fmod(node, model, feeds):
    return whole(node, model, feeds) and has("fmod", 1)(node, model, feeds)


def single(node, model, feeds):
    """Channels of one element come in."""
    return any(a.ndim > 2 and a.size and np.prod(a.shape[2:]) == 1 for a in tensors(model, feeds))


def empty(node, model, feeds):
    return any(a.size == 0 for a in tensors(model, feeds))


def shapes(model, feeds):
    """{name: dims} of what comes in."""
    constants = {n.output[0]: a.t for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"}
    known = {t.name: list(t.dims) for t in model.graph.initializer} | {k: list(t.dims) for k, t in constants.items()}
    return known | {k: list(a.shape) for k, a in feeds.items()}


def same_wide(node, model, feeds):
    """auto_pad SAME_* where strides exceed the window: the formula's total padding is negative."""
    a = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return a.get("auto_pad", b"").startswith(b"SAME") and any(s > k for s, k in zip(a.get("strides", ()), a.get("kernel_shape", ())))


def valid_ceil(node, model, feeds):
    return has("auto_pad", b"VALID")(node, model, feeds) and has("ceil_mode", 1)(node, model, feeds)


def lone(node, model, feeds):
    """An operand has a dim of 1."""
    return any(1 in shapes(model, feeds).get(n, [1]) for n in node.input)


def outside(node, model, feeds):
    """Numbers come in that the integer type of the result does not have."""
    to = next((helper.tensor_dtype_to_np_dtype(a.i) for a in node.attribute if a.name == "to"), None)
    return to is not None and to.kind in "iu" and any(a.dtype.kind == "f" and a.size and not (
        np.iinfo(to).min <= np.min(a) and np.max(a) <= np.iinfo(to).max) for a in tensors(model, feeds))


def between(node, model, feeds):
    """align_corners, and scales that give a length between two."""
    given = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer} | feeds | {
        n.output[0]: numpy_helper.to_array(a.t) for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"}
    dims, scales = shapes(model, feeds).get(node.input[0]), given.get([i for i in node.input if i][-1])
    lengths = [n * float(s) for n, s in zip(dims[-scales.size:], scales)] if dims and scales is not None and scales.dtype.kind == "f" else []
    return has("coordinate_transformation_mode", b"align_corners")(node, model, feeds) and any(abs(n - round(n)) > 1e-4 for n in lengths)


def nearest(node, model, feeds):
    """An element of the input lies at the place that is asked for, or two as far: the formula's rounding decides. (Not the first.)"""
    a = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if a.get("mode", b"nearest") != b"nearest":
        return False
    dims, named = shapes(model, feeds).get(node.input[0]), [i for i in node.input if i]
    given = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer} | feeds
    last = given.get(named[-1])
    if dims is None or last is None:                 # made by another node of the network: not known here
        return True
    how, step = a.get("coordinate_transformation_mode", b"half_pixel"), 1 if a.get("nearest_mode", b"") in (b"floor", b"ceil") else 2
    axes = [x % len(dims) for x in a.get("axes", range(len(dims)))]
    for axis, v in zip(axes, last.reshape(-1)):
        n = dims[axis]
        whole = last.dtype.kind == "i" and not a.get("keep_aspect_ratio_policy", b"stretch").startswith(b"not")
        lengths = [n * float(v) if last.dtype.kind == "f" else float(v)] if whole or last.dtype.kind == "f" else [
            n * float(k) / d for k, d in zip(last.reshape(-1), dims) if d]
        for length in lengths:
            x = np.arange(max(int(np.floor(length + 1e-5)), 1))
            off = n / 2 * (1 - len(x) / length) if how == b"half_pixel_symmetric" else 0
            place = x * (n - 1) / max(length - 1, 1e-9) if how == b"align_corners" else x * n / length if how == b"asymmetric" else (
                off + (x + 0.5) * n / length - 0.5)
            if np.any(np.abs(place * step - np.round(place * step))[place != 0] < 1e-4):
                return True
    return False


def operand(node, model, feeds, i=0):
    """Operand i, or None; ONNX Runtime says what another node makes."""
    given, name = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer} | feeds, node.input[i]
    if name in given:
        return given[name]
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    del wide.graph.output[:]
    wide.graph.output.append(helper.make_empty_tensor_value_info(name))
    got, _ = runtime(wide, feeds, False)
    return got and got[name]


def tied_zero(node, model, feeds):
    """The zero point is half way between two."""
    x = operand(node, model, feeds)
    least, most = (min(float(x.min()), 0), max(float(x.max()), 0)) if x is not None and x.size and np.isfinite(x).all() else (0, 0)
    return least < most and abs(-least * 255 / (most - least) % 1 - 0.5) < 1e-3


def wraps(node, model, feeds):
    """A sum, difference or product of integers leaves 64 bits somewhere in the network."""
    exact = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
    for n in model.graph.node:
        a, b = (operand(n, model, feeds, i) for i in (0, 1)) if n.op_type in exact else (None, None)
        if a is not None and b is not None and a.dtype == np.int64:
            results = exact[n.op_type](a.astype(object), b.astype(object))
            if any(not -1 << 63 <= v < 1 << 63 for v in np.ravel(results)):
                return True
    return False


def quotient(node, model, feeds):
    """A quotient multiplies what rounding made of the divisor by 20 and more."""
    a, b = operand(node, model, feeds), operand(node, model, feeds, 1)
    with np.errstate(all="ignore"):
        return a is not None and b is not None and a.dtype.kind == "f" and bool(np.nanmax(np.abs(a / b), initial=0) > 20)


def flat(node, model, feeds):
    """What is normalised hardly varies: what is left of it by the mean is rounding."""
    x, a = operand(node, model, feeds), {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if x is None or not x.size or x.dtype.kind != "f":
        return False
    x = x.astype(np.float64)
    axes = [i % x.ndim for i in a.get("axes", (0, 2, 3))] if node.op_type == "MeanVarianceNormalization" else []
    if axes:
        x = np.moveaxis(x, axes, range(-len(axes), 0))
    kept = {"MeanVarianceNormalization": x.ndim - len(axes), "LayerNormalization": a.get("axis", -1) % x.ndim, "InstanceNormalization": 2,
            "GroupNormalization": 1}[node.op_type]
    rows = x.reshape(int(np.prod(x.shape[:kept])) * a.get("num_groups", 1), -1)
    return bool(np.any(np.std(rows, -1) < 0.01 * np.abs(np.mean(rows, -1))))


def unbounded(node, model, feeds):
    """A gate's function has no bound, or the gates of a GRU are no shares: 1 - z is up to 2."""
    named = [helper.get_attribute_value(a) for a in node.attribute if a.name == "activations"]
    return any(b in (b"Relu", b"Softplus", b"Affine", b"LeakyRelu", b"ThresholdedRelu", b"Elu") for names in named for b in names) or (
        node.op_type == "GRU" and any(b not in (b"Sigmoid", b"HardSigmoid") for names in named for b in names[::2]))


def running_sum(node, model, feeds):
    """The square of one channel is so large that what is left of it in a sum from channel to channel shows in the others."""
    x, a = operand(node, model, feeds), {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return x is not None and x.size and a.get("alpha", 1e-4) / a["size"] * float(np.max(x.astype(np.float64) ** 2)) * 2**-24 > 1e-5 * a.get("bias", 1)


def i8(node, model, feeds):
    types = [p.type.tensor_type.elem_type for p in model.graph.input] + [t.data_type for t in model.graph.initializer]
    return TensorProto.INT8 in types and has("antialias", 1)(node, model, feeds)


def fewer_queries(node, model, feeds):
    """Of what is causal, fewer queries than keys that are not past."""
    q, k = (operand(node, model, feeds, i) for i in (0, 1))
    return has("unidirectional", 1)(node, model, feeds) and k is not None and q.shape[1] < k.shape[2 if k.ndim == 4 else 1]


def unequal(node, model, feeds):
    """Sequences are not equally long."""
    lengths = operand(node, model, feeds, 5)
    return lengths is not None and len(set(lengths.tolist())) > 1


CEIL = "ceil_mode with auto_pad VALID: the length is that of ONNX's formula"
DILATED = "auto_pad SAME_* with dilations: ONNX Runtime pads as if there were none"
WIDE = "auto_pad SAME_*, strides above the window: ONNX Runtime crops by a negative padding, mcc pads by none"
WHOLE = "a partial window before AveragePool-19: ONNX Runtime divides by the whole kernel, mcc by what is there"
LARGEST = "NaN is the largest and the least, as in numpy; ONNX Runtime passes over it or not, as its code for the shape does"
ML = ("LinearClassifier", "TreeEnsembleClassifier", "TreeEnsembleRegressor", "SVMRegressor", "SVMClassifier", "Normalizer", "Scaler")
MISFIT = "operands that do not fit, at other sizes: ONNX Runtime takes a part of one"
CHANNELS = "an operand of one element where there is one for each channel: the standard wants as many, ONNX Runtime broadcasts"
NARROW = "f64: ONNX Runtime computes with constants of f32"
GATES = "ONNX Runtime's gates make a number of NaN"
TWICE = "axes that the run names twice, or more of them than dims"
UNITS = "where a window's first element is 0 or a rounding away from it"
ENDS = "an empty tensor, axes from the end: ONNX Runtime keeps their dims"
KNOWN = [
    ("ours", "AffineGrid", has("align_corners", 1), "", "theirs", "one element: mcc and PyTorch take the middle, ONNX Runtime the end"),
    ("run", "MaxUnpool", always, "index out of range", "theirs", "indices count in the shape without output_shape, as in ONNX's example"),
    ("refused", "MaxUnpool", always, "is outside of", "theirs", "the same, of constants"),
    ("ours", "AveragePool", has("auto_pad", b"VALID"), r"expected, got \[", "theirs", CEIL),
    ("ours", "MaxPool", has("auto_pad", b"VALID"), r"expected, got \[", "theirs", CEIL),
    ("ours", "LpPool", has("auto_pad", b"VALID"), r"expected, got \[", "theirs", CEIL),
    ("ours", "NhwcMaxPool", has("auto_pad", b"VALID"), r"expected, got \[", "theirs", CEIL),
    ("ours", "QLinearAveragePool", has("auto_pad", b"VALID"), r"expected, got \[", "theirs", CEIL),
    ("ours", "MultiHeadAttention", fewer_queries, "", "theirs", "causal: all but the first query see all keys in ONNX Runtime"),
    ("ours", "GroupQueryAttention", unequal, r"\b0\.0 expected", "theirs", "rows that no sequence has: as in past; zeros in ONNX Runtime"),
    ("ours", "QLinearSoftmax", always, r"\b0 expected, got 255", "theirs", "256 steps: ONNX Runtime wraps"),
    ("refused", "RotaryEmbedding", always, "the number of heads is dynamic", "open", "a dynamic width without num_heads"),
    *(("refused", op, always, "the width is dynamic", "open", "experts of a dynamic width") for op in ("MoE", "QMoE")),
    ("refused", "GatherND", always, "address more dims", "open", "tuples of a length known only at run time"),
    ("refused", "ScatterND", always, "address more dims", "open", "tuples of a length known only at run time"),
    ("refused", "", always, "a small integer tensor of known length", "open", "a shape of a length known only at run time"),
    ("refused", "DFT", always, "the last dim must be", "open", "DFT whose last dim is dynamic"),
    ("ours", "Hardmax", nan, "", "theirs", "NaN counts as the largest, as in numpy"),
    ("ours", "ArgMin", nan, "", "theirs", "NaN is the least, as in numpy; ONNX Runtime passes over it unless it comes first"),
    ("ours", "ArgMax", nan, "", "theirs", "NaN is the largest, as in numpy; ONNX Runtime passes over it unless it comes first"),
    ("ours", "GRU", nan, "got nan", "theirs", GATES),
    ("ours", "GRU", nan, r"\d expected, got -?\d", "theirs", "from 1e18 on: ONNX Runtime's gates overflow; ours are those of f64 (seed 735313)"),
    ("ours", "LSTM", nan, "got nan", "theirs", GATES),
    ("ours", "RNN", nan, "got nan", "theirs", GATES),
    *(("ours", op, nan, "got nan", "theirs", LARGEST) for op in (
        "ReduceMax", "ReduceMin", "GlobalMaxPool", "MaxRoiPool", "MaxPool", "Max", "Min", "Clip", "Normalizer")),
    ("ours", "AveragePool", has("count_include_pad", 1), r"expected, got \d", "theirs", WHOLE),
    *(("refused", op, valid_ceil, "do not broadcast|differ", "theirs", CEIL) for op in ("MaxPool", "AveragePool", "LpPool")),
    *(("ours", op, same_wide, "", "theirs", WIDE) for op in ("MaxPool", "AveragePool", "LpPool", "NhwcMaxPool", "QLinearAveragePool")),
    ("run", "GroupNormalization", always, "as many as there are c", "theirs", CHANNELS),
    ("run", "InstanceNormalization", always, "as many as there are c", "theirs", CHANNELS),
    ("run", "BatchNormalization", always, "as many as there are c", "theirs", CHANNELS),
    ("run", "Reduce", always, "named twice|has more than .* elements|axes are served", "theirs", TWICE),
    ("run", "Einsum", lone, "dimensions of a product differ", "theirs", "only an ellipsis broadcasts; ONNX Runtime repeats dims of 1"),
    ("ours", "Einsum", lone, "", "theirs", "only an ellipsis broadcasts; ONNX Runtime repeats dims of 1"),
    ("run", "ConcatFromSequence", empty, "differ off the axis", "theirs", "parts without elements take room in ONNX Runtime's result"),
    ("run", "Unique", nan, "do not broadcast", "theirs", "NaN counts as equal to NaN, as in numpy"),
    ("ours", "Einsum", whole, "", "theirs", "integers: ONNX Runtime sums in f64, which has not every one of 64 bits"),
    ("ours", "Imputer", beside("Sigmoid"), "", "theirs", "ONNX Runtime's sigmoid is 0 where it is small, and so is replaced"),
    ("ours", "Gemm", empty, "", "theirs", "sums of nothing: ONNX Runtime leaves beta out then"),
    ("ours", "MatMul", empty, r"expected, got -?0(\.0)?$", "theirs", "sums of nothing: ONNX Runtime zeroes the first matrix of a batch alone"),
    ("ours", "MatMulInteger", empty, "expected, got 0$", "theirs", "sums of nothing: ONNX Runtime leaves the memory as it was"),
    ("ours", "MaxPool", padding_alone, r"-\d+ expected, got \d+$", "theirs", "the place of the largest of nothing, of windows in padding alone"),
    *(("refused", op, same_dilated, "do not broadcast|differ|reshape", "theirs", DILATED) for op in ("MaxPool", "AveragePool", "LpPool")),
    ("refused", "FeatureVectorizer", always, "features wide", "open", "rows of a rank known only at run time"),
    ("ours", "Cast", has("to", TensorProto.DOUBLE), "", "open", "f32 roundings seen in f64, at other sizes than the drawn ones"),
    ("ours", "Sign", nan, "got nan", "theirs", "the sign of NaN is NaN, as in numpy; ONNX Runtime's of f16 is 0"),
    ("run", "CenterCropPad", always, "number of elements", "theirs", MISFIT),
    ("ours", "Reciprocal", always, "", "open", "of numbers near 0, at other sizes than the drawn ones"),
    ("ours", "Unique", f16, r"\[\d+\] expected", "theirs", "f16: ONNX Runtime keeps sums in f32 between nodes, and has equal elements twice"),
    *(("refused", op, always, "input (?:of|has) rank", "open", "rows of a rank known only at run time") for op in ML),
    ("refused", "Squeeze", always, "the rank depends on whether", "open", "several dims of which the run says whether they are 1"),
    ("run", "Unique", nan, "does not broadcast", "theirs", "NaN counts as equal to NaN, as in numpy"),
    ("ours", "ReduceLogSumExp", number_missing, "inf expected, got nan", "theirs", "a sum with NaN is NaN; ONNX Runtime passes over it"),
    ("ours", "TopK", number_missing, "", "theirs", LARGEST),
    *(("ours", op, nan, "got nan", "theirs", LARGEST) for op in ("TopK", "ScatterND", "ScatterElements")),
    ("ours", "NonZero", beside("LinearClassifier"), "", "theirs", "ONNX Runtime's logistic underflows to 0"),
    *(("ours", op, beside("STFT"), "", "open", "sums that cancel, divided or looked at alone") for op in ("Mod", "Div", "Slice")),
    ("ours", "CastLike", f16, "", "theirs", "f16: ONNX Runtime keeps numbers in f32 between nodes, which a cast to f32 shows"),
    ("ours", "NonZero", beside("Elu"), r"\[\d+, \d+\] expected", "theirs", "ONNX Runtime's exp(x) - 1 is 0 next to 0, where expm1 is not"),
    ("ours", "Unique", beside("Sigmoid"), r"\[\d+\] expected", "theirs", "ONNX Runtime's sigmoid underflows to 0, which makes elements equal"),
    ("ours", "Unique", nan, "", "theirs", "NaN counts as equal to NaN, as in numpy"),
    *(("ours", "Attention", when, "nan expected, got 0", "theirs", "scores that are all -inf: a row without keys") for when in (nan, masked)),
    *(("ours", op, nan, "nan", "theirs", "infinities: ONNX Runtime folds scale and deviation into one factor") for op in (
        "InstanceNormalization", "LayerNormalization", "GroupNormalization", "BatchNormalization", "RMSNormalization", "LpNormalization")),
    *(("ours", op, flat, "", "theirs", "rows that hardly vary: ONNX Runtime's own rows differ") for op in (
        "LayerNormalization", "GroupNormalization", "InstanceNormalization", "MeanVarianceNormalization")),
    *(("ours", op, unbounded, "", "open", "gates without bounds: each step amplifies what rounding made of the last") for op in ("LSTM", "GRU", "RNN")),
    *(("run", op, always, "do not broadcast|differ", "theirs", MISFIT) for op in ("Attention", "Concat", "MatMul", "RotaryEmbedding")),
    *(("run", op, always, "for each feature|features wide", "theirs", MISFIT) for op in ("Imputer", "FeatureVectorizer")),
    ("ours", "Attention", nan, "got nan", "theirs", "keys that a mask takes out: their weight is 0, and times NaN or an infinity that is NaN"),
    *(("ours", op, nan, "nan", "theirs", "weights of 0 times infinities") for op in ("RoiAlign", "Resize", "GridSample", "AveragePool")),
    ("ours", "Resize", between, "", "theirs", "align_corners: the fraction of a length counts, as in ONNX's reference; ONNX Runtime cuts it off"),
    ("ours", "Mod", whole_fmod, "", "theirs", "integers: ONNX Runtime divides in f64, which has not every one of 64 bits"),
    ("ours", "SVMClassifier", nan, "", "theirs", "scores that are NaN: ONNX Runtime's probabilities, votes and labels are those of numbers"),
    ("ours", "Acos", beside("SVMClassifier"), "", "open", "next to 1, where the last bit of a logistic decides"),
    ("ours", "Mod", quotient, "", "open", "a divisor that is rounded, at other sizes than the drawn ones"),
    ("ours", "Mod", beside("Mish"), r"-?0\.0 expected", "open", "a number by itself, where one side's rounding made it 0"),
    ("ours", "Shrink", always, r"\de-\d|0\.00", "open", "sums that cancel, at other sizes than the drawn ones"),
    ("ours", "Equal", always, "(True|False) expected", "open", "a comparison that rounding decides, at other sizes"),
    ("run", "GatherND", always, "batch dimensions of data", "theirs", MISFIT),
    *(("ours", op, beside("Sigmoid"), "", "theirs", "ONNX Runtime's sigmoid is off by 1e-4 of itself far below 0, which a quotient shows") for op in (
        "Pow", "Div", "Reciprocal", "Log", "Sqrt")),
    *(("ours", "Log", beside(op), "got -inf", "theirs", "the imaginary part of the highest frequency is 0; ONNX Runtime has a rounding there")
      for op in ("DFT", "STFT")),
    ("ours", "Softplus", f16, r"inf expected, got \d", "theirs", "f16: ONNX Runtime's exp overflows; log(1 + exp(x)) is x there"),
    ("ours", "Log", f16, "got -inf", "theirs", "f16: ONNX Runtime keeps numbers in f32 between nodes"),
    ("ours", "Log", always, "-inf expected", "theirs", "of what ONNX Runtime's sigmoid or softmax underflows to 0"),
    ("refused", "SplitToSequence", has("keepdims", 0), r"does not (fit|broadcast)| rank \d", "theirs", "keepdims counts only without split, as in the text"),
    *(("ours", op, nan, "nan|inf", "theirs", "sums of infinities and of what overflows hang on their order") for op in (
        "DFT", "STFT", "LogSoftmax", "Softmax", "Det")),
    *(("ours", op, always, "nan|inf", "theirs", "products that overflow hang on their order") for op in ("ReduceProd", "CumProd")),
    ("ours", "Div", always, "1.0 expected, got nan", "open", "a number by itself, where one side's rounding made it 0"),
    ("ours", "Bernoulli", always, "", "theirs", "1 with probability p, as the text says; ONNX's function, which ONNX Runtime runs, has 1 - p"),
    ("ours", "StringSplit", always, "", "theirs", "an empty string with a delimiter is one part, as in Python; ONNX Runtime: none"),
    *(("run", op, always, "dimensions of a product differ", "theirs", "rows as wide as there are coefficients; ONNX Runtime reads others") for op in (
        "LinearRegressor", "LinearClassifier", "SVMRegressor")),
    *(("run", op, always, "for each class|input and target differ", "theirs", "targets or weights that do not fit: ONNX Runtime takes a part")
      for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")),
    ("ours", "Cast", outside, "", "theirs", "what lies outside of the type is not defined"),
    ("ours", "Det", nan, "", "theirs", "products that overflow when squared cancel"),
    ("ours", "DynamicQuantizeLinear", tied_zero, "", "open", "a zero point that rounding decides, at other sizes than the drawn ones"),
    ("ours", "DynamicQuantizeLinear", nan, "", "theirs", "NaN or an infinity makes the scale NaN"),
    ("ours", "Gelu", has("approximate", b"tanh"), r"0\.\d{9,}|\d\.\d{12,}", "theirs", NARROW),
    ("ours", "HardSwish", always, r"\d\.\d{12,}", "theirs", NARROW),
    ("ours", "Pow", whole, "", "theirs", "integers: a power beyond the type is not defined"),
    ("ours", "MaxUnpool", always, "", "theirs", "indices count in the shape without output_shape, as in ONNX's example"),
    ("ours", "QLinearMatMul", empty, "", "theirs", "sums of nothing are the zero point"),
    ("ours", "Resize", nearest, "", "theirs", "a place as far from two elements, or on one: ONNX Runtime's rounding of the formula decides"),
    ("ours", "Resize", whole, "", "open", "integers, linear or cubic: ours is exact and then cut, ONNX Runtime cuts what it has rounded"),
    *(("ours", op, always, "nan|inf", "theirs", UNITS) for op in ("BlackmanWindow", "HannWindow", "HammingWindow")),
    ("ours", "QuantizeLinear", nan, "", "theirs", "NaN gives 0 and not the least number"),
    ("ours", "LRN", running_sum, r"\d\.\d+ expected, got -?\d", "theirs", "ONNX Runtime adds and subtracts squares from channel to channel"),
    ("ours", "LRN", nan, "", "theirs", "an infinity, or what overflows, stays in ONNX Runtime's running sum"),
    ("ours", "MeanVarianceNormalization", always, "nan expected", "theirs", "deviation 0: ONNX's own function adds 1e-9 to it"),
    ("ours", "Reduce", empty, r"expected, got \[", "theirs", ENDS),
    ("run", "Reduce", empty, "index out of range", "theirs", ENDS + ", which places behind it fit"),
    ("ours", "ReduceProd", whole, "", "theirs", "integers: what overflows is not defined"),
    ("ours", "Resize", i8, "", "theirs", "int8 with antialias: ONNX Runtime's results are never below 0"),
    ("ours", "Resize", below(11), "", "theirs", "version 10, scales below 1: ONNX Runtime rounds places up, mcc down"),
    ("run", "Compress", always, "index out of range", "theirs", "a true beyond the end of the axis: an error, as in numpy"),
    ("ours", "MaxPool", same_dilated, "", "theirs", DILATED),
    ("ours", "NhwcMaxPool", same_dilated, "", "theirs", DILATED),
    *(("ours", op, nan, "nan", "theirs", "infinities: activations and products in another order")
      for op in ("FusedConv", "FusedGemm", "FusedMatMul")),
    ("run", "GatherND", always, "elements of index tuples are supported", "open", "tuples of a length known only at run time"),
    ("ours", "AveragePool", same_dilated, "", "theirs", DILATED),
    ("ours", "LpPool", same_dilated, "", "theirs", DILATED),
    ("ours", "ConvTranspose", nan, "got nan", "theirs", "an infinite weight times the zeros of gaps and padding"),
    ("ours", "InstanceNormalization", single, "", "theirs", "one element: the bias, which ONNX Runtime gets by cancellation"),
    ("ours", "ReduceLogSumExp", whole, "", "theirs", "integers: ONNX Runtime cuts each term to an integer"),
    ("ours", "Shrink", whole, r"\d{2,} expected, got 0", "theirs", "below zero as unsigned: mcc saturates, ONNX Runtime wraps; the standard is silent"),
    ("ours", "Normalizer", nan, "nan expected, got -?0", "theirs", "squares that overflow: x / sqrt(inf) is 0; ONNX Runtime has inf / inf"),
    *(("ours", op, nan, "nan|inf", "theirs", "an infinity beside a product that overflows: mcc rounds a multiply-add once, so that product is finite")
      for op in ("MatMul", "Gemm", "Conv")),
    ("ours", "Dropout", below(12), "", "theirs", "the mask outside of training: ones, as version 12 says"),
    ("ours", "Normalizer", whole, "", "theirs", "integers: ONNX Runtime squares and adds in their type, which overflows"),
    ("ours", "Dropout", drawn_mask, r"\b0\.0 expected|got -?0\.0\b", "theirs", "training: what is dropped is drawn, at other sizes too"),
    ("ours", "AveragePool", padding_alone, "0.0 expected, got nan", "theirs", "a mean of nothing is NaN, as in ONNX's reference"),
    ("ours", "ReduceMean", always, "0.0 expected, got nan", "theirs", "a mean of nothing is NaN, as in numpy"),
    ("ours", "GroupNormalization", doubles, r"\d\.\d{12,}", "theirs", "f64: ONNX Runtime's stage one has f32 (stash_type); ours has f64"),
    *(("ours", op, beside(gate), "nan expected", "theirs", "ONNX Runtime's tanh passes 1 by a rounding") for op in ("Acos", "Asin", "Atanh")
      for gate in ("GRU", "LSTM", "RNN", "Tanh")),
    *(("ours", "TopK", beside(op), r"\d+ expected", "open", "equal elements of a window, which rounding orders")
      for op in ("BlackmanWindow", "HannWindow", "HammingWindow")),
    *(("ours", "Unique", beside(op), r"\[\d+\] expected", "theirs", "a window is symmetric, and its elements equal; ONNX Runtime's differ by rounding")
      for op in ("BlackmanWindow", "HannWindow", "HammingWindow")),
    *(("ours", "Mod", beside(op), "", "open", "a number by itself, where one side's rounding made it 0")
      for op in ("BlackmanWindow", "HannWindow", "HammingWindow")),
    *(("ours", op, beside("STFT"), "", "open", "sums that rounding puts on either side of a whole number") for op in ("Floor", "Ceil", "Round")),
    ("run", "AveragePool", valid_ceil, "differ", "theirs", CEIL),
    *(("ours", op, empty, r"expected, got \[", "theirs", ENDS) for op in ("ArgMax", "ArgMin")),
    ("ours", "ConvTranspose", nan, "nan expected", "theirs", "an infinity in a sum of numbers: ONNX Runtime's product has NaN beside it"),
    ("run", "RotaryEmbedding", always, "an odd number of elements|not half as long", "theirs", "other sizes: ONNX has no heads of an odd size"),
    ("run", "RotaryEmbedding", always, "number of elements", "theirs", "other sizes: heads that the caches do not fit; ONNX Runtime takes a part"),
    ("run", "Reshape", computed_zero, "changes the number of elements|dimension is negative|another one has 0 elements", "open",
     "an extent that is computed from sizes and is 0 (-1) stands for itself, so the run stops; ONNX Runtime copies (infers) one"),
    ("ours", "Reshape", computed_zero, r"expected, got \[", "open", "the same, where there are no elements"),
    *(("ours", op, wraps, "", "theirs", "sizes are whole numbers without end in mcc, refused beyond 64 bits; in ONNX Runtime they wrap") for op in (
        "Mod", "Div", "Slice", "Range", "Where")),
    ("run", "SplitToSequence", empty, "split sizes do not fit", "theirs", "no split sizes at all: ONNX Runtime makes pieces of one"),
    ("ours", "SplitToSequence", has("keepdims", 0), "", "theirs", "keepdims counts only without split, as ONNX's text says"),
    *(("run", op, always, "axis -?[01] is out of range for rank 0", "theirs", "a dynamic rank that is 0, which has no axes; ONNX Runtime "
       "refuses the axis only where it knows the rank") for op in ("ArgMax", "ArgMin")),
    ("theirs", "MatMul", beside("Transpose"), "", "theirs", "a transposed matrix and a vector: ONNX Runtime's optimisation drops the Transpose"),
    *(("theirs", op, always, "", "theirs", "ONNX Runtime moves the pair and gives it another type")
      for op in ("QuantizeLinear", "DequantizeLinear")),
    ("theirs", "Div", beside("Mul"), "", "theirs", "integers: ONNX Runtime's optimisation makes (1 / a) * b into b / a"),
]


def known(verdict, model, feeds):
    """The row that explains a verdict on a reduced network, or None."""
    if verdict.kind == "invalid":
        return ("invalid", "", always, "", "theirs", "ONNX Runtime runs each node, but finds the whole network wrong")
    nodes = [n for n in model.graph.node if n.op_type != "Constant"]
    large = len(nodes) > NODES and verdict.kind == "ours"
    for row in KNOWN:
        if large and row[2] is not computed_zero:
            continue
        if row[0] == verdict.kind and re.search(row[3], verdict.text) and any(
                (not row[1] or n.op_type == row[1] or row[1] == "Reduce" and n.op_type.startswith("Reduce")) and row[2](n, model, feeds) for n in nodes):
            return row
    return None

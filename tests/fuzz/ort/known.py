"""Disagreements that were looked at and are no defect of mcc, or are not decided: (kind, operator or "", condition, pattern, whose, why).

A verdict is known when its kind is the row's, the pattern is found in its text, the operator is one of at most NODES nodes of the
reduced network, and the condition holds there. `theirs`: ONNX Runtime is wrong, or the standard says nothing; `open`: not settled.
docs/numerics.md says more of those where the meaning of an operator was decided.
"""
import re

import numpy as np
from onnx import TensorProto, helper, numpy_helper

NODES = 3


def always(node, model, feeds):
    return True


def has(name, value):
    """The node has this attribute."""
    return lambda node, model, feeds: any(a.name == name and helper.get_attribute_value(a) == value for a in node.attribute)


def below(opset):
    return lambda node, model, feeds: model.opset_import[0].version < opset


def tensors(model, feeds):
    constants = [a.t for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"]
    return [*feeds.values(), *(numpy_helper.to_array(t) for t in [*model.graph.initializer, *constants])]


def nan(node, model, feeds):
    """NaN, an infinity, or what overflows when squared comes in."""
    return any(a.dtype.kind == "f" and not np.all(np.abs(a.astype(np.float64)) < 1e18) for a in tensors(model, feeds))


def same_dilated(node, model, feeds):
    a = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return a.get("auto_pad", b"").startswith(b"SAME") and any(d != 1 for d in a.get("dilations", ()))


def whole(node, model, feeds):
    """An operand of integers comes in."""
    return any(a.dtype.kind in "iu" and a.dtype != np.int64 or a.dtype == np.int64 and a.ndim > 1 for a in tensors(model, feeds))


def single(node, model, feeds):
    """Channels of one element come in."""
    return any(a.ndim > 2 and a.size and np.prod(a.shape[2:]) == 1 for a in tensors(model, feeds))


def empty(node, model, feeds):
    return any(a.size == 0 for a in tensors(model, feeds))


def i8(node, model, feeds):
    types = [p.type.tensor_type.elem_type for p in model.graph.input] + [t.data_type for t in model.graph.initializer]
    return TensorProto.INT8 in types and has("antialias", 1)(node, model, feeds)


CEIL = "ceil_mode with auto_pad VALID: the length is that of ONNX's formula"
DILATED = "auto_pad SAME_* with dilations: ONNX Runtime pads as if there were none"
ENDS = "an empty tensor, axes from the end: ONNX Runtime keeps their dims"
KNOWN = [
    ("ours", "AffineGrid", has("align_corners", 1), "", "theirs", "one element: mcc and PyTorch take the middle, ONNX Runtime the end"),
    ("run", "MaxUnpool", always, "index out of range", "theirs", "indices count in the shape without output_shape, as in ONNX's example"),
    ("refused", "MaxUnpool", always, "is outside of", "theirs", "the same, of constants"),
    ("ours", "AveragePool", has("auto_pad", b"VALID"), r"expected, got \[", "theirs", CEIL),
    ("ours", "MaxPool", has("auto_pad", b"VALID"), r"expected, got \[", "theirs", CEIL),
    ("ours", "LpPool", has("auto_pad", b"VALID"), r"expected, got \[", "theirs", CEIL),
    ("refused", "GatherND", always, "address more dims", "open", "tuples of a length that only the run knows"),
    ("refused", "ScatterND", always, "address more dims", "open", "tuples of a length that only the run knows"),
    ("refused", "", always, "a small integer tensor of known length", "open", "a shape of a length that only the run knows"),
    ("refused", "DFT", always, "the last dim must be", "open", "DFT whose last dim only the run knows"),
    ("ours", "Hardmax", nan, "", "theirs", "NaN counts as the largest, as in numpy"),
    ("ours", "ArgMin", nan, "", "theirs", "NaN is the least, as in numpy; ONNX Runtime passes over it unless it comes first"),
    ("ours", "ArgMax", nan, "", "theirs", "NaN is the largest, as in numpy; ONNX Runtime passes over it unless it comes first"),
    ("ours", "GRU", nan, "got nan", "theirs", "ONNX Runtime's gates make a number of NaN"),
    ("ours", "QuantizeLinear", nan, "", "theirs", "NaN gives 0 and not the least number"),
    ("ours", "LRN", nan, "", "theirs", "an infinity, or what overflows, stays in ONNX Runtime's running sum"),
    ("ours", "MeanVarianceNormalization", always, "nan expected", "theirs", "deviation 0: ONNX's own function adds 1e-9 to it"),
    ("ours", "ReduceProd", empty, r"expected, got \[", "theirs", ENDS),
    ("ours", "ReduceSum", empty, r"expected, got \[", "theirs", ENDS),
    ("ours", "Resize", i8, "", "theirs", "int8 with antialias: ONNX Runtime's results are never below 0"),
    ("ours", "Resize", below(11), "", "theirs", "version 10, scales below 1: ONNX Runtime rounds places up, mcc down"),
    ("run", "Compress", always, "index out of range", "theirs", "a true beyond the end of the axis: an error, as in numpy"),
    ("ours", "MaxPool", same_dilated, "", "theirs", DILATED),
    ("ours", "AveragePool", same_dilated, "", "theirs", DILATED),
    ("ours", "LpPool", same_dilated, "", "theirs", DILATED),
    ("ours", "ConvTranspose", nan, "got nan", "theirs", "an infinite weight times the zeros of gaps and padding"),
    ("ours", "InstanceNormalization", single, "", "theirs", "one element: the bias, which ONNX Runtime gets by cancellation"),
    ("ours", "ReduceLogSumExp", whole, "", "theirs", "integers: ONNX Runtime cuts each term to an integer"),
    ("ours", "Dropout", below(12), "", "theirs", "the mask outside of training: ones, as version 12 says"),
    ("ours", "SplitToSequence", has("keepdims", 0), "", "theirs", "keepdims counts only without split, as ONNX's text says"),
]


def known(verdict, model, feeds):
    """The row that explains a verdict on a reduced network, or None."""
    if verdict.kind == "invalid":
        return ("invalid", "", always, "", "theirs", "ONNX Runtime runs each node, but finds the whole network wrong")
    nodes = [n for n in model.graph.node if n.op_type != "Constant"]
    if len(nodes) > NODES and verdict.kind == "ours":
        return None
    for row in KNOWN:
        if row[0] == verdict.kind and re.search(row[3], verdict.text) and any(
                (not row[1] or n.op_type == row[1]) and row[2](n, model, feeds) for n in nodes):
            return row
    return None

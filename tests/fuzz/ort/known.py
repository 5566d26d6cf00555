"""Disagreements that were looked at and are no defect of mcc, or are not decided: (kind, operator or "", pattern, whose, why).

A verdict is known when its kind is the row's, the pattern is found in its text, and the operator is among the nodes of the
reduced network. `theirs`: ONNX Runtime is wrong, or not defined there; `open`: not settled. docs/numerics.md says more of
those where the meaning of an operator was decided.
"""
import re

KNOWN = [
    ("refused", "MaxRoiPool", "no lowering", "open", "MaxRoiPool is not lowered"),
    ("ours", "AffineGrid", "", "theirs", "align_corners over one element: mcc and PyTorch take the middle, ONNX Runtime the end"),
    ("run", "MaxUnpool", "index out of range", "theirs", "MaxUnpool with output_shape: indices count in the shape without it, as in ONNX's example"),
    ("refused", "MaxUnpool", "is outside of", "theirs", "the same, of constants"),
    ("ours", "AveragePool", "expected, got \\[", "theirs", "ceil_mode with auto_pad VALID: the length is that of ONNX's formula"),
    ("ours", "MaxPool", "expected, got \\[", "theirs", "ceil_mode with auto_pad VALID: the length is that of ONNX's formula"),
    ("ours", "LpPool", "expected, got \\[", "theirs", "ceil_mode with auto_pad VALID: the length is that of ONNX's formula"),
    ("refused", "GatherND", "address more dims", "open", "GatherND whose tuples have a length that only the run knows"),
    ("refused", "", "a small integer tensor of known length", "open", "a shape of a length that only the run knows"),
    ("ours", "Hardmax", "", "theirs", "NaN counts as the largest, as in numpy"),
    ("ours", "GRU", "got nan", "theirs", "ONNX Runtime's gates make a number of NaN"),
    ("ours", "QuantizeLinear", "", "theirs", "NaN gives 0 and not the least number"),
    ("ours", "MeanVarianceNormalization", "nan expected", "theirs", "deviation 0: ONNX's own function adds 1e-9 to it"),
    ("refused", "ScatterND", "address more dims", "open", "ScatterND whose tuples have a length that only the run knows"),
    ("ours", "Resize", "", "theirs", "int8 with antialias: ONNX Runtime's results are never below 0"),
    ("ours", "Dropout", "", "theirs", "the mask of versions 7 and 10 outside of training: ones, as version 12 says"),
    ("ours", "SplitToSequence", "", "theirs", "keepdims counts only without split, as ONNX's text says"),
    ("ours", "LRN", "inf", "theirs", "an infinity stays in ONNX Runtime's running sum"),
    ("invalid", "", "", "theirs", "ONNX Runtime runs each node, but finds the whole network wrong"),
]


def known(verdict, ops):
    """The row that explains a verdict, or None."""
    return next((row for row in KNOWN if row[0] == verdict.kind and (not row[1] or row[1] in ops) and re.search(row[2], verdict.text)),
                None)

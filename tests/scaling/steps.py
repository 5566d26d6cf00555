"""Chains of steps that are more than one node of one operand: what CHAINS of constructs.py does not say in a row.

A row: the nodes of a step as "Op inputs > outputs", where v is what the step begins with, w what it ends with and t, u are its own; then
the element type and dims of v, constants, and attributes by operator. All together every core operator of ir/ops/ops.def is in some chain.
"""
from generate import BOOL, F32, I64, STRING, floats, longs, node, tensor, value

MATRIX = [8, 8]


def number(name, *xs, dims=None):
    return tensor(name, [len(xs)] if dims is None else dims, longs(*xs), I64)


INDICES = number("at", *[7, 6, 5, 4, 3, 2, 1, 0] * 8, dims=[8, 8])
CAST = {"Cast": {"to": F32}}
STEPS = {
    "not": ("Not v > w", BOOL, MATRIX), "and": ("And v c > w", BOOL, MATRIX, [tensor("c", [8, 8], bytes([1, 0] * 32), BOOL)]),
    "xor": ("Xor v v > w", BOOL, MATRIX), "or": ("Or v v > w", BOOL, MATRIX),
    "isnan": ("IsNaN v > t; Cast t > w", F32, MATRIX, [], CAST), "isinf": ("IsInf v > t; Cast t > w", F32, MATRIX, [], CAST),
    "less": ("Less v x > t; Where t v x > w", F32, MATRIX), "equal": ("Equal v x > t; Cast t > w", F32, MATRIX, [], CAST),
    "lessorequal": ("LessOrEqual v x > t; Cast t > w", F32, MATRIX, [], CAST),
    "mod": ("Mod v k > w", I64, MATRIX, [number("k", 7)]), "mod-float": ("Mod v v > w", F32, MATRIX, [], {"Mod": {"fmod": 1}}),
    "div-integer": ("Div v k > w", I64, MATRIX, [number("k", 3)]), "add-integer": ("Add v v > w", I64, MATRIX),
    "shift-left": ("BitShift v k > w", 13, MATRIX, [tensor("k", [1], longs(1), 13)], {"BitShift": {"direction": "LEFT"}}),
    "shift-right": ("BitShift v k > w", 13, MATRIX, [tensor("k", [1], longs(1), 13)], {"BitShift": {"direction": "RIGHT"}}),
    "convert": ("Cast v > t; Neg t > u; CastLike u x > w", F32, MATRIX, [], {"Cast": {"to": I64}}),
    "sum-row": ("ReduceSum v axis > t; Add v t > w", F32, MATRIX, [number("axis", 1)]),
    "max-row": ("ReduceMax v > t; Sub v t > w", F32, MATRIX, [], {"ReduceMax": {"axes": [1]}}),
    "argmax": ("ArgMax v > t; Cast t > u; Add v u > w", F32, MATRIX, [], {"ArgMax": {"axis": 1}, **CAST}),
    "argpool": ("MaxPool v > w t; Cast t > u; Add w u > z", F32, [1, 2, 6, 6], [],
                {"MaxPool": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, **CAST}),
    "gather-elements": ("GatherElements v at > w", F32, MATRIX, [INDICES], {"GatherElements": {"axis": 1}}),
    "gather-nd": ("GatherND v at > w", F32, MATRIX, [number("at", *range(8), dims=[8, 1])]),
    "gather-computed": ("Cast v > t; Gather x t > w", F32, [8], [], {"Cast": {"to": I64}}),
    "scatter-nd": ("ScatterND v at x > w", F32, MATRIX, [number("at", *range(8), dims=[8, 1])]),
    "iota": ("Shape v > s; Gather s zero > n; Range zero n one > r; Cast r > u; Add v u > w", F32, ["s"],
             [number("zero", 0, dims=[]), number("one", 1, dims=[])], CAST),
    "expand": ("Gather v zero > t; Expand t all > w", F32, MATRIX, [number("zero", 0, dims=[1]), number("all", 8, 8)]),
    "reshape": ("Reshape v four > t; Transpose t > u; Reshape u back > w", F32, MATRIX, [number("four", 2, 4, 8), number("back", 8, 8)]),
    "tile": ("Tile v two > t; Slice t zero eight > w", F32, MATRIX, [number("two", 2, 1), number("zero", 0), number("eight", 8)]),
    "concat-slice": ("Concat v x > t; Slice t four twelve > w", F32, MATRIX, [number("four", 4), number("twelve", 12)], {"Concat": {"axis": 0}}),
    "pad-reflect": ("Pad v pads > t; Slice t two ten > w", F32, MATRIX, [number("pads", 2, 0, 0, 0), number("two", 2), number("ten", 10)],
                    {"Pad": {"mode": "reflect"}}),
    "topk": ("TopK v k > w t", F32, MATRIX, [number("k", 8)]),
    "nonzero": ("NonZero v > t; Cast t > w", F32, [2, "s"], [], CAST), "unique": ("Unique v > w", F32, ["s"]),
    "compress": ("Compress v c > w", F32, ["s"], [tensor("c", [3], bytes([1, 1, 1]), BOOL)], {"Compress": {"axis": 0}}),
    "det": ("Det v > t; Add v t > w", F32, MATRIX), "random": ("RandomNormalLike v > t; Add v t > w", F32, MATRIX),
    "dft": ("DFT v > w", F32, [1, 8, 2], [], {"DFT": {"axis": 1}}),
    "string": ("StringNormalizer v > w", STRING, [1], [], {"StringNormalizer": {"case_change_action": "LOWER"}}),
    "sequence": ("SequenceConstruct v v > t; SequenceAt t one > w", F32, [2], [number("one", 1, dims=[])]),
    "sequence-insert": ("SequenceConstruct v > t; SequenceInsert t v > u; SequenceErase u zero > q; SequenceAt q zero > w", F32, [2],
                        [number("zero", 0, dims=[])]),
    "sequence-length": ("SequenceConstruct v > t; SequenceLength t > u; Cast u > n; Add v n > w", F32, [2], [], CAST),
    "split-sequence": ("SplitToSequence v > t; ConcatFromSequence t > w", F32, MATRIX, [], {"ConcatFromSequence": {"axis": 0}}),
    "optional": ("Optional v > t; OptionalGetElement t > w", F32, [2]), "optional-has": ("Optional v > t; OptionalHasElement t > u; Cast u > n; Add v n > w",
                                                                                  F32, [2], [], CAST),
    "dropout": ("Dropout v > w", F32, MATRIX), "elu": ("Elu v > w", F32, MATRIX), "lrn": ("LRN v > w", F32, [1, 8, 6, 6], [], {"LRN": {"size": 3}}),
    "conv-transpose": ("ConvTranspose v k > w", F32, [1, 4, 6, 6], [tensor("k", [4, 4, 3, 3], floats(*[0.1] * 144))],
                       {"ConvTranspose": {"pads": [1, 1, 1, 1]}}),
    "gru": ("GRU v k r > t; Squeeze t axis > w", F32, [4, 1, 2], [tensor("k", [1, 6, 2], floats(*[0.1] * 12)), tensor("r", [1, 6, 2], floats(*[0.1] * 12)),
                                                                 number("axis", 1)], {"GRU": {"hidden_size": 2}}),
    "nms": ("NonMaxSuppression v scores most > t; Cast t > u; ReduceMax u > n; Add v n > w", F32, [1, 6, 4],
            [tensor("scores", [1, 1, 6], floats(*range(6))), number("most", 3)], CAST),
    "quantized": ("QuantizeLinear v s > q; DequantizeLinear q s > t; MatMul t k > w", F32, MATRIX,
                  [tensor("s", [], floats(0.1)), tensor("k", [8, 8], floats(*[0.125] * 64))]),
    **{name.lower(): (f"{name} v > w", F32, MATRIX) for name in (
        "Neg Abs Sign Floor Ceil Round Sqrt Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Reciprocal HardSwish Selu").split()},
}


def chain(n, row):
    """n steps of a row, as the parts of a model."""
    text, elem, dims, consts, attrs = (*row, *([], {})[len(row) - 3:])
    last = "z" if " > z" in text else "w"
    known, at, nodes = {"x", *(c["name"] for c in consts)}, "x", []
    for i in range(n):
        name = {"v": at, last: "y" if i == n - 1 else f"{last}{i}"}
        for one in text.split(";"):
            op, _, words = one.strip().partition(" ")
            read, _, made = words.partition(" > ")
            read, made = (" ".join(name.get(k, k if k in known else f"{k}{i}") for k in part.split()) for part in (read, made))
            nodes.append(node(op, read, made, f"{op}{i}", **attrs.get(op, {})))
        at = name[last]
    return nodes, [value("x", elem, dims)], [value("y", elem, None)], list(consts)

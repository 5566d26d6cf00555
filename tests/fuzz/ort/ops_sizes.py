"""Computations on sizes: Shape, arithmetic, and the operators that take sizes, as exporters write them and as nobody does.

dim() is an extent of a value, disguised() the same number computed another way, number() any number of sizes and constants. Sizes
are int64 scalars or vectors of one element. A symbolic extent (network.py) then has its own value in each run.
"""
import numpy as np
from onnx import numpy_helper

from fuzz.ort.draw import F32, I64, Refused, generator
from fuzz.ort.elements import ELEM, F64, I32

PLAUSIBLE = (1, 2, 2, 3, 4, 8, 16)
HOSTILE = (0, -1, -2, -7, 2 ** 31, 2 ** 31 - 1, -2 ** 31, 2 ** 32 + 1, 2 ** 40, 2 ** 62, -2 ** 62, 2 ** 63 - 1)


def opened(d, lo, hi, types=(F32,), least=1, limit=1000):
    """A value of sizes that the run may choose: no constant."""
    fits = [v for v in d.pool if not isinstance(v.data, list) and v.dtype in types and lo <= v.rank <= hi and v.data.size <= limit
            and all(n >= least for n in v.shape)]
    if fits and d.chance(55):
        return d.pick(fits)
    return d.leaf(d.pick(types), d.shape(lo, hi, least, limit), constant=False)


# ---- sizes -------------------------------------------------------------------------------------------------------------------

def axes_node(d, op, v, axes):
    if d.version(op) >= 13:
        return d.node(op, [v, d.const(axes, constant=True)])[0]
    return d.node(op, [v], axes=axes)[0]


def vector(d, v):
    """A size as a vector of one."""
    return v if v.rank else axes_node(d, "Unsqueeze", v, [0])


def scalar(d, v):
    if v.rank == 0:
        return v
    return axes_node(d, "Squeeze", v, [0]) if d.chance(60) else d.node("Gather", [v, d.const(0, constant=True)], axis=0)[0]


def fixed(d, n, rank=0):
    return d.const([n] if rank else n, constant=True)


def shape_of(d, x):
    return d.node("Shape", [x])[0]


def dim(d, x, i):
    """Extent i of x."""
    if x.rank == 1 and d.chance(10):
        return d.node("Size", [x])[0]
    if d.version("Shape") >= 15 and d.chance(30):
        return d.node("Shape", [x], start=i, **({} if i == x.rank - 1 and d.chance(30) else {"end": i + 1}))[0]
    shape, at = shape_of(d, x), i - x.rank if d.version("Gather") >= 11 and d.chance(20) else i
    if d.chance(30) and d.version("Slice") >= 10:
        return d.node("Slice", [shape, d.const([i], constant=True), d.const([i + 1], constant=True), d.const([0], constant=True)])[0]
    return d.node("Gather", [shape, fixed(d, at, d.chance(40))], axis=0)[0]


def any_dim(d):
    x = opened(d, 1, 4)
    return dim(d, x, d.int(0, x.rank - 1))


def binary(d, op, a, b):
    return d.node(op, [a, b])[0]


def same_number(d, v, kind):
    """The number v, computed another way; right for every extent, except for 0 where another extent is divided by."""
    k = fixed(d, d.pick(PLAUSIBLE + (6, 7, 100)), d.chance(30))
    if kind == "scale":                               # (b * s) // b
        if d.chance(50):
            k, d.divides = any_dim(d), True
        return binary(d, "Div", d.node("Mul", d.shuffled([v, k]))[0], k)
    if kind == "shift":
        return binary(d, "Sub", d.node("Add", d.shuffled([v, k]))[0], k)
    if kind == "where":                               # the exporters' Expand
        return d.node("Where", [binary(d, "Equal", v, fixed(d, -1)), fixed(d, 1), v])[0]
    if kind == "less":
        return d.node("Where", [binary(d, "Less", v, fixed(d, d.pick((1, 3, 10)))), v, d.node("Identity", [v])[0]])[0]
    if kind == "bound":
        return binary(d, *d.pick((("Max", v, fixed(d, 0)), ("Min", v, fixed(d, 2 ** 31 - 1)), ("Mod", v, fixed(d, 2 ** 31)))))
    if kind == "cast":
        there = d.node("Cast", [v], to=ELEM[d.pick((I32, F64, F32))])[0]
        return d.node("Cast", [there], to=ELEM[I64])[0]
    if kind == "prod":
        return d.node("ReduceProd", [d.node("Concat", [vector(d, v), fixed(d, 1, 1)], axis=0)[0]], keepdims=d.int(0, 1))[0]
    if kind == "neg":
        return d.node("Neg", [d.node("Neg", [v])[0]])[0]
    if kind == "parts":                               # s // k * k + s % k
        return binary(d, "Add", binary(d, "Mul", binary(d, "Div", v, k), k), binary(d, "Mod", v, k))
    return vector(d, scalar(d, v))


def disguised(d, v):
    for _ in range(d.pick((0, 0, 1, 1, 2, 3))):
        v = same_number(d, v, d.pick(("scale", "scale", "shift", "where", "less", "bound", "cast", "prod", "neg", "parts", "rank")))
    return v


def divisor(d):
    """What nothing that the run chooses makes zero, except for an extent of 0."""
    kind = d.pick(("constant", "constant", "dim", "max"))
    if kind == "constant":
        return fixed(d, d.pick([k for k in PLAUSIBLE * (1 if d.hostile else 4) + HOSTILE if k not in (0, -1)]))
    d.divides = True
    return any_dim(d) if kind == "dim" else binary(d, "Max", number(d, 1), fixed(d, d.int(1, 3)))


def number(d, depth=3):
    """Any number that sizes and constants give."""
    if depth <= 0 or d.chance(20):
        return any_dim(d) if d.chance(65) else fixed(d, d.pick(HOSTILE if d.hostile and d.chance(40) else PLAUSIBLE), d.chance(30))
    op = d.pick(("Add", "Sub", "Mul", "Mul", "Div", "Div", "Mod", "Min", "Max", "Where", "disguise", "Prod", "Abs"))
    a = number(d, depth - 1)
    if op in ("Div", "Mod"):
        return binary(d, op, a, divisor(d))
    if op == "Where":
        c = binary(d, d.pick(("Equal", "Less", "Greater")), number(d, depth - 2), number(d, depth - 2))
        return d.node("Where", [c, a, number(d, depth - 1)])[0]
    if op == "disguise":
        return disguised(d, a)
    if op == "Abs":
        return d.node(d.pick(("Abs", "Neg", "Sign")), [a])[0]
    if op == "Prod":
        x = opened(d, 2, 4)
        return d.node(d.pick(("ReduceProd", "ReduceMax", "ReduceMin")), [shape_of(d, x)], keepdims=d.int(0, 1))[0]
    return binary(d, op, a, number(d, depth - 1))


def below(d, k, v=None):
    """A number in 0 .. k - 1 of any number."""
    return binary(d, "Mod", v or number(d), fixed(d, k))


def small(d, lo, hi):
    """A number in lo .. hi."""
    if d.chance(50):
        return binary(d, "Add", below(d, hi - lo + 1), fixed(d, lo))
    return binary(d, "Min", binary(d, "Max", number(d), fixed(d, lo)), fixed(d, hi))


def sizes(d, entries):
    """A vector of sizes and ints."""
    parts, run = [], []
    for e in [*entries, None]:
        if isinstance(e, int):
            run.append(e)
            continue
        if run:
            parts.append(d.const(run, constant=True))
            run = []
        parts += [vector(d, e)] if e else []
    return parts[0] if len(parts) == 1 else d.node("Concat", parts, axis=0)[0]


# ---- what takes sizes ----------------------------------------------------------------------------------------------------------

def group_size(d, x, lo, hi):
    """The product of the extents lo .. hi - 1."""
    if hi - lo > 1 and d.chance(30) and d.version("Slice") >= 10:
        part = d.node("Slice", [shape_of(d, x), d.const([lo], constant=True), d.const([hi], constant=True)])[0]
        return d.node("ReduceProd", [part], keepdims=d.int(0, 1))[0]
    v = dim(d, x, lo)
    for i in range(lo + 1, hi):
        v = binary(d, "Mul", v, dim(d, x, i))
    return v


@generator("ReshapeSizes", weight=3)
def reshape(d, op):
    """Axes are merged and split; each extent is a computed size, 0 (as it is), -1 or a constant."""
    x = opened(d, 1, 4)
    cuts = sorted({0, x.rank, *(d.int(0, x.rank) for _ in range(d.int(0, 3)))})
    entries, free = [], d.chance(60)
    for lo, hi in zip(cuts, cuts[1:]):
        n = int(np.prod(x.shape[lo:hi]))
        if hi - lo == 1 and lo == len(entries) and d.chance(30):
            entries.append(0)
        elif free and d.chance(40):
            entries.append(-1)
            free = False
        else:
            whole = disguised(d, group_size(d, x, lo, hi))
            factors = [k for k in (2, 3, 4, 8) if n % k == 0]
            if factors and d.chance(40):
                k = d.pick(factors)
                rest = -1 if free and d.chance(40) else binary(d, "Div", whole, fixed(d, k))
                free = free and rest != -1
                entries += d.shuffled([k, rest])
            else:
                entries.append(whole)
    d.node("Reshape", [x, sizes(d, entries)])


@generator("ExpandSizes", weight=2)
def expand(d, op):
    """To sizes of another value; also through Where(shape == -1, 1, shape), as exporters do."""
    x, y = opened(d, 0, 2, limit=60), opened(d, 1, 2, limit=60)
    entries = [disguised(d, dim(d, y, i)) for i in range(y.rank)] + [d.pick((1, disguised(d, dim(d, x, i)))) for i in range(x.rank)]
    to = sizes(d, entries)
    if d.chance(40):
        ones = d.node("ConstantOfShape", [shape_of(d, to)], value=one(np.int64))[0]
        to = d.node("Where", [binary(d, "Equal", to, binary(d, "Mul", ones, fixed(d, -1))), ones, to])[0]
    d.node("Expand", [x, to])


def one(dtype):
    return numpy_helper.from_array(np.ones(1, dtype))


@generator("SliceSizes", weight=3)
def slice_(d, op):
    """What starts and ends at any number; at a part of the extent."""
    d.schema("Slice")
    x = opened(d, 1, 4)
    axes = d.axes(x.rank, 1)
    starts, ends = [], []
    for a in axes:
        n = dim(d, x, a % x.rank)
        half = binary(d, "Div", n, fixed(d, d.pick((2, 2, 3, 4))))
        choice = d.pick(("head", "tail", "any", "any"))
        starts.append(half if choice == "tail" else 0 if choice == "head" else number(d))
        ends.append(half if choice == "head" else disguised(d, n) if choice == "tail" else number(d))
    step = d.chance(20)
    steps = sizes(d, [d.pick((small(d, 1, 3), -1, 2)) for _ in axes]) if step else None
    d.node("Slice", [x, sizes(d, starts), sizes(d, ends), d.const(axes, constant=True), steps])


@generator("TileSizes")
def tile(d, op):
    x = opened(d, 1, 3, limit=200)
    d.node("Tile", [x, sizes(d, [d.pick((1, small(d, 1, 3))) for _ in range(x.rank)])])


@generator("ConstantOfShapeSizes")
def constant_of_shape(d, op):
    entries = [disguised(d, any_dim(d)) if d.chance(50) else small(d, 1, 5) for _ in range(d.int(1, 3))]
    made = d.node("ConstantOfShape", [sizes(d, entries)], value=one(d.pick((np.float32, np.int64))))[0]
    if made.dtype == F32 and d.chance(50):
        d.node("Add", [made, d.leaf(F32, [], constant=False)])


@generator("PadSizes")
def pad(d, op):
    """To a multiple, as windows of attention are, or by small numbers."""
    if d.version("Pad") < 11:
        raise Refused("an attribute")
    x = opened(d, 1, 4)
    ends = []
    for i in range(x.rank):
        n, k = dim(d, x, i), fixed(d, d.pick((2, 4, 7, 8)))
        ends.append(0 if d.chance(50) else binary(d, "Mod", binary(d, "Sub", k, binary(d, "Mod", n, k)), k) if d.chance(60) else small(d, 0, 3))
    pads = [d.pick((0, 0, 1)) for _ in ends] + ends
    d.node("Pad", [x, sizes(d, pads)], **({} if d.chance(70) else {"mode": "edge"}))


@generator("ResizeSizes")
def resize(d, op):
    if d.version("Resize") < 13:
        raise Refused("an operand")
    x = d.leaf(F32, [d.int(1, 2), d.int(1, 3), d.int(2, 7), d.int(2, 7)], constant=False)
    new = lambda i: binary(d, *d.pick((("Mul", dim(d, x, i), fixed(d, 2)), ("Add", binary(d, "Div", dim(d, x, i), fixed(d, 2)), fixed(d, 1)),
                                       ("Max", disguised(d, any_dim(d)), fixed(d, 1)))))
    to = sizes(d, [disguised(d, dim(d, x, 0)), d.pick((x.shape[1], dim(d, x, 1))), new(2), new(3)])
    mode = d.pick(("nearest", "linear"))
    d.node("Resize", [x, None, None, to], mode=mode, coordinate_transformation_mode=d.pick(("half_pixel", "asymmetric")),
           **({"nearest_mode": "floor"} if mode == "nearest" else {}))


@generator("RangeSizes", weight=2)
def range_(d, op):
    """Positions, and masks of them."""
    d.schema("Range")
    n = scalar(d, disguised(d, any_dim(d)) if d.chance(60) else small(d, 1, 12))
    r = d.node("Range", [fixed(d, 0), n, fixed(d, 1)])[0] if d.chance(60) else d.node(
        "Range", [scalar(d, small(d, -3, 2)), binary(d, "Add", n, fixed(d, 3)), fixed(d, d.pick((1, 2, 3)))])[0]
    kind = d.pick(("plain", "causal", "mod", "index"))
    if kind == "causal":
        rows = axes_node(d, "Unsqueeze", r, [1])
        mask = binary(d, d.pick(("Less", "Equal", "Greater")), rows, r)
        d.node("Where", [mask, d.const(0, np.float32, True), d.const(-4, np.float32, True)])
    elif kind == "mod":
        k = binary(d, "Max", scalar(d, number(d, 1)), fixed(d, 1))
        d.divides = True
        d.node(d.pick(("Div", "Mod")), [r, k])
    elif kind == "index":
        x = opened(d, 1, 3)
        axis = d.int(0, x.rank - 1)
        limit = dim(d, x, axis)
        d.divides = True
        d.node("Gather", [x, binary(d, "Mod", r, limit)], axis=axis)


@generator("GatherSizes")
def gather(d, op):
    """The last one of an axis, or any."""
    x = opened(d, 1, 4)
    axis = d.int(0, x.rank - 1)
    n = dim(d, x, axis)
    if d.chance(50):
        at = binary(d, "Sub", disguised(d, n), fixed(d, 1))
    else:
        at, d.divides = binary(d, "Mod", number(d), n), True
    d.node("Gather", [x, at], axis=axis)


@generator("SplitSizes")
def split(d, op):
    if d.version("Split") < 13:
        raise Refused("an attribute")
    x = opened(d, 1, 4, least=2)
    axis = d.int(0, x.rank - 1)
    n = dim(d, x, axis)
    first = binary(d, "Div", n, fixed(d, d.pick((2, 3)))) if d.chance(70) else small(d, 1, 2)
    d.node("Split", [x, sizes(d, d.shuffled([first, binary(d, "Sub", disguised(d, n), first)]))], 2, axis=axis)


@generator("TopKSizes")
def top_k(d, op):
    if d.version("TopK") < 11:
        raise Refused("an attribute")
    x = opened(d, 1, 3)
    axis = d.int(0, x.rank - 1)
    k = binary(d, "Min", dim(d, x, axis), fixed(d, d.int(1, 4)))
    d.node("TopK", [x, vector(d, k)], 2, axis=axis)


@generator("ConvSizes", weight=2)
def conv(d, op):
    """A convolution, and its sizes by integer division as exporters write them: (h + 2 p - k) / s + 1."""
    n, c, h, w = d.int(1, 3), d.int(1, 3), d.int(3, 9), d.int(3, 9)
    x = d.leaf(F32, [n, c, h, w], constant=False)
    k, s, p, m = d.int(1, 3), d.int(1, 3), d.int(0, 1), d.int(1, 4)
    y = d.node("Conv", [x, d.leaf(F32, [m, c, k, k], constant=True)], strides=[s, s], pads=[p] * 4, kernel_shape=[k, k])[0]

    def out(i):
        v = binary(d, "Add", dim(d, x, i), fixed(d, 2 * p - k))
        if d.chance(30):
            v = binary(d, "Sub", binary(d, "Add", dim(d, x, i), fixed(d, 2 * p)), fixed(d, k))
        return binary(d, "Add", binary(d, "Div", v, fixed(d, s)), fixed(d, 1))
    oh, ow = out(2), out(3)
    b = disguised(d, dim(d, x, 0))
    to = d.pick(([b, m, binary(d, "Mul", oh, ow)], [b, m, oh, ow], [b, -1, oh, ow], [b, m, -1], [binary(d, "Mul", b, oh), m, ow]))
    z = d.node("Reshape", [y, sizes(d, to)])[0] if d.chance(80) else y
    if d.chance(40):
        d.node("Softmax", [z], axis=z.rank - 1)
    elif d.chance(40):
        d.node("Add", [z, d.node("ConstantOfShape", [shape_of(d, z)], value=one(np.float32))[0]])


@generator("AttentionSizes", weight=3)
def attention(d, op):
    """[b, s, h * e] to heads and back; extents are computed, -1 or 0."""
    b, s, h, e = d.int(1, 3), d.int(2, 7), d.int(1, 4), d.int(1, 4)
    x = d.leaf(F32, [b, s, h * e], constant=False)
    vb, vs = disguised(d, dim(d, x, 0)), disguised(d, dim(d, x, 1))
    heads = binary(d, "Div", dim(d, x, 2), fixed(d, e)) if d.chance(40) else h
    split_ = lambda v: d.node("Transpose", [d.node("Reshape", [v, sizes(d, d.pick((
        [vb, vs, heads, e], [vb, -1, heads, e], [0, 0, h, e], [vb, vs, h, -1])))])[0]], perm=[0, 2, 1, 3])[0]
    q = split_(x)
    k = split_(x if d.chance(50) else d.node("MatMul", [x, d.leaf(F32, [h * e, h * e], constant=True)])[0])
    scores = d.node("MatMul", [q, d.node("Transpose", [k], perm=[0, 1, 3, 2])[0]])[0]
    if d.chance(40):
        root = d.node("Sqrt", [d.node("Cast", [scalar(d, dim(d, k, 3))], to=ELEM[F32])[0]])[0]
        scores = binary(d, "Div", scores, root)
    if d.chance(50) and d.opset >= 11:                  # causal
        r = d.node("Range", [fixed(d, 0), scalar(d, vs), fixed(d, 1)])[0]
        mask = binary(d, "Less", r, axes_node(d, "Unsqueeze", r, [1]))
        if d.chance(40):
            mask = d.node("Expand", [mask, sizes(d, [vb, 1, vs, disguised(d, vs)])])[0]
        scores = d.node("Where", [mask, scores, d.const(-1e4, np.float32, True)])[0]
    y = d.node("Transpose", [d.node("MatMul", [d.node("Softmax", [scores], axis=3)[0], k])[0]], perm=[0, 2, 1, 3])[0]
    d.node("Reshape", [y, sizes(d, d.pick(([vb, vs, h * e], [vb, vs, -1], [0, 0, -1], [binary(d, "Mul", vb, vs), h * e], [vb, -1, h * e])))])


@generator("NumberSizes", weight=2)
def plain(d, op):
    """A number as a result, or a factor."""
    v = number(d, 4)
    if d.chance(30):
        near = binary(d, "Min", binary(d, "Max", v, fixed(d, -100)), fixed(d, 100))
        d.node("Mul", [opened(d, 1, 3), d.node("Cast", [near], to=ELEM[F32])[0]])

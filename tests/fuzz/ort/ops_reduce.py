"""Reductions, and what picks or counts along an axis."""
import numpy as np

from fuzz.ort.draw import Refused, generator
from fuzz.ort.elements import I32, I64, is_float

REDUCE = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
          "ReduceSumSquare")


def fits(op, a):
    """Whether no sum or product of integers can overflow: what comes of that is not defined."""
    a = np.abs(a.astype(np.float64))
    most = np.prod(np.maximum(a, 1)) if op == "ReduceProd" else np.sum(a * a) if op == "ReduceSumSquare" else np.sum(a)
    return op in ("ReduceMax", "ReduceMin") or most < 2 ** 24


@generator(*REDUCE)
def reduce(d, op):
    x = d.value(d.types(op), 0, 5, 0)
    if op == "ReduceLogSum" or op == "ReduceLogSumExp" and not is_float(x.dtype):
        x = d.leaf(x.dtype, x.shape, *((0.1, 3) if is_float(x.dtype) else (1, 5)))
    if 0 in x.shape and op not in ("ReduceSum", "ReduceProd"):
        raise Refused("not defined")
    if not is_float(x.dtype) and not fits(op, x.data):
        raise Refused("an overflow")
    axes = None if d.chance(20) else d.axes(x.rank, 0 if d.chance(10) else 1)
    as_input = "axes" not in d.schema(op).attributes
    if not as_input and axes and d.version(op) < 11:
        axes = [a % x.rank for a in axes]
    given = d.attributes(op, keepdims=d.pick((None, 0, 1)), noop_with_empty_axes=d.pick((None, None, 0, 1)))
    if as_input:
        d.node(op, [x, None if axes is None else d.const(axes)], **given)
    else:
        d.node(op, [x], **given, **({"axes": axes} if axes else {}))


@generator("ArgMax", "ArgMin")
def arg(d, op):
    x = d.value(d.types(op), 1, 4, 1)
    axis = d.axis(x.rank) if d.version(op) >= 11 else d.int(0, x.rank - 1)
    d.node(op, [x], **d.attributes(op, axis=d.pick((None, axis, axis)), keepdims=d.pick((None, 0, 1)),
                                   select_last_index=d.pick((None, None, 0, 1))))


@generator("TopK")
def topk(d, op):
    x = d.value(d.types(op), 1, 4, 1)
    axis = d.axis(x.rank) if d.version(op) >= 11 else d.int(0, x.rank - 1)
    k = d.int(1, x.shape[axis])
    if d.version(op) < 10:
        d.node(op, [x], 2, axis=axis, k=k)
    else:
        d.node(op, [x, d.const([k])], d.pick(([True, True], [True], [False, True])),
               **d.attributes(op, axis=axis, largest=d.pick((None, 0, 1)), sorted=d.pick((None, 1))))


@generator("CumSum", "CumProd")
def cumulate(d, op):
    x = d.value(d.types(op), 1, 4, 0)
    axis = d.const(d.axis(x.rank), d.pick((np.int64, np.int32)))
    d.node(op, [x, axis], **{k: d.int(0, 1) for k in d.some(("exclusive", "reverse"))})


@generator("NonZero")
def nonzero(d, op):
    d.node(op, [d.value(d.types(op), 0, 3, 1)])


@generator("Unique")
def unique(d, op):
    x = d.value(d.types(op), 1, 3, 1)
    axis = {"axis": d.axis(x.rank)} if d.chance(50) else {}
    d.node(op, [x], d.pick(([True], [True] * 4, [True, False, True], [True, True], [True, False, False, True])), **axis,
           **d.attributes(op, sorted=d.pick((None, 0, 1))))


@generator("Compress")
def compress(d, op):
    x = d.value(d.types(op), 1, 4, 1)
    axis = d.axis(x.rank) if d.chance(70) else None
    n = x.data.size if axis is None else x.shape[axis]
    c = d.leaf(np.dtype(np.bool_), [d.int(1, n)])
    d.node(op, [x, c], **({} if axis is None else {"axis": axis}))


@generator("OneHot")
def one_hot(d, op):
    depth = d.int(1, 9)
    index = d.leaf(d.dtype([I64, I32]), d.shape(0, 3), -depth if d.version(op) >= 11 else 0, depth - 1)
    t = d.dtype(d.types(op, "T3"))
    values = d.leaf(t, [2])
    axis = d.int(-index.rank - 1, index.rank)
    d.node(op, [index, d.const(d.pick((depth, [depth])), d.pick((np.int64, np.int32, np.float32))), values], **({"axis": axis} if d.chance(70) else {}))


@generator("MaxPool", "AveragePool", "LpPool", weight=2)
def pool(d, op):
    t = d.dtype(d.types(op))
    n = d.int(1, 3)
    x = d.value([t], n + 2, n + 2, 1, limit=3000)
    kernel = [d.int(1, min(4, e + 1)) for e in x.shape[2:]]
    given = {"kernel_shape": kernel}
    if d.chance(60):
        given["strides"] = [d.int(1, 3) for _ in kernel]
    dilated = d.attributes(op, dilations=[d.int(1, 2) for _ in kernel] if d.chance(30) else None)
    span = [(k - 1) * s + 1 for k, s in zip(kernel, dilated.get("dilations", [1] * n))]
    if d.chance(25):
        given["auto_pad"] = d.pick(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    elif d.chance(60):
        given["pads"] = [d.int(0, k - 1) for k in kernel] + [d.int(0, k - 1) for k in kernel]
    pads = given.get("pads", [0] * 2 * n)
    if any(e + pads[i] + pads[i + n] < s for i, (e, s) in enumerate(zip(x.shape[2:], span))):
        raise Refused("a window larger than what it slides over")
    given |= dilated | d.attributes(op, ceil_mode=d.pick((None, 0, 1)))
    if op == "AveragePool":
        given |= d.attributes(op, count_include_pad=d.pick((None, 0, 1)))
    if op == "LpPool":
        given |= d.attributes(op, p=d.pick((None, 1, 2, 3)))
    if op == "MaxPool" and d.chance(25):
        d.node(op, [x], 2, **given, **d.attributes(op, storage_order=d.pick((None, None, 0, 1))))
    else:
        d.node(op, [x], **given)


@generator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(d, op):
    d.node(op, [d.value(d.types(op), 3, 5, 1)], **d.attributes(op, p=d.pick((None, 1, 2, 3)) if op == "GlobalLpPool" else None))


@generator("MaxUnpool")
def max_unpool(d, op):
    t = d.dtype(d.types(op, "T1"))
    n = d.int(1, 2)
    x = d.value([t], n + 2, n + 2, 2)
    given = {"kernel_shape": [2] * n, "strides": [d.int(1, 2)] * n}
    y, at = d.node("MaxPool", [x], 2, **given)
    size = {} if d.chance(60) else {"size": d.const([*x.shape])}
    d.node(op, [y, at, size.get("size")], **given)

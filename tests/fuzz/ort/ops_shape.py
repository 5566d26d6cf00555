"""Operators that move elements, or that make them out of sizes."""
import numpy as np
from onnx import numpy_helper

from fuzz.ort.draw import Refused, generator
from fuzz.ort.elements import BOOL, ELEM, F16, F32, F64, I32, I64, is_float


@generator("Reshape", weight=3)
def reshape(d, op):
    x = d.value(d.types(op), 0, 5, 0)
    to = factors(d, x)
    if d.version(op) < 5:
        raise Refused("an attribute")
    allow = d.attributes(op, allowzero=d.pick((None, None, None, 0, 1)))
    if to and not allow.get("allowzero") and d.chance(50) and 0 not in to:
        at = d.int(0, len(to) - 1)
        if at < x.rank and to[at] == x.shape[at]:
            to[at] = 0
    if to and 0 not in x.shape and d.chance(50):
        at = d.int(0, len(to) - 1)
        to[at] = -1
        if allow.get("allowzero") and 0 in to:
            raise Refused("both 0 and -1")
    d.node(op, [x, d.const(to)], **allow)


def factors(d, x):
    """Another shape of as many elements."""
    n, to = x.data.size, []
    if n == 0:
        return [*x.shape] if d.chance(50) else [0, d.int(0, 4)]
    if d.chance(30):
        at = d.int(0, x.rank)
        return [*x.shape[:at], int(np.prod(x.shape[at:]))]
    while n > 1 and len(to) < 5:
        f = d.pick([k for k in range(1, n + 1) if n % k == 0][:12])
        to.append(f)
        n //= f
    return d.shuffled([*to, n])


@generator("Flatten")
def flatten(d, op):
    x = d.value(d.types(op), 1, 5, 0)
    axis = d.int(-x.rank if d.version(op) >= 11 else 0, x.rank)
    d.node(op, [x], **({} if d.chance(20) else {"axis": axis}))


@generator("Transpose", weight=3)
def transpose(d, op):
    x = d.value(d.types(op), 0, 5, 0)
    d.node(op, [x], **({"perm": d.shuffled(range(x.rank))} if x.rank and d.chance(85) else {}))


@generator("Squeeze", "Unsqueeze")
def squeeze(d, op):
    x = d.value(d.types(op), 0, 4, 0)
    old = d.version(op)
    if op == "Squeeze":
        ones = [i for i, n in enumerate(x.shape) if n == 1]
        if not ones:
            raise Refused("nothing to squeeze")
        axes = d.some(ones, 1) if d.chance(80) else None
        rank = x.rank
    else:
        rank = x.rank + d.int(1, 2)
        axes = d.shuffled(d.some(range(rank), rank - x.rank)[:rank - x.rank])
        if len(axes) != rank - x.rank:
            raise Refused("axes")
    if axes is not None and old >= 11:
        axes = [a - rank if d.chance(30) else a for a in axes]
    if old < 13:
        d.node(op, [x], **({} if axes is None else {"axes": axes}))
    else:
        d.node(op, [x, None if axes is None else d.const(axes)])


@generator("Concat", weight=3)
def concat(d, op):
    x = d.value(d.types(op), 1, 4, 0)
    axis = d.axis(x.rank)
    fits = [v for v in d.pool if not isinstance(v.data, list) and v.dtype == x.dtype and v.rank == x.rank
            and all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != axis % x.rank)]
    parts = [x]
    for _ in range(d.pick((0, 1, 1, 2, 3))):
        other = [*x.shape]
        other[axis] = d.extent(0)
        parts.append(d.pick(fits) if fits and d.chance(60) else d.leaf(x.dtype, other))
    d.node(op, d.shuffled(parts), axis=axis)


@generator("Split")
def split(d, op):
    x = d.value(d.types(op), 1, 4, 1)
    axis = d.axis(x.rank)
    n, parts = x.shape[axis], d.int(1, 4)
    cuts = sorted(d.int(0 if d.empties else 1, n) for _ in range(parts - 1))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, n])]
    if not d.empties and 0 in sizes:
        raise Refused("an empty part")
    given = {} if axis == 0 and d.chance(50) else {"axis": axis}
    if d.version(op) < 13:
        d.node(op, [x], parts, **given, split=sizes)
    elif d.version(op) >= 18 and d.chance(50):
        d.node(op, [x], parts, **given, num_outputs=parts)
    elif n % parts == 0 and d.version(op) < 18 and d.chance(40):
        d.node(op, [x], parts, **given)
    else:
        d.node(op, [x, d.const(sizes)], parts, **given)


@generator("Slice", weight=3)
def slice_(d, op):
    x = d.value(d.types(op), 1, 4, 0)
    axes = d.axes(x.rank, 1)
    steps = [d.pick((1, 1, 1, 2, 3, -1, -2)) for _ in axes] if d.version(op) >= 10 else [1] * len(axes)
    starts, ends = [], []
    for a, step in zip(axes, steps):
        n = x.shape[a]
        lo, hi = sorted((d.int(0, n), d.int(0, n)))
        if step < 0:
            lo, hi = max(hi - 1, 0), lo - 1
            hi = hi if hi >= 0 else d.pick((-n - 1, -2 ** 40))
        else:
            hi = d.pick((hi, hi, 2 ** 31 - 1, 2 ** 63 - 1, n + 5)) if hi == n else hi
            lo = d.pick((lo, -2 ** 40)) if lo == 0 and d.chance(20) else lo
        starts.append(lo - n if 0 < lo < n and d.chance(30) else lo)
        ends.append(hi - n if 0 < hi < n and d.chance(30) else hi)
    if d.version(op) < 10:
        d.node(op, [x], starts=starts, ends=ends, axes=[a % x.rank for a in axes])
        return
    t = d.pick((np.int64, np.int64, np.int32)) if max(map(abs, starts + ends)) < 2 ** 31 else np.int64
    whole = len(axes) == x.rank and [a % x.rank for a in axes] == list(range(x.rank)) and all(s == 1 for s in steps) and d.chance(70)
    more = [None, None] if whole else [d.const(axes, t), d.const(steps, t) if any(s != 1 for s in steps) or d.chance(50) else None]
    d.node(op, [x, d.const(starts, t), d.const(ends, t), *more])


@generator("Pad")
def pad(d, op):
    x = d.value(d.types(op), 1, 4, 1)
    mode = d.pick([None, "constant", "reflect", "edge"] + (["wrap"] if d.version(op) >= 19 else []))
    axes = d.some(range(x.rank), 1) if d.version(op) >= 18 and d.chance(30) else list(range(x.rank))
    limit = lambda n: n - 1 if mode == "reflect" else n if mode == "wrap" else 4
    pads = [d.pick((0, d.int(0, min(3, limit(x.shape[a]))))) for _ in (0, 1) for a in axes]
    if mode in (None, "constant", "edge") and d.chance(20):
        at = d.int(0, len(pads) - 1)
        pads[at] = -d.int(0, x.shape[axes[at % len(axes)]] - 1)
    if d.version(op) < 11:
        d.node(op, [x], pads=pads, **({"mode": mode} if mode else {}), **({"value": 1.5} if d.chance(50) and is_float(x.dtype) else {}))
        return
    fill = d.const(d.int(0, 5), x.dtype) if mode in (None, "constant") and d.chance(60) else None
    named = d.const([a - x.rank if d.chance(30) else a for a in axes], d.pick((np.int64, np.int32))) if len(axes) < x.rank else None
    d.node(op, [x, d.const(pads), fill, named], **({"mode": mode} if mode else {}))


@generator("Expand")
def expand(d, op):
    x = d.value(d.types(op), 0, 4, 0)
    to = [d.extent() if n == 1 and d.chance(60) else 1 if d.chance(20) else n for n in x.shape]
    to = [d.int(1, 3) for _ in range(d.int(0, 1))] + to if d.chance(80) else to[d.int(0, len(to)):]
    d.node(op, [x, d.const(to)])


@generator("Tile")
def tile(d, op):
    x = d.value(d.types(op), 0 if d.chance(10) else 1, 4, 0)
    d.node(op, [x, d.const([d.pick((1, 1, 2, 3, 0 if d.empties else 1)) for _ in x.shape])])


@generator("Gather", weight=3)
def gather(d, op):
    x = d.value(d.types(op), 1, 4, 1)
    axis = d.axis(x.rank)
    n = x.shape[axis]
    t = d.pick((I64, I64, I32))
    index = d.leaf(t, d.shape(0, 2), -n if d.version(op) >= 11 else 0, n - 1)
    d.node(op, [x, index], **({} if axis == 0 and d.chance(50) else {"axis": axis}))


@generator("GatherElements", "ScatterElements", "Scatter")
def elements(d, op):
    x = d.value(d.types(op), 1, 4, 1)
    axis = d.axis(x.rank)
    n = x.shape[axis]
    shape = [d.int(1, e) for e in x.shape]
    if op == "GatherElements":
        shape[axis] = d.int(1, 6)
        d.node(op, [x, d.leaf(d.pick((I64, I32)), shape, -n, n - 1)], axis=axis)
        return
    reduction = d.attributes(op, reduction=d.pick((None, None, "none", "add", "mul", "max", "min"))) if op == "ScatterElements" else {}
    if d.version(op) < 18 and reduction.get("reduction") in ("max", "min"):
        reduction = {}
    if x.dtype == BOOL and reduction.get("reduction", "none") != "none":
        reduction = {}
    index = d.leaf(d.pick((I64, I32)), shape, -n if d.version(op) >= 11 else 0, n - 1)
    if reduction.get("reduction", "none") == "none":        # each place once: the order is not defined
        once = np.argsort(d.rng.random([*shape[:axis % x.rank], n, *shape[axis % x.rank + 1:]]), axis=axis)
        index = d.given(np.take(once, range(shape[axis]), axis).astype(index.dtype), d.chance(50))
    d.node(op, [x, index, d.leaf(x.dtype, shape)], axis=axis, **reduction)


@generator("GatherND")
def gather_nd(d, op):
    x = d.value(d.types(op), 1, 4, 1)
    batch = d.int(0, x.rank - 1) if d.version(op) >= 12 and d.chance(40) else 0
    k = d.int(1, x.rank - batch)
    lead = x.shape[:batch] + d.shape(0 if batch else 1, 2, 1)
    index = np.stack([d.rng.integers(-n if d.chance(40) else 0, n, lead) for n in x.shape[batch:batch + k]], -1).astype(np.int64)
    d.node(op, [x, d.given(index, d.chance(50))], **({"batch_dims": batch} if batch else {}))


@generator("ScatterND")
def scatter_nd(d, op):
    x = d.value(d.types(op), 1, 4, 1)
    k = d.int(1, x.rank)
    places = int(np.prod(x.shape[:k]))
    reduction = d.attributes(op, reduction=d.pick((None, None, "none", "add", "mul") + (("max", "min") if d.version(op) >= 18 else ())))
    if x.dtype == BOOL:
        reduction = {}
    n = d.int(1, min(places, 6))
    flat = d.rng.permutation(places)[:n] if reduction.get("reduction", "none") == "none" else d.rng.integers(0, places, n)
    index = np.stack(np.unravel_index(flat, x.shape[:k]), -1).astype(np.int64)
    if d.chance(30):
        index = index - np.array(x.shape[:k])
    d.node(op, [x, d.given(index, d.chance(50)), d.leaf(x.dtype, [n, *x.shape[k:]])], **reduction)


@generator("DepthToSpace", "SpaceToDepth")
def depth_to_space(d, op):
    b = d.int(1, 3)
    n, c, h, w = d.int(1, 2), d.int(1, 3), d.int(1, 4), d.int(1, 4)
    t = d.dtype(d.types(op))
    x = d.value([t], 4, 4, 1, shape=[n, c * b * b, h, w] if op == "DepthToSpace" else [n, c, h * b, w * b])
    d.node(op, [x], blocksize=b, **d.attributes(op, mode=d.pick((None, "DCR", "CRD"))))


@generator("ReverseSequence")
def reverse_sequence(d, op):
    x = d.value(d.types(op), 2, 4, 1)
    batch = d.int(0, 1)
    lens = d.leaf(I64, [x.shape[batch]], 1, x.shape[1 - batch])
    d.node(op, [x, lens], batch_axis=batch, time_axis=1 - batch)


@generator("Shape", "Size")
def shape(d, op):
    x = d.value(d.types(op), 0, 5, 0)
    given = {}
    if op == "Shape" and d.version(op) >= 15 and d.chance(50):
        given = {k: d.int(-x.rank - 1, x.rank + 1) for k in d.some(("start", "end"), 1)}
    d.node(op, [x], **given)


@generator("ConstantOfShape")
def constant_of_shape(d, op):
    t = d.dtype(d.types(op, "T2"))
    value = {"value": numpy_helper.from_array(d.array(t, [1], 0, 7))} if d.chance(80) else {}
    d.node(op, [d.const(d.shape(0, 3))], **value)


@generator("Range")
def range_(d, op):
    t = d.dtype(d.types(op))
    start, step, n = d.int(-5, 5), d.pick((1, 1, 2, -1, 3)), d.int(1, 12)
    limit = start + step * n - d.pick((0, 0, 1 if step > 0 else -1))
    d.node(op, [d.const(v, t) for v in (start, limit, step)])


@generator("EyeLike")
def eye_like(d, op):
    x = d.value(d.types(op, "T1"), 2, 2, 0)
    given = {"k": d.int(-3, 3)} if d.chance(60) else {}
    if d.chance(50):
        given["dtype"] = ELEM[d.dtype([t for t in d.types(op, "T2") if t != BOOL])]
    d.node(op, [x], **given)


@generator("Trilu")
def trilu(d, op):
    x = d.value(d.types(op), 2, 4, 0)
    d.node(op, [x, d.const(d.int(-4, 4)) if d.chance(60) else None], **({"upper": d.int(0, 1)} if d.chance(70) else {}))


@generator("CenterCropPad")
def center_crop_pad(d, op):
    x = d.value(d.types(op), 1, 4, 1)
    axes = d.axes(x.rank, 1) if d.chance(50) else None
    n = x.rank if axes is None else len(axes)
    d.node(op, [x, d.const([d.extent() for _ in range(n)], d.pick((np.int64, np.int32)))], **({} if axes is None else {"axes": axes}))


@generator("TensorScatter")
def tensor_scatter(d, op):
    b, h, n, e = d.int(1, 3), d.int(1, 2), d.int(2, 8), d.int(1, 5)
    t = d.dtype(d.types(op))
    past = d.value([t], 4, 4, 1, shape=[b, h, n, e])
    new = d.int(1, n)
    mode = d.pick((None, "linear", "circular"))
    at = d.leaf(I64, [b], 0, n - 1 if mode == "circular" else n - new)
    d.node(op, [past, d.leaf(t, [b, h, new, e]), at], **({} if mode is None else {"mode": mode}))


@generator("Constant")
def constant(d, op):
    t = d.dtype([F32, I64, F64, F16, I32, BOOL])
    if t == F32 and d.version(op) >= 12 and d.chance(40):
        given = {"value_floats": [float(v) for v in d.array(t, [d.int(1, 5)], -3, 3)]} if d.chance(60) else {"value_float": 1.5}
    elif t == I64 and d.version(op) >= 12 and d.chance(40):
        given = {"value_ints": [d.int(-5, 5) for _ in range(d.int(1, 5))]} if d.chance(60) else {"value_int": 3}
    else:
        given = {"value": numpy_helper.from_array(d.array(t, d.shape(0, 3)))}
    d.node(op, [], **given)


@generator("Resize", weight=2)
def resize(d, op):
    t = d.dtype(d.types(op, "T1" if d.version(op) > 10 else "T"))
    kind = d.pick(("4", "4", "any"))
    x = d.value([t], 4, 4, 1, limit=1500) if kind == "4" else d.value([t], 1, 5, 1, limit=600)
    version = d.version(op)
    mode = d.pick((None, "nearest", "linear") + (("cubic",) if version >= 11 and kind == "4" else ()))
    axes = None
    if version >= 18 and d.chance(25):
        axes = d.some(range(x.rank), 1) if kind != "4" else [2, 3]
    touched = range(x.rank) if axes is None else axes
    scales, sizes = [], []
    for a in range(x.rank):
        if a not in touched:
            continue
        fixed = mode in ("linear", "cubic") and kind == "4" and a < 2
        scales.append(1.0 if fixed else d.pick((1.0, 2.0, 0.5, 1.5, 3.0, 0.7, 2.3)))
        sizes.append(x.shape[a] if fixed else d.int(1, 12))
    if any(int(np.floor(n * s)) < 1 for n, s in zip((x.shape[a] for a in touched), scales)):
        scales = [1.0 if n == 1 else s for n, s in zip((x.shape[a] for a in touched), scales)]
    given = {} if mode is None else {"mode": mode}
    if version == 10:
        d.node(op, [x, d.const(scales, np.float32)], **given)
        return
    coordinate = d.pick((None, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel") +
                        (("half_pixel_symmetric",) if version >= 19 else ()))
    given |= d.attributes(op, coordinate_transformation_mode=coordinate, axes=axes,
                          antialias=d.pick((None, None, None, 1)) if mode in ("linear", "cubic") else None)
    if mode in (None, "nearest"):
        given |= d.attributes(op, nearest_mode=d.pick((None, "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")))
    if mode == "cubic":
        given |= d.attributes(op, cubic_coeff_a=d.pick((None, -0.5)), exclude_outside=d.pick((None, 0, 1)))
    roi = d.const(np.zeros(0), np.float32, True) if version < 13 else None
    if coordinate == "align_corners":         # whole lengths: what a length between two means is where runtimes differ
        scales = [max(round(n * s), 1) / n for n, s in zip((x.shape[a] for a in touched), scales)]
    if d.chance(50):
        d.node(op, [x, roi, d.const(scales, np.float32)], **given)
    else:
        policy = d.pick((None, None, "stretch", "not_larger", "not_smaller")) if kind != "4" else None
        given |= d.attributes(op, keep_aspect_ratio_policy=policy)
        no = d.const(np.zeros(0), np.float32, True) if version < 13 else None
        d.node(op, [x, roi, no, d.const(sizes)], **given)


@generator("Upsample")
def upsample(d, op):
    x = d.value(d.types(op), 4, 4, 1, limit=800)
    scales = [1.0, 1.0, d.pick((1.0, 2.0, 3.0)), d.pick((1.0, 2.0, 1.5))]
    mode = {"mode": d.pick(("nearest", "linear"))}
    if d.version(op) < 9:
        d.node(op, [x], scales=scales, **mode)
    else:
        d.node(op, [x, d.const(scales, np.float32)], **mode)

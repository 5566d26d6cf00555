"""Quantization: quantizers, products of bytes, and quantizers around an operator of floats."""
import numpy as np

from fuzz.ort.draw import Refused, generator
from fuzz.ort.elements import F32, I4, I8, I32, U4, U8


def scale(d, dtype, shape=()):
    return d.given(np.asarray(2.0 ** d.rng.integers(-6, 0, shape) if d.chance(60) else d.rng.uniform(0.01, 0.2, shape)).astype(dtype),
                   d.chance(85))


def zero_point(d, dtype, shape=()):
    lo, hi = (-8, 7) if dtype == I4 else (0, 15) if dtype == U4 else (-5, 5) if dtype.kind == "i" else (0, 9)
    if dtype == I8 and d.chance(50):
        lo = hi = 0
    return d.given(d.array(dtype, list(shape), lo, hi), not d.chance(10) or dtype in (I4, U4))


@generator("QuantizeLinear", weight=3)
def quantize(d, op):
    x = d.value([t for t in d.types(op, d.schema(op).inputs[0].type_str)], 0, 4, 0)
    out = d.pick([t for t in d.types(op, d.schema(op).outputs[0].type_str) if t in (U8, I8) or d.chance(30)])
    shape, given = (), {}
    if x.rank and d.version(op) >= 13 and d.chance(35):
        axis = d.axis(x.rank)
        shape, given = (x.shape[axis],), {"axis": axis}
    s = scale(d, x.dtype if x.dtype.kind == "f" else F32, shape)
    zero = zero_point(d, out, shape) if out.kind in "iu" or out in (I4, U4) else d.given(np.zeros(shape).astype(out))
    y, = d.node(op, [x, s, zero if out != U8 or d.chance(80) else None], **given)
    if d.chance(80):
        d.node("DequantizeLinear", [y, s, zero], **given)


@generator("DequantizeLinear", weight=2)
def dequantize(d, op):
    t = d.pick([t for t in d.types(op, d.schema(op).inputs[0].type_str) if t in (U8, I8, I32) or d.chance(30)])
    if t.kind not in "iu" and t not in (I4, U4):
        raise Refused("8-bit floats come of floats")
    shape, given = (), {}
    x = d.leaf(t, d.shape(0, 4), constant=True) if t in (I4, U4) else d.value([t], 0, 4, 0)
    if x.rank and d.version(op) >= 13 and d.chance(35):
        axis = d.axis(x.rank)
        if d.version(op) >= 21 and d.chance(40):
            block = d.pick([b for b in range(1, max(x.shape[axis], 1) + 1) if x.shape[axis] % b == 0] or [1])
            shape = [*x.shape]
            shape[axis] //= block
            given = {"axis": axis, "block_size": block}
        else:
            shape, given = (x.shape[axis],), {"axis": axis}
    zero = d.given(np.zeros(shape, t)) if t == I32 else zero_point(d, t, shape)
    d.node(op, [x, scale(d, F32, shape), zero if d.chance(80) else None], **given)


@generator("DynamicQuantizeLinear")
def dynamic(d, op):
    y, s, z = d.node(op, [d.value([F32], 0, 4, 1)], 3)
    if d.chance(60):
        d.node("DequantizeLinear", [y, s, z])


@generator("MatMulInteger", "QLinearMatMul")
def matmul_integer(d, op):
    a, b = d.pick((U8, I8)), d.pick((U8, I8))
    m, k, n = d.extent(), d.extent(), d.extent()
    lead = d.shape(0, 1, 1)
    x = d.value([a], 2, 3, shape=[*lead, m, k], fresh=40)
    w = d.leaf(b, [k, n], constant=not d.chance(20))
    if op == "MatMulInteger":
        za, zb = (zero_point(d, a) if d.chance(60) else None), (zero_point(d, b, (n,) if d.chance(40) else ()) if d.chance(50) else None)
        y, = d.node(op, [x, w, za, zb])
        if d.chance(60):
            f, = d.node("Cast", [y], to=1)
            d.node("Mul", [f, scale(d, F32)])
    else:
        per = (n,) if d.chance(30) else ()
        d.node(op, [x, scale(d, F32), zero_point(d, a), w, scale(d, F32, per), zero_point(d, b, per), scale(d, F32), zero_point(d, a)])


@generator("ConvInteger", "QLinearConv")
def conv_integer(d, op):
    a = d.pick((U8, U8, I8))
    b = d.pick((U8, I8)) if a == U8 else I8
    n = d.pick((1, 2, 2))
    x = d.value([a], n + 2, n + 2, 1, limit=2000)
    c = x.shape[1]
    groups = c if d.chance(25) else 1
    out = c if groups > 1 else d.extent()
    kernel = [d.int(1, min(3, e)) for e in x.shape[2:]]
    w = d.leaf(b, [out, c // groups, *kernel], constant=not d.chance(15))
    given = ({"group": groups} if groups > 1 else {}) | ({"pads": [d.int(0, k - 1) for k in kernel * 2]} if d.chance(50) else {}) | (
        {"strides": [d.int(1, 2) for _ in kernel]} if d.chance(40) else {})
    if op == "ConvInteger":
        d.node(op, [x, w, zero_point(d, a) if d.chance(60) else None, zero_point(d, b) if d.chance(40) else None], **given)
    else:
        per = (out,) if d.chance(40) else ()
        zero = d.given(np.zeros(per, b)) if per else zero_point(d, b)
        bias = d.leaf(I32, [out], -50, 50, True) if d.chance(50) else None
        d.node(op, [x, scale(d, F32), zero_point(d, a), w, scale(d, F32, per), zero, scale(d, F32), zero_point(d, a), bias], **given)

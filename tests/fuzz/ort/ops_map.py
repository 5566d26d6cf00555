"""Elementwise operators."""
import numpy as np
from onnx import TensorProto as T

from fuzz.ort.draw import Refused, generator
from fuzz.ort.elements import BOOL, ELEM, F8, F32, FLOATS, I32, I64, PLAIN, is_float

PARAMETERS = {"Elu": ["alpha"], "Selu": ["alpha", "gamma"], "Celu": ["alpha"], "LeakyRelu": ["alpha"], "ThresholdedRelu": ["alpha"],
              "HardSigmoid": ["alpha", "beta"], "Shrink": ["bias", "lambd"], "Swish": ["alpha"]}


def broadcast(d, shape):
    """Dims that broadcast with `shape`: leading ones left out, some of the others 1."""
    if d.chance(50):
        return list(shape)
    keep = d.int(0, len(shape))
    return [1 if d.chance(35) else n for n in shape[len(shape) - keep:]]


def pair(d, types, shape=None):
    """Two values whose shapes broadcast, either of them the larger."""
    a = d.value(types, 0, 4)
    fits = [v for v in d.pool if not isinstance(v.data, list) and v.dtype == a.dtype and v is not a and broadcasts(v.shape, a.shape)]
    b = d.pick(fits) if fits and d.chance(50) else d.leaf(a.dtype, broadcast(d, a.shape)) if d.chance(80) else d.leaf(
        a.dtype, (d.shape(1, 2, limit=8) + a.shape if a.rank < 3 else a.shape))
    return (b, a) if d.chance(40) else (a, b)


def broadcasts(p, q):
    return all(a == b or a == 1 or b == 1 for a, b in zip(reversed(p), reversed(q)))


@generator("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish",
           "Identity", "IsNaN", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
           "Softsign", "Sqrt", "Tan", "Tanh")
def unary(d, op):
    schema = d.schema(op)
    d.node(op, [d.value(d.types(op, schema.inputs[0].type_str), 0, 5)])


@generator("Elu", "Selu", "Celu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Shrink", "Swish")
def unary_parameters(d, op):
    given = {k: d.pick((0.0, 0.2, 0.5, 1.0, 1.7, -0.5, 2.0)) for k in d.some(PARAMETERS[op])}
    if op == "Celu" and given.get("alpha") == 0:
        given = {}
    d.node(op, [d.value(d.types(op), 0, 4)], **given)


@generator("Gelu")
def gelu(d, op):
    d.node(op, [d.value(d.types(op), 0, 4)], **d.attributes(op, approximate=d.pick((None, "none", "tanh"))))


@generator("IsInf")
def isinf(d, op):
    given = {k: d.int(0, 1) for k in d.some(("detect_negative", "detect_positive"))}
    d.node(op, [d.value(d.types(op, "T1"), 0, 4)], **given)


@generator("Add", "Sub", "Mul", weight=3)
@generator("Div", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
def binary(d, op):
    types = d.types(op, d.schema(op).inputs[0].type_str)
    a, b = pair(d, types)
    if op == "Div" and not is_float(a.dtype) and not np.all(b.data):
        b = d.given(np.where(b.data == 0, np.ones_like(b.data), b.data), d.chance(60))
    d.node(op, [a, b])


@generator("Mod")
def mod(d, op):
    a, b = pair(d, d.types(op))
    if not np.all(b.data != 0):
        b = d.given(np.where(b.data == 0, np.ones_like(b.data), b.data), d.chance(60))
    fmod = 1 if is_float(a.dtype) and d.chance(95) else d.pick((None, 0, 1))
    d.node(op, [a, b], **({} if fmod is None else {"fmod": fmod}))


@generator("Pow")
def power(d, op):
    types = d.types(op)
    a, b = pair(d, types)
    if d.chance(60):
        exponent = d.pick((F32, I64, I32)) if d.version(op) >= 12 else a.dtype
        b = d.given(np.array(d.pick((0, 1, 2, 3, -1, 0.5, -0.5, 1.5)) if is_float(exponent) else d.int(0, 4), exponent), d.chance(80))
    if not is_float(a.dtype):                 # what does not fit is not defined
        with np.errstate(all="ignore"):
            y = np.power(a.data.astype(np.float64), b.data.astype(np.float64))
        if np.any(b.data < 0) or not np.all(np.abs(y) < min(2.0 ** 53, np.iinfo(a.dtype).max)) or a.dtype.kind == "u" and np.any(y < 0):
            raise Refused("too large a power")
    d.node(op, [a, b])


@generator("BitShift")
def bitshift(d, op):
    a, b = pair(d, d.types(op))
    bits = a.dtype.itemsize * 8
    if np.any(b.data >= bits):
        b = d.given((b.data % bits).astype(b.dtype), d.chance(50))
    d.node(op, [a, b], direction=d.pick(("LEFT", "RIGHT")))


@generator("Max", "Min", "Sum", "Mean")
def variadic(d, op):
    a, b = pair(d, d.types(op))
    if d.version(op) < 8 and a.shape != b.shape:
        b = d.leaf(a.dtype, a.shape)
    more = [a, b, d.leaf(a.dtype, a.shape)] if d.chance(30) else [a] if d.chance(15) else [a, b]
    d.node(op, more)


@generator("PRelu")
def prelu(d, op):
    x = d.value(d.types(op), 1, 4)
    slope = [x.shape[1]] + [1] * (x.rank - 2) if x.rank > 2 and d.chance(50) else broadcast(d, x.shape)
    d.node(op, [x, d.leaf(x.dtype, slope)])


@generator("Where")
def where(d, op):
    x, y = pair(d, d.types(op))
    shape = list(np.broadcast_shapes(x.shape, y.shape))
    c = d.value([BOOL], 0, 5, shape=broadcast(d, shape), fresh=50)
    d.node(op, [c, x, y])


@generator("Clip")
def clip(d, op):
    x = d.value(d.types(op), 0, 4)
    lo, hi = d.pick((-2, -1, 0, 1)), d.pick((1, 2, 3, 6, 0))
    lo = 0 if lo < 0 and x.dtype.kind == "u" else lo
    use = d.pick(((True, True), (True, False), (False, True), (False, False)), (6, 2, 2, 1))
    if d.version(op) < 11:
        d.node(op, [x], **{k: float(v) for k, v, u in zip(("min", "max"), (lo, hi), use) if u})
    else:
        d.node(op, [x] + [d.const(v, x.dtype) if u else None for v, u in zip((lo, hi), use)])


@generator("Cast", weight=3)
def cast(d, op):
    x = d.value([t for t in PLAIN], 0, 4)
    to = d.pick([t for t in d.types(op, "T2") if t in ELEM and t != x.dtype and t.itemsize and ELEM[t] not in (T.INT4, T.UINT4)])
    if to in F8 and x.dtype not in FLOATS:
        raise Refused("8-bit floats come of floats")
    if is_float(x.dtype) and not is_float(to) and (to.kind == "u" or np.any(~np.isfinite(x.data))) and to != BOOL:
        x = d.leaf(x.dtype, x.shape, 0, 100)         # what lies outside the type is not defined
    y, = d.node(op, [x], to=ELEM[to], **(d.attributes(op, saturate=d.pick((None, 0, 1))) if to in F8 else {}))
    if to in F8:
        d.node(op, [y], to=ELEM[F32])


@generator("CastLike")
def cast_like(d, op):
    x = d.value([t for t in PLAIN if t in d.types(op, "T1")], 0, 3)
    like = d.value([t for t in PLAIN if is_float(t) or not is_float(x.dtype)], 0, 2)
    d.node(op, [x, like])


@generator("BitCast")
def bitcast(d, op):
    x = d.value([t for t in PLAIN if t in d.types(op, "T1")], 0, 3)
    to = d.pick([t for t in PLAIN if t.itemsize == x.dtype.itemsize and (t == BOOL) == (x.dtype == BOOL)])
    d.node(op, [x], to=ELEM[to])


@generator("Dropout")
def dropout(d, op):
    x = d.value(d.types(op), 1, 4)
    outputs = d.pick(([True], [True, True]))
    if d.version(op) < 12:
        d.node(op, [x], outputs, **({"ratio": 0.3} if d.chance(50) else {}))
    else:
        d.node(op, [x, d.pick((None, d.const(0.3, np.float32))), d.pick((None, d.const(False, np.bool_)))], outputs)


@generator("Softmax", "LogSoftmax", "Hardmax")
def softmax(d, op):
    x = d.value(d.types(op), 1, 4, 1)
    axis = d.axis(x.rank) if d.version(op) >= 11 else d.int(0, x.rank - 1)
    d.node(op, [x], **({} if d.chance(20) else {"axis": axis}))

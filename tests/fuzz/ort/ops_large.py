"""Products that fill tiles of registers: many terms, rows and columns, and next to multiples of what a tile takes."""
import numpy as np

from fuzz.ort.draw import Refused, generator
from fuzz.ort.elements import BF16, ELEM, F16, F32, I32, I8, U8
from fuzz.ort.ops_contrib import matmul_bits_of
from support.cpu import saturates

ROWS = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 64, 65)
TERMS = (16, 31, 32, 33, 48, 63, 64, 65, 96, 100, 127, 128, 130, 192, 256, 320)
COLUMNS = (1, 8, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 80, 96, 100, 128, 144)


def scalar(d, dtype, lo, hi, per=()):
    return d.given(np.asarray(d.rng.uniform(lo, hi, per), dtype) if dtype == F32 else d.rng.integers(lo, hi + 1, per).astype(dtype))


def bytes_of(d, dtype, shape, constant):
    """Any bytes; where ONNX Runtime's sums of pairs saturate, half of them."""
    low, high = (0, 127 if saturates() else 255) if dtype == U8 else (-64, 63) if saturates() else (-128, 127)
    return d.leaf(dtype, shape, low, high, constant)


def rows_of(d, k, lead=True):
    """Dims of the rows: one, two (numbered through), or a batch."""
    m = d.pick(ROWS)
    return [m, k] if not lead or d.chance(50) else [d.int(1, 4), max(1, m // 2), k]


def after(d, y, bias_shape, t):
    """A bias, an activation."""
    if d.chance(60):
        y, = d.node("Add", [y, d.leaf(t, bias_shape, constant=True)])
    if d.chance(40):
        y, = d.node(d.pick(("Relu", "Sigmoid", "Tanh")), [y])
    return y


@generator("MatMulLarge", weight=3)
def matmul(d, op):
    t = d.pick((F32, F32, F16, BF16))
    k, n = d.pick(TERMS), d.pick(COLUMNS)
    shape = rows_of(d, k)
    x = d.value([t], 2, 3, shape=shape, fresh=70, limit=10000)
    w = d.leaf(t, [n, k] if d.chance(20) else [k, n], -0.5, 0.5, not d.chance(20))
    if w.shape == [n, k] and n != k:
        w, = d.node("Transpose", [w], perm=[1, 0])
    y, = d.node("MatMul", [x, w])
    after(d, y, [n], t)


@generator("QLinearMatMulLarge", "MatMulIntegerLarge", weight=3)
def integers(d, op):
    a, b = d.pick((U8, I8)), d.pick((U8, I8))
    k, n = d.pick(TERMS), d.pick(COLUMNS)
    x = bytes_of(d, a, rows_of(d, k), False)
    w = bytes_of(d, b, [k, n], not d.chance(15))
    zero = lambda t, per=(): scalar(d, t, 0 if t == U8 else -9, 9, per)
    per = (n,) if d.chance(30) else ()
    if op == "MatMulIntegerLarge":
        y, = d.node("MatMulInteger", [x, w, zero(a) if d.chance(70) else None, zero(b, per) if d.chance(50) else None])
        if d.chance(50):
            y, = d.node("Cast", [y], to=ELEM[F32])
            y, = d.node("Mul", [y, scalar(d, F32, 0.001, 0.01)])
            after(d, y, [n], F32)
    else:
        d.node("QLinearMatMul", [x, scalar(d, F32, 0.01, 0.05), zero(a), w, scalar(d, F32, 0.001, 0.01, per), zero(b, per),
                                 scalar(d, F32, 0.1, 1), zero(a)])


@generator("ConvLarge", "QLinearConvLarge", "ConvIntegerLarge", weight=3)
def conv(d, op):
    a = F32 if op == "ConvLarge" else d.pick((U8, U8, I8))
    b = F32 if a == F32 else I8 if a == I8 else d.pick((U8, I8))
    nd = d.pick((1, 2, 2, 2, 2, 3))
    groups = d.pick((1, 1, 1, 2, 4))
    c, out = groups * d.pick((3, 4, 8, 15, 16, 24, 32, 33)), groups * d.pick((3, 8, 15, 16, 17, 24, 32, 40, 64))
    image = [d.int(1, {1: 40, 2: 14, 3: 6}[nd]) for _ in range(nd)]
    kernel = [d.pick((1, 3, 3, 2, 5)) for _ in range(nd)] if d.chance(80) else [1] * nd
    dilations = [d.pick((1, 1, 1, 2)) for _ in range(nd)]
    pads = [d.int(0, k // 2) for k in kernel * 2]
    if any(e + pads[i] + pads[i + nd] < (k - 1) * s + 1 for i, (e, k, s) in enumerate(zip(image, kernel, dilations))):
        raise Refused("a window larger than what it slides over")
    given = {"pads": pads, "strides": [d.pick((1, 1, 2, 3)) for _ in range(nd)], "dilations": dilations, "group": groups}
    shape, weights = [d.int(1, 3), c, *image], [out, c // groups, *kernel]
    if a == F32:
        bias = d.leaf(F32, [out], constant=True) if d.chance(50) else None
        y, = d.node("Conv", [d.leaf(F32, shape, constant=False), d.leaf(F32, weights, -0.5, 0.5, True), bias], **given)
        if d.chance(40):
            d.node("Relu", [y])
        return
    x, w = bytes_of(d, a, shape, False), bytes_of(d, b, weights, True)
    zero = lambda t: scalar(d, t, 0 if t == U8 else -9, 9)
    if op == "ConvIntegerLarge":
        d.node("ConvInteger", [x, w, zero(a) if d.chance(70) else None, zero(b) if d.chance(40) else None], **given)
        return
    per = (out,) if d.chance(40) else ()
    bias = d.leaf(I32, [out], -3000, 3000, True) if d.chance(50) else None
    d.node("QLinearConv", [x, scalar(d, F32, 0.01, 0.05), zero(a), w, scalar(d, F32, 0.001, 0.01, per), d.given(np.zeros(per, b)),
                           scalar(d, F32, 0.1, 1), zero(a), bias], **given)


@generator("DequantizedLarge", weight=3)
def dequantized(d, op):
    """Quantizers around a product or a convolution of floats."""
    a = d.pick((U8, I8))
    k, n = d.pick(TERMS), d.pick(COLUMNS)
    conv = d.chance(50)
    shape = [d.int(1, 2), k, d.int(1, 6), d.int(1, 6)] if conv else rows_of(d, k)
    window = d.pick((1, 3))
    per = (n,) if d.chance(50) else ()
    x = bytes_of(d, a, shape, False)
    zero = scalar(d, a, 0 if a == U8 else -9, 9)
    wide, = d.node("DequantizeLinear", [x, scalar(d, F32, 0.01, 0.05), zero])
    w = bytes_of(d, I8, [n, k, window, window] if conv else [k, n], True)
    axis = {"axis": 0 if conv else 1} if per else {}
    weights, = d.node("DequantizeLinear", [w, scalar(d, F32, 0.001, 0.01, per), d.given(np.zeros(per, np.int8))], **axis)
    if conv:
        y, = d.node("Conv", [wide, weights, d.leaf(F32, [n], constant=True) if d.chance(50) else None], pads=[window // 2] * 4)
    else:
        y = after(d, d.node("MatMul", [wide, weights])[0], [n], F32)
    q, = d.node("QuantizeLinear", [y, scalar(d, F32, 0.05, 0.5), zero])
    if d.chance(50):
        d.node("DequantizeLinear", [q, scalar(d, F32, 0.05, 0.5), zero])


@generator("MatMulNBitsLarge", weight=3)
def packed(d, op):
    matmul_bits_of(d, d.pick(TERMS), d.pick(COLUMNS), rows_of)

"""ONNX Runtime's contributed operators (com.microsoft). A generator of an operator that ONNX has, too, ends in Contrib."""
import numpy as np

from fuzz.ort.draw import Refused, generator
from fuzz.ort.elements import BOOL, F16, F32, FLOATS, I16, I32, I64, I8, U8
from fuzz.ort.ops_nn import window
from fuzz.ort.ops_quant import scale, zero_point

HALVES = [F32, F16]
ACTIVATIONS = {"Relu": [], "Tanh": [], "Sigmoid": [], "LeakyRelu": [0.2], "Clip": [-0.5, 1.5], "HardSigmoid": [0.3, 0.4]}


def add(d, op, operands, outputs=1, **attributes):
    return d.node(op.removesuffix("Contrib"), operands, outputs, "com.microsoft", **{k: v for k, v in attributes.items() if v is not None})


def maybe(d, percent, make):
    return make() if d.chance(percent) else None


# ---- floats ---------------------------------------------------------------------------------------------------------

@generator("BiasGelu", "FastGelu", "GeluContrib", "QuickGelu")
def gelu(d, op):
    t = d.dtype(HALVES)
    x = d.value([t], 1, 4, 0)
    bias = d.leaf(t, x.shape[-1:]) if op == "BiasGelu" or op == "FastGelu" and d.chance(50) else None
    add(d, op, [x, bias], alpha=d.pick((None, 1.702, 1.0)) if op == "QuickGelu" else None)


@generator("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", weight=2)
def skip_norm(d, op):
    t = d.dtype(HALVES)
    x = d.value([t], 2, 3, 1)
    skip = d.value([t], 2, 3, shape=x.shape[1:] if x.rank == 3 and d.chance(15) else [1, *x.shape[1:]] if x.rank == 3 and d.chance(15) else x.shape)
    vector = lambda: d.leaf(t, x.shape[-1:])
    beta = [maybe(d, 60, vector)] if op == "SkipLayerNormalization" else []
    add(d, op, [x, skip, vector(), *beta, maybe(d, 50, vector)], d.pick(([True], [True, False, False, True])), epsilon=d.pick((None, 1e-3)))


@generator("EmbedLayerNormalization")
def embed(d, op):
    t = d.dtype(HALVES)
    b, s, h, words = d.int(1, 3), d.int(1, 6), d.extent(), d.int(1, 9)
    ids, segments = d.leaf(I32, [b, s], 0, words - 1), maybe(d, 50, lambda: d.leaf(I32, [b, s], 0, 1))
    mask = maybe(d, 50, lambda: d.leaf(I32, [b, s], 0, 1))
    table = lambda n: d.leaf(t, [n, h], constant=True)
    places = d.leaf(I32, d.pick(([b, s], [1, s])), 0, 5) if d.chance(30) else None
    add(d, op, [ids, segments, table(words), table(8), table(2) if segments else None, d.leaf(t, [h]), d.leaf(t, [h]), mask, places],
        d.pick(([True], [True, True], [True, True, True])), epsilon=d.pick((None, 1e-3)), mask_index_type=d.pick((None, 0, 1)))


@generator("BiasSoftmax")
def bias_softmax(d, op):
    x = d.leaf(F32, d.shape(4, 4, 1, 1500))
    inner = d.int(0, 1)
    add(d, op, [x, d.leaf(F32, [x.shape[0], 1, 1, x.shape[3]] if inner else [1, *x.shape[1:]])], axis=3, is_inner_broadcast=inner)


def activation(d, given):
    name = d.pick(ACTIVATIONS)
    return {"activation": name} | ({"activation_params": ACTIVATIONS[name]} if ACTIVATIONS[name] else {}) | given


@generator("FusedConv", "NhwcFusedConv", weight=2)
def fused_conv(d, op):
    x = d.value([F32 if op == "FusedConv" else F16], 4, 4, 1, limit=2500)
    last = op == "NhwcFusedConv"
    image, c = (x.shape[1:3], x.shape[3]) if last else (x.shape[2:], x.shape[1])
    groups = d.pick([g for g in range(1, c + 1) if c % g == 0]) if d.chance(30) else 1
    kernel = [d.int(1, 3) for _ in image]
    given = window(d, 2, image, kernel)
    out = groups * d.int(1, 4)
    bias = d.leaf(x.dtype, [out], constant=True) if d.chance(60) else None
    add(d, op, [x, d.leaf(x.dtype, [out, c // groups, *kernel], constant=True), bias], **activation(d, given), group=groups)


@generator("FusedGemm")
def fused_gemm(d, op):
    x = d.value([F32], 2, 2, 1, limit=2000)
    ta, tb, n = d.int(0, 1), d.int(0, 1), d.extent()
    m, k = x.shape[::-1] if ta else x.shape
    name = d.pick(("Relu", "LeakyRelu", "Tanh", "Sigmoid", "HardSigmoid"))
    more = {"activation_alpha": 0.3} if name in ("LeakyRelu", "HardSigmoid") else {}
    add(d, op, [x, d.leaf(F32, [n, k] if tb else [k, n]), d.leaf(F32, d.pick(([n], [m, n], [1, n], [m, 1], [1])))], transA=ta, transB=tb,
        activation=name, alpha=d.pick((None, 0.5)), beta=d.pick((None, 0.5, 0.0)), **more)


@generator("FusedMatMul", "TransposeMatMul", weight=2)
def fused_matmul(d, op):
    t = d.dtype([F32, FLOATS[1]])
    x = d.value([t], 2, 4, 0, limit=2000)
    ta, tb = d.int(0, 1), d.int(0, 1)
    fused = op == "FusedMatMul" and x.rank > 2 and d.chance(30)
    given, lead = {}, x.shape[:-2]
    k = x.shape[-2] if ta else x.shape[-1]
    if fused and d.chance(50):                       # the first dim is where rows would be
        given["transBatchA"] = 1
        lead = x.shape[1:-1] if not ta else x.shape[1:-1]
        k = x.shape[0] if ta else x.shape[-1]
    n = d.extent(0)
    other = [*lead, *([n, k] if tb else [k, n])] if d.chance(50) else [n, k] if tb else [k, n]
    if fused and len(other) > 2 and d.chance(50):
        given["transBatchB"] = 1
        other = [n, *lead, k] if tb else [k, *lead, n]
    add(d, op, [x, d.leaf(t, other)], transA=ta, transB=tb, alpha=d.pick((None, 0.5, -2.0)), **given)


# ---- attention ------------------------------------------------------------------------------------------------------

def head_sizes(d):
    return d.int(1, 3), d.int(1, 7), d.pick((1, 2, 3, 4)), d.pick((1, 2, 4, 8, 16))


@generator("MultiHeadAttention", weight=3)
def multi_head(d, op):
    b, s, heads, size = head_sizes(d)
    k, vsize, past, width = d.int(1, 7), size if d.chance(70) else d.int(1, 8), d.int(1, 4) if d.chance(30) else 0, heads * size
    form = d.int(0, 3)
    q = d.value([F32], 3, 3, shape=[b, s, width], fresh=50)
    if form == 0:                                    # packed keys and values
        operands, vsize = [q, d.leaf(F32, [b, k, heads, 2, size])], size
    elif form == 1:
        operands, k, vsize = [d.leaf(F32, [b, s, heads, 3, size])], s, size
    elif form == 2:
        operands = [q, d.leaf(F32, [b, heads, k, size]), d.leaf(F32, [b, heads, k, vsize])]
    else:
        operands = [q, d.leaf(F32, [b, k, width]), d.leaf(F32, [b, k, heads * vsize])]
    past = 0 if form in (0, 1, 2) else past
    bias = d.leaf(F32, [2 * width + heads * vsize]) if form == 3 and d.chance(40) else None
    total = k + past
    mask = d.leaf(I32, d.pick(([b], [b, total], [b, s, total], [3 * b + 2])), 1 if past else 0, 1) if d.chance(30) else None
    if mask and mask.shape == [b]:
        mask = d.leaf(I32, [b], 1, total)
    if mask and mask.shape == [3 * b + 2]:
        mask = d.given(np.concatenate([[total] * b, np.arange(b + 1) * s, np.arange(b + 1) * total]).astype(np.int32), d.chance(50))
    extra = d.leaf(F32, [d.pick((1, b)), d.pick((1, heads)), s, total]) if d.chance(30) else None
    pasts = [d.leaf(F32, [b, heads, past, size]), d.leaf(F32, [b, heads, past, vsize])] if past else [None, None]
    operands += [None] * (3 - len(operands))
    add(d, op, [*operands, bias, mask, extra, *pasts], [True, True, True] if past or d.chance(20) and form == 3 else [True], num_heads=heads,
        unidirectional=d.pick((None, 0, 1)), scale=d.pick((None, 0.5)), mask_filter_value=d.pick((None, None, -100.0)))


@generator("AttentionContrib", weight=2)
def attention(d, op):
    b, s, heads, size = head_sizes(d)
    vsize = size if d.chance(70) else d.int(1, 6)
    past = d.int(1, 3) if d.chance(30) and vsize == size else 0
    wide, total = d.extent(), s + past
    width = 2 * heads * size + heads * vsize
    mask = d.pick((None, None, [b], [2 * b], [b, total], [b, s, total]))
    mask = mask and d.leaf(I32, mask, 0, 1)
    if mask and mask.rank == 1:
        mask = d.given(np.concatenate([d.rng.integers(1, total + 1, b), np.zeros(b, int)])[:mask.shape[0]].astype(np.int32), d.chance(50))
    extra = d.leaf(F32, [d.pick((1, b)), d.pick((1, heads)), s, total]) if d.chance(30) else None
    given = {"qkv_hidden_sizes": [heads * size, heads * size, heads * vsize]} if vsize != size or d.chance(20) else {}
    x, w, bias = d.value([F32], 3, 3, shape=[b, s, wide], fresh=50), d.leaf(F32, [wide, width], constant=True), d.leaf(F32, [width])
    cache = d.leaf(F32, [2, b, heads, past, size]) if past else None
    add(d, op, [x, w, bias, mask, cache, extra], [True, True] if past or vsize == size and d.chance(20) else [True],
        num_heads=heads, unidirectional=d.pick((None, 0, 1)), scale=d.pick((None, 0.5)), mask_filter_value=d.pick((None, None, -100.0)), **given)


@generator("QAttention")
def quantized_attention(d, op):
    b, s, heads, size = head_sizes(d)
    wide, width, past = d.extent(), 3 * heads * size, d.int(1, 3) if d.chance(30) else 0
    a, w = U8, d.pick((U8, I8))
    per = (width,) if d.chance(30) else ()
    mask = d.leaf(I32, [b], 1, s + past) if d.chance(30) else None
    add(d, op, [d.leaf(a, [b, s, wide]), d.leaf(w, [wide, width], constant=True), d.leaf(F32, [width]), scale(d, F32), scale(d, F32, per), mask,
                zero_point(d, a), zero_point(d, w, per), d.leaf(F32, [2, b, heads, past, size]) if past else None],
        [True, True] if past else [True], num_heads=heads, unidirectional=d.pick((None, 0, 1)))


@generator("RotaryEmbeddingContrib")
def rotary(d, op):
    t = d.dtype(HALVES)
    b, s, heads, size = d.int(1, 3), d.int(1, 5), d.int(1, 3), 2 * d.int(1, 8)
    part = 2 * d.int(1, size // 2) if d.chance(30) else 0
    flat = d.chance(60) or part
    x = d.value([t], 3, 4, shape=[b, s, heads * size] if flat else [b, heads, s, size], fresh=50)
    places = d.leaf(I64, [b, s], 0, 7) if d.chance(60) else d.leaf(I64, [1], 0, 2)
    cache = [8, (part or size) // 2]
    add(d, op, [x, places, d.leaf(t, cache), d.leaf(t, cache)], interleaved=d.pick((None, 0, 1)), rotary_embedding_dim=part or None,
        num_heads=heads if part or d.chance(50) and flat else None)


@generator("GroupQueryAttention", weight=4)
def group_query(d, op):
    t = d.dtype(HALVES)
    b, heads, size = d.int(1, 3), d.pick((1, 2, 4, 6)), 8 * d.int(1, 3) if d.chance(50) else 2 * d.int(1, 8)
    groups = d.pick([g for g in (1, 2, 3, 4, 6) if heads % g == 0])
    first = d.chance(50)                             # a prompt, or more tokens after what the caches hold
    s, past = (d.int(1, 9), 0) if first else (d.pick((1, 1, 2, 5)), d.int(1, 9))
    rotated = d.chance(50)
    seq = [past + s - 1] * b                         # shorter ones: what comes of rows that no sequence has is not determined
    if not first and s == 1 and d.chance(30):
        seq = [past] + [d.int(0, past) for _ in range(b - 1)]
    packed = d.chance(30)
    width = heads * size + 2 * groups * size
    q = d.leaf(t, [b, s, width if packed else heads * size])
    kv = [None, None] if packed else [d.leaf(t, [b, s, groups * size]) for _ in range(2)]
    room = past
    caches = [d.leaf(t, [b, groups, room, size], constant=False) for _ in range(2)] if past else [None, None]
    tables = [d.leaf(t, [24, size // 2]) for _ in range(2)] if rotated else [None, None]
    extra = d.leaf(t, [d.pick((1, b)), d.pick((1, heads)), s, past + s]) if d.chance(25) else None
    places = d.leaf(I64, [b, s], 0, 11) if rotated and d.chance(20) else None
    sink = d.leaf(t, [heads]) if d.chance(15) else None
    lengths, total = d.given(np.array(seq, np.int32), False), d.given(np.array(past + s, np.int32), d.chance(30))
    add(d, op, [q, *kv, *caches, lengths, total, *tables, places, extra, sink], 3,
        num_heads=heads, kv_num_heads=groups, do_rotary=int(rotated), rotary_interleaved=d.pick((None, 0, 1)), scale=d.pick((None, 0.3)),
        local_window_size=d.pick((None, None, -1, d.int(1, 6))), softcap=d.pick((None, None, 2.0)), smooth_softmax=d.pick((None, None, None, 1)))


# ---- bytes ----------------------------------------------------------------------------------------------------------

def quantized(d, lo=1, hi=4, least=1, limit=2000, types=(U8, I8)):
    t = d.pick(types)
    return d.value([t], lo, hi, least, limit=limit)


def parameters(d, t):
    return [scale(d, F32), zero_point(d, t)]


@generator("QLinearAdd", "QLinearMul", weight=3)
def linear_binary(d, op):
    x = quantized(d, 0, 4, 0)
    shape = [1 if d.chance(25) else n for n in x.shape][d.int(0, x.rank) if d.chance(30) else 0:]
    y = d.value([x.dtype], len(shape), len(shape), 0, shape=shape, fresh=60)
    pair = [(x, y), (y, x)][d.int(0, 1)]
    add(d, op, [v for a in pair for v in (a, *parameters(d, x.dtype))] + parameters(d, x.dtype))


@generator("QLinearSigmoid", "QLinearLeakyRelu")
def linear_unary(d, op):
    x = quantized(d, 0, 4, 0)
    add(d, op, [x, *parameters(d, x.dtype), *parameters(d, x.dtype)], alpha=d.pick((None, 0.3, 0.0, -0.5)) if op == "QLinearLeakyRelu" else None)


@generator("QLinearSoftmax")
def linear_softmax(d, op):
    x = quantized(d, 1, 4)
    zero = d.given(np.array(0 if x.dtype == U8 else -128, x.dtype))
    add(d, op, [x, *parameters(d, x.dtype), d.given(np.array(1 / 256, np.float32)), zero], axis=d.axis(x.rank), opset=d.pick((11, 13)))


@generator("QLinearAveragePool", "QLinearGlobalAveragePool", "NhwcMaxPool", weight=2)
def linear_pool(d, op):
    x = quantized(d, 4, 4) if op != "NhwcMaxPool" else quantized(d, 3, 5)
    last = op == "NhwcMaxPool" or d.chance(50)
    image = x.shape[1:-1] if last else x.shape[2:]
    if op == "QLinearGlobalAveragePool":
        add(d, op, [x, *parameters(d, x.dtype), *parameters(d, x.dtype)], channels_last=int(last))
        return
    kernel = [d.int(1, 3) for _ in image]
    given = window(d, len(image), image, kernel) | {"kernel_shape": kernel}
    if op == "NhwcMaxPool":
        add(d, op, [x], **given, ceil_mode=d.pick((None, 0, 1)))
        return
    if any(p >= k for p, k in zip(given.get("pads", ()), kernel * 2)):
        raise Refused("a window of padding alone")
    given.pop("dilations", None)
    add(d, op, [x, *parameters(d, x.dtype), *parameters(d, x.dtype)], **given, channels_last=int(last), ceil_mode=d.pick((None, 0, 1)),
        count_include_pad=d.pick((None, 0, 1)))


@generator("QLinearConcat", weight=2)
def linear_concat(d, op):
    x = quantized(d, 1, 4)
    axis, parts = d.axis(x.rank), [x]
    for _ in range(d.int(0, 3)):
        shape = x.shape
        shape[axis] = d.extent()
        parts.append(d.value([x.dtype], x.rank, x.rank, shape=shape, fresh=50))
    add(d, op, parameters(d, x.dtype) + [v for p in parts for v in (p, *parameters(d, x.dtype))], axis=axis)


@generator("QLinearReduceMean")
def linear_mean(d, op):
    x = quantized(d, 1, 4)
    add(d, op, [x, *parameters(d, x.dtype), *parameters(d, x.dtype)], axes=d.axes(x.rank, 1), keepdims=d.int(0, 1))


@generator("QLinearWhere")
def linear_where(d, op):
    x = quantized(d, 1, 4)
    y = d.value([x.dtype], x.rank, x.rank, shape=[1 if d.chance(20) else n for n in x.shape], fresh=60)
    condition = d.leaf(BOOL, [1 if d.chance(20) else n for n in x.shape])
    add(d, op, [condition, x, *parameters(d, x.dtype), y, *parameters(d, x.dtype), *parameters(d, x.dtype)])


@generator("QLinearConvContrib", weight=2)
def linear_conv(d, op):
    a, n = d.pick((U8, I8)), d.pick((1, 2, 2, 3))
    x = d.value([a], n + 2, n + 2, 1, limit=2000)
    last = d.chance(70)
    c, image = (x.shape[-1], x.shape[1:-1]) if last else (x.shape[1], x.shape[2:])
    groups = c if d.chance(30) else 1
    out = c * d.pick((1, 1, 2)) if groups > 1 else d.extent()
    kernel = [d.int(1, min(3, e)) for e in image]
    w = d.leaf(I8 if a == I8 else d.pick((U8, I8)), [out, c // groups, *kernel], constant=True)
    per = (out,) if d.chance(40) else ()
    bias = d.leaf(I32, [out], -50, 50, True) if d.chance(50) else None
    zero = d.given(np.zeros(per, w.dtype)) if per or w.dtype == I8 else zero_point(d, w.dtype)
    add(d, op, [x, *parameters(d, a), w, scale(d, F32, per), zero, *parameters(d, a), bias], group=groups, channels_last=int(last),
        **window(d, n, image, kernel))


@generator("QuantizeLinearContrib", "DequantizeLinearContrib")
def linear(d, op):
    x = d.value([F32], 0, 4, 0) if op.startswith("Q") else quantized(d, 0, 4, 0, types=(U8, I8, I32, I16))
    t = d.pick((U8, I8, I16)) if op.startswith("Q") else x.dtype
    axis = d.axis(x.rank) if x.rank and d.chance(40) else None
    per = () if axis is None else (x.shape[axis],)
    zero = d.given(np.zeros(per, t)) if t == I32 else zero_point(d, t, per)
    add(d, op, [x, scale(d, F32, per), zero], axis=axis)


@generator("QGemm", weight=2)
def quantized_gemm(d, op):
    a, b = d.pick((U8, I8)), d.pick((U8, I8))
    x = d.value([a], 2, 2, 1, limit=3000)
    ta, tb, n = d.int(0, 1), d.int(0, 1), d.extent()
    m, k = x.shape[::-1] if ta else x.shape
    per = (n,) if d.chance(30) else ()
    out = [scale(d, F32), zero_point(d, a)] if d.chance(60) else []
    bias = d.leaf(I32, d.pick(([n], [m, n], [1, n])), -99, 99) if d.chance(50) else None
    w = d.leaf(b, [n, k] if tb else [k, n], constant=d.chance(80))
    add(d, op, [x, *parameters(d, a), w, scale(d, F32, per), zero_point(d, b, per), bias, *out], transA=ta, transB=tb, alpha=d.pick((None, 0.5)))


@generator("MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulInteger16", weight=2)
def scaled_matmul(d, op):
    a, b = (I16, I16) if op == "MatMulInteger16" else (d.pick((U8, I8)), d.pick((U8, I8)))
    x = d.value([F32 if op == "DynamicQuantizeMatMul" else a], 2, 3, 1, limit=2000)
    k, n = x.shape[-1], d.extent()
    w = d.leaf(b, [k, n], constant=d.chance(80))
    per = (n,) if d.chance(40) else ()
    zero, bias = maybe(d, 60, lambda: zero_point(d, b, per)), maybe(d, 50, lambda: d.leaf(F32, [n]))
    if op == "MatMulInteger16":
        add(d, op, [x, w])
    elif op == "DynamicQuantizeMatMul":
        add(d, op, [x, w, scale(d, F32, per), zero, bias])
    else:
        add(d, op, [x, w, scale(d, F32), scale(d, F32, per), maybe(d, 60, lambda: zero_point(d, a)), zero, bias])


@generator("DynamicQuantizeLSTM")
def quantized_lstm(d, op):
    x = d.value([F32], 3, 3, 1, limit=800)
    steps, batch, wide = x.shape
    hidden, n, t = d.int(1, 9), d.int(1, 2), d.pick((U8, I8))
    per = (n, 4 * hidden) if d.chance(40) else (n,)
    weights = [d.leaf(t, [n, k, 4 * hidden], -90 if t == I8 else 20, 90 if t == I8 else 220, True) for k in (wide, hidden)]
    zero = np.zeros(per, t) + t.type(0 if t == I8 else 128)
    dequantizers = [v for _ in weights for v in (d.leaf(F32, list(per), 0.001, 0.01, True), d.given(zero))]
    state = lambda: maybe(d, 30, lambda: d.leaf(F32, [n, batch, hidden]))
    bias, lens = maybe(d, 60, lambda: d.leaf(F32, [n, 8 * hidden], -0.5, 0.5)), maybe(d, 20, lambda: d.leaf(I32, [batch], 1, steps))
    add(d, op, [x, *weights, bias, lens, state(), state(), None, *dequantizers], d.pick(([True], [True, True, True], [False, True])),
        hidden_size=hidden, direction="bidirectional" if n == 2 else d.pick(("forward", "reverse")))


# ---- packed weights -------------------------------------------------------------------------------------------------

def raw(d, shape):
    return d.given(d.rng.integers(0, 256, shape).astype(np.uint8))


def matmul_bits_of(d, k, n, shape):
    """The product by packed weights; shape(d, k): the dims of the other operand."""
    t, bits, block = d.dtype(HALVES), d.pick((4, 4, 4, 8, 2)), d.pick((16, 32, 64, 128))
    blocks = -(-k // block)
    x = d.leaf(t, shape(d, k), -2, 2)
    floats = d.chance(20)
    zeros = None if d.chance(40) else d.leaf(t, [n, blocks], 0, 2 ** bits - 1, True) if floats else raw(d, [n, -(-blocks * bits // 8)])
    scales = d.given(d.rng.uniform(-0.05, 0.05, (n, blocks)).astype(t))
    add(d, "MatMulNBits", [x, raw(d, [n, blocks, block * bits // 8]), scales, zeros, None, maybe(d, 30, lambda: d.leaf(t, [n], constant=True))],
        K=k, N=n, bits=bits, block_size=block, accuracy_level=d.pick((None, None, 0, 1)))


@generator("MatMulNBits", weight=3)
def matmul_bits(d, op):
    matmul_bits_of(d, d.int(1, 70), d.extent(), lambda d, k: [*d.shape(0, 2, 1, 30), k])


@generator("GatherBlockQuantized")
def gather_blocks(d, op):
    bits, block, t = d.pick((4, 8)), 16, d.dtype(HALVES)
    rows, blocks = d.int(1, 9), d.int(1, 3)
    wide = block * blocks * bits // 8
    zeros = raw(d, [rows, -(-blocks * bits // 8)]) if d.chance(50) else None
    indices = d.leaf(d.pick((I32, I64)), d.shape(0, 2, 1, 20), -rows if d.chance(20) else 0, rows - 1)
    add(d, op, [raw(d, [rows, wide]), indices, d.leaf(t, [rows, blocks], constant=True), zeros], gather_axis=0, quantize_axis=1, block_size=block,
        bits=bits)


@generator("MoE", "QMoE", weight=2)
def experts(d, op):
    rows, wide, inner, n = d.int(1, 9), d.pick((16, 32)), d.pick((16, 32)), d.int(2, 5)
    name = d.pick(("relu", "gelu", "silu", "swiglu", "identity"))
    gate = name == "swiglu"
    given = {"activation_type": name, "k": d.int(1, min(2, n)), "normalize_routing_weights": d.int(0, 1)}
    if gate:
        given |= {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0}
    first = inner * (2 if gate else 1)
    x, router = d.leaf(F32, [rows, wide]), d.leaf(F32, [rows, n])
    bias = [maybe(d, 50, lambda s=s: d.leaf(F32, [n, s], constant=True)) for s in (first, wide)]
    if op == "MoE":
        add(d, op, [x, router, d.leaf(F32, [n, first, wide], constant=True), bias[0], d.leaf(F32, [n, wide, inner], constant=True), bias[1]], **given)
        return
    bits = d.pick((4, 8))
    scales = [d.given(d.rng.uniform(0.001, 0.05, (n, s)).astype(np.float32)) for s in (first, wide)]
    add(d, op, [x, router, raw(d, [n, first, wide * bits // 8]), scales[0], bias[0], raw(d, [n, wide, inner * bits // 8]), scales[1], bias[1]],
        expert_weight_bits=bits, **given)


# ---- states ---------------------------------------------------------------------------------------------------------

@generator("CausalConvWithState")
def causal_conv(d, op):
    b, c, n, k = d.int(1, 3), d.extent(), d.int(1, 9), d.int(1, 4)
    past = d.leaf(F32, [b, c, k - 1]) if d.chance(50) and k > 1 else None
    bias = maybe(d, 50, lambda: d.leaf(F32, [c]))
    add(d, op, [d.leaf(F32, [b, c, n]), d.leaf(F32, [c, 1, k]), bias, past], 2, activation=d.pick((None, "none", "silu")))


@generator("LinearAttention")
def linear_attention(d, op):
    b, s, heads, size = d.int(1, 2), d.int(1, 6), d.pick((1, 2, 4)), d.pick((1, 2, 4, 8))
    groups = heads
    rule = d.pick(("linear", "gated", "delta", "gated_delta"))
    q, k = (d.leaf(F32, [b, s, h * size], -1, 1) for h in (heads, groups))
    v = d.leaf(F32, [b, s, groups * size], -1, 1)
    decay = d.leaf(F32, [b, s, d.pick((groups, groups * size))], -1, 0) if "gated" in rule else None
    beta = d.leaf(F32, [b, s, groups], 0, 1) if "delta" in rule else None
    add(d, op, [q, k, v, maybe(d, 50, lambda: d.leaf(F32, [b, groups, size, size], -1, 1)), decay, beta], 2, q_num_heads=heads, kv_num_heads=groups,
        update_rule=rule, scale=d.pick((None, 0.5)))


# ---- the same as ONNX's ---------------------------------------------------------------------------------------------

@generator("PadContrib")
def pad(d, op):
    x = d.value([F32], 1, 4, 1)
    add(d, op, [x, d.const([d.int(-1 if d.chance(20) else 0, 2) for _ in range(2 * x.rank)], constant=True), maybe(d, 40, lambda: d.leaf(F32, []))],
        mode=d.pick((None, "constant", "edge", "reflect")))


@generator("TriluContrib")
def trilu(d, op):
    x = d.value([F32, I64], 2, 4, 0)
    add(d, op, [x, maybe(d, 60, lambda: d.const(d.int(-4, 4)))], upper=d.pick((None, 0, 1)))


@generator("GatherNDContrib")
def gather_nd(d, op):
    x = d.value([F32, I32], 1, 4, 1)
    depth = d.int(1, x.rank)
    lead = d.shape(0, 2, 1, 12)
    index = np.stack([d.rng.integers(0, n, lead) for n in x.shape[:depth]], -1)
    add(d, op, [x, d.given(index.astype(np.int64), d.chance(50))])

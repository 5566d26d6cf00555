"""Products, convolutions, normalizations and recurrent layers."""
import numpy as np

from fuzz.ort.draw import Refused, generator
from fuzz.ort.elements import F32, I32, I64, is_float


@generator("MatMul", weight=4)
def matmul(d, op):
    t = d.dtype(d.types(op))
    x = d.value([t], 1, 4, 0, limit=2000)
    k = x.shape[-1]
    kind = d.int(0, 4)
    if kind == 0:
        other = [k]
    elif kind <= 2 or x.rank < 3:
        other = [k, d.extent(0)]
    else:
        other = [1 if d.chance(30) else n for n in x.shape[:-2]][d.int(0, x.rank - 2):] + [k, d.extent(0)]
    y = d.value([t], len(other), len(other), 0, shape=other, fresh=50)
    if y.rank == 2 and x.rank >= 2 and d.chance(25):
        d.node(op, [d.leaf(t, [d.extent(0), x.shape[-2]]), x])
    else:
        d.node(op, [x, y])


@generator("Gemm", weight=3)
def gemm(d, op):
    t = d.dtype(d.types(op))
    x = d.value([t], 2, 2, 0, limit=2000)
    ta, tb = d.int(0, 1), d.int(0, 1)
    m, k = x.shape[::-1] if ta else x.shape
    n = d.extent(0)
    w = d.leaf(t, [n, k] if tb else [k, n])
    c = None
    if d.version(op) < 11 or d.chance(70):
        c = d.leaf(t, d.pick(([n], [m, n], [1, n], [m, 1], [], [1])))
    given = {k: v for k, v in (("transA", ta), ("transB", tb)) if v or d.chance(20)}
    scale = (1, 2, 3) if not is_float(t) else (1.0, 0.5, -1.5, 0.0)
    given |= {k: float(d.pick(scale)) for k in d.some(("alpha", "beta"))}
    d.node(op, [x, w, c], **given)


@generator("Einsum")
def einsum(d, op):
    t = d.dtype([t for t in d.types(op)])
    equation = d.pick(("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "bhid,bhjd->bhij", "i,j->ij", "ij,ij->ij", "...ij,jk->...ik",
                       "bij,kj->bik", "ij,j", "ijk->kj", "abc,cd,de->abe"))
    left = equation.split("->")[0].split(",")
    size = {c: d.int(1, 6) for c in "abcdehijk"}
    lead = d.shape(0, 2, 1, 8)
    operands = []
    for term in left:
        shape = [n for c in term.replace("...", ".") for n in (lead if c == "." else [size[c]])]
        operands.append(d.value([t], len(shape), len(shape), 1, shape=shape, fresh=40))
    d.node(op, operands, equation=equation)


def window(d, n, image, kernel):
    """Strides, pads, dilations of a convolution whose window fits."""
    given = {}
    dilations = [d.pick((1, 1, 2)) for _ in range(n)]
    span = [(k - 1) * s + 1 for k, s in zip(kernel, dilations)]
    pads = [d.int(0, 2) for _ in range(2 * n)]
    auto = d.pick((None, None, None, "SAME_UPPER", "SAME_LOWER", "VALID"))
    if auto:
        given["auto_pad"] = auto
        pads = [0] * 2 * n
    elif d.chance(60):
        given["pads"] = pads
    else:
        pads = [0] * 2 * n
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        dilations, span = [1] * n, kernel
    if any(e + pads[i] + pads[i + n] < s for i, (e, s) in enumerate(zip(image, span))):
        raise Refused("a window larger than what it slides over")
    if d.chance(50):
        given["strides"] = [d.int(1, 3) for _ in range(n)]
    if any(s != 1 for s in dilations) or d.chance(10):
        given["dilations"] = dilations
    if d.chance(60):
        given["kernel_shape"] = kernel
    return given


def image(d, t, n, least=1):
    return d.value([t], n + 2, n + 2, least, limit=3000)


@generator("Conv", weight=4)
def conv(d, op):
    t = d.dtype(d.types(op))
    n = d.pick((1, 2, 2, 2, 3))
    x = image(d, t, n)
    c = x.shape[1]
    groups = d.pick([g for g in range(1, c + 1) if c % g == 0]) if d.chance(40) else 1
    out = groups * d.pick((1, 2, 3)) if groups > 1 else d.extent()
    kernel = [d.pick((1, 1, 2, 3, 3, 4, 5)) for _ in range(n)] if d.chance(70) else [3] * n
    given = window(d, n, x.shape[2:], kernel)
    w = d.leaf(t, [out, c // groups, *kernel], constant=not d.chance(20))
    b = d.leaf(t, [out], constant=not d.chance(20)) if d.chance(60) else None
    d.node(op, [x, w, b], **given, **({"group": groups} if groups > 1 or d.chance(10) else {}))


@generator("ConvTranspose", weight=2)
def conv_transpose(d, op):
    t = d.dtype(d.types(op))
    n = d.pick((1, 2, 2, 3))
    x = image(d, t, n)
    c = x.shape[1]
    groups = d.pick([g for g in range(1, c + 1) if c % g == 0]) if d.chance(30) else 1
    kernel = [d.int(1, 4) for _ in range(n)]
    strides = [d.int(1, 3) for _ in range(n)]
    given = {"strides": strides} if d.chance(70) else {}
    strides = given.get("strides", [1] * n)
    if d.chance(40):
        given["pads"] = [d.int(0, min(1, k - 1)) for k in kernel * 2]
    if d.chance(30):
        given["output_padding"] = [d.int(0, s - 1) for s in strides]
    if d.chance(20):
        given["dilations"] = [d.int(1, 2) for _ in range(n)]
    if d.chance(50):
        given["kernel_shape"] = kernel
    w = d.leaf(t, [c, d.int(1, 6), *kernel], constant=not d.chance(20))
    b = d.leaf(t, [w.shape[1] * groups]) if d.chance(50) else None
    d.node(op, [x, w, b], **given, **({"group": groups} if groups > 1 else {}))


@generator("DeformConv")
def deform_conv(d, op):
    t = d.dtype(d.types(op))
    n, c, h, w, k = d.int(1, 2), d.int(1, 3), d.int(3, 7), d.int(3, 7), d.int(1, 3)
    out = d.int(1, 4)
    oh, ow = h - k + 1, w - k + 1
    x, weight = d.value([t], 4, 4, shape=[n, c, h, w], fresh=40), d.leaf(t, [out, c, k, k])
    offset = d.leaf(t, [n, 2 * k * k, oh, ow], -1, 1)
    b = d.leaf(t, [out]) if d.chance(50) else None
    mask = d.leaf(t, [n, k * k, oh, ow], 0, 1) if d.chance(50) else None
    d.node(op, [x, weight, offset, b, mask], kernel_shape=[k, k], pads=[0] * 4)


@generator("BatchNormalization", weight=2)
def batch_norm(d, op):
    t = d.dtype(d.types(op))
    x = d.value([t], 2, 5, 1)
    c = [x.shape[1]]
    given = {"epsilon": d.pick((1e-5, 1e-3, 0.1))} if d.chance(60) else {}
    d.node(op, [x, d.leaf(t, c, constant=True), d.leaf(t, c, constant=True), d.leaf(t, c, constant=True), d.leaf(t, c, 0.1, 2, constant=True)],
           **given)


@generator("InstanceNormalization")
def instance_norm(d, op):
    t = d.dtype(d.types(op))
    x = d.value([t], 3, 5, 1)
    c = [x.shape[1]]
    d.node(op, [x, d.leaf(t, c), d.leaf(t, c)], **({"epsilon": 1e-3} if d.chance(50) else {}))


@generator("GroupNormalization")
def group_norm(d, op):
    t = d.dtype(d.types(op))
    x = d.value([t], 3, 5, 1)
    c = x.shape[1]
    g = d.pick([k for k in range(1, c + 1) if c % k == 0])
    n = [g if d.version(op) < 21 else c]
    d.node(op, [x, d.leaf(t, n), d.leaf(t, n)], num_groups=g, **({"epsilon": 1e-3} if d.chance(50) else {}))


@generator("LayerNormalization", "RMSNormalization")
def layer_norm(d, op):
    t = d.dtype(d.types(op))
    x = d.value([t], 1, 4, 1)
    axis = d.axis(x.rank)
    shape = x.shape[axis:] if axis < 0 else x.shape[axis:]
    given = {} if d.chance(20) and axis in (-1, x.rank - 1) else {"axis": axis}
    if d.chance(50):
        given["epsilon"] = d.pick((1e-3, 1e-5, 0.5))
    bias = d.leaf(t, shape) if op == "LayerNormalization" and d.chance(60) else None
    outputs = d.pick(([True], [True], [True, True, True], [True, False, True])) if op == "LayerNormalization" and t == F32 else [True]
    d.node(op, [x, d.leaf(t, shape), bias], outputs, **given)


@generator("LRN")
def lrn(d, op):
    x = d.value(d.types(op), 4, 4, 1)
    given = {k: v for k, v in (("alpha", 0.01), ("beta", 0.5), ("bias", 2.0)) if d.chance(50)}
    d.node(op, [x], size=d.pick((1, 3, 5)), **given)


@generator("LpNormalization")
def lp_norm(d, op):
    x = d.value(d.types(op), 1, 4, 1)
    d.node(op, [x], **({"axis": d.axis(x.rank)} if d.chance(80) else {}), **({"p": d.int(1, 2)} if d.chance(60) else {}))


@generator("MeanVarianceNormalization")
def mvn(d, op):
    x = d.value(d.types(op), 4, 4, 1)
    d.node(op, [x], **({"axes": d.pick(([0, 2, 3], [2, 3], [1, 2, 3], [0, 1, 2, 3]))} if d.chance(60) else {}))


@generator("RNN", "GRU", "LSTM")
def recurrent(d, op):
    t = d.dtype(d.types(op))
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    layout = 0
    x = d.value([t], 3, 3, 1, limit=1500)
    steps, batch, size = x.shape
    hidden = d.int(1, 9)
    direction = d.pick((None, "forward", "reverse", "bidirectional"))
    n = 2 if direction == "bidirectional" else 1
    w, r = d.leaf(t, [n, gates * hidden, size], -0.7, 0.7, True), d.leaf(t, [n, gates * hidden, hidden], -0.7, 0.7, True)
    b = d.leaf(t, [n, 2 * gates * hidden], -0.5, 0.5) if d.chance(60) else None
    lens = d.leaf(I32, [batch], 1, steps) if d.chance(30) else None
    h = d.leaf(t, [n, batch, hidden]) if d.chance(40) else None
    c = d.leaf(t, [n, batch, hidden]) if op == "LSTM" and d.chance(40) else None
    p = d.leaf(t, [n, 3 * hidden], -0.5, 0.5) if op == "LSTM" and d.chance(25) else None
    given = {"hidden_size": hidden} | ({"direction": direction} if direction else {}) | ({"layout": 0} if layout else {})
    if op == "GRU" and d.chance(50):
        given["linear_before_reset"] = d.int(0, 1)
    if op == "LSTM" and d.chance(15):
        given["input_forget"] = d.int(0, 1)
    if d.chance(15):
        given["clip"] = d.pick((0.5, 3.0))
    if d.chance(25):
        acts = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[op]
        given["activations"] = [d.pick((a, a, "Relu", "Sigmoid", "Tanh", "Softsign")) for a in acts * n]
    outputs = d.pick(([True, True], [True], [False, True]) + (([True, True, True], [False, False, True]) if op == "LSTM" else ()))
    d.node(op, [x, w, r, b, lens, h, c, p], outputs, **given)


@generator("Det")
def det(d, op):
    n = d.int(1, 4)
    t = d.dtype(d.types(op))
    d.node(op, [d.leaf(t, [*d.shape(0, 2, 1, 6), n, n])])


@generator("GridSample")
def grid_sample(d, op):
    t = d.dtype(d.types(op, "T1"))
    x = image(d, t, 2)
    grid = d.leaf(F32, [x.shape[0], d.int(1, 5), d.int(1, 5), 2], -1.3, 1.3)
    modes = ("linear", "nearest", "cubic") if d.version(op) >= 20 else ("bilinear", "nearest", "bicubic")
    d.node(op, [x, grid], **d.attributes(op, mode=d.pick((None, *modes)), padding_mode=d.pick((None, "zeros", "border", "reflection")),
                                         align_corners=d.pick((None, 0, 1))))


@generator("AffineGrid")
def affine_grid(d, op):
    t = d.dtype(d.types(op, "T1"))
    n, rank = d.int(1, 3), d.pick((2, 3))
    size = [n, d.int(1, 3)] + [d.int(1, 5) for _ in range(rank)]
    d.node(op, [d.leaf(t, [n, rank, rank + 1]), d.const(size)], **({"align_corners": d.int(0, 1)} if d.chance(60) else {}))


@generator("RoiAlign")
def roi_align(d, op):
    t = d.dtype(d.types(op, "T1"))
    x = image(d, t, 2)
    n = d.int(1, 4)
    corner = d.rng.uniform(0, 4, (n, 2))
    rois = d.given(np.concatenate([corner, corner + d.rng.uniform(0.5, 4, (n, 2))], 1).astype(t), d.chance(40))
    index = d.leaf(I64, [n], 0, x.shape[0] - 1)
    given = d.attributes(op, mode=d.pick((None, "avg", "max")), output_height=d.int(1, 3), output_width=d.int(1, 3),
                         sampling_ratio=d.int(1, 3), spatial_scale=d.pick((None, 1.0, 0.5)),
                         coordinate_transformation_mode=d.pick((None, "half_pixel", "output_half_pixel")))
    d.node(op, [x, rois, index], **given)


@generator("MaxRoiPool")
def max_roi_pool(d, op):
    x = image(d, F32, 2, 4)
    n = d.int(1, 3)
    rois = np.array([[d.int(0, x.shape[0] - 1), d.int(0, 2), d.int(0, 2), d.int(2, 5), d.int(2, 5)] for _ in range(n)], np.float32)
    d.node(op, [x, d.given(rois, d.chance(40))], pooled_shape=[d.int(1, 3), d.int(1, 3)], **({"spatial_scale": 0.5} if d.chance(40) else {}))


@generator("Col2Im")
def col2im(d, op):
    t = d.dtype(d.types(op))
    h, w, k = d.int(3, 6), d.int(3, 6), d.int(1, 3)
    x = d.leaf(t, [d.int(1, 2), d.int(1, 2) * k * k, (h - k + 1) * (w - k + 1)])
    d.node(op, [x, d.const([h, w], constant=True), d.const([k, k], constant=True)])


@generator("NonMaxSuppression")
def nms(d, op):
    b, c, n = d.int(1, 2), d.int(1, 3), d.int(1, 9)
    corner = d.rng.uniform(0, 4, (b, n, 2))
    boxes = d.given(np.concatenate([corner, corner + d.rng.uniform(0.5, 4, (b, n, 2))], 2).astype(np.float32), d.chance(30))
    scores = d.given(d.rng.permutation(b * c * n).reshape(b, c, n).astype(np.float32) / 64, d.chance(30))
    limit = d.const([d.int(0, 5)]) if d.chance(85) else None
    iou = d.const([d.pick((0.0, 0.3, 0.5))], np.float32) if d.chance(70) else None
    score = d.const([d.pick((0.0, 0.3))], np.float32) if d.chance(50) else None
    d.node(op, [boxes, scores, limit, iou, score], **({"center_point_box": d.int(0, 1)} if d.chance(40) else {}))


@generator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d, op):
    t = d.dtype(d.types(op))
    x = d.value([t], 2, 4, 1, limit=1000)
    c = x.shape[1]
    target = d.leaf(d.pick((I64, I32)), [x.shape[0], *x.shape[2:]], 0, c - 1)
    weight = d.leaf(t, [c], 0.2, 2) if d.chance(50) else None
    outputs = [True, True] if op == "SoftmaxCrossEntropyLoss" and d.chance(40) else [True]
    d.node(op, [x, target, weight], outputs, **d.attributes(op, reduction=d.pick((None, "none", "sum", "mean")),
                                                              ignore_index=d.pick((None, None, d.int(-1, c)))))


@generator("RotaryEmbedding")
def rotary(d, op):
    t = d.dtype(d.types(op))
    b, s, heads, size = d.int(1, 2), d.int(1, 5), d.int(1, 3), 2 * d.int(1, 4)
    flat = d.chance(50)
    x = d.value([t], 3 if flat else 4, 3 if flat else 4, shape=[b, s, heads * size] if flat else [b, heads, s, size], fresh=40)
    ids = d.leaf(I64, [b, s], 0, 7) if d.chance(60) else None
    shape = [8, size // 2] if ids else [b, s, size // 2]
    given = {"num_heads": heads} if flat else {}
    d.node(op, [x, d.leaf(t, shape), d.leaf(t, shape), ids], **given, **({"interleaved": d.int(0, 1)} if d.chance(60) else {}))


@generator("Attention", weight=2)
def attention(d, op):
    t = d.dtype(d.types(op, "T1"))
    b, q, k, heads, size, vsize = d.int(1, 2), d.int(1, 6), d.int(1, 6), d.pick((1, 2, 4)), d.int(1, 8), d.int(1, 8)
    kv = d.pick([h for h in (1, 2, 4) if heads % h == 0])
    given = {}
    if d.chance(40):
        given |= {"q_num_heads": heads, "kv_num_heads": kv}
        shapes = [[b, q, heads * size], [b, k, kv * size], [b, k, kv * vsize]]
    else:
        shapes = [[b, heads, q, size], [b, kv, k, size], [b, kv, k, vsize]]
    qkv = [d.value([t], len(s), len(s), shape=s, fresh=40) for s in shapes]
    mask = None
    if d.chance(40):
        mask = d.leaf(np.dtype(np.bool_) if d.chance(40) else t, d.pick(([q, k], [b, 1, q, k], [1, heads, q, k])), -2, 2)
    if d.chance(30):
        given["is_causal"] = d.int(0, 1)
    if d.chance(30):
        given["scale"] = d.pick((0.5, 1.0))
    if d.chance(20):
        given["softcap"] = d.pick((0.0, 2.0))
    d.node(op, [*qkv, mask], **given)


@generator("DFT")
def dft(d, op):
    t = d.dtype(d.types(op, "T1"))
    x = d.leaf(t, [d.int(1, 2), d.int(1, 9), d.int(1, 4), d.int(1, 2)])
    given = {k: v for k, v in (("inverse", d.int(0, 1)), ("onesided", d.int(0, 1))) if d.chance(40)}
    if given.get("inverse") and given.get("onesided"):
        given.pop("onesided")
    length = d.const(d.int(1, 12)) if d.chance(30) else None
    if d.version(op) < 20:
        d.node(op, [x, length], **given, **({"axis": d.int(0, 2)} if d.chance(60) else {}))
    else:
        d.node(op, [x, length, d.const(d.pick((0, 1, 2, -2))) if d.chance(60) else None], **given)


@generator("STFT")
def stft(d, op):
    t = d.dtype(d.types(op, "T1"))
    n, frame, step = d.int(8, 20), d.int(2, 8), d.int(1, 4)
    x = d.leaf(t, [d.int(1, 2), n, 1])
    window_ = d.leaf(t, [frame], 0, 1) if d.chance(70) else None
    d.node(op, [x, d.const(step), window_, d.const(frame) if window_ is None or d.chance(40) else None],
           **({"onesided": d.int(0, 1)} if d.chance(60) else {}))


@generator("HannWindow", "HammingWindow", "BlackmanWindow")
def windows(d, op):
    given = {"periodic": d.int(0, 1)} if d.chance(60) else {}
    d.node(op, [d.const(d.int(1, 12), np.int32 if d.chance(40) else np.int64)], **given)


@generator("MelWeightMatrix")
def mel(d, op):
    d.node(op, [d.const(v, t) for v, t in ((d.int(2, 8), np.int64), (d.pick((16, 32)), np.int64), (8000, np.int64), (0.0, np.float32),
                                           (d.pick((2000.0, 4000.0)), np.float32))])

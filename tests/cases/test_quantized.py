"""Integer products, compiled, beside ONNX Runtime: MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv and
DynamicQuantizeLinear over random shapes, signs, zero points, pads and groups. Integers agree exactly."""
import re

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from support.artifact import Artifact
from support.cpu import saturates
from support.tool import mcc, save

TYPES = {np.dtype(np.uint8): T.UINT8, np.dtype(np.int8): T.INT8, np.dtype(np.int32): T.INT32, np.dtype(np.float32): T.FLOAT}


def port(name, a, shape=None):
    return h.make_tensor_value_info(name, TYPES[a.dtype], list(a.shape) if shape is None else shape)


def draw(rng, dtype, shape):
    """All values; signed ones of 7 bits where the reference would saturate sums of two products."""
    info = np.iinfo(dtype)
    least, most = (-64, 63) if dtype == np.int8 and saturates() else (info.min, info.max)
    return rng.integers(least, most + 1, shape).astype(dtype)


def both(folder, nodes, feeds, constants, outputs, opset=17, symbolic=False, march="native"):
    """What ONNX Runtime and the compiled network give for the feeds; symbolic: every dim of the first feed is open."""
    ports = [port(k, a, [f"d{i}" for i in range(a.ndim)] if symbolic and j == 0 else None) for j, (k, a) in enumerate(feeds.items())]
    outs = [h.make_tensor_value_info(n, t, None) for n, t in outputs]
    path = save(folder / "q.onnx", nodes, ports, outs, constants, opset)
    want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
    done = mcc("-q", "-j1", f"-march={march}", path, "-o", folder / "q.so")
    assert done.returncode == 0, done.stderr
    with Artifact(folder / "q.so") as a:
        return want, a.run(list(feeds.values()))


def equal(want, got):
    for w, g in zip(want, got, strict=True):
        assert w.dtype == g.dtype and w.shape == g.shape
        assert (w == g).all(), f"{(w != g).sum()} of {w.size} differ, first {w[w != g][0]} and {g[w != g][0]}"


def zero(rng, dtype, shape=()):
    return draw(rng, dtype, shape) if rng.integers(4) else np.zeros(shape, dtype)


MARCH = ["native", "x86-64-v3", "native", "x86-64-v2"]


@pytest.mark.parametrize("seed", range(24))
def test_matmul_integer(seed, tmp_path):
    rng = np.random.default_rng(seed)
    a, b = (rng.choice([np.uint8, np.int8]) for _ in range(2))
    m, k, n = (int(x) for x in rng.integers(1, [12, 70, 70]))
    lead = (int(rng.integers(1, 3)),) * int(rng.integers(2))
    x, w = draw(rng, a, (*lead, m, k)), draw(rng, b, (k, n))
    za, zb = zero(rng, a), zero(rng, b, (n,) if rng.integers(2) else ())
    fixed = {"w": w, "zb": zb} if seed % 3 else {}
    feeds = {"x": x, "za": za} if seed % 2 else {"x": x}
    if not fixed:
        feeds |= {"w": w, "zb": zb}
    node = h.make_node("MatMulInteger", ["x", "w", "za" if "za" in feeds else "", "zb"], ["y"])
    equal(*both(tmp_path, [node], feeds, fixed, [("y", T.INT32)], symbolic=bool(seed % 5 == 0), march=MARCH[seed % 4]))


def conv_case(rng):
    """(x shape, w shape, attributes) of a convolution."""
    spatial = int(rng.integers(1, 3))
    groups = int(rng.choice([1, 1, 1, 2]))
    ic, oc = int(rng.choice([1, 2, 3, 4, 7, 16, 19, 40])), int(rng.choice([1, 2, 5, 16, 24, 35]))
    kernel = [int(v) for v in rng.integers(1, 4, spatial)]
    size = [int(v) for v in rng.integers(6, 14, spatial)]
    attrs = {"kernel_shape": kernel, "strides": [int(v) for v in rng.integers(1, 3, spatial)],
             "dilations": [int(v) for v in rng.integers(1, 3, spatial)], "group": groups}
    if rng.integers(3):
        attrs["pads"] = [int(v) for v in rng.integers(0, 3, 2 * spatial)]
    return (int(rng.integers(1, 3)), ic * groups, *size), (oc * groups, ic, *kernel), attrs


@pytest.mark.parametrize("seed", range(16))
def test_conv_integer(seed, tmp_path):
    rng = np.random.default_rng(100 + seed)
    xs, ws, attrs = conv_case(rng)
    x, w = draw(rng, np.uint8, xs), draw(rng, np.uint8, ws)
    za, zb = zero(rng, np.uint8), zero(rng, np.uint8)
    node = h.make_node("ConvInteger", ["x", "w", "za", "zb"], ["y"], **attrs)
    feeds = {"x": x, "za": za} if seed % 2 else {"x": x, "w": w}
    fixed = {k: v for k, v in {"w": w, "za": za, "zb": zb}.items() if k not in feeds}
    equal(*both(tmp_path, [node], feeds, fixed, [("y", T.INT32)], march=MARCH[seed % 4]))


@pytest.mark.parametrize("seed", range(20))
def test_qlinear_conv(seed, tmp_path):
    rng = np.random.default_rng(200 + seed)
    xs, ws, attrs = conv_case(rng)
    a, b = ((np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8))[seed % 3]
    x, w = draw(rng, a, xs), draw(rng, b, ws)
    per_channel = b == np.int8 and seed % 2
    scale = lambda shape, to: rng.uniform(0.5 * to, to, shape).astype(np.float32)
    steps = np.sqrt(np.prod(ws[1:])) * 74 * 74
    fixed = {"sx": scale((), 0.1), "zx": zero(rng, a), "w": w, "sw": scale((ws[0],) if per_channel else (), 0.1),
             "zw": np.zeros((ws[0],) if per_channel else (), b) if b == np.int8 else zero(rng, b),
             "sy": np.float32(0.01 * steps / 60), "zy": zero(rng, a), "bias": rng.integers(-9999, 9999, ws[0]).astype(np.int32)}
    node = h.make_node("QLinearConv", ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "bias"], ["y"], **attrs)
    fixed = {k: np.asarray(v) for k, v in fixed.items()}
    equal(*both(tmp_path, [node], {"x": x}, fixed, [("y", TYPES[np.dtype(a)])], march=MARCH[seed % 4]))


@pytest.mark.parametrize("march", ["native", "x86-64-v4", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("kernel, stride, dilation, pad", [(3, 1, 1, 1), (5, 2, 1, 2), (2, 1, 2, 0), (7, 1, 1, 2), (1, 2, 1, 0)])
def test_depthwise(march, kernel, stride, dilation, pad, tmp_path):
    """Taps in groups of four, channels in blocks of 16 with a rest: one convolution makes the bytes that the depthwise one reads."""
    rng = np.random.default_rng(kernel)
    c, zy = 40, np.uint8(rng.choice([0, 37]))
    one = lambda v: np.asarray(v, np.float32)
    fixed = {"s": one(0.05), "z": np.uint8(3), "w": draw(rng, np.int8, (c, 8, 1, 1)), "sw": one(0.02), "zw": np.int8(0), "sy": one(0.9), "zy": zy,
             "d": draw(rng, np.int8, (c, 1, kernel, kernel)), "sd": one(rng.uniform(0.01, 0.03, c)), "zd": np.zeros(c, np.int8),
             "so": one(1.5 * kernel), "zo": np.uint8(100), "b": rng.integers(-999, 999, c).astype(np.int32)}
    nodes = [h.make_node("QLinearConv", ["x", "s", "z", "w", "sw", "zw", "sy", "zy"], ["t"]),
             h.make_node("QLinearConv", ["t", "sy", "zy", "d", "sd", "zd", "so", "zo", "b"], ["y"], group=c, kernel_shape=[kernel] * 2,
                         strides=[stride] * 2, dilations=[dilation] * 2, pads=[pad] * 4)]
    fixed = {k: np.asarray(v) for k, v in fixed.items()}
    x = draw(rng, np.uint8, (1, 8, 13, 11))
    equal(*both(tmp_path, nodes, {"x": x}, fixed, [("y", T.UINT8)], march=march))


@pytest.mark.parametrize("seed", range(12))
def test_qlinear_matmul(seed, tmp_path):
    rng = np.random.default_rng(300 + seed)
    a, b = ((np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8))[seed % 3]
    m, k, n = (int(x) for x in rng.integers(2, [12, 90, 70]))
    x, w = draw(rng, a, (m, k)), draw(rng, b, (k, n))
    one = lambda v: np.asarray(np.float32(v))
    fixed = {"sx": one(0.02), "zx": zero(rng, a), "w": w, "sw": one(0.03), "zw": zero(rng, b), "sy": one(0.07 * np.sqrt(k)),
             "zy": zero(rng, a)}
    node = h.make_node("QLinearMatMul", ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"], ["y"])
    equal(*both(tmp_path, [node], {"x": x}, fixed, [("y", TYPES[np.dtype(a)])], symbolic=bool(seed % 2), march=MARCH[seed % 4]))


@pytest.mark.parametrize("seed", range(8))
def test_dynamic(seed, tmp_path):
    """DynamicQuantizeLinear into MatMulInteger, scaled back: what quantized transformers hold."""
    rng = np.random.default_rng(400 + seed)
    m, k, n = (int(x) for x in rng.integers(2, [9, 80, 60]))
    x = (rng.standard_normal((m, k)) * rng.uniform(0.1, 9)).astype(np.float32)
    w = draw(rng, np.int8 if seed % 2 else np.uint8, (k, n))
    nodes = [h.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), h.make_node("MatMulInteger", ["q", "w", "z", "zw"], ["i"]),
             h.make_node("Cast", ["i"], ["f"], to=T.FLOAT), h.make_node("Mul", ["f", "s"], ["y"])]
    want, got = both(tmp_path, nodes, {"x": x}, {"w": w, "zw": zero(rng, w.dtype.type)}, [("i", T.INT32), ("y", T.FLOAT), ("q", T.UINT8)],
                     symbolic=bool(seed % 3 == 0))
    equal(want[::2], got[::2])
    np.testing.assert_allclose(got[1], want[1], rtol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_dequantized(seed, tmp_path):
    """Conv and MatMul of dequantized bytes: summed as integers, so as exact as f32 allows."""
    rng = np.random.default_rng(500 + seed)
    a, b = ((np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8))[seed % 3]
    conv = seed % 2
    xs, ws, attrs = conv_case(rng)
    if not conv:
        xs, ws, attrs = (3, int(rng.integers(2, 70))), None, {}
        ws = (xs[1], int(rng.integers(1, 40)))
    axis = 0 if conv else 1
    several = seed % 4 > 1
    x, w = draw(rng, a, xs), draw(rng, b, ws)
    shape = (ws[axis],) if several else ()
    fixed = {"w": w, "sx": np.float32(0.03), "zx": zero(rng, a), "sw": rng.uniform(0.01, 0.05, shape).astype(np.float32),
             "zw": zero(rng, b, shape)}
    nodes = [h.make_node("DequantizeLinear", ["x", "sx", "zx"], ["xf"]), h.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wf"], axis=axis),
             h.make_node("Conv" if conv else "MatMul", ["xf", "wf"], ["y"], **attrs)]
    want, got = both(tmp_path, nodes, {"x": x}, {k: np.asarray(v) for k, v in fixed.items()}, [("y", T.FLOAT)], march=MARCH[seed % 4])
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=2e-5 * np.abs(want[0]).max())


@pytest.mark.parametrize("march", ["native", "x86-64-v4", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("kernel, stride, pad, signed", [(3, 2, 1, False), (2, 2, 0, True), (13, 1, 6, False)])
def test_pool_before_rounding(march, kernel, stride, pad, signed, tmp_path):
    """Bytes are pooled, not the numbers of the convolution; its sums are small whole numbers, so exact."""
    rng = np.random.default_rng(kernel)
    x, w = rng.integers(-4, 5, (1, 6, 19, 17)).astype(np.float32), rng.integers(-3, 4, (40, 6, 3, 3)).astype(np.float32)
    fixed = {"w": w, "s": np.float32(0.75), "z": np.int8(-5) if signed else np.uint8(9)}
    nodes = [h.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), h.make_node("Relu", ["c"], ["r"]),
             h.make_node("MaxPool", ["r"], ["p"], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, ceil_mode=1),
             h.make_node("QuantizeLinear", ["p", "s", "z"], ["y"])]
    fixed = {k: np.asarray(v) for k, v in fixed.items()}
    equal(*both(tmp_path, nodes, {"x": x}, fixed, [("y", T.INT8 if signed else T.UINT8)], march=march))
    text = mcc(tmp_path / "q.onnx", f"-march={march}", "-stop-after=fuse", "-o", "-").stdout
    assert re.search(r": [ui]8\[[0-9, ]+\] = window", text) and not re.search(r": f32\[[0-9, ]+\] = window", text), text


def test_pool_of_an_empty_map(tmp_path):
    """Windows that hold padding alone: what comes of it is rounded after the pool, as it was."""
    nodes = [h.make_node("Neg", ["x"], ["r"]), h.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], pads=[1] * 4),
             h.make_node("Clip", ["p", "lo"], ["c"]), h.make_node("QuantizeLinear", ["c", "s", "z"], ["y"])]
    fixed = {"lo": np.float32(1), "s": np.float32(0.25), "z": np.int8(-9)}
    path = save(tmp_path / "q.onnx", nodes, [port("x", np.zeros((1, 2, 0, 3), np.float32), [1, 2, "h", 3])], [h.make_tensor_value_info("y", T.INT8, None)],
                {k: np.asarray(v) for k, v in fixed.items()}, 17)
    assert mcc("-q", path, "-o", tmp_path / "q.so").returncode == 0
    with Artifact(tmp_path / "q.so") as a:
        (y,) = a.run([np.zeros((1, 2, 0, 3), np.float32)])
    assert y.shape == (1, 2, 1, 4) and (y == -5).all()


@pytest.mark.parametrize("seen", ["rounded", "moved"])
def test_rounding_that_others_read(tmp_path, seen):
    """A limit that the bytes have anyway is still one of the rounded number."""
    nodes = [h.make_node("Cast", ["i"], ["x"], to=T.FLOAT), h.make_node("Mul", ["x", "a"], ["m"]), h.make_node("Relu", ["m"], ["q"]),
             h.make_node("Div", ["q", "s"], ["d"]), h.make_node("Round", ["d"], ["rounded"]), h.make_node("Add", ["rounded", "z"], ["moved"]),
             h.make_node("Cast", ["moved"], ["y"], to=T.UINT8)]
    fixed = {"a": np.float32(0.5), "s": np.float32(0.25), "z": np.float32(0)}
    equal(*both(tmp_path, nodes, {"i": np.arange(-32, 32, dtype=np.int32)}, {k: np.asarray(v) for k, v in fixed.items()}, [(seen, T.FLOAT), ("y", T.UINT8)]))
    done = mcc("prove", tmp_path / "q.onnx", "-march=native")
    assert done.returncode == 0 and "under limits" not in done.stdout, (done.stdout, done.stderr)

"""ONNX Runtime's contributed operators of products, quantized arithmetic and layout, in every attribute, beside ONNX Runtime; beside
numpy where it has no kernel for the CPU. Quantized results may be one step off where a quotient lies between two."""
import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from support.compare import Model, difference, floats, node
from support.contrib import MS, contrib

F = np.float32


def steps_apart(want, got):
    """For bytes: the same except for a few that are one step off."""
    if np.asarray(want).dtype.kind not in "iu":
        return difference(want, got, 1e-4, 1e-5)
    apart = np.abs(np.asarray(want).astype(np.int64) - np.asarray(got).astype(np.int64))
    fine = want.dtype == got.dtype and want.shape == got.shape and apart.max(initial=0) <= 1 and (apart > 0).sum() <= 1 + apart.size // 20
    return "" if fine else f"{want} expected, got {got}"


def agrees(folder, op, feeds, want=None, flags=("-O2",), **more):
    model, given = contrib(folder, op, feeds, **more)
    want = model.want(given) if want is None else want
    for flag in flags:
        for w, g in zip(want, model.run(given, flag), strict=True):
            assert not (text := steps_apart(w, g)), f"{op} {more} {flag}: {text}"


def draw(seed, shape, dtype):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def half(seed, shape, dtype):
    """Weights of 7 bits: ONNX Runtime's sums of u8 by s8 saturate in 16 bits on CPUs without VNNI."""
    return draw(seed, shape, dtype) // 2


def scale(x):
    return np.array(x, F)


def zero(x, dtype):
    return np.array(x, dtype)


# ---- fused products

CONV_ACTIVATIONS = [{}, {"activation": "Relu"}, {"activation": "Tanh"}, {"activation": "Sigmoid"},
                    {"activation": "LeakyRelu", "activation_params": [0.3]}, {"activation": "Clip", "activation_params": [-0.5, 0.7]},
                    {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}]


@pytest.mark.parametrize("activation", CONV_ACTIVATIONS, ids=lambda a: a.get("activation", "none"))
@pytest.mark.parametrize("z", [False, True])
def test_fused_conv(tmp_path, activation, z):
    """With and without bias and Z, groups, strides, pads; Z is added before the activation."""
    for k, (bias, more) in enumerate([(True, {}), (False, {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
                                      (True, {"group": 2, "auto_pad": "SAME_UPPER"}), (True, {"dilations": [1, 2]})]):
        x, w = floats(2, 4, 6, 7, seed=k), floats(6, 4 // more.get("group", 1), 3, 3, seed=k + 9)
        shape = contrib(tmp_path, "FusedConv", {"x": x, "w": w}, **more)[0].want([x, w])[0].shape
        feeds = {"x": x, "w": w, "b": floats(6) if bias else None, "z": floats(*shape, seed=3) if z else None}
        if not bias and not z:
            feeds = {"x": x, "w": w}
        agrees(tmp_path, "FusedConv", feeds, constants=("w",) if k else (), **activation, **more)


def nhwc(x):
    return np.moveaxis(x, 1, -1)


@pytest.mark.parametrize("activation", CONV_ACTIVATIONS[:3], ids=lambda a: a.get("activation", "none"))
def test_nhwc_fused_conv(tmp_path, activation):
    """As FusedConv, with x, Z and the result channels last; weights stay as they are."""
    x, w, b, z = floats(2, 4, 6, 7), floats(6, 4, 3, 3), floats(6), floats(2, 6, 4, 5)
    want = contrib(tmp_path, "FusedConv", {"x": x, "w": w, "b": b, "z": z}, **activation)[0].want([x, w, b, z])[0]
    agrees(tmp_path, "NhwcFusedConv", {"x": nhwc(x), "w": w, "b": b, "z": nhwc(z)}, [nhwc(want)], **activation)


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_fused_matmul(tmp_path, rank):
    for flags in itertools.product([0, 1], repeat=4):
        trans_a, trans_b, batch_a, batch_b = flags
        if rank == 2 and (batch_a or batch_b):
            continue
        batch = (2, 3)[:rank - 2]

        def operand(rows, columns, last, turned, seed):
            rows, columns = (columns, rows) if last else (rows, columns)
            return floats(*((rows, *batch, columns) if turned else (*batch, rows, columns)), seed=seed)

        attributes = dict(transA=trans_a, transB=trans_b, transBatchA=batch_a, transBatchB=batch_b, alpha=0.5 if trans_a else 1.0)
        agrees(tmp_path, "FusedMatMul", {"a": operand(4, 5, trans_a, batch_a, 1), "w": operand(5, 6, trans_b, batch_b, 2)}, **attributes)


def test_fused_matmul_broadcasts(tmp_path):
    agrees(tmp_path, "FusedMatMul", {"a": floats(2, 1, 3, 4), "w": floats(5, 6, 4)}, transB=1, alpha=2.0)
    agrees(tmp_path, "TransposeMatMul", {"a": floats(2, 4, 3), "w": floats(4, 5)}, transA=1, alpha=0.25)


GEMM_ACTIVATIONS = [{"activation": "Relu"}, {"activation": "Tanh"}, {"activation": "Sigmoid"}, {"activation": "Softplus"}, {"activation": "Softsign"},
                    {"activation": "LeakyRelu", "activation_alpha": 0.3}, {"activation": "Elu", "activation_alpha": 0.7},
                    {"activation": "ThresholdedRelu", "activation_alpha": 0.4},
                    {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4}]


@pytest.mark.parametrize("activation", GEMM_ACTIVATIONS, ids=lambda a: a.get("activation", "none"))
def test_fused_gemm(tmp_path, activation):
    a, w = floats(3, 4), floats(4, 5, seed=1)
    agrees(tmp_path, "FusedGemm", {"a": a, "w": w, "c": floats(5)}, alpha=0.5, beta=2.0, **activation)
    agrees(tmp_path, "FusedGemm", {"a": a.T.copy(), "w": w.T.copy(), "c": floats(3, 1)}, transA=1, transB=1, **activation)


def test_fused_gemm_without_activation(tmp_path):
    a, w, c = floats(3, 4), floats(4, 5, seed=1), floats(5)
    agrees(tmp_path, "FusedGemm", {"a": a, "w": w, "c": c}, [0.5 * a @ w + 2 * c], alpha=0.5, beta=2.0)


def test_unknown_activation_is_refused(tmp_path):
    model, _ = contrib(tmp_path, "FusedConv", {"x": floats(1, 1, 3, 3), "w": floats(1, 1, 1, 1)}, activation="Gelu")
    assert 'the activation is "Gelu"' in model.refused()


@pytest.mark.parametrize("inner", [0, 1])
def test_bias_softmax(tmp_path, inner):
    """No kernel for the CPU: numpy."""
    for shape, bias, axis in [((2, 3, 4, 5), (2, 1, 1, 5), 3), ((2, 3, 4, 5), (2, 1, 4, 5), 2), ((4, 5), (5,), -1)]:
        x, b = floats(*shape), floats(*bias, seed=1)
        e = np.exp(x + b)
        want = e / e.sum(tuple(range(axis % len(shape), len(shape))), keepdims=True)
        agrees(tmp_path, "BiasSoftmax", {"x": x, "b": b}, [want], axis=axis, is_inner_broadcast=inner)


# ---- quantized arithmetic

BYTES = [np.uint8, np.int8]


def middle(dtype, shift=0):
    return zero(128 + shift if dtype == np.uint8 else shift, dtype)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_qlinear_unary(tmp_path, op, dtype):
    x = draw(1, (3, 100), dtype)
    around = {"xs": scale(0.04), "xz": middle(dtype, 3), "ys": scale(0.02), "yz": middle(dtype, -5)}
    for constants, attributes in [(tuple(around), {"alpha": 0.2}), ((), {})]:
        agrees(tmp_path, op, {"x": x, **around}, constants=constants, **(attributes if op == "QLinearLeakyRelu" else {}))
    real = x.astype(F) * F(0.04)     # without zero points ONNX Runtime ends the process
    y = 1 / (1 + np.exp(-real)) if op == "QLinearSigmoid" else np.where(real < 0, F(0.01) * real, real)
    want = np.clip(np.round(y / F(0.02)), np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)
    agrees(tmp_path, op, {"x": x, "xs": scale(0.04), "xz": None, "ys": scale(0.02)}, [want])


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_qlinear_binary(tmp_path, op, dtype):
    for shape in [(3, 5), (5,), (1, 5)]:
        feeds = {"a": draw(1, (3, 5), dtype), "as": scale(0.03), "az": middle(dtype, 2), "b": draw(2, shape, dtype), "bs": scale(0.02),
                 "bz": middle(dtype, -2), "cs": scale(0.05), "cz": middle(dtype)}
        agrees(tmp_path, op, feeds)
        agrees(tmp_path, op, {k: v for k, v in feeds.items() if k != "cz"})


@pytest.mark.parametrize("dtype", BYTES)
def test_ties_of_quantized_operators(tmp_path, dtype):
    """Quotients between two steps, an odd zero point: some of ONNX Runtime's kernels add it before they round, some after."""
    x, y = draw(1, (2, 3, 5, 7), dtype), draw(2, (2, 3, 5, 7), dtype)
    at, out = {"s": scale(0.25), "z": middle(dtype, 3)}, {"os": scale(0.5), "oz": middle(dtype, 1)}
    two = {"x": x, **at, "y": y, "ys": scale(0.25), "yz": middle(dtype), **out}
    image = {"x": x, **at, **out}
    for op, feeds, more in [
            ("QLinearAdd", two, {}), ("QLinearMul", two | {"y": middle(dtype, 1)}, {}), ("QLinearAveragePool", image, {"kernel_shape": [1, 2]}),
            ("QLinearAveragePool", image, {"kernel_shape": [1, 2], "channels_last": 1}), ("QLinearLeakyRelu", image, {"alpha": 1.0}),
            ("QLinearConcat", {**out, "x": x, **at}, {"axis": 1}), ("QLinearWhere", {"c": x > y} | two, {}),
            ("QLinearGlobalAveragePool", image | {"x": x[:, :, :4, :4], "os": scale(0.5 / 8)}, {})]:
        model, given = contrib(tmp_path, op, feeds, constants=[k for k in feeds if k not in "cxy"], symbolic=False, **more)
        np.testing.assert_array_equal(model.run(given)[0], model.want(given)[0], f"{op} {more}")


@pytest.mark.parametrize("dtype", BYTES)
def test_qlinear_where(tmp_path, dtype):
    agrees(tmp_path, "QLinearWhere", {"c": draw(0, (4, 1), np.uint8) > 127, "x": draw(1, (4, 5), dtype), "xs": scale(0.03), "xz": middle(dtype, 1),
                                      "y": draw(2, (5,), dtype), "ys": scale(0.04), "yz": middle(dtype, -4), "zs": scale(0.05),
                                      "zz": middle(dtype, 7)}, constants=("xs", "xz", "ys", "yz", "zs", "zz"))


@pytest.mark.parametrize("dtype", BYTES)
def test_qlinear_concat(tmp_path, dtype):
    for axis in (0, 1, -1):
        feeds = {"ys": scale(0.05), "yz": middle(dtype, 2)}
        for i in range(3):
            shape = [2, 3]
            shape[axis] += i
            feeds |= {f"x{i}": draw(i, shape, dtype), f"s{i}": scale(0.03 + 0.01 * i), f"z{i}": middle(dtype, i)}
        agrees(tmp_path, "QLinearConcat", feeds, constants=[k for k in feeds if k[0] in "yzs"], axis=axis)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("last", [0, 1])
def test_qlinear_pools(tmp_path, dtype, last):
    around = {"xs": scale(0.0307), "xz": middle(dtype, 2), "ys": scale(0.0219), "yz": middle(dtype, -3)}    # few ties
    constants = tuple(around)
    for shape in [(2, 5, 6, 7), (1, 3, 9, 8)]:
        x = draw(1, shape, dtype)
        x = nhwc(x).copy() if last else x
        agrees(tmp_path, "QLinearGlobalAveragePool", {"x": x, **around}, constants=constants, channels_last=last)
        for more in [{"kernel_shape": [2, 3]}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]},
                     {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}, {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"},
                     {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}]:
            agrees(tmp_path, "QLinearAveragePool", {"x": x, **around}, constants=constants, channels_last=last, symbolic=False, **more)


@pytest.mark.parametrize("dtype", BYTES)
def test_qlinear_softmax(tmp_path, dtype):
    feeds = {"x": draw(1, (2, 3, 6), dtype), "xs": scale(0.05), "xz": middle(dtype, 4), "ys": scale(1 / 256),
             "yz": zero(0 if dtype == np.uint8 else -128, dtype)}
    for opset, axis in itertools.product([12, 13], [1, -1]):
        agrees(tmp_path, "QLinearSoftmax", feeds, constants=("xs", "xz", "ys", "yz"), opset=opset, axis=axis, symbolic=False)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_qlinear_reduce_mean(tmp_path, keepdims):
    """No kernel for the CPU: the definition in numpy."""
    x = draw(1, (2, 3, 4), np.uint8)
    for axes in [[1], [-1, 0], [2, 1]]:
        real = (x.astype(F) - 120) * F(0.03)
        y = np.mean(real, tuple(axes), keepdims=bool(keepdims), dtype=F)
        want = np.clip(np.round(y / F(0.02)) + 100, 0, 255).astype(np.uint8)
        agrees(tmp_path, "QLinearReduceMean", {"x": x, "xs": scale(0.03), "xz": zero(120, np.uint8), "ys": scale(0.02), "yz": zero(100, np.uint8)},
               [want], axes=axes, keepdims=keepdims)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dtype", BYTES)
def test_qlinear_conv(tmp_path, dtype, last):
    for k, (per_channel, more) in enumerate([(False, {}), (True, {"pads": [1, 1, 1, 1], "strides": [2, 1]}), (True, {"group": 2})]):
        x, w = draw(1, (1, 4, 6, 7), dtype), half(2, (6, 4 // more.get("group", 1), 3, 3), np.int8)
        ws = floats(6, seed=4).__abs__() * F(0.01) + F(0.005) if per_channel else scale(0.01)
        wz = np.zeros(6, np.int8) if per_channel else zero(0, np.int8)
        feeds = {"x": nhwc(x).copy() if last else x, "xs": scale(0.02), "xz": middle(dtype, 5), "w": w, "ws": ws, "wz": wz, "ys": scale(0.6),
                 "yz": middle(dtype, -6)}
        if k:
            feeds["b"] = draw(3, (6,), np.int16).astype(np.int32)
        agrees(tmp_path, "QLinearConv", feeds, constants=tuple(feeds)[1:], channels_last=last, symbolic=False, **more)


@pytest.mark.parametrize("dtype", BYTES)
def test_nhwc_max_pool(tmp_path, dtype):
    x = draw(1, (2, 6, 7, 5), dtype)
    for more in [{"kernel_shape": [2, 3]}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]},
                 {"kernel_shape": [2, 2], "dilations": [2, 1]}, {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"}]:
        agrees(tmp_path, "NhwcMaxPool", {"x": x}, **more)
    agrees(tmp_path, "NhwcMaxPool", {"x": draw(2, (1, 9, 3), dtype)}, kernel_shape=[2], strides=[2], ceil_mode=1)


@pytest.mark.parametrize("dtype_w", BYTES)
@pytest.mark.parametrize("columns", [False, True])
def test_qgemm(tmp_path, dtype_w, columns):
    """Floats or bytes out, with and without C; scales and zero points of B one or for each column."""
    for k, (trans_a, trans_b) in enumerate(itertools.product([0, 1], repeat=2)):
        a, w = draw(1, (5, 4), np.uint8), half(2, (5, 6), dtype_w)
        a = a if trans_a else a.T.copy()
        w = w.T.copy() if trans_b else w
        feeds = {"a": a, "as": scale(0.02), "az": zero(110, np.uint8), "w": w,
                 "ws": np.abs(floats(6, seed=4)) + F(0.01) if columns else scale(0.03),
                 "wz": draw(5, (6,), dtype_w) // 2 if columns else middle(dtype_w, 3)}
        if k % 2:
            feeds["c"] = draw(3, (6,) if columns else (4, 6), np.int16).astype(np.int32)
        if k > 1:
            feeds |= {"c": feeds.get("c"), "ys": scale(40.0 if columns else 2.0), "yz": zero(100, np.uint8)}
        agrees(tmp_path, "QGemm", feeds, constants=[n for n in feeds if n != "a" and feeds[n] is not None], symbolic=False, transA=trans_a,
               transB=trans_b, alpha=0.5 if k == 3 else 1.0)


@pytest.mark.parametrize("dtype_w", BYTES)
@pytest.mark.parametrize("columns", [False, True])
def test_integer_products_to_float(tmp_path, dtype_w, columns):
    w = half(2, (8, 6), dtype_w)
    ws = np.abs(floats(6, seed=4)) * F(0.01) + F(0.001) if columns else scale(0.03)
    wz = draw(5, (6,), dtype_w) // 2 if columns else middle(dtype_w, 3)
    for shape, bias in [((3, 8), True), ((2, 3, 8), False)]:
        more = {"b": floats(6)} if bias else {}
        agrees(tmp_path, "MatMulIntegerToFloat", {"a": draw(1, shape, np.uint8), "w": w, "as": scale(0.02), "ws": ws, "az": zero(100, np.uint8),
                                                  "wz": wz, **more}, constants=("w", "ws", "wz"))
        agrees(tmp_path, "DynamicQuantizeMatMul", {"a": floats(*shape), "w": w, "ws": ws, "wz": wz if bias else None, **(more or {"b": None})}
               if bias else {"a": floats(*shape), "w": w, "ws": ws}, constants=("w", "ws", "wz") if bias else ("w", "ws"))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("k", range(4))
def test_dynamic_quantize_lstm(tmp_path, direction, dtype, k):
    """Scales of a tensor and of columns, zero points, bias, lengths, initial states, peepholes, clip, coupled gates, activations."""
    dirs, steps, batch, width, hidden = 1 + (direction == "bidirectional"), 4, 2, 5, 3
    columns, more = (4 * hidden,) if k % 2 else (), [{}, {"clip": 0.5}, {"input_forget": 1}, {"activations": ["HardSigmoid", "Tanh", "Softsign"] * dirs}][k]
    step = lambda seed: np.abs(floats(dirs, *columns, seed=seed)) * F(0.003) + F(0.003)
    point = lambda: np.full((dirs, *columns), 128 if dtype == np.uint8 else 0, dtype)
    feeds = {"x": floats(steps, batch, width), "w": draw(1, (dirs, width, 4 * hidden), dtype) // 2, "r": draw(2, (dirs, hidden, 4 * hidden), dtype) // 2,
             "b": floats(dirs, 8 * hidden, seed=3) if k else None, "n": np.array([4, 2], np.int32) if k == 3 else None,
             "h": floats(dirs, batch, hidden, seed=4) if k == 1 else None, "c": floats(dirs, batch, hidden, seed=5) if k == 1 else None,
             "p": floats(dirs, 3 * hidden, seed=6) if k == 0 else None, "ws": step(7), "wz": point(), "rs": step(8), "rz": point()}
    model, given = contrib(tmp_path, "DynamicQuantizeLSTM", feeds, 3, ("w", "r", "ws", "wz", "rs", "rz"), symbolic=False, direction=direction,
                           hidden_size=hidden, **more)
    for want, got in zip(model.want(given), model.run(given, "-O2"), strict=True):
        assert not (text := difference(want, got, 0, 2e-3)), text     # a byte of a state may be one step off


def test_matmul_integer16(tmp_path):
    agrees(tmp_path, "MatMulInteger16", {"a": draw(1, (2, 3, 4), np.int16), "w": draw(2, (4, 5), np.int16)})


# ---- QuantizeLinear, DequantizeLinear: 8 and 16 bits, of one scale or along an axis

QUANTIZED = [np.uint8, np.int8, np.uint16, np.int16]


@pytest.mark.parametrize("dtype", QUANTIZED)
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_quantize_and_dequantize(tmp_path, dtype, axis):
    info, shape = np.iinfo(dtype), (3, 4, 5)
    n = () if axis is None else (shape[axis],)
    step = np.abs(floats(*n, seed=3)) * F(4 / info.max) + F(1 / info.max)
    point = draw(4, n, dtype)
    x, q = floats(*shape, scale=3), draw(1, shape, dtype)
    attributes = {} if axis is None else {"axis": axis}
    for constants in [(), ("s", "z")]:
        agrees(tmp_path, "QuantizeLinear", {"x": x, "s": np.asarray(step, F), "z": np.asarray(point, dtype)}, constants=constants, **attributes)
        agrees(tmp_path, "DequantizeLinear", {"x": q, "s": np.asarray(step, F), "z": np.asarray(point, dtype)}, constants=constants, **attributes)
    agrees(tmp_path, "DequantizeLinear", {"x": q, "s": np.asarray(step, F)}, **attributes)
    if dtype == np.uint8:
        agrees(tmp_path, "QuantizeLinear", {"x": x, "s": np.asarray(step, F)}, **attributes)


def test_dequantize_of_sums(tmp_path):
    agrees(tmp_path, "DequantizeLinear", {"x": draw(1, (3, 4), np.int32), "s": np.abs(floats(4))}, axis=1)


def test_quantizer_of_16_bits(tmp_path):
    """What ONNX Runtime's quantizer writes below opset 21: activations of 16 bits, weights of 8, around MatMul."""
    w, both = draw(2, (8, 6), np.int8), dict(domain=MS)
    nodes = [node("QuantizeLinear", "x xs xz", "xq", **both), node("DequantizeLinear", "xq xs xz", "xd", **both),
             node("DequantizeLinear", "w ws wz", "wd", axis=1), node("MatMul", "xd wd", "p"),
             node("QuantizeLinear", "p ys yz", "yq", **both), node("DequantizeLinear", "yq ys yz", "y", **both)]
    constants = {"xs": scale(1e-4), "xz": zero(32768, np.uint16), "w": w, "ws": np.abs(floats(6)) * F(0.01), "wz": np.zeros(6, np.int8),
                 "ys": scale(1e-3), "yz": zero(32768, np.uint16)}
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", T.FLOAT, ["n", 8])], [helper.make_tensor_value_info("y", T.FLOAT, ["n", 6])],
                              [numpy_helper.from_array(v, k) for k, v in constants.items()])
    path = tmp_path / "quantized.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)], ir_version=8), path)
    model, x = Model(tmp_path, path=path), floats(5, 8)
    assert np.abs(model.want([x])[0] - model.run([x])[0]).max() <= 1.01e-3


# ---- what the standard has too

def test_standard_ones(tmp_path):
    agrees(tmp_path, "Pad", {"x": floats(3, 4), "p": np.array([1, 0, 2, 1]), "v": scale(7)}, constants=("p", "v"))
    agrees(tmp_path, "Pad", {"x": floats(3, 4), "p": np.array([1, 0, 2, 1])}, constants=("p",), mode="reflect")
    agrees(tmp_path, "GatherND", {"x": floats(3, 4, 5), "i": np.array([[0, 1], [2, -1]])},
           [floats(3, 4, 5)[[0, 2], [1, -1]]], symbolic=False)
    agrees(tmp_path, "Trilu", {"x": floats(2, 4, 5), "k": np.array(1)}, [np.triu(floats(2, 4, 5), 1)], upper=1)
    agrees(tmp_path, "Trilu", {"x": floats(2, 4, 5)}, [np.tril(floats(2, 4, 5))], upper=0)

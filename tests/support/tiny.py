"""int8 networks of the shapes of MLPerf Tiny's four, with drawn weights: what counts on a microcontroller are memory and instructions.

    save(path, *ds_cnn())                  # DequantizeLinear, float operators, QuantizeLinear
    save(path, *ds_cnn(operators=True))    # QLinearConv and its like

Activations are asymmetric, weights symmetric, a scale for each output channel. Batch normalisation is folded.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper

from support.tool import save as save_model

INT8, FLOAT = TensorProto.INT8, TensorProto.FLOAT
AFTER_RELU, SIGNED = (6 / 255, -128), (12 / 255, 4)     # scale and zero point


class Network:
    def __init__(self, operators, *shape):
        self.operators, self.rng, self.shape = operators, np.random.default_rng(1), shape
        self.nodes, self.constants, self.count = [], {}, 0
        self.scales, self.dims = {"x": SIGNED}, {"x": shape}

    def name(self, kind):
        self.count += 1
        return f"{kind}{self.count}"

    def constant(self, value, dtype):
        name = self.name("k")
        self.constants[name] = np.asarray(value, dtype)
        return name

    def quantization(self, pair):
        return [self.constant(pair[0], np.float32), self.constant(pair[1], np.int8)]

    def add(self, op, inputs, kind, domain="", **attributes):
        out = self.name(kind)
        self.nodes.append(helper.make_node(op, inputs, [out], out, domain=domain, **attributes))
        return out

    def real(self, x):
        return self.add("DequantizeLinear", [x, *self.quantization(self.scales[x])], "d")

    def rounded(self, y, pair):
        y = self.add("QuantizeLinear", [y, *self.quantization(pair)], "q")
        self.scales[y] = pair
        return y

    def product(self, op, x, w, axis, pair, relu, **attributes):
        """A convolution or a product of rows by the f32 weights, whose output channels are along the axis."""
        others = tuple(d for d in range(w.ndim) if d != axis)
        step = (np.abs(w).max(others) / 127).astype(np.float32)
        whole = np.rint(w / step.reshape([-1 if d == axis else 1 for d in range(w.ndim)]))
        bias = np.rint(self.rng.uniform(-0.2, 0.2, w.shape[axis]) / (self.scales[x][0] * step))
        weights, steps = self.constant(whole, np.int8), self.constant(step, np.float32)
        zeros = self.constant(np.zeros(len(step)), np.int8)
        if self.operators:
            inputs = [x, *self.quantization(self.scales[x]), weights, steps, zeros, *self.quantization(pair)]
            if op == "Conv":
                y = self.add("QLinearConv", inputs + [self.constant(bias, np.int32)], "c", **attributes)
            else:
                inputs = [*inputs[:6], self.constant(bias, np.int32), *inputs[6:]]
                y = self.add("QGemm", inputs, "g", "com.microsoft")
            self.scales[y] = pair
            return y
        steps_of_bias, bias = self.constant(self.scales[x][0] * step, np.float32), self.constant(bias, np.int32)
        inputs = [self.real(x), self.add("DequantizeLinear", [weights, steps, zeros], "w", axis=axis),
                  self.add("DequantizeLinear", [bias, steps_of_bias, self.constant(np.zeros(len(step)), np.int32)], "b", axis=0)]
        y = self.add(op, inputs, "c", **attributes)
        return self.rounded(self.add("Relu", [y], "r") if relu else y, pair)

    def conv(self, x, channels, out, kernel=(3, 3), stride=1, pads=(1, 1, 1, 1), groups=1, relu=True):
        w = self.rng.standard_normal((out, channels // groups, *kernel)) * (2 / (channels // groups * kernel[0] * kernel[1])) ** 0.5
        y = self.product("Conv", x, w, 0, AFTER_RELU if relu else SIGNED, relu, kernel_shape=kernel, strides=[stride] * 2, pads=pads, group=groups)
        self.dims[y] = (1, out, *((self.dims[x][2 + d] + pads[d] + pads[2 + d] - kernel[d]) // stride + 1 for d in range(2)))
        return y

    def dense(self, x, n, out, relu=True):
        y = self.product("Gemm", x, self.rng.standard_normal((n, out)) * (2 / n) ** 0.5, 1, AFTER_RELU if relu else SIGNED, relu)
        self.dims[y] = (1, out)
        return y

    def sum(self, a, b):
        if self.operators:
            y = self.add("QLinearAdd", [a, *self.quantization(self.scales[a]), b, *self.quantization(self.scales[b]), *self.quantization(AFTER_RELU)],
                         "a", "com.microsoft")
            self.scales[y], self.dims[y] = AFTER_RELU, self.dims[a]
            return y
        y = self.rounded(self.add("Relu", [self.add("Add", [self.real(a), self.real(b)], "a")], "r"), AFTER_RELU)
        self.dims[y] = self.dims[a]
        return y

    def head(self, x, channels, out):
        if self.operators:
            y = self.add("QLinearGlobalAveragePool", [x, *self.quantization(self.scales[x]), *self.quantization(self.scales[x])], "p",
                         "com.microsoft", channels_last=0)
            self.scales[y], self.dims[y] = self.scales[x], (1, channels, 1, 1)
        else:
            y = self.rounded(self.add("GlobalAveragePool", [self.real(x)], "p"), self.scales[x])
        flat = self.add("Flatten", [y], "f")
        self.scales[flat], self.dims[flat] = self.scales[y], (1, channels)
        return self.dense(flat, channels, out, relu=False)

    def end(self, x, *shape):
        self.nodes[-1].output[0] = "y"
        assert self.nodes[-1].name == x
        typed = [helper.make_tensor_value_info(name, INT8, dims) for name, dims in self.dims.items() if name not in ("x", x)]
        return (self.nodes, [helper.make_tensor_value_info("x", INT8, self.shape)], [helper.make_tensor_value_info("y", INT8, shape)], self.constants,
                typed)


def autoencoder(operators=False):
    """Anomaly detection."""
    net = Network(operators, 1, 640)
    sizes, x = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640], "x"
    for i, (n, out) in enumerate(zip(sizes, sizes[1:])):
        x = net.dense(x, n, out, relu=i + 2 < len(sizes))
    return net.end(x, 1, 640)


def ds_cnn(operators=False):
    """Keyword spotting: 49 frames of 10 coefficients."""
    net = Network(operators, 1, 1, 49, 10)
    x = net.conv("x", 1, 64, (10, 4), 2, (4, 1, 5, 1))
    for _ in range(4):
        x = net.conv(net.conv(x, 64, 64, groups=64), 64, 64, (1, 1), pads=(0,) * 4)
    return net.end(net.head(x, 64, 12), 1, 12)


def resnet8(operators=False):
    """Image classification."""
    net = Network(operators, 1, 3, 32, 32)
    x, channels = net.conv("x", 3, 16), 16
    for out, stride in ((16, 1), (32, 2), (64, 2)):
        pads = (1,) * 4 if stride == 1 else (0, 0, 1, 1)
        y = net.conv(net.conv(x, channels, out, stride=stride, pads=pads), out, out, relu=False)
        x = net.sum(x if stride == 1 else net.conv(x, channels, out, (1, 1), stride, (0,) * 4, relu=False), y)
        channels = out
    return net.end(net.head(x, 64, 10), 1, 10)


def mobilenet(operators=False):
    """Visual wake words: MobileNet v1, a quarter as wide."""
    net = Network(operators, 1, 3, 96, 96)
    x, channels = net.conv("x", 3, 8, stride=2, pads=(0, 0, 1, 1)), 8
    for out, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1)):
        x = net.conv(x, channels, channels, stride=stride, pads=(1,) * 4 if stride == 1 else (0, 0, 1, 1), groups=channels)
        x = net.conv(x, channels, out, (1, 1), pads=(0,) * 4)
        channels = out
    return net.end(net.head(x, 256, 2), 1, 2)


NETWORKS = {"autoencoder": autoencoder, "ds_cnn": ds_cnn, "resnet8": resnet8, "mobilenet": mobilenet}


def save(path, nodes, inputs, outputs, constants, typed=()):
    """typed: of operators beyond ONNX's own, whose types not everyone infers."""
    save_model(path, nodes, inputs, outputs, constants)
    model = onnx.load(path)
    model.graph.value_info.extend(typed)
    onnx.save(model, path)
    return path

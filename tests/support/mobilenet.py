"""MobileNetV3 small and large as ONNX graphs: the block tables of the paper (Howard et al. 2019, tables 1 and 2) with random
weights, at full width or narrowed to a stand-in that compiles in a second.

    nodes, constants = Network("small", width=0.25, classes=10).build()    # "x" -> "y"

Batch normalisation is written as nodes (keep_norm) or left out as exporters fold it; activations are operators or the
pieces that exporters before HardSwish wrote.
"""
import numpy as np

from support.compare import node

# kernel, expanded, out, squeeze-and-excitation, hard swish instead of Relu, stride
SMALL = [(3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1), (5, 96, 40, 1, 1, 2), (5, 240, 40, 1, 1, 1),
         (5, 240, 40, 1, 1, 1), (5, 120, 48, 1, 1, 1), (5, 144, 48, 1, 1, 1), (5, 288, 96, 1, 1, 2), (5, 576, 96, 1, 1, 1),
         (5, 576, 96, 1, 1, 1)]
LARGE = [(3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
         (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
         (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1)]
TABLES = {"small": (SMALL, 576, 1024), "large": (LARGE, 960, 1280)}
EPSILON = 0.001


def round8(n):
    """To a multiple of 8, never below nine tenths."""
    rounded = max(8, int(n + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * n else rounded


class Network:
    def __init__(self, kind, width=1.0, classes=1000, keep_norm=False, pieces=False):
        self.table, self.last, self.head = TABLES[kind]
        self.width, self.classes, self.keep_norm, self.pieces = width, classes, keep_norm, pieces
        self.rng, self.nodes, self.constants = np.random.default_rng(7), [], {}

    def scaled(self, n):
        return n if self.width == 1 else round8(n * self.width)

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array, np.float32)
        return name

    def add(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, " ".join(inputs), name, f"{op.lower()}{len(self.nodes)}", **attributes))
        return name

    def scalar(self, number):
        name = f"k{number}"
        self.constants[name] = np.float32(number)
        return name

    def hard_swish(self, x):
        if not self.pieces:
            return self.add("HardSwish", x)
        gate = self.add("Clip", self.add("Add", x, self.scalar(3)), self.scalar(0), self.scalar(6))
        return self.add("Div", self.add("Mul", x, gate), self.scalar(6))

    def hard_sigmoid(self, x):
        if not self.pieces:
            return self.add("HardSigmoid", x, alpha=1 / 6, beta=0.5)
        return self.add("Div", self.add("Clip", self.add("Add", x, self.scalar(3)), self.scalar(0), self.scalar(6)), self.scalar(6))

    def conv(self, x, channels, out, kernel=1, stride=1, group=1, norm=True):
        fan = channels // group * kernel * kernel
        w = self.rng.standard_normal((out, channels // group, kernel, kernel)) * (2 / fan) ** 0.5
        names = [x, self.constant(w)]
        if not (norm and self.keep_norm):
            names.append(self.constant(self.rng.uniform(-0.1, 0.1, out)))
        pad = kernel // 2
        y = self.add("Conv", *names, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, group=group)
        if norm and self.keep_norm:
            ranges = ((0.5, 1.5), (-0.1, 0.1), (-0.1, 0.1), (0.5, 1.5))
            y = self.add("BatchNormalization", y, *(self.constant(self.rng.uniform(*r, out)) for r in ranges), epsilon=EPSILON)
        return y

    def block(self, x, channels, kernel, expanded, out, squeeze, swish, stride):
        act = self.hard_swish if swish else lambda v: self.add("Relu", v)
        y = act(self.conv(x, channels, expanded)) if expanded != channels else x
        y = act(self.conv(y, expanded, expanded, kernel, stride, expanded))
        if squeeze:
            inner = round8(expanded / 4)
            s = self.add("Relu", self.conv(self.add("GlobalAveragePool", y), expanded, inner, norm=False))
            y = self.add("Mul", self.hard_sigmoid(self.conv(s, inner, expanded, norm=False)), y)
        y = self.conv(y, expanded, out)
        return self.add("Add", y, x) if stride == 1 and channels == out else y

    def dense(self, x, n, m):
        w, bias = self.rng.standard_normal((m, n)) / n ** 0.5, self.rng.uniform(-0.1, 0.1, m)
        return self.add("Gemm", x, self.constant(w), self.constant(bias), transB=1)

    def build(self):
        channels = self.scaled(16)
        x = self.hard_swish(self.conv("x", 3, channels, 3, 2))
        for kernel, expanded, out, squeeze, swish, stride in self.table:
            expanded = channels if expanded == 16 else self.scaled(expanded)
            out = self.scaled(out)
            x = self.block(x, channels, kernel, expanded, out, squeeze, swish, stride)
            channels = out
        last, head = self.scaled(self.last), self.scaled(self.head)
        x = self.hard_swish(self.conv(x, channels, last))
        x = self.add("Flatten", self.add("GlobalAveragePool", x))
        x = self.dense(self.hard_swish(self.dense(x, last, head)), head, self.classes)
        self.nodes.append(node("Identity", x, "y"))
        return self.nodes, self.constants

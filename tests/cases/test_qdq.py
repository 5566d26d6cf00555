"""Random networks, quantized by the onnxruntime package's tools in all their forms, compiled, beside ONNX Runtime without its
optimisations, which computes every operator by itself: within one step of the last quantization, or of one before it where that
has the wider steps (a mean of four bytes is often a tie), and equal in most elements.

A model holds ten subgraphs of one to three operators that share nothing but the file; 16 models of them are drawn."""
import pathlib
import re
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from support.artifact import Artifact
from support.cpu import saturates
from support.tool import mcc, save, value

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
from quantized import FORMS, quantize  # noqa: E402

MODELS, SUBGRAPHS = 16, 10
STATIC = [form for form, f in FORMS.items() if not f.dynamic]
MARCH = ["native", "x86-64-v3", "native", "x86-64-v2", "x86-64-v4"]


class Subgraph:
    """Operators one behind the other on x [1, C, H, W], and what is still to be read."""

    def __init__(self, rng, prefix):
        self.rng, self.prefix, self.nodes, self.constants, self.count = rng, prefix, [], {}, 0
        self.shape = [1, int(rng.choice([3, 4, 8, 16, 17, 32, 48])), *(int(n) for n in rng.integers(5, 13, 2))]
        self.input, self.last = value(f"{prefix}x", self.shape), f"{prefix}x"
        for _ in range(int(rng.integers(1, 4))):
            if len(self.shape) == 4:
                getattr(self, str(rng.choice(["conv", "conv", "depthwise", "depthwise", "activation", "pool", "add", "mul", "concat",
                                              "slice", "resize", "mean"])))()
        if len(self.shape) == 4 and rng.integers(4) == 0:
            self.dense()
        self.output = h.make_tensor_value_info(self.last, T.FLOAT, self.shape)

    def node(self, op, *operands, **attributes):
        self.count += 1
        out = f"{self.prefix}{op.lower()}{self.count}"
        self.nodes.append(h.make_node(op, [*operands], [out], f"{out}_node", **attributes))
        self.last = out
        return out

    def constant(self, array):
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants[name] = np.asarray(array, np.float32)
        return name

    def window(self, channels, per_group, group, kernel, stride):
        pad = int(self.rng.integers(0, kernel // 2 + 1)) if min(self.shape[2:]) >= kernel else kernel // 2
        w = self.constant(self.rng.standard_normal((channels, per_group, kernel, kernel)) * self.rng.uniform(0.1, 0.5))
        b = self.constant(self.rng.standard_normal(channels) * 0.3)
        self.node("Conv", self.last, w, b, kernel_shape=[kernel] * 2, pads=[pad] * 4, strides=[stride] * 2, group=group)
        self.shape = [1, channels, *((n + 2 * pad - kernel) // stride + 1 for n in self.shape[2:])]
        if self.rng.integers(2):
            self.node("Relu", self.last)

    def conv(self):
        self.window(int(self.rng.choice([5, 16, 24, 40])), self.shape[1], 1, int(self.rng.choice([1, 1, 3])), int(self.rng.integers(1, 3)))

    def depthwise(self):
        self.window(self.shape[1], 1, self.shape[1], int(self.rng.choice([3, 5])), int(self.rng.integers(1, 3)))

    def activation(self):
        op = str(self.rng.choice(["Relu", "Sigmoid", "HardSigmoid", "HardSwish", "LeakyRelu", "Clip"]))
        if op == "Clip":
            self.node(op, self.last, self.constant(-0.5), self.constant(1.25))
        else:
            self.node(op, self.last)

    def pool(self):
        if min(self.shape[2:]) < 3:
            return
        self.node(str(self.rng.choice(["MaxPool", "AveragePool"])), self.last, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        self.shape = [1, self.shape[1], *((n - 1) // 2 + 1 for n in self.shape[2:])]

    def mean(self):
        self.node("GlobalAveragePool", self.last)
        self.shape = [*self.shape[:2], 1, 1]

    def add(self):
        before = self.last
        self.node("Add", self.node("Sigmoid", before), before)

    def mul(self):
        before = self.last
        gate = self.node("HardSigmoid", self.node("GlobalAveragePool", before))
        self.node("Mul", before, gate)

    def concat(self):
        before = self.last
        self.node("Concat", before, self.node("Relu", before), axis=1)
        self.shape[1] *= 2

    def slice(self):
        first, some = self.shape[1] // 3, self.shape[1] // 2
        self.constants |= {f"{self.prefix}s{k}": np.array([v], np.int64) for k, v in enumerate([first, first + some, 1])}
        self.node("Slice", self.last, *(f"{self.prefix}s{k}" for k in range(3)))
        self.shape[1] = min(some, self.shape[1] - first)

    def resize(self):
        scales = self.constant([1, 1, 2, 2])
        self.node("Resize", self.last, "", scales, mode=str(self.rng.choice(["nearest", "linear"])))
        self.shape = [*self.shape[:2], *(2 * n for n in self.shape[2:])]

    def dense(self):
        self.node("Flatten", self.last)
        k, n = int(np.prod(self.shape)), int(self.rng.choice([7, 16, 33]))
        w = self.constant(self.rng.standard_normal((n, k)) / np.sqrt(k))
        self.node("Gemm", self.last, w, self.constant(self.rng.standard_normal(n)), transB=1)
        self.shape = [1, n]


def steps_of(model):
    """For each output the scale by which it was quantized last, and the largest of its values' scales; None where it was not."""
    makers = {o: n for n in model.graph.node for o in n.output}
    scales = {t.name: float(onnx.numpy_helper.to_array(t).max()) for t in model.graph.initializer if t.name.endswith("_scale")}

    def widest(prefix):
        return max(scales[n.input[1]] for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0].startswith(prefix))
    last = [scales.get(makers[o.name].input[1]) if makers[o.name].op_type == "DequantizeLinear" else None for o in model.graph.output]
    return [(s, s and widest(o.name.split("_")[0] + "_")) for s, o in zip(last, model.graph.output)]


@pytest.mark.parametrize("seed", range(MODELS))
def test_subgraphs(seed, tmp_path):
    rng = np.random.default_rng(4000 + seed)
    drawn = [Subgraph(rng, f"g{i}_") for i in range(SUBGRAPHS)]
    constants = {k: a for g in drawn for k, a in g.constants.items()}
    source = save(tmp_path / "float.onnx", [n for g in drawn for n in g.nodes], [g.input for g in drawn], [g.output for g in drawn],
                  constants, opset=17)
    form = STATIC[seed % len(STATIC)]
    path = quantize(source, form, tmp_path / "quantized.onnx")
    march = MARCH[seed % len(MARCH)] if not saturates() else "native"
    done = mcc("-q", "-j1", f"-march={march}", path, "-o", tmp_path / "q.so")
    assert done.returncode == 0, done.stderr
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {p.name: rng.standard_normal(p.shape).astype(np.float32) for p in session.get_inputs()}
    want = session.run(None, feeds)
    with Artifact(tmp_path / "q.so") as a:
        got = a.run(list(feeds.values()))
    for g, w, m, (step, inner) in zip(drawn, want, got, steps_of(onnx.load(path)), strict=True):
        what = f"{form} {march} {g.prefix} {[n.op_type for n in g.nodes]}"
        apart = np.abs(np.float64(m) - w) / (step or max(np.abs(w).max() / 255, 1e-30))
        most = max(1, np.ceil(inner / step)) if step else 1
        assert apart.max(initial=0) < most + 0.01, f"{what}: {apart.max():.2f} steps apart, {most} allowed"
        assert (apart < 0.01).mean() > 0.5, f"{what}: {(apart >= 0.01).sum()} of {apart.size} differ"


def blocks(rng, n):
    """n times convolution, Relu and the sum with what came in, of the same shapes; what they are of differs."""
    nodes, constants, last = [], {}, "x"
    for i in range(n):
        constants |= {f"w{i}": np.float32(rng.standard_normal((32, 32, 1, 1)) * 0.3 / (i + 1)),
                      f"b{i}": np.float32(rng.standard_normal(32) * 0.1)}
        nodes += [h.make_node("Conv", [last, f"w{i}", f"b{i}"], [f"c{i}"]), h.make_node("Relu", [f"c{i}"], [f"r{i}"]),
                  h.make_node("Add", [f"r{i}", last], [f"a{i}"])]
        last = f"a{i}"
    return nodes, constants, last


@pytest.mark.parametrize("form", ["qdq", "qdq-s8", "qdq-tensor", "qop"])
def test_equal_layers_share_code(form, tmp_path):
    """Scales and zero points lie in memory: of six layers the first and the last, beside the ports, may have code of their own."""
    nodes, constants, last = blocks(np.random.default_rng(5), 6)
    shape = [1, 32, 12, 12]
    source = save(tmp_path / "float.onnx", nodes, [value("x", shape)], [h.make_tensor_value_info(last, T.FLOAT, shape)], constants,
                  opset=17)
    path = quantize(source, form, tmp_path / "quantized.onnx")
    done = mcc("-print-after=codegen", "--no-cache", "-march=x86-64-v3", path, "-o", tmp_path / "q.so")
    assert done.returncode == 0, done.stderr
    kernels = [line for line in done.stderr.splitlines() if re.match(r"k\d+\S* for ", line)]
    assert len(kernels) >= 6 and sum("the same as" in line for line in kernels) >= 3, done.stderr


def test_emulated_products_are_a_loop(tmp_path):
    """A product of groups of four bytes is several instructions without VNNI: the steps of a block of channels are not written out for all points,
    and epilogues are a loop over rows."""
    nodes, constants, last = blocks(np.random.default_rng(6), 2)
    shape = [1, 32, 12, 12]
    source = save(tmp_path / "float.onnx", nodes, [value("x", shape)], [h.make_tensor_value_info(last, T.FLOAT, shape)], constants,
                  opset=17)
    path = quantize(source, "qdq", tmp_path / "quantized.onnx")
    longest = {}
    for level in ("x86-64-v4", "x86-64-v4-vnni"):
        done = mcc("-stop-after=emit", f"-march={level}", path, "-o", tmp_path / "q.txt")
        assert done.returncode == 0, done.stderr
        bodies = re.findall(r"for %\d+ = [^{]*\{([^{}]*)\}", (tmp_path / "q.txt").read_text())
        longest[level] = max(body.count(" dot ") for body in bodies)
        done = mcc("-stop-after=schedule", f"-march={level}", path, "-o", tmp_path / "s.txt")
        rows = {int(n) for n in re.findall(r"epilogue.rows\s+(\d+)", (tmp_path / "s.txt").read_text())}
        assert (max(rows) > 0) == (level == "x86-64-v4"), rows
    assert 0 < longest["x86-64-v4"] <= 32 < longest["x86-64-v4-vnni"], longest    # sums of a tile fit the registers

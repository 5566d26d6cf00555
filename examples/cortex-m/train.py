#!/usr/bin/env python3
"""Trains the example's network and writes kws.onnx and words.bin, both of which are committed.

    pip install numpy onnx torch && ./train.py

The network has the shape of MLPerf Tiny's keyword spotting: a 10 x 4 convolution and four depthwise separable ones of 64
channels over 49 frames of 10 bands. The words are whistled, so that no recordings are needed: `spoken` draws how the
tone's band moves with time, its speed, its loudness, and noise. After training, weights and activations are rounded to
int8 (QuantizeLinear, DequantizeLinear). words.bin: for each word one that training never saw, 490 bytes of int8.
"""
import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent
WORDS = ["up", "down", "yes", "no", "go", "stop", "silence", "unknown"]
FRAMES, BANDS, CHANNELS = 49, 10, 64
INPUT = (1 / 64, 0)     # scale and zero point


def spoken(rng, word):
    """FRAMES x BANDS."""
    length, start = rng.integers(24, 42), rng.integers(0, 7)
    t = np.linspace(0, 1, length)
    low, high = rng.uniform(1, 2.5), rng.uniform(6.5, 8)
    band = {"up": low + (high - low) * t, "down": high - (high - low) * t, "yes": low + (high - low) * np.sin(np.pi * t),
            "no": high - (high - low) * np.sin(np.pi * t), "go": np.full(length, high), "stop": np.full(length, low),
            "unknown": np.where(t * rng.integers(3, 6) % 1 < 0.5, low, high), "silence": np.full(length, -9)}[WORDS[word]]
    x = rng.normal(0, 0.12, (FRAMES, BANDS))
    x[start:start + length] += rng.uniform(0.8, 1.6) * np.exp(-((np.arange(BANDS) - band[:, None]) / 1.1) ** 2)
    return x.astype(np.float32)


def rounded(x, pair):
    return np.clip(np.rint(x / pair[0]) + pair[1], -128, 127).astype(np.int8)


def data(seed, n):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(WORDS), n)
    x = np.stack([spoken(rng, word) for word in labels])[:, None]
    return torch.from_numpy(rounded(x, INPUT) * np.float32(INPUT[0])), torch.from_numpy(labels)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Conv2d(1, CHANNELS, (10, 4), 2)])
        for _ in range(4):
            self.layers.append(torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS))
            self.layers.append(torch.nn.Conv2d(CHANNELS, CHANNELS, 1))
        for layer in self.layers:
            torch.nn.init.kaiming_normal_(layer.weight)
        self.dense = torch.nn.Linear(CHANNELS, len(WORDS))

    def forward(self, x, seen=None):
        x = torch.nn.functional.pad(x, (1, 1, 4, 5))
        for layer in self.layers:
            x = torch.relu(layer(x))
            if seen is not None:
                seen.append(float(x.max()))
        return self.dense(x.mean((2, 3)))


def train():
    torch.manual_seed(7)
    net = Net()
    x, labels = data(1, 1600)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    for epoch in range(8):
        optimizer.param_groups[0]["lr"] = 2e-3 * (1 + np.cos(np.pi * epoch / 8)) / 2
        for part in torch.randperm(len(x)).split(40):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x[part]), labels[part]).backward()
            optimizer.step()
    with torch.no_grad():
        seen, (test, want) = [], data(2, 400)
        right = (net(test, seen).argmax(1) == want).float().mean()
    print(f"{100 * right:.1f} % of 400 words that training never saw are right")
    return net, seen


class Graph:
    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, value, dtype):
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, op, *inputs, **attributes):
        out = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], out, **attributes))
        return out

    def pair(self, pair):
        return self.constant(pair[0], np.float32), self.constant(pair[1], np.int8)

    def layer(self, op, x, given, layer, pair, **attributes):
        w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        step = np.abs(w).reshape(len(w), -1).max(1) / 127
        whole = np.rint(w / step.reshape(-1, *[1] * (w.ndim - 1)))
        real = [self.add("DequantizeLinear", self.constant(whole, np.int8), self.constant(step, np.float32), axis=0),
                self.add("DequantizeLinear", self.constant(np.rint(b / (given[0] * step)), np.int32), self.constant(given[0] * step, np.float32), axis=0)]
        y = self.add(op, self.add("DequantizeLinear", x, *self.pair(given)), *real, **attributes)
        return self.add("QuantizeLinear", self.add("Relu", y) if op == "Conv" else y, *self.pair(pair))


def export(net, seen):
    g, x, given = Graph(), "frames", INPUT
    for layer, most in zip(net.layers, seen):
        pads = [4, 1, 5, 1] if not layer.padding[0] and layer.kernel_size[0] > 1 else [layer.padding[0]] * 4
        pair = (most / 255, -128)
        x = g.layer("Conv", x, given, layer, pair, kernel_shape=layer.kernel_size, strides=layer.stride, pads=pads, group=layer.groups)
        given = pair
    x = g.add("QuantizeLinear", g.add("GlobalAveragePool", g.add("DequantizeLinear", x, *g.pair(given))), *g.pair(given))
    g.layer("Gemm", g.add("Flatten", x), given, net.dense, (0.25, 0), transB=1)
    g.nodes[-1].output[0] = "scores"
    graph = helper.make_graph(g.nodes, "kws", [helper.make_tensor_value_info("frames", TensorProto.INT8, [1, 1, FRAMES, BANDS])],
                              [helper.make_tensor_value_info("scores", TensorProto.INT8, [1, len(WORDS)])], g.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, HERE / "kws.onnx")


def main():
    export(*train())
    rng = np.random.default_rng(3)
    (HERE / "words.bin").write_bytes(b"".join(rounded(spoken(rng, word), INPUT).tobytes() for word in range(len(WORDS))))


if __name__ == "__main__":
    main()

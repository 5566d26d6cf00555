#!/usr/bin/env python3
"""Trains the demo's network and writes digits.onnx and digits.test, both of which are committed.

    pip install numpy scikit-learn onnx && ./train.py

A CNN of 6 thousand weights on scikit-learn's 1,797 pictures of handwritten digits (8 x 8, 17 grey levels), in plain
numpy: two 3 x 3 convolutions with ReLU and 2 x 2 max pooling, one dense layer. Every fifth picture is kept out of
training; those 359 are digits.test: a byte for the answer, then 64 bytes of pixels (0 to 16), for each.
"""
import pathlib

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

HERE = pathlib.Path(__file__).parent


def windows(x):
    """(n, c, h, w) -> (n, h, w, c * 9): the 3 x 3 neighbourhoods with zeros outside."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = sliding_window_view(padded, (3, 3), axis=(2, 3))
    return view.transpose(0, 2, 3, 1, 4, 5).reshape(*x.shape[:1], *x.shape[2:], -1)


def conv(x, w, b):
    cols = windows(x)
    return (cols @ w.reshape(len(w), -1).T + b).transpose(0, 3, 1, 2), cols


def conv_back(g, cols, w):
    """Gradients of weights, bias and input."""
    g = g.transpose(0, 2, 3, 1)
    gw = np.tensordot(g, cols, ((0, 1, 2), (0, 1, 2))).reshape(w.shape)
    flipped = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    gx = windows(g.transpose(0, 3, 1, 2)) @ flipped.reshape(len(flipped), -1).T
    return gw, g.sum((0, 1, 2)), gx.transpose(0, 3, 1, 2)


def pool(x):
    n, c, h, w = x.shape
    cells = x.reshape(n, c, h // 2, 2, w // 2, 2)
    best = cells.max((3, 5))
    first = cells == best[:, :, :, None, :, None]
    return best, first


def pool_back(g, first):
    share = first / first.sum((3, 5), keepdims=True)
    n, c, h, _, w, _ = first.shape
    return (share * g[:, :, :, None, :, None]).reshape(n, c, h * 2, w * 2)


def forward(p, x):
    c1, cols1 = conv(x, p["w1"], p["b1"])
    m1, f1 = pool(np.maximum(c1, 0))
    c2, cols2 = conv(m1, p["w2"], p["b2"])
    m2, f2 = pool(np.maximum(c2, 0))
    flat = m2.reshape(len(x), -1)
    return flat @ p["w3"].T + p["b3"], (c1, cols1, f1, c2, cols2, f2, flat, m2.shape)


def gradients(p, x, y):
    logits, (c1, cols1, f1, c2, cols2, f2, flat, shape) = forward(p, x)
    e = np.exp(logits - logits.max(1, keepdims=True))
    g = e / e.sum(1, keepdims=True)
    g[np.arange(len(y)), y] -= 1
    g /= len(y)
    d = {"w3": g.T @ flat, "b3": g.sum(0)}
    g = pool_back((g @ p["w3"]).reshape(shape), f2) * (c2 > 0)
    d["w2"], d["b2"], g = conv_back(g, cols2, p["w2"])
    d["w1"], d["b1"], _ = conv_back(pool_back(g, f1) * (c1 > 0), cols1, p["w1"])
    return d


def shifted(rng, x):
    """Moves a third of the pictures by at most a pixel, so that the network learns shapes and not places."""
    out = x.copy()
    for i in np.flatnonzero(rng.random(len(x)) < 0.33):
        out[i] = np.roll(x[i], rng.integers(-1, 2, 2), (1, 2))
    return out


def train(x, y, epochs=60):
    rng = np.random.default_rng(7)
    size = {"w1": (16, 1, 3, 3), "w2": (32, 16, 3, 3), "w3": (10, 128)}
    p = {k: rng.normal(0, np.sqrt(2 / np.prod(s[1:])), s) for k, s in size.items()}
    p |= {"b1": np.zeros(16), "b2": np.zeros(32), "b3": np.zeros(10)}
    m = {k: np.zeros_like(v) for k, v in p.items()}
    v = {k: np.zeros_like(v) for k, v in p.items()}
    step = 0
    for epoch in range(epochs):
        order = rng.permutation(len(x))
        for part in np.array_split(order, len(x) // 32):
            step += 1
            rate = 2e-3 * 0.5 * (1 + np.cos(np.pi * epoch / epochs))
            for k, g in gradients(p, shifted(rng, x[part]), y[part]).items():
                m[k] = 0.9 * m[k] + 0.1 * g
                v[k] = 0.999 * v[k] + 0.001 * g * g
                p[k] -= rate * (m[k] / (1 - 0.9**step)) / (np.sqrt(v[k] / (1 - 0.999**step)) + 1e-8)
    return {k: a.astype(np.float32) for k, a in p.items()}


def export(p):
    pool_attr = dict(kernel_shape=[2, 2], strides=[2, 2])
    nodes = [
        helper.make_node("Conv", ["picture", "w1", "b1"], ["c1"], "conv1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("MaxPool", ["r1"], ["m1"], "pool1", **pool_attr),
        helper.make_node("Conv", ["m1", "w2", "b2"], ["c2"], "conv2", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("MaxPool", ["r2"], ["m2"], "pool2", **pool_attr),
        helper.make_node("Flatten", ["m2"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["logits"], "dense", transB=1),
        helper.make_node("Softmax", ["logits"], ["probability"], "softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes, "digits",
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(a, k) for k, a in p.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, HERE / "digits.onnx")


def main():
    data = load_digits()
    x = (data.images / 16).astype(np.float64)[:, None]
    y = data.target
    held_out = np.arange(len(x)) % 5 == 4
    p = train(x[~held_out], y[~held_out])
    right = forward(p, x[held_out])[0].argmax(1) == y[held_out]
    print(f"{right.sum()} of {len(right)} held-out pictures right: {100 * right.mean():.1f} %")
    export(p)
    records = np.column_stack([y[held_out], data.images[held_out].reshape(-1, 64)]).astype(np.uint8)
    (HERE / "digits.test").write_bytes(records.tobytes())


if __name__ == "__main__":
    main()

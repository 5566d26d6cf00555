"""RNN, GRU and LSTM in every form against ONNX Runtime: directions, layouts, biases, initial states, sequence lengths,
peepholes, clip, input_forget, linear_before_reset, activations, static and symbolic sizes. 120 combinations, seeded."""
import os
import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from legalize import suite

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(os.environ.get("MCC_BUILD", HERE.parent.parent / "build")) / "tests/legalize/test_legalize"
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = ["Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
               "Softsign", "Softplus"]
ALPHA = {"Affine": 0.7, "LeakyRelu": 0.1, "ThresholdedRelu": 0.3, "ScaledTanh": 1.2, "HardSigmoid": 0.3, "Elu": 0.8}
BETA = {"Affine": 0.1, "ScaledTanh": 0.6, "HardSigmoid": 0.4}


def combination(seed):
    """(model, feeds): a random layer with its operands as graph inputs."""
    rng = np.random.default_rng(seed)
    op = list(GATES)[seed % 3]
    flip = lambda: bool(rng.integers(2))
    direction = ["forward", "reverse", "bidirectional"][rng.integers(3)]
    dirs = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = (int(rng.integers(1, 6)) for _ in range(4))
    g = GATES[op]
    draw = lambda *shape: rng.uniform(-1, 1, shape).astype(np.float32)
    feeds = {"X": draw(steps, batch, size), "W": draw(dirs, g * hidden, size), "R": draw(dirs, g * hidden, hidden)}
    feeds["B"] = draw(dirs, 2 * g * hidden) if flip() else None
    feeds["lens"] = rng.integers(1, steps + 1, batch).astype(np.int32) if flip() else None
    feeds["h"] = draw(dirs, batch, hidden) if flip() else None
    if op == "LSTM":
        feeds["c"] = draw(dirs, batch, hidden) if flip() else None
        feeds["P"] = draw(dirs, 3 * hidden) if flip() else None
    attrs = {"direction": direction, "hidden_size": hidden}
    if flip():
        attrs["clip"] = 0.5
    if op == "GRU" and flip():
        attrs["linear_before_reset"] = 1
    per = {"RNN": 1, "GRU": 2, "LSTM": 3}[op]
    if flip():
        names = [ACTIVATIONS[i] for i in rng.integers(0, len(ACTIVATIONS), per)] * dirs
        attrs["activations"] = names
        attrs["activation_alpha"] = [ALPHA[n] for n in names if n in ALPHA] or None
        attrs["activation_beta"] = [BETA[n] for n in names if n in BETA] or None
    attrs = {k: v for k, v in attrs.items() if v is not None}
    symbolic = flip()
    kinds = {"lens": TensorProto.INT32}
    dim = {"X": ["steps", "batch", size], "lens": ["batch"], "h": [dirs, "batch", hidden], "c": [dirs, "batch", hidden]}
    ports = [helper.make_tensor_value_info(k, kinds.get(k, TensorProto.FLOAT),
                                           dim.get(k, v.shape) if symbolic else v.shape)
             for k, v in feeds.items() if v is not None]
    outputs = ["Y", "Y_h"] + (["Y_c"] if op == "LSTM" else [])
    node = helper.make_node(op, [k if v is not None else "" for k, v in feeds.items()], outputs, **attrs)
    graph = helper.make_graph([node], "layer", ports,
                              [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return model, {k: v for k, v in feeds.items() if v is not None}


@pytest.fixture(scope="module")
def server():
    return suite.Server(str(PROGRAM))


@pytest.mark.parametrize("seed", range(120))
def test_layer(seed, server, tmp_path):
    model, feeds = combination(seed)
    path = tmp_path / "layer.onnx"
    onnx.save(model, path)
    expected = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
    status, text, got = server.ask(path, list(feeds.values()), model.graph.input)
    assert status == "ok", text
    for want, value in zip(expected, got, strict=True):
        assert want.shape == value.shape
        np.testing.assert_allclose(value, want, rtol=1e-4, atol=1e-5)

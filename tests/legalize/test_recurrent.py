"""RNN, GRU and LSTM in every form against ONNX Runtime: directions, layouts, biases, initial states, sequence lengths,
peepholes, clip, input_forget, linear_before_reset, activations, static and symbolic sizes. 120 combinations, seeded; each
is interpreted, and compiled and run. And with all sizes unknown. ONNX Runtime has no batch-first layout: there it gets the same layer, turned around."""
import os
import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from conformance import suite as cases
from legalize import suite
from support.artifact import Artifact
from support.tool import mcc, result

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(os.environ.get("MCC_BUILD", HERE.parent.parent / "build")) / "tests/legalize/test_legalize"
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = ["Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
               "Softsign", "Softplus"]
ALPHA = {"Affine": 0.7, "LeakyRelu": 0.1, "ThresholdedRelu": 0.3, "ScaledTanh": 1.2, "HardSigmoid": 0.3, "Elu": 0.8}
BETA = {"Affine": 0.1, "ScaledTanh": 0.6, "HardSigmoid": 0.4}


TURNED = ("X", "h", "c")      # their first two dims change places in the batch-first layout


def turn(feeds):
    return {k: np.ascontiguousarray(v.swapaxes(0, 1)) if k in TURNED else v for k, v in feeds.items()}


def layer(op, feeds, attrs, symbolic):
    """A model with one layer; its operands are graph inputs."""
    batch_first = attrs.get("layout", 0)
    dim = {"X": ["steps", "batch"], "lens": ["batch"], "h": [0, "batch"], "c": [0, "batch"]}
    ports = []
    for k, v in feeds.items():
        shape = list(v.shape)
        if symbolic and k in dim:
            names = dim[k][::-1] if batch_first else dim[k]
            shape[:len(names)] = [n or shape[i] for i, n in enumerate(names)]
        ports.append(helper.make_tensor_value_info(k, TensorProto.INT32 if k == "lens" else TensorProto.FLOAT, shape))
    outputs = ["Y", "Y_h"] + (["Y_c"] if op == "LSTM" else [])
    order = ["X", "W", "R", "B", "lens", "h"] + (["c", "P"] if op == "LSTM" else [])
    node = helper.make_node(op, [k if k in feeds else "" for k in order], outputs, **attrs)
    graph = helper.make_graph([node], "layer", ports,
                              [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def combination(seed):
    """(operator, feeds, attributes, symbolic sizes) of a random layer."""
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
    if op == "LSTM" and flip():
        attrs["input_forget"] = 1
    symbolic = flip()
    if rng.integers(3) == 0:
        attrs["layout"] = 1
    return op, {k: v for k, v in feeds.items() if v is not None}, {k: v for k, v in attrs.items() if v is not None}, symbolic


@pytest.fixture(scope="module")
def server():
    return suite.Server(str(PROGRAM))


def expect(op, feeds, attrs, path):
    """ONNX Runtime's results, in the layout that the attributes ask for."""
    batch_first = attrs.get("layout", 0)
    onnx.save(layer(op, feeds, {k: v for k, v in attrs.items() if k != "layout"}, False), path)
    y, *states = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
    return [y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in states)] if batch_first else [y, *states]


def run(path, feeds):
    """What the compiled layer gives."""
    done = mcc("-q", "-j1", "-march=native", path, "-o", path.with_suffix(".so"))
    assert done.returncode == 0, done.stderr
    with Artifact(path.with_suffix(".so")) as artifact:
        return artifact.run(list(feeds.values()))


def check(expected, got):
    for want, have in zip(expected, got, strict=True):
        assert want.shape == have.shape
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(120))
def test_layer(seed, server, tmp_path):
    op, feeds, attrs, symbolic = combination(seed)
    expected = expect(op, feeds, attrs, tmp_path / "reference.onnx")
    if attrs.get("layout", 0):
        feeds = turn(feeds)
    path = tmp_path / "layer.onnx"
    model = layer(op, feeds, attrs, symbolic)
    onnx.save(model, path)
    status, text, interpreted = server.ask(path, list(feeds.values()), model.graph.input)
    assert status == "ok", text
    check(expected, interpreted)
    check(expected, run(path, feeds))


@pytest.mark.parametrize("seed", range(200, 230))
def test_layer_of_unknown_sizes(seed, server, tmp_path):
    """Every dim of every operand is a symbol of its own: which of them are equal is dynamic."""
    op, feeds, attrs, _ = combination(seed)
    expected = expect(op, feeds, attrs, tmp_path / "reference.onnx")
    if attrs.get("layout", 0):
        feeds = turn(feeds)
    model = layer(op, feeds, attrs, False)
    path = cases.erase(model, tmp_path / "layer.onnx")
    status, text, interpreted = server.ask(path, list(feeds.values()), model.graph.input)
    assert status == "ok", text
    check(expected, interpreted)
    if seed % 3 == 0:
        check(expected, run(path, feeds))


def test_weights_lie_once(tmp_path):
    """Constant weights are packed for the products and stored nowhere else."""
    rng = np.random.default_rng(0)
    w, r = (rng.standard_normal((1, 256, 64)).astype(np.float32) for _ in range(2))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 1, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=64)], "layer", [x], [y],
                              [helper.make_tensor("w", TensorProto.FLOAT, w.shape, w), helper.make_tensor("r", TensorProto.FLOAT, r.shape, r)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), tmp_path / "layer.onnx")
    assert mcc("-q", "-j1", "-march=native", tmp_path / "layer.onnx", "-o", tmp_path / "layer.so").returncode == 0
    assert result("inspect", tmp_path / "layer.so")["bytes"]["weights"] <= 1.02 * (w.nbytes + r.nbytes)

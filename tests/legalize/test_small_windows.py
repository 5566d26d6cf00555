"""Pooling where a dim, with its padding, is smaller than a window: what ONNX Runtime does with it, per operator and version, and
the warning where nothing is left."""
import os
import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from legalize import suite
from support.tool import mcc

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(os.environ.get("MCC_BUILD", HERE.parent.parent / "build")) / "tests/legalize/test_legalize"
VERSIONS = {"MaxPool": (8, 11, 12, 22), "AveragePool": (7, 11, 19, 22), "LpPool": (2, 11, 18, 22)}


def layer(op, size, opset, symbolic=False, **attributes):
    rank = len(size)
    dims = [1, 2] + ([f"s{i}" for i in range(rank)] if symbolic else list(size))
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], "pool", **attributes)], "layer",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    x = np.random.default_rng(sum(size)).uniform(1, 2, [1, 2, *size]).astype(np.float32)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), x


def drawn(seed):
    rng = np.random.default_rng(seed)
    op = str(rng.choice(list(VERSIONS)))
    opset, rank = int(rng.choice(VERSIONS[op])), int(rng.integers(1, 4))
    size, kernel, strides = (rng.integers(1, n, rank) for n in (4, 6, 4))
    attributes = {"kernel_shape": kernel.tolist(), "strides": strides.tolist()}
    if rng.integers(3) == 0:
        attributes["auto_pad"] = "VALID"
    else:
        attributes["pads"] = [int(rng.integers(0, max(1, min(2, k)))) for k in np.tile(kernel, 2)]
    if op == "AveragePool" and opset >= 19:    # before, ONNX Runtime counts what lies outside of the padding too
        attributes["count_include_pad"] = int(rng.integers(2))
    return op, size.tolist(), opset, attributes


def runtime(model, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def test_drawn(tmp_path):
    server, path, wrong, partial = suite.Server(str(PROGRAM)), tmp_path / "layer.onnx", [], 0
    for seed in range(400):
        op, size, opset, attributes = drawn(seed)
        model, x = layer(op, size, opset, **attributes)
        try:
            want = runtime(model, x)
        except Exception:
            continue
        room = np.array(size) + np.array(attributes.get("pads", [0] * 2 * len(size))).reshape(2, -1).sum(0) - attributes["kernel_shape"]
        partial += bool(np.any(room < 0) and want.size)
        onnx.save(model, path)
        status, text, got = server.ask(path, [x], model.graph.input)
        if status != "ok" or got[0].shape != want.shape or not np.allclose(got[0], want, rtol=1e-4, atol=1e-5):
            wrong.append(f"{seed}: {op}-{opset} {size} {attributes}: {status} {text} {got and got[0].shape} {want.shape} {got} {want}")
    assert not wrong, "\n".join(wrong)
    assert partial > 40


def test_open_sizes(tmp_path):
    """Sizes of the run give what fixed ones give."""
    server, path = suite.Server(str(PROGRAM)), tmp_path / "layer.onnx"
    for size in (4, 3, 2, 1):
        model, x = layer("MaxPool", [size, 4], 12, True, kernel_shape=[3, 1], strides=[2, 2])
        onnx.save(model, path)
        status, text, got = server.ask(path, [x], model.graph.input)
        assert status == "ok", (size, status, text)
        assert np.array_equal(got[0], runtime(model, x))


@pytest.mark.parametrize("op, k, warned", [("MaxPool", 3, True), ("AveragePool", 3, True), ("LpPool", 3, True), ("MaxPool", 2, False),
                                           ("MaxPool", 1, False)])
def test_warning(op, k, warned, tmp_path):
    onnx.save(layer(op, [1], 11, kernel_shape=[k], strides=[2])[0], tmp_path / "layer.onnx")
    done = mcc("check", tmp_path / "layer.onnx")
    assert done.returncode == 0 and ("[-Wempty]" in done.stderr) == warned, done.stderr
    assert mcc("check", tmp_path / "layer.onnx", "--Werror").returncode == int(warned)


def test_warning_of_convolutions(tmp_path):
    model, _ = layer("Conv", [2, 5], 11)
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [1, 2, 3, 3], [0.0] * 18))
    model.graph.node[0].input.append("w")
    onnx.save(model, tmp_path / "layer.onnx")
    done = mcc("check", tmp_path / "layer.onnx")
    assert done.returncode == 0 and "dimension 2, of 2 elements, becomes empty" in done.stderr, done.stderr

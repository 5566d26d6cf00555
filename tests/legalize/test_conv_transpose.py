"""ConvTranspose: the full product of ranks, groups, auto_pad, strides, dilations, bias and output_padding against ONNX
Runtime, input extent 8 (4 for rank 3), kernel 3. SAME_* with output_padding is left out: there the two differ on purpose
(acceptance by the operator's text, which gives input * stride)."""
import itertools
import os
import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from legalize import suite

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(os.environ.get("MCC_BUILD", HERE.parent.parent / "build")) / "tests/legalize/test_legalize"
PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def forms():
    for rank, groups, pad, stride, dilation, bias, extra in itertools.product(
            (1, 2, 3), (1, 2), PADS, (1, 2), (1, 2), (False, True), (0, 1)):
        if extra and (pad.startswith("SAME") or stride == 1):
            continue    # the oracle wants output_padding below the stride
        yield rank, groups, pad, stride, dilation, bias, extra


def layer(rank, groups, pad, stride, dilation, bias, extra):
    rng = np.random.default_rng(rank * 100 + groups)
    extent = 4 if rank == 3 else 8
    feeds = {"x": rng.uniform(-1, 1, (2, 4) + (extent,) * rank).astype(np.float32),
             "w": rng.uniform(-1, 1, (4, 6 // groups) + (3,) * rank).astype(np.float32)}
    if bias:
        feeds["b"] = rng.uniform(-1, 1, 6).astype(np.float32)
    attrs = {"auto_pad": pad, "group": groups, "strides": [stride] * rank, "dilations": [dilation] * rank}
    if pad == "NOTSET":
        attrs["pads"] = [1] * rank + [0] * rank
    if extra:
        attrs["output_padding"] = [1] * rank
    node = helper.make_node("ConvTranspose", list(feeds), ["y"], **attrs)
    ports = [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in feeds.items()]
    graph = helper.make_graph([node], "layer", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8), feeds


@pytest.mark.parametrize("rank", (1, 2, 3))
def test_product(rank, tmp_path):
    server, path, wrong = suite.Server(str(PROGRAM)), tmp_path / "layer.onnx", []
    for form in forms():
        if form[0] != rank:
            continue
        model, feeds = layer(*form)
        onnx.save(model, path)
        want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        status, text, got = server.ask(path, list(feeds.values()), model.graph.input)
        if status != "ok" or got[0].shape != want.shape or not np.allclose(got[0], want, rtol=1e-4, atol=1e-5):
            wrong.append(f"{form}: {status} {text} {got[0].shape if got else ''} {want.shape}")
    assert not wrong, "\n".join(wrong)


def drawn(seed):
    """A model of one version with pads that are derived, from output_shape or auto_pad, odd totals too; and its operand x."""
    rng = np.random.default_rng(seed)
    rank, groups, opset = 1 + seed % 3, int(rng.integers(1, 3)), int(rng.choice([1, 9, 10, 11, 22]))
    channels, columns = groups * int(rng.integers(1, 3)), int(rng.integers(1, 3))
    size, kernel, strides = (rng.integers(1, n, rank) for n in (5, 5, 4))
    dilations = rng.choice([1, 1, 2], rank)
    full = (size - 1) * strides + (kernel - 1) * dilations + 1
    pad = str(rng.choice(["NOTSET", "SAME_UPPER", "SAME_LOWER"]))
    attrs = {"strides": strides.tolist(), "dilations": dilations.tolist(), "group": groups, "auto_pad": pad}
    if pad == "NOTSET" or rng.integers(2) or np.any(full < size * strides):
        attrs["output_shape"] = np.maximum(1, full - rng.integers(0, 4, rank)).tolist()
    x = rng.uniform(-1, 1, [1, channels, *size]).astype(np.float32)
    w = numpy_helper.from_array(rng.uniform(-1, 1, [channels, columns, *kernel]).astype(np.float32), "w")
    graph = helper.make_graph([helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attrs)], "layer",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), x


def test_derived_pads_of_every_version(tmp_path):
    server, path, wrong, refused = suite.Server(str(PROGRAM)), tmp_path / "layer.onnx", [], 0
    for seed in range(240):
        model, x = drawn(seed)
        onnx.save(model, path)
        try:
            want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        except onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument:
            refused += 1
            continue
        status, text, got = server.ask(path, [x], model.graph.input)
        if status != "ok" or got[0].shape != want.shape or not np.allclose(got[0], want, rtol=1e-4, atol=1e-5):
            wrong.append(f"{seed}, version {model.opset_import[0].version}: {status} {text} {model.graph.node[0].attribute}")
    assert not wrong, "\n".join(wrong)
    assert refused < 24

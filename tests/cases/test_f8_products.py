"""Products of f8 operands, summed in f32: what ONNX writes with DequantizeLinear and Cast, against ONNX Runtime and the interpreter."""
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper as h

from support import cpu
from support.artifact import Artifact
from support.tool import mcc

N = h.make_node
TYPES = {"f8e4m3fn": (ml_dtypes.float8_e4m3fn, TensorProto.FLOAT8E4M3FN), "f8e5m2": (ml_dtypes.float8_e5m2, TensorProto.FLOAT8E5M2)}
FORMS = {
    "weights": ("f32", [N("DequantizeLinear", ["w", "s"], ["b"], axis=1), N("MatMul", ["x", "b"], ["y"])]),
    "both": ("f32", [N("QuantizeLinear", ["x", "t", "z"], ["q"]), N("DequantizeLinear", ["q", "t", "z"], ["a"]),
                     N("DequantizeLinear", ["w", "s"], ["b"], axis=1), N("MatMul", ["a", "b"], ["y"])]),
    "ports": ("f8", [N("Cast", ["x"], ["a"], to=TensorProto.FLOAT), N("Cast", ["w"], ["b"], to=TensorProto.FLOAT), N("MatMul", ["a", "b"], ["y"])]),
    "bytes": ("f8", [N("Cast", ["x"], ["a"], to=TensorProto.UINT8), N("Cast", ["w"], ["b"], to=TensorProto.INT8), N("MatMulInteger", ["a", "b"], ["y"])]),
}


def raw(name, a, kind):
    return h.make_tensor(name, kind, a.shape, a.tobytes(), raw=True)


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TYPES)
def test_products(tmp_path, name, form, rows):
    numbers, kind = TYPES[name]
    port, nodes = FORMS[form]
    rng, f8 = np.random.default_rng(3), port == "f8"
    w = (rng.standard_normal((70, 40)) * (8 if form == "bytes" else 1)).astype(numbers)
    constants = [raw("w", w, kind), raw("s", rng.uniform(0.5, 1.5, 40).astype(np.float32), TensorProto.FLOAT),
                 raw("t", np.float32(0.1).reshape(()), TensorProto.FLOAT), raw("z", np.zeros((), numbers), kind)]
    used = {i for n in nodes for i in n.input}
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", kind if f8 else TensorProto.FLOAT, [rows, 70])],
                         [h.make_tensor_value_info("y", TensorProto.INT32 if form == "bytes" else TensorProto.FLOAT, [rows, 40])],
                         [c for c in constants if c.name in used])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10), tmp_path / "net.onnx")
    x = np.abs(rng.standard_normal((rows, 70)) * 20).astype(np.float32).astype(numbers if f8 else np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # else it takes "both" for integers, and refuses
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), options)
    feed = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint8) if f8 else x, kind if f8 else TensorProto.FLOAT)
    want = session.run_with_ort_values(["y"], {"x": feed})[0].numpy()
    scale = 0 if form == "bytes" else np.abs(want).max()
    for level in cpu.levels():
        assert mcc(tmp_path / "net.onnx", "-o", tmp_path / "net.so", level).returncode == 0
        with Artifact(tmp_path / "net.so") as a:
            assert np.abs(a.run([x])[0].astype(np.float64) - want).max() <= 2e-6 * scale, level
    if not f8:
        np.save(tmp_path / "x.npy", x)
        assert mcc("eval", tmp_path / "net.onnx", "-o", tmp_path / "eval", f"-ix={tmp_path}/x.npy").returncode == 0
        assert np.abs(np.load(tmp_path / "eval/y.npy") - want).max() <= 2e-6 * scale

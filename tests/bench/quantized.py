"""Quantized networks, made by the onnxruntime package's own tools from the float exports.

A form is how a network is quantized. Convolutional networks are calibrated with random images; "dynamic" finds the ranges of
what is not constant in the run. Files are kept in a folder: the same name is the same network.
"""
import dataclasses
import logging
import pathlib

import numpy as np
import onnx


@dataclasses.dataclass(frozen=True)
class Form:
    """activations, weights: u8 or i8; qdq: pairs of QuantizeLinear and DequantizeLinear, else QLinear operators."""
    qdq: bool = True
    activations: str = "u8"
    weights: str = "i8"
    per_channel: bool = True
    symmetric: bool = False
    dynamic: bool = False


FORMS = {
    "qdq": Form(),
    "qdq-s8": Form(activations="i8"),
    "qdq-symmetric": Form(activations="i8", symmetric=True),
    "qdq-tensor": Form(per_channel=False),
    "qop": Form(qdq=False),
    "qop-s8": Form(qdq=False, activations="i8"),
    "qop-tensor": Form(qdq=False, per_channel=False),
    "dynamic": Form(dynamic=True),
}
SAMPLES = 2


def draw(port, rng):
    kind = port.type.tensor_type
    shape = [d.dim_value if d.HasField("dim_value") else 1 for d in kind.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    return rng.standard_normal(shape).astype(dtype) if dtype.kind == "f" else rng.integers(0, 30000, shape).astype(dtype)


class Samples:
    """What quantize_static wants of a CalibrationDataReader."""

    def __init__(self, model):
        rng, weights = np.random.default_rng(7), {t.name for t in model.graph.initializer}
        ports = [p for p in model.graph.input if p.name not in weights]
        self.left = [{p.name: draw(p, rng) for p in ports} for _ in range(SAMPLES)]

    def get_next(self):
        return self.left.pop() if self.left else None


def quantize(source, form, path):
    """Writes the network `source`, quantized as FORMS[form] says, to path, unless it is there."""
    from onnxruntime import quantization as q
    f, path = FORMS[form], pathlib.Path(path)
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    logging.getLogger().setLevel(logging.ERROR)                     # its advice to preprocess
    types = {"u8": q.QuantType.QUInt8, "i8": q.QuantType.QInt8}
    unfinished = path.with_suffix(".part")
    if f.dynamic:
        q.quantize_dynamic(source, unfinished, per_channel=f.per_channel, weight_type=types[f.weights])
    else:
        q.quantize_static(source, unfinished, Samples(onnx.load(source)), per_channel=f.per_channel,
                          quant_format=q.QuantFormat.QDQ if f.qdq else q.QuantFormat.QOperator,
                          activation_type=types[f.activations], weight_type=types[f.weights],
                          extra_options={"ActivationSymmetric": f.symmetric})
    unfinished.rename(path)
    return path

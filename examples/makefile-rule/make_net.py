#!/usr/bin/env python3
"""Writes net.onnx and its external weights net.weights: a dense layer, so that the example has both kinds of file."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

weights = numpy_helper.from_array(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8), "w")
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["h"], "dense"), helper.make_node("Relu", ["h"], ["y"], "relu")], "net",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])], [weights])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.save(model, "net.onnx", save_as_external_data=True, location="net.weights", size_threshold=0)

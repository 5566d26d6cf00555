"""Models of ai.onnx.ml operators, for tests beside ONNX Runtime."""
import onnx
from onnx import helper

from support.compare import Model


def model_of(folder, nodes, inputs, outputs, version=1, opset=17):
    graph = helper.make_graph(nodes, "net", inputs, outputs)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", version)]
    folder.mkdir(exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "net.onnx")
    return Model(folder, path=folder / "net.onnx")

"""One node at a time in ONNX Runtime, without its optimisations: the shapes and values of what is being drawn."""
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from fuzz.ort.elements import ELEM, OF_NAME, carrier

IR_VERSION = 10
DOMAINS = {"ai.onnx.ml": 4, "com.microsoft": 1}      # versions of what is not ONNX's own


def sequence_info(name, arrays):
    return helper.make_tensor_sequence_value_info(name, ELEM[arrays[0].dtype] if arrays else TensorProto.FLOAT, None)


def session(model, optimise):
    """An inference session of one thread. Raises what ONNX Runtime raises."""
    o = onnxruntime.SessionOptions()
    o.intra_op_num_threads = o.inter_op_num_threads = 1
    o.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    o.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"])


class Carried:
    """A graph in the making whose ports have types that numpy and ONNX Runtime share: others pass a Cast."""

    def __init__(self):
        self.nodes, self.inputs, self.outputs, self.tensors = [], [], [], []

    def input(self, name, dtype, dims):
        carried = carrier(dtype)
        self.inputs.append(helper.make_tensor_value_info(name if carried == dtype else f"{name}_c", ELEM[carried], dims))
        if carried != dtype:
            self.nodes.append(helper.make_node("Cast", [f"{name}_c"], [name], to=ELEM[dtype]))

    def output(self, name, dtype, dims=None):
        carried = carrier(dtype)
        if carried != dtype:
            self.nodes.append(helper.make_node("Cast", [name], [f"{name}_c"], to=ELEM[carried]))
            name = f"{name}_c"
        self.outputs.append(helper.make_tensor_value_info(name, ELEM[carried], dims))

    def model(self, opset):
        graph = helper.make_graph(self.nodes, "drawn", self.inputs, self.outputs, self.tensors)
        imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, DOMAINS[d]) for d in sorted({n.domain for n in self.nodes} - {""})]
        return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)


class Node:
    """A node alone in a model; run() gives its outputs for other values of the same operands."""

    def __init__(self, node, operands, opset):
        """operands: {name: (array, or list of them, and whether it is constant)}. Raises what ONNX Runtime raises."""
        self.args = node, operands, opset
        self.names = [o for o in node.output if o]
        self.session = self.make({})
        self.types = [OF_NAME.get(o.type) for o in self.session.get_outputs()]
        if any(t and carrier(t) != t for t in self.types):
            self.session = self.make(dict(zip(self.names, self.types)))

    def make(self, types):
        node, operands, opset = self.args
        graph = Carried()
        self.ports = []
        for name, (a, constant) in operands.items():
            if constant:
                graph.tensors.append(numpy_helper.from_array(a, name))
                continue
            self.ports.append(name)
            if isinstance(a, list):
                graph.inputs.append(sequence_info(name, a))
            else:
                graph.input(name, a.dtype, list(a.shape))
        graph.nodes.append(node)
        for name in self.names:
            if types.get(name):
                graph.output(name, types[name])
            else:
                graph.outputs.append(helper.make_empty_tensor_value_info(name))
        return session(graph.model(opset), False)

    def run(self, values):
        feed = {}
        for port, name in zip(self.session.get_inputs(), self.ports):
            a = values[name]
            feed[port.name] = a if isinstance(a, list) else a.astype(carrier(a.dtype))
        got = self.session.run(None, feed)
        return [g if isinstance(g, (list, type(None))) else g.astype(t) if t else g for g, t in zip(got, self.types)]

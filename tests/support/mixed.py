"""A small network whose parts need different things of a runtime."""
import numpy as np
from onnx import TensorProto, helper

from support.tool import save, value


def net(path):
    """A convolution, sums that are shared between threads, a sort, text and sizes that the data decides."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4), helper.make_node("Softmax", ["c"], ["s"], "soft", axis=1),
             helper.make_node("TopK", ["s", "k"], ["t", "i"], "top", axis=1), helper.make_node("MatMul", ["t", "m"], ["p"], "mul"),
             helper.make_node("NonZero", ["p"], ["y"], "find"), helper.make_node("Cast", ["i"], ["z"], "text", to=TensorProto.STRING)]
    rng = np.random.default_rng(1)
    save(path, nodes, [value("x", [1, 16, 57, 57])], [value("p", [1, 5, 57, 65]), value("y", [4, None], TensorProto.INT64),
                                                      value("z", [1, 5, 57, 57], TensorProto.STRING)],
         {"w": rng.standard_normal((64, 16, 3, 3)).astype(np.float32), "k": np.array([5]), "m": rng.standard_normal((57, 65)).astype(np.float32)})
    return path

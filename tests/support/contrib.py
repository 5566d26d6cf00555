"""Models of one node of ONNX Runtime's contributed operators."""
import onnx
from onnx import helper, numpy_helper

from support.compare import Model

MS = "com.microsoft"


def contrib(folder, op, feeds, n_out=1, constants=(), symbolic=True, standard=17, outputs=None, masks=(), **attributes):
    """A model of one node, and what it is to be given. feeds: {name: array} in the operator's order, None for one left out, a TensorProto for
    a constant of a type that numpy lacks; constants: names stored. symbolic: open dims, with "inner" all but the last of each that is not
    in masks. standard: version of ONNX. outputs: element types, where ONNX Runtime cannot infer them."""
    names = [k if v is not None else "" for k, v in feeds.items()]
    outs = [f"out{i}" for i in range(n_out)]
    given = {k: v for k, v in feeds.items() if v is not None and k not in constants}
    fixed = lambda k, v, i: not symbolic or symbolic == "inner" and i == v.ndim - 1 and k not in masks
    inputs = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), [n if fixed(k, v, i) else f"{k}{i}" for i, n in enumerate(v.shape)])
              for k, v in given.items()]
    results = [helper.make_tensor_value_info(o, outputs[i], None) if outputs else helper.make_empty_tensor_value_info(o) for i, o in enumerate(outs)]
    stored = [feeds[k] if isinstance(feeds[k], onnx.TensorProto) else numpy_helper.from_array(feeds[k], k) for k in constants]
    graph = helper.make_graph([helper.make_node(op, names, outs, "node", domain=MS, **attributes)], "contrib", inputs, results, stored)
    folder = folder / str(len(list(folder.iterdir())))
    folder.mkdir()
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", standard), helper.make_opsetid(MS, 1)], ir_version=10), path)
    return Model(folder, path=path), list(given.values())

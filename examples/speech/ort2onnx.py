"""Turns a network in ONNX Runtime's own format into ONNX: ort2onnx.py IN.ort OUT.onnx

Needs the packages onnx and onnxruntime, whose readers of that format are used. Moonshine's decoder calls three lengths by one name, though they differ:
frames that were heard, samples (of the mask), frames in the caches of a first call, which has none. Here the last two get names of their own.
"""
import sys

import onnx
from onnx import AttributeProto as A
from onnx import helper
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs import InferenceSession, TensorTypeAndShape

OWN_NAMES = {("encoder_attention_mask", 1): "mask_length", (".encoder.", 2): "past_encoder"}


def text(raw):
    return raw.decode() if raw else ""


def each(holder, name):
    """The elements of a vector."""
    return [getattr(holder, name)(i) for i in range(getattr(holder, name + "Length")())]


def tensor(t):
    made = onnx.TensorProto(name=text(t.Name()), data_type=t.DataType(), dims=each(t, "Dims"))
    if t.DataType() == onnx.TensorProto.STRING:
        made.string_data.extend(each(t, "StringData"))
    else:
        made.raw_data = t.RawDataAsNumpy().tobytes() if t.RawDataLength() else b""
    return made


def dim_of(name, place, d):
    value = d.Value()
    if value is None or not value.DimType():
        return None
    if value.DimType() == 1:
        return value.DimValue()
    own = [new for (part, at), new in OWN_NAMES.items() if part in name and at == place and not name.startswith("present")]
    return own[0] if own else text(value.DimParam())


def port(arg):
    """An input or an output, with its type where that is a tensor's."""
    name, kind = text(arg.Name()), TensorTypeAndShape.TensorTypeAndShape()
    if arg.Type() is None or arg.Type().ValueType() != 1:
        return onnx.ValueInfoProto(name=name)
    kind.Init(arg.Type().Value().Bytes, arg.Type().Value().Pos)
    dims = [dim_of(name, i, d) for i, d in enumerate(each(kind.Shape(), "Dim"))] if kind.Shape() else None
    return helper.make_tensor_value_info(name, kind.ElemType(), dims)


def attribute(a):
    made = A(name=text(a.Name()), type=a.Type())
    simple = {A.FLOAT: ("f", a.F), A.INT: ("i", a.I), A.STRING: ("s", a.S)}
    many = {A.FLOATS: ("floats", "Floats"), A.INTS: ("ints", "Ints"), A.STRINGS: ("strings", "Strings")}
    if a.Type() in simple:
        field, get = simple[a.Type()]
        setattr(made, field, get() or (b"" if field == "s" else 0))
    elif a.Type() in many:
        getattr(made, many[a.Type()][0]).extend(each(a, many[a.Type()][1]))
    elif a.Type() == A.TENSOR:
        made.t.CopyFrom(tensor(a.T()))
    elif a.Type() == A.GRAPH:
        made.g.CopyFrom(graph(a.G(), made.name))
    else:
        sys.exit(f"attribute {made.name}: type {a.Type()}")
    return made


def reads(node):
    """Names that a node asks for, those that its branches take from outside among them."""
    names = {n for n in node.input if n}
    for a in node.attribute:
        if a.type == A.GRAPH:
            inside = {x.name for x in [*a.g.input, *a.g.initializer]} | {o for n in a.g.node for o in n.output}
            names |= set().union(*(reads(n) for n in a.g.node), {o.name for o in a.g.output}) - inside
    return names


def ordered(nodes):
    """Each node behind those that it reads of: the file keeps no order."""
    maker = {o: i for i, n in enumerate(nodes) for o in n.output if o}
    waits = [{maker[x] for x in reads(n) if x in maker} - {i} for i, n in enumerate(nodes)]
    done, order = set(), []
    while len(order) < len(nodes):
        ready = [i for i in range(len(nodes)) if i not in done and waits[i] <= done]
        if not ready:
            sys.exit("the nodes form a circle")
        done |= set(ready)
        order += [nodes[i] for i in ready]
    return order


def graph(g, name):
    args = {text(a.Name()): a for a in each(g, "NodeArgs")}
    constants = [tensor(t) for t in each(g, "Initializers")]
    fixed = {t.name for t in constants}
    nodes = []
    for n in each(g, "Nodes"):
        made = onnx.NodeProto(name=text(n.Name()), op_type=text(n.OpType()), domain=text(n.Domain()))
        made.input.extend(text(x) for x in each(n, "Inputs"))
        made.output.extend(text(x) for x in each(n, "Outputs"))
        made.attribute.extend(attribute(a) for a in each(n, "Attributes"))
        nodes.append(made)
    inputs = [port(args[text(x)]) for x in each(g, "Inputs") if text(x) not in fixed]
    return helper.make_graph(ordered(nodes), name, inputs, [port(args[text(x)]) for x in each(g, "Outputs")], constants)


def domains(g):
    return {n.domain for n in g.node}.union(*(domains(a.g) for n in g.node for a in n.attribute if a.type == A.GRAPH))


def main(source, target):
    with open(source, "rb") as f:
        model = InferenceSession.InferenceSession.GetRootAs(f.read(), 0).Model()
    made = graph(model.Graph(), "main")
    used = domains(made) | {""}
    opsets = [helper.make_opsetid(text(o.Domain()), o.Version()) for o in each(model, "OpsetImport") if text(o.Domain()) in used]
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=min(model.IrVersion(), 10)), target)


if __name__ == "__main__":
    main(*sys.argv[1:3])

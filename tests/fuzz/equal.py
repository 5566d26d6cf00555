"""Networks that compute what another network computes: values go through nodes that give them back, branches are added that nobody reads."""
import copy

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 13        # from here on the nodes below have these inputs
FLOATS = (TensorProto.FLOAT,)


class Edit:
    """New nodes and constants around one value."""

    def __init__(self, rng, name, rank, dims, elem, number):
        self.rng, self.name, self.rank, self.dims, self.elem, self.number = rng, name, rank, dims, elem, number
        self.nodes, self.tensors = [], []

    def constant(self, array):
        self.tensors.append(numpy_helper.from_array(np.asarray(array), f"equal{self.number}_c{len(self.tensors)}"))
        return self.tensors[-1].name

    def one(self):
        return helper.tensor_dtype_to_np_dtype(self.elem).type(1)

    def node(self, op, inputs, outputs=1, **attributes):
        base = f"equal{self.number}_{len(self.nodes)}"
        names = [f"{base}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, base, **attributes))
        return names if outputs > 1 else names[0]


def identity(e):
    return e.node("Identity", [e.name])


def turned(e):
    order = [int(i) for i in e.rng.permutation(e.rank)]
    return e.node("Transpose", [e.node("Transpose", [e.name], perm=order)], perm=[order.index(i) for i in range(e.rank)])


def reshaped(e):
    shape = e.node("Shape", [e.name])
    return e.node("Reshape", [e.node("Reshape", [e.name, e.constant(np.int64([-1]))]), shape], allowzero=1) if e.opset >= 14 else None


def squeezed(e):
    axis = e.constant(np.int64([int(e.rng.integers(e.rank + 1))]))
    return e.node("Squeeze", [e.node("Unsqueeze", [e.name, axis]), axis])


def split(e):
    """Along a dim of known size, and joined."""
    axes = [i for i, n in enumerate(e.dims) if n > 1]
    if not axes:
        return None
    axis = int(e.rng.choice(axes))
    cut = int(e.rng.integers(1, e.dims[axis]))
    parts = e.node("Split", [e.name, e.constant(np.int64([cut, e.dims[axis] - cut]))], 2, axis=axis)
    return e.node("Concat", parts, axis=axis)


def doubled(e):
    """Joined with itself, of which the first half is taken: from the end by its size."""
    axes = [i for i, n in enumerate(e.dims) if n > 0]
    if not axes:
        return None
    axis = int(e.rng.choice(axes))
    first, end = (0, e.dims[axis]) if e.rng.integers(2) else (e.dims[axis], 2 * e.dims[axis])
    both = e.node("Concat", [e.name, e.name], axis=axis)
    return e.node("Slice", [both, *(e.constant(np.int64([i])) for i in (first, end, axis))])


def padded(e):
    axis, before, after = int(e.rng.integers(e.rank)), int(e.rng.integers(3)), int(e.rng.integers(1, 4))
    pads = np.zeros((2, e.rank), np.int64)
    pads[:, axis] = before, after
    wide = e.node("Pad", [e.name, e.constant(pads.reshape(-1))])
    return e.node("Slice", [wide, *(e.constant(np.int64([i])) for i in (before, -after, axis))])


def reversed_twice(e):
    ends = [e.constant(np.int64([i])) for i in (-1, -2**63 + 1, int(e.rng.integers(e.rank)), -1)]
    return e.node("Slice", [e.node("Slice", [e.name, *ends]), *ends])


def negated(e):
    return e.node("Neg", [e.node("Neg", [e.name])])


def times_one(e):
    op = ("Mul", "Div")[e.rng.integers(2)]
    return e.node(op, [e.name, e.constant(e.one())])


def and_nothing(e):
    op = ("Add", "Sub")[e.rng.integers(2)]
    return e.node(op, [e.name, e.constant(e.one() - e.one())])


def largest(e):
    return e.node(("Max", "Min")[e.rng.integers(2)], [e.name, e.name])


def wider(e):
    return e.node("Cast", [e.node("Cast", [e.name], to=TensorProto.DOUBLE)], to=e.elem)


def chosen(e):
    """By a constant; the other side is another value."""
    return e.node("Where", [e.constant(np.bool_(True)), e.name, e.node("Mul", [e.name, e.name])])


def unread(e):
    """The value as it is, beside a branch whose results nobody reads."""
    e.node("Softmax", [e.node("Mul", [e.name, e.name])], axis=-1)
    return e.name


ANY = [identity, turned, reshaped, squeezed, split, doubled, padded, reversed_twice]
OF_FLOATS = [negated, times_one, and_nothing, largest, wider, chosen, unread]
MOVED = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32, TensorProto.UINT8, TensorProto.INT8)


def forget_extents(graph):
    """In the subgraphs of its nodes, as a body may declare others than it gets."""
    for body in (a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH):
        for v in [*body.input, *body.output, *body.value_info]:
            for d in v.type.tensor_type.shape.dim:
                d.Clear()
        forget_extents(body)


def types_of(model):
    """{value: (element type, [extent or -1])} of the tensors whose rank is known."""
    model, found = copy.deepcopy(model), {}
    forget_extents(model.graph)
    graph = onnx.shape_inference.infer_shapes(model).graph
    for v in [*graph.input, *graph.value_info, *graph.output]:
        kind = v.type.tensor_type
        if v.type.HasField("tensor_type") and kind.HasField("shape") and kind.elem_type in MOVED:
            found[v.name] = kind.elem_type, [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
    for t in graph.initializer:
        if t.data_type in MOVED:
            found[t.name] = t.data_type, list(t.dims)
    return found


def opset_of(model):
    return next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))


def equal(model, rng, most=3):
    """(another network with the same results, what was done), or (None, ""): nothing can be done here."""
    if opset_of(model) < OPSET:
        return None, ""
    types, made, said = types_of(model), copy.deepcopy(model), []
    for number in range(int(rng.integers(1, most + 1))):
        places = [(n, i) for n in made.graph.node for i, name in enumerate(n.input) if name in types and len(types[name][1])]
        if not places:
            break
        node, i = places[rng.integers(len(places))]
        elem, dims = types[node.input[i]]
        e = Edit(rng, node.input[i], len(dims), dims, elem, number)
        e.opset = opset_of(model)
        ways = ANY + (OF_FLOATS if elem in FLOATS else [])
        way = ways[rng.integers(len(ways))]
        name = way(e)
        if name is None:
            continue
        said.append(f"{way.__name__} {node.input[i]} of {node.name or node.output[0]}")
        node.input[i], types[name] = name, types[node.input[i]]
        at = next(k for k, n in enumerate(made.graph.node) if n is node or n.output == node.output)
        rest = [copy.deepcopy(n) for n in made.graph.node[at:]]
        del made.graph.node[at:]
        made.graph.node.extend(e.nodes + rest)
        made.graph.initializer.extend(e.tensors)
    return (made, "; ".join(said)) if said else (None, "")

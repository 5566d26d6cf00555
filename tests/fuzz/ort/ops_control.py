"""Branches, loops and sequences."""
import numpy as np
from onnx import TensorProto as T
from onnx import helper

from fuzz.ort.draw import Refused, generator
from fuzz.ort.elements import BOOL, ELEM, F32, I32, I64

STEPS = ("Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Exp", "Add", "Mul", "Sub", "Identity")


def body(d, start, captured, prefix, n):
    """n nodes over the value named `start` and captured ones of the same shape; (nodes, name of the result)."""
    nodes, have = [], [start]
    for i in range(n):
        op = d.pick(STEPS)
        operands = [d.pick(have)] + ([d.pick(have + [c.name for c in captured])] if op in ("Add", "Mul", "Sub") else [])
        have.append(f"{prefix}{i}")
        nodes.append(helper.make_node(op, operands, [have[-1]]))
    return nodes, have[-1]


def info(name, v, dims=True):
    return helper.make_tensor_value_info(name, ELEM[v.dtype], v.shape if dims else None)


@generator("If", weight=2)
def branch(d, op):
    x = d.value([F32], 0, 3, 0)
    y = d.value([F32], x.rank, x.rank, shape=x.shape, fresh=40)
    condition = d.value([BOOL], 0, 0, shape=[], fresh=60)
    graphs = []
    for k, which in enumerate("te"):
        nodes, last = body(d, x.name, [x, y], d.name(which), d.int(1, 3))
        graphs.append(helper.make_graph(nodes, which, [], [info(last, x, d.chance(50))]))
    d.node(op, [condition], captures=[x, y], then_branch=graphs[0], else_branch=graphs[1])


@generator("Loop", weight=2)
def loop(d, op):
    x = d.value([F32], 0, 3, 0)
    y = d.value([F32], x.rank, x.rank, shape=x.shape, fresh=40)
    p = d.name("l")
    nodes, last = body(d, f"{p}in", [y], f"{p}_", d.int(1, 3))
    nodes.append(helper.make_node("Identity", [f"{p}c"], [f"{p}d"]))
    outputs = [helper.make_tensor_value_info(f"{p}d", T.BOOL, []), info(last, x)]
    scan = d.chance(50)
    if scan:
        nodes.append(helper.make_node("Neg", [last], [f"{p}s"]))
        outputs.append(info(f"{p}s", x))
    graph = helper.make_graph(nodes, "body", [helper.make_tensor_value_info(f"{p}i", T.INT64, []),
                                              helper.make_tensor_value_info(f"{p}c", T.BOOL, []), info(f"{p}in", x)], outputs)
    trips = d.const(d.int(0 if d.empties else 1, 4), constant=d.chance(60))
    condition = d.const(True, np.bool_) if d.chance(60) else None
    d.node(op, [trips, condition, x], 2 if scan else 1, captures=[y], body=graph)


@generator("Scan", weight=2)
def scan(d, op):
    if d.version(op) < 9:
        raise Refused("the batched form")
    x = d.value([F32], 1, 3, 1)
    axis = d.int(0, x.rank - 1)
    part = [n for i, n in enumerate(x.shape) if i != axis]
    state = d.value([F32], len(part), len(part), shape=part, fresh=50)
    p = d.name("s")
    nodes, last = body(d, f"{p}a", [type(state)(f"{p}b", state.data, state.shadows, False)], f"{p}_", d.int(1, 3))
    nodes.append(helper.make_node("Add", [last, f"{p}b"], [f"{p}o"]))
    graph = helper.make_graph(nodes, "body", [info(f"{p}a", state), info(f"{p}b", state)], [info(last, state), info(f"{p}o", state)])
    given = {"scan_input_axes": [axis]} if axis or d.chance(30) else {}
    if d.chance(30):
        given["scan_input_directions"] = [d.int(0, 1)]
    if d.chance(30):
        given["scan_output_directions"] = [d.int(0, 1)]
    if d.chance(30):
        given["scan_output_axes"] = [d.int(0, len(part))]
    d.node(op, [state, x], 2, body=graph, num_scan_inputs=1, **given)


def sequence(d):
    """A sequence of the pool, or a new one."""
    fits = [v for v in d.pool if isinstance(v.data, list) and v.data]
    if fits and d.chance(60):
        return d.pick(fits)
    x = d.value([F32, I64, I32], 1, 3, 1)
    if d.chance(40) and d.opset >= 11:
        axis = d.axis(x.rank)
        n = x.shape[axis]
        parts = None if d.chance(40) else d.const(d.int(1, n)) if d.chance(50) else d.const([n - n // 2, n // 2] if n > 1 else [n])
        made, = d.node("SplitToSequence", [x, parts], axis=axis, **({"keepdims": d.int(0, 1)} if d.chance(60) else {}))
    else:
        made, = d.node("SequenceConstruct", [x] + [d.value([x.dtype], x.rank, x.rank, shape=x.shape, fresh=60) for _ in range(d.int(0, 2))])
    return made


@generator("SequenceAt", "SequenceErase", "SequenceInsert", "SequenceLength", "ConcatFromSequence")
def of_sequence(d, op):
    d.schema(op)
    s = sequence(d)
    n = len(s.data)
    at = d.const(d.int(-n, n - 1), d.pick((np.int64, np.int32)))
    if op == "SequenceAt":
        d.node(op, [s, at])
    elif op == "SequenceErase":
        d.node(op, [s, at if d.chance(60) else None])
    elif op == "SequenceInsert":
        d.node(op, [s, d.leaf(s.data[0].dtype, list(s.data[0].shape)), at if d.chance(60) else None])
    elif op == "SequenceLength":
        d.node(op, [s])
    else:
        rank = s.data[0].ndim
        new = d.chance(30) or rank == 0
        d.node(op, [s], axis=d.int(-rank - new, rank - 1 + new), **({"new_axis": 1} if new else {}))

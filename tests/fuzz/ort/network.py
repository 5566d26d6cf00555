"""A whole network from a seed: its file, its inputs, and what is known of its results."""
import dataclasses

import numpy as np
from onnx import helper, numpy_helper

from fuzz.ort import ops_contrib, ops_control, ops_large, ops_map, ops_ml, ops_nn, ops_quant, ops_reduce, ops_shape, ops_sizes, ops_text
from fuzz.ort.draw import GENERATORS, Draw, Refused
from fuzz.ort.eager import Carried, sequence_info
from fuzz.ort.elements import I4, TEXT, U4

FAMILIES = (ops_map, ops_reduce, ops_shape, ops_sizes, ops_nn, ops_quant, ops_control, ops_ml, ops_text)
NAMED = {"contrib": ops_contrib, "large": ops_large}      # families of which networks have operators only if asked to
OPSETS = list(range(7, 27))                   # those that ONNX Runtime loads
OPSET_WEIGHT = [3 if v in (13, 17, 18, 21, 22, 24, 26) else 1 for v in OPSETS]
SIZES = (1, 2, 3, 5, 8, 12, 20, 30)
SIZE_WEIGHT = (4, 4, 5, 5, 4, 3, 2, 1)
OUTPUTS = 8
SIZED, SIZED_WEIGHT = 30, 25                  # percent of the networks that compute sizes; how much oftener those generators then come
FLAGS = ((), ("-O0",), ("-O1",), ("-march=x86-64-v2",), ("-march=x86-64-v3",), ("--layout=NC16c",), ("--winograd=6",))
FLAG_WEIGHT = (80, 5, 4, 4, 4, 2, 1)


@dataclasses.dataclass
class Network:
    seed: int
    opset: int
    model: object
    feeds: dict                    # {port: array}
    values: dict                   # {name: (array, shadow, shadow)} of every tensor in it
    more: list                     # feeds of other sizes, where dims are symbolic
    flags: tuple                   # how mcc is to compile it
    refused: list                  # (operator, what ONNX Runtime said), of what was not drawn

    @property
    def ops(self):
        return [n.op_type for n in self.model.graph.node]


def operators(family):
    return [n for n, (function, _) in GENERATORS.items() if function.__module__ == family.__name__]


def expanded(only):
    """The operators that words name, of which some are names of NAMED."""
    return [n for word in only or () for n in (operators(NAMED[word]) if word in NAMED else [word])]


ALWAYS = [n for family in FAMILIES for n in operators(family)]


def draw_network(seed, only=None):
    """The network of this seed; of these operators (or families of NAMED) alone, where some are given."""
    only = expanded(only)
    rng = np.random.default_rng(seed)
    opset = int(rng.choice(OPSETS, p=np.array(OPSET_WEIGHT) / sum(OPSET_WEIGHT)))
    sized = rng.integers(100) < SIZED or bool(only) and any(n.endswith("Sizes") for n in only)
    d = Draw([seed, 1], max(opset, 12) if sized else opset)
    d.sized, d.hostile = sized, sized and rng.integers(100) < 30
    wanted = d.pick(SIZES, SIZE_WEIGHT)
    names = sorted(only or (n for n in ALWAYS if sized or not n.endswith("Sizes")))
    weights = [GENERATORS[n][1] * (SIZED_WEIGHT if n.endswith("Sizes") else 1) for n in names]
    for _ in range(8 * wanted + 20):
        if len(d.nodes) >= wanted:
            break
        name = d.pick(names, weights)
        try:
            GENERATORS[name][0](d, name)
        except Refused:
            pass
    return finish(d, seed) if d.nodes else None


def used_names(nodes):
    names = {n for node in nodes for n in node.input}
    for node in nodes:
        for a in node.attribute:
            if a.HasField("g"):
                names |= used_names(a.g.node)
    return names


def symbols_of(d, inputs):
    """{extent: symbol} of some extents of the inputs, or a symbol of its own for each dim, or none."""
    kind = d.pick(("none", "shared", "own"), (8, 52, 40) if d.sized else (60, 25, 15))
    extents = sorted({n for v in inputs if not isinstance(v.data, list) for n in v.shape if n > 1})
    if kind == "none" or not extents:
        return None, {}
    return kind, {n: f"s{n}" for n in (extents if d.sized and d.chance(60) else d.some(extents, 1))}


def finish(d, seed):
    used = used_names(d.nodes)
    inputs = [v for v in d.inputs if v.name in used]
    kind, symbols = symbols_of(d, inputs)
    graph, extents = Carried(), {}
    for v in inputs:
        dims = v.shape
        for i, n in enumerate(dims):
            if n in symbols and (kind == "shared" or d.chance(60)):
                dims[i] = symbols[n] if kind == "shared" else f"{v.name}_{i}"
                extents[dims[i]] = n
        graph.input(v.name, v.dtype, dims)
    for v in d.constants:
        if v.name in used:
            tensor = numpy_helper.from_array(v.data, v.name)
            if d.chance(15) and v.dtype not in (I4, U4):
                graph.nodes.append(helper.make_node("Constant", [], [v.name], value=tensor))
            else:
                graph.tensors.append(tensor)
    graph.nodes += d.nodes
    results = [v for v in d.pool if v.name not in used and v.data is not None and (not isinstance(v.data, list) or v.data)]
    results = results[-OUTPUTS:] + [v for v in d.pool if v.name in used and d.chance(10)][:2]
    for v in results:
        if isinstance(v.data, list):
            graph.outputs.append(sequence_info(v.name, v.data))
        else:
            graph.output(v.name, v.dtype, v.shape if not extents and d.chance(50) else None)
    feeds = {port.name: v.data.astype(helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type))
             for port, v in zip(graph.inputs, inputs)}
    values = {v.name: (v.data, *v.shadows) for v in [*d.inputs, *d.constants, *d.pool]}
    for port, v in zip(graph.outputs, results):
        values[port.name] = values[v.name]
    certain = not any(n.op_type == "Multinomial" for n in d.nodes)          # of other numbers more than one class may come
    more = [resized(d, graph.inputs, feeds, extents, k) for k in range(3 if d.sized else 2)] if extents and certain else []
    flags = ("-march=native", *d.pick(FLAGS, FLAG_WEIGHT))
    if d.sized and extents and d.chance(20) and not any(0 in a.shape for run in more for a in run.values()):
        flags += tuple(bounded(port) for port in graph.inputs if any(dim.dim_param for dim in port.type.tensor_type.shape.dim))
    return Network(seed, d.opset, graph.model(d.opset), feeds, values, more, flags, d.refused)


def bounded(port):
    """The option that says of each symbol of the input that it is at least 1."""
    dims = (f"{dim.dim_param}=1.." if dim.dim_param else str(dim.dim_value) for dim in port.type.tensor_type.shape.dim)
    return f"--input={port.name}[{','.join(dims)}]"


def resized(d, ports, feeds, extents, k):
    """Inputs of the same kind where each symbol has another extent. Where sizes are computed: all 1, all larger, any."""
    none = 0 if d.empties and not d.divides else 1          # ONNX Runtime ends with SIGFPE where an integer is divided by 0
    if d.sized and k < 2:
        extents = {s: 1 if k == 0 else n + d.pick((1, 2, 3, n)) for s, n in extents.items()}
    else:
        extents = {s: d.pick((1, n + 1, n + 3, max(n // 2, 1), 2 * n, none if d.sized else 0 if d.empties else n)) for s, n in extents.items()}
    made = {}
    for port in ports:
        old = feeds[port.name]
        dims = [extents.get(dim.dim_param, dim.dim_value) for dim in port.type.tensor_type.shape.dim]
        source = old.reshape(-1) if old.size else np.array([""], object) if old.dtype == TEXT else np.zeros(1, old.dtype)
        made[port.name] = old if dims == list(old.shape) else source[d.rng.integers(0, source.size, dims)]
    return made

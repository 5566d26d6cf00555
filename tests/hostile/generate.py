#!/usr/bin/env python3
"""Bad ONNX files, each a well-formed parent with one thing wrong.

    generate.py DIR      writes them all and prints the table

CASES is the table: name, parent, what is done to it, the exit code that the compiler must answer with, and a word that
its message must hold. A compiler that refuses everything fails on the parents, which stand in the table too.
"""
import dataclasses
import os
import pathlib
import struct
import sys

from onnxwire import chunk, encode, nested, varint

F32, U8, I8, I32, I64, STRING, BOOL, F16, U64 = 1, 2, 3, 6, 7, 8, 9, 10, 13
OK, MODEL, ENV, LIMIT = 0, 1, 3, 4
BIG = 1 << 62
INT, STR, TENSOR, GRAPH, INTS = 2, 3, 4, 5, 7   # attribute types
DECOY = b"OUTSIDE-THE-DIR!"                     # bytes that must never be read


@dataclasses.dataclass
class Case:
    name: str
    data: bytes
    exit: object            # one code, or a tuple of those allowed
    word: str = ""
    folder: str = ""        # where under the root the file lies


# ---- parts ----------------------------------------------------------------------------------------------------

def floats(*xs):
    return struct.pack("<%df" % len(xs), *xs)


def longs(*xs):
    return struct.pack("<%dq" % len(xs), *xs)


def tensor(name, dims, raw, elem=F32):
    return {"dims": list(dims), "type": elem, "raw": raw, "name": name}


def shape(*dims):
    return {"dims": [{"param": d} if isinstance(d, str) else {"value": d} for d in dims]}


def value(name, elem=F32, dims=None):
    kind = {"elem": elem}
    if dims is not None:
        kind["shape"] = shape(*dims)
    return {"name": name, "type": {"tensor": kind}}


def attr(name, v):
    if isinstance(v, bool) or isinstance(v, int):
        return {"name": name, "i": int(v), "type": INT}
    if isinstance(v, str):
        return {"name": name, "s": v, "type": STR}
    if isinstance(v, (list, tuple)):
        return {"name": name, "ints": list(v), "type": INTS}
    return {"name": name, "g": v, "type": GRAPH} if "nodes" in v else {"name": name, "t": v, "type": TENSOR}


def node(op, inputs, outputs, name="bad", **attrs):
    return {"inputs": inputs.split(), "outputs": outputs.split(), "name": name, "op": op,
            "attrs": [attr(k, v) for k, v in attrs.items()]}


def model(nodes, inputs, outputs, initializers=(), opset=17):
    graph = {"nodes": list(nodes), "name": "g", "initializers": list(initializers), "inputs": list(inputs),
             "outputs": list(outputs)}
    return {"ir_version": 8, "opsets": [{"domain": "", "version": opset}], "graph": graph}


# ---- parents: fresh well-formed models -------------------------------------------------------------------------

def add():
    """z = Relu(x + w)"""
    return model([node("Add", "x w", "y", "first"), node("Relu", "y", "z", "second")], [value("x", F32, [2, 3])],
                 [value("z", F32, [2, 3])], [tensor("w", [3], floats(1, 2, 3))])


def held(t=None, elem=F32):
    """z = Identity(w): only w matters."""
    return model([node("Identity", "w", "z")], [], [value("z", elem)], [t or tensor("w", [3], floats(1, 2, 3))])


def single(op, inputs, initializers=(), outputs="z", **attrs):
    """One node, called bad. inputs: name -> (dims) or (dims, type)."""
    values = [value(k, *((F32, v) if not v or isinstance(v[0], (int, str)) else (v[1], v[0])))
              for k, v in inputs.items()]
    names = " ".join(list(inputs) + [t["name"] for t in initializers])
    return model([node(op, names, outputs, **attrs)], values, [value(o, I64 if o == "zi" else F32) for o in outputs.split()],
                 initializers)


def conv(w=(1, 1, 3, 3), **attrs):
    count = 1
    for d in w:
        count *= d
    return single("Conv", {"x": (1, 1, 5, 5)}, [tensor("w", w, floats(*[1.0] * count))], **attrs)


def ints(name, *xs):
    return tensor(name, [len(xs)], longs(*xs), I64)


def scalar(name, x):
    return tensor(name, [], longs(x), I64)


def branch(op, a="x", b="w", result="t"):
    return {"nodes": [node(op, a + " " + b, result, "inner")], "name": result, "outputs": [value(result, F32, [2, 3])]}


def branches(then=None, otherwise=None, condition=BOOL):
    m = model([node("If", "c", "z", then_branch=then or branch("Add"), else_branch=otherwise or branch("Sub", result="e"))],
              [value("c", condition, []), value("x", F32, [2, 3])], [value("z", F32, [2, 3])],
              [tensor("w", [3], floats(1, 2, 3))])
    return m


def loop(trips=3, elem=I64, carried="v"):
    body = {"nodes": [node("Identity", "go", "go_on", "keep"), node("Add", carried + " w", "v_out", "inner")], "name": "body",
            "inputs": [value("i", I64, []), value("go", BOOL, []), value("v", F32, [2, 3])],
            "outputs": [value("go_on", BOOL, []), value("v_out", F32, [2, 3])]}
    count = longs(trips) if elem == I64 else floats(trips)
    return model([node("Loop", "m c x", "z", body=body)], [value("x", F32, [2, 3])], [value("z", F32, [2, 3])],
                 [tensor("w", [3], floats(1, 2, 3)), tensor("m", [], count, elem), tensor("c", [], b"\1", BOOL)])


def function(name, nodes, inputs=("a", "b"), outputs=("c",)):
    return {"name": name, "inputs": list(inputs), "outputs": list(outputs), "nodes": nodes, "domain": "local",
            "opsets": [{"domain": "", "version": 17}, {"domain": "local", "version": 1}]}


def call(name, inputs="a b", outputs="c", label="call"):
    return dict(node(name, inputs, outputs, label), domain="local")


def calling(functions, callee="F", inputs="x w"):
    m = model([call(callee, inputs, "z")], [value("x", F32, [2, 3])], [value("z", F32, [2, 3])],
              [tensor("w", [3], floats(1, 2, 3))])
    m["opsets"].append({"domain": "local", "version": 1})
    m["functions"] = functions
    return m


def adding(name="F", a="a", b="b", c="c"):
    return function(name, [node("Add", a + " " + b, c, "inner")])


def chain(depth, calls=1):
    out = []
    for i in range(depth):
        last, callee = i + 1 == depth, "F%d" % (i + 1)
        if last:
            out.append(adding("F%d" % i))
        elif calls == 1:
            out.append(function("F%d" % i, [call(callee)]))
        else:
            out.append(function("F%d" % i, [call(callee, "a b", "t"), call(callee, "t b", "c")]))
    return calling(out, "F0")


def external(location="weights.bin", offset="0", length="12", dims=(3,), more=(), elem=F32, **changes):
    entries = [{"key": k, "value": v} for k, v in (("location", location), ("offset", offset), ("length", length))
               if v is not None]
    t = {"dims": list(dims), "type": elem, "name": "w", "location": 1,
         "external": entries + [{"key": k, "value": v} for k, v in more]}
    t.update(changes)
    return t


def constant(t=None):
    return model([node("Constant", "", "w", value=t or tensor("cv", [3], floats(1, 2, 3))), node("Add", "x w", "z", "second")],
                 [value("x", F32, [2, 3])], [value("z", F32, [2, 3])])


def sparse(indices=(0, 2), dims=(3,), values=None):
    m = held()
    m["graph"]["initializers"] = []
    m["graph"]["sparse"] = [{"values": values or tensor("w", [2], floats(1, 3)),
                             "indices": tensor("wi", [len(indices)], longs(*indices), I64), "dims": list(dims)}]
    return m


def doubling(steps):
    nodes = [node("Concat", "v%d v%d" % (i, i), "v%d" % (i + 1), "twice%d" % i, axis=0) for i in range(steps)]
    return model(nodes, [], [value("v%d" % steps)], [tensor("v0", [1], floats(1))])


def nest_if(levels):
    g = branch("Add")
    for i in range(levels):
        n = node("If", "c", "o%d" % i, "if%d" % i, then_branch=g, else_branch=branch("Sub", result="e%d" % i))
        g = {"nodes": [n], "name": "g", "outputs": [value("o%d" % i, F32, [2, 3])]}
    g["inputs"] = [value("c", BOOL, []), value("x", F32, [2, 3])]
    g["initializers"] = [tensor("w", [3], floats(1, 2, 3))]
    return {"ir_version": 8, "opsets": [{"domain": "", "version": 17}], "graph": g}


def folded(op, a, b, elem=I32, **attrs):
    pack = {I32: "<i", I64: "<q", U64: "<Q"}[elem]
    return model([node(op, "a b", "z", **attrs)], [], [value("z", elem, [1])],
                 [tensor("a", [1], struct.pack(pack, a), elem), tensor("b", [1], struct.pack(pack, b), elem)])


def wrapping(target):
    """Two dims whose product is `target` only modulo 2^64."""
    p = next(p for p in range(5, 999, 2) if target * pow(p, -1, 2**64) % 2**64 < 2**63
             and p * (target * pow(p, -1, 2**64) % 2**64) != target)
    return [p, target * pow(p, -1, 2**64) % 2**64]


def changed(parent, change):
    change(parent)
    return parent


def graph_set(key, v):
    return lambda m: m["graph"].__setitem__(key, v)


def nodes_set(*nodes):
    return graph_set("nodes", list(nodes))


# ---- the table --------------------------------------------------------------------------------------------------

def file_cases():
    good = encode("Model", add())
    graph = encode("Graph", add()["graph"])
    head = encode("Model", {"ir_version": 8, "opsets": [{"domain": "", "version": 17}]})

    def sized(n):
        return head + varint(7 << 3 | 2) + varint(n) + graph

    yield "empty", b"", MODEL, "the file is empty"
    yield "one_byte", b"\x08", MODEL, "byte"
    for cut in (2, 5, len(good) // 3, len(good) // 2, len(good) - 1):
        yield "cut_at_%d" % cut, good[:cut], MODEL, ""
    yield "tail_ff", good + b"\xff" * 12, MODEL, "byte"
    yield "tail_zero", good + b"\0", MODEL, "byte %d" % len(good)
    yield "english", b"Once upon a time there was no model.\n" * 4, MODEL, "text"
    yield "gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\3" + bytes(range(99)), MODEL, "gzip"
    yield "elf", b"\x7fELF\2\1\1" + bytes(57), MODEL, "ELF"
    yield "png", b"\x89PNG\r\n\x1a\n" + bytes(40), MODEL, "PNG"
    yield "zip", b"PK\3\4" + bytes(60), MODEL, "zip"
    yield "pickle", b"\x80\4\x95" + bytes(60), MODEL, "pickle"
    yield "safetensors", struct.pack("<Q", 64) + b'{"w":{"dtype":"F32"}}'.ljust(64), MODEL, "safetensors"
    yield "varint_11", b"\x08" + b"\x80" * 10 + b"\1" + good[2:], MODEL, "byte 0"
    yield "wire_6", good + varint(60 << 3 | 6), MODEL, "wire type"
    yield "wire_7", good + varint(60 << 3 | 7), MODEL, "wire type"
    yield "group", good + varint(60 << 3 | 3) + b"\x08\1", MODEL, "group"
    yield "wrong_wire", chunk(1, b"\x08") + good[2:], MODEL, "ir_version"
    for name, n in (("one_more", len(graph) + 1), ("2_31", 1 << 31), ("2_32_n", (1 << 32) + len(graph)),
                    ("2_63", (1 << 63) - 1), ("2_64", (1 << 64) - 1)):
        yield "length_" + name, sized(n), MODEL, "a length of"
    yield "unknown_field", good + chunk(1999, b"from the future"), OK, ""
    yield "long_varint", b"\x08\x88\x80\0" + good[2:], OK, ""
    half = add()["graph"]
    first = encode("Graph", {k: half[k] for k in ("nodes", "inputs")})
    second = encode("Graph", {k: half[k] for k in ("name", "initializers", "outputs")})
    yield "graph_in_parts", head + chunk(7, first) + chunk(7, second), OK, ""
    for levels in (40, 3000, 200000):
        yield "graphs_%d_deep" % levels, head + chunk(7, nested(levels, [1, 5, 6])), LIMIT, "deep"
    deep_type = {"name": "x", "+": chunk(2, nested(60000, [4, 1]))}
    yield "types_deep", encode("Model", changed(add(), graph_set("inputs", [deep_type]))), LIMIT, "deep"
    yield "million_nodes", head + chunk(7, b"\x0a\0" * 10**6), (MODEL, LIMIT), ""
    yield "million_tensors", head + chunk(7, b"\x2a\0" * 10**6), (MODEL, LIMIT), ""
    flat = held(tensor("w", [1] * 10**6, floats(1)))
    yield "million_dims", encode("Model", flat), (MODEL, LIMIT), "w"
    yield "graph_200k_parts", head + b"\x3a\2\x0a\0" * 200000, LIMIT, "parts"


def model_cases():
    relu, plus = node("Relu", "y", "z", "second"), node("Add", "x w", "y", "first")

    def top(**changes):
        return changed(add(), lambda m: m.update(changes))

    def opsets(*pairs):
        return top(opsets=[{"domain": d, "version": v} for d, v in pairs])

    yield "no_graph", {"ir_version": 8, "opsets": [{"domain": "", "version": 17}]}, MODEL, "graph"
    yield "empty_graph", top(graph={}), MODEL, "outputs"
    yield "no_outputs", changed(add(), graph_set("outputs", [])), MODEL, "outputs"
    yield "output_of_nobody", changed(add(), graph_set("outputs", [value("ghost", F32, [2, 3])])), MODEL, "ghost"
    yield "no_ir_version", changed(add(), lambda m: m.pop("ir_version")), MODEL, "ir_version"
    for v in (0, -1, 9999):
        yield "ir_version_%d" % v, top(ir_version=v), MODEL, "ir_version"
    yield "no_opset", top(opsets=[]), MODEL, "ai.onnx"
    for v in (0, -3, 999, (1 << 32) + 17):
        yield "opset_%d" % v, opsets(("", v)), MODEL, "ai.onnx"
    yield "opset_twice", opsets(("", 17), ("ai.onnx", 9)), MODEL, "ai.onnx"
    yield "opset_both_names", opsets(("", 17), ("ai.onnx", 17)), OK, ""
    yield "op_unknown", changed(add(), nodes_set(plus, node("Frobnicate", "y", "z"))), MODEL, "Frobnicate"
    yield "op_empty", changed(add(), nodes_set(plus, node("", "y", "z"))), MODEL, "bad"
    yield "op_case", changed(add(), nodes_set(plus, node("relu", "y", "z"))), MODEL, "relu"
    yield "op_too_new", changed(add(), nodes_set(plus, node("Gelu", "y", "z"))), MODEL, "Gelu"
    foreign = dict(node("Relu", "y", "z"), domain="org.example")
    yield "domain_unknown", changed(add(), nodes_set(plus, foreign)), MODEL, "org.example"
    two = nodes_set(node("Nope", "x", "y"), node("Never", "y", "z"))
    yield "ops_unknown_both", changed(add(), two), MODEL, "Never"
    yield "cycle", changed(add(), nodes_set(node("Add", "z w", "y", "first"), relu)), MODEL, "first"
    yield "self_loop", changed(add(), nodes_set(plus, node("Add", "y z", "z", "second"))), MODEL, "second"
    yield "unsorted", changed(add(), nodes_set(relu, plus)), OK, ""
    yield "input_of_nobody", changed(add(), nodes_set(node("Add", "x ghost", "y"), relu)), MODEL, "ghost"
    yield "made_twice", changed(add(), nodes_set(plus, node("Sub", "x w", "y"), relu)), MODEL, "'y'"
    yield "made_twice_by_one", changed(add(), nodes_set(node("Split", "x", "y y", axis=0), relu)), MODEL, "'y'"
    yield "makes_an_input", changed(add(), nodes_set(node("Add", "x w", "x"), node("Relu", "x", "z"))), MODEL, "'x'"
    yield "makes_an_initializer", changed(add(), nodes_set(node("Relu", "x", "w"), node("Relu", "w", "z"))), MODEL, "'w'"
    yield "input_twice", changed(add(), graph_set("inputs", [value("x", F32, [2, 3])] * 2)), MODEL, "'x'"
    yield "initializer_twice", changed(add(), graph_set("initializers", [tensor("w", [3], floats(1, 2, 3))] * 2)), MODEL, "'w'"
    yield "initializer_unnamed", changed(add(), lambda m: m["graph"]["initializers"].append(tensor("", [1], floats(1)))), MODEL, "name"
    yield "input_unnamed", changed(add(), lambda m: m["graph"]["inputs"].append(value("", F32, [1]))), MODEL, "name"
    yield "input_untyped", changed(add(), graph_set("inputs", [{"name": "x"}])), MODEL, "'x'"
    for name, n in (("one_input", node("Add", "x", "y")), ("three_inputs", node("Relu", "x x x", "y")),
                    ("two_outputs", node("Relu", "x", "y yy")), ("no_outputs_of_node", node("Relu", "x", "")),
                    ("attribute_unknown", node("Relu", "x", "y", bogus=1)),
                    ("attribute_missing", node("Concat", "x x", "y")),
                    ("attribute_float", dict(node("Concat", "x x", "y"), attrs=[{"name": "axis", "f": 0.0, "type": 1}])),
                    ("attribute_lies", dict(node("Concat", "x x", "y"), attrs=[{"name": "axis", "i": 0, "type": INTS}])),
                    ("attribute_untyped", dict(node("Concat", "x x", "y"), attrs=[{"name": "axis", "i": 0}])),
                    ("attribute_type_99", dict(node("Concat", "x x", "y"), attrs=[{"name": "axis", "i": 0, "type": 99}])),
                    ("attribute_unnamed", dict(node("Relu", "x", "y"), attrs=[{"i": 0, "type": INT}])),
                    ("attribute_twice", dict(node("Concat", "x x", "y"), attrs=[attr("axis", 0), attr("axis", 1)])),
                    ("attribute_reference", dict(node("Concat", "x x", "y"), attrs=[{"name": "axis", "ref": "k", "type": INT}])),
                    ("axis_9", node("Concat", "x x", "y", axis=9)), ("axis_min", node("Concat", "x x", "y", axis=-2**63))):
        yield name, changed(add(), nodes_set(n, relu)), MODEL, "bad"
    empty = node("Add", "x", "y")
    empty["inputs"].append("")
    yield "required_input_empty", changed(add(), nodes_set(empty, relu)), MODEL, "bad"
    # names
    yield "name_nul", held(tensor("w\0a", [3], floats(1, 2, 3))), MODEL, "NUL"
    yield "name_no_utf8", held(tensor(b"\xff\xfe", [3], floats(1, 2, 3))), MODEL, "UTF-8"
    nasty = '/a.0/";touch gone;#%n%s\n$(id)`id`/../../b\u202e\u00e9'
    yield "names_nasty", changed(add(), nodes_set({"inputs": ["x", "w"], "outputs": [nasty], "name": nasty, "op": "Add"},
                                                  {"inputs": [nasty], "outputs": ["z"], "op": "Relu"})), OK, ""
    bad_nasty = {"inputs": ["x"], "outputs": ["y"], "name": nasty, "op": "Add"}
    yield "names_nasty_refused", changed(add(), nodes_set(bad_nasty, relu)), MODEL, "touch"
    long = "y" * 10**6
    yield "name_of_a_megabyte", changed(add(), nodes_set({"inputs": ["x", "w"], "outputs": [long], "op": "Add"},
                                                         {"inputs": [long], "outputs": ["z"], "op": "Relu"})), OK, ""
    for size, code in ((1 << 20, OK), ((1 << 20) + 1, LIMIT)):
        yield "name_%d" % size, changed(add(), nodes_set(dict(plus, name="n" * size), relu)), code, "name"
    yield "names_shared", changed(add(), nodes_set(dict(plus, name="same"), dict(relu, name="same"))), OK, ""
    yield "dead_node", changed(add(), nodes_set(plus, relu, node("Exp", "x", "unused"))), OK, ""
    yield "nameless_graph", changed(add(), lambda m: m["graph"].pop("name")), OK, ""


def operator_cases():
    for axis in (2, -3, 2**62):
        yield "softmax_axis_%d" % axis, single("Softmax", {"x": (2, 3)}, axis=axis), MODEL, "bad"
    for name, perm in (("repeats", (0, 0)), ("short", (0,)), ("huge", (0, 1 << 40)), ("negative", (0, -1))):
        yield "perm_" + name, single("Transpose", {"x": (2, 3)}, perm=perm), (OK, MODEL) if name == "negative" else MODEL, "bad"
    for name, attrs in (("stride_0", dict(strides=(0, 1))), ("stride_negative", dict(strides=(-1, 1))),
                        ("dilation_0", dict(dilations=(0, 1))), ("group_0", dict(group=0)), ("group_3", dict(group=3)),
                        ("group_huge", dict(group=BIG)), ("kernel_lies", dict(kernel_shape=(2, 2))),
                        ("pads_short", dict(pads=(0, 0))), ("pads_huge", dict(pads=(BIG,) * 4)),
                        ("pads_negative", dict(pads=(-4,) * 4)), ("weight_rank", dict(w=(1, 1, 3, 3, 1))),
                        ("kernel_too_big", dict(w=(1, 1, 7, 7))), ("channels", dict(w=(1, 2, 3, 3)))):
        yield "conv_" + name, conv(**attrs), (MODEL, LIMIT) if "huge" in name else MODEL, "bad"
    for name, attrs in (("kernel_0", dict(kernel_shape=(0, 2))), ("kernel_huge", dict(kernel_shape=(BIG, BIG))),
                        ("stride_0", dict(kernel_shape=(2, 2), strides=(1, 0))),
                        ("only_padding", dict(kernel_shape=(2, 2), pads=(2, 2, 2, 2)))):
        yield "pool_" + name, single("MaxPool", {"x": (1, 1, 5, 5)}, **attrs), MODEL, "bad"
    for block in (0, -2, 1 << 32):
        yield "depth_to_space_%d" % block, single("DepthToSpace", {"x": (1, 4, 2, 2)}, blocksize=block), (MODEL, LIMIT), "bad"
    for sizes in ((1, 1), (4, -1), (3,)):
        yield "split_%s" % "_".join(map(str, sizes)), single("Split", {"x": (2, 3)}, [ints("s", *sizes)], "z z2", axis=1), MODEL, "bad"
    # shapes
    yield "matmul_ok", single("MatMul", {"x": (2, 3), "b": (3, 4)}), OK, ""
    yield "matmul", single("MatMul", {"x": (2, 3), "b": (4, 4)}), MODEL, "bad"
    yield "matmul_k0", single("MatMul", {"x": (2, 0), "b": (0, 3)}), OK, ""
    yield "broadcast", single("Add", {"x": (3,), "b": (4,)}), MODEL, "bad"
    yield "concat_rank", single("Concat", {"x": (2, 3), "b": (3,)}, axis=0), MODEL, "bad"
    yield "concat_dim", single("Concat", {"x": (2, 3), "b": (2, 4)}, axis=0), MODEL, "bad"
    yield "declared_dims", changed(add(), graph_set("outputs", [value("z", F32, [9, 9])])), MODEL, "z"
    yield "declared_type", changed(add(), graph_set("outputs", [value("z", I64, [2, 3])])), MODEL, "z"
    yield "input_dim_negative", changed(add(), graph_set("inputs", [value("x", F32, [-5, 3])])), MODEL, "x"
    yield "input_dim_huge", changed(add(), graph_set("inputs", [value("x", F32, [BIG, 3])])), (MODEL, LIMIT), "x"
    for name, x, to in (("count", (2, 3), (4, 2)), ("two_unknown", (2, 3), (-1, -1)), ("negative", (2, 3), (-2, -3)),
                        ("wraps", (2, 3), wrapping(6)), ("zero_past_rank", (2, 3), (3, 2, 0)), ("unknown_of_none", (0, 3), (0, -1))):
        yield "reshape_" + name, single("Reshape", {"x": x}, [ints("s", *to)]), (MODEL, LIMIT) if name == "wraps" else MODEL, "bad"
    yield "squeeze_3", single("Squeeze", {"x": (1, 3)}, [ints("s", 1)]), MODEL, "bad"

    def cut(start, end, axis, step):
        return single("Slice", {"x": (2, 3)}, [ints("a", start), ints("b", end), ints("ax", axis), ints("st", step)])

    yield "slice_step_0", cut(0, 2, 1, 0), MODEL, "bad"
    yield "slice_axis_5", cut(0, 2, 5, 1), MODEL, "bad"
    yield "slice_extremes", cut(-2**63, 2**63 - 1, 1, 1), OK, ""
    yield "slice_back_extremes", cut(2**63 - 1, -2**63, 1, -2**63), OK, ""
    for k in (9, -1):
        yield "topk_%d" % k, single("TopK", {"x": (4,)}, [ints("k", k)], "z zi"), MODEL, "bad"
    yield "pad_count", single("Pad", {"x": (2, 3)}, [ints("p", 0, 1, 0)]), MODEL, "bad"
    yield "pad_negative", single("Pad", {"x": (2, 3)}, [ints("p", 0, -9, 0, 0)]), MODEL, "bad"
    yield "pad_reflect", single("Pad", {"x": (2, 3)}, [ints("p", 0, 9, 0, 9)], mode="reflect"), OK, ""   # reflects again
    yield "pad_mode", single("Pad", {"x": (2, 3)}, [ints("p", 0, 1, 0, 1)], mode="sideways"), MODEL, "bad"
    for name, eq in (("letter", "ij,jk->iz"), ("terms", "ij,jk,kl->il"), ("rank", "ijq,jk->ik"), ("junk", "->->,,.."),
                     ("long", "a" * 10**5 + ",jk->ik")):
        yield "einsum_" + name, single("Einsum", {"x": (2, 3), "b": (3, 4)}, equation=eq), MODEL, "bad"
    for index in (4, -5, 1 << 40):
        yield "gather_%d" % index, single("Gather", {"x": (4,)}, [ints("i", 0, index)]), (OK, MODEL), ""


def bomb_cases():
    big = (MODEL, LIMIT)
    yield "broadcast", single("Add", {"x": (1 << 20, 1), "b": (1, 1 << 20)}), big, "bad"
    yield "matmul", single("MatMul", {"x": (1 << 31, 1), "b": (1, 1 << 31)}), big, "bad"
    for dims in ((1 << 20, 1 << 20), (1 << 32, 1 << 32), (2, -3)):
        yield "constant_of_shape_%d" % dims[1], single("ConstantOfShape", {}, [ints("s", *dims)]), big, "bad"
    yield "expand", single("Expand", {"x": (1,)}, [ints("s", 1 << 40)]), big, "bad"
    yield "tile", single("Tile", {"x": (2, 3)}, [ints("s", 1 << 31, 1 << 31)]), big, "bad"
    yield "tile_negative", single("Tile", {"x": (2, 3)}, [ints("s", 2, -2)]), MODEL, "bad"
    for name, a, b, d in (("long", 0, BIG, 1), ("extremes", -2**63, 2**63 - 1, 1), ("delta_0", 0, 5, 0)):
        m = model([node("Range", "a b d", "z")], [], [value("z", I64)], [scalar("a", a), scalar("b", b), scalar("d", d)])
        yield "range_" + name, m, MODEL if d == 0 else big, "bad"
    for name, p in (("huge", 1 << 40), ("wraps", 2**63 - 1)):
        yield "pad_" + name, single("Pad", {"x": (2, 3)}, [ints("p", 0, p, 0, p if p != 1 << 40 else 0)]), big, "bad"
    yield "doubling_3", doubling(3), OK, ""
    yield "doubling_40", doubling(40), big, "twice"
    yield "if_30_deep", nest_if(30), OK, ""
    yield "if_31_deep", nest_if(31), LIMIT, "deep"
    yield "loop_2_62", loop(BIG), OK, ""
    yield "function_chain_4", chain(4), OK, ""
    yield "function_chain_3000", chain(3000), LIMIT, "F"
    yield "function_tree_40", chain(40, 2), LIMIT, "F"
    # what traps in C when folded
    for name, m, code in (("div_0", folded("Div", 7, 0), (OK, MODEL)), ("mod_0", folded("Mod", 7, 0), (OK, MODEL)),
                          ("div_min", folded("Div", -2**31, -1), OK), ("div_min_64", folded("Div", -2**63, -1, I64), OK),
                          ("mod_min", folded("Mod", -2**31, -1), OK), ("mul_wraps", folded("Mul", 1 << 30, 8), OK),
                          ("shift_64", folded("BitShift", 1, 64, U64, direction="LEFT"), OK),
                          ("shift_2_63", folded("BitShift", 1, 1 << 63, U64, direction="RIGHT"), OK)):
        yield "fold_" + name, m, code, ""
    for name, x, to in (("nan", float("nan"), I32), ("3e9", 3e9, I32), ("minus_u8", -1.0, U8), ("inf", float("inf"), I64),
                        ("f16", 3.4e38, F16)):
        yield "cast_" + name, model([node("Cast", "a", "z", to=to)], [], [value("z", to, [1])], [tensor("a", [1], floats(x))]), OK, ""


def structure_cases():
    yield "if_ok", branches(), OK, ""
    yield "if_condition_float", branches(condition=F32), MODEL, "bad"
    yield "if_no_else", changed(branches(), lambda m: m["graph"]["nodes"][0]["attrs"].pop()), MODEL, "bad"
    yield "if_outputs", branches(dict(branch("Add"), outputs=[value("t", F32, [2, 3]), value("w", F32, [3])])), MODEL, "bad"
    yield "if_input", branches(dict(branch("Add"), inputs=[value("q", F32, [1])])), MODEL, "bad"
    yield "if_ghost", branches(branch("Add", "ghost")), MODEL, "ghost"
    yield "if_other_branch", branches(None, branch("Sub", "t", result="e")), MODEL, "'t'"
    yield "if_shadows", branches(branch("Add", "w", "w", "x")), MODEL, "'x'"
    yield "loop_ok", loop(), OK, ""
    yield "loop_trips_float", loop(3, F32), MODEL, "bad"
    yield "loop_ghost", loop(carried="ghost"), MODEL, "ghost"
    yield "loop_outputs", changed(loop(), lambda m: m["graph"]["nodes"][0]["attrs"][0]["g"]["outputs"].pop()), MODEL, "bad"
    yield "function_ok", calling([adding()]), OK, ""
    yield "function_twice", calling([adding(), adding()]), MODEL, "F"
    yield "function_missing", calling([adding()], "H"), MODEL, "H"
    yield "function_arity", calling([adding()], inputs="x w w"), MODEL, "F"
    yield "function_unmade", calling([adding(c="d")]), MODEL, "'c'"
    yield "function_outer", calling([adding(b="x")]), MODEL, "'x'"
    yield "function_itself", calling([function("F", [call("F")])]), MODEL, "F"
    yield "function_ring", calling([function("F", [call("G")]), function("G", [call("F")])]), MODEL, "F"


def tensor_cases():
    three = floats(1, 2, 3)

    def w(dims=(3,), raw=three, elem=F32, **more):
        t = tensor("w", dims, raw, elem)
        t.update(more)
        return held({k: v for k, v in t.items() if v is not None}, elem)

    yield "ok", held(), OK, ""
    for name, m in (("product_0", w([1 << 32, 1 << 32], b"")), ("product_3", w(wrapping(3))), ("bytes_wrap", w([BIG + 3])),
                    ("negative", w([-3])), ("negative_pair", w([-1, -3])), ("zero_times_huge", w([0, 2**63 - 1])),
                    ("short", w(raw=three[:8])), ("long", w(raw=three + three[:4])), ("odd", w(raw=three[:11])),
                    ("claim", w([10**9])), ("no_data", w(raw=None)), ("empty_with_data", w([0], three[:4])),
                    ("two_fields", w(floats=[9, 9, 9])), ("floats_short", w(raw=None, floats=[1, 2])),
                    ("wrong_field", w(raw=None, int64s=[1, 2, 3])), ("type_0", w(elem=0)), ("type_99", w(elem=99)),
                    ("type_negative", w(elem=-1)), ("type_2_32", w(elem=(1 << 32) + 1)), ("string_raw", w(elem=STRING)),
                    ("segment", w(segment={"begin": 0, "end": 3})), ("i8_300", w([1], None, I8, int32s=[300])),
                    ("u8_negative", w([1], None, U8, int32s=[-1]))):
        yield name, m, MODEL, "w"
    yield "untyped", held({"dims": [3], "raw": three, "name": "w"}), MODEL, "w"
    for rank, code in ((32, OK), (33, LIMIT)):
        yield "rank_%d" % rank, held(tensor("w", [1] * rank, floats(1))), code, "w"
    odd = {"dims": [3], "type": F32, "name": "w", "+": chunk(4, three[:10])}
    yield "floats_odd", held(odd), MODEL, "whole number"
    yield "unused", changed(add(), lambda m: m["graph"]["initializers"].append(tensor("u", [2], floats(1)))), MODEL, "u"
    yield "contradicts_input", changed(add(), lambda m: m["graph"]["inputs"].append(value("w", F32, [7]))), MODEL, "w"
    yield "i64_into_add", changed(add(), graph_set("initializers", [tensor("w", [3], longs(1, 2, 3), I64)])), MODEL, "first"
    strings = {"dims": [3], "type": STRING, "name": "w", "strings": ["a", "b", "c"]}
    yield "string_into_add", changed(add(), graph_set("initializers", [strings])), MODEL, "first"
    yield "empty_ok", held(tensor("w", [0, 3], b"")), OK, ""
    yield "nan_ok", held(tensor("w", [3], floats(float("nan"), float("inf"), -0.0))), OK, ""
    truth = model([node("Not", "w", "z")], [], [value("z", BOOL, [3])], [tensor("w", [3], b"\0\2\xff", BOOL)])
    yield "bool_2", truth, OK, ""
    yield "constant_ok", constant(), OK, ""
    yield "constant_short", constant(tensor("cv", [3], floats(1, 2))), MODEL, "bad"
    yield "constant_two_fields", constant(dict(tensor("cv", [3], three), floats=[9, 9, 9])), MODEL, "bad"
    inner = node("Constant", "", "k", value=dict(tensor("cv", [3], three), floats=[9, 9, 9]))
    yield "function_two_fields", calling([function("F", [inner, node("Add", "a k", "c", "inner")])]), MODEL, "bad"
    yield "sparse_ok", sparse(), OK, ""
    for name, m, code in (("high", sparse((0, 3)), MODEL), ("negative", sparse((-1, 2)), MODEL),
                          ("repeats", sparse((1, 1)), MODEL), ("unsorted", sparse((2, 0)), MODEL),
                          ("count", sparse((0, 1, 2)), MODEL), ("dims_negative", sparse(dims=(-3,)), MODEL),
                          ("dims_bomb", sparse(dims=(1 << 20, 1 << 20)), LIMIT)):
        yield "sparse_" + name, m, code, "w"


def external_cases(root):
    """Under sub/, whose parent holds the decoys."""
    yield "ok", held(external()), OK, ""
    yield "unaligned", held(external("off3.bin", "3")), OK, ""
    yield "no_numbers", held(external(offset=None, length=None)), OK, ""
    yield "unknown_key", held(external(more=[("checksum", "0" * 40)])), OK, ""
    yield "link_inside", held(external("inside.bin")), OK, ""
    for name, location in (("dotdot", "../outside.bin"), ("dotdot_inner", "x/../../outside.bin"),
                           ("dotdot_slashes", ".//..//outside.bin"), ("absolute", str(root / "outside.bin")),
                           ("proc", "/proc/self/environ"), ("zero", "/dev/zero"), ("link_out", "out.bin"),
                           ("link_folder", "up/outside.bin"), ("hard_link", "hard.bin"), ("missing", "nothere.bin"),
                           ("none", None), ("empty", ""), ("dot", "."), ("nul", "weights.bin\0.txt"),
                           ("backslash", "..\\outside.bin"), ("uri", "file:weights.bin"), ("marker", "*/_ORT_MEM_ADDR_/*")):
        yield "location_" + name, held(external(location)), MODEL, "w"
    yield "location_twice", held(external(more=[("location", "../outside.bin")])), MODEL, "w"
    for name, text in (("past", "4096"), ("end", "12"), ("middle", "4"), ("wraps", str(2**64 - 4)), ("2_64", str(2**64)),
                       ("negative", "-12"), ("hex", "0x0"), ("junk", "0 and so on"), ("empty", "")):
        yield "offset_" + name, held(external(offset=text)), MODEL, "w"
    for name, text in (("negative", "-1"), ("short", "8"), ("long", "16")):
        yield "length_" + name, held(external(length=text)), MODEL, "w"
    yield "dims_past", held(external(length=None, dims=[1000])), MODEL, "w"
    yield "and_raw", held(external(raw=floats(9, 9, 9))), MODEL, "w"
    yield "unmarked", held(dict(external(), location=0)), MODEL, "w"
    yield "mark_7", held(dict(external(), location=7)), MODEL, "w"
    yield "strings", held(external(elem=STRING), STRING), MODEL, "w"
    yield "in_constant", constant(external("../outside.bin")), MODEL, "bad"
    yield "in_sparse", sparse(values=external("../outside.bin", length="8", dims=[2])), MODEL, "w"
    yield "in_branch", branches(dict(branch("Add"), initializers=[dict(external("../outside.bin"), name="tw")])), MODEL, "tw"
    yield "fifo", held(external("fifo.bin")), ENV, "w"
    yield "folder", held(external("folder")), ENV, "w"


def prepare(root):
    """The files around the models: weights, decoys, links, special files."""
    sub = root / "sub"
    for folder in (sub / "x", sub / "folder", root / "special" / "directory.onnx"):
        folder.mkdir(parents=True)
    (sub / "weights.bin").write_bytes(floats(1, 2, 3))
    (sub / "off3.bin").write_bytes(b"pad" + floats(1, 2, 3))
    (root / "outside.bin").write_bytes(DECOY)
    (root / "linked.bin").write_bytes(DECOY)
    os.link(root / "linked.bin", sub / "hard.bin")
    os.symlink("../outside.bin", sub / "out.bin")
    os.symlink("..", sub / "up")
    os.symlink("weights.bin", sub / "inside.bin")
    os.mkfifo(sub / "fifo.bin")
    special = root / "special"
    os.mkfifo(special / "fifo.onnx")
    os.symlink("loop.onnx", special / "loop.onnx")
    os.symlink("nowhere", special / "dangling.onnx")
    os.symlink("/dev/null", special / "null.onnx")
    os.symlink("/dev/zero", special / "zero.onnx")


def cases(root):
    for name, data, code, word in file_cases():
        yield Case("file_" + name, data, code, word)
    groups = (("model", model_cases()), ("op", operator_cases()), ("bomb", bomb_cases()), ("structure", structure_cases()),
              ("tensor", tensor_cases()))
    for group, rows in groups:
        for name, m, code, word in rows:
            yield Case(group + "_" + name, encode("Model", m), code, word)
    for name, m, code, word in external_cases(root):
        yield Case("external_" + name, encode("Model", m), code, word, "sub")


SPECIAL = ("fifo", "directory", "loop", "dangling", "null", "zero")


def write(root):
    """Writes everything under root, an empty folder; (path, case) of each file."""
    root = pathlib.Path(root)
    prepare(root)
    out = []
    for case in cases(root):
        path = root / case.folder / (case.name + ".onnx")
        path.write_bytes(case.data)
        out.append((path, case))
    out += [(root / "special" / (name + ".onnx"), Case("special_" + name, b"", ENV)) for name in SPECIAL]
    return out


if __name__ == "__main__":
    for path, case in write(sys.argv[1]):
        print(case.name, case.exit, case.word, sep="\t")

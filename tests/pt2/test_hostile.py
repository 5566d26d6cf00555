"""Files made to be bad: each ends in a diagnostic with status 1 or 4, within two seconds of processor time and 512 MiB."""
import json
import os
import pathlib
import random
import resource
import struct
import zipfile

import numpy as np
import pytest

from pt2.writer import ORDERED, Program, Ref, call_op, int_op, saved, text_op, tuple_op
from support.tool import MCC, mcc
from support.usage import usage

DATA = pathlib.Path(__file__).resolve().parent / "data"
F = np.dtype("float32")


SANITIZED = "address" in os.environ.get("MCC_BUILD", "")    # needs more of everything
SECONDS, BYTES = (10, 2 << 30) if SANITIZED else (2, 512 << 20)


def check(path, statuses=(1, 4), options=()):
    done = usage([MCC, "check", path, *options], 60, 4 * SECONDS, resource.RLIM_INFINITY if SANITIZED else 4 << 30)
    text = done.said.decode(errors="replace")
    assert done.status in statuses and (done.status == 0 or "error: " in text), (done.status, text)
    assert done.seconds < SECONDS and done.bytes < BYTES, (done.seconds, done.bytes)
    return text


def small():
    program = Program()
    x, w = program.input("x", F, (2, 3)), program.weight("w", np.ones((3, 3), np.float32))
    program.node("aten.mm.default", [x, w], [("y", F, (2, 3))])
    program.output("y")
    return program


def archive(path, records, **entries):
    with zipfile.ZipFile(path, "w") as out:
        for name, data in records.items():
            out.writestr(name, data, **entries)
    return path


def test_cut_and_changed(tmp_path):
    """Cut at many places, one byte changed at many: never anything but a result or a diagnostic."""
    whole = small().save(tmp_path / "m.pt2").read_bytes()
    path = tmp_path / "bad.pt2"
    for n in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:n])
        check(path)
    draw = random.Random(1)
    for source in (whole, (DATA / "filled.pt2").read_bytes()):
        for _ in range(60):
            data = bytearray(source)
            for _ in range(draw.choice((1, 1, 2, 8))):
                data[draw.randrange(len(data))] = draw.choice((draw.randrange(256), 0, 255, ord("9"), ord('"'), ord("{")))
            path.write_bytes(data)
            check(path, (0, 1, 4))


ARCHIVES = {
    "not a program": ({"a/b": b"1"}, "a zip archive without a program"),
    "TorchScript": ({"m/data.pkl": b"1", "m/constants.pkl": b"1", "m/code/x.py": b""}, "a TorchScript program"),
    "torch.save": ({"m/data.pkl": b"1", "m/data/0": b""}, "weights or objects of torch.save"),
    "old layout": ({"serialized_exported_program.json": b"{}", "version": b"8.2"}, "no schema_version"),
    "no weights": ({"m/models/model.json": json.dumps(small().document()).encode()}, "the file has no values for it"),
    "bad JSON": ({"m/models/model.json": b'{"a": [1, 2,, 3]}'}, "at byte 12"),
    "deep JSON": ({"m/models/model.json": b"[" * 1_000_000}, "nested too deeply"),
    "big-endian": ({"m/models/model.json": b"{}", "m/byteorder": b"big"}, "little-endian"),
    "empty JSON": ({"m/models/model.json": b"{}"}, "no schema_version"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(tmp_path, name):
    records, says = ARCHIVES[name]
    assert says in check(archive(tmp_path / "bad.pt2", records))


def test_zip_fields(tmp_path):
    """Directories that lie: sizes, overlaps, methods, encryption, names, bombs."""
    path = small().save(tmp_path / "m.pt2")
    whole = path.read_bytes()
    central = whole.index(b"PK\1\2")
    for at, value, says in ((8, 1, "is encrypted"), (10, 12, "compressed by method 12"), (20, 2 ** 30, "is stored with"), (42, 2 ** 31, "reaches past the end"),
                            (24, 2 ** 31, "is stored with")):
        data = bytearray(whole)
        size = 2 if at < 16 else 4
        data[central + at:central + at + size] = struct.pack("<I", value)[:size]
        path.write_bytes(data)
        assert says in check(path)
    data = bytearray(whole)      # the second record lies where the first one does
    second = whole.index(b"PK\1\2", central + 4)
    data[second + 42:second + 46] = struct.pack("<I", 0)
    path.write_bytes(data)
    assert "overlaps" in check(path)
    bomb = archive(tmp_path / "bomb.pt2", {"m/models/model.json": b" " * 200_000_000}, compress_type=zipfile.ZIP_DEFLATED)
    assert "--limit-import-heap" in check(bomb)
    data = bytearray(bomb.read_bytes())      # claims less than it holds
    central = data.index(b"PK\1\2")
    data[central + 24:central + 28] = struct.pack("<I", 1000)
    bomb.write_bytes(data)
    assert "does not inflate to what the directory says" in check(bomb)


def changed(tmp_path, change, says):
    program = small()
    document = program.document()
    change(document["graph_module"], document, program)
    assert says in check(program.save(tmp_path / "m.pt2", **document))


def test_programs(tmp_path):
    """References to nothing, values of the wrong kind, symbols and sizes that lie."""
    def node(graph):
        return graph["graph"]["nodes"][0]

    def meta(program, **fields):
        program.weights["w"]["tensor_meta"] |= fields
    for change, says in [
            (lambda g, d, p: node(g)["inputs"][0]["arg"].update(as_tensor={"name": "ghost"}), "operand 'ghost' is made by no node"),
            (lambda g, d, p: node(g)["inputs"][0].update(arg={"as_tensor": {"name": "x"}, "as_int": 1}), "not a union of one member"),
            (lambda g, d, p: node(g)["inputs"][0].update(arg={"as_surprise": 1}), "is of kind 'surprise'"),
            (lambda g, d, p: node(g)["inputs"].pop(), "argument 'mat2' of mm.default is missing"),
            (lambda g, d, p: node(g)["inputs"].append({"name": "more", "arg": {"as_int": 1}}), "does not know"),
            (lambda g, d, p: node(g).update(target="torch.ops.aten.nonsense.default"), "no lowering for this operator"),
            (lambda g, d, p: node(g).update(target="nonsense"), "has no target"),
            (lambda g, d, p: g["graph"]["nodes"].append(node(g)), "two values are called 'y'"),
            (lambda g, d, p: g["signature"]["output_specs"].clear(), "no tensor as output"),
            (lambda g, d, p: g["signature"]["output_specs"].append({"buffer_mutation": {"arg": {"name": "y"}, "buffer_name": "b"}}),
             "the new value of 'b', which the program does not have"),
            (lambda g, d, p: d["schema_version"].update(major=9), "schema version 9"),
            (lambda g, d, p: d["range_constraints"].update({"s0": {"min_val": 9, "max_val": 3}}), "symbol s0 is from 9 to 3"),
            (lambda g, d, p: g["graph"]["tensor_values"]["x"].update(dtype=99), "element type 99"),
            (lambda g, d, p: g["graph"]["tensor_values"]["x"].update(sizes=[{"as_int": 2 ** 40}, {"as_int": 2 ** 40}]), "--limit-tensor-bytes"),
            (lambda g, d, p: g["graph"]["tensor_values"]["x"].update(sizes=[{"as_int": -1}, {"as_int": 3}]), "dimension 0 is -1"),
            (lambda g, d, p: meta(p, sizes=[{"as_int": 300}, {"as_int": 3}]), "reach past"),
            (lambda g, d, p: meta(p, storage_offset={"as_int": 2 ** 62}), "reach past"),
            (lambda g, d, p: meta(p, strides=[{"as_int": 0}, {"as_int": -1}]), "not a number from 0 on"),
            (lambda g, d, p: p.weights["w"].update(path_name="../../etc/passwd"), "no record 'data/weights/../../etc/passwd'"),
            (lambda g, d, p: p.weights["w"].update(use_pickle=True), "subclass of Tensor")]:
        changed(tmp_path, change, says)


def rewritten(tmp_path, name, change):
    """The program of a recorded file, changed."""
    with zipfile.ZipFile(DATA / name) as old, zipfile.ZipFile(tmp_path / "m.pt2", "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if "/models/" in info.filename:
                document = json.loads(data)
                change(document["graph_module"]["graph"])
                data = json.dumps(document)
            new.writestr(info.filename, data)
    return tmp_path / "m.pt2"


def test_graphs_within_nodes(tmp_path):
    """Graphs of the wrong kind or size, names from around them, and writes to what is not theirs."""
    def at(graph, op, k=None):
        node = next(n for n in graph["nodes"] if n["target"] == f"torch.ops.higher_order.{op}")
        return node if k is None else node["inputs"][k]["arg"]["as_graph"]["graph"]

    def writes(graph):
        inner = at(graph, "cond", 2)
        inner["nodes"][-1]["target"] = "torch.ops.aten.relu_.default"
        inner["nodes"][-1]["inputs"][0]["arg"] = inner["inputs"][0]

    for change, says in [
            (lambda g: at(g, "cond", 1)["inputs"].pop(), "inputs, and is given"),
            (lambda g: at(g, "cond", 1)["outputs"].clear(), "the branches do not have 1 outputs"),
            (lambda g: at(g, "cond")["inputs"][1].update(arg={"as_int": 1}), "argument 1 of cond is not a graph"),
            (lambda g: at(g, "cond")["inputs"].pop(0), "is neither a tensor nor a number"),
            (lambda g: at(g, "cond").update(target="torch.ops.higher_order.flex_attention"), "operator 'flex_attention' is not supported"),
            (lambda g: at(g, "cond", 1)["outputs"].__setitem__(0, {"as_tensor": {"name": "count"}}), "operand 'count' is made by no node"),
            (lambda g: at(g, "cond", 2)["inputs"].__setitem__(0, at(g, "cond", 2)["inputs"][1]), "two inputs of a graph of cond"),
            (lambda g: at(g, "while_loop", 0)["outputs"].clear(), "the graph of the condition has 0 results"),
            (lambda g: at(g, "while_loop", 1)["outputs"].pop(), "1 results for 2 carried values"),
            (writes, "writes, within a graph of cond, to a tensor from around it")]:
        assert says in check(rewritten(tmp_path, "branching.pt2", change))


def test_loops_in_conditions_of_loops(tmp_path):
    """A condition stands before its loop and in it: each level doubles the work, up to a limit."""
    def graph(outputs, nodes=()):
        return {"as_graph": {"name": "g", "graph": {"inputs": [{"as_tensor": {"name": "a"}}], "outputs": [outputs], "nodes": nodes, "tensor_values": {},
                                                    "sym_int_values": {}, "sym_bool_values": {}}}}

    def loop(depth, name, result):
        inner = [loop(depth - 1, "a", "b")] if depth else []
        arguments = [graph({"as_bool": False}, inner), graph({"as_tensor": {"name": "a"}}), {"as_tensors": [{"name": name}]}, {"as_tensors": []}]
        return {"target": "torch.ops.higher_order.while_loop", "inputs": [{"name": "", "arg": a, "kind": 1} for a in arguments],
                "outputs": [{"as_tensors": [{"name": result}]}], "metadata": {}}

    for depth, says in ((2, None), (20, "more than 1000 nodes (--limit-nodes)"), (33, "(--limit-subgraph-depth)")):
        program = small()
        program.nodes.append(loop(depth, "x", "z"))
        path = program.save(tmp_path / "m.pt2")
        text = check(path, (1, 4) if says else (0,), [f"--limit-nodes={10 ** 8 if depth > 20 else 1000}"])
        assert not says or says in text, text


def test_expressions(tmp_path):
    """Sizes whose expressions nest or grow without end are unknown sizes, or end at a limit."""
    for text in ("(" * 100_000, "Add(" * 5000 + "Integer(1)", "Mul(" + "Symbol('s0')," * 60 + "Integer(1))", "s0**8**8**8", "9" * 400, "s0//0",
                 "Mod(s0, 0)", "-" * 9999):
        program = Program()
        program.symbol("s0", 1, 2 ** 62)
        x, y = program.input("x", F, ("Symbol('s0')", 2)), program.input("y", F, (text, 2))
        program.output(program.node("aten.cat.default", [[x, y]], [("z", F, (1, 2))]))
        check(program.save(tmp_path / "m.pt2"), (0, 1, 4))


KNOWN = b"\x80.()]}N\x88\x89KMJ\x8aGXcqrhjt\x85\x86\x87aesuQRb"
STORAGE = tuple_op(text_op("storage"), b"ctorch\nFloatStorage\n", text_op("0"), text_op("cpu"), int_op(9)) + b"Q"


def tensor(sizes, strides, name="w", storage=STORAGE, more=b""):
    """A dictionary of one tensor."""
    return b"}(" + text_op(name) + call_op("torch._utils._rebuild_tensor_v2", storage, int_op(0), sizes, strides, more) + b"u."


PICKLES = {
    **{f"instruction {op}": (bytes([op]), f"instruction {op}, which tensors do not need") for op in range(256) if op not in KNOWN},
    **{f"only {op}": (bytes([op]), "") for op in KNOWN if op != ord(".")},
    **{f"calls {name}": (call_op(name, text_op("echo x")) + b".", f"asks for '{name}'")
       for name in ("os.system", "posix.system", "builtins.eval", "builtins.exec", "subprocess.Popen", "torch.load", "torch._utils._rebuild_tensor",
                    "torch._utils._rebuild_tensor_v3", "torch.storage._load_from_bytes", "torch.FloatStorage.x", "torch.Storage", "collections.dict",
                    "torch.jit._pickle.build_tensor_from_id", "numpy.core.multiarray._reconstruct")},
    "empty": (b"", "ends within an instruction"),
    "no end": (b"\x80\x02}", "ends within an instruction"),
    "protocol 9": (b"\x80\x09}.", "pickle protocol 9"),
    "a number": (b"K\x01.", "is not a dictionary of tensors"),
    "nothing on the stack": (b".", "takes more from its stack"),
    "no mark": (b"}t.", "looks for a mark"),
    "a mark as value": (b"}(K\x01(s.", "takes more from its stack"),
    "fills a number": (b"K\x01(K\x01K\x02u.", "fills what is not a container"),
    "one key without value": (b"}(K\x01u.", "fills what is not a container"),
    "no such memo": (b"h\x07.", "reads its memo where nothing is"),
    "far memo": (b"}r\xff\xff\xff\xff.", "memo that is too large"),
    "memo of nothing": (b"q\x00.", "memo that is too large, or of nothing"),
    "long number": (b"\x8a\x20" + b"\xff" * 32 + b".", "does not fit into 64 bits"),
    "long text": (b"X\xff\xff\xff\x7fab.", "ends within an instruction"),
    "text with NUL": (text_op("a\0b") + b".", "holds a NUL"),
    "name without end": (b"c" + b"a" * 5000, "a name that is damaged"),
    "dictionary of arguments": (b"ccollections\nOrderedDict\n}R.", "makes what is not a tensor"),
    "calls a text": (text_op("os.system") + b")R.", "makes what is not a tensor"),
    "tensor without storage": (call_op("torch._utils._rebuild_tensor_v2", int_op(0), int_op(0), b")", b")") + b".", "makes what is not a tensor"),
    "storage of no class": (tuple_op(text_op("storage"), b"ccollections\nOrderedDict\n", text_op("0"), text_op("cpu"), int_op(9)) + b"Q.", "is not a storage"),
    "storage of a number": (b"K\x01Q.", "is not a storage"),
    "sizes that are texts": (tensor(tuple_op(text_op("x")), b")"), "no integers"),
    "a thousand sizes": (tensor(b"(" + b"K\x01" * 1000 + b"t", b")"), "too many"),
    "sizes that reach past": (tensor(tuple_op(int_op(900), int_op(3)), tuple_op(int_op(3), int_op(1))), "reach past"),
    "other sizes": (tensor(tuple_op(int_op(2)), tuple_op(int_op(1))), ""),
    "other key": (tensor(b")", b")", "v"), "no values for it"),
    "a way out": (tensor(tuple_op(int_op(3), int_op(3)), tuple_op(int_op(3), int_op(1)), "w", STORAGE.replace(text_op("0"), text_op("../../byteorder"))),
                  "has no record 'data/../../byteorder'"),
    "a container in itself": (b"}q\x00(" + text_op("w") + b"h\x00u.", "no values for it"),
    "millions of things": (b"K\x01" * 3_000_000, "a pickle of more than"),
    "millions of marks": (b"(" * 3_000_000, "a pickle of more than"),
    "millions of copies": (b"]q\x00" + b"h\x00" * 2_000_000 + b"\x85" * 10, "a pickle of more than"),
    "millions of items that are one": (b"N]q\x00" + b"h\x00a" * 2_000_000, "a pickle of more than"),
    "a negative": (tensor(tuple_op(int_op(3), int_op(3)), tuple_op(int_op(3), int_op(1)),
                          more=b"\x89" + ORDERED + b"}" + text_op("neg") + b"\x88s"), "the negative or conjugate"),
    "without metadata": (tensor(tuple_op(int_op(3), int_op(3)), tuple_op(int_op(3), int_op(1)), "v", more=b"\x89" + ORDERED + b"}"), "no values for it"),
    "tuples in tuples": (b")" + b"\x85" * 900_000 + b".", "is not a dictionary"),
}


def test_pickles(tmp_path):
    """Instructions beyond the list, names that are not known, stacks and memos of nothing, tensors that lie: nothing is called."""
    for k, (name, (pickle, says)) in enumerate(PICKLES.items()):
        records = small().pickled_records("AB"[k % 2], {})
        weights = "serialized_state_dict.pt" if k % 2 == 0 else "data/weights/model.pt"
        program = small()
        records[weights] = saved(program.weights, program.records, pickle, zipfile.ZIP_DEFLATED if len(pickle) > 9999 else zipfile.ZIP_STORED)
        prefix = "" if k % 2 == 0 else "m/"
        text = check(archive(tmp_path / "bad.pt2", {prefix + n: data for n, data in records.items()}))
        assert says in text, (name, text)
    records[weights] = b"no archive"
    assert "has no end record" in check(archive(tmp_path / "bad.pt2", {prefix + n: data for n, data in records.items()}))


def test_pickled_cut_and_changed(tmp_path):
    """A file of an old layout, cut and changed at many places."""
    whole, draw, path = small().save(tmp_path / "m.pt2", layout="A").read_bytes(), random.Random(3), tmp_path / "bad.pt2"
    for n in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:n])
        check(path)
    at = whole.index(b"archive/data.pkl")
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 2, 4))):
            data[at + draw.randrange(700)] = draw.choice((draw.randrange(256), 0, 255, ord("("), ord("R")))
        path.write_bytes(data)
        check(path, (0, 1, 4))


def test_long_chains_of_views(tmp_path):
    """Ten thousand writes in place, and as many views of views: time and stack stay bounded."""
    program = Program()
    x = program.node("aten.clone.default", [program.input("x", F, (2, 3))], [("c", F, (2, 3))])
    for n in range(10_000):
        x = program.node("aten.relu_.default", [x], [(f"r{n}", F, (2, 3))])
    program.output(x)
    check(program.save(tmp_path / "m.pt2"), (0,))
    program = Program()
    first = x = program.node("aten.clone.default", [program.input("x", F, (2, 3))], [("c", F, (2, 3))])
    for n in range(10_000):
        x = program.node("aten.t.default", [x], [(f"t{n}", F, (3, 2) if n % 2 else (2, 3))])
    program.node("aten.relu_.default", [Ref(first)], [("w", F, (2, 3))])
    program.output(x)
    assert "a view of a view" in check(program.save(tmp_path / "m.pt2"))


def test_many_states(tmp_path):
    """Sixteen thousand buffers, all of them written."""
    program = Program()
    program.output(program.node("aten.neg.default", [program.input("x", F, (1,))], [("y", F, (1,))]))
    for n in range(16_000):
        program.weight(f"buffer{n}", np.zeros(1, np.float32))
    document = program.document()
    document["graph_module"]["signature"]["output_specs"][:0] = [{"buffer_mutation": {"arg": {"name": "y"}, "buffer_name": f"buffer{n}"}}
                                                                 for n in range(16_000)]
    path = program.save(tmp_path / "m.pt2", **document)
    check(path, (0,))
    assert '"buffer15999"' in mcc("-stop-after=legalize", path).stdout    # initial values have their states' names


def test_state_whose_elements_overlap(tmp_path):
    """A written tensor of six elements that lie in four places."""
    for strides, size in (((1, 1), 2), ((0, 1), 2), ((1, 2), 2)):
        program = Program()
        w = program.weight("w", np.ones(6, np.float32), shape=(3, size), strides=strides)
        program.output(program.node("aten.relu_.default", [w], [("y", F, (3, size))]))
        assert "tensor 'w': error: it is written, and its elements share memory" in check(program.save(tmp_path / "m.pt2"))
    program = Program()
    w = program.weight("w", np.ones(6, np.float32), shape=(3, 1, 2), strides=(1, 0, 3))
    program.output(program.node("aten.relu_.default", [w], [("y", F, (3, 1, 2))]))
    check(program.save(tmp_path / "m.pt2"), (0,))


def damaged(kind):
    """A program that mcc check may take, with something that the editor of mcc quantize needs gone or wrong."""
    program = small()
    document = program.document()
    graph, signature = document["graph_module"]["graph"], document["graph_module"]["signature"]
    if kind == "types":
        graph["tensor_values"] = {k: v for k, v in graph["tensor_values"].items() if k == "x"}
    if kind == "inputs":
        del graph["inputs"]
    if kind == "more inputs":
        graph["inputs"] *= 5
    if kind == "sizes":
        graph["tensor_values"]["p_w"]["sizes"] = [{"as_int": -1}]
    if kind == "calls":
        del document["graph_module"]["module_call_graph"]
    if kind == "results":
        graph["nodes"][0]["outputs"] = []
    if kind == "operands":
        graph["nodes"][0]["inputs"] = graph["nodes"][0]["inputs"][:1] * 3
    if kind == "nested":
        graph["nodes"][0]["inputs"][0]["arg"] = {"as_tensors": [[{"name": "x"}]]}
    if kind == "names":
        signature["input_specs"][1]["parameter"]["parameter_name"] = "x" * 100000
    if kind == "twice":
        signature["input_specs"].append(signature["input_specs"][1])
    if kind == "output":
        signature["output_specs"][0]["user_output"]["arg"]["as_tensor"]["name"] = "x"
    return program.records_of(document)


@pytest.mark.parametrize("kind", ["types", "inputs", "more inputs", "sizes", "calls", "results", "operands", "nested", "names", "twice", "output"])
def test_quantize(kind, tmp_path):
    """A result, or a reason: never an internal error."""
    path = archive(tmp_path / "m.pt2", damaged(kind))
    done = usage([MCC, "quantize", path, "-o", tmp_path / "q.pt2", "--bound=0"], 60, 40, resource.RLIM_INFINITY if SANITIZED else 4 << 30)
    assert done.status in (0, 1, 2, 4) and (done.status == 0) == (tmp_path / "q.pt2").exists(), (done.status, done.said)
    assert done.status == 0 or b"error: " in done.said
    if done.status == 0:
        check(tmp_path / "q.pt2", (0,))


def test_quantize_of_changed_bytes(tmp_path):
    whole, path, draw = small().save(tmp_path / "m.pt2").read_bytes(), tmp_path / "bad.pt2", random.Random(4)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 2))):
            data[draw.randrange(len(data))] = draw.choice((draw.randrange(256), 0, ord("9"), ord('"'), ord("{"), ord("x")))
        path.write_bytes(data)
        done = usage([MCC, "quantize", path, "-o", tmp_path / "q.pt2", "--bound=0"], 60, 40, resource.RLIM_INFINITY if SANITIZED else 4 << 30)
        assert done.status in (0, 1, 2, 3, 4) and (done.status == 0 or b"error: " in done.said), (done.status, done.said)

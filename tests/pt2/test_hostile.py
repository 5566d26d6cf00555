"""Files made to be bad: each ends in a diagnostic with status 1 or 4, within two seconds."""
import json
import pathlib
import random
import struct
import subprocess
import zipfile

import numpy as np
import pytest

from pt2.writer import Program, Ref
from support.tool import MCC

DATA = pathlib.Path(__file__).resolve().parent / "data"
F = np.dtype("float32")


def check(path, statuses=(1, 4)):
    done = subprocess.run([MCC, "check", path], capture_output=True, text=True, errors="replace", timeout=20)
    assert done.returncode in statuses and (done.returncode == 0 or "error: " in done.stderr), (done.returncode, done.stderr)
    return done.stderr


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
    "not a program": ({"a/b": b"1"}, "without a program of torch.export.save"),
    "TorchScript": ({"m/data.pkl": b"1", "m/constants.pkl": b"1", "m/code/x.py": b""}, "a TorchScript program"),
    "torch.save": ({"m/data.pkl": b"1", "m/data/0": b""}, "weights or objects of torch.save"),
    "old layout": ({"serialized_exported_program.json": b"{}", "version": b"8.2"}, "PyTorch 2.8 and older"),
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
            (lambda g, d, p: node(g)["inputs"][0].update(arg={"as_tensor": {"name": "x"}, "as_int": 1}), "no union of one member"),
            (lambda g, d, p: node(g)["inputs"][0].update(arg={"as_surprise": 1}), "is of kind 'surprise'"),
            (lambda g, d, p: node(g)["inputs"].pop(), "argument 'mat2' of mm.default is missing"),
            (lambda g, d, p: node(g)["inputs"].append({"name": "more", "arg": {"as_int": 1}}), "does not know"),
            (lambda g, d, p: node(g).update(target="torch.ops.aten.nonsense.default"), "no lowering for this operator"),
            (lambda g, d, p: node(g).update(target="nonsense"), "has no target"),
            (lambda g, d, p: g["graph"]["nodes"].append(node(g)), "two values are called 'y'"),
            (lambda g, d, p: g["signature"]["output_specs"].clear(), "no tensor as output"),
            (lambda g, d, p: g["signature"]["output_specs"].append({"buffer_mutation": {"arg": {"name": "y"}, "buffer_name": "b"}}), "keep state"),
            (lambda g, d, p: d["schema_version"].update(major=9), "schema version 9"),
            (lambda g, d, p: d["range_constraints"].update({"s0": {"min_val": 9, "max_val": 3}}), "symbol s0 is from 9 to 3"),
            (lambda g, d, p: g["graph"]["tensor_values"]["x"].update(dtype=99), "element type 99"),
            (lambda g, d, p: g["graph"]["tensor_values"]["x"].update(sizes=[{"as_int": 2 ** 40}, {"as_int": 2 ** 40}]), "--limit-tensor-bytes"),
            (lambda g, d, p: g["graph"]["tensor_values"]["x"].update(sizes=[{"as_int": -1}, {"as_int": 3}]), "dimension 0 is -1"),
            (lambda g, d, p: meta(p, sizes=[{"as_int": 300}, {"as_int": 3}]), "reach past"),
            (lambda g, d, p: meta(p, storage_offset={"as_int": 2 ** 62}), "reach past"),
            (lambda g, d, p: meta(p, strides=[{"as_int": 0}, {"as_int": -1}]), "no number from 0 on"),
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
            (lambda g: at(g, "cond")["inputs"][1].update(arg={"as_int": 1}), "argument 1 of cond is no graph"),
            (lambda g: at(g, "cond")["inputs"].pop(0), "is neither a tensor nor a number"),
            (lambda g: at(g, "cond").update(target="torch.ops.higher_order.flex_attention"), "operator 'flex_attention' is not supported"),
            (lambda g: at(g, "cond", 1)["outputs"].__setitem__(0, {"as_tensor": {"name": "count"}}), "operand 'count' is made by no node"),
            (lambda g: at(g, "cond", 2)["inputs"].__setitem__(0, at(g, "cond", 2)["inputs"][1]), "two inputs of a graph of cond"),
            (lambda g: at(g, "while_loop", 0)["outputs"].clear(), "the graph of the condition has 0 results"),
            (lambda g: at(g, "while_loop", 1)["outputs"].pop(), "1 results for 2 carried values"),
            (writes, "writes, within a graph of cond, to a tensor from around it")]:
        assert says in check(rewritten(tmp_path, "branching.pt2", change))


def test_expressions(tmp_path):
    """Sizes whose expressions nest or grow without end are unknown sizes, or end at a limit."""
    for text in ("(" * 100_000, "Add(" * 5000 + "Integer(1)", "Mul(" + "Symbol('s0')," * 60 + "Integer(1))", "s0**8**8**8", "9" * 400, "s0//0",
                 "Mod(s0, 0)", "-" * 9999):
        program = Program()
        program.symbol("s0", 1, 2 ** 62)
        x, y = program.input("x", F, ("Symbol('s0')", 2)), program.input("y", F, (text, 2))
        program.output(program.node("aten.cat.default", [[x, y]], [("z", F, (1, 2))]))
        check(program.save(tmp_path / "m.pt2"), (0, 1, 4))


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

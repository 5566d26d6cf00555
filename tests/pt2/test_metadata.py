"""What a file says of its nodes besides what they compute: types of results, Python lines and modules, guards of sizes."""
import copy
import json
import pathlib
import re
import zipfile

import numpy as np
import pytest

from pt2.writer import Number, Program, Ref, Type, size
from support.artifact import Artifact
from support.tool import MCC, mcc
from support.usage import usage

DATA = pathlib.Path(__file__).resolve().parent / "data"
F, I = np.dtype("float32"), np.dtype("int64")


def altered(path, change):
    """A recorded file with other metadata of its tensors."""
    with zipfile.ZipFile(DATA / "residual.pt2") as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if "/models/" in info.filename:
                document = json.loads(data)
                change(document["graph_module"]["graph"]["tensor_values"])
                data = json.dumps(document)
            new.writestr(info.filename, data)
    return path


# ---- types of results

def test_other_types_are_refused(tmp_path):
    """Each tensor of a recorded file in another type: of another rank, with another size, with other elements."""
    with zipfile.ZipFile(DATA / "residual.pt2") as archive:
        graph = json.loads(archive.read("raw/models/model.json"))["graph_module"]["graph"]
    results = [out["as_tensor"]["name"] for node in graph["nodes"] for out in node["outputs"] if "as_tensor" in out]
    assert len(results) > 10
    for name in results:
        before = graph["tensor_values"][name]
        sizes = copy.deepcopy(before["sizes"])
        sizes[-1] = {"as_int": sizes[-1]["as_int"] + 1} if "as_int" in sizes[-1] else {"as_expr": {"expr_str": f"Add({sizes[-1]['as_expr']['expr_str']}, 1)"}}
        for change in ({"sizes": before["sizes"] + [{"as_int": 1}]}, {"sizes": sizes}, {"dtype": 5}):
            done = mcc("check", altered(tmp_path / "m.pt2", lambda values: values[name].update(change)))
            says = rf"{name}' \(aten\..*: error: the file says that result '{name}' is .*, and mcc computes "
            assert done.returncode == 1 and re.search(says, done.stderr), (name, change, done.stderr)
    assert mcc("check", altered(tmp_path / "m.pt2", lambda values: None)).returncode == 0


def test_the_message_names_node_line_and_types(tmp_path):
    program = Program()
    x, w = program.input("x", F, (2, 4)), program.weight("w", np.ones((3, 4), np.float32))
    program.output(program.node("aten.linear.default", [x, w], [("y", F, (2, 4))]))
    program.came_from("/somebody/nets/model.py", 42, "layers.3.attn.q_proj")
    done = mcc("check", program.save(tmp_path / "m.pt2"))
    assert done.returncode == 1 and "node 'layers.3.attn.q_proj/y' (aten.linear.default-1, model.py:42): error: the file says that result 'y' is f32[2, 4], " \
        "and mcc computes f32[2, 3]\n" in done.stderr


def sliced(tmp_path, low, high, stated, end=2):
    """x[:end] of a dynamic size, and what the file says its size is."""
    program = Program()
    n = program.symbol("s0", low, high)
    part = program.node("aten.slice.Tensor", [program.input("x", F, (n, 3)), 0, 0, end], [("part", F, (stated, 3))])
    program.output(program.node("aten.neg.default", [part], [("y", F, ("u0", 3))]))
    return program.save(tmp_path / "m.pt2")


@pytest.mark.parametrize("low, high, stated, options, fits", [
    (2, 40, 2, [], True),    # [min(s0, 2), 3]
    (2, 40, 3, [], False),
    (2, 40, "s0", [], True),    # is so where s0 is 1 or 2
    (3, 40, "s0", [], False),
    (2, 40, "s0+s9", [], True),    # says nothing
    (2, 40, 2, ["--input=x:f32[1,3]"], True),    # exporters trace 1 apart: the file says nothing of it
    (2, 40, 2, ["--input=x:f32[n=0..1,3]"], True),
    (2, 40, "s0", ["--input=x:f32[30,3]"], False),
    (2, 40, "s0", ["--input=x:f32[n=10..30,3]"], False),
    (2, 40, 2, ["--input=x:f32[n=10..30,3]"], True),
])
def test_sizes_that_may_be_equal(tmp_path, low, high, stated, options, fits):
    done = mcc("check", sliced(tmp_path, low, high, stated), *options)
    assert done.returncode == (not fits) and fits == ("the file says" not in done.stderr), done.stderr


def test_types_that_options_leave_alone(tmp_path):
    """Sizes of which the file says nothing for these inputs; elements count all the same."""
    program = Program()
    n = f"Add(Integer(3), {program.symbol('s0', 1, 40)})"
    x = program.input("x", F, (n,))
    program.output(program.node("aten.neg.default", [x], [("y", I, (n,))]))
    for options in ([], ["--input=x:f32[7]"]):
        done = mcc("check", program.save(tmp_path / "m.pt2"), *options)
        assert done.returncode == 1 and "is i64[" in done.stderr and "computes f32[" in done.stderr, done.stderr
    program.values["y"]["dtype"] = 7
    assert mcc("check", program.save(tmp_path / "m.pt2"), "--input=x:f32[7]").returncode == 0


def test_a_number_is_no_tensor_of_another_type(tmp_path):
    """Sequences of integers and floats have the type that is asked for."""
    for args, dtype in (([6], F), ([0.5, 4.5], I), ([0, 6, 2], np.dtype("int32"))):
        op = ("default", "start", "start_step")[len(args) - 1]
        program = Program()
        y = program.node(f"aten.arange.{op}", args, [("y", dtype, (len(np.arange(*args)),))], {"dtype": Type(dtype.name)})
        program.output(program.node("aten.add.Tensor", [program.input("x", dtype, (1,)), y], [("z", dtype, (len(np.arange(*args)),))]))
        done = mcc(program.save(tmp_path / "m.pt2"), "-o", tmp_path / "m.so")
        assert done.returncode == 0, done.stderr
        with Artifact(tmp_path / "m.so") as a:
            assert a.run([np.zeros(1, dtype)])[0].tolist() == np.arange(*args).astype(dtype).tolist()


# ---- Python lines and modules

def network(path, folder="/somebody/nets"):
    """linear, relu (one kernel), a view, index_select, whose indices the run checks."""
    program = Program()
    x, i, w = program.input("x", F, (4, 8)), program.input("i", I, (3,)), program.weight("w", np.ones((6, 8), np.float32))
    steps = [("linear.default", [x, w], (4, 6), "up"), ("relu.default", [Ref("up")], (4, 6), "relu"), ("t.default", [Ref("relu")], (6, 4), "turned"),
             ("index_select.default", [Ref("turned"), 0, i], (3, 4), "picked")]
    for k, (op, args, shape, name) in enumerate(steps):
        program.node(f"aten.{op}", args, [(name, F, shape)])
        program.came_from(f"{folder}/model.py", 42 + k, "layers.3" if k else "layers.3.up")
    program.output("picked")
    return program.save(path)


def test_lines_are_everywhere(tmp_path):
    """What is printed of nodes names their modules and their lines; JSON has the whole path."""
    path, net = network(tmp_path / "m.pt2"), tmp_path / "m.so"
    done = mcc(path, "--stats", "-o", net)
    assert done.returncode == 0, done.stderr
    assert "node layers.3/relu (relu.default, model.py:43): " in done.stdout and "node layers.3/turned (t.default, model.py:44): " in done.stdout
    both = "layers.3.up/up (linear.default, model.py:42) + layers.3/relu (relu.default, model.py:43)"
    for command in (["bench", "--runs=3", net], ["inspect", net], ["inspect", path], ["report", net, "-o", tmp_path / "m.html"]):
        done = mcc(*command)
        assert done.returncode == 0 and (command[0] == "report" or both in done.stdout), done.stdout + done.stderr
    data = json.loads(re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', (tmp_path / "m.html").read_text(), re.S)[1])
    sources = {node["name"]: node["source"] for kernel in data["artifact"]["kernels"] for node in kernel["nodes"]}
    assert sources["layers.3.up/up"] == "/somebody/nets/model.py:42" and sources["layers.3/relu"] == "/somebody/nets/model.py:43"
    with Artifact(net) as a, pytest.raises(Exception, match=r"node 'layers.3/picked' \(index_select.default, model.py:45\): "):
        a.run([np.ones((4, 8), np.float32), np.int64([0, 9, 1])])


def test_lines_of_refusals(tmp_path):
    program = Program()
    for k in range(2):
        program.node("aten.no_such.default", [program.input(f"x{k}", F, (3,)), 0.5], [(f"y{k}", F, (3,))], names=["self", "p"])
        program.came_from("model.py", 42 + k, "drop")
    program.output("y0", "y1")
    done = mcc("check", program.save(tmp_path / "m.pt2"))
    assert done.returncode == 1 and "('drop/y0' at model.py:42, 'drop/y1' at model.py:43 of f32[3]" in done.stderr, done.stderr


def test_lines_are_text(tmp_path):
    """What a file says its path is may be anything."""
    for folder in ("a\n\x1b[31m", "é" * 300, "%s%n", ""):
        done = mcc("inspect", network(tmp_path / "m.pt2", folder))
        assert done.returncode == 0 and "\x1b" not in done.stdout, done.stderr
        done = mcc(tmp_path / "m.pt2", "-g", "-o", tmp_path / "m.so")
        assert done.returncode == 0, done.stderr


# ---- guards

def guarded(path, guards, x, y=("s1",), low=1):
    """The concatenation of two inputs whose sizes are expressions; z: x + 1."""
    program = Program()
    for symbol in sorted(set(re.findall(r"\bs\d\b", " ".join(map(str, x + y))))):
        program.symbol(symbol, low, 60)
    a, b = program.input("x", F, x), program.input("y_0", F, y)
    program.node("aten.cat.default", [[a, b]], [("both", F, ("u0",))])
    program.output("both", program.node("aten.add.Tensor", [a, 1], [("z", F, x)]))
    return program.save(path, guards_code=guards)


def takes(path, *sizes):
    """For pairs of lengths: does the network run, and with the right result?"""
    done = mcc(path, "-o", f"{path}.so")
    assert done.returncode == 0 and not done.stderr, done.stderr
    ran = []
    with Artifact(f"{path}.so") as a:
        for n, k in sizes:
            try:
                assert [v.shape for v in a.run([np.zeros(n, F), np.zeros(k, F)])] == [(n + k,), (n,)]
                ran.append(True)
            except Exception as error:
                assert re.search("the program was exported for|dim 0 is not|'s0' must be|'s0' goes|'x_d0' must be", str(error)), error
                ran.append(False)
    return ran


@pytest.mark.parametrize("guard, fits, not_fits", [
    ("L['x'].size()[0] == L['y'][0].size()[0]", (5, 5), (5, 6)),
    ("(L['x'].size()[0] // 3) == L['y'][0].size()[0]", (7, 2), (7, 3)),
    ("(L['x'].size()[0] % 4) == 0", (8, 1), (9, 1)),
    ("2*L['y'][0].size()[0] <= L['x'].size()[0]", (4, 2), (3, 2)),
    ("L['x'].size()[0] > 4", (5, 1), (4, 1)),
    ("-1 + L['x'].size()[0] >= L['y'][0].size()[0]**2", (5, 2), (4, 2)),
    ("3 < L['x'].size()[0] < 9", (8, 1), (9, 1)),
    ("torch.sym_max(3, L['x'].size()[0]) == L['y'][0].size()[0]", (2, 3), (4, 3)),
    ("torch.sym_min(3, L['x'].size()[0]) != L['y'][0].size()[0]", (2, 3), (4, 3)),
    ("L['x'].size()[0] == 7 or (L['y'][0].size()[0] >= 5 and L['x'].size()[0] < 3)", (7, 1), (6, 5)),
    ("not (L['x'].size()[0] == 7 or L['y'][0].size()[0] == 2)", (8, 3), (8, 2)),
    ("not (L['x'].size()[0] != 1)", (1, 3), (2, 3)),
    ("L['x'].size()[0] != 7", (6, 1), (7, 1)),
    ("(L['x'].size()[0] % 4) != 0", (5, 1), (8, 1)),
    ("(L['x'].size()[0] % 4) != 1", (6, 1), (5, 1)),
    ("(L['x'].size()[0] % 4) >= 2", (6, 1), (5, 1)),
    ("(L['x'].size()[0] % 4) > 1", (7, 1), (8, 1)),
    ("(L['x'].size()[0] // 4) != 0", (4, 1), (3, 1)),
    ("(L['x'].size()[0] // 4) != 0", (9, 1), (1, 1)),
])
def test_guards(tmp_path, guard, fits, not_fits):
    """Sizes for which PyTorch does not run the program are refused before anything runs."""
    path = guarded(tmp_path / "m.pt2", [guard], ("s0",))
    assert takes(path, fits, not_fits) == [True, False]


@pytest.mark.parametrize("guard", ["(L['x'].size()[0] // 2) != 1",
                                   "L['x'].size()[0] != 1", "L['x'].size()[0] != 0", "L['x'].size()[0] >= 2", "L['x'].size()[0] > 1",
                                   "(5*L['x'].size()[0]) != (5*L['x'].size()[0]*L['y'][0].size()[0])", "L['flag'] == True", "L['x'].stride()[0] == 1"])
def test_guards_that_leave_one_free(tmp_path, guard):
    """Exporters tell 0 and 1 from other sizes; what they traced holds for 1, too. What is no size is no condition of a run."""
    assert takes(guarded(tmp_path / "m.pt2", [guard], ("s0",), low=2), (1, 1), (1, 3), (3, 1)) == [True] * 3


@pytest.mark.parametrize("x, y, guards, fits, not_fits", [
    (("2*s0",), ("s0",), [], (6, 3), (6, 4)),
    (("s0",), ("s0//2",), [], (7, 3), (7, 4)),
    (("Mul(Integer(4), Symbol('s0', positive=True, integer=True))",), ("Mul(Integer(2), Symbol('s0', positive=True, integer=True))",), [], (12, 6), (12, 4)),
    (("2*s0",), ("2*s0",), [], (6, 6), (7, 7)),
    (("2*s0",), ("s1",), ["L['x'].size()[0] == 4*L['y'][0].size()[0]"], (16, 4), (14, 4)),
    (("2*s0",), ("s1",), ["(L['x'].size()[0] // 2) <= L['y'][0].size()[0]"], (16, 8), (16, 7)),
    (("s0 + 3",), ("s0",), ["(L['x'].size()[0] % 2) == 0"], (8, 5), (7, 4)),
])
def test_guards_of_derived_sizes(tmp_path, x, y, guards, fits, not_fits):
    """Sizes that are multiples of one that no input has are parts of that input's."""
    assert takes(guarded(tmp_path / "m.pt2", guards, x, y), fits, not_fits) == [True, False]


def test_what_guards_say_is_known(tmp_path):
    """Two sizes that are equal are one; a size that is a multiple needs no check of what divides it."""
    program = Program()
    for symbol in ("s0", "s1"):
        program.symbol(symbol, 2, 60)
    x, y = program.input("x", F, ("s0", 4)), program.input("y", F, ("s1", 4))
    z = program.node("aten.add.Tensor", [x, y], [("z", F, ("s0", 4))])
    program.output(program.node("aten.view.default", [z, [-1, 3, 4]], [("r", F, ("s0//3", 3, 4))]))
    guards = ["L['x'].size()[0] == L['y'].size()[0]", "(L['x'].size()[0] % 3) == 0"]
    text = mcc("-stop-after=legalize", program.save(tmp_path / "m.pt2", guards_code=guards)).stdout
    assert "s1" not in re.sub(r"(?m)^(symbol|check|input) .*", "", text) and "select" not in text and "/ 3" in text, text
    assert mcc(tmp_path / "m.pt2", "-o", tmp_path / "m.so").returncode == 0
    with Artifact(tmp_path / "m.so") as a:
        assert a.run([np.ones((6, 4), F)] * 2)[0].shape == (2, 3, 4)
        for sizes in ((7, 7), (6, 3), (1, 6)):
            with pytest.raises(Exception):
                a.run([np.ones((n, 4), F) for n in sizes])


def test_guards_and_options(tmp_path):
    """A guard of sizes that options choose is decided now, or left where the options say what the file cannot."""
    path = guarded(tmp_path / "m.pt2", ["(L['x'].size()[0] % 4) == 0"], ("s0",))
    assert mcc(path, "--input=x:f32[8]", "-o", tmp_path / "m.so").returncode == 0
    done = mcc(path, "--input=x:f32[9]", "-o", tmp_path / "m.so")
    assert done.returncode == 1 and "dimension 0 of input 'x' is 's0' in the model, which is a multiple of 4" in done.stderr
    done = mcc(path, "--input=x:f32[80]", "-o", tmp_path / "m.so")
    assert done.returncode == 1 and "dimension 0 of input 'x' is 's0' in the model, which goes from 1 to 60" in done.stderr
    done = mcc(path, "--input=x:f32[n=4..400%2]", "-o", tmp_path / "m.so")
    assert done.returncode == 0 and "x: f32[n]" in mcc("inspect", tmp_path / "m.so").stdout
    assert mcc("bench", "--runs=2", tmp_path / "m.so").returncode == 0
    path = guarded(tmp_path / "m.pt2", [], ("s0",), ("2*s0",))    # commands that draw inputs compute their sizes
    assert mcc(path, "-o", tmp_path / "m.so").returncode == 0
    for command in (["bench", "--runs=2", "--dim=s0=7"], ["inspect"]):
        done = mcc(*command, tmp_path / "m.so")
        assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("guard", ["L['x'].size()[0] / 2 == 3", "L['x'].size()[0] % (L['y'][0].size()[0] - 5) == 0", "L['x'].size()[7] == 1",
                                   "L['other'].size()[0] == 1", "L['x'].size()[0] == ", "(L['x'].size()[0] == 1", "(" * 10_000 + "L['x'].size()[0]",
                                   "not " * 10_000 + "L['x'].size()[0] == 1", "L['x'].size()[0] == 1 and " * 10_000, "L['" + "x" * 9999 + "'].size()[0] == 1"])
def test_guards_that_are_not_understood(tmp_path, guard):
    done = mcc(guarded(tmp_path / "m.pt2", [guard], ("s0",)), "-o", tmp_path / "m.so")
    assert done.returncode == 0 and "warning: runs do not check that " in done.stderr and "[-Wguards]" in done.stderr, done.stderr


def test_sizes_that_say_that_they_are_themselves(tmp_path):
    """Sizes of inputs are what guards speak of, and no sizes are written with them."""
    program = Program()
    program.output(program.node("aten.relu.default", [program.input("x", F, ("L['x'].size()[0]",))], [("y", F, (3,))]))
    for guards in ([], ["L['x'].size()[0] == 3"]):
        assert mcc("check", program.save(tmp_path / "m.pt2", guards_code=guards)).returncode in (0, 1)


def test_guards_of_an_endless_name(tmp_path):
    keys = "[abcdefghijklmnopqrstuvwxyz]" * 60_000
    done = usage([MCC, "check", guarded(tmp_path / "m.pt2", [f"L['x']{keys}.size()[0] == 3"], ("s0",))], 60, 40)
    assert done.status == 0 and b"which is not understood" in done.said and done.seconds < 10 and done.bytes < 1 << 30, done


def test_guards_of_names_that_two_inputs_may_have(tmp_path):
    """L['a']['b'] and L['a_b'] are both called a_b, the second one a_b_1."""
    program = Program()
    for k, name in enumerate(("a_b", "a_b_1")):
        program.symbol(f"s{k}", 1, 60)
        program.input(name, F, (f"s{k}",))
    program.output(program.node("aten.cat.default", [[Ref("a_b"), Ref("a_b_1")]], [("y", F, ("u0",))]))
    done = mcc("check", program.save(tmp_path / "m.pt2", guards_code=["L['a_b'].size()[0] == 3"]))
    assert done.returncode == 0 and "which is not understood" in done.stderr

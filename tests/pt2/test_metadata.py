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
from support.tool import mcc

DATA = pathlib.Path(__file__).resolve().parent / "data"
F, I = np.dtype("float32"), np.dtype("int64")
TRACE = 'File "/somebody/nets/model.py", line {}, in forward\n    y = self.up(x)\n  File "/lib/torch/nn/modules/linear.py", line 7, in forward\n'


def at(program, line, module):
    """Where the last node comes from, as exporters say it."""
    stack = f"L__self__,,nets.Net;L__self___{module},{module},torch.nn.modules.linear.Linear"
    program.nodes[-1]["metadata"] = {"stack_trace": TRACE.format(line), "nn_module_stack": stack}


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
    at(program, 42, "layers.3.attn.q_proj")
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
    (2, 40, 2, ["--input=x:f32[50,3]"], True),
    (2, 40, "s0", ["--input=x:f32[50,3]"], True),    # nor of 50
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
    n = f"Mul(Integer(2), {program.symbol('s0', 1, 40)})"
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

"""Nothing is silent: stages that print, words that mean nothing, tables that are cut."""
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import defs, helper

from support.tool import DIGITS, dense, mcc, save, value


def refused(*args):
    done = mcc(*args)
    assert done.returncode == 2 and done.stdout == "", (done.returncode, done.stdout)
    return done.stderr


# ---- stages -------------------------------------------------------------------------------------------------------------


def test_every_stage_prints(tmp_path):
    model = dense(tmp_path / "m.onnx")
    stages = mcc("--list-stages").stdout.split()
    for stage in stages[:-1]:
        done = mcc(model, f"-stop-after={stage}", "-o", "-")
        assert done.returncode == 0 and done.stdout.strip(), stage
        assert mcc(model, f"-stop-after={stage}", "-o", tmp_path / "text").returncode == 0
        assert (tmp_path / "text").read_text() == done.stdout
    assert "link is the last stage" in refused(model, f"-stop-after={stages[-1]}", "-o", "-")
    assert "did you mean 'schedule'?" in refused(model, "-stop-after=shedule")


def test_sizes_and_code(tmp_path):
    model = dense(tmp_path / "m.onnx")
    assert re.match(r"constants: 60 bytes in the file, \d+ bytes in the output", mcc(model, "-stop-after=sizes", "-o", "-").stdout)
    code = mcc(model, "-stop-after=codegen", "-o", "-", "-march=x86-64-v3").stdout
    assert mcc(model, "-S", "-o", tmp_path / "m.s", "-march=x86-64-v3").returncode == 0
    assert "\t.text" in code and code == (tmp_path / "m.s").read_text()
    assert "define " in mcc(model, "-stop-after=codegen", "-emit-llvm", "-o", "-").stdout
    objects = mcc(model, "-print-after=codegen", "-o", tmp_path / "m.so", "-march=x86-64-v3").stderr
    assert re.search(r"^k0_v3 for x86-64-v3: an object of \d+ bytes$", objects, re.M)


# ---- words that mean nothing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option,says", [
    ("-Rpass=nosuch", "'Rpass': no pass with such remarks matches 'nosuch': fuse"), ("-Rpass=fuze", "did you mean 'fuse'?"),
    ("-Rpass-missed=schedule", "no pass with such remarks"), ("-Rpass-analysis=shedule", "did you mean 'schedule'?"),
    ("-Rpass=(", "is not a regular expression")])
def test_remarks_of_no_pass(option, says, tmp_path):
    assert says in refused(DIGITS, option, "-o", tmp_path / "d.so")
    assert not (tmp_path / "d.so").exists()


@pytest.mark.parametrize("option", ["-Rpass=.*", "-Rpass=fuse,schedule", "-Rpass-analysis=sched.*", "-Rpass-analysis=nosuch,layout"])
def test_remarks_of_some_pass(option, tmp_path):
    assert mcc(DIGITS, option, "-o", tmp_path / "d.so", "-march=native").returncode == 0


@pytest.mark.parametrize("name, says", [
    ("x.dylib", "--target=aarch64-macos"), ("x.exe", "ELF files for Linux"), ("x.onnx", "ELF files for Linux"), ("x.dll", "--target=x86_64-windows"),
    ("x.obj", "--target=x86_64-windows"), ("x.lib", "--target=x86_64-windows"), ("x.wasm", "--target=wasm32")])
def test_outputs_of_other_systems(name, says, tmp_path):
    assert says in refused(DIGITS, "-o", tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words,says", [
    ("compil x.onnx", "did you mean 'mcc compile'?"), ("benhc", "did you mean 'mcc bench'?"), ("hlep", "did you mean 'mcc help'?"),
    ("this that", "(mcc help lists the commands)"), ("help me", "(mcc help lists the commands)")])
def test_no_such_command(words, says):
    assert says in refused(*words.split())


def test_help_is_a_command():
    assert mcc("help").stdout == mcc("--help").stdout != ""
    for command in ("compile", "check", "bench", "inspect"):
        assert mcc("help", command).stdout == mcc(command, "--help").stdout
        assert mcc("help", command).returncode == 0


def test_files_that_look_like_commands(tmp_path):
    """A file of that name is compiled; one that is not there is not found."""
    dense(tmp_path / "compil")
    assert mcc("compil", "-o", "a.so", cwd=tmp_path).returncode == 0
    done = mcc("network", cwd=tmp_path)
    assert done.returncode == 3 and "network" in done.stderr
    assert mcc("./compi", cwd=tmp_path).returncode == 3


@pytest.mark.parametrize("spec,says", [
    ("x:f32[1", "no ']' closes '[1' (character 6)"), ("x[1,2", "no ']' closes '[1,2' (character 2)"), ("x:[n", "no ']' closes '[n' (character 3)"),
    ("x:f32[1]z", "nothing may follow, not 'z' (character 9)"), ("x:f32[1,-2]", "cannot be negative: '-2' (character 9)"),
    ("x:f32[2,n=3..1]", "the range is empty: 'n=3..1' (character 9)"), ("x:f99[2]", "unknown element type 'f99' (character 3)"),
    ("x:f32[1,,2]", "(character 9)"), ("x]", "']' without '['")])
def test_malformed_inputs(spec, says, tmp_path):
    assert says in refused(DIGITS, f"--input={spec}", "-o", tmp_path / "d.so")


def test_names_with_brackets(tmp_path):
    node = helper.make_node("Relu", ["a[0]:0"], ["y"])
    model = save(tmp_path / "m.onnx", [node], [value("a[0]:0", ["n"])], [value("y", ["n"])])
    for spec in ("a[0]:0", "a[0]:0:f32[3]", "a[0]:0:[3]"):
        assert mcc(model, f"--input={spec}", "-o", tmp_path / "a.so").returncode == 0, spec


# ---- tables -----------------------------------------------------------------------------------------------------------------


def test_bench_says_what_it_leaves_out(tmp_path):
    nodes, constants = [], {}
    for i in range(45):
        constants[f"w{i}"] = np.full((8, 8), i + 1, np.float32)
        nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"h{i + 1}"], f"product{i}"))
    model = save(tmp_path / "m.onnx", nodes, [value("h0", [4, 8])], [value("h45", [4, 8])], constants)
    assert mcc(model, "-o", tmp_path / "m.so", "-march=native").returncode == 0
    rows = re.compile(r"^ .*product\d+ ", re.M)
    done = mcc("bench", tmp_path / "m.so", "--runs=10", "-t1")
    assert done.returncode == 0 and len(rows.findall(done.stdout)) == 40
    assert re.search(r"^ +[\d.]+ +[\d.]+%  5 more \(--all shows them\)$", done.stdout, re.M)
    done = mcc("bench", tmp_path / "m.so", "--runs=10", "-t1", "--all")
    assert done.returncode == 0 and len(rows.findall(done.stdout)) == 45 and " more " not in done.stdout


# ---- operators that are not served ----------------------------------------------------------------------------------------------


def test_unserved_operators_are_described(tmp_path):
    nodes = [helper.make_node("ImageDecoder", ["x"], ["y"], "decode", pixel_format="BGR")]
    model = save(tmp_path / "m.onnx", nodes, [value("x", ["n"], 2)], [value("y", ["h", "w", 3], 2)], opset=20)
    done = mcc(model, "-o", tmp_path / "a.so")
    assert done.returncode == 1
    assert ("ImageDecoder-20 x 1 ('decode' of u8[n], with pixel_format='BGR'): no lowering for this operator; decode the picture before "
            "the network and make its pixels an input") in done.stderr


WAY_OUT = {   # of ONNX's operators without a row: an input that they take, and what the refusal says
    "ImageDecoder": (value("x", ["n"], T.UINT8), "make its pixels an input"),
    "Gradient": (value("x", ["n"]), "export the graph that they make"),
    **dict.fromkeys(("CastMap", "DictVectorizer"), (helper.make_value_info("x", helper.make_map_type_proto(
        T.INT64, helper.make_tensor_type_proto(T.FLOAT, None))), "begin the model after it")),
}


def test_every_operator_of_onnx_is_served_or_has_a_way_out(tmp_path):
    served = {tuple(line.split()[:2]) for line in mcc("--list-ops").stdout.splitlines()[1:]}
    schemas = [s for s in defs.get_all_schemas() if not s.deprecated and (s.domain or "ai.onnx", s.name) not in served]
    assert {s.name for s in schemas} <= set(WAY_OUT)
    for s in schemas:
        given, words = WAY_OUT[s.name]
        node = helper.make_node(s.name, ["x"], ["y", "z"][:s.min_output], domain=s.domain, **({"xs": ["x"], "y": "x"} if s.name == "Gradient" else {}))
        model = helper.make_model(helper.make_graph([node], "g", [given], [onnx.ValueInfoProto(name="y")]),
                                  opset_imports=[helper.make_opsetid(s.domain, s.since_version)])
        onnx.save(model, tmp_path / "m.onnx")
        done = mcc(tmp_path / "m.onnx", "-o", tmp_path / "a.so")
        assert done.returncode == 1 and s.name in done.stderr and words in done.stderr, done.stderr


def test_attributes_of_unserved_operators(tmp_path):
    nodes = [helper.make_node("Odd", ["x"], ["y"], "odd", domain="my.domain", axes=[1, 2], scale=0.5, names=["a", "b"],
                              many=list(range(20)), long="z" * 300)]
    model = save(tmp_path / "m.onnx", nodes, [value("x", [2])], [value("y", [2])])
    message = mcc(model, "-o", tmp_path / "a.so").stderr
    for text in ("axes=[1,2]", "scale=0.5", "names=['a','b']", "many=[0,1,2,3,4,5,6,7,...]", "model function"):
        assert text in message, message
    assert "z" * 41 not in message

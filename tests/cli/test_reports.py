"""What the command says beside its product: diagnostics as JSON and SARIF, remarks, traces, kept stages, completions."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.terminal import needs_terminal
from support.tool import DIGITS, MCC, ROOT, dense, mcc, remarks, save, value


@pytest.fixture
def model(tmp_path):
    return dense(tmp_path / "net.onnx")


@pytest.fixture
def growing(tmp_path):
    """Two vectors whose sum is a matrix: a warning."""
    row = np.arange(256, dtype=np.float32)
    return save(tmp_path / "grow ü.onnx", [helper.make_node("Div", ["r", "c"], ["t"], 'ta"ble'), helper.make_node("MatMul", ["x", "t"], ["y"])],
                [value("x", [1, 256])], [value("y", [1, 256])], {"r": row[None], "c": row[:, None]})


@pytest.fixture
def refused(tmp_path):
    graph = helper.make_graph([helper.make_node("Nosuch", ["x"], ["y"], "one")], "g", [value("x", [2])], [value("y", [2])])
    path = tmp_path / "bad.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_json_diagnostics(growing, refused, tmp_path):
    done = mcc(growing, "-fdiagnostics-format=json", "-o", tmp_path / "a.so")
    rows = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 0 and [(r["severity"], r["flag"], r["node"], r["file"]) for r in rows] == \
        [("warning", "constant-growth", 'ta"ble', str(growing))]
    done = mcc("check", refused, "-fdiagnostics-format=json")
    row, = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1 and row["severity"] == "error" and row["class"] == "model" and "Nosuch" in row["message"]
    row = json.loads(mcc("-fdiagnostics-format=json").stderr)
    assert row["class"] == "usage"


def test_sarif_diagnostics(growing, tmp_path):
    done = mcc(growing, "-fdiagnostics-format=sarif", "-o", tmp_path / "a.so")
    log = json.loads(done.stderr)
    result, = log["runs"][0]["results"]
    place = result["locations"][0]
    assert log["version"] == "2.1.0" and result["level"] == "warning" and result["ruleId"] == "constant-growth"
    assert place["physicalLocation"]["artifactLocation"]["uri"].endswith("grow%20%C3%BC.onnx")
    assert place["logicalLocations"][0]["name"] == 'ta"ble'


def test_warnings_as_errors(growing, tmp_path):
    done = mcc(growing, "-Werror", "-o", tmp_path / "a.so")
    assert done.returncode == 1 and "[-Werror=constant-growth]" in done.stderr and not (tmp_path / "a.so").exists()
    done = mcc(growing, "-q", "-o", tmp_path / "a.so")
    assert done.returncode == 0 and done.stderr == ""


def test_error_limit(tmp_path):
    nodes = [helper.make_node("Concat", ["x", "x"], [f"t{i}"], f"n{i}", axis=7) for i in range(40)]
    graph = helper.make_graph(nodes, "g", [value("x", [2])], [value(f"t{i}", [2]) for i in range(40)])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    texts = {n: mcc("check", path, f"-ferror-limit={n}").stderr for n in (1, 7, 20, 0)}
    assert {n: text.count("out of range") for n, text in texts.items()} == {1: 1, 7: 7, 20: 20, 0: 40}
    assert "and 33 more of this kind" in texts[7]
    assert mcc("check", path, "-ferror-limit=x").returncode == 2


def test_no_colour_without_a_terminal(refused):
    assert "\x1b" not in mcc("check", refused).stderr


def test_remarks(tmp_path):
    done = mcc(DIGITS, "-Rpass=^fuse$", "-Rpass-analysis=.", "-o", tmp_path / "a.so")
    assert done.returncode == 0
    fused = remarks("-Rpass=^fuse$", DIGITS, "-o", tmp_path / "a.so")
    assert any("conv1, relu1" in row["message"] for row in fused) and all(row["severity"] == "remark" for row in fused)
    assert {row["flag"] for row in fused} == {"pass=fuse"} and done.stderr.count("[-Rpass=fuse]") == len(fused)
    assert "[-Rpass-analysis=layout-transform]" in done.stderr and "[-Rpass-analysis=schedule]" in done.stderr
    assert re.search(r"[0-9.]+ us estimated on \S+ \[-Rpass-analysis=schedule\]", done.stderr)
    assert "[-Rpass-missed" not in done.stderr
    assert "[-Rpass-missed=fuse]" in mcc(DIGITS, "-Rpass-missed=fuse", "-o", tmp_path / "a.so").stderr
    assert mcc(DIGITS, "-Rpass=(", "-o", tmp_path / "b.so").returncode == 2
    for option in ("-Rpass", "-Rpass-missed", "-Rpass-analysis"):   # what libc's regcomp would recurse on, or copy
        for pattern in ("(" * 20000, "(a|" * 21 + "b" + ")" * 21, "(((((x{255}){255}){255}){255}){255})", "a" * 201):
            done = mcc(DIGITS, f"{option}={pattern}", "-o", tmp_path / "b.so")
            assert done.returncode == 2 and "at most 200 characters" in done.stderr, (option, pattern[:40], done)
    assert mcc(DIGITS, "-Rpass=" + "(" * 20 + "fuse" + ")" * 20 + "|" * 100, "-o", tmp_path / "b.so").returncode == 0
    assert mcc(DIGITS, "-o", tmp_path / "b.so").stderr == ""
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()


def test_remarks_on_ifs_and_loops(tmp_path):
    """Shown unless -q or -Rno-if; -Rif shows them in any case, and no other."""
    other = helper.make_graph([helper.make_node("Exp", ["x"], ["e"])], "else", [], [value("e", [3])])
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "then", [], [value("t", [3])])
    body = helper.make_graph([helper.make_node("Add", ["y", "v"], ["w"]), helper.make_node("Identity", ["c"], ["d"])], "body",
                             [value("i", [], T.INT64), value("c", [], T.BOOL), helper.make_tensor_value_info("v", T.FLOAT, None)],
                             [value("d", [], T.BOOL), value("w", [3])])
    path = save(tmp_path / "net.onnx", [helper.make_node("If", ["p"], ["y"], then_branch=then, else_branch=other),
                                        helper.make_node("Loop", ["m", "p", "v0"], ["z"], body=body)],
                [value("x", [3]), value("m", [], T.INT64)], [value("z", [3])], {"p": np.array(True), "v0": np.float32(0)})
    def kinds(*flags):
        done = mcc("check", path, *flags)
        assert done.returncode == 0
        return {k for k in ("if", "loop") if f"[-R{k}]" in done.stderr}
    assert kinds() == {"if", "loop"} and kinds("-q") == set()
    assert kinds("-Rno-if") == {"loop"} and kinds("-Rno-loop") == {"if"} and kinds("-Rno-if", "-Rif") == {"if", "loop"}
    assert kinds("-q", "-Rif") == {"if"} and kinds("-q", "-Rloop") == {"loop"}


def test_optimization_record(tmp_path):
    assert mcc(DIGITS, "-fsave-optimization-record", "-o", tmp_path / "a.so").stderr == ""
    text = (tmp_path / "a.opt.yaml").read_text()
    records = re.findall(r"^--- !(\w+)\nPass: +([\w-]+)\nName: +(\w+)\nFunction: +(k\d+)\nArgs:\n  - String: \"(.*)\"\n\.\.\.\n", text, re.M)
    assert text.count("---") == len(records) and {"Passed", "Missed", "Analysis"} == {r[0] for r in records}


def test_time_trace(tmp_path):
    assert mcc(DIGITS, "-ftime-trace", "-o", tmp_path / "a.so").returncode == 0
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    names = [e["name"] for e in events]
    assert "legalize" in names and "link" in names and any(n.startswith("k0_") for n in names)
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in events if e["ph"] == "X")


@pytest.mark.parametrize("flag", ["-save-temps", "-save-temps=obj"])
def test_kept_stages(tmp_path, flag):
    assert mcc(DIGITS, flag, "-o", tmp_path / "a.so").returncode == 0
    names = sorted(p.name for p in tmp_path.iterdir())
    assert "a.02-legalize.txt" in names and any(n.endswith("-schedule.txt") for n in names)
    legal = mcc(DIGITS, "-stop-after=legalize", "-o", "-").stdout
    assert (tmp_path / "a.02-legalize.txt").read_text() == legal


def test_print_changed(tmp_path):
    text = mcc(DIGITS, "-print-changed", "-verify-each", "-o", tmp_path / "a.so").stderr
    assert "// after legalize\n" in text and "// after link: no change\n" in text


def test_unsupported_operators_have_types_and_a_way_out(tmp_path):
    nodes = [helper.make_node("Clamp01", ["x"], ["a"], "one", domain="my.domain"),
             helper.make_node("Clamp01", ["a"], ["y"], "two", domain="my.domain")]
    graph = helper.make_graph(nodes, "g", [value("x", ["n", 4])], [value("y", ["n", 4])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 3)]
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    done = mcc("check", path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    for word in ("my.domain.Clamp01-3 x 2", "'one', 'two'", "f32[n,4]", "--list-ops", "docs/model-functions.md"):
        assert word in done.stderr, word
    page = (ROOT / "docs/model-functions.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.S)[1].replace('"net.onnx"', repr(str(path)))
    exec(code, {})
    assert mcc(path, "-o", tmp_path / "net.so").returncode == 0
    np.save(tmp_path / "x.npy", np.array([[-1, 0.5, 2, 1]], np.float32))
    assert mcc("run", "net.so", "-i", "x=x.npy", "-o", "out", cwd=tmp_path).returncode == 0
    assert np.load(tmp_path / "out/y.npy").tolist() == [[0, 0.5, 1, 1]]


@pytest.mark.parametrize("text,line,column,word", [
    ("layout: NCHW\nmarch: nosuch\n", 2, 8, "nosuch"), ("variants: v3,v9\n", 1, 11, "v9"), ("mattr: +nosuch\n", 1, 8, "+nosuch"),
    ("target: arm-none\n", 1, 9, "arm-none"), ("nosuch: 1\n", 1, 1, "unknown key"),
    ("layout: [\n", 1, 9, "single value"), ("layout: NCHW: x\n", 1, 13, "not YAML"), ("layout: XY\n", 1, 9, "XY"),
    ("input:\n  - {name: x, dtype: f33, shape: [1, 4]}\n", 2, 5, "f33"), ("input:\n  - x:f32[n,4]\n  - 'x:f32[a b,4]'\n", 3, 5, "a b"),
    ("input:\n  - {name: x, shape: [1, 'a b']}\n", 2, 5, "a b")])
def test_errors_of_the_configuration_have_a_place(model, tmp_path, text, line, column, word):
    (tmp_path / "net.yaml").write_text(text)
    done = mcc(model, f"--config={tmp_path}/net.yaml", "-fdiagnostics-format=json", "-o", tmp_path / "net.so")
    said = json.loads(done.stderr)
    assert done.returncode in (1, 2) and word in said["message"]
    assert (said["file"], said["line"], said["column"]) == (f"{tmp_path}/net.yaml", line, column)
    log = json.loads(mcc(model, f"--config={tmp_path}/net.yaml", "-fdiagnostics-format=sarif", "-o", tmp_path / "net.so").stderr)
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": line, "startColumn": column} and place["artifactLocation"]["uri"].endswith("/net.yaml")
    assert mcc(model, f"--config={tmp_path}/net.yaml").stderr.startswith(f"{tmp_path}/net.yaml:{line}:{column}: error: ")


def test_the_command_line_is_not_the_configurations_fault(model, tmp_path):
    (tmp_path / "net.yaml").write_text("march: native\n")
    assert mcc(model, f"--config={tmp_path}/net.yaml", "-mcpu=nosuch").stderr.startswith(f"{model}: error: ")


# ---- made from the option table ---------------------------------------------------------------------------------------

def test_autocomplete():
    assert mcc("--autocomplete=--layout=NC").stdout.split() == ["--layout=NCHW", "--layout=NC16c"]
    assert [line.split("\t")[0] for line in mcc("--autocomplete=run,--dum").stdout.splitlines()] == ["--dump="]
    assert mcc("--autocomplete=insp").stdout.startswith("inspect\t")
    for nothing in ("zzz", "out", "run,out", "run,", "run,-i=", "inspect,--march=z"):
        assert mcc(f"--autocomplete={nothing}").stdout == "", nothing           # a file's name, for the shell
    assert set(mcc("--autocomplete=--march=x86-64-v").stdout.split()) >= {f"--march=x86-64-v{n}" for n in (4, 3, 2)}
    assert mcc("--autocomplete=compile,-march=nat").stdout.split() == ["--march=native"]
    assert mcc("--autocomplete=--target=aa").stdout.split() == ["--target=aarch64-linux", "--target=aarch64-android", "--target=aarch64-windows",
                                                               "--target=aarch64-macos", "--target=aarch64-ios"]
    assert mcc("--autocomplete=-stop-after=sch").stdout.split() == ["--stop-after=schedule"]
    assert "--variants=all" in mcc("--autocomplete=--variants=").stdout.split()


def test_bash_completion(tmp_path):
    script = tmp_path / "mcc.bash"
    script.write_text(mcc("--generate=bash").stdout)
    run = f'source {script}; compopt() {{ :; }}; COMP_WORDS=({MCC} --layo); COMP_CWORD=1; COMP_LINE="{MCC} --layo"; COMP_POINT=${{#COMP_LINE}}; ' \
          '_mcc; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", run], capture_output=True, text=True)
    assert done.stdout.split() == ["--layout="], done.stderr
    for shell in ("zsh", "fish"):
        assert "--autocomplete=" in mcc(f"--generate={shell}").stdout


SHELLS = {      # what starts it, what it reads first, the key for the end of the line
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source ./mcc.bash; "),
    "zsh": (["zsh", "-f", "-i"], "PROMPT='> '; fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; bindkey -e; "
            "unsetopt list_ambiguous auto_list; "),
    "fish": (["fish", "--no-config", "-i"], "function fish_prompt; echo '> '; end; set -g fish_autosuggestion_enabled 0; source ./mcc.fish; "),
}


def typed(folder, line, shell="bash"):
    """What a real shell makes of the line and a tab, through a pseudo-terminal: it prints the line when return is typed."""
    start, first = SHELLS[shell]
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(start[0], start, dict(os.environ, PS1="> ", TERM="dumb" if shell == "bash" else "vt100", HISTFILE="/dev/null", INPUTRC="/dev/null",
                                         HOME=str(folder), LC_ALL="C.UTF-8", fish_history="", PATH=f"{pathlib.Path(MCC).parent}:{os.environ['PATH']}"))
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))

    def until(word, rest=20):
        said, deadline = "", time.monotonic() + rest
        try:
            while not re.search(word, said, re.S) and time.monotonic() < deadline:
                if select.select([fd], [], [], 0.2)[0]:
                    said += os.read(fd, 4096).decode(errors="replace")
        except OSError:        # the other end is closed
            pass
        return said
    until("> ", 5)
    os.write(fd, first.encode() + b"echo be''gun\n")
    until("begun.*> ")
    os.write(fd, line.encode() + b"\t")
    if shell != "bash":
        until("$^", 2)            # they answer in their own time, and drop keys that come meanwhile
    os.write(fd, b"\x01echo '[''[' \x05 ']'']'; exit\n")       # at the line's begin, and at its end
    said = until(r"\[\[ .*\]\]")
    os.kill(pid, signal.SIGKILL)      # a shell may ask what it misses of a terminal, and wait
    os.close(fd)
    os.waitpid(pid, 0)
    return re.findall(r"\[\[ (.*?) *\]\]", said)[-1]


LINES = [("mcc run out", "mcc run output.so"), ("mcc out", "mcc output.so"), ("mcc run --laz", "mcc run --laz"), ("mcc --layo", "mcc --layout="),
         ("mcc --layout=NC1", "mcc --layout=NC16c"), ("mcc net.onnx --march=nat", "mcc net.onnx --march=native"), ("mcc insp", "mcc inspect"),
         ("mcc -o n.so --target=riscv6", "mcc -o n.so --target=riscv64-linux"),
         ("mcc run digits.so -i pi", "mcc run digits.so -i picture="), ("mcc run digits.so -i picture=val", "mcc run digits.so -i picture=value.npy"),
         ("mcc eval digits.onnx -i pi", "mcc eval digits.onnx -i picture="), ("mcc run digits.so --dump pro", "mcc run digits.so --dump probability")]


@needs_terminal
@pytest.mark.parametrize("shell,line,whole", [("bash", *pair) for pair in LINES] + [(shell, *pair) for shell in ("zsh", "fish") for pair in LINES[1::2]])
def test_shells_complete_what_is_typed(tmp_path, digits, shell, line, whole):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    for name, file in ("bash", "mcc.bash"), ("zsh", "_mcc"), ("fish", "mcc.fish"):
        (tmp_path / file).write_text(mcc(f"--generate={name}").stdout)
    for name in "output.so", "value.npy":
        (tmp_path / name).write_text("")
    shutil.copy(digits, tmp_path / "digits.so")
    shutil.copy(DIGITS, tmp_path / "digits.onnx")
    assert typed(tmp_path, line, shell) == whole


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path = tmp_path_factory.mktemp("completed") / "digits.so"
    assert mcc(DIGITS, "-o", path).returncode == 0
    return path


def test_ports_complete(digits):
    def said(request, *words):
        return [line.split("\t")[0] for line in mcc(f"--autocomplete={request}", "--", *words).stdout.splitlines()]
    assert said("run,", "run", digits, "-i") == said("run,pict", "run", digits, "--feed") == ["picture="]
    assert said("run,--feed=", "run", digits) == ["--feed=picture="]
    assert said("bench,", "bench", digits, "--dim") == ["n="]
    assert said("compile,pi", "compile", DIGITS, "--input") == ["picture"]
    for nothing in (["run,x", digits, "-i"], ["run,picture=f", digits, "-i"], ["run,", "run", digits], ["run,", "nosuch.so", "-i"], ["run,", __file__, "-i"]):
        assert said(*nothing) == []


def test_manual_pages():
    options = set(re.findall(r"^- `([^`]*)`", mcc("--reference").stdout, re.M))
    assert len(options) > 100
    page = mcc("--generate=mcc.1").stdout.replace("\\-", "-").replace("\\e", "\\")
    for option in options:
        assert option in page, option
    assert "max\\-constant\\-growth" in mcc("--generate=mcc.yaml.5").stdout
    assert mcc("--generate=nosuch").returncode == 2


def test_manual_page_begins_with_examples():
    page = mcc("--generate=mcc.1").stdout
    heads = re.findall(r"^\.SH (.*)", page, re.M)
    assert heads[:3] == ["NAME", "SYNOPSIS", "EXAMPLES"] and page.index(".SH OPTIONS") < page.index(".SS What is written") < page.index(".SS Limits")
    for option in (r"\-\-layout=", r"\-\-tolerance="):
        assert page.count(option) == 1, "each option stands once, with the commands that take it"


def test_examples_of_help_run(tmp_path):
    """Every example that --help of a command shows, in the order of the manual page, in one folder."""
    save(tmp_path / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
         [value("x", ["n", 3])], [value("y", ["n", 3])], {"w": np.arange(9, dtype=np.float32).reshape(3, 3)})
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    (tmp_path / "fails.sh").write_text(f'#!/bin/sh\nexec {MCC} check -q "$1"\n')
    (tmp_path / "fails.sh").chmod(0o755)
    page = mcc("--generate=mcc.1").stdout.replace("\\-", "-")
    commands = re.findall(r"^\.TP\n\\fB(mcc .*)\\fR$", page.split(".SH DESCRIPTION")[0], re.M)
    assert len(commands) >= 14
    helps = "".join(mcc("help", name).stdout for name in ("compile", "check", "run", "bench", "inspect", "report", "verify", "prove", "diff",
                                                        "quantize", "reduce", "eval"))
    env = dict(os.environ, MCC_CACHE=str(tmp_path / "cache"), PATH=f"{pathlib.Path(MCC).resolve().parent}:{os.environ['PATH']}")
    for command in commands:
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, env=env)
        assert done.returncode == 0 and f"\n  {command}" in helps, (command, done.stderr)
    assert {"net.so", "net.o", "net.h", "arm.so", "net.dot", "run.json", "small.onnx", "results", "int8.onnx",
            "int8.so", "net.html"} <= {p.name for p in tmp_path.iterdir()}


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
def test_manual_page_has_no_warnings():
    done = subprocess.run(["man", "--warnings", "-l", "-"], input=mcc("--generate=mcc.1").stdout, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr

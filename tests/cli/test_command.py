"""The command: exit codes, where words go, outputs that appear whole or not at all, dependency files, byte-equality."""
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support import elf
from support.tool import DIGITS, MCC, ROOT, dense, mcc, result, save, value


@pytest.fixture
def model(tmp_path):
    return dense(tmp_path / "net.onnx")


def leftovers(folder):
    return sorted(p.name for p in folder.iterdir() if "tmp" in p.name or p.name.startswith(".mcc"))


# ---- plain use -----------------------------------------------------------------------------------------------

def test_compile_writes_the_output(model, tmp_path):
    done = mcc(model, "-o", tmp_path / "net.so")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "net.so").stat().st_size > 0
    assert not leftovers(tmp_path)


def test_default_output_is_named_after_the_model(model, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    assert mcc(model, cwd=folder).returncode == 0
    assert [p.name for p in folder.iterdir()] == ["net.so"]


@pytest.mark.parametrize("target", ["x86_64", "aarch64", "riscv64"])
def test_sober_elf_files(model, tmp_path, target):
    assert mcc(model, f"--target={target}", "-o", tmp_path / "net.so").returncode == 0
    assert elf.flaws(tmp_path / "net.so") == []


def test_flaws_of_an_elf_file_are_seen(tmp_path):
    (tmp_path / "x.c").write_text("#include <stdio.h>\n_Thread_local int t;\n"
                                  "__attribute__((constructor)) void first(void) { puts(\"\"); t = 1; }\n")
    how = ["-shared", "-fPIC", "-nostartfiles", "-z", "execstack", "-z", "norelro", "-z", "lazy", "-lm", "-Wl,--no-as-needed"]
    subprocess.run(["gcc", tmp_path / "x.c", "-o", tmp_path / "x.so", *how], check=True)
    found = " ".join(elf.flaws(tmp_path / "x.so"))
    for part in ("stack", "stays writable", "thread-local", "runs when", "exports ['first', 't']", "versions", "('puts@GLIBC"):
        assert part in found, (part, found)


def test_the_loader_takes_what_old_libcs_have(tmp_path):
    """No call of mcc_load.c is younger than glibc 2.17, by the versions of the libc of this machine: since 2.33 and 2.34 some have
    moved into libc.so.6 or lost their macro, under an older name's new version."""
    moved = {"dlopen", "dlsym", "dlclose", "dlerror", "stat", "fstat"}
    (tmp_path / "main.c").write_text(
        '#include "mcc_load.h"\nint main(int n, char **v) { mcc_lib *lib; mcc_error e; return mcc_load(v[n - 1], NULL, &lib, &e); }\n')
    include = [f"-I{ROOT / 'runtime'}", f"-I{os.path.dirname(MCC)}/include"]
    subprocess.run(["gcc", "-O2", *include, tmp_path / "main.c", ROOT / "runtime/mcc_load.c", "-o", tmp_path / "a", "-ldl"], check=True)
    names = subprocess.run(["readelf", "--dyn-syms", "-W", tmp_path / "a"], capture_output=True, text=True).stdout
    taken = {(name, (int(major), int(minor))) for name, major, minor in re.findall(r" UND (\w+)@GLIBC_(\d+)\.(\d+)", names)}
    assert {name for name, _ in taken} >= {"dlopen", "pread", "realpath"}, names
    assert {name for name, version in taken if version > (2, 17)} <= moved | {"__libc_start_main"}, taken


def test_static_links_take_threads(model, tmp_path):
    """In an object these references are strong: a weak one takes nothing out of libc.a."""
    assert mcc(model, "-c", "-o", tmp_path / "net.o").returncode == 0
    names = subprocess.run(["nm", "-u", tmp_path / "net.o"], capture_output=True, text=True).stdout
    assert re.search(r"^ +U pthread_create$", names, re.M) and re.search(r"^ +U pthread_join$", names, re.M), names
    main = tmp_path / "main.c"
    main.write_text('#include "mcc.h"\nint main(void) { return !mcc_query(1); }\n')
    for how in (["-static"], ["-pie", "-fPIE"], ["-no-pie"]):
        subprocess.run(["gcc", *how, "-Wl,--fatal-warnings", f"-I{ROOT}/runtime", main, tmp_path / "net.o", "-o", tmp_path / "main"], check=True)
        subprocess.run([tmp_path / "main"], check=True)


def test_prefix_renames_the_symbol(model, tmp_path):
    assert mcc(model, "--prefix=foo", "-o", tmp_path / "net.so").returncode == 0
    assert elf.flaws(tmp_path / "net.so", prefix="foo_") == []


@pytest.mark.parametrize("flag,suffix,head", [("-S", "s", "\t.text"), ("-emit-llvm", "ll", "; ModuleID"), ("-c", "o", "\x7fELF")])
def test_other_outputs(model, tmp_path, flag, suffix, head):
    done = mcc(flag, model, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert head in (tmp_path / f"net.{suffix}").read_bytes().decode("latin1")[:400]


def test_same_bytes_whatever_jobs_and_folder(tmp_path):
    texts = []
    for name, jobs, *more in (("a", 1), ("other", 2), ("late", 2, "-verify-each")):    # codegen only behind schedule
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(DIGITS, folder / "m.onnx")
        env = dict(os.environ, TZ="Asia/Tokyo" if jobs == 2 else "UTC", LANG="C")
        assert mcc("m.onnx", "-j", jobs, "-o", "m.so", *more, cwd=folder, env=env).returncode == 0
        texts.append((folder / "m.so").read_bytes())
    assert texts[0] == texts[1] == texts[2]


def test_version_help_and_lists():
    assert re.fullmatch(r"mcc \d+\.\d+\.\d+\n", mcc("--version").stdout)
    for command in ("compile", "check", "run", "bench", "inspect", "eval"):
        done = mcc(command, "--help")
        assert done.returncode == 0 and done.stdout.startswith("usage: mcc") and not done.stderr
    assert "legalize" in mcc("--list-stages").stdout.split()
    targets = mcc("-mcpu=help").stdout
    assert all(name in targets for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4-bf16", "armv8.6-a-i8mm", "rv64gcv")), targets
    operators = mcc("--list-ops").stdout
    assert "Conv" in operators and "Softmax" in operators
    head, *rows = mcc("--list-ops=aten").stdout.splitlines()
    assert head in operators and len(rows) > 320 and all(row.startswith("aten ") and row in operators for row in rows)
    done = mcc("--list-ops=nowhere")
    assert done.returncode == 2 and "no operators of domain 'nowhere'" in done.stderr


def test_dry_run_writes_nothing(model, tmp_path):
    done = mcc("-###", model, "-o", tmp_path / "net.so")
    assert done.returncode == 0 and "import" in done.stdout and not (tmp_path / "net.so").exists()


def test_stages_print(model):
    done = mcc("-stop-after=legalize", model)
    assert done.returncode == 0 and " = dot(" in done.stdout
    assert "digraph" in mcc("-stop-after=import", "--dot", model).stdout
    done = mcc("check", "-print-after=import", "--time-passes", model)
    assert "MatMul" in done.stderr and "legalize" in done.stderr and "total" in done.stderr


def test_stats_census_equals_the_file():
    done = mcc("check", "--stats", DIGITS)
    nodes = onnx.load(DIGITS).graph.node
    imported = done.stdout.split("legal:")[0]
    counted = dict((m[2], int(m[1])) for m in re.finditer(r"^\s+(\d+) (\w+)$", imported, re.M))
    assert counted == {op: sum(n.op_type == op for n in nodes) for op in {n.op_type for n in nodes}}


def test_check_makes_nothing(model, tmp_path):
    before = sorted(tmp_path.iterdir())
    done = mcc("check", model, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == f"{model}: supported\n"
    assert sorted(tmp_path.iterdir()) == before


def test_check_finds_what_stages_behind_the_graph_refuse(tmp_path):
    """Three tensors of 8 GiB at a time. No code is made."""
    n = 1 << 16
    nodes = [helper.make_node("CumSum", ["x", axis], [y], reverse=r) for y, axis, r in (("a", "zero", 0), ("b", "one", 0), ("c", "zero", 1))]
    nodes += [helper.make_node("Sum", ["a", "b", "c"], ["s"]), helper.make_node("ReduceMax", ["s"], ["y"])]
    large = save(tmp_path / "large.onnx", nodes, [value("x", [n, n // 2])], [value("y", [1, 1])], {"zero": np.array(0), "one": np.array(1)})
    done = mcc("check", large)
    assert done.returncode == 4 and "--limit-arena-bytes" in done.stderr, done.stderr
    assert mcc(large, "-o", tmp_path / "large.so").returncode == 4                 # which asks check, too
    assert mcc("check", large, "--limit-arena-bytes=64G").returncode == 0
    stages = mcc("check", DIGITS, "--time-passes").stderr
    assert "emit" in stages and "codegen" not in stages


def test_checks_of_large_networks_end_with_the_graph(tmp_path):
    n = 50001
    nodes = [helper.make_node("Neg" if i % 2 else "Exp", [f"v{i}"], [f"v{i + 1}"]) for i in range(n)]
    path = save(tmp_path / "net.onnx", nodes, [value("v0", [4])], [value(f"v{n}", [4])])
    done = mcc("check", path, "--time-passes")
    assert done.returncode == 0 and "settle-constants" in done.stderr and "emit" not in done.stderr, done.stderr


def test_check_names_everything_unsupported(tmp_path):
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Nosuch", ["a"], ["b"], "one", domain="my.dom"),
             helper.make_node("Nosuch", ["b"], ["c"], "two", domain="my.dom"),
             helper.make_node("Other", ["c"], ["y"], "three", domain="my.dom")]
    graph = helper.make_graph(nodes, "g", [value("x", [2])], [value("y", [2])])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.dom", 3)]), path)
    done = mcc("check", path)
    assert done.returncode == 1 and done.stdout == ""
    for word in ("my.dom.Nosuch-3 x 2 ('one', 'two' of f32[2])", "my.dom.Other-3 x 1 ('three' of unknown type)", "--list-ops", "docs/model-functions.md"):
        assert word in done.stderr
    assert mcc(path, "-o", tmp_path / "m.so").returncode == 1 and not (tmp_path / "m.so").exists()


# ---- usage, configuration ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("args", [[], ["--nosuch"], ["a.onnx", "b.onnx"], ["-O9", "a.onnx"], ["run"], ["--input=:x", DIGITS],
                                  ["-stop-after=nosuch", DIGITS], ["-print-after=nosuch", DIGITS]])
def test_usage_errors_are_2(args, tmp_path):
    done = mcc(*args, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stdout == ""


def test_files_beside_the_output_replace_nothing(model, tmp_path):
    """-MF, --emit=header, -ftime-trace, -save-temps and the record of remarks must not take the place of what was read or written."""
    config = tmp_path / "net.opt.yaml"
    config.write_text("O: 1\n")
    for name in ("net.h", "net.json", "net.01-import.txt"):
        shutil.copy(model, tmp_path / name)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for args in ([model, "-MF", model], [model, "-MF", "net.so"], [model, f"--config={config}", "-fsave-optimization-record"],
                 ["net.h", "--emit=header"], ["net.json", "-ftime-trace"], ["net.01-import.txt", "-save-temps"]):
        done = mcc(*args, "-o", "net.so", cwd=tmp_path)
        assert done.returncode == 2 and ("already" in done.stderr or "is the " in done.stderr), (args, done)
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.name in before} == before, args


def test_wrong_words(model, tmp_path):
    assert mcc(model, "-o", tmp_path / "net.so").returncode == 0
    for word, *args in (("letters", model, "--prefix=1x"), ("letters", model, "--prefix=a-b"), ("features", model, "-mattr=avx2"),
                        ("features", model, "-mattr=+avx2,-"), ("standard output", model, "-o", "-"), ("name", "-"), ("name", ""),
                        ("NAME=FILE", "run", "net.so", "-i", "x"), ("NAME=N", "run", "net.so", "-i", "x=random", "--dim=n"),
                        ("no symbolic", "run", "net.so", "-i", "x=random", "--dim=m=3"), ("seed", "run", "net.so", "-i", "x=random:2x"),
                        ("no symbolic", "eval", model, "-i", "x=random", "--dim=m=3"), ("seed", "eval", model, "-i", "x=random:")):
        done = mcc(*args, cwd=tmp_path)
        assert done.returncode == 2 and word in done.stderr and done.stderr.count("\n") == 1, (args, done)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx", "net.so"]
    assert "no CPU variant 9, only 3" in mcc("bench", "net.so", "--variant=9", cwd=tmp_path).stderr


def test_input_specification(model, tmp_path):
    assert mcc(model, "--input=x:f32[n=1..7,4]", "-o", tmp_path / "a.so").returncode == 0
    text = mcc("inspect", tmp_path / "a.so").stdout
    assert "input    x: f32[n,4]" in text and "symbol   n: 1..7" in text
    assert mcc(model, "--input=x:f32[2,4]", "-o", tmp_path / "b.so").returncode == 0
    assert "input    x: f32[2,4]" in mcc("inspect", tmp_path / "b.so").stdout
    for bad in ("nosuch:f32[1]", "x:f32[n]", "x:f32[n,5]", "x:i64[n,4]"):
        done = mcc(model, f"--input={bad}", "-o", tmp_path / "c.so")
        assert done.returncode in (1, 2) and done.stderr, bad
    assert not (tmp_path / "c.so").exists()


@pytest.mark.parametrize("dims, where, name", [("2*n", 0, "n"), ("n+1", 0, "n"), ("m,n*k", 1, "k"), ("2*n,3*n", 0, "n")])
def test_sizes_that_no_run_can_know(tmp_path, dims, where, name):
    """A dimension that is computed needs its names as dimensions of inputs; it was an internal error."""
    path = save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], [value("x", [None] * len(dims.split(",")))], [value("y", None)])
    for command in ([], ["check"], ["eval", "-i", "x=random"]):
        done = mcc(*command, path, f"--input=x:f32[{dims}]", *(["-o", tmp_path / "m.so"] if not command else []))
        assert done.returncode == 2 and "'x': error: dimension " in done.stderr and "alone, so a run cannot know it" in done.stderr, done.stderr
        assert re.search(rf"dimension {where} is [^,]*, and no dimension of an input is '\w' alone", done.stderr), done.stderr
    two = save(tmp_path / "two.onnx", [helper.make_node("Add", ["x", "z"], ["y"])], [value("x", [None]), value("z", [None])], [value("y", None)])
    for inputs in (["x:f32[2*n]", "z:f32[n]"], ["x:f32[n]", "z:f32[2*n]"]):
        assert mcc("check", two, *(f"--input={i}" for i in inputs)).returncode == 0


def test_configuration_means_the_same(model, tmp_path):
    config = tmp_path / "net.yaml"
    config.write_text("O: 1\ninput:\n  - {name: x, dtype: f32, shape: [n=1..7, 4]}\n")
    assert mcc(model, f"--config={config}", "-o", tmp_path / "a.so").returncode == 0
    assert mcc(model, "-O1", "--input=x:f32[n=1..7,4]", "-o", tmp_path / "b.so").returncode == 0
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()
    printed = mcc("--print-config", f"--config={config}", "-O0").stdout
    assert "O: 0" in printed and "x:f32[n=1..7,4]" in printed


def test_configuration_errors_have_a_place(model, tmp_path):
    config = tmp_path / "net.yaml"
    config.write_text("O: 1\nlayuot: NCHW\n")
    done = mcc(model, "--config", config, "-o", tmp_path / "a.so")
    assert done.returncode == 1 and f"{config}:2:1: error: unknown key 'layuot'; did you mean layout" in done.stderr
    assert not (tmp_path / "a.so").exists()
    assert mcc(model, f"--config={tmp_path}/missing.yaml").returncode == 3


# ---- environment ---------------------------------------------------------------------------------------------------

def test_missing_model_is_3(tmp_path):
    done = mcc(tmp_path / "missing.onnx", cwd=tmp_path)
    assert done.returncode == 3 and "missing.onnx" in done.stderr


@pytest.mark.parametrize("kind", ["folder", "fifo", "device", "no folder", "file as folder"])
def test_bad_output_is_3(model, tmp_path, kind):
    out = tmp_path / "out"
    if kind == "folder":
        out.mkdir()
    elif kind == "fifo":
        os.mkfifo(out)
    else:
        out = {"device": "/dev/null", "no folder": tmp_path / "no/out.so", "file as folder": model / "x.so"}[kind]
    assert mcc(model, "-o", out).returncode == 3


def test_output_that_is_an_input_is_2(model, tmp_path):
    before = model.read_bytes()
    os.symlink(model, tmp_path / "link")
    os.link(model, tmp_path / "hard")
    for name in ("net.onnx", "./net.onnx", "link", "hard"):
        assert mcc(model, "-o", f"{tmp_path}/{name}").returncode == 2, name
    config = tmp_path / "c.yaml"
    config.write_text("O: 1\n")
    assert mcc(model, f"--config={config}", "-o", config).returncode == 2
    assert model.read_bytes() == before and config.read_text() == "O: 1\n"


def test_output_that_is_a_weight_file_is_2(tmp_path):
    path = dense(tmp_path / "e.onnx", save_as_external_data=True, location="e.weights", size_threshold=0)
    before = (tmp_path / "e.weights").read_bytes()
    assert mcc(path, "-o", tmp_path / "e.weights").returncode == 2
    assert (tmp_path / "e.weights").read_bytes() == before


@pytest.mark.parametrize("name", ["@x", "-x", "a b", "new\nline", "a;b", "'q\"", "ü", b"\xff\xfe.so"])
def test_odd_output_names(model, tmp_path, name):
    done = subprocess.run([MCC, model, "-o", name], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert os.path.getsize(os.path.join(os.fsencode(tmp_path), os.fsencode(name))) > 0


def test_failed_write_keeps_the_old_output(model, tmp_path):
    out = tmp_path / "net.so"
    out.write_bytes(b"old")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    done = mcc(model, "-o", out, preexec_fn=limit)
    assert done.returncode == 3, done.stderr
    assert out.read_bytes() == b"old" and not leftovers(tmp_path)


def test_mode_follows_umask(model, tmp_path):
    for mask, mode in ((0o022, 0o644), (0o077, 0o600), (0o777, 0)):
        out = tmp_path / f"{mask}.so"
        assert mcc(model, "-o", out, preexec_fn=lambda m=mask: os.umask(m)).returncode == 0
        assert stat.S_IMODE(out.stat().st_mode) == mode


def test_closed_descriptors_and_hostile_environment(model, tmp_path):
    env = {"PATH": "/nonexistent", "TMPDIR": "/nonexistent", "LANG": "xx", "LDEMULATION": "elf_i386", "TZ": "????"}
    assert mcc(model, "-o", tmp_path / "a.so").returncode == 0
    done = subprocess.run(["/bin/sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', MCC, model, "-o", tmp_path / "b.so"], env=env)
    assert done.returncode == 0
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()


def test_workers_inherit_nothing(model, tmp_path):
    """Their environment is built: variables that LLVM or lld would follow have no effect, nor are descriptors of the host's there."""
    log, worker, trap = tmp_path / "log", tmp_path / "worker", tmp_path / "repro.tar"
    worker.write_text(f'#!/bin/sh\n/usr/bin/env >"{log}"\nls -l /proc/$$/fd >>"{log}"\nexec "{MCC}" "$@"\n')
    worker.chmod(0o700)
    hostile = {"LLD_REPRODUCE": str(trap), "LLD_VERSION": "x", "LLVM_OVERRIDE_PRODUCER": "x", "AS_SECURE_LOG_FILE": str(trap), "LANG": "tr_TR.UTF-8",
               "HOME": str(tmp_path), "MCC_MINE": "kept"}
    assert mcc(model, "-o", tmp_path / "a.so").returncode == 0
    with open(tmp_path / "mine", "w") as mine:
        done = mcc(model, "-o", tmp_path / "b.so", f"--worker={worker}", "-j1", "--no-cache", env=dict(os.environ, **hostile), pass_fds=[mine.fileno()])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes() and not trap.exists()
    names = {line.split("=")[0] for line in log.read_text().splitlines() if "=" in line}
    assert {"LC_ALL", "MCC_MINE"} <= names and not (names & set(hostile)) - {"MCC_MINE"}, names
    assert str(tmp_path / "mine") not in log.read_text()


def test_standard_output_that_takes_nothing_is_3(model, tmp_path):
    """Whatever prints something says that it could not: every command, its help, a compiled network and JSON."""
    assert mcc(model, "-o", tmp_path / "net.so").returncode == 0
    np.save(tmp_path / "x.npy", np.zeros((2, 4), np.float32))
    so, feed = tmp_path / "net.so", ["-i", f"x={tmp_path / 'x.npy'}"]
    commands = ["compile", "check", "run", "bench", "inspect", "report", "verify", "prove", "diff", "quantize", "reduce", "eval"]
    listed = mcc("--help").stdout.partition("Other commands")[2].partition("Options:")[0]
    assert re.findall(r"^  (\w+) ", listed, re.M) == commands[1:]
    calls = [[c, "--help"] for c in commands] + [["--help"], ["--version"], ["--list-ops"], ["--reference"], ["--generate=mcc.1"], ["-march=help"],
             ["--print-config"], ["check", model], ["check", model, "--json"], [model, "--stop-after=schedule", "-o", "-"], [model, "--stats", "-o", so],
             ["run", so, *feed], ["run", model, *feed], ["run", so, *feed, "--json"], ["eval", model, *feed],
             ["bench", so, "--runs=1"], ["bench", so, "--runs=1", "--json"], ["inspect", so],
             ["inspect", so, "--json"], ["inspect", model, "-o", "-"], ["diff", model], ["verify", so, model], ["prove", model, "--march=native"],
             ["prove", model, "--march=native", "--json"], ["inspect", so, "--sbom=spdx"], ["report", so, "--no-run", "--json", "-o",
             tmp_path / "r.html"]]
    for call in calls:
        words = [MCC, *map(str, call)]
        assert subprocess.run(words, capture_output=True, timeout=120).stdout, call
        with open("/dev/full", "w") as full:
            ends = [subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120),
                    subprocess.run(["/bin/sh", "-c", 'exec "$0" "$@" >&-', *words], stderr=subprocess.PIPE, text=True, timeout=120)]
        for done, why in zip(ends, ("No space left", "Bad file descriptor")):
            assert done.returncode == 3 and f"cannot write to standard output: {why}" in done.stderr, (call, done)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_nothing(tmp_path, number):
    """Killed at many moments, the command dies of that signal or was done already; the old output or a whole new one."""
    out = tmp_path / "net.so"
    assert mcc(DIGITS, "-o", out).returncode == 0
    whole = out.read_bytes()
    died = 0
    for delay in np.linspace(0.002, 0.2, 12):
        out.write_bytes(b"old")
        process = subprocess.Popen([MCC, DIGITS, "-o", out], stderr=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
        time.sleep(delay)
        process.send_signal(number)
        status = process.wait(timeout=60)
        assert status in (0, -number)
        died += status != 0
        assert out.read_bytes() in (b"old", whole)
        assert not leftovers(tmp_path)
    assert died


def test_ignored_signals_stay_ignored(tmp_path):
    """As under nohup, or in the background of a script; the tests themselves may run so."""
    process = subprocess.Popen([MCC, DIGITS, "-o", tmp_path / "net.so"], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0 and (tmp_path / "net.so").exists()


def test_limits_are_4(model, tmp_path):
    done = mcc(model, "--limit-compile-heap=40K", "-o", tmp_path / "a.so")
    assert done.returncode == 4 and done.stderr.count("\n") == 1
    done = mcc(model, "--max-output-size=1K", "-o", tmp_path / "a.so")
    assert done.returncode == 4 and not (tmp_path / "a.so").exists()
    assert not leftovers(tmp_path)


def test_growing_constants_are_named(tmp_path):
    """Two vectors whose quotients are a matrix: 2 KiB of weights become 256 KiB."""
    row = np.arange(1, 257, dtype=np.float32)
    path = save(tmp_path / "m.onnx", [helper.make_node("Div", ["r", "c"], ["t"], "table"), helper.make_node("MatMul", ["x", "t"], ["y"])],
                [value("x", [1, 256])], [value("y", [1, 256])], {"r": row[None], "c": row[:, None]})
    done = mcc(path, "--max-constant-growth=2", "-o", tmp_path / "a.so")
    assert done.returncode == 4 and "table" in done.stderr and "times" in done.stderr
    assert not (tmp_path / "a.so").exists()
    done = mcc(path, "--stats", "-o", tmp_path / "a.so")
    assert done.returncode == 0 and "[-Wconstant-growth]" in done.stderr and "constants: 2048 bytes in the file" in done.stdout


@pytest.mark.parametrize("elem,file_bytes", [(TensorProto.INT4, 32768), (TensorProto.UINT4, 32768), (TensorProto.INT8, 65536)])
def test_constants_count_as_wide_as_they_are(elem, file_bytes, tmp_path):
    """256 x 256 elements, and a scale of 4 bytes."""
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["f"], "widen"), helper.make_node("MatMul", ["x", "f"], ["y"], "product")]
    packed = np.arange(256 * 256 if elem == TensorProto.INT8 else 256 * 128, dtype=np.uint8).tobytes()
    graph = helper.make_graph(nodes, "g", [value("x", [1, 256])], [value("y", [1, 256])],
                              [helper.make_tensor("w", elem, [256, 256], packed, raw=True), numpy_helper.from_array(np.float32(0.1), "s")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    assert result("inspect", tmp_path / "m.onnx")["constants_in_file"] == file_bytes + 4


def test_the_reader_of_a_grown_constant_is_named(tmp_path):
    """An initializer has no node: the convolution whose weights are padded to panels is named."""
    weights = np.random.default_rng(0).standard_normal((17, 512, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Relu", ["x"], ["r"], "before"), helper.make_node("Conv", ["r", "w"], ["y"], "conv1", pads=[1] * 4)]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [1, 512, 7, 7])], [value("y", [1, 17, 7, 7])], {"w": weights})
    done = mcc(path, "--max-constant-growth=1.2", "-o", tmp_path / "a.so")
    assert done.returncode == 4 and "node 'conv1' (Conv-11): error: the constants grow from 313344 to 589824 bytes (1.88 times)" in done.stderr


def test_constants_of_nodes_do_not_count_as_grown(tmp_path):
    table = np.arange(256 * 256, dtype=np.float32).reshape(256, 256)
    nodes = [helper.make_node("Constant", [], ["t"], value=numpy_helper.from_array(table)), helper.make_node("MatMul", ["x", "t"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [1, 256])], [value("y", [1, 256])])
    done = mcc(path, "--stats", "-o", tmp_path / "a.so")
    assert done.returncode == 0 and "constant-growth" not in done.stderr and f"constants: {table.nbytes} bytes in the file" in done.stdout


# ---- dependency files -------------------------------------------------------------------------------------------------

def test_dependency_file(tmp_path):
    dense(tmp_path / "e.onnx", save_as_external_data=True, location="the weights", size_threshold=0)
    (tmp_path / "c.yaml").write_text("O: 1\n")
    assert mcc("e.onnx", "-MD", "-MP", "--config=c.yaml", "-o", "out/e.so", cwd=tmp_path).returncode == 3
    (tmp_path / "out").mkdir()
    assert mcc("e.onnx", "-MD", "-MP", "--config=c.yaml", "-o", "out/e.so", cwd=tmp_path).returncode == 0
    rules = (tmp_path / "out/e.d").read_text().replace("\\\n", "")
    first = rules.splitlines()[0]
    assert first.split(":")[0] == "out/e.so"
    assert set(re.split(r"(?<!\\) +", first.split(":", 1)[1].strip())) == {"e.onnx", "the\\ weights", "c.yaml"}
    assert "c.yaml:" in rules.splitlines() and "the\\ weights:" in rules.splitlines()
    assert mcc("e.onnx", "-MF", "named.mk", "-o", "e.so", cwd=tmp_path).returncode == 0
    assert (tmp_path / "named.mk").exists()


def test_response_file(model, tmp_path):
    (tmp_path / "args").write_text(f"-o 'a b.so'\n-O1 \"{model}\"")
    assert mcc("@args", cwd=tmp_path).returncode == 0
    assert (tmp_path / "a b.so").exists()


# ---- running ---------------------------------------------------------------------------------------------------------------

def test_run_eval_and_numpy_agree(model, tmp_path):
    assert mcc(model, "-o", tmp_path / "net.so").returncode == 0
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer}
    want = np.maximum(x @ tensors["w"] + tensors["b"], 0)
    for command, file in (("run", tmp_path / "net.so"), ("eval", model)):
        done = mcc(command, file, "-i", f"x={tmp_path}/x.npy", "-o", tmp_path / command)
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(np.load(tmp_path / command / "y.npy"), want, rtol=1e-5, atol=1e-6)


def test_run_formats(model, tmp_path):
    assert mcc(model, "-o", tmp_path / "net.so").returncode == 0
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    (tmp_path / "x.pb").write_bytes(onnx.numpy_helper.from_array(x, "other").SerializeToString())
    np.save(tmp_path / "x.npy", x)
    results = []
    for file, more in (("x.bin", ["--dim", "n=2"]), ("x.pb", []), ("x.npy", [])):
        for form in ("npy", "pb", "raw"):
            folder = tmp_path / f"{file}-{form}"
            done = mcc("run", tmp_path / "net.so", "-i", f"x={tmp_path / file}", *more, f"--format={form}", "-o", folder)
            assert done.returncode == 0, done.stderr
            data = (folder / f"y.{form}").read_bytes()
            if form == "npy":
                results.append(np.load(folder / "y.npy"))
            elif form == "pb":
                results.append(onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data)))
            else:
                results.append(np.frombuffer(data, np.float32).reshape(2, 3))
    assert all((r == results[0]).all() and r.shape == (2, 3) for r in results)


def test_run_refuses_wrong_feeds(model, tmp_path):
    assert mcc(model, "-o", tmp_path / "net.so").returncode == 0
    np.save(tmp_path / "bad.npy", np.zeros((2, 5), np.float32))
    np.save(tmp_path / "int.npy", np.zeros((2, 4), np.int64))
    (tmp_path / "short.npy").write_bytes((tmp_path / "bad.npy").read_bytes()[:60])
    for feed, code in (("x=bad.npy", 1), ("x=int.npy", 1), ("x=short.npy", 3), ("x=none.npy", 3), ("z=bad.npy", 2), ("x", 2)):
        done = mcc("run", "net.so", "-i", feed, cwd=tmp_path)
        assert done.returncode == code and done.stderr, feed
    assert mcc("run", "net.so", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("command", [["run", "-i", "x=random"], ["bench"], ["diff"]])
@pytest.mark.parametrize("target", ["aarch64-linux", "riscv64", "x86_64-windows", "x86_64-android"])
def test_foreign_code_is_refused_before_it_is_made(model, tmp_path, command, target):
    """It was compiled first, and then a temporary file had no name that anybody knew."""
    done = mcc(*command, model, f"--target={target}", env=dict(os.environ, TMPDIR=str(tmp_path / "nosuch")))
    assert done.returncode == 2 and re.search(rf"error: 'target': this machine \(x86_64-linux\) cannot run code for {target.split('-')[0]}-", done.stderr)
    assert f"--target={target} -o FILE" in done.stderr, done.stderr
    (tmp_path / "c.yaml").write_text(f"target: {target}\n")
    assert "cannot run code" in mcc(*command, model, f"--config={tmp_path}/c.yaml").stderr
    assert mcc("report", model, "--target=aarch64-linux", "-o", tmp_path / "r.html").returncode == 0


def test_run_refuses_what_is_no_artifact(model, tmp_path):
    shutil.copy(model, tmp_path / "net.so")
    for command in ("run", "bench", "inspect"):
        assert mcc(command, tmp_path / "net.so").returncode == 3
        assert mcc(command, tmp_path / "none.so").returncode == 3


def test_bench_and_inspect(model, tmp_path):
    assert mcc(model, "-o", tmp_path / "net.so").returncode == 0
    done = mcc("bench", tmp_path / "net.so", "--runs=20", "--dim=n=3")
    assert done.returncode == 0 and "median" in done.stdout and "p90" in done.stdout and "all kernels" in done.stdout
    done = mcc("inspect", tmp_path / "net.so", "--dim=n=3", "--verify")
    assert done.returncode == 0 and "n=3" in done.stdout and "weights" in done.stdout and "verified" in done.stdout


def test_bench_says_which_thread_ran_what(tmp_path):
    w = np.ones((64, 64, 1, 1), np.float32)
    path = save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"], "big")], [value("x", [1, 64, 56, 56])], [value("y", [None] * 4)], {"w": w})
    assert mcc(path, "-o", tmp_path / "net.so").returncode == 0
    done = mcc("bench", tmp_path / "net.so", "-t", "2", "--runs=5", f"--trace={tmp_path / 'run.json'}")
    assert done.returncode == 0, done.stderr
    assert "waits" in done.stdout and "lost: a thread without work, of 2" in done.stdout
    parts = [e for e in json.loads((tmp_path / "run.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert len(parts) >= 2 and {e["name"] for e in parts} == {"big"} and {e["tid"] for e in parts} <= {0, 1}
    for thread in (0, 1):   # a thread does one thing at a time
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in parts if e["tid"] == thread)
        assert all(a[1] <= b[0] + 0.01 for a, b in zip(mine, mine[1:]))
    alone = mcc("bench", tmp_path / "net.so", "-t", "1", "--runs=5")
    assert alone.returncode == 0 and "waits" not in alone.stdout
    assert mcc("bench", tmp_path / "net.so", f"--trace={tmp_path / 'net.so'}").returncode == 2


def test_inspect_says_what_limits_threads(tmp_path):
    """Against what the kernels can be cut into: the product of one row is too small, the convolution is not."""
    w, v = np.ones((64, 64, 1, 1), np.float32), np.ones((64, 3), np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "big"), helper.make_node("ReduceMean", ["c"], ["m"], "mean", axes=[2, 3], keepdims=0),
             helper.make_node("MatMul", ["m", "v"], ["y"], "small")]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [1, 64, 56, 56])], [value("y", [1, 3])],
                {"w": w, "v": v})
    assert mcc(path, "-o", tmp_path / "net.so").returncode == 0
    done = mcc("inspect", tmp_path / "net.so", "--threads=1,2,8")
    assert done.returncode == 0, done.stderr
    head, total, *rows = done.stdout.splitlines()
    assert head.split()[:5] == ["us", "alone", "1x", "2x", "8x"] and "all kernels" in total
    of = {name: next(r.split() for r in rows if f" {name} " in r) for name in ("big", "small")}
    assert float(of["big"][1]) == 1 and 1.5 < float(of["big"][2]) <= 2 and 2 < float(of["big"][3]) <= 8
    assert [float(x) for x in of["small"][1:4]] == [1, 1, 1]
    alone = sum(float(r.split()[0]) for r in rows)
    assert abs(alone - float(total.split()[0])) < 0.02 * len(rows)
    for bad in ("0", "2,1", "1,", "x"):
        assert mcc("inspect", tmp_path / "net.so", f"--threads={bad}").returncode == 2
    assert mcc("inspect", path, "--threads=2").returncode == 2


def test_metadata_reaches_the_artifact(model, tmp_path):
    proto = onnx.load(model)
    onnx.helper.set_model_props(proto, {"author": "someone", "": "no key", "words": "one\ntwo\nthree", "none": ""})
    onnx.save(proto, tmp_path / "m.onnx")
    assert mcc(tmp_path / "m.onnx", "-o", tmp_path / "net.so").returncode == 0
    text = mcc("inspect", tmp_path / "net.so").stdout
    rows = [line[9:] for line in text.splitlines() if line.startswith("meta")]
    assert rows == ["author: someone", "words: one ... (13 bytes)", "none: "]


def test_eval_dumps_inner_values(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Exp", ["x"], ["mid"]), helper.make_node("Neg", ["mid"], ["y"])],
                [value("x", [3])], [value("y", [3])])
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    done = mcc("eval", path, "-i", "x=x.npy", "--dump=mid", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mid.npy"]
    assert (np.load(tmp_path / "out/mid.npy") == 1).all()


def test_stats_say_where_every_node_went(tmp_path):
    nodes = [helper.make_node("Identity", ["x"], ["i"], "same"), helper.make_node("Constant", [], ["two"], "two", value_float=2.0),
             helper.make_node("Constant", [], ["shape"], "shape", value_ints=[6]), helper.make_node("Mul", ["i", "two"], ["m"], "twice"),
             helper.make_node("Abs", ["m"], ["a"], "abs"), helper.make_node("Exp", ["x"], ["unused"], "unused"),
             helper.make_node("Reshape", ["a", "shape"], ["y"], "flat")]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [2, 3])], [value("y", [6])])
    done = mcc(path, "--stats", "-o", tmp_path / "m.so")
    assert done.returncode == 0 and not done.stderr
    fates = dict(re.findall(r"^node (\w+) \(\w+\): (.*)$", done.stdout, re.M))
    assert set(fates) == {n.name for n in nodes}
    assert re.match(r"kernel k\d", fates["twice"]) and fates["abs"] == fates["twice"]
    assert "no output depends" in fates["unused"] and "vanished" in fates["same"]
    assert all("kernel" not in fates[name] or name in ("twice", "abs", "flat") for name in fates)


def test_stats_name_what_fills_the_workspace(tmp_path):
    """Two live products of 4 x 1000 and 4 x 3000 floats at the widest point of a chain."""
    out = save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "a"], ["p"], "narrow"),
                                     helper.make_node("MatMul", ["p", "b"], ["q"], "wide"),
                                     helper.make_node("MatMul", ["q", "c"], ["y"], "end")],
               [value("x", [4, 8])], [value("y", [4, 2])],
               {"a": np.ones((8, 1000), np.float32), "b": np.eye(1000, 3000, dtype=np.float32), "c": np.ones((3000, 2), np.float32)})
    done = mcc(out, "--stats", "--variants=v3", "-o", tmp_path / "m.so")
    text = done.stdout[done.stdout.index("workspace:"):].splitlines()
    held = [line.split(maxsplit=1) for line in text[1:] if line.startswith(" ")]
    assert "in the kernel of 'wide' (MatMul)" in text[0]
    assert [name for _, name in held] == ["'wide' (MatMul)", "'narrow' (MatMul)"]
    assert int(held[0][0]) >= 48000 and int(held[1][0]) >= 16000
    alive = int(text[0].split("at most ")[1].split()[0])
    assert alive == sum(int(n) for n, _ in held) <= int(text[0].split()[1])

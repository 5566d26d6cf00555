"""What debuggers see of a program that runs a compiled network."""
import platform
import re
import shutil
import subprocess

import numpy as np
import pytest
from onnx import helper

from pt2.writer import Program
from support.tool import DIGITS, ROOT, mcc, result, save, value

gdb_only = pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")

HOST = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mcc_load.h"
int main(int argc, char **argv)
{
    (void)argc;
    mcc_lib *lib;
    mcc_ctx *ctx;
    mcc_error error;
    mcc_host host = { .size = sizeof host, .threads = (unsigned)atoi(argv[2]) };
    if (mcc_load(argv[1], &host, &lib, &error) || lib->api->ctx_new(lib->model, NULL, 0, &ctx, &error))
        return puts(error.text), 1;
    static float x[1 << 20], y[1 << 20];
    DLTensor tensors[2];
    int64_t dims[2][8];
    for (int t = 0; t < 2; t++) {
        const mcc_port *port = t ? lib->api->out : lib->api->in;
        tensors[t] = (DLTensor){ .data = t ? y : x, .device = { kDLCPU, 0 }, .ndim = port->ndim, .dtype = { kDLFloat, 32, 1 }, .shape = dims[t] };
        for (int i = 0; i < port->ndim; i++)
            dims[t][i] = port->dims[i].extent > 0 ? port->dims[i].extent : 1;
    }
    puts("loaded");
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;)
        if (c == '\n' && lib->api->run(ctx, (const DLTensor *const[]){ tensors }, (DLTensor *const[]){ tensors + 1 }, &error))
            return puts(error.text), 1;
    lib->api->ctx_free(ctx);
    mcc_unload(lib);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """(program, network): the program runs the network for each line that it reads."""
    folder = tmp_path_factory.mktemp("debug")
    (folder / "main.c").write_text(HOST)
    subprocess.run(["gcc", "-std=c11", "-g", "-I", ROOT / "runtime", folder / "main.c", ROOT / "runtime/mcc_load.c", "-o", folder / "main",
                    "-ldl"], check=True)
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "/layers.1/wide/MatMul"), helper.make_node("Relu", ["h"], ["r"], "relu"),
             helper.make_node("MatMul", ["r", "v"], ["y"], "narrow")]
    model = save(folder / "net.onnx", nodes, [value("x", [256, 512])], [value("y", [256, 256])],
                 {"w": rng.random((512, 1024), np.float32), "v": rng.random((1024, 256), np.float32)})
    done = mcc(model, "--variants=v2", "-o", folder / "net.so")
    assert done.returncode == 0, done.stderr
    return folder / "main", folder / "net.so"


def functions(net):
    names = subprocess.run(["nm", net], capture_output=True, text=True, check=True).stdout
    return [line.split()[2] for line in names.splitlines() if line.split()[-2] == "t"]


def gdb(*args, commands, timeout=30, **more):
    """gdb's output; -nx: without the user's settings. Descriptors of its own stay open, as in a terminal or under an editor."""
    pairs = [word for command in commands for word in ("-ex", command)]
    done = subprocess.run(["gdb", "-batch", "-nx", "-ex", "set confirm off", "-ex", "set debuginfod enabled off", *pairs, *map(str, args)],
                          capture_output=True, text=True, timeout=timeout, **more)
    return done.stdout + done.stderr


@gdb_only
def test_start(program, tmp_path):
    """gdb opens the library by the name that the loader gave to dlopen, in its own process."""
    main, net = program
    lines = tmp_path / "lines"
    lines.write_text("\n")
    said = gdb(main, commands=["break getchar", f"run {net} 1 <{lines}", "info sharedlibrary", "delete", "continue"], stdin=subprocess.PIPE)
    assert "exited normally" in said, said
    assert any(line.rstrip().endswith("/net.so") and str(net.parent) in line for line in said.splitlines()), said


@gdb_only
def test_attach(program):
    main, net = program
    host = subprocess.Popen([main, net, "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert host.stdout.readline() == "loaded\n"
        host.stdin.write("\n")
        host.stdin.flush()
        said = gdb("-p", host.pid, commands=["info sharedlibrary", "detach"], stdin=subprocess.PIPE)
        if "ptrace: Operation not permitted" in said:
            pytest.skip("attaching is forbidden here")
        assert "/net.so" in said, said
    finally:
        host.stdin.close()
        assert host.wait(20) == 0
        host.stdout.close()


@gdb_only
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the CPU level of the test's network")
def test_backtrace(program, tmp_path):
    """From inside a kernel, which is called as its node is, to main, and from a worker to the thread's beginning."""
    main, net = program
    kernel = next(name for name in functions(net) if name.endswith(".layers.1.wide.MatMul_"))
    assert re.fullmatch(r"k\d+_v2\.layers\.1\.wide\.MatMul_", kernel)
    lines = tmp_path / "lines"
    lines.write_text("\n" * 50)
    said = gdb(main, commands=["break getchar", f"run {net} 2 <{lines}", "delete", f"tbreak '{kernel}' if $_thread == 1", "continue", "bt",
                               f"tbreak '{kernel}' if $_thread == 2", "continue", "bt", "delete", "continue"], stdin=subprocess.PIPE)
    traces = re.findall(r"^#0 .*(?:\n#.*)+", said, re.M)
    callers = [re.findall(r"^#\d+ +(?:0x[0-9a-f]+ in )?(\S+) ?\(", trace, re.M) for trace in traces if kernel in trace.splitlines()[0]]
    assert len(callers) == 2, said
    assert callers[0][-1] == "main" and any("program" in name or name.startswith("main_v") for name in callers[0]), callers
    assert callers[1][-1] in ("clone", "clone3", "__clone3") and "worker_main" in callers[1], callers
    assert "??" not in "".join(traces) and "exited normally" in said, said


@gdb_only
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the CPU level of the test's network")
def test_frames_at_every_instruction(program, tmp_path):
    """Where pushes and pops have happened in part, too: main is found from each instruction of a small function's call."""
    main, net = program
    lines = tmp_path / "lines"
    lines.write_text("\n" * 3)
    said = gdb(main, commands=["break getchar", f"run {net} 1 <{lines}", "delete", "tbreak mcc_rt_launch", "continue",
                               *(["stepi", "bt -1"] * 40), "kill"], stdin=subprocess.PIPE)
    last = re.findall(r"^#\d+ .*", said, re.M)
    assert len(last) >= 40 and all(" main (" in line for line in last[-40:]), said


@pytest.fixture(scope="module")
def lines_of(program):
    """The same network with -g, and the text that its line tables lead into."""
    net = program[1].with_name("g.so")
    done = mcc(net.with_name("net.onnx"), "--variants=v2", "-g", "-o", net)
    assert done.returncode == 0, done.stderr
    return net, net.with_name("g.so.mcir").read_text().splitlines()


def section(net, name):
    target = net.with_suffix(".section")
    subprocess.run(["objcopy", "-O", "binary", "-j", name, net, target], check=True)
    return target.read_bytes()


def test_line_tables_leave_code_alone(program, lines_of):
    assert section(program[1], ".text") == section(lines_of[0], ".text") and len(section(program[1], ".text")) > 1000
    assert 100 <= result("inspect", lines_of[0])["bytes"]["lines"] < 100_000 and result("inspect", program[1])["bytes"]["lines"] == 0


def test_line_tables_name_statements(lines_of):
    """Every line that code has is one of its own function's; products are at their lines."""
    net, lines = lines_of
    kernel = next(name for name in functions(net) if name.endswith(".layers.1.wide.MatMul_"))
    code = subprocess.run(["objdump", "-dl", "--no-show-raw-insn", net], capture_output=True, text=True, check=True).stdout
    blocks = dict(re.findall(r"^[0-9a-f]+ <([^>]+)>:\n((?:.+\n)*)", code, re.M))
    body = blocks[kernel]
    first = next(i for i, line in enumerate(lines, 1) if line.startswith(f"kernel @{kernel.split('.')[0]} "))
    last = next(i for i, line in enumerate(lines, 1) if i > first and line == "}")
    named = re.findall(rf"^{re.escape(str(net))}\.mcir:(\d+)", body, re.M)
    assert len(named) > 30 and all(first <= int(n) <= last for n in named)
    at, products = 0, []
    for line in body.splitlines():
        place = re.match(r".*\.mcir:(\d+)", line)
        at = int(place[1]) if place else at
        if re.search(r"\tmulps ", line):
            products.append(lines[at - 1])
    assert len(products) > 4 and all(re.search(r" (fma|mul) ", text) for text in products), products


def test_line_tables_of_objects(tmp_path):
    """An object's lines survive the linker, and the folder is what is asked for."""
    for suffix in ("o", "a"):
        done = mcc(DIGITS, "-g", "-fdebug-compilation-dir=/somewhere", "--variants=v2", "-o", tmp_path / f"net.{suffix}")
        assert done.returncode == 0, done.stderr
        (tmp_path / "main.c").write_text("const void *mcc_query(unsigned);\nint main(void) { return !mcc_query(1); }\n")
        subprocess.run(["gcc", tmp_path / "main.c", tmp_path / f"net.{suffix}", "-o", tmp_path / "main", "-lm", "-lpthread"], check=True)
        code = subprocess.run(["objdump", "-dl", tmp_path / "main"], capture_output=True, text=True).stdout
        named = re.findall(rf"^/somewhere/net\.{suffix}\.mcir:(\d+)", code, re.M)
        assert len(set(named)) > 100
        assert max(map(int, named)) <= len((tmp_path / f"net.{suffix}.mcir").read_text().splitlines())


def test_line_tables_are_the_same_again(tmp_path):
    for folder, jobs in ("a", 1), ("b", 2):
        (tmp_path / folder).mkdir()
        assert mcc(DIGITS, "-g", "-fdebug-compilation-dir=.", f"-j{jobs}", "-o", tmp_path / folder / "n.so").returncode == 0
    assert (tmp_path / "a/n.so").read_bytes() == (tmp_path / "b/n.so").read_bytes()
    assert (tmp_path / "a/n.so.mcir").read_bytes() == (tmp_path / "b/n.so.mcir").read_bytes()


@gdb_only
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the CPU level of the test's network")
def test_gdb_shows_lines(program, lines_of, tmp_path):
    main, (net, text) = program[0], lines_of
    kernel = next(name for name in functions(net) if name.endswith(".layers.1.wide.MatMul_"))
    keys = tmp_path / "lines"
    keys.write_text("\n" * 9)
    said = gdb(main, commands=["break getchar", f"run {net} 1 <{keys}", "delete", f"tbreak '{kernel}'", "continue", *["stepi"] * 30,
                               "bt", "list", "delete", "continue"], stdin=subprocess.PIPE)
    assert re.search(rf"^#0 .*{re.escape(kernel)} \(\) at g\.so\.mcir:\d+$", said, re.M), said
    shown = re.findall(r"^(\d+)\t( .*)$", said, re.M)
    assert len(shown) >= 10 and all(text[int(n) - 1] == line for n, line in shown), said
    assert "exited normally" in said and " main (" in said, said


@pytest.fixture(scope="module")
def lines_of_python(program):
    """A network of PyTorch's, whose nodes come from lines 41 to 43 of model.py, and the lines of code: [(function, file, line)]."""
    p, net = Program(), program[1].with_name("python.so")
    x = p.input("x", np.dtype("float32"), (64, 64))
    for line, name in enumerate(("up", "over", "down"), 41):
        x = p.node("aten.linear.default", [x, p.weight(f"{name}_w", np.ones((64, 64), np.float32))], [(name, np.dtype("float32"), (64, 64))])
        p.came_from("/somebody/nets/model.py", line, f"layers.3.{name}")
        x = p.node("aten.relu.default", [x], [(f"{name}_r", np.dtype("float32"), (64, 64))])
    p.output(x)
    done = mcc(p.save(net.with_suffix(".pt2")), "--variants=v2", "-g", "-o", net)
    assert done.returncode == 0, done.stderr
    code = subprocess.run(["objdump", "-dl", "--no-show-raw-insn", net], capture_output=True, text=True, check=True).stdout
    blocks = re.findall(r"^[0-9a-f]+ <([^>]+)>:\n((?:.+\n)*)", code, re.M)
    return net, [(name, *place) for name, body in blocks for place in re.findall(r"^(/\S+):(\d+)", body, re.M)]


def test_line_tables_name_python(lines_of_python):
    """Each kernel begins at its node's line and goes on in the text; names of functions hold the module's path."""
    net, lines = lines_of_python
    for line, name in (41, "up"), (42, "over"), (43, "down"):
        kernels = {function for function, file, n in lines if file == "/somebody/nets/model.py" and int(n) == line}
        assert len(kernels) == 1 and re.fullmatch(rf"k\d+_v2\.layers\.3\.{name}.*", *kernels), lines
        assert {file for function, file, _ in lines if function in kernels} == {"/somebody/nets/model.py", f"{net}.mcir"}


@gdb_only
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the CPU level of the test's network")
def test_gdb_breaks_at_python_lines(program, lines_of_python, tmp_path):
    keys = tmp_path / "lines"
    keys.write_text("\n" * 2)
    said = gdb(program[0], commands=["break getchar", f"run {lines_of_python[0]} 1 <{keys}", "delete", "tbreak model.py:42", "tbreak model.py:43",
                                     "continue", "bt", "continue", "continue"], stdin=subprocess.PIPE)
    stops = re.findall(r"^Temporary breakpoint \d+, (?:0x[0-9a-f]+ in )?(\S+) \(", said, re.M)
    assert [re.sub(r"k\d+_v2\.", "", stop) for stop in stops] == ["layers.3.over.over_", "layers.3.down.down_"], said
    assert "exited normally" in said and " main (" in said, said


@pytest.mark.skipif(not shutil.which("perf"), reason="perf is not installed")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the CPU level of the test's network")
def test_perf_shows_lines(program, lines_of, tmp_path):
    """perf script finds the lines that perf annotate prints beside the instructions."""
    net, text = lines_of
    done = subprocess.run(["perf", "record", "-q", "-F", "199", "-e", "cpu-clock", "-o", tmp_path / "data", program[0], net, "1"],
                          input="\n" * 100, capture_output=True, text=True, timeout=60)
    if done.returncode != 0 and "loaded" not in done.stdout:
        pytest.skip("perf may not measure here")
    said = subprocess.run(["perf", "script", "-F", "ip,sym,srcline", "-i", tmp_path / "data"], capture_output=True, text=True, timeout=120).stdout
    lines = [int(n) for n in re.findall(r"^ +g\.so\.mcir:(\d+)", said, re.M)]
    assert len(lines) > 10 and any(re.search(" (fma|mul|add|load) ", text[n - 1]) for n in lines), said[:3000]


def test_objects_keep_frames_and_names(tmp_path):
    for suffix in ("so", "o"):
        done = mcc(DIGITS, "-o", tmp_path / f"net.{suffix}")
        assert done.returncode == 0, done.stderr
        assert any(re.fullmatch(r"k\d+_v4\.conv1_", name) for name in functions(tmp_path / f"net.{suffix}"))
        frames = subprocess.run(["readelf", "--debug-dump=frames", tmp_path / f"net.{suffix}"], capture_output=True, text=True).stdout
        assert frames.count(" FDE ") > 30
    heads = subprocess.run(["readelf", "-lW", tmp_path / "net.so"], capture_output=True, text=True).stdout
    assert "GNU_EH_FRAME" in heads


def test_long_names_are_cut(tmp_path):
    name = "/model/" + "a/long/scope/" * 100 + 'last "one"\n%s;é'
    save(tmp_path / "m.onnx", [helper.make_node("Softmax", ["x"], ["y"], name)], [value("x", [4, 8])], [value("y", [4, 8])])
    done = mcc(tmp_path / "m.onnx", "--variants=v3", "-o", tmp_path / "m.so")
    assert done.returncode == 0, done.stderr
    kernels = [f for f in functions(tmp_path / "m.so") if re.match(r"k\d+_v3", f)]
    assert kernels and all(re.fullmatch(r"k\d+_v3\.[A-Za-z0-9_.]{1,49}", f) for f in kernels)
    assert any(f.endswith("last_one_s_") for f in kernels), kernels


@pytest.mark.skipif(not shutil.which("perf"), reason="perf is not installed")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the CPU level of the test's network")
def test_perf_follows_calls(program, tmp_path):
    main, net = program
    done = subprocess.run(["perf", "record", "-q", "-F", "199", "-e", "cpu-clock", "--call-graph", "dwarf,8192", "-o", tmp_path / "data", main, net, "2"],
                          input="\n" * 100, capture_output=True, text=True, timeout=60)
    if done.returncode != 0 and "loaded" not in done.stdout:
        pytest.skip("perf may not measure here")
    said = subprocess.run(["perf", "script", "-F", "comm,ip,sym", "-i", tmp_path / "data"], capture_output=True, text=True, timeout=60).stdout
    chains = [[line.split()[1] for line in chain.splitlines()[1:] if len(line.split()) > 1] for chain in said.split("\n\n")]
    inside = [chain for chain in chains if chain and re.fullmatch(r"k\d+_v2\..*_", chain[0])]
    assert any(chain[0].endswith(".layers.1.wide.MatMul_") for chain in inside), said[:3000]
    reached = [chain for chain in inside if {"main", "program_v2"} <= set(chain) or "worker_main" in chain]
    assert len(reached) > 0.9 * len(inside), said[:3000]

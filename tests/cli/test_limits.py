"""Each --limit-* and --max-* is a hard bound: what has just that size passes, one less is status 4 and names the option, and
nothing is written."""
import os
import pathlib
import re
import resource
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from support.tool import MCC, mcc, save, value

F = [2]
OVER = "compiling took more than 0.5 s of processor time (--limit-compile-time)"
STILL = "it is stopped or waits for something (--limit-compile-time)"


def chain(n):
    names = ["x", *(f"v{i}" for i in range(1, n)), "y"]
    return [helper.make_node("Neg", [names[i]], [names[i + 1]], "n" * 100 if i == 0 else "") for i in range(n)]


def ten_nodes(path):
    return save(path, chain(10), [value("x", [1, 1, 1, 1, 250])], [value("y", [1, 1, 1, 1, 250])])


def branches(path):
    """If in If in If."""
    def branch(name, nodes):
        return helper.make_graph(nodes, name, [], [value(name, F)])
    inner = branch("t0", [helper.make_node("Neg", ["x"], ["t0"])]), branch("e0", [helper.make_node("Abs", ["x"], ["e0"])])
    for d in (1, 2):
        inner = (branch(f"t{d}", [helper.make_node("If", ["c"], [f"t{d}"], then_branch=inner[0], else_branch=inner[1])]),
                 branch(f"e{d}", [helper.make_node("Abs", ["x"], [f"e{d}"])]))
    return save(path, [helper.make_node("If", ["c"], ["y"], then_branch=inner[0], else_branch=inner[1])],
                [value("x", F), value("c", [], T.BOOL)], [value("y", F)])


def calls(path):
    """A function that calls a function."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    functions = [helper.make_function("my", "inner", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], opsets),
                 helper.make_function("my", "outer", ["a"], ["b"], [helper.make_node("inner", ["a"], ["b"], domain="my")], opsets)]
    graph = helper.make_graph([helper.make_node("outer", ["x"], ["y"], domain="my")], "g", [value("x", F)], [value("y", F)])
    onnx.save(helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=8), path)
    return path


def folded(path):
    """24 bytes that only folding can compute, of 8."""
    return save(path, [helper.make_node("Expand", ["one", "n"], ["ones"]), helper.make_node("CumSum", ["ones", "axis"], ["shape"]),
                       helper.make_node("Reshape", ["x", "shape"], ["y"])], [value("x", [6])], [value("y", [1, 2, 3])],
                {"one": np.array([1]), "n": np.array([3]), "axis": np.array(0)})


def sparse(path):
    """4000 bytes when dense."""
    tensor = onnx.SparseTensorProto(dims=[1000], values=numpy_helper.from_array(np.ones(2, np.float32), "w"),
                                    indices=numpy_helper.from_array(np.array([3, 7]), "i"))
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [value("x", [1000])], [value("y", [1000])],
                              sparse_initializer=[tensor])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def hollow(path, size=1 << 20):
    """The weights are a file that takes no space."""
    tensor = T(name="w", dims=[size // 4], data_type=T.FLOAT, data_location=T.EXTERNAL)
    tensor.external_data.add(key="location", value="hollow.bin")
    with open(path.parent / "hollow.bin", "wb") as file:
        file.truncate(size)
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [value("x", [size // 4])], [value("y", [size // 4])], [tensor])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def products(path):
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    return save(path, [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["b"]),
                       helper.make_node("MatMul", ["b", "w"], ["y"])], [value("x", [4, 64])], [value("y", [4, 64])], {"w": w})


def empty_messages(path):
    """Two bytes each, and a structure of protobuf-c."""
    model = onnx.load(ten_nodes(path)).SerializeToString()
    path.write_bytes(model + b"\x72\x00" * 20000)
    return path


def pooled(path, size):
    """Folding takes size ** 4 / 16 steps."""
    window = size // 2
    shape = [1, 1, size - window + 1, size - window + 1]
    return save(path, [helper.make_node("MaxPool", ["w"], ["m"], kernel_shape=[window, window]), helper.make_node("Add", ["x", "m"], ["y"])],
                [value("x", shape)], [value("y", shape)], {"w": np.ones((1, 1, size, size), np.float32)})


def growing(path):
    """A constant of 256 KiB made of two of 1 KiB: 128 times as much."""
    row = np.arange(1, 257, dtype=np.float32)
    return save(path, [helper.make_node("Div", ["r", "c"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])], [value("x", [1, 256])],
                [value("y", [1, 256])], {"r": row[None], "c": row[:, None]})


# option: network, command, the least value that passes, the next one below
EXACT = {
    "limit-message-depth": (branches, "check", 16, 15),
    "limit-subgraph-depth": (branches, "check", 3, 2),
    "limit-call-depth": (calls, "check", 2, 1),
    "limit-rank": (ten_nodes, "check", 5, 4),
    "limit-nodes": (ten_nodes, "check", 10, 9),
    "limit-name-bytes": (ten_nodes, "check", 100, 99),
    "limit-tensor-bytes": (ten_nodes, "check", 1000, 999),
    "limit-fold-bytes": (folded, "check", 16, 15),
    "limit-fold-total": (folded, "check", 24, 23),
    "limit-fold-total ": (sparse, "check", 4000, 3999),
    "limit-sparse-bytes": (hollow, "check", 1 << 20, (1 << 20) - 1),
    "limit-import-heap": (empty_messages, "check", "1M", 0),
    "limit-arena-bytes": (products, "compile", 2048, 2047),
    "limit-worker-memory": (products, "compile", "1G", "20M"),
    "limit-compile-heap": (products, "compile", "64M", "600K"),
    "limit-compile-time": (products, "compile", 100, "1e-9"),
    "max-constant-growth": (growing, "compile", 128, 127.9),
}
# The tests below and test_cache.py. What is beyond the first two is no error: there is no message to name them.
OTHERWISE = {"limit-unroll-nodes", "limit-cache", "max-output-size"}


def test_holes_of_a_sparse_file(tmp_path):
    """By default 256 MiB, what is stored does not count, and each range counts once."""
    path = hollow(tmp_path / "net.onnx", 300 << 20)
    done = mcc(path, "-o", tmp_path / "net.so")
    assert done.returncode == 4 and "(--limit-sparse-bytes)" in done.stderr and not (tmp_path / "net.so").exists()
    path = hollow(tmp_path / "net.onnx", 1 << 20)
    with open(tmp_path / "hollow.bin", "r+b") as file:
        file.seek(256 << 10)
        file.write(b"x" * (512 << 10))
    for limit, status in ((512 << 10, 0), ((512 << 10) - 1, 4), (0, 4)):
        assert mcc("check", path, f"--limit-sparse-bytes={limit}").returncode == status
    (tmp_path / "hollow.bin").write_bytes(bytes(1 << 20))
    assert mcc("check", path, "--limit-sparse-bytes=0").returncode == 0


LONG = {   # what takes long to fold: operator, shapes of its operands, attributes, results, rank and type of the last of these
    "window": ("MaxPool", [[1, 1, 2000, 2000]], {"kernel_shape": [1000, 1000]}, ["m"], 4, T.FLOAT),
    "argwindow": ("MaxPool", [[1, 1, 2000, 2000]], {"kernel_shape": [1000, 1000]}, ["largest", "m"], 4, T.INT64),
    "conv": ("Conv", [[1, 1, 2000, 2000], [1, 1, 1000, 1000]], {}, ["m"], 4, T.FLOAT),
    "dot": ("MatMul", [[3500, 3500], [3500, 3500]], {}, ["m"], 2, T.FLOAT),
    "det": ("Det", [[3000, 3000]], {}, ["m"], 0, T.FLOAT),
    "dft": ("DFT", [[1, 85000, 1]], {}, ["m"], 3, T.FLOAT),
}


@pytest.mark.parametrize("name", LONG)
def test_time_of_folding(name, tmp_path):
    """A few seconds to an hour."""
    op, shapes, attributes, results, rank, elem = LONG[name]
    random = np.random.default_rng(0)
    constants = {f"a{i}": random.random(shape, np.float32) for i, shape in enumerate(shapes)}
    path = save(tmp_path / "net.onnx", [helper.make_node(op, list(constants), results, **attributes), helper.make_node("Add", ["x", "m"], ["y"])],
                [value("x", [1] * rank, elem)], [value("y", [f"d{i}" for i in range(rank)], elem)], constants)
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = mcc("check", path, "--limit-compile-time=0.5")
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 4 and OVER in done.stderr, done.stderr
    assert ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime < 3


@pytest.mark.parametrize("command", ["compile", "eval"])
def test_time_of_commands(command, tmp_path):
    """10 ** 12 steps, which take an hour."""
    path, out = pooled(tmp_path / "net.onnx", 2000), tmp_path / "net.so"
    done = mcc(command, path, *(["-o", out] if command == "compile" else ["-i", "x=random"]), "--limit-compile-time=0.5")
    assert done.returncode == 4 and OVER in done.stderr, done.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"net.onnx"}


@pytest.mark.parametrize("limit", [60, 0])
def test_time_that_suffices(limit, tmp_path):
    assert mcc("check", pooled(tmp_path / "net.onnx", 100), f"--limit-compile-time={limit}").returncode == 0


def worker(path, line):
    """A worker that notes its number and does something first."""
    path.write_text(f'#!/bin/sh\necho $$ >"{path}.pid"\n{line}\nexec "{pathlib.Path(MCC).resolve()}" "$@"\n')
    path.chmod(0o700)
    return path


def ended(script):
    """Is the worker no more?"""
    with pytest.raises(ProcessLookupError):
        os.kill(int(pathlib.Path(f"{script}.pid").read_text()), 0)
    return True


@pytest.mark.parametrize("line,limit,text", [
    ("while :; do :; done", 0.5, OVER),
    ("kill -STOP $$", 5, STILL), ("exec sleep 100", 0.5, STILL)])
def test_time_of_a_worker(line, limit, text, tmp_path):
    """What it uses counts, and none that gets nothing done is waited for; it is no more when mcc ends."""
    path, out, script = products(tmp_path / "net.onnx"), tmp_path / "net.so", worker(tmp_path / "worker", line)
    out.write_bytes(b"an older one")
    done = mcc(path, "-o", out, "-j1", f"--worker={script}", f"--limit-compile-time={limit}", timeout=60)
    assert done.returncode == 4 and text in done.stderr and done.stderr.count("error:") == 1, (done.returncode, done.stderr)
    assert ended(script) and out.read_bytes() == b"an older one"
    assert {p.name for p in tmp_path.iterdir()} == {"net.onnx", "net.so", "worker", "worker.pid"}


def test_a_worker_that_goes_on(tmp_path):
    """Stopped for a second, as by a terminal: that is no failure."""
    path, script = products(tmp_path / "net.onnx"), worker(tmp_path / "worker", "(sleep 1; kill -CONT $$) & kill -STOP $$")
    done = mcc(path, "-o", tmp_path / "net.so", "-j1", f"--worker={script}", timeout=60)
    assert done.returncode == 0, done.stderr
    assert ended(script)


def test_every_limit_has_a_row():
    options = set(re.findall(r"^- `--((?:limit|max)-[a-z-]*)=", mcc("--reference").stdout, re.M))
    assert options == {name.strip() for name in EXACT} | OTHERWISE


@pytest.mark.parametrize("name", EXACT)
def test_the_bound_and_one_less(name, tmp_path):
    network, command, passes, fails = EXACT[name]
    path, out = network(tmp_path / "net.onnx"), tmp_path / "net.so"
    words = ["-q"] if command == "check" else ["-o", out, "-march=x86-64-v3"]
    done = mcc(command, path, *words, f"--{name.strip()}={passes}")
    assert done.returncode == 0, done.stderr
    out.write_bytes(b"an older one") if command == "compile" else None
    done = mcc(command, path, *words, f"--{name.strip()}={fails}")
    assert done.returncode == 4 and "error:" in done.stderr and f"(--{name.strip()})" in done.stderr, (done.returncode, done.stderr)
    assert command == "check" or out.read_bytes() == b"an older one"


@pytest.mark.parametrize("suffix,more", [("so", []), ("o", []), ("a", []), ("so", ["--weights=sidecar"])])
def test_output_size(tmp_path, suffix, more):
    """The bytes of the files, exactly."""
    path, out = products(tmp_path / "net.onnx"), tmp_path / f"net.{suffix}"
    words = [path, "-o", out, "-march=x86-64-v3", *more]
    assert mcc(*words).returncode == 0
    size = out.stat().st_size + (64 * 64 * 4 if more else 0)
    assert mcc(*words, f"--max-output-size={size}").returncode == 0
    out.unlink()
    done = mcc(*words, f"--max-output-size={size - 1}")
    assert done.returncode == 4 and f"{size} bytes, more than the limit of {size - 1} (--max-output-size)" in done.stderr
    assert {p.name for p in tmp_path.iterdir()} <= {"net.onnx", "net.mccw"}


def test_sizes_of_a_run(tmp_path):
    """Known only when it runs."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)], [value("x", ["n"])], [value("y", ["m"])])
    for n in 125, 126:
        np.save(tmp_path / "x.npy", np.zeros(n, np.float32))
        done = mcc("eval", path, "-i", f"x={tmp_path / 'x.npy'}", "--limit-tensor-bytes=1000")
        assert done.returncode == (0 if n == 125 else 4), done.stderr
        assert ("a tensor of 1008 bytes exceeds the limit (--limit-tensor-bytes)" in done.stderr) == (n == 126)


def test_unrolling(tmp_path):
    """A bound of what unrolls, not of what compiles: beyond it the loop stays one."""
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["co"]), helper.make_node("Neg", ["v"], ["vo"])], "body",
                             [value("i", [], T.INT64), value("c", [], T.BOOL), value("v", F)], [value("co", [], T.BOOL), value("vo", F)])
    path = save(tmp_path / "net.onnx", [helper.make_node("Loop", ["n", "t", "x"], ["y"], body=body)], [value("x", F)], [value("y", F)],
                {"n": np.array(5), "t": np.array(True)})
    made = [mcc(path, "-stop-after=legalize", f"--limit-unroll-nodes={n}").stdout.count(" = neg") for n in (0, 20)]
    assert made == [1, 5]


def test_the_heap_is_bounded(tmp_path):
    """With 16 MB in all the compiler's own bound comes first. What passes the system's says so, too, wherever it strikes."""
    path = save(tmp_path / "net.onnx", chain(20000), [value("x", F)], [value("y", F)])

    def within(megabytes, *words):
        data = megabytes << 20
        done = subprocess.run([MCC, "check", path, *words], capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (data, data)))
        return done.returncode, done.stderr
    status, text = within(16, "--limit-compile-heap=8M")
    assert status == 4 and "the compiler's memory budget is used up (--limit-compile-heap)" in text
    for megabytes in range(16, 34, 2):
        status, text = within(megabytes)
        assert status == 4 and "out of memory" in text, megabytes

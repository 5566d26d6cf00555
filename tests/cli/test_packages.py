"""Compiled networks from other builds and languages: the typed header, Python, pkg-config, CMake; all as installed."""
import base64
import hashlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import time
import typing
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from support import wine
from support.tool import BUILD, DIGITS, MCC, ROOT, dense, mcc, save, value


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """A tree as `make install` makes it; what is installed has been built."""
    folder = tmp_path_factory.mktemp("usr")
    run("make", "-s", "-C", ROOT, "-o", "all", "install", f"BUILD={BUILD.resolve()}", f"PREFIX={folder}")
    return folder


def wanted(model, x):
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer}
    return np.maximum(x @ tensors["w"] + tensors["b"], 0)


# ---- --emit=header ---------------------------------------------------------------------------------------------------

MAIN = """
#define NET_IMPLEMENTATION
#include "net.h"
#include <stdio.h>
int main(void)
{
    static const float x[2][4] = {{1, 2, 3, 4}, {0, -1, 5, 2}};
    float y[2][3];
    if (net_run(2, x, y))
        return puts(net_error()), 1;
    for (int i = 0; i < 6; i++)
        printf("%.6f ", y[i / 3][i % 3]);
    if (net_run(-1, x, y) != MCC_E_SHAPE || !*net_error())
        return 2;
    net_close();
    return 0;
}
"""


@pytest.mark.parametrize("compiler,flags", [("gcc", ["-std=c11", "-Wall", "-Wextra", "-Wpedantic"]),
                                            ("g++", ["-x", "c++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic"])])
@pytest.mark.parametrize("suffix,more", [("a", []), ("so", []), ("o", ["--prefix=net"])])
def test_header(tmp_path, prefix, compiler, flags, suffix, more):
    model = dense(tmp_path / "net.onnx")
    assert mcc(model, "--emit=header", "-o", tmp_path / f"net.{suffix}", *more).returncode == 0
    assert "int net_run(int64_t n, const float x[][4], float y[][3]);" in (tmp_path / "net.h").read_text()
    (tmp_path / "main.c").write_text('#include "net.h"\n' + MAIN)
    run(compiler, *flags, "-Werror", f"-I{prefix}/include", "-o", tmp_path / "main", tmp_path / "main.c", "-x", "none",
        tmp_path / f"net.{suffix}", f"-Wl,-rpath,{tmp_path}")
    x = np.array([[1, 2, 3, 4], [0, -1, 5, 2]], np.float32)
    np.testing.assert_allclose([float(v) for v in run(tmp_path / "main").split()], wanted(model, x).ravel(), rtol=1e-5)


def test_header_keeps_clear_of_its_own_names(tmp_path):
    names = ["net_state", "net_error", "in_shape", "int64_t", "NULL", "DLTensor", "net_run"]
    path = save(tmp_path / "m.onnx", [helper.make_node("Sum", names, ["kDLCPU"])], [value(n, ["code", 3]) for n in names], [value("kDLCPU", ["code", 3])])
    assert mcc(path, "--emit=header", "-o", tmp_path / "net.o").returncode == 0
    (tmp_path / "m.c").write_text('#define NET_IMPLEMENTATION\n#include "net.h"\n')
    run("gcc", "-Wall", "-Werror", f"-I{ROOT}/runtime", "-c", "-o", tmp_path / "out.o", tmp_path / "m.c")


def test_header_spells_fixed_shapes_and_odd_names(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Add", ["for", "a b"], ["for:0"]), helper.make_node("ReduceSum", ["for"], ["s"], keepdims=0)],
                [value("for", [2, 3]), value("a b", [2, 3])], [value("for:0", [2, 3]), value("s", [])])
    assert mcc(path, "--emit=header", "-o", tmp_path / "my-net.o").returncode == 0
    text = (tmp_path / "my-net.h").read_text()
    assert "int my_net_run(const float for_[2][3], const float a_b[2][3], float for_0[2][3], float *s);" in text
    (tmp_path / "m.c").write_text('#define MY_NET_IMPLEMENTATION\n#include "my-net.h"\n')
    run("gcc", "-Wall", "-Werror", f"-I{ROOT}/runtime", "-c", "-o", tmp_path / "out.o", tmp_path / "m.c")


def test_header_with_derived_shapes(tmp_path):
    path = save(tmp_path / "net.onnx", [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)], [value("x", ["n", 4])], [value("y", None)])
    assert mcc(path, "--emit=header", "-o", tmp_path / "net.a").returncode == 0
    (tmp_path / "m.c").write_text('#define NET_IMPLEMENTATION\n#include "net.h"\nint main(void) { float x[2][4] = {{1}, {2}}, y[4][4]; '
                                  "return net_run(2, x, y) || y[0][0] != 1 || y[3][0] != 2; }\n")
    run("gcc", "-Wall", "-Werror", f"-I{ROOT}/runtime", "-o", tmp_path / "m", tmp_path / "m.c", tmp_path / "net.a")
    run(tmp_path / "m")


def test_header_refuses_what_c_cannot_carry(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("NonZero", ["x"], ["y"])], [value("x", [4])], [value("y", None, TensorProto.INT64)])
    done = mcc(path, "--emit=header", "-o", tmp_path / "m.so")
    assert done.returncode == 1 and "data decides" in done.stderr and not (tmp_path / "m.so").exists()


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_loader_is_cxx_too(tmp_path, prefix, standard):
    run("g++", "-x", "c++", f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", f"-I{prefix}/include", "-c",
        "-o", tmp_path / "load.o", prefix / "share/mcc/mcc_load.c")


# ---- Python -----------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def module(prefix):
    sys.path.insert(0, str(prefix / "share/mcc"))
    os.environ.setdefault("MCC", MCC)
    other = sys.modules.pop("mcc", None)                     # that of the checkout, where tests of bench/ ran before
    import mcc as found
    assert found.__file__.startswith(str(prefix))
    yield found
    sys.path.remove(str(prefix / "share/mcc"))
    del sys.modules["mcc"]
    if other:
        sys.modules["mcc"] = other


@pytest.fixture
def net(module, tmp_path):
    model = dense(tmp_path / "net.onnx")
    return module.load(module.compile(model, tmp_path / "net.so"))


def test_python_calls(net, tmp_path):
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    want = wanted(tmp_path / "net.onnx", x)
    np.testing.assert_allclose(net(x), want, rtol=1e-5)
    np.testing.assert_allclose(net(x=x[::-1]), want[::-1], rtol=1e-5)            # negative strides
    np.testing.assert_allclose(net(np.asfortranarray(x)), want, rtol=1e-5)
    assert net.inputs == [("x", "float32", ("n", 4))] and net.outputs[0].shape == ("n", 3)
    assert net.plan(x).shapes == {"y": (5, 3)} and net.plan(x).bytes >= 0
    rows = net.profile(x)
    assert rows and all(r.ms >= 0 and r.calls >= 1 for r in rows)
    kept = [net(x) for _ in range(50)]
    del net
    assert all((k == kept[0]).all() for k in kept)      # outputs outlive the model


def test_python_runs_into_arrays(module, tmp_path):
    """A cache that grows in one array, and what is not a place for an output."""
    form = [value("past", [2, "n", 4]), value("new", [2, 1, 4])]
    path = save(tmp_path / "cache.onnx", [helper.make_node("Concat", ["past", "new"], ["present"], axis=1),
                                          helper.make_node("ReduceSum", ["present"], ["sum"], keepdims=0)], form, [value("present", None), value("sum", [])])
    m = module.load(module.compile(path, tmp_path / "cache.so", "--input=past[2,n<=8,4]"))
    assert m.shares == {"present": "past"} and m.room == {"past": (2, 8, 4), "present": (2, 8, 4)}
    cache, total, rng = np.full(m.room["past"], np.nan, np.float32), np.zeros((), np.float32), np.random.default_rng(0)
    for n in range(8):
        new = rng.standard_normal((2, 1, 4)).astype(np.float32)
        present, want = m(cache[:, :n], new)
        m.into({"sum": total, "present": cache[:, :n + 1]}, cache[:, :n], new=new)
        assert (cache[:, :n + 1] == present).all() and total == want and (cache[:, n:n + 1] == new).all() and np.isnan(cache[:, n + 1:]).all()
    with pytest.raises(TypeError, match="the model gives present, sum"):
        m.into({"sum": total}, cache, new)
    with pytest.raises(TypeError, match="present: an array is expected"):
        m.into({"sum": total, "present": np.broadcast_to(new, (2, 1, 4))}, cache, new)
    with pytest.raises(module.Error, match="output 'present': dim 1 is 9, and has room for 8"):
        m.into({"sum": total, "present": np.zeros((2, 9, 4), np.float32)}, cache, new)


def test_python_loads_what_is_there_now(module, tmp_path):
    """The same path, compiled again in the same process: the new network, not the one that is loaded."""
    path, shapes = tmp_path / "net.so", []
    for spec in ("x:f32[n,4]", "x:f32[3,4]", "x:f32[n,4]", "x:f32[5,4]"):
        module.compile(dense(tmp_path / "net.onnx"), path, f"--input={spec}")
        shapes.append(module.load(path).inputs[0].shape)
    assert shapes == [("n", 4), (3, 4), ("n", 4), (5, 4)]
    with pytest.raises(OSError, match="none.so"):
        module.load(tmp_path / "none.so")


BAD_FILES = """
import os, sys, mcc
path, good = sys.argv[1], open(sys.argv[2], "rb").read()
def refused(data):
    if os.path.exists(path):
        os.unlink(path)          # what is loaded keeps its file
    with open(path, "wb") as file:
        file.write(data)
    try:
        mcc.load(path)
        return ""
    except OSError as why:
        return str(why)
size = len(good)
for cut in [*range(0, 1100, 7), *range(1100, size, size // 200), size - 1]:
    assert refused(good[:cut]), cut
missed = []
for bit in [*range(0, 8 * 1200, 31), *range(8 * 1200, 8 * size, 8 * size // 300)]:
    data = bytearray(good)
    data[bit // 8] ^= 1 << bit % 8
    if not refused(data):
        missed.append(bit // 8)
assert refused(good[:size // 2])
print(*missed)
"""


def test_python_refuses_what_the_c_loader_refuses(module, prefix, tmp_path):
    """Cut and damaged files end in an exception, never in a signal; only weights may differ, which are numbers whatever they are."""
    done = mcc(DIGITS, "-o", tmp_path / "net.so")
    assert done.returncode == 0, done.stderr
    env = dict(os.environ, PYTHONPATH=str(prefix / "share/mcc"))
    missed = [int(at) for at in run(sys.executable, "-c", BAD_FILES, tmp_path / "bad.so", tmp_path / "net.so", env=env).split()]
    weights = [row.split() for row in run("readelf", "-SW", tmp_path / "net.so").replace("[ ", "[").splitlines() if ".mcc.weights" in row][0]
    start, size = int(weights[4], 16), int(weights[5], 16)
    assert missed and all(start <= at < start + size for at in missed), (missed, start, size)
    assert mcc(DIGITS, "--target=riscv64", "-o", tmp_path / "other.so").returncode == 0
    libc = next(line.split()[-1] for line in open("/proc/self/maps") if "/libc.so" in line or "/libc-" in line)
    for path in (DIGITS, tmp_path, "/dev/null", libc, tmp_path / "other.so", tmp_path / "bad.so"):
        with pytest.raises(OSError) as caught:
            module.load(path)
        # mcc run takes what is not an artifact for a network: these are the C loader's words (tests/runtime/test_load.c).
        said = {DIGITS: "not a shared object", tmp_path: "not a regular file", "/dev/null": "not a regular file"}.get(path) or mcc("run", path).stderr
        assert str(caught.value).split(": ", 1)[1] in said, (str(caught.value), said)


def test_python_loads_from_memory_and_links(module, tmp_path):
    assert mcc(dense(tmp_path / "net.onnx"), "-o", tmp_path / "net.so").returncode == 0
    (tmp_path / "link.so").symlink_to("net.so")
    (tmp_path / "$ORIGIN.so").write_bytes((tmp_path / "net.so").read_bytes())
    fd = os.memfd_create("net")
    os.write(fd, (tmp_path / "net.so").read_bytes())
    before = len(os.listdir("/proc/self/fd"))
    for kept, path in enumerate([tmp_path / "net.so", tmp_path / "link.so", f"/proc/self/fd/{fd}", tmp_path / "$ORIGIN.so"]):
        assert module.load(path)(np.ones((2, 4), np.float32)).shape == (2, 3)
        assert len(os.listdir("/proc/self/fd")) == before + max(0, kept - 1)      # without a path of its own: its descriptor stays
    os.close(fd)


def test_python_errors(module, net, tmp_path):
    with pytest.raises(module.Error) as caught:
        net(np.zeros((2, 5), np.float32))
    assert caught.value.code == -2 and "x" in str(caught.value)
    with pytest.raises(module.Error) as caught:
        net(np.zeros((2, 4), np.int32))
    assert caught.value.code == -3
    for args, named in (((), {}), ((1, 2), {}), ((), {"z": 1})):
        with pytest.raises(TypeError):
            net(*args, **named)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        module.compile(tmp_path / "none.onnx")
    assert "none.onnx" in failed.value.stderr and "none.onnx" in str(failed.value) and isinstance(failed.value, module.CompileError)


def test_python_compiles_as_the_command_does(module, prefix, tmp_path, monkeypatch, capsys):
    """The mcc that is installed with the module, the output in the current folder, what the compiler says to be seen."""
    (tmp_path / "models").mkdir()
    (tmp_path / "out").mkdir()
    model = dense(tmp_path / "models/net.onnx")
    monkeypatch.chdir(tmp_path / "out")
    monkeypatch.delenv("MCC")
    monkeypatch.setenv("PATH", "/nowhere")
    assert module._command() == str(prefix / "bin/mcc")
    assert module.compile(model) == "net.so" and sorted(os.listdir()) == ["net.so"] and os.listdir("../models") == ["net.onnx"]
    path = save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [3])])
    module.compile(path)
    assert "declared-shape" in capsys.readouterr().err
    monkeypatch.setattr(module, "__file__", str(tmp_path / "elsewhere/mcc.py"))
    with pytest.raises(FileNotFoundError, match="MCC"):
        module.compile(model)


class Versioned:
    """A producer of DLPack; old: it knows nothing of versions."""

    def __init__(self, array, old):
        self.array, self.old = array, old

    def __dlpack__(self, **named):
        if self.old and named:
            raise TypeError("unexpected argument")
        return self.array.__dlpack__() if self.old else self.array.__dlpack__(**named)


@pytest.mark.parametrize("old", [False, True])
def test_python_takes_and_gives_dlpack(net, old):
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    if not old and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("this numpy knows only the unversioned capsule")
    want = net(x)
    assert (net(Versioned(x, old)) == want).all()
    assert (np.from_dlpack(net(x)) == want).all()


def test_python_tensors_that_numpy_lacks(module, tmp_path):
    path = save(tmp_path / "b.onnx", [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)], [value("x", [3])],
                [value("y", [3], TensorProto.BFLOAT16)])
    y = module.load(module.compile(path, tmp_path / "b.so"))(np.array([1, -2, 0.5], np.float32))
    assert y.dtype == "bfloat16" and y.shape == (3,) and y.numpy().view(np.uint16).tolist() == [0x3f80, 0xc000, 0x3f00]
    before = len(module.Tensor._given)
    capsules = [y.__dlpack__(), y.__dlpack__(max_version=(1, 3))]
    assert len(module.Tensor._given) == before + 2
    del capsules
    assert len(module.Tensor._given) == before          # nobody consumed them


def test_python_keeps_descriptors_and_no_arrays(net):
    """Descriptors stay from call to call, whatever came before; what was passed is let go, after errors too."""
    wide = np.random.default_rng(1).standard_normal((9000, 8)).astype(np.float32)
    forms = [wide[:2, :4], wide[:2, 4:], wide[:2, ::2], wide[1::-1, :4], np.asfortranarray(wide[:3, :4]), wide[:2, :4].tolist(),
             Versioned(wide[:2, :4].copy(), True), wide[:0, :4], wide[:, :4], wide[:1, :4], np.frombuffer(bytes(wide[0, :5])[1:17] * 2, np.uint8)[:16]
             .view(np.float32).reshape(1, 4)]
    plain = [net(np.array(f.array if isinstance(f, Versioned) else f, np.float32)) for f in forms]
    for k in np.random.default_rng(2).integers(len(forms), size=200):
        got = net(np.asarray(forms[k], np.float32) if isinstance(forms[k], list) else forms[k])
        assert np.array_equal(got, plain[k], equal_nan=True), k
    for bad in (np.zeros((2, 4), np.float64), np.zeros((2, 4), "datetime64[s]"), np.zeros(4, np.float32), np.zeros((2, 4), ">f4")):
        with pytest.raises(Exception):
            net(bad)
    x = np.zeros((2, 4), np.float32)
    net(x)
    x.resize((3, 4), refcheck=False)        # an array that is still lent refuses
    assert net(x).shape == (3, 3)


def test_python_threads(net):
    from concurrent.futures import ThreadPoolExecutor
    xs = [np.full((i % 7 + 1, 4), i, np.float32) for i in range(64)]
    want = [net(x) for x in xs]
    with ThreadPoolExecutor(4) as pool:
        assert all((a == b).all() for a, b in zip(pool.map(net, xs), want))


# ---- pkg-config, CMake ----------------------------------------------------------------------------------------------------

def test_pkg_config(prefix, tmp_path):
    if not shutil.which("pkg-config"):
        pytest.skip("no pkg-config")
    env = dict(os.environ, PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"))
    assert "mcc " + run("pkg-config", "--modversion", "mcc", env=env) == mcc("--version").stdout
    for place in (prefix, tmp_path / "moved"):          # the tree may be moved as a whole
        if place != prefix:
            shutil.copytree(prefix, place, symlinks=True)
        env = dict(os.environ, PKG_CONFIG_PATH=str(place / "lib/pkgconfig"))
        include, = run("pkg-config", "--cflags", "--libs", "mcc", env=env).split()
        assert include[:2] == "-I" and os.path.realpath(include[2:]) == os.path.realpath(place / "include")
        assert os.path.realpath(run("pkg-config", "--variable=compiler", "mcc", env=env).strip()) == os.path.realpath(place / "bin/mcc")


def test_uninstall(tmp_path):
    where = [f"BUILD={BUILD.resolve()}", "PREFIX=/opt/some", f"DESTDIR={tmp_path}"]
    other = tmp_path / "opt/some/include/other.h"
    other.parent.mkdir(parents=True)
    other.write_text("")
    run("make", "-s", "-C", ROOT, "-o", "all", "install", *where)
    assert (tmp_path / "opt/some/bin/mcc").exists()
    run("make", "-s", "-C", ROOT, "uninstall", *where)
    assert [p for p in tmp_path.rglob("*") if not p.is_dir()] == [other] and not (tmp_path / "opt/some/share/mcc").exists()


def test_installed_manuals_and_completions(prefix):
    for name in ("man/man1/mcc.1", "man/man3/mcc_model.3", "man/man5/mcc.yaml.5", "bash-completion/completions/mcc",
                 "zsh/site-functions/_mcc", "fish/vendor_completions.d/mcc.fish", "mcc/mcc.py", "mcc/mcc_load.c",
                 "doc/mcc/model-functions.md", "doc/mcc/notes/onnx-decisions.md"):
        assert (prefix / "share" / name).stat().st_size > 100


CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(user C)
find_package(mcc 0.1 REQUIRED)
mcc_add_model(net SOURCE net.onnx CONFIG net.yaml OPTIONS -O1 TYPE @TYPE@ HEADER)
add_executable(main main.c)
target_link_libraries(main PRIVATE net)
add_executable(loads loads.c)
target_link_libraries(loads PRIVATE mcc::loader)
"""
LOADS = '#include "mcc_load.h"\nint main(void) { mcc_lib *lib; mcc_error error; return mcc_load("nothing.so", 0, &lib, &error) != MCC_E_IO; }\n'


def test_wheels_are_reproducible_and_whole(tmp_path):
    """What pip asks of a wheel, of a tree that only looks like an installed one."""
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "share/mcc").mkdir(parents=True)
    (tree / "bin/mcc").write_text("#!/bin/sh\necho hello from the command\n")
    shutil.copy(ROOT / "runtime/mcc.py", tree / "share/mcc")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        run("python3", ROOT / "cli/package/wheel.py", tree, "1.2", "x86_64", tmp_path / folder)
    (wheel,) = (tmp_path / "a").iterdir()
    assert wheel.name == "mcc-1.2-py3-none-manylinux2014_x86_64.musllinux_1_1_x86_64.whl"
    assert wheel.read_bytes() == (tmp_path / "b" / wheel.name).read_bytes()
    with zipfile.ZipFile(wheel) as files:
        rows = dict(line.split(",", 1) for line in files.read("mcc-1.2.dist-info/RECORD").decode().splitlines())
        assert set(rows) == set(files.namelist()) and files.getinfo("mcc-1.2.data/scripts/mcc").external_attr >> 16 == 0o100755
        for name in set(rows) - {"mcc-1.2.dist-info/RECORD"}:
            digest = base64.urlsafe_b64encode(hashlib.sha256(files.read(name)).digest()).rstrip(b"=").decode()
            assert rows[name] == f"sha256={digest},{files.getinfo(name).file_size}"


def test_cmake_with_cxx_alone(tmp_path, prefix):
    """Without C as a language CMake leaves .c files out, and the program would not link."""
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    (tmp_path / "loads.cpp").write_text(LOADS)
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.20)\nproject(user CXX)\nfind_package(mcc REQUIRED)\n"
                                             "add_executable(loads loads.cpp)\ntarget_link_libraries(loads PRIVATE mcc::loader)\n")
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
    run("cmake", "--build", tmp_path / "build")
    run(tmp_path / "build/loads")


@pytest.mark.parametrize("kind", ["SHARED", "STATIC", "OBJECT"])
def test_cmake(tmp_path, prefix, kind):
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    model = dense(tmp_path / "net.onnx", save_as_external_data=True, location="net.weights", size_threshold=0)
    (tmp_path / "net.yaml").write_text("layout: NCHW\n")
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "loads.c").write_text(LOADS)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE.replace("@TYPE@", kind))
    build = tmp_path / "build"
    run("cmake", "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    first = run(build / "main")
    run(build / "loads")
    suffix = {"SHARED": "so", "STATIC": "a", "OBJECT": "o"}[kind]
    product = build / f"mcc/net/net.{suffix}"

    def age(path, seconds):
        os.utime(path, (time.time() - seconds,) * 2)

    def rebuilds(touched):
        for path in (prefix / "bin/mcc", *tmp_path.glob("net.*")):
            age(path, 100)
        before = product.stat().st_mtime_ns
        if touched:
            os.utime(tmp_path / touched)
        run("cmake", "--build", build)
        return product.stat().st_mtime_ns != before

    assert not rebuilds(None)
    if kind == "STATIC":
        assert rebuilds("net.weights") and rebuilds("net.yaml") and rebuilds("net.onnx")
        assert not rebuilds("main.c")
    assert run(build / "main") == first


@pytest.mark.parametrize("system,options,names", [("Linux", "", "libc.so.6"), ("Android", "", "libc.so"),
                                                  ("Android", "OPTIONS --target=aarch64-linux", "libc.so.6")])
def test_cmake_for_others(tmp_path, prefix, system, options, names):
    """The network of a project that is cross-compiled is for the project's target."""
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    dense(tmp_path / "net.onnx")
    (tmp_path / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES NONE)
set(CMAKE_CROSSCOMPILING TRUE)
set(CMAKE_SYSTEM_NAME {system})
set(CMAKE_SYSTEM_PROCESSOR aarch64)
find_package(mcc REQUIRED)
mcc_add_model(net SOURCE net.onnx {options})
""")
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build", "--target", "net-compile")
    text = run("readelf", "-hdW", tmp_path / "build/mcc/net/net.so")
    assert "AArch64" in text and f"[{names}]" in text


@pytest.mark.parametrize("system,kind,architectures,said", [
    ("Darwin", "SHARED", "arm64", "MH_MAGIC_64 ARM64 ALL 0x00 DYLIB"), ("Darwin", "STATIC", "x86_64", "MH_MAGIC_64 X86_64 ALL 0x00 OBJECT"),
    ("Darwin", "SHARED", "arm64 x86_64", "MH_MAGIC_64 X86_64 ALL 0x00 DYLIB"), ("iOS", "OBJECT", "arm64", "MH_MAGIC_64 ARM64 ALL 0x00 OBJECT")])
def test_cmake_for_macos(tmp_path, prefix, system, kind, architectures, said):
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    dense(tmp_path / "net.onnx")
    (tmp_path / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES NONE)
set(CMAKE_CROSSCOMPILING TRUE)
set(APPLE TRUE)
set(CMAKE_SYSTEM_NAME {system})
set(CMAKE_OSX_ARCHITECTURES {architectures})
find_package(mcc REQUIRED)
mcc_add_model(net SOURCE net.onnx TYPE {kind})
""")
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build", "--target", "net-compile")
    path = tmp_path / ("build/mcc/net/net" + {"SHARED": ".dylib", "STATIC": ".a", "OBJECT": ".o"}[kind])
    assert said in " ".join(run("llvm-objdump-19", "--macho", "--private-header", "--arch=all", path).split())


TOOLCHAIN = """set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE NEVER)
"""


@pytest.mark.parametrize("kind", ["SHARED", "STATIC", "OBJECT"])
def test_cmake_for_windows(tmp_path, prefix, kind, monkeypatch):
    """By a toolchain file, as projects are cross-compiled: the program has the network in it, or loads it."""
    if not shutil.which("cmake") or wine.missing():
        pytest.skip("no cmake, or no wine64 and gcc-mingw-w64")
    dense(tmp_path / "net.onnx")
    (tmp_path / "windows.cmake").write_text(TOOLCHAIN)
    (tmp_path / "net.yaml").write_text("layout: NCHW\n")
    (tmp_path / "main.c").write_text(MAIN if kind != "SHARED" else LOADS.replace("nothing.so", "net.dll").replace("!= MCC_E_IO", ""))
    (tmp_path / "loads.c").write_text(LOADS)
    text = CMAKE.replace("@TYPE@", kind)
    if kind == "SHARED":
        text = text.replace(" HEADER", "").replace("(main PRIVATE net)", "(main PRIVATE net mcc::loader)")
    (tmp_path / "CMakeLists.txt").write_text(text)
    build = tmp_path / "build"
    run("cmake", "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_TOOLCHAIN_FILE={tmp_path}/windows.cmake")
    run("cmake", "--build", build)
    for name in ("WINEPREFIX", "WINEDEBUG"):
        monkeypatch.setenv(name, "")
    wine.environment()
    said = [run(wine.WINE, build / f"{name}.exe", cwd=build / "mcc/net") for name in ("main", "loads")]
    x = np.array([[1, 2, 3, 4], [0, -1, 5, 2]], np.float32)
    if kind != "SHARED":
        np.testing.assert_allclose(np.array(said[0].split(), np.float32).reshape(2, 3), wanted(tmp_path / "net.onnx", x), atol=2e-5)


def test_python_says_its_types(module):
    """What py.typed promises: each public function, method and field has types that resolve (make check-dist asks mypy, too)."""
    for name in module.__all__:
        what = getattr(module, name)
        callables = [(name, what)] if inspect.isfunction(what) else [
            (f"{name}.{key}", getattr(value, "fget", value)) for key, value in vars(what).items()
            if inspect.isfunction(getattr(value, "fget", value)) and (not key.startswith("_") or key in ("__init__", "__call__")) and
            getattr(value, "fget", value).__module__ == module.__name__]
        assert callables or hasattr(what, "__annotations__") or issubclass(what, Exception), name
        for where, function in callables:
            signature, types = inspect.signature(function), typing.get_type_hints(function)
            assert "return" in types, where
            assert {key for key in signature.parameters if key != "self"} <= set(types), where
    assert typing.get_type_hints(module.Model)["inputs"] == typing.List[module.Port]
    assert typing.get_type_hints(module.Plan)["bytes"] is int

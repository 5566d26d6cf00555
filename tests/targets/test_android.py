"""Artifacts for Android: the file is what its loader asks for, and answers as on this machine, under qemu-user with glibc in bionic's
place. bionic itself is not here."""
import pathlib
import platform
import re
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

from support import elf
from support.artifact import Artifact
from support.foreign import Foreign
from support.tool import BUILD, DIGITS, ROOT, compile_to, mcc, save, value

PAGE = 0x4000
# What artifacts take of bionic's libc.so, and the API level that has it first (libc.map.txt of bionic, of 64-bit platforms).
SINCE = {"memcpy": 21, "memmove": 21, "memset": 21, "memcmp": 21, "free": 21, "aligned_alloc": 28, "getauxval": 21, "clock_gettime": 21,
         "pthread_create": 21, "pthread_join": 21}
# Weak, and absent: libdl.so has them, which nothing asks for.
ABSENT = {"dlopen", "dlsym"}


def large(path):
    """Attention, a convolution, a sort and text: much of the runtime and of the templates."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4), helper.make_node("Softmax", ["c"], ["s"], "soft", axis=1),
             helper.make_node("TopK", ["s", "k"], ["t", "i"], "top", axis=1), helper.make_node("MatMul", ["t", "m"], ["p"], "mul"),
             helper.make_node("NonZero", ["p"], ["y"], "find"), helper.make_node("Cast", ["i"], ["z"], "text", to=TensorProto.STRING)]
    rng = np.random.default_rng(1)
    save(path, nodes, [value("x", [1, 8, 17, 17])], [value("y", [4, None], TensorProto.INT64), value("z", [1, 5, 17, 17], TensorProto.STRING)],
         {"w": rng.standard_normal((24, 8, 3, 3)).astype(np.float32), "k": np.array([5]), "m": rng.standard_normal((17, 33)).astype(np.float32)})
    return path


def readelf(path, *options):
    return subprocess.run(["readelf", "-W", *options, path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("options", [[], ["--weights=sidecar"], ["--prefix=net"]])
@pytest.mark.parametrize("arch", ["aarch64", "x86_64"])
def test_file(arch, options, tmp_path):
    """The rules of bionic's loader, on pages of 16 KiB."""
    path = compile_to(tmp_path / "libnet.so", DIGITS, f"--target={arch}-android", *options)
    assert elf.flaws(path, prefix="net_" if "--prefix=net" in options else "", library="libc.so") == []
    assert re.findall(r"NEEDED.*\[(.*)\]", readelf(path, "-d")) == ["libc.so"]
    loads = [[int(x, 16) for x in row] for row in re.findall(r"^  LOAD +(0x\w+) (0x\w+) 0x\w+ 0x\w+ (0x\w+) .* (0x\w+)$", readelf(path, "-l"), re.M)]
    assert len(loads) == (3 if "--weights=sidecar" in options else 4)
    end = 0
    for offset, address, size, align in loads:
        assert align == PAGE and offset % PAGE == address % PAGE and address // PAGE >= (end + PAGE - 1) // PAGE
        end = address + size
    start, size = [int(x, 16) for x in re.search(r"GNU_RELRO +0x\w+ (0x\w+) 0x\w+ 0x\w+ (0x\w+)", readelf(path, "-l")).groups()]
    assert (start + size) % PAGE == 0
    segment = re.search(r"DYNAMIC +(0x\w+) 0x\w+ 0x\w+ (0x\w+)", readelf(path, "-l")).groups()
    section = re.search(r"\.dynamic +DYNAMIC +\w+ (\w+) (\w+)", readelf(path, "-S")).groups()
    assert [int(x, 16) for x in segment] == [int(x, 16) for x in section]
    taken = {row.split()[7] for row in readelf(path, "--dyn-syms").splitlines() if " UND " in row and len(row.split()) > 7}
    assert taken - ABSENT <= {name for name, level in SINCE.items() if level <= 28}
    assert "aligned_alloc" in taken


def test_register_of_the_system(tmp_path):
    """Android's own code keeps a stack of return addresses in x18: no code of an artifact, and nothing of its runtime, writes it."""
    def uses(path):
        text = subprocess.run(["llvm-objdump-19", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
        return re.findall(r".*\b[wx]18\b.*", text)

    model = large(tmp_path / "net.onnx")
    assert uses(compile_to(tmp_path / "linux.so", model, "--target=aarch64-linux"))
    assert not uses(compile_to(tmp_path / "android.so", model, "--target=aarch64-android", "--variants=all"))
    assert not uses(compile_to(tmp_path / "android.o", model, "--target=aarch64-linux-android28"))
    objects = sorted((BUILD / "rt/aarch64-android").rglob("*.o"))
    assert len(objects) > 20 and not [line for path in objects for line in uses(path)]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64's answers")
@pytest.mark.parametrize("options", [[], ["--weights=sidecar"], ["--variants=all"]])
def test_answers(options, tmp_path):
    model = large(tmp_path / "net.onnx")
    x = np.random.default_rng(2).standard_normal((1, 8, 17, 17)).astype(np.float32)
    with Artifact(compile_to(tmp_path / "linux.so", model, *options)) as net:
        expected = net.call([x])
    with Foreign("aarch64") as machine:
        got = machine.call(compile_to(tmp_path / "arm.so", model, "--target=aarch64-android", *options), [x])
    for one, other in zip(expected, got):
        np.testing.assert_array_equal(one, other)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="runs code of x86-64")
def test_x86_64_answers(tmp_path):
    """On this machine: the loader finds glibc where the artifact asks for bionic. Threads, too."""
    path = compile_to(tmp_path / "libnet.so", DIGITS, "--target=x86_64-android")
    compile_to(tmp_path / "net.so", DIGITS)
    (tmp_path / "libc.so").symlink_to(re.search(r"(/\S*/libc\.so\.6)", pathlib.Path("/proc/self/maps").read_text())[1])
    program = f"""import sys, numpy; sys.path.insert(0, {str(ROOT / 'runtime')!r}); import mcc
x = numpy.random.default_rng(1).standard_normal((64, 1, 8, 8)).astype(numpy.float32)
print(mcc.load(sys.argv[1], threads=2)(x).tobytes().hex())"""
    said = [subprocess.run(["/usr/bin/env", f"LD_LIBRARY_PATH={tmp_path}", sys.executable, "-c", program, p], capture_output=True, text=True)
            for p in (path, tmp_path / "net.so")]
    assert [s.returncode for s in said] == [0, 0], said
    assert said[0].stdout == said[1].stdout and len(said[0].stdout) > 1000
    done = mcc("inspect", path)
    assert done.returncode == 0 and "x86_64-unknown-linux-android28" in done.stdout and "it is for another machine" in done.stdout


@pytest.mark.parametrize("target", ["aarch64-android", "arm64-linux-android", "aarch64-none-linux-android28", "aarch64-linux-android35",
                                    "x86_64-linux-android28", "x86_64-android30"])
def test_names(target, tmp_path):
    path = compile_to(tmp_path / "libnet.so", DIGITS, f"--target={target}")
    assert "[libc.so]" in readelf(path, "-d")


@pytest.mark.parametrize("target", ["aarch64-linux-android21", "aarch64-android27", "aarch64-android100", "riscv64-linux-android",
                                    "aarch64-linux-android28-x", "aarch64-linux-linux", "aarch64-linux-linux-android", "aarch64-linux28"])
def test_names_of_others(target, tmp_path):
    done = mcc(f"--target={target}", DIGITS, "-o", tmp_path / "libnet.so")
    assert done.returncode == 2 and "aarch64-android28, x86_64-android28" in done.stderr

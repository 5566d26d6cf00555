"""Libraries, objects and universal files for macOS and iOS: the file by LLVM's readers and by its own rules, answers, threads, sidecar and damaged
files through a loader of the tests (load_macho.c), under qemu for AArch64. No Mac is here."""
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import struct
import subprocess

import numpy as np
import pytest

from conformance import run
from hostile.artifacts import xxh64
from support.artifact import Artifact, ModelError
from support.damage import readers_answer
from support.foreign import Foreign
from support.mixed import net
from support.tool import DIGITS, ROOT, compile_to, mcc, result

X86, ARM, IOS = (f"--target={t}" for t in ("x86_64-macos", "aarch64-macos", "aarch64-ios"))
# What artifacts take of libSystem: public functions, of which those that came with macOS 14.4 may be absent.
LATER = {"os_sync_wait_on_address", "os_sync_wake_by_address_any", "os_sync_wake_by_address_all"}
TAKEN = {"memcpy", "memmove", "memset", "memcmp", "bzero", "__bzero", "__error", "clock_gettime_nsec_np", "close", "dladdr", "free", "getpid", "lseek",
         "mmap", "munmap", "open", "posix_memalign", "pthread_cond_broadcast", "pthread_cond_wait", "pthread_create", "pthread_join",
         "pthread_mutex_lock", "pthread_mutex_unlock", "pthread_sigmask", "sysconf", "sysctlbyname"}
MAGIC, FAT = b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"
here = pytest.mark.skipif(platform.machine() != "x86_64", reason="not on x86-64")


class Library:
    """The commands of a library: segments by name, sections by name, pieces of the last segment by kind."""

    def __init__(self, data):
        self.data, self.segments, self.sections, self.pieces, at = data, {}, {}, {}, 32
        magic, self.cpu, _, self.kind, n, size, self.flags, _ = struct.unpack_from("<8I", data)
        assert magic == 0xfeedfacf and size <= len(data)
        for _ in range(n):
            kind, size = struct.unpack_from("<II", data, at)
            if kind == 0x19:
                name, address, room, place, bytes_, most, access, sections, flags = struct.unpack_from("<16sQQQQIIII", data, at + 8)
                self.segments[name.rstrip(b"\0").decode()] = (address, room, place, bytes_, most, access, flags)
                for row in struct.iter_unpack("<16s16sQQ8I", data[at + 72:at + 72 + 80 * sections]):
                    self.sections[row[0].rstrip(b"\0").decode()] = row[2:5]
            elif kind == 0xd:
                self.name = data[at + 24:at + size].split(b"\0")[0].decode()
            elif kind in (2, 0x1d, 0x26, 0x29, 0x80000033, 0x80000034):
                self.pieces[kind] = struct.unpack_from("<4I" if kind == 2 else "<2I", data, at + 8)
            at += size


def check_signature(library):
    """Each page's hash, and that the signature ends the file."""
    data, (at, size) = library.data, library.pieces[0x1d]
    assert at % 16 == 0 and at + size == len(data)
    magic, length, count, slot, offset = struct.unpack_from(">5I", data, at)
    assert (magic, length, count, slot) == (0xfade0cc0, size, 1, 0)
    d = at + offset
    (magic, length, version, flags, hashes, name, special, pages, limit, digest, kind, _, shift) = struct.unpack_from(">9I4B", data, d)
    assert (magic, length, version, flags, special, digest, kind, shift) == (0xfade0c02, size - offset, 0x20400, 0x20002, 0, 32, 2, 12)
    assert struct.unpack_from(">QQQ", data, d + 64) == (0, library.segments["__TEXT"][3], 0) and data[d + name:d + name + 6] == b"model\0"
    assert limit == at and pages == (limit + 4095) // 4096 and hashes + 32 * pages == length
    for i in range(pages):
        assert data[d + hashes + 32 * i:d + hashes + 32 * i + 32] == hashlib.sha256(data[4096 * i:min(4096 * i + 4096, limit)]).digest(), i


@pytest.mark.parametrize("target", [X86, ARM, IOS])
@pytest.mark.parametrize("options", [[], ["--weights=sidecar"], ["--prefix=net"]])
def test_file(target, options, tmp_path):
    path = compile_to(tmp_path / "net Ä.dylib", DIGITS, target, *options)
    library = Library(path.read_bytes())
    assert library.kind == 6 and library.name == "@rpath/net Ä.dylib" and library.cpu == (0x1000007 if target == X86 else 0x100000c)
    names = ["__TEXT", "__DATA_CONST", "__DATA"] + ["__MCC"] * ("--weights=sidecar" not in options) + ["__LINKEDIT"]
    assert list(library.segments) == names
    address = place = 0
    for name, (at, room, offset, size, most, access, flags) in library.segments.items():
        assert at == address and offset == place and at % 4096 == offset % 4096 == 0 and size <= room, name
        assert (most, access) == {"__TEXT": (5, 5), "__MCC": (1, 1), "__LINKEDIT": (1, 1)}.get(name, (3, 3))
        assert flags == (0x10 if name == "__DATA_CONST" else 0)
        address, place = at + room, offset + size
    assert place == len(library.data) and address % (4096 if target == X86 else 16384) == 0
    start = library.segments["__LINKEDIT"][2]
    for kind, (at, size, *more) in library.pieces.items():
        assert start <= at and at + (16 * size if kind == 2 else size) <= len(library.data)
    check_signature(library)
    text = subprocess.run(["llvm-objdump-19", "--macho", "--private-headers", "--chained-fixups", "--exports-trie", "--dylibs-used", path],
                          capture_output=True, text=True, check=True).stdout
    query = "net_mcc_query" if "--prefix=net" in options else "mcc_query"
    assert re.findall(r"^0x\w+ +_(\w+)$", text, re.M) == [query]
    imports = re.findall(r"weak_import = (\d)\n +name_offset = \d+ \(_(\w+)\)", text)
    assert {name for weak, name in imports if weak == "0"} <= TAKEN and {name for weak, name in imports if weak == "1"} == LATER
    assert "pointer_format = 2" in text and len(re.findall(r"/usr/lib/libSystem.B.dylib \(comp", text)) == 1
    assert re.search(r"platform (macos|ios)", text)[1] == ("ios" if target == IOS else "macos") and f"minos {14 if target == IOS else 11}.0" in text
    listed = subprocess.run(["llvm-nm-19", path], capture_output=True, text=True, check=True).stdout
    assert re.search(r"t _k\d+_\w+\.\S*Conv", listed) or re.search(r"t _k\d+_\w+\.", listed)


@pytest.mark.parametrize("target,cpu", [("aarch64-macos", "ARM64"), ("arm64-apple-macos11", "ARM64"), ("arm64-apple-macosx12.0", "ARM64"),
                                        ("aarch64-apple-darwin", "ARM64"), ("x86_64-apple-macos", "X86_64"), ("x86_64-macos13.4", "X86_64"),
                                        ("aarch64-ios", "ARM64"), ("arm64-apple-ios15", "ARM64")])
def test_names(target, cpu, tmp_path):
    path = compile_to(tmp_path / "net.dylib", DIGITS, f"--target={target}", "-march=" + ("armv8-a" if cpu == "ARM64" else "x86-64-v2"))
    assert cpu in subprocess.run(["llvm-objdump-19", "--macho", "--private-header", path], capture_output=True, text=True, check=True).stdout


def test_names_refused(tmp_path):
    for target in ("aarch64-macos10", "x86_64-ios", "aarch64-ios13", "aarch64-macosy"):
        done = mcc(DIGITS, f"--target={target}", "-o", tmp_path / "net.dylib")
        assert done.returncode == 2 and "there is no code for the target" in done.stderr and "aarch64-macos11" in done.stderr


def test_same_bytes(tmp_path):
    """Whatever the folder and the number of workers; another name is another library."""
    (tmp_path / "a").mkdir()
    one = compile_to(tmp_path / "a/net.dylib", DIGITS, ARM, "-j1").read_bytes()
    assert one == compile_to(tmp_path / "net.dylib", DIGITS, ARM, "-j2").read_bytes()
    other = compile_to(tmp_path / "other.dylib", DIGITS, ARM, "-j2").read_bytes()
    assert len(one) == len(other) and one != other and Library(other).name == "@rpath/other.dylib"


@pytest.mark.parametrize("options,says", [
    (["-o", "n.so"], "for macOS and iOS mcc makes a library (.dylib), an object (.o) or an archive (.a)"),
    (["-o", "n.dll"], "files of Windows are for"), (["-o", "n.exe"], "for macOS and iOS mcc makes a library"),
    (["-c", "-o", "n.dylib"], "for macOS and iOS mcc makes a library"), (["-g", "-o", "n.dylib"], "'g': files of macOS and iOS have no line tables"),
    (["--emit=static", "-o", "n.a"], "no static networks for macOS")])
def test_what_is_not_made(options, says, tmp_path):
    done = mcc(X86, DIGITS, *options, cwd=tmp_path)
    assert done.returncode == 2 and says in done.stderr and not list(tmp_path.iterdir())


def test_dylib_for_others(tmp_path):
    for words in ([], ["--target=x86_64-windows"]):
        done = mcc(DIGITS, *words, "-o", tmp_path / "n.dylib")
        assert done.returncode == 2 and "libraries of macOS and iOS are for --target=aarch64-macos" in done.stderr
    path = compile_to(tmp_path / "n.dylib", DIGITS, X86)
    for command in ("run", "bench"):
        done = mcc(command, path, cwd=tmp_path)
        assert done.returncode == 3 and "cannot load: " in done.stderr and "a library or program for macOS" in done.stderr, done.stderr
    for command in ("compile", "diff", "check", "eval"):
        done = mcc(command, path, cwd=tmp_path)
        assert done.returncode == 1 and "it looks like a library or program of macOS" in done.stderr, (command, done.returncode, done.stderr)


@pytest.mark.parametrize("command", ["run", "bench", "diff"])
def test_only_compiled(command, tmp_path):
    done = mcc(command, DIGITS, X86, cwd=tmp_path)
    assert done.returncode == 2 and "cannot run code for x86_64-macos" in done.stderr and not list(tmp_path.iterdir()), done.stderr


@pytest.mark.parametrize("name", ["net.dylib", "net.o", "net.a"])
@pytest.mark.parametrize("options", [[], ["--weights=sidecar"], ["--prefix=net"]])
def test_inspected(name, options, tmp_path):
    """What is read of it is what is read of the same for Linux."""
    here, there = (result("inspect", "--verify", compile_to(tmp_path / n, DIGITS, *options, *target))
                   for n, target in (("linux." + name.split(".")[1].replace("dylib", "so"), []), (name, [X86])))
    for at in ("name", "inputs", "outputs", "symbols", "kernels"):
        assert here[at] == there[at], at
    sizes = [n["bytes"] for n in (here, there)]
    assert sizes[0]["weights"] == sizes[1]["weights"] and sizes[0]["graph"] == sizes[1]["graph"]
    for one, other in zip(sizes[0]["variants"], sizes[1]["variants"]):
        assert 0.8 * one["code"] < other["code"] < 1.3 * one["code"]
    assert there["bytes"]["file"] == (tmp_path / name).stat().st_size
    assert mcc("report", tmp_path / name, "-q", "-o", tmp_path / "net.html").returncode == 0


@pytest.mark.parametrize("target", [X86, ARM, IOS])
@pytest.mark.parametrize("name", ["net.o", "net.a"])
def test_object(name, target, tmp_path):
    """One name is defined, those of the system are asked for; the index of an archive has it."""
    path = compile_to(tmp_path / name, DIGITS, target, "--prefix=net")
    listed = subprocess.run(["llvm-nm-19", "-g", path], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"[A-TV-Z] (\w+)$", listed, re.M) == ["_net_mcc_query"]
    assert {n[1:] for n in re.findall(r"[Uw] (\w+)$", listed, re.M)} <= TAKEN | LATER
    assert mcc("inspect", path).returncode == 0
    if name == "net.a":
        table = subprocess.run(["llvm-nm-19", "--print-armap", path], capture_output=True, text=True, check=True).stdout
        assert "_net_mcc_query in model.o" in table
    text = subprocess.run(["llvm-readobj-19", "--file-headers", "--sections", "--macho-version-min", path], capture_output=True, text=True,
                          check=True).stdout
    assert f"Platform: {'ios' if target == IOS else 'macos'}" in text
    assert compile_to(tmp_path / f"again.{name[-1]}", DIGITS, target, "--prefix=net", "-j2").read_bytes() == path.read_bytes()


STUB = """--- !tapi-tbd
tbd-version: 4
targets: [ x86_64-macos, arm64-macos ]
install-name: '/usr/lib/libSystem.B.dylib'
exports:
  - targets: [ x86_64-macos, arm64-macos ]
    symbols: [ %s ]
...
"""
LINKED = """
#define NULL 0
#define NET_IMPLEMENTATION
#include "net.h"
const mcc_api *other_mcc_query(unsigned abi);
int test_main(float *y)
{
    static float x[2][1][8][8];
    mcc_model *model;
    mcc_error error;
    for (int i = 0; i < 128; i++)
        x[i / 64][0][i / 8 % 8][i % 8] = (float)(i * 37 % 17) / 17;
    return net_run(2, x, (void *)y) || other_mcc_query(1)->open(0, &model, &error);
}
"""
CALL = """
#include <stdio.h>
#include "tests/targets/load_macho.h"
int main(int argc, char **argv)
{
    float y[20];
    void *library = macho_open(argv[argc - 1], 0), *found = library ? macho_symbol(library, "test_main") : NULL;
    int (*call)(float *) = (int (*)(float *))found;
    if (!call || call(y))
        return puts(library ? "failed" : macho_error()), 1;
    for (int i = 0; i < 20; i++)
        printf("%.9g ", y[i]);
    return 0;
}
"""


@here
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("name", ["net.o", "net.a"])
def test_linked(name, machine, tmp_path):
    """A library with two networks linked in, by lld; against the same network's own library."""
    target, arch = f"--target={machine}-macos", {"aarch64": "arm64"}.get(machine, machine)
    compile_to(tmp_path / name, DIGITS, target, "--prefix=net", "--emit=header")
    compile_to(tmp_path / f"other.{name[-1]}", DIGITS, target, "--prefix=other")
    (tmp_path / "main.c").write_text(LINKED)
    (tmp_path / "call.c").write_text(CALL)
    (tmp_path / "system.tbd").write_text(STUB % ", ".join("_" + n for n in sorted(TAKEN | LATER)))
    subprocess.run(["clang-19", f"--target={arch}-apple-macos11", "-O1", "-ffreestanding", "-fno-stack-protector", "-nostdinc", "-isystem",
                    subprocess.run(["clang-19", "-print-resource-dir"], capture_output=True, text=True).stdout.strip() + "/include",
                    f"-I{ROOT}/runtime", "-c", "-o", tmp_path / "main.o", tmp_path / "main.c"], check=True)
    subprocess.run(["ld64.lld-19", "-arch", arch, "-platform_version", "macos", "11.0", "11.0", "-dylib", "-dead_strip", "-fixup_chains", "-exported_symbol",
                    "_test_main", "-o", tmp_path / "all.dylib", tmp_path / "main.o", tmp_path / name, tmp_path / f"other.{name[-1]}",
                    tmp_path / "system.tbd"], check=True, capture_output=True)
    unwinding = subprocess.run(["llvm-objdump-19", "--macho", "--unwind-info", tmp_path / "all.dylib"], capture_output=True, text=True, check=True).stdout
    assert unwinding.count("funcOffset") + unwinding.count("function offset") > 40
    subprocess.run(["clang-19", f"--target={machine}-linux-gnu", "-fuse-ld=lld", "-std=gnu11", "-O1", "-D_GNU_SOURCE", f"-I{ROOT}", "-o", tmp_path / "call",
                    tmp_path / "call.c", ROOT / "tests/targets/load_macho.c", "-lpthread", "-ldl"], check=True)
    emulator = [] if machine == "x86_64" else ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
    done = subprocess.run([*emulator, tmp_path / "call", tmp_path / "all.dylib"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    x = (np.arange(128, dtype=np.float32) * 37 % 17 / np.float32(17)).reshape(2, 1, 8, 8)
    with Foreign(f"{machine}-macos") as machine_:
        expected = machine_.call(compile_to(tmp_path / "net.dylib", DIGITS, target), [x])[0]
    np.testing.assert_array_equal(np.array(done.stdout.split(), np.float32).reshape(2, 10), expected)


@here
def test_frames(tmp_path):
    """Frames of a merged object name its functions: each function that has one begins where a frame says."""
    path = compile_to(tmp_path / "net.o", DIGITS, X86, "-march=x86-64-v2")
    text = subprocess.run(["llvm-dwarfdump-19", "--eh-frame", path], capture_output=True, text=True, check=True).stdout
    begins = {int(a, 16) for a in re.findall(r"FDE cie=\w+ pc=(\w+)\.\.\.", text)}
    listed = subprocess.run(["llvm-nm-19", path], capture_output=True, text=True, check=True).stdout
    functions = {int(a, 16) for a in re.findall(r"^(\w+) [tT] ", listed, re.M)}
    assert len(begins) > 60 and begins <= functions


# ---- running ----

@here
@pytest.mark.parametrize("old", ["0", "1"])
@pytest.mark.parametrize("options", [[], ["--weights=sidecar"], ["-march=x86-64-v2"], ["--variants=v3"]])
def test_answers(options, old, monkeypatch, tmp_path):
    """The bits of the same code on Linux; old: of a macOS without waiting on addresses."""
    monkeypatch.setenv("MACHO_OLD", old)
    model = net(tmp_path / "net.onnx")
    x = np.random.default_rng(2).standard_normal((1, 16, 57, 57)).astype(np.float32)
    with Artifact(compile_to(tmp_path / "net.so", model, *options)) as linux:
        expected = linux.call([x])
    with Foreign("x86_64-macos") as machine:
        path = compile_to(tmp_path / "net.dylib", model, X86, *options)
        for _ in range(20):
            for one, other in zip(expected, machine.call(path, [x])):
                np.testing.assert_array_equal(one, other)


THREADS = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "runtime/mcc_load.h"
enum { N = 1500 };
static float x[N * 64], one[N * 10], many[N * 10];
static int run(int threads, float *y, int times)
{
    static int64_t shape[4] = {N, 1, 8, 8}, out_shape[2] = {N, 10};
    mcc_host host = {.size = sizeof host, .threads = (uint32_t)threads};
    mcc_lib *lib;
    mcc_ctx *ctx;
    mcc_error e;
    DLTensor in = {.data = x, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = shape}, out = in;
    const DLTensor *ins[] = {&in};
    DLTensor *outs[] = {&out};
    out.data = y, out.ndim = 2, out.shape = out_shape;
    if (mcc_load("net.dylib", &host, &lib, &e) || lib->api->ctx_new(lib->model, NULL, 0, &ctx, &e))
        return puts(e.text);
    for (int i = 0; i < times; i++) {
        memset(y, 0, sizeof one);
        if (lib->api->run(ctx, ins, outs, &e))
            return puts(e.text);
        if (i % 8 == 0)
            usleep(1000); /* workers fall asleep */
        if (threads > 1 && memcmp(one, many, sizeof one))
            return puts("other bits");
    }
    lib->api->ctx_free(ctx);
    mcc_unload(lib);
    return 0;
}
int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 0;
    for (int i = 0; i < N * 64; i++)
        x[i] = (float)(i * 37 % 101) / 101;
    return run(1, one, 1) || run(4, many, times) || run(2, many, times);
}
"""


@here
@pytest.mark.parametrize("old", ["0", "1"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_threads(machine, old, tmp_path):
    """Workers wait on addresses, or before macOS 14.4 by a mutex and a condition."""
    compile_to(tmp_path / "net.dylib", DIGITS, f"--target={machine}-macos")
    (tmp_path / "main.c").write_text(THREADS)
    subprocess.run(["clang-19", f"--target={machine}-linux-gnu", "-fuse-ld=lld", "-std=gnu11", "-O1", "-D_GNU_SOURCE", f"-I{ROOT}", "-include",
                    ROOT / "tests/targets/load_macho.h", "-o", tmp_path / "main", tmp_path / "main.c", ROOT / "runtime/mcc_load_macos.c",
                    ROOT / "tests/targets/load_macho.c", "-lpthread", "-ldl"], check=True)
    emulator = [] if machine == "x86_64" else ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
    times = "200" if machine == "x86_64" else "1"
    done = subprocess.run([*emulator, tmp_path / "main", times], cwd=tmp_path, capture_output=True, text=True, timeout=300,
                          env={**os.environ, "MACHO_OLD": old})
    assert done.returncode == 0, (done.stdout, done.stderr)


@here
@pytest.mark.parametrize("options", [[], ["--weights=sidecar"]])
def test_arm_answers(options, tmp_path):
    model = net(tmp_path / "net.onnx")
    x = np.random.default_rng(2).standard_normal((1, 16, 57, 57)).astype(np.float32)
    for row in ("armv8-a,armv8.2-a-dotprod", "apple-m1"):
        with Foreign("aarch64") as linux, Foreign("aarch64-macos") as mac:
            expected = linux.call(compile_to(tmp_path / "net.so", model, "--target=aarch64-linux", f"-march={row}", *options), [x])
            path = compile_to(tmp_path / "net.dylib", model, ARM, f"-march={row}", *options)
            for _ in range(3):
                for one, other in zip(expected, mac.call(path, [x])):
                    np.testing.assert_array_equal(one, other)


@here
def test_arm_refuses_lesser_cpus(tmp_path):
    path = compile_to(tmp_path / "net.dylib", DIGITS, ARM, "-march=armv8.6-a-i8mm")
    with Foreign("aarch64-macos", "cortex-a57") as machine, pytest.raises(ModelError, match="i8mm"):
        machine.call(path, [np.zeros((1, 1, 8, 8), np.float32)])


@here
@pytest.mark.parametrize("target,every", [("x86_64-macos", 60), ("aarch64-macos", 300)])
def test_suite(target, every):
    """A part of the ONNX suite's cases; make conformance TARGET=x86_64-macos: all."""
    results = run.run(run.passing()[7::every], [f"--target={target}", "-march=" + ("native" if target == "x86_64-macos" else "armv8.6-a-i8mm")])
    assert len(results) > 5 and {r for r in results.items() if r[1][0] != "passed"} == set()


@here
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_state(machine, tmp_path):
    """A network with state has a second table, which others have not."""
    model, target, data = ROOT / "tests/pt2/data/keeping.pt2", f"--target={machine}-macos", np.load(ROOT / "tests/pt2/data/keeping.npz")
    with Foreign(f"{machine}-macos") as mac:
        for n, y in enumerate(mac.call(compile_to(tmp_path / "net.dylib", model, target), [data["0.in.0"]])):
            np.testing.assert_allclose(y, data[f"0.out.{n}"], rtol=1e-5, atol=1e-6)
    for suffix in ("o", "a"):
        compile_to(tmp_path / f"net.{suffix}", model, target)
        assert mcc("inspect", tmp_path / f"net.{suffix}").returncode == 0


# ---- universal files ----

@here
@pytest.mark.parametrize("order", ["aarch64-macos,x86_64-macos", "x86_64-macos,aarch64-macos"])
def test_universal(order, tmp_path):
    path = compile_to(tmp_path / "net.dylib", DIGITS, f"--target={order}", "-MD")
    data = path.read_bytes()
    names = order.split(",")
    assert data[:8] == FAT + (2).to_bytes(4, "big")
    x = np.random.default_rng(3).random((2, 1, 8, 8), np.float32)
    (tmp_path / "one").mkdir()
    for i, name in enumerate(names):
        cpu, _, at, size, align = struct.unpack_from(">5I", data, 8 + 20 * i)
        alone = compile_to(tmp_path / "one/net.dylib", DIGITS, f"--target={name}")
        assert data[at:at + size] == alone.read_bytes() and at % 2**align == 0 and align == 14
        with Foreign(name) as machine:
            np.testing.assert_array_equal(machine.call(path, [x])[0], machine.call(alone, [x])[0])
    assert at + size == len(data)
    said = subprocess.run(["llvm-lipo-19", "-archs", path], capture_output=True, text=True, check=True).stdout
    assert set(said.split()) == {"arm64", "x86_64"}
    first = result("inspect", "--verify", path)
    assert first["target"].startswith(names[0].split("-")[0])
    assert (tmp_path / "net.d").read_text().startswith(str(path).replace(" ", "\\ ") + ":")
    assert compile_to(tmp_path / "one/net.dylib", DIGITS, f"--target={order}", "-j2").read_bytes() == data


@pytest.mark.parametrize("words,says", [
    (["--target=aarch64-macos,aarch64-macos"], "each architecture once"), (["--target=aarch64-macos,aarch64-ios"], "one system"),
    (["--target=x86_64-linux,aarch64-linux"], "universal files are for macOS"), (["--target=aarch64-macos,"], "several targets"),
    (["--target=aarch64-macos,nothing"], "there is no code for the target 'nothing'"), (["--target=aarch64-macos,x86_64-macos", "-c"], "'c': a list"),
    (["--target=aarch64-macos,x86_64-macos", "--weights=sidecar"], "'weights': a list"),
    (["--target=aarch64-macos,x86_64-macos", "--save-temps"], "'save-temps': a list"),
    (["--target=aarch64-macos,x86_64-macos", "-fsave-optimization-record"], "'fsave-optimization-record': a list"),
    (["--target=aarch64-macos,x86_64-macos", "-o", "net.a"], "a universal file is a library (.dylib)"),
    (["--target=aarch64-macos,x86_64-macos", "--emit=header"], "'emit': a list")])
def test_universal_refused(words, says, tmp_path):
    done = mcc(DIGITS, *words, cwd=tmp_path)
    assert done.returncode == 2 and says in done.stderr and not list(tmp_path.iterdir()), done.stderr


@pytest.mark.parametrize("command", ["run", "bench", "diff", "report"])
def test_universal_only_compiled(command, tmp_path):
    done = mcc(command, DIGITS, "--target=aarch64-macos,x86_64-macos", cwd=tmp_path)
    assert done.returncode == 2 and "only mcc compile takes a list of targets" in done.stderr and not list(tmp_path.iterdir()), done.stderr


def test_texts(tmp_path):
    """Assembly and headers; the library that a header is for is linked, or loaded."""
    assert ".build_version macos, 11, 0" in compile_to(tmp_path / "n.s", DIGITS, ARM, "-S").read_text()
    compile_to(tmp_path / "net.dylib", DIGITS, ARM, "--emit=header")
    assert "net_run" in (tmp_path / "net.h").read_text()


# ---- signed anew, damaged ----

def signed_anew(data):
    """As codesign does it: another signature, longer than the linker's."""
    data = bytearray(data)
    at = 32
    for _ in range(struct.unpack_from("<I", data, 16)[0]):
        kind, size = struct.unpack_from("<II", data, at)
        if kind == 0x1d:
            start, old = struct.unpack_from("<II", data, at + 8)
            struct.pack_into("<I", data, at + 12, old + 18000)
        if kind == 0x19 and data[at + 8:at + 18] == b"__LINKEDIT":
            last = at
        at += size
    place = struct.unpack_from("<Q", data, last + 40)[0]
    struct.pack_into("<Q", data, last + 48, start + old + 18000 - place)
    struct.pack_into("<Q", data, last + 32, (start + old + 18000 - place + 16383) // 16384 * 16384)
    return bytes(data[:start]) + os.urandom(old + 18000)


def module_for_mac(monkeypatch, machine="x86_64"):
    """runtime/mcc.py, which takes this for a Mac."""
    spec = importlib.util.spec_from_file_location("mcc_for_macos", ROOT / "runtime/mcc.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.platform, "machine", lambda: machine)
    return module


@here
def test_signed_anew(monkeypatch, tmp_path):
    """Whoever ships a library signs it with a certificate: it is still what mcc made."""
    path = compile_to(tmp_path / "net.dylib", DIGITS, X86)
    data = signed_anew(path.read_bytes())
    path.write_bytes(data)
    with Foreign("x86_64-macos") as machine:
        assert machine.call(path, [np.zeros((1, 1, 8, 8), np.float32)])[0].shape == (1, 10)
    assert mcc("inspect", "--verify", path).returncode == 0
    assert module_for_mac(monkeypatch)._Dylib(path).query == "mcc_query"
    path.write_bytes(data[:9000] + bytes([data[9000] ^ 1]) + data[9001:])
    with Foreign("x86_64-macos") as machine, pytest.raises(ModelError, match="hash differs"):
        machine.call(path, [np.zeros((1, 1, 8, 8), np.float32)])
    assert mcc("inspect", path).returncode == 3


def sealed(data):
    """The bytes with a hash that fits, if their note and commands can be found."""
    note, at, zeros = data.find(b"\4\0\0\0\x78\0\0\0\1\0\0\0mcc\0"), 32, []
    if note < 0 or note + 136 > len(data):
        return data
    data = bytearray(data)
    limit, end = len(data), min(len(data), 32 + struct.unpack_from("<I", data, 20)[0])
    while at + 56 <= end:
        kind, size = struct.unpack_from("<II", data, at)
        if kind == 0x1d:
            limit = min(limit, struct.unpack_from("<I", data, at + 8)[0])
            zeros.append((at + 12, 4))
        if kind == 0x19 and data[at + 8:at + 18] == b"__LINKEDIT":
            zeros += [(at + 32, 8), (at + 48, 8)]
        at += max(size, 8)
    struct.pack_into("<Q", data, note + 24, limit)
    at, size = struct.unpack_from("<QQ", data, note + 32)
    struct.pack_into("<Q", data, note + 48, 0)
    plain = bytearray(data[:limit])
    for place, n in zeros:
        plain[place:place + n] = bytes(n)
    struct.pack_into("<Q", data, note + 48, xxh64(plain[:at] + plain[at + size:]))
    return bytes(data)


def test_damaged_to_readers(tmp_path):
    """500 damaged libraries, objects and universal files: an answer or one error from everything that reads artifacts."""
    options = [["-march=x86-64-v2", X86], ["--weights=sidecar", "-march=armv8-a", ARM], ["--prefix=net", "-march=armv8-a", IOS]]
    good = [compile_to(tmp_path / f"{i}.dylib", DIGITS, *words).read_bytes() for i, words in enumerate(options)]
    good.append(compile_to(tmp_path / "3.o", DIGITS, *options[0]).read_bytes())
    good.append(compile_to(tmp_path / "4.dylib", DIGITS, "--target=x86_64-macos,aarch64-macos").read_bytes())
    readers_answer(tmp_path / "bad.dylib", good, 2048, [sealed] * 3 + [bytes] * 2)


@here
@pytest.mark.parametrize("options", [[X86, "-march=x86-64-v2"], ["--target=aarch64-macos,x86_64-macos"]])
def test_damaged(options, monkeypatch, tmp_path):
    """Each is an error with a text of the loaders, mcc_load_macos.c and mcc.py, and the process goes on."""
    good = compile_to(tmp_path / "net.dylib", DIGITS, *options).read_bytes()
    base = next(at for cpu, _, at, *_ in struct.iter_unpack(">5I", good[8:48]) if cpu == 0x1000007) if good[:4] == FAT else 0
    weights, x, rng = Library(good[base:]).segments["__MCC"][2], np.zeros((1, 1, 8, 8), np.float32), np.random.default_rng(4)
    files = {"empty": b"", "magic": MAGIC, "short": good[:base + 1000], "cut": good[:-1], "elf": b"\x7fELF" + good[4:],
             "fat": FAT, "slices": FAT + b"\0\0\0\7" + good[8:100], "other": good[:base + 4] + b"\x0c" + good[base + 5:]}
    loose, at = set(), 32       # the lengths that a signature changes
    for _ in range(struct.unpack_from("<I", good, base + 16)[0]):
        kind, size = struct.unpack_from("<II", good, base + at)
        loose |= set(range(at + 12, at + 16)) if kind == 0x1d else set()
        loose |= {*range(at + 32, at + 40), *range(at + 48, at + 56)} if good[base + at + 8:base + at + 18] == b"__LINKEDIT" else set()
        at += size
    for i in range(500):
        at = int(rng.choice(list(set(range(40, 2048)) - loose))) if i % 3 == 0 else int(rng.integers(2048, weights))
        files[f"flip{i}"] = good[:base + at] + bytes([good[base + at] ^ 1 << int(rng.integers(0, 8))]) + good[base + at + 1:]
    module, path = module_for_mac(monkeypatch), tmp_path / "bad.dylib"
    with Foreign("x86_64-macos") as machine:
        for name, data in files.items():
            path.write_bytes(data)
            with pytest.raises(ModelError):
                machine.call(path, [x])
            if not name.startswith("flip") or int(name[4:]) % 10 == 0:
                with pytest.raises(OSError):
                    module._Dylib(path)
        with pytest.raises(ModelError, match="cannot be opened"):
            machine.call(tmp_path / "nothing.dylib", [x])
        assert machine.call(tmp_path / "net.dylib", [x])[0].shape == (1, 10)
    assert module._Dylib(tmp_path / "net.dylib").query == "mcc_query"


@here
def test_sidecar_damaged(tmp_path):
    sidecar = compile_to(tmp_path / "side.dylib", DIGITS, X86, "--weights=sidecar")
    (tmp_path / "side.mccw").write_bytes((tmp_path / "side.mccw").read_bytes()[:-64])
    with Foreign("x86_64-macos") as machine, pytest.raises(ModelError, match="bytes where"):
        machine.call(sidecar, [np.zeros((1, 1, 8, 8), np.float32)])


def test_python(monkeypatch, tmp_path):
    """What of mcc.py is for macOS: its checks. No Python for macOS is here."""
    module = module_for_mac(monkeypatch, "arm64")
    assert module._Dylib(compile_to(tmp_path / "net.dylib", DIGITS, ARM, "--prefix=net")).query == "net_mcc_query"
    assert module._Dylib(compile_to(tmp_path / "both.dylib", DIGITS, "--target=x86_64-macos,aarch64-macos")).base > 0
    for text, words, name in (("a file for Linux", [], "net.so"), ("another kind of machine", [X86], "intel.dylib"),
                              ("not a dynamic library", [ARM], "net.o")):
        with pytest.raises(OSError, match=text):
            module._Dylib(compile_to(tmp_path / name, DIGITS, *words))
    with pytest.raises(OSError, match="a library or program for macOS"):
        module._File(tmp_path / "net.dylib")
    library = type("Loaded", (), {"mcc_query": None})
    monkeypatch.setattr(module.c, "CDLL", lambda name: library)
    with pytest.raises(OSError, match="lacks the function net_mcc_query"):
        module._Dylib(tmp_path / "net.dylib").load()

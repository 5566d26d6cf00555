"""DLLs for Windows: the file by LLVM's reader, answers, threads, sidecar and damaged files under Wine. No Windows is here."""
import ctypes
import importlib.util
import os
import platform
import re
import shutil
import struct
import subprocess
import types

import numpy as np
import pytest

from conformance import run
from hostile.artifacts import xxh64
from support import wine as under_wine
from support.artifact import Artifact, ModelError
from support.damage import damaged, readers_answer
from support.foreign import Foreign
from support.mixed import net
from support.tool import BUILD, DIGITS, ROOT, compile_to, mcc, result
from support.wine import GCC, TARGET, WINE
# What artifacts take of Windows 8 and later.
TAKEN = {"api-ms-win-core-synch-l1-2-0.dll": {"WaitOnAddress", "WakeByAddressAll", "WakeByAddressSingle"},
         "KERNEL32.dll": {"CloseHandle", "CreateFileMappingW", "CreateFileW", "CreateThread", "GetCurrentProcess", "GetFileSizeEx", "GetLastError",
                          "GetModuleFileNameW", "GetModuleHandleExW", "GetProcessAffinityMask", "GetProcessHeap", "HeapAlloc", "HeapFree",
                          "MapViewOfFile", "MultiByteToWideChar", "QueryPerformanceCounter", "QueryPerformanceFrequency", "UnmapViewOfFile",
                          "WaitForSingleObject", "WideCharToMultiByte"}}


@pytest.mark.parametrize("options", [[], ["--weights=sidecar"], ["--prefix=net"]])
def test_file(options, tmp_path):
    path = compile_to(tmp_path / "net.dll", DIGITS, TARGET, *options)
    text = subprocess.run(["llvm-readobj-19", "--file-headers", "--sections", "--coff-imports", "--coff-exports", "--coff-basereloc", "--symbols", path],
                          capture_output=True, text=True, check=True).stdout
    query = "net_mcc_query" if "--prefix=net" in options else "mcc_query"
    assert re.findall(r"Export \{[^}]*Name: (\w+)", text) == [query]
    taken = {part.split()[0]: set(re.findall(r"Symbol: (\w+)", part)) for part in text.split("Import {\n  Name: ")[1:]}
    assert set(taken) == set(TAKEN) and all(taken[name] <= TAKEN[name] for name in taken)
    sections = re.findall(r"Name: ([.\w]+) .*\n +VirtualSize: (\w+)\n +VirtualAddress: (\w+)\n +RawDataSize: (\d+)\n +PointerToRawData: (\w+)", text)
    names = [s[0] for s in sections]
    assert names == [".text", ".rdata", ".pdata", ".mccnote", ".mccrt"] + [".mccw"] * ("--weights=sidecar" not in options) + [".reloc", ".mccb", ".mccg"]
    end = raw_end = 0
    for _, size, address, raw, at in sections:
        assert int(address, 16) >= end and int(at, 16) >= raw_end and int(raw) % 512 == 0
        end, raw_end = int(address, 16) + int(size, 16), int(at, 16) + int(raw)
    assert raw_end == int(re.search(r"PointerToSymbolTable: (\w+)", text)[1], 16) < path.stat().st_size
    data, rva = path.read_bytes(), int(re.search(r"ExportTableRVA: (\w+)", text)[1], 16)

    def at_rva(rva):
        return next(rva - int(at, 16) + int(raw, 16) for _, _, at, size, raw in sections if 0 <= rva - int(at, 16) < int(size))
    own_name = at_rva(struct.unpack_from("<I", data, at_rva(rva) + 12)[0])
    assert data[own_name:own_name + 10] == b"model.dll\0"
    assert int(re.search(r"SizeOfImage: (\d+)", text)[1]) == (end + 4095) // 4096 * 4096
    for word in ("DYNAMIC_BASE", "NX_COMPAT", "HIGH_ENTROPY_VA", "IMAGE_FILE_DLL"):
        assert word in text
    assert text.count("Type: DIR64") > 50
    assert not re.search(r"Characteristics \[ \(0x[^]]*EXECUTE[^]]*WRITE", text)


@pytest.mark.parametrize("target", ["x86_64-windows", "x86_64-pc-windows-msvc", "x86_64-w64-windows-gnu", "aarch64-windows", "arm64-pc-windows-msvc"])
def test_names(target, tmp_path):
    assert compile_to(tmp_path / "net.dll", DIGITS, f"--target={target}").read_bytes()[:2] == b"MZ"


def test_same_bytes(tmp_path):
    """Whatever the name, the folder and the number of workers."""
    (tmp_path / "a").mkdir()
    one = compile_to(tmp_path / "a/one.dll", DIGITS, TARGET, "-j1").read_bytes()
    assert one == compile_to(tmp_path / "other.dll", DIGITS, TARGET, "-j2").read_bytes()


@pytest.mark.parametrize("options,says", [
    (["-o", "n.so"], "for Windows mcc makes a library (.dll), an object (.obj) or an archive (.lib)"),
    (["-o", "n.exe"], "for Windows mcc makes a library"), (["-c", "-o", "n.dll"], "for Windows mcc makes a library"),
    (["--emit=header", "-o", "n.dll"], "a DLL is loaded (mcc_load_windows.c): make a .lib or .obj")])
def test_what_is_not_made(options, says, tmp_path):
    done = mcc(TARGET, DIGITS, *options, cwd=tmp_path)
    assert done.returncode == 2 and says in done.stderr and not list(tmp_path.iterdir())


def test_dll_for_others(tmp_path):
    for suffix in ("dll", "lib", "obj"):
        done = mcc(DIGITS, "-o", tmp_path / f"n.{suffix}")
        assert done.returncode == 2 and "files of Windows are for --target=x86_64-windows" in done.stderr
    path = compile_to(tmp_path / "n.dll", DIGITS, TARGET)
    for command in ("run", "bench"):
        done = mcc(command, path, cwd=tmp_path)
        assert done.returncode == 3 and "n.dll: error: cannot load: n.dll: a DLL or program for Windows" in done.stderr.replace(f"{tmp_path}/", ""), done.stderr
    for command in ("compile", "diff", "check", "eval"):
        done = mcc(command, path, cwd=tmp_path)
        assert done.returncode == 1 and "it looks like a DLL or program of Windows" in done.stderr, (command, done.returncode, done.stderr)


@pytest.mark.parametrize("options", [[], ["--weights=sidecar"], ["--prefix=net"]])
def test_inspected(options, tmp_path):
    """What is read of a DLL is what is read of the library for Linux."""
    linux, windows = (result("inspect", "--verify", compile_to(tmp_path / name, DIGITS, *options, *target))
                      for name, target in (("net.so", []), ("net.dll", [TARGET])))
    for at in ("name", "inputs", "outputs", "symbols", "kernels"):
        assert linux[at] == windows[at], at
    sizes = [net["bytes"] for net in (linux, windows)]
    assert sizes[0]["weights"] == sizes[1]["weights"] and sizes[0]["graph"] == sizes[1]["graph"] > 0
    for one, other in zip(sizes[0]["variants"], sizes[1]["variants"]):
        assert 0.8 * one["code"] < other["code"] < 1.3 * one["code"]
    assert mcc("report", tmp_path / "net.dll", "-q", "-o", tmp_path / "net.html").returncode == 0


def sealed(data):
    """The bytes with a hash that fits, if their note can be found."""
    note = data.find(b"\4\0\0\0\x78\0\0\0\1\0\0\0mcc\0")
    if note < 0 or note + 136 > len(data):
        return data
    data = bytearray(data)
    struct.pack_into("<Q", data, note + 24, len(data))
    at, size = struct.unpack_from("<QQ", data, note + 32)
    struct.pack_into("<Q", data, note + 48, 0)
    struct.pack_into("<Q", data, note + 48, xxh64(data[:at] + data[at + size:]))
    return bytes(data)


def test_damaged_to_readers(tmp_path):
    """500 damaged DLLs: an answer or one error from everything that reads artifacts."""
    good = [compile_to(tmp_path / f"{i}.dll", DIGITS, TARGET, *options).read_bytes()
            for i, options in enumerate([["-march=x86-64-v2"], ["--weights=sidecar", "-march=x86-64-v2"], ["--prefix=net", "-march=x86-64-v2"]])]
    readers_answer(tmp_path / "bad.dll", good, 1024, [sealed] * 3)


@pytest.mark.parametrize("command", ["run", "bench", "diff"])
def test_only_compiled(command, tmp_path):
    done = mcc(command, DIGITS, TARGET, cwd=tmp_path)
    assert done.returncode == 2 and "cannot run code for x86_64-windows" in done.stderr and not list(tmp_path.iterdir()), done.stderr


def test_reported(tmp_path):
    assert mcc("report", DIGITS, TARGET, "-q", "-o", tmp_path / "page.html").returncode == 0
    assert "x86_64-pc-windows-msvc" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("name,options", [("net.obj", []), ("net.lib", []), ("net.o", []), ("net.a", []), ("net", ["-c"]), ("net.lib", ["--weights=sidecar"])])
def test_object(name, options, tmp_path):
    """One name is defined, those of the system are asked for; what is read of it is what is read of the object for Linux."""
    path = compile_to(tmp_path / name, DIGITS, TARGET, "--prefix=net", *options)
    listed = subprocess.run(["llvm-nm-19", "-g", path], capture_output=True, text=True, check=True).stdout
    defined = re.findall(r"[A-TV-Z] (\w+)$", listed, re.M)
    assert defined == ["net_mcc_query"]
    assert {n.removeprefix("__imp_") for n in re.findall(r"U (\w+)", listed)} <= set().union(*TAKEN.values())
    linux, windows = (result("inspect", "--verify", p) for p in (compile_to(tmp_path / "linux.o", DIGITS, *options), path))
    for at in ("name", "inputs", "outputs", "symbols", "kernels"):
        assert linux[at] == windows[at], at
    assert linux["bytes"]["weights"] == windows["bytes"]["weights"] and windows["workspace"] is None
    again = compile_to(tmp_path / "again.obj", DIGITS, TARGET, "--prefix=net", *options, "-j2") if name == "net.obj" else path
    assert again.read_bytes() == path.read_bytes()


def test_line_tables(tmp_path):
    """DWARF, in DLLs and objects."""
    for name in ("net.dll", "net.obj"):
        path = compile_to(tmp_path / name, DIGITS, TARGET, "-g", "-march=x86-64-v2")
        done = subprocess.run(["llvm-dwarfdump-19", "--verify", path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and "No errors" in done.stdout, done.stdout
        lines = subprocess.run(["llvm-dwarfdump-19", "--debug-line", path], capture_output=True, text=True, timeout=60).stdout
        assert f'name: "{name}.mcir"' in lines and (tmp_path / f"{name}.mcir").exists()
        assert result("inspect", "--verify", path)["bytes"]["lines"] > 0


def test_unwinding(tmp_path):
    """Every function but leaves without a frame has its row; prologues save the registers that are the caller's."""
    path = compile_to(tmp_path / "net.dll", DIGITS, TARGET)
    text = subprocess.run(["llvm-readobj-19", "--unwind", path], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"StartAddress: \S+ ?\S* ?\(?(0x\w+)\)?\n +EndAddress: \S+ ?\S* ?\(?(0x\w+)", text)
    assert len(rows) > 60 and all(int(a, 16) < int(b, 16) for a, b in rows) and rows == sorted(rows, key=lambda r: int(r[0], 16))
    assert "SAVE_XMM128" in text and "PUSH_NONVOL reg=RBX" in text


def mapped(path):
    """The image that a loader makes of a DLL, unmoved; a stand-in for what ctypes.CDLL gives."""
    data = path.read_bytes()
    pe = int.from_bytes(data[60:64], "little")
    n, optional = struct.unpack_from("<H12xH", data, pe + 6)
    image = bytearray(struct.unpack_from("<I", data, pe + 24 + 56)[0])
    for _, size, address, raw, place, *_ in struct.iter_unpack("<8sIIIIIIHHI", data[pe + 24 + optional:pe + 24 + optional + 40 * n]):
        image[address:address + min(size, raw)] = data[place:place + min(size, raw)]
    return image


def test_python(tmp_path, monkeypatch):
    """What of mcc.py is for Windows: its checks, and that it is the checked file that was loaded. No Python for Windows is here."""
    spec = importlib.util.spec_from_file_location("mcc_for_windows", ROOT / "runtime/mcc.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path = compile_to(tmp_path / "net.dll", DIGITS, TARGET, "-march=x86-64-v2")
    monkeypatch.setattr(module.platform, "machine", lambda: "AMD64")
    keep = []

    def library(name, image=mapped(path)):
        assert name == str(path)
        keep.append(ctypes.create_string_buffer(bytes(image), len(image)))
        return types.SimpleNamespace(_handle=ctypes.addressof(keep[-1]))
    monkeypatch.setattr(module.c, "CDLL", library)
    assert module._Dll(path).load() and module._Dll(path).query == "mcc_query"
    other = mapped(compile_to(tmp_path / "other.dll", DIGITS, TARGET, "-march=x86-64-v3"))
    monkeypatch.setattr(module.c, "CDLL", lambda name: library(name, other))
    with pytest.raises(OSError, match="an older file of this name is still loaded"):
        module._Dll(path).load()

    def failing(name):
        raise OSError(126, "a module is missing")
    monkeypatch.setattr(module.c, "CDLL", failing)
    with pytest.raises(OSError, match="cannot be loaded: .*a module is missing"):
        module._Dll(path).load()
    with pytest.raises(OSError, match="a file for Linux"):
        module._Dll(compile_to(tmp_path / "net.so", DIGITS))
    with pytest.raises(OSError, match="another kind of machine"):
        module._Dll(compile_to(tmp_path / "arm.dll", DIGITS, "--target=aarch64-windows"))
    with pytest.raises(OSError, match="a DLL or program for Windows"):
        module._File(path)
    good = compile_to(tmp_path / "side.dll", DIGITS, TARGET, "--weights=sidecar", "-march=x86-64-v2").read_bytes()
    rng, bad = np.random.default_rng(6), tmp_path / "bad.dll"
    for data in {damaged(good, rng, 1024)[0] for _ in range(60)} - {good}:
        bad.write_bytes(data)
        with pytest.raises(OSError):
            module._Dll(bad)


def test_large_frames():
    """Frames of several pages are touched page by page; the way to a sidecar, which test_answers goes, has one."""
    text = subprocess.run(["llvm-objdump-19", "-dr", BUILD / "rt/x86_64-windows/rt_weights.o"], capture_output=True, text=True, check=True).stdout
    assert "__chkstk" in text


# ---- AArch64 ----

ARM = "--target=aarch64-windows"


@pytest.mark.parametrize("options", [[], ["--weights=sidecar"]])
def test_arm_answers(options, tmp_path):
    """Under qemu, through a loader of the tests: the bits of the same code on Linux."""
    if platform.machine() != "x86_64":
        pytest.skip("not on x86-64")
    model = net(tmp_path / "net.onnx")
    x = np.random.default_rng(2).standard_normal((1, 16, 57, 57)).astype(np.float32)
    for row in ("armv8-a,armv8.2-a-dotprod", "armv8.2-a-fp16"):
        with Foreign("aarch64") as linux, Foreign("aarch64-windows") as windows:
            expected = linux.call(compile_to(tmp_path / "net.so", model, "--target=aarch64-linux", f"-march={row}", *options), [x])
            path = compile_to(tmp_path / "net.dll", model, ARM, f"-march={row}", *options)
            for _ in range(3):
                for one, other in zip(expected, windows.call(path, [x])):
                    np.testing.assert_array_equal(one, other)


def test_arm_refuses_lesser_cpus(tmp_path):
    if platform.machine() != "x86_64":
        pytest.skip("not on x86-64")
    path = compile_to(tmp_path / "net.dll", DIGITS, ARM, "-march=armv8.6-a-i8mm")
    with Foreign("aarch64-windows", "cortex-a57") as machine, pytest.raises(ModelError, match="i8mm"):
        machine.call(path, [np.zeros((1, 1, 8, 8), np.float32)])


def test_arm_file(tmp_path):
    path, object_ = compile_to(tmp_path / "net.dll", DIGITS, ARM), compile_to(tmp_path / "net.lib", DIGITS, ARM)
    text = subprocess.run(["llvm-readobj-19", "--file-headers", "--coff-imports", "--coff-exports", "--unwind", path], capture_output=True, text=True,
                          check=True).stdout
    assert "IMAGE_FILE_MACHINE_ARM64" in text and re.findall(r"Export \{[^}]*Name: (\w+)", text) == ["mcc_query"]
    taken = {part.split()[0]: set(re.findall(r"Symbol: (\w+)", part)) for part in text.split("Import {\n  Name: ")[1:]}
    assert taken["KERNEL32.dll"] <= TAKEN["KERNEL32.dll"] | {"IsProcessorFeaturePresent"}
    # Functions without a frame have no row.
    assert len(re.findall("Prologue \\[", text)) > 40 and "str lr" in text or "stp x29, lr" in text
    main = tmp_path / "main.c"
    main.write_text("extern const void *mcc_query(unsigned); int main(void) { return !mcc_query(1); }")
    subprocess.run(["clang-19", "--target=aarch64-pc-windows-msvc", "-c", "-o", tmp_path / "main.obj", main], check=True)
    done = subprocess.run(["lld-link-19", "/entry:main", "/subsystem:console", "/nodefaultlib", "/force:unresolved", f"/out:{tmp_path}/main.exe",
                           tmp_path / "main.obj", object_], capture_output=True, text=True)
    assert (tmp_path / "main.exe").exists() and set(re.findall(r"undefined symbol: __declspec\(dllimport\) (\w+)", done.stderr)) <= \
        set().union(*TAKEN.values()) | {"IsProcessorFeaturePresent"}, done.stderr


# ---- under Wine ----

@pytest.fixture(scope="module")
def wine():
    """The command that runs artifacts, in a prefix of its own."""
    if why := under_wine.missing():
        pytest.skip(why)
    old = os.environ.get("WINEPREFIX"), os.environ.get("WINEDEBUG")
    under_wine.environment()
    yield under_wine.program()
    for name, before in zip(("WINEPREFIX", "WINEDEBUG"), old):
        os.environ.pop(name) if before is None else os.environ.__setitem__(name, before)


def test_suite(wine):
    """A part of the ONNX suite's cases; make conformance TARGET=x86_64-windows: all."""
    results = run.run(run.passing()[7::60], [TARGET, "-march=native"])
    assert len(results) > 30 and {r for r in results.items() if r[1][0] != "passed"} == set()


@pytest.mark.parametrize("options", [[], ["--weights=sidecar"], ["-march=x86-64-v2"], ["--variants=v3"]])
def test_answers(options, wine, tmp_path):
    """The bits of the same code on Linux, on as many threads as there are CPUs."""
    model = net(tmp_path / "net.onnx")
    x = np.random.default_rng(2).standard_normal((1, 16, 57, 57)).astype(np.float32)
    with Artifact(compile_to(tmp_path / "net.so", model, *options)) as linux:
        expected = linux.call([x])
    with Foreign("x86_64", command=wine) as machine:
        path = compile_to(tmp_path / "net.dll", model, TARGET, *options)
        for _ in range(20):
            for one, other in zip(expected, machine.call(path, [x])):
                np.testing.assert_array_equal(one, other)


def test_damaged(wine, tmp_path):
    """Each is an error with a text, and the process goes on."""
    good = compile_to(tmp_path / "net.dll", DIGITS, TARGET).read_bytes()
    x = np.zeros((1, 1, 8, 8), np.float32)
    rng = np.random.default_rng(4)
    files = {"empty": b"", "mz": b"MZ", "short": good[:1000], "cut": good[:-1], "long": good + b"x", "elf": b"\x7fELF" + good[4:],
             "machine": good[:good.index(b"PE\0\0") + 4] + b"\x64\xaa" + good[good.index(b"PE\0\0") + 6:]}
    weights = int(re.search(r"Name: \.mccw .*\n.*\n.*\n.*\n +PointerToRawData: (\w+)", subprocess.run(
        ["llvm-readobj-19", "--sections", tmp_path / "net.dll"], capture_output=True, text=True, check=True).stdout)[1], 16)
    for i in range(500):
        at = int(rng.integers(0, weights))
        files[f"flip{i}"] = good[:at] + bytes([good[at] ^ 1 << int(rng.integers(0, 8))]) + good[at + 1:]
    with Foreign("x86_64", command=wine) as machine:
        for name, data in files.items():
            (tmp_path / f"{name}.dll").write_bytes(data)
            with pytest.raises(ModelError):
                machine.call(tmp_path / f"{name}.dll", [x])
        with pytest.raises(ModelError):
            machine.call(tmp_path / "nothing.dll", [x])
        assert machine.call(tmp_path / "net.dll", [x])[0].shape == (1, 10)
    sidecar = compile_to(tmp_path / "side.dll", DIGITS, TARGET, "--weights=sidecar")
    (tmp_path / "side.mccw").write_bytes((tmp_path / "side.mccw").read_bytes()[:-64])
    with Foreign("x86_64", command=wine) as machine, pytest.raises(ModelError, match="bytes where"):
        machine.call(sidecar, [x])


LINKED = """
#include <stdio.h>
#define NET_IMPLEMENTATION
#include "net.h"
const mcc_api *other_mcc_query(uint32_t abi);
int main(void)
{
    static float x[2][1][8][8], y[2][10];
    mcc_model *model;
    mcc_error error;
    for (int i = 0; i < 128; i++)
        x[i / 64][0][i / 8 % 8][i % 8] = (float)(i * 37 % 17) / 17;
    int code = net_run(2, x, y) || other_mcc_query(1)->open(NULL, &model, &error);
    for (int i = 0; i < 20; i++)
        printf("%.9g ", y[i / 10][i % 10]);
    return code;
}
"""


@pytest.mark.parametrize("name", ["net.obj", "net.lib"])
def test_linked(name, wine, tmp_path):
    """A program with two networks in it, one of which has its weights beside the program; against the same on Linux."""
    (tmp_path / "main.c").write_text(LINKED)
    said = []
    for target, net, other, compiler, command in (([TARGET], name, "other.lib", [GCC], [WINE]), ([], "net.a", "other.a", ["gcc"], [])):
        compile_to(tmp_path / net, DIGITS, *target, "--prefix=net", "--emit=header")
        compile_to(tmp_path / other, DIGITS, *target, "--prefix=other", "--weights=sidecar")
        libraries = ["-lsynchronization"] if target else ["-ldl", "-lpthread"]
        subprocess.run([*compiler, f"-I{ROOT}/runtime", "-o", tmp_path / "main.exe", tmp_path / "main.c", tmp_path / net, tmp_path / other, *libraries],
                       check=True)
        done = subprocess.run([*command, tmp_path / "main.exe"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1] and len(said[0].split()) == 20


CPP = """
#include "mcc.hpp"
#include <array>
#include <cstdio>
int main()
{
    mcc::model net(std::string{"netz \\303\\204.dll"}); /* a path is UTF-8 */
    const std::vector<float> x(2 * 64, 0.5f);
    std::array<float, 20> y = {};
    mcc::context run(net);
    run({mcc::tensor(x, {2, 1, 8, 8})}, {mcc::tensor(y, {2, 10})});
    float sum = 0;
    for (float v : y)
        sum += v;
    try {
        mcc::model other(std::string{"linux.so"});
    } catch (const mcc::error &e) {
        std::printf("%s\\n", e.what());
    }
    return sum < 1.99f || sum > 2.01f;
}
"""


def test_cpp(wine, tmp_path):
    """mcc.hpp with the loader for Windows, compiled as C++."""
    if not shutil.which("x86_64-w64-mingw32-g++"):
        pytest.skip("no g++-mingw-w64")
    (tmp_path / "main.cpp").write_text(CPP)
    (tmp_path / "load.cpp").write_text('#include "cli/package/mcc_load.cpp"\n')
    subprocess.run(["x86_64-w64-mingw32-g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-static", f"-I{ROOT}", f"-I{ROOT}/runtime", "-o",
                    tmp_path / "main.exe", tmp_path / "main.cpp", tmp_path / "load.cpp"], check=True)
    compile_to(tmp_path / "netz Ä.dll", DIGITS, TARGET)
    compile_to(tmp_path / "linux.so", DIGITS)
    done = subprocess.run([WINE, tmp_path / "main.exe"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "linux.so: a file for Linux" in done.stdout, (done.stdout, done.stderr)


UNWOUND = """
#include "mcc_load.h"
#include <stdio.h>
#include <windows.h>
static mcc_lib *lib;
static int kernels, whole, most;
int main(void);

/* Walks from a kernel's launch through the library's frames, as exceptions do: every one is to lead to its caller, up to main. */
static void event(void *user, uint32_t node, int end, uint64_t ns)
{
    CONTEXT c;
    int inside = 0;
    (void)user, (void)node, (void)end, (void)ns;
    RtlCaptureContext(&c);
    for (int i = 0; i < 40 && c.Rip; i++) {
        DWORD64 base = 0, frame;
        void *data;
        RUNTIME_FUNCTION *row = RtlLookupFunctionEntry(c.Rip, &base, NULL);
        inside += base == (DWORD64)(UINT_PTR)lib->handle;
        if (row && base + row->BeginAddress <= (DWORD64)(UINT_PTR)main && (DWORD64)(UINT_PTR)main < base + row->EndAddress) {
            whole++;
            break;
        }
        if (!row) {
            c.Rip = *(DWORD64 *)(UINT_PTR)c.Rsp;
            c.Rsp += 8;
        } else {
            RtlVirtualUnwind(UNW_FLAG_NHANDLER, base, c.Rip, row, &c, &data, &frame, NULL);
        }
    }
    most = inside > most ? inside : most;
    kernels++;
}

int main(void)
{
    static int64_t shape[4] = {1, 1, 8, 8}, out_shape[2] = {1, 10};
    static float x[64], y[10];
    mcc_host host = {.size = sizeof host, .threads = 1, .event = event};
    mcc_error error = {.text = ""};
    mcc_ctx *ctx;
    DLTensor in = {.data = x, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = shape}, out = in;
    const DLTensor *ins[] = {&in};
    DLTensor *outs[] = {&out};
    out.data = y, out.ndim = 2, out.shape = out_shape;
    if (mcc_load("net.dll", &host, &lib, &error) || lib->api->ctx_new(lib->model, NULL, 0, &ctx, &error) || lib->api->run(ctx, ins, outs, &error))
        return puts(error.text), 1;
    printf("%d %d %d", kernels, whole, most);
    return 0;
}
"""


@pytest.mark.parametrize("march", ["x86-64-v2", "x86-64-v3"])
def test_unwound(march, wine, tmp_path):
    (tmp_path / "main.c").write_text(UNWOUND)
    subprocess.run([GCC, "-std=gnu11", "-O1", "-static", f"-I{ROOT}/runtime", "-o", tmp_path / "main.exe", tmp_path / "main.c",
                    ROOT / "runtime/mcc_load_windows.c"], check=True)
    compile_to(tmp_path / "net.dll", DIGITS, TARGET, f"-march={march}")
    done = subprocess.run([WINE, tmp_path / "main.exe"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    kernels, whole, inside = map(int, done.stdout.split())
    assert kernels == whole >= 10 and inside >= 4, done.stdout


REPLACED = """
#include "mcc_load.h"
#include <stdio.h>
int main(void)
{
    mcc_lib *one, *other;
    mcc_error error = {0};
    if (mcc_load("net.dll", NULL, &one, &error) || rename("net.dll", "old.dll") || rename("new.dll", "net.dll"))
        return 1;
    int code = mcc_load("net.dll", NULL, &other, &error);
    printf("%s", code ? error.text : other->api->name);
    return 0;
}
"""


def test_replaced(wine, tmp_path):
    """Where a loaded file has another name by now and its old one is another file's, the system gives the loaded one again."""
    (tmp_path / "main.c").write_text(REPLACED)
    subprocess.run([GCC, "-std=gnu11", "-static", f"-I{ROOT}/runtime", "-o", tmp_path / "main.exe", tmp_path / "main.c", ROOT / "runtime/mcc_load_windows.c"],
                   check=True)
    compile_to(tmp_path / "net.dll", DIGITS, TARGET)
    compile_to(tmp_path / "new.dll", net(tmp_path / "net.onnx"), TARGET)
    done = subprocess.run([WINE, tmp_path / "main.exe"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "net.dll: an older file of this name is still loaded", (done.stdout, done.stderr)

"""Results of networks compiled with --strict on every CPU that this machine has or emulates, compared bit by bit.

    with Machines() as machines:
        machines.compare("net.onnx", feeds)        # names what differs, or ""
"""
import contextlib
import functools
import hashlib
import pathlib
import platform
import re
import shutil
import tempfile

import numpy as np

from support.artifact import Artifact, ModelError
from support.foreign import EmulatorError, Foreign
from support.tool import ROOT, mcc

# Some, of which each has instructions that strict results could depend on; and all.
NATIVE = ["x86-64-v4", "x86-64-v3", "x86-64-v4-vnni", "x86-64-v4-bf16", "x86-64-v4-amx"]
FOREIGN = [("aarch64", "armv8-a"), ("aarch64", "armv8.2-a-dotprod"), ("aarch64", "armv8.6-a-i8mm"), ("riscv64", "rv64gc")]
EVERY = re.findall(r'^TARGET\("(x86_64|aarch64|riscv64)", "([^"]*)"', (ROOT / "ir/target/target.def").read_text(), re.M)
EVERY_NATIVE = sorted((cpu for arch, cpu in EVERY if arch == "x86_64" and cpu != "x86-64-v2"), key=lambda cpu: cpu != NATIVE[0])
EVERY_FOREIGN = [(arch, cpu) for arch, cpu in EVERY if arch != "x86_64"]
QEMU = {"aarch64": "max", "riscv64": "rv64,v=true,vext_spec=v1.0"}


def bits(array):
    """The array's bytes, every NaN being the same one."""
    array = np.ascontiguousarray(array)
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        array = np.where(np.isnan(array.astype(np.float64)), np.array(np.nan, array.dtype), array).astype(array.dtype)
    return array.tobytes()


def flat(outputs):
    """Without sequences and optionals."""
    return [y for x in outputs for y in (flat(x) if isinstance(x, list) else flat(sum(map(list, x.items()), [])) if isinstance(x, dict) else
                                         [np.array("absent")] if x is None else [np.asarray(x)])]


def differs(want, got):
    want, got = flat(want), flat(got)
    if len(want) != len(got):
        return "another number of outputs"
    for i, (w, g) in enumerate(zip(want, got)):
        if w.shape != g.shape or w.dtype != g.dtype:
            return f"output {i}: {g.dtype}{g.shape}, not {w.dtype}{w.shape}"
        if w.dtype == object:
            if (w != g).any():
                return f"output {i}: other texts"
        elif bits(w) != bits(g):
            apart = np.count_nonzero([bits(a) != bits(b) for a, b in zip(w.reshape(-1), g.reshape(-1))])
            return f"output {i}: {apart} of {w.size} elements are other bits"
    return ""


def digest(outputs):
    """Of shapes, types and bits."""
    h = hashlib.sha256()
    for y in flat(outputs):
        h.update(f"{y.dtype}{y.shape}".encode() + (repr(y.tolist()).encode() if y.dtype == object else bits(y)))
    return h.hexdigest()


def result(call, feeds):
    """Outputs, or the number of the error that the run has ended with."""
    try:
        return call(feeds)
    except ModelError as e:
        return [np.array(f"error {e.code}")]


class Machines:
    def __init__(self, foreign=FOREIGN, native=NATIVE, threads=(1, 3)):
        self.native = [n for n in native if platform.machine() == "x86_64"]
        self.foreign = [f for f in foreign if shutil.which(f"qemu-{f[0]}")]
        self.threads, self.stack, self.emulated, self.lost, self.ran = threads, contextlib.ExitStack(), {}, [], set()

    def __enter__(self):
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        for arch, _ in self.foreign:
            if arch not in self.emulated:
                self.emulated[arch] = self.stack.enter_context(Foreign(arch, QEMU[arch]))
        return self

    def __exit__(self, *_):
        self.stack.close()

    def compile(self, path, flags, name, *where):
        out = self.folder / f"{name}.so"
        done = mcc("-q", "--strict", path, "-o", out, *where, *flags, timeout=1200)
        assert done.returncode == 0, done.stderr
        return out

    def calls(self, path, flags=(), native=True, foreign=True):
        """(name, what gives the outputs for inputs, whether it is emulated) of each CPU and number of threads."""
        for cpu in self.native if native else []:
            out = self.compile(path, flags, cpu, f"-march={cpu}")
            for threads in self.threads:
                with contextlib.ExitStack() as stack:
                    try:
                        a = stack.enter_context(Artifact(out, threads=threads))
                    except ModelError as e:
                        if "CPU" not in str(e):
                            raise
                        break
                    self.ran.add(cpu)
                    yield f"{cpu}, {threads} threads", a.call, False
        for arch, cpu in self.foreign if foreign else []:
            out = self.compile(path, flags, cpu, f"--target={arch}-linux-gnu", f"-march={cpu}")
            self.ran.add(cpu)
            yield cpu, functools.partial(self.emulated[arch].call, out), True

    def compare(self, path, feeds, flags=()):
        """What differs from the first CPU; its outputs. lost: results that an emulator failed to give."""
        first, found = None, []
        for name, call, _ in self.calls(path, flags):
            try:
                outputs = result(call, feeds)
            except EmulatorError as e:
                self.lost.append(f"{name}: {pathlib.Path(path).parent.name}/{pathlib.Path(path).name}: {e}")
                continue
            if first is None:
                first = outputs
            elif text := differs(first, outputs):
                found.append(f"{name}: {text}")
        return "; ".join(found), first

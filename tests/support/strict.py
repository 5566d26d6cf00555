"""Results of networks compiled with --strict on every CPU that this machine has or emulates, compared bit by bit.

    with Machines() as machines:
        machines.compare("net.onnx", feeds)        # names what differs, or ""
"""
import contextlib
import pathlib
import platform
import shutil
import tempfile

import numpy as np

from support.artifact import Artifact, ModelError
from support.foreign import Foreign
from support.tool import mcc

# (--target, -march, qemu's CPU): of each the instructions that strict results could depend on.
NATIVE = ["x86-64-v4", "x86-64-v3", "x86-64-v4-vnni", "x86-64-v4-bf16"]
FOREIGN = [("aarch64", "armv8-a"), ("aarch64", "armv8.2-a-dotprod"), ("aarch64", "armv8.6-a-i8mm"), ("riscv64", "rv64gc")]


def bits(array):
    """The array's bytes, every NaN being the same one."""
    array = np.ascontiguousarray(array)
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        array = np.where(np.isnan(array.astype(np.float64)), np.array(np.nan, array.dtype), array).astype(array.dtype)
    return array.tobytes()


def differs(want, got):
    if len(want) != len(got):
        return "another number of outputs"
    for i, (w, g) in enumerate(zip(want, got)):
        w, g = np.asarray(w), np.asarray(g)
        if w.shape != g.shape or w.dtype != g.dtype:
            return f"output {i}: {g.dtype}{g.shape}, not {w.dtype}{w.shape}"
        if w.dtype == object:
            if (w != g).any():
                return f"output {i}: other texts"
        elif bits(w) != bits(g):
            apart = np.count_nonzero([bits(a) != bits(b) for a, b in zip(w.reshape(-1), g.reshape(-1))])
            return f"output {i}: {apart} of {w.size} elements are other bits"
    return ""


class Machines:
    def __init__(self, foreign=FOREIGN, native=NATIVE, threads=(1, 3)):
        self.native = [n for n in native if platform.machine() == "x86_64"]
        self.foreign = [f for f in foreign if shutil.which(f"qemu-{f[0]}")]
        self.threads, self.stack, self.emulated = threads, contextlib.ExitStack(), {}

    def __enter__(self):
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        for arch, _ in self.foreign:
            if arch not in self.emulated:
                self.emulated[arch] = self.stack.enter_context(Foreign(arch, "max" if arch == "aarch64" else "rv64"))
        return self

    def __exit__(self, *_):
        self.stack.close()

    def compile(self, path, flags, name, *where):
        out = self.folder / f"{name}.so"
        done = mcc("-q", "--strict", path, "-o", out, *where, *flags, timeout=1200)
        assert done.returncode == 0, done.stderr
        return out

    def results(self, path, feeds, flags=()):
        """(name, outputs) of each CPU and number of threads."""
        for cpu in self.native:
            out = self.compile(path, flags, cpu, f"-march={cpu}")
            for threads in self.threads:
                try:
                    with Artifact(out, threads=threads) as a:
                        yield f"{cpu}, {threads} threads", a.call(feeds)
                except ModelError as e:
                    if "CPU" not in str(e):
                        raise
        for arch, cpu in self.foreign:
            out = self.compile(path, flags, cpu, f"--target={arch}-linux-gnu", f"-march={cpu}")
            yield cpu, self.emulated[arch].call(out, feeds)

    def compare(self, path, feeds, flags=()):
        """What differs from the first CPU; its outputs."""
        first, found = None, []
        for name, outputs in self.results(path, feeds, flags):
            if first is None:
                first = outputs
            elif text := differs(first, outputs):
                found.append(f"{name}: {text}")
        return "; ".join(found), first

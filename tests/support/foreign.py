"""Artifacts for another architecture, under qemu-user: one process runs many (tests/targets/artifacts.c has the protocol).

    with Foreign("aarch64") as machine:
        outputs = machine.call("net.so", [x, y])      # objects as Artifact.run_values takes and gives them
"""
import select
import struct
import subprocess
import sys
import tempfile

import numpy as np

from support.artifact import CODES, KIND_MAP, KIND_OPTIONAL, KIND_SEQUENCE, KIND_TENSOR, STRING, TYPES, Error, ModelError, pack, unpack
from support.tool import BUILD


def library_of_android(arch):
    """A folder where the C library of the emulated Linux is called as artifacts for Android ask for it. No bionic: what they
    take from it has the same meaning in glibc."""
    folder = BUILD / f"tests/targets/android-{arch}"
    folder.mkdir(parents=True, exist_ok=True)
    name = folder / "libc.so"
    if not name.is_symlink():
        try:
            name.symlink_to(f"/usr/{arch}-linux-gnu/lib/libc.so.6")
        except FileExistsError:  # another test made it
            pass
    return folder


SECONDS = 1800            # a VGG is emulated for ten minutes


def text(data):
    return struct.pack("<q", len(data)) + data


def tensor(array):
    array = np.asarray(array)
    dims = struct.pack(f"<q{array.ndim}q", array.ndim, *array.shape)
    if array.dtype == object or array.dtype.kind in "US":
        words = [t if isinstance(t, bytes) else str(t).encode() for t in array.reshape(-1)]
        return struct.pack("<qq", *STRING) + dims + struct.pack("<q", len(words)) + b"".join(map(text, words))
    code, bits = CODES[array.dtype]
    flat = np.ascontiguousarray(array).reshape(-1)
    return struct.pack("<qq", code, bits) + dims + text((pack(flat, bits) if bits < 8 else flat).tobytes())


def value(x, optional=False):
    """optional: the port takes an absent value, or wraps one."""
    if optional:
        return struct.pack("<qqq", KIND_OPTIONAL, x is not None, x is not None) + (b"" if x is None else value(x))
    if isinstance(x, list):
        return struct.pack("<qqq", KIND_SEQUENCE, 1, len(x)) + b"".join(map(value, x))
    return struct.pack("<q", KIND_TENSOR) + tensor(x)


class EmulatorError(Exception):
    """The emulator ended because of a defect of its own (an assertion), which says nothing about the artifact."""


class Foreign:
    def __init__(self, arch, cpu="max", command=None):
        """arch: aarch64, or aarch64-windows for DLLs, aarch64-macos, x86_64-macos; command: in place of the emulator and its program."""
        machine, program = arch.split("-")[0], BUILD / f"tests/targets/artifacts-{arch}"
        emulator = [] if arch == "x86_64-macos" else [f"qemu-{machine}", "-cpu", cpu, "-L", f"/usr/{machine}-linux-gnu",
                                                      "-E", f"LD_LIBRARY_PATH={library_of_android(machine)}"]
        self.command = command or [*emulator, program]
        self.process, self.said = None, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def read(self, n):
        data = self.process.stdout.read(n)
        if len(data) != n:
            raise EOFError(f"the process ended with {self.process.wait()}")
        return data

    def words(self, n=1):
        return struct.unpack(f"<{n}q", self.read(8 * n))

    def text(self):
        return self.read(self.words()[0])

    def tensor(self):
        code, bits, rank = self.words(3)
        shape = self.words(rank)
        n = int(np.prod(shape, dtype=np.int64))
        if (code, bits) == STRING:
            flat = np.empty(n, dtype=object)
            for i in range(self.words()[0]):
                flat[i] = self.text().decode()
            return flat.reshape(shape)
        dtype, raw = np.dtype(TYPES[code, bits]), np.frombuffer(self.text(), np.uint8)
        return (unpack(raw, n, bits, dtype) if bits < 8 else raw.view(dtype)).reshape(shape).copy()

    def value(self):
        kind = self.words()[0]
        if kind == KIND_TENSOR:
            return self.tensor()
        present, n = self.words(2)
        items = [self.value() for _ in range(2 * n if kind == KIND_MAP else n)]
        if kind == KIND_SEQUENCE:
            return items
        return dict(zip(items[:n], items[n:])) if kind == KIND_MAP else items[0] if present and items else None

    def call(self, path, objects, optional=()):
        """optional: numbers of the inputs whose ports are optionals. Ends the process where it dies or hangs."""
        if self.process is None:
            self.said = tempfile.TemporaryFile("w+", errors="replace")
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said)
        values = b"".join(value(x, i in optional) for i, x in enumerate(objects))
        try:
            self.process.stdin.write(text(str(path).encode()) + struct.pack("<q", len(objects)) + values)
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], SECONDS)[0]:
                raise TimeoutError(f"no answer in {SECONDS} s")
            status = self.words()[0]
            if status:
                raise ModelError("run", Error(code=status, text=self.text()[:247]))
            return [self.value() for _ in range(self.words()[0])]
        except (OSError, EOFError) as e:
            self.__exit__()
            self.said.seek(0)
            said = self.said.read().strip()
            if "qemu" in said and "Assertion" in said:
                raise EmulatorError(said) from e
            print(said, file=sys.stderr)
            raise

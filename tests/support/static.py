"""Static networks (--emit=static) built into a program of C and run: on this machine, under qemu-user.

    outputs = Program(folder, model, "-march=x86-64-v3").run([x, y])
"""
import dataclasses
import pathlib
import platform
import re
import subprocess

import numpy as np

from support.artifact import Artifact, pack, unpack
from support.tool import mcc

# The program: it calls the network once.
SOURCE = r"""/* Calls a static network once as tests/support/static.py wrote it, prints its code, how many bytes around its
 * memory have changed, the bytes of stack that it took, then, after the end of the line, the outputs' bytes. */
#include <stddef.h>
#include <stdint.h>

#include "net.h"

#include "call.h"

#if __STDC_HOSTED__
#include <stdio.h>
static void put(const void *p, size_t n)
{
    fwrite(p, 1, n, stdout);
}
#else
void put(const void *, size_t);
int main(void);
#endif

enum { MARK = 0xa5, AROUND = 64, BELOW = NET_STACK_BYTES + 4096 };
static _Alignas(NET_ARENA_ALIGN) unsigned char memory[AROUND + NET_ARENA_BYTES + AROUND];
#define arena (memory + AROUND)

static void put_number(long n)
{
    char text[24], *p = text + sizeof text;
    *--p = ' ';
    unsigned long rest = n < 0 ? -(unsigned long)n : (unsigned long)n;
    do {
        *--p = (char)('0' + rest % 10);
    } while (rest /= 10);
    if (n < 0)
        *--p = '-';
    put(p, (size_t)(text + sizeof text - p));
}

static void mark(volatile unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = MARK;
}

static long changed(const volatile unsigned char *p, size_t n)
{
    long count = 0;
    for (size_t i = 0; i < n; i++)
        count += p[i] != MARK;
    return count;
}

/* Both have the same frame, below that of main. */
static __attribute__((noinline)) void mark_stack(void)
{
    volatile unsigned char below[BELOW];
    mark(below, BELOW);
}

static __attribute__((noinline)) long stack_used(void)
{
    volatile unsigned char below[BELOW];
    size_t untouched = 0;
    while (untouched < BELOW && below[untouched] == MARK)
        untouched++;
    return (long)(BELOW - untouched);
}

int main(void)
{
    long around = 0;
    mark(memory, sizeof memory);
    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++)
        mark(outs[i].at, outs[i].bytes + AROUND);
    mark_stack();
#ifdef TICKS
    uint64_t ticks = TICKS();
#endif
    int code = CALL;
#ifdef TICKS
    ticks = TICKS() - ticks;
#endif
    long used = stack_used();
    around += changed(memory, AROUND) + changed(memory + AROUND + NET_ARENA_BYTES, AROUND);
    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++)
        around += changed(outs[i].at + outs[i].bytes, AROUND);
    put_number(code);
    put_number(around);
    put_number(used);
#ifdef TICKS
    put_number((long)ticks);
#endif
    put("\n", 1);
    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++)
        put(outs[i].at, outs[i].bytes);
    return 0;
}
"""


@dataclasses.dataclass
class Machine:
    """How C is compiled and linked, and what runs it."""
    compiler: list
    command: list
    options: list = dataclasses.field(default_factory=list)   # of mcc
    seconds: int = 120


def foreign(arch):
    clang = ["clang-19", f"--target={arch}-linux-gnu", "-fuse-ld=lld", "-static"]
    return Machine(clang, [f"qemu-{arch}", "-cpu", "rv64" if arch == "riscv64" else "max"], [f"--target={arch}-linux"])


MACHINES = {"native": Machine(["gcc"], [])} | {arch: foreign(arch) for arch in ("aarch64", "riscv64") if arch != platform.machine()}


# The stack is read on purpose as it was left.
FLAGS = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-uninitialized", "-Wno-unknown-warning-option", "-Wno-maybe-uninitialized"]


class Failed(Exception):
    """The function returned this."""


def check(done, what):
    assert done.returncode == 0, f"{what}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done


class Program:
    """net.a and net.h in the folder; what the tables of an artifact say of ports is asked of one with the same options."""

    def __init__(self, folder, model, *options, machine="native"):
        self.folder, self.machine = pathlib.Path(folder), MACHINES[machine]
        done = mcc("-q", "--emit=static", *self.machine.options, *options, model, "-o", self.folder / "net.a")
        if done.returncode:
            raise ValueError(done.stderr)
        self.header = (self.folder / "net.h").read_text()

    def number(self, name):
        return int(re.search(rf"#define NET_{name}_BYTES (\d+)", self.header)[1])

    def dims(self):
        """Names of the arguments that are sizes."""
        return re.findall(r"(?:^|, )int64_t (\w+)(?=,)", re.search(r"int net_run\((.*)\);", self.header)[1])

    def undefined(self):
        """What the archive takes of others."""
        text = subprocess.run(["llvm-nm-19", "-A", self.folder / "net.a"], capture_output=True, text=True, check=True).stdout
        names = {kind: set(re.findall(rf"\b[{kind}] (\S+)$", text, re.M)) for kind in ("U", "TRDB")}
        return names["U"] - names["TRDB"]

    def run(self, arrays, outputs, **sizes):
        """outputs: arrays of the right shapes and types; gives new ones. sizes: of the arguments of those names."""
        write = [np.ascontiguousarray(a).tobytes() or b"\0" for a in arrays]
        asm = [".section .rodata\n"]
        for k, data in enumerate(write):
            (self.folder / f"in{k}").write_bytes(data)
            asm.append(f'.balign 64\n.globl in{k}\nin{k}: .incbin "{self.folder}/in{k}"\n')
        (self.folder / "in.s").write_text("".join(asm) + '.section .note.GNU-stack,"",%progbits\n')
        inputs = [f"(const void *)in{k}" for k in range(len(arrays))]
        lines = [f"extern const unsigned char in{k}[];\n" for k in range(len(arrays))]
        lines += [f"static _Alignas(64) unsigned char out{k}[{a.nbytes} + 64];\n" for k, a in enumerate(outputs)]
        lines.append("static const struct { unsigned char *at; size_t bytes; } outs[] = {"
                     + "".join(f"{{out{k}, {a.nbytes}}}, " for k, a in enumerate(outputs)) + "};\n")
        given = [str(sizes[d]) for d in self.dims()] + inputs + [f"(void *)out{k}" for k in range(len(outputs))] + ["arena"]
        lines.append(f"#define CALL net_run({', '.join(given)})\n")
        (self.folder / "call.h").write_text("".join(lines))
        program, source = self.folder / "program", self.folder / "main.c"
        source.write_text(SOURCE)
        more = self.machine.compiler[1:]
        check(subprocess.run([self.machine.compiler[0], *more, *FLAGS, f"-I{self.folder}", "-o", program, source,
                              self.folder / "in.s", self.folder / "net.a"], capture_output=True, text=True), "link")
        done = subprocess.run([*self.machine.command, program], capture_output=True, timeout=self.machine.seconds)
        assert done.returncode == 0, (done.returncode, done.stdout[:200], done.stderr)
        head, _, data = done.stdout.partition(b"\n")
        code, around, stack = map(int, head.split()[:3])
        if code:
            raise Failed(code)
        assert around == 0, "bytes around the arena or an output have changed"
        assert stack <= self.number("STACK"), f"{stack} bytes of stack, {self.number('STACK')} promised"
        self.stack, self.told = stack, head.split()[3:]
        got, at = [], 0
        for a in outputs:
            got.append(np.frombuffer(data[at:at + a.nbytes], a.dtype).reshape(a.shape))
            at += a.nbytes
        return got


def same(one, other):
    """Bit for bit, NaNs of any kind alike."""
    assert one.shape == other.shape and one.dtype == other.dtype
    if one.dtype.kind == "f":
        equal = (one.view(f"u{one.itemsize}") == other.view(f"u{one.itemsize}")) | (np.isnan(one) & np.isnan(other))
    else:
        equal = one == other
    assert equal.all(), f"{(~equal).sum()} of {equal.size} elements differ"

"""Static networks (--emit=static) built into a program of C and run: on this machine, under qemu-user.

    outputs = Program(folder, model, "-march=x86-64-v3").run([x, y])
"""
import dataclasses
import pathlib
import platform
import re
import shutil
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

#ifdef TICKS
uint64_t TICKS(void);
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
    size_t untouched = 256; /* this frame may lie lower by what the call's arguments took */
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
    uint64_t took = TICKS();
#endif
    int code = CALL;
#ifdef TICKS
    took = TICKS() - took;
#endif
    long used = stack_used();
    around += changed(memory, AROUND) + changed(memory + AROUND + NET_ARENA_BYTES, AROUND);
    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++)
        around += changed(outs[i].at + outs[i].bytes, AROUND);
    put_number(code);
    put_number(around);
    put_number(used);
#ifdef TICKS
    put_number((long)took);
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
    script: str = ""                                          # of the linker; "": there is a system

    def there(self):
        return all(shutil.which(program) for program in [self.compiler[0], *self.command[:1]])


def foreign(arch):
    clang = ["clang-19", f"--target={arch}-linux-gnu", "-fuse-ld=lld", "-static"]
    return Machine(clang, [f"qemu-{arch}", "-cpu", "rv64" if arch == "riscv64" else "max"], [f"--target={arch}-linux"])


X86_32 = Machine(["gcc", "-m32", "-msse2", "-mfpmath=sse"], [])     # on x87, code of f64 is an error
MACHINES = {"native": Machine(["gcc"], [])} | {arch: foreign(arch) for arch in ("aarch64", "riscv64") if arch != platform.machine()}


# The stack is read on purpose as it was left.
FLAGS = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-uninitialized", "-Wno-unknown-warning-option", "-Wno-maybe-uninitialized"]


# What a microcontroller has in place of a system: the start, output and the end by semihosting, memcpy and its like, a clock.
BARE = r"""
#include <stddef.h>
#include <stdint.h>
int main(void);
void put(const void *, size_t);
void start(void);
void fault(void);
extern char stack_top[];

static long host(long op, const void *arg)
{
#ifdef __arm__
    register long r0 __asm__("r0") = op;
    register const void *r1 __asm__("r1") = arg;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
#else
    register long a0 __asm__("a0") = op;
    register const void *a1 __asm__("a1") = arg;
    __asm__ volatile(".option push\n.option norvc\n.balign 16\nslli x0, x0, 0x1f\nebreak\nsrai x0, x0, 7\n.option pop"
                     : "+r"(a0) : "r"(a1) : "memory");
    return a0;
#endif
}

static void end(long code)
{
    const long how[2] = {0x20026, code};
    for (;;)
        host(0x20, how);
}

void put(const void *p, size_t n)
{
    static long out;
    const long open[3] = {(long)":tt", 4, 3};
    if (!out)
        out = host(1, open);
    const long what[3] = {out, (long)p, (long)n};
    host(5, what);
}

void fault(void)
{
    end(99);
}

#ifdef __arm__
#define SYSTICK ((volatile uint32_t *)0xe000e010)
__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
    stack_top, start, fault, fault, fault, fault, fault, fault, NULL, NULL, NULL, fault, fault, NULL, fault, fault};
void start(void)
{
    *(volatile uint32_t *)0xe000ed88 |= 0xf << 20; /* the floating point unit */
    __asm__ volatile("dsb\nisb");
    SYSTICK[1] = SYSTICK[2] = 0xffffff;
    SYSTICK[0] = 5;
    while (SYSTICK[2] == 0)
        continue;
    end(main());
}
uint64_t ticks(void);
uint64_t ticks(void)
{
    return (uint64_t)(0xffffff - SYSTICK[2]) * NANOSECONDS / 100;
}
#else
__attribute__((section(".vectors"), naked, used)) void start(void)
{
    __asm__ volatile(".option push\n.option arch, +zicsr\n.option norelax\nla gp, __global_pointer$\nla sp, stack_top\n"
                     "la t0, fault\ncsrw mtvec, t0\nli t0, 0x6000\ncsrs mstatus, t0\n.option pop\ncall main\ncall ended");
}
void ended(long);
void ended(long code)
{
    end(code);
}
uint64_t ticks(void);
uint64_t ticks(void)
{
    uint32_t low;
    __asm__ volatile(".option push\n.option arch, +zicsr\ncsrr %0, minstret\n.option pop" : "=r"(low));
    return low;
}
#endif

/* What CPUs without an instruction for it take of libm, bit by bit, rounded to even. */
double sqrt(double);
float sqrtf(float);
static uint64_t root(uint64_t high, int steps, int *odd)
{
    uint64_t r = 0, rest = 0;
    for (int i = 0; i < steps; i++) {
        rest = rest << 2 | high >> 62;
        high <<= 2;
        uint64_t t = r << 2 | 1;
        r <<= 1;
        if (rest >= t) {
            rest -= t;
            r |= 1;
        }
    }
    *odd = rest != 0 || high != 0;
    return r;
}
double sqrt(double x)
{
    union {
        double d;
        uint64_t u;
    } v = {x};
    int e = (int)(v.u >> 52 & 0x7ff), odd;
    if (x != x || x == 0 || v.u == 0x7ffull << 52)
        return x;
    if (v.u >> 63)
        return 0.0 / 0.0;
    if (!e)
        return sqrt(x * 0x1p108) * 0x1p-54;
    uint64_t m = (v.u & ((1ull << 52) - 1)) | 1ull << 52;
    e -= 1023;
    m <<= 10 + (e & 1); /* below 2^64: two bits before the point */
    uint64_t r = root(m, 54, &odd);
    r = (r + ((r & 1) && (odd || (r & 2)))) >> 1;
    v.u = r + ((uint64_t)((e >> 1) + 1022) << 52);
    return v.d;
}
float sqrtf(float x)
{
    return (float)sqrt((double)x);
}

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((volatile char *)to)[i] = ((const char *)from)[i];
    return to;
}
void *memmove(void *to, const void *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = (uintptr_t)to < (uintptr_t)from ? i : n - 1 - i;
        ((volatile char *)to)[at] = ((const char *)from)[at];
    }
    return to;
}
void *memset(void *to, int byte, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((volatile char *)to)[i] = (char)byte;
    return to;
}
"""
SCRIPT = """ENTRY(start)
MEMORY { code (rx) : ORIGIN = %s, LENGTH = %s  data (rwx) : ORIGIN = %s, LENGTH = %s }
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) *(.srodata*) *(.ARM.ex*) } > code
  .data : { *(.data*) __global_pointer$ = . + 0x800; *(.sdata*) *(.sbss*) *(.bss*) *(COMMON) } > data
  stack_top = ORIGIN(data) + LENGTH(data);
  /DISCARD/ : { *(.note*) *(.comment*) *(.eh_frame*) }
}
"""


def bare(target, compiler, machine, code, data, tick=0):
    """tick: of SysTick, in hundredths of a nanosecond, which is an instruction under -icount shift=0."""
    prefix = "arm-none-eabi" if "thumb" in target else "riscv64-unknown-elf"
    system = "arm" if "thumb" in target else "riscv32"
    return Machine([f"{prefix}-gcc", *compiler, "-ffreestanding", "-nostdlib", "-static", "-Wno-array-bounds", f"-DNANOSECONDS={tick}ull", "-DTICKS=ticks"],
                   [f"qemu-system-{system}", "-M", machine, "-nographic", "-monitor", "none", "-serial", "none", "-semihosting-config",
                    "enable=on,target=native", "-icount", "shift=0", *([] if "thumb" in target else ["-bios", "none"]), "-kernel"],
                   [f"--target={target}"], script=SCRIPT % (*code, *data))


BARE_MACHINES = {
    "m4": bare("thumbv7em", ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard"], "mps2-an386", ("0", "4M"), ("0x21000000", "16M"), 4000),
    "m7": bare("thumbv7em", ["-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard"], "mps2-an500", ("0", "4M"), ("0x60000000", "16M"), 4000),
    "m55": bare("thumbv8.1m.main+mve", ["-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"], "mps3-an547", ("0x10000000", "512K"), ("0x11000000", "2M"),
                3125),
    "rv32f": bare("riscv32imafc", ["-march=rv32imafc", "-mabi=ilp32f"], "virt", ("0x80000000", "16M"), ("0x81000000", "64M")),
    "rv32": bare("riscv32imac", ["-march=rv32imac", "-mabi=ilp32"], "virt", ("0x80000000", "16M"), ("0x81000000", "64M"))}
BARE_MACHINES["m7"].options.append("-march=cortex-m7")
MACHINES |= BARE_MACHINES


class Failed(Exception):
    """The function returned this."""


def check(done, what):
    assert done.returncode == 0, f"{what}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done


class Program:
    """net.a and net.h in the folder; what the tables of an artifact say of ports is asked of one with the same options."""

    emit, output, flags, libraries = "static", "net.a", [], ["-lgcc"]

    def __init__(self, folder, model, *options, machine="native"):
        self.folder, self.machine = pathlib.Path(folder), machine if isinstance(machine, Machine) else MACHINES[machine]
        done = mcc("-q", f"--emit={self.emit}", *self.machine.options, *options, model, "-o", self.folder / self.output)
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

    def library(self):
        """What the program is linked with."""
        return self.folder / self.output

    def promises_stack(self):
        return "NET_STACK_BYTES" in self.header

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
        below = []
        if self.machine.script:
            (self.folder / "bare.c").write_text(BARE)
            (self.folder / "script").write_text(self.machine.script)
            below = [self.folder / "bare.c", "-T", self.folder / "script", *self.libraries]
        check(subprocess.run([self.machine.compiler[0], *more, *FLAGS, *self.flags, f"-I{self.folder}", "-o", program, source, self.folder / "in.s",
                              self.library(), *below], capture_output=True, text=True), "link")
        done = subprocess.run([*self.machine.command, program], capture_output=True, timeout=self.machine.seconds)
        assert done.returncode == 0, (done.returncode, done.stdout[:200], done.stderr)
        head, _, data = done.stdout.partition(b"\n")
        code, around, stack = map(int, head.split()[:3])
        if code:
            raise Failed(code)
        assert around == 0, "bytes around the arena or an output have changed"
        assert not self.promises_stack() or stack <= self.number("STACK"), f"{stack} bytes of stack, {self.number('STACK')} promised"
        self.stack, self.told = stack, head.split()[3:]
        got, at = [], 0
        for a in outputs:
            got.append(np.frombuffer(data[at:at + a.nbytes], a.dtype).reshape(a.shape))
            at += a.nbytes
        return got


class CProgram(Program):
    """net.c instead, compiled without a warning. compiler: and its flags."""
    emit, output, flags = "c", "net.c", ["-DNET_STACK_BYTES=262144"]
    WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror"]

    def __init__(self, folder, model, *options, compiler=("gcc", "-O1"), machine="native"):
        super().__init__(folder, model, *options, machine=machine)
        done = subprocess.run([*compiler, *self.machine.compiler[1:], *self.WARNINGS, "-c", "-o", self.library(), self.folder / "net.c"],
                              capture_output=True, text=True)
        check(done, "compile")
        assert not done.stderr, done.stderr[-2000:]

    def library(self):
        return self.folder / "net.o"

    def undefined(self):
        """What the object takes of others."""
        text = subprocess.run(["nm", self.library()], capture_output=True, text=True, check=True).stdout
        return set(re.findall(r"\bU (\S+)$", text, re.M))


def same(one, other):
    """Bit for bit, NaNs of any kind alike."""
    assert one.shape == other.shape and one.dtype == other.dtype
    if one.dtype.kind == "f":
        equal = (one.view(f"u{one.itemsize}") == other.view(f"u{one.itemsize}")) | (np.isnan(one) & np.isnan(other))
    else:
        equal = one == other
    assert equal.all(), f"{(~equal).sum()} of {equal.size} elements differ"

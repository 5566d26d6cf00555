#!/usr/bin/env python3
"""int8 networks of MLPerf Tiny's shapes (support/tiny.py) on microcontrollers of qemu: instructions, flash, RAM, and the same of other
compilers' C by arm-none-eabi-gcc -O3.

usage: micro.py [--machine=m4,m7,m55,rv32,rv32f] [--network=NAME,...] [--peer=onnx2c:PROGRAM] [--peer=emx:PROGRAM] [--flag=FLAG...]

Instructions: -icount shift=0. Code: sections of text and constants beside the weights. RAM: arena, deepest stack, inputs and outputs.
Results are compared with this machine's; those of peers, which round elsewhere, by their largest difference in steps.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from support import tiny  # noqa: E402
from support.artifact import Artifact  # noqa: E402
from support.static import MACHINES, Program, check  # noqa: E402
from support.tool import compile_to  # noqa: E402

STACK = 1 << 20


def sections(path):
    """(code and constants, memory that changes) in bytes, and the weights."""
    text = subprocess.run(["llvm-size-19", "-A", path], capture_output=True, text=True, check=True).stdout
    code = data = weights = 0
    for name, size in re.findall(r"^(\.\S+)\s+(\d+)", text, re.M):
        if name.startswith(".rodata") and name.endswith("_weights"):
            weights += int(size)
        elif name.startswith((".text", ".rodata", ".srodata")):
            code += int(size)
        elif name.startswith((".data", ".bss", ".sbss", ".sdata", "COMMON")):
            data += int(size)
    return code, data, weights


class Peer(Program):
    """Another compiler's C in place of net.a."""

    libraries = ["-lm", "-lc", "-lgcc"]     # libnewlib-arm-none-eabi

    def __init__(self, folder, model, kind, program, machine):
        self.folder, self.machine = pathlib.Path(folder), MACHINES[machine]
        source, name = self.folder / "peer.c", {"onnx2c": "entry", "emx": "peer"}[kind]
        if kind == "onnx2c":
            done = check(subprocess.run([program, model], capture_output=True, text=True), kind)
            source.write_text(done.stdout)
        else:
            check(subprocess.run([program, "compile", model, source, "--model-name=peer", "--large-weight-threshold=0", "--large-temp-threshold=0"],
                                 capture_output=True, text=True), kind)
        check(subprocess.run([*self.machine.compiler, "-O3", "-c", "-o", self.library(), source], capture_output=True, text=True), "compile")
        self.header = f"#define NET_ARENA_BYTES 16\n#define NET_ARENA_ALIGN 16\n#define NET_STACK_BYTES {STACK}\n"
        self.header += f"void {name}();\n#define net_run(in, out, arena) ((void)arena, {name}(in, out), 0)\n"
        (self.folder / "net.h").write_text(self.header)

    def library(self):
        return self.folder / "peer.o"

    def dims(self):
        return []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--machine", default="m4,m7,m55,rv32")
    parser.add_argument("--network", default=",".join(tiny.NETWORKS))
    parser.add_argument("--operators", action="store_true", help="QLinearConv and its like")
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--flag", action="append", default=[])
    args = parser.parse_args()
    print(f"{'network':12} {'CPU':6} {'compiler':8} {'instructions':>13} {'code':>7} {'weights':>8} {'arena':>7} {'stack':>6} {'RAM':>7}  largest difference")
    for name in args.network.split(","):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            model = tiny.save(folder / "net.onnx", *tiny.NETWORKS[name](args.operators))
            graph = onnx.load(model).graph
            shape, out = ([d.dim_value for d in v.type.tensor_type.shape.dim] for v in (graph.input[0], graph.output[0]))
            x = np.random.default_rng(2).integers(-128, 128, shape, np.int8)
            with Artifact(compile_to(folder / "net.so", model), threads=1) as net:
                want = np.asarray(net.call([x])[0])
            for machine in args.machine.split(","):
                for kind in ["mcc", *args.peer]:
                    kind, _, path = kind.partition(":")
                    try:
                        program = Program(folder, model, *args.flag, machine=machine) if kind == "mcc" else Peer(folder, model, kind, path, machine)
                        got = program.run([x], [np.zeros(out, np.int8)])[0]
                    except (AssertionError, ValueError) as e:
                        print(f"{name:12} {machine:6} {kind:8} {str(e)[-300:]}", flush=True)
                        continue
                    code, data, weights = sections(program.library())
                    arena = program.number("ARENA") if kind == "mcc" else data
                    ram = arena + program.stack + x.nbytes + got.nbytes
                    far = int(np.abs(got.astype(int) - want).max())
                    print(f"{name:12} {machine:6} {kind:8} {int(program.told[0]):13,} {code:7} {weights:8} {arena:7} {program.stack:6} {ram:7}  "
                          f"{far} in {np.count_nonzero(got != want)} of {got.size}", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The inner loops of AArch64's micro-kernels in llvm-mca: what a model of each core says of them, without the core.

usage: mca.py [SUBSTRING...]        part of names of kernels or cores

Each network below is one contraction, compiled for the row of target.def that is called as the core is. Its innermost loop with the
most multiply-adds goes to llvm-mca, which repeats it with LLVM's scheduling model of that core: all loads hit L1, no branch is missed.
Per cent of the peak: multiply-adds a cycle, of those that the same model gives for the same instruction alone, or of what the table's
row says where that is less (the model of Cortex-A55 has whole vectors at the rate of halves; what it gives beyond the row's is 100).
"stack": instructions of the loop that use the stack; "dup": those that only copy one lane to all.
The exit status says whether all reach what is asked: 90 % on cores that reorder, 80 % on others.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx import TensorProto as T  # noqa: E402
from onnx import helper as h  # noqa: E402

from support.tool import ROOT, mcc, save, value  # noqa: E402

TABLE = (ROOT / "ir/target/target.def").read_text()
TRIPLE, TURNS = "aarch64-linux-gnu", 200
# What is asked of each core, per cent.
CORES = {"cortex-a55": 80, "cortex-a76": 90, "neoverse-n1": 90, "neoverse-v1": 90, "neoverse-n2": 90, "apple-m1": 90}
RATES = {name: int(rate) for name, rate in
         re.findall(r'^TARGET\("aarch64", "([^"]*)"(?:.|\n {7})*?fma_per_cycle = (\d+)', TABLE, re.M)}
STEP = re.compile(r"\s+(fmla|usdot|sudot|sdot|udot|bfdot|bfmmla|usmmla|smmla|ummla)\s")
LANE = re.compile(r"\s+(dup|ld1r)\s|\s+mov\s+v\d+\.[bhs]\[")
HALVES_DOTS = ("neoverse-v1", "neoverse-n2")


def floats(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def product(path, m, n, k):
    save(path, [h.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [m, k])], [value("y", [m, n])], {"w": floats(k, n)})


def bytes_product(path, m, n, k):
    w = np.random.default_rng(2).integers(-127, 127, (k, n), np.int8)
    save(path, [h.make_node("MatMulInteger", ["x", "w"], ["y"])], [value("x", [m, k], T.UINT8)], [value("y", [m, n], T.INT32)], {"w": w})


def halves_product(path, m, n, k):
    save(path, [h.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [m, k], T.BFLOAT16)], [value("y", [m, n], T.BFLOAT16)],
         {"w": floats(k, n).astype(ml_dtypes.bfloat16)})


def convolution(path, ic, oc, size, tap):
    """Between others, so that its operand lies as in a network."""
    nodes = [h.make_node("Conv", ["x", "u"], ["a"]), h.make_node("Conv", ["a", "w"], ["b"], "kernel", pads=[tap // 2] * 4),
             h.make_node("Conv", ["b", "v"], ["y"])]
    save(path, nodes, [value("x", [1, 8, size, size])], [value("y", [1, 8, size, size])],
         {"u": floats(ic, 8, 1, 1), "w": floats(oc, ic, tap, tap), "v": floats(8, oc, 1, 1)})


# name: (network, kernels that count, cores, options)
KERNELS = {
    "f32 GEMM 120x240x256": (lambda p: product(p, 120, 240, 256), "", tuple(CORES), []),
    "f32 1x1 64>96 at 28": (lambda p: convolution(p, 64, 96, 28, 1), "k1_", tuple(CORES), []),
    "f32 3x3 64>96 at 28": (lambda p: convolution(p, 64, 96, 28, 3), "k1_", tuple(CORES), ["--winograd=off"]),
    "f32 3x3 64>96 at 28, F(4)": (lambda p: convolution(p, 64, 96, 28, 3), "k1_", tuple(CORES), ["--winograd=4"]),
    "u8 x i8 120x240x256": (lambda p: bytes_product(p, 120, 240, 256), "", tuple(CORES), []),
    "f16 sums 120x240x256": (lambda p: product(p, 120, 240, 256), "", tuple(CORES)[1:], ["--precision=f16-sums"]),
    "f16 sums 1x1 240>256 at 12": (lambda p: convolution(p, 240, 256, 12, 1), "k1_", tuple(CORES)[1:], ["--precision=f16-sums"]),
    "f16 sums 3x3 64>96 at 28": (lambda p: convolution(p, 64, 96, 28, 3), "k1_", tuple(CORES)[1:], ["--precision=f16-sums", "--winograd=off"]),
    "bf16 120x240x256": (lambda p: halves_product(p, 120, 240, 256), "", HALVES_DOTS, []),
}


def loops(text, part):
    """Innermost loops of the functions whose names hold part: the lines from a label to a branch back to it, without labels between."""
    found, name, label, body = [], "", None, []
    for line in text.splitlines():
        if start := re.match(r"(k\d+_\S*):$", line):
            name = start[1]
        if start := re.match(r"(\.LBB\S+):", line):
            label, body = start[1], []
            continue
        body.append(line)
        back = re.match(r"\s+(?:b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+, #\d+,)\s+(\.LBB\S+)", line)
        if back and back[1] == label and part in name:
            found.append([s for s in body if re.match(r"\s+[a-z]", s)])
    return found


def carried(code):
    """The loop's multiply-adds whose sums nothing else writes."""
    written = lambda s: re.findall(r"\s+\S+\s+[vqds](\d+)", s)[:1] + re.findall(r"\s+ldp\s+[qds]\d+, [qds](\d+)", s)
    others = {register for s in code if not STEP.match(s) and not re.match(r"\s+st", s) for register in written(s)}
    return [s for s in code if STEP.match(s) and written(s)[0] not in others]


def cycles(code, core):
    """Of one turn of the loop, on average."""
    said = subprocess.run(["llvm-mca-19", f"-mtriple={TRIPLE}", f"-mcpu={core}", "-mattr=+i8mm,+bf16,+dotprod,+fullfp16", f"-iterations={TURNS}"],
                          input="\n".join(code) + "\n", capture_output=True, text=True, check=True).stdout
    return int(re.search(r"Total Cycles:\s+(\d+)", said)[1]) / TURNS


def peak(step, core):
    """Multiply-adds a cycle: the instruction alone, on all of its last operand and, if it can, on a lane, but no more than the table's row says."""
    word, form = step.split()[0].replace("sudot", "usdot"), re.findall(r"v\d+\.(\w+)", step)
    narrow = form[0][1] == "h" # whose lanes are those of the lower registers
    lane = {"fmla": f"v{15 if narrow else 31}.{form[0][1]}[0]", "bfdot": "v31.2h[0]"}.get(word, "v31.4b[0]")
    best = 0
    for third in [f"v31.{form[1]}"] + [lane] * (not word.endswith("mmla")):
        code = [f"\t{word}\tv{i}.{form[0]}, v30.{form[1]}, {third}" for i in range(30) if i != 15 or not narrow]
        best = max(best, len(code) / cycles(code, core))
    return min(best, RATES[core])


def inner(name, core, folder):
    """The loop of the kernel with the most sums, and its multiply-adds."""
    network, part, _, options = KERNELS[name]
    model, out = folder / "m.onnx", folder / "m.s"
    network(model)
    done = mcc(model, f"--target={TRIPLE}", f"-march={core}", "-S", *options, "-o", out)
    assert done.returncode == 0, done.stderr
    code = max(loops(out.read_text(), part), key=lambda loop: len(carried(loop)))
    return code, carried(code)


def unwanted(code):
    """Instructions that use the stack, and those that copy a lane."""
    return [s for s in code if "[sp" in s], [s for s in code if LANE.match(s)]


def measure(name, core, folder):
    code, steps = inner(name, core, folder)
    share = min(100, 100 * len(steps) / cycles(code, core) / peak(steps[0], core))
    stack, dups = unwanted(code)
    return len(steps), steps[0].split()[0], share, len(stack), len(dups)


def main():
    wanted, low = sys.argv[1:], 0
    print(f"{'kernel':28} {'core':12} {'loop':>10} {'of the peak':>12} {'stack':>6} {'dup':>4}")
    with tempfile.TemporaryDirectory() as folder:
        for name, (_, _, cores, _) in KERNELS.items():
            for core in cores:
                if wanted and not any(w in name or w in core for w in wanted):
                    continue
                n, word, share, stack, dups = measure(name, core, pathlib.Path(folder))
                low += share < CORES[core]
                print(f"{name:28} {core:12} {f'{n} {word}':>10} {share:10.0f} %{'' if share >= CORES[core] else '!'} {stack:5} {dups:4}", flush=True)
    print(f"{low} below what is asked" if low else "all reach what is asked")
    return bool(low)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Every micro-kernel alone: networks of one operator, one thread, against the nearer of two limits of this machine.

usage: kernels.py [SUBSTRING...]        part of names

A kernel's multiply-adds are held against the measured rate of the instruction that it is made of (tests/bench/peaks.c), its
bytes, each counted once, against reading from the level of the memory that holds them (mcc bench --calibrate --roofline).
The machine is looked at before and after each kernel, and the better look counts, as does the best of many short turns: so a
busy machine may be measured too. What is timed is a call of run, in processor time; of a convolution its own kernel between
two others, as mcc_host.event tells it. Winograd's products are counted as those of the convolution.
DOTS have to reach a part of their peak, which stands there: the exit status says whether those that this CPU has do.

"model" is the cost model's estimate of the same (the times of a schedule, as -Rpass-analysis=schedule adds them up) over what was
measured, for a clock at which this machine has the model's peak: docs/notes/forms.md says why, where it is not within 1.5 times.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx import TensorProto as T  # noqa: E402
from onnx import helper as h  # noqa: E402

from peers import load_mcc  # noqa: E402
from support.artifact import Artifact  # noqa: E402
from support.tool import BUILD, ROOT, mcc, result, save, value  # noqa: E402

TURN, TURNS, KERNEL = 1e-3, 150, "kernel"
MODEL_CLOCK = int(re.search(r"RATE\(CYCLES_PER_NS, (\d+),", (ROOT / "ir/target/budget.def").read_text())[1])
N = h.make_node
F32, BF16 = T.FLOAT, T.BFLOAT16


def floats(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) / np.float32(shape[-1] ** 0.5)


class Kernel:
    """A network, its multiply-adds, the name of their limit, options; feeds: its inputs, None: f32 ones are drawn."""

    def __init__(self, nodes, inputs, outputs, constants, products, peak="fma-16", flags=(), feeds=None):
        self.nodes, self.inputs, self.outputs, self.constants = nodes, inputs, outputs, constants
        self.products, self.peak, self.flags, self.feeds = products, peak, flags, feeds
        self.bytes = None            # of the node KERNEL, which is timed alone; None: the whole network is


def product(m, n, k, **more):
    return Kernel([N("MatMul", ["x", "w"], ["y"])], [value("x", [m, k])], [value("y", [m, n])], {"w": floats(k, n)}, m * n * k, **more)


def between(node, ic, oc, size, out, products, weights=None, first=False, flags=(), behind=False):
    """A window over an image between convolutions of one tap, so that its operand and its result are stored as in a network;
    first: it reads the port; behind: it reads "r", a map of the image, which has another reader too."""
    maps = [N("Mul", ["a", "s"], ["m"]), N("Relu", ["m"], ["r"]), N("GlobalAveragePool", ["a"], ["z"])] if behind else []
    nodes = [*([] if first else [N("Conv", ["x", "u"], ["a"])]), *maps, node, N("Conv", ["b", "v"], ["y"])]
    constants = {"v": floats(8, oc, 1, 1)} | ({} if first else {"u": floats(ic, 8, 1, 1)}) | ({} if weights is None else {"w": weights})
    constants |= {"s": floats(1, ic, 1, 1)} if behind else {}
    outputs = [value("y", [1, 8, out, out])] + ([value("z", [1, ic, 1, 1])] if behind else [])
    kernel = Kernel(nodes, [value("x", [1, ic if first else 8, size, size])], outputs, constants, products, flags=flags)
    kernel.bytes = 4 * (ic * size * size + oc * out * out + (0 if weights is None else weights.size))
    return kernel


def convolution(ic, oc, size, tap, stride=1, dilation=1, groups=1, flags=(), transposed=False, first=False, behind=False):
    pad = dilation * (tap - 1) // 2
    out = size * stride if transposed else (size + 2 * pad - dilation * (tap - 1) - 1) // stride + 1
    weights = floats(ic, oc // groups, tap, tap) if transposed else floats(oc, ic // groups, tap, tap)
    more = {"output_padding": [stride - 2 + tap % 2] * 2} if transposed else {}
    node = N("ConvTranspose" if transposed else "Conv", ["x" if first else "r" if behind else "a", "w"], ["b"], KERNEL, strides=[stride] * 2, pads=[pad] * 4,
             dilations=[dilation] * 2, group=groups, **more)
    points = size * size if transposed else out * out
    return between(node, ic, oc, size, out, points * oc * ic // groups * tap * tap, weights, first, flags, behind)


def pool(channels, size):
    node = N("MaxPool", ["a"], ["b"], KERNEL, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    return between(node, channels, channels, size, size // 2, 0)


def mapped(op, shape, products, **attributes):
    """One operand, no weights: what counts is memory."""
    return Kernel([N(op, ["x"], ["y"], **attributes)], [value("x", shape)], [value("y", [None] * len(shape))], {}, products)


def norm(rows, width):
    return Kernel([N("LayerNormalization", ["x", "s", "b"], ["y"])], [value("x", [rows, width])], [value("y", [rows, width])],
                  {"s": floats(width), "b": floats(width)}, 4 * rows * width)


def attention(heads, queries, keys, width):
    shape, wide = [1, heads, queries, width], [1, heads, keys, width]
    nodes = [N("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]), N("MatMul", ["q", "t"], ["s"]), N("Mul", ["s", "c"], ["a"]),
             N("Softmax", ["a"], ["p"], axis=-1), N("MatMul", ["p", "v"], ["y"])]
    return Kernel(nodes, [value("q", shape), value("k", wide), value("v", wide)], [value("y", shape)],
                  {"c": np.array(width ** -0.5, np.float32)}, 2 * heads * queries * keys * width)


def bytes_product(m, n, k, peak, variant):
    x = np.random.default_rng(1).integers(0, 255, (m, k), np.uint8)
    w = np.random.default_rng(2).integers(-127, 127, (k, n), np.int8)
    return Kernel([N("MatMulInteger", ["x", "w"], ["y"])], [value("x", [m, k], T.UINT8)], [value("y", [m, n], T.INT32)], {"w": w},
                  m * n * k, peak, [f"-march={variant}"], [x])


def bf16_product(m, n, k, peak, variant):
    import ml_dtypes
    x, w = (floats(*s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n)))
    return Kernel([N("MatMul", ["x", "w"], ["y"])], [value("x", [m, k], BF16)], [value("y", [m, n], BF16)], {"w": w}, m * n * k, peak,
                  [f"-march={variant}"], [x])


KERNELS = {
    "GEMM 126x768x768": product(126, 768, 768), "GEMM 512x512x512": product(512, 512, 512), "GEMM 7x100x33": product(7, 100, 33),
    "GEMM 126x768x768, v3": product(126, 768, 768, peak="fma-8", flags=["-march=x86-64-v3"]),
    "GEMV 4096x4096": product(1, 4096, 4096), "GEMV 256x256": product(1, 256, 256),
    "u8 x i8 126x768x768": bytes_product(126, 768, 768, "dot-u8", "x86-64-v4-vnni"),
    "u8 x i8 126x768x768, v3": bytes_product(126, 768, 768, "madd-i16", "x86-64-v3"),
    "bf16 126x768x768": bf16_product(126, 768, 768, "dot-bf16", "x86-64-v4-bf16"),
    "bf16 126x768x768, f32 multiply-adds": bf16_product(126, 768, 768, "fma-16", "x86-64-v4"),
    "1x1 256>256 at 28": convolution(256, 256, 28, 1), "1x1 24>144 at 56": convolution(24, 144, 56, 1),
    "1x1 64>128 at 56, stride 2": convolution(64, 128, 56, 1, 2),
    "3x3 64>64 at 56, direct": convolution(64, 64, 56, 3, flags=["--winograd=off"]),
    "3x3 64>64 at 56, F(2)": convolution(64, 64, 56, 3, flags=["--winograd=2"]),
    "3x3 64>64 at 56, F(4)": convolution(64, 64, 56, 3, flags=["--winograd=4"]),
    "3x3 64>64 at 56, F(6)": convolution(64, 64, 56, 3, flags=["--winograd=6"]),
    "3x3 256>256 at 28": convolution(256, 256, 28, 3), "3x3 512>512 at 7": convolution(512, 512, 7, 3),
    "3x3 128>128 at 28, stride 2": convolution(128, 128, 28, 3, 2), "3x3 64>64 at 28, dilation 2": convolution(64, 64, 28, 3, 1, 2),
    "7x7 3>64 at 224, stride 2": convolution(3, 64, 224, 7, 2, first=True), "5x5 1>8 at 28": convolution(1, 8, 28, 5, first=True),
    "3x3 64>64 at 28, 8 groups": convolution(64, 64, 28, 3, groups=8),
    "depthwise 3x3 96 at 56": convolution(96, 96, 56, 3, groups=96), "depthwise 5x5 240 at 14": convolution(240, 240, 14, 5, groups=240),
    "3x3 64>64 at 56, of a map": convolution(64, 64, 56, 3, behind=True),
    "depthwise 3x3 96 at 56, of a map": convolution(96, 96, 56, 3, groups=96, behind=True),
    "3x3 64>128 at 56, stride 2, of a map": convolution(64, 128, 56, 3, 2, behind=True),
    "transposed 4x4 64>32 at 16, stride 2": convolution(64, 32, 16, 4, 2, transposed=True),
    "max pool 3x3 64 at 112": pool(64, 112),
    "mean 512 at 7": mapped("GlobalAveragePool", [1, 512, 7, 7], 512 * 49), "ReduceSum 512x768": mapped("ReduceSum", [512, 768], 512 * 768),
    "Softmax 2364x197": mapped("Softmax", [2364, 197], 10 * 2364 * 197), "LayerNorm 128x768": norm(128, 768),
    "Gelu 128x3072": mapped("Gelu", [128, 3072], 10 * 128 * 3072),
    "attention 12 x 128 x 128 x 64": attention(12, 128, 128, 64), "attention 4 x 512 x 512 x 64": attention(4, 512, 512, 64),
}
# Per cent of the peak, at the least. Without VNNI a step of 4 points by 2 vectors has 32 instructions that the peak consists of, and 14
# that take both operands apart into 16-bit halves (2 for each point, 3 for each vector): 90 % of 32/46, with 16 registers.
DOTS = {"u8 x i8 126x768x768": 90, "u8 x i8 126x768x768, v3": 90 * 32 / 46, "bf16 126x768x768": 90}


def rates():
    """{name: products or bytes a nanosecond}, and the levels of the memory."""
    found = {}
    for line in subprocess.run([BUILD / "tests/bench/peaks"], capture_output=True, text=True, check=True).stdout.splitlines():
        found[line.split()[0]] = float(line.split()[1])
    return found, [(level["bytes"], level["gb_per_s"]) for level in result("bench", "--calibrate", "--roofline", "--threads=1")["reads"]]


def best_time(run):
    """Processor seconds of one call, of the best of TURNS turns."""
    calls, times = 1, []
    for _ in range(TURNS):
        start = time.thread_time()
        for _ in range(calls):
            run()
        times.append((time.thread_time() - start) / calls)
        calls = max(1, int(TURN / max(times[-1], 1e-7)))
    return min(times[2:])


def kernel_time(path, feeds):
    """Seconds of the kernel of the node KERNEL, in the best of TURNS runs."""
    stamps, times = [], []
    with Artifact(path, threads=1, event=lambda user, node, end, ns: stamps.append((node, end, ns))) as artifact:
        wanted = {i for i in range(artifact.api.n_node) if artifact.api.node[i].name.decode() == KERNEL}
        outputs = artifact.run(feeds)
        for _ in range(TURNS):
            stamps.clear()
            artifact.run_into(feeds, outputs)
            times.append(max(b[2] - a[2] for a, b in zip(stamps, stamps[1:]) if b[1] and b[0] in wanted))
    return min(times) * 1e-9


def estimate(remarks, kernel, rates):
    """Seconds that the schedules of all kernels estimate, or that of the node KERNEL where it is timed alone; at this machine's clock,
    as its multiply-adds tell it."""
    found = [(line, float(us)) for line in remarks.splitlines() for us in re.findall(r"; ([0-9.]+) us estimated on ", line)]
    clock = rates["fma-16"] / 32 or rates["fma-8"] / 16
    return sum(us for line, us in found if not kernel.bytes or KERNEL in line) * 1e-6 * MODEL_CLOCK / clock


def measure(name, kernel, folder):
    """The line of one kernel, and its share of the limit; None: this CPU cannot run it."""
    before, levels = rates()
    if not before[kernel.peak]:
        return f"{name:40} this CPU has no {kernel.peak}", None
    path = save(folder / f"{len(list(folder.iterdir()))}.onnx", kernel.nodes, kernel.inputs, kernel.outputs, kernel.constants, opset=20)
    native = [] if any(f.startswith("-march") for f in kernel.flags) else ["-march=native"]
    done = mcc(path, "-o", path.with_suffix(".so"), "-Rpass-analysis=schedule", *native, *kernel.flags)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    feeds = kernel.feeds or [floats(*(d.dim_value for d in p.type.tensor_type.shape.dim)) for p in kernel.inputs]
    if kernel.bytes:
        seconds, bytes_ = kernel_time(path.with_suffix(".so"), feeds), kernel.bytes
    else:
        run, outputs = load_mcc(path.with_suffix(".so"), 1, feeds)
        seconds, bytes_ = best_time(run), sum(a.nbytes for a in [*feeds, *outputs(), *kernel.constants.values()])
    after, more = rates()
    reading = next((max(r, m) for (size, r), (_, m) in zip(levels, more) if bytes_ <= size), max(levels[-1][1], more[-1][1]))
    compute, memory = kernel.products / max(before[kernel.peak], after[kernel.peak]), bytes_ / reading
    model = estimate(done.stderr, kernel, {k: max(before[k], after[k]) for k in before}) / seconds
    share = 100 * max(compute, memory) / (seconds * 1e9)
    return (f"{name:40} {seconds * 1e6:9.2f} {kernel.products / seconds * 2e-9:9.1f} {bytes_ / seconds * 1e-9:8.1f} "
            f"{model:6.2f} {share:5.0f} % of {kernel.peak if compute > memory else 'memory'}"), share


def main():
    wanted = sys.argv[1:]
    if unknown := [w for w in wanted if not any(w in name for name in KERNELS)]:
        sys.exit(f"no kernel is called {unknown[0]!r}")
    print(f"{'kernel':40} {'us':>9} {'GFLOP/s':>9} {'GB/s':>8} {'model':>6}  share of the nearer limit")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name, kernel in KERNELS.items():
            if wanted and not any(w in name for w in wanted):
                continue
            line, share = measure(name, kernel, pathlib.Path(folder))
            low = share is not None and share < DOTS.get(name, 0)
            good &= not low
            print(line + (f"   MISSED: {DOTS[name]:.0f} %" if low else ""), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Quantized networks beside ONNX Runtime on the same file, and beside mcc's own f32 form, in turns.

usage: int8.py [--forms qdq,qop,...] [--threads N] [--rounds N] [--seconds S] [NET...]       make bench-int8 NETS="resnet50" QUANTIZED=qdq

Networks are the exports of make check-real, quantized by quantized.py into BUILD/int8 (MCC_INT8) once. By default the
convolutional ones are "qdq" (per channel, u8 activations, i8 weights) and the transformers "dynamic".

For each: milliseconds of ONNX Runtime and mcc and their ratio (above 1: mcc is faster), the time of mcc's f32 form over that of
the quantized one, the difference of outputs from the nearer of ONNX Runtime with and without its optimisations over that of those two (a byte
rounded to the other side spreads through a network), how far mcc's outputs are from the f32 network's over how far ONNX Runtime's are, seconds of
processor time to compile and bytes of code in a variant, each with its ratio to those of the f32 form, the artifact's size over the file's.
Outputs differ where both are too large: more than 1.5 apart, and more than 1.05 of ONNX Runtime's error. With one thread times are
processor time, so that a busy machine may be measured too; with more they are of the clock.
"""
import argparse
import math
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import turns  # noqa: E402
from peers import load_mcc, load_ort  # noqa: E402
from quantized import FORMS, quantize  # noqa: E402
from run import draw_inputs  # noqa: E402
from support.tool import BUILD, MCC  # noqa: E402

CNNS = ["mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "resnet18", "resnet50", "shufflenet_v2_x1_0", "densenet121"]
TRANSFORMERS = ["bert", "vit_b_16"]
APART_MOST, APART_LEAST, ERROR_MOST = 1.5, 1e-3, 1.05


def compiled(path, output, flags):
    """Processor seconds, bytes of code of the kernels of one variant."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([MCC, "-q", "--no-cache", path, "-o", output, *flags], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    symbols = subprocess.run(["nm", "-S", output], capture_output=True, text=True, check=True).stdout.split("\n")
    sizes = {}
    for fields in (line.split() for line in symbols):
        if len(fields) == 4 and fields[2] in "tT" and fields[3].startswith("k") and "_" in fields[3]:
            variant = fields[3].split(".", 1)[0].split("_", 1)[1]
            sizes[variant] = sizes.get(variant, 0) + int(fields[1], 16)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, max(sizes.values(), default=0)


def distance(a, b):
    """Root of the mean square of what differs, over all outputs that are floats, each over its scale."""
    parts = [np.sqrt(np.mean((np.float64(x) - y) ** 2)) / max(np.sqrt(np.mean(np.float64(y) ** 2)), 1e-30) for x, y in zip(a, b)]
    return max(parts) if all(map(math.isfinite, parts)) else math.inf


def plain_ort(path, inputs):
    """The outputs of ONNX Runtime without its optimisations."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {p.name: x for p, x in zip(session.get_inputs(), inputs)})


def measure(name, form, source, args, folder, flags):
    path = quantize(source, form, pathlib.Path(os.environ.get("MCC_INT8", BUILD / "int8")) / f"{name}-{form}.onnx")
    inputs = draw_inputs(onnx.load(source))
    mine, whole = folder / f"{name}-{form}.so", folder / f"{name}.so"
    seconds, code = compiled(path, mine, flags)
    seconds_whole, code_whole = compiled(source, whole, flags)
    runs = [load_ort(path, args.threads, inputs), load_mcc(mine, args.threads, inputs), load_mcc(whole, args.threads, inputs)]
    for run, _ in runs:
        run()
    theirs, ours, exact = ([np.array(o) for o in outputs()] for _, outputs in runs)
    plain = plain_ort(path, inputs)
    apart = min(distance(ours, theirs), distance(ours, plain)) / max(distance(theirs, plain), APART_LEAST)
    error = distance(ours, exact) / max(distance(theirs, exact), APART_LEAST)
    good = apart <= APART_MOST or error <= ERROR_MOST
    turns.clock = time.process_time if args.threads == 1 else time.perf_counter
    times = turns.alternate([run for run, _ in runs], args.rounds, args.seconds)
    ms = [1e3 * t for t in turns.medians(times)]
    ratio, own = statistics.median(t[0] / t[1] for t in times), statistics.median(t[2] / t[1] for t in times)
    print(f"{name:20} {form:13} {ms[0]:8.2f} {ms[1]:8.2f} {ratio:6.2f} {own:6.2f} {apart:6.2f} {error:6.2f} {seconds:6.1f} "
          f"{seconds / seconds_whole:5.2f} {code / 1e3:7.0f} {code / max(code_whole, 1):5.2f} "
          f"{mine.stat().st_size / path.stat().st_size:6.2f}{'' if good else '  OUTPUTS DIFFER'}", flush=True)
    return ratio if good else None


def find_source(name):
    folder = pathlib.Path(os.environ.get("MCC_NETS", BUILD / "nets"))
    path = folder / f"{name}_static.onnx"
    if not path.exists():
        subprocess.run(["/usr/bin/python3", HERE.parent / "real/export.py", folder, path.stem], check=True)
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forms", help=f"of {', '.join(FORMS)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1, help="of one turn")
    parser.add_argument("--flag", action="append", default=["-march=native"], help="handed to mcc")
    parser.add_argument("nets", nargs="*")
    args = parser.parse_args()
    print(f"{args.threads} thread(s), batch 1, {' '.join(args.flag)}")
    print(f"{'network':20} {'form':13} {'ort ms':>8} {'mcc ms':>8} {'ratio':>6} {'/f32':>6} {'apart':>6} {'error':>6} {'comp s':>6} {'/f32':>5} "
          f"{'code KB':>7} {'/f32':>5} {'size':>6}")
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.nets or CNNS + TRANSFORMERS:
            for form in args.forms.split(",") if args.forms else ["dynamic" if name in TRANSFORMERS else "qdq"]:
                ratios.append(measure(name, form, find_source(name), args, pathlib.Path(folder), args.flag))
    good = [r for r in ratios if r]
    if good:
        print(f"geometric mean of ONNX Runtime's time over mcc's: {math.exp(sum(map(math.log, good)) / len(good)):.3f}, "
              f"least {min(good):.2f} ({len(good)} networks)")
    return 0 if len(good) == len(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())

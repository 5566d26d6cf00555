#!/usr/bin/env python3
"""Several callers of one model at once, each in its own thread with a context of its own: runs a second over those of one caller.

usage: callers.py [--callers N] [--rounds N] [--seconds S] [NET | FILE.onnx ...]     make bench CALLERS=2 [ROUNDS=5] [NETS="resnet50 bert"]

A run has one thread; what callers share is the weights and, if the runtime had any, locks. Beside it ONNX Runtime, one session. Turns
of one and of all callers alternate; medians of rounds. The machine has to have as many idle CPUs as there are callers: less than 0.95
of the callers' number ends the run with 1.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import onnx

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1] / "runtime"))

import mcc  # noqa: E402
from run import BATCH_NETS, draw_inputs, find_nets  # noqa: E402
from support.tool import MCC  # noqa: E402

SHARE = 0.95


def ort_run(path, inputs):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = 1, 1, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {p.name: x for p, x in zip(session.get_inputs(), inputs)}
    return lambda: session.run(None, feed)


def rate(run, callers, seconds):
    """Runs a second of so many threads together."""
    counts, took, go, end = [0] * callers, [0.0] * callers, threading.Barrier(callers + 1), [float("inf")]

    def call(i):
        run()
        go.wait()
        start = time.perf_counter()      # of its own: callers begin before and behind the one that started them
        while time.perf_counter() < end[0]:
            run()
            counts[i] += 1
        took[i] = time.perf_counter() - start

    threads = [threading.Thread(target=call, args=(i,)) for i in range(callers)]
    for t in threads:
        t.start()
    go.wait()
    end[0] = time.perf_counter() + seconds
    for t in threads:
        t.join()
    return sum(n / t for n, t in zip(counts, took))


def measure(name, path, args, folder):
    artifact = folder / f"{name}.so"
    subprocess.run([MCC, path, "-o", artifact, "-q"], check=True)
    inputs = draw_inputs(onnx.load(path))
    model = mcc.load(str(artifact), threads=1)
    figures = []
    for run in (lambda: model(*inputs), ort_run(path, inputs)):
        one, all_of_them = [], []
        for _ in range(args.rounds):
            one.append(rate(run, 1, args.seconds))
            all_of_them.append(rate(run, args.callers, args.seconds))
        figures += [statistics.median(one), statistics.median(all_of_them)]
    a, b, c, d = figures
    print(f"{name:20} {a:9.1f} {b:9.1f} {b / a:6.2f} {c:9.1f} {d:9.1f} {d / c:6.2f}", flush=True)
    return b / a >= SHARE * args.callers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--callers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one turn")
    parser.add_argument("nets", nargs="*")
    args = parser.parse_args()
    args.competitor, args.batch = False, 1
    args.nets = args.nets or BATCH_NETS
    print(f"{'runs a second':20} {'mcc 1':>9} {f'mcc {args.callers}':>9} {'times':>6} {'ort 1':>9} {f'ort {args.callers}':>9} {'times':>6}")
    with tempfile.TemporaryDirectory() as folder:
        good = [measure(name, path, args, pathlib.Path(folder)) for name, path in find_nets(args).items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

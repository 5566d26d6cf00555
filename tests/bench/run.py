#!/usr/bin/env python3
"""The figures that the project states, measured beside ONNX Runtime in the same run.

usage: run.py [--threads N] [--rounds N] [NET...]       (make deps-bench for the exports)

For each network: compile time and the largest sum of resident memory over mcc and its workers, size of the artifact, the
median time of a run with batch 1 of both, taking turns in every round, and the ratio. Times of a busy machine mean
nothing: the load is printed first.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import onnxruntime

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support.artifact import Artifact  # noqa: E402
from support.tool import BUILD, DIGITS, MCC  # noqa: E402

NETS = ["resnet50", "mobilenet_v2", "mobilenet_v3_small", "bert", "convnext_tiny"]
RATIO_LIMIT = 1.5
COMPILE_LIMIT = {"resnet50": 2.0, "mobilenet_v3_small": 1.0, "bert": 4.0, "digits": 0.2}
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid):
    """Bytes of pid and all its children now."""
    total = 0
    try:
        total += int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            total += sum(resident(int(child)) for child in (task / "children").read_text().split())
    except (OSError, IndexError):
        pass
    return total


def compile_net(path, output):
    """(seconds, bytes at the peak)"""
    start = time.monotonic()
    process = subprocess.Popen([MCC, path, "-o", output])
    peak, done = 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident(process.pid))
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    status = process.wait()
    seconds = time.monotonic() - start
    done.set()
    watcher.join()
    if status:
        sys.exit(f"{path}: mcc ended with {status}")
    return seconds, peak


def reference(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def clock(run, seconds):
    """Times of single runs for about so long, at least five."""
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def input_of(session):
    port = session.get_inputs()[0]
    shape = [1 if not isinstance(d, int) else d for d in port.shape]
    rng = np.random.default_rng(1)
    return rng.integers(0, 30000, shape) if "int" in port.type else rng.standard_normal(shape).astype(np.float32)


def measure(name, path, args, folder):
    output = folder / f"{name}.so"
    seconds, peak = compile_net(path, output)
    weights = path.stat().st_size
    ort = reference(path, args.threads)
    x = input_of(ort)
    feed = {ort.get_inputs()[0].name: x}
    with Artifact(output, threads=args.threads) as a:
        outputs = a.run([x])
        wanted = ort.run(None, feed)
        error = max(float(np.abs(w - o).max() / max(np.abs(w).max(), 1e-30)) for w, o in zip(wanted, outputs))
        mine, theirs = [], []
        for turn in range(args.rounds):
            pair = [(mine, lambda: a.run_into([x], outputs)), (theirs, lambda: ort.run(None, feed))]
            for times, run in pair if turn % 2 else reversed(pair):
                times.append(statistics.median(clock(run, args.seconds)))
    ratio = statistics.median(m / t for m, t in zip(mine, theirs))
    memory_limit = 1.2 * weights + 250e6
    verdict = []
    if name in NETS and ratio > RATIO_LIMIT:
        verdict.append(f"slower than {RATIO_LIMIT} x")
    if seconds > COMPILE_LIMIT.get(name, np.inf):
        verdict.append(f"compiled in more than {COMPILE_LIMIT[name]} s")
    if peak > memory_limit:
        verdict.append(f"more than {memory_limit / 1e6:.0f} MB")
    print(f"{name:20} {statistics.median(mine):9.3f} {statistics.median(theirs):9.3f} {ratio:6.2f}  {error:7.1e} {seconds:8.2f} "
          f"{peak / 1e6:9.0f} {output.stat().st_size / 1e6:8.2f} {weights / 1e6:8.2f}  {', '.join(verdict) or 'ok'}", flush=True)
    output.unlink()
    return not verdict


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("nets", nargs="*")
    args = parser.parse_args()
    folder = pathlib.Path(os.environ.get("MCC_NETS", BUILD / "nets"))
    nets = args.nets or ["digits", *NETS]
    missing = [n for n in nets if n != "digits" and not (folder / f"{n}.onnx").exists()]
    if missing:
        subprocess.run(["/usr/bin/python3", HERE.parent / "real/export.py", folder, *missing], check=True)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs, {args.threads} thread(s), batch 1, f32; "
          f"onnxruntime {onnxruntime.__version__}")
    print(f"{'network':20} {'mcc ms':>9} {'ort ms':>9} {'ratio':>6}  {'error':>7} {'compile s':>8} {'peak MB':>9} {'.so MB':>8} "
          f"{'onnx MB':>8}")
    with tempfile.TemporaryDirectory() as scratch:
        good = [measure(n, DIGITS if n == "digits" else folder / f"{n}.onnx", args, pathlib.Path(scratch)) for n in nets]
    print(f"{sum(good)} of {len(good)} within the stated limits")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

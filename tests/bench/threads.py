#!/usr/bin/env python3
"""Is what mcc inspect --threads says of two threads what they take?

usage: threads.py [--rounds N] [--threads N] [NET | FILE.onnx ...]       make bench-threads [ROUNDS=5] [NETS="resnet50 bert"]

For each network, batch 1: estimated and measured times of one thread and of several, the bound on the speed-up and the measured one,
and the second over the first. A quotient below 0.85 or above 1.15 is marked, and ends the run with 1: either the estimates are wrong,
or threads wait for something that the bound knows nothing of (memory, the other CPU's work). Turns of one and of several threads
alternate, and medians of rounds are compared, so that a machine with other work disturbs both; it has to have CPUs to spare still.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))

from run import find_nets  # noqa: E402
from support.tool import MCC, result  # noqa: E402

WITHIN = 0.15


def bound(artifact, threads):
    """(ms of one thread, speed-up of so many)"""
    total = result("inspect", artifact, f"--threads={threads}")
    return total["alone_ns"] / 1e6, total["alone_ns"] / total["ns"][0]


def measured(artifact, threads, runs):
    return result("bench", artifact, "-t", threads, f"--runs={runs}")["median_ns"] / 1e6


def compare(name, path, args, folder):
    artifact = folder / f"{name}.so"
    subprocess.run([MCC, path, "-o", artifact, "-q"], check=True)
    estimate, most = bound(artifact, args.threads)
    runs = max(3, int(250 / measured(artifact, 1, 3)))
    one, more = [], []
    for _ in range(args.rounds):
        one.append(measured(artifact, 1, runs))
        more.append(measured(artifact, args.threads, runs))
    a, b = statistics.median(one), statistics.median(more)
    share = a / b / most
    print(f"{name:20} {estimate:9.2f} {a:9.2f} {estimate / most:9.2f} {b:9.2f} {most:6.2f} {a / b:6.2f} {share:6.2f}"
          f"{'' if abs(share - 1) <= WITHIN else '  beyond 15 %'}", flush=True)
    return abs(share - 1) <= WITHIN


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("nets", nargs="*")
    args = parser.parse_args()
    args.competitor, args.batch = False, 1
    print(f"{'network':20} {'1: est ms':>9} {'ms':>9} {f'{args.threads}: est ms':>9} {'ms':>9} {'bound':>6} {'speed':>6} {'share':>6}")
    with tempfile.TemporaryDirectory() as folder:
        good = [compare(name, path, args, pathlib.Path(folder)) for name, path in find_nets(args).items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

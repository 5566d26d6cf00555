#!/usr/bin/env python3
"""Does compiling take processor time and memory in proportion to the input, for everything that can be repeated?

usage: run.py [--quick] [NAME...]        make scaling [ONLY="chain-add ..."]

Each construct of constructs.py is made at sizes that double, until a run takes SECONDS of processor time or the largest size
is reached. Over the last two doublings processor time (workers included) may grow by at most 2.3 and peak memory by at most 2.2
a doubling, once above a floor that start-up alone takes. A refusal (status 1 to 4) counts as an answer;
a signal, an internal error or a run beyond WALL does not. --quick stops at a tenth of the time.
"""
import argparse
import os
import pathlib
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[k]) for k in (0, 1)]
import constructs  # noqa: E402
from support.usage import usage  # noqa: E402

MCC = os.environ.get("MCC", "build/mcc")
SECONDS, QUICK_SECONDS, WALL = 2.0, 0.25, 60
TIME_GROWTH, MEMORY_GROWTH = 2.3, 2.2
QUICK_GROWTH = 2.8   # runs of 0.1 s: memory that leaves L2 or L3 makes one doubling steeper, and n^2 is 4
TIME_FLOOR, MEMORY_FLOOR = 0.1, 64 << 20       # below these growth is not looked at: start-up is most of it
TRIES = 4                                      # a busy machine: the least of these counts; and sizes double on


def measure(construct, n, folder):
    return usage([MCC, *construct.command, *construct.files(folder, n)], 4 * WALL, WALL)


def grew(rows, column, floor, most):
    """The growth over the last two doublings is above the bound."""
    first, last = rows[-3][column], rows[-1][column]
    return last > floor and last > first * most ** 2


def examine(construct, seconds, growth=TIME_GROWTH):
    """(rows of (n, seconds, bytes, status), what is wrong or '')"""
    rows, wrong = [], ""
    with tempfile.TemporaryDirectory(prefix="mcc-scaling-") as folder:
        n = construct.least
        while True:
            status, said, took, size = measure(construct, n, pathlib.Path(folder))
            rows.append([n, took, size, status])
            if status not in (0, 1, 2, 3, 4):
                return rows, f"status {status}: {said.decode(errors='replace').strip()[-200:]}"
            if took > seconds or 2 * n > construct.most:
                break
            n *= 2
        if len(rows) < 3:
            return rows, "too slow for three sizes"
        for _ in range(TRIES):
            wrong = ("processor time" if grew(rows, 1, TIME_FLOOR, growth) else
                     "memory" if grew(rows, 2, MEMORY_FLOOR, MEMORY_GROWTH) else "")
            if not wrong:
                return rows, ""
            for row in rows[-3:]:
                row[1] = min(row[1], measure(construct, row[0], pathlib.Path(folder)).seconds)
            if rows[-1][1] <= 2 * seconds and 2 * rows[-1][0] <= construct.most:     # memory that leaves a cache is one step, n^2 goes on
                status, _, took, size = measure(construct, 2 * rows[-1][0], pathlib.Path(folder))
                rows.append([2 * rows[-1][0], took, size, status])
    return rows, f"{wrong} grows faster than the input"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    bad = 0
    known = {c.name for c in constructs.CONSTRUCTS}
    chosen = [c for c in constructs.CONSTRUCTS if not args.names or c.name in args.names or
              any(name in c.name for name in args.names if name not in known)]
    for construct in chosen:
        rows, wrong = examine(construct, *((QUICK_SECONDS, QUICK_GROWTH) if args.quick else (SECONDS,)))
        bad += bool(wrong)
        last = "  ".join(f"{n}: {took:.2f} s {size >> 20} MiB" + (f" (status {status})" if status else "") for n, took, size, status in rows[-3:])
        print(f"{'WRONG' if wrong else 'ok':6}{construct.name:24}{last}  {wrong}", flush=True)
    print(f"{len(chosen) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Cases of the ONNX suite as static networks (--emit=static), on this machine or a microcontroller of qemu (support/static.py): those that
passing.txt lists, drawn, compared by the official rule. Refusals are counted by their reasons; ends with 1 when a result is wrong.

usage: static.py [--machine=m4|m7|m55|rv32f|rv32|native|aarch64|riscv64] [--cases=300] [--seed=1] [--only=SUBSTRING]
"""
import argparse
import collections
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from conformance import suite  # noqa: E402
from conformance.passing import passing  # noqa: E402
from support.static import MACHINES, Failed, Program  # noqa: E402


def judge(case, machine):
    feeds, expected = suite.inputs_and_outputs(case)
    if not all(isinstance(a, np.ndarray) for a in feeds + expected):
        return "refused", "no tensors"
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = Program(folder, case.model, machine=machine)
        except ValueError as e:
            return "refused", str(e)
        if program.dims():
            return "refused", "sizes are symbols"
        try:
            got = program.run(feeds, [np.zeros_like(a, order="C") for a in expected])
        except Failed as e:
            return "failed", str(e)
        except subprocess.TimeoutExpired:
            return "too slow", ""
        except AssertionError as e:
            text = str(e)
            return ("too large", "") if "will not fit in region" in text or "overflowed" in text else ("wrong", text)
    for want, value in zip(expected, got):
        if text := suite.differs(want, value, case):
            return "wrong", text
    return "passed", ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--machine", default="native", choices=MACHINES)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    known = suite.cases()
    names = [n for n in passing() if args.only in n]
    random.Random(args.seed).shuffle(names)
    counts, bad = collections.Counter(), 0
    for name in names[:args.cases]:
        status, text = judge(known[name], args.machine)
        last = text.strip().splitlines()[0] if text.strip() else ""
        reason = re.sub(r"'[^']*'", "", last.rpartition("--emit=static: ")[2])[:90] if status == "refused" else ""
        counts[status, reason] += 1
        if status in ("wrong", "failed"):
            bad += 1
            print(f"{status}: {name}: {text[:1000]}", flush=True)
    for (status, reason), count in counts.most_common():
        print(f"{count:6} {status}{': ' * bool(reason)}{reason}")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

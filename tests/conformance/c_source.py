#!/usr/bin/env python3
"""The ONNX suite as C source (--emit=c): compiled by gcc for 64 or 32 bits without a warning, with the bits of the shared object for the same
CPU. Prints counts by reason; ends with 1 when a case fails.

usage: c_source.py [--bits=32] [--every=N [--first=K]] [--only=SUBSTRING] [--details]
"""
import argparse
import collections
import pathlib
import re
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from conformance import suite  # noqa: E402
from support.artifact import Artifact  # noqa: E402
from support.static import X86_32, CProgram  # noqa: E402
from support.tool import mcc  # noqa: E402

CPU = "-march=x86-64-v2"


def is_same(one, other):
    """NaNs of any kind are alike."""
    bits, nan = f"u{one.itemsize}", np.not_equal(one, one)
    return one.shape == other.shape and ((one.view(bits) == other.view(bits)) | (nan & np.not_equal(other, other))).all()


def verdict(case, folder, machine):
    if mcc("-q", "-j1", case.model, CPU, "-o", folder / "net.so").returncode:
        return "no shared object"
    try:
        program = CProgram(folder, case.model, machine=machine)
    except ValueError as refusal:   # its reason, without names and counts
        return "refused: " + re.sub(r"^.*error: |'[^']*'|\(\d+ times\)", "", str(refusal).strip().split("\n")[0]).strip()
    feeds = suite.inputs_and_outputs(case)[0]
    with Artifact(folder / "net.so", threads=1) as net:
        want = [np.asarray(a) for a in net.call(feeds)]
    return "same bits" if all(is_same(a, b) for a, b in zip(program.run(feeds, want), want, strict=True)) else "FAILED: other bits"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bits", type=int, default=64, choices=(64, 32))
    parser.add_argument("--every", type=int, default=1, help="of the cases only every so many")
    parser.add_argument("--first", type=int, default=0, help="from this one on")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--details", action="store_true", help="one line for each case")
    args = parser.parse_args()
    known = [c for n, c in sorted(suite.cases().items()) if args.only in n][args.first::args.every]
    counts, failed = collections.Counter(), []
    for case in known:
        with tempfile.TemporaryDirectory() as folder:
            try:
                said = verdict(case, pathlib.Path(folder), "native" if args.bits == 64 else X86_32)
            except Exception as e:   # of a compiler, a program or data that this cannot read
                said = f"FAILED: {type(e).__name__}: {str(e)[-300:]}"
        counts[said if not said.startswith("FAILED") else "FAILED"] += 1
        if args.details:
            print(f"{case.name}: {said}", flush=True)
        if said.startswith("FAILED"):
            failed.append(f"{case.name}: {said}")
    for said, n in counts.most_common():
        print(f"{n:6} {said}")
    print(*failed, sep="\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

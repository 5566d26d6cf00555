"""ONNX's node tests as C source (--emit=c): compiled by gcc, with the bits of the shared object for the same CPU.

usage: c_source.py [EVERY]      every so many of them, default 1
"""
import collections
import pathlib
import re
import sys
import tempfile

import numpy as np
import onnx.backend.test
from onnx import TensorProto, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from support.artifact import Artifact
from support.static import CProgram
from support.tool import mcc


def tensor(path):
    t = TensorProto()
    t.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(t)


def is_same(one, other):
    """NaNs of any kind are alike."""
    bits, nan = f"u{one.itemsize}", np.not_equal(one, one)
    return one.shape == other.shape and ((one.view(bits) == other.view(bits)) | (nan & np.not_equal(other, other))).all()


def verdict(case, folder):
    model = case / "model.onnx"
    if mcc("-q", model, "-march=x86-64-v2", "-o", folder / "net.so").returncode:
        return "no shared object"
    try:
        program = CProgram(folder, model)
    except ValueError as refusal:   # its reason, without names and counts
        return re.sub(r"^.*error: |'[^']*'|\(\d+ times\)", "", str(refusal).strip().split("\n")[0]).strip()
    inputs = sorted((case / "test_data_set_0").glob("input_*.pb"), key=lambda p: int(re.search(r"(\d+)", p.name)[1]))
    with Artifact(folder / "net.so", threads=1) as net:
        arrays = [tensor(p) for p in inputs]
        want = [np.asarray(a) for a in net.call(arrays)]
    return "same bits" if all(is_same(a, b) for a, b in zip(program.run(arrays, want), want)) else "FAILED: other bits"


def main():
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    cases = sorted((pathlib.Path(onnx.backend.test.__file__).parent / "data/node").iterdir())[::every]
    counts, failed = collections.Counter(), []
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            try:
                said = verdict(case, pathlib.Path(folder))
            except Exception as e:   # of a compiler, a program or data that this cannot read
                said = f"FAILED: {type(e).__name__}"
        counts[said] += 1
        if said.startswith("FAILED"):
            failed.append(f"{case.name}: {said}")
    for said, n in counts.most_common():
        print(f"{n:6} {said}")
    print(*failed, sep="\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

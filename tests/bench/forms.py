#!/usr/bin/env python3
"""Compares networks of one operator, or of one operator between quantizers, with ONNX Runtime: processor time, one thread.

usage: forms.py [--rounds N] [--flag=FLAG...] [SUBSTRING...]        substrings of names, in either case

A turn is as many calls as take 4 ms. The two alternate, each round begins with the other one, and the ratio is the median of all
rounds. The script compares outputs before it measures. GFLOP/s counts two operations for a multiply-add. Forms without multiply-adds
show GB/s, which counts each byte of inputs, constants and outputs once. The script marks a form whose ratio is below SLOW. The exit
status is 1 if a form is marked, if mcc refuses one, or if outputs differ. --flag is passed to mcc.
"""
import argparse
import collections
import pathlib
import statistics
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from form_classes import CLASSES  # noqa: E402
from form_table import FORMS as OPERATORS  # noqa: E402
from peers import load_mcc, load_ort  # noqa: E402
from support.tool import mcc  # noqa: E402
from turns import alternate, medians, same_outputs  # noqa: E402

TURN, SLOW, LEAST = 4e-3, 0.95, 1e-5
FORMS = OPERATORS | CLASSES


def model_of(form):
    """The network with the types of its outputs."""
    made = [o for n in form.nodes for o in n.output]
    read = {i for n in form.nodes for i in n.input}
    inputs = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), form.open.get(k, a.shape))
              for k, a in form.feeds.items()]
    tensors = [numpy_helper.from_array(np.asarray(a), k) for k, a in form.constants.items()]
    outputs = [onnx.ValueInfoProto(name=o) for o in made if o not in read]
    graph = helper.make_graph(form.nodes, "form", inputs, outputs, tensors)
    domains = {"": form.opset} | {n.domain: 1 for n in form.nodes if n.domain}
    imports = [helper.make_opsetid(*d) for d in domains.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def measure(name, form, flags, rounds, folder):
    """The line of one form, and what became of it."""
    path = folder / "form.onnx"
    artifact = folder / f"{len(list(folder.iterdir()))}.so"        # a library stays loaded: each has its own name
    onnx.save(model_of(form), path)
    done = mcc("-q", path, "-o", artifact, *flags)
    if done.returncode:
        return f"{name:46} refused: {done.stderr.splitlines()[0][:100]}", "refused"
    feeds = [np.asarray(a, order="C") for a in form.feeds.values()]
    (mine, my_outputs), (theirs, their_outputs) = load_mcc(artifact, 1, feeds), load_ort(path, 1, feeds)
    mine(), theirs()
    if not same_outputs(my_outputs(), their_outputs(), form.close, LEAST, form.steps):
        return f"{name:46} outputs differ", "different"
    times = alternate([theirs, mine], rounds, TURN)
    ratio = statistics.median(a / b for a, b in times)
    ours = medians(times)[1]
    bytes_ = sum(a.nbytes for a in [*feeds, *form.constants.values(), *my_outputs()])
    rate = f"{2 * form.work / ours * 1e-9:8.1f} GFLOP/s" if form.work else f"{bytes_ / ours * 1e-9:8.1f} GB/s"
    slow = ratio < SLOW
    row = f"{name:46} {medians(times)[0] * 1e6:9.1f} {ours * 1e6:9.1f} {ratio:6.2f} {rate:16}"
    return row + ("  SLOW" if slow else ""), "slow" if slow else "held"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--flag", action="append", default=[])
    parser.add_argument("only", nargs="*")
    args = parser.parse_args()
    if unknown := [w for w in args.only if not any(w.lower() in name.lower() for name in FORMS)]:
        sys.exit(f"no form is called {unknown[0]!r}")
    print(f"{'form':46} {'ort us':>9} {'mcc us':>9} {'ratio':>6} {'rate of mcc':>16}")
    count = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name, form in FORMS.items():
            if args.only and not any(w.lower() in name.lower() for w in args.only):
                continue
            row, end = measure(name, form, args.flag, args.rounds, pathlib.Path(folder))
            print(row.rstrip(), flush=True)
            count[end] += 1
    print(", ".join(f"{n} {end}" for end, n in count.items()))
    return 0 if set(count) == {"held"} else 1


if __name__ == "__main__":
    sys.exit(main())

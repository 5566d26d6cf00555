#!/usr/bin/env python3
"""A folder of networks (../shared/models, without ops/ and negative/) beside ONNX Runtime, one thread, in processor time:
a line each, with the compile time and the artifact's size against their limits.

usage: models.py [--root FOLDER] [--rounds N] [--all] [SUBSTRING...]

A turn is as many calls as fill 20 ms; turns of the two alternate, and the middle turn of each counts. Processor time, so
that a busy machine may be measured too. Inputs are those stored beside the network, else drawn. What is asked for:
float32 networks that take ONNX Runtime at least 0.2 ms: at most 1.2 times its time; STEPS, called step by step: at most
half of it; quantized ones and those with other elements: printed only. Compiling: 1 s and 3 s for 100 MB of weights, in
processor time over this machine's processors. Artifact: 1.02 times the weights and 300 KB for each variant. Outputs of
float32 networks are compared, and a difference misses. What mcc
refuses or ONNX Runtime cannot run has no time: the last line counts them.
"""
import argparse
import collections
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import onnx

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "real"))

from collection import REFUSED as REFUSALS  # noqa: E402  (tests/real)
from conformance import suite  # noqa: E402
from judge import drawn, ports_of  # noqa: E402
from peers import load_mcc, load_ort  # noqa: E402
from support.tool import MCC, ROOT, result  # noqa: E402
from turns import alternate, medians, same_outputs  # noqa: E402

STEPS = ("audio/dtln_1", "audio/gtcrn_simple", "audio/silero_vad_16k_op15")
TURN, LEAST_MS, MOST, MOST_STEP, OUTPUTS, LEAST = 0.02, 0.2, 1.2, 0.5, 1e-3, 1e-5


def inputs_of(path, model):
    """The inputs stored beside the network, by name; else drawn ones."""
    for data in sorted([*path.parent.glob("generated_data_set_*"), *path.parent.glob("test_data_set_*")]):
        files = [data / f"input_{i}.pb" for i in range(len(ports_of(model)))]
        if all(f.exists() for f in files):
            return {p.name: suite.read(f, p.type) for f, p in zip(files, ports_of(model))}
    return drawn(model)


def is_float(model):
    """No tensor of another element type than float32, except for indices, conditions and the like."""
    names = {n.op_type for n in model.graph.node}
    other = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.INT8, onnx.TensorProto.UINT8,
             onnx.TensorProto.DOUBLE}
    return (not any("Quant" in n or "QLinear" in n or "Integer" in n for n in names)
            and not any(t.data_type in other for t in model.graph.initializer)
            and not any(p.type.tensor_type.elem_type in other for p in ports_of(model)))


def weights_of(path, model):
    external = sum(f.stat().st_size for f in path.parent.iterdir() if f.is_file() and f.suffix not in (".onnx", ".pb"))
    return path.stat().st_size + external


def compile_net(path, output):
    """(exit status, processor seconds over the number of processors, wall seconds, first line of a failure)"""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([MCC, "-q", path, "-o", output], capture_output=True, text=True, errors="replace")
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - start
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text = "" if done.returncode == 0 else (done.stderr.splitlines() or [f"exit {done.returncode}"])[0]
    return done.returncode, spent / os.cpu_count(), seconds, text


def variants_of(artifact):
    return max(len(result("inspect", artifact)["bytes"]["variants"]), 1)


def measure(path, name, rounds, folder):
    """The row of one network, what became of it ("held", "missed", "refused", "not timed")."""
    model = onnx.load(path, load_external_data=False)
    output = pathlib.Path(folder, name.replace("/", "_") + ".so")
    status, spent, wall, text = compile_net(path, output)
    if status:
        return f"{name:44} exit {status}: {text[:100]}", "refused" if status in REFUSALS else "missed"
    size, weights, variants = output.stat().st_size, weights_of(path, model), variants_of(output)
    asked = [] if size <= 1.02 * weights + 300e3 * variants else ["size"]
    asked += [] if spent <= 1 + 3 * weights / 100e6 else ["compile time"]
    os.chdir(path.parent)
    feeds = inputs_of(path, model)
    values, kind = list(feeds.values()), "f32" if is_float(model) else "other"
    peers = []                                       # own their outputs
    for load in (load_mcc, load_ort):
        try:
            peers.append(load(output if load is load_mcc else path, 1, values))
            peers[-1][0]()
        except (Exception, SystemExit) as e:
            expected = load is load_ort
            return f"{name:44} not timed: {str(e).splitlines()[0][:80]}", "not timed" if expected and not asked else "missed"
    mine, theirs = (1e3 * t for t in medians(alternate([run for run, _ in peers], rounds, TURN)))
    ratio = mine / theirs
    if kind == "f32" and not same_outputs(*(outputs() for _, outputs in peers), OUTPUTS, LEAST):
        asked.append("outputs")
    if name in STEPS and ratio > MOST_STEP or kind == "f32" and theirs >= LEAST_MS and ratio > MOST:
        asked.append("speed")
    row = f"{name:44} {theirs:9.4f} {mine:9.4f} {ratio:6.2f} {spent:8.2f} {wall:6.2f} {size / 1e3:9.0f} {weights / 1e3:9.0f} {variants:2}"
    return f"{row} {kind}{' STEP' if name in STEPS else ''}{'  MISSED: ' + ', '.join(asked) if asked else ''}", "missed" if asked else "held"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, default=ROOT.parent / "shared/models")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--all", action="store_true", help="ops/ and negative/ too")
    parser.add_argument("only", nargs="*")
    args = parser.parse_args()
    if not args.root.exists():
        print(f"{args.root} is not there: skipped")
        return 0
    print(f"{'network':44} {'ort ms':>9} {'mcc ms':>9} {'ratio':>6} {'compile':>8} {'wall':>6} {'.so KB':>9} {'onnx KB':>9} variants")
    count = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(args.root.resolve().rglob("*.onnx")):
            name = str(path.parent.relative_to(args.root.resolve()))
            if not args.all and name.startswith(("ops/", "negative/")) or not any(o in name for o in args.only or [""]):
                continue
            row, end = measure(path, name, args.rounds, folder)
            print(row, flush=True)
            count[end] += 1
    print(", ".join(f"{n} {end}" for end, n in count.items()))
    return 1 if count["missed"] or not count["held"] else 0


if __name__ == "__main__":
    sys.exit(main())

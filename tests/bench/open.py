#!/usr/bin/env python3
"""Compares networks with dynamic sizes with the same files whose sizes are fixed (--input), and with ONNX Runtime, on one thread.

usage: open.py [--nets FOLDER] [--exports FOLDER] [--python FILE] [--rounds N] [--counts] [SUBSTRING...]

The networks are those of --nets, whose batch is dynamic, and those of --exports. With --python FILE, a Python that has the packages of
open_requirements.txt, real/export.py and open_nets.py export the missing ones. A row shows the number of kernels of one CPU level, for
dynamic and for fixed sizes. Then it shows ratios of dynamic to fixed sizes: run time (median of processor times of short turns that
alternate), workspace, the compiler's processor time, its peak memory, and code size. The last ratio is ONNX Runtime's time over mcc's
with dynamic sizes. Then come geometric means, and the most that a compilation with dynamic sizes took. The script compares outputs before
it measures. It marks a network MORE if dynamic sizes need more kernels, and SLOW if they take more than 1.1 times as long. The exit
status is 1 if a network is marked, if mcc refuses one, or if outputs differ. With --counts nothing runs, so all figures but compile time
and memory are the same on any machine.
"""
import argparse
import collections
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from peers import load_mcc, load_ort  # noqa: E402
from run import GOALS  # noqa: E402
from support.tool import BUILD, MCC, mcc  # noqa: E402
from support.usage import usage  # noqa: E402
from turns import alternate, same_outputs  # noqa: E402

TURN, SLOW, TOLERANCE, LEAST, COMPILE_MOST = 0.02, 1.1, 2e-3, 1e-5, 600
WIDTHS = 6, 6, 8, 7, 6, 9   # of the ratios
HEADER = f"{'network':28} {'kernels':>9} {'run':>6} {'space':>6} {'compile':>8} {'memory':>7} {'code':>6} {'ort/open':>9}"


class Refused(Exception):
    """mcc does not compile the network."""


def compile_net(path, artifact, flags):
    """(processor seconds, peak bytes)"""
    spent = usage([MCC, "-q", path, "-o", artifact, *flags], COMPILE_MOST)
    if spent.status:
        raise Refused((spent.said.decode(errors="replace").splitlines() or [f"status {spent.status}"])[0])
    return spent.seconds, spent.bytes


def sizes_of(path, feeds):
    """{symbol: its value for these inputs}"""
    dims = {}
    for port in onnx.load(path, load_external_data=False).graph.input:
        for dim, n in zip(port.type.tensor_type.shape.dim, feeds[port.name].shape if port.name in feeds else ()):
            dims |= {dim.dim_param: n} if dim.dim_param else {}
    return dims


def inspect(artifact, sizes):
    """(kernels, bytes of code, bytes of workspace for these sizes)"""
    done = mcc("inspect", "--json", artifact, *(f"--dim={d}={n}" for d, n in sizes.items()))
    about = json.loads(done.stdout)["result"]
    if not about:
        raise Refused(done.stderr.splitlines()[0])
    return sum(k["kernels"] for k in about["kernels"]), sum(v["code"] for v in about["bytes"]["variants"]), about["workspace"]["bytes"]


def run_times(artifacts, path, feeds, rounds):
    """Ratios of processor time: open over fixed, ONNX Runtime over open; raises where outputs differ."""
    inputs = [np.asarray(a, order="C") for a in feeds.values()]
    loaded = [load_mcc(a, 1, inputs) for a in artifacts] + [load_ort(path, 1, inputs)]
    for run, _ in loaded:
        run()
    outputs = [made() for _, made in loaded]
    if not all(same_outputs(o, outputs[-1], TOLERANCE, LEAST) for o in outputs[:-1]):
        raise ValueError("outputs differ")
    times = alternate([run for run, _ in loaded], rounds, TURN)
    return [statistics.median(a / b for a, b in pairs) for pairs in (((t[0], t[1]) for t in times), ((t[2], t[0]) for t in times))]


def row_of(name, path, feeds, args, folder):
    """The line of a network, what became of it, its ratios, and the compiler's seconds and bytes with dynamic sizes."""
    artifacts = [folder / f"{len(list(folder.iterdir()))}.so"]        # a library stays loaded: each has its own name
    artifacts.append(artifacts[0].with_suffix(".fixed.so"))
    fixed = [f"--input={k}[{','.join(map(str, a.shape))}]" for k, a in feeds.items()]
    costs = [compile_net(path, a, flags) for a, flags in zip(artifacts, ([], fixed))]
    (kernels, code, space), (kernels_fixed, code_fixed, space_fixed) = (inspect(a, d) for a, d in zip(artifacts, (sizes_of(path, feeds), {})))
    run, ort = (None, None) if args.counts else run_times(artifacts, path, feeds, args.rounds)
    ratios = [run, space / max(space_fixed, 1), costs[0][0] / costs[1][0], costs[0][1] / costs[1][1], code / code_fixed, ort]
    marks = ["MORE"] * (kernels > kernels_fixed) + ["SLOW"] * (run is not None and run > SLOW)
    return "  ".join([line_of(name, f"{kernels:4} {kernels_fixed:4}", ratios), *marks]), "slower" if marks else "held", ratios, costs[0]


def line_of(name, kernels, ratios):
    numbers = (f"{'-':>{width}}" if r is None else f"{r:{width}.2f}" for r, width in zip(ratios, WIDTHS))
    return f"{name:28} {kernels:>9} {' '.join(numbers)}"


def means_of(rows):
    """The geometric mean of each ratio, over the networks that have it."""
    columns = ([r for r in column if r is not None] for column in zip(*rows))
    return [statistics.geometric_mean(c) if c else None for c in columns]


def drawn(path):
    """Inputs of a network of --nets: open dims are 1."""
    graph, rng, feeds = onnx.load(path, load_external_data=False).graph, np.random.default_rng(1), {}
    given = {t.name for t in graph.initializer}
    for port in (p for p in graph.input if p.name not in given):
        kind = port.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else 1 for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        feeds[port.name] = (rng.integers(0, 100, shape) if dtype.kind in "iu" else rng.standard_normal(shape)).astype(dtype)
    return feeds


def networks(args):
    """(name, file, inputs): the inputs that the file has, exporters drop unused ones."""
    for path in sorted(args.nets.glob("*.onnx")) if args.nets.exists() else []:
        yield path.stem, path, lambda path=path: drawn(path)
    for path in sorted(args.exports.glob("*.onnx")):
        with np.load(args.exports / f"{path.stem.rpartition('-')[0]}.npz") as stored:
            feeds = {k: stored[k] for k in stored.files}
        yield path.stem, path, lambda path=path, feeds=feeds: {
            p.name: feeds[p.name] for p in onnx.load(path, load_external_data=False).graph.input}


def export(args):
    """Exports what is missing: the networks of make bench, and those of open_nets.py."""
    nets = [n for n in GOALS if any(w in n for w in args.only or [""])]
    missing = lambda: [n for n in nets if not (args.nets / f"{n}.onnx").exists()]
    if missing():
        subprocess.run([args.python, HERE.parent / "real/export.py", args.nets, *missing()], stderr=subprocess.DEVNULL)
    subprocess.run([args.python, HERE / "open_nets.py", args.exports, *args.only], stderr=subprocess.DEVNULL, check=True)
    if missing():
        print("not exported:", *missing())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nets", type=pathlib.Path, default=BUILD / "nets")
    parser.add_argument("--exports", type=pathlib.Path, default=BUILD / "open/nets")
    parser.add_argument("--python", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("only", nargs="*")
    args = parser.parse_args()
    if args.python:
        export(args)
    print(HEADER)
    count, all_ratios, costs = collections.Counter(), [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path, feeds in networks(args):
            if args.only and not any(w in name for w in args.only):
                continue
            try:
                row, end, ratios, costs[name] = row_of(name, path, feeds(), args, pathlib.Path(folder))
                all_ratios.append(ratios)
            except (Refused, ValueError) as e:
                row, end = f"{name:28} {e}"[:200], "refused" if isinstance(e, Refused) else "different"
            print(row, flush=True)
            count[end] += 1
    if all_ratios:
        print(line_of("geometric mean", "", means_of(all_ratios)))
        slow, large = max(costs, key=lambda n: costs[n][0]), max(costs, key=lambda n: costs[n][1])
        print(f"most with dynamic sizes: {costs[slow][0]:.2f} s of processor time ({slow}), {costs[large][1] / 1e6:.0f} MB ({large})")
    print(", ".join(f"{n} {end}" for end, n in count.items()))
    return 0 if set(count) == {"held"} else 1


if __name__ == "__main__":
    sys.exit(main())

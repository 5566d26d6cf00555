#!/usr/bin/env python3
"""What --strict costs: networks with the option and without, in turns, one thread, processor time.

usage: strict.py [--rounds N] [--seconds S] [--options TEXT] [NAME or FILE.onnx ...]

Names are those of BUILD/nets (MCC_NETS) with fixed sizes, all by default. --options: of both, as "-march=x86-64-v3". A turn is as many calls as fill
--seconds. A ratio above 1.15, or a geometric mean above 1.05, ends with status 1.
"""
import argparse
import contextlib
import os
import pathlib
import statistics
import sys
import tempfile

import onnx

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.run import draw_inputs  # noqa: E402
from support.artifact import Artifact  # noqa: E402
from support.tool import BUILD, compile_to  # noqa: E402
from turns import alternate  # noqa: E402

MOST, MEAN = 1.15, 1.05


def ratio(path, folder, args):
    """(time with --strict over that without, milliseconds without)"""
    feeds, keep, runs = draw_inputs(onnx.load(path, load_external_data=False)), [], []
    with contextlib.ExitStack() as stack:
        for name, options in (("default", []), ("strict", ["--strict"])):
            out = compile_to(folder / f"{name}.so", path, "-q", *options, *args.options.split())
            artifact = stack.enter_context(Artifact(out, threads=1))
            runs.append(artifact.renewed(artifact.tensors(feeds, keep)))
        times = alternate(runs, args.rounds, args.seconds)
    return statistics.median(strict / default for default, strict in times), 1e3 * statistics.median(default for default, _ in times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--options", default="-march=native")
    parser.add_argument("nets", nargs="*")
    args = parser.parse_args()
    nets = pathlib.Path(os.environ.get("MCC_NETS", BUILD / "nets"))
    files = [pathlib.Path(n) if n.endswith(".onnx") else nets / f"{n}_static.onnx" for n in args.nets] or sorted(nets.glob("*_static.onnx"))
    ratios = []
    for path in files:
        with tempfile.TemporaryDirectory() as folder:
            of, ms = ratio(path, pathlib.Path(folder), args)
        ratios.append(of)
        print(f"{path.stem.removesuffix('_static'):24} {ms:8.2f} ms {of:6.3f}", flush=True)
    mean = statistics.geometric_mean(ratios)
    print(f"--strict over the default, {args.options}: geometric mean {mean:.3f}, least {min(ratios):.3f}, most {max(ratios):.3f}")
    return mean > MEAN or max(ratios) > MOST


if __name__ == "__main__":
    sys.exit(main())

"""Miscompiles that the log knows, put back one by one: the proof rejects each, and not because of the network.

usage: past.py [NAME ...]

A row is (name, commit that mended it, file, today's text, the text with the bug, network, options). Left out are those of legalization, of
which nothing is proved, of rounding, of sizes near 2^63, of other targets, and of networks with state, which are not proved.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
from onnx import helper

from mutants.compiler import FOLDERS, ROOT, make
from mutants.networks import node
from support.tool import save, value

BUILD = pathlib.Path(os.environ.get("MCC_BUILD", ROOT / "build")).resolve()
ALL = "-march=x86-64-v4,x86-64-v2"  # several variants


def across(path):
    """The sums of a square's rows broadcast along the other axis."""
    return save(path, [node("Exp", ["x"], "e"), node("ReduceSum", ["e", "last"], "s", keepdims=0), node("Mul", ["s", "e"], "r"), node("Add", ["r", "e"], "y")],
                [value("x", ["n", "n"])], [value("y", ["n", "n"])], {"last": [-1]}, opset=13)


def cached(path):
    """Few rows of queries, an open number of keys: their parts lie in the workspace."""
    return save(path, [helper.make_node("Attention", ["q", "k", "v"], ["y"], "attention")],
                [value("q", [1, 1, 8, 24]), value("k", [1, 1, "t", 24]), value("v", [1, 1, "t", 24])], [value("y", [1, 1, 8, 24])], opset=23)


def hidden(path):
    """Rows whose keys are all masked are 0."""
    nodes = [helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"], "attention")]
    mask = np.ones((40, 40), bool)
    mask[3], mask[7, 5:] = False, False
    return save(path, nodes, [value(name, [1, 2, 40, 16]) for name in "qkv"], [value("y", [1, 2, 40, 16])], {"mask": mask}, opset=23)


# BUG is true for the row that is on.
PAST = [
    ("rows of the result", "0fdb0c15", "passes/fuse/store.c", " && read_where_stored(f, k, v, __builtin_ctz(inner))",
     " && (BUG || read_where_stored(f, k, v, __builtin_ctz(inner)))", across, []),
    ("one plan of several CPUs", "ab7c10af", "passes/program/program.c", "if (k->shared_bytes > m->plan.shared_bytes)",
     "if (BUG ? k->shared_bytes : k->shared_bytes > m->plan.shared_bytes)", cached, [ALL, "--dim=t=1024"]),
    ("rows without keys", "ac318d57", "passes/emit/attention/stages.c", "        least > 0)", "        least > BUG)", hidden, []),
]


def build():
    """One compiler with all of the bugs, each on by MCC_MUTANT=ROW.1 (mutant.c)."""
    folder = BUILD / "mutants/past"
    texts = {path.relative_to(ROOT): path.read_bytes() for top in (*FOLDERS, "Makefile") for path in (ROOT / top, *(ROOT / top).rglob("*")) if path.is_file()}
    for i, (_, _, file, old, new, _, _) in enumerate(PAST):
        text = texts[pathlib.Path(file)]
        if text.count(old.encode()) != 1:
            raise RuntimeError(f"{file}: the text is not there once: {old}")
        texts[pathlib.Path(file)] = text.replace(old.encode(), new.replace("BUG", f"mutant({i})").encode())
    for name, text in texts.items():
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_bytes() != text:
            to.write_bytes(text)
    make(folder, "../past-obj")
    return BUILD / "mutants/past-obj/mcc"


def prove(compiler, path, options, bug=None):
    march = [] if any("march" in o for o in options) else ["-march=native"]
    env = {**os.environ, "MCC_CACHE": "off", **({} if bug is None else {"MCC_MUTANT": f"{bug}.1"})}
    return subprocess.run([compiler, "prove", path, *march, *options], capture_output=True, text=True, timeout=600, env=env)


def main(names):
    compiler, bad, n = build(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, commit, _, _, _, network, options) in enumerate(PAST):
            if names and not any(n in name for n in names):
                continue
            path = network(pathlib.Path(folder) / f"{i}.onnx")
            before, after = prove(compiler, path, options), prove(compiler, path, options, i)
            why = re.findall(r"not proved, because (.*)|(output .* differs|its code wrote .*)", after.stdout)
            right = before.returncode == 0 and after.returncode == 6
            n, bad = n + 1, bad + (not right)
            says = f"rejected, {''.join(why[0])}" if right else f"status {before.returncode} without the bug, {after.returncode} with it"
            print(f"{name} ({commit}): {says}", flush=True)
    print(f"{n - bad} of {n} past miscompiles are rejected")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

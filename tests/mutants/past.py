"""Miscompiles that the log knows, put back one by one: the proof rejects each, and not because of the network.

usage: past.py [NAME ...]

A row is (name, commit that mended it, file, today's text, the text with the bug, network, options); without a file, the bug is the one of the
row before it. Left out are those of legalization, of which nothing is proved, of rounding, of sizes near 2^63, of other targets, and of networks
with state, which are not proved.
"""
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from onnx import helper

from cli import test_prove as proofs
from mutants.compiler import FOLDERS, ROOT, make
from mutants.networks import node, weights
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




def nearest(path):
    """Resized to half the elements and one more: at one element all indices are 0."""
    nodes = [node("Shape", ["x"], "s", start=1), node("Div", ["s", "two"], "h"), node("Add", ["h", "one"], "o"), node("Concat", ["four", "o"], "sizes", axis=0),
             helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], "resize", mode="nearest", nearest_mode="floor")]
    return save(path, nodes, [value("x", [4, "n"])], [value("y", [4, "m"])], {"two": [2], "one": [1], "four": [4]}, opset=19)


def sums(path):
    """Sums along an open number of elements: groups of vectors, single vectors, a rest."""
    return save(path, [node("Exp", ["x"], "e"), node("ReduceSum", ["e", "last"], "y", keepdims=0)], [value("x", [5, "n"])], [value("y", [5])],
                {"last": [1]}, opset=13)


def centred(path):
    """Rows less their sum, with zeros at their ends."""
    nodes = [node("ReduceSum", ["x", "last"], "s", keepdims=1), node("Sub", ["x", "s"], "c"), node("Pad", ["c", "pads"], "p"), node("Add", ["p", "z"], "y")]
    return save(path, nodes, [value("x", [6, 40]), value("z", [6, 45])], [value("y", [6, 45])], {"last": [1], "pads": [0, 0, 0, 5]}, opset=13)


def long_map(path):
    """A number of whole vectors, of which threads take parts."""
    return save(path, [node("Tanh", ["x"], "t"), node("Add", ["t", "x"], "y")], [value("x", ["n"])], [value("y", ["n"])])


def counted(path, wide):
    """A loop that may make no trip: what is stored after it has room where its values lay, or where its first value lay alone."""
    body = helper.make_graph([helper.make_node("Identity", ["go"], ["on"]), helper.make_node("MatMul", ["a", "x"], ["b"], "body")], "body",
                             [value("i", [], 7), value("go", [], 9), value("a", [24, 24])], [value("on", [], 9), value("b", [24, 24])])
    nodes = [node("MatMul", ["x", "w"], "first"), helper.make_node("Loop", ["m", "", "first"], ["l"], "loop", body=body),
             node("MatMul", ["l", "v"], "t"), node("MatMul", ["t", "u"], "s"), node("Add", ["s", "l"], "y")]
    return save(path, nodes, [value("x", [24, 24]), value("m", [], 7)], [value("y", [24, 24])],
                {"w": weights(24, 24), "v": weights(24, wide), "u": weights(wide, 24)}, opset=13)


def splat(path):
    """A convolution, with padding, of what is one number everywhere."""
    nodes = [node("Shape", ["x"], "n", end=1), node("Concat", ["n", "rest"], "shape", axis=0), node("Expand", ["one", "shape"], "e"),
             node("Conv", ["e", "w"], "c", pads=[1, 1, 1, 1]), node("Add", ["c", "x"], "y")]
    return save(path, nodes, [value("x", ["n", 8, 6, 6])], [value("y", ["n", 8, 6, 6])], {"one": np.float32(1.5), "rest": [3, 6, 6], "w": weights(8, 3, 3, 3)})


def quotients(path, pads):
    """Integers, no whole number of vectors, by what is never 0, with zeros around."""
    shape = [3 + pads[0] + pads[2], 41 + pads[1] + pads[3]]
    nodes = [node("Div", ["a", "c"], "d"), node("Pad", ["d", "pads"], "p"), node("Add", ["p", "z"], "y")]
    return save(path, nodes, [value("a", [3, 41], 6), value("z", shape, 6)], [value("y", shape, 6)], {"c": np.arange(1, 42, dtype=np.int32), "pads": pads})


def uneven(path):
    """64 output channels by Winograd's form: columns of 3 vectors do not divide them."""
    return save(path, [node("Conv", ["x", "w"], "y", pads=[1, 1, 1, 1])], [value("x", [1, 16, 12, 12])], [value("y", [1, 64, 12, 12])],
                {"w": weights(64, 16, 3, 3)})


def few_rows(path):
    """What tiles leave of an open number of rows."""
    return save(path, [node("MatMul", ["x", "w"], "y")], [value("x", ["n", 24])], [value("y", ["n", 7])], {"w": weights(24, 7)})


def channels(path):
    """The channels of an image have an open size, which the weights decide."""
    return save(path, [node("Conv", ["x", "w"], "y")], [value("x", ["n", "c", 5, 5])], [value("y", ["n", 4, 3, 3])], {"w": weights(4, 3, 3, 3)})


def chosen_start(path):
    """A slice that is empty where sizes choose the other start, and are of the form 4 k + 1."""
    nodes = [node("Shape", ["x"], "sx"), node("Shape", ["y"], "sy"), node("Min", ["sx", "sy"], "least"), node("Mul", ["least", "large"], "far"),
             node("Neg", ["sy"], "near"), node("Mul", ["sx", "two"], "twice"), node("Greater", ["sy", "twice"], "more"),
             node("Where", ["more", "far", "near"], "start"), node("Slice", ["z", "start", "end"], "r")]
    return save(path, nodes, [value("x", ["a"]), value("y", ["b"]), value("z", [64])], [value("r", ["m"])],
                {"large": [1 << 62], "two": [2], "end": [64]})


# BUG is true for the row that is on.
PAST = [
    ("rows of the result", "0fdb0c15", "passes/fuse/store.c", " && read_where_stored(f, k, v, __builtin_ctz(inner))",
     " && (BUG || read_where_stored(f, k, v, __builtin_ctz(inner)))", across, []),
    ("one plan of several CPUs", "ab7c10af", "passes/program/program.c", "if (k->shared_bytes > m->plan.shared_bytes)",
     "if (BUG ? k->shared_bytes : k->shared_bytes > m->plan.shared_bytes)", cached, [ALL, "--dim=t=1024"]),
    ("rows without keys", "ac318d57", "passes/emit/attention/stages.c", "        least > 0)", "        least > BUG)", hidden, []),
    ("vectors that fill no group", "83fd36b3", "passes/emit/reduce_one.c", "    if (!fixed) {", "    if (!fixed && !BUG) {", sums, []),
    ("lanes of what pads", "9cc2539b", "passes/emit/reduce_one.c", "    cond = point_condition(em,", "    if (!BUG) cond = point_condition(em,", centred, []),
    ("parts of whole vectors", "362e257f", "passes/emit/nest.c", "if (!one && !exact && ", "if (!one && (!exact || BUG) && ", long_map,
     ["--input=x:f32[n=16..%16]"]),
    ("values of loops", "9051a550", "passes/layout/plan.c", "for (int k = 0; k < 3; k++) {", "for (int k = 0; k < (BUG ? 0 : 3); k++) {",
     functools.partial(counted, wide=72), []),
    ("first values of loops", "9051a550", None, None, None, functools.partial(counted, wide=24), []),
    ("padding around a splat", "e47e3a82", "passes/emit/reduce_step.c", "bool splat = value_is_splat(", "bool splat = !BUG && value_is_splat(", splat, []),
    ("divisors of a pad", "e47e3a82", "passes/emit/map.c", "    if (ex_truth(em->x, em->cond) != TRUE_)", "    if (!BUG && ex_truth(em->x, em->cond) != TRUE_)",
     functools.partial(quotients, pads=[0, 0, 0, 3]), []),
    ("divisors beyond the end", "ff431da2", "passes/emit/map.c", "    if (live.i)\n        valid", "    if (live.i && !BUG)\n        valid",
     functools.partial(quotients, pads=[1, 1, 1, 2]), []),
    ("uneven columns", "6ac368ac", "passes/emit/winograd/winograd.c", ".columns = even_split(s->group, s->nr)};",
     ".columns = BUG ? (struct even){(s->group + s->nr - 1) / s->nr, s->nr, 0} : even_split(s->group, s->nr)};", uneven, ["--choose=y:tile.vectors=3"]),
    ("loops of one trip or none", "48b7e9b7", "passes/emit/loops.c", "max - 1 <= ex_lo(em->x, lo))", "max - 1 <= ex_lo(em->x, lo) && !BUG)", few_rows,
     ["--machine=on"]),
    ("ranges of a version", "found by make fuzz-exact", "passes/module/within.c", "    folds_copied(g, n->arena);",
     "    if (!BUG)\n        folds_copied(g, n->arena);", nearest, ["--choose=resize:version=1"]),
    # Mutants of the compiler that were proved at first.
    ("sums that begin with garbage", "a mutant", "passes/emit/attention/stages.c", "ex_const(x, t->nv * attn_row_line(t)), NULL",
     "ex_const(x, BUG ? t->nv + attn_row_line(t) : t->nv * attn_row_line(t)), NULL", proofs.attention, [proofs.SPANS, "--machine=on"]),
    ("a maximum that is not kept", "a mutant", "passes/emit/attention/stages.c", "for (int64_t j = 0; j < t->nv; j++) {\n        lreg before",
     "for (int64_t j = 0; BUG ? j >= t->nv : j < t->nv; j++) {\n        lreg before", proofs.attention, [proofs.SPANS, "--machine=on"]),
    ("two lanes of a sum", "a mutant", "codegen/llvm/llvm_ops.c", "uint32_t half = t.lanes / 2;",
     "uint32_t half = BUG && elem_is_float(t.elem) ? 1 : t.lanes / 2;", sums, ["--machine=on"]),
    ("a size beyond its bound", "a mutant", "passes/program/plan_function.c", "if (b.hi < given.hi)", "if (!BUG && b.hi < given.hi)", channels, []),
    ("integers as floats", "a mutant", "passes/module/analysis.c", "return c == 'F' ? value_const_f64", "return (c == 'F') != BUG ? value_const_f64",
     chosen_start, []),
]


def texts():
    """The compiler's files with all of the bugs, each on by MCC_MUTANT=ROW.1 (mutant.c): {path: bytes}"""
    found = {path.relative_to(ROOT): path.read_bytes() for top in (*FOLDERS, "Makefile") for path in (ROOT / top, *(ROOT / top).rglob("*")) if path.is_file()}
    for i, (_, _, file, old, new, _, _) in enumerate(PAST):
        if not file:
            continue
        text = found[pathlib.Path(file)]
        if text.count(old.encode()) != 1:
            raise RuntimeError(f"{file}: the text is not there once: {old}")
        found[pathlib.Path(file)] = text.replace(old.encode(), new.replace("BUG", f"mutant({i})").encode())
    return found


def build():
    """The compiler with them."""
    folder = BUILD / "mutants/past"
    for name, text in texts().items():
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_bytes() != text:
            to.write_bytes(text)
    make(folder, "../past-obj")
    return BUILD / "mutants/past-obj/mcc"


def prove(compiler, path, options, bug=None):
    """{what is proved}, {what is not: why}"""
    march = [] if any("march" in o for o in options) else ["-march=native"]
    while bug is not None and not PAST[bug][2]:
        bug -= 1
    env = {**os.environ, "MCC_CACHE": "off", **({} if bug is None else {"MCC_MUTANT": f"{bug}.1"})}
    done = subprocess.run([compiler, "prove", path, "--json", *march, *options], capture_output=True, text=True, timeout=600, env=env)
    if done.returncode not in (0, 6):
        return set(), {"its run": done.stderr.strip()[-200:] or f"status {done.returncode}"}
    found = json.loads(done.stdout)["result"]
    rows = []
    for v in found["variants"]:
        rows += [(("program", v["variant"]), v["program"]["proved"], v["program"]["why"])]
        rows += [((k["kernel"], v["variant"]), k["proved"], k["why"]) for k in v["kernels"]]
    for v in found["machine"]["variants"] if found["machine"] else []:
        rows += [(("machine code of the program", v["variant"]), not v["program"], v["program"])]
        rows += [(("machine code of " + k["kernel"], v["variant"]), k["agrees"], k["why"] or "its bits differ") for k in v["kernels"]]
    return {key for key, proved, _ in rows if proved}, {key: why for key, proved, why in rows if not proved}


def main(names):
    compiler, bad, n = build(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, commit, *_, network, options) in enumerate(PAST):
            if names and not any(n in name for n in names):
                continue
            path = network(pathlib.Path(folder) / f"{i}.onnx")
            (before, _), (after, why) = prove(compiler, path, options), prove(compiler, path, options, i)
            lost = [f"{what if isinstance(what, str) else what[0]}: {reason}" for what, reason in why.items() if isinstance(what, str) or what in before]
            n, bad = n + 1, bad + (not lost)
            print(f"{name} ({commit}): {'rejected, ' + lost[0] if lost else f'not rejected; proved: {sorted(before)}'}", flush=True)
    print(f"{n - bad} of {n} past miscompiles are rejected")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

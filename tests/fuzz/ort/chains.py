"""Long chains of computations on sizes, made to hurt: mcc must end with a verdict, soon, and in little memory.

usage: chains.py [N] [SEED]

Nothing is run and no result is compared: a chain may be refused. `mcc check` and a compilation of each end with status 0, 1 or 4,
within SECONDS of processor time (workers included) and BYTES. What does not is written to BUILD/fuzz-chains/SEED.onnx, as short
as it can be.
"""
import pathlib
import signal
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from support.tool import BUILD, MCC
from support.usage import OVERDUE, usage

SECONDS, WALL, BYTES = 10, 100, 1 << 30
LENGTHS = (2, 5, 10, 20, 40, 80, 160, 320)
SMALL = (1, 2, 3, 4, 7, 16, 64)
HUGE = (0, -1, -3, 2 ** 31, 2 ** 31 - 1, -2 ** 31, 2 ** 32 + 1, 2 ** 40, 2 ** 61 + 1, 2 ** 62, -2 ** 62, 2 ** 63 - 1, -2 ** 63)
OPSET = 18


class Chain:
    """A network in the making. Sizes are int64 scalars; `data` are elements of an input, which nobody knows before the run."""

    def __init__(self, seed):
        self.rng = np.random.default_rng([seed, 2])
        self.nodes, self.tensors, self.count = [], [], 0
        self.ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m", "h", 12]),
                      helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "k"]),
                      helper.make_tensor_value_info("data", TensorProto.INT64, [4])]

    def pick(self, items):
        return items[self.rng.integers(len(items))]

    def chance(self, percent):
        return self.rng.integers(100) < percent

    def const(self, value):
        self.count += 1
        self.tensors.append(numpy_helper.from_array(np.array(value, np.int64), f"c{self.count}"))
        return f"c{self.count}"

    def node(self, op, operands, **attributes):
        self.count += 1
        self.nodes.append(helper.make_node(op, operands, [f"v{self.count}"], **attributes))
        return f"v{self.count}"

    def dim(self):
        kind = self.pick(("x", "x", "y", "data"))
        of = self.node("Shape", [kind]) if kind != "data" else "data"
        return self.node("Gather", [of, self.const(int(self.rng.integers({"x": 3, "y": 2, "data": 4}[kind])))])

    def number(self):
        return self.const(self.pick(HUGE) if self.chance(40) else self.pick(SMALL))

    def leaf(self):
        return self.dim() if self.chance(60) else self.number()

    def vector(self, values):
        return self.node("Concat", [self.node("Unsqueeze", [v, self.const([0])]) for v in values], axis=0)


# ---- links: each gives the next value from the last one and those before -------------------------------------------------------

def links(c):
    """A function of the chain so far; what it draws here stays the same along the chain."""
    op, other = c.pick(("Add", "Sub", "Mul", "Div", "Div", "Mod", "Mod", "Max", "Min")), c.leaf()
    kind = c.pick(("self", "same", "fresh", "fresh", "dag", "where", "shape", "cast", "mixed", "mixed"))
    if kind == "self":                                        # v + v: a tree of 2^n
        return lambda v, old: c.node(op, [v, v])
    if kind == "same":                                        # v / c / c
        return lambda v, old: c.node(op, [v, other])
    if kind == "fresh":                                       # v / a / b
        return lambda v, old: c.node(op, [v, c.leaf()])
    if kind == "dag":
        return lambda v, old: c.node(op, [v, c.pick(old[-6:])])
    if kind == "where":
        compare = c.pick(("Less", "Equal", "Greater"))
        return lambda v, old: c.node("Where", [c.node(compare, [c.pick(old[-3:]), c.leaf()]), v, c.node(op, [c.pick(old[-3:]), c.leaf()])])
    if kind == "shape":                                       # through the extents of a tensor
        return lambda v, old: c.node("Size", [c.node("ConstantOfShape", [c.vector([v, c.pick(old)])])])
    if kind == "cast":
        return lambda v, old: c.node("Cast", [c.node("Cast", [c.node(op, [v, other])], to=c.pick((1, 6, 11)))], to=TensorProto.INT64)
    ops = [c.pick(("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")) for _ in range(3)]
    return lambda v, old: c.node(ops[len(old) % 3], [v, c.pick((other, c.pick(old[-4:]), c.leaf()))])


def reshapes(c, length):
    """Tensors whose shape is computed from the shape of the one before."""
    x, k = "x", c.number() if c.chance(30) else c.const(c.pick((2, 3, 4)))
    op, to = c.pick(("Mul", "Div", "Add", "Mod")), c.const([-1])
    for _ in range(length):
        first = c.node("Gather", [c.node("Shape", [x]), c.const(0)])
        first = c.node("Unsqueeze", [c.node(op, [first, k]), c.const([0])])
        kind = c.pick(("Reshape", "Reshape", "Slice", "Expand", "Concat"))
        if kind == "Reshape":
            x = c.node("Reshape", [x, c.node("Concat", c.pick(([first, to], [to, first])), axis=0)])
        elif kind == "Slice":
            x = c.node("Slice", [x, c.const([0]), first, c.const([0])])
        elif kind == "Expand":
            x = c.node("Expand", [c.node("ReduceSum", [x, c.const([0])], keepdims=1), c.node("Concat", [first, c.const([1])], axis=0)])
        else:
            x = c.node("Concat", [x, x], axis=0)
    return x


def used(c, v):
    """What takes the size v."""
    kind = c.pick(("value", "ConstantOfShape", "Slice", "Reshape", "Expand", "Range", "Tile", "Gather", "Pad"))
    if kind == "value":
        return v
    one = c.node("Unsqueeze", [v, c.const([0])])
    if kind == "ConstantOfShape":
        return c.node("ConstantOfShape", [one])
    if kind == "Slice":
        return c.node("Slice", ["x", c.pick((one, c.const([0]))), one, c.const([1])])
    if kind == "Reshape":
        return c.node("Reshape", ["x", c.node("Concat", [one, c.const([-1])], axis=0)])
    if kind == "Expand":
        return c.node("Expand", ["y", c.node("Concat", [one, c.const([1, 1])], axis=0)])
    if kind == "Range":
        return c.node("Range", [c.const(0), v, c.const(1)])
    if kind == "Tile":
        return c.node("Tile", ["y", c.node("Concat", [c.const([1]), one], axis=0)])
    if kind == "Gather":
        return c.node("Gather", ["x", v], axis=1)
    return c.node("Pad", ["y", c.node("Concat", [c.const([0, 0, 0]), one], axis=0)])


def chain(seed, longest=None):
    """The network of this seed; of at most so many links."""
    c = Chain(seed)
    length = int(c.pick(LENGTHS))
    length = min(length, longest) if longest else length
    if c.chance(15):
        results = [reshapes(c, length)]
    else:
        old = [c.dim(), c.leaf()]
        link = links(c)
        for _ in range(length):
            old.append(link(old[-1], old))
        results = [used(c, old[-1]) for _ in range(c.rng.integers(1, 3))]
    graph = helper.make_graph(c.nodes, "chain", c.ports, [helper.make_empty_tensor_value_info(r) for r in dict.fromkeys(results)], c.tensors)
    return length, helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


# ---- what must hold --------------------------------------------------------------------------------------------------------------

def fault(model, folder):
    """What is wrong with mcc on this network, or ""."""
    path, made = pathlib.Path(folder) / "chain.onnx", pathlib.Path(folder) / "chain.so"
    onnx.save(model, path)
    for args in (["check", path], [path, "-o", made, "-march=native"]):
        done = usage([MCC, *args], WALL, cpu=SECONDS)
        what = "check" if args[0] == "check" else "compile"
        if done.seconds > SECONDS or done.status in (OVERDUE, -signal.SIGXCPU, -signal.SIGKILL):
            return f"{what}: {done.seconds:.1f} s of processor time"
        if done.status not in (0, 1, 4):
            return f"{what}: status {done.status}: {done.said.decode(errors='replace').strip()[-200:]}"
        if done.bytes > BYTES:
            return f"{what}: {done.bytes >> 20} MiB"
    return ""


def shortest(seed, length, folder):
    """(the shortest length that fails, the fault)"""
    for longest in sorted({*range(1, 9), *range(10, length, max(length // 12, 1)), length}):
        found = longest <= length and fault(chain(seed, longest)[1], folder)
        if found:
            return longest, found
    return length, ""


def run(n, seed, keep=None):
    """Of the chains seed .. seed + n - 1, those that break a promise: [(seed, length, fault)]."""
    bad = []
    with tempfile.TemporaryDirectory(prefix="mcc-chains-") as folder:
        for s in range(seed, seed + n):
            length, model = chain(s)
            found = fault(model, folder)
            if not found:
                continue
            length, again = shortest(s, length, folder)
            bad.append((s, length, again or found))
            print(f"seed {s}, {length} links: {again or found} | {' '.join(sorted({x.op_type for x in model.graph.node}))}", flush=True)
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                onnx.save(chain(s, length)[1], keep / f"{s}.onnx")
    return bad


def main():
    n, seed = (int(a) for a in [*sys.argv[1:3], 1000, 1][:2]) if len(sys.argv) != 2 else (int(sys.argv[1]), 1)
    keep, start = BUILD.resolve() / "fuzz-chains", time.monotonic()
    bad = run(n, seed, keep)
    print(f"{n} chains from seed {seed}: {len(bad)} break a promise, {time.monotonic() - start:.0f} s" + (f"; {keep}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

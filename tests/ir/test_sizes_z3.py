"""What the algebra of sizes claims, proved or refuted by z3: drawn expressions of sizes as an ONNX file computes them, beside the dims
that mcc prints after legalize, for all sizes that pass the checks of a run. Whole numbers have no limits in z3, so overflow is not its
subject. MCC_TEST_SEED and MCC_TEST_COUNT (networks) override what is drawn; skipped without z3-solver, which pip has.
"""
import os
import random
import re

import pytest
from onnx import helper

from support.compare import ints, node
from support.tool import mcc, save, value

z3 = pytest.importorskip("z3", reason="z3-solver is not installed")

SEED, COUNT = int(os.environ.get("MCC_TEST_SEED", "1")), int(os.environ.get("MCC_TEST_COUNT", "12"))
DIMS, DEPTH, TIMEOUT = 4, 3, 100   # expressions of a network; milliseconds of a proof
NAMES = ["m", "n", "k"]


# ---- operations: in z3 --------------------------------------------------------------------------------------------------

def floordiv(a, b):
    return z3.If(b > 0, a / b, (-a) / (-b))


def truncdiv(a, b):
    size = z3.Abs(a) / z3.Abs(b)
    return z3.If((a >= 0) == (b > 0), size, -size)


def mod(a, b):
    return a - b * floordiv(a, b)


def least(*args):
    result = args[0]
    for a in args[1:]:
        result = z3.If(a < result, a, result)
    return result


def most(*args):
    return -least(*(-a for a in args))


WORDS = {"floordiv": floordiv, "mod": mod, "min": least, "max": most, "And_": z3.And, "Not_": z3.Not, "select": z3.If}


def parsed(text, symbols):
    """An expression as mcc prints it."""
    return z3.simplify(z3.IntVal(0) + eval(re.sub(r"\b(and|not)\(", lambda m: f"{m[1].capitalize()}_(", text), WORDS | symbols))


# ---- drawn networks -------------------------------------------------------------------------------------------------------

class Drawn:
    """Nodes that compute DIMS sizes from those of the inputs, the same in z3, and the divisors."""

    def __init__(self, seed):
        self.rng, self.nodes, self.divisors, self.constants = random.Random(seed), [], [], {}
        self.symbols = {s: z3.Int(s) for s in NAMES}
        self.known = [(f"s{i}", self.symbols[s]) for i, s in enumerate(NAMES)]
        for i in range(len(NAMES)):
            self.nodes.append(node("Shape", "x", f"s{i}", start=i, end=i + 1))
        self.results = [self.draw(DEPTH) for _ in range(DIMS)]

    def constant(self, v):
        self.constants[f"c{v}".replace("-", "_")] = ints(v)
        return f"c{v}".replace("-", "_"), z3.IntVal(v)

    def apply(self, op, a, b, what):
        name = f"e{len(self.nodes)}"
        self.nodes.append(node(op, f"{a[0]} {b[0]}", name))
        made = name, what
        self.known.append(made)          # which others may read as well
        return made

    def draw(self, depth):
        rng = self.rng
        if depth == 0 or rng.random() < 0.15:
            return self.constant(rng.randrange(9)) if rng.random() < 0.25 else rng.choice(self.known)
        a, op = self.draw(depth - 1), rng.choice(["Add", "Add", "Sub", "Mul", "Mul", "Div", "Div", "Mod", "Max", "Min"])
        if op in ("Div", "Mod"):
            b = self.constant(rng.choice([2, 3, 4, 8])) if rng.random() < 0.6 else rng.choice(self.known)
            self.divisors.append(b[1])
            return self.apply(op, a, b, (truncdiv if op == "Div" else mod)(a[1], b[1]))
        b = self.draw(depth - 1) if op != "Mul" or rng.random() < 0.5 else self.constant(1 + rng.randrange(4))
        what = {"Add": lambda p, q: p + q, "Sub": lambda p, q: p - q, "Mul": lambda p, q: p * q, "Max": most, "Min": least}[op]
        return self.apply(op, a, b, what(a[1], b[1]))

    def save(self, path):
        """The second output has elements in every run: no size is a case of its own."""
        nodes = [*self.nodes, node("Concat", " ".join(r[0] for r in self.results), "all", axis=0), node("ConstantOfShape", "all", "y"),
                 node("ConstantOfShape", "c1", "z")]
        save(path, nodes, [value("x", NAMES)], [helper.make_empty_tensor_value_info("y"), value("z", [1])], self.constants | {"c1": ints(1)})


def split(text):
    """At commas outside of parentheses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        parts = [*parts, ""] if c == "," and not depth else [*parts[:-1], parts[-1] + c]
    return parts


def claims(text, drawn):
    """What mcc says of the network: each dim is the printed one, sizes are within their bounds."""
    printed = re.search(r'^  %\d+ "y": f32\[(.*)\] = ', text, re.M)
    dims = split(printed[1])
    made = [(f"{what} is {dim.strip()}", what == parsed(dim, drawn.symbols)) for (_, what), dim in zip(drawn.results, dims, strict=True)
            if not re.search(r"\bv\d+", dim)]      # a number that the run computes: nothing is claimed
    for name, lo, hi, step in re.findall(r'^check "(\w+)" \[(\d+), (\w+)\](?: / (\d+))?', text, re.M):
        s = drawn.symbols[name]
        bounds = [s >= int(lo), *([s <= int(hi)] if hi != "inf" else []), *([s % int(step) == 0] if step else [])]
        made.append((f"{name} in [{lo}, {hi}] {step}", z3.And(bounds)))
    for name, same in re.findall(r'^check "(\w+)" = "?(\w+)', text, re.M):
        made.append((f"{name} is {same}", drawn.symbols[name] == drawn.symbols[same]))
    return made


def test_claims(tmp_path):
    count = {"unsat": 0, "unknown": 0, "refused": 0}
    for seed in range(SEED, SEED + COUNT):
        drawn = Drawn(seed)
        drawn.save(tmp_path / "net.onnx")
        done = mcc("-q", tmp_path / "net.onnx", "-O0", "-stop-after=legalize", "-o", "-")
        if done.returncode:                  # every run would fail, or a number is beyond 64 bits
            count["refused"] += 1
            continue
        premise = [*(s >= 0 for s in drawn.symbols.values()), *(d != 0 for d in drawn.divisors), *(z3.And(r[1] >= 0, r[1] < 2**31) for r in drawn.results)]
        for words, claim in claims(done.stdout, drawn):
            solver = z3.Solver()
            solver.set("timeout", TIMEOUT)
            solver.add(*premise, z3.Not(claim))
            verdict = solver.check()
            assert verdict != z3.sat, f"seed {seed}: not {words}: {solver.model()}"
            count[str(verdict)] += 1
    assert count["unsat"] > count["unknown"] and count["refused"] < COUNT / 2, count

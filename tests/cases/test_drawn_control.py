"""Control flow drawn at random beside ONNX Runtime: If, Loop and Scan up to three deep, with captures, carried tensors, sequences and
optionals, placeholders, collected rows, no iterations, and dims of the run. MCC_DRAWS=N draws N networks, MCC_SEED=S others."""
import os

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.compare import Model, difference, floats, node
from support.tool import value

F = np.float32
DRAWS, SEED = int(os.environ.get("MCC_DRAWS", 16)), int(os.environ.get("MCC_SEED", 1))
TENSOR = helper.make_tensor_type_proto(T.FLOAT, None)
OPTIONAL = helper.make_optional_type_proto(TENSOR)
TYPES = {"mat": TENSOR, "num": TENSOR, "tall": TENSOR, "seq": helper.make_sequence_type_proto(TENSOR), "opt": OPTIONAL}
CONSTANTS = {"true": np.array(True), "false": np.array(False), "half": F(0.5), "zero": np.array(0), "one": np.array(1), "last": np.array(-1),
             "seven": F([7]), **{f"c{k}": np.array(k) for k in range(4)}}


def info(name, kind):
    return helper.make_value_info(name, TYPES[kind])


class Drawer:
    """A value is a name and a kind: mat f32[n, 3], num f32[], tall f32[?, 3], seq of at least one mat, opt of a mat."""

    def __init__(self, seed):
        self.rng, self.n, self.nodes = np.random.default_rng(seed), 0, []
        self.shape = [[], [1]][int(self.rng.integers(2))]     # of the input p, and of the condition in loops that begin with it

    def name(self):
        self.n += 1
        return f"v{self.n}"

    def add(self, op, inputs, **attributes):
        out = self.name()
        self.nodes.append(node(op, inputs, out, **attributes))
        return out

    def pick(self, scope, kind):
        names = [n for n, k in scope.items() if k == kind]
        return names[self.rng.integers(len(names))]

    def inside(self, draw):
        """What draw() gives, and the nodes that it adds."""
        outer, self.nodes = self.nodes, []
        result = draw()
        inner, self.nodes = self.nodes, outer
        return result, inner

    # ---- values of a kind ------------------------------------------------------------------------------------------------

    def make(self, scope, kind):
        """A new value of the kind; bounded, so that nothing grows past floats."""
        if kind == "mat":
            a, b = self.pick(scope, "mat"), self.pick(scope, str(self.rng.choice(["mat", "num"])))
            return self.add("Tanh", self.add(str(self.rng.choice(["Add", "Sub", "Mul"])), f"{a} {b}"))
        if kind == "num":
            held = [k for k in ("tall", "seq", "opt") if k in scope.values()]
            of = str(self.rng.choice(["mat", "num", *held]))
            return getattr(self, f"num_of_{of}")(scope, self.pick(scope, of))
        if kind == "tall":
            parts = [self.pick(scope, str(self.rng.choice(["mat", "tall"] if "tall" in scope.values() else ["mat"]))) for _ in range(2)]
            return self.add("Concat", " ".join(parts), axis=0)
        if kind == "seq":
            if "seq" in scope.values() and self.rng.integers(2):
                place = str(self.rng.choice(["", " zero", " last"]))
                return self.add("SequenceInsert", f"{self.pick(scope, 'seq')} {self.pick(scope, 'mat')}{place}")
            return self.add("SequenceConstruct", " ".join(self.pick(scope, "mat") for _ in range(self.rng.integers(1, 3))))
        return self.either(scope, ["opt"], lambda: [self.add("Optional", self.pick(scope, "mat"))], lambda: [self.add("Optional", "", type=TENSOR)])[0]

    def num_of_mat(self, scope, v):
        return self.add("ReduceMean", v, keepdims=0)

    def num_of_num(self, scope, v):
        return self.add("Tanh", self.add("Sub", f"{v} {self.pick(scope, 'num')}"))

    num_of_tall = num_of_mat

    def num_of_seq(self, scope, v):
        way = self.rng.integers(3)
        if way == 0:
            return self.add("Mul", f"{self.add('Cast', self.add('SequenceLength', v), to=T.FLOAT)} half")
        taken = self.add("SequenceAt", f"{v} {self.rng.choice(['zero', 'last', 'k'])}") if way == 1 else self.add("ConcatFromSequence", v, axis=0)
        return self.num_of_mat(scope, taken)

    def num_of_opt(self, scope, v):
        has = self.add("OptionalHasElement", v)
        take = lambda: [self.num_of_mat(scope, self.add("OptionalGetElement", v))]
        return self.either(scope, ["num"], take, lambda: [self.add("Neg", self.pick(scope, "num"))], has)[0]

    # ---- control flow ----------------------------------------------------------------------------------------------------

    def predicate(self, scope):
        way = self.rng.integers(5)
        return "p" if way < 2 else "true" if way == 2 else "q" if way == 3 else self.add("Less", f"{self.pick(scope, 'num')} half")

    def either(self, scope, kinds, then, other, predicate=None):
        predicate, outs = predicate or self.predicate(scope), [self.name() for _ in kinds]
        sides = []
        for walk in (then, other):
            results, nodes = self.inside(walk)
            sides.append(helper.make_graph(nodes, "branch", [], [info(r, k) for r, k in zip(results, kinds)]))
        self.nodes.append(helper.make_node("If", [predicate], outs, then_branch=sides[0], else_branch=sides[1]))
        return outs

    def choice(self, scope, depth):
        kinds = self.kinds(scope)
        walk = lambda: self.block(scope, depth - 1, kinds)
        return zip(self.either(scope, kinds, walk, walk), kinds)

    def kinds(self, scope):
        return [str(k) for k in self.rng.choice(["mat", "num", "tall", "seq", "opt"], self.rng.integers(1, 4), p=[0.35, 0.25, 0.15, 0.15, 0.1])]

    def loop(self, scope, depth):
        """The carried values come last in the results of the block; a placeholder is a number, or f32[1], that becomes a mat."""
        kinds, rows = self.kinds(scope), [str(k) for k in self.rng.choice(["num", "mat"], self.rng.integers(3))]
        starts = [self.make(scope, k) if self.rng.integers(2) else self.pick(scope, k) if k in scope.values() else self.make(scope, k) for k in kinds]
        placeholder = str(self.rng.choice(["half", "seven"])) if self.rng.integers(3) == 0 else None
        i, more, go = self.name(), self.name(), self.name()
        params = [self.name() for _ in kinds]
        stops, start = self.rng.integers(3) == 0, str(self.rng.choice(["true", "p"]))

        def walk():
            inner = {**scope, **dict(zip(params, kinds))}
            number = self.add("Cast", i, to=T.FLOAT)
            inner[self.add("Tanh", number)] = "num"
            results = self.block(inner, depth - 1, [*kinds, *(["mat"] if placeholder else []), *rows])
            if placeholder:
                at = len(kinds)
                results[at] = self.add("Add", f"{results[at]} {self.add('ReduceSum', params[-1], keepdims=0)}")
                results[at] = self.add("Tanh", results[at])
            if stops:
                self.nodes.append(node("Less", f"{self.pick(inner, 'num')} half", go))
            else:
                self.nodes.append(node("Identity", more, go))
            return results

        if placeholder:
            params.append(self.name())
        results, nodes = self.inside(walk)
        every = [*kinds, *(["mat"] if placeholder else [])]
        body = helper.make_graph(nodes, "body", [value(i, [], T.INT64), value(more, self.shape if start == "p" else [], T.BOOL),
                                                  *(info(p, k) for p, k in zip(params, every))],
                                 [value(go, None, T.BOOL), *(info(r, k) for r, k in zip(results, every)),
                                  *(info(r, k) for r, k in zip(results[len(every):], rows))])
        outs, collected = [self.name() for _ in every], [self.name() for _ in rows]
        count = str(self.rng.choice(["m", "m", "c0", "c1", "c3"]))
        self.nodes.append(helper.make_node("Loop", [count, start, *starts, *([placeholder] if placeholder else [])],
                                           [*outs, *collected], body=body))
        made = list(zip(outs[:len(kinds)], kinds))
        if placeholder:
            made.append((self.num_of_mat(scope, outs[-1]), "num"))
        return made + [(self.add("ReduceSum", c, keepdims=0), "num") for c in collected]

    def scan(self, scope, depth):
        """Over the rows of a mat; the state is a number. The body may hold more control flow."""
        state, row = self.name(), self.name()

        def walk():
            inner = {**scope, state: "num", self.add("ReduceMean", row, keepdims=0): "num"}
            results = self.block(inner, depth - 1, ["num", "num"])
            return [results[0], self.add("Mul", f"{row} {results[1]}")]

        results, nodes = self.inside(walk)
        body = helper.make_graph(nodes, "body", [value(state, []), value(row, [3])], [value(results[0], []), value(results[1], [3])])
        outs = [self.name(), self.name()]
        self.nodes.append(helper.make_node("Scan", [self.pick(scope, "num"), self.pick(scope, "mat")], outs, body=body, num_scan_inputs=1,
                                           scan_input_directions=[int(self.rng.integers(2))], scan_output_directions=[int(self.rng.integers(2))]))
        return zip(outs, ["num", "mat"])

    def block(self, scope, depth, kinds):
        """Some statements, then a value of each kind that nothing else names."""
        scope = dict(scope)
        for _ in range(self.rng.integers(1, 4)):
            way = self.rng.integers(4) if depth > 0 else 3
            if way == 3:
                kind = self.kinds(scope)[0]
                scope[self.make(scope, kind)] = kind
            else:
                scope.update(dict((self.choice, self.loop, self.scan)[way](scope, depth)))
        return [self.make(scope, k) for k in kinds]


def drawn(folder, seed):
    d = Drawer(seed)
    scope = {"x": "mat", "half": "num"}
    for _ in range(2):
        scope.update(dict((d.loop, d.choice, d.scan)[d.rng.integers(3)](scope, int(d.rng.integers(1, 4)))))
    outs = [d.make(scope, k) for k in ("mat", "num", "num", "seq")]
    return Model(folder, d.nodes, [value("x", ["n", 3]), value("p", d.shape, T.BOOL), value("q", [], T.BOOL), value("m", [], T.INT64), value("k", [], T.INT64)],
                 [value(outs[0], [None, 3]), value(outs[1], []), value(outs[2], []), info(outs[3], "seq")], CONSTANTS, 17), d.shape


@pytest.mark.parametrize("seed", range(SEED * 1000, SEED * 1000 + DRAWS))
def test_drawn(seed, tmp_path):
    model, shape = drawn(tmp_path, seed)
    rng = np.random.default_rng(seed)
    for n, m in ((2, 3), (1, 0), (3, 1)):
        feed = [floats(n, 3, seed=m), np.full(shape, bool(rng.integers(2))), np.array(bool(rng.integers(2))), np.array(m), np.array(-int(rng.integers(2)))]
        want = model.want(feed)
        for flag in ("-O0", "-O2"):
            for w, g in zip(want, model.run(feed, flag)):
                assert not difference(w, g, 1e-3, 1e-4), (flag, n, m)

"""Sizes that are equal though the file writes them differently: a network of open sizes has as few kernels as one of fixed sizes.

What makes them equal is checked by every run (a divisor is not 0, -1 of a Reshape has one answer, a window fits), or holds wherever an
output has elements. Each form: nodes, inputs, constants, sizes that run, and sizes at which the run fails or nothing is computed.
"""
import re

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.artifact import ModelError
from support.compare import Model, difference, floats, ints, node
from support.tool import mcc, value

F = np.float32


def dims(name, first, last):
    return node("Shape", first, name, start=last, end=last + 1)


FORMS = {
    # (b*k) / b is k; b = 0 is a division by 0
    "expand": dict(
        nodes=[dims("b", "x", 0), dims("q", "x", 2), dims("k", "x", 3), node("Mul", "b k", "bk"), node("Div", "bk b", "k2"),
               node("Concat", "b one q k2", "to", axis=0), node("Expand", "m to", "mm"), node("Add", "x mm", "a"), node("Softmax", "a", "y", axis=-1)],
        inputs={"x": ["b", 4, "q", "k"], "m": [1, 1, "q", "k"]}, constants={"one": ints(1)},
        runs=[dict(b=1, q=1, k=1), dict(b=2, q=3, k=1), dict(b=3, q=5, k=17), dict(b=2, q=0, k=3), dict(b=1, q=4, k=0)],
        fails=[dict(b=0, q=2, k=3)], says="integer division by zero"),
    # -1 of a Reshape: nothing cancels 4 * b
    "reshape": dict(
        nodes=[node("Reshape", "x all", "r"), dims("b", "m", 0), dims("q", "m", 2), node("Mul", "r c", "s"),
               node("Concat", "b four q rest", "to", axis=0), node("Reshape", "s to", "u"), node("Add", "u m", "a"), node("Softmax", "a", "y", axis=-1)],
        inputs={"x": ["b", 4, "q", "q"], "m": ["b", 1, "q", "q"]},
        constants={"all": ints(-1, 0, 0), "c": F(0.17), "four": ints(4), "rest": ints(-1)}, fixed=["all"],
        runs=[dict(b=1, q=1), dict(b=2, q=5), dict(b=3, q=16)], fails=[dict(b=0, q=2)], says="-1 and another one has 0 elements"),
    # the length after a convolution, by integer divisions that round towards zero
    "convolution": dict(
        nodes=[node("Conv", "x w", "h", strides=[2]), dims("t", "x", 2), node("Sub", "t three", "a"), node("Div", "a two", "d"), node("Add", "d one", "n"),
               node("Concat", "one one n", "to", axis=0), node("Expand", "zero to", "m"), node("Add", "h m", "s"), node("Softmax", "s", "y", axis=1)],
        inputs={"x": ["b", 1, "t"]},
        constants={"w": floats(8, 1, 3), "three": ints(3), "two": ints(2), "one": ints(1), "zero": np.zeros((1, 1, 1), F)},
        runs=[dict(b=1, t=3), dict(b=2, t=4), dict(b=3, t=41), dict(b=0, t=9)], fails=[dict(b=1, t=0)], says="window is larger",
        empty=[(dict(b=2, t=1), (2, 8, 0)), (dict(b=0, t=2), (0, 8, 0))]),
    # the first row of each sequence says that there is one
    "first row": dict(
        nodes=[node("Gather", "x zero", "f", axis=1), dims("b", "x", 0), dims("s", "x", 1), node("Mul", "b s", "bs"), node("Div", "bs s", "b2"),
               node("Concat", "b2 eight", "to", axis=0), node("Expand", "row to", "e"), node("Add", "f e", "a"), node("Softmax", "a", "y", axis=-1)],
        inputs={"x": ["b", "s", 8], "row": [1, 8]}, constants={"zero": np.array(0), "eight": ints(8)},
        runs=[dict(b=1, s=1), dict(b=3, s=4), dict(b=0, s=2)], fails=[dict(b=2, s=0)], says="index 0 of Gather is outside"),
    # channels are as many as the weights have
    "channels": dict(
        nodes=[node("Conv", "x w", "h", pads=[1, 1, 1, 1]), dims("c", "x", 1), node("Concat", "one c one one", "to", axis=0),
               node("Expand", "bias to", "e"), node("Add", "x e", "a"), node("Add", "h a", "y")],
        inputs={"x": ["b", "c", 6, 6], "bias": [1, 1, 1, 1]}, constants={"w": floats(4, 4, 3, 3), "one": ints(1)},
        runs=[dict(b=1, c=4), dict(b=3, c=4)], fails=[dict(b=1, c=3)], says="channels of input and weights differ"),
    # rows of two inputs of different names, put side by side
    "two names": dict(
        nodes=[node("Concat", "x z", "c", axis=1), node("ReduceSum", "z one", "r", keepdims=1), node("Add", "x r", "a"), node("MatMul", "a w", "h"),
               node("Softmax", "h", "s", axis=-1), node("Concat", "s c", "y", axis=1)],
        inputs={"x": ["n", 4], "z": ["m", 3]}, constants={"w": floats(4, 8), "one": ints(1)},
        runs=[dict(n=1, m=1), dict(n=5, m=5), dict(n=0, m=0)], fails=[dict(n=2, m=3), dict(n=1, m=3)], says="differ off the axis"),
    # pairs of features: their number is even
    "pairs": dict(
        nodes=[dims("s", "x", 1), node("Div", "s two", "h"), node("Concat", "b h two", "to", axis=0), dims("b", "x", 0), node("Reshape", "x to", "p"),
               node("ReduceSum", "p two", "r", keepdims=1), node("Mul", "p r", "m"), dims("all", "x", 1), node("Concat", "b all", "back", axis=0),
               node("Reshape", "m back", "f"), node("Add", "f x", "a"), node("Softmax", "a", "y", axis=-1)],
        order=[0, 3, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11],
        inputs={"x": ["b", "s"]}, constants={"two": ints(2)},
        runs=[dict(b=1, s=2), dict(b=3, s=10), dict(b=2, s=0)], fails=[dict(b=1, s=3)], says="number of elements",
        empty=[(dict(b=0, s=3), (0, 3)), (dict(b=0, s=0), (0, 0))]),
    # a mask of 8 positions is cut to as many as there are: more do not broadcast
    "at most": dict(
        nodes=[dims("q", "x", 1), node("Slice", "mask zeros ends axes", "part"), node("Add", "x part", "a"), node("Softmax", "a", "y", axis=-1),
               node("Concat", "q q", "ends", axis=0)],
        order=[0, 4, 1, 2, 3],
        inputs={"x": ["b", "q", "q"]}, constants={"mask": floats(1, 8, 8), "zeros": ints(0, 0), "axes": ints(1, 2)},
        runs=[dict(b=1, q=1), dict(b=2, q=5), dict(b=3, q=8), dict(b=0, q=3)], fails=[dict(b=1, q=9), dict(b=2, q=40)], says="do not broadcast"),
    # what holds of two sizes together excludes 0 of each
    "at least": dict(
        nodes=[dims("h", "x", 0), dims("w", "x", 1), node("Max", "h one", "h1"), node("Max", "w one", "w1"), node("Concat", "h1 w1 four", "to", axis=0),
               node("Reshape", "x to", "r"), node("MatMul", "r m", "p"), node("Shape", "x", "s"), node("Reshape", "p s", "u"), node("Add", "x u", "a"),
               node("ReduceSum", "a outer", "y", keepdims=0)],
        inputs={"x": ["h", "w", 4]}, constants={"one": ints(1), "four": ints(4), "m": floats(4, 4), "outer": ints(0, 1)},
        runs=[dict(h=1, w=1), dict(h=3, w=5)], fails=[dict(h=0, w=2), dict(h=2, w=0)], says="number of elements"),
}


def model_of(folder, form):
    nodes = [form["nodes"][i] for i in form.get("order", range(len(form["nodes"])))]
    inputs = [value(name, shape) for name, shape in form["inputs"].items()]
    return Model(folder, nodes, inputs, [value("y", None)], form["constants"])


def feed(form, sizes):
    return [floats(*(sizes.get(d, d) for d in shape)) for shape in form["inputs"].values()]


def fixed(form, sizes):
    return [f"--input={name}[{','.join(str(sizes.get(d, d)) for d in shape)}]" for name, shape in form["inputs"].items()]


def kernels(model, *flags):
    """Kernels that are launched, and checks that stay."""
    done = mcc(model.path, "-stop-after=fuse", "-o", "-", *flags)
    assert done.returncode == 0, done.stderr
    kinds = re.findall(r"^kernel \d+ (\w+)", done.stdout, re.M)
    checks = re.findall(r'assert\(\) .*text="([^"]*)"', done.stdout)
    return len(kinds) - kinds.count("control"), [c for c in checks if "2147483647" not in c]


@pytest.mark.parametrize("name", FORMS)
def test_as_few_kernels_as_with_fixed_sizes(name, tmp_path):
    form = FORMS[name]
    model = model_of(tmp_path, form)
    sizes = max(form["runs"], key=lambda s: np.prod(list(s.values())))
    assert kernels(model) == kernels(model, *fixed(form, sizes))
    said = mcc(model.path, "-march=x86-64-v2", "-stop-after=emit", "-Rpass-missed=sizes", "-o", tmp_path / "net.loops").stderr
    assert "not known" not in said, said


@pytest.mark.parametrize("name", FORMS)
def test_every_size(name, tmp_path):
    form = FORMS[name]
    model = model_of(tmp_path, form)
    for sizes in form["runs"]:
        model.compare(feed(form, sizes))
    for sizes in form["fails"]:
        for flag in ("-O0", "-O2"):
            with pytest.raises(ModelError, match=form["says"]):
                model.run(feed(form, sizes), flag)
    for sizes, shape in form.get("empty", []):
        for flag in ("-O0", "-O2"):
            assert model.run(feed(form, sizes), flag)[0].shape == shape, sizes


@pytest.mark.parametrize("name", FORMS)
def test_the_reference_interpreter(name, tmp_path):
    """It takes and refuses the same sizes."""
    form = FORMS[name]
    model = model_of(tmp_path, form)
    cases = [(s, True) for s in form["runs"]] + [(s, True) for s, _ in form.get("empty", [])] + [(s, False) for s in form["fails"]]
    for i, (sizes, runs) in enumerate(cases):
        given = feed(form, sizes)
        flags = []
        for name, array in zip(form["inputs"], given):
            np.save(tmp_path / f"{name}.npy", array)
            flags += ["-i", f"{name}={tmp_path / name}.npy"]
        done = mcc("eval", model.path, *flags, "-o", tmp_path / f"o{i}")
        assert (done.returncode == 0) == runs, (sizes, done.stderr)
        if runs:
            want = model.run(given, "-O2")[0]
            assert not difference(want, np.load(tmp_path / f"o{i}" / "y.npy")), sizes


def test_facts_that_exclude_each_other(tmp_path):
    """c is 3, and it is 4: no run gets through, but the network compiles, as it always did."""
    model = Model(tmp_path, [node("Conv", "x v", "h"), node("Conv", "x w", "g"), node("Add", "h g", "y")], [value("x", ["b", "c", 4, 4])],
                  [value("y", None)], {"v": floats(2, 3, 1, 1), "w": floats(2, 4, 1, 1)})
    for c in (3, 4):
        with pytest.raises(ModelError, match="channels"):
            model.run([floats(1, c, 4, 4)], "-O2")


def test_what_a_branch_checks_is_no_fact(tmp_path):
    """The division in one branch: other runs may have b = 0."""
    then = helper.make_graph([node("Div", "bs b", "q"), node("Cast", "q", "t", to=T.FLOAT)], "then", [], [value("t", [1])])
    other = helper.make_graph([node("Cast", "bs", "e", to=T.FLOAT)], "other", [], [value("e", [1])])
    nodes = [dims("b", "x", 0), dims("s", "x", 1), node("Mul", "b s", "bs"), node("If", "c", "y", then_branch=then, else_branch=other)]
    model = Model(tmp_path, nodes, [value("x", ["b", "s"]), value("c", [], T.BOOL)], [value("y", [1])])
    for b, c in ((2, True), (2, False), (0, False)):
        got = model.run([floats(b, 3), np.array(c)], "-O2")[0]
        assert got[0] == (3 if c else 3 * b), (b, c)
    with pytest.raises(ModelError, match="division by zero"):
        model.run([floats(0, 3), np.array(True)], "-O2")


def test_what_is_not_known_is_said(tmp_path):
    """-Rpass-missed=sizes names the dim and what would make it simple; a network that says so has no such remark."""
    model = Model(tmp_path, [node("Add", "x z", "s"), node("Softmax", "s", "y", axis=-1)], [value("x", ["b", "k"]), value("z", ["b", "m"])],
                  [value("y", None)], {})
    said = mcc(model.path, "-o", tmp_path / "y.so", "-march=x86-64-v2", "-Rpass-missed=sizes").stderr
    assert "select(1 == k, m, k): it is not known whether 1 == k; --input" in said and "[-Rpass-missed=sizes]" in said, said
    said = mcc(model.path, "-o", tmp_path / "y.so", "-march=x86-64-v2", "-Rpass-missed=sizes", "--input=z[b,k]").stderr
    assert "known" not in said, said


FACTS = {"expand": "the size b is at least 1, by a check that is made before anything runs: integer division by zero",
         "channels": "the size c is 4, by a check that is made before anything runs: ",
         "two names": "the size m is n, by a check that is made before anything runs: ",
         "pairs": "the size s is at least 1 and a multiple of 2 unless no output has elements, by a check",
         "at most": "the size q is from 0 to 8, by a check that is made before anything runs: dimensions do not broadcast",
         "squeeze": "the size n is 1, by a check that is made before anything runs: "}


@pytest.mark.parametrize("name", FACTS)
def test_what_is_taken_for_granted_is_said(name, tmp_path):
    """-Rpass-analysis=sizes names the sizes that checks narrow, also those that become numbers."""
    squeeze = dict(nodes=[node("Squeeze", "x one", "s"), node("Relu", "s", "y")], inputs={"x": ["b", "n", 4]}, constants={"one": ints(1)})
    model = model_of(tmp_path, FORMS.get(name, squeeze))
    said = mcc(model.path, "-stop-after=emit", "-march=x86-64-v2", "-Rpass-analysis=sizes", "-o", tmp_path / "net.loops").stderr
    assert FACTS[name] in said and "[-Rpass-analysis=sizes]" in said, said

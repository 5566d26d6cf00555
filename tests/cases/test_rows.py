"""Kernels with rows, compiled: stages that share values of one row (softmax, LayerNorm and forms of their kind) over
extents with every kind of remainder, beside numpy; and the number of kernels that they become."""
import re

import numpy as np
import pytest
from onnx import helper as h

from support.artifact import Artifact
from support.tool import mcc, save, value

N = h.make_node


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def masked(shape, axis):
    """Masks of -100, of -infinity, and what differs by less than a float's range."""
    nodes = [N("Add", ["x", "mask"], ["s"]), N("Softmax", ["s"], ["y"], axis=axis)]

    def want(x, mask):
        return softmax((x + mask).astype(np.float64), axis)
    mask = np.where(np.arange(np.prod(shape)).reshape(shape) % 3 == 1, -100.0, 0.0)
    mask[np.arange(np.prod(shape)).reshape(shape) % 5 == 2] = -np.inf
    np.moveaxis(mask, axis, 0)[0] = 0
    return nodes, [("x", shape), ("mask", shape)], want, {"mask": mask}


def normalized(shape, axes):
    nodes = [N("Add", ["x", "r"], ["a"]), N("ReduceMean", ["a"], ["m"], axes=list(axes)), N("Sub", ["a", "m"], ["d"]),
             N("Mul", ["d", "d"], ["q"]), N("ReduceMean", ["q"], ["v"], axes=list(axes)), N("Sqrt", ["v"], ["s"]),
             N("Div", ["d", "s"], ["y"])]

    def want(x, r):
        a = (x + r).astype(np.float64)
        d = a - a.mean(axes, keepdims=True)
        return d / np.sqrt((d * d).mean(axes, keepdims=True))
    return nodes, [("x", shape), ("r", shape)], want, {}


def twice_kept(shape, axis):
    """Two values of one row are kept: tanh for a maximum and a difference, exp for a sum and a product."""
    nodes = [N("Tanh", ["x"], ["t"]), N("Softmax", ["t"], ["p"], axis=axis), N("Mul", ["p", "t"], ["y"])]

    def want(x):
        t = np.tanh(x.astype(np.float64))
        return softmax(t, axis) * t
    return nodes, [("x", shape)], want, {}


def backwards(shape, axis):
    """The last stage reads the exponentials at two points, one of them another than it stores."""
    nodes = [N("Constant", [], ["last"], value_ints=[-1]), N("Constant", [], ["end"], value_ints=[-2**62]), N("Constant", [], ["axis"], value_ints=[axis]),
             N("Exp", ["x"], ["e"]), N("ReduceSum", ["e", "axis"], ["t"]), N("Slice", ["e", "last", "end", "axis", "last"], ["r"]),
             N("Sub", ["e", "r"], ["d"]), N("Div", ["d", "t"], ["y"])]

    def want(x):
        e = np.exp(x.astype(np.float64))
        return (e - np.flip(e, axis)) / e.sum(axis, keepdims=True)
    return nodes, [("x", shape)], want, {}


CASES = [(masked, (3, 2, n), -1) for n in (1, 2, 5, 16, 17, 31, 49, 64, 197)] + [
    (masked, (2, 49, 6), 1), (masked, (5, 3, 4), 0),
    (masked, (9, 5003), -1), (masked, (8, 40001), -1), (twice_kept, (9, 6001), 1), (backwards, (9, 6001), 1),
    (normalized, (7, 65), (1,)), (normalized, (4, 3, 5, 17), (1, 2, 3)),
    (normalized, (4, 33, 6), (1,)), (normalized, (2, 9, 40000), (2,)), (normalized, (2, 40000), (1,)),
    (twice_kept, (6, 50), 1), (twice_kept, (2, 18, 3), 1), (twice_kept, (33,), 0)]


OPEN = [(masked, (2, 3, n), -1) for n in (1, 2, 7, 16, 33, 197)] + [
    (masked, (2, 40, 6), 1), (masked, (37, 4), 0), (masked, (3, 3, 33000), -1), (normalized, (7, 65), (1,)), (normalized, (4, 3, 5, 17), (1, 2, 3)),
    (twice_kept, (6, 50), 1), (twice_kept, (33,), 0), (backwards, (5, 50), 1), (backwards, (3, 18, 5), 1)]


def build(case, folder, *flags, opened=False):
    make, shape, axis = case
    nodes, ins, want, given = make(shape, axis)
    rng = np.random.default_rng(5)
    feeds = [given[n].astype(np.float32) if n in given else rng.standard_normal(s).astype(np.float32) for n, s in ins]
    dims = [f"d{i}" for i in range(len(shape))] if opened else shape
    save(folder / "net.onnx", nodes, [value(n, dims) for n, s in ins], [value("y", dims)], opset=13)
    done = mcc(folder / "net.onnx", *flags)
    assert done.returncode == 0, done.stderr
    return feeds, want(*feeds)


def name_of(case):
    return f"{case[0].__name__}-{'x'.join(map(str, case[1]))}-{case[2]}"


@pytest.mark.parametrize("case", OPEN, ids=name_of)
def test_open_rows(case, tmp_path):
    """All extents are dynamic: the row of the result holds what two stages want, if they read it nowhere else."""
    check(*build(case, tmp_path, "-o", tmp_path / "net.so", opened=True), tmp_path)


def across(keepdims, first):
    """Sums of rows as they broadcast along the other axis, or from one row to another."""
    sums = ["s", "e"] if first == "sums" else ["e", "s"]
    nodes = [N("Constant", [], ["last"], value_ints=[-1]), N("Exp", ["x"], ["e"]), N("ReduceSum", ["e", "last"], ["t"], keepdims=keepdims)]
    if keepdims:
        nodes += [N("Constant", [], ["zero"], value_ints=[0]), N("Constant", [], ["end"], value_ints=[-2**62]),
                  N("Slice", ["t", "last", "end", "zero", "last"], ["s"])]
    else:
        nodes.append(N("Identity", ["t"], ["s"]))
    return [*nodes, N("Mul", sums, ["r"]), N("Add", ["r", "t" if keepdims else "e"], ["y"])]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("first", ["sums", "exponentials"])
def test_sums_of_other_rows(keepdims, first, tmp_path):
    """The result's row cannot hold what another row of the result reads."""
    dims = ["n", "n"] if not keepdims else ["n", "k"]
    save(tmp_path / "net.onnx", across(keepdims, first), [value("x", dims)], [value("y", dims)], opset=13)
    done = mcc(tmp_path / "net.onnx", "-o", tmp_path / "net.so")
    assert done.returncode == 0, done.stderr
    for n in (1, 2, 9, 33):
        x = np.random.default_rng(n).standard_normal((n, n)).astype(np.float32)
        e = np.exp(x.astype(np.float64))
        want = e * e.sum(-1)[None, :] + e if not keepdims else e * e.sum(-1, keepdims=True)[::-1] + e.sum(-1, keepdims=True)
        check([x], want, tmp_path)


@pytest.mark.parametrize("case, opened, held", [
    ((masked, (2, 3, 49), -1), True, True), ((backwards, (5, 50), 1), True, False), ((masked, (9, 5003), -1), False, True),
    ((masked, (9, 503), -1), False, False), ((backwards, (9, 6001), 1), False, False)])
def test_result_holds_row(case, opened, held, tmp_path):
    """The kernel reads its result, which holds the exponentials, except for short rows and one that reads them elsewhere than it stores."""
    build(case, tmp_path, "-march=x86-64-v3", "-stop-after=emit", "-o", tmp_path / "net.loops", opened=opened)
    text = (tmp_path / "net.loops").read_text()
    assert len(re.findall(r"^kernel ", text, re.M)) == 1
    assert ("load f32x8 %0[" in text) == held


@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_rows(case, level, tmp_path):
    check(*build(case, tmp_path, level, "-o", tmp_path / "net.so"), tmp_path)


def check(feeds, want, tmp_path):
    results = []
    for threads in (1, 2):
        with Artifact(str(tmp_path / "net.so"), threads=threads) as a:
            results.append(a.run(feeds)[0])
    np.testing.assert_allclose(results[0], want, rtol=2e-5, atol=2e-6)
    assert np.array_equal(results[0], results[1])


@pytest.mark.parametrize("case, kept", [((masked, (3, 2, 49), -1), 1), ((normalized, (7, 65), (1,)), 0),
                                        ((twice_kept, (6, 50), 1), 2)])
def test_one_kernel(case, kept, tmp_path):
    """Each is one kernel; what is dear is computed once and kept, a difference of two numbers is not worth the room."""
    build(case, tmp_path, "-O2", "-march=x86-64-v4", "-stop-after=emit", "-o", tmp_path / "net.loops")
    text = (tmp_path / "net.loops").read_text()
    assert len(re.findall(r"^kernel ", text, re.M)) == 1
    assert len(re.findall(r" = local buffer ", text)) == kept


def test_row_is_filled_by_its_sum(tmp_path):
    """One loop computes the exponentials, stores and sums them: three loops over a row, the maximum's, this, and the quotients'."""
    build((masked, (9, 5008), -1), tmp_path, "-march=x86-64-v4", "-stop-after=emit", "-o", tmp_path / "net.loops")
    assert len(re.findall(r" for ", (tmp_path / "net.loops").read_text())) == 3

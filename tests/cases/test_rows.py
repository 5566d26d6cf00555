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


CASES = [(masked, (3, 2, n), -1) for n in (1, 2, 5, 16, 17, 31, 49, 64, 197)] + [
    (masked, (2, 49, 6), 1), (masked, (5, 3, 4), 0), (normalized, (7, 65), (1,)), (normalized, (4, 3, 5, 17), (1, 2, 3)),
    (normalized, (4, 33, 6), (1,)), (normalized, (2, 9, 40000), (2,)), (normalized, (2, 40000), (1,)),
    (twice_kept, (6, 50), 1), (twice_kept, (2, 18, 3), 1), (twice_kept, (33,), 0)]


def build(case, folder, *flags):
    make, shape, axis = case
    nodes, ins, want, given = make(shape, axis)
    rng = np.random.default_rng(5)
    feeds = [given[n].astype(np.float32) if n in given else rng.standard_normal(s).astype(np.float32) for n, s in ins]
    save(folder / "net.onnx", nodes, [value(n, s) for n, s in ins], [value("y", shape)], opset=13)
    done = mcc(folder / "net.onnx", *flags)
    assert done.returncode == 0, done.stderr
    return feeds, want(*feeds)


@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].__name__}-{'x'.join(map(str, c[1]))}-{c[2]}")
def test_rows(case, level, tmp_path):
    feeds, want = build(case, tmp_path, level, "-o", tmp_path / "net.so")
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

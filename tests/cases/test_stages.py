"""Stages of convolutions, compiled, over extents with every kind of remainder, beside numpy: maps in front of a convolution of
one tap, which its kernel computes for a chunk of points at a time, and sums over the image that a depthwise convolution
stores; no kernel or buffer of their own is left."""
import re

import numpy as np
import pytest
from onnx import helper as h

from support.artifact import Artifact
from support.tool import mcc, save, value

N = h.make_node
IMAGES = [(1, 16, 12, 9, 8), (2, 40, 10, 10, 70), (1, 33, 14, 14, 17), (1, 130, 28, 28, 128), (3, 24, 31, 7, 200)]


def floats(**arrays):
    return {name: a.astype(np.float32) for name, a in arrays.items()}


def dense(n, c, height, width, k):
    """Two layers of a block that grows: each normalises all that came before it."""
    rng = np.random.default_rng(c)
    a, b, w = rng.uniform(0.5, 2, c), rng.standard_normal(c), rng.standard_normal((k, c, 1, 1)) / np.sqrt(c)
    first = c // 2
    nodes = [N("Relu", ["x"], ["p"]), N("Slice", ["p", "zero", "half", "one"], ["l"]), N("Neg", ["l"], ["q"]),
             N("Concat", ["p", "q"], ["all"], axis=1),
             N("Mul", ["all", "a"], ["m"]), N("Add", ["m", "b"], ["s"]), N("Relu", ["s"], ["r"]), N("Conv", ["r", "w"], ["y"]),
             N("Sigmoid", ["all"], ["z"])]
    inits = floats(a=a.reshape(-1, 1, 1), b=b.reshape(-1, 1, 1), w=w)
    inits.update({name: np.array([v], np.int64) for name, v in (("zero", 0), ("half", first), ("one", 1))})

    def want(x):
        p = np.maximum(x, 0).astype(np.float64)
        whole = np.concatenate([p, -p[:, :first]], 1)
        r = np.maximum(whole * a.reshape(-1, 1, 1) + b.reshape(-1, 1, 1), 0)
        return np.einsum("nchw,kc->nkhw", r, w[:, :, 0, 0]), 1 / (1 + np.exp(-whole))
    return nodes, inits, (n, c - first, height, width), want, [(n, k, height, width), (n, c, height, width)]


def gated(n, c, height, width, k):
    """Squeeze and excitation in front of a projection."""
    rng = np.random.default_rng(c)
    w, g = rng.standard_normal((k, c, 1, 1)) / np.sqrt(c), rng.standard_normal((c, c, 1, 1)) / c
    nodes = [N("Relu", ["x"], ["p"]), N("GlobalAveragePool", ["p"], ["m"]), N("Conv", ["m", "g"], ["f"]),
             N("Sigmoid", ["f"], ["s"]), N("Mul", ["p", "s"], ["r"]), N("Conv", ["r", "w"], ["y"])]

    def want(x):
        p = np.maximum(x, 0).astype(np.float64)
        s = 1 / (1 + np.exp(-np.einsum("nc,kc->nk", p.mean((2, 3)), g[:, :, 0, 0])))
        return (np.einsum("nchw,kc->nkhw", p * s[:, :, None, None], w[:, :, 0, 0]),)
    return nodes, floats(w=w, g=g), (n, c, height, width), want, [(n, k, height, width)]


def squeezed(n, c, height, width, k):
    """A depthwise convolution, squeeze and excitation by mean and by largest element, a projection."""
    rng = np.random.default_rng(c)
    d, w = rng.standard_normal((c, 1, 3, 3)) / 3, rng.standard_normal((k, c, 1, 1)) / np.sqrt(c)
    nodes = [N("Relu", ["x"], ["p"]), N("Conv", ["p", "d"], ["t"], group=c, pads=[1, 1, 1, 1]), N("Sigmoid", ["t"], ["s"]),
             N("Mul", ["t", "s"], ["u"]), N("ReduceMean", ["u"], ["m"], axes=[2, 3]), N("ReduceMax", ["u"], ["l"], axes=[2, 3]),
             N("Mul", ["m", "l"], ["g"]), N("Mul", ["u", "g"], ["r"]), N("Conv", ["r", "w"], ["y"])]

    def want(x):
        p = np.pad(np.maximum(x, 0).astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
        t = sum(p[:, :, i:i + height, j:j + width] * d[:, 0, i, j][:, None, None] for i in range(3) for j in range(3))
        u = t / (1 + np.exp(-t))
        r = u * (u.mean((2, 3), keepdims=True) * u.max((2, 3), keepdims=True))
        return (np.einsum("nchw,kc->nkhw", r, w[:, :, 0, 0]),)
    return nodes, floats(d=d, w=w), (n, c, height, width), want, [(n, k, height, width)]


def build(make, image, folder, *flags):
    nodes, inits, shape, want, results = make(*image)
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    names = ["y", "z"][:len(results)]
    save(folder / "net.onnx", nodes, [value("x", shape)], [value(k, s) for k, s in zip(names, results)], inits, opset=13)
    done = mcc(folder / "net.onnx", *flags)
    assert done.returncode == 0, done.stderr
    return x, want(x)


@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("image", IMAGES, ids=lambda i: "x".join(map(str, i)))
@pytest.mark.parametrize("make", [dense, gated, squeezed], ids=lambda f: f.__name__)
def test_values(make, image, level, tmp_path):
    x, want = build(make, image, tmp_path, level, "-o", tmp_path / "net.so")
    results = []
    for threads in (1, 2):
        with Artifact(str(tmp_path / "net.so"), threads=threads) as a:
            results.append(a.run([x]))
    for k, w in enumerate(want):
        np.testing.assert_allclose(results[0][k], w, rtol=2e-5, atol=2e-6)
        assert np.array_equal(results[0][k], results[1][k])


@pytest.mark.parametrize("make, maps", [(dense, 3), (gated, 1)], ids=["dense", "gated"])
def test_no_kernel_of_its_own(make, maps, tmp_path):
    """What is left of maps: p, the copied half and the sigmoid; p."""
    build(make, (1, 32, 14, 14, 48), tmp_path, "-O2", "-march=x86-64-v4", "-stop-after=emit", "-o", tmp_path / "net.loops")
    kernels = re.split(r"^kernel ", (tmp_path / "net.loops").read_text(), flags=re.M)[1:]
    staged = [k for k in kernels if " = local buffer f32 " in k]
    assert len(staged) == 1 and "fma" in staged[0]
    assert len([k for k in kernels if "fma" not in k and "hreduce" not in k and "carry" not in k]) == maps, len(kernels)


def test_rows_summed_up_on_the_way(tmp_path):
    """One of the two reductions over the image becomes a second result of the depthwise convolution, the other has a kernel."""
    build(squeezed, (1, 32, 14, 14, 48), tmp_path, "-O2", "-march=x86-64-v4", "-stop-after=emit", "-o", tmp_path / "net.loops")
    kernels = re.split(r"^kernel ", (tmp_path / "net.loops").read_text(), flags=re.M)[1:]
    assert [len(re.findall(r" : buffer f32 in out ", k)) for k in kernels if k.count("fma") > 8].count(2) == 1

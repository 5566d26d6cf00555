"""Stages of convolutions, compiled, over extents with every kind of remainder, beside numpy: maps in front of a convolution of
one tap, which its kernel computes for a chunk of points at a time, an expansion in front of a depthwise convolution, strip by
strip, and sums over the image that a depthwise convolution stores; no kernel or buffer of their own is left."""
import json
import re

import numpy as np
import pytest
from onnx import helper as h

from support.artifact import Artifact
from support.tool import mcc, remarks, save, value

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


def expanded(c, height, width, k, taps, stride, dilation, act, squeeze=False, n=1):
    """An inverted residual: expansion, depthwise convolution, squeeze and excitation, projection."""
    rng = np.random.default_rng(k)
    shapes = {"w0": (c, c, 1, 1), "w1": (k, c, 1, 1), "w2": (k, 1, taps, taps), "w3": (16, k, 1, 1), "g": (k, k, 1, 1)}
    inits = {name: rng.standard_normal(s) / np.sqrt(np.prod(s[1:])) for name, s in shapes.items()}
    inits.update({name: rng.standard_normal(k) for name in ("b1", "b2")})
    inits.update(lo=np.array(-0.5), hi=np.array(1.5))
    acts = {"clip": [N("Clip", ["e", "lo", "hi"], ["a"])], "hswish": [N("HardSwish", ["e"], ["a"])],
            "silu": [N("Sigmoid", ["e"], ["t"]), N("Mul", ["e", "t"], ["a"])]}
    pad = dilation * (taps // 2)
    nodes = [N("Conv", ["x", "w0"], ["p"]), N("Conv", ["p", "w1", "b1"], ["e"]), *acts[act],
             N("Conv", ["a", "w2", "b2"], ["d"], "depth", group=k, pads=[pad] * 4, strides=[stride] * 2, dilations=[dilation] * 2),
             N("Relu", ["d"], ["r"])]
    if squeeze:
        nodes += [N("GlobalAveragePool", ["r"], ["m"]), N("Conv", ["m", "g"], ["f"]), N("Sigmoid", ["f"], ["s"]), N("Mul", ["r", "s"], ["u"])]
    nodes.append(N("Conv", ["u" if squeeze else "r", "w3"], ["y"]))
    inits = floats(**inits)
    if not squeeze:
        del inits["g"]
    return nodes, inits, (n, c, height, width), (n, 16, (height - 1) // stride + 1, (width - 1) // stride + 1)


# Above 3/8 of L2, so that it is worth it: tails of channels, one row of results more than whole strips, few columns, long ones.
EXPANDED = [(16, 50, 52, 40, 3, 1, 1, "clip"), (24, 57, 57, 52, 3, 2, 1, "silu"), (8, 61, 33, 72, 5, 1, 1, "hswish"),
            (40, 113, 30, 33, 5, 2, 1, "silu"), (20, 9, 301, 48, 3, 1, 2, "clip"), (3, 130, 131, 17, 3, 2, 1, "clip")]


@pytest.mark.parametrize("cpu", ["x86-64-v4", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("squeeze", [False, True], ids=["plain", "squeezed"])
@pytest.mark.parametrize("block", EXPANDED, ids=lambda b: "x".join(map(str, b)))
def test_strips(block, squeeze, cpu, tmp_path):
    """Expansion and depthwise convolution are one kernel, whose results are those of two, and the same for 1 to 3 threads."""
    nodes, inits, shape, result = expanded(*block, squeeze=squeeze, n=2)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    save(tmp_path / "net.onnx", nodes, [value("x", shape)], [value("y", result)], inits, opset=17)
    variants = sorted({"x86-64-v4", cpu}, reverse=True)      # decided for the L2 of the best
    done = mcc(tmp_path / "net.onnx", f"--variants={','.join(variants)}", "-stop-after=fuse", "-o", "-")
    assert len(re.findall(r"^kernel .* product ", done.stdout, re.M)) == 1, done.stderr
    results = []
    for level, threads in (("-O0", 1), ("-O2", 1), ("-O2", 2), ("-O2", 3)):
        assert mcc(tmp_path / "net.onnx", f"--variants={','.join(variants)}", level, "-o", tmp_path / f"net{len(results)}.so").returncode == 0
        with Artifact(str(tmp_path / f"net{len(results)}.so"), threads=threads, flags=len(variants)) as a:
            results.append(a.run([x])[0])
    np.testing.assert_allclose(results[1], results[0], rtol=2e-5, atol=1e-5)
    assert all(np.array_equal(r, results[1]) for r in results[2:])


def test_strips_name_both_convolutions(tmp_path):
    """Wherever a kernel is named, all nodes of the file that it computes are."""
    nodes, inits, shape, result = expanded(*EXPANDED[0])
    nodes[1].name, path, net = "expansion", tmp_path / "net.onnx", tmp_path / "net.so"
    save(path, nodes, [value("x", shape)], [value("y", result)], inits, opset=17)
    fused = [row["message"] for row in remarks("-Rpass=fuse", path, "-march=native", "-o", net)]
    assert any("expansion" in text and "depth" in text for text in fused), fused
    labels = [n.name or n.output[0] for n in nodes]
    for text in (mcc("bench", net, "--runs=2", f"--profile={tmp_path / 'profile'}").stdout, mcc("inspect", net).stdout, mcc("inspect", path).stdout,
                 mcc("bench", net, "--runs=2", "--roofline").stdout):
        assert all(re.search(rf"\b{label} \(", text) for label in labels), text
        assert re.search(r"depth \(Conv\).* \+ expansion \(Conv\)", text), text
    assert re.search(r'"depth"\t"Conv".*\t"expansion"\t"Conv"', (tmp_path / "profile").read_text())
    assert mcc("inspect", path, f"--profile={tmp_path / 'profile'}", "-march=native", "-o", tmp_path / "net.dot").returncode == 0
    for command in (["bench", net, "--runs=2"], ["inspect", net], ["inspect", path]):
        kernels = json.loads(mcc(*command, "--json").stdout)["result"]["kernels"]
        (both,) = [k for k in kernels if k["name"] == "depth"]
        assert {"depth", "expansion"} <= {n["name"] for n in both["nodes"]}
        assert {n["name"] for k in kernels for n in k["nodes"]} >= set(labels)
    assert b".depth.expansion_" in net.read_bytes()


def test_strips_where_they_pay(tmp_path):
    """Not what L2 holds, what somebody else reads, or what is a result; --choose can have it stored."""
    def kernels(nodes, inits, shape, result, *flags, outputs=()):
        save(tmp_path / "net.onnx", nodes, [value("x", shape)], [value("y", result), *outputs], inits, opset=17)
        done = mcc(tmp_path / "net.onnx", *flags, "-march=x86-64-v4", "-stop-after=fuse", "-o", "-")
        return len(re.findall(r"^kernel .* product ", done.stdout, re.M))
    large, small = expanded(16, 56, 56, 48, 3, 1, 1, "clip"), expanded(16, 28, 28, 48, 3, 1, 1, "clip")
    assert kernels(*large) == 1 and kernels(*small) == 0
    assert kernels(*expanded(64, 56, 56, 48, 3, 1, 1, "clip")) == 0     # tiles of one vector lose more than the traffic takes
    assert kernels(*large, "-O0") == 0
    assert kernels(*large, outputs=[value("e", (1, 48, 56, 56))]) == 0
    assert kernels(*large, outputs=[value("a", (1, 48, 56, 56))]) == 0
    nodes, *rest = large
    assert kernels([*nodes[:-1], N("Add", ["r", "a"], ["v"]), N("Conv", ["v", "w3"], ["y"])], *rest) == 0


@pytest.mark.parametrize("inner, outer, taps, stride, rows", [(24, 144, 3, 1, 28), (24, 144, 5, 1, 56), (16, 72, 3, 2, 10)])
def test_strips_are_shared(inner, outer, taps, stride, rows, tmp_path):
    """9 blocks of channels are 18 indices, where the rows that both strips compute are a part of 30 or less; 5 blocks are 15, not
    10, of which one of eight threads has two."""
    nodes, inits, shape, result = expanded(inner, 56, 56, outer, taps, stride, 1, "clip")
    save(tmp_path / "net.onnx", nodes, [value("x", shape)], [value("y", result)], inits, opset=17)
    done = mcc(tmp_path / "net.onnx", "-march=x86-64-v4", "-stop-after=schedule", "-o", "-")
    record = re.search(r'^schedule k\d+ "depth" .*?\n\n', done.stdout, re.M | re.S)[0]
    assert int(re.search(r"staged.tiles +(\d+)", record)[1]) == rows, record


def test_strips_sum_up_their_rows(tmp_path):
    """The mean of squeeze and excitation is a second result of the kernel by strips, row by row."""
    nodes, inits, shape, result = expanded(16, 56, 56, 48, 3, 1, 1, "clip", squeeze=True)
    save(tmp_path / "net.onnx", nodes, [value("x", shape)], [value("y", result)], inits, opset=17)
    done = mcc(tmp_path / "net.onnx", "-march=x86-64-v4", "-stop-after=fuse-partials", "-o", "-")
    assert len(re.findall(r"^kernel .* stores %\d+ %\d+ .* product ", done.stdout, re.M)) == 1, done.stdout


@pytest.mark.parametrize("make, maps", [(dense, 2), (gated, 1)], ids=["dense", "gated"])
def test_no_kernel_of_its_own(make, maps, tmp_path):
    """What is left of maps without multiply-adds: p and the negated half, both in their places of the whole; p."""
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


@pytest.mark.parametrize("depth", (1, 3))
def test_volumes(tmp_path, depth):
    """Images of three dims, whose points are more than those of the last two."""
    rng = np.random.default_rng(depth)
    w, s = rng.standard_normal((64, 64, 1, 1, 1)) / 8, rng.uniform(0.5, 2, (2, 64, 1, 1, 1))
    nodes = [N("Mul", ["x", "s"], ["m"]), N("Relu", ["m"], ["r"]), N("Conv", ["r", "w"], ["y"])]
    shape = [2, 64, depth, 14, 14]
    model = save(tmp_path / "net.onnx", nodes, [value("x", shape)], [value("y", shape)], floats(w=w, s=s))
    made = mcc("diff", model, cwd=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr

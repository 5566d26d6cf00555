"""Results do not depend on threads, on a repetition or on what ran before: every committed network, and stand-ins of the kinds
of network that the others are, byte for byte with 1 to 8 threads."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T

from support.artifact import Artifact
from support.compare import Model, floats, ints, node
from support.mobilenet import Network
from support.tool import DIGITS, ROOT, result, value


def committed():
    return sorted(p for p in ROOT.glob("examples/*/*.onnx")) or [DIGITS]


# What is not 5 of a language model: past and new tokens together, a head.
OPEN = {"total_sequence_length": 10, "kv_cache_dim": 16}


def feeds_of(path):
    """Drawn inputs, 5 for every open dim but those of OPEN."""
    rng, feeds = np.random.default_rng(0), []
    model = onnx.load(path)
    given = {i.name for i in model.graph.initializer}
    for port in (p for p in model.graph.input if p.name not in given):
        about = port.type.tensor_type
        shape = [d.dim_value or OPEN.get(d.dim_param, 5) for d in about.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(about.elem_type)
        feeds.append((rng.integers(0, 2, shape) if dtype.kind in "iub" else rng.standard_normal(shape)).astype(dtype))
    return feeds


def mobile(folder):
    nodes, constants = Network("small", 0.25, 10).build()
    return Model(folder, nodes, [value("x", ["n", 3, 64, 64])], [value("y", ["n", 10])], constants), [floats(3, 3, 64, 64)]


def attention(folder):
    nodes = [node("MatMul", "x wq", "q"), node("MatMul", "x wk", "k"), node("MatMul", "x wv", "v"), node("Transpose", "k", "kt", perm=[0, 2, 1]),
             node("MatMul", "q kt", "s"), node("Softmax", "s", "p", axis=-1), node("MatMul", "p v", "a"),
             node("LayerNormalization", "a g b", "y", axis=-1)]
    constants = {"wq": floats(64, 64, scale=0.1), "wk": floats(64, 64, seed=1, scale=0.1), "wv": floats(64, 64, seed=2),
                 "g": floats(64), "b": floats(64, seed=3)}
    return Model(folder, nodes, [value("x", ["n", "t", 64])], [value("y", ["n", "t", 64])], constants), [floats(2, 301, 64)]


def reductions(folder):
    nodes = [node("ReduceSum", "x all", "s", keepdims=0), node("ReduceMean", "x", "m", axes=[0]), node("ReduceProd", "x", "p", axes=[1]),
             node("ArgMax", "x", "i", axis=0), node("CumSum", "x axis", "c"), node("TopK", "x k", "tv ti", axis=0)]
    outputs = [value("s", []), value("m", [1, None]), value("p", [None, 1]), value("i", [1, None], T.INT64), value("c", [None, None]),
               value("tv", [None, None]), value("ti", [None, None], T.INT64)]
    return Model(folder, nodes, [value("x", ["n", "k"])], outputs, {"all": ints(0, 1), "axis": np.array(0), "k": ints(5)}), [floats(4001, 77)]


def recurrent(folder):
    weights = {"w": floats(1, 160, 24, scale=0.2), "r": floats(1, 160, 40, seed=1, scale=0.2), "b": floats(1, 320, seed=2, scale=0.2)}
    return Model(folder, [node("LSTM", "x w r b", "y", hidden_size=40)], [value("x", ["t", "n", 24])], [value("y", None)], weights), [floats(50, 7, 24)]


def scattered(folder):
    """Additions to the same places: their order is fixed."""
    nodes = [node("ScatterND", "x i u", "y", reduction="add")]
    index = np.random.default_rng(0).integers(0, 9, (3000, 1))
    return Model(folder, nodes, [value("x", [9, 33]), value("i", ["n", 1], T.INT64), value("u", ["n", 33])], [value("y", [9, 33])], opset=18), \
        [floats(9, 33), index, floats(3000, 33)]


def counted(folder):
    """An extent known only at run time."""
    return Model(folder, [node("NonZero", "x", "nz"), node("Cast", "nz", "f", to=T.FLOAT), node("Exp", "f", "y")],
                 [value("x", ["n", "k"])], [value("y", [None, None])]), [np.maximum(floats(300, 20) / 100, 0)]


def winograd(folder):
    """3 x 3 convolutions: all of the transformed weights derived once by a thread (64 channels), many output channels that share
    transformed inputs (256), and what both leave in a thread's scratch for one another."""
    nodes = [node("Conv", "x w1", "a", pads=[1] * 4), node("Relu", "a", "b"), node("Conv", "b w2", "c", pads=[1] * 4, strides=[2, 2]),
             node("MaxPool", "c", "d", kernel_shape=[4, 4], strides=[4, 4]), node("Conv", "d w3", "e", pads=[1] * 4),
             node("Conv", "e w4", "y", pads=[1] * 4)]
    weights = {"w1": floats(64, 64, 3, 3, scale=0.05), "w2": floats(256, 64, 3, 3, seed=1, scale=0.05),
               "w3": floats(256, 256, 3, 3, seed=2, scale=0.02), "w4": floats(256, 256, 3, 3, seed=3, scale=0.02)}
    return Model(folder, nodes, [value("x", ["n", 64, 56, 56])], [value("y", [None] * 4)], weights), [floats(3, 64, 56, 56)]


def long(folder):
    """Long reductions to few results: a row by few columns, values of heads over a long cache, a softmax over a vocabulary, all of a tensor."""
    nodes = [node("MatMul", "x w", "h", "row"), node("Add", "h b", "a"), node("MatMul", "p v", "c", "values"), node("Softmax", "l", "s", "soft"),
             node("ReduceSum", "t", "d", "all", keepdims=0), node("ReduceL2", "t", "n", "norm", keepdims=0), node("ReduceMin", "t", "m", "least", keepdims=1)]
    shapes = {"x": [1, 16384], "p": [2, 4, 8192], "v": [2, 8192, 64], "l": [2, 50257], "t": [64, 10, 100]}
    outputs = [value("a", [1, 20]), value("c", [2, 4, 64]), value("s", [2, 50257]), value("d", []), value("n", []), value("m", [1, 1, 1])]
    weights = {"w": floats(16384, 20, scale=0.01), "b": floats(20)}
    return Model(folder, nodes, [value(k, s) for k, s in shapes.items()], outputs, weights), [floats(*s, seed=i) for i, s in enumerate(shapes.values())]


def same_for_all(path, feed):
    first = None
    for threads in (1, 2, 3, 4, 8):
        with Artifact(path, threads=threads) as a:
            for _ in range(2):
                got = [y.tobytes() for y in a.run(feed)]
                first = first or got
                assert got == first, threads


@pytest.mark.parametrize("path", committed(), ids=lambda p: p.name)
def test_committed_network(path, tmp_path):
    same_for_all(Model(tmp_path, path=path).compile("-O2"), feeds_of(path))


@pytest.mark.parametrize("make", [mobile, attention, winograd, reductions, recurrent, scattered, counted, long], ids=lambda f: f.__name__)
def test_kind(make, tmp_path):
    model, feed = make(tmp_path)
    model.compare(feed, flags=[["-O2"]], rtol=1e-3, atol=1e-3)
    same_for_all(model.compile("-O2"), feed)


def kernels(path, *flags):
    """What each kernel of an artifact can be divided into."""
    return result("inspect", path, "--threads=1,8", *flags)["kernels"]


def test_symbolic_batch_is_shared_at_batch_one(tmp_path):
    """Parts of the output channels are indices of their own, though the tiles of a chunk are those of many images."""
    model, _ = winograd(tmp_path)
    path = model.compile("-O2")
    indices = [k["indices"] for k in kernels(path) if k["alone_ns"] > 100e3]
    assert len(indices) >= 3 and min(indices) >= 4, indices


@pytest.mark.parametrize("shape", [["n"], [3, "n"], [1, "n", 4]], ids=str)
def test_map_of_one_open_size_is_shared(tmp_path, shape):
    """Parts of it are indices, each worth a claim; a small one is one part."""
    model = Model(tmp_path, [node("Sigmoid", "x", "y")], [value("x", shape)], [value("y", shape)])
    path = model.compile("-O2")
    large, = kernels(path, "--dim=n=1000000")
    assert large["indices"] >= 16 and large["alone_ns"] > 100e3, large
    if shape[-1] == "n":
        assert [kernels(path, f"--dim=n={n}")[0]["indices"] for n in (1, 1000)] == [1, 1]
    for n in (0, 1, 1000, 9999, 300001):
        feed = [floats(*(n if d == "n" else d for d in shape))]
        model.compare(feed, rtol=1e-6, atol=1e-6)
        same_for_all(path, feed)


@pytest.mark.parametrize("flags", [["-march=x86-64-v3"], ["-march=x86-64-v2"], []])
def test_parts_end_where_the_size_does(tmp_path, flags):
    """An open size that whole vectors fill: what lies behind the result stays as it is."""
    model = Model(tmp_path, [node("Concat", "x x x x", "c", axis=0), node("Mul", "c c", "z")], [value("x", ["n"], T.DOUBLE)], [value("z", None, T.DOUBLE)])
    with Artifact(model.compile(*flags), threads=1) as a:
        for n in (1, 2, 3, 8, 4096, 4099, 10000):
            x, room = floats(n, seed=n).astype(np.float64), np.full(4 * n + 40000, 7.0)
            a.run_into([x], [room[:4 * n]])
            assert np.array_equal(room[:4 * n], np.tile(x, 4) ** 2) and (room[4 * n:] == 7).all(), n


def test_few_parts_are_narrower(tmp_path):
    """8 vectors of output channels are four parts of two, not two of four, where that costs one thread little."""
    model = Model(tmp_path, [node("Conv", "x w", "y", pads=[1] * 4)], [value("x", [1, 128, 28, 28])], [value("y", [1, 128, 28, 28])],
                  {"w": floats(128, 128, 3, 3, scale=0.03)})
    assert [k["indices"] for k in kernels(model.compile("-march=x86-64-v4")) if k["alone_ns"] > 100e3] == [4]
    feed = [floats(1, 128, 28, 28)]
    model.compare(feed, rtol=1e-3, atol=1e-3)
    same_for_all(model.compile("-O2"), feed)


def test_long_reductions_are_shared(tmp_path):
    """By split-K: each product and reduction is 16 indices or more, where it was one or two; the minimum is a second result of the sum."""
    def indices(flag):
        path = long(tmp_path)[0].compile("-march=x86-64-v4", flag)
        return {name: max(k["indices"] for k in kernels(path) if k["name"] == name) for name in ("row", "values", "soft", "all", "norm")}
    before, now = indices("-O0"), indices("-O2")
    assert before["row"] == before["all"] == 1 and before["values"] == 2, before
    assert all(n >= 16 for n in now.values()), now


def test_what_a_thread_keeps_ends_with_the_launch(tmp_path):
    """A convolution in a loop: each trip has another operand, the same chunk."""
    body = onnx.helper.make_graph([node("Conv", "v w", "c", "conv", pads=[1] * 4), node("Tanh", "c", "out"), node("Identity", "go", "on")], "body",
                                  [value("i", [], T.INT64), value("go", [], T.BOOL), value("v", [1, 64, 8, 8])],
                                  [value("on", [], T.BOOL), value("out", [1, 64, 8, 8])])
    weights = {"w": floats(64, 64, 3, 3, scale=0.1), "yes": np.array(True)}
    model = Model(tmp_path, [node("Loop", "n yes x", "y", body=body)], [value("n", [], T.INT64), value("x", [1, 64, 8, 8])],
                  [value("y", [1, 64, 8, 8])], weights)
    flags = ["--choose=conv:winograd=4", "--choose=conv:split=2"]
    feed = [np.array(5), floats(1, 64, 8, 8)]
    model.compare(feed, flags=flags, rtol=1e-3, atol=1e-3)
    same_for_all(model.compile(*flags), feed)

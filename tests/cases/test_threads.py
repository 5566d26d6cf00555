"""Results do not depend on threads, on a repetition or on what ran before: every committed network, and stand-ins of the kinds
of network that the others are, byte for byte with 1 to 4 threads."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T

from support.artifact import Artifact
from support.compare import Model, floats, ints, node
from support.mobilenet import Network
from support.tool import DIGITS, ROOT, value


def committed():
    return sorted(p for p in ROOT.glob("examples/*/*.onnx")) or [DIGITS]


def feeds_of(path):
    """Drawn inputs, 5 for every open dim."""
    rng, feeds = np.random.default_rng(0), []
    model = onnx.load(path)
    given = {i.name for i in model.graph.initializer}
    for port in (p for p in model.graph.input if p.name not in given):
        about = port.type.tensor_type
        shape = [d.dim_value or 5 for d in about.shape.dim]
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
    """An extent that only the run knows."""
    return Model(folder, [node("NonZero", "x", "nz"), node("Cast", "nz", "f", to=T.FLOAT), node("Exp", "f", "y")],
                 [value("x", ["n", "k"])], [value("y", [None, None])]), [np.maximum(floats(300, 20) / 100, 0)]


def same_for_all(path, feed):
    first = None
    for threads in (1, 2, 3, 4):
        with Artifact(path, threads=threads) as a:
            for _ in range(2):
                got = [y.tobytes() for y in a.run(feed)]
                first = first or got
                assert got == first, threads


@pytest.mark.parametrize("path", committed(), ids=lambda p: p.name)
def test_committed_network(path, tmp_path):
    same_for_all(Model(tmp_path, path=path).compile("-O2"), feeds_of(path))


@pytest.mark.parametrize("make", [mobile, attention, reductions, recurrent, scattered, counted], ids=lambda f: f.__name__)
def test_kind(make, tmp_path):
    model, feed = make(tmp_path)
    model.compare(feed, flags=["-O2"], rtol=1e-3, atol=1e-3)
    same_for_all(model.compile("-O2"), feed)

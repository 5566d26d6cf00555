"""ArgMax and ArgMin along rows, columns and between, with ties, infinities and NaN, beside numpy."""
import numpy as np
import pytest
from onnx import TensorProto as T

from support.compare import Model, node
from support.tool import value

LEVELS = ("-march=x86-64-v2", "-march=x86-64-v3", "-march=native")
TYPES = {T.FLOAT: np.float32, T.DOUBLE: np.float64, T.FLOAT16: np.float16, T.INT32: np.int32, T.INT8: np.int8, T.UINT8: np.uint8, T.INT64: np.int64}


def drawn(shape, dtype, seed):
    """Few values, so that there are ties; of floats rows of infinities alone, and NaN in some."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, shape).astype(dtype)
    if dtype().dtype.kind == "f":
        x[rng.random(shape) < 0.1] = np.nan
        x[rng.random(shape) < 0.1] = np.inf
        x[rng.random(shape) < 0.1] = -np.inf
        x.reshape(-1, shape[-1])[0] = -np.inf
        x.reshape(-1, shape[-1])[-1] = np.inf
    else:
        x.reshape(-1, shape[-1])[0] = np.iinfo(dtype).min
        x.reshape(-1, shape[-1])[-1] = np.iinfo(dtype).max
    return x


def expected(x, op, axis, last):
    """numpy's, for whom NaN is best; of equal ones the last where told."""
    find = np.argmax if op == "ArgMax" else np.argmin
    first = find(x, axis)
    if not last:
        return first
    best = np.take_along_axis(x, np.expand_dims(first, axis), axis)
    same = (x == best) | ((x != x) & (best != best))
    return x.shape[axis] - 1 - np.argmax(np.flip(same, axis), axis)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("elem", TYPES)
def test_types(elem, last, op, tmp_path):
    cases = [((5, 67), 1), ((6, 3), 1), ((33, 18), 0), ((3, 9, 40), 1), ((4, 1), 1), ((2, 300), 1)]
    model = Model(tmp_path, [node(op, f"x{i}", f"y{i}", axis=axis, keepdims=0, select_last_index=last) for i, (_, axis) in enumerate(cases)],
                  [value(f"x{i}", list(shape), elem) for i, (shape, _) in enumerate(cases)],
                  [value(f"y{i}", None, T.INT64) for i in range(len(cases))])
    feed = [drawn(shape, TYPES[elem], i) for i, (shape, _) in enumerate(cases)]
    want = [expected(x, op, axis, last) for x, (_, axis) in zip(feed, cases)]
    model.compare(feed, want, [("-O0",), *[(level,) for level in LEVELS]])


@pytest.mark.parametrize("dims", [["n", 40], [7, "m"], ["n", "m"]])
def test_open(dims, tmp_path):
    """Rows that are dynamic, or how many there are; of a map that the kernel computes."""
    nodes = [node("Neg", "x", "z"), node("ArgMin", "z", "y", axis=1, keepdims=1)]
    model = Model(tmp_path, nodes, [value("x", dims)], [value("y", None, T.INT64)])
    for shape in ((7, 40), (7, 1), (1, 40), (7, 3)):
        if all(have in (want, "n", "m") for have, want in zip(dims, shape)):
            x = drawn(shape, np.float32, 9)
            model.compare([x], [np.argmax(x, 1)[:, None]])


@pytest.mark.parametrize("width", [5, 64, 1000])
def test_of_a_row(width, tmp_path):
    """Of a row that the kernel keeps, beside another reduction of it."""
    nodes = [node("Softmax", "x", "s", axis=-1), node("ArgMax", "s", "y", axis=-1), node("Exp", "x", "e"), node("ArgMin", "e", "z", axis=-1, keepdims=0),
             node("ReduceSum", "e", "t", keepdims=0)]
    model = Model(tmp_path, nodes, [value("x", ["n", width])], [value("s", None), *[value(k, None, T.INT64) for k in "yz"], value("t", None)])
    model.compare([np.random.default_rng(width).permuted(np.tile(np.linspace(-3, 3, width, dtype=np.float32), (7, 1)), axis=1)])


@pytest.mark.parametrize("shape, axis, lanes", [((2, 5, 7, 40), 1, 2), ((5, 3, 2, 33), 0, 2), ((3, 4, 6, 20), 2, 2)])
def test_of_channels(shape, axis, lanes, tmp_path):
    """The best of several channels: lanes along memory, so that no element is gathered."""
    model = Model(tmp_path, [node("ArgMax", "x", "y", axis=axis, keepdims=0)], [value("x", shape)], [value("y", None, T.INT64)])
    x = drawn(shape, np.float32, 5)
    model.compare([x], [expected(x, "ArgMax", axis, 0)])
    assert f"  lanes.dim         {lanes} " in model.dump("schedule", "-march=x86-64-v4")

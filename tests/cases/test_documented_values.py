"""What docs/notes/onnx-decisions.md says of values where implementations differ: NaN and ties in ArgMax, ArgMin and TopK, infinities in Resize,
rounding in attention of f16."""
import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.compare import Model, floats, ints, node
from support.tool import value

F, NAN, INF = np.float32, np.nan, np.inf
FLAGS = ("-O2",)
ROWS = [[1, NAN, 3, NAN, 2], [NAN] * 5, [3, 3, 1, 3, 0], [-INF, NAN, INF, INF, -INF], [0, -0.0, 0, -0.0, 0], [5, 4, NAN, 5, 1], [2, 2, -1, 2, -1]]


def arg(x, axis, largest, last):
    """NaN before all numbers, then the first, or last, of those that are equal."""
    def one(line):
        nans = np.flatnonzero(np.isnan(line))
        best = nans if nans.size else np.flatnonzero(line == (line.max() if largest else line.min()))
        return best[-1 if last else 0]
    return np.apply_along_axis(one, axis, x).astype(np.int64)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_arg_of_nan_and_ties(op, dtype, long, tmp_path):
    x = np.array(ROWS, dtype)
    if long:
        x = np.concatenate([np.tile(x, (1, 9)), np.full((len(x), 40), -1e4 if op == "ArgMax" else 1e4, dtype)], 1)
    outs = [(axis, last) for axis in (0, 1) for last in (0, 1)]
    nodes = [node(op, "x", f"y{a}{k}", axis=a, keepdims=0, select_last_index=k) for a, k in outs]
    model = Model(tmp_path, nodes, [value("x", x.shape, helper.np_dtype_to_tensor_dtype(x.dtype))], [value(f"y{a}{k}", [None], T.INT64) for a, k in outs],
                  opset=13)
    model.compare([x], [arg(x, a, op == "ArgMax", k) for a, k in outs])


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("largest", [1, 0])
def test_topk_of_nan_and_ties(largest, k, tmp_path):
    """NaN is above all numbers; of equal ones the first comes first."""
    x = np.array(ROWS, F)
    nodes = [node("TopK", "x k", "v i", axis=1, largest=largest)]
    model = Model(tmp_path, nodes, [value("x", x.shape)], [value("v", [None, None]), value("i", [None, None], T.INT64)], {"k": ints(k)})
    order = [sorted(range(5), key=lambda j, row=row: ((not np.isnan(row[j])) if largest else np.isnan(row[j]),
                                                      0 if np.isnan(row[j]) else -row[j] if largest else row[j], j))[:k] for row in x]
    model.compare([x], [np.take_along_axis(x, np.array(order), 1), np.array(order)])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_of_infinities(mode, tmp_path):
    """nearest copies; linear multiplies both neighbours by their weights, so that a weight of 0 makes NaN of an infinite one."""
    x = np.array([1, INF, 3, 4, -INF, 3e38, 3e38, NAN], F).reshape(1, 1, 8)
    model = Model(tmp_path, [helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode, coordinate_transformation_mode="asymmetric")],
                  [value("x", [1, 1, 8])], [value("y", [1, 1, 16])], {"s": np.array([1, 1, 2], F)})
    line, at = x[0, 0], np.arange(16) / 2
    low = np.floor(at).astype(int)
    high, part = np.minimum(low + 1, 7), (at - np.floor(at)).astype(F)
    with np.errstate(invalid="ignore"):
        want = np.repeat(line, 2) if mode == "nearest" else line[low] * (1 - part) + line[high] * part
    (got,) = model.run([x], "-O2")
    np.testing.assert_array_equal(got[0, 0], want)
    assert mode == "nearest" or (np.isnan(want[0]) and np.isfinite(want[10]) and np.isfinite(want[11]))


def attention(q, k, v, mask, rounded):
    """f64; rounded: to f16 after each operator of the file."""
    def r(x):
        return x.astype(np.float16).astype(np.float64) if rounded else x
    scores = r(r(r(q * 0.125) @ k.swapaxes(2, 3)) + mask)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return r(r(e / e.sum(-1, keepdims=True)) @ v)


@pytest.mark.parametrize("form", ["operators", "Attention"])
def test_attention_of_f16(form, tmp_path):
    """As operators of the file, each is rounded to f16; the operator Attention rounds its result alone."""
    q, k, v = (floats(2, 4, 64, 64, seed=i, scale=8 if i < 2 else 1).astype(np.float16) for i in range(3))
    mask = np.where(np.random.default_rng(3).random(64) < 0.7, floats(64, seed=4), -1e4).astype(np.float16)
    operators = [node("Transpose", "k", "t", perm=[0, 1, 3, 2]), node("Mul", "q scale", "s"), node("MatMul", "s t", "a"), node("Add", "a m", "b"),
                 node("Softmax", "b", "p", axis=-1), node("MatMul", "p v", "y")]
    nodes, opset = (operators, 21) if form == "operators" else ([node("Attention", "q k v m", "y")], 24)
    shapes = {"q": q.shape, "k": k.shape, "v": v.shape, "m": (64,) if form == "operators" else (64, 64)}
    model = Model(tmp_path, nodes, [value(n, s, T.FLOAT16) for n, s in shapes.items()], [value("y", q.shape, T.FLOAT16)],
                  {"scale": np.array(0.125, np.float16)} if form == "operators" else None, opset)
    feed = [q, k, v, mask if form == "operators" else np.tile(mask, (64, 1))]
    wide = [a.astype(np.float64) for a in (q, k, v, mask)]
    exact, stepwise = attention(*wide, rounded=False), attention(*wide, rounded=True)
    (got,) = model.run(feed, "-O2")
    scale = np.abs(exact).max()

    def off(x, y):
        return np.abs(x - y).max() / scale
    assert off(stepwise, exact) > 1e-2
    assert off(got, stepwise if form == "operators" else exact) < 1e-3

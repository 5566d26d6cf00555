"""Edges of quantizers, reductions and pools where runtimes differ: docs/notes/onnx-decisions.md has a row for each."""
import itertools

import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import ModelError
from support.compare import Model, floats, node
from support.tool import value

WHOLE = {T.INT32: np.int32, T.UINT32: np.uint32, T.INT64: np.int64}


@pytest.mark.parametrize("dims", [[2, 3], ["n", "m"]], ids=["static", "symbolic"])
def test_range_of_nothing(dims, tmp_path):
    """The scale is 1 where ONNX's formula would divide by 0, also where only the quotient by 255 is 0."""
    model = Model(tmp_path, [node("DynamicQuantizeLinear", "x", "y scale zero")], [value("x", dims)],
                  [value("y", dims, T.UINT8), value("scale", []), value("zero", [], T.UINT8)])
    for x in (np.zeros((2, 3)), -np.zeros((2, 3)), floats(2, 3), abs(floats(2, 3)), np.full((2, 3), -2.5)):
        model.compare([x.astype(np.float32)])
    tiny = np.full((2, 3), 1e-45, np.float32)
    model.compare([tiny], [np.zeros((2, 3), np.uint8), np.float32(1), np.uint8(0)])


@pytest.mark.parametrize("elem", WHOLE, ids=lambda e: T.DataType.Name(e))
@pytest.mark.parametrize("dims", [[3, 4], ["n", "m"]], ids=["static", "symbolic"])
def test_mean_of_integers(dims, elem, tmp_path):
    """A mean fits its type where the sum does not."""
    kind = WHOLE[elem]
    info = np.iinfo(kind if kind != np.int64 else np.int32)
    x = np.array([[info.max] * 4, [info.min] * 4, [info.max, info.min, 7, 6]], kind)
    forms = [{"axes": [1]}, {"axes": [0], "keepdims": 0}, {}]
    outputs = [value(f"y{k}", [None] * (1 if "keepdims" in f else 2), elem) for k, f in enumerate(forms)]
    model = Model(tmp_path, [node("ReduceMean", "x", f"y{k}", **f) for k, f in enumerate(forms)], [value("x", dims, elem)], outputs)
    sums = [x.astype(object).sum(axis=1, keepdims=True), x.astype(object).sum(axis=0), x.astype(object).sum(keepdims=True)]
    want = [np.array([int(s) // n if s >= 0 else -(-int(s) // n) for s in total.ravel()], kind).reshape(total.shape)
            for total, n in zip(sums, (4, 3, 12))]
    model.compare([x], want)


def test_logarithms_of_integers_are_cut_once(tmp_path):
    x = np.array([[5, 5, 4, 4], [6, 0, 0, 0], [1, 1, 1, 1], [40, 40, 39, 3]], np.int32)
    nodes = [node("ReduceLogSumExp", "x", "a", axes=[1]), node("ReduceLogSum", "x", "b", axes=[1]), node("ReduceL2", "x", "c", axes=[1])]
    model = Model(tmp_path, nodes, [value("x", [4, 4], T.INT32)], [value(n, [4, 1], T.INT32) for n in "abc"])
    wide = x.astype(np.float64)
    want = [np.log(np.exp(wide).sum(1)), np.log(wide.sum(1)), np.sqrt((wide * wide).sum(1))]
    model.compare([x], [w.astype(np.int32)[:, None] for w in want])


def test_variance_of_rows_that_hardly_vary(tmp_path):
    """Mean of squares minus square of the mean would cancel: rows of two elements are 1 and -1, however near they are."""
    model = Model(tmp_path, [node("MeanVarianceNormalization", "x", "y")], [value("x", [2, "c", 1, "n"])], [value("y", None)])
    x = np.float32([4000, 4000.5, 3, 3.25, -50, -50.5, 7, 9]).reshape(4, 2).T.reshape(2, 4, 1, 1)
    model.compare([x], [np.float32([-1, -1, 1, -1] + [1, 1, -1, 1]).reshape(2, 4, 1, 1)])


@pytest.mark.parametrize("long", [[True, False], [False, True, True], [True, False, True, False, False]])
def test_compress_beyond_the_end(long, tmp_path):
    """A condition of another length than the axis counts as far as it is true."""
    model = Model(tmp_path, [node("Compress", "x c", "y", axis=0)], [value("x", [3, 2]), value("c", ["n"], T.BOOL)], [value("y", [None, 2])])
    model.compare([floats(3, 2), np.array(long)])
    with pytest.raises(ModelError, match="out of range"):
        model.run([floats(3, 2), np.array([False, False, False, True])])


def pooled(x, kernel, stride, dilation, lower):
    """MaxPool of one spatial dim, SAME_*, by ONNX's formula."""
    size, reach = x.shape[-1], (kernel - 1) * dilation + 1
    n = -(-size // stride)
    total = max((n - 1) * stride + reach - size, 0)
    begin = total - total // 2 if lower else total // 2
    places = [[p for p in range(i * stride - begin, i * stride - begin + reach, dilation) if 0 <= p < size] for i in range(n)]
    return np.stack([x[..., p].max(-1) for p in places], -1)


@pytest.mark.parametrize("lower", [False, True], ids=["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("ceil", [0, 1])
def test_same_counts_dilations(ceil, lower, tmp_path):
    x, nodes, outputs, want = floats(1, 2, 7), [], [], []
    for kernel, stride, dilation in itertools.product((1, 2, 3), (1, 2, 3), (1, 2, 3)):
        y = pooled(x, kernel, stride, dilation, lower)
        k = len(want)
        nodes.append(node("MaxPool", "x", f"y{k}", kernel_shape=[kernel], strides=[stride], dilations=[dilation], ceil_mode=ceil,
                          auto_pad="SAME_LOWER" if lower else "SAME_UPPER"))
        outputs.append(value(f"y{k}", [None] * 3))
        want.append(y)
    Model(tmp_path, nodes, [value("x", [1, 2, 7])], outputs, opset=17).compare([x], want)


@pytest.mark.parametrize("op,opset,more", [("BatchNormalization", 15, 4), ("LayerNormalization", 18, 1), ("RMSNormalization", 24, 1),
                                           ("LeakyRelu", 15, 0), ("HardSigmoid", 15, 0)])
def test_defaults_are_floats(op, opset, more, tmp_path):
    """An attribute that is not there has its default as a float, for elements of 64 bits too."""
    x = np.random.default_rng(0).standard_normal((2, 4, 4)) * 0.01
    names = [f"c{k}" for k in range(more)]
    model = Model(tmp_path, [node(op, " ".join(["x", *names]), "y")], [value("x", [2, 4, 4], T.DOUBLE)], [value("y", [2, 4, 4], T.DOUBLE)],
                  {n: np.abs(x[0, 0]) for n in names}, opset=opset)
    own = {"LeakyRelu": np.where(x < 0, x * np.float64(np.float32(0.01)), x), "HardSigmoid": x * np.float64(np.float32(0.2)) + 0.5}
    model.compare([x], [own[op]] if op in own else None, rtol=3e-14, atol=1e-17)      # ONNX Runtime has not those two


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_targets_to_ignore_count_nothing(op, weighted, reduction, tmp_path):
    """Whatever stands at their places: NaN and infinities too."""
    x = floats(4, 3, 5)
    target = np.random.default_rng(1).integers(0, 3, (4, 5))
    target[1], target[3, 2] = 0, 0
    x[1, :, :2], x[1, 0, 2], x[3, :, 2] = np.nan, -np.inf, np.inf
    model = Model(tmp_path, [node(op, "x t w" if weighted else "x t", "y", ignore_index=0, reduction=reduction)],
                  [value("x", [4, 3, 5]), value("t", [4, 5], T.INT64)], [value("y", None)], {"w": np.float32([0.5, 2, 1])} if weighted else {})
    got = model.compare([x, target])[0]
    assert np.all(np.isfinite(got))

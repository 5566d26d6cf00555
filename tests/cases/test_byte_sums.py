"""Means and sums of bytes between quantizers: each sum that there is, beside what the operators make of it as they stand.

Where the products of bytes and scale are exact (a scale of few bits), so are sums of f32 in any order, and every result equals that of
DequantizeLinear, the mean and QuantizeLinear one after another in ONNX Runtime and in the reference interpreter. Other scales: ONNX
Runtime's own kernels for bytes and for floats differ at ties, by the order of their sums; compiled code does what the operators after the
sum say of the exact one."""
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from support.artifact import Artifact
from support.cpu import levels
from support.tool import mcc, save, value

SIDE = 6
COUNT = SIDE * SIDE
SUMS = 255 * COUNT + 1
TYPES = {np.uint8: T.UINT8, np.int8: T.INT8}


def network(path, shape, dtype, scales, zeros, nodes=None, **attributes):
    nodes = nodes or [h.make_node("GlobalAveragePool", ["d"], ["e"])]
    nodes = [h.make_node("DequantizeLinear", ["x", "s", "z"], ["d"], **attributes), *nodes,
             h.make_node("QuantizeLinear", ["e", "t", "w"], ["y"])]
    constants = {"s": np.asarray(scales[0], np.float32), "t": np.float32(scales[1]), "z": np.asarray(zeros[0], dtype), "w": dtype(zeros[1])}
    return save(path, nodes, [value("x", shape, TYPES[dtype])], [value("y", None, TYPES[dtype])], constants, opset=13)


def every_sum(dtype):
    """A channel for each sum: as much of it as goes into each element, and one more in the first ones."""
    sums = np.arange(SUMS)
    x = (sums // COUNT)[:, None] + (np.arange(COUNT) < (sums % COUNT)[:, None])
    return (x + np.iinfo(dtype).min).astype(dtype).reshape(1, SUMS, SIDE, SIDE)


def plainly(path, x):
    """ONNX Runtime, each operator by itself."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def compiled(path, march, x, tmp_path):
    done = mcc("-q", march, path, "-o", tmp_path / "y.so")
    assert done.returncode == 0, done.stderr
    with Artifact(tmp_path / "y.so") as a:
        return a.run([x])[0]


def interpreted(path, x, tmp_path):
    np.save(tmp_path / "x.npy", x)
    done = mcc("eval", path, "-i", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    return np.load(tmp_path / "out" / "y.npy")


@pytest.mark.parametrize("march", ["-march=native", "-march=x86-64-v2"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("scales", [(2 ** -7, 2 ** -8), (2 ** -7, 2 ** -7), (5 * 2 ** -9, 0.03), (0.75, 0.9)])
def test_exact_scales(dtype, scales, march, tmp_path):
    x = every_sum(dtype)
    path = network(tmp_path / "m.onnx", x.shape, dtype, scales, (3, 5))
    got = compiled(path, march, x, tmp_path)
    assert np.array_equal(got, plainly(path, x))
    assert np.array_equal(got, interpreted(path, x, tmp_path))


@pytest.mark.parametrize("scales", [(0.02, 0.02), (0.02, 0.03), (0.0235294, 0.0117647), (0.1, 0.3)])
def test_other_scales(scales, tmp_path):
    x = every_sum(np.uint8)
    got = compiled(network(tmp_path / "m.onnx", x.shape, np.uint8, scales, (100, 120)), "-march=native", x, tmp_path)
    s, t, n = (np.float32(a) for a in (*scales, COUNT))
    want = np.rint(np.float32(np.arange(SUMS) - 100 * COUNT) * s / n / t) + 120
    assert np.array_equal(got.ravel(), np.clip(want, 0, 255).astype(np.uint8))


def last(op, *more, **attributes):
    return [h.make_node(op, ["d", *more], ["e"], **attributes)]


# Dims in front, inside and behind; a scale for each channel, which stays a sum of floats; tails of vectors of bytes.
OTHERS = {
    "first": ((5, 3, 67), last("ReduceMean", axes=[0]), 0.25, {}),
    "inner": ((2, 37, 19), last("ReduceMean", axes=[1], keepdims=0), 0.25, {}),
    "last": ((3, 5, 133), last("ReduceMean", axes=[-1]), 0.25, {}),
    "both": ((2, 3, 13, 21), last("ReduceMean", axes=[1, 3]), 0.25, {}),
    "joined": ((2, 3, 11, 15), last("ReduceMean", axes=[2, 3]), 0.25, {}),
    "long": ((3, 4099), last("ReduceMean", axes=[1]), 0.25, {}),
    "channels": ((2, 3, 13, 21), last("GlobalAveragePool"), [0.25, 0.5, 1], {"axis": 1}),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("march", levels())
def test_others(name, dtype, march, tmp_path):
    shape, nodes, scale, attributes = OTHERS[name]
    x = np.random.default_rng(len(name)).integers(100, 128, shape).astype(dtype)
    path = network(tmp_path / "m.onnx", shape, dtype, (scale, 0.5), (np.zeros_like(scale, dtype=dtype), 1), nodes, **attributes)
    assert np.array_equal(compiled(path, march, x, tmp_path), plainly(path, x))


def test_proved(tmp_path):
    path = network(tmp_path / "m.onnx", (1, 8, 14, 14), np.uint8, (0.02, 0.03), (128, 5))
    done = mcc("prove", path, "-march=x86-64-v2")
    assert done.returncode == 0, done.stdout + done.stderr

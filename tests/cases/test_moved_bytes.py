"""DequantizeLinear, something that only moves elements, QuantizeLinear: integers are moved, and with equal quantizations nothing
else is left."""
import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from support.artifact import Artifact
from support.tool import mcc, save, value

N = h.make_node
MOVES = {
    "transpose": [N("Transpose", ["d"], ["e"], perm=[0, 3, 1, 2])],
    "reshape": [N("Reshape", ["d", "shape"], ["e"])],
    "slice": [N("Slice", ["d", "from", "to", "axis"], ["e"])],
    "gather": [N("Gather", ["d", "index"], ["e"], axis=2)],
    "several": [N("Transpose", ["d"], ["f"], perm=[0, 3, 1, 2]), N("Flatten", ["f"], ["g"]), N("Unsqueeze", ["g", "axis"], ["e"])],
}
CONSTANTS = {"shape": np.array([1, 35, -1]), "from": np.array([1]), "to": np.array([4]), "axis": np.array([1]), "index": np.array([[3, 0]])}
TYPES = {np.uint8: T.UINT8, np.int8: T.INT8, np.uint16: T.UINT16, np.int16: T.INT16}


def moved(x, name):
    y = x.transpose(0, 3, 1, 2)
    return {"transpose": y, "reshape": x.reshape(1, 35, -1), "slice": x[:, 1:4], "gather": x[:, :, [[3, 0]]], "several": y.reshape(1, 1, -1)}[name]


def build(path, name, dtype, scales, zeros):
    constants = CONSTANTS | {"s": np.float32(scales[0]), "t": np.float32(scales[1]), "z": dtype(zeros[0]), "w": dtype(zeros[1])}
    used = {i for n in MOVES[name] for i in n.input} | {"s", "t", "z", "w"}
    nodes = [N("DequantizeLinear", ["x", "s", "z"], ["d"]), *MOVES[name], N("QuantizeLinear", ["e", "t", "w"], ["y"])]
    y = moved(np.zeros((1, 5, 7, 18)), name)
    return save(path, nodes, [value("x", [1, 5, 7, 18], TYPES[dtype])], [value("y", y.shape, TYPES[dtype])],
                {k: v for k, v in constants.items() if k in used}, opset=21)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", MOVES)
def test_moves(tmp_path, name, dtype):
    info = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(info.min, info.max + 1, (1, 5, 7, 18)).astype(dtype)
    x.flat[:2] = info.min, info.max
    for scales, zeros in (((0.037, 0.037), (3, 3)), ((0.037, 0.05), (3, 3)), ((0.037, 0.037), (3, 7))):
        path = build(tmp_path / "net.onnx", name, dtype, scales, zeros)
        same = scales[0] == scales[1] and zeros[0] == zeros[1]
        text = mcc(path, "-o", "-", "--stop-after=legalize").stdout
        assert ("= div" in text or "= round" in text) != same, text
        output = tmp_path / f"{scales[1]}{zeros[1]}.so"
        assert mcc(path, "-o", output).returncode == 0
        d = (moved(x, name).astype(np.int64) - zeros[0]).astype(np.float32) * np.float32(scales[0])
        want = np.clip(np.rint(d / np.float32(scales[1])) + zeros[1], info.min, info.max).astype(dtype)
        with Artifact(output) as a:
            assert np.array_equal(a.run([x])[0], want)


@pytest.mark.parametrize("last", [1, 3])
@pytest.mark.parametrize("op", ["Squeeze", "Reshape"])
def test_a_move_of_which_only_the_run_knows_the_rank(tmp_path, op, last):
    """What follows is compiled for each rank, and reads numbers on every way, not bytes."""
    move = {"Squeeze": N("Squeeze", ["d"], ["m"]), "Reshape": N("Reshape", ["d", "shape"], ["m"])}[op]
    nodes = [N("DequantizeLinear", ["x", "s", "z"], ["d"]), move, N("Mul", ["m", "m"], ["y"]), N("QuantizeLinear", ["m", "s", "z"], ["q"])]
    ports = [value("x", [2, 4, "k"], T.UINT8)] + ([value("shape", ["r"], T.INT64)] if op == "Reshape" else [])
    path = save(tmp_path / "net.onnx", nodes, ports, [h.make_empty_tensor_value_info("y"), h.make_empty_tensor_value_info("q")],
                {"s": np.float32(0.25), "z": np.uint8(3)}, opset=21)
    done = mcc(path, "-o", tmp_path / "net.so", "-march=native")
    assert done.returncode == 0, done.stderr
    x = np.arange(8 * last, dtype=np.uint8).reshape(2, 4, last)
    shape = [8, last] if last > 1 else [8]
    bytes_ = x.squeeze() if op == "Squeeze" else x.reshape(shape)
    wide = (bytes_.astype(np.float32) - 3) / 4
    with Artifact(tmp_path / "net.so") as a:
        y, q = a.run([x] + ([np.array(shape)] if op == "Reshape" else []))
    np.testing.assert_array_equal(y, wide * wide)
    np.testing.assert_array_equal(q, bytes_)

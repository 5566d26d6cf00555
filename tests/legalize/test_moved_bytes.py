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

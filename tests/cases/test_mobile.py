"""What mobile networks put around convolutions, compiled for every CPU level, beside ONNX Runtime: squeeze-and-excitation on
maps larger than a cache, channel shuffles, parts of channels, groups that fill no whole blocks. The rows of the profile say which kernels were made."""
import numpy as np
import onnxruntime
import pytest
from onnx import helper

from support.artifact import Artifact, ModelError
from support.tool import mcc, save, value

N = helper.make_node


def weights(*shape):
    return np.random.RandomState(sum(shape)).randn(*shape).astype(np.float32) * 0.2


def squeeze_and_excite(side, inputs=16, batch=1):
    nodes = [N("Conv", ["x", "dw"], ["d"], group=inputs, pads=[1, 1, 1, 1]), N("Relu", ["d"], ["r"]),
             N("GlobalAveragePool", ["r"], ["m"]), N("Conv", ["m", "se"], ["q"]), N("HardSigmoid", ["q"], ["s"]),
             N("Mul", ["s", "r"], ["t"], "scale"), N("Conv", ["t", "w"], ["y"])]
    return (nodes, [batch, inputs, side, side], [batch, 9, side, side],
            {"dw": weights(inputs, 1, 3, 3), "se": weights(inputs, inputs, 1, 1), "w": weights(9, inputs, 1, 1)})


def shuffle(channels, groups, first, last, kernel=1):
    n = last - first
    pad = kernel // 2
    nodes = [N("Conv", ["x", "v"], ["c"]), N("Relu", ["c"], ["r"]), N("Reshape", ["r", "split"], ["a"]),
             N("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3, 4]), N("Reshape", ["b", "whole"], ["e"]),
             N("Slice", ["e", "first", "last", "axis"], ["p"]), N("Conv", ["p", "w"], ["y"], pads=[pad] * 4)]
    return (nodes, [1, 8, 9, 9], [1, 20, 9, 9],
            {"v": weights(channels, 8, 1, 1), "w": weights(20, n, kernel, kernel), "split": np.array([1, groups, channels // groups, 9, 9]),
             "whole": np.array([1, channels, 9, 9]), "first": np.array([first]), "last": np.array([last]), "axis": np.array([1])})


def grouped(channels, groups, stride):
    """Groups of channels / groups between a dense and a depthwise convolution, with a shuffle and a residual sum."""
    side = (9 + stride - 1) // stride
    nodes = [N("Conv", ["x", "v"], ["c"]), N("Relu", ["c"], ["r"]), N("Conv", ["r", "g"], ["s"], group=groups),
             N("Reshape", ["s", "split"], ["a"]), N("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3, 4]),
             N("Reshape", ["b", "whole"], ["e"]), N("Conv", ["e", "d"], ["f"], group=channels, pads=[1] * 4),
             N("Add", ["f", "r"], ["u"]), N("Conv", ["u", "w"], ["y"], group=groups, pads=[1] * 4, strides=[stride] * 2)]
    return (nodes, [1, 8, 9, 9], [1, channels, side, side],
            {"v": weights(channels, 8, 1, 1), "g": weights(channels, channels // groups, 1, 1), "d": weights(channels, 1, 3, 3),
             "w": weights(channels, channels // groups, 3, 3), "split": np.array([1, groups, channels // groups, 9, 9]),
             "whole": np.array([1, channels, 9, 9])})


CASES = {"groups_of_10": grouped(40, 4, 1), "groups_of_34": grouped(136, 4, 2), "groups_of_16": grouped(48, 3, 2),
         "se_large": squeeze_and_excite(137), "se_two_images": squeeze_and_excite(100, 16, 2), "se_small": squeeze_and_excite(9),
         "shuffle": shuffle(40, 2, 0, 40), "shuffle_half": shuffle(116, 2, 58, 116), "shuffle_4": shuffle(64, 4, 20, 52),
         "part": shuffle(40, 1, 5, 38), "shuffle_3x3": shuffle(48, 3, 3, 48, 3)}


@pytest.mark.parametrize("name", CASES)
def test_beside_onnxruntime(name, tmp_path):
    nodes, shape, out, constants = CASES[name]
    model = save(tmp_path / "net.onnx", nodes, [value("x", shape)], [value("y", out)], constants)
    x = np.random.RandomState(5).randn(*shape).astype(np.float32)
    want = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    done = mcc(model, "-o", tmp_path / "net.so")
    assert done.returncode == 0, done.stderr
    ran = 0
    for variant in (1, 2, 3):
        try:
            with Artifact(tmp_path / "net.so", flags=variant) as a:
                assert np.abs(a.run([x])[0] - want).max() <= 1e-5 * np.abs(want).max(), variant
                ran += 1
        except ModelError as e:
            assert e.code == -6, e   # a level that this CPU lacks
    assert ran

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


@pytest.mark.parametrize("name,merged", [("se_large", True), ("se_small", False)])
def test_scale_in_weights(name, merged, tmp_path):
    nodes, shape, out, constants = CASES[name]
    model = save(tmp_path / "net.onnx", nodes, [value("x", shape)], [value("y", out)], constants)
    done = mcc("-Rpass=fuse", model, "-o", tmp_path / "net.so")
    assert done.returncode == 0, done.stderr
    kernels = [line.split("remark:")[-1] for line in done.stderr.splitlines()]
    assert any("(contract)" in k and "scale" in k for k in kernels) == merged, done.stderr


@pytest.mark.parametrize("kernel,stride,dilation", [(5, 3, 1), (2, 2, 1), (3, 1, 2)])
def test_unpadded_windows_of_any_size(kernel, stride, dilation, tmp_path):
    """Nothing is asked at the end of a line when there is no padding: the last window ends inside it, whatever is left over."""
    about = {"strides": [stride] * 2, "dilations": [dilation] * 2}
    nodes = [N("Conv", ["x", "w"], ["c"], **about), N("MaxPool", ["c"], ["y"], kernel_shape=[2, 2], strides=[2, 1])]
    model = save(tmp_path / "net.onnx", nodes, [value("x", ["n", 3, "h", "w"])], [value("y", ["n", 20, "p", "q"])],
                 {"w": weights(20, 3, kernel, kernel)})
    done = mcc(model, "-march=native", "-o", tmp_path / "net.so")
    assert done.returncode == 0, done.stderr
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with Artifact(tmp_path / "net.so") as a:
        for h, w in ((11, 11), (12, 17), (13, 40), (35, 12), (20, 21)):
            x = np.random.RandomState(h).randn(2, 3, h, w).astype(np.float32)
            want, got = session.run(None, {"x": x})[0], a.run([x])[0]
            assert got.shape == want.shape and np.abs(got - want).max() <= 1e-5 * np.abs(want).max(), (h, w)

"""Scales of Resize and Upsample that no size follows from: refused when compiling, an error of the run where they are operands."""
import re

import numpy as np
import pytest
from onnx import TensorProto as T, helper

from support.artifact import ModelError
from support.compare import Model, floats, node
from support.tool import value

F = np.float32
WRONG = [np.nan, np.inf, -np.inf, -1, 0, 1e9, -0.0]


def resize(folder, scales, **attributes):
    constants = None if scales is None else {"s": np.array(scales, F)}
    ports = [value("x", [1, 1, "h", 4]), *([] if constants else [value("s", [4])])]
    return Model(folder, [helper.make_node("Resize", ["x", "", "s"], ["y"], "scaled", **attributes)], ports, [value("y", [None] * 4)], constants)


@pytest.mark.parametrize("attributes", [{}, {"mode": "linear"}, {"mode": "cubic"}, {"mode": "linear", "coordinate_transformation_mode": "align_corners"}],
                         ids=lambda a: "-".join(a.values()) or "nearest")
def test_scales_of_the_run(attributes, tmp_path):
    model = resize(tmp_path, None, **attributes)
    for scale in (2, 0.5, 1.5):
        model.compare([floats(1, 1, 6, 4), np.array([1, 1, scale, 2], F)], atol=1e-4)
    for at in (2, 3):
        for scale in WRONG:
            scales = np.ones(4, F)
            scales[at] = scale
            with pytest.raises(ModelError) as caught:
                model.run([floats(1, 1, 6, 4), scales])
            assert "scale" in caught.value.text, caught.value.text


@pytest.mark.parametrize("scale", [0.125, 0.5, 0.75, 1.5, 2.25, 3])
def test_fractions_are_sizes(scale, tmp_path):
    """floor(h * 3 / 4) is a size like others: kernels fuse and memory is planned. A number that the run computes would be neither."""
    model = resize(tmp_path, [1, 1, scale, 1], mode="linear")
    assert not re.search(r'^symbol ".*" value', model.dump("legalize"), re.M)
    for h in (8, 9, 15, 16, 23, 31):
        assert model.compare([floats(1, 1, h, 4)], atol=1e-4)[0].shape[2] == int(h * scale)


@pytest.mark.parametrize("scale", [0.3, 0.7, 1 / 3, 1.1])
def test_other_scales_round_as_f32(scale, tmp_path):
    """10 * 0.7 is 7 in f32, and below 7 exactly."""
    model = resize(tmp_path, [1, 1, scale, 1], mode="linear")
    for h in (10, 21, 30):
        assert model.compare([floats(1, 1, h, 4)], atol=1e-4)[0].shape[2] == int(F(h) * F(scale))


@pytest.mark.parametrize("scale", WRONG, ids=str)
def test_known_scales(scale, tmp_path):
    assert f": scale {scale:g}".lower() in resize(tmp_path, [1, 1, scale, 1]).refused().lower()


def test_upsample(tmp_path):
    model = Model(tmp_path, [node("Upsample", "x s", "y")], [value("x", [1, 1, 2, 2]), value("s", [4])], [value("y", [None] * 4)], opset=9)
    model.compare([floats(1, 1, 2, 2), np.array([1, 1, 2, 3], F)])
    for scale in WRONG:
        with pytest.raises(ModelError, match="scale"):
            model.run([floats(1, 1, 2, 2), np.array([1, 1, scale, 1], F)])


@pytest.mark.parametrize("size, want, policy, result", [((12, 33), (10, 10), "not_smaller", (10, 28)), ((12, 33), (30, 30), "not_larger", (11, 30)),
                                                        ((7, 9), (3, 21), "not_smaller", (16, 21)), ((6, 7), (7, 7), "not_larger", (6, 7))])
def test_aspect_ratios(size, want, policy, result, tmp_path):
    """Sizes are rounded from the exact quotient, halves up, as ONNX's text says: 33 by 10/12 is 27.5."""
    nodes = [helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="linear", keep_aspect_ratio_policy=policy)]
    model = Model(tmp_path, nodes, [value("x", size)], [value("y", [None] * 2)], {"s": np.array(want)}, opset=19)
    assert model.compare([floats(*size)], atol=1e-4)[0].shape == result


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes_of_no_elements(mode, tmp_path):
    """ONNX Runtime fails, too; of sizes that are 0 as well there is nothing to make."""
    nodes = [helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode=mode)]
    model = Model(tmp_path, nodes, [value("x", ["h", "w"]), value("s", [2], T.INT64)], [value("y", [None] * 2)], opset=19)
    assert model.run([np.zeros((0, 4), F), np.array([0, 8])])[0].shape == (0, 8)
    for size in ((0, 4), (4, 0), (0, 0)):
        with pytest.raises(ModelError, match="made of no elements"):
            model.run([np.zeros(size, F), np.array([3, 2])])

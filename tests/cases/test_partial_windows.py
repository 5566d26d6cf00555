"""Pools of what is smaller than a window by less than the stride: one partial window, for sizes that are fixed and for
dynamic ones, as ONNX Runtime has it."""
import re

import pytest

from support.compare import Model, floats, node
from support.tool import value


def rounded_up(size, kernel, stride, pads, dilation):
    """What ONNX Runtime takes: the quotient is rounded towards 0, and a negative number of windows is an error."""
    room = size + sum(pads) - (dilation * (kernel - 1) + 1)
    return -(-room // stride) + 1 if room < 0 else room // stride + 1


@pytest.mark.parametrize("fixed", [False, True], ids=["open", "fixed"])
@pytest.mark.parametrize("kernel, stride, pads, dilation", [(5, 3, (0, 0), 1), (2, 2, (0, 0), 1), (5, 2, (1, 0), 1), (3, 4, (0, 0), 2), (4, 1, (0, 0), 1),
                                                            (3, 5, (0, 1), 1)])
@pytest.mark.parametrize("op, more", [("MaxPool", {}), ("MaxPool", {"indices": 1}), ("AveragePool", {}), ("AveragePool", {"count_include_pad": 1}),
                                      ("LpPool", {})], ids=lambda v: v if isinstance(v, str) else "".join(v))
def test_one_window(op, more, kernel, stride, pads, dilation, fixed, tmp_path):
    more, model = dict(more), None
    outputs = "y i" if more.pop("indices", None) else "y"
    for size in range(1, 8):
        if rounded_up(size, kernel, stride, pads, dilation) < 0:
            continue
        if fixed or not model:
            folder = tmp_path / str(size)
            folder.mkdir()
            ports = [value("y", None), *([value("i", None, 7)] if "i" in outputs else [])]
            model = Model(folder, [node(op, "x", outputs, kernel_shape=[kernel, 3], strides=[stride, 1], pads=[pads[0], 1, pads[1], 1],
                                        dilations=[dilation, 1], **more)],
                          [value("x", [2, 3, size, 4] if fixed else [2, 3, "h", "w"])], ports, opset=19)
        x = floats(2, 3, size, 4)
        want = model.want([x])
        model.compare([x], want, flags=["-O2"])


def test_classifier_of_low_lines(tmp_path):
    """Images that are pooled to a line, and then again: what follows has a size that is computed all the same."""
    nodes = [node("MaxPool", "x", "a", kernel_shape=[2, 2], strides=[2, 2]), node("Conv", "a w", "c", pads=[1, 1, 1, 1]),
             node("Relu", "c", "d"), node("MaxPool", "d", "e", kernel_shape=[2, 2], strides=[2, 2]),
             node("AveragePool", "e", "f", kernel_shape=[2, 2], strides=[2, 2]),
             node("GlobalAveragePool", "f", "y")]
    model = Model(tmp_path, nodes, [value("x", ["n", 3, "h", "w"])], [value("y", None)], {"w": floats(8, 3, 3, 3, scale=0.2)})
    for shape in ((1, 3, 8, 20), (2, 3, 3, 20), (1, 3, 2, 7), (1, 3, 1, 1), (1, 3, 33, 40)):
        model.compare([floats(*shape)])


def test_chain_of_rounded_up_pools(tmp_path):
    """As in GoogLeNet: the sizes after four pools with ceil_mode, and others in between, are quotients of the image's."""
    nodes, last = [], "x"
    for i in range(4):
        nodes += [node("MaxPool", last, f"a{i}", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
                  node("MaxPool", f"a{i}", f"b{i}", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], ceil_mode=1),
                  node("Add", f"a{i} b{i}", f"c{i}")]
        last = f"c{i}"
    model = Model(tmp_path, [*nodes, node("Relu", last, "y")], [value("x", [1, 3, "h", "w"])], [value("y", None)])
    for shape in ((1, 3, 16, 17), (1, 3, 33, 18), (1, 3, 100, 63), (1, 3, 224, 49)):
        model.compare([floats(*shape)])
    shapes = re.findall(r" f32\[([^\]]*h[^\]]*)\] =", model.dump("legalize"))
    assert len(shapes) > 12 and not any("min" in s or "max" in s for s in shapes), shapes

"""Outputs of convolutions whose channels lie whole KiB apart: the convolution stores them in blocks, a kernel copies."""
import pytest

from support.compare import Model, floats, node
from support.tool import value


def conv(folder, size, more=(), outputs=("y",)):
    nodes = [node("Conv", "x w", "c", "conv", pads=[1] * 4), node("Add", "c b", "a"), node("Relu", "a", "y"), *more]
    return Model(folder, nodes, [value("x", [2, 16, *size])], [value(y, None) for y in outputs],
                 {"w": floats(24, 16, 3, 3, seed=1, scale=0.05), "b": floats(24, 1, 1, seed=3), "v": floats(8, 24, 3, 3, seed=2, scale=0.05)})


@pytest.mark.parametrize("size, copied", [((32, 32), True), ((16, 16), True), ((8, 32), True), ((32, 31), False), ((4, 4), False)])
def test_output(size, copied, tmp_path):
    """Beside the copy of the padded operand; the epilogue stays in the convolution."""
    model = conv(tmp_path, size)
    model.compare([floats(2, 16, *size)])
    assert sorted(model.kernels()) == ["contract: conv add max", *["map: identity"] * (1 + copied)]


def test_output_that_is_read(tmp_path):
    """Another convolution reads what the first one stores, in blocks; the copy is the caller's alone."""
    model = conv(tmp_path, (32, 32), [node("Conv", "y v", "z", "conv2", pads=[1] * 4)], ["y", "z"])
    model.compare([floats(2, 16, 32, 32)])
    assert model.kernels().count("map: identity") == 3

"""GroupNormalization of images of open height and width, as exporters write it: Reshape to [n, groups, -1], InstanceNormalization, and back.

Both views are of a dim that may be 0, so their divisors are at least 1 by a max; quotients and remainders of points cancel all the same, and
channels that are normalized together are added up one by one, in lanes.
"""
import pytest

from support.compare import Model, floats, ints, node
from support.tool import mcc, value

CHANNELS = 32


def model_of(tmp_path, groups, shape):
    nodes = [node("Relu", "x", "r"), node("Conv", "r w", "c", pads=[1, 1, 1, 1]), node("Shape", "c", "back"), node("Reshape", "c to", "g"),
             node("InstanceNormalization", "g scale bias", "i", epsilon=1e-5), node("Reshape", "i back", "n"), node("Mul", "n m", "s"),
             node("Conv", "s v", "y")]
    constants = {"w": floats(CHANNELS, 3, 3, 3), "v": floats(8, CHANNELS, 1, 1), "to": ints(0, groups, -1), "scale": floats(groups),
                 "bias": floats(groups), "m": floats(1, CHANNELS, 1, 1)}
    return Model(tmp_path, nodes, [value("x", shape)], [value("y", None)], constants)


@pytest.mark.parametrize("groups", [1, 4, 32])
def test_every_size(groups, tmp_path):
    model = model_of(tmp_path, groups, ["n", 3, "h", "w"])
    for n, h, w in ((1, 1, 1), (2, 5, 7), (1, 16, 3), (3, 33, 20)):
        model.compare([floats(n, 3, h, w)])
    for n, h, w in ((0, 4, 4), (2, 0, 3), (1, 3, 0)):
        assert model.run([floats(n, 3, h, w)], "-O2")[0].shape == (n, 8, h, w)


@pytest.mark.parametrize("march", ["x86-64-v4", "x86-64-v3", "armv8-a"])
def test_no_point_is_looked_for_by_division(march, tmp_path):
    """Points of the normalized image lie where those of the convolution's result do."""
    model = model_of(tmp_path, 1, ["n", 3, "h", "w"])
    target = ["--target=aarch64-linux"] if march.startswith("arm") else []
    done = mcc(model.path, *target, f"-march={march}", "-stop-after=emit", "-o", "-")
    assert done.returncode == 0, done.stderr
    assert " sqrt " in done.stdout and " gather " not in done.stdout

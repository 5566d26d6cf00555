"""Products whose number of rows is known only at run time, and small: rows that fill no tile share the panels, too."""
import re

import numpy as np
import pytest

from support.compare import Model, floats, node
from support.tool import value


def product(folder, rows):
    return Model(folder, [node("MatMul", "x w", "p"), node("Relu", "p", "y")], [value("x", [rows, 40])], [value("y", [rows, 48])],
                 {"w": floats(40, 48, seed=1)})


def test_remainders(tmp_path):
    """Every remainder of a tile: a row's bits do not depend on the others."""
    x = floats(41, 40, seed=2)
    whole = product(tmp_path, 41).run([x])[0]
    rows = product(tmp_path, "n")
    for n in range(len(x) + 1):
        np.testing.assert_array_equal(rows.run([x[:n]])[0], whole[:n])


def test_tiles(tmp_path):
    """Three, two and one row each have a loop over the reduced dim, which carries their sums."""
    text = product(tmp_path, "n").dump("emit", "-march=x86-64-v3")
    sums = sorted({carried.count("=") for carried in re.findall(r"for %\d+ = .*? carry\((.*?)\)", text)})
    assert [s // sums[0] for s in sums[:3]] == [1, 2, 3], sums


def test_eight_rows(tmp_path):
    """Of a whole tile of more, what is left has a tile of eight rows before that of four: 8 rows read the panels once."""
    text = product(tmp_path, "n").dump("emit", "-march=x86-64-v4")
    vectors = int(re.search(r"tile.vectors +(\d+)", product(tmp_path, "n").dump("schedule", "-march=x86-64-v4"))[1])
    sums = {carried.count("=") for carried in re.findall(r"for %\d+ = .*? carry\((.*?)\)", text)}
    assert sums >= {8 * vectors, 4 * vectors} and max(sums) > 8 * vectors, sums


@pytest.mark.parametrize("images", [2, 5, 16])
@pytest.mark.parametrize("shape, weights, attributes", [
    ((40, 1, 1), (72, 40, 1, 1), {}),
    ((40, 1, 1), (24, 40, 3, 3), {"pads": [1] * 4}),
    ((24, 5, 7), (40, 24, 5, 7), {}),
    ((48, 4, 4), (32, 24, 4, 4), {"group": 2}),
    ((20, 9), (40, 20, 9), {}),
], ids=["gate", "padded", "map", "groups", "line"])
def test_images(tmp_path, images, shape, weights, attributes):
    """A convolution to one point of each image: the images are rows, with the bits that one alone has."""
    def model(folder, n):
        (tmp_path / folder).mkdir()
        return Model(tmp_path / folder, [node("Conv", "x w b", "c", "c", **attributes), node("HardSwish", "c", "y")],
                     [value("x", [n, *shape])], [value("y", None)], {"w": floats(*weights, seed=1, scale=0.1), "b": floats(weights[0], seed=3)})
    x = floats(images, *shape, seed=2)
    net, one = model("net", images), model("one", 1)
    got, = net.compare([x], flags=("-O0", "-O2", "-march=x86-64-v3", "--layout=NCHW", "--layout=NHWC", "-O2"))
    np.testing.assert_array_equal(got, np.concatenate([one.run([x[i:i + 1]], "-O2")[0] for i in range(images)]))
    record = net.dump("schedule", "-march=x86-64-v3")
    assert re.search(r"tile.a +0 .*\n(.*\n)*  tile.columns +[2-9]", record), record

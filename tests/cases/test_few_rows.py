"""Products whose number of rows is known only at run time, and small: rows that fill no tile share the panels, too."""
import re

import numpy as np

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

"""A dozen rows of `make scaling`, at the sizes that a quarter of a second reaches: one for each way in which a walk once took n^2 steps."""
import dataclasses
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import constructs   # noqa: E402  (a module beside this one)
import run   # noqa: E402

NAMES = ("chain-add", "chain-residual", "fan-out", "concat-computed", "products-of-one", "ports", "symbols", "equal-initializers", "row-of-loops",
         "size-ceil", "reshapes", "choose", "npy-dims")


@pytest.mark.parametrize("name", NAMES)
def test_in_proportion(name):
    construct, = (dataclasses.replace(c, least=96) for c in constructs.CONSTRUCTS if c.name == name)
    rows, wrong = run.examine(construct, run.QUICK_SECONDS)
    assert not wrong, (wrong, rows)
    assert all(row[3] == (3 if name == "npy-dims" else 0) for row in rows), rows

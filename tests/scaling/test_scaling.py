"""A dozen rows of `make scaling`, at the sizes that a quarter of a second reaches: one for each way in which a walk once took n^2 steps."""
import dataclasses
import importlib.util
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import constructs   # noqa: E402  (a module beside this one)
spec = importlib.util.spec_from_file_location("scaling_run", HERE / "run.py")   # tests/run.py has the same name
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)

NAMES = ("chain-add", "chain-residual", "fan-out", "concat-computed", "products-of-one", "ports", "symbols", "equal-initializers", "row-of-loops",
         "size-ceil", "reshapes", "choose", "npy-dims")


@pytest.mark.parametrize("name", NAMES)
def test_in_proportion(name):
    construct, = (dataclasses.replace(c, least=96) for c in constructs.CONSTRUCTS if c.name == name)
    rows, wrong = run.examine(construct, run.QUICK_SECONDS, run.QUICK_GROWTH)
    assert not wrong, (wrong, rows)
    assert all(row[3] == (3 if name == "npy-dims" else 0) for row in rows), rows

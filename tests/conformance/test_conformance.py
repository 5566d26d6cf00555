"""The suite's cases that pass must keep passing; passing.txt lists them."""
import ctypes

import pytest

from conformance import run, suite
from support.guard import Heap


@pytest.fixture(scope="session")
def results():
    return run.run(run.passing())


def test_the_list_is_of_this_suite():
    assert set(run.passing()) <= set(suite.cases())
    assert len(suite.cases()) == 1914


@pytest.mark.parametrize("name", run.passing())
def test_case(name, results):
    status, text = results[name]
    assert status == "passed", f"{status}: {text}"


def test_guarded_memory():
    """What MCC_GUARD=1 runs the suite with: blocks as asked for, and what is written beside one is found."""
    heap = Heap()
    for size, align in ((1, 16), (100, 64), (4096, 64), (5000, 4096), (0, 16), (70000, 8192)):
        block = heap._alloc(None, size, align)
        assert block % align == 0
        ctypes.memset(block, 0, size)
        heap._release(None, block, size)
    assert (heap.broken, heap.blocks) == (0, {})
    for offset in (-1, 100):
        block = heap._alloc(None, 100, 64)
        ctypes.memset(block + offset, 0, 1)
        heap._release(None, block, 100)
    assert heap.broken == 2

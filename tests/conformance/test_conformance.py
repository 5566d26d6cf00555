"""The suite's cases that pass must keep passing; passing.txt lists them."""
import ctypes
import subprocess

import onnx
import pytest

from conformance import run, suite
from support.guard import Heap
from support.tool import MCC


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


def refused():
    return sorted(set(suite.cases()) - set(run.passing()))


@pytest.mark.parametrize("erased", [False, True])
@pytest.mark.parametrize("name", refused())
def test_check_refuses_what_compiling_refuses(name, erased, tmp_path):
    model = suite.cases()[name].model
    if erased:
        model = suite.erase(onnx.load(model), tmp_path / "net.onnx")
    compiled = subprocess.run([MCC, "-q", model, "-o", tmp_path / "net.so", "-march=native"], capture_output=True, text=True)
    checked = subprocess.run([MCC, "check", "-q", model], capture_output=True, text=True)
    assert checked.returncode == compiled.returncode and checked.stderr == compiled.stderr, (checked.stderr, compiled.stderr)


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

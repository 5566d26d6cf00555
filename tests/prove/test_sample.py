"""mcc prove over a drawn sample of the ONNX suite, and two networks: `make prove` takes all of it. MCC_FUZZ_SEED: the sample.

proved.txt lists the suite's cases of which all is proved; `make prove UPDATE=1` writes it.
"""
import os
import random

import pytest

from prove import lists
from support.tool import DIGITS, ROOT

ONE = "--march=native"
SAMPLE = 40


def sample(known, n):
    return random.Random(int(os.environ.get("MCC_FUZZ_SEED", 1))).sample(known, n)


@pytest.fixture(scope="module")
def suite():
    return dict(lists.group("suite"))


def test_the_list_is_of_this_suite(suite):
    assert lists.listed() and set(lists.listed()) <= set(suite)


@pytest.mark.parametrize("name", sample(lists.listed(), SAMPLE))
def test_proved(suite, name):
    found, error, _ = lists.prove(suite[name], ONE, timeout=300)
    assert found and found["proved"], (error, found)


def test_others(suite):
    """Of the rest no kernel differs, and each has a reason."""
    counts, rest = lists.Counts(), sorted(set(suite) - set(lists.listed()))
    for name in sample(rest, len(rest)):   # most of them have inputs that are no tensors
        counts.add(name, *lists.prove(suite[name], ONE, timeout=60))
        if counts.networks - counts.refused.total() == SAMPLE // 4:
            break
    assert not counts.differ and counts.kernels, counts.differ
    assert counts.kernels == counts.proved + counts.kernels_not.total()


@pytest.mark.parametrize("path", [DIGITS, ROOT / "examples/makefile-rule/net.onnx"])
def test_networks(path):
    found, error, _ = lists.prove(path, timeout=300)
    assert found and all(v["program"]["proved"] and v["proved"] == len(v["kernels"]) for v in found["variants"] if v["runs_here"]), error

"""What docs/notes/accuracy.md says of CPU levels: which ones give the same bits, and how far others are apart."""
import platform

import numpy as np
import pytest

from support.artifact import Artifact, ModelError
from support.compare import Model, floats, node
from support.tool import mcc, save, value

LEVELS = ("x86-64-v4", "x86-64-v4-vnni", "x86-64-v4-bf16", "x86-64-v3", "x86-64-v2")


def runs(model, feed):
    """The outputs by level, of those that this CPU runs."""
    found = {}
    for level in LEVELS:
        try:
            with Artifact(model.compile(f"-march={level}"), threads=1) as a:
                found[level] = a.run(feed)[0]
        except ModelError as e:
            assert "CPU" in str(e) or "cpu" in str(e), e
    return found


NETS = {
    "convolutions": ([node("Conv", "x w", "a", pads=[1] * 4), node("Relu", "a", "b"), node("Conv", "b v", "c"), node("Sigmoid", "c", "y")],
                     [2, 24, 14, 14], {"w": floats(40, 24, 3, 3, scale=0.1), "v": floats(33, 40, 1, 1, scale=0.2)}, False),
    "rows": ([node("LayerNormalization", "x s", "a"), node("MatMul", "a w", "b"), node("Softmax", "b", "y", axis=-1)],
             [9, 200], {"s": floats(200), "w": floats(200, 77, scale=0.1)}, False),
    "products and elements": ([node("MatMul", "x w", "a"), node("Mul", "a a", "b"), node("Add", "b a", "y")], [12, 64], {"w": floats(64, 96)}, True),
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU levels of x86-64")
@pytest.mark.parametrize("name", NETS)
def test_levels(name, tmp_path):
    nodes, shape, constants, exact = NETS[name]
    model = Model(tmp_path, nodes, [value("x", shape)], [value("y", None)], constants)
    found = runs(model, [floats(*shape, seed=3)])
    assert "x86-64-v2" in found
    wide = [found[level] for level in LEVELS[:3] if level in found]
    assert all(np.array_equal(w, wide[0]) for w in wide)
    if exact and wide and "x86-64-v3" in found:
        assert np.array_equal(found["x86-64-v3"], wide[0])
    first = next(iter(found.values()))
    for y in found.values():
        assert np.abs(y - first).max() <= 3e-6 * np.abs(first).max()


@pytest.mark.parametrize("flags, cpu, one", [
    ([], None, True), (["-march=x86-64-v4"], None, True), (["-march=x86-64-v3"], "x86-64-v3", False),
    (["--variants=x86-64-v2,x86-64-v3"], "x86-64-v3", False), (["--target=aarch64-linux-gnu"], "armv8-a", False),
    (["--target=aarch64-linux-gnu", "-march=apple-m1"], "apple-m1", True), (["--target=riscv64-linux-gnu"], "rv64gc", False)])
def test_shared_decisions(flags, cpu, one, tmp_path):
    """What all variants share is decided for the artifact's best CPU: heads of 512 fit the L2 of some."""
    nodes = [node("MatMul", "q k", "s"), node("Softmax", "s", "p", axis=-1), node("MatMul", "p v", "y")]
    model = save(tmp_path / "attention.onnx", nodes, [value("q", [2, 64, 512]), value("k", [2, 512, 64]), value("v", [2, 64, 512])],
                 [value("y", None)], {})
    flags = flags if flags and "target" in flags[0] else ["--target=x86_64-linux-gnu", *flags]
    text = mcc(model, *flags, "-stop-after=fuse", "-o", "-").stdout
    options = next(line for line in text.splitlines() if line.startswith("module "))
    assert f' for "{cpu}"' in options if cpu else " for " not in options, options
    assert (text.count("kernel ") == 1) == one, text

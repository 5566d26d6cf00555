"""Maps whose vectors begin anew where a padding ends or an operand of a Concat: drawn extents, against NumPy."""
import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from support.artifact import Artifact
from support.tool import mcc, save, value

MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def built(folder, nodes, inputs, outputs, *flags):
    path = save(folder / "net.onnx", nodes, inputs, outputs)
    assert mcc(path, "-o", folder / "net.so", *flags).returncode == 0
    return path


@pytest.mark.parametrize("mode", MODES)
def test_pads(tmp_path, mode):
    rng = np.random.default_rng(len(mode))
    for i in range(8):
        folder = tmp_path / str(i)
        folder.mkdir()
        shape = (3, int(rng.integers(4, 9)), int(rng.choice([4, 15, 16, 17, 40, 64, 100])))
        lo, hi = rng.integers(0, 4, 3), rng.integers(0, 4, 3)
        lo[0] = hi[0] = 0
        elem, dtype = [(TensorProto.FLOAT, np.float32), (TensorProto.UINT8, np.uint8), (TensorProto.INT64, np.int64)][i % 3]
        x = rng.integers(0, 99, shape).astype(dtype)
        want = np.pad(x, list(zip(lo, hi)), MODES[mode])
        pads = helper.make_node("Constant", [], ["pads"], value_ints=[int(n) for n in [*lo, *hi]])
        nodes = [pads, helper.make_node("Pad", ["x", "pads"], ["p"], mode=mode), helper.make_node("Add", ["p", "x0"], ["y"])]
        built(folder, nodes, [value("x", shape, elem), value("x0", (), elem)], [value("y", want.shape, elem)])
        with Artifact(folder / "net.so") as a:
            assert np.array_equal(a.run([x, np.asarray(3, dtype)])[0], want + np.asarray(3, dtype)), (shape, lo, hi)


@pytest.mark.parametrize("level", ["-O1", "-O2"])
def test_concats_inside(tmp_path, level):
    """A Concat whose result a map reads that is no copy: its pieces may be any lengths."""
    rng = np.random.default_rng(5)
    for i, sizes in enumerate([(64, 64), (80, 16, 200), (3, 5), (100, 28), (17, 16, 15), (40, 40, 40, 40, 40, 40)]):
        folder = tmp_path / str(i)
        folder.mkdir()
        operands = [rng.integers(-9, 9, (6, n)).astype(np.float32) for n in sizes]
        names = [f"x{k}" for k in range(len(sizes))]
        nodes = [helper.make_node("Concat", names, ["c"], axis=1), helper.make_node("Pad", ["c", "pads"], ["p"], mode="reflect"),
                 helper.make_node("Mul", ["p", "p"], ["y"])]
        pads = helper.make_node("Constant", [], ["pads"], value_ints=[0, 2, 1, 1])
        whole = np.pad(np.concatenate(operands, 1), [(0, 1), (2, 1)], "reflect")
        built(folder, [pads, *nodes], [value(n, o.shape, TensorProto.FLOAT) for n, o in zip(names, operands)],
              [value("y", whole.shape, TensorProto.FLOAT)], level)
        with Artifact(folder / "net.so") as a:
            assert np.array_equal(a.run(operands)[0], whole * whole), sizes


def test_no_gather(tmp_path):
    pads = helper.make_node("Constant", [], ["pads"], value_ints=[0, 3, 0, 3])
    node = helper.make_node("Pad", ["x", "pads"], ["y"], mode="reflect")
    path = save(tmp_path / "net.onnx", [pads, node], [value("x", (64, 224), TensorProto.FLOAT)], [value("y", (64, 230), TensorProto.FLOAT)])
    text = mcc(path, "-o", "-", "--stop-after=emit", "--march=x86-64-v3").stdout
    assert "gather" not in text and "floormod" not in text
    records = mcc(path, "-o", "-", "--stop-after=schedule", "--march=x86-64-v3").stdout
    assert [int(line.split()[1]) for line in records.splitlines() if line.startswith("  peel.")] == [3, 227]


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("op", ["Sin", "Cos", "Tan"])
def test_packed_points_of_three_channels(tmp_path, op, cpu):
    """Vectors of 6, 12 or 24 lanes: whether one of them is far from 0 asks for a power of two."""
    x = np.random.default_rng(3).standard_normal((2, 3, 6, 8)).astype(np.float32) * 1e8
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1]), helper.make_node(op, ["t"], ["y"])]
    path = built(tmp_path, nodes, [value("x", x.shape)], [value("y", (2, 6, 8, 3))], f"-march={cpu}")
    assert re.search(r"loop.3 +3 .*\n(.*\n){2}  step.2 +[2-9].*\n  step.3 +3 ", mcc(path, f"-march={cpu}", "-stop-after=schedule", "-o", "-").stdout)
    np.save(tmp_path / "x.npy", x)
    done = mcc("diff", path, f"-march={cpu}", "-i", f"x={tmp_path / 'x.npy'}", "--tolerance=1e-6")
    assert done.returncode == 0 or "CPU" in done.stderr, done.stdout + done.stderr

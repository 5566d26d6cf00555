"""What docs/notes/accuracy.md says of CPU levels: which ones give the same bits, and how far others are apart."""
import platform
import re
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper

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


def each_level(path, feed):
    """Outputs of every variant of an artifact that this CPU runs."""
    found = []
    for number in range(1, 9):
        try:
            with Artifact(path, threads=2, flags=number) as a:
                found.append(a.run(feed))
        except ModelError:
            continue
    return found


def programs(model, *flags):
    return re.findall(r"^program .*?^}", mcc(model.path, *flags, "-stop-after=emit", "-o", "-").stdout, re.M | re.S)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU levels of x86-64")
@pytest.mark.parametrize("only", [None, "x86-64-v3", "x86-64-v2"])
def test_one_program(tmp_path, only):
    """All levels share the program: launches name rows, counts that differ are selected, and so are versions that one level alone has."""
    x, w = floats(9, 72, seed=2), floats(72, 80, seed=1)
    model = Model(tmp_path, [node("MatMul", "x w", "p", "p"), node("Relu", "p", "a"), node("Softmax", "a", "y", axis=-1)], [value("x", ["n", 72])],
                  [value("y", ["n", 80])], {"w": w})
    flags = ["--choose=p:version=4"]
    if only:
        (tmp_path / "records").write_text(mcc(model.path, f"-march={only}", *flags, "-stop-after=schedule", "-o", "-").stdout)
        flags = ["--choose=p:version=off", f"--schedules={tmp_path / 'records'}"]
    text, = programs(model, *flags)
    assert " grain " not in text and text.count("launch ") == text.count(" row ") == 3 and text.count("@k1version(") == 1, text
    assert text.count(" if ") == 1 and "@mcc_rt_variant_number" in text and text.count(" and bool ") == 1 + bool(only), text
    path = tmp_path / "all.so"
    assert mcc(model.path, *flags, "-o", path).returncode == 0
    for n in (0, 1, 4, 5, 9):
        p = np.maximum(x[:n] @ w, 0)
        e = np.exp(p - p.max(axis=-1, keepdims=True, initial=0))
        found = each_level(path, [x[:n]])
        assert found
        for y, in found:
            np.testing.assert_allclose(y, e / e.sum(axis=-1, keepdims=True), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU levels of x86-64")
def test_programs_of_loops(tmp_path):
    """A loop may become a kernel at one level and not at another, so each has its own program, as an artifact of one level has."""
    body = helper.make_graph([node("Add", "s x", "t"), node("Identity", "c", "d")], "body", [value("i", [], TensorProto.INT64),
                             value("c", [], TensorProto.BOOL), value("s", [4])], [value("d", [], TensorProto.BOOL), value("t", [4])])
    nodes = [helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)]
    model = Model(tmp_path, nodes, [value("x", [4])], [value("y", [4])], {"m": np.array(3, np.int64)})
    assert len(programs(model)) == len(programs(model, "--variants=x86-64-v4,x86-64-v3,x86-64-v2"))
    assert len(programs(model, "-march=x86-64-v3")) == 1 and " grain " in programs(model, "-march=x86-64-v3")[0]
    path, x = tmp_path / "all.so", floats(4)
    assert mcc(model.path, "-o", path).returncode == 0
    found = each_level(path, [x])
    assert found and all(np.array_equal(y, ((x + x) + x) + x) for y, in found)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU levels of x86-64")
def test_constants_of_quantized_kernels(tmp_path):
    """Kernels that differ in scales and zero points are one code, and each has its constants; of one CPU level they are immediates."""
    rng, x = np.random.default_rng(3), np.arange(256, dtype=np.uint8).reshape(2, 128)
    nodes, constants, outputs = [], {}, []
    for i in range(5):
        constants |= {f"s{i}": np.float32(rng.uniform(0.1, 3)), f"z{i}": np.uint8(rng.integers(256)),
                      f"t{i}": np.float32(rng.uniform(0.1, 3)), f"w{i}": np.uint8(7)}
        nodes += [node("DequantizeLinear", f"x s{i} z{i}", f"a{i}"), node("Relu", f"a{i}", f"b{i}"),
                  node("QuantizeLinear", f"b{i} t{i} w{i}", f"y{i}", f"quantize{i}")]
        outputs.append(value(f"y{i}", [2, 128], TensorProto.UINT8))
    model = Model(tmp_path, nodes, [value("x", [2, 128], TensorProto.UINT8)], outputs, constants)
    path = tmp_path / "all.so"
    assert mcc(model.path, "-o", path, "--variants=x86-64-v3,x86-64-v2").returncode == 0
    at = re.findall(r"^([0-9a-f]+) \w k\d+_(v\d)", subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout, re.M)
    assert len(at) == 10 and len(set(at)) == 2, at
    with Artifact(model.compile("-march=x86-64-v2"), threads=1) as a:
        want = a.run([x])
    assert len({w.tobytes() for w in want}) == 5
    found = each_level(path, [x])
    assert found and all(np.array_equal(one, other) for got in found for one, other in zip(got, want))

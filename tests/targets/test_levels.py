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


def counted(init, body_nodes):
    """A Loop of m trips over a value, which is s in the body and t after it."""
    flag = lambda name: value(name, [], TensorProto.BOOL)
    body = helper.make_graph([*body_nodes, node("Identity", "c", "d")], "body", [value("i", [], TensorProto.INT64), flag("c"), value("s", None)],
                             [flag("d"), value("t", None)])
    return helper.make_node("Loop", ["m", "", init], ["y"], body=body)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU levels of x86-64")
@pytest.mark.parametrize("shape", [[4], ["n"]], ids=str)
def test_program_of_loop(shape, tmp_path):
    """A loop is a kernel of each level, which one program launches; of an open size either that or its trips' launches."""
    model = Model(tmp_path, [counted("x", [node("Add", "s x", "t")])], [value("x", shape), value("m", [], TensorProto.INT64)], [value("y", shape)])
    text, = programs(model)
    assert " grain " not in text and text.count(" = if ") == text.count(" = for ") == (0 if shape == [4] else 1), text
    assert len(programs(model, "-march=x86-64-v3")) == 1 and " grain " in programs(model, "-march=x86-64-v3")[0]
    path = tmp_path / "all.so"
    assert mcc(model.path, "-o", path).returncode == 0
    for n in (4,) if shape == [4] else (1, 4, 1000, 300000):
        x = floats(n)
        found = each_level(path, [x, np.array(3)])
        assert found and all(np.array_equal(y, ((x + x) + x) + x) for y, in found)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU levels of x86-64")
@pytest.mark.parametrize("only", [None, "x86-64-v3", "x86-64-v2"])
def test_program_of_loop_with_versions(only, tmp_path):
    """A kernel of one level alone, and a version at few rows, are part of that level's loop."""
    model = Model(tmp_path, [counted("x", [node("MatMul", "s w", "p", "p"), node("Tanh", "p", "t")])], [value("x", ["n", 32])], [value("y", ["n", 32])],
                  {"m": np.array(3, np.int64), "w": floats(32, 32, scale=0.3)})
    flags = ["--choose=p:version=4"]
    if only:
        (tmp_path / "records").write_text(mcc(model.path, f"-march={only}", *flags, "-stop-after=schedule", "-o", "-").stdout)
        flags = ["--choose=p:version=off", f"--schedules={tmp_path / 'records'}"]
    assert len(programs(model, *flags)) == 1
    path = tmp_path / "all.so"
    assert mcc(model.path, *flags, "-o", path).returncode == 0
    for n in (0, 1, 4, 5, 33):
        x = want = floats(n, 32, seed=5)
        for _ in range(3):
            want = np.tanh(want @ floats(32, 32, scale=0.3))
        found = each_level(path, [x])
        assert found
        for y, in found:
            np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU levels of x86-64")
def test_program_of_recurrent_layers(tmp_path):
    """Two LSTMs of open batch and length, the second within a Loop."""
    shapes = {"w": (1, 80, 20), "r": (1, 80, 20), "bias": (1, 160)}
    weights = {f"{k}{i}": floats(*shape, seed=i + len(k), scale=0.2) for i in range(2) for k, shape in shapes.items()}
    lstm = lambda i, of, to: [node("LSTM", f"{of} w{i} r{i} bias{i}", f"h{i}", hidden_size=20), node("Squeeze", f"h{i} one", to)]
    model = Model(tmp_path, [*lstm(0, "x", "a"), counted("a", lstm(1, "s", "t"))], [value("x", ["t", "n", 20])], [value("y", ["t", "n", 20])],
                  {**weights, "one": np.array([1]), "m": np.array(2, np.int64)})
    assert len(programs(model)) == 1
    path = tmp_path / "all.so"
    assert mcc(model.path, "-o", path).returncode == 0
    for t, n in ((1, 1), (5, 3), (7, 40)):
        x = floats(t, n, 20)
        model.compare([x], rtol=1e-4, atol=1e-5)
        with Artifact(model.compile("-O0"), threads=1) as a:
            want, = a.run([x])
        found = each_level(path, [x])
        assert found
        for y, in found:
            np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


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

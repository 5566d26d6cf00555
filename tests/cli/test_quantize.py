"""mcc quantize: a float network as bytes from samples, as a network that ONNX Runtime reads and as compiled code."""
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper as h, numpy_helper

from support.artifact import Artifact
from support.tool import DIGITS, mcc, save, value

N = h.make_node
RNG = np.random.default_rng(3)


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def ort(path, *inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {p.name: x for p, x in zip(session.get_inputs(), inputs)})


def off(got, want):
    return np.sqrt(np.mean((got.astype(np.float64) - want) ** 2) / np.mean(want.astype(np.float64) ** 2))


def quantize(folder, path, samples, *options):
    """Both outputs of one command line; the report of the network's."""
    for name, x in samples.items():
        np.save(folder / f"{name}.npy", x)
    given = [f"--sample={name}={folder / name}.npy" for name in samples]
    done = [mcc("quantize", path, *given, "-o", folder / f"bytes.{kind}", "-march=native", *options) for kind in ("so", "onnx")]
    assert all(d.returncode == 0 and not d.stderr for d in done), done
    assert done[0].stdout.replace("bytes.so", "bytes.onnx") == done[1].stdout
    onnx.checker.check_model(onnx.load(folder / "bytes.onnx"), full_check=True)
    return done[1].stdout


def check(folder, path, samples, feeds, most, *options):
    """The quantized network, compiled and by ONNX Runtime, beside the float one: (report, error)."""
    text = quantize(folder, path, samples, *options)
    want, theirs = ort(path, *feeds), ort(folder / "bytes.onnx", *feeds)
    with Artifact(folder / "bytes.so") as a:
        ours = a.run(list(feeds))
    errors = [off(x, w) for x, w in zip(ours, want)]
    assert all(1e-6 < e < most for e in errors), (errors, text)
    for x, y, w in zip(ours, theirs, want):
        assert off(y, w) < most and off(x, y) < most / 2
    return text, errors[0]


def operators(path):
    return [n.op_type for n in onnx.load(path).graph.node]


def test_digits(tmp_path):
    """Samples from what the network was tested with; accuracy on the rest of it."""
    records = np.fromfile(DIGITS.with_suffix(".test"), np.uint8).reshape(-1, 65)
    pictures, labels = (records[:, 1:].astype(np.float32) / 16).reshape(-1, 1, 8, 8), records[:, 0]
    text = quantize(tmp_path, DIGITS, {"picture": pictures[:32]})
    assert "4 of 4 nodes on bytes" in text
    with Artifact(tmp_path / "bytes.so") as a:
        ours = a.run([pictures])[0]
    exact, theirs = (ort(p, pictures)[0] for p in (DIGITS, tmp_path / "bytes.onnx"))
    right = [np.mean(p.argmax(1) == labels) for p in (exact, ours, theirs)]
    assert min(right[1:]) > right[0] - 0.005, right
    assert np.abs(ours - theirs).max() < 1e-3 and off(ours, exact) < 0.02
    assert (tmp_path / "bytes.onnx").stat().st_size < 0.5 * DIGITS.stat().st_size


def residual(path, opset=17, **more):
    """Convolutions with bias and without, depthwise and grouped, a sum, a pool, a concat, a product with turned weights."""
    nodes = [N("Conv", ["x", "a", "ab"], ["a0"], "a", pads=[1] * 4), N("Relu", ["a0"], ["a1"]),
             N("MaxPool", ["a1"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
             N("Conv", ["p", "b"], ["b0"], "b", pads=[1] * 4, group=16), N("LeakyRelu", ["b0"], ["b1"], alpha=0.1),
             N("Conv", ["b1", "c", "cb"], ["c0"], "c", group=2), N("Add", ["c0", "p"], ["s"], "sum"), N("Relu", ["s"], ["s1"]),
             N("Concat", ["s1", "p"], ["t"], "cat", axis=1), N("Conv", ["t", "d"], ["d0"], "d"), N("GlobalAveragePool", ["d0"], ["g"]),
             N("Flatten", ["g"], ["f"]), N("Gemm", ["f", "e", "eb"], ["e0"], "e", transB=1), N("Relu", ["e0"], ["e1"]),
             N("MatMul", ["e1", "m"], ["y"], "m")]
    weights = {"a": drawn(16, 3, 3, 3) / 4, "ab": drawn(16), "b": drawn(16, 1, 3, 3) / 3, "c": drawn(16, 8, 1, 1) / 3, "cb": drawn(16),
               "d": drawn(24, 32, 1, 1) / 6, "e": drawn(20, 24) / 5, "eb": drawn(20), "m": drawn(20, 9) / 5}
    return save(path, nodes, [value("x", ["n", 3, 16, 16])], [value("y", ["n", 9])], weights, opset=opset, **more)


@pytest.mark.parametrize("opset", [10, 12, 13, 17])
def test_a_network(tmp_path, opset):
    """Before operator set 13 the scales of an axis are those of com.microsoft's operators."""
    path = residual(tmp_path / "net.onnx", opset)
    text, _ = check(tmp_path, path, {"x": drawn(12, 3, 16, 16)}, [drawn(4, 3, 16, 16)], 0.05, "--bound=0")
    assert "9 of 9 nodes on bytes" in text
    # an edge each for x, a1 (the pool's), p, b1, c0, s1, t, f, e1
    found = operators(tmp_path / "bytes.onnx")
    assert found.count("QuantizeLinear") == 9 and found.count("DequantizeLinear") == 9 + 6 + 4 + 1, found


def test_the_bound(tmp_path):
    path = residual(tmp_path / "net.onnx")
    samples = {"x": drawn(12, 3, 16, 16)}
    texts = [quantize(tmp_path, path, samples, f"--bound={b}") for b in (0, 0.003)]
    errors = [float(t.split()[0]) for t in texts]
    assert errors[0] > 0.003 > errors[1] > 0 and "in f32" not in texts[0], texts
    kept = re.findall(r"^in f32: (\S+)", texts[1], re.M)
    assert 0 < len(kept) < 9 and len(re.findall(r"alone in int8 an error of [\d.]+", texts[1])) == len(kept), texts[1]
    done = mcc("quantize", path, f"--sample=x={tmp_path}/x.npy", "-o", tmp_path / "none.onnx", "--bound=0.000000001")
    assert done.returncode == 1 and "nothing can be quantized with an error of at most 1e-09" in done.stderr
    assert not (tmp_path / "none.onnx").exists()


def test_what_costs_most_is_measured(tmp_path):
    """The sums of one product are small beside what they add up, which only the outputs show: it goes back, and not one more."""
    names = ["n0", "n1", "n2", "cancels", "n4", "n5", "n6", "n7"]
    half, weights, nodes, x = drawn(32, 64), {"same": np.tile(np.arange(32), 2)}, [], "x"
    for i, name in enumerate(names):
        weights[f"w{i}"] = drawn(64, 64) / 8
        if name == "cancels":
            weights[f"w{i}"] = np.concatenate([half, -half]) + drawn(64, 64) / 8
            nodes.append(N("Gather", [x, "same"], ["twice"], axis=1))
            x = "twice"
        nodes += [N("MatMul", [x, f"w{i}"], [f"y{i}"], name), N("LeakyRelu", [f"y{i}"], [f"z{i}"], alpha=0.2)]
        x = f"z{i}"
    path = save(tmp_path / "net.onnx", nodes, [value("x", ["n", 64])], [value(x, ["n", 64])], weights)
    all_bytes = quantize(tmp_path, path, {"x": drawn(64, 64)}, "--bound=0")
    text = quantize(tmp_path, path, {"x": drawn(64, 64)}, f"--bound={float(all_bytes.split()[0]) * 0.6}")
    assert re.findall(r"^in f32: (\S+) \(MatMul\), alone in int8 an error of [\d.]+$", text, re.M) == ["cancels"], text


def test_resize_reads_bytes(tmp_path):
    nodes = [N("Conv", ["x", "a"], ["a0"], "a", pads=[1] * 4), N("Relu", ["a0"], ["a1"]),
             N("Resize", ["a1", "", "twice"], ["r"], "resize", mode="nearest"), N("Conv", ["r", "b"], ["y"], "b", pads=[1] * 4)]
    path = save(tmp_path / "net.onnx", nodes, [value("x", ["n", 3, 10, 10])], [value("y", ["n", 8, 20, 20])],
                {"a": drawn(16, 3, 3, 3) / 4, "b": drawn(8, 16, 3, 3) / 12, "twice": np.array([1, 1, 2, 2], np.float32)})
    text, _ = check(tmp_path, path, {"x": drawn(12, 3, 10, 10)}, [drawn(4, 3, 10, 10)], 0.05)
    assert "3 of 3 nodes on bytes" in text


@pytest.mark.parametrize("group", [1, 32])
def test_channels_are_made_equal(tmp_path, group):
    """Channels of very different width, which the weights behind them undo: one scale for all would round the narrow ones away."""
    wide = np.float32(2.0) ** RNG.integers(-6, 6, 32).astype(np.float32)
    u, v = drawn(32, 8, 3, 3) / 8 * wide[:, None, None, None], drawn(32, 32 // group, 1, 1) / (wide.reshape(1, 32, 1, 1) if group == 1 else
                                                                                     wide[:, None, None, None])
    path = save(tmp_path / "net.onnx", [N("Conv", ["x", "u", "b"], ["a"], "first"), N("Relu", ["a"], ["r"]),
                                        N("Conv", ["r", "v"], ["y"], "second", group=group)],
                [value("x", ["n", 8, 12, 12])], [value("y", ["n", 32, 10, 10])], {"u": u, "v": v, "b": drawn(32) * wide})
    _, error = check(tmp_path, path, {"x": drawn(8, 8, 12, 12)}, [drawn(3, 8, 12, 12)], 0.02)
    assert error < 0.02
    moved = ort(tmp_path / "bytes.onnx", drawn(3, 8, 12, 12))[0]
    assert moved.shape == (3, 32, 10, 10)


def test_biases_are_corrected(tmp_path):
    """Weights below half a step of their channel's round to 0, all to one side; inputs have a mean: the sum would be off by it."""
    w = np.full((16, 64, 1, 1), 0.0035, np.float32)
    w[:, 0] = 1
    path = save(tmp_path / "net.onnx", [N("Conv", ["x", "w"], ["y"], "conv")], [value("x", ["n", 64, 5, 5])], [value("y", ["n", 16, 5, 5])],
                {"w": w})
    x = np.abs(drawn(8, 64, 5, 5)) + 1
    quantize(tmp_path, path, {"x": x})
    with Artifact(tmp_path / "bytes.so") as a:
        got, want = a.run([x])[0], ort(path, x)[0]
    assert abs(np.mean(got - want)) < 0.1 * 63 * 0.0035 * x.mean()


def test_ranges(tmp_path):
    """One far value in a hundred thousand: `percentile` spends no steps on it."""
    path = save(tmp_path / "net.onnx", [N("Conv", ["x", "w"], ["y"], "conv")], [value("x", ["n", 8, 16, 16])], [value("y", ["n", 8, 16, 16])],
                {"w": drawn(8, 8, 1, 1)})
    samples, feeds = drawn(64, 8, 16, 16), drawn(4, 8, 16, 16)
    samples[3, 2, 1, 0] = 60
    errors = {}
    for method in ("squared", "percentile", "full"):
        _, errors[method] = check(tmp_path, path, {"x": samples}, [feeds], 0.2, f"--ranges={method}", "--bound=0")
        (tmp_path / "bytes.so").rename(tmp_path / f"{method}.so")
    # squares of errors say that the far value is worth its steps; it is not among what the network is then fed
    assert errors["percentile"] < 0.3 * errors["full"] and errors["squared"] < errors["full"], errors


def test_shared_and_listed_weights(tmp_path):
    """One tensor for two nodes; weights that the file names among its inputs, as before IR version 4."""
    path = save(tmp_path / "net.onnx", [N("MatMul", ["x", "w"], ["h"], "one"), N("Relu", ["h"], ["r"]), N("MatMul", ["r", "w"], ["y"], "two")],
                [value("x", ["n", 24])], [value("y", ["n", 24])], {"w": drawn(24, 24)})
    model = onnx.load(path)
    model.ir_version = 3
    model.graph.input.append(value("w", [24, 24]))
    onnx.save(model, path)
    text, _ = check(tmp_path, path, {"x": drawn(50, 24)}, [drawn(9, 24)], 0.05)
    assert "2 of 2 nodes" in text
    assert [i.name for i in onnx.load(tmp_path / "bytes.onnx").graph.input] == ["x"]


def test_folders_and_drawn_samples(tmp_path):
    path = residual(tmp_path / "net.onnx")
    (tmp_path / "all").mkdir()
    for i in range(5):
        np.save(tmp_path / f"all/{i}.npy", drawn(3, 16, 16))
    done = mcc("quantize", path, f"--sample=x={tmp_path}/all", "-o", tmp_path / "one.onnx")
    assert done.returncode == 0 and "5 samples" in done.stdout and not done.stderr, done
    done = mcc("quantize", path, "-o", tmp_path / "two.onnx", "--dim=n=2")
    assert done.returncode == 0 and "8 samples" in done.stdout and "the inputs are drawn" in done.stderr, done
    assert mcc("quantize", path, "-o", tmp_path / "three.onnx", "-Werror").returncode == 1


def two_inputs(path):
    return save(path, [N("MatMul", ["x", "w"], ["a"]), N("Add", ["a", "z"], ["y"])], [value("x", [2, 8]), value("z", [2, 4])],
                [value("y", [2, 4])], {"w": drawn(8, 4)})


REFUSED = {
    "no sample": (["x=good"], 2, "'z': error: this input has no sample"),
    "wrong shape": (["x=wide", "z=z"], 2, r"is f32\[2,9\], the input takes f32\[2,8\]"),
    "wrong type": (["x=double", "z=z"], 2, r"is f64\[2,8\], the input takes f32\[2,8\]"),
    "not whole": (["x=three", "z=z"], 2, r"is f32\[3,8\], the input takes f32\[2,8\]"),
    "no number": (["x=nan", "z=z"], 2, "holds a NaN or an infinity"),
    "unknown": (["x=good", "z=z", "q=good"], 2, "the model has nothing called"),
    "no file": (["x=none", "z=z"], 3, "cannot read"),
    "empty folder": (["x=.", "z=z"], 2, "has no .npy or .pb file"),
    "unequal": (["x=good", "x=good", "z=z"], 2, "there are 1 samples of this input and 2 of 'x'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_samples(tmp_path, case):
    given, status, message = REFUSED[case]
    path = two_inputs(tmp_path / "net.onnx")
    (tmp_path / "folder").mkdir()
    arrays = {"good": drawn(2, 8), "wide": drawn(2, 9), "double": np.ones((2, 8)), "three": drawn(3, 8), "z": drawn(2, 4),
              "nan": np.full((2, 8), np.nan, np.float32)}
    for name, a in arrays.items():
        np.save(tmp_path / f"{name}.npy", a)
    options = []
    for g in given:
        name, _, file = g.partition("=")
        options.append(f"--sample={name}={tmp_path / 'folder' if file == '.' else tmp_path / (file + '.npy')}")
    done = mcc("quantize", path, *options, "-o", tmp_path / "bytes.onnx")
    assert done.returncode == status and re.search(message, done.stderr), done.stderr
    assert not (tmp_path / "bytes.onnx").exists()


def test_external_data(tmp_path):
    """Weights beside the file, those of a branch and of a Constant too, give what weights in it give; the result is one file."""
    branches = [h.make_graph([N("Mul", ["x", name], [f"{name}_y"])], name, [], [h.make_tensor_value_info(f"{name}_y", 1, None)],
                             [numpy_helper.from_array(drawn(1), name)]) for name in ("half", "twice")]
    nodes = [N("Constant", [], ["k"], value=numpy_helper.from_array(drawn(8, 4), "k")),
             N("If", ["c"], ["z"], then_branch=branches[0], else_branch=branches[1]), N("MatMul", ["z", "w"], ["a"]),
             N("MatMul", ["z", "k"], ["b"]), N("Add", ["a", "b"], ["y"])]
    inside = save(tmp_path / "inside.onnx", nodes, [value("x", [2, 8]), value("c", [], TensorProto.BOOL)], [value("y", [2, 4])], {"w": drawn(8, 4)})
    (tmp_path / "far").mkdir()
    far = tmp_path / "far/net.onnx"
    onnx.save(onnx.load(inside), far, save_as_external_data=True, size_threshold=0, location="data", convert_attribute=True)
    assert far.read_bytes().count(b"location") == 4 and (tmp_path / "far/data").stat().st_size > 256
    np.save(tmp_path / "x.npy", drawn(16, 2, 8)[0])
    np.save(tmp_path / "c.npy", np.array(True))
    samples = [f"--sample={name}={tmp_path / name}.npy" for name in "xc"]
    for path, out in ((inside, "a"), (far, "b")):
        done = mcc("quantize", path, *samples, "-o", tmp_path / f"{out}.onnx")
        assert done.returncode == 0 and "1 of 1 nodes on bytes" in done.stdout, done.stdout + done.stderr
    a, b = (onnx.load(tmp_path / f"{name}.onnx", load_external_data=False) for name in "ab")
    assert not any(t.data_location for t in b.graph.initializer) and b"location" not in b.SerializeToString()
    for feed in (True, False):
        x = drawn(2, 8)
        want, got = (onnxruntime.InferenceSession(m.SerializeToString()).run(None, {"x": x, "c": np.array(feed)}) for m in (a, b))
        np.testing.assert_array_equal(got[0], want[0])
    before = (tmp_path / "far/data").read_bytes()
    assert mcc("quantize", far, *samples, "-o", tmp_path / "far/data").returncode == 2 and (tmp_path / "far/data").read_bytes() == before
    (tmp_path / "far/other name").hardlink_to(tmp_path / "far/data")
    assert "hard links" in mcc("quantize", far, *samples, "-o", tmp_path / "c.onnx").stderr and not (tmp_path / "c.onnx").exists()
    assert mcc("quantize", far, *samples, "--allow-hard-links", "-o", tmp_path / "c.onnx").returncode == 0
    assert (tmp_path / "c.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_refused_networks(tmp_path):
    plain = save(tmp_path / "relu.onnx", [N("Relu", ["x"], ["y"])], [value("x", [4])], [value("y", [4])])
    done = mcc("quantize", plain, "-o", tmp_path / "bytes.onnx")
    assert done.returncode == 1 and "no convolution or matrix product of f32" in done.stderr
    old = residual(tmp_path / "old.onnx", 9)
    done = mcc("quantize", old, "-o", tmp_path / "bytes.onnx")
    assert done.returncode == 1 and "operator set 9 has no QuantizeLinear" in done.stderr
    net = two_inputs(tmp_path / "net.onnx")
    done = mcc("quantize", net, "-o", net)
    assert done.returncode == 2 and not (tmp_path / "bytes.onnx").exists()
    done = mcc("quantize", net, "-o", tmp_path / "bytes.pt2")
    assert done.returncode == 2 and "has the format of the given one, .onnx" in done.stderr and not (tmp_path / "bytes.pt2").exists()
    half = save(tmp_path / "half.onnx", [N("MatMul", ["x", "w"], ["y"])], [value("x", [2, 8], TensorProto.FLOAT16)],
                [value("y", [2, 4], TensorProto.FLOAT16)], {"w": drawn(8, 4).astype(np.float16)})
    assert mcc("quantize", half, "-o", tmp_path / "bytes.onnx").returncode == 1


def test_the_same_bytes(tmp_path):
    """Twice the same file; what is not about bytes keeps its own."""
    path = residual(tmp_path / "net.onnx")
    model = onnx.load(path)
    model.producer_name, model.doc_string = "somebody", "kept"
    model.metadata_props.add(key="k", value="v")
    onnx.save(model, path)
    np.save(tmp_path / "x.npy", drawn(4, 3, 16, 16))
    for name in ("one", "two"):
        assert mcc("quantize", path, f"--sample=x={tmp_path}/x.npy", "-o", tmp_path / f"{name}.onnx").returncode == 0
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()
    made = onnx.load(tmp_path / "one.onnx")
    assert (made.producer_name, made.doc_string, made.metadata_props[0].value) == ("somebody", "kept", "v")
    assert all(numpy_helper.to_array(t).dtype != np.float32 or t.name.endswith("scale") for t in made.graph.initializer)

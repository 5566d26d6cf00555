"""mcc prove: right code is proved, changed code is not, and what is not covered is said."""
import json

import numpy as np
import onnx
import pytest
from onnx import helper

from support import schema
from support.tool import DIGITS, ROOT, mcc, save, value

SCHEMA = json.loads((ROOT / "docs/json.schema.json").read_text())
ONE = "--march=native"


def proof(path, *args, status=0):
    done = mcc("prove", path, ONE, "--json", *args, timeout=300)
    assert done.returncode == status, (done.stdout, done.stderr)
    data = json.loads(done.stdout)
    assert schema.wrong(data, SCHEMA, SCHEMA) is None
    return data["result"]


def weights(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def mlp(path):
    return save(path, [helper.make_node("Gemm", ["x", "w", "b"], ["h"], "first"), helper.make_node("Relu", ["h"], ["r"], "relu"),
                       helper.make_node("MatMul", ["r", "v"], ["s"], "second"), helper.make_node("Softmax", ["s"], ["y"], "softmax", axis=-1)],
                [value("x", ["n", 20])], [value("y", ["n", 7])], {"w": weights(20, 33), "b": weights(33, seed=1), "v": weights(33, 7, seed=2)})


def image(path, size=24):
    """3 x 3 convolutions (Winograd), a depthwise one, a batch norm, pools, a residual sum, a concat, a hard swish."""
    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"], "conv1", pads=[1, 1, 1, 1]),
             helper.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"], "norm"), helper.make_node("Relu", ["n"], ["r"], "relu"),
             helper.make_node("Conv", ["r", "w2"], ["c"], "conv2", pads=[1, 1, 1, 1]), helper.make_node("Add", ["c", "r"], ["d"], "sum"),
             helper.make_node("HardSwish", ["d"], ["h"], "swish"), helper.make_node("Conv", ["h", "w3"], ["e"], "depthwise", group=32, pads=[1, 1, 1, 1]),
             helper.make_node("MaxPool", ["e"], ["f"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("AveragePool", ["e"], ["g"], "mean", kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("Concat", ["f", "g"], ["k"], "concat", axis=1),
             helper.make_node("GlobalAveragePool", ["k"], ["y"], "global")]
    return save(path, nodes, [value("x", [1, 16, size, size])], [value("y", [1, 64, 1, 1])],
                {"w1": weights(32, 16, 3, 3), "w2": weights(32, 32, 3, 3, seed=1), "w3": weights(32, 1, 3, 3, seed=2), "s": weights(32, seed=3),
                 "b": weights(32, seed=4), "m": weights(32, seed=5), "v": np.abs(weights(32, seed=6))}, opset=18)


@pytest.mark.parametrize("make, options", [(mlp, []), (mlp, ["--dim=n=9"]), (mlp, ["--input=x:f32[n=4..8%4,20]"]), (image, []), (image, ["-O0"]),
                                           (image, ["-O1"]), (image, ["--layout=NHWC"]), (image, ["--winograd=off"]), (image, ["--winograd=2"]),
                                           (image, ["--choose=conv2:winograd=6"])])
def test_proved(tmp_path, make, options):
    found = proof(make(tmp_path / "net.onnx"), *options)
    [variant] = found["variants"]
    assert found["proved"] and variant["program"]["proved"] and variant["draws"] >= 2
    assert all(k["proved"] and k["why"] is None for k in variant["kernels"]) and variant["proved"] == len(variant["kernels"])


def test_digits():
    assert proof(DIGITS)["proved"]


def test_axioms(tmp_path):
    [variant] = proof(image(tmp_path / "net.onnx"), "--choose=conv2:winograd=6")["variants"]
    used = {k["kernel"]: k["axioms"] for k in variant["kernels"]}
    assert any("conv2" in k and "fractions" in a for k, a in used.items()) and all("functions" not in a for a in used.values())
    [variant] = proof(mlp(tmp_path / "mlp.onnx"))["variants"]
    assert any("softmax" in k["kernel"] and "functions" in k["axioms"] for k in variant["kernels"])


def test_words(tmp_path):
    path, file = mlp(tmp_path / "net.onnx"), tmp_path / "net.proof.json"
    done = mcc("prove", path, ONE, "--all", "-o", file)
    assert done.returncode == 0 and "program proved" in done.stdout and "proved under reals, functions" in done.stdout
    assert json.loads(file.read_text()) == proof(path)
    assert mcc("prove", path, ONE, "-q").stdout == ""
    done = mcc("prove", tmp_path / "net.so")
    assert done.returncode == 2
    assert mcc("prove", path, "-o", path).returncode == 2 and onnx.load(path)  # which would replace it


def test_not_proved(tmp_path):
    """Each with its reason, and status 6."""
    quantized = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize"), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], "back")]
    path = save(tmp_path / "q.onnx", quantized, [value("x", [4, 4])], [value("y", [4, 4])], {"s": np.float32(0.1), "z": np.uint8(3)})
    [variant] = proof(path, status=6)["variants"]
    assert not variant["program"]["proved"] and any("no meaning in the field" in (k["why"] or "") for k in variant["kernels"])
    path = save(tmp_path / "i.onnx", [helper.make_node("Add", ["x", "x"], ["y"], "add")], [value("x", [4], onnx.TensorProto.INT32)],
                [value("y", [4], onnx.TensorProto.INT32)])
    [variant] = proof(path, status=6)["variants"]
    assert variant["program"]["proved"] and "integers" in variant["kernels"][0]["why"]


INT64 = onnx.TensorProto.INT64


@pytest.mark.parametrize("nodes, x, y, says", [
    ([helper.make_node("ReduceMax", ["x"], ["y"], "n", keepdims=0)], [1, 1000], [], "many elements"),
    ([helper.make_node("GlobalMaxPool", ["x"], ["y"], "n")], [1, 8, 14, 14], [1, 8, 1, 1], "many elements"),
    ([helper.make_node("Equal", ["x", "c"], ["e"], "n"), helper.make_node("Where", ["e", "c", "x"], ["y"], "where")], [64], [64], "equal"),
    ([helper.make_node("ArgMax", ["x"], ["y"], "n", axis=1, keepdims=0)], [64, 4], [64], "equal")])
def test_what_draws_do_not_show(tmp_path, nodes, x, y, says):
    """Code that leaves some elements out of a maximum, or that is wrong for equal ones, computes the same of nearly all draws."""
    elem = INT64 if nodes[0].op_type == "ArgMax" else onnx.TensorProto.FLOAT
    path = save(tmp_path / "net.onnx", nodes, [value("x", x)], [value("y", y, elem)], {"c": np.float32(0.5)} if len(nodes) > 1 else {})
    [variant] = proof(path, status=6)["variants"]
    assert says in variant["kernels"][0]["why"]


def test_softmax_of_many(tmp_path):
    """Its maximum is no matter of real numbers, whatever of it the draws show."""
    for op in ("Softmax", "LogSoftmax"):
        path = save(tmp_path / f"{op}.onnx", [helper.make_node(op, ["x"], ["y"], op, axis=-1)], [value("x", [1, 1000])], [value("y", [1, 1000])])
        assert proof(path)["proved"]


def test_two_sizes(tmp_path):
    """They differ in some draws: code that takes one for the other is not proved by their being equal."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Concat", ["a", "b"], ["y"], "join", axis=0)], [value("a", ["n", 8]), value("b", ["m", 8])],
                [value("y", ["k", 8])])
    [variant] = proof(path)["variants"]
    assert "n=2, m=2; n=2, m=5;" in variant["sizes"]


def test_empty(tmp_path):
    """Nothing is proved of sizes at which nothing is computed."""
    [variant] = proof(mlp(tmp_path / "net.onnx"), "--dim=n=0", "--break-kernel=first", status=6)["variants"]
    assert not variant["program"]["proved"] and "no elements" in variant["program"]["why"] and variant["proved"] == 0


@pytest.mark.parametrize("make, node", [(mlp, "first"), (image, "conv1"), (image, "conv2"), (image, "mean")])
def test_broken_kernels(tmp_path, make, node):
    [variant] = proof(make(tmp_path / "net.onnx"), f"--break-kernel={node}", status=6)["variants"]
    assert any(node in k["kernel"] for k in variant["kernels"] if not k["proved"]) and not variant["program"]["proved"]


@pytest.mark.parametrize("make", [mlp, image])
def test_mutants(tmp_path, make):
    """Statements of kernels and of the program, each changed alone: dropped products, operands and lanes swapped, numbers, indices, bounds and
    offsets of buffers. Those that are left changed a prefetch or a bound that another one stands behind: one in ten at most."""
    path, sites, left = make(tmp_path / "net.onnx"), range(3, 400, 13), []
    for site in sites:
        done = mcc("prove", path, ONE, f"--mutate={site}", "-q", timeout=300)
        assert done.returncode in (0, 1, 5, 6) or done.returncode < 0
        left += [site] if done.returncode == 0 else []
    assert len(left) * 10 <= len(sites), left

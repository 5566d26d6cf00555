"""mcc prove: right code is proved, changed code is not, and what is not covered is said."""
import fractions
import json
import re

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from support import schema
from support.artifact import Artifact
from support.tool import DIGITS, ROOT, mcc, save, value

SCHEMA = json.loads((ROOT / "docs/json.schema.json").read_text())
ONE = "--march=native"
BOOL, UINT8 = onnx.TensorProto.BOOL, onnx.TensorProto.UINT8
MODULUS = 2129858011  # FIELD_N of ir/ops/field.h


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


def large(path):
    """A Gemm that has other loops for more rows than the interpreter takes of x: from the third on, of 524,288 elements each."""
    nodes = [helper.make_node("ReduceMean", ["x"], ["m"], "mean", axes=[2], keepdims=0), helper.make_node("Gemm", ["m", "w", "b"], ["h"], "dense"),
             helper.make_node("Relu", ["h"], ["y"], "relu")]
    return save(path, nodes, [value("x", ["n", 64, 8192])], [value("y", ["n", 80])], {"w": weights(64, 80), "b": weights(80, seed=1)}, opset=17)


def attention(path, keys=100):
    nodes = [helper.make_node("Transpose", ["k"], ["t"], "turn", perm=[0, 1, 3, 2]), helper.make_node("MatMul", ["q", "t"], ["s"], "scores"),
             helper.make_node("Mul", ["s", "c"], ["m"], "scale"), helper.make_node("Softmax", ["m"], ["p"], "softmax", axis=-1),
             helper.make_node("MatMul", ["p", "v"], ["y"], "values")]
    return save(path, nodes, [value(name, [1, 2, keys, 16]) for name in "qkv"], [value("y", [1, 2, keys, 16])], {"c": np.float32(0.17)}, opset=17)


def quantized(path):
    """Two int8 convolutions with scales of channels, zero points, a bias and a residual sum."""
    r = np.random.default_rng(0)
    nodes, data = [], {}

    def node(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], output, **attributes))
        return output

    def through(x, name, scale, zero):
        data[name + "_s"], data[name + "_z"] = np.float32(scale), np.uint8(zero)
        q = node("QuantizeLinear", [x, name + "_s", name + "_z"], name + "_q")
        return node("DequantizeLinear", [q, name + "_s", name + "_z"], name)

    def weight(name, *shape):
        data[name + "_q"] = r.integers(-127, 128, shape).astype(np.int8)
        data[name + "_s"] = (np.abs(r.standard_normal(shape[0])) / 100 + 0.001).astype(np.float32)
        return node("DequantizeLinear", [name + "_q", name + "_s"], name, axis=0)
    x = through("x", "in", 0.021, 117)
    first = through(node("Conv", [x, weight("w1", 16, 8, 3, 3)], "conv1", pads=[1, 1, 1, 1]), "mid", 0.033, 101)
    second = node("Conv", [first, weight("w2", 16, 16, 1, 1)], "conv2")
    through(node("Add", [second, first], "sum"), "y", 0.0517, 0)
    return save(path, nodes, [value("x", [1, 8, 12, 12])], [value("y", [1, 16, 12, 12])], data, opset=17)


def limited(path):
    """A HardSigmoid and a Relu of integers before bytes: mcc divides by the scale first, and drops the limits that bytes have anyway."""
    r = np.random.default_rng(3)
    data = {"w": r.integers(-127, 128, (32, 16)).astype(np.int8), "w_s": np.float32(0.01), "w_z": np.int8(0), "i_s": np.float32(0.05), "i_z": np.uint8(119),
            "m_s": np.float32(1 / 255), "r_s": np.float32(0.003), "z": np.uint8(0), "r_z": np.uint8(7)}
    pair = lambda x, y, scale, zero: [helper.make_node("QuantizeLinear", [x, scale, zero], [y + "_q"], y + "_q"),
                                      helper.make_node("DequantizeLinear", [y + "_q", scale, zero], [y], y)]
    nodes = [*pair("x", "i", "i_s", "i_z"), helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], ["wf"], "weights"),
             helper.make_node("MatMul", ["i", "wf"], ["p"], "product"), helper.make_node("HardSigmoid", ["p"], ["h"], "gate"), *pair("h", "g", "m_s", "z"),
             helper.make_node("Relu", ["p"], ["q"], "relu"), *pair("q", "y", "r_s", "r_z")]
    return save(path, nodes, [value("x", [40, 32])], [value("g", [40, 16]), value("y", [40, 16])], data, opset=17)


def pooled_bytes(path):
    """Bytes of a maximum of windows: mcc makes them before it."""
    r = np.random.default_rng(7)
    data = {"w": r.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8), "w_s": np.float32(0.01), "w_z": np.int8(0), "i_s": np.float32(0.05),
            "i_z": np.uint8(119), "y_s": np.float32(0.02), "y_z": np.uint8(9)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "i_s", "i_z"], ["b"], "bytes"), helper.make_node("DequantizeLinear", ["b", "i_s", "i_z"], ["i"]),
             helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], ["wf"], "weights"), helper.make_node("Conv", ["i", "wf"], ["c"], "conv"),
             helper.make_node("Relu", ["c"], ["r"], "relu"), helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("QuantizeLinear", ["p", "y_s", "y_z"], ["y"], "result")]
    return save(path, nodes, [value("x", [1, 4, 18, 18])], [value("y", [1, 8, 8, 8], onnx.TensorProto.UINT8)], data, opset=17)


def blocks(path, zeros=False):
    """A product by weights of 4 bits in blocks with scales, whose rows are rounded to bytes."""
    r = np.random.default_rng(5)
    data = {"b": r.integers(0, 256, (32, 2, 16)).astype(np.uint8), "s": (r.random(64) / 100).astype(np.float32)}
    if zeros:
        data["z"] = r.integers(0, 256, 32).astype(np.uint8)
    nodes = [helper.make_node("MatMulNBits", ["x", *data], ["y"], domain="com.microsoft", K=64, N=32, bits=4, block_size=32, accuracy_level=4)]
    return save(path, nodes, [value("x", ["m", 64])], [value("y", ["m", 32])], data)


SPANS = "--choose=values:span=32"  # several, with a running maximum


@pytest.mark.parametrize("make, options", [
    (attention, []), (attention, [SPANS]), (quantized, []), (quantized, ["-O1"]), (blocks, []), (mlp, []), (mlp, ["--dim=n=9"]),
    (mlp, ["--input=x:f32[n=4..8%4,20]"]), (image, []), (image, ["-O0"]), (image, ["-O1"]), (image, ["--layout=NHWC"]), (image, ["--winograd=off"]),
    (image, ["--winograd=2"]), (image, ["--choose=conv2:winograd=6"])])
def test_proved(tmp_path, make, options):
    found = proof(make(tmp_path / "net.onnx"), *options)
    [variant] = found["variants"]
    assert found["proved"] and variant["program"]["proved"] and variant["draws"] >= 2
    assert all(k["proved"] and k["why"] is None for k in variant["kernels"]) and variant["proved"] == len(variant["kernels"])


def folded(path, op, a, b):
    """A number of the code that the compiler computes of two of the file's, with rounding."""
    nodes = [helper.make_node(op, ["a", "b"], ["c"], "folded"), helper.make_node("Mul", ["x", "c"], ["y"], "scale")]
    return save(path, nodes, [value("x", [64])], [value("y", [64])], {"a": np.float32(a), "b": np.float32(b)})


@pytest.mark.parametrize("op, a, b", [("Div", 0.123457, 0.765431), ("Pow", 32, -0.5), ("Pow", 3, 0.5), ("Pow", 0.7, 1.7)])
def test_folded_numbers(tmp_path, op, a, b):
    path = folded(tmp_path / "net.onnx", op, a, b)
    assert proof(path)["proved"]
    found = [mcc("prove", path, ONE, f"--mutate={site}", "-q").returncode for site in range(1, 9)]
    assert 0 not in found and found.count(6) >= 3, found


def powers(path):
    """Exponents of the run, among which are those whose powers are products."""
    nodes = [helper.make_node("Cast", ["n"], ["e"], "cast", to=1), helper.make_node("Pow", ["x", "e"], ["y"], "power")]
    return save(path, nodes, [value("x", [2048]), value("n", [2048], onnx.TensorProto.UINT8)], [value("y", [2048])])


def grid(path):
    """Floats that count."""
    nodes = [helper.make_node("Shape", ["x"], ["s"], "shape", end=1), helper.make_node("Squeeze", ["s"], ["n"], "squeeze"),
             helper.make_node("Range", ["zero", "n", "one"], ["r"], "range"), helper.make_node("Cast", ["r"], ["f"], "cast", to=1),
             helper.make_node("Mul", ["x", "f"], ["y"], "product")]
    return save(path, nodes, [value("x", [40])], [value("y", [40])], {"zero": np.int64(0), "one": np.int64(1)})


def position(path):
    """The only position there is, as a float."""
    return save(path, [helper.make_node("Range", ["zero", "one", "one"], ["r"], "range"), helper.make_node("Add", ["x", "r"], ["y"], "sum")],
                [value("x", [5])], [value("y", [5])], {"zero": np.float32(0), "one": np.float32(1)})


def signs(path):
    return save(path, [helper.make_node("Sign", ["x"], ["y"], "sign")], [value("x", [64])], [value("y", [64])])


@pytest.mark.parametrize("make", [powers, grid, position, signs])
def test_numbers_of_the_run(tmp_path, make):
    assert proof(make(tmp_path / "net.onnx"))["proved"]


def table(path):
    """Rows of a large table, of which a product makes others."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"], "rows"), helper.make_node("MatMul", ["e", "w"], ["p"], "product"),
             helper.make_node("Tanh", ["p"], ["y"], "tanh")]
    return save(path, nodes, [value("ids", ["n"], onnx.TensorProto.INT64)], [value("y", ["n", 48])],
                {"table": weights(1 << 16, 64), "w": weights(64, 48)})


def test_integers_of_large_networks(tmp_path):
    """After 16 draws only kernels that read integers are judged, in 80 more. What still passes are changes that change nothing."""
    [variant] = proof(table(tmp_path / "net.onnx"))["variants"]
    assert variant["draws"] >= 96 and variant["proved"] == len(variant["kernels"]) and variant["program"]["proved"]
    found = [mcc("prove", tmp_path / "net.onnx", "--march=x86-64-v3", f"--mutate={site}", "-q").returncode for site in range(1, 41)]
    assert found.count(0) <= 3 and set(found) == {0, 6}, found


def test_digits():
    assert proof(DIGITS)["proved"]


def test_axioms(tmp_path):
    [variant] = proof(image(tmp_path / "net.onnx"), "--choose=conv2:winograd=6")["variants"]
    used = {k["kernel"]: k["axioms"] for k in variant["kernels"]}
    assert any("conv2" in k and "fractions" in a for k, a in used.items()) and all("functions" not in a for a in used.values())
    [variant] = proof(attention(tmp_path / "attention.onnx"), SPANS)["variants"]
    assert {"exponentials", "underflow", "functions"} <= set(variant["kernels"][0]["axioms"])
    [variant] = proof(quantized(tmp_path / "quantized.onnx"))["variants"]
    assert any("conv2" in k["kernel"] and "rounding" in k["axioms"] for k in variant["kernels"]) and variant["draws"] == 4
    [variant] = proof(mlp(tmp_path / "mlp.onnx"))["variants"]
    assert any("softmax" in k["kernel"] and "functions" in k["axioms"] for k in variant["kernels"])


@pytest.mark.parametrize("make", [limited, pooled_bytes])
def test_limits(tmp_path, make):
    """The program needs the axiom; a kernel with another limit, or none, is rejected."""
    [variant] = proof(make(tmp_path / "net.onnx"))["variants"]
    assert variant["program"] == {"proved": True, "axioms": ["limits"], "why": None}
    assert "program proved under limits" in mcc("prove", tmp_path / "net.onnx", "--march=native").stdout
    left, n = mutants(tmp_path / "net.onnx", step=7)
    assert n > 8 and len(left) < n / 4, (left, n)


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
    path = save(tmp_path / "r.onnx", [helper.make_node("BitCast", ["x"], ["y"], "bits", to=onnx.TensorProto.DOUBLE)],
                [value("x", [4, 4], onnx.TensorProto.INT64)], [value("y", [4, 4], onnx.TensorProto.DOUBLE)], opset=26)
    [variant] = proof(path, status=6)["variants"]
    assert any("no meaning in the field" in (k["why"] or "") for k in variant["kernels"])


@pytest.mark.parametrize("fmod", [0, 1])
def test_rests(tmp_path, fmod):
    """Of small fractions they are those of the numbers, of others what a hash of the quotient leaves."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Mod", ["x", "z"], ["y"], "mod", fmod=fmod)] if fmod else
                [helper.make_node("Div", ["x", "z"], ["q"]), helper.make_node("Floor", ["q"], ["f"]), helper.make_node("Mul", ["f", "z"], ["p"]),
                 helper.make_node("Sub", ["x", "p"], ["y"])], [value(name, [4, 40]) for name in "xz"], [value("y", [4, 40])])
    proof(path, "--march=x86-64-v3")
    left, n = mutants(path)
    assert n > 2 and len(left) * 4 <= n, (left, n)


INT64 = onnx.TensorProto.INT64


@pytest.mark.parametrize("elem", [INT64, onnx.TensorProto.UINT64])
def test_floats_to_64_bits(tmp_path, elem):
    path = save(tmp_path / "net.onnx", [helper.make_node("Add", ["x", "c"], ["s"], "sum"), helper.make_node("Cast", ["s"], ["y"], "cast", to=elem)],
                [value("x", [5, 9])], [value("y", [5, 9], elem)], {"c": weights(9)})
    [variant] = proof(path)["variants"]
    assert variant["kernels"][0]["axioms"] == ["reals", "rounding"]
    [variant] = proof(path, "--break-kernel=sum", status=6)["variants"]
    assert "elements differ" in variant["kernels"][0]["why"]


def of_integers(path, op, elem, result=None):
    """y = op(x + a, b): of two inputs and a sum, so that operands of every statement are drawn."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(elem))
    attributes = {"direction": "LEFT"} if op == "BitShift" else {}
    nodes = [helper.make_node("Add", ["x", "a"], ["s"], "sum"), helper.make_node(op, ["s", "b"], ["y"], "n", **attributes)]
    return save(path, nodes, [value(name, [3, 64], kind) for name in "xab"], [value("y", [3, 64], result or kind)], opset=18)


@pytest.mark.parametrize("op, elem, result", [
    ("Add", np.int32, None), ("Mul", np.uint64, None), ("Sub", np.int64, None), ("Div", np.int16, None), ("Mod", np.int32, None), ("Max", np.uint32, None),
    ("BitShift", np.uint16, None), ("BitwiseXor", np.int64, None), ("BitwiseAnd", np.uint8, None), ("Less", np.int32, onnx.TensorProto.BOOL),
    ("LessOrEqual", np.uint64, onnx.TensorProto.BOOL), ("Equal", np.int64, onnx.TensorProto.BOOL)])
def test_integers(tmp_path, op, elem, result):
    """Draws over all bits, magnitudes and ends of the types; changed statements compute something else of these."""
    path, left, n = of_integers(tmp_path / "net.onnx", op, elem, result), [], 0
    found = proof(path)
    [variant] = found["variants"]
    assert found["proved"] and all("integers" in k["axioms"] for k in variant["kernels"]) and variant["draws"] >= 96
    for site in range(1, 60):
        done = mcc("prove", path, ONE, f"--mutate={site}", "-q")
        if done.returncode == 2:
            assert "fewer statements" in done.stderr
            break
        n += 1
        left += [site] if done.returncode == 0 else []
    assert n and len(left) * 4 <= n, (n, left)


def test_indices(tmp_path):
    """All of them are drawn, negative ones too."""
    path = save(tmp_path / "net.onnx", [helper.make_node("GatherElements", ["x", "i"], ["y"], "n", axis=1)],
                [value("x", [5, 33]), value("i", [5, 20], INT64)], [value("y", [5, 20])])
    [variant] = proof(path)["variants"]
    assert "integers" in variant["kernels"][0]["axioms"] and variant["program"]["proved"]


def test_integers_that_show_little(tmp_path):
    """A comparison with one number of 2^63 that no constant names is false in nearly all draws: what it chooses was not seen."""
    nodes = [helper.make_node("Add", ["x", "d"], ["s"], "s"), helper.make_node("Equal", ["s", "c"], ["e"], "e"),
             helper.make_node("Where", ["e", "f", "g"], ["y"], "n")]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [64], INT64), value("f", [64]), value("g", [64])], [value("y", [64])],
                {"c": np.int64(123456789), "d": np.int64(1000)})
    [variant] = proof(path, status=6)["variants"]
    assert "shown few" in variant["kernels"][0]["why"]


def mutants(path, cpu="--march=x86-64-v3", step=1):
    """(sites that are left, how many there are)"""
    left = []
    for n, site in enumerate(range(1, 100 * step, step)):
        done = mcc("prove", path, cpu, f"--mutate={site}", "-q", timeout=300)
        if done.returncode == 2:
            return left, n
        left += [site] if done.returncode == 0 else []
    raise AssertionError(f"{path} has more statements")


@pytest.mark.parametrize("zeros", [False, True])
def test_products_in_blocks(tmp_path, zeros):
    path = blocks(tmp_path / "net.onnx", zeros)
    assert proof(path, "--march=x86-64-v3")["proved"]
    left, n = mutants(path, step=41)
    assert n > 8 and len(left) < n / 4
    for site in left:   # a prefetch: results are right
        for m in (1, 8, 33):
            done = mcc("diff", path, "--march=x86-64-v3", f"--dim=m={m}", f"--mutate={site}", "-o", tmp_path / "diff")
            assert done.returncode == 0, (site, m, done.stdout)


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual"])
def test_compared_constants(tmp_path, op):
    """Numbers that the network compares with are drawn, and those next to them: so code that compares otherwise is not proved."""
    nodes = [helper.make_node(op, ["x", "c"], ["e"], "e"), helper.make_node("Where", ["e", "f", "g"], ["y"], "n")]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [64], INT64), value("f", [64]), value("g", [64])], [value("y", [64])],
                {"c": np.int64(123456789)}, opset=17)
    [variant] = proof(path, "--march=x86-64-v3")["variants"]
    assert variant["kernels"][0]["axioms"] == ["reals", "integers"]
    left, n = mutants(path)
    assert n > 3 and not left, (left, n)


def test_label_that_is_left_out(tmp_path):
    """The condition that chooses an index is not an index itself: labels are drawn from all classes, and from what is left out."""
    node = helper.make_node("NegativeLogLikelihoodLoss", ["x", "t", "w"], ["y"], "n", reduction="mean", ignore_index=-7)
    path = save(tmp_path / "net.onnx", [node], [value("x", [3, 5, 6]), value("t", [3, 6], INT64), value("w", [5])], [value("y", [])], opset=17)
    proof(path, "--march=x86-64-v3")
    left, n = mutants(path, step=5)
    assert n > 8 and len(left) * 4 <= n, (left, n)


def test_numbers_of_trips(tmp_path):
    """A loop whose trips are a constant makes all of them in each draw."""
    body = helper.make_graph([helper.make_node("Gather", ["x", "i"], ["r"], "row", axis=0), helper.make_node("MatMul", ["h", "a"], ["m"]),
                              helper.make_node("Add", ["m", "r"], ["o"]), helper.make_node("Identity", ["k"], ["k2"])], "body",
                             [value("i", [], INT64), value("k", [], BOOL), value("h", [16])], [value("k2", [], BOOL), value("o", [16])])
    path = save(tmp_path / "net.onnx", [helper.make_node("Loop", ["n", "", "z"], ["y"], "turn", body=body)], [value("x", [4, 16]), value("z", [16])],
                [value("y", [16])], {"a": weights(16, 16), "n": np.int64(4)}, opset=17)
    [variant] = proof(path, "--march=x86-64-v3")["variants"]
    assert not any("integers" in k["axioms"] for k in variant["kernels"])
    left, n = mutants(path, step=29)
    assert n > 5 and len(left) * 4 <= n, (left, n)


def parts(path):
    """Two parts of a dim, whose sizes the data decides."""
    return save(path, [helper.make_node("Split", ["x", "s"], ["y", "z"], "n")], [value("x", [6]), value("s", [2], INT64)],
                [value("y", ["a"]), value("z", ["b"])], opset=17)


def reshaped(path):
    return save(path, [helper.make_node("Reshape", ["x", "s"], ["y"], "n")], [value("x", [2, 3, 4]), value("s", [3], INT64)],
                [value("y", ["a", "b", "c"])], opset=17)


def nothing(path):
    """Sums over a dim of no elements, or over another one: the data says which."""
    return save(path, [helper.make_node("ReduceSum", ["x", "a"], ["y"], "n", keepdims=0)], [value("x", [2, 0, 4]), value("a", [1], INT64)],
                [value("y", ["a", "b"])], opset=17)


@pytest.mark.parametrize("make, step", [(parts, 1), (reshaped, 1), (nothing, 5)])
def test_loops_that_no_size_runs(tmp_path, make, step):
    """Loops over whole vectors of a part of six elements, or the branch for a remainder of none, cannot run. All else has to. Mutants that are left
    change what cannot run, blocks of thousands of elements, lanes that nothing reads, and bounds of what the run refuses."""
    path = make(tmp_path / "net.onnx")
    proof(path, "--march=x86-64-v3")
    left, n = mutants(path, step=step)
    assert n > 5 and len(left) < n, (left, n)


def test_larger_numbers(tmp_path):
    """Numbers that decide sizes are larger where small ones show few values: none of these is above the 20 rows that there are."""
    nodes = [helper.make_node("Max", ["c", "s"], ["m"], "most"), helper.make_node("Sub", ["m", "c"], ["d"], "more"),
             helper.make_node("Concat", ["z", "d"], ["p"], "pads", axis=0), helper.make_node("Pad", ["x", "p"], ["y"], "pad")]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [20, 10]), value("s", [2], INT64)], [value("y", ["a", "b"])],
                {"c": np.array([20, 10]), "z": np.zeros(2, np.int64)}, opset=18)
    [variant] = proof(path, "--march=x86-64-v3")["variants"]
    assert any("integers" in k["axioms"] for k in variant["kernels"])


def test_bytes_and_a_position(tmp_path):
    """An input of 64 bits elsewhere in the network does not bar a kernel of bytes: four draws prove it."""
    nodes = [helper.make_node("Add", ["x", "x"], ["y"], "bytes"), helper.make_node("Identity", ["i"], ["j"], "move")]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [64], onnx.TensorProto.UINT8), value("i", [4], INT64)],
                [value("y", [64], onnx.TensorProto.UINT8), value("j", [4], INT64)])
    [variant] = proof(path)["variants"]
    assert variant["draws"] == 4 and not any("integers" in k["axioms"] for k in variant["kernels"])


def test_sum_of_nothing(tmp_path):
    """Its logarithm is what a comparison of its absolute value with infinity decides: -inf negated is inf."""
    path = save(tmp_path / "net.onnx", [helper.make_node("ReduceLogSumExp", ["x", "a"], ["y"], "n")], [value("x", [2, 0, 4])], [value("y", [2, 1, 4])],
                {"a": np.array([1])}, opset=18)
    [variant] = proof(path)["variants"]  # the sums, which no input changes, are drawn where they are stored
    assert variant["program"]["proved"]


def test_kernels_that_are_not_launched(tmp_path):
    """Sizes from data leave some kernels of a node without work: what the others store is still known as theirs."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Resize", ["x", "", "", "s"], ["y"], "n", mode="cubic", antialias=1)],
                [value("x", [1, 1, 4, 4]), value("s", [4], INT64)], [value("y", ["a", "b", "c", "d"])], opset=19)
    [variant] = proof(path, status=6)["variants"]
    assert not any("elements differ" in (k["why"] or "") for k in variant["kernels"]) and variant["program"]["proved"]


@pytest.mark.parametrize("size", ["cubic", "nearest"])
def test_sizes_of_the_run(tmp_path, size):
    """Sizes that come from drawn data are small numbers, and runs that these end are drawn again."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Resize", ["x", "", "", "s"], ["y"], "n", mode=size)],
                [value("x", [1, 1, 4, 4]), value("s", [4], INT64)], [value("y", ["a", "b", "c", "d"])], opset=18)
    done = mcc("prove", path, ONE, "--json", timeout=300)
    assert done.returncode in (0, 6) and json.loads(done.stdout)["result"]["variants"][0]["draws"] >= 4, done.stderr


def position(path):
    """The data decides which rows are read, by a sum: most draws have a row that is not there."""
    nodes = [helper.make_node("Add", ["i", "j"], ["k"], "sum"), helper.make_node("Gather", ["x", "k"], ["y"], "n", axis=0)]
    return save(path, nodes, [value("x", [13, 5]), value("i", [4], INT64), value("j", [4], INT64)], [value("y", [4, 5])], opset=17)


def elements(path):
    node = helper.make_node("GatherElements", ["x", "i"], ["y"], "n", axis=0)
    return save(path, [node], [value("x", [13, 5]), value("i", [4, 5], INT64)], [value("y", [4, 5])], opset=17)


def tiled(path):
    return save(path, [helper.make_node("Tile", ["x", "s"], ["y"], "n")], [value("x", [3, 2]), value("s", [2], INT64)], [value("y", ["a", "b"])], opset=17)


REFUSED = "its code refuses inputs that the network takes: "


@pytest.mark.parametrize("make, error, share", [(position, "index out of range", 0), (elements, "index out of range", 0),
                                                (reshaped, "reshape changes the number of elements", 0.5), (tiled, "the workspace for these shapes", 0.5)])
def test_code_that_refuses_too_much(tmp_path, make, error, share):
    """A check of an index, a size or a workspace that ends runs which the network does not end: code that takes rows below 12, of 13, would be proved
    by the draws that it takes. A check that lets row 13 pass shows, too: it is drawn. Mutants that are left change what nothing reads, and bounds
    far from all draws."""
    path, cpu, left, refused = make(tmp_path / "net.onnx"), "--march=x86-64-v3", [], 0
    [variant] = proof(path, cpu)["variants"]
    assert variant["program"]["proved"]
    for site in range(1, 60):
        done = mcc("prove", path, cpu, f"--mutate={site}", timeout=100)
        if done.returncode == 2:
            break
        assert done.returncode in (0, 6), (site, done)
        left += [site] if done.returncode == 0 else []
        refused += f"program not proved, because {REFUSED}" in done.stdout and error in done.stdout
    assert 6 < site < 59 and refused and len(left) <= share * site, (site, refused, left)


def count(path):
    """The data decides how many elements there are."""
    return save(path, [helper.make_node("Range", list("abd"), ["y"], "n")], [value(name, []) for name in "abd"], [value("y", ["k"])], opset=17)


def scaled(path):
    """It decides two extents, and which elements are read."""
    return save(path, [helper.make_node("Resize", ["x", "", "s"], ["y"], "n", mode="nearest")], [value("x", [1, 1, 2, 3]), value("s", [4])],
                [value("y", ["a", "b", "c", "d"])], opset=18)


def one_hot(path):
    """Floats that are indices."""
    return save(path, [helper.make_node("OneHot", ["i", "d", "v"], ["y"], "n")], [value("i", [2, 3]), value("d", []), value("v", [2])],
                [value("y", [2, 3, "k"])], opset=17)


@pytest.mark.parametrize("make, step", [(count, 1), (scaled, 9), (one_hot, 2)])
def test_extents_of_the_run(tmp_path, make, step):
    """They are read from what the run has stored, and are larger than vectors in some draws. Mutants that are left change sizes of blocks beyond
    all draws, lanes that nothing reads, bounds of what the run refuses, and positions in dims of one element. Each one has a verdict: the
    network with a wrong count may be too large to interpret."""
    path, left, n, cpu = make(tmp_path / "net.onnx"), [], 0, "--march=x86-64-v3"
    [variant] = proof(path, cpu)["variants"]
    assert variant["proved"] == len(variant["kernels"]) and variant["program"]["proved"]
    for site in range(1, 200, step):
        done = mcc("prove", path, cpu, f"--mutate={site}", timeout=300)
        if done.returncode == 2:
            break
        assert done.returncode == 1 and "error: run: " in done.stderr or (done.returncode == 6) == ("not proved" in done.stdout), (site, done)
        assert done.returncode or "program proved" in done.stdout, (site, done)
        n += 1
        left += [site] if done.returncode == 0 else []
    assert n > 5 and len(left) * 2 <= n, (n, left)


FLOATS = [onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT8E4M3FN, onnx.TensorProto.FLOAT8E4M3FNUZ,
          onnx.TensorProto.FLOAT8E5M2, onnx.TensorProto.FLOAT8E5M2FNUZ]


@pytest.mark.parametrize("elem", FLOATS)
def test_casts_of_other_floats(tmp_path, elem):
    """There, of a sum, and back into a product: each conversion rounds to what the network rounds to."""
    nodes = [helper.make_node("Add", ["x", "z"], ["s"], "sum"), helper.make_node("Cast", ["s"], ["h"], "there", to=elem),
             helper.make_node("Cast", ["h"], ["b"], "back", to=1), helper.make_node("Mul", ["b", "z"], ["y"], "product")]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [5, 33]), value("z", [5, 33])], [value("y", [5, 33]), value("h", [5, 33], elem)])
    [variant] = proof(path)["variants"]
    assert variant["program"]["proved"] and any("rounding" in k["axioms"] for k in variant["kernels"]) == (elem != onnx.TensorProto.DOUBLE)
    [variant] = proof(path, "--break-kernel=sum", status=6)["variants"]
    assert any("elements differ" in (k["why"] or "") for k in variant["kernels"])


# Less of bf16 is not in this version of the operator; its MatMul multiplies pairs, which no residue stands for.
@pytest.mark.parametrize("op, elem", [
    (op, elem) for op in ("Add", "Mul", "Div", "Max", "Exp", "Tanh", "Floor", "Less", "ReduceSum", "MatMul", "Softmax")
    for elem in FLOATS[:3] if op not in ("Less", "MatMul") or elem != onnx.TensorProto.BFLOAT16])
def test_arithmetic_of_other_floats(tmp_path, op, elem):
    attributes = {"axis": -1} if op == "Softmax" else {"keepdims": 0} if op == "ReduceSum" else {}
    names = ["x", "z"] if op in ("Add", "Mul", "Div", "Max", "Less", "MatMul") else ["x"]
    dims = [] if op == "ReduceSum" else [17, 17]
    path = save(tmp_path / "net.onnx", [helper.make_node(op, names, ["y"], "n", **attributes)], [value(name, [17, 17], elem) for name in names],
                [value("y", dims, onnx.TensorProto.BOOL if op == "Less" else elem)], opset=18)
    found, left, n = proof(path), 0, 0
    [variant] = found["variants"]
    assert found["proved"] and ("rounding" in variant["kernels"][0]["axioms"]) == (elem != onnx.TensorProto.DOUBLE and op != "Less")
    for site in range(1, 40, 3):
        done = mcc("prove", path, ONE, f"--mutate={site}", "-q")
        if done.returncode == 2:
            break
        n += 1
        left += done.returncode == 0
    assert left * 2 <= n, (left, n)


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "native"])
@pytest.mark.parametrize("least", [0, MODULUS - 1])
def test_sums_of_products_never_overflow(cpu, least, tmp_path):
    """Loops sum products in 64 bits: also of the largest residues, and of more than 64 bits hold."""
    path = save(tmp_path / "net.onnx", [helper.make_node("MatMul", ["a", "b"], ["y"], "n")], [value("a", [7, 3001]), value("b", [3001, 37])],
                [value("y", [7, 37])], opset=17)
    assert mcc(path, f"-march={cpu}", "--in-field", "-o", path.with_suffix(".so")).returncode == 0
    a, b = (np.random.default_rng(i).integers(least, MODULUS, shape) for i, shape in enumerate([(7, 3001), (3001, 37)]))
    with Artifact(path.with_suffix(".so"), threads=1) as artifact:
        [got] = artifact.call([x.astype(np.uint32).view(np.float32) for x in (a, b)])
    want = a.astype(object) @ b.astype(object) * pow(2, -32, MODULUS) % MODULUS
    np.testing.assert_array_equal(got.view(np.uint32), want.astype(np.uint32))


def in_field(path, nodes, x, y, given):
    save(path, nodes, [x], [y])
    assert mcc(path, ONE, "--in-field", "-o", path.with_suffix(".so")).returncode == 0
    with Artifact(path.with_suffix(".so")) as artifact:
        return artifact.run([given])[0]


@pytest.mark.parametrize("elem, numbers", [(onnx.TensorProto.FLOAT16, np.float16), (onnx.TensorProto.BFLOAT16, ml_dtypes.bfloat16),
                                           (onnx.TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn), (onnx.TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2)])
def test_bits_of_narrow_floats(tmp_path, elem, numbers):
    """All bits stand for the residues of their numbers; those that are multiples of a step come back as they were."""
    ring, step = 32633 * 65267, {np.float16: 16, ml_dtypes.bfloat16: 8, ml_dtypes.float8_e4m3fn: 4, ml_dtypes.float8_e5m2: 2}[numbers]
    bits = np.arange(1 << 8 * np.dtype(numbers).itemsize, dtype=f"u{np.dtype(numbers).itemsize}").view(numbers)
    x = bits[np.isfinite(bits.astype(np.float32))]
    there = in_field(tmp_path / "there.onnx", [helper.make_node("Cast", ["x"], ["y"], "cast", to=1)], value("x", ["n"], elem), value("y", ["n"]), x)
    exact = [fractions.Fraction(float(v)) for v in x]
    assert there.view(np.uint32).tolist() == [v.numerator * pow(v.denominator, -1, ring) * (1 << 32) % ring for v in exact]
    back = in_field(tmp_path / "back.onnx", [helper.make_node("Cast", ["x"], ["y"], "cast", to=elem)], value("x", ["n"]), value("y", ["n"], elem), there)
    kept = np.array([(v * step).denominator == 1 and abs(v * step) < 1 << 24 for v in exact])
    assert kept.sum() >= 32 and (back[kept].astype(np.float32) == x[kept].astype(np.float32)).all()
    assert np.isfinite(back.astype(np.float32)).all()


@pytest.mark.parametrize("narrow", [onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT16])
def test_narrowed_constant(tmp_path, narrow):
    nodes = [helper.make_node("Cast", ["w"], ["n"], "narrow", to=narrow), helper.make_node("Cast", ["n"], ["c"], "back", to=1),
             helper.make_node("Add", ["x", "c"], ["y"], "add")]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [3, 4])], [value("y", [3, 4])], {"w": weights(3, 4)})
    [variant] = proof(path)["variants"]
    assert variant["program"]["proved"]


@pytest.mark.parametrize("nodes, x, y, says", [
    ([helper.make_node("ReduceMax", ["x"], ["y"], "n", keepdims=0)], [1, 1000], [], "many elements"),
    ([helper.make_node("GlobalMaxPool", ["x"], ["y"], "n")], [1, 1, 32, 32], [1, 1, 1, 1], "many elements"),
    ([helper.make_node("Exp", ["x"], ["z"], "exp"), helper.make_node("Equal", ["z", "c"], ["e"], "n"),
      helper.make_node("Where", ["e", "c", "x"], ["y"], "where")], [64], [64], "equal"),
    ([helper.make_node("ArgMax", ["x"], ["y"], "n", axis=1, keepdims=0)], [1, 1000], [1], "many elements"),
    ([helper.make_node("Add", ["x", "c"], ["s"], "sum"), helper.make_node("IsNaN", ["s"], ["y"], "n")], [64], [64], "NaN"),
    ([helper.make_node("Add", ["x", "c"], ["s"], "sum"), helper.make_node("IsInf", ["s"], ["y"], "n")], [64], [64], "infinity"),
    ([helper.make_node("Add", ["x", "x"], ["s"], "sum"), helper.make_node("Less", ["s", "c"], ["y"], "n")], [64], [64], "infinity")])
def test_what_draws_do_not_show(tmp_path, nodes, x, y, says):
    """Code that leaves some elements out of a maximum, or that is wrong for equal ones, computes the same of nearly all draws."""
    elem = {"ArgMax": INT64, "Less": BOOL, "IsNaN": BOOL, "IsInf": BOOL}.get(nodes[-1].op_type, onnx.TensorProto.FLOAT)
    data = {"c": np.float32("inf" if says == "infinity" else 0.5)} if len(nodes) > 1 else {}
    path = save(tmp_path / "net.onnx", nodes, [value("x", x)], [value("y", y, elem)], data)
    [variant] = proof(path, status=6)["variants"]
    assert says in variant["kernels"][0]["why"]


@pytest.mark.parametrize("op, shape, result, elem, attributes", [
    ("Equal", [64], [64], BOOL, {}), ("ArgMax", [2, 7], [2], INT64, {"axis": 1, "keepdims": 0}),
    ("ArgMin", [7, 2], [2], INT64, {"axis": 0, "keepdims": 0, "select_last_index": 1}),
    ("Cast", [64], [64], BOOL, {"to": BOOL}), ("IsNaN", [7], [7], BOOL, {}),
    ("IsInf", [7], [7], BOOL, {}), ("GlobalMaxPool", [1, 3, 5, 5], [1, 3, 1, 1], onnx.TensorProto.FLOAT, {}),
    ("MaxPool", [1, 1, 4, 4], [1, 1, 2, 2], onnx.TensorProto.FLOAT, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}),
    ("LpNormalization", [3, 4], [3, 4], onnx.TensorProto.FLOAT, {"axis": 1, "p": 1})])
def test_draws_of_equal_floats(tmp_path, op, shape, result, elem, attributes):
    """Draws of few numbers, infinities and NaN among them where the network looks for these; of maxima some far below what they begin with. Mutants
    that are left take an element twice for a maximum, or change a bound that nothing reads."""
    path = save(tmp_path / "net.onnx", [helper.make_node(op, ["x", "z"] if op == "Equal" else ["x"], ["y"], "n", **attributes)],
                [value("x", shape)] + [value("z", shape)] * (op == "Equal"), [value("y", result, elem)])
    proof(path, "--march=x86-64-v3")
    left, n = mutants(path)
    assert n > 1 and len(left) <= 1 + ("Pool" in op), (n, left)


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
    path = save(tmp_path / "names.onnx", [helper.make_node("Concat", ["a", "b"], ["y"], "join", axis=0)], [value("a", ["mn", 8]), value("b", ["n", 8])],
                [value("y", ["k", 8])])
    [variant] = proof(path)["variants"]
    assert variant["sizes"].startswith("mn=1, n=1; ")


def test_single_kernels(tmp_path):
    """A loop for six rows, where the interpreter takes two: it is compared alone, and what is wrong in it shows."""
    path = large(tmp_path / "net.onnx")

    def found(*args):
        done = mcc("prove", path, "--march=x86-64-v3", "--choose=dense:tile=1x6x2", "--json", *args, timeout=300)
        data = json.loads(done.stdout)
        assert schema.wrong(data, SCHEMA, SCHEMA) is None
        return data["result"]["variants"][0]
    whole = found()
    assert whole["sizes"] == "n=1; n=2; n=0" and "n=6;" in whole["sizes_of_single_kernels"] and whole["program"]["proved"]
    assert all(k["proved"] for k in whole["kernels"])
    changed = [found(f"--mutate={site}") for site in range(12, 45, 8)]
    assert any(v["program"]["proved"] and any("elements differ" in (k["why"] or "") for k in v["kernels"]) for v in changed)


def test_blocks_of_an_open_extent(tmp_path):
    """A parallel index takes 2,048 vectors: one less shows only where two indices are as long as they get."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Sqrt", ["x"], ["y"], "root")], [value("x", ["n"])], [value("y", ["n"])])
    cpu = "--march=x86-64-v3"
    [variant] = proof(path, cpu)["variants"]
    assert variant["proved"] == 1 and "n=32768;" in variant["sizes_of_single_kernels"]
    numbers = [int(n) for n in re.findall(r"const index (\d+)", mcc(path, cpu, "--stop-after=emit").stdout)]
    assert next(n for n in numbers if n > 1) == 2048  # the first statement that a mutant changes
    assert mcc("prove", path, cpu, "--mutate=1", "-q").returncode == 6


def branch(path):
    sides = [helper.make_graph([helper.make_node("MatMul", ["x", side], [side + "m"]), helper.make_node(op, [side + "m"], [side + "r"])], side, [],
                               [value(side + "r", [8, 20])]) for side, op in (("a", "Exp"), ("b", "Neg"))]
    nodes = [helper.make_node("If", ["c"], ["h"], "choose", then_branch=sides[0], else_branch=sides[1]), helper.make_node("Relu", ["h"], ["y"], "last")]
    return save(path, nodes, [value("x", [8, 16]), value("c", [], onnx.TensorProto.BOOL)], [value("y", [8, 20])],
                {"a": weights(16, 20), "b": weights(16, 20, seed=1)}, opset=17)


def loop(path):
    body = helper.make_graph([helper.make_node("MatMul", ["h", "a"], ["m"]), helper.make_node("Tanh", ["m"], ["t"]), helper.make_node("Add", ["t", "x"], ["o"]),
                              helper.make_node("Identity", ["k"], ["k2"])], "body",
                             [value("i", [], INT64), value("k", [], onnx.TensorProto.BOOL), value("h", [8, 16])],
                             [value("k2", [], onnx.TensorProto.BOOL), value("o", [8, 16])])
    return save(path, [helper.make_node("Loop", ["n", "", "x"], ["g"], "turn", body=body), helper.make_node("Relu", ["g"], ["y"], "last")],
                [value("x", [8, 16]), value("n", [], INT64)], [value("y", [8, 16])], {"a": weights(16, 16)}, opset=17)


@pytest.mark.parametrize("make", [branch, loop])
def test_loops_and_branches(tmp_path, make):
    """What is inside is proved with the loop or branch, if it ran and what reads the values is proved."""
    path, cpu = make(tmp_path / "net.onnx"), "--march=x86-64-v3"
    [variant] = proof(path, cpu)["variants"]
    assert variant["proved"] == len(variant["kernels"]) == 4
    assert [mcc("prove", path, cpu, f"--mutate={site}", "-q").returncode for site in range(24, 36, 3)] == [6] * 4
    [variant] = proof(path, cpu, "--break-kernel=last", status=6)["variants"]
    assert variant["proved"] == 0
    [unread] = [k for k in variant["kernels"] if "control" in k["kernel"]]
    assert "what reads the values" in unread["why"]


def test_branches_of_few_nan(tmp_path):
    """No draw of one branch has a NaN. It is not proved, whichever branch the last draw takes."""
    sides = [helper.make_graph([helper.make_node("Add", ["x", "half"], ["s"], "sum"), helper.make_node("IsNaN", ["s"], ["a"], "nan")], "nan", [],
                               [value("a", [64], BOOL)]),
             helper.make_graph([helper.make_node("Not", ["b"], ["o"], "not")], "not", [], [value("o", [64], BOOL)])]
    for swapped in (False, True):
        choose = helper.make_node("If", ["c"], ["h"], "choose", then_branch=sides[swapped], else_branch=sides[not swapped])
        path = save(tmp_path / "net.onnx", [choose, helper.make_node("Not", ["h"], ["y"], "last")],
                    [value("x", [64]), value("b", [64], BOOL), value("c", [], BOOL)], [value("y", [64], BOOL)], {"half": np.float32(0.5)}, opset=17)
        [variant] = proof(path, status=6)["variants"]
        [inside] = [k for k in variant["kernels"] if "nan" in k["kernel"].split("; ")[-1]]
        assert "NaN" in inside["why"]


def counting(path, op, divisor):
    """Each trip adds a function of its number."""
    body = helper.make_graph([helper.make_node(op, ["i", "d"], ["m"], "step"), helper.make_node("Add", ["h", "m"], ["o"], "add"),
                              helper.make_node("Identity", ["k"], ["k2"])], "body",
                             [value("i", [], INT64), value("k", [], BOOL), value("h", [8], INT64)], [value("k2", [], BOOL), value("o", [8], INT64)])
    return save(path, [helper.make_node("Loop", ["n", "", "x"], ["g"], "turn", body=body), helper.make_node("Neg", ["g"], ["y"], "last")],
                [value("x", [8], INT64), value("n", [], INT64)], [value("y", [8], INT64)], {"d": np.int64(divisor)}, opset=17)


def test_trips_beyond_seven(tmp_path):
    """Code with i mod 14 in the place of i mod 13 is not proved, as little as one with i mod 6 in the place of i mod 5."""
    left, cpu = {5: [], 13: []}, "--march=x86-64-v3"
    for divisor, found in left.items():
        path = counting(tmp_path / "net.onnx", "Mod", divisor)
        proof(path, cpu)
        for site in range(1, 60):
            done = mcc("prove", path, cpu, f"--mutate={site}", "-q")
            if done.returncode == 2:
                break
            found += [site] if done.returncode == 0 else []
        assert len(found) + 3 < site < 59
    assert left[13] == left[5]


def test_equal_to_a_constant(tmp_path):
    """Drawn numbers from -2 to 2 are never 5.5."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Equal", ["x", "c"], ["y"], "n")],
                [value("x", [64])], [value("y", [64], BOOL)], {"c": np.float32(5.5)})
    proof(path)


def test_positions_in_windows(tmp_path):
    """Which of equal elements of a window is taken shows in draws of few numbers. Mutants that are left change what the first element replaces."""
    path = save(tmp_path / "net.onnx", [helper.make_node("MaxPool", ["x"], ["y", "i"], "n", kernel_shape=[3, 2], strides=[2, 1], pads=[0, 0, 1, 0])],
                [value("x", [1, 2, 6, 5])], [value("y", None), value("i", None, INT64)])
    proof(path, "--march=x86-64-v3")
    left, n = mutants(path)
    assert n > 4 and len(left) <= 2, (n, left)


def test_positions_in_windows_of_one_element(tmp_path):
    path = save(tmp_path / "net.onnx", [helper.make_node("MaxPool", ["x"], ["y", "i"], "n", kernel_shape=[1, 1], strides=[2, 1])],
                [value("x", [1, 2, 6, 5])], [value("y", None), value("i", None, INT64)])
    proof(path)


def test_argmax_and_nan(tmp_path):
    """Code orders NaN as floats, the field as any residue: an argmax gets none, so that right code does not differ."""
    path = save(tmp_path / "net.onnx", [helper.make_node("ArgMax", ["x"], ["y"], "most", axis=1, keepdims=0), helper.make_node("IsNaN", ["x"], ["z"], "nan")],
                [value("x", [4, 7])], [value("y", [4], INT64), value("z", [4, 7], BOOL)])
    [variant] = proof(path, status=6)["variants"]
    why = {k["kernel"]: k["why"] for k in variant["kernels"]}
    assert variant["program"]["proved"] and [w for k, w in why.items() if "most" in k] == [None] and any("NaN" in (w or "") for w in why.values()), why


def test_nan_where_it_is_looked_for(tmp_path):
    """NaN has no sign in the field, and needs none: only the input that is asked for NaN gets it, and argmax's gets none."""
    nodes = [helper.make_node("IsNaN", ["x"], ["a"], "nan"), helper.make_node("Sign", ["y"], ["b"], "sign"),
             helper.make_node("ArgMax", ["z"], ["c"], "most", axis=1, keepdims=0)]
    path = save(tmp_path / "net.onnx", nodes, [value(name, [4, 7]) for name in "xyz"],
                [value("a", [4, 7], BOOL), value("b", [4, 7]), value("c", [4], INT64)])
    proof(path, status=0)


ONCE = {"ThresholdedRelu": {"alpha": 2.0}}


@pytest.mark.parametrize("op", ["Relu", "ThresholdedRelu", "Clip", "Abs"])
def test_choices_of_one_element(tmp_path, op):
    """Four draws may all lie on one side of what a single element is compared with."""
    path = save(tmp_path / "net.onnx", [helper.make_node(op, ["x", *(["lo", "hi"] if op == "Clip" else [])], ["y"], "n", **ONCE.get(op, {}))],
                [value("x", [1])], [value("y", [1])], {"lo": np.float32(0), "hi": np.float32(6)} if op == "Clip" else {})
    [variant] = proof(path)["variants"]
    assert variant["draws"] >= 64
    for site in range(1, 20):
        done = mcc("prove", path, "--march=x86-64-v3", f"--mutate={site}", "-q")
        if done.returncode == 2:
            break
        assert done.returncode == 6, site


@pytest.mark.parametrize("op, names, elem, draws", [("And", "xz", BOOL, 64), ("Less", "xz", onnx.TensorProto.FLOAT, 64), ("Cast", "x", UINT8, 96)])
def test_one_bool(tmp_path, op, names, elem, draws):
    """True of one byte in 256, or of one case in four."""
    path = save(tmp_path / "net.onnx", [helper.make_node(op, list(names), ["y"], "n", **({"to": BOOL} if op == "Cast" else {}))],
                [value(name, [1], elem) for name in names], [value("y", [1], BOOL)])
    [variant] = proof(path)["variants"]
    assert variant["draws"] == draws


def never(path):
    """A loop with a branch that no draw takes: nothing is more than infinity."""
    sides = [helper.make_graph([helper.make_node("MatMul", ["h", side], [side + "m"]), helper.make_node(op, [side + "m"], [side + "r"])], side, [],
                               [value(side + "r", [8, 16])]) for side, op in (("a", "Exp"), ("b", "Neg"))]
    body = helper.make_graph([helper.make_node("Less", ["inf", "f"], ["c"]), helper.make_node("Add", ["f", "one"], ["f2"]),
                              helper.make_node("If", ["c"], ["t"], then_branch=sides[0], else_branch=sides[1]), helper.make_node("Add", ["t", "x"], ["o"]),
                              helper.make_node("Identity", ["k"], ["k2"])], "body",
                             [value("i", [], INT64), value("k", [], BOOL), value("h", [8, 16]), value("f", [])],
                             [value("k2", [], BOOL), value("o", [8, 16]), value("f2", [])])
    nodes = [helper.make_node("Loop", ["n", "", "x", "z"], ["g", "w"], "turn", body=body), helper.make_node("Relu", ["g"], ["y"], "last")]
    return save(path, nodes, [value("x", [8, 16]), value("z", []), value("n", [], INT64)], [value("y", [8, 16]), value("w", [])],
                {"one": np.float32(1), "inf": np.float32(np.inf), "a": weights(16, 16), "b": weights(16, 16, seed=1)}, opset=17)


def test_branch_that_never_runs(tmp_path):
    """A loop that is one kernel has run, but not all that is inside of it."""
    [variant] = proof(never(tmp_path / "net.onnx"), status=6)["variants"]
    inside = [k for k in variant["kernels"] if "am, ar" in k["kernel"]]
    assert inside and not any(k["proved"] for k in inside)


def test_output_without_elements(tmp_path):
    """Of two outputs one never has an element; and a kernel without work at sizes of which single kernels are compared."""
    nodes = [helper.make_node("ReduceMean", ["x"], ["m"], "mean", axes=[2], keepdims=0), helper.make_node("Gemm", ["m", "w"], ["y"], "dense"),
             helper.make_node("Concat", ["p", "q"], ["c"], "join", axis=1), helper.make_node("Softmax", ["c"], ["s"], "soft", axis=-1)]
    path = save(tmp_path / "net.onnx", nodes, [value("x", ["n", 64, 8192]), value("p", ["m", 7]), value("q", ["m", 9])],
                [value("y", ["n", 80]), value("s", ["m", 16])], {"w": weights(64, 80)}, opset=17)
    done = mcc("prove", path, "--march=x86-64-v3", "--choose=dense:tile=1x6x2", "--dim=m=0", "--json", timeout=300)
    assert done.returncode == 6, done
    [variant] = json.loads(done.stdout)["result"]["variants"]
    assert not variant["program"]["proved"] and "no elements" in variant["program"]["why"]
    assert not any(k["proved"] for k in variant["kernels"] if "soft" in k["kernel"] or "join" in k["kernel"])


def test_empty(tmp_path):
    """Nothing is proved of sizes at which nothing is computed."""
    [variant] = proof(mlp(tmp_path / "net.onnx"), "--dim=n=0", "--break-kernel=first", status=6)["variants"]
    assert not variant["program"]["proved"] and "no elements" in variant["program"]["why"] and variant["proved"] == 0


@pytest.mark.parametrize("make, node", [(mlp, "first"), (image, "conv1"), (image, "conv2"), (image, "mean")])
def test_broken_kernels(tmp_path, make, node):
    [variant] = proof(make(tmp_path / "net.onnx"), f"--break-kernel={node}", status=6)["variants"]
    assert any(node in k["kernel"] for k in variant["kernels"] if not k["proved"]) and not variant["program"]["proved"]


@pytest.mark.parametrize("make, options, step", [(mlp, [], 47), (image, ["--choose=conv2:winograd=6"], 173), (attention, [SPANS], 53),
                                                 (quantized, [], 41)])
def test_mutants(tmp_path, make, options, step):
    """Statements of kernels and of the program, each changed alone: dropped products and factors, operands and lanes swapped, numbers, roundings,
    indices, bounds and offsets of buffers. Those that are left changed a prefetch, a bound that another one stands behind, the product with what
    is always 0 or what a softmax subtracts: one in six at most."""
    path, left, n = make(tmp_path / "net.onnx"), [], 0
    for site in range(3, 12 * step, step):
        done = mcc("prove", path, ONE, f"--mutate={site}", "-q", *options, timeout=300)
        if done.returncode == 2:
            assert "fewer statements" in done.stderr
            break
        assert done.returncode in (0, 1, 5, 6)
        n += 1
        left += [site] if done.returncode == 0 else []
    assert n > 5 and len(left) * 6 <= n, left


@pytest.mark.parametrize("op, alpha", [("LeakyRelu", 0.1), ("ThresholdedRelu", 2.0)])
def test_thresholds(tmp_path, op, alpha):
    """A comparison with the integer beside the right one shows: what is left is a bound of a loop that another one stands behind."""
    node = helper.make_node(op, ["x"], ["y"], "n", alpha=alpha)
    path, left = save(tmp_path / "net.onnx", [node], [value("x", [1, 4096])], [value("y", [1, 4096])]), []
    assert proof(path)["proved"]
    for site in range(1, 20):
        done = mcc("prove", path, ONE, f"--mutate={site}", "-q")
        if done.returncode == 2:
            break
        left += [site] if done.returncode == 0 else []
    assert 4 < site < 19 and not left, left


def test_break_what_is_not_there(tmp_path):
    """A name that no kernel has breaks nothing, so the proof of that says nothing. A product alone has only multiply-adds to break."""
    done = mcc("prove", mlp(tmp_path / "net.onnx"), ONE, "--break-kernel=nothing", timeout=300)
    assert done.returncode == 2 and "computes a node 'nothing'" in done.stderr
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "mm")]
    path = save(tmp_path / "mm.onnx", nodes, [value("x", [64, 64])], [value("y", [64, 64])], {"w": weights(64, 64)})
    assert not proof(path, "--break-kernel=mm", status=6)["proved"]


@pytest.mark.parametrize("machine", ["off", "only"])
def test_loops_that_run_long(tmp_path, machine):
    """Floats that decide how often a loop runs mean nothing in the field: the run is given up."""
    steps = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["a", "x"], ["b"]), helper.make_node("Identity", ["b"], ["s"])]
    body = helper.make_graph(steps, "body",
                             [value("i", [], 7), value("go", [], 9), value("a", [8])], [value("on", [], 9), value("b", [8]), value("s", [8])])
    nodes = [helper.make_node("Div", ["x1", "tiny"], ["f"]), helper.make_node("Abs", ["f"], ["p"]), helper.make_node("Cast", ["p"], ["n"], to=7),
             helper.make_node("Loop", ["n", "", "x"], ["y", "all"], "loop", body=body)]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [8]), value("x1", [])], [value("y", [8]), value("all", ["k", 8])], {"tiny": np.float32(1e-12)})
    done = mcc("prove", path, ONE, f"--machine={machine}", timeout=100)
    assert done.returncode == 6 and "runs too long on drawn values" in done.stdout, done

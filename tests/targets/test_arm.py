"""AArch64 code under qemu-user: every row of target.def, its dot products, and which rows `open` takes on which CPU.

The statements themselves are held against the loop IR's interpreter, row by row, by tests/codegen (harness.c).
"""
import re

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

import ml_dtypes
from bench import mca
from cases.test_qdq import STATIC, SUBGRAPHS, Subgraph, quantize
from support import mobilenet
from support.artifact import Artifact, ModelError
from support.foreign import Foreign
from support.tool import ROOT, mcc, result, save, value

TABLE = (ROOT / "ir/target/target.def").read_text()
ROWS = re.findall(r'^TARGET\("aarch64", "([^"]*)"', TABLE, re.M)
GRADES = {"": 0, "SIGNED": 1, "WHOLE": 2, "MATRIX": 3}
DOTS = {name: tuple(GRADES[(re.search(rf"\[DOT_{kind}\] = DOT_(\w+)", rest) or [0, ""])[1]] for kind in ("U8", "BF16"))
        for name, rest in re.findall(r'^TARGET\("aarch64", "([^"]*)"((?:.|\n {7})*)\)$', TABLE, re.M)}
# What a row's dot product of bytes is made of, by its grade; of bf16. Matrix forms go by four columns, the last few by the others.
BYTES, HALVES = {0: None, 1: "sdot", 3: "usmmla"}, {0: None, 3: "bfmmla"}
REST = {"usmmla": "usdot", "bfmmla": "bfdot"}
TARGET = "--target=aarch64-linux-gnu"
CPU_MISSING = -6


@pytest.fixture(scope="module")
def machine():
    with Foreign("aarch64") as m:
        yield m


def bytes_of(rng, *shape, signed=False):
    return rng.integers(-128, 128, shape).astype(np.int8) if signed else rng.integers(0, 256, shape).astype(np.uint8)


def products(folder):
    """u8 by i8 in fours, whole and not; the extremes of both are among them."""
    rng = np.random.default_rng(1)
    x, w = bytes_of(rng, 9, 66), bytes_of(rng, 66, 37, signed=True)
    x[0], w[:, 0] = 255, -128
    save(folder / "m.onnx", [helper.make_node("MatMulInteger", ["x", "w"], ["y"])], [value("x", x.shape, T.UINT8)],
         [value("y", [9, 37], T.INT32)], {"w": w})
    return [x], [x.astype(np.int32) @ w.astype(np.int32)]


def convolution(folder):
    rng = np.random.default_rng(2)
    x, w = bytes_of(rng, 1, 24, 9, 9), bytes_of(rng, 20, 24, 3, 3, signed=True)
    padded = np.pad(x.astype(np.int32) - 7, ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = sum(np.einsum("nchw,oc->nohw", padded[:, :, i:i + 9, j:j + 9], w[:, :, i, j].astype(np.int32)) for i in range(3) for j in range(3))
    save(folder / "m.onnx", [helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1] * 4)], [value("x", x.shape, T.UINT8)],
         [value("y", y.shape, T.INT32)], {"w": w, "z": np.array(7, np.uint8)})
    return [x], [y]


def moved_convolution(folder, x_type, x_zero, w_zero):
    """Padded, of both operands less their zero points; None: there is none."""
    rng = np.random.default_rng(5)
    x, w = bytes_of(rng, 1, 18, 7, 7, signed=x_type == np.int8), bytes_of(rng, 20, 18, 3, 3, signed=True)
    zeros = {name: np.array(zero, of) for name, zero, of in (("zx", x_zero, x_type), ("zw", w_zero, np.int8)) if zero is not None}
    padded = np.pad(x.astype(np.int32) - (x_zero or 0), ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = sum(np.einsum("nchw,oc->nohw", padded[:, :, i:i + 7, j:j + 7], w[:, :, i, j].astype(np.int32) - (w_zero or 0))
            for i in range(3) for j in range(3))
    operands = ["x", "w"] + [name if name in zeros else "" for name in ("zx", "zw")]
    save(folder / "m.onnx", [helper.make_node("ConvInteger", operands, ["y"], pads=[1] * 4)],
         [value("x", x.shape, T.INT8 if x_type == np.int8 else T.UINT8)], [value("y", y.shape, T.INT32)], {"w": w, **zeros})
    return [x], y


def halves(folder):
    """Small integers: no order and no rounding shows."""
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-8, 9, s).astype(ml_dtypes.bfloat16) for s in ((7, 33), (33, 45)))
    save(folder / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Cast", ["h"], ["y"], to=T.FLOAT)],
         [value("x", x.shape, T.BFLOAT16)], [value("y", [7, 45])], {"w": w})
    exact = x.astype(np.float32) @ w.astype(np.float32)
    return [x], [exact.astype(ml_dtypes.bfloat16).astype(np.float32)]


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("network, kind", [(products, 0), (convolution, 0), (halves, 1)], ids=["products", "convolution", "halves"])
def test_dots(row, network, kind, machine, tmp_path):
    feeds, wanted = network(tmp_path)
    for more in (["-S", "-o", tmp_path / "m.s"], ["-o", tmp_path / "m.so"]):
        done = mcc(TARGET, f"-march={row}", tmp_path / "m.onnx", *more)
        assert done.returncode == 0, done.stderr
    text, wants = (tmp_path / "m.s").read_text(), (BYTES, HALVES)[kind][DOTS[row][kind]]
    said = {word.replace("sudot", "usdot") for word in re.findall(r"\t(\w+dot|\w+mmla)\t", text)}
    assert said <= {wants, REST.get(wants)} and (wants in said) == bool(wants), said
    for got, want in zip(machine.call(tmp_path / "m.so", feeds), wanted):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("row", ROWS)
def test_sparse_products(row, machine, tmp_path):
    """Groups of bytes from four lines, of whole tiles and what is left."""
    rng = np.random.default_rng(4)
    x, w = bytes_of(rng, 75, 192), bytes_of(rng, 192, 160, signed=True)
    w[rng.random(w.shape) < 0.9] = 0
    save(tmp_path / "m.onnx", [helper.make_node("MatMulInteger", ["x", "w"], ["y"])], [value("x", x.shape, T.UINT8)], [value("y", [75, 160], T.INT32)],
         {"w": w})
    done = mcc(TARGET, f"-march={row}", tmp_path / "m.onnx", "-o", tmp_path / "m.so")
    assert done.returncode == 0 and "segments(" in mcc(TARGET, f"-march={row}", tmp_path / "m.onnx", "-stop-after=sparsify", "-o", "-").stdout
    np.testing.assert_array_equal(machine.call(tmp_path / "m.so", [x])[0], x.astype(np.int32) @ w.astype(np.int32))


@pytest.mark.parametrize("w_zero", [None, -3])
@pytest.mark.parametrize("x_type, x_zero", [(np.uint8, z) for z in (None, 0, 127, 128, 255)] + [(np.int8, z) for z in (None, 0, -128, 5)])
def test_zero_points(x_type, x_zero, w_zero, tmp_path):
    """Products of signed bytes: what the sign bit moves, and what padding is then, on the levels of one artifact that multiply in three ways."""
    feeds, wanted = moved_convolution(tmp_path, x_type, x_zero, w_zero)
    assert mcc(TARGET, tmp_path / "m.onnx", "-o", tmp_path / "m.so").returncode == 0
    for cpu in ("max", "neoverse-n1", "cortex-a57"):
        with Foreign("aarch64", cpu) as machine:
            np.testing.assert_array_equal(machine.call(tmp_path / "m.so", feeds)[0], wanted)


def block_product(folder, bits):
    """Activations as bytes by weights of few bits: integers whose scales are powers of two, so that no rounding shows."""
    rng, per = np.random.default_rng(4), 8 // bits
    x, w = rng.integers(-126, 127, (9, 3, 32)).astype(np.float32), rng.integers(0, 1 << bits, (37, 3, 32))
    zero = rng.integers(0, 1 << bits, (37, -(-3 // per) * per))
    x[:, :, 5], scale = 127, 2. ** rng.integers(-3, 3, (37, 3)).astype(np.float32)
    pack = lambda n: sum(n[..., i::per] << i * bits for i in range(per)).astype(np.uint8)
    save(folder / "m.onnx", [helper.make_node("MatMulNBits", ["x", "w", "s", "z"], ["y"], domain="com.microsoft", K=96, N=37, bits=bits, block_size=32,
                                              accuracy_level=4)],
         [value("x", [9, 96])], [value("y", [9, 37])], {"w": pack(w), "s": scale.reshape(-1), "z": pack(zero).reshape(-1)}, 21)
    return [x.reshape(9, 96)], np.einsum("mbk,nbk,nb->mn", x, w - zero[:, :3, None], scale).astype(np.float32)


@pytest.mark.parametrize("row", ROWS)
def test_products_in_blocks(row, machine, tmp_path):
    feeds, wanted = block_product(tmp_path, 4)
    for more in (["-S", "-o", tmp_path / "m.s"], ["-o", tmp_path / "m.so"]):
        done = mcc(TARGET, f"-march={row}", tmp_path / "m.onnx", *more)
        assert done.returncode == 0, done.stderr
    assert bool(re.search(r"\t(usdot|sudot|sdot)\t", (tmp_path / "m.s").read_text())) == bool(DOTS[row][0])
    np.testing.assert_array_equal(machine.call(tmp_path / "m.so", feeds)[0], wanted)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_blocks_on_all_levels(bits, tmp_path):
    """One artifact: numbers of up to 4 bits are signed bytes as they stand; of those of 8 the sums by ones are added."""
    feeds, wanted = block_product(tmp_path, bits)
    assert mcc(TARGET, tmp_path / "m.onnx", "-o", tmp_path / "m.so").returncode == 0
    assert mcc(TARGET, "-march=neoverse-n1", tmp_path / "m.onnx", "-S", "-o", tmp_path / "m.s").returncode == 0
    code = (tmp_path / "m.s").read_text()
    assert "\tsdot\t" in code and bool(re.search(r"\tmovi\tv\d+\.16b, #1$", code, re.M)) == (bits == 8)
    for cpu in ("max", "neoverse-n1", "cortex-a57"):
        with Foreign("aarch64", cpu) as machine:
            np.testing.assert_array_equal(machine.call(tmp_path / "m.so", feeds)[0], wanted)


def drawn_product(path, rng, kind, m, k, n):
    """bf16 of all sizes: each rounding of the sums shows."""
    x, w = (bytes_of(rng, m, k), bytes_of(rng, k, n, signed=True)) if kind == 0 else (
        rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n)))
    types, op = ((T.UINT8, T.INT32), "MatMulInteger") if kind == 0 else ((T.BFLOAT16, T.BFLOAT16), "MatMul")
    save(path, [helper.make_node(op, ["x", "w"], ["h"]), helper.make_node("Cast", ["h"], ["y"], to=T.FLOAT)],
         [value("x", x.shape, types[0])], [value("y", [m, n])], {"w": w})
    return x


def drawn_convolution(path, rng, kind, ic, oc, tap, stride, pad, size):
    """Between others in f32, so that channels lie in blocks."""
    def f32(*shape):
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "u"], ["a"]), helper.make_node("Conv", ["a", "w"], ["b"], "kernel", pads=[pad] * 4, strides=[stride] * 2),
             helper.make_node("Conv", ["b", "v"], ["y"])]
    constants = {"u": f32(ic, 8, 1, 1), "w": f32(oc, ic, tap, tap), "v": f32(8, oc, 1, 1)}
    if kind == 0:
        for name, scale in (("x", .02), ("a", .02), ("b", .02)):
            constants |= {f"{name}s": np.array(scale, np.float32), f"{name}z": np.array(128, np.uint8)}
        for node, name in zip(nodes, "xab"):
            node.input[0] = f"{name}d"
        nodes = [n for node, name in zip(nodes, "xab") for n in (
            helper.make_node("QuantizeLinear", [name, f"{name}s", f"{name}z"], [f"{name}q"]),
            helper.make_node("DequantizeLinear", [f"{name}q", f"{name}s", f"{name}z"], [f"{name}d"]), node)]
        for name in "uwv":
            w = constants.pop(name)
            constants |= {f"{name}q": (w / np.abs(w).max() * 127).round().astype(np.int8), f"{name}s": np.array(np.abs(w).max() / 127, np.float32)}
            nodes.insert(0, helper.make_node("DequantizeLinear", [f"{name}q", f"{name}s"], [name]))
    y = (size + 2 * pad - tap) // stride + 1
    save(path, nodes, [value("x", [1, 8, size, size])], [value("y", [1, 8, y, y])], constants)
    return rng.standard_normal((1, 8, size, size)).astype(np.float32)


def sums_of_halves(x, w):
    """f16 operands, each product added in f16 and rounded once, 64 steps; f32 sums of those."""
    x, w = (a.astype(np.float16).astype(np.float64) for a in (x, w))
    total = np.zeros((len(x), w.shape[1]), np.float32)
    for first in range(0, x.shape[1], 64):
        part = np.zeros(total.shape, np.float16)
        for k in range(first, min(first + 64, x.shape[1])):
            part = (part.astype(np.float64) + x[:, k, None] * w[k]).astype(np.float16)
        total += part.astype(np.float32)
    return total


@pytest.mark.parametrize("m, k, n", [(1, 64, 96), (2, 128, 5), (4, 65, 2), (5, 100, 45), (8, 192, 64), (13, 67, 30), (29, 256, 23), (17, 2112, 40)])
@pytest.mark.parametrize("rows", ["known", "open"])
def test_sums_of_halves(m, k, n, rows, machine, tmp_path):
    """--precision=f16-sums: 64 steps in f16, to the bit, where the code may ask for FP16 arithmetic; elsewhere what f16 gives."""
    rng = np.random.default_rng(m)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"], "p")], [value("x", [m if rows == "known" else "m", k])],
         [value("y", [m if rows == "known" else "m", n])], {"w": w})

    def made(name, *options, march="cortex-a76"):
        options = [TARGET, f"-march={march}", tmp_path / "m.onnx", *options]
        done = mcc(*options, "-o", tmp_path / f"{name}.so")
        assert done.returncode == 0, done.stderr
        steps = re.findall(r"(?m)^  reduce.\d+.halves +(\d+)", mcc(*options, "-stop-after=schedule", "-o", "-").stdout)
        return machine.call(tmp_path / f"{name}.so", [x])[0], max(steps)
    wide, steps = made("wide", "--precision=f16")
    assert steps == "0"
    got, steps = made("sums", "--precision=f16-sums")
    assert steps == "64"
    np.testing.assert_array_equal(got, sums_of_halves(x, w))
    assert 1e-4 < np.sqrt(np.mean((got - wide) ** 2) / np.mean(wide ** 2)) < 2e-3
    np.testing.assert_array_equal(made("node", "--choose=p:precision=f16-sums")[0], got)
    np.testing.assert_array_equal(made("asked", "--precision=f16-sums", "-mattr=+fullfp16", march="armv8-a")[0], got)
    same, steps = made("plain", "--precision=f16-sums", march="armv8.2-a-dotprod")
    assert steps == "0"
    np.testing.assert_array_equal(same, wide)
    made("all", "--precision=f16-sums", march="all")
    with Foreign("aarch64", "cortex-a57") as older:
        np.testing.assert_array_equal(older.call(tmp_path / "all.so", [x])[0], wide)
        with pytest.raises(ModelError) as refused:
            older.call(tmp_path / "sums.so", [x])
    assert refused.value.code == CPU_MISSING
    np.testing.assert_array_equal(machine.call(tmp_path / "all.so", [x])[0], got)


def convolved_by_halves(x, w, stride, pad):
    """Tap by tap, of each 64 channels at a time: the f32 sum goes through all of them."""
    size = (x.shape[2] + 2 * pad - w.shape[2]) // stride + 1
    x = np.pad(x[0], ((0, 0), (pad, pad), (pad, pad)))
    y = np.zeros((size * size, len(w)), np.float32)
    for i, j in np.ndindex(w.shape[2:]):
        seen = x[:, i:i + stride * size:stride, j:j + stride * size:stride][:, :size, :size].reshape(len(x), -1).T
        for c in range(0, len(x), 64):
            y += sums_of_halves(seen[:, c:c + 64], w[:, c:c + 64, i, j].T)
    return y.T.reshape(1, len(w), size, size)


@pytest.mark.parametrize("ic, oc, tap, stride, pad, groups, size", [
    (64, 32, 1, 1, 0, 1, 7), (96, 40, 1, 1, 0, 1, 5), (130, 24, 1, 2, 0, 1, 9), (48, 32, 3, 2, 1, 1, 11), (80, 24, 3, 1, 1, 1, 6), (32, 16, 5, 1, 2, 1, 8),
    (128, 64, 3, 1, 1, 2, 5), (64, 20, 1, 1, 0, 1, 1), (20, 16, 3, 1, 1, 1, 7)])
def test_convolutions_by_sums_of_halves(ic, oc, tap, stride, pad, groups, size, machine, tmp_path):
    """--precision=f16-sums, to the bit; behind another convolution channels lie in blocks. Few channels are summed in f32, as f16 does; groups are f32."""
    rng = np.random.default_rng(ic)
    x, v = (rng.standard_normal(s).astype(np.float32) for s in ((1, 8, size, size), (ic, 8, 1, 1)))
    w = rng.standard_normal((oc, ic // groups, tap, tap)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "v"], ["m"], "first"),
             helper.make_node("Conv", ["m", "w"], ["y"], "c", strides=[stride] * 2, pads=[pad] * 4, group=groups)]
    out = (size + 2 * pad - tap) // stride + 1
    save(tmp_path / "m.onnx", nodes, [value("x", x.shape)], [value("m", [1, ic, size, size]), value("y", [1, oc, out, out])], {"v": v, "w": w})
    got, steps = {}, {}
    for precision in ("f16", "f16-sums"):
        options = [TARGET, "-march=cortex-a76", "--winograd=off", f"--choose=c:precision={precision}", tmp_path / "m.onnx"]
        done = mcc(*options, "-o", tmp_path / "m.so")
        assert done.returncode == 0, done.stderr
        steps[precision] = max(re.findall(r"(?m)^  reduce.\d+.halves +(\d+)", mcc(*options, "-stop-after=schedule", "-o", "-").stdout))
        m, got[precision] = machine.call(tmp_path / "m.so", [x])
    halves = groups == 1 and ic >= 32
    assert steps == {"f16": "0", "f16-sums": "64" if halves else "0"}
    if not halves:
        np.testing.assert_array_equal(got["f16-sums"], got["f16"])
        return
    np.testing.assert_array_equal(got["f16-sums"], convolved_by_halves(m, w, stride, pad))
    scale = np.sqrt(np.mean(got["f16"] ** 2))
    assert 1e-4 < np.sqrt(np.mean((got["f16-sums"] - got["f16"]) ** 2)) / scale < 2e-3


def test_told_sums_of_halves(machine, tmp_path):
    """A schedule may say fewer steps, or none: then the sums are those of f16's operands in f32; not more than the error is stated for."""
    rng = np.random.default_rng(6)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((8, 192), (192, 64)))
    save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", x.shape)], [value("y", [8, 64])], {"w": w})
    options = [TARGET, "-march=cortex-a76", "--precision=f16-sums", tmp_path / "m.onnx"]
    chosen, got = mcc(*options, "-stop-after=schedule", "-o", "-").stdout, {}
    for steps in (0, 32, 64, 128):
        (tmp_path / "told.txt").write_text(re.sub(r"(?m)^  (reduce.\d+.halves +)64", rf"  \g<1>{steps}", chosen))
        done = mcc(*options, f"--schedules={tmp_path / 'told.txt'}", "-o", tmp_path / "m.so")
        assert (done.returncode == 0) == (steps <= 64), done.stderr
        if steps <= 64:
            got[steps] = machine.call(tmp_path / "m.so", [x])[0]
    np.testing.assert_array_equal(got[64], sums_of_halves(x, w))
    wide = x.astype(np.float16).astype(np.float64) @ w.astype(np.float16).astype(np.float64)
    assert [float(np.abs(got[s] - wide).max()) for s in (0, 32, 64)] == sorted(np.abs(got[s] - wide).max() for s in (0, 32, 64))
    assert np.abs(got[0] - wide).max() < 1e-4


def test_sums_of_halves_of_inputs(machine, tmp_path):
    """Operands that are both inputs, in batches; a bias and a function behind the sums."""
    rng = np.random.default_rng(5)
    x, v = (rng.standard_normal(s).astype(np.float32) for s in ((3, 20, 72), (3, 72, 40)))
    b = rng.standard_normal(40).astype(np.float32)
    save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "v"], ["h"]), helper.make_node("Add", ["h", "b"], ["a"]),
                               helper.make_node("Relu", ["a"], ["y"])],
         [value("x", x.shape), value("v", v.shape)], [value("y", [3, 20, 40])], {"b": b})
    done = mcc(TARGET, "-march=neoverse-v1", tmp_path / "m.onnx", "--precision=f16-sums", "-o", tmp_path / "m.so")
    assert done.returncode == 0, done.stderr
    wanted = np.maximum(np.stack([sums_of_halves(*p) for p in zip(x, v)]) + b, 0)
    np.testing.assert_array_equal(machine.call(tmp_path / "m.so", [x, v])[0], wanted)


MATRICES = [(m, k, n) for m, k, n in [(1, 64, 96), (2, 16, 24), (3, 24, 8), (5, 33, 45), (8, 100, 64), (13, 18, 30), (29, 256, 23)]]
IMAGES = [(16, 24, 1, 1, 0, 9), (24, 20, 3, 1, 1, 8), (40, 32, 3, 2, 1, 11), (18, 48, 5, 1, 2, 7), (64, 36, 3, 1, 0, 6)]


@pytest.mark.parametrize("kind", [0, 1], ids=["bytes", "bf16"])
@pytest.mark.parametrize("draw, shape", [(drawn_product, s) for s in MATRICES] + [(drawn_convolution, s) for s in IMAGES])
def test_matrix_forms(draw, shape, kind, machine, tmp_path):
    """Two rows by two columns give the bits of one row by a vector, tails and single rows and all."""
    x, got = draw(tmp_path / "m.onnx", np.random.default_rng(sum(shape)), kind, *shape), []
    options = [TARGET, "-march=neoverse-v1", tmp_path / "m.onnx", *(["--precision=bf16"] if kind and draw is drawn_convolution else [])]
    done = mcc(*options, "-stop-after=schedule", "-o", "-")
    assert re.search(r"^  reduce.0.matrix +1", done.stdout, re.M), done.stdout + done.stderr
    (tmp_path / "lanes.txt").write_text(re.sub(r"(?m)^  (reduce.\d+.matrix) +1", r"  \1 0", done.stdout))
    for more in ([], [f"--schedules={tmp_path / 'lanes.txt'}"]):
        done = mcc(*options, *more, "-o", tmp_path / f"m{len(got)}.so")
        assert done.returncode == 0, done.stderr
        got.append(machine.call(tmp_path / f"m{len(got)}.so", [x])[0])
    assert (tmp_path / "m0.so").read_bytes() != (tmp_path / "m1.so").read_bytes()
    np.testing.assert_array_equal(got[0], got[1])
    assert np.isfinite(got[0]).all() and np.ptp(got[0]) > 0


@pytest.mark.parametrize("name, core", [(name, core) for name in mca.KERNELS for core in mca.KERNELS[name][2][-2:]])
def test_inner_loops(name, core, tmp_path):
    """Sums stay in registers, and multiply-adds take lanes: nothing in the loop uses the stack or copies a lane."""
    code, steps = mca.inner(name, core, tmp_path)
    assert len(steps) >= 14 and mca.unwanted(code) == ([], []), code


@pytest.mark.parametrize("name, core", [(n, "cortex-a55") for n in mca.KERNELS if n.startswith("f32")] +
                         [("u8 x i8 120x240x256", core) for core in ("cortex-a76", "neoverse-n1", "apple-m1")])
def test_share_of_the_peak(name, core, tmp_path):
    """The core that waits for each load in its turn, and those with products of signed bytes only, reach what is asked of them by LLVM's models."""
    assert mca.measure(name, core, tmp_path)[2] >= mca.CORES[core]


def test_loads_one_by_one(tmp_path):
    """In order, the products of a pair's first register would wait for the second."""
    code, _ = mca.inner("f32 GEMM 120x240x256", "cortex-a55", tmp_path)
    assert re.search(r"\tldr\tq", "\n".join(code)) and not re.search(r"\tldp\tq", "\n".join(code))


@pytest.mark.parametrize("channels, m, dilation", [((16, 24), 2, 1), ((22, 37), 4, 1), ((19, 16), 6, 1), ((16, 24), 4, 3)])
def test_winograd_by_lane(channels, m, dilation, machine, tmp_path):
    """Channels that are lanes of one register, whole vectors of them and not, give the bits that one load each gives."""
    rng, (ic, oc) = np.random.default_rng(m), channels
    w = (rng.standard_normal((oc, ic, 3, 3)) / ic).astype(np.float32)
    save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"], "c", pads=[dilation] * 4, dilations=[dilation] * 2)], [value("x", [2, ic, 21, 18])],
         [value("y", [2, oc, 21, 18])], {"w": w})
    feeds, got = [rng.standard_normal((2, ic, 21, 18)).astype(np.float32)], []
    options = [TARGET, "-march=cortex-a55", f"--choose=c:winograd={m}", tmp_path / "m.onnx"]
    done = mcc(*options, "-stop-after=schedule", "-o", "-")
    assert re.search(r"^schedule k\d+ .*: winograd$", done.stdout, re.M) and re.search(r"^  by_lane +1", done.stdout, re.M), done.stdout
    (tmp_path / "loads.txt").write_text(re.sub(r"(?m)^  by_lane +1", "  by_lane 0", done.stdout))
    for more in ([], [f"--schedules={tmp_path / 'loads.txt'}"]):
        done = mcc(*options, *more, "-o", tmp_path / f"m{len(got)}.so")
        assert done.returncode == 0, done.stderr
        got.append(machine.call(tmp_path / f"m{len(got)}.so", feeds)[0])
    assert (tmp_path / "m0.so").read_bytes() != (tmp_path / "m1.so").read_bytes()
    np.testing.assert_array_equal(got[0], got[1])
    padded = np.pad(feeds[0].astype(np.float64), ((0, 0), (0, 0), (dilation, dilation), (dilation, dilation)))
    at = lambda i, j: padded[:, :, i * dilation:i * dilation + 21, j * dilation:j * dilation + 18]
    wanted = sum(np.einsum("nchw,oc->nohw", at(i, j), w[:, :, i, j]) for i in range(3) for j in range(3))
    assert np.abs(got[0] - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_levels_are_made_of_use(tmp_path):
    """An artifact has the levels whose dot products its network needs, and no row that is named after a core."""
    def variants(network, *options):
        network(tmp_path)
        assert mcc(TARGET, *options, tmp_path / "m.onnx", "-o", tmp_path / "m.so").returncode == 0
        return {variant["cpu"] for variant in result("inspect", tmp_path / "m.so")["bytes"]["variants"]}
    assert variants(products) == variants(products, "--precision=f16-sums") == {"armv8.6-a-i8mm", "armv8.2-a-dotprod", "armv8-a"}
    assert variants(halves) == variants(halves, "--precision=f16-sums") == {"armv8.6-a-i8mm", "armv8-a"}
    sums = variants(lambda folder: mca.product(folder / "m.onnx", 9, 64, 32), "--precision=f16-sums")
    assert sums == {"armv8.2-a-fp16", "armv8-a"}


@pytest.mark.parametrize("cpu, runs", [("cortex-a57", "armv8-a"), ("neoverse-n1", "armv8.2-a-dotprod"), ("max", "armv8.6-a-i8mm")])
def test_open_asks_the_cpu(cpu, runs, tmp_path):
    """A CPU runs the levels up to its own, and refuses those beyond; an artifact with all of them runs everywhere."""
    feeds, wanted = products(tmp_path)
    levels = ["armv8-a", "armv8.2-a-dotprod", "armv8.6-a-i8mm"]
    with Foreign("aarch64", cpu) as machine:
        for level in [*levels, None]:
            flags = [f"-march={level}"] if level else []
            assert mcc(TARGET, *flags, tmp_path / "m.onnx", "-o", tmp_path / "m.so").returncode == 0
            if level and levels.index(level) > levels.index(runs):
                with pytest.raises(ModelError) as refused:
                    machine.call(tmp_path / "m.so", feeds)
                assert refused.value.code == CPU_MISSING, refused.value
            else:
                np.testing.assert_array_equal(machine.call(tmp_path / "m.so", feeds)[0], wanted[0])


@pytest.mark.parametrize("row", ["armv8-a", "armv8.6-a-i8mm", "cortex-a55", "neoverse-v1"])
def test_mobilenet(row, machine, tmp_path):
    """mobilenet_v3_small at its full size, within what another order of the sums may change."""
    nodes, constants = mobilenet.Network("small").build()
    save(tmp_path / "m.onnx", nodes, [value("x", [1, 3, 224, 224])], [value("y", [1, 1000])], constants, opset=20)
    assert mcc(TARGET, f"-march={row}", tmp_path / "m.onnx", "-o", tmp_path / "m.so").returncode == 0
    assert mcc("-march=native", tmp_path / "m.onnx", "-o", tmp_path / "native.so").returncode == 0
    feeds = [np.random.default_rng(4).standard_normal((1, 3, 224, 224)).astype(np.float32)]
    with Artifact(tmp_path / "native.so") as native:
        wanted = native.call(feeds)[0]
    got = machine.call(tmp_path / "m.so", feeds)[0]
    assert np.abs(got - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("seed", range(6))
def test_drawn_networks_in_bytes(seed, machine, tmp_path):
    """QDQ networks drawn as in tests/cases/test_qdq.py, both levels of one artifact: the panels of one are read by the other."""
    rng = np.random.default_rng(4000 + seed)
    drawn = [Subgraph(rng, f"g{i}_") for i in range(SUBGRAPHS)]
    source = save(tmp_path / "float.onnx", [n for g in drawn for n in g.nodes], [g.input for g in drawn], [g.output for g in drawn],
                  {k: a for g in drawn for k, a in g.constants.items()}, opset=17)
    path = quantize(source, STATIC[seed % len(STATIC)], tmp_path / "quantized.onnx")
    for name, options in {"arm": [TARGET, "--variants=armv8.6-a-i8mm,armv8.2-a-dotprod"], "native": ["-march=native"]}.items():
        assert mcc("-q", "-j1", *options, path, "-o", tmp_path / f"{name}.so").returncode == 0
    feeds = [rng.standard_normal([d.dim_value for d in g.input.type.tensor_type.shape.dim]).astype(np.float32) for g in drawn]
    with Artifact(tmp_path / "native.so") as native:
        wanted = native.run(feeds)
    with Foreign("aarch64", "neoverse-n1") as lesser:
        for got in (machine.call(tmp_path / "arm.so", feeds), lesser.call(tmp_path / "arm.so", feeds)):
            for g, w in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("row", ["armv8-a", "armv8.2-a-dotprod", "armv8.6-a-i8mm"])
def test_mobilenet_in_bytes(row, machine, tmp_path):
    """The same network after `mcc quantize`: sums of bytes are exact, so each dot product gives what this machine's give."""
    nodes, constants = mobilenet.Network("small").build()
    save(tmp_path / "m.onnx", nodes, [value("x", [1, 3, 224, 224])], [value("y", [1, 1000])], constants, opset=20)
    x = np.random.default_rng(4).standard_normal((1, 3, 224, 224)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    done = mcc("quantize", tmp_path / "m.onnx", "--sample", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "q.onnx")
    assert done.returncode == 0 and "60 of 60 nodes on bytes" in done.stdout, done.stdout + done.stderr
    assert mcc(TARGET, f"-march={row}", tmp_path / "q.onnx", "-o", tmp_path / "q.so").returncode == 0
    assert mcc("-march=native", tmp_path / "q.onnx", "-o", tmp_path / "native.so").returncode == 0
    with Artifact(tmp_path / "native.so") as native:
        wanted = native.call([x])[0]
    assert np.abs(wanted).max() > 0.1
    # Rows may multiply by the reciprocal of a scale: one element of conv55 is -63.4999964 steps, in f32 -63.499996 or -63.5, so it
    # rounds to another byte, and all after it differ by a step or two. Products alone are compared bit for bit above.
    np.testing.assert_allclose(machine.call(tmp_path / "q.so", [x])[0], wanted, rtol=0, atol=0.01 * np.abs(wanted).max())

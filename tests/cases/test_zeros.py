"""Weights that are mostly zeros: their other elements alone are stored and multiplied, and results are those of dense kernels."""
import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from support.compare import Model, floats, node
from support.tool import mcc, value

MOST_BYTES = 0.5   # of the dense artifact


def pruned(*shape, keep=0.1, seed=1):
    w = floats(*shape, seed=seed)
    return np.where(np.random.default_rng(seed).random(shape) < keep, w, 0).astype(np.float32)


def is_sparse(model, *flags):
    return "segments(" in model.dump("sparsify", *flags)


def kernels_of(model, *flags):
    """The operators of each kernel that computes."""
    text = model.dump("fuse", *flags)
    op_of = dict(re.findall(r"^ *(%\d+).*? = (\w+)\(", text, re.M))
    return [{op_of[v] for v in line.split("computes ")[1].split()} for line in text.splitlines() if line.startswith("kernel") and "computes" in line]


CONVOLUTIONS = {
    "pointwise": ((1, 1), (20, 13), {}), "3x3": ((3, 3), (14, 15), {"pads": [1] * 4}), "unpadded": ((3, 2), (12, 11), {}),
    "strided": ((3, 3), (15, 16), {"pads": [1] * 4, "strides": [2, 2]}), "1x1 strided": ((1, 1), (14, 13), {"strides": [2, 3]}),
    "dilated": ((3, 3), (17, 18), {"pads": [2] * 4, "dilations": [2, 2]}), "uneven": ((5, 3), (16, 14), {"pads": [3, 0, 1, 2], "strides": [3, 1]}),
    "line": ((5,), (70,), {"pads": [2, 2]}), "volume": ((2, 3, 3), (5, 7, 6), {"pads": [0, 1, 1, 1, 1, 1]}),
    "cut": ((1, 1), (15, 15), {"strides": [4, 2]}), "dilated, strided": ((3, 3), (18, 17), {"pads": [3] * 4, "dilations": [3, 3], "strides": [2, 2]}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("images", [1, 3])
def test_convolutions(tmp_path, name, images):
    kernel, size, attrs = CONVOLUTIONS[name]
    model = Model(tmp_path, [node("Conv", "x w b", "c", "c", **attrs), node("Relu", "c", "y")], [value("x", ["n", 48, *size])],
                  [value("y", ["n", 96, *["d"] * len(size)])], {"w": pruned(96, 48, *kernel, keep=0.08), "b": floats(96, seed=2)})
    assert is_sparse(model) and not is_sparse(model, "--sparse=off")
    x = floats(images, 48, *size, seed=3)
    for cpu in ("x86-64-v2", "x86-64-v3", "native"):
        model.compare([x], flags=[f"-march={cpu}"])


@pytest.mark.parametrize("op, transposed", [("MatMul", 0), ("Gemm", 0), ("Gemm", 1)])
@pytest.mark.parametrize("rows", [32, 50, 129])
def test_products(tmp_path, op, transposed, rows):
    attrs = {"transB": transposed} if transposed else {}
    shape = (72, 96) if transposed else (96, 72)
    model = Model(tmp_path, [node(op, "x w", "p", "p", **attrs), node("Tanh", "p", "y")], [value("x", ["n", 96])], [value("y", ["n", 72])],
                  {"w": pruned(*shape)})
    assert is_sparse(model)
    model.compare([floats(rows, 96, seed=2)])
    for few in (0, 1, 3):
        model.compare([floats(few, 96, seed=2)]) if few else model.run([floats(0, 96, seed=2)])


def test_epilogues(tmp_path):
    """What follows sums goes into their kernel where it stores them row by row: not into blocks of channels, which MaxPool reads."""
    nodes = [node("Conv", "x w b", "c"), node("Add", "c x", "d"), node("Relu", "d", "e"), node("Conv", "e v", "f"), node("Relu", "f", "g"),
             node("MaxPool", "g", "y", kernel_shape=[2, 2])]
    model = Model(tmp_path, nodes, [value("x", [1, 96, 9, 11])], [value("y", None)],
                  {"w": pruned(96, 96, 1, 1), "b": floats(96, seed=2), "v": pruned(96, 96, 1, 1, seed=3)})
    kernels = kernels_of(model, "-march=x86-64-v3")
    sums = [k for k in kernels if "segments" in k]
    assert len(sums) == 2 and sorted({"add", "max"} <= k for k in sums) == [False, True], kernels
    x = floats(1, 96, 9, 11, seed=4)
    for cpu in ("x86-64-v2", "x86-64-v3", "native"):
        model.compare([x], flags=[f"-march={cpu}"])


def inverted_residuals(strides, keep=0.15):
    """Nodes and weights: blocks of an expansion, a depthwise convolution of this stride and a projection, with a shortcut where shapes agree."""
    nodes, weights, x, wide = [], {}, "x", 24

    def conv(x, shape, clip, **attrs):
        name = f"v{len(weights)}"
        weights[name] = pruned(*shape, keep=keep, seed=len(weights) + 1)
        weights[name + "b"] = floats(shape[0], seed=len(weights) + 1)
        nodes.append(node("Conv", f"{x} {name} {name}b", name + "c", **attrs))
        if clip:
            nodes.append(node("Relu", name + "c", name + "y"))
        return name + ("y" if clip else "c")
    for s in strides:
        v = conv(x, (96, wide, 1, 1), True)
        v = conv(v, (96, 1, 3, 3), True, group=96, pads=[1] * 4, strides=[s, s])
        v = conv(v, (wide, 96, 1, 1), False)
        if s == 1:
            nodes.append(node("Add", f"{x} {v}", v + "s"))
            v += "s"
        x = v
    nodes.append(node("GlobalAveragePool", x, "y"))
    return nodes, weights, wide


@pytest.mark.parametrize("images", [1, "n"])
def test_lines(tmp_path, images):
    """Results of convolutions with taps keep gaps after rows, so maps and products after them are in the kernels of the sums, depthwise ones too."""
    nodes, weights, wide = inverted_residuals((1, 2, 1))
    model = Model(tmp_path, nodes, [value("x", [images, wide, 28, 36])], [value("y", None)], weights)
    kernels = kernels_of(model, "-march=x86-64-v3")
    sums = [k for k in kernels if "segments" in k]
    assert len(sums) == 9 and not any("conv" in k for k in kernels)
    # The sums that are padded or averaged next go into the kernels of these.
    assert sum("add" in k for k in sums) == 7 and sum("max" in k for k in sums) == 6, sums
    for n in (1, 3) if images == "n" else (1,):
        for cpu in ("x86-64-v2", "x86-64-v3", "native"):
            model.compare([floats(n, wide, 28, 36, seed=4)], flags=[f"-march={cpu}"])


@pytest.mark.parametrize("size, stride", [((15, 14), 2), ((7, 7), 1), ((9, 20), 1)])
def test_shortcuts_of_other_rows(tmp_path, size, stride):
    """A shortcut by a product of one tap has no gaps, or those of another convolution: it is computed with those of what it is added to."""
    nodes = [node("Conv", "x a", "p"), node("Relu", "p", "q"), node("Conv", "q b", "r", pads=[1] * 4, strides=[stride] * 2), node("Relu", "r", "s"),
             node("Conv", "s c", "t"), node("Conv", "x d", "u", strides=[stride] * 2), node("Add", "t u", "v"), node("Relu", "v", "w"),
             node("Conv", "w e", "z", pads=[2] * 4), node("Conv", "w f", "k"), node("Add", "z k", "y")]
    weights = {"a": pruned(48, 64, 1, 1), "b": pruned(48, 48, 3, 3, seed=2), "c": pruned(64, 48, 1, 1, seed=3), "d": pruned(64, 64, 1, 1, seed=4),
               "e": pruned(48, 64, 5, 5, seed=5), "f": pruned(48, 64, 1, 1, seed=6)}
    model = Model(tmp_path, nodes, [value("x", ["n", 64, *size])], [value("y", None)], weights)
    assert len([k for k in kernels_of(model) if "segments" in k]) == 6
    for cpu in ("x86-64-v2", "x86-64-v3", "native"):
        model.compare([floats(2, 64, *size, seed=7)], flags=[f"-march={cpu}"], atol=5e-3)    # of numbers around 100


@pytest.mark.parametrize("group", [2, 8, 48])
@pytest.mark.parametrize("stride", [1, 2])
def test_groups(tmp_path, group, stride):
    model = Model(tmp_path, [node("Conv", "x a", "p"), node("Relu", "p", "q"), node("Conv", "q b", "y", pads=[1] * 4, group=group, strides=[stride] * 2)],
                  [value("x", ["n", 32, 30, 27])], [value("y", None)],
                  {"a": pruned(48, 32, 1, 1), "b": pruned(96, 48 // group, 3, 3, seed=2)})
    assert len([k for k in kernels_of(model) if "segments" in k]) == 2
    for cpu in ("x86-64-v2", "x86-64-v3", "native"):
        model.compare([floats(2, 32, 30, 27, seed=3)], flags=[f"-march={cpu}"])


def test_gaps_are_not_read(tmp_path):
    """What lies between rows of points never gets into a result: infinities in the last column reach their neighbours alone."""
    weights = {"a": pruned(48, 48, 3, 3), "b": pruned(48, 48, 3, 3, seed=2)}
    model = Model(tmp_path, [node("Conv", "x a", "p", pads=[1] * 4), node("Relu", "p", "q"), node("Conv", "q b", "y", pads=[1] * 4)],
                  [value("x", [1, 48, 10, 13])], [value("y", None)], weights)
    x = np.zeros((1, 48, 10, 13), np.float32)
    x[..., -1] = 3e38
    got, = model.run([x], "-march=native")
    assert np.isinf(got).any() or np.isnan(got).any()
    assert np.array_equal(got[..., :8], np.zeros_like(got[..., :8]))


def test_gaps_of_large_maps(tmp_path):
    """What clears the gaps of a line is a constant of a byte for each point: lines that take more than the sparse weights save are copied."""
    nodes = [node("Conv", "x a", "p", pads=[1] * 4), node("Relu", "p", "q"), node("Conv", "q b", "y", pads=[1] * 4)]
    for size, least, most in ((64, 64 * 64, 1 << 14), (300, 0, 1 << 12), (2000, 0, 1 << 12)):
        weights = {"a": pruned(16, 8, 3, 3, keep=0.05), "b": pruned(16, 16, 3, 3, keep=0.05)}
        model = Model(tmp_path, nodes, [value("x", [1, 8, size, size])], [value("y", None)], weights)
        text = model.dump("sparsify")
        assert text.count("segments(") == 2
        assert least <= max(int(n) for n in re.findall(r"bool\[(\d+)\]", text) or [0]) < most


def test_single_rows(tmp_path):
    """Columns of one row are as long as the longest; what others lack is a zero, not an element of the row."""
    w = pruned(320, 200)
    w[:, 7] = 0
    model = Model(tmp_path, [node("MatMul", "x w", "p"), node("Add", "p b", "y")], [value("x", [1, 320])], [value("y", [1, 200])],
                  {"w": w, "b": floats(200, seed=2)})
    assert "gather(" in model.dump("sparsify") and "dot(" not in model.dump("sparsify")
    x = floats(1, 320, seed=3)
    for cpu in ("x86-64-v2", "x86-64-v3", "native"):
        model.compare([x], flags=[f"-march={cpu}"])
    x[0, 5] = np.inf
    got, = model.run([x], "-march=native")
    assert np.array_equal(np.isfinite(got[0]), w[5] == 0)


def test_products_of_three_dims_and_empty_rows(tmp_path):
    w = pruned(64, 80)
    w[:, 5:9] = 0
    model = Model(tmp_path, [node("MatMul", "x w", "y")], [value("x", ["b", "n", 64])], [value("y", ["b", "n", 80])], {"w": w})
    assert is_sparse(model)
    for b, n in ((1, 40), (3, 17), (2, 64)):
        got = model.compare([floats(b, n, 64, seed=2)])
    assert got is None or not np.any(got[0][..., 5:9])


def test_what_stays_dense(tmp_path):
    """Weights with too many elements, none at all, few rows, taps of channels that blocks hold: as before."""
    for w, rows in ((pruned(96, 96, keep=0.5), 64), (np.zeros((96, 96), np.float32), 64), (pruned(96, 96), 4), (pruned(8, 8), 64)):
        model = Model(tmp_path, [node("MatMul", "x w", "y")], [value("x", [rows, len(w)])], [value("y", [rows, len(w)])], {"w": w})
        assert not is_sparse(model)
        model.compare([floats(rows, len(w), seed=2)])
    model = Model(tmp_path, [node("Conv", "x w", "y", group=64, pads=[1] * 4)], [value("x", [1, 64, 8, 8])], [value("y", [1, 64, 8, 8])],
                  {"w": pruned(64, 1, 3, 3)})
    assert not is_sparse(model)


def test_bytes_threads_and_other_cpus(tmp_path):
    model = Model(tmp_path, [node("MatMul", "x w", "y")], [value("x", [64, 512])], [value("y", [64, 512])], {"w": pruned(512, 512)})
    sparse, dense = (model.compile(*flags).stat().st_size for flags in (["-march=x86-64-v3"], ["-march=x86-64-v3", "--sparse=off"]))
    assert sparse < MOST_BYTES * dense
    x = floats(64, 512, seed=2)
    want = model.run([x], "-march=x86-64-v3")[0]
    np.testing.assert_allclose(model.run([x], "-march=x86-64-v3", "--sparse=off")[0], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("flag", ["--precision=bf16", "--weights-type=i8", "--choose=p:weights=f16", "--choose=p:precision=f16"])
def test_other_arithmetic_that_is_asked_for(tmp_path, flag):
    """It is had, with --strict for one row as for many."""
    w, x = pruned(96, 72), floats(64, 96, seed=2)

    def model(rows):
        return Model(tmp_path, [node("MatMul", "x w", "p", "p"), node("Tanh", "p", "y")], [value("x", [rows, 96])], [value("y", [rows, 72])], {"w": w})
    many = model(64)
    assert is_sparse(many) and is_sparse(many, "--choose=p:precision=f32") and not is_sparse(many, flag)
    want = many.run([x], "--strict", "-march=native", flag)[0]
    assert np.array_equal(model(1).run([x[5:6]], "--strict", "-march=native", flag)[0], want[5:6])


def test_diff_of_large_images(tmp_path):
    """The interpreter reads overlapping parts of a line in place: all of them together would be 24 GB."""
    model = Model(tmp_path, [node("Conv", "x w", "y", pads=[1] * 4)], [value("x", [1, 48, 112, 112])], [value("y", [1, 32, 112, 112])],
                  {"w": pruned(32, 48, 3, 3, keep=0.03)})
    assert is_sparse(model)
    done = mcc("diff", model.path, "-march=native")
    assert done.returncode == 0, done.stderr


LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "native")


def drawn_bytes(*shape, dtype, seed):
    return np.random.default_rng(seed).integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)


def pruned_bytes(*shape, dtype, zero=0):
    return np.where(np.random.default_rng(2).random(shape) < 0.1, drawn_bytes(*shape, dtype=dtype, seed=1), dtype(zero))


def same_bits(model, x, dtype):
    """Results are those of dense products of bytes, to the bit; sums are exact."""
    assert is_sparse(model, "-march=x86-64-v3")
    for level in LEVELS:
        got, = model.run([x], f"-march={level}")
        assert got.dtype == dtype and np.array_equal(got, model.run([x], f"-march={level}", "--sparse=off")[0]), level
    return got


@pytest.mark.parametrize("operand", [np.uint8, np.int8])
@pytest.mark.parametrize("weights, zero", [(np.int8, 0), (np.uint8, 128)])
def test_products_of_bytes(tmp_path, operand, weights, zero):
    w = pruned_bytes(192, 160, dtype=weights, zero=zero)
    w[:, 9] = zero
    model = Model(tmp_path, [node("MatMulInteger", "x w zero zw", "y")], [value("x", ["n", 192], helper.np_dtype_to_tensor_dtype(np.dtype(operand)))],
                  [value("y", ["n", 160], TensorProto.INT32)], {"w": w, "zero": operand(3), "zw": weights(zero)})
    for rows in (0, 1, 15, 64, 131):
        x = drawn_bytes(rows, 192, dtype=operand, seed=rows)
        got = same_bits(model, x, np.int32)
        assert np.array_equal(got, (x.astype(np.int32) - 3) @ (w.astype(np.int32) - zero))


@pytest.mark.parametrize("images", [1, 2, "n"])
@pytest.mark.parametrize("stride", [1, 2])
def test_pointwise_convolutions_of_bytes(tmp_path, images, stride):
    scales = {"s": np.float32(0.02), "z": np.uint8(118), "sw": np.float32([0.01]), "zw": np.int8([0]), "sy": np.float32(0.3), "zy": np.uint8(131)}
    model = Model(tmp_path, [node("QLinearConv", "x s z w sw zw sy zy", "y", strides=[stride] * 2)], [value("x", [images, 192, 20, 13], TensorProto.UINT8)],
                  [value("y", None, TensorProto.UINT8)], scales | {"w": pruned_bytes(160, 192, 1, 1, dtype=np.int8)})
    same_bits(model, drawn_bytes(3 if images == "n" else images, 192, 20, 13, dtype=np.uint8, seed=3), np.uint8)


def test_bytes_stay_dense_for_tiles(tmp_path):
    """Tile registers multiply dense bytes faster."""
    model = Model(tmp_path, [node("MatMulInteger", "x w", "y")], [value("x", [128, 192], TensorProto.UINT8)], [value("y", [128, 160], TensorProto.INT32)],
                  {"w": pruned_bytes(192, 160, dtype=np.int8)})
    assert is_sparse(model, "-march=x86-64-v4-vnni") and not is_sparse(model, "-march=x86-64-v4-amx")


def test_variants_of_bytes(tmp_path):
    """The standard artifact has a variant whose instructions multiply groups, though segments are the kernel's anchor."""
    model = Model(tmp_path, [node("MatMulInteger", "x w", "y")], [value("x", [128, 192], TensorProto.UINT8)], [value("y", [128, 160], TensorProto.INT32)],
                  {"w": pruned_bytes(192, 160, dtype=np.int8)})
    target = "--target=x86_64-linux"
    assert is_sparse(model, target)
    done = mcc(model.path, target, "-o", tmp_path / "all.so")
    assert done.returncode == 0, done.stderr
    assert "x86-64-v4-vnni" in mcc("inspect", tmp_path / "all.so").stdout


@pytest.mark.parametrize("target", ["thumbv7em", "thumbv8.1m.main+mve"])
def test_bytes_stay_dense_on_microcontrollers(tmp_path, target):
    """They have no memory for copies of operands and results."""
    model = Model(tmp_path, [node("MatMulInteger", "x w", "y")], [value("x", [64, 256], TensorProto.INT8)], [value("y", [64, 256], TensorProto.INT32)],
                  {"w": pruned_bytes(256, 256, dtype=np.int8)})
    assert is_sparse(model, "-march=x86-64-v3") and not is_sparse(model, f"--target={target}")

"""com.microsoft MatMulNBits and GatherBlockQuantized: weights of 2, 4 and 8 bits in blocks, beside ONNX Runtime."""
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from support.compare import Model, floats, interpreted
from support.contrib import contrib
from support.tool import mcc, result, save, value

F = np.float32


def model(folder, op, feeds, constants, **attributes):
    return contrib(folder, op, feeds, constants=constants, symbolic="inner", standard=21, **attributes)[0]


def near(want, got, scale=1e-5):
    assert want.shape == got.shape and want.dtype == got.dtype, (want.shape, got.shape)
    far = np.abs(want.astype(F) - got.astype(F)).max(initial=0) / max(np.abs(want.astype(F)).max(initial=0), 1e-30)
    assert far < scale, far


def weights(rng, bits, n, k, block, zeros, dtype=F):
    count = -(-k // block)
    return {"b": rng.integers(0, 256, (n, count, block * bits // 8), np.uint8), "s": rng.uniform(0.1, 1, (n, count)).astype(dtype),
            "z": {"packed": rng.integers(0, 256, (n, -(-count * bits // 8)), np.uint8), "floats": rng.uniform(0, 2**bits, (n, count)).astype(dtype),
                  None: None}[zeros]}


# ---- MatMulNBits

@pytest.mark.parametrize("bits, zeros", [(b, z) for b in (2, 4, 8) for z in (None, "packed", "floats")][:-1])    # of 8 bits without floats there
@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("level", [1, 4])
def test_products(tmp_path, bits, block, zeros, level):
    """Whole and broken last blocks, odd numbers of blocks; rows of several ranks; with and without bias; activations as they are and as bytes."""
    rng = np.random.default_rng(bits * block)
    far = 3e-2 if level == 4 and (bits == 2 or zeros == "floats") else 1e-5    # there ONNX Runtime leaves the activations as they are
    for n, k, bias, rank in [(8, 2 * block, True, 2), (17, 3 * block - 8, False, 3)]:
        w = weights(rng, bits, n, k, block, zeros)
        feeds = {"a": floats(*(2, 3, 5)[3 - rank + 1:], k), **w, "g": None, "bias": floats(n) if bias else None}
        net = model(tmp_path, "MatMulNBits", feeds, [x for x in ("b", "s", "z", "bias") if feeds[x] is not None], K=k, N=n, bits=bits, block_size=block,
                    accuracy_level=level)
        for rows in (1, 4):
            a = floats(*(2, rows)[3 - rank:], k, seed=rows)
            near(net.want([a])[0], net.run([a], "-O2")[0], far)


def test_accuracy_level(tmp_path):
    """Level 4 takes the activations as bytes: rows of zeros and of one large number too, alike on all variants, and what the reference interpreter says."""
    rng = np.random.default_rng(1)
    w = weights(rng, 4, 72, 256, 32, "packed")
    net = model(tmp_path, "MatMulNBits", {"a": floats(2, 256), **w}, ["b", "s", "z"], K=256, N=72, bits=4, block_size=32, accuracy_level=4)
    a = floats(5, 256)
    a[1] = 0
    a[2, 7] = 1e30
    a[3] = np.eye(256, dtype=F)[9] * 1e-30
    want = net.want([a])[0]
    for flags in [("-O0",), *(("-O2", f"--march=x86-64-{v}") for v in ("v2", "v3", "v4"))]:
        got = net.run([a], *flags)[0]
        for row in range(len(a)):
            near(want[row], got[row], 1e-6)
    assert interpreted(net, [a]).returncode == 0
    near(want, np.load(next((net.folder / "eval").glob("*.npy"))))


def test_many_dims(tmp_path):
    """Rows of so many dims that none is left for blocks stay f32."""
    w = weights(np.random.default_rng(6), 4, 8, 32, 16, None)
    for rank in (5, 29, 30):
        (tmp_path / str(rank)).mkdir()
        net = model(tmp_path / str(rank), "MatMulNBits", {"a": floats(*[1] * (rank - 2), 3, 32), **w}, ["b", "s"], K=32, N=8, bits=4, block_size=16,
                    accuracy_level=4)
        a = floats(*[1] * (rank - 2), 2, 32)
        near(net.want([a])[0], net.run([a], "-O2")[0], 3e-2)


def test_precision(tmp_path):
    """--precision=int8 does what level 4 allows, exact takes it back, and both say how far bytes are from f32."""
    w = weights(np.random.default_rng(5), 4, 48, 128, 32, "packed")
    net = [model(tmp_path, "MatMulNBits", {"a": floats(2, 128), **w}, ["b", "s", "z"], K=128, N=48, bits=4, block_size=32, accuracy_level=level)
           for level in (0, 4)]
    a = floats(3, 128)
    got = [[n.run([a], *flags)[0] for n in net] for flags in ((), ("--precision=int8",), ("--precision=exact",))]
    assert (got[1][0] == got[0][1]).all() and (got[1][1] == got[0][1]).all() and (got[0][1] != got[0][0]).any()
    assert (got[2][0] == got[0][0]).all() and (got[2][1] == got[0][0]).all()
    for n, flags in ((net[0], ["--precision=int8"]), (net[1], [])):
        (far,) = result("diff", n.path, "--against-f32", "-march=native", *flags)["outputs"]
        assert 1e-4 < far["rms"] < 3e-2 and 1e-4 < far["most"] < 3e-2, far


def test_slices_of_products(tmp_path):
    """The last row of a product in bytes is the product of the last row."""
    w = weights(np.random.default_rng(2), 4, 4096, 64, 32, "packed")
    nodes = [helper.make_node("MatMulNBits", ["a", "b", "s", "z"], ["y"], domain="com.microsoft", K=64, N=4096, bits=4, block_size=32, accuracy_level=4),
             helper.make_node("Slice", ["y", "from", "to", "axis"], ["last"])]
    more = {"from": np.array([-1]), "to": np.array([1 << 30]), "axis": np.array([0])}
    save(tmp_path / "s.onnx", nodes, [value("a", [200, 64])], [value("last", [1, 4096])], {**w, **more}, 21)
    net, a = Model(tmp_path, path=tmp_path / "s.onnx"), floats(200, 64)
    near(net.want([a])[0], net.run([a], "-O2")[0])
    mcc(tmp_path / "s.onnx", "-o", tmp_path / "s.mcir", "-stop-after=hoist-slices")
    assert re.search(r"f32\[1, 4096\] = dot", (tmp_path / "s.mcir").read_text())


@pytest.mark.parametrize("bits, zeros", [(4, None), (4, "packed"), (8, "packed"), (2, None)])
def test_what_registers_hold(tmp_path, bits, zeros):
    """Rows of the unit matrix: each weight comes out as (q - zero) * scale rounded once, bit by bit, in one row and in many."""
    rng = np.random.default_rng(bits)
    n, k, block = 40, 72, 16
    w = weights(rng, bits, n, k, block, zeros)
    numbers = lambda x, count: (x[..., None] >> np.arange(0, 8, bits, np.uint8) & (1 << bits) - 1).reshape(n, -1)[:, :count].astype(F)
    zero = numbers(w["z"], w["s"].shape[1]) if zeros else np.full(w["s"].shape, 1 << bits - 1, F)
    spread = lambda x: np.repeat(x, block, 1)[:, :k]
    want = ((numbers(w["b"], k) - spread(zero)) * spread(w["s"])).T
    feeds = {"a": np.eye(k, dtype=F), **{x: v for x, v in w.items() if v is not None}}
    net = model(tmp_path, "MatMulNBits", feeds, [x for x in w if w[x] is not None], K=k, N=n, bits=bits, block_size=block)
    for level in ("v2", "v3", "v4"):
        for rows in (slice(0, k), slice(5, 6)):
            assert (net.run([feeds["a"][rows]], "-O2", f"--march=x86-64-{level}")[0] == want[rows]).all()


def weights_out(path):
    """Bytes of weights in the artifact of a network."""
    return result("inspect", path)["weights_bytes"]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_products_stay_packed(tmp_path, bits):
    rng = np.random.default_rng(6)
    w = weights(rng, bits, 512, 512, 32, "packed")
    net = model(tmp_path, "MatMulNBits", {"a": floats(2, 512), **w}, ["b", "s", "z"], K=512, N=512, bits=bits, block_size=32)
    assert weights_out(net.path) <= sum(x.nbytes for x in w.values())


@pytest.mark.parametrize("scales, size", [("bf16", 2), ("f16", 2), ("f32", 4), ("small", 4), ("large", 4)])
def test_scales_that_16_bits_hold(tmp_path, scales, size):
    """Scales of a file's f32 are stored in 16 bits if bf16 or f16 holds all of them exactly, and only then: one that f16 has not, or has as a
    subnormal number, keeps all."""
    rng = np.random.default_rng(4)
    w = weights(rng, 4, 160, 256, 32, None)
    w["s"] = ((w["s"].view(np.uint32) & 0xffff0000).view(F) if scales == "bf16" else w["s"] if scales == "f32" else w["s"].astype(np.float16).astype(F))
    w["s"][5, 3] = {"small": 2**-15 * 1.00390625 + 2**-24, "large": 65536 * 1.001953125}.get(scales, w["s"][5, 3])
    net = model(tmp_path, "MatMulNBits", {"a": floats(2, 256), **{k: x for k, x in w.items() if x is not None}}, ["b", "s"], K=256, N=160, bits=4,
                block_size=32, accuracy_level=4)
    a = floats(3, 256)
    want = net.want([a])[0]
    for flags in [("-O0",), *(("-O2", f"--march=x86-64-{v}") for v in ("v2", "v3", "v4"))]:
        near(want, net.run([a], *flags)[0], 1e-6)
    expected = w["b"].nbytes + w["s"].size * size
    assert expected <= weights_out(net.path) < expected + 128


def test_halves(tmp_path):
    rng = np.random.default_rng(2)
    w = weights(rng, 4, 24, 64, 32, "packed", np.float16)
    net = model(tmp_path, "MatMulNBits", {"a": floats(2, 64).astype(np.float16), **w}, ["b", "s", "z"], K=64, N=24, bits=4, block_size=32)
    a = floats(3, 64).astype(np.float16)
    near(net.want([a])[0], net.run([a], "-O2")[0], 2e-3)


def test_weights_that_the_run_gives(tmp_path):
    """Nothing asks for constants."""
    rng = np.random.default_rng(3)
    w = weights(rng, 4, 8, 40, 16, "packed")
    net, a = model(tmp_path, "MatMulNBits", {"a": floats(2, 40), **w}, [], K=40, N=8, bits=4, block_size=16), floats(3, 40)
    near(net.want([a, *w.values()])[0], net.run([a, *w.values()], "-O2")[0])


@pytest.mark.parametrize("more, attributes, text", [({"g": np.zeros(32, np.int32)}, {}, "g_idx"), ({}, {"bits": 3}, "3 bits"),
                                                    ({}, {"weight_prepacked": 1}, "GPU"), ({}, {"block_size": 24}, "blocks of 24"), ({}, {"K": 0}, "K 0")])
def test_refused_products(tmp_path, more, attributes, text):
    w = weights(np.random.default_rng(4), 4, 8, 32, 32, None)
    feeds = {"a": floats(2, 32), **w, **more}
    net = model(tmp_path, "MatMulNBits", feeds, ["b", "s", *more], **{"K": 32, "N": 8, "bits": 4, "block_size": 32, **attributes})
    assert text in net.refused()


# ---- GatherBlockQuantized

INDICES = [np.array([[0, 3], [-1, 2]]), np.array([4]), np.array([1, 9, -7])]    # the last: beside the table, zeros


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("index", [np.int64, np.int32])
def test_rows_of_bytes(tmp_path, bits, zeros, index):
    rng = np.random.default_rng(bits)
    for block, width in [(16, 64), (32, 96)]:
        feeds = {"d": rng.integers(0, 256, (5, width * bits // 8), np.uint8), "i": INDICES[0].astype(index),
                 "s": rng.standard_normal((5, width // block)).astype(F),
                 "z": rng.integers(0, 256, (5, -(-width // block * bits // 8)), np.uint8) if zeros else None}
        constants = ["d", "s"] + ["z"] * zeros
        net = model(tmp_path, "GatherBlockQuantized", feeds, constants, bits=bits, block_size=block, gather_axis=0, quantize_axis=1)
        for i in (INDICES[0], INDICES[0][:1]):
            near(net.want([i.astype(index)])[0], net.run([i.astype(index)], "-O2")[0], 1e-6)
        net = model(tmp_path, "GatherBlockQuantized", feeds | {"i": INDICES[2].astype(index)}, constants, bits=bits, block_size=block)
        near(net.want([INDICES[2].astype(index)])[0], net.run([INDICES[2].astype(index)], "-O2")[0], 1e-6)


@pytest.mark.parametrize("kind", [T.INT4, T.UINT4])
@pytest.mark.parametrize("gather, quantize", [(0, 2), (1, 0), (1, 1), (2, 1), (-1, -1)])
@pytest.mark.parametrize("zeros", [False, True])
def test_nibbles_along_any_axis(tmp_path, kind, gather, quantize, zeros):
    rng = np.random.default_rng(quantize + 3)
    shape, low = [5, 20, 33], -8 if kind == T.INT4 else 0
    blocks = list(shape)
    blocks[quantize] = -(-shape[quantize] // 16)
    packed = lambda name, dims: helper.make_tensor(name, kind, dims, rng.integers(low, low + 16, int(np.prod(dims))).tolist())
    feeds = {"d": packed("d", shape), "i": INDICES[0], "s": rng.standard_normal(blocks).astype(F), "z": packed("z", blocks) if zeros else None}
    net = model(tmp_path, "GatherBlockQuantized", feeds, ["d", "s"] + ["z"] * zeros, block_size=16, gather_axis=gather, quantize_axis=quantize)
    near(net.want([INDICES[0]])[0], net.run([INDICES[0]], "-O2")[0], 1e-6)


def test_a_table_stays_packed(tmp_path):
    """A table of 4 bits takes the file's bytes in the artifact, not those of its numbers in f32."""
    rng = np.random.default_rng(5)
    net = model(tmp_path, "GatherBlockQuantized", {"d": rng.integers(0, 256, (4000, 64), np.uint8), "i": INDICES[1],
                                                   "s": rng.standard_normal((4000, 4)).astype(F)}, ["d", "s"], block_size=32)
    assert net.compile("-O2").stat().st_size < 4000 * (64 + 16) + 200_000


@pytest.mark.parametrize("tied", [True, False])
def test_head_and_table_share_their_bytes(tmp_path, tied):
    """Tokens looked up in a table of 4 bits, and scored by the same one: its bytes lie in the artifact once, in panels."""
    rng = np.random.default_rng(7)
    v, h, block = 200, 64, 32
    b, s = rng.integers(0, 256, (v, h // block, block // 2), np.uint8), rng.uniform(0.1, 1, (v, h // block)).astype(F)
    stored = {"b": b, "s": s, "shape": np.array([v, h // 2])} | ({} if tied else {"b2": b ^ 1})
    nodes = [helper.make_node("Reshape", ["b" if tied else "b2", "shape"], ["table"]),
             helper.make_node("GatherBlockQuantized", ["table", "i", "s"], ["x"], domain="com.microsoft", bits=4, block_size=block, gather_axis=0,
                              quantize_axis=1),
             helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=h, N=v, bits=4, block_size=block)]
    graph = helper.make_graph(nodes, "tied", [helper.make_tensor_value_info("i", T.INT64, ["n"])], [helper.make_tensor_value_info("y", T.FLOAT, ["n", v])],
                              [numpy_helper.from_array(x, name) for name, x in stored.items()])
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10), path)
    net = Model(tmp_path, path=path)
    i = np.array([3, 0, 199, 17])
    near(net.want([i])[0], net.run([i], "-O2")[0])
    panels = 208 * h // 2   # of 16 rows
    assert weights_out(path) <= panels + s.nbytes + 16 * 8 + 64 + (0 if tied else b.nbytes)


def test_refused_table(tmp_path):
    net = model(tmp_path, "GatherBlockQuantized", {"d": np.zeros((32, 32), np.uint8), "i": INDICES[1], "s": np.ones((2, 64), F)}, ["d", "s"], bits=4,
                block_size=16, gather_axis=0, quantize_axis=0)
    assert "packed numbers" in net.refused()


def test_many_rows_are_decoded_once(tmp_path):
    """The record says from how many rows on the weights go through scratch; the numbers are the same with and without, and it may be told."""
    rng = np.random.default_rng(8)
    w = weights(rng, 4, 72, 96, 32, "packed")
    net = model(tmp_path, "MatMulNBits", {"a": floats(2, 96), **w}, ["b", "s", "z"], K=96, N=72, bits=4, block_size=32)
    records = mcc(net.path, "--march=x86-64-v3", "-stop-after=schedule", "-o", tmp_path / "a.sch") and (tmp_path / "a.sch").read_text()
    assert re.search(r"decode.above +[1-9]", records) and re.search(r"reduce.0.scaled +1", records)
    given = net.run([floats(1, 96)], "-O2", "--march=x86-64-v3")[0]
    records = re.sub(r"(reduce.0.scaled +)1", r"\g<1>0", records)   # each number times its scale, as in scratch
    (tmp_path / "a.sch").write_text(records)
    near(given, net.run([floats(1, 96)], "-O2", "--march=x86-64-v3", f"--schedules={tmp_path / 'a.sch'}")[0])
    (tmp_path / "b.sch").write_text(re.sub(r"(decode.above +)\d+", r"\g<1>0", records))
    (tmp_path / "parts.sch").write_text(re.sub(r"^(  split +)\d+", r"\g<1>1", records, flags=re.M))   # which a thread decodes for once
    for rows in (1, 6, 50):
        a = floats(rows, 96, seed=rows)
        near(net.want([a])[0], net.run([a], "-O2", "--march=x86-64-v3")[0])
        decoded = net.run([a], "-O2", "--march=x86-64-v3", f"--schedules={tmp_path / 'a.sch'}")[0]
        for told in ("b", "parts"):
            assert (net.run([a], "-O2", "--march=x86-64-v3", f"--schedules={tmp_path / told}.sch")[0] == decoded).all()
    plain = Model(tmp_path, [helper.make_node("MatMul", ["a", "b"], ["y"])], [helper.make_tensor_value_info("a", T.FLOAT, [64, 96])],
                  [helper.make_tensor_value_info("y", T.FLOAT, [64, 72])], {"b": floats(96, 72)})
    text = mcc(plain.path, "--march=x86-64-v3", "-stop-after=schedule", "-o", tmp_path / "c.sch") and (tmp_path / "c.sch").read_text()
    for field, told in (("decode.above", 8), ("reduce.0.scaled", 1)):
        (tmp_path / "c.sch").write_text(re.sub(rf"({field} +)\d+", rf"\g<1>{told}", text))
        done = mcc(plain.path, "--march=x86-64-v3", f"--schedules={tmp_path / 'c.sch'}", "-o", tmp_path / "c.so")
        assert done.returncode and field in done.stderr, (field, done.stderr)


@pytest.mark.parametrize("bits, zeros", [(4, None), (4, "packed"), (2, None)])
def test_numbers_are_looked_up(tmp_path, bits, zeros):
    """AVX-512 takes numbers of up to 4 bits, less a zero point that is a constant, from a table of 16 floats."""
    w = weights(np.random.default_rng(bits), bits, 64, 64, 32, zeros)
    feeds = {"a": floats(1, 64), **{x: v for x, v in w.items() if v is not None}}
    net = model(tmp_path, "MatMulNBits", feeds, [x for x in w if w[x] is not None], K=64, N=64, bits=bits, block_size=32)
    assert mcc(net.path, "--march=x86-64-v4", "-S", "-o", tmp_path / "net.s").returncode == 0
    text = (tmp_path / "net.s").read_text()
    assert re.search(r"vperm(d|ps)\s.*%zmm", text) and (zeros or not re.search(r"vcvtdq2ps\s.*%zmm", text))
    for level in ("v3", "v4"):
        near(net.want([feeds["a"]])[0], net.run([feeds["a"]], "-O2", f"--march=x86-64-{level}")[0])


# ---- DequantizeLinear in front of a product or a lookup

@pytest.mark.parametrize("kind, bits", [(T.INT4, 4), (T.UINT4, 4), (T.INT8, 8), (T.UINT8, 8)])
@pytest.mark.parametrize("block", [0, 32])
@pytest.mark.parametrize("form", ["MatMul", "Gemm", "turned", "Gather"])
def test_dequantized_constants_stay_packed(tmp_path, kind, bits, block, form):
    """Per channel or in blocks, with zero points; the numbers are those of ONNX Runtime, the artifact has the file's bits."""
    rng = np.random.default_rng(bits + block)
    k, n = 96, 48
    shape, axis = ((n, k), 1) if form in ("turned", "Gather") else ((k, n), 0)
    low = -(1 << bits - 1) if kind in (T.INT4, T.INT8) else 0
    numbers = lambda name, dims: helper.make_tensor(name, kind, dims, rng.integers(low, low + (1 << bits), int(np.prod(dims))).tolist())
    scales = tuple(d // block if i == axis else d for i, d in enumerate(shape)) if block else (n,)
    nodes = [helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis if block else 1 - axis, block_size=block)]
    nodes.append({"MatMul": helper.make_node("MatMul", ["a", "w"], ["y"]), "Gemm": helper.make_node("Gemm", ["a", "w"], ["y"]),
                  "turned": helper.make_node("Gemm", ["a", "w"], ["y"], transB=1), "Gather": helper.make_node("Gather", ["w", "a"], ["y"])}[form])
    feed = np.array([3, 0, 47]) if form == "Gather" else None
    given = helper.make_tensor_value_info("a", T.INT64, ["rows"]) if form == "Gather" else helper.make_tensor_value_info("a", T.FLOAT, ["rows", k])
    result = helper.make_tensor_value_info("y", T.FLOAT, ["rows", k if form == "Gather" else n])
    graph = helper.make_graph(nodes, "dequantized", [given], [result],
                              [numbers("q", shape), numbers("z", scales), numpy_helper.from_array(rng.uniform(0.1, 1, scales).astype(F), "s")])
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    net = Model(tmp_path, path=path)
    for rows in (1, 30):
        a = feed if feed is not None else floats(rows, k, seed=rows)
        near(net.want([a])[0], net.run([a], "-O2")[0])
    count = int(np.prod(scales))
    assert weights_out(path) <= k * n * bits // 8 + count * 5 + 3 * 64


# ---- DequantizeLinear in front of a convolution

def dequantized_conv(folder, kind, oc, ic, kernel, size, groups=1, axis=0, block=0, stride=1, pad=0, zeros=True, images=1):
    """The network, and the file's bytes of weights. size None: the image is dynamic."""
    rng = np.random.default_rng(oc + ic)
    bits, low = (4, -8 if kind == T.INT4 else 0) if kind in (T.INT4, T.UINT4) else (8, -128 if kind == T.INT8 else 0)
    shape = (oc, ic // groups, kernel, kernel)
    numbers = lambda name, dims: helper.make_tensor(name, kind, dims, rng.integers(low, low + (1 << bits), int(np.prod(dims))).tolist())
    scales = tuple(d // block if i == axis else d for i, d in enumerate(shape)) if block else (shape[axis],)
    nodes = [helper.make_node("DequantizeLinear", ["q", "s"] + ["z"] * zeros, ["w"], axis=axis, block_size=block),
             helper.make_node("Conv", ["a", "w"], ["c"], "conv", group=groups, strides=[stride] * 2, pads=[pad] * 4), helper.make_node("Relu", ["c"], ["y"])]
    constants = [numbers("q", shape), numpy_helper.from_array(rng.uniform(0.1, 1, scales).astype(F), "s")] + [numbers("z", scales)] * zeros
    given = helper.make_tensor_value_info("a", T.FLOAT, [images, ic, size or "h", size or "w"])
    graph = helper.make_graph(nodes, "conv", [given], [helper.make_tensor_value_info("y", T.FLOAT, None)], constants)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return Model(folder, path=path), int(np.prod(shape)) * bits // 8 + int(np.prod(scales)) * (4 + zeros)


# what the artifact may hold beside the file's bytes: panels of 16 channels that are not full, nibbles of odd numbers of input channels
CONVS = {
    "1 x 1": (0, dict(kind=T.INT4, oc=64, ic=64, kernel=1, size=9)),
    "1 x 1 in blocks": (0, dict(kind=T.UINT4, oc=48, ic=96, kernel=1, size=None, axis=1, block=32)),
    "strides": (0, dict(kind=T.INT8, oc=32, ic=40, kernel=3, size=19, stride=2, pad=1)),
    "5 x 5": (40 * 16 * 25, dict(kind=T.UINT8, oc=24, ic=40, kernel=5, size=None, pad=2)),
    "an odd number": (16 * 7 * 9, dict(kind=T.INT4, oc=30, ic=7, kernel=3, size=12, images=3)),
    "groups": (0, dict(kind=T.INT4, oc=64, ic=64, kernel=3, size=10, groups=4, pad=1)),
    "depthwise": (0, dict(kind=T.INT8, oc=64, ic=64, kernel=3, size=11, groups=64, pad=1)),
    "blocks of results": (0, dict(kind=T.INT4, oc=64, ic=32, kernel=3, size=9, axis=0, block=16, stride=2)),
    "3 x 3": (0, dict(kind=T.INT4, oc=64, ic=64, kernel=3, size=17, axis=1, block=32, pad=1)),
    "3 x 3 by slices": (0, dict(kind=T.INT8, oc=256, ic=256, kernel=3, size=14, pad=1, zeros=False)),
    "3 x 3, odd channels": (16 * 36 * 9, dict(kind=T.UINT4, oc=40, ic=36, kernel=3, size=None, pad=1, images=2)),
}


@pytest.mark.parametrize("case", CONVS)
def test_convolutions_of_packed_weights(tmp_path, case):
    """Per channel and in blocks, whatever form computes them; the artifact has the file's bits."""
    spare, given = CONVS[case]
    net, size = dequantized_conv(tmp_path, **given)
    assert weights_out(net.path) <= size + spare + 16 * 5 + 4 * 64
    for extent in [given["size"]] if given["size"] else [11, 24]:
        a = floats(given.get("images", 1), given["ic"], extent, extent)
        want = net.want([a])[0]
        assert interpreted(net, [a]).returncode == 0
        near(want, np.load(net.folder / "eval/y.npy"))
        for level in ("-march=x86-64-v2", "-march=x86-64-v3", "-march=native"):
            near(want, net.run([a], "-O2", level)[0], 3e-5)     # Winograd's form of 6 x 6 among them


@pytest.mark.parametrize("form", ["off", "2", "4", "6"])
def test_winograd_of_packed_weights(tmp_path, form):
    """Each form derives its weights from the packed ones, and the file stays small."""
    net, size = dequantized_conv(tmp_path, T.INT4, 64, 96, 3, 20, axis=1, block=32, pad=1)
    a = floats(1, 96, 20, 20)
    want = net.want([a])[0]
    for level in ("-march=x86-64-v3", "-march=native"):
        records = mcc(net.path, level, f"--choose=conv:winograd={form}", "-stop-after=schedule", "-o", "-").stdout
        assert ("winograd.m" in records) == (form != "off")
        assert not re.search(r"prefetch.taps +[1-9]", records)
        near(want, net.run([a], "-O2", level, f"--choose=conv:winograd={form}")[0], 3e-5)
    assert net.compile("-O2", f"--choose=conv:winograd={form}", "-march=native").stat().st_size < size + 100_000


def test_blocks_that_no_vector_shares(tmp_path):
    """A scale for each 8 results: a vector would load 16 numbers for one, so the weights are stored as they are used."""
    net, size = dequantized_conv(tmp_path, T.INT4, 64, 64, 3, 9, axis=0, block=8)
    assert weights_out(net.path) <= 64 * 64 * 9 * 4 + 64
    a = floats(1, 64, 9, 9)
    near(net.want([a])[0], net.run([a], "-O2")[0])

"""Programs that torch.export.save wrote (record.py), and made ones: results beside PyTorch's, names, sizes, shared memory, refusals."""
import pathlib
import re
import struct
import zipfile

import numpy as np
import pytest

from pt2.writer import Number, Program, Ref, Type, meta, saved
from support.artifact import Artifact, ModelError
from support.tool import mcc, result

DATA = pathlib.Path(__file__).resolve().parent / "data"
F = np.dtype("float32")


def compiled(path, *options):
    done = mcc(path, "-o", f"{path}.so", *options)
    assert done.returncode == 0, done.stderr
    return f"{path}.so"


def run(path, feeds):
    with Artifact(compiled(path)) as a:
        return a.run(feeds)


@pytest.mark.parametrize("form", ["", "_core"])
@pytest.mark.parametrize("name, outputs", [("residual", "logits other.0 other.1"), ("encoder", "output.0 output.1"),
                                           ("filled", "output.0 output.1 output.2"), ("branching", "output.0 output.1 output.2"),
                                           ("scanning", "output.0 output.1 output.2"), ("casting", "output"),
                                           ("keeping", "seen count"), ("writing", "output total step"), ("training", "output"),
                                           ("spectral", "output.0 output.3"),
                                           ("recurrent", "output.0 output.1 output.2 output.3"), ("sized", "output.0.0 output.1.2 output.5")])
def test_exported(tmp_path, name, outputs, form):
    """At two sizes, as the exporter gives it and decomposed to core operators. Records are deflated."""
    recorded = np.load(DATA / f"{name}.npz")
    path = tmp_path / "model.pt2"
    path.write_bytes((DATA / f"{name}{form}.pt2").read_bytes())
    if (name, form) == ("training", ""):    # the file does not say that batch_norm writes
        done = mcc(path, "-o", tmp_path / "model.so")
        assert done.returncode != 0 and "it writes its running statistics: export with run_decompositions()" in done.stderr
        return
    assert set(outputs.split()) <= {port["name"] for port in result("inspect", compiled(path))["outputs"]}
    with Artifact(f"{path}.so") as a:
        for k in range(max(int(f.split(".")[0]) for f in recorded.files) + 1):
            feeds = [recorded[f"{k}.in.{n}"] for n in range(sum(f.startswith(f"{k}.in.") for f in recorded.files))]
            for n, got in enumerate(a.run(feeds)):
                want = recorded[f"{k}.out.{n}"]
                assert got.dtype == want.dtype and got.shape == want.shape
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_commands(tmp_path):
    """What takes an .onnx takes a .pt2."""
    path = tmp_path / "model.pt2"
    path.write_bytes((DATA / "residual.pt2").read_bytes())
    recorded = np.load(DATA / "residual.npz")
    np.save(tmp_path / "image.npy", recorded["0.in.0"])
    assert mcc("check", path).returncode == 0
    assert mcc("inspect", path).returncode == 0
    assert '"conv2d.default" "aten"' in mcc("-stop-after=import", path).stdout
    done = mcc("run", path, "-i", f"image={tmp_path}/image.npy")
    assert done.returncode == 0, done.stderr
    assert "cannot be overridden" in mcc("check", path, "--overridable=head.weight").stderr
    assert result("inspect", compiled(path, "--input=image:f32[4,3,12,10]"))["inputs"][0]["dims"] == [4, 3, 12, 10]
    other = tmp_path / "model.bin"    # known by its first bytes
    other.write_bytes(path.read_bytes())
    assert mcc("check", other).returncode == 0


def test_weights_are_views(tmp_path):
    """Tied, transposed, sliced and repeated tensors over one record; the artifact stores it once."""
    table = np.arange(60000, dtype=np.float32).reshape(200, 300)
    program = Program()
    x = program.input("x", F, (1,))
    views = [program.weight("whole", table, "r"), program.weight("tied", table, "r"),
             program.weight("turned", table, "r", (300, 200), (1, 300)), program.weight("part", table, "r", (3, 2), (300, 2), 301),
             program.weight("repeated", table, "r", (2, 3), (0, 1), 5), program.weight("none", table, "r", (0, 3), (3, 1))]
    wants = [table, table, table.T, table[1:4, 1:5:2], np.broadcast_to(table[0, 5:8], (2, 3)), np.zeros((0, 3), np.float32)]
    for n, (view, want) in enumerate(zip(views, wants)):
        program.node("aten.add.Tensor", [view, x], [(f"y{n}", F, want.shape)])
    program.output(*(f"y{n}" for n in range(len(views))))
    path = program.save(tmp_path / "m.pt2")
    for got, want in zip(run(path, [np.ones(1, np.float32)]), wants):
        assert np.array_equal(got, want + 1)
    assert pathlib.Path(f"{path}.so").stat().st_size < 1.3 * table.nbytes + 100_000


def legal(program, tmp_path):
    return mcc("-stop-after=legalize", program.save(tmp_path / "m.pt2")).stdout


def test_weights_in_order_are_not_turned(tmp_path):
    """Dims of one element may have any stride: weights of a convolution of 1 x 1 lie as those of all others."""
    program, w = Program(), np.arange(12, dtype=np.float32).reshape(3, 4)
    x = program.input("x", F, (1, 4, 2, 2))
    k = program.weight("k", w, "r", (3, 4, 1, 1), (4, 1, 1, 1))
    t = program.weight("t", w, "r", (1, 4, 1, 3), (1, 1, 7, 4))
    e = program.weight("e", w, "r", (1, 2, 4, 3), (12, 0, 1, 4))
    program.output(program.node("aten.conv2d.default", [x, k], [("y", F, (1, 3, 2, 2))]),
                   program.node("aten.neg.default", [t], [("z", F, (1, 4, 1, 3))]), program.node("aten.neg.default", [e], [("v", F, (1, 2, 4, 3))]))
    assert legal(program, tmp_path).count("= transpose(") == 2     # t and e
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2)
    y, z, v = run(tmp_path / "m.pt2", [x])
    assert np.array_equal(y, np.einsum("oc,nchw->nohw", w, x)) and np.array_equal(z, -w.T[None, :, None])
    assert np.array_equal(v, -np.broadcast_to(w.T, (1, 2, 4, 3)))


@pytest.mark.parametrize("op", ["group_norm", "native_group_norm"])
@pytest.mark.parametrize("height", [5, "s0"])
def test_groups_are_one_dim(op, height, tmp_path):
    """As exporters to ONNX write them; apart where their extent is dynamic."""
    program, shape = Program(), (2, 6, height, 3)
    if height != 5:
        program.symbol("s0", 1, 9)
    x, w = program.input("x", F, shape), program.weight("w", np.arange(6, dtype=np.float32))
    if op == "group_norm":
        program.output(program.node("aten.group_norm.default", [x, 3, w, None, 1e-5], [("y", F, shape)]))
    else:
        results = [("y", F, shape), ("mean", F, (2, 3)), ("inv", F, (2, 3))]
        program.output(*program.node("aten.native_group_norm.default", [x, w, None, 2, 6, 15, 3, 1e-5], results))
    assert ("axes=[2, 3, 4]" in legal(program, tmp_path)) == (height != 5)
    x = np.random.default_rng(1).standard_normal((2, 6, 5, 3)).astype(F)
    y, *more = run(tmp_path / "m.pt2", [x])
    parts = x.reshape(2, 3, -1).astype(np.float64)
    mean, inv = parts.mean(-1), 1 / np.sqrt(parts.var(-1) + 1e-5)
    want = ((parts - mean[..., None]) * inv[..., None]).reshape(x.shape) * np.arange(6).reshape(6, 1, 1)
    for got, one in zip([y, *more], [want, mean, inv]):
        np.testing.assert_allclose(got, one, rtol=1e-4, atol=1e-5)


def test_numbers(tmp_path):
    """Sizes as numbers, arithmetic of them, a number out of a tensor; a minimum of 2 is a convention of exporters."""
    program = Program()
    n = program.symbol("s0", 2, 40)
    x, k = program.input("x", F, (n, 6)), program.input("k", np.dtype("int64"), ())
    size = program.node("aten.sym_size.int", [x, 0], [("size", None, n)])
    count = program.node("aten.sym_numel.default", [x], [("count", None, n)])
    item = program.node("aten.item.default", [k], [("item", None, "u0")])
    item2 = program.node("aten._local_scalar_dense.default", [k], [("item2", None, "u1")])
    a, b = ["a", "b"], []
    for m, (op, args) in enumerate([("_operator.add", [size, 3]), ("_operator.sub", [count, size]), ("_operator.mul", [2, size]),
                                    ("_operator.floordiv", [count, 4]), ("_operator.mod", [count, 4]), ("torch.sym_max", [size, 7]),
                                    ("torch.sym_min", [size, item]), ("_operator.add", [item2, size])]):
        number = program.node(op, [Number(v) if isinstance(v, Number) else v for v in args], [(f"n{m}", None, n)], names=a)
        b.append(program.node("aten.full.default", [[number, 1], float(m)], [(f"y{m}", F, ("u9", 1))]))
    program.output(*b)
    path = program.save(tmp_path / "m.pt2")
    with Artifact(compiled(path)) as artifact:
        for rows in (1, 2, 5):
            shapes = [y.shape for y in artifact.run([np.zeros((rows, 6), np.float32), np.int64(3)])]
            sizes = [rows + 3, 5 * rows, 2 * rows, 6 * rows // 4, 6 * rows % 4, max(rows, 7), min(rows, 3), 3 + rows]
            assert shapes == [(s, 1) for s in sizes]


@pytest.mark.parametrize("shape, mask", [((2, 2, 5, 4), (2, 5, 5)), ((2, 2, 5, 4), (2, 1, 5)), ((3, 2, 5, 4), (2, 5, 5)),
                                         ((2, 5, 4), (2, 5, 5)), ((2, 2, 5, 4), (5, 5))])
def test_masks_of_attention(shape, mask, tmp_path):
    """The mask's dims are the last ones of the scores."""
    rng, program = np.random.default_rng(1), Program()
    feeds = [rng.standard_normal(s).astype(F) for s in (shape, shape, shape, mask)]
    names = [program.input(name, F, x.shape) for name, x in zip("qkvm", feeds)]
    program.output(program.node("aten.scaled_dot_product_attention.default", names, [("y", F, shape)]))
    q, k, v, m = (x.astype(np.float64) for x in feeds)
    weights = np.exp(q @ k.swapaxes(-1, -2) / 2 + m)
    want = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(run(program.save(tmp_path / "m.pt2"), feeds)[0], want, rtol=1e-5, atol=1e-6)


def test_reductions_that_broadcast_along_the_other_axis(tmp_path):
    """softmax(x - x.amax(-1)) and where((x == -inf).all(-1), 0, softmax(x)) of a square: [n] lies along the last axis."""
    program, b = Program(), np.dtype(bool)
    x = program.input("x", F, (5, 5))
    most = program.node("aten.amax.default", [x, [-1]], [("most", F, (5,))])
    less = program.node("aten.sub.Tensor", [x, most], [("less", F, (5, 5))])
    y = program.node("aten.softmax.int", [less, -1], [("y", F, (5, 5))])
    low = program.node("aten.eq.Scalar", [x, float("-inf")], [("low", b, (5, 5))])
    every = program.node("aten.all.dim", [low, -1], [("every", b, (5,))])
    p = program.node("aten.softmax.int", [x, -1], [("p", F, (5, 5))])
    z = program.node("aten.where.ScalarSelf", [every, 0.0, p], [("z", F, (5, 5))])
    program.output(y, z)
    x = np.random.default_rng(1).standard_normal((5, 5)).astype(F)
    x[3] = -np.inf
    got = run(program.save(tmp_path / "m.pt2"), [x])
    with np.errstate(invalid="ignore"):
        less = x - x.max(-1)
        want = [np.exp(v - v.max(-1, keepdims=True)) for v in (less, x)]
        want = [v / v.sum(-1, keepdims=True) for v in want]
    want[1][:, 3] = 0
    for a, w in zip(got, want):
        np.testing.assert_allclose(a, w, rtol=1e-5, atol=1e-6)


def test_derived_sizes(tmp_path):
    """Two inputs whose sizes are expressions of one symbol, as srepr and as infix text."""
    for text in ("Mul(Integer(2), Symbol('s0', positive=True, integer=True))", "2*s0"):
        program = Program()
        n = program.symbol("s0", 1, 40)
        x, y = program.input("x", F, (n, 2)), program.input("y", F, (text, 2))
        both = program.node("aten.cat.default", [[x, y]], [("z", F, ("u0", 2))])
        program.output(both)
        program.symbol("2*s0", 4, 80)    # the exporter states ranges of expressions, too
        path = program.save(tmp_path / "m.pt2")
        with Artifact(compiled(path)) as a:
            assert a.run([np.zeros((3, 2), np.float32), np.zeros((6, 2), np.float32)])[0].shape == (9, 2)


def test_quantized_products_are_of_bytes(tmp_path):
    """A convolution and a linear layer between quantizers multiply integers."""
    program, draw, i8 = Program(), np.random.RandomState(1), np.dtype("int8")
    x = program.input("x", F, (2, 4, 6, 6))

    def quantized(x, scale, shape, name):
        args = [scale, 5, -128, 127, Type("int8")]
        x = program.node("quantized_decomposed.quantize_per_tensor.default", [x, *args], [(name, i8, shape)])
        return program.node("quantized_decomposed.dequantize_per_tensor.default", [x, *args], [(f"{name}_d", F, shape)])

    def weights(name, shape):
        values, scales = draw.randint(-127, 128, shape).astype(np.int8), draw.uniform(0.01, 0.02, shape[0]).astype(np.float32)
        w, s, z = (program.weight(f"{name}{k}", v) for k, v in enumerate((values, scales, np.zeros(shape[0], np.int64))))
        args = [w, s, z, 0, -127, 127, Type("int8")]
        return program.node("quantized_decomposed.dequantize_per_channel.default", args, [(f"{name}_d", F, shape)])
    y = program.node("aten.conv2d.default", [quantized(x, 0.02, (2, 4, 6, 6), "xq"), weights("w", (8, 4, 3, 3))], [("y", F, (2, 8, 4, 4))])
    y = program.node("aten.flatten.using_ints", [quantized(y, 0.1, (2, 8, 4, 4), "yq"), 1], [("flat", F, (2, 128))])
    program.output(program.node("aten.linear.default", [quantized(y, 0.1, (2, 128), "fq"), weights("v", (5, 128))], [("z", F, (2, 5))]))
    path = program.save(tmp_path / "m.pt2")
    text = mcc("-stop-after=legalize", path).stdout
    assert re.search(r"i32\[2, 8, 4, 4\] = conv", text) and re.search(r"i32\[2, 5\] = dot", text), text
    assert run(path, [draw.uniform(-2, 2, (2, 4, 6, 6)).astype(np.float32)])[0].shape == (2, 5)


def test_numbers_of_quantizers_that_their_types_do_not_hold(tmp_path):
    """They would wrap."""
    i8 = np.dtype("int8")
    for zero, says in ((127, None), (128, "does not hold the zero point 128"), (-129, "does not hold the zero point -129")):
        for target, x, y in (("quantize", F, i8), ("dequantize", i8, F)):
            program = Program()
            arguments = [program.input("x", x, (3,)), 0.5, zero, -128, 127, Type("int8")]
            program.output(program.node(f"quantized_decomposed.{target}_per_tensor.default", arguments, [("y", y, (3,))]))
            done = mcc("check", program.save(tmp_path / "m.pt2"))
            assert done.returncode == (says is not None) and (not says or says in done.stderr), done.stderr
    program = Program()
    arguments = [program.input("x", F, (3,)), -2 ** 63, 2 ** 63 - 1, 1e-5, Type("int8")]
    program.node("quantized_decomposed.choose_qparams.tensor", arguments, [("y", F, (1,)), ("z", np.dtype("int64"), (1,))])
    program.output("y")
    done = mcc("check", program.save(tmp_path / "m.pt2"))
    assert done.returncode == 1 and "quant_min is -9223372036854775808 and" in done.stderr


def test_instance_norm_with_running_statistics(tmp_path):
    """Their update is not to be lost."""
    for running in (False, True):
        program = Program()
        x, m, v = program.input("x", F, (2, 3, 4)), *(program.weight(n, np.ones(3, np.float32)) for n in "mv")
        arguments = [x, None, None, *((m, v) if running else (None, None)), True, 0.1, 1e-5, False]
        program.output(program.node("aten.instance_norm.default", arguments, [("y", F, (2, 3, 4))]))
        done = mcc("check", program.save(tmp_path / "m.pt2"))
        assert done.returncode == running and (not running or "updates its running statistics" in done.stderr)


def test_sizes_without_a_symbol(tmp_path):
    """No input has s0 itself as a dim: the run checks what the operators do."""
    program = Program()
    text = f"Mul(Integer(2), {program.symbol('s0', 1, 40)})"
    program.symbol("2*s0", 2, 80)
    x, y = program.input("x", F, (text,)), program.input("y", F, (text,))
    program.output(program.node("aten.add.Tensor", [x, y], [("z", F, (text,))]))
    with Artifact(compiled(program.save(tmp_path / "m.pt2"))) as a:
        assert a.run([np.ones(6, np.float32), np.ones(6, np.float32)])[0].tolist() == [2] * 6


@pytest.mark.parametrize("strides, view", [((4, 1, 9), True), ((1, 4, 9), False)])
def test_same_strides(strides, view, tmp_path):
    """Decompositions write as_strided with a tensor's own sizes and strides, which may be those of a dynamic dim."""
    program = Program()
    n = program.symbol("s0", 1, 40)
    x = program.input("x", F, (n, 4, 1))
    size = program.node("aten.sym_size.int", [x, 0], [("size", None, n)])
    program.output(program.node("aten.as_strided.default", [x, [size, 4, 1], list(strides)], [("y", F, (n, 4, 1))],
                                names=["self", "size", "stride"]))
    path = program.save(tmp_path / "m.pt2")
    if not view:
        assert "as_strided" in mcc("check", path).stderr
        return
    with Artifact(compiled(path)) as a:
        for rows in (1, 3):
            x = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4, 1)
            assert np.array_equal(a.run([x])[0], x)


def test_view_or_copy_is_refused(tmp_path):
    program = Program()
    x = program.input("x", F, (3, 4))
    r = program.node("aten.reshape.default", [program.node("aten.clone.default", [x], [("c", F, (3, 4))]), [12]], [("r", F, (12,))])
    program.node("aten.relu_.default", [r], [("y", F, (12,))])
    program.node("aten.neg.default", [Ref("c")], [("z", F, (3, 4))])
    program.output("y", "z")
    done = mcc("check", program.save(tmp_path / "m.pt2"))
    assert done.returncode == 1 and "'c' shares memory with a tensor that was written to" in done.stderr


def test_root_folders(tmp_path):
    """Records may lie in a folder of any name, or in none."""
    program = Program()
    program.output(program.node("aten.relu.default", [program.input("x", F, (3,))], [("y", F, (3,))]))
    for root in ("archive", "a b", ""):
        for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            assert run(program.save(tmp_path / "m.pt2", root, compression), [np.float32([-1, 0, 2])])[0].tolist() == [0, 0, 2]


def test_zip64(tmp_path):
    """Sizes and places that stand in ZIP64 fields alone, of a writer that streams: local headers without sizes."""
    program = Program()
    w = program.weight("w", np.float32([1, 2, 3]))
    program.output(program.node("aten.add.Tensor", [program.input("x", F, (3,)), w], [("y", F, (3,))]))
    out, directory, n, none = b"", b"", 0, 2 ** 32 - 1
    with zipfile.ZipFile(program.save(tmp_path / "m.pt2")) as archive:
        for n, info in enumerate(archive.infolist(), 1):
            name, data = info.filename.encode(), archive.read(info)
            extra = struct.pack("<HHHHQQQ", 0x4246, 0, 1, 24, len(data), len(data), len(out))
            directory += struct.pack("<4s6H3I5H2I", b"PK\1\2", 45, 45, 0x808, 0, 0, 0x21, info.CRC, none, none, len(name), len(extra), 0, 0, 0, 0, none)
            directory += name + extra
            out += struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0x808, 0, 0, 0x21, 0, 0, 0, len(name), 0) + name + data
    end = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, n, n, len(directory), len(out))
    end += struct.pack("<4sIQI", b"PK\6\7", 0, len(out) + len(directory), 1) + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xffff, 0xffff, none, none, 0)
    (tmp_path / "m.pt2").write_bytes(out + directory + end)
    assert run(tmp_path / "m.pt2", [np.float32([1, 1, 1])])[0].tolist() == [2, 3, 4]


@pytest.mark.parametrize("layout", "AB")
def test_pickled_weights(tmp_path, layout):
    """Files of PyTorch 2.8 and older: tied, sliced, transposed and repeated tensors of all types."""
    program, draw, want = Program(), np.random.RandomState(2), []
    for k, dtype in enumerate(("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")):
        whole = (draw.uniform(0, 100, (4, 6)) > 50 if dtype == "bool" else draw.uniform(0, 100, (4, 6))).astype(dtype)
        w = program.weight(f"w{k}", whole)
        t = program.weight(f"t{k}", whole, record=program.weights[f"w{k}"]["path_name"], shape=(6, 4), strides=(1, 6))
        s = program.weight(f"s{k}", whole, record=program.weights[f"w{k}"]["path_name"], shape=(2, 3), strides=(12, 2), offset=7)
        want += [whole, whole.T, whole[1::2, 1::2]]
        for n, (x, shape) in enumerate(((w, (4, 6)), (t, (6, 4)), (s, (2, 3)))):
            program.output(program.node("aten.clone.default", [x], [(f"y{k}_{n}", np.dtype(dtype), shape)]))
    unused = program.input("x", F, (1,))
    program.output(program.node("aten.relu.default", [unused], [("last", F, (1,))]))
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        got = run(program.save(tmp_path / "m.pt2", compression=compression, layout=layout), [np.zeros(1, np.float32)])
        assert all(np.array_equal(g, w) and g.dtype == w.dtype for g, w in zip(got, want))


def test_pickled_constants_lie_elsewhere(tmp_path):
    """In files of PyTorch 2.8, weights and constants are in archives of their own: records of one name are not shared."""
    program = Program()
    x, w = program.input("x", F, (3,)), program.weight("w", np.ones(3, np.float32))
    program.values["c_k"] = meta("float32", (3,))
    program.inputs.append({"as_tensor": {"name": "c_k"}})
    program.specs.append({"tensor_constant": {"arg": {"name": "c_k"}, "tensor_constant_name": "k"}})
    program.node("aten.add_.Tensor", [w, x], [("s", F, (3,))])
    program.output(program.node("aten.add.Tensor", [Ref("s"), Ref("c_k")], [("y", F, (3,))]))
    records = program.pickled_records("B", {})
    records["data/constants/model.pt"] = saved({"k": {"path_name": "k", "tensor_meta": meta("float32", (3,))}}, {"k": np.full(3, 7, np.float32).tobytes()})
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as archive:
        for name, data in records.items():
            archive.writestr(f"model/{name}", data)
    assert run(tmp_path / "m.pt2", [np.float32([1, 2, 3])])[0].tolist() == [9, 10, 11]


@pytest.mark.parametrize("command", ["check", "inspect", "run", "bench", "eval -i ids=random -i keep=random", "diff",
                                     "report -o {}.html"], ids=lambda c: c.split()[0])
def test_every_command(command, tmp_path):
    """A .pt2 goes where an .onnx goes."""
    name, *options = command.format(tmp_path / "page").split()
    done = mcc(name, DATA / "encoder.pt2", *options)
    assert done.returncode == 0, done.stderr


TURNED = {"permute.default": ([[2, 0, -2]], (4, 2, 3)), "mT.default": ([], (2, 4, 3)), "swapaxes.default": ([0, 2], (4, 3, 2)),
          "unflatten.int": ([2, [2, 2]], (2, 3, 2, 2))}


@pytest.mark.parametrize("target", TURNED)
def test_writes_to_turned_views(target, tmp_path):
    """A write to a view in another order of dims is one to the whole."""
    arguments, shape = TURNED[target]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 11.5
    program = Program()
    base = program.node("aten.clone.default", [program.input("x", F, (2, 3, 4))], [("c", F, (2, 3, 4))])
    view = program.node(f"aten.{target}", [base, *arguments], [("v", F, shape)])
    row = program.node("aten.select.int", [view, 0, 1], [("s", F, shape[1:])])
    program.node("aten.relu_.default", [row], [("r", F, shape[1:])])
    program.output(program.node("aten.neg.default", [base], [("n", F, (2, 3, 4))]), program.node("aten.neg.default", [view], [("m", F, shape)]))
    whole, turned = run(program.save(tmp_path / "m.pt2"), [x])
    want = x.copy()
    seen = {"permute.default": want.transpose(2, 0, 1), "mT.default": want.swapaxes(1, 2), "swapaxes.default": want.swapaxes(0, 2),
            "unflatten.int": want.reshape(2, 3, 2, 2)}[target]
    seen[1] = np.maximum(seen[1], 0)
    assert np.array_equal(whole, -want) and np.array_equal(turned, -seen)


PIECES = {"split.Tensor": ([2, 1], [(2, 2), (2, 2), (2, 1)]), "split_with_sizes.default": ([[1, 4], -1], [(2, 1), (2, 4)]),
          "chunk.default": ([2, 1], [(2, 3), (2, 2)]), "unbind.int": ([1], [(2,)] * 5)}


@pytest.mark.parametrize("target", PIECES)
@pytest.mark.parametrize("kept", [False, True])
def test_writes_to_pieces(target, kept, tmp_path):
    """A write to a piece is one to the whole; the other pieces stay; a write to the whole makes its pieces unknown."""
    arguments, shapes = PIECES[target]
    x = np.arange(10, dtype=np.float32).reshape(2, 5) - 4.5
    for whole in (False, True):
        program = Program()
        base = program.input("x", F, (2, 5))
        base = base if kept else program.node("aten.clone.default", [base], [("c", F, (2, 5))])
        pieces = program.node(f"aten.{target}", [base, *arguments], [(f"p{k}", F, s) for k, s in enumerate(shapes)])
        for k in (0, len(shapes) - 1, 0):
            program.node("aten.relu_.default", [base if whole else pieces[k]], [(f"r{k}{len(program.nodes)}", F, (2, 5) if whole else shapes[k])])
        program.output(program.node("aten.neg.default", [Ref(base)], [("n", F, (2, 5))]), program.node("aten.neg.default", [pieces[1]], [("m", F, shapes[1])]))
        if whole:
            done = mcc("check", program.save(tmp_path / "m.pt2"))
            assert done.returncode == 1 and "a view with several results" in done.stderr
            continue
        want = x.copy()
        first, last = (1 if "sizes" in target or "unbind" in target else shapes[0][1]), (shapes[-1][1] if len(shapes[-1]) > 1 else 1)
        want[:, :first] = np.maximum(want[:, :first], 0)
        want[:, 5 - last:] = np.maximum(want[:, 5 - last:], 0)
        got = run(program.save(tmp_path / "m.pt2"), [x.copy()])
        assert np.array_equal(got[0], -want)
        middle = want[:, 1] if "unbind" in target else want[:, first:first + shapes[1][1]]
        assert np.array_equal(got[1], -middle)
        assert len(got) == 2 + kept and (not kept or np.array_equal(got[2], want))


def test_einsum_may_be_a_view(tmp_path):
    program = Program()
    x = program.node("aten.clone.default", [program.input("x", F, (2, 3))], [("c", F, (2, 3))])
    t = program.node("aten.einsum.default", ["ij->ji", [x]], [("t", F, (3, 2))])
    program.node("aten.relu_.default", [x], [("r", F, (2, 3))])
    program.output(program.node("aten.neg.default", [t], [("y", F, (3, 2))]))
    done = mcc("check", program.save(tmp_path / "m.pt2"))
    assert done.returncode == 1 and "'t' shares memory with a tensor that was written to" in done.stderr


def draws(tmp_path, target, args, shape, dtype=F, keywords=None, feeds=()):
    """What an operator draws: the same each run, but not what its neighbour does."""
    program = Program()
    given = [program.input(f"in{n}", x.dtype, x.shape) for n, x in enumerate(feeds)]
    for name in "yz":
        program.node(target, given + args, [(name, np.dtype(dtype), shape)], keywords)
    program.output("y", "z")
    if not feeds:
        program.input("unused", F, (1,))
        feeds = [np.zeros(1, np.float32)]
    with Artifact(compiled(program.save(tmp_path / "m.pt2"))) as a:
        (first, other), (again, _) = a.run(feeds), a.run(feeds)
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    return first


@pytest.mark.parametrize("target, args, keywords, mean, deviation", [
    ("rand", [[8000]], {}, 0.5, 0.289), ("randn", [[8000]], {}, 0, 1), ("normal_functional", [], {"mean": 2.0, "std": 0.5}, 2, 0.5),
    ("uniform", [-1.0, 3.0], {}, 1, 1.155), ("exponential", [2.0], {}, 0.5, 0.5), ("rand_like", [], {}, 0.5, 0.289), ("randn_like", [], {}, 0, 1),
    ("bernoulli.p", [0.25], {}, 0.25, 0.433), ("randint_like.low_dtype", [2, 6], {}, 3.5, 1.118)])
def test_random_numbers(target, args, keywords, mean, deviation, tmp_path):
    feeds = [] if args and isinstance(args[0], list) else [np.zeros(8000, np.float32)]
    got = draws(tmp_path, "aten." + (target if "." in target else target + ".default"), args, (8000,), keywords=keywords, feeds=feeds)
    assert abs(got.mean() - mean) < 0.05 and abs(got.std() - deviation) < 0.05


def test_random_choices(tmp_path):
    order = draws(tmp_path, "aten.randperm.default", [50], (50,), np.int64)
    assert np.array_equal(np.sort(order), np.arange(50))
    whole = draws(tmp_path, "aten.randint.low", [-2, 3, [4000]], (4000,), np.int64)
    assert np.array_equal(np.unique(whole), np.arange(-2, 3)) and np.bincount(whole + 2).min() > 600
    odds = np.array([[0.0, 1, 3], [2, 0, 0]], np.float32)
    many = draws(tmp_path, "aten.multinomial.default", [4000, True], (2, 4000), np.int64, feeds=[odds])
    assert set(many[1]) == {0} and 0 not in many[0] and abs((many[0] == 2).mean() - 0.75) < 0.05
    few = draws(tmp_path, "aten.multinomial.default", [40], (40,), np.int64, feeds=[np.ones(50, np.float32)])
    assert len(set(few)) == 40


def test_strides_of_the_operand(tmp_path):
    """as_strided counts in memory: of a transposed tensor, of one that a record holds with an offset."""
    table = np.arange(20, dtype=np.float32)
    program = Program()
    x = program.input("x", F, (3, 4))
    program.values["x"] = meta(F, (3, 4), (1, 3))
    part = program.weight("part", table, "r", (3, 2), (2, 1), 5)
    program.node("aten.as_strided.default", [x, [4], [1], 2], [("a", F, (4,))])
    program.node("aten.as_strided.default", [part, [2], [3], 6], [("b", F, (2,))])
    program.output("a", "b")
    fed = np.arange(12, dtype=np.float32).reshape(3, 4)
    a, b = run(program.save(tmp_path / "m.pt2"), [fed])
    assert np.array_equal(a, fed.T.reshape(-1)[2:6]) and np.array_equal(b, [6, 9])
    program = Program()
    part = program.weight("part", table, "r", (3, 2), (2, 1), 5)
    x = program.input("x", F, (3, 4))
    program.node("aten.as_strided.default", [part, [2], [3], 0], [("b", F, (2,))])
    program.node("aten.add.Tensor", [x, x], [("y", F, (3, 4))])
    program.output("b", "y")
    assert "reads elements around its operand" in mcc(program.save(tmp_path / "m.pt2"), "-o", tmp_path / "m.so").stderr


@pytest.mark.parametrize("stride, offset, own", [(1, 2**63 - 1, 0), (2**31 - 1, 2**63 - 2**31, 0), (1, 0, -2**63), (1, 2**63 - 1, -2**63)])
def test_strides_beyond_64_bits(tmp_path, stride, offset, own):
    program = Program()
    x = program.input("x", F, (4, 4))
    program.values["x"] = meta(F, (4, 4), None, own)
    program.output(program.node("aten.as_strided.default", [x, [2, 2], [1, stride], offset], [("y", F, (2, 2))]))
    done = mcc("check", program.save(tmp_path / "m.pt2"))
    assert done.returncode == 1 and ("reads elements around its operand" in done.stderr or "of its memory" in done.stderr), done.stderr


def test_complex_and_real_numbers_together(tmp_path):
    """Real operands have no imaginary parts, and the shape that they are broadcast to is that of both parts."""
    C = np.dtype("complex64")
    x, y = np.random.default_rng(1).random((3, 2), np.float32), np.random.default_rng(2).random((4, 3), np.float32)
    z = x.view(C)[:, 0]
    program = Program()
    a, b = program.input("x", F, (3, 2)), program.input("y", F, (4, 3))
    c = program.node("aten.view_as_complex.default", [a], [("c", C, (3,))])
    one = program.node("aten.unsqueeze.default", [c, 0], [("one", C, (1, 3))])
    wanted = {"both": np.concatenate([z[None], y]), "sum": z + y, "difference": z - y, "turned": y - z}
    program.node("aten.cat.default", [[one, b]], [("both", C, (5, 3))])
    program.node("aten.add.Tensor", [c, b], [("sum", C, (4, 3))])
    program.node("aten.sub.Tensor", [c, b], [("difference", C, (4, 3))])
    program.node("aten.sub.Tensor", [b, c], [("turned", C, (4, 3))])
    for name, value in wanted.items():
        program.output(program.node("aten.view_as_real.default", [Ref(name)], [(f"{name}_parts", F, (*value.shape, 2))]))
    for got, value in zip(run(program.save(tmp_path / "m.pt2"), [x, y]), wanted.values()):
        assert np.allclose(got, np.stack([value.real, value.imag], -1))
    program = Program()
    total = program.node("aten.sum.default", [program.input("y", F, (4, 3))], [("total", C, ())], {"dtype": Type("complex64")})
    program.output(program.node("aten.view_as_real.default", [total], [("parts", F, (2,))]))
    assert "the operand is real where a complex one is needed" in mcc("check", program.save(tmp_path / "m.pt2")).stderr


def test_complex_numbers_at_the_border(tmp_path):
    for name in ("in", "out"):
        program = Program()
        z = program.input("z", np.dtype("complex64") if name == "in" else F, (3,) if name == "in" else (3, 2))
        if name == "out":
            z = program.node("aten.view_as_complex.default", [z], [("c", np.dtype("complex64"), (3,))])
        program.node("aten.view_as_real.default", [z], [("y", F, (3, 2))])
        program.output("y" if name == "in" else "c")
        done = mcc(program.save(tmp_path / "m.pt2"), "-o", tmp_path / "m.so")
        assert done.returncode != 0 and "an input or output is of complex numbers" in done.stderr, done.stderr
    program = Program()
    x = program.input("x", F, (3, 2))
    z = program.node("aten.view_as_complex.default", [x], [("c", np.dtype("complex64"), (3,))])
    program.node("aten.sqrt.default", [z], [("s", np.dtype("complex64"), (3,))])
    program.node("aten.view_as_real.default", [Ref("s")], [("y", F, (3, 2))])
    program.output("y")
    assert "complex numbers" in mcc(program.save(tmp_path / "m.pt2"), "-o", tmp_path / "m.so").stderr


def test_scans_and_searches_of_dynamic_sizes(tmp_path):
    """Sizes of a run, 0 and 1 among them; NaN among the values."""
    program, i64 = Program(), np.dtype("int64")
    n, m = program.symbol("s0", 0, 40), program.symbol("s1", 0, 40)
    x, edges = program.input("x", F, (3, n)), program.input("edges", F, (m,))
    program.node("aten.logcumsumexp.default", [x, 1], [("sum", F, (3, n))])
    program.node("aten.cummax.default", [x, -1], [("top", F, (3, n)), ("at", i64, (3, n))])
    program.node("aten.bucketize.Tensor", [x, edges], [("bucket", i64, (3, n))])
    program.node("aten.isin.Tensor_Tensor", [x, edges], [("found", np.dtype(bool), (3, n))])
    program.node("aten.searchsorted.Tensor", [edges, x], [("place", i64, (3, n))], {"right": True})
    program.output("sum", "top", "at", "bucket", "found", "place")
    with Artifact(compiled(program.save(tmp_path / "m.pt2"))) as a:
        for rows, steps in ((5, 7), (1, 1), (0, 3), (4, 0)):
            given = np.random.default_rng(rows).integers(-3, 4, (3, rows)).astype(F)
            bounds = np.sort(np.random.default_rng(1).integers(-3, 4, steps)).astype(F)
            total, top, at, bucket, found, place = a.run([given, bounds])
            np.testing.assert_allclose(total, np.logaddexp.accumulate(given, 1), rtol=1e-5, atol=1e-6)
            assert np.array_equal(top, np.maximum.accumulate(given, 1)) and np.array_equal(np.take_along_axis(given, at, 1), top)
            assert np.array_equal(bucket, np.searchsorted(bounds, given)) and np.array_equal(found, np.isin(given, bounds))
            assert np.array_equal(place, np.searchsorted(bounds, given, "right"))


def test_places_in_lines_of_dynamic_sizes(tmp_path):
    """Medians and others of as many elements as the run has."""
    program, i64 = Program(), np.dtype("int64")
    n, m = program.symbol("s0", 0, 40), program.symbol("s1", 1, 40)
    x, at = program.input("x", F, (n, m)), program.input("at", i64, (1, n))
    program.node("aten.median.dim", [x, 1], [("middle", F, (n,)), ("place", i64, (n,))])
    program.node("aten.kthvalue.default", [x, 1, -1, True], [("least", F, (n, 1)), ("first", i64, (n, 1))])
    program.node("aten.take_along_dim.default", [x, at, 1], [("taken", F, (n, n))])
    program.node("aten.fliplr.default", [x], [("turned", F, (n, m))])
    program.node("aten.hstack.default", [[x, Ref("turned")]], [("both", F, (n, "u0"))])
    program.node("aten.cosine_similarity.default", [x, Ref("turned")], [("alike", F, (n,))])
    program.output("middle", "place", "least", "first", "taken", "both", "alike")
    with Artifact(compiled(program.save(tmp_path / "m.pt2"))) as a:
        for rows, columns in ((3, 5), (2, 4), (1, 1), (0, 2), (4, 1)):
            given = np.random.default_rng(rows).standard_normal((rows, columns)).astype(F)
            given[:1, :1] = np.nan if columns > 1 else 2
            chosen = np.random.default_rng(1).integers(0, columns, (1, rows))
            middle, place, least, first, taken, both, alike = a.run([given, chosen])
            want = np.where(np.isnan(given).any(1), np.nan, np.sort(given, 1)[:, (columns - 1) // 2])
            assert np.array_equal(middle, want.astype(F), equal_nan=True)
            assert np.array_equal(np.take_along_axis(given, place[:, None], 1)[:, 0], middle, equal_nan=True)
            assert np.array_equal(least, np.sort(given, 1)[:, :1]) and np.array_equal(np.take_along_axis(given, first, 1), least)
            assert np.array_equal(taken, np.take_along_axis(given, np.broadcast_to(chosen, (rows, rows)), 1), equal_nan=True)
            assert np.array_equal(both, np.hstack([given, np.fliplr(given)]), equal_nan=True)
            with np.errstate(invalid="ignore"):
                np.testing.assert_allclose(alike, (given * given[:, ::-1]).sum(1) / (given * given).sum(1), rtol=1e-5, atol=1e-6)


def test_signals_of_dynamic_length(tmp_path):
    """istft of as many frames as the run has, and of as many samples as it asks for."""
    program, z = Program(), np.dtype("complex64")
    n = program.symbol("s0", 1, 40)
    frames, window = program.input("frames", F, (2, 5, n, 2)), program.input("window", F, (8,))
    program.node("aten.view_as_complex.default", [frames], [("z", z, (2, 5, n))])
    for name, more in (("whole", {}), ("cut", {"length": 13})):
        program.node("aten.istft.default", [Ref("z"), 8, 3, 8, window], [(name, F, (2, 13 if more else "u0"))], more)
    program.output("whole", "cut")
    hann = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(8) / 8) + 0.1).astype(F)
    with Artifact(compiled(program.save(tmp_path / "m.pt2"))) as a:
        for count in (6, 3):
            fed = np.random.default_rng(count).standard_normal((2, 5, count, 2)).astype(F)
            parts = np.fft.irfft(fed[..., 0] + 1j * fed[..., 1], 8, axis=1)
            signal, weight = np.zeros((2, 3 * count + 5)), np.zeros(3 * count + 5)
            for k in range(count):
                signal[:, 3 * k:3 * k + 8] += parts[:, :, k] * hann
                weight[3 * k:3 * k + 8] += hann * hann
            want = (signal / weight)[:, 4:]
            whole, cut = a.run([fed, hann])
            np.testing.assert_allclose(whole, want[:, :-4], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(cut, np.pad(want, ((0, 0), (0, 13)))[:, :13], rtol=1e-4, atol=1e-5)
        with pytest.raises(ModelError, match="samples that no window reaches"):
            a.run([fed, np.zeros(8, F)])


@pytest.mark.parametrize("frequencies, onesided", [(6, None), (8, True), (5, False), (4, None)])
def test_frequencies_of_frames(frequencies, onesided, tmp_path):
    program, z = Program(), np.dtype("complex64")
    frames = program.input("frames", F, (frequencies, 7, 2))
    program.node("aten.view_as_complex.default", [frames], [("z", z, (frequencies, 7))])
    program.output(program.node("aten.istft.default", [Ref("z"), 8, 2], [("y", F, (12,))], {"onesided": onesided}))
    done = mcc(program.save(tmp_path / "m.pt2"), "-o", tmp_path / "m.so")
    assert done.returncode == 1 and "the frequencies are not those of frames of 8" in done.stderr


def test_bags_begin_at_the_first_index(tmp_path):
    program, i64 = Program(), np.dtype("int64")
    w, at, offsets = program.input("w", F, (7, 3)), program.input("at", i64, (4,)), program.input("offsets", i64, (2,))
    program.node("aten._embedding_bag.default", [w, at, offsets], [("y", F, (2, 3)), ("a", i64, (0,)), ("b", i64, (2,)), ("c", i64, (2,))])
    program.output("y")
    with Artifact(compiled(program.save(tmp_path / "m.pt2"))) as a:
        table, rows = np.arange(21, dtype=F).reshape(7, 3), np.array([1, 2, 3, 4])
        assert np.array_equal(a.run([table, rows, np.array([0, 3])])[0], [table[1:4].sum(0), table[4]])
        with pytest.raises(ModelError, match=r"offsets\[0\] is not 0"):
            a.run([table, rows, np.array([1, 3])])


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags_end_at_the_last_offset(mode, tmp_path):
    """Indices behind it are in no bag."""
    program, i64 = Program(), np.dtype("int64")
    n = program.symbol("s0", 0, 9)
    w, at, offsets = program.input("w", F, (7, 3)), program.input("at", i64, (n,)), program.input("offsets", i64, (3,))
    program.node("aten._embedding_bag.default", [w, at, offsets, False, mode, False, None, True],
                 [("y", F, (2, 3)), ("a", i64, (0,)), ("b", i64, (2,)), ("c", i64, (2,))])
    program.output("y")
    table, of = np.arange(21, dtype=F).reshape(7, 3), (np.sum, np.mean, np.max)[mode]
    with Artifact(compiled(program.save(tmp_path / "m.pt2"))) as a:
        for rows in ([1, 2, 3, 4], [1, 2, 3]):
            assert np.array_equal(a.run([table, np.array(rows), np.array([0, 2, 3])])[0], [of(table[1:3], 0), table[3]])


@pytest.mark.parametrize("mode, weighted", [(3, False), (-1, False), (1, True), (2, True)])
def test_modes_of_bags(mode, weighted, tmp_path):
    program, i64 = Program(), np.dtype("int64")
    w, at, offsets = program.input("w", F, (7, 3)), program.input("at", i64, (4,)), program.input("offsets", i64, (2,))
    weights = program.input("weights", F, (4,)) if weighted else None
    program.node("aten._embedding_bag.default", [w, at, offsets, False, mode, False, weights],
                 [("y", F, (2, 3)), ("a", i64, (0,)), ("b", i64, (2,)), ("c", i64, (2,))])
    program.output("y")
    done = mcc("check", program.save(tmp_path / "m.pt2"))
    assert done.returncode == 1 and f"mode {mode}" in done.stderr


@pytest.mark.parametrize("target, arguments, says", [
    ("searchsorted.Tensor", {"side": "left", "right": True}, "side is 'left' and 'right'"),
    ("searchsorted.Tensor", {"side": "up"}, "side is 'up'"),
    ("searchsorted.Tensor", {"sorter": (2,)}, "dimension 0 of sorter"),
    ("searchsorted.Tensor", {"sorter": (3, 1)}, "sorter of rank 2"),
    ("bucketize.Tensor", {}, "the sequence has rank 2")])
def test_searches_that_pytorch_refuses(target, arguments, says, tmp_path):
    program, i64 = Program(), np.dtype("int64")
    rows = target.startswith("bucketize")
    x, row = program.input("x", F, (2, 3)), program.input("row", F, (2, 4) if rows else (3,))
    arguments = {k: program.input(k, i64, v) if isinstance(v, tuple) else v for k, v in arguments.items()}
    program.output(program.node(f"aten.{target}", [x, row] if rows else [row, x], [("y", i64, (2, 3))], arguments))
    done = mcc("check", program.save(tmp_path / "m.pt2"))
    assert done.returncode == 1 and says in done.stderr, done.stderr


@pytest.mark.parametrize("form", ["channel", "tensor", "default"])
def test_dequantized_doubles_are_exact(form, tmp_path):
    """f32 does not hold the scales."""
    program, i8, f64, i64 = Program(), np.dtype("int8"), np.dtype("float64"), np.dtype("int64")
    n = program.symbol("s0", 0, 40)
    x = program.input("x", i8, (3, n))
    rows = () if form != "channel" else (3,)
    scale, zero = (0.1, 3) if form == "default" else (program.input("scale", f64, rows), program.input("zero", i64, rows))
    given = [x, scale, zero] + [0] * (form == "channel") + [-128, 127, Type("int8")]
    target = "channel.default" if form == "channel" else f"tensor.{form}"
    program.output(program.node(f"quantized_decomposed.dequantize_per_{target}", given, [("y", f64, (3, n))], {"out_dtype": Type("float64")}))
    scales, zeros = (np.array([0.1, 0.2, 0.3]), np.array([3, -4, 0])) if form == "channel" else (np.array(0.1), np.array(3))
    with Artifact(compiled(program.save(tmp_path / "m.pt2"))) as a:
        for count in (5, 1, 0):
            fed = np.random.default_rng(count).integers(-128, 128, (3, count)).astype(np.int8)
            got = a.run([fed] + [scales, zeros] * (form != "default"))[0]
            np.testing.assert_allclose(got, (fed - zeros.reshape(-1, 1)) * scales.reshape(-1, 1), rtol=1e-15)


@pytest.mark.parametrize("dtype, mask, bound", [("float64", None, 1e-14), ("float32", False, 1e-6), ("float32", True, 1e-6)])
def test_attention_of_doubles_and_of_one_mask_for_all(dtype, mask, bound, tmp_path):
    """The scale is as exact as the scores; a mask of rank 0 is for every key."""
    program, f, rng = Program(), np.dtype(dtype), np.random.default_rng(1)
    feeds = [rng.standard_normal(shape).astype(f) for shape in ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 4))]
    feeds += [] if mask is None else [np.array(mask)]
    names = [program.input(name, x.dtype, x.shape) for name, x in zip("qkvm", feeds)]
    program.output(program.node("aten.scaled_dot_product_attention.default", names, [("y", f, (2, 3, 4, 4))]))
    q, k, v = feeds[:3]
    weights = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(5))
    want = (weights / weights.sum(-1, keepdims=True)) @ v * (mask is not False)
    np.testing.assert_allclose(run(program.save(tmp_path / "m.pt2"), feeds)[0], want, rtol=0, atol=bound * 10)

"""x86-64-v4-amx: products by tile registers give the bits of dot products, with any threads; a process that may not use the registers
takes the next variant."""
import ctypes
import os
import platform
import re
import struct
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from support.artifact import Artifact, ModelError
from support.compare import Model, floats, interpreted
from support.tool import mcc, save, value

ARCH_PRCTL, REQUEST_PERMISSION, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 158, 0x1023, 38, 22
DRAW = np.random.default_rng(5)


def layer(name, x, y, channels, out, kernel, **attributes):
    """A convolution of bytes, with what it needs of constants."""
    constants = {f"{name}w": DRAW.integers(-128, 128, (out, channels, kernel, kernel)).astype(np.int8), f"{name}s": np.float32(0.02),
                 f"{name}z": np.uint8(120), f"{name}v": np.float32(0.001), f"{name}o": np.int8(0), f"{name}t": np.float32(0.05)}
    s, z, w, v, o, t = (name + letter for letter in "szwvot")
    return helper.make_node("QLinearConv", [x, s, z, w, v, o, t, z], [y], **attributes), constants


def image(folder, size=14):
    """3 x 3 with a halo, 1 x 1 of points numbered through, a stride, and a last channel block that is no whole one."""
    parts = [layer("a", "x", "p", 24, 40, 3, pads=[1] * 4), layer("b", "p", "q", 40, 72, 1), layer("c", "q", "r", 72, 64, 3, strides=[2, 2], pads=[1] * 4),
             layer("d", "r", "y", 64, 100, 1)]
    constants = {k: v for _, of in parts for k, v in of.items()}
    path = save(folder / "image.onnx", [n for n, _ in parts], [value("x", [2, 24, size, size], TensorProto.UINT8)],
                [value("y", None, TensorProto.UINT8)], constants)
    return path, [DRAW.integers(0, 256, (2, 24, size, size)).astype(np.uint8)], 4


def picture(folder):
    """Three channels: a step takes all taps of a row. 40 channels: of two taps."""
    parts = [layer("a", "x", "p", 3, 40, 7, strides=[2, 2], pads=[3] * 4), layer("b", "p", "y", 40, 33, 3, pads=[1] * 4)]
    path = save(folder / "picture.onnx", [n for n, _ in parts], [value("x", [1, 3, 61, 45], TensorProto.UINT8)],
                [value("y", None, TensorProto.UINT8)], {k: v for _, of in parts for k, v in of.items()})
    return path, [DRAW.integers(0, 256, (1, 3, 61, 45)).astype(np.uint8)], 2


def rows(folder, n=37, k=96, columns=100, signed=False):
    nodes = [helper.make_node("MatMulInteger", ["x", "w", "z"], ["y"])]
    dtype = np.int8 if signed else np.uint8
    path = save(folder / "rows.onnx", nodes, [value("x", [3, n, k], TensorProto.INT8 if signed else TensorProto.UINT8)],
                [value("y", None, TensorProto.INT32)], {"w": DRAW.integers(-128, 128, (k, columns)).astype(np.int8), "z": np.array(3, dtype)})
    return path, [DRAW.integers(-128 if signed else 0, 128, (3, n, k)).astype(dtype)], 1


def points(folder):
    """Convolutions to one point of each image: the images of the batch are rows."""
    parts = [layer("a", "x", "p", 64, 160, 1), layer("b", "p", "y", 160, 72, 1, strides=[2, 3])]
    path = save(folder / "points.onnx", [n for n, _ in parts], [value("x", [21, 64, 1, 1], TensorProto.UINT8)],
                [value("y", None, TensorProto.UINT8)], {k: v for _, of in parts for k, v in of.items()})
    return path, [DRAW.integers(0, 256, (21, 64, 1, 1)).astype(np.uint8)], 2


NETS = {"image": image, "picture": picture, "points": points, "small image": lambda f: image(f, 7), "rows": rows,
        "signed": lambda f: rows(f, 64, 256, 48, True),
        "few rows": lambda f: rows(f, 7, 128, 200)}


def compiled(path, *levels, flags=()):
    out = path.with_suffix("." + "_".join(levels) + ".so")
    done = mcc(path, "-o", out, "--variants=" + ",".join(f"x86-64-v4-{level}" for level in levels), *flags)
    assert done.returncode == 0, done.stderr
    return out


def has_tiles(folder):
    (folder / "probe").mkdir()
    try:
        with Artifact(compiled(rows(folder / "probe")[0], "amx"), threads=1):
            return True
    except ModelError as e:
        assert "CPU" in str(e), e
        return False


@pytest.mark.parametrize("name", NETS)
def test_same_bits(name, tmp_path):
    """That the products are by tiles is tested on every machine."""
    path, feed, products = NETS[name](tmp_path)
    text = mcc(path, "--target=x86_64-linux-gnu", "-march=x86-64-v4-amx", "-stop-after=schedule", "-o", "-").stdout
    assert len(re.findall(r"tile\.matmul +1 ", text)) >= products, text
    if platform.machine() != "x86_64" or not has_tiles(tmp_path):
        pytest.skip("no AMX")
    found = []
    for level in ("amx", "vnni"):
        for threads in (1, 3):
            with Artifact(compiled(path, level), threads=threads) as a:
                found.append(a.run(feed)[0])
    assert all(np.array_equal(f, found[0]) for f in found)


OPEN = [1, 2, 7, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 100, 131]


@pytest.mark.parametrize("columns, flags", [(96, []), (100, []), (96, ["--strict"])])
def test_open_rows_of_bytes(tmp_path, columns, flags):
    """A dynamic number of rows: tiles of 32 and 16, and the rest without; the bits of dot products, with any threads."""
    nodes = [helper.make_node("MatMulInteger", ["x", "w", "z"], ["y"])]
    path = save(tmp_path / "rows.onnx", nodes, [value("x", ["b", "n", 96], TensorProto.UINT8)], [value("y", None, TensorProto.INT32)],
                {"w": DRAW.integers(-128, 128, (96, columns)).astype(np.int8), "z": np.array(3, np.uint8)})
    text = mcc(path, "--target=x86_64-linux-gnu", "-march=x86-64-v4-amx", *flags, "-stop-after=schedule", "-o", "-").stdout
    assert re.search(r"tile\.columns +(16|32) .*\n(.*\n){1,3}?.*tile\.matmul +1 ", text), text
    if platform.machine() != "x86_64" or not has_tiles(tmp_path):
        pytest.skip("no AMX")
    x = DRAW.integers(0, 256, (2, max(OPEN), 96)).astype(np.uint8)
    tiles, by_dots = (compiled(path, level, flags=flags) for level in ("amx", "vnni"))
    with Artifact(tiles, threads=1) as one, Artifact(tiles, threads=3) as three, Artifact(by_dots, threads=1) as dots:
        for n in (0, *OPEN):
            want, *got = (a.run([x[:, :n]])[0] for a in (dots, one, three))
            assert all(np.array_equal(want, y) for y in got), n


def blocks(folder, bits, block, zeros, rows, n=80, k=None):
    """A MatMulNBits of accuracy level 4 with a Relu after it, and rows of two dims, the second one of `rows`."""
    k = k or 3 * block - 8
    count = -(-k // block)
    constants = {"w": DRAW.integers(0, 256, (n, count, block * bits // 8), np.uint8), "s": DRAW.uniform(0.1, 1, (n, count)).astype(np.float32)}
    if zeros:
        constants["z"] = DRAW.integers(0, 256, (n, -(-count * bits // 8)), np.uint8)
    nodes = [helper.make_node("MatMulNBits", ["x", *constants], ["a"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block, accuracy_level=4),
             helper.make_node("Relu", ["a"], ["y"])]
    return save(folder / "blocks.onnx", nodes, [value("x", ["b" if isinstance(rows, str) else 2, rows, k])], [value("y", None)], constants, 21)


@pytest.mark.parametrize("bits, block, zeros, shape", [
    (4, 32, False, (80, 88)), (4, 32, True, (48, 576)), (4, 16, True, (80, 40)), (4, 64, False, (16, 64)), (4, 128, True, (32, 248)),
    (8, 32, False, (96, 88)), (8, 128, False, (48, 376)), (2, 64, False, (48, 184))])
def test_blocks_with_scales(tmp_path, bits, block, zeros, shape):
    """Open and fixed numbers of rows: what the reference interpreter says, and the bits that dot products give, for a row alone too."""
    path = blocks(tmp_path, bits, block, zeros, "n", *shape)
    (tmp_path / "fixed").mkdir()
    fixed = blocks(tmp_path / "fixed", bits, block, zeros, 24, *shape)
    for at in (path, fixed):
        text = mcc(at, "--target=x86_64-linux-gnu", "-march=x86-64-v4-amx", "-stop-after=schedule", "-o", "-").stdout
        assert re.search(r"tile\.columns +(8|12|16|24) .*\n(.*\n){1,3}?.*tile\.matmul +1 ", text), text
    if platform.machine() != "x86_64" or not has_tiles(tmp_path):
        pytest.skip("no AMX")
    x = floats(2, max(OPEN), shape[1], seed=bits * block)
    x[0, 5] = 0
    x[1, 20, 3] = 1e30
    tiles = compiled(path, "amx")
    with Artifact(tiles, threads=1) as one, Artifact(tiles, threads=3) as three, Artifact(compiled(path, "vnni"), threads=1) as dots:
        whole = dots.run([x])[0]
        for n in (0, *OPEN):
            want, *got = (a.run([x[:, :n]])[0] for a in (dots, one, three))
            assert all(np.array_equal(want, y) for y in got) and np.array_equal(want, whole[:, :n]), n
    with Artifact(compiled(fixed, "amx"), threads=2) as a, Artifact(compiled(fixed, "vnni"), threads=1) as dots:
        assert np.array_equal(a.run([x[:, :24]])[0], dots.run([x[:, :24]])[0])
    assert interpreted(Model(tmp_path, path=path), [x[:, :33]]).returncode == 0
    want = np.load(next((tmp_path / "eval").glob("*.npy")))
    assert (np.abs(whole[:, :33] - want).max(-1) <= 1e-6 * np.abs(want).max(-1)).all()


def test_open_rows_of_bf16(tmp_path):
    """With an epilogue; --strict has none, since CPUs round products of bf16 in their own ways."""
    path = save(tmp_path / "rows.onnx", [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "c"], ["b"]),
                                         helper.make_node("Relu", ["b"], ["y"])], [value("x", ["n", 96])], [value("y", None)],
                {"w": floats(96, 70), "c": floats(70)})
    texts = [mcc(path, "--target=x86_64-linux-gnu", "-march=x86-64-v4-amx", "--precision=bf16", *flags, "-stop-after=schedule", "-o", "-").stdout
             for flags in ([], ["--strict"])]
    assert [bool(re.search(r"tile\.matmul +1 ", text)) for text in texts] == [True, False]
    if platform.machine() != "x86_64" or not has_tiles(tmp_path):
        pytest.skip("no AMX")
    x = floats(max(OPEN), 96, seed=2)
    with Artifact(compiled(path, "amx", flags=["--precision=bf16"]), threads=2) as tiles, Artifact(compiled(path, "bf16", flags=["--precision=bf16"])) as dots:
        for n in OPEN:
            want, got = dots.run([x[:n]])[0], tiles.run([x[:n]])[0]
            assert np.abs(want - got).max() < 1e-5 * np.abs(want).max(), n


def test_bf16(tmp_path):
    """Other last bits than by pairs, as products of a step are summed apart."""
    path = save(tmp_path / "halves.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [40, 96])], [value("y", None)],
                {"w": floats(96, 70)})
    text = mcc(path, "--target=x86_64-linux-gnu", "-march=x86-64-v4-amx", "--precision=bf16", "-stop-after=schedule", "-o", "-").stdout
    assert re.search(r"tile\.matmul +1 ", text)
    strict = mcc(path, "--target=x86_64-linux-gnu", "-march=x86-64-v4-amx", "--precision=bf16", "--strict", "-stop-after=schedule", "-o", "-").stdout
    assert "tile.matmul" in strict and not re.search(r"tile\.matmul +1 ", strict)
    if platform.machine() != "x86_64" or not has_tiles(tmp_path):
        pytest.skip("no AMX")
    x, found = floats(40, 96, seed=2), []
    for level in ("amx", "bf16"):
        with Artifact(compiled(path, level, flags=["--precision=bf16"]), threads=1) as a:
            found.append(a.run([x])[0])
    assert np.abs(found[0] - found[1]).max() < 1e-5 * np.abs(found[1]).max()


def test_no_proof_of_bf16(tmp_path):
    """Products of bf16 are no products of the field that mcc prove computes in, whatever their sums are."""
    if platform.machine() != "x86_64":
        pytest.skip("no AMX")
    path = save(tmp_path / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Cast", ["a"], ["y"], to=TensorProto.FLOAT)],
                [value("x", [32, 64], TensorProto.BFLOAT16)], [value("y", [32, 64])], {"w": floats(64, 64).astype(ml_dtypes.bfloat16)})
    done = mcc("prove", path, "-march=x86-64-v4-amx")
    if "this CPU does not run it" in done.stdout:
        pytest.skip("no AMX")
    assert done.returncode == 6 and "'matmul' of bf16 has no meaning in the field" in done.stdout, (done.stdout, done.stderr)


def test_convolutions_of_bf16(tmp_path):
    """They are by tiles rather than in Winograd's form, and a BatchNormalization before one is a kernel of its own."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4), helper.make_node("Add", ["a", "c"], ["d"]),
                                        helper.make_node("Relu", ["d"], ["b"]), helper.make_node("Conv", ["b", "v"], ["e"]),
                                        helper.make_node("Mul", ["a", "a"], ["f"]), helper.make_node("Sigmoid", ["e"], ["y"])],
                [value("x", [1, 64, 56, 56])], [value("y", None), value("f", None)],
                {"w": floats(64, 64, 3, 3, scale=0.05), "c": floats(1, 64, 1, 1), "v": floats(64, 64, 1, 1, scale=0.1)})
    texts = [mcc(path, "--target=x86_64-linux-gnu", f"-march=x86-64-v4-{level}", "--precision=bf16", "-stop-after=schedule", "-o", "-").stdout
             for level in ("bf16", "amx")]
    assert [len(re.findall(r"tile\.matmul +1 ", text)) for text in texts] == [0, 2]
    assert ": winograd" in texts[0] and ": winograd" not in texts[1]


def refuse():
    """Between fork and exec: a filter that lets nobody ask for registers."""
    def step(code, yes, no, k):
        return struct.pack("<HBBI", code, yes, no, k)
    steps = [step(0x20, 0, 0, 0), step(0x15, 0, 3, ARCH_PRCTL), step(0x20, 0, 0, 16), step(0x15, 0, 1, REQUEST_PERMISSION),
             step(0x06, 0, 0, 0x00050001), step(0x06, 0, 0, 0x7FFF0000)]   # EPERM; all else is allowed
    code = ctypes.create_string_buffer(b"".join(steps))
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, 2, program, 0, 0):
        os._exit(99)


def test_refused(tmp_path):
    if platform.machine() != "x86_64" or not has_tiles(tmp_path):
        pytest.skip("no AMX")
    path, feed, _ = rows(tmp_path)
    np.save(tmp_path / "x.npy", feed[0])
    alone, both = compiled(path, "amx"), compiled(path, "amx", "vnni")
    text = ("import sys, numpy as np\nfrom support.artifact import Artifact\n"
            "with Artifact(sys.argv[1], threads=2) as a: np.save(sys.argv[3], a.run([np.load(sys.argv[2])])[0])")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(artifact):
        return subprocess.run([sys.executable, "-c", text, artifact, tmp_path / "x.npy", tmp_path / "y.npy"], env=env, capture_output=True,
                              text=True, preexec_fn=refuse)
    done = run(alone)
    if done.returncode == 99:
        pytest.skip("no seccomp filters")
    assert done.returncode == 1 and "this CPU cannot run the code" in done.stderr, done.stderr
    done = run(both)
    assert done.returncode == 0, done.stderr
    with Artifact(alone, threads=1) as a:
        assert np.array_equal(np.load(tmp_path / "y.npy"), a.run(feed)[0])


@pytest.mark.parametrize("rows, target, flags, made", [
    (16, "x86_64-linux", [], True), (15, "x86_64-linux", [], False), ("n", "x86_64-linux", [], False), (128, "x86_64-linux", ["--strict"], True),
    (16, "x86_64-android", [], False), (16, "x86_64-macos", [], False)])
def test_unasked_for_products_of_many_rows(tmp_path, rows, target, flags, made):
    """Without --variants the level is made where a product of known rows fills a tile and the system grants tiles."""
    w = DRAW.integers(-128, 128, (64, 32)).astype(np.int8)
    path = save(tmp_path / "m.onnx", [helper.make_node("MatMulInteger", ["x", "w"], ["y"])], [value("x", [rows, 64], TensorProto.UINT8)],
                [value("y", [rows, 32], TensorProto.INT32)], {"w": w})
    out = tmp_path / ("m.dylib" if target.endswith("macos") else "m.so")
    assert mcc(path, "-o", out, f"--target={target}", *flags).returncode == 0
    assert ("x86-64-v4-amx" in mcc("inspect", out).stdout) == made

"""Networks that were compiled before (cli/library/compile/recall.c): what the cache has of them is used for the same network and options
only, and gives the bytes that a compilation without cache gives."""
import re
import struct
import subprocess

import numpy as np
import pytest
from onnx import helper

from support.tool import DIGITS, MCC, ROOT, mcc, save, value

ROWS = re.findall(r'^[A-Z_]+\([\w.]+, "([^"]+)", (?:(?:0|\'.\'), )?"(\w+)"', (ROOT / "cli/library/options/options.def").read_text(), re.M)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def network(path, scale=0.5, seed=0):
    """Convolutions, a scalar that becomes an immediate, attention, a cache, logits: all that options have an effect on."""
    node = helper.make_node
    nodes = [node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]), node("Mul", ["c", "s"], ["m"], "scaled"),
             node("Conv", ["m", "v"], ["y"], "last", pads=[1, 1, 1, 1]), node("MatMul", ["q", "k"], ["a"]), node("Softmax", ["a"], ["p"]),
             node("MatMul", ["p", "u"], ["z"]), node("MatMul", ["t", "b"], ["logits"], "head"), node("Concat", ["past", "row"], ["present"], axis=2)]
    inputs = [value("x", ["n", 16, 20, 20]), value("q", [2, 40, 16]), value("k", [2, 16, 40]), value("u", [2, 40, 16]), value("t", [1, "w", 32]),
              value("past", [1, 2, "p", 16]), value("row", [1, 2, "w", 16])]
    outputs = [value("y", None), value("z", None), value("logits", None), value("present", None)]
    weights = {"w": drawn(16, 16, 3, 3, seed=seed), "v": drawn(16, 16, 3, 3, seed=seed + 1) * (drawn(16, 16, 3, 3, seed=9) > 1.6),
               "s": np.float32(scale), "b": drawn(32, 64)}
    return save(path, nodes, inputs, outputs, weights)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return network(tmp_path_factory.mktemp("recall") / "net.onnx")


CPU = "-march=x86-64-v3"


def made(model, out, *flags):
    done = mcc(model, "-o", out, *flags)
    assert done.returncode == 0, done.stderr
    return out.read_bytes()


def whole(folder):
    return sorted(folder.glob("*.net"))


def drop_functions(folder):
    """So only a record can give them."""
    for path in folder.iterdir():
        if re.fullmatch("[0-9a-f]{16}", path.name):
            path.unlink()


def test_nothing_is_compiled_again(model, tmp_path):
    cache = tmp_path / "cache"
    cold = made(model, tmp_path / "a.so", f"--cache={cache}")
    drop_functions(cache)
    left = sorted(cache.iterdir())
    done = mcc(model, "-o", tmp_path / "b.so", f"--cache={cache}", "--stats", "--verify-each", "-v")
    assert done.returncode == 0 and (tmp_path / "b.so").read_bytes() == cold, done.stderr      # emitted anyway, and the same
    drop_functions(cache)
    done = mcc(model, "-o", tmp_path / "b.so", f"--cache={cache}", "--stats")
    found, asked = re.search(r"^cache: (\d+) of (\d+) functions$", done.stdout, re.M).groups()
    assert found == asked and int(asked) > 10 and (tmp_path / "b.so").read_bytes() == cold
    assert sorted(cache.iterdir()) == left
    drop_functions(cache)
    assert mcc(model, "-o", tmp_path / "c.so", f"--cache={cache}", "-q").returncode == 0 and (tmp_path / "c.so").read_bytes() == cold


OPTIONS = {"weights": "sidecar", "prefix": "some", "g": None, "mattr": "+avxvnni", "O": "1", "layout": "NCHW", "winograd": "off", "attention": "off",
           "sparse": "off", "strict": None, "precision": "bf16", "weights-type": "i8", "choose": "conv:tile=1x2x1", "input": "x:f32[n=1..8,16,20,20]",
           "last-logits": None, "cache-type": "bf16", "lora": "4", "overridable": "s", "limit-unroll-nodes": "7", "limit-fold-bytes": "100",
           "limit-fold-total": "1000"}
NOT_OF_COMPILE = {"dim", "break-kernel", "in-field"}    # of other commands; tests


def test_options_are_all_here():
    assert {name for name, where in ROWS if "a" in where} == set(OPTIONS) | NOT_OF_COMPILE


@pytest.fixture(scope="module")
def filled(model, tmp_path_factory):
    """A cache that has the network as it is by default."""
    folder = tmp_path_factory.mktemp("filled")
    made(model, folder / "a.so", CPU, f"--cache={folder / 'cache'}")
    return folder / "cache"


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_decide_are_in_the_key(model, filled, tmp_path, name):
    given = f"-O{OPTIONS[name]}" if name == "O" else f"--{name}" + (f"={OPTIONS[name]}" if OPTIONS[name] else "")
    plain = made(model, tmp_path / "a.so", CPU, given, "--no-cache")
    for _ in range(2):
        assert made(model, tmp_path / "a.so", CPU, given, f"--cache={filled}") == plain


@pytest.mark.parametrize("name, flag", [
    ("net.so", "-march=x86-64-v2"), ("net.o", "-march=x86-64-v3"), ("net.a", "-march=x86-64-v3"), ("net.so", "--variants=x86-64-v3,x86-64-v2"),
    ("net.so", "--target=aarch64-linux"), ("net.dll", "--target=x86_64-windows"), ("net.obj", "--target=x86_64-windows"),
    ("net.lib", "--target=x86_64-windows"), ("net.wasm", "--target=wasm32"), ("net.dylib", "--target=aarch64-macos"),
    ("other.dylib", "--target=aarch64-macos")])
def test_targets_and_kinds(model, filled, tmp_path, name, flag):
    out = tmp_path / name
    plain = made(model, out, flag, "--no-cache")
    for _ in range(2):
        assert made(model, out, flag, f"--cache={filled}") == plain


def test_other_constants_are_another_network(model, filled, tmp_path):
    for i, other in enumerate([dict(scale=0.25), dict(seed=5)]):
        path = network(tmp_path / f"{i}.onnx", **other)
        plain, known = made(path, tmp_path / "a.so", CPU, "--no-cache"), len(whole(filled))
        assert made(path, tmp_path / "a.so", CPU, f"--cache={filled}") == plain and len(whole(filled)) > known
        assert made(path, tmp_path / "a.so", CPU, f"--cache={filled}") == plain


def test_what_is_said_is_said_again(tmp_path):
    """A compilation with a warning of these stages has no record, as the next one would not warn."""
    model, flags = network(tmp_path / "net.onnx"), (CPU, f"--cache={tmp_path / 'cache'}", "--choose=scaled:tile=4x4x4")
    said = [mcc(model, "-o", tmp_path / "a.so", *flags).stderr for _ in range(2)]
    assert "-Wchoose" in said[0] and said[0] == said[1]


def sip(key, data):
    """SipHash-2-4."""
    mask = 2 ** 64 - 1
    rotate = lambda x, n: (x << n | x >> 64 - n) & mask
    k0, k1 = struct.unpack("<2Q", key)
    v = [k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573]

    def rounds(n):
        for _ in range(n):
            v[0] = v[0] + v[1] & mask; v[1] = rotate(v[1], 13) ^ v[0]; v[0] = rotate(v[0], 32)
            v[2] = v[2] + v[3] & mask; v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = v[0] + v[3] & mask; v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = v[2] + v[1] & mask; v[1] = rotate(v[1], 17) ^ v[2]; v[2] = rotate(v[2], 32)
    for (word,) in struct.iter_unpack("<Q", data[:len(data) // 8 * 8] + data[len(data) // 8 * 8:].ljust(7, b"\0") + bytes([len(data) & 255])):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 255
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


HEAD = "<8s4Q"


def forged(path, change):
    """The entry with another result, signed with its folder's key."""
    data, key = path.read_bytes(), (path.parent / "key").read_bytes()
    magic, build, job, result, _ = struct.unpack_from(HEAD, data)
    at = struct.calcsize(HEAD)
    parts = [data[at:at + build], data[at + build:at + build + job], change(data[at + build + job:])]
    signed = sip(key, struct.pack("<3Q", *(sip(key, p) for p in parts)))
    path.write_bytes(struct.pack(HEAD, magic, build, job, len(parts[2]), signed) + b"".join(parts))


def record_of(folder):
    """Of the two entries of a network: the record, whose key has the note; that of a link is a hash."""
    def key(data):
        _, build, job, _, _ = struct.unpack_from(HEAD, data)
        return data[struct.calcsize(HEAD) + build:][:job]
    return next(p for p in whole(folder) if b"blake3=" in key(p.read_bytes()))


def test_a_record_of_other_code_is_noticed(tmp_path):
    cache = tmp_path / "cache"
    flags = DIGITS, "-o", tmp_path / "a.so", CPU, f"--cache={cache}"
    assert mcc(*flags).returncode == 0
    forged(record_of(cache), lambda result: result)
    assert mcc(*flags, "--verify-each").returncode == 0         # this is how they are signed
    forged(record_of(cache), lambda result: result[:-1] + bytes([result[-1] ^ 1]))
    done = subprocess.run([MCC, *map(str, flags), "--verify-each"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 5 and "other code for this network" in done.stderr


def test_a_record_that_is_not_whole_is_left_alone(tmp_path):
    """Counts and sizes that do not fit, in a record that is signed well: the network is compiled as if there was none."""
    cache = tmp_path / "cache"
    flags = DIGITS, "-o", tmp_path / "a.so", CPU, f"--cache={cache}"
    assert mcc(*flags).returncode == 0
    plain, path = (tmp_path / "a.so").read_bytes(), record_of(cache)
    kept = path.read_bytes()

    def word(at, to):
        return lambda r: r[:at] + struct.pack("<I", to) + r[at + 4:]
    changes = [lambda r: b"", lambda r: r[:20], lambda r: r[:len(r) // 2], lambda r: r + b"x",
               word(0, 0), word(0, 2 ** 32 - 1), word(4, 0), word(4, 2 ** 31), word(8, 2), word(12, 2 ** 32 - 1), word(16, 2 ** 30),
               word(32, 7), word(36, 1), word(44, 1), word(52, 1), word(60, 1)]   # the first unit: target, same, halves of sizes
    for i, change in enumerate(changes):
        path.write_bytes(kept)
        forged(path, change)
        done = mcc(*flags)
        assert done.returncode == 0 and (tmp_path / "a.so").read_bytes() == plain, (i, done.stderr)

"""mcc verify: the artifact that a network compiles to is recognised, and nothing else is."""
import json
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from onnx import helper

from support import schema
from support.tool import DIGITS, ROOT, compile_to, dense, mcc, result, save, value

SCHEMA = json.loads((ROOT / "docs/json.schema.json").read_text())
SAME, REFUSED, USAGE, SYSTEM, ANOTHER = 0, 1, 2, 3, 6


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return dense(tmp_path_factory.mktemp("verify") / "net.onnx")


@pytest.fixture(scope="module")
def conv(tmp_path_factory):
    """With a 3 x 3 convolution, so that more options decide."""
    w = np.random.default_rng(1).standard_normal((16, 16, 3, 3)).astype(np.float32)
    return save(tmp_path_factory.mktemp("verify") / "conv.onnx", [helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1])],
                [value("x", ["n", 16, 32, 32])], [value("y", ["n", 16, 32, 32])], {"w": w})


def edited(path, to, before, after):
    """A copy in which some bytes, which it has once, are others."""
    data = path.read_bytes()
    assert data.count(before) == 1 and len(before) == len(after), data.count(before)
    to.write_bytes(data.replace(before, after))
    return to


@pytest.mark.parametrize("name", ["net.so", "net.o", "net.a"])
@pytest.mark.parametrize("options", [[], ["-O1"], ["--prefix=some", "--input=x:f32[n=1..8,4]"], ["--march=native"], ["-g"], ["--weights=sidecar"],
                                     ["--variants=x86-64-v3", "--mattr=+avxvnni"], ["--target=aarch64-linux", "--precision=bf16"],
                                     ["--weights-type=i8", "--overridable=b", "--limit-unroll-nodes=7"]])
def test_same(network, tmp_path, name, options):
    path = compile_to(tmp_path / name, network, *options)
    (tmp_path / "other").mkdir()
    moved = shutil.move(path, tmp_path / "other/renamed.bin")  # neither its name nor its folder matters
    if "--weights=sidecar" in options:
        shutil.move(tmp_path / "net.mccw", tmp_path / "other")
    done = mcc("verify", moved, network)
    assert done.returncode == SAME and f"made of '{network}'" in done.stdout, done.stderr
    assert mcc("verify", moved, network, "-q").stdout == ""


@pytest.mark.parametrize("name, target", [("net.dll", "x86_64-windows"), ("net.obj", "x86_64-windows"), ("net.lib", "aarch64-windows"), ("net.wasm", "wasm32"),
                                          ("net.so", "riscv64-linux"), ("net.so", "aarch64-android"), (".other Ä.dylib", "aarch64-macos"),
                                          ("n" * 249 + ".dylib", "x86_64-macos"), ("net.o", "aarch64-ios"), ("net.a", "x86_64-macos")])
def test_same_of_other_systems(network, tmp_path, name, target):
    path = compile_to(tmp_path / name, network, f"--target={target}")
    assert mcc("verify", path, network).returncode == SAME
    assert mcc("verify", path, DIGITS).returncode == ANOTHER


def test_universal(network, tmp_path):
    path = compile_to(tmp_path / "net.dylib", network, "--target=x86_64-macos,aarch64-macos")
    done = mcc("verify", path, network)
    assert done.returncode == REFUSED and "lipo -thin" in done.stderr
    subprocess.run(["llvm-lipo-19", path, "-thin", "arm64", "-output", tmp_path / "thin"], check=True)
    assert mcc("verify", tmp_path / "thin", network).returncode == SAME


@pytest.mark.parametrize("options", [["--winograd=off"], ["--layout=NCHW"], ["--choose=conv:layout=plain"], ["--break-kernel=conv"]])
def test_options_that_decide(conv, tmp_path, options):
    usual, path = compile_to(tmp_path / "usual.so", conv), compile_to(tmp_path / "net.so", conv, *options)
    assert usual.read_bytes() != path.read_bytes()
    assert mcc("verify", path, conv).returncode == SAME
    assert [text for text in result("inspect", path)["build"] if "blake3=" not in text] == [options[0].removeprefix("--")]


def test_the_note_says_nothing_of_the_way(network, tmp_path):
    """Names, folders, threads, caches and options as they are anyway are not in it: the same bytes."""
    usual = compile_to(tmp_path / "usual.so", network).read_bytes()
    for options in ["-j1"], ["-O2", "--winograd=auto"], ["--no-cache", "-Werror", "--emit=header"], ["--variants=all"]:
        assert compile_to(tmp_path / "net.so", network, *options).read_bytes() == usual
    one = compile_to(tmp_path / "a.so", network, "--march=x86-64-v3")
    assert one.read_bytes() == compile_to(tmp_path / "b.so", network, "--variants=x86-64-v3").read_bytes()


def test_schedules(network, tmp_path):
    file, other = tmp_path / "schedules.txt", tmp_path / "other.txt"
    done = mcc(network, "-o", tmp_path / "net.so", "--print-after=schedule")
    file.write_text(done.stderr)
    other.write_text(done.stderr + "\n")
    path = compile_to(tmp_path / "net.so", network, f"--schedules={file}")
    assert mcc("verify", path, network, f"--schedules={file}").returncode == SAME
    assert mcc("verify", path, network, f"--schedules={other}").returncode == ANOTHER
    done = mcc("verify", path, network)
    assert done.returncode == USAGE and "--schedules=FILE" in done.stderr
    assert mcc("verify", compile_to(tmp_path / "net.so", network), network, f"--schedules={file}").returncode == USAGE


def test_quantized(tmp_path):
    net = dense(tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32))
    for name in "bytes.so", "bytes.onnx":
        assert mcc("quantize", net, "--sample", f"x={tmp_path}/x.npy", "--dim=n=4", "-o", tmp_path / name).returncode == 0
    assert mcc("verify", tmp_path / "bytes.so", tmp_path / "bytes.onnx").returncode == SAME
    assert mcc("verify", tmp_path / "bytes.so", net).returncode == ANOTHER


def test_external_data(tmp_path):
    model = onnx.load(dense(tmp_path / "inside.onnx"))
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    path = compile_to(tmp_path / "net.so", tmp_path / "net.onnx")
    assert mcc("verify", path, tmp_path / "net.onnx").returncode == SAME
    data = bytearray((tmp_path / "net.data").read_bytes())
    data[0] ^= 1
    (tmp_path / "net.data").write_bytes(data)
    assert mcc("verify", path, tmp_path / "net.onnx").returncode == ANOTHER


def test_another_network(network, tmp_path):
    path = compile_to(tmp_path / "net.so", network)
    noted = result("inspect", path)["build"][0].removeprefix("blake3=")
    done = mcc("verify", path, DIGITS)
    assert done.returncode == ANOTHER and "another network" in done.stderr and noted in done.stderr
    copy = tmp_path / "copy.onnx"
    model = onnx.load(network)
    model.doc_string = "the same in other bytes"
    onnx.save(model, copy)
    assert mcc("verify", path, copy).returncode == ANOTHER


def test_changed_weights(network, tmp_path):
    path = compile_to(tmp_path / "net.so", network)
    data = bytearray(path.read_bytes())
    weight = onnx.numpy_helper.to_array(onnx.load(network).graph.initializer[0]).tobytes()
    at = data.index(weight[:4])
    data[at] ^= 1
    path.write_bytes(data)
    done = mcc("verify", path, network)
    assert done.returncode == ANOTHER and f"1 bytes differ, the first is byte {at} " in done.stderr, done.stderr
    data[100] ^= 1
    path.write_bytes(data)
    assert mcc("verify", path, network).returncode == SYSTEM  # its own hash says so


def test_changed_sidecar(network, tmp_path):
    path = compile_to(tmp_path / "net.so", network, "--weights=sidecar")
    side = tmp_path / "net.mccw"
    data = bytearray(side.read_bytes())
    side.write_bytes(data + b"\0")
    done = mcc("verify", path, network)
    assert done.returncode == ANOTHER and "net.mccw" in done.stderr
    side.unlink()
    done = mcc("verify", path, network)
    assert done.returncode == SYSTEM and "net.mccw" in done.stderr
    assert not list(tmp_path.glob("mcc-*"))


def test_other_versions_and_options(network, conv, tmp_path):
    path = compile_to(tmp_path / "net.o", network, "--prefix=abcdefg", "--layout=NCHW")
    done = mcc("verify", edited(path, tmp_path / "a.o", b"mcc 0.1.0\0", b"mcc 0.0.9\0"), network)
    assert done.returncode == REFUSED and "mcc 0.0.9" in done.stderr and "that version" in done.stderr
    done = mcc("verify", edited(path, tmp_path / "b.o", b"layout=NCHW\0", b"lay_ut=NCHW\0"), network)
    assert done.returncode == REFUSED and "'lay_ut'" in done.stderr
    done = mcc("verify", edited(path, tmp_path / "c.o", b"layout=NCHW\0", b"layout=NCHV\0"), network)
    assert done.returncode == REFUSED and "NCHV" in done.stderr
    done = mcc("verify", edited(path, tmp_path / "d.o", b"prefix=abcdefg\0", b"worker=abcdefg\0"), network)  # no option of bytes
    assert done.returncode == REFUSED and "'worker'" in done.stderr
    done = mcc("verify", edited(path, tmp_path / "e.o", b"layout=NCHW\0", b"layout=NCHW."), network)
    assert done.returncode == REFUSED
    path = compile_to(tmp_path / "conv.o", conv, "--layout=NCHW")
    done = mcc("verify", edited(path, tmp_path / "f.o", b"layout=NCHW\0", b"layout=NHWC\0"), conv)
    assert done.returncode == ANOTHER and "bytes differ" in done.stderr


def test_names_with_folders(network, tmp_path):
    path = compile_to(tmp_path / "net.o", network, "-g")
    done = mcc("verify", edited(path, tmp_path / "a.o", b"output=net.o\0", b"output=../.o\0"), network)
    assert done.returncode == SYSTEM and "folders" in done.stderr


def test_no_note(network, tmp_path):
    path = compile_to(tmp_path / "net.o", network)
    done = mcc("verify", edited(path, tmp_path / "a.o", b".mcc.build\0", b".mcc.guild\0"), network)
    assert done.returncode == REFUSED and "no note" in done.stderr
    assert mcc("verify", network, network).returncode == SYSTEM
    for args in [path], [path, network, network], []:
        assert mcc("verify", *args).returncode == USAGE


def test_json(network, tmp_path):
    path = compile_to(tmp_path / "net.so", network, "-O1")
    found = result("verify", path, network)
    assert schema.wrong(found, SCHEMA["$defs"]["verify"], SCHEMA) is None
    assert found["same"] and found["network"] and found["differ"] == 0 and found["build"][1:] == ["O=1"]
    done = mcc("verify", "--json", path, DIGITS)
    data = json.loads(done.stdout)
    assert schema.wrong(data, SCHEMA, SCHEMA) is None and data["status"] == done.returncode == ANOTHER
    assert not data["result"]["same"] and not data["result"]["network"] and data["diagnostics"][0]["class"] == "claim"


def test_hash_of_the_network(network, tmp_path):
    """The note's hash is that of b3sum. BLAKE3 of few bytes: one chunk of blocks, in Python."""
    small = tmp_path / "small.onnx"
    model = save(small, [helper.make_node("Relu", ["x"], ["y"])], [value("x", [1])], [value("y", [1])])
    assert result("inspect", compile_to(tmp_path / "net.so", model))["build"] == ["blake3=" + blake3(small.read_bytes())]
    assert blake3(b"") == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"


def blake3(data):
    """At most 1024 bytes (the paper's section 2.2: a root chunk)."""
    assert len(data) <= 1024
    start = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19]
    chain, blocks = start, [data[i:i + 64] for i in range(0, len(data), 64)] or [b""]
    for i, block in enumerate(blocks):
        flags = (i == 0) | (i == len(blocks) - 1) * (2 | 8)
        chain = compress(chain, block, flags, start)
    return b"".join(word.to_bytes(4, "little") for word in chain).hex()


def compress(chain, block, flags, start):
    m = [int.from_bytes(block.ljust(64, b"\0")[4 * i:4 * i + 4], "little") for i in range(16)]
    v, mask = chain + start[:4] + [0, 0, len(block), flags], 0xFFFFFFFF

    def turn(x, n):
        return (x >> n | x << 32 - n) & mask

    def mix(a, b, c, d, x, y):
        for word, first, second in (x, 16, 12), (y, 8, 7):
            v[a] = (v[a] + v[b] + word) & mask
            v[d] = turn(v[d] ^ v[a], first)
            v[c] = (v[c] + v[d]) & mask
            v[b] = turn(v[b] ^ v[c], second)

    for _ in range(7):
        for k, at in enumerate([(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]):
            mix(*at, m[2 * k], m[2 * k + 1])
        m = [m[i] for i in (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)]
    return [v[i] ^ v[i + 8] for i in range(8)]

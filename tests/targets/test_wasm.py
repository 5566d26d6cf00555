"""WebAssembly: the module by its sections, answers in Node.js and wasmtime against the bits of x86-64-v2 (which has no fused multiply-add
either), sizes that the run decides, refusals, and damaged modules given to the loader and to mcc inspect."""
import json
import pathlib
import platform
import random
import re
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper

from support.artifact import Artifact, ModelError
from support.tool import DIGITS, MCC, ROOT, compile_to, mcc, result, save, value
from support.wasm import NODE, Wasm

TARGET = "--target=wasm32"
LOADER = ROOT / "runtime/mcc.mjs"
THREADS = ROOT / "runtime/mcc_threads.mjs"
HEAD, IMPORT, EXPORT, START, CODE = b"\0asm\1\0\0\0", 2, 7, 8, 10
LOADER_BYTES, DAMAGED = 4096, 500
node = pytest.mark.skipif(not NODE, reason="no node: make deps-platforms")
native = pytest.mark.skipif(platform.machine() != "x86_64", reason="the bits of x86-64-v2")


def number(data, at):
    value = shift = 0
    while True:
        value, shift, at = value | (data[at] & 127) << shift, shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def sections(data):
    assert data[:8] == HEAD
    at, found = 8, []
    while at < len(data):
        size, start = number(data, at + 1)
        found.append((data[at], data[start:start + size]))
        at = start + size
    assert at == len(data)
    return found


def exports(data):
    content = dict(sections(data))[EXPORT]
    n, at = number(content, 0)
    names = []
    for _ in range(n):
        size, at = number(content, at)
        names.append(content[at:at + size].decode())
        _, at = number(content, at + size + 1)
    return names


def convolutions(path):
    """Winograd, a depthwise layer, a product, a softmax; images of any number."""
    rng = np.random.default_rng(1)
    c = {"w": rng.standard_normal((24, 8, 3, 3)).astype(np.float32), "d": rng.standard_normal((24, 1, 3, 3)).astype(np.float32),
         "m": rng.standard_normal((24, 33)).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("Conv", ["r", "d"], ["b"], pads=[1] * 4, strides=[2, 2], group=24), helper.make_node("GlobalAveragePool", ["b"], ["g"]),
             helper.make_node("Flatten", ["g"], ["f"]), helper.make_node("MatMul", ["f", "m"], ["p"]), helper.make_node("Softmax", ["p"], ["y"])]
    return save(path, nodes, [value("x", ["n", 8, 17, 19])], [value("y", ["n", 33]), value("b", ["n", 24, 9, 10])], c)


def halves(path):
    """f16 and bf16, which have no instructions here, and 64-bit integers."""
    nodes = [helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16), helper.make_node("Erf", ["h"], ["y"]),
             helper.make_node("Cast", ["x"], ["z"], to=TensorProto.BFLOAT16), helper.make_node("CumSum", ["i", "axis"], ["s"])]
    return save(path, nodes, [value("x", [5, "k"]), value("i", ["k"], TensorProto.INT64)],
                [value("y", [5, "k"], TensorProto.FLOAT16), value("z", [5, "k"], TensorProto.BFLOAT16), value("s", ["k"], TensorProto.INT64)],
                {"axis": np.array(0)})


def recurrent(path):
    rng = np.random.default_rng(2)
    c = {"w": rng.standard_normal((1, 64, 12)).astype(np.float32), "r": rng.standard_normal((1, 64, 16)).astype(np.float32)}
    return save(path, [helper.make_node("LSTM", ["x", "w", "r"], ["y", "", "c"], hidden_size=16)], [value("x", ["t", 3, 12])],
                [value("y", ["t", 1, 3, 16]), value("c", [1, 3, 16])], c)


def quantized(path):
    rng = np.random.default_rng(3)
    c = {"w": rng.integers(-128, 128, (37, 21)).astype(np.int8), "zero": np.array(3, np.uint8), "s": np.array(0.02, np.float32)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "zero"], ["q"]), helper.make_node("MatMulInteger", ["q", "w", "zero"], ["y"])]
    return save(path, nodes, [value("x", ["n", 37])], [value("y", ["n", 21], TensorProto.INT32)], c)


def feeds_of(path, sizes):
    rng = np.random.default_rng(4)
    kinds = {"f32": np.float32, "i64": np.int64}
    shapes = [(p["type"], [sizes.get(d, d) for d in p["dims"]]) for p in result("inspect", path)["inputs"]]
    return [(4 * rng.standard_normal(shape)).astype(kinds[kind]) for kind, shape in shapes]


def attention(path):
    """A few rows and keys of any number, which are split: the last part that arrives adds all of them."""
    nodes = [helper.make_node("MatMul", ["q", "k"], ["s"]), helper.make_node("Softmax", ["s"], ["p"], axis=-1), helper.make_node("MatMul", ["p", "v"], ["y"])]
    return save(path, nodes, [value("q", [1, 2, 8, 32]), value("k", [1, 2, 32, "m"]), value("v", [1, 2, "m", 32])], [value("y", [1, 2, 8, 32])])


NETS = [(convolutions, {"n": 3}), (halves, {"k": 37}), (recurrent, {"t": 5}), (quantized, {"n": 6})]


@node
@native
@pytest.mark.parametrize("make,sizes", NETS, ids=[m.__name__ for m, _ in NETS])
def test_bits(make, sizes, tmp_path):
    model = make(tmp_path / "net.onnx")
    module, library = compile_to(tmp_path / "net.wasm", model, TARGET), compile_to(tmp_path / "net.so", model, "-mcpu=x86-64-v2")
    with Wasm() as machine, Artifact(library, threads=1) as here:
        for more in 0, 40, 1:      # memory grows, and is used again
            feeds = feeds_of(module, {k: n + more for k, n in sizes.items()})
            for got, want in zip(machine.call(module, feeds), here.call(feeds), strict=True):
                assert got.shape == want.shape and got.tobytes() == want.tobytes()


@node
@native
@pytest.mark.parametrize("make,sizes", [*NETS[:3], (attention, {"m": 3000})], ids=["convolutions", "halves", "recurrent", "attention"])
def test_threads(make, sizes, tmp_path):
    """A module that workers share has the bits of one thread, of sizes that are worth sharing and small ones."""
    model = make(tmp_path / "net.onnx")
    module, library = compile_to(tmp_path / "net.wasm", model, TARGET, "-mattr=+atomics"), compile_to(tmp_path / "net.so", model, "-mcpu=x86-64-v2")
    found = dict(sections(module.read_bytes()))
    assert b"\3env\6memory\2\3" in found[IMPORT] and b"\3env\x0amcc_launch\0" in found[IMPORT] and START not in found
    assert result("inspect", module)["inputs"][0]["name"] in ("x", "q")
    with Wasm() as machine, Artifact(library, threads=1) as here:
        for threads in 3, 1, 2:
            for more in 0, 40, 1:
                feeds = feeds_of(module, {k: n + more for k, n in sizes.items()})
                for got, want in zip(machine.call(module, feeds, threads=threads), here.call(feeds), strict=True):
                    assert got.shape == want.shape and got.tobytes() == want.tobytes()


@node
def test_threads_that_fail(tmp_path):
    """A failure in a worker's part is the run's; the next run is whole."""
    save(tmp_path / "net.onnx", [helper.make_node("Div", ["x", "d"], ["y"])], [value(n, ["n", 1024], TensorProto.INT64) for n in "xd"],
         [value("y", ["n", 1024], TensorProto.INT64)])
    module = compile_to(tmp_path / "net.wasm", tmp_path / "net.onnx", TARGET, "-mattr=+atomics")
    x = np.arange(1 << 20).reshape(-1, 1024)
    with Wasm() as machine:
        for at in (-1, 1 << 19, 0):
            d = np.full(x.shape, 3)
            d.flat[at] = 0
            with pytest.raises(ModelError, match="error -9"):
                machine.call(module, [x, d], threads=3)
        np.testing.assert_array_equal(machine.call(module, [x, np.full(x.shape, 3)], threads=3)[0], x // 3)


@node
def test_threads_say_why(tmp_path):
    """Each loader names the other's modules; a process ends although workers wait."""
    one, many = (compile_to(tmp_path / f"{name}.wasm", DIGITS, TARGET, *more) for name, more in (("one", []), ("many", ["-mattr=+atomics"])))
    asks = [f"(await import({json.dumps(str(LOADER))})).load({json.dumps(str(many))})", f"open({json.dumps(str(one))})",
            f"open({json.dumps(str(many))}, {{threads: 0.5}})", f"open({json.dumps(str(many))}, {{threads: 2}})"]
    (tmp_path / "ask.mjs").write_text(f"import {{load as open}} from {json.dumps(str(THREADS))};\n" + "".join(
        f"console.log(await (async () => {a})().then(n => 'fine', e => e.message));\n" for a in asks))
    done = subprocess.run([NODE, tmp_path / "ask.mjs"], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["mcc: mcc_threads.mjs loads it", "mcc: a module without threads: it is made with -mattr=+atomics",
                                        "mcc: 0.5 threads", "fine"], done


@node
def test_runs_without_workers(tmp_path):
    """After close() a network has the caller's thread alone."""
    save(tmp_path / "net.onnx", [helper.make_node("Exp", ["x"], ["y"])], [value("x", ["n", 1024])], [value("y", ["n", 1024])])
    module = compile_to(tmp_path / "net.wasm", tmp_path / "net.onnx", TARGET, "-mattr=+atomics")
    (tmp_path / "ask.mjs").write_text(f"""import {{load}} from {json.dumps(str(THREADS))};
const net = await load({json.dumps(str(module))}, {{threads: 3}}), x = new Float32Array(1 << 20).fill(1);
const sum = () => net.run({{x}}).y.reduce((a, b) => a + b, 0), before = sum();
net.close();
await new Promise(done => setTimeout(done, 500));
console.log(before === sum() && before > 2 << 20);
net.close();
""")
    done = subprocess.run([NODE, tmp_path / "ask.mjs"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "true\n", done


@node
def test_digits(tmp_path):
    """Without --input the number of pictures is open: the loader has it from the input."""
    module = compile_to(tmp_path / "digits.wasm", DIGITS, TARGET)
    records = np.frombuffer((ROOT / "examples/digits/digits.test").read_bytes(), np.uint8).reshape(-1, 65)
    with Wasm() as machine:
        probability, = machine.call(module, [(records[:, 1:] / 16).astype(np.float32).reshape(-1, 1, 8, 8)])
    assert (probability.argmax(1) == records[:, 0] % 48).sum() == 353


def test_wasmtime(tmp_path):
    """The function by itself: what docs/targets.md tells those who write a host."""
    wasmtime = pytest.importorskip("wasmtime", reason="no wasmtime")
    path = compile_to(tmp_path / "net.wasm", convolutions(tmp_path / "net.onnx"), TARGET, "--input=x[2,8,17,19]")
    store = wasmtime.Store()
    names = wasmtime.Instance(store, wasmtime.Module(store.engine, path.read_bytes()), []).exports(store)
    memory, at = names["memory"], (names["__heap_base"].value(store) + 63) // 64 * 64
    x, = feeds_of(path, {})
    memory.grow(store, 64)
    memory.write(store, x.tobytes(), at)
    y, b, arena = at + 65536, at + 131072, at + 196608
    assert names["net_run"](store, at, y, b, arena) == 0
    got = np.frombuffer(memory.read(store, y, y + 2 * 33 * 4), np.float32).reshape(2, 33)
    with Artifact(compile_to(tmp_path / "net.so", tmp_path / "net.onnx", "-mcpu=x86-64-v2"), threads=1) as here:
        assert got.tobytes() == here.call([x])[0].tobytes()


def test_file(tmp_path):
    path = compile_to(tmp_path / "net.wasm", DIGITS, TARGET)
    data = path.read_bytes()
    assert IMPORT not in dict(sections(data))
    assert set(exports(data)) == {"memory", "net_run", "net_plan", "net_weights", "__heap_base"}
    assert compile_to(tmp_path / "other.wasm", DIGITS, TARGET, "--prefix=net", "-j1").read_bytes() == data
    found = result("inspect", path)
    assert found["inputs"][0] == {"name": "picture", "kind": "tensor", "type": "f32", "dims": ["n", 1, 8, 8], "dynamic": False}
    assert found["target"] == "wasm32-unknown-unknown" and found["bytes"]["file"] == len(data)
    assert found["bytes"]["variants"] == [{"cpu": "wasm32-simd128", "code": len(dict(sections(data))[CODE])}]


def test_loader_size():
    assert LOADER.stat().st_size <= LOADER_BYTES


def test_relaxed(tmp_path):
    """Multiply-adds that an engine may fuse, on request alone."""
    def instructions(*options):
        text = compile_to(tmp_path / "net.s", DIGITS, TARGET, "-S", *options).read_text()
        return len(re.findall(r"\brelaxed_madd\b", text)), len(re.findall(r"\bf32x4\.mul\b", text))
    plain, relaxed = instructions(), instructions("-mattr=+relaxed-simd")
    assert plain[0] == 0 and plain[1] > 20 and relaxed[0] > 20 and relaxed[1] < plain[1]


@pytest.mark.parametrize("options,says", [
    (["-o", "n.so"], "for WebAssembly mcc makes modules (.wasm)"), (["-o", "n.a"], "for WebAssembly mcc makes modules"),
    (["-c", "-o", "n.wasm"], "for WebAssembly mcc makes modules"), (["-g", "-o", "n.wasm"], "has no line tables"),
    (["--emit=header", "-o", "n.wasm"], "makes modules alone"), (["--emit=c"], "makes modules alone"),
    (["--weights=sidecar", "-o", "n.wasm"], "holds its weights"),
    (["-mattr=-simd128", "-o", "n.wasm"], "cannot be disabled"), (["-mattr=+exception-handling", "-o", "n.wasm"], "'+exception-handling'")])
def test_what_is_not_made(options, says, tmp_path):
    done = mcc(DIGITS, TARGET, *options, cwd=tmp_path)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_only_for_wasm(tmp_path):
    done = mcc(DIGITS, "-o", tmp_path / "n.wasm")
    assert done.returncode == 2 and "a module is for --target=wasm32" in done.stderr


def test_what_needs_the_runtime(tmp_path):
    save(tmp_path / "n.onnx", [helper.make_node("NonZero", ["x"], ["y"], "find")], [value("x", [3, 4])], [value("y", [2, None], TensorProto.INT64)])
    done = mcc(tmp_path / "n.onnx", TARGET, "-o", tmp_path / "n.wasm")
    assert done.returncode == 1 and "'find' (NonZero" in done.stderr


ASK = """
import {readFileSync} from 'node:fs';
import {load} from %s;
const net = await load(%s), x = new Float32Array(64);
const ask = async (what, of) => console.log(JSON.stringify(await Promise.resolve().then(of).then(() => what + ': fine', e => e.message)));
await ask('as it is', () => net.run({picture: x}, {n: 1}));
await ask('none', () => net.run({}));
await ask('kind', () => net.run({picture: new Float64Array(64)}));
await ask('part', () => net.run({picture: new Float32Array(65)}));
await ask('said', () => net.run({picture: x}, {n: 2}));
await ask('range', () => net.run({picture: new Float32Array(64 * 9)}));
await ask('again', () => net.run({picture: x}));
await ask('bytes', () => load(readFileSync(%s)));
await ask('no file', () => load('/no/such/file.wasm'));
await ask('no module', () => load(new Uint8Array([1, 2, 3])));
await ask('empty', () => load(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])));
"""


@node
def test_loader_says_why(tmp_path):
    path = compile_to(tmp_path / "net.wasm", DIGITS, TARGET, "--input=picture[n=1..8,1,8,8]")
    (tmp_path / "ask.mjs").write_text(ASK % (json.dumps(str(LOADER)), json.dumps(str(path)), json.dumps(str(path))))
    done = subprocess.run([NODE, tmp_path / "ask.mjs"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kind = "input 'picture' takes a Float32Array"
    for line, says in zip(lines, ["as it is: fine", kind, kind, "65 elements, not [1.015625,1,8,8]",
                                  "64 elements, not [2,1,8,8]",
                                  "'n' is 9, not 1..8 by 1", "again: fine", "bytes: fine", "no such file", "no module for this",
                                  "no module of mcc"], strict=True):
        assert says in line, line


def damage(data, seed):
    """Cut, or a few bytes changed; never the same as before."""
    draw = random.Random(seed)
    if draw.random() < 0.3:
        return data[:draw.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 3))):
        at = draw.randrange(len(data)) if draw.random() < 0.5 else draw.randrange(min(600, len(data)))
        changed[at] ^= draw.randrange(1, 256)
    return bytes(changed) if changed != data else data[:-1]


@node
def test_damaged(tmp_path):
    """Each is refused with a sentence, by both."""
    data = compile_to(tmp_path / "net.wasm", DIGITS, TARGET).read_bytes()
    paths = []
    for seed in range(DAMAGED):
        paths.append(tmp_path / f"{seed}.wasm")
        paths[-1].write_bytes(damage(data, seed))
    script = tmp_path / "load.mjs"
    script.write_text(f"import {{load}} from {json.dumps(str(LOADER))};\n"
                      "for (const path of process.argv.slice(2)) await load(path).then(() => console.log('loaded'), e => console.log(e.message));\n")
    done = subprocess.run([NODE, script, *paths], capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == DAMAGED, done.stderr
    for path, line in zip(paths, lines):
        assert line.startswith("mcc: ") and len(line) > 20, (path, line)
    for path in paths:
        done = subprocess.run([MCC, "inspect", path], capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 3) and re.search(r"error: \w.{10}", done.stderr), (path, done.returncode, done.stderr)


def test_other_commands(tmp_path):
    path = compile_to(tmp_path / "net.wasm", DIGITS, TARGET)
    for command in ["run"], ["bench"]:
        done = mcc(*command, path)
        assert done.returncode == 3 and "a WebAssembly module, which mcc makes and does not run" in done.stderr, (command, done.stderr)

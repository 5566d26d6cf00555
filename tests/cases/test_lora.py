"""Adapters of low rank (--lora): the same as merged weights, in ONNX and GGUF files; ranks change from run to run, and 0 is none."""
import re

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T

from gguf.decoders import Model as Drawn
from pt2.writer import Program
from support.artifact import Artifact
from support.compare import Model, floats, node
from support.decoder import Compiled
from support.tool import ROOT, compile_to, mcc, value

WIDTH, WORDS, MOST = 64, 24, 16


def layers(folder):
    """Two products, a Gemm by a turned matrix, and one of 4 bits; paths as exporters have them."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 256, (WORDS, 2, 16), np.uint8)
    constants = {"w0": floats(WIDTH, 40, seed=1, scale=0.2), "w1": floats(WIDTH, 40, seed=2, scale=0.2), "b1": floats(WIDTH, seed=3),
                 "w2": bits, "s2": floats(WORDS * 2, seed=4, scale=0.05)}
    nodes = [node("MatMul", "x w0", "p", name="/layers.0/q_proj/MatMul"), node("Gemm", "p w1 b1", "h", name="/layers.0/o_proj/Gemm", transB=1),
             node("MatMulNBits", "h w2 s2", "y", name="/head/MatMul_Q4", domain="com.microsoft", K=WIDTH, N=WORDS, bits=4, block_size=32)]
    model = Model(folder, nodes, [value("x", ["n", WIDTH])], [value("y", ["n", WORDS])], constants)
    low = np.stack([bits & 15, bits >> 4], -1).reshape(WORDS, 2, 32).astype(np.float32) - 8
    head = (low * constants["s2"].reshape(WORDS, 2, 1)).reshape(WORDS, WIDTH)
    return model, [constants["w0"], constants["w1"].T, head.T, constants["b1"]]


def merged(x, w, pairs):
    for k, (a, b) in enumerate(pairs):
        x = x @ (w[k].astype(np.float64) + a.astype(np.float64) @ b) + (w[3] if k == 1 else 0)
    return x


def pairs_of(w, rank, seed=0):
    return [(floats(m.shape[0], rank, seed=seed + 2 * k, scale=0.2), floats(rank, m.shape[1], seed=seed + 2 * k + 1, scale=0.2))
            for k, m in enumerate(w[:3])]


@pytest.mark.parametrize("flag", ["-O0", "-O2"])
def test_merged(tmp_path, flag):
    model, w = layers(tmp_path)
    with Artifact(model.compile(flag, f"--lora={MOST}"), threads=1) as a:
        assert [p.name.decode() for p in a.inputs] == ["x"] + [f"{path}.lora_{m}" for path in ("layers.0.q_proj", "layers.0.o_proj", "head") for m in "AB"]
        for n, rank in [(1, 4), (1, 0), (3, 1), (17, MOST), (1, MOST), (5, 0)]:
            x, pairs = floats(n, WIDTH, seed=n), pairs_of(w, rank, seed=rank)
            (y,), want = a.run([x, *(m for p in pairs for m in p)]), merged(x, w, pairs)
            assert np.abs(y - want).max() <= 2e-5 * np.abs(want).max(), (n, rank)
        with pytest.raises(Exception, match="lora_rank"):
            a.run([x, *(m for p in pairs_of(w, MOST + 1) for m in p)])


def test_rank_0_changes_no_bit(tmp_path):
    model, w = layers(tmp_path)
    x = floats(9, WIDTH)
    (plain,) = model.run([x])
    (y,) = model.run([x, *(m for p in pairs_of(w, 0) for m in p)], f"--lora={MOST}")
    assert np.array_equal(plain, y)


@pytest.mark.parametrize("name, narrow", [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_narrow_inputs(tmp_path, name, narrow):
    """Matrices of 16 bits: results of the numbers that they hold, and no kernel widens them first; names may follow."""
    model, w = layers(tmp_path)
    with Artifact(model.compile(f"--lora={MOST},{name}"), threads=1) as a:
        for n, rank in [(1, 4), (1, 0), (3, 1), (17, MOST)]:
            x, pairs = floats(n, WIDTH, seed=n), [(p.astype(narrow), q.astype(narrow)) for p, q in pairs_of(w, rank, seed=rank)]
            (y,), want = a.run([x, *(m for p in pairs for m in p)]), merged(x, w, pairs)
            assert np.abs(y - want).max() <= 2e-5 * np.abs(want).max(), (n, rank)
    texts = [mcc(model.path, "-stop-after=fuse", "-o", "-", f"--lora={MOST}{t}:o_proj,head").stdout for t in ("", "," + name)]
    kernels = [len(re.findall(r"^kernel \d+", text, re.M)) for text in texts]
    assert kernels[0] == kernels[1] > 2, texts


def test_targets(tmp_path):
    model, w = layers(tmp_path)
    with Artifact(model.compile("--lora=4:o_proj"), threads=1) as a:
        assert [p.name.decode() for p in a.inputs] == ["x", "layers.0.o_proj.lora_A", "layers.0.o_proj.lora_B"]
        x, pair = floats(2, WIDTH), pairs_of(w, 3)[1]
        want = merged(x, w, [(np.zeros((WIDTH, 1)), np.zeros((1, 40))), pair, (np.zeros((WIDTH, 1)), np.zeros((1, WORDS)))])
        (y,) = a.run([x, *pair])
        assert np.abs(y - want).max() <= 2e-5 * np.abs(want).max()


@pytest.mark.parametrize("kind", ["blocks", "column", "bytes"])
def test_pairs(tmp_path, kind):
    """Weights that a DequantizeLinear widens: 4 bits in blocks, as onnxruntime-genai writes them, 8 bits by column, and with activations of bytes."""
    rng, opset = np.random.default_rng(3), 21 if kind == "blocks" else 13
    if kind == "blocks":
        q, s = rng.integers(-8, 8, (WIDTH, 40)).astype(ml_dtypes.int4), floats(WIDTH // 32, 40, seed=2, scale=0.05)
        w, form = q.astype(np.float32) * np.repeat(s, 32, 0), dict(axis=0, block_size=32)
    else:
        q, s = rng.integers(-127, 128, (WIDTH, 40)).astype(np.int8), np.abs(floats(40, seed=2, scale=0.01)) + np.float32(0.01)
        w, form = q * s, dict(axis=1)
    step, zero = np.float32(0.02), np.int8(0)
    x_pair = [node("QuantizeLinear", "x step zero", "xq"), node("DequantizeLinear", "xq step zero", "xf")] if kind == "bytes" else []
    nodes = [*x_pair, node("DequantizeLinear", "q s", "w", **form),
             node("MatMul", ("xf" if x_pair else "x") + " w", "y", name="/layers.0/q_proj/MatMul_Q4")]
    constants = {"q": q, "s": s} | ({"step": step, "zero": zero} if x_pair else {})
    model = Model(tmp_path, nodes, [value("x", ["n", WIDTH])], [value("y", ["n", 40])], constants, opset=opset)
    with Artifact(model.compile("--lora=4:q_proj"), threads=1) as a:
        assert [p.name.decode() for p in a.inputs] == ["x", "layers.0.q_proj.lora_A", "layers.0.q_proj.lora_B"]
        for n, rank in ((1, 0), (3, 4), (9, 2)):
            x, down, up = floats(n, WIDTH, seed=n), floats(WIDTH, rank, seed=5, scale=0.2), floats(rank, 40, seed=6, scale=0.2)
            (y,) = a.run([x, down, up])
            x = np.clip(np.rint(x / step), -128, 127) * step if x_pair else x
            want = x.astype(np.float64) @ (w.astype(np.float64) + down.astype(np.float64) @ up)
            assert np.abs(y - want).max() <= 1e-4 * np.abs(want).max(), (n, rank)


def test_pairs_of_another_type(tmp_path):
    """output_dtype, not the scales' type, is that of the product."""
    q, s = np.random.default_rng(3).integers(-9, 10, (WIDTH, 40)).astype(np.int8), np.abs(floats(40, seed=2, scale=0.01)) + np.float32(0.01)
    nodes = [node("DequantizeLinear", "q s", "w", axis=1, output_dtype=T.FLOAT16), node("MatMul", "x w", "y", name="/q_proj/MatMul")]
    model = Model(tmp_path, nodes, [value("x", ["n", WIDTH], T.FLOAT16)], [value("y", ["n", 40], T.FLOAT16)], {"q": q, "s": s}, opset=23)
    with Artifact(model.compile("--lora=4"), threads=1) as a:
        x, down, up = (floats(*shape, seed=k, scale=0.2).astype(np.float16) for k, shape in enumerate(((3, WIDTH), (WIDTH, 2), (2, 40))))
        (y,) = a.run([x, down, up])
    want = x.astype(np.float64) @ (q * s.astype(np.float64) + down.astype(np.float64) @ up)
    assert np.abs(y - want).max() <= 4e-3 * np.abs(want).max()


def test_exported_programs(tmp_path):
    """A .pt2, whose matrices are [out, in]: paths are its modules."""
    p, w = Program(), [floats(40, WIDTH, seed=1, scale=0.2), floats(WIDTH, 40, seed=2, scale=0.2)]
    h, rows = p.input("x", "float32", [p.symbol("s0", 1, 64), WIDTH]), p.symbol("s0", 1, 64)
    weights = [p.weight(f"layers.0.{name}.weight", x) for name, x in zip(("q_proj", "o_proj"), w)]
    for k, name in enumerate(("q_proj", "o_proj")):
        h = p.node("aten.linear.default", [h, weights[k]], [(f"linear_{k}", "float32", [rows, len(w[k])])])
        p.came_from("/home/me/nets.py", 12, f"layers.0.{name}")
    p.output(h)
    path = p.save(tmp_path / "net.pt2")
    with Artifact(compile_to(tmp_path / "net.so", path, "-q", "--lora=4"), threads=1) as a:
        assert [p.name.decode() for p in a.inputs] == ["x"] + [f"layers.0.{name}.lora_{m}" for name in ("q_proj", "o_proj") for m in "AB"]
        for n, rank in ((1, 0), (5, 3)):
            x, want, pairs = floats(n, WIDTH, seed=n), floats(n, WIDTH, seed=n).astype(np.float64), []
            for k, m in enumerate(w):
                pairs += [floats(m.shape[1], rank, seed=k, scale=0.2), floats(rank, m.shape[0], seed=k + 2, scale=0.2)]
                want = want @ (m.T + pairs[-2].astype(np.float64) @ pairs[-1])
            (y,) = a.run([x, *pairs])
            assert np.abs(y - want).max() <= 2e-5 * np.abs(want).max(), (n, rank)


@pytest.mark.parametrize("spec, text", [
    ("0", "is not RANK"), ("-1", "is not RANK"), ("4:", "is not RANK"), ("4x", "is not RANK"), ("99999999999999999999", "is not RANK"),
    ("5000", "from 1 to 4096"), ("4,", "is not RANK"), ("4,f8", "is not RANK"), ("4,bf16,f16", "is not RANK"), ("4,bf16:", "is not RANK"),
    ("4:q_proj,proj", "no product by a constant matrix has 'proj' in its name"), ("4:q_proj,,o_proj", "has '' in its name"),
    ("4:" + ",".join(["q_proj"] * 65), "more than 64 names")])
def test_refused(tmp_path, spec, text):
    done = mcc(layers(tmp_path)[0].path, "-o", tmp_path / "none.so", f"--lora={spec}")
    assert done.returncode == 2 and text in done.stderr, done.stderr


def test_one_name_twice(tmp_path):
    nodes = [node("MatMul", "x w", "p", name="fc"), node("MatMul", "p w", "y", name="fc")]
    model = Model(tmp_path, nodes, [value("x", ["n", 8])], [value("y", ["n", 8])], {"w": floats(8, 8)})
    done = mcc(model.path, "-o", tmp_path / "none.so", "--lora=4")
    assert done.returncode == 2 and "two products are called 'fc'" in done.stderr, done.stderr


class Adapted(Compiled):
    """A decoder whose adapters may be others in each step: {path: (A, B)}; paths without one have zeros."""
    adapter, rank = {}, 0

    def step(self, ids):
        for p in self.artifact.inputs:
            name = p.name.decode()
            path, _, which = name.rpartition(".lora_")
            if path:
                dims = [p.dims[d].extent if p.dims[d].extent >= 0 else self.rank for d in range(2)]
                self.caches[name] = self.adapter[path]["AB".index(which)] if path in self.adapter else np.zeros(dims, np.float32)
        return super().step(ids)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_decoder(tmp_path, kind, monkeypatch):
    """Logits against those of merged weights, in f64; adapters change between sequences."""
    monkeypatch.setattr("support.decoder.is_cache", lambda n: n.startswith("past_key_values.") or ".lora_" in n)
    model = Drawn("llama", kind=kind)
    flags = ("-q", "-march=native", "--precision=exact", "--lora=8:attn_q,attn_v,ffn_down")
    compile_to(tmp_path / "m.so", model.file().save(tmp_path / "m.gguf"), *flags)
    prompt, plain = [3, 141, 59, 26, 53, 58], dict(model.w)
    decoder = Adapted(tmp_path / "m.so")
    rng = np.random.default_rng(2)
    for rank in (0, 5, 8, 0):
        model.w, decoder.rank, decoder.adapter = dict(plain), rank, {}
        for path in ("blk.0.attn_q", "blk.1.attn_v", "blk.1.ffn_down") if rank else ():
            out, in_ = plain[path + ".weight"].shape
            a, b = (rng.standard_normal(s).astype(np.float32) * 0.1 for s in ((in_, rank), (rank, out)))
            decoder.adapter[path] = a, b
            model.w[path + ".weight"] = plain[path + ".weight"] + (a.astype(np.float64) @ b).T
        decoder.begin(0)
        found = np.concatenate([decoder.step(np.array([ids], np.int64)) for ids in (prompt[:4], prompt[4:5], prompt[5:])])
        want = model.logits(prompt)
        assert np.abs(found - want).max() <= 2e-5 * np.abs(want).max(), rank


def test_babyllama(tmp_path, monkeypatch):
    """4 bits: the logits of the file in which the adapters are written as onnxruntime-genai exports them, as inputs, MatMul and Add."""
    monkeypatch.setattr("support.decoder.is_cache", lambda n: n.startswith("past_key_values.") or ".lora_" in n)
    path = ROOT / "examples/story/babyllama-int4.onnx"
    model, rng, adapter = onnx.load(path), np.random.default_rng(3), {}
    graph, nodes = model.graph, []
    for n in list(graph.node):
        nodes.append(n)
        if n.op_type == "MatMulNBits" and "o_proj" in n.name:
            k, width = (next(a.i for a in n.attribute if a.name == name) for name in "KN")
            name, out = n.name[1:].rsplit("/", 1)[0].replace("/", "."), n.output[0]
            n.output[0] = out + ".base"
            graph.input.extend([value(f"{name}.lora_A", [k, "r"], T.FLOAT), value(f"{name}.lora_B", ["r", width], T.FLOAT)])
            nodes += [node("MatMul", f"{n.input[0]} {name}.lora_A", f"{out}.a"), node("MatMul", f"{out}.a {name}.lora_B", f"{out}.b"),
                      node("Add", f"{out}.base {out}.b", out)]
            adapter[name] = tuple(rng.standard_normal(d).astype(np.float32) * 0.2 for d in ((k, 4), (4, width)))
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, tmp_path / "written.onnx")
    found = []
    for file, flags in ((tmp_path / "written.onnx", ()), (path, ("--lora=8:o_proj",))):
        decoder = Adapted(compile_to(tmp_path / "m.so", file, "-q", "-march=native", *flags))
        decoder.rank, decoder.adapter = 4, adapter
        found.append(decoder.tokens([1, 5, 9, 20], 12))
    plain = Adapted(compile_to(tmp_path / "m.so", path, "-q", "-march=native")).tokens([1, 5, 9, 20], 12)
    assert found[0][0] == found[1][0] != plain[0]
    assert np.abs(np.subtract(found[0][1], found[1][1])).max() <= 2e-5 * np.abs(found[0][1]).max()

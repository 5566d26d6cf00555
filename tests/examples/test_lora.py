"""Adapters as PEFT saves them in examples/chat and examples/server: tokens are those of a model whose weights have the adapter merged in."""
import ctypes as c
import json
import random
import struct
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from cases.test_lora import Adapted
from examples.test_chat import letters_folder
from examples.test_server import BEGINNINGS, Server, made, needs_microhttpd, together
from gguf import babyllama, vocabularies
from support.compare import node
from support.decoder import Compiled
from support.tokens import needs_jansson
from support.tool import BUILD, ROOT, compile_to, value

pytestmark = needs_jansson
MODULES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
GGUF = dict(zip(MODULES, ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")))
KEYS = babyllama.WIDTH * babyllama.KEYS // babyllama.HEADS
SIZES = dict(zip(MODULES, [(babyllama.WIDTH, n) for n in (babyllama.WIDTH, KEYS, KEYS, babyllama.WIDTH, babyllama.FORWARD, babyllama.FORWARD)]
                 + [(babyllama.FORWARD, babyllama.WIDTH)]))
CONFIG = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "bias": "none", "init_lora_weights": True, "modules_to_save": None, "use_dora": False,
          "alpha_pattern": {}, "rank_pattern": {}, "target_modules": ["q_proj"], "fan_in_fan_out": False}


# ---- files of safetensors and PEFT, written by their specification

def bf16(x):
    """The upper halves, as bytes; and what they stand for."""
    bits = np.asarray(x, np.float32).view(np.uint32) & 0xffff0000
    return (bits >> 16).astype(np.uint16).tobytes(), bits.view(np.float32)


PACKED = {"F32": lambda x: (x.tobytes(), x), "F16": lambda x: (x.astype(np.float16).tobytes(), x.astype(np.float16).astype(np.float32)), "BF16": bf16}


def safetensors(tensors):
    """{name: (type, shape, bytes)}"""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, shape, bytes_) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def drawn(modules, seed, rank=4, scale=0.1, ranks={}):
    """{module: (A [rank, in], B [out, rank])}, of all layers."""
    rng, found = np.random.default_rng(seed), {}
    for layer in range(babyllama.LAYERS):
        for module in modules:
            (in_, out), r = SIZES[module], ranks.get(module, rank)
            found[f"model.layers.{layer}.{module}"] = tuple((rng.standard_normal(s) * scale).astype(np.float32) for s in ((r, in_), (out, r)))
    return found


def tensors_of(pairs, kind="F32"):
    """What the file has, and the pairs as it rounds them."""
    packed = {(m, x): PACKED[kind](p) for m, pair in pairs.items() for x, p in zip("AB", pair)}
    tensors = {f"base_model.model.{m}.lora_{x}.weight": (kind, pairs[m]["AB".index(x)].shape, data) for (m, x), (data, _) in packed.items()}
    return tensors, {m: (packed[m, "A"][1], packed[m, "B"][1]) for m in pairs}


def save(folder, tensors, **config):
    folder.mkdir(exist_ok=True)
    (folder / "adapter_model.safetensors").write_bytes(safetensors(tensors) if isinstance(tensors, dict) else tensors)
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | config))
    return folder


# ---- BabyLlama, plain and merged

def gguf(path, pairs={}, scale=1.0):
    """In f32, with W + scale B A; queries and keys in the order of rows that llama's files have."""
    f = babyllama.file("F32")
    f.keys += vocabularies.babyllama()
    for k, (name, number, shape, data) in enumerate(f.tensors):
        for module, short in GGUF.items():
            layer = name.split(".")[1]
            if name == f"blk.{layer}.{short}.weight" and (pair := pairs.get(f"model.layers.{layer}.{module}")):
                delta = scale * pair[1].astype(np.float64) @ pair[0]
                heads = {"attn_q": babyllama.HEADS, "attn_k": babyllama.KEYS}.get(short)
                delta = babyllama.neighbours(delta, heads) if heads else delta
                f.tensors[k] = name, number, shape, (np.frombuffer(data, np.float32).reshape(delta.shape) + delta).astype(np.float32).tobytes()
    return f.save(path)


def builders(path, packed, pairs={}, scale=1.0):
    """The file of onnxruntime-genai's builder in f32, its queries, keys and values one product or three."""
    model = onnx.load(babyllama.PATH)
    w, nodes = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}, []
    for n in model.graph.node:
        if n.op_type != "MatMulNBits":
            nodes.append(n)
            continue
        bits, scales = w[n.input[1]], w[n.input[2]]
        matrix = (np.stack([bits & 15, bits >> 4], -1).reshape(len(bits), -1) - np.float32(8)) * np.repeat(scales.reshape(len(bits), -1), 32, 1)
        path_ = n.name[1:].rsplit("/", 1)[0].replace("/", ".").replace(".attn.", ".self_attn.")
        parts = {path_: matrix}
        if path_.endswith("qkv_proj"):
            parts = dict(zip([path_.replace("qkv", x) for x in "qkv"], np.split(matrix, [babyllama.WIDTH, babyllama.WIDTH + KEYS])))
        for name, pair in pairs.items():
            if name in parts:
                parts[name] = (parts[name] + scale * pair[1].astype(np.float64) @ pair[0]).astype(np.float32)
        if packed or len(parts) == 1:
            parts = {path_: np.concatenate([*parts.values()])}
        for name, part in parts.items():
            model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(part.T, np.float32), name))
            nodes.append(node("MatMul", f"{n.input[0]} {name}", n.output[0] if len(parts) == 1 else f"{name}.out",
                              name="/" + name.replace("self_attn", "attn").replace(".", "/").replace("layers/", "layers.") + "/MatMul"))
        if len(parts) > 1:
            nodes.append(node("Concat", " ".join(f"{name}.out" for name in parts), n.output[0], axis=2))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, path)
    return path


FLAGS = ("-q", "--last-logits", "--strict")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    build = tmp_path_factory.mktemp("chat")
    done = subprocess.run(["make", "-C", ROOT / "examples/chat", f"BUILD={build}", f"MCC_BUILD={BUILD.absolute()}",
                           "CFLAGS=-O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover", build / "chat"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return build / "chat"


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lora")
    return compile_to(folder / "m.so", gguf(folder / "m.gguf"), *FLAGS, "--lora=16")


def run(program, *args, status=0):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


PROMPT, STEPS = "Once upon a time", 40


def chat(program, *args):
    return [int(t) for t in run(program, "-i", "-n", STEPS, *args, PROMPT).split()]


def same_but_for_ties(found, merged):
    """Tokens against those of the network with merged weights, up to where two words are as likely, or the end."""
    words = vocabularies.babyllama()[1][2]
    want, logits = Compiled(merged, room=256).tokens([1, *(words.index(x) for x in "▁" + PROMPT.replace(" ", "▁"))], STEPS)
    want = want[:next((k for k, t in enumerate(want) if t in (1, 2)), STEPS)]
    k = next((k for k, (a, b) in enumerate(zip(found, want)) if a != b), min(len(found), len(want)))
    if found != want:
        second, first = np.sort(logits[k])[-2:]
        assert first - second < 1e-3, (k, found, want)
    assert k >= 8


@pytest.mark.parametrize("kind", PACKED)
def test_gguf(program, network, tmp_path, kind):
    """All products of a GGUF file, whose names and rows of queries and keys are others; the three types, each rounded as the file has it."""
    tensors, pairs = tensors_of(drawn(MODULES, 3), kind)
    folder = save(tmp_path / "adapter", tensors)
    found = chat(program, "--lora", folder, network)
    assert found == chat(program, "--lora", folder / "adapter_model.safetensors", network) != chat(program, network)
    same_but_for_ties(found, compile_to(tmp_path / "m.so", gguf(tmp_path / "m.gguf", pairs, 6 / 4), "-q"))


@pytest.mark.parametrize("packed", [0, 1])
def test_builders_files(program, tmp_path, packed):
    """Queries, keys and values of a builder's file are one product, whose input has their ranks behind one another, or three; layers are attn."""
    modules = ("self_attn.q_proj", "self_attn.v_proj", "self_attn.k_proj", "mlp.down_proj") if packed else MODULES
    tensors, pairs = tensors_of(drawn(modules, 4))
    folder, _ = letters_folder(tmp_path / "model")
    network = compile_to(tmp_path / "m.so", builders(tmp_path / "m.onnx", packed), *FLAGS, f"--lora={12 if packed else 4}")
    found = chat(program, "--lora", save(tmp_path / "adapter", tensors), folder, network)
    assert found != chat(program, folder, network)
    same_but_for_ties(found, compile_to(tmp_path / "merged.so", builders(tmp_path / "merged.onnx", packed, pairs, 6 / 4), "-q"))


def test_inputs_of_16_bits(program, tmp_path):
    """The program rounds to what the network's inputs are, here without a loss: bf16 from a file of bf16, f16 from one of f16."""
    for kind in ("BF16", "F16"):
        tensors, pairs = tensors_of(drawn(MODULES, 8), kind)
        network = compile_to(tmp_path / "m.so", gguf(tmp_path / "m.gguf"), *FLAGS, f"--lora=4,{kind.lower()}")
        found = chat(program, "--lora", save(tmp_path / "adapter", tensors, lora_alpha=4), network)
        same_but_for_ties(found, compile_to(tmp_path / "merged.so", gguf(tmp_path / "merged.gguf", pairs), "-q"))


def test_scales_and_ranks(program, network, tmp_path):
    """rank_pattern, alpha_pattern, use_rslora: each module its own; lower ranks are filled up with zeros."""
    modules = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")
    pairs = drawn(modules, 5, ranks={"self_attn.v_proj": 9, "mlp.down_proj": 16})
    for config, scales in (({}, (6 / 4, 6 / 9, 6 / 16)), ({"use_rslora": True}, (3, 2, 6 / 4)),
                           ({"alpha_pattern": {"v_proj": 18, "layers.1.v_proj": 99}}, (6 / 4, 2, 6 / 16))):
        folder = save(tmp_path / "adapter", tensors_of(pairs)[0], rank_pattern={"v_proj": 9, "mlp.down_proj": 16}, **config)
        scaled = {m: (a, b * next(s for n, s in zip(modules, scales) if m.endswith(n))) for m, (a, b) in pairs.items()}
        same_but_for_ties(chat(program, "--lora", folder, network), compile_to(tmp_path / "m.so", gguf(tmp_path / "m.gguf", scaled), "-q"))


def test_zeros_are_none(program, network, tmp_path, monkeypatch):
    """An adapter of zeros changes no token, and no bit of a logit except for the sign of zeros."""
    zeros = {m: (a, 0 * b) for m, (a, b) in drawn(MODULES, 6).items()}
    assert chat(program, "--lora", save(tmp_path / "adapter", tensors_of(zeros)[0]), network) == chat(program, network)
    plain = compile_to(tmp_path / "plain.so", gguf(tmp_path / "m.gguf"), *FLAGS)
    assert chat(program, plain) == chat(program, network)
    monkeypatch.setattr("support.decoder.is_cache", lambda n: n.startswith("past_key_values.") or ".lora_" in n)
    found = []
    for decoder, rank in ((Adapted(plain), 0), (Adapted(network), 0), (Adapted(network), 4)):
        decoder.rank, rng = rank, np.random.default_rng(1)
        decoder.adapter = {f"blk.{i}.{GGUF[m]}": (rng.standard_normal((a, 4)).astype(np.float32), np.zeros((4, b), np.float32))
                           for i in range(babyllama.LAYERS) for m, (a, b) in SIZES.items()} if rank else {}
        found.append(np.array(decoder.tokens([1, 44, 20, 31], 9)[1]))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


def test_numbers_of_16_bits(tmp_path):
    """half.h against NumPy: all f16, and floats at and around the middles of two f16 and of two bf16."""
    source = tmp_path / "half.c"
    source.write_text('#include "half.h"\nvoid widen(const uint16_t *h, float *x) { for (int i = 0; i < 65536; i++) x[i] = half_float(h[i]); }\n'
                      "void narrow(const float *x, uint16_t *h, uint16_t *b, int n) { while (n--) h[n] = float_half(x[n]), b[n] = float_bf16(x[n]); }\n")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", f"-I{ROOT / 'examples/language'}", "-o", tmp_path / "half.so", source], check=True)
    lib, pointer = c.CDLL(str(tmp_path / "half.so")), lambda x: x.ctypes.data_as(c.c_void_p)
    every = np.arange(65536, dtype=np.uint16)
    wide, want = np.empty(65536, np.float32), every.view(np.float16).astype(np.float32)
    lib.widen(pointer(every), pointer(wide))
    assert np.array_equal(wide.view(np.uint32)[~np.isnan(want)], want.view(np.uint32)[~np.isnan(want)]) and np.isnan(wide[np.isnan(want)]).all()
    near = np.concatenate([every.astype(np.uint32) << 16, wide.view(np.uint32), (every.astype(np.uint32) << 16) + 0x8000, wide.view(np.uint32) + 0x1000])
    x = np.concatenate([near + d for d in (0, 1, 0xffffffff)]).astype(np.uint32).view(np.float32)
    half, brain, number = np.empty(len(x), np.uint16), np.empty(len(x), np.uint16), ~np.isnan(x)
    lib.narrow(pointer(x), pointer(half), pointer(brain), len(x))
    with np.errstate(all="ignore"):
        want = x.astype(np.float16).view(np.uint16)
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    assert np.array_equal(half[number], want[number]) and np.array_equal(brain[number], rounded[number])
    assert ((half[~number] & 0x7fff) > 0x7c00).all() and ((brain[~number] & 0x7fff) > 0x7f80).all()


# ---- .onnx_adapter

def onnx_adapter(path, pairs, name=lambda m, x: f"{m}.lora_{x}.MatMul.weight", real=np.float32):
    """As ONNX Runtime writes it: A [in, rank], B [rank, out], scaled."""
    made = onnxruntime.AdapterFormat()
    made.set_adapter_version(1), made.set_model_version(1)
    turned = {name(m, x): np.ascontiguousarray(w.T.astype(real)) for m, pair in pairs.items() for x, w in zip("AB", pair)}
    made.set_parameters({n: onnxruntime.OrtValue.ortvalue_from_numpy(w) for n, w in turned.items()})
    made.export_adapter(str(path))
    return path


@pytest.mark.parametrize("name", ["{m}.lora_{x}", "{m}.lora_{x}.weight", "{m}.lora_{x}.MatMul.weight"])
@pytest.mark.parametrize("real", [np.float32, np.float16])
def test_onnx_adapter(program, network, tmp_path, name, real):
    """The same as PEFT's file with the same numbers, its scale in B."""
    pairs = {m: (a.astype(real), b.astype(real)) for m, (a, b) in drawn(MODULES[:2] + MODULES[5:], 3).items()}
    file = onnx_adapter(tmp_path / "a.onnx_adapter", pairs, lambda m, x: name.format(m=m, x=x), real)
    folder = save(tmp_path / "adapter", tensors_of({m: (a.astype(np.float32), b.astype(np.float32)) for m, (a, b) in pairs.items()})[0], lora_alpha=4)
    assert chat(program, "--lora", file, network) == chat(program, "--lora", folder, network) != chat(program, network)


def own_inputs(path, modules):
    """A builder's file whose adapters are inputs of its own, as onnxruntime-genai has them."""
    model = onnx.load(builders(path, 0))
    for n in list(model.graph.node):
        module = n.name[1:].rsplit("/", 1)[0].replace("/", ".")
        if module.replace(".attn.", ".self_attn.").split(".", 3)[-1] not in modules or n.op_type != "MatMul":
            continue
        in_, out = SIZES[module.replace(".attn.", ".self_attn.").split(".", 3)[-1]]
        a, b = (f"{module}.lora_{x}.MatMul.weight" for x in "AB")
        model.graph.input.extend([value(a, [in_, "r"]), value(b, ["r", out])])
        at, end = list(model.graph.node).index(n), n.output[0]
        n.output[0] = f"{module}.plain"
        for k, made in enumerate([node("MatMul", f"{n.input[0]} {a}", f"{a}.out"), node("MatMul", f"{a}.out {b}", f"{b}.out"),
                                  node("Add", f"{module}.plain {b}.out", end)]):
            model.graph.node.insert(at + 1 + k, made)
    onnx.save(model, path)
    return path


def test_inputs_of_the_file(program, tmp_path):
    """Adapters that the exporter made inputs, under the names that the .onnx_adapter file has; PEFT's file fits too, and none is the plain network."""
    pairs, (folder, _) = drawn(MODULES[:1] + MODULES[6:], 4), letters_folder(tmp_path / "model")
    network = compile_to(tmp_path / "m.so", own_inputs(tmp_path / "m.onnx", MODULES), *FLAGS)
    plain = compile_to(tmp_path / "plain.so", builders(tmp_path / "plain.onnx", 0), *FLAGS)
    file = onnx_adapter(tmp_path / "a.onnx_adapter", {m.replace("self_attn", "attn"): p for m, p in pairs.items()})
    found = chat(program, "--lora", file, folder, network)
    assert found == chat(program, "--lora", save(tmp_path / "adapter", tensors_of(pairs)[0], lora_alpha=4), folder, network)
    assert found != chat(program, folder, network) == chat(program, folder, plain)
    same_but_for_ties(found, compile_to(tmp_path / "merged.so", builders(tmp_path / "merged.onnx", 0, pairs), "-q"))


def test_onnx_adapters_that_are_refused(program, network, tmp_path):
    """Names, shapes and types; damage at any place, and every end cut off: an answer or a refusal. The program has AddressSanitizer and UBSan."""
    pairs, at = drawn(MODULES[:1], 2), "model.layers.0.self_attn.q_proj"
    file, zeros = tmp_path / "a.onnx_adapter", np.zeros
    a, b = zeros((4, 128), np.float32), zeros((128, 4), np.float32)
    for wrong, text in (({at: (a[:, 1:], b)}, "for a product of 128 to 128"), ({at: (a, b[:, 1:])}, "for a product"),
                        ({at: (a[:0], b[:, :0])}, "for a product"), ({"model.layers.9.self_attn.q_proj": (a, b)}, "no input for an adapter"),
                        ({at: (zeros((17, 128), np.float32), zeros((128, 17), np.float32))}, "room for 16")):
        assert text in run(program, "--lora", onnx_adapter(file, wrong), network, "x", status=1)
    assert "not of f32" in run(program, "--lora", onnx_adapter(file, pairs, real=np.float64), network, "x", status=1)
    for name in ("{m}.lora_{x}.MatMul.weight_Q4", "{m}.lora_C{x}", "{x}.{m}", "{m}.lora_{x}." + "w" * 300):
        text = run(program, "--lora", onnx_adapter(file, pairs, lambda m, x: name.format(m=m, x=x)), network, "x", status=1)
        assert "is not understood" in text
    assert "has no adapter" in run(program, "--lora", onnx_adapter(file, {}), network, "x", status=1)
    apart = onnx_adapter(file, pairs, lambda m, x: f"{m}{'' if x == 'A' else 0}.lora_{x}")
    assert "there is no tensor" in run(program, "--lora", apart, network, "x", status=1)
    for x in "AB": # the second name becomes the first
        twice = onnx_adapter(file, {at: pairs[at], at.replace("0", "1"): pairs[at]}).read_bytes()
        file.write_bytes(twice.replace(f"{at.replace('0', '1')}.lora_{x}".encode(), f"{at}.lora_{x}".encode()))
        assert f"there are two tensors '{at}.lora_{x}" in run(program, "--lora", file, network, "x", status=1)
    good, rng = onnx_adapter(file, {at: pairs[at]}).read_bytes(), random.Random(7)
    heads = [k for k in range(len(good)) if good[k] or k % 4 == 0][:120] + list(range(len(good) - 200, len(good)))
    for k in range(150):
        bad = bytearray(good)
        for _ in range(rng.randrange(1, 3)):
            bad[rng.choice(heads)] = rng.choice((0, 1, 4, 127, 128, 255, rng.randrange(256)))
        file.write_bytes(bytes(bad[:rng.randrange(len(bad))] if k % 3 == 0 else bad))
        done = subprocess.run([program, "-n", "1", "--lora", file, network, "x"], capture_output=True, text=True, errors="replace", timeout=60)
        assert done.returncode in (0, 1) and bool(done.stderr) == done.returncode and "ERROR" not in done.stderr, done.stderr


# ---- refusals

NAME = "base_model.model.model.layers.0.self_attn.q_proj.lora_%s.weight"


@pytest.mark.parametrize("config, text", [
    ({"peft_type": "IA3"}, "peft_type"), ({"use_dora": True}, "use_dora"), ({"bias": "all"}, "bias"), ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ({"layer_replication": [[0, 2]]}, "layer_replication"), ({"init_lora_weights": "pissa"}, "init_lora_weights"), ({"r": 5}, "has rank 4"),
    ({"rank_pattern": {"q_proj": 8}}, "has rank 4"), ({"rank_pattern": {"^.*q_proj$": 4}}, "rank_pattern"), ({"lora_alpha": "6"}, "lora_alpha"),
    ({"r": None}, "lora_alpha, r")])
def test_configs_that_are_refused(program, network, tmp_path, config, text):
    folder = save(tmp_path / "adapter", tensors_of(drawn(MODULES[:1], 1))[0], **config)
    assert text in run(program, "--lora", folder, network, "x", status=1)


def test_adapters_that_do_not_fit(program, network, tmp_path):
    pairs = drawn(MODULES, 1)
    zeros = lambda rank: (np.zeros((rank, 128), np.float32), np.zeros((128, rank), np.float32))
    at, end = "model.layers.0.self_attn.q_proj", zeros(4)
    for wrong, text in (({"model.layers.9.self_attn.q_proj": end}, "no input for an adapter of 'model.layers.9"),
                        ({"model.layers.0.mlp.experts": end}, "no input"), ({at: (end[0][:, 1:], end[1])}, "for a product of 128 to 128"),
                        ({at: (end[0], end[1][1:])}, "for a product of 128 to 128"), ({at: (end[0], end[1][:, 1:])}, "for a product"),
                        ({at: zeros(0)}, "for a product"), ({at: zeros(17)}, "network has room for 16")):
        rank = len(next(iter(wrong.values()))[0]) or 4
        folder = save(tmp_path / "a", tensors_of(pairs | wrong)[0], rank_pattern={"layers.0.self_attn.q_proj": rank})
        assert text in run(program, "--lora", folder, network, "x", status=1)
    tensors = tensors_of(pairs)[0]
    for name in (NAME % "A", NAME % "B"):
        assert "there is no tensor" in run(program, "--lora", save(tmp_path / "a", {k: v for k, v in tensors.items() if k != name}), network, "x", status=1)
    for name in ("x", NAME % "C", "base_model.model.lora_embedding_A", "a" * 5000, NAME[5:] % "A"):
        assert "is not understood" in run(program, "--lora", save(tmp_path / "a", tensors | {name: ("F32", (1, 1), bytes(4))}), network, "x", status=1)
    assert "has no adapter" in run(program, "--lora", save(tmp_path / "a", {}), network, "x", status=1)
    plain = compile_to(tmp_path / "m.so", gguf(tmp_path / "m.gguf"), "-q", "--lora=4:attn_v")
    assert "no input for an adapter" in run(program, "--lora", save(tmp_path / "a", tensors), plain, "x", status=1)
    for path in (tmp_path / "none", tmp_path, tmp_path / "a/adapter_config.json"):
        assert run(program, "--lora", path, network, "x", status=1)
    (tmp_path / "a/adapter_config.json").unlink()
    assert "adapter_config.json" in run(program, "--lora", tmp_path / "a", network, "x", status=1)


def file_of(header, data=bytes(4096)):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def row(dtype="F32", shape=(4, 128), data_offsets=(0, 2048)):
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets}


HOSTILE = [b"", b"\0" * 7, *(struct.pack("<Q", n) + b"{}" for n in (0, 1, 3, 1 << 40, 1 << 63, (1 << 64) - 1)),
           file_of(b"[]"), file_of(b"{"), file_of(b"[" * 100000), file_of(b'{"a": 1, "a": 1}'), file_of(b'{"a\\u0000": 1}')]
HOSTILE += [file_of({NAME % "A": a, NAME % "B": row(shape=(128, 4), data_offsets=(2048, 4096))}) for a in (
    None, 3, [], {}, row("F64"), row("I32"), row(None), row("BF16"), row("F16"), row(shape=(128, 5)), row(shape=(4, 128, 1)), row(shape=(512,)),
    row(shape=(-4, -128)), row(shape=(4.0, 128)), row(shape=(1 << 62, 4)), row(shape=(1 << 32, 1 << 32)), row(shape=(1 << 30, 1 << 30)), row(shape="4"),
    row(data_offsets=(0, 2047)), row(data_offsets=(2048, 0)), row(data_offsets=(4096, 6144)), row(data_offsets=(-2048, 0)), row(data_offsets=(0,)),
    row(data_offsets=(1 << 62, (1 << 62) + 2048)), row(data_offsets=None), row(data_offsets=("0", "2048")))]


@pytest.mark.parametrize("k", range(len(HOSTILE)))
def test_hostile_files(program, network, tmp_path, k):
    """A refusal with a word; the program has AddressSanitizer and UBSan."""
    done = run(program, "--lora", save(tmp_path / "adapter", HOSTILE[k]), network, "x", status=1)
    assert done.startswith("chat: ") and "runtime error" not in done


def test_damaged_files(program, network, tmp_path):
    """Bytes and ends cut off at random: an answer or a refusal."""
    rng, good = random.Random(7), safetensors(tensors_of(drawn(MODULES[:2], 2))[0])
    length = struct.unpack("<Q", good[:8])[0]
    for _ in range(60):
        bad = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(8 + length)] = rng.choice(b'0129{}[]",:\0\xff') if rng.random() < 0.7 else rng.randrange(256)
        folder = save(tmp_path / "adapter", bytes(bad[:rng.randrange(len(bad))] if rng.random() < 0.3 else bad))
        done = subprocess.run([program, "-n", "2", "--lora", folder, network, "x"], capture_output=True, text=True, errors="replace", timeout=60)
        assert done.returncode in (0, 1) and bool(done.stderr) == done.returncode and "ERROR" not in done.stderr, done.stderr


# ---- the server

@needs_microhttpd
def test_server(program, network, tmp_path):
    """Answers of several adapters and of none that run together, more of them than streams: each is what it is alone, and what chat says."""
    folders = {None: None} | {f"a{k}": save(tmp_path / f"a{k}", tensors_of(drawn(MODULES[k:k + 3], 10 + k, rank=k + 1))[0], r=k + 1) for k in range(3)}
    options = [x for name, folder in folders.items() if name for x in ("--lora", f"{name}={folder}")]
    server = Server(made(tmp_path, "-O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined"), "-p", "0", "-s", "5", "-q", "64", *options, network)
    said = lambda name, text, n: server.said(text, max_tokens=n, **({"lora": name} if name else {}))
    rng = random.Random(3)
    asked = [(name, text, rng.randrange(5, 70)) for text in BEGINNINGS for name in folders]
    alone = {a: said(*a) for a in asked}
    for name, text, n in asked[:4]:
        got = run(program, "-n", n, *(("--lora", folders[name]) if name else ()), network, text)
        assert got == alone[name, text, n] + "\n"
    assert len({alone[a] for a in asked[:4]}) == 4
    for _ in range(2):
        rng.shuffle(asked)
        assert together([lambda a=a: said(*a) for a in asked]) == [alone[a] for a in asked]
    models = json.loads(server.ask("/v1/models")[1])["data"]
    assert [m["id"] for m in models] == ["m.so", "a0", "a1", "a2"] and models[1]["parent"] == "m.so"
    one = server.chat("A", max_tokens=9, model="a1")
    assert one["model"] == "a1" and one["choices"][0]["message"]["content"] == said("a1", "A", 9)
    assert server.chat("A", max_tokens=9, lora=None)["model"] == "m.so" and server.events("A", max_tokens=2, lora="a2")[0]["model"] == "a2"
    for wrong in ("a3", "", 3, [], True):
        assert "no adapter" in server.chat("A", 400, lora=wrong)["error"]["message"]
    assert server.end() == (0, "")


@needs_microhttpd
def test_servers_options(network, tmp_path):
    server, folder = made(tmp_path, "-O1"), save(tmp_path / "a", tensors_of(drawn(MODULES, 1))[0])
    for option in ("a", "=b", "a="):
        assert subprocess.run([server, "--lora", option, network], capture_output=True, timeout=60).returncode == 2
    for options, text in (([f"a={folder}"] * 2, "the same name"), (["a=none"], "none")):
        done = subprocess.run([server, "-p", "0", *(x for o in options for x in ("--lora", o)), network], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and text in done.stderr

"""GGUF files made to be bad: each ends in a diagnostic with status 1 or 4, within two seconds of processor time and 512 MiB."""
import os
import random
import resource
import struct

import pytest

from gguf.decoders import Model
from gguf.writer import text
from support.tool import MCC
from support.usage import usage

SANITIZED = "address" in os.environ.get("MCC_BUILD", "")    # needs more of everything
SECONDS, BYTES = (10, 2 << 30) if SANITIZED else (2, 512 << 20)


def check(path, statuses=(1, 4)):
    done = usage([MCC, "check", path], 60, 4 * SECONDS, resource.RLIM_INFINITY if SANITIZED else 4 << 30)
    said = done.said.decode(errors="replace")
    assert done.status in statuses and (done.status == 0 or "error: " in said), (done.status, said)
    assert done.seconds < SECONDS and done.bytes < BYTES, (done.seconds, done.bytes)
    return said


def small(**more):
    return Model("llama", **{**dict(width=32, layers=1, heads=2, kv_heads=1, head=16, forward=32, words=32, kind="Q8_0"), **more}).file()


def test_cut_and_changed(tmp_path):
    """Cut at many places, one byte or eight changed at many: never anything but a result or a diagnostic."""
    f = small()
    f.key("tokenizer.ggml.tokens", ["str"], ["a", "b"])
    path, whole = tmp_path / "m.gguf", f.save(tmp_path / "m.gguf").read_bytes()
    assert check(path, (0,)) is not None
    for n in (*range(0, 60, 3), *range(60, len(whole), max(1, len(whole) // 40))):
        path.write_bytes(whole[:n])
        check(path)
    draw, head = random.Random(1), len(f.head())
    for _ in range(80):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 1, 2, 8))):
            data[draw.randrange(head)] = draw.choice((draw.randrange(256), 0, 255, 127, 128))
        path.write_bytes(data)
        check(path, (0, 1, 4))


def header(version=3, tensors=0, keys=0, rest=b""):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def key(name, kind, rest):
    return text(name) + struct.pack("<I", kind) + rest


def tensor(name="t", dims=(32,), kind=8, offset=0, rank=None):
    return text(name) + struct.pack("<I", len(dims) if rank is None else rank) + b"".join(struct.pack("<Q", n) for n in dims) + struct.pack("<IQ", kind, offset)


HUGE = 2 ** 63
HEADS = {
    "nothing": (b"GGUF", "ends within its header"),
    "version 1": (b"GGUF" + struct.pack("<IIII", 1, 0, 0, 0), "version 1 of GGUF"),
    "version 4": (header(4), "version 4 of GGUF"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "many tensors": (header(tensors=HUGE), "the limit is 65536"),
    "many keys": (header(keys=2 ** 40), "the limit is 65536"),
    "no keys": (header(keys=1), "key 0, at byte 24: its name reaches past the end"),
    "long name": (header(keys=1, rest=struct.pack("<Q", 2 ** 64 - 1) + b"abc"), "its name reaches past the end"),
    "name too long": (header(keys=1, rest=text("a" * 70000)), "a name of 70000 bytes"),
    "empty name": (header(keys=1, rest=text("")), "a name of 0 bytes"),
    "NUL in a name": (header(keys=1, rest=text("a\0b")), "with a NUL"),
    "no value": (header(keys=1, rest=text("a")), "key 'a' at byte 24 has no value"),
    "kind 13": (header(keys=1, rest=key("a", 13, b"\0" * 8)), "type 13, which is unknown"),
    "array of kind 99": (header(keys=1, rest=key("a", 9, struct.pack("<IQ", 99, 1))), "type 99, which is unknown"),
    "array of arrays": (header(keys=1, rest=key("a", 9, struct.pack("<IQ", 9, 1))), "arrays of arrays"),
    "long array": (header(keys=1, rest=key("a", 9, struct.pack("<IQ", 12, 2 ** 61))), "elements reach past the end"),
    "array whose size wraps": (header(keys=1, rest=key("a", 9, struct.pack("<IQ", 12, 2 ** 61 + 1) + b"\0" * 8)), "elements reach past the end"),
    "long array of texts": (header(keys=1, rest=key("a", 9, struct.pack("<IQ", 8, 2 ** 60) + text("x") * 9)), "elements reach past the end"),
    "long text": (header(keys=1, rest=key("a", 8, struct.pack("<Q", 2 ** 64 - 9))), "reach past the end"),
    "a key twice": (header(keys=2, rest=2 * key("a", 0, b"\0")), "is there twice"),
    "no tensor": (header(tensors=1), "tensor 0, at byte 24"),
    "rank 0": (header(tensors=1, rest=tensor(dims=())), "rank 0, there are 1 to 4"),
    "rank 2^32 - 1": (header(tensors=1, rest=tensor(rank=2 ** 32 - 1)), "there are 1 to 4"),
    "a dim of 0": (header(tensors=1, rest=tensor(dims=(32, 0))), "dim 0 is 0"),
    "dims that wrap": (header(tensors=1, rest=tensor(dims=(2 ** 33, 2 ** 33))), "dim 0 is 8589934592"),
    "a dim of 2^63": (header(tensors=1, rest=tensor(dims=(HUGE,))), "dim 0 is 9223372036854775808"),
    "a large tensor": (header(tensors=1, rest=tensor(dims=(2 ** 62,))), "--limit-tensor-bytes"),
    "a type that is not there": (header(tensors=1, rest=tensor(kind=4)), "type 4, which is unknown"),
    "a type that is not served": (header(tensors=1, rest=tensor(kind=10)), "a tensor of Q2_K; supported are"),
    "part of a block": (header(tensors=1, rest=tensor(dims=(33,))), "rows of 33 elements, Q8_0 has blocks of 32"),
    "past the end": (header(tensors=1, rest=tensor()), "its 34 bytes at offset 0 reach past the end"),
    "offset 2^64 - 32": (header(tensors=1, rest=tensor(offset=2 ** 64 - 32) + b"\0" * 99), "reach past the end"),
    "offset 1": (header(tensors=1, rest=tensor(offset=1) + b"\0" * 99), "not a multiple of the alignment"),
    "two of one name": (header(tensors=2, rest=2 * tensor() + b"\0" * 99), "two tensors have this name"),
    "alignment 0": (header(keys=1, rest=key("general.alignment", 4, struct.pack("<I", 0))), "no power of two"),
    "alignment 24": (header(keys=1, rest=key("general.alignment", 4, struct.pack("<I", 24))), "no power of two"),
    "no architecture": (header(), "no key 'general.architecture'"),
    "an architecture that is a number": (header(keys=1, rest=key("general.architecture", 4, struct.pack("<I", 1))), "no key 'general.architecture'"),
    "not served": (header(keys=1, rest=key("general.architecture", 8, text("mamba"))), "architecture 'mamba' is not supported; these are: llama, "),
    "no numbers": (header(keys=1, rest=key("general.architecture", 8, text("llama"))), "no key 'llama.block_count'"),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads(tmp_path, name):
    data, says = HEADS[name]
    (tmp_path / "m.gguf").write_bytes(data)
    assert says in check(tmp_path / "m.gguf")


def set_key(f, name, kind, v):
    f.keys = [k for k in f.keys if k[0] != name] + [(name, kind, v)]


def without(f, name):
    f.tensors = [t for t in f.tensors if t[0] != name]


def yarn(f, name, v):
    set_key(f, "llama.rope.scaling.type", "str", "yarn")
    set_key(f, "llama.rope.scaling." + name, "f32", v)


MODELS = [
    (lambda f: set_key(f, "llama.block_count", "u32", 0), "'llama.block_count' at byte"),
    (lambda f: set_key(f, "llama.block_count", "u64", 2 ** 40), "is not an integer from 1 to 4096"),
    (lambda f: set_key(f, "llama.block_count", "u32", 4096), "no tensor 'blk.1.attn_norm.weight'"),
    (lambda f: set_key(f, "llama.block_count", "f32", 1.0), "is not an integer"),
    (lambda f: set_key(f, "llama.embedding_length", "i32", -32), "is not an integer"),
    (lambda f: set_key(f, "llama.attention.head_count", "u32", 3), "it should be 48 x 32, and is 32 x 32 of Q8_0"),
    (lambda f: set_key(f, "llama.attention.head_count", "u32", 0), "is not an integer"),
    (lambda f: set_key(f, "llama.attention.head_count_kv", ["u32"], [1, 2]), "layers that differ"),
    (lambda f: set_key(f, "llama.attention.head_count_kv", ["u32"], []), "is not an integer"),
    (lambda f: set_key(f, "llama.attention.value_length", "u32", 8), "values of 8"),
    (lambda f: set_key(f, "llama.rope.dimension_count", "u32", 15), "15 of each rotated"),
    (lambda f: set_key(f, "llama.rope.freq_base", "f32", float("nan")), "not a number from 0 on"),
    (lambda f: set_key(f, "llama.rope.freq_base", "str", "1e4"), "not a number from 0 on"),
    (lambda f: set_key(f, "llama.rope.scaling.type", "str", "dynamic"), 'is none of "none", "linear", "yarn" and "longrope"'),
    (lambda f: yarn(f, "factor", 0.5), "YaRN with factor 0.5"),
    (lambda f: yarn(f, "factor", float("inf")), "not a number from 0 on"),
    (lambda f: yarn(f, "yarn_beta_slow", 0.0), "0 turns: not supported"),
    (lambda f: yarn(f, "yarn_beta_fast", 0.5), "0.5 and 1 turns: not supported"),
    (lambda f: yarn(f, "yarn_ext_factor", 1.0), "key 'llama.rope.scaling.yarn_ext_factor' is not supported"),
    (lambda f: (yarn(f, "factor", 2.0), set_key(f, "llama.rope.freq_base", "f32", 1.0)), "base 1, 32 and 1 turns"),
    (lambda f: set_key(f, "llama.attention.sliding_window", "u32", 8), "windows of this architecture"),
    (lambda f: set_key(f, "llama.attention.causal", "bool", False), "attention to later tokens"),
    (lambda f: set_key(f, "llama.logit_scale", "f32", 1.0), "key 'llama.logit_scale' is not supported"),
    (lambda f: set_key(f, "llama.attention.key_length", "u32", 2 ** 20), "is not an integer from 1 to 65536"),
    (lambda f: set_key(f, "llama.attention.sliding_window_pattern", ["bool"], [True]), "is not an integer from 2"),
    (lambda f: set_key(f, "general.name", "str", "a\0b"), "a text with a NUL"),
    (lambda f: without(f, "token_embd.weight"), "no matrix 'token_embd.weight'"),
    (lambda f: without(f, "blk.0.ffn_down.weight"), "no tensor 'blk.0.ffn_down.weight'"),
    (lambda f: without(f, "blk.0.attn_norm.weight"), "no tensor 'blk.0.attn_norm.weight'"),
    (lambda f: f.tensor("blk.0.attn_sinks.weight", "F32", [1] * 32), "tensor 'blk.0.attn_sinks.weight': error: no layer"),
    (lambda f: (without(f, "output_norm.weight"), f.tensor("output_norm.weight", "Q8_0", [1] * 32)), "it should be 32 floats"),
    (lambda f: (without(f, "output_norm.weight"), f.tensor("output_norm.weight", "F32", [1] * 31)), "it should be 32 floats"),
    (lambda f: (without(f, "blk.0.ffn_up.weight"), f.tensor("blk.0.ffn_up.weight", "F32", [[1] * 16] * 32)), "it should be 32 x 32, and is 32 x 16 of F32"),
    (lambda f: (without(f, "blk.0.ffn_up.weight"), f.tensor("blk.0.ffn_up.weight", "F32", [[[1] * 32] * 32])),
     "it should be 32 x 32, and is 1 x 32 x 32 of F32"),
]


@pytest.mark.parametrize("n", range(len(MODELS)))
def test_models(tmp_path, n):
    change, says = MODELS[n]
    f = small()
    change(f)
    assert says in check(f.save(tmp_path / "m.gguf"))


def again(f, name, *shape, kind="F32"):
    without(f, name)
    f.tensor(name, kind, [[[1.0] * shape[-1]] * shape[-2]] * shape[0] if len(shape) == 3 else [[1.0] * shape[-1]] * shape[0])


KEY, EXPERTS, BIAS = "gpt-oss.expert_", "blk.0.ffn_{}_exps.weight", "blk.0.ffn_down_exps.bias"
OSS = [
    (lambda f: set_key(f, KEY + "count", "u32", 0), "'gpt-oss.expert_count' at byte"),
    (lambda f: set_key(f, KEY + "count", "u32", 2 ** 31), "is not an integer from 1 to 16777216"),
    (lambda f: set_key(f, KEY + "count", "u32", 5), "it should be 5 x 32"),
    (lambda f: set_key(f, KEY + "count", "u32", 2), "is not an integer from 1 to 2"),
    (lambda f: set_key(f, KEY + "used_count", "u32", 5), "'gpt-oss.expert_used_count' at byte"),
    (lambda f: set_key(f, KEY + "used_count", "u32", 0), "is not an integer from 1 to 4"),
    (lambda f: set_key(f, KEY + "used_count", "i64", -1), "is not an integer from 1 to 4"),
    (lambda f: set_key(f, KEY + "feed_forward_length", "u32", 64), "it should be 4 x 64 x 32, and is 4 x 32 x 32 of MXFP4"),
    (lambda f: set_key(f, KEY + "shared_count", "u32", 1), "key 'gpt-oss.expert_shared_count' is not supported"),
    (lambda f: set_key(f, KEY + "gating_func", "u32", 2), "key 'gpt-oss.expert_gating_func' is not supported"),
    (lambda f: set_key(f, "general.architecture", "str", "qwen3"), "no key 'qwen3.block_count'"),
    (lambda f: f.keys.remove(next(k for k in f.keys if k[0] == KEY + "used_count")), "no key 'gpt-oss.expert_used_count'"),
    (lambda f: f.keys.remove(next(k for k in f.keys if k[0] == KEY + "count")), "no key 'gpt-oss.expert_count'"),
    (lambda f: without(f, "blk.0.ffn_gate_inp.weight"), "no tensor 'blk.0.ffn_gate_inp.weight'"),
    (lambda f: without(f, EXPERTS.format("up")), "no tensor 'blk.0.ffn_up_exps.weight'"),
    (lambda f: without(f, "blk.0.attn_sinks.weight"), "no tensor 'blk.0.attn_sinks.weight'"),
    (lambda f: without(f, "blk.0.post_attention_norm.weight"), "no tensor 'blk.0.post_attention_norm.weight'"),
    (lambda f: again(f, EXPERTS.format("gate"), 32, 32), "it should be 4 x 32 x 32, and is 32 x 32 of F32"),
    (lambda f: again(f, EXPERTS.format("down"), 3, 32, 32), "it should be 4 x 32 x 32, and is 3 x 32 x 32 of F32"),
    (lambda f: again(f, EXPERTS.format("down"), 4, 32, 64, kind="Q4_0"), "and is 4 x 32 x 64 of Q4_0"),
    (lambda f: again(f, BIAS, 4, 31), "it should be 4 x 32 floats, and is 4 x 31 of F32"),
    (lambda f: again(f, BIAS, 4, 32, kind="MXFP4"), "it should be 4 x 32 floats, and is 4 x 32 of MXFP4"),
    (lambda f: f.tensor("blk.0.ffn_gate_shexp.weight", "F32", [[1] * 32] * 32), "no layer of architecture 'gpt-oss' reads this tensor"),
]


@pytest.mark.parametrize("n", range(len(OSS)))
def test_experts(tmp_path, n):
    change, says = OSS[n]
    f = drawn("gpt-oss")
    change(f)
    assert says in check(f.save(tmp_path / "m.gguf"))


def drawn(architecture):
    more = dict(width=32, layers=1, heads=2, kv_heads=1, head=16, forward=32, words=32, window=4 * (architecture != "qwen3moe"), tied=True)
    if architecture in ("gpt-oss", "qwen3moe"):
        more |= dict(experts=4, used=3, kinds={"exps.weight": "MXFP4"}, original=64, yarn=8)
    return Model(architecture, packed=architecture == "phi3", **more).file()


def test_other_architectures_are_hostile_too(tmp_path):
    path, draw = tmp_path / "m.gguf", random.Random(2)
    for architecture in ("gemma3", "phi3", "qwen3moe", "gpt-oss"):
        f = drawn(architecture)
        whole, head = f.save(path).read_bytes(), len(f.head())
        assert "supported" in check(path, (0,))
        for _ in range(25):
            data = bytearray(whole)
            data[draw.randrange(head)] = draw.choice((draw.randrange(256), 0, 255, 127, 128))
            path.write_bytes(data)
            check(path, (0, 1, 4))


def test_metadata_is_bounded(tmp_path):
    f = small()
    f.key("general.long", "str", "x" * (65 << 20))
    assert "key 'general.long': metadata of more than 67108864 bytes" in check(f.save(tmp_path / "m.gguf"))

"""examples/story's network, BabyLlama in blocks of 4 bits, as a GGUF file: floats, or the same numbers as Q4_0 with scales of 16 bits."""
import numpy as np
import onnx
from onnx import numpy_helper

from gguf.writer import File, half, nibbles
from support.tool import ROOT

PATH = ROOT / "examples/story/babyllama-int4.onnx"
WIDTH, FORWARD, LAYERS, HEADS, KEYS, WORDS = 128, 352, 5, 8, 4, 105


def neighbours(x, heads):
    """Rows whose rotary pairs are halves of a head, as llama's files have them: side by side."""
    return x.reshape(heads, 2, len(x) // heads // 2, -1).swapaxes(1, 2).reshape(x.shape)


def add(f, name, kind, q, scales):
    """Numbers [rows, columns] from 0 to 15 with a scale for 32 each."""
    if kind == "Q4_0":
        blocks = np.concatenate([half(scales).reshape(-1, 1).view(np.uint8), nibbles(q.reshape(-1, 32), 16)], 1)
        f.packed(name + ".weight", kind, q.shape, blocks.tobytes())
    else:
        f.tensor(name + ".weight", kind, (q - np.float32(8)) * np.repeat(scales, 32, 1))


def wider(role, q, scales, units):
    """Further hidden units, drawn, whose results are multiplied by 0: the same function, of more memory."""
    rng = np.random.default_rng(0)
    if role == "ffn_down":
        zeros, same = np.full((len(q), units), 8, np.uint8), np.full((len(q), units // 32), scales.max(), scales.dtype)
        return np.concatenate([q, zeros], 1), np.concatenate([scales, same], 1)
    drawn = rng.uniform(0.5, 1, (units, scales.shape[1])).astype(scales.dtype) * scales.mean()
    return np.concatenate([q, rng.integers(1, 16, (units, q.shape[1]), np.uint8)]), np.concatenate([scales, drawn])


def file(kind, units=0):
    """units: hidden units of each layer that add nothing, a multiple of 32."""
    w = {i.name: numpy_helper.to_array(i) for i in onnx.load(PATH).graph.initializer}

    def matrix(name):
        packed, scales = w[name + ".MatMul.weight_Q4"], w[name + ".MatMul.weight_scales"]
        return np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1), scales
    f = File("llama")
    for name, v in (("block_count", LAYERS), ("embedding_length", WIDTH), ("feed_forward_length", FORWARD + units), ("context_length", 256),
                    ("attention.head_count", HEADS), ("attention.head_count_kv", KEYS), ("rope.dimension_count", WIDTH // HEADS)):
        f.own(name, "u32", v)
    f.own("attention.layer_norm_rms_epsilon", "f32", 1e-5)
    add(f, "token_embd", kind, *matrix("lm_head"))
    for i in range(LAYERS):
        at, of = f"blk.{i}.", f"model.layers.{i}."
        f.tensor(at + "attn_norm.weight", "F32", w[of + "input_layernorm.weight"])
        f.tensor(at + "ffn_norm.weight", "F32", w[of + "post_attention_layernorm.weight"])
        ends = [WIDTH, WIDTH + WIDTH * KEYS // HEADS]
        for name, heads, q, scales in zip(("attn_q", "attn_k", "attn_v"), (HEADS, KEYS, 0), *(np.split(a, ends) for a in matrix(of + "attn.qkv_proj"))):
            add(f, at + name, kind, *(neighbours(a, heads) if heads else a for a in (q, scales)))
        for name, other in (("attn_output", "attn.o_proj"), ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj")):
            q, scales = matrix(of + other)
            add(f, at + name, kind, *(wider(name, q, scales, units) if units and name.startswith("ffn") else (q, scales)))
    f.tensor("output_norm.weight", "F32", w[f"model.layers.{LAYERS}.final_norm_layernorm.weight"])
    return f

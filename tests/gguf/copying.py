"""A llama that copies: after a text it says what came after the last token before (an induction head), so texts repeat, whatever its size.

The residual stream has parts of 64: the code of a token, of the token before it, and of the next one. The first layer's head finds the position
before by rotary pairs of high frequency; the second one's compares codes in pairs that hardly turn. The feed-forward units add nothing; they make
the file as large as is wanted."""
import numpy as np

from gguf.writer import File

CODE, WIDTH, LAYERS, BASE, ROOM = 64, 256, 2, 1e9, 512
TOKEN, BEFORE, NEXT, ONE = slice(0, CODE), slice(CODE, 2 * CODE), slice(2 * CODE, 3 * CODE), 3 * CODE
SHARP = 32     # scores of what is looked for over others'


def file(words, units):
    """units: hidden units of each layer, a multiple of 32."""
    rng, zeros = np.random.default_rng(0), lambda *shape: np.zeros(shape, np.float32)
    codes, f = rng.choice(np.float32([-1, 1]), (words, CODE)), File("llama")
    for name, v in (("block_count", LAYERS), ("embedding_length", WIDTH), ("feed_forward_length", units), ("context_length", ROOM),
                    ("attention.head_count", 1), ("attention.head_count_kv", 1), ("rope.dimension_count", WIDTH)):
        f.own(name, "u32", v)
    f.own("attention.layer_norm_rms_epsilon", "f32", 1e-5)
    f.own("rope.freq_base", "f32", BASE)
    table, head = zeros(words, WIDTH), zeros(words, WIDTH)
    table[:, TOKEN], table[:, ONE], head[:, NEXT] = codes, 8, codes
    f.tensor("token_embd.weight", "F32", table)
    turned = 16     # pairs of high frequency
    angle = BASE ** (-np.arange(turned) * 2 / WIDTH)
    for i in range(LAYERS):
        at, (q, k, v, out) = f"blk.{i}.", (zeros(WIDTH, WIDTH) for _ in range(4))
        if i == 0:
            q[0:2 * turned:2, ONE], q[1:2 * turned:2, ONE], k[0:2 * turned:2, ONE] = np.cos(angle), -np.sin(angle), SHARP
        else:
            q[WIDTH - CODE:, TOKEN], k[WIDTH - CODE:, BEFORE] = np.eye(CODE), SHARP / 8 * np.eye(CODE)
        v[:CODE, TOKEN] = out[:CODE, :CODE] = np.eye(CODE)
        out = zeros(WIDTH, WIDTH)
        out[NEXT if i else BEFORE, :CODE] = np.eye(CODE)
        for name, matrix in (("attn_q", q), ("attn_k", k), ("attn_v", v), ("attn_output", out)):
            f.tensor(f"{at}{name}.weight", "F32", matrix)
        for name in ("ffn_gate", "ffn_up"):
            f.tensor(f"{at}{name}.weight", "Q4_0", rng.standard_normal((units, WIDTH), np.float32))
        f.tensor(at + "ffn_down.weight", "Q4_0", zeros(WIDTH, units))
        for name in ("attn_norm", "ffn_norm"):
            f.tensor(f"{at}{name}.weight", "F32", np.ones(WIDTH))
    f.tensor("output_norm.weight", "F32", np.ones(WIDTH))
    f.tensor("output.weight", "F32", head)
    return f

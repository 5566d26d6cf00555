"""com.microsoft MultiHeadAttention, DecoderMaskedMultiHeadAttention, Attention, QAttention, RotaryEmbedding and EmbedLayerNormalization in
all their forms, beside ONNX Runtime; beside numpy where it has no kernel for the CPU. One artifact of open dims serves each set of
attributes."""
import itertools

import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import ModelError
from support.compare import difference, floats
from support.contrib import contrib

F = np.float32
B, H, D = 2, 2, 4
WIDTH = H * D


class Drawn:
    """Arrays of one seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def f(self, *shape):
        return self.rng.standard_normal(shape).astype(F)

    def mask(self, *shape):
        m = self.rng.integers(0, 2, shape).astype(np.int32)
        m[..., 0] = 1
        return m

    def pick(self, *of):
        return of[self.rng.integers(len(of))]


def same(want, got, rtol=1e-4, atol=1e-5):
    assert len(want) == len(got)
    for k, (w, g) in enumerate(zip(want, got)):
        text = difference(w, g, rtol, atol)
        assert not text, f"output {k}: {text}"


def agrees(folder, op, feeds, n_out=1, again=(), want=None, rtol=1e-4, atol=1e-5, symbolic="inner", **more):
    """again: other feeds of the same artifact. want: numpy's function of a feed, in place of ONNX Runtime."""
    model, _ = contrib(folder, op, feeds, n_out, symbolic=symbolic, masks=("m", "ab"), **more)
    for f in [feeds, *again]:
        given = [v for v in f.values() if v is not None]
        same(want(f) if want else model.want(given), model.run(given, "-O2"), rtol, atol)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def heads(x):
    return x.reshape(*x.shape[:2], H, -1).transpose(0, 2, 1, 3)


def attention(q, k, v, added=0):
    return (softmax(q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]) + added) @ v).transpose(0, 2, 1, 3).reshape(*q.shape[::2], -1).astype(F)


# ---- MultiHeadAttention

def multi_head(seed, rows, keys, past):
    """A feed: what is there goes by the seed, how long it is by the numbers. Causal forms have as many keys as queries, in ONNX Runtime too."""
    d = Drawn(seed)
    causal, wide = seed % 3 == 0, 6 if seed % 5 == 0 and past is None else D
    keys = rows if causal or past is not None else keys
    total = keys + (past or 0)
    f = {"q": d.f(B, rows, WIDTH), "k": d.f(B, keys, WIDTH), "v": d.f(B, keys, H * wide), "b": d.f(2 * WIDTH + H * wide) if seed % 2 else None}
    kind = [None, "keys", "rows", "lengths", "keys"][seed % 5] if past is None or seed % 5 != 3 else None
    f["m"] = {None: lambda: None, "keys": lambda: d.mask(B, total), "rows": lambda: d.mask(B, rows, total),
              "lengths": lambda: np.array([1 + total // 2, total], np.int32)}[kind]()
    f["ab"] = d.f(*[(1, H), (B, 1), (B, H)][seed % 3], rows, total) if seed % 4 == 1 else None
    f |= {n: d.f(B, H, past, w) if past is not None else None for n, w in (("pk", D), ("pv", wide))}
    return f, {"unidirectional": 1} if causal else {}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("past", [False, True])
def test_multi_head(tmp_path, seed, past):
    shapes = [(3, 5, 4), (1, 7, 6), (4, 4, 1)]
    feeds = [multi_head(seed, rows, keys, behind if past else None) for rows, keys, behind in shapes]
    more = {"scale": 0.3} if seed % 7 == 1 else {}
    more |= {"mask_filter_value": -3.0} if seed % 4 == 2 else {}
    agrees(tmp_path, "MultiHeadAttention", feeds[0][0], 3 if past else 1, [f for f, _ in feeds[1:]], num_heads=H, **feeds[0][1], **more)


def test_multi_head_scores(tmp_path):
    """The fourth result: scores with what the mask adds."""
    d = Drawn(1)
    feeds = {"q": d.f(B, 3, WIDTH), "k": d.f(B, 5, WIDTH), "v": d.f(B, 5, WIDTH), "b": None, "m": d.mask(B, 5)}
    agrees(tmp_path, "MultiHeadAttention", feeds, 4, outputs=[T.FLOAT] * 4, num_heads=H)


def test_cross_attention_of_a_cache(tmp_path):
    """Keys and values as (B, H, L, d): the projection's bias is the query's alone."""
    d = Drawn(2)
    for bias in (None, d.f(3 * WIDTH)):
        agrees(tmp_path, "MultiHeadAttention", {"q": d.f(B, 3, WIDTH), "k": d.f(B, H, 5, D), "v": d.f(B, H, 5, D), "b": bias}, num_heads=H)


def test_shared_buffer(tmp_path):
    d = Drawn(3)
    feeds = [{"q": d.f(B, n, WIDTH), "k": d.f(B, n, WIDTH), "v": d.f(B, n, WIDTH), "b": None, "m": None, "ab": None, "pk": d.f(B, H, 9, D),
              "pv": d.f(B, H, 9, D), "n": np.array([before], np.int32)} for n, before in [(1, 4), (1, 0), (1, 8)]]
    model, _ = contrib(tmp_path, "MultiHeadAttention", feeds[0], 3, symbolic="inner", num_heads=H)
    for f in feeds:
        given, n = [v for v in f.values() if v is not None], int(f["n"][0]) + f["q"].shape[1]
        want, got = model.want(given), model.run(given, "-O2")
        same([want[0], *(w[:, :, :n] for w in want[1:])], [got[0], *(g[:, :, :n] for g in got[1:])])


@pytest.mark.parametrize("parts", [2, 3])
def test_packed(tmp_path, parts):
    """No kernel for the CPU: numpy."""
    d = Drawn(4)
    packed, q = d.f(B, 5, H, parts, D), d.f(B, 3, WIDTH)

    def want(f):
        by = [packed[:, :, :, i].transpose(0, 2, 1, 3) for i in range(parts)]
        return [attention(*([heads(f["q"])] if parts == 2 else []), *by)]

    agrees(tmp_path, "MultiHeadAttention", {"q": q, "k": packed} if parts == 2 else {"q": packed}, want=want, num_heads=H)


def test_refused_beams(tmp_path):
    d = Drawn(5)
    feeds = {"q": d.f(B, 1, WIDTH), "k": d.f(B, 1, WIDTH), "v": d.f(B, 1, WIDTH), "b": None, "m": None, "ab": None, "pk": d.f(B, H, 9, D),
             "pv": d.f(B, H, 9, D), "n": np.array([4], np.int32), "beams": np.zeros((1, 2, 9), np.int32)}
    assert "cache_indirection" in contrib(tmp_path, "MultiHeadAttention", feeds, 3, num_heads=H)[0].refused()
    feeds |= {"m": np.ones((B, 1, 1, 9), np.int32), "beams": None}
    assert "the mask has rank 4" in contrib(tmp_path, "MultiHeadAttention", feeds, 3, num_heads=H)[0].refused()


# ---- DecoderMaskedMultiHeadAttention

@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mask", [False, True])
def test_decoder_masked(tmp_path, bias, mask):
    """One token behind a buffer of nine rows: the first four and the new one are compared."""
    d = Drawn(6)
    feeds = {n: d.f(B, 1, WIDTH) for n in "qkv"} | {"m": d.mask(B, 5) if mask else None, "ab": d.f(1, H, 1, 5) if mask else None, "pk": d.f(B, H, 9, D),
                                                    "pv": d.f(B, H, 9, D), "n": np.array([4], np.int32), "beam": None, "beams": None,
                                                    "b": d.f(3 * WIDTH) if bias else None}
    model, given = contrib(tmp_path, "DecoderMaskedMultiHeadAttention", feeds, 3, symbolic="inner", num_heads=H, past_present_share_buffer=1,
                           scale=0.4)
    want, got = model.want(given), model.run(given, "-O2")
    same([want[0], *(w[:, :, :5] for w in want[1:])], [got[0], *(g[:, :, :5] for g in got[1:])])


@pytest.mark.parametrize("bias", [False, True])
def test_decoder_masked_cross(tmp_path, bias):
    d = Drawn(7)
    feeds = {"q": d.f(B, 1, WIDTH), "k": d.f(B, H, 9, D), "v": d.f(B, H, 9, D), "m": d.mask(B, 9), "ab": None, "pk": None, "pv": None, "n": None,
             "beam": None, "beams": None, "b": d.f(3 * WIDTH) if bias else None}
    agrees(tmp_path, "DecoderMaskedMultiHeadAttention", feeds, num_heads=H, mask_filter_value=-2.0)


def test_decoder_masked_growing(tmp_path):
    """No kernel for the CPU without a shared buffer: numpy."""
    d = Drawn(8)
    feeds = {n: d.f(B, 1, WIDTH) for n in "qkv"} | {"m": None, "ab": None, "pk": d.f(B, H, 4, D), "pv": d.f(B, H, 4, D)}

    def want(f):
        k, v = (np.concatenate([f["p" + n], heads(f[n])], 2) for n in "kv")
        return [attention(heads(f["q"]), k, v), k, v]

    agrees(tmp_path, "DecoderMaskedMultiHeadAttention", feeds, 3, want=want, num_heads=H)


# ---- Attention

def of_input(seed, rows, past):
    d, total = Drawn(seed), rows + (past or 0)
    sizes = [WIDTH, WIDTH, H * 6] if seed % 4 == 1 and past is None else None
    f = {"x": d.f(B, rows, 6), "w": d.f(6, sum(sizes) if sizes else 3 * WIDTH), "b": d.f(sum(sizes) if sizes else 3 * WIDTH)}
    f["m"] = [None, d.mask(B, total), d.mask(B, rows, total), np.array([total, 1 + total // 2], np.int32),
              np.array([total, 1 + total // 2, total // 2, 0], np.int32)][seed % 5]
    f["p"] = d.f(2, B, H, past, D) if past is not None else None
    f["ab"] = d.f(1, H, rows, total) if seed % 3 == 1 and past is None else None
    return f, {"qkv_hidden_sizes": sizes} if sizes else {}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("past", [False, True])
def test_attention_of_input(tmp_path, seed, past):
    shapes = [(3, 4), (1, 5), (5, 1)]
    feeds = [of_input(seed, rows, behind if past else None) for rows, behind in shapes]
    more = feeds[0][1] | ({"unidirectional": 1} if seed % 2 else {}) | ({"scale": 0.3} if seed % 7 == 1 else {})
    more |= {"mask_filter_value": -3.0} if seed % 4 == 2 else {}
    agrees(tmp_path, "Attention", feeds[0][0], 2 if past else 1, [f for f, _ in feeds[1:]], symbolic="inner", num_heads=H, **more)


@pytest.mark.parametrize("open_sizes", [False, True])
def test_lengths_with_their_sums(tmp_path, open_sizes):
    """A mask of 3 * B + 2 numbers: of them the lengths of keys count."""
    d = Drawn(12)
    feeds = {"q": d.f(B, 3, WIDTH), "k": d.f(B, 5, WIDTH), "v": d.f(B, 5, WIDTH), "b": None, "m": np.array([5, 2, 0, 3, 6, 0, 5, 10], np.int32)}
    agrees(tmp_path, "MultiHeadAttention", feeds, symbolic=open_sizes, num_heads=H)


def test_numbers_of_any_length(tmp_path):
    """A mask whose length only the run knows: lengths, or ends and then starts. Others end the run."""
    d = Drawn(13)
    feeds = {"x": d.f(B, 4, 6), "w": d.f(6, 3 * WIDTH), "b": d.f(3 * WIDTH), "m": np.array([4, 2], np.int32)}
    agrees(tmp_path, "Attention", feeds, 1, [feeds | {"m": np.array(m, np.int32)} for m in ([4, 3, 1, 0], [3, 4])], symbolic=True, num_heads=H)


def test_attention_with_a_shared_buffer(tmp_path):
    d = Drawn(9)
    feeds = {"x": d.f(B, 2, 6), "w": d.f(6, 3 * WIDTH), "b": d.f(3 * WIDTH), "m": None, "p": d.f(2, B, H, 9, D), "ab": None,
             "n": np.array(4, np.int32)}
    model, given = contrib(tmp_path, "Attention", feeds, 2, symbolic="inner", num_heads=H, past_present_share_buffer=1)
    y = feeds["x"] @ feeds["w"] + feeds["b"]
    q, k, v = (heads(y[..., i * WIDTH:(i + 1) * WIDTH]) for i in range(3))
    k, v = np.concatenate([feeds["p"][0][:, :, :4], k], 2), np.concatenate([feeds["p"][1][:, :, :4], v], 2)
    got = model.run(given, "-O2")
    same([attention(q, k, v), np.stack([k, v])], [got[0], got[1][:, :, :, :6]])


def test_attention_without_bias(tmp_path):
    """ONNX Runtime ends the process."""
    d = Drawn(10)

    def want(f):
        return [attention(*(heads(y) for y in np.split(f["x"] @ f["w"], 3, -1)))]

    agrees(tmp_path, "Attention", {"x": d.f(B, 3, 6), "w": d.f(6, 3 * WIDTH)}, want=want, num_heads=H)


@pytest.mark.parametrize("attributes, text", [({"do_rotary": 1}, "do_rotary"), ({"past_present_share_buffer": 1}, "past_sequence_length")])
def test_refused_attention(tmp_path, attributes, text):
    d = Drawn(11)
    assert text in contrib(tmp_path, "Attention", {"x": d.f(B, 3, 6), "w": d.f(6, 3 * WIDTH)}, num_heads=H, **attributes)[0].refused()


# ---- QAttention

@pytest.mark.parametrize("seed", range(12))
def test_quantized_attention(tmp_path, seed):
    columns, past = seed % 2, seed % 3 == 2

    def feed(rows, behind):
        d = Drawn(seed + 100)
        f = {"x": d.rng.integers(0, 256, (B, rows, 6), np.uint8), "w": d.rng.integers(-60, 60, (6, 3 * WIDTH)).astype(np.int8), "b": d.f(3 * WIDTH),
             "xs": F(0.02), "ws": np.linspace(0.01, 0.02, 3 * WIDTH, dtype=F) if columns else F(0.01),
             "m": np.array([rows, 1 + rows // 2], np.int32) if seed % 4 == 3 and not past else None,
             "xz": np.array(110, np.uint8) if seed % 5 else None, "wz": np.array(3, np.int8) if seed % 5 == 1 and not columns else None,
             "p": d.f(2, B, H, behind, D) if past else None}
        return {k: np.asarray(v) if v is not None else None for k, v in f.items()}

    more = {"unidirectional": 1} if seed % 3 == 0 else {}
    agrees(tmp_path, "QAttention", feed(3, 4), 2 if past else 1, [feed(1, 5), feed(5, 2)], constants=(), num_heads=H, **more)


# ---- RotaryEmbedding

@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", ["first", "all"])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("part", [False, True])
def test_rotary(tmp_path, interleaved, positions, rank, part):
    d, size = Drawn(12), 12 if part else 8
    shape = (B, 3, 2 * size) if rank == 3 else (B, 2, 3, size)
    at = np.array([2]) if positions == "first" else d.rng.integers(0, 9, (B, 3))
    more = {"rotary_embedding_dim": 8, "num_heads": 2} if part else {}
    for scale in ({}, {"scale": 2.0, "is_packed_batching": 1}):      # which its kernel for the CPU passes over
        agrees(tmp_path, "RotaryEmbedding", {"x": d.f(*shape), "at": at, "cos": d.f(9, 4), "sin": d.f(9, 4)}, interleaved=interleaved, **more, **scale)


def test_rotary_of_narrow_heads(tmp_path):
    """Heads of a size that only the run knows have at least as many elements as the caches rotate."""
    d = Drawn(14)
    feeds = {"x": d.f(1, 1, 5, 8), "at": np.array([2]), "cos": d.f(9, 4), "sin": d.f(9, 4)}
    model, _ = contrib(tmp_path, "RotaryEmbedding", feeds, constants=("cos", "sin"))
    with pytest.raises(ModelError, match="-2: .*fewer elements than are rotated"):
        model.run([d.f(1, 1, 5, 2), feeds["at"]])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("layout, sections", [(0, [2, 1, 1]), (1, [2, 1, 1]), (0, [0, 4, 0]), (1, [1, 1, 2]), (1, [4, 0, 0])])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary_of_three_streams(tmp_path, interleaved, layout, sections, rank):
    d, size = Drawn(13), 12
    shape = (B, 3, 2 * size) if rank == 3 else (B, 2, 3, size)
    agrees(tmp_path, "MRotaryEmbedding", {"x": d.f(*shape), "at": d.rng.integers(0, 9, (3, B, 3)), "cos": d.f(9, 4), "sin": d.f(9, 4)},
           interleaved=interleaved, mrope_layout=layout, mrope_section=sections, rotary_embedding_dim=8, num_heads=2)


# ---- EmbedLayerNormalization

@pytest.mark.parametrize("segments, mask, places", list(itertools.product([False, True], [False, True], [None, 1, B])))
def test_embeddings(tmp_path, segments, mask, places):
    d = Drawn(13)
    feeds = {"ids": d.rng.integers(0, 10, (B, 4)).astype(np.int32), "seg": d.rng.integers(0, 2, (B, 4)).astype(np.int32) if segments else None,
             "words": d.f(10, 8), "at": d.f(6, 8), "segs": d.f(2, 8) if segments else None, "g": d.f(8), "b": d.f(8),
             "m": d.mask(B, 4) if mask else None, "where": d.rng.integers(0, 6, (places, 4)).astype(np.int32) if places else None}
    tables = [k for k in ("words", "at", "segs", "g", "b") if feeds[k] is not None]
    model, given = contrib(tmp_path, "EmbedLayerNormalization", feeds, 3, tables, outputs=[T.FLOAT, T.INT32, T.FLOAT], epsilon=1e-3)
    same(model.want(given), model.run(given, "-O2"))

"""Attention-23 and -24: rows that no key is left for, and causal masks over a static cache (the erratum onnx/onnx#8068).

Forms are drawn: masks of bool or float and of any rank, is_causal, past, nonpad_kv_seqlen, heads that share keys, few rows (plain
kernels) and many (one kernel), keys of a known and an open number. References: the formula in numpy; ONNX Runtime, which has the
erratum too, for those that it runs.
"""
import re

import numpy as np
import pytest
from onnx import TensorProto as T

from support.compare import Model, difference, node
from support.tool import value

NUMPY = {T.FLOAT: np.float32, T.FLOAT16: np.float16, T.DOUBLE: np.float64}


def attend(q, k, v, mask=None, past=None, lens=None, causal=False):
    """(Y, probabilities) of 4-d operands; a row without a key is 0."""
    wide = np.float64
    if past is not None:
        k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(wide), group, 1) for x in (k, v))
    rows, keys = q.shape[2], k.shape[2]
    z = q.astype(wide) @ np.swapaxes(k, 2, 3) / np.sqrt(q.shape[3])
    row, key = np.arange(rows)[:, None], np.arange(keys)
    seen = np.ones((q.shape[0], 1, rows, keys), bool)
    if mask is not None:
        more = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
        mask = np.pad(mask, more, constant_values=False if mask.dtype == bool else -np.inf)
        bias = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask.astype(wide)
        seen = seen & (bias > -np.inf)
        z = z + np.where(bias > -np.inf, bias, 0)
    if lens is not None:
        seen = seen & (key < lens[:, None, None, None])
    if causal:
        before = past[0].shape[2] if past is not None else 0 if lens is None else lens[:, None, None, None] - rows
        seen = seen & (key <= row + before)
    z = np.where(seen, z, -np.inf)
    e = np.exp(z - z.max(3, keepdims=True, initial=-1e30))
    p = e / np.maximum(e.sum(3, keepdims=True), 1e-300)
    return (p @ v).astype(q.dtype), p.astype(q.dtype)


def drawn(seed):
    """(operands by position, attributes, opset, mode, elem, symbolic key dim) of one form."""
    rng = np.random.default_rng(seed)
    opset, elem = 23 + seed % 2, rng.choice([T.FLOAT] * 4 + [T.FLOAT16])
    b, kv, group, d = rng.integers(1, 3), rng.integers(1, 3), rng.integers(1, 3), rng.choice([3, 8, 16])
    rows, keys = rng.choice([1, 3, 9, 20]), rng.choice([5, 12, 40, 150])
    draw = lambda *shape: rng.standard_normal(shape).astype(NUMPY[elem])
    operands = [draw(b, kv * group, rows, d), draw(b, kv, keys, d), draw(b, kv, keys, d)] + [None] * 4
    causal, total = bool(rng.integers(2)), keys
    way = rng.choice(["none", "past", "lens", "lens", "lens"] if opset > 23 else ["none", "past"])
    if way == "past":
        n = rng.integers(0, 7)
        operands[4:6] = draw(b, kv, n, d), draw(b, kv, n, d)
        total += n
    if way == "lens":   # fewer than rows too: the first rows have no key
        operands[6] = rng.integers(0, (keys if rng.integers(2) else min(keys, rows)) + 1, b)
    if rng.integers(4):
        whole = [b, kv * group, rows, total][-rng.choice([2, 3, 4]):]
        whole = [1 if i < len(whole) - 1 and rng.integers(4) == 0 else n for i, n in enumerate(whole)]
        seen = rng.random(whole) < 0.7
        seen[rng.random(whole[:-1]) < 0.3] = False
        operands[3] = seen if rng.integers(2) else np.where(seen, rng.standard_normal(whole), -np.inf).astype(NUMPY[elem])
    return operands, {"is_causal": int(causal)}, opset, elem, bool(rng.integers(2))


def model_of(folder, operands, attributes, opset, elem, open_keys):
    names = [n if x is not None else "_" for n, x in zip("q k v mask past_key past_value lens".split(), operands)]
    shapes = [list(x.shape) if x is not None else None for x in operands]
    if open_keys:
        shapes[1][2] = shapes[2][2] = "keys"
        if shapes[3]:
            shapes[3][-1] = "masked"
    elems = [T.BOOL if x is not None and x.dtype == bool else T.INT64 if n == "lens" else elem for n, x in zip(names, operands)]
    inputs = [value(n, s, e) for n, s, e in zip(names, shapes, elems) if s is not None]
    outputs = "y k2 v2" if operands[4] is not None else "y"
    results = [value(n, None, elem) for n in outputs.split()]
    return Model(folder, [node("Attention", " ".join(names).rstrip("_ "), outputs, **attributes)], inputs, results, opset=opset)


def runtime_serves(operands, attributes):
    """ONNX Runtime wants a mask for every row, and takes is_causal for nothing where there is one row."""
    q, mask, past = operands[0], operands[3], operands[4]
    return (mask is None or mask.shape[-2] == q.shape[2]) and not (past is not None and attributes["is_causal"] and q.shape[2] == 1)


@pytest.mark.parametrize("seed", range(48))
def test_drawn(tmp_path, seed):
    operands, attributes, opset, elem, open_keys = drawn(seed)
    model = model_of(tmp_path, operands, attributes, opset, elem, open_keys)
    q, k, v, mask, past_k, past_v, lens = operands
    want, _ = attend(q, k, v, mask, None if past_k is None else (past_k, past_v), lens, bool(attributes["is_causal"]))
    feed = [x for x in operands if x is not None]
    near = dict(rtol=1e-3, atol=2e-3) if elem == T.FLOAT16 else dict(rtol=1e-4, atol=1e-5)
    for flags in (["-O0"], ["-O2"], ["-O2", "--attention=off"]):
        assert not difference(want, model.run(feed, *flags)[0], **near), flags
    if runtime_serves(operands, attributes):
        assert not difference(want, model.want(feed)[0], **near), "ONNX Runtime"


def test_forms_meet_every_case():
    """What test_drawn draws has rows without a key by mask and by length, in f32 and f16, fused and not."""
    met = set()
    for seed in range(48):
        operands, attributes, _, elem, _ = drawn(seed)
        q, k, v, mask, past_k, past_v, lens = operands
        _, p = attend(q, k, v, mask, None if past_k is None else (past_k, past_v), lens, bool(attributes["is_causal"]))
        if (p.sum(3) == 0).any():
            kind = "none" if mask is None else mask.dtype.name
            met |= {("mask", kind), ("lens", lens is not None, attributes["is_causal"]), ("rows", q.shape[2] >= 8), elem}
    assert met >= {("mask", "bool"), ("mask", "float32"), ("lens", True, 0), ("lens", True, 1), ("rows", True), ("rows", False),
                   T.FLOAT, T.FLOAT16}


@pytest.mark.parametrize("opset", [23, 24])
def test_probabilities(tmp_path, opset):
    """qk_matmul_output_mode 3: a row without a key is 0 there too."""
    rng = np.random.default_rng(opset)
    q, k, v = (rng.standard_normal((1, 2, n, 4)).astype(np.float32) for n in (10, 6, 6))
    mask = rng.random((10, 6)) < 0.5
    mask[3] = False
    model = Model(tmp_path, [node("Attention", "q k v mask", "y _ _ p", qk_matmul_output_mode=3)],
                  [value("q", q.shape), value("k", k.shape), value("v", v.shape), value("mask", mask.shape, T.BOOL)],
                  [value("y", None), value("p", None)], opset=opset)
    model.compare([q, k, v, mask], attend(q, k, v, mask))
    assert not difference(list(attend(q, k, v, mask)), model.want([q, k, v, mask]))


def test_nan_is_kept(tmp_path):
    """A NaN among the scores is no empty row."""
    q, k, v = (np.ones((1, 1, n, 4), np.float32) for n in (9, 5, 5))
    q[0, 0, 2, 1] = np.nan
    mask = np.ones((9, 5), bool)
    mask[4] = False
    model = Model(tmp_path, [node("Attention", "q k v mask", "y")],
                  [value("q", q.shape), value("k", k.shape), value("v", v.shape), value("mask", mask.shape, T.BOOL)], [value("y", None)],
                  opset=23)
    want = np.ones((1, 1, 9, 4), np.float32)
    want[0, 0, 2], want[0, 0, 4] = np.nan, 0
    model.compare([q, k, v, mask], [want])


def causal_form(folder, form):
    """Attention that hides keys by adding minus infinity; an open number of rows and keys."""
    shapes = {n: [1, 2, "n", 8] for n in "qkv"} | ({"mask": ["n", "n"]} if form == "mask too" else {})
    nodes = [node("Attention", " ".join(shapes), "y", is_causal=1)]
    constants = {}
    if form == "in pieces":   # the first of two masks lets each row see a window of 40 keys
        nodes = [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "raw"), node("Shape", "q", "count", start=2, end=3),
                 node("Squeeze", "count", "n"), node("Range", "zero n one", "key"), node("Unsqueeze", "key one", "row"),
                 node("Sub", "row window", "before"), node("Greater", "key before", "near"), node("LessOrEqual", "key row", "past"),
                 node("Where", "near nothing hidden", "window_bias"), node("Where", "past nothing hidden", "causal_bias"),
                 node("Add", "window_bias causal_bias", "bias"), node("Mul", "raw scale", "scores"), node("Add", "bias scores", "z"),
                 node("Softmax", "z", "p", axis=-1), node("MatMul", "p v", "y")]
        constants = {"zero": np.int64(0), "one": np.int64(1), "window": np.int64(40), "nothing": np.float32(0),
                     "hidden": np.float32(-np.inf), "scale": np.float32(1 / np.sqrt(8))}
    return Model(folder, nodes, [value(n, s) for n, s in shapes.items()], [value("y", None)], constants, opset=23)


@pytest.mark.parametrize("form", ["causal", "mask too", "in pieces"])
def test_keys_that_no_row_sees(tmp_path, form):
    """Spans of keys to which minus infinity is added in all rows of a block are left out: the same bits, and they are not looked at."""
    rng, n = np.random.default_rng(7), 700
    model = causal_form(tmp_path, form)
    told = model.dump("schedule", "-march=native")
    assert re.search(r"^  reach +1 ", told, re.M)
    (tmp_path / "told").write_text(re.sub(r"^  reach +1 .*$", "  reach 0", told, flags=re.M))
    every = f"--schedules={tmp_path / 'told'}"
    q, k, v = (rng.standard_normal((1, 2, n, 8)).astype(np.float32) for _ in range(3))
    window = np.triu(np.ones((n, n), bool), -39)
    mask = rng.standard_normal((n, n)).astype(np.float32)
    feed = [q, k, v] + [mask] * (form == "mask too")
    want, _ = attend(q, k, v, {"mask too": mask, "in pieces": window}.get(form), causal=True)
    got = model.run(feed)[0]
    assert not difference(want, got)
    assert (got == model.run(feed, every)[0]).all()
    v[:, :, -1] = np.nan
    rows = np.isnan(model.run(feed)[0]).any((0, 1, 3))
    assert not rows[: n // 2].any() and rows[-1] and np.isnan(model.run(feed, every)[0]).all()


@pytest.mark.parametrize("form", ["a head's", "a row's", "splat", "a key's", "another in the sum", "subtracted alone"])
@pytest.mark.parametrize("keys", [40, "n"])
def test_sink(tmp_path, form, keys):
    """A softmax with one score more, written in core operators, is one kernel if all keys of a row have the same one; keys all at once (40) or in spans."""
    rng, rows, n = np.random.default_rng(3), 20, 40 if keys == 40 else 700
    q, k, v = (rng.standard_normal((2, 3, m, 8)).astype(np.float32) for m in (rows, n, n))
    sink = {"a row's": (2, 3, rows, 1), "a key's": (n,), "splat": ()}.get(form, (3, 1, 1))
    sink, other = (rng.standard_normal(sink).astype(np.float32) * 3 for _ in range(2))
    second = {"another in the sum": "other", "subtracted alone": None}.get(form, "sink")
    nodes = [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "z"), node("ReduceMax", "z", "most", axes=[-1], keepdims=1),
             node("Max", "most sink", "top"), node("Sub", "z top", "d"), node("Exp", "d", "e"), node("ReduceSum", "e last", "terms", keepdims=1)]
    if second:
        nodes += [node("Sub", f"{second} top", "sd"), node("Exp", "sd", "more"), node("Add", "more terms", "sum")]
    nodes += [node("Div", "e sum" if second else "e terms", "p"), node("MatMul", "p v", "y")]
    shapes = {"q": q.shape, "k": [2, 3, keys, 8], "v": [2, 3, keys, 8]} | ({} if form == "splat" else {"sink": [keys] if form == "a key's" else sink.shape})
    if second == "other":
        shapes["other"] = other.shape
    constants = {"last": np.array([-1])} | ({"sink": sink} if form == "splat" else {})
    model = Model(tmp_path, nodes, [value(m, s) for m, s in shapes.items()], [value("y", None)], constants)
    z = q.astype(float) @ np.swapaxes(k, 2, 3)
    top = np.maximum(z.max(3, keepdims=True), sink)
    e = np.exp(z - top)
    p = e / (e.sum(3, keepdims=True) + (np.exp((other if second == "other" else sink) - top) if second else 0))
    feed = [{"q": q, "k": k, "v": v, "sink": sink, "other": other}[m] for m in shapes]
    model.compare(feed, [(p @ v).astype(np.float32)])
    found = bool(re.search(r"^schedule .*: attention$", model.dump("schedule"), re.M))
    assert found == (form in ("a head's", "a row's", "splat"))


def test_static_cache(tmp_path):
    """Tokens one by one, or a few at a time, through a cache that TensorScatter writes give what all at once give."""
    rng = np.random.default_rng(5)
    rows, room, q, k, v = 11, 16, *(rng.standard_normal((2, 2, 11, 8)).astype(np.float32) for _ in range(3))
    shape, cache = [2, 2, "n", 8], [2, 2, room, 8]
    nodes = [node("TensorScatter", "ck k at", "nk", axis=2), node("TensorScatter", "cv v at", "nv", axis=2),
             node("Attention", "q nk nv _ _ _ lens", "y", is_causal=1)]
    inputs = [value(n, s) for n, s in (("q", shape), ("k", shape), ("v", shape), ("ck", cache), ("cv", cache))]
    inputs += [value(n, [2], T.INT64) for n in ("at", "lens")]
    model = Model(tmp_path, nodes, inputs, [value(n, None) for n in ("y", "nk", "nv")], opset=24)
    want, _ = attend(q, k, v, causal=True)
    held, done = [np.full(cache, 7, np.float32)] * 2, 0
    for n in (4, 1, 1, 5):
        part = slice(done, done + n)
        y, *held = model.run([x[:, :, part] for x in (q, k, v)] + held + [np.full(2, done), np.full(2, done + n)])
        assert not difference(want[:, :, part], y), done
        done += n
    assert done == rows

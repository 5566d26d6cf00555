"""examples/language: tokenizers and drawing by themselves. Tokens are those of the PyPI package `tokenizers` (tokens_reference.json, made by
tokens_reference.py), draws what NumPy says of the chances."""
import copy
import ctypes as c
import json
import random

import numpy as np
import pytest

from support.tokens import REFERENCE, SOURCES, Tokens, library, needs_jansson


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    return library(tmp_path_factory.mktemp("tokens"), *SOURCES)


@pytest.fixture
def read(lib, tmp_path):
    def make(tokenizer):
        (tmp_path / "tokenizer.json").write_text(tokenizer if isinstance(tokenizer, str) else json.dumps(tokenizer))
        return Tokens(lib, tmp_path / "tokenizer.json")
    return make


@needs_jansson
@pytest.mark.parametrize("name", REFERENCE)
def test_tokens_and_back(read, name):
    row = REFERENCE[name]
    t = read(row["tokenizer"])
    assert t.good
    for text, ids, decoded in zip(row["texts"], row["ids"], row["decoded"], strict=True):
        assert t.encode(text) == ids, (text, ids)
        shown = t.text(ids).decode(errors="replace")
        assert decoded in (shown, shown[1:] if shown.startswith(" ") else shown), text


@needs_jansson
def test_what_a_user_types_is_no_special_token(read):
    t = read(REFERENCE["llama3"]["tokenizer"])
    start = t.encode("<|start|>")
    assert len(start) == 1 and t.text(start) == b""
    typed = t.encode("<|start|><|start|><tool><|start|>", (9, 24))
    assert typed[0] == typed[-1] == start[0] and typed.count(start[0]) == 2      # <tool> is added, not special
    assert t.text(typed) == b"<|start|><tool>"


@needs_jansson
def test_bytes_that_are_no_text(read):
    for name in ("llama3", "gpt2", "llama2"):
        t, data = read(REFERENCE[name]["tokenizer"]), b"a\xff\xc3(\xf0\x9f b\xed\xa0\x80"
        assert t.text(t.encode(data)).lstrip() == data


def merged(pieces, ranks):
    """What merging one pair at a time gives: the smallest rank, the first of equals."""
    while True:
        found = min(((ranks[pair], i) for i, pair in enumerate(zip(pieces, pieces[1:])) if pair in ranks), default=None)
        if not found:
            return pieces
        pieces = pieces[:found[1]] + [pieces[found[1]] + pieces[found[1] + 1]] + pieces[found[1] + 2:]


@needs_jansson
def test_long_pieces(read):
    """A piece of n letters takes n * log n steps: at n * n the last one would take a minute."""
    tokenizer, merges = copy.deepcopy(REFERENCE["gpt2"]["tokenizer"]), [("a", "a"), ("a", "b"), ("aa", "aa"), ("ab", "a"), ("b", "b"), ("aaaa", "a")]
    texts = ["a", "b", *("".join(pair) for pair in merges)]
    tokenizer["model"] |= {"vocab": {text: i for i, text in enumerate(texts)}, "merges": [" ".join(pair) for pair in merges]}
    tokenizer["added_tokens"] = []
    t, rng = read(tokenizer), random.Random(1)
    assert t.good, t.room.raw[:200]
    for _ in range(200):
        text = "".join(rng.choices("ab", [3, 1], k=rng.randrange(1, 40)))
        assert t.encode(text) == [texts.index(p) for p in merged(list(text), {pair: i for i, pair in enumerate(merges)})], text
    assert t.encode("a" * (1 << 18)) == [texts.index("aaaa")] * (1 << 16)


REFUSED = [(["normalizer"], {"type": "Lowercase"}, b"normalizer 'Lowercase'"),
           (["pre_tokenizer"], {"type": "Split", "pattern": {"Regex": r"\p{Lu}+"}, "behavior": "Isolated", "invert": False}, rb"splits by '\p{Lu}+'"),
           (["pre_tokenizer"], {"type": "BertPreTokenizer"}, b"pre_tokenizer 'BertPreTokenizer'"), (["pre_tokenizer"], None, b"neither bytes"),
           (["decoder"], {"type": "WordPiece"}, b"decoder 'WordPiece'"), (["decoder"], None, b"no decoder"),
           (["model", "type"], "Unigram", b"model 'Unigram'"), (["model", "dropout"], 0.1, b"not a plain BPE"), (["model", "vocab"], {}, b"no vocabulary"),
           (["model", "vocab", "a"], 1 << 40, b"the vocabulary's 'a'"), (["model", "vocab", "a"], -1, b"the vocabulary's 'a'"),
           (["model", "merges"], [["a", "no such token"]], b"merge 0"), (["model", "merges"], ["ab"], b"merge 0"),
           (["added_tokens"], [{"id": 5, "content": "x", "single_word": True}], b"added token 'x'")]


@needs_jansson
@pytest.mark.parametrize("place, value, text", REFUSED, ids=range(len(REFUSED)))
def test_refusals(read, place, value, text):
    tokenizer = copy.deepcopy(REFERENCE["gpt2"]["tokenizer"])
    at = tokenizer
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    t = read(tokenizer)
    assert not t.good and text in t.room.raw and b"tokenizer.json: " in t.room.raw


@needs_jansson
def test_files_that_are_none(read, lib, tmp_path):
    for text in ("", "{", "[]", "{}", "[" * 100000, '{"model": 1}', '{"model": {"type": "BPE", "vocab": [], "merges": {}}}'):
        assert not read(text).good
    assert not Tokens(lib, tmp_path / "none").good and not Tokens(lib, tmp_path).good


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


@needs_jansson
def test_damaged_values(read):
    """One value replaced or taken out: read or refused, and what is read encodes."""
    rng, good = random.Random(1), 0
    for name in ("gpt2", "llama2", "llama3", "metaspace"):
        tokenizer = REFERENCE[name]["tokenizer"]
        all_places = [p for p in places(tokenizer) if p]
        shallow = [p for p in all_places if len(p) < 3 or p[0] != "model"]
        for _ in range(60):
            place, damaged = rng.choice(shallow if rng.random() < 0.7 else all_places), copy.deepcopy(tokenizer)
            at = damaged
            for key in place[:-1]:
                at = at[key]
            if rng.random() < 0.3:
                del at[place[-1]]
            else:
                at[place[-1]] = rng.choice([None, True, -1, 1 << 62, 3.5, "", "x", "▁", [], {}, [[]], {"id": {}}])
            t = read(damaged)
            good += bool(t.good)
            if t.good:
                t.text(t.encode("Hello, wörld 123\n  <|start|> x"))
    assert 40 < good < 220


class Draw(c.Structure):
    _fields_ = [("temperature", c.c_double), ("top_p", c.c_double), ("penalty", c.c_double), ("top_k", c.c_int64), ("state", c.c_uint64),
                ("heap", c.c_void_p), ("room", c.c_int)]


@pytest.fixture(scope="module")
def draws(tmp_path_factory):
    lib = library(tmp_path_factory.mktemp("draw"), "draw.c")

    def draw(logits, n, seed=1, seen=(), **more):
        d = Draw(**{"temperature": 1, "top_p": 1, "penalty": 1, "top_k": 0} | more)
        logits, seen = np.asarray(logits, np.float32), np.asarray(seen, np.int64)
        lib.draw_seed(c.byref(d), c.c_uint64(seed))
        one = lambda: lib.draw_token(c.byref(d), logits.ctypes.data_as(c.c_void_p), len(logits), seen.ctypes.data_as(c.c_void_p), c.c_int64(len(seen)))
        found = [one() for _ in range(n)]
        lib.draw_free(c.byref(d))
        return found
    return draw


def chances(logits, temperature=1, top_k=0, top_p=1):
    """Of every token: the k likeliest, of these the fewest that have top_p together."""
    order = np.argsort(-logits, kind="stable")[:top_k or None]
    p = np.exp((logits[order] - logits.max()) / temperature)
    p /= p.sum()
    p[np.concatenate([[0], np.cumsum(p)[:-1]]) >= top_p] = 0
    all_ = np.zeros(len(logits))
    all_[order] = p / p.sum()
    return all_


SEARCHES = [{}, {"temperature": 0.5}, {"top_k": 5}, {"top_p": 0.7}, {"top_k": 9, "top_p": 0.8, "temperature": 1.5}, {"top_k": 100}]


@pytest.mark.parametrize("more", SEARCHES, ids=str)
def test_chances(draws, more):
    logits, n = np.random.default_rng(1).normal(0, 2, 40), 20000
    want = chances(logits, **more)
    got = np.bincount(draws(logits, n, **more), minlength=40) / n
    assert not got[want == 0].any()
    assert np.all(np.abs(got - want) <= 5 * np.sqrt(want * (1 - want) / n))


def test_likeliest_and_seeds(draws):
    logits = [1, 3, -np.inf, 3, np.nan]
    for more in ({"temperature": 0}, {"top_k": 1}, {"top_p": 0}):
        assert draws(logits, 3, **more) == [1, 1, 1]
    assert 2 not in draws(logits, 500) and 4 not in draws(logits, 500)
    assert draws(range(9), 20, seed=5) == draws(range(9), 20, seed=5) != draws(range(9), 20, seed=6)


def test_penalty(draws):
    """Once for each token that was there, however often; divided above 0, multiplied below."""
    logits = [4.0, 3.5, -1.0]
    assert draws(logits, 1, temperature=0, penalty=1.2, seen=[0, 0, 0]) == [1]
    assert draws(logits, 1, temperature=0, penalty=1.1, seen=[0, 0, 0]) == [0]
    assert draws([-1.0, -1.5], 1, temperature=0, penalty=2, seen=[0, 7, -3]) == [1]

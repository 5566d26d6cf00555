"""Tokenizers as GGUF files have them: those of tests/examples/tokens_reference.json, and BabyLlama's letters."""
import json

from support.tokens import REFERENCE, TEXTS
from support.tool import ROOT

NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6


def kind(text, added):
    if text in added:
        return CONTROL if added[text] else USER
    return BYTE if text.startswith("<0x") and len(text) == 6 else UNKNOWN if text == "<unk>" else NORMAL


def keys_of(name, pre=None, **more):
    """The keys of a tokenizer.json: with scores, or with the cut PRE and merges. more: keys beside them."""
    tokenizer = REFERENCE[name]["tokenizer"]
    added = {a["content"]: a["special"] for a in tokenizer["added_tokens"]}
    ids = {**tokenizer["model"]["vocab"], **{a["content"]: a["id"] for a in tokenizer["added_tokens"]}}
    words = sorted(ids, key=ids.get)
    assert [ids[w] for w in words] == list(range(len(words)))
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    rows = [("tokenizer.ggml.tokens", ["str"], words), ("tokenizer.ggml.token_type", ["i32"], [kind(w, added) for w in words])]
    if pre:
        rows += [("tokenizer.ggml.model", "str", "gpt2"), ("tokenizer.ggml.pre", "str", pre), ("tokenizer.ggml.merges", ["str"], merges)]
    else:
        rank = {m.replace(" ", ""): i for i, m in reversed(list(enumerate(merges)))}
        scores = [-float(rank.get(w, 0 if w in added else 1000)) for w in words]
        rows += [("tokenizer.ggml.model", "str", "llama"), ("tokenizer.ggml.scores", ["f32"], scores), ("tokenizer.ggml.unknown_token_id", "u32", 0)]
        rows += [("tokenizer.ggml.bos_token_id", "u32", 1), ("tokenizer.ggml.eos_token_id", "u32", 2)]
    return rows + [("tokenizer.ggml." + k, "bool" if isinstance(v, bool) else "u32", v) for k, v in more.items()]


def babyllama():
    words = [line.split("\t")[0] for line in (ROOT / "examples/story/tok105.vocab").read_text().splitlines()]
    return [("tokenizer.ggml.model", "str", "llama"), ("tokenizer.ggml.tokens", ["str"], words), ("tokenizer.ggml.scores", ["f32"], [0.0] * len(words)),
            ("tokenizer.ggml.token_type", ["i32"], [UNKNOWN, CONTROL, CONTROL] + [NORMAL] * (len(words) - 3)),
            ("tokenizer.ggml.bos_token_id", "u32", 1), ("tokenizer.ggml.eos_token_id", "u32", 2), ("tokenizer.ggml.unknown_token_id", "u32", 0)]


AWKWARD = [*TEXTS, "a<|start|>b", "<s>x</s>", " <|start|>  x", "x <|end|> y", "<tool> x </tool>y", "\u00e9\u4e2d\U0001f642e", "  two  three   \n\n\n x\n",
           "0 00 000 0000 00000", "<0x0A>", "\u2581\u2581x", "\U000e0001\U0010ffff", "\u200d\ufeff\ufffd", "1.5e-10, -3", "CAN'T we'LL", "a" * 300]
LETTERS = ["", "Once upon a time", " Lily  went to the park.  ", "Tom said, \"Hi!\" 123", "a<s>b</s>", "x" * 50]
VOCABULARIES = {
    "gpt-2": (keys_of("gpt2", "gpt-2"), AWKWARD), "llama-bpe": (keys_of("llama3", "llama-bpe", bos_token_id=0), AWKWARD),
    "llama-bpe, none first": (keys_of("llama3", "llama-bpe", bos_token_id=0, add_bos_token=False), AWKWARD[:3]),
    "qwen2": (keys_of("qwen2", "qwen2"), AWKWARD), "smollm": (keys_of("smollm", "smollm", bos_token_id=0, add_bos_token=True), AWKWARD),
    "scores": (keys_of("llama2"), AWKWARD), "scores, no space": (keys_of("llama2", add_space_prefix=False, add_bos_token=False), AWKWARD),
    "babyllama": (babyllama(), LETTERS),
}


def meta(rows):
    """As mcc keeps them: key and value, each ended by a NUL."""
    as_text = lambda v: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)
    return b"".join(k.encode() + b"\0" + as_text(v).encode() + b"\0" for k, _, v in rows) + b"\0"

"""Tokenizers of GGUF files: examples/language makes the tokens that llama.cpp makes (recorded by record.py), of the artifact's metadata."""
import json
import random
import subprocess

import numpy as np
import pytest

from gguf import babyllama, record, vocabularies
from gguf.decoders import Model
from gguf.vocabularies import VOCABULARIES, keys_of, meta
from support.decoder import Compiled
from support.tokens import SOURCES, Tokens, library, needs_jansson
from support.tool import BUILD, ROOT, compile_to

# llama.cpp knows no U+017F in contractions; the tokenizers that the files were made of do, and so does examples/language.
DIFFERENT = {name: ["the compiler's options aren't 'quoted' we've I'LL HE'S 'ſ x'"] for name in ("llama-bpe", "llama-bpe, none first", "qwen2")}


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    return library(tmp_path_factory.mktemp("tokens"), *SOURCES)


@needs_jansson
@pytest.mark.parametrize("name", VOCABULARIES)
def test_tokens_are_those_of_llama_cpp(lib, name):
    keys, texts = VOCABULARIES[name]
    t, first = Tokens(lib, meta(keys)), {"llama-bpe": [0], "smollm": [0], "scores": [1], "babyllama": [1]}.get(name, [])
    assert t.good, t.room.raw
    for text, want in zip(texts, json.loads(record.OF_TEXTS.read_text())[name], strict=True):
        if text not in DIFFERENT.get(name, ()):
            assert first + t.encode(text) == want, text


@needs_jansson
def test_bytes_that_are_no_text(lib):
    for name in ("gpt-2", "llama-bpe", "scores"):
        t, data = Tokens(lib, meta(VOCABULARIES[name][0])), b"a\xff\xc3(\xf0\x9f b\xed\xa0\x80"
        assert t.text(t.encode(data)).lstrip() == data


REFUSED = [("tokenizer.ggml.model", "t5", b"a tokenizer 't5'"), ("tokenizer.ggml.pre", "deepseek-llm", b"text cut by that"),
           ("tokenizer.ggml.pre", None, b"tokenizer.ggml.pre is ''"), ("tokenizer.ggml.model", None, b"no tokenizer: compile a .gguf"),
           ("tokenizer.ggml.tokens", None, b"no vocabulary"), ("tokenizer.ggml.tokens", "[1]", b"token 0 is no text"),
           ("tokenizer.ggml.tokens", "[", b"tokenizer.ggml.tokens is no list"), ("tokenizer.ggml.merges", ["a nothing"], b"merge 0"),
           ("tokenizer.ggml.merges", ["ab"], b"merge 0"), ("tokenizer.ggml.merges", [], b"no merges"),
           ("tokenizer.ggml.token_type", "7", b"token_type is no list")]


def changed(keys, key, value):
    return [row for row in keys if row[0] != key] + ([(key, "str", value)] if value is not None else [])


@needs_jansson
@pytest.mark.parametrize("key, value, text", REFUSED, ids=range(len(REFUSED)))
def test_refusals(lib, key, value, text):
    t = Tokens(lib, meta(changed(VOCABULARIES["gpt-2"][0], key, value)))
    assert not t.good and text in t.room.raw, t.room.raw[-300:]


@needs_jansson
def test_damaged_values(lib):
    """One value replaced or taken out: read or refused, and what is read encodes."""
    rng, good = random.Random(1), 0
    for _ in range(200):
        keys = [list(row) for row in VOCABULARIES[rng.choice(["gpt-2", "llama-bpe", "scores", "babyllama"])][0]]
        row = rng.choice(keys)
        wrong = rng.choice([None, True, -1, 1 << 62, 3.5, "", "x", "\u2581", [], {}, [[]], "[" * 9000, "\\u0000"])
        if isinstance(row[2], list) and rng.random() < 0.7:
            row[2] = [*row[2]]
            row[2][rng.randrange(len(row[2]))] = wrong
        elif rng.random() < 0.2:
            keys.remove(row)
        else:
            row[2] = wrong
        t = Tokens(lib, meta(keys))
        good += bool(t.good)
        if t.good:
            t.text(t.encode("Hello, w\u00f6rld 123\n  <|start|> x"))
    assert 40 < good < 190


# ---- examples/chat with a network that has all in itself

@pytest.fixture(scope="module")
def program(tmp_path_factory):
    build = tmp_path_factory.mktemp("chat")
    done = subprocess.run(["make", "-C", ROOT / "examples/chat", f"BUILD={build}", f"MCC_BUILD={BUILD.absolute()}", build / "chat"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return build / "chat"


def run(program, *args, status=0, given=""):
    done = subprocess.run([program, *args], input=given, capture_output=True, text=True, errors="replace", timeout=60)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout.splitlines()


def drawn(tmp_path, keys, template=None, name="llama"):
    words = len(next(v for k, _, v in keys if k == "tokenizer.ggml.tokens"))
    f = Model("llama", layers=1, words=words, lively=True, seed=4).file()
    f.keys += [*keys, ("general.name", "str", name)] + ([("tokenizer.chat_template", "str", template)] if template else [])
    return compile_to(tmp_path / "m.so", f.save(tmp_path / "m.gguf"), "-q")


@needs_jansson
def test_babyllama_needs_no_other_file(program, lib, tmp_path):
    f = babyllama.file("Q4_0")
    f.keys += vocabularies.babyllama()
    network = compile_to(tmp_path / "m.so", f.save(tmp_path / "m.gguf"), "-q")
    t = Tokens(lib, meta(vocabularies.babyllama()))
    want = Compiled(network, room=256).tokens([1, *t.encode("Once upon a time")], 60)[0]
    assert [int(i) for i in run(program, "-i", "-n", "60", network, "Once upon a time")[0].split()] == want
    text = run(program, "-n", "60", network, "Once upon a time")[0]
    assert text.startswith(", there was a little girl named Lily. She loved to play")
    assert run(program, "-n", "60", network, given="Once upon a time\n") == [text]
    assert len(run(program, "-n", "5", network, "Tom had", " a ball")) == 2


MARKS = ["<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>", "<start_of_turn>",
         "<end_of_turn>", "<bos>", "<|user|>", "<|system|>", "<|assistant|>", "<|end|>"]
FORMS = {   # what stands in the template, the first turn, the second one
    "chatml": ("'<|im_start|>' + message['role'] + '<|im_end|>'",
               "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <s>.<|im_end|>\n<|im_start|>assistant\n",
               "<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n"),
    "phi4": ("'<|im_start|>user<|im_sep|>' + '<|im_end|>'",
             "<|im_start|>system<|im_sep|>Be brief.<|im_end|><|im_start|>user<|im_sep|>Hi <s>.<|im_end|><|im_start|>assistant<|im_sep|>",
             "<|im_end|><|im_start|>user<|im_sep|>And?<|im_end|><|im_start|>assistant<|im_sep|>"),
    "llama2": ("'[INST] <<SYS>>'", "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi <s>. [/INST]", " </s><s>[INST] And? [/INST]"),
    "llama3": ("<|start_header_id|> <|eot_id|>",
               "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
               "<|start_header_id|>user<|end_header_id|>\n\nHi <s>.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
               "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nAnd?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
    "gemma": ("<start_of_turn> <end_of_turn>",
              "<bos><start_of_turn>user\nBe brief.\n\nHi <s>.<end_of_turn>\n<start_of_turn>model\n",
              "<end_of_turn>\n<start_of_turn>user\nAnd?<end_of_turn>\n<start_of_turn>model\n"),
    "phi3": ("'<|user|>' '<|end|>' '<|assistant|>'", "<|system|>\nBe brief.<|end|>\n<|user|>\nHi <s>.<|end|>\n<|assistant|>\n",
             "<|end|>\n<|user|>\nAnd?<|end|>\n<|assistant|>\n"),
}


def with_marks(first):
    """Keys of letters with scores and the marks of all forms, and the words."""
    rows = {k.removeprefix("tokenizer.ggml."): (k, kind, v) for k, kind, v in keys_of("llama2")}
    for name, more in (("tokens", MARKS), ("token_type", [3] * len(MARKS)), ("scores", [0.0] * len(MARKS))):
        k, kind, v = rows[name]
        rows[name] = (k, kind, [*v, *more])
    words = rows["tokens"][2]
    rows["bos_token_id"] = ("tokenizer.ggml.bos_token_id", "u32", words.index(first))
    return [*rows.values()], words


def greedy(network, turns, steps, ends):
    """Answers to each turn behind all before; an end is drawn, but not part of the answer."""
    decoder, answers, pending = Compiled(network, room=400), [], []
    decoder.begin(400)
    for turn in turns:
        pending, answer = pending + turn, []
        while len(answer) < steps:
            token = int(decoder.step(np.array([pending]))[-1].argmax())
            pending = []
            if token in ends:
                break
            pending.append(token)
            answer.append(token)
        answers.append(answer)
    return answers


@needs_jansson
@pytest.mark.parametrize("form", FORMS)
def test_forms_by_templates(program, lib, tmp_path, form):
    """By the marks of the template; the first token comes once, words that look like a special token are words."""
    template, *turns = FORMS[form]
    keys, words = with_marks("<bos>" if form == "gemma" else "<|begin_of_text|>" if form == "llama3" else "<s>")
    name, said = "Phi-3-mini" if form == "phi3" else "m", ("Hi <s>.", "And?")
    network = drawn(tmp_path, keys, "{% for m in messages %}" + template, name)
    t = Tokens(lib, meta([*keys, ("general.name", "str", name)]))
    ids = [t.encode(text, (text.index(typed), text.index(typed) + len(typed))) for text, typed in zip(turns, said)]
    if form in ("chatml", "phi4", "phi3"):       # the others have it written out
        ids[0] = [1, *ids[0]]
    assert sum(i in (1, words.index("<bos>"), words.index("<|begin_of_text|>")) for i in ids[0]) == 1
    lines = run(program, "-i", "-n", "6", "-S", "Be brief.", network, *said)
    ends = {2, *(words.index(m) for m in ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>"))}
    assert [[int(i) for i in line.split()] for line in lines] == greedy(network, ids, 6, ends)


@needs_jansson
def test_templates_that_are_not_known(program, tmp_path):
    network = drawn(tmp_path, keys_of("llama2"), "{{ '### Instruction:' }}")
    assert "of no form known here; -f asks for one of none, chatml" in run(program, network, "Hi", status=1)
    assert run(program, "-f", "none", "-n", "3", network, "Hi")
    assert "no form 'x'" in run(program, "-f", "x", network, "Hi", status=1)


@needs_jansson
def test_networks_without(program, tmp_path):
    f = Model("llama", layers=1).file()
    network = compile_to(tmp_path / "m.so", f.save(tmp_path / "m.gguf"), "-q")
    assert "no tokenizer: compile a .gguf, or give the FOLDER" in run(program, network, "Hi", status=1)
    assert "usage" in run(program, status=2) and "usage" in run(program, tmp_path, status=2)
    assert "none.so" in run(program, tmp_path / "none.so", "Hi", status=1)

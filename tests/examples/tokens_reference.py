"""Writes tokens_reference.json: small tokenizers of the kinds that examples/language reads, and what the PyPI package `tokenizers` (0.22.1) makes of some
texts. The vocabularies come from a page of this project.

    python tests/examples/tokens_reference.py
"""
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
PAGE = (HERE.parent.parent / "docs/using.md").read_text()
PAGE += "Il était une fois une fille qui s'appelait Zoë. Größere Übungen überall. 日本語の文章です。 Привет, мир! can't I'll we've HE'S 12345 007 "
MARK = "▁"
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEXTS = ["", "Hello world", " Hello  world ", "the compiler's options aren't 'quoted' we've I'LL HE'S 'ſ x'", "a\n\nb\r\n  c\n", "   ", "\n",
         " \n \n x", "tabs\tand\t\tmore", "1234567 12 3, 4.5e6 x1y22 ①② ½", "naïve café Zoë Größe ÜBER", "日本語の文章です。", "Привет, мир!",
         "🙂🙃 family 👩‍👩‍👧", "a\u00a0b\u2003c\u3000d", "\u2028x\u0085", "def f(x):\n    return x ** 2  # square\n\n\n", "!!!??? ... --- ///", " !",
         "'", "''s", "x" * 40, "spaces    inside   words", "<|start|>user\nhi<|end|>\n", "<|start|> <|end|>", "<|star", "<tool>call</tool>",
         "\u0301combining e\u0301", "\ufb01 ﬁ ǅ ʰ ª", "٣٤٥ ४५६ Ⅻ", "\x07\x1b[0m", "▁mark ▁▁", "<0x41>", "I can't do 100% of it; she'd've."]


def byte_level(pre, **more):
    t = Tokenizer(models.BPE(**more))
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    t.train_from_iterator([PAGE], trainers.BpeTrainer(vocab_size=400, special_tokens=["<|start|>", "<|end|>"], show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_tokens(["<tool>", "</tool>"])
    return t


def split(digits):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS.replace("DIGITS", digits)), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def letters(fallback, pre=None):
    """Llama-2's kind: bytes as tokens behind <unk>, <s>, </s>, then letters and what they make."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator([PAGE], trainers.BpeTrainer(vocab_size=260, show_progress=False, limit_alphabet=90))
    saved = json.loads(trained.to_str())["model"]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] * fallback + list(saved["vocab"])
    t = Tokenizer(models.BPE(vocab={n: i for i, n in enumerate(names)}, merges=[tuple(m) for m in saved["merges"]], unk_token="<unk>", fuse_unk=True,
                             byte_fallback=fallback))
    if pre:
        scheme = json.loads(pre.__getstate__())["prepend_scheme"]
        t.pre_tokenizer, t.decoder = pre, decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)])
    else:
        t.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
        t.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_special_tokens(["<unk>", "<s>", "</s>", AddedToken("<|start|>", rstrip=True, special=True), AddedToken("<|end|>", lstrip=True, special=True)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


def main():
    kinds = {
        "gpt2": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "gpt2 with a space": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
        "llama3": byte_level(split("{1,3}"), ignore_merges=True),
        "qwen2": byte_level(split("")),
        "smollm": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])),
        "digits": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])),
        "llama2": letters(True),
        "llama2 without bytes": letters(False),
        "metaspace": letters(True, pre_tokenizers.Metaspace(prepend_scheme="always")),
        "metaspace, first": letters(True, pre_tokenizers.Metaspace(prepend_scheme="first")),
        "metaspace, never, whole": letters(True, pre_tokenizers.Metaspace(prepend_scheme="never", split=False)),
    }
    kinds["qwen2"].normalizer = normalizers.NFC()
    rows = {}
    for name, t in kinds.items():
        saved = json.loads(t.to_str())
        if name in ("gpt2", "llama2"):      # as older files have them
            saved["model"]["merges"] = [" ".join(m) for m in saved["model"]["merges"]]
        texts = [x for x in TEXTS if name != "qwen2" or "\u0301" not in x]
        ids = [t.encode(x, add_special_tokens=False).ids for x in texts]
        rows[name] = {"tokenizer": saved, "texts": texts, "ids": ids, "decoded": [t.decode(i, skip_special_tokens=True) for i in ids]}
    (HERE / "tokens_reference.json").write_text(json.dumps(rows, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()

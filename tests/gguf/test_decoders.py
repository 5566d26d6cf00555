"""GGUF files of every architecture and block type: logits beside NumPy's in f64, step by step with caches, and the same tokens."""
import json

import numpy as np
import pytest

from gguf import babyllama, copying, record
from gguf.decoders import Model
from gguf.writer import TYPES
from support.decoder import Compiled, Reference
from support.tool import compile_to, mcc, result

ONE = ("-q", "-march=native")
PROMPT = [3, 141, 59, 26, 53, 58, 97, 93, 23, 84]
MODELS = {
    "llama": Model("llama"),
    "llama-rope-factors": Model("llama", factors=([1, 1, 1, 2, 4, 8, 8, 8],), tied=True),
    "llama-linear": Model("llama", factor=4, heads=2, kv_heads=1, head=32, rotated=16),
    "smollm": Model("llama", heads=3, kv_heads=1, width=48, tied=True),
    "qwen2": Model("qwen2", biases=True, base=1e6, tied=True),
    "qwen3": Model("qwen3", head=32, base=1e6, tied=True),
    "gemma": Model("gemma", kv_heads=1, tied=True),
    "gemma2": Model("gemma2", layers=3, window=6, tied=True),
    "gemma3": Model("gemma3", layers=7, window=6, base=1e6, factor=8, tied=True),
    "mixtral": Model("llama", experts=4, used=2),
    "qwen3moe": Model("qwen3moe", layers=3, head=32, base=1e6, experts=8, used=3, dense=1),
    "gpt-oss": Model("gpt-oss", window=6, base=150000, yarn=32, original=100, experts=6, used=4),
    "phi3": Model("phi3", packed=True, window=8),
    "phi3-long": Model("phi3", packed=True, factors=([1.0] * 8, [1.0 + k for k in range(8)]), original=14, magnitude=1.19),
}


def steps(path, prompt, n, room):
    return Compiled(path, room=room).tokens(prompt, n)


def close(found, logits, model, prompt, bound):
    """Tokens so far decide what comes next, so the reference reads them."""
    want = model.logits(prompt + found)
    for k, have in enumerate(logits):
        row = want[len(prompt) - 1 + k]
        assert np.abs(have - row).max() <= bound * np.abs(row).max(), k
        assert row[have.argmax()] >= row.max() - 2 * bound * np.abs(row).max()


@pytest.mark.parametrize("name", MODELS)
def test_architectures(tmp_path, name):
    model = MODELS[name]
    compile_to(tmp_path / "m.so", model.file().save(tmp_path / "m.gguf"), *ONE)
    for room in (0, 64):
        found, logits = steps(tmp_path / "m.so", PROMPT, 12, room)
        if not model.factors or not model.original:
            close(found, logits, model, PROMPT, 2e-5)
        else:   # a step's angles are those of its length, and the caches keep what they were made with
            assert np.abs(logits[0] - model.logits(PROMPT)[-1]).max() <= 2e-5 * np.abs(logits[0]).max()
    if not model.factors or not model.original:    # a prompt in pieces
        decoder = Compiled(tmp_path / "m.so")
        decoder.begin(0)
        pieces = np.concatenate([decoder.step(np.array([ids], np.int64)) for ids in (PROMPT[:4], PROMPT[4:5], PROMPT[5:])])
        want = model.logits(PROMPT)
        assert np.abs(pieces - want).max() <= 2e-5 * np.abs(want).max()
    long = (PROMPT * 3)[:25]
    found, logits = steps(tmp_path / "m.so", long, 1, 0)
    close(found, logits, model, long, 2e-5)


def test_batches(tmp_path):
    """Sequences of several lengths, filled up behind: each is what it is alone."""
    model = MODELS["llama"]
    compile_to(tmp_path / "m.so", model.file().save(tmp_path / "m.gguf"), *ONE)
    lengths, longest = [4, 10, 7], 10
    ids, mask = np.zeros((3, longest), np.int64), np.zeros((3, longest), np.int64)
    for b, n in enumerate(lengths):
        ids[b, :n], mask[b, :n] = PROMPT[:n], 1
    run = Compiled(tmp_path / "m.so").artifact
    empty = [np.zeros((3, 2, 0, 16), np.float32)] * 4
    logits, *caches = run.run([ids, mask, *empty])
    for b, n in enumerate(lengths):
        want = model.logits(PROMPT[:n])
        assert np.abs(logits[b, :n] - want).max() <= 2e-5 * np.abs(want).max()
    # The next token of each stands at its own place.
    room = [np.concatenate([c, np.zeros((3, 2, 1, 16), np.float32)], 2) for c in caches]
    total = np.concatenate([mask, np.ones((3, 1), np.int64)], 1)
    logits, *_ = run.run([np.full((3, 1), 77, np.int64), total, *room])
    for b, n in enumerate(lengths):
        want = model.logits(PROMPT[:n] + [77])[-1]
        assert np.abs(logits[b, 0] - want).max() <= 2e-5 * np.abs(want).max()


KINDS = [k for k in TYPES if k != "F32"]
WIDE = dict(width=256, heads=4, kv_heads=2, head=64, forward=512, layers=1, words=300)


GROWTH = {"Q5_0": 1.6, "Q5_1": 1.6, "Q5_K": 1.6, "Q6_K": 1.35, "MXFP4": 1.1}


def stays_small(tmp_path, model, rounded, growth):
    """Exact, then rounded within that bound and at most so many times the file's bytes."""
    path = model.file().save(tmp_path / "m.gguf")
    compile_to(tmp_path / "exact.so", path, *ONE, "--precision=exact")
    found, logits = steps(tmp_path / "exact.so", PROMPT, 4, 0)
    close(found, logits, model, PROMPT, 5e-5)
    compile_to(tmp_path / "m.so", path, *ONE)
    found, logits = steps(tmp_path / "m.so", PROMPT, 4, 0)
    close(found, logits, model, PROMPT, rounded)
    want, bytes_ = path.stat().st_size, result("inspect", tmp_path / "m.so")["bytes"]
    have = bytes_["weights"] - bytes_["weights_padding"]
    assert have < growth * want, (have, want)


@pytest.mark.parametrize("kind", KINDS)
def test_types(tmp_path, kind):
    """Exactly what the bytes stand for with --precision=exact; rounded by blocks, as ggml does, without it. Nothing grows to f32."""
    model = Model("llama", kind=kind, tied=True, **WIDE)
    stays_small(tmp_path, model, 4e-2, GROWTH.get(kind, 1.04))


@pytest.mark.parametrize("kind", ["MXFP4", "Q4_K", "Q5_K", "Q6_K"])
def test_large_matrices(tmp_path, kind):
    """What is made of a matrix beyond --limit-fold-bytes is not folded, of a matrix of all experts neither."""
    for more in ({}, dict(experts=2)):
        model = Model("llama", kind=kind, tied=True, **WIDE | dict(width=1024, forward=1536), **more)
        path = model.file().save(tmp_path / "m.gguf")
        for options in ((), ("--precision=exact",)):
            done = mcc("-q", *options, "-stop-after=settle-constants", path, "-o", tmp_path / "m.txt")
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["F16", "MXFP4", "Q4_K", "Q5_1", "Q6_K", "Q8_0"])
@pytest.mark.parametrize("architecture", ["qwen3moe", "gpt-oss"])
def test_expert_types(tmp_path, architecture, kind):
    """The same of matrices of all experts: with and without a minimum, a middle, scales of two parts."""
    model = Model(architecture, kind="Q8_0", kinds={"exps.weight": kind}, tied=True, experts=5, used=2, **WIDE | dict(forward=256))
    stays_small(tmp_path, model, 6e-2, GROWTH.get(kind, 1.05))


def test_mixed(tmp_path):
    """As llama-quantize mixes them: larger types for some matrices, and a type that a width does not divide replaced."""
    larger = {"attn_v.weight": "Q6_K", "ffn_down.weight": "Q6_K", "token_embd.weight": "Q6_K", "output.weight": "Q8_0"}
    model = Model("qwen2", biases=True, kind="Q4_K", kinds=larger, **WIDE)
    compile_to(tmp_path / "m.so", model.file().save(tmp_path / "m.gguf"), *ONE, "--precision=exact")
    found, logits = steps(tmp_path / "m.so", PROMPT, 4, 0)
    close(found, logits, model, PROMPT, 5e-5)


def test_zero_blocks(tmp_path):
    """Blocks of zeros, and of one number: scales of 0 beside minima."""
    for kind in ("Q4_0", "Q4_1", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "Q8_0"):
        model = Model("llama", kind=kind, **WIDE)
        drawn = model.drawn

        def flat(f, name, *shape, scale=None):
            if "ffn_down" in name:
                x = np.zeros(shape, np.float32)
                x[::2, :128] = -0.03
                model.w[name] = f.tensor(name, kind, x).astype(np.float64)
            else:
                drawn(f, name, *shape, scale=scale)
        model.drawn = flat
        path = model.file().save(tmp_path / "m.gguf")
        for precision, bound in (("exact", 5e-5), ("auto", 4e-2)):
            compile_to(tmp_path / "m.so", path, *ONE, *([f"--precision={precision}"] if precision == "exact" else []))
            found, logits = steps(tmp_path / "m.so", PROMPT, 2, 0)
            assert np.isfinite(logits[0]).all()
            close(found, logits, model, PROMPT, bound)


@pytest.mark.parametrize("name", record.FILES)
def test_llama_cpp(tmp_path, name):
    """Greedy tokens are llama.cpp's, 64 of 64 (recorded by record.py), by blocks of 4 bits too."""
    make, prompt, size = record.FILES[name]
    compile_to(tmp_path / "m.so", make().save(tmp_path / "m.gguf"), *ONE)
    found, _ = Compiled(tmp_path / "m.so", room=128, size=size).tokens(prompt, 64)
    assert found == json.loads(record.TOKENS.read_text())[name]


def test_babyllama(tmp_path):
    """Real weights: the tokens of ONNX Runtime on the network that the file was made of."""
    compile_to(tmp_path / "m.so", babyllama.file("F32").save(tmp_path / "m.gguf"), *ONE)
    prompt = [1, 44, 20, 31, 53, 9]
    found, _ = Compiled(tmp_path / "m.so", room=256).tokens(prompt, 64)
    assert found == Reference(babyllama.PATH).tokens(prompt, 64)[0]


def test_wider_babyllama(tmp_path):
    """Units that are multiplied by 0 change no token."""
    found = []
    for units in (0, 64):
        compile_to(tmp_path / "m.so", babyllama.file("Q4_0", units).save(tmp_path / "m.gguf"), *ONE)
        found.append(Compiled(tmp_path / "m.so", room=64).tokens([1, 44, 20, 31, 53, 9], 16)[0])
    assert found[0] == found[1]


def test_copying(tmp_path):
    """The text goes on as it went on after its last token before."""
    compile_to(tmp_path / "m.so", copying.file(babyllama.WORDS, 64).save(tmp_path / "m.gguf"), *ONE)
    text = [1, 3, *range(20, 60), *range(20, 25)]
    found, _ = Compiled(tmp_path / "m.so", room=256, size=copying.WIDTH).tokens(text, 64)
    assert found == ([*range(25, 60)] + [*range(20, 60)])[:64]


def test_metadata(tmp_path):
    """The tokenizer and the chat's template are in the artifact, whole; inspect shows them in short."""
    f = Model("llama", layers=1).file()
    words = ["<unk>", "a\"b\\", "\n", "Ġé", "\u2581x"] + [f"word{i}" for i in range(155)]
    f.key("tokenizer.ggml.model", "str", "gpt2")
    f.key("tokenizer.ggml.tokens", ["str"], words)
    f.key("tokenizer.ggml.scores", ["f32"], [0.5, -1e30])
    f.key("tokenizer.ggml.token_type", ["i32"], [-1, 3])
    f.key("tokenizer.ggml.add_bos_token", "bool", True)
    f.key("tokenizer.ggml.bos_token_id", "u32", 1)
    f.key("tokenizer.chat_template", "str", "{% for m in messages %}\n{{ m }}" * 40)
    f.key("general.large", "u64", 2 ** 64 - 1)
    compile_to(tmp_path / "m.so", f.save(tmp_path / "m.gguf"), *ONE)
    meta = {m["key"]: m["value"] for m in result("inspect", tmp_path / "m.so")["meta"]}
    assert json.loads(meta["tokenizer.ggml.tokens"]) == words and meta["tokenizer.ggml.bos_token_id"] == "1"
    assert json.loads(meta["tokenizer.ggml.scores"]) == [0.5, pytest.approx(-1e30)] and meta["tokenizer.ggml.token_type"] == "[-1,3]"
    assert meta["tokenizer.ggml.add_bos_token"] == "true" and meta["general.large"] == str(2 ** 64 - 1)
    assert meta["tokenizer.chat_template"] == "{% for m in messages %}\n{{ m }}" * 40 and meta["llama.block_count"] == "1"
    shown = mcc("inspect", tmp_path / "m.so").stdout
    assert "tokenizer.chat_template: {% for m in messages %} ... (1240 bytes)" in shown


def test_commands(tmp_path):
    """What takes a network takes a .gguf; what cannot says so."""
    path = Model("llama", layers=1, kind="Q8_0").file().save(tmp_path / "m.gguf")
    dims = ["--dim", "batch_size=1", "--dim", "sequence_length=2", "--dim", "total_sequence_length=2", "--dim", "past_sequence_length=0"]
    fed = [w for n in ("input_ids", "attention_mask", "past_key_values.0.key", "past_key_values.0.value") for w in ("-i", n + "=random")]
    for args in (["check", path], ["inspect", path], ["run", path, *dims], ["eval", path, *dims, *fed, "-o", tmp_path / "out"],
                 ["bench", "--runs=3", path, *dims], ["report", path, "-o", tmp_path / "r.html"], [path, "--last-logits", "-o", tmp_path / "last.so"],
                 [path, "-c", "-o", tmp_path / "m.o"], [path, "--target=aarch64-linux-gnu", "-o", tmp_path / "arm.so"],
                 [path, "--input=input_ids[1,1]", "-o", tmp_path / "one.so"]):
        done = mcc(*args)
        assert done.returncode == 0, (args, done.stderr)
    done = mcc("reduce", path, "--", "true")
    assert done.returncode == 1 and "GGUF files cannot be cut down" in done.stderr
    done = mcc(path, "--overridable=token_embd.weight", "-o", tmp_path / "m.so")
    assert done.returncode == 2 and "cannot be overridden" in done.stderr
    (tmp_path / "other").write_bytes(path.read_bytes())
    assert mcc("check", tmp_path / "other").returncode == 0

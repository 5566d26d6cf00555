"""llama.cpp's greedy tokens for FILES, into llama_cpp.json, and what it makes of texts by VOCABULARIES, into llama_cpp_tokens.json:
PYTHONPATH=tests python -m gguf.record, with the package xllamacpp (2026.10.11549) beside NumPy and onnx. Caches are f32 there, as here."""
import functools
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

from gguf import babyllama
from gguf.decoders import Model
from gguf.vocabularies import VOCABULARIES

TOKENS = pathlib.Path(__file__).resolve().parent / "llama_cpp.json"
OF_TEXTS = TOKENS.with_name("llama_cpp_tokens.json")
STEPS = 64
PROMPT = [3, 141, 59, 26, 53, 58, 97, 93, 23, 84]
FILES = {    # how to make it, prompt, size of a head
    "babyllama-Q4_0": (functools.partial(babyllama.file, "Q4_0"), [1], 16),
    "babyllama-Q4_0-prompt": (functools.partial(babyllama.file, "Q4_0"), [1, 44, 20, 31, 53, 9], 16),
    **{name: (Model(architecture, lively=True, **more).file, PROMPT, more.get("head", 16)) for name, architecture, more in [
        ("llama", "llama", dict(layers=3)),
        ("llama-factors", "llama", dict(layers=3, factors=([1, 1, 1, 2, 4, 8, 8, 8],))),
        ("qwen2", "qwen2", dict(layers=3, biases=True, base=1e6)),
        ("qwen3", "qwen3", dict(layers=3, head=32, base=1e6)),
        ("qwen3-Q4_K", "qwen3", dict(layers=2, kind="Q4_K", width=256, head=64, forward=512, words=300, seed=3)),
        ("mixtral", "llama", dict(layers=3, experts=4)),
        ("qwen3moe", "qwen3moe", dict(layers=3, head=32, base=1e6, experts=8, used=3, seed=4)),
        ("gpt-oss", "gpt-oss", dict(layers=4, head=64, base=150000, window=8, yarn=32, original=4096, experts=6, used=4, seed=6)),
        ("gpt-oss-MXFP4", "gpt-oss", dict(layers=4, base=150000, window=8, yarn=32, original=100, experts=6, used=4, kinds={"exps.weight": "MXFP4"})),
        ("gemma2", "gemma2", dict(layers=4, window=6, tied=True)),
        ("gemma3", "gemma3", dict(layers=7, window=6, base=1e6, factor=8, tied=True)),
        ("phi3", "phi3", dict(layers=3, packed=True, original=512)),
        ("phi3-factors", "phi3", dict(layers=3, packed=True, factors=([1.0] * 8, [1.0 + k for k in range(8)]), original=300, magnitude=1.19))]},
}


def tokenizer(f):
    """llama.cpp wants one: words t3, t4, ..."""
    n = next(shape[0] for name, _, shape, _ in f.tensors if name == "token_embd.weight")
    f.key("tokenizer.ggml.model", "str", "llama")
    f.key("tokenizer.ggml.tokens", ["str"], ["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(3, n)])
    f.key("tokenizer.ggml.scores", ["f32"], [0.0] * n)
    f.key("tokenizer.ggml.token_type", ["i32"], [2, 3, 3] + [1] * (n - 3))
    f.key("tokenizer.ggml.eos_token_id", "u32", n - 1)
    return f


def server(path):
    import xllamacpp as x
    p = x.CommonParams()
    p.model.path, p.n_ctx, p.n_parallel, p.warmup = path, 256, 1, False
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
    p.cache_type_k = p.cache_type_v = x.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return x.Server(p)


def greedy(path, prompt):
    answer = server(path).handle_completions({"prompt": prompt, "n_predict": STEPS, "temperature": 0, "samplers": ["top_k"], "top_k": 1, "n_probs": 1})
    answer = json.loads(answer) if isinstance(answer, str) else answer
    return [t["id"] for t in answer["choices"][0]["logprobs"]["content"]]


def of_texts(path, texts):
    running = server(path)

    def one(text):
        body = {"content": text, "add_special": True, "parse_special": True}
        request = urllib.request.Request(running.listening_address + "/tokenize", json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request).read())["tokens"]
    return [one(text) for text in texts]


def apart(*args):
    """A process for each: the server's threads end with it."""
    done = subprocess.run([sys.executable, "-m", "gguf.record", *args], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("tokens"))[6:])


def save(path, found):
    path.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n}\n")


def record_texts():
    found = {}
    for name, (keys, texts) in VOCABULARIES.items():
        words = len(next(v for k, _, v in keys if k == "tokenizer.ggml.tokens"))
        with tempfile.TemporaryDirectory() as folder:
            f = Model("llama", layers=1, words=words).file()
            f.keys += keys
            found[name] = apart(f.save(pathlib.Path(folder) / "m.gguf"), json.dumps(texts), "texts")
        print(name, len(found[name]))
    save(OF_TEXTS, found)


def main():
    if len(sys.argv) > 1:
        print("tokens", json.dumps((of_texts if sys.argv[3:] else greedy)(sys.argv[1], json.loads(sys.argv[2]))), flush=True)
        return
    record_texts()
    found = {}
    for name, (make, prompt, _) in FILES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = tokenizer(make()).save(pathlib.Path(folder) / "m.gguf")
            found[name] = apart(path, json.dumps(prompt))
        print(name, len(found[name]), len(set(found[name])))
    save(TOKENS, found)


if __name__ == "__main__":
    main()

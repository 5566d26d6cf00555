"""examples/chat --speculate: tokens are those of one-by-one decoding, whatever is guessed and however they are drawn."""
import random
import re
import subprocess

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from examples.test_chat import letters_folder
from gguf import babyllama, vocabularies
from gguf.decoders import Model
from support.compare import node
from support.tokens import needs_jansson
from support.tool import BUILD, ROOT, compile_to

NAMES, THINGS, VERBS = ("Lily", "Tom", "Mia", "Ben"), ("ball", "dog", "cake", "boat", "tree"), ("saw", "found", "liked", "lost")


def sentence(rng):
    return f"{rng.choice(NAMES)} {rng.choice(VERBS)} a {rng.choice(('big', 'red', 'new'))} {rng.choice(THINGS)}. "


def prompts():
    """60 beginnings of stories, 40 texts that repeat what was said."""
    rng = random.Random(4)
    again = [sentence(rng) + sentence(rng) for _ in range(40)]
    return [sentence(rng)[:rng.randrange(5, 28)] for _ in range(60)] + [x + x + x[:rng.randrange(4, 20)] for x in again]


class Chat:
    def __init__(self, program, *network):
        self.command, self.tried, self.right, self.rows = [program, *network[:-1]], 0, 0, 0
        self.network = network[-1:]

    def tokens(self, text, *options, status=0):
        done = subprocess.run([*self.command[:1], "-i", "-v", "-n", "60", *options, *self.command[1:], *self.network, text], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == status, done.stderr
        found = re.search(r"(\d+) of (\d+) guesses were right, (\d+) rows", done.stderr)
        if found:
            right, tried, self.rows = map(int, found.groups())
            self.right, self.tried = self.right + right, self.tried + tried
        return done.stderr if status else done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    build = tmp_path_factory.mktemp("chat")
    done = subprocess.run(["make", "-C", ROOT / "examples/chat", f"BUILD={build}", f"MCC_BUILD={BUILD.absolute()}", build / "chat"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return build / "chat"


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    f = babyllama.file("Q4_0")
    f.keys += vocabularies.babyllama()
    folder = tmp_path_factory.mktemp("babyllama")
    return compile_to(folder / "m.so", f.save(folder / "m.gguf"), "-q", "--strict")


@needs_jansson
def test_a_hundred_prompts(program, network):
    chat = Chat(program, network)
    for i, text in enumerate(prompts()):
        drawn = () if i % 4 else ("-t", "0.8", "-s", str(i), "-r", "1.1")
        assert chat.tokens(text, "--speculate", *drawn) == chat.tokens(text, *drawn), text
    assert chat.tried > 50


@needs_jansson
def test_turns(program, network):
    """Answers that end within guesses, the next turn behind them, a context that is full."""
    said = ["Once upon a time", " Lily saw a cat. Lily saw a", " Tom", "Tom had a red ball. Tom had a red ball. Tom had a"]
    for options in (("-n", "9"), ("-n", "80"), ("-c", "100"), ("-n", "1")):
        both = [subprocess.run([program, "-i", *options, *more, network, *said * 2], capture_output=True, text=True, check=True).stdout
                for more in ((), ("--speculate",), (f"--draft={network}",))]
        assert both[0] == both[1] == both[2]


@needs_jansson
def test_drafts(program, network, tmp_path):
    """A draft model that is always right, and one of drawn weights that hardly is."""
    small = Model("llama", layers=1, words=babyllama.WORDS, width=32, heads=2, kv_heads=1, forward=32).file()
    compile_to(tmp_path / "small.so", small.save(tmp_path / "small.gguf"), "-q")
    for draft in (network, tmp_path / "small.so"):
        chat = Chat(program, network)
        for text in prompts()[50:70]:
            assert chat.tokens(text, f"--draft={draft}") == chat.tokens(text), text
    assert "gives 160 words" in chat.tokens("x", f"--draft={other_words(tmp_path)}", status=1)
    assert "none.so" in chat.tokens("x", "--draft=none.so", status=1)


def other_words(folder):
    return compile_to(folder / "other.so", Model("llama", layers=1).file().save(folder / "other.gguf"), "-q")


@needs_jansson
def test_rows_that_are_not_alike(program, tmp_path):
    """Logits that depend on how many rows run: they are found out, and nothing is verified together."""
    (tmp_path / "model").mkdir()
    model = onnx.load(ROOT / "examples/story/babyllama-int4.onnx")
    for n in model.graph.node:
        n.output[:] = ["alone" if o == "logits" else o for o in n.output]
    model.graph.initializer.extend([numpy_helper.from_array(np.random.default_rng(1).normal(0, 2, 105).astype(np.float32), "shift"),
                                    numpy_helper.from_array(np.array([1]), "place")])
    model.graph.node.extend([node("Shape", "input_ids", "ids_shape"), node("Gather", "ids_shape place", "ids_rows"),
                             node("Cast", "ids_rows", "ids_count", to=1), node("Mul", "ids_count shift", "shifted"), node("Add", "alone shifted", "logits")])
    onnx.save(model, tmp_path / "model/model.onnx")
    network = compile_to(tmp_path / "m.so", tmp_path / "model/model.onnx", "-q", "--strict")
    chat = Chat(program, letters_folder(tmp_path / "model")[0], network)
    for text in prompts()[55:70]:
        assert chat.tokens(text, "--speculate") == chat.tokens(text), text
    assert chat.tried == 0 and chat.rows == 1


@needs_jansson
def test_long_texts(program, tmp_path):
    """Beyond the keys that fit into one part: without --strict few rows and many would differ there."""
    f = Model("llama", layers=2, words=105, lively=True, seed=5).file()
    f.keys = [(k, kind, 1024 if k.endswith("context_length") else v) for k, kind, v in [*f.keys, *vocabularies.babyllama()]]
    network = compile_to(tmp_path / "m.so", f.save(tmp_path / "m.gguf"), "-q", "--strict")
    for i, text in enumerate(("Once upon a time", "Tom had a red ball. Tom had")):
        more = ("-n", "900", *(("-t", "0.3", "-s", "2") if i else ()))
        assert Chat(program, network).tokens(text, "--speculate", *more) == Chat(program, network).tokens(text, *more)


@needs_jansson
def test_networks_that_cannot(program, tmp_path):
    f = babyllama.file("Q4_0")
    f.keys += vocabularies.babyllama()
    path = f.save(tmp_path / "m.gguf")
    for options, text in ((["--strict", "--last-logits"], "compile without --last-logits"), ([], "compile with --strict")):
        network = compile_to(tmp_path / "m.so", path, "-q", *options)
        assert text in Chat(program, network).tokens("x", "--speculate", status=1)


@needs_jansson
def test_a_file_cannot_promise(program, tmp_path):
    f = babyllama.file("Q4_0")
    f.keys += [*vocabularies.babyllama(), ("mcc.strict", "str", "true")]
    network = compile_to(tmp_path / "m.so", f.save(tmp_path / "m.gguf"), "-q")
    assert "compile with --strict" in Chat(program, network).tokens("x", "--speculate", status=1)

"""examples/chat on folders as onnxruntime-genai's builder writes them: a network with drawn weights, whose greedy tokens are ONNX Runtime's, turn after
turn, and BabyLlama, which writes English."""
import copy
import json
import random
import subprocess

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from bench.llm_network import SHAPES, Network
from support.compare import node
from support.decoder import Compiled, Reference
from support.tokens import REFERENCE, SOURCES, Tokens, library, needs_jansson
from support.tool import BUILD, ROOT, mcc

HERE = ROOT / "examples/chat"
SHAPES["chat"] = (64, 2, 4, 2, 192, 420, True)      # as many words as the tokenizers of tokens_reference.json have, and more
CONFIG = {"model": {"context_length": 200, "decoder": {"filename": "model.onnx", "inputs": {"input_ids": "input_ids"}}, "eos_token_id": 419, "vocab_size": 420},
          "search": {"do_sample": False, "max_length": 180, "num_beams": 1, "temperature": 1.0, "top_k": 50, "top_p": 1.0}}


def genai(folder, tokenizer, config=CONFIG):
    folder.mkdir(exist_ok=True)
    (folder / "genai_config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def make(build, folder, *variables):
    done = subprocess.run(["make", "-C", HERE, f"BUILD={build}", f"MCC_BUILD={BUILD.absolute()}", f"MODEL={folder}", *variables],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Chat:
    """The program with a network, and ONNX Runtime with the same one."""

    def __init__(self, build, folder, *variables):
        make(build, folder, *variables)
        self.program, self.network, self.folder = build / "chat", build / "model.so", folder
        self.reference = Reference(folder / "model.onnx")

    def run(self, *options, turns=(), folder=None, status=0, raw=False):
        done = subprocess.run([self.program, *options, folder or self.folder, self.network], input="".join(t + "\n" for t in turns).encode(),
                              capture_output=True, timeout=60)
        assert done.returncode == status, done.stderr.decode()
        return done if raw else done.stdout.decode(errors="replace").splitlines()

    def greedy(self, prompts, steps, end=(), penalty=1):
        """What ONNX Runtime says to each list of tokens behind all before; an end is drawn, but not part of the answer."""
        self.reference.begin(0)
        said, answers, fed = [], [], 0
        for prompt in prompts:
            said += prompt
            answers.append([])
            while len(answers[-1]) < steps:
                logits = self.reference.step(np.array([said[fed:]]))[-1].astype(np.float64)
                fed, seen = len(said), np.unique(said)
                logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
                if (token := int(logits.argmax())) in end:
                    break
                answers[-1].append(token)
                said = said + [token]
        return answers


def numbers(lines):
    return [[int(n) for n in line.split()] for line in lines]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Llama-3's kind of tokenizer, f32 weights."""
    tmp = tmp_path_factory.mktemp("chat")
    (tmp / "model").mkdir()
    Network("chat").save(tmp / "model")
    folder = genai(tmp / "model", REFERENCE["llama3"]["tokenizer"])
    return Chat(tmp / "build", folder)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    lib = library(tmp_path_factory.mktemp("tokens"), *SOURCES)

    def of(tokenizer):
        path = tmp_path_factory.mktemp("of") / "tokenizer.json"
        path.write_text(json.dumps(tokenizer))
        return Tokens(lib, path)
    return of


def lines_of(name):
    """Texts of the reference that are a line, with their tokens."""
    row = REFERENCE[name]
    return [(t, i) for t, i in zip(row["texts"], row["ids"]) if t and not {*t} & {*"\r\n"} and "<|" not in t]


@needs_jansson
@pytest.mark.parametrize("name", ["gpt2", "llama3", "qwen2", "llama2"])
def test_greedy_tokens_of_turns(drawn, tmp_path, name):
    """What no chat stands around: each line's tokens go in behind all before, tokens as ONNX Runtime's come out."""
    folder = genai(tmp_path / "model", REFERENCE[name]["tokenizer"])
    texts, ids = zip(*[(t, [i % 420 for i in x]) for t, x in lines_of(name) if max(x) < 420][1:6])
    first = [1] if name == "llama2" else []              # its post-processor's <s>
    want = drawn.greedy([first + ids[0], *ids[1:]], 12, {419})
    assert numbers(drawn.run("-i", "-n", "12", turns=texts, folder=folder)) == want


def windowed(model, window, slides):
    """All layers but the last see a window; slides: their caches hold no more, as onnxruntime-genai's builder has it."""
    for i, n in enumerate([n for n in model.graph.node if n.op_type == "GroupQueryAttention"][:-1]):
        n.attribute.extend([helper.make_attribute("local_window_size", window), *([helper.make_attribute("sliding_window_cache", 1)] if slides else [])])
        for port in (*model.graph.input, *model.graph.output):
            if slides and port.name.split(".")[0] in ("past_key_values", "present") and port.name.split(".")[1] == str(i):
                port.type.tensor_type.shape.dim[2].dim_param = port.name.split(".")[0].split("_")[0] + "_sliding_length"
    return model


@needs_jansson
@pytest.mark.parametrize("slack", [0, 3])
def test_caches_of_windows(drawn, tmp_path, slack):
    """Answers over several turns are those of ONNX Runtime with caches of the whole text."""
    folder, config = tmp_path / "model", copy.deepcopy(CONFIG)
    config["model"]["decoder"]["sliding_window"] = {"window_size": 6, "slide_key_value_cache": False, "slide_inputs": False, "layers": [0],
                                                    "cache_slack": slack}
    folder = genai(folder, REFERENCE["llama3"]["tokenizer"], config)
    onnx.save(windowed(onnx.load(drawn.folder / "model.onnx"), 6, True), folder / "model.onnx")
    chat = Chat(tmp_path / "build", folder, "SPECULATE=1")
    onnx.save(windowed(onnx.load(drawn.folder / "model.onnx"), 6, False), tmp_path / "whole.onnx")
    chat.reference = Reference(tmp_path / "whole.onnx")
    texts, ids = zip(*[(t, [i % 420 for i in x]) for t, x in lines_of("llama3") if max(x) < 420][1:6])
    assert numbers(chat.run("-i", "-n", "12", turns=texts)) == chat.greedy(ids, 12, {419})
    assert b"speculation needs caches in place" in chat.run("--speculate", turns=["a"], status=1, raw=True).stderr
    for change, why in (({"slide_inputs": True}, b"slides"), ({"window_size": -1}, b"-1"), ({"window_size": 4}, b"fewer rows than the window")):
        changed = copy.deepcopy(config)
        changed["model"]["decoder"]["sliding_window"] |= change | {"cache_slack": 0}
        assert why in chat.run(turns=["a"], folder=genai(tmp_path / "changed", REFERENCE["llama3"]["tokenizer"], changed), status=1, raw=True).stderr


@needs_jansson
def test_text_is_the_tokens(drawn, tokens):
    """The answer's text is its tokens' bytes, and comes before the program ends."""
    t = tokens(REFERENCE["llama3"]["tokenizer"])
    answer = numbers(drawn.run("-i", "-n", "30", turns=["Hello world"]))[0]
    assert len(answer) == 30
    assert drawn.run("-n", "30", turns=["Hello world"], raw=True).stdout == t.text(answer) + b"\n"


FORMS = {"chatml": (["<|im_start|>", "<|im_end|>"],
                    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <|im_end|> all<|im_end|>\n<|im_start|>assistant\n",
                    "<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n"),
         "llama3": (["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
                    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
                    "<|start_header_id|>user<|end_header_id|>\n\nHi <|im_end|> all<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
                    "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nAnd?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
         "llama2": (["<s>", "</s>"], "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi <|im_end|> all [/INST]", " </s><s>[INST] And? [/INST]")}


@needs_jansson
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_chats(drawn, tokens, tmp_path, form):
    """What stands around the words; words that look like a special token are words; the form is known by its tokens."""
    marks, first, second = FORMS[form]
    tokenizer = copy.deepcopy(REFERENCE["qwen2"]["tokenizer"])
    tokenizer["added_tokens"] += [{"id": 410 + i, "content": m, "special": True} for i, m in enumerate(marks)]
    t, typed = tokens(tokenizer), first.index("Hi")
    prompts = [t.encode(first, (typed, typed + len("Hi <|im_end|> all"))), t.encode(second)]
    for prompt, text in zip(prompts, (first, second)):
        assert sum(410 <= i < 419 for i in prompt) == sum(text.replace("Hi <|im_end|> all", "").count(m) for m in marks)
    assert all(max(p) < 420 for p in prompts)
    folder = genai(tmp_path / "model", tokenizer)
    asked = () if form != "llama2" else ("-f", form)
    lines = drawn.run("-i", "-n", "8", "-S", "Be brief.", *asked, turns=["Hi <|im_end|> all", "And?"], folder=folder)
    assert numbers(lines) == drawn.greedy(prompts, 8, {419})


@needs_jansson
def test_ends_of_answers(drawn, tmp_path):
    """eos_token_id as a number and as a list; the next turn follows what was said."""
    texts, ids = zip(*lines_of("llama3")[1:3])
    answer = drawn.greedy(ids[:1], 20)[0]
    end = next(i for i, t in enumerate(answer) if i > 2 and t not in answer[:i])
    for value in (answer[end], [419, answer[end]]):
        config = copy.deepcopy(CONFIG)
        config["model"]["eos_token_id"] = value
        got = numbers(drawn.run("-i", "-n", "20", turns=texts, folder=genai(tmp_path / "model", REFERENCE["llama3"]["tokenizer"], config)))
        assert got == drawn.greedy(ids, 20, {answer[end], 419}) and got[0] == answer[:end]


@needs_jansson
def test_the_end_of_the_context(drawn):
    """max_length ends an answer; the turn that no longer fits begins anew, one that never fits is refused."""
    text, ids = lines_of("llama3")[1]
    done = drawn.run("-i", turns=[text, text], raw=True)
    answers = numbers(done.stdout.decode().splitlines())
    assert [len(ids) + len(a) for a in answers] == [180, 180] and answers[0] == answers[1] and "forgotten" in done.stderr.decode()
    assert len(numbers(drawn.run("-i", "-c", "40", turns=[text]))[0]) == 40 - len(ids)
    assert "longer than the context" in drawn.run("-c", "4", turns=[text * 9], status=1, raw=True).stderr.decode()


@needs_jansson
def test_drawing_as_the_folder_says(drawn, tmp_path):
    """Options and genai_config.json mean the same; a seed gives one answer, another seed another one."""
    text, ids = lines_of("llama3")[1]
    config = copy.deepcopy(CONFIG)
    config["search"] |= {"do_sample": True, "temperature": 1.5, "top_k": 7, "top_p": 0.9, "random_seed": 3, "repetition_penalty": 1.3}
    folder = genai(tmp_path / "model", REFERENCE["llama3"]["tokenizer"], config)
    by_folder = drawn.run("-i", "-n", "40", turns=[text], folder=folder)
    by_options = [drawn.run("-i", "-n", "40", "-t", "1.5", "-k", "7", "-p", "0.9", "-r", "1.3", "-s", s, turns=[text]) for s in "34"]
    assert by_folder == by_options[0] != by_options[1]
    greedy = drawn.greedy([ids], 40, {419}, penalty=1.3)
    assert numbers(drawn.run("-i", "-n", "40", "-t", "0", turns=[text], folder=folder)) == greedy != drawn.greedy([ids], 40, {419})


@needs_jansson
def test_figures(drawn):
    done = drawn.run("-v", "-n", "9", "-j", "2", turns=["one", "two"], raw=True)
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 2 and all("ms to the first token" in x and "tokens/s of 9," in x and x.endswith("caches in place") for x in lines)


def with_standard_attention(path, heads, keys, size):
    """Caches that an Attention makes longer, instead of those of GroupQueryAttention: they grow, and have no alias without a maximum."""
    model = onnx.load(path)
    nodes = list(model.graph.node)
    model.graph.initializer.append(numpy_helper.from_array(np.array([heads * size, keys * size, keys * size]), "parts"))
    del model.graph.node[:]
    for n in nodes:
        if n.op_type != "GroupQueryAttention":
            model.graph.node.append(n)
            continue
        q, k, v = (f"{n.output[0]}.{x}" for x in "qkv")
        model.graph.node.extend([node("Split", f"{n.input[0]} parts", f"{q} {k} {v}", axis=-1),
                                 helper.make_node("Attention", [q, k, v, "", *n.input[3:5]], n.output, is_causal=1, q_num_heads=heads, kv_num_heads=keys)])
    model.opset_import[0].version = 23
    onnx.save(model, path)


@needs_jansson
def test_caches_with_room(tmp_path):
    """ROOM: what grew by copies grows in place, tokens are ONNX Runtime's turn after turn, and the context is no longer than the room."""
    (tmp_path / "model").mkdir()
    drawn = Network("chat")
    drawn.save(tmp_path / "model")
    with_standard_attention(tmp_path / "model/model.onnx", drawn.heads, drawn.keys, drawn.size)
    decoder = drawn.genai()["model"]["decoder"]
    config = copy.deepcopy(CONFIG)
    config["model"]["decoder"] = {k: decoder[k] for k in ("inputs", "outputs", "num_key_value_heads", "head_size")}
    folder = genai(tmp_path / "model", REFERENCE["llama3"]["tokenizer"], config)
    texts, ids = zip(*lines_of("llama3")[1:4])
    for variables, kept in (((), "handed on"), (("ROOM=150",), "in place")):
        chat = Chat(tmp_path / f"build{len(variables)}", folder, *variables)
        want = chat.greedy(ids, 12, {419})
        assert numbers(chat.run("-i", "-n", "12", turns=texts)) == want
        done = chat.run("-i", "-v", turns=[texts[0], texts[0]], raw=True)
        answers = numbers(done.stdout.decode().splitlines())
        assert f"caches {kept}" in done.stderr.decode() and "forgotten" in done.stderr.decode() and answers[0] == answers[1]
        assert len(ids[0]) + len(answers[0]) == (150 if variables else 180)


@needs_jansson
def test_caches_of_integers(babyllama, tmp_path):
    """--cache-type=int8: the scales are caches, too."""
    chat, letters = babyllama
    network, ids = tmp_path / "int8.so", [1] + [letters.index(x) for x in "▁Once▁upon▁a▁time"]
    assert mcc(chat.folder / "model.onnx", "--cache-type=int8", "-o", network).returncode == 0
    want = Compiled(network).tokens(ids, 60)[0]
    done = subprocess.run([chat.program, "-i", "-v", "-n", "60", chat.folder, network], input="Once upon a time\n", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "caches in place" in done.stderr, done.stderr
    assert numbers(done.stdout.splitlines()) == [want]


REFUSED = [("search", "num_beams", 4, "num_beams"), ("search", "no_repeat_ngram_size", 3, "no_repeat_ngram_size"),
           ("model", "context_length", 0, "context_length"),
           ("model", "eos_token_id", [1] * 40, "eos_token_id"), ("model", "context_length", 1 << 40, "context of"), ("model", "decoder", 3, "no model.decoder"),
           ("decoder", "inputs", {"input_ids": "ids"}, "no input 'ids'"), ("decoder", "inputs", {"past_key_names": "past.%d"}, "nothing is known"),
           ("decoder", "inputs", {"past_key_names": "%s%n"}, "nothing is known"), ("decoder", "outputs", {"present_key_names": "%d.x"}, "no output goes on")]


@needs_jansson
@pytest.mark.parametrize("where, key, wrong, text", REFUSED, ids=range(len(REFUSED)))
def test_refusals(drawn, tmp_path, where, key, wrong, text):
    config = copy.deepcopy(CONFIG)
    (config["model"]["decoder"] if where == "decoder" else config[where])[key] = wrong
    if key == "context_length":
        config["search"]["max_length"] = 1 << 50
    folder = genai(tmp_path / "model", REFERENCE["gpt2"]["tokenizer"], config)
    assert text in drawn.run(turns=["x"], folder=folder, status=1, raw=True).stderr.decode()


@needs_jansson
def test_wrong_use(drawn, tmp_path):
    for options in (["-t", "x"], ["-n", "0"], ["-p", "1.5"], ["-z"]):
        assert "usage" in drawn.run(*options, status=2, raw=True).stderr.decode()
    assert "genai_config.json" in drawn.run(folder=tmp_path, status=1, raw=True).stderr.decode()
    assert "no form 'x'" in drawn.run("-f", "x", status=1, raw=True).stderr.decode()
    assert "at most 262144" in drawn.run(turns=["x" * 270000], status=1, raw=True).stderr.decode()
    (tmp_path / "tokenizer.json").write_text("{")
    (tmp_path / "genai_config.json").write_text(json.dumps(CONFIG))
    assert "tokenizer.json" in drawn.run(folder=tmp_path, status=1, raw=True).stderr.decode()


@needs_jansson
def test_damaged_configs(drawn, tmp_path):
    """Any value replaced by another: an answer or a refusal."""
    rng, wrong = random.Random(2), [None, True, -1, 1 << 62, 3.5, "", "%d", [], {}, [[]]]
    for _ in range(40):
        config = copy.deepcopy(CONFIG)
        at = rng.choice([config, config["model"], config["search"], config["model"]["decoder"], config["model"]["decoder"]["inputs"]])
        at[rng.choice(list(at))] = rng.choice(wrong)
        folder = genai(tmp_path / "model", REFERENCE["gpt2"]["tokenizer"], config)
        done = subprocess.run([drawn.program, "-c", "30", folder, drawn.network], input=b"hello\n", capture_output=True, timeout=60)
        assert done.returncode in (0, 1) and bool(done.stderr) == done.returncode, (config, done.stderr)


def letters_folder(folder):
    """A folder of that form for examples/story's network: its letters are the vocabulary, nothing is merged. Returns the letters, too."""
    letters, mark = [line.split("\t")[0] for line in (ROOT / "examples/story/tok105.vocab").read_text().splitlines()], "▁"
    tokenizer = {"added_tokens": [{"id": i, "content": letters[i], "special": True} for i in (1, 2)],
                 "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": mark},
                                                                    {"type": "Replace", "pattern": {"String": " "}, "content": mark}]},
                 "pre_tokenizer": None, "decoder": {"type": "Replace", "pattern": {"String": mark}, "content": " "},
                 "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "s"}}, {"Sequence": {"id": "A"}}],
                                    "special_tokens": {"s": {"ids": [1]}}},
                 "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(letters)}, "merges": [], "unk_token": letters[0]}}
    config = {"model": {"context_length": 256, "decoder": {}, "eos_token_id": [1, 2]}, "search": {"do_sample": False, "max_length": 256}}
    return genai(folder, tokenizer, config), letters


@pytest.fixture(scope="module")
def babyllama(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("babyllama")
    folder, letters = letters_folder(tmp / "model")
    (folder / "model.onnx").write_bytes((ROOT / "examples/story/babyllama-int4.onnx").read_bytes())
    return Chat(tmp / "build", folder), letters


@needs_jansson
@pytest.mark.parametrize("prompt", ["Once upon a time", "Tom had a red ball"])
def test_it_writes_english(babyllama, prompt):
    chat, letters = babyllama
    ids = [1] + [letters.index(x) for x in "▁" + prompt.replace(" ", "▁")]
    want = chat.greedy([ids], 60, {1, 2})[0]
    assert numbers(chat.run("-i", "-n", "60", turns=[prompt])) == [want]
    text = "".join(letters[t] for t in want).replace("▁", " ")
    assert chat.run("-n", "60", turns=[prompt])[0] == text
    assert prompt[0] != "O" or text.startswith(", there was a little girl named Lily. She loved to play")

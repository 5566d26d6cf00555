"""examples/speech on two small networks with drawn weights, of the form of Moonshine's exports: caches that grow, and caches of what was heard, which
the first call alone computes, inside an If. Tokens are ONNX Runtime's. Then WAV files of all kinds, and the converter of ONNX Runtime's format.
The real networks: make check-real, speech."""
import copy
import json
import os
import random
import shutil
import struct
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from support.tokens import REFERENCE, SOURCES, Tokens, library, needs_jansson
from support.tool import BUILD, ROOT, mcc, value

HERE = ROOT / "examples/speech"
sys.path.append(str(HERE))
import compare  # noqa: E402

HEADS, SIZE, WIDTH, WORDS, STEP = 2, 8, 16, 420, 64
RATE = 16000
PORTS = [f"{side}.{kind}" for side in ("decoder", "encoder") for kind in ("key", "value")]
node = helper.make_node


def encoder(path, rng):
    """A frame of 64 samples is a row; the mask counts."""
    weights = {"w": (rng.standard_normal((WIDTH, 1, STEP)) / 4).astype(np.float32), "one": np.array([1])}
    nodes = [node("Cast", ["attention_mask"], ["mask"], to=T.FLOAT), node("Mul", ["input_values", "mask"], ["x"]), node("Unsqueeze", ["x", "one"], ["y"]),
             node("Conv", ["y", "w"], ["z"], strides=[STEP]), node("Tanh", ["z"], ["h"]), node("Transpose", ["h"], ["last_hidden_state"], perm=[0, 2, 1])]
    inputs = [value("input_values", ["b", "n"]), value("attention_mask", ["b", "n"], T.INT64)]
    save(path, nodes, inputs, [value("last_hidden_state", ["b", "f", WIDTH])], weights)


def save(path, nodes, inputs, outputs, weights):
    graph = helper.make_graph(nodes, "net", inputs, outputs, [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


def heads(of, to):
    """[b, n, width] as [b, heads, n, size]."""
    return [node("Reshape", [of, "split"], [of + "_r"]), node("Transpose", [of + "_r"], [to], perm=[0, 2, 1, 3])]


def attention(q, k, v, to):
    return [node("Transpose", [k], [to + "_kt"], perm=[0, 1, 3, 2]), node("MatMul", [q, to + "_kt"], [to + "_s"]), node("Softmax", [to + "_s"], [to + "_p"]),
            node("MatMul", [to + "_p", v], [to + "_o"]), node("Transpose", [to + "_o"], [to + "_t"], perm=[0, 2, 1, 3]),
            node("Reshape", [to + "_t", "join"], [to])]


def decoder(path, rng):
    """One layer. The branch with caches gives empty ones of what was heard, as the exports do: the first call's stay."""
    forms = {"table": (WORDS, WIDTH), "head": (WIDTH, WORDS)} | {n: (WIDTH, WIDTH) for n in ("wq", "wk", "wv", "cq")}
    weights = {n: (rng.standard_normal(s)).astype(np.float32) for n, s in forms.items()}
    weights["head"] /= np.linalg.norm(weights["head"], axis=0)      # else one word is always the likeliest
    weights |= {"split": np.array([0, 0, HEADS, SIZE]), "join": np.array([0, 0, WIDTH])}
    heard, empty = {n: rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) for n in ("ek", "ev")}, np.zeros((0, HEADS, 1, SIZE), np.float32)
    outs = lambda tag, ranks: [helper.make_empty_tensor_value_info(f"{tag}{n}") for n in ranks]
    first = helper.make_graph([node("MatMul", ["scaled", "ek"], ["fk"]), node("MatMul", ["scaled", "ev"], ["fv"]), *heads("fk", "f0"), *heads("fv", "f1"),
                               node("Identity", ["f0"], ["f2"]), node("Identity", ["f1"], ["f3"])], "first", [], outs("f", range(4)),
                              [numpy_helper.from_array(a, n) for n, a in heard.items()])
    later = helper.make_graph([node("Identity", ["past_key_values.0.encoder.key"], ["l0"]), node("Identity", ["past_key_values.0.encoder.value"], ["l1"]),
                               node("Constant", [], ["l2"], value=numpy_helper.from_array(empty)), node("Identity", ["l2"], ["l3"])],
                              "later", [], outs("l", range(4)))
    nodes = [node("Cast", ["encoder_attention_mask"], ["m"], to=T.FLOAT), node("ReduceMean", ["m"], ["mean"], keepdims=1),
             node("Unsqueeze", ["mean", "two"], ["scale"]), node("Mul", ["encoder_hidden_states", "scale"], ["scaled"]),
             node("If", ["use_cache_branch"], ["ck", "cv", "present.0.encoder.key", "present.0.encoder.value"], then_branch=later, else_branch=first),
             node("Gather", ["table", "input_ids"], ["x"]),
             *(node("MatMul", ["x", w], [w + "x"]) for w in ("wq", "wk", "wv")), *heads("wqx", "q"), *heads("wkx", "k"), *heads("wvx", "v"),
             *(node("Concat", [f"past_key_values.0.decoder.{n}", n[0]], [f"present.0.decoder.{n}"], axis=2) for n in ("key", "value")),
             *attention("q", "present.0.decoder.key", "present.0.decoder.value", "self"), node("Add", ["x", "self"], ["y"]),
             node("MatMul", ["y", "cq"], ["cqx"]), *heads("cqx", "c"), *attention("c", "ck", "cv", "cross"), node("Add", ["y", "cross"], ["z"]),
             node("MatMul", ["z", "head"], ["logits"])]
    cache = lambda head, kind: [value(f"{head}.0.{p}", ["b", HEADS, f"{kind}_{p[:7]}", SIZE]) for p in PORTS]
    save(path, nodes, [value("input_ids", ["b", "s"], T.INT64), value("encoder_hidden_states", ["b", "f", WIDTH]), *cache("past_key_values", "past"),
                       value("encoder_attention_mask", ["b", "samples"], T.INT64), value("use_cache_branch", [1], T.BOOL)],
         [value("logits", ["b", "s", WORDS]), *(helper.make_empty_tensor_value_info(f"present.0.{p}") for p in PORTS)], weights | {"two": np.array([2])})


def sound(n, seed=1):
    return (np.random.default_rng(seed).standard_normal(n) * 9000).clip(-32768, 32767).astype(np.int16)


def wav(data, rate=RATE, channels=1, bits=16, kind=1, size=None, before=b"", extra=b""):
    """A file, byte by byte; size: what the header says of the data."""
    data = data.tobytes() if hasattr(data, "tobytes") else data
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits) + extra
    body = b"WAVE" + before + b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data) if size is None else size) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


class Speech:
    def __init__(self, folder):
        self.folder, rng = folder, np.random.default_rng(10)
        encoder(folder / "encoder.onnx", rng), decoder(folder / "decoder.onnx", rng)
        (folder / "tokenizer.json").write_text(json.dumps(REFERENCE["llama2"]["tokenizer"]))
        targets = [folder / n for n in ("speech", "encoder.so", "decoder.so")]
        for n in ("wheel", "venv"):      # as if pip had been here
            (folder / n).mkdir()
            (folder / n / "done").touch()
        for n in ("encoder", "decoder"):      # newer than what they would be made of
            os.utime(folder / f"{n}.onnx", (2e9, 2e9))
        done = subprocess.run(["make", "-C", HERE, f"BUILD={folder}", f"MCC_BUILD={BUILD.absolute()}", *targets], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self.reference = compare.Reference(folder)

    def run(self, *options, files=(), folder=None, status=0):
        paths = []
        for i, data in enumerate(files):
            paths.append(self.folder / f"{i}.wav")
            paths[-1].write_bytes(data)
        done = subprocess.run([self.folder / "speech", *options, folder or self.folder, *paths], capture_output=True, timeout=60)
        assert done.returncode == status, done.stderr.decode()
        return done.stderr.decode() if status else done.stdout.decode(errors="replace").splitlines()


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    return Speech(tmp_path_factory.mktemp("speech"))


LENGTHS = [1600, 1664, 4000, 16000, 40001]


@needs_jansson
def test_tokens_as_onnx_runtime(speech):
    """Files one behind the other: nothing of one is left for the next."""
    sounds = [sound(n, seed=n) for n in LENGTHS]
    want = [speech.reference.tokens(x) for x in sounds]
    assert len({tuple(w[:8]) for w in want}) == len(want) and all(len(w) > 5 for w in want)
    got = [[int(i) for i in line.split()] for line in speech.run("-i", files=[wav(x) for x in sounds])]
    assert got == want
    assert [[int(i) for i in line.split()] for line in speech.run("-i", "-n", "3", "-j", "2", files=[wav(x) for x in sounds])] == [w[:3] for w in want]


@needs_jansson
def test_text_of_tokens(speech, tmp_path):
    t = Tokens(library(tmp_path, *SOURCES), speech.folder / "tokenizer.json")
    want = t.text(speech.reference.tokens(sound(4000))).removeprefix(b" ")
    (speech.folder / "x.wav").write_bytes(wav(sound(4000)))
    done = subprocess.run([speech.folder / "speech", "-v", speech.folder, speech.folder / "x.wav"], capture_output=True)
    assert done.stdout == want + b"\n" and b"tokens/s of" in done.stderr


@needs_jansson
def test_the_end(speech, tmp_path):
    """</s> ends the text: here it is a token that comes."""
    ids, tokenizer = speech.reference.tokens(sound(4000)), copy.deepcopy(REFERENCE["llama2"]["tokenizer"])
    vocabulary = tokenizer["model"]["vocab"]
    names = {i: n for n, i in vocabulary.items()}
    end = next(i for k, i in enumerate(ids) if k > 1 and i not in ids[:k] and i in names)
    vocabulary["</s>"], vocabulary[names[end]] = end, 2
    next(a for a in tokenizer["added_tokens"] if a["content"] == "</s>")["id"] = end
    for name in ("encoder.so", "decoder.so"):
        shutil.copy(speech.folder / name, tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert [int(i) for i in speech.run("-i", files=[wav(sound(4000))], folder=tmp_path)[0].split()] == ids[:ids.index(end)]


@needs_jansson
def test_other_forms_of_the_same_sound(speech):
    """Chunks before, a longer format, a format with a list of its own, a size that the writer did not know, odd ends."""
    x = sound(4000)
    want = speech.run("-i", files=[wav(x)])
    extensible = struct.pack("<HHIH", 22, 16, 4, 1) + b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
    for data in (wav(x, before=b"LIST" + struct.pack("<I", 5) + b"INFOx\0"), wav(x, extra=b"\0\0"), wav(x, kind=0xFFFE, extra=extensible),
                 wav(x, size=0xFFFFFFFF), wav(x, size=0), wav(x) + b"LIST\4\0\0\0abcd", wav(x.tobytes() + b"\1", size=8001)):
        assert speech.run("-i", files=[data]) == want


WRONG = [(b"", "no WAV file"), (b"RIFF", "no WAV file"), (b"RIFX" + bytes(40), "no WAV file"), (wav(sound(4000))[:12], "no sound"),
         (wav(sound(4000), rate=44100), "44100 samples a second"), (wav(sound(4000), channels=2), "2 channels"), (wav(sound(4000), bits=8), "8 bits"),
         (wav(sound(4000), kind=3), "not PCM"), (wav(sound(4000), size=8002), "cut off"), (wav(sound(4000), size=0xFFFFFFFE), "cut off"),
         (wav(sound(1000)), "less than a tenth"), (wav(b"", size=0), "less than a tenth"), (wav(np.zeros(RATE * 64 + 1, np.int16)), "more than 64 seconds"),
         (wav(np.zeros(RATE * 64 + 1, np.int16), size=0), "more than 64 seconds"), (wav(sound(4000)).replace(b"fmt ", b"fmx "), "no sound"),
         (b"RIFF\0\0\0\0WAVEfmt \4\0\0\0abcd", "cut off"), (b"RIFF\0\0\0\0WAVELIST\xff\xff\xff\xffabcd", "no sound"),
         (b"RIFF\0\0\0\0WAVEfmt \xff\xff\xff\xff" + bytes(60), "cut off")]


@needs_jansson
@pytest.mark.parametrize("data, text", WRONG, ids=range(len(WRONG)))
def test_other_files(speech, data, text):
    assert text in speech.run(files=[data], status=1)


@needs_jansson
def test_damaged_headers(speech):
    rng, good = random.Random(4), wav(sound(2000))
    for _ in range(60):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(44)] = rng.choice([0, 1, 255, rng.randrange(256)])
        (speech.folder / "d.wav").write_bytes(data[:rng.choice([len(data), rng.randrange(len(data))])])
        done = subprocess.run([speech.folder / "speech", "-n", "2", speech.folder, speech.folder / "d.wav"], capture_output=True, timeout=60)
        assert done.returncode in (0, 1) and bool(done.stderr) == done.returncode


@needs_jansson
def test_wrong_use(speech, tmp_path):
    for options in (["-n", "0"], ["-j", "x"], ["-z"]):
        assert "usage" in speech.run(*options, files=[b""], status=2)
    assert "usage" in speech.run(status=2)
    assert "tokenizer.json" in speech.run(files=[b""], folder=tmp_path, status=1)
    shutil.copy(speech.folder / "tokenizer.json", tmp_path)
    assert "encoder.so" in speech.run(files=[b""], folder=tmp_path, status=1)
    shutil.copy(speech.folder / "decoder.so", tmp_path / "encoder.so")
    assert "no encoder" in speech.run(files=[b""], folder=tmp_path, status=1)
    shutil.copy(speech.folder / "encoder.so", tmp_path / "encoder.so")
    shutil.copy(speech.folder / "encoder.so", tmp_path / "decoder.so")
    assert "no input 'input_ids'" in speech.run(files=[b""], folder=tmp_path, status=1)


def test_from_onnx_runtimes_format(tmp_path):
    """There and back: the same answers, by ONNX Runtime and by mcc; lengths that differ have names of their own."""
    decoder(tmp_path / "net.onnx", np.random.default_rng(7))
    model = onnx.load(tmp_path / "net.onnx")
    for i in model.graph.input:      # as the exports call them
        if i.name.startswith("encoder_") or ".encoder." in i.name:
            i.type.tensor_type.shape.dim[2 if ".encoder." in i.name else 1].dim_param = "encoder_sequence_length"
    onnx.save(model, tmp_path / "net.onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.graph_optimization_level = str(tmp_path / "net.ort"), onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(tmp_path / "net.onnx", options)
    subprocess.run([sys.executable, HERE / "ort2onnx.py", tmp_path / "net.ort", tmp_path / "back.onnx"], check=True)
    named = {i.name: [d.dim_param for d in i.type.tensor_type.shape.dim] for i in onnx.load(tmp_path / "back.onnx").graph.input}
    assert named["encoder_attention_mask"][1] == "mask_length" and named["past_key_values.0.encoder.key"][2] == "past_encoder"
    assert named["encoder_hidden_states"][1] == "encoder_sequence_length"
    feeds = {"use_cache_branch": np.array([False]), "input_ids": np.array([[5]]), "encoder_attention_mask": np.ones((1, 99), np.int64)}
    feeds |= {"encoder_hidden_states": np.random.default_rng(1).standard_normal((1, 4, WIDTH)).astype(np.float32)}
    feeds |= {f"past_key_values.0.{p}": np.zeros((1, HEADS, 0, SIZE), np.float32) for p in PORTS}
    answers = [onnxruntime.InferenceSession(tmp_path / n).run(["logits"], feeds)[0] for n in ("net.onnx", "back.onnx")]
    assert np.array_equal(*answers)
    assert mcc("-q", tmp_path / "back.onnx", "-o", tmp_path / "back.so").returncode == 0

"""Slices of rows move up to the products that make them (hoist-slices), asked for by --last-logits or by the file, beside ONNX Runtime."""
import re

import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import ModelError
from support.compare import Model, difference, floats, ints, node
from support.tool import mcc, value

WIDTH, WORDS = 24, 40


def decoder(folder, tail=(), out="logits", dims=("b", "n", WORDS)):
    """A product, a residual, a norm, a gated pair of products, the head; tail: nodes behind the head."""
    constants = {f"w{i}": floats(WIDTH, m, seed=i, scale=0.2) for i, m in enumerate((WIDTH, 64, 64, WORDS))} | {"down": floats(64, WIDTH, scale=0.2)}
    nodes = [node("MatMul", "x w0", "p"), node("Add", "x p", "h"), node("LayerNormalization", "h gain", "q", axis=-1),
             node("MatMul", "q w1", "g"), node("Sigmoid", "g", "s"), node("MatMul", "q w2", "u"), node("Mul", "s u", "m"),
             node("MatMul", "m down", "d"), node("Add", "h d", "e"), node("MatMul", "e w3", "logits"), *tail]
    return Model(folder, nodes, [value("x", ["b", "n", WIDTH])], [value(out, dims)], constants | {"gain": floats(WIDTH), "one": ints(1)}
                 | {n: ints(i) for n, i in {"last": -1, "end": np.iinfo(np.int64).max, "axis": 1}.items()} | {"at": np.array(-1)})


def rows_of_products(model, *flags):
    """Of what each product makes, in order: are all n rows of it computed?"""
    return [m[1] == "n" for m in re.finditer(r"f32\[\w+, (.*), \w+\] = dot\(", model.dump("hoist-slices", *flags))]


FORMS = {
    "slice": ([node("Slice", "logits last end axis", "y")], ("b", 1, WORDS)),
    "gather": ([node("Gather", "logits at", "y", axis=1)], ("b", WORDS)),
    "behind a softmax": ([node("Softmax", "logits", "z", axis=-1), node("Slice", "z last end axis", "y")], ("b", 1, WORDS)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_slice_of_the_file(tmp_path, form):
    tail, dims = FORMS[form]
    model = decoder(tmp_path, tail, "y", dims)
    for b, n in [(1, 1), (2, 5), (3, 17)]:
        model.compare([floats(b, n, WIDTH)])
    assert rows_of_products(model) == [False] * 5


@pytest.mark.parametrize("flag", ["-O0", "-O2"])
def test_last_logits(tmp_path, flag):
    model = decoder(tmp_path)
    for b, n in [(1, 1), (2, 5), (3, 17)]:
        x = floats(b, n, WIDTH, seed=n)
        want, (got,) = model.want([x])[0][:, -1:], model.run([x], flag, "--last-logits")
        text = difference(want, got)
        assert not text, text
    with pytest.raises(ModelError, match="there is no last position"):
        model.run([floats(1, 0, WIDTH)], flag, "--last-logits")


def test_rows_of_last_logits(tmp_path):
    model = decoder(tmp_path)
    assert rows_of_products(model) == [True] * 5
    assert rows_of_products(model, "--last-logits") == [False] * 5


def test_two_readers_keep_all_rows(tmp_path):
    """h is read as a whole too: its product computes every row, the others one."""
    model = decoder(tmp_path, [node("Slice", "logits last end axis", "z"), node("ReduceSum", "h axis", "t", keepdims=1),
                               node("ReduceSum", "t", "r", keepdims=1), node("Add", "z r", "y")], "y", ("b", 1, WORDS))
    model.compare([floats(2, 5, WIDTH)], rtol=1e-3, atol=1e-4)
    assert rows_of_products(model) == [True] + [False] * 4


def test_bounds_that_the_run_finds(tmp_path):
    """The first row is what another input says, which is known behind the products only."""
    nodes = [node("MatMul", "x w", "p"), node("Exp", "p", "e"), node("Cast", "f", "i", to=T.INT64), node("Add", "i one", "j"),
             node("Slice", "e i j axis", "y")]
    model = Model(tmp_path, nodes, [value("x", [2, "n", 8]), value("f", [1])], [value("y", [2, "m", 6])],
                  {"w": floats(8, 6), "one": ints(1), "axis": ints(1)})
    for at in (0, 3, 6, -1):
        model.compare([floats(2, 7, 8), np.array([at], np.float32)])


def attention(folder, last):
    """Causal attention of the opset's own operator, of which the last query is read."""
    nodes = [node("MatMul", "x wq", "q"), node("MatMul", "x wk", "k"), node("MatMul", "x wv", "v"),
             node("Attention", "q k v", "a", is_causal=1, q_num_heads=2, kv_num_heads=2), node("MatMul", "a wo", "o")]
    nodes += [node("Slice", "o last end axis", "y")] if last else [node("Identity", "o", "y")]
    constants = {n: floats(32, 32, seed=i, scale=0.3) for i, n in enumerate(("wq", "wk", "wv", "wo"))}
    return Model(folder, nodes, [value("x", [1, "n", 32])], [value("y", None)],
                 constants | {"last": ints(-1), "end": ints(np.iinfo(np.int64).max), "axis": ints(1)}, opset=23)


def test_the_last_query_of_attention(tmp_path):
    for n in ("all", "last"):
        (tmp_path / n).mkdir()
    whole, last = attention(tmp_path / "all", False), attention(tmp_path / "last", True)
    for n in (1, 7, 40):
        x = floats(1, n, 32, seed=n)
        text = difference(whole.run([x], "-O0")[0][:, -1:], last.run([x], "-O2")[0])
        assert not text, text
    assert rows_of_products(whole)[-1] and not rows_of_products(last)[-1]


def test_refused(tmp_path):
    other = decoder(tmp_path, [node("Neg", "logits", "y")], "y", ("b", "n", WORDS))
    done = mcc(other.path, "-o", tmp_path / "none.so", "--last-logits")
    assert done.returncode == 2 and "no output that is called logits" in done.stderr, done.stderr
    (tmp_path / "flat").mkdir()
    flat = Model(tmp_path / "flat", [node("Neg", "x", "logits")], [value("x", [3, 4])], [value("logits", [3, 4])])
    done = mcc(flat.path, "-o", tmp_path / "none.so", "--last-logits")
    assert done.returncode == 2 and "[batch, positions, words], not f32[3, 4]" in done.stderr, done.stderr

"""Caches in a narrower type than the file has (--cache-type), beside the same network with the conversions written out, in NumPy."""
import re

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto as T

from support import cpu
from support.artifact import Artifact
from support.compare import Model, difference, floats, ints, node
from support.decoder import Compiled, attention_with_caches, grouped
from support.tool import ROOT, mcc, value

SIZE = 16
TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f8": ml_dtypes.float8_e4m3fn}


def attention(keys):
    return [node("Transpose", keys, "kt", perm=[0, 2, 1]), node("MatMul", "q kt", "s"), node("Softmax", "s", "p", axis=-1),
            node("MatMul", f"p {keys}", "y")]


def growing(folder):
    """present = [past, rows]: keys that are values, too."""
    nodes = [node("MatMul", "x w", "rows"), node("MatMul", "x u", "q"), node("Concat", "past rows", "present", axis=1), *attention("present")]
    return Model(folder, nodes, [value("past", ["b", "p", SIZE]), value("x", ["b", "n", SIZE])],
                 [value("present", ["b", "t", SIZE]), value("y", ["b", "n", SIZE])], {n: floats(SIZE, SIZE, seed=i, scale=0.3) for i, n in enumerate("wu")})


def narrow(x, name):
    return x.astype(TYPES[name])


def expected(past, x, name):
    w, u = (floats(SIZE, SIZE, seed=i, scale=0.3) for i in range(2))
    present = np.concatenate([past, narrow(x @ w, name)], 1)
    k = present.astype(np.float32)
    s = (x @ u) @ k.transpose(0, 2, 1)
    p = np.exp(s - s.max(-1, keepdims=True))
    return present, (p / p.sum(-1, keepdims=True)) @ k


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("flag", ["-O0", "-O2"])
def test_growing(tmp_path, name, flag):
    model, step = growing(tmp_path), {"bf16": 2 ** -8, "f16": 2 ** -11, "f8": 2 ** -4}[name]
    for b, p, n in [(1, 0, 1), (2, 5, 3), (1, 40, 1)]:
        past, x = narrow(floats(b, p, SIZE, seed=p), name), floats(b, n, SIZE, seed=n + 50)
        (present, y), want = model.run([past, x], flag, f"--cache-type={name}"), expected(past, x, name)
        assert present.dtype == TYPES[name] and np.array_equal(present[:, :p], past)
        assert not (text := difference(want[0].astype(np.float32), present.astype(np.float32), step, 1e-6)), text
        assert not (text := difference(want[1], y, 1e-3 if name != "f8" else 0.05, 1e-3 if name != "f8" else 0.05)), text


def test_interpreter_and_artifact_agree(tmp_path):
    model = growing(tmp_path)
    done = mcc("diff", model.path, "--cache-type=bf16", "--dim=b=2", "--dim=p=7", "--dim=n=3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bf16[b,p,16]" in mcc("inspect", model.compile("--cache-type=bf16")).stdout


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("past", [0, 150])
def test_rows_together_or_alone(tmp_path, name, past):
    """A run reads its own rows as a later one does: with --strict the bits are those of one row at a time."""
    path = growing(tmp_path).compile(f"--cache-type={name}", "--strict")
    x, first = floats(1, 9, SIZE, seed=3), narrow(floats(1, past, SIZE, seed=4), name)
    with Artifact(path, threads=1) as a:
        whole = a.call([first, x])
        cache, rows = first, []
        for i in range(9):
            cache, y = (r.copy() for r in a.call([cache, x[:, i:i + 1]]))
            rows.append(y)
    assert whole[0].tobytes() == cache.tobytes()
    assert rows[-1].tobytes() == whole[1][:, -1:].tobytes()


@pytest.mark.parametrize("march", cpu.levels())
@pytest.mark.parametrize("name", TYPES)
def test_attention_reads_narrow(tmp_path, name, march):
    """Two caches, columns that fill no vector, keys in several spans: no kernel widens a cache as a whole, for few rows or for many."""
    size = 68
    model = attention_with_caches(tmp_path, size)
    text = mcc(model.path, "-stop-after=fuse", f"--cache-type={name}", march).stdout
    wide = re.findall(r"(%\d+): f32\[.* = convert\(", text)
    assert len(wide) == 2 and not any(f"value {v} stored" in text for v in wide), text
    for past, n in [(0, 1), (150, 1), (300, 40)]:
        q, pk, pv, k, v = (floats(1, rows, w, seed=s) for s, (rows, w) in enumerate([(n, 64), (past, 64), (past, size), (n, 64), (n, size)]))
        y = model.run([q, narrow(pk, name), narrow(pv, name), k, v], f"--cache-type={name}", march)[0]
        keys, values = (narrow(np.concatenate(pair, 1), name).astype(np.float64) for pair in ((pk, k), (pv, v)))
        e = q @ keys.transpose(0, 2, 1)
        e = np.exp(e - e.max(-1, keepdims=True))
        assert not (text := difference(((e / e.sum(-1, keepdims=True)) @ values).astype(np.float32), y, 1e-4, 1e-4)), text


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_one_buffer(tmp_path, name):
    """TensorScatter into a cache that is input and output: still one piece of memory, only the new rows written."""
    nodes = [node("TensorScatter", "past new at", "present", axis=1), node("ReduceSum", "present axes", "sum", keepdims=0)]
    model = Model(tmp_path, nodes, [value("past", ["b", 12, SIZE]), value("new", ["b", "n", SIZE]), value("at", ["b"], T.INT64)],
                  [value("present", ["b", 12, SIZE]), value("sum", ["b", 12])], {"axes": ints(2)}, opset=24)
    with Artifact(model.compile(f"--cache-type={name}"), threads=1) as a:
        assert [p.alias for p in a.outputs] == [1, 0]
        cache, new = narrow(floats(1, 12, SIZE), name), floats(1, 2, SIZE, seed=1)
        want = cache.copy()
        want[0, 4:6] = narrow(new[0], name)
        total = np.zeros((1, 12), np.float32)
        a.run_into([cache, new, ints(4)], [cache, total])
    assert cache.tobytes() == want.tobytes()
    assert np.allclose(total, want.astype(np.float32).sum(2), rtol=1e-5, atol=1e-5)


def test_grouped_attention(tmp_path):
    """GroupQueryAttention and its caches; both are converted or neither is."""
    model = grouped(tmp_path)
    feed = [floats(1, 3, 64), floats(1, 3, 32, seed=1), floats(1, 3, 32, seed=2), floats(1, 2, 5, 16, seed=3), floats(1, 2, 5, 16, seed=4),
            np.array([7], np.int32), np.zeros((1, 8), np.int64)]
    rounded = [narrow(x, "f16") if i in (3, 4) else x for i, x in enumerate(feed)]
    want = model.want([x.astype(np.float32) if x.dtype == np.float16 else x for x in rounded])
    got = model.run(rounded, "--cache-type=f16")
    assert [g.dtype for g in got] == [np.float32, np.float16, np.float16]
    for w, g in zip(want, got):
        assert not (text := difference(w, g.astype(np.float32), 2e-3, 2e-3)), text


@pytest.mark.parametrize("name, parts", [("auto", 1), ("bf16", 1), ("int8", 2)])
def test_one_token_asks_for_what_comes_next(tmp_path, name, parts):
    """Few rows: each key of a tile has a line of its values, and of the key a span later, prefetched; so have their scales."""
    text = grouped(tmp_path).dump("emit", "-march=x86-64-v3", f"--cache-type={name}")
    lines = text.count("prefetch2")
    assert lines and lines % (2 * parts) == 0 and lines // (2 * parts) <= 4, lines


def test_a_model_of_exporters(tmp_path):
    """BabyLlama of examples/story: the words are those of caches in f32."""
    model = Model(tmp_path, path=ROOT / "examples/story/babyllama-int4.onnx")
    prompt = [1, 403, 407, 261, 378]
    want = Compiled(model.compile()).tokens(prompt, 24)[0]
    assert Compiled(model.compile("--cache-type=f16")).tokens(prompt, 24)[0] == want


def test_one_input_of_several_outputs(tmp_path):
    """An input that two outputs begin with, an output of that name again, and one that goes on with another: all are narrow, and the rows stay wide."""
    nodes = [node("Concat", "past x", "a", axis=1), node("Concat", "past x x", "b", axis=1), node("Identity", "a", "c"), node("Concat", "a x", "d", axis=1)]
    model = Model(tmp_path, nodes, [value("past", ["b", "p", SIZE]), value("x", ["b", "n", SIZE])], [value(n, ["b", "t" + n, SIZE]) for n in "abcd"])
    past, x = narrow(floats(1, 4, SIZE), "bf16"), floats(1, 2, SIZE, seed=1)
    for flag in ("-O0", "-O2"):
        got = model.run([past, x], flag, "--cache-type=bf16")
        for times, g in zip((1, 2, 1, 2), got):
            assert g.tobytes() == np.concatenate([past, *[narrow(x, "bf16")] * times], 1).tobytes()


def test_large_numbers(tmp_path):
    """f8 has no infinity: what is beyond its largest number becomes that one, as with ONNX's Cast, and no NaN."""
    model = Model(tmp_path, [node("Concat", "past x", "y", axis=1)], [value("past", ["b", "p", 4]), value("x", ["b", "n", 4])], [value("y", ["b", "t", 4])])
    past, x = narrow(np.zeros((1, 0, 4)), "f8"), np.array([[[1e5, -1e5, np.inf, 3]]], np.float32)
    for flag in ("-O0", "-O2"):
        assert model.run([past, x], flag, "--cache-type=f8")[0].astype(np.float32).ravel().tolist() == [448, -448, 448, 3]


@pytest.mark.parametrize("operand", ["past", "present", "both"])
def test_searched(tmp_path, operand):
    """--error looks at operands of products: they are no outputs whose type changes."""
    nodes = [node("Concat", "past x", "present", axis=1), node("Concat", "past x", "both", axis=1), node("MatMul", f"{operand} w", "y")]
    model = Model(tmp_path, nodes, [value("past", ["b", "p", SIZE]), value("x", ["b", "n", SIZE])], [value("present", ["b", "t", SIZE]), value("y", None)],
                  {"w": floats(SIZE, SIZE)})
    done = mcc(model.path, "-o", tmp_path / "n.so", "-march=native", "--cache-type=bf16", "--error=0.01")
    assert done.returncode == 0, done.stderr


def test_refusals(tmp_path):
    model = Model(tmp_path, [node("Relu", "x", "y")], [value("x", ["n", 4])], [value("y", ["n", 4])])
    assert "no output that is an input of a wider type" in mcc(model.path, "-o", tmp_path / "n.so", "--cache-type=bf16").stderr
    already = Model(tmp_path, [node("Concat", "past x", "y", axis=0)], [value("past", ["n", 4], T.FLOAT16), value("x", [1, 4], T.FLOAT16)],
                    [value("y", ["m", 4], T.FLOAT16)])
    assert "no output that is an input of a wider type" in mcc(already.path, "-o", tmp_path / "n.so", "--cache-type=bf16").stderr

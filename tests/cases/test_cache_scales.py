"""Caches of integers and scales (--cache-type=int8), beside the same network with the conversions written out, in NumPy."""
import re

import numpy as np
import pytest
from onnx import TensorProto as T

from support import cpu
from support.artifact import Artifact
from support.compare import Model, difference, floats, ints, node
from support.decoder import Compiled, attention_with_caches, grouped
from support.tool import ROOT, mcc, value

SIZE = 16


def growing(folder):
    """present = [past, rows]: keys that are values, too."""
    nodes = [node("MatMul", "x w", "rows"), node("MatMul", "x u", "q"), node("Concat", "past rows", "present", axis=1),
             node("Transpose", "present", "kt", perm=[0, 2, 1]), node("MatMul", "q kt", "s"), node("Softmax", "s", "p", axis=-1),
             node("MatMul", "p present", "y")]
    return Model(folder, nodes, [value("past", ["b", "p", SIZE]), value("x", ["b", "n", SIZE])],
                 [value("present", ["b", "t", SIZE]), value("y", ["b", "n", SIZE])], {n: floats(SIZE, SIZE, seed=i, scale=0.3) for i, n in enumerate("wu")})


def block(size):
    return 32 if size % 32 == 0 else 16 if size % 16 == 0 else size


def quantized(x):
    """Integers as x is, and a scale for each block of its last dim."""
    size = x.shape[-1]
    blocks = x.reshape(*x.shape[:-1], size // block(size), block(size))
    scale = np.abs(blocks).max(-1) / np.float32(127)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.rint(blocks / scale[..., None])).astype(np.int8).reshape(x.shape), scale


def wide(q, scale):
    return (q.reshape(*scale.shape, block(q.shape[-1])).astype(np.float32) * scale[..., None]).reshape(q.shape)


def near(want, numbers, scales):
    """The same numbers but next to ties, and scales of the same rows."""
    assert numbers.dtype == np.int8 and scales.dtype == np.float32 and np.allclose(scales, want[1], 1e-5, 1e-9)
    assert np.abs(numbers.astype(int) - want[0]).max(initial=0) <= 1


def softmax(s):
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


@pytest.mark.parametrize("flag", ["-O0", "-O2"])
def test_growing(tmp_path, flag):
    model, (w, u) = growing(tmp_path), (floats(SIZE, SIZE, seed=i, scale=0.3) for i in range(2))
    for b, p, n in [(1, 0, 1), (2, 5, 3), (1, 40, 1)]:
        past, x = quantized(floats(b, p, SIZE, seed=p)), floats(b, n, SIZE, seed=n + 50)
        x[0, 0] *= n == 1       # a row of zeros has the scale 0
        present, y, scales = model.run([past[0], x, past[1]], flag, "--cache-type=int8")
        near([np.concatenate(pair, 1) for pair in zip(past, quantized(x @ w))], present, scales)
        assert np.array_equal(present[:, :p], past[0]) and np.array_equal(scales[:, :p], past[1])
        k = wide(present, scales)
        assert not (text := difference(softmax((x @ u) @ k.transpose(0, 2, 1)) @ k, y, 1e-4, 1e-4)), text


def test_interpreter_and_artifact_agree(tmp_path):
    model = growing(tmp_path)
    done = mcc("diff", model.path, "--cache-type=int8", "--dim=b=2", "--dim=p=7", "--dim=n=3")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = mcc("inspect", model.compile("--cache-type=int8")).stdout
    assert "i8[b,p,16]" in shown and "past.scale: f32[b,p,1]" in shown, shown


@pytest.mark.parametrize("past", [0, 150])
def test_rows_together_or_alone(tmp_path, past):
    """A run reads its own rows as a later one does: with --strict the bits are those of one row at a time."""
    path, first = growing(tmp_path).compile("--cache-type=int8", "--strict"), quantized(floats(1, past, SIZE, seed=4))
    x = floats(1, 9, SIZE, seed=3)
    with Artifact(path, threads=1) as a:
        whole = a.call([first[0], x, first[1]])
        cache, scales = first
        for i in range(9):
            cache, y, scales = (r.copy() for r in a.call([cache, x[:, i:i + 1], scales]))
    assert (whole[0].tobytes(), whole[2].tobytes()) == (cache.tobytes(), scales.tobytes())
    assert y.tobytes() == whole[1][:, -1:].tobytes()


@pytest.mark.parametrize("march", cpu.levels())
def test_attention_reads_narrow(tmp_path, march):
    """Keys of two blocks, values of one that fills no vector, keys in several spans: no kernel widens a cache as a whole."""
    size = 68
    model = attention_with_caches(tmp_path, size)
    text = mcc(model.path, "-stop-after=fuse", "--cache-type=int8", march).stdout
    made = re.findall(r"(%\d+): f32\[.* = convert\(", text)
    assert len(made) == 2 and not any(f"value {v} stored" in text for v in made), text
    for past, n in [(0, 1), (150, 1), (300, 40)]:
        q, pk, pv, k, v = (floats(1, rows, w, seed=s) for s, (rows, w) in enumerate([(n, 64), (past, 64), (past, size), (n, 64), (n, size)]))
        pk, pv = quantized(pk), quantized(pv)
        y = model.run([q, pk[0], pv[0], k, v, pk[1], pv[1]], "--cache-type=int8", march)[0]
        keys, values = (np.concatenate([wide(*old), wide(*quantized(new))], 1).astype(np.float64) for old, new in ((pk, k), (pv, v)))
        assert not (text := difference((softmax(q @ keys.transpose(0, 2, 1)) @ values).astype(np.float32), y, 1e-3, 1e-3)), text


def test_one_buffer(tmp_path):
    """TensorScatter into a cache that is input and output: numbers and scales stay one piece of memory each, only the new rows written."""
    nodes = [node("TensorScatter", "past new at", "present", axis=1), node("ReduceSum", "present axes", "sum", keepdims=0)]
    model = Model(tmp_path, nodes, [value("past", ["b", 12, SIZE]), value("new", ["b", "n", SIZE]), value("at", ["b"], T.INT64)],
                  [value("present", ["b", 12, SIZE]), value("sum", ["b", 12])], {"axes": ints(2)}, opset=24)
    with Artifact(model.compile("--cache-type=int8"), threads=1) as a:
        assert [p.alias for p in a.outputs] == [1, 0, 4]
        (cache, scales), new = quantized(floats(1, 12, SIZE)), floats(1, 2, SIZE, seed=1)
        want, total = [cache.copy(), scales.copy()], np.zeros((1, 12), np.float32)
        for whole, rows in zip(want, quantized(new[0])):
            whole[0, 4:6] = rows
        a.run_into([cache, new, ints(4), scales], [cache, total, scales])
    near(want, cache, scales)
    assert np.allclose(total, wide(cache, scales).sum(2), rtol=1e-5, atol=1e-5)


WAYS = {
    "window": ([node("Concat", "past n", "all", axis=1), node("Slice", "all start end one", "y")], lambda p, x: np.concatenate([p, x], 1)[:, -4:]),
    "transposed": ([node("Transpose", "past", "a", perm=[1, 0, 2]), node("Transpose", "n", "b", perm=[1, 0, 2]), node("Concat", "a b", "c", axis=0),
                    node("Transpose", "c", "y", perm=[1, 0, 2])], lambda p, x: np.concatenate([p, x], 1)),
    "chosen": ([node("Where", "mask n past", "y")], lambda p, x: np.where(MASK, x, p)),
    "reshaped": ([node("Reshape", "past flat", "a"), node("Reshape", "n flat", "b"), node("Concat", "a b", "c", axis=0), node("Reshape", "c whole", "y")],
                 lambda p, x: np.concatenate([p, x], 1)),
    "replaced": ([node("ScatterND", "past places n", "y")], lambda p, x: np.concatenate([p[:, :1], x, p[:, 3:]], 1)),
    "padded": ([node("Pad", "past one_more", "a"), node("Concat", "n a", "y", axis=1)], lambda p, x: np.concatenate([x, p, np.zeros_like(p[:, :1])], 1)),
}
MASK = np.array([[[True], [False], [True], [False]]])


@pytest.mark.parametrize("size", [4, 48, 64])
@pytest.mark.parametrize("way", WAYS)
def test_ways(tmp_path, way, size):
    """What moves rows moves their scales; numbers of the past are as they were."""
    nodes, moved = [node("Neg", "x", "n"), *WAYS[way][0]], WAYS[way][1]
    new = 4 if way == "chosen" else 2
    constants = {"start": ints(-4), "end": ints(99), "one": ints(1), "mask": MASK, "flat": ints(-1, size), "whole": ints(1, -1, size),
                 "places": np.array([[[0, 1], [0, 2]]]), "one_more": ints(0, 0, 0, 0, 1, 0)}
    used = {n for x in nodes for n in x.input}
    model = Model(tmp_path, nodes, [value("past", [1, 4, size]), value("x", [1, new, size])], [value("y", [1, None, size])],
                  {n: c for n, c in constants.items() if n in used})
    past, x = quantized(floats(1, 4, size)), floats(1, new, size, seed=1)
    for flag in ("-O0", "-O2"):
        y, scales = model.run([past[0], x, past[1]], flag, "--cache-type=int8")
        near([moved(*pair) for pair in zip(past, quantized(-x))], y, scales)


def test_blocks_that_a_way_would_cut(tmp_path):
    """Rows along the last dim, and parts of it: a block would get apart, so there is no cache."""
    part = [node("Slice", "n zero half last", "s"), node("Expand", "zero places", "at"), node("ScatterElements", "past at s", "y", axis=1)]
    for nodes in ([node("Concat", "past n", "y", axis=2)], [node("Transpose", "past", "a", perm=[0, 2, 1]), node("Concat", "a n", "y", axis=1)], part):
        constants = {"zero": ints(0), "half": ints(4), "last": ints(2), "places": ints(1, 8, 4)} if nodes is part else {}
        model = Model(tmp_path, [node("Neg", "x", "n"), *nodes], [value("past", [1, 8, 8]), value("x", [1, 8, 8])], [value("y", None)], constants)
        done = mcc(model.path, "-o", tmp_path / "n.so", "--cache-type=int8")
        assert done.returncode and "no output that is an input of a wider type" in done.stderr, done.stderr


@pytest.mark.parametrize("operand, result", [("past.scale", "z"), ("x", "y.scale")])
def test_names_that_are_taken(tmp_path, operand, result):
    """An input or output has the name that the scales would get: no two ports have one name."""
    nodes = [node("Neg", "x", "n"), node("Concat", "past n", "y", axis=1), node("Neg", operand, result)]
    model = Model(tmp_path, nodes, [value(i, ["b", "p", 16]) for i in sorted({"past", "x", operand})], [value(o, None) for o in ("y", result)])
    done = mcc(model.path, "-o", tmp_path / "n.so", "--cache-type=int8")
    assert done.returncode == 2 and ".scale'" in done.stderr and "need this name" in done.stderr, done.stderr


def test_grouped_attention(tmp_path):
    """GroupQueryAttention and its caches."""
    model = grouped(tmp_path)
    caches = [quantized(floats(1, 2, 5, 16, seed=i)) for i in (3, 4)]
    feed = [floats(1, 3, 64), floats(1, 3, 32, seed=1), floats(1, 3, 32, seed=2), caches[0][0], caches[1][0], np.array([7], np.int32),
            np.zeros((1, 8), np.int64), caches[0][1], caches[1][1]]
    want = model.want([*feed[:3], *(wide(*c) for c in caches), *feed[5:7]])
    y, k, v, *scales = model.run(feed, "--cache-type=int8")
    for w, g in zip(want, [y, wide(k, scales[0]), wide(v, scales[1])]):
        assert not (text := difference(w, g, 0.02, 0.02)), text


@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
def test_caches_that_the_file_quantizes(tmp_path, kind):
    """GroupQueryAttention's own scales: one piece of memory as input and output, and no kernel widens it."""
    attributes = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": 8}
    model = grouped(tmp_path, T.INT8, 1 if kind == "PER_TENSOR" else 32, **attributes)
    text = mcc(model.path, "-stop-after=fuse", "-march=x86-64-v3").stdout
    made = re.findall(r"(%\d+): f32\[b, 2, .*16\] = (?:convert|mul)\(", text)
    assert len(made) >= 4 and not any(f"value {v} stored" in text for v in made), text
    with Artifact(model.compile("-march=x86-64-v3"), threads=1) as a:
        names = [p.name.decode() for p in a.inputs]
        assert [names[p.alias - 1] if p.alias else "" for p in a.outputs] == ["", "past_key", "past_value"]


def test_a_model_of_exporters(tmp_path):
    """BabyLlama of examples/story: the words are those of caches in f32."""
    model = Model(tmp_path, path=ROOT / "examples/story/babyllama-int4.onnx")
    prompt = [1, 403, 407, 261, 378]
    want, logits = Compiled(model.compile()).tokens(prompt, 24)
    found, other = Compiled(model.compile("--cache-type=int8")).tokens(prompt, 24)
    assert found == want
    error = np.sqrt(np.mean((np.array(other) - logits) ** 2)) / np.abs(logits).max()
    assert error < 0.02, error


def test_one_input_of_several_outputs(tmp_path):
    """An input that two outputs begin with, an output of that name again, and one that goes on with another."""
    nodes = [node("Concat", "past x", "a", axis=1), node("Concat", "past x x", "b", axis=1), node("Identity", "a", "c"), node("Concat", "a x", "d", axis=1)]
    model = Model(tmp_path, nodes, [value("past", ["b", "p", SIZE]), value("x", ["b", "n", SIZE])], [value(n, ["b", "t" + n, SIZE]) for n in "abcd"])
    past, x = quantized(floats(1, 4, SIZE)), floats(1, 2, SIZE, seed=1)
    for flag in ("-O0", "-O2"):
        got = model.run([past[0], x, past[1]], flag, "--cache-type=int8")
        for i, times in enumerate((1, 2, 1, 2)):
            near([np.concatenate([part, *[rows] * times], 1) for part, rows in zip(past, quantized(x))], got[i], got[4 + i])

"""com.microsoft GroupQueryAttention with all its operands and attributes, beside ONNX Runtime.

One artifact of open dims serves a set of attributes; it runs prompts, tokens behind a cache, several tokens behind one, caches that have
room left, and batches of sequences of several lengths. What no sequence of the batch has (rows of outputs behind its end, rows of the
caches) is not compared: ONNX Runtime leaves it as it comes.
"""
import contextlib
import re

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.artifact import Artifact, ModelError
from support.compare import Model, difference, floats
from support.cpu import levels
from support.guard import Heap
from support.tool import mcc

F, MS = np.float32, "com.microsoft"
ORDER = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total", "cos", "sin", "position_ids", "bias", "sink", "k_scale", "v_scale",
         "q_norm", "k_norm"]
LONGEST = 32
# new tokens, tokens of each sequence with them, rows of the cache
PROMPTS = [(1, [1], 0), (5, [5], 0), (4, [4, 4], 0), (5, [5], 12), (6, [4, 6], 9), (6, [6, 3, 1], 0)]
STEPS = [(1, [7], 6), (1, [7, 4], 6), (1, [9, 9], 20), (1, [1, 12, 5], 16), (3, [9], 6), (4, [20], 24), (1, [17], 16)]


def shaped(rng, *shape):
    return rng.standard_normal(shape).astype(F)


class Grouped:
    """A model of one node. Which operands it has is told by the names in `has`."""

    def __init__(self, folder, heads=(4, 2), size=16, has=(), packed=False, n_out=3, **attributes):
        self.hq, self.hkv, self.size, self.has, self.packed = *heads, size, set(has), packed
        self.rotary, self.kinds = attributes.get("do_rotary", 0), [attributes.get(n) for n in ("k_quant_type", "v_quant_type")]
        self.nibbles = attributes.get("kv_cache_bit_width") == 4
        turned = attributes.pop("turned", size)
        self.real, self.cache = np.dtype(attributes.pop("real", F)), attributes.pop("cache", None)     # of operands; of a quantized cache
        rng = np.random.default_rng(size)
        self.fixed = {"cos": shaped(rng, LONGEST, turned // 2), "sin": shaped(rng, LONGEST, turned // 2), "sink": shaped(rng, self.hq).astype(self.real),
                      "q_norm": shaped(rng, size), "k_norm": shaped(rng, size)}
        feeds = self.feed(*STEPS[0], seed=0)
        names = [n if n in feeds else "" for n in ORDER]
        open_dims = lambda n, x: [k if n not in ("seqlens_k", "position_ids", "bias") and i == x.ndim - 1 else f"{n}{i}" for i, k in enumerate(x.shape)]
        inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(feeds[n].dtype), open_dims(n, feeds[n])) for n in names if n]
        outs = [f"out{i}" for i in range(n_out)]
        made = helper.make_node("GroupQueryAttention", names, outs, "node", domain=MS, num_heads=self.hq, kv_num_heads=self.hkv, **attributes)
        graph = helper.make_graph([made], "grouped", inputs, [helper.make_empty_tensor_value_info(o) for o in outs])
        folder.mkdir(exist_ok=True)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)], ir_version=10),
                  folder / "net.onnx")
        self.model = Model(folder, path=folder / "net.onnx")

    def feed(self, rows, lengths, room, seed):
        rng, batch, total = np.random.default_rng(seed), len(lengths), max(lengths)
        f = {}
        if self.packed:
            f["query"] = shaped(rng, batch, rows, (self.hq + 2 * self.hkv) * self.size)
        else:
            f |= {n: shaped(rng, batch, rows, h * self.size) for n, h in (("query", self.hq), ("key", self.hkv), ("value", self.hkv))}
        if "no past" not in self.has:
            f |= {n: shaped(rng, batch, self.hkv, room, self.size) for n in ("past_key", "past_value")}
        if any(self.kinds):
            info, last = np.iinfo(np.uint8 if self.nibbles else np.int8), self.size // 2 if self.nibbles else self.size
            f |= {n: rng.integers(info.min, info.max + 1, (batch, self.hkv, room, last)).astype(info.dtype) for n in ("past_key", "past_value")}
            if self.cache:
                f |= {n: (shaped(rng, batch, self.hkv, room, self.size) * 20).astype(self.cache) for n in ("past_key", "past_value")}
            step = 0.3 if self.nibbles else 0.02
            f |= {n: np.array([step], F) if kind == "PER_TENSOR" else np.abs(floats(1, self.hkv, 1, self.size, seed=9)) * F(step) + F(step)
                  for n, kind in zip(("k_scale", "v_scale"), self.kinds)}
        f = {n: x.astype(self.real) if x.dtype == F and "scale" not in n else x for n, x in f.items()}
        f["seqlens_k"] = np.array(lengths, np.int32) - 1
        f["total"] = np.array(total, np.int32)
        if self.rotary:
            f |= {"cos": self.fixed["cos"], "sin": self.fixed["sin"]}
        if "position_ids" in self.has:
            first = 0 if rows == total else 3
            f["position_ids"] = np.arange(first, first + rows, dtype=np.int64)[None].repeat(batch, 0)
        if "bias" in self.has:
            f["bias"] = shaped(rng, batch if seed % 2 else 1, self.hq if seed % 3 else 1, rows, total)
        return f | {n: self.fixed[n] for n in ("sink", "q_norm", "k_norm") if n in self.has}

    def agrees(self, rows, lengths, room, seed=1, flag="-O2", tolerance=(1e-4, 1e-5), want=None):
        """want: another Grouped's answer to the same, given its operands by that function of ours."""
        f = self.feed(rows, lengths, room, seed)
        given = [f[n] for n in ORDER if n in f]
        got = self.model.run(given, flag)
        want = want(f) if want else self.model.want(given)
        prompt = rows == max(lengths)
        for b, n in enumerate(lengths):
            mine = min(n, rows) if prompt else rows
            for w, g, k in zip(want, got, range(4)):
                assert w.shape == g.shape, f"output {k}: {w.shape} expected, got {g.shape}"
                cut = (b, slice(mine)) if k == 0 else (b, slice(None), slice(n)) if k < 3 else (b, slice(None), slice(mine), slice(n))
                if w.dtype.kind in "iu":        # a quotient between two bytes may be rounded to either
                    w, g = (np.stack([x & 15, x >> 4]).astype(int) if self.nibbles else x.astype(int)[None] for x in (w[cut], g[cut]))
                    assert np.abs(w - g).max(initial=0) <= 1 and (w != g).mean() < 0.01
                    continue
                copied = k in (1, 2) and self.real != F and not self.rotary
                text = difference(w[cut], g[cut], *((0, 0) if copied else tolerance))
                assert not text, f"{rows} rows, lengths {lengths}, cache of {room}, output {k}, sequence {b}: {text}"


def drawn(seed):
    """A set of attributes and operands."""
    rng = np.random.default_rng(seed)
    pick = lambda *of: of[rng.integers(len(of))]
    hkv, size = pick(1, 2, 3), pick(16, 32, 48)
    a = {"heads": (hkv * pick(1, 2, 4), hkv), "size": size, "packed": pick(False, True)}
    has = [n for n in ("bias",) if rng.random() < 0.3]
    if rng.random() < 0.6:
        a |= {"do_rotary": 1, "rotary_interleaved": pick(0, 1), "turned": pick(size, size, 16)}
        has += ["position_ids"] if rng.random() < 0.3 else []
    if rng.random() < 0.3:
        a["scale"] = pick(0.3, 1.0)
    if rng.random() < 0.3:
        a["softcap"] = pick(2.0, 20.0)
    if rng.random() < 0.4:
        a["local_window_size"] = pick(1, 2, 4, 30)
    if rng.random() < 0.3:
        a["smooth_softmax"] = 1
    if rng.random() < 0.2:
        has += ["sink"]
    return a | {"has": tuple(has)}


@pytest.mark.parametrize("seed", range(24))
def test_drawn(tmp_path, seed):
    """Ten runs of each of 24 sets."""
    net, rng = Grouped(tmp_path / "net", **drawn(seed)), np.random.default_rng(seed)
    shapes = PROMPTS + STEPS
    for k, i in enumerate(rng.permutation(len(shapes))[:10]):
        net.agrees(*shapes[i], seed=k)


@pytest.mark.parametrize("flag", ["-O0", "-O2"])
def test_all_at_once(tmp_path, flag):
    """Also where ONNX Runtime's default for the softmax, the scale and the window do not stand."""
    net = Grouped(tmp_path / "net", (4, 2), 32, ("bias", "sink", "position_ids"), do_rotary=1, rotary_interleaved=1, turned=16, scale=0.4, softcap=5.0,
                  local_window_size=3)
    for shape in PROMPTS + STEPS:
        net.agrees(*shape, flag=flag)


def test_without_past(tmp_path):
    net = Grouped(tmp_path / "net", (4, 2), 16, ("no past",), do_rotary=1)
    for shape in [(1, [1], 0), (5, [5], 0), (6, [4, 6], 0)]:
        net.agrees(*shape)


@pytest.mark.parametrize("more", [{}, {"softcap": 3.0}, {"smooth_softmax": 1}])
def test_both_ways(tmp_path, more):
    net = Grouped(tmp_path / "net", (4, 2), 16, do_rotary=1, causal=0, **more)
    for shape in PROMPTS[:4] + STEPS[:5]:
        net.agrees(*shape)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kinds", [("PER_TENSOR", "PER_TENSOR"), ("PER_CHANNEL", "PER_CHANNEL")])
def test_quantized_caches(tmp_path, bits, kinds):
    net = Grouped(tmp_path / "net", (4, 2), 16, do_rotary=1, k_quant_type=kinds[0], v_quant_type=kinds[1], kv_cache_bit_width=bits)
    for shape in PROMPTS[:4] + STEPS:
        net.agrees(*shape, tolerance=(1e-3, 1e-3))


@pytest.mark.parametrize("kinds", [("PER_TENSOR", "PER_TENSOR"), ("PER_CHANNEL", "PER_CHANNEL"), ("PER_CHANNEL", "PER_TENSOR")])
def test_caches_of_f8(tmp_path, kinds):
    """ONNX Runtime has no kernel of it for the CPU: it gets the numbers that the bytes stand for, new rows rounded to bytes too."""
    e = np.dtype(ml_dtypes.float8_e4m3fn)
    net = Grouped(tmp_path / "net", (4, 2), 16, cache=e, k_quant_type=kinds[0], v_quant_type=kinds[1], kv_cache_bit_width=8)
    plain = Grouped(tmp_path / "plain", (4, 2), 16)

    def stored(x, scale):
        """New rows (B, rows, Hkv * d) as (B, Hkv, rows, d) numbers of a byte."""
        return (x.reshape(*x.shape[:2], 2, 16).transpose(0, 2, 1, 3) / scale.reshape(1, -1, 1, 16 if scale.size > 1 else 1)).astype(e)

    def read(x, scale):
        return x.astype(F) * (scale if scale.size > 1 else scale.item())

    def reference(f):
        g = dict(f)
        for n in ("key", "value"):
            scale = g.pop(f"{n[0]}_scale")
            g[n] = read(stored(f[n], scale), scale).transpose(0, 2, 1, 3).reshape(f[n].shape)
            g[f"past_{n}"] = read(f[f"past_{n}"], scale)
        out, *presents = plain.model.want([g[n] for n in ORDER if n in g])
        return [out] + [(x / f[n]).astype(e) for x, n in zip(presents, ("k_scale", "v_scale"))]

    for shape in PROMPTS[:4] + STEPS:
        net.agrees(*shape, tolerance=(1e-3, 1e-3), want=reference)


@pytest.mark.parametrize("real, error", [(np.float16, 2e-3), (ml_dtypes.bfloat16, 8e-3)])
def test_caches_of_16_bits(tmp_path, real, error):
    """Caches are copied to the bit; what is made of them is rounded once more. ONNX Runtime has no kernel of bf16: it gets the same numbers as f32."""
    net = Grouped(tmp_path / "net", (4, 2), 16, real=real)
    plain = Grouped(tmp_path / "plain", (4, 2), 16)
    reals = lambda f: [f[n].astype(F) if f[n].dtype == real else f[n] for n in ORDER if n in f]
    want = None if real == np.float16 else lambda f: [x.astype(real) for x in plain.model.want(reals(f))]
    for shape in PROMPTS[:4] + STEPS:
        net.agrees(*shape, tolerance=(error, error), want=want)


@pytest.mark.parametrize("kind", [1, 2])
def test_scores_as_a_result(tmp_path, kind):
    """Before the softmax only what a query sees is compared."""
    net = Grouped(tmp_path / "net", (4, 2), 16, ("bias",), n_out=4, qk_output=kind, softcap=2.0)
    for rows, lengths, room in [(1, [7], 6), (3, [9], 6), (5, [5], 0)]:
        f = net.feed(rows, lengths, room, 1)
        given = [f[n] for n in ORDER if n in f]
        want, got = net.model.want(given)[3], net.model.run(given, "-O2")[3]
        seen = np.tri(rows, lengths[0], lengths[0] - rows, dtype=bool)
        assert want.shape == got.shape and np.allclose(np.where(seen, want, 0), np.where(seen, got, 0), 1e-4, 1e-5)


@pytest.mark.parametrize("packed", [False, True])
def test_norms_of_heads(tmp_path, packed):
    """ONNX Runtime has no kernel of it for the CPU: it gets normed heads."""
    more = dict(heads=(4, 2), size=16, packed=packed, do_rotary=1)
    net, plain = Grouped(tmp_path / "net", has=("q_norm", "k_norm"), qk_norm_epsilon=1e-2, **more), Grouped(tmp_path / "plain", **more)

    def normed(x, heads, weight):
        by_head = x.reshape(*x.shape[:2], heads, 16)
        return (by_head / np.sqrt((by_head**2).mean(-1, keepdims=True) + 1e-2) * weight).reshape(x.shape).astype(F)

    def reference(f):
        g = {n: x for n, x in f.items() if n not in ("q_norm", "k_norm")}
        if packed:
            q, k, v = np.split(f["query"], [64, 96], 2)
            g["query"] = np.concatenate([normed(q, 4, f["q_norm"]), normed(k, 2, f["k_norm"]), v], 2)
        else:
            g |= {"query": normed(f["query"], 4, f["q_norm"]), "key": normed(f["key"], 2, f["k_norm"])}
        return plain.model.want([g[n] for n in ORDER if n in g])

    for shape in PROMPTS[:3] + STEPS[:3]:
        net.agrees(*shape, want=reference)


@pytest.mark.parametrize("more", [{}, {"local_window_size": 40}, {"softcap": 3.0}, {"has": ("sink",)}])
def test_keys_that_no_row_sees(tmp_path, more):
    """Spans behind the last row of a block, or in front of its windows, are left out: the same bits, and fewer of them."""
    net = Grouped(tmp_path / "net", (4, 2), 16, packed=True, **more)
    told = net.model.dump("schedule", "-march=native")
    assert re.search(r"^  reach +1 ", told, re.M)
    file = tmp_path / "told"
    file.write_text(re.sub(r"^  reach +1 .*$", "  reach 0", told, flags=re.M))
    for rows, lengths, room in ((300, [300], 0), (70, [300, 70], 280), (1, [290, 3], 290)):
        f = net.feed(rows, lengths, room, seed=rows)
        got = [net.model.run([f[n] for n in ORDER if n in f], *flags)[0] for flags in ((), (f"--schedules={file}",))]
        for b, n in enumerate(lengths):
            mine = min(rows, n)
            assert (got[0][b, :mine] == got[1][b, :mine]).all()


PARTS = [(1, [700], 699), (1, [128], 127), (1, [129], 140), (3, [1030], 1030), (1, [300, 1, 260], 299), (8, [900], 1000), (40, [2100], 2060), (60, [60], 0)]


@pytest.mark.parametrize("more", [{}, {"local_window_size": 40}, {"softcap": 3.0}, {"causal": 0}, {"smooth_softmax": 1},
                                  {"has": ("sink",), "softcap": 3.0, "local_window_size": 300}], ids=str)
def test_keys_in_parts(tmp_path, more):
    """Blocks of rows are fewer than threads: their keys are cut, the same for any number of threads. Many rows are not."""
    net = Grouped(tmp_path / "net", (4, 2), 24, packed=True, **more)
    told = net.model.dump("schedule", "-march=native")
    assert re.search(r"^  parts +16 ", told, re.M)
    artifacts = {}
    with contextlib.ExitStack() as opened:
        for threads in (1, 2, 3, 8):
            artifacts[threads] = opened.enter_context(Artifact(net.model.compile("-O2"), threads=threads))
        for seed, shape in enumerate(PARTS):
            net.agrees(*shape, seed=seed)
            f = net.feed(*shape, seed=seed)
            given = [f[n] for n in ORDER if n in f]
            first = [y.tobytes() for y in artifacts[1].run(given)]
            for threads, a in artifacts.items():
                for _ in range(3):
                    assert [y.tobytes() for y in a.run(given)] == first, (shape, threads)


def test_the_workspace_holds_the_parts_of_every_variant(tmp_path):
    """An artifact for several CPUs has one plan: the widest registers' parts are larger than those of the last variant."""
    net, heap = Grouped(tmp_path / "net", (4, 2), 24, packed=True), Heap()
    done = mcc(net.model.path, "-o", tmp_path / "all.so", "-q")
    assert done.returncode == 0, done.stderr
    with Artifact(tmp_path / "all.so", threads=2, alloc=heap.alloc, release=heap.release) as a:
        for seed, shape in enumerate(PARTS):
            f = net.feed(*shape, seed=seed)
            a.run([f[n] for n in ORDER if n in f])
    assert not heap.broken and not heap.blocks


@pytest.mark.parametrize("heads", [(4, 2), (3, 3)], ids=str)
@pytest.mark.parametrize("sinks", [[0, 5, -5, 60], [-np.inf, 2, 90, -90]], ids=str)
def test_sinks(tmp_path, heads, sinks):
    """A score more, smaller and larger than all keys', minus infinity too: in the attention kernel, which stores no scores."""
    net = Grouped(tmp_path / "net", heads, 24, ("sink",), packed=True)
    net.fixed["sink"] = np.array(sinks[:heads[0]], F)
    assert re.findall(r"^schedule k\d+ \"node\" \S+: (attention|tiled|reduce)", net.model.dump("schedule", "-march=native"), re.M) == ["attention"]
    for shape in PROMPTS + STEPS + PARTS:
        net.agrees(*shape)
    f = net.feed(*PARTS[5], seed=1)     # beside scores that are stored
    given = [f[n] for n in ORDER if n in f]
    assert not difference(net.model.run(given, "--attention=off")[0], net.model.run(given)[0])


@pytest.mark.parametrize("level", levels())
def test_sinks_that_are_no_numbers(tmp_path, level):
    """Beside scores that are stored, with registers of all lengths."""
    net = Grouped(tmp_path / "net", (6, 2), 24, ("sink",), packed=True)
    net.fixed["sink"] = np.array([np.inf, np.nan, -np.inf, 0, 3e38, -3e38], F)
    for shape in ((1, [300], 299), (8, [900], 1000), (40, [2100], 2060), (5, [5], 0)):
        f = net.feed(*shape, seed=5)
        given = [f[n] for n in ORDER if n in f]
        want, got = (net.model.run(given, *flags)[0] for flags in (("--attention=off",), (level,)))
        assert np.isnan(want).any() and not np.isnan(want).all() and not difference(want, got, 1e-4, 1e-5), shape


@pytest.mark.parametrize("more", [{"real": np.float16}, {"real": ml_dtypes.bfloat16},
                                  {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}], ids=str)
def test_sinks_and_caches(tmp_path, more):
    """Caches of 16 bits and of bytes are read by the kernel as without a sink: what stored scores give."""
    net = Grouped(tmp_path / "net", (4, 2), 16, ("sink",), packed=True, **more)
    assert re.search(r"^schedule .*: attention$", net.model.dump("schedule", "-march=native"), re.M)
    for shape in PARTS:
        f = net.feed(*shape, seed=3)
        given = [f[n] for n in ORDER if n in f]
        want, got = (net.model.run(given, *flags)[0] for flags in (("--attention=off",), ()))
        for b, n in enumerate(shape[1]):
            mine = min(n, shape[0])
            text = difference(want[b, :mine].astype(F), got[b, :mine].astype(F), *((8e-3, 8e-3) if "real" in more else (1e-4, 1e-5)))
            assert not text, (shape, b, text)


@pytest.mark.parametrize("field, why", [("parts 17", "parts is 17: 0 to 16 are possible"), ("part.keys 0", "part.keys is 0: ")])
def test_parts_that_do_not_fit(tmp_path, field, why):
    net, file = Grouped(tmp_path / "net", packed=True), tmp_path / "told"
    file.write_text(re.sub(rf"^  {field.split()[0]} .*$", f"  {field}", net.model.dump("schedule", "-march=native"), flags=re.M))
    done = mcc(net.model.path, "-march=native", f"--schedules={file}", "-o", tmp_path / "no.so")
    assert done.returncode == 2 and why in done.stderr, done.stderr


def test_blocks_of_rows(tmp_path):
    """Behind a cache mostly one token is computed: blocks are one vector of rows. Without one there are as many rows as keys."""
    for has, rows in (((), "1"), (("no past",), "2")):
        net = Grouped(tmp_path / f"net{rows}", (2, 2), 16, has, packed=True)
        assert set(re.findall(r"^  rows +(\d+) ", net.model.dump("schedule", "-march=x86-64-v4"), re.M)) == {rows}


@pytest.mark.parametrize("heads, few", [((3, 1), 4), ((4, 4), 4), ((14, 2), 8)])
def test_few_rows(tmp_path, heads, few):
    """Up to so many rows that share keys the scores are summed along the lanes; one artifact has both forms. As many blocks of keys
    as there may be, and a rest."""
    net = Grouped(tmp_path / "net", heads, 16, packed=True)
    record = net.model.dump("schedule", "-march=x86-64-v4")
    assert re.findall(r"^  few +(\d+) ", record, re.M) == [str(few)]
    assert re.findall(r"^  few +(\d+) ", net.model.dump("schedule", "-march=x86-64-v4", "--strict"), re.M) == ["0"]
    for rows in (1, 2, 3, 4, 5, 8, 9):
        for past in (0, 6, 150, 300):
            net.agrees(rows, [past + rows], past, seed=rows)
    net.agrees(1, [300, 131], 299)


@pytest.mark.parametrize("march", levels()[1:])
@pytest.mark.parametrize("heads", [(3, 1), (8, 2), (7, 1)])
def test_few_rows_with_masks(tmp_path, march, heads):
    """A vector holds rows of several keys: each has its own bias, sink and window, also in a span's last vector, which keys may not fill."""
    net = Grouped(tmp_path / "net", heads, 16, ("bias", "sink"), packed=True, local_window_size=140, softcap=3.0)
    few = {3: "4", 8: "4", 7: "8" if "v4" in march else "0"}[heads[0]]
    assert re.findall(r"^  few +(\d+) ", net.model.dump("schedule", march), re.M) == [few]
    for rows in (1, 2, 4):
        for past in (0, 1, 2, 129, 150, 299):
            net.agrees(rows, [past + rows], past, seed=past, flag=march)
    net.agrees(1, [300, 131], 299, flag=march)


@pytest.mark.parametrize("field, why", [("few 3", "power of 2"), ("few 8\n  few.keys 9", "take fewer"), ("rows 2\n  few 4", "one vector of rows")])
def test_few_that_do_not_fit(tmp_path, field, why):
    net, file = Grouped(tmp_path / "net", packed=True), tmp_path / "record"
    changed = field.split("\n")
    text = net.model.dump("schedule", "-march=x86-64-v4")
    for line in changed:
        text = re.sub(rf"^  {line.split()[0]} +\d.*$", f"  {line.strip()}", text, flags=re.M)
    file.write_text(text)
    done = mcc(net.model.path, "-march=x86-64-v4", f"--schedules={file}", "-o", tmp_path / "no.so")
    assert done.returncode == 2 and why in done.stderr, done.stderr


def held(tokens, rows, window):
    """How many of them a cache of a window has."""
    step = rows - window + 1
    return tokens - step * -(-max(tokens - rows, 0) // step)


# rows of the cache; then new tokens, and tokens of each sequence with them
WINDOWS = [(7, [(1, [1]), (4, [4]), (5, [7]), (6, [6, 6]), (1, [8]), (1, [9, 5]), (3, [11]), (20, [20]), (20, [27]), (1, [28, 11]), (9, [16])]),
           (4, [(1, [1]), (3, [3]), (6, [6, 6]), (1, [5]), (1, [30, 4]), (2, [31]), (9, [17])])]


@pytest.mark.parametrize("more", [{}, {"do_rotary": 1, "packed": True}, {"has": ("position_ids", "sink"), "do_rotary": 1}, {"has": ("bias",), "softcap": 3.0},
                                  {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}], ids=str)
@pytest.mark.parametrize("flag", ["-O2", "-O0"])
def test_caches_of_a_window(tmp_path, more, flag):
    """What is forgotten does not depend on the runs; several tokens see all of their windows. Cache rows that hold no token are not compared."""
    window = 4
    net = Grouped(tmp_path / "net", (4, 2), 16, local_window_size=window, sliding_window_cache=1, **more)
    for rows, shapes in WINDOWS:
        for seed, (new, lengths) in enumerate(shapes):
            f = net.feed(new, lengths, rows, seed)
            given = [f[n] for n in ORDER if n in f]
            want, got = net.model.want(given), net.model.run(given, flag)
            for b, n in enumerate(lengths):
                mine, has = min(n, new), held(n, rows, window)
                for w, g, cut in zip(want, got, ((b, slice(mine)), (b, slice(None), slice(has)), (b, slice(None), slice(has)))):
                    assert w.shape == g.shape
                    near = (1e-3, 1.01) if w.dtype == np.int8 else (1e-3, 1e-3) if any(net.kinds) else (1e-4, 1e-5)
                    text = difference(w[cut].astype(F), g[cut].astype(F), *near)
                    assert not text, (rows, new, lengths, b, text)


def test_window_of_a_long_text(tmp_path):
    """300 tokens in runs of several lengths through a cache of 24 rows: what a cache of all of them gives."""
    forms = dict(heads=(4, 2), size=16, packed=True, do_rotary=1, local_window_size=16, turned=16)
    net, whole = Grouped(tmp_path / "net", sliding_window_cache=1, **forms), Grouped(tmp_path / "whole", **forms)
    rng, past, n = np.random.default_rng(7), [np.zeros((1, 2, 24, 16), F)] * 2, 0
    full = [np.zeros((1, 2, 320, 16), F)] * 2
    tables = [shaped(rng, 320, 8), shaped(rng, 320, 8)]
    with Artifact(net.model.compile("-O2")) as short, Artifact(whole.model.compile("-O2")) as long:
        for new in [5, 1, 1, 30, 1, 1, 64, 3] * 2 + [1] * 60:
            n += new
            query, counts = shaped(rng, 1, new, 8 * 16), [np.array([n - 1], np.int32), np.array(n, np.int32)]
            want, *full = long.run([query, *full, *counts, *tables])
            got, *past = short.run([query, *past, *counts, *tables])
            assert not difference(want, got, 1e-4, 1e-5), n
            has = held(n, 24, 16)
            for w, g in zip(full, past):
                assert (w[:, :, n - has:n] == g[:, :, :has]).all(), n


def test_window_longer_than_its_cache(tmp_path):
    net = Grouped(tmp_path / "net", (2, 1), 16, local_window_size=8, sliding_window_cache=1)
    f = net.feed(1, [7], 7, 1)
    with pytest.raises(ModelError, match="fewer rows than the window"):
        net.model.run([f[n] for n in ORDER if n in f], "-O2")


@pytest.mark.parametrize("columns", [0, 1, 8, 10])
def test_window_with_a_bias_of_another_length(tmp_path, columns):
    """As ONNX Runtime has it. Nothing is read after the bias."""
    net = Grouped(tmp_path / "net", (2, 1), 16, has=("bias",), local_window_size=3, sliding_window_cache=1)
    f = net.feed(1, [9], 5, 1) | {"bias": np.zeros((1, 1, 1, columns), F)}
    with pytest.raises(ModelError, match="total_sequence_length columns"):
        net.model.run([f[n] for n in ORDER if n in f], "-O2")


@pytest.mark.parametrize("attributes, text", [({"sliding_window_cache": 1}, "without past_key, local_window_size or causal"),
                                              ({"sliding_window_cache": 1, "local_window_size": 4, "causal": 0}, "without past_key, local_window_size or"),
                                              ({"sliding_window_cache": 1, "local_window_size": 4, "n_out": 4, "qk_output": 1}, "output_qk with sliding"),
                                              ({"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 3}, "3 bits"),
                                              ({"k_quant_type": "BY_HAND"}, "BY_HAND")])
def test_refused(tmp_path, attributes, text):
    assert text in Grouped(tmp_path / "net", **attributes).model.refused()


def test_lengths_beyond_the_cache_are_an_error(tmp_path):
    """A sequence that claims more tokens than total_sequence_length."""
    net = Grouped(tmp_path / "net", (2, 1), 16)
    f = net.feed(1, [7], 6, 1)
    f["seqlens_k"] = np.array([11], np.int32)
    with pytest.raises(ModelError, match="-9: "):
        net.model.run([f[n] for n in ORDER if n in f], "-O2")

"""Caches that grow within memory of a maximum (--input=past:f32[b,3,len<=48,8]): the bound, the strides, one buffer for past and present."""
import ctypes
import json
import mmap

import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import Artifact, ModelError, counted
from support.compare import Model, difference, floats, node
from support.decoder import Compiled, Reference, grouped
from support.tool import ROOT, mcc, value

HEADS, SIZE, MOST = 3, 8, 48
SPEC = f"past_k:[b,{HEADS},len<={MOST},{SIZE}]"


def attention(folder, elem=T.FLOAT):
    """Keys and values that grow by concats, read by an attention."""
    nodes = [node("Concat", "past_k k", "present_k", axis=2), node("Concat", "past_v v", "present_v", axis=2),
             node("Transpose", "present_k", "turned", perm=[0, 1, 3, 2]), node("MatMul", "q turned", "scores"), node("Softmax", "scores", "p", axis=-1),
             node("MatMul", "p present_v", "y")]
    form = lambda name, rows: value(name, ["b", HEADS, rows, SIZE], elem)
    return Model(folder, nodes, [form("q", "n"), form("k", "n"), form("v", "n"), form("past_k", "past"), form("past_v", "past")],
                 [form("y", "n"), form("present_k", "total"), form("present_v", "total")], opset=21)


def feed(past, rows, batch=1, dtype=np.float32, seed=1):
    return [floats(batch, HEADS, n, SIZE, seed=seed + i).astype(dtype) for i, n in enumerate([rows] * 3 + [past] * 2)]


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    model = attention(tmp_path_factory.mktemp("grown"))
    return model, model.compile("-O2", "--input", SPEC)


def test_bound(grown):
    """The maximum holds for all inputs of that length, and more is refused."""
    path = grown[1]
    assert f"symbol   len: 0..{MOST}\n" in mcc("inspect", path).stdout
    with Artifact(path) as a:
        a.run(feed(MOST - 1, 1))
        with pytest.raises(ModelError, match=f"input 'past_k': dim 2 is {MOST + 1}, but 'len' goes from 0 to {MOST}") as e:
            a.run(feed(MOST + 1, 1))
        assert e.value.code == -2


STEPS = [7, 1, 1, 12, 1, 3, MOST - 25]        # rows of each run, up to the last that there is room for


def caches(batch=1, dtype=np.float32):
    """Two buffers of the maximum, full of what no run may read."""
    return [np.full((batch, HEADS, MOST, SIZE), np.nan, dtype) for _ in range(2)]


def until(buffers, rows):
    return [x[:, :, :rows] for x in buffers]


def same(want, got, atol=1e-6):
    for w, g in zip(want, got, strict=True):
        text = difference(w, g, atol=atol)
        assert not text, text


def test_ports_say_so(grown):
    text = mcc("inspect", grown[1]).stdout
    assert f"input    past_k: f32[b,{HEADS},len<={MOST},{SIZE}]\n" in text and f"input    past_v: f32[b,{HEADS},len<={MOST},{SIZE}]\n" in text
    assert f"output   present_v: f32[b,{HEADS},len + n<={MOST},{SIZE}], may be the memory of past_v\n" in text
    port = json.loads(mcc("inspect", "--json", grown[1]).stdout)["result"]["outputs"][1]
    assert port["alias"] == "past_k" and port["room"] == [None, None, MOST, None]
    with Artifact(grown[1]) as a:
        assert [p.alias for p in a.outputs] == [0, 4, 5]
        none, room = [0] * 4, [0, 0, MOST, 0]
        assert [[p.dims[d].room for d in range(4)] for p in [*a.inputs, *a.outputs]] == [none] * 3 + [room] * 2 + [none] + [room] * 2
    with Artifact(grown[0].compile("-O2", "--input", SPEC.replace("<=", "=0.."))) as a:      # a bound, and no room
        assert not any(p.alias for p in a.outputs) and not any(p.dims[2].room for p in a.outputs)


@pytest.mark.parametrize("flag", ["-O0", "-O2"])
@pytest.mark.parametrize("elem, dtype", [(T.FLOAT, np.float32), (T.FLOAT16, np.float16)])
@pytest.mark.parametrize("batch", [1, 2])
def test_one_buffer_or_two(tmp_path, flag, elem, dtype, batch):
    """Prompt and steps up to the maximum: in one buffer, from one to another, and compact as ever."""
    model = attention(tmp_path, elem)
    atol = 1e-6 if dtype == np.float32 else 2e-3
    with Artifact(model.compile(flag, "--input", SPEC), threads=2) as a:
        mine, past = caches(batch, dtype), 0
        for step, rows in enumerate(STEPS):
            q, k, v, *_ = feed(past, rows, batch, dtype, seed=10 * step)
            total, before = past + rows, [x.copy() for x in mine]
            compact = [q, k, v, *(np.ascontiguousarray(x) for x in until(mine, past))]
            want = model.want(compact)
            same(want, a.run(compact), atol)
            same(want, a.run_values(compact), atol)
            same(want, a.run_into(compact, [np.zeros_like(x) for x in want]), atol)
            for given in (compact, [q, k, v, *until(mine, past)]):
                other = caches(batch, dtype)
                same(want, a.run_into(given, [np.zeros_like(q), *until(other, total)]), atol)
                assert all(np.isnan(x[:, :, total:]).all() for x in other)
            y = np.zeros_like(q)
            same(want, a.run_into([q, k, v, *until(mine, past)], [y, *until(mine, total)]), atol)
            for x, old in zip(mine, before):
                assert np.array_equal(x[:, :, :past], old[:, :, :past]) and np.isnan(x[:, :, total:]).all()
            past = total
        assert past == MOST
        q, k, v, *_ = feed(0, 1, batch, dtype)
        with pytest.raises(ModelError, match=f"output 'present_k': dim 2 is {MOST + 1}, and has room for {MOST}") as e:
            a.run([q, k, v, *mine])
        assert e.value.code == -2 and np.array_equal(mine[0], until(mine, MOST)[0])


def test_kernels_that_run(grown):
    """One buffer: of each cache a step runs the kernel of the new rows alone. Two: that of the old ones as well."""
    seen = []
    with Artifact(grown[1], threads=1, event=lambda _, n, end, ns: end or seen.append(n)) as a:
        names = [a.api.node[n].name.decode() for n in range(a.api.n_node)]

        def ran(ins, outs):
            seen.clear()
            a.run_into(ins, outs)
            return [sum(names[n] == x for n in seen) for x in ("present_k", "present_v")]

        mine, other = caches(), caches()
        for x in mine:
            x[:] = 0.5
        new = feed(0, 1)[:3]
        assert ran([*new, *until(mine, 9)], [np.zeros_like(new[0]), *until(mine, 10)]) == [1, 1]
        assert ran([*new, *until(mine, 9)], [np.zeros_like(new[0]), *until(other, 10)]) == [2, 2]
        assert ran([*new, *until(mine, 9)], [np.zeros_like(new[0]), until(mine, 10)[0], until(other, 10)[1]]) == [1, 2]


def test_a_step_allocates_nothing(grown):
    """Neither does it write anything but its rows: pages without any may be read-only."""
    libc, (asked, memory) = ctypes.CDLL(None, use_errno=True), counted()
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    page = mmap.PAGESIZE
    most = 3 * page // 4 // SIZE            # rows of a head: three pages
    path = grown[0].compile("-O2", "--input", SPEC.replace(str(MOST), str(most)))
    mine = [np.frombuffer(mmap.mmap(-1, HEADS * 3 * page), np.float32).reshape(1, HEADS, most, SIZE) for _ in range(2)]
    for x in mine:
        x[:] = 0.25
    with Artifact(path, threads=1, **memory) as a:
        past = most // 3 + 5                # in the second page of each head
        for step in range(6):
            new = feed(0, 1, seed=step)[:3]
            if step == 1:
                seen = len(asked)
                protect = [x.ctypes.data + (3 * h + p) * page for x in mine for h in range(HEADS) for p in (0, 2)]
                assert not any(libc.mprotect(at, page, mmap.PROT_READ) for at in protect)
            a.run_into([*new, *until(mine, past)], [np.zeros_like(new[0]), *until(mine, past + 1)])
            past += 1
            assert all(np.array_equal(x[:, :, past - 1], n[:, :, 0]) for x, n in zip(mine, new[1:]))
        assert asked and len(asked) == seen
        assert not any(libc.mprotect(at, page, mmap.PROT_READ | mmap.PROT_WRITE) for at in protect)


def test_overlaps(grown):
    """Only the same address with the strides of the room is one buffer."""
    new, mine = feed(0, 1)[:3], [np.zeros((1, HEADS, MOST + 1, SIZE), np.float32) for _ in range(2)]
    room = np.zeros(HEADS * MOST * SIZE, np.float32)
    y = np.zeros_like(new[0])
    buffers = [x.reshape(-1)[:room.size].reshape(1, HEADS, MOST, SIZE) for x in mine]
    shifted = mine[0].reshape(-1)[SIZE:SIZE + room.size].reshape(1, HEADS, MOST, SIZE)
    with Artifact(grown[1]) as a:
        def refused(past, present, text):
            with pytest.raises(ModelError, match=text) as e:
                a.run_into([*new, *past], [y, *present])
            assert e.value.code == -1
        k, v = until(buffers, 5)
        refused([k, v], [shifted[:, :, :6], until(buffers, 6)[1]], "output 'present_k' overlaps input 'past_k'")
        refused([k, v], [until(buffers, 6)[1], until(buffers, 6)[0]], "output 'present_k' overlaps input 'past_v'")
        compact = mine[0].reshape(-1)[:HEADS * 6 * SIZE].reshape(1, HEADS, 6, SIZE)
        refused([k, v], [compact, until(buffers, 6)[1]], "output 'present_k' overlaps input 'past_k'")
        odd = np.zeros((1, HEADS, MOST - 1, SIZE), np.float32)[:, :, :6]
        refused([k, v], [odd, until(buffers, 6)[1]], "output 'present_k': must be compact, row-major, or have the strides of its room")
        halves = room[:2 * HEADS * 6 * SIZE].reshape(2, 1, HEADS, 6, SIZE)       # two compact outputs side by side
        a.run_into([*new, k, v], [y, halves[0], halves[1]])
        assert np.array_equal(halves[0][:, :, 5:], new[1]) and np.array_equal(halves[1][:, :, 5:], new[2])



@pytest.mark.parametrize("reader", [
    node("TopK", "past two", "x i", axis=1),
    node("TopK", "present two", "x i", axis=1),
    node("Reshape", "past wide", "x"),
    node("Transpose", "present", "x", perm=[1, 0, 2]),
], ids=["call", "call of the new one", "view", "transposed"])
def test_readers(tmp_path, reader):
    """What the runtime's functions read is compact, with nothing to share; views and kernels read it where it is."""
    nodes = [node("Concat", "past new", "present", axis=1), reader]
    model = Model(tmp_path, nodes, [value("past", [2, "n", 4]), value("new", [2, 1, 4])], [value("present", None), value("x", None)],
                  {"two": np.array([2]), "wide": np.array([-1, 2])}, opset=17)
    shares = reader.op_type != "TopK"
    spec = "past[2,n<=9,4]"
    warned = "warning: n<=9 is a bound and no more" in mcc(model.path, "-o", tmp_path / "net.so", "--input", spec).stderr
    assert warned == (not shares)
    with Artifact(model.compile("-O2", "--input", spec)) as a:
        assert a.outputs[0].alias == shares and a.outputs[0].dims[1].room == 9 * shares
        mine = np.full((2, 9, 4), np.nan, np.float32)
        mine[:, :5] = floats(2, 5, 4)
        given = [mine[:, :5].copy(), floats(2, 1, 4, seed=2)]
        want = model.want(given)
        same(want, a.run(given))
        if shares:
            same(want, a.run_into([mine[:, :5], given[1]], [mine[:, :6], np.zeros_like(want[1])]))


@pytest.mark.parametrize("flag", ["-O0", "-O2"])
def test_grouped_attention(tmp_path, flag):
    """Scatters into what was padded: a prompt of two sequences, one shorter, and steps; then steps in a buffer that is as long as it gets."""
    with Artifact(grouped(tmp_path).compile(flag, "--input", f"past_key:f32[b,2,p<={MOST},16]"), threads=2) as a:
        assert [p.alias for p in a.outputs] == [0, 4, 5] and [p.dims[2].room for p in a.outputs[1:]] == [MOST] * 2
        mine, past = [np.full((2, 2, MOST, 16), np.nan, np.float32) for _ in range(2)], 0
        for k, (rows, total) in enumerate([(9, 9), (1, 10), (1, 11), (1, 12), (1, MOST)]):
            if k == 4:
                for x in mine:
                    x[:, :, 12:] = 0.5
                past = MOST - 1
            fresh = [floats(2, rows, w, seed=10 * k + i) for i, w in enumerate((64, 32, 32))]
            more = [np.array([total - 1, total - 3], np.int32), np.ones((2, total), np.int64)]
            y, *want = a.run([*fresh, *(x.copy() for x in until(mine, past)), *more])
            before = [x.copy() for x in mine]
            got = a.run_into([*fresh, *until(mine, past), *more], [np.zeros_like(y), *until(mine, total)])
            same([y, *want], got, atol=0)
            for x, old in zip(mine, before):
                assert np.isnan(x[:, :, total:]).all() and np.isfinite(x[:, :, :total]).all()
                changed = np.flatnonzero((x[:, :, :past] != old[:, :, :past]).any((0, 1, 3)))
                assert set(changed) <= {total - 3}, "rows of the shorter one alone lie within the past"
            past = total
        fresh, full = [floats(2, 1, w) for w in (64, 32, 32)], [x.copy() for x in mine]
        more = [np.array([5, 7], np.int32), np.ones((2, 8), np.int64)]
        same(a.run([*fresh, *full, *more]), a.run_into([*fresh, *mine, *more], [np.zeros_like(fresh[0]), *mine]), atol=0)


def test_tokens(tmp_path):
    """A whole decoder, whose caches all have the length that one of them gives a maximum: ONNX Runtime's tokens."""
    path = ROOT / "examples/story/babyllama-int4.onnx"
    decoder = Compiled(Model(tmp_path, path=path).compile("-O2", "--input", "past_key_values.0.key:[1,4,past<=40,16]"))
    assert decoder.grows and decoder.room == 40
    prompt = [1, 20, 35, 7, 52, 9]
    (mine, logits), (tokens, expected) = decoder.tokens(prompt, 30), Reference(path).tokens(prompt, 30)
    assert mine == tokens and max(np.abs(x - y).max() for x, y in zip(logits, expected)) < 1e-3 * np.abs(expected[0]).max()


def test_workspace_grows_seldom(grown):
    """Scores that lie in the workspace are longer at each step."""
    most, (asked, memory) = 300, counted()
    with Artifact(grown[0].compile("-O0", "--input", SPEC.replace(str(MOST), str(most))), threads=1, **memory) as a:
        mine = [np.zeros((1, HEADS, most, SIZE), np.float32) for _ in range(2)]
        for past in range(most):
            new = feed(0, 1, seed=past)[:3]
            a.run_into([*new, *until(mine, past)], [np.zeros_like(new[0]), *until(mine, past + 1)])
        assert 3 < len(asked) < 25, asked

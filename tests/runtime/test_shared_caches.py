"""Caches that are input and output in one piece of memory (mcc_port.alias): the same answers as with two, only the new rows written, and every
other overlap refused."""
import ctypes
import mmap

import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import Artifact, ModelError, counted
from support.compare import Model, difference, floats, node
from support.decoder import grouped
from support.tool import ROOT, mcc, value

ROWS, SIZE = 12, 8


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """TensorScatter into caches [b, 12, 8]; what is read of the new one; a second input of its form."""
    nodes = [node("TensorScatter", "past new at", "present", axis=1), node("ReduceSum", "present axes", "sum", keepdims=0),
             node("Add", "other other", "twice")]
    form = lambda n: value(n, ["b", ROWS, SIZE])
    return Model(tmp_path_factory.mktemp("static"), nodes, [form("past"), value("new", ["b", "n", SIZE]), value("at", ["b"], T.INT64), form("other")],
                 [form("present"), value("sum", ["b", ROWS]), form("twice")], {"axes": np.array([2])}, opset=24)


def feed(batch=2, rows=3, at=(4, 0), seed=1):
    return [floats(batch, ROWS, SIZE, seed=seed), floats(batch, rows, SIZE, seed=seed + 1), np.array(at[:batch]), floats(batch, ROWS, SIZE, seed=9)]


def outputs(f):
    return [np.full_like(f[0], 7), np.zeros((len(f[0]), ROWS), np.float32), np.zeros_like(f[3])]


def same(want, got):
    for w, g in zip(want, got):
        text = difference(w, g)
        assert not text, text


def test_ports_say_so(static):
    path = static.compile("-O2")
    with Artifact(path) as a:
        assert [p.alias for p in a.outputs] == [1, 0, 0] and [p.alias for p in a.inputs] == [0] * 4
    assert "output   present: f32[b,12,8], may be the memory of past\n" in mcc("inspect", path).stdout


@pytest.mark.parametrize("flag", ["-O0", "-O2"])
def test_one_buffer_or_two(static, flag):
    """Step after step in one buffer; the memory behind and what no step writes keep their bytes."""
    with Artifact(static.compile(flag), threads=2) as a:
        f = feed()
        cache = f[0].copy()
        for k, rows in enumerate([3, 1, 1, 2, 0]):
            step = [cache.copy(), floats(2, rows, SIZE, seed=20 + k), np.array([k, 2 * k]), f[3]]
            want = a.run_into(step, outputs(f))
            expected = step[0].copy()
            for b in range(2):
                expected[b, step[2][b]:step[2][b] + rows] = step[1][b]
            assert np.array_equal(expected, want[0])
            got = a.run_into([cache, *step[1:]], [cache, *outputs(f)[1:]])
            same(want, got)


def test_only_new_rows_are_written(tmp_path):
    """Pages that hold no new row may be read-only."""
    rows = mmap.PAGESIZE // 4 // SIZE
    nodes = [node("TensorScatter", "past new at", "present", axis=1)]
    model = Model(tmp_path, nodes, [value("past", [1, 3 * rows, SIZE]), value("new", [1, 1, SIZE]), value("at", [1], T.INT64)],
                  [value("present", [1, 3 * rows, SIZE])], opset=24)
    memory = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    cache = np.frombuffer(memory, np.float32).reshape(1, 3 * rows, SIZE)
    at = cache.ctypes.data
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    new, cache[:] = floats(1, 1, SIZE), 0.5
    with Artifact(model.compile("-O2")) as a:
        for page in (0, 2):
            assert protect(at + page * mmap.PAGESIZE, mmap.PAGESIZE, mmap.PROT_READ) == 0
        a.run_into([cache, new, np.array([rows + 5])], [cache])
    assert np.array_equal(cache[0, rows + 5], new[0, 0]) and np.all(np.delete(cache[0], rows + 5, 0) == 0.5)
    for page in (0, 2):
        protect(at + page * mmap.PAGESIZE, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)


def test_copied_inputs_share_nothing(static):
    """Strided or misaligned, the input is copied: the output may be where it was, as for every output."""
    f = feed()
    room = np.zeros((2, ROWS, 2 * SIZE), np.float32)
    spread = room[:, :, ::2]
    spread[:] = f[0]
    with Artifact(static.compile("-O2")) as a:
        want = a.run_into(f, outputs(f))
        same(want, a.run_into([spread, *f[1:]], outputs(f)))


def test_other_overlaps_are_refused(static):
    f = feed()
    room = np.zeros(4 * f[0].size, np.float32)
    n = f[0].size
    part = lambda first: room[first:first + n].reshape(f[0].shape)
    part(0)[:] = f[0]
    with Artifact(static.compile("-O2")) as a:
        def refused(ins, outs, text):
            with pytest.raises(ModelError, match=text) as e:
                a.run_into(ins, outs)
            assert e.value.code == -1
        refused([part(0), *f[1:]], [part(SIZE), *outputs(f)[1:]], "output 'present' overlaps input 'past'")
        refused([part(SIZE), *f[1:]], [part(0), *outputs(f)[1:]], "output 'present' overlaps input 'past'")
        refused([*f[:3], part(0)], [part(0), *outputs(f)[1:]], "output 'present' overlaps input 'other'")
        refused([part(0), *f[1:3], part(0)], [part(0), *outputs(f)[1:]], "output 'present' overlaps input 'other'")
        refused([part(0), *f[1:]], [outputs(f)[0], outputs(f)[1], part(0)], "output 'twice' overlaps input 'past'")
        refused([part(0), *f[1:]], [part(0), outputs(f)[1], part(0)], "output 'twice' overlaps input 'past'")
        refused([*f[:3], part(0)], [outputs(f)[0], outputs(f)[1], part(0)], "output 'twice' overlaps input 'other'")
        same(a.run_into(f, outputs(f)), a.run_into([part(0), *f[1:]], [part(0), *outputs(f)[1:]]))


def test_grouped_attention(tmp_path):
    """A buffer with rows to spare, step after step, beside caches that grow; then one without."""
    model = grouped(tmp_path)
    mine = [np.zeros((1, 2, 20, 16), np.float32) for _ in range(2)]
    with Artifact(model.compile("-O2"), threads=2) as a:
        assert [p.alias for p in a.outputs] == [0, 4, 5]
        past, total = [np.zeros((1, 2, 0, 16), np.float32) for _ in range(2)], 0
        for k, rows in enumerate([7, 1, 1, 4, 1]):
            total += rows
            fresh = [floats(1, rows, w, seed=10 * k + i) for i, w in enumerate((64, 32, 32))]
            more = [np.array([total - 1], np.int32), np.ones((1, total), np.int64)]
            y, *past = a.run([*fresh, *past, *more])
            got = a.run_into([*fresh, *mine, *more], [np.zeros_like(y), *mine])
            same([y, *past], [got[0], *(c[:, :, :total] for c in mine)])
        assert not any(c[:, :, total:].any() for c in mine)
        room = np.zeros(2 * 20 * 16, np.float32)
        fresh, full = [floats(1, 1, w) for w in (64, 32, 32)], np.zeros((1, 2, 3, 16), np.float32)
        with pytest.raises(ModelError, match="output 'k' overlaps input 'past_key'"):      # one row more than there is room for
            a.run_into([*fresh, room[:96].reshape(1, 2, 3, 16), full, np.array([3], np.int32), np.ones((1, 4), np.int64)],
                       [np.zeros((1, 1, 64), np.float32), room[:128].reshape(1, 2, 4, 16), np.zeros((1, 2, 4, 16), np.float32)])


def test_a_step_allocates_nothing(tmp_path):
    """A whole decoder in buffers of 64 rows: after a prompt of 16 no step asks the host for memory, and each writes one row of each cache."""
    model, (asked, memory) = Model(tmp_path, path=ROOT / "examples/story/babyllama-int4.onnx"), counted()
    with Artifact(model.compile("-O2"), threads=1, **memory) as a:
        caches = [np.full((1, p.dims[1].extent, 64, p.dims[3].extent), 7, np.float32) for p in a.outputs[1:]]
        assert [p.alias for p in a.outputs[1:]] == list(range(3, 3 + len(caches)))
        logits, rows = np.zeros((1, 16, a.outputs[0].dims[2].extent), np.float32), 16
        for total in range(16, 64):
            before, seen = [x.copy() for x in caches], len(asked)
            a.run_into([np.full((1, rows), 5), np.ones((1, total), np.int64), *caches], [logits[:, :rows], *caches])
            assert bool(asked) if total == 16 else len(asked) == seen, f"{asked[seen:]} bytes asked for at {total} tokens"
            for x, old in zip(caches, before):
                written = np.flatnonzero((x != old).any((0, 1, 3)))
                assert np.array_equal(written, np.arange(total - rows, total))
            rows = 1

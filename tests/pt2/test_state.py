"""Programs that write to their buffers: state that lives in a context. Recorded runs follow one another (modules.py, keeping)."""
import ctypes as c
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from pt2.writer import Program, Ref, Type
from support.artifact import Artifact
from support.tool import mcc as command

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "runtime"))
import mcc  # noqa: E402

DATA = pathlib.Path(__file__).resolve().parent / "data"
RECORDED = np.load(DATA / "keeping.npz")
STEPS = [RECORDED[f"{k}.in.0"] for k in range(5)]
F = np.dtype("float32")


@pytest.fixture(scope="module", params=["", "_core"])
def library(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "keeping.so"
    done = command(DATA / f"keeping{request.param}.pt2", "-o", path)
    assert done.returncode == 0, done.stderr
    return path


def agree(got, k):
    for n, out in enumerate(got):
        np.testing.assert_allclose(out, RECORDED[f"{k}.out.{n}"], rtol=1e-5, atol=1e-6)


def test_streams(library):
    """Each model that is loaded is a stream of its own; reset, save and restore."""
    model, other = mcc.load(library), mcc.load(library)
    assert [(p.name, p.dtype, p.shape) for p in model.states] == [("cache", "float32", (2, 6, 4)), ("mean", "float32", (4,)),
                                                                  ("count", "int64", ())]
    assert len(model.inputs) == 1 and len(model.outputs) == 2
    for k, x in enumerate(STEPS):
        if k == 3:
            saved = model.state()
        agree(model(x), k)
    agree(other(STEPS[0]), 0)
    assert saved["count"] == 3 and np.all(saved["cache"][:, 3:] == 0) and np.all(saved["cache"][:, :3].any((0, 2)))
    model.reset(saved)
    agree(model(STEPS[3]), 3)
    model.reset()
    assert model.state()["count"] == 0 and np.all(model.state()["mean"] == 0.5)
    agree(model(STEPS[0]), 0)
    model.reset({"count": np.int64(5)})
    assert np.all(model.state()["cache"] == 0)
    for bad in ({"none": np.zeros(1)}, {"mean": np.zeros(3, np.float32)}, {"count": np.int32(1)}):
        with pytest.raises(TypeError):
            model.reset(bad)


def test_a_failed_run_leaves_the_state(library):
    """The cache has six rows: the seventh run fails, and again, until there is room."""
    model = mcc.load(library)
    for k in range(6):
        model(STEPS[0])
    before = model.state()
    for _ in range(2):
        with pytest.raises(mcc.Error):
            model(STEPS[1])
        assert all(np.array_equal(before[name], now) for name, now in model.state().items())
    with pytest.raises(mcc.Error):
        model(np.zeros((3, 4), np.float32))
    model.reset({**before, "count": np.int64(0)})
    model(STEPS[1])
    assert model.state()["count"] == 1


def test_every_way_to_run(library):
    """run (mcc.py), run_dlpack and run_values continue one another's state; a context in memory of the caller's."""
    with Artifact(library) as a:
        for k, x in enumerate(STEPS):
            agree(a.run([x]) if k % 2 else a.run_values([x]), k)
    model = mcc.load(library)
    size = model.plan(STEPS[0]).bytes
    api, error = model._api, mcc._Error()
    memory, ctx = c.create_string_buffer(size), c.c_void_p()
    assert api.ctx_new(model._open.model, memory, 100, c.byref(ctx), c.byref(error)) == -4 and b"the state takes" in error.text
    assert api.ctx_new(model._open.model, memory, size, c.byref(ctx), c.byref(error)) == 0, error.text
    context = mcc._Context(api, model._open.model)
    context.put(0, STEPS[0])
    outs = [np.empty((2, 4), np.float32), np.empty((), np.int64)]
    for n, out in enumerate(outs):
        context.put(1 + n, out)
    for k, x in enumerate(STEPS):
        context.put(0, x)
        assert api.run(ctx, context.inputs, context.outputs, c.byref(error)) == 0, error.text
        agree(outs, k)
    tensor, state = mcc._DLTensor(), model._open.states
    assert state.tensor(ctx, 3, c.byref(tensor), c.byref(error)) == -1 and b"no such state" in error.text
    assert state.tensor(ctx, 0, None, c.byref(error)) == -1
    assert state.tensor(ctx, 0, c.byref(tensor), c.byref(error)) == 0
    low = c.addressof(memory)
    assert low <= tensor.data and tensor.data + 2 * 6 * 4 * 4 <= low + size
    assert state.reset(None, c.byref(error)) == -1
    api.ctx_free(ctx)


def test_others_have_none(tmp_path):
    """A network without state keeps nothing."""
    program = Program()
    program.output(program.node("aten.relu.default", [program.input("x", F, (3,))], [("y", F, (3,))]))
    path = program.save(tmp_path / "m.pt2")
    assert command(path, "-o", tmp_path / "m.so").returncode == 0
    model = mcc.load(tmp_path / "m.so")
    assert model._api.state == 0 and model.states == [] and model.state() == {}
    model.reset()
    assert np.array_equal(model(np.float32([-1, 0, 1])), [0, 0, 1])


@pytest.mark.parametrize("args", ["run -i x=random", "eval -i x=random", "diff", "bench --runs=20", "check", "report -o {}.html",
                                  "diff --against-f32", "diff --against-f32 --precision=bf16", "compile --precision=auto -o {}.so"],
                         ids=lambda a: "".join(a.split()[:2]))
def test_commands(args, tmp_path):
    """Each run begins with the file's state: more than the cache has rows."""
    name, *options = args.format(tmp_path / "page").split()
    done = command(*[name][name == "compile":], DATA / "keeping.pt2", *options)
    assert done.returncode == 0, done.stderr
    assert "cache" not in done.stdout or name == "report"


def test_inspect(library):
    assert "state    cache: f32[2,6,4]\nstate    mean: f32[4]\nstate    count: i64[]" in command("inspect", library).stdout
    assert '"states"' in command("inspect", library, "--json").stdout


def test_parameters_and_shared_memory(tmp_path):
    """A written parameter is state, too; one whose memory is another's is refused."""
    for shared in (False, True):
        program = Program()
        x, w = program.input("x", F, (3,)), program.weight("w", np.ones(3, np.float32), "r")
        if shared:
            program.weight("v", np.ones(3, np.float32), "r")
        program.node("aten.add_.Tensor", [w, x], [("y", F, (3,))])
        program.output("y")
        path = program.save(tmp_path / "m.pt2")
        done = command(path, "-o", tmp_path / "m.so")
        if shared:
            assert done.returncode == 1 and "'w' is written and shares its memory" in done.stderr
            continue
        model = mcc.load(tmp_path / "m.so")
        assert [model(np.float32([1, 2, 3])).tolist() for _ in range(2)] == [[2, 3, 4], [3, 5, 7]]


def test_a_write_that_the_file_does_not_list(tmp_path):
    """Which weights are state is found out by a first reading, of which nothing remains: its nodes are not listed twice."""
    program = Program()
    x, w = program.input("x", F, (3,)), program.weight("w", np.ones(3, np.float32))
    program.node("aten.neg.default", [x], [("n", F, (3,))])
    program.node("aten.add_.Tensor", [w, Ref("n")], [("y", F, (3,))])
    program.output("y")
    assert command(program.save(tmp_path / "m.pt2"), "-o", tmp_path / "m.so").returncode == 0
    model = mcc.load(tmp_path / "m.so")
    rows = [model._api.node[i].op.decode() for i in range(model._api.n_node)]
    assert rows.count("aten.neg.default-1") + rows.count("neg.default") == 1, rows


@pytest.mark.parametrize("target,args,shape", [("reshape.default", [[4]], (4,)), ("contiguous.default", [], (2, 2)), ("flatten.using_ints", [], (4,))])
@pytest.mark.parametrize("kept", ["input", "buffer"])
def test_writes_by_what_may_be_a_copy(kept, target, args, shape, tmp_path):
    """They would be lost."""
    program = Program()
    w = program.input("w", F, (2, 2)) if kept == "input" else program.weight("w", np.zeros((2, 2), np.float32))
    v = program.node(f"aten.{target}", [w, *args], [("v", F, shape)])
    program.output(program.node("aten.relu_.default", [v], [("y", F, shape)]))
    done = command("check", program.save(tmp_path / "m.pt2"))
    assert done.returncode == 1 and f"'{w}' shares memory with a tensor that was written to, or is a copy" in done.stderr


def test_a_cast_is_a_copy(tmp_path):
    program = Program()
    v = program.node("aten.to.dtype", [program.input("x", F, (3,)), Type("float64")], [("v", np.dtype("float64"), (3,))])
    program.output(program.node("aten.relu_.default", [v], [("y", np.dtype("float64"), (3,))]))
    assert command(program.save(tmp_path / "m.pt2"), "-o", tmp_path / "m.so").returncode == 0
    model = mcc.load(tmp_path / "m.so")
    assert len(model.outputs) == 1 and np.array_equal(model(np.float32([-1, 0, 2])), [0, 0, 2])


def signed(program, *writes):
    """The program's graph with these buffers' new values in its signature, in front of what it has there."""
    module = program.document()["graph_module"]
    module["signature"]["output_specs"][:0] = [{"buffer_mutation": {"arg": {"name": new}, "buffer_name": name}} for name, new in writes]
    return module


def buffer(program, name, array):
    ref = program.weight(name, array)
    program.specs[-1] = {"buffer": {"arg": {"name": ref}, "buffer_name": name, "persistent": True}}
    return ref


@pytest.mark.parametrize("size,becomes", [(2, "f32[2]"), (8, "f32[8]"), ("s0", "f32[s0]"), (None, "i64[nonzero0, 1]")])
def test_a_state_keeps_its_shape(size, becomes, tmp_path):
    """A new value of another shape, or one that the run or the data chooses, is no value of the buffer."""
    program = Program()
    size = program.symbol("s0", 1, 100) if size == "s0" else size
    x, w = program.input("x", F, (size or 4,)), buffer(program, "w", np.ones((4, 1) if size is None else 4, "int64" if size is None else "float32"))
    if size is None:
        program.node("aten.nonzero.default", [x], [("new", np.dtype("int64"), (4, 1))])
    else:
        program.node("aten.relu.default", [x], [("new", F, (size,))])
    program.node("aten.neg.default", [w], [("y", np.dtype("int64") if size is None else F, (4, 1) if size is None else (4,))])
    program.output("y")
    done = command(program.save(tmp_path / "m.pt2", graph_module=signed(program, ("w", "new"))), "-o", tmp_path / "m.so")
    assert done.returncode == 1 and f"'w': error: a state of {'i64[4, 1]' if size is None else 'f32[4]'} becomes {becomes};" in done.stderr, done.stderr
    assert not (tmp_path / "m.so").exists()


HOST = """
#define M_IMPLEMENTATION
#include "m.h"
int main(void)
{
    static const float x[3] = {1, 2, 3};
    float y[3];
    int code = m_run(x, y) || m_run(x, y) || y[2] != 7 || m_reset() || m_run(x, y) || y[2] != 4;
    m_close();
    return code;
}
"""


def test_header(tmp_path):
    """--emit=header has no ports for states, but a function to begin anew."""
    program = Program()
    program.node("aten.add_.Tensor", [program.weight("w", np.ones(3, np.float32)), program.input("x", F, (3,))], [("y", F, (3,))])
    program.output("y")
    assert command(program.save(tmp_path / "m.pt2"), "--emit=header", "-o", tmp_path / "m.o").returncode == 0
    assert "int m_run(const float x[3], float y[3]);" in (tmp_path / "m.h").read_text()
    (tmp_path / "main.c").write_text(HOST)
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{pathlib.Path(mcc.__file__).parent}", "-o", tmp_path / "main",
                    tmp_path / "main.c", tmp_path / "m.o", "-lm", "-lpthread"], check=True)
    subprocess.run([tmp_path / "main"], check=True)
    rows = subprocess.run(["readelf", "-sW", tmp_path / "m.o"], capture_output=True, text=True, check=True).stdout.splitlines()
    sizes = {row.split()[-1]: int(row.split()[2], 0) for row in rows if "mcc_rt_model" in row or "mcc_rt_keeping" in row}
    assert sizes["mcc_rt_keeping"] == 2 * sizes["mcc_rt_model"] + 16    # the states, and how many


@pytest.mark.parametrize("adds", [False, True])
def test_a_failed_run_adds_nothing(adds, tmp_path):
    """Rows that are added twice would not be those of one run: such a state is never its own new value's memory."""
    program = Program()
    x, i, w = program.input("x", F, (2, 4)), program.input("i", np.dtype("int64"), (2,)), buffer(program, "w", np.zeros((8, 4), np.float32))
    program.node("aten.index_put_.default", [w, [i], x, adds], [("new", F, (8, 4))])
    row = program.node("aten.index_select.default", [x, 0, i], [("row", F, (2, 4))])
    program.node("aten.sum.dim_IntList", [row, [1]], [("y", F, (2,))])
    program.output("y")
    path = program.save(tmp_path / "m.pt2")
    assert command(path, "-o", tmp_path / "m.so").returncode == 0
    model, x = mcc.load(tmp_path / "m.so"), np.ones((2, 4), np.float32)
    for _ in range(3):
        with pytest.raises(mcc.Error):
            model(x, np.int64([1, 5]))
    if adds:
        assert not model.state()["w"].any()
    model(x, np.int64([0, 1]))
    assert model.state()["w"][:2].tolist() == [[1] * 4] * 2


def test_names(tmp_path):
    """--input names inputs, not states, one of which may have an input's name; two states may not share one."""
    program = Program()
    x, w = program.input("n", F, (3,)), buffer(program, "n", np.ones(3, np.float32))
    buffer(program, "w", np.ones(3, np.float32))
    program.node("aten.add_.Tensor", [w, x], [("y", F, (3,))])
    program.node("aten.add_.Tensor", [Ref("p_w"), x], [("z", F, (3,))])
    program.output("y", "z")
    path = program.save(tmp_path / "m.pt2")
    done = command(path, "-o", tmp_path / "m.so", "--input=w:f32[3]")
    assert done.returncode == 2 and "'w': error: --input names no input" in done.stderr
    assert command(path, "-o", tmp_path / "m.so", "--input=n:f32[3]").returncode == 0
    model = mcc.load(tmp_path / "m.so")
    assert [p.name for p in model.inputs] == ["n"] and [p.name for p in model.states] == ["n", "w"]
    program.specs.append({"buffer": {"arg": {"name": "again"}, "buffer_name": "w", "persistent": True}})
    done = command(program.save(path), "-o", tmp_path / "m.so")
    assert done.returncode == 1 and "'w': error: two states have this name" in done.stderr


def test_a_context_that_fails(library, monkeypatch):
    """What could not be made at first, or given, is no reason to refuse or to forget what comes next."""
    model = mcc.load(library)
    with monkeypatch.context() as patch:
        patch.setattr(mcc, "_Context", lambda *_: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            model(STEPS[0])
    agree(model(STEPS[0]), 0)
    with pytest.raises(TypeError):
        model.reset({"count": np.int64(5), "mean": np.zeros(3, np.float32)})
    agree(model(STEPS[1]), 1)


def test_constant_states_cost_nothing(tmp_path):
    """Of a state that is one number everywhere the file has that number; 40 MB of caches are 100 kB of file."""
    program, low = Program(), np.full((10, 250_000), -np.inf, np.float32)
    x = program.input("x", F, (250_000,))
    wants = {"low": low, "zero": np.zeros_like(low), "ones": np.ones((3, 250_001), np.int8), "one": np.full((1,), 7, np.float64),
             "mixed": np.float32([2, 2, 2, 3]), "none": np.zeros((0, 4), np.float32), "minus": np.full((3, 5), -0.0, np.float32)}
    for n, (name, array) in enumerate(wants.items()):
        w = buffer(program, name, array)
        program.node("aten.neg_.default" if name != "low" else "aten.add_.Tensor", [w] if name != "low" else [w, x], [(f"y{n}", array.dtype, array.shape)])
        program.output(f"y{n}")
    assert command(program.save(tmp_path / "m.pt2"), "-o", tmp_path / "m.so").returncode == 0
    assert (tmp_path / "m.so").stat().st_size < 150_000
    model = mcc.load(tmp_path / "m.so")
    for _ in range(2):
        for name, now in model.state().items():
            assert now.dtype == wants[name].dtype and np.array_equal(now, wants[name]) and np.array_equal(np.signbit(now), np.signbit(wants[name])), name
        model(np.zeros(250_000, np.float32))
        assert model.state()["mixed"].tolist() == [-2, -2, -2, -3]
        model.reset()


def test_large_states_are_not_copied(tmp_path):
    """Large outputs are made by run_dlpack, which writes the states' other buffers, or the rows of a cache, where they are."""
    program = Program()
    x, i = program.input("x", F, (1, 100_000)), program.input("i", np.dtype("int64"), (1,))
    total, cache = buffer(program, "total", np.zeros((1, 100_000), np.float32)), buffer(program, "cache", np.zeros((40, 100_000), np.float32))
    program.node("aten.add_.Tensor", [total, x], [("y", F, (1, 100_000))])
    program.node("aten.index_copy_.default", [cache, 0, i, x], [("new", F, (40, 100_000))])
    program.output("y", program.node("aten.neg.default", [x], [("z", F, (1, 100_000))]))
    done = command(program.save(tmp_path / "m.pt2"), "-o", tmp_path / "m.so")
    assert done.returncode == 0, done.stderr
    model, seen = mcc.load(tmp_path / "m.so"), []
    for k in range(4):
        y, z = model(np.full((1, 100_000), k + 1, np.float32), np.int64([k]))
        context = model._open.idle[-1]
        seen.append([model._open.state(context, n).ctypes.data for n in range(2)])
        assert y[0, 5] == (k + 1) * (k + 2) / 2 and z[0, 7] == -k - 1
        assert model.state()["cache"][:5, 3].tolist() == [float(n + 1) if n <= k else 0 for n in range(5)]
    totals, caches = zip(*seen)
    assert len(set(totals)) == 2 and totals[0] == totals[2] and len(set(caches)) == 1
    with pytest.raises(mcc.Error):
        model(np.ones((1, 100_000), np.float32), np.int64([40]))
    assert model.state()["total"][0, 0] == 10

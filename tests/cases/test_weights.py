"""Weights are stored once and never multiplied: sizes of artifacts, equal tensors, broadcasts of constants, f16 and
bf16, and every form of MatMul and Gemm that could tempt a compiler to copy them."""
import resource
import subprocess
import time

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from support.compare import Model, difference, floats, ints, node
from support.tool import MCC, mcc, result, save, value

F = np.float32


def sized(model, *flags):
    return model.compile(*flags).stat().st_size


# ---- one Linear ----------------------------------------------------------------------------------------------------------

def linear(folder, n):
    folder.mkdir(exist_ok=True)
    return save(folder / "linear.onnx", [node("MatMul", "x w", "h"), node("Add", "h b", "y")], [value("x", [n, 56, 56, 128])],
                [value("y", [n, 56, 56, 512])], {"w": floats(128, 512, scale=0.1), "b": floats(512, seed=1)})


def test_linear_is_as_large_as_its_weights(tmp_path):
    """The default variants, N = 1, 2, 16, 64: at most 323,000 bytes, and all within 4 KB."""
    sizes = []
    for n in (1, 2, 16, 64):
        output = tmp_path / f"{n}.so"
        assert mcc(linear(tmp_path / str(n), n), "-o", output).returncode == 0
        sizes.append(output.stat().st_size)
    assert max(sizes) <= 323_000 and max(sizes) - min(sizes) < 4096, sizes


def test_linear_is_right(tmp_path):
    model = Model(tmp_path, path=linear(tmp_path, 2))
    x = floats(2, 56, 56, 128)
    initializers = {t.name: numpy_helper.to_array(t) for t in onnx.load(model.path).graph.initializer}
    want = (x.reshape(-1, 128).astype(np.float64) @ initializers["w"] + initializers["b"]).reshape(2, 56, 56, 512)
    assert not difference(want.astype(F), model.run([x])[0])


# ---- equal tensors ----------------------------------------------------------------------------------------------------------

W = floats(192, 192, scale=0.1)


def chain(weights):
    """x @ w0 @ w1 ...: nodes"""
    return [node("MatMul", f"h{i} {w}", f"h{i + 1}") for i, w in enumerate(weights)]


def shared_initializer():
    return chain(["w"] * 6), ["n", 192], "h6", {"w": W}


def equal_initializers():
    return chain([f"w{i}" for i in range(6)]), ["n", 192], "h6", {f"w{i}": W for i in range(6)}


def transposed_weight():
    nodes = [node("Transpose", "w", "t", perm=[1, 0]), *chain(["t", "t"])]
    return nodes, ["n", 192], "h2", {"w": W}


def both_ways_round():
    """The same tensor as it is and transposed."""
    nodes = [node("Transpose", "w", "t", perm=[1, 0]), *chain(["w", "t", "w"])]
    return nodes, ["n", 192], "h3", {"w": W}


def constant_node():
    nodes = [node("Constant", "", "c", value=numpy_helper.from_array(W)), *chain(["w", "c"])]
    return nodes, ["n", 192], "h2", {"w": W}


def branches():
    """Both branches of an If carry the tensor, and the graph does."""
    tensor = numpy_helper.from_array(W, "own")
    then = helper.make_graph([node("MatMul", "h0 own", "t")], "then", [], [value("t", ["n", 192])], [tensor])
    other = helper.make_graph([node("MatMul", "h1 own", "e")], "else", [], [value("e", ["n", 192])], [tensor])
    nodes = [node("MatMul", "h0 w", "h1"), node("ReduceSum", "h1", "s", keepdims=0), node("Less", "zero s", "p"),
             node("If", "p", "y", then_branch=then, else_branch=other)]
    return nodes, ["n", 192], "y", {"w": W, "zero": F(0)}


def branches_alone():
    """As branches(), and nobody outside has it."""
    nodes, shape, result, constants = branches()
    nodes[0] = node("Tanh", "h0", "h1")
    return nodes, shape, result, {"zero": constants["zero"]}


CASES = [shared_initializer, equal_initializers, transposed_weight, both_ways_round, constant_node, branches, branches_alone]


@pytest.mark.parametrize("case", CASES, ids=[c.__name__ for c in CASES])
def test_stored_once(case, tmp_path):
    nodes, shape, result, constants = case()
    model = Model(tmp_path, nodes, [value("h0", shape)], [value(result, shape)], constants)
    assert W.nbytes < sized(model, "-O2") < W.nbytes + 60_000
    for n in (1, 7):
        model.compare([floats(n, 192, seed=n)], atol=1e-4)


def turned_branches(transposed=()):
    """Both branches of an If multiply by a matrix of bytes whose sign bit the rules turn."""
    def branch(name):
        weights = "w"
        nodes = []
        if name in transposed:
            nodes, weights = [node("Transpose", "w", f"{name}_t", perm=[1, 0])], f"{name}_t"
        nodes += [node("MatMulInteger", f"h {weights} zx zw", f"{name}_s"), node("Cast", f"{name}_s", f"{name}_f", to=T.FLOAT),
                  node("Tanh" if name == "then" else "Neg", f"{name}_f", f"{name}_y")]
        return helper.make_graph(nodes, name, [], [value(f"{name}_y", ["n", 320])])
    return [node("If", "p", "y", then_branch=branch("then"), else_branch=branch("else"))]


@pytest.mark.parametrize("transposed, copies", [((), 1), (("then", "else"), 1), (("then",), 2)], ids=["plain", "transposed", "one transposed"])
def test_what_both_branches_make_of_a_weight_is_stored_once(transposed, copies, tmp_path):
    rng = np.random.default_rng(3)
    w = rng.integers(0, 256, (320, 320)).astype(np.uint8)
    model = Model(tmp_path, turned_branches(transposed), [value("p", [], T.BOOL), value("h", ["n", 320], T.UINT8)], [value("y", ["n", 320])],
                  {"w": w, "zx": np.uint8(3), "zw": np.uint8(120)})
    size = sized(model, "-O2")
    assert copies * w.nbytes < size < copies * w.nbytes + 90_000
    for p in (True, False):
        model.compare([np.bool_(p), rng.integers(0, 256, (5, 320)).astype(np.uint8)])


def test_tied_embedding(tmp_path):
    """Rows gathered from a table whose transpose makes the logits."""
    table = floats(500, 64, scale=0.2)
    nodes = [node("Gather", "table tokens", "x"), node("Tanh", "x", "h"), node("Transpose", "table", "t", perm=[1, 0]), node("MatMul", "h t", "y")]
    model = Model(tmp_path, nodes, [value("tokens", ["n", "s"], T.INT64)], [value("y", ["n", "s", 500])], {"table": table})
    assert sized(model, "-O2") < table.nbytes + 64_000
    model.compare([np.random.default_rng(0).integers(0, 500, (2, 9))])


@pytest.mark.parametrize("layers, copies", [(8, 1), (0, 2)])
def test_tied_table_of_few_rows(layers, copies, tmp_path):
    """The file has the table and its transpose. Rows of a short table are dearer to fetch from panels: it is stored once where that is
    little beside the rest of the network."""
    table, up, down = floats(500, 64, scale=0.2), floats(64, 2048, scale=0.05), floats(2048, 64, scale=0.01)
    nodes = [node("Gather", "table tokens", "h0")]
    for k in range(layers):
        nodes += [node("MatMul", f"h{k} up", f"u{k}"), node("Tanh", f"u{k}", f"t{k}"), node("MatMul", f"t{k} down", f"h{k + 1}")]
    nodes.append(node("MatMul", f"h{layers} head", "y"))
    constants = {"table": table, "head": np.ascontiguousarray(table.T), **({"up": up, "down": down} if layers else {})}
    model = Model(tmp_path, nodes, [value("tokens", ["n", "s"], T.INT64)], [value("y", ["n", "s", 500])], constants)
    others = up.nbytes + down.nbytes if layers else 0
    assert copies * table.nbytes < sized(model, "-O2") - others < copies * table.nbytes + 110_000
    model.compare([np.random.default_rng(0).integers(0, 500, (2, 9))], atol=1e-4)


# ---- nothing multiplied ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("nodes, constants", [
    ([node("Expand", "w shape", "e"), node("Add", "x e", "y")], {"w": floats(1, 1, 600), "shape": ints(32, 200, 600)}),
    ([node("Tile", "w times", "e"), node("Add", "x e", "y")], {"w": floats(1, 1, 600), "times": ints(32, 200, 1)}),
    ([node("ConstantOfShape", "shape", "e", value=numpy_helper.from_array(F([2.5]))), node("Add", "x e", "y")],
     {"shape": ints(32, 200, 600)}),
    ([node("Expand", "w shape", "e"), node("Transpose", "e", "t", perm=[0, 2, 1]), node("MatMul", "x t", "m"), node("Relu", "m", "y")],
     {"w": floats(1, 200, 600, scale=0.05), "shape": ints(32, 200, 600)}),
], ids=["expand", "tile", "constant of shape", "expanded operand of a product"])
def test_broadcast_constants_stay_small(nodes, constants, tmp_path):
    """15 MB when written out."""
    out = [32, 200, 200] if nodes[-1].op_type == "Relu" else [32, 200, 600]
    model = Model(tmp_path, nodes, [value("x", [32, 200, 600])], [value("y", out)], constants)
    assert sized(model, "-O2") < sum(a.nbytes for a in constants.values()) + 100_000
    model.compare([floats(32, 200, 600)], flags=["-O2"], atol=1e-3)


def test_cheap_growth_stays_in_registers(tmp_path):
    """An outer product in front of a MatMul: its two factors are stored."""
    model = Model(tmp_path, [node("Mul", "r c", "t"), node("MatMul", "x t", "y")], [value("x", [1, 600])], [value("y", [1, 600])],
                  {"r": floats(1, 600), "c": floats(600, 1)})
    assert sized(model, "-O2") < 100_000
    model.compare([floats(1, 600)], flags=["-O2"])


def test_growth_is_warned_of_and_limited(tmp_path):
    """Above 1.5 times: a warning with node and multiplier; above the limit: exit status 4, no output."""
    path = save(tmp_path / "m.onnx", [node("Div", "r c", "t", "outer"), node("MatMul", "x t", "y")], [value("x", [1, 600])],
                [value("y", [1, 600])], {"r": floats(1, 600), "c": floats(600, 1)})
    done = mcc(path, "--stats", "-o", tmp_path / "a.so")
    assert done.returncode == 0 and result("inspect", path)["weights_bytes"] > 1.5 * 4800
    assert "outer" in done.stderr and "[-Wconstant-growth]" in done.stderr and "times" in done.stderr
    done = mcc(path, "--max-constant-growth=2", "-o", tmp_path / "b.so")
    assert done.returncode == 4 and "outer" in done.stderr and not (tmp_path / "b.so").exists()
    done = mcc(path, "--max-output-size=5K", "-o", tmp_path / "c.so")
    assert done.returncode == 4 and not (tmp_path / "c.so").exists()


# ---- narrow types keep their width ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype, elem", [(np.float16, T.FLOAT16), (ml_dtypes.bfloat16, T.BFLOAT16)])
@pytest.mark.parametrize("raw", [True, False])
def test_width(dtype, elem, raw, tmp_path):
    """Weights that a Cast makes f32 are stored as they are in the file, and widened where they are read."""
    w = floats(400, 300, scale=0.1).astype(dtype)
    tensor = helper.make_tensor("w", elem, w.shape, w.tobytes() if raw else w.astype(F).reshape(-1).tolist(), raw=raw)
    graph = helper.make_graph([node("Cast", "w", "wf", to=T.FLOAT), node("MatMul", "x wf", "y")], "g", [value("x", ["n", 400])],
                              [value("y", ["n", 300])], [tensor])
    path = tmp_path / "net.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    model = Model(tmp_path, path=path)
    assert sized(model, "-O2") < w.nbytes + 60_000
    for n in (1, 3, 40):
        model.compare([floats(n, 400)], [floats(n, 400) @ w.astype(F)], atol=1e-3)


# ---- forms of products --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("a, b", [([5], [5]), ([5], [5, 3]), ([4, 5], [5]), ([4, 5], [5, 3]), ([2, 4, 5], [5, 3]), ([4, 5], [2, 5, 3]),
                                  ([2, 1, 4, 5], [1, 3, 5, 6]), ([2, 3, 4, 5], [3, 5, 6]), ([1, 4, 5], [7, 5, 2]), ([0, 5], [5, 3]),
                                  ([4, 0], [0, 3]), ([5], [2, 5, 3]), ([2, 4, 5], [5])])
@pytest.mark.parametrize("constant", ["a", "b", ""])
def test_matmul(a, b, constant, tmp_path):
    values = {"a": floats(*a), "b": floats(*b, seed=1)}
    want = np.asarray(np.matmul(values["a"], values["b"]))
    free = [k for k in "ab" if k != constant]
    model = Model(tmp_path, [node("MatMul", "a b", "y")], [value(k, values[k].shape) for k in free], [value("y", want.shape)],
                  {constant: values[constant]} if constant else {})
    model.compare([values[k] for k in free], [want], flags=["-O2"])


@pytest.mark.parametrize("bias", [None, [], [1], [6], [1, 6], [4, 1], [4, 6]])
@pytest.mark.parametrize("trans_a, trans_b", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_gemm(bias, trans_a, trans_b, tmp_path):
    a, b = floats(*((5, 4) if trans_a else (4, 5))), floats(*((6, 5) if trans_b else (5, 6)), seed=1)
    c = None if bias is None else floats(*bias, seed=2) if bias else F(1.5)
    want = F(0.5) * ((a.T if trans_a else a) @ (b.T if trans_b else b)) + (0 if c is None else F(2) * c)
    for fixed in (("b", "c"), ("a",)):
        folder = tmp_path / fixed[0]
        folder.mkdir()
        values = {"a": a, "b": b} | ({} if c is None else {"c": np.asarray(c)})
        free = [k for k in values if k not in fixed]
        model = Model(folder, [node("Gemm", "a b" + ("" if c is None else " c"), "y", alpha=0.5, beta=2.0, transA=trans_a, transB=trans_b)],
                      [value(k, values[k].shape) for k in free], [value("y", [4, 6])], {k: v for k, v in values.items() if k in fixed})
        model.compare([values[k] for k in free], [want.astype(F)], flags=["-O2"])


def test_rows_of_every_leading_dim_are_one_product(tmp_path):
    """Rank 4 times rank 2 is one contraction over N*H*W rows."""
    model = Model(tmp_path, [node("MatMul", "x w", "y")], [value("x", ["n", 7, 5, 64])], [value("y", ["n", 7, 5, 96])], {"w": floats(64, 96)})
    kernels = model.kernels()
    assert len(kernels) == 1 and "contract" in kernels[0]
    for n in (1, 3):
        model.compare([floats(n, 7, 5, 64)], flags=["-O2"], atol=1e-4)


def test_constant_seen_by_several_kernels_through_a_view_of_the_runs_size(tmp_path):
    """A row for each row of x: no constant itself, and read by kernels that have nothing else in common."""
    nodes = [node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Concat", "n seven", "to", axis=0), node("Expand", "c to", "rows"),
             node("MatMul", "rows w", "a"), node("MatMul", "x rows", "b"), node("Mul", "a x", "y"), node("Exp", "b", "z")]
    model = Model(tmp_path, nodes, [value("x", ["n", 7])], [value("y", ["n", 7]), value("z", ["n", 7])],
                  {"c": floats(7), "w": floats(7, 7, seed=1), "zero": ints(0), "seven": ints(7)})
    model.compare([floats(7, 7, seed=2)])


@pytest.mark.parametrize("spread", [False, True], ids=["stored", "one element"])
def test_constants_computed_of_each_other(spread, tmp_path):
    """Each step reads the one before twice, as 2^30 ways through the constants would; the compiler looks at some of them."""
    start = [node("Expand", "one shape", "c0")] if spread else [node("Identity", "w", "c0")]
    steps = [n for k in range(30) for n in (node("Sin", f"c{k}", f"s{k}"), node("Cos", f"c{k}", f"o{k}"), node("Mul", f"s{k} o{k}", f"c{k + 1}"))]
    model = Model(tmp_path, [*start, *steps, node("Add", "x c30", "y")], [value("x", [50, 40])], [value("y", [50, 40])],
                  {"one": np.float32([[0.3]]), "shape": np.array([50, 40]), "w": floats(50, 40, scale=0.1)})
    began = time.monotonic()
    model.compare([floats(50, 40)], flags=("-O2",), rtol=1e-3)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("made", ["stored", "computed"])
@pytest.mark.parametrize("reader", ["SequenceConstruct", "If", "Loop", "Unique"])
def test_one_element_of_dims_that_the_run_makes(made, reader, tmp_path):
    """A view of a constant that is not a constant itself, for what reads whole buffers."""
    branch = lambda name, view: helper.make_graph([node("Identity", view, name)], name, [], [value(name, None)])
    body = helper.make_graph([node("Add", "a a", "b"), node("Identity", "go", "on")], "body",
                             [value("n", [], T.INT64), value("go", [], T.BOOL), value("a", None)], [value("on", [], T.BOOL), value("b", None)])
    last = {"SequenceConstruct": node("SequenceConstruct", "v x", "y"), "If": node("If", "p", "y", then_branch=branch("t", "v"), else_branch=branch("e", "x")),
            "Loop": node("Loop", "m  v", "y", body=body), "Unique": node("Unique", "v", "y")}[reader]
    more = {"If": [value("p", [], T.BOOL)], "Loop": [value("m", [], T.INT64)]}.get(reader, [])
    if reader == "Loop":
        last.input[:] = ["m", "", "v"]
    model = Model(tmp_path, [node("Exp" if made == "computed" else "Identity", "c", "w"), node("Reshape", "w i", "v"), last],
                  [value("i", [1], T.INT64), value("x", [1]), *more], [helper.make_empty_tensor_value_info("y")], {"c": F([[1.5]])})
    one, x = np.exp(F([1.5])) if made == "computed" else F([1.5]), F([7])
    feed, want = {"SequenceConstruct": ([], [one, x]), "If": ([np.array(True)], one), "Loop": ([np.int64(2)], 4 * one), "Unique": ([], one)}[reader]
    for i in (1, -1):
        model.compare([ints(i), x, *feed], [want])


# ---- writing -------------------------------------------------------------------------------------------------------------

def stack(folder, n):
    """n products of 1,024 x 1,000 whose last panel of columns has padding, and one of 1,000 x 1,024 behind each"""
    down = {f"a{i}": floats(1024, 1000, seed=i, scale=0.03) for i in range(n)}
    up = {f"b{i}": floats(1000, 1024, seed=n + i, scale=0.03) for i in range(n)}
    nodes = chain([w for i in range(n) for w in (f"a{i}", f"b{i}")])
    return nodes, down | up, save(folder / "stack.onnx", nodes, [value("h0", [4, 1024])], [value(f"h{2 * n}", [4, 1024])], down | up)


def test_packing_takes_its_buffers_once(tmp_path):
    """Four constants more of 4 MB cost no pages more than their bytes in the file: buffers for them are there."""
    def faults(path, *flags):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
        subprocess.run([MCC, path, f"--cache={tmp_path / 'cache'}", "-j1", *flags], check=True)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before

    def packing(n):
        path = stack(tmp_path, n)[2]
        faults(path, "-o", tmp_path / "first.so")
        return faults(path, "-o", tmp_path / "second.so") - faults(path, "--stop-after=emit", "-o", tmp_path / "text")

    more = packing(4) - packing(2)
    assert more < 4000, more


def test_constants_behind_larger_ones_are_right(tmp_path):
    nodes, weights, path = stack(tmp_path, 2)
    model = Model(tmp_path, path=path)
    x = floats(4, 1024)
    want = x.astype(np.float64)
    for n in nodes:
        want = want @ weights[n.input[1]]
    assert not difference(want.astype(F), model.run([x])[0])

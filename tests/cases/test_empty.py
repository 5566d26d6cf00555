"""Empty dims, in any operand and on either side of a compilation: constants or inputs, static or symbolic sizes.

Each form is an operator whose sizes are drawn from 0 and a few more, its operands' kinds too. References: ONNX Runtime, else ONNX's evaluator.
"""
import warnings

import numpy as np
import onnx.reference
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.artifact import ModelError
from support.compare import Model, difference, node, node_graph
from support.tool import value

F = np.float32
SIZES = [0, 0, 0, 1, 2, 3, 17, 20]


class Draw:
    """Sizes, operands and nodes of one form."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.inputs, self.feed, self.constants, self.nodes = [], [], {}, []

    def size(self, *more):
        return int(self.rng.choice(list(more) or SIZES))

    def sizes(self, n):
        return [self.size() for _ in range(n)]

    def operand(self, *shape, array=None, constant=None, fixed=False):
        """A new operand's name: a constant, an input of that shape, or one with symbols where 0 may be met."""
        name = f"t{len(self.feed) + len(self.constants)}"
        array = self.rng.standard_normal(shape).astype(F) if array is None else np.asarray(array)
        way = int(self.rng.integers(3)) if constant is None else 0 if constant else 1
        if way == 0:
            self.constants[name] = array
        else:
            dims = [f"{name}_{i}" for i in range(array.ndim)] if way == 2 and not fixed else list(array.shape)
            self.inputs.append(value(name, dims, helper.np_dtype_to_tensor_dtype(array.dtype)))
            self.feed.append(array)
        return name

    def run(self, op, operands, **attributes):
        name = f"r{len(self.nodes)}"
        self.nodes.append(node(op, " ".join(operands), name, **attributes))
        return name


def product_chain(d):
    """The products of a low rank of 0 beside one of a full rank."""
    n, k, r = d.size(0, 1, 2, 3), d.size(4, 16), d.size(0, 0, 1, 8)
    x = d.operand(n, k, constant=False)
    low = d.run("MatMul", [d.run("MatMul", [x, d.operand(k, r)]), d.operand(r, k)])
    return d.run("Add", [low, d.run("MatMul", [x, d.operand(k, k)])])


def matmul(d):
    b, m, k, n = d.sizes(4)
    return d.run("MatMul", [d.operand(*([b] if d.size(0, 1) else []), m, k), d.operand(*([b] if d.size(0, 1) else []), k, n)])


def gemm(d):
    m, k, n = d.sizes(3)
    ta, tb = d.size(0, 1), d.size(0, 1)
    operands = [d.operand(*((k, m) if ta else (m, k))), d.operand(*((n, k) if tb else (k, n)))]
    if d.size(0, 1):
        operands.append(d.operand(n))
    return d.run("Gemm", operands, transA=ta, transB=tb, alpha=0.5)


def conv(d):
    b, c, o, h = d.size(), d.size(1, 2, 16), d.size(0, 1, 16), d.size(0, 3, 8)
    return d.run("Conv", [d.operand(b, c, h, 9), d.operand(o, c, 3, 3)], pads=[1, 1, 1, 1])


def pool(d):
    return d.run(str(d.rng.choice(["MaxPool", "AveragePool"])), [d.operand(d.size(), d.size(), 5, 6)], kernel_shape=[2, 2])


def concat(d):
    a, axis = d.sizes(3), d.size(0, 1, 2)
    parts = []
    for _ in range(d.size(1, 2, 3)):
        parts.append(d.operand(*[d.size() if i == axis else n for i, n in enumerate(a)]))
    return d.run("Concat", parts, axis=axis)


def reduce(d):
    op = str(d.rng.choice(["Sum", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Max", "Min", "Mean"]))
    axes = d.operand(array=np.array([d.size(0, 1, 2)]), constant=True)
    sizes = d.sizes(3)
    if op in ("Max", "Min", "Mean") and sizes[int(d.constants[axes][0])] == 0:
        op = "Sum"    # refused by ONNX Runtime
    return d.run("Reduce" + op, [d.operand(*sizes), axes], keepdims=d.size(0, 1))


def einsum(d):
    i, j, k, b = d.sizes(4)
    text, shapes = [("ij,jk->ik", [(i, j), (j, k)]), ("bij,bjk->bik", [(b, i, j), (b, j, k)]), ("ij,ij->", [(i, j), (i, j)]),
                    ("ij->j", [(i, j)]), ("bij,kj->bik", [(b, i, j), (k, j)])][d.size(0, 1, 2, 3, 4)]
    return d.run("Einsum", [d.operand(*s) for s in shapes], equation=text)


def softmax(d):
    return d.run(str(d.rng.choice(["Softmax", "LogSoftmax"])), [d.operand(*d.sizes(3))], axis=d.size(0, 1, 2))


def gather(d):
    data = [d.size(2, 3), d.size(), d.size()]
    at = d.operand(array=d.rng.integers(0, 2, d.sizes(d.size(1, 2))))
    return d.run("Gather", [d.operand(*data), at], axis=0)


def elementwise(d):
    op = str(d.rng.choice(["Add", "Mul", "Div", "Max", "Where"]))
    shape = d.sizes(3)
    ones = lambda: [1 if d.size(0, 0, 1) else n for n in shape]
    if op == "Where":
        return d.run("Where", [d.operand(array=np.ones(ones(), bool)), d.operand(*shape), d.operand(*ones())])
    return d.run(op, [d.operand(*ones()), d.operand(*shape)])


def views(d):
    shape = d.sizes(3)
    x = d.run("Transpose", [d.operand(*shape)], perm=[2, 0, 1])
    x = d.run("Expand", [x, d.operand(array=np.array([2, 1, 1, 1]), constant=True)])
    starts, ends, axes = (d.operand(array=np.array([n]), constant=True) for n in (d.size(0, 1), 9, 1))
    return d.run("Slice", [x, starts, ends, axes])


def pad(d):
    return d.run("Pad", [d.operand(*d.sizes(2)), d.operand(array=np.array([d.size(0, 1), 0, d.size(0, 2), 1]), constant=True)])


def norms(d):
    b, c, h = d.size(), d.size(1, 3), d.size()
    op = d.size(0, 1, 2)
    if op == 0:
        return d.run("LayerNormalization", [d.operand(b, h, 4), d.operand(4), d.operand(4)])
    if op == 1:
        many = [d.operand(c, constant=True) for _ in range(3)] + [d.operand(array=np.ones(c, F), constant=True)]
        return d.run("BatchNormalization", [d.operand(b, c, h)] + many)
    return d.run("InstanceNormalization", [d.operand(b, c, max(h, 1)), d.operand(c), d.operand(c)])


def order(d):
    x = d.operand(*d.sizes(2))
    if d.size(0, 1):
        return d.run("CumSum", [x, d.operand(array=np.array(d.size(0, 1)), constant=True)])
    d.nodes.append(node("TopK", f"{x} {d.operand(array=np.array([0]), constant=True)}", "top at", axis=1))
    return "top"


def scatter(d):
    n, m = d.size(2, 5), d.size()
    k = d.size(0, 0, 1, 2)
    at = d.operand(array=np.arange(k).reshape(k, 1), fixed=True)
    return d.run("ScatterND", [d.operand(n, m), at, d.operand(k, m)])


def resize(d):
    scales = d.operand(array=F([1, 1, 2, 2]), constant=True)
    return d.run("Resize", [d.operand(d.size(), d.size(), 3, 4), "_", scales])


def split(d):
    n, m = d.size(), d.size()
    parts = d.operand(array=np.array([0, n, 0]), constant=True)
    d.nodes.append(node("Split", f"{d.operand(n, m)} {parts}", "p0 p1 p2", axis=0))
    return d.run("Concat", ["p1", "p0", "p2"], axis=0)


def quantized(d):
    b, k, n = d.size(), d.size(), d.size()
    x = d.run("QuantizeLinear", [d.operand(b, k), d.operand(array=F(0.1), constant=True), d.operand(array=np.uint8(3), constant=True)])
    w = d.operand(array=d.rng.integers(-9, 9, (k, n)).astype(np.int8), constant=True)
    return d.run("MatMulInteger", [x, w, d.operand(array=np.uint8(3), constant=True)])


def conv_transpose(d):
    b, c, h = d.size(), d.size(1, 2, 16), d.size(1, 3)
    return d.run("ConvTranspose", [d.operand(b, c, h, 5), d.operand(c, d.size(1, 16), 3, 3)], strides=[2, 2])


def recurrent(d):
    steps, batch, k, h = d.size(0, 1, 3), d.size(0, 1, 2), d.size(0, 4), 3
    d.nodes.append(node("LSTM", " ".join([d.operand(steps, batch, k), d.operand(1, 4 * h, k), d.operand(1, 4 * h, h)]), "y h c", hidden_size=h))
    return "y"


def global_pool(d):
    return d.run(str(d.rng.choice(["GlobalMaxPool", "GlobalAveragePool"])), [d.operand(d.size(), d.size(), 3, 4)])


COUNT = 8
FORMS = [product_chain, matmul, gemm, conv, pool, concat, reduce, einsum, softmax, gather, elementwise, views, pad, norms, order, scatter,
         resize, split, quantized, conv_transpose, recurrent, global_pool]


def evaluated(model, form, feed):
    """By ONNX Runtime (but it ends the process in an empty Einsum or LSTM, and leaves an empty MatMulInteger unwritten), else by
    ONNX's evaluator; None: by neither."""
    graph = node_graph(model)
    try:
        if form not in (einsum, quantized, recurrent):
            return model.want(feed)
    except Exception:
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return onnx.reference.ReferenceEvaluator(graph).run(None, {i.name: x for i, x in zip(graph.graph.input, feed)})
    except Exception:
        return None


def drawn(form, seed):
    d = Draw([seed, FORMS.index(form)])
    y = form(d)
    if not d.feed:
        y = d.run("Add", [y, d.operand(array=F(0), constant=False)]) if form is not quantized else y
    return d, y


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_drawn(tmp_path, form):
    wrong, compared = [], 0
    for seed in range(COUNT):
        d, y = drawn(form, seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        model = Model(folder, d.nodes, d.inputs, [value(y, None, T.INT32 if form is quantized else T.FLOAT)], d.constants, opset=18)
        want = evaluated(model, form, d.feed)
        for flag in ("-O2", "-O0") if seed % 4 == 0 else ("-O2",):
            try:
                got = model.run(d.feed, flag, "--winograd=off")
            except Exception as e:
                wrong.append(f"{seed} {flag}: {e}")
                continue
            text = difference(want, got) if want else ""
            compared += want is not None
            if text:
                wrong.append(f"{seed} {flag}: {text}")
    assert not wrong, "\n".join(wrong)
    assert compared >= COUNT / 2, compared


@pytest.mark.parametrize("flags", [["-O0"], ["-O2"], ["-O2", "--weights=sidecar"], ["-O2", "--march=x86-64-v2"]])
def test_nothing_to_store(tmp_path, flags):
    """Weights of no elements beside others: none of their panels is written."""
    w = np.eye(4, dtype=F)
    model = Model(tmp_path, [node("MatMul", "x a", "h"), node("MatMul", "h b", "u"), node("MatMul", "x w", "v"), node("Add", "u v", "y")],
                  [value("x", [2, 4])], [value("y", [2, 4])], {"a": np.zeros((4, 0), F), "b": np.zeros((0, 4), F), "w": w})
    x = np.arange(8, dtype=F).reshape(2, 4)
    model.compare([x], [x], flags=[flags])


@pytest.mark.parametrize("dims", [[0, 5, 1, 4], [3, 0], [2, 0, 3]])
def test_nothing_stored_once(tmp_path, dims):
    """One element for all places of a constant, of which there are none: no element is written."""
    value_of = helper.make_tensor("v", T.FLOAT, [1], [1.5])
    model = Model(tmp_path, [node("ConstantOfShape", "s", "c", value=value_of), node("Softplus", "c", "y"), node("Neg", "x", "z")],
                  [value("x", [2])], [value("y", None), value("z", None)], {"s": np.array(dims)})
    model.compare([np.ones(2, F)], [np.zeros(dims, F), -np.ones(2, F)])


def test_branches_of_nothing(tmp_path):
    """The result of an If is empty, and its other dims are known to neither branch's outside."""
    branch = lambda name, op, operands: helper.make_graph([node(op, operands, name)], name, [], [value(name, None)])
    made = [node("Slice", "x begin end axes steps", "v"), node("If", "c", "y", then_branch=branch("t", "Exp", "v"), else_branch=branch("e", "Mul", "v v"))]
    ports = [value("x", [0, 3, 5, 2]), *(value(n, [4], T.INT32) for n in ("end", "axes", "steps")), value("c", [], T.BOOL)]
    model = Model(tmp_path, made, ports, [value("y", None)], {"begin": np.array([0, 0, 1, 0], np.int32)})
    for end, axes, steps in (([3, 2, 2, 1], [2, 1, 3, 0], [1, 1, 1, 1]), ([2, 5, 9, 0], [1, 2, 0, 3], [1, 2, 1, 1])):
        for c in (False, True):
            model.compare([np.zeros((0, 3, 5, 2), F), *(np.array(v, np.int32) for v in (end, axes, steps)), np.array(c)])


def test_dims_of_two_symbols(tmp_path):
    """A broadcast whose result's dim reads two symbols: below one, the other's bounds must not decide it."""
    made = [node("Shape", "x", "s"), node("Gather", "s first", "h"), node("Gather", "s second", "w"), node("Min", "h w", "m"),
            node("Concat", "m w", "to", axis=0), node("Expand", "two to", "e"), node("Add", "x e", "y")]
    model = Model(tmp_path, made, [value("x", ["h", "w"])], [value("y", None)],
                  {"first": np.array([0]), "second": np.array([1]), "two": np.array(2, F)})
    for shape, want in (((1, 0), (0, 0)), ((0, 1), (0, 1)), ((0, 0), (0, 0)), ((1, 3), (1, 3)), ((3, 3), (3, 3)), ((2, 3), (2, 3))):
        model.compare([np.ones(shape, F)], [np.full(want, 3, F)])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_position_of_nothing(tmp_path, op):
    """An axis of no elements has no largest element, so that the run is refused, unless the result has no elements either."""
    model = Model(tmp_path, [node(op, "x", "y", axis=1, keepdims=0)], [value("x", ["m", "n"])], [value("y", ["m"], T.INT64)])
    model.compare([np.zeros((0, 0), F)], [np.zeros(0, np.int64)])
    model.compare([np.float32([[1, 3, 2], [2, 0, 0]])])
    with pytest.raises(ModelError, match="axis 1 has 0 elements"):
        model.run([np.zeros((2, 0), F)])

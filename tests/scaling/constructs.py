"""Inputs of every size: each construct that a file, a configuration or an artifact can repeat, as a function of how often.

CONSTRUCTS is the table: name, what runs on it (a row of run.py), the largest size that the formats and limits allow or that
a test can wait for, and a function (folder, n) -> arguments of mcc. Sizes double; run.py measures.
"""
import dataclasses
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "hostile"))

from generate import BOOL, F32, I64, attr, floats, longs, model, node, tensor, value  # noqa: E402
from onnxwire import encode  # noqa: E402
import files as beside  # noqa: E402
import steps  # noqa: E402

CHECK, COMPILE = ("check",), ("-march=x86-64-v3", "--no-cache", "-j1")
EMIT = ("check",)


@dataclasses.dataclass
class Construct:
    name: str
    command: tuple
    most: int
    files: object           # (folder, n) -> arguments behind the command
    least: int = 6


CONSTRUCTS = []


def network(name, command=CHECK, most=100_000, least=6, **more):
    """A construct whose file is a network: the function gives nodes, inputs, outputs, initializers."""
    def enter(make):
        def files(folder, n):
            made = make(n)
            path = folder / "net.onnx"
            message = made if isinstance(made, dict) else model(*made)
            path.write_bytes(encode("Model", message))
            more_args = more.get("args", lambda folder, n: [])(folder, n)
            return [path, *more_args, *([] if command[0] == "check" else ["-o", folder / "net.so"])]
        CONSTRUCTS.append(Construct(name, command, most, files, least))
        return make
    return enter


# ---- chains and diamonds of each operator ------------------------------------------------------------------------

MATRIX, OPEN = [8, 8], ["rows", 8]


def chain(op, inputs, n, dims=MATRIX, elem=F32, consts=(), **attrs):
    """v0 = x, v(i+1) = op(v(i)...); `v` in inputs is the value before, `u` the one before that."""
    nodes, names = [], ["x", "x"]
    for i in range(n):
        read = " ".join({"v": names[-1], "u": names[-2]}.get(k, k) for k in inputs.split())
        names.append("y" if i == n - 1 else f"v{i}")
        nodes.append(node(op, read, names[-1], f"n{i}", **attrs))
    return nodes, [value("x", elem, dims)], [value("y", elem, dims)], list(consts)


W = tensor("w", [8, 8], floats(*[0.125] * 64))
ROW = tensor("w", [8], floats(*[0.5] * 8))
IMAGE = [1, 8, 6, 6]

CHAINS = {   # operator, operands, dims, constants, attributes
    "relu": ("Relu", "v"), "sigmoid": ("Sigmoid", "v"), "exp": ("Exp", "v"), "erf": ("Erf", "v"), "softplus": ("Softplus", "v"),
    "add": ("Add", "v v"), "mul": ("Mul", "v v"), "max": ("Max", "v v"), "sub": ("Sub", "v u"), "div": ("Div", "v u"),
    "pow": ("Pow", "v v"), "add-before": ("Add", "v u"), "min-before": ("Min", "v u"), "add-row": ("Add", "v w", MATRIX, [ROW]),
    "prelu": ("PRelu", "v v"), "clip": ("Clip", "v"), "softmax": ("Softmax", "v"), "layernorm": ("LayerNormalization", "v w", MATRIX, [ROW]),
    "matmul": ("MatMul", "v w", MATRIX, [W]), "matmul-self": ("MatMul", "v v"), "gemm": ("Gemm", "v w v", MATRIX, [W]),
    "transpose": ("Transpose", "v", MATRIX, [], {"perm": [1, 0]}),
    "transpose-add": ("Einsum", "v u", MATRIX, [], {"equation": "ij,ji->ij"}),
    "conv": ("Conv", "v w", IMAGE, [tensor("w", [8, 8, 3, 3], floats(*[0.1] * 576))], {"pads": [1, 1, 1, 1]}),
    "depthwise": ("Conv", "v w", IMAGE, [tensor("w", [8, 1, 3, 3], floats(*[0.1] * 72))], {"pads": [1, 1, 1, 1], "group": 8}),
    "maxpool": ("MaxPool", "v", IMAGE, [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "averagepool": ("AveragePool", "v", IMAGE, [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "instancenorm": ("InstanceNormalization", "v w w", IMAGE, [ROW]),
    "cumsum": ("CumSum", "v axis", MATRIX, [tensor("axis", [], longs(1), I64)]),
    "gather": ("Gather", "v at", MATRIX, [tensor("at", [8], longs(7, 6, 5, 4, 3, 2, 1, 0), I64)]),
    "identity": ("Identity", "v"), "depth": ("DepthToSpace", "v", [1, 1, 8, 8], [], {"blocksize": 1}),
    "trilu": ("Trilu", "v"), "scatter": ("ScatterElements", "v at v", MATRIX, [tensor("at", [8, 8], longs(*range(8)) * 8, I64)]),
}
for _name, _row in CHAINS.items():
    for _open in (False, True):
        def _chain(n, row=_row, is_open=_open):
            op, inputs, dims, consts, attrs = (*row, *(MATRIX, [], {})[len(row) - 2:])
            return chain(op, inputs, n, [dims[0] if len(dims) > 2 else "rows", *dims[1:]] if is_open and dims[0] != dims[-1] or
                         is_open and op in ("Relu", "Add", "Mul", "Max", "Softmax") else dims, F32, consts, **attrs)
        if not _open or _name in ("relu", "add", "mul", "max", "softmax"):
            network(f"chain-{_name}{'-open' if _open else ''}", most=100_000)(_chain)
for _name, _row in steps.STEPS.items():
    network(f"chain-{_name}", most=100_000)(lambda n, row=_row: steps.chain(n, row))


@network("chain-where", most=100_000)
def chain_where(n):
    return (*chain("Where", "c v u", n)[:1], [value("x", F32, MATRIX), value("c", BOOL, MATRIX)], [value("y", F32, MATRIX)])


@network("chain-silu", most=100_000)
def chain_silu(n):
    nodes, at = [], "x"
    for i in range(n):
        to = "y" if i == n - 1 else f"v{i}"
        nodes += [node("Sigmoid", at, f"s{i}", f"s{i}"), node("Mul", f"{at} s{i}", to, f"m{i}")]
        at = to
    return nodes, [value("x", F32, MATRIX)], [value("y", F32, MATRIX)]


@network("chain-split-concat", most=100_000)
def chain_split(n):
    nodes, at = [], "x"
    for i in range(n):
        to = "y" if i == n - 1 else f"v{i}"
        nodes += [node("Split", at, f"a{i} b{i}", f"s{i}", axis=1), node("Concat", f"b{i} a{i}", to, f"c{i}", axis=1)]
        at = to
    return nodes, [value("x", F32, MATRIX)], [value("y", F32, MATRIX)]


@network("chain-slice-pad", most=100_000)
def chain_slice(n):
    nodes, at = [], "x"
    for i in range(n):
        to = "y" if i == n - 1 else f"v{i}"
        nodes += [node("Slice", f"{at} one eight axis", f"s{i}", f"s{i}"), node("Pad", f"s{i} pads", to, f"p{i}")]
        at = to
    ints = [tensor("one", [1], longs(1), I64), tensor("eight", [1], longs(8), I64), tensor("axis", [1], longs(1), I64),
            tensor("pads", [4], longs(0, 1, 0, 0), I64)]
    return nodes, [value("x", F32, MATRIX)], [value("y", F32, MATRIX)], ints


@network("chain-residual", most=100_000)
def chain_residual(n):
    """Blocks x + relu(x w): what networks are made of."""
    nodes, at = [], "x"
    for i in range(n):
        to = "y" if i == n - 1 else f"v{i}"
        nodes += [node("MatMul", f"{at} w", f"p{i}", f"p{i}"), node("Relu", f"p{i}", f"r{i}", f"r{i}"), node("Add", f"{at} r{i}", to, f"a{i}")]
        at = to
    return nodes, [value("x", F32, MATRIX)], [value("y", F32, MATRIX)], [W]


@network("chain-quantize", most=100_000)
def chain_quantize(n):
    nodes, at = [], "x"
    for i in range(n):
        to = "y" if i == n - 1 else f"v{i}"
        nodes += [node("QuantizeLinear", f"{at} s", f"q{i}", f"q{i}"), node("DequantizeLinear", f"q{i} s", to, f"d{i}")]
        at = to
    return nodes, [value("x", F32, MATRIX)], [value("y", F32, MATRIX)], [tensor("s", [], floats(0.1))]


# ---- many of one thing ---------------------------------------------------------------------------------------------

@network("fan-out", most=100_000)
def fan_out(n):
    return ([node("Neg", "x", f"y{i}", f"n{i}") for i in range(n)], [value("x", F32, [8])], [value(f"y{i}", F32, [8]) for i in range(n)])


@network("fan-in-sum", most=100_000)
def fan_in_sum(n):
    return ([node("Sum", " ".join(f"x{i}" for i in range(n)), "y")], [value(f"x{i}", F32, [8]) for i in range(n)], [value("y", F32, [8])])


@network("fan-out-in", most=100_000)
def fan_out_in(n):
    return ([node("Neg", "x", f"v{i}", f"n{i}") for i in range(n)] + [node("Max", " ".join(f"v{i}" for i in range(n)), "y")],
            [value("x", F32, [8])], [value("y", F32, [8])])


@network("concat-inputs", most=100_000)
def concat_inputs(n):
    return ([node("Concat", " ".join(f"x{i}" for i in range(n)), "y", axis=0)], [value(f"x{i}", F32, [2]) for i in range(n)],
            [value("y", F32, [2 * n])])


@network("concat-same", most=100_000)
def concat_same(n):
    return ([node("Concat", " ".join(["x"] * n), "y", axis=0)], [value("x", F32, [2])], [value("y", F32, [2 * n])])


@network("concat-computed", most=100_000)
def concat_computed(n):
    return ([node("Neg", "x", f"v{i}", f"n{i}") for i in range(n)] + [node("Concat", " ".join(f"v{i}" for i in range(n)), "y", axis=0)],
            [value("x", F32, [2])], [value("y", F32, [2 * n])])


@network("concat-constants", most=100_000)
def concat_constants(n):
    return ([node("Concat", " ".join(["x", *(f"c{i}" for i in range(n))]), "y", axis=0)], [value("x", F32, [2])],
            [value("y", F32, [2 * n + 2])], [tensor(f"c{i}", [2], floats(i, i + 1)) for i in range(n)])


@network("concat-open", most=100_000)
def concat_open(n):
    return ([node("Concat", " ".join(["x"] * n), "y", axis=0)], [value("x", F32, ["a"])], [value("y", F32, ["b"])])


@network("split-outputs", most=100_000)
def split_outputs(n):
    return ([node("Split", "x", " ".join(f"y{i}" for i in range(n)), axis=0, num_outputs=n)], [value("x", F32, [2 * n])],
            [value(f"y{i}", F32, [2]) for i in range(n)], [], 18)


@network("sequence", most=100_000)
def sequence(n):
    return ([node("SequenceConstruct", " ".join(["x"] * n), "s"), node("SequenceAt", "s i", "y")], [value("x", F32, [2]), value("i", I64, [])],
            [value("y", F32, [2])])


@network("sequence-concat", most=100_000)
def sequence_concat(n):
    return ([node("SequenceConstruct", " ".join(["x"] * n), "s"), node("ConcatFromSequence", "s", "y", axis=0)], [value("x", F32, [2])],
            [value("y", F32, [2 * n])])


@network("initializers", most=100_000)
def initializers(n):
    return ([node("Neg", "x", "y")], [value("x", F32, [8])], [value("y", F32, [8])], [tensor(f"w{i}", [2], floats(i, 1)) for i in range(n)])


@network("used-initializers", most=100_000)
def used_initializers(n):
    nodes, inputs, outputs, _ = chain("Add", "v v", n)
    for i, each in enumerate(nodes):
        each["inputs"][1] = f"w{i}"
    return nodes, inputs, outputs, [tensor(f"w{i}", [8], floats(*[i] * 7, 1)) for i in range(n)]


@network("equal-initializers", most=100_000)
def equal_initializers(n):
    nodes, inputs, outputs, _ = chain("MatMul", "v w", n)
    for i, each in enumerate(nodes):
        each["inputs"][1] = f"w{i}"
    return nodes, inputs, outputs, [dict(W, name=f"w{i}") for i in range(n)]


@network("products", most=100_000)
def products(n):
    nodes, inputs, outputs, _ = chain("MatMul", "v w", n)
    for i, each in enumerate(nodes):
        each["inputs"][1] = f"w{i}"
    return nodes, inputs, outputs, [tensor(f"w{i}", [8, 8], floats(*[i + k for k in range(64)])) for i in range(n)]


@network("products-of-one", most=100_000)
def products_of_one(n):
    return ([node("MatMul", f"x w{i}", f"y{i}", f"n{i}") for i in range(n)], [value("x", F32, MATRIX)],
            [value(f"y{i}", F32, MATRIX) for i in range(n)], [tensor(f"w{i}", [8, 8], floats(*[i + k for k in range(64)])) for i in range(n)])


@network("ports", most=100_000)
def ports(n):
    return ([node("Neg", f"x{i}", f"y{i}", f"n{i}") for i in range(n)], [value(f"x{i}", F32, [8]) for i in range(n)],
            [value(f"y{i}", F32, [8]) for i in range(n)])


@network("symbols", most=100_000)
def symbols(n):
    return ([node("Neg", f"x{i}", f"y{i}", f"n{i}") for i in range(n)], [value(f"x{i}", F32, [f"s{i}"]) for i in range(n)],
            [value(f"y{i}", F32, [f"s{i}"]) for i in range(n)])


@network("symbols-joined", most=100_000)
def symbols_joined(n):
    """Each sum makes two symbols equal, or one of them 1."""
    nodes, at = [], "x0"
    for i in range(1, n):
        to = "y" if i == n - 1 else f"v{i}"
        nodes.append(node("Add", f"{at} x{i}", to, f"n{i}"))
        at = to
    return nodes, [value(f"x{i}", F32, [f"s{i}", 2]) for i in range(n)], [value("y", F32, ["out", 2])]


@network("kernels", most=100_000)
def kernels(n):
    return chain("Softmax", "v", n, [4, 8])


@network("attributes", most=1000)
def attributes(n):
    return ([dict(node("Neg", "x", "y"), attrs=[attr(f"a{i}", i) for i in range(n)])], [value("x", F32, [2])], [value("y", F32, [2])])


@network("many-attributes", most=100_000)
def many_attributes(n):
    return ([node("LeakyRelu", "x" if not i else f"v{i - 1}", "y" if i == n - 1 else f"v{i}", f"n{i}",
                  ) for i in range(n)], [value("x", F32, [2])], [value("y", F32, [2])])


@network("list-attribute", most=100_000)
def list_attribute(n):
    return ([node("Constant", "", "c", value_ints=list(range(n))), node("Neg", "c", "y")], [value("x", F32, [2])], [value("y", I64, [n])])


@network("metadata", most=100_000)
def metadata(n):
    return dict(model([node("Neg", "x", "y")], [value("x", F32, [2])], [value("y", F32, [2])]),
                metadata=[{"key": f"key{i}", "value": "text"} for i in range(n)])


@network("long-names", most=1_000_000)
def long_names(n):
    return [node("Neg", "x", "v" * n, "n" * n), node("Neg", "v" * n, "y")], [value("x", F32, [2])], [value("y", F32, [2])]


@network("unused-nodes", most=100_000)
def unused_nodes(n):
    return ([node("Neg", "x", "y"), *(node("Abs", "x", f"u{i}", f"n{i}") for i in range(n))], [value("x", F32, [2])], [value("y", F32, [2])])


@network("equal-nodes", most=100_000)
def equal_nodes(n):
    return ([node("Abs", "x", f"u{i}", f"n{i}") for i in range(n)] + [node("Sum", " ".join(f"u{i}" for i in range(n)), "y")],
            [value("x", F32, [2])], [value("y", F32, [2])])


# ---- nesting ---------------------------------------------------------------------------------------------------------

def body(name, nodes, out, inputs=()):
    return {"nodes": nodes, "name": name, "inputs": list(inputs), "outputs": list(out)}


@network("nested-if", most=24, least=3)
def nested_if(n):
    inner = [node("Neg", "x", "t", "leaf")]
    for i in range(n):
        then = body(f"t{i}", inner, [value(inner[-1]["outputs"][0], F32, [2])])
        other = body(f"e{i}", [node("Abs", "x", f"e{i}", f"abs{i}")], [value(f"e{i}", F32, [2])])
        inner = [node("If", "c", f"r{i}", f"if{i}", then_branch=then, else_branch=other)]
    inner[-1]["outputs"] = ["y"]
    return inner, [value("x", F32, [2]), value("c", BOOL, [])], [value("y", F32, [2])]


@network("row-of-ifs", most=20_000)
def row_of_ifs(n):
    nodes, at = [], "x"
    for i in range(n):
        to = "y" if i == n - 1 else f"v{i}"
        nodes.append(node("If", "c", to, f"if{i}", then_branch=body(f"t{i}", [node("Neg", at, f"t{i}")], [value(f"t{i}", F32, [2])]),
                          else_branch=body(f"e{i}", [node("Abs", at, f"e{i}")], [value(f"e{i}", F32, [2])])))
        at = to
    return nodes, [value("x", F32, [2]), value("c", BOOL, [])], [value("y", F32, [2])]


@network("nested-loop", most=24, least=3)
def nested_loop(n):
    nodes, at = [node("Neg", f"p{n - 1}", "leaf", "leaf")], "leaf"
    for i in reversed(range(n)):
        inner = body(f"b{i}", nodes + [node("Identity", f"k{i}", f"g{i}", f"id{i}")], [value(f"g{i}", BOOL, []), value(at, F32, [2])],
                     [value(f"i{i}", I64, []), value(f"k{i}", BOOL, []), value(f"p{i}", F32, [2])])
        at = f"r{i}" if i else "y"
        nodes = [node("Loop", f"times c p{i - 1}" if i else "times c x", at, f"loop{i}", body=inner)]
    return nodes, [value("x", F32, [2]), value("c", BOOL, []), value("times", I64, [])], [value("y", F32, [2])]


@network("row-of-loops", most=20_000)
def row_of_loops(n):
    nodes, at = [], "x"
    for i in range(n):
        to = "y" if i == n - 1 else f"v{i}"
        inner = body(f"b{i}", [node("Identity", f"k{i}", f"g{i}"), node("Neg", f"p{i}", f"o{i}")], [value(f"g{i}", BOOL, []), value(f"o{i}", F32, [2])],
                     [value(f"i{i}", I64, []), value(f"k{i}", BOOL, []), value(f"p{i}", F32, [2])])
        nodes.append(node("Loop", f"times c {at}", to, f"loop{i}", body=inner))
        at = to
    return nodes, [value("x", F32, [2]), value("c", BOOL, []), value("times", I64, [])], [value("y", F32, [2])]


@network("carried", most=100_000)
def carried(n):
    """One Loop with many carried values."""
    inner = body("b", [node("Identity", "k", "g"), *(node("Neg", f"p{i}", f"o{i}") for i in range(n))],
                 [value("g", BOOL, []), *(value(f"o{i}", F32, [2]) for i in range(n))],
                 [value("i", I64, []), value("k", BOOL, []), *(value(f"p{i}", F32, [2]) for i in range(n))])
    return ([node("Loop", "times c " + " ".join(["x"] * n), " ".join(f"y{i}" for i in range(n)), body=inner)],
            [value("x", F32, [2]), value("c", BOOL, []), value("times", I64, [])], [value(f"y{i}", F32, [2]) for i in range(n)])


@network("nested-scan", most=24, least=3)
def nested_scan(n):
    nodes, at, dims = [node("Neg", f"e{n - 1}", "leaf", "leaf")], "leaf", []
    for i in reversed(range(n)):
        depth = min(i + 1, 0)
        del depth
        inner = body(f"b{i}", nodes + [node("Add", f"s{i} s{i}", f"t{i}")], [value(f"t{i}", F32, [2]), value(at, F32, [2] if i == n - 1 else None)],
                     [value(f"s{i}", F32, [2]), value(f"e{i}", F32, [2])])
        at = f"r{i}" if i else "y"
        nodes = [node("Scan", f"s{i - 1} z" if i else "x z", f"f{i} {at}", f"scan{i}", body=inner, num_scan_inputs=1)]
    return nodes, [value("x", F32, [2]), value("z", F32, [3, 2])], [value("y", F32, None)]


def functions_of(bodies):
    opsets = [{"domain": "", "version": 17}, {"domain": "my", "version": 1}]
    return [{"name": name, "inputs": ["a"], "outputs": ["b"], "nodes": nodes, "opsets": opsets, "domain": "my"} for name, nodes in bodies]


def calling(nodes, functions):
    made = model(nodes, [value("x", F32, [2])], [value("y", F32, [2])])
    made["opsets"].append({"domain": "my", "version": 1})
    return dict(made, functions=functions_of(functions))


def call(name, read, to):
    return dict(node(name, read, to, name), domain="my")


@network("nested-functions", most=96, least=12)
def nested_functions(n):
    return calling([call("f0", "x", "y")], [(f"f{i}", [call(f"f{i + 1}", "a", "b")] if i < n - 1 else [node("Neg", "a", "b")]) for i in range(n)])


@network("row-of-functions", most=100_000)
def row_of_functions(n):
    names = ["x", *(f"v{i}" for i in range(n - 1)), "y"]
    return calling([call("f", names[i], names[i + 1]) for i in range(n)], [("f", [node("Neg", "a", "t"), node("Abs", "t", "b")])])


@network("many-functions", most=100_000)
def many_functions(n):
    return calling([call("f0", "x", "y")], [(f"f{i}", [node("Neg", "a", "b")]) for i in range(n)])


# ---- expressions of sizes ----------------------------------------------------------------------------------------------

def size_chain(n, step, dims=("s", 8)):
    """A chain on one size, which a ConstantOfShape reads."""
    nodes, at = [node("Shape", "x", "shape"), node("Slice", "shape zero one", "v")], "v"
    for i in range(n):
        made, at = step(i, at)
        nodes += made
    nodes.append(node("ConstantOfShape", at, "y"))
    consts = [tensor("zero", [1], longs(0), I64), tensor("one", [1], longs(1), I64), tensor("two", [1], longs(2), I64),
              tensor("three", [1], longs(3), I64), tensor("big", [1], longs(1 << 31), I64), tensor("minus", [1], longs(-1), I64)]
    return nodes, [value("x", F32, list(dims))], [value("y", F32, ["out"])], consts


def one_step(op, other):
    return lambda i, at: ([node(op, f"{at} {other or at}", f"e{i}", f"n{i}")], f"e{i}")


def alternate(*steps):
    return lambda i, at: ([node(steps[i % len(steps)][0], f"{at} {steps[i % len(steps)][1]}", f"e{i}", f"n{i}")], f"e{i}")


SIZES = {
    "add-one": one_step("Add", "one"), "div-two": one_step("Div", "two"), "div-big": one_step("Div", "big"),
    "mod-three": one_step("Mod", "three"), "max-three": one_step("Max", "three"), "add-div": alternate(("Add", "one"), ("Div", "two")),
    "mul-div": alternate(("Mul", "three"), ("Div", "two")), "add-mod": alternate(("Add", "three"), ("Mod", "big")),
    "mul-add-div": alternate(("Mul", "three"), ("Add", "one"), ("Div", "two")),
    "div-mul-add": alternate(("Div", "two"), ("Mul", "three"), ("Add", "v")), "min-max": alternate(("Min", "big"), ("Max", "v")),
}
for _name, _step in SIZES.items():
    network(f"size-{_name}", most=3200)(lambda n, step=_step: size_chain(n, step))


@network("size-where", most=3200)
def size_where(n):
    def step(i, at):
        return [node("Equal", f"{at} three", f"c{i}"), node("Where", f"c{i} one {at}", f"w{i}"), node("Add", f"w{i} v", f"e{i}")], f"e{i}"
    return size_chain(n, step)


@network("size-ceil", most=3200)
def size_ceil(n):
    """Sizes behind strided convolutions, as exporters compute them: (s - 1) / 2 + 1."""
    def step(i, at):
        return [node("Add", f"{at} minus", f"a{i}"), node("Div", f"a{i} two", f"b{i}"), node("Add", f"b{i} one", f"e{i}")], f"e{i}"
    return size_chain(n, step)


@network("size-concat", most=3200)
def size_concat(n):
    """A shape of n parts that are multiplied."""
    nodes, inputs, outputs, consts = size_chain(0, None)
    nodes[-1:] = [node("Concat", " ".join(["v"] + ["one"] * n), "all", axis=0), node("ReduceProd", "all", "p"), node("ConstantOfShape", "p", "y")]
    return nodes, inputs, outputs, consts


# ---- sizes of several inputs, which checks narrow and make equal -----------------------------------------------------------

ONE = [tensor("one", [1], longs(1), I64)]


def pairs_of(n, step, dims):
    """n inputs of two sizes of their own each, h0 w0, h1 w1, ...; step(i): nodes from x{i}, h{i}, w{i} to what the output y{i} is."""
    nodes = []
    for i in range(n):
        nodes += [node("Shape", f"x{i}", f"h{i}", start=0, end=1), node("Shape", f"x{i}", f"w{i}", start=1, end=2), *step(i)]
    return (nodes, [value(f"x{i}", F32, [f"s{i}", f"t{i}", *dims]) for i in range(n)], [value(f"y{i}", F32, None) for i in range(n)],
            ONE + [tensor("four", [1], longs(4), I64)])


@network("facts-divisors", most=3200)
def facts_divisors(n):
    """h * w / h is w: h is not 0."""
    return pairs_of(n, lambda i: [node("Mul", f"h{i} w{i}", f"p{i}"), node("Div", f"p{i} h{i}", f"q{i}"), node("Concat", f"one q{i}", f"to{i}", axis=0),
                                  node("ConstantOfShape", f"to{i}", f"z{i}"), node("Add", f"x{i} z{i}", f"y{i}")], [])


@network("facts-together", most=3200)
def facts_together(n):
    """max(1, h) * max(1, w) elements are h * w: neither is 0."""
    return pairs_of(n, lambda i: [node("Max", f"h{i} one", f"a{i}"), node("Max", f"w{i} one", f"b{i}"), node("Concat", f"a{i} b{i} four", f"to{i}", axis=0),
                                  node("Reshape", f"x{i} to{i}", f"y{i}")], [4])


@network("facts-equal", most=3200)
def facts_equal(n):
    """Every concat makes two sizes equal."""
    return ([node("Concat", f"x{i} x{i + 1}", f"y{i}", axis=1) for i in range(n - 1)], [value(f"x{i}", F32, [f"s{i}", 2]) for i in range(n)],
            [value(f"y{i}", F32, None) for i in range(n - 1)], [])


@network("facts-chain", most=3200)
def facts_chain(n):
    """Each quotient is the next divisor: one fact shows the next."""
    nodes, at = [node("Shape", "x0", "e0")], "e0"
    for i in range(1, n):
        nodes += [node("Shape", f"x{i}", f"k{i}"), node("Mul", f"{at} k{i}", f"p{i}"), node("Div", f"p{i} {at}", f"e{i}")]
        at = f"e{i}"
    nodes.append(node("ConstantOfShape", at, "y"))
    return nodes, [value(f"x{i}", F32, [f"s{i}"]) for i in range(n)], [value("y", F32, None)], []


def reshapes(n, shapes):
    nodes, at = [node("Shape", "x", "shape"), node("Gather", "shape zero", "b"), node("Gather", "shape one", "s")], "x"
    for i in range(n):
        to = "y" if i == n - 1 else f"v{i}"
        nodes += [node("Concat", shapes[i % len(shapes)], f"t{i}", axis=0), node("Reshape", f"{at} t{i}", to, f"r{i}")]
        at = to
    consts = [tensor("zero", [1], longs(0), I64), tensor("one", [1], longs(1), I64), tensor("minus", [1], longs(-1), I64),
              tensor("four", [1], longs(4), I64), tensor("two", [1], longs(2), I64), tensor("eight", [1], longs(8), I64)]
    return nodes, [value("x", F32, ["b", "s", 8])], [value("y", F32, None)], consts


@network("reshapes", most=3200)
def reshapes_plain(n):
    return reshapes(n, ["b s two four", "b four s two", "s eight b", "minus eight", "b s eight"])


@network("reshapes-minus", most=3200)
def reshapes_minus(n):
    return reshapes(n, ["minus four", "b minus", "two minus s", "b s minus"])


@network("reshape-transpose", most=1600)
def reshape_transpose(n):
    """The audit's reshapechain: views whose index expressions nest."""
    nodes, at = [], "x"
    for i in range(n):
        to = "y" if i == n - 1 else f"v{i}"
        nodes += [node("Reshape", f"{at} {'ab'[i % 2]}", f"r{i}", f"r{i}"), node("Transpose", f"r{i}", to, f"t{i}", perm=[1, 0])]
        at = to
    consts = [tensor("a", [2], longs(8, -1), I64), tensor("b", [2], longs(6, -1), I64)]
    return nodes, [value("x", F32, ["s", 24])], [value("y", F32, None)], consts


@network("strided-convolutions", most=100)
def strided(n):
    weights = tensor("w", [4, 4, 3, 3], floats(*[0.1] * 144))
    nodes, at = [], "x"
    for i in range(n):
        to = "y" if i == n - 1 else f"v{i}"
        nodes.append(node("Conv", f"{at} w", to, f"c{i}", pads=[1, 1, 1, 1], strides=[2, 2]))
        at = to
    return nodes, [value("x", F32, [1, 4, "h", "w"])], [value("y", F32, [1, 4, None, None] if False else None)], [weights]


@network("resizes", most=200)
def resizes(n):
    """Up by two and down again, open height and width."""
    nodes, at = [], "x"
    for i in range(n):
        to = "y" if i == n - 1 else f"v{i}"
        nodes.append(node("Resize", f"{at}  {'up' if i % 2 == 0 else 'down'}".replace("  ", " none "), to, f"r{i}", mode="linear"))
        nodes[-1]["inputs"] = [at, "", "up" if i % 2 == 0 else "down"]
        at = to
    return (nodes, [value("x", F32, [1, 4, "h", "w"])], [value("y", F32, None)],
            [tensor("up", [4], floats(1, 1, 2, 2)), tensor("down", [4], floats(1, 1, 0.5, 0.5))])


for _name, (_command, _most, _files) in beside.FILES.items():
    CONSTRUCTS.append(Construct(_name, _command, _most, _files))

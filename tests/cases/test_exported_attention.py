"""Attention in core operators, as exporters write it: one kernel whatever the mask, the place of the scale, the repeated heads, and what clears NaN.

Masks are made from the numbers of rows and keys, which are dynamic. Reference: ONNX Runtime.
"""
import re

import numpy as np
import pytest
from onnx import TensorProto as T

from support.compare import Model, node
from support.tool import mcc, value

CONSTANTS = {"zero": np.int64(0), "one": np.int64(1), "two": np.int64(2), "three": np.int64(3), "ax0": [0], "ax1": [1], "ax2": [2], "ax12": [1, 2],
             "nothing": np.float32(0), "inf": np.float32(-np.inf), "lowest": np.finfo(np.float32).min, "far": np.float32(-1e9), "scale": np.float32(0.25),
             "root": np.float32(0.5), "whole": np.float32(1), "true": np.array(True), "groups": [2], "size": [16], "heads": [4],
             "ax3": [3], "low": np.float32(-1e4), "cap": np.float32(2), "table": np.tril(np.ones((1, 1, 512, 512), bool))}
SIZES = [node("Shape", "q", "rows", start=2, end=3), node("Shape", "k", "keys", start=2, end=3), node("Squeeze", "rows", "r"), node("Squeeze", "keys", "t"),
         node("Range", "zero r one", "qi"), node("Range", "zero t one", "ki"), node("Unsqueeze", "qi one", "row"), node("Unsqueeze", "ki zero", "key"),
         node("Concat", "rows keys", "square", axis=0)]
CAUSAL = node("LessOrEqual", "key row", "seen")
ADDED = [node("Where", "seen nothing inf", "bias"), node("Add", "z bias", "masked")]

# The mask's nodes, from z to masked, and whether the kernel leaves out spans of keys that no row of a block sees.
MASKS = {
    "none": ([node("Identity", "z", "masked")], False),
    "causal, added": ([CAUSAL, *ADDED], True),
    "causal, selected": ([CAUSAL, node("Where", "seen z inf", "masked")], True),
    "causal behind a past": ([node("Sub", "t r", "past"), node("Range", "past t one", "qp"), node("Unsqueeze", "qp one", "rp"),
                              node("LessOrEqual", "key rp", "seen"), *ADDED], True),
    "Trilu of true": ([node("Expand", "true square", "all"), node("Trilu", "all", "seen", upper=0), *ADDED], True),
    "Trilu of hidden": ([node("Expand", "true square", "all"), node("Trilu", "all one", "hidden", upper=1), node("Not", "hidden", "seen"), *ADDED], True),
    "Trilu of -inf": ([node("Expand", "inf square", "all"), node("Trilu", "all one", "bias", upper=1), node("Add", "z bias", "masked")], True),
    "window": ([CAUSAL, node("Sub", "row three", "start"), node("Greater", "key start", "near"),
                node("And", "seen near", "both"), node("Where", "both nothing inf", "bias"), node("Add", "z bias", "masked")], True),
    "padding": ([CAUSAL, node("Cast", "pad", "there", to=T.BOOL), node("Unsqueeze", "there ax12", "there4"), node("And", "seen there4", "both"),
                 node("Where", "both nothing inf", "bias"), node("Add", "z bias", "masked")], True),
    "lowest, added": ([CAUSAL, node("Where", "seen nothing lowest", "bias"), node("Add", "z bias", "masked")], True),
    "-1e9, selected": ([node("Greater", "key row", "hidden"), node("Where", "hidden far z", "masked")], True),
    "lowest and padding": ([CAUSAL, node("Cast", "pad", "there", to=T.BOOL), node("Unsqueeze", "there ax12", "there4"), node("And", "seen there4", "both"),
                            node("Where", "both nothing lowest", "bias"), node("Add", "z bias", "masked")], True),
    "1 - mask, times lowest": ([CAUSAL, node("Cast", "seen", "f", to=T.FLOAT), node("Sub", "whole f", "g"), node("Mul", "g lowest", "bias"),
                                node("Add", "z bias", "masked")], False),
    "table, selected": ([node("Sub", "keys rows", "before"), node("Slice", "table before keys ax2", "some"), node("Slice", "some ax0 keys ax3", "seen"),
                         node("Where", "seen z low", "masked")], False),
    "capped": ([CAUSAL, node("Div", "z cap", "small"), node("Tanh", "small", "between"), node("Mul", "between cap", "capped"),
                node("Where", "seen nothing inf", "bias"), node("Add", "capped bias", "masked")], True),
    "input, added": ([node("Add", "z bias", "masked")], False),
    "input, selected": ([node("Where", "bools z inf", "masked")], False),
}


SCALES = {
    "before": [node("Mul", "q scale", "qs"), node("MatMul", "qs kt", "z")],
    "after": [node("MatMul", "q kt", "raw"), node("Mul", "raw scale", "z")],
    "both": [node("Mul", "q root", "qs"), node("Mul", "kt root", "ks"), node("MatMul", "qs ks", "z")],
    "computed": [node("Shape", "q", "head", start=3, end=4), node("Cast", "head", "f", to=T.FLOAT), node("Sqrt", "f", "width"),
                 node("MatMul", "q kt", "raw"), node("Div", "raw width", "z")],
}


def exported(folder, mask, cleared, grouped, scale):
    """softmax(q k + mask) v over 4 heads of 16: grouped: 2 of keys, repeated by Expand; cleared: Where(IsNaN(p), 0, p)."""
    nodes, heads = list(SIZES), "kv"
    if grouped:
        nodes += [node("Shape", "k", "batch", start=0, end=1), node("Concat", "batch groups groups keys size", "repeated", axis=0),
                  node("Concat", "batch heads keys size", "flat", axis=0)]
        for x in "kv":
            nodes += [node("Unsqueeze", f"{x} ax2", f"{x}5"), node("Expand", f"{x}5 repeated", f"{x}6"), node("Reshape", f"{x}6 flat", f"{x}{x}")]
        heads = ["kk", "vv"]
    nodes.append(node("Transpose", heads[0], "kt", perm=[0, 1, 3, 2]))
    nodes += SCALES[scale]
    nodes += [*MASKS[mask][0], node("Softmax", "masked", "p", axis=-1)]
    if cleared:
        nodes += [node("IsNaN", "p", "nan"), node("Where", "nan nothing p", "pc")]
    nodes.append(node("MatMul", f"{'pc' if cleared else 'p'} {heads[1]}", "y"))
    kept, wanted = [], {"y"}
    for n in reversed(nodes):
        if wanted & set(n.output):
            kept.insert(0, n)
            wanted |= set(n.input)
    inputs = {"q": (["b", 4, "n", 16], T.FLOAT), "k": (["b", 2 if grouped else 4, "t", 16], T.FLOAT), "v": (["b", 2 if grouped else 4, "t", 16], T.FLOAT),
              "pad": (["b", "t"], T.INT64), "bools": (["b", 1, "n", "t"], T.BOOL)}
    if mask == "input, added":
        inputs["bias"] = (["b", 1, "n", "t"], T.FLOAT)
    return Model(folder, kept, [value(n, *s) for n, s in inputs.items() if n in wanted], [value("y", None)],
                 {n: c for n, c in CONSTANTS.items() if n in wanted}, opset=20), [n for n in inputs if n in wanted]


def feed_of(names, grouped, batch, rows, keys, rng, empty):
    """empty: some rows see no key."""
    draw = lambda heads, n: rng.standard_normal((batch, heads, n, 16)).astype(np.float32)
    seen = rng.random((batch, 1, rows, keys)) < 0.7
    seen[..., 0] = True
    pad = np.ones((batch, keys), np.int64)
    if empty:
        seen[:, :, ::3] = False
        pad[0, : keys // 2] = 0
    made = {"q": draw(4, rows), "k": draw(2 if grouped else 4, keys), "v": draw(2 if grouped else 4, keys), "pad": pad, "bools": seen,
            "bias": np.where(seen, rng.standard_normal(seen.shape), -np.inf).astype(np.float32)}
    return [made[n] for n in names]


@pytest.mark.parametrize("cleared", [False, True], ids=["plain", "cleared"])
@pytest.mark.parametrize("mask", MASKS)
def test_forms(tmp_path, mask, cleared):
    """One kernel, and another for nothing: heads that Expand repeats are read where they lie."""
    rng = np.random.default_rng(len(mask))
    grouped, scale = cleared == (len(mask) % 2 == 0), list(SCALES)[len(mask) % 4]
    model, names = exported(tmp_path, mask, cleared, grouped, scale)
    told = model.dump("schedule", "-march=native")
    kinds = re.findall(r"^schedule .*: (\w+)$", told, re.M)
    assert sorted(kinds) == ["attention"] + ["map"] * (scale == "both"), kinds   # keys are scaled in memory: their producer does it in a network
    assert bool(re.search(r"^  reach +1 ", told, re.M)) == MASKS[mask][1]
    assert len(re.findall(r"^kernel \d+ (?!control)", model.dump("fuse"), re.M)) == len(kinds)
    for batch, rows, keys in (1, 20, 33), (2, 9, 150), (1, 300, 300), (1, 1, 1), (2, 1, 20):
        model.compare(feed_of(names, grouped, batch, rows, keys, rng, empty=cleared))


@pytest.mark.parametrize("mask", ["Trilu of true", "lowest, added", "-1e9, selected", "lowest and padding"])
def test_keys_that_no_row_sees(tmp_path, mask):
    """Spans are left out, with the same bits; a block with a row that sees no key, to which a large number hides nothing, has all of them."""
    rng, n = np.random.default_rng(2), 700
    model, names = exported(tmp_path, mask, False, False, "after")
    (tmp_path / "told").write_text(re.sub(r"^  reach +1 .*$", "  reach 0", model.dump("schedule", "-march=native"), flags=re.M))
    every = f"--schedules={tmp_path / 'told'}"
    feed = feed_of(names, False, 1, n, n, rng, empty=mask == "lowest and padding")
    assert (model.run(feed)[0] == model.run(feed, every)[0]).all()
    feed[2][:, :, -1] = np.nan
    rows = np.isnan(model.run(feed)[0]).any((0, 1, 3))
    assert rows[-1] and np.isnan(model.run(feed, every)[0]).all()
    assert rows[: n // 4].all() if mask == "lowest and padding" else not rows[: n // 2].any()


def test_nan_rows(tmp_path):
    """A NaN or an infinity among a row's scores, or none but -inf, makes 0 of that row and of no other, in spans as without; NaN stays in plain ones."""
    rng = np.random.default_rng(1)
    for cleared in True, False:
        model, names = exported(tmp_path, "input, added", cleared, False, "after")
        for rows, keys in (20, 33), (9, 300):
            q, k, v, bias = feed_of(names, False, 1, rows, keys, rng, empty=False)
            q[0, 1, 2, 3] = np.nan
            bias[0, 0, 4] = -np.inf
            bias[0, 0, 5, keys - 1] = np.inf
            y = model.compare([q, k, v, bias])[0]
            bad = np.isnan(y) if not cleared else y == 0
            assert bad[0, 1, 2].all() and bad[0, :, 4:6].all() and not bad[0, 0, 2].any() and not bad[0, :, 6:].any()


def one_kernel(model):
    assert re.findall(r"^schedule .*: (\w+)$", model.dump("schedule", "-march=native"), re.M) == ["attention"]


@pytest.mark.parametrize("less", [False, True], ids=["plain", "less the maximum"])
def test_sink(tmp_path, less):
    """A sink for each head, joined to the scores and dropped from the probabilities, as GPT-OSS has it."""
    rng = np.random.default_rng(3)
    sink = rng.standard_normal((1, 4, 1, 1)).astype(np.float32)
    nodes = [*SIZES[:4], node("Shape", "q", "batch", start=0, end=1), node("Concat", "batch heads rows one1", "spread", axis=0),
             node("Expand", "sink spread", "s4"), node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), *SCALES["after"],
             node("Add", "z bias", "m"), node("Concat", "m s4", "joined", axis=-1)]
    if less:
        nodes += [node("ReduceMax", "joined minus1", "most", keepdims=1), node("Sub", "joined most", "less")]
    nodes += [node("Softmax", "less" if less else "joined", "p", axis=-1), node("Slice", "p ax0 minus1 ax3", "kept"), node("MatMul", "kept v", "y")]
    inputs = {"q": ["b", 4, "n", 16], "k": ["b", 4, "t", 16], "v": ["b", 4, "t", 16], "bias": ["b", 1, "n", "t"]}
    model = Model(tmp_path, nodes, [value(n, x) for n, x in inputs.items()], [value("y", None)],
                  {"sink": sink, "heads": [4], "one1": [1], "scale": np.float32(0.25), "ax0": [0], "ax3": [3], "minus1": [-1]}, opset=20)
    one_kernel(model)
    for batch, rows, keys in (1, 20, 33), (2, 9, 150), (1, 300, 300), (1, 1, 1):
        q, k, v, bias = feed_of(["q", "k", "v", "bias"], False, batch, rows, keys, rng, empty=True)
        model.compare([q, k, v, bias])


def test_sizes_that_are_not_proved_equal(tmp_path):
    """Masks whose sizes have other names: any of them, and any of the scores', may be 1."""
    rng = np.random.default_rng(4)
    nodes = [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), *SCALES["after"], node("Add", "z bias", "m"), node("Softmax", "m", "p", axis=-1),
             node("MatMul", "p v", "y")]
    inputs = {"q": ["b", "h", "n", 16], "k": ["b", "h", "t", 16], "v": ["c", "g", "u", 16], "bias": ["c", "g", "m", "u"]}
    model = Model(tmp_path, nodes, [value(n, x) for n, x in inputs.items()], [value("y", None)], {"scale": np.float32(0.25)}, opset=20)
    one_kernel(model)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    for (b, h, n, t), (c, g, m, u) in (((2, 3, 20, 33), (2, 3, 20, 33)), ((2, 3, 20, 33), (1, 1, 20, 33)), ((2, 3, 1, 33), (2, 3, 20, 33)),
                                       ((2, 3, 20, 1), (2, 3, 20, 33)), ((1, 1, 20, 33), (2, 3, 20, 33)), ((2, 3, 20, 33), (2, 3, 1, 33)),
                                       ((1, 3, 1, 1), (2, 1, 20, 300)), ((1, 1, 1, 1), (1, 1, 1, 1))):
        model.compare([draw(b, h, n, 16), draw(b, h, t, 16), draw(c, g, u, 16), draw(c, g, m, u)])


@pytest.mark.parametrize("mask", ["none", "causal", "added"])
def test_operator_with_shared_heads(tmp_path, mask):
    """Attention: heads that share keys are rows of one product, whatever their length."""
    rng = np.random.default_rng(5)
    inputs = {"q": ["b", 4, "n", 16], "k": ["b", 2, "t", 16], "v": ["b", 2, "t", 16]} | ({"bias": ["b", 1, "n", "m"]} if mask == "added" else {})
    model = Model(tmp_path, [node("Attention", " ".join(inputs), "y", is_causal=int(mask == "causal"))],
                  [value(n, x) for n, x in inputs.items()], [value("y", None)], {}, opset=23)
    one_kernel(model)
    for batch, rows, keys in (1, 20, 33), (2, 9, 150), (1, 300, 300), (2, 1, 5):
        model.compare(feed_of(inputs, True, batch, rows, keys, rng, empty=False))


EVERY = {
    "not any": [node("Not", "low", "above"), node("Cast", "above", "a8", to=T.UINT8), node("ReduceMax", "a8 minus1", "any8", keepdims=1),
                node("Cast", "any8", "any", to=T.BOOL), node("Not", "any", "every")],
    "all": [node("Cast", "low", "l32", to=T.INT32), node("ReduceMin", "l32 minus1", "all32", keepdims=1), node("Cast", "all32", "every", to=T.BOOL)],
    "of another axis": [node("Cast", "low", "l32", to=T.INT32), node("ReduceMin", "l32 ax2", "all32", keepdims=1), node("Cast", "all32", "every", to=T.BOOL)],
    "any": [node("Cast", "low", "l32", to=T.INT32), node("ReduceMax", "l32 minus1", "all32", keepdims=1), node("Cast", "all32", "every", to=T.BOOL)],
}


@pytest.mark.parametrize("every", EVERY)
def test_rows_that_are_all_hidden(tmp_path, every):
    """Where(all(z == -inf), 0, Softmax(z)), as torch decomposes its safe softmax: 0 there and nowhere else, NaN stays NaN."""
    rng = np.random.default_rng(7)
    nodes = [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), *SCALES["after"], node("Add", "z bias", "m"), node("Softmax", "m", "p", axis=-1),
             node("Equal", "m inf", "low"), *EVERY[every], node("Where", "every nothing p", "kept"), node("MatMul", "kept v", "y")]
    inputs = {"q": ["b", 4, "n", 16], "k": ["b", 4, "t", 16], "v": ["b", 4, "t", 16], "bias": ["b", 1, "n", "t"]}
    model = Model(tmp_path, nodes, [value(n, x) for n, x in inputs.items()], [value("y", None)],
                  {"scale": np.float32(0.25), "inf": np.float32(-np.inf), "nothing": np.float32(0), "minus1": [-1], "ax2": [2]}, opset=20)
    if every in ("not any", "all"):
        one_kernel(model)
    for rows, keys in (20, 33), (9, 300), (1, 1):
        q, k, v, bias = feed_of(["q", "k", "v", "bias"], False, 2, rows, keys, rng, empty=True)
        bias[1, 0, rows - 1] = np.inf if rows > 1 else bias[1, 0, 0]
        q[1, 2, rows // 2] = np.nan
        model.compare([q, k, v, bias])


@pytest.mark.parametrize("form", ["masked terms", "another floor", "twice", "not of an integer"])
def test_what_is_no_softmax(form, tmp_path):
    """Beside Where(all(x == -inf), 0, p), where p is nearly softmax(x), or the condition is nearly that one."""
    far = ["keep"] if form == "masked terms" else ["far"]
    floor, whole = "quarter" if form == "another floor" else "nothing", "two" if form == "twice" else "one"
    nodes = [node("ReduceMax", "x minus1", "max", keepdims=1), node("Sub", "x max", "d"), node("Less", "d low", "far"),
             node("Where", f"{far[0]} nothing d", "cut"), node("Exp", "cut", "e0"), node("Where", f"{far[0]} {floor} e0", "e"),
             node("ReduceSum", "e minus1", "sum", keepdims=1), node("Div", f"{whole} sum", "inverse"), node("Mul", "e inverse", "p"),
             node("Equal", "x inf", "hidden")]
    if form == "not of an integer":
        nodes += [node("Cast", "hidden", "h32", to=T.INT32), node("ReduceMax", "h32 minus1", "any", keepdims=1), node("BitwiseNot", "any", "inverted"),
                  node("Cast", "inverted", "all", to=T.BOOL)]
    else:
        nodes += [node("Cast", "hidden", "h32", to=T.INT32), node("ReduceMin", "h32 minus1", "every", keepdims=1), node("Cast", "every", "all", to=T.BOOL)]
    nodes.append(node("Where", "all nothing p", "y"))
    inputs = [value("x", ["n", "t"])] + [value("keep", ["n", "t"], T.BOOL)] * (form == "masked terms")
    model = Model(tmp_path, nodes, inputs, [value("y", None)], {"inf": np.float32(-np.inf), "nothing": np.float32(0), "low": np.float32(-87),
                  "quarter": np.float32(0.25), "one": np.float32(1), "two": np.float32(2), "minus1": [-1]}, opset=20)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5, 9)).astype(np.float32)
    x[2], x[3, 4] = -200, 150
    model.compare([x] + [rng.random(x.shape) < 0.4] * (form == "masked terms"))


def test_empty_rows_of_a_mask_of_its_own(tmp_path):
    """A run whose output is empty writes to no workspace: plan gives it none."""
    nodes = [node("Transpose", "k", "kt", perm=[0, 2, 1]), node("MatMul", "q kt", "z"), node("Add", "z m", "zm"), node("Softmax", "zm", "p", axis=-1),
             node("MatMul", "p v", "y")]
    inputs = {"q": ["b", "l", 16], "k": ["b", "s", 16], "v": ["b", "s", 16], "m": ["ml", "s"]}
    model = Model(tmp_path, nodes, [value(n, x) for n, x in inputs.items()], [value("y", None)], {}, opset=20)
    loops = model.dump("emit", "-march=x86-64-v3")
    program = re.search(r"^program .*?^}", loops, re.M | re.S)[0]
    assert "\n    store " in program and "\n  store " not in program, program     # only inside of the test whether there are results
    f = lambda *s: np.random.default_rng(1).standard_normal(s).astype(np.float32)
    for rows in (0, 3):
        model.compare([f(2, rows, 16), f(2, 20, 16), f(2, 20, 16), f(1, 20)])


SHAPES = {   # q, k, v: batches and heads that keys and values have once are no batch dims of the products
    "one head": [[1, "n", 16], [1, "t", 16], [1, "t", 24]],
    "fixed": [[1, 1, 50, 16], [1, 1, 37, 16], [1, 1, 37, 24]],
    "one of keys": [[1, 4, "n", 16], [1, 1, "t", 16], [1, 1, "t", 24]],
    "one for all": [["b", 4, 30, 16], ["t", 16], ["t", 24]],
    "values of each": [[1, 4, "n", 16], [1, 1, "t", 16], [1, 4, "t", 24]],
}


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("turned", [False, True], ids=["plain", "turned"])
def test_keys_without_a_batch(tmp_path, shapes, turned):
    """turned: the product of keys and queries, transposed."""
    rng, last = np.random.default_rng(6), lambda rank: [*range(rank - 2), rank - 1, rank - 2]
    q, k, v = SHAPES[shapes]
    back = node("Transpose", "raw0", "raw", perm=last(max(len(q), len(k))))
    scores = ([node("Transpose", "q", "qt", perm=last(len(q))), node("MatMul", "k qt", "raw0"), back]
              if turned else [node("Transpose", "k", "kt", perm=last(len(k))), node("MatMul", "q kt", "raw")])
    nodes = [*scores, node("Mul", "raw scale", "z"), node("Softmax", "z", "p", axis=-1), node("MatMul", "p v", "y")]
    model = Model(tmp_path, nodes, [value("q", q), value("k", k), value("v", v)], [value("y", None)], {"scale": np.float32(0.25)}, opset=20)
    assert "attention" in re.findall(r"^schedule .*: (\w+)$", model.dump("schedule", "-march=native"), re.M)
    for sizes in {"b": 2, "n": 20, "t": 33}, {"b": 1, "n": 300, "t": 150}, {"b": 3, "n": 1, "t": 1}:
        model.compare([rng.standard_normal([sizes.get(d, d) for d in x]).astype(np.float32) for x in (q, k, v)])


def test_what_is_in_the_way(tmp_path):
    """-Rpass-missed=attention names the first obstacle."""
    for more, words in (([node("Mul", "p two2", "pd")], r"\(mul\) is between the softmax and the product with the values"),
                        ([node("Identity", "p", "pd"), node("Identity", "p", "shown")], r"has 2 readers, 1 of which are outside")):
        nodes = [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), *SCALES["after"], node("Softmax", "z", "p", axis=-1), *more, node("MatMul", "pd v", "y")]
        inputs = {x: ["b", 4, "n", 16] for x in "qkv"}
        model = Model(tmp_path, nodes, [value(n, x) for n, x in inputs.items()], [value(n, None) for n in ("y", "shown")[: len(more)]],
                      {"scale": np.float32(0.25), "two2": np.full((1, 4, 1, 1), [[[2]], [[3]], [[4]], [[5]]], np.float32).reshape(1, 4, 1, 1)}, opset=20)
        told = mcc(model.path, "-o", tmp_path / "y.so", "-march=native", "-Rpass-missed=attention").stderr
        assert re.search(r"remark: k\d+ is not one kernel with its scores: .*" + words + r".*\[-Rpass-missed=attention\]", told), told

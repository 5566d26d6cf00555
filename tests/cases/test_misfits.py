"""Operands whose open dims do not fit to each other: an error of the run, and nothing is read beyond an operand.

Each form runs with sizes that fit, against ONNX Runtime, then with each of the sizes that do not. Inputs end where the process may
not read (support/guard.py).
"""
import ctypes as c
import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper

from support import artifact
from support.artifact import Artifact, ModelError
from support.guard import guarded
from support.tool import compile_to, mcc, save, value

F, I = T.FLOAT, T.INT64
# (name, operator, attributes, inputs as (type, dims), sizes that fit, sizes that do not, constants by position)
FORMS = [
    ("GatherND", {"batch_dims": 1}, [(F, "an"), (I, "bk1")], dict(a=3, n=5, b=3, k=4), [dict(b=66), dict(b=1), dict(a=1)]),
    ("GatherND", {"batch_dims": 2}, [(F, "acn"), (I, "bdk1")], dict(a=2, c=3, n=5, b=2, d=3, k=4), [dict(b=40), dict(d=90)]),
    ("GatherElements", {"axis": 1}, [(F, "an"), (I, "bk")], dict(a=3, n=5, b=2, k=4), [dict(b=4), dict(b=700)]),
    ("GatherElements", {"axis": 0}, [(F, "an"), (I, "bk")], dict(a=3, n=5, b=2, k=4), [dict(k=6), dict(k=900)]),
    ("ScatterElements", {"axis": 1}, [(F, "an"), (I, "bk"), (F, "cm")], dict(a=3, n=5, b=2, k=1, c=2, m=1),
     [dict(b=4, c=4), dict(c=1), dict(m=2), dict(b=900, c=900), dict(b=3)]),
    ("ScatterND", {}, [(F, "an"), (I, "k1"), (F, "cm")], dict(a=3, n=5, k=1, c=1, m=5), [dict(c=2), dict(m=4), dict(k=2), dict(m=900)]),
    ("Det", {}, [(F, "an")], dict(a=3, n=3), [dict(a=2), dict(n=700)]),
    ("NonMaxSuppression", {}, [(F, "an4"), (F, "bcm"), (I, "1")], dict(a=1, n=5, b=1, c=1, m=5), [dict(m=6), dict(n=4), dict(b=2), dict(m=900)]),
    ("Add", {}, [(F, "an"), (F, "bm")], dict(a=3, n=5, b=3, m=5), [dict(b=2), dict(m=900)]),
    ("MatMul", {}, [(F, "an"), (F, "bm")], dict(a=3, n=5, b=5, m=2), [dict(b=4), dict(b=900)]),
    ("Gemm", {"transB": 1}, [(F, "an"), (F, "bm"), (F, "c")], dict(a=3, n=5, b=2, m=5, c=2), [dict(m=4), dict(c=3), dict(n=900)]),
    ("Conv", {}, [(F, "acn"), (F, "odk"), (F, "p")], dict(a=1, c=2, n=7, o=3, d=2, k=3, p=3), [dict(d=3), dict(p=2), dict(c=900)]),
    ("ConvTranspose", {}, [(F, "acn"), (F, "odk")], dict(a=1, c=2, n=7, o=2, d=2, k=3), [dict(o=3), dict(c=900)]),
    ("BatchNormalization", {}, [(F, "acn"), (F, "d"), (F, "e"), (F, "f"), (F, "g")], dict(a=1, c=2, n=7, d=2, e=2, f=2, g=2),
     [dict(d=3), dict(e=3), dict(f=3), dict(g=900)]),
    ("InstanceNormalization", {}, [(F, "acn"), (F, "d"), (F, "e")], dict(a=1, c=2, n=7, d=2, e=2), [dict(d=3), dict(e=900)]),
    ("LayerNormalization", {}, [(F, "an"), (F, "d"), (F, "e")], dict(a=3, n=7, d=7, e=7), [dict(d=3), dict(e=900)]),
    ("PRelu", {}, [(F, "an"), (F, "d")], dict(a=3, n=7, d=7), [dict(d=3), dict(d=900)]),
    ("Concat", {"axis": 1}, [(F, "an"), (F, "bm")], dict(a=3, n=5, b=3, m=2), [dict(b=2), dict(b=900)]),
    ("ReverseSequence", {"batch_axis": 1, "time_axis": 0}, [(F, "tbn"), (I, "c")], dict(t=4, b=3, n=2, c=3), [dict(c=2), dict(b=900)]),
    ("GridSample", {}, [(F, "acnm"), (F, "bhw2")], dict(a=2, c=2, n=4, m=4, b=2, h=3, w=3), [dict(b=3), dict(b=900)]),
    ("NegativeLogLikelihoodLoss", {"reduction": "none"}, [(F, "acn"), (I, "bm"), (F, "w")], dict(a=2, c=3, n=4, b=2, m=4, w=3),
     [dict(b=3), dict(b=1), dict(m=900), dict(m=2), dict(w=2)]),
    ("Attention", {}, [(F, "ahqs"), (F, "bgkt"), (F, "cflv")], dict(a=1, h=2, q=3, s=4, b=1, g=2, k=5, t=4, c=1, f=2, l=5, v=3),
     [dict(t=5), dict(l=6), dict(b=2, c=2), dict(k=900)]),
    ("RotaryEmbedding", {}, [(F, "ahst"), (F, "pe"), (F, "pf"), (I, "br")], dict(a=2, h=2, s=3, t=4, p=6, e=2, f=2, b=2, r=3),
     [dict(e=3), dict(b=3), dict(r=4), dict(r=900), dict(f=900), dict(t=5), dict(t=3, e=1, f=1), dict(e=1, f=1)]),
    ("TensorScatter", {}, [(F, "ahns"), (F, "bgmt"), (I, "c")], dict(a=2, h=2, n=5, s=3, b=2, g=2, m=2, t=3, c=2),
     [dict(b=3), dict(g=3), dict(t=4), dict(c=900), dict(c=1)]),
    ("Where", {}, [(T.BOOL, "an"), (F, "bm"), (F, "cl")], dict(a=3, n=5, b=3, m=5, c=3, l=5), [dict(b=2), dict(l=900)]),
    ("LSTM", {"hidden_size": 2}, [(F, "tbn"), (F, "1gm"), (F, "1hk"), (F, "1d"), (T.INT32, "c"), (F, "1ek"), (F, "ifq"), (F, "1p")],
     dict(t=4, b=3, n=2, g=8, m=2, h=8, k=2, d=16, c=3, e=3, i=1, f=3, q=2, p=6),
     [dict(m=3), dict(c=2), dict(c=1), dict(e=4), dict(e=1), dict(i=2), dict(f=1), dict(q=1), dict(p=1), dict(p=7), dict(d=900), dict(d=4), dict(g=900),
      dict(g=4, d=16), dict(h=4), dict(k=1)]),
    ("RNN", {"hidden_size": 2}, [(F, "tbn"), (F, "ign"), (F, "1hk"), (F, "jd"), (T.INT32, "c"), (F, "qeu")],
     dict(t=4, b=3, n=2, i=1, g=2, h=2, k=2, j=1, d=4, c=3, q=1, e=3, u=2), [dict(i=2), dict(g=1), dict(j=2), dict(c=1), dict(q=2), dict(e=1), dict(u=1)]),
    ("DequantizeLinear", {"axis": 1}, [(T.INT8, "an"), (F, "s"), (T.INT8, "z")], dict(a=3, n=5, s=5, z=5), [dict(s=4), dict(z=900), dict(s=900)]),
    ("Compress", {"axis": 1}, [(F, "an"), (T.BOOL, "m")], dict(a=3, n=5, m=5), [dict(m=900)]),
    ("OneHot", {}, [(I, "a"), (F, "1"), (F, "v")], dict(a=3, v=2), [dict(v=1), dict(v=0)]),
    ("MaxRoiPool", {"pooled_shape": [2, 2]}, [(F, "acnm"), (F, "rk")], dict(a=2, c=2, n=4, m=4, r=3, k=5), [dict(k=4), dict(k=1)]),
    ("GRU", {"hidden_size": 2}, [(F, "tbn"), (F, "dgm"), (F, "ehk"), (F, "fw"), (T.INT32, "b"), (F, "1ij")],
     dict(t=4, b=3, n=2, d=1, g=6, m=2, e=1, h=6, k=2, f=1, w=12, i=3, j=2),
     [dict(d=0), dict(e=0), dict(f=0), dict(d=2, e=2, f=2), dict(h=5), dict(w=11), dict(i=1), dict(j=1)]),
]


OWN = [("EmbedLayerNormalization", {}, [(T.INT32, "bs"), (T.INT32, "bs"), (F, "w4"), (F, "p4"), (F, "g4"), (F, "4"), (F, "4")],
        dict(b=2, s=6, w=3, p=8, g=2), [dict(p=5), dict(s=9), dict(s=900)]),
       ("LinearAttention", {"q_num_heads": 4, "kv_num_heads": 2}, [(F, "bt8"), (F, "cu4"), (F, "dv4"), (F, "ehij"), (F, "fw2"), (F, "gxy")],
        dict(b=2, t=3, c=2, u=3, d=2, v=3, e=2, h=2, i=2, j=2, f=2, w=3, g=2, x=3, y=1),
        [dict(c=1), dict(u=4), dict(u=1), dict(d=1), dict(v=4), dict(e=1), dict(h=1), dict(i=1), dict(j=1), dict(f=1), dict(w=4), dict(g=1), dict(x=4),
         dict(y=3)]),
       ("CausalConvWithState", {}, [(F, "bcn"), (F, "d1k")], dict(b=1, c=2, n=5, d=2, k=3), [dict(k=0), dict(d=3)]),
       ("RotaryEmbedding", {}, [(F, "bhst"), (I, "1"), (F, "pe"), (F, "pf")], dict(b=1, h=1, s=5, t=8, p=6, e=4, f=4), [dict(t=2), dict(e=5), dict(s=7)])]


ML = [("FeatureVectorizer", {"inputdimensions": [3, 2]}, [(F, "an"), (F, "am")], dict(a=2, n=3, m=2), [dict(n=2), dict(m=3), dict(n=2, m=3)]),
      ("Imputer", {"imputed_value_floats": [1.0, 2.0, 3.0]}, [(F, "an")], dict(a=2, n=3), [dict(n=1), dict(n=900)]),
      ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0]}, [(F, "an")], dict(a=2, n=3), [dict(n=2), dict(n=900)])]


def feeds_of(inputs, sizes):
    """Elements that are places in every operand, so that only the shapes decide: 1 in each mask, 0 in each index."""
    rng = np.random.default_rng(0)
    made = []
    for elem, dims in inputs:
        shape = [sizes[d] if d.isalpha() else int(d) for d in dims]
        t = helper.tensor_dtype_to_np_dtype(elem)
        made.append((rng.random(shape) + 0.5).astype(t) if t.kind == "f" else np.ones(shape, t) if t.kind == "b" else
                    np.ones(shape, t) if t in (np.int32, np.int8) else np.zeros(shape, t))
    return made


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_pads_of_nothing(tmp_path, mode):
    path = save(tmp_path / "m.onnx", [helper.make_node("Pad", ["x", "p"], ["y"], mode=mode)], [value("x", ["a", "n"])], [value("y", None)],
                {"p": np.array([0, 1, 0, 1])}, opset=24)
    done = mcc(path, "-o", tmp_path / "m.so")
    assert done.returncode == 0, done.stderr
    with Artifact(tmp_path / "m.so", threads=1) as a:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(a.run([x])[0], np.pad(x, ((0, 0), (1, 1)), mode))
        assert a.run([x[:0]])[0].shape == (0, 5)
        with pytest.raises(ModelError, match="nothing to pad with"):
            a.run([x[:, :0]])


@pytest.mark.parametrize("op, at, updates, form", [
    ("Gather", (9,), None, {}), ("GatherElements", (1,), None, {}), ("GatherElements", (20,), None, {}), ("GatherND", (9, 1), None, {}),
    ("ScatterElements", (9,), (9,), {}), ("ScatterND", (2, 1), (2,), {"reduction": "add"})])
@pytest.mark.parametrize("known", [False, True])
def test_places_in_nothing(tmp_path, monkeypatch, op, at, updates, form, known):
    """Indices into an open dim that is empty: an error, before anything is read or written there."""
    at = np.zeros(at, np.int64)
    names = ["x", "i"] + ["u"] * (updates is not None)
    path = save(tmp_path / "m.onnx", [helper.make_node(op, names, ["y"], **form)], [value("x", ["n"])] + [value("i", at.shape, I)] * (not known) +
                [value("u", updates)] * (updates is not None), [value("y", None)], {"i": at} if known else {}, opset=18)
    with Artifact(compile_to(tmp_path / "m.so", path, "-march=native"), threads=1) as a:
        rest = [at] * (not known) + [np.ones(updates or 0, np.float32)] * (updates is not None)
        a.run([np.ones(3, np.float32), *rest])
        monkeypatch.setattr(artifact, "NOTHING", np.ctypeslib.as_array((c.c_uint8 * 16).from_address(4096)))    # where nobody may read
        with pytest.raises(ModelError, match="index out of range"):
            a.run([np.ones(0, np.float32), *rest])


@pytest.mark.parametrize("op, inputs, outputs, form", [
    ("NegativeLogLikelihoodLoss", [(F, [2, "n"]), (I, [2])], 1, {"reduction": "none"}),
    ("NegativeLogLikelihoodLoss", [(F, [2, "n"]), (I, [2]), (F, ["n"])], 1, {"ignore_index": 5}),
    ("SoftmaxCrossEntropyLoss", [(F, [2, "n"]), (I, [2])], 1, {}),
    ("RotaryEmbedding", [(F, [1, 2, 3, 4]), (F, ["n", 2]), (F, ["n", 2]), (I, [1, 3])], 1, {}),
    ("com.microsoft.RotaryEmbedding", [(F, [1, 3, 8]), (I, [1, 3]), (F, ["n", 2]), (F, ["n", 2])], 1, {"num_heads": 2}),
    ("com.microsoft.EmbedLayerNormalization", [(T.INT32, [1, 3]), None, (F, ["n", 4]), (F, [5, 4]), None, (F, [4]), (F, [4])], 2, {})])
def test_rows_of_nothing(tmp_path, monkeypatch, op, inputs, outputs, form):
    """The same of rules that are made of such reads: no classes, no rows of a table."""
    domain, name = op.rpartition(".")[::2]
    names = ["" if row is None else f"i{k}" for k, row in enumerate(inputs)]
    rows = [(n, *row) for n, row in zip(names, inputs) if row]
    path = save(tmp_path / "m.onnx", [helper.make_node(name, names, [f"o{k}" for k in range(outputs)], domain=domain, **form)],
                [value(n, shape, elem) for n, elem, shape in rows], [value("o0", None)], opset=23)
    with Artifact(compile_to(tmp_path / "m.so", path, "-march=native"), threads=1) as a:
        feeds = lambda n: [np.zeros([n if d == "n" else d for d in shape], helper.tensor_dtype_to_np_dtype(elem)) for _, elem, shape in rows]
        a.run(feeds(3))
        monkeypatch.setattr(artifact, "NOTHING", np.ctypeslib.as_array((c.c_uint8 * 16).from_address(4096)))    # where nobody may read
        with pytest.raises(ModelError, match="index out of range"):
            a.run(feeds(0))


@pytest.mark.parametrize("begin, end, step", [(1, -1, 1), (-3, None, 1), (5, 9, 1), (None, None, 2), (1, None, 3), (-2, 0, -1), (None, None, -1),
                                              (None, 1, -2)])
def test_clamped_slices_need_no_check(tmp_path, begin, end, step):
    """Slice clamps its bounds to the dim: whatever its size, a slice lies inside."""
    far = 2**63 - 1
    bounds = (begin if begin is not None else far if step < 0 else 0, end if end is not None else -far if step < 0 else far)
    path = save(tmp_path / "m.onnx", [helper.make_node("Slice", ["x", "b", "e", "a", "s"], ["y"])], [value("x", ["n", "m"])], [value("y", None)],
                dict(zip("beas", np.array([[bounds[0]], [bounds[1]], [1], [step]]))))
    assert "assert(" not in mcc(path, "--stop-after=legalize", "-o", "-").stdout
    with Artifact(compile_to(tmp_path / "m.so", path), threads=1) as a:
        for m in range(11):
            x = np.arange(2 * m, dtype=np.float32).reshape(2, m)
            np.testing.assert_array_equal(a.run([guarded(x)])[0], x[:, begin:end:step])


@pytest.mark.parametrize("step", [1, -1])
def test_slices_by_data_need_no_check(tmp_path, step):
    path = save(tmp_path / "m.onnx", [helper.make_node("Slice", ["x", "b", "e", "a", "s"], ["y"])],
                [value("x", ["n"]), value("b", [1], I), value("e", [1], I)], [value("y", None)], {"a": np.array([0]), "s": np.array([step])})
    assert "assert(" not in mcc(path, "--stop-after=legalize", "-o", "-").stdout
    with Artifact(compile_to(tmp_path / "m.so", path), threads=1) as a:
        for begin, end in itertools.product((-2**63, -9, -5, -2, 0, 1, 4, 5, 9, 2**63 - 1), repeat=2):
            x = np.arange(5, dtype=np.float32)
            start, stop, _ = (slice(max(begin, -10), end, step)).indices(5)
            if step < 0 and begin < -5:        # ONNX clamps a start to the first element
                start = 0
            np.testing.assert_array_equal(a.run([guarded(x), np.array([begin]), np.array([end])])[0], [x[k] for k in range(start, stop, step)])


@pytest.mark.parametrize("form", FORMS + ML + OWN, ids=[f"{k}-{f[0]}" for k, f in enumerate(FORMS + ML + OWN)])
def test_misfits(tmp_path, form):
    op, attributes, inputs, fits, misfits = form
    outputs = 3 if op == "LSTM" else 2 if op in ("CausalConvWithState", "EmbedLayerNormalization", "LinearAttention") else 1
    ports = [value(f"x{k}", [f"s{d}" if d.isalpha() else int(d) for d in dims], elem) for k, (elem, dims) in enumerate(inputs)]
    node = helper.make_node(op, [p.name for p in ports], [f"y{k}" for k in range(outputs)],
                            domain="ai.onnx.ml" if form in ML else "com.microsoft" if form in OWN else "", **attributes)
    path = tmp_path / "m.onnx"
    versions = {"": 21 if op == "MaxRoiPool" else 24, "ai.onnx.ml": 3, "com.microsoft": 1}       # which ONNX Runtime has kernels of
    graph = helper.make_graph([node], "net", ports, [helper.make_empty_tensor_value_info(f"y{k}") for k in range(outputs)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid(*v) for v in versions.items()], ir_version=10), path)
    done = mcc(path, "-o", tmp_path / "m.so", "-march=native")
    assert done.returncode == 0, done.stderr
    feeds = feeds_of(inputs, fits)
    want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {p.name: a for p, a in zip(ports, feeds)})
    with Artifact(tmp_path / "m.so", threads=1) as a:
        for w, g in zip(want, a.run([guarded(x) for x in feeds])):
            np.testing.assert_allclose(g, w, 1e-5, 1e-6)
        for other in misfits:
            given = [guarded(x) for x in feeds_of(inputs, fits | other)]
            with pytest.raises(ModelError):
                a.run(given)
                print(f"no error with {other}")

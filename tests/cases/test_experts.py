"""com.microsoft MoE and QMoE beside ONNX Runtime, whose CPU kernels lack some forms: those beside numpy."""
import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto as T

from support.compare import Model, floats, interpreted, node
from support.contrib import contrib
from support.tool import mcc, value

F = np.float32
E, H, I = 6, 32, 48


def near(want, got, scale=2e-5):
    assert want.shape == got.shape and want.dtype == got.dtype, (want.shape, got.shape)
    far = np.abs(want.astype(F) - got.astype(F)).max(initial=0) / max(np.abs(want.astype(F)).max(initial=0), 1e-30)
    assert far < scale, far


def layers(fused, bias=True, third=False, e=E, h=H, i=I):
    two = 2 if fused else 1
    w = {"w1": floats(e, two * i, h, seed=1) / F(4), "b1": floats(e, two * i, seed=2), "w2": floats(e, h, i, seed=3) / F(4), "b2": floats(e, h, seed=4)}
    if third:
        w |= {"w3": floats(e, i, h, seed=5) / F(4), "b3": floats(e, i, seed=6)}
    return {k: v if bias or k[0] == "w" else None for k, v in w.items()}


FORMS = [("relu", 0), ("gelu", 0), ("silu", 0), ("identity", 0), ("swiglu", 1)]


@pytest.mark.parametrize("kind, fusion", FORMS)
@pytest.mark.parametrize("normalized", [0, 1])
def test_floats(tmp_path, kind, fusion, normalized):
    """Any number of tokens, none and one known as well; equal numbers of the router; rank 3; without biases."""
    w = layers(fusion)
    extra = dict(activation_alpha=1.702, activation_beta=1.0, swiglu_limit=1.5) if fusion else {}
    form = dict(k=3, activation_type=kind, normalize_routing_weights=normalized, swiglu_fusion=fusion, **extra)
    net, _ = contrib(tmp_path, "MoE", {"x": floats(4, H), "r": floats(4, E), **w}, constants=list(w), symbolic="inner", standard=21, **form)
    for rows in (1, 2, 7, 40):
        feeds = [floats(rows, H, seed=rows), np.round(floats(rows, E, seed=rows) * 2)]
        near(net.want(feeds)[0], net.run(feeds, "-O2")[0])
    w = layers(fusion, bias=False)
    for rows in (1, 5):
        net, feeds = contrib(tmp_path, "MoE", {"x": floats(1, rows, H), "r": floats(rows, E), **w}, constants=[k for k in w if w[k] is not None],
                             symbolic=False, standard=21, **form)
        near(net.want(feeds)[0], net.run(feeds, "-O2")[0])


def reference(x, router, w, k, kind, fusion=0, alpha=1.0, beta=0.0, limit=np.inf, chosen=False, weights=None, normalized=False):
    """chosen: weights are the softmax of the chosen numbers (QMoE). weights: router_weights."""
    x, y = x.astype(np.float64), np.zeros(x.shape)
    act = {"relu": lambda h: np.maximum(h, 0), "silu": lambda h: h / (1 + np.exp(-h)), "identity": lambda h: h}
    gelu = lambda h: h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
    for t, row in enumerate(router.astype(np.float64)):
        best = sorted(range(len(row)), key=lambda e: (row[e], e), reverse=True)[:k]
        p = np.exp(row - row.max())
        p = p[best] / (p[best].sum() if chosen or normalized else p.sum())
        if weights is not None:
            p = weights[t, best].astype(np.float64) / (weights[t, best].sum() if normalized else 1)
            p = np.where(p > 1e-8, p, 0)
        for e, by in zip(best, p):
            one = {n: v[e].astype(np.float64) for n, v in w.items() if v is not None}
            h = one["w1"] @ x[t] + one.get("b1", 0)
            third = one["w3"] @ x[t] + one.get("b3", 0) if "w3" in one else None
            if kind == "swiglu":
                gate, linear = (h, third) if third is not None else (h[0::2], h[1::2]) if fusion == 1 else np.split(h, 2)
                gate, linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
                a = gate / (1 + np.exp(-alpha * gate)) * (linear + beta)
            elif kind == "geglu":
                gate, linear = (h[0::2], h[1::2]) if fusion == 1 else np.split(h, 2)
                a = gelu(gate) * linear
            else:
                a = act[kind](h) * (1 if third is None else third)
            y[t] += by * (one["w2"] @ a + one.get("b2", 0))
    return y.astype(F)


@pytest.mark.parametrize("kind, fusion, third", [("swiglu", 2, False), ("swiglu", 0, True), ("silu", 0, True), ("geglu", 1, False), ("geglu", 2, False)])
def test_forms_of_gpus(tmp_path, kind, fusion, third):
    """Halves that follow one another, and a third layer; alike on all variants and in the interpreter."""
    w = layers(fusion, third=third)
    form = dict(k=2, activation_type=kind, swiglu_fusion=fusion, **(dict(activation_alpha=1.5, swiglu_limit=2.0) if fusion else {}))
    net, _ = contrib(tmp_path, "MoE", {"x": floats(4, H), "r": floats(4, E), **w}, constants=list(w), symbolic="inner", standard=21, **form)
    feeds = [floats(9, H, seed=1), floats(9, E, seed=2)]
    want = reference(*feeds, w, 2, kind, fusion, *((1.5, 0.0, 2.0) if fusion else ()))
    for flags in [("-O0",), *(("-O2", f"--march=x86-64-{v}") for v in ("v2", "v3", "v4")), ("-O2", "--precision=bf16")]:
        near(want, net.run(feeds, *flags)[0], 2e-2 if "bf16" in flags[-1] else 2e-5)
    assert interpreted(net, feeds).returncode == 0
    near(want, np.load(next((net.folder / "eval").glob("*.npy"))))


def packed(rng, bits, e, n, k, block, zeros):
    """Bytes, scales, zero points, and the weights that they stand for."""
    q = rng.integers(0, 2**bits, (e, n, k), np.uint8)
    count = k // block if block else 1
    s = rng.uniform(0.5, 1, (e, n, count)).astype(F) / F(2**bits)
    z = rng.integers(0, 2**bits, (e, n, count), np.uint8) if zeros else np.full((e, n, count), 2 ** (bits - 1), np.uint8)
    w = (q.astype(F) - np.repeat(z, k // count, 2)) * np.repeat(s, k // count, 2)

    def pack(x):
        x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % (8 // bits))])
        return sum(x[..., i::8 // bits] << (bits * i) for i in range(8 // bits)).astype(np.uint8)

    return pack(q), s if block else s[..., 0], (pack(z if block else z[..., 0]) if zeros else None), w


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [0, 16, 32])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("level", [0, 4])
def test_blocks(tmp_path, bits, block, zeros, level):
    """Columns and blocks, with and without zero points, odd numbers of columns in a byte; rows by bytes where ONNX Runtime's are."""
    rng = np.random.default_rng(bits + block)
    h, i = 64, 96
    b1, s1, z1, w1 = packed(rng, bits, E, 2 * i, h, block, zeros)
    b2, s2, z2, w2 = packed(rng, bits, E, h, i, block, zeros)
    feeds = {"x": floats(4, h), "r": floats(4, E), "w1": b1, "s1": s1, "b1": floats(E, 2 * i, seed=1), "w2": b2, "s2": s2, "b2": floats(E, h, seed=2),
             "w3": None, "s3": None, "b3": None, "z1": z1, "z2": z2}
    if not zeros:
        feeds = {k: v for k, v in feeds.items() if v is not None}
    form = dict(k=2, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=7.0, expert_weight_bits=bits,
                accuracy_level=level, normalize_routing_weights=1, **(dict(block_size=block) if block else {}))
    net, _ = contrib(tmp_path, "QMoE", feeds, constants=[k for k, v in feeds.items() if v is not None and k not in "xr"], symbolic="inner", standard=21, **form)
    w = {"w1": w1, "b1": feeds["b1"], "w2": w2, "b2": feeds["b2"]}
    by_bytes = bool(block) and (bits == 8 or level == 4)
    done = mcc("-q", net.path, "-o", tmp_path / "amx.so", "-march=x86-64-v4-amx")      # results of other dims than the product's
    assert done.returncode == 0, done.stderr
    for rows in (1, 5, 70):
        given = [floats(rows, h, seed=rows), np.round(floats(rows, E, seed=rows) * 2)]
        want = reference(*given, w, 2, "swiglu", 1, 1.702, 1.0, 7.0, chosen=True)
        got = net.run(given, "-O2")[0]
        near(want, got, 2e-2 if by_bytes else 2e-5)
        near(want, net.run(given, "-O2", "--precision=exact")[0])
        if bits > 2 and block:    # the others lose digits, or have no such kernel
            near(net.want(given)[0], got, 2e-3 if by_bytes else 2e-5)


@pytest.mark.parametrize("normalized", [0, 1])
def test_router_weights(tmp_path, normalized):
    """Chosen by one tensor, weighed by another, of which what is not above 0 counts nothing; f16."""
    rng = np.random.default_rng(5)
    h, i = 32, 64
    b1, s1, _, w1 = packed(rng, 4, E, i, h, 16, False)
    b2, s2, _, w2 = packed(rng, 4, E, h, i, 16, False)
    none = dict.fromkeys(["b2", "w3", "s3", "b3", "z1", "z2", "z3"])
    feeds = {"x": floats(4, h), "r": floats(4, E), "w1": b1, "s1": s1, "b1": None, "w2": b2, "s2": s2, **none, "by": floats(4, E)}
    form = dict(k=3, activation_type="silu", block_size=16, normalize_routing_weights=normalized)
    net, _ = contrib(tmp_path, "QMoE", feeds, constants=["w1", "s1", "w2", "s2"], symbolic="inner", standard=21, expert_weight_bits=4, **form)
    for rows in (1, 6):
        given = [floats(rows, h, seed=rows), floats(rows, E, seed=rows), floats(rows, E, seed=rows + 1) + F(normalized * 3)]
        got = net.run(given, "-O2")[0]
        near(net.want(given)[0], got)
        near(reference(*given[:2], {"w1": w1, "w2": w2}, 3, "silu", weights=given[2], normalized=normalized), got)
    half = {k: v.astype(np.float16) if v is not None and v.dtype == F else v for k, v in feeds.items()}
    net, given = contrib(tmp_path, "QMoE", half, constants=["w1", "s1", "w2", "s2"], symbolic="inner", standard=21, expert_weight_bits=4, **form)
    near(net.want(given)[0], net.run(given, "-O2")[0], 5e-3)


def eighths(rng, block, *shape):
    """Floats of 8 bits, scales for squares of them or for each expert, and the weights that they stand for."""
    w = (rng.standard_normal(shape) * 4).astype(ml_dtypes.float8_e4m3fn)
    across, along = (block, block) if block else shape[1:]
    s = rng.uniform(0.02, 0.05, (shape[0], -(-shape[1] // across), -(-shape[2] // along))).astype(F)
    whole = np.repeat(np.repeat(s, across, 1), along, 2)[:, :shape[1], :shape[2]]
    return w, s, w.astype(F) * whole


@pytest.mark.parametrize("block", [0, 16, 128])
@pytest.mark.parametrize("normalized", [0, 1])
def test_floats_of_8_bits(tmp_path, block, normalized):
    """Squares that end with the matrix and that do not; stored as they are. ONNX Runtime has no kernel of it for the CPU."""
    rng, (h, i) = np.random.default_rng(block), (96, 160)
    w1, s1, d1 = eighths(rng, block, E, 2 * i, h)
    w2, s2, d2 = eighths(rng, block, E, h, i)
    by = dict(s1=s1, s2=s2) if block else dict(s1=None, s2=None)
    none = dict.fromkeys(["w3", "s3", "b3", "z1", "z2", "z3", "by"])
    feeds = {"x": floats(4, h), "r": floats(4, E), "w1": w1, "s1": by["s1"], "b1": floats(E, 2 * i, seed=1), "w2": w2, "s2": by["s2"],
             "b2": floats(E, h, seed=2), **none, **({} if block else {"g1": s1.ravel(), "g2": s2.ravel()})}
    form = dict(k=2, activation_type="swiglu", swiglu_fusion=2, quant_type="fp8", normalize_routing_weights=normalized, expert_weight_bits=8,
                **(dict(block_size=block) if block else {}))
    net, _ = contrib(tmp_path, "QMoE", feeds, constants=[k for k, v in feeds.items() if v is not None and k not in "xr"], symbolic="inner", standard=21, **form)
    w = {"w1": d1, "b1": feeds["b1"], "w2": d2, "b2": feeds["b2"]}
    for rows in (1, 5, 30):
        given = [floats(rows, h, seed=rows), floats(rows, E, seed=rows + 1)]
        near(reference(*given, w, 2, "swiglu", 2, normalized=normalized), net.run(given, "-O2")[0])
    assert net.compile("-O2").stat().st_size < net.path.stat().st_size * 1.1 + 300_000


@pytest.mark.parametrize("op", ["MoE", "QMoE"])
def test_read_where_they_lie(tmp_path, op):
    """Weights of all experts lie in panels once, and products read the chosen one's there: nothing of them goes through memory."""
    h = i = 256
    rng = np.random.default_rng(1)
    if op == "MoE":
        w = {k: v for k, v in layers(False, False, e=8, h=h, i=i).items() if v is not None}
        w = {"w1": w["w1"], "b1": None, "w2": w["w2"]}
        form = {}
    else:
        b1, s1, _, _ = packed(rng, 4, 8, i, h, 32, False)
        b2, s2, _, _ = packed(rng, 4, 8, h, i, 32, False)
        w, form = {"w1": b1, "s1": s1, "b1": None, "w2": b2, "s2": s2}, dict(block_size=32)
    net, _ = contrib(tmp_path, op, {"x": floats(4, h), "r": floats(4, 8), **w}, constants=[k for k, v in w.items() if v is not None], symbolic="inner",
                     standard=21, k=2, **form)
    plan = net.folder / "plan.txt"
    done = mcc(net.path, "-march=x86-64-v4", "-stop-after=plan", "-o", plan)
    assert done.returncode == 0, done.stderr
    stored = [line for line in plan.read_text().splitlines() if line.startswith("value ") and " weights " in line and "/ 16" in line]
    assert len(stored) == (2 if op == "MoE" else 4), stored    # with the blocks' scales
    size = net.compile("-O2").stat().st_size
    assert size < net.path.stat().st_size * 1.05 + 200_000


def test_refused(tmp_path):
    """What has no lowering, or says nothing that fits together, with a word each."""
    def said(op="MoE", shapes=None, **form):
        w = layers(False) | (shapes or {})
        net, _ = contrib(tmp_path, op, {"x": floats(4, H), "r": floats(4, E), **w}, constants=list(w), symbolic="inner", standard=21, **form)
        return mcc(net.path, "-o", net.folder / "net.so").stderr

    assert "7 of 6 experts" in said(k=7)
    assert 'activation_type "tanh"' in said(activation_type="tanh")
    assert "swiglu without swiglu_fusion" in said(activation_type="swiglu")
    assert "layers of 32 to 48 and 40 to 32 for rows of 32" in said(shapes={"w2": floats(E, H, 40)})
    assert "weights of rank 2" in said(shapes={"w2": floats(E, H)})
    for n in (E - 1, E + 1):
        assert f"layers of 6 and {n} experts" in said(shapes={"w2": floats(n, H, I), "b2": floats(n, H)})
        assert f"layers of 6 and {n} experts" in said(activation_type="silu", shapes={"w3": floats(n, I, H)})
    b1, s1, _, _ = packed(np.random.default_rng(1), 4, E, I, H, 0, False)
    b2, s2, _, _ = packed(np.random.default_rng(2), 4, E, H, I, 0, False)
    none = dict.fromkeys(["b2", "w3", "s3", "b3", "z1", "z2", "z3"])
    f8, e = (lambda x: x.astype(ml_dtypes.float8_e4m3fn)), np.ones(E, F)
    for changed, form, why in (({"s1": None}, {}, "weights of layer 1 without scales"), ({"s2": None}, {}, "weights of layer 2 without scales"),
                               ({"w1": f8(b1), "w2": f8(b2)}, {}, 'weights of f8e4m3fn for quant_type "int"'),
                               ({}, {"quant_type": "fp8"}, "zero points, or scales without block_size"),
                               ({}, {"quant_type": "fp8", "block_size": 16}, 'weights of u8 for quant_type "fp8"'),
                               ({"w1": f8(b1), "w2": f8(b2), "s1": None}, {"quant_type": "fp8", "block_size": 16}, "weights of layer 1 without scales"),
                               ({}, {"quant_type": "fp4"}, 'quant_type "fp4"'), ({"by": None, "g1": e}, {}, "operand 15 scales floats"),
                               ({}, {"weights_prepacked": 1}, "prepacked for a GPU"), ({}, {"expert_weight_bits": 3}, "the weights have 3 bits")):
        feeds = {"x": floats(4, H), "r": floats(4, E), "w1": b1, "s1": s1, "b1": None, "w2": b2, "s2": s2, **none, **changed}
        net, _ = contrib(tmp_path, "QMoE", feeds, constants=[k for k, v in feeds.items() if v is not None and k not in "xr"], symbolic="inner", standard=21,
                         k=2, **form)
        assert why in mcc(net.path, "-o", net.folder / "net.so").stderr, why
    for by, why in ((floats(4, E + 1), "dimension 1 of router_weights"), (floats(E), "router_weights of rank 1")):
        feeds = {"x": floats(4, H), "r": floats(4, E), "w1": b1, "s1": s1, "b1": None, "w2": b2, "s2": s2, **none, "by": by}
        net, _ = contrib(tmp_path, "QMoE", feeds, constants=["w1", "s1", "w2", "s2"], symbolic="inner", standard=21, k=2)
        assert why in mcc(net.path, "-o", net.folder / "net.so").stderr


@pytest.mark.parametrize("op", ["Gather", "GatherND"])
@pytest.mark.parametrize("turned", [False, True])
def test_fetched(tmp_path, op, turned):
    """Matrices that a Gather fetches for rows of one product each, as exporters write experts: indices from the end, and none; those out of range fail."""
    e, k, n = 8, 128, 160
    w = floats(e, n, k) if turned else floats(e, k, n)
    shape = ["rows", k, 1] if turned else ["rows", 1, k]
    nodes = [node("Gather", "w at", "m")] if op == "Gather" else [node("Reshape", "at column", "two"), node("GatherND", "w two", "m")]
    net = Model(tmp_path, [*nodes, node("MatMul", "m x" if turned else "x m", "y")], [value("x", shape), value("at", ["rows"], T.INT64)],
                [value("y", [None] * 3)], {"w": w, **({"column": np.array([-1, 1], np.int64)} if op == "GatherND" else {})})
    for rows in (1, 2, 11):
        at = np.random.default_rng(rows).integers(-e, e, rows)
        x = floats(*[rows if d == "rows" else d for d in shape])
        got = net.run([x, at], "-O2")[0]
        near(w[at] @ x if turned else x @ w[at], got)
    plan = net.folder / "plan.txt"
    assert mcc(net.path, "-march=x86-64-v4", "-stop-after=plan", "-o", plan).returncode == 0
    assert sum(line.startswith("value ") and " weights " in line and "/ 16" in line for line in plan.read_text().splitlines()) == 1
    with pytest.raises(Exception, match="index"):
        net.run([floats(*[1 if d == "rows" else d for d in shape]), np.array([e])], "-O2")


def test_rows_alone(tmp_path):
    """--strict: a token's bits do not depend on the others, few or many to an expert."""
    rng = np.random.default_rng(3)
    h, i = 64, 96
    b1, s1, _, _ = packed(rng, 4, E, i, h, 32, False)
    b2, s2, _, _ = packed(rng, 4, E, h, i, 32, False)
    feeds = {"x": floats(4, h), "r": floats(4, E), "w1": b1, "s1": s1, "b1": None, "w2": b2, "s2": s2}
    net, _ = contrib(tmp_path, "QMoE", feeds, constants=["w1", "s1", "w2", "s2"], symbolic="inner", standard=21, k=2, block_size=32, activation_type="silu")
    x, router = floats(60, h, seed=1), floats(60, E, seed=2)
    whole = net.run([x, router], "-O2", "--strict")[0]
    for row in range(0, 60, 7):
        np.testing.assert_array_equal(net.run([x[row:row + 1], router[row:row + 1]], "-O2", "--strict")[0], whole[row:row + 1])


def test_no_rows_known(tmp_path):
    """No tokens, as the file says: no loop can go through what nobody chose."""
    net, feeds = contrib(tmp_path, "MoE", {"x": floats(0, H), "r": floats(0, E), **layers(False)}, constants=list(layers(False)), symbolic=False, standard=21)
    assert net.run(feeds, "-O2")[0].shape == (0, H)
    net = Model(tmp_path, [node("Gather", "w at", "m"), node("MatMul", "x m", "y")], [value("x", [0, 1, 128]), value("at", [0], T.INT64)],
                [value("y", [None] * 3)], {"w": floats(8, 128, 160)})
    assert net.run([floats(0, 1, 128), np.zeros(0, np.int64)], "-O2")[0].shape == (0, 1, 160)

"""com.microsoft LinearAttention, its gate, and CausalConvWithState, beside ONNX Runtime."""
import numpy as np
import pytest

from support.compare import floats
from support.contrib import contrib

F = np.float32


def near(want, got, scale=2e-5):
    assert want.shape == got.shape and want.dtype == got.dtype, (want.shape, got.shape)
    far = np.abs(want.astype(F) - got.astype(F)).max(initial=0) / max(np.abs(want.astype(F)).max(initial=0), 1e-30)
    assert far < scale, far


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("heads", [(2, 2, 2), (4, 2, 2), (2, 2, 4), (2, 4, 4), (4, 1, 2)])
def test_linear_attention(tmp_path, rule, heads):
    """Prompts and single tokens after a state; heads of queries, keys and states, of which one shares another; decay by head and by element."""
    (hq, keys, hk), dk, dv, batch = heads, 8, 16, 2

    def unit(*shape, seed):
        x = floats(*shape, dk, seed=seed)
        return (x / np.linalg.norm(x, axis=-1, keepdims=True)).reshape(batch, -1, shape[-1] * dk).astype(F)

    for wide in (1, dk):
        def feeds(steps):
            beta = 1 / (1 + np.exp(-floats(batch, steps, hk, seed=5)))
            all = {"q": unit(batch, steps, hq, seed=1), "k": unit(batch, steps, keys, seed=2), "v": floats(batch, steps, hk * dv, seed=3),
                   "s": floats(batch, hk, dk, dv, seed=6), "g": -np.abs(floats(batch, steps, hk * wide, seed=4)) if "gated" in rule else None,
                   "b": beta.astype(F) if "delta" in rule else None}
            return {k: v for k, v in all.items() if v is not None or k != "b"}

        net, _ = contrib(tmp_path, "LinearAttention", feeds(3), n_out=2, symbolic="inner", standard=21, outputs=[1, 1], q_num_heads=hq, kv_num_heads=hk,
                         update_rule=rule)
        for steps in (1, 7):
            given = [v for v in feeds(steps).values() if v is not None]
            for want, got in zip(net.want(given), net.run(given, "-O2")):
                near(want, got)


def test_gate(tmp_path):
    feeds = {"a": floats(2, 3, 4), "dt": floats(4), "scale": floats(4), "b": floats(2, 3, 4)}
    net, _ = contrib(tmp_path, "LinearAttentionGate", feeds, n_out=2, standard=21, outputs=[1, 1])
    given = [floats(2, 5, 4, seed=1) * F(30), floats(4, seed=2), -np.abs(floats(4, seed=3)), floats(2, 5, 4, seed=4)]
    for want, got in zip(net.want(given), net.run(given, "-O2")):
        near(want, got)


@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
def test_gated_norm(tmp_path, activation):
    """Heads of a packed row have the scales' length; the last rank is that of one head."""
    for shape in ((2, 5, 24), (3, 8)):
        net, _ = contrib(tmp_path, "GatedRMSNorm", {"x": floats(*shape), "scale": floats(8), "gate": floats(*shape)}, standard=21, symbolic=True,
                         activation=activation, epsilon=1e-3)
        given = [floats(*shape, seed=1) * F(0.1), floats(8, seed=2), floats(*shape, seed=3) * F(4)]
        near(net.want(given)[0], net.run(given, "-O2")[0])


def test_gated_add(tmp_path):
    net, _ = contrib(tmp_path, "GatedAdd", {"x": floats(2, 5, 4), "y": floats(2, 5, 4), "gate": floats(2, 5, 1)}, standard=21, symbolic=True)
    given = [floats(2, 5, 4, seed=1), floats(2, 5, 4, seed=2), floats(2, 5, 1, seed=3)]
    near(net.want(given)[0], net.run(given, "-O2")[0])


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("state", [False, True])
def test_causal_conv(tmp_path, last, dilation, state):
    """Channels before and after the positions, several dims of them; with and without a state, as long as the dilation makes it."""
    shape = lambda n: (2, n, 3, 2) if last else (2, 6, n)
    feeds = lambda n: {"x": floats(*shape(n), seed=1), "w": floats(6, 1, 4, seed=2), "bias": floats(6, seed=3),
                       "s": floats(*shape(3 * dilation), seed=4) if state else None}
    net, _ = contrib(tmp_path, "CausalConvWithState", feeds(5), constants=["w", "bias"], n_out=2, symbolic=True, standard=21, outputs=[1, 1], activation="silu",
                     **({"channels_last": 1} if last else {}), **({"dilation": dilation} if dilation > 1 else {}))
    for n in (1, 9):
        given = [v for k, v in feeds(n).items() if k in "xs" and v is not None]
        for want, got in zip(net.want(given), net.run(given, "-O2")):
            near(want, got)


@pytest.mark.parametrize("window", [1, 3, 8])
def test_windows_of_states(tmp_path, window):
    """The state after each of the last tokens, zeros where there are none, and the state before as the last one where there is no
    token at all: what ONNX Runtime, whose CPU kernels have one state, gives for as many tokens."""
    forms = {"LinearAttention": dict(q_num_heads=4, kv_num_heads=2, update_rule="delta"), "CausalConvWithState": dict(activation="silu"),
             "last": dict(channels_last=1, dilation=2)}
    for name, form in forms.items():
        op = "CausalConvWithState" if name == "last" else name

        def feeds(n):
            if op == name == "LinearAttention":
                return {"q": floats(2, n, 32, seed=1), "k": floats(2, n, 16, seed=2) / F(3), "v": floats(2, n, 8, seed=3),
                        "s": floats(2, 2, 8, 4, seed=4), "g": None, "b": (1 / (1 + np.exp(-floats(2, n, 2, seed=5)))).astype(F)}
            shape = (lambda n: (2, n, 3, 2)) if name == "last" else (lambda n: (2, 6, n))
            return {"x": floats(*shape(n), seed=1), "w": floats(6, 1, 4, seed=2), "bias": floats(6, seed=3),
                    "s": floats(*shape(6 if name == "last" else 3), seed=4)}

        along = 2 if name == "CausalConvWithState" else 1
        cut = lambda f, n: [np.take(x, range(n), along) if k in "qkvxb" else x for k, x in f.items() if x is not None and k not in ("w", "bias")]
        many = lambda f: f | {"s": np.concatenate([np.full((window - 1, *f["s"].shape), np.nan, F), f["s"][None]])}
        given = dict(n_out=2, standard=21, outputs=[1, 1], constants=["w", "bias"] if "Conv" in op else [], **form)
        given["symbolic"] = "inner" if op == "LinearAttention" else True
        plain, net = contrib(tmp_path, op, feeds(3), **given)[0], contrib(tmp_path, op, many(feeds(3)), state_window=window, **given)[0]
        for n in (0, 1, 2, 9):
            f = feeds(n)
            y, states = net.run(cut(many(f), n), "-O2")
            near(plain.want(cut(f, n))[0], y)
            assert states.shape == (window, *f["s"].shape)
            for k in range(window):
                tokens = n - window + 1 + k
                near(plain.want(cut(f, tokens))[1] if tokens > 0 or tokens == n else np.zeros_like(f["s"]), states[k])


def test_windows_refused(tmp_path):
    form = dict(n_out=2, symbolic="inner", standard=21, outputs=[1, 1])
    x = {"x": floats(2, 6, 5), "w": floats(6, 1, 4), "bias": None, "s": floats(3, 2, 6, 3)}
    assert "state_window 9" in contrib(tmp_path, "CausalConvWithState", x, state_window=9, **form)[0].refused()
    net, given = contrib(tmp_path, "CausalConvWithState", x, state_window=2, **form)
    with pytest.raises(Exception, match="state_window states"):
        net.run(given, "-O2")


def test_causal_conv_refused(tmp_path):
    """Several spatial dims, and states that are longer or shorter than the kernel reaches, known and not."""
    def net(**form):
        feeds = {"x": floats(2, 6, 5), "w": floats(6, 1, 4), "bias": None, "s": floats(2, 6, 3)}
        return contrib(tmp_path, "CausalConvWithState", feeds | form.pop("other", {}), constants=["w"], n_out=2, standard=21, outputs=[1, 1], **form)[0]

    assert "ndim 2: several spatial dims" in net(ndim=2).refused()
    for n in (2, 4):
        assert "past_state does not have" in net(symbolic=False, other={"s": floats(2, 6, n)}).refused()
        with pytest.raises(Exception, match="past_state does not have"):
            net().run([floats(2, 6, 5), floats(2, 6, n)], "-O2")

"""More forms that tests/bench/forms.py times, of classes that foreign networks brought: several operators, other domains, sizes of
their own. {name: Form}; a name begins with the class."""
import numpy as np

from form_table import Const, Form, N, c32, c64, conv, f32, i64, one, recurrent, rng_of


# ---- activations as exporters write them ----------------------------------------------------------------------------

def chain(x, constants, *steps):
    """A network of one input "x": steps are (operator, operands, result), the last result is the output."""
    return Form([N(op, operands.split(), [result]) for op, operands, result in steps], {"x": x},
                {k: np.float32(v) for k, v in constants.items()})


TANH_GELU = {"k": 0.044715, "r": (2 / np.pi) ** 0.5, "one": 1, "half": 0.5}
AFTER_CUBE = [("Mul", "c k", "d"), ("Add", "x d", "e"), ("Mul", "e r", "f"), ("Tanh", "f", "g"), ("Add", "g one", "h"), ("Mul", "x half", "i"),
              ("Mul", "i h", "y")]

ACTIVATIONS = {
    "Gelu by Erf 128x3072": chain(f32(128, 3072), {"r": 2 ** 0.5, "one": 1, "half": 0.5}, ("Div", "x r", "d"), ("Erf", "d", "e"),
                                  ("Add", "e one", "f"), ("Mul", "x f", "g"), ("Mul", "g half", "y")),
    "Gelu by Tanh and Pow 128x3072": chain(f32(128, 3072), TANH_GELU | {"three": 3}, ("Pow", "x three", "c"), *AFTER_CUBE),
    "Gelu by Tanh and Mul 128x3072": chain(f32(128, 3072), TANH_GELU, ("Mul", "x x", "b"), ("Mul", "b x", "c"), *AFTER_CUBE),
    "Pow cube 1M": one("Pow", f32(1024, 1024), c32(3)),
    "Pow -0.5 1M": one("Pow", np.abs(f32(1024, 1024)) + np.float32(0.1), c32(-0.5)),
    "Tanh 16K": one("Tanh", f32(16, 1024)),
}


# ---- convolutions ---------------------------------------------------------------------------------------------------

def spread(channels, size, dilation, kernel=3):
    """A convolution whose padding keeps the size."""
    return conv(f32(1, channels, size, size), f32(channels, channels, kernel, kernel) / np.float32(channels ** 0.5 * kernel),
                pads=[dilation * (kernel // 2)] * 4, dilations=[dilation] * 2)


def transposed(x, w, stride, pad=0, group=1):
    n = x.ndim - 2
    return conv(x, w, "ConvTranspose", strides=[stride] * n, pads=[pad] * 2 * n, group=group)


CONVOLUTIONS = {
    "Conv dilation 2 256 at 32": spread(256, 32, 2),
    "Conv dilation 4 128 at 28": spread(128, 28, 4),
    "Conv dilation 6 256 at 33": spread(256, 33, 6),
    "Conv dilation 12 256 at 16": spread(256, 16, 12),
    "Conv dilation 24 256 at 8": spread(256, 8, 24),
    "Conv dilation 24 256 at 32": spread(256, 32, 24),
    "Conv 1-D dilation 4 128 at 400": conv(f32(1, 128, 400), f32(128, 128, 3), pads=[4, 4], dilations=[4]),
    "Conv 3x3 256 at 1": spread(256, 1, 1),
    "Conv 3x3 256 at 2": spread(256, 2, 1),
    "Conv 3x3 256 at 1x2": conv(f32(1, 256, 1, 2), f32(256, 256, 3, 3), pads=[1] * 4),
    "ConvTranspose 1-D 4 stride 2 64 to 32 at 256": transposed(f32(1, 64, 256), f32(64, 32, 4), 2, 1),
    "ConvTranspose 1-D 16 stride 8 128 to 64 at 64": transposed(f32(1, 128, 64), f32(128, 64, 16), 8, 4),
    "ConvTranspose 1-D 3 stride 1 64 to 64 at 200": transposed(f32(1, 64, 200), f32(64, 64, 3), 1, 1),
    "ConvTranspose 1-D 4 stride 2 4 groups 64 at 128": transposed(f32(1, 64, 128), f32(64, 16, 4), 2, 1, 4),
    "ConvTranspose 1-D 3 stride 2 depthwise 64 at 128": transposed(f32(1, 64, 128), f32(64, 1, 3), 2, 1, 64),
    "ConvTranspose 3x3 stride 2 4 groups 32 at 14": transposed(f32(1, 32, 14, 14), f32(32, 8, 3, 3), 2, 1, 4),
    "ConvTranspose 3x3 stride 1 8 groups 64 at 14": transposed(f32(1, 64, 14, 14), f32(64, 8, 3, 3), 1, 1, 8),
    "ConvTranspose 5x5 stride 3 16 to 8 at 10": transposed(f32(1, 16, 10, 10), f32(16, 8, 5, 5), 3, 1),
    "ConvTranspose 4x4 stride 2 depthwise 21 at 16": transposed(f32(1, 21, 16, 16), f32(21, 1, 4, 4), 2, 1, 21),
    "ConvTranspose 3x3 stride 2 3 to 4 at 8": transposed(f32(1, 3, 8, 8), f32(3, 4, 3, 3), 2, 1),
}


# ---- recurrent layers of small batches --------------------------------------------------------------------------------

def quantized_lstm(steps, batch, width, hidden):
    """com.microsoft's DynamicQuantizeLSTM: weights of bytes, a scale and a zero point each."""
    rng = rng_of((steps, batch, width, hidden))
    draw = lambda n: rng.integers(-127, 128, (1, n, 4 * hidden)).astype(np.int8)
    constants = {"w": draw(width), "r": draw(hidden), "b": f32(1, 8 * hidden) / 8, "ws": np.full(1, 0.5 / width, np.float32), "wz": np.zeros(1, np.int8),
                 "rs": np.full(1, 0.5 / hidden, np.float32), "rz": np.zeros(1, np.int8)}
    node = N("DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"], ["y"], domain="com.microsoft", hidden_size=hidden)
    return Form([node], {"x": f32(steps, batch, width)}, constants, work=steps * batch * 4 * hidden * (width + hidden), close=1e-2)


def batches():
    for op, more in (("LSTM", {}), ("GRU", {"linear_before_reset": 1})):
        for batch in (2, 4, 8, 16):
            yield f"{op} 32 steps batch {batch} 128 to 128", recurrent(op, 32, batch, 128, 128, **more)
        for batch in (2, 3, 16):
            yield f"{op} open 32 steps batch {batch} 128 to 128", recurrent(op, 32, batch, 128, 128, ["steps", "batch", 128], **more)
    for batch in (1, 4):
        yield f"DynamicQuantizeLSTM 32 steps batch {batch} 128 to 128", quantized_lstm(32, batch, 128, 128)


# ---- spectra --------------------------------------------------------------------------------------------------------

def stft(samples, length, step):
    return one("STFT", f32(1, samples, 1), c64(step), Const(np.hanning(length + 1)[:-1].astype(np.float32)), Const(np.int64(length)), opset=17,
               work=((samples - length) // step + 1) * length * 2 * (length // 2 + 1))


def stft_by_conv(samples, length, step):
    return conv(f32(1, 1, samples), f32(2 * (length // 2 + 1), 1, length), strides=[step])


def dft(rows, length, **attributes):
    parts = 2 if attributes.get("inverse") else 1
    form = one("DFT", f32(rows, length, parts), axis=1, opset=17, **attributes)
    form.close = 1e-3       # ONNX Runtime's of 400 is 1e-4 off, by f32
    return form


SPECTRA = {
    "STFT 400 by 160 of 16000": stft(16000, 400, 160),
    "STFT 400 by 160 of 16000, as Conv": stft_by_conv(16000, 400, 160),
    "STFT 512 by 128 of 16000": stft(16000, 512, 128),
    "STFT 1024 by 256 of 48000": stft(48000, 1024, 256),
    "DFT 100 x 512, one side": dft(100, 512, onesided=1),
    "DFT 100 x 400": dft(100, 400),
    "DFT inverse 100 x 256": dft(100, 256, inverse=1),
    "DFT 8 x 4096": dft(8, 4096, onesided=1),
}


# ---- forests, experts -------------------------------------------------------------------------------------------------

def forest(rows, trees, leaves, depth, features=30, dims=None):
    """TreeEnsembleRegressor. depth: all trees are full down to it; None: leaf-wise, the leaf that is split next is drawn, often the newest."""
    rng, a = np.random.default_rng([rows, trees, leaves]), {}
    put = lambda **row: [a.setdefault(k, []).append(v) for k, v in row.items()]
    for tree in range(trees):
        split, ends, level = {}, [0], {0: 0}
        while len(ends) < leaves:
            k = ends.pop(0 if depth else -1 - int(rng.integers(min(len(ends), 3)) if rng.random() < 0.7 else rng.integers(len(ends))))
            split[k] = (n := len(level), n + 1)
            level |= {n: level[k] + 1, n + 1: level[k] + 1}
            ends += split[k]
        for k in level:
            yes, no = split.get(k, (0, 0))
            put(nodes_treeids=tree, nodes_nodeids=k, nodes_featureids=int(rng.integers(features)), nodes_modes="BRANCH_LEQ" if k in split else "LEAF",
                nodes_values=float(np.float32(rng.standard_normal())), nodes_truenodeids=yes, nodes_falsenodeids=no)
            if k not in split:
                put(target_treeids=tree, target_nodeids=k, target_ids=0, target_weights=float(np.float32(rng.standard_normal())))
    return Form([N("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **a)], {"x": f32(rows, features)}, {},
                {"x": dims or ["n", features]})


def experts(tokens, chosen, count, width, hidden):
    """A mixture of experts as GatherND of weights and products of one row each."""
    nodes = [N("Reshape", ["e", "column"], ["at"]), N("GatherND", ["w1", "at"], ["a"]), N("GatherND", ["w2", "at"], ["b"]),
             N("MatMul", ["x", "a"], ["h"]), N("Relu", ["h"], ["r"]), N("MatMul", ["r", "b"], ["y"])]
    rows = tokens * chosen
    return Form(nodes, {"x": f32(rows, 1, width), "e": i64(0, count, rows)},
                {"w1": f32(count, width, hidden) / np.float32(width ** 0.5), "w2": f32(count, hidden, width) / np.float32(hidden ** 0.5),
                 "column": np.array([-1, 1], np.int64)}, work=2 * rows * width * hidden)


OTHERS = {
    **{f"TreeEnsemble 500 of 6 levels, {n} rows": forest(n, 500, 64, 6) for n in (1, 256)},
    **{f"TreeEnsemble 200 of 10 levels, {n} rows": forest(n, 200, 1024, 10) for n in (1, 256)},
    **{f"TreeEnsemble 500 leaf-wise of 64, {n} rows": forest(n, 500, 64, None) for n in (1, 256)},
    "Experts 4 tokens, 2 of 8, 256 to 512": experts(4, 2, 8, 256, 512),
    "Experts 1 token, 2 of 16, 512 to 512": experts(1, 2, 16, 512, 512),
}

CLASSES = {**ACTIVATIONS, **CONVOLUTIONS, **dict(batches()), **SPECTRA, **OTHERS}

#!/usr/bin/env python3
"""Writes torch.npz: what PyTorch answers for the cases of test_conv_transpose.py and test_pad_squeeze_if.py.

usage: torch_references.py        (Debian's python3-torch: make deps-bench; run with the system's Python)

Weights and inputs are not stored: both sides draw them with drawn(). Of large outputs every 7th row and column is kept.
"""
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
# DCGAN's generator with its channels narrowed: (in, out, stride, pad), kernel 4
GENERATOR = [(100, 32, 1, 0), (32, 16, 2, 1), (16, 8, 2, 1), (8, 4, 2, 1), (4, 3, 2, 1)]
# (rank, in, out, groups, kernel, stride, pad, dilation, output_padding, bias)
LAYERS = [(1, 4, 6, 1, 3, 1, 0, 1, 0, True), (1, 4, 6, 2, 3, 2, 1, 1, 1, False), (1, 4, 6, 2, 3, 2, 1, 3, 2, True),
          (2, 10, 30, 2, 5, 1, 0, 1, 0, True), (2, 4, 6, 1, 3, 2, 1, 1, 1, True), (2, 4, 4, 4, 3, 2, 1, 1, 0, False),
          (2, 4, 8, 4, 3, 2, 0, 2, 1, True), (2, 3, 5, 1, 2, 3, 0, 1, 0, True), (2, 3, 5, 1, 1, 2, 0, 1, 1, True), (2, 2, 2, 2, 4, 2, 1, 1, 0, False),
          (3, 4, 6, 1, 3, 1, 1, 1, 0, True), (3, 4, 6, 2, 3, 2, 1, 2, 1, False)]
PADS = [(-2, 3), (3, -3), (-1, -2), (2, -4), (4, 4)]         # reflect on 5 elements


def drawn(seed, *shape):
    return (np.random.RandomState(seed).standard_normal(shape) * 0.3).astype(np.float32)


def layer_arrays(k):
    """x, w, bias or None of LAYERS[k]"""
    rank, cin, cout, groups, kernel, *_, bias = LAYERS[k]
    return drawn(k, 2, cin, *(5, 6, 4)[:rank]), drawn(100 + k, cin, cout // groups, *[kernel] * rank), drawn(200 + k, cout) if bias else None


def generator_arrays():
    """[(w, (scale, bias, mean, variance) or None)]"""
    out = []
    for k, (cin, cout, *_) in enumerate(GENERATOR):
        norm = None
        if k + 1 < len(GENERATOR):
            norm = (1 + drawn(20 + k, cout), drawn(30 + k, cout), drawn(40 + k, cout), 1 + np.abs(drawn(50 + k, cout)))
        out.append((drawn(10 + k, cin, cout, 4, 4), norm))
    return out


def decoder_arrays():
    """Two steps up: (transposed 2x2 stride 2, its bias, 3x3 over the concatenation, its bias)"""
    return [tuple(drawn(300 + 10 * k + j, *s) for j, s in enumerate(shapes)) for k, shapes in enumerate(
        [((16, 8, 2, 2), (8,), (8, 16, 3, 3), (8,)), ((8, 4, 2, 2), (4,), (4, 8, 3, 3), (4,))])]


def main():
    import torch
    f, t, out = torch.nn.functional, torch.from_numpy, {}
    for k, (rank, _, _, groups, _, stride, pad, dilation, extra, _) in enumerate(LAYERS):
        x, w, bias = layer_arrays(k)
        layer = (f.conv_transpose1d, f.conv_transpose2d, f.conv_transpose3d)[rank - 1]
        out[f"layer{k}"] = layer(t(x), t(w), None if bias is None else t(bias), stride, pad, extra, groups, dilation).numpy()
    y = t(drawn(1, 2, 100, 1, 1))
    for (w, norm), (_, _, stride, pad) in zip(generator_arrays(), GENERATOR):
        y = f.conv_transpose2d(y, t(w), None, stride, pad)
        if norm:
            scale, bias, mean, variance = map(t, norm)
            y = torch.relu(f.batch_norm(y, mean, variance, scale, bias, eps=1e-5))
    out["generator"] = torch.tanh(y).numpy()[:, :, ::7, ::7]
    y, skips = t(drawn(2, 2, 16, 5, 6)), [t(drawn(3, 2, 8, 10, 12)), t(drawn(4, 2, 4, 20, 24))]
    for (up, b1, w, b2), skip in zip(decoder_arrays(), skips):
        y = torch.cat([f.conv_transpose2d(y, t(up), t(b1), 2), skip], 1)
        y = torch.relu(f.conv2d(y, t(w), t(b2), padding=1))
    out["decoder"] = y.numpy()[:, :, ::7, ::7]
    for k, pads in enumerate(PADS):
        out[f"pad{k}"] = f.pad(torch.arange(5.0)[None, None], pads, mode="reflect").numpy()[0, 0]
    for name, shape in (("reflection4", (13, 47, 44, 1)), ("reflection5", (13, 1, 47, 44, 1))):
        padded = torch.nn.ReflectionPad3d((0, 0, -43, 0, 0, -46))(t(drawn(5, *shape)))
        out[name] = padded.squeeze(1).numpy()
    np.savez_compressed(HERE / "torch.npz", **out)


if __name__ == "__main__":
    main()

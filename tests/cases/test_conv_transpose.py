"""Transposed convolution: PyTorch's answers (torch.npz, made by torch_references.py), the table of output shapes, the full
product of forms compiled and compared with the definition, layouts, what is refused.

`definition` is the scatter form in double precision; torch.npz proves it first.
"""
import itertools

import numpy as np
import pytest
from onnx import TensorProto as T

from cases import torch_references as made
from support.compare import Model, difference, floats, node
from support.tool import ROOT, result, value

STORED = np.load(ROOT / "tests/cases/torch.npz")
F = np.float32
MODES = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def total_padding(x, w, strides, dilations, extra, mode, pads, wanted):
    """(begin, end) for each axis; totals may be negative."""
    rank, out = x.ndim - 2, []
    for i in range(rank):
        full = strides[i] * (x.shape[2 + i] - 1) + extra[i] + (w.shape[2 + i] - 1) * dilations[i] + 1
        if wanted is None and not mode.startswith("SAME"):
            out.append((pads[i], pads[rank + i]) if mode == "NOTSET" else (0, 0))
            continue
        total = full - (wanted[i] if wanted is not None else strides[i] * x.shape[2 + i])
        less = total // 2          # towards minus infinity: the extra row is at the end
        out.append((less, total - less) if mode == "SAME_UPPER" else (total - less, less))
    return out


def definition(x, w, bias=None, groups=1, strides=None, dilations=None, extra=None, mode="NOTSET", pads=None, wanted=None):
    rank = x.ndim - 2
    strides, dilations, extra = strides or [1] * rank, dilations or [1] * rank, extra or [0] * rank
    edges = total_padding(x, w, strides, dilations, extra, mode, pads or [0] * 2 * rank, wanted)
    full = [strides[i] * (x.shape[2 + i] - 1) + extra[i] + (w.shape[2 + i] - 1) * dilations[i] + 1 for i in range(rank)]
    room = [max(n - lo, n, n - lo - hi + max(lo, 0)) + max(-lo, 0) + max(-hi, 0) for n, (lo, hi) in zip(full, edges)]
    cin, per = x.shape[1] // groups, w.shape[1]
    wide = np.zeros((x.shape[0], per * groups, *room))
    for g in range(groups):
        for at in itertools.product(*map(range, w.shape[2:])):
            part = np.einsum("nc...,co->no...", x[:, g * cin:(g + 1) * cin].astype(np.float64), w[(slice(g * cin, (g + 1) * cin), slice(None)) + at])
            place = tuple(slice(max(-lo, 0) + k * d, max(-lo, 0) + k * d + s * (n - 1) + 1, s)
                          for k, d, s, n, (lo, _) in zip(at, dilations, strides, x.shape[2:], edges))
            wide[(slice(None), slice(g * per, (g + 1) * per)) + place] += part
    cut = tuple(slice(max(lo, 0), max(lo, 0) + n - lo - hi) for n, (lo, hi) in zip(full, edges))
    y = wide[(slice(None), slice(None)) + cut]
    return (y if bias is None else y + bias.reshape(1, -1, *[1] * rank)).astype(np.float32)


def attributes_of(k):
    rank, _, _, groups, _, stride, pad, dilation, extra, _ = made.LAYERS[k]
    return {"group": groups, "strides": [stride] * rank, "pads": [pad] * 2 * rank, "dilations": [dilation] * rank, "output_padding": [extra] * rank}


@pytest.mark.parametrize("k", range(len(made.LAYERS)))
def test_definition_is_torchs(k):
    x, w, bias = made.layer_arrays(k)
    a = attributes_of(k)
    got = definition(x, w, bias, a["group"], a["strides"], a["dilations"], a["output_padding"], pads=a["pads"])
    assert not difference(STORED[f"layer{k}"], got)


def test_torch_layers(tmp_path):
    """All in one network, batch and extents symbolic; every layout."""
    nodes, inputs, outputs, constants, feed = [], [], [], {}, []
    for k in range(len(made.LAYERS)):
        x, w, bias = made.layer_arrays(k)
        constants |= {f"w{k}": w} | ({} if bias is None else {f"b{k}": bias})
        nodes.append(node("ConvTranspose", f"x{k} w{k}" + ("" if bias is None else f" b{k}"), f"y{k}", f"layer{k}", **attributes_of(k)))
        inputs.append(value(f"x{k}", [f"n{k}", x.shape[1], *(f"d{k}_{i}" for i in range(x.ndim - 2))]))
        outputs.append(value(f"y{k}", [None] * x.ndim))
        feed.append(x)
    model = Model(tmp_path, nodes, inputs, outputs, constants)
    model.compare(feed, [STORED[f"layer{k}"] for k in range(len(made.LAYERS))], ["-O0", "-O2", "--layout=NHWC"])


def generator(folder):
    nodes, constants, x = [], {}, "x"
    for k, ((w, norm), (_, _, stride, pad)) in enumerate(zip(made.generator_arrays(), made.GENERATOR)):
        constants[f"w{k}"] = w
        nodes.append(node("ConvTranspose", f"{x} w{k}", f"t{k}", strides=[stride] * 2, pads=[pad] * 4))
        x = f"t{k}"
        if norm:
            constants |= {f"n{k}{i}": a for i, a in enumerate(norm)}
            nodes += [node("BatchNormalization", " ".join([x, *(f"n{k}{i}" for i in range(4))]), f"b{k}", epsilon=1e-5), node("Relu", f"b{k}", f"r{k}")]
            x = f"r{k}"
    return Model(folder, [*nodes, node("Tanh", x, "y")], [value("x", ["n", 100, 1, 1])], [value("y", ["n", 3, 64, 64])], constants)


def test_generator(tmp_path):
    """DCGAN's: 4, 8, 16, 32, 64; every layout gives PyTorch's answer."""
    model, x = generator(tmp_path), made.drawn(1, 2, 100, 1, 1)
    for flag in ("-O0", "-O2", "--layout=NCHW", "--layout=NHWC", "--layout=NC16c"):
        got = model.run([x], flag)[0]
        assert got.shape == (2, 3, 64, 64)
        assert not difference(STORED["generator"], got[:, :, ::7, ::7], atol=1e-4), flag


def test_no_stuffed_zeros_in_memory(tmp_path):
    """The workspace holds the feature maps (the two largest neighbours, with margins), not inputs stretched by the stride."""
    workspace = result("inspect", generator(tmp_path).compile("-O2"), "--dim=n=1")["workspace"]
    assert workspace["bytes"] < 4 * (16 * 34 * 34 + 16 * 18 * 18 + 16 * 66 * 66) * 2


def test_decoder(tmp_path):
    """A U-Net's way up: transposed 2x2 with stride 2, concatenation with what came down, 3x3."""
    nodes, constants, y = [], {}, "x"
    for k, arrays in enumerate(made.decoder_arrays()):
        constants |= {f"{n}{k}": a for n, a in zip(("up", "b", "w", "c"), arrays)}
        nodes += [node("ConvTranspose", f"{y} up{k} b{k}", f"u{k}", strides=[2, 2]), node("Concat", f"u{k} s{k}", f"j{k}", axis=1),
                  node("Conv", f"j{k} w{k} c{k}", f"v{k}", pads=[1] * 4), node("Relu", f"v{k}", f"r{k}")]
        y = f"r{k}"
    feed = [made.drawn(2, 2, 16, 5, 6), made.drawn(3, 2, 8, 10, 12), made.drawn(4, 2, 4, 20, 24)]
    inputs = [value("x", ["n", 16, "h", "w"]), value("s0", ["n", 8, "2*h", "2*w"]), value("s1", ["n", 4, "4*h", "4*w"])]
    model = Model(tmp_path, nodes, inputs, [value("r1", ["n", 4, None, None])], constants)
    specs = ["--input=x:f32[n,16,h,w]", "--input=s0:f32[n,8,2*h,2*w]", "--input=s1:f32[n,4,4*h,4*w]"]
    for flags in (["-O0", *specs], ["-O2", *specs], ["--layout=NCHW", *specs], ["--layout=NHWC", *specs]):
        assert not difference(STORED["decoder"], model.run(feed, *flags)[0][:, :, ::7, ::7], atol=1e-4), flags


TABLE = [([1, 1, 3, 3], [1, 2, 3, 3], {}, [1, 2, 5, 5]), ([1, 1, 3], [1, 2, 3], {}, [1, 2, 5]),
         ([1, 1, 3, 4, 5], [1, 2, 3, 3, 3], {}, [1, 2, 5, 6, 7]),
         ([1, 1, 3, 3], [1, 2, 3, 3], {"strides": [3, 2], "output_shape": [10, 8]}, [1, 2, 10, 8]),
         ([1, 1, 3, 3], [1, 2, 3, 3], {"strides": [3, 2], "output_padding": [1, 1]}, [1, 2, 10, 8]),
         ([1, 1, 3, 3], [1, 2, 3, 3], {"strides": [3, 2], "output_shape": [10, 8], "kernel_shape": [3, 3], "output_padding": [1, 1]}, [1, 2, 10, 8]),
         ([1, 1, 3, 3], [1, 2, 3, 3], {"strides": [3, 2], "pads": [1, 2, 1, 2]}, [1, 2, 7, 3]),
         ([1, 1, 3, 3], [1, 1, 2, 2], {"dilations": [2, 2]}, [1, 1, 5, 5]),
         ([1, 1, 3, 3], [1, 2, 3, 3], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, [1, 2, 6, 6]),
         ([1, 2, 3, 3], [2, 1, 3, 3], {"group": 2}, [1, 2, 5, 5]), ([3, 2, 3, 3], [2, 1, 3, 3], {"group": 2}, [3, 2, 5, 5]),
         ([1, 1, 4, 4], [1, 1, 3, 3], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, [1, 1, 8, 8]),
         ([1, 2, 3, 3], [2, 1, 3, 3], {"strides": [2, 2], "auto_pad": "SAME_UPPER", "output_padding": [1, 1]}, [1, 1, 6, 6]),
         ([0, 1, 3, 3], [1, 2, 3, 3], {}, [0, 2, 5, 5]), ([1, 3, 1, 1], [3, 2, 4, 4], {}, [1, 2, 4, 4]),
         ([1, 1, 3, 3], [1, 1, 2, 2], {"strides": [4, 4]}, [1, 1, 10, 10]),
         ([1, 1, 3, 3], [1, 1, 2, 2], {"strides": [4, 4], "auto_pad": "SAME_LOWER"}, [1, 1, 12, 12]),
         ([1, 1, 3, 3], [1, 1, 3, 3], {"strides": [2, 2], "output_padding": [3, 2]}, [1, 1, 10, 9])]


def wanted_of(x, w, a):
    return definition(x, w, None, a.get("group", 1), a.get("strides"), a.get("dilations"), a.get("output_padding"), a.get("auto_pad", "NOTSET"),
                      a.get("pads"), a.get("output_shape"))


def test_shape_table(tmp_path):
    """Shapes as listed, values by the definition; derived totals are halved towards minus infinity."""
    feed, nodes, constants, want = [], [], {}, []
    for k, (x, w, attributes, shape) in enumerate(TABLE):
        feed.append(floats(*x, seed=k))
        constants[f"w{k}"] = floats(*w, seed=50 + k)
        nodes.append(node("ConvTranspose", f"x{k} w{k}", f"y{k}", f"row{k}", **attributes))
        want.append(wanted_of(feed[k], constants[f"w{k}"], attributes))
        assert list(want[k].shape) == shape, (k, want[k].shape)
    model = Model(tmp_path, nodes, [value(f"x{k}", x.shape) for k, x in enumerate(feed)],
                  [value(f"y{k}", w.shape) for k, w in enumerate(want)], constants)
    model.compare(feed, want)


@pytest.mark.parametrize("rank, groups", list(itertools.product((1, 2, 3), (1, 2))))
def test_full_product(rank, groups, tmp_path):
    """auto_pad x stride x dilation x bias x output_padding, extent 8 (4 for rank 3), kernel 3, compiled: 64 layers in one network."""
    x = floats(2, 4, *[4 if rank == 3 else 8] * rank)
    nodes, constants, want = [], {}, []
    for k, (mode, stride, dilation, bias, extra) in enumerate(itertools.product(MODES, (1, 2), (1, 2), (False, True), (0, 1))):
        w, b = floats(4, 6 // groups, *[3] * rank, seed=k), floats(6, seed=100 + k) if bias else None
        constants |= {f"w{k}": w} | ({f"b{k}": b} if bias else {})
        pads = [1] * rank + [0] * rank if mode == "NOTSET" else None
        nodes.append(node("ConvTranspose", f"x w{k}" + (f" b{k}" if bias else ""), f"y{k}", f"form{k}", auto_pad=mode, group=groups,
                          strides=[stride] * rank, dilations=[dilation] * rank, output_padding=[extra] * rank, **({"pads": pads} if pads else {})))
        want.append(definition(x, w, b, groups, [stride] * rank, [dilation] * rank, [extra] * rank, mode, pads))
    model = Model(tmp_path, nodes, [value("x", x.shape)], [value(f"y{k}", w.shape) for k, w in enumerate(want)], constants)
    model.compare([x], want, flags=["-O2"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attributes, word", [({"pads": [9, 9, 9, 9]}, "pads"), ({"pads": [-1, 0, 0, 0]}, "pads"), ({"group": 2}, "group")])
def test_refused(attributes, word, tmp_path):
    """Pads larger than the result, negative pads, groups that do not divide."""
    model = Model(tmp_path, [node("ConvTranspose", "x w", "y", **attributes)], [value("x", [1, 3, 4, 4])], [value("y", [1, None, None, None])],
                  {"w": floats(3, 2, 3, 3)})
    text = model.refused()
    assert "ConvTranspose" in text and word in text, text


def test_a_half_type(tmp_path):
    x, w = floats(1, 4, 5, 5).astype(np.float16), floats(4, 3, 3, 3, seed=1).astype(np.float16)
    model = Model(tmp_path, [node("ConvTranspose", "x w", "y", strides=[2, 2])], [value("x", ["n", 4, 5, 5], T.FLOAT16)],
                  [value("y", ["n", 3, None, None], T.FLOAT16)], {"w": w})
    model.compare([x], [definition(x, w, strides=[2, 2]).astype(np.float16)], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kernel,stride,pads,extra,groups,channels", [
    ((2, 2), (2, 2), (0, 0, 0, 0), (0, 0), 1, 24), ((4, 4), (2, 2), (1, 1, 1, 1), (0, 0), 1, 32), ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1, 5),
    ((5, 4), (3, 2), (2, 0, 1, 1), (1, 0), 2, 6), ((4, 2), (4, 1), (0, 1, 3, 0), (0, 0), 2, 16), ((6, 3), (2, 3), (5, 0, 2, 1), (1, 0), 3, 3)])
def test_phases_of_any_size(kernel, stride, pads, extra, groups, channels, tmp_path):
    """A stride is made of ordinary convolutions, whatever the sizes: nothing is dilated."""
    attributes = {"kernel_shape": list(kernel), "strides": list(stride), "pads": list(pads), "output_padding": list(extra), "group": groups}
    w, bias = floats(2 * groups, channels, *kernel, seed=3), floats(channels * groups, seed=4)
    nodes = [node("Relu", "x", "r"), node("ConvTranspose", "r w b", "c", **attributes), node("LeakyRelu", "c", "y")]
    model = Model(tmp_path, nodes, [value("x", ["n", 2 * groups, "h", "q"])], [value("y", None)], {"w": w, "b": bias})
    assert "xdil=[1, 1]" in model.dump("legalize") and not any(f"xdil=[{a}, {b}]" in model.dump("legalize") for a, b in [stride])
    for n, h, q in ((1, 6, 6), (2, 5, 9), (1, 17, 4)):
        x = floats(n, 2 * groups, h, q, seed=h)
        y = definition(np.maximum(x, 0), w, bias, groups, list(stride), extra=list(extra), pads=list(pads))
        model.compare([x], [np.where(y < 0, F(0.01) * y, y)])

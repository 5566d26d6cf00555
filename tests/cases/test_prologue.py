"""Maps in front of a convolution whose operand has other readers too: computed where a Winograd kernel's tiles read it, or rows at a time."""
import numpy as np
import pytest
from onnx import TensorProto, helper

from support.artifact import Artifact
from support.tool import mcc, save, value

RNG = np.random.default_rng(8)
C, SAID, ROWS = 32, "operand computed where tiles read it", " tiles at a time"


def arrays(*names):
    shape = {"w0": (C, 16, 1, 1), "w": (48, C, 3, 3), "s": (1, C, 1, 1), "b": (1, C, 1, 1), "four": (4, C)}
    return {k: (RNG.standard_normal(shape[k]) * (0.3 if k == "w0" else 1) + (k == "b")).astype(np.float32) for k in names}


def block(maps, more=(), pads=(1, 1, 1, 1), size=(18, 23), inputs=(), batch=1, weights="w"):
    """conv -> x; maps: x -> r; r -> 3x3 -> y; x is a result too. The arguments of save."""
    nodes = [helper.make_node("Conv", ["in", "w0"], ["x"], "first"), *maps, *more,
             helper.make_node("Conv", ["r", weights], ["y"], "conv", pads=pads), helper.make_node("Relu", ["x"], ["z"], "other")]
    h, w = size
    out = [h + pads[0] + pads[2] - 2, w + pads[1] + pads[3] - 2] if isinstance(h, int) else ["h2", w + pads[1] + pads[3] - 2]
    return nodes, [value("in", [batch, 16, h, w]), *inputs], [value("y", [batch, 48, *out]), value("z", [batch, C, h, w])]


def batchnorm():
    names = ("g", "be", "m", "v")
    node = [helper.make_node("BatchNormalization", ["x", *names], ["n"], "norm"), helper.make_node("Relu", ["n"], ["r"], "act")]
    return node, {k: a.astype(np.float32) for k, a in zip(names, (RNG.uniform(0.5, 1.5, C), RNG.uniform(0.2, 1, C), RNG.standard_normal(C),
                                                                   RNG.uniform(0.5, 2, C)))}


def compiled(model, out, *flags):
    done = mcc(model, "-o", out, *([] if any("-march" in f for f in flags) else ["-march=native"]), "-Rpass-analysis=schedule", *flags)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    return done.stderr


def agrees(model, *flags):
    """With the interpreter."""
    done = mcc("diff", model, "-march=native", *flags)
    assert done.returncode == 0, done.stdout + done.stderr


def results(path, shape, *more):
    with Artifact(path) as a:
        return a.run([np.random.default_rng(9).standard_normal(shape).astype(np.float32), *more])


@pytest.mark.parametrize("form,pads,size", [(2, (1, 1, 1, 1), (18, 23)), (4, (0, 0, 0, 0), (14, 14)), (6, (2, 0, 1, 3), (9, 11)),
                                            (4, (1, 1, 1, 1), (3, 5)), (6, (1, 1, 1, 1), (20, 20))])
def test_same_bits(tmp_path, form, pads, size):
    """As with a kernel of its own, edges included, where the map of 0 is not 0; and right."""
    maps, constants = batchnorm()
    model = save(tmp_path / "m.onnx", *block(maps, pads=pads, size=size), {**constants, **arrays("w0", "w")})
    assert SAID in compiled(model, tmp_path / "in.so", f"--choose=conv:winograd={form}")
    assert SAID not in compiled(model, tmp_path / "stored.so", f"--choose=conv:winograd={form}", "--choose=act:store=yes")
    for a, b in zip(results(tmp_path / "in.so", (1, 16, *size)), results(tmp_path / "stored.so", (1, 16, *size))):
        assert np.array_equal(a, b)
    agrees(model, f"--choose=conv:winograd={form}")


@pytest.mark.parametrize("taps,more,pads,size", [
    ((3, 3), {"strides": [2, 2]}, (1, 1, 1, 1), (56, 23)), ((3, 3), {"dilations": [2, 3]}, (2, 3, 2, 3), (30, 17)), ((5, 5), {}, (2, 0, 1, 3), (19, 33)),
    ((1, 7), {"strides": [1, 3]}, (0, 3, 0, 3), (40, 40)), ((3, 2), {"strides": [3, 1], "dilations": [4, 1]}, (5, 1, 0, 0), (31, 12)),
    ((3, 3), {"group": C}, (1, 1, 1, 1), (28, 28)), ((5, 5), {"group": C, "strides": [2, 2]}, (2, 1, 2, 2), (41, 29)),
    ((3, 3), {"group": C, "dilations": [3, 3]}, (7, 0, 3, 9), (14, 14))])
@pytest.mark.parametrize("cpu", ["native", "x86-64-v2"])
def test_rows(tmp_path, taps, more, pads, size, cpu):
    """Strides, dilations, taps, depthwise: the bits of a map with a kernel of its own, rows beside the image included; and right."""
    maps, constants = batchnorm()
    out = 40 if "group" not in more else C
    nodes = [helper.make_node("Conv", ["in", "w0"], ["x"], "first"), *maps, helper.make_node("Conv", ["r", "w"], ["c"], "conv", pads=pads, **more),
             helper.make_node("GlobalAveragePool", ["c"], ["y"]), helper.make_node("Relu", ["x"], ["z"], "other"), helper.make_node("Conv", ["c", "p"], ["u"])]
    tensors = {**constants, **arrays("w0"), "w": RNG.standard_normal((out, C // more.get("group", 1), *taps)).astype(np.float32),
               "p": RNG.standard_normal((8, out, 1, 1)).astype(np.float32)}
    model = save(tmp_path / "m.onnx", nodes, [value("in", [2, 16, *size])],
                 [value("y", [2, out, 1, 1]), value("z", [2, C, *size]), value("u", [2, 8, "a", "b"])], tensors)
    shape, plain = (2, 16, *size), ["--winograd=off", f"-march={cpu}"]
    assert ROWS in compiled(model, tmp_path / "in.so", *plain)
    assert "for 3 tiles at a time" in compiled(model, tmp_path / "three.so", *plain, "--choose=conv:chunk=3", "--choose=conv:tile=1x2x1")
    assert ROWS not in compiled(model, tmp_path / "stored.so", *plain, "--choose=act:store=yes")
    for a, b, c in zip(*(results(tmp_path / f"{name}.so", shape) for name in ("in", "stored", "three"))):
        assert np.array_equal(a, b) or (a.shape[2:] == (1, 1) and np.allclose(a, b, rtol=1e-4, atol=1e-4))   # a mean may be summed by rows
        assert np.allclose(c, b, rtol=1e-4, atol=1e-4)
    agrees(model, "--winograd=off")


def test_symbolic_sizes(tmp_path):
    """Rows and images known only at run time, a factor for each channel of each image; none at all."""
    gate = [helper.make_node("GlobalAveragePool", ["x"], ["mean"]), helper.make_node("Sigmoid", ["mean"], ["gate"]),
            helper.make_node("Mul", ["x", "gate"], ["r"], "act")]
    model = save(tmp_path / "m.onnx", *block(gate, size=("h", 19), batch="n"), arrays("w0", "w"))
    assert SAID in compiled(model, tmp_path / "m.so", "--choose=conv:winograd=4")
    for n, h in ((1, 1), (3, 4), (2, 13), (1, 50), (1, 0)):
        agrees(model, "--choose=conv:winograd=4", "--dim", f"n={n}", "--dim", f"h={h}")
    far = save(tmp_path / "far.onnx", *block(gate, size=("h", 19), batch="n", pads=(2, 1, 2, 1)), arrays("w0", "w"))
    assert SAID not in compiled(far, tmp_path / "far.so", "--choose=conv:winograd=4")     # results, and perhaps no element
    agrees(far, "--choose=conv:winograd=4", "--dim", "n=1", "--dim", "h=0")


def test_what_is_stored(tmp_path):
    """A dear map, two images to read, a caller's memory, a layout without blocks, no Winograd form."""
    maps, constants = batchnorm()
    plain, weights = {**constants, **arrays("w0", "w")}, arrays("w0", "w")
    tanh = [helper.make_node("Tanh", ["x"], ["r"], "act")]
    two = [helper.make_node("AveragePool", ["x"], ["p"], kernel_shape=[3, 3], pads=[1] * 4), helper.make_node("Add", ["x", "p"], ["r"], "act"),
           helper.make_node("Relu", ["p"], ["q"])]
    cases = {"tanh": (block(tanh), weights, []), "nchw": (block(maps), plain, ["--layout=NCHW"]), "off": (block(maps), plain, ["--winograd=off"])}
    nodes, inputs, outputs = block(two)
    cases["two"] = (nodes, inputs, [*outputs, value("q", [1, C, 18, 23])]), weights, []
    port = [helper.make_node("Relu", ["x"], ["r"], "act"), helper.make_node("Conv", ["r", "w"], ["y"], "conv", pads=[1] * 4),
            helper.make_node("Neg", ["x"], ["z"])]
    cases["port"] = (port, [value("x", [1, C, 18, 23])], [value("y", [1, 48, 18, 23]), value("z", [1, C, 18, 23])]), arrays("w"), []
    for name, (network, tensors, flags) in cases.items():
        model = save(tmp_path / f"{name}.onnx", *network, tensors)
        assert SAID not in compiled(model, tmp_path / f"{name}.so", *flags), name
        agrees(model, *flags)


def test_narrow_weights(tmp_path):
    """Weights of half the width stay so in the file, and take the same form."""
    maps, constants = batchnorm()
    weights = arrays("w0", "w")
    network = block(maps, [helper.make_node("Cast", ["half"], ["wide"], to=TensorProto.FLOAT)], weights="wide")
    model = save(tmp_path / "half.onnx", *network, {**constants, **weights, "half": weights["w"].astype(np.float16)})
    assert SAID in compiled(model, tmp_path / "half.so")
    agrees(model)


def test_weights_that_lie_otherwise(tmp_path):
    """Where something else needs the weights row-major, the kernel is no Winograd one after all, and still right."""
    maps, constants = batchnorm()
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["go"]), helper.make_node("Add", ["state", "state"], ["next"])], "body",
                             [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("state", [48, C, 3, 3])],
                             [value("go", [], TensorProto.BOOL), value("next", [48, C, 3, 3])])
    loop = [helper.make_node("Loop", ["trips", "", "w"], ["last"], "loop", body=body)]
    nodes, inputs, outputs = block(maps, loop, inputs=[value("trips", [], TensorProto.INT64)])
    model = save(tmp_path / "m.onnx", nodes, inputs, [*outputs, value("last", [48, C, 3, 3])], {**constants, **arrays("w0", "w")})
    compiled(model, tmp_path / "m.so")
    agrees(model)

"""Small networks of many kinds, each proved by the compiler as it is: what mutants are tried on."""
import numpy as np
import onnx
from onnx import helper

from cli import test_prove as proofs
from fuzz.ort.network import draw_network
from support.tool import DIGITS, save, value


def weights(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, [output], output, **attributes)


def block(path):
    """A transformer's block: normalization, two heads of attention, a gate of erf, residual sums; an open number of tokens."""
    data = {f"w{k}": weights(32, 32, seed=k) for k in range(4)} | {"u": weights(32, 64, seed=5), "d": weights(64, 32, seed=6), "s": weights(32, seed=7),
            "b": weights(32, seed=8), "heads": np.int64([0, 0, 2, 16]), "flat": np.int64([0, 0, 32]), "c": np.float32(0.25), "half": np.float32(0.5),
            "one": np.float32(1), "root": np.float32(0.70710678)}
    nodes = [node("LayerNormalization", ["x", "s", "b"], "n", axis=-1)]
    for k, name in enumerate("qkv"):
        nodes += [node("MatMul", ["n", f"w{k}"], name), node("Reshape", [name, "heads"], name + "r"),
                  node("Transpose", [name + "r"], name + "t", perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])]
    nodes += [node("MatMul", ["qt", "kt"], "scores"), node("Mul", ["scores", "c"], "scaled"), node("Softmax", ["scaled"], "p", axis=-1),
              node("MatMul", ["p", "vt"], "a"), node("Transpose", ["a"], "at", perm=[0, 2, 1, 3]), node("Reshape", ["at", "flat"], "ar"),
              node("MatMul", ["ar", "w3"], "o"), node("Add", ["o", "x"], "r"), node("LayerNormalization", ["r", "s", "b"], "m", axis=-1),
              node("MatMul", ["m", "u"], "up"), node("Mul", ["up", "root"], "e0"), node("Erf", ["e0"], "e1"), node("Add", ["e1", "one"], "e2"),
              node("Mul", ["up", "e2"], "e3"), node("Mul", ["e3", "half"], "e4"), node("MatMul", ["e4", "d"], "down"), node("Add", ["down", "r"], "y")]
    return save(path, nodes, [value("x", [1, "n", 32])], [value("y", [1, "n", 32])], data)


def mobile(path):
    """Depthwise and pointwise convolutions with steps, a gate of channels, an open batch."""
    data = {"w0": weights(16, 3, 3, 3), "b0": weights(16, seed=1), "w1": weights(16, 1, 3, 3, seed=2), "w2": weights(4, 16, 1, 1, seed=3),
            "w3": weights(16, 4, 1, 1, seed=4), "w4": weights(24, 16, 1, 1, seed=5), "w5": weights(24, 1, 5, 5, seed=6), "w6": weights(10, 24, seed=7)}
    nodes = [node("Conv", ["x", "w0", "b0"], "a", strides=[2, 2], pads=[1, 1, 1, 1]), node("HardSwish", ["a"], "b"),
             node("Conv", ["b", "w1"], "c", group=16, pads=[1, 1, 1, 1]), node("Relu", ["c"], "d"), node("GlobalAveragePool", ["d"], "e"),
             node("Conv", ["e", "w2"], "f"), node("Relu", ["f"], "g"), node("Conv", ["g", "w3"], "h"), node("HardSigmoid", ["h"], "i"),
             node("Mul", ["d", "i"], "j"), node("Conv", ["j", "w4"], "k"), node("Conv", ["k", "w5"], "l", group=24, strides=[2, 2], pads=[2, 2, 2, 2]),
             node("GlobalAveragePool", ["l"], "m"), node("Flatten", ["m"], "o"), node("Gemm", ["o", "w6"], "y", transB=1)]
    return save(path, nodes, [value("x", ["n", 3, 20, 20])], [value("y", ["n", 10])], data)


def decoder(path):
    """Up again: a transposed convolution, a resize, padding, slices that are joined, a mean over rows."""
    data = {"w0": weights(8, 6, 2, 2), "w1": weights(6, 6, 3, 3, seed=1), "to": np.float32([1, 1, 2, 2]), "p": np.int64([0, 0, 1, 2, 0, 0, 1, 0]),
            "s0": np.int64([1]), "e0": np.int64([1000]), "ax": np.int64([3]), "st": np.int64([2])}
    nodes = [node("ConvTranspose", ["x", "w0"], "a", strides=[2, 2]), node("LeakyRelu", ["a"], "b", alpha=0.25), node("Pad", ["b", "p"], "c"),
             node("Conv", ["c", "w1"], "d", dilations=[2, 1]), node("Resize", ["d", "", "to"], "e", mode="nearest"),
             node("Slice", ["e", "s0", "e0", "ax", "st"], "f"),
             node("Transpose", ["f"], "g", perm=[0, 2, 3, 1]), node("ReduceMean", ["g"], "h", axes=[1], keepdims=1), node("Sub", ["g", "h"], "i"),
             node("Concat", ["i", "g"], "j", axis=3), node("ReduceSum", ["j", "ax"], "y", keepdims=0)]
    return save(path, nodes, [value("x", [2, 8, 9, 7])], [value("y", None)], data, opset=17)


def products(path):
    """Products that are large enough for tiles, of one row and of many, of two values of the run."""
    data = {"w": weights(150, 210), "v": weights(70, 210, seed=1), "r": weights(70, 5, seed=3), "shape": np.int64([0, 7, 10])}
    nodes = [node("MatMul", ["x", "w"], "a"), node("Tanh", ["a"], "b"), node("Gemm", ["b", "v"], "c", transB=1), node("Sigmoid", ["c"], "d"),
             node("MatMul", ["d", "r"], "z"), node("Reshape", ["d", "shape"], "e"), node("Transpose", ["e"], "t", perm=[0, 2, 1]),
             node("MatMul", ["e", "t"], "y")]
    return save(path, nodes, [value("x", ["n", 150])], [value("z", ["n", 5]), value("y", ["n", 7, 7])], data)


def pools(path):
    """Pools with padding and steps, normalization of instances."""
    data = {"w": weights(12, 8, 3, 3), "s": weights(12, seed=1), "b": weights(12, seed=2)}
    nodes = [node("Conv", ["x", "w"], "a", strides=[2, 2], pads=[1, 1, 1, 1]), node("InstanceNormalization", ["a", "s", "b"], "i"),
             node("MaxPool", ["i"], "m", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
             node("AveragePool", ["i"], "v", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), node("Add", ["m", "v"], "y")]
    return save(path, nodes, [value("x", ["n", 8, 19, 22])], [value("y", None)], data)


OWN = [(proofs.mlp, []), (proofs.image, []), (proofs.image, ["--choose=conv2:winograd=6"]), (proofs.image, ["--layout=NHWC"]), (proofs.image, ["-O1"]),
       (proofs.attention, []), (proofs.attention, [proofs.SPANS]), (proofs.quantized, []), (block, []), (mobile, []), (decoder, []), (products, []),
       (pools, [])]


def networks(folder, drawn):
    """(name, path, options): the own ones, digits, and `drawn` seeds of random ones, from 1 on."""
    yield from own(folder)
    yield from random(folder, range(1, drawn + 1))


def own(folder):
    for i, (make, options) in enumerate(OWN):
        yield f"{make.__name__} {' '.join(options)}".strip(), make(folder / f"own{i}.onnx"), options
    yield "digits", DIGITS, []


def random(folder, seeds):
    for seed in seeds:
        if network := draw_network(seed):
            onnx.save(network.model, folder / f"{seed}.onnx")
            yield f"random {seed}", folder / f"{seed}.onnx", [f for f in network.flags if "march" not in f]

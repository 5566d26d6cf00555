"""Functions between two quantizers: all 256 bytes of each, both signs, on machines that look a table up in unlike ways.

The reference interpreter computes the table, so the compiled bytes are its bytes exactly. ONNX Runtime has functions of its own:
what lies close to the middle of two bytes may round the other way.
"""
import numpy as np
import pytest
from onnx import TensorProto as T

from support.compare import Model, interpreted, node
from support.cpu import levels
from support.tool import value

FUNCTIONS = {
    "sigmoid": [node("Sigmoid", "d", "e")],
    "tanh": [node("Tanh", "d", "e")],
    "exp": [node("Exp", "d", "e")],
    "erf": [node("Erf", "d", "e")],
    "hard_swish": [node("HardSwish", "d", "e")],
    "elu": [node("Elu", "d", "e", alpha=0.7)],
    "leaky_relu": [node("LeakyRelu", "d", "e", alpha=0.1)],
    "gelu": [node("Gelu", "d", "e")],
    "square_root": [node("Abs", "d", "a"), node("Sqrt", "a", "e")],
    "silu": [node("Sigmoid", "d", "a"), node("Mul", "d a", "e")],
    "silu_in_bytes": [node("Sigmoid", "d", "a"), node("QuantizeLinear", "a t w", "b"), node("DequantizeLinear", "b t w", "c"),
                      node("Mul", "d c", "e")],
    "constants": [node("Add", "d half", "a"), node("Tanh", "a", "b"), node("Mul", "b d", "c"), node("Sub", "half c", "e")],
}
X = np.stack([np.arange(257), np.arange(257)[::-1], np.arange(257) * 77]).astype(np.uint8)        # no whole vectors


def own(name, n):
    """The node with names of its own for what it computes."""
    shared = {"d", "t", "w", "half"}
    inputs, outputs = ([i if i in shared else f"{name}_{i}" for i in names] for names in (n.input, n.output))
    n = type(n).FromString(n.SerializeToString())
    del n.input[:], n.output[:]
    n.input.extend(inputs)
    n.output.extend(outputs)
    return n


def network(folder, x, zeros):
    nodes = [node("DequantizeLinear", "x s z", "d")]
    for name, chain in FUNCTIONS.items():
        nodes += [*(own(name, n) for n in chain), node("QuantizeLinear", f"{name}_e t w", name)]
    elem = T.UINT8 if x.dtype == np.uint8 else T.INT8
    constants = {"s": np.float32(0.04), "z": x.dtype.type(zeros[0]), "t": np.float32(0.03), "w": x.dtype.type(zeros[1]), "half": np.float32(0.5)}
    return Model(folder, nodes, [value("x", x.shape, elem)], [value(name, x.shape, elem) for name in FUNCTIONS], constants, opset=20)


@pytest.mark.parametrize("dtype,zeros", [("uint8", (131, 9)), ("int8", (-5, 3))])
def test_all_bytes(dtype, zeros, tmp_path):
    x = X.view(dtype)
    model = network(tmp_path, x, zeros)
    assert interpreted(model, [x]).returncode == 0
    want = [np.load(tmp_path / "eval" / f"{name}.npy") for name in FUNCTIONS]
    for name, w, theirs in zip(FUNCTIONS, want, model.want([x])):
        apart = np.abs(w.astype(int) - theirs)
        assert apart.max() <= 1 and (apart > 0).mean() < 0.02, f"{name}: {apart.max()} apart, {(apart > 0).sum()} of {apart.size}"
    for march in sorted({*levels(), "-march=native"}):
        for name, w, got in zip(FUNCTIONS, want, model.run([x], march)):
            assert (w == got).all(), f"{march} {name}: {(w != got).sum()} of {w.size} differ"


def test_each_is_one_table(tmp_path):
    """Chains through other bytes too; -O0 makes none."""
    model = network(tmp_path, X, (131, 9))
    assert model.dump("tabulate").count("= gather(") == len(FUNCTIONS)
    assert model.dump("tabulate", "-O0").count("= gather(") == 0

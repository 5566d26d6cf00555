"""--strassen=auto: large products as seven of halves (passes/graph/strassen.c): which are, what is off, and who stays as it is."""
import numpy as np
import pytest

from support.compare import Model, floats, node
from support.tool import value

FLAG = "--strassen=auto"


def mlp(folder, rows, inside, outside, batch=()):
    """Two products with a bias and an activation between them, of rows x outside."""
    nodes = [node("MatMul", "x w1", "h", "up"), node("Add", "h b1", "a"), node("Relu", "a", "r"), node("MatMul", "r w2", "o", "down"), node("Add", "o x", "y")]
    weights = {"w1": floats(outside, inside, scale=outside ** -0.5), "b1": floats(inside), "w2": floats(inside, outside, seed=1, scale=inside ** -0.5)}
    shape = [*batch, rows, outside]
    return Model(folder, nodes, [value("x", shape)], [value("y", shape)], weights), [floats(*shape, seed=2)], weights


def dots(model, *flags):
    return model.dump("strassen", *flags).count(" = dot(")


@pytest.mark.parametrize("rows, inside, batch, want", [
    (768, 1536, (), 14), (96, 1536, (8,), 14), (770, 3072, (), 14), (768, 768, (), 2), (767, 1536, (), 2), (766, 1536, (), 2), (768, 1552, (), 8)])
def test_which(rows, inside, batch, want, tmp_path):
    """The second product of 1552 steps is cut, the first of 1552 columns (no whole panels in a half) not."""
    model, *_ = mlp(tmp_path, rows, inside, 768, batch)
    assert dots(model, "-O2", FLAG) == want


@pytest.mark.parametrize("flags", [["-O2"], ["-O1", FLAG], ["-O2", FLAG, "--precision=bf16"], ["-O2", FLAG, "--weights-type=i8"]], ids=" ".join)
def test_left_alone(flags, tmp_path):
    assert dots(mlp(tmp_path, 768, 1536, 768)[0], *flags) == 2


@pytest.mark.parametrize("rows, inside, batch", [(768, 1536, ()), (384, 1600, (2,))])
def test_error(rows, inside, batch, tmp_path):
    """Under 1e-5 of the scale, as docs/numerics.md says."""
    model, feed, weights = mlp(tmp_path, rows, inside, 768, batch)
    x, w = feed[0].astype(np.float64), {k: v.astype(np.float64) for k, v in weights.items()}
    want = np.maximum(x @ w["w1"] + w["b1"], 0) @ w["w2"] + x
    got, = model.run(feed, "-O2", FLAG)
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()

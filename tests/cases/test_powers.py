"""Pow by a small constant: products and a square root in the place of a logarithm and an exponential, C's pow at the edges."""
import numpy as np
import pytest
from onnx import TensorProto as T

from support.compare import Model, floats, node
from support.tool import mcc, value

KINDS = {T.FLOAT: np.float32, T.DOUBLE: np.float64, T.FLOAT16: np.float16}
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-30, -1e-30, 3e38, 1e-42, 0.3, 2.5, 1e10, -1e10]


@pytest.mark.parametrize("elem", KINDS, ids=lambda e: T.DataType.Name(e))
@pytest.mark.parametrize("p", [-4, -3, -2.5, -2, -1.5, -1, -0.5, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4])
def test_power(p, elem, tmp_path):
    """Within two units of the last place of the exact power, signs and infinities as C's pow has them."""
    kind = KINDS[elem]
    with np.errstate(all="ignore"):
        x = np.concatenate([EDGES, np.exp(floats(300) * 3), -np.exp(floats(300, seed=1) * 3)]).astype(kind)
        exact = np.power(x.astype(np.longdouble), np.longdouble(p))
        want = exact.astype(kind)
    model = Model(tmp_path, [node("Pow", "x p", "y")], [value("x", ["n"], elem)], [value("y", ["n"], elem)],
                  {"p": np.array(p, np.float32)})
    for flag in ("-O0", "-O2"):
        got = model.run([x], flag)[0]
        finite = np.isfinite(want)
        assert np.array_equal(np.isnan(got), np.isnan(want)) and np.array_equal(got[~finite], want[~finite], equal_nan=True)
        assert np.array_equal(np.signbit(got[finite]), np.signbit(want[finite]))
        with np.errstate(all="ignore"):
            normal = finite & (np.abs(want) >= np.finfo(kind).smallest_normal)
            off = np.abs(got[finite].astype(np.longdouble) - exact[finite]) / np.spacing(np.maximum(np.abs(want[finite]), np.finfo(kind).smallest_normal))
        assert off[normal[finite]].max() <= 2 and off.max() <= 2


@pytest.mark.parametrize("p, few", [(3, True), (-1.5, True), (3.5, False), (7, False), (-3, False), (0.3, False)])
def test_what_is_computed(p, few, tmp_path):
    model = Model(tmp_path, [node("Pow", "x p", "y")], [value("x", ["n"])], [value("y", ["n"])], {"p": np.array(p, np.float32)})
    legal = mcc("-stop-after=legalize", model.path, "-o", "-").stdout
    assert (" pow(" in legal) != few

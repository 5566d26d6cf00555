"""Convolutions whose taps read padding only, or mostly: small maps and large dilations."""
import numpy as np
import pytest

from support.compare import Model, floats, node
from support.tool import mcc, value


def convolution(folder, channels, results, size, taps, batch=1, group=1, **attributes):
    w = floats(results, channels // group, *taps, scale=0.2)
    return Model(folder, [node("Conv", "x w b", "y", group=group, **attributes)], [value("x", [batch, channels, *size])],
                 [value("y", [batch, None, *[None] * len(size)])], {"w": w, "b": floats(results)})


@pytest.mark.parametrize("seed", range(30))
def test_drawn(seed, tmp_path):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    size, taps = rng.integers(1, 8, n), rng.integers(1, 5, n)
    dilations = rng.integers(1, 7, n)
    lo, hi = (rng.integers(0, taps * dilations + 1) for _ in range(2))
    hi = np.maximum(hi, (taps - 1) * dilations + 1 - size - lo)     # some result
    group = int(rng.choice([1, 1, 2]))
    model = convolution(tmp_path, 6, 4, size.tolist(), taps.tolist(), "n", group, pads=[*map(int, lo), *map(int, hi)],
                        dilations=dilations.tolist(), strides=rng.integers(1, 3, n).tolist())
    for batch in (1, 2):
        model.compare([floats(batch, 6, *size, seed=seed)])


@pytest.mark.parametrize("size, dilation, products", [(1, 1, 1), (8, 24, 1), (16, 12, 9), (32, 3, 1)])
def test_what_is_computed(size, dilation, products, tmp_path):
    """One product where one tap is left, one each where most of the taps' reads are padding, else the convolution."""
    model = convolution(tmp_path, 16, 16, [size, size], [3, 3], pads=[dilation] * 4, dilations=[dilation] * 2)
    legal = mcc("-stop-after=legalize", model.path, "-o", "-").stdout
    assert legal.count(" = conv(") == products
    model.compare([floats(1, 16, size, size)])

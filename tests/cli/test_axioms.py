"""What mcc prove takes for granted (docs/reference/proof.md): each axiom holds, and one that is slightly wrong does not.

`functions`: tests/loop/test_math.c, changed statements; `reals`: the bounds of docs/numerics.md, here for sums.
"""
import fractions
import math
import re

import numpy as np
import pytest

from support.tool import ROOT

FIELD = {name: int(number, 16) if number.startswith("0x") else int(number)
         for name, number in re.findall(r"(?:#define |[{,] )FIELD_(\w+)(?: = | )(0x[0-9a-f]+|\d+)u?", (ROOT / "ir/ops/field.h").read_text())}
N, Q = FIELD["N"], FIELD["Q"]
P = N // Q


def residue(x, n=N):
    """Of a number as the field holds it (Montgomery's form)."""
    return x * pow(2**32, -1, n) % n


def exponential(x, base):
    return pow(base, x % Q, N)


def adds_to_products(base):
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, N, (200, 2)).tolist()
    return all(exponential((a + b) % N, base) == exponential(a, base) * exponential(b, base) % N for a, b in pairs)


def test_exponentials():
    """A homomorphism from sums to products: the base is 1 modulo q and has order q modulo p."""
    base = residue(FIELD["BASE"])
    assert N == Q * P and P == 2 * Q + 1 and residue(FIELD["ONE"]) == 1
    assert base % Q == 1 and base % P != 1 and pow(base, Q, P) == 1 and adds_to_products(base)
    assert not any(adds_to_products((base + k) % N) for k in (-1, 1))


def test_shift_of_softmax():
    """What is subtracted cancels, in the field and in numbers; not if one of the two sums has another shift."""
    base, rng = residue(FIELD["BASE"]), np.random.default_rng(2)
    x, v = rng.integers(0, N, 30).tolist(), rng.integers(0, N, 30).tolist()

    def result(above, below):
        top = sum(exponential((a - above) % N, base) * b for a, b in zip(x, v)) % N
        return top * pow(sum(exponential((a - below) % N, base) for a in x) % N, -1, N) % N
    assert result(0, 0) == result(12345, 12345) == result(N - 1, N - 1) != result(0, 1)


def collisions(denominators, top):
    """Fractions in the last quarter below top that round to the f32 of another one."""
    found, seen = 0, {}
    for q in range(1, denominators + 1):
        for p in range(int(top * q) - q // 4, int(top * q)):
            if math.gcd(p, q) == 1:
                found += seen.setdefault(np.float32(p / q).tobytes(), (p, q)) != (p, q)
    return found


def test_fractions():
    """An f32 below 8 stands for one fraction at most: two are 1 / (d (d - 1)) apart, and floats 2^-21. Eight times as large denominators fail."""
    most = FIELD["FRACTIONS"]
    assert fractions.Fraction(1, most * (most - 1)) > fractions.Fraction(1, 2**21) and collisions(most, 1) == 0
    d = 8 * most
    assert np.float32((d - 1) / d) == np.float32((d - 2) / (d - 1))


def vanishes(bound, terms=2.0**100):
    """Terms of less than e^bound in a sum that holds e^0 change less than a unit in its last place."""
    return math.exp(bound) * terms < 2.0**-23


def test_underflow():
    assert vanishes(-87) and not vanishes(-84)
    x = np.float32(-87)
    assert np.float32(1) + np.float32(2**20) * np.exp(x) == 1
    texts = [(ROOT / "passes/legalize/math/softmax.c").read_text(), (ROOT / "ir/ops/field.h").read_text()]
    assert re.search(r"ELEM_F32 \? -87", texts[0]) and "/* -87 */" in texts[1]


@pytest.mark.parametrize("apart, holds", [(0.999, True), (1.001, False)])
def test_rounding(apart, holds):
    """Numbers less than one apart are rounded to integers that are one apart at most: to nearest even, up, down."""
    x = np.random.default_rng(3).uniform(-300, 300, 100000)
    x = np.concatenate([x, np.floor(x) + 0.5, np.floor(x) + 0.4999])
    for way in (np.rint, np.floor, np.ceil):
        assert (np.abs(way(x + apart) - way(x)).max() <= 1) == holds


def off(dtype, n, order):
    """The error of a sum of products in this type over n u sum |a b|."""
    rng, unit = np.random.default_rng(4), 2.0**-24
    a, b = rng.uniform(1, 2, (2, n)).astype(np.float32)
    products = a.astype(np.float64) * b
    terms = (a.astype(dtype) * b.astype(dtype))[order(n)]
    have = dtype(0)
    for t in terms:
        have = dtype(have + t)
    return abs(float(have) - math.fsum(products)) / (n * unit * np.abs(products).sum())


@pytest.mark.parametrize("order", [np.arange, lambda n: np.arange(n)[::-1], lambda n: np.random.default_rng(5).permutation(n)])
def test_reals(order):
    """Sums in f32 in any order are within the bound; in f16 none is: code that rounds to it is not proved (test_prove.py)."""
    assert off(np.float32, 2000, order) <= 1 and off(np.float16, 2000, order) > 1

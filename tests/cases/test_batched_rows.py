"""Products whose rows have two dynamic dims, as sequences and their tokens: tiles go through both, and no row depends on how many there are."""
import re

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from support.compare import Model, floats
from support.cpu import levels
from support.tool import mcc, save, value

K, N, BLOCK, F = 96, 80, 32, np.float32
SHAPES = [(1, 1), (8, 1), (1, 8), (3, 5), (2, 17), (0, 4)]


def network(folder, kind, tail=(), dims=("batch", "sequence")):
    rng = np.random.default_rng(3)
    if kind == "f32":
        nodes, constants = [h.make_node("MatMul", ["x", "w"], ["p"])], {"w": rng.standard_normal((K, N)).astype(F)}
    else:
        constants = {"w": rng.integers(0, 256, (N, K // BLOCK, BLOCK // 2), np.uint8), "s": rng.uniform(0.1, 1, (N, K // BLOCK)).astype(F)}
        nodes = [h.make_node("MatMulNBits", ["x", "w", "s"], ["p"], domain="com.microsoft", K=K, N=N, bits=4, block_size=BLOCK, accuracy_level=kind)]
    nodes += [h.make_node(op, ["p"], ["y"], **attributes) for op, attributes in tail] or [h.make_node("Tanh", ["p"], ["y"])]
    save(folder / "net.onnx", nodes, [value("x", [*dims, K])], [value("y", [None] * 3)], constants, 21)
    return Model(folder, path=folder / "net.onnx")


def records(net, folder, *flags):
    mcc(net.path, *flags, "-stop-after=schedule", "-o", folder / "net.sch")
    return [text for text in (folder / "net.sch").read_text().split("\nschedule ") if "operations" in text]


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4-vnni", "neoverse-n1"])
@pytest.mark.parametrize("kind", ["f32", 0, 4])
def test_one_tile_for_rows_of_both_dims(tmp_path, kind, level):
    net = network(tmp_path, kind)
    flags = [f"-march={level}"] + ["--target=aarch64-linux-gnu"] * level.startswith("neoverse")
    assert all(re.search(r"tile\.flat +1", text) for text in records(net, tmp_path, *flags)[:1])
    known = network(tmp_path, kind, dims=("batch", 64))
    assert not re.search(r"tile\.flat +1", records(known, tmp_path, *flags)[0])


def test_tiles_that_share_unpacked_weights(tmp_path):
    """The f32 sums of blocks with scales need no registers of their own: 8 rows by 2 vectors, of which 4, 2 and 1 rows have tiles, too."""
    text = records(network(tmp_path, 4), tmp_path, "-march=x86-64-v4-vnni")[0]
    rows, vectors = (int(re.search(rf"tile\.{x} +(\d+)", text)[1]) for x in ("columns", "vectors"))
    assert rows == 8 and vectors >= 2, (rows, vectors)


@pytest.mark.parametrize("tail", [(), [("Transpose", {"perm": [1, 0, 2]})], [("Transpose", {"perm": [2, 0, 1]})]], ids=["rows", "turned", "columns"])
@pytest.mark.parametrize("kind", ["f32", 0, 4])
def test_values(tmp_path, kind, tail):
    net = network(tmp_path, kind, tail)
    for level in (*levels(), "-march=native"):
        for shape in SHAPES:
            x = floats(*shape, K, seed=sum(shape))
            want, (got,) = net.want([x])[0], net.run([x], level)
            assert want.shape == got.shape
            assert np.abs(want - got).max(initial=0) <= 2e-5 * max(np.abs(want).max(initial=0), 1), (level, shape)


@pytest.mark.parametrize("kind", ["f32", 4])
def test_rows_alone_have_the_same_bits(tmp_path, kind):
    net = network(tmp_path, kind)
    x = floats(2, 17, K)
    many = net.run([x], "--strict")[0]
    for rows in (1, 2, 3, 4, 7, 8, 16):
        assert (net.run([x[:, :rows].copy()], "--strict")[0] == many[:, :rows]).all(), rows
        assert (net.run([x[1, :rows, None].copy()], "--strict")[0][:, 0] == many[1, :rows]).all(), rows

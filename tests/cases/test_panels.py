"""Products whose panels come from memory while few rows read them: blocks of a long contraction, panels asked for early
(passes/emit/template_block.c, emit/prefetch.c), rows of several dims behind one block of columns (emit/template_tiled.c)."""
import re

import numpy as np
import pytest

from support.artifact import Artifact
from support.compare import Model, floats, node
from support.cpu import levels
from support.tool import value

LEVELS, WIDE = levels(), "-march=x86-64-v4"   # what runs here; what is only looked at


def product(folder, rows, k, columns):
    """relu(x w + b) + x[..., :1]: an epilogue that reads the row, behind the last block only."""
    nodes = [node("MatMul", "x w", "p"), node("Add", "p b", "s"), node("Relu", "s", "r"), node("Slice", "x zero one last", "first"),
             node("Add", "r first", "y")]
    constants = {"w": floats(k, columns, scale=k ** -0.5), "b": floats(columns), "zero": np.array([0]), "one": np.array([1]),
                 "last": np.array([-1])}
    return Model(folder, nodes, [value("x", [*rows, k])], [value("y", [*rows, columns])], constants)


def has_blocks(model, level):
    return bool(re.search(r"^  reduce.block +[1-9]", model.dump("schedule", level), re.M))


@pytest.mark.parametrize("rows", [(49,), (64,), (33,), (7, 7), (2, 3, 5), (2, 30)])
@pytest.mark.parametrize("k, columns", [(3072, 75), (2999, 48), (1537, 33), (700, 113)])
def test_few_rows(rows, k, columns, tmp_path):
    model = product(tmp_path, rows, k, columns)
    model.compare([floats(*rows, k)], flags=("-O0", *LEVELS))


@pytest.mark.parametrize("size, channels, out, kernel, stride", [(7, 2048, 40, 1, 1), (14, 1900, 33, 1, 2), (7, 512, 48, 3, 2), (6, 300, 20, 5, 1)])
def test_few_points_of_an_image(size, channels, out, kernel, stride, tmp_path):
    """Convolutions: blocks of input channels, or of rows of taps, with a residual and an activation behind the last one."""
    pad = kernel // 2
    nodes = [node("Relu", "x", "x0"), node("Conv", "x0 w b", "c", strides=[stride] * 2, pads=[pad] * 4), node("Add", "c r", "s"),
             node("Relu", "s", "y")]
    constants = {"w": floats(out, channels, kernel, kernel, scale=(channels * kernel ** 2) ** -0.5), "b": floats(out)}
    side = (size - 1) // stride + 1
    model = Model(tmp_path, nodes, [value("x", [1, channels, size, size]), value("r", [1, out, side, side])],
                  [value("y", [1, out, side, side])], constants)
    assert has_blocks(model, WIDE)
    model.compare([floats(1, channels, size, size), floats(1, out, side, side, seed=1)], flags=("-O0", *LEVELS))


def test_blocks_keep_the_order_of_summation(tmp_path):
    """49 rows go by blocks, the same rows with 16 more do not: equal bits."""
    x = floats(65, 3072)
    few, many = (product(tmp_path / name, (rows,), 3072, 96) for name, rows in (("few", 49), ("many", 65))
                 if not (tmp_path / name).mkdir())
    for level in LEVELS:
        assert has_blocks(few, level) and not has_blocks(many, level)
        assert np.array_equal(few.run([x[:49]], level)[0], many.run([x], level)[0][:49])


def test_threads_agree(tmp_path):
    model, x = product(tmp_path, (7, 7), 3072, 1000), floats(7, 7, 3072)
    answers = []
    for threads in (1, 2, 5):
        with Artifact(model.compile(), threads=threads) as a:
            answers.append(a.run([x])[0])
    assert all(np.array_equal(answers[0], other) for other in answers[1:])


def panel_prefetches(model):
    """The lines of the next block's panels that the innermost loops ask for, by kernel."""
    text = model.dump("emit", WIDE)
    return [len(re.findall(r"prefetch2 ", kernel)) for kernel in text.split("kernel @")[1:] if " fma " in kernel]


@pytest.mark.parametrize("channels, out", [(96, 576), (576, 96), (300, 70)])
def test_open_maps_prefetch_panels(channels, out, tmp_path):
    """The number of tiles is dynamic: the first of them ask for the next block's panels, as tiles of known number do."""
    model = Model(tmp_path, [node("Conv", "x w", "y")], [value("x", ["n", channels, "h", "w"])], [value("y", ["n", out, "h", "w"])],
                  {"w": floats(out, channels, 1, 1, scale=channels ** -0.5)})
    assert all(panel_prefetches(model))
    for size in ((1, 1, 1), (2, 4, 3), (1, 7, 7), (3, 1, 13), (1, 9, 20)):
        model.compare([floats(size[0], channels, *size[1:])], flags=("-O0", *LEVELS))


@pytest.mark.parametrize("k, columns", [(512, 1000), (768, 768), (700, 113)])
def test_open_rows_prefetch_panels(k, columns, tmp_path):
    model = product(tmp_path, ("n",), k, columns)
    assert all(panel_prefetches(model))
    for rows in (1, 2, 5, 8, 16, 33, 70):
        model.compare([floats(rows, k)], flags=("-O0", *LEVELS))


def test_open_rows_share_prefetches(tmp_path):
    """Where the weights do not fit L2, several tiles prefetch a part of the next block's panels each; a network that fits has the first
    tile do it. Results do not depend on it, whatever the number of tiles is."""
    for folder in ("l", "s"):
        (tmp_path / folder).mkdir()
    large, small = product(tmp_path / "l", ("n",), 1024, 2048), product(tmp_path / "s", ("n",), 512, 200)
    found = [int(re.search(r"prefetch.shares +(\d+)", m.dump("schedule", "--march=x86-64-v3"))[1]) for m in (large, small)]
    assert found[0] > 1 and found[1] == 0, found
    name = re.search(r'^schedule k0 "([^"]*)"', small.dump("schedule", "--march=x86-64-v3"), re.M)[1]
    x = floats(120, 512)
    plain = [small.run([x[:n]])[0] for n in (1, 7, 13, 14, 27, 40, 66, 120)]
    for shares in (1, 2, 3, 8, 64):
        answers = [small.run([x[:len(p)]], f"-choose={name}:prefetch.shares={shares}")[0] for p in plain]
        assert all(np.array_equal(a, p) for a, p in zip(answers, plain)), shares
    for n in (3, 60):
        large.compare([floats(n, 1024)])


def test_panels_of_fixed_rows_are_not_shared(tmp_path):
    model = product(tmp_path, (40,), 512, 200)
    name = re.search(r'^schedule k0 "([^"]*)"', model.dump("schedule", "--march=x86-64-v3"), re.M)[1]
    assert re.search(r"prefetch.shares +0 ", model.dump("schedule", "--march=x86-64-v3"))
    assert model.dump("emit", "--march=x86-64-v3") == model.dump("emit", "--march=x86-64-v3", f"-choose={name}:prefetch.shares=8")

"""Convolutions and windows over maps of dynamic height and width: every form at sizes from a point up, against ONNX Runtime, and what
their kernels look like."""
import re

import numpy as np
import pytest

from support.compare import Model, floats, node
from support.tool import value

SIZES = [(1, 1), (1, 3), (3, 1), (2, 2), (5, 4), (7, 7), (8, 6), (13, 14), (12, 27), (33, 33), (41, 23)]


class Stack:
    """Nodes one after another; a convolution draws its weights."""

    def __init__(self, channels):
        self.nodes, self.constants, self.channels, self.last = [], {}, channels, "x"

    def add(self, op, *more, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, " ".join([self.last, *more]), name, name, **attributes))
        self.last = name
        return self

    def conv(self, to, kernel=1, stride=1, dilation=1, pad=0, group=1):
        w, at = f"w{len(self.nodes)}", len(self.nodes)
        self.constants[w] = floats(to, self.channels // group, kernel, kernel, seed=at, scale=(self.channels // group) ** -0.5 / kernel)
        self.channels = to
        return self.add("Conv", w, strides=[stride] * 2, dilations=[dilation] * 2, pads=[pad] * 4, group=group)

    def model(self, folder, shape=("n", 3, "h", "w")):
        return Model(folder, self.nodes, [value("x", shape)], [value(self.last, None)], self.constants)


def block(s, width, kernel, stride, to):
    """An inverted residual with a gate."""
    s.conv(width).add("HardSwish").conv(width, kernel, stride, pad=kernel // 2, group=width).add("Relu")
    gated = s.last
    return s.add("GlobalAveragePool").conv(width).add("Sigmoid").add("Mul", gated).conv(to)


def residual(s):
    s.conv(32, 3, pad=1).add("Relu")
    short = s.last
    return s.conv(32, 3, pad=1).add("Relu").conv(32, 3, pad=1).add("Add", short).add("Relu").conv(48, 3, 2, pad=1).conv(48, 1, 2)


FORMS = {
    "shuffled": lambda s: shuffled(shuffled(s)),
    "one tap": lambda s: s.conv(40).add("HardSwish").conv(64).conv(24, stride=2),
    "taps": lambda s: s.conv(32, 3, pad=1).add("Relu").conv(48, 3, 2, pad=1).conv(20, 5, pad=2).conv(16, 3, group=2, pad=1),
    "residuals": residual,
    "gated": lambda s: block(block(s.conv(16, 3, 2, pad=1), 48, 3, 2, 24), 72, 5, 1, 24),
    "depthwise": lambda s: s.conv(40, 3, pad=1).conv(40, 3, pad=1, group=40).conv(40, 5, 2, pad=2, group=40).conv(40, 3, dilation=4, pad=4, group=40),
    "windows": lambda s: s.conv(40, 3, pad=1).add("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    .add("AveragePool", kernel_shape=[3, 3], pads=[1] * 4),
    "few channels": lambda s: s.add("MaxPool", kernel_shape=[3, 3], pads=[1] * 4).conv(3, 3, pad=1, group=3).add("Relu").conv(3, 5, 2, pad=2, group=3)
    .add("AveragePool", kernel_shape=[2, 3], strides=[1, 2], pads=[1, 1, 1, 1]),
    "far taps": lambda s: s.conv(40, 3, dilation=12, pad=12).add("Relu").conv(33, 3, 2, 36, 36).conv(64, 3, dilation=5, pad=5).conv(8, 11, pad=5),
    "far and near": lambda s: s.conv(24).conv(48, 3, dilation=9, pad=11).conv(36, 3, pad=1, group=2).conv(48, 3, dilation=6, pad=6, group=3),
}


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.replace(" ", "-"))
def test_sizes(form, tmp_path):
    model = FORMS[form](Stack(3)).model(tmp_path)
    for i, (h, w) in enumerate(SIZES):
        model.compare([floats(1 + i % 2, 3, h, w)], flags=("-O0", "-O2", ("-O2", "-march=x86-64-v3")), atol=2e-4)
    assert model.run([floats(0, 3, 9, 9)], "-O2")[0].shape[0] == 0


@pytest.mark.parametrize("shape", [("n", 3, 33, "w"), ("n", 3, "h", 27), (2, 3, "h", "w")], ids=str)
def test_some_sizes(shape, tmp_path):
    """One of the two is known, or the number of images."""
    model = FORMS["far taps"](residual(Stack(3))).model(tmp_path, shape)
    for n, h, w in ((1, 1, 1), (2, 3, 5), (1, 14, 7), (2, 33, 40)):
        given = [s if isinstance(s, int) else d for s, d in zip(shape, (n, 3, h, w))]
        model.compare([floats(*given)], atol=2e-4)


def shuffled(s):
    """Channels of two groups take turns, as exporters write it, before a convolution of one tap."""
    image, grown = s.conv(32).last, [f"{name}{len(s.nodes)}" for name in ("shape", "size", "to", "pairs", "turned", "back")]
    shape, size, to, pairs, turned, back = grown
    s.constants |= {"second": np.array([2]), "fourth": np.array([4]), "groups": np.array([0, 2, 16]), "all": np.array([0, 32])}
    s.nodes += [node("Shape", image, shape), node("Slice", f"{shape} second fourth", size), node("Concat", f"groups {size}", to, axis=0),
                node("Reshape", f"{image} {to}", pairs), node("Transpose", pairs, turned, perm=[0, 2, 1, 3, 4]),
                node("Concat", f"all {size}", back, axis=0), node("Reshape", f"{turned} {back}", f"v{len(s.nodes)}")]
    s.last = s.nodes[-1].output[0]
    return s.conv(80).add("Relu")


def resized(folder):
    """Rows of channels of half the size, resized to an image's, are part of what a convolution reads."""
    s = Stack(3).add("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1).conv(32)
    s.add("Shape").add("Identity")
    grid, image = s.last, s.nodes[1].output[0]
    s.constants |= {"flat": np.array([0, 0, -1], np.int64), "zero": np.array([0]), "two": np.array([2]), "four": np.array([4])}
    s.nodes += [node("Shape", "x", "of_x"), node("Slice", "of_x two four", "size"), node("Slice", f"{grid} zero two", "kept"),
                node("Concat", "kept size", "sizes", axis=0), node("Reshape", f"{image} flat", "columns"),
                node("Transpose", "columns", "rows", perm=[0, 2, 1]), node("MatMul", "rows weights", "product"),
                node("Transpose", "product", "turned", perm=[0, 2, 1]), node("Reshape", f"turned {grid}", "map"),
                node("Resize", "map _ _ sizes", "wide", mode="linear"), node("Conv", "x first", "same"),
                node("Concat", "wide same", "both", axis=1)]
    s.constants |= {"weights": floats(32, 32, seed=7, scale=0.2), "first": floats(32, 3, 1, 1, seed=8)}
    s.last, s.channels = "both", 64
    return s.conv(24).model(folder)


def test_resized_rows(tmp_path):
    """Both axes of the Resize store and read vectors of channels, from tables of places that are made once."""
    model = resized(tmp_path)
    for i, (h, w) in enumerate(SIZES):
        model.compare([floats(1 + i % 2, 3, h, w)], flags=("-O0", "-O2", ("-O2", "-march=x86-64-v3")), atol=2e-4)
    text = model.dump("emit", "-march=x86-64-v3")
    axes = [k for k in re.findall(r"^kernel .*?^}", text, re.M | re.S) if "buffer i64" in k and "load f32x8" in k]
    assert len(axes) == 2 and not any(re.search(r"f64|\b(gather|loads)\b", k) for k in axes)


def schedules(model, level="x86-64-v3"):
    """{anchor's node: its fields}; a kernel that fills its halo has none."""
    text = model.dump("schedule", f"-march={level}")
    return {m[1]: {k: int(n) for k, n in re.findall(r"^  (\S+) +(-?\d+)", m[2], re.M)}
            for m in re.finditer(r'^schedule \S+ "(\w+)" \S+ (?:tiled|winograd)\n((?:  .*\n)*)', text, re.M)}


def test_points_are_numbered_through(tmp_path):
    """Rows of 3 points fill no tile: the points of all rows do, of one tap and of several."""
    forms = schedules(Stack(3).conv(32, 3, pad=1).conv(48, 3, 2, pad=1).conv(64).model(tmp_path))
    assert [forms[v]["tile.flat"] for v in ("v1", "v2")] == [1, 1]


def test_points_of_shuffled_channels_are_numbered(tmp_path):
    s = shuffled(Stack(3))
    assert schedules(s.model(tmp_path))[s.nodes[-2].name]["tile.flat"] == 1


def test_lines_have_two_vectors(tmp_path):
    """What is left of a line are few points; the rows are a loop of an index, not indices that are split by divisions."""
    tile = schedules(Stack(3).conv(32).conv(32, 3, pad=1, group=32).model(tmp_path))["v1"]
    assert (tile["tile.vectors"], tile["tile.b"], tile["tile.flat"]) == (2, 2, 0)


@pytest.mark.parametrize("shape", [("n", 3, "h", "w"), (1, 3, 14, 14)], ids=["open", "fixed"])
def test_tiles_have_whole_groups(shape, tmp_path):
    """Channels of a group read the same points: 23 of 46 groups of 8 channels, or 13 of 26 of 4, would each load its own."""
    model = Stack(3).conv(368).conv(368, 3, pad=1, group=46).conv(104).conv(104, 3, 2, pad=1, group=26).model(tmp_path, shape)
    for level in ("x86-64-v3", "x86-64-v4"):
        tiles = schedules(model, level)
        for name, channels, group in (("v1", 368, 8), ("v3", 104, 4)):
            tile = tiles[name]["tile.columns"]
            assert channels % tile == 0 and (tile % group == 0 or group % tile == 0), (level, name, tile)
    model.compare([floats(1, 3, 14, 14)], flags=("-O2", ("-O2", "-march=x86-64-v3")), atol=2e-4)


def test_rows_of_a_window_are_a_tile(tmp_path):
    """Lanes are columns where there are few channels, and rows points of the tile, not parallel indices, each split by divisions."""
    tile = schedules(FORMS["few channels"](Stack(3)).model(tmp_path))["v1"]
    assert (tile["lanes.dim"], tile["tile.a"], tile["tile.columns"] > 1) == (3, 2, True)


def halos(model):
    return re.findall(r"halo \[([^\]]*)\]", model.dump("plan"))


def tap_loops(model):
    """Loops over what is summed up that end where the run says."""
    text = model.dump("emit", "-march=x86-64-v3")
    known = set(re.findall(r"(%\d+) = const ", text))
    return sum(end not in known for end in re.findall(r" = for %\d+ = %\d+ to (%\d+) step 1 carry", text))


def test_taps_beside_the_map_are_not_read(tmp_path):
    """The loops over taps end where the map does, so rows need no halo, and columns one as long as a tile."""
    def dilated(dilation):
        return Stack(3).conv(32).add("Relu").conv(32, 3, dilation=dilation, pad=dilation).model(tmp_path)

    far = dilated(24)
    assert halos(far) == ["0 0 0 13 0 0 0 13"]
    assert tap_loops(far) == 6   # two dims of three sizes of tiles
    near = dilated(2)            # by Winograd, whose tiles reach past the map
    assert halos(near) == ["0 0 2 2 0 0 8 8"]
    assert tap_loops(near) == 0


def test_winograd_of_small_maps(tmp_path):
    """The form is that of images of 128 to 512 pixels: at the 32nd part of them F(2 x 2), at all of them F(4 x 4). A tile within the map
    stores all results under one condition; their places are found once for each tile."""
    deep = Stack(3).conv(16, 4, 4).conv(16, 4, 4).conv(64, 2, 2).conv(64, 3, pad=1).model(tmp_path)
    assert schedules(deep)["v3"]["winograd.m"] == 2
    kernel = re.search(r'^kernel @k0.*?^}', deep.dump("emit", "-march=x86-64-v3"), re.M | re.S)[0]
    assert len(re.findall(r"^ *if ", kernel, re.M)) == 4
    for h, w in ((32, 32), (65, 97), (224, 160)):
        deep.compare([floats(1, 3, h, w)], flags=("-O2", "--winograd=2"), atol=2e-4)
    flat = Stack(3).conv(64).conv(64, 3, pad=1).model(tmp_path)
    assert schedules(flat)["v1"]["winograd.m"] == 4


@pytest.mark.parametrize("shape, sizes", [(("n", 3, 13, 14), [(n, 13, 14) for n in (1, 2, 3, 9, 20)]),
                                          ((1, 3, "h", "w"), [(1, h, w) for h, w in ((3, 4), (7, 9), (22, 31), (57, 49))])], ids=["batch", "image"])
def test_winograd_points_are_as_far_apart_as_tiles_need(shape, sizes, tmp_path):
    """Points of the transformed operand lie apart by the tiles that a group has, not by those of a full one: two groups, odd tiles."""
    model = Stack(3).conv(128).conv(256, 3, pad=1).model(tmp_path, shape)
    s = schedules(model)["v1"]
    full = (s["chunk"] * s["slice"] | 1) * 8
    assert s["slice"] * 8 < 128 and s["chunk"] > s["tile.tiles"]  # U is not all there is, and a group has several blocks
    assert not re.search(rf"const index {full}$", model.dump("emit", "-march=x86-64-v3"), re.M)
    odd = ("-O2", "--choose=v1:tile=1x5x1", "--choose=v1:chunk=15")
    for n, h, w in sizes:
        model.compare([floats(n, 3, h, w)], flags=("-O2", ("-O2", "-march=x86-64-v3"), odd), atol=2e-4)

"""Where elements come from: Resize at scales whose places fall between two elements or nearly on one, in static and symbolic
dims; Slice with operands of open length; NonZero of a scalar; AffineGrid over one element."""
import itertools

import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import ModelError
from support.compare import Model, difference, floats, ints, node
from support.tool import value

SCALES = (0.3, 0.5, 0.6, 0.7, 0.9, 1.3, 1.7, 2.3, 3.0)
TRANSFORMS = ("half_pixel", "pytorch_half_pixel", "asymmetric")
ROUNDING = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


@pytest.mark.parametrize("dims", [[8, 10], ["h", "w"]], ids=["static", "symbolic"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_nearest(transform, dims, tmp_path):
    """Every scale with every rounding: also where place and half coincide in f32 but not in more digits."""
    nodes, constants, outputs = [], {}, []
    for k, (scale, rounding) in enumerate(itertools.product(SCALES, ROUNDING)):
        constants[f"s{k}"] = np.array([1, 1, scale, SCALES[-1 - k // 4]], np.float32)
        nodes.append(node("Resize", f"x _ s{k}", f"y{k}", mode="nearest", coordinate_transformation_mode=transform, nearest_mode=rounding))
        outputs.append(value(f"y{k}", [None] * 4))
    model = Model(tmp_path, nodes, [value("x", [1, 2, *dims])], outputs, constants, opset=19)
    model.compare([np.arange(160, dtype=np.float32).reshape(1, 2, 8, 10)], flags=("-O2",))


@pytest.mark.parametrize("dims", [[7, 10], ["h", "w"]], ids=["static", "symbolic"])
def test_nearest_by_sizes(dims, tmp_path):
    nodes, constants, outputs = [], {}, []
    for k, (transform, size) in enumerate(itertools.product(TRANSFORMS, (1, 2, 3, 5, 6, 9, 11, 13, 20, 21))):
        constants[f"s{k}"] = ints(1, 2, size, 22 - size)
        nodes.append(node("Resize", f"x _ _ s{k}", f"y{k}", mode="nearest", coordinate_transformation_mode=transform, nearest_mode="floor"))
        outputs.append(value(f"y{k}", [None] * 4))
    model = Model(tmp_path, nodes, [value("x", [1, 2, *dims])], outputs, constants, opset=19)
    model.compare([np.arange(140, dtype=np.float32).reshape(1, 2, 7, 10)], flags=("-O2",))


def test_cubic_to_one_element(tmp_path):
    """pytorch_half_pixel: place 0, not -1/2."""
    model = Model(tmp_path, [node("Resize", "x _ _ s", "y", mode="cubic", coordinate_transformation_mode="pytorch_half_pixel")],
                  [value("x", [1, 1, 5, 6])], [value("y", [None] * 4)], {"s": ints(1, 1, 1, 3)}, opset=18)
    model.compare([floats(1, 1, 5, 6)])


def test_antialias_rounds_bytes(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (1, 1, 12, 14)).astype(np.uint8)
    model = Model(tmp_path, [node("Resize", "x _ _ s", "y", mode="linear", antialias=1)], [value("x", [1, 1, 12, 14], T.UINT8)],
                  [value("y", [None] * 4, T.UINT8)], {"s": ints(1, 1, 5, 4)}, opset=18)
    want, = model.want([x])
    got, = model.run([x], "-O2")
    assert np.abs(want.astype(int) - got).max() <= 1 and np.mean(want != got) < 0.2     # truncated, a half of them differ


@pytest.mark.parametrize("open_one", ["starts", "ends", "axes", "steps"])
def test_slice_operands_of_open_length(open_one, tmp_path):
    """One of four operands has a length known only at run time: that of the others."""
    operands = {"starts": ints(1, -3), "ends": ints(4, -1), "axes": ints(2, 0), "steps": ints(2, 1)}
    given = operands.pop(open_one)
    model = Model(tmp_path, [node("Slice", "x starts ends axes steps", "y")], [value("x", [5, 6, 7]), value(open_one, ["k"], T.INT64)],
                  [value("y", [None] * 3)], operands)
    model.compare([floats(5, 6, 7), given])


@pytest.mark.parametrize("x", [0.0, 2.5])
def test_nonzero_of_a_scalar(x, tmp_path):
    model = Model(tmp_path, [node("NonZero", "x", "y")], [value("x", [])], [value("y", [None] * 2, T.INT64)])
    model.compare([np.float32(x)])


@pytest.mark.parametrize("size", [[1, 1, 1, 4], [2, 3, 5, 1], [1, 2, 1, 1, 3]])
def test_grid_over_one_element(size, tmp_path):
    """With align_corners one element lies in the middle (PyTorch); ONNX Runtime takes the end."""
    n = len(size) - 2
    theta = floats(size[0], n, n + 1)
    model = Model(tmp_path, [node("AffineGrid", "x size", "y", align_corners=1)], [value("x", list(theta.shape))], [value("y", [None] * (n + 2))],
                  {"size": ints(*size)}, opset=20)
    lines = [np.linspace(-1, 1, k) if k > 1 else np.zeros(1) for k in size[2:]]
    points = np.stack([*np.meshgrid(*lines, indexing="ij")][::-1] + [np.ones(size[2:])], -1)
    want = np.einsum("...k,nik->n...i", points, theta)
    assert not difference(want.astype(np.float32), model.run([theta], "-O2")[0])


KNOWN = {"all": np.ones((16, 2), bool), "integers": np.array([[0, 3, -1], [0, 0, 5]]), "floats": np.array([0.0, -0.0, np.nan, 1e-45], np.float32),
         "none": np.zeros((3, 2), np.int32), "scalar": np.uint8(4), "empty": np.array([], np.int64), "many": np.arange(4097)}


@pytest.mark.parametrize("x", KNOWN.values(), ids=KNOWN)
def test_nonzero_of_what_is_known(x, tmp_path):
    """Up to 4096 elements its length is known, and what is sliced by that has known dims."""
    nodes = [node("Identity", "x", "i"), node("NonZero", "i", "at"), node("Shape", "at", "dims"), node("Gather", "dims last", "count"),
             node("Slice", "f zero count", "y")]
    model = Model(tmp_path, nodes, [value("f", [40])], [value("at", None, T.INT64), value("y", None)],
                  {"x": x, "last": ints(1), "zero": ints(0)})
    model.compare([floats(40)])
    assert ("nonzero(" in model.dump("legalize")) == (x.size == 4097)


def test_nonzero_of_a_range(tmp_path):
    """What a comparison of numbers of elements makes is known, too: exporters write rows of a rotary embedding so."""
    nodes = [node("Range", "zero three one", "r"), node("Less", "r bound", "is"), node("NonZero", "is", "at"), node("Squeeze", "at first", "rows"),
             node("Gather", "f rows", "y")]
    constants = {"zero": np.int64(0), "three": np.int64(3), "one": np.int64(1), "bound": ints(2), "first": ints(0)}
    model = Model(tmp_path, nodes, [value("f", [5, "n"])], [value("y", None)], constants)
    model.compare([floats(5, 4)])
    assert "nonzero(" not in model.dump("legalize")


@pytest.mark.parametrize("shape", [(1, 2, 0, 3), (1, 2, 3, 0), (0, 2, 3, 3)])
@pytest.mark.parametrize("op", ["GridSample", "RoiAlign"])
def test_samples_of_no_elements(op, shape, tmp_path):
    """There is no place to read: they were read beside the empty image."""
    n = shape[0] if op == "GridSample" else 1
    feeds = {"x": np.zeros(shape, np.float32), **({"g": floats(n, 2, 2, 2)} if op == "GridSample" else
                                                  {"r": floats(1, 4), "b": np.array([0])})}
    attributes = {} if op == "GridSample" else {"output_height": 2, "output_width": 2, "sampling_ratio": 1}
    ports = [value(k, [f"{k}{d}" for d in range(v.ndim)], T.INT64 if k == "b" else T.FLOAT) for k, v in feeds.items()]
    model = Model(tmp_path, [node(op, " ".join(feeds), "y", **attributes)], ports, [value("y", [None] * 4)], opset=20)
    if n == 0:
        assert model.run(list(feeds.values()))[0].shape == (0, 2, 2, 2)
        return
    with pytest.raises(ModelError, match="made of no elements"):
        model.run(list(feeds.values()))

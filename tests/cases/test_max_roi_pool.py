"""MaxRoiPool beside ONNX Runtime: regions inside and outside of the image, turned round and between pixels, sizes static and open. RoiAlign of f64."""
import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import ModelError
from support.compare import Model, floats, interpreted, node
from support.tool import value


def drawn(rng, n, images, height, width, scale):
    """Rows (image, x1, y1, x2, y2): corners in and around the image, some on halves of a pixel, some regions empty or turned round."""
    corners = rng.uniform(-0.4, 1.4, (n, 4)) * [width, height, width, height] / scale
    halves = rng.random(n) < 0.3
    corners[halves] = np.round(corners[halves] * scale * 2) / 2 / scale
    corners[rng.random(n) < 0.1, 2:] += 2.0 ** 20
    return np.concatenate([rng.integers(0, images, (n, 1)), corners], 1).astype(np.float32)


@pytest.mark.parametrize("opened", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("shape, pooled, scale", [((2, 3, 9, 7), [2, 3], 1.0), ((1, 5, 6, 11), [7, 7], 0.25), ((3, 1, 1, 8), [1, 4], 0.5),
                                                  ((1, 2, 16, 16), [1, 1], 0.0625), ((2, 4, 5, 5), [6, 2], 1.75)])
def test_drawn_regions(tmp_path, shape, pooled, scale, opened):
    rng, n = np.random.default_rng(sum(shape)), 40
    dims = (["n", "c", "h", "w"], ["r", 5]) if opened else (shape, [n, 5])
    pool = node("MaxRoiPool", "x rois", "y", pooled_shape=pooled, spatial_scale=scale)
    model = Model(tmp_path, [pool], [value("x", dims[0]), value("rois", dims[1])], [value("y", [None] * 4)])
    for count in (n, 1, 0) if opened else (n, n):
        x = rng.standard_normal(shape).astype(np.float32)
        got = model.compare([x, drawn(rng, count, *(shape[k] for k in (0, 2, 3)), scale)], rtol=0, atol=0)[0]
        assert got.shape == (count, shape[1], *pooled)
        assert not count or opened or ((got == 0).any() and (got < 0).any())


def reference(x, rois, pooled):
    """Whole corners, scale 1."""
    y = np.zeros((len(rois), x.shape[1], *pooled), x.dtype)
    for r, (image, *corner) in enumerate(np.asarray(rois, int)):
        for at in np.ndindex(*pooled):
            cut = []
            for k, size, lo, hi in ((0, x.shape[2], corner[1], corner[3]), (1, x.shape[3], corner[0], corner[2])):
                extent = max(hi - lo + 1, 1)
                cut.append(slice(*(min(max(lo + e, 0), size) for e in (at[k] * extent // pooled[k], -(-(at[k] + 1) * extent // pooled[k])))))
            part = x[image][:, cut[0], cut[1]]
            if part.size:
                y[r, :, at[0], at[1]] = part.max((1, 2))
    return y


@pytest.mark.parametrize("elem, dtype", [(T.DOUBLE, np.float64), (T.FLOAT16, np.float16), (T.FLOAT, np.float32)])
def test_element_types(tmp_path, elem, dtype):
    rng = np.random.default_rng(3)
    x, pooled = rng.standard_normal((2, 3, 8, 8)).astype(dtype), [2, 4]
    rois = np.concatenate([rng.integers(0, 2, (30, 1)), rng.integers(-3, 11, (30, 4))], 1).astype(dtype)
    model = Model(tmp_path, [node("MaxRoiPool", "x rois", "y", pooled_shape=pooled)], [value("x", x.shape, elem), value("rois", ["r", 5], elem)],
                  [value("y", [None] * 4, elem)])
    assert np.array_equal(model.run([x, rois])[0], reference(x, rois, pooled))


def test_the_interpreter_agrees(tmp_path):
    feed = [floats(2, 3, 9, 7), drawn(np.random.default_rng(1), 30, 2, 9, 7, 0.5)]
    model = Model(tmp_path, [node("MaxRoiPool", "x rois", "y", pooled_shape=[3, 2], spatial_scale=0.5)], [value("x", [2, 3, "h", "w"]), value("rois", [30, 5])],
                  [value("y", [None] * 4)])
    assert interpreted(model, feed).returncode == 0
    assert np.array_equal(np.load(tmp_path / "eval/y.npy"), model.want(feed)[0])


def test_regions_that_are_constants(tmp_path):
    rois = drawn(np.random.default_rng(2), 20, 2, 9, 7, 1)
    model = Model(tmp_path, [node("MaxRoiPool", "x rois", "y", pooled_shape=[3, 2])], [value("x", [2, 3, 9, 7])], [value("y", [None] * 4)], {"rois": rois})
    model.compare([floats(2, 3, 9, 7)], rtol=0, atol=0)


@pytest.mark.parametrize("image", [-1, 2, 1e12])
def test_an_image_outside_of_the_batch(tmp_path, image):
    model = Model(tmp_path, [node("MaxRoiPool", "x rois", "y", pooled_shape=[2, 2])], [value("x", ["n", 1, 4, 4]), value("rois", ["r", 5])],
                  [value("y", [None] * 4)])
    with pytest.raises(ModelError, match="image outside of the batch"):
        model.run([floats(2, 1, 4, 4), np.array([[0, 0, 0, 3, 3], [image, 0, 0, 3, 3]], np.float32)])


def test_an_image_without_pixels(tmp_path):
    model = Model(tmp_path, [node("MaxRoiPool", "x rois", "y", pooled_shape=[2, 2])], [value("x", [1, 2, "h", 4]), value("rois", ["r", 5])],
                  [value("y", [None] * 4)])
    assert not model.run([floats(1, 2, 0, 4), np.array([[0, 0, 0, 3, 3]], np.float32)])[0].any()


@pytest.mark.parametrize("more, words", [({"pooled_shape": [2]}, "pooled_shape of 1"), ({"pooled_shape": [0, 2]}, "pooled_shape"),
                                         ({"pooled_shape": [2, 2], "spatial_scale": 0.0}, "spatial_scale 0")])
def test_refused(tmp_path, more, words):
    model = Model(tmp_path, [node("MaxRoiPool", "x rois", "y", **more)], [value("x", [1, 1, 4, 4]), value("rois", [1, 5])],
                  [value("y", [None] * 4)])
    assert words in model.refused()


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_of_f64_has_places_of_f64(mode, tmp_path):
    rng = np.random.default_rng(5)
    corner = rng.uniform(0, 4, (6, 2))
    rois = np.concatenate([corner, corner + rng.uniform(0.5, 7, (6, 2))], 1)
    model = Model(tmp_path, [node("RoiAlign", "x rois images", "y", mode=mode, output_height=3, output_width=2, sampling_ratio=2, spatial_scale=0.7)],
                  [value("x", ["n", 3, 6, "w"], T.DOUBLE), value("rois", ["r", 4], T.DOUBLE), value("images", ["r"], T.INT64)],
                  [value("y", [None] * 4, T.DOUBLE)], opset=16)
    model.compare([rng.standard_normal((2, 3, 6, 12)), rois, rng.integers(0, 2, 6)], rtol=1e-13, atol=1e-14)

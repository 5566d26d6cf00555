"""examples/ocr without its networks: pictures, geometry, regions and decoding against what OpenCV, pyclipper and the original
give (ocr_reference.npz, made by ocr_reference.py)."""
import ctypes as c
import subprocess

import numpy as np
import pytest

from support.tool import ROOT

HERE = ROOT / "examples/ocr"
SOURCES = ["boxes.c", "ctc.c", "geometry.c", "image.c", "regions.c"]


class Image(c.Structure):
    _fields_ = [("w", c.c_int), ("h", c.c_int), ("px", c.c_void_p)]


class Point(c.Structure):
    _fields_ = [("x", c.c_double), ("y", c.c_double)]


class Alphabet(c.Structure):
    _fields_ = [("word", c.POINTER(c.c_char_p)), ("n", c.c_int)]


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    path = tmp_path_factory.mktemp("ocr") / "ocr.so"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", path, *(HERE / s for s in SOURCES), "-lm"], check=True)
    lib = c.CDLL(str(path))
    for name in ("image_resize", "image_crop", "image_rotate", "image_letterbox"):
        getattr(lib, name).restype = Image
    lib.image_crop.argtypes = [c.POINTER(Image), Point * 4, c.c_int, c.c_int]
    lib.min_area_rect.restype, lib.min_area_rect.argtypes = c.c_double, [c.c_void_p, c.c_int, Point * 4]
    lib.polygon_grow.argtypes = [c.c_void_p, c.c_int, c.c_double, c.c_void_p, c.c_int]
    lib.boxes_find.argtypes = [c.c_void_p] + [c.c_int] * 4 + [c.c_void_p]
    lib.alphabet_new.restype = Alphabet
    lib.ctc_decode.restype = c.c_void_p
    lib.ctc_decode.argtypes = [c.POINTER(Alphabet), c.c_void_p, c.c_int, c.c_int, c.POINTER(c.c_double)]
    lib.meta_find.restype, lib.meta_find.argtypes = c.c_char_p, [c.c_char_p, c.c_char_p]
    return lib


@pytest.fixture(scope="module")
def reference():
    return dict(np.load(ROOT / "tests/examples/ocr_reference.npz"))


def given(array):
    array = np.ascontiguousarray(array)
    image = Image(array.shape[1], array.shape[0], array.ctypes.data)
    image.keep = array
    return image


def taken(lib, image):
    array = np.ctypeslib.as_array((c.c_uint8 * (image.w * image.h * 3)).from_address(image.px)).reshape(image.h, image.w, 3).copy()
    lib.image_free(c.byref(image))
    return array


def corners_near(got, want, tolerance):
    """The same rectangle, whichever corner comes first."""
    return all(min(np.abs(g - w).max() for g in got) <= tolerance for w in want)


def test_resize_as_opencv(lib, reference):
    for i in range(4):
        want = reference[f"resized{i}"]
        got = taken(lib, lib.image_resize(c.byref(given(reference["picture"])), want.shape[1], want.shape[0]))
        assert (got == want).all()


def test_crop_as_opencv(lib, reference):
    for i in range(3):
        want, quad = reference[f"crop{i}"], (Point * 4)(*[Point(*map(float, p)) for p in reference[f"quad{i}"]])
        got = taken(lib, lib.image_crop(c.byref(given(reference["picture"])), quad, want.shape[1], want.shape[0]))
        different = np.abs(got.astype(int) - want)
        assert different.max() <= 1 and (different > 0).mean() < 0.01


def test_rotate_and_letterbox(lib, reference):
    picture = reference["picture"]
    for quarters in range(4):
        assert (taken(lib, lib.image_rotate(c.byref(given(picture)), quarters)) == np.rot90(picture, quarters)).all()
    boxed = taken(lib, lib.image_letterbox(c.byref(given(picture)), 5))
    assert (boxed[5:-5] == picture).all() and not boxed[:5].any() and not boxed[-5:].any()


def test_smallest_rectangles(lib, reference):
    for points, want in zip(reference["points"].astype(np.float64), reference["rects"]):
        points, corner = np.ascontiguousarray(points), (Point * 4)()
        side = lib.min_area_rect(points.ctypes.data, len(points), corner)
        got = np.array([(p.x, p.y) for p in corner])
        area = np.linalg.norm(got[0] - got[1]) * np.linalg.norm(got[1] - got[2])
        want_sides = np.linalg.norm(want[0] - want[1]), np.linalg.norm(want[1] - want[2])
        assert area == pytest.approx(np.prod(want_sides), rel=1e-4) and side == pytest.approx(min(want_sides), rel=1e-4)
        assert corners_near(got, want, 1e-2)


@pytest.mark.parametrize("points", [[(3, 4)], [(3, 4), (3, 4)], [(0, 0), (3, 3), (6, 6)]])
def test_rectangles_of_nothing(lib, points):
    points, corner = np.array(points, np.float64), (Point * 4)()
    assert lib.min_area_rect(points.ctypes.data, len(points), corner) == pytest.approx(0, abs=1e-9)


def test_growing_as_clipper(lib, reference):
    polygon = np.array([(10, 10), (60, 14), (58, 30), (8, 26)], np.float64)
    want = {tuple(p) for p in reference["grown"]}
    for turned in (polygon, np.ascontiguousarray(polygon[::-1])):
        out = np.zeros((256, 2))
        n = lib.polygon_grow(turned.ctypes.data, 4, 7.3, out.ctypes.data, 256)
        got = {(int(x), int(y)) for x, y in out[:n]}
        assert want <= got and len(got - want) <= 2      # Clipper drops points on straight lines


def test_boxes_as_the_original(lib, reference):
    map_ = np.ascontiguousarray(reference["map"] / np.float32(255))
    out = np.zeros((1000, 4, 2))
    n = lib.boxes_find(map_.ctypes.data, map_.shape[1], map_.shape[0], 333, 200, out.ctypes.data)
    want = reference["boxes"].astype(np.float64)
    assert n == len(want) >= 4
    for box in out[:n]:
        assert min(np.abs(box - w).max() for w in want) <= 1
    tops = out[:n, 0, 1]
    assert all(b > a - 10 for a, b in zip(tops, tops[1:]))


def test_regions_and_holes(lib):
    text = ["..........", ".#######..", ".#.....#..", ".#.###.#..", ".#.###.#.#", ".#.....#.#", ".#######..", "#.........", ".#........"]
    bitmap = np.array([[ch == "#" for ch in row] for row in text], np.uint8)
    found = []

    @c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Point), c.c_int)
    def each(_, border, n):
        found.append({(int(border[i].x), int(border[i].y)) for i in range(n)})

    lib.regions_of(bitmap.ctypes.data_as(c.c_void_p), c.c_int(10), c.c_int(9), each, None)
    spans = sorted((min(x for x, _ in f), min(y for _, y in f), max(x for x, _ in f), max(y for _, y in f)) for f in found)
    # the ring with the diagonal tail, the hole in it (its border is the ring's inside), the block in the hole, the bar
    assert spans == [(0, 1, 7, 8), (1, 1, 7, 6), (3, 3, 5, 4), (9, 4, 9, 5)]


def test_decoding(lib):
    alphabet = lib.alphabet_new("a\nb\r\nß".encode())
    assert alphabet.n == 4 and [alphabet.word[i] for i in range(4)] == [b"a", b"b", "ß".encode(), b" "]
    for path, want in [([0, 1, 1, 0, 1, 2, 4, 3, 3, 0], "aab ß"), ([0, 0], ""), ([3], "ß"), ([2, 2, 2], "b")]:
        p = np.full((len(path), 5), 0.05, np.float32)
        for t, k in enumerate(path):
            p[t, k] = 0.5 + 0.05 * t
        score = c.c_double()
        text = lib.ctc_decode(c.byref(alphabet), p.ctypes.data, len(path), 5, c.byref(score))
        assert c.string_at(text).decode() == want
        kept = [p[t, k] for t, k in enumerate(path) if k and (t == 0 or path[t - 1] != k)]
        assert score.value == pytest.approx(np.mean(kept) if kept else 0)


def test_metadata(lib):
    meta = b"author\0someone\0character\0a\nb\0\0"
    assert lib.meta_find(meta, b"character") == b"a\nb" and lib.meta_find(meta, b"author") == b"someone"
    assert lib.meta_find(meta, b"someone") is None and lib.meta_find(None, b"x") is None and lib.meta_find(b"", b"") is None

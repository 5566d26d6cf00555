#!/usr/bin/env python3
"""Makes ocr_reference.npz: what OpenCV, pyclipper and the detector of rapidocr-onnxruntime give for small inputs, for
test_ocr.py. Run with the Python of examples/ocr's venv (make -C examples/ocr compare makes it).

usage: ocr_reference.py ocr_reference.npz
"""
import sys

import cv2
import numpy as np
import pyclipper
from rapidocr_onnxruntime.ch_ppocr_det import TextDetector
from rapidocr_onnxruntime.ch_ppocr_det.utils import DBPostProcess

SIZES = [(48, 77), (30, 20), (12, 20), (17, 55)]
QUADS = [[(3, 2), (34, 4), (33, 18), (2, 17)], [(0, 8), (26, 0), (31, 12), (5, 21)], [(0, 0), (39, 0), (39, 23), (0, 23)]]


def soft_rect(map_, cx, cy, w, h, angle, level):
    """A rectangle of text, as the detector paints it: high inside, falling off over two pixels."""
    y, x = np.mgrid[:map_.shape[0], :map_.shape[1]]
    a = np.deg2rad(angle)
    u, v = (x - cx) * np.cos(a) + (y - cy) * np.sin(a), (y - cy) * np.cos(a) - (x - cx) * np.sin(a)
    edge = np.minimum(w / 2 - np.abs(u), h / 2 - np.abs(v))
    np.maximum(map_, level * np.clip(0.5 + edge / 2, 0, 1), out=map_)


def main():
    rng, out = np.random.default_rng(1), {}
    picture = cv2.GaussianBlur(rng.integers(0, 256, (24, 40, 3)).astype(np.uint8), (0, 0), 0.8)
    out["picture"] = picture
    for i, (h, w) in enumerate(SIZES):
        out[f"resized{i}"] = cv2.resize(picture, (w, h))
    for i, quad in enumerate(QUADS):
        p = np.array(quad, np.float32)
        w = int(max(np.linalg.norm(p[0] - p[1]), np.linalg.norm(p[2] - p[3])))
        h = int(max(np.linalg.norm(p[0] - p[3]), np.linalg.norm(p[1] - p[2])))
        to = np.array([[0, 0], [w, 0], [w, h], [0, h]], np.float32)
        out[f"quad{i}"] = p
        out[f"crop{i}"] = cv2.warpPerspective(picture, cv2.getPerspectiveTransform(p, to), (w, h), borderMode=cv2.BORDER_REPLICATE,
                                              flags=cv2.INTER_CUBIC)
    points = rng.integers(0, 100, (12, 9, 2)).astype(np.float32)
    out["points"], out["rects"] = points, np.array([cv2.boxPoints(cv2.minAreaRect(p)) for p in points])
    offset = pyclipper.PyclipperOffset()
    offset.AddPath([(10, 10), (60, 14), (58, 30), (8, 26)], pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
    out["grown"] = np.array(offset.Execute(7.3)[0])
    map_ = np.zeros((128, 192), np.float32)
    for rect in [(60, 20, 90, 12, 0, 0.95), (140, 24, 50, 9, 3, 0.8), (60, 70, 80, 14, -18, 0.9), (150, 80, 12, 70, 0, 0.9),
                 (40, 110, 60, 10, 0, 0.4), (20, 100, 3, 3, 0, 0.9), (110, 110, 40, 10, 7, 0.7)]:
        soft_rect(map_, *rect)
    map_[15:25, 55:60] *= 0.2                        # a hole
    map_ = np.round(map_ * 255).astype(np.uint8)
    out["map"] = map_
    shape, detector = (200, 333), TextDetector.__new__(TextDetector)
    boxes, _ = DBPostProcess(0.3, 0.5, 1000, 1.6, "fast", True)((map_ / np.float32(255))[None, None], shape)
    out["boxes"] = detector.filter_tag_det_res(boxes, shape)
    np.savez_compressed(sys.argv[1], **out)


if __name__ == "__main__":
    main()

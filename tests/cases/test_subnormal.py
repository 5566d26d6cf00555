"""Channels that training has switched off hold subnormal numbers. As constants of convolutions and of BatchNormalization those
count as 0 (docs/numerics.md), while the same numbers as data stay what they are."""
import numpy as np
import pytest
from onnx import helper

from support.artifact import Artifact
from support.tool import mcc, save, value

N = helper.make_node
TINY = np.float32(1e-40)
LARGE = np.float32(2) ** 120     # TINY * LARGE is 1e-4


def compiled(tmp_path, nodes, ports, weights, x):
    model = save(tmp_path / "net.onnx", nodes, [value("x", x.shape)], [value("y", ports)], weights)
    done = mcc(model, "-o", tmp_path / "net.so")
    assert done.returncode == 0, done.stderr
    with Artifact(tmp_path / "net.so") as a:
        return a.run([x])[0]


def test_weights_of_a_convolution(tmp_path):
    w = np.ones((20, 3, 1, 1), np.float32)
    w[7] = w[11, 1] = -TINY
    x = np.full((1, 3, 5, 5), LARGE)
    y = compiled(tmp_path, [N("Conv", ["x", "w"], ["y"])], [1, 20, 5, 5], {"w": w}, x)
    assert (y[0, 7] == 0).all() and (y[0, 11] == 2 * LARGE).all() and (y[0, 12] == 3 * LARGE).all()


@pytest.mark.parametrize("at,beside", [(0, 4199), (255, 256), (256, 255), (4095, 0), (4096, 4095), (4198, 4199), (4199, 4198)])
def test_a_single_one_wherever_it_lies(tmp_path, at, beside):
    """4200 weights: more than are read at a time, and a rest."""
    w = np.zeros(4200, np.float32)
    w[at], w[beside] = TINY, 1
    x = np.zeros((1, 70, 5, 5), np.float32)
    x[0, at % 70] = LARGE
    w = w.reshape(60, 70, 1, 1)
    y = compiled(tmp_path, [N("Conv", ["x", "w"], ["y"])], [1, 60, 5, 5], {"w": w}, x)
    assert (y == 0).all()


def test_weights_of_a_transposed_convolution(tmp_path):
    w = np.ones((3, 16, 2, 2), np.float32)
    w[:, 5] = TINY
    x = np.full((1, 3, 4, 4), LARGE)
    y = compiled(tmp_path, [N("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])], [1, 16, 8, 8], {"w": w}, x)
    assert (y[0, 5] == 0).all() and (y[0, 6] == 3 * LARGE).all()


def test_statistics_of_a_normalisation(tmp_path):
    s = {"scale": np.ones(4), "shift": np.zeros(4), "mean": np.zeros(4), "var": np.ones(4)}
    s = {k: v.astype(np.float32) for k, v in s.items()}
    s["scale"][2] = s["shift"][2] = s["shift"][3] = TINY
    s["shift"][0] = 1
    x = np.full((1, 4, 3, 3), LARGE)
    x[0, 3] = 0
    y = compiled(tmp_path, [N("BatchNormalization", ["x", *s], ["y"], epsilon=0.0)], [1, 4, 3, 3], s, x)
    assert (y[0, 1] == LARGE).all() and (y[0, 2] == 0).all() and (y[0, 3] == 0).all()


def test_a_variance_stays(tmp_path):
    s = {"scale": [1, 1], "shift": [0, 0], "mean": [0, 0], "var": [1, 1e-40]}
    s = {k: np.array(v, np.float32) for k, v in s.items()}
    y = compiled(tmp_path, [N("BatchNormalization", ["x", *s], ["y"], epsilon=0.0)], [1, 2, 3, 3], s, np.ones((1, 2, 3, 3), np.float32))
    assert (y[0, 0] == 1).all() and np.allclose(y[0, 1], 1 / np.sqrt(s["var"][1].astype(np.float64)), rtol=1e-4)


def test_weights_that_are_all_small_stay(tmp_path):
    x = np.full((1, 3, 5, 5), LARGE)
    y = compiled(tmp_path, [N("Conv", ["x", "w"], ["y"])], [1, 4, 5, 5], {"w": np.full((4, 3, 1, 1), TINY)}, x)
    assert np.allclose(y, 3 * TINY.astype(np.float64) * LARGE, rtol=1e-4)


def test_data_stay(tmp_path):
    x = np.array([[TINY, -TINY, 0, 1]], np.float32)
    y = compiled(tmp_path, [N("Add", ["x", "c"], ["y"])], [1, 4], {"c": np.array([0, 0, TINY, 0], np.float32)}, x)
    assert (y == np.array([[TINY, -TINY, TINY, 1]], np.float32)).all()

"""Multinomial: draws have the distribution that the scores give; the same seed gives the same draws."""
import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import ModelError
from support.compare import Model, interpreted, node
from support.tool import value

INF, NAN = np.inf, np.nan


def draws(folder, dims=("b", "c"), elem=T.FLOAT, opset=17, **attributes):
    result = attributes.get("dtype", T.INT32)
    return Model(folder, [node("Multinomial", "x", "y", **attributes)], [value("x", dims, elem)], [value("y", [None] * 2, result)], opset=opset)


def check(y, scores, sample_size):
    """Each class as often as its probability says, to five deviations; never one of probability 0."""
    assert y.shape == (len(scores), sample_size) and y.min() >= 0 and y.max() < scores.shape[1]
    finite = np.isfinite(scores)
    p = np.where(finite, np.exp(scores - np.where(finite, scores, -INF).max(1, keepdims=True)), 0).astype(np.float64)
    p /= p.sum(1, keepdims=True)
    for row, odds in zip(y, p):
        seen = np.bincount(row, minlength=len(odds)) / sample_size
        assert (seen[odds == 0] == 0).all()
        assert (np.abs(seen - odds) <= 5 * np.sqrt(odds * (1 - odds) / sample_size) + 1e-9).all(), (seen, odds)


@pytest.mark.parametrize("opset, elem, dtype", [(7, T.FLOAT, np.float32), (17, T.DOUBLE, np.float64), (22, T.FLOAT16, np.float16)])
@pytest.mark.parametrize("given", [T.INT32, T.INT64, None])
@pytest.mark.parametrize("flag", ["-O0", "-O2"])
def test_distribution(tmp_path, opset, elem, dtype, given, flag):
    n, more = 20000, {"dtype": given} if given else {}
    model = draws(tmp_path, elem=elem, opset=opset, sample_size=n, seed=3.0, **more)
    for k, shape in enumerate(((3, 5), (1, 1), (2, 40))):
        scores = (np.random.default_rng(k).standard_normal(shape) * 2 + 90 * (k - 1)).astype(dtype)
        y = model.run([scores], flag)[0]
        assert y.dtype == (np.int64 if given == T.INT64 else np.int32)
        check(y, scores.astype(np.float64), n)


def test_classes_without_a_chance(tmp_path):
    n = 20000
    scores = np.array([[-INF, 0, -INF, 1, -INF], [NAN, 0, -2, INF, NAN], [-INF, -INF, -INF, -1e30, -INF], [-1e4, 0, 1e-9, 0, -1e4]], np.float32)
    check(draws(tmp_path, (4, 5), sample_size=n).run([scores])[0], scores.astype(np.float64), n)


def test_rows_without_any_chance(tmp_path):
    assert not draws(tmp_path, sample_size=5).run([np.array([[-INF, -INF], [NAN, INF]], np.float32)])[0].any()


def test_seeds(tmp_path):
    scores = np.zeros((2, 100), np.float32)
    made = []
    for k, more in enumerate(({"seed": 1.0}, {"seed": 1.0}, {"seed": 2.0}, {})):
        (tmp_path / str(k)).mkdir()
        model = draws(tmp_path / str(k), sample_size=50, **more)
        made.append(model.run([scores])[0])
    assert np.array_equal(made[0], made[1]) and not np.array_equal(made[0], made[2])
    assert np.array_equal(made[3], model.run([scores])[0])    # no seed: that of 0
    assert not np.array_equal(made[0], made[3]) and not np.array_equal(made[0][0], made[0][1])


def test_the_interpreter_draws_the_same(tmp_path):
    scores = np.random.default_rng(5).standard_normal((4, 9)).astype(np.float32)
    model = draws(tmp_path, (4, 9), sample_size=30, seed=7.0)
    assert interpreted(model, [scores]).returncode == 0
    assert np.array_equal(np.load(tmp_path / "eval/y.npy"), model.run([scores])[0])


def test_no_classes(tmp_path):
    with pytest.raises(ModelError, match="no classes"):
        draws(tmp_path, sample_size=2).run([np.zeros((2, 0), np.float32)])


def test_no_rows(tmp_path):
    assert draws(tmp_path, sample_size=2).run([np.zeros((0, 3), np.float32)])[0].shape == (0, 2)


@pytest.mark.parametrize("dims, more, words", [((2, 0), {}, "no classes"), ((2, 3, 4), {}, "rank 3"), ((2, 3), {"sample_size": 0}, "sample_size 0"),
                                               ((2, 3), {"dtype": T.FLOAT}, "dtype f32")])
def test_refused(tmp_path, dims, more, words):
    assert words in draws(tmp_path, dims, **more).refused()

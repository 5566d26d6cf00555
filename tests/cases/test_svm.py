"""SVMRegressor, SVMClassifier, and post_transform of LinearRegressor, beside ONNX Runtime."""
import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import ModelError
from support.compare import floats, node
from support.ml import model_of
from support.tool import value

FEATURES, SUPPORTS = 6, 9
POST = ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def regressor(folder, op="SVMRegressor", dims=("n", FEATURES), elem=T.FLOAT, **attributes):
    return model_of(folder, [node(op, "x", "y", domain="ai.onnx.ml", **attributes)], [value("x", dims, elem)], [value("y", ["n", None])])


def machine(**more):
    return {"kernel_type": "RBF", "kernel_params": [0.3, 0.25, 3.0], "support_vectors": floats(SUPPORTS, FEATURES, seed=1).ravel().tolist(),
            "coefficients": floats(SUPPORTS, seed=2).tolist(), "n_supports": SUPPORTS, "rho": [0.375]} | more


@pytest.mark.parametrize("dims", [("n", FEATURES), ("n", "m"), (20, FEATURES)], ids=str)
@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_kernels(tmp_path, kernel, one_class, dims):
    model = regressor(tmp_path, dims=dims, **machine(kernel_type=kernel, one_class=one_class))
    got = model.compare([floats(20, FEATURES, seed=3)], rtol=1e-3)[0]
    assert got.shape == (20, 1) and (not one_class or set(got.ravel()) == {-1, 1})


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF"])
def test_coefficients_of_features(tmp_path, kernel):
    model = regressor(tmp_path, **machine(kernel_type=kernel, n_supports=0, support_vectors=None, coefficients=floats(FEATURES, seed=2).tolist()))
    model.compare([floats(20, FEATURES)])


@pytest.mark.parametrize("degree", [2.0, 5.0, 2.5])
def test_degrees(tmp_path, degree):
    model = regressor(tmp_path, **machine(kernel_type="POLY", kernel_params=[0.5, 8.0, degree]))
    model.compare([floats(20, FEATURES)], rtol=1e-3)


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF"])
def test_another_number_of_features(tmp_path, kernel):
    with pytest.raises(ModelError):
        regressor(tmp_path, dims=("n", "m"), **machine(kernel_type=kernel)).run([floats(2, 1)])


@pytest.mark.parametrize("more, words", [
    ({"post_transform": "SOFTMAX"}, "SOFTMAX"), ({"kernel_type": "COSINE"}, "COSINE"), ({"kernel_params": [0.5]}, "1 kernel_params"),
    ({"rho": [0.5, 1.0]}, "2 rho"), ({"n_supports": 5}, "5 supports"), ({"coefficients": [1.0]}, "1 coefficients")])
def test_refused(tmp_path, more, words):
    assert words in regressor(tmp_path, **machine(**more)).refused()


PER_CLASS, NAMES = [3, 1, 4, 2], {"classlabels_ints": [7, -2, 30, 5]}


def classifier(folder, label=T.INT64, **more):
    n = sum(PER_CLASS)
    attributes = {"kernel_type": "RBF", "kernel_params": [0.3, 0.25, 3.0], "vectors_per_class": PER_CLASS, "rho": floats(6, seed=4, scale=0.05).tolist(),
                  "support_vectors": floats(n, FEATURES, seed=5).ravel().tolist(), "coefficients": floats(3, n, seed=6).ravel().tolist()} | more
    return model_of(folder, [node("SVMClassifier", "x", "label scores", domain="ai.onnx.ml", **attributes)], [value("x", ["n", FEATURES])],
                    [value("label", ["n"], label), value("scores", ["n", None])])


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_classifier(tmp_path, kernel, post):
    got = classifier(tmp_path, kernel_type=kernel, post_transform=post, **NAMES).compare([floats(80, FEATURES, seed=7)], rtol=1e-3, atol=1e-4)
    assert len(set(got[0].tolist())) > 2


def test_classifier_with_labels_that_are_strings(tmp_path):
    classifier(tmp_path, T.STRING, classlabels_strings=["a", "bb", "", "d"]).compare([floats(80, FEATURES, seed=7)])


LABELS = {"classlabels_ints": [10, -20, 30, 5, 7]}


def of_classes(folder, per_class, kernel="RBF", scale=1.0, **more):
    """Support vectors for this many classes; labels of those."""
    k, n = len(per_class), sum(per_class)
    pairs = k * (k - 1) // 2
    made = {"kernel_type": kernel, "kernel_params": [0.3, 0.25, 3.0], "vectors_per_class": per_class, "rho": floats(pairs, seed=4, scale=0.05).tolist(),
            "support_vectors": floats(n, FEATURES, seed=5).ravel().tolist(), "coefficients": floats(k - 1, n, seed=6, scale=scale).ravel().tolist(),
            "classlabels_ints": LABELS["classlabels_ints"][:k]} | more
    return model_of(folder, [node("SVMClassifier", "x", "label scores", domain="ai.onnx.ml", **made)], [value("x", ["n", FEATURES])],
                    [value("label", ["n"], T.INT64), value("scores", ["n", None])])


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("kernel", ["LINEAR", "RBF"])
@pytest.mark.parametrize("positive", [False, True])
def test_two_classes(tmp_path, positive, kernel, post):
    weights = {"coefficients": np.abs(floats(5, seed=6)).tolist(), "rho": [-0.2]} if positive else {}
    got = of_classes(tmp_path, [2, 3], kernel, post_transform=post, **weights).compare([floats(60, FEATURES, seed=7)], rtol=1e-3, atol=1e-4)
    assert got[1].shape == (60, 2) and len(set(got[0].tolist())) == 2


@pytest.mark.parametrize("per_class", [[2, 0, 3], [0, 3, 1, 2]], ids=str)
def test_a_class_without_vectors(tmp_path, per_class):
    of_classes(tmp_path, per_class).compare([floats(40, FEATURES, seed=7)], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kernel, degree", [("LINEAR", 0.0), ("POLY", 3.0)])
def test_kernels_that_overflow(tmp_path, kernel, degree):
    """They are in the scores of their own class's pairs only."""
    vectors = np.repeat([2.0, 2.0, 0.25, 0.25, 0.25, -0.25], FEATURES)
    model = of_classes(tmp_path, [2, 1, 3], kernel, kernel_params=[1.0, 0.0, degree], support_vectors=vectors.tolist(),
                       coefficients=[0.5, 0.25, 1.0, 0.75, 0.5, 0.25] * 2)
    x = np.zeros((3, FEATURES), np.float32)
    x[1, 0], x[2, 0] = 3e38 if kernel == "LINEAR" else 4e12, 1
    got = model.compare([x], rtol=1e-3, atol=1e-4)[1]
    assert np.isinf(got[1, :2]).all() and np.isfinite(got[:, 2]).all() and np.isfinite(got[[0, 2]]).all()


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("per_class", [[2, 3], [3, 1, 4], [2, 2, 1, 3, 2]], ids=len)
@pytest.mark.parametrize("steep", [1.0, 30.0], ids=["even", "steep"])
def test_probabilities(tmp_path, steep, per_class, post):
    """A row alone, and rows that settle after another number of rounds each."""
    pairs = len(per_class) * (len(per_class) - 1) // 2
    prob = {"prob_a": (-steep * np.linspace(0.5, 1.5, pairs)).tolist(), "prob_b": floats(pairs, seed=9, scale=0.2).tolist()}
    model = of_classes(tmp_path, per_class, scale=2.0, post_transform=post, **prob)
    for n in (1, 50):
        got = model.compare([floats(n, FEATURES, seed=n)], rtol=1e-3, atol=1e-4)
    assert post != "NONE" or np.allclose(got[1].sum(1), 1, atol=1e-3) and np.ptp(got[1]) > 0.1


@pytest.mark.parametrize("classes, rho, positive", [(2, 1, False), (2, 1, True), (3, 1, False), (3, 3, False), (5, 10, True)])
@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_without_support_vectors(tmp_path, post, classes, rho, positive):
    weights = floats(classes, FEATURES, seed=3).ravel()
    model = model_of(tmp_path, [node("SVMClassifier", "x", "label scores", domain="ai.onnx.ml", kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0],
                                     coefficients=(np.abs(weights) if positive else weights).tolist(), rho=floats(rho, seed=4, scale=0.3).tolist(),
                                     classlabels_ints=LABELS["classlabels_ints"][:classes], post_transform=post)],
                     [value("x", ["n", FEATURES])], [value("label", ["n"], T.INT64), value("scores", ["n", None])])
    got = model.compare([floats(60, FEATURES, seed=7, scale=0.5)], rtol=1e-3, atol=1e-4)
    assert len(set(got[0].tolist())) > 1


@pytest.mark.parametrize("more, words", [
    ({"prob_a": [0.5] * 6}, "0 prob_b"), ({"prob_a": [0.5] * 5, "prob_b": [0.5] * 5}, "5 prob_a"), ({"rho": [0.5]}, "1 rho"),
    ({"vectors_per_class": [3, -1, 6, 2]}, "holds -1"), ({"vectors_per_class": [9, 1, 4, 2]}, "16 vectors"), ({"coefficients": [1.0]}, "1 coefficients"),
    ({"support_vectors": None, "prob_a": [0.5], "prob_b": [0.5]}, "with support vectors"), ({"support_vectors": None, "coefficients": [1.0]}, "for 4 labels")])
def test_classifier_refused(tmp_path, more, words):
    assert words in classifier(tmp_path, **NAMES, **more).refused()


def test_probit_of_two_classes_is_refused(tmp_path):
    assert "PROBIT" in of_classes(tmp_path, [2, 3], post_transform="PROBIT").refused()


@pytest.mark.parametrize("post", POST)
@pytest.mark.parametrize("targets", [2, 5])
def test_linear_regressor(tmp_path, post, targets):
    weights = np.random.default_rng(targets).uniform(0.01, 0.3, (targets, FEATURES))
    model = regressor(tmp_path, "LinearRegressor", coefficients=weights.ravel().tolist(), intercepts=[0.05] * targets, targets=targets, post_transform=post)
    model.compare([np.random.default_rng(1).uniform(0, 0.5, (30, FEATURES)).astype(np.float32)], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("post, reference", [("SOFTMAX", np.ones_like), ("LOGISTIC", lambda y: 1 / (1 + np.exp(-y)))])
def test_linear_regressor_of_one_target(tmp_path, post, reference):
    model = regressor(tmp_path, "LinearRegressor", coefficients=[0.5] * FEATURES, intercepts=[0.25], post_transform=post)
    x = floats(7, FEATURES)
    model.compare([x], want=[reference(x.sum(1, keepdims=True) / 2 + np.float32(0.25))])

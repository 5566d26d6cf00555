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


@pytest.mark.parametrize("more, words", [
    ({"prob_a": [0.5] * 6, "prob_b": [0.5] * 6}, "no probabilities"), ({"vectors_per_class": [5, 5]}, "three classes"), ({"rho": [0.5]}, "1 rho"),
    ({"vectors_per_class": [3, -1, 6, 2]}, "holds -1"), ({"vectors_per_class": [9, 1, 4, 2]}, "16 vectors"), ({"coefficients": [1.0]}, "1 coefficients")])
def test_classifier_refused(tmp_path, more, words):
    assert words in classifier(tmp_path, **NAMES, **more).refused()


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

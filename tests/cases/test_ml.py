"""Linear models of ai.onnx.ml beside ONNX Runtime."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.compare import Model, floats, node
from support.tool import value

FEATURES, CLASSES = 7, 4


def model_of(folder, nodes, inputs, outputs):
    graph = helper.make_graph(nodes, "net", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "net.onnx")
    return Model(folder, path=folder / "net.onnx")


def classifier(folder, elem=T.FLOAT, **more):
    attributes = {"coefficients": floats(CLASSES * FEATURES).tolist(), "intercepts": floats(CLASSES, seed=1).tolist(),
                  "classlabels_ints": [30, -10, 20, 5], "multi_class": 1} | more
    linear = node("LinearClassifier", "x", "label scores", domain="ai.onnx.ml", **attributes)
    return model_of(folder, [linear], [value("x", ["n", FEATURES], elem)], [value("label", ["n"], T.INT64), value("scores", ["n", None])])


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_linear_classifier(transform, tmp_path):
    model = classifier(tmp_path, post_transform=transform)
    labels = set()
    for n in (1, 2, 50):
        labels |= set(model.compare([floats(n, FEATURES, seed=n)])[0].tolist())
    assert labels == {30, -10, 20, 5}


def test_linear_classifier_of_integers_and_of_equal_scores(tmp_path):
    model = classifier(tmp_path, T.INT64, coefficients=[1.0] * (CLASSES * FEATURES), intercepts=[0.0, 1.0, 1.0, 0.5])
    got = model.compare([np.random.default_rng(0).integers(-9, 9, (6, FEATURES))])
    assert (got[0] == -10).all()


@pytest.mark.parametrize("more, words", [
    ({"post_transform": "PROBIT"}, "PROBIT"), ({"intercepts": [1.0]}, "1 intercepts"), ({"coefficients": [1.0] * 13}, "13 coefficients")])
def test_linear_classifier_refused(more, words, tmp_path):
    assert words in classifier(tmp_path, **more).refused()

"""Linear models, forests and labels of ai.onnx.ml beside ONNX Runtime."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from support.compare import Model, floats, ints, node
from support.tool import value

FEATURES, CLASSES = 7, 4


def model_of(folder, nodes, inputs, outputs, version=1):
    graph = helper.make_graph(nodes, "net", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
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


def forest(seed, trees=5, depth=4, targets=1, mode="BRANCH_LEQ"):
    """Attributes of random trees over FEATURES columns; leaves of the first vote for every target, others for one."""
    rng, lists = np.random.default_rng(seed), {}
    put = lambda **row: [lists.setdefault(k, []).append(v) for k, v in row.items()]
    for tree in range(trees):
        waiting, made = [(0, 0)], 1
        while waiting:
            i, level = waiting.pop(0)
            leaf = level == depth or (level > 0 and rng.random() < 0.3)
            put(nodes_treeids=tree, nodes_nodeids=i, nodes_featureids=int(rng.integers(FEATURES)), nodes_modes="LEAF" if leaf else mode,
                nodes_values=float(np.float32(rng.standard_normal())), nodes_truenodeids=0 if leaf else made,
                nodes_falsenodeids=0 if leaf else made + 1)
            if not leaf:
                waiting += [(made, level + 1), (made + 1, level + 1)]
                made += 2
                continue
            for target in range(targets) if tree == 0 else [rng.integers(targets)]:
                put(target_treeids=tree, target_nodeids=i, target_ids=int(target), target_weights=float(np.float32(rng.standard_normal())))
    return lists


def regressor(folder, elem=T.FLOAT, **attributes):
    made = node("TreeEnsembleRegressor", "x", "y", domain="ai.onnx.ml", **attributes)
    return model_of(folder, [made], [value("x", ["n", FEATURES], elem)], [value("y", ["n", None])])


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"])
@pytest.mark.parametrize("targets, more", [(1, {}), (3, {"base_values": [0.5, -1.0, 2.0]}),
                                           (2, {"aggregate_function": "AVERAGE", "base_values": [0.25, 4.0]})])
def test_tree_regressor(mode, targets, more, tmp_path):
    model = regressor(tmp_path, n_targets=targets, **forest(targets, targets=targets, mode=mode), **more)
    for n in (1, 3, 40):
        model.compare([floats(n, FEATURES, seed=n)])


def test_tree_regressor_on_a_split(tmp_path):
    """Rows that lie exactly on the numbers that the nodes compare with."""
    attributes = forest(7)
    model = regressor(tmp_path, n_targets=1, **attributes)
    model.compare([np.repeat(np.float32(attributes["nodes_values"])[:, None], FEATURES, 1)])


@pytest.mark.parametrize("more, words", [
    ({"aggregate_function": "MAX"}, "MAX"), ({"post_transform": "PROBIT"}, "PROBIT"), ({"base_values": [1.0, 2.0]}, "2 base_values")])
def test_tree_regressor_refused(more, words, tmp_path):
    assert words in regressor(tmp_path, n_targets=1, **forest(1), **more).refused()


def tree_classifier(folder, seed, classes, positive=False, names=None, **more):
    """A forest whose votes are for classes: of two for number 0 only."""
    lists = forest(seed, targets=1 if classes == 2 else classes)
    votes = {k.replace("target", "class"): v for k, v in lists.items() if k.startswith("target")}
    votes["class_weights"] = np.float32(np.abs(votes["class_weights"]) / 5 if positive else votes["class_weights"]).tolist()
    nodes = {k: v for k, v in lists.items() if k.startswith("nodes")}
    made = node("TreeEnsembleClassifier", "x", "label scores", domain="ai.onnx.ml", **nodes, **votes,
                classlabels_int64s=names or [7 * c - 3 for c in range(classes)], **more)
    return model_of(folder, [made], [value("x", ["n", FEATURES])], [value("label", ["n"], T.INT64), value("scores", ["n", None])])


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("base", [{}, {"base_values": [0.125]}])
def test_tree_classifier_of_two_classes(transform, positive, base, tmp_path):
    model = tree_classifier(tmp_path, 3, 2, positive, post_transform=transform, **base)
    chosen = set()
    for n in (1, 3, 60):
        chosen |= set(model.compare([floats(n, FEATURES, seed=n)])[0].tolist())
    assert chosen == {-3, 4}


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_tree_classifier_of_many_classes(transform, tmp_path):
    model = tree_classifier(tmp_path, 5, 4, post_transform=transform, base_values=[0.5, -0.25, 0.0, 0.125])
    for n in (1, 60):
        model.compare([floats(n, FEATURES, seed=n)])


@pytest.mark.parametrize("more, words", [({"post_transform": "SOFTMAX"}, "SOFTMAX"), ({"base_values": [1.0, 2.0]}, "2 base_values"),
                                         ({"names": [1]}, "1 classes")])
def test_tree_classifier_refused(more, words, tmp_path):
    assert words in tree_classifier(tmp_path, 3, 2, **more).refused()


def labels(folder, key, result, **attributes):
    made = node("LabelEncoder", "x", "y", domain="ai.onnx.ml", **attributes)
    return model_of(folder, [made], [value("x", ["n", None], key)], [value("y", ["n", None], result)], version=4)


NAN, F = float("nan"), np.float32


@pytest.mark.parametrize("x, result, attributes", [
    (ints(7, 5, 0, -3, 9).reshape(1, 5), T.FLOAT, {"keys_int64s": [5, 7, -3], "values_floats": [0.5, 0.75, NAN], "default_float": 2.5}),
    (ints(7, 5, 0, 1).reshape(2, 2), T.INT64, {"keys_int64s": [5, 7], "values_int64s": [-50, 70]}),
    (np.array([[1.5, NAN, 2.0], [np.inf, -0.0, 3.0]], F), T.INT64,
     {"keys_floats": [NAN, 1.5, np.inf, 0.0], "values_int64s": [1, 2, 3, 4], "default_int64": -7}),
    (np.array([["a", "bc"], ["", "A"], ["bcd", "é"]], object), T.INT64,
     {"keys_strings": ["bc", "", "é", "a"], "values_int64s": [1, 2, 3, 4], "default_int64": 9}),
    (np.array([["a", "b"]], object), T.FLOAT, {"keys_strings": ["b"], "values_floats": [1.5]}),
], ids=["integers", "default -1", "floats", "strings", "default -0"])
def test_label_encoder(x, result, attributes, tmp_path):
    key = {"O": T.STRING, "i": T.INT64, "f": T.FLOAT}[x.dtype.kind]
    labels(tmp_path, key, result, **attributes).compare([x])


def test_label_encoder_takes_the_last_of_equal_keys(tmp_path):
    """As ONNX's text says."""
    for k, (x, keys) in enumerate(((ints(1, 2).reshape(1, 2), {"keys_int64s": [1, 2, 1]}),
                                   (np.array([["p", "q"]], object), {"keys_strings": ["p", "q", "p"]}))):
        (tmp_path / str(k)).mkdir()
        model = labels(tmp_path / str(k), T.STRING if k else T.INT64, T.INT64, values_int64s=[10, 20, 30], **keys)
        model.compare([x], [ints(30, 20).reshape(1, 2)])


@pytest.mark.parametrize("attributes, words", [
    ({"keys_int64s": [1, 2], "values_strings": ["a", "b"]}, "values of type string"), ({"keys_int64s": [1, 2], "values_int64s": [1]}, "1 values"),
    ({"keys_floats": [1.0], "values_int64s": [1]}, "keys are f32"),
    ({"keys_int64s": [1], "values_int64s": [1], "default_tensor": numpy_helper.from_array(F([1]))}, "default_tensor")])
def test_label_encoder_refused(attributes, words, tmp_path):
    assert words in labels(tmp_path, T.INT64, T.INT64, **attributes).refused()

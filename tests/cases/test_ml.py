"""Linear models and labels of ai.onnx.ml beside ONNX Runtime."""
import ctypes
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from support.artifact import Artifact
from support.compare import floats, ints, node
from support.ml import model_of
from support.tool import mcc, value

FEATURES, CLASSES = 7, 4


def classifier(folder, elem=T.FLOAT, **more):
    attributes = {"coefficients": floats(CLASSES * FEATURES).tolist(), "intercepts": floats(CLASSES, seed=1).tolist(),
                  "classlabels_ints": [30, -10, 20, 5], "multi_class": 1} | more
    linear = node("LinearClassifier", "x", "label scores", domain="ai.onnx.ml", **attributes)
    return model_of(folder, [linear], [value("x", ["n", FEATURES], elem)], [value("label", ["n"], T.INT64), value("scores", ["n", None])])


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_linear_classifier(transform, tmp_path):
    model = classifier(tmp_path, post_transform=transform)
    labels = set()
    for n in (1, 2, 50):
        labels |= set(model.compare([floats(n, FEATURES, seed=n)])[0].tolist())
    assert labels == {30, -10, 20, 5}


def test_linear_classifier_with_labels_that_are_strings(tmp_path):
    attributes = {"coefficients": floats(3 * FEATURES).tolist(), "intercepts": [0.0] * 3, "classlabels_strings": ["setosa", "", "größer"]}
    linear = node("LinearClassifier", "x", "label scores", domain="ai.onnx.ml", **attributes)
    outputs = [value("label", ["n"], T.STRING), value("scores", ["n", None])]
    model = model_of(tmp_path, [linear], [value("x", ["n", FEATURES])], outputs)
    assert set(model.compare([floats(30, FEATURES)])[0]) == {"setosa", "", "größer"}


def test_linear_classifier_of_integers_and_of_equal_scores(tmp_path):
    model = classifier(tmp_path, T.INT64, coefficients=[1.0] * (CLASSES * FEATURES), intercepts=[0.0, 1.0, 1.0, 0.5])
    got = model.compare([np.random.default_rng(0).integers(-9, 9, (6, FEATURES))])
    assert (got[0] == -10).all()


@pytest.mark.parametrize("more, words", [
    ({"post_transform": "LOG"}, "LOG"), ({"intercepts": [1.0]}, "1 intercepts"), ({"coefficients": [1.0] * 13}, "13 coefficients")])
def test_linear_classifier_refused(more, words, tmp_path):
    assert words in classifier(tmp_path, **more).refused()


def labels(folder, key, result, version=4, **attributes):
    made = node("LabelEncoder", "x", "y", domain="ai.onnx.ml", **attributes)
    return model_of(folder, [made], [value("x", ["n", None], key)], [value("y", ["n", None], result)], version)


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


@pytest.mark.parametrize("values", ["strings", "int64s", "floats"])
@pytest.mark.parametrize("keys", ["strings", "int64s", "floats"])
@pytest.mark.parametrize("version, absent", [(2, False), (2, True), (4, True)])
def test_label_encoder_in_every_direction(keys, values, version, absent, tmp_path):
    lists = {"strings": ["bc", "", "é", "a"], "int64s": [5, -7, 0, 1 << 40], "floats": [1.5, NAN if version > 2 else 9.5, -0.25, 8.0]}
    kinds = {"strings": (T.STRING, object), "int64s": (T.INT64, np.int64), "floats": (T.FLOAT, F)}
    more = {"default_string": "none", "default_int64": 99, "default_float": 0.5} if absent else {}
    x = np.array(lists[keys] + {"strings": ["A", "bcd"], "int64s": [6, 7], "floats": [0.0, np.inf]}[keys], kinds[keys][1])[:, None]
    model = labels(tmp_path, kinds[keys][0], kinds[values][0], version, **{f"keys_{keys}": lists[keys], f"values_{values}": lists[values]}, **more)
    model.compare([x])


@pytest.mark.parametrize("key, result", [(np.float64, np.int16), (np.int64, object), (object, np.float64), (object, object)])
def test_label_encoder_of_tensors(key, result, tmp_path):
    """Types that only version 4 has; those that ONNX Runtime lacks beside the mapping itself."""
    keys, values = (np.array(["k", "l", "é"] if t == object else [1, 2, 300], t) for t in (key, result))
    none = np.array(["-"] if result == object else [-1], result)
    kind = {np.float64: T.DOUBLE, np.int64: T.INT64, np.int16: T.INT16, object: T.STRING}
    tensor = lambda a: helper.make_tensor("t", kind[result if a is not keys else key], [len(a)], [str(s).encode() for s in a] if a.dtype == object else a)
    model = labels(tmp_path, kind[key], kind[result], 4, keys_tensor=tensor(keys), values_tensor=tensor(values), default_tensor=tensor(none))
    x = np.concatenate([keys[::-1], np.array(["none"] if key == object else [77], key)])[:, None]
    model.compare([x], [np.concatenate([values[::-1], none])[:, None]])


@pytest.mark.parametrize("x, result", [(np.array([["b", "c"], ["a", ""]], object), T.INT64), (ints(0, 2, -1, 3).reshape(2, 2), T.STRING)])
@pytest.mark.parametrize("more", [{}, {"default_int64": 44, "default_string": "?"}])
@pytest.mark.parametrize("op", ["LabelEncoder", "CategoryMapper"])
def test_old_label_encoder_and_category_mapper(op, x, result, more, tmp_path):
    lists = {"classes_strings": ["a", "b", "c"]} if op == "LabelEncoder" else {"cats_strings": ["a", "b", "c"], "cats_int64s": [2, 0, 7]}
    made = node(op, "x", "y", domain="ai.onnx.ml", **lists, **more)
    key = T.STRING if x.dtype == object else T.INT64
    model_of(tmp_path, [made], [value("x", [2, 2], key)], [value("y", [2, 2], result)]).compare([x])


def test_label_encoder_takes_the_last_of_equal_keys(tmp_path):
    """As ONNX's text says."""
    for k, (x, keys) in enumerate(((ints(1, 2).reshape(1, 2), {"keys_int64s": [1, 2, 1]}),
                                   (np.array([["p", "q"]], object), {"keys_strings": ["p", "q", "p"]}))):
        (tmp_path / str(k)).mkdir()
        model = labels(tmp_path / str(k), T.STRING if k else T.INT64, T.INT64, values_int64s=[10, 20, 30], **keys)
        model.compare([x], [ints(30, 20).reshape(1, 2)])


@pytest.mark.parametrize("attributes, words", [
    ({"keys_int64s": [1, 2], "values_int64s": [1]}, "1 values"),
    ({"keys_floats": [1.0], "values_int64s": [1]}, "keys are f32"),
    ({"keys_int64s": [1], "values_int64s": [1], "default_tensor": numpy_helper.from_array(F([1]))}, "default_tensor")])
def test_label_encoder_refused(attributes, words, tmp_path):
    assert words in labels(tmp_path, T.INT64, T.INT64, **attributes).refused()


@pytest.mark.parametrize("elem, kind, more", [
    (T.FLOAT, F, {"imputed_value_floats": [1.5], "replaced_value_float": NAN}), (T.FLOAT, F, {"imputed_value_floats": [0.5, 2.0, -1.0]}),
    (T.INT64, np.int64, {"imputed_value_int64s": [7], "replaced_value_int64": 2}), (T.INT64, np.int64, {"imputed_value_int64s": [7, 8, 9]})])
def test_imputer(elem, kind, more, tmp_path):
    x = np.random.default_rng(0).choice([0, 1, 2] + [NAN] * (kind == F), (6, 3)).astype(kind)
    made = node("Imputer", "x", "y", domain="ai.onnx.ml", **more)
    model_of(tmp_path, [made], [value("x", ["n", 3], elem)], [value("y", ["n", 3], elem)]).compare([x])


@pytest.mark.parametrize("x, elem", [(ints(3, 1, 9, 4).reshape(2, 2), T.INT64), (np.array([[3.9, 1], [-4, 4]], F), T.FLOAT),
                                     (np.array([["b", ""], ["x", "a"]], object), T.STRING)])
def test_one_hot_encoder(x, elem, tmp_path):
    cats = {"cats_strings": ["a", "b", ""]} if elem == T.STRING else {"cats_int64s": [1, 3, 4, -4]}
    made = node("OneHotEncoder", "x", "y", domain="ai.onnx.ml", zeros=1, **cats)
    model_of(tmp_path, [made], [value("x", ["n", 2], elem)], [value("y", ["n", 2, None])]).compare([x])


def test_feature_vectorizer(tmp_path):
    made = node("FeatureVectorizer", "a b", "y", domain="ai.onnx.ml", inputdimensions=[2, 3])
    model = model_of(tmp_path, [made], [value("a", ["n", 2]), value("b", ["n", 3])], [value("y", ["n", 5])])
    model.compare([floats(4, 2), floats(4, 3, seed=1)])


@pytest.mark.parametrize("names", [{"classlabels_int64s": [30, -10, 5]}, {"classlabels_strings": ["a", 'b"', "\u00e9"]}])
def test_zip_map(names, tmp_path):
    """The tensor of the numbers, and the labels as metadata."""
    labels, maps = list(names.values())[0], onnx.TypeProto()
    key = maps.sequence_type.elem_type.map_type
    key.key_type = T.STRING if "classlabels_strings" in names else T.INT64
    key.value_type.tensor_type.elem_type = T.FLOAT
    outputs = [helper.make_value_info("maps", maps)]
    model = model_of(tmp_path, [node("Relu", "x", "s"), node("ZipMap", "s", "maps", domain="ai.onnx.ml", **names)], [value("x", ["n", 3])], outputs)
    x = floats(4, 3)
    model.compare([x], [np.array([[row[label] for label in labels] for row in model.want([x])[0]], F)])
    done = mcc(model.path, "-o", tmp_path / "a.so")
    assert "-Wmaps" in done.stderr and "classlabels:maps" in done.stderr
    with Artifact(tmp_path / "a.so") as a:
        at = ctypes.c_void_p.from_buffer(a.api, type(a.api).meta.offset).value
        key = ctypes.string_at(at)
        text = ctypes.string_at(at + len(key) + 1)
    assert key == b"classlabels:maps" and json.loads(text) == labels
    assert "-Werror=maps" in model.refused("-Werror")


def test_zip_map_of_another_width(tmp_path):
    made = node("ZipMap", "x", "y", domain="ai.onnx.ml", classlabels_int64s=[1, 2])
    assert "3 scores and 2 labels" in model_of(tmp_path, [made], [value("x", ["n", 3])], [value("y", ["n", 3])]).refused()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("op", ["Normalizer", "Scaler", "Binarizer", "LinearRegressor"])
def test_plain_operators_drawn(op, seed, tmp_path):
    rng = np.random.default_rng(seed)
    more = {"Normalizer": {"norm": ["MAX", "L1", "L2"][seed]}, "Binarizer": {"threshold": float(rng.choice([0, 0.5, -1]))},
            "Scaler": {"offset": floats([1, 4, 4][seed], seed=1).tolist(), "scale": floats([1, 4, 4][seed], seed=2).tolist()},
            "LinearRegressor": {"targets": 1 + seed, "coefficients": floats(4 * (1 + seed)).tolist(), "intercepts": floats(1 + seed).tolist()}}[op]
    made = node(op, "x", "y", domain="ai.onnx.ml", **more)
    x = floats(6, 4, seed=seed)
    x[2], x[3, 1], x[4] = 0, 0.5, -np.abs(x[4])
    model_of(tmp_path, [made], [value("x", ["n", 4])], [value("y", ["n", None])]).compare([x])

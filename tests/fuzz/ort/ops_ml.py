"""Operators of ai.onnx.ml, over rows of features."""
import numpy as np

from fuzz.ort.draw import Refused, generator
from fuzz.ort.elements import F32, F64, I32, I64, OF_NAME, TEXT

ML = "ai.onnx.ml"
WORDS = ["", "a", "b", "é", "cat", "dog", "Dog", "7", " x"]


def rows(d, op, types=None):
    """Rows of features, of a type that the operator takes."""
    schema = d.schema(op, ML)
    allowed = types or [OF_NAME[t] for c in schema.type_constraints if c.type_param_str == schema.inputs[0].type_str
                        for t in c.allowed_type_strs if t in OF_NAME]
    return d.value([t for t in allowed if t != F64 or d.chance(30)] or allowed, 2, 2, 1, limit=600)


def numbers(d, n, lo=-2.0, hi=2.0):
    """As the file has them: of 32 bits."""
    return [float(np.float32(v)) for v in d.rng.uniform(lo, hi, n)]


def labels(d, n, ints="classlabels_int64s"):
    return {ints: [7 * k - 3 for k in range(n)]} if d.chance(60) else {"classlabels_strings": [f"class {k}" for k in range(n)]}


@generator("Normalizer", "Scaler", "Binarizer", "Imputer")
def plain(d, op):
    if op == "Imputer":
        x = rows(d, op, [F32, F64])
        given = {"imputed_value_floats": numbers(d, d.pick((1, x.shape[1])))}
        if d.chance(50):
            given["replaced_value_float"] = d.pick((0.0, 1.0, float("nan")))
    else:
        x = rows(d, op, [F32] if op == "Binarizer" else None)
        n = d.pick((1, x.shape[1]))
        given = {"Normalizer": {"norm": d.pick(("MAX", "L1", "L2"))}, "Binarizer": {"threshold": d.pick((0.0, 0.5, -1.0))},
                 "Scaler": {"offset": numbers(d, n), "scale": numbers(d, n)}}[op]
    d.node(op, [x], domain=ML, **given)


@generator("ArrayFeatureExtractor")
def extractor(d, op):
    x = d.value([F32, F64, I64, I32], 2, 3, 1)
    d.node(op, [x, d.leaf(I64, [d.int(1, 5)], 0, x.shape[-1] - 1)], domain=ML)


@generator("FeatureVectorizer")
def vectorizer(d, op):
    x = rows(d, op, [F32])
    more = [d.leaf(F32, [x.shape[0], d.int(1, 4)]) for _ in range(d.int(0, 2))]
    d.node(op, [x, *more], domain=ML, inputdimensions=[v.shape[1] for v in [x, *more]])


@generator("LabelEncoder", weight=2)
def label_encoder(d, op):
    kinds = {"int64s": (I64, list(range(-3, 6))), "floats": (F32, [0.0, 1.0, -0.5, 2.5, 3.0, -4.0]), "strings": (TEXT, WORDS)}
    key, to = d.pick(list(kinds)), d.pick(list(kinds))
    t, pool = kinds[key]
    keys = d.some(pool, 1)
    values = [d.pick(kinds[to][1]) for _ in keys]
    x = d.words(d.shape(1, 3), pool) if t == TEXT else d.given(np.array(pool)[d.rng.integers(0, len(pool), d.shape(1, 3))].astype(t), d.chance(30))
    absent = {f"default_{ {'int64s': 'int64', 'floats': 'float', 'strings': 'string'}[to]}": kinds[to][1][0]} if d.chance(50) else {}
    d.node(op, [x], domain=ML, **{f"keys_{key}": keys, f"values_{to}": values}, **absent)


@generator("OneHotEncoder")
def one_hot_encoder(d, op):
    if d.chance(50):
        x, given = d.leaf(I64, d.shape(1, 2), -2, 5), {"cats_int64s": d.some(range(-2, 6), 1)}
    else:
        x, given = d.words(d.shape(1, 2), WORDS), {"cats_strings": d.some(WORDS, 1)}
    d.node(op, [x], domain=ML, zeros=1, **given)


@generator("LinearRegressor", "LinearClassifier")
def linear(d, op):
    x = rows(d, op, [F32])
    n = d.int(1, 4) if op == "LinearRegressor" else d.int(2, 4)
    given = {"coefficients": numbers(d, n * x.shape[1])}
    if d.chance(60):
        given["intercepts"] = numbers(d, n)
    if op == "LinearRegressor":
        d.node(op, [x], domain=ML, targets=n, **given)
        return
    if "intercepts" not in given:
        given["intercepts"] = [0.0] * n
    d.node(op, [x], 2, domain=ML, **given, **labels(d, n, "classlabels_ints"), **({"multi_class": d.int(0, 1)} if d.chance(30) else {}),
           **({"post_transform": d.pick(("NONE", "LOGISTIC", "SOFTMAX"))} if d.chance(60) else {}))


def forest(d, features, targets, prefix):
    """Attributes of a few trees. Splits lie between the numbers that leaves of a network often are."""
    lists = {}
    put = lambda **row: [lists.setdefault(k, []).append(v) for k, v in row.items()]
    mode = d.pick(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"), (6, 1, 1, 1, 1, 1))
    for tree in range(d.int(1, 4)):
        waiting, made, depth = [(0, 0)], 1, d.int(1, 4)
        while waiting:
            i, level = waiting.pop(0)
            leaf = level == depth or (level > 0 and d.chance(30))
            put(nodes_treeids=tree, nodes_nodeids=i, nodes_featureids=d.int(0, features - 1), nodes_modes="LEAF" if leaf else mode,
                nodes_values=float(np.float32(d.int(-8, 8) / 4 + 0.0625)), nodes_truenodeids=0 if leaf else made,
                nodes_falsenodeids=0 if leaf else made + 1)
            if not leaf:
                waiting += [(made, level + 1), (made + 1, level + 1)]
                made += 2
                continue
            for target in range(targets) if tree == 0 else [d.int(0, targets - 1)]:
                put(**{f"{prefix}_treeids": tree, f"{prefix}_nodeids": i, f"{prefix}_ids": target, f"{prefix}_weights": numbers(d, 1, 0, 1)[0]})
    return lists


@generator("TreeEnsembleRegressor", "TreeEnsembleClassifier", weight=2)
def trees(d, op):
    x = rows(d, op, [F32, I64])
    if op == "TreeEnsembleRegressor":
        n = d.int(1, 3)
        more = {"base_values": numbers(d, n)} if d.chance(40) else {}
        if d.chance(40):
            more["aggregate_function"] = d.pick(("SUM", "AVERAGE", "MIN", "MAX"))
        d.node(op, [x], domain=ML, n_targets=n, **forest(d, x.shape[1], n, "target"), **more)
    else:
        n = d.int(3, 4)
        d.node(op, [x], 2, domain=ML, **forest(d, x.shape[1], n, "class"), **labels(d, n),
               **({"post_transform": d.pick(("NONE", "LOGISTIC", "SOFTMAX"))} if d.chance(50) else {}))


@generator("SVMRegressor")
def svm(d, op):
    x = rows(d, op, [F32])
    n = d.int(1, 5)
    kernel = d.pick(("LINEAR", "POLY", "RBF", "SIGMOID"))
    if d.version(op, ML) < 1:
        raise Refused("not there")
    d.node(op, [x], domain=ML, kernel_type=kernel, kernel_params=[0.25, 0.5, 2.0], n_supports=n, support_vectors=numbers(d, n * x.shape[1]),
           coefficients=numbers(d, n), rho=numbers(d, 1))


@generator("SVMClassifier")
def svm_classifier(d, op):
    x = rows(d, op, [F32])
    k, given = d.int(2, 4), {"kernel_type": "LINEAR", "kernel_params": [0.25, 0.5, 2.0]}
    pairs, width = k * (k - 1) // 2, x.shape[1]
    if d.chance(70):
        per = [d.int(1, 3) for _ in range(k)]
        n = sum(per)
        given |= {"kernel_type": d.pick(("LINEAR", "RBF", "POLY")), "vectors_per_class": per, "support_vectors": numbers(d, n * width),
                  "coefficients": numbers(d, (k - 1) * n), "rho": numbers(d, pairs, -0.3, 0.3)}
        if d.chance(40):
            given |= {"prob_a": numbers(d, pairs, -2, -0.2), "prob_b": numbers(d, pairs, -0.5, 0.5)}
    else:
        given |= {"coefficients": numbers(d, k * width), "rho": numbers(d, d.pick((1, pairs)), -0.3, 0.3)}
    d.node(op, [x], 2, domain=ML, **given, **labels(d, k, "classlabels_ints"),
           **({"post_transform": d.pick(("NONE", "LOGISTIC", "SOFTMAX"))} if d.chance(50) else {}))

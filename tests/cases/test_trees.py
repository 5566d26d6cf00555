"""Forests of ai.onnx.ml beside ONNX Runtime: drawn with every mode of branch, missing values, types and transforms."""
import re

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import numpy_helper

from support.compare import floats, node
from support.ml import model_of
from support.tool import mcc, value

FEATURES = 7
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
SPLITS = np.array([-1.5, -1, -0.5, 0, 0.5, 1, 2], np.float32)    # few, so that rows lie exactly on them


def rows(n, seed, elem=np.float32, missing=False):
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((n, FEATURES)) < 0.5, rng.choice(SPLITS, (n, FEATURES)), rng.standard_normal((n, FEATURES)))
    x = np.where(rng.random(x.shape) < 0.05, rng.choice([np.inf, -np.inf], x.shape), x)
    return np.where(rng.random(x.shape) < 0.25 * missing, np.nan, x).astype(elem)


def forest(seed, trees=5, depth=4, targets=1, modes=("BRANCH_LEQ",), missing=False, every=False):
    """Attributes of random trees over FEATURES columns; leaves of the first (every: of all) vote for every target, others for one."""
    rng, lists = np.random.default_rng(seed), {}
    put = lambda **row: [lists.setdefault(k, []).append(v) for k, v in row.items()]
    for tree in range(trees):
        waiting, made = [(0, 0)], 1
        while waiting:
            i, level = waiting.pop(0)
            leaf = level == depth or (level > 0 and rng.random() < 0.3)
            put(nodes_treeids=tree, nodes_nodeids=i, nodes_featureids=int(rng.integers(FEATURES)),
                nodes_modes="LEAF" if leaf else str(rng.choice(modes)), nodes_values=float(rng.choice(SPLITS)),
                nodes_truenodeids=0 if leaf else made, nodes_falsenodeids=0 if leaf else made + 1)
            if missing:
                put(nodes_missing_value_tracks_true=int(not leaf and rng.random() < 0.5))
            if not leaf:
                waiting += [(made, level + 1), (made + 1, level + 1)]
                made += 2
                continue
            for target in range(targets) if tree == 0 or every else [rng.integers(targets)]:
                put(target_treeids=tree, target_nodeids=i, target_ids=int(target), target_weights=float(np.float32(rng.standard_normal())))
    return lists


def as_tensors(attributes, *names):
    """The lists with these names as tensors of doubles, each a little beside the float that a list could hold."""
    made = dict(attributes)
    for name in names:
        if name in made:
            made[name + "_as_tensor"] = numpy_helper.from_array(np.array(made.pop(name)) * (1 + 1e-12))
    return made


def regressor(folder, elem=T.FLOAT, version=1, **attributes):
    made = node("TreeEnsembleRegressor", "x", "y", domain="ai.onnx.ml", **attributes)
    return model_of(folder, [made], [value("x", ["n", FEATURES], elem)], [value("y", ["n", None])], version)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("targets, more", [(1, {}), (3, {"base_values": [0.5, -1.0, 2.0]}),
                                           (2, {"aggregate_function": "AVERAGE", "base_values": [0.25, 4.0]})])
def test_tree_regressor(mode, targets, more, tmp_path):
    model = regressor(tmp_path, n_targets=targets, **forest(targets, targets=targets, modes=[mode], missing=targets != 2), **more)
    for n in (1, 3, 40):
        model.compare([rows(n, n, missing=True)])


@pytest.mark.parametrize("seed", range(12))
def test_tree_regressor_drawn(seed, tmp_path):
    """Mixed modes, missing values, f32 and f64, lists and tensors, every aggregate function and transform."""
    rng = np.random.default_rng(seed)
    targets, double = int(rng.integers(2, 4)), seed % 3 > 0
    attributes = forest(seed, int(rng.integers(1, 9)), int(rng.integers(1, 6)), targets, rng.choice(MODES, int(rng.integers(1, 4))),
                        missing=bool(rng.integers(2)), every=True)
    attributes |= {"n_targets": targets, "aggregate_function": ["SUM", "AVERAGE", "MIN", "MAX"][seed % 4]}
    attributes |= {"post_transform": str(rng.choice(["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]))}
    attributes |= {"base_values": floats(targets, seed=seed).tolist()} if rng.random() < 0.5 else {}
    if seed % 3 == 2:
        attributes = as_tensors(attributes, "nodes_values", "target_weights", "base_values")
    model = regressor(tmp_path, T.DOUBLE if double else T.FLOAT, 3, **attributes)
    for n in (1, 60):
        model.compare([rows(n, n, np.float64 if double else np.float32, missing=True)])


def joined(*forests):
    """One forest of several: trees are numbered through."""
    lists, trees = {}, 0
    for made in forests:
        for k, v in made.items():
            lists.setdefault(k, []).extend([i + trees for i in v] if k.endswith("_treeids") else v)
        trees += max(made["nodes_treeids"]) + 1
    return lists


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_trees_of_uneven_depth(how, tmp_path):
    """Rows wait for nobody: each walk ends at its leaf."""
    lists = joined(*(forest(seed, 9, depth, 2, MODES[:4], missing=True) for seed, depth in enumerate((1, 2, 5, 9, 14))))
    model = regressor(tmp_path, n_targets=2, aggregate_function=how, **lists)
    for n in (1, 60):
        model.compare([rows(n, n, missing=True)])


@pytest.mark.parametrize("trees, depth", [(32, 3), (33, 3), (50, 2), (100, 4), (40, 9)])
@pytest.mark.parametrize("targets, how", [(1, "SUM"), (1, "MIN"), (3, "AVERAGE"), (2, "MAX")])
def test_groups_of_trees(trees, depth, targets, how, tmp_path):
    """More than 32 trees are counted in groups, of which the last one is filled up."""
    lists = forest(trees, trees, depth, targets, MODES[:4], missing=True, every=how in ("MIN", "MAX"))
    model = regressor(tmp_path, n_targets=targets, aggregate_function=how, **lists)
    assert model.dump("fuse").count("= reduce(") == 1 + (trees > 32)
    for n in (0, 1, 5, 70):
        model.compare([rows(n, n, missing=True)])


def test_a_deep_tree(tmp_path):
    """A chain of 200 levels: a bound of a loop."""
    lists, levels = {}, 200
    put = lambda **row: [lists.setdefault(k, []).append(v) for k, v in row.items()]
    for i in range(levels):
        put(nodes_treeids=0, nodes_nodeids=2 * i, nodes_featureids=i % FEATURES, nodes_modes="BRANCH_LEQ",
            nodes_values=float(np.float32(2.5 - i / 40)), nodes_truenodeids=2 * i + 2, nodes_falsenodeids=2 * i + 1)
        put(nodes_treeids=0, nodes_nodeids=2 * i + 1, nodes_featureids=0, nodes_modes="LEAF", nodes_values=0.0, nodes_truenodeids=0,
            nodes_falsenodeids=0)
    put(nodes_treeids=0, nodes_nodeids=2 * levels, nodes_featureids=0, nodes_modes="LEAF", nodes_values=0.0, nodes_truenodeids=0,
        nodes_falsenodeids=0)
    for k in [*range(1, 2 * levels, 2), 2 * levels]:
        put(target_treeids=0, target_nodeids=k, target_ids=0, target_weights=float(k))
    model = regressor(tmp_path, n_targets=1, **lists)
    model.compare([np.vstack([rows(40, 1), np.full((1, FEATURES), -9, np.float32), np.linspace(-4, 4, 30 * FEATURES,
                                                                                               dtype=np.float32).reshape(30, FEATURES)])])


def test_walks_of_lanes_that_are_not_there(tmp_path):
    """Beside padding: where there is no row, nothing is read."""
    made = node("TreeEnsembleRegressor", "x", "t", domain="ai.onnx.ml", n_targets=1, **forest(5, 6, 4))
    pads = node("Constant", "", "pads", value=numpy_helper.from_array(np.array([3, 1, 2, 0])))
    model = model_of(tmp_path, [pads, made, node("Pad", "t pads", "y")], [value("x", ["n", FEATURES])], [value("y", ["m", "k"])])
    for n in (0, 1, 17):
        model.compare([rows(n, n)])


def test_no_index_is_checked(tmp_path):
    """Tables say where a step leads to, so nothing is asked while trees are walked, which ends with the last one."""
    model = regressor(tmp_path, n_targets=1, **forest(2, 20, 5))
    emitted = mcc("-print-after=emit", tmp_path / "net.onnx", "-o", tmp_path / "m.so").stderr
    assert re.search(r"step 1 .*while", emitted) and "index out of range" not in emitted


def test_tree_of_one_leaf(tmp_path):
    lists = {"nodes_treeids": [0], "nodes_nodeids": [0], "nodes_featureids": [0], "nodes_modes": ["LEAF"], "nodes_values": [0.0],
             "nodes_truenodeids": [0], "nodes_falsenodeids": [0], "target_treeids": [0], "target_nodeids": [0], "target_ids": [0],
             "target_weights": [2.5]}
    regressor(tmp_path, n_targets=1, **lists).compare([rows(3, 0)])


@pytest.mark.parametrize("post, formula", [("LOGISTIC", lambda s: 1 / (1 + np.exp(-s))), ("SOFTMAX", np.ones_like)])
def test_transform_of_one_target(post, formula, tmp_path):
    """As ONNX's text says; ONNX Runtime leaves it out."""
    lists, x = forest(3, missing=True), rows(20, 3, missing=True)
    (tmp_path / "none").mkdir()
    plain = regressor(tmp_path / "none", n_targets=1, **lists).want([x])[0]
    regressor(tmp_path, n_targets=1, post_transform=post, **lists).compare([x], [formula(plain)])


def test_probit(tmp_path):
    """Of probabilities; ONNX Runtime computes its formula in f32, which is coarse around 1/2."""
    lists, x = forest(3, targets=2, every=True, trees=1), rows(30, 3)
    lists["target_weights"] = np.random.default_rng(0).uniform(0.01, 0.99, len(lists["target_weights"])).astype(np.float32).tolist()
    regressor(tmp_path, n_targets=2, post_transform="PROBIT", **lists).compare([x], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("more, words", [
    ({"aggregate_function": "MEDIAN"}, "MEDIAN"), ({"post_transform": "LOG"}, "LOG"), ({"base_values": [1.0, 2.0]}, "2 base_values"),
    ({"nodes_missing_value_tracks_true": [1]}, "1 nodes_missing_value_tracks_true"), ({"n_targets": 1 << 40}, "1099511627776")])
def test_tree_regressor_refused(more, words, tmp_path):
    assert words in regressor(tmp_path, **({"n_targets": 1} | forest(1) | more)).refused()


def test_paths_that_go_round(tmp_path):
    lists = forest(1, trees=1)
    for i in range(len(lists["nodes_modes"])):
        lists["nodes_truenodeids"][i] = lists["nodes_falsenodeids"][i] = 0
    assert "go round" in regressor(tmp_path, n_targets=1, **lists).refused()


def tree_classifier(folder, seed, classes, positive=False, names=None, strings=False, elem=T.FLOAT, one=None, **more):
    """A forest whose votes are for classes: of two for number `one` only."""
    one = (0 if classes == 2 else None) if one is None else one
    lists = forest(seed, targets=1 if one is not None else classes, every=one is None, modes=MODES[:4], missing=True)
    votes = {k.replace("target", "class"): v for k, v in lists.items() if k.startswith("target")}
    votes["class_weights"] = np.float32(np.abs(votes["class_weights"]) / 9 if positive else votes["class_weights"]).tolist()
    votes["class_ids"] = [one] * len(votes["class_ids"]) if one is not None else votes["class_ids"]
    nodes = {k: v for k, v in lists.items() if k.startswith("nodes")}
    labels = {"classlabels_strings": [f"class {c} é" for c in range(classes)]} if strings else {
        "classlabels_int64s": names or [7 * c - 3 for c in range(classes)]}
    made = node("TreeEnsembleClassifier", "x", "label scores", domain="ai.onnx.ml", **nodes, **votes, **labels, **more)
    return model_of(folder, [made], [value("x", ["n", FEATURES], elem)],
                    [value("label", ["n"], T.STRING if strings else T.INT64), value("scores", ["n", None])], 3)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("base", [{}, {"base_values": [0.125]}])
def test_tree_classifier_of_two_classes(transform, positive, base, tmp_path):
    model = tree_classifier(tmp_path, 3, 2, positive, post_transform=transform, strings=transform == "SOFTMAX", **base)
    chosen = set()
    for n in (1, 3, 60):
        chosen |= set(model.compare([rows(n, n, missing=True)])[0].tolist())
    assert len(chosen) == 2


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("positive", [True, False])
def test_tree_classifier_votes_for_the_second_class(transform, positive, tmp_path):
    model = tree_classifier(tmp_path, 3, 2, positive, one=1, post_transform=transform)
    for n in (1, 60):
        model.compare([rows(n, n)])


def test_tree_classifier_votes_for_both_classes(tmp_path):
    """Scores as ONNX Runtime; the label is that of the larger one, where ONNX Runtime gives 0 or 1 whatever the labels are."""
    lists = forest(4, targets=2, every=True)
    votes = {k.replace("target", "class"): v for k, v in lists.items() if k.startswith("target")}
    made = node("TreeEnsembleClassifier", "x", "label scores", domain="ai.onnx.ml", **votes, classlabels_int64s=[20, 10],
                **{k: v for k, v in lists.items() if k.startswith("nodes")})
    model = model_of(tmp_path, [made], [value("x", ["n", FEATURES])], [value("label", ["n"], T.INT64), value("scores", ["n", None])])
    x = rows(40, 1)
    scores = model.want([x])[1]
    model.compare([x], [np.array([20, 10])[scores.argmax(1)], scores])


@pytest.mark.parametrize("elem", [T.FLOAT, T.DOUBLE, T.INT64, T.INT32])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_tree_classifier_of_many_classes(transform, elem, tmp_path):
    model = tree_classifier(tmp_path, 5, 4, post_transform=transform, base_values=[0.5, -0.25, 0.0, 0.125], elem=elem,
                            strings=transform == "LOGISTIC")
    kind = {T.FLOAT: np.float32, T.DOUBLE: np.float64, T.INT64: np.int64, T.INT32: np.int32}[elem]
    for n in (1, 60):
        x = rows(n, n, missing=elem in (T.FLOAT, T.DOUBLE))
        model.compare([np.clip(x, -9, 9).astype(kind) if kind in (np.int64, np.int32) else x.astype(kind)])


@pytest.mark.parametrize("more, words", [({"post_transform": "PROBIT"}, "PROBIT"), ({"base_values": [1.0, 2.0]}, "2 base_values"),
                                         ({"names": [1]}, "1 labels")])
def test_tree_classifier_refused(more, words, tmp_path):
    assert words in tree_classifier(tmp_path, 3, 2, **more).refused()


def ensemble(seed, elem=np.float32, targets=2, member=True, sets=None):
    """Attributes of a TreeEnsemble: the trees of `forest`, with sets of numbers in the place of some comparisons."""
    rng = np.random.default_rng(seed)
    lists = forest(seed, int(rng.integers(1, 7)), 4, targets, MODES[:4 + 2 * (seed % 2)], missing=True)
    names = list(zip(lists["nodes_treeids"], lists["nodes_nodeids"]))
    inner = [i for i, mode in enumerate(lists["nodes_modes"]) if mode != "LEAF"]
    leaves = [i for i, mode in enumerate(lists["nodes_modes"]) if mode == "LEAF"]
    votes = {name: (target, weight) for *name, target, weight in
             zip(lists["target_treeids"], lists["target_nodeids"], lists["target_ids"], lists["target_weights"]) for name in [tuple(name)]}
    made = {k: [] for k in ("nodes_trueleafs", "nodes_falseleafs", "nodes_truenodeids", "nodes_falsenodeids")}
    modes, members = [], []
    for i in inner:
        modes.append(6 if member and rng.random() < 0.4 else MODES.index(lists["nodes_modes"][i]))
        if modes[-1] == 6:
            chosen = rng.choice(sets if sets is not None else SPLITS, int(rng.integers(1, 6)), replace=False)
            members += [np.array(chosen, elem), np.array([np.nan], elem)]
        for side in ("true", "false"):
            to = names.index((names[i][0], lists[f"nodes_{side}nodeids"][i]))
            made[f"nodes_{side}leafs"].append(int(to in leaves))
            made[f"nodes_{side}nodeids"].append((leaves if to in leaves else inner).index(to))
    tensor = lambda list: numpy_helper.from_array(np.array(list, elem))
    made |= {"nodes_splits": tensor([lists["nodes_values"][i] for i in inner]), "nodes_modes": numpy_helper.from_array(np.array(modes, np.uint8)),
             "nodes_featureids": [lists["nodes_featureids"][i] for i in inner],
             "nodes_missing_value_tracks_true": [lists["nodes_missing_value_tracks_true"][i] for i in inner],
             "tree_roots": [k for k, i in enumerate(inner) if names[i][1] == 0], "n_targets": targets,
             "leaf_targetids": [int(votes[names[i]][0]) for i in leaves], "leaf_weights": tensor([votes[names[i]][1] for i in leaves])}
    return made | ({"membership_values": tensor(np.concatenate(members))} if members else {})


def ensemble_model(folder, elem, **attributes):
    made = node("TreeEnsemble", "x", "y", domain="ai.onnx.ml", **attributes)
    kind = {np.float32: T.FLOAT, np.float64: T.DOUBLE, np.float16: T.FLOAT16}[elem]
    return model_of(folder, [made], [value("x", ["n", FEATURES], kind)], [value("y", ["n", None], kind)], 5)


def ensemble_formula(a, x, start, join):
    """Scores by walking: what ONNX's text says, in f64."""
    get = lambda name: numpy_helper.to_array(a[name]).astype(np.float64)
    modes, splits, weights = get("nodes_modes"), get("nodes_splits"), get("leaf_weights")
    sets = iter(np.split(get("membership_values"), np.flatnonzero(np.isnan(get("membership_values"))) + 1) if "membership_values" in a else [])
    sets = {i: next(sets) for i in range(len(modes)) if modes[i] == 6}
    tests = [np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal]
    result = np.full((len(x), a["n_targets"]), np.nan)
    for r, row in enumerate(x.astype(np.float64)):
        for at in a["tree_roots"]:
            leaf = False
            while not leaf:
                number = row[a["nodes_featureids"][at]]
                yes = number in sets[at] if modes[at] == 6 else tests[int(modes[at])](number, splits[at])
                side = "true" if yes or np.isnan(number) and a["nodes_missing_value_tracks_true"][at] else "false"
                leaf, at = a[f"nodes_{side}leafs"][at], a[f"nodes_{side}nodeids"][at]
            target = a["leaf_targetids"][at]
            result[r, target] = weights[at] if np.isnan(result[r, target]) else join(result[r, target], weights[at])
    return np.where(np.isnan(result), start, result)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("elem", [np.float32, np.float64, np.float16])
def test_tree_ensemble(seed, elem, tmp_path):
    how = seed % 4
    a = ensemble(seed, elem, targets=1 + seed % 3) | ({"aggregate_function": how} if seed > 3 else {})
    how = how if seed > 3 else 1
    model = ensemble_model(tmp_path, elem, **a)
    for n in (1, 40):
        x = rows(n, n, elem, missing=True)
        want = ensemble_formula(a, x, 0, [np.add, np.add, np.minimum, np.maximum][how]) / (len(a["tree_roots"]) if how == 0 else 1)
        model.compare([x], [want.astype(elem)], rtol=1e-2 if elem == np.float16 else 1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_tree_ensemble_beside_onnx_runtime(seed, tmp_path):
    """ONNX Runtime takes 1 for LOGISTIC and 2 for SOFTMAX, against ONNX's text."""
    post, x = [0, 1, 2, 3, 0, 1][seed], rows(40, seed, missing=True)
    a = ensemble(seed, targets=2 + seed % 2, member=False) | {"aggregate_function": seed % 2}
    theirs = ensemble_model(tmp_path / "theirs", np.float32, **a, post_transform={1: 2, 2: 1}.get(post, post))
    ensemble_model(tmp_path, np.float32, **a, post_transform=post).compare([x], theirs.want([x]))


@pytest.mark.parametrize("more, words", [
    ({"tree_roots": [9999]}, "tree_roots holds 9999"), ({"leaf_targetids": [0]}, "1 leaf_targetids"), ({"post_transform": 7}, "post_transform 7"),
    ({"nodes_modes": numpy_helper.from_array(np.full(3, 9, np.uint8))}, "are wanted"), ({"aggregate_function": -1}, "aggregate_function -1"),
    ({"membership_values": numpy_helper.from_array(np.array([1, np.nan], np.float32))}, "fewer sets")])
def test_tree_ensemble_refused(more, words, tmp_path):
    a = ensemble(1)
    assert words in ensemble_model(tmp_path, np.float32, **(a | more)).refused()

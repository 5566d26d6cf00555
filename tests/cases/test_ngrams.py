"""TfIdfVectorizer over integers, compiled, beside ONNX Runtime: random pools, skips, modes and weights."""
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from support.artifact import Artifact
from support.tool import mcc, save


def case(seed):
    """(attributes, row shape) of a random pool of n-grams over the numbers 0 to 3."""
    rng = np.random.default_rng(seed)
    longest = int(rng.integers(1, 4))
    pool, starts, n = [], [], 0
    for length in range(1, longest + 1):
        starts.append(len(pool))
        grams = {tuple(int(v) for v in rng.integers(0, 4, length)) for _ in range(int(rng.integers(1, 6)))}
        pool += [v for gram in sorted(grams) for v in gram]
        n += len(grams)
    attrs = {"max_gram_length": longest, "min_gram_length": int(rng.integers(1, longest + 1)), "max_skip_count": int(rng.integers(0, 4)),
             "mode": ["TF", "IDF", "TFIDF"][seed % 3], "ngram_counts": starts, "ngram_indexes": [int(v) for v in rng.permutation(n)],
             "pool_int64s": pool}
    if seed % 3:
        attrs["weights"] = [float(v) for v in rng.uniform(0.5, 2, n)]
    columns = int(rng.integers(1, 12))
    return attrs, [3, columns] if seed % 2 else [columns], rng.integers(0, 4, [3, columns] if seed % 2 else [columns])


@pytest.mark.parametrize("seed", range(12))
def test_ngrams(seed, tmp_path):
    attrs, shape, x = case(seed)
    dims = ["rows", "columns"] if seed % 4 == 1 else shape
    path = save(tmp_path / "m.onnx", [h.make_node("TfIdfVectorizer", ["x"], ["y"], **attrs)],
                [h.make_tensor_value_info("x", T.INT64, dims)], [h.make_tensor_value_info("y", T.FLOAT, None)])
    want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    done = mcc("-q", "-j1", "-march=native", path, "-o", tmp_path / "m.so")
    assert done.returncode == 0, done.stderr
    with Artifact(tmp_path / "m.so") as a:
        got = a.run([x])[0]
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-6)

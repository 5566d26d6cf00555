"""Results of which only the sizes are read, of operators whose results the data sizes: no memory, no fault."""
import numpy as np
import pytest
from onnx import TensorProto as T

from support.compare import Model, floats, node
from support.tool import value

BOXES = np.array([[[0, 0, 1, 1], [0, 0, 1.1, 1], [2, 2, 3, 3]]], np.float32)
WORDS = np.array([["a b c"], ["d"]], dtype=object)
CASES = [
    ("nonzero", [node("NonZero", "x", "r")], [floats(3, 4)], [2, 12]),
    ("compress", [node("Cast", "x", "c", to=T.BOOL), node("Compress", "x c", "r", axis=0)], [floats(5)], [5]),
    ("unique", [node("Unique", "x", "r")], [floats(7)], [7]),
    ("unique, counts", [node("Unique", "x", "_ _ _ r")], [floats(7)], [7]),
    ("unique, axis", [node("Unique", "x", "r", axis=1)], [floats(3, 4)], [3, 4]),
    ("boxes", [node("NonMaxSuppression", "x y most", "r")], [BOXES, np.ones((1, 1, 3), np.float32)], [2, 3]),
    ("split strings", [node("StringSplit", "x", "r _")], [WORDS], [2, 1, 3]),
    ("split strings, counts", [node("StringSplit", "x", "_ r")], [WORDS], [2, 1]),
    ("strings", [node("StringNormalizer", "x", "r", stopwords=["d"])], [np.array(["a", "d"], dtype=object)], [1]),
    ("sequence", [node("SplitToSequence", "x one", "s"), node("ConcatFromSequence", "s", "r", axis=0)], [floats(3, 4)], [3, 4]),
    ("sequence, one", [node("SplitToSequence", "x one", "s"), node("SequenceAt", "s last", "r")], [floats(3, 4)], [1, 4]),
]


@pytest.mark.parametrize("name, nodes, feed, shape", CASES, ids=[c[0] for c in CASES])
def test_only_the_size(name, nodes, feed, shape, tmp_path):
    elem = lambda a: T.STRING if a.dtype == object else T.FLOAT
    ports = [value(k, list(a.shape), elem(a)) for k, a in zip("xy", feed)]
    model = Model(tmp_path, [*nodes, node("Shape", "r", "shape")], ports, [value("shape", [None], T.INT64)],
                  {"most": np.array(2), "one": np.array(1), "last": np.array(-1)}, opset=20)
    model.compare(feed, [np.array(shape)])

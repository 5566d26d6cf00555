"""Caches that grow within memory of a maximum (--input=past:f32[b,3,len<=48,8]): the bound, the strides, one buffer for past and present."""
import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import Artifact, ModelError
from support.compare import Model, floats, node
from support.tool import mcc, value

HEADS, SIZE, MOST = 3, 8, 48
SPEC = f"past_k:[b,{HEADS},len<={MOST},{SIZE}]"


def attention(folder, elem=T.FLOAT):
    """Keys and values that grow by concats, read by an attention."""
    nodes = [node("Concat", "past_k k", "present_k", axis=2), node("Concat", "past_v v", "present_v", axis=2),
             node("Transpose", "present_k", "turned", perm=[0, 1, 3, 2]), node("MatMul", "q turned", "scores"), node("Softmax", "scores", "p", axis=-1),
             node("MatMul", "p present_v", "y")]
    form = lambda name, rows: value(name, ["b", HEADS, rows, SIZE], elem)
    return Model(folder, nodes, [form("q", "n"), form("k", "n"), form("v", "n"), form("past_k", "past"), form("past_v", "past")],
                 [form("y", "n"), form("present_k", "total"), form("present_v", "total")], opset=21)


def feed(past, rows, batch=1, dtype=np.float32, seed=1):
    return [floats(batch, HEADS, n, SIZE, seed=seed + i).astype(dtype) for i, n in enumerate([rows] * 3 + [past] * 2)]


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    model = attention(tmp_path_factory.mktemp("grown"))
    return model, model.compile("-O2", "--input", SPEC)


def test_bound(grown):
    """The maximum holds for all inputs of that length, and more is refused."""
    path = grown[1]
    assert f"symbol   len: 0..{MOST}\n" in mcc("inspect", path).stdout
    with Artifact(path) as a:
        a.run(feed(MOST - 1, 1))
        with pytest.raises(ModelError, match=f"input 'past_k': dim 2 is {MOST + 1}, but 'len' goes from 0 to {MOST}") as e:
            a.run(feed(MOST + 1, 1))
        assert e.value.code == -2

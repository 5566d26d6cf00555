"""MCC_PORT_DYNAMIC: set for every output whose shape is dynamic, and for no other; the table, `run`, `plan`, mcc inspect,
mcc.py and --emit=header say the same."""
import importlib.util

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.artifact import PORT_DYNAMIC, PORT_SEQUENCE, Artifact, ModelError
from support.compare import Model, floats, node
from support.tool import ROOT, mcc, result, save, value

# name -> (nodes, element type of y, is it dynamic)
OUTPUTS = {
    "NonZero": ([node("NonZero", "x", "y")], T.INT64, True),
    "Compress": ([node("Cast", "v", "c", to=T.BOOL), node("Compress", "v c", "y")], T.FLOAT, True),
    "Unique": ([node("Unique", "x", "y")], T.FLOAT, True),
    "an extent behind a NonZero": ([node("NonZero", "x", "n"), node("Cast", "n", "f", to=T.FLOAT), node("Exp", "f", "y")], T.FLOAT, True),
    "an extent that is data": ([node("Cast", "v", "i", to=T.INT64), node("ConstantOfShape", "i", "y")], T.FLOAT, True),
    "a symbol": ([node("Relu", "x", "y")], T.FLOAT, False),
    "a derived extent": ([node("Concat", "x x", "y", axis=0)], T.FLOAT, False),
    "a shape": ([node("Shape", "x", "y")], T.INT64, False),
    "a reduced NonZero": ([node("NonZero", "x", "n"), node("ReduceMax", "n", "y", keepdims=0)], T.INT64, False),
}


def model_of(folder, name):
    nodes, elem, _ = OUTPUTS[name]
    return Model(folder, nodes, [value("x", ["n", 3]), value("v", [2])], [value("y", None, elem)])


@pytest.mark.parametrize("name", OUTPUTS)
def test_flags(tmp_path, name):
    _, _, dynamic = OUTPUTS[name]
    model, feed = model_of(tmp_path, name), [floats(4, 3), np.array([1, 2], np.float32)]
    path = model.compile("-O1")
    with Artifact(path, threads=1) as a:
        assert a.outputs[0].flags == (PORT_DYNAMIC if dynamic else 0)
        assert not any(p.flags for p in a.inputs)
        want = a.call(feed)[0]
        if dynamic:
            with pytest.raises(ModelError, match="only run"):
                a.run_into(feed, [want])
        else:
            a.run_into(feed, [want])
    assert [port["dynamic"] for port in result("inspect", path)["outputs"]] == [dynamic]
    assert ("the data decides its shape" in mcc("inspect", path).stdout) == dynamic


@pytest.mark.parametrize("name", ["NonZero", "a derived extent"])
def test_python(tmp_path, name):
    spec = importlib.util.spec_from_file_location("mcc_under_test", ROOT / "runtime/mcc.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loaded = module.load(str(model_of(tmp_path, name).compile("-O1")))
    assert loaded.outputs[0].dynamic == OUTPUTS[name][2] and not loaded.inputs[0].dynamic


def test_header(tmp_path):
    path = model_of(tmp_path, "NonZero").path
    done = mcc(path, "--emit=header", "-o", tmp_path / "net.a")
    assert done.returncode == 1 and "has a shape that the data decides" in done.stderr, done.stderr


def test_sequences_have_their_own_flag(tmp_path):
    path = save(tmp_path / "net.onnx", [node("SplitToSequence", "x", "y", axis=0)], [value("x", [2, 3])],
                [helper.make_tensor_sequence_value_info("y", T.FLOAT, None)])
    with Artifact(Model(tmp_path, path=path).compile("-O1"), threads=1) as a:
        assert a.outputs[0].flags == PORT_SEQUENCE


def test_outputs_that_share_memory(tmp_path):
    """A run's memory becomes the block of the output that lies at its start; another output of the same data has its own, and both
    stay when the context is gone."""
    nodes = [node("Compress", "x v", "y", axis=0), node("Identity", "y", "z"), node("Exp", "y", "e")]
    model = Model(tmp_path, nodes, [value("x", ["n", 64]), value("v", ["n"], T.BOOL)], [value(o, None) for o in "yze"])
    x, v = floats(300, 64), np.arange(300) % 3 == 0
    with Artifact(model.compile("-O1"), threads=1) as a:
        results = a.call([x, v]), a.call([x, ~v])
    for got, rows in zip(results, (x[v], x[~v])):
        for y, want in zip(got, (rows, rows, np.exp(rows))):
            np.testing.assert_allclose(y, want, rtol=1e-6)

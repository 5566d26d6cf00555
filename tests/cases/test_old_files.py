"""Forms of older files and of documentation that were refused though they have a meaning: BatchNormalization before version 14 in
training or per activation, Mod of floats without fmod, Pad by reflection beyond the size, one size for a symbol of several inputs;
and how element types are called when they do not fit."""
import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import Artifact, ModelError
from support.compare import Model, difference, floats, ints, node
from support.tool import mcc, value

F = np.float32


def statistics(*shape):
    return {"s": floats(*shape, seed=1), "b": floats(*shape, seed=2), "m": floats(*shape, seed=3), "v": np.abs(floats(*shape, seed=4)) + 1}


@pytest.mark.parametrize("opset", [7, 8, 9, 13])
@pytest.mark.parametrize("outputs", ["y rm rv sm sv", "y rm rv _ _"])
def test_batch_normalization_in_training(tmp_path, opset, outputs):
    names = [n for n in outputs.split() if n != "_"]
    model = Model(tmp_path, [node("BatchNormalization", "x s b m v", outputs, momentum=0.7, epsilon=1e-3)], [value("x", ["n", 3, 4, 5])],
                  [value(n, None) for n in names], statistics(3), opset=opset)
    x = floats(2, 3, 4, 5)
    if len(names) == 5:    # ONNX Runtime takes none of the five left out
        model.compare([x])
    mean, var = x.mean((0, 2, 3), dtype=np.float64), x.astype(np.float64).var((0, 2, 3))
    got = model.run([x], "-O2")
    assert not difference((statistics(3)["m"] * 0.7 + mean * 0.3).astype(F), got[1])
    assert not difference((statistics(3)["v"] * 0.7 + var * 0.3).astype(F), got[2])
    assert "[-Wtraining]" in mcc("check", model.path).stderr


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5)])
def test_batch_normalization_per_activation(tmp_path, shape):
    model = Model(tmp_path, [node("BatchNormalization", "x s b m v", "y", spatial=0)], [value("x", ["n", *shape])], [value("y", None)],
                  statistics(*shape), opset=7)
    model.compare([floats(2, *shape)])


@pytest.mark.parametrize("elem", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("attributes", [{}, {"fmod": 0}, {"fmod": 1}])
def test_mod_of_floats(tmp_path, elem, attributes):
    a, b = np.array([7, -7, 7.5, -7.5], elem), np.array([3, 3, -2, -2], elem)
    t = {2: T.FLOAT16, 4: T.FLOAT, 8: T.DOUBLE}[a.itemsize]
    model = Model(tmp_path, [node("Mod", "a b", "y", **attributes)], [value("a", [4], t), value("b", [4], t)], [value("y", [4], t)])
    model.compare([a, b], [np.fmod(a, b)])
    assert ("[-Wfmod]" in mcc("check", model.path).stderr) == (attributes != {"fmod": 1})


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("way", ["static", "open", "constant", "pads of the run"])
def test_reflection_beyond_the_size(tmp_path, size, way):
    rng = np.random.default_rng(size)
    for lo, hi in rng.integers(0, 9, (3, 2)):
        folder = tmp_path / f"{lo}_{hi}"
        folder.mkdir()
        x, pads = floats(2, size), ints(0, lo, 0, hi)
        want = np.pad(x, [(0, 0), (lo, hi)], "reflect") if size > 1 else np.repeat(x, 1 + lo + hi, 1)
        inputs, feed, constants = [value("x", [2, "n" if way == "open" else size])], [x], {"p": pads}
        if way == "constant":
            inputs, feed, constants = [value("z", [])], [F(0)], {"p": pads, "x": x}
        if way == "pads of the run":
            inputs, feed, constants = inputs + [value("p", [4], T.INT64)], [x, pads], {}
        nodes = [node("Pad", "x p", "y", mode="reflect")] + ([node("Add", "y z", "w")] if way == "constant" else [])
        model = Model(folder, nodes, inputs, [value(nodes[-1].output[0], None)], constants)
        model.compare(feed, [want], flags=["-O2"])


def test_nothing_to_reflect(tmp_path):
    model = Model(tmp_path, [node("Pad", "x p", "y", mode="reflect")], [value("x", [2, 0])], [value("y", None)], {"p": ints(0, 1, 0, 0)})
    assert "nothing to reflect" in model.refused()


def test_a_size_for_one_input_is_that_of_its_symbol(tmp_path):
    nodes = [node("Relu", "x", "y"), node("Mul", "m m", "q")]
    model = Model(tmp_path, nodes, [value("x", ["batch", 3]), value("m", ["batch", 3])], [value("y", ["batch", 3]), value("q", ["batch", 3])])
    fixed = "--input=x:f32[5,3]"
    model.compare([floats(5, 3), floats(5, 3)], flags=[["-O2", fixed]])
    with pytest.raises(ModelError, match="'m'"):
        model.run([floats(5, 3), floats(4, 3)], "-O2", fixed)
    renamed = "--input=x:f32[n=1..8,3]"
    with pytest.raises(ModelError, match="'m'"):
        model.run([floats(5, 3), floats(4, 3)], "-O2", renamed)
    done = mcc("check", model.path, fixed, "--input=m:f32[4,3]")
    assert done.returncode == 2 and "'m'" in done.stderr and "5 there and 4 here" in done.stderr


def test_element_types_have_names(tmp_path):
    model = Model(tmp_path, [node("Relu", "x", "y")], [value("x", [2])], [value("y", [2])])
    with Artifact(model.compile("-O1"), threads=1) as a:
        for given, name in ((np.float64, "float64"), (np.int32, "int32"), (np.bool_, "bool"), (np.uint8, "uint8"), (np.float16, "float16")):
            with pytest.raises(ModelError, match=f"input 'x': {name} where float32 is expected"):
                a.run([np.zeros(2, given)])
        with pytest.raises(ModelError, match="output 'y': float64 where float32 is expected"):
            a.run_into([np.zeros(2, F)], [np.zeros(2)])

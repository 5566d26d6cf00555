"""Sparse initializers and constants: drawn ones of every form beside their dense twins; where a sparse tensor cannot stand."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from support.compare import Model, floats, node
from support.tool import mcc, value

TYPES = {np.float32: T.FLOAT, np.float64: T.DOUBLE, np.int64: T.INT64, np.int32: T.INT32, np.float16: T.FLOAT16, np.uint8: T.UINT8}


def sparse_of(name, dense, rows):
    """rows: an index is a row of coordinates, else one number for the flat tensor."""
    at = np.flatnonzero(dense)
    indices = np.stack(np.unravel_index(at, dense.shape), 1) if rows else at
    return helper.make_sparse_tensor(numpy_helper.from_array(dense.reshape(-1)[at], name), numpy_helper.from_array(indices.astype(np.int64), name + "_at"),
                                     list(dense.shape))


def save_sparse(path, nodes, inputs, outputs, sparse=(), opset=17):
    graph = helper.make_graph(nodes, "sparse", inputs, outputs)
    graph.sparse_initializer.extend(sparse)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def drawn(rng, kind):
    dense = rng.integers(1, 9, rng.integers(1, 5, rng.integers(1, 4))).astype(kind)
    return dense * (rng.uniform(0, 1, dense.shape) < rng.choice([0, 0.3, 1])).astype(kind)


@pytest.mark.parametrize("seed", range(6))
def test_drawn(seed, tmp_path):
    """An initializer and a Constant's sparse_value each, from no element to all of them."""
    rng = np.random.default_rng(seed)
    kind = list(TYPES)[seed % len(TYPES)]
    first, second = drawn(rng, kind), drawn(rng, kind)
    nodes = [node("Constant", "", "c", sparse_value=sparse_of("c", second, bool(rng.integers(2)))), node("Cast", "w", "wf", to=T.DOUBLE),
             node("Cast", "c", "cf", to=T.DOUBLE), node("Add", "wf x", "y"), node("Add", "cf x", "z")]
    path = save_sparse(tmp_path / "net.onnx", nodes, [value("x", [], T.DOUBLE)], [value("y", None, T.DOUBLE), value("z", None, T.DOUBLE)],
                       [sparse_of("w", first, bool(rng.integers(2)))])
    Model(tmp_path, path=path).compare([np.float64(0.5)], [first + np.float64(0.5), second + np.float64(0.5)])


def test_stored_once(tmp_path):
    """Two sparse tensors, a constant and a dense initializer of the same elements take the room of one."""
    dense = floats(128, 64) * (floats(128, 64, seed=1) > 0.5)
    sizes = []
    for shared in (True, False):
        folder = tmp_path / str(shared)
        folder.mkdir()
        others = [dense if shared else dense * np.float32(k) for k in (3, 5)]
        nodes = [node("Constant", "", "c", sparse_value=sparse_of("c", others[1], False)), node("MatMul", "x a", "p"), node("MatMul", "x b", "q"),
                 node("MatMul", "x c", "r"), node("Sum", "p q r", "y")]
        path = save_sparse(folder / "net.onnx", nodes, [value("x", [4, 128])], [value("y", [4, 64])],
                           [sparse_of("a", dense, True), sparse_of("b", others[0], False)])
        model = Model(folder, path=path)
        x = floats(4, 128, scale=0.1)
        model.compare([x], [x @ dense + x @ others[0] + x @ others[1]], flags=["-O2"], rtol=1e-3, atol=1e-3)
        sizes.append(model.compile("-O2").stat().st_size)
    assert sizes[1] - sizes[0] > 1.9 * dense.nbytes, sizes


BAD = {"outside": [[0, 0], [1, 3]], "negative": [[0, -1], [1, 0]], "repeats": [[1, 1], [1, 1]], "unsorted": [[1, 0], [0, 2]], "narrow": [[0], [1]]}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("place", ["initializer", "constant"])
def test_bad_rows_are_refused(bad, place, tmp_path):
    """Rows of coordinates; those of flat indices are in tests/hostile."""
    at = np.array(BAD[bad], np.int64)
    values, indices = T(name="w", data_type=T.FLOAT, dims=[2], float_data=[1, 2]), numpy_helper.from_array(at, "at")
    sparse = onnx.SparseTensorProto(values=values, indices=indices, dims=[2, 3])
    constant = node("Constant", "", "w")
    constant.attribute.add(name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR).sparse_tensor.CopyFrom(sparse)
    nodes = [node("Add", "x w", "y")]
    path = save_sparse(tmp_path / "net.onnx", [constant, *nodes] if place == "constant" else nodes, [value("x", [2, 3])], [value("y", [2, 3])],
                       [sparse] if place == "initializer" else [])
    done = mcc("check", path)
    assert done.returncode == 1 and "sparse" in done.stderr, done.stderr


def test_sparse_ports_say_what_to_do(tmp_path):
    port = helper.make_sparse_tensor_value_info("x", T.FLOAT, [2, 3])
    for k, (inputs, outputs) in enumerate((([port], [value("y", [2, 3])]),
                                          ([value("x", [2, 3])], [helper.make_sparse_tensor_value_info("y", T.FLOAT, [2, 3])]))):
        path = save_sparse(tmp_path / f"{k}.onnx", [node("Neg", "x", "y")], inputs, outputs)
        done = mcc("check", path)
        assert done.returncode == 1 and "declare a dense tensor" in done.stderr, done.stderr

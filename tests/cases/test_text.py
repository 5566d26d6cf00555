"""Cast between numbers and strings, and constants of strings, beside ONNX Runtime."""
import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import ModelError
from support.compare import Model, node
from support.tool import mcc, value

NUMBERS = [0, -0.0, 1, -1, 0.1, 1 / 3, 1e10, 1e15, 123456789, 16777216, 1e-4, 1e-5, 1.5e-7, 100000, 1234567, 123456.7, 2.5, 1e20,
           np.inf, -np.inf, np.nan]
KINDS = {T.FLOAT: np.float32, T.DOUBLE: np.float64, T.FLOAT16: np.float16, T.INT8: np.int8, T.UINT8: np.uint8, T.INT16: np.int16,
         T.UINT16: np.uint16, T.INT32: np.int32, T.UINT32: np.uint32, T.INT64: np.int64, T.UINT64: np.uint64, T.BOOL: np.bool_}


def cast(folder, source, target, op="Cast"):
    return Model(folder, [node("Cast", "x", "y", to=target)], [value("x", ["n", None], source)], [value("y", ["n", None], target)], opset=19)


def drawn(kind):
    rng = np.random.default_rng(1)
    if kind == np.bool_:
        return np.array([[True, False]])
    if np.dtype(kind).kind == "f":
        with np.errstate(over="ignore"):
            bits = rng.integers(0, 256, 200 * np.dtype(kind).itemsize, np.uint8).view(kind)
            return np.concatenate([np.array(NUMBERS, kind), bits])[:, None]
    return np.array([[0, 5, 100, np.iinfo(kind).min, np.iinfo(kind).max]], kind)


@pytest.mark.parametrize("elem", KINDS, ids=lambda e: T.DataType.Name(e))
def test_write(elem, tmp_path):
    cast(tmp_path, elem, T.STRING).compare([drawn(KINDS[elem])])


@pytest.mark.parametrize("elem", KINDS, ids=lambda e: T.DataType.Name(e))
def test_read(elem, tmp_path):
    texts = ["1", "-1", " 2", "2 ", "+3", "255", "256", "-129", "4294967295", "9223372036854775807", "\t7\n", "0", "-0"]
    texts += ["1e2", "1.5", "inf", "-INF", "Infinity", "NaN", "0.1", ".5", "5.", "1e+5", "3.4028236e38", "1e39"] * (np.dtype(KINDS[elem]).kind == "f")
    cast(tmp_path, T.STRING, elem).compare([np.array(texts, object)[:, None]])


def test_written_floats_are_read_again(tmp_path):
    x = np.random.default_rng(0).standard_normal((50, 2)).astype(np.float16)
    nodes = [node("Cast", "x", "s", to=T.STRING), node("Cast", "s", "y", to=T.FLOAT16)]
    model = Model(tmp_path, nodes, [value("x", ["n", 2], T.FLOAT16)], [value("y", ["n", 2], T.FLOAT16)], opset=19)
    model.compare([x], [x])


@pytest.mark.parametrize("elem, text, want", [(T.INT64, "1e2", 100), (T.INT32, "-2.9", -2), (T.FLOAT, "1e400", np.inf), (T.DOUBLE, "1e-400", 0)])
def test_read_where_onnx_runtime_differs(elem, text, want, tmp_path):
    cast(tmp_path, T.STRING, elem).compare([np.array([[text]], object)], [np.array([[want]], KINDS[elem])])


@pytest.mark.parametrize("text", ["", "abc", "1.5abc", "0x10", "1_0"])
def test_no_number(text, tmp_path):
    with pytest.raises(ModelError, match="not a number"):
        cast(tmp_path, T.STRING, T.FLOAT).run([np.array([["1", text]], object)])


def test_constants_of_strings(tmp_path):
    nodes = [node("Equal", "x names", "same"), node("StringConcat", "prefix x", "y"), node("Cast", "digits", "d", to=T.FLOAT)]
    model = Model(tmp_path, nodes, [value("x", ["n", 2], T.STRING)],
                  [value("same", ["n", 2], T.BOOL), value("y", ["n", 2], T.STRING), value("d", [3])],
                  {"names": np.array(["a", "é"], object), "prefix": np.array("p ", object), "digits": np.array(["1", "2.5", "-3e4"], object)}, opset=20)
    model.compare([np.array([["a", "b"], ["é", "é"]], object)])


MOVES = {
    "Identity": "k", "Reshape": "x shape", "Transpose": "x", "Gather": "x i", "GatherND": "x i", "Concat": "x k", "Where": "mask x k",
    "Expand": "x shape3", "Tile": "x shape", "Slice": "x i i2", "Compress": "x mask1", "ScatterElements": "x i2d k1",
}


@pytest.mark.parametrize("op", MOVES)
def test_check_knows_what_compiling_refuses(op, tmp_path):
    """Moves of strings and results that are constants have no code: both say so."""
    constants = {"k": np.array([["a", "b"], ["c", "d"]], object), "k1": np.array([["e"]], object), "shape": np.array([4, 1]), "i": np.array([0, 1]),
                 "i2": np.array([1, 2]), "shape3": np.array([2, 2, 2]), "mask": np.array([[True], [False]]), "mask1": np.array([True, False]),
                 "i2d": np.array([[1]])}
    used = {k: v for k, v in constants.items() if k in MOVES[op].split()}
    more = {"axis": 0} if op in ("Concat", "Compress") else {}
    model = Model(tmp_path, [node(op, MOVES[op], "y", **more)], [value("x", [2, 2], T.STRING)], [value("y", None, T.STRING)], used, opset=20)
    done = mcc("check", model.path)
    assert done.returncode == 1 and "not supported in compiled code" in done.stderr, done.stderr
    assert "not supported in compiled code" in model.refused()

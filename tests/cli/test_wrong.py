"""When something is wrong: mcc diff names the kernel, mcc reduce cuts the network down to it."""
import json
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from support.tool import DIGITS, MCC, dense, mcc, result, save, value


def chain(path, blocks=20):
    """3 nodes a block: a matrix product and a bias, then a nonlinearity, then a row sum's difference; batch 8."""
    rng = np.random.default_rng(3)
    nodes, constants, last = [], {}, "x"
    for i in range(blocks):
        constants[f"w{i}"] = (rng.standard_normal((16, 16)) / 4).astype(np.float32)
        nodes += [helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"], f"product{i}"),
                  helper.make_node("Tanh", [f"m{i}"], [f"t{i}"], f"tanh{i}"),
                  helper.make_node("ReduceMax", [f"t{i}"], [f"r{i}"], f"most{i}", axes=[1], keepdims=1),
                  helper.make_node("Sub", [f"t{i}", f"r{i}"], [f"s{i}"], f"shift{i}")]
        last = f"s{i}"
    return save(path, nodes, [value("x", [8, 16])], [value(last, [8, 16])], constants)


def test_diff_of_a_right_network(tmp_path):
    for model in (DIGITS, dense(tmp_path / "net.onnx")):
        for more in ([], ["-O0"], ["-O1", "--layout=NCHW"]):
            found = result("diff", model, *more, cwd=tmp_path)
            assert found["difference"] is None and 0 < found["compared"] <= found["kernels"]
    done = mcc("diff", DIGITS, cwd=tmp_path)
    assert done.returncode == 0 and "none differs" in done.stdout and done.stderr == "", done
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx"]


def test_diff_keeps_what_copies_share(tmp_path):
    """A copy in front of a depthwise convolution shares its bytes with its operand in the interpreter; the Relu wants as many."""
    rng = np.random.default_rng(1)
    nodes = [helper.make_node("Reshape", ["x", "to"], ["c"]), helper.make_node("Conv", ["c", "w"], ["y"], "conv", strides=[2, 2], pads=[1] * 4, group=32),
             helper.make_node("Relu", ["z"], ["r"])]
    model = save(tmp_path / "m.onnx", nodes, [value("x", [1, 16, 2, 6, 6]), value("z", [1, 32, 6, 6])], [value("y", None), value("r", None)],
                 {"to": np.array([1, 32, 6, 6]), "w": rng.standard_normal((32, 1, 3, 3)).astype(np.float32)})
    done = mcc("diff", model, cwd=tmp_path)
    assert done.returncode == 0 and "3 of 4 kernels" in done.stdout, done.stderr      # the other one fills the copy's halo


LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n,4] x, int64 trips, bool c) => (float[n,4] y, float[k,n,4] scans, float[n,4] z)
{
  t = If (c) <then_branch = g1 () => (float[n,4] a) { a = Relu(x) }, else_branch = g2 () => (float[n,4] b) { b = Exp(x) }>
  y, scans = Loop (trips, c, t) <body = b (int64 i, bool ci, float[n,4] v) => (bool co, float[n,4] w, float[n,4] u)
    { co = Identity(ci) w = Add(v, x) u = Mul(w, v) }>
  z = Tanh(y)
}
"""


def test_diff_of_loops_and_branches(tmp_path):
    """Kernels in bodies run as often as they like; what they store is judged behind them."""
    onnx.save(onnx.parser.parse_model(LOOP), tmp_path / "m.onnx")
    for trips in (0, 3):
        for c in (False, True):
            np.save(tmp_path / "t.npy", np.array(trips))
            np.save(tmp_path / "c.npy", np.array(c))
            done = mcc("diff", "m.onnx", "-i", "trips=t.npy", "-i", "c=c.npy", "--dim=n=5", cwd=tmp_path)
            assert done.returncode == 0 and "3 outputs compared" in done.stdout, done.stderr


def test_diff_judges_each_kernel_by_its_own_work(tmp_path):
    """float16 inside of a kernel, and rounding to integers where the float is near a tie, in a chain that would add both up."""
    rng = np.random.default_rng(2)
    nodes, last, constants = [], "x", {"s": np.float32(0.05), "z": np.int8(0)}
    for i in range(6):
        constants[f"w{i}"] = rng.standard_normal((32, 32)).astype(np.float16)
        nodes += [helper.make_node("Cast", [last], [f"h{i}"], to=onnx.TensorProto.FLOAT16), helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"m{i}"]),
                  helper.make_node("Cast", [f"m{i}"], [f"f{i}"], to=onnx.TensorProto.FLOAT), helper.make_node("QuantizeLinear", [f"f{i}", "s", "z"], [f"q{i}"]),
                  helper.make_node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"])]
        last = f"d{i}"
    model = save(tmp_path / "m.onnx", nodes, [value("x", ["n", 32])], [value(last, ["n", 32])], constants)
    done = mcc("diff", model, "--dim=n=64", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_diff_with_sizes_that_do_not_work(tmp_path):
    model = save(tmp_path / "m.onnx", [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[4, 4])], [value("x", [1, 1, "h", "h"])], [value("y", None)])
    done = mcc("diff", model)
    assert done.returncode == 1 and "--dim=NAME=N" in done.stderr
    assert mcc("diff", model, "--dim=h=9").returncode == 0


@pytest.mark.parametrize("node", ["conv1", "conv2", "pool1"])
def test_diff_names_the_kernel(tmp_path, node):
    done = mcc("diff", "--json", DIGITS, f"--break-kernel={node}", "-o", tmp_path / "operands", "--dim=n=3")
    assert done.returncode == 5, done.stderr
    where = json.loads(done.stdout)["result"]["difference"]["where"]       # kernel k5 (contract; conv1, relu1)
    assert node in where.rstrip(")").split("; ")[1].split(", ")
    written = {p.name: np.load(p) for p in (tmp_path / "operands").iterdir()}
    assert any(a.shape[:1] == (3,) for a in written.values())          # the data
    assert node == "pool1" or any(a.shape[1:] == (1, 3, 3) or a.shape[1:] == (16, 3, 3) for a in written.values())    # the weights


def test_diff_takes_inputs_and_references(tmp_path):
    model = dense(tmp_path / "net.onnx")
    x = np.array([[1, 2, 3, 4]], np.float32)
    tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer}
    y = np.maximum(x @ tensors["w"] + tensors["b"], 0)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "y.pb").write_bytes(numpy_helper.from_array(y, "y").SerializeToString())
    (tmp_path / "bad.pb").write_bytes(numpy_helper.from_array(y + 1, "y").SerializeToString())
    (tmp_path / "shape.pb").write_bytes(numpy_helper.from_array(y[0], "y").SerializeToString())
    for name, status in (("y.pb", 0), ("bad.pb", 5), ("shape.pb", 5), ("none.pb", 3)):
        done = mcc("diff", model, "-i", "x=x.npy", "--against", f"y={name}", cwd=tmp_path)
        assert done.returncode == status, (name, done.stderr)
    assert mcc("diff", model, "-i", "x=x.npy", "--against", "z=y.pb", cwd=tmp_path).returncode == 2
    assert mcc("diff", model, "-i", "x=x.npy", "--against", "y=bad.pb", "--tolerance=100", cwd=tmp_path).returncode == 0


def test_reduce_finds_the_node(tmp_path):
    """A network of 80 nodes, one kernel of which is compiled wrong."""
    model = chain(tmp_path / "net.onnx")
    assert len(onnx.load(model).graph.node) >= 50
    done = mcc("diff", model, "--break-kernel=most11", "-o", tmp_path / "operands")
    assert done.returncode == 5 and "most11" in done.stderr
    script = tmp_path / "wrong.py"
    script.write_text(f"import subprocess, sys\nsys.exit(subprocess.run([{MCC!r}, 'diff', '-q', '-O0', '-march=x86-64-v2', '--break-kernel=most11', "
                      f"'-o', {str(tmp_path / 'o')!r}, sys.argv[1]]).returncode != 5)\n")
    done = mcc("reduce", model, "-o", tmp_path / "small.onnx", "--", sys.executable, script, timeout=300)
    assert done.returncode == 0, done.stderr
    small = onnx.load(tmp_path / "small.onnx")
    onnx.checker.check_model(small)
    names = [n.name for n in small.graph.node]
    assert "most11" in names and len(names) <= 3
    assert f"{len(names)} of 80 nodes" in done.stdout
    assert [d.dim_value for d in small.graph.input[0].type.tensor_type.shape.dim][0] == 1      # the batch of 8
    assert len(small.graph.initializer) <= 1


def test_reduce_keeps_subgraphs_whole(tmp_path):
    """What a branch takes from around it becomes an input of the small network."""
    def branch(op):
        return helper.make_graph([helper.make_node(op, ["a"], [f"{op}_out"])], op, [], [value(f"{op}_out", [2])])
    nodes = [helper.make_node("Abs", ["x"], ["a"], "abs"), helper.make_node("If", ["c"], ["i"], "if", then_branch=branch("Neg"), else_branch=branch("Exp")),
             helper.make_node("Sqrt", ["i"], ["y"], "sqrt")]
    model = save(tmp_path / "m.onnx", nodes, [value("x", [2]), value("c", [], onnx.TensorProto.BOOL)], [value("y", [2])])
    script = tmp_path / "has_if.py"
    script.write_text("import sys\nsys.exit(b'then_branch' not in open(sys.argv[-1], 'rb').read())\n")
    assert mcc("reduce", model, "-o", tmp_path / "small.onnx", "--", sys.executable, script).returncode == 0
    small = onnx.load(tmp_path / "small.onnx")
    assert [n.name for n in small.graph.node] == ["if"] and {i.name for i in small.graph.input} == {"c", "a"}
    onnx.checker.check_model(small)


def test_reduce_takes_external_data_along(tmp_path):
    w = np.arange(6, dtype=np.float32)
    nodes = [helper.make_node("Abs", ["x"], ["a"], "abs"), helper.make_node("Add", ["a", "w"], ["b"], "add"), helper.make_node("Sqrt", ["b"], ["y"], "sqrt")]
    save(tmp_path / "net.onnx", nodes, [value("x", [6])], [value("y", [6])], {"w": w},
         save_as_external_data=True, size_threshold=0, location="data")
    script = tmp_path / "has_add.py"
    script.write_text("import sys\nsys.exit(b'Add' not in open(sys.argv[-1], 'rb').read())\n")
    done = mcc("reduce", tmp_path / "net.onnx", "-o", tmp_path / "small.onnx", "--", sys.executable, script)
    assert done.returncode == 0, done.stderr
    small = onnx.load(tmp_path / "small.onnx", load_external_data=False)
    assert [n.name for n in small.graph.node] == ["add"] and b"location" not in small.SerializeToString()
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(small.graph.initializer[0]), w)


def test_reduce_errors(tmp_path):
    model = dense(tmp_path / "net.onnx")
    before = model.read_bytes()
    assert mcc("reduce", model, "-o", model, "--", "true").returncode == 2 and model.read_bytes() == before
    assert mcc("reduce", model).returncode == 2
    assert mcc("reduce", model, "--", "false", cwd=tmp_path).returncode == 2
    assert mcc("reduce", model, "--", tmp_path / "no such program", cwd=tmp_path).returncode == 3
    assert mcc("reduce", tmp_path / "none.onnx", "--", "true").returncode == 3
    done = mcc("reduce", model, "--", "test", "-s", "{}", cwd=tmp_path)
    assert done.returncode == 0 and len(onnx.load(tmp_path / "reduced.onnx").graph.node) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx", "reduced.onnx"]

"""mcc prove on open sizes: which of them are drawn, and loops that no size lets run."""
import numpy as np
import pytest
from cli.test_prove import proof, weights
from onnx import helper

from support.tool import save, value

INT64 = 7


def whole(path):
    """Is everything proved? The sizes of the first variant."""
    data = proof(path)
    variant = data["variants"][0]
    assert data["proved"], [k["why"] for k in variant["kernels"] if not k["proved"]]
    return variant["sizes"]


def test_rows_and_columns_of_one_size(tmp_path):
    """A transposition has blocks of 16 by 8, and other code if either extent is less. For n < 16 there are no whole vectors of n."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("MatMul", ["t", "z"], ["y"])],
                [value("x", ["n", "n"]), value("z", ["n", "n"])], [value("y", ["n", "n"])])
    assert "n=16;" in whole(path)


def test_columns_that_a_condition_rules_out(tmp_path):
    """Sizes that are no multiple of 8, or the like, are refused: an image of half the size has the size of the other one after it is doubled."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], "quarter", strides=[1, 4], pads=[0, 1, 0, 2]),
             helper.make_node("Conv", ["a", "v"], ["b"], "half", strides=[1, 2], pads=[0, 1, 0, 1]),
             helper.make_node("Resize", ["b", "", "scales"], ["c"], "double", mode="nearest"), helper.make_node("Add", ["a", "c"], ["y"], "sum")]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [1, 3, 4, "w0"])], [value("y", [1, 16, 4, "w1"])],
                {"w": weights(16, 3, 1, 5), "v": weights(16, 16, 1, 3, seed=1), "scales": np.float32([1, 1, 1, 2])}, opset=18)
    whole(path)


def test_one_frame(tmp_path):
    """A Squeeze takes one frame only, and so the convolution before it needs no code for several."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["f"], "frames", strides=[64], pads=[32, 32]), helper.make_node("Squeeze", ["f", "last"], ["y"])]
    path = save(tmp_path / "net.onnx", nodes, [value("x", ["b", 1, "n"])], [value("y", ["b", 40])],
                {"w": weights(40, 1, 128), "last": np.int64([2])}, opset=18)
    whole(path)


def branch(window, name):
    """A convolution of frames, of which the squeezed one takes window to 2 * window - 1 samples."""
    nodes = [helper.make_node("Conv", ["x", f"w{name}"], [f"f{name}"], f"frames{name}", strides=[window]),
             helper.make_node("Squeeze", [f"f{name}", "last"], [f"s{name}"]), helper.make_node("MatMul", [f"s{name}", f"v{name}"], [f"y{name}"])]
    return helper.make_graph(nodes, name, [], [value(f"y{name}", ["b", 24])])


@pytest.mark.parametrize("windows", [(64, 96), (64, 192)])
def test_branches_with_conditions(tmp_path, windows):
    """A number chooses the branch, and each one takes other sizes: both at 96 to 127 samples, or none that both take."""
    nodes = [helper.make_node("Equal", ["rate", "known"], ["is"]),
             helper.make_node("If", ["is"], ["y"], "rates", then_branch=branch(windows[0], "A"), else_branch=branch(windows[1], "B"))]
    weight = {f"w{name}": weights(40, 1, n, seed=n) for name, n in zip("AB", windows)} | {f"v{name}": weights(40, 24, seed=n) for name, n in zip("AB", windows)}
    path = save(tmp_path / "net.onnx", nodes, [value("x", ["b", 1, "n"]), value("rate", [], INT64)], [value("y", ["b", 24])],
                weight | {"known": np.int64(16000), "last": np.int64([2])}, opset=18)
    sizes = whole(path)
    assert "n=96" in sizes if windows[1] == 96 else "n=64" in sizes and "n=192" in sizes


def test_numbers_with_conditions(tmp_path):
    """Of all shapes of three extents, a few have 210 elements."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("Neg", ["r"], ["y"])],
                [value("x", [2, 3, 5, 7]), value("shape", [3], INT64)], [value("y", ["a", "b", "c"])])
    assert proof(path, status=6)["variants"][0]["program"]["proved"]


def test_no_elements(tmp_path):
    """A cache that is empty is drawn as well."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Concat", ["past", "x"], ["now"], axis=1), helper.make_node("ReduceSum", ["now", "one"], ["y"])],
                [value("past", [4, "p", 24]), value("x", [4, 1, 24])], [value("now", [4, "n", 24]), value("y", [4, 1, 24])], {"one": np.int64([1])})
    assert "p=0" in whole(path)


def test_weights_among_the_inputs(tmp_path):
    """Inputs without open sizes do not keep the interpreter from larger sizes."""
    path = save(tmp_path / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
                [value("x", ["n", 1100]), value("w", [1100, 1000])], [value("y", ["n", 1000])])
    assert "n=33" in whole(path)


def test_positions_of_the_largest(tmp_path):
    """Which of equal elements is taken shows at no size of one."""
    path = save(tmp_path / "net.onnx", [helper.make_node("ArgMax", ["x"], ["y"], axis=0, keepdims=0)], [value("x", ["n"])], [value("y", [], INT64)])
    whole(path)


def scan(name, x, y, op):
    """A recurrence over the rows of x."""
    steps = [helper.make_node("MatMul", [f"{name}.h", f"{name}.w"], [f"{name}.p"]), helper.make_node("Add", [f"{name}.p", f"{name}.r"], [f"{name}.q"]),
             helper.make_node(op, [f"{name}.q"], [f"{name}.n"]), helper.make_node("Identity", [f"{name}.n"], [f"{name}.o"])]
    body = helper.make_graph(steps, f"{name}.body", [value(f"{name}.h", [1, 8]), value(f"{name}.r", [1, 8])],
                             [value(f"{name}.n", [1, 8]), value(f"{name}.o", [1, 8])])
    return helper.make_node("Scan", ["zero", x], [f"{name}.last", y], name, body=body, num_scan_inputs=1)


@pytest.mark.parametrize("op, proved", [("Tanh", True), ("Relu", False)])
def test_loops_in_a_row(tmp_path, op, proved):
    """A loop that hides nothing of what another one has computed shows whether that is right."""
    nodes = [scan("first", "x", "a", "Tanh"), scan("second", "a", "b", op), helper.make_node("Mul", ["b", "b"], ["y"])]
    path = save(tmp_path / "net.onnx", nodes, [value("x", ["n", 1, 8])], [value("y", ["n", 1, 8])],
                {"zero": np.zeros((1, 8), np.float32), "first.w": weights(8, 8), "second.w": weights(8, 8, seed=1)})
    assert proof(path, status=0 if proved else 6)["proved"] == proved


def test_trips_of_one_launch(tmp_path):
    """A loop of few elements is one kernel. Its trips are an input, which is drawn from all integers."""
    steps = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["a", "c"], ["b"])]
    inner = helper.make_graph(steps, "inner", [value("i", [], INT64), value("go", [], 9), value("a", [1])], [value("on", [], 9), value("b", [1])],
                              [helper.make_tensor("c", 1, [1], [3.0])])
    steps = [helper.make_node("Identity", ["go0"], ["on0"]), helper.make_node("Loop", ["m", "go0", "s"], ["t"], "inside", body=inner)]
    outer = helper.make_graph(steps, "outer", [value("i0", [], INT64), value("go0", [], 9), value("s", [1])], [value("on0", [], 9), value("t", [1])])
    path = save(tmp_path / "net.onnx", [helper.make_node("Loop", ["n", "start", "x"], ["y"], "outside", body=outer)],
                [value("n", [], INT64), value("m", [], INT64), value("start", [], 9), value("x", [1])], [value("y", [1])])
    whole(path)

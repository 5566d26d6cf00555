"""mcc diff --bounds: what right kernels round lies inside of their bounds, and wrong digits do not."""
import numpy as np
import pytest
from onnx import helper

from cli.test_prove import SPANS, attention, image, mlp, quantized
from support.tool import DIGITS, mcc, result, save, value

ONE = "--march=native"


def bounds(path, tmp_path, *args):
    found = result("diff", path, "--bounds", *args, cwd=tmp_path)
    assert found["difference"] is None and found["bounds"]
    for row in found["bounds"]:
        assert row["outside"] == 0 and row["share"] <= 1 and (row["bounded"] > 0) == (row["why"] is None), row
    return found["bounds"]


@pytest.mark.parametrize("make, options", [
    (mlp, [ONE]), (mlp, ["--march=x86-64-v2"]), (mlp, [ONE, "--precision=bf16"]), (mlp, ["--march=x86-64-v3", "--precision=bf16"]),
    (mlp, [ONE, "--precision=f16"]),
    (mlp, [ONE, "--weights-type=i8"]), (image, [ONE, "--choose=conv2:winograd=6"]), (image, ["--march=x86-64-v3", "--winograd=off"]),
    (attention, [ONE]), (attention, [ONE, SPANS]), (quantized, [ONE]), (quantized, ["--march=x86-64-v2"]), (lambda path: DIGITS, [ONE, "-O0"])])
def test_right_kernels(tmp_path, make, options):
    assert all(row["bounded"] > 0 for row in bounds(make(tmp_path / "net.onnx"), tmp_path, *options))


FUNCTIONS = ["Exp", "Log", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Tan", "Atan", "Sinh", "Asinh", "Sqrt", "Reciprocal", "Floor", "Relu", "Abs"]


def test_functions(tmp_path):
    """Each alone, and after a sum that is rounded."""
    nodes = [helper.make_node("Add", ["x", "x"], ["a0"]), helper.make_node("Mul", ["a0", "x"], ["a"])]
    for op in FUNCTIONS:
        nodes += [helper.make_node(op, ["x"], [f"y{op}"], op), helper.make_node(op, ["a"], [f"z{op}"], op + "2")]
    outs = [value(f"{a}{op}", [1, 200]) for op in FUNCTIONS for a in "yz"]
    rows = bounds(save(tmp_path / "net.onnx", nodes, [value("x", [1, 200])], outs), tmp_path, ONE)
    assert sum(row["bounded"] for row in rows) >= 200 * 2 * len(FUNCTIONS) * 0.9
    assert max(row["share"] for row in rows) > 0.2


def test_how_far(tmp_path):
    """A sum of 1,000 products: the bound is no hundred times what was rounded."""
    rng = np.random.default_rng(5)
    path = save(tmp_path / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"], "n")], [value("x", [4, 1000])], [value("y", [4, 64])],
                {"w": rng.standard_normal((1000, 64)).astype(np.float32)})
    [row] = bounds(path, tmp_path, ONE)
    assert row["bounded"] == 256 and row["share"] > 0.01


@pytest.mark.parametrize("make, node", [(mlp, "first"), (image, "conv2"), (attention, "values"), (quantized, "conv1")])
def test_broken_kernels(tmp_path, make, node):
    done = mcc("diff", make(tmp_path / "net.onnx"), "--bounds", ONE, f"--break-kernel={node}", cwd=tmp_path)
    assert done.returncode == 5 and node in done.stderr and "differs" in done.stderr


def test_digits_of_a_function(tmp_path):
    """Of the statements of exp that are wrong, the bound sees those that the tolerance does not. One more is the function's name."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Exp", ["x"], ["y"], "n")], [value("x", [1, 256])], [value("y", [1, 256])])

    def survivors(*more):
        codes = []
        while not codes or codes[-1] != 2:
            codes.append(mcc("diff", path, ONE, f"--mutate={len(codes) + 1}", *more, cwd=tmp_path).returncode)
            assert len(codes) < 60
        return codes.count(0), len(codes)

    (tolerated, sites), (inside, more) = survivors(), survivors("--bounds")
    assert sites > 16 and more == sites + 1 and inside + 3 <= tolerated, (tolerated, sites, inside, more)


def test_powers(tmp_path):
    """Of numbers that rounding has moved, by such numbers: negative ones by whole numbers alone."""
    nodes = [helper.make_node("Add", ["x", "x"], ["a0"]), helper.make_node("Mul", ["a0", "x"], ["a"]), helper.make_node("Mul", ["x", "third"], ["b"])]
    powers = {"both": ("a", "b"), "whole": ("b", "five"), "negative": ("b", "odd"), "exact": ("third", "x")}
    nodes += [helper.make_node("Pow", list(operands), [f"y{name}"], name) for name, operands in powers.items()]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [1, 200])], [value(f"y{name}", None) for name in powers],
                {"third": np.float32(1 / 3), "five": np.float32(5), "odd": np.full(200, -3, np.float32)})
    rows = bounds(path, tmp_path, ONE)
    assert sum(row["bounded"] for row in rows) >= 200 * 5 and max(row["share"] for row in rows) > 0.1


def test_what_has_no_bound(tmp_path):
    """A remainder jumps; its operand comes from a sum."""
    nodes = [helper.make_node("Add", ["x", "x"], ["a"]), helper.make_node("Mul", ["a", "x"], ["b"]), helper.make_node("Mod", ["b", "x"], ["y"], "n", fmod=1)]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [64])], [value("y", [64])])
    found = result("diff", path, "--bounds", ONE, cwd=tmp_path)
    assert found["difference"] is None and [r["why"] for r in found["bounds"]] == ["what it computes has no bound"]
    bits = save(tmp_path / "bits.onnx", [helper.make_node("BitCast", ["x"], ["y"], "n", to=6)], [value("x", [64])], [value("y", [64], 6)], opset=26)
    done = mcc("diff", bits, "--bounds", ONE, cwd=tmp_path)
    assert done.returncode == 2 and "not computed in f64" in done.stderr
    both = mcc("diff", path, "--bounds", "--against-f32", ONE, cwd=tmp_path)
    assert both.returncode == 2 and "two comparisons" in both.stderr

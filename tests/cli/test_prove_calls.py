"""mcc prove: functions of the runtime, whose operands, sizes and results the draws show; and positions that are computed of floats."""
import itertools
import resource

import numpy as np
import onnx
import pytest
from onnx import helper

from cli.test_prove import mutants, proof
from support.tool import mcc, save, value

BOOL, INT32, INT64 = onnx.TensorProto.BOOL, onnx.TensorProto.INT32, onnx.TensorProto.INT64
CPU = "--march=x86-64-v3"


def first(path, **attributes):
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], "n", **attributes)
    return save(path, [node], [value("x", [3, 11])], [value("y", [3, 4]), value("i", [3, 4], INT64)], {"k": np.array([4])}, opset=17)


def last(path):
    return first(path, largest=0)


def distinct(path):
    node = helper.make_node("Unique", ["x"], list("yfic"), "n", axis=0)
    return save(path, [node], [value("x", [7, 2])], [value("y", ["u", 2])] + [value(n, [n], INT64) for n in "fic"], opset=17)


def nonzero(path):
    return save(path, [helper.make_node("NonZero", ["x"], ["y"], "n")], [value("x", [3, 5])], [value("y", [2, "k"], INT64)], opset=17)


def compress(path):
    node = helper.make_node("Compress", ["x", "c"], ["y"], "n", axis=1)
    return save(path, [node], [value("x", [3, 9]), value("c", [9], BOOL)], [value("y", [3, "k"])], opset=17)


def boxes(path):
    node = helper.make_node("NonMaxSuppression", ["b", "s", "m", "t", "l"], ["y"], "n")
    inputs = [value("b", [2, 6, 4]), value("s", [2, 3, 6]), value("m", [1], INT64), value("t", [1]), value("l", [1])]
    return save(path, [node], inputs, [value("y", ["k", 3], INT64)], opset=17)


def spectrum(path):
    """The length comes from data, so it is no product with a table."""
    node = helper.make_node("DFT", ["x", "l"], ["s"], "n", axis=1)
    return save(path, [node, helper.make_node("Neg", ["s"], ["y"], "neg")], [value("x", [2, 6, 1]), value("l", [], INT64)], [value("y", [2, "k", 2])],
                opset=17)


def volume(path):
    return save(path, [helper.make_node("Det", ["x"], ["d"], "n"), helper.make_node("Mul", ["d", "d"], ["y"], "square")], [value("x", [4, 3, 3])],
                [value("y", [4])], opset=17)


def chance(path):
    return save(path, [helper.make_node("Bernoulli", ["x"], ["y"], "n", seed=5.0)], [value("x", [3, 40])], [value("y", [3, 40])], opset=17)


def whole(r, *shape):
    return r.integers(-1, 2, shape).astype(np.float32)


# Inputs for calls that get memory as it is; of the others, whose operands and results become numbers and residues again, the mutants that
# are left: bytes of memory that is rounded up to whole lines, the plan of a network without sizes, and
# - of the spectrum: rows of a block beyond all lengths that are drawn, a length beyond 2^31;
# - of random numbers: the last bit of the range.
CALLS = [(first, lambda r: {"x": whole(r, 3, 11)}), (last, lambda r: {"x": whole(r, 3, 11)}), (distinct, lambda r: {"x": whole(r, 7, 2)}),
         (nonzero, lambda r: {"x": whole(r, 3, 5)}), (compress, lambda r: {"x": whole(r, 3, 9), "c": r.integers(0, 2, 9).astype(bool)}),
         (boxes, 6), (spectrum, 7), (volume, 2), (chance, 2)]


def compute_the_same(path, site, inputs, cpu=CPU):
    """The mutant's results are right for these inputs."""
    feeds = []
    for name, x in inputs.items():
        np.save(path.parent / f"{name}.npy", x)
        feeds += ["-i", f"{name}={path.parent / name}.npy"]
    done = mcc("diff", path, cpu, f"--mutate={site}", *feeds, "-o", path.parent / "diff")
    assert done.returncode == 0, (site, inputs, done.stderr)


@pytest.mark.parametrize("make, known", CALLS)
def test_functions_of_the_runtime(tmp_path, make, known):
    """The certificate names what is taken for granted, and a program that passes other numbers is not proved: mutants that are left compute what
    the network computes."""
    path = make(tmp_path / "net.onnx")
    found = proof(path, CPU)
    [variant] = found["variants"]
    assert found["proved"] and any("runtime" in k["axioms"] for k in variant["kernels"])
    left, n = mutants(path)
    assert n > 3
    if isinstance(known, int):
        assert len(left) <= known, (left, n)
        return
    for site, seed in itertools.product(left, range(6)):
        compute_the_same(path, site, known(np.random.default_rng(seed)))


def sampled(path):
    """Positions that are clamped twice: one corner of two is at the same place for all."""
    node = helper.make_node("GridSample", ["x", "g"], ["y"], "n", padding_mode="border")
    return save(path, [node], [value("x", [1, 1, 3, 2]), value("g", [1, 2, 4, 2])], [value("y", [1, 1, 2, 4])], opset=22)


def aligned(path):
    """Positions of sizes that data decides, in dims of one element as well."""
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], "n", mode="linear", coordinate_transformation_mode="align_corners")
    return save(path, [node], [value("x", [1, 1, 2, 4]), value("s", [4])], [value("y", list("abcd"))], opset=19)


def test_positions_of_floats(tmp_path):
    """Code with another constant, comparison or corner reads other elements, or weighs them otherwise."""
    path = sampled(tmp_path / "net.onnx")
    assert proof(path, CPU)["proved"]
    left, n = mutants(path, step=3)
    assert n > 8 and len(left) * 4 <= n, (left, n)


def test_positions_in_a_dim_of_one_element(tmp_path):
    """They are 0 in all draws, which ranges of floats show."""
    assert proof(aligned(tmp_path / "net.onnx"), CPU)["proved"]


def test_integers_that_wrap(tmp_path):
    """Squares of 32 bits may be -7, which the range of the square without wrapping rules out, and no draw has one."""
    nodes = [helper.make_node("Max", ["x", "zero"], ["m"], "least"), helper.make_node("Mul", ["m", "m"], ["s"], "square"),
             helper.make_node("Equal", ["s", "k"], ["c"], "equal"), helper.make_node("Where", ["c", "a", "b"], ["y"], "n")]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [4], INT32), value("a", [4]), value("b", [4])], [value("y", [4])],
                {"zero": np.array(0, np.int32), "k": np.array(-7, np.int32)}, opset=17)
    found = proof(path, CPU, status=6)
    assert "shown few" in found["variants"][0]["kernels"][0]["why"]


def checked(path):
    """Rows of which the network takes two at most: their number comes from data, and is checked."""
    nodes = [helper.make_node("Concat", ["n", "rest"], ["dims"], "dims", axis=0), helper.make_node("Expand", ["zero", "dims"], ["i"], "indices"),
             helper.make_node("GatherElements", ["x", "i"], ["g"], "rows", axis=1), helper.make_node("MatMul", ["g", "w"], ["y"], "n")]
    weights = np.arange(32, dtype=np.float32).reshape(4, 8) / 32
    return save(path, nodes, [value("x", [2, 3, 4]), value("n", [1], INT64)], [value("y", ["k", 3, 8])],
                {"rest": np.array([3, 4]), "zero": np.zeros((1, 1, 1), np.int64), "w": weights}, opset=17)


def test_sizes_that_the_network_checks(tmp_path):
    """No size that is left runs the loops of a product over many rows."""
    assert proof(checked(tmp_path / "net.onnx"), CPU)["proved"]


def joined(path):
    """As a cache and its mask: the network takes no sizes but t = m + n and k = 12, and says so of each alone."""
    nodes = [helper.make_node("Concat", ["a", "b"], ["ab"], "both", axis=1), helper.make_node("MatMul", ["ab", "c"], ["y"], "product"),
             helper.make_node("MatMul", ["x", "w"], ["z"], "weights")]
    inputs = [value("a", [4, "m"]), value("b", [4, "n"]), value("c", ["t", 5]), value("x", ["r", "k"])]
    return save(path, nodes, inputs, [value("y", [4, 5]), value("z", ["r", 5])], {"w": np.arange(60, dtype=np.float32).reshape(12, 5) / 60}, opset=17)


def test_sizes_that_go_together(tmp_path):
    """Where drawn sizes are refused, others are drawn that meet the network's conditions."""
    path = joined(tmp_path / "net.onnx")
    found = proof(path, CPU)
    draws = [dict(size.split("=") for size in draw.split(", ")) for draw in found["variants"][0]["sizes"].split("; ")]
    assert found["proved"] and len(draws) > 8
    assert all(int(d["t"]) == int(d["m"]) + int(d["n"]) and d["k"] == "12" for d in draws), draws
    proof(path, CPU, "--machine=only")


def product(path):
    """Rows of a sequence: loops over few of them, and over a rest, run if the batch is 1."""
    return save(path, [helper.make_node("MatMul", ["x", "w"], ["y"], "n")], [value("x", ["b", "s", 64])], [value("y", ["b", "s", 64])],
                {"w": np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096}, opset=17)


def test_rows_of_a_sequence(tmp_path):
    """Squares are few rows, or many: one size differs from all others."""
    found = proof(product(tmp_path / "net.onnx"), "--march=x86-64-v2")
    assert found["proved"] and "b=7, s=1;" in found["variants"][0]["sizes"]


def pinned(path, n=800):
    """Lengths that are each the sum of two others, which nearly all drawn sizes miss: as many symbols and conditions."""
    names = range(n)
    inputs = [value(f"x{i}", [1, f"n{i}"]) for i in names] + [value(f"w{i}", [f"n{i}", 1]) for i in names]
    nodes, outputs = [], []
    for i in range(n - 2):
        nodes += [helper.make_node("Concat", [f"x{i}", f"x{i + 1}"], [f"c{i}"], f"both{i}", axis=1),
                  helper.make_node("MatMul", [f"c{i}", f"w{i + 2}"], [f"y{i}"], f"product{i}")]
        outputs.append(value(f"y{i}", [1, 1]))
    return save(path, nodes, inputs, outputs, opset=17)


def test_many_sizes_that_do_not_go_together(tmp_path):
    """The search for others asks few conditions, and has a budget: without either, this takes minutes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = mcc("prove", pinned(tmp_path / "net.onnx"), CPU, timeout=900)
    assert done.returncode == 1 and "run: " in done.stderr, done
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 20


def axes(path, op="Unsqueeze"):
    """Extents that axes decide: the last one is 5 or 1, in both of which a vector is left over, and no other."""
    return save(path, [helper.make_node(op, ["x", "a"], ["y"], "n")], [value("x", [3, 4, 5]), value("a", [1], INT64)], [value("y", list("pqrs"))],
                opset=21)


def test_extents_that_axes_decide(tmp_path):
    """Their few values are tried, so no size has to skip what is left of vectors. Mutants that are left compute the same for all axes."""
    path, cpu = axes(tmp_path / "net.onnx"), "--march=x86-64-v2"
    assert proof(path, cpu)["proved"]
    left, n = mutants(path, cpu)
    assert n > 8
    for site, axis in itertools.product(left, range(-4, 4)):
        compute_the_same(path, site, {"x": np.arange(60, dtype=np.float32).reshape(3, 4, 5), "a": np.array([axis])}, cpu)


def test_outputs_without_elements(tmp_path):
    """What is reshaped from no elements has none, whatever extents the data gives."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Reshape", ["x", "s"], ["y"], "n", allowzero=1)], [value("x", [0, 3, 4]), value("s", [3], INT64)],
                [value("y", list("pqr"))], opset=21)
    assert proof(path, CPU, status=6)["variants"][0]["program"]["proved"]


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_powers_of_two(tmp_path, mode):
    """f8e8m0, to which the network rounds in three ways, each with another hash."""
    E8M0 = onnx.TensorProto.FLOAT8E8M0
    nodes = [helper.make_node("Cast", ["x"], ["y"], "narrow", to=E8M0, round_mode=mode), helper.make_node("Cast", ["e"], ["z"], "wide", to=1)]
    path = save(tmp_path / "net.onnx", nodes, [value("x", ["n"]), value("e", ["n"], E8M0)], [value("y", ["n"], E8M0), value("z", ["n"])], opset=24)
    assert proof(path, CPU)["proved"]
    left, n = mutants(path)
    assert n > 3 and len(left) <= 1, (left, n)   # the plan of a network without one

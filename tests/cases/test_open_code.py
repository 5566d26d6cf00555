"""The code of networks with dynamic sizes beside that of the same networks with fixed sizes: statements of the loop IR."""
import re

import numpy as np
import pytest
from onnx import TensorProto as T

from support import cpu
from support.compare import Model, floats, node
from support.tool import mcc, value

LEVEL = "-march=x86-64-v3"


def bodies(model, *flags):
    """The functions of one variant, without their first lines: equal ones are compiled once."""
    done = mcc(model.path, "-q", LEVEL, "-stop-after=emit", "-o", "-", *flags)
    assert done.returncode == 0, done.stderr
    return {m[1]: m[2] for m in re.finditer(r"^(?:kernel|program|plan) @(\S+)[^\n]*(.*?)^}", done.stdout, re.M | re.S)}


def functions(model, *flags):
    """Statements of each function of one variant."""
    return {name: text.count("\n") for name, text in bodies(model, *flags).items()}


def residual(folder):
    """A convolution by Winograd, a sum with another feature map and Relu."""
    nodes = [node("Conv", "x v", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b"), node("Conv", "b w", "c", pads=[1, 1, 1, 1]),
             node("Add", "c b", "d"), node("Relu", "d", "y")]
    return Model(folder, nodes, [value("x", [1, 32, "h", "w"])], [value("y", None)],
                 {"v": floats(32, 32, 3, 3, scale=0.1), "w": floats(32, 32, 3, 3, seed=1, scale=0.1)})


def test_addresses_of_maps_of_dynamic_size(tmp_path):
    """Strides that are polynomials of sizes are computed once, and one address serves all results of a tile: 1.31 times the statements
    of fixed sizes, 1.45 where each result has an address of its own. (What is stored at the edge of the map is code of its own.)"""
    model = residual(tmp_path)
    dynamic, fixed = functions(model), functions(model, "--input=x[1,32,56,56]")
    assert sum(dynamic.values()) < 1.35 * sum(fixed.values()), (dynamic, fixed)
    for shape in ((1, 32, 56, 56), (1, 32, 57, 49), (1, 32, 5, 2), (1, 32, 1, 1)):
        model.compare([floats(*shape)])


def test_layers_at_other_sizes_share_code(tmp_path):
    """Layers that differ in their images' sizes alone, which are quotients of the network's, are one function."""
    nodes, weights, last = [], {}, "x"
    for i in range(3):
        weights[f"w{i}"] = floats(32, 32, 1, 1, seed=i, scale=0.2)
        weights[f"v{i}"] = floats(32, 1, 3, 3, seed=i, scale=0.3)
        nodes += [node("Conv", f"{last} w{i}", f"a{i}"), node("Relu", f"a{i}", f"b{i}"),
                  node("Conv", f"b{i} v{i}", f"c{i}", group=32, pads=[1, 1, 1, 1], strides=[2, 2])]
        last = f"c{i}"
    model = Model(tmp_path, nodes, [value("x", [1, 32, "h", "w"])], [value("c2", None)], weights)
    functions = bodies(model)
    kernels = [text for name, text in functions.items() if name.startswith("k") and text.count("\n") > 100]
    distinct = len(set(kernels)) # the first reads the input, the last stores the output
    assert (len(kernels), distinct) == (6, 4)
    assert "shr" in functions["plan"] and "floordiv" not in functions["plan"]
    for shape in ((1, 32, 32, 48), (1, 32, 17, 9), (1, 32, 3, 1)):
        model.compare([floats(*shape)])


def test_what_is_left_of_tiles_is_short(tmp_path):
    """The bodies for 2 and 1 points of a row, which is what tiles of 4 leave, go through rows of taps in a loop: 230 multiply-adds, of
    which the whole tile has 200, where all taps in a row would be 350."""
    model = Model(tmp_path, [node("Conv", "x w", "y", "conv", pads=[2, 2, 2, 2], group=32)], [value("x", [2, 32, "h", "w"])],
                  [value("y", None)], {"w": floats(32, 1, 5, 5, scale=0.2)})
    kernel = max(bodies(model).values(), key=len)
    whole, first, *_ = re.split(r" for %\d+ = .* step 1 carry", kernel)
    assert first and kernel.count(" fma ") < 2 * whole.count(" fma "), kernel
    for h, w in ((1, 1), (2, 3), (5, 6), (4, 7), (3, 8), (9, 13)):
        model.compare([floats(2, 32, h, w)])


@pytest.mark.parametrize("march", cpu.levels())
def test_tiles_of_an_image_overlap(march, tmp_path):
    """What whole tiles of 6 points leave takes a tile that begins in the one before, or a single point: two bodies, where halves would
    be four. Results do not depend on the tile."""
    model = Model(tmp_path, [node("Conv", "x w", "a"), node("Relu", "a", "y", "act")], [value("x", [1, 40, "h", "w"])], [value("y", None)],
                  {"w": floats(24, 40, 1, 1, scale=0.1)})
    flags = march, "-choose=act:tile=1x6x1"
    kernel = max(bodies(model, *flags).values(), key=len)
    steps = re.findall(r" for %\d+ = [^\n]* carry\([^\n]*\n(.*?) yield ", kernel, re.S)
    assert {s.count(" fma ") for s in steps if " for " not in s} == {1, 6}, kernel
    x = floats(1, 40, 1, 33)
    want = model.run([x], *flags)[0]
    for n in range(33):
        assert np.array_equal(model.run([x[..., :n]], *flags)[0], want[..., :n]), n
    model.compare([floats(1, 40, 5, 7)], flags=(flags,))


def test_lengths_with_a_maximum_divide_nothing(tmp_path):
    """A mask of the keys, flattened and back, for rows of a length up to 512, as a table of positions limits it:
    whole vectors are loads. (What is left of a row has a mask, and divides.)"""
    nodes = [node("Shape", "m", "s"), node("Slice", "s one two", "n"), node("Slice", "s zero one", "b"), node("Mul", "b n", "all"),
             node("Reshape", "m all", "flat"), node("Concat", "b one one n", "keys", axis=0), node("Reshape", "flat keys", "k"),
             node("Concat", "b one n n", "pairs", axis=0), node("Expand", "k pairs", "wide"), node("Or", "wide square", "y")]
    constants = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2])}
    model = Model(tmp_path, nodes, [value("m", ["b", "n"], T.BOOL), value("square", ["n", "n"], T.BOOL)],
                  [value("y", None, T.BOOL)], constants)
    spec = "--input=m[b<=8,n<=512]"
    loops = [m for text in bodies(model, spec).values() for m in re.findall(r"^    for .*?^    }", text, re.M | re.S) if "or bool" in m]
    assert loops and not any(re.search(r"floor(div|mod)|gather", m) for m in loops)
    rng = np.random.default_rng(1)
    for b, n in ((1, 1), (2, 7), (3, 16), (2, 65)):
        model.compare([rng.random((b, n)) < 0.5, rng.random((n, n)) < 0.5], flags=("-O0", ("-O2", spec)))


def test_indices_by_logarithms_are_vectors(tmp_path):
    """Buckets of distances, as T5's relative positions: an index with a logarithm that fetches four elements is computed by vectors."""
    nodes = [node("Abs", "d", "a"), node("Cast", "a", "f", to=T.FLOAT), node("Div", "f two", "r"), node("Log", "r", "l"),
             node("Mul", "l scale", "m"), node("Cast", "m", "i", to=T.INT64), node("Add", "i eight", "far"), node("Min", "far most", "last"),
             node("Less", "a eight", "near"), node("Where", "near a last", "bucket"), node("Gather", "table bucket", "y", axis=0)]
    constants = {"two": np.float32([8]), "scale": np.float32([2.5]), "eight": np.array([8]), "most": np.array([15]),
                 "table": floats(16, 4)}
    model = Model(tmp_path, nodes, [value("d", ["n", "m"], T.INT64)], [value("y", None)], constants)
    logs = [text for name, text in bodies(model).items() if name.startswith("k") and "bitcast" in text]
    assert len(logs) == 1 and "bitcast i32x" in logs[0]
    for n, m in ((1, 1), (5, 7), (8, 33)):
        model.compare([np.random.default_rng(1).integers(-40, 40, (n, m))])


def attention(folder):
    """Scores of four heads, a mask for each pair of positions, and softmax, of an open number of positions."""
    nodes = [node("MatMul", "q k", "s"), node("Add", "s m", "t"), node("Softmax", "t", "p", "softmax", axis=-1), node("MatMul", "p v", "y")]
    inputs = [value("q", ["b", 4, "n", 16]), value("k", ["b", 4, 16, "n"]), value("m", ["b", 1, "n", "n"]), value("v", ["b", 4, "n", 16])]
    return Model(folder, nodes, inputs, [value("y", None)], {})


def positions(batch, n):
    return [floats(batch, 4, n, 16), floats(batch, 4, 16, n, seed=1), floats(batch, 1, n, n, seed=2), floats(batch, 4, n, 16, seed=3)]


def test_attention_of_open_length(tmp_path):
    """Scores have a whole tile of keys, which may overlap the one before, and single keys; rows of results are whole tiles of
    scratch: 22 multiply-adds, of which whole tiles have 20, where smaller tiles for what is left make 36."""
    model = attention(tmp_path)
    kernel = max(bodies(model, "-choose=softmax:version=off").values(), key=len)
    steps = re.findall(r" for %\d+ = [^\n]* carry\([^\n]*\n(.*?) yield ", kernel, re.S)
    sums = [s.count(" fma ") for s in steps if " max " not in s and " ldexp " not in s and " fma " in s]
    assert len(sums) == 3 and sum(sums) < 1.2 * (sums[0] + sums[2]), sums
    for batch, n in ((1, 1), (2, 2), (1, 5), (1, 6), (2, 7), (1, 13), (3, 16), (1, 17), (1, 33), (1, 128), (1, 129), (1, 133), (1, 301)):
        model.compare(positions(batch, n))


def test_lanes_that_do_not_exist_take_no_branches(tmp_path):
    """A vector of a mask's rows, whose lanes are a line apart: where the CPU does not gather, LLVM has a branch around each lane."""
    model = attention(tmp_path)
    for level in ("x86-64-v2", "x86-64-v3"):
        done = mcc(model.path, "-q", f"-march={level}", "-S", "-o", tmp_path / "net.s", "-choose=softmax:version=off")
        assert done.returncode == 0, done.stderr
        kernels = re.finditer(r"^(k\d+\S*):(.*?)^\.L?func_end", (tmp_path / "net.s").read_text(), re.M | re.S)
        branches = {m[1]: len(re.findall(r"^\tj(?!mp)", m[2], re.M)) for m in kernels}
        assert branches and max(branches.values()) < 60, branches


def silu(folder):
    """A 1 x 1 convolution of an open image, then SiLU; a depthwise one, too."""
    nodes = [node("Conv", "x w", "a", "conv"), node("Sigmoid", "a", "s"), node("Mul", "a s", "b", "act"),
             node("Conv", "b v", "c", "depth", pads=[1, 1, 1, 1], group=48), node("Sigmoid", "c", "t"), node("Mul", "c t", "y", "out")]
    return Model(folder, nodes, [value("x", [2, 24, "h", "w"])], [value("y", None)],
                 {"w": floats(48, 24, 1, 1, scale=0.3), "v": floats(48, 1, 3, 3, scale=0.3)})


def gelu_of_rows(folder, rows="n"):
    nodes = [node("MatMul", "x w", "m", "up"), node("Mul", "m half", "q"), node("Erf", "q", "e"), node("Mul", "m e", "y")]
    return Model(folder, nodes, [value("x", [rows, 24])], [value("y", [rows, 96])],
                 {"w": floats(24, 96, scale=0.3), "half": np.float32(0.5)})


@pytest.mark.parametrize("march", cpu.levels())
def test_long_epilogue_is_a_loop(march, tmp_path):
    """Tiles of 6, 4, 2 and 1 rows by two vectors have 26 results; each size has the code of the error function for a row."""
    model = gelu_of_rows(tmp_path)
    flags = march, "-choose=up:tile=1x6x2"
    kernel = max(bodies(model, *flags).values(), key=len)
    assert kernel.count("= abs ") == 8, kernel
    straight = max(bodies(model, *flags, "-choose=up:epilogue.rows=0").values(), key=len)
    assert straight.count("\n") > 1.5 * kernel.count("\n")
    x = floats(33, 24)
    want = model.run([x], *flags, "-choose=up:epilogue.rows=0")[0]
    for n in range(34):
        assert np.array_equal(model.run([x[:n]], *flags)[0], want[:n]), n
    model.compare([floats(29, 24)], flags=((march,),))


@pytest.mark.parametrize("rows", [1, 2, 4, 5, 6])
def test_rows_of_a_trip_change_no_bit(rows, tmp_path):
    """With fixed rows the loop is there if it is asked for; whatever it takes at once, results are the same."""
    model, x = gelu_of_rows(tmp_path, 31), floats(31, 24)
    tile = "-march=x86-64-v3", "-choose=up:tile=1x6x2"
    assert re.search(r"epilogue.rows +0 ", model.dump("schedule", *tile))
    assert np.array_equal(model.run([x], *tile, f"-choose=up:epilogue.rows={rows}")[0], model.run([x], *tile)[0])


@pytest.mark.parametrize("march", cpu.levels())
def test_long_epilogue_of_an_image_is_a_loop(march, tmp_path):
    """Points that are numbered through, and those of rows with their taps."""
    model = silu(tmp_path)
    loop = "-choose=conv:epilogue.rows=0", "-choose=depth:epilogue.rows=0"
    assert sum(map(len, bodies(model, march).values())) < 0.8 * sum(map(len, bodies(model, march, *loop).values()))
    for h, w in ((1, 1), (3, 5), (7, 7), (2, 29), (9, 0)):
        x = floats(2, 24, h, w)
        assert np.array_equal(model.run([x], march)[0], model.run([x], march, *loop)[0]), (h, w)
    model.compare([floats(2, 24, 6, 11)], flags=((march,),))


@pytest.mark.parametrize("march", cpu.levels())
def test_lanes_stored_apart_are_a_loop(march, tmp_path):
    """The keys of an attention, turned: each lane is stored by itself. With 4 lanes that is short."""
    nodes = [node("MatMul", "x w", "m", "up"), node("Transpose", "m", "y", perm=[1, 0])]
    model = Model(tmp_path, nodes, [value("x", ["n", 24])], [value("y", [96, "n"])], {"w": floats(24, 96, scale=0.3)})
    flags = march, "-choose=up:tile=1x6x2"
    kernel = max(bodies(model, *flags).values(), key=len)
    assert (kernel.count(" stores ") == 8) == ("v2" not in march), kernel
    for n in (0, 1, 2, 7, 13, 20):
        x = floats(n, 24)
        assert np.array_equal(model.run([x], *flags)[0], model.run([x], *flags, "-choose=up:epilogue.rows=0")[0]), n
    model.compare([floats(17, 24)], flags=((march,),))


def test_masks_are_made_once(tmp_path):
    """The mask of what is left of a row of an open map, and the two of every second element: no step of the sums makes them again."""
    model = Model(tmp_path, [node("Conv", "x w", "y", strides=[2, 2], pads=[1] * 4, group=3)], [value("x", ["n", 24, "h", "w"])],
                  [value("y", None)], {"w": floats(24, 8, 3, 3, scale=0.1)})
    done = mcc(model.path, "-q", "-march=x86-64-v4", "-S", "-o", tmp_path / "net.s")
    assert done.returncode == 0, done.stderr
    blocks = re.split(r"^\.LBB\S+:", (tmp_path / "net.s").read_text(), flags=re.M)
    steps = [b for b in blocks if "vfmadd" in b]
    assert steps and all("{z}" in b for b in steps)    # masked loads
    assert not [b for b in steps if re.search(r"\tvpcmp|\tvpmovm2|\tvpmov\w2m|\tkunpck", b)]
    for h, w in ((1, 1), (3, 5), (6, 33), (9, 64), (5, 70)):
        model.compare([floats(2, 24, h, w)], flags=("-O2", ("-O2", "-march=x86-64-v3")))

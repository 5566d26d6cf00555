"""Records of kernels as text: -print-after=schedule writes what --schedules reads, and any field may be changed within its limits."""
import random
import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from support.artifact import Artifact
from support.tool import mcc, result, save, value

CPU = "-march=x86-64-v3"
FIELD = r"  [a-z.0-9]+ "


def network(path):
    """Winograd, a strided convolution, a depthwise one, a product with few rows, a Softmax."""
    rng = np.random.default_rng(3)
    weights = {"w0": (32, 16, 3, 3), "w1": (48, 32, 3, 3), "w2": (48, 1, 3, 3), "w3": (48, 2000), "w4": (2000, 40)}
    nodes = [helper.make_node("Conv", ["x", "w0"], ["a"], "wino", pads=[1] * 4),
             helper.make_node("Conv", ["a", "w1"], ["b"], "strided", pads=[1] * 4, strides=[2, 2]),
             helper.make_node("Conv", ["b", "w2"], ["c"], "depth", pads=[1] * 4, group=48),
             helper.make_node("GlobalAveragePool", ["c"], ["d"], "mean"), helper.make_node("Flatten", ["d"], ["e"]),
             helper.make_node("Gemm", ["e", "w3"], ["f"], "up"), helper.make_node("MatMul", ["f", "w4"], ["g"], "down"),
             helper.make_node("Softmax", ["g"], ["y"], "soft")]
    arrays = {k: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for k, s in weights.items()}
    return save(path, nodes, [value("x", [3, 16, 20, 20])], [value("y", [3, 40])], arrays)


def records(model, *flags):
    done = mcc(model, CPU, "-stop-after=schedule", "-o", "-", *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def with_loops(record, change):
    """The record with what change makes of the (dim, step) of its loops."""
    dims, steps = ([int(n) for n in re.findall(rf"^  {name}\.\d+ +(\d+)", record, re.M)] for name in ("loop", "step"))
    loops = change(list(zip(dims, steps)))
    lines = [f"  loops {len(loops)}", *(f"  {name}.{i} {n}" for i, loop in enumerate(loops) for name, n in zip(("loop", "step"), loop))]
    return "\n".join([l for l in record.split("\n") if not re.match(r"  (loops|loop\.|step\.)", l)] + lines * bool(dims))


def answer(so):
    x = np.random.default_rng(5).standard_normal((3, 16, 20, 20)).astype(np.float32)
    with Artifact(so) as a:
        return a.run([x])[0]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return network(tmp_path_factory.mktemp("schedules") / "net.onnx")


def test_what_is_printed_reads_back(model, tmp_path):
    text = records(model)
    assert {"map", "tiled", "winograd"} <= set(re.findall(r"^schedule k\d+ .*: (\w+)$", text, re.M))
    (tmp_path / "all.txt").write_text(text)
    assert records(model, f"--schedules={tmp_path / 'all.txt'}") == text
    printed = mcc(model, CPU, "-print-after=schedule", "-o", tmp_path / "printed.so").stderr
    assert printed.startswith("// after schedule\n")
    (tmp_path / "all.txt").write_text(printed)
    assert records(model, f"--schedules={tmp_path / 'all.txt'}") == text
    for name, flags in (("plain", ()), ("told", (f"--schedules={tmp_path / 'all.txt'}",))):
        assert mcc(model, CPU, *flags, "-S", "-o", tmp_path / f"{name}.s").returncode == 0     # a library notes its options
    assert (tmp_path / "plain.s").read_bytes() == (tmp_path / "told.s").read_bytes()


def test_attention_reads_back(tmp_path):
    rng = np.random.default_rng(0)
    model = save(tmp_path / "a.onnx", *attention())
    feeds = [rng.standard_normal(s).astype(np.float32) for s in ((2, 70, 32), (2, 32, 90), (2, 90, 24))]
    text = records(model)
    assert "attention" in text
    told = re.sub(r"(span +)0 ", r"\g<1>48 ", re.sub(r"(rows +)\d+ ", r"\g<1>1 ", text, count=1))
    (tmp_path / "told.txt").write_text(told)
    outputs = []
    for flags in ((), (f"--schedules={tmp_path / 'told.txt'}",)):
        assert mcc(model, CPU, *flags, "-o", tmp_path / "a.so").returncode == 0
        with Artifact(tmp_path / "a.so") as a:
            outputs.append(a.run(feeds)[0])
    assert told != text and np.allclose(*outputs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_fields_may_change(model, tmp_path, seed):
    """A few fields at random: refused with the line and a reason, or the same result."""
    rng = random.Random(seed)
    lines = records(model).splitlines()
    assert mcc(model, CPU, "-o", tmp_path / "want.so").returncode == 0
    want, taken = answer(tmp_path / "want.so"), 0
    places = [i for i, l in enumerate(lines) if re.match(FIELD, l) and not re.match(r"  (lanes|tile\.[ab] |tile.flat|winograd)", l)]
    for _ in range(10):
        told, i = list(lines), rng.choice(places)
        name, old = told[i].split()[:2]
        told[i] = f"  {name} {rng.choice([0, 1, 2, 3, 4, 5, 6, 8, 16, 64, int(old) * 2, int(old) // 2])}"
        (tmp_path / "told.txt").write_text("\n".join(told))
        done = mcc(model, CPU, f"--schedules={tmp_path / 'told.txt'}", "-o", tmp_path / "got.so")
        assert done.returncode in (0, 2), (told[i], done.stderr)
        if done.returncode:
            assert re.search(r"told\.txt:\d+: ", done.stderr), done.stderr
            continue
        taken += 1
        assert np.allclose(answer(tmp_path / "got.so"), want, rtol=1e-4, atol=1e-6), told[i]
    assert taken


def maps():
    """Maps in order, turned by squares, of narrow elements, with rows, of open size."""
    nodes = [helper.make_node("Transpose", ["x"], ["t"], "turn", perm=[0, 2, 1]), helper.make_node("Add", ["t", "t"], ["a"], "twice"),
             helper.make_node("Relu", ["x"], ["b"], "relu"), helper.make_node("Cast", ["b"], ["c"], "narrow", to=TensorProto.UINT8),
             helper.make_node("Softmax", ["a"], ["d"], "soft"), helper.make_node("Tanh", ["z"], ["e"], "open")]
    return (nodes, [value("x", [3, 40, 36]), value("z", ["n", 21])],
            [value("a", [3, 36, 40]), value("c", [3, 40, 36], TensorProto.UINT8), value("d", [3, 36, 40]), value("e", ["n", 21])], {})


def scans():
    nodes = [helper.make_node("CumSum", ["x", "axis"], ["a"], "sums"), helper.make_node("Relu", ["a"], ["y"], "relu")]
    return nodes, [value("x", [6, 30])], [value("a", [6, 30]), value("y", [6, 30])], {"axis": np.int64(1)}


def scatters():
    nodes = [helper.make_node("ScatterElements", ["x", "at", "new"], ["y"], "scatter", axis=1)]
    rng = np.random.default_rng(1)
    return (nodes, [value("x", [5, 20])], [value("y", [5, 20])],
            {"at": rng.permuted(np.tile(np.arange(20), (5, 1)), axis=1)[:, :7].astype(np.int64),
             "new": rng.standard_normal((5, 7)).astype(np.float32)})


def halos():
    rng = np.random.default_rng(2)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], "one"), helper.make_node("Conv", ["a", "u"], ["y"], "two", pads=[1] * 4, strides=[2, 2])]
    return (nodes, [value("x", [2, 8, 12, 12])], [value("y", [2, 24, 6, 6])],
            {"w": rng.standard_normal((20, 8, 1, 1)).astype(np.float32), "u": rng.standard_normal((24, 20, 3, 3)).astype(np.float32)})


def contractions():
    """Taps of a row together, 1 x 1 over blocks of channels, a staged operand, a pool, sums along memory."""
    rng = np.random.default_rng(3)
    shapes = {"w0": (8, 8, 3, 3), "w1": (48, 8, 1, 1), "w2": (32, 48, 1, 1)}
    arrays = {k: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for k, s in shapes.items()}
    nodes = [helper.make_node("Conv", ["x", "w0"], ["a"], "row", pads=[1] * 4, strides=[2, 2]), helper.make_node("Conv", ["a", "w1"], ["b"], "wide"),
             helper.make_node("Sigmoid", ["b"], ["s"], "gate"), helper.make_node("Mul", ["b", "s"], ["c"], "swish"),
             helper.make_node("Conv", ["c", "w2"], ["d"], "narrow"),
             helper.make_node("MaxPool", ["d"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("ReduceMax", ["x"], ["z"], "most", axes=[2, 3])]
    return nodes, [value("x", [2, 8, 24, 40])], [value("y", [2, 32, 6, 10]), value("z", [2, 8, 1, 1])], arrays


def attention():
    nodes = [helper.make_node("MatMul", ["q", "k"], ["s"], "scores"), helper.make_node("Softmax", ["s"], ["p"], "soft"),
             helper.make_node("MatMul", ["p", "v"], ["y"], "values")]
    return nodes, [value("q", [2, 70, 32]), value("k", [2, 32, 90]), value("v", [2, 90, 24])], [value("y", [2, 70, 24])], {}


KINDS = {"tiled": contractions, "attention": attention, "map": maps, "scan": scans, "scatter": scatters, "halo": halos}


def run(so, feeds):
    with Artifact(so) as a:
        return a.run(feeds)


def feeds_of(inputs):
    shapes = [[d.dim_value or 5 for d in i.type.tensor_type.shape.dim] for i in inputs]
    return [np.random.default_rng(6).standard_normal(s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("kind, cpu", [*((kind, "x86-64-v3") for kind in KINDS), ("map", "x86-64-v2")])
def test_each_kind(tmp_path, kind, cpu):
    """Its records read back, and any field may change: refused with a line and a reason, or the same results."""
    nodes, inputs, outputs, arrays = KINDS[kind]()
    model, told = save(tmp_path / "net.onnx", nodes, inputs, outputs, arrays), tmp_path / "told.txt"
    done = mcc(model, f"-march={cpu}", "-stop-after=schedule", "-o", "-")
    assert f": {kind}\n" in done.stdout, done.stderr
    told.write_text(done.stdout)
    assert mcc(model, f"-march={cpu}", f"--schedules={told}", "-stop-after=schedule", "-o", "-").stdout == done.stdout
    assert mcc(model, f"-march={cpu}", "-o", tmp_path / "want.so").returncode == 0
    feeds, rng, taken = feeds_of(inputs), random.Random(kind + cpu), 0
    want = run(tmp_path / "want.so", feeds)
    records = [r.splitlines() for r in done.stdout.split("\n\n") if f": {kind}\n" in r]
    for _ in range({"map": 12, "tiled": 12, "attention": 8, "scan": 8}.get(kind, 4)):
        record = list(rng.choice(records))
        for i in rng.choices([i for i, l in enumerate(record) if re.match(FIELD, l)], k=1 + (rng.random() < 0.3)):
            name, old = record[i].split()[:2]
            record[i] = f"  {name} {rng.choice([-1, 0, 1, 2, 4, 8, 16, 3, int(old) * 2, int(old) + 1])}"
        if rng.random() < 0.5:
            record = with_loops("\n".join(record), lambda loops: rng.sample(loops, len(loops))).split("\n")
        told.write_text("\n".join(record))
        done = mcc(model, f"-march={cpu}", f"--schedules={told}", "-o", tmp_path / "got.so")
        assert done.returncode in (0, 2), (record, done.stderr)
        if done.returncode:
            assert re.search(r"told\.txt:\d+: ", done.stderr), done.stderr
            continue
        taken += 1
        for a, b in zip(run(tmp_path / "got.so", feeds), want):
            assert np.allclose(a, b, rtol=1e-4, atol=1e-6), record
    assert taken


def head_of(model, node, *flags):
    return re.search(rf'^(schedule k\d+ "{node}" \S+): \w+$', records(model, *flags), re.M)[1]


@pytest.mark.parametrize("node, kind", [("wino", "tiled"), ("wino", "map"), ("strided", "map"), ("depth", "map"), ("mean", "map"), ("down", "map"),
                                        *(("wino", f"winograd\n  winograd.m {m}") for m in (2, 4, 6))])
def test_another_kind(model, tmp_path, node, kind):
    """A kernel may be computed in another way: its own fields then are what the cost model says of that, and read back."""
    told = tmp_path / "told.txt"
    told.write_text(f"{head_of(model, node)}: {kind}\n")
    got = records(model, f"--schedules={told}")
    assert f"{head_of(model, node)}: {kind.split()[0]}\n" in got and all(l.strip() in re.sub(" +", " ", got) for l in kind.split("\n")[1:])
    assert mcc(model, CPU, "-o", tmp_path / "want.so").returncode == 0
    done = mcc(model, CPU, f"--schedules={told}", "-o", tmp_path / "got.so")
    assert done.returncode == 0, done.stderr
    assert np.allclose(answer(tmp_path / "got.so"), answer(tmp_path / "want.so"), rtol=1e-4, atol=1e-6)
    assert (tmp_path / "got.so").read_bytes() != (tmp_path / "want.so").read_bytes() or "winograd" in kind
    told.write_text(got)
    assert records(model, f"--schedules={told}") == got


def test_winograd_where_nobody_planned_it(model, tmp_path):
    """Neither the halo nor anything else is made for whole tiles."""
    told, off = tmp_path / "told.txt", "--choose=wino:winograd=off"
    head = head_of(model, "wino", off)
    assert f"{head}: tiled\n" in records(model, off)
    assert mcc(model, CPU, off, "-o", tmp_path / "want.so").returncode == 0
    for field in ("", "  winograd.m 2\n", "  winograd.m 6\n", "  winograd.m 4\n  chunk 8\n  tile.tiles 4\n  tile.vectors 2\n"):
        told.write_text(f"{head}: winograd\n{field}")
        assert mcc(model, CPU, off, f"--schedules={told}", "-o", tmp_path / "got.so").returncode == 0
        assert np.allclose(answer(tmp_path / "got.so"), answer(tmp_path / "want.so"), rtol=1e-4, atol=1e-5)


def test_slices_of_weights(model, tmp_path):
    """Transformed weights all at once, by slices of input channels, with prefetches or without: the same results."""
    told, outputs = tmp_path / "told.txt", []
    head = re.search(r"^schedule .*: winograd\n", records(model), re.M)[0]
    for fields in ("", "  resident 1\n", "  resident 0\n  slice 1\n  prefetch.taps 2\n", "  resident 0\n  slice 2\n  prefetch.taps 0\n"):
        told.write_text(head + fields)
        assert mcc(model, CPU, f"--schedules={told}", "-o", tmp_path / "a.so").returncode == 0
        outputs.append(answer(tmp_path / "a.so"))
    assert all(np.allclose(o, outputs[0], rtol=1e-4, atol=1e-6) for o in outputs)


def test_uneven_columns(model, tmp_path):
    """A register tile whose vectors do not divide those of the output channels: tiles of two sizes, none beyond the end."""
    told, outputs = tmp_path / "told.txt", []
    head = re.search(r"^schedule .*: winograd\n", records(model), re.M)[0]
    uneven = ("tile.tiles 4", "chunk 8", "tile.vectors 3", "group 4")
    for fields in ((), uneven, (*uneven, "resident 1", "slice 2")):
        told.write_text(head + "".join(f"  {f}\n" for f in fields))
        assert mcc(model, CPU, f"--schedules={told}", "-o", tmp_path / "a.so").returncode == 0
        outputs.append(answer(tmp_path / "a.so"))
    assert all(np.allclose(o, outputs[0], rtol=1e-4, atol=1e-6) for o in outputs)
    counts = set()
    for vectors in (2, 3):
        told.write_text(head + "".join(f"  {f}\n" for f in uneven) + f"  tile.vectors {vectors}\n")
        counts.add(mcc(model, CPU, f"--schedules={told}", "-stop-after=emit", "-o", "-").stdout.count("= fma "))
    assert len(counts) == 1      # 4 vectors are 2 and 2 either way


def test_strips(tmp_path):
    """A staged contraction fills any strip by tiles of any width that the registers hold."""
    rng = np.random.default_rng(3)
    nodes = [helper.make_node("Conv", ["x", "w0"], ["a"], "wide"), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Conv", ["b", "w1"], ["c"], "depth", pads=[1] * 4, group=40), helper.make_node("Relu", ["c"], ["d"]),
             helper.make_node("Conv", ["d", "w2"], ["y"], "narrow")]
    shapes = {"w0": (40, 8, 1, 1), "w1": (40, 1, 3, 3), "w2": (8, 40, 1, 1)}
    arrays = {k: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for k, s in shapes.items()}
    inputs = [value("x", [1, 8, 50, 53])]
    model, told = save(tmp_path / "net.onnx", nodes, inputs, [value("y", [1, 8, 50, 53])], arrays), tmp_path / "told.txt"
    head, feeds = head_of(model, "depth"), feeds_of(inputs)
    assert mcc(model, CPU, "-o", tmp_path / "want.so").returncode == 0
    want = run(tmp_path / "want.so", feeds)[0]
    for i, fields in enumerate((("staged.columns 1",), ("staged.columns 5", "staged.tiles 13"),
                               ("tile.vectors 1", "staged.columns 12", "staged.tiles 1", "tile.columns 3"))):
        told.write_text(f"{head}: tiled\n" + "".join(f"  {f}\n" for f in fields))
        done = mcc(model, CPU, f"--schedules={told}", "-o", tmp_path / f"got{i}.so")
        assert done.returncode == 0, done.stderr
        assert np.allclose(run(tmp_path / f"got{i}.so", feeds)[0], want, rtol=1e-4, atol=1e-6), fields
    for line, why in (("tiled\n  staged.columns 0", "they are points of a row"), ("tiled\n  staged.columns 28", "that the registers hold"),
                      ("tiled\n  tile.vectors 3\n  tile.columns 2", "a staged piece is not a part of a block of 16 channels"),
                      ("map", "may be of kind tiled, not 'map'")):
        told.write_text(f"{head}: {line}\n")
        done = mcc(model, CPU, f"--schedules={told}", "-o", tmp_path / "no.so")
        assert done.returncode == 2 and re.search(rf"told\.txt:\d+: .*{why}", done.stderr), done.stderr


def test_vectors_over_two_loops(tmp_path):
    """An image of few channels: points side by side, of the last loop but one."""
    nodes = [helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])]
    inputs = [value("x", [1, 3, 20, 37])]
    model, told = save(tmp_path / "net.onnx", nodes, inputs, [value("y", [1, 20, 37, 3])], {}), tmp_path / "told.txt"
    text, feeds = records(model), feeds_of(inputs)
    assert re.search(r"step.2 +8 .*\n  step.3 +3 ", text)
    for steps, ok in (((8, 3), True), ((2, 3), True), ((1, 4), True), ((1, 2), True), ((16, 3), False), ((3, 3), False), ((8, 2), False)):
        told.write_text(re.sub(r"(step.2 +)8( .*\n  step.3 +)3", rf"\g<1>{steps[0]}\g<2>{steps[1]}", text))
        done = mcc(model, CPU, f"--schedules={told}", "-o", tmp_path / "got.so")
        assert done.returncode == (0 if ok else 2), (steps, done.stderr)
        assert ok or "a vector holds points of the last loop but one" in done.stderr
        if ok:
            assert np.array_equal(run(tmp_path / "got.so", feeds)[0], feeds[0].transpose(0, 2, 3, 1))


def test_transposed(tmp_path):
    """Tiles of another size transpose the same operand; those that it does not have are refused."""
    nodes, inputs, outputs, arrays = maps()
    model, told = save(tmp_path / "net.onnx", nodes, inputs, outputs, arrays), tmp_path / "told.txt"
    text = records(model)
    tiles = [r for r in text.split("\n\n") if "  loops             5 " in r]
    assert tiles
    for lanes, columns, group, ok in ((8, 4, 16, True), (4, 4, 8, True), (8, 4, 64, True), (8, 4, 8, True), (8, 16, 16, False), (6, 4, 12, False)):
        told.write_text("\n\n".join(with_loops(r, lambda l: [l[0], (l[1][0], group), (l[2][0], 4 * columns), (l[3][0], lanes), (l[4][0], columns)])
                                    for r in tiles))
        done = mcc(model, CPU, f"--schedules={told}", "-o", tmp_path / "got.so")
        assert done.returncode == (0 if ok else 2), (lanes, columns, group, done.stderr)
        assert ok or "no operand can be transposed in such tiles" in done.stderr


def test_groups_of_tiles_are_estimated(tmp_path):
    """A parallel index of more transposed tiles takes longer: the runtime shares work by that."""
    nodes, ns = [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], []
    model, told = save(tmp_path / "net.onnx", nodes, [value("x", [512, 512])], [value("y", [512, 512])], {}), tmp_path / "told.txt"
    text = re.sub(r"  (estimate|parallel) .*\n", "", records(model).rstrip("\n") + "\n") + "  parallel 1\n"
    for n in (1, 2):
        told.write_text(with_loops(text, lambda loops, n=n: [(loops[0][0], n * loops[0][1]), *loops[1:]]))
        ns.append(int(re.search(r"estimate +(\d+)", records(model, f"--schedules={told}"))[1]))
    assert ns[1] > 3 * ns[0] / 2


def rows():
    """What has rows to split: products of known and of open size, of batches, few rows of a long one, convolutions by rows, by points, with taps."""
    rng = np.random.default_rng(6)
    weights = {"w": (300, 40), "l": (5000, 40), "t": (24, 16, 3, 3), "f": (24, 16, 1, 1), "k": (24, 3000, 1, 1)}
    arrays = {k: rng.standard_normal(s).astype(np.float32) for k, s in weights.items()}
    nodes = [helper.make_node("MatMul", ["a", "w"], ["ya"], "known"), helper.make_node("MatMul", ["b", "w"], ["yb"], "open"),
             helper.make_node("MatMul", ["c", "l"], ["yc"], "long"), helper.make_node("Conv", ["d", "t"], ["yd"], "strided", strides=[2, 2]),
             helper.make_node("Conv", ["d", "f"], ["ye"], "points"), helper.make_node("Conv", ["e", "k"], ["yf"], "channels"),
             helper.make_node("MatMul", ["g", "w"], ["yg"], "batches")]
    inputs = [value("a", [53, 300]), value("b", ["n", 300]), value("c", [30, 5000]), value("d", [1, 16, 27, 27]), value("e", [1, 3000, 5, 5]),
              value("g", [3, 41, 300])]
    return nodes, inputs, [value(f"y{k}", None) for k in "abcdefg"], arrays


def test_blocks_need_their_order(tmp_path):
    """Blocks of a long sum, and lines outside of blocks of vectors: refused, not set right silently."""
    model, told = save(tmp_path / "net.onnx", *rows()), tmp_path / "told.txt"
    told.write_text(re.sub(r"(lines.last +)1((?:.*\n)(?:  (?!reduce.block).*\n)*  reduce.block +[1-9])", r"\g<1>0\2", records(model), count=1))
    done = mcc(model, CPU, f"--schedules={told}", "-o", tmp_path / "a.so")
    assert done.returncode == 2 and re.search(r"reduce.block is \d+: blocks need lines.last 1", done.stderr), done.stderr


def test_parts_of_rows(tmp_path):
    """A part for each tile, parts that do not divide them, one of all: the same bits on any number of threads."""
    model, rng = save(tmp_path / "net.onnx", *rows()), np.random.default_rng(7)
    feeds = [rng.standard_normal(s).astype(np.float32) for s in ((53, 300), (37, 300), (30, 5000), (1, 16, 27, 27), (1, 3000, 5, 5), (3, 41, 300))]
    text, outputs = records(model), []
    assert len(re.findall(r"^  split +[1-9]", text, re.M)) >= 2 and re.search(r"reduce.block +[1-9]\d*(.*\n)  split +[1-9]", text)
    for i, parts in enumerate((None, 0, 1, 2, 3, 1 << 20)):
        (tmp_path / "told.txt").write_text(text if parts is None else re.sub(r"^  split +\d+", f"  split {parts}", text, flags=re.M))
        so = tmp_path / f"{i}.so"
        assert mcc(model, CPU, f"--schedules={tmp_path / 'told.txt'}", "-o", so).returncode == 0
        for threads in (1, 2, 8):
            with Artifact(so, threads=threads) as a:
                outputs.append(a.run(feeds))
    for got in outputs:
        assert all(np.array_equal(g, w) for g, w in zip(got, outputs[0]))
    want = [feeds[0] @ rows()[3]["w"], feeds[1] @ rows()[3]["w"], feeds[2] @ rows()[3]["l"]]
    assert all(np.allclose(g, w, rtol=1e-3, atol=1e-3) for g, w in zip(outputs[0], want))


def with_parts(text, parts):
    """The loops that are split into parallel parts, by other numbers of steps."""
    def change(loops):
        inner = {dim: i for i, (dim, _) in enumerate(loops)}
        return [(dim, min(parts * loops[inner[dim]][1], 1 << 30) if inner[dim] > i else step) for i, (dim, step) in enumerate(loops)]
    return "\n\n".join(with_loops(r, change) for r in text.split("\n\n"))


def test_parts_of_maps(tmp_path):
    """Long maps of one row, of channel blocks and of rows with sums are shared in parts: the same bits, whatever their size."""
    nodes = [helper.make_node("Tanh", ["a"], ["ya"], "even"), helper.make_node("Tanh", ["b"], ["yb"], "odd"), helper.make_node("Exp", ["c"], ["yc"], "image"),
             helper.make_node("Softmax", ["d"], ["yd"], "row"), helper.make_node("Conv", ["e", "w"], ["f"], "conv", pads=[1] * 4),
             helper.make_node("Erf", ["f"], ["g"], "blocks"), helper.make_node("Concat", ["f", "g"], ["ye"], "both", axis=1)]
    shapes = [(1, 40000), (1, 50003), (1, 3, 300, 70), (1, 50257), (1, 8, 30, 30)]
    rng = np.random.default_rng(10)
    model = save(tmp_path / "net.onnx", nodes, [value(n, s) for n, s in zip("abcde", shapes)], [value(f"y{k}", None) for k in "abcde"],
                 {"w": rng.standard_normal((36, 8, 3, 3)).astype(np.float32)})
    feeds, text, outputs = [rng.standard_normal(s).astype(np.float32) for s in shapes], records(model), []
    assert with_parts(text, 1) != with_parts(text, 3)
    for i, parts in enumerate((None, 1, 3, 1 << 20)):
        (tmp_path / "told.txt").write_text(text if parts is None else with_parts(text, parts))
        assert mcc(model, CPU, f"--schedules={tmp_path / 'told.txt'}", "-o", tmp_path / f"{i}.so").returncode == 0
        for threads in (1, 2, 8):
            with Artifact(tmp_path / f"{i}.so", threads=threads) as a:
                outputs.append(a.run(feeds))
    for got in outputs:
        assert all(np.array_equal(g, w) for g, w in zip(got, outputs[0]))
    assert np.allclose(outputs[0][0], np.tanh(feeds[0]), atol=1e-5) and np.allclose(outputs[0][1], np.tanh(feeds[1]), atol=1e-5)
    assert abs(outputs[0][3].sum() - 1) < 1e-4


def test_a_single_row_has_narrow_blocks(tmp_path):
    """Blocks of two lines where there is one row, so that many threads have work; wider ones, if told, give the same bits."""
    weights = np.random.default_rng(8).standard_normal((1280, 1000)).astype(np.float32)
    model = save(tmp_path / "row.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"], "row")], [value("x", [1, 1280])], [value("y", [1, 1000])],
                 {"w": weights})
    outputs, bounds = [], []
    for i, (flags, vectors) in enumerate((((), 4), (("--choose=row:tile=1x1x7",), 7))):
        so = tmp_path / f"{i}.so"
        assert int(re.search(r"tile.vectors +(\d+)", records(model, *flags))[1]) == vectors
        assert mcc(model, CPU, *flags, "-o", so).returncode == 0
        total = result("inspect", so, "--threads=8,32")
        bounds.append([total["alone_ns"] / ns for ns in total["ns"]])
        with Artifact(so, threads=4) as a:
            outputs.append(a.run([np.ones((1, 1280), np.float32)])[0])
    assert np.array_equal(*outputs) and np.allclose(outputs[0], weights.sum(0), atol=1e-3)
    assert bounds[0][0] >= 6.5 and bounds[0][1] >= 20 > bounds[1][1], bounds


@pytest.mark.parametrize("length, dim", [(32, 1), (20000, -1)])
def test_short_rows_share_an_index(tmp_path, length, dim):
    """Rows of a few ns along memory: one parallel index goes through all of the last dim, and has the lanes along a row, not several rows."""
    node = helper.make_node("ReduceMax", ["x", "axes"], ["y"], "rows", keepdims=0)
    model = save(tmp_path / "m.onnx", [node], [value("x", ["n", 48, length])], [value("y", ["n", 48])], {"axes": np.array([-1])}, opset=18)
    text = records(model)
    assert re.findall(r"^  tile.a +(-?\d+)", text, re.M) == [str(dim)]
    (tmp_path / "two.txt").write_text(re.sub(r"(tile.columns +)1", r"\g<1>2", text))
    done = mcc(model, CPU, f"--schedules={tmp_path / 'two.txt'}", "-o", tmp_path / "two.so")
    assert done.returncode == 2 and "tile.columns" in done.stderr, done.stderr
    mcc(model, CPU, "-o", tmp_path / "m.so")
    x = np.random.default_rng(0).standard_normal((3, 48, length)).astype(np.float32)
    x[1, 5, 7], x[2, 3, 0] = np.nan, np.inf
    with Artifact(tmp_path / "m.so") as a:
        assert np.array_equal(a.run([x])[0], x.max(2), equal_nan=True)


def test_products_of_bytes_have_one_size_of_tile(tmp_path):
    """Bodies of bytes are long, so tiles divide points and channels where some do; others, if told, give the same bits."""
    rng = np.random.default_rng(9)
    one, zero, w = np.array(0.01, np.float32), np.uint8(3), rng.integers(-128, 128, (144, 24, 1, 1), dtype=np.int8)
    names = ["x", "s", "z", "w", "s", "zw", "sy", "z"]
    model = save(tmp_path / "bytes.onnx", [helper.make_node("QLinearConv", names, ["y"], "conv")], [value("x", [1, 24, 56, 56], TensorProto.UINT8)],
                 [value("y", [1, 144, 56, 56], TensorProto.UINT8)], {"w": w, "s": one, "z": zero, "zw": np.int8(0), "sy": np.array(0.02, np.float32)})
    text = mcc(model, "-march=x86-64-v4-vnni", "-stop-after=schedule", "-o", "-").stdout
    flat, columns, vectors = (int(re.search(rf"tile.{k} +(\d+)", text)[1]) for k in ("flat", "columns", "vectors"))
    assert flat and 3136 % columns == 0 and 9 % vectors == 0 and columns * vectors >= 8, (columns, vectors)
    x, results = rng.integers(0, 256, (1, 24, 56, 56), dtype=np.uint8), []
    for i, flags in enumerate(((), ("--choose=conv:tile=1x3x2",))):
        assert mcc(model, CPU, *flags, "-o", tmp_path / f"{i}.so").returncode == 0
        with Artifact(tmp_path / f"{i}.so") as a:
            results.append(a.run([x])[0])
    sums = np.einsum("oc,nchw->nohw", w[:, :, 0, 0].astype(np.int64), x.astype(np.int64) - 3)
    assert np.abs(results[0].astype(int) - np.clip(np.round(sums * 0.01 * 0.01 / 0.02) + 3, 0, 255)).max() <= 1
    assert np.array_equal(*results) and len(np.unique(results[0])) > 50


@pytest.mark.parametrize("text, why", [
    ("  tile.rows 2\n", "the first record comes after the field 'tile.rows 2'"),
    ("schedule k999 \"wino\" x86-64-v3: winograd\n", "the network has no kernel 'k999'"),
    ("schedule k0 \"nosuch\" x86-64-v3: tiled\n", "computes \"[^\"]*\" in this compilation, not"),
    ("HEAD: nosuch\n", "schedules have no kind 'nosuch'"),
    ("CPU: tiled\n", r"told\.txt:1: mcc has no CPU \(mcc -mcpu=help prints all\) 'x86-64-v9'"),
    ("HEAD: scatter\n", "the kernel's schedule may be of kind map, tiled, not 'scatter'"),
    ("HEAD: tiled\n  nosuch 1\n", "a schedule of kind tiled has no field 'nosuch'"),
    ("HEAD: tiled\n  tile.columns many\n", "tile.columns takes a number, not 'many'"),
    ("HEAD: tiled\n  tile.flat 2\n", "tile.flat is 2: 0 to 1 are possible"),
    ("HEAD: tiled\n  tile.columns 28\n  tile.vectors 8\n", "the tile"),
    ("HEAD: tiled\n  lanes 3\n", "lanes is 3: it follows from the layout, and is 8"),
    ("WINO: winograd\n  winograd.m 3\n", r"told\.txt:2: winograd.m is 2, 4 or 6, not '3'"),
    ("WINO: attention\n", "may be of kind map, tiled, winograd, not 'attention'"),
    ("HEAD: winograd\n", "may be of kind map, tiled, not 'winograd'"),
    ("MAP: tiled\n", "may be of kind map, not 'tiled'"),
    ("WINO: winograd\n  resident 1\n  prefetch.taps 3\n", "prefetch.taps is 3: U is not derived by slices"),
    ("HEAD: tiled\n  estimate -1\n", "told.txt:2: estimate is -1: it is at least 0"),
    ("HEAD: tiled\n  reduce.0.sums 3\n", "reduce.0.sums is 3: it is 1 where the reduction has no lanes"),
    ("HEAD: tiled\n  reduce.0.lanes 8\n", "reduce.0.lanes is 8: memory is not contiguous"),
    ("HEAD: tiled\n  reduce.0.row 1\n", "reduce.0.row is 1: the taps of a row do not share"),
    ("HEAD: tiled\n  reduce.0.unroll 0\n", "reduce.0.unroll is 0: 1 to 1024 are possible"),
    ("MEAN: tiled\n  prefetch.near 1\n", "prefetch.near is 1: it is of a stored second operand"),
    ("MEAN: tiled\n  split 2\n", "the tiles of this kernel can't be cut into parts"),
    ("HEAD: tiled\n  split -1\n", "split is -1: 0 to 1073741824 are possible"),
    ("HEAD: tiled\n  interleave 0\n", "interleave is 0: 1 to 32 are possible"),
    ("HEAD: tiled\n  interleave.least 0\n", "interleave.least is 0: 1 to "),
    ("HEAD: tiled\n  prefetch.staged 1\n", "prefetch.staged is 1: it is of an operand that is staged by points"),
    ("HEAD: tiled\n  staged.columns 4\n", "staged.columns is 4: they are points of a row of a staged contraction"),
    ("WINO: winograd\n  input.rows 9\n", "input.rows is 9: 1 to 8 are possible"),
    ("MAP: map\n  producer.0.lanes 12\n", "producer.0.lanes is 12: lanes are a power of two"),
    ("MAP: map\n  producer.7.lanes 8\n", r"told\.txt:2: there is no producer.7.lanes: the record has \d+ of it"),
    ("MAP: map\n  loop.9 1\n", r"told\.txt:2: there is no loop.9: the record has \d+ of it"),
    ("MAP: map\n  loop.0 7\n", "loops are over the dims of the result"),
    ("MAP: map\n  loops 1\n", "loops are over the dims of the result"),
    ("MAP: map\n  loops 3\n", "step.2 is 0: 1 to 1073741824 are possible"),
    ("MAP: map\n  loops 3\n  loop.2 1\n  step.2 3\n", "step.2 is 3: it divides the step of the loop of its dim around it"),
    ("MAP: map\n  step.0 2\n", "step.0 is 2: a vector holds points of the last loop but one"),
    ("MAP: map\n  step.1 12\n", "lanes are a power of two"),
    ("MAP: map\n  lanes.dim 7\n", "lanes.dim is 7: it is not a dim"),
    ("MAP: map\n  step.0 0\n", "step.0 is 0: 1 to "),
    ("MAP: map\n  parallel 9\n", "more parallel loops than there are"),
    ("x" * 600 + "\n", "the line is longer than 511 bytes"),
])
def test_what_does_not_fit_is_refused(model, tmp_path, text, why):
    head = re.search(r"^(schedule k\d+ \"strided\" x86-64-v3): tiled$", records(model), re.M)[1]
    soft, wino = (re.search(rf"^(schedule k\d+ .* x86-64-v3): {kind}$", records(model), re.M)[1] for kind in ("map", "winograd"))
    mean = re.search(r"^(schedule k\d+ \"mean\" x86-64-v3): tiled$", records(model), re.M)[1]
    for name, to in (("HEAD", head), ("CPU", head.replace("x86-64-v3", "x86-64-v9")), ("MAP", soft), ("WINO", wino), ("MEAN", mean)):
        text = text.replace(name, to)
    (tmp_path / "told.txt").write_text(text)
    done = mcc(model, CPU, f"--schedules={tmp_path / 'told.txt'}", "-o", tmp_path / "no.so")
    assert done.returncode == 2 and re.search(r"told\.txt:\d+: ", done.stderr) and re.search(why, done.stderr), done.stderr
    assert not (tmp_path / "no.so").exists()


def test_a_file_that_is_not_there(model, tmp_path):
    done = mcc(model, f"--schedules={tmp_path / 'no.txt'}", "-o", tmp_path / "no.so")
    assert done.returncode == 3 and "no.txt" in done.stderr


FORMS = {
    "one tap, points numbered through": (dict(x=[1, 16, 112, 112], w=(64, 16, 1, 1)), 64 * 16 * 112 * 112),
    "one tap, many channels": (dict(x=[1, 480, 14, 14], w=(112, 480, 1, 1)), 112 * 480 * 14 * 14),
    "strided": (dict(x=[1, 64, 56, 56], w=(128, 64, 3, 3), strides=[2, 2], pads=[1] * 4), 128 * 64 * 9 * 28 * 28),
    "first layer": (dict(x=[1, 3, 224, 224], w=(64, 3, 7, 7), strides=[2, 2], pads=[3] * 4), 64 * 3 * 49 * 112 * 112),
    "many images": (dict(x=[8, 64, 28, 28], w=(64, 64, 1, 1)), 8 * 64 * 64 * 28 * 28),
    "wide": (dict(x=[1, 512, 7, 7], w=(2048, 512, 1, 1)), 2048 * 512 * 49),
    "prime rows": (dict(x=[1, 32, 37, 41], w=(64, 32, 3, 1), strides=[2, 1]), 64 * 32 * 3 * 18 * 41),
}


@pytest.mark.parametrize("form", FORMS)
def test_estimates_are_of_one_index(tmp_path, form):
    """Threads share the work by these: a launch as a whole is within 0.7 and 8 times what multiplying and adding alone would take."""
    (spec, products), rng = FORMS[form], np.random.default_rng(1)
    w = rng.standard_normal(spec["w"]).astype(np.float32)
    attributes = {k: v for k, v in spec.items() if k in ("strides", "pads")}
    path = save(tmp_path / "n.onnx", [helper.make_node("Conv", ["x", "w"], ["y"], "c", **attributes)],
                [value("x", spec["x"])], [value("y", [None] * 4)], {"w": w})
    done = mcc(path, CPU, "-stop-after=emit", "-o", "-")
    assert done.returncode == 0, done.stderr
    program = done.stdout[done.stdout.index("\nprogram "):done.stdout.index("\nplan ")]
    constants = {n: int(v) for n, v in re.findall(r"^ *(%\d+) = const index (\d+)$", program, re.M)}
    launches = [constants[count] * int(ns) for count, ns in re.findall(r"launch @\S+\(.*\) count (%\d+) grain (\d+)", program)]
    peak = products / (2 * 8 * 3.0)      # ns: two multiply-adds of 8 lanes in each cycle of 1/3 ns
    assert 0.7 * peak < max(launches) < 8 * peak


def test_rows_that_threads_can_share(tmp_path):
    """111 rows in tiles of two would be one parallel index of half a millisecond: a tile that divides them is as good."""
    w = np.random.default_rng(1).standard_normal((64, 3, 3, 3)).astype(np.float32)
    path = save(tmp_path / "n.onnx", [helper.make_node("Conv", ["x", "w"], ["y"], "c", strides=[2, 2])],
                [value("x", [1, 3, 224, 224])], [value("y", [None] * 4)], {"w": w})
    for cpu in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        rows = re.search(r"tile.rows +(\d+)", mcc(path, f"-march={cpu}", "-stop-after=schedule", "-o", "-").stdout)
        assert 111 % int(rows[1]) == 0, cpu


def test_records_of_other_cpus(model, tmp_path):
    """Of CPUs that the code is not for: a warning with the names, and no change."""
    text = mcc(model, "-march=x86-64-v3,x86-64-v4,x86-64-v2", "-stop-after=schedule", "-o", "-").stdout
    told = tmp_path / "told.txt"
    told.write_text(text)
    done = mcc(model, CPU, f"--schedules={told}", "-stop-after=schedule", "-o", "-")
    n = len(re.findall("^schedule .* x86-64-v4: ", text, re.M))
    assert done.returncode == 0 and n > 1 and done.stdout == records(model)
    for cpu in ("x86-64-v4", "x86-64-v2"):
        assert re.search(rf"told.txt:\d+: the {n} records for {cpu} are not used: the code is for x86-64-v3 .*\[-Wschedules\]", done.stderr), done.stderr
    assert done.stderr.count("warning") == 2
    told.write_text("".join(re.findall("^schedule k0 .* x86-64-v4: .*\n", text, re.M)))
    done = mcc(model, CPU, f"--schedules={told}", "-o", tmp_path / "a.so")
    assert done.returncode == 0 and "told.txt:1: the record for x86-64-v4 is not used" in done.stderr
    assert mcc(model, CPU, f"--schedules={told}", "-Werror", "-o", tmp_path / "a.so").returncode == 1

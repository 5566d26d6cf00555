"""Kernels with a second version for sizes within a range: every size about its ends computes what the one version does."""
import re

import numpy as np
import pytest

from support.artifact import Artifact
from support.compare import Model, floats, node
from support.tool import mcc, result, value

CPU = "-march=x86-64-v3"


def product(folder, rows="n"):
    return Model(folder, [node("MatMul", "x w", "p", "p"), node("Relu", "p", "y")], [value("x", [rows, 72])], [value("y", [rows, 80])],
                 {"w": floats(72, 80, seed=1)})


def attention(folder):
    nodes = [node("Transpose", "k", "t", perm=[0, 1, 3, 2]), node("MatMul", "q t", "s"), node("Softmax", "s", "p", axis=-1),
             node("MatMul", "p v", "o", "o")]
    return Model(folder, nodes, [value(x, ["b", 2, "n", 24]) for x in "qkv"], [value("o", ["b", 2, "n", 24])])


def recurrent(folder, op, gates, units=20, **more):
    shapes = {"w": (gates * units, 12), "r": (gates * units, units), "b": (2 * gates * units,)}
    arrays = {k: floats(1, *s, seed=i, scale=0.3) for i, (k, s) in enumerate(shapes.items())}
    return Model(folder, [node(op, "x w r b", "y h", "y", hidden_size=units, **more)], [value("x", ["t", "b", 12])],
                 [value("y", ["t", 1, "b", units]), value("h", [1, "b", units])], arrays)


def versions(model, *flags):
    """{kernel: (least, most)} of those that have one."""
    found = {}
    for record in model.dump("schedule", CPU, *flags).split("\n\n"):
        ends = re.findall(r"^  version.(?:least|most) +(\d+)", record, re.M)
        found |= {record.split()[1]: tuple(map(int, ends))} if ends else {}
    return found


@pytest.mark.parametrize("most", [1, 4, 5, 16])
def test_rows_about_the_end_of_a_range(tmp_path, most):
    """0, 1, and all about the end: the bits of the kernel without a version, whatever the threads."""
    model, x = product(tmp_path), floats(40, 72, seed=2)
    flag = f"--choose=p:version={most}"
    assert set(versions(model, flag).values()) == {(1, most)} and not versions(model, "--choose=p:version=off")
    for n in {0, 1, 2, most - 1, most, most + 1, 2 * most, 40}:
        want = model.run([x[:n]], "--choose=p:version=off")[0]
        np.testing.assert_array_equal(model.run([x[:n]], flag)[0], want)
        with Artifact(model.compile(flag), threads=3) as a:
            np.testing.assert_array_equal(a.call([x[:n]])[0], want)


def test_ranges_of_indices(tmp_path):
    """At one element all indices are 0, which says nothing of the kernel for other sizes."""
    nodes = [node("Shape", "x", "s", start=1), node("Div", "s two", "h"), node("Add", "h one", "o"), node("Concat", "four o", "sizes", axis=0),
             node("Resize", "x _ _ sizes", "y", "resize", mode="nearest", nearest_mode="floor")]
    model = Model(tmp_path, nodes, [value("x", [4, "n"])], [value("y", [4, "m"])],
                  {name: np.array([k]) for name, k in (("two", 2), ("one", 1), ("four", 4))}, 19)
    for n in (1, 2, 3, 7, 16, 33):
        model.compare([floats(4, n)], flags=["--choose=resize:version=1"])


def test_two_sizes(tmp_path):
    """The version is for the size of one of two symbols: heads of b batches and n positions."""
    model = attention(tmp_path)
    for flag in ("--choose=o:version=off", "--choose=o:version=2", "--choose=o:version=1"):
        for b, n in ((1, 1), (2, 1), (1, 9), (2, 33), (3, 33), (0, 3), (3, 0)):
            feeds = [floats(b, 2, n, 24, seed=s) for s in (1, 2, 3)]
            model.compare(feeds, flags=[flag]) if b * n else model.run(feeds, flag)
    text = model.dump("schedule", CPU)
    record = re.sub(r"^  version.*\n", "", text.split("\n\n")[0], flags=re.M)
    for size in (1, 2):
        (tmp_path / f"{size}.txt").write_text(f"{record}\n  version.size {size}\n  version.least 1\n  version.most 5\n")
        for b, n in ((5, 6), (6, 5), (5, 5), (6, 6), (1, 1)):
            model.compare([floats(b, 2, n, 24, seed=s) for s in (1, 2, 3)], flags=[(CPU, f"--schedules={tmp_path}/{size}.txt")])


@pytest.mark.parametrize("op, gates, more", [("LSTM", 4, {}), ("GRU", 3, {"linear_before_reset": 1}), ("RNN", 1, {})])
def test_inside_of_the_kernel_of_a_loop(tmp_path, op, gates, more):
    """The test stands in the loop, whose kernel has both versions."""
    model = recurrent(tmp_path, op, gates, **more)
    assert versions(model, "--choose=y:version=3")
    for b in (0, 1, 2, 3, 4, 9):
        for t in (1, 5):
            x = floats(t, b, 12, seed=4)
            want = model.run([x], "--choose=y:version=off")
            for flag in ("--choose=y:version=3", "--choose=y:version=1", "-O2"):
                for one, other in zip(model.run([x], flag), want):
                    np.testing.assert_array_equal(one, other)


def test_all_variants(tmp_path):
    """An artifact for every CPU level has versions in each."""
    model, x = product(tmp_path), floats(9, 72, seed=2)
    assert mcc(model.path, "-o", tmp_path / "fat.so", "--choose=p:version=4").returncode == 0
    want = np.maximum(x @ floats(72, 80, seed=1), 0)
    with Artifact(tmp_path / "fat.so") as a:
        for n in (1, 4, 5, 9):
            np.testing.assert_allclose(a.call([x[:n]])[0], want[:n], rtol=1e-4, atol=1e-4)


def test_a_version_is_no_kernel_more(tmp_path):
    """What a run computes is counted once."""
    model = product(tmp_path)
    counted = []
    for version in ("4", "off"):
        rows = result("inspect", model.compile(f"--choose=p:version={version}"))["kernels"]
        counted.append([(k["node"], k["kernels"], k["flops"], k["bytes"]) for k in rows])
    assert counted[0] == counted[1]


def test_cost_model(tmp_path):
    """One row of a recurrent layer waits for two sums in the tile for many. The code of versions is a small part of all."""
    model, cpu = recurrent(tmp_path, "LSTM", 4, units=64), "-march=x86-64-v4"
    text = model.dump("schedule", cpu)
    assert re.findall(r"  version.(?:least|most) +(\d+)", text) == ["1", "1"]
    code = [sum(map(len, re.findall(r"^kernel .*?^}", model.dump("emit", cpu, *more), re.M | re.S))) for more in ((), ("--choose=y:version=off",))]
    assert code[1] < code[0] < 1.3 * code[1], code
    assert not versions(product(tmp_path, 8)) and not versions(product(tmp_path), "-O1")


def test_records(tmp_path):
    """What prints reads back; the version's own record may be changed; what is impossible is refused by its field."""
    model = product(tmp_path)
    text = model.dump("schedule", CPU, "--choose=p:version=4")
    assert re.search(r'^schedule k0 "\w+" x86-64-v3 version: tiled$', text, re.M)
    (tmp_path / "all.txt").write_text(text)
    assert model.dump("schedule", CPU, f"--schedules={tmp_path / 'all.txt'}") == text
    head, second = text.split("\n\n")[:2]
    narrow = re.sub(r"(tile.columns +).", r"\g<1>2", second)
    (tmp_path / "all.txt").write_text(f"{head}\n\n{narrow}\n")
    assert re.search(r"version: tiled\n(.*\n)*?  tile.columns +2 ", model.dump("schedule", CPU, f"--schedules={tmp_path / 'all.txt'}"))
    x = floats(5, 72, seed=2)
    for n in (1, 2, 3, 4, 5):
        np.testing.assert_array_equal(model.run([x[:n]], CPU, f"--schedules={tmp_path / 'all.txt'}")[0], model.run([x[:n]], "--choose=p:version=off")[0])
    for fields, why in (({"size": 2}, "version.size is 2: the network has fewer sizes"), ({"least": 0}, "version.most is 4: "),
                        ({"least": 5}, "version.most is 4: "), ({"size": 0}, "version.most is 4: "),
                        ({"most": 1 << 31}, "version.most is 2147483648: 0 to")):
        told = head
        for name, number in fields.items():
            told = re.sub(rf"(version.{name} +)\d+", rf"\g<1>{number}", told)
        (tmp_path / "all.txt").write_text(told)
        done = mcc(model.path, CPU, f"--schedules={tmp_path / 'all.txt'}", "-o", tmp_path / "none.so")
        assert done.returncode == 2 and why in done.stderr, (fields, done.stderr)
    (tmp_path / "all.txt").write_text(f"{second}\n")
    done = mcc(model.path, CPU, f"--schedules={tmp_path / 'all.txt'}", "-o", tmp_path / "none.so")
    assert done.returncode == 2 and "the kernel has no version, as version.size of its own record is 0" in done.stderr, done.stderr
    inner = re.sub(r"(  estimate .*\n)", r"\1  version.size 1\n  version.least 1\n  version.most 2\n", second)
    (tmp_path / "all.txt").write_text(f"{head}\n\n{inner}\n")
    done = mcc(model.path, CPU, f"--schedules={tmp_path / 'all.txt'}", "-o", tmp_path / "none.so")
    assert done.returncode == 2 and "this is the record of a version" in done.stderr, done.stderr


def test_what_cannot_be_chosen(tmp_path):
    done = mcc(product(tmp_path, 6).path, CPU, "--choose=p:version=4", "-o", tmp_path / "a.so")
    assert done.returncode == 0 and "p:version=4: no size of its results is dynamic" in done.stderr
    done = mcc(product(tmp_path).path, CPU, "--input=x:f32[n=8..,72]", "--choose=p:version=4", "-o", tmp_path / "a.so")
    assert done.returncode == 0 and "p:version=4: a CPU of 16 registers of 32 bytes: version.most is 4: " in done.stderr
    assert mcc(product(tmp_path).path, "--choose=p:version=0", "-o", tmp_path / "none.so").returncode == 2


def test_multiples(tmp_path):
    """No value of a size that is a multiple of 8 lies below: there is no version for one row."""
    model = product(tmp_path)
    for spec, most, has in (("n=0..%8", 7, False), ("n=0..%8", 8, True), ("n<=64", 16, True)):
        done = mcc(model.path, CPU, f"--input=x:f32[{spec},72]", f"--choose=p:version={most}", "-stop-after=schedule", "-o", "-")
        assert done.returncode == 0 and (" version: " in done.stdout) == has, (spec, most, done.stderr)

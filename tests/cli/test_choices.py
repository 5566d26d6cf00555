"""--choose: what one kernel chooses, from the command line or the configuration file, what cannot be had, what is wrong."""
import re

import numpy as np
import pytest
from onnx import helper

from support.artifact import Artifact
from support.tool import mcc, save, value

NODES = [helper.make_node("Conv", ["x", "w"], ["c"], "first", pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"], "act"),
         helper.make_node("Conv", ["r", "v"], ["y"], "second")]
WEIGHTS = {"w": np.random.RandomState(1).randn(32, 8, 3, 3).astype(np.float32), "v": np.random.RandomState(2).randn(48, 32, 1, 1).astype(np.float32)}


@pytest.fixture
def model(tmp_path):
    return save(tmp_path / "net.onnx", NODES, [value("x", [1, 8, 12, 12])], [value("y", [1, 48, 12, 12])], WEIGHTS)


def tiles(stderr):
    """{node: tile} as the remarks say it."""
    found = {}
    for line in stderr.splitlines():
        if "tiles of " in line:
            a, b, n = (line.split("tiles of ")[1].split(" points")[0].split(" x ") + [line.split(" by ")[1].split()[0]])
            found[line.split("node '")[1].split("'")[0]] = f"{a}x{b}x{n}"
    return found


def run(path):
    with Artifact(path) as a:
        return a.run([np.random.RandomState(3).randn(1, 8, 12, 12).astype(np.float32)])[0]


def test_command_line_and_file(model, tmp_path):
    plain = mcc(model, "-o", tmp_path / "plain.so", "-march=native", "-Rpass-analysis=schedule")
    first = next(n for n in tiles(plain.stderr) if n in ("first", "act"))
    assert tiles(plain.stderr)[first] != "1x3x1" and tiles(plain.stderr)["second"] != "1x2x1"
    done = mcc(model, "-o", tmp_path / "told.so", "-march=native", "-Rpass-analysis=schedule", "--choose", "second:tile=1x2x1", "--choose", "first:tile=1x3x1")
    assert done.returncode == 0 and "warning" not in done.stderr
    assert tiles(done.stderr)[first] == "1x3x1" and tiles(done.stderr)["second"] == "1x2x1"
    (tmp_path / "net.yaml").write_text("choose: [second:tile=1x2x1, act:tile=1x3x1]\n")
    for name, options in (("told.s", ["--choose=second:tile=1x2x1", "--choose=first:tile=1x3x1"]), ("file.s", [f"--config={tmp_path}/net.yaml"])):
        assert mcc(model, "-S", "-o", tmp_path / name, "-march=native", *options).returncode == 0     # libraries note their options
    assert (tmp_path / "file.s").read_bytes() == (tmp_path / "told.s").read_bytes()
    assert np.abs(run(tmp_path / "told.so") - run(tmp_path / "plain.so")).max() < 1e-4


def remarks(model, tmp_path, *choices, march="native"):
    done = mcc(model, "-o", tmp_path / "net.so", f"-march={march}", "-Rpass-analysis=layout-transform,schedule", "-Rpass=fuse",
               *(f"--choose={c}" for c in choices))
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_every_key(model, tmp_path):
    """A choice changes what the remarks say, and nothing of the result."""
    plain, want = remarks(model, tmp_path), run(tmp_path / "net.so")
    assert "results of" not in plain and plain.count("2 nodes in one kernel") == 1
    for choices, changed in ((["first:winograd=2"], "results of 2x2"),
                             (["act:winograd=4", "act:tile=1x2x1"], "tiles of 2 results of 4x4 by 1 vector"),
                             (["first:winograd=2", "first:chunk=6", "first:tile=1x3x1"], "in groups of 6"),
                             (["first:winograd=6", "first:split=2", "first:winograd=off"], "3 vector"), (["first:layout=plain"], None),
                             (["first:store=yes"], None)):
        got = remarks(model, tmp_path, *choices)
        assert changed is None or changed in got, (choices, got)
        assert np.abs(run(tmp_path / "net.so") - want).max() < 1e-3, choices
        if "store" in choices[0]:
            assert "2 nodes in one kernel" not in got
        if "layout" in choices[0]:
            assert got.count("stored in blocks") < plain.count("stored in blocks")


def test_chunk_of_a_staged_operand(tmp_path):
    """The map in front of the 1x1 convolution is computed for as many tiles at a time as asked, or stored."""
    rng = np.random.default_rng(4)
    nodes = [helper.make_node("Concat", ["x", "x"], ["two"], axis=1), helper.make_node("Mul", ["two", "s"], ["m"], "scale"),
             helper.make_node("Relu", ["m"], ["r"], "act"), helper.make_node("Conv", ["r", "w"], ["y"], "conv")]
    arrays = {k: rng.standard_normal(d).astype(np.float32) for k, d in (("s", (1, 64, 1, 1)), ("w", (48, 64, 1, 1)))}
    model, large = (save(tmp_path / f"{n}.onnx", nodes, [value("x", [1, 32, n, n])], [value("y", [1, 48, n, n])], arrays) for n in (16, 400))
    assert "operand computed for 5 tiles at a time" in remarks(model, tmp_path, "conv:chunk=5", "conv:tile=1x4x3")
    assert "operand computed for 13 tiles at a time" in remarks(model, tmp_path, "conv:chunk=4096", "conv:tile=1x20x1", march="x86-64-v4")
    assert "16 MiB" in remarks(large, tmp_path, "conv:chunk=4096", "conv:tile=1x24x1", march="x86-64-v4")
    assert "operand computed" in remarks(model, tmp_path) and "operand computed" not in remarks(model, tmp_path, "act:store=yes")


def test_choices_are_fields_of_the_record(model):
    """They overwrite what the record says, in each variant; the other fields follow, and what does not fit leaves it as it was."""
    def fields(node, *choices, cpu="x86-64-v3"):
        done = mcc(model, f"-march={cpu}", "-stop-after=schedule", "-o", "-", *(f"--choose={node}:{c}" for c in choices))
        assert done.returncode == 0
        record = next(r for r in done.stdout.split("\n\n") if re.match(rf'schedule k\d+ "({node}|act)"', r))
        return dict(l.split()[:2] for l in record.splitlines()[1:] if not l.startswith("  #")), done.stderr

    for cpu, lanes in (("x86-64-v2", 4), ("x86-64-v3", 8), ("x86-64-v4", 16)):
        got, said = fields("second", "tile=1x3x2", cpu=cpu)
        assert not said and (got["tile.rows"], got["tile.columns"], got["tile.vectors"]) == ("1", "3", "2")
        got, said = fields("first", "winograd=4", "tile=1x3x1", "chunk=6", "split=2", cpu=cpu)
        assert not said and (got["winograd.m"], got["tile.tiles"], got["tile.vectors"], got["chunk"]) == ("4", "3", "1", "6")
        assert int(got["group"]) * lanes == 16
    plain = fields("first", "winograd=4")[0]
    for choice, why in (("tile=2x3x1", "tiles of 1 x tiles x vectors"),
                        ("tile=1x9x9", "a CPU of 16 registers of 32 bytes: tile.vectors is 4: the tile does not fit the registers"),
                        ("split=3", "the vectors of output channels are not multiple of it")):
        got, said = fields("first", "winograd=4", choice)
        assert got == plain and f"first:{choice}: {why}" in said.replace("a Winograd kernel has ", ""), said


CPU = "-march=x86-64-v3"


def record_of(model, node, *options):
    """The fields of the record of the kernel of that node, and what was said."""
    done = mcc(model, CPU, "-stop-after=schedule", "-o", "-", *options)
    assert done.returncode == 0, done.stderr
    record = next(r for r in done.stdout.split("\n\n") if re.match(rf'schedule k\d+ "{node}"', r))
    return dict(l.split()[:2] for l in record.splitlines()[1:] if not l.startswith("  #")), done.stderr


def test_any_field(model, tmp_path):
    """A field by its name is the line of a record, on all CPUs: the others stay, its time is estimated anew, and the results are the same."""
    plain, want, told = record_of(model, "second")[0], None, tmp_path / "told.txt"
    head = re.search(r'^schedule k\d+ "second" x86-64-v3: tiled$', mcc(model, CPU, "-stop-after=schedule", "-o", "-").stdout, re.M)[0]
    for fields in ({"interleave": 3}, {"tile.columns": 3, "tile.vectors": 1}, {"prefetch.near": 5, "reduce.0.unroll": 7}, {"estimate": 12345},
                   {"estimate": 777, "tile.columns": 2}, {"split": 2}, {"lanes.dim": plain["lanes.dim"]}):
        got, said = record_of(model, "second", *(f"--choose=second:{k}={v}" for k, v in fields.items()))
        told.write_text(head + "".join(f"\n  {k} {v}" for k, v in fields.items()) + "\n")
        assert (got, said) == record_of(model, "second", f"--schedules={told}"), fields
        assert not said and {k: v for k, v in got.items() if k != "estimate"} == {**{k: v for k, v in plain.items() if k != "estimate"},
                                                                                 **{k: str(v) for k, v in fields.items() if k != "estimate"}}
        assert got["estimate"] == str(fields["estimate"]) if "estimate" in fields else True
        assert mcc(model, CPU, "-o", tmp_path / "a.so", *(f"--choose=second:{k}={v}" for k, v in fields.items())).returncode == 0
        want = run(tmp_path / "a.so") if want is None else want
        assert np.abs(run(tmp_path / "a.so") - want).max() < 1e-4
    got, said = record_of(model, "second", "--choose=second:interleave=3", "--choose=second:interleave=4")
    assert not said and got["interleave"] == "4"      # the later one counts


def test_loops_by_name(tmp_path):
    """Loops in another order are several fields, of which none is possible alone."""
    model = save(tmp_path / "net.onnx", [helper.make_node("Relu", ["x"], ["y"], "t")], [value("x", [50, 6, 70])], [value("y", [50, 6, 70])])
    plain = record_of(model, "t")[0]
    loops = [(plain[f"loop.{i}"], plain[f"step.{i}"]) for i in range(int(plain["loops"]))]
    assert len(loops) == 3
    swapped = [loops[1], loops[0], loops[2]]
    options = [f"--choose=t:{k}.{i}={v}" for i, (l, s) in enumerate(swapped) for k, v in (("loop", l), ("step", s))]
    got, said = record_of(model, "t", *options)
    assert not said and [(got[f"loop.{i}"], got[f"step.{i}"]) for i in range(3)] == swapped
    got, said = record_of(model, "t", options[0])
    assert got == plain and f"{options[0][9:]}: a CPU of 16 registers of 32 bytes: " in said


def test_impossible_fields(model):
    """They are warnings by the rule of the field, one for each, and the possible ones are taken; what no kernel has is said, too."""
    got, said = record_of(model, "second", "--choose=second:interleave=3", "--choose=second:staged.tiles=4", "--choose=second:reduce.7.unroll=2",
                          "--choose=second:tile.vectors=9", "--choose=second:winograd.m=2", "--choose=nosuch:interleave=2")
    assert got["interleave"] == "3" and got["staged.tiles"] == "0"
    for words in ("second:staged.tiles=4: a CPU of 16 registers of 32 bytes: staged.tiles is 4: no operand is staged here",
                  "there is no reduce.7.unroll: the record has 1 of it", "second:tile.vectors=9: tile.vectors is 9: 1 to 8 are possible",
                  "second:winograd.m=2: no kernel of 'second' has this choice", "nosuch:interleave=2: no kernel of 'nosuch'"):
        assert words in said, said
    assert said.count("warning") == 5


def test_what_cannot_be_had(model, tmp_path):
    done = mcc(model, "-o", tmp_path / "net.so", "-march=native", "--choose", "second:tile=9x9x9", "--choose", "nosuch:tile=1x1x1",
               "--choose", "second:winograd=4", "--choose", "second:chunk=4", "--choose", "first:chunk=3", "--choose", "first:chunk=8")
    assert done.returncode == 0 and "second:tile=9x9x9: tile.vectors is 9: 1 to 8 are possible" in done.stderr
    assert "second:winograd=4: the node is no 3 x 3 convolution" in done.stderr
    for words in ("nosuch:tile=1x1x1: no kernel of 'nosuch'", "second:chunk=4: no kernel of", "first:chunk=8: no kernel of"):
        assert words in done.stderr
    assert "first:chunk=3" not in done.stderr      # the later one counts
    assert mcc("-Werror", model, "-o", tmp_path / "w.so", "--choose", "nosuch:tile=1x1x1").returncode == 1


@pytest.mark.parametrize("text", ["second", ":tile=1x1x1", "second:tile", "second:tile=", "second:tile=1x1", "second:tile=1x1x1x1", "second:tile=0x1x1",
                                  "second:tile=1x1x4097", "second:tile=-1x1x1", "second=1x1x1", "second:winograd=3", "second:winograd=", "second:chunk=0",
                                  "second:split=2x2", "second:layout=NCHW", "second:store=no", "second:store=", "second:nosuch=1",
                                  "second:interleave=33", "second:interleave=", "second:interleave=1x", "second:interleave=off", "second:tile.vectors=-1",
                                  "second:reduce.0.nosuch=1", "second:reduce..lanes=1", "second:interleave=99999999999999999999"])
def test_wrong_forms(model, tmp_path, text):
    done = mcc(model, "-o", tmp_path / "net.so", "--choose", text)
    assert done.returncode == 2 and "--choose" in done.stderr and done.stderr.count("\n") == 1 and not (tmp_path / "net.so").exists()


def test_the_text_of_a_module_has_them(model):
    text = mcc(model, "-stop-after=fuse", "-o", "-", *(f"--choose=second:{c}" for c in ("version=4", "tile=1x2x3", "lanes.dim=-1", "reduce.00.sums=2"))).stdout
    assert [line.split(" ", 2)[2] for line in text.splitlines() if line.startswith('choose "second" ')] == [
        "version 4 0 0", "tile 1 2 3", "lanes.dim -1 0 0", "reduce.0.sums 2 0 0"], text

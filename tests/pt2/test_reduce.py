"""mcc reduce of a .pt2: the smallest program for which a command succeeds, as a .pt2."""
import json
import pathlib
import sys
import zipfile

import numpy as np
import pytest

from pt2.writer import Number, Program
from support.artifact import Artifact
from support.tool import MCC, mcc

DATA = pathlib.Path(__file__).resolve().parent / "data"
F = np.dtype("float32")


def document(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        name, = (n for n in archive.namelist() if n.split("/", 1)[-1].startswith("models/") or n.endswith("exported_program.json"))
        return json.loads(archive.read(name)), {n.split("/", 1)[-1] for n in archive.namelist()}


def reduced(path, wants, out):
    """Down to what compiles and has an operator: (targets, inputs, the names of records)."""
    script = out.with_suffix(".py")
    script.write_text(f"import subprocess, sys\ndone = subprocess.run([{MCC!r}, '-stop-after=import', sys.argv[1]], capture_output=True)\n"
                      f"sys.exit({wants.encode()!r} not in done.stdout or subprocess.run([{MCC!r}, 'check', '-q', sys.argv[1]]).returncode)\n")
    done = mcc("reduce", path, "-o", out, "--", sys.executable, script)
    assert done.returncode == 0 and not done.stderr, done.stderr
    program, records = document(out)
    graph = program["graph_module"]["graph"]
    inputs = {i["as_tensor"]["name"]: [s.get("as_int") for s in graph["tensor_values"][i["as_tensor"]["name"]]["sizes"]] for i in graph["inputs"]}
    return [n["target"].removeprefix("torch.ops.aten.") for n in graph["nodes"]], inputs, records


def chain():
    """x, then blocks of three operators with weights of their own; a text with all that JSON escapes."""
    program = Program()
    y = program.input("x", F, (8, 16))
    for k in range(6):
        w = program.weight(f"layers.{k}.w", np.full((16, 16), k + 1, np.float32))
        y = program.node("aten.mm.default", [y, w], [(f"mm_{k}", F, (8, 16))])
        program.came_from('a "quoted" \\ name\n\x01é', k, f"layers.{k}")
        y = program.node("aten.tanh.default" if k != 3 else "aten.sinh.default", [y], [(f"t_{k}", F, (8, 16))])
        y = program.node("aten.add.Tensor", [y, 0.1 + k], [(f"add_{k}", F, (8, 16))])
    program.output(y)
    return program


@pytest.mark.parametrize("layout, compression", [("C", zipfile.ZIP_STORED), ("C", zipfile.ZIP_DEFLATED), ("B", zipfile.ZIP_STORED),
                                                 ("A", zipfile.ZIP_DEFLATED)])
def test_one_operator(layout, compression, tmp_path):
    path = chain().save(tmp_path / "net.pt2", layout=layout, compression=compression)
    assert reduced(path, "sinh", tmp_path / "s.pt2")[:2] == (["sinh.default"], {"mm_3": [1, 1]})
    targets, inputs, records = reduced(path, 'layers.2.w', tmp_path / "w.pt2")
    assert targets == ["mm.default"] and inputs == {"p_layers.2.w": [16, 16], "add_1": [1, 16]}
    weights = {r for r in records if "weight_" in r}
    assert weights == ({"data/weights/weight_2"} if layout == "C" else set())    # pickles stay whole
    for name, x, want in (("s", np.ones((1, 1), F), np.sinh(1)), ("w", np.ones((1, 16), F), 48)):
        assert mcc(tmp_path / f"{name}.pt2", "-o", tmp_path / "m.so").returncode == 0
        with Artifact(tmp_path / "m.so") as a:
            np.testing.assert_allclose(a.run([x])[0], want, rtol=1e-6)


def test_numbers_of_the_run_stay_with_what_reads_them(tmp_path):
    """A number is no input: who makes it is kept. Sizes that are expressions stay so."""
    program = Program()
    n = program.symbol("s0", 2, 40)
    x = program.node("aten.relu.default", [program.input("x", F, (n, 6))], [("relu", F, (n, 6))])
    size = program.node("aten.sym_size.int", [x, 0], [("size", None, n)])
    more = program.node("_operator.add", [size, 3], [("more", None, "s0 + 3")], names=["a", "b"])
    full = program.node("aten.full.default", [[Number(more), 6], 2.0], [("full", F, ("s0 + 3", 6))])
    program.output(program.node("aten.cat.default", [[x, full]], [("cat", F, ("2*s0 + 3", 6))]))
    path = program.save(tmp_path / "net.pt2", guards_code=["L['x'].size()[0] <= 30"])
    targets, inputs, _ = reduced(path, "full.default", tmp_path / "small.pt2")
    assert targets == ["sym_size.int", "_operator.add", "full.default"] and list(inputs) == ["relu"]


def test_state(tmp_path):
    """A written buffer stays with the node that writes it."""
    path = DATA / "keeping_core.pt2"
    targets, _, _ = reduced(path, "add.Tensor", tmp_path / "small.pt2")
    program, _ = document(tmp_path / "small.pt2")
    kept = [s for s in program["graph_module"]["signature"]["output_specs"] if "buffer_mutation" in s]
    assert targets == ["add.Tensor"] and len(kept) <= 1


@pytest.mark.parametrize("path", sorted(DATA.glob("*.pt2")), ids=lambda p: p.stem)
def test_every_program(path, tmp_path):
    """Each operator of programs that PyTorch wrote, with graphs within nodes, writes and dynamic sizes: none ends in a crash."""
    done = mcc("reduce", path, "-o", tmp_path / "small.pt2", "--", "sh", "-c", f'{MCC} -q -O0 "$0" -o {tmp_path}/m.so', timeout=300)
    if path.stem == "training":     # which is refused
        assert done.returncode == 1
        return
    assert done.returncode == 0 and " nodes, after " in done.stdout, done.stderr
    assert 1 <= len(document(tmp_path / "small.pt2")[0]["graph_module"]["graph"]["nodes"]) <= 2
    assert mcc("bench", "--runs=1", tmp_path / "small.pt2").returncode == 0


def test_refusals(tmp_path):
    path = chain().save(tmp_path / "net.pt2")
    assert mcc("reduce", path, "-o", path, "--", "true").returncode == 2
    assert mcc("reduce", path, "--", "false", cwd=tmp_path).returncode == 2
    assert mcc("reduce", path, "-q", "--", "test", "-s", "{}", cwd=tmp_path).returncode == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.pt2", "reduced.pt2"]

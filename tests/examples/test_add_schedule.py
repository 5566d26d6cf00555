"""docs/add-a-schedule.md, followed literally: the field that it adds is printed, read back, refused beyond its bounds, and prefetches."""
import re
import subprocess

import numpy as np
from onnx import helper

from support.artifact import Artifact
from support.steps import follow
from support.tool import save, value

CPU = "-march=x86-64-v3"


def test_steps(tmp_path):
    mcc = follow("add-a-schedule.md", tmp_path, 7) / "build/mcc"
    model = save(tmp_path / "cumsum.onnx", [helper.make_node("CumSum", ["x", "axis"], ["y"], "sums")], [value("x", [30, 40])],
                 [value("y", [30, 40])], {"axis": np.int64(0)})

    def run(*args):
        return subprocess.run([mcc, model, CPU, *args], cwd=tmp_path, capture_output=True, text=True)

    text = run("-stop-after=schedule", "-o", "-").stdout
    assert re.search(r"^  prefetch.results +4 +# steps early", text, re.M), text
    told, x, codes = tmp_path / "records.txt", np.random.default_rng(1).standard_normal((30, 40)).astype(np.float32), set()
    estimates = set()
    for steps in (0, 4, 64):
        told.write_text(re.sub(r"(prefetch.results +)\d+", rf"\g<1>{steps}", re.sub(r"  estimate.*\n", "", text)))
        done = run(f"--schedules={told}", "-o", "cumsum.so")
        assert done.returncode == 0, done.stderr
        with Artifact(tmp_path / "cumsum.so") as a:
            np.testing.assert_allclose(a.run([x])[0], np.cumsum(x, 0), rtol=1e-4, atol=1e-5)
        code = run(f"--schedules={told}", "-stop-after=emit", "-o", "-").stdout
        assert ("prefetch" in code) == (steps > 0)
        codes.add(code)
        estimates.add(re.search(r"estimate +(\d+)", run(f"--schedules={told}", "-stop-after=schedule", "-o", "-").stdout)[1])
    assert len(codes) == 3 and len(estimates) == 2
    chosen = run("--choose=sums:prefetch.results=64", "-stop-after=emit", "-o", "-")
    assert not chosen.stderr and chosen.stdout in codes
    told.write_text(re.sub(r"(prefetch.results +)\d+", r"\g<1>65", text))
    done = run(f"--schedules={told}", "-o", "no.so")
    assert done.returncode == 2 and re.search(r"records.txt:\d+: .*prefetch.results is 65: 0 to 64 are possible", done.stderr), done.stderr


def test_kind(tmp_path):
    """docs/reference/add-a-kind.md: a map of the new kind is computed in its runs; a product, and a run of no or too many points, are refused."""
    mcc = follow("reference/add-a-kind.md", tmp_path, 6) / "build/mcc"
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Transpose", ["r"], ["y"], "turn", perm=[1, 0]),
             helper.make_node("MatMul", ["x", "y"], ["z"], "product")]
    model = save(tmp_path / "net.onnx", nodes, [value("x", ["n", 13])], [value("y", None), value("z", None)])

    def run(*args):
        return subprocess.run([mcc, model, CPU, *args], cwd=tmp_path, capture_output=True, text=True)

    text, records, x = run("-stop-after=schedule", "-o", "-").stdout, tmp_path / "records.txt", np.float32(np.random.default_rng(2).standard_normal((7, 13)))
    heads = {kind: re.search(rf'^schedule k\d+ "[^"]*" x86-64-v3: {kind}$', text, re.M)[0].rsplit(":", 1)[0] for kind in ("map", "tiled")}
    assert ": strip" not in text
    for points in (1, 5, 91, 1000):
        records.write_text(f"{heads['map']}: strip\n  points {points}\n")
        done = run(f"--schedules={records}", "-o", "net.so")
        assert done.returncode == 0, done.stderr
        with Artifact(tmp_path / "net.so", threads=2) as a:
            got = a.run([x])
        assert np.array_equal(got[0], np.maximum(x, 0).T) and np.allclose(got[1], x @ np.maximum(x, 0).T, rtol=1e-5, atol=1e-5)
    for line, why in ((f"{heads['map']}: strip\n  points 0", "points is 0: 1 to 1073741824 are possible"),
                      (f"{heads['tiled']}: strip", "may be of kind .*, not 'strip'")):
        records.write_text(line + "\n")
        done = run(f"--schedules={records}", "-o", "no.so")
        assert done.returncode == 2 and re.search(rf"records.txt:\d+: .*{why}", done.stderr), done.stderr
    records.write_text(f"{heads['map']}: strip\n  points 92\n")
    fixed = run("--input=x[7,13]", f"--schedules={records}", "-o", "no.so")
    assert fixed.returncode == 2 and "points is 92: the result has fewer points" in fixed.stderr, fixed.stderr

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
    told.write_text(re.sub(r"(prefetch.results +)\d+", r"\g<1>65", text))
    done = run(f"--schedules={told}", "-o", "no.so")
    assert done.returncode == 2 and re.search(r"records.txt:\d+: .*prefetch.results is 65: 0 to 64 are possible", done.stderr), done.stderr

"""docs/add-a-frontend.md, followed literally: the format that it adds is compiled, inspected and refused where it is wrong."""
import subprocess

import numpy as np

from support.artifact import Artifact
from support.steps import follow

NET = "#chain 1\ninput x 4\naffine 2 0.5\nrelu\noutput y\n"


def mcc_says(mcc, *args):
    run = subprocess.run([mcc, *args], capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def test_steps(tmp_path):
    folder = follow("add-a-frontend.md", tmp_path, 6, more=("tests/lint.py", ".clang-format"))
    mcc = folder / "build/mcc"
    # A file is known by its first bytes, whatever its name.
    (tmp_path / "net.chain").write_text(NET)
    (tmp_path / "other.bin").write_text(NET)
    for name in ("net.chain", "other.bin"):
        assert mcc_says(mcc, tmp_path / name, "-o", tmp_path / "net.so") == (0, "")
        x = np.array([-3, -0.25, 0, 1], np.float32)
        with Artifact(tmp_path / "net.so") as a:
            np.testing.assert_array_equal(a.run([x])[0], np.maximum(2 * x + np.float32(0.5), 0))

    status, text = mcc_says(mcc, "inspect", tmp_path / "net.chain")
    assert status == 0 and "chain" in text
    status, text = mcc_says(mcc, "--list-ops")
    assert status == 0 and "chain                      affine" in text
    # What the format does not have is refused, as is what its hooks cannot do; the files of the others are imported as ever.
    (tmp_path / "bad.chain").write_text(NET.replace("relu", "softmax"))
    status, text = mcc_says(mcc, "check", tmp_path / "bad.chain")
    assert status == 1 and "no such line may stand here: softmax" in text
    status, text = mcc_says(mcc, "reduce", tmp_path / "net.chain", "--", "true")
    assert status == 1 and "chain files cannot be cut down" in text
    (tmp_path / "text.onnx").write_text("not a network")
    status, text = mcc_says(mcc, "check", tmp_path / "text.onnx")
    assert status == 1 and "text" in text
    # The rules of the tree hold for what the steps added.
    lint = subprocess.run(["python3", folder / "tests/lint.py"], capture_output=True, text=True)
    assert "include" not in lint.stdout and "frontend/formats.def alone" not in lint.stdout, lint.stdout

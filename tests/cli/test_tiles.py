"""--tile: the register tile of one kernel from the command line or the configuration file, what cannot be had, what is wrong."""
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
    done = mcc(model, "-o", tmp_path / "told.so", "-march=native", "-Rpass-analysis=schedule", "--tile", "second=1x2x1", "--tile", "first=1x3x1")
    assert done.returncode == 0 and "warning" not in done.stderr
    assert tiles(done.stderr)[first] == "1x3x1" and tiles(done.stderr)["second"] == "1x2x1"
    (tmp_path / "net.yaml").write_text("tile: [second=1x2x1, act=1x3x1]\n")
    again = mcc(model, "-o", tmp_path / "file.so", "-march=native", f"--config={tmp_path}/net.yaml")
    assert again.returncode == 0 and (tmp_path / "file.so").read_bytes() == (tmp_path / "told.so").read_bytes()
    assert np.abs(run(tmp_path / "told.so") - run(tmp_path / "plain.so")).max() < 1e-4


def test_what_cannot_be_had(model, tmp_path):
    done = mcc(model, "-o", tmp_path / "net.so", "-march=native", "--tile", "second=9x9x9", "--tile", "nosuch=1x1x1")
    assert done.returncode == 0 and "'second' cannot have tiles of 9 x 9 points by 9 vectors" in done.stderr
    assert "no kernel computes 'nosuch' by register tiles" in done.stderr
    assert mcc("-Werror", model, "-o", tmp_path / "w.so", "--tile", "nosuch=1x1x1").returncode == 1


@pytest.mark.parametrize("text", ["second", "=1x1x1", "second=", "second=1x1", "second=1x1x1x1", "second=0x1x1", "second=1x1x65", "second=-1x1x1"])
def test_wrong_forms(model, tmp_path, text):
    done = mcc(model, "-o", tmp_path / "net.so", "--tile", text)
    assert done.returncode == 2 and "--tile" in done.stderr and not (tmp_path / "net.so").exists()

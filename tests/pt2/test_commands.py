"""Every command with a .pt2: it takes it as it takes an .onnx, or says what to do instead."""
import pathlib
import re

import numpy as np
import pytest

from support.tool import mcc

DATA = pathlib.Path(__file__).resolve().parent / "data"
IMAGE = np.load(DATA / "residual.npz")["0.in.0"]

# Command and arguments -> what it says or writes; "{}" is the folder. A row for each sub-command of `mcc --help`.
COMMANDS = {
    "compile": (["-o", "{}/m.so"], "m.so"),
    "check": ([], "supported"),
    "inspect": ([], "kernel   "),
    "run": (["-i", "image={}/image.npy"], "logits"),
    "bench": (["--runs=2"], "conv2d"),
    "eval": (["-i", "image={}/image.npy"], "logits"),
    "diff": (["-i", "image={}/image.npy"], ""),
    "report": (["--no-run", "-o", "{}/m.html"], "m.html"),
    "quantize": (["--sample", "image={}/image.npy", "-o", "{}/q.so"], "q.so"),
    "reduce": (["-o", "{}/small.pt2", "--", "true"], " nodes, after "),
    "prove": (["-march=native"], "kernels proved"),
    "verify": ([], "model.pt2"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_command(tmp_path, command):
    args, wants = COMMANDS[command]
    path = tmp_path / "model.pt2"
    path.write_bytes((DATA / "residual.pt2").read_bytes())
    np.save(tmp_path / "image.npy", IMAGE)
    args = [a.format(tmp_path) for a in args]
    made = [tmp_path / "made.so"] if command == "verify" else []
    assert not made or mcc(path, "-o", *made).returncode == 0
    done = mcc(command, *made, path, *args)
    assert done.returncode == 0 and not re.search("error", done.stderr), done.stdout + done.stderr
    assert (tmp_path / wants).stat().st_size > 1000 if "." in wants else wants in done.stdout, done.stdout + done.stderr


def test_every_command_is_asked():
    text = mcc("--help").stdout
    names = re.findall(r"^  ([a-z]+) ", re.search(r"Other commands.*\n((?:  .*\n)+)", text)[1], re.M)
    assert len(names) > 8 and set(COMMANDS) == {"compile", *names}

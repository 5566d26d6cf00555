"""What a compilation is at: on a terminal, when it takes more than a second, and gone when it is over."""
import os
import pty
import re
import subprocess

import numpy as np
import pytest
from onnx import helper

from support.terminal import needs_terminal
from support.tool import MCC, dense, save, value

ERASE = "\r\x1b[K"


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """Convolutions of 16 different sizes, all of whose code one worker makes."""
    rng, channels = np.random.default_rng(0), [3, *range(17, 32)]
    weights = {f"w{i}": rng.standard_normal((b, a, 3, 3)).astype(np.float32) for i, (a, b) in enumerate(zip(channels, channels[1:]))}
    nodes = [helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], pads=[1] * 4) for i in range(len(weights))]
    return save(tmp_path_factory.mktemp("slow") / "net.onnx", nodes, [value("x0", [1, 3, 28, 28])],
                [value(f"x{len(weights)}", [None] * 4)], weights)


def at_terminal(model, out, *flags, env={}):
    """What mcc writes to a terminal at its standard error."""
    ours, theirs = pty.openpty()
    clean = {k: v for k, v in os.environ.items() if k not in ("CI", "TERM")}
    with subprocess.Popen([MCC, str(model), "-o", str(out), "--no-cache", *flags], stderr=theirs, stdout=subprocess.PIPE,
                          env=clean | {"TERM": "xterm"} | env) as process:
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 65536):
                text += part
        except OSError:   # the other end is closed
            pass
        os.close(ours)
        assert process.wait(120) == 0, text
        assert process.stdout.read() == b""
    return text.decode()


@needs_terminal
def test_stages_and_functions(slow, tmp_path):
    text = at_terminal(slow, tmp_path / "a.so", "-j1")
    lines = text.split(ERASE)
    assert lines[0] == "" and lines[-1] == "", "the line is taken away at the end"
    counts = [tuple(map(int, m)) for m in re.findall(r"mcc: codegen, (\d+) of (\d+)", text)]
    assert len(counts) > 3 and counts == sorted(counts) and len({of for _, of in counts}) == 1
    assert all(done <= of for done, of in counts) and all(re.fullmatch(r"mcc: [a-z-]+(, \d+ of \d+)?", l) for l in lines[1:-1])


@needs_terminal
@pytest.mark.parametrize("flags, env", [([], {"CI": "true"}), ([], {"TERM": "dumb"}), (["-q"], {})])
def test_not_wanted(slow, tmp_path, flags, env):
    assert at_terminal(slow, tmp_path / "a.so", "-j1", *flags, env=env) == ""


def test_a_pipe_gets_none(slow, tmp_path):
    env = {k: v for k, v in os.environ.items() if k != "CI"}
    done = subprocess.run([MCC, str(slow), "-o", str(tmp_path / "a.so"), "-j1", "--no-cache"], capture_output=True, timeout=120,
                          env=dict(env, TERM="xterm"))
    assert done.returncode == 0 and done.stderr == b"" and done.stdout == b""


@needs_terminal
def test_what_is_quick_says_nothing(tmp_path):
    assert at_terminal(dense(tmp_path / "net.onnx"), tmp_path / "a.so") == ""


@needs_terminal
def test_other_words_stand_alone(slow, tmp_path):
    """Remarks come when everything is done: nothing of the line is before them."""
    text = at_terminal(slow, tmp_path / "a.so", "-j1", "--time-passes")
    assert re.search(re.escape(ERASE) + r"stage +ms", text) and text.count("mcc: ") > 1

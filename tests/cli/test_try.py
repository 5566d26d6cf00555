"""mcc run and mcc bench of a network that is not compiled yet."""
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest

from support.tool import DIGITS, MCC, mcc


@pytest.fixture
def clean(tmp_path):
    """TMPDIR for the commands; nothing may be left in it."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    yield dict(os.environ, TMPDIR=str(folder))
    assert list(folder.iterdir()) == []


def test_run_needs_nothing_but_the_network(tmp_path, clean):
    done = mcc("run", DIGITS, env=clean, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "" and re.match(r"probability f32\[1,10\]: [\d.e+-]+ ", done.stdout)
    assert mcc("run", DIGITS, "--dim=n=3", env=clean).stdout.startswith("probability f32[3,10]: ")
    np.save(tmp_path / "x.npy", np.zeros((2, 1, 8, 8), np.float32))
    assert mcc("run", DIGITS, "-i", f"picture={tmp_path}/x.npy", "-o", tmp_path / "out", env=clean).returncode == 0
    assert mcc(DIGITS, "-o", tmp_path / "d.so").returncode == 0
    mcc("run", tmp_path / "d.so", "-i", f"picture={tmp_path}/x.npy", "-o", tmp_path / "same")
    assert np.array_equal(np.load(tmp_path / "out/probability.npy"), np.load(tmp_path / "same/probability.npy"))
    assert not [name for name in os.listdir(tmp_path) if name.startswith("digits")]


def test_bench_says_what_it_took(clean, tmp_path):
    done = mcc("bench", DIGITS, "--runs=10", "-O1", "--march=x86-64-v2", env=clean)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{DIGITS}: 10 runs, median ") and "all kernels" in done.stdout
    said = re.fullmatch(re.escape(str(DIGITS)) + r": ([\d.]+) GFLOP/s, ([\d.]+)% of the ([\d.]+) that \d+ threads? reach; "
                        r"memory (\d+) bytes, and the file's (\d+)", lines[1])
    assert said and abs(float(said[1]) / float(said[3]) * 100 - float(said[2])) < 0.1 + 0.02 * float(said[2])
    assert mcc(DIGITS, "-O1", "--march=x86-64-v2", "-o", tmp_path / "d.so").returncode == 0
    assert int(said[5]) == (tmp_path / "d.so").stat().st_size
    assert f"workspace {said[4]} bytes" in lines[0]
    more = mcc("bench", DIGITS, "--runs=10", "--dim=n=4", env=clean).stdout.splitlines()[1]     # operations of n=4 as well
    assert re.fullmatch(re.escape(str(DIGITS)) + r": [\d.]+ GFLOP/s, .*", more)


def test_options_of_compiling_are_refused_for_what_is_compiled(tmp_path):
    assert mcc(DIGITS, "-o", tmp_path / "d.so").returncode == 0
    for option in "-O1", "--march=x86-64-v3", "--input=picture:f32[1,1,8,8]", "--layout=NCHW", "--prefix=p":
        for command in "run", "bench":
            done = mcc(command, tmp_path / "d.so", "-i", "picture=random", option)
            assert done.returncode == 2 and "for networks: the file is compiled already" in done.stderr, (option, done.stderr)
    done = mcc("run", tmp_path / "d.so")
    assert done.returncode == 2 and "this input has no value" in done.stderr


def test_errors_leave_nothing(tmp_path, clean):
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(DIGITS.read_bytes()[:300])
    for command in "run", "bench":
        done = mcc(command, bad, env=clean)
        assert done.returncode == 1 and str(bad) in done.stderr
    assert mcc("run", tmp_path / "nosuch.onnx", env=clean).returncode == 3
    assert mcc("run", DIGITS, "-i", "picture=nosuch.npy", env=clean).returncode == 3
    assert mcc("run", DIGITS, "--dump=nosuch", env=clean).returncode == 2


@pytest.mark.parametrize("name,words", [("net.so", ["bench", DIGITS, "--runs=1000000000"]),
                                        ("candidate.onnx", ["reduce", DIGITS, "-o", "small.onnx", "--", "sh", "-c", "sleep 20"])])
def test_a_signal_leaves_nothing(tmp_path, name, words):
    """Neither the file nor the folder that was made for it."""
    env = dict(os.environ, TMPDIR=str(tmp_path))
    host = subprocess.Popen([MCC, *words], env=env, stdout=subprocess.DEVNULL, cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(f"mcc-*/{name}")) and time.monotonic() < deadline:
        time.sleep(0.05)
    host.send_signal(signal.SIGTERM)
    assert host.wait(20) == -signal.SIGTERM and not list(tmp_path.glob("mcc-*"))


ALONE = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.mark.skipif(subprocess.run([*ALONE, "mount", "-t", "tmpfs", "none", "/dev"], capture_output=True).returncode != 0, reason="no namespaces of users")
def test_without_dev_null(tmp_path):
    """As in a bare chroot: nobody needs what is below /dev."""
    done = subprocess.run([*ALONE, "sh", "-ec", 'mount -t tmpfs none /dev; exec "$@"', "sh", MCC, DIGITS, "-o", tmp_path / "net.so"],
                          capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "net.so").exists(), done.stderr


def test_colour_is_asked_for(tmp_path):
    missing, red = tmp_path / "nosuch.onnx", "\033[1;31merror: \033[0m"
    assert red in mcc(missing, "-fcolor-diagnostics").stderr
    assert red in mcc("check", missing, "-fcolor-diagnostics", env=dict(os.environ, NO_COLOR="1")).stderr
    assert "\033" not in mcc(missing).stderr + mcc(missing, "-fcolor-diagnostics", "-fno-color-diagnostics").stderr
    assert mcc(missing, "-fcolor-diagnostics", "-fdiagnostics-format=json").stderr.startswith("{")

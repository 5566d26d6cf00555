"""--metric: the user's program judges the outputs of what --error's search tries."""
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest
from onnx import helper as h

from support.artifact import Artifact
from support.tool import DIGITS, MCC, mcc, save, value

N = h.make_node
NATIVE = "-march=native"


def images(split, seen):
    records = np.fromfile(DIGITS.parent / "digits.test", np.uint8).reshape(-1, 65)
    order = np.random.default_rng(split).permutation(len(records))
    pictures = (records[order, 1:] / np.float32(16)).astype(np.float32).reshape(-1, 1, 8, 8)
    return pictures[:seen], records[order[:seen], 0], pictures[seen:], records[order[seen:], 0]


def program(path, body):
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def digits(tmp_path, command, *options, seen=96):
    x, labels, unseen, right = images(3, seen)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "labels.npy", labels)
    done = mcc(DIGITS, "--input=picture:f32[1,1,8,8]", NATIVE, "-o", tmp_path / "a.so", f"--sample=picture={tmp_path / 'x.npy'}",
               f"--metric={command}", *options)
    return done, unseen, right


TOP1 = """import pathlib, sys, numpy as np
folder = pathlib.Path(sys.argv[-1])
numbers = [int(line.split(chr(9))[0]) for line in (folder / 'samples.txt').read_text().splitlines()]
files = sorted(folder.glob('*.npy'))
assert len(files) == len(numbers) and all(line.split(chr(9))[1].endswith('x.npy') for line in (folder / 'samples.txt').read_text().splitlines())
labels = np.load(pathlib.Path(__file__).parent / 'labels.npy')
right = [np.load(f).argmax() == labels[int(f.name[:6])] for f in files]
print('top 1 of', len(files)); print(100 * np.mean(right), 'percent' if len(sys.argv) > 2 else '')"""


def accuracy(path, x, right):
    with Artifact(path) as a:
        return 100 * np.mean([a.run([one[None]])[0].argmax() == r for one, r in zip(x, right)])


def test_digits_by_their_labels(tmp_path):
    """The program finds the labels of the samples by their numbers; digits that it did not see are read as before."""
    top1 = program(tmp_path / "top1.py", TOP1)
    done, unseen, right = digits(tmp_path, top1, "--metric-drop=0.5", f"--save-choices={tmp_path / 'c.yaml'}")
    assert done.returncode == 0 and not done.stderr, done
    told = re.search(r"^metric ([\d.]+), ([\d.]+) in f32, on 24 samples that the search did not see$", done.stdout, re.M)
    assert told and float(told[1]) >= float(told[2]) - 0.5 and " int8 " in done.stdout, done.stdout
    assert mcc(DIGITS, "--input=picture:f32[1,1,8,8]", NATIVE, "-o", tmp_path / "f32.so").returncode == 0
    assert accuracy(tmp_path / "a.so", unseen, right) >= accuracy(tmp_path / "f32.so", unseen, right) - 0.5
    assert "a metric's loss of 0.5" in (tmp_path / "c.yaml").read_text()


def test_with_a_bound_too(tmp_path):
    """Words of the command are arguments; the error's bound holds as well."""
    top1 = program(tmp_path / "top1.py", TOP1)
    done, _, _ = digits(tmp_path, f"{sys.executable} {top1} words", "--error=1%")
    found = re.search(r", ([\d.e-]+) on 24 that it did not see; of these", done.stdout)
    assert done.returncode == 0 and float(found[1]) <= 0.01 and "metric " in done.stdout, done


def test_a_metric_that_nothing_keeps(tmp_path):
    """Any difference from f32 counts: the network stays as it is."""
    exact = program(tmp_path / "exact.py", """import pathlib, sys, hashlib
folder, memory = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent / 'seen'
files = sorted(folder.glob('*.npy'))
memory.mkdir(exist_ok=True)
same = []
for f in files:
    told = memory / f.name
    told.exists() or told.write_bytes(f.read_bytes())
    same.append(told.read_bytes() == f.read_bytes())
print(sum(same) / len(same))""")
    done, _, _ = digits(tmp_path, exact, "--metric-drop=0", seen=12)
    assert done.returncode == 0 and "every product stays in f32: nothing else keeps the metric within 0" in done.stdout, done
    assert mcc(DIGITS, "--input=picture:f32[1,1,8,8]", NATIVE, "-o", tmp_path / "f32.so").returncode == 0
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "f32.so").read_bytes()


def test_without_samples(tmp_path):
    path = save(tmp_path / "net.onnx", [N("MatMul", ["x", "w"], ["y/a"], "mm")], [value("x", [64, 64])], [value("y/a", [64, 64])],
                {"w": np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)})
    count = program(tmp_path / "count.py", "import os, sys; print(len([f for f in os.listdir(sys.argv[1]) if f.endswith('-y_a.npy')]))")
    done = mcc(path, "-o", tmp_path / "a.so", NATIVE, f"--metric={count}")
    assert done.returncode == 0 and "[-Wsamples]" in done.stderr and "metric 2, 2 in f32" in done.stdout, done


@pytest.mark.parametrize("body, status, says", [
    ("print('no number')", 3, "printed no number"), ("import sys; sys.exit(7)", 3, "failed (status 7)"), ("print('nan inf')", 3, "printed no number"),
    ("import os; os.kill(os.getpid(), 9)", 3, "failed (status 137)"), ("import time; time.sleep(60); print(1)", 4, "did not end within 8 s"),
    ("import os\nwhile True: os.write(1, b'x' * 65536)", 4, "wrote too much")])
def test_programs_that_fail(tmp_path, body, status, says):
    done, _, _ = digits(tmp_path, program(tmp_path / "p.py", body), "--limit-compile-time=8", seen=4)
    assert done.returncode == status and says in done.stderr and not (tmp_path / "a.so").exists(), done


def test_no_shell_reads_the_command(tmp_path):
    for command in (f"true; touch {tmp_path / 'made'}", f"$(touch {tmp_path / 'made'})", f"`touch {tmp_path / 'made'}`"):
        done, _, _ = digits(tmp_path, command, seen=4)
        assert done.returncode == 3 and not (tmp_path / "made").exists(), done
    for command in ("", " ", "/nowhere/program"):
        done, _, _ = digits(tmp_path, command, seen=4)
        assert done.returncode in (2, 3) and not (tmp_path / "a.so").exists(), done


def product(path, *outputs):
    nodes = [N("MatMul", ["x", "w"], [outputs[0]], "mm"), *(N("Relu", [outputs[0]], [name]) for name in outputs[1:])]
    return save(path, nodes, [value("x", [64, 64])], [value(name, [64, 64]) for name in outputs],
                {"w": np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)})


def test_a_program_that_closes_its_output(tmp_path):
    """The limit holds until it has ended."""
    program(tmp_path / "p.py", "import os, time; os.close(1); time.sleep(60)")
    done = mcc(product(tmp_path / "net.onnx", "y"), NATIVE, "-o", tmp_path / "a.so", f"--metric={tmp_path / 'p.py'}", "--limit-compile-time=6", timeout=40)
    assert done.returncode == 4 and "did not end within 6 s" in done.stderr, done


def test_the_last_number_is_none(tmp_path):
    """Numbers before a NaN do not count, and a network of which that is said is not taken."""
    path = product(tmp_path / "net.onnx", "y")
    program(tmp_path / "p.py", "print('5 of 5 nan')")
    done = mcc(path, NATIVE, "-o", tmp_path / "a.so", f"--metric={tmp_path / 'p.py'}")
    assert done.returncode == 3 and "printed no number but nan" in done.stderr, done
    program(tmp_path / "p.py", "import pathlib; f = pathlib.Path(__file__).parent / 'n'; n = f.stat().st_size if f.exists() else 0\n"
            "f.write_bytes(bytes(n + 1)); print('5 of 5', 'nan' if n > 1 else 1)")
    done = mcc(path, NATIVE, "-o", tmp_path / "a.so", f"--metric={tmp_path / 'p.py'}")
    assert done.returncode == 0 and "every product stays in f32" in done.stdout, done


def test_outputs_of_one_file_name(tmp_path):
    done = mcc(product(tmp_path / "net.onnx", "y/a", "y_a"), NATIVE, "-o", tmp_path / "a.so", "--metric=true")
    assert done.returncode == 2 and "would have one name" in done.stderr, done


def test_a_loss_without_a_metric(tmp_path):
    done = mcc(product(tmp_path / "net.onnx", "y"), NATIVE, "-o", tmp_path / "a.so", "--metric-drop=1")
    assert done.returncode == 2 and "--metric=CMD" in done.stderr, done


def test_signals_remove_the_folder(tmp_path):
    """And end the program."""
    path, folder = product(tmp_path / "net.onnx", "y"), tmp_path / "tmp"
    folder.mkdir()
    program(tmp_path / "p.py", "import os, pathlib, time\nat = pathlib.Path(__file__).parent\n(at / 'new').write_text(str(os.getpid()))\n"
            "(at / 'new').rename(at / 'pid')\ntime.sleep(60)")
    run = subprocess.Popen([MCC, path, NATIVE, "-o", tmp_path / "a.so", f"--metric={tmp_path / 'p.py'}"], env={**os.environ, "TMPDIR": str(folder)},
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (tmp_path / "pid").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert list(folder.glob("mcc-metric-*/samples.txt"))
    run.terminate()
    assert run.wait(20) == -signal.SIGTERM and not list(folder.iterdir())
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not pathlib.Path(f"/proc/{pid}/fd").exists() or "(zombie)" in pathlib.Path(f"/proc/{pid}/status").read_text():
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the program still runs")

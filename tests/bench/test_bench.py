"""mcc bench: the calibration and the kernels of a network beside it."""
import collections
import dataclasses
import os
import re
import subprocess
import sys
import threading
import time

import pytest

from bench import callers, calls
from bench.form_table import FORMS
from bench.forms import measure
from bench.run import seconds_of
from support.tool import DIGITS, ROOT, mcc


def test_calibration():
    done = mcc("bench", "--calibrate", "--roofline", "--threads", 2)
    assert done.returncode == 0, done.stderr
    values = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert values["threads"] == "2"
    number = {k: float(v.split()[0]) for k, v in values.items()}
    assert 0 < number["flops"] <= number["flops-best"] * 1.001
    assert number["round-trip"] > 0
    assert len([k for k in number if k.startswith("read-")]) == 4 and all(number[k] > 0 for k in number)


def test_roofline(tmp_path):
    assert mcc(DIGITS, "-o", tmp_path / "digits.so").returncode == 0
    done = mcc("bench", "--roofline", "--runs", 20, tmp_path / "digits.so")
    assert done.returncode == 0, done.stderr
    table = done.stdout[done.stdout.index("us/run"):].splitlines()
    rows = [re.match(r"\s*([\d.]+)\s+(-?[\d.]+)\s+([\d.]+)%\s+([\d.]+)\s+([\d.]+)\s+(\d+)% (fma|memory)\s+(\d+)  (.*)", line)
            for line in table[1:-1]]
    assert rows and all(rows), table
    lost = [float(r[2]) for r in rows]
    assert lost == sorted(lost, reverse=True)
    assert any("Conv" in r[9] and float(r[4]) > 0 for r in rows)
    assert "all kernels" in table[-1]


def test_calls(tmp_path):
    """The driver runs what it is to time; its figures are for a quiet machine, so here they only are in order."""
    runtime = calls.HERE.parents[1] / "runtime"
    subprocess.run([*os.environ.get("CC", "cc").split(), "-O2", "-D_GNU_SOURCE", f"-I{runtime.parent}", calls.HERE / "calls.c",
                    runtime / "mcc_load.c", "-o", tmp_path / "calls", "-ldl"], check=True)
    for name, model in calls.networks(tmp_path).items():
        times = calls.time_call(tmp_path / "calls", model)
        assert 0 < times[0] <= times[1] <= times[2], name


def test_gaps_are_times():
    assert [seconds_of(t) for t in ("0", "100us", "20ms", "1s")] == pytest.approx([0, 1e-4, 0.02, 1])


def test_callers_are_counted_together():
    """Each caller has a thread, and what all of them did is summed: no more than so many sleeps fit a second."""
    ran = collections.Counter()

    def sleep():
        ran[threading.get_ident()] += 1
        time.sleep(0.01)

    assert 0 < callers.rate(sleep, 1, 0.1) <= 100 and len(ran) == 1
    ran.clear()
    start = time.perf_counter()
    rate = callers.rate(sleep, 3, 0.1)
    assert len(ran) == 3 and (sum(ran.values()) - 3) / (time.perf_counter() - start) <= rate <= 300

def test_forms(tmp_path):
    """Forms are compared with ONNX Runtime before they are timed: plain, with an open shape, and of a shape that the data decides."""
    assert len(FORMS) >= 40
    for name in ("Gelu 128x3072", "GRU open 32 steps batch 1 64 to 64", "NonZero 512x512"):
        row, end = measure(name, FORMS[name], [], 1, tmp_path)
        assert end in ("held", "slow"), row
    wrong = FORMS["Gelu 128x3072"]
    assert measure("wrong", dataclasses.replace(wrong, opset=19), [], 1, tmp_path)[1] == "refused"


@pytest.mark.parametrize("form", ["f32", "int4"])
def test_language_models(form):
    """A tiny decoder through all of it: tokens equal to ONNX Runtime's, and a line for each case."""
    done = subprocess.run([sys.executable, ROOT / "tests/bench/llm.py", "--shapes", "tiny", "--forms", form, "--rounds", "1", "--seconds", "0.01",
                           "--past", "5,20", "--prefill", "7"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.startswith(f"tiny {form}, 2 layers: ") and (form != "f32" or head.endswith("; 8 of 8 tokens equal"))
    times = [re.fullmatch(r"  (.*?) +ONNX Runtime +([\d.]+) ms   mcc +([\d.]+) ms   ratio +([\d.]+)   last logits +([\d.]+) ms", line) for line in lines]
    assert [t[1] for t in times] == ["prefill 7", "decode behind 5", "decode behind 20"]

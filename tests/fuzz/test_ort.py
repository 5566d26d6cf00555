"""Random ONNX networks beside ONNX Runtime, a few: `make fuzz-ort` draws as many as one likes. MCC_FUZZ_SEED: the first."""
import argparse
import os
import pathlib
import subprocess
import sys
import time

from fuzz.ort.main import Worker, run
from support.tool import BUILD

N = 300


def test_networks_beside_onnx_runtime():
    seed = int(os.environ.get("MCC_FUZZ_SEED", 1))
    print(f"{N} networks from seed {seed}")
    tally = run(N, seed, os.cpu_count() or 1, keep=BUILD.resolve() / "fuzz-ort")
    assert not tally.bad, f"{tally.summary()}\nmake fuzz-ort N={N} SEED={seed}"
    assert tally.kinds["agree"] > 0.9 * N, tally.summary()


def processes_of(group):
    """Of the group of processes, those that still run."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state != "Z":
            found.append(stat.parent.name)
    return found


def gone(group):
    end = time.monotonic() + 20
    while processes_of(group) and time.monotonic() < end:
        time.sleep(0.05)
    return not processes_of(group)


START = """
import argparse, sys, time
from fuzz.ort.main import Worker
worker = Worker(argparse.Namespace(only=None), None)
worker.start()
print(worker.child.pid, flush=True)
time.sleep(600)
"""


def test_a_worker_takes_its_children_along():
    """Stopped, and when whoever asks it is killed."""
    worker = Worker(argparse.Namespace(only=None), None)
    worker.child = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"], start_new_session=True)
    group = worker.child.pid
    worker.stop()
    assert gone(group)
    host = subprocess.Popen([sys.executable, "-c", START], stdout=subprocess.PIPE)
    group = int(host.stdout.readline())
    assert processes_of(group)
    time.sleep(0.5)
    host.kill()
    host.wait()
    assert gone(group)

"""Random ONNX networks beside ONNX Runtime, a few: `make fuzz-ort` draws as many as one likes. MCC_FUZZ_SEED: the first."""
import argparse
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

from fuzz.ort.elements import TEXT
from fuzz.ort.hostile import main as hostile
from fuzz.ort.hostile import of_size
from fuzz.ort.judge import differs
from fuzz.ort.main import Worker, run
from fuzz.ort.network import NAMED, draw_network
from fuzz.ort.together import Candidate, runs_of, sift
from support.tool import BUILD

N = 300


def test_networks_beside_onnx_runtime():
    seed = int(os.environ.get("MCC_FUZZ_SEED", 1))
    print(f"{N} networks from seed {seed}")
    tally = run(N, seed, os.cpu_count() or 1, keep=BUILD.resolve() / "fuzz-ort")
    assert not tally.bad, f"{tally.summary()}\nmake fuzz-ort N={N} SEED={seed}"
    assert tally.kinds["agree"] > 0.9 * N, tally.summary()


def test_families_by_name():
    """Operators of ONNX Runtime's own, and products that fill tiles of registers."""
    for family in NAMED:
        tally = run(16, 1, os.cpu_count() or 1, [family], quiet=True)
        assert tally.kinds["agree"] > 8 and not tally.kinds["harness"], tally.summary()


def test_hostile_inputs():
    """Runs may fail. tests/fuzz/ort/hostile.py says what they may not."""
    assert hostile(12, 1, []) == 0


def test_hostile_scalars_are_arrays():
    for a in (np.array("text", TEXT), np.array(1.5, np.float32)):
        made = of_size(np.random.default_rng(1), a, [])
        assert isinstance(made, np.ndarray) and made.dtype == a.dtype and made.shape == () and made == a


def test_results_of_a_length_that_a_rounding_decides():
    """Where one shadow is of another length, nothing is determined."""
    a = np.ones((3, 2), np.float32)
    assert differs(a, a + 1, a, a) and not differs(a, a + 1, a, a[:2]) and not differs(a, a + 1, a[:2], a)


def sifted(candidates, folder, alone_agrees):
    """What sift() says of candidates: (seeds that agree together, those judged alone, files found apart as a whole)."""
    together, alone, wholes = [], [], []

    def judge_alone(network):
        alone.append(network.seed)
        return alone_agrees(network.seed)
    sift(candidates, folder, lambda phase: None, lambda n: together.append(n.seed), judge_alone, lambda whole, verdict: wholes.append(verdict.kind))
    return together, alone, wholes


def test_networks_in_one_file(tmp_path):
    """Of several networks in one file the one that differs is judged alone, or one that keeps the file from compiling; where it
    then agrees, the file is what is wrong."""
    drawn = filter(None, (draw_network(seed, ["Add", "Neg", "Relu"]) for seed in range(9000, 9100)))
    networks = [n for n in drawn if n.opset == 13 and n.flags == ("-march=native",)][:4]
    seeds = [n.seed for n in networks]
    assert len(seeds) == 4
    fine = [Candidate(n, runs_of(n)) for n in networks]
    assert sifted(fine, tmp_path, None) == (seeds, [], [])
    other = [Candidate(n, runs_of(n)) for n in networks]
    for results in (other[1].runs[0].plain, other[1].runs[0].best):
        results.update({name: a[None] for name, a in results.items()})
    rest = [s for s in seeds if s != seeds[1]]
    assert sifted(other, tmp_path, lambda seed: False) == (rest, [seeds[1]], [])
    assert sifted(other, tmp_path, lambda seed: True) == (rest, [seeds[1]], ["ours"])
    networks[2].model.graph.node[0].op_type = "NoSuchOperator"
    together, alone, wholes = sifted(fine, tmp_path, lambda seed: seed != seeds[2])
    assert together == seeds[:2] and alone == seeds[2:] and not wholes


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
from fuzz.ort.judge import differs
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

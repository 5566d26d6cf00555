"""Random networks on inputs that nobody would give: indices and lengths outside of everything, NaN, infinities, extents that do not go
together. A run may fail and may give anything, but touches no memory that is not its own, and ends.

usage: hostile.py [N] [SEED] [OPERATOR or family ...]

Networks SEED, SEED + 1, ... of network.py are compiled and run on RUNS inputs each, in memory between pages without access (support/guard.py).
A line for each that ends the process, writes next to a block, or runs for SECONDS.
"""
import os
import pathlib
import select
import subprocess
import sys
import tempfile

import numpy as np

from fuzz.ort.elements import BOOL, TEXT, is_float
from fuzz.ort.judge import made_of
from fuzz.ort.network import draw_network
from support.artifact import Artifact, ModelError
from support.guard import Heap, guarded

RUNS, SECONDS, BYTES = 6, 60, 1 << 24
NUMBERS = (np.nan, np.inf, -np.inf, 3e38, -3e38, -0.0, 1e-40, 2.0 ** 31, -2.0 ** 63, 1e10, 0.5)
INTEGERS = (-1, -2, -9, 0, 1, 2, 5, 17, 100, 2 ** 16, 2 ** 31 - 1, -2 ** 31, 2 ** 31, 2 ** 32, 2 ** 40, 2 ** 62, 2 ** 63 - 1, -2 ** 63)


class SmallHeap(Heap):
    """Gives no large blocks: what an input asks for may be without end."""

    def _alloc(self, user, size, align):
        return None if size > BYTES else super()._alloc(user, size, align)


def changed(rng, a):
    """The array with some or all elements replaced."""
    if a.dtype == TEXT or a.dtype == BOOL or a.size == 0:
        return a
    at = rng.random(a.shape) < rng.choice((0.1, 0.5, 1))
    with np.errstate(all="ignore"):
        if is_float(a.dtype):
            odd = np.array(NUMBERS)[rng.integers(len(NUMBERS), size=a.shape)].astype(a.dtype)
        else:
            odd = np.array(INTEGERS, object)[rng.integers(len(INTEGERS), size=a.shape)]
            odd = np.array([int(v) % 2 ** 64 for v in np.ravel(odd)], np.uint64).reshape(a.shape).astype(a.dtype)
    return np.where(at, odd, a).astype(a.dtype)


def of_size(rng, a, dims):
    """The same kind of elements with other dims."""
    source = a.reshape(-1) if a.size else np.array([""], object) if a.dtype == TEXT else np.zeros(1, a.dtype)
    return np.asarray(source[rng.integers(0, source.size, dims)], source.dtype)      # of no dims too, where numpy gives an element


def feeds_of(rng, network):
    """Feeds as no caller would give them."""
    made = {}
    for port in network.model.graph.input:
        a = network.feeds[port.name]
        if isinstance(a, np.ndarray):
            if rng.random() < 0.3:
                a = of_size(rng, a, [int(rng.choice((0, 1, 2, 7, 33))) if dim.dim_param and rng.random() < 0.6 else n
                                     for dim, n in zip(port.type.tensor_type.shape.dim, a.shape)])
            a = changed(rng, a) if rng.random() < 0.7 else a
        made[port.name] = a
    return made


def attack(network, folder):
    """Runs the network on RUNS hostile inputs; what was wrong, or ""."""
    made, _ = made_of(network.model, folder, network.flags)
    for run in range(RUNS if made else 0):
        rng, heap = np.random.default_rng([network.seed, run]), SmallHeap()
        feeds = feeds_of(rng, network)
        print(f"run {run}", flush=True)
        try:
            with Artifact(made, threads=1, alloc=heap.alloc, release=heap.release) as a:
                a.call([guarded(x) if isinstance(x, np.ndarray) else x for x in (feeds[p.name.decode()] for p in a.inputs)])
        except ModelError:
            pass
        if heap.broken:
            return f"run {run}: bytes next to a block are written"
    if made:
        made.unlink()
    return ""


def serve(first, end, only):
    with tempfile.TemporaryDirectory(prefix="mcc-hostile-") as folder:
        for seed in range(first, end):
            print(f"seed {seed}", flush=True)
            network = draw_network(seed, only)
            if network and not any(n.op_type == "Loop" for n in network.model.graph.node):      # whose trips may have no end
                if said := attack(network, pathlib.Path(folder)):
                    print(f"bad {said}", flush=True)
    print("end", flush=True)


def watched(first, end, only):
    """Lines of a process that serves; ends where it does, or where it says nothing for SECONDS."""
    child = subprocess.Popen([sys.executable, "-m", "fuzz.ort.hostile", "--serve", str(first), str(end), *only], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, bufsize=0, env=dict(os.environ, PYTHONPATH=str(pathlib.Path(__file__).resolve().parents[2])))
    while select.select([child.stdout], [], [], SECONDS)[0]:
        line = child.stdout.readline().decode().strip()
        if not line:
            break
        yield line
    child.kill()
    yield f"status {child.wait()}"


def main(n, seed, only):
    end, bad, at, run = seed + n, 0, seed, "drawing"
    while at < end:
        for line in watched(at, end, only):
            word, _, rest = line.partition(" ")
            if word == "seed":
                at, run = int(rest), "drawing"
            elif word == "run":
                run = line
            elif word == "bad":
                bad += 1
                print(f"seed {at} {rest}", flush=True)
            elif word == "end":
                at = end
            elif word == "status" and at < end:
                if run != "drawing":             # ONNX Runtime's end is not ours
                    bad += 1
                    print(f"seed {at} {run}: status {rest}", flush=True)
                at += 1
    print(f"{n} networks, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, int(sys.argv[2]) if len(sys.argv) > 2 else 1, sys.argv[3:]))

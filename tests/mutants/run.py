"""make mutants: changes of the compiler that its networks reach, each alone: does mcc prove reject what computes wrong results?

usage: run.py [N] [SEED] [--drawn=SEEDS] [--only=SITE.WAY ...] [--folder passes/emit ...]

Each mutant compiles networks that reach it. Where the artifact has other bytes, mcc prove, with the same mutant, gives its verdict,
and the artifact's results are compared with those of the compiler as it is.
"""
import argparse
import collections
import dataclasses
import json
import multiprocessing.pool
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

from mutants.networks import networks
from support.artifact import Artifact, ModelError

BUILD = pathlib.Path(os.environ.get("MCC_BUILD", "build")).resolve() / "mutants"
SITES = 1 << 20
SIZES = [(1, 0), (2, 0), (3, 1), (7, 0), (16, 2), (33, 0), (65, 3)]  # of the first open size, and how much each further one is larger
SLOW = "slow"
DIFFERING, TRIED = 3, 5                                             # networks for a mutant: with another artifact, at all
UNPROVED = "passes/legalize"  # the network that the proof compares with comes from there
ORDER = ["survives", "rejected", "refused", "rejected, though right", "harmless", "the same bytes"]


@dataclasses.dataclass
class Network:
    name: str
    path: object
    options: list
    bytes: bytes     # of its artifact
    results: list    # of each size
    reached: object  # sites


def mcc(*args, mutant=None, reached=None, seconds=15):
    """Status; ended by a signal, or after so much processor time of a process: another than 0."""
    env = {**os.environ, "MCC_CACHE": "off", **({"MCC_MUTANT": mutant} if mutant else {}), **({"MCC_MUTANT_REACHED": str(reached)} if reached else {})}
    command = [BUILD / "mcc", *map(str, args), "-march=native", "-q", "--jobs=1"]
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)))
    try:
        return child.wait(timeout=600)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return -1


def feeds_of(artifact, size, more):
    """Drawn inputs of one size; None: it has no symbols and this is not the first."""
    rng, extents, feeds = np.random.default_rng(size), {}, []
    for i in range(artifact.api.n_in):
        port = artifact.api.in_[i]
        shape = artifact.shape_at(port, extents, size, more)
        kind = (port.dtype.code, port.dtype.bits)
        feeds.append(rng.standard_normal(shape).astype(np.float32) if kind == (2, 32) else
                     rng.integers(0, 256, shape).astype(np.uint8).view(np.int8 if kind[0] == 0 else np.uint8) if kind[1] == 8 else None)
    return feeds if extents or size == 1 else None


def run_all(path, pipe):
    """Sends the outputs of each size, or the code of an error, then None; in a process of its own."""
    with Artifact(path, threads=1) as a:
        for size, more in SIZES:
            feeds = feeds_of(a, size, more)
            if feeds is None:
                continue
            try:
                pipe.send(a.call(feeds))
            except ModelError as e:
                pipe.send(e.code)
    pipe.send(None)


def results(path):
    """Of each size. None: it crashed, or did not end at the first one; SLOW in the end: at a later one."""
    here, there = multiprocessing.Pipe(False)
    child = multiprocessing.get_context("fork").Process(target=run_all, args=(path, there))
    sys.stderr.flush()
    child.start()
    there.close()
    found, end = [], time.monotonic() + 120
    try:
        while here.poll(max(end - time.monotonic(), 0)) and (got := here.recv()) is not None:
            found.append(got)
        found += [] if time.monotonic() < end else [SLOW]
    except EOFError:
        found = None
    child.kill()
    child.join()
    return None if found == [SLOW] else found


def same(want, got):
    """Equal except for rounding; integers that were rounded may miss by one, here and there. What was slow is not compared."""
    if got and got[-1] == SLOW:
        want, got = want[:len(got) - 1], got[:-1]
    if got is None or len(want) != len(got):
        return False
    for w, g in zip(want, got):
        if isinstance(w, int) or isinstance(g, int):
            if isinstance(w, int) != isinstance(g, int):
                return False
            continue
        for a, b in zip(w, g, strict=True):
            a, b = np.asarray(a), np.asarray(b)
            if a.shape != b.shape or a.dtype != b.dtype:
                return False
            if a.dtype.kind == "f":
                scale = np.abs(a[np.isfinite(a)]).max(initial=0)
                if not np.allclose(a, b, rtol=1e-3, atol=1e-4 * scale + 1e-30, equal_nan=True):
                    return False
            elif a.dtype.kind in "iu" and a.dtype.itemsize == 1:
                apart = np.abs(a.astype(int) - b.astype(int))
                if apart.max(initial=0) > 1 or np.count_nonzero(apart) > 0.02 * a.size:
                    return False
            elif (a != b).any():
                return False
    return True


def prepare(folder, drawn):
    """The networks that the compiler proves in 4 s, each with its artifact, results and the sites that it reaches."""
    found = []
    for name, path, options in networks(folder, drawn):
        want, reached = folder / "want.so", folder / "reached"
        reached.write_bytes(bytes(SITES))
        if mcc(path, "-o", want, *options, reached=reached):
            continue
        if mcc("prove", path, "--machine=on", *options, seconds=8) != 0:
            if "random" not in name:
                print(f"{name}: not proved", flush=True)
            continue
        right = results(want)
        if right and any(isinstance(r, list) for r in right):
            found.append(Network(name, path, options, want.read_bytes(), right, np.flatnonzero(np.frombuffer(reached.read_bytes(), np.uint8))))
    return found


def verdict(mutant, among, folder):
    """(word, network, what it did to each)"""
    said, differing = [], 0
    for n in among[:TRIED]:
        got = folder / f"{mutant}.so"
        status = mcc(n.path, "-o", got, *n.options, mutant=mutant, seconds=4)
        if status:
            said.append(("refused", n.name))
        elif got.read_bytes() == n.bytes:
            said.append(("the same bytes", n.name))
        else:
            differing += 1
            right = same(n.results, results(got))
            proved = mcc("prove", n.path, "--machine=on", *n.options, mutant=mutant) == 0
            said.append((("harmless" if right else "survives") if proved else "rejected, though right" if right else "rejected", n.name))
        got.unlink(missing_ok=True)
        if differing == DIFFERING:
            break
    return min(said, key=lambda s: ORDER.index(s[0]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("n", type=int, nargs="?", default=1000)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--drawn", type=int, default=120)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--folder", nargs="*", default=[""])
    options = parser.parse_args()
    sites = json.loads((BUILD / "sites.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        among = prepare(folder, options.drawn)
        reach = collections.defaultdict(list)
        for n in among:
            for s in n.reached:
                reach[int(s)].append(n)
        there = [s for s in sorted(reach) if sites[s]["file"].startswith(tuple(options.folder))]
        all_ways = [(s, w + 1) for s in there for w in range(len(sites[s]["ways"]))]
        print(f"{len(among)} networks reach {len(reach)} sites of {len(sites)}, {len(all_ways)} mutants", flush=True)
        rng = random.Random(options.seed)
        drawn = [tuple(map(int, o.split("."))) for o in options.only] or rng.sample(all_ways, min(options.n, len(all_ways)))
        jobs = [(f"{s}.{w}", rng.sample(reach[s], len(reach[s]))) for s, w in drawn]
        count, by_folder = collections.Counter(), collections.defaultdict(collections.Counter)
        with multiprocessing.pool.ThreadPool(2) as pool:
            for (mutant, _), (word, network) in zip(jobs, pool.imap(lambda j: verdict(*j, folder), jobs)):
                s, w = map(int, mutant.split("."))
                count[word] += 1
                by_folder["/".join(sites[s]["file"].split("/")[:2])][word] += 1
                if word != "the same bytes":
                    print(f"{mutant} {word} ({network}): {sites[s]['file']}:{sites[s]['line']}: {sites[s]['ways'][w - 1]}", flush=True)
    for name, row in sorted(by_folder.items()):
        print(f"{name:24}", ", ".join(f"{row[w]} {w}" for w in ORDER if row[w]))
    print(f"{sum(count.values())} mutants:", ", ".join(f"{count[w]} {w}" for w in ORDER))
    legal = by_folder[UNPROVED]
    for text, rejected, survive in (("wrong results", count["rejected"] - legal["rejected"], count["survives"] - legal["survives"]),
                                    (f"wrong results, of {UNPROVED}, which is not proved,", legal["rejected"], legal["survives"])):
        print(f"{rejected} of {rejected + survive} that compute {text} are rejected")
    return count["survives"] > legal["survives"]


if __name__ == "__main__":
    sys.exit(main())

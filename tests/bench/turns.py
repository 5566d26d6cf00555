"""Short turns of several contenders, one after another, in processor time: so a busy machine may be measured too. By the clock where
there are several threads: then a turn waits until those of the turn before sleep (ONNX Runtime's spin for some 75 ms)."""
import os
import pathlib
import statistics
import time

import numpy as np


clock = time.process_time   # whoever measures several threads takes another one


def turn(run, calls):
    """Seconds of one call."""
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls


def cpu_of(pid):
    """Seconds that the process has used so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settle(pid="self"):
    """Waits until no thread of the process runs: spinning ones take CPUs from whoever is next."""
    for _ in range(30):
        before = cpu_of(pid)
        time.sleep(0.03)
        if cpu_of(pid) == before:
            return


def alternate(runs, rounds, seconds):
    """[round][contender] -> seconds of one call. A turn is as many calls as fill `seconds`; each round begins with another one."""
    calls = []
    for run in runs:
        turn(run, 2)
        calls.append(max(1, int(seconds / max(turn(run, 3), 1e-7))))
    times = [[0.0] * len(runs) for _ in range(rounds)]
    for i in range(rounds):
        for j in range(len(runs)):
            k = (i + j) % len(runs)
            if clock is time.perf_counter:
                settle()
                runs[k]()
            times[i][k] = turn(runs[k], calls[k])
    return times


def medians(times):
    return [statistics.median(column) for column in zip(*times)]


def same_outputs(mine, theirs, tolerance, least, steps=0):
    """Floats within tolerance of the largest element, or least; NaN where NaN is. Others exactly, or, where steps are allowed,
    so many apart in at most one element of a thousand."""
    def same(a, b):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if steps and a.dtype.kind in "iu":
            apart = np.abs(a.astype(np.int64) - b.astype(np.int64))
            return bool(apart.max(initial=0) <= steps and (apart > 0).mean() <= 1e-3)
        if a.dtype.kind not in "fiub":
            return bool((a == b).all())
        scale = np.abs(b[np.isfinite(b)].astype(np.float64)).max(initial=0) if a.dtype.kind == "f" else 0
        return np.allclose(a, b, rtol=0, atol=tolerance * scale + least, equal_nan=a.dtype.kind == "f")
    return len(mine) == len(theirs) and all(same(a, b) for a, b in zip(mine, theirs))

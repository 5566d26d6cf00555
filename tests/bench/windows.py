#!/usr/bin/env python3
"""DLLs under Wine beside shared objects of the same networks: processor time, in turns of two processes (tests/targets/artifacts.c), so that a
busy machine may be measured too. All threads of a process count, Wine's too; its server does not.

usage: windows.py [--threads=1,2] [--rounds=15] [--seconds=0.2] NETWORK.onnx...
"""
import argparse
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile

import numpy as np
import onnx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from bench.run import draw_inputs  # noqa: E402
from support import wine  # noqa: E402
from support.foreign import Foreign  # noqa: E402
from support.tool import ROOT, compile_to  # noqa: E402


class Contender:
    """A process that has opened the artifact and run it once."""

    def __init__(self, command, artifact, inputs, threads):
        self.machine = Foreign("x86_64", command=[*command, str(threads)])
        self.outputs = self.machine.call(artifact, inputs)

    def seconds(self):
        """Of all threads so far, in steps of a nanosecond."""
        tasks = pathlib.Path(f"/proc/{self.machine.process.pid}/task").glob("*/schedstat")
        return sum(int(t.read_text().split()[0]) for t in tasks) / 1e9

    def turn(self, calls):
        """Seconds of one call."""
        before = self.seconds()
        self.machine.process.stdin.write(struct.pack("<q", calls))
        self.machine.process.stdin.flush()
        assert self.machine.words() == (0,), "the run failed"
        return (self.seconds() - before) / calls


def ratio(pair, rounds, seconds):
    """(median of the second one's time over the first one's in a round, milliseconds of both)"""
    calls = max(1, int(seconds / max(c.turn(2) for c in pair)))
    times = [[c.turn(calls) for c in (pair if i % 2 else pair[::-1])][::1 if i % 2 else -1] for i in range(rounds)]
    return statistics.median(b / a for a, b in times), [1e3 * statistics.median(t[i] for t in times) for i in range(2)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("networks", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    if wine.missing():
        sys.exit(f"windows.py: {wine.missing()}: make deps-platforms")
    wine.environment()
    ratios = {}
    print(f"{'network':24} {'threads':>7} {'.so ms':>9} {'.dll ms':>9} {'.dll/.so':>8}")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        linux = folder / "artifacts"
        subprocess.run(["gcc", "-std=gnu11", "-O1", f"-I{ROOT}", f"-I{ROOT}/runtime", "-o", linux, ROOT / "tests/targets/artifacts.c",
                        ROOT / "runtime/mcc_load.c", "-ldl"], check=True)
        for network in args.networks:
            inputs = draw_inputs(onnx.load(network))
            files = [compile_to(folder / "net.so", network, "-march=native"), compile_to(folder / "net.dll", network, wine.TARGET, "-march=native")]
            for threads in map(int, args.threads.split(",")):
                pair = [Contender(command, f, inputs, threads) for command, f in zip(([linux], wine.program()), files)]
                assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*(c.outputs for c in pair), strict=True)), "results differ"
                found, ms = ratio(pair, args.rounds, args.seconds)
                ratios.setdefault(threads, []).append(found)
                print(f"{network.stem:24} {threads:7} {ms[0]:9.3f} {ms[1]:9.3f} {found:8.3f}", flush=True)
                for c in pair:
                    c.machine.__exit__()
    for threads, found in ratios.items():
        print(f"{'geometric mean':24} {threads:7} {statistics.geometric_mean(found):28.3f}")


if __name__ == "__main__":
    main()

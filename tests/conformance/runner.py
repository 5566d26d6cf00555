"""Runs suite cases that were compiled: reads lines "CASE<tab>ARTIFACT", answers "STATUS<tab>TEXT" for each.

A process of its own, so that a crash of compiled code is an answer too (the end of this process).

usage: runner.py [ARCH]     the artifacts are for ARCH and run under qemu-user, those for x86_64-windows under Wine, for wasm32 in Node.js,
                            of x86_64-macos and aarch64-macos by the tests' loader
MCC_GUARD=1: inputs, outputs and the workspace lie between pages without access (support/guard.py).
"""
import os
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from conformance import suite  # noqa: E402
from support import wine  # noqa: E402
from support.artifact import Artifact, ModelError  # noqa: E402
from support.foreign import Foreign  # noqa: E402
from support.guard import Heap, guarded  # noqa: E402
from support.wasm import Wasm  # noqa: E402

GUARD = os.environ.get("MCC_GUARD") == "1"


def outputs(case, artifact, feeds, machine):
    if machine:
        return machine.call(artifact, feeds, suite.optional_inputs(case))
    heap = Heap() if GUARD else None
    if heap:
        feeds = [guarded(f) if isinstance(f, np.ndarray) else f for f in feeds]
    with Artifact(artifact, threads=1, alloc=heap and heap.alloc, release=heap and heap.release) as a:
        if a.api.n_in != len(feeds):
            raise ValueError(f"{len(feeds)} inputs in the model, {a.api.n_in} in the artifact")
        result = a.call(feeds)
    if heap and (heap.broken or heap.blocks):
        raise ValueError(f"{heap.broken} blocks written around, {len(heap.blocks)} not given back")
    return result


def judge(case, artifact, machine):
    feeds, expected = suite.inputs_and_outputs(case)
    try:
        got = outputs(case, artifact, feeds, machine)
    except ValueError as e:
        return "wrong", str(e)
    except ModelError as e:
        return "run error", str(e)
    if len(got) != len(expected):
        return "wrong", f"{len(expected)} outputs expected, got {len(got)}"
    for i, (want, value) in enumerate(zip(expected, got)):
        if text := suite.differs(want, value, case):
            return "wrong", f"output {i}: {text}"
    return "passed", ""


def emulated(arch):
    if arch != "x86_64-windows":
        return Foreign(arch)
    wine.environment()
    return Foreign(arch, command=wine.program())


def main():
    cases = suite.cases()
    arch = sys.argv[1] if len(sys.argv) > 1 else None
    machine = Wasm() if arch == "wasm32" else emulated(arch) if arch else None
    for line in sys.stdin:
        name, artifact = line.rstrip("\n").split("\t")
        try:
            status, text = judge(cases[name], artifact, machine)
        except (EOFError, TimeoutError) as e:
            status, text = "crashed", str(e)
        except Exception as e:
            status, text = "harness error", f"{type(e).__name__}: {e}"
        print(status, " ".join(text.split()), sep="\t", flush=True)


if __name__ == "__main__":
    main()

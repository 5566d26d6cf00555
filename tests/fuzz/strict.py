"""Networks compiled with --strict on every CPU that this machine has or emulates: all give the same bits.

usage: strict.py [N] [SEED] [FILE.onnx ...]

make strict [N=200] [SEED=1] [NETS="FILE.onnx ..."]: N random ONNX networks from number SEED on (fuzz/ort), or the named files, whose open
sizes are 2. Those that do not compile, or end with an error, do so on every CPU.
"""
import pathlib
import sys
import tempfile

import numpy as np
import onnx

from fuzz.ort.network import draw_network
from support.artifact import ModelError
from support.strict import Machines
from support.tool import mcc


def feeds_of(path):
    """Drawn inputs of a file."""
    graph, rng, feeds = onnx.load(path, load_external_data=False).graph, np.random.default_rng(1), []
    weights = {t.name for t in graph.initializer}
    for port in graph.input:
        if port.name not in weights:
            kind = port.type.tensor_type
            shape, dtype = [d.dim_value or 2 for d in kind.shape.dim], onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            feeds.append(rng.standard_normal(shape).astype(dtype) if dtype.kind == "f" else rng.integers(0, 100, shape).astype(dtype))
    return feeds


def drawn(first, n, folder):
    """(name, path, inputs, options) of those of n random networks that compile."""
    for seed in range(first, first + n):
        network = draw_network(seed)
        if not network:
            continue
        path = folder / f"{seed}.onnx"
        onnx.save(network.model, path)
        flags = [f for f in network.flags if "march" not in f]
        if mcc("check", "-q", path, *flags).returncode == 0:
            weights = {t.name for t in network.model.graph.initializer}
            yield seed, path, [network.feeds[p.name] for p in network.model.graph.input if p.name not in weights], flags


def compare(cases, machines, say=print):
    """How many differ, how many there were."""
    bad = count = 0
    for name, path, feeds, flags in cases:
        try:
            text, _ = machines.compare(path, feeds, flags)
        except ModelError:
            continue
        count += 1
        if text:
            bad += 1
            say(f"{name} {' '.join(flags)}: {text}", flush=True)
    return bad, count


def main():
    words = sys.argv[1:]
    files, numbers = [w for w in words if w.endswith(".onnx")], [int(w) for w in words if w.isdigit()]
    n, seed = (numbers + [200, 1][len(numbers):])[:2]
    with tempfile.TemporaryDirectory() as folder, Machines() as machines:
        cases = [(pathlib.Path(f).stem, f, feeds_of(f), []) for f in files] if files else drawn(seed, n, pathlib.Path(folder))
        bad, count = compare(cases, machines)
    print(f"{count - bad} of {count} networks have the same bits everywhere")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

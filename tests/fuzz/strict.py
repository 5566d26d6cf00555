"""Networks compiled with --strict on every CPU that this machine has or emulates: all give the same bits.

usage: strict.py [N] [SEED] [FILE.onnx ...] [--suite=EVERY]

make strict [N=200] [SEED=1] [NETS="FILE.onnx ..."] [EVERY=20]: N random ONNX networks from number SEED on (fuzz/ort), the named files, whose
open sizes are 2, or every EVERY-th case of the ONNX suite that passes; with 1, 2, 3 and 8 threads. Those that do not compile, or end with an
error, do so on every CPU. Where one symbol is the first size of all inputs, each row of 2, 5 and 16 is what it is alone.
"""
import contextlib
import pathlib
import sys
import tempfile

import numpy as np
import onnx

from conformance import passing, suite
from fuzz.ort.network import draw_network
from support.artifact import Artifact, ModelError
from support.strict import Machines, differs
from support.tool import mcc


ROWS = (2, 5, 16)


def feeds_of(path, rows=2):
    """Drawn inputs of a file; rows: the first size, where that is open."""
    graph, rng, feeds = onnx.load(path, load_external_data=False).graph, np.random.default_rng(1), []
    weights = {t.name for t in graph.initializer}
    for port in graph.input:
        if port.name not in weights:
            kind = port.type.tensor_type
            shape, dtype = [d.dim_value or (2 if i else rows) for i, d in enumerate(kind.shape.dim)], onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
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


def sampled(every):
    """Each so many-th case of the suite that passes and has tensors alone as inputs."""
    known = suite.cases()
    for name in passing.passing()[::every]:
        feeds, _ = suite.inputs_and_outputs(known[name])
        if all(isinstance(x, np.ndarray) and x.dtype.kind in "fiub" for x in feeds):
            yield name, known[name].model, feeds, []


def is_of_rows(path):
    graph = onnx.load(path, load_external_data=False).graph
    weights = {t.name for t in graph.initializer}
    first = [p.type.tensor_type.shape.dim[:1] for p in graph.input if p.name not in weights]
    return all(d and d[0].dim_param for d in first) and len({d[0].dim_param for d in first}) == 1


def rows_apart(path, flags, machines):
    """What of some rows is not what it is alone, or ""."""
    feeds = feeds_of(path, max(ROWS))
    with Artifact(machines.compile(path, flags, "rows", "-march=native"), threads=2) as a:
        alone = [np.concatenate(y) for y in zip(*(a.call([x[i:i + 1] for x in feeds]) for i in range(max(ROWS))))]
        found = [(n, differs([y[:n] for y in alone], a.call([x[:n] for x in feeds]))) for n in ROWS]
    return "; ".join(f"{n} rows: {text}" for n, text in found if text)


def compare(cases, machines, say=print, rows=False):
    """How many differ, how many there were."""
    bad = count = 0
    for name, path, feeds, flags in cases:
        try:
            text, _ = machines.compare(path, feeds, flags)
        except ModelError:
            continue
        if rows and is_of_rows(path):
            with contextlib.suppress(ModelError):
                text = "; ".join(filter(None, (text, rows_apart(path, flags, machines))))
        count += 1
        if text:
            bad += 1
            say(f"{name} {' '.join(flags)}: {text}", flush=True)
    return bad, count


def main():
    words = sys.argv[1:]
    files, numbers = [w for w in words if w.endswith(".onnx")], [int(w) for w in words if w.isdigit()]
    n, seed = (numbers + [200, 1][len(numbers):])[:2]
    every = next((int(w.partition("=")[2]) for w in words if w.startswith("--suite=")), 0)
    with tempfile.TemporaryDirectory() as folder, Machines(threads=(1, 2, 3, 8)) as machines:
        cases = [(pathlib.Path(f).stem, f, feeds_of(f), []) for f in files] if files else sampled(every) if every else drawn(seed, n, pathlib.Path(folder))
        bad, count = compare(cases, machines, rows=bool(files))
    print(f"{count - bad} of {count} networks have the same bits everywhere")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

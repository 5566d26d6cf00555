"""Every operator of passes/legalize/aten.def, compiled and run beside what PyTorch gave (calls.npz, which record.py writes)."""
import json
import pathlib
import re

import numpy as np
import pytest

from pt2 import calls
from pt2.writer import Program, Ref, SCHEMAS
from support.artifact import Artifact
from support.tool import ROOT, mcc

HERE = pathlib.Path(__file__).resolve().parent
TOGETHER = 24    # calls of one program
# Numbers of the run, which test_programs.py has.
ELSEWHERE = {"sym_size.int", "sym_numel.default", "item.default", "_local_scalar_dense.default"}


def recorded():
    """What each call gave: {number: [arrays]}."""
    stored, at, results = np.load(HERE / "calls.npz"), 0, {}
    for k, dtype, shape in json.loads(str(stored["index"])):
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        results.setdefault(k, []).append(np.frombuffer(stored["data"][at:at + size].tobytes(), dtype).reshape(shape))
        at += size
    return results


WANT = recorded()


def of_parts(value):
    """Complex numbers as the border of a program has them."""
    return value if value.dtype.kind != "c" else np.stack([value.real, value.imag], -1)


def add(program, k, feeds):
    """Call k: its tensors become inputs, its results outputs."""
    name, args, keywords = calls.drawn(k)

    def given(value, at):
        if isinstance(value, list) and any(isinstance(v, np.ndarray) for v in value):
            return [given(v, f"{at}_{n}") for n, v in enumerate(value)]
        if not isinstance(value, np.ndarray):
            return value
        parts = of_parts(value)
        feeds.append(parts)
        fed = program.input(f"in{k}_{at}", parts.dtype, parts.shape)
        return fed if parts is value else program.node("aten.view_as_complex.default", [fed], [(f"in{k}_{at}_z", value.dtype, value.shape)])
    args = [given(a, n) for n, a in enumerate(args)]
    keywords = {n: given(v, n) for n, v in keywords.items()}
    want = WANT[k]
    results = [(f"out{k}_{n}", w.dtype, w.shape) for n, w in enumerate(want)]
    program.node(".".join(calls.target(name)), args, results, keywords)
    for n, w in enumerate(want):
        if of_parts(w) is not w:
            program.node("aten.view_as_real.default", [Ref(f"out{k}_{n}")], [(f"out{k}_{n}_r", of_parts(w).dtype, of_parts(w).shape)])
            want[n], results[n] = of_parts(w), (f"out{k}_{n}_r",) + results[n][1:]
    shown = [w for w in want[:1 if name in calls.FIRST else None] if w.size or w.dtype != np.float32 or w.shape != (0,)]
    program.output(*(Ref(name) for (name, _, _), w in zip(results, want) if any(w is s for s in shown)))
    return shown


def close(got, want):
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if not np.issubdtype(want.dtype, np.floating):
        return np.array_equal(got, want)
    scale = np.abs(want[np.isfinite(want)]).max(initial=1e-6)
    return np.allclose(got, want, rtol=2e-3 if want.dtype == np.float16 else 2e-5, atol=float(scale) * (2e-3 if want.dtype == np.float16 else 5e-6),
                       equal_nan=True)


def agrees(name, got, want):
    if name in calls.RANDOM:
        return got.dtype == want.dtype and got.shape == want.shape
    if "upsample" in name and want.dtype == np.uint8:    # PyTorch's weights are of 16 bits
        return got.dtype == want.dtype and np.abs(got.astype(int) - want).max() <= 1
    return close(got, want)


@pytest.mark.parametrize("first", range(0, len(calls.CALLS), TOGETHER))
def test_calls(tmp_path, first):
    program, feeds, wanted = Program(), [], []
    for k in range(first, min(first + TOGETHER, len(calls.CALLS))):
        wanted += [(k, w) for w in add(program, k, feeds)]
    if not program.inputs:
        feeds.append(np.zeros(1, np.float32))
        program.input("unused", np.dtype("float32"), (1,))
    path = program.save(tmp_path / "calls.pt2")
    done = mcc(path, "-o", tmp_path / "calls.so")
    assert done.returncode == 0, done.stderr
    with Artifact(tmp_path / "calls.so") as a:
        wrong = [(calls.CALLS[k], g, w) for g, (k, w) in zip(a.run(feeds), wanted) if not agrees(calls.CALLS[k][0], g, w)]
    assert not wrong, "\n".join(f"{c}:\n{g}\nis not\n{w}" for c, g, w in wrong)


def test_every_row_is_called():
    rows = re.findall(r'^ROW\d?\("(\w+)", (.*?), \d+,', (ROOT / "passes/legalize/aten.def").read_text(), re.M)
    rows = {(domain, op) for domain, ops in rows for op in ops.split(", ") if domain != "higher_order"}    # their arguments are graphs
    assert rows == set(SCHEMAS), "frontend/pt2/schemas.py has to be run"
    rows = {(domain, op) for domain, op in rows if "." in op}    # others are Python's, on numbers
    assert rows - {calls.target(name) for name, _, _ in calls.CALLS} == {("aten", op) for op in ELSEWHERE}
    listed = mcc("--list-ops").stdout
    assert all(re.search(rf"^{domain} +{re.escape(op)} ", listed, re.M) for domain, op in rows)

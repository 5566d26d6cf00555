"""One network in mcc and in ONNX Runtime, optimised and not; what came of it has one of these classes:

    agree      all three gave the same, within the bounds below
    ours       mcc's result is another than both of ONNX Runtime's
    theirs     ONNX Runtime's two results differ; mcc's is one of them
    refused    mcc refuses to compile what ONNX Runtime runs
    run        a run of the compiled network ends with an error where ONNX Runtime's does not
    check      mcc check and mcc compile do not agree on whether it can be compiled
    crash      exit status 5, a signal, or no end
    invalid    ONNX Runtime does not load or run it (each node alone it did)

Bounds: integers and booleans exactly (quantized ones by one, where a rounding in front of it decides), floats by
RELATIVE times the element, FLOOR times the largest element (LEAST at the least), and twice what the shadows say (draw.py).
Infinities and NaN stand at the same places.
"""
import dataclasses
import itertools
import pathlib
import re
import subprocess

import numpy as np
import onnx

from fuzz.ort.eager import session
from fuzz.ort.elements import BF16, F16, F32, F64, F8, is_float
from support.artifact import Artifact, ModelError
from support.guard import Heap, guarded
from support.tool import MCC

SECONDS = 120
RELATIVE = {F32: 2e-5, F64: 1e-10, F16: 4e-3, BF16: 2e-2}
LEAST = {F32: 1e-7, F64: 1e-15, F16: 1e-4}
NUMBERS = itertools.count()
FLOOR = {F32: 2e-6, F64: 1e-12, F16: 1e-3, BF16: 8e-3}


@dataclasses.dataclass
class Verdict:
    kind: str
    text: str = ""
    feeds: dict = None             # the inputs, where they are of other sizes than those that were drawn

    @property
    def signature(self):
        """The text without names and numbers: what counts as the same."""
        text = re.sub(r"'[^']*'|\"[^\"]*\"", "_", re.sub(r"\b[a-z]+\d*\[[^\]]*\]", "T", self.text))
        return self.kind + ": " + re.sub(r"-?\d[\d.]*(e[-+]?\d+)?", "N", text)[:160]


# ---- comparison -----------------------------------------------------------------------------------------------------

def differs(want, got, low=None, high=None):
    """How two results differ, or "". low, high: the shadows of the first, where they are known."""
    if isinstance(want, list) or isinstance(got, list):
        if not isinstance(got, list) or not isinstance(want, list) or len(want) != len(got):
            return "a sequence of another length"
        shadows = zip(low, high) if isinstance(low, list) else [(None, None)] * len(want)
        return next(filter(None, (differs(w, g, *s) for w, g, s in zip(want, got, shadows))), "")
    if want is None or got is None:
        return "" if want is got else "an absent value on one side"
    want, got = np.asarray(want), np.asarray(got)
    if want.dtype != got.dtype:
        return f"{want.dtype} expected, got {got.dtype}"
    if want.shape != got.shape:
        return f"{list(want.shape)} expected, got {list(got.shape)}"
    if low is not None and {low.shape, high.shape} != {want.shape}:
        return ""                                      # of other sizes than those that were drawn: not determined
    bad = apart(want, got, low, high)
    if not bad.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {want.size} differ, first at {list(at)}: {want[at]} expected, got {got[at]}"


def apart(want, got, low, high):
    """Where two arrays of one shape and type differ."""
    if want.dtype.kind in "OUS" or want.size == 0:
        return np.asarray(want != got)
    if not is_float(want.dtype):
        if low is None or np.array_equal(low, high) and np.array_equal(low, want):
            return np.asarray(want != got)
        wide = np.int64 if want.dtype != np.uint64 else np.float64
        return np.abs(want.astype(wide) - got.astype(wide)) > np.maximum(
            1, np.maximum(np.abs(low.astype(wide) - want.astype(wide)), np.abs(high.astype(wide) - want.astype(wide))))
    with np.errstate(all="ignore"):
        w, g = want.astype(np.float64), got.astype(np.float64)
        allowed = RELATIVE.get(want.dtype, 0.13) * np.abs(w) + FLOOR.get(want.dtype, 0.05) * np.max(np.abs(w[np.isfinite(w)]), initial=0)
        undetermined = np.zeros(w.shape, bool)
        if low is not None:
            l, h = low.astype(np.float64), high.astype(np.float64)
            allowed = allowed + 2 * np.maximum(np.abs(l - w), np.abs(h - w))
            undetermined = (np.isfinite(l) != np.isfinite(w)) | (np.isfinite(h) != np.isfinite(w)) | ~np.isfinite(w) & ((l != w) | (h != w)) & (
                ~np.isnan(w) | (l == l) | (h == h))
        near = np.abs(w - g) <= np.maximum(allowed, LEAST.get(want.dtype, 1e-3))
        same = np.isnan(w) & np.isnan(g) | (w == g) | np.isfinite(w) & np.isfinite(g) & near
        largest = 65504 if want.dtype == F16 else 448 if want.dtype in F8 else 3.3e38 if want.dtype != F64 else 1.7e308
        return ~(same | undetermined | (np.abs(w) >= largest) & (np.abs(g) >= largest) & (np.sign(w) == np.sign(g)) & (low is not None))


# ---- ONNX Runtime -----------------------------------------------------------------------------------------------------

def runtime(model, feeds, optimise):
    """(results by port, None), or (None, what it said)."""
    try:
        s = session(model, optimise)
        names = [o.name for o in s.get_outputs()]
        return dict(zip(names, s.run(None, {i.name: feeds[i.name] for i in s.get_inputs()}))), None
    except Exception as e:               # of many classes
        return None, str(e)


# ---- mcc ------------------------------------------------------------------------------------------------------------

def command(*args):
    """(exit status, or minus a signal, or None: no end in time; what it said)."""
    try:
        done = subprocess.run([MCC, *map(str, args)], capture_output=True, text=True, errors="replace", timeout=SECONDS)
        return done.returncode, done.stderr
    except subprocess.TimeoutExpired:
        return None, f"no end within {SECONDS} s"


def first_error(text):
    line = next((l for l in text.splitlines() if ": error:" in l), text.strip().splitlines()[0] if text.strip() else "")
    return line.split(": error:", 1)[-1].strip()


def compiled(path, made, flags):
    """None, or the verdict of a compilation that gave nothing. Check and compile must agree."""
    checked, said = command("check", path)
    status, text = command(path, "-o", made, *flags)
    for code, words in ((checked, said), (status, text)):
        if code is None or code < 0 or code == 5:
            return Verdict("crash", f"{code}: {first_error(words)}")
    if (checked == 0) != (status == 0):
        return Verdict("check", f"check {checked}, compile {status}: {first_error(text or said)}")
    return None if status == 0 else Verdict("refused", first_error(text))


def execute(made, feeds, names):
    """(results by port, None), or (None, the error of the run). Memory that it may not touch surrounds each block."""
    heap = Heap()
    try:
        with Artifact(made, threads=1, alloc=heap.alloc, release=heap.release) as a:
            given = [feeds[p.name.decode()] for p in a.inputs]
            results = a.call([guarded(x) if isinstance(x, np.ndarray) else x for x in given])
    except ModelError as e:
        return None, str(e)
    return (None, "bytes beside a block are written") if heap.broken else (dict(zip(names, results)), None)


@dataclasses.dataclass
class Run:
    """What ONNX Runtime makes of some feeds."""
    feeds: dict
    known: dict                    # {port: (result, shadow, shadow)}
    plain: dict                    # results by port without optimisations, and with them (None: does not run so)
    best: dict


def drawn_run(model, feeds, values):
    """(the Run on the feeds that were drawn, None), or (None, the verdict where there is none)."""
    plain, why = runtime(model, feeds, False)
    if plain is None:
        return None, Verdict("invalid", why)
    return Run(feeds, values, plain, runtime(model, feeds, True)[0]), None


def resized_run(model, feeds, values):
    """The Run on feeds of other sizes, or None where ONNX Runtime does not run these."""
    known = spread(model, feeds, values)
    return Run(feeds, known, {n: v[0] for n, v in known.items()}, runtime(model, feeds, True)[0]) if known else None


def judge(model, feeds, values, folder, flags=("-march=native",), more=(), phase=lambda name: None):
    """The verdict on a model (onnx.ModelProto). values: {port: (array, shadow, shadow)}; more: feeds of other sizes, which
    count where ONNX Runtime runs them; folder: for files; phase: told what is going on, in case it ends this process."""
    phase("ONNX Runtime")
    run, verdict = drawn_run(model, feeds, values)
    if not run:
        return verdict
    phase("mcc")
    made, verdict = made_of(model, folder, flags)
    if verdict:
        return verdict
    try:
        phase("run")
        verdict = beside(run, *execute(made, feeds, ports_of(model)))
        for other in more if verdict.kind == "agree" else ():
            phase("ONNX Runtime, other sizes")
            run = resized_run(model, other, values)
            phase("run, other sizes")
            if run and verdict.kind == "agree":
                verdict = beside(run, *execute(made, other, ports_of(model)))
                verdict.feeds = other if verdict.kind != "agree" else None
        return verdict
    finally:
        made.unlink()


def ports_of(model):
    return [o.name for o in model.graph.output]


def made_of(model, folder, flags):
    """(the artifact, None), or (None, the verdict of a compilation that gave none)."""
    number = next(NUMBERS)               # a path that was loaded once gives the same object again
    path, made = pathlib.Path(folder) / "net.onnx", pathlib.Path(folder) / f"net{number}.so"
    onnx.save(model, path)
    verdict = compiled(path, made, flags)
    return (None, verdict) if verdict else (made, None)


def beside(run, got, why):
    """The verdict on a run: results by port, or the error."""
    if got is None:
        return Verdict("run", why)
    apart_by = []
    for name, want in run.plain.items():
        shadows = run.known.get(name, (None, None, None))[1:]
        ours = differs(want, got[name], *shadows)
        own = differs(want, run.best[name], *shadows) if run.best else ""
        if ours and (run.best is None or differs(run.best[name], got[name], *shadows)):
            return Verdict("ours", f"{name}: {ours}")
        if ours or own:
            apart_by.append(f"{name}: {own or ours}")
    if run.best is None:
        return Verdict("theirs", "does not run with optimisations")
    return Verdict("theirs", apart_by[0]) if apart_by else Verdict("agree")


def spread(model, feeds, values):
    """{port: (result, shadow, shadow)} where the floats among the feeds are wrong a little, either way, and the results as
    much more as the shadows in `values` (of other sizes) are apart; None where ONNX Runtime does not run these feeds."""
    rng = np.random.default_rng(1)
    plain, _ = runtime(model, feeds, False)
    if plain is None:
        return None
    runs = []
    for sign in (1, -1):
        moved = {n: (a * (1 + sign * (2e-6 if a.dtype != F16 else 2e-3) * rng.choice((-1, 1), a.shape))).astype(a.dtype)
                 if is_float(a.dtype) else a for n, a in feeds.items()}
        runs.append(runtime(model, moved, False)[0] or {})
    return {n: (v, *(shadow(v, r.get(n), values.get(n), sign) for r, sign in zip(runs, (1, -1)))) for n, v in plain.items()}


def shadow(result, moved, known, sign):
    if not isinstance(result, np.ndarray) or not is_float(result.dtype) or known is None or not isinstance(moved, np.ndarray):
        return moved
    with np.errstate(all="ignore"):
        a, l, h = (x.astype(np.float64) for x in known)
        part = np.nanmax(np.abs(l - h), initial=0) / max(np.nanmax(np.abs(a), initial=0), 1e-30)
        more = part * np.nanmax(np.abs(result.astype(np.float64)), initial=0)
        return (moved + sign * more).astype(result.dtype) if np.isfinite(more) and more and moved.shape == result.shape else moved


def everything(model, feeds, values):
    """What `values` is, of every tensor of the network, for feeds of other sizes."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    have = {o.name for o in wide.graph.output}
    wide.graph.output.extend(onnx.helper.make_empty_tensor_value_info(o) for n in wide.graph.node for o in n.output if o and o not in have)
    found = spread(wide, feeds, values) or spread(model, feeds, values)
    return {**{t.name: values[t.name] for t in model.graph.initializer if t.name in values},
            **{n: (a, a, a) for n, a in feeds.items()}, **(found or {})}

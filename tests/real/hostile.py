"""The generator of bad models beside the project (../shared/hostile/badmodels.py): every row of its index.

Compile-time rows: the exit code, the index's word in the message, processor time and peak memory. Run-time rows: what the
`feed` column says, written out in FEEDS, at -O0 and at -O2 with equal answers, and never a signal.
"""
import csv
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from judge import Judge
from support.tool import DIGITS
from support.usage import OVERDUE, usage

SECONDS, BYTES = (10, 2 << 30) if "address" in os.environ.get("MCC_BUILD", "") else (2, 512 << 20)
RUN_SECONDS = 60
BIG = 1 << 62
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
ACCEPTED = ("pad_reflect",)   # the index wants a refusal; docs/notes/onnx-decisions.md: beyond the size it reflects again
ERROR, ENDS = "an error", "an end"   # ENDS: an error or any value, the same at every level


def f(*xs):
    return np.array(xs, np.float32)


def i(*xs):
    return np.array(xs, np.int64)


def n(x):
    return np.array(x, np.int64)


def column(*xs):
    return i(*xs).reshape(-1, 1)


def gather_like(index):
    return [([f(1, 2, 3, 4), index(-1)], [f(4)])] + \
        [([f(1, 2, 3, 4), index(k)], ERROR) for k in (4, -5, 1 << 40, INT64_MIN)] + [([f(), index(0)], ERROR)]


def scatter_like(index):
    return [([f(1, 2, 3, 4), index(1), f(9)], [f(1, 9, 3, 4)])] + \
        [([f(1, 2, 3, 4), index(k), f(9)], ERROR) for k in (4, -5, 1 << 40)]


def starts(*values):
    """(x, a, b, c, e): starts, ends, axes, steps of Slice"""
    return [f(*range(8))] + [i(v) for v in values]


def nms(box, score, limit):
    return [np.full((1, 3, 4), box, np.float32), np.full((1, 1, 3), score, np.float32), i(limit), f(0.5)]


def distinct(outputs):
    indices = outputs[1]
    return len(set(indices.tolist())) == 2 and ((0 <= indices) & (indices < 4)).all()


# run_<name>.onnx -> [(inputs, outputs, ERROR, ENDS or a predicate of the outputs)]
FEEDS = {
    "gather": gather_like(i),
    "gather_elements": gather_like(i),
    "gathernd": gather_like(column),
    "scatternd": scatter_like(column),
    "scatter_elements": scatter_like(i) + [([f(1, 2, 3, 4), i(1, 1), f(8, 9)], ENDS)],
    "div": [([np.array(a, np.int32), np.array(b, np.int32)], ENDS) for a, b in (([7], [0]), ([-2 ** 31], [-1]))],
    "mod": [([i(7), i(0)], ENDS), ([i(INT64_MIN), i(-1)], ENDS)],
    "bitshift": [([np.array([1], np.uint64), np.array([s], np.uint64)], ENDS) for s in (64, 65, 2 ** 64 - 1)],
    "cast": [([f(np.nan, np.inf, -np.inf, 3e9, -3e9)], ENDS)],
    "reshape": [([f(*range(6)), i(2, 3)], [f(*range(6)).reshape(2, 3)])] +
    [([f(*range(6)), i(*s)], ERROR) for s in ((4, 2), (-1, -1), (-2, -3), (BIG, 4))],
    "expand": [([f(1), i(*s)], ERROR) for s in ((1, 1 << 40), (1, -1), (1 << 32, 1 << 32))],
    "constantofshape": [([i(*s)], ERROR) for s in ((1, 1 << 40), (1, -1), (1 << 32, 1 << 32))],
    "tile": [([f(1, 2), i(-1)], ERROR), ([f(1, 2), i(BIG)], ERROR), ([f(1, 2), i(0)], [f()])],
    "pad": [([f(1, 2, 3), i(-9, 0)], ERROR), ([f(1, 2, 3), i(INT64_MAX, INT64_MAX)], ERROR)],
    "slice": [(starts(0, 4, 0, 0), ERROR), (starts(INT64_MIN, INT64_MAX, 0, 1), [f(*range(8))]),
              (starts(0, 4, 0, INT64_MIN), ENDS), (starts(7, INT64_MIN, 0, INT64_MIN), [f(7)]), (starts(0, 4, 7, 1), ERROR)],
    "topk": [([f(1, 2, 3, 4), i(k)], ERROR) for k in (5, -1, 1 << 40)] + [([f(*[np.nan] * 4), i(2)], distinct)],
    "nms": [(nms(np.nan, np.nan, INT64_MAX), ENDS), (nms(np.nan, np.nan, -1), ENDS), (nms(0, 1, INT64_MAX), ENDS)],
    "nonzero": [([f(np.nan, -0.0, 0, 1)], [i(0, 3).reshape(1, 2)]), ([f()], [np.zeros((1, 0), np.int64)])],
    "range": [([n(0), n(5), n(0)], ERROR), ([n(INT64_MIN), n(INT64_MAX), n(1)], ERROR), ([n(0), n(BIG), n(1)], ERROR)],
    "onehot": [([i(1), i(-1), f(0, 1)], ERROR), ([i(1), i(1 << 40), f(0, 1)], ERROR), ([i(99), i(4), f(0, 1)], [f(0, 0, 0, 0).reshape(1, 4)])],
}


def same(a, b):
    return len(a) == len(b) and all(x.dtype == y.dtype and np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(a, b))


def fits(want, status, value):
    if status not in ("value", "run error"):
        return False
    if want is ENDS:
        return True
    if want is ERROR:
        return status == "run error"
    return status == "value" and (want(value) if callable(want) else same(want, value))


def check_feeds(judge, name, artifacts):
    """What is wrong with the answers, or nothing."""
    for inputs, want in FEEDS[name]:
        shown = " ".join(np.array2string(x.reshape(-1), threshold=4) for x in inputs)
        answers = [judge.ask(RUN_SECONDS, "feed", a, inputs) for a in artifacts]
        for status, value in answers:
            if not fits(want, status, value):
                return f"{shown}: {want if isinstance(want, str) else 'a value'} expected, got {status} {str(value)[:80]}"
        if answers[0][0] != answers[1][0] or (answers[0][0] == "value" and not same(answers[0][1], answers[1][1])):
            return f"{shown}: -O0 and -O2 differ: {answers}"
    return ""


def check_run(judge, mcc, path, folder):
    # a name of its own for each: the judge's process keeps what it has opened
    artifacts, name = [folder / f"{path.stem}{level}.so" for level in (0, 2)], path.stem.removeprefix("run_")
    for level, artifact in zip(("-O0", "-O2"), artifacts):
        done = subprocess.run([mcc, level, "-march=native", "-q", path, "-o", artifact], capture_output=True, text=True)
        if done.returncode:
            return f"{level}: exit {done.returncode}: {done.stderr.strip()[:160]}"
    if name == "add":
        status, text = judge.ask(RUN_SECONDS, "misused", artifacts[1])
        return "" if status == "matched" else f"{status}: {text}"
    if name == "loop":
        x = np.ones((2, 3), np.float32)
        for trips, want in ((-1, "value"), (BIG, "cancelled")):
            status, text = judge.ask(RUN_SECONDS, "cancelled", artifacts[1], [n(trips), x])
            if status != want:
                return f"m={trips}: {want} expected, got {status}: {text}"
        return ""
    return check_feeds(judge, name, artifacts)


def check_compile(mcc, row, path, folder):
    config = row["category"] == "config"
    code, text, seconds, peak = usage([mcc, *([f"--config={path}", DIGITS] if config else [path]), "-o", folder / "bad.so"], 10 * SECONDS)
    shown = f"exit {code}: {text.decode(errors='replace').strip()[:160]}"
    if code == OVERDUE:
        return f"no end in {10 * SECONDS} s"
    want = (0,) if row["expected"] == "accept" else (3,) if row["file"].startswith("special") else (1, 2, 4) if config else (1, 4)
    if (row["stage"] == "any" or path.stem.endswith(ACCEPTED)) and code == 0:
        want = (0,)
    if code not in want:
        return shown
    if code and row["names"] not in ("-", "") and row["names"].encode() not in text:
        return f"'{row['names']}' is not in: {shown}"
    if code and path.name.encode() not in text:
        return f"the file's name is not in: {shown}"
    if b"LEAKED" in text or (folder / "bad.so").exists() and b"LEAKED-BYTES" in (folder / "bad.so").read_bytes():
        return "bytes from outside the model's folder"
    return f"{seconds:.1f} s, {peak >> 20} MiB" if seconds > SECONDS or peak > BYTES else ""


def check(generator, only=""):
    """One line for each row that is not answered as its index says, and the count; returns the list of those."""
    mcc, judge, bad = os.environ["MCC"], Judge(), []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        subprocess.run([sys.executable, generator, scratch / "bad"], check=True, stdout=subprocess.DEVNULL)
        with open(scratch / "bad/index.tsv") as index:
            rows = [r for r in csv.DictReader(index, delimiter="\t", quoting=csv.QUOTE_NONE) if only in r["file"]]
        for row in rows:
            path = scratch / "bad" / row["file"]
            text = check_run(judge, mcc, path, scratch) if row["stage"] == "run" else check_compile(mcc, row, path, scratch)
            (scratch / "bad.so").unlink(missing_ok=True)
            if text:
                bad.append(f"{row['file']}: {text}")
                print(f"wrong           {row['file']:40} {row['wrong']}: {text}", flush=True)
    print(f"hostile: {len(rows)} files, {len(rows) - len(bad)} answered as the index says, {len(bad)} not")
    return bad


if __name__ == "__main__":
    sys.exit(1 if check(pathlib.Path(sys.argv[1])) else 0)

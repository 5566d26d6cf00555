"""What must not matter, in the field of mcc prove: results there are exact, so all of these give the same bits.

usage: exact.py [N] [SEED] [--only NAME ...]       make fuzz-exact [N=10000] [SEED=1]

Networks are those of mutants/networks.py and random ones (fuzz/ort) that mcc prove proves. N times one of them is compiled otherwise: for another CPU
that this machine runs, with other options, other fields of the schedules (--schedules), --choose, fixed sizes; or the network is another one that
computes the same (equal.py). The artifact runs with one thread and with three between pages without access. Each result has the bits of
the first artifact.

What differs is compared by mcc prove as well, in the same form: `proved` (a hole of the proof), `differs`, `open` (not proved for another reason,
which is counted). The first two, crashes, and statuses of mcc other than 0 and 2 end the command with status 1; each is kept in
BUILD/fuzz-exact/SEED-NUMBER.
"""
import argparse
import collections
import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx

from fuzz.equal import equal
from mutants.networks import own, random
from support.artifact import Artifact, ModelError
from support.guard import Heap
from support.strict import EVERY_NATIVE
from support.tool import BUILD, MCC, dense

MODULUS = 2129858011  # FIELD_N of ir/ops/field.h
CPUS = ["x86-64-v2", *EVERY_NATIVE]
SIZES = [(1, 0), (2, 1), (7, 0), (19, 2)]          # of the first open size, and how much each further one is larger
SOME = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64]
NAMES = {"f32": (2, 32), "f64": (2, 64), "f16": (2, 16), "i8": (0, 8), "i32": (0, 32), "i64": (0, 64), "u8": (1, 8), "bool": (6, 8)}
COORDINATES = ("Resize", "Upsample")               # which an open size takes from floats, thus from the field, and a fixed one from numbers
RUNS, SECONDS = 300, 60                            # of one process; for one artifact


# ---- running -------------------------------------------------------------------------------------------------------------------------------

def feeds_of(a, first, more):
    """(inputs, options that fix their sizes); None: the ports are not of plain numbers, or there are no open sizes and this is not the first."""
    rng, extents, feeds, fixed = np.random.default_rng(first), {}, [], []
    for port in a.inputs:
        shape, kind = a.shape_at(port, extents, first, more), (port.dtype.code, port.dtype.bits)
        if kind not in NAMES.values() or port.flags:
            return None
        if kind[0] == 2 and kind[1] != 16:  # residues in the (lower) four bytes
            x = rng.integers(0, MODULUS, shape).astype(np.uint32 if kind[1] == 32 else np.uint64).view(np.float32 if kind[1] == 32 else np.float64)
        elif kind[0] == 2:
            x = rng.integers(-32, 32, shape).astype(np.float16)
        else:
            x = rng.integers(-3 if kind[0] == 0 else 0, 2 if kind[0] == 6 else 4, shape)
            x = x.astype(np.bool_ if kind[0] == 6 else f"{'iu'[kind[0]]}{kind[1] // 8}")
        feeds.append(x)
        fixed.append(f"--input={port.name.decode()}:{next(n for n, k in NAMES.items() if k == kind)}[{','.join(map(str, shape))}]")
    return (feeds, fixed) if extents or first == SIZES[0][0] else None


def call(a, feeds):
    try:
        return a.call(feeds)
    except ModelError as e:
        return e.code


def serve(pipe):
    """Takes (artifact, threads, sizes or inputs), sends results; in a process of its own."""
    while True:
        path, threads, asked = pipe.recv()
        try:
            heap = Heap()
            with Artifact(path, threads=threads, alloc=heap.alloc, release=heap.release) as a:
                if asked is None:
                    found = [(*given, call(a, given[0])) for size in SIZES if (given := feeds_of(a, *size))]
                else:
                    found = [call(a, feeds) for feeds in asked]
        except ModelError as e:
            found = f"it does not load: {e}"
        pipe.send("it writes beyond its memory" if heap.broken else found)


class Runner:
    """A process that runs artifacts, renewed when one of them ends it."""

    def __init__(self):
        self.child, self.left = None, 0

    def close(self):
        if self.child:
            self.child.kill()
            self.child.join()
        self.child = None

    def run(self, path, threads, asked=None):
        """Results of each size; a text: what went wrong."""
        if not self.left or not self.child:
            self.close()
            self.pipe, there = multiprocessing.Pipe()
            self.child = multiprocessing.get_context("fork").Process(target=serve, args=(there,), daemon=True)
            sys.stdout.flush()
            self.child.start()
            there.close()
            self.left = RUNS
        self.left -= 1
        self.pipe.send((path, threads, asked))
        try:
            if self.pipe.poll(SECONDS):
                return self.pipe.recv()
            text = f"it does not end within {SECONDS} s"
        except EOFError:
            self.child.join()
            text = f"it ends by signal {-self.child.exitcode}"
        self.close()
        return text


def alike(want, got):
    """What differs, or ""."""
    if isinstance(want, int) or isinstance(got, int):
        return "" if isinstance(want, int) == isinstance(got, int) else f"an error: {want if isinstance(want, int) else got}"
    for k, (w, g) in enumerate(zip(want, got, strict=True)):
        w, g = np.asarray(w), np.asarray(g)
        if w.shape != g.shape or w.dtype != g.dtype:
            return f"output {k} is {g.dtype}{g.shape}, not {w.dtype}{w.shape}"
        if w.tobytes() != g.tobytes():
            w, g = (np.frombuffer(x.tobytes(), np.uint8).reshape(x.size, -1) for x in (w, g))
            return f"output {k}: {np.count_nonzero((w != g).any(axis=1))} of {len(w)} elements differ"
    return ""


# ---- networks and other forms of them ------------------------------------------------------------------------------------------------------

def mcc(*args, seconds=60):
    try:
        return subprocess.run([MCC, *map(str, args), "-q", "--jobs=1"], capture_output=True, text=True, errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired as e:
        return subprocess.CompletedProcess(e.cmd, -1, "", f"mcc takes more than {seconds} s")


def in_field(folder):
    """Functions that stay as they were come from a cache of this run."""
    return "--in-field", f"--cache={folder / 'cache'}"


@dataclasses.dataclass
class Subject:
    name: str
    path: pathlib.Path
    options: list
    sizes: list                                        # (inputs, options that fix them, results)
    model: object
    records: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Form:
    options: list
    said: str = ""                                     # of another network
    model: object = None
    schedules: str = ""
    size: int = -1                                     # the only one
    threads: int = 1

    def __str__(self):
        return " ".join(filter(None, [*self.options, f"{self.threads} threads", self.said and f"[{self.said}]"]))


def cpus(folder, runner):
    """Those that this machine runs."""
    model = dense(folder / "cpu.onnx")
    runs = lambda c: mcc(model, f"-march={c}", "-o", folder / "cpu.so").returncode == 0 and not isinstance(runner.run(folder / "cpu.so", 1), str)
    return list(filter(runs, CPUS)) or ["native"]


def subject(name, path, options, folder, runner):
    """The network, if it is proved and its results are numbers; else None."""
    out = folder / "first.so"
    if mcc(path, *in_field(folder), "-march=native", *options, "-o", out).returncode or \
            mcc("prove", path, "-march=native", *options, seconds=10).returncode:
        return None
    sizes = runner.run(out, 1)
    right = isinstance(sizes, list) and any(not isinstance(results, int) for _, _, results in sizes)
    return Subject(name, path, options, sizes, onnx.load(path)) if right else None


def subjects(folder, seed, only, runner):
    """First the own ones, then random ones from number `seed` on."""
    for name, path, options in (n for part in (own(folder), random(folder, itertools.count(seed))) for n in part):
        if (not only or name in only) and ("random" in name or not options):
            if found := subject(name, path, [o for o in options if o.startswith("--input")], folder, runner):
                yield found


def pick(rng, items):
    return items[rng.integers(len(items))]


def other_numbers(rng, records):
    """A text for --schedules: some fields of some kernels have other numbers, or loops another order."""
    lines = []
    for head, fields in [pick(rng, records) for _ in range(rng.integers(1, 3))]:
        loops = [k for k, (name, _) in enumerate(fields) if re.fullmatch(r"loop\.\d+", name)]
        if head in lines:
            continue
        lines.append(head)
        if len(loops) > 1 and rng.random() < 0.3:
            order = rng.permutation(len(loops))
            lines += [f"  {fields[k][0].replace('loop', part)} {fields[loops[order[i]] + shift][1]}"
                      for part, shift in (("loop", 0), ("step", len(loops))) for i, k in enumerate(loops)]
            continue
        chosen = sorted(rng.choice(len(fields), min(int(rng.integers(1, 7)), len(fields)), replace=False))
        for name, old in (fields[k] for k in chosen if fields[k][0] != "estimate"):
            lines.append(f"  {name} {pick(rng, [*SOME, old + 1, old - 1, 2 * old, old // 2, 1 - old])}")
    return "\n".join(lines) + "\n"


def without(lines, k):
    """The text without line k, or the record that begins there; loops and steps go together."""
    head = max(i for i in range(k + 1) if lines[i].startswith("schedule "))
    end = next((i for i in range(head + 1, len(lines)) if lines[i].startswith("schedule ")), len(lines))
    order = re.compile(r"  (loop|step)\.")
    gone = [i for i in range(head + 1, end) if i == k or order.match(lines[k]) and order.match(lines[i])]
    gone = range(head, end) if k == head or len(gone) == end - head - 1 else gone
    return "".join(f"{line}\n" for i, line in enumerate(lines) if i not in gone)


def choice(rng, labels):
    key, values = pick(rng, [("tile", [f"{b}x{a}x{v}" for b in (1, 2, 4) for a in (1, 3, 6) for v in (1, 2, 3)]), ("winograd", ["off", "2", "4", "6"]),
                             ("chunk", ["1", "4", "12"]), ("split", ["1", "2", "3"]), ("layout", ["plain", "blocked"]), ("store", ["yes"]),
                             ("version", ["off", "1", "4"]), ("span", ["0", "8", "32"]), ("parts", ["0", "2", "4"]), ("reduce.block", ["0", "4", "16"])])
    return f"--choose={pick(rng, labels)}:{key}={pick(rng, values)}"


def drawn_form(rng, subject, here):
    cpu = pick(rng, here)
    form = Form([f"-march={cpu}"], threads=pick(rng, (1, 3)))
    for some in (["-O0", "-O1"], ["--layout=NCHW", "--layout=NHWC", "--layout=NC16c"], ["--winograd=off", "--winograd=2", "--winograd=6"],
                 ["--attention=off"], ["--sparse=off"], ["--strict"] if cpu != "x86-64-v2" else []):
        if some and rng.random() < 0.15:
            form.options.append(pick(rng, some))
    if rng.random() < 0.25 and not subject.options and not any(n.op_type in COORDINATES for n in subject.model.graph.node):
        form.size = int(rng.integers(len(subject.sizes)))
        form.options += subject.sizes[form.size][1]
    labels = sorted({n.name or n.output[0] for n in subject.model.graph.node if not re.search(r"[:\s]", n.name)})
    for _ in range(rng.integers(3) if labels and "--strict" not in form.options else 0):
        form.options.append(choice(rng, labels))
    if rng.random() < 0.4:
        form.model, form.said = equal(subject.model, rng)
    return form


def records_of(subject, form, path):
    """[(head, [(field, number)])] of the kernels, as the cost model has them."""
    key = tuple(form.options)
    if form.model or key not in subject.records:
        done = mcc(path, "--in-field", *subject.options, *form.options, "-stop-after=schedule", "-o", "-")
        found = []
        for line in done.stdout.splitlines():
            if line.startswith("schedule "):
                found.append((line, []))
            elif found and (m := re.match(r"  ([a-z_.0-9]+) +(-?\d+)", line)):
                found[-1][1].append((m[1], int(m[2])))
        if form.model:
            return found
        subject.records[key] = found
    return subject.records[key]


# ---- judging -------------------------------------------------------------------------------------------------------------------------------

def compiled(subject, form, rng, folder):
    """(status, what was said, the network's file); the artifact is folder/form.so. Lines of schedules that are refused are left out."""
    path, file = subject.path, folder / "form.schedules"
    if form.model:
        path = folder / "form.onnx"
        onnx.save(form.model, path)
    if rng.random() < 0.7 and "--strict" not in form.options and (records := records_of(subject, form, path)):
        form.schedules = other_numbers(rng, records)
    while True:
        file.write_text(form.schedules)
        done = mcc(path, *in_field(folder), *subject.options, *form.options, *([f"--schedules={file}"] if form.schedules else []), "-o", folder / "form.so")
        line = re.search(rf"{re.escape(str(file))}:(\d+)", done.stderr)
        if done.returncode != 2 or not line:
            break
        form.schedules = without(form.schedules.splitlines(), int(line[1]) - 1)
    return done.returncode, done.stderr.strip()[:300], path


def proof(subject, form, path, folder):
    """("proved" | "differs" | "open", why) of what gives other results."""
    options = [*subject.options, *form.options, *([f"--schedules={folder / 'form.schedules'}"] if form.schedules else [])]
    done = mcc("prove", path, "--json", *options, seconds=60)
    if not done.returncode:
        return "proved", ""
    try:
        variants = json.loads(done.stdout)["result"]["variants"]
        why = [w for v in variants for w in [*(k["why"] for k in v["kernels"] if not k["proved"]), v["program"]["why"]] if w]
    except (ValueError, TypeError, KeyError):
        why = [f"mcc prove ends with {done.returncode}"]
    differing = [w for w in why if "differ" in w]
    return ("differs", differing[0]) if differing else ("open", re.sub(r"'[^']*'|\b\d+\b", "N", why[0]) if why else "no reason")


def judge(subject, form, rng, folder, runner):
    """(word, text)"""
    status, said, path = compiled(subject, form, rng, folder)
    if status:
        return ("refused", said) if status == 2 else ("broken", f"status {status}: {said}")
    sizes = subject.sizes if form.size < 0 else [subject.sizes[form.size]]
    got = runner.run(folder / "form.so", form.threads, [feeds for feeds, _, _ in sizes])
    if isinstance(got, str):
        return "broken", got
    text = next(filter(None, (alike(want, g) for (_, _, want), g in zip(sizes, got))), "")
    if not text:
        return "same", ""
    word, why = proof(subject, form, path, folder)
    return word, f"{text}; {why}" if why else text


WORDS = ["same", "refused", "open", "differs", "proved", "broken"]
BAD = {"differs", "proved", "broken"}


def save(folder, subject, form):
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(subject.path, folder / "first.onnx")
    if form.model:
        onnx.save(form.model, folder / "form.onnx")
    (folder / "options").write_text(f"{' '.join(subject.options)}\n{form}\n{form.schedules}")


def forms(n, seed, only, most):
    """n times (number, network, form, word, text)."""
    number = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Runner()) as runner:
        folder = pathlib.Path(folder)
        here = cpus(folder, runner)
        for k, subject in enumerate(subjects(folder, seed, only, runner)):
            rng = np.random.default_rng([seed, k])
            for _ in range(min(most, n - number)):
                form = drawn_form(rng, subject, here)
                yield number, subject, form, *judge(subject, form, rng, folder, runner)
                number += 1
            if number == n:
                return


def run(n, seed, only=(), most=None, keep=None):
    """(counts by word, counts of `open` by reason, what is bad); ^C ends it early."""
    count, reasons, bad = collections.Counter(), collections.Counter(), []
    try:
        for number, subject, form, word, text in forms(n, seed, only, most or max(n // 200, 20)):
            count[word] += 1
            if word == "open":
                reasons[text.split("; ")[-1]] += 1
            if word in BAD:
                bad.append(f"{number}: {word}: {subject.name} {form}: {text}")
                print(bad[-1], flush=True)
                if keep:
                    save(keep / f"{seed}-{number}", subject, form)
    except KeyboardInterrupt:
        pass
    return count, reasons, bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("n", type=int, nargs="?", default=10000)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    count, reasons, bad = run(args.n, args.seed, args.only, keep=BUILD.resolve() / "fuzz-exact")
    for why, k in reasons.most_common():
        print(f"{k:6} open: {why}")
    print(f"{count.total()} forms:", ", ".join(f"{count[w]} {w}" for w in WORDS))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())

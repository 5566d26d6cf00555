"""What must not matter, in the field of mcc prove: results there are exact, so all of these give the same bits.

usage: exact.py [N] [SEED] [--only NAME ...] [--results FILE]       make fuzz-exact [N=10000] [SEED=1] [RESULTS=FILE]

Networks are those of mutants/networks.py and random ones (fuzz/ort) that mcc prove proves. One of them is compiled otherwise: for another CPU
that this machine runs, with other options, other fields of the schedules (--schedules), --choose, fixed sizes; or the network is another one that
computes the same (equal.py). The artifact runs with one thread and with three between pages without access. Each result has the bits of
the first artifact. The library compiles, in the process that runs the artifact.

N forms are run. A form counts once: one whose artifact has the code, the tables and the weights of an earlier form of this network is `again` and
does not run; and an equal network whose functions have the sizes, and whose weights the bytes, of an earlier form's is `again` too, after it has run
(its table has other names). FILE gets a line for each network; the networks in it are not run again, and their counts are part of the total.

What differs is compared by mcc prove as well, in the same form: `proved` (a hole of the proof), `differs`, `open` (not proved for another reason,
which is counted). The first two, crashes, and statuses of the compiler other than 0 and 2 end the command with status 1; each is kept in
BUILD/fuzz-exact/SEED-NUMBER.
"""
import argparse
import collections
import contextlib
import ctypes
import dataclasses
import hashlib
import itertools
import json
import multiprocessing
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import onnx

from fuzz.equal import equal
from mutants.networks import own, random
from support.artifact import Artifact, ModelError
from support.guard import Heap, guarded
from support.strict import EVERY_NATIVE
from support.tool import BUILD, MCC, dense

MODULUS = 2129858011  # FIELD_N of ir/ops/field.h
CPUS = ["x86-64-v2", *EVERY_NATIVE]
SIZES = [(1, 0), (2, 1), (7, 0), (19, 2)]          # of the first open size, and how much each further one is larger
SOME = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64]
NAMES = {"f32": (2, 32), "f64": (2, 64), "f16": (2, 16), "i8": (0, 8), "i32": (0, 32), "i64": (0, 64), "u8": (1, 8), "bool": (6, 8)}
COORDINATES = ("Resize", "Upsample")               # which an open size takes from floats, thus from the field, and a fixed one from numbers
BASE = 20                                          # forms with the same options but for --choose and --schedules
TRIES = 4                                          # of schedules, of which one is taken
KNOWN = collections.Counter()                      # what became of the schedules' fields so far
BYTES = 1 << 26                                    # the most of a size's results
CRASHES = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV}
RUNS, SECONDS = 300, 900                           # forms of one process; seconds of one of them
SHARES = 400                                       # of N that a random network gets one of, and one of one's own OWN_SHARES
OWN_SHARES = 4
MEMORY = next(filter(os.path.isdir, ["/dev/shm"]), None)  # for files


# ---- a process of its own ------------------------------------------------------------------------------------------------------------------

class Died(Exception):
    pass


def serve(pipe, generate):
    for item in generate():
        pipe.send((item,))
        pipe.recv()
    pipe.send(None)


def apart(generate):
    """What generate() yields in a process of its own, which goes on when the next item is asked for. Died: it has ended early, or gives nothing."""
    pipe, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=serve, args=(there, generate), daemon=True)
    sys.stdout.flush()
    child.start()
    there.close()
    try:
        while pipe.poll(SECONDS):
            if not (item := pipe.recv()):
                return
            yield item[0]
            pipe.send(None)
        raise Died(f"it does not end within {SECONDS} s")
    except (EOFError, ConnectionResetError):
        child.join()
        raise Died(f"it ends by signal {-child.exitcode}") from None
    finally:
        child.kill()
        child.join()


class Library:
    """The compiler in this process: freed memory stays with it, so that a compilation takes no new pages."""

    def __init__(self):
        for parameter, value in ((-1, 1 << 30), (-2, 64 << 20), (-3, 1 << 30)):   # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD
            ctypes.CDLL(None).mallopt(parameter, value)
        self.lib = ctypes.CDLL(str(BUILD.resolve() / "libmcc.so"))
        self.lib.mccc_new.restype = ctypes.c_void_p
        for call, n in ((self.lib.mccc_free, 1), (self.lib.mccc_on_message, 3), (self.lib.mccc_set, 3), (self.lib.mcc_compile, 3)):
            call.argtypes = [ctypes.c_void_p, *[ctypes.c_char_p] * (n - 1)]
        self.lib.mccc_on_message.argtypes = [ctypes.c_void_p] * 3
        self.message = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)

    def compile(self, path, options, out="-"):
        """(status, messages and the text for standard output)"""
        texts, options = [], ["--jobs=1", *map(str, options)]
        hear = self.message(lambda _, kind, text, size: texts.append(ctypes.string_at(text, size).decode(errors="replace")))
        compiler = self.lib.mccc_new()
        self.lib.mccc_on_message(compiler, ctypes.cast(hear, ctypes.c_void_p), None)
        named = [("O", o[2:]) if re.fullmatch(r"-O\d", o) else (o.lstrip("-").split("=", 1) + [None])[:2] for o in options]
        status = next(filter(None, (self.lib.mccc_set(compiler, name.encode(), value and value.encode()) for name, value in named)), 0)
        status = status or self.lib.mcc_compile(compiler, str(path).encode(), str(out).encode())
        self.lib.mccc_free(compiler)
        return status, "".join(texts)


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
        feeds.append(guarded(x))
        fixed.append(f"--input={port.name.decode()}:{next(n for n, k in NAMES.items() if k == kind)}[{','.join(map(str, shape))}]")
    return (feeds, fixed) if extents or first == SIZES[0][0] else None


def call(a, feeds):
    try:
        return a.call(feeds)
    except ModelError as e:
        return e.code


def run(path, threads, asked=None):
    """Results for each of these inputs; None: (inputs, options that fix their sizes, results) of each size whose results are not too large.
    A text: what went wrong."""
    try:
        heap = Heap()
        with Artifact(path, threads=threads, alloc=heap.alloc, release=heap.release) as a:
            if asked is None:
                found = [(*given, call(a, given[0])) for size in SIZES if (given := feeds_of(a, *size))]
                found = [f for f in found if isinstance(f[2], int) or sum(np.asarray(y).nbytes for y in f[2]) <= BYTES]
            else:
                found = [call(a, feeds) for feeds in asked]
    except ModelError as e:
        return f"it does not load: {e}"
    return "it writes beyond its memory" if heap.broken else found


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

def in_field(folder):
    """Functions that stay as they were come from a cache of this network."""
    return "--in-field", f"--cache={folder / 'cache'}"


def prove(*args, seconds):
    """(status, what is said); seconds of processor time."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    done = subprocess.run([MCC, "prove", *map(str, args), "-q", "--jobs=1"], capture_output=True, text=True, errors="replace", preexec_fn=limit)
    return done.returncode, done.stdout


@dataclasses.dataclass
class Subject:
    name: str
    path: pathlib.Path
    options: list
    sizes: list                                        # (inputs, options that fix them, results)
    model: object
    records: dict = dataclasses.field(default_factory=dict)
    seen: set = dataclasses.field(default_factory=set)  # forms, and marks of them


@dataclasses.dataclass
class Form:
    options: list
    said: str = ""                                     # of another network
    model: object = None
    schedules: str = ""
    size: int = -1                                     # the only one
    drawn: bool = False                                # its schedules
    learned: list = dataclasses.field(default_factory=list)  # (field of a schedule, what it was of: "taken" or "refused")

    def __str__(self):
        return " ".join(filter(None, [*self.options, self.said and f"[{self.said}]"]))


def cpus(folder):
    """Those that this machine runs."""
    model, out = dense(folder / "cpu.onnx"), folder / "cpu.so"

    def those():
        library = Library()
        yield [c for c in CPUS if not library.compile(model, [f"-march={c}"], out)[0] and not isinstance(run(out, 1), str)]

    return next(apart(those)) or ["native"]


def subject(name, path, options, folder):
    """The network, if it is proved and its results are numbers; else None. A text: how the compiler, the proof or the artifact crashed."""
    def first():
        failed, _ = Library().compile(path, [*in_field(folder), "-march=native", *options], folder / "first.so")
        status = failed or prove(path, "-march=native", *options, seconds=10)[0]
        yield f"mcc prove ends by signal {-status}" if -status in CRASHES else "" if status else run(folder / "first.so", 1)

    try:
        sizes = next(apart(first))
    except Died as e:
        return str(e)
    if isinstance(sizes, str):
        return sizes or None
    return Subject(name, path, options, sizes, onnx.load(path)) if any(not isinstance(results, int) for _, _, results in sizes) else None


def networks(folder, seed, only):
    """(name, path, options): first the own ones, then random ones from number `seed` on."""
    seeds = [int(name.split()[1]) for name in only if name.startswith("random ")] if only else itertools.count(seed)
    for name, path, options in itertools.chain(own(folder), random(folder, seeds)):
        if (not only or name in only) and ("random" in name or not options):
            yield name, path, [o for o in options if o.startswith("--input")]


def pick(rng, items):
    return items[rng.integers(len(items))]


def other_numbers(rng, records, subject, known):
    """A text for --schedules: some fields of some kernels have other numbers, or loops another order. What was often refused, or changed nothing, comes seldom.
    known: {(field, "taken" | "refused"): count}, and the same by place."""
    lines = []
    for head, fields in [pick(rng, records) for _ in range(rng.integers(1, 3))]:
        loops = [k for k, (name, _) in enumerate(fields) if re.fullmatch(r"loop\.\d+", name)]
        if head in lines:
            continue
        lines.append(head)
        odds = [np.prod([(1 + 4 * known[key, "taken"]) / (1 + known[key, "refused"]) for key in (kind(name), place(subject, head, name))])
                for name, _ in fields]
        odds = np.array([odd * (k in loops[:1] or kind(fields[k][0]) not in ("loop", "loops", "estimate")) for k, odd in enumerate(odds)])
        for k in sorted(rng.choice(len(fields), min(int(rng.integers(1, 5)), np.count_nonzero(odds)), replace=False, p=odds / odds.sum())):
            name, old = fields[k]
            if k in loops:
                order = np.roll(np.arange(len(loops)), 1) if len(loops) < 3 else rng.permutation(len(loops))
                lines += [f"  {fields[i][0].replace('loop', part)} {fields[loops[order[j]] + shift][1]}"
                          for part, shift in (("loop", 0), ("step", len(loops))) for j, i in enumerate(loops)]
            else:
                lines.append(f"  {name} {pick(rng, [n for n in (*SOME, old + 1, old - 1, 2 * old, old // 2, 1 - old) if n != old])}")
    return "\n".join(lines) + "\n"


def kind(field):
    """Loops and steps go together; the statements of a kernel are alike."""
    return "loop" if re.match(r"(loop|step)\.", field) else re.sub(r"\d+", "N", field)


def place(subject, head, field):
    """The field of a kernel, of any CPU."""
    return subject, head.rpartition('"')[0], kind(field)


def learned(subject, form, field, word):
    """What to count of the form's schedules: of this field; "": of all."""
    head, found = "", []
    for name, *line in (line.split(None, 1) for line in form.schedules.splitlines()):
        head = f"schedule {line[0]}" if name == "schedule" else head
        if name != "schedule" and field in ("", name):
            found += [(kind(name), word), (place(subject.name, head, name), word)]
    return found


def mended(lines, k, field, number):
    """The text without line k; if a record begins there, with another number for the field, or without it; else without the record."""
    head = max(i for i in range(k + 1) if lines[i].startswith("schedule "))
    end = next((i for i in range(head + 1, len(lines)) if lines[i].startswith("schedule ")), len(lines))
    k = next((i for i in range(head + 1, end) if k == head and lines[i].split()[0] == field), k)
    if number is not None and k != head:
        return "".join(f"  {field} {number}\n" if i == k else f"{line}\n" for i, line in enumerate(lines))
    gone = [i for i in range(head + 1, end) if i == k or kind(lines[k].split()[0]) == "loop" == kind(lines[i].split()[0])]
    gone = range(head, end) if k == head or len(gone) == end - head - 1 else gone
    return "".join(f"{line}\n" for i, line in enumerate(lines) if i not in gone)


def choice(rng, labels):
    key, values = pick(rng, [("tile", [f"{b}x{a}x{v}" for b in (1, 2, 4) for a in (1, 3, 6) for v in (1, 2, 3)]), ("winograd", ["off", "2", "4", "6"]),
                             ("chunk", ["1", "4", "12"]), ("split", ["1", "2", "3"]), ("layout", ["plain", "blocked"]), ("store", ["yes"]),
                             ("version", ["off", "1", "4"]), ("span", ["0", "8", "32"]), ("parts", ["0", "2", "4"]), ("reduce.block", ["0", "4", "16"])])
    return f"--choose={pick(rng, labels)}:{key}={pick(rng, values)}"


def drawn_options(rng, subject, here):
    cpu = pick(rng, here)
    form = Form([f"-march={cpu}"])
    for some in (["-O0", "-O1"], ["--layout=NCHW", "--layout=NHWC", "--layout=NC16c"], ["--winograd=off", "--winograd=2", "--winograd=6"],
                 ["--attention=off"], ["--sparse=off"], ["--strict"] if cpu != "x86-64-v2" else []):
        if some and rng.random() < (0.15 if some[0] != "--strict" else 0.05):
            form.options.append(pick(rng, some))
    if rng.random() < 0.25 and not subject.options and not any(n.op_type in COORDINATES for n in subject.model.graph.node):
        form.size = int(rng.integers(len(subject.sizes)))
        form.options += subject.sizes[form.size][1]
    return form


def drawn_form(seed, number, subject, here):
    """Form `number`: BASE of them, one after the other, have the same options, whose functions are then in the cache, and differ in the rest.
    The generator of the rest."""
    form = drawn_options(np.random.default_rng([*seed, number // BASE, 0]), subject, here)
    rng = np.random.default_rng([*seed, number, 1])
    labels = sorted({n.name or n.output[0] for n in subject.model.graph.node if not re.search(r"[:\s]", n.name)})
    form.drawn = number % BASE > 0 and "--strict" not in form.options
    if number % BASE:
        if labels and "--strict" not in form.options and rng.random() < 0.3:
            form.options.append(choice(rng, labels))
        if rng.random() < (0.3 if "--strict" not in form.options else 1):
            form.model, form.said = equal(subject.model, rng)
    return form, rng


def records_of(library, subject, form, path):
    """[(head, [(field, number)])] of the kernels, as the cost model has them."""
    key = tuple(form.options)
    if form.model or key not in subject.records:
        found = []
        for line in library.compile(path, ["--in-field", *subject.options, *form.options, "-stop-after=schedule"])[1].splitlines():
            if line.startswith("schedule "):
                found.append((line, []))
            elif found and (m := re.match(r"  ([a-z_.0-9]+) +(-?\d+)", line)):
                found[-1][1].append((m[1], int(m[2])))
        if form.model:
            return found
        subject.records[key] = found
    return subject.records[key]


# ---- judging -------------------------------------------------------------------------------------------------------------------------------

def compiled(library, subject, form, rng, folder):
    """(status, what was said, the network's file); the artifact is folder/form.so. Lines of schedules that are refused are left out."""
    path, file = subject.path, folder / "form.schedules"
    if form.model:
        path = folder / "form.onnx"
        onnx.save(form.model, path)
    records, status = records_of(library, subject, form, path) if form.drawn and rng.random() < 0.9 else [], 2
    for tries in range(TRIES):
        form.schedules = other_numbers(rng, records, subject.name, KNOWN) if records and tries < TRIES - 1 else ""
        while form.schedules or tries == TRIES - 1 or not records:
            file.write_text(form.schedules)
            if (what := (str(form), form.schedules)) in subject.seen:
                return -1, "", path
            schedules = [f"--schedules={file}"] if form.schedules else []
            status, said = library.compile(path, [*in_field(folder), *subject.options, *form.options, *schedules], folder / "form.so")
            line = re.search(rf"{re.escape(str(file))}:(\d+)(?:.*?: ([a-z_.0-9]+) is .*?: (?:(-?\d+) to (-?\d+) are possible)?)?", said)
            if status != 2 or not line:
                subject.seen.add(what)
                return status, said.strip()[:300], path
            form.learned += learned(subject, form, line[2], "refused")
            form.schedules = mended(form.schedules.splitlines(), int(line[1]) - 1, line[2], line[3] and rng.integers(int(line[3]), int(line[4]) + 1))


def marks(path):
    """What an artifact is: of its code, tables and weights; of its functions' sizes and the weights."""
    data = path.read_bytes()
    at, = struct.unpack_from("<Q", data, 40)
    size, n, names = struct.unpack_from("<3H", data, 58)
    heads = [struct.unpack_from("<2I4Q2I2Q", data, at + i * size) for i in range(n)]
    start, parts = heads[names][4], {}
    for name, kind, _, _, offset, length, *_ in heads:
        parts[data[start + name:data.index(b"\0", start + name)]] = data[offset:offset + length if kind != 8 else offset]  # SHT_NOBITS
    symbols = np.frombuffer(parts[b".symtab"], np.uint8).reshape(-1, 24)
    sizes = symbols[symbols[:, 4] & 15 == 2, 16:].tobytes()                                                               # STT_FUNC
    weights = parts.get(b".mcc.weights", b"")
    return [hashlib.sha256(b"".join(p)).hexdigest() for p in ((parts[b".text"], parts[b".rodata"], parts[b".data.rel.ro"], weights), (sizes, weights))]


def proof(subject, form, path, folder):
    """("proved" | "differs" | "open", why) of what gives other results."""
    options = [*subject.options, *form.options, *([f"--schedules={folder / 'form.schedules'}"] if form.schedules else [])]
    status, said = prove(path, "--json", *options, seconds=60)
    if not status:
        return "proved", ""
    try:
        variants = json.loads(said)["result"]["variants"]
        why = [w for v in variants for w in [*(k["why"] for k in v["kernels"] if not k["proved"]), v["program"]["why"]] if w]
    except (ValueError, TypeError, KeyError):
        why = [f"mcc prove ends with {status}"]
    differing = [w for w in why if "differ" in w]
    return ("differs", differing[0]) if differing else ("open", re.sub(r"'[^']*'|\b\d+\b", "N", why[0]) if why else "no reason")


def judge(library, subject, form, rng, folder):
    """(word, text, marks)"""
    status, said, path = compiled(library, subject, form, rng, folder)
    sizes, text = subject.sizes if form.size < 0 else [subject.sizes[form.size]], ""
    if status > 0:
        unfit = status == 1 and all(isinstance(want, int) for _, _, want in sizes)     # sizes with which the first artifact ends with an error
        return ("refused", said, []) if status == 2 or unfit else ("broken", f"status {status}: {said}", [])
    exact, like = marks(folder / "form.so") if status == 0 else ("", "")
    again = status < 0 or exact in subject.seen
    form.learned += learned(subject, form, "", "refused" if again else "taken")
    if again:
        return "again", "", []
    for threads in (1, 3):
        got = run(folder / "form.so", threads, [feeds for feeds, _, _ in sizes])
        if isinstance(got, str):
            return "broken", f"{threads} threads: {got}", []
        text = text or next((f"{threads} threads: {t}" for (_, _, want), g in zip(sizes, got) if (t := alike(want, g))), "")
    if not text:
        return "again" if form.model and like in subject.seen else "same", "", [exact, like]
    word, why = proof(subject, form, path, folder)
    return word, f"{text}; {why}" if why else text, [exact, like]


WORDS = ["same", "open", "differs", "proved", "broken"]    # of those that have run
LEFT = ["again", "refused"]
BAD = {"differs", "proved", "broken"}


def save(to, subject, said, folder):
    """What the form was made of lies in `folder`."""
    to.mkdir(parents=True, exist_ok=True)
    shutil.copy(subject.path, to / "first.onnx")
    for name in ("form.onnx", "form.schedules"):
        if (folder / name).exists():
            shutil.copy(folder / name, to)
    (to / "options").write_text(f"{' '.join(subject.options)}\n{said}\n")


def drawn(subject, seed, here, folder, begin):
    """From form number `begin` on: what it is, then (word, text, marks, what it learned of fields)."""
    tempfile.tempdir = str(folder)
    library = Library()
    for number in range(begin, begin + RUNS):
        for name in ("form.onnx", "form.schedules"):
            (folder / name).unlink(missing_ok=True)
        form, rng = drawn_form((seed, zlib.crc32(subject.name.encode())), number, subject, here)
        yield str(form)
        judged = judge(library, subject, form, rng, folder)
        subject.seen.update(judged[2])
        KNOWN.update(form.learned)
        yield *judged, form.learned


def forms(subject, seed, here, folder):
    """(number, what it is, word, text) without end."""
    number, said = 0, ""
    while True:
        items = apart(lambda begin=number: drawn(subject, seed, here, folder, begin))
        try:
            for said in items:
                word, text, seen, learned = next(items)
                subject.seen.update(seen)
                KNOWN.update(learned)
                yield number, said, word, text
                number += 1
        except Died as e:
            yield number, said, "broken", str(e)
            number += 1


def run_network(subject, seed, here, folder, most, keep):
    """(counts by word, counts of `open` by reason, what is bad) of `most` forms that run, or until most are none of these."""
    count, reasons, bad = collections.Counter(), collections.Counter(), []
    for number, said, word, text in forms(subject, seed, here, folder):
        count[word] += 1
        if word == "open":
            reasons[text.split("; ")[-1]] += 1
        if word in BAD:
            bad.append(f"{subject.name}, form {number}: {word}: {said}: {text}")
            print(bad[-1], flush=True)
            if keep:
                save(keep / f"{seed}-{subject.name.replace(' ', '-')}-{number}", subject, said, folder)
        if ran(count) >= most or count.total() >= 3 * ran(count) + 3 * BASE:
            return count, reasons, bad


def ran(count):
    return sum(count[w] for w in WORDS)


def run_all(n, seed, only=(), most=None, keep=None, results=None):
    """(counts by word, counts of `open` by reason, what is bad), those of the file `results` included; ^C ends it early."""
    count, reasons, bad, done = collections.Counter(), collections.Counter(), [], set()

    def add(row):
        count.update(row["count"])
        reasons.update(row["reasons"])
        bad.extend(row["bad"])
        done.add((row["seed"], row["name"]))

    for line in results.read_text().splitlines() if results and results.exists() else []:
        add(json.loads(line))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, contextlib.suppress(KeyboardInterrupt):
        folder = pathlib.Path(folder)
        here = cpus(folder)
        for name, path, options in networks(folder, seed, only):
            if ran(count) >= n:
                break
            if (seed, name) in done:
                continue
            row = {"seed": seed, "name": name, "count": {}, "reasons": {}, "bad": []}
            found = subject(name, path, options, folder)
            if isinstance(found, str):
                row |= {"count": {"broken": 1}, "bad": [f"{name}: {found}"]}
                print(row["bad"][0], flush=True)
            elif found:
                share = most or max(n // SHARES, 20) * (1 if "random" in name else OWN_SHARES)
                row |= zip(("count", "reasons", "bad"), run_network(found, seed, here, folder, min(share, n - ran(count)), keep))
            add(row)
            shutil.rmtree(folder / "cache", ignore_errors=True)
            if results:
                with results.open("a") as file:
                    print(json.dumps(row), file=file)
    return count, reasons, bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("n", type=int, nargs="?", default=10000)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--results", type=pathlib.Path)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    count, reasons, bad = run_all(args.n, args.seed, args.only, keep=BUILD.resolve() / "fuzz-exact", results=args.results)
    for why, k in reasons.most_common():
        print(f"{k:6} open: {why}")
    print(f"{ran(count)} forms:", ", ".join(f"{count[w]} {w}" for w in WORDS), "; not counted:", ", ".join(f"{count[w]} {w}" for w in LEFT))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())

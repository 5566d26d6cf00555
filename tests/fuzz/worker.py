"""Random input for the worker, in its sandbox, under AddressSanitizer: jobs as mcc sends them (codegen/wire.h), changed.

    make fuzz-worker SECONDS_EACH=600 SEED=1

Leaks are not looked for: that is a process of its own, which the sandbox forbids (codegen/worker.c). A worker gets many jobs, and each
must be answered: with a product, a refusal, or a fatal error of LLVM that is told. A finding is a report of a sanitizer whose place is in
mcc's own sources, an end without a word, or a job of more than 30 s; its job stays in the build's folder and replays with
`mcc --worker <FILE >/dev/null`. What dies inside of LLVM or lld, which believe their input, is counted: the parent tells it.
"""
import collections
import os
import pathlib
import random
import re
import select
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MCC, BUILD = os.environ["MCC"], pathlib.Path(os.environ["MCC_BUILD"])
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0:symbolize=0:exitcode=99:allocator_may_return_null=1", "UBSAN_OPTIONS": "symbolize=0:halt_on_error=1:exitcode=99"}
HEAD, RESULT = struct.Struct("<IIiiqqQQQ"), struct.Struct("<IIQQ")
MAGIC, COMPILE, LINK = 0x6A63636D, 1, 2
SECONDS, JOBS_EACH = 30, 40
NUMBERS = ["0", "1", "-1", "2", "7", "8", "63", "64", "255", "256", "4096", "2147483647", "-2147483648", "9223372036854775807",
           "-9223372036854775808", "1e308", "nan", "inf", "%0", "%1", "%9999", "@k", "f32", "i64", "u8", "bf16", "index", "<", ">", "{", "}", "x", ","]


def recorded(folder):
    """The jobs of some compilations: [(head, [part])]."""
    log, tee = folder / "log", folder / "tee"
    tee.write_text(f'#!/bin/sh\ntee "{log}.$$" | "{MCC}" --worker\n')
    tee.chmod(0o700)
    models = [ROOT / "examples/digits/digits.onnx"]
    for flags in (["-march=x86-64-v3"], ["--target=aarch64-linux-gnu", "-O1"], ["-march=x86-64-v2", "-g"], ["-march=x86-64-v4", "-S"]):
        for model in models:
            subprocess.run([MCC, model, "-o", folder / "a.so", "--no-cache", f"--worker={tee}", "-q", *flags], check=True, env=dict(os.environ, **OPTIONS))
    jobs = []
    for path in folder.glob("log.*"):
        data, at = path.read_bytes(), 0
        while at < len(data):
            head, at, parts = HEAD.unpack_from(data, at), at + HEAD.size, []
            for _ in range(head[-1]):
                size, = struct.unpack_from("<Q", data, at)
                parts.append(data[at + 8:at + 8 + size])
                at += 8 + size
            assert head[0] == MAGIC and at <= len(data), "jobs have another layout: codegen/wire.h"
            jobs.append((head, parts))
    return jobs


def mutate_text(r, text, others):
    """Lines and tokens of loop IR moved, taken from elsewhere, or replaced."""
    lines = text.split(b"\n")
    for _ in range(r.choice((1, 1, 1, 2, 5))):
        at, kind = r.randrange(len(lines)), r.randrange(6)
        if kind == 0:
            del lines[at:at + r.choice((1, 1, 3))]
        elif kind == 1:
            lines.insert(at, r.choice(lines))
        elif kind == 2:
            lines.insert(at, r.choice(r.choice(others).split(b"\n")))
        else:
            words = re.split(rb"(\W)", lines[at])
            pool = [r.choice(NUMBERS).encode(), *re.split(rb"\W", r.choice(r.choice(others).split(b"\n")))]
            words[r.randrange(len(words))] = r.choice(pool)
            lines[at] = b"".join(words)
        lines = lines or [b""]
    return b"\n".join(lines)


def mutate_bytes(r, data):
    data = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 8))):
        if data:
            at = r.randrange(len(data))
            data[at:at + r.choice((0, 1, 1, 4))] = r.choice((b"", bytes([r.randrange(256)]), r.randbytes(4), b"\0", b"\xff" * 8))
    return bytes(data)


def mutated(r, jobs, texts):
    """A job's bytes."""
    (magic, kind, level, emit, _, _, confine, static, n), parts = r.choice(jobs)
    parts = list(parts)
    if kind == COMPILE and r.random() < 0.9:
        at = r.randrange(7, len(parts), 2)
        parts[at] = mutate_text(r, parts[at], texts) if r.random() < 0.95 else mutate_bytes(r, parts[at])
        parts = parts[:6] + parts[at - 1:at + 1]
    elif parts:
        at = r.randrange(len(parts))
        parts[at] = mutate_bytes(r, parts[at])
    n = len(parts)
    if r.random() < 0.05:
        kind, level, emit = r.choice(((3 - kind, level, emit), (r.getrandbits(32), level, emit), (kind, r.randint(-9, 9), r.randint(-9, 9))))
    if r.random() < 0.02:
        static = r.choice((1, r.getrandbits(64)))
    if r.random() < 0.02:
        n = r.choice((0, 1, n + 1, 7, 8, 1 << 20, 1 << 63))
    return frame((magic, kind, level, emit, 0, 0, confine, static, n), parts), n == len(parts) and kind == COMPILE


def frame(head, parts):
    return HEAD.pack(*head) + b"".join(struct.pack("<Q", len(p)) + p for p in parts)


class Worker:
    def __init__(self):
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C", **OPTIONS}
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([MCC, "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=env)

    def ask(self, job):
        """The answer's status; None: there is none, and the process has ended, or is killed as too slow."""
        out, got, head, end = self.process.stdout.fileno(), b"", None, time.monotonic() + SECONDS
        into = self.process.stdin.fileno()
        os.set_blocking(into, False)
        while True:
            readable, writable, _ = select.select([out], [into] if job else [], [], max(0, end - time.monotonic()))
            if not readable and not writable:
                self.process.kill()
                return None
            if writable:
                try:
                    job = job[os.write(into, job):]
                except BrokenPipeError:
                    job = b""
            if readable:
                more = os.read(out, 1 << 20)
                got += more
                if len(got) >= RESULT.size:
                    head = RESULT.unpack_from(got)
                    if len(got) >= RESULT.size + head[3]:
                        return head
                if not more:
                    return None

    def end(self):
        """(exit status, what it said)"""
        self.process.stdin.close()
        try:
            status = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.log.seek(0)
        return status, self.log.read().decode(errors="replace")


def place(said):
    """The first frame that is neither the sanitizer's nor libc's: a source of ours as text, else None."""
    for module, offset in re.findall(r"#\d+ 0x[0-9a-f]+ +\(([^+)]+)\+(0x[0-9a-f]+)\)", said):
        if os.path.realpath(module) == os.path.realpath(MCC):
            line = subprocess.run(["addr2line", "-e", MCC, offset], capture_output=True, text=True).stdout.strip()
            if any(f"/{folder}/" in line for folder in ("codegen", "ir")):
                return line
        if "asan" not in module and "libc.so" not in module:
            return None
    own = re.search(r"^(?:\S*/)?((?:codegen|ir)/\S+): runtime error: .*", said, re.M)
    return own and own[0]


def main(seconds, seed):
    r, tally, found = random.Random(seed), collections.Counter(), pathlib.Path(f"{BUILD}/findings")
    found.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        jobs = recorded(pathlib.Path(scratch))
    texts = [p for head, parts in jobs if head[1] == COMPILE for p in parts[7::2]]
    print(f"{len(jobs)} jobs, {len(texts)} functions, seed {seed}", flush=True)
    end, findings = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        worker, last = Worker(), b""
        for _ in range(JOBS_EACH):
            last, whole = mutated(r, jobs, texts)
            if not whole:       # it may wait for more: its last one
                if len(last) < 60000:
                    worker.process.stdin.write(last)
                tally["not a job, or a link"] += 1
                break
            answer = worker.ask(last)
            tally[("made", "refused", "no memory", "environment", "fatal error, told", "no sandbox")[answer[1]] if answer else "no answer"] += 1
            if not answer or answer[1] == 4:
                break
            assert answer[2] == 1, "the worker is not in its sandbox"
        status, said = worker.end()
        if status in (0, 2, 3, 70):
            continue
        where = place(said)
        if where or status not in (99, -6, -11, -8, -4):
            findings += 1
            path = found / f"worker-{seed}-{findings}"
            path.write_bytes(last)
            print(f"FINDING {path}: status {status}: {where}\n{said[-1500:]}", flush=True)
        else:
            tally["died in LLVM or lld"] += 1
    print(f"{findings} findings; {dict(tally)}")
    return findings != 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))

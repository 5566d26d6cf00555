#!/usr/bin/env python3
"""Language models beside onnxruntime-genai, ONNX Runtime, llama.cpp and OpenVINO: prefill, and steps behind a past, in turns.

usage: llm.py [--shapes tiny,smollm2-135m,qwen2.5-0.5b] [--forms f32,int4,int4-exact,bf16] [--layers N] [--past 128,1024] [--prefill 128,512]
              [--threads 1,2] [--rounds N] [--peers genai,llama.cpp,OpenVINO --peer-python PYTHON] [--reload]
                                                make bench-llm SHAPES=smollm2-135m FORMS=int4 LAYERS=6 PEERS=genai,llama.cpp

Networks have the shape of the model that they are called after, the operators that onnxruntime-genai's builder writes, and drawn weights
(llm_network.py), the same for all: int4 with accuracy_level 4, int4-exact with 1, bf16 the file of f32 with --precision=bf16. ONNX Runtime and
genai read that file, llama.cpp the same numbers as Q4_0 or BF16; it computes the last token's logits only and is compared with what
--last-logits gives. OpenVINO takes part in prefill, in bf16 where the CPU has that. Peers that are not installed are named and left out.

First the tokens that each chooses are compared with those of ONNX Runtime, up to a tie: another token that is as likely as the first within what the
form rounds. Behind it all differ, and are not compared. Then medians over rounds of turns: milliseconds, beside them a peer's time over mcc's (above
1: mcc is faster). Steps: what they read a second of the file's weights and of caches, and its share of what this machine can (mcc bench
--calibrate --roofline); prefill in int4: the share of the instructions for products of bytes that mcc's last takes. Several numbers of threads: what
mcc's first takes over what the others do, too. A mismatch of mcc's tokens is a failure but in bf16.
Each contender is a process of its own; all stay loaded, unless there is not memory for that, or --reload: then each is loaded for its turn.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from llm_network import FORMS, ROTATED, SHAPES, Network  # noqa: E402
import turns  # noqa: E402
from support import memory  # noqa: E402
from support.tool import MCC  # noqa: E402

STEPS, RUNS = 16, 2
PEERS = {"f32": ["ORT", "genai"], "int4": ["ORT", "genai", "llama.cpp"], "int4-exact": ["ORT", "genai", "llama.cpp"],
         "bf16": ["ORT", "llama.cpp", "OpenVINO"]}
# Logits as near as that to the largest, in parts of their scale, are as likely: what the forms round.
TIE = {"f32": 1e-4, "int4": 3e-2, "int4-exact": 1e-4, "bf16": 3e-2}


class Contender:
    """The other end of a worker (llm_peers.py)."""

    def __init__(self, name, python, about, log):
        self.name, self.command, self.log, self.process, self.missing = name, [python, HERE / "llm_peers.py", name, json.dumps(about)], log, None, None
        self.threads = about["threads"]

    def open(self):
        if self.process is None and self.missing is None:
            self.process = subprocess.Popen(self.command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
            self.missing = json.loads(self.process.stdout.readline() or '{"missing": "it ended"}').get("missing")
        return self.missing is None

    def ask(self, *case):
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.missing = f"it ended at {case}"
        if self.threads > 1:
            turns.settle(self.process.pid)
        return json.loads(line or "null")

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def peak_of(process):
    """MB of resident memory at most, of it and its workers, asked for until it ends: what wait4 says begins with this process' own."""
    peak = 0
    while process.poll() is None:
        peak = max(peak, memory.of_family(process.pid, "VmRSS"))
        time.sleep(0.005)
    return peak / 1e6


def compiled(folder, form):
    """Seconds and MB of resident memory that a compilation takes."""
    start, peak = time.monotonic(), 0
    flags = ["-march=native", *(["--precision=bf16"] if form == "bf16" else [])]
    for name, more in (("all.so", []), ("last.so", ["--last-logits"])):
        process = subprocess.Popen([MCC, "-q", folder / "model.onnx", "-o", folder / name, *flags, *more])
        peak = max(peak, peak_of(process))
        if process.returncode:
            sys.exit(f"mcc ended with {process.returncode}")
    return (time.monotonic() - start) / 2, peak


def available():
    return int(next(line for line in open("/proc/meminfo") if line.startswith("MemAvailable")).split()[1]) * 1024


def rounds(o, contenders, cases, keep):
    """{(name, case): list of medians}, {(name, case): [(token, those as likely)]}."""
    times, tokens = {}, {}
    for r in range(o.rounds):
        for c in contenders[r % len(contenders):] + contenders[:r % len(contenders)]:
            for case in cases if c.open() else ():
                got = c.ask(*case) if c.missing is None else None
                if got:
                    times.setdefault((c.name, case), []).append(statistics.median(got["ms"]))
                    tokens[c.name, case] = list(zip(got["tokens"], got["near"]))
            if not keep:
                c.close()
    return times, tokens


def title(case):
    return f"{case[0]} {case[1]}" if case[0] == "prefill" else f"decode behind {case[1]}"


def machine(threads):
    """[(bytes of a buffer, all threads together, GB/s at which it is read)], rising, 10^9 operations on bytes a second, and of those in tiles."""
    said = subprocess.run([MCC, "bench", "--calibrate", "--roofline", f"--threads={threads}"], capture_output=True, text=True, check=True).stdout
    rate = dict(re.findall(r"^(\S+) ([\d.]+) G", said, re.M))
    reads = [(1024 * threads * int(n[5:-1]), float(x)) for n, x in rate.items() if n.startswith("read-")]
    return reads, float(rate.get("flops-int8", 0)), float(rate.get("flops-int8-tiles", 0))


def share(case, ms, network, size, form, peaks):
    """What a case reads a second, or computes, as parts of what the machine can."""
    kind, n = case[:2]
    if kind == "decode":
        read = size / (2 if form == "bf16" else 1) + network.layers * 2 * network.keys * network.size * 4 * n
        most = next((rate for held, rate in peaks[0] if held >= read), peaks[0][-1][1])
        return f"   {read / ms / 1e6:.1f} GB/s, {100 * read / ms / 1e6 / most:.0f} % of {most:.1f}"
    if form != "int4" or not peaks[1]:
        return ""
    packed, heads = (network.heads + 2 * network.keys) * network.size, network.heads * network.size
    products = n * network.layers * network.width * (packed + heads + 3 * network.inner) + network.width * network.words
    done = 2 * products / ms / 1e6
    tiles = f", {100 * done / peaks[2]:.0f} % of tiles'" if peaks[2] else ""
    return f"   {done:.0f} GOP/s, {100 * done / peaks[1]:.0f} % of {peaks[1]:.0f}{tiles}"


def report(case, contenders, times, shared):
    ms = {c.name: statistics.median(times[c.name, case]) for c in contenders if (c.name, case) in times}
    fields = [f"{n} {ms[n]:.2f} ms" for n in ("mcc", "mcc last")]
    fields += [f"{n} {x:.2f} ms, {x / ms['mcc last' if n == 'llama.cpp' else 'mcc']:.2f}" for n, x in ms.items() if not n.startswith("mcc")]
    print(f"  {title(case):20} " + "   ".join(fields) + share(case, ms["mcc last"], *shared), flush=True)


def measure(o, shape, form, folder):
    size = Network(shape, o.layers, form).save(folder)
    names = ["mcc", "mcc last"] + [n for n in PEERS[form] if n == "ORT" or n in o.peers]
    network = Network(shape, o.layers, form)      # without its weights
    if "llama.cpp" in names:
        written = subprocess.run([o.peer_python, HERE / "llm_network.py", shape, str(o.layers), form, folder / "model.gguf"], capture_output=True, text=True)
        if written.returncode:
            print(f"llama.cpp is left out, its file was not written: {written.stderr.strip().splitlines()[-1]}")
            names.remove("llama.cpp")
    seconds, peak = compiled(folder, form)
    cases = [("prefill", n, RUNS) for n in o.prefill] + [("decode", n, STEPS) for n in o.past]
    good, before = True, {}
    for threads in o.threads:
        print(f"{shape} {form}, {network.layers} layers, {threads} thread{'s' * (threads > 1)}: {size / 1e6:.0f} MB, "
              f".so {(folder / 'all.so').stat().st_size / 1e6:.0f} MB, compiled in {seconds:.1f} s and {peak:.0f} MB", flush=True)
        right, ms = compare(o, names, form, threads, (folder, size, network), cases)
        good &= right
        for case, first in before.items():
            print(f"  {title(case):20} mcc {first / ms[case]:.2f} times as fast as with {o.threads[0]}")
        before = before or ms
    return good


def agreement(want, found):
    """Tokens that are equal, that are not, and that stand behind a tie: where another of the likeliest tokens was chosen, all that
    follows differs."""
    for i, ((a, likely), (b, _)) in enumerate(zip(want, found)):
        if a != b:
            return (i, 0, len(want) - i) if b in likely else (i, len(want) - i, 0)
    return len(want), 0, 0


def compare(o, names, form, threads, files, cases):
    """Whether mcc's tokens are right, and {case: milliseconds of mcc}."""
    folder, size, network = files
    about = {"folder": str(folder), "form": form, "threads": threads, "room": min(ROTATED, max(o.past + o.prefill) + STEPS + 1), "size": network.size,
             "words": network.words, "keys": network.keys, "tie": TIE[form]}
    with open(folder / "log", "w") as log:
        contenders = [Contender(n, sys.executable if n in ("mcc", "mcc last", "ORT") else o.peer_python, about, log) for n in names]
        keep = not o.reload and available() > 3 * size * len(names)
        try:
            times, tokens = rounds(o, contenders, cases, keep)
        finally:
            for c in contenders:
                c.close()
    for c in contenders:
        if c.missing:
            print(f"  {c.name} is left out: {c.missing}")
    good, want = True, {case: tokens.get(("ORT", case)) for case in cases}
    for c in contenders:
        found = [agreement(want[case] or [], tokens[c.name, case]) for case in cases if (c.name, case) in tokens]
        equal, wrong, behind = (sum(numbers) for numbers in zip(*found)) if found else (0, 0, 0)
        good &= not wrong or form == "bf16" or not c.name.startswith("mcc")
        if equal + wrong and c.name != "ORT":
            print(f"  {equal} of {equal + wrong} tokens of {c.name} are ONNX Runtime's" + (f", {behind} stand behind a tie" if behind else ""))
    peaks = machine(threads)
    for case in cases:
        report(case, contenders, times, (network, size, form, peaks))
    return good, {case: statistics.median(times["mcc", case]) for case in cases if ("mcc", case) in times}


def main():
    words, numbers = lambda text: text.split(","), lambda text: [int(n) for n in text.split(",")]
    p = argparse.ArgumentParser()
    p.add_argument("--shapes", type=words, default=["smollm2-135m"])
    p.add_argument("--forms", type=words, default=["f32", "int4"])
    p.add_argument("--past", type=numbers, default=[128, 1024])
    p.add_argument("--prefill", type=numbers, default=[128])
    p.add_argument("--threads", type=numbers, default=[1])
    p.add_argument("--peers", type=words, default=[])
    p.add_argument("--peer-python", default=sys.executable)
    p.add_argument("--reload", action="store_true")
    p.add_argument("--folder", help="where networks and artifacts lie meanwhile")
    for name, value in (("layers", 0), ("rounds", 5)):
        p.add_argument(f"--{name}", type=int, default=value)
    o = p.parse_args()
    if not set(o.shapes) <= set(SHAPES) or not set(o.forms) <= set(FORMS) or not set(o.peers) <= {n for ns in PEERS.values() for n in ns}:
        p.error(f"shapes are {', '.join(SHAPES)}, forms {', '.join(FORMS)}, peers genai, llama.cpp, OpenVINO")
    good = True
    for shape in o.shapes:
        for form in o.forms:
            with tempfile.TemporaryDirectory(dir=o.folder) as folder:
                good &= measure(o, shape, form, pathlib.Path(folder))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

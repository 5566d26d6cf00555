"""Rows of make bench-llm that mcc has alone: several streams, adapters, speculation, GGUF files, compiling and opening.

usage: llm_rows.py [--rows shape,lengths,speculation,gguf] [--shapes smollm2-135m] [--layers N] [--threads 1,2] [--rounds N] [--past 64]     make bench-llm

Streams, adapters, compiling and opening are measured on the int4 network of llm_network.py, in turns, medians over the rounds, processor time of
one thread or the clock for several; the others on BabyLlama's weights, drawn and constructed models:
  streams       tokens a second of 8 sequences in one run over those of one
  adapters      what rank 16 of all products costs a step, f32 and bf16; what the first step after another adapter takes longer
  lengths       prefill of 128 and 200 tokens in f32 and bf16, caches and lengths open, over a network that is compiled for just these
  speculation   tokens a second of examples/chat --speculate over those without: of BabyLlama, of the same function with 80,000 more hidden units a
                layer, which the caches do not hold, and of a network of that size that copies
  gguf          greedy tokens equal to those of llama.cpp that tests/gguf/record.py recorded
"""
import argparse
import ctypes
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from gguf import babyllama, copying, record, vocabularies  # noqa: E402
from llm import peak_of  # noqa: E402
from llm_network import SHAPES, Network  # noqa: E402
from llm_peers import Mcc  # noqa: E402
from support.artifact import Api, Error, Host  # noqa: E402
from support.decoder import Compiled  # noqa: E402
from support.tool import BUILD, MCC, ROOT, mcc  # noqa: E402

STREAMS, RANK, STEPS, PREFILL, CPUS = 8, 16, 16, (128, 200), sorted(os.sched_getaffinity(0))
COPIED = ["abcdefghijklm nopqrstuvwxyz. ab", "zyx wvutsrq. ponmlkjihgf edcba zyx"]
EDITS = ["Lily saw a big ball. Tom found a red dog. ", "Mia liked a new cake. Ben lost a big boat. "]
FREE = ["Once upon a time", "Tom had a red ball", "Lily", "One day, a big dog", "Mia saw a cat in the", "The sun"]


class Decoder(Mcc):
    """`batch` sequences in one run, with `sets` of drawn adapters: use(k) takes another one."""

    def __init__(self, path, network, room, threads, batch=1, sets=1):
        self.file, self.batch, self.rng = path, batch, np.random.default_rng(2)
        os.sched_setaffinity(0, CPUS[-threads:])
        super().__init__({"folder": ".", "room": room, "size": network.size, "threads": threads})
        self.clock = time.process_time if threads == 1 else time.perf_counter
        ports = {p.name.decode(): p for p in self.decoder.artifact.inputs if "lora_" in p.name.decode()}
        shape = lambda p: [d.extent if d.extent >= 0 else RANK for d in p.dims[:p.ndim]]
        self.adapters = [{n: (self.rng.standard_normal(shape(p)) * 1e-3).astype(self.decoder.dims[n][1]) for n, p in ports.items()} for _ in range(sets)]
        self.pointers = {}
        self.begin()

    def operands(self, n):
        return super().operands(n) | self.adapters[0]

    def begin(self):
        super().begin()
        self.pointers.clear()

    def use(self, k):
        """The inputs of adapter k: other pointers in the table that the next run gets."""
        if k not in self.pointers:
            self.pointers[k] = [self.decoder.artifact.tensors([x], self.keep[0])[0] for x in self.adapters[k].values()]
        names = list(self.keep[1])
        for name, pointer in zip(self.adapters[k], self.pointers[k]):
            self.given[names.index(name)] = pointer

    def step(self, ids=(1,)):
        start = self.clock()
        self.feed(ids)
        return (self.clock() - start) * 1e3


def steps(decoders, past, rounds):
    """Median ms of a step behind `past` tokens, of each decoder, in turns."""
    times = [[] for _ in decoders]
    for d in decoders:
        d.feed(list(range(1, past + 1)))
    for i in range(rounds):
        for j in range(len(decoders)):
            k = (i + j) % len(decoders)
            decoders[k].rewind(past)
            decoders[k].feed([1])       # the call for one token is made
            times[k].append(statistics.median(decoders[k].step() for _ in range(STEPS)))
    return [statistics.median(t) for t in times]


def compiled(folder, name, *options):
    """MB of resident memory at most, seconds."""
    start = time.monotonic()
    process = subprocess.Popen([MCC, "-q", folder / "model.onnx", "-o", folder / name, "-march=native", *options])
    peak = peak_of(process)
    if process.returncode:
        sys.exit(f"mcc ended with {process.returncode}")
    return peak, time.monotonic() - start


def opening(path):
    """Median ms of dlopen and mcc_query, and of open, while the file's pages are in memory."""
    program = f"import sys; sys.path[:0] = [{str(HERE.parent)!r}, {str(HERE)!r}]; import llm_rows; print(*llm_rows.opened({str(path)!r}))"
    times = [list(map(float, subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split())) for _ in range(7)]
    return map(statistics.median, zip(*times))


def opened(path):
    times = [time.perf_counter()]
    query = ctypes.CDLL(path).mcc_query
    query.restype, query.argtypes = ctypes.POINTER(Api), [ctypes.c_uint32]
    api, host, model, error = query(1)[0], Host(size=ctypes.sizeof(Host), threads=1), ctypes.c_void_p(), Error()
    times.append(time.perf_counter())
    status = api.open(ctypes.byref(host), ctypes.byref(model), ctypes.byref(error))
    times.append(time.perf_counter())
    assert status == 0, error.text
    return [(b - a) * 1e3 for a, b in zip(times, times[1:])]


def of_shape(o, shape, folder):
    network = Network(shape, o.layers, "int4")
    size = network.save(folder) / 1e6
    peak, seconds = compiled(folder, "m.so", "--last-logits")
    load, open_ = opening(folder / "m.so")
    print(f"{shape} int4, {network.layers} layers: {size:.0f} MB compiled in {seconds:.1f} s and {peak:.0f} MB (1.2 times and 250 MB: {1.2 * size + 250:.0f}), "
          f"loaded in {load:.2f} ms, opened in {open_:.2f} ms", flush=True)
    for threads in o.threads:
        room = o.past + STEPS + 2
        one, many = steps([Decoder(folder / "m.so", network, room, threads, batch) for batch in (1, STREAMS)], o.past, o.rounds)
        print(f"  streams, {threads} thread{'s' * (threads > 1)}: one {one:.2f} ms a step, {STREAMS} {many:.2f} ms: "
              f"{STREAMS * one / many:.2f} times as many tokens a second", flush=True)
    plain = None
    for kind in ("", ",bf16"):
        compiled(folder, "lora.so", "--last-logits", f"--lora={RANK}{kind}")
        with_it = Decoder(folder / "lora.so", network, o.past + STEPS + 2, 1, sets=2)
        plain, ms = steps([Decoder(folder / "m.so", network, o.past + STEPS + 2, 1), with_it], o.past, o.rounds)
        first = []
        for i in range(2 * o.rounds):
            with_it.rewind(o.past)
            with_it.use(i % 2)
            first.append(with_it.step())
        print(f"  adapters of rank {RANK}{kind.replace(',', ' in ')}: {plain:.2f} ms a step without, {ms:.2f} with: {100 * (ms / plain - 1):.1f} % more; "
              f"the first step after another one {statistics.median(first) - ms:+.2f} ms", flush=True)


def lengths(o, shape, folder):
    network = Network(shape, o.layers, "f32")
    network.save(folder)
    for form in ("f32", "bf16"):
        compiled(folder, "open.so", f"--precision={form}")
        for n in PREFILL:
            caches = [f"past_key_values.{i}.{what}:f32[1,{network.keys},{n},{network.size}]" for i in range(network.layers) for what in ("key", "value")]
            compiled(folder, "fixed.so", f"--precision={form}", *(f"--input={x}" for x in [f"input_ids:i64[1,{n}]", f"attention_mask:i64[1,{n}]", *caches]))
            ids = list(np.random.default_rng(4).integers(0, network.words, n))
            for threads in o.threads:
                both, times = [Decoder(folder / file, network, n, threads) for file in ("open.so", "fixed.so")], [[], []]
                for i in range(o.rounds + 1):
                    for j in ((0, 1), (1, 0))[i % 2]:
                        both[j].rewind(0)
                        times[j].append(both[j].step(ids))
                one, other = (statistics.median(t[1:]) for t in times)      # the first run sees new pages
                print(f"{shape} {form}, {network.layers} layers, prefill {n}, {threads} thread{'s' * (threads > 1)}: open {one:.1f} ms, "
                      f"fixed {other:.1f} ms: {one / other:.3f}", flush=True)


def speed(command, text):
    done = subprocess.run([*command, text], capture_output=True, text=True, check=True)
    return done.stdout, float(re.search(r"([\d.]+) tokens/s of", done.stderr)[1])


def speculation(o, folder):
    made = subprocess.run(["make", "-C", ROOT / "examples/chat", f"BUILD={folder}", f"MCC_BUILD={BUILD.absolute()}", folder / "chat"], capture_output=True)
    if made.returncode:
        return print("speculation is left out: examples/chat was not built, it needs libjansson-dev")
    free, edits = ("free text", FREE), ("texts that repeat", [x + x + x[:9] for x in EDITS])
    for name, f, n, kinds in (("BabyLlama Q4_0", babyllama.file("Q4_0"), 120, (edits, free)), ("the same, wider", babyllama.file("Q4_0", 80_000), 120, (free,)),
                              ("a copying network", copying.file(babyllama.WORDS, 100_000), 400, (("texts that repeat", COPIED),))):
        f.keys += vocabularies.babyllama()
        for file, options in (("strict.so", ["--strict"]), ("plain.so", [])):
            mcc("-q", "-march=native", *options, f.save(folder / "m.gguf"), "-o", folder / file)
        for what, texts in kinds:
            speculation_of(o, folder, f"{name}, {(folder / 'm.gguf').stat().st_size / 1e6:.1f} MB, {what}", n, texts)


def speculation_of(o, folder, what, n, texts):
    chat, gain, strict = [folder / "chat", "-i", "-v", "-n", str(n)], [], []
    for _ in range(o.rounds):
        for text in texts:
            runs = [folder / "strict.so"], ["--speculate", folder / "strict.so"], [folder / "plain.so"]
            (tokens, rate), (guessed, with_it), (_, plain) = (speed([*chat, *more], text) for more in runs)
            if tokens != guessed:
                sys.exit(f"--speculate changes the tokens of {text!r}")
            gain.append(with_it / rate)
            strict.append(with_it / plain)
    print(f"speculation, {what}: {statistics.median(gain):.2f} times as many tokens a second as without, "
          f"{statistics.median(strict):.2f} times those of a network without --strict", flush=True)


def gguf(folder):
    want, words = json.loads(record.TOKENS.read_text()), []
    for name, (file, prompt, size) in record.FILES.items():
        made = mcc("-q", "-march=native", file().save(folder / "m.gguf"), "-o", folder / "g.so")
        if made.returncode:
            sys.exit(made.stderr)
        have = Compiled(folder / "g.so", len(prompt) + record.STEPS, size).tokens(prompt, record.STEPS)[0]
        same = next((i for i, (a, b) in enumerate(zip(have, want[name])) if a != b), len(have))
        words.append(f"{name} {same}")
        os.unlink(folder / "g.so")
    print(f"gguf, greedy tokens of {record.STEPS} that are llama.cpp's: {', '.join(words)}", flush=True)


def main():
    words, numbers = lambda text: text.split(","), lambda text: [int(n) for n in text.split(",")]
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=words, default=["shape", "lengths", "speculation", "gguf"])
    p.add_argument("--shapes", type=words, default=["smollm2-135m"])
    p.add_argument("--threads", type=numbers, default=[1])
    for name, value in (("layers", 0), ("rounds", 5), ("past", 64)):
        p.add_argument(f"--{name}", type=int, default=value)
    o = p.parse_args()
    if not set(o.shapes) <= set(SHAPES):
        p.error(f"shapes are {', '.join(SHAPES)}")
    for shape in o.shapes if "shape" in o.rows else ():
        with tempfile.TemporaryDirectory() as folder:
            of_shape(o, shape, pathlib.Path(folder))
    for shape in o.shapes if "lengths" in o.rows else ():
        with tempfile.TemporaryDirectory() as folder:
            lengths(o, shape, pathlib.Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        if "speculation" in o.rows:
            speculation(o, pathlib.Path(folder))
        if "gguf" in o.rows:
            gguf(pathlib.Path(folder))


if __name__ == "__main__":
    main()

"""Judges networks: reads lines "SEED", answers lines of JSON. A process of its own, as compiled code may end it. "many SEED COUNT"
asks for COUNT networks from SEED on, of which several share a file (together.py). After an end "died SEED" asks for the smallest
network that ends it again.

{"seed": n, "phase": text} says what is going on, {"seed": n, "kind": ..., ...} how it ended; with "together" it is no answer for the
seed, except for a file of several networks.
"""
import argparse
import json
import os
import pathlib
import queue
import signal
import sys
import tempfile
import threading

import numpy as np
import onnx

from fuzz.ort.cut import reduce, same
from fuzz.ort.judge import Verdict, everything, judge
from fuzz.ort.known import known
from fuzz.ort.network import draw_network
from fuzz.ort.together import judge_many


def answer(**words):
    print(json.dumps(words), flush=True)


def keep(folder, network, verdict, smaller, feeds):
    """Writes what disagrees: the network, the smaller one with its inputs, a line of summary."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(network.model, folder / "model.onnx")
    np.savez(folder / "inputs.npz", **network.feeds)
    onnx.save(smaller, folder / "reduced.onnx")
    np.savez(folder / "reduced.npz", **feeds)
    line = f"seed {network.seed} opset {network.opset} {' '.join(network.flags)} {verdict.kind}: {verdict.text} | {ops_of(smaller)}"
    (folder / "summary.txt").write_text(line + "\n" + onnx.printer.to_text(smaller) + "\n")


def ops_of(model):
    return " ".join(n.op_type for n in model.graph.node)


def answer_none(seed):
    answer(seed=seed, kind="none", text="", ops="")


def one(seed, args, folder, reduced):
    phase = lambda name: answer(seed=seed, phase=name)
    phase("drawing")
    network = draw_network(seed, args.only)
    if network:
        alone(network, args, folder, reduced, phase)
    else:
        answer_none(seed)


def alone(network, args, folder, reduced, phase):
    """Judges one network, says so, and returns whether it agrees."""
    verdict = judge(network.model, network.feeds, network.values, folder, network.flags, network.more, phase)
    tell(network, verdict, args, folder, reduced, phase)
    return verdict.kind == "agree"


def tell(network, verdict, args, folder, reduced, phase, **more):
    """Answers with a verdict; what is not known is reduced and kept."""
    row, ops, smaller, feeds = None, " ".join(network.ops), network.model, network.feeds
    if verdict.kind != "agree":
        phase("reducing")
        row = known(verdict, network.model, network.feeds)
        if not row and args.keep and reduced.get(verdict.signature, 0) < args.reduce:
            reduced[verdict.signature] = reduced.get(verdict.signature, 0) + 1
            values = everything(network.model, verdict.feeds, network.values) if verdict.feeds else network.values
            flags = tuple(f for f in network.flags if not f.startswith("--input"))     # which keeps its port
            if flags != network.flags and not same(network.model, values, verdict.kind, folder, flags):
                flags = network.flags
            smaller, feeds = reduce(network.model, values, verdict.kind, flags)
            ops = ops_of(smaller)
            again = judge(smaller, feeds, values, folder, flags, (), phase)
            verdict = again if again.kind == verdict.kind else verdict
        row = row or known(verdict, smaller, feeds)
        if not row and args.keep:
            keep(args.keep / f"{verdict.kind}-{network.seed}", network, verdict, smaller, feeds)
    answer(seed=network.seed, kind=verdict.kind, text=verdict.text[:400], signature=verdict.signature, ops=ops, opset=network.opset,
           known=f"{row[4]}: {row[1]} {row[5]}" if row else "", drawn=network.ops, refused=[op for op, _ in network.refused], **more)


def many(first, count, args, folder, reduced):
    phase = lambda name: answer(seed=first, phase=name)
    phase("drawing")
    networks = []
    for seed in range(first, first + count):
        network = draw_network(seed, args.only)
        if network:
            networks.append(network)
        else:
            answer_none(seed)
    judge_many(networks, folder, phase,
               lambda network: tell(network, Verdict("agree"), args, folder, reduced, phase),
               lambda network: alone(network, args, folder, reduced, phase),
               lambda network, verdict: tell(network, verdict, args, folder, reduced, phase, together=True))


def died(seed, args):
    network = draw_network(seed, args.only)
    smaller, feeds = reduce(network.model, network.values, "died", network.flags)
    verdict = Verdict("died", "the compiled network ends the process")
    if args.keep:
        keep(args.keep / f"died-{seed}", network, verdict, smaller, feeds)
    answer(seed=seed, kind="died", text=verdict.text, signature=verdict.signature, ops=ops_of(smaller), opset=network.opset, known="",
           drawn=network.ops, refused=[])


def heard():
    """The lines of the input; when that ends, whoever asked is gone, and what runs here (`mcc reduce`, its question) ends at once."""
    lines = queue.SimpleQueue()

    def listen():
        for line in sys.stdin:
            lines.put(line)
        os.killpg(os.getpid(), signal.SIGKILL)
    threading.Thread(target=listen, daemon=True).start()
    return iter(lines.get, None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--reduce", type=int, default=20)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--alone", action="store_true", help="leader of a group of processes, which ends with the input")
    args = parser.parse_args()
    seeds = heard() if args.alone else sys.stdin
    reduced = {}
    with tempfile.TemporaryDirectory(prefix="mcc-fuzz-") as folder:
        for line in seeds:
            word, seed, count = {1: ("", *line.split(), 1), 2: (*line.split(), 1), 3: line.split()}[len(line.split())]
            try:
                if word == "died":
                    died(int(seed), args)
                elif word == "many":
                    many(int(seed), int(count), args, folder, reduced)
                else:
                    one(int(seed), args, folder, reduced)
            except Exception as e:       # a defect of these files
                answer(seed=int(seed), together=word == "many", kind="harness", text=f"{type(e).__name__}: {e}", signature="harness", ops="", opset=0, known="")


if __name__ == "__main__":
    main()

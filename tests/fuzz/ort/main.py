"""Random ONNX networks beside ONNX Runtime: draws N of them, compiles, runs and compares each, and counts what came of it.

usage: main.py [N] [SEED] [--jobs J] [--only OPERATOR...]

Networks SEED, SEED + 1, ... are drawn (network.py), judged (judge.py, together.py), and what disagrees and is not known (known.py) is
reduced and written to BUILD/fuzz-ort/KIND-SEED/: model.onnx, reduced.onnx, their inputs, summary.txt. The exit status is 1
where there is any. A number gives the same network as long as ONNX Runtime, onnx and numpy are the same.
"""
import argparse
import collections
import contextlib
import concurrent.futures
import json
import os
import pathlib
import queue
import select
import shutil
import signal
import subprocess
import sys
import time

from fuzz.ort.network import ALWAYS, FAMILIES, NAMED
from support.tool import BUILD

SECONDS, REUSE = 600, 1024            # between two lines of a process; how many networks it serves, since what it loads stays loaded
SHARE = 512                           # networks that are drawn before those that fit share files
BAD = ("ours", "refused", "run", "check", "crash", "died", "harness")


class Worker:
    def __init__(self, args, keep):
        self.args, self.keep, self.child, self.served = args, keep, None, 0

    def start(self):
        words = [sys.executable, "-m", "fuzz.ort.worker", "--alone", *(["--keep", str(self.keep)] if self.keep else [])]
        words += ["--only", *self.args.only] if self.args.only else []
        env = dict(os.environ, PYTHONPATH=str(pathlib.Path(__file__).resolve().parents[2]))
        self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
                                      bufsize=0,         # select() sees what a buffer would hide
                                      start_new_session=True)
        self.served = 0

    def stop(self):
        if self.child:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)      # and what it has started: `mcc reduce`, its question
            self.child.wait()
        self.child = None

    def ready(self):
        """A child that has not served its share."""
        if not self.child or self.served >= REUSE:
            self.stop()
            self.start()

    def ask(self, line):
        self.child.stdin.write(f"{line}\n".encode())
        self.child.stdin.flush()

    def heard(self):
        """The child's next line, or None where it ends or says nothing."""
        if not select.select([self.child.stdout], [], [], SECONDS)[0]:
            return None
        line = self.child.stdout.readline()
        return json.loads(line) if line else None

    def judge_many(self, first, count):
        """Yields the answers for `count` networks from `first` on, judged together; those without an answer, as the process ended, alone."""
        self.ready()
        self.served += count
        self.ask(f"many {first} {count}")
        left, phase, fine = set(range(first, first + count)), "starting", True
        while left and phase != "harness":
            said = self.heard()
            if said is None:
                break
            if "kind" in said:
                left -= set() if said.get("together") else {said["seed"]}
                phase = "harness" if said["kind"] == "harness" else phase
                yield said
            else:
                phase = said["phase"]
        if not left:
            return
        self.stop()
        for seed in sorted(left):
            said = self.judge(seed)
            fine = fine and said["kind"] in ("agree", "none")
            yield said
        if fine and phase != "harness":
            yield {"seed": first, "kind": "died", "text": f"the process ended, or did not, during: {phase}", "ops": "", "known": "", "opset": 0,
                   "signature": "died: together", "drawn": [], "refused": []}

    def judge(self, seed, word=""):
        """The answer for one network; a process that ends or that says nothing more is an answer too."""
        self.ready()
        self.served += 1
        self.ask(f"{word}{seed}")
        phase = "starting"
        while said := self.heard():
            if "kind" in said:
                return said
            phase = said["phase"]
        self.stop()
        if phase.startswith("run") and not word:
            return self.judge(seed, "died ")
        theirs = phase.startswith(("ONNX Runtime", "drawing"))
        return {"seed": seed, "kind": "theirs" if theirs else "died", "text": f"the process ended, or did not, during: {phase}",
                "signature": f"died: {phase}", "ops": "", "known": "theirs: the process ended in it" if theirs else "", "opset": 0,
                "drawn": [], "refused": []}


def judge_all(args, keep, report):
    shares, end = queue.SimpleQueue(), args.seed + args.n
    share = min(SHARE, -(-args.n // args.jobs)) or 1
    for first in range(args.seed, end, share):
        shares.put((first, min(share, end - first)))

    def serve():
        worker = Worker(args, keep)
        try:
            while True:
                for said in worker.judge_many(*shares.get_nowait()):
                    report(said)
        except queue.Empty:
            pass
        finally:
            worker.stop()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for done in [pool.submit(serve) for _ in range(args.jobs)]:
            done.result()


class Tally:
    def __init__(self, quiet=False):
        self.kinds, self.known, self.new, self.drawn, self.refused = (collections.Counter() for _ in range(5))
        self.bad, self.quiet = [], quiet

    def add(self, said):
        self.kinds[said["kind"]] += 1
        self.drawn.update(said.get("drawn", ()))
        self.refused.update(said.get("refused", ()))
        if said["kind"] in ("agree", "none"):
            return
        if said["known"]:
            self.known[said["known"]] += 1
        elif said["kind"] in BAD:
            self.bad.append(said)
            self.new[said["signature"]] += 1
        if not self.quiet and not said["known"]:
            print(f"{said['kind']:8} seed {said['seed']} opset {said['opset']}: {said['text']} | {said['ops']}", flush=True)

    def summary(self):
        lines = ["", " ".join(f"{k} {n}" for k, n in sorted(self.kinds.items()))]
        lines += [f"{n:6} known, {what}" for what, n in self.known.most_common()]
        lines += [f"{n:6} new, {what}" for what, n in self.new.most_common()]
        never = sorted(n for n in set(ALWAYS) - set(self.drawn) if not n.endswith(("Text", "Trained", "Sizes")))    # forms of other operators
        lines.append(f"{sum(self.drawn.values())} nodes of {len(self.drawn)} operators" + (f"; never drawn: {' '.join(never)}" if never else ""))
        return "\n".join(lines)


def run(n, seed, jobs=1, only=None, keep=None, quiet=False):
    """The Tally of n networks from `seed` on."""
    tally = Tally(quiet)
    judge_all(argparse.Namespace(n=n, seed=seed, jobs=jobs, only=only), keep, tally.add)
    return tally


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("n", type=int, nargs="?", default=1000)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="*", help=f"these operators alone; {', '.join(NAMED)}: all of a family")
    args = parser.parse_args()
    keep = BUILD.resolve() / "fuzz-ort"
    shutil.rmtree(keep, ignore_errors=True)
    print(f"{args.n} networks from seed {args.seed}, {len(ALWAYS)} operators of {len(FAMILIES)} families", flush=True)
    start = time.monotonic()
    tally = run(args.n, args.seed, args.jobs, args.only, keep)
    print(tally.summary())
    print(f"{time.monotonic() - start:.0f} s; what is new: {keep}" if tally.bad else f"{time.monotonic() - start:.0f} s")
    return 1 if tally.bad else 0


if __name__ == "__main__":
    sys.exit(main())

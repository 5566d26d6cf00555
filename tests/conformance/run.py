#!/usr/bin/env python3
"""The ONNX 1.22.0 suite: every model compiled by mcc from the model alone, run through the C table, compared by the
official rule. Prints counts by reason; ends with 1 when a case of passing.txt is lost or a result is wrong. --erased:
every dim of every graph input is made a symbol of its own and the outputs' shapes are removed, before mcc sees the model;
the cases that pass so are counted alone (passing.py).

usage: run.py [--erased] [--update] [--only SUBSTRING] [--listed] [--details] [--flags='-O2 ...']
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import resource
import select
import subprocess
import sys
import tempfile
import threading

import onnx

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from conformance import suite  # noqa: E402
from conformance.passing import passing, update  # noqa: E402
from support import agree  # noqa: E402

COMPILE_SECONDS, RUN_SECONDS = 120, 120
CLASSES = {1: "refused", 2: "usage", 3: "environment", 4: "limit", 5: "internal error"}


class Runner:
    """A runner.py process that is started again when it dies or hangs."""

    def __init__(self):
        self.process = None

    def ask(self, line):
        if self.process is None:
            self.process = subprocess.Popen([sys.executable, HERE / "runner.py"], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], RUN_SECONDS)
        answer = self.process.stdout.readline() if ready else ""
        if answer:
            status, _, text = answer.rstrip("\n").partition("\t")
            return status, text
        self.process.kill()
        status = self.process.wait()
        self.process = None
        return ("crashed", f"signal {-status}") if ready else ("hung", f"no answer in {RUN_SECONDS} s")


local = threading.local()


def compile_case(mcc, case, flags, model, output):
    try:
        done = subprocess.run([mcc, *flags, "-q", "-j1", str(model), "-o", output], capture_output=True, text=True,
                              errors="replace", timeout=COMPILE_SECONDS)
    except subprocess.TimeoutExpired:
        return "compile hung", f"{COMPILE_SECONDS} s"
    if text := agree.disagreement(mcc, [*flags, str(model), "-o", output], done.returncode, done.stderr):
        return "check and compile disagree", " ".join(text.split())
    if done.returncode == 0:
        return "compiled", ""
    name = CLASSES.get(done.returncode, "compiler crashed")
    lines = done.stderr.strip().splitlines()
    text = lines[0] if lines else f"ended with {done.returncode}"
    return name, text.removeprefix(f"{model}: ")


def run_case(mcc, case, flags, folder, erased):
    output = os.path.join(folder, case.name.replace("/", "_") + ".so")
    model = suite.erase(onnx.load(case.model), output + ".onnx") if erased else case.model
    status, text = compile_case(mcc, case, flags, model, output)
    if erased:
        os.unlink(model)
    if status != "compiled":
        return case.name, status, text
    if not hasattr(local, "runner"):
        local.runner = Runner()
    status, text = local.runner.ask(f"{case.name}\t{output}")
    os.unlink(output)
    return case.name, status, text


# One CPU variant: the best of this machine. tests/targets compares the others.
FLAGS = ("-march=native",)


def run(names, flags=FLAGS, jobs=None, progress=None, erased=False):
    """{case: (status, text)}"""
    mcc = os.environ["MCC"]
    known = suite.cases()
    results = {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        for done in concurrent.futures.as_completed(
                [pool.submit(run_case, mcc, known[n], flags, folder, erased) for n in names if n in known]):
            name, status, text = done.result()
            results[name] = (status, text)
            if progress:
                progress(name, status, text)
    return results


def reason(status, text):
    """A group for the counts: names and numbers of one case removed."""
    if status == "passed":
        return "passed"
    text = re.sub(r"node (-> )?'[^']*' ", "", text)
    text = re.sub(r"tensor '[^']*': ", "", text)
    return f"{status}: {text[:110]}" if status in ("refused", "limit", "internal error", "run error") else status


def main():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parser = argparse.ArgumentParser()
    parser.add_argument("--update", action="store_true", help="write the list of passing cases")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--listed", action="store_true", help="only the cases of passing.txt")
    parser.add_argument("--details", action="store_true", help="one line for each case that does not pass")
    parser.add_argument("--flags", default=" ".join(FLAGS), help="options for mcc (--flags='-O0 -march=native')")
    parser.add_argument("--erased", action="store_true", help="without the shapes of inputs and outputs")
    args = parser.parse_args()
    way = "compiled-erased" if args.erased else "compiled"
    names = [n for n in (passing(way) if args.listed else suite.cases()) if args.only in n]

    def show(name, status, text):
        if args.details and status != "passed":
            print(f"{status:14} {name}: {text}", flush=True)

    results = run(names, args.flags.split(), progress=show, erased=args.erased)
    by_status = collections.Counter(s for s, _ in results.values())
    for text, count in collections.Counter(reason(*r) for r in results.values()).most_common(60):
        print(f"{count:6}  {text}")
    draws = sum(results.get(n, ("",))[0] == "passed" for n in suite.RANDOM)
    print("shapes erased:" if args.erased else "in all:", ", ".join(f"{n} {s}" for s, n in by_status.most_common()), f"of {len(results)};",
          f"{draws} of the passed are random draws judged by shape, type and range")
    passed = sorted(n for n, (s, _) in results.items() if s == "passed")
    lost = sorted(set(passing(way)) & set(results) - set(passed))
    for name in lost:
        print(f"lost: {name}: {': '.join(results[name])}")
    if args.update and not args.only:
        update(way, passed)
    bad = [n for n, (s, _) in results.items() if s not in ("passed", "refused", "limit")]
    for name in sorted(bad):
        print(f"{results[name][0]}: {name}: {results[name][1]}")
    return 1 if bad or (lost and not args.update) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The ONNX 1.22.0 suite: every model compiled by mcc from the model alone, looked at as an ELF file (support/elf.py), run through the C
table, compared by the official rule. Prints counts by reason; ends with 1 when a case of passing.txt is lost or a result is wrong.
--erased: every dim of every graph input is made a symbol of its own and the outputs' shapes are removed, before mcc sees the model;
the cases that pass so are counted alone (passing.py).

--target: the cases of passing.txt for another platform, under qemu-user, Wine, by a loader of the tests or in Node.js, with its best instructions
and with its least; one in --every is taken.

usage: run.py [--erased] [--update] [--only SUBSTRING] [--listed] [--details] [--flags='-O2 ...'] [--target=TRIPLE [--every=N]]
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
from support import agree, elf  # noqa: E402

COMPILE_SECONDS, RUN_SECONDS, EMULATED_SECONDS = 120, 120, 1900
CLASSES = {1: "refused", 2: "usage", 3: "environment", 4: "limit", 5: "internal error"}


class Runner:
    """A runner.py process that is started again when it dies or hangs. arch: of the artifacts; None: this machine's."""

    def __init__(self, arch):
        self.process, self.arch = None, [arch] if arch else []

    def ask(self, line):
        if self.process is None:
            self.process = subprocess.Popen([sys.executable, HERE / "runner.py", *self.arch], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        seconds = EMULATED_SECONDS if self.arch else RUN_SECONDS
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        answer = self.process.stdout.readline() if ready else ""
        if answer:
            status, _, text = answer.rstrip("\n").partition("\t")
            return status, text
        self.process.kill()
        status = self.process.wait()
        self.process = None
        return ("crashed", f"signal {-status}") if ready else ("hung", f"no answer in {seconds} s")


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


def arch_of(flags):
    """The architecture that --target names, with -windows or -macos; None: this machine's."""
    target = next((f.split("=")[1] for f in flags if f.startswith("--target=")), None)
    return target if not target or target.endswith(("-windows", "-macos")) else target.split("-")[0]


SUFFIXES = {"windows": ".dll", "macos": ".dylib", "wasm32": ".wasm"}


def run_case(mcc, case, flags, folder, erased):
    arch = arch_of(flags)
    suffix = SUFFIXES.get(arch.split("-")[-1] if arch else None, ".so")
    output = os.path.join(folder, case.name.replace("/", "_") + suffix)
    model = suite.erase(onnx.load(case.model), output + ".onnx") if erased else case.model
    status, text = compile_case(mcc, case, flags, model, output)
    if erased:
        os.unlink(model)
    if status != "compiled":
        return case.name, status, text
    if not hasattr(local, "runner"):
        local.runner = Runner(arch)
    if suffix == ".so" and (
            found := elf.flaws(output, library="libc.so" if any("android" in f for f in flags) else "libc.so.6")):
        return case.name, "not a sober file", "; ".join(found)
    status, text = local.runner.ask(f"{case.name}\t{output}")
    os.unlink(output)
    return case.name, status, text


# One CPU variant: the best of this machine. tests/targets compares the others.
FLAGS = ("-march=native",)
# Of an architecture that --target names: the level with the most instructions and that with the fewest.
LEVELS = {"aarch64": ("armv8.6-a-i8mm", "armv8-a"), "aarch64-windows": ("armv8.6-a-i8mm", "armv8-a"),
          "x86_64-windows": ("native", "x86-64-v2"), "aarch64-macos": ("armv8.6-a-i8mm", "armv8-a"),
          "x86_64-macos": ("native", "x86-64-v2"), "wasm32": ("wasm32-simd128",)}


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


def report(results, way, label):
    """Prints the counts and what is lost; the names of those that passed, and whether anything is wrong or lost."""
    by_status = collections.Counter(s for s, _ in results.values())
    for text, count in collections.Counter(reason(*r) for r in results.values()).most_common(60):
        print(f"{count:6}  {text}")
    draws = sum(results.get(n, ("",))[0] == "passed" for n in suite.RANDOM)
    print(label, ", ".join(f"{n} {s}" for s, n in by_status.most_common()), f"of {len(results)};",
          f"{draws} of the passed are random draws judged by shape, type and range")
    passed = sorted(n for n, (s, _) in results.items() if s == "passed")
    lost = sorted(set(passing(way)) & set(results) - set(passed))
    for name in lost:
        print(f"lost: {name}: {': '.join(results[name])}")
    bad = [n for n, (s, _) in results.items() if s not in ("passed", "refused", "limit")]
    for name in sorted(bad):
        print(f"{results[name][0]}: {name}: {results[name][1]}")
    return passed, bool(bad), bool(lost)


def main():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parser = argparse.ArgumentParser()
    parser.add_argument("--update", action="store_true", help="write the list of passing cases")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--listed", action="store_true", help="only the cases of passing.txt")
    parser.add_argument("--details", action="store_true", help="one line for each case that does not pass")
    parser.add_argument("--flags", default=" ".join(FLAGS), help="options for mcc (--flags='-O0 -march=native')")
    parser.add_argument("--erased", action="store_true", help="without the shapes of inputs and outputs")
    parser.add_argument("--target", help="the listed cases for this machine, under qemu-user or Wine")
    parser.add_argument("--every", type=int, default=1, help="of the cases only every so many")
    args = parser.parse_args()
    way = "compiled-erased" if args.erased else "compiled"
    listed = args.listed or args.target
    names = [n for n in (sorted(passing(way)) if listed else suite.cases()) if args.only in n][::args.every]

    def show(name, status, text):
        if args.details and status != "passed":
            print(f"{status:14} {name}: {text}", flush=True)

    if args.target:
        wrong = False
        for level in LEVELS[arch_of([f"--target={args.target}"])]:
            results = run(names, [f"--target={args.target}", f"-march={level}"], progress=show, erased=args.erased)
            _, bad, lost = report(results, way, f"{level}:")
            wrong |= bad or (lost and level != "wasm32-simd128")  # what one function cannot do is refused
        return wrong
    results = run(names, args.flags.split(), progress=show, erased=args.erased)
    passed, bad, lost = report(results, way, "shapes erased:" if args.erased else "in all:")
    if args.update and not args.only:
        update(way, passed)
    return bad or (lost and not args.update)


if __name__ == "__main__":
    sys.exit(main())

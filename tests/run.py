#!/usr/bin/env python3
"""Runs every test and sums the results up: cmocka programs (TAP), then pytest over tests/.

usage: run.py --build BUILD [--no-pytest | --only FOLDER] [--name PART] PROGRAM...

A program that dies or that names fewer tests than it planned counts as one more failure. Failed tests are printed with
what they said; the last line of all is "N passed, N failed, N skipped".
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import resource
import subprocess
import sys
import time
import xml.etree.ElementTree

PROGRAM_SECONDS = 600
RESULT = re.compile(r"^(ok|not ok) (\d+)(.*# SKIP)?")     # cmocka says "not ok 7 # SKIP name"


def run_program(path):
    """(name, passed, failed, skipped, seconds, text to show)"""
    start = time.monotonic()
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP")
    try:
        done = subprocess.run([path], env=env, capture_output=True, timeout=PROGRAM_SECONDS)
        status, out, err = done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired:
        status, out, err = "time limit", "", ""
    counts = {"ok": 0, "not ok": 0, "skip": 0}
    planned = 0
    for line in out.splitlines():
        if plan := re.match(r"^1\.\.(\d+)", line):
            planned += int(plan[1])
        elif result := RESULT.match(line):
            counts["skip" if result[3] else result[1]] += 1
    seen = sum(counts.values())
    broken = seen < planned or planned == 0 or (status != 0 and counts["not ok"] == 0)
    failed = counts["not ok"] + broken
    text = ""
    if failed:
        lines = [l for l in (out + err).splitlines() if not l.startswith("ok ")]
        text = "\n".join(lines[-60:]) + (f"\nended with {status}, {seen} of {planned} tests" if broken else "")
    name = "/".join(pathlib.Path(path).parts[-2:])
    return name, counts["ok"], failed, counts["skip"], time.monotonic() - start, text


def run_programs(paths):
    total = [0, 0, 0]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for name, ok, bad, skipped, seconds, text in pool.map(run_program, paths):
            total = [a + b for a, b in zip(total, (ok, bad, skipped))]
            print(f"{name:40} {ok:5} passed {bad:3} failed {skipped:3} skipped  {seconds:6.1f} s", flush=True)
            if text:
                print(text, flush=True)
    return total


def forget_outer_make():
    """A make that a test starts is a user's: flags and variables of the make around the tests are not for it."""
    for word in os.environ.pop("MAKEFLAGS", "").split():
        name, sign, _ = word.partition("=")
        if sign and not word.startswith("-"):
            os.environ.pop(name, None)
    for name in ("MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"):
        os.environ.pop(name, None)


def run_pytest(build, only, name="", jobs=1):
    """jobs: processes; a file's tests stay together, since they share what the file's fixtures made."""
    report = build / "pytest.xml"
    report.unlink(missing_ok=True)
    here = pathlib.Path(__file__).parent
    tests = [str(only)] if only else sorted(str(p) for p in here.glob("*/test_*.py") if p.parent.name != "hostile")
    if not tests:
        return [0, 0, 0]
    options = ["--tb=short", "--durations=8", "--import-mode=importlib", f"--junitxml={report}"]
    options += ["-n", str(jobs), "--dist=loadfile"] if jobs > 1 else []
    options += ["-k", name] if name else []
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests],
                          env=dict(os.environ, PYTHONPATH=str(pathlib.Path(__file__).parent)))
    if not report.exists():
        return [0, 1, 0]
    suites = list(xml.etree.ElementTree.parse(report).getroot().iter("testsuite"))
    count = {k: sum(int(s.get(k, 0)) for s in suites) for k in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    if done.returncode not in (0, 1, *([5] if name else [])) and failed == 0:   # 5: no test of that name here
        failed = 1
    return [count["tests"] - count["failures"] - count["errors"] - count["skipped"], failed, count["skipped"]]


def main():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    forget_outer_make()
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--no-pytest", action="store_true")
    parser.add_argument("--only", type=pathlib.Path, help="of the Python tests, those of this folder")
    parser.add_argument("--name", default="", help="only tests whose name holds this: of a C program's path, of a pytest id")
    parser.add_argument("programs", nargs="*")
    args = parser.parse_args()
    args.programs = [p for p in args.programs if args.name in p]
    total = run_programs(args.programs)
    if not args.no_pytest:
        sys.stdout.flush()
        # Bad files in a process of their own: the peak memory of a child counts what its parent held when it forked.
        for part in [args.only] if args.only else [pathlib.Path(__file__).parent / "hostile", None]:
            jobs = 1 if part else len(os.sched_getaffinity(0))
            total = [a + b for a, b in zip(total, run_pytest(args.build, part, args.name, jobs))]
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())

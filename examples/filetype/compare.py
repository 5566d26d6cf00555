#!/usr/bin/env python3
"""build/filetype beside the package magika on files of this machine: labels, score, time, memory, installed size.

usage: compare.py BUILD N      N files of as many kinds as there are under /usr and /etc; exits 1 when a label differs
"""
import collections
import os
import pathlib
import subprocess
import sys
import sysconfig
import time

ROOTS = ("/usr", "/etc", "/var/lib/dpkg", "/var/cache", "/boot")
ROUNDS = 3
ORIGINAL = """
import sys, magika
for r in magika.Magika().identify_paths([__import__("pathlib").Path(p) for p in sys.argv[1:]]):
    print(f"{r.path}: {r.output.label} {int(r.prediction.score * 100)}%")
sys.stdout.flush()
print("memory", next(l.split()[1] for l in open("/proc/self/status") if l.startswith("VmHWM")), "kB", file=sys.stderr)
"""


def kinds():
    """{suffix or first bytes: files}, in the order of their names; links and what cannot be read left out."""
    found = collections.defaultdict(list)
    for root in ROOTS:
        for folder, folders, files in os.walk(root):
            folders.sort()
            for name in sorted(files):
                path = pathlib.Path(folder, name)
                if path.is_symlink() or not path.is_file() or not os.access(path, os.R_OK) or "\n" in str(path):
                    continue
                suffix = path.suffix.lower()
                if not suffix or suffix[1:].isdigit() or len(suffix) > 8:
                    with open(path, "rb") as f:
                        suffix = repr(f.read(2))
                found[suffix].append(path)
    return found


def choose(n):
    """n files: one of every kind, then a second of every kind, and so on, spread over the whole list of a kind."""
    queues = []
    for paths in kinds().values():
        step = max(1, len(paths) // 16)
        queues.append(paths[::step] + [p for i, p in enumerate(paths) if i % step])
    queues.sort(key=len, reverse=True)
    chosen = []
    for turn in range(n):
        for queue in queues:
            if turn < len(queue) and len(chosen) < n:
                chosen.append(str(queue[turn]))
        if len(chosen) == n:
            break
    return chosen


def run(command, files):
    """(output lines, milliseconds from start to the last answer, MB)"""
    start = time.monotonic()
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=True)
    ms = (time.monotonic() - start) * 1e3
    return done.stdout.splitlines(), ms, int(done.stderr.split("memory ")[-1].split()[0]) / 1e3


def best(command, files):
    """The fastest of some rounds, with the memory of the largest."""
    rounds = [run(command, files) for _ in range(ROUNDS)]
    return rounds[0][0], min(r[1] for r in rounds), max(r[2] for r in rounds)


def size(*paths):
    """MB of files and folders"""
    total = 0
    for path in map(pathlib.Path, paths):
        total += sum(p.stat().st_size for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file() and not p.is_symlink())
    return total / 1e6


def main():
    build, files = pathlib.Path(sys.argv[1]).resolve(), choose(int(sys.argv[2]))
    ours, theirs = [build / "filetype", "-sv", build / "magika.so"], [sys.executable, "-c", ORIGINAL]
    got, want = run(ours, files)[0], run(theirs, files)[0]
    tool = subprocess.run([pathlib.Path(sys.executable).parent / "magika", "--no-colors", "--label", *files], capture_output=True,
                          text=True, check=True).stdout.splitlines()
    types, wrong, scores, of_tool = collections.Counter(), 0, 0, 0
    for path, *lines in zip(files, got, want, tool, strict=True):
        (label, score), (label_b, score_b), (label_c, *_) = (line.removeprefix(path + ": ").split() for line in lines)
        types[label_b] += 1
        scores += score != score_b
        of_tool += label_b != label_c
        if label != label_b:
            wrong += 1
            print(f"{path}: {label} {score}, the package says {label_b} {score_b}")
    print(f"{len(files)} files of {len(types)} types: {len(files) - wrong} labels as the package's, {scores} scores differ by 1 %; the "
          f"package's command, another program with the same network, differs from the package in {of_tool}")
    print(", ".join(f"{t} {n}" for t, n in types.most_common()))
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    parts = [p for p in site.iterdir() if not p.name.startswith(("pip", "setuptools", "_distutils", "distutils", "pkg_resources"))]
    rows = [("filetype, compiled by mcc", ours, size(build / "filetype", build / "magika.so")),
            ("package magika on ONNX Runtime", theirs, size(*parts))]
    print("\n| | one file: start to answer | memory | %d files | memory | installed |\n|---|---|---|---|---|---|" % len(files))
    for name, command, installed in rows:
        one, many = best(command, files[:1]), best(command, files)
        print(f"| {name} | {one[1]:.0f} ms | {one[2]:.1f} MB | {many[1]:.0f} ms | {many[2]:.1f} MB | {installed:.1f} MB |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""build/ocr beside the package rapidocr-onnxruntime on the pictures of render.py: texts, boxes, time, memory, size.

usage: compare.py BUILD        exits 1 when a text differs
"""
import pathlib
import resource
import subprocess
import sys
import sysconfig
import time

import render

ROUNDS = 3
ORIGINAL = """
import sys, rapidocr_onnxruntime
for box, text, score in rapidocr_onnxruntime.RapidOCR()(sys.argv[1])[0] or []:
    print("%.3f" % score, *("%.0f,%.0f" % tuple(p) for p in box), text)
sys.stdout.flush()
print("memory", next(l.split()[1] for l in open("/proc/self/status") if l.startswith("VmHWM")), "kB", file=sys.stderr)
"""


def run(command):
    """(rows of score, corners and text, milliseconds from start to the last answer and of processor time, MB)"""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    ms, after = (time.monotonic() - start) * 1e3, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3
    if done.returncode:
        sys.exit(done.stderr)
    rows = [line.split(" ", 5) for line in done.stdout.splitlines()]
    corners = [[[int(v) for v in p.split(",")] for p in r[1:5]] for r in rows]
    lines = [(float(r[0]), c, r[5] if len(r) > 5 else "") for r, c in zip(rows, corners)]
    return lines, (ms, cpu), int(done.stderr.split("memory ")[-1].split()[0]) / 1e3


def size(*paths):
    """MB of files and folders"""
    total = 0
    for path in map(pathlib.Path, paths):
        total += sum(p.stat().st_size for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file() and not p.is_symlink())
    return total / 1e6


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    models = [build / f"{n}.so" for n in ("det", "cls", "rec")]
    pictures, wrong, texts, moved, unsure = build / "pictures", 0, 0, 0, 0.0
    for name, draw in render.PICTURES.items():
        pictures.mkdir(exist_ok=True)
        draw().save(pictures / f"{name}.png")
        got = run([build / "ocr", "-v", "-d", build / f"{name}_boxes.png", *models, pictures / f"{name}.png"])[0]
        want = run([sys.executable, "-c", ORIGINAL, pictures / f"{name}.png"])[0]
        same = [g[2] for g in got] == [w[2] for w in want]
        wrong += not same
        texts += len(want)
        for g, w in zip(got, want) if same else ():
            moved = max(moved, max(abs(a - b) for p, q in zip(g[1], w[1]) for a, b in zip(p, q)))
            unsure = max(unsure, abs(g[0] - w[0]))
        print(f"{name:16} {'same' if same else 'DIFFERENT'}: {' | '.join(g[2] for g in got)}")
        if not same:
            print(f"{'':16} the package: {' | '.join(w[2] for w in want)}")
    n = len(render.PICTURES)
    print(f"{n} pictures, {texts} texts: {n - wrong} pictures with the same texts as the package's; corners differ by at most {moved} "
          f"pixels, scores by {unsure:.3f}")
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    parts = [p for p in site.iterdir() if not p.name.startswith(("pip", "setuptools", "_distutils", "distutils", "pkg_resources"))]
    rows = [("ocr, compiled by mcc", [build / "ocr", "-v", *models], size(build / "ocr", *models)),
            ("package rapidocr-onnxruntime", [sys.executable, "-c", ORIGINAL], size(*parts))]
    print("\n| | small label: start to answer (processor) | memory | page of six lines | memory | installed |\n|---|---|---|---|---|---|")
    for name, command, installed in rows:
        times = []
        for picture in ("small", "plain"):
            rounds = [run([*command, pictures / f"{picture}.png"]) for _ in range(ROUNDS)]
            wall, cpu = (min(r[1][i] for r in rounds) for i in (0, 1))
            times.append(f"{wall:.0f} ms ({cpu:.0f}) | {max(r[2] for r in rounds):.0f} MB")
        print(f"| {name} | {times[0]} | {times[1]} | {installed:.1f} MB |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

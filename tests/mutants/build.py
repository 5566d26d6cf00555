"""A compiler with all mutants in it: BUILD/mutants/mcc, and BUILD/mutants/sites.json.

Whatever rewrite.py makes that does not compile (a bit-field, a constant) is taken out, line by line.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess

from compiler import FOLDERS, ROOT, make
from rewrite import Source

# What gets mutants, and what of it does not: it serves no network that is compiled here, or the proof itself.
MUTATED = ("passes", "codegen/llvm", "codegen/constants.c")
WITHOUT = ("passes/regex", "passes/module/print.c", "passes/legalize/text", "passes/legalize/ml", "codegen/llvm/llvm_debug.c")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def mutated(path):
    name = str(path)
    return path.suffix == ".c" and any(name == m or name.startswith(m + "/") for m in MUTATED) and \
        not any(name == w or name.startswith(w + "/") for w in WITHOUT)


def arguments(source, gen):
    return ["-std=c11", "-D_GNU_SOURCE", f"-I{source}", f"-I{gen}", "-isystem", output("llvm-config-19", "--includedir"),
            "-resource-dir", output("clang-19", "-print-resource-dir")]


def read(gen):
    """{name: its Source} of what gets mutants."""
    options, sources, n = arguments(ROOT, gen), {}, 0
    for path in (p for top in FOLDERS for p in sorted((ROOT / top).rglob("*.c"))):
        name = path.relative_to(ROOT)
        if mutated(name):
            sources[str(name)] = source = Source(path, options, n)
            n += len(source.sites)
    return sources


def write(folder, sources, skipped):
    """Copies the tree, with mutants but on the lines of skipped: {name: lines}."""
    for top in FOLDERS:
        for path in (ROOT / top, *(ROOT / top).rglob("*")):
            name = path.relative_to(ROOT)
            to = folder / name
            if path.is_dir():
                to.mkdir(parents=True, exist_ok=True)
                continue
            source = sources.get(str(name))
            text = source.rewritten(skipped.get(str(name), ())) if source else path.read_bytes()
            if not to.exists() or to.read_bytes() != text:
                to.write_bytes(text)


def build(build):
    """Writes sites.json: [{file, line, ways}], no ways where there is no mutant."""
    out = build / "mutants"
    folder, skipped = out / "src", {}
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "Makefile", folder)
    sources = read(build / "gen")
    for _ in range(20):
        write(folder, sources, skipped)
        done = make(folder, "../obj", check=False)
        wrong = set(re.findall(r"^(\S+?\.c):(\d+):\d+: error", done.stderr, re.M))
        for name, line in wrong:
            skipped.setdefault(name, []).append(int(line))
        if done.returncode == 0:
            break
        if not wrong:
            raise RuntimeError(done.stderr[-3000:])
        print(f"{len(wrong)} lines without: {sorted(wrong)[:20]}", flush=True)
    sites = [{"file": name, "line": s.line, "ways": [] if {s.line, s.last} & set(skipped.get(name, ())) else s.ways}
             for name, source in sources.items() for s in source.sites]
    shutil.copy(out / "obj/mcc", out / "mcc")
    (out / "sites.json").write_text(json.dumps(sites))
    print(f"{len(sites)} sites, {sum(len(s['ways']) for s in sites)} mutants", flush=True)


if __name__ == "__main__":
    build(pathlib.Path(os.environ.get("MCC_BUILD", ROOT / "build")).resolve())

#!/usr/bin/env python3
"""Rules that no compiler checks: layers, forbidden functions, white space; and clang's warnings beside gcc's.

usage: lint.py --include GENERATED --llvm LLVM_INCLUDE --clang CLANG     or     lint.py --fix (mends white space)
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("ir", "passes", "frontend", "codegen", "runtime", "cli", "tests", "examples")
COLUMNS = 160   # tables (.def) may be wider

# Who may include whom: frontend, passes and codegen know the IR only; cli wires them; the runtime stands alone.
LAYERS = {
    "ir": {"ir"},
    "frontend": {"ir", "frontend"},
    "passes": {"ir", "passes"},
    "codegen": {"ir", "codegen", "runtime"},
    "runtime": {"runtime"},
    "cli": {"ir", "frontend", "passes", "codegen", "runtime", "cli"},
}
# System and library headers with one owner.
OWNERS = {
    r"yaml\.h": r"cli/config\.c",
    r"protobuf-c/.*|.*\.pb-c\.h": r"frontend/onnx/.*",
    r"llvm-c/.*|lld/.*|llvm/.*": r"codegen/.*",
}
# Unbounded writes, shells, ways out that only main may take.
FORBIDDEN = r"strcpy|strcat|sprintf|vsprintf|gets|system|popen|alloca|atoi|atol|atof|strtok|setenv|putenv|tmpnam|mktemp"
EXITS = r"abort|exit|_exit|quick_exit|assert"
EXIT_ALLOWED = {
    "cli/main.c",
    "ir/base/base.c", "ir/base/diag.c",        # nobody set an unwind point: a bug of the C caller
    "codegen/worker.c",              # a forked child that cannot become the worker
    "ir/graph/graph.c",                    # asserts: invariants of its interface
}


def sources(*suffixes):
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and "__pycache__" not in path.parts:
                yield path


def strip_comments(text):
    """Comments and literals blanked, line structure kept."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if not m[0].startswith(('"', "'")) else '""', text)


def check_includes(path, text, complain):
    name = path.relative_to(ROOT).as_posix()
    layer = name.split("/")[0]
    for n, line in enumerate(text.splitlines(), 1):
        if not (found := re.match(r'\s*#\s*include\s+[<"]([^>"]+)[>"]', line)):
            continue
        target = found[1]
        head = target.split("/")[0]
        if layer in LAYERS and head in LAYERS and head not in LAYERS[layer]:
            complain(name, n, f"{layer}/ must not include {target}")
        for header, owner in OWNERS.items():
            if re.fullmatch(header, target) and not re.fullmatch(owner, name) and layer in LAYERS:
                complain(name, n, f"{target} belongs to {owner}")


def check_calls(path, text, complain):
    name = path.relative_to(ROOT).as_posix()
    if name.split("/")[0] not in LAYERS:
        return
    for n, line in enumerate(strip_comments(text).splitlines(), 1):
        for call in re.findall(rf"(?<![\w.>])({FORBIDDEN})\s*\(", line):
            complain(name, n, f"{call}() is not used here")
        if name not in EXIT_ALLOWED:
            for call in re.findall(rf"(?<![\w.>])({EXITS})\s*\(", line):
                complain(name, n, f"{call}(): input must end in a diagnostic; only main ends the process")


def check_space(path, text, complain):
    name = path.relative_to(ROOT).as_posix()
    if "\r" in text:
        complain(name, 1, "carriage returns")
    if text and not text.endswith("\n"):
        complain(name, text.count("\n") + 1, "no newline at the end")
    for n, line in enumerate(text.splitlines(), 1):
        if line != line.rstrip():
            complain(name, n, "blanks at the end of the line")
        if "\t" in line and path.name != "Makefile":
            complain(name, n, "a tab")
        if len(line) > COLUMNS and path.suffix != ".def":
            complain(name, n, f"{len(line)} columns, the limit is {COLUMNS}")


def check_head(path, text, complain):
    name = path.relative_to(ROOT).as_posix()
    if path.suffix in (".c", ".h", ".cpp", ".def") and not text.startswith(("/*", "//")):
        complain(name, 1, "a file opens with a comment that says what it does")


def mend_space():
    for path in sources(".c", ".h", ".cpp", ".def", ".py", ".sh"):
        text = path.read_text()
        mended = "\n".join(line.rstrip().expandtabs(4) for line in text.splitlines()) + "\n"
        if mended != text:
            path.write_text(mended)
            print(path.relative_to(ROOT))


def clang_warnings(args, complain):
    flags = ["-std=c11", "-D_GNU_SOURCE", "-fsyntax-only", f"-I{ROOT}", f"-I{args.include}", "-isystem", args.llvm,
             "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wvla", "-Wundef"]

    def one(path):
        language = ["-x", "c"] if path.suffix == ".h" else []
        extra = ["-Wno-unused-function"] if path.suffix == ".h" else []
        done = subprocess.run([args.clang, *flags, *extra, *language, str(path)], capture_output=True, text=True)
        return path, done.stderr

    files = [p for p in sources(".c", ".h") if not p.is_relative_to(ROOT / "examples")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for path, text in pool.map(one, files):
            if text:
                complain(path.relative_to(ROOT).as_posix(), 0, "clang says\n" + text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--include")
    parser.add_argument("--llvm")
    parser.add_argument("--clang")
    parser.add_argument("--fix", action="store_true")
    args = parser.parse_args()
    if args.fix:
        mend_space()
        return 0
    complaints = []

    def complain(name, line, what):
        complaints.append(f"{name}:{line}: {what}")

    for path in sources(".c", ".h", ".cpp", ".def", ".py", ".sh"):
        text = path.read_text()
        check_space(path, text, complain)
        check_head(path, text, complain)
        if path.suffix in (".c", ".h", ".cpp", ".def"):
            check_includes(path, text, complain)
            check_calls(path, text, complain)
    if args.clang:
        clang_warnings(args, complain)
    print("\n".join(complaints) if complaints else "lint: nothing to complain about")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Rules that no compiler checks: layers, forbidden functions, white space, the form of C files.

usage: lint.py     or     lint.py --fix (mends white space and the form of C files)
"""
import argparse
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OBJECTS = pathlib.Path(os.environ.get("MCC_BUILD", ROOT / "build")) / "obj"
FOLDERS = ("ir", "passes", "frontend", "codegen", "runtime", "cli", "tests", "examples")
COLUMNS = 160   # tables (.def) may be wider
C_COLUMNS = 120  # of C: except for texts, which are not broken
PAGE_COLUMNS = 120  # of Markdown: except for code, and words that cannot be broken
PAGES_BYTES = 130 * 1024  # of docs/*.md together; what was tried and left out is in docs/notes

# Who may include whom: a folder its own headers and those of the folders of its row, with what lies below them. A sub-folder
# without a row of its own has its parent's. No folder is reached from itself (check_layers).
LAYERS = {
    "ir/base": set(),
    "ir/expr": {"ir/base"},
    "ir/ops": {"ir/base"},
    "ir/graph": {"ir/base", "ir/expr", "ir/ops"},
    "ir/eval": {"ir/base", "ir/expr", "ir/ops", "ir/graph"},
    "ir/build": {"ir/base", "ir/expr", "ir/ops", "ir/graph", "ir/eval"},
    "ir/loop": {"ir/base", "ir/ops"},
    "ir/loop/math": {"ir/base", "ir/ops", "ir/loop"},
    "ir/loop/interp": {"ir/base", "ir/ops", "ir/loop"},
    "ir/target": {"ir/base"},
    "frontend": {"ir"},
    "frontend/onnx": {"ir", "frontend"},
    "frontend/gguf": {"ir", "frontend"},
    "frontend/pt2": {"ir", "frontend"},
    "passes": {"ir"},
    "passes/module": {"ir"},
    "passes/regex": {"ir/base"},
    "passes/legalize": {"ir", "passes"},
    "passes/legalize/aten": {"ir", "passes", "passes/legalize", "passes/legalize/math"},
    "passes/legalize/control": {"ir", "passes", "passes/legalize"},
    "passes/legalize/view": {"ir", "passes", "passes/legalize", "passes/legalize/control"},
    "passes/legalize/math": {"ir", "passes", "passes/legalize"},
    "passes/legalize/nn": {"ir", "passes", "passes/legalize"},
    "passes/legalize/quant": {"ir", "passes", "passes/legalize", "passes/legalize/nn"},
    "passes/legalize/ml": {"ir", "passes", "passes/legalize"},
    "passes/legalize/text": {"ir", "passes", "passes/legalize", "passes/regex"},
    "passes/graph": {"ir", "passes/module"},
    "passes/schedule": {"ir", "passes/module"},
    "passes/fuse": {"ir", "passes/module", "passes/schedule"},  # asks the cost model what a tile takes
    "passes/layout": {"ir", "passes/module"},
    "passes/emit": {"ir", "passes/module", "passes/schedule"},
    "passes/emit/winograd": {"ir", "passes/emit", "passes/module", "passes/schedule"},
    "passes/emit/attention": {"ir", "passes/emit", "passes/module", "passes/schedule"},
    "passes/program": {"ir", "passes/module"},
    "codegen": {"ir", "runtime"},
    "runtime": set(),
    "cli/library": {"ir", "frontend", "passes", "codegen", "runtime"},  # libmcc: one compilation
    "cli/commands": {"ir", "frontend", "passes", "codegen", "runtime", "cli/library"},  # its client
    **{f"cli/commands/{family}": {"ir", "frontend", "passes", "codegen", "runtime", "cli/library", "cli/commands", *more} for family, more in (
        ("bench", ()), ("compare", ()), ("quantize", ("cli/commands/compare",)), ("inspect", ("cli/commands/bench",)),
        ("verify", ()), ("report", ("cli/commands/bench", "cli/commands/inspect", "cli/commands/compare")))},
}
# Rows whose name alone means the folder, not what lies below it.
ALONE = {"ir/loop", "passes", "passes/emit", "passes/legalize", "frontend", "cli/commands"}
# Files of a folder that reach one another: so many at most, more where what they walk is recursive or a table names them.
CIRCLE = 7
CIRCLES = {
    "passes/emit": 11,        # a value at a point, and the reduction that it may be of such values
    "frontend/pt2": 12,       # nodes, the graphs within them, their sizes and memory
}
# Files with a table of functions of other folders, which are called through it.
TABLES = {"passes/legalize/operator_table", "passes/emit/emit_kernels", "cli/library/compile/pipeline", "frontend/formats", "cli/commands/main"}
TABLE_OF_ALL = "ir/ops/elem.def"  # element types, as numbers: the runtime has them from there, too
# System and library headers with one owner.
OWNERS = {
    r"yaml\.h": r"cli/library/options/config\.c",
    r"protobuf-c/.*|.*\.pb-c\.h": r"frontend/onnx/.*",
    r"zlib\.h": r"frontend/pt2/zip\.c",
    r"llvm-c/.*|lld/.*|llvm/.*": r"codegen/.*",
}
# Unbounded writes, shells, ways out that only main may take.
FORBIDDEN = r"strcpy|strcat|sprintf|vsprintf|gets|system|popen|alloca|atoi|atol|atof|strtok|setenv|putenv|tmpnam|mktemp"
EXITS = r"abort|exit|_exit|quick_exit|assert"
EXIT_ALLOWED = {
    "cli/commands/main.c",
    "ir/base/base.c", "ir/base/diag.c",        # nobody set an unwind point: a bug of the C caller
    "codegen/worker.c",              # a forked child that cannot become the worker
    "ir/graph/graph.c",                    # asserts: invariants of its interface
}
# The emitters take the schedule and choose nothing: they read nothing of a CPU.
CPU = r"mach->\w+|machine_(?:vector_)?lanes(?=\s*\()"
# What the runtime asks of an operating system only through runtime/os.h.
SYSTEM = r"\b(?:__linux\w*|__ANDROID\w*|_WIN\w+|__APPLE__|rt_syscall|SYS_\w+|pthread_\w+|dl(?:open|sym)|clock_gettime|getauxval|aligned_alloc)\b|(?<!\w)free\("
# What comments name that is not of the tree: headers of others, the files of a user.
ELSEWHERE = {"net.h", "net.py", "OUTPUT.h", "dlpack.h", "hwcap.h", "Operators.md"}
FILE = re.compile(r"(?<![\w./*-])\w[\w/.-]*\.(?:c|h|def|py|cpp|md)\b(?![\w(/.-])")


SKIPS = re.compile(r"\bpytest\.(?:skip|xfail|importorskip)\b|\b(?:skipif|skipUnless|skipIf)\(|\bmark\.(?:skip|xfail)\b|(?<![\w.])skip\(\)|@needs_\w+")


def sources(*suffixes):
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and "__pycache__" not in path.parts:
                yield path


def strip_comments(text):
    """Comments and literals blanked, line structure kept."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if not m[0].startswith(('"', "'")) else '""', text)


def row_of(folder):
    """The row of LAYERS that a folder has, its own or its parents'; None: outside of the layers."""
    while folder and folder not in LAYERS:
        folder = folder.rpartition("/")[0]
    return folder or None


def may_include(row, folder):
    target = row_of(folder)
    if target is None or target == row:
        return True
    return any(target == one or (one not in ALONE or one == "passes" and row.startswith("cli")) and target.startswith(one + "/") for one in LAYERS[row])


def check_layers(complain):
    """The table has no circle."""
    def reached(row, seen):
        for other in sorted(LAYERS):
            if other != row and other not in seen and may_include(row, other):
                seen.add(other)
                reached(other, seen)
        return seen

    for row in LAYERS:
        for other in reached(row, set()):
            if other != row and may_include(other, row):
                complain("tests/lint.py", 0, f"{row} and {other} may include one another")


def check_phases(complain):
    """Each pass lies in the file of its name, and the passes of a folder follow one another: a phase is entered once."""
    table, phases = "passes/module/passes.def", []
    for n, line in enumerate((ROOT / table).read_text().splitlines(), 1):
        if not (row := re.match(r'PASS\("([\w-]+)", (\w+),', line)):
            continue
        files = list((ROOT / "passes").glob(f"*/{row[1].replace('-', '_')}.c"))
        if len(files) != 1 or not re.search(rf"^bool {row[2]}\(struct module \*", files[0].read_text(), re.M):
            complain(table, n, f"{row[1]}: there is no file of its name in a folder of passes/ that defines {row[2]}()")
        elif phases[-1:] != [files[0].parent.name]:
            phases.append(files[0].parent.name)
            if phases.index(phases[-1]) < len(phases) - 1:
                complain(table, n, f"{row[1]}: passes/{phases[-1]} is entered a second time")


def uses_of_objects(objects):
    """{file: {file whose functions or variables it names}}, by the symbols of the objects of a build."""
    defined, named = {}, {}
    for path in objects:
        name = path.relative_to(OBJECTS).with_suffix("").as_posix()
        words = [line.split() for line in subprocess.run(["nm", "-g", path], capture_output=True, text=True, check=True).stdout.splitlines()]
        named[name] = {w[1] for w in words if len(w) == 2 and w[0] == "U"}
        defined |= {w[2]: name for w in words if len(w) == 3}
    return {name: {defined[s] for s in symbols if s in defined} - {name} for name, symbols in named.items()}


def circles(uses):
    """The sets of files that reach one another (Tarjan's strongly connected components), without recursion."""
    number, low, stack, found = {}, {}, [], []
    for root in uses:
        work = [(root, iter(sorted(uses[root])))] if root not in number else []
        while work:
            name, rest = work[-1]
            if name not in number:
                number[name] = low[name] = len(number)
                stack.append(name)
            for other in rest:
                if other not in number:
                    work.append((other, iter(sorted(uses[other]))))
                    break
                if other in stack:
                    low[name] = min(low[name], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == number[name]:
                    cut = stack.index(name)
                    found.append(stack[cut:])
                    del stack[cut:]
    return [sorted(circle) for circle in found if len(circle) > 1]


def check_symbols(complain):
    """What files call, not only what they include: no circle of files between folders. Of the last build."""
    present = {p.relative_to(ROOT).with_suffix("").as_posix() for p in ROOT.glob("*/**/*.c")}
    objects = [p for folder in FOLDERS[:6] for p in sorted((OBJECTS / folder).rglob("*.o"))
               if p.relative_to(OBJECTS).with_suffix("").as_posix() in present]
    uses = {name: set() if name in TABLES else others for name, others in uses_of_objects(objects).items()}
    for circle in circles(uses):
        if len({name.rpartition("/")[0] for name in circle}) > 1:
            complain(circle[0] + ".c", 0, f"a circle of files between folders: {', '.join(circle)}")
        elif len(circle) > CIRCLES.get(folder := circle[0].rpartition("/")[0], CIRCLE):
            complain(circle[0] + ".c", 0, f"a circle of {len(circle)} files in {folder}: {', '.join(circle)}")
    for name, others in uses.items():
        row = row_of(name.rpartition("/")[0])
        for other in sorted(others):
            if row and not row.startswith("passes/legalize") and not may_include(row, other.rpartition("/")[0]):
                complain(name + ".c", 0, f"{row}/ must not use what {other}.c defines")


def check_includes(path, text, complain):
    name = path.relative_to(ROOT).as_posix()
    row = row_of(name.rpartition("/")[0])
    for n, line in enumerate(text.splitlines(), 1):
        if not (found := re.match(r'\s*#\s*include\s+[<"]([^>"]+)[>"]', line)):
            continue
        target = found[1]
        if row and "/" in target and target != TABLE_OF_ALL and not may_include(row, target.rpartition("/")[0]):
            complain(name, n, f"{row}/ must not include {target}")
        for header, owner in OWNERS.items():
            if re.fullmatch(header, target) and not re.fullmatch(owner, name) and row:
                complain(name, n, f"{target} belongs to {owner}")


def check_frontends(path, text, complain):
    """Which formats there are is said in frontend/formats.def alone."""
    name = path.relative_to(ROOT).as_posix()
    rows = re.findall(r"^FORMAT\(.*, (\w+), (\w+)\)$", (ROOT / "frontend/formats.def").read_text(), re.M)
    named = "|".join(sorted({word for row in rows for word in row} - {"no_hooks"}))
    if not row_of(name.rpartition("/")[0]) or name.startswith("frontend/"):
        return
    for n, line in enumerate(strip_comments(text).splitlines(), 1):
        for found in re.findall(rf"\b(?:{named})\b", line):
            complain(name, n, f"{found} is for frontend/formats.def alone")


def check_calls(path, text, complain):
    name = path.relative_to(ROOT).as_posix()
    if not row_of(name.rpartition("/")[0]):
        return
    for n, line in enumerate(strip_comments(text).splitlines(), 1):
        for call in re.findall(rf"(?<![\w.>])({FORBIDDEN})\s*\(", line):
            complain(name, n, f"{call}() is not used here")
        if name not in EXIT_ALLOWED:
            for call in re.findall(rf"(?<![\w.>])({EXITS})\s*\(", line):
                complain(name, n, f"{call}(): input must end in a diagnostic; only main ends the process")


def check_setjmp(path, text, complain):
    """setjmp stands where C defines it: as the whole condition of an if, or compared with 0 there."""
    for n, line in enumerate(strip_comments(text).splitlines(), 1):
        if re.search(r"\bsetjmp\s*\(", line) and not re.fullmatch(r"\s*(?:\} else )?if \(!?setjmp\(\w+\)(?: [!=]= 0)?\)(?: \{)?", line):
            complain(path.relative_to(ROOT).as_posix(), n, "setjmp() is the whole condition of an if: elsewhere C does not define it")


def check_systems(path, text, complain):
    """Of what goes into artifacts only the folders of systems know a system, and runtime/os.h which there are."""
    name = path.relative_to(ROOT).as_posix()
    if re.match(r"runtime/(?:ops/)?rt\w*\.[ch]$", name):
        for n, line in enumerate(strip_comments(text).splitlines(), 1):
            for found in re.findall(SYSTEM, line):
                complain(name, n, f"{found}: what depends on the operating system is in a folder behind runtime/os.h")


def check_cpus(path, text, complain):
    name = path.relative_to(ROOT).as_posix()
    if name.startswith("passes/emit/"):
        for n, line in enumerate(strip_comments(text).splitlines(), 1):
            for found in re.findall(CPU, line):
                complain(name, n, f"{found}: what depends on the CPU is decided in passes/schedule")
            for found in re.findall(r"\bRATE_\w+|\bbudget\s*\(", line):
                complain(name, n, f"{found}: numbers of the cost models reach the emitters as fields of the record")
        if "passes/schedule/decisions.h" in text:
            complain(name, 0, "the emitters take the schedule and choose nothing: decisions.h is not for them")
    if name.startswith("passes/"):
        for n, line in enumerate(strip_comments(text).splitlines(), 1):
            for found in re.findall(r"\bl[123]_kib\b", line):
                complain(name, n, f"{found}: what may fill which part of a cache is a row of ir/target/budget.def")


@functools.cache
def tree():
    """The files of the tree, and what their paths end in."""
    files = [p.relative_to(ROOT).parts for p in [*ROOT.glob("*.*"), *(p for f in (*FOLDERS, "docs") for p in (ROOT / f).rglob("*.*"))]]
    return {"/".join(parts[i:]) for parts in files for i in range(len(parts))}


def check_names(path, text, complain):
    """Comments and pages name files that are there. A page: those of folders of the tree, or that it says to create."""
    name = path.relative_to(ROOT).as_posix()
    page = path.suffix == ".md"
    created = re.findall(r"^(?:Create|Copy `[^`]+` to) `([^`]+)`:", text, re.M)
    for part in [re.match(r"(?s).*", text)] if page else re.finditer(r"/\*.*?\*/|//[^\n]*", text, re.S):
        for found in FILE.finditer(part[0]):
            asked = found[0].partition("/")[0] in FOLDERS and "NAME" not in found[0] and found[0] not in created if page else found[0] not in ELSEWHERE
            if asked and found[0] not in tree():
                complain(name, text.count("\n", 0, part.start() + found.start()) + 1, f"there is no file {found[0]}")


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
        elif len(line) > C_COLUMNS and path.suffix in (".c", ".h", ".cpp", ".hpp") and '"' not in line:
            complain(name, n, f"{len(line)} columns, the limit is {C_COLUMNS}")


def check_page(path, text, complain):
    """Lines of a page, except for blocks of code and single long words (links)."""
    code = False
    for n, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            code = not code
        elif not code and len(line) > PAGE_COLUMNS and not line.startswith("    ") and " " in line.strip():
            complain(path.relative_to(ROOT).as_posix(), n, f"{len(line)} columns, the limit of pages is {PAGE_COLUMNS}")


def check_pages_size(complain):
    size = sum(path.stat().st_size for path in (ROOT / "docs").glob("*.md"))
    if size > PAGES_BYTES:
        complain("docs", 0, f"the pages have {size} bytes, the limit is {PAGES_BYTES}: say it shorter, or in docs/notes")


def check_head(path, text, complain):
    name = path.relative_to(ROOT).as_posix()
    if path.suffix in (".c", ".h", ".cpp", ".def") and not text.startswith(("/*", "//")):
        complain(name, 1, "a file opens with a comment that says what it does")


def check_skips(complain):
    """Every test that skips, or expects to fail, stands in the table of docs/testing.md, and what stands there does."""
    page = ROOT / "docs/testing.md"
    if not page.exists():
        return
    text = page.read_text()
    begin = text.index("## What is skipped, and when")
    end = text.find("\n## ", begin)
    said = set(re.findall(r"tests/[\w/]+\.(?:c|py)\b", "\n".join(l.split("|")[1] for l in text[begin:end].splitlines() if l.startswith("| `"))))
    for path in sources(".c", ".py"):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("tests/") or name.startswith("tests/support/") or path == pathlib.Path(__file__).resolve():
            continue
        found = [n for n, line in enumerate(path.read_text().splitlines(), 1) if SKIPS.search(line)]
        if found and name not in said:
            complain(name, found[0], "a test that skips or expects to fail: docs/testing.md has a table of them")
        if not found and name in said:
            complain("docs/testing.md", 1, f"{name} skips nothing, but stands in the table of what does")
        said.discard(name)
    for name in said:
        complain("docs/testing.md", 1, f"{name} stands in the table of what is skipped, and is not there")


def formatter():
    """The one version whose style counts; None: not installed."""
    return shutil.which("clang-format-19")


def check_format(complain):
    tool = formatter()
    if not tool:
        complain(".clang-format", 0, "clang-format-19 is missing: make deps")
        return
    done = subprocess.run([tool, "--dry-run", *sources(".c", ".h")], capture_output=True, text=True, cwd=ROOT)
    for name in sorted(set(re.findall(r"^(\S+?):\d+:\d+: warning: code should be clang-formatted", done.stderr, re.M))):
        complain(os.path.relpath(name, ROOT), 0, "not as .clang-format has it: make format")


def mend_space():
    for path in sources(".c", ".h", ".cpp", ".def", ".py", ".sh"):
        text = path.read_text()
        mended = "\n".join(line.rstrip().expandtabs(4) for line in text.splitlines()) + "\n"
        if mended != text:
            path.write_text(mended)
            print(path.relative_to(ROOT))
    if formatter():
        subprocess.run([formatter(), "-i", *sources(".c", ".h")], check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fix", action="store_true")
    args = parser.parse_args()
    if args.fix:
        mend_space()
        return 0
    complaints = []

    def complain(name, line, what):
        complaints.append(f"{name}:{line}: {what}")

    check_layers(complain)
    check_symbols(complain)
    check_phases(complain)
    check_format(complain)
    check_skips(complain)
    for path in sources(".c", ".h", ".cpp", ".def", ".py", ".sh"):
        text = path.read_text()
        check_space(path, text, complain)
        check_head(path, text, complain)
        if path.suffix in (".c", ".h", ".cpp", ".def"):
            check_includes(path, text, complain)
            check_calls(path, text, complain)
            check_setjmp(path, text, complain)
            check_frontends(path, text, complain)
            check_cpus(path, text, complain)
            check_systems(path, text, complain)
            check_names(path, text, complain)
    check_pages_size(complain)
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")]:
        check_page(path, path.read_text(), complain)
        check_names(path, path.read_text(), complain)
    print("\n".join(complaints) if complaints else "lint: nothing to complain about")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

"""make coverage: lines and branches that the tests reached, by folder: coverage.py BUILD (profiles in BUILD/raw)."""
import collections
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("cli", "codegen", "frontend", "ir", "passes", "runtime")


def folder_of(path):
    """cli/commands/run.c: cli/commands; None: not of the compiler or the runtime."""
    try:
        parts = pathlib.Path(path).resolve().relative_to(ROOT).parts
    except ValueError:
        return None
    return "/".join(parts[:2] if len(parts) > 2 else parts[:1]) if parts[0] in FOLDERS else None


def main(build):
    build = pathlib.Path(build)
    merged = build / "coverage.profdata"
    raw = sorted((build / "raw").glob("*.profraw"))
    subprocess.run(["llvm-profdata-19", "merge", "-sparse", "--failure-mode=all", "-o", merged, *raw], check=True)
    programs = [build / "mcc", *(p for p in sorted((build / "tests").glob("*/test_*")) if p.is_file() and p.stat().st_mode & 0o100)]
    objects = [word for program in programs[1:] for word in ("-object", program)]
    said = subprocess.run(["llvm-cov-19", "export", "--summary-only", f"--instr-profile={merged}", programs[0], *objects],
                          check=True, capture_output=True, text=True)
    rows = collections.defaultdict(collections.Counter)
    for file in json.loads(said.stdout)["data"][0]["files"]:
        if (folder := folder_of(file["filename"])) and file["summary"]["lines"]["count"]:
            for kind in ("lines", "branches"):
                for row in (folder, "all"):
                    rows[row][kind] += file["summary"][kind]["count"]
                    rows[row]["reached " + kind] += file["summary"][kind]["covered"]
    print(f"{'folder':24}{'lines':>9}{'reached':>9}{'branches':>10}{'reached':>9}")
    for name in sorted(rows, key=lambda name: (name == "all", name)):
        row = rows[name]
        print(f"{name:24}{row['lines']:9}{row['reached lines'] / max(row['lines'], 1):9.1%}"
              f"{row['branches']:10}{row['reached branches'] / max(row['branches'], 1):9.1%}")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

#!/usr/bin/env python3
"""Are the artifacts of this tree those of another commit, byte for byte? Both compilers compile the exported networks, the
digits network, every network of ../shared/models and the cases of cases.txt, for x86-64 and AArch64.

usage: run.py BASE [SUBSTRING...]        make same BASE=<commit> [NETS="resnet50 bert"]

BASE is built in a worktree below the build folder and kept there, with the hashes of what it made. Prints what differs (and
what only one of the two compiles), then counts, processor time and bytes of both. Ends with 1 when anything differs. The
exports are those that make check-real has made (BUILD/nets, or MCC_NETS); a line says what is not there.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from conformance import suite  # noqa: E402
from support.tool import BUILD, DIGITS, MCC, ROOT  # noqa: E402

TARGETS = {"x86-64": (), "aarch64": ("--target=aarch64-linux-gnu",)}
MODELS = ROOT.parent / "shared/models"
SECONDS = 600


def build(commit):
    """The compiler of a commit, in its own worktree."""
    tree = BUILD.resolve() / "same" / commit
    if not tree.exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "-C", ROOT, "worktree", "prune"], check=True)
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "-q", "--detach", "--force", tree, commit], check=True)
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "BUILD")}
    subprocess.run(["make", "-s", f"-j{os.cpu_count()}", "-C", tree, "BUILD=build", "build/mcc"], check=True, env=env,
                   stdout=subprocess.DEVNULL)
    return tree / "build/mcc"


def networks():
    """{name: path}, largest first: the longest compilations start first."""
    nets = pathlib.Path(os.environ.get("MCC_NETS", BUILD / "nets"))
    found = {f"nets/{p.stem}": p for p in nets.glob("*.onnx")}
    if not found:
        print(f"no exported networks in {nets}: make check-real writes them")
    found["digits"] = DIGITS
    if not MODELS.exists():
        print(f"no collection of networks in {MODELS}")
    found |= {p.relative_to(MODELS).with_suffix("").as_posix(): p for p in MODELS.rglob("*.onnx")}
    cases = suite.cases()
    listed = [l for l in (HERE / "cases.txt").read_text().split("\n") if l and not l.startswith("#")]
    found |= {name: cases[name].model for name in listed}
    return dict(sorted(found.items(), key=lambda item: (-os.path.getsize(item[1]), item[0])))


def compile_one(compiler, path, flags):
    """{"hash": of the artifact or "exit N", "seconds": of processor time, "bytes": of the artifact}"""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "net.so"
        times = pathlib.Path(folder) / "times"
        command = [compiler, "-q", "-j1", *flags, path, "-o", output]
        timed = [sys.executable, "-c", "import os,subprocess,sys\nr = subprocess.call(sys.argv[2:], stderr=subprocess.DEVNULL)\n"
                 "t = os.times()\nopen(sys.argv[1], 'w').write(str(t.children_user + t.children_system))\nsys.exit(r)", times]
        try:
            status = subprocess.run([*timed, *command], timeout=SECONDS, stdout=subprocess.DEVNULL).returncode
        except subprocess.TimeoutExpired:
            return {"hash": "time limit", "seconds": SECONDS, "bytes": 0}
        seconds = float(times.read_text())
        if status or not output.exists():
            return {"hash": f"exit {status}", "seconds": seconds, "bytes": 0}
        return {"hash": hashlib.sha256(output.read_bytes()).hexdigest(), "seconds": seconds, "bytes": output.stat().st_size}


def compile_all(compiler, nets, known):
    """{"name target": result}; known ones are not made again."""
    wanted = [(f"{name} {target}", path, flags) for name, path in nets.items() for target, flags in TARGETS.items()]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = {key: pool.submit(compile_one, compiler, path, flags) for key, path, flags in wanted if key not in known}
        return known | {key: future.result() for key, future in made.items()}


def report(was, now):
    """Prints the differences; how many there are."""
    different = [key for key in now if was[key]["hash"] != now[key]["hash"]]
    for key in sorted(different):
        print(f"differs: {key:60} {was[key]['hash'][:10]:10} {was[key]['bytes']:10} bytes -> "
              f"{now[key]['hash'][:10]:10} {now[key]['bytes']:10} bytes")
    both = [key for key in now if was[key]["bytes"] and now[key]["bytes"]]
    for what, unit in (("seconds", "s of processor time"), ("bytes", "bytes of artifacts")):
        a, b = sum(was[key][what] for key in both), sum(now[key][what] for key in both)
        print(f"{unit}: {a:.0f} -> {b:.0f}, ratio {b / max(a, 1e-9):.4f}")
    print(f"{len(now)} compilations, {len(both)} made by both, {len(now) - len(both)} refused by one or both, {len(different)} differ")
    return len(different)


def main():
    base, parts = sys.argv[1], sys.argv[2:]
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--verify", f"{base}^{{commit}}"], capture_output=True, text=True,
                            check=True).stdout.strip()
    nets = {n: p for n, p in networks().items() if not parts or any(part in n for part in parts)}
    compiler = build(commit)
    store = BUILD / "same" / f"{commit}.json"
    known = json.loads(store.read_text()) if store.exists() else {}
    was = compile_all(compiler, nets, known)
    store.write_text(json.dumps(was, indent=0, sort_keys=True))
    now = compile_all(MCC, nets, {})
    return 1 if report(was, now) else 0


if __name__ == "__main__":
    sys.exit(main())

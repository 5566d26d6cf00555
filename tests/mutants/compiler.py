"""Building a compiler from a folder of sources in which `mutant(SITE)` may stand (mutant.h)."""
import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDERS = ("ir", "passes", "frontend", "codegen", "cli", "runtime")


def make(folder, build, check=True):
    """BUILD/mcc, BUILD being seen from the folder; what make said, unless it has to succeed."""
    compiler = {name: os.environ[name] for name in ("CC", "CXX") if name in os.environ}
    switch = folder.parent / "mutant.o"
    subprocess.run([*compiler.get("CC", "gcc").split(), "-O1", "-c", "-o", switch, HERE / "mutant.c"], check=True)
    done = subprocess.run(["make", "-k", "-j2", "-C", folder, f"BUILD={build}", "OPT=-O1", f"CFLAGS=-w -include {HERE / 'mutant.h'}", f"LDFLAGS={switch}",
                           *(f"{name}={c}" for name, c in compiler.items()), f"{build}/mcc"], capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return done

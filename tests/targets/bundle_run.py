"""Runs what bundle.py made, on the machine that it is for: Python and numpy are all that is needed, and a C compiler if one is named.

usage: python run.py [C compiler with options ...]
"""
import pathlib
import subprocess
import sys

import numpy as np

import mcc

HERE = pathlib.Path(__file__).resolve().parent


def wrong(path):
    """Why a network's answers are not those of the bundle; None: they are, bit for bit."""
    data = np.load(path.with_suffix(".npz"))
    feeds = [data[f"in{i}"] for i in range(sum(n.startswith("in") for n in data.files))]
    for threads in (1, 0):
        got = mcc.load(path, threads=threads)(*feeds)
        for i, y in enumerate(got if isinstance(got, tuple) else (got,)):
            expected = data[f"out{i}"]
            if y.shape != expected.shape or y.dtype != expected.dtype or y.tobytes() != expected.tobytes():
                return f"output {i} differs, threads={threads}"
    return None


def refused(path, data):
    path.write_bytes(data)
    try:
        mcc.load(path)
    except OSError:
        return True
    return False


def main():
    failed = []
    networks = sorted(p for p in HERE.iterdir() if p.suffix in (".dll", ".dylib", ".so") and p.with_suffix(".npz").exists())
    for path in networks:
        try:
            why = wrong(path)
        except Exception as e:
            why = f"{type(e).__name__}: {e}"
        if why:
            failed.append(f"{path.name}: {why}")
    good, mac = networks[0].read_bytes(), networks[0].suffix == ".dylib"     # which may have a longer signature
    for n, bad in enumerate((b"", good[:100], good[:-1], b"x" + good if mac else good + b"x", good[:300] + b"\xff" + good[301:])):
        if not refused(HERE / f"bad{n}{networks[0].suffix}.part", bad):
            failed.append(f"a damaged file was loaded: {n}")
    if len(sys.argv) > 1:
        windows = networks[0].suffix == ".dll"
        program = HERE / ("main.exe" if windows else "main")
        files = ["bundle_main.c", *(["mcc_load_windows.c", "net.lib"] if windows else ["mcc_load_macos.c" if mac else "mcc_load.c", "net.a"])]
        subprocess.run([*sys.argv[1:2], *files, *sys.argv[2:]], cwd=HERE, check=True)
        for path in networks[:20]:
            if subprocess.run([program, path.name], cwd=HERE).returncode:
                failed.append(f"{path.name}: the C loader")
    print(*failed, f"{len(networks)} networks, {len(failed)} failures", sep="\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

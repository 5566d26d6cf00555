"""What is carried to other machines (bundle.py), carried to this one."""
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from support import wine
from support.foreign import Foreign
from support.tool import ROOT

BUNDLE = ROOT / "tests/targets/bundle.py"


def bundle(target, folder, every):
    subprocess.run([sys.executable, BUNDLE, target, folder, str(every)], check=True)


def run(folder, *words):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run([sys.executable, "run.py", *words], cwd=folder, capture_output=True, text=True, env=env)


def test_here(tmp_path):
    if os.uname().machine != "x86_64":
        pytest.skip("not on x86-64")
    bundle("x86_64-linux", tmp_path, 200)
    done = run(tmp_path, "gcc", "-O1", "-Wall", "-Werror", "-o", "main", "-lm", "-ldl", "-lpthread")
    assert done.returncode == 0 and done.stdout.endswith("networks, 0 failures\n"), (done.stdout, done.stderr)
    one, other = sorted(tmp_path.glob("*.npz"))[:2]
    shutil.copy(one.with_suffix(".so"), other.with_suffix(".so"))
    done = run(tmp_path)
    assert done.returncode == 1 and done.stdout.endswith("networks, 1 failures\n"), (done.stdout, done.stderr)


def test_for_windows(tmp_path, monkeypatch):
    """Its C program, under Wine."""
    if why := wine.missing():
        pytest.skip(why)
    bundle("x86_64-windows", tmp_path, 600)
    network = next(tmp_path.glob("*.npz")).with_suffix(".dll")
    subprocess.run([wine.GCC, "-O1", "-Wall", "-Werror", "-o", "main.exe", "bundle_main.c", "mcc_load_windows.c", "net.lib", "-lsynchronization"],
                   cwd=tmp_path, check=True)
    for name in ("WINEPREFIX", "WINEDEBUG"):
        monkeypatch.setenv(name, "")
    wine.environment()
    done = subprocess.run([wine.WINE, "main.exe", network.name], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_for_macos(arch, tmp_path):
    """Its networks, by the tests' loader; its program is for a Mac."""
    if os.uname().machine != "x86_64":
        pytest.skip("not on x86-64")
    bundle(f"{arch}-macos", tmp_path, 600)
    with Foreign(f"{arch}-macos") as machine:
        for path in tmp_path.glob("*.npz"):
            data = np.load(path)
            got = machine.call(path.with_suffix(".dylib"), [data[f"in{i}"] for i in range(sum(n.startswith("in") for n in data.files))])
            assert all(y.tobytes() == data[f"out{i}"].tobytes() for i, y in enumerate(got))
    assert {"mcc_load_macos.c", "net.a", "net.h", "bundle_main.c", "run.py"} <= {p.name for p in tmp_path.iterdir()}

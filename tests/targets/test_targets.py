"""Cross-compiled digits under qemu-user: the same answers as on this machine, for each target and CPU level."""
import platform
import re
import shutil
import subprocess

import pytest

from support.tool import DIGITS, ROOT, mcc

TEST_SET = ROOT / "examples/digits/digits.test"
SOURCES = [ROOT / "examples/digits/digits.c", ROOT / "runtime/mcc_load.c"]


def answers(text):
    return re.search(r"read: .*", text)[0], re.search(r"\d+ of \d+ pictures right", text)[0]


@pytest.fixture(scope="session")
def native(tmp_path_factory):
    folder = tmp_path_factory.mktemp("native")
    assert mcc(DIGITS, "-o", folder / "digits.so").returncode == 0
    subprocess.run(["gcc", "-std=gnu11", "-O1", f"-I{ROOT}/runtime", "-o", folder / "digits", *SOURCES], check=True)
    done = subprocess.run([folder / "digits", folder / "digits.so", TEST_SET], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "digits", answers(done.stdout)


@pytest.mark.parametrize("arch", ["aarch64", "riscv64"])
def test_cross(arch, native, tmp_path):
    for tool in (f"qemu-{arch}", "clang-19", "ld.lld-19"):
        assert shutil.which(tool), f"{tool} is missing: make deps"
    done = mcc(f"--target={arch}-linux-gnu", DIGITS, "-o", tmp_path / "digits.so")
    assert done.returncode == 0, done.stderr
    subprocess.run(["clang-19", f"--target={arch}-linux-gnu", "-fuse-ld=lld", "-std=gnu11", "-O1", f"-I{ROOT}/runtime",
                    "-o", tmp_path / "digits", *SOURCES], check=True)
    done = subprocess.run([f"qemu-{arch}", "-L", f"/usr/{arch}-linux-gnu", tmp_path / "digits", tmp_path / "digits.so", TEST_SET],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert answers(done.stdout) == native[1]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU levels of x86-64")
@pytest.mark.parametrize("cpu,variants", [("Nehalem", "x86-64-v2"), ("Haswell", "x86-64-v3"), ("Haswell", "x86-64-v3,x86-64-v2")])
def test_cpu_levels(cpu, variants, native, tmp_path):
    done = mcc(f"--variants={variants}", DIGITS, "-o", tmp_path / "digits.so")
    assert done.returncode == 0, done.stderr
    done = subprocess.run(["qemu-x86_64", "-cpu", cpu, native[0], tmp_path / "digits.so", TEST_SET], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert answers(done.stdout) == native[1]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU levels of x86-64")
def test_a_cpu_that_is_too_old_is_an_error(native, tmp_path):
    assert mcc("--variants=x86-64-v3", DIGITS, "-o", tmp_path / "digits.so").returncode == 0
    done = subprocess.run(["qemu-x86_64", "-cpu", "Nehalem", native[0], tmp_path / "digits.so", TEST_SET], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 2 and "CPU" in done.stderr

"""docs/add-a-target.md, followed literally: the CPU that it adds is listed, and its code runs under qemu-user."""
import subprocess

from support.steps import follow
from support.tool import DIGITS, ROOT

TEST_SET = ROOT / "examples/digits/digits.test"


def test_steps(tmp_path):
    mcc = follow("add-a-target.md", tmp_path, 1) / "build/mcc"
    listed = subprocess.run([mcc, "-mcpu=help"], capture_output=True, text=True, check=True).stdout
    assert "armv9-a" in listed
    subprocess.run([mcc, DIGITS, "--target=aarch64", "-mcpu=armv9-a", "-o", tmp_path / "digits.so"], check=True)
    subprocess.run(["clang-19", "--target=aarch64-linux-gnu", "-fuse-ld=lld", "-std=gnu11", "-O1", f"-I{ROOT}/runtime", "-o", tmp_path / "digits",
                    ROOT / "examples/digits/digits.c", ROOT / "runtime/mcc_load.c"], check=True)
    done = subprocess.run(["qemu-aarch64", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu", tmp_path / "digits", tmp_path / "digits.so", TEST_SET],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "pictures right" in done.stdout, done.stderr

"""docs/add-a-platform.md, followed literally: the platform that it adds is listed, and its code runs under qemu-user."""
import subprocess

from support import elf
from support.foreign import library_of_android
from support.steps import follow
from support.tool import DIGITS, ROOT

TEST_SET = ROOT / "examples/digits/digits.test"


def test_steps(tmp_path):
    mcc = follow("add-a-platform.md", tmp_path, 2) / "build/mcc"
    listed = subprocess.run([mcc, "--autocomplete=--target=riscv64-a"], capture_output=True, text=True, check=True).stdout
    assert listed == "--target=riscv64-android\n"
    subprocess.run([mcc, DIGITS, "--target=riscv64-android", "-o", tmp_path / "libdigits.so"], check=True)
    assert elf.flaws(tmp_path / "libdigits.so", library="libc.so") == []
    subprocess.run(["clang-19", "--target=riscv64-linux-gnu", "-fuse-ld=lld", "-std=gnu11", "-O1", f"-I{ROOT}/runtime", "-o", tmp_path / "digits",
                    ROOT / "examples/digits/digits.c", ROOT / "runtime/mcc_load.c"], check=True)
    done = subprocess.run(["qemu-riscv64", "-L", "/usr/riscv64-linux-gnu", "-E", f"LD_LIBRARY_PATH={library_of_android('riscv64')}", tmp_path / "digits",
                           tmp_path / "libdigits.so", TEST_SET], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "pictures right" in done.stdout, done.stderr

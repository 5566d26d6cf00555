"""examples/cortex-m under qemu: every word is heard, in the memory and the instructions that a Cortex-M4 has."""
import os
import re
import shutil
import subprocess

import pytest

from support.tool import BUILD, ROOT


def test_words_are_heard(tmp_path):
    if not (shutil.which("qemu-system-arm") and shutil.which("arm-none-eabi-gcc")):
        pytest.skip("no qemu-system-arm or arm-none-eabi-gcc")
    done = subprocess.run(["make", "-s", "run", f"MCC_BUILD={os.path.abspath(BUILD)}", f"BUILD={tmp_path}"], cwd=ROOT / "examples/cortex-m",
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not re.search("warning", done.stderr), done.stdout + done.stderr
    text = done.stdout + done.stderr     # where semihosting writes to
    assert text.count(": heard") == 8 and "not heard" not in text
    arena, stack, instructions = (int(re.search(rf"(\d+) {what}|{what}: (\d+)", text).expand(r"\g<1>\g<2>")) for what in
                                  ("bytes of arena", "of stack", "instructions"))
    assert arena + stack < 23_000 and 1_000_000 < instructions < 8_000_000, text

"""`mcc check` on every bad file of generate.py: the exit code, the message, time and memory.

Rules for all of them: the exit code is one of 0, 1, 3, 4; a refusal says so in lines that begin with the file's name and
stay under 1000 bytes; no byte from outside the model's folder appears; nothing is written.
"""
import os
import pathlib
import resource
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import generate   # noqa: E402  (a module beside this one)
from support.tool import MCC   # noqa: E402
from support.usage import OVERDUE, usage   # noqa: E402

# A sanitizer build needs more of everything.
SANITIZED = "address" in os.environ.get("MCC_BUILD", "")
SECONDS, BYTES = (10, 2 << 30) if SANITIZED else (2, 512 << 20)
WALL = 10 * SECONDS   # processor time is what is bounded; the machine may be busy

ROOT = pathlib.Path(tempfile.mkdtemp(prefix="mcc-hostile-"))
FILES = generate.write(ROOT)


@pytest.fixture(scope="session", autouse=True)
def clean_up():
    yield
    shutil.rmtree(ROOT)


def check(path):
    done = usage([MCC, "check", path], WALL, 4 * SECONDS, resource.RLIM_INFINITY if SANITIZED else 4 << 30)
    assert done.status != OVERDUE, f"no end within {WALL} s"
    return done


@pytest.mark.parametrize("path, case", FILES, ids=[case.name for _, case in FILES])
def test_file(path, case):
    before = sorted(os.listdir(path.parent))
    code, text, seconds, peak = check(path)
    shown = text.decode(errors="replace")
    allowed = case.exit if isinstance(case.exit, tuple) else (case.exit,)
    assert code in allowed, shown
    lines = [line for line in text.split(b"\n") if line]
    assert all(len(line) < 1000 for line in lines)
    assert all(32 <= byte < 256 for line in lines for byte in line), "control bytes in a message"
    assert generate.DECOY not in text
    if code:
        errors = [line for line in lines if b"error: " in line]
        assert errors and all(line.startswith(str(path).encode()) for line in errors), shown
        assert any(case.word.encode() in line.removeprefix(str(path).encode()) for line in errors), shown
    assert sorted(os.listdir(path.parent)) == before
    assert seconds < SECONDS, f"{seconds:.1f} s of processor time"
    assert peak < BYTES, f"{peak >> 20} MiB"

"""Where the system gives workers no sandbox: a warning, nothing, or an error, as asked; and the same output."""
import ctypes
import os
import platform
import struct
import subprocess

import pytest

from support.tool import MCC, dense

PRCTL = {"x86_64": 157}.get(platform.machine(), 167)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 38, 22


def no_filters():
    """Between fork and exec: a filter under which nobody gets another one, as containers have it."""
    def step(code, yes, no, k):
        return struct.pack("<HBBI", code, yes, no, k)
    steps = [step(0x20, 0, 0, 0), step(0x15, 0, 3, PRCTL), step(0x20, 0, 0, 16), step(0x15, 0, 1, PR_SET_SECCOMP), step(0x06, 0, 0, 0x00050016),
             step(0x06, 0, 0, 0x7FFF0000)]      # EINVAL for prctl(PR_SET_SECCOMP), all else is allowed
    code = ctypes.create_string_buffer(b"".join(steps))
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, 2, program, 0, 0):
        os._exit(99)


def compiled(model, out, *flags):
    return subprocess.run([MCC, str(model), "-o", str(out), *map(str, flags)], capture_output=True, text=True, timeout=120, preexec_fn=no_filters)


@pytest.fixture
def model(tmp_path):
    path = dense(tmp_path / "net.onnx")
    done = compiled(path, tmp_path / "trial.so")
    if done.returncode == 99:
        pytest.skip("no seccomp filters")
    return path


def test_a_warning(model, tmp_path):
    """Once for all workers, and the same bytes."""
    plain = subprocess.run([MCC, model, "-o", tmp_path / "a.so"], capture_output=True, text=True)
    done = compiled(model, tmp_path / "b.so", "-j2")
    assert (plain.returncode, plain.stderr, done.returncode) == (0, "", 0)
    assert done.stderr.count("\n") == 1 and "warning: " in done.stderr and done.stderr.endswith("[-Wsandbox]\n")
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()


def test_no_warning(model, tmp_path):
    for flag in ("-Wno-sandbox", "-q"):
        done = compiled(model, tmp_path / "a.so", flag)
        assert (done.returncode, done.stderr) == (0, "")


def test_an_error(model, tmp_path):
    for flags, status, word in ((["-Werror"], 1, "[-Werror=sandbox]"), (["--require-sandbox"], 3, "--require-sandbox"),
                                (["--require-sandbox", "-Wno-sandbox"], 3, "--require-sandbox")):
        done = compiled(model, tmp_path / "c.so", *flags)
        assert done.returncode == status and done.stderr.count("error: ") == 1 and word in done.stderr, (flags, done)
        assert not (tmp_path / "c.so").exists()
    (tmp_path / "net.yaml").write_text("require-sandbox: true\n")
    assert compiled(model, tmp_path / "c.so", f"--config={tmp_path / 'net.yaml'}").returncode == 3
    assert compiled(model, tmp_path / "c.so", "-Wno-sandbox", f"--cache={tmp_path / 'cache'}").returncode == 0
    assert compiled(model, tmp_path / "d.so", "--require-sandbox", f"--cache={tmp_path / 'cache'}").returncode == 3     # it links


def test_where_there_is_one(model, tmp_path):
    done = subprocess.run([MCC, model, "-o", tmp_path / "a.so", "--require-sandbox"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")

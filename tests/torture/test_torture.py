"""The N-th system call, or allocation, of the command or of its workers fails: the command ends in its error, and the output
is the old one or the new one, whole. See shim.c; libmcc and compiled networks: test_library.c.

    make check      a drawn sample of each kind, its seed printed
    make torture    DRAWS of each kind; all of them where there are no more
"""
import collections
import errno
import os
import random
import re
import subprocess
import time

import pytest

from support.tool import DIGITS, MCC, ROOT

DRAWS = int(os.environ.get("MCC_DRAWS", "10"))
SEED = int(os.environ.get("MCC_SEED", str(int.from_bytes(os.urandom(2), "little"))))
OLD = b"what stood there before"

# calls, of the workers?, errno (0: one byte moves), the later ones fail too, exit statuses
KINDS = [
    ("system", False, errno.EIO, False, {0, 3}),
    ("system", False, errno.ENOSPC, True, {0, 3}),
    ("system", False, errno.EINTR, False, {0, 3}),
    ("system", False, 0, False, {0, 3}),
    ("system", True, errno.EIO, False, {0, 3}),
    ("system", True, 0, False, {0, 3}),
    ("write", True, errno.EIO, False, {0, 3}),
    ("memory", False, 0, False, {0, 4}),
    ("memory", False, 0, True, {0, 4}),
    ("memory", True, 0, False, {0, 4}),
    ("memory", True, 0, True, {0, 4}),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    library = tmp_path_factory.mktemp("torture") / "shim.so"
    subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ROOT}",
                    "-o", library, ROOT / "tests/torture/shim.c", "-ldl"], check=True)
    return library


class Run:
    def __init__(self, folder, shim, calls, workers, number, every, at):
        folder.mkdir()
        output, counts = folder / "net.so", folder / "counts"
        output.write_bytes(OLD)
        for name in ("tmp", "cache"):
            (folder / name).mkdir()
        env = dict(os.environ, MCC_TORTURE_CALLS=calls, MCC_TORTURE_WORKER=str(int(workers)), MCC_TORTURE_AT=str(at), MCC_TORTURE_ERRNO=str(number),
                   MCC_TORTURE_COUNT=str(counts), LD_PRELOAD=str(shim), TMPDIR=str(folder / "tmp"), MCC_CACHE=str(folder / "cache"))
        if every:
            env["MCC_TORTURE_EVERY"] = "1"
        done = subprocess.run([MCC, DIGITS, "-o", output, "-j1", "--march=x86-64-v3", "-O0"], env=env, capture_output=True, text=True,
                              timeout=120)
        self.status, self.text, self.bytes = done.returncode, done.stderr, output.read_bytes()
        self.counts = [int(line) for line in counts.read_text().split()] if counts.exists() else []
        self.left = sorted(p.name for p in folder.iterdir() if p.name not in ("net.so", "counts", "tmp", "cache"))
        self.left += sorted(p.name for p in (folder / "tmp").iterdir())


def lld_says(run):
    """lld reads memory files: it names them, and has no class of its own for a system call that fails."""
    return run.status == 5 and "linking: ld.lld: error: " in run.text and run.text.count("/proc/self/fd/") <= 1 and not run.left


@pytest.mark.parametrize("calls,workers,number,every,allowed", KINDS,
                         ids=[f"{c}-{'workers' if w else 'command'}-{errno.errorcode.get(n, 'short' if c == 'system' else 'none')}"
                              f"{'-ever' if e else ''}" for c, w, n, e, _ in KINDS])
def test_each_call_fails_once(shim, tmp_path, calls, workers, number, every, allowed):
    def at(n):
        return Run(tmp_path / str(n), shim, calls, workers, number, every, n)

    good = at(0)
    assert good.status == 0 and good.counts and good.bytes[:4] == b"\x7fELF", good.text
    count = max(good.counts)
    drawn = range(1, count + 1) if count <= DRAWS else sorted(random.Random(SEED).sample(range(1, count + 1), DRAWS))
    print(f"{len(drawn)} of {count} calls, seed {SEED}")
    tally = collections.Counter()
    for n in drawn:
        run = at(n)
        said = f"call {n} of {count}, seed {SEED}: status {run.status}: {run.text}"
        tally[run.status] += 1
        assert run.status in allowed or workers and calls == "system" and lld_says(run), said
        assert run.bytes == (OLD if run.status else good.bytes), said
        if not (every and calls == "system"):       # there unlink fails too
            assert not run.left, f"{said}: left {run.left}"
        assert run.status == 0 or run.text.count("error: ") >= 1, said
    print(dict(tally))


def test_killed_at_any_moment(tmp_path):
    """SIGKILL leaves the old output or the new one, and beside it at most its temporary file."""
    output, model = tmp_path / "net.so", [MCC, DIGITS, "-j1", "--march=x86-64-v3", "-O0", "-q"]
    begin = time.monotonic()
    subprocess.run([*model, "-o", output], check=True)
    whole, took, ends, chance = output.read_bytes(), time.monotonic() - begin, collections.Counter(), random.Random(SEED)
    for _ in range(DRAWS * 2):
        output.write_bytes(OLD)
        run = subprocess.Popen([*model, "-o", output])
        time.sleep(chance.uniform(0, 1.2 * took))
        run.kill()
        ends[run.wait()] += 1
        assert output.read_bytes() in (OLD, whole), f"seed {SEED}"
        left = [p.name for p in tmp_path.iterdir() if p != output]
        assert all(re.fullmatch(r"\.mcc-\d+-0\.tmp", name) for name in left) and len(left) <= 1, left
        for name in left:
            (tmp_path / name).unlink()
    print(dict(ends))

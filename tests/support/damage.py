"""Damaged artifacts, and what reads them."""
import subprocess

import numpy as np

from support.tool import MCC


def damaged(good, rng, heads):
    """A damaged file, whose first `heads` bytes are damaged more often, and whether a new hash shall hide that."""
    data = bytearray(good)
    for _ in range(int(rng.integers(1, 4))):
        # headers more than code
        at = int(rng.integers(0, min(heads, len(data)) if rng.random() < 0.4 else len(data)))
        kind = int(rng.integers(0, 5))
        if kind == 0:
            data[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            data[at:at + 4] = rng.choice([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\1\0\0\0"])
        elif kind == 2:
            data[at:at + 40] = data[-40:]
        elif kind == 3:
            data[at:at + 40] = data[at + 40:at + 80]
        else:
            del data[max(at, 100):]
    data += b"\0" * int(len(data) < 2)
    return bytes(data), rng.random() < 0.6


def readers_answer(path, good, heads, seals):
    """500 damaged files of the good ones in turns: an answer or one error from everything that reads artifacts. seals: for each, what gives it
    a hash that fits."""
    rng, accepted = np.random.default_rng(5), 0
    commands = [["inspect"], ["inspect", "--verify"], ["inspect", "--json"], ["report", "-q", "-o", path.with_suffix(".html")], ["run"], ["bench"],
                ["compile", "-o", path.with_suffix(".so")], ["check"], ["eval"]]
    for i in range(500):
        data, seal = damaged(good[i % len(good)], rng, heads)
        path.write_bytes(seals[i % len(good)](data) if seal else data)
        for words in [commands[0], commands[1 + i % (len(commands) - 1)]]:
            done = subprocess.run([MCC, *map(str, [words[0], path, *words[1:]])], capture_output=True, text=True, errors="replace", timeout=20)
            assert done.returncode in ((0, 3) if words[0] in ("inspect", "report") else (1, 3)), (i, words, done.returncode, done.stderr)
            assert done.returncode == 0 or "error: " in done.stderr, (i, words, done.stderr)
            accepted += done.returncode == 0
    assert accepted > 20

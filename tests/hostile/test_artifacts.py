"""Who reads an artifact spends time and memory in proportion to the file, whatever it holds and however well it is sealed."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import artifacts   # noqa: E402  (a module beside this one)
from support.tool import MCC   # noqa: E402
from support.usage import usage   # noqa: E402

SANITIZED = "address" in os.environ.get("MCC_BUILD", "")
FACTOR = 8 if SANITIZED else 1
WALL = 100
SIZES = (2000, 4000, 8000)
COMMANDS = (["inspect"], ["inspect", "--json"], ["report", "--no-run", "-q"], ["run"])


def cost(words):
    return usage([MCC, *words], WALL)


@pytest.mark.parametrize("kind", artifacts.KINDS)
def test_in_proportion(tmp_path, kind):
    base = cost(["--version"])
    for n in SIZES:
        path = tmp_path / f"{n}.so"
        path.write_bytes(artifacts.make(kind, n))
        size = path.stat().st_size
        for words in COMMANDS:
            more = ["-o", tmp_path / "page.html"] if words[0] == "report" else []
            status, said, seconds, most = cost([*words[:1], path, *words[1:], *more])
            assert status in (0, 3), (kind, n, words, status, said[:500])
            assert status == 3 or words != ["run"]
            assert status == 0 or b"error: " in said
            # Beyond starting: a microsecond and 64 bytes for each byte of the file.
            assert seconds - base.seconds < FACTOR * (0.15 + 1e-6 * size), (kind, n, words, seconds, size)
            assert most - base.bytes < FACTOR * ((8 << 20) + 64 * size), (kind, n, words, most, size)
            if kind == "honest" and words != ["run"]:
                assert status == 0, said[:500]
            assert len(said) < 32 * size + 4096


def test_the_hash_is_the_loaders(tmp_path):
    """The generator's files get as far as they claim: with one byte of the hash changed they are refused for that."""
    data = bytearray(artifacts.make("honest", 10))
    path = tmp_path / "a.so"
    path.write_bytes(data)
    assert cost(["inspect", path])[0] == 0
    data[-1] ^= 1
    path.write_bytes(data)
    status, said = cost(["inspect", path])[:2]
    assert status == 3 and b"hash differs" in said, said

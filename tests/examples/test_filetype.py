"""examples/filetype without its network: what is read from a file, against the package's rules written down in Python."""
import ctypes as c
import json
import random
import subprocess

import pytest

from support.tool import ROOT

HERE = ROOT / "examples/filetype"
BLOCK, SIDE, PADDING, SHORTEST = 4096, 1024, 256, 8
WHITE = b" \t\n\r\v\f"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("filetype") / "features.so"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", path, HERE / "features.c"], check=True)
    lib = c.CDLL(str(path))
    lib.features_of.restype, lib.features_of.argtypes = c.c_char_p, [c.c_void_p, c.c_int64, c.POINTER(c.c_int32)]
    return lib


def features(lib, path):
    libc = c.CDLL(None)
    libc.fopen.restype, libc.fopen.argtypes, libc.fclose.argtypes = c.c_void_p, [c.c_char_p, c.c_char_p], [c.c_void_p]
    file, out = libc.fopen(bytes(path), b"rb"), (c.c_int32 * (2 * SIDE))()
    label = lib.features_of(file, path.stat().st_size, out)
    libc.fclose(file)
    return label.decode() if label else list(out)


def expected(data):
    first, last = data[:BLOCK].lstrip(WHITE), data[-BLOCK:].rstrip(WHITE)
    if not data:
        return "empty"
    if len(data) < SHORTEST or len(first) < SHORTEST:
        try:
            data[:BLOCK].decode("utf-8")
            return "txt"
        except UnicodeDecodeError:
            return "unknown"
    begin, end = list(first[:SIDE]), list(last[-SIDE:])
    return begin + [PADDING] * (SIDE - len(begin)) + [PADDING] * (SIDE - len(end)) + end


SHORT = [b"", b"a", b"\xff", b"        \n", "äöü".encode(), "€".encode(), "😀".encode(), b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf",
         b"\xed\xa0\x80", b"\xed\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf5\x80\x80\x80",
         b"\xe2\x82", b"\x80abc", b"\v\f\r\t abc", b" " * 5000, b"\xe2\x82\xac" + b" " * 4092 + b"\xe2\x82\xac",
         b" " * 4093 + b"\xe2\x82\xac" * 3]


@pytest.mark.parametrize("data", SHORT, ids=range(len(SHORT)))
def test_short_files(library, tmp_path, data):
    path = tmp_path / "f"
    path.write_bytes(data)
    assert features(library, path) == expected(data)


def test_files_of_all_lengths(library, tmp_path):
    rng, path = random.Random(1), tmp_path / "f"
    for length in [8, 9, 1023, 1024, 1025, 2047, 2048, 4095, 4096, 4097, 8192, 20000] + [rng.randrange(8, 10000) for _ in range(60)]:
        core = rng.randbytes(length)
        before, behind = rng.choice([b"", b" ", b"\n\n", b"\t" * 30]), rng.choice([b"", b"\r\n", b" " * 500])
        data = before + core + behind
        path.write_bytes(data)
        assert features(library, path) == expected(data), length


def test_labels_of_a_configuration(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({
        "beg_size": 1024, "mid_size": 0, "end_size": 1024, "block_size": 4096, "padding_token": 256, "min_file_size_for_dl": 8,
        "use_inputs_at_offsets": False, "target_labels_space": ["c", "elf", "randomtxt"], "thresholds": {"c": 0.9},
        "medium_confidence_threshold": 0.5, "overwrite_map": {"randomtxt": "txt"}}))
    (tmp_path / "types.json").write_text(json.dumps({"c": {"is_text": True}, "elf": {"is_text": False}, "txt": {"is_text": True}}))
    command = ["python3", HERE / "labels.py", tmp_path / "config.json", tmp_path / "types.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.strip() for line in done.stdout.splitlines() if line.startswith("    {")]
    assert rows == ['{"c", "c", 0.9, "txt"},', '{"elf", "elf", 0.5, "unknown"},', '{"randomtxt", "txt", 0.5, "txt"},']

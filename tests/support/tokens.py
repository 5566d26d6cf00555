"""The C files of examples/language as a library, and its tokenizers."""
import ctypes as c
import json
import pathlib
import subprocess

import pytest

from support.tool import ROOT

HERE = ROOT / "examples/language"
REFERENCE = json.loads((ROOT / "tests/examples/tokens_reference.json").read_text())
TEXTS = max((row["texts"] for row in REFERENCE.values()), key=len)
SOURCES = ("bpe.c", "merge.c", "split.c", "tokens.c", "tokens_json.c", "tokens_meta.c", "vocabulary.c")
needs_jansson = pytest.mark.skipif(not pathlib.Path("/usr/include/jansson.h").exists(), reason="no libjansson-dev")


def library(folder, *sources):
    (folder / "classes.h").write_text(subprocess.run(["python3", HERE / "classes.py"], check=True, capture_output=True, text=True).stdout)
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{folder}", f"-I{HERE}", f"-I{ROOT / 'runtime'}"]
    libraries = ["-ljansson"] if {"tokens_json.c", "tokens_meta.c"} & {*sources} else []
    subprocess.run(["cc", *flags, "-o", folder / "lib.so", *(HERE / s for s in sources), *libraries, "-lm"], check=True)
    return c.CDLL(str(folder / "lib.so"))


class Ids(c.Structure):
    _fields_ = [("id", c.POINTER(c.c_int64)), ("n", c.c_size_t), ("room", c.c_size_t)]


class Tokens:
    """struct tokens, in more room than it takes: of a tokenizer.json, or of bytes as mcc_api.meta has them."""

    def __init__(self, lib, of):
        self.lib, self.room = lib, c.create_string_buffer(1 << 16)
        lib.tokens_text.restype, lib.tokens_added.restype = c.c_void_p, c.c_int64
        self.good = lib.tokens_read_meta(self.room, of) if isinstance(of, bytes) else lib.tokens_read(self.room, str(of).encode())

    def encode(self, text, plain=(0, 0)):
        """plain: from where up to where no special tokens are looked for."""
        ids, data = Ids(), text if isinstance(text, bytes) else text.encode()
        assert self.lib.tokens_encode(self.room, data, c.c_size_t(len(data)), *map(c.c_size_t, plain), c.byref(ids))
        return list(ids.id[:ids.n])

    def text(self, ids):
        shown, n = b"", c.c_size_t()
        for i in ids:
            at = self.lib.tokens_text(self.room, c.c_int64(i), c.byref(n))
            shown += c.string_at(at, n.value)
        return shown

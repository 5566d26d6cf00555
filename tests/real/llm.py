"""The small language models beside the project (../shared/llm/models): prefill and greedy decoding, tokens equal to those that ONNX Runtime gave,
logits of the first step within 1e-4 of their scale, or 3e-2 where ONNX Runtime's activations are 8 bits. Each as it is and, where its
caches may, with them in one buffer and the last position's logits alone; with a maximum of their length, where they grow."""
import json
import pathlib

import numpy as np

from support.decoder import Compiled, is_cache
from support.tool import mcc

ROOM = 32
EXACT = ("fp32", "mobius", "acc0")


def differs(made, told, tolerance):
    tokens, logits = made
    gap = np.abs(logits[0][:len(told["logits"])] - told["logits"]).max() / np.abs(logits[0]).max()
    if tokens != told["tokens"]:
        return f"tokens {tokens}, ONNX Runtime's are {told['tokens']}"
    return "" if gap <= tolerance else f"logits differ by {gap:.1e} of their scale"


def grown(decoder):
    """Flags that give growing caches a maximum; of one cache, whose names the others have."""
    for p in decoder.artifact.inputs:
        if is_cache(p.name.decode()) and p.ndim == 4 and p.dims[2].extent < 0:
            symbol = decoder.artifact.api.sym[p.dims[2].symbol].name.decode()
            return [("--input", f"{p.name.decode()}:[1,{p.dims[1].extent},{symbol}<={ROOM},{decoder.size}]")]
    return []


def check_one(root, name, told, folder, line):
    model, bad, done = root / name, [], []
    tolerance = 1e-4 if any(word in name for word in EXACT) else 3e-2
    forms = [(), ("--last-logits",)]
    for flags in forms:
        path = folder / f"llm{len(done)}.so"
        made = mcc("-q", model, "-march=native", "-o", path, *flags, timeout=600)
        if made.returncode:
            return line(name, False, made.stderr.splitlines()[0][:150])
        decoder = Compiled(path)
        forms += [] if flags else grown(decoder)
        done.append("caches to a maximum" if "--input" in flags else " ".join(flags) or "as it is")
        if "--input" in flags and not decoder.grows:
            bad.append("caches do not grow in one buffer")
        bad.append(differs(decoder.tokens(told["prompt"], len(told["tokens"])), told, tolerance))
        if decoder.shares and not decoder.grows:
            done[-1] += ", one buffer"
            bad.append(differs(Compiled(path, ROOM).tokens(told["prompt"], len(told["tokens"])), told, tolerance))
        path.unlink()
    line(name, not any(bad), "; ".join(filter(None, bad)) or f"tokens equal, logits within {tolerance:.0e}: {'; '.join(done)}")


def check(root, folder, line):
    expected = json.loads((pathlib.Path(root) / "expected.json").read_text())
    for name, told in expected.items():
        name = name.removeprefix("models/")
        if isinstance(told, str):
            print(f"skip {name}: {told[:100]}")
        else:
            check_one(root, name, told, folder, line)

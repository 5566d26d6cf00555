#!/usr/bin/env python3
"""Networks as .pt2 beside the same networks by way of ONNX (torch.onnx.export, dynamo=True), one thread.

usage: pt2.py [--rounds N] [--form static|batch|sizes] [NAME...]    with a Python that has torch and onnxscript

make bench-pt2 [TORCH=python] [ROUNDS=7] [FORM=batch] [NETS="timm.lcnet_035 torch"]

The networks are those of tests/real/nets, DEFAULT if none is named; torch.export writes each once, and both files are made of that
program. A line each: kernels of both; the ratios .pt2 over ONNX of the time of a run (processor time, short turns in alternation, the
middle one) and of the compiler's processor time (the lesser of compilations in alternation). Outputs of the two are compared before any
time is believed. MORE marks a network that has more kernels; the last row has the geometric means, and the exit status says
whether they are above RUN and COMPILE.
"""
import argparse
import collections
import json
import logging
import os
import pathlib
import statistics
import sys
import tempfile
import warnings
import zlib

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from open import Refused, compile_net  # noqa: E402  (tests/bench)
from peers import load_mcc  # noqa: E402
from real.nets import ABSENT, NETS  # noqa: E402
from real.pt2 import drawn, exported, short  # noqa: E402
from support.tool import mcc  # noqa: E402
from turns import alternate, same_outputs  # noqa: E402

RUN, COMPILE, TURN, COMPILATIONS, TOLERANCE, LEAST = 1.03, 1.2, 0.02, 3, 2e-4, 1e-5
DEFAULT = """torchvision.resnet18 torchvision.mobilenet_v2 torchvision.mobilenet_v3_small torchvision.efficientnet_b0 torchvision.densenet121
    torchvision.squeezenet1_1 torchvision.shufflenet_v2_x0_5 torchvision.convnext_tiny torchvision.regnet_y_400mf torchvision.vit_b_32
    torchvision.swin_t torchvision.lraspp_mobilenet_v3_large timm.ghostnet_100 timm.mobilevit_xxs timm.mixer_s16_224 timm.levit_128s
    timm.lcnet_035 timm.poolformer_s12 transformers.bert transformers.distilbert transformers.gpt2 transformers.llama
    transformers.roberta torch.sound-convtasnet torch.image-unet torch.other-tcn""".split()


def write_both(name, form, folder):
    """The paths of the .pt2 and of the ONNX file, and the inputs."""
    make, inputs = NETS[name]
    torch.manual_seed(zlib.crc32(name.encode()))
    net, draws = make().eval(), inputs()
    program = exported(drawn(short(net, draws)), draws, form)
    paths = folder / "net.pt2", folder / "net.onnx"
    torch.export.save(program, paths[0])
    torch.onnx.export(program, dynamo=True, verbose=False).save(str(paths[1]), external_data=False)
    return paths, [x.numpy() for x in draws[0].values()]


def kernels_of(artifact):
    return sum(k["kernels"] for k in json.loads(mcc("inspect", "--json", artifact).stdout)["result"]["kernels"])


def measure(name, args, folder):
    """(the line, kernels of both, ratio of the run, ratio of the compilation)"""
    paths, inputs = write_both(name, args.form, folder)
    artifacts = [p.with_suffix(f"{p.suffix}.so") for p in paths]
    seconds = [[compile_net(p, a, ["-march=native"])[0] for p, a in zip(paths, artifacts)] for _ in range(COMPILATIONS)]
    compilation = min(s[0] for s in seconds) / min(s[1] for s in seconds)
    loaded = [load_mcc(a, 1, inputs) for a in artifacts]
    if not same_outputs(*(outputs() for _, outputs in loaded), TOLERANCE, LEAST):
        raise ValueError("outputs differ")
    times = alternate([run for run, _ in loaded], args.rounds, TURN)
    run, kernels = statistics.median(a / b for a, b in times), [kernels_of(a) for a in artifacts]
    mine = statistics.median(t[0] for t in times) * 1e3
    return f"{kernels[0]:4} {kernels[1]:4} {mine:9.3f} {run:6.2f} {compilation:8.2f}", kernels, run, compilation


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--form", choices=["static", "batch", "sizes"], default="static", help="what is dynamic")
    parser.add_argument("nets", nargs="*")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    for text in ABSENT:
        print(f"left out: {text}")
    names = [n for w in args.nets or DEFAULT for n in NETS if n == w or n.startswith(f"{w}.")]
    print(f"{'network':44} {'kernels':>9} {'.pt2 ms':>9} {'run':>6} {'compile':>8}")
    ratios, count = [], collections.Counter()
    for name in names:
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            try:
                row, kernels, *both = measure(name, args, pathlib.Path(folder))
                ratios.append(both)
                mark, end = "  MORE" if kernels[0] > kernels[1] else "", "measured"
            except Exception as e:   # whatever an exporter throws is a line
                row, mark = f"{type(e).__name__}: {' '.join(str(e).split())}"[:160], ""
                end = {Refused: "refused", ValueError: "different"}.get(type(e), "not exported")
        print(f"{name:44} {row}{mark}", flush=True)
        count[end] += 1
    print(", ".join(f"{n} {end}" for end, n in count.items()))
    if not ratios:
        return 1
    run, compilation = (statistics.geometric_mean(column) for column in zip(*ratios))
    print(f"geometric mean: run {run:.3f} (asked: {RUN}), compile {compilation:.3f} (asked: {COMPILE})")
    return 1 if run > RUN or compilation > COMPILE or {"refused", "different"} & set(count) else 0


if __name__ == "__main__":
    sys.exit(main())

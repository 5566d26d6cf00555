#!/usr/bin/env python3
"""What --error gains: the 14 networks within a bound, over ONNX Runtime in f32, and over other quantizers at their error. Or pruned ones.

usage: chosen.py [--error 1%] [--samples N] [--unseen N] [--rounds N] [--peers nncf,neural-compressor] [--peer-most SECONDS] [NET...]
       chosen.py --pruned [--peers deepsparse] [NET...]
make bench-choices [PEERS=nncf,neural-compressor] [NETS="resnet50 bert"], make bench-choices PRUNED=1 [PEERS=deepsparse]

mcc searches with drawn samples that are given with --sample (numbers of normal distribution, whole ones below 30000), so it takes ranges from them. A row:
milliseconds of ONNX Runtime in f32, of mcc in f32 and as chosen, ONNX Runtime's and own f32's time over the chosen one's, the relative rms error on
drawn samples that the search did not see, how much the outputs of these differ between samples (deviation over rms: an error of much less leaves the
decisions alone), seconds of the search (processor time), and how many products are in which type. Then for each peer a row with its error, its time, the
error and time of what mcc finds with that error as the bound, and the ratio of the times.

--pruned: 90 % of each weight of convolutions and products is set to 0, by magnitude: --sparse=off over what mcc does by itself.

All run on one thread in turns, times are processor time. Each peer has a Python of its own; one that lacks the packages is skipped with the reason,
and one that gives no network within --peer-most seconds has a row that says so.
"""
import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from peers import Peer  # noqa: E402
from quantizers import QUANTIZERS  # noqa: E402
from run import GOALS, find_nets, geometric_mean  # noqa: E402
from kept import rms  # noqa: E402  (after run: it puts other folders first)
from support.artifact import Artifact  # noqa: E402
from support.tool import MCC  # noqa: E402
from support.usage import usage  # noqa: E402

PYTHONS = {"nncf": "peers", "neural-compressor": "compressor", "deepsparse": "deepsparse"}
PRUNED = ["bert", "resnet50", "mobilenet_v2"]
SEARCH_MOST = 1200


def draw(model, n, rng):
    """{input: n of it, stacked in a new first dimension}"""
    weights, samples = {t.name for t in model.graph.initializer}, {}
    for port in model.graph.input:
        if port.name not in weights:
            shape = [n] + [d.dim_value or 1 for d in port.type.tensor_type.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
            samples[port.name] = rng.standard_normal(shape).astype(dtype) if dtype.kind == "f" else rng.integers(0, 30000, shape).astype(dtype)
    return samples


def outputs_of(artifact, samples):
    with Artifact(artifact) as a:
        return [a.run([samples[a.api.in_[i].name.decode()][k] for i in range(a.api.n_in)])[0] for k in range(len(next(iter(samples.values()))))]


def compiled(path, output, *options):
    """(what mcc says, processor seconds)"""
    spent = usage([MCC, path, "-o", output, "-march=native", *options], SEARCH_MOST)
    if spent.status:
        sys.exit(f"{path}: {spent.said.decode(errors='replace')}")
    return spent.said.decode(errors="replace"), spent.seconds


def times(contenders, inputs, folder, rounds):
    """{name: processor milliseconds of each turn}. contenders: {name: (program, file, python)}; one that cannot load is left out, with a line."""
    peers = {}
    for name, (program, path, python) in contenders.items():
        own = folder / f"of-{name}"
        own.mkdir(exist_ok=True)
        np.savez(own / "inputs.npz", **{f"arr_{i}": x for i, x in enumerate(inputs)})
        peer = Peer(program, path, 1, own, python)
        peer.clock = "process_time"
        if peer.info is None:
            print(f"  skip {name}: {(own / (program + '.log')).read_text().strip().splitlines()[-1:]}", flush=True)
        else:
            peers[name] = peer
    order = list(peers.values())
    for k in range(rounds):
        for p in order[k % len(order):] + order[:k % len(order)]:
            p.turns.append(p.turn(0.2, 3))
    for p in order:
        p.close()
    return {n: [statistics.median(t) for t in p.turns] for n, p in peers.items()}


def ratio(a, b):
    return statistics.median(x / y for x, y in zip(a, b))


def search(path, output, bound, given):
    text, seconds = compiled(path, output, f"--error={bound}", *given)
    return ", ".join(f"{n} {kind}" for n, kind in re.findall(r"(\d+) in (f32|bf16|f16|int8 dyn|int8|i8 wts)", text)), seconds


def quantized(name, path, folder, args):
    """Outputs of a peer's network for the unseen samples; None: skipped."""
    try:
        done = subprocess.run([getattr(args, f"{PYTHONS[name]}_python"), HERE / "quantizers.py", name, path, folder], capture_output=True, text=True,
                              cwd=folder, timeout=args.peer_most)
    except subprocess.TimeoutExpired:
        print(f"  {name:18} no network within {args.peer_most:g} s", flush=True)
        return None
    if done.returncode:
        print(f"  skip {name}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return None
    stored = np.load(folder / f"{name}.npz")
    return [stored[k] for k in stored.files]


def measure(name, path, args, folder):
    """[ONNX Runtime's time over mcc's], and for each peer mcc's gain."""
    rng, model = np.random.default_rng(3), onnx.load(path)
    samples, unseen = draw(model, args.samples, rng), draw(model, args.unseen, rng)
    np.savez(folder / "samples.npz", **samples)
    np.savez(folder / "unseen.npz", **unseen)
    given = []
    for k, x in samples.items():
        np.save(folder / f"{k}.npy", x.reshape(-1, *x.shape[2:]))
        given.append(f"--sample={k}={folder / k}.npy")
    compiled(path, folder / "f32.so", "-q")
    exact = outputs_of(folder / "f32.so", unseen)
    kinds, seconds = search(path, folder / "chosen.so", args.error, given)
    contenders = {"ort": ("ort", path, sys.executable), "f32": ("mcc", folder / "f32.so", sys.executable),
                  "mcc": ("mcc", folder / "chosen.so", sys.executable)}
    errors = {"mcc": rms(outputs_of(folder / "chosen.so", unseen), exact)}
    for peer in args.peers:
        theirs = quantized(peer, path, folder, args)
        if theirs:
            errors[peer] = rms(theirs, exact)
            search(path, folder / f"mcc-{peer}.so", f"{min(errors[peer], 1):.6g}", given)
            errors[f"mcc-{peer}"] = rms(outputs_of(folder / f"mcc-{peer}.so", unseen), exact)
            contenders[f"mcc-{peer}"] = ("mcc", folder / f"mcc-{peer}.so", sys.executable)
            contenders[peer] = (QUANTIZERS[peer][1], folder / f"{peer}.{QUANTIZERS[peer][2]}",
                                args.peers_python if QUANTIZERS[peer][1] == "openvino" else sys.executable)
    taken = times(contenders, [x[0] for x in unseen.values()], folder, args.rounds)
    ms = {n: statistics.median(t) for n, t in taken.items()}
    spread = rms([np.mean(exact, 0)] * len(exact), exact)
    print(f"{name:20} {ms['ort']:8.2f} {ms['f32']:8.2f} {ms['mcc']:8.2f} {ratio(taken['ort'], taken['mcc']):6.2f} {ratio(taken['f32'], taken['mcc']):6.2f} "
          f"{100 * errors['mcc']:6.2f}% {100 * spread:6.1f}% {seconds:7.1f}  {kinds}", flush=True)
    gains = {}
    for peer in args.peers:
        if peer in taken:
            gains[peer] = ratio(taken[peer], taken[f"mcc-{peer}"])
            print(f"  {peer:18} error {100 * errors[peer]:.3g} %, {ms[peer]:.2f} ms; mcc {100 * errors[f'mcc-{peer}']:.3g} %, {ms[f'mcc-{peer}']:.2f} ms: "
                  f"{gains[peer]:.2f}", flush=True)
    return ratio(taken["ort"], taken["mcc"]), gains


def pruned(path, output):
    """The network with 90 % of each weight's elements at 0."""
    model = onnx.load(path)
    weights = {n.input[1] for n in model.graph.node if n.op_type in ("Conv", "Gemm", "MatMul") and len(n.input) > 1}
    for t in model.graph.initializer:
        if t.name in weights:
            w = numpy_helper.to_array(t).copy()
            w[np.abs(w) < np.quantile(np.abs(w), 0.9)] = 0
            t.CopyFrom(numpy_helper.from_array(w, t.name))
    onnx.save(model, output)
    return draw(model, 1, np.random.default_rng(3))


def measure_pruned(name, path, args, folder):
    samples = pruned(path, folder / "pruned.onnx")
    for kind in "off", "auto":
        compiled(folder / "pruned.onnx", folder / f"{kind}.so", "-q", f"--sparse={kind}")
    contenders = {kind: ("mcc", folder / f"{kind}.so", sys.executable) for kind in ("off", "auto")}
    contenders |= {p: (p, folder / "pruned.onnx", getattr(args, f"{PYTHONS[p]}_python")) for p in args.peers}
    taken = times(contenders, [x[0] for x in samples.values()], folder, args.rounds)
    ms = {n: statistics.median(t) for n, t in taken.items()}
    print(f"{name:20} dense {ms['off']:.2f} ms, sparse {ms['auto']:.2f} ms: {ratio(taken['off'], taken['auto']):.2f}; outputs differ by "
          f"{rms(outputs_of(folder / 'auto.so', samples), outputs_of(folder / 'off.so', samples)):.1e}", flush=True)
    gains = {p: ratio(taken[p], taken["auto"]) for p in args.peers if p in taken}
    for p, gain in gains.items():
        print(f"  {p:18} {ms[p]:.2f} ms: {gain:.2f}", flush=True)
    return ratio(taken["off"], taken["auto"]), gains


def main():
    p = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    p.add_argument("nets", nargs="*")
    p.add_argument("--error", default="1%")
    for option, default in (("samples", 32), ("unseen", 16), ("rounds", 9)):
        p.add_argument(f"--{option}", type=int, default=default)
    p.add_argument("--peer-most", type=float, default=SEARCH_MOST, help="seconds that a peer may take to quantize a network")
    p.add_argument("--pruned", action="store_true")
    p.add_argument("--peers", type=lambda s: [x for x in s.split(",") if x], default=[])
    for python in PYTHONS.values():
        p.add_argument(f"--{python}-python", default=sys.executable, type=os.path.abspath)
    args = p.parse_args()
    known = ["deepsparse"] if args.pruned else list(QUANTIZERS)
    if not set(args.peers) <= set(known):
        p.error(f"--peers: there are {', '.join(known)}")
    for peer in [x for x in args.peers if not shutil.which(getattr(args, f"{PYTHONS[x]}_python"))]:
        print(f"skip {peer}: its Python is not there")
        args.peers.remove(peer)
    args.batch, args.competitor, args.nets = 1, False, args.nets or (PRUNED if args.pruned else list(GOALS))
    if not args.pruned:
        print(f"{'network':20} {'ort ms':>8} {'f32 ms':>8} {'mcc ms':>8} {'ratio':>6} {'/f32':>6} {'error':>7} {'spread':>7} {'search':>7}  products")
    rows = []
    for name, path in find_nets(args).items():
        with tempfile.TemporaryDirectory() as scratch:
            rows.append((measure_pruned if args.pruned else measure)(name, path.resolve(), args, pathlib.Path(scratch)))
    print(f"{'dense over sparse' if args.pruned else 'ONNX Runtime in f32 over mcc'}: geometric mean {geometric_mean([r for r, _ in rows]):.2f}, "
          f"least {min(r for r, _ in rows):.2f} ({len(rows)} networks)")
    best = [min(gains.values()) for _, gains in rows if gains]
    if best:
        print(f"the best of {', '.join(args.peers)} over mcc{'' if args.pruned else ' at its error'}: geometric mean {geometric_mean(best):.2f}, "
              f"least {min(best):.2f} ({len(best)} networks)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

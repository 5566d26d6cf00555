#!/usr/bin/env python3
"""Networks beside ONNX Runtime and others in one run, on a machine that is looked at before and after every turn.

usage: run.py [--threads N] [--rounds N] [--peers openvino,ncnn,MNN,aoti] [--competitor] [--ungated] [--batch N] [--gap 0,1ms] [--results FILE]
              [--precision bf16] [NET | FILE.onnx ...]

make bench [THREADS=2] [PEERS=openvino,ncnn,MNN,aoti] [COMPETITOR=1] [UNGATED=1] [ROUNDS=7] [BATCH=16] [GAP=0,1ms]
[TORCH=python] [PRECISION=bf16] [RESULTS=docs/ratios.json] [NETS="resnet50 bert"];
make deps-bench for the exports. --results: the medians of this number of threads are replaced in FILE, of which chart.py draws the
picture of the README.

--batch: images or texts of a run, from networks with a symbolic batch. --gap: the time between runs, for each of which there is a row.
--precision: mcc rounds the operands of products, OpenVINO does what it does by default, ONNX Runtime stays in f32; outputs may differ by
1.5e-2 of their scale (peers: 3e-2), and there are no goals.
For each network, f32: the median time of ONNX Runtime and of mcc, their ratio (above 1: mcc is faster) with the
goal, mcc's share of the multiply-add peak that this run measured, the spread of single runs (p10 and p90 over the
median), the largest difference of outputs over their scale, the time to compile, the largest sum of resident memory over
mcc and its workers, the sizes of the artifact and of the file; then the ratio of ONNX Runtime's time to each other peer's. With other peers
a second line has the time that each took to open what it had compiled or converted before.
Peers take turns in every round, another one first in each; turns of a busy machine are tried again and never counted
(gate.py); --ungated counts them, in processor time if there is one thread. --competitor keeps the second CPU busy
instead. Outputs are compared before any time is believed.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import onnx

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))

from gate import Gate, load  # noqa: E402
from peers import ALONE, OURS, PEERS, PROGRAMS, TORCH, Peer, cpus  # noqa: E402
from support import memory  # noqa: E402
from support.tool import BUILD, MCC  # noqa: E402

# Ratio to ONNX Runtime with one thread that docs/performance.md states as goal.
GOALS = {"vgg16": 2.7, "resnet18": 2.0, "resnet50": 1.32, "squeezenet1_1": 1.4, "densenet121": 1.3, "efficientnet_b0": 1.4,
         "mobilenet_v3_small": 1.35, "mobilenet_v3_large": 1.28, "mobilenet_v2": 1.18, "shufflenet_v2_x1_0": 1.4,
         "swin_t": 1.2, "convnext_tiny": 1.18, "bert": 1.15, "vit_b_16": 1.09}
BATCH_NETS, BATCH_GOAL = ["resnet50", "mobilenet_v2", "bert", "vit_b_16"], 1.3
COMPETITOR_NETS, COMPETITOR_GOAL = ["resnet50", "densenet121", "mobilenet_v2"], 2.0
ERROR_LIMIT = {"MNN": 1e-3}


def error_limit(peer, precision):
    """What outputs may differ by, over their scale."""
    if precision == "f32":
        return ERROR_LIMIT.get(peer, 1e-4)
    return 1.5e-2 if peer == "mcc" else 3e-2


# ---- compiling ------------------------------------------------------------------------------------------------------

def compile_net(path, output, precision):
    """(seconds, bytes at the peak)"""
    start = time.monotonic()
    process = subprocess.Popen([MCC, path, "-o", output, f"--precision={precision}"])
    peak, done = 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.is_set():
            peak = max(peak, memory.of_family(process.pid, "VmRSS"))
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    status = process.wait()
    seconds = time.monotonic() - start
    done.set()
    watcher.join()
    if status:
        sys.exit(f"{path}: mcc ended with {status}")
    return seconds, peak


# ---- the network ----------------------------------------------------------------------------------------------------

def draw_inputs(model, batch=1):
    weights, rng, inputs = {t.name for t in model.graph.initializer}, np.random.default_rng(1), []
    for port in model.graph.input:
        if port.name in weights:
            continue
        kind = port.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else batch for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        inputs.append(rng.standard_normal(shape).astype(dtype) if dtype.kind == "f" else rng.integers(0, 30000, shape).astype(dtype))
    return inputs


def count_flops(model, inputs):
    """Twice the multiply-adds of convolutions and products, as the file has them; None where a shape is not known."""
    ports = [p for p in model.graph.input if p.name not in {t.name for t in model.graph.initializer}]
    for port, x in zip(ports, inputs):
        for d, n in zip(port.type.tensor_type.shape.dim, x.shape):
            d.dim_value = n
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    dims = {t.name: list(t.dims) for t in inferred.initializer}
    for v in [*inferred.value_info, *inferred.input, *inferred.output]:
        dims[v.name] = [d.dim_value for d in v.type.tensor_type.shape.dim]
    total = 0
    for node in inferred.node:
        if node.op_type not in ("Conv", "Gemm", "MatMul"):
            continue
        out, b = dims.get(node.output[0]), dims.get(node.input[1])
        if not out or not b or 0 in out:
            return None
        trans = any(a.name == "transB" and a.i for a in node.attribute)
        terms = math.prod(b[1:]) if node.op_type == "Conv" else b[-1] if trans else b[-2] if len(b) > 1 else b[0]
        total += 2 * math.prod(out) * terms
    return total


def worst_error(folder, reference, name):
    """Largest difference over the scale of the output; infinite where shapes differ."""
    want, have = np.load(folder / f"{reference}.npz"), np.load(folder / f"{name}.npz")
    if len(want.files) != len(have.files):
        return math.inf
    worst = 0.0
    for k in want.files:
        w, h = want[k].astype(np.float64), have[k].astype(np.float64)
        if w.size != h.size:
            return math.inf
        error = float(np.abs(w - h.reshape(w.shape)).max() / max(np.abs(w).max(), 1e-30))
        worst = max(worst, error if math.isfinite(error) else math.inf)
    return worst


# ---- measuring ------------------------------------------------------------------------------------------------------

def start_peers(args, path, folder):
    peers, pythons = [], {OURS: sys.executable, PEERS: args.peer_python, TORCH: args.torch_python}
    for name in ["mcc", "ort", *args.peers]:
        peer = Peer(name, folder / "net.so" if name in ("mcc", ALONE) else path, 1 if name == ALONE else args.threads, folder,
                    pythons[PROGRAMS[name][1]])
        if peer.info is None:
            print(f"  {name} cannot load {path.name}: {(folder / (name + '.log')).read_text().strip().splitlines()[-1:]}", flush=True)
            continue
        peers.append(peer)
    return {p.name: p for p in peers}


def measure(name, path, args, gate):
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        folder = pathlib.Path(scratch)
        seconds, memory = compile_net(path, folder / "net.so", args.precision)
        model = onnx.load(path)
        inputs = draw_inputs(model, args.batch)
        np.savez(folder / "inputs.npz", **{f"arr_{i}": x for i, x in enumerate(inputs)})
        flops = count_flops(model, inputs)
        del model
        peers = start_peers(args, path.resolve(), folder)
        if not {"mcc", "ort"} <= set(peers):
            sys.exit(f"{name}: nothing to compare")
        errors = {p: worst_error(folder, "ort", p) for p in peers}
        size = (folder / "net.so").stat().st_size
        rows = {}
        for gap in args.gap:
            take_turns(list(peers.values()), gap, errors, args, gate)
            label = name if len(args.gap) == 1 else f"{name} {gap * 1e3:g} ms"
            rows[label] = report(label, path, args, gate, peers, errors, flops, seconds, memory, size)
        for p in peers.values():
            p.close()
        return rows


def take_turns(order, gap, errors, args, gate):
    for p in order:
        p.gap, p.turns = gap, []
        p.clock = "process_time" if args.ungated and args.threads == 1 else "perf_counter"
    for turn in range(args.rounds):
        first = turn % len(order)
        for p in order[first:] + order[:first]:
            if errors[p.name] <= error_limit(p.name, args.precision):
                times = gate.turn(p, args.seconds, 5, args.tries, not args.ungated and not args.competitor)
                p.turns += [times] if times else []


def report(name, path, args, gate, peers, errors, flops, seconds, memory, size):
    """Prints the row; {peer: milliseconds}, empty where nothing was measured."""
    ort, mine = peers["ort"].median, peers["mcc"].median
    ratios = {p: ort / peers[p].median for p in peers if p != "ort" and ort and peers[p].median}
    goal = COMPETITOR_GOAL if args.competitor else BATCH_GOAL if args.batch > 1 else GOALS.get(name.split()[0], 0) * (0.88 if args.threads > 1 else 1)
    goal = goal if args.precision == "f32" else 0
    cost = f"{errors['mcc']:7.1e} {seconds:7.2f} {memory / 1e6:8.0f} {size / 1e6:8.2f} {path.stat().st_size / 1e6:8.2f}"
    others = " ".join(f"{ratios[p]:9.2f}" if p in ratios else f"{'-':>9}" for p in args.peers)
    if errors["mcc"] > error_limit("mcc", args.precision):
        print(f"{name:20} outputs differ: {errors['mcc']:.1e} of their scale", flush=True)
        return {}
    if "mcc" not in ratios:
        print(f"{name:20} not measurable on this machine today ({gate.describe()})  {cost} {others}", flush=True)
        return {}
    low, high = peers["mcc"].spread()
    share = f"{100 * flops / (mine * 1e6) / (gate.peak * args.threads):5.0f}%" if flops else f"{'-':>6}"
    print(f"{name:20} {ort:9.3f} {mine:9.3f} {ratios['mcc']:6.2f} {goal:6.2f} {share} {low:+5.1f} {high:+5.1f}%  {cost} {others}",
          flush=True)
    if args.peers:
        print("  to open, ms (processor time): " + ", ".join("{} {:.2f} ({:.2f})".format(n, *p.info["open_ms"]) for n, p in peers.items()), flush=True)
    for other in [p for p in args.peers if p in peers and errors[p] > error_limit(p, args.precision)]:
        print(f"  outputs of {other} differ: {errors[other]:.1e} of their scale", flush=True)
    return {p: peers[p].median for p in peers if peers[p].median}


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def seconds_of(text):
    """"100us", "20ms", "1s" or "0"."""
    for unit, scale in (("us", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * scale
    return float(text)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="f32", choices=["f32", "bf16", "f16"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one turn")
    parser.add_argument("--tries", type=int, default=8, help="for a quiet turn")
    parser.add_argument("--peers", type=lambda s: [p for p in s.split(",") if p], default=[])
    parser.add_argument("--peer-python", default=sys.executable, help="that has the peers' packages")
    parser.add_argument("--torch-python", default=sys.executable, help="that has torch and torchvision, for aoti")
    parser.add_argument("--competitor", action="store_true", help="a busy process on the second CPU; two threads")
    parser.add_argument("--ungated", action="store_true", help="times of a busy machine count too, in processor time if there is one thread")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--gap", type=lambda s: [seconds_of(t) for t in s.split(",")], default=[0.0], help="0,100us,1ms,20ms: between runs")
    parser.add_argument("--results", type=pathlib.Path, help="JSON file whose figures of so many threads are replaced")
    parser.add_argument("--scratch", help="folder for artifacts; default: the system's")
    parser.add_argument("nets", nargs="*")
    args = parser.parse_args()
    for name in args.peers:
        if name not in PROGRAMS:
            parser.error(f"no peer is called {name}: there are {', '.join(PROGRAMS)}")
    if args.competitor:
        args.threads = 2
        args.peers = [ALONE, *args.peers]
    os.environ["MCC_BENCH_PRECISION"] = args.precision   # what peers are asked for
    return args


def find_nets(args):
    """{name: file}; what is missing is exported."""
    folder = pathlib.Path(os.environ.get("MCC_NETS", BUILD / "nets"))
    names = args.nets or (COMPETITOR_NETS if args.competitor else BATCH_NETS if args.batch > 1 else list(GOALS))
    found = {pathlib.Path(n).stem.removesuffix("_static"): pathlib.Path(n) for n in names if n.endswith(".onnx")}
    static = [n for n in names if not n.endswith(".onnx")]
    form = "" if args.batch > 1 else "_static"
    missing = [n + form for n in static if not (folder / f"{n}{form}.onnx").exists()]
    if missing:
        subprocess.run(["/usr/bin/python3", HERE.parent / "real/export.py", folder, *missing], check=True)
    return found | {n: folder / f"{n}{form}.onnx" for n in static}


def write_results(path, args, rows):
    """{"1": {"cpu", "date", "ungated", "ms": {network: {peer: milliseconds}}}, "2": ...}"""
    results = json.loads(path.read_text()) if path.exists() else {}
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    results[str(args.threads)] = {"cpu": model, "date": datetime.date.today().isoformat(), "ungated": args.ungated,
                                  "ms": {n: {p: round(ms, 4) for p, ms in r.items()} for n, r in rows.items()}}
    path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def main():
    args = arguments()
    nets = find_nets(args)
    gate = Gate(MCC, args.threads)
    busy = None
    if args.competitor:
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                preexec_fn=lambda: os.sched_setaffinity(0, cpus(2)[-1:]))
    print(f"{load()}, {args.threads} thread(s), batch {args.batch}, {args.precision}; multiply-add peak {gate.peak:.1f} GFLOP/s a thread"
          f"{', second CPU busy' if busy else ''}{', UNGATED' if args.ungated else ''}")
    print(f"{'network':20} {'ort ms':>9} {'mcc ms':>9} {'ratio':>6} {'goal':>6} {'% peak':>6} {'p10':>5} {'p90':>6}  {'error':>7} "
          f"{'compile':>7} {'peak MB':>8} {'.so MB':>8} {'onnx MB':>8} " + " ".join(f"{p:>9}" for p in args.peers))
    rows = {}
    try:
        for name, path in nets.items():
            rows |= measure(name, path, args, gate)
    finally:
        if busy:
            busy.kill()
    if args.results:
        write_results(args.results, args, {n: r for n, r in rows.items() if r})
    good = {n: {p: r["ort"] / ms for p, ms in r.items() if p != "ort"} for n, r in rows.items() if r}
    for p in ["mcc", *args.peers]:
        values = [r[p] for r in good.values() if p in r]
        if values:
            print(f"geometric mean of ONNX Runtime's time over that of {p}: {geometric_mean(values):.3f} ({len(values)} networks)")
    if args.peers and good:
        best = [r["mcc"] / max(r.get(p, 0) for p in args.peers) for r in good.values() if any(p in r for p in args.peers)]
        if best:
            print(f"mcc against the fastest of {', '.join(args.peers)}: {geometric_mean(best):.3f}, least {min(best):.3f}")
    return 0 if len(good) == len(nets) * len(args.gap) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Real networks, one line each: compiled, run for N = 1, 2 and 5 from one shared object (and exported for N = 1, under
NAME_static), compared with ONNX Runtime (graph optimisations off) within 1e-3 of the output's scale. Then the light
networks of the onnx package, networks inside packages of PyPI (packages.py here), sizes of artifacts, and, where they
are present, language models and the model collections beside the project (../shared/llm, ../shared/models, ../shared/hostile; llm.py,
collection.py and hostile.py here).

usage: run.py [NAME...]        exports once, into BUILD/nets (make deps-bench); names are those of the networks and
                               digits, light, aten, packages (or one in packages.py, or quantized), sizes, llm, attention, models, hostile
"""
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import helper

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import llm  # noqa: E402
import packages  # noqa: E402
from conformance import suite  # noqa: E402
from support.artifact import Artifact  # noqa: E402
from support.tool import BUILD, DIGITS, ROOT, mcc, save, value  # noqa: E402

NETS = ["mobilenet_v3_small", "mobilenet_v3_large", "resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "vgg16",
        "densenet121", "convnext_tiny", "efficientnet_b0", "shufflenet_v2_x1_0", "swin_t", "vit_b_16", "bert",
        "mobilenet_v3_small_bn", "mobilenet_v3_large_bn"]
NETS += [f"{n}_static" for n in NETS]
TOLERANCE = 1e-3
FLAGS = ("-march=native",)   # for the collection: one CPU variant
SHARED = ROOT.parent / "shared"
failures = []


def line(name, ok, text):
    print(f"{'ok  ' if ok else 'FAIL'} {name:34} {text}", flush=True)
    if not ok:
        failures.append(name)


def session(path):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def distance(want, got):
    """Largest difference over the output's scale; infinite where shape or type differ."""
    if want.shape != got.shape or want.dtype != got.dtype:
        return np.inf
    if want.dtype.kind not in "fc":
        return 0.0 if (want == got).all() else np.inf
    scale = max(float(np.abs(want[np.isfinite(want)]).max(initial=0)), 1e-30)
    same = (want == got) | (np.isnan(want) & np.isnan(got))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0, np.abs(want.astype(np.float64) - got.astype(np.float64)))
    return float(np.nan_to_num(gap, nan=np.inf).max(initial=0)) / scale


def compile_model(path, folder, *flags):
    """(artifact or None, seconds, MB at the peak of the compiler's largest process, first line of its words)"""
    output = folder / (path.stem + ".so")
    start = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = mcc(path, "-o", output, *flags, timeout=600)
    seconds = time.monotonic() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    text = f"exit {done.returncode}: {(done.stderr.splitlines() or [''])[0][:150]}"
    return output if done.returncode == 0 else None, seconds, max(peak, before) / 1024, text


def feed(rng, info, n):
    shape = [n if not isinstance(d, int) else d for d in info.shape]
    if "int" in info.type:
        return rng.integers(0, 30000, shape).astype(np.int64)
    return rng.standard_normal(shape).astype(np.float32)


def check_net(name, path, folder):
    artifact, seconds, _, text = compile_model(path, folder)
    if not artifact:
        return line(name, False, text)
    reference, rng, worst = session(path), np.random.default_rng(1), 0.0
    sizes = (1,) if name.endswith("_static") else (1, 2, 5)
    with Artifact(artifact) as a:
        for n in sizes:
            x = feed(rng, reference.get_inputs()[0], n)
            for want, got in zip(reference.run(None, {reference.get_inputs()[0].name: x}), a.run([x])):
                worst = max(worst, distance(want, got))
    weights = path.stat().st_size
    line(name, worst <= TOLERANCE, f"compiled in {seconds:6.2f} s, .so {artifact.stat().st_size / 1e6:7.2f} MB of "
         f"{weights / 1e6:7.2f} MB, N = {', '.join(map(str, sizes))}: error {worst:.1e} of the scale")
    artifact.unlink()


def check_light(folder):
    for name, case in suite.cases().items():
        if not name.startswith("real/"):
            continue
        artifact, seconds, _, text = compile_model(case.model, folder)
        if not artifact:
            line(name, False, text)
            continue
        feeds, expected = suite.inputs_and_outputs(case)
        with Artifact(artifact) as a:
            different = suite.differs(expected[0], a.run(feeds)[0], case)
        line(name, not different, f"compiled in {seconds:6.2f} s, .so {artifact.stat().st_size / 1e3:7.1f} kB  {different or ''}")
        artifact.unlink()


def linear(path, n):
    rng = np.random.default_rng(0)
    return save(path, [helper.make_node("MatMul", ["x", "w"], ["h"], "linear"), helper.make_node("Add", ["h", "b"], ["y"], "bias")],
                [value("x", [n, 56, 56, 128])], [value("y", [n, 56, 56, 512])],
                {"w": rng.standard_normal((128, 512)).astype(np.float32), "b": rng.standard_normal(512).astype(np.float32)})


def check_sizes(folder):
    sizes = []
    for n in (1, 2, 16, 64):
        artifact, _, _, text = compile_model(linear(folder / f"linear{n}.onnx", n), folder)
        if not artifact:
            return line("Linear(128,512)", False, text)
        sizes.append(artifact.stat().st_size)
    line("Linear(128,512)", max(sizes) <= 323000 and max(sizes) - min(sizes) < 4096, f"bytes for N = 1, 2, 16, 64: {sizes}")
    rng = np.random.default_rng(0)
    w = rng.standard_normal((256, 256)).astype(np.float32)
    for name, tensors in (("one initializer, 8 users", {"w": w}), ("8 equal initializers", {f"w{i}": w for i in range(8)})):
        nodes = [helper.make_node("MatMul", [f"h{i}", "w" if "w" in tensors else f"w{i}"], [f"h{i + 1}"]) for i in range(8)]
        path = save(folder / "dedup.onnx", nodes, [value("h0", [1, 256])], [value("h8", [1, 256])], tensors)
        artifact, _, _, text = compile_model(path, folder)
        size = artifact.stat().st_size if artifact else 0
        line(f"dedup: {name}", bool(artifact) and size < w.nbytes + 250000, f"{size} bytes, weights {w.nbytes}" if artifact else text)


def check_language(folder):
    """The small language models beside the project, where they are."""
    place = SHARED / "llm/models"
    if place.exists():
        llm.check(place, folder, line)
    else:
        print(f"skip llm: {place} is not there")


def check_collections(names, flags):
    """The models and the bad models beside the project, where they are."""
    for name, check, place in (("models", "collection.py", SHARED / "models"),
                               ("hostile", "hostile.py", SHARED / "hostile/badmodels.py")):
        if names and name not in names:
            continue
        if not place.exists():
            print(f"skip {name}: {place} is not there")
            continue
        # a process of its own for each: what this one has in memory would count as the compiler's
        done = subprocess.run([sys.executable, HERE / check, place, *(flags if name == "models" else ())])
        if done.returncode:
            failures.append(name)


def torch_python(name, modules):
    """TORCH, or python3, where it has the modules; else None after a line that says so."""
    python = os.environ.get("TORCH") or "python3"
    if subprocess.run([python, "-c", "import " + ", ".join(modules)], capture_output=True).returncode == 0:
        return python
    print(f"skip {name}: {python} lacks one of {', '.join(modules)} (TORCH=a Python that has them)")
    return None


def check_calls(n, seed):
    """Drawn calls of PyTorch's operators beside eager PyTorch."""
    python = torch_python("aten", ("torch", "ml_dtypes"))
    if python:
        done = subprocess.run([python, "-m", "pt2.fuzz", str(n), str(seed)], env={**os.environ, "PYTHONPATH": str(HERE.parent)}, capture_output=True, text=True)
        line("aten", done.returncode == 0, (done.stdout.splitlines() or done.stderr.splitlines() or [""])[-1])


def check_attention():
    """Small transformers, exported and compared."""
    python = torch_python("attention", ("torch", "transformers", "onnxscript"))
    if python and subprocess.run([python, HERE / "attention.py"]).returncode:
        failures.append("attention")


def export_missing(folder, nets):
    """The networks that are there after exporting those that were not; the others are skipped with a word."""
    missing = [n for n in nets if not (folder / f"{n}.onnx").exists()]
    if missing:
        torch = subprocess.run(["/usr/bin/python3", "-c", "import torch, torchvision"], capture_output=True)
        if torch.returncode == 0:
            subprocess.run(["/usr/bin/python3", HERE / "export.py", folder, *missing], check=True)
        else:
            print(f"skip {', '.join(missing)}: no python3-torch and python3-torchvision (make deps-bench)")
    return [n for n in nets if (folder / f"{n}.onnx").exists()]


def main():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    names = sys.argv[1:]
    folder = pathlib.Path(os.environ.get("MCC_NETS", BUILD / "nets"))
    nets = export_missing(folder, [n for n in NETS if not names or n in names])
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        if not names or "digits" in names:
            check_net("digits", DIGITS, scratch)
        for name in nets:
            check_net(name, folder / f"{name}.onnx", scratch)
        if not names or "sizes" in names:
            check_sizes(scratch)
        if not names or "light" in names:
            check_light(scratch)
        if not names or "aten" in names:
            check_calls(200, 1)
        packages.check(names, BUILD / "packages", scratch, sys.modules[__name__])
        if not names or "llm" in names:
            check_language(scratch)
    if not names or "attention" in names:
        check_attention()
    check_collections(names, FLAGS)
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

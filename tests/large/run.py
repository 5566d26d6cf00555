#!/usr/bin/env python3
"""Networks past 2 GiB and past 4 GiB of weights, and ConvNeXt-base: compiled, loaded, run, the first and the last rows
of every tensor compared; memory and sizes measured.

usage: run.py [NAME...]        names: 2g 4g pt2 convnext_base; needs room for three times the weights on the disk and, for
                               convnext_base, Debian's python3-torch and python3-torchvision (make deps-bench)

The weights are external data made here, every element a function of its tensor and its place, so that no two tensors
are equal (equal ones would be stored once) and any element can be checked without reading the file again.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

import numpy as np
import onnx
from onnx import TensorProto, helper

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from pt2.writer import Program, meta  # noqa: E402
from support import memory  # noqa: E402
from support.tool import BUILD, MCC, value  # noqa: E402

GIB = 1 << 30
ROWS, WIDTH = 1 << 17, 1 << 10           # a table: 512 MiB
DEEP, WIDE = 1 << 15, 1 << 12            # the factor of the product: 512 MiB
CASES = {"2g": 4, "4g": 8, "pt2": 8}     # tables, beside the product's factor
SLACK = 250_000_000                      # peak memory beyond 1.2 x weights
failures = []


def line(name, ok, text):
    print(f"{'ok  ' if ok else 'FAIL'} {name:22} {text}", flush=True)
    if not ok:
        failures.append(name)


def elements(tensor, start, count):
    """f32[count]: elements start, start + 1 … of a tensor, 24 bits of a multiplicative hash each."""
    at = np.arange(start, start + count, dtype=np.uint64)
    mixed = (at + np.uint64((tensor + 1) * 0x9E3779B97F4A7C15 % (1 << 64))) * np.uint64(0xD1342543DE82EF95)
    return (mixed >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)


def row(tensor, index, width):
    return elements(tensor, index * width, width)


def external(name, shape, location, offset):
    t = TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    size = 4 * int(np.prod(shape, dtype=np.int64))
    for key, text in (("location", location), ("offset", offset), ("length", size)):
        entry = t.external_data.add()
        entry.key, entry.value = key, str(text)
    return t, size


def build(folder, tables):
    """(model's path, bytes of weights): rows looked up in every table, and x f32[n, DEEP] times the last tensor."""
    tensors, nodes, outputs, offset = [], [], [], 0
    with open(folder / "weights.bin", "wb") as data:
        for k in range(tables + 1):
            rows, width = (ROWS, WIDTH) if k < tables else (DEEP, WIDE)
            t, size = external(f"w{k}", [rows, width], "weights.bin", offset)
            tensors.append(t)
            offset += size
            step = 1 << 22
            for start in range(0, rows * width, step):
                data.write(elements(k, start, min(step, rows * width - start)).tobytes())
            nodes.append(helper.make_node("Gather", [f"w{k}", "rows"], [f"y{k}"], f"look{k}", axis=0) if k < tables else
                         helper.make_node("MatMul", ["x", f"w{k}"], [f"y{k}"], "product"))
            outputs.append(value(f"y{k}", ["r" if k < tables else "n", width]))
    inputs = [value("rows", ["r"], TensorProto.INT64), value("x", ["n", DEEP])]
    graph = helper.make_graph(nodes, "large", inputs, outputs, tensors)
    path = folder / "large.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path, offset


def build_pt2(folder, tables):
    """The same as a .pt2, whose archive needs ZIP64."""
    program, size = Program(), 0
    n = [program.symbol(s, 1, 1 << 20) for s in ("s0", "s1")]
    rows, x = program.input("rows", np.dtype("int64"), (n[0],)), program.input("x", np.dtype("float32"), (n[1], DEEP))
    shapes = [[ROWS, WIDTH]] * tables + [[DEEP, WIDE]]
    for k, shape in enumerate(shapes):
        w = program.parameter(f"w{k}", f"weight_{k}", meta("float32", shape))
        args = ("index_select.default", [w, 0, rows]) if k < tables else ("mm.default", [x, w])
        program.output(program.node(f"aten.{args[0]}", args[1], [(f"y{k}", np.dtype("float32"), (n[k == tables], shape[1]))]))
    path = folder / "large.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in program.records_of({}).items():
            archive.writestr(f"large/{name}", data)
        for k, shape in enumerate(shapes):
            with archive.open(f"large/data/weights/weight_{k}", "w", force_zip64=True) as out:
                for start in range(0, shape[0] * shape[1], 1 << 22):
                    size += out.write(elements(k, start, 1 << 22).tobytes())
    return path, size


def watched(command):
    """(exit code, seconds, largest sum of anonymous memory over the family in bytes, its words)

    Mapped files are the page cache's, which the system takes back; what the compiler itself holds is anonymous.
    """
    start = time.monotonic()
    process = subprocess.Popen([str(w) for w in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak = [0]

    def watch():
        while process.poll() is None:
            peak[0] = max(peak[0], memory.of_family(process.pid, "RssAnon"))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, err = process.communicate(timeout=3600)
    watcher.join()
    return process.returncode, time.monotonic() - start, peak[0], out + err


def use(so, tables):
    """Runs in a process of its own: opens, runs twice, checks, prints its memory."""
    from support.artifact import Artifact
    before = memory.field("self", "RssAnon")
    with Artifact(so, threads=1) as a:
        opened = memory.field("self", "RssAnon") - before
        rows = np.array([0, ROWS - 1, ROWS // 2], np.int64)
        x = np.zeros((2, DEEP), np.float32)
        x[0, 0] = x[1, DEEP - 1] = 1
        got = a.run([rows, x])
        for k in range(tables):
            for i, r in enumerate(rows):
                assert (got[k][i] == row(k, int(r), WIDTH)).all(), f"tensor {k}, row {r}"
        assert (got[tables][0] == row(tables, 0, WIDE)).all() and (got[tables][1] == row(tables, DEEP - 1, WIDE)).all()
        print(f"{opened / 1e6:.0f} MB at open, {(memory.field('self', 'RssAnon') - before) / 1e6:.0f} MB after a run (mapped weights apart)")
        assert opened < 64_000_000


def large(name, folder):
    tables = CASES[name]
    model, size = (build_pt2 if name == "pt2" else build)(folder, tables)
    for kind, flags in (("embedded", ()), ("sidecar", ("--weights=sidecar",))):
        so = folder / kind / "large.so"
        so.parent.mkdir()
        code, seconds, peak, words = watched([MCC, model, "-o", so, *flags])
        if code != 0:
            line(f"{name} {kind}", False, f"exit {code}: {words[:200]}")
            continue
        total = sum(f.stat().st_size for f in so.parent.iterdir())
        ok = peak <= 1.2 * size + SLACK and total <= 1.02 * size + 3 * 250_000
        code, _, _, words = watched([sys.executable, __file__, "--use", so, str(tables)])
        line(f"{name} {kind}", ok and code == 0, f"{size / GIB:.2f} GiB of weights, {total - size:+d} bytes beside them, {seconds:.1f} s, "
             f"{peak / 1e6:.0f} MB held at the peak; {words.strip().splitlines()[-1] if words.strip() else code}")
        shutil.rmtree(so.parent)


def convnext_base(folder):
    done = subprocess.run(["/usr/bin/python3", HERE.parent / "real/export.py", folder, "convnext_base"], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"skip convnext_base: no export ({(done.stderr.splitlines() or ['?'])[-1][:100]})")
        return
    import onnxruntime
    model = folder / "convnext_base.onnx"
    code, seconds, peak, words = watched([MCC, model, "-o", folder / "net.so"])
    if code != 0:
        line("convnext_base", False, words[:200])
        return
    weights = sum(4 * int(np.prod(t.dims, dtype=np.int64)) for t in onnx.load(model).graph.initializer)
    total = (folder / "net.so").stat().st_size
    from support.artifact import Artifact
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    worst = 0.0
    with Artifact(folder / "net.so") as a:
        for n in (1, 2):
            x = np.random.default_rng(n).standard_normal((n, 3, 224, 224)).astype(np.float32)
            want, got = session.run(None, {session.get_inputs()[0].name: x})[0], a.run([x])[0]
            error = float(np.abs(got - want).max() / np.abs(want).max()) if got.shape == want.shape else np.inf
            worst = max(worst, error if np.isfinite(error) else np.inf)
    line("convnext_base", worst <= 1e-3 and total <= 1.02 * 354_400_000 and peak <= 1.2 * weights + SLACK,
         f"{total} bytes, {seconds:.1f} s, {peak / 1e6:.0f} MB held at the peak, error {worst:.1e} of the scale at N = 1, 2")


def main():
    if sys.argv[1:2] == ["--use"]:
        use(sys.argv[2], int(sys.argv[3]))
        return 0
    for name in sys.argv[1:] or [*CASES, "convnext_base"]:
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            folder = pathlib.Path(folder)
            need = 3.2 * (CASES.get(name, 1) + 1) * GIB / 2
            if shutil.disk_usage(folder).free < need:
                print(f"skip {name}: less than {need / 1e9:.0f} GB free on the disk")
            elif name in CASES:
                large(name, folder)
            else:
                convnext_base(folder)
    print(f"{len(failures)} failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())

"""Smaller networks with the same verdict: `mcc reduce`, and, where mcc does not legalize the network, the same in Python."""
import os
import pathlib
import select
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import helper

from fuzz.ort.eager import Carried, sequence_info
from fuzz.ort.elements import OF_ELEM, TEXT, carrier, is_float
from fuzz.ort.judge import differs, execute, judge, made_of, ports_of
from fuzz.ort.network import used_names
from support.tool import MCC

SECONDS = 120
ASK = 'echo "$1" >"$2/ask"; read -r answer <"$2/answer"; exit "$answer"'


def feeds_of(model, values):
    """Elements for the inputs of a part of a network: those that the whole one had, or others where the sizes differ."""
    rng = np.random.default_rng(0)
    given = {t.name for t in model.graph.initializer}
    feeds = {}
    for port in model.graph.input:
        if port.name in given:
            continue
        t = port.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(t.elem_type)
        known = values.get(port.name.removesuffix("_c"), [None])[0]
        dims = [d.dim_value if d.HasField("dim_value") else None for d in t.shape.dim]
        if isinstance(known, np.ndarray) and known.ndim == len(dims) and all(d in (None, n) for d, n in zip(dims, known.shape)):
            feeds[port.name] = known.astype(dtype)
        else:
            shape = [2 if d is None else d for d in dims]
            feeds[port.name] = np.full(shape, "a", object) if dtype == TEXT else (
                rng.standard_normal(shape) if is_float(dtype) else rng.integers(0, 2, shape)).astype(dtype)
    return feeds


def same(model, values, kind, folder, flags):
    """Does this network get a verdict of this kind? In a process of its own: it may end it. Numbers that are drawn are no results, nor
    are those that ONNX Runtime and numpy do not share."""
    ports = {o.name for o in model.graph.output}
    types = {o.type.tensor_type.elem_type for o in model.graph.output}
    if any(t in OF_ELEM and carrier(OF_ELEM[t]) != OF_ELEM[t] for t in types):
        return False
    if any(n.op_type.startswith("Random") and ports & {*n.output, *(f"{o}_c" for o in n.output)} for n in model.graph.node):
        return False
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status == 0 or kind == "died" and status < 0
    code = 1
    try:
        verdict = judge(model, feeds_of(model, values), values, folder, flags)
        code = int(verdict.kind != kind)
    finally:
        os._exit(code)


def by_node(model, values, kind, folder, flags):
    """The first node alone whose results are apart where all results are outputs, or None where that says nothing."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    made_by = {o: i for i, n in enumerate(model.graph.node) for o in n.output if isinstance(values.get(o, [None])[0], np.ndarray)}
    have = set(ports_of(wide))
    wide.graph.output.extend(helper.make_empty_tensor_value_info(o) for o in made_by if o not in have)
    made, _ = made_of(wide, folder, flags)
    got = made and execute(made, feeds_of(wide, values), ports_of(wide))[0]
    first = next((i for o, i in made_by.items() if got and differs(values[o][0], got[o], *values[o][1:])), None)
    if first is None:
        return None
    smaller = part(model, [i == first or n.op_type == "Constant" for i, n in enumerate(model.graph.node)], values)
    return smaller if smaller and same(smaller, values, kind, folder, flags) else None


def by_mcc(path, values, kind, folder, flags):
    """What `mcc reduce` leaves of the network at path, or None. It asks through two pipes."""
    out = pathlib.Path(folder) / "reduced.onnx"
    for name in ("ask", "answer"):
        os.mkfifo(pathlib.Path(folder) / name)
    ask, answer = (os.open(pathlib.Path(folder) / name, os.O_RDWR) for name in ("ask", "answer"))
    child = subprocess.Popen([MCC, "reduce", path, "-q", "-o", out, "--", "sh", "-c", ASK, "ask", "{}", folder],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while child.poll() is None:
            if select.select([ask], [], [], 0.05)[0]:
                candidate = os.read(ask, 4096).decode().strip()
                os.write(answer, b"0\n" if same(onnx.load(candidate), values, kind, folder, flags) else b"1\n")
    finally:
        child.kill()
        child.wait()
        os.close(ask)
        os.close(answer)
    return onnx.load(out) if child.returncode == 0 and out.exists() else None


def part(model, keep, values):
    """A network of some nodes of another: what they read and do not make becomes an input, with its known type."""
    graph = Carried()
    nodes = [n for n, k in zip(model.graph.node, keep) if k]
    tensors = {t.name: t for t in model.graph.initializer}
    made = {o for n in nodes for o in n.output if o}
    types = {p.name: p for p in model.graph.input}
    for name in sorted(used_names(nodes) - made - {""}):
        if name in tensors:
            graph.tensors.append(tensors[name])
        elif name in types:
            graph.inputs.append(types[name])
        elif name in values and isinstance(values[name][0], np.ndarray):
            graph.input(name, values[name][0].dtype, list(values[name][0].shape))
        elif name in values and isinstance(values[name][0], list):
            return None
    graph.nodes += nodes
    used = used_names(nodes)
    for name in sorted(made - used):
        a = values.get(name, [None])[0]
        if isinstance(a, list):
            graph.outputs.append(sequence_info(name, a))
        elif a is not None:
            graph.output(name, a.dtype)
    return graph.model(model.opset_import[0].version) if graph.outputs else None


def by_hand(model, values, kind, folder, flags):
    """The nodes without which the verdict is another."""
    keep = [True] * len(model.graph.node)
    size = len(keep) // 2
    while size:
        dropped = False
        for start in range(0, len(keep), size):
            trial = [k and not start <= i < start + size for i, k in enumerate(keep)]
            if trial == keep or not any(trial):
                continue
            smaller = part(model, trial, values)
            if smaller and same(smaller, values, kind, folder, flags):
                keep, dropped = trial, True
        size = size if dropped and size == 1 else size // 2
    return part(model, keep, values) or model


def reduce(model, values, kind, flags):
    """(a smaller network, its feeds) with the same kind of verdict; the network itself where there is none."""
    with tempfile.TemporaryDirectory(prefix="mcc-fuzz-") as folder:
        path = pathlib.Path(folder) / "whole.onnx"
        onnx.save(model, path)
        smaller = kind == "ours" and by_node(model, values, kind, folder, flags)
        smaller = smaller or by_mcc(path, values, kind, folder, flags) or by_hand(model, values, kind, folder, flags)
    return smaller, feeds_of(smaller, values)

"""Running mcc from tests, and small models to give it."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from support import agree

os.environ.setdefault("MCC_CACHE", "off")   # tests compile anew
MCC = os.environ.get("MCC", "build/mcc")
BUILD = pathlib.Path(os.environ.get("MCC_BUILD", "build"))
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DIGITS = ROOT / "examples/digits/digits.onnx"


def mcc(*args, timeout=120, **more):
    """Runs the command; the result has returncode, stdout, stderr. What compiles is checked too: both must agree."""
    done = subprocess.run([MCC, *map(str, args)], capture_output=True, text=True, errors="replace", timeout=timeout, **more)
    text = agree.disagreement(MCC, args, done.returncode, done.stderr, timeout=timeout, **more) if agree.wanted() else ""
    assert not text, text
    return done


def python_with(module):
    """A Python that has it: ours, Debian's, that of MCC_TORCH_PYTHON; None: there is none."""
    pythons = [p for p in (sys.executable, "/usr/bin/python3", os.environ.get("MCC_TORCH_PYTHON", "")) if shutil.which(p)]
    return next((p for p in pythons if subprocess.run([p, "-c", f"import {module}"], capture_output=True).returncode == 0), None)


def compile_to(path, model, *options):
    done = mcc(*options, model, "-o", path)
    assert done.returncode == 0, done.stderr
    return path


def result(command, *args, **more):
    """What a command found, by --json (docs/json.md); it has to succeed."""
    done = mcc(command, "--json", *args, **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def remarks(kind, *args):
    """The remarks that -Rpass=, -Rpass-missed= or -Rpass-analysis= asks for, as -fdiagnostics-format=json writes them."""
    done = mcc(*args, kind, "-fdiagnostics-format=json")
    assert done.returncode == 0, done.stderr
    return [row for row in map(json.loads, done.stderr.splitlines()) if "-R" + row.get("flag", "").split("=")[0] == kind.split("=")[0]]


def value(name, shape, elem=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, elem, shape)


def save(path, nodes, inputs, outputs, constants=None, opset=17, **more):
    """Writes a model; constants: {name: array}."""
    tensors = [numpy_helper.from_array(np.asarray(a), k) for k, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, tensors)
    domains = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in sorted({n.domain for n in nodes} - {""}))]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), path, **more)
    return path


def dense(path, **more):
    """x[n,4] -> relu(x w + b)[n,3]; symbolic n."""
    rng = np.random.default_rng(0)
    return save(path, [helper.make_node("MatMul", ["x", "w"], ["h"], "dense"), helper.make_node("Add", ["h", "b"], ["s"], "bias"),
                       helper.make_node("Relu", ["s"], ["y"], "relu")], [value("x", ["n", 4])], [value("y", ["n", 3])],
                {"w": rng.standard_normal((4, 3)).astype(np.float32), "b": rng.standard_normal(3).astype(np.float32)}, **more)

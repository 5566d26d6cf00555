"""docs/add-an-operator.md, followed literally: its steps are applied to a copy of the sources, which is built and used."""
import subprocess

import numpy as np
import onnx
from onnx import helper

from support.artifact import Artifact
from support.steps import follow
from support.tool import value


def test_steps(tmp_path):
    cases = ("build/tests/ir/test_eval_ops", "build/tests/fuzz/test_scalars")
    folder = follow("add-an-operator.md", tmp_path, 6, more=("tests/ir", "tests/fuzz", "tests/interp", "tests/text"), targets=cases, objects=False)
    mcc = folder / "build/mcc"
    for case in cases:
        subprocess.run([folder / case], check=True, capture_output=True)

    node = helper.make_node("BiasAdd", ["x", "bias", "skip"], ["y"], "sum", domain="com.microsoft")
    graph = helper.make_graph([node], "g", [value("x", ["n", 3]), value("bias", [3]), value("skip", ["n", 3])],
                              [value("y", ["n", 3])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    subprocess.run([mcc, tmp_path / "m.onnx", "-o", tmp_path / "m.so"], check=True)
    assert "BiasAdd" in subprocess.run([mcc, "--list-ops"], capture_output=True, text=True, check=True).stdout
    rng = np.random.default_rng(0)
    x, bias, skip = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3), (3,), (2, 3)))
    with Artifact(tmp_path / "m.so") as a:
        np.testing.assert_allclose(a.run([x, bias, skip])[0], x + bias + skip, rtol=1e-6)

"""The dumps in docs/kernels.md are what mcc prints for the convolution that the page follows."""
import re
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from support.tool import ROOT, mcc

CPU = "-mcpu=x86-64-v3"
STAGES = ("import", "legalize", "plan", "schedule", "emit")


def shown():
    page = (ROOT / "docs/kernels.md").read_text()
    return re.findall(r"```\n(.*?)```", page[page.index("## One convolution"):page.index("## Fusion by demand")], re.S)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path, rng = tmp_path_factory.mktemp("page") / "net.onnx", np.random.default_rng(0)
    w, b = rng.standard_normal((32, 16, 1, 1)).astype(np.float32), rng.standard_normal(32).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[0] * 4, strides=[1, 1]), helper.make_node("Relu", ["c"], ["y"], "relu")]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [1, 16, 14, 14]), ("y", [1, 32, 14, 14]))]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def plain(text):
    return " ".join(text.split())


def instructions(text):
    """What is executed, without addresses and registers: which ones LLVM takes is not what the page is about."""
    return re.findall(r"^\s*[0-9a-f]+:\s+(\w+)", text, re.M)


def inside(few, many):
    """Do the few stand among the many in their order?"""
    rest = iter(many)
    return all(one in rest for one in few)


def test_assembly(model, tmp_path):
    assert mcc(model, CPU, "-o", tmp_path / "a.so").returncode == 0
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", tmp_path / "a.so"], capture_output=True, text=True, check=True).stdout
    kernel = text[text.index("<k0_v3.conv_>:"):]
    assert len(instructions(shown()[-1])) == 9
    assert inside(instructions(shown()[-1]), instructions(kernel[:kernel.index("\n\n")]))


@pytest.mark.parametrize("number, stage", list(enumerate(STAGES)))
def test_dump(number, stage, model):
    text = plain(mcc(model, CPU, f"-stop-after={stage}").stdout)
    assert len(shown()) == len(STAGES) + 1
    for line in shown()[number].splitlines():
        for part in line.split("..."):
            assert plain(part).strip(", ") in text, line

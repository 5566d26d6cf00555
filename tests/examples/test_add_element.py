"""docs/add-an-element-type.md, followed literally: constants of the type that it adds; and what it lists is what the f8 types have."""
import re
import subprocess

import ml_dtypes
import numpy as np
from onnx import helper

from support import cpu
from support.artifact import Artifact
from support.steps import follow
from support.tool import ROOT, save, value

PAGE = (ROOT / "docs/add-an-element-type.md").read_text()
FOLDERS = ("cli", "codegen", "frontend", "ir", "passes", "runtime")
# What chooses the type rather than knows it, what widens one sooner than the others, and what is written by a script of the list.
USERS = {"passes/legalize/nn/grouped_attention.c", "passes/legalize/quant/experts.c", "codegen/llvm/llvm_float.c", "frontend/onnx/schemas.def"}
OF_WEIGHTS = {"passes/module/weights.def", "cli/library/options/options.def"}


def test_the_places():
    """The files that the page names are those that name f8e4m3fn and f8e5m2, the two types that the others are like."""
    listed = {p for p in re.findall(r"`([\w/]+\.(?:c|h|def|py))`", PAGE) if p.startswith(FOLDERS)}
    of_products = {"ir/target/target.h", "passes/module/analysis.c", "codegen/llvm/llvm_dot.c"}  # of CPUs that multiply it
    for name in ("e4m3fn", "e5m2"):
        word, found = re.compile(rf"(?:\b|_|DL)f(?:loat)?8_?(?:{name}|{name.removesuffix('fn')})\b", re.I), set()
        for folder in FOLDERS:
            found |= {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*")
                      if p.suffix in (".c", ".h", ".def", ".py") and word.search(re.sub(r"/\*.*?\*/", "", p.read_text(errors="replace"), flags=re.S))}
        known = found - USERS - OF_WEIGHTS - {"passes/graph/narrow_constants.c"}
        assert known == listed - OF_WEIGHTS - of_products - {"cli/library/compile/header.c"}, name


def test_steps(tmp_path):
    mcc = follow("add-an-element-type.md", tmp_path, 9) / "build/mcc"
    rng = np.random.default_rng(5)
    w, x = rng.standard_normal((70, 40)).astype(np.float32), rng.standard_normal((9, 70)).astype(np.float32)
    model = save(tmp_path / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [9, 70])], [value("y", [9, 40])], {"w": w})
    s = np.abs(w).max(axis=0, keepdims=True) / np.float32(240)
    want = x.astype(np.float64) @ (s * (w / s).astype(ml_dtypes.float8_e4m3).astype(np.float32)).astype(np.float64)
    assert np.abs(want - x.astype(np.float64) @ w).max() > 1e-3 * np.abs(want).max()
    text = subprocess.run([mcc, model, "--weights-type=f8e4m3", "-stop-after=fuse", "-o", "-"], capture_output=True, text=True, check=True).stdout
    assert re.search(r": f8e4m3\[70, 40\] = convert\(", text), text
    for level in cpu.levels():
        subprocess.run([mcc, model, "--weights-type=f8e4m3", level, "-o", tmp_path / "net.so"], check=True)
        with Artifact(tmp_path / "net.so") as a:
            assert np.abs(a.run([x])[0] - want).max() < 3e-6 * np.abs(want).max(), level

"""examples/export as a user runs it: exports with PyTorch, compiles, calls from C and Python, tries every refusal and its cure.
Skipped where no Python with torch is found (make deps-bench installs Debian's)."""
import os
import re
import shutil
import subprocess

import pytest

from support.tool import MCC, ROOT, python_with


PYTHON, EXPORT_PYTHON = python_with("torch.onnx"), python_with("torch.export._draft_export")    # of torch.export.save's present form
needs_torch = pytest.mark.skipif(not PYTHON, reason="no Python with torch (make deps-bench)")
needs_export = pytest.mark.skipif(not EXPORT_PYTHON, reason="no Python with torch (make deps-bench)")


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "export"
    shutil.copytree(ROOT / "examples/export", folder, ignore=shutil.ignore_patterns("build", "__pycache__"))
    return folder


def make(folder, *args, form="onnx"):
    python = PYTHON if form == "onnx" else EXPORT_PYTHON
    settings = ["BUILD=build", f"FORM={form}", f"PYTHON={python}", f"MCC={os.path.abspath(MCC)}", f"RUNTIME={ROOT}/runtime"]
    done = subprocess.run(["make", *settings, *args], cwd=folder,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("form", [pytest.param("pt2", marks=needs_export), pytest.param("onnx", marks=needs_torch)])
def test_from_module_to_program(example, form):
    make(example, "clean")
    make(example, form=form)
    text = make(example, "compare", form=form)
    assert len(re.findall(r"^n=\d+ h=\d+ w=\d+: largest difference \d\.\de-0[5-9]$", text, re.M)) == 4
    assert f"h=30: input 'image': dim 2 is 30, but '{'h' if form == 'onnx' else 'image_d2'}' must be a multiple of 4" in text
    run = lambda *args: subprocess.run(["build/segment", "build/segment.so", *args], cwd=example, capture_output=True, text=True)
    rows = run("64").stdout.splitlines()
    assert [len(r) for r in rows[:16]] == [32] * 16 and len(rows) == 21
    assert abs(sum(float(r.split()[-1]) for r in rows[16:]) - 1) < 0.01
    assert run("30").returncode == 1 and "multiple of 4" in run("30").stderr


@needs_torch
def test_every_refusal_has_a_cure(example):
    text = make(example, "refusals")
    page = (ROOT / "docs/from-pytorch.md").read_text()
    names = re.findall(r"^(\S.*)\n    (?:exporter|mcc|nobody): .+\n    instead: .*same results as PyTorch$", text, re.M)
    assert len(names) == 9 and all(f"| {name} |" in page for name in names)


def test_page_shows_the_example():
    """The page quotes the export call and the configuration as they are in the example."""
    page = (ROOT / "docs/from-pytorch.md").read_text()
    source = (ROOT / "examples/export/segment.py").read_text()
    call = re.search(r"    torch\.onnx\.export\(.*?\n    +dynamic_axes=[^\n]*", source, re.S)[0]
    plain = lambda text: [" ".join(line.split("#")[0].split()) for line in text.splitlines()]
    lines = plain(page)
    assert all(line in lines for line in plain(call) if line), call
    assert (ROOT / "examples/export/segment.yaml").read_text().splitlines()[-1] in page

"""The commands that README.md and docs/ show, pasted into a shell beside the files that they speak of."""
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from onnx import helper

from support.tool import MCC, ROOT, dense, save, value

PAGES = ["README.md", "docs/commands.md", "docs/from-pytorch.md", "docs/using.md"]
OTHERWISE = {"reduce": (2, "does not end with status 0"),           # the network is right, so there is nothing to reduce to
             ".svg": (3, "Graphviz")}                               # where that is not installed


def commands(page):
    """Indented lines that start with mcc, and `mcc ...` within sentences that names a file; none with placeholders in capitals."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
    lines = re.findall(r"^    ((?:build/)?mcc .*)$", text, re.M) + re.findall(r"`(mcc [^`\n]*\.(?:onnx|so)\b[^`\n]*|mcc --[^`\n]*)`", text)
    return [line.split("  #")[0] for line in lines if not re.search(r"[A-Z]{4,}", line)]


def image(path):
    return save(path, [helper.make_node("GlobalAveragePool", ["x"], ["y"])], [value("x", ["n", 3, 224, 224])], [value("y", ["n", 3, 1, 1])])


def cache(path):
    return save(path, [helper.make_node("Concat", ["past", "new"], ["present"], axis=2)],
                [value("past", [1, 3, "len", 64]), value("new", [1, 3, 1, 64])], [value("present", [1, 3, "all", 64])])


@pytest.fixture
def folder(tmp_path):
    for name in ("build", "bin"):
        (tmp_path / name).mkdir()
        os.symlink(os.path.abspath(MCC), tmp_path / name / "mcc")
    (tmp_path / "net.yaml").write_text("O: 2\n")
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    shutil.copy(ROOT / "tests/pt2/data/residual.pt2", tmp_path / "model.pt2")
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_commands(page, folder):
    found = commands(page)
    assert found, page
    env = dict(os.environ, PATH=f"{folder / 'bin'}:{os.environ['PATH']}")
    for command in found:
        (image if "224" in command else cache if "past:" in command else dense)(folder / "net.onnx")
        shutil.copy(folder / "net.onnx", folder / "model.onnx")
        done = subprocess.run(["sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True)
        allowed = [want for word, want in OTHERWISE.items() if word in command]
        fine = done.returncode == 0 or any(done.returncode == status and word in done.stderr for status, word in allowed)
        assert fine and "Sanitizer" not in done.stderr, f"{page}: {command}\n{done.stdout}{done.stderr}"


def test_the_picture_shows_the_results():
    """docs/ratios.svg was made of docs/ratios.json (make chart)."""
    results = json.loads((ROOT / "docs/ratios.json").read_text())
    picture = (ROOT / "docs/ratios.svg").read_text()
    for of in results.values():
        assert len(of["ms"]) >= 10
        for name, ms in of["ms"].items():
            assert name.replace("_x1_0", "") in picture and f">{ms['ort'] / ms['mcc']:.2f}<" in picture, name


def test_links():
    """Links between the pages lead to files that are there."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")]:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert "://" in link or (page.parent / link).exists(), f"{page.relative_to(ROOT)}: {link}"

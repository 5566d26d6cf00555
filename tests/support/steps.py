"""Pages that say how to add something, followed literally: their steps are applied to a copy of the sources, which is built."""
import re
import shutil
import subprocess

from support.tool import BUILD, ROOT

STEP = re.compile(r"^(?:Add to `([^`]+)` (?:before `([^`]+)`|at the end)|Create `([^`]+)`):\n\n```\w+\n(.*?)```", re.M | re.S)
COPY = re.compile(r"^Copy `([^`]+)` to `([^`]+)`", re.M)
PARTS = ("Makefile", "cli", "codegen", "frontend", "ir", "passes", "runtime")


def follow(page, to, n_steps, more=(), targets=(), objects=True):
    """Applies the n_steps steps of docs/PAGE to a copy of the sources in the folder `to`, builds the command, and returns the copy.
    A file that a page copies is one of its steps.
    more: folders and files that the copy needs beside those that the command is built from; targets: what is built beside it;
    objects: whether those of the build folder are worth copying, since the steps touch few files."""
    folder = to / "mcc"
    folder.mkdir()
    for name in (*PARTS, *more):
        part = ROOT / name
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if part.is_dir() else shutil.copy2)(part, folder / name)
    # Objects of the default build folder keep their times, so that only what the steps touch is compiled again.
    fresh = not objects or BUILD.resolve() != ROOT / "build"
    if not fresh:
        # Links stay links: Wine's folders lead to the home folder and to the root.
        left_out = shutil.ignore_patterns("venv", "tests", "nets", "same", "peers", "demo", "wine", "*.so", "mcc")
        shutil.copytree(BUILD, folder / "build", symlinks=True, ignore=left_out)
    text = (ROOT / "docs" / page).read_text()
    steps, copies = STEP.findall(text), COPY.findall(text)
    assert len(steps) + len(copies) == n_steps
    for source, created in copies:
        path = folder / created
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / source, path)
    for name, before, created, text in steps:
        path = folder / (name or created)
        if created:
            assert not path.exists()
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            continue
        old = path.read_text()
        assert not before or before in old
        path.write_text(old.replace(before, text + before, 1) if before else old + "\n" + text)
    subprocess.run(["make", "-j2", "build/mcc", *targets, *(["OPT=-O0"] if fresh else [])], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder

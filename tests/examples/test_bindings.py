"""The bindings in examples/rust and examples/go: built with the tree's files and with installed ones, run, and refused."""
import os
import shutil
import subprocess

import pytest

from support.tool import BUILD, DIGITS, ROOT, mcc

TOOLS = {"rust": "cargo", "go": "go"}


def works(language):
    """Is the toolchain there, and does it know this machine?"""
    return shutil.which(TOOLS[language]) and subprocess.run([TOOLS[language], "version" if language == "go" else "--version"],
                                                            capture_output=True).returncode == 0


def build(language, folder, source=None, **env):
    """The example's program, by its own Makefile, which also runs it."""
    words = [f"MCC_BUILD={os.path.abspath(BUILD)}", f"BUILD={folder}", f"DIGITS={DIGITS.parent}"]
    done = subprocess.run(["make", "-s", "run", *words], cwd=source or ROOT / "examples" / language,
                          capture_output=True, text=True, env=dict(os.environ, GOCACHE=str(folder / "cache"), GOFLAGS="-mod=mod", **env))
    assert done.returncode == 0, done.stderr
    assert "353 of 359 pictures right" in done.stdout and "picture" in done.stdout
    return folder / ("release/digits" if language == "rust" else "digits")


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    tree = tmp_path_factory.mktemp("installed")
    subprocess.run(["make", "-s", "-o", "all", "install", f"BUILD={BUILD}", f"DESTDIR={tree}", "PREFIX=/usr"], cwd=ROOT, check=True,
                   capture_output=True)
    return tree / "usr"


@pytest.mark.parametrize("language", TOOLS)
def test_binding(language, tmp_path, installed):
    if not works(language):
        pytest.skip(f"{TOOLS[language]} is not installed")
    program = build(language, tmp_path / "tree")
    share, include = installed / "share/mcc", installed / "include"
    shutil.copytree(ROOT / "examples" / language, tmp_path / "copied", ignore=shutil.ignore_patterns("build"))
    build(language, tmp_path / "installed", tmp_path / "copied", MCC_RUNTIME=str(share), MCC_INCLUDE=str(include), CGO_CFLAGS=f"-I{share} -I{include}")
    pictures = ROOT / "examples/digits/digits.test"

    def said(library, status):
        done = subprocess.run([program, library, pictures], capture_output=True, text=True)
        assert done.returncode == status, (done.returncode, done.stderr)
        return done.stderr
    assert "No such file" in said(tmp_path / "nosuch.so", 1)
    whole = (tmp_path / "tree/digits.so").read_bytes()
    (tmp_path / "cut.so").write_bytes(whole[:len(whole) // 2])
    assert "truncated" in said(tmp_path / "cut.so", 1)
    assert mcc(DIGITS, "--input=picture[n=1..3,1,8,8]", "-o", tmp_path / "few.so").returncode == 0
    assert "(-2)" in said(tmp_path / "few.so", 1), "359 pictures are more than 3: MCC_E_SHAPE"
    assert subprocess.run([program], capture_output=True).returncode == 2

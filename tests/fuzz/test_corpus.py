"""Fuzzing has something to begin with: corpus.py as the Makefile calls it."""
import os
import subprocess
import sys

import pytest

from support.tool import ROOT


@pytest.mark.parametrize("name", ["config", "npy", "so"])
def test_corpus(name, tmp_path):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([sys.executable, ROOT / "tests/fuzz/targets/corpus.py", name, tmp_path], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.iterdir())) >= 5

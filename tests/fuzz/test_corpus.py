"""Fuzzing has something to begin with: corpus.py as the Makefile calls it, jobs as mcc sends them to its workers."""
import os
import subprocess
import sys

import pytest

from fuzz.worker import COMPILE, LINK, Worker, frame, recorded
from support.tool import ROOT


@pytest.mark.parametrize("name", ["config", "npy", "so"])
def test_corpus(name, tmp_path):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([sys.executable, ROOT / "tests/fuzz/targets/corpus.py", name, tmp_path], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.iterdir())) >= 5


def test_jobs_of_workers(tmp_path):
    jobs = recorded(tmp_path)
    assert {head[1] for head, _ in jobs} == {COMPILE, LINK}
    for head, parts in jobs[:3]:
        worker = Worker()       # it ends behind a link
        assert worker.ask(frame(head, parts))[1] == 0, "not made"
        assert worker.end()[0] == 0

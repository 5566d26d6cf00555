"""Suite cases that legalize serves must stay right in the reference interpreter: as they are, and with every input
dim a symbol (passing.txt, passing_erased.txt; suite.py --write makes the lists)."""
import os
import pathlib

import pytest

from conformance import suite as cases
from legalize import suite

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(os.environ.get("MCC_BUILD", HERE.parent.parent / "build")) / "tests/legalize/test_legalize"


@pytest.mark.parametrize("name, erased", [("passing.txt", False), ("passing_erased.txt", True)])
def test_list(name, erased, tmp_path):
    wanted = (HERE / name).read_text().split()
    found, server, lost = cases.cases(), suite.Server(str(PROGRAM)), []
    for case in wanted:
        status, text = suite.judge(server, found[case], tmp_path if erased else None)
        if status != "passed":
            lost.append(f"{case}: {status} {text}")
    assert not lost, "\n".join(lost[:40])

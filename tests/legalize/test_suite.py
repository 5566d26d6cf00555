"""Suite cases that legalize serves must stay right in the reference interpreter: as they are, and with every input
dim a symbol (tests/conformance/passing.txt; suite.py --update writes it)."""
import os
import pathlib

import pytest

from conformance import suite as cases
from conformance.passing import passing
from legalize import suite

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(os.environ.get("MCC_BUILD", HERE.parent.parent / "build")) / "tests/legalize/test_legalize"


@pytest.mark.parametrize("way, erased", [("interpreted", False), ("interpreted-erased", True)])
def test_list(way, erased, tmp_path):
    wanted = passing(way)
    found, server, lost = cases.cases(), suite.Server(str(PROGRAM)), []
    for case in wanted:
        status, text = suite.judge(server, found[case], tmp_path if erased else None)
        if status != "passed":
            lost.append(f"{case}: {status} {text}")
    assert not lost, "\n".join(lost[:40])

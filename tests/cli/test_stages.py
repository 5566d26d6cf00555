"""The table of stages: its order in the documentation, what is left out, and that each prints a text that reads back."""
import concurrent.futures
import os
import re
import subprocess

from conformance import suite
from support.tool import BUILD, DIGITS, ROOT, mcc


def stages():
    return mcc("--list-stages").stdout.split()


def test_the_page_has_the_table():
    page = (ROOT / "docs/architecture.md").read_text()
    assert re.findall(r"^        \|  (\S+)", page, re.M) == stages()


def test_each_is_timed_and_printed_once(tmp_path):
    done = mcc(DIGITS, "--time-passes", "-print-after-all", "-verify-each", "-o", tmp_path / "d.so", "-march=x86-64-v3", "--precision=bf16",
               "--weights-type=i8")
    assert done.returncode == 0, done.stderr
    timed = re.findall(r"^(\S+) +[\d.]+ +\d+$", done.stderr, re.M)
    assert [name for name in timed if name != "total"] == stages()
    assert re.findall(r"^// after (\S+)$", done.stderr, re.M) == stages()


def test_what_is_left_out_says_so(tmp_path):
    done = mcc(DIGITS, "-O0", "-print-changed", "-o", tmp_path / "d.so", "-march=x86-64-v3")
    left = re.findall(r"^// after (\S+): left out$", done.stderr, re.M)
    assert left == ["push-concats", "tabulate", "fold-scales", "fold-factors", "sparsify", "hoist-slices", "find-attention",
                    "narrow-products", "narrow-constants", "pack-constants", "split-k", "copy-operands", "block-channels", "place-pieces"]
    assert mcc(DIGITS, "-O0", "-stop-after=copy-operands", "-o", "-").stdout == mcc(DIGITS, "-O0", "-stop-after=separate-results", "-o", "-").stdout


def read_back(models):
    """For each: its path, the class of the failure, the texts that were read back, what is wrong (tests/text)."""
    done = subprocess.run([BUILD / "tests/text/test_read_back", *models], capture_output=True, text=True, errors="replace", timeout=600)
    assert done.returncode == 0 and done.stderr == "", (models, done)
    return [line.split(maxsplit=3) for line in done.stdout.splitlines()]


def test_texts_of_the_suite_read_back():
    """After every stage; -verify-each finds nothing wrong besides."""
    models = [case.model for case in suite.cases().values()]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        rows = [row for some in pool.map(read_back, [models[i:i + 50] for i in range(0, len(models), 50)]) for row in some]
    assert len(rows) == len(models)
    done = [int(row[2]) for row in rows if row[1] == "0"]
    assert len(done) > 1800 and min(done) > 10

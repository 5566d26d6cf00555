"""The table of stages: its order in the documentation, what is left out, and that each prints a text that reads back."""
import concurrent.futures
import os
import re

from conformance import suite
from support.tool import DIGITS, ROOT, mcc


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
    assert left == ["push-concats", "fold-scales", "hoist-slices", "find-attention", "narrow-products", "narrow-constants",
                    "pack-constants", "split-k", "copy-operands", "block-channels", "place-pieces"]
    assert mcc(DIGITS, "-O0", "-stop-after=copy-operands", "-o", "-").stdout == mcc(DIGITS, "-O0", "-stop-after=separate-results", "-o", "-").stdout


def verified(model):
    """What is wrong after some pass: an invariant of the module (-verify-each), or a text that does not read back."""
    done = mcc(model, "-q", "-verify-each", "-stop-after=plan", "-o", "-")
    return f"{model}: {done.stderr}" if done.returncode not in (0, 1) else done.returncode


def test_modules_of_the_suite_read_back():
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = list(pool.map(verified, [case.model for case in suite.cases().values()]))
    assert [text for text in found if isinstance(text, str)] == []
    assert found.count(0) > 1800

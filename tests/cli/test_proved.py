"""--prove: an artifact is written only if all of it is proved, which it notes; a report has each kernel's certificate."""
import json
import struct

import pytest
from onnx import helper

from support import schema
from support.tool import DIGITS, ROOT, mcc, save, value

SCHEMA = json.loads((ROOT / "docs/json.schema.json").read_text())
ONE = "--march=native"


def most(path):
    """Its kernel is not proved."""
    return save(path, [helper.make_node("ArgMax", ["x"], ["y"], "most", axis=1, keepdims=0)], [value("x", [1, 4000])], [value("y", [1], 7)])


def result(*args):
    done = mcc(*args, "--json", timeout=300)
    data = json.loads(done.stdout)
    assert done.returncode == 0 and schema.wrong(data, SCHEMA, SCHEMA) is None, data
    return data["result"]


def sections(path):
    """Of an ELF file: name to bytes."""
    data = path.read_bytes()
    at, = struct.unpack_from("<Q", data, 40)
    size, n, names = struct.unpack_from("<HHH", data, 58)
    rows = [struct.unpack_from("<IIQQQQ", data, at + i * size) for i in range(n)]
    text = data[rows[names][4]:][:rows[names][5]]
    return {text[r[0]:text.index(0, r[0])].decode(): (r[1], b"" if r[1] == 8 else data[r[4]:r[4] + r[5]]) for r in rows}


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    path = tmp_path_factory.mktemp("proved") / "net.so"
    done = mcc(DIGITS, ONE, "--prove", "-o", path, timeout=300)
    assert done.returncode == 0 and "9 of 9 kernels proved, program proved" in done.stdout, (done.stdout, done.stderr)
    return path


def test_note(proved, tmp_path):
    plain = tmp_path / "net.so"
    assert mcc(DIGITS, ONE, "-o", plain).returncode == 0
    [proof] = [line for line in result("inspect", proved)["build"] if line.startswith("proof=")]
    assert "9 of 9 kernels and the program, under reals" in proof and "at n=1; n=2" in proof
    lines = mcc("inspect", proved).stdout.splitlines()
    assert sum(line.startswith("proved   ") and "9 of 9 kernels" in line for line in lines) == 1
    assert not [line for line in mcc("inspect", plain).stdout.splitlines() if line.startswith("proved")]
    with_note, without = sections(proved), sections(plain)
    assert with_note.keys() == without.keys()
    differ = {name for name in without if with_note[name] != without[name]}
    assert ".mcc.build" in differ and differ <= {".mcc.build", ".note.mcc", ".shstrtab"}, differ
    assert with_note[".mcc.build"][1].startswith(without[".mcc.build"][1].rstrip(b"\0"))


def test_verified(proved):
    """The note is taken as it is, and all other bytes are made again."""
    assert mcc("verify", proved, DIGITS, timeout=300).returncode == 0


def test_bill(proved):
    found = mcc("inspect", proved, "--sbom=cyclonedx").stdout
    assert "mcc:proof" in found and "--proof" not in mcc("inspect", proved, "--sbom=spdx").stdout


def test_nothing_is_written(tmp_path):
    path, output = most(tmp_path / "net.onnx"), tmp_path / "net.so"
    done = mcc(path, ONE, "--prove", "-o", output)
    assert done.returncode == 6 and "not all is proved" in done.stderr and "many elements" in done.stdout and not output.exists()
    assert mcc(path, ONE, "--prove", "-q", "-o", output).stdout == ""
    assert mcc(path, ONE, "-o", output).returncode == 0 and output.exists()
    done = mcc(DIGITS, ONE, "--prove", "--break-kernel=dense", "-o", tmp_path / "broken.so", timeout=300)
    assert done.returncode == 6 and not (tmp_path / "broken.so").exists()


@pytest.mark.parametrize("args", [["--emit=c"], ["--emit=static"], ["-stop-after=plan"], ["--target=aarch64-linux-gnu"]])
def test_refused(tmp_path, args):
    done = mcc(DIGITS, "--prove", "-o", tmp_path / "out", *args)
    assert done.returncode == 2 and not (tmp_path / "out").exists(), done.stderr


def test_report(tmp_path):
    page = tmp_path / "net.html"
    for path, holds in ((DIGITS, True), (most(tmp_path / "net.onnx"), False)):
        found = result("report", path, ONE, "--prove", "--no-run", "-o", page)["proof"]
        text = page.read_text()
        data = json.loads(text[text.index('id="data">') + len('id="data">'):].split("</script>")[0])
        assert data["proof"] == found and found["proved"] == holds and 'id="proof"' in text
        kernels = found["variants"][0]["kernels"]
        assert kernels and all(k["proved"] == (k["why"] is None) for k in kernels) and holds == all(k["proved"] for k in kernels)
    assert result("report", DIGITS, ONE, "--no-run", "-o", page)["proof"] is None

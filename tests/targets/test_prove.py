"""Code for other machines in the field of mcc prove, under qemu-user: its numbers are exact, so the results of a proved network's code are those
of this machine's bit for bit, whatever the lanes, tiles, layouts and the order of sums of another machine."""
import re

import numpy as np
import pytest

from cli.test_prove import MODULUS, SPANS, attention, image, mlp, quantized
from support.artifact import Artifact
from support.foreign import Foreign
from support.tool import DIGITS, ROOT, mcc

TABLE = (ROOT / "ir/target/target.def").read_text()
ROWS = {arch: re.findall(rf'^TARGET\("{arch}", "([^"]*)"', TABLE, re.M) for arch in ("aarch64", "riscv64")}
CPUS = {"aarch64": "max", "riscv64": "rv64,v=true"}  # of the emulator
NETWORKS = [(mlp, [], [5, 20]), (image, [], [1, 16, 24, 24]), (image, ["--choose=conv2:winograd=6"], [1, 16, 24, 24]), (attention, [SPANS], [1, 2, 100, 16]),
            (quantized, [], [1, 8, 12, 12]), (lambda path: DIGITS, [], [3, 1, 8, 8])]


def residues(seed, shape):
    """In the four bytes of floats."""
    return np.random.default_rng(seed).integers(0, MODULUS, shape).astype(np.uint32).view(np.float32)


def compiled(path, model, *options):
    done = mcc(model, "--in-field", *options, "-o", path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize("make, options, shape", NETWORKS)
@pytest.mark.parametrize("arch", ["aarch64", "riscv64"])
def test_field(arch, make, options, shape, tmp_path):
    model = make(tmp_path / "net.onnx")
    assert mcc("prove", model, "--march=native", "-q", *options).returncode == 0
    with Artifact(compiled(tmp_path / "here.so", model, "-march=native", *options), threads=1) as a:
        feeds = [residues(i, shape) for i in range(a.api.n_in)]
        [want] = a.call(feeds)
    with Foreign(arch, CPUS[arch]) as machine:
        for row in ROWS[arch]:
            [got] = machine.call(compiled(tmp_path / "there.so", model, f"--target={arch}-linux-gnu", f"-march={row}", *options), feeds)
            np.testing.assert_array_equal(np.asarray(got).view(np.uint8), want.view(np.uint8), row)


def test_wrong_code_differs(tmp_path):
    model = mlp(tmp_path / "net.onnx")
    feeds = [residues(0, [5, 20])]
    with Artifact(compiled(tmp_path / "here.so", model, "-march=native"), threads=1) as a, Foreign("aarch64") as machine:
        [want] = a.call(feeds)
        broken = compiled(tmp_path / "there.so", model, "--target=aarch64-linux-gnu", "-march=neoverse-n1", "--break-kernel=first")
        [got] = machine.call(broken, feeds)
    assert (np.asarray(got).view(np.uint32) != want.view(np.uint32)).any()

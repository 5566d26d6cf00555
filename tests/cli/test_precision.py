"""--precision=auto: what rounding costs, measured on samples, and which products go back to f32 for a bound."""
import re

import numpy as np
import pytest
from onnx import helper as h

from support.artifact import Artifact
from support.tool import mcc, save, value

N = h.make_node
RNG = np.random.default_rng(11)
PRODUCTS = ["first", "cancels", "square", "last"]


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """Four products; the sums of one are small beside what they add up, so its rounding is what costs most."""
    folder = tmp_path_factory.mktemp("precision")
    half = drawn(32, 64)
    weights = {"a": drawn(64, 64) / 8, "b": np.concatenate([half, -half]) + drawn(64, 64) / 64, "c": drawn(64, 64) / 8,
               "d": drawn(64, 10) / 8, "ones": np.concatenate([np.eye(64, dtype=np.float32)[:32]] * 2)}
    nodes = [N("MatMul", ["x", "a"], ["a0"], "first"), N("Relu", ["a0"], ["a1"]),
             N("Gather", ["a1", "same"], ["a2"], axis=1),
             N("MatMul", ["a2", "b"], ["b0"], "cancels"), N("Tanh", ["b0"], ["b1"]),
             N("MatMul", ["b1", "c"], ["c0"], "square"), N("Relu", ["c0"], ["c1"]),
             N("MatMul", ["c1", "d"], ["y"], "last")]
    weights["same"] = np.tile(np.arange(32), 2)
    del weights["ones"]
    save(folder / "net.onnx", nodes, [value("x", [4, 64])], [value("y", [4, 10])], weights)
    np.save(folder / "x.npy", drawn(24, 64))
    return folder


def auto(net, out, *options):
    done = mcc(net / "net.onnx", "-o", out, "-march=native", "--precision=auto", f"--sample=x={net / 'x.npy'}", *options)
    assert done.returncode == 0 and not done.stderr, done
    rows = re.findall(r"^ *([\d.]+)%  (f32|bf16) +(\S+) \(MatMul\)$", done.stdout, re.M)
    assert sorted(r[2] for r in rows) == sorted(PRODUCTS), done.stdout
    shares = [float(r[0]) for r in rows]
    assert shares == sorted(shares, reverse=True) and abs(sum(shares) - 100) < 0.1
    return [(width, name) for _, width, name in rows], done.stdout


def plain(net, out, *options):
    done = mcc(net / "net.onnx", "-o", out, "-march=native", *options)
    assert done.returncode == 0, done
    return out.read_bytes()


def largest(net, one, other):
    """The largest error of one artifact over the largest element of the other, f32's, on all samples."""
    got = []
    for path in (one, other):
        with Artifact(path) as a:
            got.append(np.concatenate([a.run([x])[0] for x in np.load(net / "x.npy").reshape(6, 4, 64)]))
    return np.abs(got[0] - got[1]).max() / np.abs(got[1]).max()


def test_the_most_costly_goes_back_until_the_bound_holds(net, tmp_path):
    plain(net, tmp_path / "f32.so")
    plain(net, tmp_path / "bf16.so", "--precision=bf16")
    everything = largest(net, tmp_path / "bf16.so", tmp_path / "f32.so")
    bound = everything / 4
    rows, text = auto(net, tmp_path / "auto.so", f"--precision-bound={bound}")
    assert rows[0] == ("f32", "cancels") and ("bf16", rows[-1][1]) == rows[-1]
    assert "6 samples" in text
    off = largest(net, tmp_path / "auto.so", tmp_path / "f32.so")
    assert 0 < off <= bound
    assert float(re.search(r"([\d.e-]+)  output 'y'", text)[1]) == pytest.approx(off, rel=0.01)
    kept = [f"--choose={name}:precision=f32" for width, name in rows if width == "f32"]
    said = plain(net, tmp_path / "said.so", "--precision=bf16", *kept)
    assert (tmp_path / "auto.so").read_bytes() == said


def test_bounds_that_all_or_none_hold(net, tmp_path):
    rows, _ = auto(net, tmp_path / "auto.so", "--precision-bound=0")
    assert {width for width, _ in rows} == {"f32"}
    assert (tmp_path / "auto.so").read_bytes() == plain(net, tmp_path / "f32.so")
    rows, _ = auto(net, tmp_path / "auto.so", "--precision-bound=1")
    assert {width for width, _ in rows} == {"bf16"}
    assert (tmp_path / "auto.so").read_bytes() == plain(net, tmp_path / "bf16.so", "--precision=bf16")


def test_as_a_configuration_file_says(net, tmp_path):
    (tmp_path / "mcc.yaml").write_text(f"precision: auto\nprecision-bound: 1\nsample: ['x={net / 'x.npy'}']\n"
                                       "choose: ['square:precision=f32']\n")
    done = mcc(net / "net.onnx", "-o", tmp_path / "auto.so", "-march=native", f"--config={tmp_path / 'mcc.yaml'}")
    assert done.returncode == 0 and "square (" not in done.stdout and "3 of 3 products in bf16" in done.stdout, done
    said = plain(net, tmp_path / "said.so", "--precision=bf16", "--choose=square:precision=f32")
    assert (tmp_path / "auto.so").read_bytes() == said


def test_other_roundings_count(net, tmp_path):
    done = mcc(net / "net.onnx", "-o", tmp_path / "a.so", "--precision=auto", f"--sample=x={net / 'x.npy'}",
               "--choose=cancels:precision=bf16", "--precision-bound=1e-9")
    assert done.returncode == 2 and "other options round as well" in done.stderr and not (tmp_path / "a.so").exists(), done


@pytest.mark.parametrize("command", [["run", "-q"], ["diff"], ["eval", "-q", "-i", "x=X"]])
def test_commands_that_compile(net, tmp_path, command):
    given = [a.replace("=X", f"={tmp_path / 'x.npy'}") for a in command[1:]]
    np.save(tmp_path / "x.npy", drawn(4, 64))
    done = mcc(command[0], net / "net.onnx", *given, "-o", tmp_path / "out", "--precision=auto", f"--sample=x={net / 'x.npy'}")
    assert done.returncode == 0 and not done.stderr, done


def test_refused(net, tmp_path):
    plain(net, tmp_path / "f32.so")
    done = mcc("run", tmp_path / "f32.so", "--precision=auto")
    assert done.returncode == 2 and "compiled already" in done.stderr, done
    done = mcc("quantize", net / "net.onnx", "--precision=auto", "-o", tmp_path / "q.so")
    assert done.returncode == 2 and "not in mcc quantize" in done.stderr, done
    done = mcc(net / "net.onnx", "-o", tmp_path / "a.so", "--precision=auto", "--sample=z=z.npy")
    assert done.returncode == 2 and "z" in done.stderr, done

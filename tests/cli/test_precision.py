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
    rows = re.findall(r"^ *(-|[\d.e-]+)  (f32|bf16) +(\S+) \(MatMul\)$", done.stdout, re.M)
    assert [r[2] for r in rows] == PRODUCTS, done.stdout
    return {name: (width, error) for error, width, name in rows}, done.stdout


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


def said(net, folder, names, *options):
    """What the command line would say: each of these in bf16."""
    return plain(net, folder / "said.so", *options, *(f"--choose={name}:precision=bf16" for name in names))


def test_the_most_costly_goes_back_until_the_bound_holds(net, tmp_path):
    plain(net, tmp_path / "f32.so")
    plain(net, tmp_path / "bf16.so", "--precision=bf16")
    everything = largest(net, tmp_path / "bf16.so", tmp_path / "f32.so")
    bound = everything / 4
    rows, text = auto(net, tmp_path / "auto.so", f"--precision-bound={bound}")
    errors = {name: float(error) for name, (_, error) in rows.items()}
    assert rows["cancels"][0] == "f32" and "bf16" in {width for width, _ in rows.values()} and max(errors, key=errors.get) == "cancels", text
    assert "6 samples" in text
    off = largest(net, tmp_path / "auto.so", tmp_path / "f32.so")
    assert 0 < off <= bound
    assert float(re.search(r"([\d.e-]+)  output 'y'", text)[1]) == pytest.approx(off, rel=0.01)
    assert (tmp_path / "auto.so").read_bytes() == said(net, tmp_path, [name for name, (width, _) in rows.items() if width == "bf16"])


def test_bounds_that_all_or_none_hold(net, tmp_path):
    rows, _ = auto(net, tmp_path / "auto.so", "--precision-bound=0")
    assert {width for width, _ in rows.values()} == {"f32"}
    assert (tmp_path / "auto.so").read_bytes() == plain(net, tmp_path / "f32.so")
    rows, text = auto(net, tmp_path / "auto.so", "--precision-bound=1")
    assert " 2 compilations" in text and all(line.split()[0] == "-" for line in text.splitlines() if "(MatMul)" in line), text
    assert {width for width, _ in rows.values()} == {"bf16"}
    assert (tmp_path / "auto.so").read_bytes() == said(net, tmp_path, PRODUCTS)
    plain(net, tmp_path / "bf16.so", "--precision=bf16")
    assert largest(net, tmp_path / "auto.so", tmp_path / "bf16.so") == 0


def test_compilations_grow_with_the_logarithm(tmp_path):
    """Sixty products, few of which cost most: found by halves."""
    rng, n = np.random.default_rng(3), 60
    half, nodes, weights = rng.standard_normal((16, 32)).astype(np.float32), [], {"same": np.tile(np.arange(16), 2)}
    for k in range(n):
        bad = k in (13, 47)
        w = rng.standard_normal((32, 32)).astype(np.float32) / 6
        weights[f"w{k}"] = (np.concatenate([half, -half]) * 8 + w / 8).astype(np.float32) if bad else w
        x = f"t{k - 1}" if k else "x"
        nodes += [N("Gather", [x, "same"], [f"g{k}"], axis=1)] if bad else []
        nodes += [N("MatMul", [f"g{k}" if bad else x, f"w{k}"], [f"p{k}"], f"product{k}"), N("LayerNormalization", [f"p{k}", "one"], [f"n{k}"]),
                  N("Add", [f"n{k}", x], [f"t{k}"])]
    weights["one"] = np.ones(32, np.float32)
    path = save(tmp_path / "net.onnx", nodes, [value("x", [8, 32])], [value(f"t{n - 1}", [8, 32])], weights)
    np.save(tmp_path / "x.npy", rng.standard_normal((16, 32)).astype(np.float32))
    common = (path, "-o", tmp_path / "a.so", f"--sample=x={tmp_path / 'x.npy'}", "--precision=auto")
    everything = mcc(*common, "--precision-bound=1")
    off = float(re.search(r"([\d.e-]+)  output ", everything.stdout)[1])
    done = mcc(*common, f"--precision-bound={off / 2}")
    assert done.returncode == 0, done
    kept = re.findall(r"  f32 +product(\d+) ", done.stdout)
    assert "13" in kept and len(kept) < n / 4, done.stdout
    assert float(re.search(r"([\d.e-]+)  output ", done.stdout)[1]) <= off / 2
    assert int(re.search(r"(\d+) compilations", done.stdout)[1]) <= 20, done.stdout


def test_as_a_configuration_file_says(net, tmp_path):
    (tmp_path / "mcc.yaml").write_text(f"precision: auto\nprecision-bound: 1\nsample: ['x={net / 'x.npy'}']\n"
                                       "choose: ['square:precision=f32']\n")
    done = mcc(net / "net.onnx", "-o", tmp_path / "auto.so", "-march=native", f"--config={tmp_path / 'mcc.yaml'}")
    assert done.returncode == 0 and " f32       square (" in done.stdout and "1 in f32, 3 in bf16" in done.stdout, done
    assert (tmp_path / "auto.so").read_bytes() == said(net, tmp_path, ["first", "cancels", "last"], "--choose=square:precision=f32")


def test_choices_are_kept(net, tmp_path):
    """What was found is a configuration, as that of --error is."""
    _, text = auto(net, tmp_path / "auto.so", "--precision-bound=0.02", f"--save-choices={tmp_path / 'c.yaml'}")
    assert "f32       cancels" in text, text
    assert (tmp_path / "auto.so").read_bytes() == plain(net, tmp_path / "b.so", f"--config={tmp_path / 'c.yaml'}")


def test_other_roundings_count(net, tmp_path):
    done = mcc(net / "net.onnx", "-o", tmp_path / "a.so", "--precision=auto", f"--sample=x={net / 'x.npy'}",
               "--choose=cancels:precision=bf16", "--precision-bound=1e-9")
    assert done.returncode == 2 and "another option rounds as well" in done.stderr and not (tmp_path / "a.so").exists(), done


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
    assert done.returncode == 2 and "libmcc and mcc quantize do not" in done.stderr, done
    done = mcc(net / "net.onnx", "-o", tmp_path / "a.so", "--precision=auto", "--sample=z=z.npy")
    assert done.returncode == 2 and "z" in done.stderr, done


def test_trials_say_nothing(tmp_path):
    """What is asked about a network is said of the one that is compiled, not of each that is tried."""
    branches = {f"{name}_branch": h.make_graph([N(op, ["x"], [name])], name, [], [value(name, [4, 8])]) for name, op in (("then", "Neg"), ("else", "Exp"))}
    path = save(tmp_path / "net.onnx", [N("If", ["p"], ["t"], **branches), N("MatMul", ["t", "w"], ["y"], "product")],
                [value("x", [4, 8])], [value("y", [4, 8])], {"p": np.array(True), "w": np.eye(8, dtype=np.float32)})
    np.save(tmp_path / "x.npy", np.ones((4, 8), np.float32))
    done = mcc(path, "-o", tmp_path / "a.so", f"--sample=x={tmp_path / 'x.npy'}", "--precision=auto", "-Rif")
    assert done.returncode == 0 and done.stderr.count("[-Rif]") == 1, done

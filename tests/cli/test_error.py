"""--error: the fastest arithmetic of each product within a bound on the outputs' error, found on samples."""
import re

import numpy as np
import pytest
from onnx import helper as h

from support.artifact import Artifact
from support.tool import DIGITS, mcc, save, value

N = h.make_node
RNG = np.random.default_rng(7)
NATIVE = "-march=native"


def drawn(*shape, over=None):
    return (RNG.standard_normal(shape) / np.sqrt(over or np.prod(shape[1:]))).astype(np.float32)


def convolutions(path):
    w = {"w1": drawn(16, 3, 3, 3), "b1": drawn(16), "w2": drawn(32, 16, 3, 3), "wd": drawn(32, 1, 3, 3), "w3": drawn(64, 32, 1, 1),
         "w4": drawn(32, 64, 1, 1), "fc": drawn(10, 32)}
    nodes = [N("Conv", ["x", "w1", "b1"], ["a"], "conv'1", pads=[1] * 4), N("Relu", ["a"], ["b"]),
             N("Conv", ["b", "w2"], ["c"], "conv2:a=b", pads=[1] * 4, strides=[2, 2]), N("Relu", ["c"], ["d"]),
             N("Conv", ["d", "wd"], ["e"], "depthwise", pads=[1] * 4, group=32), N("Relu", ["e"], ["f"]),
             N("Conv", ["f", "w3"], ["g"], "conv3"), N("Relu", ["g"], ["g1"]), N("Conv", ["g1", "w4"], ["g2"], "conv4"),
             N("Add", ["g2", "d"], ["s"]), N("GlobalAveragePool", ["s"], ["p"]), N("Flatten", ["p"], ["q"]),
             N("Gemm", ["q", "fc"], ["y"], "fc", transB=1)]
    save(path, nodes, [value("x", [1, 3, 32, 32])], [value("y", [1, 10])], w)
    return [1, 3, 32, 32]


def transformer(path):
    """Attention over rows, then two products with GELU between them, each with what it adds to."""
    d, w, nodes, x = 64, {}, [], "x"
    for k in range(2):
        w |= {f"{p}{k}": drawn(d, d, over=d) for p in "qkvo"} | {f"u{k}": drawn(d, 4 * d, over=d), f"d{k}": drawn(4 * d, d, over=4 * d)}
        nodes += [N("MatMul", [x, f"{p}{k}"], [f"{p}{k}_"], f"{p}{k}") for p in "qkv"]
        nodes += [N("Transpose", [f"k{k}_"], [f"kt{k}"], perm=[0, 2, 1]), N("MatMul", [f"q{k}_", f"kt{k}"], [f"s{k}"], f"scores{k}"),
                  N("Mul", [f"s{k}", "eighth"], [f"s2{k}"]), N("Softmax", [f"s2{k}"], [f"p{k}"], axis=-1),
                  N("MatMul", [f"p{k}", f"v{k}_"], [f"a{k}"], f"values{k}"), N("MatMul", [f"a{k}", f"o{k}"], [f"o{k}_"], f"o{k}"),
                  N("Add", [x, f"o{k}_"], [f"r{k}"]), N("MatMul", [f"r{k}", f"u{k}"], [f"u{k}_"], f"up{k}"),
                  N("Sigmoid", [f"u{k}_"], [f"g{k}"]), N("Mul", [f"u{k}_", f"g{k}"], [f"h{k}"]),
                  N("MatMul", [f"h{k}", f"d{k}"], [f"d{k}_"], f"down{k}"), N("Add", [f"r{k}", f"d{k}_"], [f"x{k}"])]
        x = f"x{k}"
    w["eighth"] = np.float32(1 / 8)
    save(path, nodes, [value("x", [1, 24, d])], [value(x, [1, 24, d])], w)
    return [1, 24, d]


NETWORKS = {"convolutions": convolutions, "transformer": transformer}


@pytest.fixture(scope="module", params=NETWORKS)
def net(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    shape = NETWORKS[request.param](folder / "net.onnx")
    np.save(folder / "x.npy", RNG.standard_normal([24, *shape[1:]]).astype(np.float32))
    np.save(folder / "unseen.npy", RNG.standard_normal([40, *shape[1:]]).astype(np.float32))
    assert mcc(folder / "net.onnx", "-o", folder / "f32.so", NATIVE).returncode == 0
    return folder


def search(net, out, *options, error="1%"):
    done = mcc(net / "net.onnx", "-o", out, NATIVE, f"--error={error}", f"--sample=x={net / 'x.npy'}", *options)
    assert done.returncode == 0 and not done.stderr, done
    rows = re.findall(r"^ *[\d.e+-]+ +[\d.]+ +[\d.]+  (f32|f16|bf16|int8 dyn|int8|i[48] wts) +(\S+) \(\w+\)$", done.stdout, re.M)
    return {name: kind for kind, name in rows}, done.stdout


def rms(one, other, samples, batched=False):
    """The relative root-mean-square error of one artifact's output, the other one's being right."""
    got = []
    for path in (one, other):
        with Artifact(path) as a:
            got.append(np.stack([a.run([x if batched else x[None]])[0] for x in np.load(samples)]).astype(np.float64))
    return np.sqrt(((got[0] - got[1]) ** 2).sum() / (got[1] ** 2).sum())


@pytest.mark.parametrize("error", ["0.3%", "1%", "0.05"])
def test_bound_holds_on_unseen_samples(net, tmp_path, error):
    bound = float(error.strip("%")) / (100 if "%" in error else 1)
    chosen, text = search(net, tmp_path / "a.so", error=error)
    off = rms(tmp_path / "a.so", net / "f32.so", net / "unseen.npy")
    held = re.search(r", ([\d.e-]+) on 6 that it did not see", text)
    assert off <= bound and (off > 0) == bool(set(chosen.values()) - {"f32"}) == bool(held), text
    assert float(held[1]) <= bound if held else bound < 0.05 and "every product stays in f32" in text, text


@pytest.mark.parametrize("error", ["0.2%", "0.3%"])
def test_unseen_samples_judge_with_room(net, tmp_path, error):
    """Of the samples that the search does not see, one has nearly all the signal and the error: what is found keeps the bound with room for others
    that vary as much."""
    x = np.load(net / "x.npy")
    x[7] *= 8
    np.save(tmp_path / "x.npy", x)
    done = mcc(net / "net.onnx", "-o", tmp_path / "a.so", NATIVE, f"--error={error}", f"--sample=x={tmp_path / 'x.npy'}", "-v")
    judged = re.findall(r": error [\d.e-]+ on 6 samples that were not seen, likely below ([\d.e-]+) on others", done.stdout)
    assert done.returncode == 0, done
    assert "every product stays in f32" in done.stdout or float(judged[-1]) <= float(error[:-1]) / 100, done.stdout


def test_a_larger_bound_takes_less_time(net, tmp_path):
    parts = [float(re.search(r"([\d.]+) of the products' time", search(net, tmp_path / "a.so", error=e)[1])[1])
             for e in ("0.0001%", "0.3%", "3%")]
    assert parts[0] == 1 and parts[0] > parts[1] >= parts[2], parts


def test_nothing_is_chosen_for_a_bound_that_nothing_keeps(net, tmp_path):
    chosen, text = search(net, tmp_path / "a.so", error="0.0001%")
    assert set(chosen.values()) == {"f32"} and "stays in f32" in text, text
    assert (tmp_path / "a.so").read_bytes() == (net / "f32.so").read_bytes()


def test_configuration_gives_the_same_bytes(net, tmp_path):
    search(net, tmp_path / "a.so", f"--save-choices={tmp_path / 'c.yaml'}")
    done = mcc(net / "net.onnx", "-o", tmp_path / "b.so", NATIVE, f"--config={tmp_path / 'c.yaml'}")
    assert done.returncode == 0 and not done.stderr and not done.stdout, done
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()
    search(net, tmp_path / "c.so", f"--save-choices={tmp_path / 'd.yaml'}")
    assert (tmp_path / "c.yaml").read_bytes() == (tmp_path / "d.yaml").read_bytes()


def test_measured_times(net, tmp_path):
    """Each product has a time of its own, in f32 too; what is found stays within the bound and needs no clock to be built again."""
    chosen, text = search(net, tmp_path / "a.so", "--error-measured", f"--save-choices={tmp_path / 'c.yaml'}")
    times = [float(v) for v in re.findall(r"^product (\S+)", (tmp_path / "c.yaml").read_text().replace("  - '", ""), re.M)]
    assert "measured us" in text and len(times) == len(chosen) and all(0 < t < 1e6 for t in times), text
    assert rms(tmp_path / "a.so", net / "f32.so", net / "unseen.npy") <= 0.01
    assert mcc(net / "net.onnx", "-o", tmp_path / "b.so", NATIVE, f"--config={tmp_path / 'c.yaml'}").returncode == 0
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()


@pytest.fixture(scope="module")
def gated(tmp_path_factory):
    """A convolution that f32 computes inside of the next one's kernel, and two of one shape, one of them of a product with gates."""
    folder = tmp_path_factory.mktemp("gated")
    w = {"we": drawn(96, 16, 1, 1), "wd": drawn(96, 1, 3, 3), "wp": drawn(24, 96, 1, 1), "wg": drawn(24, 96, 1, 1), "ws": drawn(96, 96, 1, 1)}
    nodes = [N("Conv", ["x", "we"], ["a"], "expand"), N("Relu", ["a"], ["b"]), N("Conv", ["b", "wd"], ["c"], "depthwise", pads=[1] * 4, group=96),
             N("Relu", ["c"], ["d"]), N("Conv", ["d", "wp"], ["p"], "plain"), N("GlobalAveragePool", ["d"], ["m"]), N("Conv", ["m", "ws"], ["s"], "squeeze"),
             N("Sigmoid", ["s"], ["t"]), N("Mul", ["d", "t"], ["g"]), N("Conv", ["g", "wg"], ["q"], "gated"), N("Add", ["p", "q"], ["y"])]
    save(folder / "net.onnx", nodes, [value("x", [1, 16, 56, 56])], [value("y", [1, 24, 56, 56])], w)
    np.save(folder / "x.npy", RNG.standard_normal((8, 16, 56, 56)).astype(np.float32))
    return folder


@pytest.mark.parametrize("options", [["-march=x86-64-v3"], ["-march=x86-64-v4-amx"], ["--error-measured"]], ids=lambda o: o[0])
def test_each_product_has_its_part_of_the_time(gated, tmp_path, options):
    """A product in another one's kernel has a time, so that it is worth an arithmetic; what is a kernel of its own only in some arithmetic counts
    for the product that reads it."""
    done = mcc(gated / "net.onnx", "-o", tmp_path / "a.so", "--error=1%", f"--sample=x={gated / 'x.npy'}", "-v", *options)
    us = {name: {kind: float(t) for t, kind in re.findall(r"([\d.e+-]+) in ([^,\n]+)", line)}
          for name, line in re.findall(r"^us of '(\w+)': (.*)", done.stdout, re.M)}
    assert done.returncode == 0 and set(us) == {"expand", "depthwise", "plain", "squeeze", "gated"}, done
    assert all(of["f32"] > 0 for of in us.values()), us
    if "amx" in options[0]:
        assert us["expand"]["int8"] < us["expand"]["f32"] and us["gated"]["bf16"] > 1.2 * us["plain"]["bf16"], us


def test_users_own_choices_stay(net, tmp_path):
    name = "conv3" if "conv" in str(net) else "up0"
    chosen, text = search(net, tmp_path / "a.so", f"--choose={name}:precision=f32", f"--save-choices={tmp_path / 'c.yaml'}", error="5%")
    assert chosen[name] == "f32" and f"'{name}:precision=f32'" in (tmp_path / "c.yaml").read_text(), text


def test_without_samples(net, tmp_path):
    done = mcc(net / "net.onnx", "-o", tmp_path / "a.so", NATIVE, "--error=1%")
    assert done.returncode == 0 and "[-Wsamples]" in done.stderr and "6 samples that the search saw" in done.stdout, done
    assert not re.search(r"  int8  ", done.stdout) and " bf16 " in done.stdout, "drawn inputs have no range that real ones keep"
    assert rms(tmp_path / "a.so", net / "f32.so", net / "unseen.npy") < 0.02
    done = mcc(net / "net.onnx", "-o", tmp_path / "b.so", NATIVE, "--error=1%", "-Werror")
    assert done.returncode != 0 and not (tmp_path / "b.so").exists(), done


def test_one_sample_shows_nothing_of_others(net, tmp_path):
    np.save(tmp_path / "x.npy", np.load(net / "x.npy")[:1])
    done = mcc(net / "net.onnx", "-o", tmp_path / "a.so", NATIVE, "--error=1%", f"--sample=x={tmp_path / 'x.npy'}")
    assert done.returncode == 0 and "nothing is known of others" in done.stdout, done


@pytest.mark.parametrize("options, says", [
    (["--error=0"], "above 0"), (["--error=x"], "above 0"), (["--error=101%"], "above 0"), (["--error=-1%"], "above 0"),
    (["--error=%"], "above 0"), (["--error=1%%"], "above 0"), (["--error="], "above 0"), (["--error=nan"], "above 0"),
    (["--error=1%", "--precision=bf16"], "leave --precision out"), (["--error=1%", "--precision=auto"], "leave --precision out"),
    (["--error=1%", "--weights-type=i8"], "leave --weights-type out"), (["--save-choices=c.yaml"], "give --error"),
    (["--error-measured"], "give --error"), (["--error=1%", "--error-measured", "--target=aarch64-linux"], "on this machine"),
    (["--error=1%", "--error-measured", "-march=x86-64-v3"], "on this machine"), (["--error=1%", "--error-measured", "--strict"], "on this machine"),
    (["--error=1%", "--sample=z=z.npy"], "z"), (["--error=1%", "--sample=x=missing.npy"], "missing.npy")])
def test_wrong_options(net, tmp_path, options, says):
    done = mcc(net / "net.onnx", "-o", tmp_path / "a.so", *options)
    assert done.returncode in (2, 3) and says in done.stderr and not (tmp_path / "a.so").exists(), done


def test_compiled_networks_are_refused(net):
    done = mcc("run", net / "f32.so", "--error=1%")
    assert done.returncode == 2 and "compiled already" in done.stderr, done


@pytest.mark.parametrize("target", ["aarch64-linux", "aarch64-macos,x86_64-macos"])
def test_other_targets(net, tmp_path, target):
    """Errors are measured on this machine, whatever the artifact is for."""
    path = tmp_path / ("a.dylib" if "macos" in target else "a.so")
    done = mcc(net / "net.onnx", "-o", path, f"--target={target}", "--error=1%", f"--sample=x={net / 'x.npy'}",
               f"--save-choices={tmp_path / 'c.yaml'}")
    assert done.returncode == 0 and not done.stderr, done
    first = path.read_bytes()
    assert mcc(net / "net.onnx", "-o", path, f"--target={target}", f"--config={tmp_path / 'c.yaml'}").returncode == 0
    assert path.read_bytes() == first


def test_choices_do_not_replace_the_network(net, tmp_path):
    before = (net / "net.onnx").read_bytes()
    done = mcc(net / "net.onnx", "-o", tmp_path / "a.so", NATIVE, "--error=1%", f"--sample=x={net / 'x.npy'}", f"--save-choices={net / 'net.onnx'}")
    assert done.returncode == 2 and (net / "net.onnx").read_bytes() == before, done


@pytest.mark.parametrize("line", ["conv3", "conv3:precision", "conv3:precision=int8:", "conv3:precision=int8:0,1e999", ":precision=int8:0,1",
                                  "conv3:precision=int8:0,1,", "conv3:weights=i3", "=", ":", "conv3:precision=int8:" + "9" * 500 + ",1"])
def test_hostile_lines(net, tmp_path, line):
    (tmp_path / "c.yaml").write_text(f"choose: ['{line}']\n")
    done = mcc(net / "net.onnx", "-o", tmp_path / "a.so", f"--config={tmp_path / 'c.yaml'}")
    assert done.returncode == 2 and "--choose" in done.stderr and not (tmp_path / "a.so").exists(), done


def test_networks_without_products(tmp_path):
    path = save(tmp_path / "net.onnx", [N("Relu", ["x"], ["y"])], [value("x", [4])], [value("y", [4])])
    done = mcc(path, "-o", tmp_path / "a.so", NATIVE, "--error=1%")
    assert done.returncode == 0 and "stays in f32" in done.stdout, done


def test_what_costs_nothing_alone(tmp_path):
    """Eight products of which none changes a class by itself, and all together do: the bound holds, if by f32."""
    draw = np.random.default_rng(7)
    w = {f"w{k}": (draw.standard_normal((64, 64)) / 8).astype(np.float32) for k in range(8)}
    nodes = [N("MatMul", ["x", f"w{k}"], [f"y{k}"], f"m{k}") for k in range(8)]
    nodes += [N("Sum", [f"y{k}" for k in range(8)], ["y"]), N("ArgMax", ["y"], ["z"], axis=1)]
    path = save(tmp_path / "net.onnx", nodes, [value("x", ["n", 64])], [value("z", None, 7)], w)
    np.save(tmp_path / "x.npy", draw.standard_normal([48, 64]).astype(np.float32))
    done = mcc(path, "-o", tmp_path / "a.so", NATIVE, "--error=2%", f"--sample=x={tmp_path / 'x.npy'}")
    found = re.search(r"^error ([\d.e-]+) on 1 samples", done.stdout, re.M)
    assert done.returncode == 0 and (float(found[1]) <= 0.02 if found else "stays in f32" in done.stdout), done.stdout


def test_strict_rows_stay_what_they_are_alone(tmp_path):
    """No product takes the range that all rows of a run have together."""
    w = {"w": drawn(256, 64).T.copy()}
    path = save(tmp_path / "net.onnx", [N("MatMul", ["x", "w"], ["y"], "mm")], [value("x", ["n", 64])], [value("y", ["n", 256])], w)
    x = RNG.standard_normal([16, 64]).astype(np.float32) * np.logspace(0, 2, 16, dtype=np.float32)[:, None]
    done = mcc(path, "-o", tmp_path / "a.so", NATIVE, "--error=2%", "--strict")
    assert done.returncode == 0 and "int8 dyn" not in done.stdout, done
    with Artifact(tmp_path / "a.so") as a:
        assert np.array_equal(a.run([x])[0], np.concatenate([a.run([x[k:k + 1]])[0] for k in range(16)]))


def test_one_row_by_many_weights(tmp_path):
    """Reading weights is all the time: in 8 bits where the bound allows it, else in 16."""
    w = {"w": drawn(2048, 1024).T.copy(), "v": drawn(2048, 2048).T.copy()}
    nodes = [N("Gemm", ["x", "w"], ["a"], "one", transA=1), N("Relu", ["a"], ["r"]), N("Transpose", ["r"], ["t"], perm=[1, 0]),
             N("Gemm", ["t", "v"], ["y"], "two", transA=1)]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [1024, 1])], [value("y", [1, 2048])], w)
    assert mcc(path, "-o", tmp_path / "f32.so", NATIVE).returncode == 0
    np.save(tmp_path / "x.npy", RNG.standard_normal([32 * 1024, 1]).astype(np.float32))
    np.save(tmp_path / "unseen.npy", RNG.standard_normal([16, 1024, 1]).astype(np.float32))
    found = []
    for error in ("30%", "0.1%"):
        done = mcc(path, "-o", tmp_path / "a.so", NATIVE, f"--error={error}", f"--sample=x={tmp_path / 'x.npy'}")
        assert done.returncode == 0 and not done.stderr, done
        found.append(re.findall(r"  (f32|f16|bf16|int8 dyn|int8|i[48] wts) +(?:one|two) ", done.stdout))
        assert rms(tmp_path / "a.so", tmp_path / "f32.so", tmp_path / "unseen.npy", batched=True) <= float(error[:-1]) / 100
    assert found == [["i8 wts"] * 2, ["f16"] * 2], found


def test_weights_that_are_of_4_bits(tmp_path):
    """--error-measured times i4 weights, which the model does not, and whatever is fastest keeps the bound. Groups of 32 that i4 numbers and a scale
    hold without an error keep it in i4, in an eighth of the bytes."""
    q = RNG.integers(-7, 8, (64, 32, 2048))
    q[:, 0] = 7
    w = {"w": (q * np.float32(2.0) ** RNG.integers(-9, -6, (64, 1, 2048))).reshape(2048, 2048).astype(np.float32)}
    path = save(tmp_path / "net.onnx", [N("MatMul", ["x", "w"], ["y"], "one")], [value("x", [1, 2048])], [value("y", [1, 2048])], w)
    for name, n in (("x", 16), ("unseen", 8)):
        np.save(tmp_path / f"{name}.npy", RNG.standard_normal([n, 2048]).astype(np.float32))
    assert mcc(path, "-o", tmp_path / "f32.so", NATIVE).returncode == 0
    for options in (["--error-measured"], []):
        done = mcc(path, "-o", tmp_path / "a.so", NATIVE, "--error=0.001%", f"--sample=x={tmp_path / 'x.npy'}", "-v", *options)
        [times] = re.findall(r"^us of 'one': (.*)$", done.stdout, re.M)
        found = {kind: float(t) for t, kind in re.findall(r"([\d.e+-]+) in ([^,]+)", times)}
        assert done.returncode == 0 and found["f32"] > 0 and found.get("i4 wts", 1) > 0 and "i8 wts" in found, done
        assert ("i4 wts" in found) == bool(options), times
        assert rms(tmp_path / "a.so", tmp_path / "f32.so", tmp_path / "unseen.npy") <= 1e-5
    assert mcc(path, "-o", tmp_path / "b.so", NATIVE, "--choose=one:weights=i4").returncode == 0
    assert rms(tmp_path / "b.so", tmp_path / "f32.so", tmp_path / "unseen.npy") <= 1e-5
    assert (tmp_path / "b.so").stat().st_size < (tmp_path / "f32.so").stat().st_size / 4


def test_huge_samples(tmp_path):
    """A range that no line of --choose takes is none to choose."""
    w = {"w": drawn(256, 64).T.copy()}
    path = save(tmp_path / "net.onnx", [N("MatMul", ["x", "w"], ["y"], "mm")], [value("x", ["n", 64])], [value("y", ["n", 256])], w)
    np.save(tmp_path / "x.npy", RNG.standard_normal([16, 64]).astype(np.float32) * np.float32(1e30))
    done = mcc(path, "-o", tmp_path / "a.so", NATIVE, "--error=2%", f"--sample=x={tmp_path / 'x.npy'}")
    assert done.returncode == 0 and not done.stderr, done


def test_products_in_loops_and_twice(tmp_path):
    """What runs several times, or has its name from two nodes, has no range, and its rounding is measured all the same."""
    w = {"w": drawn(32, 32), "v": drawn(32, 32), "n": np.int64(3), "yes": np.array(True)}
    body = h.make_graph([N("MatMul", ["a", "w"], ["b"], "inside"), N("Identity", ["c"], ["d"])], "body",
                        [value("i", [], 7), value("c", [], 9), value("a", [4, 32])], [value("d", [], 9), value("b", [4, 32])])
    nodes = [N("Loop", ["k", "yes", "x"], ["l"], body=body), N("MatMul", ["l", "v"], ["m"], "same"), N("Relu", ["m"], ["r"]),
             N("MatMul", ["r", "v"], ["t"], "same"), N("MatMul", ["t", "v"], ["y"], "last")]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [4, 32]), value("k", [], 7)], [value("y", [4, 32])], w)
    np.save(tmp_path / "x.npy", RNG.standard_normal([8, 4, 32]).astype(np.float32).reshape(32, 32))
    np.save(tmp_path / "k.npy", np.int64(2))
    for k in range(8):
        np.save(tmp_path / f"k{k}.npy", np.int64(2))
    ks = [f"--sample=k={tmp_path}/k{k}.npy" for k in range(8)]
    done = mcc(path, "-o", tmp_path / "a.so", NATIVE, "--error=2%", f"--sample=x={tmp_path / 'x.npy'}", *ks)
    assert done.returncode == 0 and not done.stderr, done
    rows = dict(re.findall(r"  (f32|f16|bf16|int8 dyn|int8|i[48] wts) +(inside|same|last) ", done.stdout))
    assert set(re.findall(r"(inside|same|last) \(MatMul\)", done.stdout)) == {"inside", "same", "last"}, done.stdout
    assert not {"int8", "int8 dyn"} & set(re.findall(r"  (int8 dyn|int8) +(?:inside|same) ", done.stdout)) and rows, done.stdout
    assert all(float(e) > 0 for e in re.findall(r"^ *([\d.e-]+) .*  bf16 ", done.stdout, re.M)), done.stdout


def test_computed_operands(tmp_path):
    """A product of two computed operands is rounded, too, and what that costs is measured."""
    w = {"w": drawn(256, 64).T.copy(), "v": drawn(256, 64).T.copy()}
    nodes = [N("MatMul", ["x", "w"], ["a"], "a"), N("MatMul", ["x", "v"], ["b"], "b"), N("Transpose", ["b"], ["t"], perm=[1, 0]),
             N("MatMul", ["a", "t"], ["y"], "both")]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [64, 64])], [value("y", [64, 64])], w)
    np.save(tmp_path / "x.npy", RNG.standard_normal([8 * 64, 64]).astype(np.float32))
    done = mcc(path, "-o", tmp_path / "a.so", NATIVE, "--error=2%", f"--sample=x={tmp_path / 'x.npy'}")
    found = re.search(r"^ *([\d.e-]+) .*  (f32|bf16) +both \(MatMul\)$", done.stdout, re.M)
    assert done.returncode == 0 and found and found[2] == "bf16" and 1e-4 < float(found[1]) < 0.02, done.stdout


def test_users_own_rounding_counts(net, tmp_path):
    """What a --choose rounds is part of the error, and ends the search at once if it alone is too much."""
    name = "conv3" if "conv" in str(net) else "up0"
    sample, ask = f"--sample=x={net / 'x.npy'}", (net / "net.onnx", "-o", tmp_path / "a.so", NATIVE)
    done = mcc(*ask, "--error=0.01%", sample, f"--choose={name}:weights=i4")
    assert done.returncode == 2 and "another option rounds as well" in done.stderr and not (tmp_path / "a.so").exists(), done
    done = mcc(*ask, "--error=0.3%", sample, f"--choose={name}:precision=bf16")
    assert done.returncode == 0 and rms(tmp_path / "a.so", net / "f32.so", net / "unseen.npy") <= 0.003, done


@pytest.mark.parametrize("target, says", [("aarch64-macos,x86_64-linux", "one system"), ("aarch64-macos,aarch64-macos", "each architecture once"),
                                          ("aarch64-macos,nowhere", "nowhere"), ("nowhere", "nowhere")])
def test_impossible_targets_are_refused_before_the_search(net, tmp_path, target, says):
    done = mcc(net / "net.onnx", "-o", tmp_path / "a.dylib", f"--target={target}", "--error=1%", f"--sample=x={net / 'x.npy'}", "-v")
    assert done.returncode == 2 and says in done.stderr and "us in products" not in done.stdout, done


@pytest.mark.parametrize("split", range(3))
def test_digits(tmp_path, split):
    """A trained network: the bound holds on images that were not among the samples, and no digit is read another way."""
    records = np.fromfile(DIGITS.parent / "digits.test", np.uint8).reshape(-1, 65)
    images = (records[:, 1:] / np.float32(16)).astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(split).permutation(len(images))
    np.save(tmp_path / "x.npy", images[order[:64]])
    np.save(tmp_path / "unseen.npy", images[order[64:192]])
    one = "--input=picture:f32[1,1,8,8]"
    done = mcc(DIGITS, one, NATIVE, "-o", tmp_path / "a.so", "--error=1%", f"--sample=picture={tmp_path / 'x.npy'}")
    assert done.returncode == 0 and not done.stderr, done
    assert mcc(DIGITS, one, NATIVE, "-o", tmp_path / "f32.so").returncode == 0
    off = rms(tmp_path / "a.so", tmp_path / "f32.so", tmp_path / "unseen.npy")
    assert off <= 0.01 and (off > 0) != ("every product stays in f32" in done.stdout), done.stdout

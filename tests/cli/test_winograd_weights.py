"""--winograd-weights: transformed weights derived in the kernel, at open, or stored; the same results, other sizes."""
import json
import pathlib
import re
import struct

import numpy as np
import onnx
import pytest
from onnx import helper

from support.artifact import Artifact
from support.tool import mcc, save, value

MODES = ("auto", "derive", "open", "store")
RNG = np.random.default_rng(5)
W = {"w": RNG.standard_normal((64, 64, 3, 3)).astype(np.float32), "v": RNG.standard_normal((40, 64, 3, 3)).astype(np.float32)}
PLAIN = {k: a.size * 4 for k, a in W.items()}


def stored(out, channels, m):
    return (m + 2) ** 2 * ((out + 15) // 16 * 16) * channels * 4


def network(path, twice=False, plain=False, **more):
    """x -> 3x3 (w) -> Relu -> [3x3 (w) ->] 3x3 (v); plain: w in a convolution of stride 2 too."""
    conv = [("x", "w", "a")] + ([("r", "w", "s")] if twice else []) + [("s" if twice else "r", "v", "y")]
    nodes = [helper.make_node("Conv", [x, w], [y], f"conv_{y}", pads=[1, 1, 1, 1]) for x, w, y in conv]
    nodes.insert(1, helper.make_node("Relu", ["a"], ["r"], "act"))
    outputs = [value("y", [1, 40, 28, 28])]
    if plain:
        nodes.append(helper.make_node("Conv", ["r", "w"], ["z"], "half", pads=[1, 1, 1, 1], strides=[2, 2]))
        outputs.append(value("z", [1, 64, 14, 14]))
    return save(path, nodes, [value("x", [1, 64, 28, 28])], outputs, W, **more)


def compiled(model, out, *flags):
    done = mcc(model, "-o", out, "--winograd=4", "-Rpass-analysis=schedule", *flags)
    assert done.returncode == 0, done.stderr
    with Artifact(out) as a:
        return a.run([np.random.default_rng(6).standard_normal((1, 64, 28, 28)).astype(np.float32)]), done.stderr


def near(a, b):
    return np.abs(a - b).max() <= 1e-5 * np.abs(b).max()


def weights(folder):
    """The sidecar's tensors, and its bytes."""
    data = (folder / "net.mccw").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return {k: t["shape"] for k, t in json.loads(data[8:8 + size]).items() if not k.startswith("__")}, data[8 + size:]


@pytest.mark.parametrize("variants", ["all", "v2"])
def test_results_and_remarks(tmp_path, variants):
    model, results = network(tmp_path / "net.onnx"), {}
    for mode in MODES:
        results[mode], said = compiled(model, tmp_path / f"{mode}.so", f"--winograd-weights={mode}", f"--variants={variants}")
        want = {"open": "U from open", "store": "U from the file"}.get(mode, "U derived")
        assert said.count("results of 4x4") == said.count(want) > 1, said
    assert near(results["derive"][0], results["open"][0])
    assert np.array_equal(results["auto"][0], results["derive"][0])       # few tiles: that is what auto does
    fused = variants == "all" and " fma " in pathlib.Path("/proc/cpuinfo").read_text()
    assert np.array_equal(results["store"][0], results["open"][0]) if fused else near(results["store"][0], results["open"][0])


def test_sidecar_and_sizes(tmp_path):
    """Stored once for all kernels and variants; the plain weights only where another kernel reads them."""
    u = {"w": stored(64, 64, 4), "v": stored(40, 64, 4)}
    for name, more, flags in (("one", {}, []), ("twice", {"twice": True}, []), ("v2", {}, ["--variants=v2"]), ("plain", {"plain": True}, [])):
        (tmp_path / name).mkdir()
        model = network(tmp_path / name / "net.onnx", **more)
        compiled(model, tmp_path / name / "net.so", "--weights=sidecar", "--winograd-weights=store", *flags)
    shapes, data = weights(tmp_path / "one")
    assert shapes == {"w.winograd4": [u["w"] // 4], "v.winograd4": [u["v"] // 4]} and len(data) == u["w"] + u["v"]
    assert data == weights(tmp_path / "twice")[1] == weights(tmp_path / "v2")[1]
    shapes, data = weights(tmp_path / "plain")
    assert shapes == {"w.winograd4": [u["w"] // 4], "v.winograd4": [u["v"] // 4], "w": [PLAIN["w"] // 4]}
    assert len(data) == u["w"] + u["v"] + PLAIN["w"]


def test_embedded_and_external(tmp_path):
    """In the artifact, and from weights that lie beside the network's file."""
    model, size, out = network(tmp_path / "net.onnx"), {}, {}
    for mode in MODES:
        out[mode], _ = compiled(model, tmp_path / f"{mode}.so", f"--winograd-weights={mode}", "-Werror")   # what was asked for is no warning
        size[mode] = (tmp_path / f"{mode}.so").stat().st_size
    grown = stored(64, 64, 4) + stored(40, 64, 4) - sum(PLAIN.values())
    assert max(size[m] for m in MODES[:3]) - min(size[m] for m in MODES[:3]) < 100_000 < abs(size["store"] - size["open"])
    assert abs(size["store"] - size["open"] - grown) < 100_000
    far = network(tmp_path / "far.onnx", save_as_external_data=True, location="far.bin", size_threshold=0)
    assert (tmp_path / "far.bin").stat().st_size >= sum(PLAIN.values()) and onnx.load(far, load_external_data=False)
    got, _ = compiled(far, tmp_path / "far.so", "--winograd-weights=store")
    assert np.array_equal(got[0], out["store"][0])
    limit = mcc(model, "-o", tmp_path / "limit.so", "--winograd=4", "--winograd-weights=store", "--max-constant-growth=2")
    assert limit.returncode == 4 and re.search(r"node 'conv_\w' \(Conv-\d+\): error: the constants grow.*; then 'conv_\w' by \d+", limit.stderr)


def test_forms_and_inspect(tmp_path):
    """Every form; sizes as inspect says them."""
    model = network(tmp_path / "net.onnx")
    for m in (2, 4, 6):
        flags = [f"--choose=conv_{y}:winograd={m}" for y in "ay"]
        want, _ = compiled(model, tmp_path / f"open{m}.so", "--winograd-weights=open", *flags)
        got, said = compiled(model, tmp_path / f"store{m}.so", "--winograd-weights=store", *flags)
        assert f"results of {m}x{m}" in said and near(got[0], want[0])
        shown = mcc("inspect", model, "--winograd-weights=store", f"--winograd={m}").stdout
        assert m == 6 or f"w: f32[64,64,3,3] as F({m} x {m}, 3 x 3) has it" in shown


def test_configuration_and_wrong_values(tmp_path):
    model = network(tmp_path / "net.onnx")
    (tmp_path / "net.yaml").write_text("winograd: 4\nwinograd-weights: store\n")
    assert mcc(model, "-o", tmp_path / "a.so", f"--config={tmp_path}/net.yaml").returncode == 0
    assert mcc(model, "-o", tmp_path / "b.so", "--winograd=4", "--winograd-weights", "store").returncode == 0
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()
    for wrong in ("", "yes", "4", "STORE", "store,open", "auto "):
        done = mcc(model, "-o", tmp_path / "c.so", f"--winograd-weights={wrong}")
        assert done.returncode == 2 and "winograd-weights" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    (tmp_path / "net.yaml").write_text("winograd-weights: both\n")
    done = mcc(model, "-o", tmp_path / "c.so", f"--config={tmp_path}/net.yaml")
    assert done.returncode == 1 and "net.yaml:1:" in done.stderr and not (tmp_path / "c.so").exists()

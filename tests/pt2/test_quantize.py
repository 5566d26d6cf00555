"""mcc quantize of a .pt2: the result is a .pt2 that mcc compiles to products of bytes, and that says what the file said otherwise."""
import io
import json
import os
import pathlib
import re
import subprocess
import tempfile
import zipfile

import numpy as np
import pytest

from pt2.test_commands import DATA
from pt2.test_hostile import archive
from pt2.writer import Program
from support.artifact import Artifact
from support.tool import MCC, mcc, python_with

F = np.dtype("float32")
RNG = np.random.default_rng(5)


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def off(got, want):
    return np.sqrt(np.mean((got.astype(np.float64) - want) ** 2) / np.mean(want.astype(np.float64) ** 2))


def run(path, inputs, *options):
    with tempfile.TemporaryDirectory() as folder:
        done = mcc("-q", path, "-o", f"{folder}/net.so", "-march=native", *options)
        assert done.returncode == 0, done.stderr
        with Artifact(pathlib.Path(folder) / "net.so") as a:
            return a.run(inputs)


def quantized(folder, path, samples, *options):
    """The quantized network, and what mcc said."""
    given = []
    for name, x in samples.items():
        np.save(folder / f"{name}.npy", x)
        given.append(f"--sample={name}={folder / name}.npy")
    done = mcc("quantize", path, *given, "-o", folder / "bytes.pt2", *options)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return folder / "bytes.pt2", done.stdout


def document(path):
    """The program, and all other records."""
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    name = next(n for n in records if "models/" in n or n.endswith("serialized_exported_program.json"))
    return json.loads(records.pop(name)), {n.split("/", 1)[-1]: data for n, data in records.items()}


def targets(path):
    return [n["target"].removeprefix("torch.ops.").split(".")[1] for n in document(path)[0]["graph_module"]["graph"]["nodes"]]


def check_signature(path):
    """Inputs, their specifications, types and stored weights are of the same tensors; nobody reads what is not made."""
    program, records = document(path)
    graph, signature = program["graph_module"]["graph"], program["graph_module"]["signature"]
    known = [i["as_tensor"]["name"] for i in graph["inputs"]]
    specs = [next(iter(s.values())) for s in signature["input_specs"]]
    assert known == [u["arg"].get("name") or u["arg"]["as_tensor"]["name"] for u in specs]
    for node in graph["nodes"]:
        tensors = [t for i in node["inputs"] for t in [i["arg"].get("as_tensor"), *i["arg"].get("as_tensors", [])] if t]
        assert {t["name"] for t in tensors} <= set(known), node
        known += [t["name"] for o in node["outputs"] for t in [o.get("as_tensor"), *o.get("as_tensors", [])] if t]
    assert len(set(known)) == len(known) and set(known) <= set(graph["tensor_values"])
    tables = [json.loads(data)["config"] for name, data in records.items() if name.endswith("_config.json")]
    for entry in tables[0].values() if tables else ():
        assert f"data/weights/{entry['path_name']}" in records
    owners = {u.get("parameter_name") or u.get("buffer_name") or u.get("tensor_constant_name") for u in specs} - {None}
    assert not tables or owners <= {name for table in tables for name in table}
    return specs


def network(core=False, inplace=True):
    """Convolutions with batch norms and without, depthwise and grouped, writes in place, a sum, a pool, a concat, products both ways."""
    p = Program()
    x = p.input("x", F, (2, 3, 16, 16))

    def conv(x, name, outs, ins, size, shape, bias=True, **keywords):
        w = p.weight(f"{name}.weight", drawn(outs, ins, size, size) / (ins * size * size) ** 0.5)
        args = [x, w, p.weight(f"{name}.bias", drawn(outs) / 4)] if bias else [x, w]
        if core:
            pad, groups = keywords.get("padding", [0, 0]), keywords.get("groups", 1)
            args = args[:2] + [args[2] if bias else None, [1, 1], pad, [1, 1], False, [0, 0], groups]
            return p.node("aten.convolution.default", args, [(name, F, shape)])
        return p.node("aten.conv2d.default", args, [(name, F, shape)], keywords)

    def norm(x, name, n, shape):
        given = [p.weight(f"{name}.{k}", v) for k, v in (("weight", 1 + drawn(n) / 4), ("bias", drawn(n) / 4), ("running_mean", drawn(n) / 4),
                                                        ("running_var", np.exp(drawn(n) / 2)))]
        if core:
            empty = [(f"{name}_{k}", F, (0,)) for k in "mr"]
            return p.node("aten._native_batch_norm_legit_no_training.default", [x, *given, 0.1, 1e-5], [(name, F, shape), *empty])[0]
        return p.node("aten.batch_norm.default", [x, *given, False, 0.1, 1e-5, True], [(name, F, shape)])

    mark = "_" if inplace and not core else ""
    wide, half = (2, 16, 16, 16), (2, 16, 8, 8)
    y = norm(conv(x, "a", 16, 3, 3, wide, bias=False, padding=[1, 1]), "an", 16, wide)
    y = p.node(f"aten.relu{mark}.default", [y], [("ar", F, wide)])
    pool = [("pool", F, half)] + ([("indices", np.dtype("int64"), half)] if core else [])
    y = p.node("aten.max_pool2d_with_indices.default" if core else "aten.max_pool2d.default", [y, [2, 2], [2, 2]], pool)
    y = y[0] if core else y
    z = conv(y, "b", 16, 1, 3, half, padding=[1, 1], groups=16)
    z = p.node(f"aten.leaky_relu{mark}.default", [z, 0.1], [("br", F, half)])
    z = norm(conv(z, "c", 16, 8, 1, half, groups=2), "cn", 16, half)
    z = p.node(f"aten.add{mark}.Tensor", [z, y], [("s", F, half)])
    z = p.node(f"aten.relu{mark}.default", [z], [("sr", F, half)])
    z = p.node("aten.cat.default", [[z, y], 1], [("t", F, (2, 32, 8, 8))])
    z = p.node("aten.mean.dim", [conv(z, "d", 24, 32, 1, (2, 24, 8, 8)), [2, 3]], [("g", F, (2, 24))])
    w, b = p.weight("e.weight", drawn(20, 24) / 5), p.weight("e.bias", drawn(20))
    if core:
        w = p.node("aten.permute.default", [w, [1, 0]], [("turned", F, (24, 20))])
        z = p.node("aten.addmm.default", [b, z, w], [("e", F, (2, 20))])
    else:
        z = p.node("aten.linear.default", [z, w, b], [("e", F, (2, 20))])
    z = p.node("aten.relu.default", [z], [("er", F, (2, 20))])
    p.output(p.node("aten.mm.default", [z, p.weight("m", drawn(20, 9) / 5)], [("y", F, (2, 9))]))
    return p


@pytest.mark.parametrize("form", ["inplace", "pure", "core"])
def test_a_network(tmp_path, form):
    """The same forms of bytes as of the network by way of ONNX; batch norms are in the weights, nothing is written in place."""
    path = network(core=form == "core", inplace=form == "inplace").save(tmp_path / "net.pt2")
    samples, feed = drawn(24, 3, 16, 16), drawn(2, 3, 16, 16)
    bytes_, text = quantized(tmp_path, path, {"x": samples}, "--bound=0")
    assert "9 of 9 nodes on bytes" in text, text
    check_signature(bytes_)
    found = targets(bytes_)
    # an edge each for x, ar (the pool's), pool, br, cn, sr, t, g, er; weights of six products, biases of five
    assert found.count("quantize_per_tensor") == found.count("dequantize_per_tensor") == 9, found
    assert found.count("dequantize_per_channel") == 6 + 5 and not any("batch_norm" in t or t.endswith("_") for t in found), found
    products = re.findall(r"(\w+)\[[^]]*\] = (?:conv|dot)\b", mcc("-stop-after=legalize", bytes_).stdout)
    assert products == ["i32", "i32", "f32", "i32", "i32", "i32"], products    # groups of several channels have no form for bytes
    (want,), (got,) = run(path, [feed]), run(bytes_, [feed])
    assert 1e-4 < off(got, want) < 0.05
    (plain,) = run(bytes_, [feed], "-O0")
    np.testing.assert_allclose(plain, got, atol=1e-4)
    done = mcc("diff", bytes_, "-i", f"x={np.save(tmp_path / 'feed.npy', feed) or tmp_path / 'feed.npy'}")
    assert done.returncode == 0, done.stdout + done.stderr
    done = mcc("quantize", path, f"--sample=x={tmp_path}/x.npy", "--bound=0", "-o", tmp_path / "direct.so", "-march=native")
    assert done.returncode == 0 and done.stdout.replace("direct.so", "bytes.pt2") == text
    with Artifact(tmp_path / "direct.so") as a:
        np.testing.assert_array_equal(a.run([feed])[0], got)
    config = json.loads(document(bytes_)[1]["data/weights/model_weights_config.json"])["config"]
    assert all(e["tensor_meta"]["dtype"] in (2, 4) or name.endswith("_scale") for name, e in config.items()), config
    assert {e["path_name"] for e in config.values()} == {n.split("/")[-1] for n in document(bytes_)[1] if "weights/weight_" in n}


@pytest.mark.parametrize("layout, compression, root", [("A", zipfile.ZIP_STORED, ""), ("B", zipfile.ZIP_STORED, "model"), ("B", zipfile.ZIP_DEFLATED, "a b"),
                                                       ("C", zipfile.ZIP_DEFLATED, "archive")])
def test_layouts(tmp_path, layout, compression, root):
    """Packed and pickled weights, with a folder of any name: the result has the layout and the records of the file."""
    network_ = network()
    path = network_.save(tmp_path / "net.pt2", root=root, layout=layout, compression=compression)
    plain = network_.save(tmp_path / "plain.pt2")
    samples, feed = drawn(24, 3, 16, 16), drawn(2, 3, 16, 16)
    bytes_, _ = quantized(tmp_path, path, {"x": samples}, "--bound=0")
    check_signature(bytes_)
    (got,) = run(bytes_, [feed])
    with zipfile.ZipFile(path) as a, zipfile.ZipFile(bytes_) as b:
        assert b.testzip() is None and (layout == "C" or set(a.namelist()) == set(b.namelist()))
    bytes_.rename(tmp_path / "first.pt2")
    (want,) = run(quantized(tmp_path, plain, {"x": samples}, "--bound=0")[0], [feed])
    np.testing.assert_array_equal(got, want)
    if layout != "C":
        with zipfile.ZipFile(tmp_path / "first.pt2") as archive:
            inner = next(n for n in archive.namelist() if n.endswith(("data/weights/model.pt", "state_dict.pt")))
            with zipfile.ZipFile(io.BytesIO(archive.read(inner))) as weights:
                assert weights.testzip() is None and sum(i.file_size for i in weights.infolist() if "/data/" in i.filename) < 12000


def test_weights(tmp_path):
    """One parameter for two products, one that lies transposed, a part of another one; one of repeated rows, which stays; dynamic sizes."""
    p = Program()
    n = p.symbol("s0", 2, 64)
    x = p.input("x", F, (n, 24))
    both, flat = p.weight("both", drawn(24, 24) / 5), drawn(24 * 24) / 5
    turned = p.weight("turned", flat, shape=(24, 24), strides=(1, 24))
    part = p.weight("part", flat, record="weight_1", shape=(12, 24), strides=(24, 1), offset=48)
    for k, w in enumerate((both, both, turned, part)):
        width = 12 if k == 3 else 24
        x = p.node("aten.linear.default", [x, w], [(f"y{k}", F, (n, width))])
        x = p.node("aten.tanh.default", [x], [(f"t{k}", F, (n, width))])
    same = p.weight("same", drawn(12), shape=(12, 12), strides=(0, 1))
    p.output(p.node("aten.linear.default", [x, same], [("y", F, (n, 12))]))
    path = p.save(tmp_path / "net.pt2")
    bytes_, text = quantized(tmp_path, path, {"x": drawn(64, 24)}, "--bound=0")
    assert "4 of 4 nodes on bytes" in text
    check_signature(bytes_)
    for rows in (1, 7):
        feed = drawn(rows, 24)
        (want,), (got,) = run(path, [feed]), run(bytes_, [feed])
        assert got.shape == (rows, 12) and 1e-4 < off(got, want) < 0.05


def test_the_bound(tmp_path):
    """Nodes that go back to f32 keep their weights, those of a convolution with its batch norm; a new bias stays with it."""
    path = network().save(tmp_path / "net.pt2")
    samples = {"x": drawn(24, 3, 16, 16)}
    bytes_, text = quantized(tmp_path, path, samples, "--bound=0.001")
    assert float(text.split()[0]) <= 0.001 and "in f32: y (mm)" in text and re.search(r"in f32: [abcd]n? \(conv2d\)", text), text
    specs = check_signature(bytes_)
    assert "m" in {s.get("parameter_name") for s in specs} and any(s.get("buffer_name", "").endswith("_bias") for s in specs)
    feed = drawn(2, 3, 16, 16)
    (want,), (got,) = run(path, [feed]), run(bytes_, [feed])
    assert off(got, want) < 0.01


def written(kind):
    """y is written in place after a product has read it, through a view, or within a graph; the second product reads it after that."""
    p = Program()
    x = p.node("aten.relu.default", [p.input("x", F, (8, 16))], [("r", F, (8, 16))])
    first = p.node("aten.mm.default", [x, p.weight("a", drawn(16, 16))], [("a", F, (8, 16))])
    target = p.node("aten.view.default", [x, [128]], [("v", F, (128,))]) if kind == "view" else x
    shape = (128,) if kind == "view" else (8, 16)
    p.node("aten.add_.Tensor" if kind != "fill" else "aten.fill_.Scalar", [target, 3.0], [("w", F, shape)])
    second = p.node("aten.mm.default", [x, p.weight("b", drawn(16, 16))], [("b", F, (8, 16))])
    p.output(p.node("aten.sub.Tensor", [first, second], [("y", F, (8, 16))]))
    return p


@pytest.mark.parametrize("kind", ["value", "view", "fill"])
def test_written_values_stay(tmp_path, kind):
    """A value that is written while others read it is no value to round once: its readers stay in f32."""
    p = written(kind)
    z = p.node("aten.mm.default", ["y" and p.node("aten.tanh.default", [p.outputs.pop()], [("t", F, (8, 16))]), p.weight("c", drawn(16, 4))],
               [("z", F, (8, 4))])
    p.output(z)
    path = p.save(tmp_path / "net.pt2")
    bytes_, text = quantized(tmp_path, path, {"x": drawn(64, 16)}, "--bound=0")
    assert "1 of 1 nodes on bytes" in text, text
    check_signature(bytes_)
    feed = drawn(8, 16)
    (want,), (got,) = run(path, [feed]), run(bytes_, [feed])
    assert off(got, want) < 0.05


@pytest.mark.parametrize("path", sorted(DATA.glob("*.pt2")), ids=lambda p: p.stem)
def test_every_program(path, tmp_path):
    """Programs that PyTorch wrote, with graphs within nodes, writes, state and dynamic sizes: a result that is a program, or a reason."""
    arrays, specs = np.load(DATA / f"{path.stem.removesuffix('_core')}.npz"), document(path)[0]["graph_module"]["signature"]["input_specs"]
    names = [s["user_input"]["arg"]["as_tensor"]["name"] for s in specs if "user_input" in s]
    inputs = [arrays[f"0.in.{k}"] for k in range(len(names))]
    for name, x in zip(names, inputs):
        np.save(tmp_path / f"{name}.npy", x)
    given = [f"--sample={name}={tmp_path / name}.npy" for name in names]
    done = mcc("quantize", path, *given, "-o", tmp_path / "bytes.pt2", "--bound=0", "-q")
    if done.returncode:
        assert done.returncode in (1, 2) and "error: " in done.stderr and not (tmp_path / "bytes.pt2").exists(), done.stderr
        return
    check_signature(tmp_path / "bytes.pt2")
    for got, want in zip(run(tmp_path / "bytes.pt2", inputs), run(path, inputs)):
        assert got.shape == want.shape and (want.dtype != F or off(got, want) < 0.1)


# Exports, quantizes, and runs both programs in PyTorch: argv has mcc, the name of the quantized file, and whether to decompose.
IN_TORCH = """
import subprocess, sys
import torch
from torch import nn
import torch.ao.quantization.fx._decomposed
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(),
                    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
net[1].running_mean.uniform_(-1, 1), net[1].running_var.uniform_(0.5, 2)
mcc, path, core = sys.argv[1:]
with torch.no_grad():
    x = torch.randn(4, 3, 10, 10)
    program = torch.export.export(net.eval(), (x,), dynamic_shapes=({0: torch.export.Dim("n", max=64)},))
    program = program.run_decompositions() if core == "True" else program
    torch.export.save(program, "net.pt2")
    import numpy
    numpy.save("x.npy", x.numpy())
    subprocess.run([mcc, "quantize", "net.pt2", "--sample=input=x.npy", "--bound=0", "-q", "-o", path], check=True)
    made = torch.export.load(path)
    for rows in (4, 3):
        numpy.save(f"want{rows}.npy", net(x[:rows]).numpy())
        numpy.save(f"theirs{rows}.npy", made.module()(x[:rows]).numpy())
"""


@pytest.mark.parametrize("core", [False, True])
def test_torch_reads_the_result(tmp_path, core):
    """torch.export.load takes it, and PyTorch's results are those of the compiled program."""
    python = python_with("torch.export._draft_export")
    if not python:
        pytest.skip("no Python with torch (MCC_TORCH_PYTHON)")
    done = subprocess.run([python, "-c", IN_TORCH, os.path.abspath(MCC), "bytes.pt2", str(core)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    x = np.load(tmp_path / "x.npy")
    for rows in (4, 3):
        want, theirs = np.load(tmp_path / f"want{rows}.npy"), np.load(tmp_path / f"theirs{rows}.npy")
        (ours,) = run(tmp_path / "bytes.pt2", [x[:rows]])
        assert 1e-4 < off(ours, want) < 0.05 and off(ours, theirs) < 0.01


@pytest.mark.parametrize("turn", [None, ("permute.default", [1, 0]), ("permute.default", [0, 1]), ("t.default",), ("transpose.int", 0, 1),
                                  ("transpose.int", -1, -2)])
def test_turned_matrices(tmp_path, turn):
    """Products of bytes by dequantized matrices that are transposed in the program, with scales along either dim."""
    p = Program()
    x, w = p.input("x", F, (4, 16)), p.weight("w", drawn(16, 16) * np.exp(drawn(16, 1)))
    if turn:
        w = p.node(f"aten.{turn[0]}", [w, *turn[1:]], [("turned", F, (16, 16))])
    p.output(p.node("aten.mm.default", [x, w], [("y", F, (4, 16))]))
    path = p.save(tmp_path / "net.pt2")
    samples = drawn(64, 16)
    bytes_, text = quantized(tmp_path, path, {"x": samples}, "--bound=0")
    assert "1 of 1 nodes on bytes" in text and re.search(r"i32\[4, 16\] = dot", mcc("-stop-after=legalize", bytes_).stdout)
    feed = samples[:4]
    (want,), (got,) = run(path, [feed]), run(bytes_, [feed])
    assert off(got, want) < 0.02


def test_a_convolution_whose_result_is_a_list(tmp_path):
    """Of one tensor: its batch norm stays."""
    program = network(inplace=False)
    document_ = program.document()
    for node in document_["graph_module"]["graph"]["nodes"]:
        if "conv2d" in node["target"]:
            node["outputs"] = [{"as_tensors": [node["outputs"][0]["as_tensor"]]}]
    bytes_, text = quantized(tmp_path, archive(tmp_path / "net.pt2", program.records_of(document_)), {"x": drawn(4, 3, 16, 16)}, "--bound=0")
    assert "9 of 9 nodes on bytes" in text and any("batch_norm" in t for t in targets(bytes_)), text

"""--choose NODE:precision=int8:LEAST,MOST and NODE:weights=TYPE: what an import of quantizers around the node would be."""
import re

import numpy as np
import pytest
from onnx import helper as h

from support.artifact import Artifact
from support.tool import mcc, save, value

N = h.make_node
RNG = np.random.default_rng(5)


def drawn(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


W = {"w1": drawn(16, 3, 3, 3), "b1": drawn(16), "wd": drawn(16, 1, 3, 3), "w2": drawn(32, 16, 1, 1), "fc": drawn(32, 10),
     "a": drawn(10, 10)}
RANGES = {"conv1": (-3.5, 4), "dw": (0, 2.5), "conv2": (-4, 4), "fc": (-4, 4), "last": (-8, 8)}
OPERANDS = {"conv1": (0, "x"), "dw": (2, "r1"), "conv2": (3, "d"), "fc": (6, "q"), "last": (7, "f")}
NODES = [N("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1] * 4), N("Relu", ["c1"], ["r1"]),
         N("Conv", ["r1", "wd"], ["d"], "dw", pads=[1] * 4, group=16), N("Conv", ["d", "w2"], ["c2"], "conv2", strides=[2, 2]),
         N("GlobalAveragePool", ["c2"], ["p"]), N("Flatten", ["p"], ["q"]), N("MatMul", ["q", "fc"], ["f"], "fc"),
         N("Gemm", ["f", "a"], ["y"], "last", transB=1)]
PORTS = [value("x", [1, 3, 16, 16])], [value("y", [1, 10])]


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    return save(tmp_path_factory.mktemp("arithmetic") / "net.onnx", NODES, *PORTS, W)


def lines(names):
    return [f"--choose={n}:precision=int8:{RANGES[n][0]:.9g},{RANGES[n][1]:.9g}" for n in names]


def run(path, x):
    with Artifact(path) as a:
        return a.run([x])[0]


def quantizers(path, names):
    """The network with QuantizeLinear and DequantizeLinear around these nodes, as the choices mean it."""
    weights, nodes, out_axis = dict(W), [], {"conv1": 0, "dw": 0, "conv2": 0, "fc": 1, "last": 0}
    for node in NODES:
        node, name = type(node).FromString(node.SerializeToString()), node.name
        if name in names:
            (lo, hi), axis, w = RANGES[name], out_axis[name], W[node.input[1]]
            scale = np.float32((hi - lo) / 255)
            most = np.abs(w).max(tuple(d for d in range(w.ndim) if d != axis), keepdims=True)
            ws = (most / np.float32(127)).astype(np.float32)
            weights |= {f"{name}_s": scale, f"{name}_z": np.uint8(np.rint(-lo / np.float64(scale))), f"{name}_ws": ws.reshape(-1),
                        f"{name}_wq": np.rint(w / ws).astype(np.int8)}
            nodes += [N("QuantizeLinear", [node.input[0], f"{name}_s", f"{name}_z"], [f"{name}_q"]),
                      N("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [f"{name}_x"]),
                      N("DequantizeLinear", [f"{name}_wq", f"{name}_ws"], [f"{name}_w"], axis=axis)]
            node.input[0], node.input[1] = f"{name}_x", f"{name}_w"
        nodes.append(node)
    return save(path, nodes, *PORTS, weights)


@pytest.mark.parametrize("names", [["conv1"], ["dw"], ["conv2"], ["fc"], ["last"], list(RANGES)])
def test_is_the_quantized_network(net, tmp_path, names):
    """The sums are of integers: the results differ from those of the network with quantizers next to ties alone."""
    same = quantizers(tmp_path / "q.onnx", names)
    done = mcc(net, "-o", tmp_path / "chosen.so", "-march=native", *lines(names))
    assert done.returncode == 0 and not done.stderr, done
    assert mcc(same, "-o", tmp_path / "file.so", "-march=native").returncode == 0
    assert mcc(net, "-o", tmp_path / "f32.so", "-march=native").returncode == 0
    x = RNG.standard_normal((1, 3, 16, 16)).astype(np.float32)
    got, want, exact = (run(tmp_path / n, x) for n in ("chosen.so", "file.so", "f32.so"))
    scale = np.abs(exact).max()
    assert np.abs(got - want).max() <= 1e-3 * scale
    assert 0 < np.abs(got - exact).max() <= 0.2 * scale
    graph = mcc(net, *lines(names), "-stop-after=legalize", "-o", "-").stdout
    assert len(re.findall(r"(?:conv|dot)\(.*acc=i32", graph)) == len(names), graph


def test_interpreter_agrees(net):
    done = mcc("diff", net, "-march=native", "-q", *lines(RANGES))
    assert done.returncode == 0, done


def test_shared_operand_is_quantized_once(tmp_path):
    nodes = [N("MatMul", ["x", "a"], ["p"], "one"), N("MatMul", ["x", "b"], ["q"], "two"), N("Add", ["p", "q"], ["y"])]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [8, 32])], [value("y", [8, 48])], {"a": drawn(32, 48), "b": drawn(32, 48)})
    text = [mcc(path, f"--choose=one:precision=int8:-3,3", f"--choose=two:precision=int8:-3,{most}", "-O0", "-stop-after=legalize",
                "-o", "-").stdout for most in (3, 4)]
    assert text[0].count("round") + 1 == text[1].count("round"), text[0]


def test_dynamic(net, tmp_path):
    """Without a range products take that of each run; convolutions have no such form."""
    done = mcc(net, "-o", tmp_path / "a.so", "-march=native", "--choose=fc:precision=int8", "--choose=last:precision=int8")
    assert done.returncode == 0 and not done.stderr, done
    assert mcc(net, "-o", tmp_path / "f32.so", "-march=native").returncode == 0
    for factor in (1, 1000):
        x = factor * RNG.standard_normal((1, 3, 16, 16)).astype(np.float32)
        got, exact = run(tmp_path / "a.so", x), run(tmp_path / "f32.so", x)
        assert 0 < np.abs(got - exact).max() <= 0.05 * np.abs(exact).max()
    done = mcc(net, "-o", tmp_path / "b.so", "--choose=conv1:precision=int8")
    assert done.returncode == 0 and "[-Wchoose]" in done.stderr and "conv1" in done.stderr, done


@pytest.mark.parametrize("kind", ["bf16", "f16", "i8", "f8", "i4"])
def test_weights_of_one_node(net, tmp_path, kind):
    """One node's constant is stored so, and the others as the file has them; the option is for all."""
    sizes = []
    for options in ([], [f"--choose=fc:weights={kind}"], [f"--weights-type={kind}"],
                    [f"--weights-type={kind}", "--choose=fc:weights=auto"]):
        done = mcc(net, "-o", tmp_path / "a.so", "-march=native", *options)
        assert done.returncode == 0 and not done.stderr, done
        graph = mcc(net, "-march=native", *options, "-stop-after=narrow-constants", "-o", "-").stdout
        word = {"f8": "f8e4m3fn"}.get(kind, kind)
        sizes.append(graph.count(f"{word}["))
    assert sizes[0] == 0 < sizes[1] and sizes[1] < sizes[2] > sizes[3] or kind == "i4" and sizes == [0, 1, 1, 0], sizes


@pytest.mark.parametrize("text", ["int8:", "int8:1", "int8:1,2", "int8:-2,-1", "int8:0,0", "int8:0,nan", "int8:0,inf", "int8:-,1",
                                  "int8:0,1e31", "int8:0,1,2", "int8:0x1,2", "int8: 0,1", "int8:--1,1", "int9"])
def test_bad_ranges(net, tmp_path, text):
    done = mcc(net, "-o", tmp_path / "a.so", f"--choose=conv1:precision={text}")
    assert done.returncode == 2 and "precision is f32, bf16" in done.stderr and "int8:LEAST,MOST" in done.stderr, done
    (tmp_path / "c.yaml").write_text(f'choose: ["conv1:precision={text}"]\n')
    done = mcc(net, "-o", tmp_path / "a.so", f"--config={tmp_path / 'c.yaml'}")
    assert done.returncode == 2 and not (tmp_path / "a.so").exists(), done


def test_configuration_gives_the_same_bytes(net, tmp_path):
    (tmp_path / "c.yaml").write_text("choose:\n" + "".join(f'  - "{o.partition("=")[2]}"\n' for o in lines(RANGES)))
    assert mcc(net, "-o", tmp_path / "a.so", *lines(RANGES)).returncode == 0
    assert mcc(net, "-o", tmp_path / "b.so", f"--config={tmp_path / 'c.yaml'}").returncode == 0
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()

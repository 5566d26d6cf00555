"""--strict: one set of bits on every CPU, for any number of threads, for every batch and number of rows."""
import re

import ml_dtypes
import numpy as np
import pytest

from fuzz import strict
from support.artifact import Artifact
from support.compare import floats, node
from support.foreign import Foreign
from support.strict import FOREIGN, NATIVE, Machines, differs
from support.tool import DIGITS, ROOT, mcc, save, value


def conv(operands, y, **more):
    return node("Conv", operands, y, **more)


def squeeze(x, y, w, v):
    """Squeeze and excitation: the mean of a depthwise convolution's image, whose rows have partial sums."""
    return [node("GlobalAveragePool", x, f"{y}.p"), node("Conv", f"{y}.p {w}", f"{y}.q"), node("Relu", f"{y}.q", f"{y}.r"),
            node("Conv", f"{y}.r {v}", f"{y}.s"), node("Sigmoid", f"{y}.s", f"{y}.t"), node("Mul", f"{x} {y}.t", y)]


def attention():
    """Rows of x [n, rows, 32] attend to one another, in two heads."""
    parts = [[node("MatMul", f"x w{p}", f"{p}0"), node("Reshape", f"{p}0 heads", f"{p}1"),
              node("Transpose", f"{p}1", p, perm=[0, 2, 3, 1] if p == "k" else [0, 2, 1, 3])] for p in "qkv"]
    nodes = [n for p in parts for n in p] + [node("MatMul", "q k", "s0"), node("Mul", "s0 quarter", "s"), node("Softmax", "s", "p", axis=-1),
                                            node("MatMul", "p v", "o"), node("Transpose", "o", "o1", perm=[0, 2, 1, 3]),
                                            node("Reshape", "o1 whole", "y")]
    return nodes, {"heads": np.array([0, 0, 2, 16]), "whole": np.array([0, 0, -1]), "quarter": np.float32(0.25),
                   **{f"w{p}": floats(32, 32, scale=0.3, seed=i) for i, p in enumerate("qkv")}}


def quantized(channels, spatial):
    """A convolution and a product between quantizers, whose zero points are none of a signed byte's."""
    rng = np.random.default_rng(5)
    nodes = [node("QuantizeLinear", "x sx zx", "q"), node("DequantizeLinear", "q sx zx", "d"), node("DequantizeLinear", "w sw zw", "v"),
             node("Conv", "d v b", "a", pads=[1] * 4), node("Relu", "a", "r"), node("QuantizeLinear", "r sy zy", "p"),
             node("DequantizeLinear", "p sy zy", "e"), node("Flatten", "e", "f"), node("DequantizeLinear", "m sw zw", "n"), node("MatMul", "f n", "y")]
    return nodes, {"sx": np.float32(0.031), "zx": np.uint8(117), "sy": np.float32(0.043), "zy": np.uint8(9), "sw": np.float32(0.017),
                   "zw": np.int8(0), "b": floats(20), "w": rng.integers(-127, 128, (20, channels, 3, 3), np.int8),
                   "m": rng.integers(-127, 128, (20 * spatial, 30), np.int8)}


def blocks(level):
    """A product by weights of 4 bits."""
    rng = np.random.default_rng(6)
    return ([node("MatMulNBits", "x B s", "y", domain="com.microsoft", K=160, N=48, bits=4, block_size=32, accuracy_level=level)],
            [6, 160], {"B": rng.integers(0, 256, (48, 5, 16), np.uint8), "s": np.abs(floats(48 * 5, scale=0.1))}, [])


FUNCTIONS = "Exp Log Tanh Erf Sin Sqrt Softplus Relu Gelu Mish"
# name: (nodes, the input's shape with the batch first, constants, options)
NETS = {
    "convolutions": ([conv("x w", "a", pads=[1] * 4), node("Relu", "a", "b"), conv("b v", "c"), node("Sigmoid", "c", "y")],
                     [2, 24, 14, 14], {"w": floats(40, 24, 3, 3, scale=0.1), "v": floats(33, 40, 1, 1, scale=0.2)}, []),
    "few channels": ([conv("x w", "a", pads=[2] * 4, strides=[2, 2]), node("MaxPool", "a", "b", kernel_shape=[3, 3], strides=[2, 2]),
                      conv("b v", "y")], [2, 3, 33, 31], {"w": floats(12, 3, 5, 5, scale=0.1), "v": floats(7, 12, 3, 3, scale=0.2)}, []),
    "excitation": ([conv("x w", "a", pads=[1] * 4, group=48), node("Relu", "a", "b"), *squeeze("b", "y", "u", "v")], [3, 48, 19, 23],
                   {"w": floats(48, 1, 3, 3, scale=0.4), "u": floats(12, 48, 1, 1, scale=0.2), "v": floats(48, 12, 1, 1, scale=0.2)}, []),
    "rows": ([node("LayerNormalization", "x s", "a"), node("MatMul", "a w", "b"), node("Softmax", "b", "c", axis=-1),
              node("ReduceL2", "c", "y", axes=[-1])], [9, 200], {"s": floats(200), "w": floats(200, 77, scale=0.1)}, []),
    "columns": ([node("Softmax", "x", "a", axis=1), node("ReduceSum", "a axes", "b", keepdims=0), node("MatMul", "x v", "c"),
                 node("Add", "b c", "y")], [5, 19, 13], {"axes": np.array([2]), "v": floats(13)}, []),
    "columns of data": ([node("Transpose", "x", "t", perm=[1, 0]), node("MatMul", "w t", "a"), node("Transpose", "a", "y", perm=[1, 0])],
                        [6, 130], {"w": floats(21, 130)}, []),
    "squares": ([node("Reshape", "x one", "a"), node("Transpose", "a", "t", perm=[0, 2, 1]), node("MatMul", "a t", "y")],
                [5, 130], {"one": np.array([0, 1, -1])}, []),
    "long product": ([node("MatMul", "x w", "y")], [4, 5000], {"w": floats(5000, 20, scale=0.02)}, []),
    "long reduction": ([node("ReduceMean", "x", "y", name="mean", axes=[1, 2])], [3, 260, 300], {}, []),
    "groups": ([node("InstanceNormalization", "x s b", "y")], [3, 4, 40, 41], {"s": floats(4), "b": floats(4)}, []),
    "attention": (attention()[0], [3, 12, 32], attention()[1], []),
    "attention of one row": (attention()[0], [3, 1, 32], attention()[1], []),
    "functions": ([node(op, "x", op) for op in FUNCTIONS.split()] + [node("Concat", FUNCTIONS, "y", axis=1)], [3, 37], {}, []),
    "zeros": ([node("Mul", "x zero", "a"), node("Relu", "a", "b"), node("MaxPool", "a", "c", kernel_shape=[3, 2]),
               node("ReduceMax", "a", "d", axes=[3], keepdims=0), node("ReduceMin", "a", "e", axes=[1], keepdims=0), node("Clip", "a low high", "f"),
               node("Max", "a zero", "g"), *[node("Flatten", x, f"{x}1") for x in "bcdefg"], node("Concat", "b1 c1 d1 e1 f1 g1", "h", axis=1),
               node("Reciprocal", "h", "y")],
              [3, 5, 9, 19], {"zero": np.float32(0), "low": np.float32(-0.0), "high": np.float32(0)}, []),
    "bytes": (quantized(18, 63)[0], [4, 18, 7, 9], quantized(18, 63)[1], []),
    "bytes of many channels": (quantized(64, 56)[0], [2, 64, 7, 8], quantized(64, 56)[1], []),
    "integers": ([node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z zw", "a"), node("Cast", "a", "b", to=1), node("Mul", "b s", "y")],
                 [1, 90], {"w": np.random.default_rng(8).integers(0, 256, (90, 21), np.uint8), "zw": np.uint8(130)}, []),
    "4 bits": blocks(0),
    "4 bits by bytes": blocks(4),
    "bf16": (attention()[0], [3, 12, 32], attention()[1], ["--precision=bf16"]),
    "bf16 convolutions": ([conv("x w", "a", pads=[1] * 4), node("Relu", "a", "b"), conv("b v", "y")], [2, 24, 14, 14],
                          {"w": floats(40, 24, 3, 3, scale=0.1), "v": floats(33, 40, 1, 1, scale=0.2)}, ["--precision=bf16"]),
    "bf16 tensors": ([node("Cast", "x", "a", to=16), node("MatMul", "a w", "b"), node("Softmax", "b", "c"), node("Cast", "c", "y", to=1)], [7, 66],
                     {"w": floats(66, 40, scale=0.2).astype(ml_dtypes.bfloat16)}, []),
    "f16": ([node("MatMul", "x w", "a"), node("Tanh", "a", "b"), node("MatMul", "b v", "y")], [7, 66],
            {"w": floats(66, 40, scale=0.2), "v": floats(40, 9)}, ["--precision=f16", "--weights-type=f16"]),
    "i4 weights": ([node("MatMul", "x w", "y")], [7, 128], {"w": floats(128, 40, scale=0.2)}, ["--weights-type=i4"]),
    "recurrent": ([node("Transpose", "x", "t", perm=[1, 0, 2]), node("LSTM", "t w r", "a", hidden_size=20),
                   node("Transpose", "a", "y", perm=[2, 0, 1, 3])],
                  [3, 6, 18], {"w": floats(1, 80, 18, scale=0.3), "r": floats(1, 80, 20, scale=0.3)}, []),
}


def shaped(path, net, batch):
    nodes, shape, constants, _ = NETS[net]
    return save(path, nodes, [value("x", [batch, *shape[1:]])], [value("y", None)], constants, opset=20 if net == "functions" else 17)


def draw(net, rows):
    shape = NETS[net][1]
    return floats(rows, *shape[1:], seed=11)


@pytest.mark.parametrize("net", NETS)
def test_machines(net, tmp_path):
    """CPUs with each kind of instruction, 1 and 3 threads; `make strict` has all."""
    with Machines(FOREIGN[1:], NATIVE[:2] + NATIVE[3:]) as machines:
        path = shaped(tmp_path / "net.onnx", net, NETS[net][1][0])
        text, _ = machines.compare(path, [draw(net, NETS[net][1][0])], NETS[net][3])
    assert not text, text


@pytest.mark.parametrize("net", [n for n in NETS if n != "integers"])  # whose rows are quantized together
def test_rows(net, tmp_path):
    """A row of a batch is what it is alone, in networks of one size and of any."""
    all_rows = draw(net, 17)

    def outputs(batch, *runs):
        path, out = shaped(tmp_path / "net.onnx", net, batch), tmp_path / "net.so"
        done = mcc("-q", "--strict", "-march=native", path, "-o", out, *NETS[net][3])
        assert done.returncode == 0, done.stderr
        with Artifact(out, threads=2) as a:
            return [a.call([x])[0] for x in runs]
    alone = np.concatenate(outputs(1, *(all_rows[i:i + 1] for i in range(17))))
    for n in (2, 4, 16):
        assert not differs([alone[:n]], outputs(n, all_rows[:n])), n
    for n, y in zip(range(1, 18), outputs("n", *(all_rows[:n] for n in range(1, 18)))):
        assert not differs([alone[:n]], [y]), f"{n} rows of any number"


@pytest.mark.parametrize("options,says", [
    ("-march=x86-64-v2", "no strict results on 'x86-64-v2'"), ("--variants=v3,v2", "no strict results on 'x86-64-v2'"),
    ("--target=wasm32", "no strict results on 'wasm32'"), ("--target=thumbv7em-none", "no strict results on 'thumbv7em'"),
    ("-march=x86-64-v3 -mattr=-fma", "has no fused multiply-add"), ("--precision=f16-sums", "only some CPUs sum in f16"),
    ("--choose conv1:precision=f16-sums", "only some CPUs sum in f16"), ("--choose fc:precision=int8", "the range of all rows")])
def test_refusals(options, says, tmp_path):
    target = [] if "target" in options else ["--target=x86_64-linux-gnu"]
    done = mcc("--strict", *target, *options.split(), DIGITS, "-o", tmp_path / "net.so")
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def test_fields_that_change_bits(tmp_path):
    """No record of one CPU may have another order of sums."""
    path = shaped(tmp_path / "net.onnx", "long reduction", 3)
    out, text = tmp_path / "net.so", tmp_path / "schedules"
    done = mcc("--strict", "-march=native", path, "-o", out, "--choose", "mean:reduce.0.sums=2")
    assert done.returncode == 0 and "reduce.0.sums changes the bits of results" in done.stderr, done.stderr
    assert mcc("--strict", "-march=native", path, "-stop-after=schedule", "-o", text).returncode == 0
    text.write_text(re.sub(r"(reduce\.0\.sums +)4", r"\g<1>2", text.read_text()))
    done = mcc("--strict", "-march=native", path, "-o", out, f"--schedules={text}")
    assert done.returncode == 2 and "reduce.0.sums changes the bits of results" in done.stderr, done.stderr
    assert mcc("-march=native", path, "-stop-after=schedule", "-o", text).returncode == 0
    text.write_text(re.sub(r"(reduce\.0\.sums +)\d+", r"\g<1>2", text.read_text()))
    assert mcc("-march=native", path, "-o", out, f"--schedules={text}").returncode == 0


def test_bytes_lie_as_tile_registers_read_them(tmp_path):
    """On every CPU: their sums are exact, so strict results are no reason to go without these."""
    path = shaped(tmp_path / "net.onnx", "bytes of many channels", 2)
    text = mcc("--strict", "-march=x86-64-v4-amx", "--target=x86_64-linux-gnu", path, "-stop-after=schedule", "-o", "-").stdout
    assert len(re.findall(r"tile\.matmul +1 ", text)) == 1
    assert re.search(r"tile\.matmul +1 ", mcc("-march=x86-64-v4-amx", "--target=x86_64-linux-gnu", path, "-stop-after=schedule", "-o", "-").stdout)


def test_error_is_for_all(tmp_path):
    """What --error chooses changes bits, so one CPU's times decide for all."""
    sizes, x, choices = [33, 64, 64, 16, 700, 16], tmp_path / "x.npy", set()
    nodes = [n for i in range(5) for n in (node("MatMul", f"a{i} w{i}", f"b{i}", f"n{i}"), node("Relu", f"b{i}", f"a{i + 1}"))]
    path = save(tmp_path / "net.onnx", nodes, [value("a0", [5, 33])], [value("a5", None)],
                {f"w{i}": floats(*sizes[i:i + 2], scale=0.2, seed=i) for i in range(5)})
    np.save(x, floats(5, 33, seed=9))
    for where in (["-march=x86-64-v4-vnni"], ["-march=x86-64-v3"], ["--target=riscv64-linux-gnu"]):
        done = mcc("-q", "--strict", "--error=5%", f"--sample=a0={x}", path, *where, "-o", tmp_path / "net.so", f"--save-choices={tmp_path / 'choices'}")
        assert done.returncode == 0, done.stderr
        choices.add((tmp_path / "choices").read_text())
    assert len(choices) == 1, choices


def test_tokens():
    """Of a language model: one by one, at once and among other texts."""
    with Machines(FOREIGN[3:], NATIVE[:2], (2,)) as machines:
        text, [logits] = strict.compare_tokens(ROOT / "examples/story/babyllama-int4.onnx", machines)
    assert not text and logits.shape == (1, strict.TOKENS, 105), text


def test_what_make_strict_finds(tmp_path):
    """Rows that depend on others, in a network whose file has one; a text whose logits depend on others; another hash."""
    path = save(tmp_path / "net.onnx", [node("ReduceMean", "x", "m", axes=[0]), node("Sub", "x m", "y")], [value("x", [1, 5])], [value("y", [1, 5])])
    with Machines([], NATIVE[:1], (1,)) as machines:
        [(_, text, _)] = strict.named([("net", path)], machines, [1, 2, 4])
        assert "4 rows: output 0: 20 of 20 elements are other bits" in text and "2 rows, --input=x:f32[2,5]" in text, text
        [(_, text, outputs)] = strict.named([("digits", DIGITS)], machines, [1, 2, 4])
    assert not text and len(outputs[0]) == 4
    assert strict.digest(outputs) != strict.digest([y[::-1] for y in outputs])


@pytest.mark.parametrize("said, lost", [("qemu-riscv64: Assertion failed", True), ("a fault", False)])
def test_an_emulator_that_ends(said, lost):
    """By a defect of its own: one result is missing, which is said. Otherwise the artifact may be why."""
    with Machines([], NATIVE[:1], (1,)) as machines:
        machines.foreign, machines.emulated = FOREIGN[3:], {"riscv64": Foreign("riscv64", command=["sh", "-c", f"echo '{said}' >&2"])}
        feeds = [np.zeros((1, 1, 8, 8), np.float32)]
        if lost:
            text, outputs = machines.compare(DIGITS, feeds)
            assert not text and outputs and [said in t for t in machines.lost] == [True]
        else:
            with pytest.raises((EOFError, OSError)):
                machines.compare(DIGITS, feeds)

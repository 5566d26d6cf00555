"""--emit=c: networks as C11, compiled without a warning, with the bits of the shared object of the same CPU."""
import pathlib
import platform
import re
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

from support.artifact import Artifact
from support.static import CProgram, Failed, same
from support.tool import ROOT, compile_to, dense, mcc, save, value

node, F16, BF16, I64, I8, U8 = helper.make_node, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT64, TensorProto.INT8, TensorProto.UINT8
native = pytest.mark.skipif(platform.machine() != "x86_64", reason="the CPU levels compared are those of x86-64")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def conv(path):
    nodes = [node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4, strides=[2, 2]), node("Relu", ["c"], ["r"]),
             node("Conv", ["r", "v"], ["d"], "deep", group=8, pads=[1] * 4), node("Clip", ["d", "low", "high"], ["e"]),
             node("GlobalAveragePool", ["e"], ["g"]), node("Flatten", ["g"], ["f"]), node("Gemm", ["f", "m"], ["h"]), node("Softmax", ["h"], ["y"])]
    return save(path, nodes, [value("x", ["n", 3, 9, 9])], [value("y", ["n", 5])],
                {"w": normal(8, 3, 3, 3), "v": normal(8, 1, 3, 3), "m": normal(8, 5), "low": np.float32(0), "high": np.float32(6)})


def winograd(path):
    nodes = [node("Conv", ["x", "w"], ["y"], "conv", pads=[1] * 4)]
    return save(path, nodes, [value("x", [1, 16, 14, 14])], [value("y", [1, 16, 14, 14])], {"w": normal(16, 16, 3, 3)})


def kept(path):
    nodes = [node("Conv", ["x", "w"], ["y"], "conv", pads=[1] * 4)]
    return save(path, nodes, [value("x", ["n", 32, 14, 14])], [value("y", ["n", 32, 14, 14])], {"w": normal(32, 32, 3, 3)})


def attention(path):
    nodes = [node("MatMul", ["q", "k"], ["s"]), node("Softmax", ["s"], ["p"], axis=-1), node("MatMul", ["p", "v"], ["y"])]
    return save(path, nodes, [value("q", [1, 2, 9, 8]), value("k", [1, 2, 8, 17]), value("v", [1, 2, 17, 8])], [value("y", [1, 2, 9, 8])])


def lstm(path):
    nodes = [node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], "lstm", hidden_size=6)]
    return save(path, nodes, [value("x", [5, 2, 4])], [value("y", [5, 1, 2, 6]), value("h", [1, 2, 6]), value("c", [1, 2, 6])],
                {"w": normal(1, 24, 4), "r": normal(1, 24, 6), "b": normal(1, 48)})


def quantized(path):
    scale, zero = np.float32(0.05), np.uint8(128)
    w = np.random.default_rng(1).integers(-127, 128, (8, 4, 3, 3)).astype(np.int8)
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"]), node("DequantizeLinear", ["w", "s"], ["v"]),
             node("Conv", ["d", "v"], ["c"], pads=[1] * 4), node("QuantizeLinear", ["c", "s", "z"], ["o"]), node("DequantizeLinear", ["o", "s", "z"], ["y"])]
    return save(path, nodes, [value("x", [1, 4, 7, 7])], [value("y", [1, 8, 7, 7])], {"s": scale, "z": zero, "w": w})


def product(path):
    return save(path, [node("MatMul", ["x", "w"], ["y"])], [value("x", [3, 64])], [value("y", [3, 16])], {"w": normal(64, 16)})


def halves(path):
    nodes = [node("Cast", ["x"], ["h"], to=F16), node("MatMul", ["h", "w"], ["m"]), node("Exp", ["m"], ["e"]), node("Cast", ["e"], ["b"], to=BF16),
             node("Cast", ["b"], ["y"], to=TensorProto.FLOAT), node("Cast", ["m"], ["f"], to=TensorProto.FLOAT)]
    return save(path, nodes, [value("x", [5, 8])], [value("y", [5, 7]), value("f", [5, 7])], {"w": normal(8, 7).astype(np.float16)}, opset=19)


def integers(path):
    nodes = [node("Div", ["x", "d"], ["q"]), node("Mod", ["x", "d"], ["r"]), node("Mul", ["x", "x"], ["s"]), node("Cast", ["x"], ["b"], to=I8),
             node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), node("BitShift", ["u", "k"], ["t"], direction="LEFT"), node("Abs", ["x"], ["a"])]
    return save(path, nodes, [value("x", [33], I64), value("u", [33], U8), value("k", [33], U8)],
                [value(n, [33], e) for n, e in (("q", I64), ("r", I64), ("s", I64), ("b", I8), ("f", TensorProto.FLOAT), ("t", U8), ("a", I64))],
                {"d": np.array([-7, 3, 1, -1, 5, 2, 9, 11, -2, 64, 10] * 3, np.int64)})


ROUND = ["Floor", "Ceil", "Round", "Sqrt", "Relu", "Exp", "Log", "Tanh", "Erf", "Sigmoid", "Sin", "Neg", "Abs", "Sign", "Reciprocal"]


def special(path):
    """NaN, infinities, zeros of both signs, subnormal numbers."""
    nodes = [node(op, ["x"], [op.lower()]) for op in ROUND]
    nodes += [node("Max", ["x", "z"], ["max"]), node("Min", ["z", "x"], ["min"]), node("ReduceMax", ["x"], ["top"], keepdims=0),
              node("Less", ["x", "z"], ["less"]),
              node("Cast", ["x"], ["int"], to=TensorProto.INT32), node("Cast", ["x"], ["byte"], to=U8), node("Mod", ["x", "m"], ["mod"], fmod=1)]
    outputs = [value(op.lower(), [24]) for op in ROUND] + [value("max", [24]), value("min", [24]), value("top", []), value("less", [24], TensorProto.BOOL)]
    outputs += [value("int", [24], TensorProto.INT32), value("byte", [24], U8), value("mod", [24])]
    return save(path, nodes, [value("x", [24])], outputs, {"z": np.array([0.0, -0.0] * 12, np.float32), "m": np.array([3, -0.7, 1e-42, 1e30] * 6, np.float32)})


def indices(path):
    nodes = [node("Gather", ["t", "i"], ["g"]), node("CumSum", ["g", "axis"], ["c"]), node("Transpose", ["c"], ["y"]), node("ArgMax", ["c"], ["a"], axis=1)]
    return save(path, nodes, [value("i", ["n"], I64)], [value("y", [6, "n"]), value("a", ["n", 1], I64)],
                {"t": normal(9, 6), "axis": np.int64(1)})


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 0.5, -0.5, 1.5, 2.5, -2.5, 1e9,
                    -1e9, 3e9, 255.5, 256, -1, 8388609, 1e-30, 5, -7], np.float32)
WIDE = np.array([0, 1, -1, 2**63 - 1, -2**63, 2**53 + 1, -2**31, 128, 255, -129, 7] * 3, np.int64)
BYTES = np.arange(33).astype(np.uint8)
NETS = {"conv": (conv, [normal(3, 3, 9, 9)], ["--input=x:f32[n=1..4,3,9,9]"]), "winograd": (winograd, [normal(1, 16, 14, 14)], ["--winograd=4"]),
        "kept": (kept, [normal(2, 32, 14, 14)], ["--input=x:f32[n=1..4,32,14,14]", "--choose=conv:version=1"]),
        "attention": (attention, [normal(1, 2, 9, 8), normal(1, 2, 8, 17), normal(1, 2, 17, 8)], []), "lstm": (lstm, [normal(5, 2, 4)], []),
        "quantized": (quantized, [normal(1, 4, 7, 7)], []), "int4": (product, [normal(3, 64)], ["--weights-type=i4"]),
        "bf16": (product, [normal(3, 64)], ["--precision=bf16"]), "halves": (halves, [normal(5, 8)], []), "integers": (integers, [WIDE, BYTES, BYTES], []),
        "special": (special, [SPECIAL], []), "indices": (indices, [np.array([3, 0, 8, 1], np.int64)], ["--input=i:i64[n=2..9]"])}


@native
@pytest.mark.parametrize("name", NETS)
def test_bits(name, tmp_path):
    make, inputs, options = NETS[name]
    model = make(tmp_path / "net.onnx")
    program = CProgram(tmp_path, model, *options)
    assert program.undefined() <= {"memcpy", "memset", "_GLOBAL_OFFSET_TABLE_"}
    with Artifact(compile_to(tmp_path / "net.so", model, "-march=x86-64-v2", *options), threads=1) as net:
        want = [np.asarray(a) for a in net.call(inputs)]
    got = program.run(inputs, want, **{d: inputs[0].shape[0] for d in program.dims()})
    for one, other in zip(got, want):
        same(one, other)


COMPILERS = {"gcc": ["gcc", "-O3"], "lanes": ["gcc", "-O1", "-DMCC_VECTORS=0"], "clang": ["clang-19", "-O2"], "fused": ["gcc", "-std=gnu11", "-O2", "-mfma"]}


@native
@pytest.mark.parametrize("name", COMPILERS)
def test_compilers(name, tmp_path):
    """Other compilers, lanes as arrays, a dialect in which GCC contracts products and sums."""
    test_one = ["-march=x86-64-v3"] if name == "fused" and "avx2" in pathlib.Path("/proc/cpuinfo").read_text() else ["-march=x86-64-v2"]
    make, inputs, options = NETS["conv"]
    model = make(tmp_path / "net.onnx")
    program = CProgram(tmp_path, model, *options, *test_one, compiler=COMPILERS[name])
    with Artifact(compile_to(tmp_path / "net.so", model, *test_one, *options), threads=1) as net:
        want = [np.asarray(a) for a in net.call(inputs)]
    same(program.run(inputs, want, n=3)[0], want[0])
    with pytest.raises(Failed, match="-2"):
        program.run(inputs, want, n=5)


@native
def test_images_of_dynamic_size(tmp_path):
    """A convolution by winograd of images whose size is a symbol, with a second version of its kernels."""
    w, x = normal(32, 16, 3, 3, seed=1) * 0.1, normal(5, 16, 6, 6)
    model = save(tmp_path / "model.onnx", [node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4), node("Relu", ["c"], ["y"])],
                 [value("x", ["n", 16, "m", "m"])], [value("y", ["n", 32, "m", "m"])], {"w": w})
    options = ["-march=x86-64-v3", "--input=x:f32[n=1..9,16,m=1..9,m]", "--choose=conv:version=4"]
    program = CProgram(tmp_path, model, *options)
    with Artifact(compile_to(tmp_path / "net.so", model, *[o for o in options if "march" not in o], "-march=native"), threads=1) as net:
        for n, m in ((4, 6), (5, 5), (1, 1)):
            part = np.ascontiguousarray(x[:n, :, :m, :m])
            got = program.run([part], [np.zeros((n, 32, m, m), np.float32)], n=n, m=m)
            np.testing.assert_allclose(got[0], net.call([part])[0], rtol=1e-3, atol=1e-4)


def test_32_bits(tmp_path):
    """Whatever the size of pointers, without a warning."""
    for name in ("conv", "special", "quantized"):
        make, _, options = NETS[name]
        compile_to(tmp_path / "net.c", make(tmp_path / "net.onnx"), "--emit=c", *options)
        sse = ["-msse2", "-mfpmath=sse"] if name == "special" else []   # x87 rounds f64 twice
        done = subprocess.run(["clang-19", "-m32", *sse, "-fsyntax-only", "-ffreestanding", *CProgram.WARNINGS, tmp_path / "net.c"], capture_output=True,
                              text=True)
        assert "file not found" in done.stderr or (done.returncode == 0 and not done.stderr), done.stderr


HOSTILE = ["*/ int x; /*", "??/", "int", "f32", "u8", "fn_net_run", "arena", "weights", "\u00fcber", "a\nb", "memcpy", "INLINE", "MAY_ALIAS", "x\\"]


def test_hostile_names(tmp_path):
    """Of inputs, outputs and nodes, in C and in its comments."""
    x = normal(4)
    nodes = [node("Neg", [name], [f"{name}_"], name) for name in HOSTILE]
    model = save(tmp_path / "net.onnx", nodes, [value(name, [4]) for name in HOSTILE], [value(f"{name}_", [4]) for name in HOSTILE])
    program = CProgram(tmp_path, model, compiler=("gcc", "-O1", "-trigraphs"))
    for got in program.run([x] * len(HOSTILE), [x] * len(HOSTILE)):
        same(got, -x)
    assert (tmp_path / "net.c").read_bytes().isascii()


def test_same_text(tmp_path):
    """Whatever the folder and the machine's own CPU."""
    (tmp_path / "a").mkdir()
    model, options = conv(tmp_path / "m.onnx"), ["--emit=c", *NETS["conv"][2]]
    one = compile_to(tmp_path / "a/net.c", model, *options, "-j1").read_bytes()
    assert one == compile_to(tmp_path / "net.c", model, *options, "--march=x86-64-v2", "--target=x86_64-linux").read_bytes()


def test_refusals(tmp_path):
    for nodes, outputs, says in (([node("NonZero", ["x"], ["y"])], [value("y", None, I64)], "--emit=c: NonZero needs the runtime"),
                                 ([node("Cast", ["x"], ["y"], to=TensorProto.STRING)], [value("y", [4], TensorProto.STRING)], "needs the runtime")):
        done = mcc(save(tmp_path / "m.onnx", nodes, [value("x", [4])], outputs), "--emit=c", "-o", tmp_path / "net.c")
        assert done.returncode == 1 and says in done.stderr and not (tmp_path / "net.c").exists(), done.stderr
    done = mcc(dense(tmp_path / "m.onnx"), "--emit=c", "-o", tmp_path / "net.c")
    assert done.returncode == 1 and "has no upper bound" in done.stderr, done.stderr
    w = np.zeros((4, 17 << 20), np.float16)
    done = mcc(save(tmp_path / "m.onnx", [node("MatMul", ["x", "w"], ["y"])], [value("x", [1, 4], F16)], [value("y", [1, 17 << 20], F16)], {"w": w}),
               "--emit=c", "-o", tmp_path / "net.c")
    assert done.returncode == 4 and "a C file holds up to 67108864" in done.stderr and not (tmp_path / "net.c").exists(), done.stderr


def test_only_with_its_option(tmp_path):
    for options in [], ["--emit=static"], ["--target=thumbv7em"]:
        done = mcc(dense(tmp_path / "m.onnx"), "-o", "net.c", *options, cwd=tmp_path)
        assert done.returncode == 2 and "C source is for --emit=c" in done.stderr and not (tmp_path / "net.c").exists(), done.stderr


@pytest.mark.parametrize("name", ['a"b.c', "a\\b.c", "a\nb.c"])
def test_names_that_include_does_not_take(name, tmp_path):
    """The C file includes its header by name."""
    model = dense(tmp_path / "m.onnx")
    done = mcc(model, "--emit=c", "-o", tmp_path / name)
    assert done.returncode == 2 and "cannot have quotes, backslashes or line breaks" in done.stderr, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    (tmp_path / 'q"').mkdir()
    assert mcc(model, "--emit=c", "--input=x[n=1..4,4]", "-march=x86-64-v2", "-o", tmp_path / 'q"' / "net.c").returncode == 0


def test_for_windows(tmp_path):
    """C source is C source, whatever the platform."""
    model = conv(tmp_path / "net.onnx")
    assert mcc(model, "--emit=c", "--target=x86_64-windows", *NETS["conv"][2], cwd=tmp_path).returncode == 0
    windows = (tmp_path / "net.c").read_text()
    assert mcc(model, "--emit=c", "--target=x86_64-linux", *NETS["conv"][2], cwd=tmp_path).returncode == 0
    assert (tmp_path / "net.c").read_text() == windows


@pytest.mark.parametrize("options,says", [
    (["--variants=x86-64-v2,x86-64-v3"], "is for one CPU"), (["-o", "net.so"], "makes C source"), (["-S"], "makes C source alone"),
    (["-g"], "makes C source alone"), (["-c"], "makes C source alone"), (["--weights=sidecar"], "holds its weights"),
    (["--target=x86_64-windows", "-o", "net.lib"], "makes C source; name it FILE.c"), (["--target=x86_64-windows", "-S"], "makes C source alone")])
def test_wrong_options(options, says, tmp_path):
    done = mcc(dense(tmp_path / "m.onnx"), "--emit=c", *(options if "-o" in options else ["-o", tmp_path / "net.c", *options]), cwd=tmp_path)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


@native
@pytest.mark.parametrize("bits", [64, 32])
def test_suite(bits, tmp_path):
    """A few of the ONNX suite's cases, of every kind (make conformance-c: all): the bits of shared objects, or a reason."""
    (tmp_path / "a.c").write_text("int main(void) { return sizeof(long) == 8; }")
    if bits == 32 and subprocess.run(["gcc", "-m32", "-o", tmp_path / "a", tmp_path / "a.c"], capture_output=True).returncode:
        pytest.skip("no gcc -m32: make deps-platforms")
    done = subprocess.run([sys.executable, ROOT / "tests/conformance/c_source.py", f"--bits={bits}", "--every=380", "--first=7"],
                          capture_output=True, text=True)
    assert done.returncode == 0 and int(re.search(r"(\d+) same bits", done.stdout)[1]) >= 3, done.stdout + done.stderr

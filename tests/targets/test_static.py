"""Static networks: one C function in an archive, with the bits of the shared object of the same CPU."""
import pathlib
import platform
import re
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper

from support import tiny
from support.artifact import Artifact
from support.foreign import Foreign
from support.static import BARE_MACHINES, MACHINES, Failed, Program, same
from support.tool import compile_to, dense, mcc, save, value

HELPERS = {"memcpy", "memmove", "memset", "memcmp"}
LEVELS = {"native": ["x86-64-v2", "x86-64-v3"] if platform.machine() == "x86_64" else [], "aarch64": ["armv8-a", "armv8.6-a-i8mm"],
          "riscv64": ["rv64gc"]} | {machine: [""] for machine in BARE_MACHINES}


def mixed(path):
    """Convolutions, a product, softmax, a sort of nothing, sizes of a batch: many templates, two equal kernels."""
    rng = np.random.default_rng(1)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("Conv", ["p", "v"], ["d"], "deep", group=24, pads=[1] * 4), helper.make_node("GlobalAveragePool", ["d"], ["g"]),
             helper.make_node("Flatten", ["g"], ["f"]), helper.make_node("Gemm", ["f", "m"], ["h"], "full"), helper.make_node("Tanh", ["h"], ["t"]),
             helper.make_node("Gemm", ["t", "o"], ["u"], "full2"), helper.make_node("Softmax", ["u"], ["y"]),
             helper.make_node("ArgMax", ["y"], ["z"], axis=1, keepdims=0)]
    return save(path, nodes, [value("x", ["n", 3, 17, 17])], [value("y", ["n", 10]), value("z", ["n"], TensorProto.INT64)],
                {"w": rng.standard_normal((24, 3, 3, 3)).astype(np.float32), "v": rng.standard_normal((24, 1, 3, 3)).astype(np.float32),
                 "m": rng.standard_normal((24, 33)).astype(np.float32), "o": rng.standard_normal((33, 10)).astype(np.float32)})


def expected(folder, model, options, machine, arrays):
    """Of the shared object with the same options, where something here runs it; else of this machine's."""
    if machine == "riscv64" or machine in BARE_MACHINES:
        machine, options = "native", [o for o in options if not o.startswith("-march")]
    path = compile_to(folder / "net.so", model, *MACHINES[machine].options, *options)
    if machine == "native":
        with Artifact(path, threads=1) as net:
            return net.call(arrays)
    with Foreign(machine) as other:
        return other.call(path, arrays)


def close(one, other):
    if one.dtype.kind == "f":
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("machine,level", [(m, level) for m in MACHINES for level in LEVELS[m]])
def test_bits(machine, level, tmp_path):
    if level == "x86-64-v3" and "avx2" not in pathlib.Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has no AVX2")
    if not MACHINES[machine].there():
        pytest.skip("no qemu-system or compiler for this CPU")
    model = mixed(tmp_path / "net.onnx")
    options = ["--input=x:f32[n=1..5,3,17,17]", *([f"-march={level}"] if level else [])]
    program = Program(tmp_path, model, *options, machine=machine)
    bare = machine in BARE_MACHINES
    assert {name for name in program.undefined() if not bare or not re.match(r"__\w", name)} <= HELPERS
    assert program.dims() == ["n"]
    x = np.random.default_rng(2).standard_normal((5, 3, 17, 17)).astype(np.float32)
    for n in (5, 2):
        got = program.run([x[:n]], [np.zeros((n, 10), np.float32), np.zeros(n, np.int64)], n=n)
        for one, other in zip(got, expected(tmp_path, model, options, machine, [x[:n]])):
            (close if bare or machine == "riscv64" else same)(one, np.asarray(other))
    with pytest.raises(Failed, match="-2"):
        program.run([x], [np.zeros(1)] * 2, n=6)


def quantized(path, elem):
    """Convolutions and a product of bytes, of either sign, whose sums end in the outputs."""
    rng = np.random.default_rng(3)
    dtype = np.uint8 if elem == TensorProto.UINT8 else np.int8
    nodes = [helper.make_node("ConvInteger", ["x", "w"], ["c"], pads=[1] * 4), helper.make_node("MatMulInteger", ["a", "m"], ["p"]),
             helper.make_node("ConvInteger", ["z", "v"], ["d"], pads=[1] * 4, strides=[2, 1]),
             helper.make_node("ConvInteger", ["z", "u"], ["e"], pads=[1] * 4, group=24),
             helper.make_node("ConvInteger", ["t", "s"], ["f"], pads=[1] * 4, strides=[1, 2]),
             helper.make_node("ConvInteger", ["o", "r", "seven"], ["g"], pads=[2, 1, 2, 2], strides=[2, 1])]
    inputs = [value("x", [1, 7, 6, 6], elem), value("a", [5, 19], elem), value("z", [1, 24, 7, 5], elem), value("t", [1, 3, 8, 7], elem),
              value("o", [1, 1, 9, 10], elem)]
    outputs = [value(name, shape, TensorProto.INT32) for name, shape in SUMS.items()]
    return save(path, nodes, inputs, outputs,
                {"w": rng.integers(-128, 128, (10, 7, 3, 3), np.int8), "m": rng.integers(-128, 128, (19, 13), np.int8),
                 "v": rng.integers(-128, 128, (11, 24, 3, 2), np.int8), "u": rng.integers(-128, 128, (24, 1, 3, 3), np.int8),
                 "s": rng.integers(-128, 128, (13, 3, 3, 3), np.int8), "r": rng.integers(-128, 128, (18, 1, 5, 4), np.int8),
                 "seven": np.array(7, dtype)}), dtype


SUMS = {"c": [1, 10, 6, 6], "p": [5, 13], "d": [1, 11, 4, 6], "e": [1, 24, 7, 5], "f": [1, 13, 8, 4], "g": [1, 18, 5, 10]}


@pytest.mark.parametrize("elem", [TensorProto.UINT8, TensorProto.INT8])
@pytest.mark.parametrize("machine", ["native", *BARE_MACHINES])
def test_bytes(machine, elem, tmp_path):
    """Exact, extremes included: on Cortex-M4 by SMLAD, on M55 by VMLADAVA, channels that fill its registers or not, images of three
    channels and of one."""
    if not MACHINES[machine].there():
        pytest.skip("no qemu-system or compiler for this CPU")
    model, dtype = quantized(tmp_path / "net.onnx", elem)
    rng, least, most = np.random.default_rng(4), np.iinfo(dtype).min, np.iinfo(dtype).max
    x, a = rng.integers(least, most + 1, (1, 7, 6, 6), dtype), rng.choice(np.array([least, most], dtype), (5, 19))
    z, t, o = (rng.choice(np.array([least, most], dtype), shape) for shape in ((1, 24, 7, 5), (1, 3, 8, 7), (1, 1, 9, 10)))
    got = Program(tmp_path, model, machine=machine).run([x, a, z, t, o], [np.zeros(shape, np.int32) for shape in SUMS.values()])
    for one, other in zip(got, expected(tmp_path, model, [], "native", [x, a, z, t, o])):
        same(one, np.asarray(other))
    code = subprocess.run(["llvm-objdump-19", "-d", tmp_path / "net.a"], capture_output=True, text=True, check=True).stdout
    assert machine not in ("m4", "m7") or code.count("smlad") > 8
    assert machine != "m55" or len(re.findall(r"vmlav?a?d?a?v?a\.s8|vmladava\.s8", code)) > 8
    assert machine not in BARE_MACHINES or not re.search(r"ldivmod|udivdi3|umoddi3", code)


@pytest.mark.parametrize("name,arena,instructions", [("ds_cnn", 21_000, 4_700_000), ("resnet8", 38_000, 19_000_000)])
@pytest.mark.parametrize("machine", BARE_MACHINES)
def test_tiny(machine, name, arena, instructions, tmp_path):
    """Whole int8 networks: each result is right to a step, and a residual connection's sum lies where an operand was. Instructions: on Cortex-M4
    with tiles of three points whose loops are unrolled, and no map copied onto itself."""
    if not MACHINES[machine].there():
        pytest.skip("no qemu-system or compiler for this CPU")
    made = tiny.NETWORKS[name]()
    model = tiny.save(tmp_path / "net.onnx", *made)
    x = np.random.default_rng(7).integers(-128, 128, [d.dim_value for d in made[1][0].type.tensor_type.shape.dim], np.int8)
    program, want = Program(tmp_path, model, machine=machine), np.asarray(expected(tmp_path, model, [], "native", [x])[0])
    got = program.run([x], [np.zeros_like(want)])[0]
    assert np.abs(got.astype(int) - want).max() <= 1
    assert program.number("ARENA") <= arena
    assert machine not in ("m4", "m7") or int(program.told[0]) <= instructions


@pytest.mark.parametrize("machine", BARE_MACHINES)
def test_in_place(machine, tmp_path):
    """Maps that are padded in place: by several widths, beside readers without padding, and a sum with what a convolution of the same kernel
    reads padded, which must not be overwritten."""
    if not MACHINES[machine].there():
        pytest.skip("no qemu-system or compiler for this CPU")
    net = tiny.Network(False, 1, 16, 9, 9)
    a = net.conv("x", 16, 16)
    b = net.sum(a, net.conv(a, 16, 16, relu=False))
    c = net.sum(net.conv(b, 16, 24, (5, 5), pads=(2,) * 4, relu=False), net.conv(b, 16, 24, (1, 1), pads=(0,) * 4))
    model = tiny.save(tmp_path / "net.onnx", *net.end(net.conv(c, 24, 20, stride=2, pads=(0, 0, 1, 1)), 1, 20, 4, 4))
    x = np.random.default_rng(7).integers(-128, 128, (1, 16, 9, 9), np.int8)
    want = np.asarray(expected(tmp_path, model, [], "native", [x])[0])
    got = Program(tmp_path, model, machine=machine).run([x], [np.zeros_like(want)])[0]
    assert np.abs(got.astype(int) - want).max() <= 1 and np.count_nonzero(got != want) < got.size / 20


def test_in_place_of_shared_memory(tmp_path):
    """No sum lies where its operand's unpadded part is read elsewhere, and no piece of a concat leaves its result, nor a
    padded copy that is one."""
    if not MACHINES["m4"].there():
        pytest.skip("no qemu-system or compiler for this CPU")
    node, rng, one = helper.make_node, np.random.default_rng(1), {"around": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "one": np.float32(1)}
    padded = [node("Conv", ["x", "k0"], ["v"], pads=[1] * 4), node("Pad", ["v", "around", "one"], ["c"]), node("Conv", ["c", "k0"], ["z"]),
              node("Pad", ["v", "around"], ["r"], mode="reflect"), node("Add", ["c", "r"], ["s"]), node("Conv", ["s", "k0"], ["y"])]
    joined = [node("Conv", ["x", "big"], ["kept"]), node("Conv", ["x", "k1"], ["p"]), node("Conv", ["x", "k2"], ["q"]),
              node("Concat", ["p", "q"], ["d"], axis=1), node("Conv", ["d", "both"], ["e"]), node("Sigmoid", ["p"], ["a"]),
              node("Conv", ["a", "k1"], ["f"]), node("Add", ["e", "f"], ["g"]), node("Conv", ["g", "k1"], ["h"]),
              node("Concat", ["a", "h"], ["c"], axis=1), node("Conv", ["c", "both"], ["y"]), node("Conv", ["kept", "small"], ["z"])]
    copied = [node("Conv", ["x", "k0"], ["r"], pads=[1] * 4), node("Pad", ["r", "around", "one"], ["p"]), node("Conv", ["p", "k0"], ["q"]),
              node("Conv", ["q", "k0"], ["s"], pads=[1] * 4), node("Add", ["r", "s"], ["v"]), node("Pad", ["v", "around", "one"], ["c"]),
              node("Conv", ["c", "k0"], ["z"]), node("Conv", ["x", "k0"], ["u"], pads=[2] * 4), node("Concat", ["c", "u"], ["d"], axis=1),
              node("Conv", ["d", "both"], ["e"]), node("Conv", ["v", "k1"], ["w"]), node("Conv", ["e", "k0"], ["f"]), node("Add", ["f", "w"], ["y"])]
    shapes = {"k0": (16, 16, 3, 3), "k1": (16, 16, 1, 1), "k2": (16, 16, 1, 1), "both": (16, 32, 1, 1), "big": (64, 16, 1, 1), "small": (16, 64, 1, 1)}
    x = rng.standard_normal((1, 16, 7, 7)).astype(np.float32)
    for nodes in (padded, joined, copied):
        used = {name for n in nodes for name in n.input}
        constants = {name: (rng.standard_normal(shape) * 0.2).astype(np.float32) for name, shape in shapes.items()} | one
        model = save(tmp_path / "net.onnx", nodes, [value("x", x.shape)], [value(name, x.shape) for name in "yz"],
                     {name: array for name, array in constants.items() if name in used})
        got = Program(tmp_path, model, machine="m4").run([x], [np.zeros_like(x)] * 2)
        for one_of, other in zip(got, expected(tmp_path, model, [], "native", [x])):
            np.testing.assert_allclose(one_of, np.asarray(other), rtol=1e-3, atol=1e-3)


def test_packing(tmp_path):
    """The arena is what lives at once: MobileNet's picture, whose channels fill words, and the first map."""
    assert Program(tmp_path, tiny.save(tmp_path / "net.onnx", *tiny.mobilenet()), machine="m4").number("ARENA") <= 57_728


CALLER = """#include "net.h"
#include <stdio.h>
static char arena[NET_ARENA_BYTES] __attribute__((aligned(NET_ARENA_ALIGN)));
static const float x[5][3][17][17] = {{{{1}}}};
static float y[5][10];
static int64_t z[5];
int main(void)
{
    static const long long outside[] = {0, 6, -1, 1LL << 40};
    for (int i = 0; i < 4; i++)
        if (net_run(outside[i], x, y, z, arena) != NET_E_SHAPE)
            return 1;
    return net_run(5, x, y, z, arena) != NET_OK || y[4][0] <= 0;
}
"""


@pytest.mark.parametrize("compiler", [["gcc", "-std=c11"], ["gcc", "-std=c11", "-static"], ["g++", "-x", "c++", "-std=c++17"]])
def test_caller(compiler, tmp_path):
    """From C and C++, position-independent or not, with the symbols' ranges."""
    model = mixed(tmp_path / "model.onnx")
    compile_to(tmp_path / "net.a", model, "--emit=static", "--input=x:f32[n=1..5,3,17,17]")
    header = (tmp_path / "net.h").read_text()
    assert "int net_run(int64_t n, const float x[][3][17][17], float y[][10], int64_t z[], void *arena);" in header
    assert " *   n: 1 to 5\n" in header
    (tmp_path / "main.c").write_text(CALLER)
    subprocess.run([*compiler, "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}", "-o", tmp_path / "main", tmp_path / "main.c", "-x", "none",
                    tmp_path / "net.a"], check=True)
    subprocess.run([tmp_path / "main"], check=True)


def test_two_in_one_program(tmp_path):
    """Names of functions and weights are the network's own; --prefix gives them."""
    for name in ("one", "two"):
        dense(tmp_path / "m.onnx")
        compile_to(tmp_path / f"{name}.a", tmp_path / "m.onnx", "--emit=static", "--input=x:f32[n<=4,4]", *(["--prefix=second"] * (name == "two")))
    (tmp_path / "main.c").write_text('#include "one.h"\n#include "two.h"\nint main(void) { static float x[1][4], y[1][3], z[1][3]; '
                                     "static _Alignas(64) char arena[ONE_ARENA_BYTES + SECOND_ARENA_BYTES + 64];\n"
                                     "return one_run(1, x, y, arena) || second_run(1, x, z, arena) || y[0][0] != z[0][0]; }\n")
    subprocess.run(["gcc", "-Wall", "-Wno-incompatible-pointer-types", f"-I{tmp_path}", "-o", tmp_path / "main", tmp_path / "main.c", tmp_path / "one.a",
                    tmp_path / "two.a"], check=True)
    subprocess.run([tmp_path / "main"], check=True)


@pytest.mark.parametrize("most", [1, 16])
def test_versions(most, tmp_path):
    """The memory has room for what a kernel's second version takes, which may be more than the kernel does at all sizes."""
    rng = np.random.default_rng(5)
    w, x = rng.standard_normal((32, 32, 3, 3)).astype(np.float32), rng.standard_normal((3, 32, 14, 14)).astype(np.float32)
    model = save(tmp_path / "net.onnx", [helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1] * 4)], [value("x", ["n", 32, 14, 14])],
                 [value("y", ["n", 32, 14, 14])], {"w": w})
    options = ["--input=x:f32[n=1..3,32,14,14]", f"--choose=conv:version={most}"]
    program = Program(tmp_path, model, *options, machine="native")
    for n in (1, 3):
        got = program.run([x[:n]], [np.zeros((n, 32, 14, 14), np.float32)], n=n)
        close(got[0], np.asarray(expected(tmp_path, model, options, "native", [x[:n]])[0]))


def test_equal_versions(tmp_path):
    """Second versions with one body are one function, too."""
    rng = np.random.default_rng(6)
    w = {name: (rng.standard_normal((48, 48)) / 7).astype(np.float32) for name in "uvw"}
    nodes = [helper.make_node("MatMul", [x, name], [y], name) for x, name, y in (("x", "u", "a"), ("a", "v", "b"), ("b", "w", "y"))]
    model = save(tmp_path / "net.onnx", nodes, [value("x", ["n", 48])], [value("y", ["n", 48])], w)
    options = ["--input=x:f32[n=1..9,48]", *(f"--choose={name}:version=1" for name in w)]
    program, x = Program(tmp_path, model, *options, machine="native"), rng.standard_normal((9, 48)).astype(np.float32)
    assert program.undefined() <= HELPERS
    for n in (1, 2, 9):
        close(program.run([x[:n]], [np.zeros((n, 48), np.float32)], n=n)[0], x[:n] @ w["u"] @ w["v"] @ w["w"])
    other = compile_to(tmp_path / "version_net.a", model, "--emit=static", *options)
    one, other = (set(re.findall(r" [TR] (\S+)$", subprocess.run(["llvm-nm-19", p], capture_output=True, text=True, check=True).stdout, re.M))
                  for p in (tmp_path / "net.a", other))
    assert len(one) == len(other) and not one & other


def test_same_bytes(tmp_path):
    """Whatever the folder and the number of workers."""
    (tmp_path / "a").mkdir()
    model, options = mixed(tmp_path / "m.onnx"), ["--emit=static", "--input=x:f32[n<=8,3,17,17]"]
    one = compile_to(tmp_path / "a/net.a", model, *options, "-j1").read_bytes()
    assert one == compile_to(tmp_path / "net.a", model, *options, "-j2").read_bytes()


def test_inspect(tmp_path):
    compile_to(tmp_path / "net.a", dense(tmp_path / "m.onnx"), "--emit=static", "--input=x:f32[n<=4,4]")
    done = mcc("inspect", tmp_path / "net.a")
    assert done.returncode == 3 and "a static network" in done.stderr, done


def refused(tmp_path, nodes, inputs, outputs, *options, **more):
    done = mcc(save(tmp_path / "m.onnx", nodes, inputs, outputs, **more), "--emit=static", "-o", tmp_path / "net.a", *options)
    assert not (tmp_path / "net.a").exists() and not (tmp_path / "net.h").exists()
    return done.returncode, done.stderr


def test_refusals(tmp_path):
    """Each with its reason."""
    string, i64 = TensorProto.STRING, TensorProto.INT64
    x = [value("x", [4])]
    node = helper.make_node
    for nodes, inputs, outputs, says in (
            ([node("NonZero", ["x"], ["y"], "find")], x, [value("y", None, i64)], "'find'"),
            ([node("NonZero", ["x"], ["y"])], x, [value("y", None, i64)], "NonZero needs the runtime"),
            ([node("Relu", ["x"], ["y"])], [value("x", ["n"])], [value("y", ["n"])], "'n' has no upper bound"),
            ([node("Cast", ["x"], ["y"], to=string)], x, [value("y", [4], string)], "needs the runtime"),
            ([node("Mod", ["x", "x"], ["y"], fmod=1)], x, [value("y", [4])], "remainder of floats"),
            ([node("SequenceConstruct", ["x", "x"], ["y"])], x, [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)], "--emit=static"),
            ([node("Cast", ["x"], ["y"], to=TensorProto.INT4)], x, [value("y", [4], TensorProto.INT4)], "--emit=static")):
        code, text = refused(tmp_path, nodes, inputs, outputs, opset=21)
        assert code == 1 and says in text, text


@pytest.mark.parametrize("options,says", [
    (["--variants=x86-64-v2,x86-64-v3"], "is for one CPU"), (["--variants=all"], "is for one CPU"), (["-o", "net.so"], "is an archive"),
    (["-o", "net.o"], "is an archive"), (["-c"], "'c': for this target mcc makes static networks"),
    (["--emit=header", "--target=thumbv7em"], "'emit': for this target"),
    (["--target=thumbv7em-none-eabi"], "no code for the target"), (["--target=thumbv7em", "-mattr=+mve"], "these can: none"),
    (["--weights=sidecar"], "holds its weights"),
    (["--target=x86_64-windows"], "no static networks for Windows")])
def test_wrong_options(options, says, tmp_path):
    model = dense(tmp_path / "m.onnx")
    done = mcc(model, "--emit=static", *(options if "-o" in options else ["-o", tmp_path / "net.a", *options]), cwd=tmp_path)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]

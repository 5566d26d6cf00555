"""The object code of every kernel template: what the schedule keeps in registers stays there.

In the innermost loops of kernels that multiply and add vectors nothing is stored on the stack, and nothing read there unless
the loop keeps more weights than there are registers (depthwise with 16 of them); no innermost loop of a kernel calls
anything; and an object needs nothing but the few functions of libc that every artifact may use.
"""
import pathlib
import re
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper

from support.tool import mcc, save, value

# Of libc and libm alone: the runtime's calls of the system and of memory.
ALLOWED = set("""memcpy memset memmove memcmp malloc free calloc realloc aligned_alloc posix_memalign clock_gettime
    pthread_create pthread_join pthread_attr_init pthread_attr_destroy pthread_attr_setstacksize sysconf syscall getauxval
    dl_iterate_phdr snprintf strlen strcmp _GLOBAL_OFFSET_TABLE_ open close read pread fstat mmap munmap madvise
    fmodf fmod""".split())
FMA = re.compile(r"vfn?m(add|sub)\d+[ps][sd]\b")
STACK_READ = re.compile(r"\(%rsp[^)]*\),")       # AT&T: the source comes first
WEIGHTS_WIDE = {"depthwise"}
VECTOR = re.compile(r"%[yz]mm\d")
FEW = 2          # multiply-adds from which a loop counts as a tile's


def rng(*shape, seed=[0]):
    seed[0] += 1
    return np.random.default_rng(seed[0]).standard_normal(shape).astype(np.float32)


def conv(path, c, m, k, size, **more):
    group = more.get("group", 1)
    save(path, [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[k // 2] * 4, **more),
                helper.make_node("Relu", ["c"], ["y"], "relu")],
         [value("x", [1, c, size, size])], [value("y", ["n", "m", "h", "w"])], {"w": rng(m, c // group, k, k), "b": rng(m)})


def gemm(path, n, k, m):
    save(path, [helper.make_node("MatMul", ["x", "w"], ["h"], "mul"), helper.make_node("Add", ["h", "b"], ["y"], "bias")],
         [value("x", [n, k])], [value("y", [n, m])], {"w": rng(k, m), "b": rng(m)})


def attention(path):
    nodes = [helper.make_node("MatMul", ["q", "k"], ["s"], "scores"), helper.make_node("Softmax", ["s"], ["p"], "softmax"),
             helper.make_node("MatMul", ["p", "v"], ["y"], "mix")]
    save(path, nodes, [value("q", [4, 64, 32]), value("k", [4, 32, 64]), value("v", [4, 64, 32])], [value("y", [4, 64, 32])])


def norm(path):
    save(path, [helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"], "norm")], [value("x", [64, 192])],
         [value("y", [64, 192])], {"g": rng(192), "b": rng(192)})


def pool(path):
    save(path, [helper.make_node("MaxPool", ["x"], ["y"], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])],
         [value("x", [1, 32, 28, 28])], [value("y", [1, 32, 14, 14])])


def transposed(path):
    save(path, [helper.make_node("ConvTranspose", ["x", "w"], ["y"], "up", strides=[2, 2], pads=[1, 1, 1, 1])],
         [value("x", [1, 32, 8, 8])], [value("y", [1, 16, 16, 16])], {"w": rng(32, 16, 4, 4)})


TEMPLATES = {
    "gemm": lambda p: gemm(p, 49, 96, 80), "gemm_rest": lambda p: gemm(p, 13, 33, 41), "gemv": lambda p: gemm(p, 1, 256, 200),
    "conv1x1": lambda p: conv(p, 64, 96, 1, 14), "conv3x3": lambda p: conv(p, 32, 48, 3, 14),
    "conv3x3_stride": lambda p: conv(p, 32, 64, 3, 15, strides=[2, 2]), "conv5x5_first": lambda p: conv(p, 3, 24, 5, 20),
    "few_first": lambda p: conv(p, 1, 8, 5, 28), "few": lambda p: conv(p, 8, 16, 5, 14),
    "few_stride": lambda p: conv(p, 3, 16, 3, 31, strides=[2, 2]),
    "conv_tail": lambda p: conv(p, 24, 40, 3, 7), "grouped": lambda p: conv(p, 32, 64, 3, 10, group=2),
    "depthwise": lambda p: conv(p, 48, 48, 3, 14, group=48), "transposed": transposed, "attention": attention, "norm": norm,
    "pool": pool,
}


def functions(path):
    """{name: [(address, text)]} of an object's kernels."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
    found, current = {}, None
    for line in text.splitlines():
        if head := re.match(r"^[0-9a-f]+ <(.*)>:$", line):
            current = found.setdefault(head[1], []) if re.match(r"k\d+_", head[1]) else None
        elif current is not None and (code := re.match(r"^\s*([0-9a-f]+):\s+(.*)$", line)):
            current.append((int(code[1], 16), code[2]))
    return found


def innermost(code):
    """The instructions of each innermost loop: from the target of a jump back to the jump, with no such jump inside."""
    jumps = [(int(m[1], 16), at) for at, text in code if (m := re.match(r"j\w+\s+([0-9a-f]+)", text)) and int(m[1], 16) <= at]
    return [[text for at, text in code if start <= at <= end] for start, end in jumps
            if not any((s, e) != (start, end) and start <= s and e <= end for s, e in jumps)]


# The softmax of attention has more constants than 16 registers: one of them is read from the stack.
READS = {("attention", "v3"): 1}


@pytest.mark.parametrize("variant", ["v3", "v4"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_inner_loops(template, variant, tmp_path):
    model, out = tmp_path / "m.onnx", tmp_path / "m.o"
    TEMPLATES[template](model)
    done = mcc(model, "-c", f"--variants={variant}", "-o", out)
    assert done.returncode == 0, done.stderr
    kernels = functions(out)
    assert kernels
    tiles = 0
    for name, code in kernels.items():
        for loop in innermost(code):
            assert not any(text.startswith("call") for text in loop), (name, "calls", loop)
            if sum(bool(FMA.match(t) and VECTOR.search(t)) for t in loop) < FEW:
                continue
            tiles += 1
            stack = [t for t in loop if "(%rsp" in t and not (template in WEIGHTS_WIDE and STACK_READ.search(t))]
            assert all(STACK_READ.search(t) for t in stack) and len(stack) <= READS.get((template, variant), 0), (name, stack, len(loop))
    assert tiles or template in ("pool", "norm"), "no loop of multiply-adds was found: does the test still see the code?"


@pytest.mark.parametrize("variant", ["v3", "v4"])
def test_products_of_bytes_stay_in_registers(variant, tmp_path):
    """Without an instruction for them, both operands are taken apart beside the sums of the tile."""
    model, out = tmp_path / "m.onnx", tmp_path / "m.o"
    save(model, [helper.make_node("MatMulInteger", ["x", "w"], ["y"])], [value("x", [12, 64], TensorProto.UINT8)],
         [value("y", [12, 96], TensorProto.INT32)], {"w": np.random.default_rng(1).integers(-127, 127, (64, 96), np.int8)})
    done = mcc(model, "-c", f"--variants={variant}", "-o", out)
    assert done.returncode == 0, done.stderr
    loops = [loop for code in functions(out).values() for loop in innermost(code) if sum(t.startswith("vpmaddwd") for t in loop) > FEW]
    assert loops and not [t for loop in loops for t in loop if "(%rsp" in t]


@pytest.mark.parametrize("template, points, taps", [("few_first", 14, 5), ("few", 14, 5), ("few_stride", 16, 3)])
def test_taps_share_loads(template, points, taps, tmp_path):
    """Where there is one vector of output channels, a broadcast serves all taps of a row that read it."""
    model, out = tmp_path / "m.onnx", tmp_path / "m.o"
    TEMPLATES[template](model)
    done = mcc(model, "-c", "--variants=v4", "-o", out)
    assert done.returncode == 0, done.stderr
    loops = [loop for code in functions(out).values() for loop in innermost(code) if sum(bool(FMA.match(t)) for t in loop) > points]
    assert loops
    for loop in loops:
        steps, loads = sum(bool(FMA.match(t)) for t in loop), sum("(%r" in t and t.startswith("v") for t in loop)
        assert steps % taps == 0 and loads < steps * 0.8, (steps, loads, loop)


@pytest.mark.parametrize("template", ["gemm", "conv1x1"])
def test_addresses_leave_the_loop(template, tmp_path):
    """What a tile's loop does not change is in the bases of its addresses: it counts, scales the panels' index (and that of panels
    which are asked for early, at another scale) and jumps."""
    model, out = tmp_path / "m.onnx", tmp_path / "m.o"
    TEMPLATES[template](model)
    done = mcc(model, "-c", "--variants=v4", "-o", out)
    assert done.returncode == 0, done.stderr
    loops = [loop for code in functions(out).values() for loop in innermost(code)
             if sum(bool(FMA.match(t)) for t in loop) > 8]
    assert loops
    for loop in loops:
        steps = sum(bool(FMA.match(t)) for t in loop)
        scalar = [t for t in loop if not t.startswith(("v", "prefetch"))]
        early = 2 * any(t.startswith("prefetcht1") for t in loop)
        assert len(scalar) <= 6 + early or len(scalar) * 5 <= steps, (scalar, loop)


def test_undefined_symbols(tmp_path):
    for template in ("conv3x3", "attention"):
        out = tmp_path / f"{template}.o"
        model = pathlib.Path(tmp_path / f"{template}.onnx")
        TEMPLATES[template](model)
        assert mcc(model, "-c", "-o", out).returncode == 0
        names = subprocess.run(["nm", "-u", out], capture_output=True, text=True, check=True).stdout.split()
        assert set(names) - {"U", "w"} <= ALLOWED, set(names) - {"U", "w"} - ALLOWED

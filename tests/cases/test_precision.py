"""--precision and --choose NODE:precision=: operands of contractions rounded to bf16 or f16, sums in f32, on every variant; constants in
that width in the file."""
import re

import ml_dtypes
import numpy as np
import pytest
from onnx import helper as h

from support import cpu
from support.artifact import Artifact
from support.tool import mcc, save, value

N = h.make_node
TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
RNG = np.random.default_rng(14)


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def conv(x, w, stride=1, pad=0):
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64))


# inputs, constants, nodes, the result of operands that are rounded
CASES = {
    "pointwise": ({"x": (1, 32, 9, 7)}, {"w": (48, 32, 1, 1)}, [N("Conv", ["x", "w"], ["y"])], lambda x, w: conv(x, w)),
    "3 x 3": ({"x": (2, 16, 10, 12)}, {"w": (32, 16, 3, 3)}, [N("Conv", ["x", "w"], ["y"], pads=[1] * 4)], lambda x, w: conv(x, w, 1, 1)),
    "3 x 3, odd channels": ({"x": (1, 19, 8, 9)}, {"w": (21, 19, 3, 3)}, [N("Conv", ["x", "w"], ["y"], pads=[1] * 4)],
                            lambda x, w: conv(x, w, 1, 1)),
    "strides": ({"x": (1, 9, 22, 22)}, {"w": (16, 9, 5, 5)}, [N("Conv", ["x", "w"], ["y"], strides=[2, 2])], lambda x, w: conv(x, w, 2)),
    "shuffle": ({"x": (1, 32, 9, 7)}, {"w": (48, 32, 1, 1)},
                [N("Reshape", ["x", "five"], ["a"]), N("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3, 4]), N("Reshape", ["b", "four"], ["c"]),
                 N("Conv", ["c", "w"], ["y"])], lambda x, w: conv(x.reshape(1, 2, 16, 9, 7).swapaxes(1, 2).reshape(1, 32, 9, 7), w)),
    "row": ({"x": (1, 96)}, {"w": (96, 80)}, [N("MatMul", ["x", "w"], ["y"])], np.matmul),
    "rows": ({"x": (37, 101)}, {"w": (101, 70)}, [N("MatMul", ["x", "w"], ["y"])], np.matmul),
    "turned": ({"x": (13, 64)}, {"w": (50, 64)}, [N("Gemm", ["x", "w"], ["y"], transB=1)], lambda x, w: x @ w.T),
    "batches": ({"x": (3, 20, 24), "w": (3, 24, 40)}, {}, [N("MatMul", ["x", "w"], ["y"])], np.matmul),
    "groups": ({"x": (3, 96)}, {"w": (96, 40)}, [N("MatMul", ["x", "w"], ["y"])], np.matmul),
    "turned groups": ({"x": ("n", 64)}, {"w": (33, 64)}, [N("Gemm", ["x", "w"], ["y"], transB=1)], lambda x, w: x @ w.T),
    "open rows": ({"x": ("n", 40)}, {"w": (40, 33)}, [N("MatMul", ["x", "w"], ["y"])], np.matmul),
}


SHAPES = {"five": np.array([1, 2, 16, 9, 7]), "four": np.array([1, 32, 9, 7])}


def grouped(w, axes):
    """Whole numbers up to 7 times a scale for each 32 along the one axis, or of input channels; where that is not a multiple, as i8."""
    axis = axes[0]
    if w.shape[axis] % 32:
        return WEIGHTS["i8"](w, axes)
    g = w.reshape(*w.shape[:axis], -1, 32, *w.shape[axis + 1:])
    s = np.abs(g).max(axis=axis + 1, keepdims=True) / np.float32(7)
    return (s * np.rint(g / np.where(s > 0, s, 1))).reshape(w.shape)


def scaled_f8(w, axes):
    """Numbers of f8e4m3fn, whose largest is 448, times a scale for each output channel."""
    s = np.abs(w).max(axis=axes, keepdims=True) / np.float32(448)
    return s * (w / np.where(s > 0, s, 1)).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


WEIGHTS = {"i4": grouped, "bf16": lambda w, axes: w.astype(ml_dtypes.bfloat16), "f16": lambda w, axes: w.astype(np.float16), "f8": scaled_f8,
           "i8": lambda w, axes: (s := np.abs(w).max(axis=axes, keepdims=True) / 127) * np.rint(w / np.where(s > 0, s, 1))}


def variants():
    """Options, and the number of the variant to run: of one CPU each, and all in one artifact, which share what is stored."""
    names = [o.removeprefix("-march=") for o in cpu.levels()]
    if {"avx512_bf16", "avx512_vnni"} <= cpu.flags():
        names.append("x86-64-v4-bf16")
    shared = ["x86-64-v4-bf16", "x86-64-v4", "x86-64-v3", "x86-64-v2"]
    return [(f"-march={n}", 1) for n in names] + [(f"--variants={','.join(shared)}", shared.index(n) + 1) for n in names]


def build(folder, case):
    inputs, constants, nodes, _ = CASES[case]
    return save(folder / "net.onnx", nodes, [value(k, s) for k, s in inputs.items()], [h.make_empty_tensor_value_info("y")],
                {k: drawn(*s) for k, s in constants.items()} | SHAPES)


def weights_of(path):
    import onnx
    return {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("case", CASES)
def test_operands_are_rounded(tmp_path, case, precision):
    path = build(tmp_path, case)
    inputs, _, _, reference = CASES[case]
    feeds = {k: drawn(*(7 if d == "n" else d for d in s)) for k, s in inputs.items()}
    operands = feeds | weights_of(path)
    exact, want = (reference(*[operands[k].astype(t).astype(np.float64) for k in ("x", "w")]) for t in (np.float32, TYPES[precision]))
    scale = np.abs(want).max()
    assert np.abs(exact - want).max() > 1e-4 * scale   # the rounding is seen
    for k, a in feeds.items():
        np.save(tmp_path / f"{k}.npy", a)
    done = mcc("eval", path, f"--precision={precision}", "-o", tmp_path / "eval", *(f"-i{k}={tmp_path / k}.npy" for k in feeds))
    assert done.returncode == 0, done.stderr
    assert np.abs(np.load(tmp_path / "eval/y.npy") - want).max() < 1e-6 * scale
    for option, number in variants():
        output = tmp_path / f"{option.partition('=')[2]}.so"
        if not output.exists():
            done = mcc(path, "-o", output, f"--precision={precision}", option)
            assert done.returncode == 0, done.stderr
        with Artifact(output, flags=number) as a:
            got = a.run(list(feeds.values()))[0]
        assert np.abs(got - want).max() < 2e-6 * scale, (option, number)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("case", ["pointwise", "3 x 3, odd channels", "row", "rows", "turned", "open rows", "groups", "turned groups"])
def test_weights_of_another_type(tmp_path, case, kind):
    path = build(tmp_path, case)
    inputs, _, _, reference = CASES[case]
    x, w = drawn(*(7 if d == "n" else d for d in inputs["x"])), weights_of(path)["w"]
    axes = (1, 2, 3) if w.ndim == 4 else (1,) if "turned" in case else (0,)
    want = reference(x.astype(np.float64), WEIGHTS[kind](w, axes).astype(np.float64))
    scale = np.abs(want).max()
    assert np.abs(want - reference(x.astype(np.float64), w.astype(np.float64))).max() > 1e-5 * scale
    np.save(tmp_path / "x.npy", x)
    assert mcc("eval", path, f"--weights-type={kind}", "-o", tmp_path / "eval", f"-ix={tmp_path}/x.npy").returncode == 0
    assert np.abs(np.load(tmp_path / "eval/y.npy") - want).max() < 3e-6 * scale
    for level in cpu.levels():
        output = tmp_path / f"{level[7:]}.so"
        assert mcc(path, "-o", output, f"--weights-type={kind}", level).returncode == 0
        with Artifact(output) as a:
            assert np.abs(a.run([x])[0] - want).max() < 3e-6 * scale, level


@pytest.mark.parametrize("rows", ["n", 60])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_of_many_rows(tmp_path, kind, rows):
    """With many rows for few registers a block of weights is converted once, into scratch: the same numbers."""
    path = save(tmp_path / "net.onnx", [N("MatMul", ["x", "w"], ["y"])], [value("x", [rows, 96])], [value("y", [rows, 70])], {"w": drawn(96, 70)})
    done = mcc(path, "-o", tmp_path / "net.so", f"--weights-type={kind}", "-march=x86-64-v3")
    assert done.returncode == 0, done
    shown = mcc(path, f"--weights-type={kind}", "-march=x86-64-v3", "-stop-after=schedule", "-o", "-").stdout
    assert re.search(r"decode\.above +[1-9]", shown), shown
    w = WEIGHTS[kind](weights_of(path)["w"], (0,)).astype(np.float64)
    with Artifact(tmp_path / "net.so") as a:
        for n in [60] if rows != "n" else [1, 5, 31, 32, 33, 60]:
            x = drawn(n, 96)
            assert np.abs(a.run([x])[0] - x @ w).max() < 3e-6 * np.abs(x @ w).max(), n


@pytest.mark.parametrize(("kind", "part"), [("bf16", 2), ("f16", 2), ("i8", 4), ("f8", 4), ("i4", 6.4)])
def test_weights_in_the_file(tmp_path, kind, part):
    path = save(tmp_path / "net.onnx", [N("MatMul", ["x", "w"], ["y"])], [value("x", [1, 512])], [value("y", [1, 1024])], {"w": drawn(512, 1024)})
    for option in ("f32", kind):
        assert mcc(path, "-o", tmp_path / f"{option}.so", "-march=native", *([f"--weights-type={kind}"] if option == kind else [])).returncode == 0
    saved = (tmp_path / "f32.so").stat().st_size - (tmp_path / f"{kind}.so").stat().st_size
    assert abs(saved - 512 * 1024 * 4 * (1 - 1 / part)) < 20000


def chain(path):
    """Two convolutions with a residual sum, and a product behind them."""
    nodes = [N("Conv", ["x", "u"], ["a"], "first", pads=[1] * 4), N("Relu", ["a"], ["b"]), N("Conv", ["b", "v"], ["c"], "second", pads=[1] * 4),
             N("Add", ["b", "c"], ["d"]), N("GlobalAveragePool", ["d"], ["e"]), N("Flatten", ["e"], ["f"]), N("Gemm", ["f", "w"], ["y"], "last")]
    return save(path, nodes, [value("x", [1, 16, 14, 14])], [value("y", [1, 1024])],
                {"u": drawn(64, 16, 3, 3), "v": drawn(64, 64, 3, 3) / 16, "w": drawn(64, 1024)})


def run(tmp_path, path, *options):
    output = tmp_path / f"net{len(list(tmp_path.iterdir()))}.so"   # a path of its own: the loader keeps what it has loaded
    done = mcc(path, "-o", output, "-march=native", *options)
    assert done.returncode == 0 and not done.stderr, done.stderr
    with Artifact(output) as a:
        return a.run([np.sin(np.arange(16 * 196, dtype=np.float32)).reshape(1, 16, 14, 14)])[0], output.stat().st_size


@pytest.mark.parametrize("form", [2, 4, 6, "i8", "f8"])
def test_winograd_of_narrow_weights(tmp_path, form):
    """Where that form is faster than products of pairs, operands are rounded and wide again. i8, f8: weights alone, in a byte."""
    options = ["--winograd=4", f"--weights-type={form}"] if form in WEIGHTS else [f"--winograd={form}", "--precision=bf16"]
    w = drawn(64, 64, 3, 3)
    path = save(tmp_path / "net.onnx", [N("Conv", ["x", "w"], ["y"], pads=[1] * 4)], [value("x", [1, 64, 28, 28])],
                [value("y", [1, 64, 28, 28])], {"w": w})
    x = drawn(1, 64, 28, 28)
    rounded = (x, WEIGHTS[form](w, (1, 2, 3))) if form in WEIGHTS else (a.astype(ml_dtypes.bfloat16).astype(np.float64) for a in (x, w))
    want = conv(*rounded, 1, 1)
    march = "x86-64-v4-bf16" if "amx_bf16" in cpu.flags() else "native"      # tile registers are faster than Winograd's form
    done = mcc(path, "-o", tmp_path / "net.so", f"-march={march}", *options, "-Rpass-analysis=schedule")
    assert done.returncode == 0 and ("results of" in done.stderr) == (form != 2), done.stderr
    with Artifact(tmp_path / "net.so") as a:
        assert np.abs(a.run([x])[0] - want).max() < 1e-4 * np.abs(want).max()
    assert (tmp_path / "net.so").stat().st_size < w.nbytes


def gated(path, channels):
    """Maps in front of a pointwise convolution, a gate for each channel among them: its kernel computes them for a chunk of points."""
    nodes = [N("Conv", ["x", "u"], ["a"], "before", pads=[1] * 4, group=16), N("Mul", ["a", "s"], ["b"], "scale"), N("Add", ["b", "t"], ["c"]),
             N("Relu", ["c"], ["d"]), N("Conv", ["d", "w"], ["e"], "after"), N("Add", ["e", "a"], ["y"])]
    return save(path, nodes, [value("x", [2, 16, 15, 13])], [value("y", [2, channels, 15, 13])],
                {"u": drawn(channels, 1, 3, 3), "s": drawn(1, channels, 1, 1), "t": drawn(1, channels, 1, 1), "w": drawn(channels, channels, 1, 1)})


@pytest.mark.parametrize("channels", [32, 48, 80])
def test_staged_pairs(tmp_path, channels):
    path = gated(tmp_path / "net.onnx", channels)
    x = drawn(2, 16, 15, 13)
    np.save(tmp_path / "x.npy", x)
    assert mcc("eval", path, "--precision=bf16", "-o", tmp_path / "eval", f"-ix={tmp_path}/x.npy").returncode == 0
    want = np.load(tmp_path / "eval/y.npy")
    for option, number in variants():
        output = tmp_path / f"{option.partition('=')[2]}.so"
        done = mcc(path, "-o", output, "--precision=bf16", option, "-Rpass-analysis=schedule")
        assert done.returncode == 0 and "operand computed for" in done.stderr, done.stderr
        with Artifact(output, flags=number) as a:
            got = a.run([x])[0]
        # a tie in front of the rounding may fall to the other side: a last bit of one operand of so many products
        assert np.abs(got - want).max() < 2e-3 * np.abs(want).max(), option
        assert np.mean(np.abs(got - want) > 1e-5 * np.abs(want).max()) < 0.02, option


def test_a_network(tmp_path):
    path = chain(tmp_path / "net.onnx")
    exact, bytes_ = run(tmp_path, path)
    weights = (64 * 16 * 9 + 64 * 64 * 9 + 64 * 1024) * 4
    for precision in TYPES:
        got, half = run(tmp_path, path, f"--precision={precision}")
        error = np.abs(got - exact).max() / np.abs(exact).max()
        assert 1e-5 < error < (1e-2 if precision == "bf16" else 2e-3)
        assert bytes_ - half > 0.45 * weights
    assert mcc("diff", path, "--precision=bf16", "-march=native", "--tolerance=0.0001").returncode == 0


def test_a_node(tmp_path):
    path = chain(tmp_path / "net.onnx")
    exact, whole = run(tmp_path, path)
    none, _ = run(tmp_path, path, "--precision=bf16", *(f"--choose={n}:precision=f32" for n in ("first", "second", "last")))
    assert np.abs(none - exact).max() < 1e-5 * np.abs(exact).max()
    last, part = run(tmp_path, path, "--choose=last:precision=bf16")
    assert 1e-5 < np.abs(last - exact).max() / np.abs(exact).max() < 1e-2
    assert whole - part > 0.45 * 4 * 64 * 1024
    (tmp_path / "mcc.yaml").write_text("precision: f32\nchoose: ['last:precision=bf16']\n")
    assert np.array_equal(run(tmp_path, path, f"--config={tmp_path / 'mcc.yaml'}")[0], last)


def test_colours_stay_exact(tmp_path):
    path = save(tmp_path / "net.onnx", [N("Conv", ["x", "w"], ["y"])], [value("x", [1, 3, 9, 9])], [value("y", [1, 16, 7, 7])],
                {"w": drawn(16, 3, 3, 3)})
    assert "convert" not in mcc(path, "--precision=bf16", "-o", "-", "-stop-after=narrow-products").stdout


def test_what_is_no_contraction_is_named(tmp_path):
    path = save(tmp_path / "net.onnx", [N("Relu", ["x"], ["y"], "relu")], [value("x", [3])], [value("y", [3])])
    done = mcc(path, "-o", tmp_path / "net.so", "--choose=relu:precision=bf16")
    assert done.returncode == 0 and "no kernel of 'relu' has this choice" in done.stderr


def errors(text):
    """Of mcc diff --against-f32: {what: (rms, most)}."""
    rows = [line.split(None, 2) for line in text.splitlines()[1:-1]]
    return {what: (float(rms), float(most)) for rms, most, what in rows}


@pytest.mark.parametrize("options", [["--precision=bf16"], ["--precision=f16"], ["--weights-type=i8"], ["-O0", "--precision=bf16"], []])
def test_errors_against_f32(tmp_path, options):
    """The figures are those of two runs of mcc eval, for the output and for a value in the middle; up to what sums in f32 round."""
    path = chain(tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.sin(np.arange(16 * 196, dtype=np.float32)).reshape(1, 16, 14, 14))
    done = mcc("diff", path, "-march=native", "--against-f32", f"-ix={tmp_path / 'x.npy'}", *options)
    assert done.returncode == 0, done.stderr
    found = errors(done.stdout)
    for folder, more in (("exact", []), ("narrow", [o for o in options if o != "-O0"])):
        assert mcc("eval", path, f"-ix={tmp_path / 'x.npy'}", "-o", tmp_path / folder, "--dump=y", "--dump=c", *more).returncode == 0
    last = [k for k in found if k.startswith("kernel") and "(contract; last)" in k or "(map; last)" in k]
    middle = [k for k in found if k.startswith("kernel") and "contract; second" in k]
    # the scales of bytes belong to the sum behind the second convolution, which then stores nothing that the file names
    assert len(last) == 1 and len(middle) == ("--weights-type=i8" not in options), done.stdout
    for name, rows in (("y", ["output 'y'", *last]), ("c", middle)):
        exact, narrow = (np.load(tmp_path / folder / f"{name}.npy").astype(np.float64).ravel() for folder in ("exact", "narrow"))
        apart = np.abs(narrow - exact)
        want = np.sqrt(np.mean(apart ** 2) / np.mean(exact ** 2)), apart.max() / np.abs(exact).max()
        for row in rows:
            assert np.allclose(found[row], want, rtol=0.05, atol=1e-5), (row, found[row], want)
    assert (found["output 'y'"][0] > 1e-5) == bool(options)


def test_errors_of_open_sizes_and_nodes(tmp_path):
    path = build(tmp_path, "open rows")
    done = mcc("diff", path, "--against-f32", "--precision=bf16", "--dim=n=7", "-march=native")
    assert done.returncode == 0 and 1e-4 < errors(done.stdout)["output 'y'"][0] < 1e-2, done.stderr + done.stdout
    path = chain(tmp_path / "chain.onnx")
    one, both = (errors(mcc("diff", path, "--against-f32", "-march=native", *o).stdout)["output 'y'"][0]
                 for o in (["--choose=second:precision=bf16"], ["--precision=bf16"]))
    assert 1e-5 < one < both


@pytest.mark.parametrize("precision", TYPES)
def test_equal_weights(tmp_path, precision):
    """A 3 x 3 convolution by Winograd's form whose weights are one number, which is stored nowhere."""
    number = h.make_tensor("number", h.np_dtype_to_tensor_dtype(np.dtype(np.float32)), [1], [0.375])
    path = save(tmp_path / "net.onnx", [N("ConstantOfShape", ["shape"], ["w"], value=number), N("Conv", ["x", "w"], ["y"], pads=[1] * 4)],
                [value("x", [1, 16, 12, 12])], [value("y", [1, 32, 12, 12])], {"shape": np.array([32, 16, 3, 3])})
    x = drawn(1, 16, 12, 12).astype(TYPES[precision]).astype(np.float32)
    want = conv(x, np.full((32, 16, 3, 3), 0.375), 1, 1)
    for level in ("v2", "v3"):
        done = mcc(path, "-o", tmp_path / "net.so", f"--precision={precision}", f"-march=x86-64-{level}", "--winograd=4")
        assert done.returncode == 0, done.stderr
        with Artifact(tmp_path / "net.so") as a:
            assert np.abs(a.call([x])[0] - want).max() < 1e-3 * np.abs(want).max()

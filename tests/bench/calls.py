"""Small networks through the C interface: time of one call (tests/bench/calls.c) of an MLP of 300 multiplications, which is
nothing but the way in and out, of 784-128-10, and of a CNN of the size that MNIST is shown with.

usage: calls.py          part of `make bench`"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx import helper as h  # noqa: E402

from support.tool import BUILD, mcc, save, value  # noqa: E402

N = h.make_node
LIMIT_US = {"mlp_1_16_16_1": 0.3, "cnn_28x28": 18.0}


def weights(*shape):
    w = np.random.default_rng(sum(shape)).standard_normal(shape)
    return (w / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def mlp(path, *widths):
    nodes, constants, x = [], {}, "x"
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        constants[f"w{i}"], constants[f"b{i}"] = weights(a, b), weights(b)
        last = i + 2 == len(widths)
        nodes += [N("Gemm", [x, f"w{i}", f"b{i}"], ["y" if last else f"g{i}"])]
        nodes += [] if last else [N("Relu", [f"g{i}"], [f"r{i}"])]
        x = f"r{i}"
    return save(path, nodes, [value("x", [1, widths[0]])], [value("y", [1, widths[-1]])], constants)


def cnn(path):
    """0.8 million multiply-adds: 5x5 to 8 channels, pool, 5x5 to 16, pool, classifier."""
    nodes = [N("Conv", ["x", "w1", "b1"], ["c1"], pads=[2] * 4), N("Relu", ["c1"], ["r1"]),
             N("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
             N("Conv", ["p1", "w2", "b2"], ["c2"], pads=[2] * 4), N("Relu", ["c2"], ["r2"]),
             N("MaxPool", ["r2"], ["p2"], kernel_shape=[3, 3], strides=[3, 3]), N("Flatten", ["p2"], ["f"]),
             N("Gemm", ["f", "w3", "b3"], ["y"])]
    constants = {"w1": weights(8, 1, 5, 5), "b1": weights(8), "w2": weights(16, 8, 5, 5), "b2": weights(16),
                 "w3": weights(256, 10), "b3": weights(10)}
    return save(path, nodes, [value("x", [1, 1, 28, 28])], [value("y", [1, 10])], constants)


def time_call(driver, model):
    done = mcc(model, "-o", model.with_suffix(".so"))
    assert done.returncode == 0, done.stderr
    done = subprocess.run([driver, model.with_suffix(".so")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [float(x) / 1e3 for x in done.stdout.split()]


def networks(folder):
    return {"mlp_1_16_16_1": mlp(folder / "a.onnx", 1, 16, 16, 1), "mlp_784_128_10": mlp(folder / "b.onnx", 784, 128, 10),
            "cnn_28x28": cnn(folder / "c.onnx")}


def main():
    good = True
    print(f"{'small network':20} {'us a call':>10} {'quartiles':>19}  limit")
    with tempfile.TemporaryDirectory() as scratch:
        for name, model in networks(pathlib.Path(scratch)).items():
            low, median, high = time_call(BUILD / "tests/bench/calls", model)
            limit = LIMIT_US.get(name)
            good &= limit is None or low <= limit
            print(f"{name:20} {median:10.3f} {low:9.3f} {high:9.3f}  {limit or ''}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Compiled models beside a reference, in a few lines.

    model = Model(tmp_path, nodes, inputs, outputs, constants)    # writes net.onnx
    model.compare([x, y])                                         # -O0 and -O2 against ONNX Runtime
    model.dump("fuse")                                            # text after a stage

Feeds are arrays in the order of the inputs; None and lists as support.artifact has them. Artifacts are made once for each
set of flags, for this machine's CPU alone.
"""
import re

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from support.artifact import Artifact
from support.tool import mcc, save

RTOL, ATOL = 1e-4, 1e-5


def difference(want, got, rtol=RTOL, atol=ATOL):
    """What differs, or ""; floats by tolerance (same infinities and NaNs), everything else exactly."""
    if isinstance(want, list):
        if not isinstance(got, list) or len(want) != len(got):
            return f"a sequence of {len(want)} expected"
        return next(filter(None, (difference(w, g, rtol, atol) for w, g in zip(want, got))), "")
    if want is None or got is None:
        return "" if want is got else "an absent value on one side"
    want, got = np.asarray(want), np.asarray(got)
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{want.dtype}{list(want.shape)} expected, got {got.dtype}{list(got.shape)}"
    if want.dtype.kind in "fc" or want.dtype.itemsize == 2 and want.dtype.kind == "V":
        same = np.isclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)
    else:
        same = want == got
    return "" if np.all(same) else f"{np.size(same) - np.count_nonzero(same)} of {want.size} differ: {want} expected, got {got}"


class Model:
    def __init__(self, folder, nodes=None, inputs=None, outputs=None, constants=None, opset=17, path=None, **more):
        self.folder = folder
        self.path = path or save(folder / "net.onnx", nodes, inputs, outputs, constants, opset, **more)
        self.made, self.session = {}, None

    def compile(self, *flags):
        """The path of the artifact made with flags."""
        if flags not in self.made:
            path = self.folder / f"net{len(self.made)}.so"
            done = mcc(self.path, "-o", path, "-march=native", *flags)
            assert done.returncode == 0, done.stderr
            self.made[flags] = path
        return self.made[flags]

    def refused(self, *flags):
        """The message of a compilation that must end with exit status 1."""
        done = mcc(self.path, "-o", self.folder / "none.so", "-march=native", *flags)
        assert done.returncode == 1, (done.returncode, done.stderr)
        assert not (self.folder / "none.so").exists()
        return done.stderr

    def run(self, feed, *flags):
        with Artifact(self.compile(*flags), threads=1) as a:
            return a.call(feed)

    def want(self, feed):
        """ONNX Runtime's answer, optimisations off."""
        if not self.session:
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.log_severity_level = 3
            self.session = onnxruntime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        return self.session.run(None, {i.name: np.asarray(x) for i, x in zip(self.session.get_inputs(), feed)})

    def compare(self, feed, want=None, flags=("-O0", "-O2"), rtol=RTOL, atol=ATOL):
        """Every set of flags against want (default: ONNX Runtime); returns the outputs of the last."""
        want = self.want(feed) if want is None else want
        for flag in flags:
            got = self.run(feed, *([flag] if isinstance(flag, str) else flag))
            assert len(got) == len(want)
            for i, (w, g) in enumerate(zip(want, got)):
                text = difference(w, g, rtol, atol)
                assert not text, f"{flag}, output {i}: {text}"
        return got

    def dump(self, stage, *flags):
        done = mcc(self.path, f"-stop-after={stage}", "-o", "-", *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kernels(self):
        """What fuse makes: "contract: conv add max", each with the operators that it computes."""
        text = self.dump("fuse")
        op = {i: m[2] for m in re.finditer(r"^ *(%[^=]*) = (\w+)\(", text, re.M) for i in re.findall(r"%\d+", m[1])}
        found = [(m[1], re.search(r" computes((?: %\d+)+)", m[0])) for m in re.finditer(r"^kernel \d+ (\w+) .*", text, re.M)]
        return [f"{kind}: {' '.join(op[i] for i in reversed(made[1].split()))}" for kind, made in found if made]


def node_graph(model):
    """The onnx.ModelProto that a Model wrote."""
    return onnx.load(model.path)


def floats(*shape, seed=0, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def node(op, inputs, outputs, *more, **attributes):
    """helper.make_node with lists as space-separated names; "_" is an omitted operand."""
    split = lambda names: [("" if n == "_" else n) for n in names.split()]
    return helper.make_node(op, split(inputs), split(outputs), *more, **attributes)


def interpreted(model, feed):
    """mcc eval on tensors; outputs are written to the folder eval beside the model."""
    files = []
    for i, x in zip(node_graph(model).graph.input, feed):
        np.save(model.folder / f"{i.name}.npy", x)
        files += ["-i", f"{i.name}={model.folder / i.name}.npy"]
    return mcc("eval", model.path, *files, "-q", "-o", model.folder / "eval")

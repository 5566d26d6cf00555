"""Runs compiled models in a process of its own: a crash or a hang of compiled code becomes an answer.

    judge = Judge()
    status, text = judge.ask(120, "data_sets", model, artifact, sets, rule)

The statuses are "matched", "ran", "wrong", "run error", "crashed", "hung" and "harness error".
"""
import multiprocessing
import pathlib
import sys
import threading
import time

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from conformance import suite  # noqa: E402
from support.artifact import Artifact, ModelError  # noqa: E402

RTOL, ATOL = 1e-3, 1e-5
MCC_E_CANCELLED = -7


def worst(want, got, rtol, atol):
    """(largest difference in parts of what is allowed, None or what differs in kind)"""
    if isinstance(want, list) and want and isinstance(want[0], dict) and isinstance(got, np.ndarray):
        want = np.array([list(m.values()) for m in want], got.dtype)      # ZipMap: mcc gives the tensor of its values
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return 0, f"a sequence of {len(want)} expected"
        parts = [worst(w, g, rtol, atol) for w, g in zip(want, got)]
        return max((p[0] for p in parts), default=0), next(filter(None, (p[1] for p in parts)), None)
    if want is None or got is None or isinstance(got, dict):
        return 0, None if want is got else "an absent value on one side"
    if want.dtype.kind in "OUS":
        same = want.shape == got.shape and all(str(a) == str(b) for a, b in zip(want.reshape(-1), got.reshape(-1)))
        return 0, None if same else "strings differ"
    if want.dtype != got.dtype or want.shape != got.shape:
        return 0, f"{want.dtype}{list(want.shape)} expected, got {got.dtype}{list(got.shape)}"
    if want.dtype.kind in "iub":
        bad = int((want != got).sum())
        return 0, f"{bad} of {want.size} integers differ" if bad else None
    a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (want, got))
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        parts = np.where(same, 0, np.abs(a - b) / (atol + rtol * np.abs(a)))
    return float(np.nan_to_num(parts, nan=np.inf, posinf=np.inf).max(initial=0)), None


def ports_of(model):
    given = {i.name for i in model.graph.initializer} | {i.values.name for i in model.graph.sparse_initializer}
    return [i for i in model.graph.input if i.name not in given]


def feeds_of(artifact, by_name):
    return [by_name.get(p.name.decode()) for p in artifact.inputs]


def data_sets(model_path, artifact, sets, rule):
    """rule: (rtol, atol, outputs left out)"""
    model, (rtol, atol, left_out), most, seen = onnx.load(model_path, load_external_data=False), rule, 0.0, 0
    for data in sets:
        inputs = {p.name: suite.read(data / f"input_{i}.pb", p.type) for i, p in enumerate(ports_of(model))
                  if (data / f"input_{i}.pb").exists()}
        with Artifact(artifact) as a:
            outputs = a.call(feeds_of(a, inputs))
        for i, (got, about) in enumerate(zip(outputs, model.graph.output)):
            file = data / f"output_{i}.pb"
            if not file.exists() or i in left_out:
                continue
            part, text = worst(suite.read(file, about.type), got, rtol, atol)
            if text or part > 1:
                return "wrong", f"{data.name} output {i}: {text or f'{part:.3g} times what is allowed'}"
            most, seen = max(most, part), seen + 1
    return "matched", f"{seen} outputs, at most {most:.2g} of what is allowed"


def drawn(model):
    """Inputs for a model that came without: small numbers, 2 for every open dimension."""
    rng, feeds = np.random.default_rng(1), {}
    for port in ports_of(model):
        about = port.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(about.elem_type)
        shape = [d.dim_value or 2 for d in about.shape.dim]
        values = rng.integers(0, 2, shape) if dtype.kind in "iub" else rng.uniform(0.1, 0.9, shape)
        feeds[port.name] = np.asarray(values).astype(dtype)
    return feeds


def against_runtime(model_path, artifact):
    """Without stored references: drawn inputs, and ONNX Runtime where it takes the model."""
    model = onnx.load(model_path, load_external_data=False)
    feeds = drawn(model)
    with Artifact(artifact) as a:
        outputs = a.call(feeds_of(a, feeds))
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(model_path), options, providers=["CPUExecutionProvider"])
        wanted = session.run(None, feeds)
    except Exception as e:
        return "ran", f"no reference, and none by ONNX Runtime: {str(e).splitlines()[0][:80]}"
    for i, (want, got) in enumerate(zip(wanted, outputs)):
        part, text = worst(want if isinstance(want, list) else np.asarray(want), got, RTOL, ATOL)
        if text or part > 1:
            return "wrong", f"against ONNX Runtime, output {i}: {text or f'{part:.3g} times what is allowed'}"
    return "matched", "ONNX Runtime on drawn inputs"


def feed(artifact, inputs):
    """("value", [arrays]) or ("run error", text)"""
    with Artifact(artifact) as a:
        try:
            return "value", a.call(inputs)
        except ModelError as e:
            return "run error", str(e)


def cancelled(artifact, inputs):
    """A run that would not end: cancelled from another thread."""
    with Artifact(artifact) as a:
        timer = threading.Timer(0.3, lambda: a.api.cancel(a.ctx))
        timer.start()
        try:
            a.call(inputs)
        except ModelError as e:
            return ("cancelled" if e.code == MCC_E_CANCELLED else "run error"), str(e)
        finally:
            timer.join()
    return "value", "it ended"


def misused(artifact):
    """Calls that are wrong, each to be answered by a code: what was taken as right, joined."""
    import ctypes as c
    taken = []
    with Artifact(artifact) as a:
        shape = tuple(a.inputs[0].dims[i].extent for i in range(a.inputs[0].ndim))
        shape = tuple(2 if d < 0 else d for d in shape)
        good, out = np.ones(shape, np.float32), np.zeros(shape, np.float32)

        def wrong(name, change_in=None, change_out=None, x=good, y=out):
            keep, error = [x, y], a.error
            inputs, outputs = a.tensors([x], keep), a.tensors([y], keep)
            if change_in:
                change_in(inputs, keep)
            if change_out:
                change_out(outputs, inputs)
            if a.api.run(a.ctx, inputs, outputs, c.byref(error)) >= 0:
                taken.append(name)

        wrong("x null", lambda t, keep: t.__setitem__(0, None))
        wrong("data null", lambda t, keep: setattr(t[0][0], "data", None))
        wrong("wrong dtype", x=good.astype(np.float64))
        wrong("wrong rank", x=good[None])
        wrong("wrong shape", x=np.ones((shape[0], shape[1] + 1), np.float32))
        wrong("output too small", y=np.zeros((shape[0], shape[1] - 1), np.float32))
        wrong("overlap", change_out=lambda o, i: setattr(o[0][0], "data", i[0][0].data))
        want = a.run([good])[0]
        raw = np.zeros(good.nbytes + 1, np.uint8)[1:]   # any alignment and any strides are to be accepted
        raw.view(np.uint8)[:] = good.view(np.uint8).reshape(-1)

        def off_by_one(tensors, keep):
            keep.append(raw)
            tensors[0][0].data = raw.ctypes.data

        def every_second(tensors, keep):
            wide, strides = np.ones(2 * good.size, np.float32), (c.c_int64 * 2)(2 * shape[1], 2)
            keep += [wide, strides]
            tensors[0][0].data, tensors[0][0].strides = wide.ctypes.data, strides

        for change in (off_by_one, every_second):
            keep, got = [], np.zeros(want.shape, want.dtype)
            inputs = a.tensors([good], keep)
            change(inputs, keep)
            if a.api.run(a.ctx, inputs, a.tensors([got], keep), c.byref(a.error)) < 0 or not (got == want).all():
                taken.append(change.__name__)
    return ("wrong", "not as it must be: " + ", ".join(taken)) if taken else ("matched", "")


WORK = {f.__name__: f for f in (data_sets, against_runtime, feed, cancelled, misused)}


def serve(pipe):
    while True:
        try:
            name, args = pipe.recv()
        except EOFError:   # the asking side has ended
            return
        try:
            answer = WORK[name](*args)
        except ModelError as e:
            answer = "run error", str(e)
        except Exception as e:
            answer = "harness error", f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"
        pipe.send(answer)


class Judge:
    def __init__(self):
        self.process = None

    def ask(self, seconds, name, *args):
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=serve, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
        self.pipe.send((name, args))
        start = time.monotonic()
        try:
            if self.pipe.poll(seconds):
                return self.pipe.recv()
        except EOFError:
            self.process.join()
            code, self.process = self.process.exitcode, None
            return "crashed", f"signal {-code} after {time.monotonic() - start:.1f} s"
        self.process.kill()
        self.process.join()
        self.process = None
        return "hung", f"no answer in {seconds} s"

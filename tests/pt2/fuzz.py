"""Drawn calls of PyTorch's operators, exported and compared with eager PyTorch: `make fuzz-aten N=2000 SEED=1`.

usage: fuzz.py N [SEED] [--only NAME...] [--keep FOLDER]        with a Python that has torch

A draw is a call of calls.py, changed: other sizes, element types, special values, strides; dims negative, arguments left out,
given or None; some tensors are buffers. What PyTorch itself refuses is drawn again. Calls are exported TOGETHER in one
program. A call that mcc refuses is counted by its message; one whose result differs is written to FOLDER as a program of its own.
The exit status is 1 if a result differs, or if mcc or an artifact crashes.

PyTorch runs and exports drawn calls in processes of their own: some of its kernels end them, or write beyond their tensors.
Artifacts run in others, between pages without access (support/guard.py).
"""
import argparse
import collections
import copy
import importlib
import logging
import multiprocessing
import os
import pathlib
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import warnings

import ml_dtypes
import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from pt2 import calls  # noqa: E402
from pt2.writer import Type  # noqa: E402
from support.artifact import Artifact  # noqa: E402
from support.guard import Heap, guarded  # noqa: E402

MCC, BUILD = os.environ.get("MCC", "build/mcc"), pathlib.Path(os.environ.get("MCC_BUILD", "build"))
TOGETHER = 24
FLOATS, INTS = ["float32", "float64", "float16", "bfloat16"], ["int64", "int32", "int16", "int8", "uint8"]
# Operators that multiply elements of one another: what infinities give depends on the order and on products with 0.
MIXING = re.compile("_?(upsample|adaptive_avg|conv|scaled_dot|var|std|native|group|batch|layer|rms|instance|linear$|mm|bmm|matmul|add(mm|mv)|baddbmm|"
                    "mv|dot|einsum|weight_norm|linalg|norm|diff|fft|stft|cdist|pdist|grid_sampler)")
SMALL = [0, 1, 2, 3, 4, 5, 7, 8]


class Tensor:
    """A tensor to be made."""

    def __init__(self, drawn):
        self.shape, self.dtype, self.low, self.high = list(drawn.shape), drawn.dtype, drawn.low, drawn.high
        self.values = drawn.values    # as long as the shape is theirs
        self.special, self.finite, self.strides, self.buffer = False, False, "", False

    def make(self, state):
        kind = torch.bool if self.dtype == "bool" else getattr(torch, self.dtype)
        shape = [2 * n if self.strides == "stepped" else n for n in self.shape]
        if self.strides == "turned":
            shape = shape[::-1]
        low = max(self.low, 0) if self.dtype == "uint8" else self.low
        x = torch.from_numpy(np.asarray(state.uniform(low, max(self.high, low + 1), shape)))
        if self.values and list(np.shape(self.values)) == shape:
            x = torch.tensor(self.values, dtype=torch.float64)
        if self.dtype == "bool":
            x = x > (self.low + self.high) / 2
        elif not kind.is_floating_point:
            x = x.floor()
        elif self.special and x.numel():
            for value in (([] if self.finite else [np.nan, np.inf, -np.inf, 1e4]) + [0.0, -0.0, 1.0, 0.5, -0.5, 2.5])[:1 + x.numel() // 2]:
                x.view(-1)[state.randint(x.numel())] = value
        x = x.to(kind)
        if self.strides == "turned":
            x = x.permute(*range(x.dim() - 1, -1, -1))
        elif self.strides == "stepped":
            x = x[tuple(slice(0, None, 2) for _ in self.shape)]
        elif self.strides == "repeated" and self.shape and self.shape[0]:
            x = x[:1].expand(self.shape)
        return x

    def __repr__(self):
        more = "".join([" special" * self.special, f" {self.strides}" if self.strides else "", " buffer" * self.buffer])
        return f"{self.dtype}{self.shape}{more}"


def tensors_of(value):
    if isinstance(value, Tensor):
        return [value]
    return [t for v in value for t in tensors_of(v)] if isinstance(value, (list, tuple)) else []


def lifted(value):
    if isinstance(value, calls.Drawn):
        return Tensor(value)
    return [lifted(v) for v in value] if isinstance(value, (list, tuple)) else value


def function_of(name):
    domain, op = calls.target(name)
    packet, overload = op.rsplit(".", 1)
    return getattr(getattr(getattr(torch.ops, domain), packet), overload)


class Call:
    def __init__(self, name, args, keywords):
        self.name = name
        self.args, self.keywords = [lifted(a) for a in args], {k: lifted(v) for k, v in keywords.items()}

    @property
    def function(self):
        return function_of(self.name)

    def tensors(self):
        return tensors_of(self.args + list(self.keywords.values()))

    def made(self, seed):
        """Arguments, with arrays in the place of Tensor."""
        state = np.random.RandomState(seed)

        def fill(value):
            if isinstance(value, Tensor):
                return value.make(state)
            if isinstance(value, list):
                return [fill(v) for v in value]
            return getattr(torch, value) if isinstance(value, Type) else value
        return [fill(a) for a in self.args], {k: fill(v) for k, v in self.keywords.items()}

    def __repr__(self):
        return f"{self.name}({', '.join([repr(a) for a in self.args] + [f'{k}={v!r}' for k, v in self.keywords.items()])})"


# ---- changes

def change_sizes(call, draw):
    """One size becomes another, in all tensors: products stay products."""
    sizes = sorted({n for t in call.tensors() for n in t.shape})
    if sizes:
        old, new = draw.choice(sizes), draw.choice(SMALL + [17, 33])
        for t in call.tensors():
            t.shape = [new if n == old else n for n in t.shape]


def change_shape(call, draw):
    t = draw.choice(call.tensors() or [None])
    if t is None:
        return
    kind = draw.randrange(5)
    if kind == 0 and t.shape:
        t.shape[draw.randrange(len(t.shape))] = draw.choice([1, 1, 1, 0, 2, 3])
    elif kind == 1:
        t.shape = t.shape[1:]
    elif kind == 2:
        t.shape = [draw.choice([1, 2, 3])] + t.shape
    elif kind == 3:
        t.shape = []
    else:
        for other in call.tensors():
            other.shape = [draw.choice([1, 2])] + other.shape


def change_type(call, draw):
    tensors = call.tensors()
    if not tensors:
        return
    chosen = draw.choice(tensors)
    kinds = FLOATS if chosen.dtype.startswith(("float", "bfloat")) else INTS if chosen.dtype != "bool" else ["bool"]
    if draw.random() < 0.25:
        kinds = FLOATS + INTS + ["bool"]
    old, new = chosen.dtype, draw.choice(kinds)
    for t in tensors if draw.random() < 0.7 else [chosen]:
        if t.dtype == old:
            t.dtype = new


def change_values(call, draw):
    tensors = call.tensors()
    if tensors:
        t = draw.choice(tensors)
        t.special, t.finite = True, bool(MIXING.match(call.name))
        if draw.random() < 0.3 and t.dtype in FLOATS:
            t.low, t.high = draw.choice([(-100, 100), (-1e-3, 1e-3), (0, 1), (-30, 0)])


def change_memory(call, draw):
    tensors = call.tensors()
    if tensors:
        t = draw.choice(tensors)
        t.strides = draw.choice(["turned", "stepped", "repeated"])
        t.buffer = draw.random() < 0.7


def changed_number(value, draw):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice([value + 1, value - 1, -value, -1 - value, 0, 1, -1, 2, value + 0.5])
    return draw.choice([value * 2, -value, value + 1, 0.0, 1.0, 0.5, 1e-3, float("inf"), int(value) if np.isfinite(value) else 3.0])


def change_argument(call, draw):
    """A number, a list of numbers, a text or a type that the call has."""
    places = [(call.args, n) for n in range(len(call.args))] + [(call.keywords, k) for k in call.keywords]
    places = [(at, k) for at, k in places if not tensors_of(at[k]) and at[k] is not None]
    if not places:
        return
    at, k = draw.choice(places)
    value = at[k]
    if isinstance(value, Type):
        at[k] = Type(draw.choice(FLOATS + INTS + ["bool"]))
    elif isinstance(value, (bool, int, float)):
        at[k] = changed_number(value, draw)
    elif isinstance(value, list) and value and isinstance(value[0], (int, float)):
        n = draw.randrange(len(value))
        at[k] = draw.choice([value[:n] + [changed_number(value[n], draw)] + value[n + 1:], value[1:], value[:1], value[::-1], value + [1]])


def drawn_value(kind, draw, args):
    """A value of an argument's type as its schema has it."""
    text = str(kind)
    if "bool" in text:
        return draw.random() < 0.5
    if "List" in text and "int" in text:
        return draw.choice([[0], [1], [-1], [0, 1], [-1, 0], [1, 1], [2, 1], []])
    if "ScalarType" in text or "dtype" in text:
        return Type(draw.choice(FLOATS + INTS))
    if "number" in text or "float" in text:
        return draw.choice([0, 1, 2, -1, 0.5, 1.5, -2.0])
    if "int" in text:
        return draw.choice([0, 1, -1, 2])
    if "Tensor" in text and "List" not in text:
        have = tensors_of(args)
        return copy.deepcopy(draw.choice(have)) if have else None
    return None


def change_presence(call, draw):
    """Arguments with defaults: left out, or given."""
    schema = call.function._schema.arguments
    if draw.random() < 0.5:
        for _ in range(draw.choice([1, 1, 2])):
            positional = len(call.args)
            if call.keywords and draw.random() < 0.5:
                call.keywords.pop(draw.choice(list(call.keywords)))
            elif positional and schema[positional - 1].has_default_value():
                call.args.pop()
        return
    absent = [a for n, a in enumerate(schema) if n >= len(call.args) and a.name not in call.keywords and a.has_default_value()]
    absent = [a for a in absent if a.name not in ("layout", "device", "pin_memory", "memory_format", "non_blocking", "generator")]
    if not absent:
        return
    a = draw.choice(absent)
    if a.name.endswith("dtype"):
        call.keywords[a.name] = Type(draw.choice(FLOATS + INTS + ["bool"]))
        return
    value = drawn_value(a.type, draw, call.args)
    if value is not None:
        call.keywords[a.name] = value


CHANGES = ([change_sizes] * 4 + [change_shape] * 3 + [change_type] * 4 + [change_values] * 2 + [change_memory] * 2 + [change_argument] * 3
           + [change_presence] * 3)


# ---- what eager says

def eager(call, seed):
    args, keywords = call.made(seed)
    return results(call.function(*args, **keywords))


def results(out):
    """As a program may have them: complex numbers as pairs."""
    return [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in (out if isinstance(out, (list, tuple)) else [out])]


def wide(value):
    """The same number in the widest type of its kind."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype.is_floating_point else value.to(torch.complex128) if value.is_complex() else value
    return [wide(v) for v in value] if isinstance(value, list) else torch.float64 if value in (torch.float32, torch.float16, torch.bfloat16) else value


def eager_wide(call, seed):
    args, keywords = call.made(seed)
    try:
        return results(call.function(*wide(args), **{k: wide(v) for k, v in keywords.items()}))
    except Exception:
        return None


def scaled_otherwise(call, args, want):
    """Is a size given, and a scale that does not make it? Then some sizes go by it, others do not."""
    sizes = want[0].shape[2:]
    scales = [args[n] if n < len(args) else call.keywords.get(a.name) for n, a in enumerate(call.function._schema.arguments) if a.name.startswith("scales")]
    return any(s is not None and int(n * s) != m for n, m, s in zip(args[0].shape[2:], sizes, scales))


# Where PyTorch says nothing of the value, or its own kernels differ from one another.
def undetermined(call, args, want):
    base = call.name.split(".")[0]
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    floats = [a for a in tensors if a.dtype.is_floating_point]
    if base.endswith("nms"):    # boxes are corners in order; NaN has no place in an order
        return bool((args[0][:, 2:] < args[0][:, :2]).any()) or any(bool(a.isnan().any()) for a in tensors) or not 0 <= args[2] <= 1
    if "::dequantize" in base and (len(tensors) > 2 and tensors[2].dtype not in (torch.int64, torch.int32) or not want[0].dtype.is_floating_point):
        return True    # the difference wraps in the type of both; floats out of the range of integers
    if base == "topk":    # which of equal elements is not said, nor the order of those that need not be sorted
        return tensors[0].unique().numel() < tensors[0].numel() or not (args[4] if len(args) > 4 else call.keywords.get("sorted", True))
    if base in ("searchsorted", "bucketize"):    # of what is not sorted, the steps of the search decide
        ordered = args[base == "bucketize"]
        ordered = ordered if len(args) < 6 and not call.keywords.get("sorter") else None
        return ordered is None or bool((ordered[..., 1:] < ordered[..., :-1]).any()) or bool(ordered.isnan().any())
    if "upsample" in base and scaled_otherwise(call, args, want):
        return True
    if base == "_fft_c2r" and (len(set(args[1])) < len(args[1]) or tensors[0].shape[args[1][-1]] != args[3] // 2 + 1):
        return True    # PyTorch's own callers never do
    if any(t.is_complex() for t in tensors):    # which parts are infinite is not said
        return any(not bool(t.isfinite().all()) for t in want)
    if base == "_weight_norm":    # a kernel reads the magnitudes as if they were one for each slice
        dim = (args[2] if len(args) > 2 else call.keywords.get("dim", 0)) % max(tensors[0].dim(), 1)
        return list(tensors[1].shape) != [n if d == dim else 1 for d, n in enumerate(tensors[0].shape)]
    if MIXING.match(call.name) and any(isinstance(a, float) and not np.isfinite(a) for a in [*args, *call.keywords.values()]):
        return True
    outside = any(bool(((a < 0) | ~(a < 100)).any()) for a in floats)
    if outside and any(not t.dtype.is_floating_point and t.dtype != torch.bool for t in want):    # a float out of the integer's range
        return not all(t.dtype in (torch.int64, torch.int32, torch.bool) and all(bool((a.abs() < 1e4).all()) for a in floats) for t in want)
    if base.startswith("pixel") and not all(t.numel() for t in want):    # eager leaves the shape as it is
        return True
    if "shift" in base:
        return any(isinstance(a, torch.Tensor) and a.numel() and bool(((a < 0) | (a > 6)).any()) for a in args[1:]) or \
            any(isinstance(a, (int, float)) and not 0 <= a <= 6 for a in args[1:])
    return False


def tried(call, seed):
    """(results, those of the widest types or None) if PyTorch takes the call and says what they are, else None."""
    try:
        want = eager(call, seed)
        if any(not isinstance(t, torch.Tensor) or t.dim() > 12 or t.numel() > 100_000 for t in want):
            return None
        if not call.tensors() and not want or undetermined(call, call.made(seed)[0], want):
            return None
        again = eager(call, seed)
        if call.name not in calls.RANDOM and not all(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) for a, b in zip(want, again)):
            return None
    except Exception:    # of whatever kind: PyTorch does not take the call
        return None
    return want, eager_wide(call, seed)


def draw_call(name, draw, pytorch):
    """(call, seed, results, those of the widest types), or None: no change that PyTorch takes was found."""
    for _ in range(12):
        call = Call(*draw.choice([c for c in calls.CALLS if c[0] == name]))
        seed = draw.randrange(1 << 30)
        for _ in range(draw.choice([1, 2, 2, 3, 4])):
            draw.choice(CHANGES)(call, draw)
        try:
            found = pytorch.ask(call, seed)
        except Died:
            found = None
        if found:
            return call, seed, *found
    return None


# ---- processes

class Died(Exception):
    """A process ended before it answered."""


class Raised(Exception):
    """What a process answered is an exception, of a type of this name."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


class Process:
    """A fork of this process that answers calls of a function. After its end, the next question makes another."""

    def __init__(self, function):
        self.function, self.child = function, 0

    def begin(self):
        self.pipe, theirs = multiprocessing.Pipe()
        self.child = os.fork()
        if self.child:
            theirs.close()
            return
        try:
            self.pipe.close()
            while True:
                args = pickle.loads(theirs.recv_bytes())
                try:
                    answer = pickle.dumps((None, self.function(*args)))
                except Exception as error:
                    answer = pickle.dumps((type(error).__name__, str(error)))
                theirs.send_bytes(answer)
        finally:
            os._exit(0)

    def ask(self, *args):
        if not self.child:
            self.begin()
        try:
            self.pipe.send_bytes(pickle.dumps(args))
            if not self.pipe.poll(300):
                os.kill(self.child, signal.SIGALRM)
            kind, answer = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            raise Died(f"status {self.end()}") from None
        if kind:
            raise Raised(kind, answer)
        return answer

    def end(self):
        """Its exit code, or minus the number of the signal that ended it."""
        if not self.child:
            return 0
        self.pipe.close()
        status, self.child = os.waitpid(self.child, 0)[1], 0
        return os.waitstatus_to_exitcode(status)


def apart(function, *args):
    """The function's answer, by a process that ends."""
    process = Process(function)
    try:
        return process.ask(*args)
    finally:
        process.end()


# ---- programs

class Fed(int):
    """A tensor's place among the inputs."""


class Whole(int):
    """The same of complex numbers, which are fed as pairs."""


class Kept(str):
    """A tensor's name as buffer."""


class One(nn.Module):
    """A call as a module: its tensors are inputs or buffers."""

    def __init__(self, call, seed):
        super().__init__()
        self.function, self.feeds = call.function, []
        args, keywords = call.made(seed)
        buffers = iter([t.buffer for t in call.tensors()])
        self.args = [self.place(a, buffers) for a in args]
        self.keywords = {k: self.place(v, buffers) for k, v in keywords.items()}

    def place(self, value, buffers):
        if isinstance(value, list):
            return [self.place(v, buffers) for v in value]
        if not isinstance(value, torch.Tensor):
            return value
        if next(buffers):
            name = f"b{len(self._buffers)}"
            self.register_buffer(name, value)
            return Kept(name)
        self.feeds.append(torch.view_as_real(value) if value.is_complex() else value)
        return (Whole if value.is_complex() else Fed)(len(self.feeds) - 1)

    def forward(self, tensors):
        def fill(value):
            if isinstance(value, list):
                return [fill(v) for v in value]
            if isinstance(value, Whole):
                return torch.view_as_complex(tensors[value])
            return tensors[value] if isinstance(value, Fed) else getattr(self, value) if isinstance(value, Kept) else value
        return results(self.function(*[fill(a) for a in self.args], **{k: fill(v) for k, v in self.keywords.items()}))


class Many(nn.Module):
    def __init__(self, modules):
        super().__init__()
        self.calls = nn.ModuleList(modules)

    def forward(self, *tensors):
        found, at = [], 0
        for one in self.calls:
            found += one(tensors[at:at + len(one.feeds)])
            at += len(one.feeds)
        return found + [tensors[-1]]    # a program has an input and an output


def array_of(tensor):
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def save(draws, path):
    """Exports them; the feeds, and (type, shape) of what the exporter says of each result."""
    module = Many([One(call, seed) for call, seed, *_ in draws]).eval()
    feeds = [x for one in module.calls for x in one.feeds] + [torch.zeros(1)]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, tuple(feeds), strict=False)
        torch.export.save(program, path)
    said = [(x.meta["val"].dtype, [n if isinstance(n, int) else None for n in x.meta["val"].shape]) for x in program.graph.output_node().args[0]]
    return [array_of(x) for x in feeds], said[-1 - sum(len(want) for _, _, want, _ in draws):-1]


BOUNDS = {"float64": (1e-9, 1e-9), "float32": (2e-5, 1e-5), "float16": (4e-3, 4e-3), "bfloat16": (3e-2, 3e-2)}


def near(got, want, bounds):
    got, want = got.astype(np.float64), want.astype(np.float64)
    scale = np.abs(want[np.isfinite(want)]).max(initial=1e-30)
    return np.allclose(got, want, rtol=bounds[0], atol=bounds[1] * min(scale, 1e30), equal_nan=True)


def differs(call, got, want, best):
    """A word for how, or None."""
    want = array_of(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} is not {want.dtype}{list(want.shape)}"
    if call.name in calls.RANDOM:
        return None
    if "upsample" in call.name and str(want.dtype) == "uint8":    # PyTorch's weights are of 16 bits
        return None if np.abs(got.astype(int) - want).max(initial=0) <= 1 else "values"
    if str(want.dtype) not in BOUNDS:
        return None if np.array_equal(got, want) else "values"
    bounds = max([BOUNDS[str(want.dtype)]] + [BOUNDS[t.dtype] for t in call.tensors() if t.dtype in BOUNDS])
    if "upsample" in call.name or "quantize" in call.name:    # places, and scales, are of f32
        bounds = max(bounds, (1e-5, 1e-5))
    with np.errstate(all="ignore"):
        if near(got, want, bounds) or (best is not None and best.shape == want.shape and near(got, best.astype(want.dtype), bounds)):
            return None
    return "values"


def places(got, want):
    """The first elements that differ most plainly."""
    if got.shape != want.shape:
        return ""
    with np.errstate(all="ignore"):
        apart = ~np.isclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-3, atol=1e-30, equal_nan=True)
    return "".join(f"; {list(map(int, at))} is {got[tuple(at)]}, not {want[tuple(at)]}" for at in np.argwhere(apart)[:4])


def mcc(*args):
    return subprocess.run([MCC, *args], capture_output=True, text=True, errors="replace", timeout=300)


def refusals(draws, path, text):
    """{place in draws: message} of what mcc said of a program."""
    found = {}
    for line in text.splitlines():
        at = re.search(r"\bcalls\.(\d+)/", line)
        if at and "error: " in line:
            found.setdefault(int(at[1]), line.split("error: ", 1)[1])
    return found


def judge(draws, folder, tally):
    """Compiles and runs the draws together, less those that mcc refuses."""
    path, so = folder / "calls.pt2", folder / "calls.so"
    while draws:
        try:
            feeds, said = apart(save, draws, path)
        except (Died, Raised) as error:    # the exporter's own refusals
            if len(draws) == 1:
                tally.add("not exported", draws[0], (str(error) or error.kind).splitlines()[0][:150])
                return
            for half in (draws[:len(draws) // 2], draws[len(draws) // 2:]):
                judge(half, folder, tally)
            return
        done = mcc("-q", "-march=native", "--no-cache", path, "-o", so)
        if done.returncode == 0:
            compare(draws, feeds, said, so, tally, folder)
            return
        found = refusals(draws, path, done.stderr)
        if not found or done.returncode not in (1, 3, 4):
            if len(draws) == 1:
                kind = "refused" if done.returncode in (1, 3, 4) else "crashed"
                tally.add(kind, draws[0], done.stderr.strip()[-300:])
                return
            for draw in draws:
                judge([draw], folder, tally)
            return
        for k, message in found.items():
            tally.add("refused", draws[k], message)
        draws = [d for k, d in enumerate(draws) if k not in found]


def traced(said, want):
    """Does the exporter say of a result what eager PyTorch does? Sizes that the data gives are not numbers."""
    return said[0] == want.dtype and all(n in (None, m) for n, m in zip(said[1], want.shape))


def outputs(so, feeds):
    heap = Heap()
    with Artifact(so, alloc=heap.alloc, release=heap.release) as a:
        got = a.run([guarded(x) for x in feeds])
    if heap.broken or heap.blocks:
        raise ValueError(f"{heap.broken} blocks written around, {len(heap.blocks)} not given back")
    return got


def compare(draws, feeds, said, so, tally, folder):
    try:
        got = apart(outputs, so, feeds)
    except (Died, Raised) as error:
        failed = isinstance(error, Raised) and error.kind == "ModelError"
        if len(draws) == 1 and failed and "out of range" in str(error) and not all(t.numel() for t in draws[0][2]):
            tally.kinds["agree"] += 1    # an index into nothing, which PyTorch lets pass
        elif len(draws) == 1 or not failed:
            tally.add("failed" if failed else "crashed", draws[0], str(error), draws)
        if len(draws) > 1:
            for draw in draws:
                judge([draw], folder, tally)
        return
    at = 0
    for draw in draws:
        call, seed, want, best = draw
        best = [array_of(t) for t in best] if best and len(best) == len(want) else [None] * len(want)
        count = 1 if call.name in calls.FIRST else len(want)
        words = [differs(call, g, w, x) for g, w, x in list(zip(got[at:at + len(want)], want, best))[:count]]
        wrong = [f"result {k}: {word}{places(got[at + k], array_of(want[k]))}" for k, word in enumerate(words) if word]
        other = not all(traced(s, w) for s, w in zip(said[at:at + len(want)], want))
        at += len(want)
        tally.add("agree" if not wrong else "traced otherwise" if other else "differs", draw, "\n".join(wrong))


class Tally:
    def __init__(self, keep):
        self.kinds, self.messages, self.keep = collections.Counter(), collections.defaultdict(list), keep

    def add(self, kind, draw, message, program=None):
        """program: the draws of the one to keep, if they are more."""
        call, seed, *_ = draw
        self.kinds[kind] += 1
        if kind == "agree":
            return
        self.messages[kind, re.sub(r"\d+", "#", message.split("\n")[0])[:120] if kind != "differs" else call.name].append((call, seed))
        print(f"{kind} {call} seed {seed}: {message[:1500]}", flush=True)
        if kind in ("differs", "crashed", "failed"):
            self.keep.mkdir(parents=True, exist_ok=True)
            apart(save, program or [draw], self.keep / f"{call.name}-{seed}{'-more' * (len(program or ()) > 1)}.pt2")


def known(name):
    """Is the operator there? Other libraries' may not be installed."""
    try:
        return function_of(name) is not None
    except AttributeError:
        return False


def run(n, seed, only, keep):
    for library in ("torch.ao.quantization.fx._decomposed", "torchvision"):
        try:
            importlib.import_module(library)
        except ImportError:
            print(f"skip operators of {library}, which is not installed")
    names = sorted({c[0] for c in calls.CALLS} if not only else {c[0] for c in calls.CALLS if c[0] in only or c[0].split(".")[0] in only})
    names = [name for name in names if known(name)]
    draw, tally, draws, pytorch = random.Random(seed), Tally(keep), [], Process(tried)
    torch.set_num_threads(1)
    logging.disable(logging.ERROR)    # of the exporter's own refusals
    torch.export.export(nn.Identity(), (torch.zeros(1),))    # imports what each exporting process needs
    order = draw.sample(names, len(names))
    with tempfile.TemporaryDirectory() as folder:
        for k in range(n):
            drawn = draw_call(order[k % len(order)], draw, pytorch)
            if drawn is None:
                tally.kinds["not drawn"] += 1
            else:
                draws.append(drawn)
            if len(draws) == TOGETHER or k == n - 1:
                pytorch.end()    # what its kernels have damaged ends with it
                judge(draws, pathlib.Path(folder), tally)
                draws = []
    return tally


def main():
    options = argparse.ArgumentParser()
    options.add_argument("n", type=int)
    options.add_argument("seed", type=int, nargs="?", default=1)
    options.add_argument("--only", nargs="*")
    options.add_argument("--keep", type=pathlib.Path, default=BUILD.resolve() / "fuzz-aten")
    given = options.parse_args()
    tally = run(given.n, given.seed, given.only, given.keep)
    for (kind, message), found in sorted(tally.messages.items(), key=lambda m: (m[0][0], -len(m[1]))):
        print(f"{len(found):5} {kind}: {message}")
    print(", ".join(f"{kind} {n}" for kind, n in tally.kinds.most_common()))
    sys.exit(any(tally.kinds[k] for k in ("differs", "crashed", "failed")))


if __name__ == "__main__":
    main()

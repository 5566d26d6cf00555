#!/usr/bin/env python3
"""Networks of PyTorch's packages with drawn weights: torch.export, mcc, one line each. PyTorch in f64 is the oracle.

usage: pt2.py [NAME...]        with a Python that has torch; exports once, into BUILD/pt2. A NAME is a network's or a package's (timm);
                               real/nets/ has the tables, and lacks those whose package is not installed. RESULTS=FILE: lines are
                               appended to the file, and a network that has some there is not run again

Of equal blocks in a row a network keeps two. It is exported with those dims dynamic that its other inputs change (that of the batch, if
torch.export refuses more; else static), and the same program decomposed to core operators. A dynamic form runs at two sizes. Results:

    agree      within BOUND of an output's largest element, or within LARGER times what PyTorch in f32 is off (LARGEST)
    refused    mcc does not compile it: its message
    wrong      neither: the compiler, a run, or the results
    skipped    torch.export does not accept it, or not within EXPORT seconds

and the processor time of mcc.
"""
import copy
import logging
import os
import pathlib
import pickle
import re
import resource
import signal
import sys
import tempfile
import warnings
import zlib

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import torch  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from real.nets import ABSENT, NETS  # noqa: E402
from support.artifact import Artifact, ModelError  # noqa: E402
from support.tool import BUILD, mcc  # noqa: E402

BOUND, LARGER, LARGEST, SECONDS, EXPORT = 1e-4, 4, 1e-2, 1800, 90
RESULTS = pathlib.Path(os.environ.get("RESULTS") or os.devnull)
FORMS = {"sizes": (0, 2), "batch": (0, 1), "static": (0,)}    # the inputs that each is run with; the first that can be exported, and "core"


def key(block):
    """Blocks of the same key are alike; rates of dropout say nothing."""
    shapes = [x.shape for x in block.state_dict().values()]
    return type(block), shapes, re.sub(r"\bp=[0-9.e-]+|drop_prob=[0-9.e-]+", "", repr(block))


def shorter(net):
    """A copy with two of equal blocks in a row."""
    net = copy.deepcopy(net)
    for module in net.modules():
        if isinstance(module, (torch.nn.Sequential, torch.nn.ModuleList)) and len(module) > 2:
            blocks, keys = list(module._modules.items()), [key(m) for m in module]
            kept = [b for i, b in enumerate(blocks) if i < 2 or keys[i] != keys[i - 1] or keys[i] != keys[i - 2]]
            numbered = all(name.isdigit() for name, _ in blocks)
            module._modules = type(module._modules)((str(i) if numbered else name, m) for i, (name, m) in enumerate(kept))
    return net


def short(net, draws):
    """The network with fewer blocks, if it still runs."""
    try:
        less = shorter(net)
        for x in draws:
            call(less, x)
        return less
    except Exception:
        return net


def drawn(net):
    """Every weight matters: normalisations are kept from the identity, zero parameters and scales of layers are drawn."""
    for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
        if tensor.numel() == 0 or not tensor.is_floating_point():
            continue
        if name.endswith(("running_mean", "running_var")):
            tensor.data.uniform_(*((-0.1, 0.1) if name.endswith("mean") else (0.5, 1.5)))
        elif isinstance(tensor, torch.nn.Parameter) and tensor.dim() < 4 and (tensor == tensor.flatten()[0]).all():
            tensor.data.normal_(0, 0.02) if not tensor.any() else tensor.data.uniform_(0.5, 1.5)
    return net.eval()


def cast(inputs, dtype):
    return {k: x.to(dtype) if x.is_floating_point() else x for k, x in inputs.items()}


def call(net, inputs):
    """The tensors of what the network returns. Inputs without a name, 0, 1, ..., are positional."""
    args = [x for k, x in inputs.items() if isinstance(k, int)]
    out = net(*args, **{k: x for k, x in inputs.items() if isinstance(k, str)})
    return [t.detach().numpy() for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]


def oracle(net, draws, results):
    """The results in f64; those in f32 if the network makes f32 tensors of its own that do not fit, or numbers that f64 makes NaN."""
    torch.set_default_dtype(torch.float64)
    try:
        wide = [call(net.double(), cast(x, torch.float64)) for x in draws]
        odd = any((np.isfinite(a) != np.isfinite(b)).any() for x, y in zip(wide, results) for a, b in zip(x, y))
        return results if odd else wide
    except RuntimeError:
        return results
    finally:
        torch.set_default_dtype(torch.float32)


def dynamic(first, other):
    """What changes from one set of inputs to the other, for torch.export."""
    return {k: {d: torch.export.Dim.DYNAMIC for d in range(x.dim()) if x.shape[d] != other[k].shape[d]} for k, x in first.items()}


def exported(net, draws, form):
    first, sizes = draws[0], dynamic(draws[0], draws[FORMS[form][-1]])
    args, keywords = (tuple(k for k in first if isinstance(k, kind)) for kind in (int, str))
    sizes = (tuple(sizes[k] for k in args) if args else {k: sizes[k] for k in keywords}) if form != "static" else None
    return torch.export.export(net, tuple(first[k] for k in args), {k: first[k] for k in keywords}, dynamic_shapes=sizes, strict=False)


def decomposed(program, net, draws, runs):
    """And the inputs that it takes: PyTorch cannot decompose some dynamic programs whose guards it wrote itself."""
    try:
        return program.run_decompositions(), runs
    except NameError:
        return exported(net, draws, "static").run_decompositions(), (0,)


def late(*_):
    raise TimeoutError(f"more than {EXPORT} s")


def prepare(name, folder):
    """Exports the forms and records the inputs and PyTorch's results in f64 and f32, as NAME.pkl: written last."""
    make, inputs = NETS[name]
    torch.manual_seed(zlib.crc32(name.encode()))
    net, draws, refused, forms, program = make().eval(), inputs(), {}, {}, None
    net = drawn(short(net, draws))
    results = [call(net, x) for x in draws]
    signal.signal(signal.SIGPROF, late)
    for form in [f for f, runs in FORMS.items() if runs[-1] < len(draws)] + ["core"]:
        if (form == "core") != bool(forms):
            continue
        signal.setitimer(signal.ITIMER_PROF, EXPORT)    # processor time
        try:
            runs = FORMS.get(form, next(iter(forms.values()), None))
            if form == "core":
                program, runs = decomposed(program, net, draws, runs)
            else:
                program = exported(net, draws, form)
            for k in runs:
                call(program.module(), draws[k])    # what the exporter bounded wrongly, it refuses
            torch.export.save(program, folder / f"{name}-{form}.pt2")
            forms[form] = runs
        except Exception as e:
            refused[form] = " ".join(f"{type(e).__name__}: {e}".split())[:160]
        signal.setitimer(signal.ITIMER_PROF, 0)
    record = {"draws": [{k: x.numpy() for k, x in d.items()} for d in draws], "f32": results, "refused": refused, "forms": forms,
              "f64": oracle(net, draws, results)}
    (folder / f"{name}.pkl").write_bytes(pickle.dumps(record))


def off(want, got):
    """The largest difference over the scale of `want`; NaN is equal to NaN."""
    scale = max(float(np.abs(want[np.isfinite(want)]).max(initial=0)), 1e-30)
    with np.errstate(invalid="ignore"):
        gap = np.where((want == got) | (np.isnan(want) & np.isnan(got)), 0, np.abs(want - got))
    return float(np.nan_to_num(gap, nan=np.inf).max(initial=0)) / scale


def compare(want, eager, got):
    """(largest error over the scale, PyTorch's own, None or what is wrong)"""
    if len(got) != len(want):
        return 0, 0, f"{len(got)} outputs, not {len(want)}"
    errors = [(0.0, 0.0)]
    for n, (w, e, g) in enumerate(zip(want, eager, got)):
        if g.shape != e.shape or g.dtype != e.dtype:
            return 0, 0, f"output {n}: {e.dtype}{list(e.shape)} expected, got {g.dtype}{list(g.shape)}"
        if g.dtype.kind != "f":
            if (g != e).any():
                return 0, 0, f"output {n}: {int((g != e).sum())} of {g.size} integers differ"
            continue
        errors.append((off(w, g), off(w, e)))
        if not errors[-1][0] <= max(BOUND, min(LARGER * errors[-1][1], LARGEST)):
            return *errors[-1], f"output {n}"
    return *np.max(errors, axis=0), None


def judge(path, form, record):
    """(agree, refused or wrong; why)"""
    if form in record["refused"]:
        return "skipped", record["refused"][form]
    with tempfile.TemporaryDirectory() as folder:
        artifact = pathlib.Path(folder) / "model.so"
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = mcc(path, "-q", "-march=native", "-o", artifact, timeout=SECONDS)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
        if done.returncode:
            errors = [text for text in done.stderr.splitlines() if "error:" in text] or [f"exit {done.returncode}"]
            return "wrong" if done.returncode in (5, *range(-64, 0)) else "refused", f"{errors[0].split('error: ')[-1][:200]} ({len(errors)} errors)"
        errors = []
        with Artifact(artifact) as a:
            names = [p.name.decode() for p in a.inputs]
            for k in record["forms"][form]:
                given = record["draws"][k]
                feeds = [given[n] for n in names] if isinstance(next(iter(given)), str) else list(given.values())
                try:
                    *found, wrong = compare(record["f64"][k], record["f32"][k], a.run(feeds))
                except ModelError as e:
                    return "wrong", str(e)
                errors.append(found)
                if wrong:
                    return "wrong", f"inputs {k}, {wrong}: off by {found[0]:.1e} of the scale, PyTorch in f32 by {found[1]:.1e}"
        error, own = np.max(errors, axis=0)
        return "agree", f"off by {error:.1e} of the scale, PyTorch in f32 by {own:.1e}; {seconds:.1f} s"


def say(kind, name, text):
    line = f"{kind:8} {name:32} {text}"
    print(line, flush=True)
    with RESULTS.open("a") as file:
        file.write(line + "\n")


def known():
    """The networks that have results: {name: is one wrong?}"""
    lines = [line.split() for line in (RESULTS.read_text().splitlines() if RESULTS.exists() else [])]
    return {line[1]: any(other[:2] == ["wrong", line[1]] for other in lines) for line in lines if len(line) > 1}


def check(name, folder):
    """Prints the network's lines; True if none is wrong."""
    kinds = set()
    if not (folder / f"{name}.pkl").exists():
        prepare(name, folder)
    record = pickle.loads((folder / f"{name}.pkl").read_bytes())
    for form in [*FORMS, "core"]:
        if form in record["refused"] or form in record["forms"]:
            kind, text = judge(folder / f"{name}-{form}.pt2", form, record)
            say(kind, name, f"{form:8} {text}")
            kinds.add(kind)
    return "wrong" not in kinds


def apart(name, folder):
    """check() in a process of its own, which may end in any way."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            with torch.no_grad():
                os._exit(0 if check(name, folder) else 1)
        except Exception as e:
            say("wrong", name, f"{type(e).__name__}: {' '.join(str(e).split())[:200]}")
        os._exit(2)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        say("wrong", name, f"the process ended by signal {os.WTERMSIG(status)}")
    return status == 0


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)    # the words of exporters about guards
    folder = BUILD / "pt2"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:] or list(NETS)
    names = [n for w in wanted for n in NETS if n == w or n.startswith(f"{w}.")]
    for text in ABSENT:
        print(f"left out: {text}")
    if not names:
        sys.exit(f"no network is called {' or '.join(wanted)}")
    before = known()
    wrong = sum(before[name] if name in before else not apart(name, folder) for name in names)
    print(f"{wrong} of {len(names)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes what test_calls.py compares with, and the programs of test_programs.py. Run it with a Python that has torch:

    cd tests && PYTHONPATH=. python pt2/record.py [NAME of modules.py ...]

calls.npz has PyTorch's results of every call of calls.py; data/NAME.pt2 are modules as torch.export.save writes them, less what is not
needed and names the exporter's machine, data/NAME.npz their inputs and results at two sizes.
"""
import json
import pathlib
import sys
import zipfile

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (quantized_decomposed)
import torchvision  # noqa: F401

from pt2 import calls, modules
from pt2.writer import Type

HERE = pathlib.Path(__file__).resolve().parent


def torch_value(value, name=""):
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, Type):
        return getattr(torch, value)
    return [torch_value(v) for v in value] if isinstance(value, list) else value


def record_calls():
    index, data = [], b""
    for k in range(len(calls.CALLS)):
        name, args, keywords = calls.drawn(k)
        domain, op = calls.target(name)
        packet, overload = op.split(".")
        packet = packet if hasattr(getattr(torch.ops, domain), packet) and overload in getattr(getattr(torch.ops, domain), packet).overloads() else packet + "_"
        function = getattr(getattr(getattr(torch.ops, domain), packet), overload)
        out = function(*map(torch_value, args), **{n: torch_value(v) for n, v in keywords.items()})
        for tensor in out if isinstance(out, (list, tuple)) else [out]:
            array = tensor.resolve_conj().resolve_neg().numpy()
            index.append([k, str(array.dtype), array.shape])
            data += array.tobytes()
    # one array: an archive of a thousand small ones is larger than what they hold
    np.savez_compressed(HERE / "calls.npz", index=json.dumps(index), data=np.frombuffer(data, np.uint8))


def scrubbed(document):
    """Without metadata, which holds stack traces of the exporter's machine."""
    if isinstance(document, dict):
        return {k: {} if k == "metadata" else scrubbed(v) for k, v in document.items() if k not in ("requires_grad", "torch_version")}
    return [scrubbed(v) for v in document] if isinstance(document, list) else document


def repack(source, target):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            data = old.read(info)
            if "sample_inputs" in info.filename or info.filename.endswith("serialization_id"):
                continue
            if "/models/" in info.filename:
                data = json.dumps(scrubbed(json.loads(data)), separators=(",", ":")).encode()
            new.writestr(zipfile.ZipInfo(info.filename, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)


def record_modules(names):
    (HERE / "data").mkdir(exist_ok=True)
    for name in names:
        make, draws, dynamic = modules.MODULES[name]
        torch.manual_seed(0)
        module = make().eval()
        arrays = {}
        for k, inputs in enumerate(draws):
            given = [t.clone() for t in inputs]
            leaves = [t.detach() for t in torch.utils._pytree.tree_leaves(module(*given))]
            leaves += [now for now, before in zip(given, inputs) if not torch.equal(now, before)]    # written
            arrays |= {f"{k}.in.{n}": t.numpy() for n, t in enumerate(inputs)} | {f"{k}.out.{n}": t.numpy() for n, t in enumerate(leaves)}
        torch.manual_seed(0)
        module = make().eval()    # as it was
        np.savez_compressed(HERE / f"data/{name}.npz", **arrays)
        with torch.no_grad():
            program = torch.export.export(module, tuple(draws[0]), dynamic_shapes=dynamic)
            for form, exported in (("", program), ("_core", program.run_decompositions())):
                torch.export.save(exported, HERE / "data/raw.pt2")
                repack(HERE / "data/raw.pt2", HERE / f"data/{name}{form}.pt2")
    (HERE / "data/raw.pt2").unlink()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        record_calls()
    record_modules(sys.argv[1:] or modules.MODULES)

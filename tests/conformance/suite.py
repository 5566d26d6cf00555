"""The ONNX 1.22.0 backend suite as the onnx package ships it: cases, inputs, expected outputs, the official comparison
(onnx/backend/test/runner/__init__.py: rtol 1e-3, atol 1e-7; shape and type exact; strings exact; sequences by element).
"""
import json
import pathlib

import numpy as np
import onnx
from onnx import numpy_helper

DATA = pathlib.Path(onnx.__file__).parent / "backend/test/data"
SETS = ("node", "simple", "pytorch-converted", "pytorch-operator")
# The expected values are draws of numpy's global generator: only shape, type and range can be held against them.
RANDOM = tuple(f"node/test_bernoulli{kind}{expanded}" for kind in ("", "_double", "_seed") for expanded in ("", "_expanded"))


class Case:
    def __init__(self, name, model, data=None, rtol=1e-3, atol=1e-7):
        self.name, self.model, self.data, self.rtol, self.atol = name, model, data, rtol, atol


def cases():
    found = {}
    for group in SETS:
        for folder in sorted((DATA / group).iterdir()):
            if (folder / "model.onnx").exists():
                name = f"{group}/{folder.name}"
                # The expected bins of these are float32 noise around 0; onnx's own reference run relaxes them the same.
                noise = {"atol": 1e-6} if folder.name.startswith("test_dft_inverse") else {}
                found[name] = Case(name, folder / "model.onnx", folder / "test_data_set_0", **noise)
    for folder in sorted((DATA / "real").iterdir()):
        about = json.loads((folder / "data.json").read_text())
        name = f"real/{folder.name}"
        found[name] = Case(name, DATA / "light" / pathlib.Path(about["url"]).name, None, about["rtol"], about["atol"])
    return found


def erase(model, path):
    """Saves the model with every dim of every graph input a symbol of its own and no shapes on outputs; returns path."""
    given = {i.name for i in model.graph.initializer}
    for k, port in enumerate(p for p in model.graph.input if p.name not in given):
        if port.type.WhichOneof("value") == "tensor_type":
            for i, d in enumerate(port.type.tensor_type.shape.dim):
                d.dim_param = f"in{k}_{i}"
    for port in model.graph.output:
        if port.type.WhichOneof("value") == "tensor_type":
            port.type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    return path


def object_of_proto(proto, type_proto):
    kind = type_proto.WhichOneof("value")
    if kind == "sequence_type":
        return [numpy_helper.to_array(t) for t in proto.tensor_values]
    if kind == "optional_type":
        inner = type_proto.optional_type.elem_type
        if proto.elem_type == onnx.OptionalProto.UNDEFINED:
            return None
        return object_of_proto(proto.sequence_value if inner.HasField("sequence_type") else proto.tensor_value, inner)
    return numpy_helper.to_array(proto)


def read(path, type_proto):
    kinds = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}
    proto = kinds.get(type_proto.WhichOneof("value"), onnx.TensorProto)()
    proto.ParseFromString(path.read_bytes())
    return object_of_proto(proto, type_proto)


def inputs_and_outputs(case):
    """What the official runner feeds and expects, in port order."""
    model = onnx.load(case.model)
    given = {i.name for i in model.graph.initializer}
    ports = [i for i in model.graph.input if i.name not in given]
    if case.data is None:
        shapes = [[d.dim_value for d in p.type.tensor_type.shape.dim] for p in ports]
        feeds = [(np.arange(np.prod(s), dtype=np.float32) / np.prod(s)).reshape(s).astype(np.float32) for s in shapes]
        expected = case.model.with_name(case.model.stem + "_output_0.pb")
        return feeds, [read(expected, model.graph.output[0].type)]
    feeds = [read(case.data / f"input_{i}.pb", p.type) for i, p in enumerate(ports)
             if (case.data / f"input_{i}.pb").exists()]
    outputs = [read(case.data / f"output_{i}.pb", p.type) for i, p in enumerate(model.graph.output)
               if (case.data / f"output_{i}.pb").exists()]
    return feeds, outputs


def optional_inputs(case):
    """Numbers of the inputs whose type is an optional."""
    model = onnx.load(case.model)
    given = {i.name for i in model.graph.initializer}
    return {k for k, p in enumerate(p for p in model.graph.input if p.name not in given) if p.type.HasField("optional_type")}


def differs(want, got, case):
    """None, or how the two differ."""
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return f"a sequence of {len(want)} expected"
        return next(filter(None, (differs(w, g, case) for w, g in zip(want, got))), None)
    if want is None or got is None:
        return None if want is got else "an absent optional on one side"
    if got.dtype != want.dtype and not (want.dtype.kind in "OUS" and got.dtype.kind in "OUS"):
        return f"type {want.dtype} expected, got {got.dtype}"
    if got.shape != want.shape:
        return f"shape {want.shape} expected, got {got.shape}"
    if case.name in RANDOM:
        return None if np.isin(got, (0, 1)).all() else "values other than 0 and 1"
    if want.dtype.kind in "OUS":
        same = all(str(a) == str(b) for a, b in zip(want.reshape(-1), got.reshape(-1)))
        return None if same else "strings differ"
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    if want.dtype.kind in "iub" and want.dtype.itemsize == 8:
        a, b = want, got
        bad = np.abs(a.astype(object) - b.astype(object)) > case.atol + case.rtol * np.abs(a.astype(object))
        bad = np.asarray(bad, dtype=bool)
    else:
        a, b = want.astype(wide), got.astype(wide)
        bad = ~np.isclose(b, a, rtol=case.rtol, atol=case.atol, equal_nan=True)
    if not bad.any():
        return None
    at = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
    return f"{int(bad.sum())} of {bad.size} values differ, first at {at}: {want[at]} expected, got {got[at]}"

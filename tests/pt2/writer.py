"""Programs as torch.export.save writes them, made without torch: an archive with the graph as JSON and raw weights."""
import io
import json
import pathlib
import re
import struct
import zipfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 8, "bool": 12, "bfloat16": 13,
         "complex64": 10, "complex128": 11}
SCHEMAS = {(d, op): [a.split(":")[0] for a in args.split()] for d, ops, args in
           re.findall(r'^SCHEMA\("(\w+)", "(.*?)", ".", "(.*)"\)$', (ROOT / "frontend/pt2/schemas.def").read_text(), re.M)
           for op in ops.split()}


class Ref(str):
    """The name of a tensor."""


class Number(str):
    """The name of a number of the run."""


class Type(str):
    """An element type: Type("float32")."""


def argument(value):
    if value is None:
        return {"as_none": True}
    if isinstance(value, Ref):
        return {"as_tensor": {"name": value}}
    if isinstance(value, Number):
        return {"as_sym_int": {"as_name": value}}
    if isinstance(value, Type):
        return {"as_scalar_type": CODES[value]}
    for kind, tag in ((bool, "as_bool"), (int, "as_int"), (float, "as_float"), (str, "as_string")):
        if isinstance(value, kind):
            return {tag: value}
    if any(isinstance(v, Number) for v in value):
        return {"as_sym_ints": [{"as_name": v} if isinstance(v, Number) else {"as_int": v} for v in value]}
    if any(isinstance(v, Ref) for v in value):
        if None in value:
            return {"as_optional_tensors": [argument(v) for v in value]}
        return {"as_tensors": [{"name": v} for v in value]}
    tag = "as_bools" if value and isinstance(value[0], bool) else "as_floats" if value and isinstance(value[0], float) else "as_ints"
    return {tag: list(value)}


def size(value):
    return {"as_int": int(value)} if not isinstance(value, str) else {"as_expr": {"expr_str": value, "hint": None}}


def meta(dtype, shape, strides=None, offset=0):
    if strides is None:
        strides = [int(np.prod([1 if isinstance(n, str) else n for n in shape[k + 1:]])) for k in range(len(shape))]
    return {"dtype": CODES[str(dtype)], "sizes": [size(n) for n in shape], "requires_grad": False, "device": {"type": "cpu", "index": None},
            "strides": [size(n) for n in strides], "storage_offset": size(offset), "layout": 7}


class Program:
    """Nodes are appended in order; save() writes the file."""

    def __init__(self):
        self.nodes, self.values, self.numbers, self.inputs, self.specs, self.outputs = [], {}, {}, [], [], []
        self.weights, self.records, self.ranges = {}, {}, {}

    def input(self, name, dtype, shape):
        self.values[name] = meta(dtype, shape)
        self.inputs.append({"as_tensor": {"name": name}})
        self.specs.append({"user_input": {"arg": {"as_tensor": {"name": name}}}})
        return Ref(name)

    def symbol(self, name, low, high=None):
        """A size: its expression."""
        self.ranges[name] = {"min_val": low, "max_val": high}
        return f"Symbol('{name}', positive=True, integer=True)"

    def weight(self, name, array, record=None, shape=None, strides=None, offset=0):
        """shape, strides, offset: of a view of the record's bytes; record: that of another weight."""
        array = np.ascontiguousarray(array)
        record = record or f"weight_{len(self.records)}"
        self.records.setdefault(record, array.tobytes())
        return self.parameter(name, record, meta(array.dtype, shape or array.shape, strides, offset))

    def parameter(self, name, record, described):
        self.weights[name] = {"path_name": record, "is_param": True, "use_pickle": False, "tensor_meta": described}
        self.values[f"p_{name}"] = described
        self.inputs.append({"as_tensor": {"name": f"p_{name}"}})
        self.specs.append({"parameter": {"arg": {"name": f"p_{name}"}, "parameter_name": name}})
        return Ref(f"p_{name}")

    def node(self, target, args, results, keywords=None, names=None):
        """results: [(name, dtype, shape)]; a shape of None is a list of tensors, in which the rest stands."""
        domain, op = target.split(".", 1)
        names = names or SCHEMAS.get((domain, op)) or SCHEMAS[domain, op.replace("_.", ".")]
        given = list(zip(names, args)) + list((keywords or {}).items())
        inputs = [{"name": k, "arg": argument(v), "kind": 1} for k, v in given]
        refs = []
        for name, dtype, shape in results:
            if dtype is None:
                self.numbers[name] = shape
            else:
                self.values[name] = meta(dtype, shape)
            refs.append(Ref(name) if dtype else Number(name))
        outputs = [{"as_sym_int": {"as_name": r}} if isinstance(r, Number) else {"as_tensor": {"name": r}} for r in refs]
        if op in ("split.Tensor", "chunk.default", "split_with_sizes.default", "split.sizes", "unbind.int", "tensor_split.sections", "tensor_split.indices",
                  "meshgrid.default", "meshgrid.indexing", "broadcast_tensors.default"):
            outputs = [{"as_tensors": [{"name": r} for r in refs]}]
        prefix = "torch.ops." if domain in ("aten", "quantized_decomposed", "torchvision") else ""
        self.nodes.append({"target": prefix + target, "inputs": inputs, "outputs": outputs, "metadata": {}, "name": results[0][0]})
        return refs[0] if len(refs) == 1 else refs

    def came_from(self, file, line, module):
        """The last node: as exporters say it, with frames of PyTorch's inside."""
        trace = f'File "{file}", line {line}, in forward\n    y = self.up(x)\n  File "/lib/torch/nn/modules/linear.py", line 7, in forward\n'
        self.nodes[-1]["metadata"] = {"stack_trace": trace, "nn_module_stack": f"L__self__,,nets.Net;L__self___{module},{module},torch.nn.Linear"}

    def output(self, *names):
        self.outputs += names

    def document(self):
        graph = {"inputs": self.inputs, "outputs": [{"as_tensor": {"name": n}} for n in self.outputs], "nodes": self.nodes,
                 "tensor_values": self.values, "sym_int_values": {k: size(v or 0) for k, v in self.numbers.items()}, "sym_bool_values": {}}
        signature = {"input_specs": self.specs, "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": n}}}} for n in self.outputs]}
        return {"graph_module": {"graph": graph, "signature": signature, "module_call_graph": []}, "opset_version": {"aten": 10},
                "range_constraints": self.ranges, "schema_version": {"major": 8, "minor": 20}, "verifiers": ["ATEN"]}

    def records_of(self, changes):
        """As PyTorch 2.9 and later write them."""
        return {"archive_format": b"pt2", "byteorder": b"little", "models/model.json": json.dumps({**self.document(), **changes}).encode(),
                "data/weights/model_weights_config.json": json.dumps({"config": self.weights}).encode(),
                **{f"data/weights/{name}": data for name, data in self.records.items()}}

    def pickled_records(self, layout, changes):
        """As PyTorch 2.7 and older (A), or 2.8 (B)."""
        program, state, constants = {"A": ("serialized_exported_program.json", "serialized_state_dict.pt", "serialized_constants.pt"),
                                     "B": ("models/model.json", "data/weights/model.pt", "data/constants/model.pt")}[layout]
        return {program: json.dumps({**self.document(), **changes}).encode(), state: saved(self.weights, self.records), constants: saved({}, {}),
                "version": b"8.2"}

    def save(self, path, root="model", compression=zipfile.ZIP_STORED, layout="C", **changes):
        root = "" if layout == "A" else root
        records = self.records_of(changes) if layout == "C" else self.pickled_records(layout, changes)
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, data in records.items():
                archive.writestr(zipfile.ZipInfo(f"{root}/{name}" if root else name, (1980, 1, 1, 0, 0, 0)), data, compression)
        return path


# ---- what torch.save writes

STORAGES = {1: "Byte", 2: "Char", 3: "Short", 4: "Int", 5: "Long", 6: "Half", 7: "Float", 8: "Double", 12: "Bool", 13: "BFloat16"}


def text_op(text):
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def int_op(n):
    return b"K" + bytes([n]) if 0 <= n < 256 else b"J" + struct.pack("<i", n) if abs(n) < 2 ** 31 else b"\x8a\x08" + struct.pack("<q", n)


def tuple_op(*items):
    return b"(" + b"".join(items) + b"t"


def call_op(name, *arguments):
    return b"c" + "\n".join(name.rsplit(".", 1)).encode() + b"\n" + tuple_op(*arguments) + b"R"


ORDERED = call_op("collections.OrderedDict")


def tensor_op(meta, key, count):
    def ints(values):
        return tuple_op(*(int_op(v["as_int"]) for v in values))
    storage = tuple_op(text_op("storage"), f"ctorch\n{STORAGES[meta['dtype']]}Storage\n".encode(), text_op(key), text_op("cpu"), int_op(count)) + b"Q"
    return call_op("torch._utils._rebuild_tensor_v2", storage, int_op(meta["storage_offset"]["as_int"]), ints(meta["sizes"]), ints(meta["strides"]),
                   b"\x89", ORDERED)


def pickled(weights, keys, counts):
    """A pickled OrderedDict of parameters."""
    items = [text_op(name) + call_op("torch._utils._rebuild_parameter", tensor_op(w["tensor_meta"], keys[w["path_name"]], counts[w["path_name"]]), b"\x88",
                                     ORDERED) for name, w in weights.items()]
    return b"\x80\x02" + ORDERED + b"q\x00(" + b"".join(items) + b"u}" + text_op("_metadata") + ORDERED + b"sb."


def saved(weights, records, pickle=None, compression=zipfile.ZIP_STORED):
    """The archive of torch.save; pickle: instead of the dictionary."""
    keys = {name: str(k) for k, name in enumerate(records)}
    size = {w["path_name"]: np.dtype({v: k for k, v in CODES.items() if k != "bfloat16"}.get(w["tensor_meta"]["dtype"], "int16")).itemsize
            for w in weights.values()}
    counts = {name: len(data) // size.get(name, 1) for name, data in records.items()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled(weights, keys, counts) if pickle is None else pickle)
        archive.writestr("archive/byteorder", b"little")
        for name, data in records.items():
            archive.writestr(f"archive/data/{keys[name]}", data)
        archive.writestr("archive/version", b"3\n")
    return out.getvalue()

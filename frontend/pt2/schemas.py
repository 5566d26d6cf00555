#!/usr/bin/env python3
"""Writes schemas.def: the arguments of the operators that passes/legalize/aten.def has rows for, in order, with types and
defaults, from the native_functions.yaml that the torch package has. Run it with a Python that has torch:

    python frontend/pt2/schemas.py

A row has operators whose arguments are the same. It says how the first result shares memory with the first argument (s: it is
the argument, v: a view, m: a view or a copy, as strides are), and lists arguments as name:type or name:type=default. Types: T
tensor or number, O optional tensor, L list of tensors, N list of optional tensors, i integer, I integers, f float, F floats,
s number, b truth, B truths, S text, t element type, x what says nothing of values (device, layout, memory format). The list
ends with Python's operators on numbers, which the package has no schema of.
"""
import importlib.util
import pathlib
import re
import textwrap

# Operators of other libraries, and those that PyTorch makes of others, as their schemas print.
FOREIGN = """
aten::_native_batch_norm_legit_functional.default(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool training, \
float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor)
quantized_decomposed::quantize_per_tensor.default(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor
quantized_decomposed::quantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor
quantized_decomposed::quantize_per_channel.default(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max, \
ScalarType dtype) -> Tensor
quantized_decomposed::dequantize_per_tensor.default(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype, *, \
ScalarType? out_dtype=None) -> Tensor
quantized_decomposed::dequantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype, *, \
ScalarType? out_dtype=None) -> Tensor
quantized_decomposed::dequantize_per_channel.default(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min, int quant_max, \
ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor
quantized_decomposed::choose_qparams.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)
quantized_decomposed::choose_qparams_symmetric.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)
torchvision::nms.default(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
torchvision::roi_align.default(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, \
bool aligned) -> Tensor
torchvision::deform_conv2d.default(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, \
SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor
"""

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = {"Tensor": "T", "Tensor?": "O", "Tensor[]": "L", "Tensor?[]": "N", "int": "i", "SymInt": "i", "int[]": "I", "SymInt[]": "I",
         "float": "f", "float[]": "F", "Scalar": "s", "bool": "b", "bool[]": "B", "str": "S", "ScalarType": "t", "Layout": "x",
         "Device": "x", "MemoryFormat": "x", "Generator": "x"}
SAME = {"alias", "detach", "lift_fresh", "dropout", "feature_dropout", "alpha_dropout", "resolve_conj", "resolve_neg", "positive"}
MAYBE = {"reshape", "reshape_as", "contiguous", "flatten", "to", "type_as", "einsum"}


def default_of(text, kind):
    """As schemas.c reads it."""
    if kind == "x" or text is None:
        return "None"
    text = text.strip("'\"")
    return {"True": "1", "False": "0", "Mean": "1"}.get(text, text.replace(" ", ""))


def argument(text):
    name, _, default = text.partition("=")
    declared, name = name.rsplit(" ", 1)
    declared = re.sub(r"\(.*?\)", "", re.sub(r"\[\d+\]", "[]", declared))
    optional = declared.endswith("?") and declared not in TYPES
    kind = TYPES[declared.rstrip("?") if optional else declared]
    has_default = default or optional or kind in "Ox"
    return f"{name}:{kind}" + (f"={default_of(default or None, kind)}" if has_default else "")


def alias_of(name, arguments, result):
    base = name.split(".")[0]
    if base in SAME or base in MAYBE:
        return "s" if base in SAME else "m"
    return "v" if re.match(r"Tensor\(a(?: -> \*)?\)", arguments) and "Tensor(a)" in result else "-"


def operators():
    """(domain, operator) of each row; one row may have several operators."""
    rows = re.findall(r'^ROW\d?\("(\w+)", (.*?), \d+,', (ROOT / "passes/legalize/aten.def").read_text(), re.M)
    return [(domain, op) for domain, ops in rows for op in ops.split(", ")]


def main():
    package = pathlib.Path(importlib.util.find_spec("torchgen").origin).parent
    text = (package / "packaged/ATen/native/native_functions.yaml").read_text()
    functions = dict()
    for name, arguments, result in re.findall(r"^- func: ([\w.]+)\((.*)\) -> (.*)$", text, re.M):
        functions[name if "." in name else name + ".default"] = arguments, result
    foreign = {(d, op): arguments for d, op, arguments in re.findall(r"^(\w+)::([\w.]+)\((.*)\) -> ", FOREIGN, re.M)}
    rows = {}
    for domain, op in operators():
        if domain == "higher_order":
            continue    # their arguments are graphs: subgraphs.c
        if domain == "aten" or (domain, op) in foreign:
            # some are only listed as writing
            arguments, result = (foreign[domain, op], "") if (domain, op) in foreign else functions.get(op) or functions[op.replace(".", "_.")]
            listed = [argument(a) for a in re.split(r", (?![^\[]*\])", arguments) if a != "*"]
            alias = alias_of(op, arguments, result)
        else:
            unary = op in ("neg", "sym_not", "sym_float", "sym_int", "trunc", "floor", "ceil")
            listed, alias = ["a:s"] if unary else ["a:s", "b:s"], "-"
        rows.setdefault((domain, alias, " ".join(listed)), []).append(op)
    head = "/* Arguments of PyTorch's operators; written by schemas.py, which says what the columns are. */\n"
    lines = []
    for (domain, alias, listed), ops in rows.items():
        for names in textwrap.wrap(" ".join(sorted(ops)), 240, break_long_words=False, break_on_hyphens=False):
            lines.append(f'SCHEMA("{domain}", "{names}", "{alias}", "{listed}")')
    body = "\n".join(sorted(lines))
    (ROOT / "frontend/pt2/schemas.def").write_text(head + body + "\n#undef SCHEMA\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Write schemas.def: what every operator of ONNX looks like, in every version of it.

    schemas.py > schemas.def          (needs the Python packages onnx, 1.22.0, and onnxruntime, 1.31.1)

Only facts that the importer checks are kept: numbers of inputs and outputs, which inputs may be left out, element
types, attributes with their types.
"""
import itertools
import sys

import onnx
from onnx import defs
from onnxruntime import __version__ as runtime_version
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

KIND = {"FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "FLOATS": "F", "INTS": "I",
        "STRINGS": "S", "TENSORS": "T", "GRAPHS": "G", "SPARSE_TENSOR": "p", "TYPE_PROTO": "y"}
# The names that ir/ops/elem.def gives to TensorProto's data types.
SHORT = {"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "complex64": "c64",
         "complex128": "c128", "string": "str", "bool": "bool", "float4e2m1": "f4e2m1",
         "float8e4m3fn": "f8e4m3fn", "float8e4m3fnuz": "f8e4m3fnuz", "float8e5m2": "f8e5m2",
         "float8e5m2fnuz": "f8e5m2fnuz", "float8e8m0": "f8e8m0"}
# What is not a plain tensor has one bit a kind, above the data types.
BIT_SEQUENCE, BIT_OPTIONAL, BIT_MAP = 32, 33, 34

# The column "state" of a row: in use, deprecated, or of the default domain though ONNX does not have it.
CURRENT, DEPRECATED, FOREIGN = 0, 1, 2
# Exported by ONNX Runtime's tools under opsets before 17, as if they had always been there: operator, inputs (min, max), outputs
# (min, max), operands (variable, types, "?" may be left out), attributes.
FLOATS = "tensor(float) tensor(float16) tensor(double) tensor(bfloat16)".split()
OTHERS = [
    ("LayerNormalization", (2, 3), (1, 3), [("A", FLOATS, ""), ("B", FLOATS, ""), ("B", FLOATS, "?")], "axis:i epsilon:f stash_type:i"),
    ("SimplifiedLayerNormalization", (2, 2), (1, 2), [("A", FLOATS, ""), ("B", FLOATS, "")], "axis:i epsilon:f stash_type:i"),
]
# ONNX Runtime's contributed operators that mcc has rules for; their schemas are asked of the onnxruntime package.
CONTRIB = """Attention BiasGelu BiasSoftmax CausalConvWithState DecoderMaskedMultiHeadAttention DequantizeLinear DynamicQuantizeLSTM DynamicQuantizeMatMul
EmbedLayerNormalization FastGelu FusedConv FusedGemm FusedMatMul GatedAdd GatedRMSNorm GatherBlockQuantized GatherND Gelu
GroupQueryAttention LinearAttention LinearAttentionGate
MRotaryEmbedding MatMulInteger16 MatMulIntegerToFloat MatMulNBits MoE
MultiHeadAttention NhwcFusedConv NhwcMaxPool Pad QAttention QGemm QLinearAdd QLinearAveragePool
QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere QMoE
QuantizeLinear QuickGelu RotaryEmbedding SkipLayerNormalization SkipSimplifiedLayerNormalization TransposeMatMul Trilu""".split()


def type_bit(name):
    for prefix, bit in (("seq(", BIT_SEQUENCE), ("optional(", BIT_OPTIONAL), ("map(", BIT_MAP)):
        if name.startswith(prefix):
            return bit
    return onnx.TensorProto.DataType.Value(name[len("tensor("):-1].upper())


class Sets:
    """Sets of types, numbered in the order in which they are met."""

    def __init__(self):
        self.number = {}

    def add(self, types):
        mask = 0
        for t in types:
            mask |= 1 << type_bit(t)
        return self.number.setdefault(mask, len(self.number))

    def rows(self):
        names = {BIT_SEQUENCE: "sequence", BIT_OPTIONAL: "optional", BIT_MAP: "map"}
        for label, number in onnx.TensorProto.DataType.items():
            low = label.lower()
            names[number] = SHORT.get(low, low.replace("uint", "u").replace("int", "i"))
        for mask, number in sorted(self.number.items(), key=lambda item: item[1]):
            text = " ".join(names[b] for b in range(64) if mask >> b & 1)
            yield "TYPES(%d, 0x%x) /* %s */" % (number, mask, text)


def operand_text(sets, params):
    """One word an input: a letter for the type variable, the number of its set, then ? for optional, * for variadic of
    one type, + for variadic of any types."""
    words, letters = [], {}
    for variable, types, mark in params:
        letter = letters.setdefault(variable, chr(ord("A") + len(letters)))
        words.append("%s%d%s" % (letter, sets.add(types), mark))
    return " ".join(words)


def mark_of(option, homogeneous):
    option = str(option).split(".")[-1]
    return {"Single": "", "Optional": "?"}.get(option) if option != "Variadic" else "*" if homogeneous else "+"


def schema_operands(s):
    for p in s.inputs:
        yield p.type_str, sorted(p.types), mark_of(p.option, p.is_homogeneous)


def contrib_rows(sets):
    """Rows of CONTRIB. onnxruntime's objects name types by variable, or, where an operand has one type, by that type."""
    found = {s.name: s for s in get_all_operator_schema() if s.domain == "com.microsoft"}
    for name in CONTRIB:
        s = found[name]
        types = {c.type_param_str: c.allowed_type_strs for c in s.type_constraints}
        params = [(p.typeStr, types.get(p.typeStr, [p.typeStr]), mark_of(p.option, p.isHomogeneous)) for p in s.inputs]
        yield (s.domain, name, s.since_version, CURRENT, s.min_input, count(s.max_input), s.min_output, count(s.max_output),
               schema_attributes(s), operand_text(sets, params))


def schema_attributes(s):
    """consumed_inputs is a memory hint of opset 1, formally required and without any effect."""
    words = []
    for name, a in sorted(s.attributes.items()):
        words.append("%s:%s%s" % (name, KIND[str(a.type).split(".")[-1]], "!" if a.required and name != "consumed_inputs" else ""))
    return " ".join(words)


def count(n):
    return -1 if n >= 2**31 - 1 else n


def main():
    sets, rows, newest = Sets(), [], {}
    for s in defs.get_all_schemas_with_history():
        newest[s.domain] = max(newest.get(s.domain, 0), s.since_version)
        rows.append((s.domain, s.name, s.since_version, DEPRECATED if s.deprecated else CURRENT, s.min_input, count(s.max_input),
                     s.min_output, count(s.max_output), schema_attributes(s), operand_text(sets, schema_operands(s))))
    for op, ins, outs, operands, attributes in OTHERS:
        rows.append(("", op, 1, FOREIGN, *ins, *outs, attributes, operand_text(sets, operands)))
    rows += contrib_rows(sets)
    newest["com.microsoft"] = 1
    newest[""] = max(newest[""], defs.onnx_opset_version())
    print("/* Written by schemas.py from the packages onnx %s and onnxruntime %s. Do not edit." % (onnx.__version__, runtime_version))
    print(" * DOMAIN(name, newest version)  TYPES(number, set)")
    print(" * SCHEMA((domain, operator, state, min and max inputs, min and max outputs, attributes), since, inputs)")
    print(" * SCHEMA2, ...: so many versions, which differ in their inputs at most. */")
    families = [list(group) for _, group in itertools.groupby(sorted(rows), lambda r: r[:2] + r[3:9])]
    for n in range(2, max(map(len, families)) + 1):
        print("#define SCHEMA%d(of, since, in, ...) SCHEMA(of, since, in) SCHEMA%s(of, __VA_ARGS__)" % (n, n - 1 if n > 2 else ""))
    for domain, version in sorted(newest.items()):
        print('DOMAIN("%s", %d)' % (domain, version))
    print("\n".join(sets.rows()))
    for family in families:
        of = '("%s", "%s", %d, %d, %d, %d, %d, "%s")' % (family[0][:2] + family[0][3:9])
        versions = ", ".join('%d, "%s"' % (r[2], r[9]) for r in family)
        print("SCHEMA%s(%s, %s)" % (len(family) if len(family) > 1 else "", of, versions))
    print("#undef DOMAIN\n#undef TYPES\n#undef SCHEMA")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`mcc --list-ops`: no row of a table that is not true. Every version and element type of a line stands in ONNX's schema history, or
in ONNX Runtime's for its contributed operators; a model of every line is taken for each of its element types; and for every row of
legalize's table one of them compiles and runs.

Models are single nodes: of the ONNX suite, given the line's version where its schema allows that, else of RECIPES. Those of one
version go into one file, so that some thirty runs of mcc do for thousands of forms.
"""
import collections
import functools
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import defs, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from conformance import suite
from conformance.passing import passing
from support.artifact import Artifact
from support.tool import mcc

F, MS, ML = np.float32, "com.microsoft", "ai.onnx.ml"
NAMES = {"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "string": "string", "bool": "bool", "float4e2m1": "f4e2m1",
         "float8e4m3fn": "f8e4m3fn", "float8e4m3fnuz": "f8e4m3fnuz", "float8e5m2": "f8e5m2", "float8e5m2fnuz": "f8e5m2fnuz",
         "float8e8m0": "f8e8m0", "complex64": "c64", "complex128": "c128"}
NUMBERS = {NAMES.get(label.lower(), label.lower().replace("uint", "u").replace("int", "i")): number for label, number in T.DataType.items()}
Line = collections.namedtuple("Line", "domain op since lowering groups note")
Schema = collections.namedtuple("Schema", "inputs min_in max_in min_out max_out attributes")    # inputs: (variable, types)


def parse(text):
    for line in text.splitlines()[1:]:
        domain, op, since, lowering, types, *note = line.split(None, 5)
        groups = [] if types == "-" else [tuple(t for t in g.split(",") if t != "-") for g in types.split("/")]
        yield Line({"ai.onnx": ""}.get(domain, domain), op, int(since), lowering, tuple(groups), "".join(note))


PYTORCH = ("aten", "quantized_decomposed", "torchvision", "_operator", "higher_order", "math", "torch")    # tests/pt2 has those rows
GGUF = ("ggml",)    # tests/gguf
LINES = [line for line in parse(mcc("--list-ops").stdout) if line.domain not in PYTORCH + GGUF]


def short(text):
    kind = re.match(r"(seq|optional|map)\(", text)
    return {"seq": "sequence", "optional": "optional", "map": "map"}[kind[1]] if kind else \
        NAMES.get(text[7:-1], text[7:-1].replace("uint", "u").replace("int", "i"))


@functools.cache
def contributed():
    return {(s.domain.strip("()"), s.name, s.since_version): s for s in get_all_operator_schema()}


def schema_of(line):
    """From ONNX's history, or, for operators in parentheses and of com.microsoft, from ONNX Runtime's."""
    if line.domain in ("", ML, "ai.onnx.preview", "ai.onnx.preview.training"):
        s = defs.get_schema(line.op, line.since, line.domain)
        assert s.since_version == line.since and not s.deprecated, line
        return Schema([(p.type_str, {short(t) for t in p.types}) for p in s.inputs], s.min_input, s.max_input, s.min_output, s.max_output,
                      {n: a.required and n != "consumed_inputs" for n, a in s.attributes.items()})
    s = contributed()[line.domain.strip("()").replace("ai.onnx", ""), line.op, line.since]
    types = {c.type_param_str: c.allowed_type_strs for c in s.type_constraints}
    return Schema([(p.typeStr, {short(t) for t in types.get(p.typeStr, [p.typeStr])}) for p in s.inputs], s.min_input, s.max_input, s.min_output,
                  s.max_output, {n: a.required for n, a in s.attributes.items()})


def test_versions_and_types_are_of_the_schemas():
    assert len(LINES) > 600 and len(LINES) == len({line[:3] for line in LINES})
    for line in LINES:
        variables = dict(schema_of(line).inputs)
        assert len(variables) == len(line.groups), line
        for types, group in zip(variables.values(), line.groups):
            assert set(group) <= types and len(group) == len(set(group)), line


# ---- models

def floats(*shape):
    return np.linspace(0.1, 0.9, int(np.prod(shape)), dtype=F).reshape(shape)


def ints(*values):
    return np.array(values, np.int64)


def single(domain, op, feeds, n_out=1, **attributes):
    """A model of one node with these inputs; None: left out. Arrays of a list: a sequence."""
    inputs, names = [], []
    for i, x in enumerate(feeds):
        names.append("" if x is None else f"x{i}")
        if isinstance(x, list):
            inputs.append(helper.make_tensor_sequence_value_info(names[-1], helper.np_dtype_to_tensor_dtype(x[0].dtype), x[0].shape))
        elif x is not None:
            inputs.append(helper.make_tensor_value_info(names[-1], helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
    outs = [f"y{i}" for i in range(n_out)]
    graph = helper.make_graph([helper.make_node(op, names, outs, domain=domain, **attributes)], op, inputs, [onnx.ValueInfoProto(name=o) for o in outs])
    return helper.make_model(graph), [x for x in feeds if x is not None]


def stored(model, feeds):
    """All inputs but the first as constants of the file."""
    graph = model.graph
    graph.initializer.extend(numpy_helper.from_array(x, p.name) for p, x in zip(graph.input[1:], feeds[1:]))
    del graph.input[1:]
    return model, feeds[:1]


Q, S = np.arange(24, dtype=np.uint8).reshape(2, 3, 4), F(0.1)
U = np.uint8(3)
IMAGE = np.arange(240, dtype=np.uint8).reshape(2, 3, 8, 5)
TREE = dict(nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[1, 0, 0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
            nodes_values=[0.5, 0.0, 0.0], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0])
RECIPES = [
    ("", "ConcatFromSequence", [[floats(2, 3), floats(2, 3)]], dict(axis=0)),
    ("", "DepthToSpace", [floats(1, 4, 2, 3)], dict(blocksize=2)),
    ("", "GlobalLpPool", [floats(1, 2, 3, 4)], {}),
    ("", "GlobalLpPool", [floats(1, 2, 3, 4)], dict(p=1.0)),
    ("", "MaxRoiPool", [floats(1, 2, 5, 5), np.array([[0, 0, 0, 4, 4]], F)], dict(pooled_shape=[2, 2])),
    ("", "Multinomial", [floats(2, 3)], dict(sample_size=4)),
    ("", "Optional", [floats(2)], {}),
    ("", "Pad", [floats(2, 3)], dict(paddings=[1, 0, 0, 2])),
    *[("", op, [], dict(shape=[2, 3])) for op in ("RandomNormal", "RandomUniform")],
    *[("", op, [floats(2, 3)], dict(dtype=1)) for op in ("RandomNormalLike", "RandomUniformLike")],
    *[("", op, [floats(2, 3)], dict(axes=[1])) for op in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")],
    ("", "Reshape", [floats(2, 3)], dict(shape=[3, 2])),
    ("", "Resize", [floats(1, 1, 2, 2), np.array([1, 1, 2, 2], F)], {}),
    ("", "RoiAlign", [floats(1, 2, 5, 5), np.array([[0, 0, 4, 4]], F), ints(0)], dict(sampling_ratio=2)),
    ("", "SequenceAt", [[floats(2), floats(2)], np.int64(1)], {}),
    ("", "SequenceConstruct", [floats(2), floats(2)], {}),
    ("", "SequenceEmpty", [], {}),
    ("", "SequenceErase", [[floats(2), floats(2)]], {}),
    ("", "SequenceLength", [[floats(2), floats(2)]], {}),
    ("", "Slice", [floats(4, 5)], dict(starts=[1, 0], ends=[3, 4])),
    ("", "Squeeze", [floats(2, 1, 3)], dict(axes=[1])),
    ("", "Unsqueeze", [floats(2, 3)], dict(axes=[1])),
    ("", "TopK", [floats(2, 5)], dict(k=3), 2),
    ("", "Upsample", [floats(1, 1, 2, 3)], dict(height_scale=2.0, width_scale=2.0)),
    ("", "Upsample", [floats(1, 1, 2, 3)], dict(scales=[1.0, 1.0, 2.0, 2.0])),
    ("(ai.onnx)", "LayerNormalization", [floats(2, 3), floats(3), floats(3)], {}),
    ("(ai.onnx)", "SimplifiedLayerNormalization", [floats(2, 3), floats(3)], {}),
    (ML, "LinearClassifier", [floats(2, 3)], dict(coefficients=[0.5] * 6, intercepts=[0.0, 1.0], classlabels_ints=[4, 5]), 2),
    (ML, "LabelEncoder", [ints(0, 1)], dict(classes_strings=["a", "b"])),
    (ML, "CategoryMapper", [ints(0, 1)], dict(cats_strings=["a", "b"], cats_int64s=[0, 1])),
    (ML, "FeatureVectorizer", [floats(2, 2), floats(2, 3)], dict(inputdimensions=[2, 3])),
    (ML, "Imputer", [floats(2, 3)], dict(imputed_value_floats=[1.0], replaced_value_float=0.5)),
    (ML, "OneHotEncoder", [ints(0, 1)], dict(cats_int64s=[0, 1, 2], zeros=1)),
    (ML, "ZipMap", [floats(2, 3)], dict(classlabels_int64s=[0, 1, 2])),
    (ML, "LinearRegressor", [floats(2, 3)], dict(coefficients=[0.5] * 3, intercepts=[1.0])),
    (ML, "SVMRegressor", [floats(2, 3)], dict(coefficients=[0.5] * 3, rho=[1.0])),
    (ML, "SVMClassifier", [floats(2, 3)], dict(coefficients=[0.5] * 6, rho=[0.0] * 3, vectors_per_class=[1, 1, 1], support_vectors=[1.0] * 9,
                                               classlabels_ints=[4, 5, 6]), 2),
    (ML, "Normalizer", [floats(2, 3)], dict(norm="L2")),
    (ML, "Scaler", [floats(2, 3)], dict(offset=[0.5], scale=[2.0])),
    (ML, "TreeEnsembleClassifier", [floats(2, 3)], dict(TREE, class_treeids=[0, 0], class_nodeids=[1, 2], class_ids=[0, 2], class_weights=[1.0, 2.0],
                                                        classlabels_int64s=[0, 1, 2]), 2),
    (ML, "TreeEnsembleRegressor", [floats(2, 3)], dict(TREE, target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0],
                                                       target_weights=[1.0, 2.0], n_targets=1)),
    *[(MS, op, [floats(2, 3), floats(3)], {}) for op in ("BiasGelu", "FastGelu")],
    *[(MS, op, [floats(2, 3)], {}) for op in ("Gelu", "QuickGelu")],
    (MS, "Attention", [floats(1, 2, 3), floats(3, 12), floats(12)], dict(num_heads=2)),
    (MS, "BiasSoftmax", [floats(2, 3), floats(2, 3)], dict(is_inner_broadcast=0)),
    (MS, "CausalConvWithState", [floats(1, 2, 3), floats(2, 1, 2)], {}, 2),
    (MS, "DecoderMaskedMultiHeadAttention", [floats(1, 1, 4), floats(1, 1, 4), floats(1, 1, 4)], dict(num_heads=2)),
    (MS, "DequantizeLinear", [Q, S, U], {}),
    (MS, "QuantizeLinear", [floats(2, 3), S, U], {}),
    (MS, "DynamicQuantizeLSTM", [floats(2, 1, 3), np.ones((1, 3, 8), np.uint8), np.ones((1, 2, 8), np.uint8), None, None, None, None, None,
                                 floats(1), np.zeros(1, np.uint8), floats(1), np.zeros(1, np.uint8)], {}, 3),
    (MS, "DynamicQuantizeMatMul", [floats(2, 3), Q[0, :3], S, U], {}),
    (MS, "EmbedLayerNormalization", [np.ones((1, 2), np.int32), None, floats(3, 4), floats(2, 4), None, floats(4), floats(4)], {}, 2),
    *[(MS, op, [floats(1, 2, 4, 2), floats(3, 2, 1, 1)], dict(activation="Relu")) for op in ("FusedConv", "NhwcFusedConv")],
    (MS, "FusedGemm", [floats(2, 3), floats(3, 2)], dict(activation="Relu")),
    *[(MS, op, [floats(2, 3), floats(3, 2)], {}) for op in ("FusedMatMul", "TransposeMatMul")],
    (MS, "GatedAdd", [floats(2, 3), floats(2, 3), floats(2, 1)], {}),
    (MS, "GatedRMSNorm", [floats(2, 4), floats(2), floats(2, 4)], {}),
    (MS, "GatherBlockQuantized", [np.arange(32, dtype=np.uint8).reshape(2, 16), ints(1), floats(2, 2)], dict(block_size=16)),
    (MS, "GatherND", [floats(2, 3), ints([0, 1])], {}),
    (MS, "GroupQueryAttention", [floats(1, 2, 16), floats(1, 2, 8), floats(1, 2, 8), None, None, np.array([1], np.int32), np.array(2, np.int32)],
     dict(num_heads=2, kv_num_heads=1), 3),
    (MS, "LinearAttention", [floats(1, 2, 4), floats(1, 2, 4), floats(1, 2, 4)], dict(q_num_heads=2, kv_num_heads=2, update_rule="linear"), 2),
    (MS, "LinearAttentionGate", [floats(1, 2, 3), floats(3), floats(3)], {}),
    (MS, "MRotaryEmbedding", [floats(1, 2, 4), ints(*[[[0, 1]]] * 3), floats(3, 2), floats(3, 2)], dict(mrope_section=[1, 1, 0])),
    (MS, "MatMulInteger16", [np.ones((2, 3), np.int16), np.ones((3, 2), np.int16)], {}),
    (MS, "MatMulIntegerToFloat", [Q[0], Q[0, :].T.copy(), S, S], {}),
    (MS, "MatMulNBits", [floats(2, 16), np.arange(24, dtype=np.uint8).reshape(3, 1, 8), floats(3, 1)], dict(K=16, N=3, bits=4, block_size=16)),
    (MS, "MoE", [floats(2, 4), floats(2, 3), floats(3, 8, 4), None, floats(3, 4, 8)], {}),
    (MS, "MultiHeadAttention", [floats(1, 2, 4), floats(1, 3, 4), floats(1, 3, 4)], dict(num_heads=2)),
    (MS, "NhwcMaxPool", [IMAGE], dict(kernel_shape=[2, 2])),
    (MS, "Pad", [floats(2, 3), ints(1, 0, 0, 2)], {}),
    (MS, "QAttention", [Q[:1], np.ones((4, 12), np.uint8), floats(12), S, S], dict(num_heads=2)),
    (MS, "QGemm", [Q[0], S, U, Q[0].T.copy(), S, U, None, S, U], {}),
    (MS, "QMoE", [floats(2, 4), floats(2, 3), np.ones((3, 8, 2), np.uint8), floats(3, 8), None, np.ones((3, 4, 4), np.uint8), floats(3, 4)], {}),
    *[(MS, op, [Q, S, U, Q, S, U, S, U], {}) for op in ("QLinearAdd", "QLinearMul")],
    (MS, "QLinearAveragePool", [IMAGE, S, U, S, U], dict(kernel_shape=[2, 2])),
    (MS, "QLinearConcat", [S, U, Q, S, U, Q, S, U], dict(axis=1)),
    (MS, "QLinearConv", [IMAGE, S, U, np.ones((2, 3, 2, 2), np.uint8), S, U, S, U], {}),
    (MS, "QLinearGlobalAveragePool", [IMAGE, S, U, S, U], {}),
    *[(MS, op, [Q, S, U, S, U], {}) for op in ("QLinearLeakyRelu", "QLinearSigmoid")],
    (MS, "QLinearReduceMean", [Q, S, U, S, U], dict(axes=[1], keepdims=1)),
    (MS, "QLinearSoftmax", [Q, S, U, S, U], dict(opset=13)),
    (MS, "QLinearWhere", [Q > 7, Q, S, U, Q, S, U, S, U], {}),
    (MS, "RotaryEmbedding", [floats(1, 2, 4), ints(0), floats(3, 2), floats(3, 2)], {}),
    (MS, "SkipLayerNormalization", [floats(2, 3, 4), floats(2, 3, 4), floats(4)], {}),
    (MS, "SkipSimplifiedLayerNormalization", [floats(2, 3, 4), floats(2, 3, 4), floats(4)], {}),
    (MS, "Trilu", [floats(3, 4)], {}),
]


def names(*given):
    return [onnx.ValueInfoProto(name=n) for n in given]


BODY = {   # every value passes through, so that any type does
    "Loop": helper.make_graph([helper.make_node("Identity", ["c"], ["c1"]), helper.make_node("Identity", ["v"], ["v1"])], "body",
                              names("i", "c", "v"), names("c1", "v1")),
    "Scan": helper.make_graph([helper.make_node("Identity", ["s"], ["s1"]), helper.make_node("Identity", ["v"], ["v1"])], "body",
                              names("s", "v"), names("s1", "v1")),
    "If": helper.make_graph([helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(floats(2)))], "branch", [], names("k")),
}
# What versions up to the first number take and later ones do not, or mean otherwise.
OLD = [
    (99, "", "Loop", [np.int64(2), np.array(True), floats(2)], dict(body=BODY["Loop"])),
    (8, "", "Scan", [None, floats(1, 2), floats(1, 3, 2)], dict(body=BODY["Scan"], num_scan_inputs=1), 2),
    (99, "", "Scan", [floats(2), floats(3, 2)], dict(body=BODY["Scan"], num_scan_inputs=1), 2),
    (99, "", "If", [np.array(True)], dict(then_branch=BODY["If"], else_branch=BODY["If"])),
    (6, "", "BatchNormalization", [floats(2, 3, 4), *[floats(3)] * 4], dict(is_test=1)),
    (6, "", "Dropout", [floats(2, 3)], dict(is_test=1)),
    (6, "", "PRelu", [floats(2, 3, 4), floats(3)], {}),
    (1, "", "Tile", [floats(2, 3), np.array(2, F), np.array(1, F)], {}),
]


@functools.cache
def candidates():
    """(domain, operator) -> [(model of one node, its feeds)], those of the suite first that have inputs alone."""
    found = collections.defaultdict(list)
    listed = set(passing())
    for name, case in suite.cases().items():
        if name.startswith("real/") or name not in listed:
            continue
        model = onnx.load(case.model)
        if len(model.graph.node) == 1 and not model.functions:
            node = model.graph.node[0]
            found[node.domain, node.op_type].append((bool(model.graph.initializer), model, case))
    for key in found:
        found[key] = [(model, case) for _, model, case in sorted(found[key], key=lambda c: c[0])]
    for domain, op, feeds, attributes, *n_out in RECIPES:
        arrays = [x if x is None or isinstance(x, list) else np.asarray(x) for x in feeds]
        found[domain, op].append(single(domain.replace("(ai.onnx)", ""), op, arrays, *n_out, **attributes))
    return found


def takes(schema, node):
    have = {a.name for a in node.attribute}
    return schema.min_in <= len(node.input) <= schema.max_in and schema.min_out <= len(node.output) <= schema.max_out and \
        have <= set(schema.attributes) and all(n in have for n, needed in schema.attributes.items() if needed)


def adjust(line, node, number):
    """Attributes that changed their type while their names stayed, or that go by the operand's type (number; 0: as the model has it)."""
    attributes = {a.name: a for a in node.attribute}
    if line.op == "Cast" and line.since < 6:
        attributes["to"].CopyFrom(helper.make_attribute("to", T.DataType.Name(attributes["to"].i)))
    if line.op == "LpPool" and line.since < 2 and "p" in attributes:
        attributes["p"].CopyFrom(helper.make_attribute("p", float(attributes["p"].i)))
    if line.op == "BitCast" and number:
        attributes["to"].i = number
    if line.op == "Mod" and number in (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16) and line.since > 1:
        node.attribute.append(helper.make_attribute("fmod", 1))


@functools.cache
def models_of(line):
    schema = schema_of(line)
    found = [c for c in candidates()[line.domain, line.op] if takes(schema, c[0].graph.node[0])]
    return [(stored if op == "Tile" else lambda *m: m)(*single(domain, op, feeds, *more, **attributes)) for until, domain, op, feeds, attributes, *more in OLD
            if (domain, op) == (line.domain, line.op) and line.since <= until] + sorted(found, key=lambda c: not written_for(line, c[0]))


def written_for(line, model):
    """Is this very version what the model's node binds to?"""
    for o in model.opset_import:
        if o.domain in ("ai.onnx", "") and not line.domain or o.domain == line.domain:
            return defs.has(line.op, o.version, line.domain) and defs.get_schema(line.op, o.version, line.domain).since_version == line.since
    return False


class Joined:
    """Several single-node models of one version as one file."""

    def __init__(self, domain, since):
        self.nodes, self.inputs, self.outputs, self.constants, self.feeds = [], [], [], [], []
        domain = domain.replace("(ai.onnx)", "")
        self.opsets = [helper.make_opsetid(domain, since)] + ([helper.make_opsetid("", 17)] if domain else [])

    def add(self, line, model, label, retype=None):
        """retype: {input's name: element type}. Returns the prefix of its names."""
        graph, prefix = model.graph, f"n{len(self.nodes)}_"
        node = onnx.NodeProto()
        node.CopyFrom(graph.node[0])
        adjust(line, node, next(iter(retype.values()), 0) if retype else 0)
        node.name = label
        del node.input[:], node.output[:]
        node.input.extend(prefix + n if n else "" for n in graph.node[0].input)
        node.output.extend(prefix + n if n else "" for n in graph.node[0].output)
        given = {t.name for t in graph.initializer}
        for port in graph.input:
            if port.name not in given:
                copy = onnx.ValueInfoProto()
                copy.CopyFrom(port)
                copy.name = prefix + port.name
                if retype and port.name in retype:
                    kind = copy.type.sequence_type.elem_type if copy.type.HasField("sequence_type") else copy.type
                    kind.tensor_type.elem_type = retype[port.name]
                self.inputs.append(copy)
        for tensor in graph.initializer:
            copy = onnx.TensorProto()
            copy.CopyFrom(tensor)
            copy.name = prefix + tensor.name
            self.constants.append(copy)
        self.outputs += [onnx.ValueInfoProto(name=prefix + o.name) for o in graph.output]
        self.nodes.append(node)
        return prefix

    def save(self, path):
        graph = helper.make_graph(self.nodes, "joined", self.inputs, self.outputs, self.constants)
        onnx.save(helper.make_model(graph, opset_imports=self.opsets, ir_version=10), path)
        return path


def by_version(lines):
    groups = collections.defaultdict(list)
    for line in lines:
        groups[line.domain, line.since].append(line)
    return groups


# Attributes, a body or the place of the operand decide on its type.
BY_MORE = ("QMoE", "LabelEncoder", "CategoryMapper", "OneHotEncoder", "Imputer", "TfIdfVectorizer", "SequenceMap", "QLinearConcat")


def retypings(line, model):
    """(group, element type, {input: number}) for all that the line names; nothing where the inputs are no tensors, or stored."""
    node, inputs = model.graph.node[0], {p.name: p for p in model.graph.input}
    stored = {t.name for t in model.graph.initializer}
    if line.op in BY_MORE:
        return
    schema = schema_of(line)
    variables = list(dict(schema.inputs))
    types = {n: (p.type.sequence_type.elem_type if p.type.HasField("sequence_type") else p.type).tensor_type.elem_type for n, p in inputs.items()}
    for k, group in enumerate(line.groups):
        names = [n for i, n in enumerate(node.input) if n and schema.inputs[min(i, len(schema.inputs) - 1)][0] == variables[k]]
        if not names or any(n in stored or n not in inputs or not inputs[n].type.HasField("tensor_type") for n in names):
            continue
        for name in group:
            if name in NUMBERS:
                # operands of another variable that have the same type and may have the new one follow
                others = {n: NUMBERS[name] for i, n in enumerate(node.input) if n and n in types and types[n] == types[names[0]] and
                          (inputs[n].type.HasField("sequence_type") or name in line.groups[variables.index(schema.inputs[min(i, len(schema.inputs) - 1)][0])])}
                yield k, name, {n: NUMBERS[name] for n in names} | others


def test_every_line_has_a_model():
    missing = [f"{line.domain} {line.op}-{line.since}" for line in LINES if not models_of(line)]
    assert not missing


@pytest.mark.parametrize("key", by_version(LINES), ids=str)
def test_element_types_are_taken(tmp_path, key):
    joined = Joined(*key)
    for line in by_version(LINES)[key]:
        model = models_of(line)[0][0]
        joined.add(line, model, f"{line.op}")
        for k, name, retype in retypings(line, model):
            joined.add(line, model, f"{line.op}:{k}:{name}", retype)
    done = mcc("check", "-q", joined.save(tmp_path / "all.onnx"))       # which knows what code does not have, too: moves of strings
    assert done.returncode == 0, done.stderr


@functools.cache
def rows():
    """The last line of each row of legalize's table."""
    return {(line.domain, line.op, line.lowering): line for line in LINES}


@pytest.mark.parametrize("key", by_version(rows().values()), ids=str)
def test_every_row_compiles_and_runs(tmp_path, key):
    joined, feeds = Joined(*key), []
    for line in by_version(rows().values())[key]:
        model, given = models_of(line)[0]
        joined.add(line, model, line.op)
        feeds += given if isinstance(given, list) else suite.inputs_and_outputs(given)[0]
    path = tmp_path / "all.so"
    done = mcc("-q", "-O0", "-march=native", joined.save(tmp_path / "all.onnx"), "-o", path, timeout=600)
    assert done.returncode == 0, done.stderr
    with Artifact(path) as a:
        assert len(a.call(feeds)) == len(joined.outputs)

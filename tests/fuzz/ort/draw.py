"""A network in the making: its values with their elements, and nodes that ONNX Runtime was seen to run.

Each node is run alone as soon as it is drawn, so shapes and values are known, and what ONNX Runtime refuses never gets into
a network. Beside its elements each value has two shadows: what they would be if every operator that rounds had erred by
NOISE one way and the other. How far these are apart says how well a result is determined; a node whose integers or booleans
differ between them is not drawn, and a comparison allows that much (judge.py).
"""
import dataclasses

import numpy as np
import onnx
from onnx import helper

from fuzz.ort.choices import Choices
from fuzz.ort.eager import DOMAINS, Node
from fuzz.ort.elements import BF16, BOOL, F16, F32, F64, F8, FLOATS, I4, I64, NOISE, OF_NAME, PLAIN, U4, WEIGHT, is_float, wide

ELEMENTS = 20000
# Operators that give elements of their operands, or small sums and products of them: no noise of their own.
EXACT = set("""Abs Add And ArgMax ArgMin BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil CenterCropPad
Clip Compress Concat ConcatFromSequence Constant ConstantOfShape DepthToSpace Equal Expand EyeLike Flatten Floor Gather
GatherElements GatherND Greater GreaterOrEqual Hardmax Identity IsInf IsNaN Less LessOrEqual Max MaxPool MaxRoiPool MaxUnpool Min
Mul Neg NonZero Not OneHot Or Pad Range ReduceMax ReduceMin Relu Reshape ReverseSequence Round Scatter ScatterElements ScatterND
SequenceAt SequenceConstruct Shape Sign Size Slice SpaceToDepth Split SplitToSequence Squeeze Sub TensorScatter ThresholdedRelu Tile
TopK Transpose Trilu Unique Unsqueeze Where Xor GlobalMaxPool Dropout""".split())
# Operators whose error is measured by the largest element, not by each one.
SUMS = set("""Attention AveragePool BatchNormalization Col2Im Conv ConvTranspose CumSum DFT DeformConv Det Einsum GRU Gemm GlobalAveragePool
GridSample GroupNormalization InstanceNormalization LRN LSTM LayerNormalization LpNormalization LpPool MatMul Mean
MeanVarianceNormalization NegativeLogLikelihoodLoss RMSNormalization RNN ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean
ReduceSum ReduceSumSquare Resize RoiAlign RotaryEmbedding STFT SoftmaxCrossEntropyLoss Sum Upsample AffineGrid Sin Cos Tan
FusedConv NhwcFusedConv FusedGemm FusedMatMul TransposeMatMul MultiHeadAttention QAttention GroupQueryAttention MatMulNBits MoE QMoE QGemm
MatMulIntegerToFloat DynamicQuantizeMatMul DynamicQuantizeLSTM CausalConvWithState LinearAttention SkipLayerNormalization
SkipSimplifiedLayerNormalization EmbedLayerNormalization""".split())
# Sums of numbers around 1 that may cancel: 1 + erf(x), and in ONNX Runtime's logistic 1 - 1 / (1 + exp(x)), or 0 far below.
UNITS = {"BlackmanWindow", "HannWindow", "HammingWindow", "Gelu", "BiasGelu", "FastGelu", "QuickGelu", "Sigmoid", "Swish",
         "LogSoftmax", "LinearClassifier", "SVMClassifier",
         "TreeEnsembleClassifier"}
# Weighted sums of integers, and bytes that are scaled and rounded in one or in several steps.
WIDE = {"Resize", "Upsample", "QLinearAdd", "QLinearMul", "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearReduceMean", "QLinearWhere",
        "QLinearConcat", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QGemm", "QLinearConv", "QLinearMatMul"}
# Products that may be computed another way (Winograd) or in another precision.
LOOSE = {"Conv": 10, "FusedConv": 10, "ConvTranspose": 10, "Attention": 10, "MultiHeadAttention": 10, "GroupQueryAttention": 10,
         "Softmax": 2, "LogSoftmax": 2, "DynamicQuantizeLSTM": 1000}
# Quotients by a deviation: as wrong as operands that are off a little make them.
CONDITIONED = {"InstanceNormalization", "GroupNormalization", "LayerNormalization", "MeanVarianceNormalization", "BatchNormalization",
               "RMSNormalization", "LpNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}
# Operators that ONNX Runtime (or ONNX's own function) computes in f32 for f64, too.
NARROW = {"Gelu", "HardSwish", "Shrink", "GroupNormalization", "Resize", "Upsample", "LayerNormalization", "Attention", "RMSNormalization",
          "DFT", "STFT", "RoiAlign"}
# Each run gives others: what is certain of them alone stays in a network (ops_text.py).
DRAWN = {"RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Bernoulli", "Multinomial"}
# Integers that a rounding may move by one.
ROUNDED = {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul", "QLinearAveragePool",
           "Resize", "Upsample", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QLinearConcat",
           "QLinearReduceMean", "QLinearWhere", "QGemm"}


@dataclasses.dataclass(eq=False)
class Value:
    name: str
    data: object                 # array, or a list of arrays: a sequence
    shadows: tuple
    constant: bool
    uses: int = 0

    @property
    def shape(self):
        return list(self.data.shape)

    @property
    def rank(self):
        return self.data.ndim

    @property
    def dtype(self):
        return self.data.dtype


class Refused(Exception):
    """What was drawn cannot be had; the network goes on without it."""


class Draw(Choices):
    """One network. Operators' generators (ops_*.py) call value(), leaf(), const() and node()."""

    def __init__(self, seed, opset):
        super().__init__(seed)
        self.opset = opset
        self.nodes, self.pool, self.inputs, self.constants = [], [], [], []
        self.refused = []          # (operator, what ONNX Runtime said)
        self.count = 0
        self.sized = self.hostile = False    # sizes are computed (ops_sizes.py), from huge constants too
        self.divides = False       # by an extent

    def name(self, letter="v"):
        self.count += 1
        return f"{letter}{self.count}"

    # ---- what the schema says -----------------------------------------------------------------------------------

    def schema(self, op, domain=""):
        try:
            return onnx.defs.get_schema(op, DOMAINS.get(domain, self.opset), domain)
        except onnx.defs.SchemaError:
            raise Refused(f"{op}: not in opset {self.opset}") from None

    def version(self, op, domain=""):
        return self.schema(op, domain).since_version

    def types(self, op, name="T"):
        """What type parameter (or, where it has none, input) `name` of the operator may be."""
        schema = self.schema(op)
        for c in schema.type_constraints:
            if c.type_param_str == name:
                return [OF_NAME[t] for t in c.allowed_type_strs if t in OF_NAME]
        for i in schema.inputs:
            if i.name == name:
                return [OF_NAME[t] for t in i.types if t in OF_NAME]
        raise Refused(f"{op} has no type {name}")

    def attributes(self, op, **given):
        """Those of the given attributes that this version has and that are not None."""
        known = self.schema(op).attributes
        return {k: v for k, v in given.items() if k in known and v is not None}

    # ---- values -----------------------------------------------------------------------------------------------------

    def leaf(self, dtype, shape, lo=None, hi=None, constant=None):
        return self.given(self.array(dtype, shape, lo, hi), self.chance(40) if constant is None else constant)

    def given(self, array, constant=True):
        """A value with these elements: a constant of the file, or an input of the network."""
        array = np.asarray(array)
        v = Value(self.name("c" if constant else "x"), array, (array, array), constant)
        (self.constants if constant else self.inputs).append(v)
        return v

    def words(self, shape, words):
        """A tensor of strings that are drawn from some."""
        return self.given(self.texts(shape, words), self.chance(40))

    def const(self, array, dtype=np.int64, constant=None):
        """An operand such as axes or a shape: mostly constant."""
        return self.given(np.array(array, dtype), not self.chance(12) if constant is None else constant)

    def value(self, dtypes, lo=0, hi=4, least=0, shape=None, limit=4000, fresh=12):
        """A value of the pool of one of these types, of rank lo..hi, with dims of at least `least` (or of this shape); new
        where none fits."""
        fits = [v for v in self.pool if not isinstance(v.data, list) and v.dtype in dtypes and lo <= v.rank <= hi
                and all(d >= least for d in v.shape) and v.data.size <= limit and (shape is None or v.shape == list(shape))]
        if fits and not self.chance(fresh):
            return self.pick(fits, [(4 if v.uses == 0 else 1) * WEIGHT.get(v.dtype, 0.1) ** 0.5 for v in fits])
        t = self.dtype(dtypes)
        if t is None:
            raise Refused("no type")
        return self.leaf(t, list(shape) if shape is not None else self.shape(lo, hi, least, limit))

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def node(self, op, operands, outputs=1, domain="", captures=(), **attributes):
        """Adds a node and its results to the network; operands may be None, trailing ones are left out. Raises Refused
        where ONNX Runtime does, or where the results are of no use."""
        operands = list(operands)
        while operands and operands[-1] is None:
            operands.pop()
        wanted = [True] * outputs if isinstance(outputs, int) else outputs
        names = [self.name() if w else "" for w in wanted]
        while names and not names[-1]:
            names.pop()
        made = helper.make_node(op, [v.name if v else "" for v in operands], names, domain=domain, **attributes)
        used = {v.name: v for v in [*operands, *captures] if v}
        results = self.run(made, used)
        made.name = self.name(f"{op}_") if self.chance(80) else ""
        self.nodes.append(made)
        for v in used.values():
            v.uses += 1
        self.pool += results
        return results

    def run(self, made, used):
        """The values that the node gives."""
        try:
            one = Node(made, {n: (v.data, v.constant) for n, v in used.items()}, self.opset)
            data = one.run({n: v.data for n, v in used.items()})
            shadows = [data, data]
            if made.op_type not in EXACT | DRAWN or made.op_type not in DRAWN and any(v.shadows[0] is not v.data for v in used.values()):
                shadows = [self.noisy(made, one.run({n: self.shadow(v, k, made.op_type) for n, v in used.items()}), k) for k in (0, 1)]
        except Refused:
            raise
        except Exception as e:      # ONNX Runtime's, of many classes
            self.refused.append((made.op_type, str(e)))
            raise Refused(f"{made.op_type}: {e}") from None
        results = []
        for i, name in enumerate(o for o in made.output if o):
            self.worth(made, data[i], shadows[0][i], shadows[1][i])
            results.append(Value(name, data[i], (shadows[0][i], shadows[1][i]), False))
        return results

    def shadow(self, v, k, op):
        a = v.data if v.constant else v.shadows[k]
        if op not in CONDITIONED or v.constant or isinstance(a, list) or not is_float(a.dtype):
            return a
        sign = np.random.default_rng(self.count).choice((-1, 1), a.shape) * (1 - 2 * k)
        with np.errstate(all="ignore"):
            return (a.astype(np.float64) * (1 + sign * NOISE.get(a.dtype, 0.1) / 50)).astype(a.dtype)

    def noisy(self, made, results, k):
        """The results of a node, wrong by as much as rounding may have made them; the other way for the other k."""
        rng = np.random.default_rng(self.count)
        return [self.noisy_array(made.op_type, a, rng, 1 - 2 * k) for a in results]

    def noisy_array(self, op, a, rng, sign):
        if isinstance(a, list):
            return [self.noisy_array(op, x, rng, sign) for x in a]
        if isinstance(a, np.ndarray) and op in WIDE and a.dtype.kind in "iu":       # truncated sums of weights that are rounded
            limit = np.iinfo(a.dtype)
            return np.clip(a.astype(np.int64) + sign, limit.min, limit.max).astype(a.dtype)
        if a is None or not is_float(a.dtype) or op in EXACT or a.size == 0:
            return a
        x = a.astype(np.float64)
        finite = np.abs(x[np.isfinite(x)])
        by = np.abs(x) + (np.max(finite, initial=0) * 0.1 if op in SUMS else 0.1 if op in UNITS else 0)
        eps = NOISE[F32] if op in NARROW and a.dtype == F64 else NOISE.get(a.dtype, 0.1) * LOOSE.get(op, 1)
        with np.errstate(all="ignore"):
            return (x + np.where(np.isfinite(x), sign * eps * by * rng.choice((-1, 1), x.shape), 0)).astype(
                np.float32 if a.dtype in (BF16, *F8) else a.dtype).astype(a.dtype)

    def worth(self, made, a, low, high):
        """Raises Refused for results that would make the rest of the network say little."""
        if isinstance(a, list):
            if len(a) != len(low) or len(a) != len(high):
                raise Refused("the length of a sequence is not determined")
            for x, l, h in zip(a, low, high):
                self.worth(made, x, l, h)
            return
        if not isinstance(a, np.ndarray) or a.dtype.kind in "OUS":
            return
        if a.size > ELEMENTS:
            raise Refused("too many elements")
        if low.shape != a.shape or high.shape != a.shape:
            raise Refused("a shape is not determined")
        if a.size == 0:
            if not self.empties and not self.chance(10):
                raise Refused("an empty tensor")
            return
        if not is_float(a.dtype):
            apart = max(np.max(np.abs(wide(s).astype(np.float64) - wide(a).astype(np.float64))) for s in (low, high))
            if apart > (1 if made.op_type in ROUNDED else 0):
                raise Refused("integers are not determined")
            return
        x = a.astype(np.float64)
        finite = x[np.isfinite(x)]
        if finite.size < x.size * 0.6 and not self.chance(10):
            raise Refused("hardly a number")
        if np.max(np.abs(finite), initial=0) > (2e3 if a.dtype == F16 else 1e6) and not self.chance(5):
            raise Refused("large numbers")
        with np.errstate(all="ignore"):
            spread = np.nanmax(np.abs(low.astype(np.float64) - high.astype(np.float64)), initial=0)
        if np.isfinite(spread) and spread > 0.02 * max(np.max(np.abs(finite), initial=0), 1e-30):
            raise Refused("rounding decides")


GENERATORS = {}                  # name: (function, weight)


def generator(*names, weight=1):
    """Registers a function of a Draw (and a name) that adds nodes of these operators to it."""
    def register(function):
        for name in names:
            GENERATORS[name] = (function, weight)
        return function
    return register


__all__ = ["Draw", "Value", "Refused", "GENERATORS", "generator", "BOOL", "F16", "F32", "FLOATS", "I4", "I64", "PLAIN", "U4"]

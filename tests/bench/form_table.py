"""The forms that tests/bench/forms.py times: {name: Form}. A name begins with the operator's."""
import dataclasses

import numpy as np
from onnx import helper

N = helper.make_node


@dataclasses.dataclass
class Form:
    """A small network. feeds: its inputs by name; constants: its initializers; open: {input: dims as the file has them} of those
    whose shape is not that of the feed; work: multiply-adds, 0: bytes count; steps: how far apart quantized results may be; close: how
    far floats, of the largest."""
    nodes: list
    feeds: dict
    constants: dict
    open: dict = dataclasses.field(default_factory=dict)
    work: int = 0
    steps: int = 0
    opset: int = 20
    close: float = 1e-4


class Const:
    """An operand that the file holds."""

    def __init__(self, array):
        self.array = np.asarray(array)


# ---- operands -------------------------------------------------------------------------------------------------------

def rng_of(shape):
    return np.random.default_rng([7, *shape])


def f32(*shape):
    return rng_of(shape).standard_normal(shape).astype(np.float32)


def ints(dtype, low, high, *shape):
    return rng_of(shape).integers(low, high, shape).astype(dtype)


def u8(*shape):
    return ints(np.uint8, 0, 256, *shape)


def i8(*shape):
    return ints(np.int8, -128, 128, *shape)


def i64(low, high, *shape):
    return ints(np.int64, low, high, *shape)


def mask(share, *shape):
    return rng_of(shape).random(shape) < share


def scale(*shape):
    return Const(rng_of(shape).uniform(0.01, 0.03, shape).astype(np.float32))


def c64(*values):
    return Const(np.array(values, np.int64))


def c32(value):
    return Const(np.float32(value))


# ---- forms ----------------------------------------------------------------------------------------------------------

def one(op, *operands, work=0, steps=0, opset=20, results=1, dims=None, **attributes):
    """One operator. operands: an array is an input, a Const an initializer, None absent; dims: those of the first input."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(operands)]
    node = N(op, names, [f"y{i}" for i in range(results)], **attributes)
    feeds = {n: a for n, a in zip(names, operands) if isinstance(a, np.ndarray)}
    constants = {n: a.array for n, a in zip(names, operands) if isinstance(a, Const)}
    return Form([node], feeds, constants, {"x0": dims} if dims else {}, work, steps, opset)


def quantized(x, nodes, out, scales=(0.02, 0.02), zeros=(0, 0)):
    """x -> DequantizeLinear -> nodes (from "d" to "e") -> QuantizeLinear, in x's type."""
    constants = {"s": np.float32(scales[0]), "z": x.dtype.type(zeros[0]), "t": np.float32(scales[1]), "w": x.dtype.type(zeros[1])}
    return Form([N("DequantizeLinear", ["x", "s", "z"], ["d"]), *nodes, N("QuantizeLinear", ["e", "t", "w"], [out])], {"x": x}, constants,
                steps=1)


def conv(x, w, op="Conv", work=None, **attributes):
    points = int(np.prod(x.shape[2:])) // int(np.prod(attributes.get("strides", [1]))) if op == "Conv" else int(np.prod(x.shape[2:]))
    return one(op, x, Const(w), Const(f32(w.shape[0] if op == "Conv" else w.shape[1] * attributes.get("group", 1))),
               work=work or points * w.size, **attributes)


def recurrent(op, steps, batch, width, hidden, dims=None, **attributes):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    w, r, b = (f32(ways, gates * hidden, n) / np.float32(n ** 0.5) for n in (width, hidden, 2 * hidden))
    b = b[:, 0, :2 * hidden] if gates == 1 else f32(ways, 2 * gates * hidden) / 8
    form = one(op, f32(steps, batch, width), Const(w), Const(r), Const(b), hidden_size=hidden, results=1, dims=dims,
               work=ways * steps * batch * gates * hidden * (width + hidden), **attributes)
    return form


def product(a, b, work=None):
    m = int(np.prod(a.shape))
    return one("MatMul", a, b, work=m * (b.array if isinstance(b, Const) else b).shape[-1])


def boxes(n):
    """Of a detector: n boxes that overlap a little, and their scores."""
    at = rng_of((n, 4)).random((1, n, 2)) * 500
    size = rng_of((n, 2)).random((1, n, 2)) * 60 + 4
    return np.concatenate([at, at + size], 2).astype(np.float32)


IMAGE = (1, 64, 56, 56)

ELEMENTWISE = {
    "Exp 1M": one("Exp", f32(1024, 1024)),
    "Log 1M": one("Log", np.abs(f32(1024, 1024)) + np.float32(0.01)),
    "Erf 1M": one("Erf", f32(1024, 1024)),
    "Tanh 1M": one("Tanh", f32(1024, 1024)),
    "Sigmoid 1M": one("Sigmoid", f32(1024, 1024)),
    "Gelu 128x3072": one("Gelu", f32(128, 3072)),
    "Gelu tanh 128x3072": one("Gelu", f32(128, 3072), approximate="tanh"),
    "Softplus 1M": one("Softplus", f32(1024, 1024)),
    "Sqrt 1M": one("Sqrt", np.abs(f32(1024, 1024))),
    "Pow square 1M": one("Pow", f32(1024, 1024), c32(2)),
    "Pow 2.2 256K": one("Pow", np.abs(f32(512, 512)), c32(2.2)),
    "Sin 256K": one("Sin", f32(512, 512)),
    "Add 1M": one("Add", f32(1024, 1024), f32(1024, 1024)),
    "Add row 1M": one("Add", f32(1024, 1024), f32(1024)),
    "Mul column 1M": one("Mul", f32(1024, 1024), f32(1024, 1)),
    "Div 1M": one("Div", f32(1024, 1024), np.abs(f32(1024, 1024)) + np.float32(0.5)),
    "Div i64 256K": one("Div", i64(-1000, 1000, 512, 512), i64(1, 90, 512, 512)),
    "Mod i64 256K": one("Mod", i64(-1000, 1000, 512, 512), i64(1, 90, 512, 512)),
    "Where 1M": one("Where", mask(0.5, 1024, 1024), f32(1024, 1024), f32(1024, 1024)),
    "Where masked fill 1M": one("Where", mask(0.5, 1024, 1024), c32(-1e9), f32(1024, 1024)),
    "Clip 1M": one("Clip", f32(1024, 1024), c32(-1), c32(1)),
    "Less 1M": one("Less", f32(1024, 1024), f32(1024, 1024)),
    "PRelu 64 at 56": one("PRelu", f32(*IMAGE), Const(f32(64, 1, 1))),
    "Cast f32 to f16 1M": one("Cast", f32(1024, 1024), to=10),
    "Cast f16 to f32 1M": one("Cast", f32(1024, 1024).astype(np.float16), to=1),
    "Cast u8 to f32 1M": one("Cast", u8(1024, 1024), to=1),
    "Cast f32 to u8 1M": one("Cast", np.abs(f32(1024, 1024)) * 40, to=2),
    "Cast i64 to f32 1M": one("Cast", i64(-1000, 1000, 1024, 1024), to=1),
    "Cast f32 to i64 1M": one("Cast", f32(1024, 1024) * 99, to=7),
    "Cast f32 to i32 1M": one("Cast", f32(1024, 1024) * 99, to=6),
    "Cast i32 to i64 1M": one("Cast", ints(np.int32, -1000, 1000, 1024, 1024), to=7),
    "Cast bool to f32 1M": one("Cast", mask(0.5, 1024, 1024), to=1),
}

QUANTIZE = {
    "QuantizeLinear u8 1.3M": one("QuantizeLinear", f32(1, 64, 144, 144), c32(0.02), Const(np.uint8(128))),
    "QuantizeLinear i8 1.3M": one("QuantizeLinear", f32(1, 64, 144, 144), c32(0.02), Const(np.int8(3))),
    "QuantizeLinear u16 1.3M": one("QuantizeLinear", f32(1, 64, 144, 144), c32(0.0002), Const(np.uint16(32768)), opset=21),
    "QuantizeLinear i16 1.3M": one("QuantizeLinear", f32(1, 64, 144, 144), c32(0.0002), Const(np.int16(0)), opset=21),
    "QuantizeLinear u8 axis 1": one("QuantizeLinear", f32(1, 64, 144, 144), scale(64), Const(np.full(64, 128, np.uint8)), axis=1),
    "QuantizeLinear i8 axis -1": one("QuantizeLinear", f32(2048, 512), scale(512), Const(np.zeros(512, np.int8)), axis=-1),
    "QuantizeLinear u8 odd 997x333": one("QuantizeLinear", f32(997, 333), c32(0.02), Const(np.uint8(128))),
    "QuantizeLinear u8 scale an input": one("QuantizeLinear", f32(1, 64, 144, 144), np.array(0.02, np.float32), np.array(128, np.uint8)),
    "DequantizeLinear u8 1.3M": one("DequantizeLinear", u8(1, 64, 144, 144), c32(0.02), Const(np.uint8(128))),
    "DequantizeLinear i8 1.3M": one("DequantizeLinear", i8(1, 64, 144, 144), c32(0.02), Const(np.int8(3))),
    "DequantizeLinear u16 1.3M": one("DequantizeLinear", ints(np.uint16, 0, 65536, 1, 64, 144, 144), c32(0.0002), Const(np.uint16(32768)), opset=21),
    "DequantizeLinear i32 1.3M": one("DequantizeLinear", ints(np.int32, -9999, 9999, 1, 64, 144, 144), c32(0.0002)),
    "DequantizeLinear u8 axis 1": one("DequantizeLinear", u8(1, 64, 144, 144), scale(64), Const(np.full(64, 128, np.uint8)), axis=1),
    "DequantizeLinear i8 axis -1": one("DequantizeLinear", i8(2048, 512), scale(512), Const(np.zeros(512, np.int8)), axis=-1),
    "DynamicQuantizeLinear 1.3M": one("DynamicQuantizeLinear", f32(1, 64, 144, 144), results=3, steps=1),
    "DynamicQuantizeLinear 128x768": one("DynamicQuantizeLinear", f32(128, 768), results=3, steps=1),
    "QDQ Transpose NHWC to NCHW u8": quantized(u8(1, 112, 112, 32), [N("Transpose", ["d"], ["e"], perm=[0, 3, 1, 2])], "y"),
    "QDQ Transpose NCHW to NHWC i8": quantized(i8(1, 32, 112, 112), [N("Transpose", ["d"], ["e"], perm=[0, 2, 3, 1])], "y"),
    "QDQ Transpose 0213 u8, two scales": quantized(u8(1, 128, 12, 64), [N("Transpose", ["d"], ["e"], perm=[0, 2, 1, 3])], "y", (0.02, 0.03)),
    "QDQ Softmax 1536x128 u8": quantized(u8(12, 128, 128), [N("Softmax", ["d"], ["e"], axis=-1)], "y", (0.05, 1 / 256), (128, 0)),
    "QDQ Softmax 1024x1000 i8": quantized(i8(1024, 1000), [N("Softmax", ["d"], ["e"], axis=-1)], "y", (0.05, 1 / 256), (0, -128)),
    "QDQ Sigmoid u8 1M": quantized(u8(1024, 1024), [N("Sigmoid", ["d"], ["e"])], "y", (0.05, 1 / 256), (128, 0)),
    "QDQ Relu u8 1M": quantized(u8(1024, 1024), [N("Relu", ["d"], ["e"])], "y", (0.02, 0.01), (128, 0)),
    "QDQ MaxPool u8 64 at 56": quantized(u8(*IMAGE), [N("MaxPool", ["d"], ["e"], kernel_shape=[2, 2], strides=[2, 2])], "y"),
    "QDQ GlobalAveragePool u8 512 at 14": quantized(u8(1, 512, 14, 14), [N("GlobalAveragePool", ["d"], ["e"])], "y"),
}


def transposes():
    for name, array in (("f32", f32), ("u8", u8)):
        yield f"Transpose 2-D 1024x1024 {name}", one("Transpose", array(1024, 1024), perm=[1, 0])
        yield f"Transpose 2-D 333x517 {name}", one("Transpose", array(333, 517), perm=[1, 0])
        yield f"Transpose NHWC to NCHW 112x112x32 {name}", one("Transpose", array(1, 112, 112, 32), perm=[0, 3, 1, 2])
        yield f"Transpose NCHW to NHWC 32x112x112 {name}", one("Transpose", array(1, 32, 112, 112), perm=[0, 2, 3, 1])
        yield f"Transpose NHWC to NCHW 224x224x3 {name}", one("Transpose", array(1, 224, 224, 3), perm=[0, 3, 1, 2])
        yield f"Transpose NCHW to NHWC 3x224x224 {name}", one("Transpose", array(1, 3, 224, 224), perm=[0, 2, 3, 1])
        yield f"Transpose last two 12x128x64 {name}", one("Transpose", array(12, 128, 64), perm=[0, 2, 1])
        yield f"Transpose 0213 1x128x12x64 {name}", one("Transpose", array(1, 128, 12, 64), perm=[0, 2, 1, 3])
    yield "Transpose 2-D 512x512 i64", one("Transpose", i64(0, 9, 512, 512), perm=[1, 0])
    yield "Transpose 2-D 1024x1024 f16", one("Transpose", f32(1024, 1024).astype(np.float16), perm=[1, 0])
    yield "Transpose NHWC to NCHW f32, open", one("Transpose", f32(1, 112, 112, 32), perm=[0, 3, 1, 2], dims=["n", "h", "w", "c"])
    yield "Transpose reversed 64x48x80 f32", one("Transpose", f32(64, 48, 80), perm=[2, 1, 0])


NORMS = {
    "Softmax 2364x197": one("Softmax", f32(2364, 197), axis=-1),
    "Softmax 4096x16": one("Softmax", f32(4096, 16), axis=-1),
    "Softmax 8x32000": one("Softmax", f32(8, 32000), axis=-1),
    "Softmax axis 1 1x21x128x128": one("Softmax", f32(1, 21, 128, 128), axis=1),
    "LogSoftmax 64x1000": one("LogSoftmax", f32(64, 1000), axis=-1),
    "LayerNormalization 128x768": one("LayerNormalization", f32(128, 768), Const(f32(768)), Const(f32(768))),
    "LayerNormalization 4096x64": one("LayerNormalization", f32(4096, 64), Const(f32(64)), Const(f32(64))),
    "RMSNormalization 128x2048": one("RMSNormalization", f32(128, 2048), Const(f32(2048)), opset=23),
    "GroupNormalization 64 at 56": one("GroupNormalization", f32(*IMAGE), Const(f32(64)), Const(f32(64)), num_groups=8, opset=21),
    "InstanceNormalization 64 at 56": one("InstanceNormalization", f32(*IMAGE), Const(f32(64)), Const(f32(64))),
    "BatchNormalization 64 at 56": one("BatchNormalization", f32(*IMAGE), *(Const(np.abs(f32(64)) + np.float32(0.1)) for _ in range(4))),
    "LpNormalization 512x512": one("LpNormalization", f32(512, 512), axis=-1),
    "LRN 64 at 56": one("LRN", f32(*IMAGE), size=5),
    "MeanVarianceNormalization 64 at 56": one("MeanVarianceNormalization", f32(*IMAGE)),
}

REDUCTIONS = {
    "ReduceSum last 1024x1024": one("ReduceSum", f32(1024, 1024), c64(1)),
    "ReduceSum first 1024x1024": one("ReduceSum", f32(1024, 1024), c64(0)),
    "ReduceSum all 1024x1024": one("ReduceSum", f32(1024, 1024)),
    "ReduceMean middle 32x256x128": one("ReduceMean", f32(32, 256, 128), c64(1)),
    "ReduceMean image 64 at 56": one("ReduceMean", f32(*IMAGE), c64(2, 3)),
    "ReduceMean channels 64 at 56": one("ReduceMean", f32(*IMAGE), c64(1)),
    "ReduceMax last 1024x1024": one("ReduceMax", f32(1024, 1024), c64(1)),
    "ReduceMax first 1024x1024": one("ReduceMax", f32(1024, 1024), c64(0)),
    "ReduceMax short rows 65536x8": one("ReduceMax", f32(65536, 8), c64(1)),
    "ReduceL2 last 1024x1024": one("ReduceL2", f32(1024, 1024), c64(1)),
    "ReduceLogSumExp last 256x1024": one("ReduceLogSumExp", f32(256, 1024), c64(1)),
    "ReduceProd last 1024x1024": one("ReduceProd", np.float32(1) + f32(1024, 1024) / 99, c64(1)),
    "ReduceMin u8 last 1024x1024": one("ReduceMin", u8(1024, 1024), c64(1)),
    "ReduceSum i64 last 512x512": one("ReduceSum", i64(-99, 99, 512, 512), c64(1)),
    "ArgMax last 256x1000": one("ArgMax", f32(256, 1000), axis=1),
    "ArgMax channels 21x128x128": one("ArgMax", f32(1, 21, 128, 128), axis=1),
    "ArgMax short rows 16384x16": one("ArgMax", f32(16384, 16), axis=1),
    "TopK 5 of 64x1000": one("TopK", f32(64, 1000), c64(5), results=2),
    "TopK 100 of 1x8400": one("TopK", f32(1, 8400), c64(100), results=2),
    "TopK all of 16x1024": one("TopK", f32(16, 1024), c64(1024), results=2),
    "CumSum last 512x512": one("CumSum", f32(512, 512), c64(1)),
    "CumSum first 512x512": one("CumSum", f32(512, 512), c64(0)),
}

MOVES = {
    "Gather rows 128 of 30000x768": one("Gather", Const(f32(30000, 768)), i64(0, 30000, 128)),
    "Gather columns 256 of 512x1024": one("Gather", f32(512, 1024), i64(0, 1024, 256), axis=1),
    "Gather scalars 64K": one("Gather", f32(65536), i64(0, 65536, 65536)),
    "GatherElements 512x512": one("GatherElements", f32(512, 512), i64(0, 512, 512, 512), axis=1),
    "GatherND 4096 of 64x64x64": one("GatherND", f32(64, 64, 64), i64(0, 64, 4096, 2)),
    "ScatterND 4096 into 64x64x64": one("ScatterND", f32(64, 64, 64), Const(np.stack(np.divmod(np.random.default_rng(3).permutation(4096)[:2048], 64),
                                                                                       1).astype(np.int64)), f32(2048, 64)),
    "ScatterND add 4096 into 64x64": one("ScatterND", f32(64, 64), i64(0, 64, 4096, 2), f32(4096), reduction="add"),
    "ScatterElements 512x512": one("ScatterElements", f32(512, 512), Const(np.random.default_rng(4).permuted(
        np.tile(np.arange(512), (256, 1)), axis=1)[:, :512].astype(np.int64)), f32(256, 512), axis=1),
    "ScatterElements add 512x512": one("ScatterElements", f32(512, 512), i64(0, 512, 512, 512), f32(512, 512), axis=0, reduction="add"),
    "Concat channels 2 x 64 at 56": one("Concat", f32(*IMAGE), f32(*IMAGE), axis=1),
    "Concat last 4 x 1024x64": one("Concat", *(f32(1024, 64) for _ in range(4)), axis=1),
    "Concat last 1024x3 and 1024x5": one("Concat", f32(16384, 3), f32(16384, 5), axis=1),
    "Split last 1024x256 in 4": one("Split", f32(1024, 256), axis=1, num_outputs=4, results=4),
    "Split channels 64 at 56 in 2": one("Split", f32(*IMAGE), axis=1, num_outputs=2, results=2),
    "Pad 1 64 at 56": one("Pad", f32(*IMAGE), c64(0, 0, 1, 1, 0, 0, 1, 1)),
    "Pad reflect 3 3 at 224": one("Pad", f32(1, 3, 224, 224), c64(0, 0, 3, 3, 0, 0, 3, 3), mode="reflect"),
    "Pad edge 3 3 at 224": one("Pad", f32(1, 3, 224, 224), c64(0, 0, 3, 3, 0, 0, 3, 3), mode="edge"),
    "Slice window 64 at 56": one("Slice", f32(*IMAGE), c64(4, 4), c64(52, 52), c64(2, 3)),
    "Slice step 2 last 1024x1024": one("Slice", f32(1024, 1024), c64(0), c64(1024), c64(1), c64(2)),
    "Slice step 2 both 64 at 56": one("Slice", f32(*IMAGE), c64(0, 0), c64(56, 56), c64(2, 3), c64(2, 2)),
    "Slice backwards last 1024x1024": one("Slice", f32(1024, 1024), c64(-1), c64(-2000), c64(1), c64(-1)),
    "Slice step 3 last 1024x1024": one("Slice", f32(1024, 1024), c64(0), c64(1024), c64(1), c64(3)),
    "Tile 2x3 256x256": one("Tile", f32(256, 256), c64(2, 3)),
    "Tile last 4096x3 by 8": one("Tile", f32(4096, 3), c64(1, 8)),
    "Expand column 1024x1 to 1024": one("Expand", f32(1024, 1), c64(1024, 1024)),
    "Expand row 1x1024 to 1024": one("Expand", f32(1, 1024), c64(1024, 1024)),
    "DepthToSpace 2 64 at 56": one("DepthToSpace", f32(*IMAGE), blocksize=2),
    "SpaceToDepth 2 64 at 56": one("SpaceToDepth", f32(*IMAGE), blocksize=2),
    "NonZero 512x512": one("NonZero", (f32(512, 512) > 1).astype(np.float32)),
    "OneHot 1024 of 1000": one("OneHot", i64(0, 1000, 1024), c64(1000), Const(np.array([0, 1], np.float32))),
    "Unique 16384 i64": one("Unique", i64(0, 999, 16384), results=4),
    "Compress 1024 rows of 64": one("Compress", f32(1024, 64), mask(0.5, 1024), axis=0),
    "NonMaxSuppression 1000 boxes": one("NonMaxSuppression", boxes(1000), np.abs(f32(1, 1, 1000)), c64(100), c32(0.5), c32(0.3)),
    "Trilu 1024x1024": one("Trilu", f32(1024, 1024), upper=0),
    "Resize nearest 2 64 at 28": one("Resize", f32(1, 64, 28, 28), None, Const(np.array([1, 1, 2, 2], np.float32)), mode="nearest",
                                     coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    "Resize linear 2 64 at 28": one("Resize", f32(1, 64, 28, 28), None, Const(np.array([1, 1, 2, 2], np.float32)), mode="linear"),
    "Resize linear 640x480 to 224": one("Resize", f32(1, 3, 480, 640), None, None, c64(1, 3, 224, 224), mode="linear"),
    "Resize cubic 2 16 at 28": one("Resize", f32(1, 16, 28, 28), None, Const(np.array([1, 1, 2, 2], np.float32)), mode="cubic"),
    "GridSample 16 at 32": one("GridSample", f32(1, 16, 32, 32), np.tanh(f32(1, 32, 32, 2)), mode="linear"),
}

WINDOWS = {
    "MaxPool 3x3 stride 2 64 at 56": one("MaxPool", f32(*IMAGE), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "MaxPool 2x2 stride 2 u8 64 at 56": one("MaxPool", u8(*IMAGE), kernel_shape=[2, 2], strides=[2, 2]),
    "MaxPool 5x5 stride 1 64 at 20": one("MaxPool", f32(1, 64, 20, 20), kernel_shape=[5, 5], pads=[2] * 4),
    "MaxPool 1-D 3 64 at 4096": one("MaxPool", f32(1, 64, 4096), kernel_shape=[3], strides=[2]),
    "AveragePool 2x2 stride 2 64 at 56": one("AveragePool", f32(*IMAGE), kernel_shape=[2, 2], strides=[2, 2]),
    "AveragePool 3x3 stride 1 64 at 28": one("AveragePool", f32(1, 64, 28, 28), kernel_shape=[3, 3], pads=[1] * 4),
    "GlobalAveragePool 512 at 7": one("GlobalAveragePool", f32(1, 512, 7, 7)),
    "GlobalAveragePool 64 at 56": one("GlobalAveragePool", f32(*IMAGE)),
    "GlobalMaxPool 64 at 56": one("GlobalMaxPool", f32(*IMAGE)),
    "Conv 1x1 64 to 128 at 28": conv(f32(1, 64, 28, 28), f32(128, 64, 1, 1)),
    "Conv 3x3 64 to 64 at 28": conv(f32(1, 64, 28, 28), f32(64, 64, 3, 3), pads=[1] * 4),
    "Conv depthwise 3x3 96 at 56": conv(f32(1, 96, 56, 56), f32(96, 1, 3, 3), pads=[1] * 4, group=96),
    "Conv depthwise 5x5 stride 2 96 at 28": conv(f32(1, 96, 28, 28), f32(96, 1, 5, 5), pads=[2] * 4, group=96, strides=[2, 2]),
    "Conv 8 groups 3x3 64 at 28": conv(f32(1, 64, 28, 28), f32(64, 8, 3, 3), pads=[1] * 4, group=8),
    "Conv dilation 2 3x3 64 at 28": conv(f32(1, 64, 28, 28), f32(64, 64, 3, 3), pads=[2] * 4, dilations=[2, 2]),
    "Conv 1x1 1280 to 1000 at 1, 16 images": conv(f32(16, 1280, 1, 1), f32(1000, 1280, 1, 1), work=16 * 1280 * 1000),
    "Conv 7x7 128 to 256 at 1, 16 images": conv(f32(16, 128, 7, 7), f32(256, 128, 7, 7), work=16 * 128 * 49 * 256),
    "Conv 1-D 9 64 at 1000": conv(f32(1, 64, 1000), f32(64, 64, 9), pads=[4, 4]),
    "Conv 3-D 3x3x3 16 at 16": conv(f32(1, 16, 16, 16, 16), f32(16, 16, 3, 3, 3), pads=[1] * 6),
    "ConvTranspose 4x4 stride 2 64 to 32 at 16": conv(f32(1, 64, 16, 16), f32(64, 32, 4, 4), "ConvTranspose", strides=[2, 2], pads=[1] * 4),
    "ConvTranspose 2x2 stride 2 64 to 64 at 28": conv(f32(1, 64, 28, 28), f32(64, 64, 2, 2), "ConvTranspose", strides=[2, 2]),
    "ConvTranspose 3x3 stride 2 groups 32 at 28": conv(f32(1, 32, 28, 28), f32(32, 1, 3, 3), "ConvTranspose", strides=[2, 2], group=32),
}

PRODUCTS = {
    "MatMul 128x768x768": product(f32(128, 768), Const(f32(768, 768))),
    "MatMul 7x100x33": product(f32(7, 100), Const(f32(100, 33))),
    "MatMul 63x65x67": product(f32(63, 65), f32(65, 67)),
    "MatMul open 8x768x3072": one("MatMul", f32(8, 768), Const(f32(768, 3072)), work=8 * 768 * 3072, dims=["rows", 768]),
    "MatMul open 12x768x768": one("MatMul", f32(12, 768), Const(f32(768, 768)), work=12 * 768 * 768, dims=["rows", 768]),
    "MatMul 1x512x512": product(f32(1, 512), Const(f32(512, 512))),
    "MatMul 1x512x512, an input": product(f32(1, 512), f32(512, 512)),
    "MatMul 512x512 by vector": one("MatMul", f32(512, 512), f32(512), work=512 * 512),
    "MatMul 96 x 49x32x49, inputs": product(f32(96, 49, 32), f32(96, 32, 49)),
    "MatMul 1000 x 4x4x4": product(f32(1000, 4, 4), f32(1000, 4, 4)),
    "MatMul 1024x1024x3": product(f32(1024, 1024), Const(f32(1024, 3))),
    "MatMul 3x1024x1024": product(f32(3, 1024), Const(f32(1024, 1024))),
    "MatMul f64 96x96x96": product(f32(96, 96).astype(np.float64), f32(96, 96).astype(np.float64)),
    "Gemm transB 64x256x256": one("Gemm", f32(64, 256), Const(f32(256, 256)), Const(f32(256)), transB=1, work=64 * 256 * 256),
    "Gemm transA 64x256x256": one("Gemm", f32(256, 64), Const(f32(256, 256)), Const(f32(256)), transA=1, work=64 * 256 * 256),
    "Gemm transA transB, inputs": one("Gemm", f32(128, 128), f32(128, 128), f32(128), transA=1, transB=1, work=128 ** 3),
    "Einsum bhqd,bhkd->bhqk": one("Einsum", f32(1, 8, 64, 64), f32(1, 8, 64, 64), equation="bhqd,bhkd->bhqk", work=8 * 64 ** 3),
    "Einsum bqhd,bkhd->bhqk": one("Einsum", f32(1, 64, 8, 64), f32(1, 64, 8, 64), equation="bqhd,bkhd->bhqk", work=8 * 64 ** 3),
    "Einsum i,j->ij": one("Einsum", f32(1024), f32(1024), equation="i,j->ij"),
    "Einsum ij,ij->i": one("Einsum", f32(512, 512), f32(512, 512), equation="ij,ij->i"),
    "MatMulInteger 64x256x256": one("MatMulInteger", u8(64, 256), Const(ints(np.int8, -64, 64, 256, 256)), work=64 * 256 * 256),
}

OPEN = ["steps", "batch", 64]
RECURRENT = {
    "LSTM 32 steps batch 1 64 to 64": recurrent("LSTM", 32, 1, 64, 64),
    "LSTM 32 steps batch 1 256 to 128": recurrent("LSTM", 32, 1, 256, 128),
    "LSTM 32 steps batch 1 512 to 256": recurrent("LSTM", 32, 1, 512, 256),
    "LSTM 32 steps batch 8 64 to 64": recurrent("LSTM", 32, 8, 64, 64),
    "LSTM both ways 32 steps batch 1 128 to 64": recurrent("LSTM", 32, 1, 128, 64, direction="bidirectional"),
    "LSTM open 32 steps batch 1 64 to 64": recurrent("LSTM", 32, 1, 64, 64, OPEN),
    "LSTM open 32 steps batch 4 64 to 64": recurrent("LSTM", 32, 4, 64, 64, OPEN),
    "LSTM open 50 steps batch 1 256 to 128": recurrent("LSTM", 50, 1, 256, 128, ["steps", "batch", 256]),
    "LSTM open both ways 32 steps batch 2 64 to 64": recurrent("LSTM", 32, 2, 64, 64, OPEN, direction="bidirectional"),
    "LSTM open steps 32 batch 1 64 to 64": recurrent("LSTM", 32, 1, 64, 64, ["steps", 1, 64]),
    "GRU 32 steps batch 1 256 to 128": recurrent("GRU", 32, 1, 256, 128, linear_before_reset=1),
    "GRU open 32 steps batch 1 64 to 64": recurrent("GRU", 32, 1, 64, 64, OPEN, linear_before_reset=1),
    "GRU open 32 steps batch 4 128 to 64": recurrent("GRU", 32, 4, 128, 64, ["steps", "batch", 128]),
    "RNN open 32 steps batch 1 64 to 64": recurrent("RNN", 32, 1, 64, 64, OPEN),
}

FORMS = {**ELEMENTWISE, **QUANTIZE, **dict(transposes()), **NORMS, **REDUCTIONS, **MOVES, **WINDOWS, **PRODUCTS, **RECURRENT}

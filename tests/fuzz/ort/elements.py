"""Element types: what ONNX calls them, what numpy calls them, and how far rounding may carry a result of each."""
import ml_dtypes
import numpy as np
from onnx import TensorProto as T

F32, F64, F16, BF16 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
I8, I16, I32, I64 = (np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64))
U8, U16, U32, U64 = (np.dtype(t) for t in (np.uint8, np.uint16, np.uint32, np.uint64))
BOOL = np.dtype(np.bool_)
TEXT = np.dtype(object)                      # strings
I4, U4 = np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)
F8 = [np.dtype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz)]

ELEM = {
    F32: T.FLOAT, F64: T.DOUBLE, F16: T.FLOAT16, BF16: T.BFLOAT16, I8: T.INT8, I16: T.INT16, I32: T.INT32, I64: T.INT64,
    U8: T.UINT8, U16: T.UINT16, U32: T.UINT32, U64: T.UINT64, BOOL: T.BOOL, I4: T.INT4, U4: T.UINT4,
    F8[0]: T.FLOAT8E4M3FN, F8[1]: T.FLOAT8E4M3FNUZ, F8[2]: T.FLOAT8E5M2, F8[3]: T.FLOAT8E5M2FNUZ,
}
ELEM[TEXT] = T.STRING
OF_ELEM = {e: t for t, e in ELEM.items()}
OF_NAME = {"tensor(float)": F32, "tensor(double)": F64, "tensor(float16)": F16, "tensor(bfloat16)": BF16, "tensor(bool)": BOOL,
           "tensor(int4)": I4, "tensor(uint4)": U4}
OF_NAME |= {f"tensor({t.name})": t for t in (I8, I16, I32, I64, U8, U16, U32, U64)}
OF_NAME |= {"tensor(float8e4m3fn)": F8[0], "tensor(float8e4m3fnuz)": F8[1], "tensor(float8e5m2)": F8[2], "tensor(float8e5m2fnuz)": F8[3]}

FLOATS, SIGNED, UNSIGNED = [F32, F64, F16, BF16], [I8, I16, I32, I64], [U8, U16, U32, U64]
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
PLAIN = [F32, F64, F16] + INTS + [BOOL]        # what ONNX Runtime's Python passes as numpy arrays

# How often each is drawn where an operator allows several.
WEIGHT = {F32: 60, F64: 6, F16: 8, BF16: 2, I64: 10, I32: 8, U8: 5, I8: 5, BOOL: 4, I16: 2, U16: 2, U32: 2, U64: 2}

# A relative error that an implementation may make in one operator that rounds, with a margin: 2^-24 is half a unit of f32.
NOISE = {F32: 1e-5, F64: 1e-12, F16: 2e-3, BF16: 1.6e-2}


def is_float(t):
    return t in NOISE or t in F8


def wide(a):
    """The elements as f64 (or as they are, where integers and booleans are compared exactly)."""
    return a.astype(np.float64) if is_float(a.dtype) else a.astype(np.int8) if a.dtype in (I4, U4) and a.dtype == I4 else a


def carrier(t):
    """The type that stands for t at a graph's ports, where numpy and ONNX Runtime do not share t itself."""
    return t if t in PLAIN or t == TEXT else np.dtype(np.int8) if t == I4 else np.dtype(np.uint8) if t == U4 else F32

"""Compiled models through their C table, with ctypes and numpy.

    with Artifact("net.so") as a:
        outputs = a.run([x, y])        # run_dlpack; arrays in port order
        outputs = a.run_values([...])  # any port: lists are sequences, None is an absent optional, strings object arrays

Arrays of types that numpy lacks are ml_dtypes'; elements narrower than a byte are packed at the ports and one byte each
in numpy, as ml_dtypes has them.
"""
import ctypes as c
import itertools
import pathlib
import tempfile

import ml_dtypes
import numpy as np

# (DLPack code, bits) of every element type but strings
TYPES = {
    (2, 32): np.float32, (2, 64): np.float64, (2, 16): np.float16, (4, 16): ml_dtypes.bfloat16,
    (10, 8): ml_dtypes.float8_e4m3fn, (11, 8): ml_dtypes.float8_e4m3fnuz, (12, 8): ml_dtypes.float8_e5m2,
    (13, 8): ml_dtypes.float8_e5m2fnuz, (14, 8): ml_dtypes.float8_e8m0fnu, (17, 4): ml_dtypes.float4_e2m1fn,
    (0, 8): np.int8, (0, 16): np.int16, (0, 32): np.int32, (0, 64): np.int64, (0, 4): ml_dtypes.int4, (0, 2): ml_dtypes.int2,
    (1, 8): np.uint8, (1, 16): np.uint16, (1, 32): np.uint32, (1, 64): np.uint64, (1, 4): ml_dtypes.uint4,
    (1, 2): ml_dtypes.uint2, (6, 8): np.bool_, (5, 64): np.complex64, (5, 128): np.complex128,
}
CODES = {np.dtype(t): k for k, t in TYPES.items()}
STRING = (3, 128)
KIND_TENSOR, KIND_SEQUENCE, KIND_OPTIONAL, KIND_MAP = range(4)
PORT_SEQUENCE, PORT_OPTIONAL, PORT_MAP, PORT_STRING, PORT_DYNAMIC = 1, 2, 4, 8, 16


NOTHING = np.zeros(16, np.uint8)     # where tensors without elements lie


class DataType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", Device), ("ndim", c.c_int32), ("dtype", DataType),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class Managed(c.Structure):
    pass


DELETER = c.CFUNCTYPE(None, c.POINTER(Managed))
Managed._fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("manager_ctx", c.c_void_p), ("deleter", DELETER),
                    ("flags", c.c_uint64), ("tensor", Tensor)]


class Error(c.Structure):
    _fields_ = [("code", c.c_int32), ("node", c.c_int32), ("text", c.c_char * 248)]


class Symbol(c.Structure):
    _fields_ = [("name", c.c_char_p), ("min", c.c_int64), ("max", c.c_int64), ("step", c.c_int64), ("reserved", c.c_uint64 * 2)]


class Dim(c.Structure):
    _fields_ = [("extent", c.c_int64), ("symbol", c.c_int32), ("room", c.c_int32), ("expr", c.c_char_p)]


class Port(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dims", c.POINTER(Dim)), ("ndim", c.c_int32), ("dtype", DataType),
                ("flags", c.c_uint64), ("alias", c.c_uint64), ("reserved", c.c_uint64 * 1)]


class Node(c.Structure):
    _fields_ = [("name", c.c_char_p), ("op", c.c_char_p), ("source", c.c_char_p), ("flops", c.c_uint64),
                ("bytes", c.c_uint64), ("kernels", c.c_uint64), ("next", c.c_uint64)]


class Value(c.Structure):
    pass


Value._fields_ = [("kind", c.c_int32), ("present", c.c_int32), ("tensor", c.POINTER(Tensor)), ("n", c.c_size_t),
                  ("item", c.POINTER(Value))]
EVENT = c.CFUNCTYPE(None, c.c_void_p, c.c_uint32, c.c_int, c.c_uint64)


class Host(c.Structure):
    _fields_ = [("size", c.c_size_t), ("user", c.c_void_p), ("threads", c.c_uint32), ("flags", c.c_uint32),
                ("alloc", c.c_void_p), ("release", c.c_void_p), ("parallel", c.c_void_p), ("event", EVENT),
                ("weights_path", c.c_char_p), ("weights", c.c_void_p), ("weights_size", c.c_size_t)]


TENSORS = c.POINTER(c.POINTER(Tensor))
ERROR = c.POINTER(Error)


class Api(c.Structure):
    _fields_ = [(n, c.c_uint32) for n in ("abi", "n_in", "n_out", "n_sym", "n_node", "pad")] + [
        ("size", c.c_size_t), ("name", c.c_char_p), ("compiler", c.c_char_p), ("target", c.c_char_p),
        ("features", c.c_char_p), ("meta", c.c_char_p), ("in_", c.POINTER(Port)), ("out", c.POINTER(Port)),
        ("sym", c.POINTER(Symbol)), ("node", c.POINTER(Node)),
        ("open", c.CFUNCTYPE(c.c_int, c.POINTER(Host), c.POINTER(c.c_void_p), ERROR)),
        ("close", c.CFUNCTYPE(None, c.c_void_p)),
        ("plan", c.CFUNCTYPE(c.c_int, c.c_void_p, TENSORS, c.POINTER(c.POINTER(c.c_int64)), c.POINTER(c.c_size_t), ERROR)),
        ("ctx_new", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_size_t, c.POINTER(c.c_void_p), ERROR)),
        ("ctx_free", c.CFUNCTYPE(None, c.c_void_p)),
        ("run", c.CFUNCTYPE(c.c_int, c.c_void_p, TENSORS, TENSORS, ERROR)),
        ("run_dlpack", c.CFUNCTYPE(c.c_int, c.c_void_p, TENSORS, c.POINTER(c.POINTER(Managed)), ERROR)),
        ("cancel", c.CFUNCTYPE(None, c.c_void_p)),
        ("run_values", c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Value), c.POINTER(Value), ERROR)),
        ("value_release", c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Value)))]


class ModelError(Exception):
    """A call into the artifact answered with an error code."""

    def __init__(self, where, error):
        super().__init__(f"{where}: {error.code}: {error.text.decode(errors='replace')}")
        self.code, self.node, self.text = error.code, error.node, error.text.decode(errors="replace")


class StringRef(c.Structure):
    _fields_ = [("utf8", c.c_char_p), ("bytes", c.c_size_t)]


def pack(flat, bits):
    """One element a byte -> packed, the first in the low bits."""
    per = 8 // bits
    raw = flat.view(np.uint8) & ((1 << bits) - 1)
    raw = np.concatenate([raw, np.zeros(-len(raw) % per, np.uint8)]).reshape(-1, per)
    shifted = raw << (np.arange(per, dtype=np.uint8) * bits)
    return np.bitwise_or.reduce(shifted, axis=1).astype(np.uint8) if len(raw) else np.zeros(0, np.uint8)


def unpack(packed, n, bits, dtype):
    per = 8 // bits
    raw = (packed[:, None] >> (np.arange(per, dtype=np.uint8) * bits)) & ((1 << bits) - 1)
    raw = raw.reshape(-1)[:n].astype(np.uint8)
    if dtype in (ml_dtypes.int4, ml_dtypes.int2):
        sign = 1 << (bits - 1)
        raw = ((raw ^ sign) - sign).astype(np.uint8)
    return raw.view(dtype)


def tensor_of(array, keep, strided=False):
    """A DLTensor over array, with its strides or of a compact copy; what must outlive it is appended to keep."""
    array = np.asarray(array)
    shape, strides = (c.c_int64 * max(array.ndim, 1))(*array.shape), None
    if array.dtype == object or array.dtype.kind in "US":
        code, bits = STRING
        texts = [t if isinstance(t, bytes) else str(t).encode() for t in array.reshape(-1)]
        data = (StringRef * max(len(texts), 1))(*[StringRef(t, len(t)) for t in texts])
        keep += [texts, data]
        pointer = c.addressof(data)
    else:
        code, bits = CODES[array.dtype]
        if strided and bits >= 8 and not array.flags.c_contiguous:
            flat, strides = array, (c.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
        else:
            flat = np.ascontiguousarray(array).reshape(-1)
        if bits < 8:
            flat = pack(flat, bits)
        if flat.nbytes == 0:
            flat = NOTHING
        keep.append(flat)
        pointer = flat.ctypes.data
    t = Tensor(pointer, Device(1, 0), array.ndim, DataType(code, bits, 1), shape, strides, 0)
    keep += [shape, strides, t]
    return t


def array_of(t):
    """A copy of a compact DLTensor."""
    shape = tuple(t.shape[i] for i in range(t.ndim))
    n = int(np.prod(shape, dtype=np.int64))
    key = (t.dtype.code, t.dtype.bits)
    at = (t.data or 0) + t.byte_offset
    if key == STRING:
        refs = c.cast(at, c.POINTER(StringRef))
        flat = np.empty(n, dtype=object)
        for i in range(n):
            flat[i] = c.string_at(c.cast(c.byref(refs[i]), c.POINTER(c.c_void_p))[0] or 0, refs[i].bytes).decode()
        return flat.reshape(shape)
    dtype = np.dtype(TYPES[key])
    size = (n * key[1] + 7) // 8
    raw = np.frombuffer(c.string_at(at, size), np.uint8) if size else np.zeros(0, np.uint8)
    flat = unpack(raw, n, key[1], dtype) if key[1] < 8 else raw.view(dtype)
    return flat.reshape(shape).copy()


def value_of(x, keep, flags=0):
    v = Value()
    v.present = 1
    if flags & PORT_OPTIONAL:
        v.kind, v.present = KIND_OPTIONAL, int(x is not None)
        v.n = v.present
        if v.present:
            items = (Value * 1)(value_of(x, keep, flags & ~PORT_OPTIONAL))
            keep.append(items)
            v.item = items
    elif isinstance(x, list):
        v.kind, v.n = KIND_SEQUENCE, len(x)
        items = (Value * max(len(x), 1))(*[value_of(e, keep) for e in x])
        keep.append(items)
        v.item = items
    else:
        v.kind = KIND_TENSOR
        v.tensor = c.pointer(tensor_of(x, keep))
    return v


def object_of(v):
    if v.kind == KIND_TENSOR:
        return array_of(v.tensor[0])
    if v.kind == KIND_SEQUENCE:
        return [object_of(v.item[i]) for i in range(v.n)]
    if v.kind == KIND_OPTIONAL:
        return object_of(v.item[0]) if v.present else None
    return dict(zip((object_of(v.item[i]) for i in range(v.n)), (object_of(v.item[v.n + i]) for i in range(v.n))))


def load(path, count=itertools.count()):
    """The library by a name of its own: dlopen takes a name that it has loaded for the same file, whatever has been written there since."""
    with tempfile.TemporaryDirectory() as folder:
        link = pathlib.Path(folder) / f"{next(count)}.so"
        link.symlink_to(pathlib.Path(path).resolve())
        return c.CDLL(str(link))


def counted():
    """The sizes that a host is asked for, so far, and what gives an Artifact its memory."""
    asked, libc = [], c.CDLL(None)
    libc.aligned_alloc.restype, libc.aligned_alloc.argtypes, libc.free.argtypes = c.c_void_p, [c.c_size_t] * 2, [c.c_void_p]

    def allocate(_, size, align):
        asked.append(size)
        return libc.aligned_alloc(align, -(-size // align) * align)

    return asked, {"alloc": c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_size_t, c.c_size_t)(allocate),
                   "release": c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_size_t)(lambda _, at, size: libc.free(at))}


class Artifact:
    def __init__(self, path, threads=0, flags=0, event=None, alloc=None, release=None):
        query = load(path).mcc_query
        query.restype, query.argtypes = c.POINTER(Api), [c.c_uint32]
        table = query(1)
        if not table:
            raise ModelError("mcc_query", Error(code=-1, text=b"ABI 1 is not served"))
        self.api = table[0]
        self.event = EVENT(event) if event else EVENT()
        self.host = Host(size=c.sizeof(Host), threads=threads, flags=flags, event=self.event,
                         alloc=c.cast(alloc, c.c_void_p) if alloc else None,
                         release=c.cast(release, c.c_void_p) if release else None)
        self.model, self.ctx, self.error = c.c_void_p(), c.c_void_p(), Error()
        self.check("open", self.api.open(c.byref(self.host), c.byref(self.model), c.byref(self.error)))
        self.check("ctx_new", self.api.ctx_new(self.model, None, 0, c.byref(self.ctx), c.byref(self.error)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.ctx:
            self.api.ctx_free(self.ctx)
        if self.model:
            self.api.close(self.model)

    def check(self, where, status):
        if status != 0:
            raise ModelError(where, self.error)

    def shape_at(self, port, extents, first, more):
        """The port's shape where symbols take first, first + more, ..., as far as their steps and bounds let them; extents keeps those chosen."""
        shape = [port.dims[d].extent for d in range(port.ndim)]
        for d in range(port.ndim):
            if shape[d] < 0:
                symbol = port.dims[d].symbol
                row = self.api.sym[symbol] if symbol >= 0 else None
                step = max(row.step, 1) if row else 1
                shape[d] = extents.setdefault(symbol, max((first + more * len(extents) + step - 1) // step * step, row.min if row else 0))
        return shape

    @property
    def inputs(self):
        return [self.api.in_[i] for i in range(self.api.n_in)]

    @property
    def outputs(self):
        return [self.api.out[i] for i in range(self.api.n_out)]

    def tensors(self, arrays, keep, strided=False):
        made = [tensor_of(a, keep, strided) for a in arrays]
        pointers = (c.POINTER(Tensor) * max(len(made), 1))(*[c.pointer(t) for t in made])
        keep.append(pointers)
        return pointers

    def run(self, arrays):
        """run_dlpack: the artifact allocates the outputs."""
        keep = []
        out = (c.POINTER(Managed) * max(self.api.n_out, 1))()
        self.check("run_dlpack", self.api.run_dlpack(self.ctx, self.tensors(arrays, keep), out, c.byref(self.error)))
        results = [array_of(m[0].tensor) for m in itertools.islice(out, self.api.n_out)]
        for m in itertools.islice(out, self.api.n_out):
            m[0].deleter(m)
        return results

    def renewed(self, given):
        """A function that does run_dlpack of what tensors() made and releases the outputs: for timing."""
        out = (c.POINTER(Managed) * max(self.api.n_out, 1))()
        call, ctx, error, made = self.api.run_dlpack, self.ctx, c.byref(self.error), range(self.api.n_out)

        def run():
            self.check("run_dlpack", call(ctx, given, out, error))
            for k in made:
                out[k][0].deleter(out[k])
        return run

    def run_into(self, arrays, outputs):
        """run: into arrays of the right shapes and types, which are returned. Strides are passed on."""
        keep = []
        self.check("run", self.api.run(self.ctx, self.tensors(arrays, keep, True), self.tensors(outputs, keep, True), c.byref(self.error)))
        return outputs

    def run_values(self, objects):
        keep = []
        given = [value_of(x, keep, p.flags) for x, p in zip(objects, self.inputs)]
        values = (Value * max(len(given), 1))(*given)
        out = (Value * max(self.api.n_out, 1))()
        self.check("run_values", self.api.run_values(self.ctx, values, out, c.byref(self.error)))
        results = [object_of(out[i]) for i in range(self.api.n_out)]
        for i in range(self.api.n_out):
            self.api.value_release(self.ctx, c.byref(out[i]))
        return results

    def call(self, objects):
        """Whichever of run_dlpack and run_values serves these ports."""
        special = PORT_SEQUENCE | PORT_OPTIONAL | PORT_MAP | PORT_STRING
        return self.run_values(objects) if any(p.flags & special for p in self.inputs + self.outputs) else self.run(objects)

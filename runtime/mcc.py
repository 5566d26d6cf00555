"""Calls networks that mcc compiled, from Python: this one file, ctypes and numpy.

    import mcc
    m = mcc.load("model.so")
    y = m(x)                    # numpy arrays, or anything with __dlpack__ (torch, JAX); by position or m(image=x)
    m.inputs, m.outputs         # ports: name, dtype, shape
    m.plan(x)                   # output shapes and bytes of working memory for these inputs, without running
    m.profile(x)                # time of each kernel, most expensive first
    mcc.compile("model.onnx")   # runs the mcc command; the path of the shared object

One output comes as it is, several as a tuple. Outputs are numpy arrays, large ones over memory of the model; types that
numpy lacks (bfloat16, 8-bit floats, ...) come as mcc.Tensor, which has __dlpack__. Nothing is copied on the way in or out
unless the model has to: inputs may have any strides. Calls drop the GIL; a model may be used by several threads at once.
One with state (m.states) continues with each call: m.state() has copies of it, m.reset() begins anew, m.reset(state) goes
on from there. It is one stream: load it once for each.
Models with sequence, optional, map or string ports need the C interface (mcc_api.run_values).
"""
from __future__ import annotations

import collections
import ctypes as c
import hashlib
import os
import platform
import shutil
import stat
import struct
import subprocess
import sys
import sysconfig
import threading
import typing
import weakref

import numpy as np

__all__ = ["CompileError", "Error", "Model", "Plan", "Port", "Row", "Tensor", "compile", "load"]

_Path = typing.Union[str, "os.PathLike[str]"]
_Shape = typing.Optional[typing.Tuple[typing.Union[int, str, None], ...]]

# ---- the structures of mcc.h -------------------------------------------------------------------------------------

_SPECIAL = 15       # flags of ports that carry no plain tensor


class _Type(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class _DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32), ("dtype", _Type),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class _Managed(c.Structure):      # DLManagedTensorVersioned
    pass


class _Unversioned(c.Structure):  # DLManagedTensor
    pass


_Deleter, _OldDeleter = c.CFUNCTYPE(None, c.POINTER(_Managed)), c.CFUNCTYPE(None, c.POINTER(_Unversioned))
_Managed._fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("ctx", c.c_void_p), ("deleter", _Deleter), ("flags", c.c_uint64),
                     ("tensor", _DLTensor)]
_Unversioned._fields_ = [("tensor", _DLTensor), ("ctx", c.c_void_p), ("deleter", _OldDeleter)]


class _Error(c.Structure):
    _fields_ = [("code", c.c_int32), ("node", c.c_int32), ("text", c.c_char * 248)]


class _Symbol(c.Structure):
    _fields_ = [("name", c.c_char_p), ("min", c.c_int64), ("max", c.c_int64), ("step", c.c_int64), ("reserved", c.c_uint64 * 2)]


class _Dim(c.Structure):
    _fields_ = [("extent", c.c_int64), ("symbol", c.c_int32), ("room", c.c_int32), ("expr", c.c_char_p)]


class _Port(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dims", c.POINTER(_Dim)), ("ndim", c.c_int32), ("dtype", _Type), ("flags", c.c_uint64),
                ("alias", c.c_uint64), ("reserved", c.c_uint64 * 1)]


class _Node(c.Structure):
    _fields_ = [("name", c.c_char_p), ("op", c.c_char_p), ("source", c.c_char_p), ("flops", c.c_uint64), ("bytes", c.c_uint64),
                ("reserved", c.c_uint64 * 2)]


_Event = c.CFUNCTYPE(None, c.c_void_p, c.c_uint32, c.c_int, c.c_uint64)


class _Host(c.Structure):
    _fields_ = [("size", c.c_size_t), ("user", c.c_void_p), ("threads", c.c_uint32), ("flags", c.c_uint32), ("alloc", c.c_void_p),
                ("release", c.c_void_p), ("parallel", c.c_void_p), ("event", _Event), ("weights_path", c.c_char_p),
                ("weights", c.c_void_p), ("weights_size", c.c_size_t)]


_Tensors = c.POINTER(c.POINTER(_DLTensor))
_ErrorP = c.POINTER(_Error)


class _Api(c.Structure):
    _fields_ = [("abi", c.c_uint32), ("n_in", c.c_uint32), ("n_out", c.c_uint32), ("n_sym", c.c_uint32), ("n_node", c.c_uint32),
                ("state", c.c_uint32), ("size", c.c_size_t), ("name", c.c_char_p), ("compiler", c.c_char_p), ("target", c.c_char_p),
                ("features", c.c_char_p), ("meta", c.c_void_p), ("inputs", c.POINTER(_Port)), ("outputs", c.POINTER(_Port)),
                ("sym", c.POINTER(_Symbol)), ("node", c.POINTER(_Node)),
                ("open", c.CFUNCTYPE(c.c_int, c.POINTER(_Host), c.POINTER(c.c_void_p), _ErrorP)), ("close", c.CFUNCTYPE(None, c.c_void_p)),
                ("plan", c.CFUNCTYPE(c.c_int, c.c_void_p, _Tensors, c.POINTER(c.POINTER(c.c_int64)), c.POINTER(c.c_size_t), _ErrorP)),
                ("ctx_new", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_size_t, c.POINTER(c.c_void_p), _ErrorP)),
                ("ctx_free", c.CFUNCTYPE(None, c.c_void_p)), ("run", c.CFUNCTYPE(c.c_int, c.c_void_p, _Tensors, _Tensors, _ErrorP)),
                ("run_dlpack", c.CFUNCTYPE(c.c_int, c.c_void_p, _Tensors, c.POINTER(c.POINTER(_Managed)), _ErrorP))]


class _State(c.Structure):
    _fields_ = [("size", c.c_size_t), ("n", c.c_uint32), ("pad", c.c_uint32), ("port", c.POINTER(_Port)),
                ("reset", c.CFUNCTYPE(c.c_int, c.c_void_p, _ErrorP)),
                ("tensor", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_uint32, c.POINTER(_DLTensor), _ErrorP))]


# ---- element types -------------------------------------------------------------------------------------------------

_NUMPY = {(0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64", (1, 8): "uint8", (1, 16): "uint16", (1, 32): "uint32",
          (1, 64): "uint64", (2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (5, 64): "complex64", (5, 128): "complex128",
          (6, 8): "bool"}
_OTHER = {(4, 16): "bfloat16", (3, 128): "string", (10, 8): "float8_e4m3fn", (11, 8): "float8_e4m3fnuz", (12, 8): "float8_e5m2",
          (13, 8): "float8_e5m2fnuz", (14, 8): "float8_e8m0fnu", (17, 4): "float4_e2m1fn", (0, 4): "int4", (1, 4): "uint4",
          (0, 2): "int2", (1, 2): "uint2"}
_CODES = {np.dtype(name): key for key, name in _NUMPY.items()}
_CODES_BY_NAME = {name: np.dtype(name) for name in _NUMPY.values()}


def _type_name(t):
    key = (t.code, t.bits)
    return _NUMPY.get(key) or _OTHER.get(key) or f"type{key}"


class Error(Exception):
    """What the model answered: .code is an MCC_E_* number, .node the index of the node it is about or -1."""

    code: int
    node: int

    def __init__(self, error: typing.Any) -> None:
        super().__init__(error.text.decode(errors="replace"))
        self.code, self.node = error.code, error.node


class CompileError(subprocess.CalledProcessError):
    """The compiler's own text; .returncode says of what kind the failure is (mcc(1)), .stderr has the text alone."""

    def __str__(self) -> str:
        return self.stderr.strip() or super().__str__()


# ---- tensors in and out --------------------------------------------------------------------------------------------------

_py = c.pythonapi
_py.PyCapsule_IsValid.argtypes, _py.PyCapsule_IsValid.restype = [c.py_object, c.c_char_p], c.c_int
_py.PyCapsule_GetPointer.argtypes, _py.PyCapsule_GetPointer.restype = [c.py_object, c.c_char_p], c.c_void_p
_CapsuleEnd = c.PYFUNCTYPE(None, c.c_void_p)
_py.PyCapsule_New.argtypes, _py.PyCapsule_New.restype = [c.c_void_p, c.c_char_p, _CapsuleEnd], c.py_object
# The same functions on a bare address: a capsule that is being destroyed must not get new references.
_raw_valid = c.PYFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p)(("PyCapsule_IsValid", _py))
_raw_pointer = c.PYFUNCTYPE(c.c_void_p, c.c_void_p, c.c_char_p)(("PyCapsule_GetPointer", _py))


def _from_capsule(value):
    """(DLTensor, what must live as long) of anything with __dlpack__."""
    try:
        capsule = value.__dlpack__(max_version=(1, 3))
    except TypeError:       # from before versions
        capsule = value.__dlpack__()
    for name, kind in ((b"dltensor_versioned", _Managed), (b"dltensor", _Unversioned)):
        if _py.PyCapsule_IsValid(capsule, name):
            managed = c.cast(_py.PyCapsule_GetPointer(capsule, name), c.POINTER(kind))
            return managed.contents.tensor, capsule
    raise TypeError("__dlpack__ gave no capsule of a tensor")


class _Buffer(c.Structure):         # Py_buffer
    _fields_ = [("buf", c.c_void_p), ("obj", c.c_void_p), ("len", c.c_ssize_t), ("itemsize", c.c_ssize_t), ("readonly", c.c_int),
                ("ndim", c.c_int), ("format", c.c_char_p), ("shape", c.c_void_p), ("strides", c.c_void_p), ("suboffsets", c.c_void_p),
                ("internal", c.c_void_p)]


_py.PyObject_GetBuffer.argtypes, _py.PyObject_GetBuffer.restype = [c.py_object, c.c_void_p, c.c_int], c.c_int
_py.PyBuffer_Release.argtypes, _py.PyBuffer_Release.restype = [c.c_void_p], None
_get_buffer, _release_buffer, _STRIDES = _py.PyObject_GetBuffer, _py.PyBuffer_Release, 0x18


class _Context:
    """A context of an open model with the descriptors of a run's tensors, inputs first. They stay from run to run: where shape, strides
    and type are those of the last run, only the address is written."""

    def __init__(self, api, model):
        n_in, n = api.n_in, api.n_in + api.n_out
        self.tensors, self.views, self.forms = [_DLTensor(device_type=1) for _ in range(n)], [_Buffer() for _ in range(n)], [None] * n
        self.places, self.held, self.kept = [c.addressof(v) for v in self.views], [], []
        self.inputs = (c.POINTER(_DLTensor) * max(n_in, 1))(*map(c.pointer, self.tensors[:n_in]))
        self.outputs = (c.POINTER(_DLTensor) * max(n - n_in, 1))(*map(c.pointer, self.tensors[n_in:]))
        self.error, self.ctx = _Error(), c.c_void_p()
        if api.ctx_new(model, None, 0, c.byref(self.ctx), c.byref(self.error)):
            raise Error(self.error)

    def put(self, k, value):
        """Tensor k is an array, a scalar, or anything with __dlpack__, until clear."""
        if type(value) is not np.ndarray:
            if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
                self.forms[k] = None
                tensor, alive = _from_capsule(value)
                self.kept.append(alive)
                c.memmove(c.byref(self.tensors[k]), c.byref(tensor), c.sizeof(tensor))
                return
            value = np.asarray(value)
        form = value.shape, value.strides, value.dtype
        if form != self.forms[k]:
            if any(s % value.itemsize for s in value.strides):
                return self.put(k, np.array(value))
            self._describe(k, form)
        place = self.places[k]
        _get_buffer(value, place, _STRIDES)
        self.held.append(place)
        self.tensors[k].data = self.views[k].buf

    def _describe(self, k, form):
        shape, strides, dtype = form
        if dtype not in _CODES or not dtype.isnative:
            raise TypeError(f"mcc takes no arrays of {dtype}")
        n, (code, bits), tensor = len(shape), _CODES[dtype], self.tensors[k]
        tensor.device_type, tensor.device_id, tensor.ndim, tensor.dtype, tensor.byte_offset = 1, 0, n, _Type(code, bits, 1), 0
        tensor.shape = (c.c_int64 * max(n, 1))(*shape)
        tensor.strides = (c.c_int64 * max(n, 1))(*(s // dtype.itemsize for s in strides))
        self.forms[k] = form

    def clear(self):
        for place in self.held:
            _release_buffer(place)
        self.held.clear()
        self.kept.clear()


class Tensor:
    """An output in memory that the model allocated. dtype is a name; consumers take it through __dlpack__."""
    shape: typing.Tuple[int, ...]
    dtype: str
    # Address of what was handed out -> (structure, tensor), until its deleter is called.
    _given: typing.ClassVar[typing.Dict[typing.Optional[int], typing.Any]] = {}

    def __init__(self, managed: typing.Any) -> None:
        self._managed = managed
        t = managed.contents.tensor
        self.shape, self.dtype = tuple(t.shape[i] for i in range(t.ndim)), _type_name(t.dtype)
        self._finalizer = weakref.finalize(self, managed.contents.deleter, managed)

    def __dlpack_device__(self) -> typing.Tuple[int, int]:
        return 1, 0

    def __dlpack__(self, stream: typing.Any = None, max_version: typing.Optional[typing.Tuple[int, int]] = None,
                   dl_device: typing.Optional[typing.Tuple[int, int]] = None, copy: typing.Optional[bool] = None) -> typing.Any:
        tensor = self._managed.contents.tensor
        if max_version is not None and max_version[0] >= 1:
            name, given = b"dltensor_versioned", _Managed(1, 1, None, _forget, 0, tensor)
        else:
            name, given = b"dltensor", _Unversioned(tensor, None, _forget_old)
        Tensor._given[c.addressof(given)] = given, self
        return _py.PyCapsule_New(c.addressof(given), name, _end_capsule)

    def numpy(self) -> np.ndarray:
        """The elements as a numpy array; raw bytes of the element's size where numpy lacks the type."""
        t = self._managed.contents.tensor
        if t.dtype.bits % 8 or t.dtype.code == 3:
            raise TypeError(f"numpy cannot hold {self.dtype}")
        kind = np.dtype(_NUMPY.get((t.dtype.code, t.dtype.bits), f"V{t.dtype.bits // 8}"))
        count = int(np.prod(self.shape, dtype=np.int64))
        if count == 0 or not t.data:
            return np.zeros(self.shape, kind)
        memory = (c.c_char * (count * kind.itemsize)).from_address(t.data + t.byte_offset)
        memory._owner = self    # the array's base keeps the tensor
        return np.frombuffer(memory, kind).reshape(self.shape)


@_Deleter
def _forget(managed):
    Tensor._given.pop(c.addressof(managed.contents), None)


@_OldDeleter
def _forget_old(managed):
    Tensor._given.pop(c.addressof(managed.contents), None)


@_CapsuleEnd
def _end_capsule(capsule):
    for name in (b"dltensor_versioned", b"dltensor"):
        if _raw_valid(capsule, name):      # nobody consumed it
            Tensor._given.pop(_raw_pointer(capsule, name), None)


# ---- models ------------------------------------------------------------------------------------------------------------


class Port(typing.NamedTuple):
    """shape: extents, names of symbols, texts of derived extents; None for what the data decides, or for a rank that it does."""
    name: str
    dtype: str
    shape: _Shape

    @property
    def dynamic(self) -> bool:
        """Whether only a run knows the shape: MCC_PORT_DYNAMIC of an output."""
        return self.shape is None or None in self.shape


class Plan(typing.NamedTuple):
    """Shapes of the outputs by name (None: the data decides) and the bytes of working memory."""
    shapes: typing.Dict[str, _Shape]
    bytes: int


class Row(typing.NamedTuple):
    """A kernel in a profile: times and calls are those of one run."""
    name: str
    op: str
    ms: float
    calls: float
    flops: int
    bytes: int


# ---- files: the checks of mcc_load.c, whose comments say why -------------------------------------------------------------

_Head = struct.Struct("<16sHHIQQQIHHHHHH")
_Segment = struct.Struct("<IIQQQQQQ")
_Note = struct.Struct("<III4sIIQQQQQQ64s")
_HASH_AT = 48               # of the field inside the note
_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "AMD64": 0x8664, "ARM64": 0xaa64}
_MASK, _P1, _P2, _P3, _P4, _P5 = (2**64 - 1, 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
                                  0x27D4EB2F165667C5)


def _rotate(x, n):
    return (x << n | x >> 64 - n) & _MASK


def _xxh64(pieces):
    """XXH64, seed 0, of the pieces' bytes together."""
    lanes, rest, total = [_P1 + _P2 & _MASK, _P2, 0, -_P1 & _MASK], b"", 0
    for piece in pieces:
        total += len(piece)
        data = rest + piece
        whole = len(data) // 32 * 32
        rest = data[whole:]
        words = (np.frombuffer(data[:whole], "<u8") * np.uint64(_P2)).tolist()
        for k in range(4):
            x = lanes[k]
            for word in words[k::4]:
                x = x + word & _MASK
                x = ((x << 31 | x >> 33) & _MASK) * _P1 & _MASK
            lanes[k] = x
    x = _P5
    if total >= 32:
        x = sum(_rotate(lane, n) for lane, n in zip(lanes, (1, 7, 12, 18))) & _MASK
        for lane in lanes:
            x = (x ^ _rotate(lane * _P2 & _MASK, 31) * _P1 & _MASK) * _P1 + _P4 & _MASK
    x = x + total & _MASK
    while len(rest) >= 8:
        word = int.from_bytes(rest[:8], "little") * _P2 & _MASK
        x, rest = _rotate(x ^ _rotate(word, 31) * _P1 & _MASK, 27) * _P1 + _P4 & _MASK, rest[8:]
    if len(rest) >= 4:
        x, rest = _rotate(x ^ int.from_bytes(rest[:4], "little") * _P1 & _MASK, 23) * _P2 + _P3 & _MASK, rest[4:]
    for byte in rest:
        x = _rotate(x ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    x = (x ^ x >> 33) * _P2 & _MASK
    x = (x ^ x >> 29) * _P3 & _MASK
    return x ^ x >> 32


class _File:
    """An artifact's file, opened and checked completely before the dynamic linker sees it."""

    unsealed = ()               # what the hash takes for zeros beside its own field: places, numbers of bytes

    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.status = os.fstat(self.fd)
            self._check()
        except BaseException:
            os.close(self.fd)
            raise

    def _fail(self, what):
        raise OSError(f"{self.path}: {what}")

    def _read(self, size, offset):
        data = os.pread(self.fd, size, offset)
        if len(data) < size:
            self._fail("truncated, or cannot be read")
        return data

    def _check(self):
        if not stat.S_ISREG(self.status.st_mode):
            self._fail("not a regular file")
        size = self.size = self.sealed = self.status.st_size
        head = os.pread(self.fd, _Head.size, 0)
        if len(head) < _Head.size or head[:4] != b"\x7fELF":
            self._fail("a DLL or program for Windows" if head[:2] == b"MZ" else
                       "a library or program for macOS" if head[:4] in (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe") else "not a shared object")
        _, kind, machine, version, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, _ = _Head.unpack(head)
        if head[4] != 2 or head[5] != 1 or machine != _MACHINES.get(platform.machine()):
            self._fail("compiled for another kind of machine")
        if kind != 3 or head[6] != 1 or version != 1:
            self._fail("not a shared object")
        if phentsize != _Segment.size or not 0 < phnum <= 64 or phoff + phnum * phentsize > size:
            self._fail("truncated or damaged: program headers")
        if shnum and (shentsize != 64 or shoff + shnum * shentsize > size):
            self._fail("truncated or damaged: section table")
        segments = list(_Segment.iter_unpack(self._read(phnum * phentsize, phoff)))
        if any(s[2] + s[5] > size for s in segments):
            self._fail("truncated or damaged: a segment leaves the file")
        if not any(s[0] == 4 and s[5] <= 1 << 16 and self._find_note(s) for s in segments):
            self._fail("a shared object, but not made by mcc, or damaged")
        self._check_note()

    def _find_note(self, segment):
        _, _, at, address, _, bytes_, _, align = segment
        data, align, i = self._read(bytes_, at), 8 if align == 8 else 4, 0
        while bytes_ - i >= 12:
            name, description, kind = struct.unpack_from("<III", data, i)
            end = i + (12 + name + align - 1 & -align) + (description + align - 1 & -align)
            if end > bytes_:
                return False
            if (name, description, kind) == (4, _Note.size - 16, 1) and end - i >= _Note.size and data[i + 12:i + 16] == b"mcc\0":
                self.note, self.note_at, self.note_address = data[i:i + _Note.size], at + i, address + i
                return True
            i = end
        return False

    def _check_note(self):
        _, _, _, _, abi, sealed, size, weights, weights_size, wanted, _, _, query = _Note.unpack(self.note)
        if abi > 1:
            self._fail("made by a newer mcc than this module knows")
        if abi == 0 or sealed != 1 or 0 not in query:
            self._fail("damaged, or not completely written")
        if size != self.sealed or weights + weights_size > size:
            self._fail("truncated or damaged: the size differs")
        zeros = [(self.note_at + _HASH_AT, 8), *self.unsealed]

        def pieces():
            for start, end in ((0, weights), (weights + weights_size, size)):
                for at in range(start, end, 1 << 16):
                    data = bytearray(self._read(min(end - at, 1 << 16), at))
                    for field, n in zeros:
                        for i in range(max(field, at), min(field + n, at + len(data))):
                            data[i - at] = 0
                    yield bytes(data)
        if _xxh64(pieces()) != wanted:
            self._fail("damaged, the hash differs")
        self.query = query[:query.index(0)].decode(errors="replace")

    def _own_name(self, path):
        """A path to the file that no other file can have had: the dynamic linker takes a name that it has seen for the library that
        it has loaded, also after the network has been compiled again. So the file's identity goes in, a bit as "/." or "//."."""
        folder, name = os.path.split(path)
        identity = repr(_identity(self.status)).encode()
        bits = int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "little")
        return folder.rstrip("/") + "".join("//." if bits >> i & 1 else "/." for i in range(64)) + "/" + name

    def _unchanged(self, name):
        try:
            return _identity(os.stat(name)) == _identity(os.fstat(self.fd)) == _identity(self.status)
        except OSError:
            return False

    def _dlopen(self, name):
        try:
            return c.CDLL(name)
        except OSError as why:
            self._fail("cannot be loaded: " + str(why).replace(name + ": ", "").replace(name, "it"))

    def load(self):
        """The library, by the file's real path or, where it has none that is still this file, by the descriptor, which stays open."""
        name = self._own_name(os.path.realpath(self.path))
        if len(name) < 4096 and "$" not in name and self._unchanged(name):
            try:
                library = self._dlopen(name)
                if self._unchanged(name) and self._is_loaded(library):
                    os.close(self.fd)
                    return library
            except OSError:
                if self._unchanged(name):
                    os.close(self.fd)
                    raise
        library = self._dlopen(self._own_name(f"/proc/{os.getpid()}/fd/{self.fd}"))
        if not self._is_loaded(library):
            self._fail("was replaced while it was loaded")
        return library

    def _is_loaded(self, library):
        """Has the library the checked note in memory?"""
        if not hasattr(library, self.query):
            self._fail("lacks the function " + self.query)
        query, same = c.cast(getattr(library, self.query), c.c_void_p).value, []

        @_Visit
        def visit(info, size, user):
            base = info.contents.address

            def holds(address, size):
                parts = (info.contents.segments[i] for i in range(info.contents.n))
                return any(p.type == 1 and 0 <= address - base - p.vaddr <= p.filesz - size for p in parts)
            if not holds(query, 1):
                return 0
            same.append(holds(base + self.note_address, _Note.size) and c.string_at(base + self.note_address, _Note.size) == self.note)
            return 1
        c.CDLL(None).dl_iterate_phdr(visit, None)
        return same == [True]


class _Dll(_File):
    """The same on Windows, which lets nobody replace a file that is open or loaded."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.file = open(self.path, "rb")
        try:
            self.size = self.sealed = os.fstat(self.file.fileno()).st_size
            self._check()
        except BaseException:
            self.file.close()
            raise

    def _read(self, size, offset):
        self.file.seek(offset)
        data = self.file.read(size)
        if len(data) < size:
            self._fail("truncated, or cannot be read")
        return data

    def _check(self):
        head = self._read(min(self.size, 64), 0)
        if len(head) < 64 or head[:2] != b"MZ":
            self._fail("a file for Linux" if head[:4] == b"\x7fELF" else "not a DLL")
        at, self.note = int.from_bytes(head[60:], "little"), b""
        sign, machine, sections, _, _, _, optional, flags = struct.unpack("<4sHHIIIHH", self._read(24, at))
        if sign != b"PE\0\0" or not flags & 0x2000:
            self._fail("not a DLL")
        if machine != _MACHINES.get(platform.machine()):
            self._fail("compiled for another kind of machine")
        for name, _, address, size, place, *_ in struct.iter_unpack("<8sIIIIIIHHI", self._read(40 * sections, at + 24 + optional)):
            if place + size > self.size:
                self._fail("truncated or damaged: a section leaves the file")
            if name == b".mccnote" and size >= _Note.size:
                self.note, self.note_at, self.note_address = self._read(_Note.size, place), place, address
        if self.note[8:16] != b"\1\0\0\0mcc\0":
            self._fail("a DLL, but not made by mcc, or damaged")
        self._check_note()

    def load(self):
        with self.file:
            try:
                library = c.CDLL(self.path)
            except OSError as why:
                self._fail(f"cannot be loaded: {why}")
        if c.string_at(library._handle + self.note_address, _Note.size) != self.note:
            self._fail("an older file of this name is still loaded")
        return library


class _Dylib(_File):
    """The same on macOS. The hash leaves out the signature and its lengths: a library may be signed anew."""

    def _read(self, size, offset):
        return super()._read(size, self.base + offset)

    def _check(self):
        if not stat.S_ISREG(self.status.st_mode):
            self._fail("not a regular file")
        self.base, self.size, self.note, self.sealed = 0, self.status.st_size, b"", -1
        cpu = {"x86_64": 0x1000007, "arm64": 0x100000c}.get(platform.machine())
        head = self._read(min(self.size, 32), 0).ljust(32, b"\0")
        if head[:4] == b"\xca\xfe\xba\xbe":
            n = int.from_bytes(head[4:8], "big")
            rows = struct.iter_unpack(">IIIII", self._read(20 * n, 8)) if n <= 8 else ()
            self.base, self.size = next(((at, size) for kind, _, at, size, _ in rows if kind == cpu), (0, 0))
            if not self.size:
                self._fail("compiled for another kind of machine")
            if self.base + self.size > self.status.st_size:
                self._fail("truncated or damaged: a slice leaves the file")
            head = self._read(min(self.size, 32), 0).ljust(32, b"\0")
        magic, machine, _, kind, _, size, _, _ = struct.unpack("<8I", head)
        if magic != 0xfeedfacf:
            self._fail("a file for Linux" if head[:4] == b"\x7fELF" else "not a dynamic library")
        if machine != cpu:
            self._fail("compiled for another kind of machine")
        if kind != 6:
            self._fail("not a dynamic library")
        at, end = 32, 32 + size
        commands = self._read(end, 0) if end <= min(self.size, 1 << 16) else b""
        while at < end:
            command, size = struct.unpack_from("<II", commands, at) if at + 8 <= len(commands) else (0, 0)
            if size < 8 or at + size > end or not self._take(commands[at:at + size], at, command):
                self._fail("truncated or damaged: a segment leaves the file")
            at += size
        if self.note[8:16] != b"\1\0\0\0mcc\0":
            self._fail("a dynamic library, but not made by mcc, or damaged")
        self._check_note()

    def _take(self, command, at, kind):
        """One command; False: it leaves the file."""
        if kind == 0x1d and len(command) >= 16:
            self.sealed, size = struct.unpack_from("<II", command, 8)
            self.unsealed = (*self.unsealed, (at + 12, 4))
            return self.sealed + size <= self.size
        if kind != 0x19:
            return True
        if len(command) < 72:
            return False
        name, _, _, place, size, _, _, sections, _ = struct.unpack_from("<16sQQQQIIII", command, 8)
        if place + size > self.size or 72 + 80 * sections > len(command):
            return False
        if name.rstrip(b"\0") == b"__LINKEDIT":
            self.unsealed = (*self.unsealed, (at + 32, 8), (at + 48, 8))
        for name, _, address, size, place, *_ in struct.iter_unpack("<16s16sQQ8I", command[72:72 + 80 * sections]):
            if name.rstrip(b"\0") == b"__mccnote" and size == _Note.size:
                self.note, self.note_at, self.note_address = self._read(size, place), place, address
        return True

    def load(self):
        with os.fdopen(self.fd, "rb"):
            library = self._dlopen(self.path)
        if not hasattr(library, self.query):
            self._fail("lacks the function " + self.query)
        place = _Place()
        c.CDLL(None).dladdr(c.cast(getattr(library, self.query), c.c_void_p), c.byref(place))
        if c.string_at(place.image + self.note_address, _Note.size) != self.note:
            self._fail("an older file of this name is still loaded")
        return library


class _Place(c.Structure):          # Dl_info
    _fields_ = [("path", c.c_char_p), ("image", c.c_void_p), ("symbol", c.c_char_p), ("address", c.c_void_p)]


def _identity(status):
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class _Header(c.Structure):         # Elf64_Phdr
    _fields_ = [("type", c.c_uint32), ("flags", c.c_uint32), ("offset", c.c_uint64), ("vaddr", c.c_uint64), ("paddr", c.c_uint64),
                ("filesz", c.c_uint64), ("memsz", c.c_uint64), ("align", c.c_uint64)]


class _Object(c.Structure):         # the beginning of dl_phdr_info
    _fields_ = [("address", c.c_uint64), ("name", c.c_char_p), ("segments", c.POINTER(_Header)), ("n", c.c_uint16)]


_Visit = c.CFUNCTYPE(c.c_int, c.POINTER(_Object), c.c_size_t, c.c_void_p)


class _Open:
    """An open model and its contexts."""

    def __init__(self, api, host):
        self.api, self.host, self.idle, self.run_into = api, host, [], api.run
        self.states, self.made = _State.from_address(c.addressof(api) + api.state) if api.state else None, False
        self.making = threading.Lock()
        self.model, error = c.c_void_p(), _Error()
        if api.open(c.byref(host), c.byref(self.model), c.byref(error)):
            raise Error(error)
        weakref.finalize(self, _Open._end, api, self.model, self.idle)

    @staticmethod
    def _end(api, model, idle):
        for context in idle:
            api.ctx_free(context.ctx)
        api.close(model)

    def take(self, values):
        """A context with these inputs, for give."""
        try:
            context = self.idle.pop()
        except IndexError:
            context = self._only() if self.states else _Context(self.api, self.model)
        try:
            for k, value in enumerate(values):
                context.put(k, value)
        except BaseException:
            self.give(context)
            raise
        return context

    def _only(self):
        with self.making:
            if self.made:
                raise RuntimeError("the model has state and is in a call: load it once for each stream")
            context = _Context(self.api, self.model)
            self.made = True
            return context

    def give(self, context):
        context.clear()
        self.idle.append(context)

    def run(self, context):
        """Outputs in memory of the model's."""
        out = (c.POINTER(_Managed) * max(self.api.n_out, 1))()
        if self.api.run_dlpack(context.ctx, context.inputs, out, c.byref(context.error)):
            raise Error(context.error)
        return [Tensor(out[i]) for i in range(self.api.n_out)]

    def reset(self, context):
        if self.states and self.states.reset(context.ctx, c.byref(context.error)):
            raise Error(context.error)

    def state(self, context, k):
        """State k as an array, in memory of the context's."""
        tensor = _DLTensor()
        if self.states.tensor(context.ctx, k, c.byref(tensor), c.byref(context.error)):
            raise Error(context.error)
        shape = [tensor.shape[i] for i in range(tensor.ndim)]
        dtype = np.dtype(_NUMPY.get((tensor.dtype.code, tensor.dtype.bits)) or f"uint{tensor.dtype.bits}")    # as it lies in memory
        size = int(np.prod(shape)) * dtype.itemsize
        return np.empty(shape, dtype) if not size else np.frombuffer((c.c_char * size).from_address(tensor.data), dtype).reshape(shape)

    def write(self, context, outputs):
        """Outputs in arrays of the caller's."""
        for k, array in enumerate(outputs, self.api.n_in):
            context.put(k, array)
        if self.run_into(context.ctx, context.inputs, context.outputs, context.error):
            raise Error(context.error)


_SMALL, _SHAPES_KEPT = 1 << 16, 256     # bytes of outputs that numpy allocates, shapes of inputs that a model remembers


class Model:
    """A compiled network. See the module's text.

    shares: which output may be the memory of which input (into). room: shapes of memory for ports of which a run uses the beginning of a dim."""

    name: str
    inputs: typing.List[Port]
    outputs: typing.List[Port]
    states: typing.List[Port]
    shares: typing.Dict[str, str]
    room: typing.Dict[str, _Shape]
    metadata: typing.Dict[str, str]

    def __init__(self, path: _Path, threads: int = 0, variant: int = 0, weights: typing.Optional[_Path] = None, verify: bool = False,
                 prefix: str = "") -> None:
        # One that is loaded stays loaded: its outputs may outlive the model.
        file = (_Dll if os.name == "nt" else _Dylib if sys.platform == "darwin" else _File)(path)
        library = file.load()
        name = f"{prefix}_mcc_query" if prefix else file.query
        if not hasattr(library, name):
            raise OSError(f"{path}: lacks the function {name}")
        query = getattr(library, name)
        query.argtypes, query.restype = [c.c_uint32], c.POINTER(_Api)
        table = query(1)
        if not table:
            raise OSError(f"{path}: serves another version of the interface")
        self._api = table.contents
        self._host = dict(threads=threads, flags=variant | (0x100 if verify else 0), weights_path=os.fsencode(weights) if weights else None)
        self._open = _Open(self._api, _Host(size=c.sizeof(_Host), **self._host))
        self.name = self._api.name.decode(errors="replace")
        self.inputs = [self._port(self._api.inputs[i]) for i in range(self._api.n_in)]
        self.outputs = [self._port(self._api.outputs[i]) for i in range(self._api.n_out)]
        self.shares = {p.name: self.inputs[self._api.outputs[i].alias - 1].name for i, p in enumerate(self.outputs) if self._api.outputs[i].alias}
        raw = [*(self._api.inputs[i] for i in range(self._api.n_in)), *(self._api.outputs[i] for i in range(self._api.n_out))]
        self.room = {p.name: tuple(r.dims[d].room or p.shape[d] for d in range(r.ndim)) for p, r in zip([*self.inputs, *self.outputs], raw)
                     if any(r.dims[d].room for d in range(r.ndim))}
        self.states = [self._port(self._open.states.port[i]) for i in range(self._open.states.n if self._open.states else 0)]
        self.metadata = self._meta()
        self._names, self._results = [p.name for p in self.inputs], {}
        self._special = any(self._api.inputs[i].flags & _SPECIAL for i in range(self._api.n_in))
        self._dtypes = [_CODES_BY_NAME.get(p.dtype) if p.shape is not None else None for p in self.outputs]

    def _port(self, port):
        def extent(d):
            if d.extent >= 0:
                return d.extent
            if d.extent == -1:
                return self._api.sym[d.symbol].name.decode() if d.symbol >= 0 else None
            return d.expr.decode() if d.expr else None
        shape = tuple(extent(port.dims[i]) for i in range(port.ndim)) if port.ndim >= 0 else None
        return Port(port.name.decode(errors="replace"), _type_name(port.dtype), shape)

    def _meta(self):
        at, texts = self._api.meta, []
        while at and (key := c.string_at(at)):
            value = c.string_at(at + len(key) + 1)
            texts.append((key.decode(errors="replace"), value.decode(errors="replace")))
            at += len(key) + len(value) + 2
        return dict(texts)

    def _bind(self, args, named):
        """The values of all inputs in order."""
        names = self._names
        if self._special:
            raise TypeError("sequences, optionals, maps and strings need the C interface")
        if not named and len(args) == len(names):
            return args
        if len(args) > len(names) or set(named) - set(names[len(args):]):
            raise TypeError(f"the model takes {', '.join(names)}")
        values = [*args, *(named[name] for name in names[len(args):] if name in named)]
        if len(values) < len(names):
            raise TypeError(f"input missing: the model takes {', '.join(names)}")
        return values

    def _small(self, context):
        """(shape, type) of each output if all are small arrays whose shapes follow from these inputs' shapes; else None."""
        forms = context.forms[:len(self._names)]
        if None in forms or None in self._dtypes:
            return None
        key = tuple([form[0] for form in forms])
        if key not in self._results:
            shapes = self._plan(context)[0]
            fits = None not in [n for shape in shapes for n in shape]
            small = fits and sum(t.itemsize * int(np.prod(shape)) for shape, t in zip(shapes, self._dtypes)) <= _SMALL
            if len(self._results) >= _SHAPES_KEPT:
                self._results.clear()
            self._results[key] = list(zip(shapes, self._dtypes)) if small else None
        return self._results[key]

    def __call__(self, *args: typing.Any, **named: typing.Any) -> typing.Any:
        values, opened = self._bind(args, named), self._open
        context = opened.take(values)
        try:
            small = self._small(context)
            if small is None:
                results = [t.numpy() if t.dtype in _CODES_BY_NAME else t for t in opened.run(context)]
            else:
                results = [np.empty(*form) for form in small]
                opened.write(context, results)
        finally:
            opened.give(context)
        return results[0] if len(results) == 1 else tuple(results)

    def into(self, outputs: typing.Mapping[str, np.ndarray], *args: typing.Any, **named: typing.Any) -> None:
        """Writes all outputs, by name, into arrays of the caller. A cache that grows, where shares and room name it, is one array:
        m.into({"present": cache[:, :, :n + 1], "y": y}, past=cache[:, :, :n], x=x) writes row n and copies nothing."""
        names = [p.name for p in self.outputs]
        if set(outputs) != set(names):
            raise TypeError(f"the model gives {', '.join(names)}")
        for name, array in outputs.items():
            if not isinstance(array, np.ndarray) or not array.flags.writeable or any(s % array.itemsize for s in array.strides):
                raise TypeError(f"{name}: an array is expected that can be written, of whole elements")
        context = self._open.take(self._bind(args, named))
        try:
            self._open.write(context, [outputs[name] for name in names])
        finally:
            self._open.give(context)

    def state(self) -> typing.Dict[str, np.ndarray]:
        """What the model keeps from call to call, by name: copies, for reset. Types that numpy lacks are integers of their width."""
        context = self._open.take(())
        try:
            return {p.name: self._open.state(context, k).copy() for k, p in enumerate(self.states)}
        finally:
            self._open.give(context)

    def reset(self, state: typing.Optional[typing.Mapping[str, np.ndarray]] = None) -> None:
        """The state as the model begins with, or, of what is named, as given."""
        names = [p.name for p in self.states]
        if set(state or {}) - set(names):
            raise TypeError(f"the model keeps {', '.join(names) or 'nothing'}")
        context = self._open.take(())
        try:
            given = [(self._open.state(context, names.index(name)), np.asarray(array), name) for name, array in (state or {}).items()]
            for here, array, name in given:
                if array.shape != here.shape or array.dtype != here.dtype:
                    raise TypeError(f"{name}: {here.dtype}{list(here.shape)} is expected")
            self._open.reset(context)
            for here, array, _ in given:
                here[...] = array
        finally:
            self._open.give(context)

    def _plan(self, context):
        error, size, n = context.error, c.c_size_t(), self._api.n_out
        rank = [max(self._api.outputs[i].ndim, 0) for i in range(n)]
        rows = [(c.c_int64 * max(r, 1))() for r in rank]
        pointers = (c.POINTER(c.c_int64) * max(n, 1))(*(c.cast(r, c.POINTER(c.c_int64)) for r in rows))
        if self._api.plan(self._open.model, context.inputs, pointers, c.byref(size), c.byref(error)):
            raise Error(error)
        return [None if p.shape is None else tuple([None if row[d] < 0 else row[d] for d in range(r)])
                for p, row, r in zip(self.outputs, rows, rank)], size.value

    def plan(self, *args: typing.Any, **named: typing.Any) -> Plan:
        """Plan(shapes, bytes): output shapes (None: the data decides) and working memory of a run on these inputs."""
        context = self._open.take(self._bind(args, named))
        try:
            shapes, size = self._plan(context)
        finally:
            self._open.give(context)
        return Plan({p.name: shape for p, shape in zip(self.outputs, shapes)}, size)

    def profile(self, *args: typing.Any, runs: int = 10, **named: typing.Any) -> typing.List[Row]:
        """Rows (name, op, ms a run, calls a run, flops, bytes) for every kernel, most expensive first."""
        spent, started = collections.defaultdict(lambda: [0, 0]), {}

        @_Event
        def event(_, node, end, ns):
            if not end:
                started[node] = ns
            else:
                spent[node][0] += ns - started.get(node, ns)
                spent[node][1] += 1
        model = _Open(self._api, _Host(size=c.sizeof(_Host), event=event, **self._host))
        context = model.take(self._bind(args, named))
        try:
            model.run(context)
            spent.clear()
            for _ in range(runs):
                model.reset(context)
                model.run(context)
        finally:
            model.give(context)
        del model, context
        rows = []
        for index, (ns, calls) in spent.items():
            node = self._api.node[index]
            rows.append(Row(node.name.decode(errors="replace"), node.op.decode(errors="replace"), ns / runs / 1e6, calls / runs,
                            node.flops, node.bytes))
        return sorted(rows, key=lambda row: -row.ms)

    def __repr__(self) -> str:
        def ports(rows):
            return ", ".join(f"{p.name}: {p.dtype}{list(p.shape) if p.shape is not None else '[...]'}" for p in rows)
        return f"<mcc model {self.name}({ports(self.inputs)}) -> {ports(self.outputs)}>"





def load(path: _Path, threads: int = 0, variant: int = 0, weights: typing.Optional[_Path] = None, verify: bool = False,
         prefix: str = "") -> Model:
    """The model in the shared object `path`. threads 0: as many as the process may use; variant: number of the CPU variant,
    0 the best; weights: the sidecar file when it is not beside the library; verify: hash all weights; prefix: of --prefix."""
    return Model(path, threads, variant, weights, verify, prefix)


def _command():
    """The compiler: what the environment's MCC names, the mcc that was installed with this file, or the one on the path."""
    here = os.path.dirname(os.path.abspath(__file__))
    beside = (os.path.join(here, "..", "..", "bin", "mcc"), os.path.join(here, "mcc"), os.path.join(sysconfig.get_path("scripts"), "mcc"))
    found = os.environ.get("MCC") or next((path for path in beside if os.access(path, os.X_OK) and os.path.isfile(path)), None)
    found = found or shutil.which("mcc")
    if not found:
        raise FileNotFoundError("no mcc is installed beside this module or on the path; the environment's MCC may name it")
    return os.path.normpath(found) if os.sep in found else found


def compile(model: _Path, output: typing.Optional[_Path] = None, *options: str) -> str:
    """Runs the mcc command and returns the output's path; without one, the model's name with .so in the current folder, as the
    command does. Warnings go to sys.stderr. Raises CompileError, whose text is the compiler's."""
    output = os.fspath(output) if output else os.path.splitext(os.path.basename(os.fspath(model)))[0] + ".so"
    command = [_command(), os.fspath(model), "-o", output, *options]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise CompileError(done.returncode, command, done.stdout, done.stderr)
    sys.stderr.write(done.stderr)
    return output

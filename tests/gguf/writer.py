"""GGUF files, written without the package of that name: keys, tensors, and numbers packed as ggml's block types."""
import pathlib
import struct

import numpy as np

KINDS = {"u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f"), "bool": (7, "?"),
         "str": (8, None), "array": (9, None), "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d")}
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34),
         "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "BF16": (30, 1, 2),
         "MXFP4": (39, 32, 17)}


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


def value(kind, v):
    return text(v) if kind == "str" else struct.pack("<" + KINDS[kind][1], v)


class File:
    """Keys and tensors in order; save() writes them. An array's kind is that of its elements, in a list: ["str"]."""

    def __init__(self, architecture):
        self.keys, self.tensors, self.version, self.alignment = [], [], 3, 32
        self.architecture = architecture
        self.key("general.architecture", "str", architecture)

    def key(self, name, kind, v):
        self.keys.append((name, kind, v))

    def own(self, name, kind, v):
        self.key(f"{self.architecture}.{name}", kind, v)

    def tensor(self, name, kind, array):
        """Packs floats [..., n]; returns what the file holds as f32."""
        array = np.asarray(array, np.float32)
        data, held = pack(kind, array)
        self.packed(name, kind, array.shape, data)
        return held

    def packed(self, name, kind, shape, data):
        self.tensors.append((name, TYPES[kind][0], list(shape), data))

    def head(self):
        out = [b"GGUF", struct.pack("<IQQ", self.version, len(self.tensors), len(self.keys))]
        for name, kind, v in self.keys:
            out.append(text(name))
            if isinstance(kind, list):
                out.append(struct.pack("<IIQ", 9, KINDS[kind[0]][0], len(v)) + b"".join(value(kind[0], e) for e in v))
            else:
                out.append(struct.pack("<I", KINDS[kind][0]) + value(kind, v))
        at = 0
        for name, number, shape, data in self.tensors:
            out.append(text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape)) + struct.pack("<IQ", number, at))
            at += (len(data) + self.alignment - 1) // self.alignment * self.alignment
        return b"".join(out)

    def save(self, path):
        out = [self.head()]
        out.append(b"\0" * (-len(out[0]) % self.alignment))
        for _, _, _, data in self.tensors:
            out.append(data + b"\0" * (-len(data) % self.alignment))
        path = pathlib.Path(path)
        path.write_bytes(b"".join(out))
        return path


# ---- block types: floats -> (bytes, floats that the bytes stand for)

def half(x):
    return np.asarray(x, np.float32).astype(np.float16)


def nibbles(q, group):
    """Numbers below 16 [blocks, n]: of each 2 * group the first ones in the low halves of the bytes."""
    q = q.reshape(len(q), -1, 2, group).astype(np.uint8)
    return (q[:, :, 0] | q[:, :, 1] << 4).reshape(len(q), -1)


def over(x, scale):
    return np.divide(x, scale, out=np.zeros(np.broadcast_shapes(x.shape, scale.shape), np.float32), where=scale != 0)


def symmetric(x, most, middle):
    """Scales [blocks, 1] and numbers of blocks x."""
    peak = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)
    d = half(peak / -most)
    return d, np.clip(np.rint(over(x, d.astype(np.float32))) + middle, 0, 2 * middle - 1).astype(np.uint8)


def affine(x, most):
    """Scales, minima [blocks, 1] and numbers from 0 to most."""
    low = x.min(1, keepdims=True)
    d = half((x.max(1, keepdims=True) - low) / most)
    return d, half(low), np.clip(np.rint(over(x - half(low).astype(np.float32), d.astype(np.float32))), 0, most).astype(np.uint8)


def fifths(q):
    """The fifth bits of 32 numbers each."""
    return np.packbits(q >> 4, axis=1, bitorder="little")


def q4_0(x):
    d, q = symmetric(x, 8, 8)
    return [d.view(np.uint8), nibbles(q, 16)], (q.astype(np.float32) - 8) * d.astype(np.float32)


def q5_0(x):
    d, q = symmetric(x, 16, 16)
    return [d.view(np.uint8), fifths(q), nibbles(q & 15, 16)], (q.astype(np.float32) - 16) * d.astype(np.float32)


def q4_1(x):
    d, m, q = affine(x, 15)
    return [d.view(np.uint8), m.view(np.uint8), nibbles(q, 16)], q * d.astype(np.float32) + m.astype(np.float32)


def q5_1(x):
    d, m, q = affine(x, 31)
    return [d.view(np.uint8), m.view(np.uint8), fifths(q), nibbles(q & 15, 16)], q * d.astype(np.float32) + m.astype(np.float32)


def q8_0(x):
    d = half(np.abs(x).max(1, keepdims=True) / 127)
    q = np.clip(np.rint(over(x, d.astype(np.float32))), -128, 127).astype(np.int8)
    return [d.view(np.uint8), q.view(np.uint8)], q * d.astype(np.float32)


def sixes(scales, minima):
    """8 numbers of 6 bits each, as 12 bytes."""
    scales, minima = scales.astype(np.uint8), minima.astype(np.uint8)
    return np.concatenate([scales[:, :4] | scales[:, 4:] >> 4 << 6, minima[:, :4] | minima[:, 4:] >> 4 << 6, scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4], 1)


def with_minima(x, most):
    """Blocks of 256: 8 scales and minima of 6 bits, and what they are multiples of."""
    part = x.reshape(len(x), 8, 32)
    low = np.minimum(part.min(2), 0)
    step = (part.max(2) - low) / most
    d, least = half(step.max(1, keepdims=True) / 63), half(-low.min(1, keepdims=True) / 63)
    scales = np.clip(np.rint(over(step, d.astype(np.float32))), 0, 63)
    minima = np.clip(np.rint(over(-low, least.astype(np.float32))), 0, 63)
    scale = (d.astype(np.float32) * scales)[:, :, None].astype(np.float32)
    minimum = (least.astype(np.float32) * minima)[:, :, None].astype(np.float32)
    q = np.clip(np.rint(over(part + minimum, scale)), 0, most).astype(np.uint8)
    return [d.view(np.uint8), least.view(np.uint8), sixes(scales, minima)], q, (q * scale - minimum).reshape(x.shape).astype(np.float32)


def q4_k(x):
    head, q, held = with_minima(x, 15)
    return head + [nibbles(q.reshape(len(x), -1), 32)], held


def q5_k(x):
    head, q, held = with_minima(x, 31)
    high = np.bitwise_or.reduce((q >> 4) << np.arange(8, dtype=np.uint8)[None, :, None], axis=1).astype(np.uint8)
    return head + [high, nibbles(q.reshape(len(x), -1) & 15, 32)], held


def q6_k(x):
    part = x.reshape(len(x), 16, 16)
    step = np.take_along_axis(part, np.abs(part).argmax(2)[:, :, None], 2)[:, :, 0] / -32
    d = half(np.abs(step).max(1, keepdims=True) / 127)
    scales = np.clip(np.rint(over(step, d.astype(np.float32))), -128, 127).astype(np.int8)
    scale = (d.astype(np.float32) * scales)[:, :, None].astype(np.float32)
    q = np.clip(np.rint(over(part, scale)) + 32, 0, 63).astype(np.uint8)
    flat = q.reshape(len(x), 2, 4, 32)
    high = np.bitwise_or.reduce((flat >> 4) << (2 * np.arange(4, dtype=np.uint8))[None, None, :, None], axis=2).astype(np.uint8)
    return [nibbles(flat.reshape(len(x), -1) & 15, 64), high.reshape(len(x), -1), scales.view(np.uint8), d.view(np.uint8)], \
        ((q.astype(np.float32) - 32) * scale).reshape(x.shape).astype(np.float32)


def mxfp4(x):
    held = np.array([0, 1, 2, 3, 4, 6, 8, 12], np.float32)
    held = np.concatenate([held, -held])
    e = np.clip(np.frexp(np.abs(x).max(1, keepdims=True))[1] + 125, 0, 254)     # the largest number is 4 to 8
    scale = np.ldexp(np.float32(1), e - 128).astype(np.float32)
    q = np.abs(over(x, scale)[:, :, None] - held).argmin(2).astype(np.uint8)
    return [e.astype(np.uint8), nibbles(q, 16)], held[q] * scale


PACKERS = {"MXFP4": mxfp4, "Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q5_1": q5_1, "Q8_0": q8_0, "Q4_K": q4_k, "Q5_K": q5_k, "Q6_K": q6_k}


def pack(kind, x):
    if kind == "F32":
        return x.astype("<f4").tobytes(), x
    if kind == "F16":
        return half(x).tobytes(), half(x).astype(np.float32)
    if kind == "BF16":
        bits = x.view(np.uint32)
        bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16
        return bits.astype("<u2").tobytes(), (bits << 16).view(np.float32)
    fields, held = PACKERS[kind](x.reshape(-1, TYPES[kind][1]))
    data = np.concatenate(fields, 1).tobytes()
    assert len(data) == x.size // TYPES[kind][1] * TYPES[kind][2]
    return data, held.reshape(x.shape).astype(np.float32)

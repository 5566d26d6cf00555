"""ONNX messages as plain dicts, and dicts as bytes: a protobuf writer that writes whatever it is told, right or wrong.

A message is a dict from field names to values; a repeated field is a list; the key "+" holds raw bytes to append.
Integers may be out of range, texts may be bytes that are no text.
"""
import struct

INT, FLOAT, TEXT, PACKED_F, PACKED_I = "int", "float", "text", "packed floats", "packed ints"
FIELDS = {
    "Model": {"ir_version": (1, INT), "producer": (2, TEXT), "graph": (7, "Graph"), "opsets": (8, "Opset"),
              "metadata": (14, "Entry"), "functions": (25, "Function")},
    "Opset": {"domain": (1, TEXT), "version": (2, INT)},
    "Entry": {"key": (1, TEXT), "value": (2, TEXT)},
    "Graph": {"nodes": (1, "Node"), "name": (2, TEXT), "initializers": (5, "Tensor"), "inputs": (11, "Value"),
              "outputs": (12, "Value"), "sparse": (15, "Sparse")},
    "Node": {"inputs": (1, TEXT), "outputs": (2, TEXT), "name": (3, TEXT), "op": (4, TEXT), "attrs": (5, "Attr"),
             "doc": (6, TEXT), "domain": (7, TEXT)},
    "Attr": {"name": (1, TEXT), "f": (2, FLOAT), "i": (3, INT), "s": (4, TEXT), "t": (5, "Tensor"),
             "g": (6, "Graph"), "floats": (7, FLOAT), "ints": (8, INT), "type": (20, INT), "ref": (21, TEXT)},
    "Tensor": {"dims": (1, INT), "type": (2, INT), "segment": (3, "Segment"), "floats": (4, PACKED_F),
               "int32s": (5, PACKED_I), "strings": (6, TEXT), "int64s": (7, PACKED_I), "name": (8, TEXT),
               "raw": (9, TEXT), "external": (13, "Entry"), "location": (14, INT)},
    "Segment": {"begin": (1, INT), "end": (2, INT)},
    "Sparse": {"values": (1, "Tensor"), "indices": (2, "Tensor"), "dims": (3, INT)},
    "Value": {"name": (1, TEXT), "type": (2, "Type")},
    "Type": {"tensor": (1, "TensorType"), "sequence": (4, "Inner")},
    "Inner": {"type": (1, "Type")},
    "TensorType": {"elem": (1, INT), "shape": (2, "Shape")},
    "Shape": {"dims": (1, "Dim")},
    "Dim": {"value": (1, INT), "param": (2, TEXT)},
    "Function": {"name": (1, TEXT), "inputs": (4, TEXT), "outputs": (5, TEXT), "nodes": (7, "Node"),
                 "opsets": (9, "Opset"), "domain": (10, TEXT)},
}


def varint(n):
    n &= 2**64 - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def chunk(field, data):
    if isinstance(data, str):
        data = data.encode()
    return varint(field << 3 | 2) + varint(len(data)) + data


def field_bytes(number, kind, value):
    if kind == INT:
        return varint(number << 3) + varint(value)
    if kind == FLOAT:
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if kind == TEXT:
        return chunk(number, value)
    return chunk(number, encode(kind, value))


def encode(kind, message):
    if isinstance(message, bytes):
        return message
    out = []
    for name, value in message.items():
        if name == "+":
            out.append(value)
            continue
        number, of = FIELDS[kind][name]
        if of == PACKED_F:
            out.append(chunk(number, struct.pack("<%df" % len(value), *value)))
        elif of == PACKED_I:
            out.append(chunk(number, b"".join(varint(v) for v in value)))
        else:
            for v in value if isinstance(value, list) else [value]:
                out.append(field_bytes(number, of, v))
    return b"".join(out)


def nested(levels, path, core=b""):
    """core inside `levels` repetitions of the fields of path (outermost first), in time linear in the result."""
    heads, size = [], len(core)
    for _ in range(levels):
        for number in reversed(path):
            head = varint(number << 3 | 2) + varint(size)
            heads.append(head)
            size += len(head)
    return b"".join(reversed(heads)) + core

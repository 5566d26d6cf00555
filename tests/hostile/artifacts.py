"""Artifacts made to cost whoever reads them: sealed, well-formed ELF files in which many pointers lead to the same bytes, or
which have many of whatever a reader loops over. make(kind, n) grows in proportion to n; for AArch64, so nothing loads them.
"""
import struct

ABI = 1
BASE = 4096                             # the data section's address and place in the file
M64 = (1 << 64) - 1
PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def rotate(x, n):
    return (x << n | x >> (64 - n)) & M64


def xxh64(data):
    """XXH64 with seed 0, as the loader asks for."""
    p1, p2, p3, p4, p5 = PRIMES
    mixed = lambda acc, lane: rotate((acc + lane * p2) & M64, 31) * p1 & M64
    at, x = 0, p5
    if len(data) >= 32:
        acc = [(p1 + p2) & M64, p2, 0, -p1 & M64]
        for words in struct.iter_unpack("<4Q", memoryview(data)[:len(data) // 32 * 32]):
            acc = [mixed(a, w) for a, w in zip(acc, words)]
        x = sum(rotate(a, n) for a, n in zip(acc, (1, 7, 12, 18))) & M64
        for a in acc:
            x = ((x ^ mixed(0, a)) * p1 + p4) & M64
        at = len(data) // 32 * 32
    x = (x + len(data)) & M64
    while len(data) - at >= 8:
        x = (rotate(x ^ mixed(0, struct.unpack_from("<Q", data, at)[0]), 27) * p1 + p4) & M64
        at += 8
    if len(data) - at >= 4:
        x = (rotate(x ^ struct.unpack_from("<I", data, at)[0] * p1 & M64, 23) * p2 + p3) & M64
        at += 4
    for byte in data[at:]:
        x = rotate(x ^ byte * p5 & M64, 11) * p1 & M64
    x = (x ^ x >> 33) * p2 & M64
    x = (x ^ x >> 29) * p3 & M64
    return x ^ x >> 32


class Data:
    """The one section of tables and texts, and the pointers in it."""

    def __init__(self):
        self.bytes, self.pointers = bytearray(b"\0" * 8), []

    def put(self, data):
        self.bytes += b"\0" * (-len(self.bytes) % 8)
        self.bytes += data
        return BASE + len(self.bytes) - len(data)

    def text(self, text):
        return self.put(text.encode() + b"\0")

    def point(self, at, to):
        self.pointers.append((at, to))


def varint(v):
    out = bytearray()
    while v >= 128:
        out.append(v & 127 | 128)
        v >>= 7
    return bytes(out + bytes([v]))


def table(d, inputs=(), symbols=(), nodes=(), kernels=(), features="x-v8"):
    """inputs: [(name, [dims], ndim)] with the addresses of name and dims; symbols, kernels: addresses; nodes: (name, op, next)."""
    ports = d.put(b"".join(struct.pack("<QQiBBHQQQ", 0, 0, ndim, 2, 32, 1, 0, 0, 0) for _, _, ndim in inputs))
    for i, (name, dims, _) in enumerate(inputs):
        d.point(ports + 48 * i, name)
        d.point(ports + 48 * i + 8, dims)
    names = d.put(b"\0" * 48 * len(symbols))
    for i, name in enumerate(symbols):
        d.point(names + 48 * i, name)
    rows = d.put(b"".join(struct.pack("<QQQQQQQ", 0, 0, 0, 1, 1, 1, n) for _, _, n in nodes))
    for i, (name, op, _) in enumerate(nodes):
        d.point(rows + 56 * i, name)
        d.point(rows + 56 * i + 8, op)
    launched = d.put(b"\0" * 32 * len(kernels))
    for i, name in enumerate(kernels):
        d.point(launched + 32 * i, name)
    api = d.put(struct.pack("<6IQ", ABI, len(inputs), 0, len(symbols), len(nodes), 0, 184) + b"\0" * 152)
    for at, text in ((32, "net"), (40, "mcc"), (48, "aarch64"), (56, features)):
        d.point(api + at, d.text(text))
    for at, to in ((72, ports), (88, names), (96, rows)):
        d.point(api + at, to)
    desc = d.put(struct.pack("<104xIIQQ", len(kernels), 0, 0, 0))
    d.point(desc, api)
    d.point(desc + 96, launched)
    return desc


def elf(d, desc, functions=(), graph=b"", sections=0):
    """functions: names of symbols of code, a name that comes again shares its bytes; sections: so many of one byte each."""
    strings, at_name = bytearray(b"\0mcc_rt_model\0"), {}
    symbols = bytearray(24) + struct.pack("<IBBHQQ", 1, 1, 0, 1, desc, 128)
    for name in functions:
        if name not in at_name:
            at_name[name] = len(strings)
            strings += name.encode() + b"\0"
        symbols += struct.pack("<IBBHQQ", at_name[name], 2, 0, 1, 0, 16)
    rela = b"".join(struct.pack("<QQq", at, 1027, to) for at, to in d.pointers)
    words = [".data", ".note.mcc", ".rela", ".symtab", ".strtab", ".mcc.graph", ".shstrtab", ".more"]
    names = b"\0" + b"".join(w.encode() + b"\0" for w in words)
    name_of = {w: names.index(b"\0" + w.encode() + b"\0") + 1 for w in words}
    file, table_rows = bytearray(BASE), [bytes(64)]

    def section(name, kind, flags, data, address=0, link=0, align=8, place=None):
        if place is None:
            file.extend(b"\0" * (-len(file) % align))
            place = len(file)
            file.extend(data)
        table_rows.append(struct.pack("<IIQQQQIIQQ", name_of[name], kind, flags, address, place, len(data), link, 0, align, 24 if kind in (2, 4) else 0))
        return place

    section(".data", 1, 3, d.bytes, BASE)
    note = section(".note.mcc", 7, 2, bytes(144), len(file) + (1 << 30))
    section(".rela", 4, 2, rela)
    section(".symtab", 2, 0, symbols, link=5)
    section(".strtab", 3, 0, strings)
    section(".mcc.graph", 1, 0, graph, align=1)
    section(".shstrtab", 3, 0, names)
    shstr = len(table_rows) - 1
    for i in range(sections):
        section(".more", 1, 2, b"x", (1 << 40) + 16 * i, align=1)
    file.extend(b"\0" * (-len(file) % 8))
    shoff = len(file)
    file.extend(b"".join(table_rows))
    # The first bytes: headers; what lies before the data is a hole that costs nobody anything but its hash.
    struct.pack_into("<16sHHIQQQIHHHHHH", file, 0, b"\x7fELF\2\1\1", 3, 183, 1, 0, 64, shoff, 0, 64, 56, 1, 64, len(table_rows), shstr)
    struct.pack_into("<IIQQQQQQ", file, 64, 4, 4, note, len(file) + (1 << 30), 0, 144, 144, 8)
    struct.pack_into("<III4sIIQQQQQQ64s", file, note, 4, 128, 1, b"mcc", ABI, 1, len(file), len(file), 0, 0, 0, 0, b"mcc_query")
    struct.pack_into("<Q", file, note + 48, xxh64(file))
    return bytes(file)


def dims(n):
    """Ports that share n dims."""
    d = Data()
    name, shared = d.text("x"), d.put(struct.pack("<qiiQ", 1, -1, 0, 0) * n)
    return elf(d, table(d, [(name, shared, n)] * n))


def rank(n):
    """Ports that share 32 dims."""
    d = Data()
    name, shared = d.text("x"), d.put(struct.pack("<qiiQ", 1, -1, 0, 0) * 32)
    return elf(d, table(d, [(name, shared, 32)] * n))


def symbolic(n):
    """Dims of a symbol with a long name."""
    d = Data()
    name, long = d.text("x"), d.text("s" * 16 * n)
    shared = d.put(struct.pack("<qiiQ", -1, 0, 0, 0) * 32)
    return elf(d, table(d, [(name, shared, 32)] * (n // 32), symbols=[long]))


def texts(n):
    """Nodes that share a long name."""
    d = Data()
    long = d.text("n" * 16 * n)
    return elf(d, table(d, nodes=[(long, long, 0)] * n))


def operators(n):
    """Nodes of one kernel each whose chains all end in a long operator."""
    d = Data()
    short, long = d.text("a"), d.text("o" * 16 * n)
    return elf(d, table(d, nodes=[(short, short, 1), (short, long, 1)] + [(short, short, 1)] * n))


def kernels(n):
    """Kernels that share a long name."""
    d = Data()
    short, long = d.text("a"), d.text("k" * 16 * n)
    return elf(d, table(d, nodes=[(short, short, 0)], kernels=[long] * n))


def variants(n):
    """Functions for the last of many variants."""
    d = Data()
    short = d.text("a")
    functions = (f"k{i}_z{n}.a" for i in range(n))
    return elf(d, table(d, nodes=[(short, short, 0)], features=",".join(f"x-z{i}" for i in range(n))), functions)


def names(n):
    """Functions that share a long name."""
    d = Data()
    return elf(d, table(d, features="x-z1"), ["k" * 16 * n + "_z1"] * n)


def sections(n):
    """Texts behind many sections of data."""
    d = Data()
    short = d.text("a")
    return elf(d, table(d, nodes=[(short, short, 0)] * n), sections=min(n // 4, 4000))


def graph_types(n):
    """A graph map whose edges share a long type."""
    d = Data()
    text = varint(1) + varint(16 * n) + b"t" * 16 * n
    nodes = varint(0) + varint(2) + (varint(4) + varint(0) + varint(0) * 2) * 2
    edges = varint(n) + varint(1) + varint(1) + varint(0) + (varint(0) + varint(1) + varint(0)) * (n - 1)
    return elf(d, table(d), graph=varint(1) + text + nodes + edges + varint(0) * 4)


def graph_rows(n):
    """A graph map whose nodes are all the same long row of the table."""
    d = Data()
    short, long = d.text("a"), d.text("n" * 16 * n)
    nodes = varint(0) + varint(n) + (varint(1 << 3) + varint(0)) * n
    return elf(d, table(d, nodes=[(short, short, 0), (long, short, 0)]), graph=varint(1) + varint(0) + nodes + varint(0) * 5)


def honest(n):
    """Nothing shared: nodes, kernels, symbols and functions with names of their own."""
    d = Data()
    rows = [(d.text(f"node number {i}"), d.text("Conv"), 0) for i in range(n)]
    found = [d.text(f"k{i}_v8") for i in range(n)]
    shape = [d.put(struct.pack("<qiiQ", 4, -1, 0, 0) * 4) for _ in range(n)]
    ports = [(d.text(f"input {i}"), shape[i], 4) for i in range(n)]
    return elf(d, table(d, ports, [d.text(f"s{i}") for i in range(n)], rows, found), [f"k{i}_v8.node number {i}" for i in range(n)])


KINDS = {f.__name__: f for f in (dims, rank, symbolic, texts, operators, kernels, variants, names, sections, graph_types, graph_rows, honest)}


def make(kind, n):
    return KINDS[kind](n)

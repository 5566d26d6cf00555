"""Memory that ends where the process may not read or write: what a compiled network touches beyond an input, an output or its workspace
ends it."""
import ctypes as c
import mmap

import numpy as np

LIBC = c.CDLL(None, use_errno=True)
LIBC.mprotect.argtypes = [c.c_void_p, c.c_size_t, c.c_int]
LIBC.mmap.argtypes, LIBC.mmap.restype = [c.c_void_p, c.c_size_t, c.c_int, c.c_int, c.c_int, c.c_long], c.c_void_p
LIBC.munmap.argtypes = [c.c_void_p, c.c_size_t]
ALLOC = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_size_t, c.c_size_t)
RELEASE = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_size_t)
FILL = 0xA5


def guarded(array):
    """A copy whose last byte lies before a page without access; other arrays than of plain elements as they are."""
    array = np.asarray(array, order="C")       # ascontiguousarray makes vectors of scalars
    if array.dtype.kind in "OUS":
        return array
    room = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, room + mmap.PAGESIZE)
    raw = np.frombuffer(pages, np.uint8)
    if LIBC.mprotect(raw.ctypes.data + room, mmap.PAGESIZE, 0):       # PROT_NONE
        raise OSError(c.get_errno(), "mprotect")
    made = raw[room - array.nbytes:room].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


class Heap:
    """alloc and release of mcc_host: each block lies between two pages without access, as near to the second as its alignment lets it;
    the bytes that are left on both sides are looked at when it is given back. `broken` counts blocks around which something was written."""

    def __init__(self):
        self.alloc, self.release, self.broken, self.blocks = ALLOC(self._alloc), RELEASE(self._release), 0, {}

    def _alloc(self, _, size, align):
        page = max(mmap.PAGESIZE, align)
        room = -(-max(size, 1) // page) * page + page
        at = LIBC.mmap(None, room + 2 * mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if at is None or at == c.c_void_p(-1).value:
            return None
        begin, end = at + mmap.PAGESIZE, at + mmap.PAGESIZE + room
        LIBC.mprotect(at, mmap.PAGESIZE, 0)
        LIBC.mprotect(end, mmap.PAGESIZE, 0)
        block = (end - size) // align * align
        c.memset(begin, FILL, room)
        self.blocks[block] = begin, end, size
        return block

    def _release(self, _, block, size):
        begin, end, given = self.blocks.pop(block)
        around = c.string_at(begin, block - begin) + c.string_at(block + given, end - block - given)
        self.broken += around.count(FILL) != len(around) or size != given
        LIBC.munmap(begin - mmap.PAGESIZE, end - begin + 2 * mmap.PAGESIZE)

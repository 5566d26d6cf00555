"""Random choices, from one generator, so that a seed gives the same network everywhere."""
import numpy as np

from fuzz.ort.elements import BF16, BOOL, F16, F8, I4, U4, WEIGHT, is_float

EXTENTS = [1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 12, 16, 17, 33]


class Choices:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.empties = self.chance(8)          # this network may have dims of no elements
        self.specials = self.chance(7)        # ... and leaves with infinities, NaN, -0 and denormals

    def chance(self, percent):
        return self.rng.integers(100) < percent

    def int(self, lo, hi):
        """Both may come."""
        return int(self.rng.integers(lo, hi + 1))

    def pick(self, items, weights=None):
        items = list(items)
        if weights is None:
            return items[self.rng.integers(len(items))]
        w = np.array(weights, float)
        return items[self.rng.choice(len(items), p=w / w.sum())]

    def some(self, items, least=0):
        """A subset, in order."""
        items = list(items)
        keep = self.rng.permutation(len(items))[:self.int(min(least, len(items)), len(items))]
        return [items[i] for i in sorted(keep)]

    def shuffled(self, items):
        items = list(items)
        return [items[i] for i in self.rng.permutation(len(items))]

    def dtype(self, allowed):
        allowed = [t for t in allowed if t in WEIGHT]
        return self.pick(allowed, [WEIGHT[t] for t in allowed]) if allowed else None

    def extent(self, least=1):
        if self.empties and least == 0 and self.chance(12):
            return 0
        return max(self.pick(EXTENTS), least)

    def shape(self, lo, hi, least=0, limit=4000):
        """Dims of a rank between lo and hi, of at most limit elements."""
        dims = [self.extent(least) for _ in range(self.int(lo, hi))]
        while np.prod(dims) > limit:
            at = int(np.argmax(dims))
            dims[at] = max(dims[at] // 2, least, 1)
        return dims

    def axis(self, rank, count=None):
        """An axis of `rank`, as often from the end."""
        a = self.int(0, rank - 1)
        return a - rank if self.chance(40) else a

    def axes(self, rank, least=0):
        return [a - rank if self.chance(30) else a for a in self.shuffled(self.some(range(rank), least))]

    def array(self, dtype, shape, lo=None, hi=None):
        """Elements of a leaf; integers in lo..hi (both included), floats of a profile drawn here."""
        n = int(np.prod(shape))
        if dtype == BOOL:
            return self.rng.integers(0, 2, n).astype(np.bool_).reshape(shape)
        if is_float(dtype):
            return self.floats(n, dtype, lo, hi).reshape(shape)
        info = (-8, 7) if dtype == I4 else (0, 15) if dtype == U4 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if lo is None and self.chance(4):
            return self.rng.integers(info[0], info[1], n, dtype=np.int64 if info[1] <= 2 ** 62 or info[0] else np.uint64,
                                     endpoint=True).astype(dtype).reshape(shape)
        lo, hi = max(info[0], -9 if lo is None else lo), min(info[1], 9 if hi is None else hi)
        return self.rng.integers(lo, hi, n, endpoint=True).astype(dtype).reshape(shape)

    def texts(self, shape, words):
        """Elements of a leaf of strings."""
        made = np.empty(int(np.prod(shape)), object)
        for i in range(made.size):
            made[i] = self.pick(words)
        return made.reshape(shape)

    def floats(self, n, dtype, lo, hi):
        if lo is not None:
            a = self.rng.uniform(lo, hi, n)
        else:
            kind = self.pick(("dyadic", "normal", "positive", "integers"), (5, 5, 2, 1))
            a = {"dyadic": lambda: self.rng.integers(-16, 17, n) / 4, "normal": lambda: self.rng.standard_normal(n),
                 "positive": lambda: self.rng.uniform(0.125, 2, n), "integers": lambda: self.rng.integers(-9, 10, n)}[kind]()
            if self.specials and self.chance(40):
                odd = [np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, 3e38, 1e-8, 2.0 ** 31, -2.0 ** 63] + [np.nan] * int(self.chance(25))
                at = self.rng.random(n) < 0.1
                a = np.where(at, np.array(odd)[self.rng.integers(0, len(odd), n)], a)
        with np.errstate(all="ignore"):
            limit = 30000 if dtype == F16 else 400 if dtype in F8 else 3e38
            a = np.where(np.isfinite(a), np.clip(a, -limit, limit), a)
            return np.asarray(a).astype(np.float32 if dtype == BF16 or dtype in F8 else dtype).astype(dtype)

"""Strings, optionals, and operators that draw numbers: those are judged by shape, type and range, through what is certain of them."""
import numpy as np
from onnx import TensorProto as T

from fuzz.ort.draw import Refused, generator
from fuzz.ort.elements import BOOL, ELEM, F16, F32, F64, I32, I64, TEXT
from fuzz.ort.ops_ml import WORDS

LINES = ["a b", "", "the cat", "Été à la mer", "x,y,z", "a,,b", "  two  spaces ", "UPPER lower", "1.5", "-7", "ab12", "日本"]
PATTERNS = ["a.*", "[a-z]+", r"\d+", r"[\w ]*", "(a|b)*c?", r"-?\d+(\.\d+)?", ".{2,4}"]


def text(d, shape=None, words=None):
    """A tensor of strings: of the pool, or a new one."""
    fits = [v for v in d.pool if not isinstance(v.data, list) and v.dtype == TEXT and (shape is None or v.shape == list(shape))]
    return d.pick(fits) if fits and d.chance(50) and words is None else d.words(d.shape(0, 3) if shape is None else shape, words or LINES)


@generator("StringConcat")
def concat(d, op):
    d.schema(op)
    x = text(d)
    d.node(op, [x, text(d, [n if d.chance(70) else 1 for n in x.shape][d.int(0, x.rank):])])


@generator("StringSplit")
def split(d, op):
    d.schema(op)
    given = {"delimiter": d.pick((" ", ",", "", "a"))} if d.chance(70) else {}
    d.node(op, [text(d)], 2, **given, **({"maxsplit": d.int(0, 3)} if d.chance(40) else {}))


@generator("StringNormalizer")
def normalizer(d, op):
    d.schema(op)                                         # a locale that every system has
    words = [w for w in LINES if w.isascii()]
    given = {"locale": "C"} | ({"case_change_action": d.pick(("LOWER", "UPPER", "NONE"))} if d.chance(80) else {})
    stop = {"stopwords": d.some(words, 1), "is_case_sensitive": 1} if d.chance(40) else {}
    d.node(op, [d.words([d.int(1, 5)] if d.chance(70) else [1, d.int(1, 5)], words)], **given, **stop)


@generator("RegexFullMatch")
def match(d, op):
    d.schema(op)
    d.node(op, [text(d)], pattern=d.pick(PATTERNS))


@generator("CastText")
def cast(d, op):
    """Numbers to strings and back."""
    if d.chance(50):
        x = d.value([F32, I64, I32, BOOL, F64], 0, 3)
        if x.dtype.kind == "f":
            x = d.given(np.round(np.clip(np.nan_to_num(x.data), -999, 999) * 8) / 8, d.chance(40))
        made, = d.node("Cast", [x], to=T.STRING)
        if d.chance(50):
            d.node("Cast", [made], to=ELEM[x.dtype if x.dtype != BOOL else I64])
    else:
        to = d.pick((F32, F64, I64, I32))
        words = ["1", "-7", "42", "0"] + (["1.5", "-2.25e2", "1e-3", "inf"] if to in (F32, F64) else [])
        d.node("Cast", [text(d, words=words)], to=ELEM[to])


@generator("EqualText")
def equal(d, op):
    if d.version("Equal") < 19:
        raise Refused("no strings")
    x = d.words(d.shape(0, 3), WORDS)
    d.node("Equal", [x, d.words([n if d.chance(70) else 1 for n in x.shape][d.int(0, x.rank):], WORDS)])


@generator("TfIdfVectorizer")
def tfidf(d, op):
    n = d.int(1, 2)
    grams = [g for k in range(1, n + 1) for g in dict.fromkeys(tuple(int(v) for v in d.rng.integers(0, 5, k)) for _ in range(3))]
    starts = [0] + ([sum(1 for g in grams if len(g) == 1)] if n == 2 else [])
    weights = {"weights": [float(np.float32(v)) for v in d.rng.uniform(0.1, 2, len(grams))]} if d.chance(50) else {}
    mode = d.pick(("TF", "IDF", "TFIDF")) if weights else "TF"
    order = d.shuffled(range(len(grams)))
    d.node(op, [d.leaf(d.pick((I32, I64)), d.shape(1, 2), 0, 5)], mode=mode, min_gram_length=1, max_gram_length=n, max_skip_count=d.int(0, 2),
           pool_int64s=[v for g in grams for v in g], ngram_counts=starts, ngram_indexes=order, **weights)


@generator("OptionalHasElement", "OptionalGetElement")
def optional(d, op):
    """Of a tensor or a sequence, which count as optionals that are there."""
    if d.version(op) < 18:
        raise Refused("optionals alone")
    sequences = [v for v in d.pool if isinstance(v.data, list) and v.data]
    x = d.pick(sequences) if sequences and d.chance(40) else d.value([F32, I64, BOOL, F64], 0, 3)
    d.node(op, [x])


# ---- numbers that are drawn -----------------------------------------------------------------------------------------------

def hidden(d, *values):
    """What is certain of drawn numbers stays in the network; they themselves do not."""
    for v in values:
        d.pool.remove(v)
    return values[0]


@generator("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike")
def drawn(d, op):
    t = d.pick((F32, F32, F64, F16))
    given = {"dtype": ELEM[t]} if t != F32 or d.chance(50) else {}
    lo = d.int(-3, 3)
    if op.startswith("RandomUniform"):
        given |= {"low": lo + 0.125, "high": lo + 0.875}
    else:
        given |= {"mean": lo + 0.5, "scale": 0.01}
    if op.endswith("Like"):
        like = d.value([F32, F64, I64] if "dtype" in given else [F32], 0, 3, 1)
        raw, = d.node(op, [like], **given)
    else:
        raw, = d.node(op, [], shape=d.shape(1, 3, 1), **given)
    d.node("Floor" if d.chance(80) else "Shape", [hidden(d, raw)])


@generator("Bernoulli")
def bernoulli(d, op):
    d.schema(op)
    x = d.given(d.rng.integers(0, 2, d.shape(0, 3, 1)).astype(d.pick((F32, F64))), d.chance(30))
    if d.chance(60):
        d.node(op, [x])                                  # 0 and 1 are certain
    else:
        raw = hidden(d, *d.node(op, [d.leaf(F32, d.shape(1, 3, 1), 0, 1)]))
        squared = hidden(d, *d.node("Mul", [raw, raw]))  # 0 or 1
        d.node("Equal", [raw, squared])


@generator("Multinomial")
def multinomial(d, op):
    n, classes = d.int(1, 4), d.int(1, 5)
    x = np.full((n, classes), -200.0, np.float32)
    x[np.arange(n), d.rng.integers(0, classes, n)] = 3   # this one is certain
    d.node(op, [d.given(x, d.chance(30))], sample_size=d.int(1, 6), **({"dtype": d.pick((T.INT32, T.INT64))} if d.chance(50) else {}))


@generator("DropoutTrained")
def dropout(d, op):
    """Each element is 0, or scaled by 1 / (1 - ratio)."""
    if d.version("Dropout") < 12:
        raise Refused("an attribute")
    x = d.value([F32], 1, 3, 1)
    zero = d.chance(40)
    y, mask = d.node("Dropout", [x, d.const(0.0 if zero else 0.5, np.float32, True), d.const(True, np.bool_, True)], [True, True])
    if not zero:
        hidden(d, y, mask)
        wanted = hidden(d, *d.node("Where", [mask, d.node("Add", [x, x])[0], d.const(0, np.float32, True)]))
        d.node("Equal", [y, wanted])

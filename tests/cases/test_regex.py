"""RegexFullMatch beside ONNX Runtime (RE2) and, where both mean the same, Python's re; patterns that must be refused."""
import random
import re

import numpy as np
import pytest
from onnx import TensorProto as T

from support.compare import Model, node
from support.tool import value

# Patterns and texts with what each part of the syntax is for.
SYNTAX = [
    "", "abc", "a|b|", "(a)(?:b)(?P<n>c)(?<m>d)?", "a*b+c?", "a*?b+?c??", "x{2}", "x{2,}", "x{0,2}", "x{0}", "x{1,3}?y", "{", "a{,2}", "a{b", "a{2,b}", "a{01}",
    ".", "(?s).", ".*", "[abc]", "[^abc]", "[a-c-e]", "[]a]", "[^]a]", "[a-]", "[-a]", "[]-a]", r"[\]\-\\^]",
    r"[\d-z]", "[[:alpha:]]+", "[[:^alpha:]]+", "[[:word:][:space:]]+",
    "[[:xdigit:]]+", "[[:punct:]]+", "[[:blank:]]", "[[:cntrl:]]", "[[:graph:]]+", "[[:print:]]+", "[[:ascii:]]+",
    "[[:upper:]]", "[[:lower:]]", "[[:digit:]]", "[[:alnum:]]", "[[:a]",
    r"\d+", r"\D+", r"\w+", r"\W+", r"\s", r"\S+", r"\t|\n|\r|\f|\v|\a", r"\x41|\x{e9}|\x{1F600}", r"\101|\0|\07",
    r"\.\*\_\-\@", "é", "[à-ü]+", "[^é]", "中+", "(?:é|中)*", "[😀-😎]",
    "^abc$", r"\Aabc\z", "a^b", "a$b", "(^|,)a($|,)", r"\bab\b", r"\b.*\B", r"a\b.b", r".*\b\w{2}\b.*", "(?m)a$\n^b",
    "(?m)(^a$\n?)+", "(?m)^$", r"\B", "^*a", r"(?:\b|a)*", "($|a)*",
    "(?i)abc", "(?i)k", "(?i)S", "(?i)[^k]", "(?i)[j-l]", r"(?i)\w", r"(?i)\W", "(?i:a)b", "a(?i)b|c", "(?i)a(?-i)b",
    "((?i)a)b", "(?is)A.B", "(?U)a+b", "(?i)[[:lower:]]",
    "(a*)*", "(a*)+", "((a|b)*c)*", "(a|ab)(c|bcd)", "(|a)*b", "()", "(?:)", "[^\\x00-\\x{10FFFF}]",
    "a[^\\x00-\\x{10FFFF}]*", "(a[^\\x00-\\x{10FFFF}]|b)c?", "}", "]", "a]b}",
    r"[\w.+-]+@[\w-]+(\.[\w-]+)+", r"(\d{1,3}\.){3}\d{1,3}", r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)",
    ".{0,1000}", "[ab]*a[ab]{6}", "(x{10}){1,5}", "\\\n",
]
TEXTS = ["", "a", "b", "c", "k", "K", "\u212a", "s", "\u017f", "abc", "ABC", "abcd", "aab", "abb", "x", "xx", "xxx", "xxy",
         "x" * 50, "{", "a{,2}", "a{b", "a{2,b}", "a{01}", "\n", "\r", "\t", "\v", "\f",
         "\a", "\0", "\a7", "A", "é", "É", "àü", "中中", "é中", "😀", "😎", "-", "]", "\\", "^", "_", ".*_-@", "0", "12",
         "z", " ", "a b", "ab", "aB", "Ab", "AB", "a.b", "a-b", "a\n", "a\nb", "a\nb\n",
         "A\nB", "\n\n", ",a,", "a,", "ac", "acbc", "}", "a]b}", "me@example.co.uk", "me@x", "1.2.3.4", "1.2.3",
         "name@gmail.com", "!?", "[", "[:a", ":", "aaaaaaaa", "baaabab", "d", "no", "no n", "x" * 1000]


def model(folder, patterns, dims=("n",)):
    nodes = [node("RegexFullMatch", "x", f"y{i}", pattern=p) for i, p in enumerate(patterns)]
    return Model(folder, nodes, [value("x", list(dims), T.STRING)], [value(f"y{i}", list(dims), T.BOOL) for i in range(len(patterns))], opset=20)


def compare(folder, patterns, texts):
    """What ONNX Runtime says, after artifacts said the same."""
    m, x = model(folder, patterns), np.array(texts, object)
    want = m.want([x])
    for p, w, g in zip(patterns, want, m.run([x])):
        wrong = [t for t, a, b in zip(texts, w, g) if a != b]
        assert not wrong, f"{p!r} on {wrong[:5]}"
    return want


def test_syntax(tmp_path):
    compare(tmp_path, SYNTAX, TEXTS)


# ---- drawn patterns: each with a way to draw texts that it matches, or nearly -------------------------------------------------

LETTERS = "aabbcAB1_ -.é中\n"
CLASSES = {".": "abé中 ", r"\d": "10", r"\w": "ab_1A", r"\W": " -é", r"\D": "a中", "[^a]": "b\né", "[a-c1]": "abc1",
r"[\w-]": "a-_", r"[^\d\n]": "aé", "[b-中]": "bé中"}
LOOKS = ["^", r"\b", r"\B", r"\A"]


def draw_atom(rng):
    if rng.random() < 0.1:
        return rng.choice(LOOKS), lambda: ""
    if rng.random() < 0.4:
        text, chars = rng.choice(list(CLASSES.items()))
        return text, lambda: rng.choice(chars)
    c = rng.choice(LETTERS)
    return re.escape(c) if c.isascii() else c, lambda: c


def draw(rng, depth):
    """A pattern that stands as a part of others, and a function that draws a text for it."""
    kind = rng.choice(["atom"] if depth == 0 else ["atom", "cat", "cat", "alt", "repeat", "repeat"])
    if kind == "atom":
        return draw_atom(rng)
    parts = [draw(rng, depth - 1) for _ in range(1 if kind == "repeat" else rng.randint(2, 3))]
    opening = rng.choice(["(", "(?:", "(?s:", "(?m:", "(?i:"][:5 if all(p.isascii() for p, _ in parts) else 4])
    if kind == "repeat":
        kinds = [("*", 0, 3), ("+", 1, 3), ("?", 0, 1), ("{2}", 2, 2), ("{1,}", 1, 3), ("{0,3}", 0, 3), ("{2,3}", 2, 3)]
        text, least, most = rng.choice(kinds)
        return opening + parts[0][0] + ")" + text + rng.choice(["", "", "?"]), lambda: "".join(parts[0][1]() for _ in range(rng.randint(least, most)))
    if kind == "cat":
        return opening + "".join(p for p, _ in parts) + ")", lambda: "".join(f() for _, f in parts)
    return opening + "|".join(p for p, _ in parts) + ")", lambda: rng.choice(parts)[1]()


def spoiled(rng, text):
    """The text, sometimes with a letter more, less or changed."""
    at, c = rng.randint(0, len(text)), rng.choice(LETTERS)
    return rng.choice([text, text, text[:at] + c + text[at:], text[:at] + text[at + 1:], text[:at] + c + text[at + 1:], text.swapcase()])


@pytest.mark.parametrize("seed", range(4))
def test_drawn(seed, tmp_path):
    rng = random.Random(seed)
    drawn = [draw(rng, 3) for _ in range(60)]
    texts = [spoiled(rng, f()) for _, f in drawn for _ in range(6)]
    want = compare(tmp_path, [p for p, _ in drawn], texts)
    matches = 0
    for (p, _), results in zip(drawn, want):
        again = re.compile(p, re.ASCII)   # takes time exponential in the text; \\B does not match the empty one
        wrong = [t for t, w in zip(texts, results) if 0 < len(t) < 9 and (again.fullmatch(t) is not None) != w]
        assert not wrong, (p, wrong)
        matches += sum(results)
    assert matches > 200   # not only by having nothing to say


# ---- what is not text, sizes --------------------------------------------------------------------------------------------------

def test_bytes_that_are_not_utf8_match_nothing(tmp_path):
    m = model(tmp_path, [".*", "(?s).*", r"\W*", "[^a]*"])
    bad = [b"\xff", b"\xc3", b"a\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]
    for got in m.run([np.array(bad, object)]):
        assert not got.any()


def test_shapes(tmp_path):
    m = model(tmp_path, ["a+"], dims=(2, "n"))
    m.compare([np.array([["a", "b"], ["", "aa"]], object)])
    m.compare([np.empty((2, 0), object)])


def test_linear_in_the_text(tmp_path):
    """What takes time exponential in the text where an engine goes back and tries again."""
    m = model(tmp_path, ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)b"])
    assert not any(y.any() for y in m.run([np.array(["a" * 1_000_000], object)]))


# ---- refusals -------------------------------------------------------------------------------------------------------------------

BROKEN = {
    "(": 1, "a)": 2, "[a": 1, "é[": 2, "a**": 3, "*": 1, "a|*": 3, "(+)": 2, "a{2}{3}": 5, "x{1000}{1000}": 8,
    "{2}": 1, "a{2,1}": 2, "a{1001}": 2, "(?:a{100}){100}": 11,
    "(((a{10}){10}){10}){10}": 20, "[b-a]": 2, r"[a-\d]": 4, "[[:foo:]]": 2, r"\q": 1, r"a\1(b)": 2, r"\9": 1, "\\": 1,
    r"\x4": 1, r"\x{110000}": 1, r"\x{}": 1, "(?=a)": 3, "a(?<!b)": 4,
    "(?P<a": 5, "(?z)": 3, "(?i": 4, r"\Z": 1, "[]": 1, "(?-)": 4, "(?P=a)": 3,
}
REFUSED = {
    r"a\pL": (2, "Unicode"), r"[\PN]": (2, "Unicode"), r"\C": (1, "not supported"), r"\Qa.b\E": (1, "not supported"),
    "(?i)aé": (6, "case"), "(?i)[a-ü]": (6, "case"),
    "(" * 251 + ")" * 251: (251, "deep"), "[ab]*a[ab]{20}": (0, "too large"), "(.*){200}(.{100}){10}": (0, "too large"),
    "((((){10}){10}){10})" * 400: (0, "too large"),
    "(" + "|".join(["[é-中]{1,9}"] * 3000) + ")": (0, "too large"), "a" * 65537: (1, "longer"),
}


@pytest.mark.parametrize("pattern", BROKEN)
def test_broken(pattern, tmp_path):
    m = model(tmp_path, [pattern])
    assert f"the pattern, character {BROKEN[pattern]}: " in m.refused()
    with pytest.raises(Exception):
        m.want([np.array(["a"], object)])


@pytest.mark.parametrize("pattern", REFUSED, ids=range(len(REFUSED)))
def test_refused(pattern, tmp_path):
    at, text = REFUSED[pattern]
    message = model(tmp_path, [pattern]).refused()
    assert text in message and (f"the pattern, character {at}: " if at else "the pattern: ") in message


@pytest.mark.parametrize("pattern", ["(" * 250 + "a" + ")" * 250, "(?:" * 200 + "a" + ")*" * 200,
"a?" * 500 + "a" * 500, "|".join(map(str, range(2000))), ".{1000}", "(?:a?){1000}", "x" * 10000])
def test_large(pattern, tmp_path):
    m = model(tmp_path, [pattern])
    x = np.array(["a", "a" * 500, "a" * 1000, "é" * 1000, "b", "1999", "x" * 10000], object)
    want = [simple(pattern, t) if "?" in pattern[1:] else re.fullmatch(pattern, t) is not None for t in x]
    m.compare([x], [np.array(want)], flags=("-O2",))


def simple(pattern, text):
    """re.fullmatch of the patterns above where re would not end."""
    if pattern.startswith("a?a"):
        return set(text) == {"a"} and 500 <= len(text) <= 1000
    return set(text) <= {"a"} and (pattern.startswith("(?:(") or len(text) <= 1000)

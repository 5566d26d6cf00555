"""C sources with mutants in them, all in one program: an environment variable says which one is on (mutant.c).

A site is an operator, a number, a condition, a pair of arguments or a statement; each has one way to be changed, or some.
"""
import dataclasses
import re

from clang.cindex import CursorKind as K
from clang.cindex import Index, StorageClass, TranslationUnit, TypeKind

# Of an operator those that take its place.
OTHERS = {"+": ["-", "*"], "-": ["+"], "*": ["+"], "/": ["*"], "%": ["/"], "<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"],
          "==": ["!="], "!=": ["=="], "&": ["|"], "|": ["&"], "<<": [">>"], ">>": ["<<"]}
POINTERS = {TypeKind.POINTER, TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY}
FLOATS = {TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.LONGDOUBLE}
SIMPLE = {K.DECL_REF_EXPR, K.MEMBER_REF_EXPR, K.INTEGER_LITERAL, K.UNEXPOSED_EXPR, K.PAREN_EXPR, K.ARRAY_SUBSCRIPT_EXPR}
# What is constant, is not evaluated or names no value.
CONSTANT = {K.CXX_UNARY_EXPR, K.STRUCT_DECL, K.UNION_DECL, K.ENUM_DECL, K.STATIC_ASSERT, K.GENERIC_SELECTION_EXPR, K.OFFSETOF_EXPR
            if hasattr(K, "OFFSETOF_EXPR") else K.STATIC_ASSERT}


@dataclasses.dataclass
class Site:
    number: int
    line: int
    last: int  # line
    ways: list  # texts for the report
    edits: list  # (offset, end, text): in the place of what stands there


def children(cursor):
    return list(cursor.get_children())


def span(cursor):
    """Offsets; None: of another file or a macro."""
    a, b = cursor.extent.start, cursor.extent.end
    return (a.offset, b.offset) if a.file and b.file and a.file.name == b.file.name else None


def is_simple(cursor):
    return cursor.kind in SIMPLE and all(is_simple(c) for c in children(cursor) if c.kind.is_expression())


class Source:
    def __init__(self, path, arguments, first):
        """first: the number of its first site."""
        self.path, self.text = str(path), open(path, "rb").read()
        self.sites, self.first = [], first
        unit = Index.create().parse(self.path, arguments, options=TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        errors = [d for d in unit.diagnostics if d.severity >= 3]
        if errors:
            raise ValueError(f"{path}: {errors[0]}")
        self.macros = [span(c) for c in unit.cursor.get_children() if c.kind == K.MACRO_INSTANTIATION and self.here(c) and
                       self.text[c.extent.end.offset - 1:c.extent.end.offset] == b")"]
        for cursor in unit.cursor.get_children():
            if cursor.kind == K.FUNCTION_DECL and cursor.is_definition() and self.here(cursor):
                self.walk(children(cursor)[-1], cursor)

    def here(self, cursor):
        return cursor.location.file is not None and cursor.location.file.name == self.path

    def add(self, cursor, ways, *edits):
        if ways:
            self.sites.append(Site(self.first + len(self.sites), cursor.extent.start.line, cursor.extent.end.line, ways, list(edits)))

    def words(self, a, b):
        return self.text[a:b].decode()

    def walk(self, cursor, parent):
        if cursor.kind in CONSTANT or not span(cursor):
            return
        a, b = span(cursor)
        if any(m[0] <= a and b <= m[1] for m in self.macros):
            return
        below = children(cursor)
        visit = getattr(self, "visit_" + cursor.kind.name.lower(), None)
        if cursor.kind == K.VAR_DECL:
            if cursor.storage_class == StorageClass.STATIC:
                return
            equals = self.text.find(b"=", a, b)
            below = [c for c in below if equals >= 0 and span(c) and span(c)[0] > equals]
        elif cursor.kind == K.CASE_STMT:
            below = below[1:]
        statements = {K.COMPOUND_STMT: 0, K.CASE_STMT: 0, K.DEFAULT_STMT: 0, K.IF_STMT: 1, K.WHILE_STMT: 1, K.FOR_STMT: -1}
        for c in below[statements.get(cursor.kind, len(below)):]:
            self.statement(c)
        if visit:
            visit(cursor, parent, below)
        for c in below:
            self.walk(c, cursor)

    def visit_binary_operator(self, cursor, parent, below):
        if len(below) != 2 or not span(below[0]) or not span(below[1]):
            return
        (a, b), (c, d) = map(span, below)
        found = re.fullmatch(r"\s*([-+*/%<>=!&|]{1,2})\s*", self.words(b, c)) if b < c and (a, d) == span(cursor) else None
        op, line = found and found[1], self.words(a, d)
        n = self.first + len(self.sites)
        if op in ("&&", "||"):
            other, when = ("||", "!=") if op == "&&" else ("&&", "==")
            self.add(cursor, [f"{other} for {op}: {line}"], (a, a, "({ _Bool l_ = ("), (b, c, f"); l_ {when} mutant({n}) ? (_Bool)("), (d, d, ") : l_; })"))
        if op not in OTHERS:
            return
        kinds = [x.type.get_canonical().kind for x in below]
        others = OTHERS[op]
        if any(k in POINTERS for k in kinds):
            others = [o for o in others if o in ("<=", ">=", "<", ">", "==", "!=") or (op == "+" and o == "-" and kinds[0] in POINTERS)]
        if any(k in FLOATS for k in kinds) and op in ("&", "|", "<<", ">>", "%"):
            return
        choice = "".join(f"way_ == {i + 1} ? l_ {o} r_ : " for i, o in enumerate(others))
        self.add(cursor, [f"{o} for {op}: {line}" for o in others], (a, a, "({ __auto_type l_ = 1 ? ("),
                 (b, c, ") : 0; __auto_type r_ = 1 ? ("), (d, d, f") : 0; int way_ = mutant({n}); {choice}l_ {op} r_; }})"))

    def visit_compound_assignment_operator(self, cursor, parent, below):
        (a, b), (c, d) = map(span, below)
        if re.fullmatch(r"\s*[-+]=\s*", self.words(b, c)):
            n = self.first + len(self.sites)
            self.add(cursor, [f"the other sign: {self.words(a, d)}"], (c, c, f"(mutant({n}) ? -1 : 1) * ("), (d, d, ")"))

    def visit_integer_literal(self, cursor, parent, below):
        a, b = span(cursor)
        if parent.type.get_canonical().kind in POINTERS and parent.kind != K.ARRAY_SUBSCRIPT_EXPR and parent.kind != K.BINARY_OPERATOR:
            return
        if parent.kind == K.INIT_LIST_EXPR and self.text[a - 1:a] == b"[":
            return
        n = self.first + len(self.sites)
        number = self.words(a, b)
        if re.fullmatch(r"\w+", number):
            self.add(cursor, [f"{number} + 1", f"{number} - 1"], (a, a, "("), (b, b, f" + ((int[]){{0, 1, -1}})[mutant({n})])"))

    def visit_if_stmt(self, cursor, parent, below):
        self.negate(cursor, below[0])

    def visit_conditional_operator(self, cursor, parent, below):
        self.negate(cursor, below[0])

    def negate(self, cursor, condition):
        if not span(condition):
            return
        a, b = span(condition)
        n = self.first + len(self.sites)
        self.add(condition, [f"not: {self.words(a, b)}"], (a, a, f"(mutant({n}) ? 1 : 0) ^ !!("), (b, b, ")"))

    def visit_call_expr(self, cursor, parent, below):
        arguments = list(cursor.get_arguments())
        for x, y in zip(arguments, arguments[1:]):
            same = x.type.get_canonical().spelling.replace("const ", "") == y.type.get_canonical().spelling.replace("const ", "")
            if not (same and span(x) and span(y) and is_simple(x) and is_simple(y)) or x.type.kind == TypeKind.RECORD:
                continue
            (a, b), (c, d) = span(x), span(y)
            one, other = self.words(a, b), self.words(c, d)
            if b < c and one != other and re.fullmatch(r"[\w.>\-\[\]]+", one) and re.fullmatch(r"[\w.>\-\[\]]+", other):
                n = self.first + len(self.sites)
                self.add(cursor, [f"{one} and {other} swapped: {cursor.spelling}"], (a, a, f"mutant({n}) ? {other} : ("), (b, b, ")"),
                         (c, c, f"mutant({n}) ? {one} : ("), (d, d, ")"))

    def statement(self, cursor):
        if not span(cursor):
            return
        a, b = span(cursor)
        if cursor.kind in (K.CALL_EXPR, K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR, K.UNARY_OPERATOR, K.CONTINUE_STMT):
            end = self.text.find(b";", b)
            if end < 0 or self.text[b:end].strip() or any(m[0] <= a and b <= m[1] for m in self.macros):
                return
            n = self.first + len(self.sites)
            self.add(cursor, [f"without: {self.words(a, b)}"], (a, a, f"{{ if (!mutant({n})) {{ "), (end + 1, end + 1, " } }"))

    def rewritten(self, skipped=()):
        """The text with its mutants, but on these lines. At one place, what ends comes before what begins, and inner ends before outer ones."""
        edits = []
        for i, site in enumerate(self.sites):
            if {site.line, site.last} & set(skipped):
                continue
            first = min(e[0] for e in site.edits)
            for a, b, text in site.edits:
                begins = a == first
                edits.append((a, 1 if begins else 0, i if begins else -i, b, text))
        out, at = [], 0
        for a, _, _, b, text in sorted(edits):
            if a < at:
                raise ValueError(f"{self.path}: sites overlap at {a}")
            out += [self.text[at:a], text.encode(), b"\n" * self.text.count(b"\n", a, b)]  # lines stay
            at = b
        return b"".join(out) + self.text[at:]

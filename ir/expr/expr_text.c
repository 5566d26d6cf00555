/* Text of expressions: "2*n + 1", "floordiv(h + 1, 2)", "select(a < b, c, d)".
 *
 *   expr    = sum [("<" | "<=" | ">" | ">=" | "==" | "!=") sum]
 *   sum     = ["-"] product {("+" | "-") product}
 *   product = factor {"*" factor}
 *   factor  = integer | name | quoted name | function "(" expr {"," expr} ")" | "(" expr ")" | "-" factor
 *
 * The parts of sums and products are printed in alphabetical order (positive terms, negative terms, constant),
 * so the text depends on the expression alone, not on the order in which a context met its parts.
 */

#include "ir/base/scan.h"
#include "ir/expr/internal.h"

enum { PARSE_DEPTH_MAX = 1000, PARSE_ARGS_MAX = 64 };

/* ---- printing ---------------------------------------------------------------------------------------- */

struct part {
    int64_t coef;
    const char *text;
};

static int part_order(const void *a, const void *b)
{
    const struct part *p = a, *q = b;
    if ((p->coef < 0) != (q->coef < 0))
        return p->coef < 0 ? 1 : -1;
    return strcmp(p->text, q->text);
}

static bool is_name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && ((c >= '0' && c <= '9') || c == '.'));
}

static void print_name(const char *name, struct strbuf *out)
{
    bool plain = is_name_char(*name, true);
    for (const char *p = name; *p && plain; p++)
        plain = is_name_char(*p, p == name);
    if (plain)
        strbuf_printf(out, "%s", name);
    else
        strbuf_quoted(out, name);
}

static const char *text_of(const struct exprs *x, expr_id e, struct arena *arena)
{
    struct strbuf b = strbuf_of(arena);
    ex_print(x, e, &b);
    return b.data;
}

static uint64_t magnitude(int64_t v)
{
    return v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
}

static void print_sum(const struct exprs *x, const struct enode *node, struct strbuf *out)
{
    struct part *parts = NEW_ARRAY(out->arena, struct part, node->n);
    bool any_plus = false;
    for (uint32_t i = 0; i < node->n; i++) {
        const char *text = text_of(x, node->arg[i], out->arena);
        enum expr_kind kind = ex_kind(x, node->arg[i]);
        if (kind == EX_LT || kind == EX_EQ || kind == EX_SUM)
            text = arena_printf(out->arena, "(%s)", text);
        parts[i] = (struct part){node->coef[i], text};
        any_plus |= node->coef[i] > 0;
    }
    qsort(parts, node->n, sizeof *parts, part_order);
    bool const_first = !any_plus && node->c > 0;
    if (const_first)
        strbuf_printf(out, "%lld", (long long)node->c);
    for (uint32_t i = 0; i < node->n; i++) {
        bool first = i == 0 && !const_first;
        bool minus = parts[i].coef < 0;
        strbuf_printf(out, "%s", first ? (minus ? "-" : "") : minus ? " - " : " + ");
        if (magnitude(parts[i].coef) != 1)
            strbuf_printf(out, "%llu*", (unsigned long long)magnitude(parts[i].coef));
        strbuf_printf(out, "%s", parts[i].text);
    }
    if (node->c == INT64_MIN)   /* has no positive counterpart to subtract */
        strbuf_printf(out, " + %lld", (long long)node->c);
    else if (node->c && !const_first)
        strbuf_printf(out, " %c %llu", node->c < 0 ? '-' : '+', (unsigned long long)magnitude(node->c));
}

/* Sorted operands joined by sep; those that bind less tightly than the operator stand in parentheses. */
static void print_sorted(const struct exprs *x, const expr_id *args, uint32_t n, const char *sep, struct strbuf *out)
{
    struct part *parts = NEW_ARRAY(out->arena, struct part, n);
    for (uint32_t i = 0; i < n; i++) {
        const char *text = text_of(x, args[i], out->arena);
        enum expr_kind kind = ex_kind(x, args[i]);
        bool compares = kind == EX_LT || kind == EX_EQ;
        if ((*sep == '*' && (compares || kind == EX_SUM)) || (*sep == ' ' && compares))
            text = arena_printf(out->arena, "(%s)", text);
        parts[i] = (struct part){1, text};
    }
    qsort(parts, n, sizeof *parts, part_order);
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(out, "%s%s", i ? sep : "", parts[i].text);
}

/* min(min(a, b), c) as min(a, b, c). */
static void print_chain(const struct exprs *x, expr_id e, struct strbuf *out)
{
    enum expr_kind kind = ex_kind(x, e);
    VEC(expr_id) args = {0};
    for (; ex_kind(x, e) == kind; e = ex_arg(x, e, 0))
        VEC_PUSH(out->arena, &args, ex_arg(x, e, 1));
    VEC_PUSH(out->arena, &args, e);
    print_sorted(x, args.data, args.n, ", ", out);
}

static void print_operand(const struct exprs *x, expr_id e, struct strbuf *out)
{
    bool wrap = ex_kind(x, e) == EX_LT || ex_kind(x, e) == EX_EQ;
    strbuf_printf(out, "%s", wrap ? "(" : "");
    ex_print(x, e, out);
    strbuf_printf(out, "%s", wrap ? ")" : "");
}

static const char *function_name(enum expr_kind kind)
{
    switch (kind) {
    case EX_DIV: return "floordiv";
    case EX_MOD: return "mod";
    case EX_MIN: return "min";
    case EX_MAX: return "max";
    case EX_AND: return "and";
    case EX_NOT: return "not";
    case EX_SELECT: return "select";
    default: return NULL;
    }
}

void ex_print(const struct exprs *x, expr_id e, struct strbuf *out)
{
    enum expr_kind kind = ex_kind(x, e);
    if (kind == EX_NONE) {
        strbuf_printf(out, "?");
        return;
    }
    const struct enode *node = enode(x, e);
    switch (kind) {
    case EX_CONST: strbuf_printf(out, "%lld", (long long)node->c); return;
    case EX_SYM: print_name(x->syms.data[node->sym.i]->name, out); return;
    case EX_SUM: print_sum(x, node, out); return;
    case EX_PROD: print_sorted(x, node->arg, node->n, "*", out); return;
    case EX_EQ: print_sorted(x, node->arg, 2, " == ", out); return;
    case EX_LT:
        print_operand(x, node->arg[0], out);
        strbuf_printf(out, " < ");
        print_operand(x, node->arg[1], out);
        return;
    default: break;
    }
    strbuf_printf(out, "%s(", function_name(kind));
    if (kind == EX_MIN || kind == EX_MAX || kind == EX_AND) {
        print_chain(x, e, out);
    } else {
        for (uint32_t i = 0; i < node->n; i++) {
            strbuf_printf(out, "%s", i ? ", " : "");
            ex_print(x, node->arg[i], out);
        }
    }
    strbuf_printf(out, ")");
}

/* ---- parsing ------------------------------------------------------------------------------------------- */

struct parser {
    struct exprs *x;
    struct scan s;
    bool create;
    int depth;
};

static expr_id parse_expr(struct parser *);

static bool accept(struct parser *s, const char *token)
{
    return scan_take(&s->s, token);
}

static expr_id parse_integer(struct parser *s, bool negative)
{
    uint64_t v;
    if (scan_digits(&s->s, (uint64_t)INT64_MAX + negative, &v))
        return (expr_id){0};
    return ex_const(s->x, negative ? (int64_t)(0 - v) : (int64_t)v);
}

static expr_id parse_symbol(struct parser *s, const char *name)
{
    sym_id sym = expr_find_sym(s->x, name);
    if (!sym.i && s->create && *name)
        sym = sym_new(s->x, SYM_SHAPE, name, 0, INT64_MAX);
    return sym.i ? ex_sym(s->x, sym) : (expr_id){0};
}

static expr_id apply(struct exprs *x, const char *name, size_t len, const expr_id *a, uint32_t n)
{
    static const struct {
        const char *name;
        expr_id (*fn)(struct exprs *, expr_id, expr_id);
        bool chain;
    } binary[] = {
        {"floordiv", ex_div, false}, {"ceildiv", ex_ceildiv, false}, {"mod", ex_mod, false}, {"min", ex_min, true},
        {"max", ex_max, true},       {"and", ex_and, true},          {"or", ex_or, true},
    };
    for (size_t i = 0; i < COUNT_OF(binary); i++) {
        if (strlen(binary[i].name) != len || strncmp(binary[i].name, name, len) != 0)
            continue;
        if (n < 2 || (n > 2 && !binary[i].chain))
            return (expr_id){0};
        if (!binary[i].chain && ex_is(x, a[1], 0))
            return (expr_id){0};   /* a division by zero */
        expr_id e = a[0];
        for (uint32_t k = 1; k < n; k++)
            e = binary[i].fn(x, e, a[k]);
        return e;
    }
    if (n == 1 && len == 3 && strncmp(name, "not", 3) == 0)
        return ex_not(x, a[0]);
    return n == 3 && len == 6 && strncmp(name, "select", 6) == 0 ? ex_select(x, a[0], a[1], a[2]) : (expr_id){0};
}

static expr_id parse_call(struct parser *s, const char *name, size_t len)
{
    expr_id args[PARSE_ARGS_MAX];
    uint32_t n = 0;
    do {
        if (n == PARSE_ARGS_MAX)
            return (expr_id){0};
        args[n] = parse_expr(s);
        if (!args[n++].i)
            return (expr_id){0};
    } while (accept(s, ","));
    return accept(s, ")") ? apply(s->x, name, len, args, n) : (expr_id){0};
}

static expr_id parse_factor(struct parser *s)
{
    scan_blanks(&s->s);
    const char *start = s->s.p;
    if (*start >= '0' && *start <= '9')
        return parse_integer(s, false);
    if (*start == '"') {
        const char *name;
        return scan_quoted(&s->s, s->x->arena, &name, NULL) ? (expr_id){0} : parse_symbol(s, name);
    }
    if (accept(s, "(")) {
        expr_id e = parse_expr(s);
        return e.i && accept(s, ")") ? e : (expr_id){0};
    }
    while (is_name_char(*s->s.p, s->s.p == start))
        s->s.p++;
    size_t len = (size_t)(s->s.p - start);
    if (len == 0)
        return (expr_id){0};
    if (*s->s.p == '(') {
        s->s.p++;
        return parse_call(s, start, len);
    }
    return parse_symbol(s, arena_strndup(s->x->arena, start, len));
}

/* A factor with its signs. */
static expr_id parse_signed(struct parser *s)
{
    bool negative = false;
    while (accept(s, "-"))
        negative = !negative;
    scan_blanks(&s->s);
    if (negative && *s->s.p >= '0' && *s->s.p <= '9')
        return parse_integer(s, true);
    expr_id e = parse_factor(s);
    return e.i && negative ? ex_mulc(s->x, e, -1) : e;
}

typedef VEC(expr_id) factors;

/* Products whose sums were not multiplied out, because there were too many terms, stay as they were printed. */
static expr_id multiply(struct exprs *x, const factors *f)
{
    uint64_t terms = 1;
    bool numbers = false;
    for (uint32_t i = 0; i < f->n; i++) {
        VIEW_OF(v, x, f->data[i]);
        numbers |= v.n == 0;
        if (terms <= DISTRIBUTE_MAX)
            terms *= v.n + (v.c != 0);
    }
    bool whole = terms > DISTRIBUTE_MAX && !numbers;
    expr_id e = f->data[0];
    for (uint32_t i = 1; i < f->n && e.i; i++)
        e = whole ? term_multiply(x, e, f->data[i]) : ex_mul(x, e, f->data[i]);
    return e;
}

/* The constant of a product multiplies last, as in the product's form: before the other factors it can
 * overflow where the whole does not. */
static expr_id parse_product(struct parser *s)
{
    factors f = {0};
    int64_t coef = 1, c;
    do {
        expr_id e = parse_signed(s);
        if (!e.i)
            return e;
        if (f.n == 1 && coef == 1 && ex_is_const(s->x, f.data[0], &c)) {
            coef = c;
            f.data[0] = e;
        } else {
            VEC_PUSH(s->x->arena, &f, e);
        }
    } while (accept(s, "*"));
    expr_id e = multiply(s->x, &f);
    return coef == 1 || !e.i ? e : ex_mulc(s->x, e, coef);
}

static expr_id parse_sum(struct parser *s)
{
    expr_id e = parse_product(s);
    while (e.i) {
        bool minus = accept(s, "-");
        if (!minus && !accept(s, "+"))
            break;
        expr_id f = parse_product(s);
        e = !f.i ? f : minus ? ex_sub(s->x, e, f) : ex_add(s->x, e, f);
    }
    return e;
}

static expr_id compare(struct parser *s, expr_id a)
{
    enum { LE, GE, EQ, NE, LT, GT };
    static const char *const tokens[] = {[LE] = "<=", [GE] = ">=", [EQ] = "==", [NE] = "!=", [LT] = "<", [GT] = ">"};
    for (uint32_t i = 0; i < COUNT_OF(tokens); i++) {
        if (!accept(s, tokens[i]))
            continue;
        expr_id b = parse_sum(s);
        if (!b.i)
            return b;
        switch (i) {
        case LE: return ex_le(s->x, a, b);
        case GE: return ex_le(s->x, b, a);
        case EQ: return ex_eq(s->x, a, b);
        case NE: return ex_not(s->x, ex_eq(s->x, a, b));
        case LT: return ex_lt(s->x, a, b);
        default: return ex_lt(s->x, b, a);
        }
    }
    return a;
}

/* Depth is counted here: every nesting passes through. */
static expr_id parse_expr(struct parser *s)
{
    if (s->depth == PARSE_DEPTH_MAX)
        return (expr_id){0};
    s->depth++;
    expr_id e = parse_sum(s);
    if (e.i)
        e = compare(s, e);
    s->depth--;
    return e;
}

expr_id ex_parse(struct exprs *x, const char **p, bool create)
{
    struct parser s = {.x = x, .s = {*p, *p, " \t", 0}, .create = create};
    attempt_begin(x);
    expr_id e = attempt_end(x, parse_expr(&s));
    if (e.i)
        *p = s.s.p;
    return e;
}

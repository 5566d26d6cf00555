/* Expressions of dims and indices: canonical text of known cases, and random ones by evaluation.
 *
 * A random expression is built twice, as a plain tree and through the simplifying constructors; both must agree
 * on random valuations of the symbols, intervals and divisors must hold there, and the text must parse back: to
 * the same id here, to the same text in a fresh context. MCC_TEST_SEED and MCC_TEST_COUNT override what is tried.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/expr/expr.h"

/* ---- symbols of the tests -------------------------------------------------------------------------------- */

/* Declared range, range of the values tried, divisor. r has the bound n - 1. */
static const struct sym_row {
    const char *name;
    int64_t lo, hi, try_lo, try_hi, divisor;
} sym_rows[] = {
    {"n", 1, INT64_MAX, 1, 40, 1},
    {"m", 1, INT64_MAX, 1, 9, 1},
    {"h", 1, 100, 1, 100, 1},
    {"w", 0, INT64_MAX, 0, 30, 1},
    {"i", 0, INT64_MAX, 0, 3000, 1},
    {"b", 0, 15, 0, 15, 1},
    {"q", 0, INT64_MAX, 0, 800, 8},
    {"r", 0, INT64_MAX, 0, 40, 1},
    {"k", -20, 20, -20, 20, 1},
    {"u", INT64_MIN, INT64_MAX, -500, 500, 1},
    {"t", 0, 1, 0, 1, 1},
};
enum { N_SYMS = COUNT_OF(sym_rows), SYM_N = 0, SYM_M = 1, SYM_R = 7 };

static struct context *fresh(sym_id syms[N_SYMS])
{
    struct context *ctx = context_new();
    assert_non_null(ctx);
    for (int i = 0; i < N_SYMS; i++) {
        syms[i] = sym_new(ctx->exprs, SYM_SHAPE, sym_rows[i].name, sym_rows[i].lo, sym_rows[i].hi);
        sym_get(ctx->exprs, syms[i])->divisor = sym_rows[i].divisor;
    }
    sym_get(ctx->exprs, syms[SYM_R])->bound = ex_addc(ctx->exprs, ex_sym(ctx->exprs, syms[SYM_N]), -1);
    return ctx;
}

static const char *text(struct context *ctx, expr_id e)
{
    struct strbuf b;
    strbuf_init(&b, &ctx->session);
    ex_print(ctx->exprs, e, &b);
    return b.data;
}

static expr_id parse(struct context *ctx, const char *s)
{
    const char *p = s;
    expr_id e = ex_parse(ctx->exprs, &p, false);
    if (!e.i || *p)
        fail_msg("does not parse: %s (at \"%s\")", s, p);
    return e;
}

/* ---- random trees ------------------------------------------------------------------------------------------ */

static uint64_t rng_state;
static uint64_t rng(void)
{
    rng_state += 0x9E3779B97F4A7C15u;   /* splitmix64 */
    uint64_t z = rng_state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static int64_t rng_in(int64_t lo, int64_t hi)
{
    return lo + (int64_t)(rng() % (uint64_t)(hi - lo + 1));
}

enum tree_op {
    T_CONST,
    T_SYM,
    T_ADD,
    T_SUB,
    T_MUL,
    T_DIV,
    T_MOD,
    T_CEILDIV,
    T_MIN,
    T_MAX,
    T_LT,
    T_LE,
    T_EQ,
    T_AND,
    T_OR,
    T_NOT,
    T_SELECT
};
struct tree {
    enum tree_op op;
    int64_t c;
    struct tree *arg[3];
    expr_id e;
};
enum { TREES = 4096 };
static struct tree trees[TREES];
static int n_trees;

static struct tree *tree_new(enum tree_op op)
{
    assert_true(n_trees < TREES);
    struct tree *t = &trees[n_trees++];
    *t = (struct tree){.op = op};
    return t;
}

static struct tree *tree_random(int depth);

/* What divisions divide by: at least 1 always. */
static struct tree *tree_divisor(void)
{
    static const int64_t common[] = {2, 3, 4, 8, 16, 6, 12, 7, 64, -4, -3};
    struct tree *t;
    switch (rng_in(0, 5)) {
    case 0:
    case 1:
    case 2:
        t = tree_new(T_CONST);
        t->c = common[rng_in(0, COUNT_OF(common) - 1)];
        return t;
    case 3:
        t = tree_new(T_MUL);
        t->arg[0] = tree_new(T_SYM);
        t->arg[0]->c = SYM_N;
        t->arg[1] = tree_new(rng_in(0, 1) ? T_SYM : T_CONST);
        t->arg[1]->c = t->arg[1]->op == T_SYM ? SYM_M : 4;
        return t;
    case 4:
        t = tree_new(T_ADD);
        t->arg[0] = tree_new(T_SYM);
        t->arg[0]->c = SYM_N;
        t->arg[1] = tree_new(T_CONST);
        t->arg[1]->c = rng_in(1, 3);
        return t;
    default:
        t = tree_new(T_SYM);
        t->c = rng_in(0, 2);
        return t;
    }
}

static struct tree *tree_bool(int depth)
{
    struct tree *t = tree_new((enum tree_op)rng_in(T_LT, T_NOT));
    bool logic = t->op >= T_AND;
    if (logic && depth <= 0)
        t->op = T_LT, logic = false;
    t->arg[0] = logic ? tree_bool(depth - 1) : tree_random(depth - 1);
    if (t->op != T_NOT)
        t->arg[1] = logic ? tree_bool(depth - 1) : tree_random(depth - 1);
    return t;
}

static struct tree *tree_random(int depth)
{
    struct tree *t;
    if (depth <= 0 || rng_in(0, 9) == 0) {
        t = tree_new(rng_in(0, 3) ? T_SYM : T_CONST);
        t->c = t->op == T_SYM ? rng_in(0, N_SYMS - 1) : rng_in(-20, 20);
        return t;
    }
    int64_t pick = rng_in(0, 19);
    static const enum tree_op ops[] = {T_ADD, T_ADD, T_ADD, T_ADD, T_SUB, T_SUB,     T_MUL, T_MUL, T_MUL,    T_DIV,
                                       T_DIV, T_DIV, T_MOD, T_MOD, T_MOD, T_CEILDIV, T_MIN, T_MAX, T_SELECT, T_LT};
    t = tree_new(ops[pick]);
    if (t->op == T_LT)
        return tree_bool(depth - 1);
    if (t->op == T_SELECT) {
        t->arg[0] = tree_bool(depth - 2);
        t->arg[1] = tree_random(depth - 1);
        t->arg[2] = tree_random(depth - 1);
        return t;
    }
    t->arg[0] = tree_random(depth - 1);
    bool divides = t->op == T_DIV || t->op == T_MOD || t->op == T_CEILDIV;
    t->arg[1] = divides ? tree_divisor() : tree_random(depth - 1 - (t->op == T_MUL));
    if (t->op == T_CEILDIV && t->arg[1]->op == T_CONST && t->arg[1]->c < 0)
        t->arg[1]->c = -t->arg[1]->c;
    return t;
}

static expr_id tree_build(struct exprs *x, const sym_id *syms, struct tree *t)
{
    static expr_id (*const binary[])(struct exprs *, expr_id, expr_id) = {
        [T_ADD] = ex_add,         [T_SUB] = ex_sub, [T_MUL] = ex_mul, [T_DIV] = ex_div, [T_MOD] = ex_mod,
        [T_CEILDIV] = ex_ceildiv, [T_MIN] = ex_min, [T_MAX] = ex_max, [T_LT] = ex_lt,   [T_LE] = ex_le,
        [T_EQ] = ex_eq,           [T_AND] = ex_and, [T_OR] = ex_or,
    };
    expr_id a[3] = {{0}, {0}, {0}};
    for (int i = 0; i < 3 && t->arg[i]; i++)
        a[i] = tree_build(x, syms, t->arg[i]);
    if (t->op == T_CONST)
        t->e = ex_const(x, t->c);
    else if (t->op == T_SYM)
        t->e = ex_sym(x, syms[t->c]);
    else if (t->op == T_NOT)
        t->e = ex_not(x, a[0]);
    else if (t->op == T_SELECT)
        t->e = ex_select(x, a[0], a[1], a[2]);
    else
        t->e = binary[t->op](x, a[0], a[1]);
    return t->e;
}

static int64_t floordiv(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static int64_t tree_eval(const struct tree *t, const int64_t *value)
{
    int64_t a = t->arg[0] ? tree_eval(t->arg[0], value) : 0, b = t->arg[1] ? tree_eval(t->arg[1], value) : 0;
    switch (t->op) {
    case T_CONST: return t->c;
    case T_SYM: return value[t->c];
    case T_ADD: return a + b;
    case T_SUB: return a - b;
    case T_MUL: return a * b;
    case T_DIV: return floordiv(a, b);
    case T_MOD: return a - floordiv(a, b) * b;
    case T_CEILDIV: return floordiv(a + b - 1, b);
    case T_MIN: return a < b ? a : b;
    case T_MAX: return a > b ? a : b;
    case T_LT: return a < b;
    case T_LE: return a <= b;
    case T_EQ: return a == b;
    case T_AND: return a && b;
    case T_OR: return a || b;
    case T_NOT: return !a;
    default: return a ? b : tree_eval(t->arg[2], value);
    }
}

static void tree_print(const struct tree *t, struct strbuf *out)
{
    static const char *const names[] = {"",    "",   "add", "sub", "mul", "floordiv", "mod", "ceildiv", "min",
                                        "max", "lt", "le",  "eq",  "and", "or",       "not", "select"};
    if (t->op == T_CONST) {
        strbuf_printf(out, "%lld", (long long)t->c);
    } else if (t->op == T_SYM) {
        strbuf_printf(out, "%s", sym_rows[t->c].name);
    } else {
        strbuf_printf(out, "%s(", names[t->op]);
        for (int i = 0; i < 3 && t->arg[i]; i++) {
            strbuf_printf(out, "%s", i ? ", " : "");
            tree_print(t->arg[i], out);
        }
        strbuf_printf(out, ")");
    }
}

/* ---- what must hold ---------------------------------------------------------------------------------------- */

static void random_values(int64_t *value)
{
    for (int i = 0; i < N_SYMS; i++) {
        const struct sym_row *s = &sym_rows[i];
        value[i] = rng_in(s->try_lo, s->try_hi) / s->divisor * s->divisor;
    }
    if (value[SYM_R] > value[SYM_N] - 1)
        value[SYM_R] = rng_in(0, value[SYM_N] - 1);
}

static void check_at(struct context *ctx, const sym_id *syms, const struct tree *t, const char *what)
{
    struct exprs *x = ctx->exprs;
    int64_t value[N_SYMS], by_id[N_SYMS + 2] = {0}, got, want;
    expr_id consts[N_SYMS];
    random_values(value);
    for (int i = 0; i < N_SYMS; i++) {
        by_id[syms[i].i] = value[i];
        consts[i] = ex_const(x, value[i]);
    }
    want = tree_eval(t, value);
    if (!ex_eval(x, t->e, by_id, &got) || got != want)
        fail_msg("%s: %s is %lld, not %lld", what, text(ctx, t->e), (long long)got, (long long)want);
    if (want < ex_lo(x, t->e) || want > ex_hi(x, t->e) || want % ex_divisor(x, t->e) != 0)
        fail_msg("%s: %s: %lld is not in [%lld, %lld] / %lld", what, text(ctx, t->e), (long long)want,
                 (long long)ex_lo(x, t->e), (long long)ex_hi(x, t->e), (long long)ex_divisor(x, t->e));
    if (!ex_is(x, ex_subst(x, t->e, syms, consts, N_SYMS), want))
        fail_msg("%s: %s substituted is not %lld", what, text(ctx, t->e), (long long)want);
}

static void check_linear(struct context *ctx, const sym_id *syms, const struct tree *t, const char *what)
{
    struct exprs *x = ctx->exprs;
    expr_id coef, rest;
    for (int i = 0; i < N_SYMS; i++) {
        if (!ex_linear(x, t->e, syms[i], &coef, &rest))
            continue;
        if (ex_uses(x, coef, syms[i]) || ex_uses(x, rest, syms[i]) ||
            ex_add(x, ex_mul(x, coef, ex_sym(x, syms[i])), rest).i != t->e.i)
            fail_msg("%s: %s is not linear in %s", what, text(ctx, t->e), sym_rows[i].name);
    }
}

/* Parses back to the same id. In a fresh context proofs are searched in another order and may end otherwise:
 * false when the text differs there, which may happen now and then. */
static bool check_text(struct context *ctx, const struct tree *t, const char *what)
{
    const char *printed = text(ctx, t->e);
    expr_id again = parse(ctx, printed);
    if (again.i != t->e.i)
        fail_msg("%s: %s parses back as %s", what, printed, text(ctx, again));
    sym_id syms[N_SYMS];
    struct context *other = fresh(syms);
    bool same = strcmp(text(other, parse(other, printed)), printed) == 0;
    context_free(other);
    return same;
}

static uint64_t from_env(const char *name, uint64_t absent)
{
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 0) : absent;
}

static void random_expressions(void **state)
{
    (void)state;
    uint64_t seed = from_env("MCC_TEST_SEED", 1), count = from_env("MCC_TEST_COUNT", 20000);
    fprintf(stderr, "# MCC_TEST_SEED=%llu\n", (unsigned long long)seed);
    sym_id syms[N_SYMS];
    struct context *ctx = fresh(syms);
    uint64_t strays = 0;
    for (uint64_t k = 0; k < count; k++) {
        rng_state = seed * 1000003 + k;
        n_trees = 0;
        struct tree *t = tree_random((int)rng_in(1, 5));
        tree_build(ctx->exprs, syms, t);
        struct strbuf what;
        strbuf_init(&what, &ctx->session);
        strbuf_printf(&what, "#%llu ", (unsigned long long)k);
        tree_print(t, &what);
        for (int i = 0; i < 8; i++)
            check_at(ctx, syms, t, what.data);
        check_linear(ctx, syms, t, what.data);
        if (k % 4 == 0)
            strays += !check_text(ctx, t, what.data);
    }
    assert_true(strays <= count / 4000);
    context_free(ctx);
}

/* ---- known cases ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *in, *out;
} cases[] = {
    {"n + n", "2*n"},
    {"(n + 1)*(m + 2)", "m + m*n + 2*n + 2"},
    {"n*m - m*n", "0"},
    {"5 - n", "5 - n"},
    {"floordiv(16*i + b, 16)", "i"},
    {"mod(16*i + b, 16)", "b"},
    {"floordiv(16*i + b, 32)", "floordiv(i, 2)"},
    {"mod(16*i + b, 32)", "b + 16*mod(i, 2)"},
    {"32*floordiv(16*i + b, 32) + mod(16*i + b, 32)", "b + 16*i"},
    {"floordiv(i*n + r, n)", "i"},
    {"mod(i*n + r, n)", "r"},
    {"n*floordiv(i, n) + mod(i, n)", "i"},
    {"m*n*floordiv(i, n) + m*mod(i, n)", "i*m"},
    {"floordiv(floordiv(i, 3), 5)", "floordiv(i, 15)"},
    {"mod(floordiv(i, 5), 7)*5 + mod(i, 5)", "mod(i, 35)"},
    {"mod(floordiv(i, m), n)*m + mod(i, m)", "mod(i, m*n)"},
    {"m*n*floordiv(i, m*n) + mod(floordiv(i, m), n)*m + mod(i, m)", "i"},
    {"floordiv(mod(i, 35), 7)", "mod(floordiv(i, 7), 5)"},
    {"floordiv(mod(i, m*n), n)", "mod(floordiv(i, n), m)"},
    {"mod(mod(i, 35), 7)", "mod(i, 7)"},
    {"i - 16*floordiv(i, 16)", "mod(i, 16)"},
    {"8*floordiv(q, 8)", "q"},
    {"floordiv(q + 3, 8)", "floordiv(q, 8)"},
    {"floordiv(floordiv(h + 1, 2) + 1, 2)", "floordiv(h + 3, 4)"},
    {"floordiv((h + 1)*i + mod(i, h + 1), h + 1)", "i"},
    {"(h + 1)*floordiv(i, h + 1) + mod(i, h + 1)", "i"},
    {"floordiv(m*i + mod(w, m), m*n)", "floordiv(i, n)"},
    {"ceildiv(n*m, n)", "m"},
    {"min(n + 4, 8)", "min(4, n) + 4"},
    {"min(16*n, 64)", "16*min(4, n)"},
    {"min(n, n + 1, m)", "min(m, n)"},
    {"max(i, 0)", "i"},
    {"max(m, min(n, m))", "m"},
    {"select(i < m, i, m)", "min(i, m)"},
    {"select(m <= i, i, m)", "max(i, m)"},
    {"n*h - h < 0", "0"},
    {"r < n", "1"},
    {"r*m + mod(i, m) < n*m", "1"},
    {"not(i < n)", "n < i + 1"},
    {"or(i < n, n <= i)", "1"},
    {"and(i < n, n <= i)", "0"},
    {"2*n < 4*m + 3", "n < 2*m + 2"},
    {"2*n == 4*m + 3", "0"},
    {"2*n == 4*m + 6", "2*m + 3 == n"},
    {"q == 12", "0"},
    {"min(9223372036854775807, n)", "n"},
    {"max(-9223372036854775808, n - 5)", "n - 5"},
    {"u <= 9223372036854775807", "1"},
    {"-9223372036854775808 + n", "n + -9223372036854775808"},
    {"t == 1", "t"},
    {"t*t", "t"},
    {"select(n == 1, n, 1)", "1"},
    {"select(n == 1, m, n) == 1", "and(1 == m, 1 == n)"},
    {"select(select(n == 1, m, n) == 1, n, select(n == 1, m, n))", "select(1 == n, m, n)"},
    {"select(n == 1, select(n == 1, m, h), w)", "select(1 == n, m, w)"},
};

static void canonical_text(void **state)
{
    (void)state;
    sym_id syms[N_SYMS];
    struct context *ctx = fresh(syms);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_string_equal(text(ctx, parse(ctx, cases[i].in)), cases[i].out);
    context_free(ctx);
}

/* The text of what was made before a symbol was narrowed gives what is made after it. */
static void narrowed_text(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    struct exprs *x = ctx->exprs;
    sym_id n = sym_new(x, SYM_SHAPE, "n", 0, 100), m = sym_new(x, SYM_SHAPE, "m", 0, 100);
    expr_id sum = ex_add(x, ex_mulc(x, ex_sym(x, n), 2), ex_sym(x, m)),
            rest = ex_mod(x, ex_addc(x, ex_sym(x, m), 3), ex_const(x, 16));
    assert_int_equal(parse(ctx, text(ctx, sum)).i, sum.i);
    assert_int_equal(parse(ctx, text(ctx, rest)).i, rest.i);
    sym_narrow(x, n, 5, 5, 1);
    sym_narrow(x, m, 0, 7, 1);
    assert_string_equal(text(ctx, parse(ctx, text(ctx, sum))), "m + 10");
    for (int64_t k = 0; k < 8; k++) {
        int64_t values[8] = {0}, was, is;
        values[n.i] = 5;
        values[m.i] = k;
        const expr_id made[] = {sum, rest};
        for (size_t i = 0; i < COUNT_OF(made); i++) {
            assert_true(ex_eval(x, made[i], values, &was) && ex_eval(x, parse(ctx, text(ctx, made[i])), values, &is));
            assert_int_equal(was, is);
        }
    }
    context_free(ctx);
}

static void names_are_quoted(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    const char *names[] = {"batch size/2", "a\"b\\c", "x\n\x01", "min", "7up", "\xe2\x80\xaegnp", "past.1"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        expr_id e = ex_addc(ctx->exprs, ex_sym(ctx->exprs, sym_new(ctx->exprs, SYM_SHAPE, names[i], 0, 9)), 1);
        assert_int_equal(parse(ctx, text(ctx, e)).i, e.i);
    }
    sym_id twin = sym_new(ctx->exprs, SYM_SHAPE, "min", 0, 9);
    assert_string_not_equal(sym_get(ctx->exprs, twin)->name, "min");
    context_free(ctx);
}

static void bad_text(void **state)
{
    (void)state;
    sym_id syms[N_SYMS];
    struct context *ctx = fresh(syms);
    static const char *const bad[] = {
        "",
        "(",
        "n +",
        "floordiv(n, 0)",
        "mod(n, 0)",
        "floordiv(n)",
        "sin(n)",
        "unknown",
        "99999999999999999999",
        "9223372036854775807 + 1",
        "\"n",
        "\"\\x4\"",
        "select(n, m)",
        "-",
        "n < ",
        "9223372036854775807*n*2",
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        const char *p = bad[i];
        if (ex_parse(ctx->exprs, &p, false).i)
            fail_msg("parses: %s", bad[i]);
        assert_ptr_equal(p, bad[i]);
    }
    char *deep = malloc(200001);
    memset(deep, '(', 200000);
    deep[200000] = 0;
    const char *p = deep;
    assert_int_equal(ex_parse(ctx->exprs, &p, false).i, 0);
    memset(deep, '-', 200000);
    p = deep;
    assert_int_equal(ex_parse(ctx->exprs, &p, false).i, 0);
    free(deep);
    context_free(ctx);
}

static void build_forever(struct context *ctx, expr_id n, expr_id m, bool deep)
{
    struct exprs *x = ctx->exprs;
    for (int i = 1;; i++)
        n = deep ? ex_max(x, ex_addc(x, ex_mulc(x, ex_mod(x, n, ex_const(x, 1000 + i)), 3), i), m)
                 : ex_mul(x, n, ex_addc(x, n, i));
}

/* Growth without end is refused before it takes the stack or the memory. */
static void growth_ends(bool deep)
{
    sym_id syms[N_SYMS];
    struct context *ctx = fresh(syms);
    jmp_buf point;
    if (!setjmp(point)) {
        ctx->unwind = &point;
        build_forever(ctx, ex_sym(ctx->exprs, syms[9]), ex_sym(ctx->exprs, syms[SYM_M]), deep);
    }
    assert_int_equal(ctx->fail, FAIL_LIMIT);
    context_free(ctx);
}

static void endless_growth(void **state)
{
    (void)state;
    growth_ends(false);
    growth_ends(true);
}

/* Whether two are apart by a constant is a question: a difference beyond the limits is a no, and ends nothing. */
static void apart_only_asks(void **state)
{
    (void)state;
    sym_id syms[N_SYMS];
    struct context *ctx = fresh(syms);
    struct exprs *x = ctx->exprs;
    expr_id n = ex_sym(x, syms[9]), m = ex_sym(x, syms[SYM_M]), a = n, b = m;
    int64_t by = 0;
    assert_true(ex_apart(x, ex_addc(x, ex_mul(x, n, m), 7), ex_mul(x, n, m), &by));
    assert_int_equal(by, 7);
    assert_false(ex_apart(x, n, m, &by));
    for (int i = 1; ex_size(x, a) < 10000; i++) {
        a = ex_max(x, ex_addc(x, ex_mulc(x, ex_mod(x, a, ex_const(x, 1000 + i)), 3), i), a);
        b = ex_max(x, ex_addc(x, ex_mulc(x, ex_mod(x, b, ex_const(x, 2000 + i)), 3), i), b);
    }
    assert_true(ex_size(x, a) + ex_size(x, b) > 20000);
    assert_false(ex_apart(x, a, b, &by));
    assert_true(ex_apart(x, ex_addc(x, n, 3), n, &by));
    assert_int_equal(by, 3);
    assert_int_equal(ctx->fail, FAIL_NONE);
    context_free(ctx);
}

static void overflow_is_an_error(void **state)
{
    (void)state;
    sym_id syms[N_SYMS];
    struct context *ctx = fresh(syms);
    jmp_buf point;
    if (!setjmp(point)) {
        ctx->unwind = &point;
        ex_mulc(ctx->exprs, ex_const(ctx->exprs, INT64_MAX), 2);
        fail();
    }
    assert_int_equal(ctx->fail, FAIL_LIMIT);
    context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canonical_text),       cmocka_unit_test(random_expressions), cmocka_unit_test(narrowed_text),
        cmocka_unit_test(names_are_quoted),     cmocka_unit_test(bad_text),           cmocka_unit_test(endless_growth),
        cmocka_unit_test(overflow_is_an_error), cmocka_unit_test(apart_only_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

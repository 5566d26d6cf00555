/* Expressions of dims and indices: canonical text of known cases, limits, bad text. Random ones: test_expr_random.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/expr/facts.h"

/* ---- symbols of the tests -------------------------------------------------------------------------------- */

/* Declared range and divisor. r has the bound n - 1. */
static const struct sym_row {
    const char *name;
    int64_t lo, hi, divisor;
} sym_rows[] = {
    {"n", 1, INT64_MAX, 1},         {"m", 1, INT64_MAX, 1}, {"h", 1, 100, 1},
    {"w", 0, INT64_MAX, 1},         {"i", 0, INT64_MAX, 1}, {"b", 0, 15, 1},
    {"q", 0, INT64_MAX, 8},         {"r", 0, INT64_MAX, 1}, {"k", -20, 20, 1},
    {"u", INT64_MIN, INT64_MAX, 1}, {"t", 0, 1, 1},
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
    struct strbuf b = strbuf_of(&ctx->session);
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
    {"floordiv(floordiv(9223372036854775806, n) + 1, 20)", "floordiv(floordiv(9223372036854775806, n) + 1, 20)"},
    {"mod(2*mod(h, 33), 3)", "mod(2*h, 3)"},
    {"mod(2*mod(max(4611686018427387904, n), 33), 3)", "mod(2*mod(max(4611686018427387904, n), 33), 3)"},
    {"floordiv(floordiv(floordiv(w, n), n), n)", "floordiv(w, n*n*n)"},
    {"floordiv((h + 1)*i + mod(i, h + 1), h + 1)", "i"},
    {"(h + 1)*floordiv(i, h + 1) + mod(i, h + 1)", "i"},
    {"floordiv(m*i + mod(w, m), m*n)", "floordiv(i, n)"},
    {"ceildiv(n*m, n)", "m"},
    {"ceildiv(select(n == 7, 9223372036854775806, 1), 8)",
     "floordiv(select(7 == n, 9223372036854775806, 1), 8) + not(0 == mod(select(7 == n, 9223372036854775806, 1), 8))"},
    {"ceildiv(9223372036854775806, i - 20)", "floordiv(9223372036854775805, i - 20) + 1"},
    {"min(n + 4, 8)", "min(4, n) + 4"},
    {"min(16*n, 64)", "16*min(4, n)"},
    {"min(n, n + 1, m)", "min(m, n)"},
    {"max(i, 0)", "i"},
    {"max(m, min(n, m))", "m"},
    {"min(floordiv(n + 3, 4), floordiv(n + 1, 4) + 1)", "floordiv(n + 3, 4)"},
    {"min(m*floordiv(w, 2), m*floordiv(w + 1, 2))", "floordiv(w, 2)*m"},
    {"min(floordiv(w, 2), floordiv(w - 1, 2))", "floordiv(w + 1, 2) - 1"},
    {"floordiv(n + max(0, 2*floordiv(n, 2) - n), 2)", "floordiv(n, 2)"},
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

static struct sym_range said_by(struct context *ctx, const char *cond)
{
    struct sym_range f;
    return fact_of(ctx->exprs, parse(ctx, cond), &f) ? f : (struct sym_range){.sym = {0}};
}

/* What a condition says of the one symbol in it. */
static void facts(void **state)
{
    (void)state;
    const struct {
        const char *cond;
        int64_t lo, hi, divisor; /* lo < 0: nothing */
    } said[] = {
        {"not(n == 0)", 1, INT64_MAX, 1},
        {"0 < n", 1, INT64_MAX, 1},
        {"2 < floordiv(n + 1, 4)", 11, INT64_MAX, 1},
        {"n == 7", 7, 7, 1},
        {"0 == mod(n, 6)", 0, INT64_MAX, 6},
        {"not(mod(n, 2))", 0, INT64_MAX, 2},
        {"n < 100", -1, 0, 0},
        {"n < m", -1, 0, 0},
        {"not(n == 5)", -1, 0, 0},
        {"0 < n*m", -1, 0, 0},
    };
    struct context *ctx = context_new();
    sym_id n = sym_new(ctx->exprs, SYM_SHAPE, "n", 0, INT64_MAX);
    sym_new(ctx->exprs, SYM_SHAPE, "m", 0, INT64_MAX);
    for (size_t i = 0; i < COUNT_OF(said); i++) {
        const struct sym_range f = said_by(ctx, said[i].cond);
        assert_int_equal(f.sym.i, said[i].lo < 0 ? 0 : n.i);
        if (f.sym.i && (f.bounds.lo != said[i].lo || f.bounds.hi != said[i].hi || f.bounds.divisor != said[i].divisor))
            fail_msg("%s: [%lld, %lld] / %lld", said[i].cond, (long long)f.bounds.lo, (long long)f.bounds.hi,
                     (long long)f.bounds.divisor);
    }
    sym_id v = sym_new(ctx->exprs, SYM_VALUE, "v", 0, INT64_MAX);
    assert_true(sym_find(ctx->exprs, "v").i == v.i);
    assert_int_equal(said_by(ctx, "0 < v").sym.i, 0); /* not known before the run */
    context_free(ctx);
}

/* After exprs_rewind all is as if the symbols had always been as they are. */
static void rewound(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    struct exprs *x = ctx->exprs;
    sym_id b = sym_new(x, SYM_SHAPE, "b", 0, INT64_MAX);
    sym_new(x, SYM_SHAPE, "s", 0, INT64_MAX);
    expr_id whole = parse(ctx, "b*s");
    const struct exprs_mark mark = exprs_mark(x);
    assert_string_equal(text(ctx, parse(ctx, "floordiv(b*s, max(1, b))")), "floordiv(b*s, max(1, b))");
    sym_new(x, SYM_SHAPE, "t", 0, 9);
    assert_int_equal(ex_lo(x, whole), 0);
    const struct sym_range f = said_by(ctx, "0 < b");
    assert_true(fact_apply(x, &f));
    assert_false(fact_apply(x, &f));
    exprs_rewind(x, mark);
    assert_int_equal(ex_count(x), mark.nodes);
    assert_int_equal(sym_find(x, "t").i, 0);
    assert_int_equal(parse(ctx, "b*s").i, whole.i);
    assert_string_equal(text(ctx, parse(ctx, "floordiv(b*s, max(1, b))")), "s");
    assert_string_equal(text(ctx, parse(ctx, "b*s == 3*b")), "3 == s");
    assert_int_equal(sym_get(x, b)->given.lo, 0);
    *sym_get(x, b) = (struct symbol){.kind = SYM_SHAPE, .name = "b", .hi = INT64_MAX, .divisor = 1};
    exprs_rewind(x, mark);
    assert_string_equal(text(ctx, parse(ctx, "floordiv(b*s, max(1, b))")), "floordiv(b*s, max(1, b))");
    context_free(ctx);
}

/* INT64_MAX as a coefficient is a number, no end of an interval. */
static void bounds_of_large_terms(void **state)
{
    (void)state;
    sym_id syms[N_SYMS];
    struct context *ctx = fresh(syms);
    static const struct {
        const char *e;
        int64_t lo, hi;
    } rows[] = {
        {"9223372036854775807*floordiv(-n, 4) + 64", INT64_MIN, 64 - INT64_MAX},
        {"-9223372036854775807*floordiv(-n, 4) - 64", INT64_MAX - 64, INT64_MAX},
        {"9223372036854775807*t - 7", -7, INT64_MAX},
        {"7 - 9223372036854775807*t", 7 - INT64_MAX, 7},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        expr_id e = parse(ctx, rows[i].e);
        if (ex_lo(ctx->exprs, e) > rows[i].lo || ex_hi(ctx->exprs, e) < rows[i].hi)
            fail_msg("%s: [%lld, %lld]", rows[i].e, (long long)ex_lo(ctx->exprs, e), (long long)ex_hi(ctx->exprs, e));
    }
    context_free(ctx);
}

/* A dividend of -2^63 is not negated, nor is 1 taken from it. */
static void negative_divisors(void **state)
{
    (void)state;
    sym_id syms[N_SYMS];
    struct context *ctx = fresh(syms);
    struct exprs *x = ctx->exprs;
    int64_t values[N_SYMS + 2] = {0}, got;
    expr_id a = parse(ctx, "-4611686018427387904*m"), b = ex_const(x, -3);
    const struct {
        expr_id e;
        int64_t value;
    } rows[] = {
        {ex_div(x, a, b), 3074457345618258602}, {ex_mod(x, a, b), -2}, {ex_ceildiv(x, a, b), 3074457345618258604}};
    values[syms[SYM_M].i] = 2;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_true(ex_eval(x, rows[i].e, values, &got));
        assert_int_equal(got, rows[i].value);
    }
    context_free(ctx);
}

/* A power whose terms would overflow, and whose factors stay therefore, parses back; also where it is a term of a
 * factor, and where a factor of one term stands first. */
static void powers_parse_back(void **state)
{
    (void)state;
    struct context *ctx = fresh((sym_id[N_SYMS]){{0}});
    struct exprs *x = ctx->exprs;
    expr_id e = parse(ctx, "n + 6"), n = parse(ctx, "n"), h = parse(ctx, "h");
    for (int i = 0; i < 5; i++)
        e = ex_mul(x, e, e);
    expr_id sum = ex_add(x, e, n), squared = ex_mul(x, sum, sum), last = ex_mul(x, ex_add(x, squared, h), squared);
    const expr_id rows[] = {e, squared, ex_mul(x, squared, h), last, ex_mul(x, last, last)};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_int_equal(parse(ctx, text(ctx, rows[i])).i, rows[i].i);
    context_free(ctx);
}

/* What the members of a minimum have in common leaves it, and a factor enters it, only where no member may overflow:
 * the minimum itself fits. */
static void minima_near_overflow(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"min(9223372036854775807*n, m - 3)", "min(9223372036854775807*n, m - 3)"},
        {"min(6917529027641081856*min(i, w), 4)", "min(4, 6917529027641081856*min(i, w))"},
        {"min(64*min(18014398509481984*n, m), m)", "min(64*min(18014398509481984*n, m), m)"},
        {"-20*min(0, 2147483648*n + -9223372036854775808)", "-20*min(0, 2147483648*n + -9223372036854775808)"},
        {"min(4*min(n, m) + 4, 8*h)", "4*min(2*h, m + 1, n + 1)"},
    };
    struct context *ctx = fresh((sym_id[N_SYMS]){{0}});
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        expr_id e = parse(ctx, rows[i].in);
        assert_string_equal(text(ctx, e), rows[i].out);
        assert_int_equal(parse(ctx, text(ctx, e)).i, e.i);
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

/* Chains of divisions whose divisors multiply past 64 bits: merging two of them overflows, which is no divisor of 0. */
static void division_chains(void **state)
{
    (void)state;
    static const int64_t by[] = {2, 3, INT64_C(1) << 31, (INT64_C(1) << 31) + 1, INT64_C(1) << 62, INT64_MAX};
    sym_id syms[N_SYMS];
    struct context *ctx = fresh(syms);
    struct exprs *x = ctx->exprs;
    jmp_buf point;
    if (setjmp(point))
        fail_msg("%s", ctx->diags.n ? ctx->diags.data[0].text : "unwound");
    ctx->unwind = &point;
    for (uint32_t i = 0; i < COUNT_OF(by) * COUNT_OF(by) * COUNT_OF(by); i++) {
        expr_id e = ex_addc(x, ex_sym(x, syms[0]), i % 2);
        for (uint32_t k = i, step = 0; step < 3; step++, k /= COUNT_OF(by))
            e = i % 3 ? ex_div(x, e, ex_const(x, by[k % COUNT_OF(by)]))
                      : ex_mod(x, ex_addc(x, e, step), ex_const(x, by[k % COUNT_OF(by)]));
        assert_true(ex_lo(x, e) >= 0);
    }
    assert_int_equal(ctx->fail, FAIL_NONE);
    context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canonical_text),
        cmocka_unit_test(narrowed_text),
        cmocka_unit_test(facts),
        cmocka_unit_test(rewound),
        cmocka_unit_test(names_are_quoted),
        cmocka_unit_test(bad_text),
        cmocka_unit_test(endless_growth),
        cmocka_unit_test(overflow_is_an_error),
        cmocka_unit_test(apart_only_asks),
        cmocka_unit_test(division_chains),
        cmocka_unit_test(bounds_of_large_terms),
        cmocka_unit_test(negative_divisors),
        cmocka_unit_test(powers_parse_back),
        cmocka_unit_test(minima_near_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

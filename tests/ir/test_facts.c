/* Random conditions and expressions beside brute force: what fact_of says of a symbol holds wherever the condition
 * does, and what is made after exprs_rewind has the values, within the bounds, of what was made before.
 *
 * MCC_TEST_SEED and MCC_TEST_COUNT override what is tried.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "ir/expr/facts.h"

enum { COUNT = 4000, N_MOST = 60, M_MOST = 5, EXPRS = 3 };

struct draw {
    uint64_t state;
    struct exprs *x;
    sym_id n, m;
    bool only_n;
};

static int64_t below(struct draw *d, int64_t n)
{
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((d->state >> 33) % (uint64_t)n);
}

static expr_id expression(struct draw *d, int depth)
{
    struct exprs *x = d->x;
    if (depth == 0 || below(d, 6) == 0)
        return below(d, 3) == 0 ? ex_const(x, below(d, 13)) : ex_sym(x, d->only_n || below(d, 2) ? d->n : d->m);
    expr_id a = expression(d, depth - 1), b = expression(d, depth - 1), one = ex_const(x, 1);
    switch (below(d, 10)) {
    case 0: return ex_add(x, a, b);
    case 1: return ex_sub(x, a, b);
    case 2: return ex_mulc(x, a, below(d, 9) - 4);
    case 3: return ex_mul(x, a, b);
    case 4: return ex_div(x, a, ex_const(x, 1 + below(d, 6)));
    case 5: return ex_mod(x, a, ex_const(x, 1 + below(d, 6)));
    case 6: return ex_div(x, a, ex_max(x, b, one));
    case 7: return ex_mod(x, a, ex_max(x, b, one));
    case 8: return below(d, 2) ? ex_min(x, a, b) : ex_max(x, a, b);
    default: return ex_select(x, ex_lt(x, a, b), b, expression(d, depth - 1));
    }
}

static expr_id condition(struct draw *d)
{
    expr_id a = expression(d, 3), b = below(d, 2) ? ex_const(d->x, below(d, 20)) : expression(d, 2);
    switch (below(d, 5)) {
    case 0: return ex_eq(d->x, a, b);
    case 1: return ex_lt(d->x, a, b);
    case 2: return ex_lt(d->x, b, a);
    case 3: return ex_eq(d->x, ex_mod(d->x, a, ex_const(d->x, 2 + below(d, 5))), ex_const(d->x, 0));
    default: return ex_not(d->x, ex_eq(d->x, a, b));
    }
}

static int64_t value(struct draw *d, expr_id e, int64_t n, int64_t m)
{
    int64_t values[4] = {0}, out;
    values[d->n.i] = n;
    values[d->m.i] = m;
    if (!ex_eval(d->x, e, values, &out))
        fail_msg("no value at n = %d, m = %d", (int)n, (int)m);
    return out;
}

static bool within(int64_t v, struct sym_bounds b)
{
    return v >= b.lo && v <= b.hi && v % b.divisor == 0;
}

static void bounds_hold(struct draw *d, expr_id e, int64_t v)
{
    assert_true(ex_lo(d->x, e) <= v && v <= ex_hi(d->x, e));
    assert_true(v % ex_divisor(d->x, e) == 0);
}

static const char *text(struct context *ctx, expr_id e)
{
    struct strbuf b = strbuf_of(&ctx->session);
    ex_print(ctx->exprs, e, &b);
    return b.data;
}

/* Did the condition say anything? Counts those that exclude values, whatever m is. */
static bool one(uint64_t seed, int *excluded)
{
    struct context *ctx = context_new();
    struct draw d = {.state = seed * 77 + 1, .x = ctx->exprs};
    static int64_t was[EXPRS][N_MOST + 1][M_MOST + 1];
    expr_id e[EXPRS];
    const char *written[EXPRS];
    struct sym_range f;
    d.n = sym_new(d.x, SYM_SHAPE, "n", below(&d, 3), INT64_MAX);
    d.m = sym_new(d.x, SYM_SHAPE, "m", 0, INT64_MAX);
    const struct sym_bounds given = sym_get(d.x, d.n)->given;
    for (int i = 0; i < EXPRS; i++) {
        e[i] = expression(&d, 4);
        written[i] = text(ctx, e[i]);
        for (int64_t n = given.lo; n <= N_MOST; n++)
            for (int64_t m = 0; m <= M_MOST; m++)
                was[i][n][m] = value(&d, e[i], n, m);
    }
    const struct exprs_mark mark = exprs_mark(d.x);
    d.only_n = true;
    expr_id cond = condition(&d);
    bool said = fact_of(d.x, cond, &f);
    if (!said && below(&d, 2)) {
        d.only_n = false;
        cond = condition(&d);
        said = fact_excludes(d.x, cond, d.n, &f);
        *excluded += said;
    }
    for (int64_t n = given.lo; said && n <= N_MOST; n++)
        for (int64_t m = 0; m <= M_MOST; m++)
            if (value(&d, cond, n, m) && !within(n, f.bounds))
                fail_msg("seed %d: %s holds for %d, %d", (int)seed, text(ctx, cond), (int)n, (int)m);
    said = said && fact_apply(d.x, &f);
    exprs_rewind(d.x, mark);
    for (int i = 0; i < EXPRS; i++) {
        const char *p = written[i];
        expr_id again = ex_parse(d.x, &p, false);
        assert_true(again.i);
        for (int64_t n = given.lo; n <= N_MOST; n++)
            for (int64_t m = 0; m <= M_MOST; m++) {
                if (said && !within(n, f.bounds))
                    continue;
                assert_int_equal(value(&d, e[i], n, m), was[i][n][m]);
                assert_int_equal(value(&d, again, n, m), was[i][n][m]);
                bounds_hold(&d, e[i], was[i][n][m]);
                bounds_hold(&d, again, was[i][n][m]);
            }
    }
    context_free(ctx);
    return said;
}

static void drawn(void **state)
{
    (void)state;
    const char *seed = getenv("MCC_TEST_SEED"), *count = getenv("MCC_TEST_COUNT");
    int n = count ? atoi(count) : COUNT, said = 0, excluded = 0;
    for (int i = 0; i < n; i++)
        said += one((uint64_t)(seed ? atoi(seed) : 1) + (uint64_t)i, &excluded);
    assert_true(excluded * 50 > n);
    assert_true(said * 20 > n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(drawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

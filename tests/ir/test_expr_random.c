/* Random expressions: what ir/expr builds, proves and prints, beside exact arithmetic in 128 bits (trees.h).
 *
 * At drawn values of the symbols, inside of their ranges and where all parts of the expression fit into 64 bits (which
 * ir/expr assumes): ex_eval gives the exact value or none; bounds, divisors, comparisons, differences, linear parts and
 * substitutions hold. The text parses back to the same id. What overflows may be refused, but nothing may end in a
 * signal, take more than SECONDS, or be wrong.
 *
 * MCC_TEST_SEED, MCC_TEST_COUNT and MCC_TEST_CHAINS override what is tried. A failing expression is cut to its smallest
 * form.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "tests/ir/trees.h"

enum { SECONDS = 5, VALUES = 8, SHRINK_VALUES = 64, SHOWN = 10, SHRINK_SECONDS = 20, TREES_EACH = 32 };

/* What is tried: an expression, one that it is compared with, one that takes a symbol's place. */
enum { THIS, OTHER, INSTEAD, PARTS };
struct subject {
    struct trees all;
    struct tree *part[PARTS];
    uint64_t seed;             /* of the values */
    int n_values, replaced;    /* the symbol */
    struct context *ctx;
    sym_id syms[TREE_SYMS];
    int64_t by_id[TREE_SYMS + 2];
    bool stray;                /* its text gives another form */
    bool refused;              /* it overflows, divides by zero, is too large */
    uint64_t defined;          /* values compared */
    char why[600];
};

PRINTF_LIKE(2, 3) static bool wrong(struct subject *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->why, sizeof s->why, fmt, args);
    va_end(args);
    return false;
}

static const char *text(struct subject *s, expr_id e)
{
    struct strbuf b = strbuf_of(&s->ctx->session);
    ex_print(s->ctx->exprs, e, &b);
    return b.n > 300 ? "a long text" : b.data;
}

static long long shown(wide v)
{
    return v > INT64_MAX ? INT64_MAX : v < INT64_MIN ? INT64_MIN : (long long)v;
}

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

/* The values by symbol id. */
static const int64_t *by_id(struct subject *s, const int64_t *value)
{
    for (int i = 0; i < TREE_SYMS; i++)
        s->by_id[s->syms[i].i] = value[i];
    return s->by_id;
}

static bool evaluate(struct subject *s, expr_id e, const int64_t *value, int64_t *out)
{
    return ex_eval(s->ctx->exprs, e, by_id(s, value), out);
}

/* What ir/expr takes sizes and values without bounds to be. */
static bool small(const int64_t *value)
{
    bool is = true;
    for (int i = 0; i < TREE_SYMS; i++)
        is &= value[i] >= -(1 << 12) && value[i] <= 1 << 12;
    return is;
}

/* As compiled code computes e: sums and products modulo 2^64. False: it divides by zero. */
static bool wrapped(struct exprs *x, expr_id e, const int64_t *values, int64_t *out)
{
    enum expr_kind kind = ex_kind(x, e);
    uint64_t sum = kind == EX_SUM ? (uint64_t)ex_addend(x, e) : 1;
    int64_t a[2] = {0};
    if (kind == EX_CONST || kind == EX_SYM)
        return ex_eval(x, e, values, out);
    if (kind == EX_SELECT)
        return wrapped(x, ex_arg(x, e, 0), values, a) && wrapped(x, ex_arg(x, e, a[0] ? 1 : 2), values, out);
    for (uint32_t i = 0; i < ex_n_args(x, e); i++) {
        if (!wrapped(x, ex_arg(x, e, i), values, &a[i > 0]))
            return false;
        uint64_t v = (uint64_t)a[i > 0];
        sum = kind == EX_SUM ? sum + v * (uint64_t)ex_coef(x, e, i) : sum * v;
    }
    if ((kind == EX_DIV || kind == EX_MOD) && (a[1] == 0 || a[1] == -1))
        return false;
    switch (kind) {
    case EX_DIV: *out = floordiv_i64(a[0], a[1]); break;
    case EX_MOD: *out = floormod_i64(a[0], a[1]); break;
    case EX_MIN: *out = a[0] < a[1] ? a[0] : a[1]; break;
    case EX_MAX: *out = a[0] > a[1] ? a[0] : a[1]; break;
    case EX_LT: *out = a[0] < a[1]; break;
    case EX_EQ: *out = a[0] == a[1]; break;
    case EX_AND: *out = a[0] && a[1]; break;
    case EX_NOT: *out = !a[0]; break;
    default: *out = (int64_t)sum; break;
    }
    return true;
}

static bool value_holds(struct subject *s, expr_id e, const int64_t *value, wide want, bool fits)
{
    struct exprs *x = s->ctx->exprs;
    int64_t lo = ex_lo(x, e), hi = ex_hi(x, e), divisor = ex_divisor(x, e), got;
    bool known = evaluate(s, e, value, &got);
    if (!fits)
        return true;
    if (known ? got != want : s->all.profile == PLAUSIBLE)
        return wrong(s, "%s is %lld, not %lld", text(s, e), known ? (long long)got : -1, shown(want));
    if (small(value) && wrapped(s->ctx->exprs, e, by_id(s, value), &got) && got != want)
        return wrong(s, "%s wraps to %lld, not %lld", text(s, e), (long long)got, shown(want));
    if ((lo != INT64_MIN && want < lo) || (hi != INT64_MAX && want > hi) || divisor < 1 || want % divisor != 0)
        return wrong(s, "%s: %lld is not in [%lld, %lld] / %lld", text(s, e), shown(want), (long long)lo, (long long)hi,
                     (long long)divisor);
    return true;
}

static bool says(struct subject *s, const char *what, enum truth said, bool is)
{
    return said == UNKNOWN_ || (said == TRUE_) == is || wrong(s, "%s said %d", what, (int)said);
}

/* Which answers were given about THIS and OTHER. */
struct answers {
    enum truth is, eq, lt, le;
    bool apart;
    int64_t by;
};

static bool answers_hold(struct subject *s, const struct answers *a, const int64_t *value, wide v)
{
    wide other;
    bool fits;
    if (!says(s, "ex_truth", a->is, v != 0))
        return false;
    if (!tree_eval(&s->all, s->part[OTHER], value, &other, &fits) || !fits)
        return true;
    if (a->apart && v - other != a->by)
        return wrong(s, "ex_apart said %lld, not %lld", (long long)a->by, shown(v - other));
    return says(s, "ex_cmp_eq", a->eq, v == other) && says(s, "ex_cmp_lt", a->lt, v < other) &&
           says(s, "ex_cmp_le", a->le, v <= other);
}

/* THIS with a symbol replaced by INSTEAD, where that has a value which the symbol may have. */
static bool replaced_holds(struct subject *s, expr_id e, const int64_t *value)
{
    int64_t inside[TREE_SYMS], got;
    wide v, want;
    bool fits;
    memcpy(inside, value, sizeof inside);
    if (!tree_eval(&s->all, s->part[INSTEAD], value, &v, &fits) || !fits)
        return true;
    inside[s->replaced] = (int64_t)v;
    if (!tree_allows(&s->all, inside) || !tree_eval(&s->all, s->part[THIS], inside, &want, &fits))
        return true;
    return !fits || !evaluate(s, e, value, &got) || got == want ||
           wrong(s, "ex_subst gave %s, which is %lld, not %lld", text(s, e), (long long)got, shown(want));
}

struct linear {
    bool is;
    expr_id coef, rest;
};

static bool linear_holds(struct subject *s, const struct linear *l, int sym, const int64_t *value, wide want)
{
    struct exprs *x = s->ctx->exprs;
    int64_t coef, rest;
    if (!l->is || !l->coef.i || !l->rest.i)
        return true;
    if (ex_uses(x, l->coef, s->syms[sym]) || ex_uses(x, l->rest, s->syms[sym]))
        return wrong(s, "parts of ex_linear use s%d", sym);
    return !evaluate(s, l->coef, value, &coef) || !evaluate(s, l->rest, value, &rest) ||
           (wide)coef * value[sym] + rest == want ||
           wrong(s, "ex_linear: %lld * s%d + %lld", (long long)coef, sym, (long long)rest);
}

/* What e parses back as: the same, or now and then (near overflow, as proofs are searched in another order) another
 * form. */
static expr_id parsed_back(struct subject *s, expr_id e)
{
    struct strbuf b = strbuf_of(&s->ctx->session);
    ex_print(s->ctx->exprs, e, &b);
    const char *p = b.data;
    expr_id again = ex_parse(s->ctx->exprs, &p, false);
    s->stray |= again.i != e.i;
    return *p ? (expr_id){0} : again;
}

/* In a fresh context proofs are searched in another order and may end otherwise: that may happen now and then. */
static bool another_text_elsewhere(struct subject *s)
{
    sym_id syms[TREE_SYMS];
    struct context *other = tree_context(&s->all, syms);
    struct strbuf here = strbuf_of(&s->ctx->session), there = strbuf_of(&other->session);
    ex_print(s->ctx->exprs, s->part[THIS]->e, &here);
    const char *p = here.data;
    expr_id e = ex_parse(other->exprs, &p, false);
    if (e.i)
        ex_print(other->exprs, e, &there);
    bool same = e.i && strcmp(here.data, there.data) == 0;
    context_free(other);
    return !same;
}

/* ---- one attempt ---------------------------------------------------------------------------------------------------
 */

static void print_values(struct subject *s, const int64_t *value)
{
    size_t n = strlen(s->why);
    for (int i = 0; i < TREE_SYMS && n < sizeof s->why; i++)
        n += (size_t)snprintf(s->why + n, sizeof s->why - n, " s%d=%lld", i, (long long)value[i]);
}

/* An unwinding, which leaves the context unusable, ends an attempt in its caller. */
static bool attempt(struct subject *s)
{
    struct exprs *x = s->ctx->exprs;
    struct linear linear[TREE_SYMS] = {{0}};
    struct answers a = {UNKNOWN_, UNKNOWN_, UNKNOWN_, UNKNOWN_, false, 0};
    int64_t value[TREE_SYMS];
    wide want;
    s->refused = true;
    s->stray = false;
    expr_id e = tree_build(&s->all, x, s->syms, s->part[THIS]);
    if (!e.i)
        return true;
    expr_id other = tree_build(&s->all, x, s->syms, s->part[OTHER]);
    expr_id instead = tree_build(&s->all, x, s->syms, s->part[INSTEAD]);
    expr_id subst = instead.i ? ex_subst(x, e, &s->syms[s->replaced], &instead, 1) : e;
    for (int i = 0; i < TREE_SYMS; i++)
        linear[i].is = ex_linear(x, e, s->syms[i], &linear[i].coef, &linear[i].rest);
    s->refused = false;
    a.is = ex_truth(x, e);
    if (other.i) {
        a.eq = ex_cmp_eq(x, e, other);
        a.lt = ex_cmp_lt(x, e, other);
        a.le = ex_cmp_le(x, e, other);
        a.apart = ex_apart(x, e, other, &a.by);
    }
    expr_id again = parsed_back(s, e);
    if (!again.i)
        return wrong(s, "%s does not parse back", text(s, e));
    s->all.state = s->seed;
    for (int k = 0; k < s->n_values && tree_values(&s->all, value); k++) {
        bool fits;
        if (!tree_eval(&s->all, s->part[THIS], value, &want, &fits))
            continue;
        s->defined++;
        bool fine = value_holds(s, e, value, want, fits) && value_holds(s, again, value, want, fits) &&
                    (!fits || answers_hold(s, &a, value, want)) &&
                    (!instead.i || !subst.i || replaced_holds(s, subst, value));
        for (int i = 0; fine && i < TREE_SYMS; i++)
            fine = !fits || linear_holds(s, &linear[i], i, value, want);
        if (!fine) {
            print_values(s, value);
            return false;
        }
    }
    return true;
}

static sigjmp_buf on_signal;

static void caught(int number)
{
    siglongjmp(on_signal, number);
}

static void watch(bool on)
{
    static const int numbers[] = {SIGFPE, SIGPROF};
    struct itimerval limit = {.it_value.tv_sec = on ? SECONDS : 0};
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        struct sigaction action = {.sa_handler = on ? caught : SIG_DFL};
        sigaction(numbers[i], &action, NULL);
    }
    setitimer(ITIMER_PROF, &limit, NULL);
}

/* Does everything hold? In a fresh context when there is none. */
static bool holds(struct subject *s)
{
    jmp_buf unwound;
    volatile bool fine = true;
    if (!s->ctx)
        s->ctx = tree_context(&s->all, s->syms);
    assert_non_null(s->ctx);
    watch(true);
    int number = sigsetjmp(on_signal, 1);
    if (number) {
        fine = wrong(s, number == SIGPROF ? "no end within %d s of processor time" : "a signal (%d)",
                     number == SIGPROF ? SECONDS : number);
    } else if (setjmp(unwound) == 0) {
        s->ctx->unwind = &unwound;
        fine = attempt(s);
    } else if (!s->refused || (s->all.profile == PLAUSIBLE && s->ctx->fail == FAIL_LIMIT)) {
        fine = wrong(s, "%s: %s", s->refused ? "refused" : "a question is refused", s->ctx->diags.data[0].text);
    }
    watch(false);
    s->ctx->unwind = NULL;
    if (number || s->ctx->fail != FAIL_NONE) {
        context_free(s->ctx);
        s->ctx = NULL;
    }
    return fine;
}

/* ---- the smallest form ----------------------------------------------------------------------------------------------
 */

static bool fails_alone(struct subject *s)
{
    if (s->ctx)
        context_free(s->ctx);
    s->ctx = NULL;
    return !holds(s);
}

/* Puts an operand or a small number in the place of nodes, as long as it fails. */
static void shrink(struct subject *s)
{
    time_t end = time(NULL) + SHRINK_SECONDS;
    s->n_values = SHRINK_VALUES;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < s->all.n; i++) {
            struct tree *node = &s->all.node[i], was = *node;
            for (int k = 0; k < 5 && node->op > T_SYM && time(NULL) < end; k++) {
                if (k < 3 && !was.arg[k])
                    continue;
                *node = k < 3 ? *was.arg[k] : (struct tree){.op = T_CONST, .c = k - 3};
                if (fails_alone(s)) {
                    again = true;
                    break;
                }
                *node = was;
            }
        }
    }
    fails_alone(s);
}

static void report(struct subject *s, uint64_t number)
{
    struct context *ctx = context_new();
    struct strbuf out = strbuf_of(&ctx->session);
    bool alone = fails_alone(s);
    if (alone)
        shrink(s);
    strbuf_printf(&out, "# %llu%s: %s\n#  ", (unsigned long long)number, alone ? "" : " (after others only)", s->why);
    for (int k = 0; k < PARTS; k++) {
        if (k)
            strbuf_printf(&out, k == OTHER ? "; beside " : "; s%d = ", s->replaced);
        tree_print(s->part[k], &out, out.n + 600);
    }
    strbuf_printf(&out, "\n#  ");
    for (int i = 0; i < TREE_SYMS; i++)
        strbuf_printf(&out, " s%d [%lld, %lld] / %lld%s", i, (long long)s->all.sym[i].lo, (long long)s->all.sym[i].hi,
                      (long long)s->all.sym[i].divisor, s->all.sym[i].below >= 0 ? " < s0" : "");
    fprintf(stderr, "%s\n", out.data);
    context_free(ctx);
}

/* ---- tests
 * ------------------------------------------------------------------------------------------------------------ */

static uint64_t from_env(const char *name, uint64_t absent)
{
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 0) : absent;
}

static void draw_subject(struct subject *s, uint64_t seed)
{
    s->all.state = seed;
    trees_clear(&s->all);
    s->part[THIS] = tree_draw(&s->all, (int)tree_int(&s->all, 1, 5));
    bool near = tree_int(&s->all, 0, 1);
    s->part[OTHER] = tree_draw(&s->all, near ? 1 : (int)tree_int(&s->all, 1, 4));
    if (near && s->all.n < TREES - 2) { /* THIS and a little */
        struct tree *sum = &s->all.node[s->all.n++];
        *sum = (struct tree){.op = T_ADD, .arg = {s->part[THIS], s->part[OTHER]}};
        s->part[OTHER] = sum;
    }
    s->part[INSTEAD] = tree_draw(&s->all, 2);
    s->replaced = (int)tree_int(&s->all, 0, TREE_SYMS - 1);
    s->n_values = VALUES;
    s->seed = tree_bits(&s->all);
}

/* `count` expressions; several are built in a context, as what was made before is remembered there. */
static void try_profile(enum profile profile, uint64_t count)
{
    static struct subject s;
    uint64_t seed = from_env("MCC_TEST_SEED", 1), failed = 0, refused = 0, strays = 0;
    s = (struct subject){0};
    for (uint64_t k = 0; k < count; k++) {
        if (k % TREES_EACH == 0) {
            if (s.ctx)
                context_free(s.ctx);
            s.ctx = NULL;
            trees_start(&s.all, seed * 1000003 + k, profile);
        }
        draw_subject(&s, seed * 7919 + k);
        bool fine = holds(&s);
        refused += s.refused;
        if (!fine && failed++ < SHOWN)
            report(&s, k);
        if (profile == PLAUSIBLE && fine && !s.refused)
            strays += s.stray || (k % 4 == 0 && another_text_elsewhere(&s));
    }
    if (s.ctx)
        context_free(s.ctx);
    fprintf(stderr, "# MCC_TEST_SEED=%llu: %llu expressions, %llu refused, %llu values, %llu failed\n",
            (unsigned long long)seed, (unsigned long long)count, (unsigned long long)refused,
            (unsigned long long)s.defined, (unsigned long long)failed);
    assert_int_equal(failed, 0);
    assert_true(strays <= count / 4000);
}

static void plausible(void **state)
{
    (void)state;
    try_profile(PLAUSIBLE, from_env("MCC_TEST_COUNT", 20000));
}

static void hostile(void **state)
{
    (void)state;
    try_profile(HOSTILE, from_env("MCC_TEST_COUNT", 10000));
}

static void chains(void **state)
{
    (void)state;
    try_profile(CHAINS, from_env("MCC_TEST_CHAINS", 1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plausible), cmocka_unit_test(hostile),
                                       cmocka_unit_test(chains)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

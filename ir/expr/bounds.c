/* The interval and the divisor of an expression, from those of its operands. INT64_MIN and INT64_MAX absorb: nothing is
 * known of that end. */
#include "ir/expr/internal.h"

int64_t gcd_i64(int64_t a, int64_t b)
{
    uint64_t u = a < 0 ? 0 - (uint64_t)a : (uint64_t)a;
    uint64_t v = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    while (v) {
        uint64_t r = u % v;
        u = v;
        v = r;
    }
    return u > (uint64_t)INT64_MAX ? (int64_t)1 << 62 : (int64_t)u; /* only |INT64_MIN| is larger */
}

/* Interval arithmetic in which INT64_MIN / INT64_MAX absorb. */
static int64_t sat_mul(int64_t a, int64_t b)
{
    int64_t r;
    if (a == 0 || b == 0)
        return 0;
    bool infinite = a == INT64_MIN || a == INT64_MAX || b == INT64_MIN || b == INT64_MAX;
    if (!infinite && mul_i64(a, b, &r))
        return r;
    return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

/* Floor division of a bound by a positive bound. */
static int64_t sat_div(int64_t a, int64_t b)
{
    if (b == INT64_MAX)
        return a < 0 ? -1 : 0;
    if (a == INT64_MIN || a == INT64_MAX)
        return a;
    return floordiv_i64(a, b);
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void bounds_mul(int64_t *lo, int64_t *hi, int64_t lo2, int64_t hi2)
{
    int64_t a = sat_mul(*lo, lo2), b = sat_mul(*lo, hi2), c = sat_mul(*hi, lo2), d = sat_mul(*hi, hi2);
    *lo = min_i64(min_i64(a, b), min_i64(c, d));
    *hi = max_i64(max_i64(a, b), max_i64(c, d));
}

static int64_t divisor_mul(int64_t a, int64_t b)
{
    int64_t r;
    a = gcd_i64(a, 0);
    b = gcd_i64(b, 0);
    return mul_i64(a, b, &r) ? r : max_i64(a, b);
}

__extension__ typedef __int128 wide;

static int64_t clamp_wide(wide v)
{
    return v < INT64_MIN ? INT64_MIN : v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

/* At most 1024 terms, each clamped first: the wide sums do not overflow. A coefficient is a number, however large. */
static void sum_bounds(const struct exprs *x, const struct ekey *k, int64_t *lo, int64_t *hi, int64_t *div)
{
    wide low = k->c, high = k->c;
    bool no_low = false, no_high = false;
    *div = gcd_i64(k->c, 0);
    for (uint32_t i = 0; i < k->n; i++) {
        const struct enode *a = enode(x, k->arg[i]);
        int64_t c = k->coef[i], l = c < 0 ? a->hi : a->lo, h = c < 0 ? a->lo : a->hi;
        no_low |= l == (c < 0 ? INT64_MAX : INT64_MIN) || (wide)l * c <= INT64_MIN;
        no_high |= h == (c < 0 ? INT64_MIN : INT64_MAX) || (wide)h * c >= INT64_MAX;
        low += clamp_wide((wide)l * c);
        high += clamp_wide((wide)h * c);
        *div = gcd_i64(*div, divisor_mul(c, a->div));
    }
    *lo = no_low ? INT64_MIN : clamp_wide(low);
    *hi = no_high ? INT64_MAX : clamp_wide(high);
}

static void prod_bounds(const struct exprs *x, const struct ekey *k, int64_t *lo, int64_t *hi, int64_t *div)
{
    *lo = *hi = *div = 1;
    for (uint32_t i = 0; i < k->n; i++) {
        const struct enode *a = enode(x, k->arg[i]);
        bool square = i > 0 && k->arg[i].i == k->arg[i - 1].i;
        bounds_mul(lo, hi, a->lo, a->hi);
        if (square && k->n == 2)
            *lo = max_i64(*lo, 0);
        *div = divisor_mul(*div, a->div);
    }
}

static void div_bounds(const struct enode *a, const struct enode *b, int64_t *lo, int64_t *hi, int64_t *div)
{
    *lo = INT64_MIN;
    *hi = INT64_MAX;
    if (b->lo >= 1) {
        *lo = min_i64(sat_div(a->lo, b->lo), sat_div(a->lo, b->hi));
        *hi = max_i64(sat_div(a->hi, b->lo), sat_div(a->hi, b->hi));
    }
    if (b->kind == EX_CONST && b->c > 0 && a->div % b->c == 0)
        *div = a->div / b->c;
}

static void mod_bounds(const struct enode *a, const struct enode *b, int64_t *lo, int64_t *hi, int64_t *div)
{
    if (b->lo >= 1) {
        *lo = 0;
        *hi = b->hi == INT64_MAX ? INT64_MAX : b->hi - 1;
        if (a->lo >= 0)
            *hi = min_i64(*hi, a->hi);
    }
    *div = gcd_i64(a->div, b->div);
}

void expr_bounds(const struct exprs *x, const struct ekey *k, int64_t *lo, int64_t *hi, int64_t *div)
{
    const struct enode *a = k->n > 0 ? enode(x, k->arg[0]) : NULL;
    const struct enode *b = k->n > 1 ? enode(x, k->arg[1]) : NULL;
    *lo = INT64_MIN;
    *hi = INT64_MAX;
    *div = 1;
    switch (k->kind) {
    case EX_CONST: *lo = *hi = k->c, *div = gcd_i64(k->c, 0); break;
    case EX_SYM: {
        const struct symbol *s = x->syms.data[k->sym.i];
        *lo = s->lo, *hi = s->hi, *div = s->divisor;
        break;
    }
    case EX_SUM: sum_bounds(x, k, lo, hi, div); break;
    case EX_PROD: prod_bounds(x, k, lo, hi, div); break;
    case EX_DIV: div_bounds(a, b, lo, hi, div); break;
    case EX_MOD: mod_bounds(a, b, lo, hi, div); break;
    case EX_MIN: *lo = min_i64(a->lo, b->lo), *hi = min_i64(a->hi, b->hi), *div = gcd_i64(a->div, b->div); break;
    case EX_MAX: *lo = max_i64(a->lo, b->lo), *hi = max_i64(a->hi, b->hi), *div = gcd_i64(a->div, b->div); break;
    case EX_SELECT:
        a = enode(x, k->arg[2]);
        *lo = min_i64(a->lo, b->lo), *hi = max_i64(a->hi, b->hi), *div = gcd_i64(a->div, b->div);
        break;
    case EX_LT:
    case EX_EQ:
    case EX_AND:
    case EX_NOT: *lo = 0, *hi = 1; break;
    default: break;
    }
    /* The next multiples of the divisor inside. */
    if (k->n && *div > 1 && *lo > INT64_MIN + *div && *lo < INT64_MAX - *div)
        *lo = -floordiv_i64(-*lo, *div) * *div;
    if (k->n && *div > 1 && *hi > INT64_MIN + *div && *hi < INT64_MAX)
        *hi = floordiv_i64(*hi, *div) * *div;
    /* A lower bound never says "plus infinity", an upper one never "minus infinity": that would absorb. */
    *lo = min_i64(*lo, INT64_MAX - 1);
    *hi = max_i64(*hi, INT64_MIN + 1);
}

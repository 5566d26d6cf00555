/* log, log1p (f32 and f64), and in f64 asinh, acosh, atanh, pow.
 *
 * x = m 2^k with m in [sqrt 1/2, sqrt 2), f = m - 1. f32: log(1 + f) = f + f^2 q(f), q minimax. f64: s = f / (2 + f),
 * log(1 + f) = 2 s + s^3 R(s^2) = f - (f^2/2 - s (f^2/2 + s^2 R)), R minimax. k ln 2 comes in two parts, k times the
 * first exact. ULP bounds: docs/numerics.md.
 */
#include "ir/loop/math/math.h"

#include <math.h>

static const double log_q[] = {-0x1.fffff8p-2, 0x1.55555p-2,   -0x1.000430p-2, 0x1.99a48cp-3, -0x1.5425ecp-3,
                               0x1.22641ep-3,  -0x1.0f35fap-3, 0x1.08a452p-3,  -0x1.3923dap-4};
static const double log_r[] = {0x1.5555555555555p-1, 0x1.9999999999e00p-2, 0x1.249249242b314p-2, 0x1.c71c725910b0bp-3,
                               0x1.745cde2f9d0acp-3, 0x1.3b20ac98bbda7p-3, 0x1.0f5cb175e9b83p-3, 0x1.0f63e9d5e8135p-3};
static const double ln2_high_f32 = 0x1.62e4p-1, ln2_low_f32 = 0x1.7f7d1cp-20;
static const double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;

/* Splits positive normal x; scale_back is taken off k for lanes where `scaled` holds (pass {0}: none). */
static void split(struct math *m, lreg x, lreg scaled, int scale_back, lreg *f, lreg *k)
{
    bool single = m->t.elem == ELEM_F32;
    int mantissa = single ? 23 : 52;
    lreg bits = m_bits(m, x);
    lreg above = m_bin(m, L_SUB, bits, m_int(m, single ? 0x3f3504f3 : INT64_C(0x3fe6a09e667f3bcd)));
    lreg e = m_shift(m, L_SHR, above, mantissa);
    lreg fraction = m_float(m, m_bin(m, L_SUB, bits, m_shift(m, L_SHL, e, mantissa)));
    *f = m_addc(m, fraction, -1);
    if (single) {
        *k = m_convert(m, e, ELEM_F32);
    } else {   /* few targets convert 64-bit integers quickly: put them into the low bits of 1.5 * 2^52 */
        lreg t = m_float(m, m_bin(m, L_ADD, e, m_int(m, INT64_C(0x4338000000000000))));
        *k = m_addc(m, t, -0x1.8p52);
    }
    if (scaled.i)
        *k = m_sel(m, scaled, m_addc(m, *k, -scale_back), *k);
}

/* k ln 2 + log(1 + f) + c, |c| tiny */
static lreg combine(struct math *m, lreg f, lreg k, lreg c)
{
    if (m->t.elem == ELEM_F32) {
        lreg t = m_mul(m, m_mul(m, f, f), m_horner(m, f, log_q, COUNT_OF(log_q)));
        t = m_fma(m, k, m_const(m, ln2_low_f32), c.i ? m_add(m, t, c) : t);
        return m_fma(m, k, m_const(m, ln2_high_f32), m_add(m, f, t));
    }
    lreg s = m_div(m, f, m_addc(m, f, 2));
    lreg z = m_mul(m, s, s);
    lreg r = m_mul(m, z, m_horner(m, z, log_r, COUNT_OF(log_r)));
    lreg half = m_mul(m, m_mulc(m, f, 0.5), f);
    lreg low = m_mulc(m, k, ln2_low);
    low = m_fma(m, s, m_add(m, half, r), c.i ? m_add(m, low, c) : low);
    lreg t = m_sub(m, m_sub(m, half, low), f);
    return m_sub(m, m_mulc(m, k, ln2_high), t);
}

/* Zero gives -infinity, negative numbers and NaN a NaN, infinity itself. */
static lreg log_ends(struct math *m, lreg x, lreg r)
{
    lreg zero = m_const(m, 0), inf = m_const(m, INFINITY);
    lreg outside = m_sel(m, m_cmp(m, L_EQ, x, zero), m_const(m, -INFINITY), m_const(m, NAN));
    r = m_sel(m, m_cmp(m, L_LT, zero, x), r, outside);
    return m_sel(m, m_cmp(m, L_EQ, x, inf), inf, r);
}

lreg math_log(struct math *m, lreg x)
{
    bool single = m->t.elem == ELEM_F32;
    lreg f, k;
    lreg tiny = m_cmp(m, L_LT, x, m_const(m, single ? 0x1p-126 : 0x1p-1022));
    lreg scaled = m_sel(m, tiny, m_mulc(m, x, single ? 0x1p23 : 0x1p54), x);
    split(m, scaled, tiny, single ? 23 : 54, &f, &k);
    return log_ends(m, x, combine(m, f, k, (lreg){0}));
}

/* log(1 + x) = log(u) + (what rounding u = 1 + x lost) / u */
lreg math_log1p(struct math *m, lreg x)
{
    lreg f, k, one = m_const(m, 1);
    lreg u = m_add(m, x, one);
    lreg lost_small = m_sub(m, x, m_addc(m, u, -1));
    lreg lost_large = m_sub(m, one, m_sub(m, u, x));
    lreg lost = m_sel(m, m_cmp(m, L_LT, one, x), lost_large, lost_small);
    split(m, u, (lreg){0}, 0, &f, &k);
    lreg r = log_ends(m, u, combine(m, f, k, m_div(m, lost, u)));
    lreg tiny = m_cmp(m, L_LT, m_un(m, L_ABS, x), m_const(m, m->t.elem == ELEM_F32 ? 0x1p-26 : 0x1p-56));
    return m_sel(m, tiny, x, r);
}

lreg math_asinh(struct math *m, lreg x)
{
    lreg t = m_un(m, L_ABS, x), one = m_const(m, 1);
    lreg z = m_mul(m, t, t);
    lreg root = m_un(m, L_SQRT, m_add(m, z, one));
    lreg small = m_add(m, t, m_div(m, z, m_add(m, root, one)));
    lreg is_large = m_cmp(m, L_LT, m_const(m, 0x1p28), t);      /* there 2 t is as good, and t^2 may overflow */
    lreg argument = m_sel(m, is_large, m_addc(m, t, -1), small);
    lreg r = math_log1p(m, argument);
    r = m_sel(m, is_large, m_addc(m, r, 0x1.62e42fefa39efp-1), r);
    return m_copysign(m, r, x);
}

lreg math_acosh(struct math *m, lreg x)
{
    lreg t = m_addc(m, x, -1);
    lreg small = m_add(m, t, m_un(m, L_SQRT, m_mul(m, t, m_addc(m, t, 2))));
    lreg is_large = m_cmp(m, L_LT, m_const(m, 0x1p28), x);
    lreg r = math_log1p(m, m_sel(m, is_large, t, small));
    r = m_sel(m, is_large, m_addc(m, r, 0x1.62e42fefa39efp-1), r);
    return m_sel(m, m_cmp(m, L_LT, x, m_const(m, 1)), m_const(m, NAN), r);
}

lreg math_atanh(struct math *m, lreg x)
{
    lreg t = m_un(m, L_ABS, x);
    lreg ratio = m_div(m, m_add(m, t, t), m_sub(m, m_const(m, 1), t));
    return m_copysign(m, m_mulc(m, math_log1p(m, ratio), 0.5), x);
}

/* ---- pow --------------------------------------------------------------------------------------------------------- */

/* An unevaluated sum. Products are exact by splitting (Dekker 1971), for targets without fused multiplication. */
struct pair {
    lreg high, low;
};

static struct pair quick_sum(struct math *m, lreg a, lreg b) /* |a| >= |b| */
{
    lreg s = m_add(m, a, b);
    return (struct pair){s, m_sub(m, b, m_sub(m, s, a))};
}

static struct pair halves(struct math *m, lreg a)
{
    lreg high = m_float(m, m_bin(m, L_AND, m_bits(m, a), m_int(m, -(INT64_C(1) << 27))));
    return (struct pair){high, m_sub(m, a, high)};
}

static struct pair product(struct math *m, lreg a, lreg b)
{
    struct pair x = halves(m, a), y = halves(m, b);
    lreg p = m_mul(m, a, b);
    lreg e = m_sub(m, m_mul(m, x.high, y.high), p);
    e = m_add(m, e, m_mul(m, x.high, y.low));
    e = m_add(m, e, m_mul(m, x.low, y.high));
    return (struct pair){p, m_add(m, e, m_mul(m, x.low, y.low))};
}

static struct pair pair_mul(struct math *m, struct pair a, struct pair b)
{
    struct pair p = product(m, a.high, b.high);
    lreg cross = m_add(m, m_mul(m, a.high, b.low), m_mul(m, a.low, b.high));
    return quick_sum(m, p.high, m_add(m, p.low, cross));
}

/* log x = k ln 2 + 2 s + s^3 (2/3 + ...), everything before the dots in pairs: relative error below 2^-64. */
static struct pair log_pair(struct math *m, lreg f, lreg k)
{
    lreg two = m_const(m, 2);
    struct pair d = quick_sum(m, two, f);
    lreg s_high = m_div(m, f, d.high);
    struct pair back = product(m, s_high, d.high);
    lreg rest = m_sub(m, m_sub(m, f, back.high), m_add(m, back.low, m_mul(m, s_high, d.low)));
    struct pair s = {s_high, m_div(m, rest, d.high)};
    struct pair z = pair_mul(m, s, s);
    lreg tail = m_mul(m, z.high, m_horner(m, z.high, log_r + 1, COUNT_OF(log_r) - 1));
    struct pair c = quick_sum(m, m_const(m, log_r[0]), m_addc(m, tail, 0x1.5555555555555p-55));
    struct pair cubic = pair_mul(m, pair_mul(m, s, z), c);
    struct pair base = {m_add(m, s.high, s.high), m_add(m, s.low, s.low)};
    struct pair l = quick_sum(m, base.high, cubic.high);
    l.low = m_add(m, l.low, m_add(m, base.low, cubic.low));
    /* ln 2 in three parts: k times the first two is exact. */
    lreg a = m_mulc(m, k, ln2_high), b = m_mulc(m, k, 0x1.a39ef3579p-33), e = m_mulc(m, k, 0x1.e3b39803f2f6bp-72);
    struct pair r = quick_sum(m, m_sel(m, m_cmp(m, L_EQ, k, m_const(m, 0)), l.high, a),
                              m_sel(m, m_cmp(m, L_EQ, k, m_const(m, 0)), m_const(m, 0), l.high));
    return quick_sum(m, r.high, m_add(m, m_add(m, r.low, b), m_add(m, l.low, e)));
}

/* |x| is finite and not zero */
static lreg pow_inside(struct math *m, lreg x, lreg y, bool precise)
{
    lreg f, k;
    if (!precise) {
        split(m, x, (lreg){0}, 0, &f, &k);
        return math_exp(m, m_mul(m, y, combine(m, f, k, (lreg){0})));
    }
    lreg tiny = m_cmp(m, L_LT, x, m_const(m, 0x1p-1022));
    split(m, m_sel(m, tiny, m_mulc(m, x, 0x1p54), x), tiny, 54, &f, &k);
    struct pair l = log_pair(m, f, k);
    /* Past 2^64 every power of a number that is not 1 is 0 or infinity; and y L must not overflow to NaN. */
    y = m_bin(m, L_MINNUM, m_const(m, 0x1p64), y);
    y = m_bin(m, L_MAXNUM, m_const(m, -0x1p64), y);
    struct pair p = product(m, y, l.high);
    lreg low = m_fma(m, y, l.low, p.low);
    lreg far = m_cmp(m, L_LT, m_const(m, 800), m_un(m, L_ABS, p.high));
    return math_exp_scaled(m, p.high, m_sel(m, far, m_const(m, 0), low), 0);
}

lreg math_pow(struct math *m, lreg x, lreg y, bool precise)
{
    lreg zero = m_const(m, 0), one = m_const(m, 1), inf = m_const(m, INFINITY), nan = m_const(m, NAN);
    lreg a = m_un(m, L_ABS, x);
    lreg y_negative = m_cmp(m, L_LT, y, zero);
    lreg whole = m_cmp(m, L_EQ, m_un(m, L_TRUNC, y), y);
    lreg half = m_mulc(m, y, 0.5);
    lreg odd = m_bin(m, L_AND, whole, m_cmp(m, L_NE, m_un(m, L_TRUNC, half), half));

    lreg r = pow_inside(m, a, y, precise);
    r = m_sel(m, m_cmp(m, L_EQ, a, zero), m_sel(m, y_negative, inf, zero), r);
    r = m_sel(m, m_cmp(m, L_EQ, a, inf), m_sel(m, y_negative, zero, inf), r);
    r = m_sel(m, m_cmp(m, L_EQ, a, one), one, r);
    lreg finite_negative = m_bin(m, L_AND, m_cmp(m, L_LT, x, zero), m_cmp(m, L_LT, a, inf));
    r = m_sel(m, m_bin(m, L_AND, finite_negative, m_un(m, L_NOT, whole)), nan, r);
    r = m_sel(m, odd, m_copysign(m, r, x), r);
    r = m_sel(m, m_bin(m, L_OR, m_is_nan(m, x), m_is_nan(m, y)), m_add(m, x, y), r);
    lreg is_one = m_bin(m, L_OR, m_cmp(m, L_EQ, y, zero), m_cmp(m, L_EQ, x, one));
    return m_sel(m, is_one, one, r);
}

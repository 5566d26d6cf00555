/* sin, cos for f32 and f64; tan, asin, acos, atan, atan2, sinh, cosh in f64 (f32 goes through f64). Polynomials are
 * minimax (Remez). ULP bounds: docs/numerics.md.
 */
#include "ir/loop/math/math.h"

#include <math.h>

static const double pio2_high = 0x1.921fb54442d18p+0, pio2_low = 0x1.1a62633145c06p-54;

static const double sin_f32[] = {-0x1.555546p-3, 0x1.11076p-7, -0x1.994e5cp-13};
static const double cos_f32[] = {0x1.55554ap-5, -0x1.6c0c8ap-10, 0x1.9a020cp-16};
static const double sin_f64[] = {-0x1.5555555555549p-3, 0x1.111111110f87ap-7,   -0x1.a01a019c1190ep-13,
                                 0x1.71de3577b0324p-19, -0x1.ae5e663602d6ap-26, 0x1.5d92ffc3481d4p-33};
static const double cos_f64[] = {0x1.555555555554cp-5,   -0x1.6c16c16c1517ep-10, 0x1.a01a019cb1be2p-16,
                                 -0x1.27e4f809f0d9dp-22, 0x1.1ee9ebe949ed3p-29,  -0x1.8fae9c7fafb19p-37};

/* Integer bits of quadrant + quarter; m is the f64 builder. */
static lreg quadrant_bits(struct math *m, lreg quadrant, int quarter)
{
    return m_bits(m, m_addc(m, quadrant, 0x1.8p52 + quarter));
}

/* Chooses by the quadrant's low bit and negates by the next one; bits has m's integer type. */
static lreg by_quadrant(struct math *m, lreg bits, lreg sine, lreg cosine)
{
    int sign_bit = m->t.elem == ELEM_F32 ? 31 : 63;
    lreg odd = m_cmp(m, L_NE, m_bin(m, L_AND, bits, m_int(m, 1)), m_int(m, 0));
    lreg sign = m_shift(m, L_SHL, m_bin(m, L_AND, bits, m_int(m, 2)), sign_bit - 1);
    return m_float(m, m_bin(m, L_XOR, m_bits(m, m_sel(m, odd, cosine, sine)), sign));
}

lreg math_sincos_f32(struct math *m, lreg x, int quarter)
{
    struct math wide = {m->f, m->b, {ELEM_F64, m->t.lanes}};
    struct reduced r = math_reduce(&wide, m_convert(m, x, ELEM_F64), true);
    lreg bits = m_convert(m, quadrant_bits(&wide, r.quadrant, quarter), ELEM_I32);
    lreg h = m_convert(m, r.high, ELEM_F32);
    lreg z = m_mul(m, h, h);
    lreg sine = m_fma(m, m_mul(m, h, z), m_horner(m, z, sin_f32, COUNT_OF(sin_f32)), h);
    lreg c = m_fma(m, m_horner(m, z, cos_f32, COUNT_OF(cos_f32)), z, m_const(m, -0.5));
    return by_quadrant(m, bits, sine, m_fma(m, c, z, m_const(m, 1)));
}

static lreg sine_f64(struct math *m, struct reduced r, lreg z)
{
    lreg slope = m_fma(m, z, m_const(m, -0.5), m_const(m, 1));
    lreg cubic = m_mul(m, m_mul(m, z, r.high), m_horner(m, z, sin_f64, COUNT_OF(sin_f64)));
    return m_add(m, r.high, m_fma(m, r.low, slope, cubic));
}

static lreg cosine_f64(struct math *m, struct reduced r, lreg z)
{
    lreg half = m_mulc(m, z, 0.5), one = m_const(m, 1);
    lreg w = m_sub(m, one, half);
    lreg lost = m_sub(m, m_sub(m, one, w), half);
    lreg tail = m_mul(m, m_mul(m, z, z), m_horner(m, z, cos_f64, COUNT_OF(cos_f64)));
    return m_add(m, w, m_add(m, lost, m_sub(m, tail, m_mul(m, r.high, r.low))));
}

/* Where the reduction has added zeros to -0, the argument is its own sine and tangent. */
static lreg keep_zero(struct math *m, lreg x, lreg r)
{
    return m_sel(m, m_cmp(m, L_EQ, x, m_const(m, 0)), x, r);
}

lreg math_sincos_f64(struct math *m, lreg x, int quarter)
{
    struct reduced r = math_reduce(m, x, false);
    lreg z = m_mul(m, r.high, r.high);
    lreg v = by_quadrant(m, quadrant_bits(m, r.quadrant, quarter), sine_f64(m, r, z), cosine_f64(m, r, z));
    return quarter ? v : keep_zero(m, x, v);
}

lreg math_tan(struct math *m, lreg x)
{
    struct reduced r = math_reduce(m, x, false);
    lreg z = m_mul(m, r.high, r.high);
    lreg s = sine_f64(m, r, z), c = cosine_f64(m, r, z);
    lreg bits = m_bin(m, L_AND, quadrant_bits(m, r.quadrant, 0), m_int(m, 1));
    lreg odd = m_cmp(m, L_NE, bits, m_int(m, 0));
    lreg numerator = m_sel(m, odd, m_un(m, L_NEG, c), s);
    return keep_zero(m, x, m_div(m, numerator, m_sel(m, odd, s, c)));
}

/* ---- inverse functions ------------------------------------------------------------------------------------------- */

/* atan of t in [0, infinity]: t, (t - 1) / (t + 1) or -1 / t lies within tan(pi/8) of 0. */
static lreg atan_positive(struct math *m, lreg t)
{
    static const double p[] = {-0x1.5555555555555p-2, 0x1.9999999999970p-3, -0x1.2492492490a6cp-3, 0x1.c71c71c61003cp-4,
                               -0x1.745d1712f39ebp-4, 0x1.3b13ab0603e3bp-4, -0x1.11108daaddf58p-4, 0x1.e1d2b6cecbf91p-5,
                               -0x1.ae89b39585b46p-5, 0x1.817e670774631p-5, -0x1.4c3aeb5bd101ep-5, 0x1.e54bb14955e40p-6,
                               -0x1.a993a83cc89e7p-7};
    lreg zero = m_const(m, 0), one = m_const(m, 1), two = m_const(m, 2);
    lreg large = m_cmp(m, L_LT, m_const(m, 0x1.3504f333f9de6p+1), t);
    lreg middle = m_cmp(m, L_LT, m_const(m, 0x1.a827999fcef32p-2), t);
    lreg numerator = m_sel(m, large, m_const(m, -1), m_sel(m, middle, m_addc(m, t, -1), t));
    lreg denominator = m_sel(m, large, t, m_sel(m, middle, m_add(m, t, one), one));
    lreg eighths = m_sel(m, large, two, m_sel(m, middle, one, zero)); /* the angle is this many pi/4 more */
    lreg a = m_div(m, numerator, denominator);
    lreg z = m_mul(m, a, a);
    lreg tail = m_mul(m, m_mul(m, a, z), m_horner(m, z, p, COUNT_OF(p)));
    tail = m_fma(m, eighths, m_const(m, pio2_low / 2), tail);
    return m_add(m, m_mulc(m, eighths, pio2_high / 2), m_add(m, a, tail));
}

lreg math_atan(struct math *m, lreg x)
{
    return m_copysign(m, atan_positive(m, m_un(m, L_ABS, x)), x);
}

/* All signs of zero and infinities as C has them. */
lreg math_atan2(struct math *m, lreg y, lreg x)
{
    lreg ax = m_un(m, L_ABS, x), ay = m_un(m, L_ABS, y), zero = m_const(m, 0), one = m_const(m, 1);
    lreg steep = m_cmp(m, L_LT, ax, ay);
    lreg small = m_sel(m, steep, ax, ay), large = m_sel(m, steep, ay, ax);
    lreg q = m_div(m, small, large);
    q = m_sel(m, m_cmp(m, L_EQ, small, m_const(m, INFINITY)), one, q);
    q = m_sel(m, m_cmp(m, L_EQ, large, zero), zero, q);
    lreg a = atan_positive(m, q);
    a = m_sel(m, steep, m_add(m, m_sub(m, m_const(m, pio2_high), a), m_const(m, pio2_low)), a);
    lreg left = m_cmp(m, L_LT, m_bits(m, x), m_int(m, 0));
    lreg mirrored = m_sub(m, m_const(m, 2 * pio2_high), m_sub(m, a, m_const(m, 2 * pio2_low)));
    lreg r = m_copysign(m, m_sel(m, left, mirrored, a), y);
    return m_sel(m, m_bin(m, L_OR, m_is_nan(m, x), m_is_nan(m, y)), m_add(m, x, y), r);
}

/* asin(t) for t <= 1/2 is s + tail with z = t^2; above, with s = sqrt z, z = (1 - t) / 2, it is pi/2 - 2 (s + tail). */
struct half_asin {
    lreg t, is_large, s, tail;
};

static struct half_asin asin_parts(struct math *m, lreg x)
{
    static const double p[] = {0x1.5555555555553p-3,  0x1.3333333333a67p-4, 0x1.6db6db6d464d9p-5,  0x1.f1c71ca9456e6p-6,
                               0x1.6e8b9acf9496cp-6,  0x1.1c4f88492b632p-6, 0x1.c9809097a7517p-7,  0x1.7ba751d8608c0p-7,
                               0x1.36ad32809ccc9p-7,  0x1.48745b335f80bp-7, 0x1.4d338b6838cdap-11, 0x1.986fe2e964c80p-6,
                               -0x1.ae9cf0bc7b54fp-6, 0x1.143da87dbd60bp-5};
    struct half_asin h = {.t = m_un(m, L_ABS, x)};
    h.is_large = m_cmp(m, L_LT, m_const(m, 0.5), h.t);
    lreg z = m_sel(m, h.is_large, m_mulc(m, m_sub(m, m_const(m, 1), h.t), 0.5), m_mul(m, h.t, h.t));
    h.s = m_sel(m, h.is_large, m_un(m, L_SQRT, z), h.t);
    h.tail = m_mul(m, m_mul(m, h.s, z), m_horner(m, z, p, COUNT_OF(p)));
    return h;
}

lreg math_asin(struct math *m, lreg x)
{
    struct half_asin h = asin_parts(m, x);
    lreg minus_two = m_const(m, -2);
    lreg near_one = m_fma(m, minus_two, h.s, m_const(m, pio2_high));
    near_one = m_add(m, near_one, m_fma(m, minus_two, h.tail, m_const(m, pio2_low)));
    return m_copysign(m, m_sel(m, h.is_large, near_one, m_add(m, h.s, h.tail)), x);
}

lreg math_acos(struct math *m, lreg x)
{
    struct half_asin h = asin_parts(m, x);
    lreg negative = m_cmp(m, L_LT, x, m_const(m, 0));
    lreg a = m_add(m, h.s, h.tail);
    lreg twice = m_add(m, a, a);
    lreg near_minus_one = m_sub(m, m_const(m, 2 * pio2_high), m_sub(m, twice, m_const(m, 2 * pio2_low)));
    lreg large = m_sel(m, negative, near_minus_one, twice);
    lreg signed_tail = m_copysign(m, h.tail, x);
    lreg small = m_sub(m, m_const(m, pio2_high), m_sub(m, x, m_sub(m, m_const(m, pio2_low), signed_tail)));
    return m_sel(m, h.is_large, large, small);
}

/* ---- hyperbolic functions ---------------------------------------------------------------------------------------- */

/* Past 22 the other exponential is below half an ulp, and exp(t) / 2 does not overflow before the result does. */
lreg math_sinh(struct math *m, lreg x)
{
    lreg t = m_un(m, L_ABS, x);
    lreg e = math_expm1(m, t);
    lreg small = m_mulc(m, m_add(m, e, m_div(m, e, m_addc(m, e, 1))), 0.5);
    lreg large = math_exp_scaled(m, t, (lreg){0}, -1);
    return m_copysign(m, m_sel(m, m_cmp(m, L_LT, m_const(m, 22), t), large, small), x);
}

lreg math_cosh(struct math *m, lreg x)
{
    lreg half = math_exp_scaled(m, m_un(m, L_ABS, x), (lreg){0}, -1);
    return m_add(m, half, m_div(m, m_const(m, 0.25), half));
}

/* exp, expm1, tanh, sigmoid, erf for f32 and f64 lanes.
 *
 * All reduce x = n ln 2 + r, |r| <= ln 2 / 2, with n taken from the low bits of x log2 e + 1.5 * 2^(p-1) and ln 2 in
 * two parts of which n times the first is exact (Cody & Waite 1980), so that targets without fused multiplication lose
 * nothing there. Where 2^n is wanted as a float at once, what the exponent field adds is part of the magic number.
 * exp(r) - 1 = r + r^2 q(r), q minimax (Remez), relative to expm1 or (shorter) to exp. Clamps put the bound first:
 * minnum and maxnum hand on their second operand, so NaNs pass. ULP bounds: docs/numerics.md.
 */
#include "ir/loop/math/math.h"

#include <math.h>

struct exp_consts {
    int mantissa, bias;
    double magic, low, high;      /* clamps: results below and above are 0 and infinity */
    double expm1_low, expm1_high, expm1_tiny;
    double tanh_high;             /* from where the sigmoid is 1, and tanh of half of it */
    double ln2_high, ln2_low;
    int far;                      /* half of the normal exponents */
    uint32_t n, n_short;
    const double *q, *q_short;
};
static const double short_f32[] = {0x1.fffffcp-2, 0x1.55548cp-3, 0x1.555858p-5, 0x1.123deap-7, 0x1.6ac81ep-10};
static const double q_f32[] = {0x1p-1, 0x1.555556p-3, 0x1.55549ep-5, 0x1.11101cp-7, 0x1.6d84b6p-10, 0x1.a2a57ep-13};
static const double q_f64[] = {0x1p-1,
                               0x1.5555555555555p-3,
                               0x1.5555555555543p-5,
                               0x1.11111111118b1p-7,
                               0x1.6c16c16bfab8bp-10,
                               0x1.a01a019de47acp-13,
                               0x1.a01a02ef660f3p-16,
                               0x1.71de2d989bc13p-19,
                               0x1.27e0a4ece18d3p-22,
                               0x1.aef85f2a706b9p-26,
                               0x1.27e91d8f56aacp-29};
static const struct exp_consts consts_f32 = {23,
                                             127,
                                             0x1.8p23,
                                             -104,
                                             89,
                                             -20,
                                             88.75,
                                             0x1p-26,
                                             20,
                                             0x1.62e4p-1,
                                             0x1.7f7d1cp-20,
                                             64,
                                             COUNT_OF(q_f32),
                                             COUNT_OF(short_f32),
                                             q_f32,
                                             short_f32};
static const struct exp_consts consts_f64 = {52,
                                             1023,
                                             0x1.8p52,
                                             -746,
                                             710,
                                             -45,
                                             709.8,
                                             0x1p-56,
                                             44,
                                             0x1.62e42feep-1,
                                             0x1.a39ef35793c76p-33,
                                             512,
                                             COUNT_OF(q_f64),
                                             COUNT_OF(q_f64),
                                             q_f64,
                                             q_f64};

static const struct exp_consts *consts_of(const struct math *m)
{
    return m->t.elem == ELEM_F32 ? &consts_f32 : &consts_f64;
}

/* *shifted: n + magic + plus; the low bits of its bits are n + plus. Returns r (+ low when given). */
static lreg reduce(struct math *m, lreg x, lreg low, int plus, lreg *shifted)
{
    const struct exp_consts *k = consts_of(m);
    lreg t = m_fma(m, x, m_const(m, 0x1.71547652b82fep+0), m_const(m, k->magic + plus));
    lreg n = m_addc(m, t, -k->magic - plus);
    lreg r = m_fma(m, n, m_const(m, -k->ln2_high), x);
    if (low.i)
        r = m_add(m, r, m_fma(m, n, m_const(m, -k->ln2_low), low));
    else
        r = m_fma(m, n, m_const(m, -k->ln2_low), r);
    *shifted = t;
    return r;
}

/* exp(r) - 1 */
static lreg reduced_expm1(struct math *m, lreg r)
{
    const struct exp_consts *k = consts_of(m);
    lreg q = m_horner(m, r, k->q, k->n);
    return m_fma(m, m_mul(m, r, r), q, r);
}

/* exp(r), relative to itself */
static lreg reduced_exp(struct math *m, lreg r)
{
    const struct exp_consts *k = consts_of(m);
    lreg one = m_const(m, 1), q = m_horner(m, r, k->q_short, k->n_short);
    return m_fma(m, m_fma(m, q, r, one), r, one);
}

static lreg power_of(struct math *m, lreg shifted)     /* 2^n where plus was the bias */
{
    return m_float(m, m_shift(m, L_SHL, m_bits(m, shifted), consts_of(m)->mantissa));
}

/* scale = 2^(n + power) and p = exp(r) - 1 of a clamped x whose n lies within the normal exponents. */
struct parts {
    lreg scale, p;
};

static struct parts exp_parts(struct math *m, lreg x, int power)
{
    lreg shifted, p = reduced_expm1(m, reduce(m, x, (lreg){0}, consts_of(m)->bias + power, &shifted));
    return (struct parts){power_of(m, shifted), p};
}

/* The scaling alone overflows or becomes subnormal. */
static lreg exp_scaled(struct math *m, lreg x, lreg low, int power, double least, double most)
{
    const struct exp_consts *k = consts_of(m);
    double high = k->high + (power < 0 ? 1 : 0);
    lreg shifted;
    if (!(most <= high))
        x = m_bin(m, L_MINNUM, m_const(m, high), x);
    if (!(least >= k->low))
        x = m_bin(m, L_MAXNUM, m_const(m, k->low), x);
    int plus = 2 * k->bias; /* what targets without the operation need in the exponents of two factors */
    lreg e = reduced_exp(m, reduce(m, x, low, plus + power, &shifted));
    return m_bin(m, L_LDEXP, e, m_addc(m, shifted, -k->magic - plus));
}

lreg math_exp_scaled(struct math *m, lreg x, lreg low, int power)
{
    return exp_scaled(m, x, low, power, -INFINITY, INFINITY);
}

lreg math_exp_within(struct math *m, lreg x, double least, double most)
{
    return exp_scaled(m, x, (lreg){0}, 0, least, most);
}

lreg math_exp(struct math *m, lreg x)
{
    return math_exp_within(m, x, -INFINITY, INFINITY);
}

lreg math_expm1(struct math *m, lreg x)
{
    const struct exp_consts *k = consts_of(m);
    lreg c = m_bin(m, L_MINNUM, m_const(m, k->expm1_high), x);
    c = m_bin(m, L_MAXNUM, m_const(m, k->expm1_low), c);
    struct parts e = exp_parts(m, c, -1);
    lreg half = m_fma(m, e.scale, e.p, m_addc(m, e.scale, -0.5));
    lreg tiny = m_cmp(m, L_LT, m_un(m, L_ABS, x), m_const(m, k->expm1_tiny));
    return m_sel(m, tiny, x, m_add(m, half, half));
}

/* tanh a = h / (h + 1), h = expm1(2a) / 2 = 2^n p + (2^n - 1) / 2, where a = n ln 2 / 2 + r and p = expm1(2r) / 2 =
 * r + r^2 q(r). n is small, and what ln 2 / 2 is off by in f32 (2^-30) counts ever less the larger it is. */
static lreg tanh_f32(struct math *m, lreg a)
{
    static const double q[] = {1, 0x1.555554p-1, 0x1.5554f2p-2, 0x1.1111cap-3, 0x1.6d40b8p-5, 0x1.9fbde2p-7};
    const struct exp_consts *k = consts_of(m);
    double magic = k->magic + k->bias;
    a = m_bin(m, L_MINNUM, m_const(m, k->tanh_high / 2), a);
    lreg shifted = m_fma(m, a, m_const(m, 0x1.715476p+1), m_const(m, magic)), half = m_const(m, 0.5);
    lreg r = m_fma(m, m_addc(m, shifted, -magic), m_const(m, -0x1.62e43p-2), a);
    lreg p = m_fma(m, m_mul(m, r, r), m_horner(m, r, q, COUNT_OF(q)), r), scale = power_of(m, shifted);
    lreg h = m_fma(m, scale, p, m_fma(m, scale, half, m_const(m, -0.5)));
    return m_div(m, h, m_addc(m, h, 1));
}

/* tanh |x| = 1 - 2 / (1 + exp 2|x|), near 0 expm1(2|x|) / (1 + exp 2|x|). The denominator 1 + 2^n + 2^n p is rounded
 * once. */
static lreg tanh_f64(struct math *m, lreg a)
{
    lreg one = m_const(m, 1), two = m_const(m, 2), small = m_cmp(m, L_LT, a, m_const(m, 0.55));
    struct parts k = exp_parts(m, m_bin(m, L_MINNUM, m_const(m, consts_of(m)->tanh_high), m_add(m, a, a)), 0);
    lreg d = m_fma(m, k.scale, k.p, m_add(m, k.scale, one)), e = m_fma(m, k.scale, k.p, m_addc(m, k.scale, -1));
    lreg t = m_div(m, m_sel(m, small, e, two), d);
    return m_sel(m, small, t, m_sub(m, one, t));
}

lreg math_tanh(struct math *m, lreg x)
{
    lreg a = m_un(m, L_ABS, x);
    return m_copysign(m, m->t.elem == ELEM_F32 ? tanh_f32(m, a) : tanh_f64(m, a), x);
}

/* 1 / (1 + exp(-x)), both sides of the quotient divided by a power of two: nothing overflows, and the division alone
 * makes denormals. Where x is clamped above, the result has long been 1. */
lreg math_sigmoid(struct math *m, lreg x)
{
    const struct exp_consts *k = consts_of(m);
    lreg shifted, unit = m_const(m, ldexp(1, -k->far));
    lreg y = m_bin(m, L_MINNUM, m_const(m, k->tanh_high), x);
    y = m_un(m, L_NEG, m_bin(m, L_MAXNUM, m_const(m, k->low), y));
    lreg e = reduced_exp(m, reduce(m, y, (lreg){0}, k->bias - k->far, &shifted));
    return m_div(m, unit, m_fma(m, power_of(m, shifted), e, unit));
}

/* erf |x| = 1 - (1 - p)^2 = 2p - p^2, where p(t) / t = (1 - sqrt(erfc t)) / t is minimax on [0, 3.935], past which erf
 * rounds to 1; the weight of the fit is the error's effect on the result. Squaring halves the errors where p nears 1.
 * p'(0) = 1 / sqrt pi comes in two parts. */
lreg math_erf_f32(struct math *m, lreg x)
{
    static const double q[] = {-0x1.f7ac92p-26, 0x1.45f264p-3,  -0x1.92667p-4,  -0x1.602afep-5, 0x1.1dd94p-6,
                               0x1.73b382p-8,   -0x1.4389p-14,  -0x1.77dd62p-9, 0x1.5fbd84p-10, -0x1.0a4e84p-12,
                               0x1.09d33cp-16,  0x1.497e5cp-20, -0x1.5ca16p-23};
    lreg t = m_bin(m, L_MINNUM, m_const(m, 3.935), m_un(m, L_ABS, x));
    lreg low = m_mul(m, t, m_horner(m, t, q, COUNT_OF(q)));
    lreg p = m_fma(m, t, m_const(m, 0x1.20dd76p-1), low);
    return m_copysign(m, m_fma(m, m_un(m, L_NEG, p), p, m_add(m, p, p)), x);
}

/* |x| < 1: x p(x^2). Beyond: 1 - exp(-x^2) g(u) / (1 + 2x), u = (x - 2.5) / (x + 2.5), g minimax on [1, 6] in u (the
 * mapping of Shepherd & Laframboise 1981). */
lreg math_erf_f64(struct math *m, lreg x)
{
    static const double p[] = {0x1.20dd750429b6dp+0,   -0x1.812746b0379e6p-2,  0x1.ce2f21a042b20p-4,
                               -0x1.b82ce3128498cp-6,  0x1.565bcd0db0053p-8,   -0x1.c02db3d8e573cp-11,
                               0x1.f9a321a03506dp-14,  -0x1.f4d1df27393c9p-17, 0x1.b9def0aef3191p-20,
                               -0x1.5f1d2e9e9c4edp-23, 0x1.f7a3b8569951ap-27,  -0x1.3869a45ed596cp-30,
                               0x1.05769814e2afbp-34};
    static const double g[] = {0x1.43cc6f6c9672dp+0,   -0x1.f52c5d7e22167p-4,  -0x1.959ac16f879c8p-4,
                               0x1.42d379986df78p-3,   -0x1.a5c0c8a6b9905p-4,  0x1.0c6092cc4a5dep-5,
                               0x1.e89555297edeap-11,  -0x1.1f2e8d8dc18c4p-8,  0x1.01dfe3de7e608p-11,
                               0x1.4af4d8ae557e9p-11,  -0x1.86f6b0af29b18p-14, -0x1.096258a4a7eb0p-13,
                               -0x1.d5d78b13dc363p-17, 0x1.bcfe1163a13f1p-18};
    lreg t = m_bin(m, L_MINNUM, m_const(m, 6), m_un(m, L_ABS, x));
    lreg z = m_mul(m, t, t);
    lreg small = m_mul(m, t, m_horner(m, z, p, COUNT_OF(p)));
    lreg u = m_div(m, m_addc(m, t, -2.5), m_addc(m, t, 2.5));
    lreg tail = m_mul(m, math_exp(m, m_un(m, L_NEG, z)), m_horner(m, u, g, COUNT_OF(g)));
    lreg one = m_const(m, 1);
    tail = m_div(m, tail, m_fma(m, t, m_const(m, 2), one));
    lreg r = m_sel(m, m_cmp(m, L_LT, t, one), small, m_sub(m, one, tail));
    return m_copysign(m, m_un(m, L_ABS, r), x);
}

/* Internal to the vector mathematics of the loop IR (ir/loop_math*.c): a builder of short expressions, and the
 * functions that one file offers to the others. All work on one vector type m->t (f32 or f64, any lanes) and append to
 * m->b.
 */
#pragma once

#include "ir/loop/loop.h"

struct math {
    struct lfunc *f;
    lblock b;
    struct ltype t;
};

/* ---- builder (ir/loop/math/build.c) ------------------------------------------------------------------------------ */

lreg m_const(struct math *, double); /* of m->t */
lreg m_int(struct math *, int64_t); /* integer of m->t's width and lanes */
lreg m_un(struct math *, enum lop, lreg);
lreg m_bin(struct math *, enum lop, lreg, lreg); /* result: type of the first operand */
lreg m_fma(struct math *, lreg a, lreg b, lreg c);
lreg m_cmp(struct math *, enum lop, lreg, lreg);
lreg m_sel(struct math *, lreg cond, lreg then, lreg otherwise);
lreg m_bits(struct math *, lreg); /* float -> integer of equal width */
lreg m_float(struct math *, lreg); /* and back */
lreg m_shift(struct math *, enum lop, lreg, int64_t amount);
lreg m_convert(struct math *, lreg, enum elem);
lreg m_horner(struct math *, lreg x, const double *c, uint32_t n); /* c[0] + c[1] x + ... */
lreg m_copysign(struct math *, lreg magnitude, lreg sign);
lreg m_is_nan(struct math *, lreg);

static inline lreg m_add(struct math *m, lreg a, lreg b)
{
    return m_bin(m, L_ADD, a, b);
}
static inline lreg m_sub(struct math *m, lreg a, lreg b)
{
    return m_bin(m, L_SUB, a, b);
}
static inline lreg m_mul(struct math *m, lreg a, lreg b)
{
    return m_bin(m, L_MUL, a, b);
}
static inline lreg m_div(struct math *m, lreg a, lreg b)
{
    return m_bin(m, L_DIV, a, b);
}
static inline lreg m_addc(struct math *m, lreg a, double c)
{
    return m_bin(m, L_ADD, a, m_const(m, c));
}
static inline lreg m_mulc(struct math *m, lreg a, double c)
{
    return m_bin(m, L_MUL, a, m_const(m, c));
}

/* ---- exp and its kin, f32 and f64 (ir/loop/math/exp.c) ----------------------------------------------------------- */

lreg math_exp(struct math *, lreg x);
lreg math_exp_within(struct math *, lreg x, double least, double most); /* least <= x <= most, or x is NaN */
/* exp(x + low) * 2^power with one rounding at the end; |low| tiny. */
lreg math_exp_scaled(struct math *, lreg x, lreg low, int power);
lreg math_expm1(struct math *, lreg x);
lreg math_tanh(struct math *, lreg x);
lreg math_sigmoid(struct math *, lreg x);
lreg math_erf_f32(struct math *, lreg x);
lreg math_erf_f64(struct math *, lreg x);

/* ---- log and its kin (ir/loop/math/log.c) ------------------------------------------------------------------------ */

lreg math_log(struct math *, lreg x);
lreg math_log1p(struct math *, lreg x);
lreg math_asinh(struct math *, lreg x); /* f64 */
lreg math_acosh(struct math *, lreg x); /* f64 */
lreg math_atanh(struct math *, lreg x); /* f64 */
/* f64; precise: the logarithm in double-double, for f64 results; else good to 2^-45, for f32 results. */
lreg math_pow(struct math *, lreg x, lreg y, bool precise);

/* ---- circular functions (ir/loop/math/trig.c) -------------------------------------------------------------------- */

/* x = quadrant * pi/2 + high + low in f64 lanes; quadrant is a small integer. for_f32: x came from f32, low is 0
 * (ir/loop/math/reduce.c). */
struct reduced {
    lreg high, low, quadrant;
};
struct reduced math_reduce(struct math *, lreg x, bool for_f32);

lreg math_sincos_f32(struct math *, lreg x, int quarter); /* sin(x + quarter * pi/2) */
lreg math_sincos_f64(struct math *, lreg x, int quarter);
lreg math_tan(struct math *, lreg x); /* f64, as all that follow */
lreg math_asin(struct math *, lreg x);
lreg math_acos(struct math *, lreg x);
lreg math_atan(struct math *, lreg x);
lreg math_atan2(struct math *, lreg y, lreg x);
lreg math_sinh(struct math *, lreg x);
lreg math_cosh(struct math *, lreg x);

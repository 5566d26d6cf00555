/* Internal to the vector mathematics of the loop IR (ir/loop_math*.c): a builder of short expressions, and the functions
 * that one file offers to the others. All work on one vector type m->t (f32 or f64, any lanes) and append to m->b.
 */
#ifndef MCC_IR_LOOP_MATH_H
#define MCC_IR_LOOP_MATH_H

#include "ir/loop/loop.h"

struct math {
    struct lfunc *f;
    lblock b;
    struct ltype t;
};

/* ---- builder (ir/loop/math/build.c) ---------------------------------------------------------------------------------- */

lval m_const(struct math *, double); /* of m->t */
lval m_int(struct math *, int64_t); /* integer of m->t's width and lanes */
lval m_un(struct math *, enum lop, lval);
lval m_bin(struct math *, enum lop, lval, lval); /* result: type of the first operand */
lval m_fma(struct math *, lval a, lval b, lval c);
lval m_cmp(struct math *, enum lop, lval, lval);
lval m_sel(struct math *, lval cond, lval then, lval otherwise);
lval m_bits(struct math *, lval); /* float -> integer of equal width */
lval m_float(struct math *, lval); /* and back */
lval m_shift(struct math *, enum lop, lval, int64_t amount);
lval m_convert(struct math *, lval, enum elem);
lval m_horner(struct math *, lval x, const double *c, uint32_t n); /* c[0] + c[1] x + ... */
lval m_copysign(struct math *, lval magnitude, lval sign);
lval m_is_nan(struct math *, lval);

static inline lval m_add(struct math *m, lval a, lval b)
{
    return m_bin(m, L_ADD, a, b);
}
static inline lval m_sub(struct math *m, lval a, lval b)
{
    return m_bin(m, L_SUB, a, b);
}
static inline lval m_mul(struct math *m, lval a, lval b)
{
    return m_bin(m, L_MUL, a, b);
}
static inline lval m_div(struct math *m, lval a, lval b)
{
    return m_bin(m, L_DIV, a, b);
}
static inline lval m_addc(struct math *m, lval a, double c)
{
    return m_bin(m, L_ADD, a, m_const(m, c));
}
static inline lval m_mulc(struct math *m, lval a, double c)
{
    return m_bin(m, L_MUL, a, m_const(m, c));
}

/* ---- exp and its kin, f32 and f64 (ir/loop/math/exp.c) ------------------------------------------------------------------ */

lval math_exp(struct math *, lval x);
/* exp(x + low) * 2^power with one rounding at the end; |low| tiny. */
lval math_exp_scaled(struct math *, lval x, lval low, int power);
lval math_expm1(struct math *, lval x);
lval math_tanh(struct math *, lval x);
lval math_sigmoid(struct math *, lval x);
lval math_erf_f32(struct math *, lval x);
lval math_erf_f64(struct math *, lval x);

/* ---- log and its kin (ir/loop/math/log.c) ---------------------------------------------------------------------------------- */

lval math_log(struct math *, lval x);
lval math_log1p(struct math *, lval x);
lval math_asinh(struct math *, lval x); /* f64 */
lval math_acosh(struct math *, lval x); /* f64 */
lval math_atanh(struct math *, lval x); /* f64 */
/* f64; precise: the logarithm in double-double, for f64 results; else good to 2^-45, for f32 results. */
lval math_pow(struct math *, lval x, lval y, bool precise);

/* ---- circular functions (ir/loop/math/trig.c) -------------------------------------------------------------------------------- */

/* x = quadrant * pi/2 + high + low in f64 lanes; quadrant is a small integer. for_f32: x came from f32, low is 0
 * (ir/loop/math/reduce.c). */
struct reduced {
    lval high, low, quadrant;
};
struct reduced math_reduce(struct math *, lval x, bool for_f32);

lval math_sincos_f32(struct math *, lval x, int quarter); /* sin(x + quarter * pi/2) */
lval math_sincos_f64(struct math *, lval x, int quarter);
lval math_tan(struct math *, lval x); /* f64, as all that follow */
lval math_asin(struct math *, lval x);
lval math_acos(struct math *, lval x);
lval math_atan(struct math *, lval x);
lval math_atan2(struct math *, lval y, lval x);
lval math_sinh(struct math *, lval x);
lval math_cosh(struct math *, lval x);

#endif

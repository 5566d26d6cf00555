/* Vector mathematics: core operators of f32 and f64 lanes -> loop-IR statements. f32 has its own forms where networks
 * spend their time (exp, log, tanh, sigmoid, erf, sin, cos, expm1, log1p); the rest computes in f64 and rounds once.
 * No form reads memory or calls anything; none depends on other lanes. ULP bounds: docs/numerics.md.
 */
#include "ir/loop/math/math.h"

typedef lval unary_fn(struct math *, lval);

static lval sin_f32(struct math *m, lval x) { return math_sincos_f32(m, x, 0); }
static lval cos_f32(struct math *m, lval x) { return math_sincos_f32(m, x, 1); }
static lval sin_f64(struct math *m, lval x) { return math_sincos_f64(m, x, 0); }
static lval cos_f64(struct math *m, lval x) { return math_sincos_f64(m, x, 1); }

static const struct { unary_fn *f32, *f64; } unary[OP_COUNT] = {     /* f32 NULL: through f64 */
    [OP_EXP] = { math_exp, math_exp },
    [OP_EXPM1] = { math_expm1, math_expm1 },
    [OP_LOG] = { math_log, math_log },
    [OP_LOG1P] = { math_log1p, math_log1p },
    [OP_TANH] = { math_tanh, math_tanh },
    [OP_SIGMOID] = { math_sigmoid, math_sigmoid },
    [OP_ERF] = { math_erf_f32, math_erf_f64 },
    [OP_SIN] = { sin_f32, sin_f64 },
    [OP_COS] = { cos_f32, cos_f64 },
    [OP_TAN] = { NULL, math_tan },
    [OP_ASIN] = { NULL, math_asin },
    [OP_ACOS] = { NULL, math_acos },
    [OP_ATAN] = { NULL, math_atan },
    [OP_SINH] = { NULL, math_sinh },
    [OP_COSH] = { NULL, math_cosh },
    [OP_ASINH] = { NULL, math_asinh },
    [OP_ACOSH] = { NULL, math_acosh },
    [OP_ATANH] = { NULL, math_atanh },
};

static lval binary(struct math *m, enum op op, lval a, lval b, bool precise)
{
    return op == OP_POW ? math_pow(m, a, b, precise) : math_atan2(m, a, b);
}

bool lf_math_is_long(enum op op)
{
    return op == OP_POW || op == OP_ATAN2 || (op < OP_COUNT && unary[op].f64 && !unary[op].f32);
}

lval lf_math(struct lfunc *f, lblock b, enum op op, struct ltype t, const lval *in, uint32_t n_in)
{
    struct math m = { f, b, t };
    bool is_binary = op == OP_POW || op == OP_ATAN2;
    if ((t.elem != ELEM_F32 && t.elem != ELEM_F64) || t.lanes == 0 || op >= OP_COUNT || n_in != 1u + is_binary ||
        (!is_binary && !unary[op].f64))
        return (lval){ 0 };
    if (t.elem == ELEM_F64)
        return is_binary ? binary(&m, op, in[0], in[1], true) : unary[op].f64(&m, in[0]);
    if (!is_binary && unary[op].f32)
        return unary[op].f32(&m, in[0]);
    lval x = m_convert(&m, in[0], ELEM_F64), y = is_binary ? m_convert(&m, in[1], ELEM_F64) : (lval){ 0 };
    m.t.elem = ELEM_F64;
    lval r = is_binary ? binary(&m, op, x, y, false) : unary[op].f64(&m, x);
    return m_convert(&m, r, ELEM_F32);
}

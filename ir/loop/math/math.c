/* Vector mathematics: core operators of f32 and f64 lanes -> loop-IR statements. f32 has its own forms where networks
 * spend their time (exp, log, tanh, sigmoid, erf, sin, cos, expm1, log1p); the rest computes in f64 and rounds once.
 * No form reads memory or calls anything; none depends on other lanes. ULP bounds: docs/numerics.md.
 */
#include "ir/loop/math/math.h"

#include <math.h>

typedef lreg unary_fn(struct math *, lreg);
typedef lreg binary_fn(struct math *, lreg, lreg, bool precise);

static lreg sin_f32(struct math *m, lreg x)
{
    return math_sincos_f32(m, x, 0);
}
static lreg cos_f32(struct math *m, lreg x)
{
    return math_sincos_f32(m, x, 1);
}
static lreg sin_f64(struct math *m, lreg x)
{
    return math_sincos_f64(m, x, 0);
}
static lreg cos_f64(struct math *m, lreg x)
{
    return math_sincos_f64(m, x, 1);
}
static lreg atan2_f64(struct math *m, lreg y, lreg x, bool precise)
{
    (void)precise;
    return math_atan2(m, y, x);
}

static const struct {
    unary_fn *f32, *f64;
    binary_fn *two;
} functions[OP_COUNT] = {
                                                                                         /* f32 NULL: through f64 */
#define NONE {0}
#define MATH1(for_f32, for_f64) {.f32 = for_f32, .f64 = for_f64}
#define MATH2(for_f64) {.two = for_f64}
#define SCALAR(id, name, operands, cost, infer, classes, real, integer, symbol, lower, math) [OP_##id] = math,
#include "ir/ops/ops.def"
};

bool lf_math_is_long(enum op op)
{
    return op < OP_COUNT && (functions[op].two || (functions[op].f64 && !functions[op].f32));
}

lreg lf_math(struct lfunc *f, lblock b, enum op op, struct ltype t, const lreg *in, uint32_t n_in)
{
    return lf_math_within(f, b, op, t, in, n_in, -INFINITY, INFINITY);
}

static lreg expand(struct lfunc *f, lblock b, enum op op, struct ltype t, const lreg *in, uint32_t n_in, double least,
                   double most)
{
    struct math m = {f, b, t};
    if ((t.elem != ELEM_F32 && t.elem != ELEM_F64) || t.lanes == 0 || op >= OP_COUNT)
        return (lreg){0};
    binary_fn *two = functions[op].two;
    if ((!two && !functions[op].f64) || n_in != (two ? 2 : 1))
        return (lreg){0};
    if (f->ctx->field_code)
        return lf_field_function(f, b, op, t, in, n_in);
    if (op == OP_EXP)
        return math_exp_within(&m, in[0], least, most);
    if (t.elem == ELEM_F64)
        return two ? two(&m, in[0], in[1], true) : functions[op].f64(&m, in[0]);
    if (functions[op].f32)
        return functions[op].f32(&m, in[0]);
    lreg x = m_convert(&m, in[0], ELEM_F64), y = two ? m_convert(&m, in[1], ELEM_F64) : (lreg){0};
    m.t.elem = ELEM_F64;
    lreg r = two ? two(&m, x, y, false) : functions[op].f64(&m, x);
    return m_convert(&m, r, ELEM_F32);
}

/* select true, r, x, which code generation folds; the constant in the condition is named like the function, or
 * OP_COUNT: x is its other operand and r the first one. */
static lreg mark(struct lfunc *f, lblock b, enum op op, lreg r, lreg x)
{
    const struct ltype t = lf_type(f, r);
    lreg name = lf_op(f, b, L_CONST, (struct ltype){ELEM_F32, t.lanes}, NULL, 0);
    struct lstmt *s = lf_last(f, b);
    s->fimm = 1;
    s->imm = op;
    s->flags = L_FLAG_RESIDUE;
    lreg same = lf_op(f, b, L_EQ, (struct ltype){ELEM_BOOL, t.lanes}, (lreg[]){name, name}, 2);
    return lf_op(f, b, L_SELECT, t, (lreg[]){same, r, x}, 3);
}

lreg lf_math_within(struct lfunc *f, lblock b, enum op op, struct ltype t, const lreg *in, uint32_t n_in, double least,
                    double most)
{
    lreg r = expand(f, b, op, t, in, n_in, least, most);
    if (!r.i || !f->ctx->function_marks)
        return r;
    return mark(f, b, op, r, n_in == 1 ? in[0] : mark(f, b, OP_COUNT, in[0], in[1]));
}

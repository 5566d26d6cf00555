/* Builder of the vector mathematics: one call, one statement of the loop IR. */
#include "ir/loop/math/math.h"

static struct ltype int_type(const struct math *m)
{
    return (struct ltype){m->t.elem == ELEM_F32 ? ELEM_I32 : ELEM_I64, m->t.lanes};
}

static lreg constant(struct math *m, struct ltype t, int64_t i, double f)
{
    lreg v = lf_op(m->f, m->b, L_CONST, t, NULL, 0);
    struct lblk *blk = &m->f->blocks.data[m->b.i];
    blk->stmts.data[blk->stmts.n - 1].imm = i;
    blk->stmts.data[blk->stmts.n - 1].fimm = f;
    return v;
}

lreg m_const(struct math *m, double x)
{
    return constant(m, m->t, 0, m->t.elem == ELEM_F32 ? (double)(float)x : x);
}

lreg m_int(struct math *m, int64_t x)
{
    return constant(m, int_type(m), x, 0);
}

lreg m_un(struct math *m, enum lop op, lreg a)
{
    return lf_op(m->f, m->b, op, lf_type(m->f, a), &a, 1);
}

lreg m_bin(struct math *m, enum lop op, lreg a, lreg b)
{
    return lf_op(m->f, m->b, op, lf_type(m->f, a), (lreg[]){a, b}, 2);
}

lreg m_fma(struct math *m, lreg a, lreg b, lreg c)
{
    return lf_op(m->f, m->b, L_FMA, lf_type(m->f, a), (lreg[]){a, b, c}, 3);
}

lreg m_cmp(struct math *m, enum lop op, lreg a, lreg b)
{
    return lf_op(m->f, m->b, op, (struct ltype){ELEM_BOOL, lf_type(m->f, a).lanes}, (lreg[]){a, b}, 2);
}

lreg m_sel(struct math *m, lreg cond, lreg then, lreg otherwise)
{
    return lf_op(m->f, m->b, L_SELECT, lf_type(m->f, then), (lreg[]){cond, then, otherwise}, 3);
}

lreg m_bits(struct math *m, lreg a)
{
    return lf_op(m->f, m->b, L_BITCAST, int_type(m), &a, 1);
}

lreg m_float(struct math *m, lreg a)
{
    return lf_op(m->f, m->b, L_BITCAST, m->t, &a, 1);
}

lreg m_shift(struct math *m, enum lop op, lreg a, int64_t amount)
{
    return m_bin(m, op, a, constant(m, lf_type(m->f, a), amount, 0));
}

lreg m_convert(struct math *m, lreg a, enum elem to)
{
    return lf_op(m->f, m->b, L_CONVERT, (struct ltype){to, m->t.lanes}, &a, 1);
}

lreg m_horner(struct math *m, lreg x, const double *c, uint32_t n)
{
    lreg r = m_const(m, c[n - 1]);
    for (uint32_t i = n - 1; i-- > 0;)
        r = m_fma(m, r, x, m_const(m, c[i]));
    return r;
}

lreg m_copysign(struct math *m, lreg magnitude, lreg sign)
{
    int64_t bit = m->t.elem == ELEM_F32 ? INT32_MIN : INT64_MIN;
    lreg s = m_bin(m, L_AND, m_bits(m, sign), m_int(m, bit));
    return m_float(m, m_bin(m, L_OR, m_bits(m, magnitude), s));
}

lreg m_is_nan(struct math *m, lreg a)
{
    return m_cmp(m, L_NE, a, a);
}

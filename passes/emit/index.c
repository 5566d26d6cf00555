/* Index expressions as statements: scalars, or vectors where they depend on a lane. */
#include "passes/emit/emit.h"

static struct em_sym *sym_info(const struct em *em, sym_id s)
{
    for (uint32_t i = em->syms.n; i > 0; i--)
        if (em->syms.data[i - 1].sym.i == s.i)
            return &em->syms.data[i - 1];
    return NULL;
}

static lreg index_memo(const struct em *em, expr_id e, uint32_t lanes)
{
    for (uint32_t i = em->index_memo.n; i > 0; i--)
        if (em->index_memo.data[i - 1].e.i == e.i && em->index_memo.data[i - 1].lanes == lanes &&
            em_visible(em, em->index_memo.data[i - 1].v))
            return em->index_memo.data[i - 1].v;
    return (lreg){0};
}

uint32_t em_expr_lanes(const struct em *em, expr_id e)
{
    for (uint32_t i = 0; i < em->syms.n; i++)
        if (em->syms.data[i].lanes && ex_uses(em->x, e, em->syms.data[i].sym))
            return em->syms.data[i].lanes;
    return 0;
}

static lreg index_sym(struct em *em, sym_id s, uint32_t lanes)
{
    struct em_sym *info = sym_info(em, s);
    if (!info) {   /* a shape or value symbol that collect() did not see */
        em->failed = true;
        error_internal(em->m->ctx, (src_id){0}, "kernel %s: unbound symbol '%s'", em->f->name, sym_get(em->x, s)->name);
        return em_const(em, ELEM_I64, lanes, 0, 0);
    }
    if (!info->lanes)
        return em_splat(em, info->var, lanes);
    if (info->vector)
        return info->var;
    if (lanes <= 1)
        return em_const(em, ELEM_I64, 1, 0, 0);
    lreg v = lf_op(em->f, em->level[0], L_IOTA, (struct ltype){ELEM_I64, lanes}, NULL, 0);
    em_set_depth(em, v, 0);
    return v;
}

static lreg index_sum(struct em *em, expr_id e, uint32_t lanes)
{
    lreg sum = {0};
    int64_t c = ex_addend(em->x, e);
    uint32_t n = ex_n_args(em->x, e);
    /* Terms that depend on outer loops first, so that partial sums are hoisted: order by depth of the emitted term. */
    lreg term[64];
    uint32_t m = n < COUNT_OF(term) ? n : (uint32_t)COUNT_OF(term);
    for (uint32_t i = 0; i < n; i++) {
        lreg t = em_index_lanes(em, ex_arg(em->x, e, i), lanes);
        int64_t coef = ex_coef(em->x, e, i);
        if (coef != 1)
            t = em_op2(em, L_MUL, t, em_const(em, ELEM_I64, 1, 0, coef));
        if (i < m)
            term[i] = t;
        else
            term[m - 1] = em_op2(em, L_ADD, term[m - 1], t);
    }
    for (uint32_t i = 1; i < m; i++)
        for (uint32_t j = i; j > 0 && em_depth_of(em, term[j]) < em_depth_of(em, term[j - 1]); j--) {
            lreg t = term[j];
            term[j] = term[j - 1];
            term[j - 1] = t;
        }
    for (uint32_t i = 0; i < m; i++)
        sum = sum.i ? em_op2(em, L_ADD, sum, term[i]) : term[i];
    if (c != 0 || !sum.i) {
        lreg k = em_const(em, ELEM_I64, 1, 0, c);
        sum = sum.i ? em_op2(em, L_ADD, sum, k) : k;
    }
    return sum;
}

static lreg index_new(struct em *em, expr_id e, uint32_t lanes)
{
    int64_t c;
    lreg a, b;
    if (ex_is_const(em->x, e, &c))
        return em_const(em, ELEM_I64, lanes, 0, c);
    switch (ex_kind(em->x, e)) {
    case EX_SYM: return index_sym(em, ex_as_sym(em->x, e), lanes);
    case EX_SUM: return index_sum(em, e, lanes);
    case EX_PROD:
        a = em_index_lanes(em, ex_arg(em->x, e, 0), lanes);
        for (uint32_t i = 1; i < ex_n_args(em->x, e); i++)
            a = em_op2(em, L_MUL, a, em_index_lanes(em, ex_arg(em->x, e, i), lanes));
        return a;
    case EX_SELECT: {
        lreg in[3] = {em_cond(em, ex_arg(em->x, e, 0)), em_index_lanes(em, ex_arg(em->x, e, 1), lanes),
                      em_index_lanes(em, ex_arg(em->x, e, 2), lanes)};
        em_unify(em, in + 1, 2);
        struct ltype t = lf_type(em->f, in[1]);
        if (lf_type(em->f, in[0]).lanes > t.lanes) {
            t.lanes = lf_type(em->f, in[0]).lanes;
            in[1] = em_splat(em, in[1], t.lanes);
            in[2] = em_splat(em, in[2], t.lanes);
        }
        return em_op(em, L_SELECT, t, in, 3);
    }
    case EX_LT:
    case EX_EQ:
    case EX_AND:
    case EX_NOT: {
        lreg p = em_cond(em, e);
        struct ltype t = {ELEM_I64, lf_type(em->f, p).lanes};
        return em_splat(em, em_op(em, L_CONVERT, t, &p, 1), lanes);
    }
    default: break;
    }
    a = em_index_lanes(em, ex_arg(em->x, e, 0), lanes);
    b = em_index_lanes(em, ex_arg(em->x, e, 1), lanes);
    switch (ex_kind(em->x, e)) {
    case EX_DIV: return em_op2(em, L_FLOORDIV, a, b);
    case EX_MOD: return em_op2(em, L_FLOORMOD, a, b);
    case EX_MIN: return em_op2(em, L_MIN, a, b);
    default: return em_op2(em, L_MAX, a, b);
    }
}

lreg em_index_lanes(struct em *em, expr_id e, uint32_t lanes)
{
    if (lanes > 1 && !em_expr_lanes(em, e))
        return em_splat(em, em_index_lanes(em, e, 1), lanes);
    lreg v = index_memo(em, e, lanes);
    if (v.i)
        return v;
    v = em_splat(em, index_new(em, e, lanes), lanes);
    VEC_PUSH(em->arena, &em->index_memo, ((struct em_index_memo){e, lanes, v}));
    return v;
}

lreg em_index(struct em *em, expr_id e)
{
    return em_index_lanes(em, e, 1);
}

lreg em_cond(struct em *em, expr_id e)
{
    int64_t c;
    uint32_t lanes = em_expr_lanes(em, e);
    if (ex_is_const(em->x, e, &c))
        return em_const(em, ELEM_BOOL, 1, 0, c != 0);
    enum expr_kind kind = ex_kind(em->x, e);
    if (kind == EX_NOT) {
        return em_op1(em, L_NOT, em_cond(em, ex_arg(em->x, e, 0)));
    } else if (kind == EX_AND) {
        lreg p = em_cond(em, ex_arg(em->x, e, 0));
        for (uint32_t i = 1; i < ex_n_args(em->x, e); i++)
            p = em_op2(em, L_AND, p, em_cond(em, ex_arg(em->x, e, i)));
        return p;
    } else if (kind == EX_LT || kind == EX_EQ) {
        lreg a = em_index_lanes(em, ex_arg(em->x, e, 0), lanes ? lanes : 1);
        lreg b = em_index_lanes(em, ex_arg(em->x, e, 1), lanes ? lanes : 1);
        return em_op2(em, kind == EX_LT ? L_LT : L_EQ, a, b);
    }
    lreg v = em_index_lanes(em, e, lanes ? lanes : 1);
    return em_op2(em, L_NE, v, em_const(em, ELEM_I64, 1, 0, 0));
}

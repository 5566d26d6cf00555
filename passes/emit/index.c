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

/* Does e depend on dynamic sizes or values? */
static bool is_dynamic(const struct em *em, expr_id e)
{
    return ex_uses_kind(em->x, e, SYM_SHAPE) || ex_uses_kind(em->x, e, SYM_VALUE);
}

static bool may_trap(const struct exprs *x, expr_id e)
{
    enum expr_kind kind = ex_kind(x, e);
    if ((kind == EX_DIV || kind == EX_MOD) && ex_lo(x, ex_arg(x, e, 1)) < 1)
        return true;
    for (uint32_t i = 0; i < ex_n_args(x, e); i++)
        if (may_trap(x, ex_arg(x, e, i)))
            return true;
    return false;
}

/* What the program computes and passes: symbols, and quotients and the like of them. Sums and products of these are
 * computed here. So kernels whose sizes are different functions of the network's have the same code. */
static bool is_size(const struct em *em, expr_id e)
{
    enum expr_kind kind = ex_kind(em->x, e);
    return kind != EX_SUM && kind != EX_PROD && is_dynamic(em, e) && !ex_uses_kind(em->x, e, SYM_LOOP) &&
           !may_trap(em->x, e);
}

static lreg index_sym(struct em *em, sym_id s, uint32_t lanes)
{
    struct em_sym *info = sym_info(em, s);
    if (!info) { /* of another function */
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

/* Part of a sum: moving * coef, or moving * size, where only moving depends on loops. */
struct index_term {
    expr_id moving, size; /* {0}: coef */
    int64_t coef;
};

static struct index_term term_factors(struct em *em, expr_id term, int64_t coef)
{
    struct index_term t = {ex_const(em->x, 1), ex_const(em->x, coef), coef};
    bool product = ex_kind(em->x, term) == EX_PROD;
    for (uint32_t i = 0; i < (product ? ex_n_args(em->x, term) : 1); i++) {
        expr_id atom = product ? ex_arg(em->x, term, i) : term;
        expr_id *factor = ex_uses_kind(em->x, atom, SYM_LOOP) ? &t.moving : &t.size;
        *factor = ex_mul(em->x, *factor, atom);
    }
    return t;
}

/* The terms of a sum. If it depends on loops and dynamic sizes, those that differ in sizes alone are one: a stride that
 * is a polynomial of sizes is computed once, outside of all loops, and takes one multiplication. */
static uint32_t sum_terms(struct em *em, expr_id e, struct index_term *terms)
{
    uint32_t n = 0;
    bool factors = is_dynamic(em, e) && ex_uses_kind(em->x, e, SYM_LOOP);
    for (uint32_t i = 0; i < ex_n_args(em->x, e); i++) {
        struct index_term t = {.moving = ex_arg(em->x, e, i), .coef = ex_coef(em->x, e, i)};
        uint32_t k = 0;
        if (factors)
            t = term_factors(em, t.moving, t.coef);
        while (k < n && terms[k].moving.i != t.moving.i)
            k++;
        if (k == n)
            terms[n++] = t;
        else
            terms[k].size = ex_add(em->x, terms[k].size, t.size);
    }
    return n;
}

static lreg index_term(struct em *em, const struct index_term *t, uint32_t lanes)
{
    int64_t coef = t->coef;
    if (t->size.i && ex_is(em->x, t->moving, 1))
        return em_index_lanes(em, t->size, lanes);
    lreg v = em_index_lanes(em, t->moving, lanes);
    if (t->size.i && !ex_is_const(em->x, t->size, &coef))
        return em_op2(em, L_MUL, v, em_index(em, t->size));
    return coef == 1 ? v : em_op2(em, L_MUL, v, em_const(em, ELEM_I64, 1, 0, coef));
}

enum { TERMS_SORTED = 64 };

static lreg index_sum(struct em *em, expr_id e, uint32_t lanes)
{
    lreg sum = {0}, term[TERMS_SORTED];
    int64_t c = ex_addend(em->x, e);
    struct index_term *terms = NEW_ARRAY(em->arena, struct index_term, ex_n_args(em->x, e));
    uint32_t n = sum_terms(em, e, terms), m = n < TERMS_SORTED ? n : TERMS_SORTED;
    for (uint32_t i = 0; i < n; i++) {
        lreg t = index_term(em, &terms[i], lanes);
        term[i < m ? i : m - 1] = i < m ? t : em_op2(em, L_ADD, term[m - 1], t);
    }
    /* Terms that depend on outer loops first, so that partial sums are hoisted: order by depth of the emitted term. */
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
    if (is_size(em, e))
        return em_size(em, e);
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

/* Arithmetic over dynamic sizes leaves conditionals, so that all of them share it. (Constants are folded into
 * addresses.) */
static bool may_leave(const struct em *em, expr_id e)
{
    return is_dynamic(em, e) && !may_trap(em->x, e);
}

lreg em_index_lanes(struct em *em, expr_id e, uint32_t lanes)
{
    if (lanes > 1 && !em_expr_lanes(em, e))
        return em_splat(em, em_index_lanes(em, e, 1), lanes);
    lreg v = index_memo(em, e, lanes);
    if (v.i)
        return v;
    int floor = em->floor;
    if (floor && may_leave(em, e))
        em->floor = 0;
    v = em_splat(em, index_new(em, e, lanes), lanes);
    em->floor = floor;
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

expr_id em_inside(struct em *em, expr_id i, expr_id size)
{
    return ex_and(em->x, ex_le(em->x, ex_const(em->x, 0), i), ex_lt(em->x, i, size));
}

/* ---- symbols for indices ---- */

lreg em_tail_mask(struct em *em, expr_id left, uint32_t lanes)
{
    lreg iota = lf_op(em->f, em->level[0], L_IOTA, (struct ltype){ELEM_I64, lanes}, NULL, 0);
    return em_op2(em, L_LT, iota, em_index(em, left));
}

/* The lane stops where the dim does, as far as the simplifier is concerned: what lies after is masked everywhere. */
expr_id em_tail(struct em *em, expr_id base, expr_id left, uint32_t lanes)
{
    int64_t n;
    bool known = ex_is_const(em->x, left, &n);
    if (known && n == 1)
        return base;
    lreg mask = em_tail_mask(em, left, lanes);
    expr_id lane = em_symbol_new(em, 0, known ? n - 1 : (int64_t)lanes - 1,
                                 (struct em_sym){.depth = em_depth_of(em, mask), .lanes = lanes, .mask = mask});
    return ex_add(em->x, base, lane);
}

expr_id em_pin(struct em *em, expr_id e, int64_t lo, int64_t hi)
{
    const int64_t divisor = ex_divisor(em->x, e);
    lreg v = em_index(em, e);
    expr_id pinned = em_symbol_new(em, lo, hi, (struct em_sym){.depth = em->top, .var = v});
    if (divisor > 1 && lo < hi)
        sym_narrow(em->x, ex_as_sym(em->x, pinned), lo, hi, divisor);
    return pinned;
}

/* The keys that a block of rows can see: the farthest bounds of its rows (passes/module/attention_bounds.h), computed
 * once for the block. What is left out are spans whose terms are all 0; where a mask has a large number in place of
 * infinity, the rows' maxima decide that afterwards. */
#include "passes/emit/attention/attention.h"
#include "passes/module/attention_bounds.h"

#include <math.h>

/* Of the rows of one vector: the first key, and one after the last. {0}: no bound. */
struct reach {
    struct em *em;
    lreg first, end;
};

static lreg joined(struct em *em, enum lop op, lreg a, lreg b)
{
    return a.i ? em_op2(em, op, a, b) : b;
}

static void bound(void *user, value_id v, const expr_id *idx, bool end, bool more, double low)
{
    struct reach *r = user;
    (void)low;
    struct em *em = r->em;
    lreg at = em_value(em, v, idx, ex_const(em->x, 1));
    at = em_op(em, L_CONVERT, (struct ltype){ELEM_I64, lf_type(em->f, at).lanes}, &at, 1);
    if (more)
        at = em_op2(em, L_ADD, at, em_const(em, ELEM_I64, 1, 0, 1));
    if (end)
        r->end = joined(em, L_MIN, r->end, at);
    else
        r->first = joined(em, L_MAX, r->first, at);
}

/* Over all lanes. */
static lreg folded(struct em *em, enum lop op, lreg v)
{
    return !v.i || lf_type(em->f, v).lanes == 1 ? v : em_hreduce(em, op, v);
}

static lreg number(struct em *em, int64_t i)
{
    return em_const(em, ELEM_I64, 1, 0, i);
}

static void highest(void *user, value_id v, const expr_id *idx, bool end, bool more, double low)
{
    double *most = user;
    (void)v, (void)idx, (void)end, (void)more;
    *most = low > *most ? low : *most;
}

static expr_id any_key(const struct attn *t)
{
    struct exprs *x = t->em->x;
    const char *name = arena_printf(t->em->arena, "w%u", sym_count(x));
    return ex_sym(x, sym_new(x, SYM_LOOP, name, 0, ex_hi(x, t->keys)));
}

double attn_low(const struct attn *t)
{
    double low = -INFINITY;
    expr_id idx[RANK_MAX], key = any_key(t);
    attn_z_point(t, t->row[0], key, idx);
    attention_bounds(t->em->m, t->a, idx, key, highest, &low);
    return low;
}

lreg attn_far(struct attn *t, double low)
{
    struct em *em = t->em;
    lreg least = {0};
    for (int64_t j = 0; j < t->nv; j++) /* NaN is not far above */
        least = joined(em, L_MIN, least, em_scratch_load(em, t->m, ex_const(em->x, j * t->s->lanes), t->s->lanes));
    return em_op2(em, L_LT, em_const(em, ELEM_F32, 1, attention_far(low), 0), folded(em, L_MIN, least));
}

void attn_reach(struct attn *t, lreg every, expr_id *first, expr_id *end)
{
    struct em *em = t->em;
    struct reach all = {em, {0}, {0}};
    int64_t most = ex_hi(em->x, t->keys);
    expr_id key = any_key(t);
    for (int64_t j = 0; j < t->nv; j++) {
        struct reach rows = {em, {0}, {0}};
        expr_id idx[RANK_MAX];
        attn_z_point(t, t->row[j], key, idx);
        attention_bounds(em->m, t->a, idx, key, bound, &rows);
        if (rows.end.i)
            all.end = joined(em, L_MAX, all.end, folded(em, L_MAX, rows.end));
        if (rows.first.i)
            all.first = joined(em, L_MIN, all.first, folded(em, L_MIN, rows.first));
    }
    lreg keys = em_index(em, t->keys), last = em_op2(em, L_SUB, keys, number(em, 1));
    if (all.first.i) {
        all.first = em_op2(em, L_MAX, em_op2(em, L_MIN, all.first, last), number(em, 0));
        all.first = every.i ? em_select(em, every, number(em, 0), all.first) : all.first;
        *first = em_bind(em, all.first, most == INT64_MAX ? most : most - 1);
    }
    if (all.end.i) { /* a key at least: what rows without any give is decided after the spans */
        lreg least = all.first.i ? em_op2(em, L_ADD, all.first, number(em, 1)) : number(em, 1);
        all.end = em_op2(em, L_MIN, em_op2(em, L_MAX, all.end, least), keys);
        *end = em_bind(em, every.i ? em_select(em, every, keys, all.end) : all.end, most);
    }
}

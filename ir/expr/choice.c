/* Choice: select(c, t, f), and what its condition says inside its arms.
 *
 * Broadcasting makes dims like select(x == 1, y, x), of which chains of operators make nests. Two things keep
 * these small: an arm is simplified under its condition, and one arm stands for both when under the other
 * condition they are equal (under x == 1, x and 1 are the same). Assumptions within assumptions end at a fixed
 * depth; what stays unsimplified then is only larger, not wrong.
 */
#include "ir/expr/internal.h"

enum { ASSUME_DEPTH_MAX = 2, FACTS_MAX = 24 };

struct facts {
    struct exprs *x;
    expr_id from[FACTS_MAX], to[FACTS_MAX];
    uint32_t n;
};

static void fact_add(struct facts *f, expr_id from, expr_id to)
{
    if (!from.i || !to.i || f->n == FACTS_MAX || ex_is_const(f->x, from, NULL))
        return;
    f->from[f->n] = from;
    f->to[f->n++] = to;
}

/* q holds: q is 1, its opposite 0; an equality with a constant gives the value of the other side. */
static void fact_true(struct facts *f, expr_id q)
{
    struct exprs *x = f->x;
    fact_add(f, q, ex_const(x, 1));
    fact_add(f, ex_not(x, q), ex_const(x, 0));
    if (ex_kind(x, q) != EX_EQ)
        return;
    for (uint32_t i = 0; i < 2; i++)
        if (ex_is_const(x, ex_arg(x, q, i), NULL))
            fact_add(f, ex_arg(x, q, 1 - i), ex_arg(x, q, i));
}

static void facts_of(struct facts *f, expr_id cond, bool holds)
{
    struct exprs *x = f->x;
    if (!holds)
        cond = ex_not(x, cond);
    fact_add(f, ex_not(x, cond), ex_const(x, 0));
    for (; ex_kind(x, cond) == EX_AND; cond = ex_arg(x, cond, 0))
        fact_true(f, ex_arg(x, cond, 1));
    fact_true(f, cond);
}

/* e, where cond is known to hold or not. */
static expr_id assume(struct exprs *x, expr_id e, expr_id cond, bool holds)
{
    struct facts f = {.x = x};
    if (enode(x, e)->size > ASSUME_SIZE_MAX || !(enode(x, e)->syms & enode(x, cond)->syms))
        return e;
    attempt_begin(x);
    facts_of(&f, cond, holds);
    expr_id known = attempt_end(x, ex_replace(x, e, f.from, f.to, f.n));
    return known.i ? known : e;
}

/* c is not a constant, t and f are different. Calls ex_select again only with smaller arms. */
static expr_id choose(struct exprs *x, expr_id c, expr_id t, expr_id f)
{
    if (x->assuming < ASSUME_DEPTH_MAX && enode(x, c)->size <= ASSUME_SIZE_MAX) {
        x->assuming++;
        expr_id when = assume(x, t, c, true), otherwise = assume(x, f, c, false);
        expr_id f_when = assume(x, f, c, true), t_otherwise = assume(x, t, c, false);
        x->assuming--;
        if (f_when.i == when.i)
            return f;
        if (t_otherwise.i == otherwise.i)
            return t;
        uint32_t before = enode(x, t)->size + enode(x, f)->size;
        t = when;
        f = otherwise;
        if (enode(x, t)->size + enode(x, f)->size < before)   /* now the other rules may fit */
            return ex_select(x, c, t, f);
    } else {
        x->cut++;
    }
    if (t.i == f.i)
        return t;
    if (ex_is(x, t, 1) && ex_is(x, f, 0))
        return c;
    if (ex_is(x, t, 0) && ex_is(x, f, 1))
        return ex_not(x, c);
    const expr_id args[] = {c, t, f};
    return expr_intern(x, &(struct ekey){.kind = EX_SELECT, .n = 3, .arg = args});
}

expr_id ex_select(struct exprs *x, expr_id c, expr_id t, expr_id f)
{
    int64_t value;
    c = expr_to_bool(x, c);
    if (!c.i || !t.i || !f.i)
        return (expr_id){0};
    if (ex_is_const(x, c, &value))
        return value ? t : f;
    if (t.i == f.i)
        return t;
    if (ex_kind(x, c) == EX_NOT)
        return ex_select(x, ex_arg(x, c, 0), f, t);
    if (ex_kind(x, c) == EX_EQ && ex_eq(x, t, f).i == c.i)
        return f;
    if (ex_kind(x, c) == EX_LT) {
        if (ex_lt(x, t, f).i == c.i || ex_le(x, t, f).i == c.i)
            return ex_min(x, t, f);
        if (ex_lt(x, f, t).i == c.i || ex_le(x, f, t).i == c.i)
            return ex_max(x, t, f);
    }
    return choose(x, c, t, f);
}

/* gap with coef * choice replaced by coef * arm, compared with 0 where the choice's condition is known. */
static expr_id arm_equal(struct exprs *x, expr_id gap, int64_t coef, expr_id choice, expr_id arm, bool holds)
{
    struct poly p = poly_open(x);
    poly_add(&p, gap, 1);
    poly_add(&p, choice, -coef);
    poly_add(&p, arm, coef);
    return assume(x, ex_eq(x, poly_close(&p), ex_const(x, 0)), ex_arg(x, choice, 0), holds);
}

/* gap == 0 for a gap with a select in it, where that is decided in one of the arms: a condition on the other. {0}
 * else. */
expr_id expr_equal_by_choice(struct exprs *x, expr_id gap)
{
    VIEW_OF(v, x, gap);
    if (x->assuming >= ASSUME_DEPTH_MAX || enode(x, gap)->size > ASSUME_SIZE_MAX) {
        x->cut++;
        return (expr_id){0};
    }
    for (uint32_t i = 0; i < v.n; i++) {
        if (ex_kind(x, v.e[i]) != EX_SELECT)
            continue;
        expr_id choice = v.e[i], c = ex_arg(x, choice, 0);
        x->assuming++;
        expr_id t = arm_equal(x, gap, v.coef[i], choice, ex_arg(x, choice, 1), true);
        expr_id f = arm_equal(x, gap, v.coef[i], choice, ex_arg(x, choice, 2), false);
        x->assuming--;
        int64_t value;
        if (ex_is_const(x, t, &value))
            return value ? ex_or(x, c, f) : ex_and(x, ex_not(x, c), f);
        if (ex_is_const(x, f, &value))
            return value ? ex_or(x, ex_not(x, c), t) : ex_and(x, c, t);
    }
    return (expr_id){0};
}

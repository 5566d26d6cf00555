/* Numbers that the legal graph has to know, and only the run does: how many elements an operand has that names dims or
 * axes, and so what rank the result has. The node, with what follows it, is looked at once for each number that is
 * possible (fork.c); of ranks that nothing bounds only those up to OPEN_RANK_MAX are.
 */
#include "passes/legalize/control.h"

uint32_t open_rank(int32_t rank)
{
    return rank + 1 > OPEN_RANK_MAX ? (uint32_t)rank + 1 : OPEN_RANK_MAX;
}

bool rule_choose(struct rule *r, expr_id e, int64_t lo, int64_t hi, const char *what, int64_t *out)
{
    struct arena *arena = &r->b->g->arena;
    if (!e.i)
        return false;
    if (ex_is_const(r->b->x, e, out))
        return *out >= lo && *out <= hi ? true
                                        : rule_bad(r, "%lld %s, %lld to %lld are possible", (long long)*out, what,
                                                   (long long)lo, (long long)hi);
    lo = ex_lo(r->b->x, e) > lo ? ex_lo(r->b->x, e) : lo;
    hi = ex_hi(r->b->x, e) < hi ? ex_hi(r->b->x, e) : hi;
    if (lo > hi)
        return rule_bad(r, "no number of %s is possible", what);
    for (*out = lo; *out < hi; ++*out) {
        expr_id is = ex_eq(r->b->x, e, ex_const(r->b->x, *out));
        enum truth t = ex_truth(r->b->x, is) == UNKNOWN_ ? fact_find(r->lg, is) : ex_truth(r->b->x, is);
        if (t == TRUE_)
            return true;
        if (t == UNKNOWN_) {
            rule_fork(r, is, arena_printf(arena, "%lld %s", (long long)*out, what),
                      arena_printf(arena, "another number of %s", what));
            return false;
        }
    }
    b_assert(r->b, ex_eq(r->b->x, e, ex_const(r->b->x, hi)), EVAL_SHAPE,
             "%lld to %lld %s are supported if their number is dynamic", (long long)lo, (long long)hi, what);
    return true;
}

bool rule_count(struct rule *r, uint32_t i, const char *what, uint32_t lo, uint32_t hi, uint32_t *n)
{
    value_id v = rule_in(r, i);
    int64_t count = 0;
    if (!v.i)
        return false;
    if (!v_count_known(r->b, v) && v_rank(r->b, v) != 1)
        return rule_bad(r, "the operand that gives the %s has rank %d", what, (int)v_rank(r->b, v));
    expr_id dim = b_count(r->b, v);
    if (ex_is_const(r->b->x, dim, &count) && count >= 0 && count <= INT32_MAX)
        *n = (uint32_t)count;
    else if (rule_choose(r, dim, lo, hi, what, &count))
        *n = (uint32_t)count;
    else
        return false;
    return true;
}

const expr_id *rule_elems(struct rule *r, uint32_t i, const char *what, uint32_t most, int64_t lo, int64_t hi,
                          uint32_t *n)
{
    return rule_count(r, i, what, 0, most, n) ? b_elems(r->b, v_exactly(r->b, rule_in(r, i), *n), lo, hi, n) : NULL;
}

/* Packed points (collapsed loops): if the dim of the lanes has only 2 to 4 points, as the channels of an image do, a
 * vector holds all of them of several points of the loop outside of it, which follow in memory. What is read contiguous
 * along that loop (an image by planes) is a load for each of the few points and shuffles.
 */
#include "passes/module/visited.h"
#include "passes/schedule/schedule.h"

enum { POINTS_MOST = 4, LANES_MOST = 128, REGISTERS = 4 };

static sym_id point(const struct site *s, expr_id extent)
{
    int64_t hi = ex_hi(s->x, extent);
    return sym_new(s->x, SYM_LOOP, arena_printf(s->arena, "t%u", sym_count(s->x)), 0,
                   hi == INT64_MAX ? hi
                   : hi > 0        ? hi - 1
                                   : 0);
}

/* Is the address `step` elements further at the next point? */
static bool advances(const struct site *s, expr_id address, sym_id sym, int64_t step)
{
    expr_id coef, rest;
    return ex_linear(s->x, address, sym, &coef, &rest) && ex_is(s->x, coef, step);
}

/* Does v, at idx, read something that follows along `beside` and not along `vec`? What was looked at before does not.
 */
static bool reads_rows(const struct site *s, value_id v, const expr_id *idx, sym_id beside, sym_id vec,
                       struct visited *seen, uint32_t nesting)
{
    double f;
    int64_t i;
    if (nesting > 64 || value_is_splat(s->g, v, &f, &i) || !visit(seen, v, idx))
        return false;
    if (s->m->storage[v.i].place != PLACE_NONE && s->k->outs.data[0].i != v.i) {
        expr_id address = storage_address(s->x, &s->m->storage[v.i], idx);
        return advances(s, address, beside, 1) && ex_uses(s->x, address, vec) && !advances(s, address, vec, 1);
    }
    const struct node *n = graph_value(s->g, v)->def.i ? graph_node(s->g, graph_value(s->g, v)->def) : NULL;
    if (n && op_shape(n->op) == SHAPE_VIEW && n->op != OP_CONCAT) {
        expr_id at[RANK_MAX], cond;
        view_index(s->g, n, 0, idx, at, &cond);
        return reads_rows(s, n->in[0], at, beside, vec, seen, nesting + 1);
    }
    bool found = false;
    for (uint32_t k = 0; n && op_shape(n->op) == SHAPE_MAP && k < n->n_in && k < 3; k++)
        found |= reads_rows(s, n->in[k], idx, beside, vec, seen, nesting + 1);
    return found;
}

/* Are the points of vec few, one after another, those of `beside` behind them, and read along `beside`? */
static bool lies_beside(const struct site *s, int32_t vec, int32_t beside)
{
    const struct type *t = value_type(s->g, s->k->domain);
    expr_id idx[RANK_MAX];
    sym_id sym[RANK_MAX];
    int64_t few;
    if (s->k->has_rows || s->k->piece || beside == vec || !ex_is_const(s->x, t->dims[vec], &few) || few < 2 ||
        few > POINTS_MOST)
        return false;
    for (int32_t d = 0; d < t->rank; d++) {
        sym[d] = point(s, t->dims[d]);
        idx[d] = ex_sym(s->x, sym[d]);
    }
    expr_id to = storage_address(s->x, &s->m->storage[s->k->outs.data[0].i], idx);
    return advances(s, to, sym[vec], 1) && advances(s, to, sym[beside], few) &&
           reads_rows(s, s->k->domain, idx, sym[beside], sym[vec], &(struct visited){.g = s->g, .arena = s->arena}, 0);
}

static uint32_t points_most(const struct site *s, int32_t vec)
{
    uint32_t least, most, few = (uint32_t)ex_hi(s->x, value_type(s->g, s->k->domain)->dims[vec]), n = 1;
    map_elements(s, &least, &most);
    while (2 * n * few <= LANES_MOST && 2 * n * few * most <= REGISTERS * s->mach->vector_bytes)
        n *= 2;
    return n;
}

bool packed_serves(const struct site *site, const struct map_schedule *s)
{
    return s->n_loops >= 2 && s->vec >= 0 && s->loop[s->n_loops - 1] == s->vec && s->parallel + 2 <= s->n_loops &&
           !s->transpose.columns && s->packed >= 2 && !(s->packed & (s->packed - 1)) &&
           lies_beside(site, s->vec, s->loop[s->n_loops - 2]) && s->packed <= points_most(site, s->vec);
}

void packed_choose(const struct site *site, struct map_schedule *s)
{
    const struct type *t = value_type(site->g, site->k->domain);
    for (int32_t d = 0; d < t->rank && s->vec >= 0 && t->rank >= 2 && !s->packed; d++) {
        if (!lies_beside(site, s->vec, d))
            continue;
        uint32_t n = points_most(site, s->vec);
        while (n > 1 && n > extent_hint(site->x, t->dims[d]))
            n /= 2;
        if (n < 2)
            return;
        s->packed = n;
        loop_last(s, d);
        loop_last(s, s->vec);
    }
}

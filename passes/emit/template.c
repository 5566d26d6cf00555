/* What the templates share: parallel loops, vectors along a dim, and the store of an anchor's result (templates.h). */
#include "passes/emit/templates.h"

#include <string.h>

/* ---- loops over a list of extents ------------------------------------------------------------------------------- */

void em_parallel_open(struct em *em, struct em_for *p, struct loop *loops, uint32_t n)
{
    expr_id extents[RANK_MAX + 4], vars[RANK_MAX + 4], count = ex_const(em->x, 1), one = ex_const(em->x, 1);
    for (uint32_t i = 0; i < n; i++) {
        count = ex_mul(em->x, count, loops[i].extent);
        extents[i] = ex_lo(em->x, loops[i].extent) >= 1 ? loops[i].extent : ex_max(em->x, loops[i].extent, one);
    }
    expr_id flat = em_parallel_begin(em, p, count);
    if (ex_is(em->x, count, 1))
        flat = ex_const(em->x, 0);
    point_split(em->x, flat, extents, (int32_t)n, vars);
    for (uint32_t i = 0; i < n; i++) {
        int64_t hi = ex_hi(em->x, loops[i].extent);
        loops[i].var = ex_is_const(em->x, vars[i], &(int64_t){0}) ? vars[i]
                                                                  : em_pin(em, vars[i], 0,
                                                                           hi == INT64_MAX ? hi
                                                                           : hi > 0        ? hi - 1
                                                                                           : 0);
    }
}

expr_id em_vector_lanes(struct em *em, expr_id n, uint32_t lanes, expr_id vector)
{
    expr_id base = ex_mulc(em->x, vector, lanes);
    bool whole = ex_is(em->x, ex_mod(em->x, n, ex_const(em->x, lanes)), 0);
    lreg mask = whole ? (lreg){0} : em_tail_mask(em, ex_sub(em->x, n, base), lanes);
    return ex_add(em->x, base, em_lane(em, lanes, mask));
}

void em_vectors(struct em *em, expr_id first, expr_id n, uint32_t lanes, vector_fn *fn, void *user)
{
    expr_id w = ex_const(em->x, lanes), full = ex_div(em->x, n, w), rest = ex_mod(em->x, n, w),
            zero = ex_const(em->x, 0);
    int64_t c;
    if (!ex_is_const(em->x, full, &c) || c > 0) {
        struct em_for l;
        expr_id t = em_for_begin(em, &l, zero, full, 1, NULL, 0);
        fn(em, user, ex_add(em->x, first, ex_add(em->x, ex_mulc(em->x, t, lanes), em_lane(em, lanes, (lreg){0}))));
        em_for_end(em, &l, NULL, NULL);
    }
    if (ex_is(em->x, rest, 0))
        return;
    struct em_if iff;   /* nothing that the tail loads may move above its test */
    expr_id base = ex_add(em->x, first, ex_mulc(em->x, full, lanes));
    bool guard = !ex_is_const(em->x, rest, &c);
    if (guard)
        em_if_begin(em, &iff, em_cond(em, ex_lt(em->x, zero, rest)));
    fn(em, user, em_tail(em, guard ? em_pin(em, base, 0, INT64_MAX) : base, rest, lanes));
    if (guard)
        em_if_end(em, &iff);
}

/* ---- an anchor's result --------------------------------------------------------------------------------------------
 */

void tile_domain(struct em *em, const expr_id *point, expr_id at[RANK_MAX])
{
    expr_id next[RANK_MAX];
    memcpy(at, point, (size_t)value_type(em->g, graph_node(em->g, em->k->anchor)->out[0])->rank * sizeof *at);
    for (uint32_t v = 0; v < em->k->path.n; v++) {
        view_inverse(em->g, graph_node(em->g, em->k->path.data[v]), at, next);
        memcpy(at, next, sizeof next);
    }
}

lreg tile_store(struct em *em, const expr_id *point, lreg result)
{
    expr_id at[RANK_MAX];
    value_id domain = em->k->domain, anchor = graph_node(em->g, em->k->anchor)->out[0];
    tile_domain(em, point, at);
    em->anchor = anchor;
    em->anchor_value = result;
    if (domain.i != anchor.i)
        result = em_value(em, domain, at, ex_const(em->x, 1));
    em_store_out(em, at, result);
    em->anchor = (value_id){0};
    return result;
}

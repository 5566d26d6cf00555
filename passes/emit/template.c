/* What the templates share: parallel loops, and the store of an anchor's result (templates.h). */
#include "passes/emit/templates.h"

/* ---- loops over a list of extents ------------------------------------------------------------------------------- */

void em_parallel_open(struct em *em, struct em_parallel *p, struct loop *loops, uint32_t n)
{
    expr_id extents[RANK_MAX + 4], vars[RANK_MAX + 4], count = ex_const(em->x, 1), one = ex_const(em->x, 1);
    uint32_t all = n;
    if (module_machine(em->m)->span && n > 1)
        n = 1;
    for (uint32_t i = 0; i < n; i++) {
        count = ex_mul(em->x, count, loops[i].extent);
        extents[i] = ex_lo(em->x, loops[i].extent) >= 1 ? loops[i].extent : ex_max(em->x, loops[i].extent, one);
    }
    expr_id flat = em_parallel_begin(em, &p->index, count);
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
    p->n = all - n;
    for (uint32_t i = 0; i < p->n; i++)
        loops[n + i].var = em_for_begin(em, &p->inner[i], ex_const(em->x, 0), loops[n + i].extent, NULL, 0);
}

void em_parallel_close(struct em *em, struct em_parallel *p)
{
    while (p->n > 0)
        em_for_end(em, &p->inner[--p->n], NULL, NULL);
    em_parallel_end(em, &p->index);
}

/* ---- an anchor's result ------------------------------------------------------------------------------------------ */

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

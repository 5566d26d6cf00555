/* The second operand of a contraction that the kernel computes (a constant of packed weights): if many rows read it, it
 * is computed once for a block of vectors, into scratch, rather than in each tile's loads; by a thread once for all
 * parts of the rows and all lines that it comes to.
 *
 *   scratch[reduced index][lane of the block]
 *   scratch[vector][reduced index / group][lane][index in the group], for L_MATMUL
 */
#include "passes/emit/producer.h"
#include "passes/emit/tiled.h"

void panel_decode(struct em *em, const struct tiling *t, expr_id base)
{
    struct em_producer *p = em->decoded;
    struct em_layout l = {.n = 0};
    struct em_if iff = {.block = {0}};
    int64_t same[RANK_MAX];
    expr_id *points[TILE_VECTORS_MOST];
    for (uint32_t v = 0; v < t->n_pieces; v++) {
        points[v] = arena_copy(em->arena, t->idx, sizeof t->idx);
        points[v][t->s->vec] = t->piece[v];
    }
    for (int32_t d = 0; d < value_type(em->g, t->n->in[1])->rank; d++)
        same[d] = d;
    decode_box(&em->site, t->s, base, &p->box);
    l.n = (uint32_t)weight_order(em->g, t->n, same, l.order, &l.lanes);
    l.group = dot_group(em->m, t->n);
    l.block = l.group > 1 ? MATMUL_COLUMNS : p->box.extent[l.lanes];
    em_producer_begin(em, p, t->n->in[1], &l);
    if (!t->own_block) {
        if (!p->keeper.i)
            p->keeper = em_scratch(em, ELEM_I64, 1);
        em_kept_begin(em, &iff, p->keeper, base);
    }
    em_reduce_operand(em, t->n, t->n_pieces, points);
    em_if_end(em, &iff);
    em_producer_filled(em, p);
}

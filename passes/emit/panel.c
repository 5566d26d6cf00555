/* The second operand of a contraction that the kernel computes (a constant of packed weights): where many rows read it,
 * it is computed once for a block of vectors, into scratch, rather than in each tile's loads; by a thread once for all
 * parts of the rows and all lines that it comes to.
 *
 *   scratch[reduced index][lane of the block]
 */
#include "passes/emit/reduce.h"

/* The operand's dims: those that are summed walk over rows of the scratch, that of the lanes over a row. Returns the
 * elements. */
static int64_t panel_storage(struct em *em, const struct node *n, expr_id base, int64_t width)
{
    struct exprs *x = em->x;
    struct storage *s = &em->panel.storage;
    const struct type *t = value_type(em->g, n->in[1]);
    int32_t order[RANK_MAX], lanes = 0;
    int64_t same[RANK_MAX], stride = width, extent = 1;
    for (int32_t d = 0; d < t->rank; d++)
        same[d] = d;
    *s = (struct storage){.rank = t->rank, .dim = NEW_ARRAY(em->arena, struct dim_layout, t->rank)};
    for (int32_t i = weight_order(em->g, n, same, order, &lanes) - 1; i >= 0; i--) {
        s->dim[order[i]].outer = ex_const(x, order[i] == lanes ? 1 : stride);
        if (order[i] != lanes && ex_is_const(x, t->dims[order[i]], &extent))
            stride *= extent;
    }
    s->origin = ex_mulc(x, base, -1);
    return stride;
}

void em_panel_fill(struct em *em, const struct node *n, uint32_t n_points, expr_id *const *points, expr_id base)
{
    const struct tile_schedule *s = &em->schedule->tile;
    int64_t width = (int64_t)s->nr * s->lanes;
    int64_t elements = panel_storage(em, n, base, width);
    if (!em->panel.buffer.i) {
        em->panel.buffer = em_scratch(em, value_type(em->g, n->in[1])->elem, elements);
        em->panel.keeper = em_scratch(em, ELEM_I64, 1);
    }
    struct em_if iff;
    em_kept_begin(em, &iff, em->panel.keeper, base);
    em_reduce_operand(em, n, n_points, points);
    em_if_end(em, &iff);
    em->panel.value = n->in[1];
    em->panel.level = em->top;
}

void em_panel_end(struct em *em)
{
    em->panel.value = (value_id){0};
}

lreg em_panel_value(struct em *em, const expr_id *idx, expr_id cond)
{
    int floor = em->floor;
    if (em->floor < em->panel.level) /* not above the loops that fill it */
        em->floor = em->panel.level;
    lreg v = em_load_at(em, em->panel.buffer, &em->panel.storage, value_type(em->g, em->panel.value)->elem, idx, cond);
    em->floor = floor;
    return v;
}

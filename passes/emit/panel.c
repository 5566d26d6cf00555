/* The second operand of a contraction that the kernel computes (a constant of packed weights): where many rows read it,
 * it is computed once for a block of vectors, into scratch, rather than in each tile's loads; by a thread once for all
 * parts of the rows and all lines that it comes to.
 *
 *   scratch[reduced index][lane of the block]
 */
#include "passes/emit/reduce.h"

/* The operand's dims: the contracted one walks over rows of the scratch, the free one over a row. */
static void panel_storage(struct em *em, const struct dot_dims *dims, int32_t rank, expr_id base, int64_t width)
{
    struct exprs *x = em->x;
    struct storage *s = &em->panel.storage;
    *s = (struct storage){.rank = rank, .dim = NEW_ARRAY(em->arena, struct dim_layout, rank)};
    s->dim[dims->free].outer = ex_const(x, 1);
    s->dim[dims->contract].outer = ex_const(x, width);
    s->origin = ex_mulc(x, base, -1);
}

void em_panel_fill(struct em *em, const struct node *n, uint32_t n_points, expr_id *const *points, expr_id base)
{
    const struct tile_schedule *s = &em->schedule->tile;
    int64_t width = (int64_t)s->nr * s->lanes;
    const struct type *t = value_type(em->g, n->in[1]);
    struct dot_dims dims;
    int64_t steps = 0;
    dot_dims(em->g, n, 1, &dims);
    ex_is_const(em->x, t->dims[dims.contract], &steps);
    if (!em->panel.buffer.i) {
        em->panel.buffer = em_scratch(em, t->elem, steps * width);
        em->panel.keeper = em_scratch(em, ELEM_I64, 1);
    }
    panel_storage(em, &dims, t->rank, base, width);
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

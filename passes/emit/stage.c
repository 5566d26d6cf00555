/* The operand that a kernel computes for itself (kernel.form.staged): scratch with all channels of a chunk of an
 * image's points, filled before the products and read by them in its place.
 *
 *   scratch[block of 16 channels][point of the chunk][channel of the block]
 *
 * Where the convolution has several taps, the points are whole rows, as many as the chunk's results read, and rows and
 * columns of zeros where those reach beyond the image.
 */
#include "passes/emit/producer.h"

enum { SOURCE_DEPTH = 16 };

/* The stored value of the same shape that v is computed from; the first one, if there are several. */
static value_id source_of(const struct em *em, value_id v, int depth)
{
    value_id found = {0};
    if (!type_same_shape(value_type(em->g, v), value_type(em->g, em->k->form.staged)))
        return found;
    if (em->m->fused.storage[v.i].place != PLACE_NONE)
        return v;
    const struct node *n = depth <= SOURCE_DEPTH ? value_node(em->g, v) : NULL;
    for (uint32_t k = 0; n && k < n->n_in && !found.i && op_is_pointwise(n->op); k++)
        found = source_of(em, n->in[k], depth + 1);
    return found;
}

/* What is filled: of a point these vectors of channels; none: the one at hand. */
struct stage {
    struct em_producer *p;
    const expr_id *channels;
    uint32_t n_channels;
};

/* Its points at a step of the nest, each with a vector of channels. */
static uint32_t points_at(const struct em_box_at *h, const struct stage *s, expr_id **points)
{
    struct exprs *x = h->em->x;
    int32_t last = s->p->storage.rank - 1;
    expr_id columns = value_type(h->em->g, s->p->value)->dims[last];
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->count; i++)
        for (uint32_t c = 0; c < (s->n_channels ? s->n_channels : 1); c++) {
            expr_id *at = points[n++] = arena_copy(h->em->arena, h->idx, RANK_MAX * sizeof *h->idx);
            at[last] = ex_addc(x, at[last], i);
            if (s->n_channels)
                at[1] = s->channels[c];
            if (s->p->box.flat) {
                at[last - 1] = ex_div(x, at[last], columns);
                at[last] = ex_mod(x, at[last], columns);
            }
        }
    return n;
}

/* Of a product: what a register tile of any kernel is, but that its results go to scratch. */
static void fill_tile(const struct em_box_at *h)
{
    const struct stage *s = h->box->user;
    struct em *em = h->em;
    struct em_interleave w;
    expr_id *points[EM_POINTS];
    lreg acc[EM_POINTS];
    const struct node *product = graph_node(em->g, em->k->form.product);
    uint32_t n = points_at(h, s, points);
    em_reduce_points(em, product, n, points, ex_const(em->x, 1), acc);
    em_interleave_begin(em, &w);
    em->anchor = product->out[0];
    for (uint32_t i = 0; i < n && !em->failed; i++) {
        em->anchor_value = acc[i];
        em_producer_point(em, s->p, points[i], ex_const(em->x, 1));
        em_interleave_next(em, &w);
    }
    em->anchor = (value_id){0};
    em_interleave_end(em, &w, em->schedule->tile.interleave, em->schedule->tile.interleave_least);
}

static void fill_points(const struct em_box_at *h)
{
    const struct stage *s = h->box->user;
    expr_id *points[EM_POINTS];
    if (h->inside && h->box->tile) {
        fill_tile(h);
        return;
    }
    uint32_t n = points_at(h, s, points);
    for (uint32_t i = 0; i < n; i++)
        if (h->inside)
            em_producer_point(h->em, s->p, points[i], ex_const(h->em->x, 1));
        else
            em_producer_zero(h->em, s->p, points[i]);
}

void em_stage_fill(struct em *em, const struct box *box, expr_id count, const expr_id *channels, uint32_t n_channels)
{
    const struct type *t = value_type(em->g, em->k->form.staged);
    const struct tile_schedule *ts = &em->schedule->tile;
    struct stage s = {em->staged, channels, n_channels};
    struct em_box nest = {.fn = fill_points, .user = &s, .tile = ts->stage_columns};
    struct em_layout l = {.order = {1}, .n = 1, .lanes = 1, .block = CHANNEL_BLOCK};
    expr_id idx[RANK_MAX] = {box->first[0]};
    s.p->box = *box;
    s.p->padded = !count.i;
    if (!n_channels) /* vector by vector, outermost */
        em_box_add(&nest, 1, box->first[1], t->dims[1], em->schedule->producer[em->k->locals.n].lanes);
    for (int32_t d = 2; d < t->rank; d++) {
        if (!box->extent[d])
            continue;
        l.order[l.n++] = d;
        em_box_add(&nest, d, box->first[d], count.i ? count : ex_const(em->x, box->extent[d]), 0);
        if (!count.i)
            nest.loop[nest.n - 1].size = t->dims[d];
    }
    em_producer_begin(em, s.p, em->k->form.staged, &l);
    em_box(em, &nest, idx);
    em_producer_filled(em, s.p);
    s.p->source = ts->stage_ahead ? source_of(em, em->k->form.staged, 0) : (value_id){0};
}

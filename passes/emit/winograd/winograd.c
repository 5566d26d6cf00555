/* The Winograd template: a kernel of stages over a chunk of tiles, with local buffers between them.
 *
 *   input     B' d B of every tile and vector of input channels       -> V
 *   then, for as many output channels as a register tile is wide:
 *   weights   G g G' of a slice of input channels, unless U is resident     -> U
 *   products  for every point, V times the slice of U, added up       -> M
 *   output    A' M A of every tile, then whatever the kernel does after the convolution
 *
 * A parallel index is a chunk of tiles and a group of output channels. Tiles are numbered over all images; a chunk has
 * a whole number of register tiles, and where the image has no more tiles the last one is repeated, never stored. A
 * thread makes the V of a chunk once, for all groups of it that it comes to. Where L2 holds all of U beside a chunk it
 * is resident: an index does a span of chunks, and a thread derives U once. */
#include "passes/emit/winograd/winograd.h"

static void wino_init(struct wino *w, struct em *em)
{
    const struct winograd_schedule *s = &em->schedule->winograd;
    struct winograd_shape shape;
    winograd_shape(&em->site, s->m, &shape);
    *w = (struct wino){.em = em,
                       .s = s,
                       .n = graph_node(em->g, em->k->anchor),
                       .shape = shape,
                       .f = shape.form,
                       .lanes = shape.lanes,
                       .ic = shape.ic,
                       .icv = shape.icv,
                       .points = shape.points,
                       .columns = even_split(s->group, s->nr)};
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

/* Column `number`: the wider ones come first, and the same statements make the weights and the results of both
 * widths. */
static struct product column(struct wino *w, expr_id number)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    const struct even *e = &w->columns;
    expr_id zero = ex_const(x, 0), large = ex_const(x, e->large), n = ex_const(x, e->small);
    if (e->large)
        n = em_pin(em, ex_addc(x, ex_min(x, ex_const(x, 1), ex_max(x, zero, ex_sub(x, large, number))), e->small),
                   e->small, e->small + 1);
    return (struct product){.number = number,
                            .vector = ex_add(x, ex_mulc(x, number, e->small), ex_min(x, number, large)),
                            .n = n,
                            .u = w->s->resident ? ex_mulc(x, number, w->points * winograd_u_stride(w->s, w->lanes))
                                                : zero,
                            .slice = zero};
}

/* All output channels of the group: their weights only, or products and results of a chunk. */
static void columns(struct wino *w, bool only_weights, expr_id blocks)
{
    struct exprs *x = w->em->x;
    struct em_for l;
    struct product p = column(w, em_for_begin(w->em, &l, ex_const(x, 0), ex_const(x, w->columns.tiles), NULL, 0));
    if (only_weights) {
        wino_weights(w, &p);
    } else {
        wino_products(w, &p, blocks);
        wino_output(w, &p, blocks);
    }
    em_for_end(w->em, &l, NULL, NULL);
}

static expr_id most_blocks(const struct wino *w)
{
    return ex_const(w->em->x, w->s->chunk / w->s->mr);
}

/* Chunk `number`: tiles from w->first on. */
static void chunk(struct wino *w, expr_id number)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    w->here = ex_min(x, ex_const(x, w->s->chunk), ex_sub(x, w->shape.tiles, w->first));
    if (!ex_is_const(x, w->here, &(int64_t){0}))
        w->here = em_pin(em, w->here, 1, w->s->chunk);
    expr_id blocks = ex_ceildiv(x, w->here, ex_const(x, w->s->mr));
    expr_id apart = ex_is_const(x, w->shape.tiles, NULL) ? most_blocks(w) : blocks;
    w->v_stride = wino_v_stride(w, apart);
    w->m_stride = wino_m_stride(w, apart);
    wino_places(w, blocks);
    if (w->keeper.i && !w->s->resident) {
        struct em_if iff;
        em_kept_begin(em, &iff, w->keeper, number);
        wino_input(w, blocks);
        em_if_end(em, &iff);
    } else {
        wino_input(w, blocks);
    }
    columns(w, false, blocks);
}

/* The chunks of parallel index `index`. */
static void chunks_of(struct wino *w, expr_id index)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for l;
    expr_id first = ex_mulc(x, index, w->s->span), chunks = ex_ceildiv(x, w->shape.tiles, ex_const(x, w->s->chunk));
    expr_id n = ex_min(x, ex_const(x, w->s->span), ex_sub(x, chunks, first));
    if (w->s->resident) {
        struct em_if iff;
        em_kept_begin(em, &iff, w->keeper, w->group0);
        columns(w, true, n);
        em_if_end(em, &iff);
    }
    expr_id number = ex_add(x, first, em_for_begin(em, &l, ex_const(x, 0), n, NULL, 0));
    w->first = ex_mulc(x, number, w->s->chunk);
    chunk(w, number);
    em_for_end(em, &l, NULL, NULL);
}

bool emit_winograd(struct em *em)
{
    struct wino w;
    struct em_parallel par;
    struct exprs *x = em->x;
    value_id stored;
    wino_init(&w, em);
    expr_id chunks = ex_ceildiv(x, w.shape.tiles, ex_const(x, w.s->chunk));
    expr_id spans = ex_ceildiv(x, chunks, ex_const(x, w.s->span)), groups = ex_const(x, w.shape.ocv / w.s->group);
    struct loop loops[2] = {{0, w.s->resident ? groups : spans, {0}}, {0, w.s->resident ? spans : groups, {0}}};
    const struct loop *by_group = &loops[w.s->resident ? 0 : 1], *by_span = &loops[w.s->resident ? 1 : 0];
    if (w.s->resident || w.s->group < w.shape.ocv)
        w.keeper = em_scratch(em, ELEM_I64, 1);
    w.v = em_scratch(em, ELEM_F32, w.icv / w.s->slice * w.points * ex_hi(x, wino_v_stride(&w, most_blocks(&w))));
    w.m = em_scratch(em, ELEM_F32, w.points * ex_hi(x, wino_m_stride(&w, most_blocks(&w))));
    if (winograd_weights(em->m, w.n->in[1], &stored, w.stride))
        w.weights = em_buffer(em, stored);
    if (!ex_is_const(x, w.shape.th, NULL) || !ex_is_const(x, w.shape.tw, NULL))
        w.places = em_scratch(em, ELEM_I64, 3 * (w.s->chunk + w.s->mr));
    if (w.places.i)
        w.edge = em_scratch(em, ELEM_F32, w.f->m * w.f->m * w.lanes);
    w.u = em_scratch(em, ELEM_F32, winograd_held(w.s, &w.shape));
    em_parallel_open(em, &par, loops, 2);
    w.group0 = ex_mulc(x, by_group->var, w.s->group);
    chunks_of(&w, by_span->var);
    em_parallel_close(em, &par);
    return !em->failed;
}

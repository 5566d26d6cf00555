/* The Winograd template: a kernel of stages over a chunk of tiles, with local buffers between them.
 *
 *   input     B' d B of every tile and vector of input channels       -> V
 *   then, for as many output channels as a register tile is wide:
 *   weights   G g G' of a slice of input channels, unless U is resident     -> U
 *   products  for every point, V times the slice of U, added up       -> M
 *   output    A' M A of every tile, then whatever the kernel does behind the convolution
 *
 * A parallel index is a chunk of tiles and a group of output channels. Tiles are numbered over all images; a chunk has a
 * whole number of register tiles, and where the image has no more tiles the last one is repeated, never stored. Where
 * L2 holds all of U beside a chunk it is resident: an index derives it once and does a span of chunks. */
#include "passes/emit/winograd/winograd.h"

static void wino_init(struct wino *w, struct em *em)
{
    const struct winograd_schedule *s = &em->schedule->winograd;
    struct winograd_shape shape;
    winograd_shape(&em->site, &shape);
    *w = (struct wino){.em = em,
                       .s = s,
                       .n = graph_node(em->g, em->k->anchor),
                       .f = shape.form,
                       .ic = shape.ic,
                       .oc = shape.oc,
                       .icv = shape.icv,
                       .ocv = shape.ocv,
                       .points = shape.points,
                       .th = shape.th,
                       .tw = shape.tw,
                       .tiles = shape.tiles};
}

/* ---- places --------------------------------------------------------------------------------------------------------------- */

expr_id wino_v_at(const struct wino *w, expr_id slice, expr_id point, expr_id block, expr_id vector, expr_id tile)
{
    struct exprs *x = w->em->x;
    expr_id at = ex_mulc(x, ex_add(x, ex_mulc(x, slice, w->points), point), wino_v_stride(w));
    expr_id line = ex_add(x, ex_mulc(x, ex_add(x, ex_mulc(x, block, w->s->slice), vector), w->s->mr), tile);
    return ex_add(x, at, ex_mulc(x, line, w->s->lanes));
}

expr_id wino_m_at(const struct wino *w, expr_id block, expr_id point, expr_id vector, expr_id tile)
{
    struct exprs *x = w->em->x;
    expr_id line = ex_add(x, ex_mulc(x, ex_add(x, ex_mulc(x, block, w->s->mr), tile), w->s->nr), vector);
    return ex_add(x, ex_mulc(x, point, wino_m_stride(w)), ex_mulc(x, line, w->s->lanes));
}

expr_id wino_plain_at(const struct wino *w, expr_id vector, expr_id channel)
{
    struct exprs *x = w->em->x;
    expr_id panel = ex_const(x, CHANNEL_BLOCK), oc = ex_mulc(x, vector, w->s->lanes);
    expr_id at = ex_add(x, ex_mulc(x, ex_div(x, oc, panel), w->stride[0]), ex_mod(x, oc, panel));
    return ex_add(x, at, ex_mulc(x, channel, w->stride[3]));
}

/* ---- the kernel ---------------------------------------------------------------------------------------------------------------- */

/* Where a column's U begins, if that of all of them is resident: columns of one more vector come first. */
static expr_id column_weights(const struct wino *w, expr_id at, int64_t nr)
{
    struct exprs *x = w->em->x;
    struct even e = even_split(w->s->group, w->s->nr);
    int64_t before = nr > e.small ? 0 : e.large, each = w->points * winograd_u_stride(w->s, nr);
    expr_id number = ex_div(x, ex_addc(x, at, -before * (e.small + 1)), ex_const(x, nr));
    return ex_addc(x, ex_mulc(x, number, each), before * w->points * winograd_u_stride(w->s, e.small + 1));
}

struct columns {
    struct wino *w;
    expr_id blocks;
};

static void products_and_output(void *user, expr_id at, uint32_t nr)
{
    struct wino *w = ((struct columns *)user)->w;
    expr_id blocks = ((struct columns *)user)->blocks, zero = ex_const(w->em->x, 0);
    struct product p = {
        .vector = at, .nr = nr, .u = w->s->resident ? column_weights(w, at, nr) : zero, .slice = zero, .first = true};
    wino_products(w, &p, blocks);
    wino_output(w, p.vector, p.nr, blocks);
}

static void only_weights(void *user, expr_id at, uint32_t nr)
{
    struct wino *w = ((struct columns *)user)->w;
    wino_weights(
        w, &(struct product){
               .vector = at, .nr = nr, .u = column_weights(w, at, nr), .slice = ex_const(w->em->x, 0), .first = true});
}

/* All output channels of the group. */
static void columns(struct wino *w, em_tile_fn *fn, expr_id blocks)
{
    em_tiles(w->em, ex_const(w->em->x, w->s->group), w->s->nr, fn, &(struct columns){w, blocks});
}

/* A chunk of tiles from w->first on. */
static void chunk(struct wino *w)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    w->here = ex_min(x, ex_const(x, w->s->chunk), ex_sub(x, w->tiles, w->first));
    if (!ex_is_const(x, w->here, &(int64_t){0}))
        w->here = em_pin(em, w->here, 1, w->s->chunk);
    expr_id blocks = ex_ceildiv(x, w->here, ex_const(x, w->s->mr));
    wino_input(w, blocks);
    columns(w, products_and_output, blocks);
}

/* The chunks of parallel index `index`. */
static void chunks_of(struct wino *w, expr_id index)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for l;
    expr_id first = ex_mulc(x, index, w->s->span), chunks = ex_ceildiv(x, w->tiles, ex_const(x, w->s->chunk));
    expr_id n = ex_min(x, ex_const(x, w->s->span), ex_sub(x, chunks, first));
    if (w->s->resident)
        columns(w, only_weights, n);
    expr_id number = em_for_begin(em, &l, ex_const(x, 0), n, 1, NULL, 0);
    w->first = ex_mulc(x, ex_add(x, first, number), w->s->chunk);
    chunk(w);
    em_for_end(em, &l, NULL, NULL);
}

bool emit_winograd(struct em *em)
{
    struct wino w;
    struct em_for par;
    struct exprs *x = em->x;
    wino_init(&w, em);
    expr_id chunks = ex_ceildiv(x, w.tiles, ex_const(x, w.s->chunk));
    struct loop loops[2] = {{0, ex_const(x, w.ocv / w.s->group), {0}},
                            {0, ex_ceildiv(x, chunks, ex_const(x, w.s->span)), {0}}};
    w.v = em_scratch(em, ELEM_F32, w.icv / w.s->slice * w.points * wino_v_stride(&w));
    w.m = em_scratch(em, ELEM_F32, w.points * wino_m_stride(&w));
    if (w.s->source != WEIGHTS_BY_KERNEL) {
        w.u = em_prepared(em);
    } else {
        value_id stored;
        if (!winograd_weights(em->m, w.n->in[1], &stored, w.stride))
            return false;
        w.weights = em_buffer(em, stored);
        w.u = em_scratch(em, ELEM_F32, winograd_held(w.s, w.points));
    }
    em_parallel_open(em, &par, loops, 2);
    w.group0 = ex_mulc(x, loops[0].var, w.s->group);
    chunks_of(&w, loops[1].var);
    em_parallel_end(em, &par);
    return !em->failed;
}

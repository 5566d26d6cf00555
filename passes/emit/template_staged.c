/* Contractions whose first operand the kernel computes (kernel.form): a parallel index is a chunk of tiles of the
 * result (schedule/stage.c says how many), which share what scratch holds of the operand. Of a convolution of one tap
 * these are the points of the tiles; of more taps, the rows that the tiles' rows read, zeros around the image included.
 */
#include "passes/emit/producer.h"
#include "passes/emit/tiled.h"

static void fill(struct em *em, struct tiling *t, expr_id first, expr_id count, const expr_id *channels, uint32_t n)
{
    struct box box;
    stage_box(&em->site, t->s, t->idx, first, &box);
    em_stage_fill(em, &box, count, channels, n);
}

static expr_id flat_first(struct em *em, const struct even *e, expr_id tile)
{
    return ex_add(em->x, ex_mulc(em->x, tile, e->small), ex_min(em->x, tile, ex_const(em->x, e->large)));
}

/* The points of the chunk's tiles: the first one; how many there are. */
static expr_id points_of(struct em *em, const struct tiling *t, expr_id end, expr_id *count)
{
    struct even e = tile_flat_split(em->x, t->t, t->s);
    expr_id first = flat_first(em, &e, t->row0);
    *count = ex_sub(em->x, flat_first(em, &e, end), first);
    if (ex_is_const(em->x, t->row0, &(int64_t){0}))
        return first;
    first = em_pin(em, first, 0, e.tiles * e.small + e.large - 1);
    *count = em_pin(em, *count, 1, (int64_t)t->s->chunk * (e.small + (e.large > 0)));
    return first;
}

void staged_chunk(struct em *em, struct tiling *t, expr_id chunk, expr_id block, expr_id blocks)
{
    struct exprs *x = em->x;
    struct em_for l;
    expr_id tiles = ex_const(x, tile_count(x, t->t, t->s)), most = ex_const(x, t->s->chunk), count = {0};
    t->row0 = ex_mulc(x, chunk, t->s->chunk);
    expr_id end = ex_min(x, ex_add(x, t->row0, most), tiles), first = ex_mulc(x, t->row0, t->s->tb);
    t->here = t->s->flat ? ex_sub(x, end, t->row0) : ex_min(x, most, ex_sub(x, tiles, t->row0));
    if (t->s->flat)
        first = points_of(em, t, end, &count);
    if (!ex_is_const(x, t->here, &(int64_t){0}))
        t->here = em_pin(em, t->here, 1, t->s->chunk);
    if (t->s->by_piece) {
        tile_vectors(em, t, block);
        return;
    }
    fill(em, t, first, count, NULL, 0);
    tile_vectors(em, t, em_for_begin(em, &l, ex_const(x, 0), blocks, NULL, 0));
    em_for_end(em, &l, NULL, NULL);
}

void staged_rows(struct em *em, struct tiling *t)
{
    struct em_for l;
    if (t->s->by_piece)
        fill(em, t, ex_mulc(em->x, t->row0, t->s->tb), (expr_id){0}, t->piece, t->n_pieces);
    expr_id i = em_for_begin(em, &l, ex_const(em->x, 0), t->here, NULL, 0);
    t->idx[2] = ex_mulc(em->x, ex_add(em->x, t->row0, i), t->s->tb);
    partial_begin(em, t);
    tile_b(em, t, t->idx[2], t->s->tb);
    partial_end(em, t);
    em_for_end(em, &l, NULL, NULL);
    t->idx[2] = ex_const(em->x, 0);
}

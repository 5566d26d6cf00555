/* Convolutions of several taps whose operand is a map, or a map of a contraction (kernel.form): a parallel index is a
 * chunk of rows of the result (schedule/stage.c says how many), and fills scratch with the rows of the operand that
 * they read, zeros around the image included (emit/stage.c), before the tiles run.
 */
#include "passes/emit/producer.h"
#include "passes/emit/tiled.h"

static void fill(struct em *em, struct tiling *t, const expr_id *channels, uint32_t n)
{
    struct box r;
    stage_box(&em->site, t->s, t->idx, ex_mulc(em->x, t->row0, t->s->tb), &r);
    em_stage_fill(em, &r, (expr_id){0}, channels, n);
}

void window_chunk(struct em *em, struct tiling *t, expr_id chunk, expr_id block, expr_id blocks)
{
    struct exprs *x = em->x;
    struct em_for l;
    int64_t rows = 0;
    ex_is_const(x, t->t->dims[t->s->b], &rows);
    t->row0 = ex_mulc(x, chunk, t->s->chunk);
    t->here = ex_min(x, ex_const(x, t->s->chunk), ex_sub(x, ex_const(x, rows / t->s->tb), t->row0));
    if (!ex_is_const(x, t->here, &(int64_t){0}))
        t->here = em_pin(em, t->here, 1, t->s->chunk);
    if (t->s->by_piece) {
        tile_vectors(em, t, block);
        return;
    }
    fill(em, t, NULL, 0);
    tile_vectors(em, t, em_for_begin(em, &l, ex_const(x, 0), blocks, 1, NULL, 0));
    em_for_end(em, &l, NULL, NULL);
}

void window_rows(struct em *em, struct tiling *t)
{
    struct em_for l;
    if (t->s->by_piece)
        fill(em, t, t->piece, t->n_pieces);
    expr_id i = em_for_begin(em, &l, ex_const(em->x, 0), t->here, 1, NULL, 0);
    t->idx[2] = ex_mulc(em->x, ex_add(em->x, t->row0, i), t->s->tb);
    partial_begin(em, t);
    tile_b(em, t, t->idx[2], t->s->tb);
    partial_end(em, t);
    em_for_end(em, &l, NULL, NULL);
    t->idx[2] = ex_const(em->x, 0);
}

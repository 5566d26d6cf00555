/* The epilogue of a register tile whose sums are in scratch, in loops over its rows: of a product by L_MATMUL, and of
 * tiles of several sizes, each of which would have the code of a long epilogue as often as it has results.
 */
#include "passes/emit/tiled.h"

struct rows {
    struct em *em;
    struct tiling *t;
    expr_id a0, b; /* the first one's number along a; its index along b */
    int64_t from; /* rows of scratch before it */
};

/* Where the sum of a row's vector v is. */
static expr_id sum_at(struct em *em, const struct tiling *t, expr_id row, uint32_t v)
{
    return ex_mulc(em->x, ex_addc(em->x, ex_mulc(em->x, row, t->n_pieces), v), t->s->lanes);
}

/* `count` rows from row `at` on. */
static void put_rows(void *user, expr_id at, uint32_t count)
{
    const struct rows *r = user;
    struct em *em = r->em;
    const struct tiling *t = r->t;
    struct exprs *x = em->x;
    struct em_interleave w;
    expr_id *points[EM_POINTS];
    lreg sum[EM_POINTS];
    uint32_t n = points_of_tile(em, t, &(struct tile_at){ex_add(x, r->a0, at), r->b, count}, 1, points);
    for (uint32_t i = 0; i < n; i++)
        sum[i] = em_scratch_load(em, t->sums, sum_at(em, t, ex_addc(x, at, r->from + i / t->n_pieces), i % t->n_pieces),
                                 piece_lanes(em, t, i % t->n_pieces));
    em_interleave_begin(em, &w);
    for (uint32_t i = 0; i < n && !em->failed; i++) {
        tile_store(em, points[i], reduction_result(em, t->n, sum[i]));
        em_interleave_next(em, &w);
    }
    em_interleave_end(em, &w, t->s->interleave, t->s->interleave_least);
}

void epilogue_scratch(struct em *em, struct tiling *t)
{
    const struct tile_schedule *s = t->s;
    t->sums = em_scratch(em, reduce_elem(em->g, t->n), (int64_t)s->tb * s->ta * s->nr * s->lanes);
}

void epilogue_rows(struct em *em, struct tiling *t, const struct tile_at *at, uint32_t tb)
{
    for (uint32_t j = 0; j < tb && !em->failed; j++) {
        struct rows r = {em, t, at->a, ex_addc(em->x, at->b, j), (int64_t)j * at->ta};
        em_tiles(em, ex_const(em->x, at->ta), t->s->epilogue, REST_POINTS, put_rows, &r);
    }
}

void epilogue_of(struct em *em, struct tiling *t, const struct tile_at *at, uint32_t tb, const lreg *acc)
{
    for (uint32_t i = 0; i < at->ta * tb * t->n_pieces; i++)
        em_scratch_store(em, t->sums, sum_at(em, t, ex_const(em->x, i / t->n_pieces), i % t->n_pieces), acc[i]);
    epilogue_rows(em, t, at, tb);
}

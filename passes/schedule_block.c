/* Long products of few rows, block by block of the contraction: all rows at one block before the next one, so that its panels
 * and those of the next fit the second-level cache together, and come from memory while this one is computed. Between two
 * blocks the sums wait in scratch. The order of summation is that of the whole, so results do not depend on it.
 */
#include "passes/schedule_tiled.h"

bool block_choose(struct em *em, struct tiling *t, int64_t steps, int64_t slice)
{
    const struct node *n = t->n;
    int64_t rows = 0, most = (int64_t)em->mach.l2_kib * 1024 * 3 / 16;
    uint32_t count;
    if (n->op != OP_DOT || t->a < 0 || t->b >= 0 || value_type(em->g, n->out[0])->elem != ELEM_F32 || dot_group(em->m, n) != 1)
        return false;
    node_ints(n, "contract_a", &count);
    if (count != 1 || !ex_is_const(em->x, t->t->dims[t->a], &rows) || rows <= t->ta)
        return false;
    int64_t blocks = (slice + most - 1) / most;
    t->k.steps = (steps + blocks - 1) / blocks;
    t->k.all = steps;
    t->k.blocks = (steps + t->k.steps - 1) / t->k.steps;
    t->k.sums = em_scratch(em, ELEM_F32, rows * t->nr * t->lanes);
    return true;
}

/* Where the sum of row i and vector v of the tile's block waits for the next block. */
static expr_id sum_at(struct em *em, const struct tiling *t, expr_id row, uint32_t v)
{
    return ex_mulc(em->x, ex_addc(em->x, ex_mulc(em->x, row, t->nr), v), t->lanes);
}

static uint32_t piece_lanes(const struct em *em, const struct tiling *t, uint32_t v)
{
    uint32_t lanes = em_expr_lanes(em, t->piece[v]);
    return lanes ? lanes : 1;
}

bool block_part(struct em *em, struct tiling *t, expr_id row, uint32_t n, expr_id *const *points, lval *acc)
{
    for (uint32_t i = 0; i < n; i++)
        acc[i] = em_scratch_load(em, t->k.sums, sum_at(em, t, ex_addc(em->x, row, i / t->n_pieces), i % t->n_pieces),
                                 piece_lanes(em, t, i % t->n_pieces));
    em_reduce_part(em, t->n, n, points, t->k.from, t->k.n, acc);
    for (uint32_t i = 0; i < n && !t->k.last; i++)
        em_scratch_store(em, t->k.sums, sum_at(em, t, ex_addc(em->x, row, i / t->n_pieces), i % t->n_pieces), acc[i]);
    return t->k.last;
}

void block_rows(struct em *em, struct tiling *t)
{
    struct exprs *x = em->x;
    struct em_for l;
    int64_t blocks = t->k.blocks;
    t->k.blocks = 0;
    expr_id i = em_for_begin(em, &l, ex_const(x, 0), t->t->dims[t->a], 1, NULL, 0);
    for (uint32_t v = 0; v < t->n_pieces; v++)
        em_scratch_store(em, t->k.sums, sum_at(em, t, i, v), em_const(em, ELEM_F32, piece_lanes(em, t, v), 0, 0));
    em_for_end(em, &l, NULL, NULL);
    i = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, blocks - 1), 1, NULL, 0);
    t->k.from = ex_mulc(x, i, t->k.steps);
    t->k.n = t->k.steps;
    tile_rows(em, t);
    em_for_end(em, &l, NULL, NULL);
    t->k.from = ex_const(x, (blocks - 1) * t->k.steps);
    t->k.n = t->k.all - (blocks - 1) * t->k.steps;
    t->k.last = true;
    tile_rows(em, t);
    t->k.last = false;
    t->k.blocks = blocks;
}

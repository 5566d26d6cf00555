/* Long products of few rows, block by block of the contraction: all rows at one block before the next one, so that its panels
 * and those of the next fit the second-level cache together, and come from memory while this one is computed. Between two
 * blocks the sums wait in scratch. The order of summation is that of the whole, so results do not depend on it.
 */
#include "passes/schedule_tiled.h"

bool panel_slice(struct em *em, const struct tiling *t, int64_t *points, int64_t *slice)
{
    const struct node *n = t->n;
    int64_t extent;
    if (em->k->kind != KERNEL_CONTRACT || t->vec < 0 || t->a < 0 || t->chunk || (n->op == OP_CONV && node_int(n, "groups", 1) != 1) ||
        em->m->storage[n->in[1].i].place != PLACE_WEIGHTS)
        return false;
    *points = 1;
    for (int32_t d = 0; d < t->t->rank; d++)
        if (d != t->vec && (!ex_is_const(em->x, t->t->dims[d], &extent) || !mul_i64(*points, extent, points)))
            return false;
    return mul_i64((int64_t)(tile_steps(em, n) / dot_group(em->m, n)), (int64_t)t->nr * em->mach.vector_bytes, slice);
}

void block_choose(struct em *em, struct tiling *t)
{
    int64_t points, slice, rows = 1, n, l2 = (int64_t)em->mach.l2_kib * 1024, most = l2 * 3 / 16;
    struct cut *c = &t->k.cut;
    if (!panel_slice(em, t, &points, &slice) || points > FEW_ROWS || slice <= l2 * 5 / 16 || !em_reduce_cut(em, t->n, c))
        return;
    ex_is_const(em->x, t->t->dims[t->a], &rows);
    if (t->b >= 0 && ex_is_const(em->x, t->t->dims[t->b], &n))
        rows *= n;
    int64_t blocks = (slice + most - 1) / most, size = ((c->extent + blocks - 1) / blocks + c->unit - 1) / c->unit * c->unit;
    if (rows <= t->ta * t->tb || size >= c->extent || size * c->inner * t->nr * em->mach.vector_bytes > l2 * 5 / 16)
        return;
    t->k.size = size;
    t->k.blocks = (c->extent + size - 1) / size;
    t->k.sums = em_scratch(em, ELEM_F32, rows * t->nr * t->lanes);
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

bool block_part(struct em *em, struct tiling *t, const struct tile_at *at, uint32_t n, expr_id *const *points, lval *acc)
{
    expr_id place[EM_POINTS];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t point = i / t->n_pieces;
        expr_id row = ex_addc(em->x, at->a, point % at->ta);
        if (t->b >= 0 && !t->flat)
            row = ex_add(em->x, row, ex_mul(em->x, ex_addc(em->x, at->b, point / at->ta), t->t->dims[t->a]));
        place[i] = sum_at(em, t, row, i % t->n_pieces);
        acc[i] = em_scratch_load(em, t->k.sums, place[i], piece_lanes(em, t, i % t->n_pieces));
    }
    em_reduce_part(em, t->n, n, points, &t->k.cut, t->k.from, t->k.n, acc);
    for (uint32_t i = 0; i < n && !t->k.last; i++)
        em_scratch_store(em, t->k.sums, place[i], acc[i]);
    return t->k.last;
}

static void block_begin(struct em *em, struct tiling *t)
{
    struct em_for l;
    expr_id rows = t->t->dims[t->a];
    if (t->b >= 0)
        rows = ex_mul(em->x, rows, t->t->dims[t->b]);
    expr_id i = em_for_begin(em, &l, ex_const(em->x, 0), rows, 1, NULL, 0);
    for (uint32_t v = 0; v < t->n_pieces; v++)
        em_scratch_store(em, t->k.sums, sum_at(em, t, i, v), em_const(em, ELEM_F32, piece_lanes(em, t, v), 0, 0));
    em_for_end(em, &l, NULL, NULL);
}

void block_rows(struct em *em, struct tiling *t)
{
    struct exprs *x = em->x;
    struct em_for l;
    int64_t blocks = t->k.blocks;
    t->k.blocks = 0;
    block_begin(em, t);
    expr_id i = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, blocks - 1), 1, NULL, 0);
    t->k.from = ex_mulc(x, i, t->k.size);
    t->k.n = t->k.size;
    tile_rows(em, t);
    em_for_end(em, &l, NULL, NULL);
    t->k.from = ex_const(x, (blocks - 1) * t->k.size);
    t->k.n = t->k.cut.extent - (blocks - 1) * t->k.size;
    t->k.last = true;
    tile_rows(em, t);
    t->k.last = false;
    t->k.blocks = blocks;
}

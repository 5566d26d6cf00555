/* Long contractions of few points in blocks of their outermost reduced dim: all points at one part of it before the next part, so
 * that its panels and those of the next fit the second-level cache together, and come from memory while this one is computed.
 * Between two parts the sums wait in scratch. The order of summation is that of the whole, so results do not depend on it.
 */
#include "passes/schedule/tiled.h"

bool tile_shares_columns(struct em *em, const struct tiling *t)
{
    bool groups = t->n->op == OP_CONV && node_int(t->n, "groups", 1) != 1;
    return em->k->kind == KERNEL_CONTRACT && t->vec >= 0 && t->a >= 0 && !t->chunk && !groups;
}

void panel_slice(struct em *em, struct tiling *t)
{
    int64_t extent, points = 1, slice;
    if (!tile_shares_columns(em, t) || em->m->storage[t->n->in[1].i].place != PLACE_WEIGHTS)
        return;
    for (int32_t d = 0; d < t->t->rank; d++)
        if (d != t->vec && (!ex_is_const(em->x, t->t->dims[d], &extent) || !mul_i64(points, extent, &points)))
            return;
    if (mul_i64((int64_t)(tile_steps(em, t->n) / dot_group(em->m, t->n)), (int64_t)t->nr * em->mach->vector_bytes, &slice))
        t->points = points, t->slice = slice;
}

/* The points of a result, less those along vec, that one parallel index goes through. */
static int64_t block_points(struct em *em, const struct tiling *t)
{
    int64_t n, points = 1;
    for (int32_t d = 0; d < t->t->rank; d++)
        if ((d == t->a || d == t->b || tile_is_line(t, d)) && ex_is_const(em->x, t->t->dims[d], &n))
            points *= n;
    return points;
}

void block_choose(struct em *em, struct tiling *t)
{
    int64_t l2 = (int64_t)em->mach->l2_kib * 1024, most = l2 * 3 / 16;
    struct cut *c = &t->k.cut;
    if (t->slice <= l2 * 5 / 16 || !em_reduce_cut(em, t->n, c))
        return;
    int64_t points = block_points(em, t);
    if (points > FEW_ROWS || points <= t->ta * t->tb)
        return;
    int64_t parts = (t->slice + most - 1) / most, size = ((c->extent + parts - 1) / parts + c->unit - 1) / c->unit * c->unit;
    if (size >= c->extent || size * c->inner * t->nr * em->mach->vector_bytes > l2 * 5 / 16)
        return;
    t->k.size = size;
    t->k.blocks = (c->extent + size - 1) / size;
    t->k.points = points;
    t->k.sums = em_scratch(em, ELEM_F32, points * t->nr * t->lanes);
}

/* Where the sum of point number `point` and vector v waits for the next part. */
static expr_id sum_at(struct em *em, const struct tiling *t, expr_id point, uint32_t v)
{
    return ex_mulc(em->x, ex_addc(em->x, ex_mulc(em->x, point, t->nr), v), t->lanes);
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
        row = ex_add(em->x, row, ex_mulc(em->x, t->line, t->k.points / t->lines));
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
    expr_id n = ex_const(em->x, t->k.points * t->nr);
    expr_id i = em_for_begin(em, &l, ex_const(em->x, 0), n, 1, NULL, 0);
    em_scratch_store(em, t->k.sums, ex_mulc(em->x, i, t->lanes), em_const(em, ELEM_F32, t->lanes, 0, 0));
    em_for_end(em, &l, NULL, NULL);
}

/* All lines, one after another, from dim d on. */
static void block_lines(struct em *em, struct tiling *t, expr_id block, int32_t d)
{
    struct em_for l;
    int64_t n = 1;
    while (d < t->t->rank && !tile_is_line(t, d))
        d++;
    if (d == t->t->rank) {
        tile_vectors(em, t, block);
        return;
    }
    expr_id before = t->line, i = em_for_begin(em, &l, ex_const(em->x, 0), t->t->dims[d], 1, NULL, 0);
    ex_is_const(em->x, t->t->dims[d], &n);
    t->idx[d] = i;
    t->line = ex_add(em->x, ex_mulc(em->x, before, n), i);
    block_lines(em, t, block, d + 1);
    em_for_end(em, &l, NULL, NULL);
    t->line = before;
}

void block_vectors(struct em *em, struct tiling *t, expr_id block)
{
    struct exprs *x = em->x;
    struct em_for l;
    block_begin(em, t);
    expr_id i = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, t->k.blocks - 1), 1, NULL, 0);
    t->k.from = ex_mulc(x, i, t->k.size);
    t->k.n = t->k.size;
    block_lines(em, t, block, 0);
    em_for_end(em, &l, NULL, NULL);
    t->k.from = ex_const(x, (t->k.blocks - 1) * t->k.size);
    t->k.n = t->k.cut.extent - (t->k.blocks - 1) * t->k.size;
    t->k.last = true;
    block_lines(em, t, block, 0);
}

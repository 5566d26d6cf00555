/* Long contractions of few points, and rows that are added up, in blocks of K, their outermost reduced dim
 * (schedule/block.c says when): all points at one block before the next one. Between two blocks the sums wait in
 * scratch. The order of summation is that of the whole, so results do not depend on it.
 */
#include "passes/emit/tiled.h"

/* Blocks of vectors that a parallel index goes through. */
static int64_t block_columns(const struct tiling *t)
{
    return t->s->k_columns ? t->s->k_columns : 1;
}

void block_begin(struct em *em, struct tiling *t)
{
    t->k.points = tile_block_points(em->x, t->n, t->t, t->s);
    t->k.column = ex_const(em->x, 0);
    t->k.sums = em_scratch(em, ELEM_F32, block_columns(t) * t->k.points * t->s->nr * t->s->lanes);
}

/* Where the sum of point number `point` and vector v waits for the next block. */
static expr_id sum_at(struct em *em, const struct tiling *t, expr_id point, uint32_t v)
{
    return ex_mulc(em->x, ex_addc(em->x, ex_mulc(em->x, point, t->s->nr), v), t->s->lanes);
}

bool block_tile(struct em *em, struct tiling *t, const struct tile_at *at, uint32_t n, expr_id *const *points,
                lreg *acc)
{
    expr_id place[EM_POINTS];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t point = i / t->n_pieces;
        expr_id row = ex_addc(em->x, at->a, point % at->ta);
        if (t->s->b >= 0 && !t->s->flat)
            row = ex_add(em->x, row, ex_mul(em->x, ex_addc(em->x, at->b, point / at->ta), t->t->dims[t->s->a]));
        row = ex_add(em->x, row, ex_mulc(em->x, t->line, t->k.points / t->lines));
        row = ex_add(em->x, row, ex_mulc(em->x, t->k.column, t->k.points));
        place[i] = sum_at(em, t, row, i % t->n_pieces);
        acc[i] = em_scratch_load(em, t->k.sums, place[i], piece_lanes(em, t, i % t->n_pieces));
    }
    em_reduce_block(em, t->n, n, points, &em->facts->k, t->k.from, t->k.n, acc);
    for (uint32_t i = 0; i < n && !t->k.last; i++)
        em_scratch_store(em, t->k.sums, place[i], acc[i]);
    return t->k.last;
}

static void block_clear(struct em *em, struct tiling *t)
{
    struct em_for l;
    expr_id n = ex_const(em->x, block_columns(t) * t->k.points * t->s->nr);
    expr_id i = em_for_begin(em, &l, ex_const(em->x, 0), n, NULL, 0);
    enum lop combine = t->n->op == OP_REDUCE ? em_monoid(node_str(t->n, "monoid", "sum"), ELEM_F32) : L_ADD;
    em_scratch_store(em, t->k.sums, ex_mulc(em->x, i, t->s->lanes),
                     reduction_identity(em, combine, ELEM_F32, ELEM_F32, t->s->lanes));
    em_for_end(em, &l, NULL, NULL);
}

/* All lines, one after another, from dim d on. */
static void block_lines(struct em *em, struct tiling *t, expr_id block, int32_t d)
{
    struct em_for l;
    int64_t n = 1;
    while (d < t->t->rank && !tile_is_line(t->n, t->s, d))
        d++;
    if (d == t->t->rank) {
        tile_vectors(em, t, block);
        return;
    }
    expr_id before = t->line, i = em_for_begin(em, &l, ex_const(em->x, 0), t->t->dims[d], NULL, 0);
    ex_is_const(em->x, t->t->dims[d], &n);
    t->idx[d] = i;
    t->line = ex_add(em->x, ex_mulc(em->x, before, n), i);
    block_lines(em, t, block, d + 1);
    em_for_end(em, &l, NULL, NULL);
    t->line = before;
}

/* All blocks of vectors of the index, at one block of K. */
static void block_of_columns(struct em *em, struct tiling *t, expr_id index)
{
    struct exprs *x = em->x;
    struct em_for l;
    if (!t->s->k_columns) {
        block_lines(em, t, index, 0);
        return;
    }
    expr_id first = ex_mulc(x, index, t->s->k_columns), left = ex_sub(x, tile_blocks(x, t->t, t->s), first);
    t->k.column = em_for_begin(em, &l, ex_const(x, 0), ex_min(x, ex_const(x, t->s->k_columns), left), NULL, 0);
    block_lines(em, t, ex_add(x, first, t->k.column), 0);
    em_for_end(em, &l, NULL, NULL);
}

void block_vectors(struct em *em, struct tiling *t, expr_id block)
{
    struct exprs *x = em->x;
    struct em_for l;
    int64_t whole = (em->facts->k.extent - 1) / t->s->k_block; /* blocks before the last one */
    block_clear(em, t);
    expr_id i = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, whole), NULL, 0);
    t->k.from = ex_mulc(x, i, t->s->k_block);
    t->k.n = t->s->k_block;
    block_of_columns(em, t, block);
    em_for_end(em, &l, NULL, NULL);
    t->k.from = ex_const(x, whole * t->s->k_block);
    t->k.n = em->facts->k.extent - whole * t->s->k_block;
    t->k.last = true;
    block_of_columns(em, t, block);
}

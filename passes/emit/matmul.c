/* A register tile by L_MATMUL: all of its products at once into scratch, then the epilogue row by row, in loops. */
#include "passes/emit/tiled.h"

enum { LINE = 64 };

static lreg index_of(struct em *em, int64_t n)
{
    return em_const(em, ELEM_I64, 1, 0, n);
}

/* What steps prefetch of the next block of vectors, from their own panels on: each tile its share of the lines. */
static expr_id later_panels(struct em *em, const struct tiling *t, int64_t block, struct lmatmul *m)
{
    const struct em_ahead *a = &em->ahead;
    int64_t size = elem_size(value_type(em->g, t->n->in[1])->elem), all = m->k * size * MATMUL_COLUMNS / LINE;
    if (!t->s->early || !a->tile.i || !a->tiles)
        return ex_const(em->x, 0);
    m->lines = (all + a->tiles - 1) / a->tiles;
    expr_id first = ex_mod(em->x, ex_mulc(em->x, a->tile, m->lines), ex_const(em->x, all));
    return ex_addc(em->x, ex_mulc(em->x, first, LINE / size), block);
}

static void put_product(struct em *em, const struct tiling *t, int64_t block, struct lmatmul *m, const expr_id *point)
{
    lreg in[MATMUL_FIXED + 3 * MATMUL_LOOPS] = {t->sums};
    expr_id k[REDUCED_MOST], at[RANK_MAX];
    uint32_t n = 1;
    for (uint32_t d = 0; d < REDUCED_MOST; d++)
        k[d] = ex_const(em->x, 0);
    for (uint32_t o = 0; o < 2; o++) {
        value_id v = t->n->in[o];
        contraction_point(em->g, t->n, o, point, k, at);
        in[n++] = em_buffer(em, v);
        in[n++] = em_index(em, storage_address(em->x, &em->m->fused.storage[v.i], at));
    }
    in[n++] = em_index(em, later_panels(em, t, block, m));
    const int64_t shape[MATMUL_FIXED - MATMUL_FIRST] = {m->rows,  m->stride, m->second, m->place,
                                                        m->apart, m->k,      m->lines};
    for (uint32_t i = 0; i < COUNT_OF(shape); i++)
        in[n++] = index_of(em, shape[i]);
    for (uint32_t l = 0; l < m->n_loops; l++) {
        in[n++] = index_of(em, m->loop[l].n);
        in[n++] = index_of(em, m->loop[l].a);
        in[n++] = index_of(em, m->loop[l].b);
    }
    lf_stmt(em->f, em->level[em->top], L_MATMUL, in, n);
}

void matmul_body(struct em *em, struct tiling *t, const struct tile_at *at, uint32_t tb)
{
    struct matmul_form f;
    if (!matmul_form(&em->site, t->s, &f)) {
        em->failed = !error_internal(em->m->ctx, t->n->src, "kernel %s: its operands lie otherwise", em->f->name);
        return;
    }
    struct lmatmul m = matmul_tile(&f, at->ta, tb, t->n_pieces);
    put_product(em, t, f.m.apart * t->s->nr, &m, tile_point(em, t, at->a, at->b, 0));
    epilogue_rows(em, t, at, tb);
}

/* A register tile by L_MATMUL: all of its products at once into scratch, then the epilogue row by row, in loops. */
#include "passes/emit/tiled.h"

enum { UNROLLED = 8 /* results of a trip through the rows */ };

static lreg index_of(struct em *em, int64_t n)
{
    return em_const(em, ELEM_I64, 1, 0, n);
}

static void put_product(struct em *em, const struct tiling *t, const struct lmatmul *m, const expr_id *point)
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
    const int64_t shape[MATMUL_FIXED - 5] = {m->rows, m->stride, m->second, m->place, m->apart, m->k};
    for (uint32_t i = 0; i < COUNT_OF(shape); i++)
        in[n++] = index_of(em, shape[i]);
    for (uint32_t l = 0; l < m->n_loops; l++) {
        in[n++] = index_of(em, m->loop[l].n);
        in[n++] = index_of(em, m->loop[l].a);
        in[n++] = index_of(em, m->loop[l].b);
    }
    lf_stmt(em->f, em->level[em->top], L_MATMUL, in, n);
}

struct rows {
    struct em *em;
    struct tiling *t;
    expr_id a0, b; /* the first one's number along a; its index along b */
    int64_t from; /* rows of scratch before it */
};

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
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t v = 0; v < t->n_pieces; v++) {
            expr_id row = ex_addc(x, at, r->from + i);
            points[n] = tile_point(em, t, ex_addc(x, ex_add(x, r->a0, at), i), r->b, v);
            sum[n] = em_scratch_load(em, t->sums,
                                     ex_mulc(x, ex_addc(x, ex_mulc(x, row, t->n_pieces), v), MATMUL_COLUMNS),
                                     piece_lanes(em, t, v));
            n++;
        }
    em_interleave_begin(em, &w);
    for (uint32_t i = 0; i < n && !em->failed; i++) {
        tile_store(em, points[i], reduction_result(em, t->n, sum[i]));
        em_interleave_next(em, &w);
    }
    em_interleave_end(em, &w, t->s->interleave, t->s->interleave_least);
}

void matmul_scratch(struct em *em, struct tiling *t)
{
    const struct tile_schedule *s = t->s;
    t->sums = em_scratch(em, reduce_elem(em->g, t->n), (int64_t)s->tb * s->ta * s->nr * MATMUL_COLUMNS);
}

void matmul_body(struct em *em, struct tiling *t, const struct tile_at *at, uint32_t tb)
{
    struct matmul_form f;
    if (!matmul_form(&em->site, t->s, &f)) {
        em->failed = !error_internal(em->m->ctx, t->n->src, "kernel %s: its operands lie otherwise", em->f->name);
        return;
    }
    struct lmatmul m = matmul_tile(&f, at->ta, tb, t->n_pieces);
    put_product(em, t, &m, tile_point(em, t, at->a, at->b, 0));
    for (uint32_t j = 0; j < tb && !em->failed; j++) {
        struct rows r = {em, t, at->a, ex_addc(em->x, at->b, j), (int64_t)j * at->ta};
        em_tiles(em, ex_const(em->x, at->ta), UNROLLED / t->n_pieces, REST_POINTS, put_rows, &r);
    }
}

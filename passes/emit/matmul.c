/* A register tile by L_MATMUL: all of its products at once into scratch, then the epilogue row by row, in loops. Of a
 * scaled product, those of a block, which are then scaled and added to sums in registers.
 */
#include "passes/emit/producer.h"
#include "passes/emit/reduce.h"
#include "passes/emit/register_tile.h"
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

/* From index `first` of the outermost reduced dim on, into scratch `sums`. */
static void put_product(struct em *em, const struct tiling *t, lreg sums, expr_id first, expr_id later,
                        const struct lmatmul *m, const expr_id *point)
{
    lreg in[MATMUL_FIXED + 3 * MATMUL_LOOPS] = {sums};
    expr_id k[REDUCED_MOST] = {first}, at[RANK_MAX];
    uint32_t n = 1;
    for (uint32_t d = 1; d < REDUCED_MOST; d++)
        k[d] = ex_const(em->x, 0);
    for (uint32_t o = 0; o < 2; o++) {
        value_id v = t->n->in[o];
        const struct em_producer *p = em_producer_seen(em, v);
        contraction_point(em->g, t->n, o, point, k, at);
        in[n++] = p ? p->buffer : em_buffer(em, v);
        in[n++] = em_index(em, p ? em_at_lane(em, storage_address(em->x, &p->storage, at), 0)
                                 : storage_address(em->x, &em->m->fused.storage[v.i], at));
    }
    in[n++] = em_index(em, later);
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
    expr_id later = later_panels(em, t, f.m.apart * t->s->nr, &m);
    put_product(em, t, t->sums, ex_const(em->x, 0), later, &m, tile_point(em, t, at->a, at->b, 0));
    epilogue_rows(em, t, at, tb);
}

/* ---- products with scales ---------------------------------------------------------------------------------------- */

struct blocks {
    struct em *em;
    struct tiling *t;
    struct reduction r;
    struct lmatmul m;
    const expr_id *point; /* the first one */
};

/* The sums of block `number` into one of the two scratches. */
static void put_block(const struct blocks *b, expr_id number, uint32_t place)
{
    put_product(b->em, b->t, b->t->block[place], number, ex_const(b->em->x, 0), &b->m, b->point);
}

/* Those of block `number`, scaled, to acc. */
static void add_block(struct blocks *b, expr_id number, uint32_t place, lreg *acc)
{
    lreg part[EM_POINTS];
    expr_id k[REDUCED_MOST] = {number};
    for (uint32_t d = 1; d < b->r.n_dims; d++)
        k[d] = ex_const(b->em->x, 0);
    reduction_ahead(b->em, &b->r, k);
    for (uint32_t i = 0; i < b->r.n_points; i++)
        part[i] = em_scratch_load(b->em, b->t->block[place], ex_const(b->em->x, (int64_t)i * MATMUL_COLUMNS),
                                  piece_lanes(b->em, b->t, 0));
    reduction_add_block(b->em, &b->r, number, part, acc);
}

/* Asks for the lines of the results before their sums are there: stores wait for one another, and those of a block wait
 * for what came before. */
static void prefetch_results(struct em *em, uint32_t n, expr_id *const *points)
{
    const int32_t rank = value_type(em->g, em->k->domain)->rank;
    expr_id at[RANK_MAX];
    for (uint32_t i = 0; i < n; i++) {
        bool together = true;
        tile_domain(em, points[i], at);
        for (int32_t d = 0; d < rank; d++) {
            at[d] = em_at_lane(em, at[d], 0);
            together &= em_expr_lanes(em, at[d]) == 0;
        }
        if (together)
            em_prefetch_out(em, at);
    }
}

/* Two blocks, each while the product of the next one is computed: sums that were just stored are not there yet. */
static void two_blocks(void *user, expr_id i, lreg *acc)
{
    struct blocks *b = user;
    expr_id first = ex_mulc(b->em->x, i, 2);
    for (uint32_t j = 0; j < 2; j++) {
        put_block(b, ex_addc(b->em->x, first, j + 1), !j);
        add_block(b, ex_addc(b->em->x, first, j), j, acc);
    }
}

void matmul_scratch(struct em *em, struct tiling *t)
{
    for (uint32_t i = 0; i < COUNT_OF(t->block) && t->s->matmul && dot_scaled(t->n); i++)
        t->block[i] = em_scratch(em, ELEM_I32, (int64_t)t->s->ta * MATMUL_COLUMNS);
}

void matmul_scaled(struct em *em, struct tiling *t, const struct tile_at *at, uint32_t n, expr_id *const *points,
                   lreg *acc)
{
    struct exprs *x = em->x;
    struct blocks b = {em, t, .point = tile_point(em, t, at->a, at->b, 0)};
    struct matmul_form f;
    if (!matmul_form(&em->site, t->s, &f) || !f.blocks || t->n_pieces != 1) {
        em->failed = !error_internal(em->m->ctx, t->n->src, "kernel %s: its operands lie otherwise", em->f->name);
        return;
    }
    b.m = matmul_tile(&f, at->ta, 1, 1);
    reduction_begin(em, &b.r, t->n, n, points, ex_const(x, 1));
    for (uint32_t i = 0; i < n; i++)
        acc[i] = em_const(em, ELEM_F32, piece_lanes(em, t, 0), 0, 0);
    put_block(&b, ex_const(x, 0), 0);
    prefetch_results(em, n, points);
    int64_t left = (f.blocks - 1) / 2 * 2;
    em_tile_loop(em, ex_const(x, 0), ex_const(x, left / 2), n, acc, two_blocks, &b);
    for (; left < f.blocks; left++) {
        if (left + 1 < f.blocks)
            put_block(&b, ex_const(x, left + 1), (left + 1) % 2);
        add_block(&b, ex_const(x, left), left % 2, acc);
    }
}

/* Q of the attention template: the rows' operand of the scores, transposed, so that rows lie along the lanes. */
#include "passes/emit/attention/attention.h"

enum { TILE_MOST = 16 };

/* One line of Q for each d, lanes along rows from the start. */
static void transpose_lines(struct attn *t, int64_t first)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for l;
    expr_id idx[RANK_MAX], d = em_for_begin(em, &l, ex_const(x, first), ex_const(x, t->size), NULL, 0);
    for (int64_t j = 0; j < t->nv; j++) {
        attn_operand_point(t, true, t->row[j], ex_const(x, 0), d, idx);
        lreg v = em_value(em, t->row_operand, idx, ex_const(x, 1));
        em_scratch_store(em, t->q, attn_line(t, d, j), em_splat(em, v, t->s->lanes));
    }
    em_for_end(em, &l, NULL, NULL);
}

/* Two rows of a tile change places in half of their lanes: of a and b, whose numbers differ in `bit`, the lower keeps
 * the lanes without that bit and takes b's of these, and so on. */
static lreg exchange(struct attn *t, lreg a, lreg b, uint32_t bit, bool upper)
{
    uint8_t from[TILE_MOST];
    for (uint32_t i = 0; i < t->s->lanes; i++)
        from[i] = (uint8_t)((upper ? i | bit : i & ~bit) + (i & bit ? t->s->lanes : 0));
    return em_shuffle(t->em, a, b, from, t->s->lanes);
}

/* A tile of lanes x lanes, rows in registers, transposed: log2(lanes) exchanges of blocks twice as large each time. */
static void transpose_tile(struct attn *t, lreg *v)
{
    lreg next[TILE_MOST];
    for (uint32_t bit = 1; bit < t->s->lanes; bit *= 2) {
        for (uint32_t i = 0; i < t->s->lanes; i++)
            next[i] = i & bit ? exchange(t, v[i & ~bit], v[i], bit, true) : exchange(t, v[i], v[i | bit], bit, false);
        memcpy(v, next, t->s->lanes * sizeof *v);
    }
}

/* Q by tiles where its rows lie along the contracted dim: the load of a row's vector is one, not as many as it has
 * lanes. Rows beyond the last repeat it. */
static void transpose_tiles(struct attn *t, int64_t tiles)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for l, in;
    lreg v[TILE_MOST];
    expr_id idx[RANK_MAX], zero = ex_const(x, 0), last = ex_addc(x, t->rows, -1);
    int64_t most = ex_hi(x, last);
    expr_id j = em_for_begin(em, &l, zero, ex_const(x, t->nv), NULL, 0);
    expr_id first = ex_add(x, t->row0, ex_mulc(x, j, t->s->lanes));
    expr_id row[TILE_MOST];
    for (uint32_t i = 0; i < t->s->lanes; i++)
        row[i] = em_pin(em, ex_min(x, ex_addc(x, first, i), last), 0, most < 0 ? INT64_MAX : most);
    expr_id block = em_for_begin(em, &in, zero, ex_const(x, tiles), NULL, 0), d = ex_mulc(x, block, t->s->lanes);
    expr_id lane = ex_add(x, d, em_lane(em, t->s->lanes, (lreg){0}));
    for (uint32_t i = 0; i < t->s->lanes; i++) {
        attn_operand_point(t, true, row[i], zero, lane, idx);
        v[i] = em_splat(em, em_value(em, t->row_operand, idx, ex_const(x, 1)), t->s->lanes);
    }
    transpose_tile(t, v);
    for (uint32_t i = 0; i < t->s->lanes; i++)
        em_scratch_store(em, t->q, ex_add(x, attn_line(t, ex_addc(x, d, i), 0), ex_mulc(x, j, t->s->lanes)), v[i]);
    em_for_end(em, &in, NULL, NULL);
    em_for_end(em, &l, NULL, NULL);
}

static void transpose(struct attn *t)
{
    int64_t tiles = t->s->lanes <= TILE_MOST && value_fast_dim(t->em->m, t->row_operand) == t->of_row.contract
                        ? t->size / t->s->lanes
                        : 0;
    if (tiles)
        transpose_tiles(t, tiles);
    if (tiles * t->s->lanes < t->size)
        transpose_lines(t, tiles * t->s->lanes);
}

void attn_transpose(struct attn *t)
{
    attn_either(t, attn_copy_rows, transpose);
}

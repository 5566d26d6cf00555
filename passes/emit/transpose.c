/* Transposing maps by tiles: rows of the operand are loaded as they lie, 16 bytes each, and turned by interleaving
 * registers; so no load or store touches more lines than it must. Groups of tiles fill whole cache lines on both
 * sides before the next lines are begun. Extents that are no multiple of a tile's end with a tile that overlaps the
 * one before: it stores the same values again.
 */
#include "passes/emit/transpose.h"
#include "passes/emit/templates.h"

#include <string.h>

struct axes {
    sym_id lane, column;
}; /* the lane symbols of a tile's two dims */

static bool whole(const struct em *em, expr_id n, uint32_t size)
{
    return ex_is(em->x, ex_mod(em->x, n, ex_const(em->x, size)), 0);
}

struct transpose transpose_open(const struct em *em, const struct transpose_schedule *s, int32_t vec, int32_t source)
{
    struct exprs *x = em->x;
    const struct type *type = value_type(em->g, em->k->domain);
    struct transpose t = {.s = s, .vec = vec, .source = source};
    expr_id lanes = ex_const(x, s->lanes), columns = ex_const(x, s->columns);
    t.fits = ex_and(x, ex_le(x, lanes, type->dims[vec]), ex_le(x, columns, type->dims[source]));
    t.n_vec = ex_ceildiv(x, type->dims[vec], lanes);
    t.n_source = ex_ceildiv(x, type->dims[source], columns);
    t.groups = ex_ceildiv(x, t.n_vec, ex_const(x, s->tiles));
    return t;
}

/* ---- tiles ----------------------------------------------------------------------------------------------------- */

/* Every part of 16 bytes of a and b: their lower (upper) elements in turn. */
static lreg interleave(struct em *em, lreg a, lreg b, uint32_t columns, bool upper)
{
    uint8_t from[TRANSPOSE_LANES_MOST];
    uint32_t n = lf_type(em->f, a).lanes;
    for (uint32_t i = 0; i < n; i++)
        from[i] = (uint8_t)(i / columns * columns + (i % columns + (upper ? columns : 0)) / 2 + (i % 2 ? n : 0));
    return em_shuffle(em, a, b, from, n);
}

/* v[r] holds rows r, r + columns ... of a tile side by side; afterwards v[c] is column c. */
static void transpose_tile(struct em *em, lreg *v, uint32_t columns)
{
    lreg next[TRANSPOSE_COLUMNS_MOST];
    for (uint32_t step = 1; step < columns; step *= 2) {
        for (uint32_t i = 0; i < columns; i++)
            next[i] = interleave(em, v[i / 2], v[i / 2 + columns / 2], columns, i % 2);
        memcpy(v, next, columns * sizeof *v);
    }
}

/* a and b side by side. */
static lreg joined(struct em *em, lreg a, lreg b)
{
    uint8_t from[TRANSPOSE_LANES_MOST];
    uint32_t n = 2 * lf_type(em->f, a).lanes;
    for (uint32_t i = 0; i < n; i++)
        from[i] = (uint8_t)i;
    return em_shuffle(em, a, b, from, n);
}

/* Rows first, first + step ... of a tile, `count` of them, a power of two, side by side. */
static lreg load_rows(struct em *em, const struct transpose *t, const struct turned_load *l, struct axes a,
                      uint32_t first, uint32_t count)
{
    if (count > 1) {
        lreg low = load_rows(em, t, l, a, first, count / 2);
        return joined(em, low, load_rows(em, t, l, a, first + count / 2 * t->s->columns, count / 2));
    }
    expr_id at[RANK_MAX], row = ex_const(em->x, first);
    for (int32_t d = 0; d < value_type(em->g, l->value)->rank; d++)
        at[d] = ex_subst(em->x, l->at[d], &a.lane, &row, 1);
    return em_load_memory(em, l->value, at);
}

/* Loads the tile of one operand; what it is at each column is remembered as the operand's value there. */
static void load_tile(struct em *em, const struct transpose *t, const struct turned_load *l, struct axes a)
{
    lreg v[TRANSPOSE_COLUMNS_MOST];
    const struct type *type = value_type(em->g, l->value);
    for (uint32_t r = 0; r < t->s->columns; r++)
        v[r] = load_rows(em, t, l, a, r, t->s->lanes / t->s->columns);
    transpose_tile(em, v, t->s->columns);
    for (uint32_t c = 0; c < t->s->columns; c++) {
        expr_id at[RANK_MAX], column = ex_const(em->x, c);
        for (int32_t d = 0; d < type->rank; d++)
            at[d] = ex_subst(em->x, l->at[d], &a.column, &column, 1);
        em_remember(em, l->value, at, ex_const(em->x, 1), 0, em_to_register(em, v[c], type->elem));
    }
}

/* The tile from points first_vec, first_source on. */
static void emit_tile(struct em *em, const struct transpose *t, expr_id first_vec, expr_id first_source, expr_id *idx)
{
    struct exprs *x = em->x;
    struct turned_load loads[TURNED_MOST];
    expr_id lane = em_lane(em, t->s->lanes, (lreg){0}), column = em_lane(em, t->s->columns, (lreg){0});
    struct axes axes = {ex_as_sym(x, lane), ex_as_sym(x, column)};
    idx[t->vec] = ex_add(x, first_vec, lane);
    idx[t->source] = ex_add(x, first_source, column);
    uint32_t n = turned_loads(&em->site, idx, axes.lane, axes.column, t->s->columns, loads);
    for (uint32_t i = 0; i < n; i++)
        load_tile(em, t, &loads[i], axes);
    for (uint32_t c = 0; c < t->s->columns; c++) {
        idx[t->source] = ex_addc(x, first_source, c);
        em_store_out(em, idx, em_value(em, em->k->domain, idx, ex_const(x, 1)));
    }
}

/* Where tile number i of this size begins: the last one ends with the dim. */
static expr_id begin_of(struct em *em, expr_id i, expr_id extent, uint32_t size)
{
    expr_id begin = ex_mulc(em->x, i, size);
    int64_t hi = ex_hi(em->x, extent);
    return whole(em, extent, size) ? begin
                                   : em_pin(em, ex_min(em->x, begin, ex_addc(em->x, extent, -(int64_t)size)), 0,
                                            hi == INT64_MAX ? hi : hi - size);
}

/* The loop over tiles of a group of `size`, of n in all. */
static expr_id squares_begin(struct em *em, struct em_for *l, expr_id group, int64_t size, expr_id n)
{
    expr_id first = ex_mulc(em->x, group, size);
    return em_for_begin(em, l, first, ex_min(em->x, n, ex_addc(em->x, first, size)), 1, NULL, 0);
}

void transpose_emit(struct em *em, const struct transpose *t, expr_id group, expr_id *idx)
{
    struct exprs *x = em->x;
    const struct type *type = value_type(em->g, em->k->domain);
    struct em_for outer, lines, vec, source;
    bool own = !group.i;
    expr_id n_lines = ex_ceildiv(x, t->n_source, ex_const(x, TRANSPOSE_LINE / TRANSPOSE_BYTES));
    if (own)
        group = em_for_begin(em, &outer, ex_const(x, 0), t->groups, 1, NULL, 0);
    expr_id s = em_for_begin(em, &lines, ex_const(x, 0), n_lines, 1, NULL, 0);
    expr_id v = squares_begin(em, &vec, group, t->s->tiles, t->n_vec);
    expr_id first_vec = begin_of(em, v, type->dims[t->vec], t->s->lanes);
    expr_id c = squares_begin(em, &source, s, TRANSPOSE_LINE / TRANSPOSE_BYTES, t->n_source);
    emit_tile(em, t, first_vec, begin_of(em, c, type->dims[t->source], t->s->columns), idx);
    em_for_end(em, &source, NULL, NULL);
    em_for_end(em, &vec, NULL, NULL);
    em_for_end(em, &lines, NULL, NULL);
    if (own)
        em_for_end(em, &outer, NULL, NULL);
}

/* Transposing maps by tiles: rows of the operand are loaded as they lie, 16 bytes each, and turned by interleaving
 * registers; so no load or store touches more lines than it must.
 */
#include "passes/emit/templates.h"

struct tile {
    uint32_t lanes, columns;
    sym_id lane, column; /* of its points along the two dims */
};

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
static lreg load_rows(struct em *em, const struct tile *t, const struct turned_load *l, uint32_t first, uint32_t count)
{
    if (count > 1) {
        lreg low = load_rows(em, t, l, first, count / 2);
        return joined(em, low, load_rows(em, t, l, first + count / 2 * t->columns, count / 2));
    }
    expr_id at[RANK_MAX], row = ex_const(em->x, first);
    for (int32_t d = 0; d < value_type(em->g, l->value)->rank; d++)
        at[d] = ex_subst(em->x, l->at[d], &t->lane, &row, 1);
    return em_load_memory(em, l->value, at);
}

/* Loads the tile of one operand; what it is at each column is remembered as the operand's value there. */
static void load_tile(struct em *em, const struct tile *t, const struct turned_load *l)
{
    lreg v[TRANSPOSE_COLUMNS_MOST];
    const struct type *type = value_type(em->g, l->value);
    for (uint32_t r = 0; r < t->columns; r++)
        v[r] = load_rows(em, t, l, r, t->lanes / t->columns);
    transpose_tile(em, v, t->columns);
    for (uint32_t c = 0; c < t->columns; c++) {
        expr_id at[RANK_MAX], column = ex_const(em->x, c);
        for (int32_t d = 0; d < type->rank; d++)
            at[d] = ex_subst(em->x, l->at[d], &t->column, &column, 1);
        em_remember(em, l->value, at, ex_const(em->x, 1), 0, em_to_register(em, v[c], type->elem));
    }
}

void em_transposed(struct em *em, int32_t vec, int32_t source, uint32_t lanes, uint32_t columns, expr_id *idx)
{
    struct exprs *x = em->x;
    struct turned_load loads[TURNED_MOST];
    expr_id at[RANK_MAX], lane = em_lane(em, lanes, (lreg){0}), column = em_lane(em, columns, (lreg){0});
    const struct tile t = {lanes, columns, ex_as_sym(x, lane), ex_as_sym(x, column)};
    memcpy(at, idx, (size_t)value_type(em->g, em->k->domain)->rank * sizeof *at);
    at[vec] = ex_add(x, idx[vec], lane);
    at[source] = ex_add(x, idx[source], column);
    uint32_t n = turned_loads(&em->site, at, t.lane, t.column, columns, loads);
    for (uint32_t i = 0; i < n; i++)
        load_tile(em, &t, &loads[i]);
    for (uint32_t c = 0; c < columns; c++) {
        at[source] = ex_addc(x, idx[source], c);
        em_store_out(em, at, em_value(em, em->k->domain, at, ex_const(x, 1)));
    }
}

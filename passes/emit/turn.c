/* Transposing maps by squares: rows of the operand are loaded as they lie, 16 bytes each, and turned by interleaving registers;
 * so no load or store touches more lines than it must. Groups of squares fill whole cache lines on both sides before the next
 * lines are begun. Extents that are no multiple of a square's end with a square that overlaps the one before: it stores the
 * same values again.
 */
#include "passes/emit/turn.h"
#include "passes/emit/templates.h"

#include <string.h>

enum { PART = 16 /* bytes that interleaving stays within */, LINE = 64, MAX_COLUMNS = 16, MAX_LANES = 32, MAX_LOADS = 8,
       MAX_STATEMENTS = 600 /* of a square, about */, DEAR = 20 };

struct turned_load { value_id value; expr_id at[RANK_MAX]; };
struct turned_loads { struct turned_load load[MAX_LOADS]; uint32_t n; };
struct axes { sym_id lane, column; };        /* the lane symbols of a square's two dims */

/* ---- which loads ---------------------------------------------------------------------------------------------------- */

/* Stored values that the value of v at idx is computed of without a condition, each at its own point. */
static void collect_loads(struct em *em, value_id v, const expr_id *idx, struct turned_loads *found, uint32_t nesting)
{
    double f;
    int64_t i;
    if (nesting > 64 || found->n == MAX_LOADS || value_is_splat(em->g, v, &f, &i))
        return;
    if (em->m->storage[v.i].place != PLACE_NONE && em->k->outs.data[0].i != v.i) {
        struct turned_load *l = &found->load[found->n++];
        l->value = v;
        memcpy(l->at, idx, (size_t)value_type(em->g, v)->rank * sizeof *idx);
        return;
    }
    if (!graph_value(em->g, v)->def.i)
        return;
    const struct node *n = graph_node(em->g, graph_value(em->g, v)->def);
    if (op_shape(n->op) == SHAPE_VIEW && n->op != OP_CONCAT && n->op != OP_PAD) {
        expr_id at[RANK_MAX], cond;
        view_index(em->g, n, 0, idx, at, &cond);
        collect_loads(em, n->in[0], at, found, nesting + 1);
    } else if (op_shape(n->op) == SHAPE_MAP && n->op != OP_GATHER && n->op != OP_GATHER_ELEMENTS && n->op != OP_GATHER_ND) {
        for (uint32_t k = 0; k < n->n_in && k < 3; k++)
            collect_loads(em, n->in[k], idx, found, nesting + 1);
    }
}

static bool can_shuffle(enum elem e)
{
    return e != ELEM_BOOL && elem_class(e) != 'C' && elem_class(e) != 'S' && elem_size(e) <= 8;
}

/* Contiguous along the columns, at some distance along the lanes. */
static bool is_turned(struct em *em, const struct turned_load *l, struct axes a)
{
    expr_id address = em_address(em, &em->m->storage[l->value.i], l->at), along, across, rest;
    return can_shuffle(value_type(em->g, l->value)->elem) && ex_linear(em->x, address, a.lane, &across, &rest) &&
           !ex_is(em->x, across, 0) && !ex_is(em->x, across, 1) && ex_linear(em->x, rest, a.column, &along, &rest) &&
           ex_is(em->x, along, 1) && !ex_uses(em->x, across, a.column);
}

/* ---- the plan ------------------------------------------------------------------------------------------------------- */

/* About how many statements the kernel has for one register of results. */
static int64_t statements(struct em *em)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < em->k->nodes.n; i++) {
        const struct node *node = graph_node(em->g, em->k->nodes.data[i]);
        n += op_shape(node->op) != SHAPE_MAP ? 0 : op_is_expensive(node->op) ? DEAR : 1;
    }
    return n;
}

static expr_id plan_symbol(struct em *em, int64_t hi)
{
    return ex_sym(em->x, sym_new(em->x, SYM_LOOP, arena_printf(em->arena, "%s.t%u", em->f->name, sym_count(em->x)), 0, hi));
}

static bool whole(struct em *em, expr_id n, uint32_t size) { return ex_is(em->x, ex_mod(em->x, n, ex_const(em->x, size)), 0); }

/* Is some operand turned by squares of this size, and the result stored by vectors? */
static bool squares_serve(struct em *em, const struct turn *t)
{
    struct exprs *x = em->x;
    const struct type *type = value_type(em->g, em->k->domain);
    struct turned_loads loads = {.n = 0};
    expr_id idx[RANK_MAX], lane = em_lane(em, t->lanes, (lval){0}), column = em_lane(em, t->columns, (lval){0});
    struct axes axes = {ex_as_sym(x, lane), ex_as_sym(x, column)};
    for (int32_t d = 0; d < type->rank; d++) {
        int64_t hi = ex_hi(x, type->dims[d]);
        idx[d] = plan_symbol(em, hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0);
        uint32_t size = d == t->vec ? t->lanes : t->columns;
        if (d != t->vec && d != t->source)
            continue;
        if (whole(em, type->dims[d], size))
            idx[d] = ex_mulc(x, plan_symbol(em, hi == INT64_MAX ? hi : hi / size), size);
        idx[d] = ex_add(x, idx[d], d == t->vec ? lane : column);
    }
    collect_loads(em, em->k->domain, idx, &loads, 0);
    for (uint32_t i = 0; i < loads.n; i++)
        if (is_turned(em, &loads.load[i], axes) && PART / elem_size(value_type(em->g, loads.load[i].value)->elem) == t->columns)
            return true;
    return false;
}

bool turn_plan(struct em *em, int32_t vec, int32_t source, struct turn *t)
{
    static const uint32_t columns[] = {4, 16, 8, 2};     /* of elements of 4, 1, 2, 8 bytes */
    struct exprs *x = em->x;
    const struct type *type = value_type(em->g, em->k->domain);
    expr_id n_vec = type->dims[vec], n_source = type->dims[source];
    int64_t work = statements(em);
    for (uint32_t i = 0; i < COUNT_OF(columns); i++) {
        uint32_t lanes = columns[i] * (em->mach->vector_bytes / PART);
        lanes = lanes > MAX_LANES ? MAX_LANES : lanes;
        while (lanes > columns[i] && (lanes > extent_hint(em->x, n_vec) || work * columns[i] * lanes * 4 / em->mach->vector_bytes > MAX_STATEMENTS))
            lanes /= 2;
        *t = (struct turn){.vec = vec, .source = source, .lanes = lanes, .columns = columns[i]};
        t->fits = ex_and(x, ex_le(x, ex_const(x, lanes), n_vec), ex_le(x, ex_const(x, columns[i]), n_source));
        if (ex_truth(x, t->fits) == FALSE_ || lanes > extent_hint(em->x, n_vec) || columns[i] > extent_hint(em->x, n_source) ||
            work * columns[i] > MAX_STATEMENTS || !squares_serve(em, t))
            continue;
        t->line = LINE / elem_size(type->elem) / lanes;
        t->line = t->line ? t->line : 1;
        t->n_vec = ex_ceildiv(x, n_vec, ex_const(x, lanes));
        t->n_source = ex_ceildiv(x, n_source, ex_const(x, columns[i]));
        t->groups = ex_ceildiv(x, t->n_vec, ex_const(x, t->line));
        return true;
    }
    return false;
}

/* ---- squares -------------------------------------------------------------------------------------------------------- */

/* Every part of 16 bytes of a and b: their lower (upper) elements in turn. */
static lval interleave(struct em *em, lval a, lval b, uint32_t columns, bool upper)
{
    uint8_t from[MAX_LANES];
    uint32_t n = lf_type(em->f, a).lanes;
    for (uint32_t i = 0; i < n; i++)
        from[i] = (uint8_t)(i / columns * columns + (i % columns + (upper ? columns : 0)) / 2 + (i % 2 ? n : 0));
    return em_shuffle(em, a, b, from, n);
}

/* v[r] holds rows r, r + columns ... of a square side by side; afterwards v[c] is column c. */
static void turn_square(struct em *em, lval *v, uint32_t columns)
{
    lval next[MAX_COLUMNS];
    for (uint32_t step = 1; step < columns; step *= 2) {
        for (uint32_t i = 0; i < columns; i++)
            next[i] = interleave(em, v[i / 2], v[i / 2 + columns / 2], columns, i % 2);
        memcpy(v, next, columns * sizeof *v);
    }
}

/* a and b side by side. */
static lval joined(struct em *em, lval a, lval b)
{
    uint8_t from[MAX_LANES];
    uint32_t n = 2 * lf_type(em->f, a).lanes;
    for (uint32_t i = 0; i < n; i++)
        from[i] = (uint8_t)i;
    return em_shuffle(em, a, b, from, n);
}

/* Rows first, first + step ... of a square, `count` of them, a power of two, side by side. */
static lval load_rows(struct em *em, const struct turn *t, const struct turned_load *l, struct axes a, uint32_t first, uint32_t count)
{
    if (count > 1) {
        lval low = load_rows(em, t, l, a, first, count / 2);
        return joined(em, low, load_rows(em, t, l, a, first + count / 2 * t->columns, count / 2));
    }
    expr_id at[RANK_MAX], row = ex_const(em->x, first);
    for (int32_t d = 0; d < value_type(em->g, l->value)->rank; d++)
        at[d] = ex_subst(em->x, l->at[d], &a.lane, &row, 1);
    return em_load_memory(em, l->value, at);
}

/* Loads the square of one operand; what it is at each column is remembered as the operand's value there. */
static void load_square(struct em *em, const struct turn *t, const struct turned_load *l, struct axes a)
{
    lval v[MAX_COLUMNS];
    const struct type *type = value_type(em->g, l->value);
    for (uint32_t r = 0; r < t->columns; r++)
        v[r] = load_rows(em, t, l, a, r, t->lanes / t->columns);
    turn_square(em, v, t->columns);
    for (uint32_t c = 0; c < t->columns; c++) {
        expr_id at[RANK_MAX], column = ex_const(em->x, c);
        for (int32_t d = 0; d < type->rank; d++)
            at[d] = ex_subst(em->x, l->at[d], &a.column, &column, 1);
        em_remember(em, l->value, at, ex_const(em->x, 1), em_to_register(em, v[c], type->elem));
    }
}

/* The square from points first_vec, first_source on. */
static void emit_square(struct em *em, const struct turn *t, expr_id first_vec, expr_id first_source, expr_id *idx)
{
    struct exprs *x = em->x;
    struct turned_loads loads = {.n = 0};
    expr_id lane = em_lane(em, t->lanes, (lval){0}), column = em_lane(em, t->columns, (lval){0});
    struct axes axes = {ex_as_sym(x, lane), ex_as_sym(x, column)};
    idx[t->vec] = ex_add(x, first_vec, lane);
    idx[t->source] = ex_add(x, first_source, column);
    collect_loads(em, em->k->domain, idx, &loads, 0);
    for (uint32_t i = 0; i < loads.n; i++)
        if (is_turned(em, &loads.load[i], axes) && PART / elem_size(value_type(em->g, loads.load[i].value)->elem) == t->columns)
            load_square(em, t, &loads.load[i], axes);
    for (uint32_t c = 0; c < t->columns; c++) {
        idx[t->source] = ex_addc(x, first_source, c);
        em_store_out(em, idx, em_value(em, em->k->domain, idx, ex_const(x, 1)));
    }
}

/* Where square number i of this size begins: the last one ends with the dim. */
static expr_id begin_of(struct em *em, expr_id i, expr_id extent, uint32_t size)
{
    expr_id begin = ex_mulc(em->x, i, size);
    int64_t hi = ex_hi(em->x, extent);
    return whole(em, extent, size) ? begin
                                   : em_pin(em, ex_min(em->x, begin, ex_addc(em->x, extent, -(int64_t)size)), 0, hi == INT64_MAX ? hi : hi - size);
}

/* The loop over squares of a group of `size`, of n in all. */
static expr_id squares_begin(struct em *em, struct em_for *l, expr_id group, int64_t size, expr_id n)
{
    expr_id first = ex_mulc(em->x, group, size);
    return em_for_begin(em, l, first, ex_min(em->x, n, ex_addc(em->x, first, size)), 1, NULL, 0);
}

void turn_emit(struct em *em, const struct turn *t, expr_id group, expr_id *idx)
{
    struct exprs *x = em->x;
    const struct type *type = value_type(em->g, em->k->domain);
    struct em_for outer, lines, vec, source;
    bool own = !group.i;
    expr_id n_lines = ex_ceildiv(x, t->n_source, ex_const(x, LINE / PART));
    if (own)
        group = em_for_begin(em, &outer, ex_const(x, 0), t->groups, 1, NULL, 0);
    expr_id s = em_for_begin(em, &lines, ex_const(x, 0), n_lines, 1, NULL, 0);
    expr_id v = squares_begin(em, &vec, group, t->line, t->n_vec);
    expr_id first_vec = begin_of(em, v, type->dims[t->vec], t->lanes);
    expr_id c = squares_begin(em, &source, s, LINE / PART, t->n_source);
    emit_square(em, t, first_vec, begin_of(em, c, type->dims[t->source], t->columns), idx);
    em_for_end(em, &source, NULL, NULL);
    em_for_end(em, &vec, NULL, NULL);
    em_for_end(em, &lines, NULL, NULL);
    if (own)
        em_for_end(em, &outer, NULL, NULL);
}

/* Which maps are transposed in registers (emit/transpose.c), and by tiles of which size. */
#include "passes/module/visited.h"
#include "passes/schedule/schedule.h"

#include <string.h>

enum { STATEMENTS_MOST = 600 /* of a tile, about */, DEAR = 20 };

/* ---- which loads ------------------------------------------------------------------------------------------------- */

struct turned_found {
    struct turned_load *load;
    uint32_t n;
    struct visited seen;
};

/* Stored values that the value of v at idx is computed of without a condition, each at its own point. */
static void collect_loads(const struct site *s, value_id v, const expr_id *idx, struct turned_found *found,
                          uint32_t nesting)
{
    double f;
    int64_t i;
    if (nesting > 64 || found->n == TURNED_MOST || value_is_splat(s->g, v, &f, &i) || !visit(&found->seen, v, idx))
        return;
    if (s->m->storage[v.i].place != PLACE_NONE && s->k->outs.data[0].i != v.i) {
        struct turned_load *l = &found->load[found->n++];
        l->value = v;
        memcpy(l->at, idx, (size_t)value_type(s->g, v)->rank * sizeof *idx);
        return;
    }
    if (!graph_value(s->g, v)->def.i)
        return;
    const struct node *n = graph_node(s->g, graph_value(s->g, v)->def);
    if (view_is_whole(n->op)) {
        expr_id at[RANK_MAX], cond;
        view_index(s->g, n, 0, idx, at, &cond);
        collect_loads(s, n->in[0], at, found, nesting + 1);
    } else if (op_shape(n->op) == SHAPE_MAP) {
        for (uint32_t k = 0; k < n->n_in && k < 3; k++)
            collect_loads(s, n->in[k], idx, found, nesting + 1);
    }
}

static bool can_shuffle(enum elem e)
{
    return e != ELEM_BOOL && elem_class(e) != 'C' && elem_class(e) != 'S' && elem_size(e) <= 8;
}

/* Contiguous along the columns, at some distance along the lanes. */
static bool is_turned(const struct site *s, const struct turned_load *l, sym_id lane, sym_id column)
{
    struct exprs *x = s->x;
    expr_id address = storage_address(x, &s->m->storage[l->value.i], l->at), along, across, rest;
    return can_shuffle(value_type(s->g, l->value)->elem) && ex_linear(x, address, lane, &across, &rest) &&
           !ex_is(x, across, 0) && !ex_is(x, across, 1) && ex_linear(x, rest, column, &along, &rest) &&
           ex_is(x, along, 1) && !ex_uses(x, across, column);
}

uint32_t turned_loads(const struct site *s, const expr_id *idx, sym_id lane, sym_id column, uint32_t columns,
                      struct turned_load *out)
{
    struct turned_load all[TURNED_MOST];
    struct turned_found found = {.load = all, .seen = {.g = s->g, .arena = s->arena}};
    uint32_t n = 0;
    collect_loads(s, s->k->domain, idx, &found, 0);
    for (uint32_t i = 0; i < found.n; i++)
        if (is_turned(s, &all[i], lane, column) &&
            TRANSPOSE_BYTES / elem_size(value_type(s->g, all[i].value)->elem) == columns)
            out[n++] = all[i];
    return n;
}

/* ---- the sizes --------------------------------------------------------------------------------------------------- */

/* About how many statements the kernel has for one register of results. */
static int64_t statements(const struct site *s)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < s->k->nodes.n; i++) {
        const struct node *node = graph_node(s->g, s->k->nodes.data[i]);
        n += !op_is_pointwise(node->op) ? 0 : op_cost(node->op) != COST_CHEAP ? DEAR : 1;
    }
    return n;
}

static sym_id fresh(const struct site *s, int64_t hi)
{
    return sym_new(s->x, SYM_LOOP, arena_printf(s->arena, "t%u", sym_count(s->x)), 0, hi);
}

/* Is some operand turned by tiles of this size, and the result stored by vectors? */
static bool squares_serve(const struct site *s, int32_t vec, int32_t source, const struct transpose_schedule *t)
{
    struct exprs *x = s->x;
    const struct type *type = value_type(s->g, s->k->domain);
    struct turned_load loads[TURNED_MOST];
    expr_id idx[RANK_MAX];
    sym_id lane = fresh(s, (int64_t)t->lanes - 1), column = fresh(s, (int64_t)t->columns - 1);
    for (int32_t d = 0; d < type->rank; d++) {
        int64_t hi = ex_hi(x, type->dims[d]);
        idx[d] = ex_sym(x, fresh(s, hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0));
        uint32_t size = d == vec ? t->lanes : t->columns;
        if (d != vec && d != source)
            continue;
        if (ex_is(x, ex_mod(x, type->dims[d], ex_const(x, size)), 0))
            idx[d] = ex_mulc(x, ex_sym(x, fresh(s, hi == INT64_MAX ? hi : hi / size)), size);
        idx[d] = ex_add(x, idx[d], ex_sym(x, d == vec ? lane : column));
    }
    return turned_loads(s, idx, lane, column, t->columns, loads) > 0;
}

bool transpose_serves(const struct site *s, int32_t vec, int32_t source, const struct transpose_schedule *t)
{
    struct exprs *x = s->x;
    const struct type *type = value_type(s->g, s->k->domain);
    expr_id fits = ex_and(x, ex_le(x, ex_const(x, t->lanes), type->dims[vec]),
                          ex_le(x, ex_const(x, t->columns), type->dims[source]));
    return ex_truth(x, fits) != FALSE_ && squares_serve(s, vec, source, t);
}

bool transpose_choose(const struct site *s, int32_t vec, int32_t source, struct transpose_schedule *t)
{
    static const uint32_t columns[] = {4, 16, 8, 2}; /* of elements of 4, 1, 2, 8 bytes */
    struct exprs *x = s->x;
    const struct type *type = value_type(s->g, s->k->domain);
    expr_id n_vec = type->dims[vec], n_source = type->dims[source];
    int64_t work = statements(s), vec_hint = extent_hint(x, n_vec);
    for (uint32_t i = 0; i < COUNT_OF(columns); i++) {
        uint32_t lanes = columns[i] * (s->mach->vector_bytes / TRANSPOSE_BYTES), line;
        lanes = lanes > TRANSPOSE_LANES_MOST ? TRANSPOSE_LANES_MOST : lanes;
        while (lanes > columns[i] &&
               (lanes > vec_hint || work * columns[i] * lanes * 4 / s->mach->vector_bytes > STATEMENTS_MOST))
            lanes /= 2;
        *t = (struct transpose_schedule){.lanes = lanes, .columns = columns[i]};
        if (lanes > vec_hint || columns[i] > extent_hint(x, n_source) || work * columns[i] > STATEMENTS_MOST ||
            !transpose_serves(s, vec, source, t))
            continue;
        line = TRANSPOSE_LINE / elem_size(type->elem) / lanes;
        t->tiles = line ? line : 1;
        return true;
    }
    *t = (struct transpose_schedule){.columns = 0};
    return false;
}

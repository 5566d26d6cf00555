/* Which maps are transposed in registers (emit/transpose.c), and by tiles of which size.
 *
 * For changes of layout between NCHW, NHWC and blocks of channels, transposed weights and heads of attention: 80 of
 * 1432 maps, in 54 of 568 networks.
 */
#include "passes/schedule/decisions.h"

enum { STATEMENTS_MOST = 600 /* of a tile, about */, DEAR = 20 };

/* ---- which loads ------------------------------------------------------------------------------------------------- */

struct turned_found {
    const struct site *s;
    struct turned_load *load;
    uint32_t n;
};

static bool turned_view(void *user, const struct node *n, const expr_id *idx)
{
    (void)user;
    (void)idx;
    return view_is_whole(n->op); /* without a condition */
}

static void turned_operand(void *user, value_id v, const expr_id *idx)
{
    struct turned_found *found = user;
    if (found->n == TURNED_MOST)
        return;
    struct turned_load *l = &found->load[found->n++];
    l->value = v;
    memcpy(l->at, idx, (size_t)value_type(found->s->g, v)->rank * sizeof *idx);
}

static bool can_shuffle(enum elem e)
{
    return e != ELEM_BOOL && elem_class(e) != 'C' && elem_class(e) != 'S' && elem_size(e) <= 8;
}

/* Contiguous along the columns, at some distance along the lanes. */
static bool is_turned(const struct site *s, const struct turned_load *l, sym_id lane, sym_id column)
{
    struct exprs *x = s->x;
    expr_id address = storage_address(x, &s->m->fused.storage[l->value.i], l->at), along, across, rest;
    return can_shuffle(value_type(s->g, l->value)->elem) && ex_linear(x, address, lane, &across, &rest) &&
           !ex_is(x, across, 0) && !ex_is(x, across, 1) && ex_linear(x, rest, column, &along, &rest) &&
           ex_is(x, along, 1) && !ex_uses(x, across, column);
}

uint32_t turned_loads(const struct site *s, const expr_id *idx, sym_id lane, sym_id column, uint32_t columns,
                      struct turned_load *out)
{
    struct turned_load all[TURNED_MOST];
    struct turned_found found = {.s = s, .load = all};
    uint32_t n = 0;
    operands_walk(&(struct operand_walk){.site = s, .user = &found, .view = turned_view, .operand = turned_operand},
                  idx);
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

/* Is some operand turned by tiles of this size, and the result stored by vectors? */
static bool squares_serve(const struct site *s, int32_t vec, int32_t source, int64_t lanes, int64_t columns)
{
    struct exprs *x = s->x;
    const struct type *type = value_type(s->g, s->k->domain);
    struct turned_load loads[TURNED_MOST];
    expr_id idx[RANK_MAX], within[2];
    domain_points(s, idx);
    for (int i = 0; i < 2; i++) {
        int32_t d = i ? source : vec;
        expr_id size = ex_const(x, i ? columns : lanes);
        within[i] = point_along(s, size);
        if (ex_is(x, ex_mod(x, type->dims[d], size), 0))
            idx[d] = ex_mul(x, point_along(s, ex_div(x, type->dims[d], size)), size);
        idx[d] = ex_add(x, idx[d], within[i]);
    }
    return turned_loads(s, idx, ex_as_sym(x, within[0]), ex_as_sym(x, within[1]), (uint32_t)columns, loads) > 0;
}

bool transpose_serves(const struct site *s, int32_t vec, int32_t source, int64_t lanes, int64_t columns)
{
    struct exprs *x = s->x;
    const struct type *type = value_type(s->g, s->k->domain);
    expr_id fits = ex_and(x, ex_le(x, ex_const(x, lanes), type->dims[vec]),
                          ex_le(x, ex_const(x, columns), type->dims[source]));
    return ex_truth(x, fits) != FALSE_ && squares_serve(s, vec, source, lanes, columns);
}

struct transpose_tile transpose_choose(const struct site *s, int32_t vec, int32_t source)
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
        if (lanes > vec_hint || columns[i] > extent_hint(x, n_source) || work * columns[i] > STATEMENTS_MOST ||
            !transpose_serves(s, vec, source, lanes, columns[i]))
            continue;
        line = TRANSPOSE_LINE / elem_size(type->elem) / lanes;
        return (struct transpose_tile){lanes, columns[i], line ? line : 1};
    }
    return (struct transpose_tile){.columns = 0};
}

/* What every rule uses: operands, results, attributes, facts about values, common constructions. */
#include <stdio.h>

#include "passes/legalize/driver.h"

/* ---- operands and results --------------------------------------------------------------------------------- */

struct lowered lowered_value(value_id v)
{
    return (struct lowered){.kind = v.i ? LOWERED_VALUE : LOWERED_POISON, .v = v};
}

value_id lowered_force(struct builder *b, struct lowered l)
{
    if (l.kind == LOWERED_VALUE)
        return l.v;
    if (l.kind != LOWERED_LIST && l.kind != LOWERED_OPTIONAL)
        return (value_id){0};
    value_id *in = NEW_ARRAY(&b->g->arena, value_id, l.n + 1);
    for (uint32_t i = 0; i < l.n; i++) {
        in[i] = lowered_force(b, l.items[i]);
        if (!in[i].i)
            return (value_id){0};
    }
    const struct attr attrs[] = {attr_elem("elem", l.elem == ELEM_NONE ? ELEM_F32 : l.elem), attr_int("sequence", 1)};
    if (l.kind == LOWERED_OPTIONAL)
        return b_op(b, OP_OPT_MAKE, in, l.n, attrs, l.n ? 0 : l.sequence ? 2 : 1);
    return b_op(b, OP_SEQ_MAKE, in, l.n, attrs, 1);
}

bool rule_has(const struct rule *r, uint32_t i)
{
    return i < r->n_in && r->arg[i].kind != LOWERED_NONE;
}

value_id rule_in(struct rule *r, uint32_t i)
{
    return rule_has(r, i) ? lowered_force(r->b, r->arg[i]) : (value_id){0};
}

bool rule_wants(const struct rule *r, uint32_t i)
{
    return i < r->n_out && r->node->out[i].i;
}

void rule_out(struct rule *r, uint32_t i, value_id v)
{
    if (i < r->n_out)
        r->out[i] = lowered_value(v);
}

bool rule_result(struct rule *r, value_id v)
{
    rule_out(r, 0, v);
    return v.i != 0;
}

bool rule_refuse(struct rule *r, const char *fmt, ...)
{
    TEXT_OF_ARGUMENTS(text, 200, fmt);
    legalize_refuse(r->lg, r->node, text);
    return false;
}

bool rule_bad(struct rule *r, const char *fmt, ...)
{
    TEXT_OF_ARGUMENTS(text, 400, fmt);
    return error_model(r->lg->ctx, r->node->src, "%s%s", text,
                       r->lg->trial ? "" : " (the node is invalid: correct it, or export the model again)");
}

bool rule_shaped(struct rule *r, value_id v, const char *what, const expr_id *dims, int32_t rank)
{
    const struct dims have = b_dims(r->b, v);
    if (!have.d || have.rank != rank)
        return have.d && rule_bad(r, "%s of rank %d", what, (int)have.rank);
    for (int32_t d = 0; d < rank; d++)
        b_assert(r->b, ex_eq(r->b->x, have.d[d], dims[d]), EVAL_SHAPE,
                 "dimension %d of %s is not what other operands make it", (int)d, what);
    return true;
}

/* ---- attributes ------------------------------------------------------------------------------------------------ */

int64_t rule_int(const struct rule *r, const char *name, int64_t absent)
{
    return node_int(r->node, name, absent);
}

double rule_float(const struct rule *r, const char *name, double absent)
{
    return node_float(r->node, name, (float)absent);    /* ONNX's defaults are of the attribute's type, too */
}

const char *rule_str(const struct rule *r, const char *name, const char *absent)
{
    return node_str(r->node, name, absent);
}

bool rule_str_is(const struct rule *r, const char *name, const char *absent, const char *is)
{
    return strcmp(node_str(r->node, name, absent), is) == 0;
}

const int64_t *rule_ints(const struct rule *r, const char *name, uint32_t *n)
{
    return node_ints(r->node, name, n);
}

const double *rule_floats(const struct rule *r, const char *name, uint32_t *n)
{
    const struct attr *a = node_attr(r->node, name);
    *n = a && a->kind == ATTR_FLOATS ? a->n : 0;
    return *n ? a->u.floats : NULL;
}

enum elem rule_elem_attr(struct rule *r, const char *name, enum elem absent)
{
    int64_t code = rule_int(r, name, 0);
    return code > 0 && code < 1000 ? elem_by_onnx((int32_t)code) : absent;
}

region_id rule_region(const struct rule *r, const char *attr)
{
    const struct attr *a = node_attr(r->node, attr);
    return a && a->kind == ATTR_REGION ? a->u.region : (region_id){0};
}

/* ---- facts about values ------------------------------------------------------------------------------------------ */

enum elem v_elem(const struct builder *b, value_id v)
{
    return v.i ? value_type(b->g, v)->elem : ELEM_NONE;
}

int32_t v_rank(const struct builder *b, value_id v)
{
    return v.i ? value_type(b->g, v)->rank : 0;
}

bool v_is_float(const struct builder *b, value_id v)
{
    return v.i && elem_class(v_elem(b, v)) == 'F';
}

bool v_is_string(const struct builder *b, value_id v)
{
    return v_elem(b, v) == ELEM_STR;
}

bool rule_axis(struct rule *r, int64_t axis, int32_t rank, int32_t *out)
{
    if (axis < -(int64_t)rank || axis >= rank)
        return rule_bad(r, "axis %lld is out of range for rank %d", (long long)axis, (int)rank);
    *out = (int32_t)(axis < 0 ? axis + rank : axis);
    return true;
}

bool rule_axes_marked(struct rule *r, const int64_t *axes, uint32_t n, int32_t rank, bool marked[RANK_MAX])
{
    memset(marked, 0, RANK_MAX * sizeof *marked);
    for (uint32_t i = 0; i < n; i++) {
        int32_t axis = 0;
        if (!rule_axis(r, axes[i], rank, &axis))
            return false;
        if (marked[axis])
            return rule_bad(r, "axis %lld is named twice", (long long)axes[i]);
        marked[axis] = true;
    }
    return true;
}

bool rule_axes_sorted(struct rule *r, const int64_t *axes, uint32_t n, int32_t rank, int64_t sorted[RANK_MAX])
{
    bool marked[RANK_MAX];
    if (!rule_axes_marked(r, axes, n, rank, marked))
        return false;
    for (int32_t i = 0; i < rank; i++)
        if (marked[i])
            *sorted++ = i;
    return true;
}

value_id v_random(struct builder *b, const expr_id *dims, int32_t rank, const struct random *of)
{
    struct attr attrs[7] = {
        attr_elem("elem", of->elem), attr_exprs("dims", dims, (uint32_t)rank),
        attr_int("axis", 0),         attr_str("kind", of->normal ? "normal" : "uniform"),
        attr_float("a", of->low),    attr_float("b", of->high),
    };
    if (of->seed)
        attrs[6] = attr_float("seed", *of->seed);
    return b_op(b, OP_RNG, NULL, 0, attrs, of->seed ? 7 : 6);
}

value_id rule_random_units(struct rule *r, const expr_id *dims, int32_t rank, double seed)
{
    return v_random(r->b, dims, rank,
                    &(struct random){ELEM_F64, .high = 1, .seed = node_attr(r->node, "seed") ? &seed : NULL});
}

bool v_known_i64(struct builder *b, value_id v, uint32_t k, int64_t *out)
{
    const struct value *value = v.i ? graph_value(b->g, v) : NULL;
    if (!value)
        return false;
    if (value->elems && k < value->n_elems)
        return value->elems[k].i && ex_is_const(b->x, value->elems[k], out);
    int64_t n;
    if (!ex_is_const(b->x, b_count(b, v), &n) || n > 4096 || k >= n)
        return false;
    int64_t *all = NEW_ARRAY(&b->g->arena, int64_t, n);
    if (!value_const_i64(b->g, v, all, (uint32_t)n))
        return false;
    *out = all[k];
    return true;
}

bool v_known_f64(struct builder *b, value_id v, double *out)
{
    return v.i && value_const_f64(b->g, v, out, 1);
}

const struct node *v_defining(const struct builder *b, value_id v, enum op op)
{
    return v.i && value_op(b->g, v) == op ? graph_node(b->g, graph_value(b->g, v)->def) : NULL;
}

bool v_splat_f64(struct builder *b, value_id v, double *out)
{
    const struct node *node;
    while ((node = v_defining(b, v, OP_BROADCAST)) || (node = v_defining(b, v, OP_RESHAPE)))
        v = node->in[0];
    return value_is_const(b->g, v) && v_known_f64(b, v, out);
}

bool rule_static_ints(struct rule *r, const int64_t **out, uint32_t *n)
{
    value_id v = rule_in(r, 1);
    if (!v.i)
        return false;
    int64_t count;
    if (!ex_is_const(r->b->x, b_count(r->b, v), &count))
        return rule_refuse(r, "the number of axes is known only at run time");
    if (count > 4096)
        return rule_bad(r, "%lld axes", (long long)count);
    int64_t *list = NEW_ARRAY(r->lg->arena, int64_t, count + 1);
    for (int64_t k = 0; k < count; k++)
        if (!v_known_i64(r->b, v, (uint32_t)k, &list[k]))
            return rule_refuse(r, "axes are known only at run time");
    *out = list;
    *n = (uint32_t)count;
    return true;
}

/* ---- common constructions ---------------------------------------------------------------------------------------- */

enum elem elem_widened(enum elem e)
{
    return e == ELEM_F16 || e == ELEM_BF16 ? ELEM_F32 : e;
}

value_id v_widen(struct builder *b, value_id v)
{
    return v.i ? b_convert(b, v, elem_widened(v_elem(b, v))) : v;
}

void v_some_check(struct builder *b, expr_id have, expr_id made)
{
    const expr_id none = ex_const(b->x, 0);
    if (ex_lo(b->x, have) < 1 && ex_cmp_le(b->x, made, ex_mulc(b->x, have, INT32_MAX)) != TRUE_)
        b_assert(b, ex_or(b->x, ex_lt(b->x, none, have), ex_eq(b->x, made, none)), EVAL_SHAPE,
                 "a size is made of no elements");
}

value_id v_scalar(struct builder *b, value_id v)
{
    return v_rank(b, v) == 0 ? v : b_reshape(b, v, NULL, 0);
}

value_id v_reshape_i(struct builder *b, value_id v, const int64_t *dims, int32_t rank)
{
    expr_id e[RANK_MAX];
    for (int32_t i = 0; i < rank; i++)
        e[i] = ex_const(b->x, dims[i]);
    return b_reshape(b, v, e, rank);
}

value_id v_along(struct builder *b, value_id v, int32_t axis, int32_t rank)
{
    expr_id e[RANK_MAX];
    if (!v.i)
        return v;
    for (int32_t i = 0; i < rank; i++)
        e[i] = ex_const(b->x, 1);
    e[axis] = b_count(b, v);
    return b_reshape(b, v, e, rank);
}

value_id v_channels(struct builder *b, value_id v, value_id x, int32_t axis)
{
    if (!v.i || !x.i)
        return (value_id){0};
    expr_id have = b_count(b, v), want = b_dim(b, x, axis);
    b_assert(b, ex_eq(b->x, have, want), EVAL_SHAPE,
             "an operand with an element for each channel does not have as many as there are channels");
    return v_along(b, v, axis, v_rank(b, x));
}

bool v_count_known(struct builder *b, value_id v)
{
    return v.i && ex_is_const(b->x, b_count(b, v), NULL);
}

value_id v_exactly(struct builder *b, value_id v, uint32_t n)
{
    return v_rank(b, v) == 1 && !v_count_known(b, v) ? v_reshape_i(b, v, &(int64_t){n}, 1) : v;
}

value_id v_padded(struct builder *b, value_id v, uint32_t n, int64_t fill)
{
    expr_id size = ex_const(b->x, n);
    b_assert(b, ex_le(b->x, b_count(b, v), size), EVAL_SHAPE, "an operand has more than %u elements", n);
    value_id both[2] = {b_convert(b, v, ELEM_I64), b_broadcast(b, b_scalar_i64(b, ELEM_I64, fill), &size, 1)};
    return b_slice_axis(b, b_concat(b, both, 2, 0), 0, ex_const(b->x, 0), size);
}

value_id v_flip(struct builder *b, value_id v, int32_t axis)
{
    const struct dims dims = b_dims(b, v);
    if (!dims.d)
        return (value_id){0};
    expr_id starts[RANK_MAX];
    int64_t steps[RANK_MAX];
    for (int32_t i = 0; i < dims.rank; i++) {
        starts[i] = i == axis ? ex_addc(b->x, dims.d[i], -1) : ex_const(b->x, 0);
        steps[i] = i == axis ? -1 : 1;
    }
    return b_slice(b, v, starts, dims.d, steps);
}

value_id v_floats(struct builder *b, const double *x, int64_t n)
{
    float *f = NEW_ARRAY(&b->g->arena, float, n + 1);
    for (int64_t i = 0; i < n; i++)
        f[i] = (float)x[i];
    return b_const(b, ELEM_F32, &n, 1, f);
}

value_id v_iota(struct builder *b, enum elem elem, const expr_id *dims, int32_t rank, int32_t axis)
{
    struct attr attrs[] = {attr_elem("elem", elem), attr_exprs("dims", dims, (uint32_t)rank), attr_int("axis", axis)};
    return b_op(b, OP_IOTA, NULL, 0, attrs, 3);
}

value_id v_rows_set(struct builder *b, value_id x, value_id at, value_id rows, int32_t axis)
{
    const struct dims of = b_dims(b, rows);
    if (!of.d || !x.i || !at.i)
        return (value_id){0};
    expr_id dims[RANK_MAX];
    memcpy(dims, of.d, (size_t)(axis + 1) * sizeof *dims);
    at = b_unsqueeze(b, b_broadcast(b, at, dims, axis + 1), axis + 1);
    dims[axis + 1] = ex_const(b->x, axis + 1);
    value_id part = v_iota(b, ELEM_I64, dims, axis + 2, axis + 1), index = b_broadcast(b, at, dims, axis + 2);
    for (int32_t d = 0; d < axis; d++)
        index = b_select(b, b_binary(b, OP_EQ, part, b_scalar_i64(b, ELEM_I64, d)),
                         v_iota(b, ELEM_I64, dims, axis + 2, d), index);
    return b_scatter_nd(b, x, index, rows, "set");
}

value_id v_expr(struct builder *b, enum elem elem, expr_id e)
{
    int64_t c;
    if (ex_is_const(b->x, e, &c))
        return elem_class(elem) == 'F' ? b_scalar_f64(b, elem, (double)c) : b_scalar_i64(b, elem, c);
    if (elem_class(elem) == 'F')
        return b_convert(b, b_from_exprs(b, ELEM_I64, &e, 1, NULL, 0), elem);
    return b_from_exprs(b, elem, &e, 1, NULL, 0);
}

value_id v_move_axis(struct builder *b, value_id v, int32_t from, int32_t to)
{
    int64_t perm[RANK_MAX];
    int32_t rank = v_rank(b, v), k = 0;
    for (int32_t i = 0; i < rank; i++) {
        if (i == to)
            perm[i] = from;
        else {
            k += k == from;
            perm[i] = k++;
        }
    }
    return v.i ? b_transpose(b, v, perm) : v;
}

value_id v_channels_first(struct builder *b, value_id v)
{
    return v_move_axis(b, v, v_rank(b, v) - 1, 1);
}

value_id v_channels_last(struct builder *b, value_id v)
{
    return v_move_axis(b, v, 1, v_rank(b, v) - 1);
}

value_id v_affine(struct builder *b, value_id v, double scale, double shift)
{
    if (scale != 1)
        v = b_binary_f64(b, OP_MUL, v, scale);
    return shift != 0 ? b_binary_f64(b, OP_ADD, v, shift) : v;
}

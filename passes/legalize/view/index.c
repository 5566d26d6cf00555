/* Gather and Scatter families, selections whose size depends on data, TopK, cumulative operators. */
#include "passes/legalize/legalize.h"

#include <math.h>

enum { KNOWN_MOST = 4096 }; /* elements of which NonZero is computed here, as many as the lattice knows */

/* One known element of a dim, with that dim (an index of one element) or without it (a scalar): a view, which moves
 * nothing. {0}: it is not that. Integers stay, since shapes are computed from them; and indices that are always wrong.
 */
static value_id gather_known(struct rule *r, value_id x, value_id idx, int32_t axis)
{
    struct builder *b = r->b;
    int32_t rank = v_rank(b, idx);
    int64_t at;
    if (rank > 1 || (rank == 1 && !ex_is(b->x, b_dim(b, idx, 0), 1)) || elem_class(v_elem(b, x)) != 'F' ||
        value_is_const(b->g, x) || !value_const_i64(b->g, idx, &at, 1) || at <= INT32_MIN || at >= INT32_MAX)
        return (value_id){0};
    expr_id n = b_dim(b, x, axis), start = at < 0 ? ex_addc(b->x, n, at) : ex_const(b->x, at);
    expr_id within = at < 0 ? ex_le(b->x, ex_const(b->x, 0), start) : ex_lt(b->x, start, n);
    if (ex_truth(b->x, within) == FALSE_)
        return (value_id){0};
    b_assert(b, within, EVAL_VALUE, "index %lld of Gather is outside of dimension %d", (long long)at, (int)axis);
    value_id y = b_slice_axis(b, x, axis, start, ex_const(b->x, 1));
    return rank || !y.i ? y : b_squeeze(b, y, axis);
}

/* Elements of a constant at constant places that it has. An error here is one of a way that the run may choose
 * (fork.h); when constants are folded, it would be one of the model. */
static bool gather_fits(struct rule *r, value_id x, value_id idx, int32_t axis)
{
    int64_t n, count, at[16];
    if (!value_is_const(r->b->g, x) || !ex_is_const(r->b->x, b_dim(r->b, x, axis), &n) ||
        !ex_is_const(r->b->x, b_count(r->b, idx), &count) || count > (int64_t)COUNT_OF(at) ||
        !value_const_i64(r->b->g, idx, at, (uint32_t)count))
        return true;
    for (int64_t i = 0; i < count; i++)
        if (at[i] < -n || at[i] >= n)
            return rule_bad(r, "index %lld is outside of dimension %d, which has %lld elements", (long long)at[i],
                            (int)axis, (long long)n);
    return true;
}

value_id v_addressed(struct builder *b, value_id x, value_id elements)
{
    struct exprs *ex = b->x;
    if (!x.i || !elements.i)
        return (value_id){0};
    expr_id have = b_count(b, x), named = b_count(b, elements), none = ex_const(ex, 0);
    if (ex_lo(ex, have) < 1 && ex_cmp_le(ex, named, ex_mulc(ex, have, INT32_MAX)) != TRUE_)
        b_assert(b, ex_or(ex, ex_lt(ex, none, have), ex_eq(ex, named, none)), EVAL_VALUE, "index out of range");
    return elements;
}

value_id v_gather(struct builder *b, value_id x, value_id idx, int32_t axis)
{
    return v_addressed(b, x, b_gather(b, x, idx, axis));
}

bool rule_gather(struct rule *r)
{
    value_id x = rule_in(r, 0), idx = rule_in(r, 1);
    int32_t axis;
    if (!x.i || !idx.i || !rule_axis(r, rule_int(r, "axis", 0), v_rank(r->b, x), &axis) ||
        !gather_fits(r, x, idx, axis))
        return false;
    value_id known = gather_known(r, x, idx, axis);
    return rule_result(r, known.i ? known : v_gather(r->b, x, idx, axis));
}

bool rule_gather_elements(struct rule *r)
{
    value_id in[2] = {rule_in(r, 0), rule_in(r, 1)};
    int32_t axis;
    if (!in[0].i || !in[1].i || !rule_axis(r, rule_int(r, "axis", 0), v_rank(r->b, in[0]), &axis))
        return false;
    return rule_result(r, v_addressed(r->b, in[0], b_gather_elements(r->b, in[0], in[1], axis)));
}

/* Indices whose last dim, the length of their tuples, is n. */
static value_id tuples_of(struct builder *b, value_id idx, int64_t n)
{
    const struct dims dims = b_dims(b, idx);
    expr_id out[RANK_MAX];
    if (!dims.d || dims.rank < 1 || ex_is_const(b->x, dims.d[dims.rank - 1], NULL))
        return idx;
    memcpy(out, dims.d, (size_t)dims.rank * sizeof *out);
    out[dims.rank - 1] = ex_const(b->x, n);
    b_assert(b, ex_eq(b->x, dims.d[dims.rank - 1], out[dims.rank - 1]), EVAL_SHAPE,
             "index tuples do not have %lld elements", (long long)n);
    return b_reshape(b, idx, out, dims.rank);
}

/* How long the tuples are says what rank the result has. */
bool rule_gather_nd(struct rule *r)
{
    value_id in[2] = {rule_in(r, 0), rule_in(r, 1)};
    int64_t batch = rule_int(r, "batch_dims", 0), n = 0, most = v_rank(r->b, in[0]) - batch;
    struct attr attr = attr_int("batch", batch);
    if (!in[0].i || !in[1].i)
        return false;
    if (v_rank(r->b, in[1]) < 1 || batch < 0 || most < 1)
        return rule_bad(r, "indices of rank %d, %lld batch dims", (int)v_rank(r->b, in[1]), (long long)batch);
    expr_id last = b_dim(r->b, in[1], -1);
    if (!ex_is_const(r->b->x, last, &n) && !rule_choose(r, last, 1, most, "elements of index tuples", &n))
        return false;
    in[1] = tuples_of(r->b, in[1], n);
    return rule_result(r, v_addressed(r->b, in[0], b_op(r->b, OP_GATHER_ND, in, 2, &attr, 1)));
}

static bool scatter_monoid(struct rule *r, const char **monoid)
{
    static const struct {
        const char *onnx, *core;
    } names[] = {
        {"none", "set"}, {"add", "sum"}, {"mul", "prod"}, {"max", "max"}, {"min", "min"},
    };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (!rule_str_is(r, "reduction", "none", names[i].onnx))
            continue;
        *monoid = names[i].core;
        return true;
    }
    return rule_bad(r, "no reduction is called \"%.40s\"", rule_str(r, "reduction", ""));
}

bool rule_scatter_elements(struct rule *r)
{
    value_id in[3] = {rule_in(r, 0), rule_in(r, 1), rule_in(r, 2)};
    int32_t axis;
    const char *monoid;
    if (!in[0].i || !scatter_monoid(r, &monoid) || !rule_axis(r, rule_int(r, "axis", 0), v_rank(r->b, in[0]), &axis))
        return false;
    return v_addressed(r->b, in[0], in[2]).i &&
           rule_result(r, b_scatter_elements(r->b, in[0], in[1], in[2], axis, monoid));
}

bool rule_scatter_nd(struct rule *r)
{
    value_id in[3] = {rule_in(r, 0), rule_in(r, 1), rule_in(r, 2)};
    const char *monoid;
    if (!in[0].i || !in[1].i || !in[2].i || !scatter_monoid(r, &monoid))
        return false;
    /* the updates have the dims of the indices but the last, then those that a tuple leaves open */
    int64_t n = (int64_t)v_rank(r->b, in[1]) - 1 + v_rank(r->b, in[0]) - v_rank(r->b, in[2]);
    if (n < 0 || n > v_rank(r->b, in[0]))
        return rule_bad(r, "updates of rank %d for data and indices of rank %d and %d", (int)v_rank(r->b, in[2]),
                        (int)v_rank(r->b, in[0]), (int)v_rank(r->b, in[1]));
    return v_addressed(r->b, in[0], in[2]).i &&
           rule_result(r, b_scatter_nd(r->b, in[0], tuples_of(r->b, in[1], n), in[2], monoid));
}

/* Rows of `update` into `past` at write_indices[batch] along axis; circular wraps. */
bool rule_tensor_scatter(struct rule *r)
{
    struct builder *b = r->b;
    value_id past = rule_in(r, 0), update = rule_in(r, 1);
    int32_t axis;
    const struct dims dims = b_dims(b, update);
    if (!past.i || !dims.d || !rule_axis(r, rule_int(r, "axis", -2), dims.rank, &axis))
        return false;
    if (axis == 0)
        return rule_bad(r, "axis is the batch axis");
    value_id at = v_iota(b, ELEM_I64, dims.d, axis + 1, axis);
    if (rule_has(r, 2)) {
        b_assert(b, ex_eq(b->x, b_count(b, rule_in(r, 2)), dims.d[0]), EVAL_SHAPE,
                 "there is not a write index for each row of the batch");
        at = b_binary(b, OP_ADD, at, v_along(b, rule_in(r, 2), 0, axis + 1));
    }
    if (rule_str_is(r, "mode", "linear", "circular"))
        at = b_binary(b, OP_MOD, at, v_expr(b, ELEM_I64, b_dim(b, past, axis)));
    return rule_result(r, v_rows_set(b, past, at, update, axis));
}

/* ---- sizes known only at run time -------------------------------------------------------------------------------- */

/* Which of v's n elements are not 0, where all of them are known. */
static bool known_truths(struct builder *b, value_id v, uint32_t n, bool *is)
{
    const struct value *value = graph_value(b->g, v);
    for (uint32_t i = 0; value->elems && i < n; i++) {
        int64_t element;
        if (!value->elems[i].i || !ex_is_const(b->x, value->elems[i], &element))
            return false;
        is[i] = element != 0;
    }
    if (value->elems)
        return value->n_elems == n;
    double *elements = NEW_ARRAY(&b->g->arena, double, n);
    if (!strchr("BIUF", elem_class(value->type.elem)) || !value_is_const(b->g, v) ||
        !value_const_f64(b->g, v, elements, n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        is[i] = elements[i] != 0;
    return true;
}

/* The places of what is not 0 among few elements, all known; {0}: they are not. */
static value_id known_nonzero(struct builder *b, value_id x)
{
    const struct dims dims = b_dims(b, x);
    int64_t n, extent[RANK_MAX], shape[2] = {dims.rank, 0}, *places;
    bool is[KNOWN_MOST];
    if (!dims.d || !ex_is_const(b->x, b_count(b, x), &n) || n > KNOWN_MOST || !known_truths(b, x, (uint32_t)n, is))
        return (value_id){0};
    for (int64_t i = 0; i < n; i++)
        shape[1] += is[i];
    places = NEW_ARRAY(&b->g->arena, int64_t, shape[0] * shape[1] + 1);
    for (int32_t d = 0; d < dims.rank; d++)
        ex_is_const(b->x, dims.d[d], &extent[d]);
    for (int64_t i = 0, k = 0; i < n; k += is[i++])
        for (int64_t d = dims.rank - 1, rest = i; is[i] && d >= 0; rest /= extent[d--])
            places[d * shape[1] + k] = rest % extent[d];
    return b_const(b, ELEM_I64, shape, 2, places);
}

static value_id nonzero(struct rule *r, value_id x)
{
    int64_t hi = INT32_MAX;
    value_id known = x.i ? known_nonzero(r->b, x) : x;
    if (!x.i || known.i)
        return known;
    ex_is_const(r->b->x, b_count(r->b, x), &hi);
    struct attr attr = attr_expr("count", b_symbol(r->b, "nonzero", hi));
    return b_op(r->b, OP_NONZERO, &x, 1, &attr, 1);
}

/* A scalar counts as a tensor of one element. */
bool rule_nonzero(struct rule *r)
{
    value_id x = rule_in(r, 0);
    if (x.i && v_rank(r->b, x) == 0)
        x = b_unsqueeze(r->b, x, 0);
    return rule_result(r, nonzero(r, x));
}

bool rule_compress(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), cond = rule_in(r, 1);
    int32_t axis = 0, rank = v_rank(b, x);
    if (!x.i || !cond.i)
        return false;
    if (!node_attr(r->node, "axis")) {
        x = b_flat(b, x);
    } else if (!rule_axis(r, rule_int(r, "axis", 0), rank, &axis)) {
        return false;
    }
    value_id idx = nonzero(r, cond);
    if (!idx.i)
        return false;
    expr_id n = b_dim(b, idx, 1);
    return rule_result(r, b_gather(b, x, b_reshape(b, idx, &n, 1), axis));
}

bool rule_unique(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), out[4];
    int32_t axis = -1;
    int64_t hi = INT32_MAX;
    if (!x.i)
        return false;
    if (v_is_string(b, x))
        return rule_refuse(r, "the elements are strings");
    if (node_attr(r->node, "axis") && !rule_axis(r, rule_int(r, "axis", 0), v_rank(b, x), &axis))
        return false;
    ex_is_const(b->x, axis < 0 ? b_count(b, x) : b_dim(b, x, axis), &hi);
    struct attr attrs[] = {attr_int("axis", axis), attr_int("sorted", rule_int(r, "sorted", 1)),
                           attr_expr("count", b_symbol(b, "unique", hi))};
    if (!b_op_multi(b, OP_UNIQUE, &x, 1, attrs, 3, out, 4))
        return false;
    for (uint32_t i = 0; i < 4; i++)
        rule_out(r, i, out[i]);
    return true;
}

/* The score that boxes have to be above; NaN is for none, and one that is given is above all. */
static value_id nms_least(struct rule *r)
{
    struct builder *b = r->b;
    value_id least = rule_has(r, 4) ? v_scalar(b, rule_in(r, 4)) : b_scalar_f64(b, ELEM_F32, NAN);
    if (!rule_has(r, 4) || !least.i || !v_is_float(b, least))
        return least;
    return b_select(b, b_unary(b, OP_ISNAN, least), b_splat_like(b, least, INFINITY), least);
}

/* Operands after boxes and scores are optional one-element tensors with defaults 0. */
bool rule_nms(struct rule *r)
{
    struct builder *b = r->b;
    value_id in[5] = {rule_in(r, 0), rule_in(r, 1)};
    if (!in[0].i || !in[1].i)
        return false;
    in[2] = rule_has(r, 2) ? v_scalar(b, rule_in(r, 2)) : b_scalar_i64(b, ELEM_I64, 0);
    in[3] = rule_has(r, 3) ? v_scalar(b, rule_in(r, 3)) : b_scalar_f64(b, ELEM_F32, 0);
    in[4] = nms_least(r);
    struct attr attrs[] = {attr_int("center", rule_int(r, "center_point_box", 0)),
                           attr_expr("count", b_symbol(b, "nms", INT32_MAX))};
    return rule_result(r, b_op(b, OP_NMS, in, 5, attrs, 2));
}

/* ---- TopK: the first k of a sorted line -------------------------------------------------------------------------- */

bool rule_topk(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), out[2];
    int32_t axis;
    if (!x.i || !rule_axis(r, rule_int(r, "axis", -1), v_rank(b, x), &axis))
        return false;
    expr_id dim = b_dim(b, x, axis);
    expr_id k = r->version < 10 ? ex_const(b->x, rule_int(r, "k", 0))
                                : b_elem(b, v_scalar(b, rule_in(r, 1)), 0, INT32_MAX);
    if (!k.i)
        return false;
    if (ex_cmp_le(b->x, ex_const(b->x, 0), k) == FALSE_)
        return rule_bad(r, "k is negative");
    if (ex_cmp_le(b->x, k, dim) == FALSE_)
        return rule_bad(r, "k is larger than the dimension");
    b_assert(b, ex_le(b->x, k, dim), -9, "k is larger than the dimension");
    struct attr attrs[] = {attr_int("axis", axis), attr_int("descending", rule_int(r, "largest", 1)),
                           attr_expr("count", k)};
    if (!b_op_multi(b, OP_SORT, &x, 1, attrs, 3, out, 2))
        return false;
    for (uint32_t i = 0; i < 2; i++)
        rule_out(r, i, out[i]);
    return true;
}

/* ---- cumulative -------------------------------------------------------------------------------------------------- */

static value_id cumulate(struct rule *r, value_id x, int32_t axis)
{
    return b_cumulate(r->b, x, axis, r->param ? "prod" : "sum", rule_int(r, "exclusive", 0) != 0,
                      rule_int(r, "reverse", 0) != 0);
}

/* An axis known only at run time: all are computed, the run chooses. */
bool rule_cumulate(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in), y = {0};
    int64_t at;
    int32_t axis, rank = v_rank(b, x);
    uint32_t n;
    expr_id mask[RANK_MAX];
    if (!x.i || !rule_in(r, 1).i)
        return false;
    if (v_known_i64(b, rule_in(r, 1), 0, &at)) {
        return rule_axis(r, at, rank, &axis) && rule_result(r, b_convert(b, cumulate(r, x, axis), v_elem(b, in)));
    }
    if (!rule_axis_mask(r, rule_in(r, 1), rank, mask, &n))
        return false;
    if (n != 1 || !rank)
        return rule_bad(r, "%u axes for rank %d", n, (int)rank);
    for (int32_t d = 0; d < rank; d++) {
        value_id one = cumulate(r, x, d);
        y = d ? b_select(b, v_expr(b, ELEM_BOOL, mask[d]), one, y) : one;
    }
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

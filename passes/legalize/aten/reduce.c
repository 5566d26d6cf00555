/* Reductions over dims, softmax, positions of extremes, sorting, running sums. */
#include "passes/legalize/aten.h"

#include <math.h>

struct over {
    int64_t axes[RANK_MAX]; /* ascending */
    uint32_t n;
    bool keep;
};

/* The dims of argument i; all where it is None or empty. */
static bool over_read(struct rule *r, uint32_t i, value_id x, struct over *o)
{
    int64_t given[RANK_MAX];
    int32_t rank = v_rank(r->b, x);
    if (!x.i || !aten_ints_known(r, i, "dim", given, &o->n))
        return false;
    o->keep = aten_flag(r, "keepdim");
    if (rank == 0)
        o->n = 0;
    else if (o->n)
        return rule_axes_sorted(r, given, o->n, rank, o->axes);
    for (o->n = 0; o->n < (uint32_t)rank; o->n++)
        o->axes[o->n] = o->n;
    return true;
}

static value_id reduce(struct builder *b, value_id x, const struct over *o, const char *monoid)
{
    return o->n ? b_reduce(b, x, o->axes, o->n, monoid, o->keep) : x;
}

/* param: 0 sum, 1 mean, 2 amax, 3 amin, 4 prod */
bool rule_aten_reduce(struct rule *r)
{
    static const char *const monoids[] = {"sum", "sum", "max", "min", "prod"};
    struct builder *b = r->b;
    struct over o;
    value_id x = rule_in(r, 0);
    enum elem e = aten_elem_or(r, x);
    x = b_convert(b, x, elem_widened(e));
    if (!over_read(r, 1, x, &o))
        return false;
    if (r->param == 1 && o.n)
        return aten_result(r, b_mean(b, x, o.axes, o.n, o.keep));
    bool flags = v_elem(b, x) == ELEM_BOOL;
    return aten_result(r, reduce(b, flags ? b_convert(b, x, ELEM_U8) : x, &o, monoids[r->param]));
}

/* How many are not 0. */
bool rule_aten_count_nonzero(struct rule *r)
{
    struct builder *b = r->b;
    struct over o;
    value_id x = rule_in(r, 0);
    if (!over_read(r, 1, x, &o))
        return false;
    value_id set = v_elem(b, x) == ELEM_BOOL ? x : b_binary(b, OP_NE, x, b_splat_like(b, x, 0));
    return rule_result(r, reduce(b, b_convert(b, set, ELEM_I64), &o, "sum"));
}

/* The least and the largest along a dim, or of all elements. */
bool rule_aten_aminmax(struct rule *r)
{
    struct builder *b = r->b;
    struct over o;
    value_id x = rule_in(r, 0);
    if (!over_read(r, 1, x, &o))
        return false;
    value_id bytes = v_elem(b, x) == ELEM_BOOL ? b_convert(b, x, ELEM_U8) : x;
    rule_out(r, 1, b_convert(b, reduce(b, bytes, &o, "max"), v_elem(b, x)));
    return rule_result(r, b_convert(b, reduce(b, bytes, &o, "min"), v_elem(b, x)));
}

/* Is one, or are all, not 0? Of u8, the answer is u8. param: 0 any, 1 all */
bool rule_aten_any(struct rule *r)
{
    struct builder *b = r->b;
    struct over o;
    value_id x = rule_in(r, 0);
    if (!x.i)
        return false;
    if (v_elem(b, x) != ELEM_BOOL)
        x = b_binary(b, OP_NE, x, b_splat_like(b, x, 0));
    const struct attr *given = node_attr(r->node, "dim");
    bool none = given && given->kind == ATTR_INTS && given->n == 0; /* other reductions take that for all dims */
    if (none)
        return aten_result(r, x);
    return over_read(r, 1, x, &o) &&
           aten_result_stated(
               r, b_convert(b, reduce(b, b_convert(b, x, ELEM_U8), &o, r->param ? "min" : "max"), ELEM_BOOL));
}

/* Variance and mean over dims; param: 0 var, 1 std, 2 var_mean, 3 std_mean */
bool rule_aten_var(struct rule *r)
{
    struct builder *b = r->b;
    struct over o;
    value_id x = rule_in(r, 0), in = x;
    double correction = node_attr(r->node, "unbiased") ? rule_int(r, "unbiased", 1) != 0
                                                       : aten_float(r, "correction", 1);
    x = b_convert(b, x, elem_widened(v_elem(b, x)));
    if (!over_read(r, 1, x, &o))
        return false;
    expr_id count = ex_const(b->x, 1);
    for (uint32_t i = 0; i < o.n; i++)
        count = ex_mul(b->x, count, b_dim(b, x, (int32_t)o.axes[i]));
    value_id mean = b_mean(b, x, o.axes, o.n, true), centred = b_binary(b, OP_SUB, x, mean);
    value_id sum = reduce(b, b_binary(b, OP_MUL, centred, centred), &o, "sum");
    value_id left = b_binary_f64(b, OP_SUB, v_expr(b, v_elem(b, x), count), correction);
    value_id var = b_binary(b, OP_DIV, sum, b_binary_f64(b, OP_MAX, left, 0));
    if (r->param & 2)
        rule_out(r, 1, b_convert(b, o.keep ? mean : b_mean(b, x, o.axes, o.n, false), v_elem(b, in)));
    return aten_result(r, r->param & 1 ? b_unary(b, OP_SQRT, var) : var);
}

/* The p-norm over dims. */
static value_id norm(struct builder *b, value_id x, const struct over *o, double p)
{
    value_id a = b_unary(b, OP_ABS, x);
    if (isinf(p))
        return reduce(b, a, o, p > 0 ? "max" : "min");
    if (p == 0)
        return reduce(b, b_convert(b, b_binary(b, OP_NE, a, b_splat_like(b, a, 0)), v_elem(b, a)), o, "sum");
    if (p == 1)
        return reduce(b, a, o, "sum");
    if (p == 2)
        return b_unary(b, OP_SQRT, reduce(b, b_binary(b, OP_MUL, x, x), o, "sum"));
    return b_binary_f64(b, OP_POW, reduce(b, b_binary_f64(b, OP_POW, a, p), o, "sum"), 1 / p);
}

bool rule_aten_norm(struct rule *r)
{
    struct over o;
    value_id x = rule_in(r, 0);
    x = b_convert(r->b, x, elem_widened(aten_elem_or(r, x)));
    return over_read(r, 2, x, &o) && aten_result(r, norm(r->b, x, &o, aten_float(r, r->param ? "ord" : "p", 2)));
}

/* The sum along a dim of products of both by their norms, which are kept above eps. */
bool rule_aten_cosine_similarity(struct rule *r)
{
    struct builder *b = r->b;
    enum elem e = elem_widened(aten_promoted(r, 0, "x1", 1, "x2"));
    value_id x[2] = {b_convert(b, rule_in(r, 0), e), b_convert(b, rule_in(r, 1), e)};
    expr_id common[RANK_MAX];
    const struct dims a = b_dims(b, x[0]), c = b_dims(b, x[1]);
    int32_t axis, rank = a.d && c.d ? b_broadcast_dims(b, a.d, a.rank, c.d, c.rank, common) : -1;
    if (rank < 0 || !aten_axis(r, 2, "dim", 1, rank, &axis))
        return false;
    if (!v_is_float(b, x[0]))
        return rule_bad(r, "the operands are of %s, and floats are needed", elem_name(e));
    const struct over o = {{axis}, rank > 0, true}, last = {{axis}, rank > 0, false};
    for (uint32_t k = 0; k < 2; k++) {
        x[k] = b_broadcast(b, x[k], common, rank);
        x[k] = b_binary(b, OP_DIV, x[k], b_binary_f64(b, OP_MAX, norm(b, x[k], &o, 2), aten_float(r, "eps", 1e-8)));
    }
    return aten_result(r, reduce(b, b_binary(b, OP_MUL, x[0], x[1]), &last, "sum"));
}

/* The p-norm of the last dim of differences; of none, 0. */
static bool distance_out(struct rule *r, value_id apart)
{
    const struct over last = {{v_rank(r->b, apart) - 1}, 1, false};
    double p = aten_float(r, "p", 2);
    value_id y = apart.i ? norm(r->b, apart, &last, p) : apart;
    return aten_result(r, isinf(p) ? b_binary_f64(r->b, OP_MAX, y, 0) : y);
}

/* The distance of each row of x1 from each row of x2. */
bool rule_aten_cdist(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), y = rule_in(r, 1);
    int32_t rank = v_rank(b, x);
    if (!x.i || !y.i)
        return false;
    if (rank < 2 || v_rank(b, y) < 2)
        return rule_bad(r, "the operands have ranks %d and %d, and 2 or more is needed", (int)rank, (int)v_rank(b, y));
    enum elem e = elem_widened(aten_elem_or(r, x));
    x = b_unsqueeze(b, b_convert(b, x, e), rank - 1);
    y = b_unsqueeze(b, b_convert(b, y, e), v_rank(b, y) - 2);
    return distance_out(r, b_binary(b, OP_SUB, x, y));
}

/* The same within x, of each row from all after it. */
bool rule_aten_pdist(struct rule *r)
{
    enum { PAIRS_MAX = 1 << 22 };
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), pair[2];
    int64_t n, at = 0;
    if (!x.i)
        return false;
    if (v_rank(b, x) != 2 || !ex_is_const(b->x, b_dim(b, x, 0), &n) || n > PAIRS_MAX || n * n > PAIRS_MAX)
        return rule_refuse(r, "the operand has too many rows, or a dynamic number of them");
    int64_t count = n * (n - 1) / 2,
            *list[2] = {NEW_ARRAY(&b->g->arena, int64_t, count + 1), NEW_ARRAY(&b->g->arena, int64_t, count + 1)};
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = i + 1; k < n; k++, at++) {
            list[0][at] = i;
            list[1][at] = k;
        }
    x = b_convert(b, x, elem_widened(aten_elem_or(r, x)));
    for (uint32_t k = 0; k < 2; k++)
        pair[k] = b_gather(b, x, b_const(b, ELEM_I64, &count, 1, list[k]), 0);
    return distance_out(r, b_binary(b, OP_SUB, pair[0], pair[1]));
}

bool rule_aten_logsumexp(struct rule *r)
{
    struct builder *b = r->b;
    struct over o, kept;
    value_id x = rule_in(r, 0);
    x = b_convert(b, x, elem_widened(aten_elem_or(r, x)));
    if (!over_read(r, 1, x, &o))
        return false;
    kept = o;
    kept.keep = true;
    value_id max = reduce(b, x, &kept, "max");
    value_id finite = b_select(b, b_unary(b, OP_ISINF, max), b_splat_like(b, max, 0), max);
    value_id sum = reduce(b, b_unary(b, OP_EXP, b_binary(b, OP_SUB, x, finite)), &o, "sum");
    if (!o.keep && o.n)
        finite = b_reduce(b, finite, o.axes, o.n, "max", false);
    return aten_result(r, b_binary(b, OP_ADD, b_unary(b, OP_LOG, sum), finite));
}

/* param: 1 the logarithm, 2 safe: 0 where nothing is above -inf */
bool rule_aten_softmax(struct rule *r)
{
    value_id x = rule_in(r, 0);
    enum elem e = elem_widened(aten_elem_or(r, x));
    int32_t axis, rank = v_rank(r->b, x);
    if (!x.i || !aten_axis(r, 1, "dim", -1, rank, &axis))
        return false;
    int64_t axes[] = {axis};
    uint32_t n = rank ? 1 : 0;
    x = b_convert(r->b, x, e);
    return aten_result(r,
                       r->param == 2 ? v_softmax_masked(r->b, x, axes, n) : v_softmax(r->b, x, axes, n, r->param != 0));
}

/* ---- positions ------------------------------------------------------------------------------------------------- */

/* x with a dim to look along: all elements in a row where none is named. *axis -1: a single element. */
static bool along(struct rule *r, value_id *x, int32_t *axis)
{
    if (!x->i)
        return false;
    if (v_rank(r->b, *x) == 0) {
        *axis = -1;
        return true;
    }
    if (!aten_has(r, 1, "dim"))
        *x = b_flat(r->b, *x);
    return aten_axis(r, 1, "dim", 0, v_rank(r->b, *x), axis);
}

/* param: 1 the largest */
bool rule_aten_argmax(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    int32_t axis, rank = v_rank(b, x);
    if (v_elem(b, x) == ELEM_BOOL)
        x = b_convert(b, x, ELEM_U8);
    if (!along(r, &x, &axis))
        return false;
    if (axis < 0)
        return rule_result(r, b_scalar_i64(b, ELEM_I64, 0));
    value_id at = b_argreduce(b, x, axis, r->param != 0, false);
    if (!aten_flag(r, "keepdim"))
        return rule_result(r, at);
    if (aten_has(r, 1, "dim"))
        return rule_result(r, b_unsqueeze(b, at, axis));
    int64_t ones[RANK_MAX];
    for (int32_t i = 0; i < rank; i++)
        ones[i] = 1;
    return rule_result(r, v_reshape_i(b, at, ones, rank));
}

/* Extremes along a dim and where they are; param: 1 the largest. */
bool rule_aten_extreme(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    int32_t axis;
    bool keep = aten_flag(r, "keepdim");
    if (!along(r, &x, &axis))
        return false;
    if (axis < 0) {
        rule_out(r, 1, b_scalar_i64(b, ELEM_I64, 0));
        return rule_result(r, x);
    }
    int64_t axes[] = {axis};
    value_id bytes = v_elem(b, x) == ELEM_BOOL ? b_convert(b, x, ELEM_U8) : x;
    if (rule_wants(r, 1)) {
        value_id at = b_argreduce(b, bytes, axis, r->param != 0, false);
        rule_out(r, 1, keep ? b_unsqueeze(b, at, axis) : at);
    }
    return rule_result(r, b_convert(b, b_reduce(b, bytes, axes, 1, r->param ? "max" : "min", keep), v_elem(b, x)));
}

bool rule_aten_topk(struct rule *r)
{
    value_id in[2] = {rule_in(r, 0)};
    int32_t axis;
    expr_id k = aten_int(r, 1, "k", 1), list[1] = {k};
    if (!in[0].i || !k.i || !aten_axis(r, 2, "dim", -1, v_rank(r->b, in[0]), &axis))
        return false;
    in[1] = aten_sizes(r, list, 1);
    const struct attr attrs[] = {attr_int("axis", axis), attr_int("largest", rule_int(r, "largest", 1)),
                                 attr_int("sorted", 1)};
    return aten_as(r, rule_topk, 11, 0, in, 2, attrs, 3);
}

/* param: 1 positions alone (argsort), 2 with the argument `stable` before the dim */
bool rule_aten_sort(struct rule *r)
{
    value_id x = rule_in(r, 0), out[2];
    int32_t axis;
    uint32_t at = r->param == 2 ? 2 : 1;
    if (!x.i || !aten_axis(r, at, "dim", -1, v_rank(r->b, x), &axis))
        return false;
    if (v_rank(r->b, x) == 0) {
        rule_out(r, 1, b_scalar_i64(r->b, ELEM_I64, 0));
        return rule_result(r, r->param == 1 ? b_scalar_i64(r->b, ELEM_I64, 0) : x);
    }
    const struct attr attrs[] = {attr_int("axis", axis), attr_int("descending", aten_flag(r, "descending"))};
    if (!b_op_multi(r->b, OP_SORT, &x, 1, attrs, 2, out, 2))
        return false;
    if (r->param == 1)
        return rule_result(r, out[1]);
    rule_out(r, 1, out[1]);
    return rule_result(r, out[0]);
}

/* The element at one place of a sorted line, and where it was. The median is the lower one of two in the middle, and
 * NaN, the first, where there is one. param: 1 kthvalue, of which k says the place */
bool rule_aten_kth(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), sorted[2];
    int32_t axis;
    bool whole = !r->param && !aten_has(r, 1, "dim"), keep = aten_flag(r, "keepdim");
    if (!x.i || (!whole && !aten_axis(r, r->param ? 2 : 1, "dim", -1, v_rank(b, x), &axis)))
        return false;
    if (v_rank(b, x) == 0) {
        rule_out(r, 1, b_scalar_i64(b, ELEM_I64, 0));
        return rule_result(r, x);
    }
    if (whole) {
        x = b_flat(b, x);
        axis = 0;
    }
    const struct attr attrs[] = {attr_int("axis", axis), attr_int("descending", 0)};
    expr_id one = ex_const(b->x, 1), n = b_dim(b, x, axis), place = r->param ? aten_int(r, 1, "k", 1) : (expr_id){0};
    if (!x.i || (r->param && !place.i) || !b_op_multi(b, OP_SORT, &x, 1, attrs, 2, sorted, 2))
        return false;
    place = r->param ? ex_addc(b->x, place, -1) : ex_div(b->x, ex_addc(b->x, n, -1), ex_const(b->x, 2));
    b_assert(b, ex_and(b->x, ex_le(b->x, ex_const(b->x, 0), place), ex_lt(b->x, place, n)), EVAL_SHAPE,
             r->param ? "k is not a place of the line" : "the median of no elements");
    for (uint32_t k = 0; k < 2; k++) {
        value_id y = b_slice_axis(b, sorted[k], axis, place, one);
        if (!r->param && v_is_float(b, x)) {
            value_id numbers = b_convert(b, b_unary(b, OP_NOT, b_unary(b, OP_ISNAN, x)), ELEM_I64);
            value_id count = b_reduce(b, numbers, ARRAY(int64_t, axis), "sum", true), size = v_expr(b, ELEM_I64, n);
            value_id at = b_select(b, b_binary(b, OP_LT, count, size), count, v_expr(b, ELEM_I64, place));
            y = b_gather_elements(b, sorted[k], at, axis);
        }
        if (k == 0 || !whole)
            rule_out(r, k, keep ? y : b_squeeze(b, y, axis));
    }
    return true;
}

/* param: 1 products */
bool rule_aten_cumulate(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t axis;
    enum elem e = elem_widened(aten_elem_or(r, x));
    x = b_convert(r->b, x, e);
    if (!x.i || !aten_axis(r, 1, "dim", 0, v_rank(r->b, x), &axis))
        return false;
    if (v_rank(r->b, x) == 0)
        return aten_result(r, x);
    return aten_result(r, b_cumulate(r->b, x, axis, r->param ? "prod" : "sum", false, false));
}

/* Neighbours' differences along a dim, of x with what is put before and after it. */
bool rule_aten_diff(struct rule *r)
{
    struct builder *b = r->b;
    static const uint32_t order[] = {3, 0, 4}; /* prepend, self, append */
    value_id x = rule_in(r, 0), parts[3];
    int64_t n;
    int32_t axis;
    uint32_t n_parts = 0;
    if (!x.i || !aten_int_known(r, 1, "n", 1, &n) || !aten_axis(r, 2, "dim", -1, v_rank(b, x), &axis))
        return false;
    if (n < 0 || n > 8 || v_rank(b, x) == 0)
        return rule_refuse(r, "only differences of orders 0 to 8 of tensors of rank 1 or more have a lowering");
    if (n == 0)
        return aten_result(r, x);
    for (uint32_t i = 0; i < COUNT_OF(order); i++)
        if (rule_has(r, order[i]))
            parts[n_parts++] = b_convert(b, rule_in(r, order[i]), aten_elem_or(r, x));
    x = b_concat(b, parts, n_parts, axis);
    for (; n > 0 && x.i; n--) {
        expr_id left = ex_max(b->x, ex_addc(b->x, b_dim(b, x, axis), -1), ex_const(b->x, 0)), one = ex_const(b->x, 1);
        value_id tail = b_slice_axis(b, x, axis, one, left), head = b_slice_axis(b, x, axis, ex_const(b->x, 0), left);
        x = v_elem(b, x) == ELEM_BOOL ? b_binary(b, OP_XOR, tail, head) : b_binary(b, OP_SUB, tail, head);
    }
    return aten_result(r, x);
}

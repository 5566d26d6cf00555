/* Reduce*, ArgMax, ArgMin.
 *
 * Axes known now become one core reduction. Axes known only at run time become, per dim, a choice between the reduced
 * and the whole dim: both are concatenated and a slice of run-time start and size takes one of them. Where even their
 * number is the run's, the result of keepdims = 0 has a rank that the run chooses (choose.c).
 */
#include "passes/legalize/legalize.h"

enum kind { K_SUM, K_MEAN, K_MAX, K_MIN, K_PROD, K_L1, K_L2, K_LOG_SUM, K_LOG_SUM_EXP, K_SUM_SQUARE };

struct axes {
    bool dynamic;
    int64_t list[RANK_MAX];        /* sorted */
    uint32_t n;
    expr_id mask[RANK_MAX];        /* dynamic: 1 where reduced */
};

static void axes_all(struct axes *a, int32_t rank)
{
    for (int32_t i = 0; i < rank; i++)
        a->list[i] = i;
    a->n = (uint32_t)rank;
}

static bool axes_list(struct rule *r, struct axes *a, const int64_t *given, uint32_t n, int32_t rank)
{
    a->n = n;
    return rule_axes_sorted(r, given, n, rank, a->list);
}

/* As many axes as there are dims, or none, which means all: the run checks that they are all of them. */
static bool axes_are_all(struct rule *r, struct axes *a, value_id v, int32_t rank)
{
    expr_id each = ex_const(r->b->x, 1), none = ex_eq(r->b->x, b_dim(r->b, v, 0), ex_const(r->b->x, 0));
    axes_all(a, rank);
    uint32_t n;
    if (!rule_axis_mask_open(r, v_axes_padded(r->b, v, rank), rank, rank, a->mask, &n))
        return false;
    for (int32_t d = 0; d < rank; d++)
        each = ex_and(r->b->x, each, a->mask[d]);
    b_assert(r->b, ex_or(r->b->x, none, each), EVAL_VALUE, "axes are named twice");
    return true;
}

/* Even the number of axes, and so the result's rank, is the run's. None named means all. */
static bool axes_choose(struct rule *r, struct axes *a, value_id v, int32_t rank)
{
    bool noop = rule_int(r, "noop_with_empty_axes", 0) != 0;
    expr_id n = b_dim(r->b, v, 0), all = ex_const(r->b->x, rank);
    int64_t gone;
    if (!rule_choose(r, noop ? n : ex_select(r->b->x, ex_eq(r->b->x, n, ex_const(r->b->x, 0)), all, n),
                     noop || rank == 0 ? 0 : 1, rank, "axes", &gone))
        return false;
    if (gone == rank)
        return axes_are_all(r, a, v, rank);
    a->dynamic = gone > 0;
    return !a->dynamic || rule_axis_mask(r, v_exactly(r->b, v, (uint32_t)gone), rank, a->mask, &a->n);
}

/* The number of axes is the run's: with keepdims the rank stays known. */
static bool axes_open(struct rule *r, struct axes *a, value_id v, int32_t rank)
{
    if (!rule_int(r, "keepdims", 1))
        return axes_choose(r, a, v, rank);
    expr_id none = ex_eq(r->b->x, b_dim(r->b, v, 0), ex_const(r->b->x, 0));
    a->dynamic = true;
    if (!rule_axis_mask_open(r, v_axes_padded(r->b, v, rank), rank, rank, a->mask, &a->n))
        return false;
    for (int32_t d = 0; d < rank && !rule_int(r, "noop_with_empty_axes", 0); d++)
        a->mask[d] = ex_or(r->b->x, a->mask[d], none);
    return true;
}

/* From the attribute or operand 1; absent or empty means all axes, or none with noop_with_empty_axes. */
static bool axes_get(struct rule *r, struct axes *a, int32_t rank)
{
    uint32_t n = 0;
    const int64_t *given = rule_ints(r, "axes", &n);
    *a = (struct axes){.dynamic = false};
    if (rule_has(r, 1)) {
        value_id v = rule_in(r, 1);
        int64_t count, value;
        bool known = true;
        if (!ex_is_const(r->b->x, b_count(r->b, v), &count))
            return axes_open(r, a, v, rank);
        for (int64_t k = 0; k < count; k++)
            known &= v_known_i64(r->b, v, (uint32_t)k, &value);
        if (!known && count < rank) {
            a->dynamic = true;
            return rule_axis_mask(r, v, rank, a->mask, &a->n);
        }
        if (!known)
            return axes_are_all(r, a, v, rank);
        if (!rule_static_ints(r, &given, &n))
            return false;
    }
    if (n)
        return axes_list(r, a, given, n, rank);
    if (!rule_int(r, "noop_with_empty_axes", 0))
        axes_all(a, rank);
    return true;
}

/* Keeps all dims; reduced ones become 1. */
static value_id reduce_keep(struct builder *b, value_id x, const struct axes *a, const char *monoid)
{
    if (!a->dynamic)
        return a->n ? b_reduce(b, x, a->list, a->n, monoid, true) : x;
    for (int32_t d = 0; x.i && d < v_rank(b, x); d++) {
        int64_t axis = d;
        expr_id dim = b_dim(b, x, d), one = ex_const(b->x, 1), zero = ex_const(b->x, 0);
        value_id both[2] = {b_reduce(b, x, &axis, 1, monoid, true), x};
        x = b_slice_axis(b, b_concat(b, both, 2, d), d, ex_select(b->x, a->mask[d], zero, one),
                         ex_select(b->x, a->mask[d], one, dim));
    }
    return x;
}

static bool finish(struct rule *r, value_id y, const struct axes *a)
{
    struct builder *b = r->b;
    int32_t kept = 0;
    const struct dims dims = b_dims(b, y);
    expr_id out[RANK_MAX];
    uint32_t k = 0;
    if (!dims.d)
        return false;
    if (rule_int(r, "keepdims", 1))
        return rule_result(r, y);
    if (a->dynamic) {
        rule_dims_kept(r, dims.d, a->mask, dims.rank, dims.rank - (int32_t)a->n, out);
        return rule_result(r, b_reshape(b, y, out, dims.rank - (int32_t)a->n));
    }
    for (int32_t i = 0; i < dims.rank; i++) {
        if (k < a->n && a->list[k] == i)
            k++;
        else
            out[kept++] = dims.d[i];
    }
    return rule_result(r, b_reshape(b, y, out, kept));
}

static value_id mean(struct builder *b, value_id x, const struct axes *a)
{
    expr_id n = ex_const(b->x, 1);
    value_id sum = reduce_keep(b, x, a, "sum");
    for (uint32_t i = 0; !a->dynamic && i < a->n; i++)
        n = ex_mul(b->x, n, b_dim(b, x, (int32_t)a->list[i]));
    for (int32_t d = 0; a->dynamic && d < v_rank(b, x); d++)
        n = ex_mul(b->x, n, ex_select(b->x, a->mask[d], b_dim(b, x, d), ex_const(b->x, 1)));
    return sum.i ? b_binary(b, OP_DIV, sum, v_expr(b, v_elem(b, x), n)) : sum;
}

/* log(sum(exp(x))) around the maximum, where that is finite. */
static value_id log_sum_exp(struct builder *b, value_id x, const struct axes *a)
{
    value_id max = reduce_keep(b, x, a, "max");
    value_id zero = b_splat_like(b, max, 0);
    value_id pivot = b_select(b, b_unary(b, OP_ISINF, max), zero, max);
    value_id sum = reduce_keep(b, b_unary(b, OP_EXP, b_binary(b, OP_SUB, x, pivot)), a, "sum");
    return b_binary(b, OP_ADD, b_unary(b, OP_LOG, sum), pivot);
}

static value_id reduce_kind(struct builder *b, value_id x, const struct axes *a, enum kind kind)
{
    switch (kind) {
    case K_SUM: return reduce_keep(b, x, a, "sum");
    case K_MEAN: return mean(b, x, a);
    case K_PROD: return reduce_keep(b, x, a, "prod");
    case K_L1: return reduce_keep(b, b_unary(b, OP_ABS, x), a, "sum");
    case K_L2: return b_unary(b, OP_SQRT, reduce_keep(b, b_binary(b, OP_MUL, x, x), a, "sum"));
    case K_LOG_SUM: return b_unary(b, OP_LOG, reduce_keep(b, x, a, "sum"));
    case K_LOG_SUM_EXP: return log_sum_exp(b, x, a);
    case K_SUM_SQUARE: return reduce_keep(b, b_binary(b, OP_MUL, x, x), a, "sum");
    case K_MAX: return reduce_keep(b, x, a, v_elem(b, x) == ELEM_BOOL ? "or" : "max");
    case K_MIN: return reduce_keep(b, x, a, v_elem(b, x) == ELEM_BOOL ? "and" : "min");
    }
    return (value_id){0};
}

/* The row's parameter is an enum kind, in the order above. */
bool rule_reduce(struct rule *r)
{
    struct builder *b = r->b;
    enum kind kind = (enum kind)r->param;
    value_id x = rule_in(r, 0);
    struct axes axes;
    if (!x.i || !axes_get(r, &axes, v_rank(b, x)))
        return false;
    enum elem e = v_elem(b, x);
    bool transcendental = kind == K_L2 || kind == K_LOG_SUM || kind == K_LOG_SUM_EXP;
    value_id wide = v_widen(b, x);
    if (elem_class(e) != 'F' && transcendental)
        wide = b_convert(b, x, ELEM_F64);
    else if (kind == K_MEAN && elem_class(e) != 'F' && elem_size(e) < 8) /* a mean fits its type, but its sum may not */
        wide = b_convert(b, x, ELEM_I64);
    return finish(r, b_convert(b, reduce_kind(b, wide, &axes, kind), e), &axes);
}

/* The row's parameter: 1 ArgMax, 0 ArgMin. */
bool rule_arg_reduce(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    int32_t axis;
    if (!x.i || !rule_axis(r, rule_int(r, "axis", 0), v_rank(b, x), &axis))
        return false;
    value_id y = b_argreduce(b, x, axis, r->param, rule_int(r, "select_last_index", 0) != 0);
    return rule_result(r, rule_int(r, "keepdims", 1) ? b_unsqueeze(b, y, axis) : y);
}

/* The builder's vocabulary: elementwise operators with broadcasting, views, reductions, matmul. See build.h. */
#include "ir/build/build.h"

static bool is_tensor(struct builder *b, value_id v, struct type *t)
{
    if (!v.i)
        return false;
    *t = *value_type(b->g, v);
    if (t->kind == TYPE_TENSOR && t->rank != RANK_UNKNOWN)
        return true;
    return error_model(b->g->ctx, b->src, "a tensor of known rank is needed here");
}

static bool good_axis(struct builder *b, const struct type *t, int32_t axis, int32_t limit)
{
    if (axis >= 0 && axis < limit)
        return true;
    return error_model(b->g->ctx, b->src, "axis %d is outside of rank %d", axis, t->rank);
}

/* ---- scalars and splats --------------------------------------------------------------------------------------- */

value_id b_scalar_f64(struct builder *b, enum elem elem, double x)
{
    int64_t raw[2] = {0, 0};
    elem_from_f64(elem, x, raw);
    return b_const(b, elem, NULL, 0, raw);
}

value_id b_scalar_i64(struct builder *b, enum elem elem, int64_t x)
{
    int64_t raw[2] = {0, 0};
    elem_from_i64(elem, x, raw);
    return b_const(b, elem, NULL, 0, raw);
}

value_id b_splat_f64(struct builder *b, enum elem elem, double x, const expr_id *dims, int32_t rank)
{
    return b_broadcast(b, b_scalar_f64(b, elem, x), dims, rank);
}

value_id b_splat_like(struct builder *b, value_id like, double x)
{
    struct type t;
    return is_tensor(b, like, &t) ? b_splat_f64(b, t.elem, x, t.dims, t.rank) : (value_id){0};
}

value_id b_broadcast_like(struct builder *b, value_id x, value_id like)
{
    const struct dims dims = b_dims(b, like);
    return dims.d ? b_broadcast(b, x, dims.d, dims.rank) : (value_id){0};
}

/* ---- elementwise ------------------------------------------------------------------------------------------------ */

value_id b_unary(struct builder *b, enum op op, value_id x)
{
    return b_op(b, op, &x, 1, NULL, 0);
}

/* Brings n operands to their common shape. */
static bool broadcast_all(struct builder *b, value_id *v, uint32_t n)
{
    expr_id dims[RANK_MAX], next[RANK_MAX];
    int32_t rank = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct type t;
        if (!is_tensor(b, v[i], &t) || (rank = b_broadcast_dims(b, dims, rank, t.dims, t.rank, next)) < 0)
            return false;
        memcpy(dims, next, sizeof dims);
    }
    for (uint32_t i = 0; i < n; i++)
        if (!(v[i] = b_broadcast(b, v[i], dims, rank)).i)
            return false;
    return true;
}

value_id b_binary(struct builder *b, enum op op, value_id x, value_id y)
{
    value_id in[2] = {x, y};
    return x.i && y.i && broadcast_all(b, in, 2) ? b_op(b, op, in, 2, NULL, 0) : (value_id){0};
}

value_id b_binary_f64(struct builder *b, enum op op, value_id x, double y)
{
    return b_binary(b, op, x, b_splat_like(b, x, y));
}

value_id b_select(struct builder *b, value_id cond, value_id t, value_id f)
{
    value_id in[3] = {cond, t, f};
    if (!cond.i || !t.i || !f.i || !broadcast_all(b, in, 3))
        return (value_id){0};
    return b_op(b, OP_SELECT, in, 3, NULL, 0);
}

value_id b_convert(struct builder *b, value_id x, enum elem elem)
{
    struct attr a = attr_elem("elem", elem);
    return b_op(b, OP_CONVERT, &x, 1, &a, 1);
}

value_id b_clamp(struct builder *b, value_id x, double lo, double hi)
{
    return b_binary_f64(b, OP_MIN, b_binary_f64(b, OP_MAX, x, lo), hi);
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

value_id b_broadcast(struct builder *b, value_id x, const expr_id *dims, int32_t rank)
{
    struct attr a = attr_exprs("dims", dims, (uint32_t)rank);
    return b_op(b, OP_BROADCAST, &x, 1, &a, 1);
}

/* What x is a reshape of, if its elements are known to fill these dims; else x. */
static value_id reshaped(struct builder *b, value_id x, const expr_id *dims, int32_t rank)
{
    const struct node *n = x.i ? value_node(b->g, x) : NULL;
    expr_id count = ex_const(b->x, 1);
    if (!n || n->op != OP_RESHAPE)
        return x;
    for (int32_t d = 0; d < rank; d++)
        count = ex_mul(b->x, count, dims[d]);
    return ex_truth(b->x, ex_eq(b->x, count, b_count(b, n->in[0]))) == TRUE_ ? n->in[0] : x;
}

value_id b_reshape(struct builder *b, value_id x, const expr_id *dims, int32_t rank)
{
    x = reshaped(b, x, dims, rank);
    struct attr a = attr_exprs("dims", dims, (uint32_t)rank);
    return b_op(b, OP_RESHAPE, &x, 1, &a, 1);
}

value_id b_transpose(struct builder *b, value_id x, const int64_t *perm)
{
    struct type t;
    if (!is_tensor(b, x, &t))
        return (value_id){0};
    struct attr a = attr_ints("perm", perm, (uint32_t)t.rank);
    return b_op(b, OP_TRANSPOSE, &x, 1, &a, 1);
}

/* The operand of concat x that the slice is, whole; {0}: it is none. */
static value_id concat_operand(struct builder *b, value_id x, const struct type *t, const expr_id *starts,
                               const expr_id *sizes, const int64_t *steps)
{
    const struct node *n = value_op(b->g, x) == OP_CONCAT ? value_node(b->g, x) : NULL;
    int64_t axis = n ? node_int(n, "axis", 0) : 0;
    expr_id at = ex_const(b->x, 0);
    for (int32_t d = 0; n && d < t->rank; d++)
        if (steps[d] != 1 || (d != axis && (sizes[d].i != t->dims[d].i || !ex_is(b->x, starts[d], 0))))
            return (value_id){0};
    for (uint32_t k = 0; n && k < n->n_in; k++) {
        expr_id size = value_type(b->g, n->in[k])->dims[axis];
        if (at.i == starts[axis].i && size.i == sizes[axis].i)
            return n->in[k];
        at = ex_add(b->x, at, size);
    }
    return (value_id){0};
}

value_id b_slice(struct builder *b, value_id x, const expr_id *starts, const expr_id *sizes, const int64_t *steps)
{
    struct type t;
    if (!is_tensor(b, x, &t))
        return (value_id){0};
    value_id operand = concat_operand(b, x, &t, starts, sizes, steps);
    if (operand.i)
        return operand;
    uint32_t n = (uint32_t)t.rank;
    struct attr attrs[] = {attr_exprs("starts", starts, n), attr_exprs("sizes", sizes, n),
                           attr_ints("steps", steps, n)};
    return b_op(b, OP_SLICE, &x, 1, attrs, 3);
}

value_id b_slice_axis(struct builder *b, value_id x, int32_t axis, expr_id start, expr_id size)
{
    struct type t;
    expr_id starts[RANK_MAX], sizes[RANK_MAX];
    int64_t steps[RANK_MAX];
    if (!is_tensor(b, x, &t) || !good_axis(b, &t, axis, t.rank))
        return (value_id){0};
    for (int32_t i = 0; i < t.rank; i++) {
        starts[i] = i == axis ? start : ex_const(b->x, 0);
        sizes[i] = i == axis ? size : t.dims[i];
        steps[i] = 1;
    }
    return b_slice(b, x, starts, sizes, steps);
}

value_id b_pad(struct builder *b, value_id x, value_id fill, const expr_id *lo, const expr_id *hi, const char *mode)
{
    struct type t;
    value_id in[2] = {x, fill};
    if (!is_tensor(b, x, &t))
        return (value_id){0};
    struct attr attrs[] = {attr_exprs("lo", lo, (uint32_t)t.rank), attr_exprs("hi", hi, (uint32_t)t.rank),
                           attr_str("mode", mode)};
    return b_op(b, OP_PAD, in, fill.i ? 2 : 1, attrs, 3);
}

value_id b_concat(struct builder *b, const value_id *v, uint32_t n, int32_t axis)
{
    struct attr a = attr_int("axis", axis);
    return b_op(b, OP_CONCAT, v, n, &a, 1);
}

value_id b_unsqueeze(struct builder *b, value_id x, int32_t axis)
{
    struct type t;
    expr_id dims[RANK_MAX + 1];
    if (!is_tensor(b, x, &t) || !good_axis(b, &t, axis, t.rank + 1))
        return (value_id){0};
    for (int32_t i = 0; i <= t.rank; i++)
        dims[i] = i == axis ? ex_const(b->x, 1) : t.dims[i - (i > axis)];
    return b_reshape(b, x, dims, t.rank + 1);
}

value_id b_squeeze(struct builder *b, value_id x, int32_t axis)
{
    struct type t;
    expr_id dims[RANK_MAX];
    if (!is_tensor(b, x, &t) || !good_axis(b, &t, axis, t.rank))
        return (value_id){0};
    for (int32_t i = 0; i + 1 < t.rank; i++)
        dims[i] = t.dims[i + (i >= axis)];
    return b_reshape(b, x, dims, t.rank - 1);
}

value_id b_gather(struct builder *b, value_id x, value_id idx, int32_t axis)
{
    struct attr a = attr_int("axis", axis);
    return b_op(b, OP_GATHER, ARRAY(value_id, x, idx), &a, 1);
}

value_id b_flat(struct builder *b, value_id x)
{
    expr_id count = b_count(b, x);
    return count.i ? b_reshape(b, x, &count, 1) : (value_id){0};
}

value_id b_gather_elements(struct builder *b, value_id x, value_id idx, int32_t axis)
{
    struct attr a = attr_int("axis", axis);
    return b_op(b, OP_GATHER_ELEMENTS, ARRAY(value_id, x, idx), &a, 1);
}

value_id b_scatter_elements(struct builder *b, value_id x, value_id idx, value_id updates, int32_t axis,
                            const char *monoid)
{
    struct attr attrs[] = {attr_int("axis", axis), attr_str("monoid", monoid)};
    return b_op(b, OP_SCATTER_ELEMENTS, ARRAY(value_id, x, idx, updates), attrs, 2);
}

value_id b_scatter_nd(struct builder *b, value_id x, value_id idx, value_id updates, const char *monoid)
{
    struct attr a = attr_str("monoid", monoid);
    return b_op(b, OP_SCATTER_ND, ARRAY(value_id, x, idx, updates), &a, 1);
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

value_id b_reduce(struct builder *b, value_id x, const int64_t *axes, uint32_t n, const char *monoid, bool keepdims)
{
    struct type t;
    expr_id dims[RANK_MAX];
    struct attr attrs[] = {attr_ints("axes", axes, n), attr_str("monoid", monoid)};
    if (!is_tensor(b, x, &t))
        return (value_id){0};
    value_id y = b_op(b, OP_REDUCE, &x, 1, attrs, 2);
    if (!y.i || !keepdims)
        return y;
    memcpy(dims, t.dims, (size_t)t.rank * sizeof *dims);
    for (uint32_t i = 0; i < n; i++)
        dims[axes[i]] = ex_const(b->x, 1);
    return b_reshape(b, y, dims, t.rank);
}

value_id b_mean(struct builder *b, value_id x, const int64_t *axes, uint32_t n, bool keepdims)
{
    struct type t;
    int64_t count;
    if (!is_tensor(b, x, &t))
        return (value_id){0};
    if (t.elem == ELEM_F16 || t.elem == ELEM_BF16) /* the sum would leave their range before the division */
        return b_convert(b, b_mean(b, b_convert(b, x, ELEM_F32), axes, n, keepdims), t.elem);
    value_id sum = b_reduce(b, x, axes, n, "sum", keepdims);
    if (!sum.i)
        return sum;
    expr_id total = ex_const(b->x, 1);
    for (uint32_t i = 0; i < n; i++)
        total = ex_mul(b->x, total, t.dims[axes[i]]);
    value_id divisor = ex_is_const(b->x, total, &count)
                           ? b_scalar_f64(b, t.elem, (double)count)
                           : b_convert(b, b_from_exprs(b, ELEM_I64, &total, 1, NULL, 0), t.elem);
    return b_binary(b, OP_DIV, sum, divisor);
}

value_id b_argreduce(struct builder *b, value_id x, int32_t axis, bool max, bool last)
{
    struct attr attrs[] = {attr_int("axis", axis), attr_int("max", max), attr_int("last", last)};
    const expr_id none = ex_const(b->x, 0);
    const struct type *t = x.i ? value_type(b->g, x) : NULL;
    expr_id lines = ex_const(b->x, 1);
    if (t && ex_lo(b->x, t->dims[axis]) < 1) {
        for (int32_t d = 0; d < t->rank; d++)
            lines = d == axis ? lines : ex_mul(b->x, lines, t->dims[d]);
        b_assert(b, ex_or(b->x, ex_lt(b->x, none, t->dims[axis]), ex_eq(b->x, lines, none)), EVAL_SHAPE,
                 "argreduce: axis %d has 0 elements", (int)axis);
    }
    return b_op(b, OP_ARGREDUCE, &x, 1, attrs, 3);
}

value_id b_cumulate(struct builder *b, value_id x, int32_t axis, const char *monoid, bool exclusive, bool reverse)
{
    struct attr attrs[] = {attr_int("axis", axis), attr_str("monoid", monoid), attr_int("exclusive", exclusive),
                           attr_int("reverse", reverse)};
    return b_op(b, OP_CUMULATE, &x, 1, attrs, 4);
}

struct dot_builder {
    struct builder *b;
    enum elem acc;
};
/* A constant matrix that y is the transpose of, {0}: y is none. Weights are read as they are stored: what asks where a
 * product's panels lie (schedule/block.c) would not find them under a view. */
static value_id transposed_weights(const struct graph *g, value_id y)
{
    const struct node *n = value_node(g, y);
    return n && n->op == OP_TRANSPOSE && value_type(g, y)->rank == 2 && value_is_const(g, y) ? n->in[0] : (value_id){0};
}

/* The first `batch` dims of both are the batch's; dim cx of x and cy of y are contracted. */
static value_id dot(const struct dot_builder *p, value_id x, value_id y, uint32_t batch, int64_t cx, int64_t cy)
{
    int64_t axes[RANK_MAX];
    value_id w = transposed_weights(p->b->g, y);
    if (w.i && !batch) {
        y = w;
        cy = 1 - cy;
    }
    for (uint32_t i = 0; i < batch; i++)
        axes[i] = i;
    value_id in[2] = {x, y};
    struct attr attrs[] = {attr_ints("batch_a", axes, batch), attr_ints("batch_b", axes, batch),
                           attr_ints("contract_a", &cx, 1), attr_ints("contract_b", &cy, 1), attr_elem("acc", p->acc)};
    return b_op(p->b, OP_DOT, in, 2, attrs, p->acc == ELEM_NONE ? 4 : 5);
}

/* Rows of x by one vector y, both along their last dim: a sum of products, whose lanes lie along the rows; a
 * contraction's would lie along its results, a row apart. */
static value_id by_vector(struct builder *b, value_id x, value_id y, const struct type *tx, bool keepdims)
{
    int64_t axis = tx->rank - 1;
    value_id spread = b_broadcast(b, y, tx->dims, tx->rank);
    return b_reduce(b, b_binary(b, OP_MUL, x, spread), &axis, 1, "sum", keepdims);
}

static bool is_by_vector(struct builder *b, const struct type *tx, expr_id length, enum elem acc)
{
    return acc == ELEM_NONE && tx->rank >= 2 && (tx->elem == ELEM_F32 || tx->elem == ELEM_F64) &&
           ex_cmp_eq(b->x, tx->dims[tx->rank - 1], length) == TRUE_;
}

/* Are all dims before the last two 1? */
static bool no_batch(struct builder *b, const struct type *t)
{
    for (int32_t i = 0; i < t->rank - 2; i++)
        if (!ex_is(b->x, t->dims[i], 1))
            return false;
    return true;
}

/* Both of rank >= 2. */
static value_id batched_matmul(const struct dot_builder *p, value_id x, value_id y, const struct type *tx,
                               const struct type *ty)
{
    struct builder *b = p->b;
    expr_id batch[RANK_MAX], dims[RANK_MAX];
    const bool weights = !b->strict || value_is_const(b->g, y); /* else the column may be a row of a batch */
    if (weights && ty->rank <= tx->rank && no_batch(b, ty) && ex_is(b->x, ty->dims[ty->rank - 1], 1) &&
        is_by_vector(b, tx, ty->dims[ty->rank - 2], p->acc))
        return by_vector(b, x, b_reshape(b, y, ty->dims + ty->rank - 2, 1), tx, true);
    if (ty->rank <= tx->rank && no_batch(b, ty)) /* the usual weights: rows of x are all one matrix */
        return dot(p, x, b_reshape(b, y, ty->dims + ty->rank - 2, 2), 0, tx->rank - 1, 0);
    int32_t n = b_broadcast_dims(b, tx->dims, tx->rank - 2, ty->dims, ty->rank - 2, batch);
    if (n < 0)
        return (value_id){0};
    memcpy(dims, batch, (size_t)n * sizeof *dims);
    memcpy(dims + n, tx->dims + tx->rank - 2, 2 * sizeof *dims);
    x = b_broadcast(b, x, dims, n + 2);
    memcpy(dims + n, ty->dims + ty->rank - 2, 2 * sizeof *dims);
    y = b_broadcast(b, y, dims, n + 2);
    return dot(p, x, y, (uint32_t)n, n + 1, n);
}

value_id b_matmul_acc(struct builder *b, value_id x, value_id y, enum elem acc)
{
    struct dot_builder p = {b, acc};
    struct type tx, ty;
    if (!is_tensor(b, x, &tx) || !is_tensor(b, y, &ty))
        return (value_id){0};
    if (tx.rank == 0 || ty.rank == 0) {
        error_model(b->g->ctx, b->src, "a matrix product needs operands of rank 1 or more");
        return (value_id){0};
    }
    if (tx.rank == 1 && ty.rank == 1)
        return dot(&p, x, y, 0, 0, 0);
    if (ty.rank == 1 && is_by_vector(b, &tx, ty.dims[0], acc))
        return by_vector(b, x, y, &tx, false);
    if (ty.rank == 1)
        return dot(&p, x, y, 0, tx.rank - 1, 0);
    if (tx.rank == 1)
        return dot(&p, y, x, 0, ty.rank - 2, 0);
    return batched_matmul(&p, x, y, &tx, &ty);
}

value_id b_matmul(struct builder *b, value_id x, value_id y)
{
    return b_matmul_acc(b, x, y, ELEM_NONE);
}

/* Inference of views, gathers and scatters (see infer.c): shapes only, whatever the elements are. */
#include "ir/graph/infer.h"
#include "ir/graph/view_map.h"

static const expr_id *list_of_rank(struct infer *f, const char *name, int32_t rank)
{
    uint32_t n;
    const expr_id *e = node_exprs(&f->attrs, name, &n);
    if (n == (uint32_t)rank)
        return e ? e : infer_dims(f, 0);
    infer_error(f, "%u %s for rank %d", n, name, rank);
    return NULL;
}

/* The type of operand 0, and that of the result: its elements in the dims of the attribute. */
static bool result_type(struct infer *f, const struct type **t, struct type *to)
{
    uint32_t n;
    *t = infer_tensor(f, 0);
    if (!*t)
        return false;
    const expr_id *dims = node_exprs(&f->attrs, "dims", &n);
    if (n > RANK_MAX)
        return infer_error(f, "rank %u is above %d", n, RANK_MAX);
    for (uint32_t i = 0; i < n; i++)
        if (ex_hi(f->ex, dims[i]) < 0)
            return infer_error(f, "dimension %u is %s", i, expr_text(f->g, dims[i]));
    *to = (struct type){.kind = TYPE_TENSOR, .elem = (*t)->elem, .rank = (int32_t)n, .dims = dims};
    return true;
}

bool infer_broadcast(struct infer *f)
{
    const struct type *t;
    struct type to;
    if (!result_type(f, &t, &to))
        return false;
    bool ok = t->rank <= to.rank;
    for (int32_t i = 0; ok && i < t->rank; i++) {
        expr_id from = t->dims[i], want = to.dims[to.rank - t->rank + i];
        ok = ex_cmp_eq(f->ex, from, want) != FALSE_ || ex_cmp_eq(f->ex, from, ex_const(f->ex, 1)) != FALSE_;
    }
    if (!ok)
        return infer_error(f, "%s does not broadcast to %s", type_text(f->g, t), type_text(f->g, &to));
    f->out[0] = to;
    return true;
}

bool infer_reshape(struct infer *f)
{
    const struct type *t;
    struct type to;
    if (!result_type(f, &t, &to))
        return false;
    expr_id a = dims_product(f->ex, t->dims, t->rank), b = dims_product(f->ex, to.dims, to.rank);
    if (ex_cmp_eq(f->ex, a, b) == FALSE_)
        return infer_error(f, "%s has %s elements, %s has %s", type_text(f->g, t), expr_text(f->g, a),
                           type_text(f->g, &to), expr_text(f->g, b));
    f->out[0] = to;
    return true;
}

bool infer_transpose(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    uint32_t n;
    uint64_t seen = 0;
    const int64_t *perm = node_ints(&f->attrs, "perm", &n);
    if (!t)
        return false;
    if (n != (uint32_t)t->rank)
        return infer_error(f, "permutation of %u axes for %s", n, type_text(f->g, t));
    expr_id *dims = infer_dims(f, t->rank);
    for (uint32_t i = 0; i < n; i++) {
        if (perm[i] < 0 || perm[i] >= t->rank || (seen >> perm[i] & 1))
            return infer_error(f, "entry %u of the permutation is %lld for %s", i, (long long)perm[i],
                               type_text(f->g, t));
        seen |= (uint64_t)1 << perm[i];
        dims[i] = t->dims[perm[i]];
    }
    return infer_set(f, 0, t->elem, t->rank, dims);
}

/* Is one end of a slice provably outside? `at` is a position that is read unless the size is 0. */
static bool outside(struct infer *f, expr_id at, expr_id dim)
{
    return ex_hi(f->ex, at) < 0 || ex_cmp_lt(f->ex, at, dim) == FALSE_;
}

bool infer_windows(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    int64_t size = node_int(&f->attrs, "size", 0), length;
    if (!t)
        return false;
    if (t->rank < 1 || t->rank >= RANK_MAX || size < 1 || !ex_is_const(f->ex, t->dims[t->rank - 1], &length) ||
        length < size)
        return infer_error(f, "windows of %lld in %s", (long long)size, type_text(f->g, t));
    expr_id *dims = infer_dims(f, t->rank + 1);
    memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
    dims[t->rank - 1] = ex_const(f->ex, length - size + 1);
    dims[t->rank] = ex_const(f->ex, size);
    return infer_set(f, 0, t->elem, t->rank + 1, dims);
}

bool infer_slice(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    uint32_t n;
    if (!t)
        return false;
    const expr_id *starts = list_of_rank(f, "starts", t->rank), *sizes = list_of_rank(f, "sizes", t->rank);
    const int64_t *steps = node_ints(&f->attrs, "steps", &n);
    if (!starts || !sizes)
        return false;
    if (n != (uint32_t)t->rank)
        return infer_error(f, "%u steps for %s", n, type_text(f->g, t));
    for (int32_t i = 0; i < t->rank; i++) {
        if (steps[i] == 0)
            return infer_error(f, "step of axis %d is 0", i);
        if (ex_hi(f->ex, sizes[i]) < 0)
            return infer_error(f, "size of axis %d is %s", i, expr_text(f->g, sizes[i]));
        if (ex_lo(f->ex, sizes[i]) < 1)
            continue;
        expr_id last = ex_add(f->ex, starts[i], ex_mulc(f->ex, ex_addc(f->ex, sizes[i], -1), steps[i]));
        if (outside(f, starts[i], t->dims[i]) || outside(f, last, t->dims[i]))
            return infer_error(f, "axis %d from %s, %s elements by %lld, is outside of %s", i,
                               expr_text(f->g, starts[i]), expr_text(f->g, sizes[i]), (long long)steps[i],
                               type_text(f->g, t));
    }
    return infer_set(f, 0, t->elem, t->rank, sizes);
}

bool infer_pad(struct infer *f)
{
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    const struct type *t = infer_tensor(f, 0);
    const char *mode = node_str(&f->attrs, "mode", "constant");
    if (!t)
        return false;
    if (!ROW_NAMED(modes, COUNT_OF(modes), mode))
        return infer_error(f, "no mode is called \"%s\"", mode);
    const expr_id *lo = list_of_rank(f, "lo", t->rank), *hi = list_of_rank(f, "hi", t->rank);
    if (!lo || !hi)
        return false;
    if (f->n_in > 1) {
        const struct type *fill = infer_tensor(f, 1);
        if (!fill)
            return false;
        if (fill->rank != 0 || fill->elem != t->elem)
            return infer_error(f, "fill is %s for %s", type_text(f->g, fill), type_text(f->g, t));
    }
    expr_id *dims = infer_dims(f, t->rank);
    for (int32_t i = 0; i < t->rank; i++) {
        expr_id both = ex_add(f->ex, lo[i], hi[i]);
        if (ex_hi(f->ex, lo[i]) < 0 || ex_hi(f->ex, hi[i]) < 0)
            return infer_error(f, "padding of axis %d is negative: %s and %s", i, expr_text(f->g, lo[i]),
                               expr_text(f->g, hi[i]));
        if (strcmp(mode, "constant") != 0 && ex_is(f->ex, t->dims[i], 0) && ex_lo(f->ex, both) > 0)
            return infer_error(f, "axis %d of %s is empty: nothing to pad with", i, type_text(f->g, t));
        dims[i] = ex_add(f->ex, t->dims[i], both);
    }
    return infer_set(f, 0, t->elem, t->rank, dims);
}

bool infer_concat(struct infer *f)
{
    const struct type *t = infer_tensor(f, 0);
    int64_t axis;
    if (!t || !infer_axis(f, t->rank, &axis))
        return false;
    expr_id *dims = infer_dims(f, t->rank);
    memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
    for (uint32_t k = 1; k < f->n_in; k++) {
        const struct type *u = infer_tensor(f, k);
        if (!u)
            return false;
        if (u->elem != t->elem)
            return infer_error(f, "operands have different element types: %s and %s", type_text(f->g, t),
                               type_text(f->g, u));
        bool ok = u->rank == t->rank;
        for (int32_t i = 0; ok && i < t->rank; i++) {
            ok = i == axis || ex_cmp_eq(f->ex, dims[i], u->dims[i]) != FALSE_;
            if (i != axis && ex_is_const(f->ex, u->dims[i], NULL))
                dims[i] = u->dims[i];
        }
        if (!ok)
            return infer_error(f, "along axis %lld, %s does not fit to operand %u, %s", (long long)axis,
                               type_text(f->g, t), k + 1, type_text(f->g, u));
        dims[axis] = ex_add(f->ex, dims[axis], u->dims[axis]);
    }
    return infer_set(f, 0, t->elem, t->rank, dims);
}

/* ---- gathers ----------------------------------------------------------------------------------------------------- */

bool infer_gather(struct infer *f)
{
    const struct type *x = infer_tensor(f, 0), *idx = infer_tensor(f, 1);
    int64_t axis;
    if (!x || !idx || !infer_elem_in(f, 1, "IU") || !infer_axis(f, x->rank, &axis))
        return false;
    int32_t rank = x->rank - 1 + idx->rank;
    if (rank > RANK_MAX)
        return infer_error(f, "rank %d is above %d", rank, RANK_MAX);
    expr_id *dims = infer_dims(f, rank);
    memcpy(dims, x->dims, (size_t)axis * sizeof *dims);
    memcpy(dims + axis, idx->dims, (size_t)idx->rank * sizeof *dims);
    memcpy(dims + axis + idx->rank, x->dims + axis + 1, (size_t)(x->rank - 1 - axis) * sizeof *dims);
    return infer_set(f, 0, x->elem, rank, dims);
}

/* The dims of b other than axis reach no further than those of a. */
static bool within(struct infer *f, const struct type *a, const struct type *b, int64_t axis)
{
    bool ok = a->rank == b->rank;
    for (int32_t i = 0; ok && i < a->rank; i++)
        ok = i == axis || ex_cmp_lt(f->ex, a->dims[i], b->dims[i]) != TRUE_;
    return ok || infer_error(f, "indices %s do not fit to %s along axis %lld", type_text(f->g, b), type_text(f->g, a),
                             (long long)axis);
}

bool infer_gather_elements(struct infer *f)
{
    const struct type *x = infer_tensor(f, 0), *idx = infer_tensor(f, 1);
    int64_t axis;
    if (!x || !idx || !infer_elem_in(f, 1, "IU") || !infer_axis(f, x->rank, &axis) || !within(f, x, idx, axis))
        return false;
    return infer_set(f, 0, x->elem, idx->rank, idx->dims);
}

/* The last dim of the indices: how many dims of x each index tuple addresses. */
static bool tuple_length(struct infer *f, const struct type *x, const struct type *idx, int64_t batch, int64_t *k)
{
    if (idx->rank < 1 || batch < 0 || batch >= idx->rank || batch > x->rank)
        return infer_error(f, "%lld batch dims for %s with indices %s", (long long)batch, type_text(f->g, x),
                           type_text(f->g, idx));
    if (!ex_is_const(f->ex, idx->dims[idx->rank - 1], k) || *k < 0 || *k > x->rank - batch)
        return infer_error(f, "index tuples of %s in %s address more dims than %s has",
                           expr_text(f->g, idx->dims[idx->rank - 1]), type_text(f->g, idx), type_text(f->g, x));
    return true;
}

bool infer_gather_nd(struct infer *f)
{
    const struct type *x = infer_tensor(f, 0), *idx = infer_tensor(f, 1);
    int64_t k, batch = node_int(&f->attrs, "batch", 0);
    if (!x || !idx || !infer_elem_in(f, 1, "IU") || !tuple_length(f, x, idx, batch, &k))
        return false;
    for (int64_t i = 0; i < batch; i++)
        if (!infer_agree(f, x->dims[i], idx->dims[i], "batch dims differ"))
            return false;
    int32_t tail = x->rank - (int32_t)(batch + k), rank = idx->rank - 1 + tail;
    if (rank > RANK_MAX)
        return infer_error(f, "rank %d is above %d", rank, RANK_MAX);
    expr_id *dims = infer_dims(f, rank);
    memcpy(dims, idx->dims, (size_t)(idx->rank - 1) * sizeof *dims);
    memcpy(dims + idx->rank - 1, x->dims + batch + k, (size_t)tail * sizeof *dims);
    return infer_set(f, 0, x->elem, rank, dims);
}

bool infer_walk(struct infer *f)
{
    const struct type *x = infer_tensor(f, 0), *table = infer_tensor(f, 1);
    int64_t nodes, trees = node_int(&f->attrs, "trees", 0);
    if (!x || !table || !infer_elem_in(f, 0, "F"))
        return false;
    if (x->rank != 2 || table->rank != 2 || table->elem != ELEM_I64 || !ex_is(f->ex, table->dims[1], 2))
        return infer_error(f, "no walk through %s by %s", type_text(f->g, table), type_text(f->g, x));
    if (!ex_is_const(f->ex, table->dims[0], &nodes) || trees < 1 || trees > nodes || nodes > INT32_MAX)
        return infer_error(f, "%lld trees of %s", (long long)trees, type_text(f->g, table));
    expr_id *dims = infer_dims(f, 2);
    dims[0] = x->dims[0];
    dims[1] = ex_const(f->ex, trees);
    return infer_set(f, 0, ELEM_I32, 2, dims);
}

/* ---- scatters ---------------------------------------------------------------------------------------------------- */

bool infer_first(struct infer *f)
{
    const struct type *x = infer_tensor(f, 0), *idx = infer_tensor(f, 1), *u = infer_tensor(f, 2);
    int64_t axis, k;
    if (!x || !idx || !u || !infer_elem_in(f, 1, "IU") || !infer_monoid(f, "set", x->elem))
        return false;
    if (u->elem != x->elem)
        return infer_error(f, "updates %s for %s", type_text(f->g, u), type_text(f->g, x));
    f->out[0] = *x;
    int32_t head = idx->rank;
    if (f->op == OP_SCATTER_ELEMENTS) {
        if (!infer_axis(f, x->rank, &axis) || !within(f, x, idx, axis))
            return false;
        k = x->rank;
    } else {
        if (!tuple_length(f, x, idx, 0, &k))
            return false;
        head--;
    }
    bool ok = u->rank == head + x->rank - (int32_t)k;
    for (int32_t i = 0; ok && i < u->rank; i++)
        ok = ex_cmp_eq(f->ex, u->dims[i], i < head ? idx->dims[i] : x->dims[i - head + k]) != FALSE_;
    return ok || infer_error(f, "updates %s do not fit to %s with indices %s", type_text(f->g, u), type_text(f->g, x),
                             type_text(f->g, idx));
}

/* Interpretation of reductions, windows and cumulation (see eval.c).
 *
 * Sums and products of floats are carried in double and rounded once; integers in 64 bits, wrapped at the end. */
#include <math.h>

#include "ir/eval/eval.h"
#include "ir/ops/scalar.h"

/* The type that accumulates: every narrower value converts to it exactly. */
static enum elem wide_elem(const struct eval *ev, enum elem e)
{
    return eval_in_field(ev, e)   ? (enum elem)WIDE_FIELD
           : elem_class(e) == 'F' ? ELEM_F64
           : elem_class(e) == 'U' ? ELEM_U64
                                  : ELEM_I64;
}

static void narrow(enum elem wide, const int64_t *src, enum elem elem, void *dst, int64_t n)
{
    for (int64_t i = 0; wide == (enum elem)WIDE_FIELD && i < n; i++)
        field_store(elem, (uint32_t)src[i], false, (char *)dst + (size_t)i * elem_size(elem));
    if (wide == (enum elem)WIDE_FIELD)
        return;
    if (wide == ELEM_F64)
        elems_from_f64(elem, (const double *)(const void *)src, dst, (size_t)n);
    else
        elems_from_i64(elem, src, dst, (size_t)n);
}

static void widen(enum elem elem, const void *src, enum elem wide, int64_t *dst, int64_t n)
{
    for (int64_t i = 0; wide == (enum elem)WIDE_FIELD && i < n; i++)
        dst[i] = field_load(elem, (const char *)src + (size_t)i * elem_size(elem));
    if (wide == (enum elem)WIDE_FIELD)
        return;
    if (wide == ELEM_F64)
        elems_to_f64(elem, src, (double *)(void *)dst, (size_t)n);
    else
        elems_to_i64(elem, src, dst, (size_t)n);
}

static void combine(enum op op, enum elem wide, int64_t *acc, const int64_t *x, int64_t n)
{
    const void *in[2] = {acc, x};
    for (int64_t i = 0; wide == (enum elem)WIDE_FIELD && i < n; i++)
        acc[i] = field_apply(op, acc[i], x[i]);
    if (wide != (enum elem)WIDE_FIELD)
        map_eval(op, wide, (size_t)n, in, acc);
}

static int64_t wide_identity(const char *monoid, enum elem elem, enum elem wide)
{
    char identity[16] = {0};
    int64_t x = 0;
    if (wide == (enum elem)WIDE_FIELD)
        return field_identity(monoid_op(monoid));
    monoid_identity(monoid, elem, identity);
    widen(elem, identity, wide, &x, 1);
    return x;
}

/* Reduces a row to its first element: folds the upper half into the lower one, again and again. */
static void fold_row(enum op op, enum elem wide, int64_t *row, int64_t n)
{
    while (n > 1) {
        int64_t half = n / 2;
        combine(op, wide, row, row + (n - half), half);
        n -= half;
    }
}

enum { ROW_MOST = 1 << 16 };
/* The inner dims that are read as one row; fold: they are reduced. Sums of floats keep their order. */
static int32_t dims_before_row(const struct tensor *x, const bool *reduced, bool fold, enum elem wide, int64_t *row)
{
    int32_t d = x->rank ? x->rank - 1 : 0;
    *row = x->rank ? x->dims[d] : 1;
    while (d > 0 && reduced[d - 1] == fold && !(fold && wide == ELEM_F64) && *row && x->dims[d - 1] <= ROW_MOST / *row)
        *row *= x->dims[--d];
    return d;
}

enum eval_status eval_reduce(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0];
    const char *monoid = node_str(n, "monoid", "");
    enum op op = monoid_op(monoid);
    enum elem wide = wide_elem(e, x->elem);
    int64_t strides[RANK_MAX] = {0}, at[RANK_MAX] = {0}, weight = 1;
    bool reduced[RANK_MAX] = {false};
    uint32_t n_axes;
    const int64_t *axes = node_ints(n, "axes", &n_axes);
    TRY(eval_result(e, n, 0, out));
    for (uint32_t i = 0; i < n_axes; i++)
        reduced[axes[i]] = true;
    for (int32_t i = x->rank - 1; i >= 0; i--) {
        strides[i] = reduced[i] ? 0 : weight;
        weight *= reduced[i] ? 1 : x->dims[i];
    }
    if (weight != tensor_count(out))
        return eval_fail(e, EVAL_SHAPE, "reduce: the result's shape does not fit");
    bool fold = x->rank == 0 || reduced[x->rank - 1];
    int64_t *acc = NEW_ARRAY(e->arena, int64_t, weight + 1), last;
    int32_t lead = dims_before_row(x, reduced, fold, wide, &last);
    for (int64_t i = 0; i < weight; i++) {
        acc[i] = wide_identity(monoid, x->elem, wide);
    }
    int64_t *row = NEW_ARRAY(e->arena, int64_t, last + 1), rows = last ? tensor_count(x) / last : 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t to = 0;
        for (int32_t i = 0; i < lead; i++)
            to += at[i] * strides[i];
        widen(x->elem, (char *)x->data + (size_t)(r * last) * elem_size(x->elem), wide, row, last);
        if (fold)
            fold_row(op, wide, row, last);
        combine(op, wide, acc + to, row, fold ? 1 : last);
        dims_next(x->dims, lead, at);
    }
    narrow(wide, acc, out->elem, out->data, weight);
    return EVAL_OK;
}

enum eval_status eval_segments(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0], *starts = in[1];
    int64_t axis = node_int(n, "axis", 0), outer = 1, inner = 1, at[2];
    enum elem wide = wide_elem(e, x->elem);
    TRY(eval_result(e, n, 0, out));
    for (int32_t d = 0; d < x->rank; d++)
        *(d < axis ? &outer : &inner) *= d == axis ? 1 : x->dims[d];
    int64_t k = x->dims[axis], lines = out->dims[axis];
    int64_t *row = NEW_ARRAY(e->arena, int64_t, inner + 1), *acc = NEW_ARRAY(e->arena, int64_t, inner + 1);
    for (int64_t i = 0; i < outer * lines; i++) {
        for (int j = 0; j < 2; j++)
            at[j] = elem_to_i64(ELEM_I32, (const char *)starts->data + (size_t)(i % lines + j) * sizeof(int32_t));
        if (at[0] < 0 || at[0] > at[1] || at[1] > k)
            return eval_fail(e, EVAL_VALUE, "segments: from %lld to %lld", (long long)at[0], (long long)at[1]);
        for (int64_t l = 0; l < inner; l++)
            acc[l] = wide_identity("sum", x->elem, wide);
        for (int64_t j = at[0]; j < at[1]; j++) {
            size_t from = (size_t)((i / lines * k + j) * inner);
            widen(x->elem, (const char *)x->data + from * elem_size(x->elem), wide, row, inner);
            combine(OP_ADD, wide, acc, row, inner);
        }
        narrow(wide, acc, out->elem, (char *)out->data + (size_t)(i * inner) * elem_size(out->elem), inner);
    }
    return EVAL_OK;
}

/* ---- positions of extremes --------------------------------------------------------------------------------------- */

/* Does b take the place of a as the extreme? NaN counts as extreme; of equals, the later only where `last` wants it. */
static bool takes_over(enum elem wide, int64_t a, int64_t b, bool max, bool last)
{
    if (wide == ELEM_F64) {
        double x, y;
        memcpy(&x, &a, sizeof x);
        memcpy(&y, &b, sizeof y);
        if (isnan(x) || isnan(y))
            return isnan(y) && (!isnan(x) || last);
        return (max ? y > x : y < x) || (last && x == y);
    }
    if (a == b)
        return last;
    if (wide == (enum elem)WIDE_FIELD)
        return max ? field_less(a, b) : field_less(b, a);
    bool less = wide == ELEM_U64 ? (uint64_t)b < (uint64_t)a : b < a;
    return max ? !less : less;
}

enum eval_status eval_argreduce(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0];
    int32_t axis = (int32_t)node_int(n, "axis", 0);
    bool max = node_int(n, "max", 1), last = node_int(n, "last", 0);
    enum elem wide = wide_elem(e, x->elem);
    int64_t dim = x->dims[axis], inner = dims_count(x->dims + axis + 1, x->rank - axis - 1);
    TRY(eval_result(e, n, 0, out));
    if ((dim == 0 && tensor_count(out) > 0) || tensor_count(out) * dim != tensor_count(x))
        return eval_fail(e, EVAL_SHAPE, "argreduce: axis %d has %lld elements", axis, (long long)dim);
    for (int64_t k = 0; k < tensor_count(out); k++) {
        int64_t best = 0, best_at = 0, v, base = k / inner * dim * inner + k % inner;
        for (int64_t i = 0; i < dim; i++) {
            widen(x->elem, (char *)x->data + (size_t)(base + i * inner) * elem_size(x->elem), wide, &v, 1);
            if (i && !takes_over(wide, best, v, max, last))
                continue;
            best = v;
            best_at = i;
        }
        ((int64_t *)out->data)[k] = best_at;
    }
    return EVAL_OK;
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

struct window {
    int32_t n; /* spatial dims */
    const int64_t *kernel, *strides, *dilations;
    int64_t lo[RANK_MAX];
    const int64_t *dims; /* spatial, of the operand */
};

static enum eval_status read_window(struct eval *e, const struct node *n, const struct tensor *x, struct window *w)
{
    uint32_t count;
    w->kernel = node_ints(n, "kernel", &count);
    w->strides = node_ints(n, "strides", &count);
    w->dilations = node_ints(n, "dilations", &count);
    w->n = (int32_t)count;
    w->dims = x->dims + x->rank - w->n;
    return eval_exprs(e, n, "lo", w->lo);
}

/* Offset within the spatial dims that kernel position k of output position o reads; -1: padding. */
static int64_t window_offset(const struct window *w, const int64_t *o, const int64_t *k)
{
    int64_t p = 0;
    for (int32_t d = 0; d < w->n; d++) {
        int64_t i = o[d] * w->strides[d] + k[d] * w->dilations[d] - w->lo[d];
        if (i < 0 || i >= w->dims[d])
            return -1;
        p = p * w->dims[d] + i;
    }
    return p;
}

static void combine_one(enum op op, enum elem wide, int64_t *acc, int64_t x)
{
    if (wide != ELEM_F64) {
        combine(op, wide, acc, &x, 1);
        return;
    }
    double a, b;
    memcpy(&a, acc, sizeof a);
    memcpy(&b, &x, sizeof b);
    switch (op) {
    case OP_ADD: a += b; break;
    case OP_MUL: a *= b; break;
    case OP_MIN: a = isnan(a) || a < b ? a : b; break;
    default: a = isnan(a) || a > b ? a : b; break;
    }
    memcpy(acc, &a, sizeof a);
}

/* The monoid over each window, or where its largest element is. */
static enum eval_status windows(struct eval *e, const struct node *n, const struct tensor *x, bool arg,
                                struct tensor *out)
{
    const char *monoid = node_str(n, "monoid", "");
    enum elem wide = wide_elem(e, x->elem);
    struct window w = {0};
    TRY(read_window(e, n, x, &w));
    TRY(eval_result(e, n, 0, out));
    int32_t lead = x->rank - w.n;
    int64_t at[RANK_MAX] = {0}, k[RANK_MAX], plane = dims_count(w.dims, w.n), to = 0, identity = 0;
    int64_t outputs = dims_count(out->dims + lead, w.n), *values = NEW_ARRAY(e->arena, int64_t, plane + 1);
    if (!arg)
        identity = wide_identity(monoid, x->elem, wide);
    if (tensor_count(out) == 0)
        return EVAL_OK;
    do {
        int64_t acc = identity, found = -1;
        time_spend(e->g->ctx, (uint64_t)dims_count(w.kernel, w.n));
        if (to % outputs == 0)
            widen(x->elem, (char *)x->data + (size_t)(to / outputs * plane) * elem_size(x->elem), wide, values, plane);
        memset(k, 0, sizeof k);
        do {
            int64_t p = window_offset(&w, at + lead, k);
            if (p >= 0 && !arg)
                combine_one(monoid_op(monoid), wide, &acc, values[p]);
            if (p < 0 || !arg || (found >= 0 && !takes_over(wide, acc, values[p], true, false)))
                continue;
            acc = values[p];
            found = p;
        } while (dims_next(w.kernel, w.n, k));
        if (arg)
            ((int64_t *)out->data)[to] = found < 0 ? 0 : found;
        else
            narrow(wide, &acc, out->elem, (char *)out->data + (size_t)to * elem_size(out->elem), 1);
        to++;
    } while (dims_next(out->dims, out->rank, at));
    return EVAL_OK;
}

enum eval_status eval_window(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    return windows(e, n, in[0], false, out);
}

enum eval_status eval_argwindow(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    return windows(e, n, in[0], true, out);
}

/* ---- cumulation -------------------------------------------------------------------------------------------------- */

enum eval_status eval_cumulate(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0];
    const char *monoid = node_str(n, "monoid", "");
    int32_t axis = (int32_t)node_int(n, "axis", 0);
    bool exclusive = node_int(n, "exclusive", 0), reverse = node_int(n, "reverse", 0);
    enum elem wide = wide_elem(e, x->elem);
    size_t size = elem_size(x->elem);
    TRY(eval_tensor(e, out, x->elem, x->rank, x->dims));
    int64_t dim = x->dims[axis], inner = dims_count(x->dims + axis + 1, x->rank - axis - 1), v, acc;
    int64_t lines = dim ? tensor_count(x) / dim : 0;
    for (int64_t line = 0; line < lines; line++) {
        int64_t base = line / inner * dim * inner + line % inner;
        acc = wide_identity(monoid, x->elem, wide);
        for (int64_t i = 0; i < dim; i++) {
            size_t at = (size_t)(base + (reverse ? dim - 1 - i : i) * inner) * size;
            widen(x->elem, (char *)x->data + at, wide, &v, 1);
            if (exclusive)
                narrow(wide, &acc, x->elem, (char *)out->data + at, 1);
            combine_one(monoid_op(monoid), wide, &acc, v);
            if (!exclusive)
                narrow(wide, &acc, x->elem, (char *)out->data + at, 1);
        }
    }
    return EVAL_OK;
}

/* Interpretation of views, gathers and scatters (see eval.c).
 *
 * Views that treat each dim alone (broadcast, slice, pad) are one function over a table per dim: the operand's
 * offset that an index of the result means, or -1 for the fill value. */
#include <math.h>

#include "ir/eval/eval.h"
#include "ir/graph/view_map.h"
#include "ir/ops/scalar.h"

/* ---- separable views --------------------------------------------------------------------------------------------- */

/* map[d][i]: offset in elements, -1: fill. fill NULL: zero bytes, which eval_tensor left there. */
static void copy_mapped(const struct tensor *x, int64_t *const *map, const void *fill, struct tensor *out)
{
    static const int64_t only[1] = {0};
    int64_t at[RANK_MAX] = {0};
    const int32_t rows = out->rank > 0 ? out->rank - 1 : 0; /* dims of rows along the last one */
    const int64_t *row = out->rank ? map[rows] : only, n = out->rank ? out->dims[rows] : 1;
    const size_t size = elem_size(x->elem);
    char *to = out->data;
    if (tensor_count(out) == 0)
        return;
    do {
        int64_t from = 0;
        bool inside = true;
        for (int32_t d = 0; d < rows; d++) {
            inside &= map[d][at[d]] >= 0;
            from += map[d][at[d]];
        }
        const char *of = (const char *)x->data + (size_t)(inside ? from : 0) * size;
        for (int64_t i = 0; i < n; i++, to += size) {
            const char *one = inside && row[i] >= 0 ? of + (size_t)row[i] * size : fill;
            if (one && size == sizeof(uint32_t)) /* which a compiler makes one load and one store */
                memcpy(to, one, sizeof(uint32_t));
            else if (one)
                memcpy(to, one, size);
        }
    } while (dims_next(out->dims, rows, at));
}

static int64_t *offsets(struct eval *e, int64_t n)
{
    return NEW_ARRAY(e->arena, int64_t, n + 1);
}

/* Broadcast, transpose, slice: each dim of the operand is read along one of the result (ir/graph/view_map.h). */
enum eval_status eval_view(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0];
    int64_t strides[RANK_MAX], start, *map[RANK_MAX];
    struct view_map view;
    view_map(e->g, n, 0, &view);
    TRY(eval_result(e, n, 0, out));
    dims_strides(x->dims, x->rank, strides);
    for (int32_t d = 0; d < out->rank; d++)
        map[d] = offsets(e, out->dims[d]);
    for (int32_t k = 0; k < x->rank; k++) {
        const struct view_dim *v = &view.dim[k];
        int64_t step = v->is_chosen && x->dims[k] == 1 ? 0 : v->step, extent = out->dims[v->of];
        TRY(eval_expr(e, v->start, &start));
        if (n->op != OP_SLICE && step && x->dims[k] != extent)
            return eval_fail(e, EVAL_SHAPE, "%s: dimension %lld does not fit to %lld", op_name(n->op),
                             (long long)x->dims[k], (long long)extent);
        for (int64_t i = 0; i < extent; i++) {
            int64_t at = start + step * i;
            if (at < 0 || at >= x->dims[k])
                return eval_fail(e, EVAL_SHAPE, "%s: index %lld of axis %d is outside of %lld", op_name(n->op),
                                 (long long)at, (int)k, (long long)x->dims[k]);
            map[v->of][i] = at * strides[k];
        }
    }
    copy_mapped(x, map, NULL, out);
    return EVAL_OK;
}

/* Do gathers of whole windows alone read the windows? Then they read the line: together the windows are as many times
 * as large. */
static bool windows_are_gathered(const struct eval *e, value_id v)
{
    if (!e->shared || (e->wanted && e->wanted[v.i])) /* single nodes keep what they make */
        return false;
    for (const struct graph_user *u = graph_user(e->g, v, NULL); u; u = graph_user(e->g, v, u)) {
        const struct node *n = u->node.i ? graph_node(e->g, u->node) : NULL;
        if (!n || n->op != OP_GATHER || u->at || node_int(n, "axis", 0) != value_type(e->g, v)->rank - 2)
            return false;
    }
    return true;
}

enum eval_status eval_windows(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0];
    int64_t size = node_int(n, "size", 0), length = x->dims[x->rank - 1], windows = length - size + 1;
    if (windows_are_gathered(e, n->out[0])) {
        *out = *x;
        out->rank++;
        out->dims = NEW_ARRAY(e->arena, int64_t, out->rank);
        memcpy(out->dims, x->dims, (size_t)x->rank * sizeof *x->dims);
        out->dims[x->rank - 1] = windows;
        out->dims[x->rank] = size;
        return EVAL_OK;
    }
    TRY(eval_result(e, n, 0, out));
    int64_t count = tensor_count(out);
    size_t each = elem_size(out->elem);
    for (int64_t i = 0; i < count; i += size) {
        int64_t first = i / size / windows * length + i / size % windows;
        memcpy((char *)out->data + (size_t)i * each, (const char *)x->data + (size_t)first * each, (size_t)size * each);
    }
    return EVAL_OK;
}

enum eval_status eval_reshape(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    TRY(eval_result(e, n, 0, out));
    if (tensor_count(out) != tensor_count(in[0]))
        return eval_fail(e, EVAL_SHAPE, "reshape of %lld elements into %lld", (long long)tensor_count(in[0]),
                         (long long)tensor_count(out));
    memcpy(out->data, in[0]->data, (size_t)tensor_count(out) * elem_size(out->elem));
    return EVAL_OK;
}

/* Where index i (of the operand, possibly outside) reads; -1: the fill value. */
static int64_t padded_index(const char *mode, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    switch (mode[0]) {
    case 'e': return i < 0 ? 0 : n - 1;
    case 'w': return floormod_i64(i, n);
    case 'r': {
        int64_t period = n > 1 ? 2 * (n - 1) : 1, k = floormod_i64(i, period);
        return k < n ? k : period - k;
    }
    default: return -1;
    }
}

enum eval_status eval_pad(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0];
    const char *mode = node_str(n, "mode", "constant");
    int64_t strides[RANK_MAX], lo[RANK_MAX], hi[RANK_MAX], *map[RANK_MAX];
    TRY(eval_exprs(e, n, "lo", lo));
    TRY(eval_exprs(e, n, "hi", hi));
    TRY(eval_result(e, n, 0, out));
    dims_strides(x->dims, x->rank, strides);
    for (int32_t d = 0; d < out->rank; d++) {
        if (lo[d] < 0 || hi[d] < 0)
            return eval_fail(e, EVAL_SHAPE, "pad: negative padding of axis %d", d);
        if (mode[0] != 'c' && x->dims[d] == 0 && out->dims[d] > 0)
            return eval_fail(e, EVAL_SHAPE, "pad: axis %d is empty, there is nothing to pad with", d);
        map[d] = offsets(e, out->dims[d]);
        for (int64_t i = 0; i < out->dims[d]; i++) {
            int64_t k = padded_index(mode, i - lo[d], x->dims[d]);
            map[d][i] = k < 0 ? INT64_MIN / 64 : k * strides[d]; /* stays negative in a sum over all dims */
        }
    }
    copy_mapped(x, map, n->n_in > 1 ? in[1]->data : NULL, out);
    return EVAL_OK;
}

void eval_place(struct tensor *out, int32_t axis, int64_t at, const struct tensor *x, int64_t extent)
{
    size_t size = elem_size(out->elem);
    int64_t inner = dims_count(out->dims + axis + 1, out->rank - axis - 1), outer = dims_count(out->dims, axis);
    for (int64_t o = 0; o < outer; o++)
        memcpy((char *)out->data + (size_t)((o * out->dims[axis] + at) * inner) * size,
               (char *)x->data + (size_t)(o * extent * inner) * size, (size_t)(extent * inner) * size);
}

enum eval_status eval_concat(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    int32_t axis = (int32_t)node_int(n, "axis", 0);
    int64_t base = 0;
    TRY(eval_result(e, n, 0, out));
    for (uint32_t k = 0; k < n->n_in; k++) {
        for (int32_t i = 0; i < out->rank; i++)
            if (i != axis && in[k]->dims[i] != out->dims[i])
                return eval_fail(e, EVAL_SHAPE, "concat: operand %u differs in dimension %d", k + 1, i);
        if (base + in[k]->dims[axis] > out->dims[axis])
            return eval_fail(e, EVAL_SHAPE, "concat: operands exceed the result");
        eval_place(out, axis, base, in[k], in[k]->dims[axis]);
        base += in[k]->dims[axis];
    }
    return EVAL_OK;
}

/* ---- gathers ----------------------------------------------------------------------------------------------------- */

bool gather_index(const struct node *n, enum elem elem, const void *idx, int64_t k, int64_t dim, int64_t *at)
{
    int64_t v = elem_to_i64(elem, (const char *)idx + (size_t)k * elem_size(elem));
    *at = v < 0 ? v + dim : v;
    if (node_int(n, "clamp", 0) && dim > 0)
        *at = *at < 0 ? 0 : *at >= dim ? dim - 1 : *at;
    return *at >= 0 && *at < dim;
}

/* Index k of idx as a position in [0, dim); clamps, or fails. */
static enum eval_status read_index(struct eval *e, const struct node *n, const struct tensor *idx, int64_t k,
                                   int64_t dim, int64_t *at)
{
    if (!gather_index(n, idx->elem, idx->data, k, dim, at))
        return eval_fail(e, EVAL_VALUE, "%s: index %lld is outside of [-%lld, %lld)", op_name(n->op),
                         (long long)elem_to_i64(idx->elem, (char *)idx->data + (size_t)k * elem_size(idx->elem)),
                         (long long)dim, (long long)dim);
    return EVAL_OK;
}

enum eval_status eval_gather(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0], *idx = in[1];
    int32_t axis = (int32_t)node_int(n, "axis", 0);
    int64_t outer = dims_count(x->dims, axis), inner = dims_count(x->dims + axis + 1, x->rank - axis - 1), at;
    int64_t count = tensor_count(idx), dim = x->dims[axis];
    size_t each = elem_size(x->elem), row = (size_t)inner * each;
    const struct node *of = value_node(e->g, n->in[0]);
    bool lines = of && of->op == OP_WINDOWS && windows_are_gathered(e, n->in[0]); /* which x has, not their windows */
    size_t apart = lines ? each : row, next = lines ? (size_t)(dim + inner - 1) * each : (size_t)dim * row;
    TRY(eval_result(e, n, 0, out));
    if (tensor_count(out) != outer * count * inner)
        return eval_fail(e, EVAL_SHAPE, "gather: the result's shape does not fit");
    for (int64_t k = 0; k < count; k++) {
        TRY(read_index(e, n, idx, k, dim, &at));
        for (int64_t o = 0; o < outer; o++)
            memcpy((char *)out->data + (size_t)(o * count + k) * row,
                   (char *)x->data + (size_t)o * next + (size_t)at * apart, row);
    }
    return EVAL_OK;
}

/* Flat offset in x of an index tuple, with index k of idx along axis. */
static enum eval_status element_offset(struct eval *e, const struct node *n, const struct tensor *x,
                                       const struct tensor *idx, int64_t k, const int64_t *at, int64_t *offset)
{
    int64_t axis = node_int(n, "axis", 0), at_axis;
    TRY(read_index(e, n, idx, k, x->dims[axis], &at_axis));
    *offset = 0;
    for (int32_t d = 0; d < x->rank; d++) {
        int64_t i = d == axis ? at_axis : at[d];
        if (i >= x->dims[d])
            return eval_fail(e, EVAL_SHAPE, "%s: indices reach outside of the data", op_name(n->op));
        *offset = *offset * x->dims[d] + i;
    }
    return EVAL_OK;
}

enum eval_status eval_gather_elements(struct eval *e, const struct node *n, struct tensor *const *in,
                                      struct tensor *out)
{
    const struct tensor *x = in[0], *idx = in[1];
    int64_t at[RANK_MAX] = {0}, k = 0, p;
    size_t size = elem_size(x->elem);
    TRY(eval_tensor(e, out, x->elem, idx->rank, idx->dims));
    if (tensor_count(out) == 0)
        return EVAL_OK;
    do {
        TRY(element_offset(e, n, x, idx, k, at, &p));
        memcpy((char *)out->data + (size_t)k * size, (char *)x->data + (size_t)p * size, size);
        k++;
    } while (dims_next(out->dims, out->rank, at));
    return EVAL_OK;
}

/* Offset in elements, within the dims of x from `batch` on, of index tuple t of length k. */
static enum eval_status tuple_offset(struct eval *e, const struct node *n, const struct tensor *x,
                                     const struct tensor *idx, int64_t t, int64_t k, int64_t batch, int64_t *offset)
{
    int64_t i;
    *offset = 0;
    for (int64_t d = 0; d < k; d++) {
        TRY(read_index(e, n, idx, t * k + d, x->dims[batch + d], &i));
        *offset = *offset * x->dims[batch + d] + i;
    }
    return EVAL_OK;
}

enum eval_status eval_gather_nd(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0], *idx = in[1];
    int64_t batch = node_int(n, "batch", 0), k = idx->dims[idx->rank - 1], offset;
    int64_t row = dims_count(x->dims + batch + k, x->rank - (int32_t)(batch + k));
    int64_t batches = dims_count(x->dims, (int32_t)batch);
    int64_t tuples = dims_count(idx->dims + batch, idx->rank - 1 - (int32_t)batch);
    int64_t block = dims_count(x->dims + batch, x->rank - (int32_t)batch);
    size_t size = elem_size(x->elem) * (size_t)row;
    TRY(eval_result(e, n, 0, out));
    if (tensor_count(out) != batches * tuples * row || tensor_count(idx) != batches * tuples * k)
        return eval_fail(e, EVAL_SHAPE, "gather_nd: shapes do not fit");
    for (int64_t b = 0; b < batches; b++)
        for (int64_t t = 0; t < tuples; t++) {
            TRY(tuple_offset(e, n, x, idx, b * tuples + t, k, batch, &offset));
            memcpy((char *)out->data + (size_t)(b * tuples + t) * size,
                   (char *)x->data + (size_t)(b * block) * elem_size(x->elem) + (size_t)offset * size, size);
        }
    return EVAL_OK;
}

/* ---- walks through trees ----------------------------------------------------------------------------------------- */

static bool walk_goes(int64_t kind, double x, double number)
{
    bool goes = (kind & 3) == 0 ? x <= number : (kind & 3) == 1 ? x >= number : x == number;
    return goes || (kind >= 4 && isnan(x));
}

enum eval_status eval_walk(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0], *table = in[1];
    const int64_t *node = table->data;
    int64_t depth = node_int(n, "depth", 0), columns = x->dims[1];
    size_t size = elem_size(x->elem);
    TRY(eval_result(e, n, 0, out));
    for (int64_t k = 0, count = tensor_count(out); k < count; k++) {
        int64_t at = k % out->dims[1], row = k / out->dims[1];
        for (int64_t d = 0; d < depth; d++) {
            int64_t column = node[2 * at] & 0xfffffff, kind = node[2 * at] >> 28 & 7, next = node[2 * at] >> 32;
            double number;
            memcpy(&number, &node[2 * at + 1], sizeof number);
            if (column >= columns || next < 0)
                return eval_fail(e, EVAL_VALUE, "walk: node %lld leads nowhere", (long long)at);
            const char *p = (const char *)x->data + (size_t)(row * columns + column) * size;
            at = next + walk_goes(kind, elem_to_f64(x->elem, p), number);
            if (at >= table->dims[0])
                return eval_fail(e, EVAL_VALUE, "walk: there is no node %lld", (long long)at);
        }
        ((int32_t *)out->data)[k] = (int32_t)at;
    }
    return EVAL_OK;
}

/* ---- scatters ---------------------------------------------------------------------------------------------------- */

static enum eval_status copy_operand(struct eval *e, const struct tensor *x, struct tensor *out)
{
    TRY(eval_tensor(e, out, x->elem, x->rank, x->dims));
    memcpy(out->data, x->data, (size_t)tensor_count(x) * elem_size(x->elem));
    return EVAL_OK;
}

/* out[at ...] op= updates[from ...], count elements. */
static void combine(const struct eval *e, const char *monoid, struct tensor *out, int64_t at,
                    const struct tensor *updates, int64_t from, int64_t count)
{
    size_t size = elem_size(out->elem);
    char *dst = (char *)out->data + (size_t)at * size;
    const char *src = (const char *)updates->data + (size_t)from * size;
    const void *in[2] = {dst, src};
    if (monoid_op(monoid) == OP_NONE)
        memcpy(dst, src, (size_t)count * size);
    else
        map_eval_in(e->g->ctx, monoid_op(monoid), out->elem, (size_t)count, in, dst);
}

enum eval_status eval_scatter_elements(struct eval *e, const struct node *n, struct tensor *const *in,
                                       struct tensor *out)
{
    const struct tensor *x = in[0], *idx = in[1], *updates = in[2];
    int64_t at[RANK_MAX] = {0}, k = 0, p;
    TRY(copy_operand(e, x, out));
    if (tensor_count(idx) != tensor_count(updates))
        return eval_fail(e, EVAL_SHAPE, "scatter_elements: indices and updates differ in shape");
    if (tensor_count(idx) == 0)
        return EVAL_OK;
    do {
        TRY(element_offset(e, n, x, idx, k, at, &p));
        combine(e, node_str(n, "monoid", "set"), out, p, updates, k, 1);
        k++;
    } while (dims_next(idx->dims, idx->rank, at));
    return EVAL_OK;
}

enum eval_status eval_scatter_nd(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0], *idx = in[1], *updates = in[2];
    int64_t k = idx->dims[idx->rank - 1], tuples = dims_count(idx->dims, idx->rank - 1), offset;
    int64_t row = dims_count(x->dims + k, x->rank - (int32_t)k);
    TRY(copy_operand(e, x, out));
    if (tensor_count(updates) != tuples * row)
        return eval_fail(e, EVAL_SHAPE, "scatter_nd: updates do not fit to the indices");
    for (int64_t t = 0; t < tuples; t++) {
        TRY(tuple_offset(e, n, x, idx, t, k, 0, &offset));
        combine(e, node_str(n, "monoid", "set"), out, offset * row, updates, t * row, row);
    }
    return EVAL_OK;
}

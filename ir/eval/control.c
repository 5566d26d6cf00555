/* Interpretation of if, loop, assert, sequences and optionals (see eval.c).
 *
 * A tensor inside a sequence shares its memory with the value that it came from: values that go into opaque or control
 * operators are never recycled. */
#include "ir/eval/eval.h"

/* ---- control flow ------------------------------------------------------------------------------------------------ */

static bool truth_of(const struct tensor *t)
{
    return elem_to_i64(t->elem, t->data) != 0;
}

enum eval_status eval_assert(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    int64_t ok;
    (void)in, (void)out;
    TRY(eval_expr(e, node_expr(n, "cond"), &ok));
    if (ok == 1)
        return EVAL_OK;
    return eval_fail(e, (enum eval_status)node_int(n, "code", EVAL_VALUE), "%s", node_str(n, "text", ""));
}

enum eval_status eval_if(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    if (n->n_region != 2 || in[0]->kind != TYPE_TENSOR || tensor_count(in[0]) != 1)
        return eval_fail(e, EVAL_UNSUPPORTED, "if needs two regions and one condition");
    region_id r = n->region[truth_of(in[0]) ? 0 : 1];
    uint32_t n_out = n->n_out;
    TRY(eval_region(e, r));
    const struct region *region = graph_get_region(e->g, r);
    for (uint32_t i = 0; i < n_out && i < region->results.n; i++)
        out[i] = e->vals[region->results.data[i].i];
    return EVAL_OK;
}

/* What one scan output collects: pointers to the rows of all trips. */
struct scan {
    struct tensor first;
    VEC(const void *) rows;
};

static enum eval_status scan_push(struct eval *e, struct scan *s, const struct tensor *t)
{
    if (s->rows.n == 0)
        s->first = *t;
    bool same = t->rank == s->first.rank && t->elem == s->first.elem;
    for (int32_t i = 0; same && i < t->rank; i++)
        same = t->dims[i] == s->first.dims[i];
    if (!same)
        return eval_fail(e, EVAL_SHAPE, "loop: a scan output changes its shape from trip to trip");
    VEC_PUSH(e->arena, &s->rows, t->data);
    return EVAL_OK;
}

static enum eval_status scan_stack(struct eval *e, const struct node *n, uint32_t result, const struct scan *s,
                                   struct tensor *out)
{
    int64_t dims[RANK_MAX + 1] = {0};
    if (s->rows.n == 0)
        return eval_result(e, n, result, out); /* no trip: the declared shape, dim 0 being 0 */
    if (s->first.rank >= RANK_MAX)
        return eval_fail(e, EVAL_UNSUPPORTED, "loop: rank of a scan output");
    dims[0] = s->rows.n;
    memcpy(dims + 1, s->first.dims, (size_t)s->first.rank * sizeof *dims);
    TRY(eval_tensor(e, out, s->first.elem, s->first.rank + 1, dims));
    size_t size = (size_t)tensor_count(&s->first) * elem_size(s->first.elem);
    for (uint32_t i = 0; i < s->rows.n; i++)
        memcpy((char *)out->data + i * size, s->rows.data[i], size);
    return EVAL_OK;
}

static struct tensor scalar(struct eval *e, enum elem elem, int64_t v)
{
    struct tensor t = {.kind = TYPE_TENSOR, .elem = elem, .present = true};
    t.dims = NEW_ARRAY(e->arena, int64_t, 1);
    t.data = NEW(e->arena, int64_t);
    elem_from_i64(elem, v, t.data);
    return t;
}

/* Sets the parameters for one trip: iteration number, condition, carried values. */
static enum eval_status enter_trip(struct eval *e, region_id r, int64_t trip, bool cond, const struct tensor *carried,
                                   uint32_t n)
{
    struct tensor iter = scalar(e, ELEM_I64, trip), c = scalar(e, ELEM_BOOL, cond);
    const struct region *region = graph_get_region(e->g, r);
    if (region->params.n != n + 2)
        return eval_fail(e, EVAL_UNSUPPORTED, "loop: %u parameters for %u carried values", region->params.n, n);
    TRY(eval_set(e, region->params.data[0], &iter));
    TRY(eval_set(e, region->params.data[1], &c));
    for (uint32_t i = 0; i < n; i++)
        TRY(eval_set(e, graph_get_region(e->g, r)->params.data[i + 2], &carried[i]));
    return EVAL_OK;
}

enum { FIELD_TRIPS = 1 << 17 };

enum eval_status eval_loop(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    uint32_t carried = n->n_in - 2, n_scan = n->n_out - carried;
    bool forever = node_int(n, "forever", 0), go_on = truth_of(in[1]);
    int64_t trips = 0, limit = elem_to_i64(in[0]->elem, in[0]->data);
    if (n->n_region != 1 || n->n_out < carried)
        return eval_fail(e, EVAL_UNSUPPORTED, "loop needs one region");
    region_id r = n->region[0];
    struct scan *scans = NEW_ARRAY(e->arena, struct scan, n_scan + 1);
    struct tensor *state = NEW_ARRAY(e->arena, struct tensor, carried + 1);
    for (uint32_t i = 0; i < carried; i++)
        state[i] = *in[i + 2];
    for (; go_on && (forever || trips < limit); trips++) {
        if (e->g->ctx->field && e->trips++ == FIELD_TRIPS)
            return eval_fail(e, EVAL_UNSUPPORTED, "its loops run too long on drawn values");
        TRY(enter_trip(e, r, trips, go_on, state, carried));
        TRY(eval_region(e, r));
        const struct region *region = graph_get_region(e->g, r);
        if (region->results.n != n->n_out + 1)
            return eval_fail(e, EVAL_UNSUPPORTED, "loop: %u region results for %u results", region->results.n,
                             n->n_out);
        const value_id *results = region->results.data;
        go_on = truth_of(&e->vals[results[0].i]);
        for (uint32_t i = 0; i < carried; i++)
            state[i] = e->vals[results[1 + i].i];
        for (uint32_t i = 0; i < n_scan; i++)
            TRY(scan_push(e, &scans[i], &e->vals[results[1 + carried + i].i]));
    }
    sym_id s = node_expr(n, "trips").i ? ex_as_sym(e->ex, node_expr(n, "trips")) : (sym_id){0};
    if (s.i)
        e->sym[s.i] = trips;
    memcpy(out, state, carried * sizeof *out);
    for (uint32_t i = 0; i < n_scan; i++)
        TRY(scan_stack(e, n, carried + i, &scans[i], &out[carried + i]));
    return EVAL_OK;
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

static struct tensor new_sequence(struct eval *e, enum type_kind kind, uint32_t n)
{
    struct tensor t = {.kind = kind, .n = n, .present = n > 0};
    t.item = NEW_ARRAY(e->arena, struct tensor, n + 1);
    return t;
}

enum eval_status eval_seq_make(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    *out = new_sequence(e, TYPE_SEQUENCE, n->n_in);
    for (uint32_t i = 0; i < n->n_in; i++)
        out->item[i] = *in[i];
    return EVAL_OK;
}

/* A position in [0, n) from operand `k`, which may count from the end; past_end: n itself is allowed too. */
static enum eval_status position(struct eval *e, const struct node *n, const struct tensor *pos, uint32_t count,
                                 bool past_end, uint32_t *at)
{
    int64_t v = elem_to_i64(pos->elem, pos->data), i = v < 0 ? v + count : v;
    if (tensor_count(pos) != 1 || i < 0 || i >= (int64_t)count + past_end)
        return eval_fail(e, EVAL_VALUE, "%s: position %lld in a sequence of %u", op_name(n->op), (long long)v, count);
    *at = (uint32_t)i;
    return EVAL_OK;
}

enum eval_status eval_seq_at(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    uint32_t at;
    TRY(position(e, n, in[1], in[0]->n, false, &at));
    *out = in[0]->item[at];
    return EVAL_OK;
}

enum eval_status eval_seq_insert(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    uint32_t at = in[0]->n;
    if (n->n_in > 2)
        TRY(position(e, n, in[2], in[0]->n, true, &at));
    *out = new_sequence(e, TYPE_SEQUENCE, in[0]->n + 1);
    memcpy(out->item, in[0]->item, at * sizeof *out->item);
    out->item[at] = *in[1];
    memcpy(out->item + at + 1, in[0]->item + at, (in[0]->n - at) * sizeof *out->item);
    return EVAL_OK;
}

enum eval_status eval_seq_erase(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    uint32_t at = in[0]->n - 1;
    if (in[0]->n == 0)
        return eval_fail(e, EVAL_VALUE, "seq_erase: the sequence is empty");
    if (n->n_in > 1)
        TRY(position(e, n, in[1], in[0]->n, false, &at));
    *out = new_sequence(e, TYPE_SEQUENCE, in[0]->n - 1);
    memcpy(out->item, in[0]->item, at * sizeof *out->item);
    memcpy(out->item + at, in[0]->item + at + 1, (in[0]->n - 1 - at) * sizeof *out->item);
    return EVAL_OK;
}

enum eval_status eval_seq_length(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    (void)n;
    *out = scalar(e, ELEM_I64, in[0]->n);
    return EVAL_OK;
}

enum eval_status eval_seq_concat(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    bool new_axis = node_int(n, "new_axis", 0);
    int64_t dims[RANK_MAX + 1] = {0}, axis = node_int(n, "axis", 0), at = 0;
    const struct tensor *first = in[0]->item;
    if (in[0]->n == 0)
        return eval_fail(e, EVAL_VALUE, "seq_concat: the sequence is empty");
    int32_t rank = first->rank + new_axis;
    axis += axis < 0 ? rank : 0;
    if (axis < 0 || axis >= rank || rank > RANK_MAX)
        return eval_fail(e, EVAL_SHAPE, "seq_concat: axis %lld of rank %d", (long long)axis, rank);
    for (int32_t d = 0; d < rank; d++)
        dims[d] = d == axis ? 0 : first->dims[d - (new_axis && d > axis)];
    for (uint32_t i = 0; i < in[0]->n; i++) {
        const struct tensor *t = &in[0]->item[i];
        bool ok = t->rank == first->rank && t->elem == first->elem;
        for (int32_t d = 0; ok && d < t->rank; d++)
            ok = (!new_axis && d == axis) || t->dims[d] == first->dims[d];
        if (!ok)
            return eval_fail(e, EVAL_SHAPE, "seq_concat: element %u differs in shape or type", i);
        dims[axis] += new_axis ? 1 : t->dims[axis];
    }
    TRY(eval_tensor(e, out, first->elem, rank, dims));
    for (uint32_t i = 0; i < in[0]->n; i++) {
        int64_t extent = new_axis ? 1 : in[0]->item[i].dims[axis];
        eval_place(out, (int32_t)axis, at, &in[0]->item[i], extent);
        at += extent;
    }
    return EVAL_OK;
}

/* Elements from .. from + extent - 1 along axis; without the axis when drop. */
static enum eval_status cut(struct eval *e, const struct tensor *x, int32_t axis, int64_t from, int64_t extent,
                            bool drop, struct tensor *out)
{
    int64_t dims[RANK_MAX], inner = dims_count(x->dims + axis + 1, x->rank - axis - 1);
    size_t row = (size_t)(extent * inner) * elem_size(x->elem);
    memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
    dims[axis] = extent;
    if (drop)
        memmove(dims + axis, dims + axis + 1, (size_t)(x->rank - axis - 1) * sizeof *dims);
    TRY(eval_tensor(e, out, x->elem, x->rank - drop, dims));
    for (int64_t o = 0; o < dims_count(x->dims, axis); o++)
        memcpy((char *)out->data + (size_t)o * row,
               (char *)x->data + (size_t)((o * x->dims[axis] + from) * inner) * elem_size(x->elem), row);
    return EVAL_OK;
}

enum eval_status eval_seq_split(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0], *split = n->n_in > 1 ? in[1] : NULL;
    int32_t axis = (int32_t)node_int(n, "axis", 0);
    bool drop = !split && !node_int(n, "keepdims", 1);
    int64_t dim = x->dims[axis], chunk = 1, from = 0, pieces;
    if (split && split->rank == 0) {
        chunk = elem_to_i64(split->elem, split->data);
        if (chunk < 1)
            return eval_fail(e, EVAL_VALUE, "seq_split: pieces of %lld", (long long)chunk);
    }
    pieces = split && split->rank > 0 ? tensor_count(split) : (dim + chunk - 1) / chunk;
    *out = new_sequence(e, TYPE_SEQUENCE, (uint32_t)pieces);
    for (int64_t i = 0; i < pieces; i++) {
        int64_t extent = split && split->rank > 0
                             ? elem_to_i64(split->elem, (char *)split->data + (size_t)i * elem_size(split->elem))
                         : dim - from < chunk ? dim - from
                                              : chunk;
        if (extent < 0 || extent > dim - from)
            return eval_fail(e, EVAL_VALUE, "seq_split: pieces do not add up to %lld", (long long)dim);
        TRY(cut(e, x, axis, from, extent, drop, &out->item[i]));
        from += extent;
    }
    return from != dim ? eval_fail(e, EVAL_VALUE, "seq_split: pieces do not add up to %lld", (long long)dim) : EVAL_OK;
}

enum eval_status eval_opt_make(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    *out = new_sequence(e, TYPE_OPTIONAL, n->n_in);
    if (n->n_in)
        out->item[0] = *in[0];
    return EVAL_OK;
}

enum eval_status eval_opt_get(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    (void)n;
    if (in[0]->n == 0)
        return eval_fail(e, EVAL_VALUE, "opt_get: the optional is empty");
    *out = in[0]->item[0];
    return EVAL_OK;
}

enum eval_status eval_opt_has(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    (void)n;
    *out = scalar(e, ELEM_BOOL, in[0]->n > 0);
    return EVAL_OK;
}

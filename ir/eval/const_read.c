/* const_read: ranges of lazy constants of any size, piece by piece, without materialising them.
 *
 * A request is a list of runs: arithmetic progressions of flat row-major positions. Every view turns runs of its
 * result into runs of its operand (a transposed row becomes one strided run), elementwise operators pass them on
 * as they are, and plain constants copy them. So packing a transposed, padded, scaled weight costs one pass over
 * its bytes. What is neither a view nor elementwise is folded as a whole (value_fold). Depth and total work per
 * element are bounded: an expression that would be re-read too often is folded too.
 */
#include <string.h>

#include "ir/eval/eval.h"
#include "ir/eval/fold.h"
#include "ir/graph/view_map.h"
#include "ir/ops/scalar.h"

enum {
    CHUNK = 4096,        /* elements per piece: all buffers of a few levels stay in L2 */
    MAX_DEPTH = 48,
    MAX_COST = 64        /* operator applications per element */
};

struct run {
    int64_t at, stride, n;
};
struct piece {
    int64_t to, n;
};         /* n elements of the destination from position to on */
typedef VEC(struct run) run_list;
typedef VEC(struct piece) piece_list;

struct reader {
    struct graph *g;
    struct arena arena;      /* buffers, kept from piece to piece by depth */
    struct level {
        void *buffer[3];
        run_list runs;
        piece_list pieces;
    } level[MAX_DEPTH + 2];
};

/* ---- what may be read through ------------------------------------------------------------------------------------ */

/* A range of a node's result from ranges of its operands: `total` elements, those of the runs, one after the other into
 * dst. */
typedef bool node_read_fn(struct reader *, const struct node *, const struct run *runs, uint32_t n_runs, int64_t total,
                          char *dst, int depth);
static node_read_fn read_same, read_affine, read_pad, read_concat, read_map, read_iota, read_gather;

static node_read_fn *const read_table[OP_COUNT] = {
#define OP(id, name, least, most, results, shape, cost, infer, eval, lattice, read, ...) [OP_##id] = read,
#include "ir/ops/ops.def"
};

static bool reads_through(const struct node *n)
{
    return read_table[n->op] && (n->op != OP_PAD || strcmp(node_str(n, "mode", "constant"), "constant") == 0);
}

/* Operator applications that reading one element takes; above MAX_COST the value is folded instead. */
static uint32_t read_cost(struct graph *g, value_id v, int depth)
{
    struct folds *f = folds_of(g);
    const struct node *n = graph_node(g, graph_value(g, v)->def);
    uint32_t cost = 1;
    if (f->data[v.i] || !reads_through(n))
        return 1;
    if (f->read_cost[v.i])
        return f->read_cost[v.i];
    if (depth >= MAX_DEPTH)
        return MAX_COST + 1;
    uint32_t most = 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        uint32_t c = read_cost(g, n->in[i], depth + 1);
        cost += c > MAX_COST ? MAX_COST + 1 : c;
        most = c > most ? c : most;
    }
    if (n->op == OP_CONCAT) /* each element comes from one operand */
        cost = most + 1;
    if (n->op == OP_BROADCAST && most > MAX_COST) /* rather the operand is folded, which is smaller */
        cost = 2;
    cost = cost > MAX_COST ? MAX_COST + 1 : cost;
    f = folds_of(g);
    f->read_cost[v.i] = (uint16_t)cost;
    return cost;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void push_run(struct reader *r, run_list *list, struct run run)
{
    if (list->n) {
        struct run *last = &list->data[list->n - 1];
        int64_t stride = last->n > 1 ? last->stride : run.at - last->at;
        if ((run.n == 1 || run.stride == stride) && last->at + last->n * stride == run.at) {
            last->stride = stride;
            last->n += run.n;
            return;
        }
    }
    VEC_PUSH(&r->arena, list, run);
}

static void copy_runs(const char *src, size_t size, const struct run *runs, uint32_t n, char *dst)
{
    for (uint32_t k = 0; k < n; k++) {
        const char *from = src + (size_t)runs[k].at * size;
        int64_t count = runs[k].n, stride = runs[k].stride * (int64_t)size;
        if (runs[k].stride == 1 || count == 1) {
            memcpy(dst, from, (size_t)count * size);
        } else if (size == 4) {
            for (int64_t i = 0; i < count; i++)
                memcpy(dst + i * 4, from + i * stride, 4);
        } else if (size == 1) {
            for (int64_t i = 0; i < count; i++)
                dst[i] = from[i * stride];
        } else if (size == 2) {
            for (int64_t i = 0; i < count; i++)
                memcpy(dst + i * 2, from + i * stride, 2);
        } else {
            for (int64_t i = 0; i < count; i++)
                memcpy(dst + i * (int64_t)size, from + i * stride, size);
        }
        dst += (size_t)count * size;
    }
}

/* ---- walking runs through a shape -------------------------------------------------------------------------------- */

struct shape {
    int32_t rank;
    int64_t dims[RANK_MAX], weight[RANK_MAX];
}; /* weight: row-major strides */

static struct shape shape_of(struct graph *g, value_id v)
{
    const struct type *t = value_type(g, v);
    struct shape s = {.rank = t->rank};
    for (int32_t i = 0; i < t->rank; i++)
        ex_is_const(g->ctx->exprs, t->dims[i], &s.dims[i]);
    dims_strides(s.dims, s.rank, s.weight);
    return s;
}

static void coordinates(const struct shape *s, int64_t at, int64_t *c)
{
    for (int32_t d = 0; d < s->rank; d++) {
        c[d] = at / s->weight[d];
        at -= c[d] * s->weight[d];
    }
}

/* The first elements of a run that move along one dim only: which dim (-1: none moves), by how much, how many. */
struct step {
    int32_t dim;
    int64_t by, n;
};

static struct step first_step(const struct shape *s, const struct run *run, const int64_t *c)
{
    struct step step = {-1, 0, run->n};
    int64_t size = run->stride < 0 ? -run->stride : run->stride;
    if (size == 0 || run->n == 1)
        return step;
    step.n = 1;
    for (int32_t d = 0; d < s->rank; d++) {
        if (s->dims[d] <= 1 || s->weight[d] > size || size % s->weight[d] != 0)
            continue;
        step.dim = d;
        step.by = run->stride / s->weight[d];
        step.n = step.by > 0 ? (s->dims[d] - 1 - c[d]) / step.by + 1 : c[d] / -step.by + 1;
        break;
    }
    if (step.n > run->n)
        step.n = run->n;
    return step;
}

/* ---- affine views: broadcast, transpose, slice ------------------------------------------------------------------- */

struct affine {
    struct shape shape;
    int64_t base, stride[RANK_MAX];
}; /* operand position by result coordinates */

/* Merges dims that the operand walks as one, drops dims of one: longer steps, fewer divisions. */
static void collapse(struct affine *a)
{
    struct affine b = {.base = a->base};
    for (int32_t d = 0; d < a->shape.rank; d++) {
        if (a->shape.dims[d] == 1)
            continue;
        int32_t last = b.shape.rank - 1;
        if (last >= 0 && b.stride[last] == a->stride[d] * a->shape.dims[d]) {
            b.shape.dims[last] *= a->shape.dims[d];
            b.stride[last] = a->stride[d];
            continue;
        }
        b.shape.dims[b.shape.rank] = a->shape.dims[d];
        b.stride[b.shape.rank++] = a->stride[d];
    }
    dims_strides(b.shape.dims, b.shape.rank, b.shape.weight);
    *a = b;
}

static struct affine affine_view(struct graph *g, const struct node *n)
{
    struct affine a = {.shape = shape_of(g, n->out[0])};
    struct shape x = shape_of(g, n->in[0]);
    struct view_map map = {0};
    view_map(g, n, 0, &map);
    for (int32_t d = 0; d < map.rank; d++) {
        int64_t start = 0;
        ex_is_const(g->ctx->exprs, map.dim[d].start, &start);
        a.base += start * x.weight[d];
        a.stride[map.dim[d].of] = map.dim[d].step * x.weight[d];
    }
    collapse(&a);
    return a;
}

/* Runs of the view as runs of its operand. */
static void map_affine(struct reader *r, const struct affine *a, const struct run *runs, uint32_t n, run_list *out)
{
    int64_t c[RANK_MAX];
    out->n = 0;
    for (uint32_t k = 0; k < n; k++) {
        struct run rest = runs[k];
        while (rest.n > 0) {
            int64_t from = a->base;
            coordinates(&a->shape, rest.at, c);
            struct step step = first_step(&a->shape, &rest, c);
            for (int32_t d = 0; d < a->shape.rank; d++)
                from += c[d] * a->stride[d];
            push_run(r, out, (struct run){from, step.dim < 0 ? 0 : step.by * a->stride[step.dim], step.n});
            rest.at += step.n * rest.stride;
            rest.n -= step.n;
        }
    }
}

/* ---- windows: the part of a pad or concat that comes from one operand -------------------------------------------- */

struct window {
    struct shape shape, x;
    int64_t lo[RANK_MAX];
}; /* result, operand, where it begins in the result */

/* Of n positions c, c + by, ...: the first inside [lo, lo + size) and, as the result, how many. */
static int64_t inside(int64_t c, int64_t by, int64_t n, int64_t lo, int64_t size, int64_t *first)
{
    int64_t k0 = 0, k1 = n;
    c -= lo;
    if (by == 0) {
        *first = 0;
        return c >= 0 && c < size ? n : 0;
    }
    if (by > 0) {
        if (c < 0)
            k0 = (-c + by - 1) / by;
        k1 = c >= size ? 0 : (size - 1 - c) / by + 1;
    } else {
        if (c >= size)
            k0 = (c - size) / -by + 1;
        k1 = c < 0 ? 0 : c / -by + 1;
    }
    k1 = k1 > n ? n : k1;
    *first = k0;
    return k1 > k0 ? k1 - k0 : 0;
}

/* Runs of the operand that lie in the window, and the pieces of the destination where they go. */
static int64_t map_window(struct reader *r, const struct window *w, const struct run *runs, uint32_t n, struct level *l)
{
    int64_t c[RANK_MAX], to = 0, total = 0, first;
    l->runs.n = l->pieces.n = 0;
    for (uint32_t k = 0; k < n; k++) {
        struct run rest = runs[k];
        while (rest.n > 0) {
            coordinates(&w->shape, rest.at, c);
            struct step step = first_step(&w->shape, &rest, c);
            int64_t from = 0, count = step.n, skip = 0;
            for (int32_t d = 0; d < w->shape.rank; d++) {
                int64_t m = inside(c[d], d == step.dim ? step.by : 0, step.n, w->lo[d], w->x.dims[d], &first);
                if (m < count || d == step.dim) {
                    count = m < count ? m : count;
                    skip = d == step.dim ? first : skip;
                }
                from += (c[d] - w->lo[d]) * w->x.weight[d];
            }
            if (count > 0) {
                int64_t stride = step.dim < 0 ? 0 : step.by * w->x.weight[step.dim];
                push_run(r, &l->runs, (struct run){from + skip * stride, stride, count});
                VEC_PUSH(&r->arena, &l->pieces, ((struct piece){to + skip, count}));
                total += count;
            }
            to += step.n;
            rest.at += step.n * rest.stride;
            rest.n -= step.n;
        }
    }
    return total;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool index_refused(struct graph *g, const struct node *n)
{
    return error_model(g->ctx, n->src, "%s: an index of a constant is outside of the dim", op_name(n->op));
}

typedef bool read_fn(struct reader *, value_id, const struct run *, uint32_t n_runs, int64_t total, void *dst,
                     int depth);
static read_fn read_runs;

static void *level_buffer(struct reader *r, int depth, int which)
{
    void **b = &r->level[depth].buffer[which];
    if (!*b)
        *b = arena_alloc(&r->arena, (size_t)CHUNK * 16);
    return *b;
}

static bool read_same(struct reader *r, const struct node *n, const struct run *runs, uint32_t n_runs, int64_t total,
                      char *dst, int depth)
{
    return read_runs(r, n->in[0], runs, n_runs, total, dst, depth + 1);
}

static bool read_affine(struct reader *r, const struct node *n, const struct run *runs, uint32_t n_runs, int64_t total,
                        char *dst, int depth)
{
    struct affine a = affine_view(r->g, n);
    run_list *list = &r->level[depth].runs;
    map_affine(r, &a, runs, n_runs, list);
    return read_runs(r, n->in[0], list->data, list->n, total, dst, depth + 1);
}

static bool read_map(struct reader *r, const struct node *n, const struct run *runs, uint32_t n_runs, int64_t total,
                     char *dst, int depth)
{
    const void *in[3] = {0};
    enum elem elem = value_type(r->g, n->in[n->op == OP_SELECT ? 1 : 0])->elem;
    for (uint32_t i = 0; i < n->n_in; i++) {
        void *buffer = level_buffer(r, depth, (int)i);
        if (!read_runs(r, n->in[i], runs, n_runs, total, buffer, depth + 1))
            return false;
        in[i] = buffer;
    }
    if (n->op == OP_BITCAST) {
        memcpy(dst, in[0], (size_t)total * elem_size(elem));
        return true;
    }
    if (n->op == OP_CONVERT) {
        elems_convert(elem, in[0], node_elem(n, "elem"), dst, (size_t)total, node_int(n, "saturate", 1),
                      node_str(n, "round", "even"));
        return true;
    }
    enum eval_status status = map_eval(n->op, elem, (size_t)total, in, dst);
    return status == EVAL_OK || error_model(r->g->ctx, n->src, "%s: %s in a constant", op_name(n->op),
                                            status == EVAL_VALUE ? "division by zero" : "undefined operation");
}

static bool read_iota(struct reader *r, const struct node *n, const struct run *runs, uint32_t n_runs, int64_t total,
                      char *dst, int depth)
{
    struct shape s = shape_of(r->g, n->out[0]);
    int64_t axis = node_int(n, "axis", 0);
    enum elem elem = node_elem(n, "elem");
    for (uint32_t k = 0; k < n_runs; k++)
        for (int64_t i = 0; i < runs[k].n; i++, dst += elem_size(elem))
            elem_from_i64(elem, (runs[k].at + i * runs[k].stride) / s.weight[axis] % s.dims[axis], dst);
    (void)total;
    (void)depth;
    return true;
}

static bool read_gather(struct reader *r, const struct node *n, const struct run *runs, uint32_t n_runs, int64_t total,
                        char *dst, int depth)
{
    const struct tensor_data *idx = value_fold(r->g, n->in[1]);
    struct shape x = shape_of(r->g, n->in[0]);
    int64_t axis = node_int(n, "axis", 0), inner = x.weight[axis], count = 1, at = 0;
    run_list *list = &r->level[depth].runs;
    list->n = 0;
    if (!idx)
        return false;
    for (int32_t d = 0; d < idx->rank; d++)
        count *= idx->dims[d];
    for (uint32_t k = 0; k < n_runs; k++)
        for (int64_t i = 0, m; i < runs[k].n; i += m) {
            int64_t p = runs[k].at + i * runs[k].stride, left = inner - p % inner;
            m = runs[k].stride != 1 ? 1 : left < runs[k].n - i ? left : runs[k].n - i;
            if (!gather_index(n, idx->elem, idx->bytes.data, p / inner % count, x.dims[axis], &at))
                return index_refused(r->g, n);
            at += p / inner / count * x.dims[axis];
            push_run(r, list, (struct run){at * inner + p % inner, 1, m});
        }
    return read_runs(r, n->in[0], list->data, list->n, total, dst, depth + 1);
}

/* Reads what operand k of a pad or a concat contributes to dst. */
static bool read_window(struct reader *r, const struct node *n, uint32_t k, const struct run *runs, uint32_t n_runs,
                        char *dst, int depth)
{
    struct level *l = &r->level[depth];
    struct window w = {.shape = shape_of(r->g, n->out[0]), .x = shape_of(r->g, n->in[k])};
    struct view_map map = {0};
    view_map(r->g, n, k, &map);
    for (int32_t d = 0; d < map.rank; d++)
        if (ex_is_const(r->g->ctx->exprs, map.dim[d].start, &w.lo[d]))
            w.lo[d] = -w.lo[d];
    size_t size = elem_size(value_type(r->g, n->in[k])->elem);
    int64_t total = map_window(r, &w, runs, n_runs, l);
    char *from = level_buffer(r, depth, 0);
    if (total == 0)
        return true;
    if (!read_runs(r, n->in[k], l->runs.data, l->runs.n, total, from, depth + 1))
        return false;
    for (uint32_t i = 0; i < l->pieces.n; i++) {
        memcpy(dst + (size_t)l->pieces.data[i].to * size, from, (size_t)l->pieces.data[i].n * size);
        from += (size_t)l->pieces.data[i].n * size;
    }
    return true;
}

static bool read_pad(struct reader *r, const struct node *n, const struct run *runs, uint32_t n_runs, int64_t total,
                     char *dst, int depth)
{
    size_t size = elem_size(value_type(r->g, n->in[0])->elem);
    memset(dst, 0, (size_t)total * size);
    if (n->n_in > 1) {
        const struct tensor_data *fill = value_fold(r->g, n->in[1]);
        for (int64_t i = 0; fill && i < total; i++)
            memcpy(dst + (size_t)i * size, fill->bytes.data, size);
        if (!fill)
            return false;
    }
    return read_window(r, n, 0, runs, n_runs, dst, depth);
}

static bool read_concat(struct reader *r, const struct node *n, const struct run *runs, uint32_t n_runs, int64_t total,
                        char *dst, int depth)
{
    (void)total;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (!read_window(r, n, k, runs, n_runs, dst, depth))
            return false;
    return true;
}

static bool read_runs(struct reader *r, value_id v, const struct run *runs, uint32_t n_runs, int64_t total, void *dst,
                      int depth)
{
    const struct tensor_data *known = folds_of(r->g)->data[v.i];
    const struct node *n = graph_node(r->g, graph_value(r->g, v)->def);
    if (!known && (!reads_through(n) || depth >= MAX_DEPTH || read_cost(r->g, v, depth) > MAX_COST) &&
        !(known = value_fold(r->g, v)))
        return false;
    if (known) {
        copy_runs(known->bytes.data, elem_size(known->elem), runs, n_runs, dst);
        return true;
    }
    return read_table[n->op](r, n, runs, n_runs, total, dst, depth);
}

const char *const_bytes(const struct graph *g, value_id v)
{
    while (value_op(g, v) == OP_RESHAPE || value_op(g, v) == OP_IDENTITY)
        v = graph_node(g, graph_value(g, v)->def)->in[0];
    if (value_op(g, v) != OP_CONSTANT)
        return NULL;
    return node_attr(graph_node(g, graph_value(g, v)->def), "data")->u.data.data;
}

/* A plain constant after reshapes: one copy, whatever the size. */
static bool read_plain(struct graph *g, value_id v, int64_t first, int64_t n, void *dst)
{
    const char *data = const_bytes(g, v);
    size_t size = elem_size(value_type(g, v)->elem);
    if (data)
        memcpy(dst, data + (size_t)first * size, (size_t)n * size);
    return data;
}

/* Rows of a transposed matrix, TILE at a time: a cache line of the operand serves all of them before it is evicted. */
static void copy_rows(const struct affine *a, const char *src, size_t size, int64_t first, int64_t rows, char *dst)
{
    enum { TILE = 16 };
    int32_t last = a->shape.rank - 1;
    int64_t width = a->shape.dims[last], step = a->stride[last] * (int64_t)size, c[RANK_MAX];
    for (int64_t r = 0; r < rows; r += TILE) {
        const char *from[TILE];
        int n = rows - r < TILE ? (int)(rows - r) : TILE;
        for (int i = 0; i < n; i++) {
            int64_t at = a->base;
            coordinates(&a->shape, (first + r + i) * width, c);
            for (int32_t d = 0; d < last; d++)
                at += c[d] * a->stride[d];
            from[i] = src + at * (int64_t)size;
        }
        for (int64_t k = 0; k < width; k++)
            for (int i = 0; i < n; i++) {
                char *to = dst + (size_t)((r + i) * width + k) * size;
                if (size == 4)
                    memcpy(to, from[i] + k * step, 4);
                else
                    memcpy(to, from[i] + k * step, size);
            }
    }
}

/* A strided view of a plain constant: whole rows are copied in tiles. Returns how many elements it wrote at dst. */
static int64_t read_rows(struct graph *g, value_id v, int64_t first, int64_t n, void *dst)
{
    while (value_op(g, v) == OP_RESHAPE || value_op(g, v) == OP_IDENTITY)
        v = graph_node(g, graph_value(g, v)->def)->in[0];
    if (value_op(g, v) != OP_TRANSPOSE)
        return 0;
    struct affine a = affine_view(g, graph_node(g, graph_value(g, v)->def));
    const char *data = const_bytes(g, graph_node(g, graph_value(g, v)->def)->in[0]);
    int32_t last = a.shape.rank - 1;
    if (!data || last < 1 || a.stride[last] == 1 || first % a.shape.dims[last] != 0)
        return 0;
    int64_t width = a.shape.dims[last];
    copy_rows(&a, data, elem_size(value_type(g, v)->elem), first / width, n / width, dst);
    return n / width * width;
}

bool const_read(struct graph *g, value_id v, int64_t first, int64_t n, void *dst)
{
    node_id def = graph_value(g, v)->def;
    int64_t count = 1, d;
    const struct type *t = value_type(g, v);
    if (!value_is_const(g, v))
        return error_internal(g->ctx, def.i ? graph_node(g, def)->src : (src_id){0},
                              "reading a value that is not constant");
    for (int32_t i = 0; i < t->rank; i++)
        if (!ex_is_const(g->ctx->exprs, t->dims[i], &d) || !mul_i64(count, d, &count))
            count = -1;
    if (first < 0 || n < 0 || n > count - first)
        return error_internal(g->ctx, graph_node(g, def)->src, "reading elements %lld to %lld of %lld",
                              (long long)first, (long long)(first + n), (long long)count);
    if (n == 0 || read_plain(g, v, first, n, dst))
        return true;
    size_t size = elem_size(t->elem);
    struct arena arena;
    arena_init(&arena, g->ctx);
    struct reader *r = NEW(&arena, struct reader);
    r->g = g;
    arena_init(&r->arena, g->ctx);
    bool ok = true;
    for (int64_t at = read_rows(g, v, first, n, dst); ok && at < n; at += CHUNK) {
        int64_t m = n - at < CHUNK ? n - at : CHUNK;
        struct run run = {first + at, 1, m};
        time_spend(g->ctx, CHUNK);
        ok = read_runs(r, v, &run, 1, m, (char *)dst + (size_t)at * size, 0);
    }
    arena_release(&r->arena);
    arena_release(&arena);
    return ok;
}

/* ---- what will have to be folded --------------------------------------------------------------------------------- */

struct settling {
    struct graph *g;
    uint8_t *seen;
    bool ok;
}; /* seen: by value id */

static bool indices_fit(struct graph *g, const struct node *n)
{
    const struct tensor_data *idx = value_fold(g, n->in[1]);
    struct shape x = shape_of(g, n->in[0]);
    int64_t count = idx ? (int64_t)(idx->bytes.size / elem_size(idx->elem)) : 0, at;
    for (int64_t k = 0; k < count; k++)
        if (!gather_index(n, idx->elem, idx->bytes.data, k, x.dims[node_int(n, "axis", 0)], &at))
            return index_refused(g, n);
    return idx;
}

/* As read_runs goes through v, but nothing is read. */
static void settle(struct settling *s, value_id v, int depth)
{
    const struct node *n = graph_node(s->g, graph_value(s->g, v)->def);
    if (s->seen[v.i] || n->op == OP_CONSTANT)
        return;
    s->seen[v.i] = true;
    if (!reads_through(n) || depth >= MAX_DEPTH || read_cost(s->g, v, depth) > MAX_COST) {
        s->ok &= value_fold(s->g, v) != NULL;
        return;
    }
    for (uint32_t i = 0; i < n->n_in; i++)
        settle(s, n->in[i], depth + 1);
    if (n->op == OP_GATHER)
        s->ok &= indices_fit(s->g, n);
}

static void settle_operand(struct settling *s, value_id v)
{
    const struct type *t = value_type(s->g, v);
    if (t->kind == TYPE_TENSOR && t->elem != ELEM_STR && value_is_const(s->g, v))
        settle(s, v, 0);
}

bool constants_settle(struct graph *g)
{
    struct arena arena;
    arena_init(&arena, g->ctx);
    struct settling s = {g, NEW_ARRAY(&arena, uint8_t, g->values.n), true};
    for (uint32_t r = 1; r < g->regions.n; r++) {
        const struct region *region = &g->regions.data[r];
        for (uint32_t k = 0; k < region->nodes.n; k++) {
            const struct node *n = graph_node(g, region->nodes.data[k]);
            if (n->dead || (n->n_out && value_is_const(g, n->out[0])))
                continue;
            for (uint32_t i = 0; i < n->n_in; i++)
                settle_operand(&s, n->in[i]);
        }
        for (uint32_t k = 0; k < region->results.n; k++)
            settle_operand(&s, region->results.data[k]);
    }
    arena_release(&arena);
    return s.ok;
}

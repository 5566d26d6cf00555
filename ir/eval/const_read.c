/* const_read: ranges of lazy constants of any size, piece by piece, without materialising them.
 *
 * A request is a list of runs (ir/eval/runs.h). Every view turns runs of its result into runs of its operand (a
 * transposed row becomes one strided run), elementwise operators pass them on as they are, and plain constants copy
 * them. So packing a transposed, padded, scaled weight costs one pass over its bytes. What is neither a view nor
 * elementwise is folded as a whole (value_fold). Depth and total work per element are bounded: an expression that would
 * be re-read too often is folded too.
 */
#include "ir/eval/eval.h"
#include "ir/eval/fold.h"
#include "ir/eval/runs.h"
#include "ir/graph/view_map.h"

enum {
    CHUNK = 4096,        /* elements per piece: all buffers of a few levels stay in L2 */
    MAX_DEPTH = 48,
    MAX_COST = 96        /* operator applications per element */
};

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
    const struct node *n = value_node(g, v);
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
    if (n->op == OP_IDENTITY) /* kernels read the copy, and compute what is made of it: that is counted anew */
        cost = most > MAX_COST ? most : 1;
    if (n->op == OP_BROADCAST && most > MAX_COST) /* rather the operand is folded, which is smaller */
        cost = 2;
    cost = cost > MAX_COST ? MAX_COST + 1 : cost;
    f = folds_of(g);
    f->read_cost[v.i] = (uint16_t)cost;
    return cost;
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
    runs_of_operand(&r->arena, &a, runs, n_runs, list);
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
    enum elem to = n->op == OP_CONVERT ? node_elem(n, "elem") : ELEM_NONE;
    if (r->g->ctx->field && to && (field_form(elem) || field_form(to))) {
        if (!field_convert(elem, in[0], to, dst, (size_t)total, node_int(n, "saturate", 1), node_str(n, "round", NULL)))
            field_tokens(elem, in[0], to, dst, (size_t)total);
        return true;
    }
    if (n->op == OP_CONVERT) {
        elems_convert(elem, in[0], to, dst, (size_t)total, node_int(n, "saturate", 1), node_str(n, "round", "even"));
        return true;
    }
    enum eval_status status = map_eval_in(r->g->ctx, n->op, elem, (size_t)total, in, dst);
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
            eval_put_i64(r->g->ctx, elem, (runs[k].at + i * runs[k].stride) / s.weight[axis] % s.dims[axis], dst);
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
            runs_push(&r->arena, list, (struct run){at * inner + p % inner, 1, m});
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
    int64_t total = runs_in_window(&r->arena, &w, runs, n_runs, &l->runs, &l->pieces);
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
    const struct node *n = value_node(r->g, v);
    if (!known && (!reads_through(n) || depth >= MAX_DEPTH || read_cost(r->g, v, depth) > MAX_COST) &&
        !(known = value_fold(r->g, v)))
        return false;
    if (known) {
        runs_copy(known->bytes.data, elem_size(known->elem), runs, n_runs, dst);
        return true;
    }
    return read_table[n->op](r, n, runs, n_runs, total, dst, depth);
}

const char *const_bytes(const struct graph *g, value_id v)
{
    v = view_plain(g, v);
    return value_op(g, v) != OP_CONSTANT ? NULL : node_attr(value_node(g, v), "data")->u.data.data;
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

/* A strided view of a plain constant: whole rows are copied in tiles. Returns how many elements it wrote at dst. */
static int64_t read_rows(struct graph *g, value_id v, int64_t first, int64_t n, void *dst)
{
    v = view_plain(g, v);
    if (value_op(g, v) != OP_TRANSPOSE)
        return 0;
    struct affine a = affine_view(g, value_node(g, v));
    const char *data = const_bytes(g, value_node(g, v)->in[0]);
    int32_t last = a.shape.rank - 1;
    if (!data || last < 1 || a.stride[last] == 1 || first % a.shape.dims[last] != 0)
        return 0;
    int64_t width = a.shape.dims[last];
    affine_copy_rows(&a, data, elem_size(value_type(g, v)->elem), first / width, n / width, dst);
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
    const struct node *n = value_node(s->g, v);
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

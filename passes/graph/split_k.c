/* split-k: reductions that are split along what they reduce (split-K).
 *
 *   dot(a, b)     ->     reduce over the parts of dot(a in parts, b in parts), the parts a batch dim
 *   reduce(x)     ->     reduce over the parts of reduce(x in parts)
 *
 * The results of a product or a reduction are its parallel indices. If they are few and each takes long (the values of
 * attention at one token behind a long cache, the maximum of a row of logits), threads stand idle. The partial results
 * are a stored value like any other, whose kernel has an index for each, and a small kernel reduces them in order.
 * This is decided before there are kernels and schedules: the partial results need a buffer, fuse finds the epilogue
 * after the second reduction, and one program serves all variants of an artifact.
 *
 * Rows of a large operand that are added up are split, too, where one row's columns are few indices.
 *
 * An image that the kernel of a depthwise convolution stores is split by rows, however many results there are: that
 * kernel then has the partial results in registers (fuse-partials), so that nobody reads the image again (the mean of
 * squeeze and excitation).
 *
 * An image of open height and width that is added up with its channels (GroupNormalization of one group) has a sum for
 * each channel first, whose kernel has channels in lanes.
 *
 * For decoders at one token, and classifiers with depthwise convolutions: 3 of the 14 networks of `make bench`, none of
 * the 554 of ../shared/models that compile, which are smaller. The number of parts depends on the shape alone, so
 * results do not depend on threads; where results are strict, images alone are split. In and out: a legal graph.
 */
#include "ir/target/budget.h"
#include "passes/module/attention.h"
#include "passes/module/compressed.h"

enum {
    PARTS_MOST = 64,
    LINE_BYTES = 64,
    PARTS_ALWAYS = 4 /* where cost does not count ... */,
    POINTS_ALWAYS = 32 /* ... and what a part of a row has then at least */,
    IMAGE_RANK = 4,
    PARTS_LEAST_OPEN = 16,
    DEPTH_MAX = 8 /* maps between an image and its convolution */
};

/* K: neighbouring dims of each operand, from `first` on, and the product of their extents; 0: one is open, and the
 * parts are the indices of the first dim. */
struct k_dims {
    int32_t first[2];
    uint32_t count;
    int64_t steps;
};

/* ---- the decision ------------------------------------------------------------------------------------------------ */

/* The most parts, at most so many, that divide n steps evenly and leave each so many; 1: none do. */
static int64_t even_parts(int64_t n, int64_t most, int64_t least_steps)
{
    for (int64_t parts = most < PARTS_MOST ? most : PARTS_MOST; parts > 1; parts--)
        if (n % parts == 0 && n / parts >= least_steps)
            return parts;
    return 1;
}

/* The product of the extents of `count` dims from `first` on; false if one is not known or 0. */
static bool extents_product(const struct graph *g, const struct type *t, int32_t first, uint32_t count,
                            int64_t *product)
{
    int64_t n;
    *product = 1;
    for (int32_t d = first; d < first + (int32_t)count; d++)
        if (!ex_is_const(g->ctx->exprs, t->dims[d], &n) || n < 1 || !mul_i64(*product, n, product))
            return false;
    return true;
}

/* Indices of so long each at least, as many as threads need. An index has the columns of some lines of the second
 * operand, which all rows share while it is read. */
static int64_t parts_by_cost(const struct module *mod, const struct node *n, uint32_t n_batch, int64_t columns,
                             int64_t steps)
{
    const struct machine *m = module_machine(mod);
    const struct graph *g = mod->g;
    const struct type *t = value_type(g, n->out[0]);
    int64_t results, batch, each = RATE_ROW_LINES * LINE_BYTES / 4, lanes = m->vector_bytes / 4, work, read, indices;
    if (!extents_product(g, t, 0, (uint32_t)t->rank, &results) || !extents_product(g, t, 0, n_batch, &batch))
        return 1;
    int64_t rows = results / columns, lines = (columns * 4 + LINE_BYTES - 1) / LINE_BYTES;
    if (rows / batch > RATE_SHARED_INDICES || !mul_i64((columns + each - 1) / each, batch, &indices) ||
        indices >= RATE_SHARED_INDICES || !mul_i64(rows * ((columns + lanes - 1) / lanes), steps, &work) ||
        !mul_i64(batch * lines, steps, &read) || !mul_i64(read, RATE_STEP_L3_LINE, &read))
        return 1;
    int64_t cycles = work / m->fma_per_cycle > read / 10 ? work / m->fma_per_cycle : read / 10;
    int64_t most = cycles / RATE_CYCLES_PER_NS / indices / RATE_SHARED_LEAST_NS, enough = RATE_SHARED_MOST / indices;
    return even_parts(steps, most < enough ? most : enough, RATE_PART_STEPS);
}

static int64_t parts_of_dot(const struct module *m, const struct node *n, struct k_dims *k)
{
    const struct type *y = value_type(m->g, n->out[0]);
    struct dot_dims d;
    int64_t columns;
    if (m->asked.strict || y->elem != ELEM_F32 || y->rank >= RANK_MAX) /* the number of rows would decide */
        return 1;
    for (uint32_t i = 0; i < 2; i++) {
        const struct type *t = value_type(m->g, n->in[i]);
        if (t->elem != ELEM_F32 || t->rank >= RANK_MAX || !dot_dims(m->g, n, i, &d) ||
            !extents_product(m->g, t, d.contract, 1, &k->steps))
            return 1;
        if (value_is_const(m->g, n->in[i]) &&
            (graph_value(m->g, n->in[i])->n_uses > 1 || constant_is_compressed(m, n->in[i], i ? d.free : -1)))
            return 1;
        if (weight_whole(m->g, n->in[i]).i != n->in[i].i)
            return 1;
        k->first[i] = d.contract;
        k->count = 1;
    }
    if (!extents_product(m->g, value_type(m->g, n->in[1]), d.free, 1, &columns))
        return 1;
    return m->asked.always ? even_parts(k->steps, PARTS_ALWAYS, 1) : parts_by_cost(m, n, d.n_batch, columns, k->steps);
}

/* Is v computed elementwise from a depthwise convolution's result of its own shape? */
static bool behind_depthwise(const struct module *m, value_id v, const struct type *t, int depth)
{
    const struct node *n = value_node(m->g, v);
    if (!n || depth > DEPTH_MAX || !type_same_shape(value_type(m->g, v), t))
        return false;
    if (conv_depthwise(m->g, n))
        return true;
    for (uint32_t k = 0; k < n->n_in && op_is_pointwise(n->op); k++)
        if (behind_depthwise(m, n->in[k], t, depth + 1))
            return true;
    return false;
}

/* The extent of the first of the dims that are reduced, if others are open; open dims of the result count as 1. */
static int64_t parts_of_open(const struct module *m, const struct type *t, const struct type *y, struct k_dims *k)
{
    int64_t parts, results = 1, n;
    k->steps = 0;
    if (k->count < 2 || !ex_is_const(m->ctx->exprs, t->dims[k->first[0]], &parts) || parts < PARTS_LEAST_OPEN)
        return 1;
    for (int32_t d = 0; d < y->rank; d++)
        if (ex_is_const(m->ctx->exprs, y->dims[d], &n) && !mul_i64(results, n, &results))
            return 1;
    return results < RATE_ROWS_LEAST ? parts : 1;
}

/* Rows of a large operand that are added up, each of which a kernel reads whole (schedule/block.c): short ones are one
 * index. An operand with other readers may be computed in the same kernel. */
static int64_t parts_of_rows(const struct module *m, const struct node *n, const struct type *t, const struct k_dims *k)
{
    int32_t inner = k->first[0] + (int32_t)k->count;
    int64_t outside, row, all;
    if (inner == t->rank || graph_value(m->g, n->in[0])->n_uses > 1 ||
        !extents_product(m->g, t, 0, (uint32_t)k->first[0], &outside) ||
        !extents_product(m->g, t, inner, (uint32_t)(t->rank - inner), &row) || !mul_i64(outside, row, &all) ||
        !mul_i64(all, k->steps, &all) || all < RATE_ROWS_SPLIT ||
        !mul_i64(outside, (row + RATE_ROW_COLUMNS - 1) / RATE_ROW_COLUMNS, &outside) || outside >= RATE_SHARED_INDICES)
        return 1;
    return even_parts(k->steps, RATE_SHARED_MOST / outside, RATE_PART_STEPS);
}

/* An image is split by rows; few and long rows, which no map draws in (fuse), and many that are added up, evenly. */
static int64_t parts_of_reduce(const struct module *m, const struct node *n, struct k_dims *k)
{
    const struct type *t = value_type(m->g, n->in[0]), *y = value_type(m->g, n->out[0]);
    const int64_t *axes = node_ints(n, "axes", &k->count);
    int64_t results, rows;
    if (t->elem != ELEM_F32 || t->rank >= RANK_MAX || n->n_in != 1 || !axes || k->count == 0)
        return 1;
    for (uint32_t i = 1; i < k->count; i++)
        if (axes[i] != axes[i - 1] + 1)
            return 1;
    k->first[0] = (int32_t)axes[0];
    if (!extents_product(m->g, t, k->first[0], k->count, &k->steps))
        return m->asked.strict ? 1 : parts_of_open(m, t, y, k);
    if (m->asked.layout != LAYOUT_NCHW && t->rank == IMAGE_RANK && k->first[0] == 2 && k->count == 2 &&
        graph_value(m->g, n->in[0])->n_uses > 1 && extents_product(m->g, t, 2, 1, &rows) && rows > 1 &&
        rows < k->steps && behind_depthwise(m, n->in[0], t, 0))
        return rows;
    if (m->asked.strict || !extents_product(m->g, y, 0, (uint32_t)y->rank, &results))
        return 1;
    if (m->asked.always)
        return even_parts(k->steps, PARTS_ALWAYS, POINTS_ALWAYS);
    return rows_are_split(results, k->steps) ? even_parts(k->steps, RATE_SHARED_MOST, RATE_PART_POINTS)
                                             : parts_of_rows(m, n, t, k);
}

/* Nodes that an attention computes for itself. */
static bool *inside_attention(struct module *m)
{
    bool *inside = NEW_ARRAY(m->arena, bool, m->g->nodes.n);
    for (uint32_t i = 1; i < m->g->nodes.n; i++) {
        const struct attention *a = attention_of_values(m, (node_id){i});
        inside[i] |= a != NULL;
        for (uint32_t k = 0; a && k < a->nodes.n; k++)
            inside[a->nodes.data[k].i] = true;
    }
    return inside;
}

/* ---- the rewrite ------------------------------------------------------------------------------------------------- */

/* v with K as two dims: parts, and the steps of each. */
static value_id in_parts(struct builder *b, value_id v, int32_t first, const struct k_dims *k, int64_t parts)
{
    const struct type *t = value_type(b->g, v);
    struct exprs *x = b->g->ctx->exprs;
    expr_id dims[RANK_MAX + 1];
    int32_t rank = 0;
    for (int32_t d = 0; d < first; d++)
        dims[rank++] = t->dims[d];
    dims[rank++] = ex_const(x, parts);
    dims[rank++] = ex_const(x, k->steps / parts);
    for (int32_t d = first + (int32_t)k->count; d < t->rank; d++)
        dims[rank++] = t->dims[d];
    return b_reshape(b, v, dims, rank);
}

static value_id partial_dot(struct builder *b, const struct node *n, const struct k_dims *k, int64_t parts)
{
    value_id in[2];
    struct dot_dims d;
    int64_t batch[2][RANK_MAX], contract[2];
    for (uint32_t i = 0; i < 2; i++) {
        dot_dims(b->g, n, i, &d);
        in[i] = in_parts(b, n->in[i], k->first[i], k, parts);
        batch[i][0] = d.contract;
        contract[i] = d.contract + 1;
        for (uint32_t j = 0; j < d.n_batch; j++)
            batch[i][j + 1] = d.batch[j] + (d.batch[j] > d.contract);
    }
    struct attr attrs[] = {attr_ints("batch_a", batch[0], d.n_batch + 1), attr_ints("batch_b", batch[1], d.n_batch + 1),
                           attr_ints("contract_a", &contract[0], 1), attr_ints("contract_b", &contract[1], 1)};
    return b_op(b, OP_DOT, in, 2, attrs, 4);
}

static void split(struct module *m, node_id id, const struct k_dims *k, int64_t parts)
{
    const struct node n = *graph_node(m->g, id);
    struct builder b = builder_before(m->g, id);
    const char *monoid = node_str(&n, "monoid", "sum");
    int64_t axis = n.op == OP_DOT ? 0 : k->first[0], inner[RANK_MAX];
    uint32_t n_inner = k->steps ? 1 : k->count - 1;
    for (uint32_t i = 0; i < n_inner; i++)
        inner[i] = axis + 1 + i;
    value_id v = n.in[0];
    if (n.op == OP_DOT)
        v = partial_dot(&b, &n, k, parts);
    else
        v = b_reduce(&b, k->steps ? in_parts(&b, v, k->first[0], k, parts) : v, inner, n_inner, monoid, false);
    graph_replace(m->g, id, b_reduce(&b, v, &axis, 1, monoid, false));
}

bool split_k(struct module *m)
{
    uint32_t n_nodes = m->g->nodes.n;
    const bool *inside = inside_attention(m);
    for (uint32_t i = 1; i < n_nodes; i++) {
        const struct node *n = graph_node(m->g, (node_id){i});
        struct k_dims k = {.count = 0};
        if (n->dead || inside[i])
            continue;
        int64_t parts = n->op == OP_DOT ? parts_of_dot(m, n, &k) : n->op == OP_REDUCE ? parts_of_reduce(m, n, &k) : 1;
        if (parts > 1)
            split(m, (node_id){i}, &k, parts);
    }
    return m->ctx->fail == FAIL_NONE;
}

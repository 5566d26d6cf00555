/* split-long: sums of few results over much, as sums of parts.
 *
 *   dot(a, b), few columns     ->     reduce over parts of dot(a in parts, b in parts), the parts a batch
 *   reduce(x), few results     ->     reduce over parts of reduce(x in parts)
 *
 * The results of a product or a reduction are what its parallel indices are made of: where they are few, and each takes
 * long (the values of attention at one token behind a long cache, the largest of a row of logits), threads would
 * stand idle. The parts are a value of the graph like any other, and a small kernel adds them up in their order. How
 * many there are depends on the shape alone, so results do not depend on threads. In and out: a legal graph.
 */
#include "ir/build/build.h"
#include "ir/target/budget.h"
#include "passes/graph/find_attention.h"
#include "passes/module/access.h"
#include "passes/module/compressed.h"
#include "passes/module/module.h"

enum {
    PARTS_MOST = 64,
    LINE_BYTES = 64,
    PARTS_ALWAYS = 4 /* where cost does not count ... */,
    POINTS_ALWAYS = 32 /* ... and what a part of a row is then: the sums of split-sums stay whole */
};

/* The most parts, at most so many, that divide n steps evenly and leave each so many; 1: none do. */
static int64_t even_parts(int64_t n, int64_t most, int64_t least_steps)
{
    for (int64_t parts = most < PARTS_MOST ? most : PARTS_MOST; parts > 1; parts--)
        if (n % parts == 0 && n / parts >= least_steps)
            return parts;
    return 1;
}

/* Product of a shape's dims less those of `without`, as bits; false where one is not known or the product is none. */
static bool points_of(const struct graph *g, const struct type *t, uint32_t without, int64_t *points)
{
    int64_t n;
    *points = 1;
    for (int32_t d = 0; d < t->rank; d++)
        if (!(without >> d & 1) &&
            (!ex_is_const(g->ctx->exprs, t->dims[d], &n) || n < 1 || !mul_i64(*points, n, points)))
            return false;
    return true;
}

/* v with dim d as two: parts, and what each has of it. */
static value_id in_parts(struct builder *b, value_id v, int32_t d, int64_t parts)
{
    const struct type *t = value_type(b->g, v);
    struct exprs *x = b->g->ctx->exprs;
    expr_id dims[RANK_MAX + 1];
    for (int32_t i = 0; i < t->rank; i++)
        dims[i + (i > d)] = t->dims[i];
    dims[d + 1] = ex_div(x, t->dims[d], ex_const(x, parts));
    dims[d] = ex_const(x, parts);
    return b_reshape(b, v, dims, t->rank + 1);
}

static void replace(struct builder *b, node_id id, value_id by)
{
    value_id was = graph_node(b->g, id)->out[0];
    if (!by.i)
        return;
    graph_value_describe(b->g, by, was);
    graph_replace_uses(b->g, was, by);
    graph_erase(b->g, id);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Parts of a product: threads' worth of its indices, of so long each at least. An index has the columns of some lines
 * of its second operand, which all rows share while it is read. */
static int64_t parts_of_product(const struct module *m, const struct node *n, int64_t columns, int64_t steps)
{
    const struct machine *mach = module_machine(m);
    const struct graph *g = m->g;
    const struct type *t = value_type(g, n->out[0]);
    int64_t results, lines, each = RATE_ROW_LINES * LINE_BYTES / 4, lanes = mach->vector_bytes / 4, work, read, cycles;
    if (!points_of(g, t, 0, &results) || results % columns)
        return 1;
    int64_t rows = results / columns, batch = 1;
    struct dot_dims d;
    dot_dims(g, n, 0, &d);
    for (uint32_t i = 0; i < d.n_batch; i++) {
        int64_t e = 1;
        ex_is_const(g->ctx->exprs, t->dims[i], &e);
        batch *= e;
    }
    int64_t indices = (columns + each - 1) / each;
    if (rows / batch > RATE_SHARED_INDICES || !mul_i64(indices, batch, &indices) || indices >= RATE_SHARED_INDICES)
        return 1;
    lines = (columns * 4 + LINE_BYTES - 1) / LINE_BYTES;
    if (!mul_i64(rows * ((columns + lanes - 1) / lanes), steps, &work) || !mul_i64(batch * lines, steps, &read) ||
        !mul_i64(read, RATE_STEP_L3_LINE, &read))
        return 1;
    cycles = work / mach->fma_per_cycle > read / 10 ? work / mach->fma_per_cycle : read / 10;
    int64_t most = cycles / RATE_CYCLES_PER_NS / indices / RATE_SHARED_LEAST_NS, enough = RATE_SHARED_MOST / indices;
    return even_parts(steps, most < enough ? most : enough, RATE_PART_STEPS);
}

static void split_product(struct module *m, node_id id)
{
    const struct node n = *graph_node(m->g, id);
    struct dot_dims d[2];
    int64_t columns, steps;
    for (uint32_t k = 0; k < 2; k++) {
        const struct type *t = value_type(m->g, n.in[k]);
        if (t->elem != ELEM_F32 || t->rank >= RANK_MAX || !dot_dims(m->g, &n, k, &d[k]))
            return;
        if (value_is_const(m->g, n.in[k]) &&
            (graph_value(m->g, n.in[k])->n_uses > 1 || constant_is_compressed(m, n.in[k], k ? d[k].free : -1)))
            return;
    }
    const struct type *b = value_type(m->g, n.in[1]), *y = value_type(m->g, n.out[0]);
    if (y->elem != ELEM_F32 || y->rank >= RANK_MAX || attention_of_values(m, id) || attention_of_scores(m, id) ||
        !ex_is_const(m->ctx->exprs, b->dims[d[1].free], &columns) || columns < 1 ||
        !ex_is_const(m->ctx->exprs, b->dims[d[1].contract], &steps))
        return;
    int64_t parts = m->always ? even_parts(steps, PARTS_ALWAYS, 1) : parts_of_product(m, &n, columns, steps);
    if (parts < 2)
        return;
    struct builder build = {.g = m->g, .region = n.parent, .src = n.src, .before = id};
    value_id in[2];
    int64_t batch[2][RANK_MAX], contract[2];
    for (uint32_t k = 0; k < 2; k++) {
        in[k] = in_parts(&build, n.in[k], d[k].contract, parts);
        batch[k][0] = d[k].contract;
        contract[k] = d[k].contract + 1;
        for (uint32_t i = 0; i < d[k].n_batch; i++)
            batch[k][i + 1] = d[k].batch[i] + (d[k].batch[i] > d[k].contract);
    }
    struct attr attrs[] = {attr_ints("batch_a", batch[0], d[0].n_batch + 1),
                           attr_ints("batch_b", batch[1], d[1].n_batch + 1), attr_ints("contract_a", &contract[0], 1),
                           attr_ints("contract_b", &contract[1], 1)};
    replace(&build, id, b_reduce(&build, b_op(&build, OP_DOT, in, 2, attrs, 4), &(int64_t){0}, 1, "sum", false));
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* The reduced dims of n, neighbours of one another and all known: the first of them, how many, their product. */
static bool reduced_dims(const struct graph *g, const struct node *n, int32_t *first, uint32_t *count, int64_t *steps)
{
    const struct type *t = value_type(g, n->in[0]);
    const int64_t *axes = node_ints(n, "axes", count);
    uint32_t mask = 0;
    if (!axes || *count == 0 || *count > (uint32_t)t->rank)
        return false;
    for (uint32_t i = 0; i < *count; i++) {
        if (i > 0 && axes[i] != axes[i - 1] + 1)
            return false;
        mask |= 1u << axes[i];
    }
    *first = (int32_t)axes[0];
    uint32_t all = t->rank >= 32 ? UINT32_MAX : (1u << t->rank) - 1;
    return points_of(g, t, all & ~mask, steps);
}

/* The reduced dims become one, and that one two. A reduction to few results whose rows no map draws in (fuse) is left
 * to as few threads otherwise. */
static void split_reduction(struct module *m, node_id id)
{
    const struct node n = *graph_node(m->g, id);
    const struct type t = *value_type(m->g, n.in[0]);
    struct exprs *x = m->ctx->exprs;
    int32_t first;
    uint32_t count;
    int64_t results, steps, axis;
    if (t.elem != ELEM_F32 || t.rank >= RANK_MAX || n.n_in != 1 || !reduced_dims(m->g, &n, &first, &count, &steps) ||
        !points_of(m->g, value_type(m->g, n.out[0]), 0, &results) ||
        (!m->always && (results >= RATE_ROWS_LEAST || steps <= RATE_ROW_LONG)))
        return;
    int64_t parts = m->always ? even_parts(steps, PARTS_ALWAYS, POINTS_ALWAYS)
                              : even_parts(steps, RATE_SHARED_MOST, RATE_PART_POINTS);
    if (parts < 2)
        return;
    struct builder b = {.g = m->g, .region = n.parent, .src = n.src, .before = id};
    expr_id dims[RANK_MAX];
    int32_t rank = 0;
    for (int32_t d = 0; d < t.rank; d++)
        if (d <= first || d >= first + (int32_t)count)
            dims[rank++] = d == first ? ex_const(x, steps) : t.dims[d];
    const char *monoid = node_str(&n, "monoid", "sum");
    value_id flat = b_reshape(&b, n.in[0], dims, rank);
    axis = first + 1;
    value_id part = b_reduce(&b, flat.i ? in_parts(&b, flat, first, parts) : flat, &axis, 1, monoid, false);
    axis = first;
    replace(&b, id, b_reduce(&b, part, &axis, 1, monoid, false));
}

/* Nodes that an attention computes for itself: its softmax stays as its kernel knows it. */
static bool *inside_attention(struct module *m, uint32_t n_nodes)
{
    bool *inside = NEW_ARRAY(m->arena, bool, n_nodes);
    for (uint32_t i = 0; m->attention_of && i < m->n_attention_nodes; i++) {
        const struct attention *a = m->attention_of[i];
        for (uint32_t k = 0; a && k < a->nodes.n; k++)
            inside[a->nodes.data[k].i] = true;
    }
    return inside;
}

bool split_long(struct module *m)
{
    uint32_t n_nodes = m->g->nodes.n;
    const bool *inside = inside_attention(m, n_nodes);
    for (uint32_t i = 1; i < n_nodes; i++) {
        const struct node *n = graph_node(m->g, (node_id){i});
        if (n->dead || inside[i])
            continue;
        if (n->op == OP_DOT)
            split_product(m, (node_id){i});
        else if (n->op == OP_REDUCE)
            split_reduction(m, (node_id){i});
    }
    return m->ctx->fail == FAIL_NONE;
}

/* A sum over an image (or its largest element) whose operand a depthwise convolution's kernel stores: the kernel leaves
 * a partial result for each row on its way, so that nobody reads the image again (the mean of squeeze and excitation).
 *
 * split_sums, before fuse: reduce over the two spatial dims becomes reduce over rows of a reduce over columns, so
 * that the partial results [N, C, H] are a value of the graph like any other. fuse gives that a kernel of its own.
 * attach_sums, when layouts are known: where the kernel of the operand has a parallel index for each row and lanes
 * along the channels, it stores the partial results as a second value, and the kernel of their own goes. How a row is
 * added up depends on the shape alone, so results do not depend on threads.
 */
#include "passes/module/access.h"
#include "passes/module/module.h"
#include "passes/module/query.h"

enum { DEPTH_MAX = 8, IMAGE_RANK = 4, LEAST_EXTENT = 2 };

/* Is v computed elementwise from a depthwise convolution's result of its own shape? */
static bool behind_depthwise(const struct module *m, value_id v, const struct type *t, int depth)
{
    node_id def = graph_value(m->g, v)->def;
    if (!def.i || depth > DEPTH_MAX || !type_same_shape(value_type(m->g, v), t))
        return false;
    const struct node *n = graph_node(m->g, def);
    if (conv_depthwise(m->g, n))
        return true;
    for (uint32_t k = 0; k < n->n_in && op_is_pointwise(n->op); k++)
        if (behind_depthwise(m, n->in[k], t, depth + 1))
            return true;
    return false;
}

static bool reduces(const struct node *n, const int64_t *axes, uint32_t n_axes)
{
    uint32_t count;
    const int64_t *have = n->op == OP_REDUCE ? node_ints(n, "axes", &count) : NULL;
    for (uint32_t i = 0; have && count == n_axes && i < count; i++)
        if (have[i] != axes[i])
            return false;
    return have && count == n_axes;
}

static bool is_candidate(const struct module *m, const struct node *n)
{
    static const int64_t spatial[] = {2, 3};
    int64_t size;
    if (n->dead || !reduces(n, spatial, 2))
        return false;
    const struct type *t = value_type(m->g, n->in[0]);
    if (t->rank != IMAGE_RANK || t->elem != ELEM_F32 || graph_value(m->g, n->in[0])->n_uses < 2)
        return false;
    for (int32_t d = 2; d < IMAGE_RANK; d++)
        if (!ex_is_const(m->ctx->exprs, t->dims[d], &size) || size < LEAST_EXTENT)
            return false;
    return behind_depthwise(m, n->in[0], t, 0);
}

bool split_sums(struct module *m)
{
    static const int64_t column = 3, row = 2;
    struct graph *g = m->g;
    uint32_t n_nodes = g->nodes.n;
    for (uint32_t i = 1; i < n_nodes; i++) {
        node_id id = {i};
        if (!is_candidate(m, graph_node(g, id)))
            continue;
        const struct node n = *graph_node(g, id);
        struct type t = *value_type(g, n.in[0]), sum = *value_type(g, n.out[0]);
        t.rank = IMAGE_RANK - 1;
        struct attr attrs[] = {attr_ints("axes", &column, 1), attr_str("monoid", node_str(&n, "monoid", "sum"))};
        value_id v = graph_node(g, graph_insert_before(g, id, OP_REDUCE, n.src, n.in, 1, attrs, 2, &t, 1))->out[0];
        attrs[0] = attr_ints("axes", &row, 1);
        v = graph_node(g, graph_insert_before(g, id, OP_REDUCE, n.src, &v, 1, attrs, 2, &sum, 1))->out[0];
        graph_value_describe(g, v, n.out[0]);
        graph_replace_uses(g, n.out[0], v);
        graph_erase(g, id);
    }
    return true;
}

/* Does the kernel of v run over its rows in parallel, and over vectors of channels? */
static bool has_rows_of_channels(const struct module *m, const struct kernel *k, value_id v)
{
    if (k->kind != KERNEL_CONTRACT || k->outs.n != 1 || k->outs.data[0].i != v.i || k->domain.i != v.i || k->piece ||
        k->path.n)
        return false;
    const struct node *n = graph_node(m->g, k->anchor);
    return conv_depthwise(m->g, n) && m->wish[v.i].blocked && (m->wish[n->in[0].i].blocked || k->form.product.i);
}

bool attach_sums(struct module *m)
{
    static const int64_t column = 3;
    bool *gone = NEW_ARRAY(m->arena, bool, m->kernels.n + 1), any = false;
    for (uint32_t i = 0; i < m->kernels.n; i++) {
        const struct kernel *own = &m->kernels.data[i];
        const struct node *n = own->kind == KERNEL_REDUCE ? graph_node(m->g, own->anchor) : NULL;
        if (!n || own->nodes.n != 1 || !reduces(n, &column, 1) || own->outs.data[0].i != n->out[0].i)
            continue;
        value_id v = n->in[0], partial = n->out[0];
        node_id def = graph_value(m->g, v)->def;
        uint32_t maker = def.i ? m->kernel_of[def.i] : 0;
        if (!maker || value_type(m->g, v)->rank != IMAGE_RANK || value_type(m->g, v)->elem != ELEM_F32 ||
            m->wish[partial.i].plain || m->storage[partial.i].place != PLACE_ARENA || !m->stored[v.i])
            continue;
        struct kernel *k = &m->kernels.data[maker - 1];
        if (k->region.i != own->region.i || !has_rows_of_channels(m, k, v))
            continue;
        VEC_PUSH(m->arena, &k->outs, partial);
        VEC_PUSH(m->arena, &k->nodes, own->anchor);
        m->kernel_of[own->anchor.i] = maker;
        m->wish[partial.i].blocked = gone[i] = any = true;
    }
    if (any)
        kernels_remove(m, gone);
    return true;
}

/* A factor per channel in front of a 1x1 convolution goes into its weights.
 *
 * conv(x * s, w) with s the same at all pixels is conv(x, w * s): a kernel that multiplies the weights it has just loaded does
 * so once for all the pixels of a tile, where a kernel of its own would read and write the whole feature map. That pays where
 * the map is larger than what stays in cache between two kernels; a small one is multiplied faster than the weights of all
 * tiles are. The product is rounded in another place (docs/numerics.md).
 */
#include "passes/access.h"
#include "passes/kernel.h"

/* Largest second-level cache of the table: the choice is one for all variants. */
static int64_t near_bytes(void)
{
    uint32_t kib = 0;
    for (uint32_t i = 0; i < target_count; i++)
        if (target_rows[i].machine.l2_kib > kib)
            kib = target_rows[i].machine.l2_kib;
    return (int64_t)kib * 1024;
}

static bool is_large(struct exprs *x, const struct type *t)
{
    int64_t bytes = elem_size(t->elem), n;
    for (int32_t d = 0; d < t->rank; d++)
        if (!ex_is_const(x, t->dims[d], &n) || n < 1 || !mul_i64(bytes, n, &bytes))
            return false;
    return bytes > near_bytes();
}

/* Does v have one value for all pixels of an image and channel? */
static bool per_channel(const struct graph *g, value_id v)
{
    const struct type *t = value_type(g, v);
    if (value_op(g, v) != OP_BROADCAST || value_is_const(g, v))
        return false;
    const struct type *from = value_type(g, graph_node(g, graph_value(g, v)->def)->in[0]);
    for (int32_t d = 2; d < t->rank; d++) {
        int32_t f = d - (t->rank - from->rank);
        if (f >= 0 && !ex_is(g->ctx->exprs, from->dims[f], 1))
            return false;
    }
    return true;
}

static bool pointwise(const struct graph *g, const struct node *n)
{
    const struct type *w = value_type(g, n->in[1]);
    uint32_t c;
    const expr_id *lo = node_exprs(n, "lo", &c), *hi = node_exprs(n, "hi", &c);
    for (uint32_t d = 0; d < c; d++)
        if (!ex_is(g->ctx->exprs, w->dims[2 + d], 1) || !ex_is(g->ctx->exprs, lo[d], 0) || !ex_is(g->ctx->exprs, hi[d], 0))
            return false;
    return node_int(n, "groups", 1) == 1;
}

bool conv_scale(const struct module *m, const struct node *n, value_id *data, value_id *scale)
{
    const struct graph *g = m->g;
    value_id x = n->in[0];
    const struct type *t = value_type(g, x);
    if (n->op != OP_CONV || m->opt_level == 0 || value_op(g, x) != OP_MUL || t->elem != ELEM_F32 || t->rank < 3 ||
        graph_value(g, x)->n_uses != 1 || !pointwise(g, n) || !is_large(g->ctx->exprs, t))
        return false;
    const struct node *mul = graph_node(g, graph_value(g, x)->def);
    for (uint32_t i = 0; i < 2; i++)
        if (per_channel(g, mul->in[i]) && !per_channel(g, mul->in[1 - i])) {
            *scale = mul->in[i];
            *data = mul->in[1 - i];
            return true;
        }
    return false;
}

value_id conv_data(const struct module *m, const struct node *n)
{
    value_id data, scale;
    return conv_scale(m, n, &data, &scale) ? data : n->in[0];
}

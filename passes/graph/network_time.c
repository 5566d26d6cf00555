/* See network_time.h. */
#include "passes/graph/network_time.h"

#include "passes/module/analysis.h"

/* Measured on Zen 4: operations of floats in a nanosecond, those of bytes, bytes of the second operand from L2. */
enum { FLOPS_A_NS = 100, BYTE_OPS_A_NS = 400, BYTES_A_NS = 100 };

double elements_hint(const struct graph *g, value_id v)
{
    const struct type *t = value_type(g, v);
    double n = 1;
    for (int32_t d = 0; d < t->rank; d++)
        n *= (double)extent_hint(g->ctx->exprs, t->dims[d]);
    return n;
}

/* Each result sums over the second operand's elements that belong to its column: all of them, over its columns. */
static double contraction_ns(const struct graph *g, const struct node *n)
{
    const struct type *w = value_type(g, n->in[1]);
    double columns = 1, elements = elements_hint(g, n->in[1]);
    uint32_t n_summed;
    if (n->op == OP_CONV) {
        columns = w->rank ? (double)extent_hint(g->ctx->exprs, w->dims[0]) : 1;
    } else {
        const int64_t *summed = node_ints(n, "contract_b", &n_summed);
        columns = elements;
        for (uint32_t i = 0; i < n_summed; i++)
            columns /= (double)extent_hint(g->ctx->exprs, w->dims[summed[i]]);
    }
    if (!(columns >= 1))
        return 0;
    double operations = 2 * elements_hint(g, n->out[0]) * (elements / columns), bytes = elements * elem_size(w->elem);
    bool whole = elem_size(w->elem) == 1 && elem_class(w->elem) != 'F';
    double computed = operations / (whole ? BYTE_OPS_A_NS : FLOPS_A_NS), read = bytes / BYTES_A_NS;
    return computed > read ? computed : read;
}

double network_ns(const struct graph *g)
{
    double ns = 0;
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *n = graph_node(g, (node_id){i});
        if (!n->dead && (n->op == OP_CONV || n->op == OP_DOT))
            ns += contraction_ns(g, n);
    }
    return ns;
}

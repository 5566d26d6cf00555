/* Contractions of which a search asks what each adds to the outputs' error if it alone is rounded (struct
 * product_probe). Called by narrow-products, before it rounds anything.
 *
 *   y = dot(x, w)     ->     y = select(mcc.product == k, dot(x, w), dot(x, w))
 *
 * of which the first is the twin: narrow-products and narrow-constants treat it as they would treat the product of a
 * network in which it is chosen to be rounded, so what is measured is what will be computed.
 */
#include "passes/module/attention.h"

/* The input that says which product counts. */
static value_id chosen_product(const struct graph *g)
{
    const struct port *port = ROW_NAMED(g->inputs.data, g->inputs.n, PROBE_INPUT);
    return port ? port->value : (value_id){0};
}

static bool is_rounded(enum arithmetic how, bool narrows, bool stores)
{
    return (narrows && (how == ARITHMETIC_BF16 || how == ARITHMETIC_F16)) ||
           (stores && (how == ARITHMETIC_I8 || how == ARITHMETIC_I4));
}

static void twin_make(struct module *m, node_id id, value_id chosen, uint32_t number)
{
    const struct node n = *graph_node(m->g, id);
    struct builder b = builder_before(m->g, id);
    value_id twin = b_op(&b, n.op, n.in, n.n_in, n.attr, n.n_attr);
    value_id same = b_op(&b, n.op, n.in, n.n_in, n.attr, n.n_attr);
    value_id y = b_select(&b, b_binary_f64(&b, OP_EQ, chosen, (double)number), twin, same);
    if (!y.i)
        return;
    VEC_PUSH(m->asked.probe->arena, &m->asked.probe->twins, graph_value(m->g, twin)->def);
    graph_replace(m->g, id, y);
}

void probe_products(struct module *m)
{
    struct product_probe *probe = m->asked.probe;
    const uint32_t n_nodes = m->g->nodes.n;
    if (!probe)
        return;
    const value_id chosen = chosen_product(m->g);
    probe->twins.n = 0;
    for (uint32_t i = 1; i < n_nodes; i++) {
        const struct node *n = graph_node(m->g, (node_id){i});
        if (n->dead || (n->op != OP_DOT && n->op != OP_CONV) || is_attention_product(m, (node_id){i}))
            continue;
        const bool narrows = narrow_possible(m, (node_id){i}), stores = store_possible(m, (node_id){i});
        if (!narrows && !stores)
            continue;
        const struct source *src = source_get(m->ctx, n->src);
        struct probed_product *p = probe_product(probe, source_label(src), src->op ? src->op : "");
        p->narrows |= narrows;
        p->stores |= stores;
        if (chosen.i && p->wanted && is_rounded(probe->second, narrows, stores))
            twin_make(m, (node_id){i}, chosen, (uint32_t)(p - probe->products.data));
    }
}

/* hoist-slices: a slice that takes some rows of what a product makes row by row moves before the product.
 *
 *   slice(dot(f(x), w))     ->     dot(f(slice(x)), w)
 *
 * For language models whose logits are wanted for the last position, classifiers that read the first token, recurrent
 * networks of which one step is read. It changes 6 of the 554 networks of ../shared/models that compile. In and out: a
 * legal graph.
 *
 * From the last node of a region to the first: if all readers of a value are slices with the same bounds, and its
 * operator computes a row from the same rows of its operands (cut.h), it computes those rows alone, of slices of its
 * operands. Operators that are fused anyway (maps and views) gain nothing by it, and a slice between a product and its
 * epilogue would part them: so a slice moves only on its way to a product with rows to spare. Constants are never cut
 * for a product, since its panels may be shared. If a row needs other rows (scores of attention that a reshape has
 * folded, windows, scans), the slice stays.
 */
#include "passes/graph/cut.h"
#include "passes/module/module.h"

enum {
    LOOKED_AT = 512, /* operands of nodes that one slice reads, in search of a product */
    STEPS = 1 << 28 /* over lists of nodes, in all */
};

/* Can the node's result be cut so? */
static bool cuttable(struct graph *g, const struct node *n, const struct cut *c)
{
    struct cut own;
    if (n->dead || n->n_out != 1 || n->n_region || !n->n_in || value_is_const(g, n->out[0]))
        return false;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (!cut_operand(g, n, k, c, &own) ||
            (n->op == OP_DOT && value_is_const(g, n->in[k]) && cut_dims(g, n->in[k], &own)))
            return false;
    return true;
}

/* Does a cut of v, on its way up, come to a product? */
static bool pays(struct graph *g, value_id v, const struct cut *c, uint32_t *budget)
{
    const struct node *n = value_node(g, v);
    if (!n || !cut_dims(g, v, c) || n->n_in > *budget || !cuttable(g, n, c))
        return false;
    *budget -= n->n_in;
    for (uint32_t k = 0; n->op != OP_DOT && k < n->n_in; k++) {
        struct cut own;
        if (cut_operand(g, n, k, c, &own) && pays(g, n->in[k], &own, budget))
            return true;
    }
    return n->op == OP_DOT;
}

/* ---- the rewrite ------------------------------------------------------------------------------------------------- */

/* The slice that all who read v have in common; {0}: there is none. */
static node_id common_slice(const struct graph *g, value_id v, region_id region)
{
    node_id first = {0};
    for (const struct graph_user *u = graph_user(g, v, NULL); u; u = graph_user(g, v, u)) {
        const struct node *slice = u->node.i ? graph_node(g, u->node) : NULL;
        if (!slice || slice->op != OP_SLICE || slice->parent.i != region.i)
            return (node_id){0};
        struct cut a = cut_of_slice(slice), b = first.i ? cut_of_slice(graph_node(g, first)) : a;
        if (!cuts_equal(&a, &b))
            return (node_id){0};
        first = u->node;
    }
    return first;
}

/* Who comes first of those that read v: bounds may be known there only. */
static node_id first_reader(const struct graph *g, value_id v, uint32_t from)
{
    const struct region *region = graph_get_region(g, value_node(g, v)->parent);
    for (uint32_t i = from; i < region->nodes.n; i++) {
        const struct node *n = graph_node(g, region->nodes.data[i]);
        if (n->op == OP_SLICE && !n->dead && n->in[0].i == v.i)
            return region->nodes.data[i];
    }
    return (node_id){0};
}

/* What all slices of v give is `made` now. */
static void replace_readers(struct graph *g, value_id v, value_id made)
{
    for (const struct graph_user *next = graph_user(g, v, NULL); next;) {
        struct graph_user u = *next;
        graph_replace_uses(g, graph_node(g, u.node)->out[0], made);
        graph_erase(g, u.node);
        next = graph_user(g, v, &u);
    }
}

/* How many nodes were looked at. */
static int64_t hoist(struct graph *g, node_id id, uint32_t at)
{
    const struct node n = *graph_node(g, id);
    node_id slice = n.n_out == 1 ? common_slice(g, n.out[0], n.parent) : (node_id){0};
    if (!slice.i)
        return 0;
    struct cut c = cut_of_slice(graph_node(g, slice));
    if (!pays(g, n.out[0], &c, &(uint32_t){LOOKED_AT}))
        return 0;
    int64_t steps = 2 * (int64_t)graph_get_region(g, n.parent)->nodes.n;
    struct builder b = builder_in(g, n.parent);
    b.src = n.src;
    b.before = first_reader(g, n.out[0], at + 1);
    value_id made = b.before.i ? cut_through(&b, &n, &c, n.n_in, (value_id){0}) : (value_id){0};
    if (!made.i)
        return steps;
    if (!graph_value(g, made)->name)
        graph_value(g, made)->name = graph_value(g, n.out[0])->name;
    replace_readers(g, n.out[0], made);
    graph_erase(g, id);
    return steps;
}

bool hoist_slices(struct module *m)
{
    struct graph *g = m->g;
    int64_t steps = 0;
    for (uint32_t k = 1; k < g->regions.n; k++)
        for (uint32_t i = graph_get_region(g, (region_id){k})->nodes.n; i > 0 && steps < STEPS; i--)
            steps += hoist(g, graph_get_region(g, (region_id){k})->nodes.data[i - 1], i - 1);
    graph_sweep(g);
    return true;
}

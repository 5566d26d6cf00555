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
    LOOKED_AT = 512, /* operands of nodes behind one slice, in search of a product */
    STEPS = 1 << 28 /* over lists of nodes, in all */
};

struct reader {
    node_id slice;
    uint32_t next; /* of the same value: index + 1 */
};
struct hoister {
    struct graph *g;
    uint32_t *readers; /* by value below n_values: index + 1 of reader */
    uint32_t n_values;
    VEC(struct reader) all;
    int64_t steps;
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
    node_id def = graph_value(g, v)->def;
    const struct node *n = def.i ? graph_node(g, def) : NULL;
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

/* ---- the rewrite ---------------------------------------------------------------------------------------------------
 */

static void reader_add(struct hoister *r, node_id slice)
{
    value_id v = graph_node(r->g, slice)->in[0];
    if (v.i >= r->n_values)
        return;
    struct reader reader = {slice, r->readers[v.i]};
    VEC_PUSH(&r->g->arena, &r->all, reader);
    r->readers[v.i] = r->all.n;
}

/* The slice that all who read v have in common; {0}: there is none. */
static node_id common_slice(const struct hoister *r, value_id v, region_id region)
{
    node_id first = {0};
    uint32_t n = 0;
    for (uint32_t i = r->readers[v.i]; i; i = r->all.data[i - 1].next) {
        node_id id = r->all.data[i - 1].slice;
        const struct node *slice = graph_node(r->g, id);
        if (slice->dead || slice->in[0].i != v.i)
            continue;
        struct cut a = cut_of_slice(slice), b = first.i ? cut_of_slice(graph_node(r->g, first)) : a;
        if (slice->parent.i != region.i || !cuts_equal(&a, &b))
            return (node_id){0};
        first = id;
        n++;
    }
    return n == graph_value(r->g, v)->n_uses ? first : (node_id){0};
}

/* Who comes first of those that read v: bounds may be known there only. */
static node_id first_reader(const struct hoister *r, value_id v, uint32_t from)
{
    const struct region *region = graph_get_region(r->g, graph_node(r->g, graph_value(r->g, v)->def)->parent);
    for (uint32_t i = from; i < region->nodes.n; i++) {
        const struct node *n = graph_node(r->g, region->nodes.data[i]);
        if (n->op == OP_SLICE && !n->dead && n->in[0].i == v.i)
            return region->nodes.data[i];
    }
    return (node_id){0};
}

/* The node again, of cut operands. */
static value_id hoisted(struct hoister *r, struct builder *b, const struct node *n, const struct cut *c)
{
    value_id *in = NEW_ARRAY(&r->g->arena, value_id, n->n_in + 1);
    for (uint32_t k = 0; k < n->n_in; k++) {
        struct cut own;
        cut_operand(r->g, n, k, c, &own);
        in[k] = cut_value(b, n->in[k], &own);
        if (in[k].i && in[k].i != n->in[k].i && value_op(r->g, in[k]) == OP_SLICE)
            reader_add(r, graph_value(r->g, in[k])->def);
    }
    return cut_node(b, n, in, c);
}

/* What all slices of v give is `made` now. */
static void replace_readers(struct hoister *r, value_id v, value_id made)
{
    for (uint32_t i = r->readers[v.i]; i; i = r->all.data[i - 1].next) {
        node_id id = r->all.data[i - 1].slice;
        const struct node *slice = graph_node(r->g, id);
        if (slice->dead || slice->in[0].i != v.i)
            continue;
        graph_replace_uses(r->g, slice->out[0], made);
        graph_erase(r->g, id);
    }
}

static void hoist(struct hoister *r, node_id id, uint32_t at)
{
    struct graph *g = r->g;
    const struct node n = *graph_node(g, id);
    uint32_t budget = LOOKED_AT;
    if (n.n_out != 1 || n.out[0].i >= r->n_values || !r->readers[n.out[0].i])
        return;
    node_id slice = common_slice(r, n.out[0], n.parent);
    if (!slice.i)
        return;
    struct cut c = cut_of_slice(graph_node(g, slice));
    if (!pays(g, n.out[0], &c, &budget))
        return;
    r->steps += 2 * (int64_t)graph_get_region(g, n.parent)->nodes.n;
    struct builder b = {.g = g, .region = n.parent, .src = n.src, .before = first_reader(r, n.out[0], at + 1)};
    value_id made = b.before.i ? hoisted(r, &b, &n, &c) : (value_id){0};
    if (!made.i)
        return;
    if (!graph_value(g, made)->name)
        graph_value(g, made)->name = graph_value(g, n.out[0])->name;
    replace_readers(r, n.out[0], made);
    graph_erase(g, id);
}

bool hoist_slices(struct module *m)
{
    struct graph *g = m->g;
    struct hoister r = {.g = g, .n_values = g->values.n};
    r.readers = NEW_ARRAY(&g->arena, uint32_t, r.n_values);
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *n = graph_node(g, (node_id){i});
        if (!n->dead && n->op == OP_SLICE)
            reader_add(&r, (node_id){i});
    }
    for (uint32_t k = 1; k < g->regions.n && r.all.n; k++)
        for (uint32_t i = graph_get_region(g, (region_id){k})->nodes.n; i > 0 && r.steps < STEPS; i--)
            hoist(&r, graph_get_region(g, (region_id){k})->nodes.data[i - 1], i - 1);
    graph_sweep(g);
    return true;
}

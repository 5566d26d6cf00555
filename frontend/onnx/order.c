/* Topological order of the nodes of one graph. Files may list nodes in any order; a node also depends on what its
 * subgraphs capture. Depth-first from the file's order, with an explicit stack, so a sorted file keeps its order.
 */
#include "frontend/onnx/import.h"

struct edges {
    struct importer *im;
    VEC(uint32_t) to;        /* producers, grouped by consumer */
    uint32_t *first;         /* [n + 1]: where the group of each consumer begins */
    bool sorted;             /* every producer so far precedes its consumer */
};

static void edge_add(struct edges *e, uint32_t consumer, const char *name)
{
    struct names *names = &e->im->names;
    if (!*name)
        return;
    const struct name *n = name_get(names, name_intern(names, name));
    const struct binding *b = n->top && !n->hidden ? &names->bindings.data[n->top] : NULL;
    if (!b || !b->producer || b->scope != names->scope)
        return;
    VEC_PUSH(&e->im->scratch, &e->to, b->producer - 1);
    e->sorted = e->sorted && b->producer - 1 < consumer;
}

/* ---- what subgraphs capture ------------------------------------------------------------------------------- */

static void name_hide(struct importer *im, const char *name, int by)
{
    if (name && *name)
        name_get(&im->names, name_intern(&im->names, name))->hidden += (uint32_t)by;
}

/* Names that the graph defines itself mean nothing of ours while it is looked at. */
static void graph_hide(struct importer *im, const Onnx__GraphProto *g, int by)
{
    for (size_t i = 0; i < g->n_input; i++)
        name_hide(im, g->input[i]->name, by);
    for (size_t i = 0; i < g->n_initializer; i++)
        name_hide(im, g->initializer[i]->name, by);
    for (size_t i = 0; i < g->n_sparse_initializer; i++)
        if (g->sparse_initializer[i]->values)
            name_hide(im, g->sparse_initializer[i]->values->name, by);
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++)
            name_hide(im, g->node[i]->output[k], by);
}

/* Nesting is bounded by the scanner's message depth. */
static void edges_collect(struct edges *e, uint32_t consumer, const Onnx__NodeProto *node)
{
    for (size_t i = 0; i < node->n_input; i++)
        edge_add(e, consumer, node->input[i]);
    for (size_t a = 0; a < node->n_attribute; a++) {
        const Onnx__GraphProto *g = node->attribute[a]->g;
        if (!g)
            continue;
        graph_hide(e->im, g, 1);
        for (size_t i = 0; i < g->n_node; i++)
            edges_collect(e, consumer, g->node[i]);
        for (size_t i = 0; i < g->n_output; i++)
            if (g->output[i]->name)
                edge_add(e, consumer, g->output[i]->name);
        graph_hide(e->im, g, -1);
    }
}

/* ---- sorting ------------------------------------------------------------------------------------------------ */

enum { WHITE, GREY, BLACK };

/* Appends root after everything it needs. next[i]: the first edge of i not yet followed. */
static bool visit(struct edges *e, Onnx__NodeProto *const *nodes, uint32_t root, uint8_t *color, uint32_t *next,
                  uint32_t *stack, uint32_t *order, uint32_t *n_order)
{
    uint32_t depth = 0;
    stack[depth++] = root;
    color[root] = GREY;
    while (depth) {
        uint32_t at = stack[depth - 1];
        if (next[at] == e->first[at + 1]) {
            color[at] = BLACK;
            order[(*n_order)++] = at;
            depth--;
            continue;
        }
        uint32_t to = e->to.data[next[at]++];
        if (color[to] == GREY)
            return error_model(e->im->ctx, node_source(e->im, nodes[to], 0),
                               "the node needs its own output '%s' (a cycle)",
                               nodes[to]->n_output ? nodes[to]->output[0] : "");
        if (color[to] == WHITE) {
            color[to] = GREY;
            stack[depth++] = to;
        }
    }
    return true;
}

uint32_t *nodes_order(struct importer *im, Onnx__NodeProto *const *nodes, uint32_t n)
{
    struct edges e = {.im = im, .first = NEW_ARRAY(&im->scratch, uint32_t, (size_t)n + 1), .sorted = true};
    for (uint32_t i = 0; i < n; i++) {
        edges_collect(&e, i, nodes[i]);
        e.first[i + 1] = e.to.n;
    }
    uint32_t *order = NEW_ARRAY(&im->scratch, uint32_t, n), n_order = 0;
    if (e.sorted) {
        for (uint32_t i = 0; i < n; i++)
            order[i] = i;
        return order;
    }
    uint8_t *color = NEW_ARRAY(&im->scratch, uint8_t, n);
    uint32_t *stack = NEW_ARRAY(&im->scratch, uint32_t, n);
    uint32_t *next = arena_copy(&im->scratch, e.first, n * sizeof *next);
    for (uint32_t i = 0; i < n; i++)
        if (color[i] == WHITE && !visit(&e, nodes, i, color, next, stack, order, &n_order))
            return NULL;
    return order;
}

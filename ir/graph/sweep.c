/* Dead code: erases every node that neither a result of the top region nor an assert needs.
 *
 * A node is needed through an operand, through a result of a region of a needed node, or through a symbol:
 * dims and attributes may hold a SYM_VALUE symbol whose value nothing else reads (the count of a nonzero),
 * and the node that computes it must stay. Regions that a pass began and gave up, owned by no node and the body
 * of no function, go with all that is in them. Marking runs over a worklist, not by recursion.
 */
#include "ir/graph/graph.h"

struct marker {
    struct graph *g;
    struct arena arena;
    bool *live;                  /* by node */
    bool *seen_expr;             /* by expression id below n_seen */
    uint32_t n_seen;
    VEC(node_id) nodes;          /* marked, still to be looked through */
    VEC(expr_id) exprs;
};

static void mark_node(struct marker *m, node_id n)
{
    if (!n.i || m->live[n.i] || graph_node(m->g, n)->dead)
        return;
    m->live[n.i] = true;
    VEC_PUSH(&m->arena, &m->nodes, n);
}

static void mark_value(struct marker *m, value_id v)
{
    if (v.i)
        mark_node(m, graph_value(m->g, v)->def);
}

static void mark_expr(struct marker *m, expr_id e)
{
    if (!e.i || e.i >= m->n_seen || m->seen_expr[e.i])
        return;
    m->seen_expr[e.i] = true;
    VEC_PUSH(&m->arena, &m->exprs, e);
}

static void mark_exprs(struct marker *m, const expr_id *exprs, uint32_t n)
{
    for (uint32_t i = 0; exprs && i < n; i++)
        mark_expr(m, exprs[i]);
}

static void mark_type(struct marker *m, const struct type *t)
{
    for (; t; t = t->inner)
        if (t->kind == TYPE_TENSOR && t->rank > 0)
            mark_exprs(m, t->dims, (uint32_t)t->rank);
}

/* Marks what binds the symbols of the expressions met so far. */
static void drain_exprs(struct marker *m)
{
    struct exprs *x = m->g->ctx->exprs;
    while (m->exprs.n) {
        expr_id e = m->exprs.data[--m->exprs.n];
        sym_id sym = ex_as_sym(x, e);
        if (sym.i) {
            const struct symbol *s = sym_get(x, sym);
            if (s->kind == SYM_VALUE && s->value && s->value < m->g->values.n)
                mark_value(m, (value_id){s->value});
            mark_expr(m, s->bound);
        }
        for (uint32_t i = 0; i < ex_n_args(x, e); i++)
            mark_expr(m, ex_arg(x, e, i));
    }
}

static void mark_region(struct marker *m, region_id r)
{
    const struct region *region = graph_get_region(m->g, r);
    for (uint32_t i = 0; i < region->params.n; i++)
        mark_type(m, value_type(m->g, region->params.data[i]));
    for (uint32_t i = 0; i < region->results.n; i++)
        mark_value(m, region->results.data[i]);
    for (uint32_t i = 0; i < region->nodes.n; i++)
        if (graph_node(m->g, region->nodes.data[i])->op == OP_ASSERT)
            mark_node(m, region->nodes.data[i]);
}

static void mark_needs(struct marker *m, node_id n)
{
    const struct node *node = graph_node(m->g, n);
    for (uint32_t i = 0; i < node->n_in; i++)
        mark_value(m, node->in[i]);
    for (uint32_t i = 0; i < node->n_attr; i++) {
        const struct attr *a = &node->attr[i];
        if (a->kind == ATTR_EXPR)
            mark_expr(m, a->u.e);
        else if (a->kind == ATTR_EXPRS)
            mark_exprs(m, a->u.exprs, a->n);
    }
    for (uint32_t i = 0; i < node->n_out; i++) {
        if (!node->out[i].i)
            continue;
        const struct value *v = graph_value(m->g, node->out[i]);
        mark_type(m, &v->type);
        mark_exprs(m, v->elems, v->n_elems);
    }
    for (uint32_t i = 0; i < node->n_region; i++)
        mark_region(m, node->region[i]);
    mark_node(m, graph_get_region(m->g, node->parent)->owner);
    drain_exprs(m);
}

static bool is_root(const struct graph *g, region_id r)
{
    bool root = r.i == 1;
    for (uint32_t i = 0; i < g->functions.n; i++)
        root |= g->functions.data[i].body.i == r.i;
    return root;
}

static void drop_results(struct graph *g, region_id r)
{
    struct region *region = graph_get_region(g, r);
    for (uint32_t i = 0; i < region->results.n; i++)
        if (region->results.data[i].i)
            graph_value(g, region->results.data[i])->n_uses--;
    region->results.n = 0;
}

/* Users come after definitions, so erasing backwards finds every result unused. */
static void erase_unmarked(struct marker *m)
{
    struct graph *g = m->g;
    for (uint32_t n = g->nodes.n; n-- > 1;) {
        struct node *node = &g->nodes.data[n];
        if (node->dead || m->live[n])
            continue;
        node->dead = true;
        for (uint32_t i = 0; i < node->n_in; i++)
            if (node->in[i].i)
                graph_value(g, node->in[i])->n_uses--;
        for (uint32_t i = 0; i < node->n_region; i++)
            drop_results(g, node->region[i]);
    }
    for (uint32_t r = 1; r < g->regions.n; r++) {
        struct region *region = &g->regions.data[r];
        uint32_t kept = 0;
        if (!region->owner.i && !is_root(g, (region_id){r}))
            drop_results(g, (region_id){r});
        for (uint32_t i = 0; i < region->nodes.n; i++)
            if (!graph_node(g, region->nodes.data[i])->dead)
                region->nodes.data[kept++] = region->nodes.data[i];
        region->nodes.n = kept;
    }
}

void graph_sweep(struct graph *g)
{
    struct marker m = {.g = g, .n_seen = ex_count(g->ctx->exprs)};
    arena_init(&m.arena, g->ctx);
    m.live = NEW_ARRAY(&m.arena, bool, g->nodes.n);
    m.seen_expr = NEW_ARRAY(&m.arena, bool, m.n_seen);
    for (uint32_t r = 1; r < g->regions.n; r++)
        if (is_root(g, (region_id){r}))
            mark_region(&m, (region_id){r});
    drain_exprs(&m);
    while (m.nodes.n)
        mark_needs(&m, m.nodes.data[--m.nodes.n]);
    erase_unmarked(&m);
    if (g->legal && graph_pool(g, &m.arena, m.live))
        erase_unmarked(&m);
    arena_release(&m.arena);
}

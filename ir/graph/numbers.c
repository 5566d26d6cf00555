/* The numbers that values, nodes, regions and sources have in the text of a graph: those of the order in which the text
 * comes to them. Beside them the symbols that the text uses. */
#include "ir/graph/graph.h"

struct numbering {
    const struct graph *g;
    struct exprs *x;
    struct arena *arena;
    uint32_t *value, *node, *region, *src; /* 0: not met yet */
    bool *symbol, *expr_seen;
    uint32_t n_values, n_nodes, n_regions, n_srcs, n_exprs, n_syms;
    VEC(src_id) srcs; /* by number - 1 */
    VEC(expr_id) pending;
};

static void meet_expr(struct numbering *p, expr_id e)
{
    struct arena *a = p->arena;
    if (e.i)
        VEC_PUSH(a, &p->pending, e);
    while (p->pending.n) {
        e = p->pending.data[--p->pending.n];
        if (e.i >= p->n_exprs || p->expr_seen[e.i])
            continue;
        p->expr_seen[e.i] = true;
        sym_id s = ex_as_sym(p->x, e);
        if (s.i && s.i <= p->n_syms) {
            p->symbol[s.i] = true;
            if (sym_get(p->x, s)->bound.i)
                VEC_PUSH(a, &p->pending, sym_get(p->x, s)->bound);
        }
        for (uint32_t i = 0; i < ex_n_args(p->x, e); i++)
            VEC_PUSH(a, &p->pending, ex_arg(p->x, e, i));
    }
}

static void meet_type(struct numbering *p, const struct type *t)
{
    for (; t; t = t->inner)
        for (int32_t i = 0; t->kind == TYPE_TENSOR && i < t->rank; i++)
            meet_expr(p, t->dims[i]);
}

static void meet_value(struct numbering *p, value_id v)
{
    if (!v.i || p->value[v.i])
        return;
    const struct value *value = graph_value(p->g, v);
    p->value[v.i] = ++p->n_values;
    meet_type(p, &value->type);
    for (uint32_t i = 0; value->elems && i < value->n_elems; i++)
        meet_expr(p, value->elems[i]);
}

static void meet_attr(struct numbering *p, const struct attr *a)
{
    if (a->kind == ATTR_EXPR)
        meet_expr(p, a->u.e);
    for (uint32_t i = 0; a->kind == ATTR_EXPRS && i < a->n; i++)
        meet_expr(p, a->u.exprs[i]);
    if (a->kind == ATTR_TYPE)
        meet_type(p, a->u.type);
}

static void meet_src(struct numbering *p, src_id src)
{
    if (!src.i || p->src[src.i])
        return;
    VEC_PUSH(p->arena, &p->srcs, src);
    p->src[src.i] = ++p->n_srcs;
}

/* Recursion over regions is bounded by graph_region. */
static void meet_region(struct numbering *p, region_id r)
{
    const struct region *region = graph_get_region(p->g, r);
    p->region[r.i] = ++p->n_regions;
    for (uint32_t i = 0; i < region->params.n; i++)
        meet_value(p, region->params.data[i]);
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        const struct node *node = graph_node(p->g, region->nodes.data[i]);
        p->node[region->nodes.data[i].i] = ++p->n_nodes;
        for (uint32_t k = 0; k < node->n_out; k++)
            meet_value(p, node->out[k]);
        for (uint32_t k = 0; k < node->n_attr; k++)
            meet_attr(p, &node->attr[k]);
        meet_src(p, node->src);
        for (uint32_t k = 0; k < node->n_region; k++)
            meet_region(p, node->region[k]);
    }
}

static void meet_checks(struct numbering *p)
{
    for (uint32_t i = 0; i < p->g->size_checks.n; i++) {
        meet_src(p, p->g->size_checks.data[i].src);
        p->symbol[p->g->size_checks.data[i].sym.i] = true;
        p->symbol[p->g->size_checks.data[i].same.i] = true;
    }
}

static void meet_graph(struct numbering *p)
{
    const struct graph *g = p->g;
    for (uint32_t i = 0; i < g->functions.n; i++)
        if (g->functions.data[i].body.i)
            meet_region(p, g->functions.data[i].body);
    meet_region(p, (region_id){1});
    meet_checks(p);
    for (uint32_t i = 0; i < g->inputs.n; i++)
        meet_type(p, g->inputs.data[i].declared);
    for (uint32_t i = 0; i < g->outputs.n; i++)
        meet_type(p, g->outputs.data[i].declared);
}

struct graph_numbers graph_numbers(const struct graph *g, struct arena *a)
{
    struct exprs *x = g->ctx->exprs;
    struct numbering p = {.g = g, .x = x, .arena = a, .n_exprs = ex_count(x), .n_syms = sym_count(x)};
    p.value = NEW_ARRAY(a, uint32_t, g->values.n);
    p.node = NEW_ARRAY(a, uint32_t, g->nodes.n);
    p.region = NEW_ARRAY(a, uint32_t, g->regions.n);
    p.src = NEW_ARRAY(a, uint32_t, g->ctx->sources.n);
    p.symbol = NEW_ARRAY(a, bool, p.n_syms + 1);
    p.expr_seen = NEW_ARRAY(a, bool, p.n_exprs);
    meet_graph(&p);
    return (struct graph_numbers){p.value, p.node, p.region, p.src, p.symbol, p.srcs.data, p.n_srcs};
}

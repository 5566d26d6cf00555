/* The tensor graph as graphviz text: a box per node, a cluster per region, an edge per operand. */

#include "ir/graph/graph.h"

/* Colours by shape class, light enough for black text. */
static const char *const fills[] = {
    [SHAPE_CONST] = "#eeeeee",  [SHAPE_MAP] = "#cfe8fc",     [SHAPE_POINT] = "#cfe8fc",   [SHAPE_INDEX] = "#cfe8fc",
    [SHAPE_VIEW] = "#fdf3c7",   [SHAPE_REDUCE] = "#d7f0d0",  [SHAPE_SCATTER] = "#f6d5d5", [SHAPE_SCAN] = "#d5efe9",
    [SHAPE_OPAQUE] = "#e6dcf5", [SHAPE_CONTROL] = "#f9dfc1",
};

struct dot {
    const struct graph *g;
    struct strbuf *out;
    struct strbuf arrows; /* put after all clusters: an arrow written inside one would draw its ends into it */
};

/* Inside a quoted label: quotes and backslashes escaped, hostile bytes as \\xNN. */
static void put_label(struct dot *d, const char *s)
{
    struct strbuf quoted = strbuf_of(d->out->arena);
    strbuf_quoted(&quoted, s);
    strbuf_append(d->out, quoted.data + 1, quoted.n - 2);
}

static void put_shape(struct dot *d, value_id v)
{
    struct dot arrows = {.g = d->g, .out = &d->arrows};
    const struct type *t = value_type(d->g, v);
    if (t->kind != TYPE_TENSOR) {
        strbuf_printf(&d->arrows, t->kind == TYPE_UNKNOWN ? "" : "handle");
        return;
    }
    struct strbuf dims = strbuf_of(d->out->arena);
    strbuf_printf(&dims, "%s[", elem_name(t->elem));
    for (int32_t i = 0; i < t->rank; i++) {
        strbuf_printf(&dims, "%s", i ? ", " : "");
        ex_print(d->g->ctx->exprs, t->dims[i], &dims);
    }
    strbuf_printf(&dims, t->rank < 0 ? "*]" : "]");
    put_label(&arrows, dims.data);
}

static void put_edges(struct dot *d, node_id id, const struct node *node)
{
    for (uint32_t i = 0; i < node->n_in; i++) {
        if (!node->in[i].i)
            continue;
        const struct value *v = graph_value(d->g, node->in[i]);
        strbuf_printf(&d->arrows, v->def.i ? "n%u -> n%u [label=\"" : "v%u -> n%u [label=\"",
                      v->def.i ? v->def.i : node->in[i].i, id.i);
        put_shape(d, node->in[i]);
        strbuf_printf(&d->arrows, "\"];\n");
    }
}

static void put_region(struct dot *d, region_id r);

static void put_node(struct dot *d, node_id id)
{
    const struct node *node = graph_node(d->g, id);
    const struct source *src = source_get(d->g->ctx, node->src);
    strbuf_printf(d->out, "n%u [label=\"", id.i);
    put_label(d, node->op == OP_IMPORTED ? node->op_type : op_name(node->op));
    if (node->src.i) {
        strbuf_printf(d->out, "\\n");
        put_label(d, *src->name ? src->name : src->output);
    }
    strbuf_printf(d->out, "\", fillcolor=\"%s\"];\n", fills[op_shape(node->op)]);
    put_edges(d, id, node);
    for (uint32_t i = 0; i < node->n_region; i++) {
        strbuf_printf(d->out, "subgraph cluster_%u {\nlabel=\"%s of n%u\";\n", node->region[i].i, op_name(node->op),
                      id.i);
        put_region(d, node->region[i]);
        strbuf_printf(d->out, "}\n");
    }
}

/* Recursion is bounded by graph_region. */
static void put_region(struct dot *d, region_id r)
{
    const struct region *region = graph_get_region(d->g, r);
    for (uint32_t i = 0; i < region->params.n; i++) {
        value_id v = region->params.data[i];
        strbuf_printf(d->out, "v%u [shape=oval, label=\"", v.i);
        put_label(d, graph_value(d->g, v)->name ? graph_value(d->g, v)->name : "parameter");
        strbuf_printf(d->out, "\"];\n");
    }
    for (uint32_t i = 0; i < region->nodes.n; i++)
        put_node(d, region->nodes.data[i]);
    for (uint32_t i = 0; i < region->results.n; i++) {
        value_id v = region->results.data[i];
        if (!v.i)
            continue;
        uint32_t def = graph_value(d->g, v)->def.i;
        strbuf_printf(d->out, "r%u_%u [shape=oval, label=\"", r.i, i);
        put_label(d, r.i == 1 && i < d->g->outputs.n ? d->g->outputs.data[i].name : "result");
        strbuf_printf(d->out, "\"];\n");
        strbuf_printf(&d->arrows, def ? "n%u -> r%u_%u [label=\"" : "v%u -> r%u_%u [label=\"", def ? def : v.i, r.i, i);
        put_shape(d, v);
        strbuf_printf(&d->arrows, "\"];\n");
    }
}

void graph_dot(const struct graph *g, struct strbuf *out)
{
    struct dot d = {.g = g, .out = out};
    strbuf_init(&d.arrows, out->arena);
    strbuf_printf(out, "digraph \"");
    put_label(&d, g->name);
    strbuf_printf(out, "\" {\nnode [shape=box, style=filled, fillcolor=white, fontname=sans];\n"
                       "edge [fontname=sans, fontsize=9];\n");
    put_region(&d, (region_id){1});
    strbuf_append(out, d.arrows.data ? d.arrows.data : "", d.arrows.n);
    strbuf_printf(out, "}\n");
}

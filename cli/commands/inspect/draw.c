/* A network as Graphviz text: the nodes of its file, the values between them, and its kernels as boxes around the nodes
 * that they compute; a box is the redder the more of a run's time its kernels take.
 *
 * Kernels go by their leading node, as in the tables of mcc bench and mcc inspect; a node that several kernels compute
 * is in the box of the first. What computes only constants is left out, since nothing is left of it in the compiled
 * network. A node without a box has no code of its own: it is another view of the same memory, was folded into its
 * neighbours, or nothing needs it. Bodies of If, Loop, Scan and of model functions are boxes with rounded corners.
 */
#include "cli/commands/inspect/inspect.h"
#include "cli/library/compile/view.h"

enum { LABEL_MAX = 100 };

struct draw {
    struct network_view view;
    const struct graph *g; /* the imported graph: view.g */
    const mcc_node *row;
    const double *ns; /* by source, below 0: not measured; NULL: no profile */
    double most, total; /* of ns */
    const uint32_t *lead; /* those of the view */
    const bool *hidden;
    uint32_t *next, *first, *last; /* nodes of one region in one box: next by node, ends by leading source */
    struct strbuf *out;
    struct strbuf arrows; /* after all boxes: an arrow written inside one would draw its ends into it */
};

/* Inside a quoted label, hostile bytes escaped, long names cut. */
static void put_text(struct strbuf *out, const char *s)
{
    struct strbuf cut = strbuf_of(out->arena), quoted = strbuf_of(out->arena);
    strbuf_escaped(&cut, s, LABEL_MAX);
    strbuf_quoted(&quoted, cut.data ? cut.data : "");
    strbuf_append(out, quoted.data + 1, quoted.n - 2);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* The arrow from what defines v to the node or result `to`; nothing for constants. */
static void put_arrow(struct draw *d, value_id v, const char *to)
{
    const struct value *value = v.i ? graph_value(d->g, v) : NULL;
    if (!value || view_is_constant(&d->view, v))
        return;
    struct strbuf type = strbuf_of(d->out->arena);
    view_type(&d->view, v, &type);
    strbuf_printf(&d->arrows, value->def.i ? "n%u -> %s [label=\"" : "v%u -> %s [label=\"",
                  value->def.i ? value->def.i : v.i, to);
    put_text(&d->arrows, type.data ? type.data : "");
    strbuf_printf(&d->arrows, "\"];\n");
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* From white to red with the root of the share of the slowest, so that middling ones are told apart. */
static void put_fill(struct draw *d, uint32_t lead)
{
    double x = d->ns && d->most > 0 && d->ns[lead] > 0 ? d->ns[lead] / d->most : 0, root = x;
    for (int i = 0; i < 20 && x > 0; i++) /* Newton's square root: no libm */
        root = 0.5 * (root + x / root);
    int rest = x > 0 ? 255 - (int)(195 * root) : 255;
    strbuf_printf(d->out, d->ns ? "fillcolor=\"#ff%02x%02x\"" : "fillcolor=\"#eef3f8\"", (unsigned)rest,
                  (unsigned)rest);
}

static void put_kernel_label(struct draw *d, uint32_t lead)
{
    const mcc_node *row = &d->row[lead];
    put_text(d->out, row->name);
    if (row->kernels > 1)
        strbuf_printf(d->out, ": %llu kernels", (unsigned long long)row->kernels);
    strbuf_printf(d->out, "\\n");
    if (d->ns && d->ns[lead] >= 0)
        strbuf_printf(d->out, "%.2f us, %.1f%%", d->ns[lead] / 1e3, d->total > 0 ? 100 * d->ns[lead] / d->total : 0);
    else if (d->ns)
        strbuf_printf(d->out, "not measured");
    else
        strbuf_printf(d->out, "%llu flops, %llu bytes", (unsigned long long)row->flops, (unsigned long long)row->bytes);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static void put_node(struct draw *d, uint32_t id)
{
    const struct node *node = graph_node(d->g, (node_id){id});
    const struct source *src = source_get(d->g->ctx, node->src);
    strbuf_printf(d->out, "n%u [label=\"", id);
    put_text(d->out, node->op == OP_IMPORTED ? node->op_type : op_name(node->op));
    if (node->src.i) {
        strbuf_printf(d->out, "\\n");
        put_text(d->out, src->name && *src->name ? src->name : src->output ? src->output : "");
    }
    strbuf_printf(d->out, d->lead[node->src.i] || node->n_region
                              ? "\"];\n"
                              : "\", style=\"filled,dashed\", fontcolor=\"#666666\"];\n");
}

/* The nodes of a region, those of one box together: a list for each leading source, in the order of the region. */
static void put_boxes(struct draw *d, region_id r)
{
    const struct region *region = graph_get_region(d->g, r);
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        uint32_t id = region->nodes.data[i].i, lead = d->lead[graph_node(d->g, (node_id){id})->src.i];
        if (d->hidden[id])
            continue;
        d->next[id] = 0;
        if (!d->first[lead])
            d->first[lead] = id;
        else
            d->next[d->last[lead]] = id;
        d->last[lead] = id;
    }
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        uint32_t lead = d->lead[graph_node(d->g, region->nodes.data[i])->src.i], id = d->first[lead];
        if (!id)
            continue;
        d->first[lead] = 0;
        if (lead) {
            strbuf_printf(d->out, "subgraph cluster_k%u_%u {\nstyle=filled; color=\"#888888\"; ", lead, r.i);
            put_fill(d, lead);
            strbuf_printf(d->out, "; label=\"");
            put_kernel_label(d, lead);
            strbuf_printf(d->out, "\";\n");
        }
        for (; id; id = d->next[id])
            put_node(d, id);
        strbuf_printf(d->out, lead ? "}\n" : "");
    }
}

static void put_region(struct draw *d, region_id r);

static void put_body(struct draw *d, region_id r, const char *what, const char *of)
{
    strbuf_printf(d->out, "subgraph cluster_r%u {\nstyle=rounded; label=\"", r.i);
    put_text(d->out, what);
    strbuf_printf(d->out, " ");
    put_text(d->out, of);
    strbuf_printf(d->out, "\";\n");
    put_region(d, r);
    strbuf_printf(d->out, "}\n");
}

/* Recursion is bounded by graph_region. */
static void put_region(struct draw *d, region_id r)
{
    const struct region *region = graph_get_region(d->g, r);
    for (uint32_t i = 0; i < region->params.n; i++) {
        value_id v = region->params.data[i];
        strbuf_printf(d->out, "v%u [shape=oval, label=\"", v.i);
        put_text(d->out, graph_value(d->g, v)->name ? graph_value(d->g, v)->name : "parameter");
        strbuf_printf(d->out, "\"];\n");
    }
    put_boxes(d, r);
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        const struct node *node = graph_node(d->g, region->nodes.data[i]);
        const struct source *src = source_get(d->g->ctx, node->src);
        const char *to = arena_printf(d->out->arena, "n%u", region->nodes.data[i].i);
        for (uint32_t k = 0; k < node->n_in && !d->hidden[region->nodes.data[i].i]; k++)
            put_arrow(d, node->in[k], to);
        for (uint32_t k = 0; k < node->n_region; k++)
            put_body(d, node->region[k],
                     strcmp(node->op_type ? node->op_type : "", "If") != 0 ? "body of"
                     : k ? "else of"
                         : "then of",
                     src->name && *src->name ? src->name
                     : src->output           ? src->output
                                             : "");
    }
    for (uint32_t i = 0; i < region->results.n; i++) {
        value_id v = region->results.data[i];
        if (!v.i)
            continue;
        const char *to = arena_printf(d->out->arena, "r%u_%u", r.i, i);
        strbuf_printf(d->out, "%s [shape=oval, label=\"", to);
        put_text(d->out, r.i == 1 && i < d->g->outputs.n ? d->g->outputs.data[i].name : "result");
        strbuf_printf(d->out, "\"];\n");
        put_arrow(d, v, to);
    }
}

static void put_caption(struct draw *d)
{
    strbuf_printf(d->out, "labelloc=t; label=\"");
    put_text(d->out, d->g->name ? d->g->name : "");
    strbuf_printf(d->out, ": boxes are kernels");
    if (d->ns)
        strbuf_printf(d->out, ", redder with their time; %.2f us in a run", d->total / 1e3);
    if (d->view.n_hidden)
        strbuf_printf(d->out, "\\n%u node%s that compute%s constants not drawn", d->view.n_hidden,
                      d->view.n_hidden > 1 ? "s" : "", d->view.n_hidden > 1 ? "" : "s");
    strbuf_printf(d->out, "\";\n");
}

void draw_network(const struct compilation *c, const mcc_node *row, uint32_t n_rows, const double *ns,
                  struct strbuf *out)
{
    const struct graph *g = c->imported;
    struct arena *arena = out->arena;
    struct draw d = {
        .g = g,
        .row = row,
        .ns = ns,
        .out = out,
        .next = NEW_ARRAY(arena, uint32_t, g->nodes.n + 1),
        .first = NEW_ARRAY(arena, uint32_t, n_rows + 1),
        .last = NEW_ARRAY(arena, uint32_t, n_rows + 1),
    };
    view_make(&d.view, c, row, n_rows, arena);
    d.lead = d.view.lead;
    d.hidden = d.view.hidden;
    strbuf_init(&d.arrows, arena);
    for (uint32_t i = 1; ns && i < n_rows; i++) {
        d.total += ns[i] > 0 ? ns[i] : 0;
        d.most = ns[i] > d.most ? ns[i] : d.most;
    }
    strbuf_printf(out, "digraph \"");
    put_text(out, g->name ? g->name : "");
    strbuf_printf(
        out,
        "\" {\nnode [shape=box, style=filled, fillcolor=white, fontname=sans];\n"
        "edge [fontname=sans, fontsize=9];\ngraph [fontname=sans, fontsize=10, labeljust=l, nslimit=2, nslimit1=2, mclimit=0.3];\n");
    put_region(&d, (region_id){1});
    for (uint32_t i = 0; i < g->functions.n; i++)
        put_body(&d, g->functions.data[i].body, "function", g->functions.data[i].name);
    strbuf_append(out, d.arrows.data ? d.arrows.data : "", d.arrows.n);
    put_caption(&d);
    strbuf_printf(out, "}\n");
}

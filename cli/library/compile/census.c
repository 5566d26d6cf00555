/* Where every node of the file went (--stats): the kernels that compute it, or why nothing is left of it.
 *
 * Nodes of the legal graph remember the file's node that they come from. A node with code is in the kernels that
 * compute one of these; what has no code was computed at compile time, is only another view of memory that is there
 * already, was needed by no output, or did nothing.
 */
#include "cli/library/compile/backend.h"

struct fate {
    uint32_t first, n_kernels;
    bool constant, view, in_graph;
};

struct census {
    const struct compilation *c;
    struct fate *fate;           /* by source */
    bool *needed;                /* by node of the imported graph */
    uint32_t *stack, n;
};

static void need_node(struct census *s, node_id id)
{
    if (id.i && !s->needed[id.i]) {
        s->needed[id.i] = true;
        s->stack[s->n++] = id.i;
    }
}

static void need_results(struct census *s, region_id region)
{
    const struct graph *g = s->c->imported;
    const struct region *r = graph_get_region(g, region);
    for (uint32_t i = 0; i < r->results.n; i++)
        if (r->results.data[i].i)
            need_node(s, graph_value(g, r->results.data[i])->def);
}

/* Marks every imported node that an output depends on. Each is pushed once, so the stack has room. */
static void mark_needed(struct census *s)
{
    const struct graph *g = s->c->imported;
    need_results(s, (region_id){1});
    for (uint32_t i = 0; i < g->outputs.n; i++)
        need_node(s, graph_value(g, g->outputs.data[i].value)->def);
    while (s->n) {
        const struct node *node = graph_node(g, (node_id){s->stack[--s->n]});
        for (uint32_t i = 0; i < node->n_in; i++)
            if (node->in[i].i)
                need_node(s, graph_value(g, node->in[i])->def);
        for (uint32_t i = 0; i < node->n_region; i++)
            need_results(s, node->region[i]);
    }
}

static void mark_kernels(struct census *s)
{
    const struct module *m = s->c->module;
    uint32_t *last = NEW_ARRAY(m->arena, uint32_t, m->ctx->sources.n + 1);
    for (uint32_t k = 0; k < m->fused.kernels.n; k++) {
        const struct kernel *kernel = &m->fused.kernels.data[k];
        for (uint32_t i = 0; i < kernel->nodes.n; i++) {
            uint32_t src = graph_node(m->g, kernel->nodes.data[i])->src.i;
            if (src >= m->ctx->sources.n || last[src] == k + 1)
                continue;
            last[src] = k + 1;
            if (s->fate[src].n_kernels++ == 0)
                s->fate[src].first = k;
        }
    }
}

static void mark_graph(struct census *s)
{
    const struct graph *g = s->c->graph;
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *node = &g->nodes.data[i];
        if (node->dead || node->src.i >= g->ctx->sources.n)
            continue;
        struct fate *f = &s->fate[node->src.i];
        f->in_graph = true;
        f->constant |= node->n_out > 0 && value_is_const(g, node->out[0]);
        f->view |= op_shape(node->op) == SHAPE_VIEW;
    }
}

static void put_fate(const struct census *s, uint32_t index, struct strbuf *out)
{
    const struct node *node = graph_node(s->c->imported, (node_id){index});
    const struct source *src = source_get(s->c->ctx, node->src);
    const struct fate *f = &s->fate[node->src.i];
    const struct module *m = s->c->module;
    const char *name = src->name && *src->name ? src->name : src->output ? src->output : "";
    strbuf_printf(out, "node ");
    strbuf_escaped(out, name, 200);
    strbuf_printf(out, " (%s%s", node->op_type, src->origin ? ", " : "");
    strbuf_escaped(out, origin_short(src->origin), 60);
    strbuf_printf(out, "): ");
    if (f->n_kernels > 1)
        strbuf_printf(out, "%u kernels, from k%u (%s) on\n", f->n_kernels, f->first,
                      kernel_kind_name(m->fused.kernels.data[f->first].kind));
    else if (f->n_kernels)
        strbuf_printf(out, "kernel k%u (%s)\n", f->first, kernel_kind_name(m->fused.kernels.data[f->first].kind));
    else if (!s->needed[index])
        strbuf_printf(out, "dropped, no output depends on it\n");
    else if (f->constant)
        strbuf_printf(out, "folded, its result is a constant\n");
    else if (f->view)
        strbuf_printf(out, "no code, another view of the same memory\n");
    else if (f->in_graph)
        strbuf_printf(out, "no code of its own\n");
    else
        strbuf_printf(out, "vanished, it passed its operand on or was folded into its users\n");
}

void stats_fates(const struct compilation *c, struct strbuf *out)
{
    struct arena *arena = &c->ctx->session;
    const struct graph *g = c->imported;
    struct census s = {
        .c = c,
        .fate = NEW_ARRAY(arena, struct fate, c->ctx->sources.n + 1),
        .needed = NEW_ARRAY(arena, bool, g->nodes.n + 1),
        .stack = NEW_ARRAY(arena, uint32_t, g->nodes.n + 1),
    };
    mark_needed(&s);
    mark_kernels(&s);
    mark_graph(&s);
    for (uint32_t i = 1; i < g->nodes.n; i++)
        if (!g->nodes.data[i].dead && g->nodes.data[i].op == OP_IMPORTED && g->nodes.data[i].src.i < c->ctx->sources.n)
            put_fate(&s, i, out);
}

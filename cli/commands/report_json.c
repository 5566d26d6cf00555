/* The data of a report. Lists that may have thousands of rows are arrays of arrays, as cli/report/ reads them. */
#include <string.h>

#include "cli/commands/report.h"
#include "cli/commands/view.h"
#include "passes/module/query.h"

/* ---- the graph --------------------------------------------------------------------------------------------------- */

struct listing {
    struct network_view view;
    uint32_t *number; /* by node: in the list, from 1 on; 0: not there */
    uint32_t n;
    struct json *nodes, *edges;
    struct strbuf text;
};

/* [name, operator, source, parent, kind]: parent a node's number, or -1; kind 0: of the file, 1: input, 2: output. */
static uint32_t put_node(struct listing *l, const char *name, const char *op, uint32_t source, int64_t parent, int kind)
{
    json_open(l->nodes, NULL, '[');
    json_text(l->nodes, NULL, name);
    json_text(l->nodes, NULL, op);
    json_uint(l->nodes, NULL, source);
    json_int(l->nodes, NULL, parent);
    json_int(l->nodes, NULL, kind);
    json_close(l->nodes, '[');
    return ++l->n;
}

/* [from, to, type], from what makes v. maker: by value, of inputs. */
static void put_edge(struct listing *l, const uint32_t *maker, value_id v, uint32_t to)
{
    const struct value *value = v.i ? graph_value(l->view.g, v) : NULL;
    uint32_t from = !value ? 0 : value->def.i ? l->number[value->def.i] : maker[v.i];
    if (!from || view_is_constant(&l->view, v))
        return;
    l->text.n = 0;
    view_type(&l->view, v, &l->text);
    json_open(l->edges, NULL, '[');
    json_uint(l->edges, NULL, from - 1);
    json_uint(l->edges, NULL, to - 1);
    json_text(l->edges, NULL, l->text.n ? l->text.data : "");
    json_close(l->edges, '[');
}

/* Recursion is bounded by graph_region. */
static void put_region(struct listing *l, uint32_t *maker, region_id r, int64_t parent)
{
    const struct graph *g = l->view.g;
    const struct region *region = graph_get_region(g, r);
    for (uint32_t i = 0; i < region->params.n; i++) {
        value_id v = region->params.data[i];
        const char *name = graph_value(g, v)->name;
        maker[v.i] = put_node(l, name ? name : "", parent < 0 ? "input" : "parameter", 0, parent, 1);
    }
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        const struct node *node = graph_node(g, region->nodes.data[i]);
        const struct source *src = source_get(g->ctx, node->src);
        uint32_t id = region->nodes.data[i].i;
        if (l->view.hidden[id])
            continue;
        const char *op = node->op == OP_IMPORTED ? node->op_type : op_name(node->op);
        l->number[id] = put_node(l, node->src.i ? source_label(src) : "", op, node->src.i, parent, 0);
        for (uint32_t k = 0; k < node->n_in; k++)
            put_edge(l, maker, node->in[k], l->number[id]);
        for (uint32_t k = 0; k < node->n_region; k++)
            put_region(l, maker, node->region[k], (int64_t)l->number[id] - 1);
    }
    for (uint32_t i = 0; i < region->results.n; i++) {
        value_id v = region->results.data[i];
        const char *name = r.i == 1 && i < g->outputs.n ? g->outputs.data[i].name : "result";
        if (v.i)
            put_edge(l, maker, v, put_node(l, name, parent < 0 ? "output" : "result", 0, parent, 2));
    }
}

static void put_graph(const struct compilation *c, const struct art_node *row, uint32_t n, struct json *j)
{
    struct arena *arena = j->out->arena;
    struct strbuf nodes, edges;
    struct json node_list = {.out = &nodes}, edge_list = {.out = &edges};
    struct listing l = {.nodes = &node_list, .edges = &edge_list};
    view_make(&l.view, c, row, n, arena);
    l.number = NEW_ARRAY(arena, uint32_t, l.view.g->nodes.n + 1);
    strbuf_init(&nodes, arena);
    strbuf_init(&edges, arena);
    strbuf_init(&l.text, arena);
    put_region(&l, NEW_ARRAY(arena, uint32_t, l.view.g->values.n + 1), (region_id){1}, -1);
    json_open(j, "graph", '{');
    json_uint(j, "hidden", l.view.n_hidden);
    json_open(j, "nodes", '[');
    strbuf_append(j->out, nodes.data, nodes.n);
    json_close(j, '[');
    json_open(j, "edges", '[');
    strbuf_append(j->out, edges.data, edges.n);
    json_close(j, '[');
    json_close(j, '{');
}

/* A compiled network has the nodes, but not what leads from one to the next. */
static void put_rows(const mcc_api *api, struct json *j)
{
    struct listing l = {.nodes = j};
    json_open(j, "graph", '{');
    json_uint(j, "hidden", 0);
    json_open(j, "nodes", '[');
    for (uint32_t i = 1; i < api->n_node; i++)
        put_node(&l, api->node[i].name, api->node[i].op, i, -1, 0);
    json_close(j, '[');
    json_null(j, "edges");
    json_close(j, '{');
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* [name, bytes, offset, first, last] of each buffer, with every symbol at 1; first and last number `steps`. */
static void put_memory(const struct module *m, struct json *j)
{
    struct exprs *x = m->ctx->exprs;
    int64_t *ones = NEW_ARRAY(j->out->arena, int64_t, sym_count(x) + 1), bytes = 0, offset = 0;
    for (uint32_t i = 0; i <= sym_count(x); i++)
        ones[i] = 1;
    json_open(j, "memory", '{');
    if (ex_eval(x, m->arena_bytes, ones, &bytes))
        json_int(j, "bytes", bytes);
    else
        json_null(j, "bytes");
    json_bool(j, "symbolic", !ex_is_const(x, m->arena_bytes, &offset));
    json_open(j, "steps", '[');
    for (uint32_t i = 0; i < m->order.n; i++)
        json_uint(j, NULL, kernel_lead(m, &m->kernels.data[m->order.data[i]]));
    json_close(j, '[');
    json_open(j, "buffers", '[');
    for (uint32_t i = 0; i < m->buffers.n; i++) {
        const struct buffer *b = &m->buffers.data[i];
        if (b->segment || b->first == UINT32_MAX || b->last > m->order.n || !ex_eval(x, b->bytes, ones, &bytes) ||
            !ex_eval(x, b->offset, ones, &offset))
            continue;
        json_open(j, NULL, '[');
        json_text(j, NULL, weight_name(m, b->value));
        json_int(j, NULL, bytes);
        json_int(j, NULL, offset);
        json_uint(j, NULL, b->first);
        json_uint(j, NULL, b->last);
        json_close(j, '[');
    }
    json_close(j, '[');
    json_close(j, '{');
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static void put_stages(const struct compilation *c, struct json *j)
{
    json_open(j, "stages", '[');
    for (uint32_t i = 0; i < stage_count; i++) {
        if (!c->costs[i].ran)
            continue;
        json_open(j, NULL, '[');
        json_text(j, NULL, stage_table[i].name);
        json_real(j, NULL, c->costs[i].start - c->costs[0].start);
        json_real(j, NULL, c->costs[i].ms);
        json_int(j, NULL, c->costs[i].heap);
        json_close(j, '[');
    }
    json_close(j, '[');
}

void report_json(struct compilation *c, const struct artifact_file *a, const struct workspace *w, struct measure *m,
                 const char *why, struct json *j)
{
    uint32_t n = 0;
    json_open(j, NULL, '{');
    json_text(j, "file", m->ctx->model_path);
    artifact_json(a, w, false, "artifact", j);
    if (c) {
        const struct art_node *row = source_rows(c, &n);
        put_graph(c, row, n, j);
        put_memory(c->module, j);
        weights_json(c->module, j);
        put_stages(c, j);
    } else {
        put_rows(&a->api, j);
    }
    json_text(j, "not_run", why);
    if (!why)
        measure_json(m, "bench", true, j);
    json_close(j, '{');
}

/* A compilation as its report draws it: see cli/library/graph_map.h. */
#include "cli/library/graph_map.h"

#include "cli/library/compile/view.h"
#include "passes/module/analysis.h"

/* ---- the graph --------------------------------------------------------------------------------------------------- */

struct listing {
    struct network_view view;
    struct arena *arena;
    struct graph_map *map;
    uint32_t *number; /* by node: in the list, from 1 on; 0: not there */
    uint32_t *maker; /* by value that no node makes: the same */
    struct strbuf text;
};

static uint32_t add_node(struct listing *l, struct map_node node)
{
    VEC_PUSH(l->arena, &l->map->nodes, node);
    return l->map->nodes.n;
}

/* From what makes v. */
static void add_edge(struct listing *l, value_id v, uint32_t to)
{
    const struct value *value = v.i ? graph_value(l->view.g, v) : NULL;
    uint32_t from = !value ? 0 : value->def.i ? l->number[value->def.i] : l->maker[v.i];
    if (!from || view_is_constant(&l->view, v))
        return;
    l->text.n = 0;
    view_type(&l->view, v, &l->text);
    struct map_edge edge = {from - 1, to - 1, l->text.n ? arena_strndup(l->arena, l->text.data, l->text.n) : ""};
    VEC_PUSH(l->arena, &l->map->edges, edge);
}

/* Recursion is bounded by graph_region. parent: from 1 on. */
static void add_region(struct listing *l, region_id r, uint32_t parent)
{
    const struct graph *g = l->view.g;
    const struct region *region = graph_get_region(g, r);
    for (uint32_t i = 0; i < region->params.n; i++) {
        value_id v = region->params.data[i];
        const char *name = graph_value(g, v)->name;
        l->maker[v.i] = add_node(l, (struct map_node){.name = name ? name : "",
                                                      .op = parent ? "parameter" : "input",
                                                      .parent = parent,
                                                      .kind = MAP_INPUT});
    }
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        const struct node *node = graph_node(g, region->nodes.data[i]);
        uint32_t id = region->nodes.data[i].i;
        if (l->view.hidden[id])
            continue;
        l->number[id] = add_node(l, (struct map_node){
                                        .name = node->src.i ? source_label(source_get(g->ctx, node->src)) : "",
                                        .op = node->op == OP_IMPORTED ? node->op_type : op_name(node->op),
                                        .source = node->src.i,
                                        .parent = parent,
                                    });
        for (uint32_t k = 0; k < node->n_in; k++)
            add_edge(l, node->in[k], l->number[id]);
        for (uint32_t k = 0; k < node->n_region; k++)
            add_region(l, node->region[k], l->number[id]);
    }
    for (uint32_t i = 0; i < region->results.n; i++) {
        value_id v = region->results.data[i];
        const char *name = r.i == 1 && i < g->outputs.n ? g->outputs.data[i].name : "result";
        struct map_node node = {.name = name, .op = parent ? "result" : "output", .parent = parent, .kind = MAP_OUTPUT};
        if (v.i)
            add_edge(l, v, add_node(l, node));
    }
}

static void add_graph(const struct compilation *c, const mcc_node *row, uint32_t n, struct arena *arena,
                      struct graph_map *map)
{
    struct listing l = {.arena = arena, .map = map};
    view_make(&l.view, c, row, n, arena);
    l.number = NEW_ARRAY(arena, uint32_t, l.view.g->nodes.n + 1);
    l.maker = NEW_ARRAY(arena, uint32_t, l.view.g->values.n + 1);
    strbuf_init(&l.text, arena);
    add_region(&l, (region_id){1}, 0);
    map->hidden = l.view.n_hidden;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Sizes and offsets are numbers with every symbol at 1. */
static void add_memory(const struct module *m, struct arena *arena, struct graph_map *map)
{
    struct exprs *x = m->ctx->exprs;
    int64_t *ones = NEW_ARRAY(arena, int64_t, sym_count(x) + 1), constant = 0;
    for (uint32_t i = 0; i <= sym_count(x); i++)
        ones[i] = 1;
    if (!ex_eval(x, m->plan.arena_bytes, ones, &map->arena_bytes))
        map->arena_bytes = -1;
    map->symbolic = !ex_is_const(x, m->plan.arena_bytes, &constant);
    for (uint32_t i = 0; i < m->fused.order.n; i++)
        VEC_PUSH(arena, &map->steps, kernel_lead(m, &m->fused.kernels.data[m->fused.order.data[i]]));
    for (uint32_t i = 0; i < m->plan.buffers.n; i++) {
        const struct buffer *b = &m->plan.buffers.data[i];
        struct map_buffer row = {.first = b->first, .last = b->last};
        if (b->segment || b->first == UINT32_MAX || b->last > m->fused.order.n || b->first > b->last ||
            !ex_eval(x, b->bytes, ones, &row.bytes) || !ex_eval(x, b->offset, ones, &row.offset) || row.bytes < 0 ||
            row.offset < 0)
            continue;
        row.name = weight_name(m, b->value);
        VEC_PUSH(arena, &map->buffers, row);
    }
}

void graph_map_make(const struct compilation *c, const mcc_node *row, uint32_t n, struct arena *arena,
                    struct graph_map *map)
{
    *map = (struct graph_map){0};
    add_graph(c, row, n, arena, map);
    add_memory(c->module, arena, map);
}

struct span graph_map_section(const struct compilation *c, const struct artifact *a)
{
    enum { SHARE = 100, LEAST = 1024 };
    uint64_t room = a->weights.size;
    struct graph_map map;
    if (!c->imported) /* a graph that came from no file */
        return (struct span){NULL, 0};
    for (uint32_t i = 0; i < a->n_units; i++)
        room += a->units[i].same ? 0 : a->units[i].object.size;
    graph_map_make(c, a->node, a->n_node, &c->ctx->session, &map);
    struct span packed = graph_map_pack(&c->ctx->session, &map, a->node, a->n_node);
    return packed.size <= room / SHARE || packed.size <= LEAST ? packed : (struct span){NULL, 0};
}

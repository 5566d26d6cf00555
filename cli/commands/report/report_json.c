/* The data of a report. Lists that may have thousands of rows are arrays of arrays, as cli/commands/report/ reads
 * them. */

#include "cli/library/graph_map.h"
#include "cli/commands/report/report.h"

/* What a compiled network carries; without it the nodes of its table. False after a diagnostic. */
static bool unpack(struct context *ctx, const struct artifact_file *a, struct graph_map *map)
{
    if (a->graph.size && !graph_map_unpack(&ctx->session, a->graph, &a->api, map))
        return error_env(ctx, "truncated or damaged: the graph for reports");
    if (a->graph.size)
        return true;
    *map = (struct graph_map){.rows = true};
    for (uint32_t i = 1; i < a->api.n_node; i++) {
        struct map_node node = {.name = a->api.node[i].name, .op = a->api.node[i].op, .source = i};
        VEC_PUSH(&ctx->session, &map->nodes, node);
    }
    return true;
}

static void put_stages(const struct compilation *c, struct json *j)
{
    json_open(j, "stages", '[');
    for (uint32_t i = 0; i < stage_count; i++) {
        if (!c->costs[i].ran)
            continue;
        JSON_GROUP(j, NULL, "[]", j_text(NULL, stage_table[i].name),
                   j_real(NULL, c->costs[i].start - c->costs[0].start), j_real(NULL, c->costs[i].ms),
                   j_int(NULL, c->costs[i].heap));
    }
    json_close(j, "]");
}

bool report_json(struct compilation *c, const struct artifact_file *a, const struct workspace *w, struct measure *m,
                 const char *why, struct span proof, struct json *j)
{
    struct context *ctx = m->ctx;
    struct graph_map map;
    uint32_t n = 0;
    const mcc_node *row = c ? source_rows(c, &n) : NULL;
    if (c)
        graph_map_make(c, row, n, &ctx->session, &map);
    else if (!unpack(ctx, a, &map))
        return false;
    JSON_GROUP(j, NULL, "{", j_text("file", ctx->model_path));
    artifact_json(a, w, false, "artifact", j);
    graph_map_json(&map, j);
    if (c) {
        weights_json(c->module, j);
        put_stages(c, j);
    }
    json_open(j, "searched", '[');
    for (uint32_t i = 0; i < m->options->searched.items.n; i++)
        json_text(j, NULL, m->options->searched.items.data[i]);
    json_close(j, "]");
    json_whole(j, "proof", proof);
    json_text(j, "not_run", why);
    if (!why)
        measure_json(m, "bench", true, j);
    json_close(j, "}");
    return true;
}

/* .chain file -> imported graph: one line for each operator, whose operand is the result of the line before. */
#include "frontend/frontend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/base/file.h"

import_fn chain_import; /* as the row of formats.def declares it */

enum { FILE_BYTES_MAX = 1 << 20, DIM_MAX = 1 << 20 };

/* One node of domain "chain", version 1, with one operand and one result of a type that legalize will infer. */
static value_id append(struct graph *g, const char *op, value_id in, const struct attr *attrs, uint32_t n)
{
    src_id src = source_add(g->ctx,
                            (struct source){.name = "", .op = op, .domain = "chain", .version = 1, .output = op});
    node_id id = graph_append(g, (region_id){1}, OP_IMPORTED, src, &in, 1, attrs, n, NULL, 1);
    struct node *node = graph_node(g, id);
    node->op_type = op;
    node->domain = "chain";
    node->overload = "";
    return node->out[0];
}

static value_id append_input(struct graph *g, const char *name, int64_t extent)
{
    const expr_id dim = ex_const(g->ctx->exprs, extent);
    struct type type = {
        .kind = TYPE_TENSOR, .elem = ELEM_F32, .rank = 1, .dims = arena_copy(&g->arena, &dim, sizeof dim)};
    value_id v = graph_param(g, (region_id){1}, type, name);
    struct port port = {.name = name, .value = v, .declared = arena_copy(&g->arena, &type, sizeof type)};
    VEC_PUSH(&g->arena, &g->inputs, port);
    return v;
}

static void append_output(struct graph *g, const char *name, value_id v)
{
    struct port port = {.name = name, .value = v};
    VEC_PUSH(&g->arena, &g->outputs, port);
    graph_add_result(g, (region_id){1}, v);
}

/* One line; *last: the value before it, and then its own. False after a diagnostic. */
static bool line_import(struct graph *g, const char *line, value_id *last)
{
    char name[32];
    long long extent;
    double scale, shift;
    if (!last->i && sscanf(line, "input %31s %lld", name, &extent) == 2 && extent > 0 && extent <= DIM_MAX)
        *last = append_input(g, arena_strdup(&g->arena, name), extent);
    else if (last->i && strcmp(line, "relu") == 0)
        *last = append(g, "relu", *last, NULL, 0);
    else if (last->i && sscanf(line, "affine %lf %lf", &scale, &shift) == 2 && isfinite(scale) && isfinite(shift))
        *last = append(g, "affine", *last,
                       (const struct attr[]){attr_float("scale", scale), attr_float("shift", shift)}, 2);
    else if (last->i && !g->outputs.n && sscanf(line, "output %31s", name) == 1)
        append_output(g, arena_strdup(&g->arena, name), *last);
    else
        return error_model(g->ctx, (src_id){0}, "no such line may stand here: %.80s", line);
    return true;
}

struct graph *chain_import(struct context *ctx, const char *path, const struct import_options *options,
                           struct file_list *files)
{
    struct file_bytes file;
    value_id last = {0};
    (void)options;   /* nothing in the format is what they are about */
    if (files)
        VEC_PUSH(&ctx->session, &files->paths, arena_strdup(&ctx->session, path));
    enum file_status status = file_whole(ctx, path, FILE_BYTES_MAX, &file);
    if (status != FILE_OK) {
        if (status == FILE_LARGE)
            error_model(ctx, (src_id){0}, "the file has %zu bytes, the limit is %d", file.size, FILE_BYTES_MAX);
        else if (file.why)
            error_env(ctx, "cannot read the file: %s", file.why);
        return NULL;
    }
    struct graph *g = graph_new(ctx);
    char *text = arena_strdup(&g->arena, file.data), *end;
    g->name = "chain";
    for (char *line = strchr(text, '\n'); line && line[1]; line = end) {
        end = strchr(++line, '\n');
        if (end)
            *end = 0;
        if (!line_import(g, line, &last))
            return NULL;
        if (end)
            *end = '\n';
    }
    if (!g->outputs.n) {
        error_model(ctx, (src_id){0}, "the file has no line \"output NAME\"");
        return NULL;
    }
    return g;
}

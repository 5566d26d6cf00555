/* mcc eval: a network through the reference interpreter, without generating code. What it computes is what compiled
 * code is held against; --dump shows any value of the graph by its name in the file.
 */
#include "cli/commands/artifact/file_tensor.h"
#include "cli/commands/command.h"

/* The shape of input `port` for a random or raw feed: symbols from --dim, else their least value, at least 1. */
static bool port_shape(struct context *ctx, const struct options *o, const struct graph *g, const struct port *port,
                       struct file_tensor *out)
{
    const struct type *type = value_type(g, port->value);
    if (type->kind != TYPE_TENSOR || type->rank == RANK_UNKNOWN || type->elem == ELEM_STR)
        return error_at(ctx, FAIL_USAGE, (src_id){0}, port->name,
                        "this input is not a tensor of known rank, which is all that mcc can feed");
    *out = (struct file_tensor){.elem = type->elem, .rank = type->rank};
    uint32_t n = sym_count(ctx->exprs);
    int64_t *values = NEW_ARRAY(&ctx->session, int64_t, n + 1);
    const char **names = NEW_ARRAY(&ctx->session, const char *, n + 1);
    for (uint32_t i = 1; i <= n; i++)
        names[i - 1] = sym_get(ctx->exprs, (sym_id){i})->name;
    if (!dims_known(ctx, &o->dims, names, n))
        return false;
    for (uint32_t i = 1; i <= n; i++) {
        const struct symbol *s = sym_get(ctx->exprs, (sym_id){i});
        values[i] = s->lo > 1 ? s->lo : 1;
        if (s->name && !dim_find(ctx, &o->dims, s->name, &values[i]))
            return false;
    }
    for (int32_t i = 0; i < type->rank; i++)
        if (!ex_eval(ctx->exprs, type->dims[i], values, &out->dims[i]) || out->dims[i] < 0)
            return error_at(ctx, FAIL_USAGE, (src_id){0}, port->name,
                            "dimension %d has no value; give one with --dim NAME=N", i);
    return true;
}

static bool port_feed(struct context *ctx, const struct options *o, const struct graph *g, uint32_t index,
                      struct tensor *out)
{
    const struct port *port = &g->inputs.data[index];
    const char *feed = feed_find(&o->feeds, port->name);
    struct file_tensor packed;
    if (!feed)
        return error_at(ctx, FAIL_USAGE, (src_id){0}, port->name,
                        "this input has no value; give one with -i NAME=FILE or -i NAME=random");
    if (!port_shape(ctx, o, g, port, &packed))
        return false;
    if (strncmp(feed, "random", 6) == 0 && (feed[6] == 0 || feed[6] == ':')) {
        if (!file_tensor_alloc(ctx, &packed))
            return false;
        uint64_t seed;
        if (!feed_seed(ctx, feed, index + 1, &seed))
            return false;
        file_tensor_random(&packed, seed);
    } else if (!file_tensor_read(ctx, feed, &packed)) {
        return false;
    }
    return file_tensor_widen(ctx, &packed, out);
}

static bool value_put(struct context *ctx, const struct options *o, const char *name, const struct tensor *t)
{
    struct file_tensor packed;
    if (!file_tensor_pack(ctx, t, &packed))
        return false;
    if (o->document)
        file_tensor_json(name, &packed, &o->document->result);
    if (o->output)
        return file_tensor_write(ctx, o->output, name, o->format, &packed);
    if (o->document)
        return true;
    struct strbuf line = strbuf_of(&ctx->session);
    file_tensor_describe(name, &packed, &line);
    terminal_print(&line);
    return true;
}

struct dump {
    const char *name;
    value_id value;
};
struct dumps {
    VEC(struct dump) items;
};

/* The values that --dump names, else the outputs. */
static bool dumps_collect(struct context *ctx, const struct options *o, const struct graph *g, struct dumps *out)
{
    for (uint32_t i = 0; i < graph_user_outputs(g) && o->dump.items.n == 0; i++)
        VEC_PUSH(&ctx->session, &out->items, ((struct dump){g->outputs.data[i].name, g->outputs.data[i].value}));
    for (uint32_t i = 0; i < o->dump.items.n; i++) {
        const char *name = o->dump.items.data[i];
        uint32_t before = out->items.n;
        for (uint32_t k = 0; k < g->outputs.n && out->items.n == before; k++)
            if (strcmp(g->outputs.data[k].name, name) == 0)
                VEC_PUSH(&ctx->session, &out->items, ((struct dump){name, g->outputs.data[k].value}));
        for (uint32_t v = 1; v < g->values.n && out->items.n == before; v++)
            if (g->values.data[v].name && strcmp(g->values.data[v].name, name) == 0 &&
                !(g->values.data[v].def.i && graph_node(g, g->values.data[v].def)->dead))
                VEC_PUSH(&ctx->session, &out->items, ((struct dump){name, {v}}));
        if (out->items.n == before)
            return error_at(ctx, FAIL_USAGE, (src_id){0}, name,
                            "the legal graph has no value of this name (-stop-after=legalize prints its values)");
    }
    return true;
}

static bool eval_graph(struct context *ctx, const struct options *o, struct graph *g)
{
    uint32_t n_in = graph_user_inputs(g);
    struct tensor *in = NEW_ARRAY(&ctx->session, struct tensor, g->inputs.n + 1);
    const char **names = NEW_ARRAY(&ctx->session, const char *, n_in + 1);
    for (uint32_t i = 0; i < n_in; i++)
        names[i] = g->inputs.data[i].name;
    if (!feeds_known(ctx, &o->feeds, names, n_in))
        return false;
    for (uint32_t i = 0; i < n_in; i++)
        if (!port_feed(ctx, o, g, i, &in[i]))
            return false;
    graph_states(g, in);
    struct dumps dumps = {0};
    struct tensor **wanted = NEW_ARRAY(&ctx->session, struct tensor *, g->values.n);
    if (!dumps_collect(ctx, o, g, &dumps))
        return false;
    for (uint32_t i = 0; i < dumps.items.n; i++)
        wanted[dumps.items.data[i].value.i] = NEW(&ctx->session, struct tensor);
    const char *text = "";
    enum eval_status status = graph_eval_values(g, in, wanted, &ctx->session, &text);
    if (status != EVAL_OK)
        return error_at(ctx, status == EVAL_NOMEM ? FAIL_LIMIT : FAIL_MODEL, (src_id){0}, NULL, "%s (status %d)",
                        text ? text : "evaluation failed", (int)status);
    struct json *j = o->document ? &o->document->result : NULL;
    if (j) {
        json_open(j, NULL, '{');
        json_open(j, "outputs", '[');
    }
    for (uint32_t i = 0; i < dumps.items.n; i++)
        if (!value_put(ctx, o, dumps.items.data[i].name, wanted[dumps.items.data[i].value.i]))
            return false;
    if (j)
        json_close(j, "]}");
    return true;
}

enum fail command_eval(struct context *ctx, struct options *o)
{
    struct graph *g = compile_graph(ctx, o, o->files.items.data[0], terminal_report());
    if (g && !eval_graph(ctx, o, g) && ctx->fail == FAIL_NONE)
        ctx->fail = FAIL_INTERNAL;
    return ctx->fail;
}

/* mcc inspect of a network: what it would become. The stages up to schedule are run, so nothing is compiled; then its
 * kernels, its workspace and its weights are listed, or, with -o, its graph is drawn. */

#include "cli/commands/command.h"
#include "cli/commands/inspect/inspect.h"

enum { WEIGHTS_SHOWN = 40 };

/* ---- the lists --------------------------------------------------------------------------------------------------- */

static void put_nodes(const mcc_node *row, uint32_t n, struct strbuf *out)
{
    for (uint32_t i = 1; i < n; i++) {
        if (!row[i].kernels)
            continue;
        strbuf_printf(out, "kernel   ");
        node_describe(&(mcc_api){.node = row}, &row[i], out);
        strbuf_printf(out, ": %llu flops, %llu bytes", (unsigned long long)row[i].flops,
                      (unsigned long long)row[i].bytes);
        strbuf_printf(out, row[i].kernels > 1 ? ", %llu kernels\n" : "\n", (unsigned long long)row[i].kernels);
    }
}

static int by_bytes(const void *a, const void *b)
{
    const struct weight *x = *(const struct weight *const *)a, *y = *(const struct weight *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void put_weights(const struct compilation *c, struct strbuf *out)
{
    const struct module *m = c->module;
    const struct weight **sorted = NEW_ARRAY(out->arena, const struct weight *, m->plan.weights.n + 1);
    uint64_t used = 0;
    for (uint32_t i = 0; i < m->plan.weights.n; i++) {
        sorted[i] = &m->plan.weights.data[i];
        used += weight_elements_bytes(m, sorted[i]);
    }
    qsort(sorted, m->plan.weights.n, sizeof(const struct weight *), by_bytes);
    strbuf_printf(out, "weights  %lld bytes in the network's file, %llu in the output, %llu of these padding\n",
                  (long long)c->constants_in, (unsigned long long)m->plan.weights_bytes,
                  (unsigned long long)(m->plan.weights_bytes - used));
    for (uint32_t i = 0; i < m->plan.weights.n && i < WEIGHTS_SHOWN; i++) {
        const struct type *t = value_type(m->g, sorted[i]->value);
        strbuf_printf(out, "weight   %12llu bytes, %10llu of these padding  ", (unsigned long long)sorted[i]->bytes,
                      (unsigned long long)(sorted[i]->bytes - weight_elements_bytes(m, sorted[i])));
        strbuf_escaped(out, weight_name(m, sorted[i]->value), 200);
        strbuf_printf(out, ": %s[", elem_name(t->elem));
        for (int32_t d = 0; d < t->rank; d++) {
            strbuf_printf(out, d ? "," : "");
            ex_print(m->ctx->exprs, t->dims[d], out);
        }
        strbuf_printf(out, "]\n");
    }
    if (m->plan.weights.n > WEIGHTS_SHOWN)
        strbuf_printf(out, "weight   ... and %u smaller ones\n", m->plan.weights.n - WEIGHTS_SHOWN);
}

static void list(struct compilation *c, const mcc_node *row, uint32_t n)
{
    if (c->options->document) {
        network_json(c, row, n, &c->options->document->result);
        return;
    }
    struct strbuf out = strbuf_of(&c->ctx->session);
    strbuf_printf(&out, "name     ");
    strbuf_escaped(&out, c->graph->name ? c->graph->name : "", 200);
    strbuf_printf(&out, "\nkernels  %u in each variant\n", c->module->fused.kernels.n);
    put_nodes(row, n, &out);
    put_weights(c, &out);
    plan_report(c->module, &out);
    terminal_print(&out);
}

/* ---- the drawing ------------------------------------------------------------------------------------------------- */

/* What Graphviz is to make of it: "" for its own text, NULL after a diagnostic. */
static const char *picture_format(struct context *ctx, const char *path)
{
    static const char *const formats[][2] = {
        {".dot", ""}, {".gv", ""}, {".svg", "svg"}, {".png", "png"}, {".pdf", "pdf"}};
    const char *dot = strrchr(path, '.');
    if (strcmp(path, "-") == 0)
        return "";
    const char *const *row = dot ? ROW_NAMED(formats, COUNT_OF(formats), dot) : NULL;
    if (row)
        return row[1];
    error_usage(ctx, "a drawing's name must end in .dot, .svg, .png or .pdf; '%s' does not", path);
    return NULL;
}

/* Of a picture: a thousand random nodes take Graphviz half a minute and become 100,000 points high, and the time grows
 * with their cube. */
enum { PICTURE_NODES_MAX = 1000 };

static bool draw(struct compilation *c, const struct options *o, const char *format, const mcc_node *row, uint32_t n)
{
    struct context *ctx = c->ctx;
    if (*format && n - 1 > PICTURE_NODES_MAX) /* row 0 is no node */
        return error_at(
            ctx, FAIL_LIMIT, (src_id){0}, NULL,
            "a picture has at most %d nodes, and this network has %u; use 'mcc report MODEL' for a page of any size, "
            "-o FILE.dot for a drawing as text, or mcc reduce for a smaller network",
            PICTURE_NODES_MAX, n - 1);
    double *ns = o->profile ? NEW_ARRAY(&ctx->session, double, n + 1) : NULL;
    if (ns && !profile_read(ctx, o->profile, row, n, ns))
        return false;
    struct strbuf text = strbuf_of(&ctx->session), picture = strbuf_of(&ctx->session);
    draw_network(c, row, n, ns, &text);
    if (strcmp(o->output, "-") == 0) {
        terminal_print(&text);
        return true;
    }
    if (*format && !graphviz_run(ctx, &text, format, &picture))
        return false;
    const struct strbuf *out = *format ? &picture : &text;
    return output_write(ctx, o->output, out->data, out->n);
}

enum fail inspect_model(struct context *ctx, struct options *o, const char *model)
{
    struct compilation *c = NEW(&ctx->session, struct compilation);
    struct options front = *o;
    const char *format = o->output ? picture_format(ctx, o->output) : "";
    front.output = NULL;
    c->ctx = ctx;
    c->options = &front;
    c->report = terminal_report();
    ctx->model_path = model;
    if (!format)
        return ctx->fail;
    if (o->profile && !o->output)
        return fail_usage(ctx, "a profile colours a drawing; ask for one with -o FILE.svg");
    if (o->output && *o->output && strcmp(o->output, "-") != 0 && !output_check(ctx, o->output))
        return ctx->fail;
    if (compile_keep(c, model, "emit") != FAIL_NONE)
        return ctx->fail;
    uint32_t n = 0;
    const mcc_node *row = source_rows(c, &n);
    if (!o->output)
        list(c, row, n);
    else if (output_differs(ctx, o->output, &c->files, o->config))
        (void)draw(c, o, format, row, n);
    return ctx->fail;
}

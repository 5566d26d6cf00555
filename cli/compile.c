/* The pipeline: a table of stages and the driver that runs, verifies, times and prints them.
 *
 * A stage is a row; it reads and writes fields of struct compilation and records diagnostics. Only the driver prints.
 * The one unwind point of a compilation is here: running out of memory anywhere below ends in compile_guarded().
 */
#include "cli/backend.h"
#include "cli/nearest.h"
#include "cli/targets.h"

#include <string.h>
#include <time.h>

/* ---- the stages -------------------------------------------------------------------------------------------- */

static bool run_import(struct compilation *c)
{
    const struct options *o = c->options;
    struct import_options import = {
        .overridable = o->overridable.items.data,
        .n_overridable = o->overridable.items.n,
        .allow_hard_links = o->hard_links,
    };
    if (!input_specs_parse(c->ctx, &o->inputs, &c->inputs, &c->n_inputs))
        return false;
    c->graph = onnx_import(c->ctx, c->ctx->model_path, &import, &c->files);
    c->imported = c->graph;
    if (c->graph)
        c->constants_in = stats_constants(c->graph);
    if (!c->graph || !c->output)
        return c->graph;
    const char *sidecar = output_sidecar(c->ctx, o, c->output);
    return output_differs(c->ctx, c->output, &c->files, o->config) &&
           (!sidecar || (output_check(c->ctx, sidecar) && output_differs(c->ctx, sidecar, &c->files, o->config)));
}

static bool run_legalize(struct compilation *c)
{
    struct legalize_options legal = {c->inputs, c->n_inputs, c->options->limits.unroll_nodes};
    struct graph *imported = c->graph;
    c->graph = legalize(c->ctx, imported, &legal);
    return c->graph && constants_settle(c->graph);
}

static void report_text(const struct compilation *c, int kind, const struct strbuf *text)
{
    if (text->n)
        c->report.put(c->report.user, kind, text->data, text->n);
}

static bool run_merge(struct compilation *c)
{
    struct strbuf text;
    strbuf_init(&text, &c->ctx->session);
    merge_constants(c->graph);
    merge_views(c->graph, c->options->stats ? &text : NULL);
    merge_products(c->graph);
    merge_concats(c->graph);
    report_text(c, TEXT_DATA, &text);
    return true;
}

static void print_graph(const struct compilation *c, struct strbuf *out)
{
    if (c->options->dot)
        graph_dot(c->graph, out);
    else
        graph_print(c->graph, out, c->options->print_full);
}

static bool verify_graph(struct compilation *c)
{
    return graph_verify(c->graph);
}

const struct stage stage_table[] = {
    {"import", run_import, print_graph, verify_graph, true},
    {"legalize", run_legalize, print_graph, verify_graph, true},
    {"merge-constants", run_merge, print_graph, verify_graph, false},
    {"fuse", run_fuse, print_kernels, verify_graph, false},
    {"layout-transform", run_layout, print_storage, verify_graph, false},
    {"plan", run_plan, print_storage, verify_graph, false},
    {"sizes", run_sizes, print_sizes, NULL, false},
    {"schedule", run_schedule, print_schedules, NULL, false},
    {"emit", run_emit, print_loops, verify_loops, false},
    {"codegen", run_codegen, print_code, NULL, false},
    {"link", run_link, NULL, NULL, false},
};
const uint32_t stage_count = COUNT_OF(stage_table);

/* ---- the driver ---------------------------------------------------------------------------------------------- */

static bool names_stage(const struct text_list *list, const char *name)
{
    for (uint32_t i = 0; i < list->items.n; i++)
        if (strcmp(list->items.data[i], name) == 0)
            return true;
    return false;
}

static bool stage_known(struct context *ctx, const char *name)
{
    for (uint32_t i = 0; i < stage_count; i++)
        if (strcmp(stage_table[i].name, name) == 0)
            return true;
    struct nearest near = nearest_to(name);
    for (uint32_t i = 0; i < stage_count; i++)
        nearest_try(&near, stage_table[i].name);
    return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, near.found ? "there is no stage '%s'; did you mean '%s'?"
                                                                   : "there is no stage '%s' (--list-stages names them)", name, near.found);
}

static bool stages_known(struct context *ctx, const struct options *o)
{
    for (uint32_t i = 0; i < o->print_after.items.n; i++)
        if (!stage_known(ctx, o->print_after.items.data[i]))
            return false;
    if (o->stop_after && strcmp(o->stop_after, stage_table[stage_count - 1].name) == 0)
        return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "'stop-after': %s is the last stage, and what it makes is the output", o->stop_after);
    return !o->stop_after || stage_known(ctx, o->stop_after);
}

/* What the option table cannot say of --prefix: a C name. */
static bool prefix_check(struct context *ctx, const char *p)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    if (p && (p[strspn(p, letters)] || (*p >= '0' && *p <= '9')))
        return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "'prefix' takes letters, digits and _, not '%s'", p);
    return true;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void report_times(const struct compilation *c, const struct stage_cost *cost, uint32_t n)
{
    struct strbuf text;
    double total = 0;
    strbuf_init(&text, &c->ctx->session);
    strbuf_printf(&text, "%-20s %10s %12s\n", "stage", "ms", "heap KiB");
    for (uint32_t i = 0; i < n; i++) {
        strbuf_printf(&text, "%-20s %10.2f %12lld\n", stage_table[i].name, cost[i].ms, (long long)(cost[i].heap / 1024));
        total += cost[i].ms;
    }
    strbuf_printf(&text, "%-20s %10.2f %12lld\n", "total", total, (long long)(c->ctx->heap_used / 1024));
    report_text(c, TEXT_LOG, &text);
}

/* What -print-after, -print-changed and -save-temps show of a stage's program. */
static bool report_program(struct compilation *c, const struct stage *stage)
{
    const struct options *o = c->options;
    bool all = o->print_after_all || names_stage(&o->print_after, stage->name);
    struct strbuf text, head;
    if (!all && !o->print_changed && !o->save_temps)
        return true;
    strbuf_init(&text, &c->ctx->session);
    strbuf_init(&head, &c->ctx->session);
    if (stage->print)
        stage->print(c, &text);
    uint64_t hash = hash_bytes(text.data ? text.data : "", text.n);
    bool changed = stage->print && hash != c->printed;
    strbuf_printf(&head, "// after %s%s\n", stage->name, all || changed ? "" : ": no change");
    if (all || o->print_changed)
        report_text(c, TEXT_LOG, &head);
    if (all || (o->print_changed && changed))
        report_text(c, TEXT_LOG, &text);
    c->printed = stage->print ? hash : c->printed;
    if (!o->save_temps || !stage->print || !c->output)
        return true;
    const char *suffix = arena_printf(&c->ctx->session, "%02d-%s.txt", (int)(stage - stage_table) + 1, stage->name);
    return side_write(c, output_beside(c->ctx, c->output, suffix), text.data ? text.data : "", text.n);
}

static void report_census(const struct compilation *c, const struct stage *stage)
{
    struct strbuf text;
    strbuf_init(&text, &c->ctx->session);
    stats_census(c->graph, stage->run == run_import ? "imported" : "legal", &text);
    report_text(c, TEXT_DATA, &text);
}

/* Runs one stage; true when it and the verifier found nothing wrong. */
static bool stage_run(struct compilation *c, const struct stage *stage, struct stage_cost *cost)
{
    double start = now_ms();
    int64_t heap = c->ctx->heap_used;
    bool ok = stage->run(c) && c->ctx->fail == FAIL_NONE;
    cost->start = start;
    cost->ms = now_ms() - start;
    cost->heap = c->ctx->heap_used - heap;
    if (!ok)
        return false;
    const struct options *o = c->options;
    if (o->stats && (stage->run == run_import || stage->run == run_legalize))
        report_census(c, stage);
    if (!report_program(c, stage))
        return false;
    return !stage->verify || !(o->verify_each || stage->always) || stage->verify(c);
}

static bool write_stopped(struct compilation *c, const struct stage *stage)
{
    struct strbuf text;
    strbuf_init(&text, &c->ctx->session);
    if (stage->print)
        stage->print(c, &text);
    if (c->output)
        return output_write(c->ctx, c->output, text.data ? text.data : "", text.n);
    report_text(c, TEXT_DATA, &text);
    return true;
}

/* The last stage that can refuse the network: legalize, but for elements that no kernel computes with. Which operators take
 * strings and complex numbers follows from the kernels and calls they end up in. */
static const char *last_refusal(const struct graph *g)
{
    for (uint32_t v = 1; v < g->values.n; v++) {
        const struct type *t = value_type(g, (value_id){v});
        while (t->kind != TYPE_TENSOR && t->inner)
            t = t->inner;
        if (t->kind == TYPE_TENSOR && (elem_class(t->elem) == 'S' || elem_class(t->elem) == 'C'))
            return "emit";
    }
    return "legalize";
}

static bool stages_run(struct compilation *c, const char *last)
{
    struct stage_cost cost[COUNT_OF(stage_table)] = {{0, 0, 0}};
    const struct options *o = c->options;
    bool ok = true;
    uint32_t n = 0;
    while (ok && n < stage_count) {
        const struct stage *stage = &stage_table[n];
        if (o->verbose) {
            const char *line = arena_printf(&c->ctx->session, "mcc: %s\n", stage->name);
            c->report.put(c->report.user, TEXT_LOG, line, strlen(line));
        }
        ok = stage_run(c, stage, &cost[n++]);
        if (ok && o->stop_after && strcmp(o->stop_after, stage->name) == 0) {
            ok = write_stopped(c, stage);
            break;
        }
        if (ok && c->check && stage->run == run_legalize)
            last = last_refusal(c->graph);
        if (last && strcmp(last, stage->name) == 0)
            break;
    }
    if (o->time_passes)
        report_times(c, cost, n);
    return ok && (!o->time_trace || !c->output || trace_write(c, cost, n));
}

/* Everything of a compilation below its unwind point. `last`: a stage, or NULL for the whole way to an output. */
static bool compile_run(struct compilation *c, const char *last)
{
    const struct options *o = c->options;
    if (!stages_known(c->ctx, o) || !prefix_check(c->ctx, o->prefix) || !targets_check(c->ctx, o) || !remarks_check(c->ctx, o))
        return false;
    if (o->stop_after)
        c->output = o->output && strcmp(o->output, "-") != 0 ? o->output : NULL;
    else if (!last)
        c->output = o->output ? o->output : output_default(c->ctx, o, c->ctx->model_path);
    if (c->output && strcmp(c->output, "-") == 0)
        return error_at(c->ctx, FAIL_USAGE, (src_id){0}, NULL, "the output is a file: only -stop-after writes to standard output");
    if (c->output) {
        struct file_list model = {0};
        VEC_PUSH(&c->ctx->session, &model.paths, c->ctx->model_path);
        if (!output_name_check(c->ctx, o, c->output) || !output_check(c->ctx, c->output) || !output_differs(c->ctx, c->output, &model, o->config))
            return false;
    }
    if (!stages_run(c, last))
        return false;
    return !c->output || o->stop_after || !(o->depend || o->depend_file) || depend_write(c, c->output);
}

static enum fail compile_guarded(struct compilation *c, const char *model, const char *last)
{
    struct context *ctx = c->ctx;
    jmp_buf here, *outer = ctx->unwind;
    ctx->limits = c->options->limits;
    ctx->kind_limit = (uint32_t)c->options->error_limit;
    ctx->werror = c->options->werror;
    ctx->model_path = model;
    ctx->unwind = &here;
    if (setjmp(here) == 0 && !compile_run(c, last) && ctx->fail == FAIL_NONE)
        error_internal(ctx, (src_id){0}, "a stage failed without saying why");
    if (c->codegen)
        codegen_end(c->codegen);
    c->codegen = NULL;
    if (setjmp(here) == 0)
        report_diagnostics(ctx, c->report, c->options);
    ctx->unwind = outer;
    return ctx->fail;
}

enum fail compile_model(struct context *ctx, const struct options *o, const char *model, const char *last,
                        struct report report)
{
    struct compilation c = {.ctx = ctx, .options = o, .report = report};
    return compile_guarded(&c, model, last);
}

enum fail compile_check(struct context *ctx, const struct options *o, const char *model, struct report report)
{
    struct compilation c = {.ctx = ctx, .options = o, .report = report, .check = true};
    return compile_guarded(&c, model, "legalize");
}

enum fail compile_keep(struct compilation *c, const char *model, const char *last)
{
    return compile_guarded(c, model, last);
}

struct graph *compile_graph(struct context *ctx, const struct options *o, const char *model, struct report report)
{
    struct compilation c = {.ctx = ctx, .options = o, .report = report};
    return compile_guarded(&c, model, "legalize") == FAIL_NONE ? c.graph : NULL;
}

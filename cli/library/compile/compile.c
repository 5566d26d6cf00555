/* A compilation from a model file: what its first stages do, and what is checked before them.
 *
 * The one unwind point of a compilation is here: running out of memory or time anywhere below ends in
 * compile_guarded().
 */
#include "cli/library/compile/backend.h"
#include "cli/library/compile/build_note.h"
#include "cli/library/options/targets.h"
#include "passes/module/choices.h"

/* What makes a graph of the core operators whole, constants included. */
#define LAST_OF_GRAPH "settle-constants"
/* What rounds more than the file says, where options ask for it. */
#define LAST_OF_ROUNDING "narrow-constants"

/* ---- the graph's stages ---------------------------------------------------------------------------------------- */

static bool network_is_expected(struct compilation *c)
{
    char digest[DIGEST_TEXT];
    return build_note_network(c, digest) &&
           (strcmp(digest, c->expected) == 0 || error_at(c->ctx, FAIL_CLAIM, (src_id){0}, NULL,
                                                         "another network: its BLAKE3 is %s, and that of the one which "
                                                         "the artifact was made of is %s",
                                                         digest, c->expected));
}

bool run_import(struct compilation *c)
{
    const struct options *o = c->options;
    struct import_options import = {
        .overridable = o->overridable.items.data,
        .n_overridable = o->overridable.items.n,
        .allow_hard_links = o->hard_links,
    };
    if (!input_specs_parse(c->ctx, &o->inputs, &c->inputs, &c->n_inputs))
        return option_blame(c->ctx, o, "input", o->inputs.items.data[c->n_inputs]);
    if (c->output)
        recall_watch(c);
    c->graph = network_import(c->ctx, c->ctx->model_path, &import, &c->files);
    recall_watched(c);
    c->imported = c->module->g = c->graph;
    if (c->graph)
        c->constants_in = stats_constants(c->graph);
    if (c->graph && c->module->report)
        stats_census(c->graph, "imported", c->module->report);
    if (c->graph && c->expected && !network_is_expected(c))
        return false;
    if (!c->graph || !c->output)
        return c->graph;
    const char *sidecar = output_sidecar(c->ctx, o, c->output);
    return output_differs(c->ctx, c->output, &c->files, o->config) &&
           (!sidecar || (output_check(c->ctx, sidecar) && output_differs(c->ctx, sidecar, &c->files, o->config)));
}

/* The last stage of a check: the last one that can refuse a network, whose answer is that of the compilation. Networks
 * larger than that, for which it would take many seconds, are looked at up to the graph's last stage, but where they
 * have elements that no kernel computes with: which operators take strings and complex numbers follows from the kernels
 * and calls they end up in. */
enum { CHECKED_NODES = 50000 };

static const char *last_refusal(const struct graph *g)
{
    uint32_t live = 0;
    for (uint32_t i = 1; i < g->nodes.n; i++)
        live += !g->nodes.data[i].dead;
    bool whole = live <= CHECKED_NODES;
    for (uint32_t v = 1; !whole && v < g->values.n; v++) {
        const struct type *t = value_type(g, (value_id){v});
        while (t->kind != TYPE_TENSOR && t->inner)
            t = t->inner;
        whole = t->kind == TYPE_TENSOR && (elem_class(t->elem) == 'S' || elem_class(t->elem) == 'C');
    }
    return whole ? "emit" : LAST_OF_GRAPH;
}

/* Where words are multiplied, three of a group's four bytes are worth it; where registers are or bytes, none. */
static uint8_t few_channels(const struct machine *m)
{
    enum { WORD = 4 };
    return m->span == 0 ? 0 : m->span == WORD ? WORD - 1 : WORD;
}

/* What --choose says of a product (struct legalize_options). */
static enum arithmetic arithmetic_chosen(void *user, const char *label, bool is_conv, struct operand_range *range)
{
    struct choice *c = choice_latest(user, label, CHOOSE_PRECISION);
    bool ranged = c && c->range[0] < c->range[1];
    if (!c || c->n[0] != PRECISION_INT8 || (!ranged && is_conv))
        return ARITHMETIC_F32;
    c->asked = true;
    *range = (struct operand_range){c->range[0], c->range[1]};
    return ranged ? ARITHMETIC_INT8 : ARITHMETIC_DYNAMIC;
}

static const enum weights_type cache_types[n_option_cache_type] = {[OPT_CACHE_TYPE_BF16] = WEIGHTS_BF16,
                                                                   [OPT_CACHE_TYPE_F16] = WEIGHTS_F16,
                                                                   [OPT_CACHE_TYPE_F8] = WEIGHTS_F8,
                                                                   [OPT_CACHE_TYPE_INT8] = WEIGHTS_I8};

bool run_legalize(struct compilation *c)
{
    const struct options *o = c->options;
    struct legalize_options legal = {.inputs = c->inputs,
                                     .n_inputs = c->n_inputs,
                                     .unroll_nodes = o->limits.unroll_nodes,
                                     .bytes = o->precision == OPT_PRECISION_INT8    ? BYTES_ALWAYS
                                              : o->precision == OPT_PRECISION_EXACT ? BYTES_NEVER
                                                                                    : BYTES_BY_FILE,
                                     .signed_bytes = targets_signed(c->ctx, o),
                                     .few_channels = few_channels(&targets_best(c->ctx, o)->machine),
                                     .chosen = arithmetic_chosen,
                                     .user = c->module,
                                     .probe = c->probe,
                                     .cache_type = weights_rows[cache_types[o->cache_type]].elem,
                                     .adapters = o->lora,
                                     .strict = o->strict,
                                     .last_logits = o->last_logits};
    struct graph *imported = c->graph;
    c->graph = c->module->g = legalize(c->ctx, imported, &legal);
    if (c->graph && c->module->report)
        stats_census(c->graph, "legal", c->module->report);
    if (c->graph && c->check)
        c->last = last_refusal(c->graph);
    c->module->facts &= ~(uint32_t)IS_IMPORTED;
    return c->graph;
}

bool run_settle(struct compilation *c)
{
    return constants_settle(c->graph);
}

void print_graph(const struct compilation *c, struct strbuf *out)
{
    if (c->options->dot)
        graph_dot(c->graph, out);
    else
        graph_print(c->graph, out, c->options->print_full);
}

bool verify_graph(struct compilation *c)
{
    return graph_verify(c->graph);
}
bool verify_module(struct compilation *c)
{
    return module_verify(c->module);
}

/* ---- the whole way --------------------------------------------------------------------------------------------- */

/* What the option table cannot say of --prefix: a C name. */
static bool prefix_check(struct context *ctx, const char *p)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    if (p && (p[strspn(p, letters)] || (*p >= '0' && *p <= '9')))
        return error_usage(ctx, "'prefix' takes letters, digits and _, not '%s'", p);
    return true;
}

/* Everything of a compilation below its unwind point. */
static bool compile_run(struct compilation *c)
{
    const struct options *o = c->options;
    if (!stages_known(c->ctx, o) || !prefix_check(c->ctx, o->prefix) || !targets_check(c->ctx, o) ||
        !remarks_check(c->ctx, o))
        return false;
    if (o->stop_after)
        c->output = o->output && strcmp(o->output, "-") != 0 ? o->output : NULL;
    else if (!c->last)
        c->output = o->output ? o->output : output_default(c->ctx, o, c->ctx->model_path);
    if (c->output && strcmp(c->output, "-") == 0)
        return error_usage(c->ctx, "the output is a file: only -stop-after writes to standard output");
    if (c->output) {
        struct file_list model = {0};
        VEC_PUSH(&c->ctx->session, &model.paths, c->ctx->model_path);
        if (!output_name_check(c->ctx, o, c->output) || !output_check(c->ctx, c->output) ||
            !output_differs(c->ctx, c->output, &model, o->config))
            return false;
    }
    if (!module_begin(c) || !stages_run(c, NULL))
        return false;
    return !c->output || o->stop_after || !(o->depend || o->depend_file) || depend_write(c, c->output);
}

static enum fail compile_guarded(struct compilation *c, const char *model)
{
    struct context *ctx = c->ctx;
    jmp_buf here, *outer = ctx->unwind;
    ctx->limits = c->options->limits;
    ctx->kind_limit = (uint32_t)c->options->error_limit;
    ctx->werror = c->options->werror;
    ctx->model_path = model;
    ctx->line = ctx->column = 0;
    ctx->unwind = &here;
    if (setjmp(here) == 0) {
        time_begin(ctx);
        if (!compile_run(c) && ctx->fail == FAIL_NONE)
            error_internal(ctx, (src_id){0}, "a stage failed without saying why");
    }
    time_end(ctx);
    recall_watched(c);
    if (c->codegen)
        codegen_end(c->codegen);
    c->codegen = NULL;
    report_step(c, NULL, 0, 0);
    if (setjmp(here) == 0)
        report_diagnostics(ctx, c->report, c->options);
    ctx->unwind = outer;
    return ctx->fail;
}

enum fail compile_model(struct context *ctx, const struct options *o, const char *model, const char *last,
                        struct report report)
{
    struct compilation c = {
        .ctx = ctx, .options = o, .report = report, .last = last, .in_field = o->in_field, .recalls = true};
    ctx->field_code = o->in_field;
    return compile_guarded(&c, model);
}

enum fail compile_check(struct context *ctx, const struct options *o, const char *model, struct report report)
{
    struct compilation c = {.ctx = ctx, .options = o, .report = report, .check = true, .last = LAST_OF_GRAPH};
    return compile_guarded(&c, model);
}

enum fail compile_keep(struct compilation *c, const char *model, const char *last)
{
    c->last = last;
    return compile_guarded(c, model);
}

struct graph *compile_graph(struct context *ctx, const struct options *o, const char *model, struct report report)
{
    bool rounds = o->precision != OPT_PRECISION_F32 || o->weights_type != OPT_WEIGHTS_TYPE_AUTO || o->choices.items.n;
    struct compilation c = {
        .ctx = ctx, .options = o, .report = report, .last = rounds ? LAST_OF_ROUNDING : LAST_OF_GRAPH};
    return compile_guarded(&c, model) == FAIL_NONE ? c.graph : NULL;
}

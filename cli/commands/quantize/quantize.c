/* mcc quantize: a float network as one of bytes, after training, from samples of its inputs.
 *
 * Everything is an edit of the network's file. Compiled with the values between its nodes as further outputs, it runs
 * on each sample, and histograms of what comes out give each value's range; where channels differ, scales move into the
 * weights after them first, and the values are looked at again. Then QuantizeLinear and DequantizeLinear go around
 * what has a form for bytes (quantize_plan.c), weights become bytes (quantize_weights.c), and the file is compiled and
 * run on the same samples. Where its outputs are further off than --bound allows, each node is tried alone on bytes,
 * and nodes stay in f32 until the bound holds: the first and the last product, then those that cost most (search.c).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/commands/artifact/artifact.h"
#include "cli/commands/command.h"
#include "cli/commands/quantize/quantize.h"
#include "cli/commands/quantize/search.h"
#include "cli/commands/temporary.h"
#include "ir/base/file.h"
#include "ir/eval/eval.h"

struct quantize {
    struct quantizer q;
    struct options plain;          /* for networks that run here, on samples */
    struct trial t;                /* and what they give */
    struct search s;               /* for the sites that stay in f32 */
    double whole;                  /* the sum of all sites' squares */
};

/* ---- a file that lives in memory --------------------------------------------------------------------------------- */

static bool compile_result(struct quantize *z, const char *model)
{
    struct options compiling = *z->q.options;
    const char *path = z->q.ctx->model_path;
    compiling.quiet = true; /* what there was to say of the network was said of the file */
    bool ok = compile_apart(z->q.ctx, &compiling, model, NULL, NULL, NULL,
                            NULL); /* the artifact's table has nodes of this file alone */
    z->q.ctx->model_path = path;
    return ok;
}

struct edited {
    struct quantize *z;
    void (*use)(void *user);
    int fd;
};

/* Compiles the edited network from a path that the importer reads. */
static bool edited_use(void *user)
{
    struct edited *e = user;
    struct quantize *z = e->z;
    struct arena copy; /* of the file, for the while */
    struct strbuf text;
    arena_init(&copy, z->q.ctx);
    strbuf_init(&text, &copy);
    z->q.editor->write(z->q.file, &text);
    e->fd = memfd_create("network", MFD_CLOEXEC);
    bool kept = e->fd >= 0 && fd_write(e->fd, text.data, text.n);
    arena_release(&copy);
    if (!kept)
        return error_env(z->q.ctx, "cannot keep the network in memory");
    const char *model = arena_printf(&z->q.ctx->session, "/proc/self/fd/%d", e->fd);
    return e->use ? trial_run(&z->t, &z->plain, model, e->use, z) : compile_result(z, model);
}

static void edited_end(void *user)
{
    struct edited *e = user;
    if (e->fd >= 0)
        close(e->fd);
}

/* Compiles the edited network for this machine and calls use with z->t.s open; NULL: compiles the result. */
static bool with_edited(struct quantize *z, void (*use)(void *user))
{
    struct edited e = {z, use, -1};
    return run_guarded(z->q.ctx, edited_use, edited_end, &e);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static bool is_f32(DLDataType type)
{
    return elem_by_dlpack(type) == ELEM_F32;
}

static bool look_at(struct quantize *z, struct edge *e, const DLTensor *t)
{
    int32_t axis = t->ndim < 2 ? -1 : e->last_axis ? t->ndim - 1 : 1;
    return seen_add(&z->q.ctx->session, &e->seen, trial_data(t), t->shape, t->ndim, axis) ||
           error_at(z->q.ctx, FAIL_MODEL, (src_id){0}, e->name,
                    "the samples make this value infinite or not a number; give other samples (--sample)");
}

/* The outputs that were added come after the network's own. */
static bool look_at_all(void *user, uint32_t k, DLManagedTensorVersioned **out)
{
    struct quantize *z = user;
    const mcc_api *api = z->t.s.api;
    for (uint32_t i = 0; i < z->q.edges.n; i++) {
        struct edge *e = &z->q.edges.data[i];
        for (uint32_t p = 0; p < api->n_in; p++) {
            struct file_tensor *b = &z->t.samples.of[k * z->t.samples.n_inputs + p];
            DLTensor t = {b->data, {kDLCPU, 0}, b->rank, elem_dlpack(b->elem), b->dims, NULL, 0};
            e->is_float |= is_f32(t.dtype) && strcmp(api->in[p].name, e->name) == 0;
            if (is_f32(t.dtype) && strcmp(api->in[p].name, e->name) == 0 && !look_at(z, e, &t))
                return false;
        }
        for (uint32_t p = 0; p < api->n_out; p++) {
            bool mine = strcmp(api->out[p].name, e->name) == 0 && is_f32(out[p]->dl_tensor.dtype);
            e->is_float |= mine;
            if (mine && !look_at(z, e, &out[p]->dl_tensor))
                return false;
        }
    }
    return true;
}

static void observe(void *user)
{
    struct quantize *z = user;
    for (uint32_t i = 0; i < z->q.edges.n; i++)
        z->q.edges.data[i].seen = (struct seen){0};
    (void)trial_observe(&z->t, look_at_all, z);
}

/* ---- attempts ---------------------------------------------------------------------------------------------------- */

static void judge(void *user)
{
    (void)trial_judge(&((struct quantize *)user)->t);
}

static bool try_kept(struct quantize *z)
{
    z->q.editor->reset(z->q.file);
    plan_apply(&z->q);
    return with_edited(z, judge);
}

/* False: they were kept already. */
static bool keep_chosen(struct quantize *z)
{
    bool changed = false;
    for (uint32_t i = 0; i < z->q.sites.n; i++) {
        bool kept = z->s.ways[i].chosen == ARITHMETIC_F32;
        changed |= kept != z->q.sites.data[i].kept;
        z->q.sites.data[i].kept = kept;
    }
    return changed;
}

/* The first and the last product do not go back to bytes. */
static void end_sites(const struct quantizer *q, uint32_t ends[2])
{
    ends[0] = ends[1] = 0;
    for (uint32_t i = 0; i < q->sites.n; i++) {
        const struct site *s = &q->sites.data[i];
        if (s->is_product && s->node < q->sites.data[ends[0]].node)
            ends[0] = i;
        if (s->is_product && (s->node > q->sites.data[ends[1]].node || !q->sites.data[ends[1]].is_product))
            ends[1] = i;
    }
}

/* What each site alone adds to the outputs. */
static bool measure_sites(void *user)
{
    struct quantize *z = user;
    struct quantizer *q = &z->q;
    uint32_t ends[2];
    end_sites(q, ends);
    for (uint32_t i = 0; i < q->sites.n; i++)
        q->sites.data[i].kept = true;
    for (uint32_t i = 0; i < q->sites.n; i++) {
        q->sites.data[i].kept = false;
        if (!try_kept(z))
            return false;
        q->sites.data[i].kept = true;
        z->whole += q->sites.data[i].square = trial_square(&z->t);
        z->s.ways[i].of[ARITHMETIC_INT8].square = i == ends[0] || i == ends[1] ? INFINITY : q->sites.data[i].square;
    }
    return true;
}

static bool attempt(void *user, struct measured *error)
{
    struct quantize *z = user;
    struct quantizer *q = &z->q;
    (void)keep_chosen(z);
    if (!try_kept(z))
        return false;
    const double bound = q->options->bound, worst = trial_worst(&z->t, deviation_rms);
    *error = (struct measured){.rms = worst, .part = bound > 0 ? worst / bound : 0};
    error->outputs = arena_copy(&q->ctx->session, z->t.error, z->t.n_want * sizeof *z->t.error);
    if (q->options->verbose) {
        struct strbuf line;
        strbuf_init(&line, &q->ctx->session);
        strbuf_printf(&line, "with %.0f nodes in f32 the error is %.3g\n", search_ns(z->s.ways, z->s.n), worst);
        terminal_print(&line);
    }
    return true;
}

/* Quantizes, with as few sites in f32 as the bound allows: *kept. False after a diagnostic. */
static bool attempt_all(struct quantize *z, uint32_t *kept)
{
    struct quantizer *q = &z->q;
    z->s = (struct search){.ctx = q->ctx, .n = q->sites.n, .hopeful = true, .user = z};
    z->s.ways = NEW_ARRAY(&q->ctx->session, struct site_ways, q->sites.n + 1);
    z->s.first = q->options->bound * q->options->bound;
    z->s.try = attempt;
    z->s.measure = measure_sites;
    for (uint32_t i = 0; i < q->sites.n; i++) {
        z->s.ways[i].of[ARITHMETIC_F32] = (struct way){.possible = true, .ns = 1};
        z->s.ways[i].of[ARITHMETIC_INT8].possible = true;
    }
    if (!search_run(&z->s))
        return false;
    *kept = (uint32_t)search_ns(z->s.ways, z->s.n);
    if (!search_all_exact(&z->s)) {
        if (keep_chosen(z)) { /* it was not the last that was tried */
            q->editor->reset(q->file);
            plan_apply(q);
        }
        z->t.error = z->s.error.outputs;
        return true;
    }
    return error_model(q->ctx, (src_id){0},
                       "nothing can be quantized with an error of at most %g; raise --bound or give more samples",
                       q->options->bound);
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static bool write_result(struct quantize *z)
{
    const struct options *o = z->q.options;
    struct strbuf text;
    if (!format_by_suffix(o->output))
        return with_edited(z, NULL);
    strbuf_init(&text, &z->q.ctx->session);
    z->q.editor->write(z->q.file, &text);
    return output_write(z->q.ctx, o->output, text.data, text.n);
}

static void report(const struct quantize *z, uint32_t kept)
{
    const struct quantizer *q = &z->q;
    struct strbuf text;
    strbuf_init(&text, &q->ctx->session);
    trial_print(&z->t, &text);
    for (uint32_t i = 0; i < q->sites.n; i++) {
        const struct edit_node *e = q->editor->node(q->file, q->sites.data[i].node);
        if (q->sites.data[i].kept)
            strbuf_printf(&text, "in f32: %s (%s), %.2f%% of the error\n", *e->name ? e->name : e->out[0], e->op,
                          z->whole > 0 ? 100 * q->sites.data[i].square / z->whole : 0);
    }
    strbuf_printf(&text, "%s: %u of %u nodes on bytes, %u sample%s\n", q->options->output, q->sites.n - kept,
                  q->sites.n, z->t.samples.n, z->t.samples.n == 1 ? "" : "s");
    if (!q->options->quiet)
        terminal_print(&text);
}

static void add_observed(struct quantize *z)
{
    struct quantizer *q = &z->q;
    q->editor->reset(q->file);
    for (uint32_t i = 0; i < q->sites.n; i++)
        q->sites.data[i].kept = true;
    plan_apply(q);
    for (uint32_t i = 0; i < q->edges.n; i++)
        if (!z->t.samples.n || q->edges.data[i].is_float)
            q->editor->add_output(q->file, q->edges.data[i].name);
}

static bool quantize(struct quantize *z)
{
    struct quantizer *q = &z->q;
    uint32_t kept = 0;
    plan_make(q);
    add_observed(z);
    if (!with_edited(z, observe))
        return false;
    report_diagnostics(q->ctx, terminal_report(), q->options);
    if (q->ctx->fail != FAIL_NONE)
        return false;
    plan_settle(q);
    if (!q->sites.n)
        return error_model(
            q->ctx, (src_id){0},
            "the network has no convolution or matrix product of f32 with constant weights, which is what mcc quantizes");
    if (weights_equalize(q)) {
        add_observed(z);
        if (!with_edited(z, observe))
            return false;
    }
    for (uint32_t i = 0; i < q->edges.n; i++)
        if (q->edges.data[i].is_float)
            q->edges.data[i].range = range_choose(&q->edges.data[i].seen, q->method);
    weights_quantize(q);
    if (!attempt_all(z, &kept) || !write_result(z))
        return false;
    report(z, kept);
    return true;
}

enum fail command_quantize(struct context *ctx, struct options *o)
{
    struct quantize *z = NEW(&ctx->session, struct quantize);
    const char *model = o->files.items.data[0];
    struct options seeing = *o;
    struct file_list read = {0};
    VEC_PUSH(&ctx->session, &read.paths, model);
    ctx->model_path = model;
    o->output = o->output ? o->output : output_default(ctx, o, model);
    const struct format *format = format_of(model);
    if (!format->hooks->editor) {
        error_at(ctx, FAIL_MODEL, (src_id){0}, NULL, "%s files cannot be quantized: export the network to ONNX",
                 format->name);
        return ctx->fail;
    }
    if (format_by_suffix(o->output) && format_by_suffix(o->output) != format) {
        error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "'%s': a quantized network has the format of the given one, %s",
                 o->output, format->suffix);
        return ctx->fail;
    }
    if ((!format_by_suffix(o->output) && !output_name_check(ctx, o, o->output)) || !output_check(ctx, o->output) ||
        !output_differs(ctx, o->output, &read, o->config))
        return ctx->fail;
    seeing.output = NULL;
    struct graph *g = compile_graph(ctx, &seeing, model, terminal_report());
    z->q = (struct quantizer){.ctx = ctx, .options = o, .editor = format->hooks->editor};
    const struct import_options import = {.allow_hard_links = o->hard_links};
    z->q.file = g ? z->q.editor->open(ctx, model, &import, &read) : NULL;
    if (!z->q.file || !output_differs(ctx, o->output, &read, o->config))
        return ctx->fail;
    z->q.method = o->ranges;
    z->t.ctx = ctx;
    z->t.options = o;
    trial_outputs(&z->t, g);
    trial_options(o, &z->plain);
    ctx->model_path = model;
    if (!quantize(z) && ctx->fail == FAIL_NONE)
        ctx->fail = FAIL_INTERNAL;
    return ctx->fail;
}

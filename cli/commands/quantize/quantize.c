/* mcc quantize: a float network as one of bytes, after training, from samples of its inputs.
 *
 * Everything is an edit of the network's file. Compiled with the values between its nodes as further outputs, it runs
 * on each sample, and histograms of what comes out give each value's range; where channels differ, scales move into the
 * weights after them first, and the values are looked at again. Then QuantizeLinear and DequantizeLinear go around
 * what has a form for bytes (quantize_plan.c), weights become bytes (quantize_weights.c), and the file is compiled and
 * run on the same samples. Where its outputs are further off than --bound allows, the search of --error (error.h)
 * chooses which nodes stay in f32: its products are the sites, and its networks are edited files.
 */
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/commands/command.h"
#include "cli/commands/quantize/error.h"
#include "ir/base/file.h"

struct quantize {
    struct quantizer q;
    struct error_search *e;
};

/* ---- a file that lives in memory --------------------------------------------------------------------------------- */

struct edited {
    struct quantize *z;
    bool (*use)(struct quantize *, const char *model, struct edited *);
    void (*see)(void *user); /* of the open network */
    void *user;
    int fd;
};

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
    return e->use(z, arena_printf(&z->q.ctx->session, "/proc/self/fd/%d", e->fd), e);
}

static void edited_end(void *user)
{
    struct edited *e = user;
    if (e->fd >= 0)
        close(e->fd);
}

/* Calls use with a path from which the importer reads the edited network. */
static bool with_edited(struct quantize *z, bool (*use)(struct quantize *, const char *model, struct edited *),
                        void (*see)(void *user), void *user)
{
    struct edited e = {z, use, see, user, -1};
    return run_guarded(z->q.ctx, edited_use, edited_end, &e);
}

static bool edited_compile(struct quantize *z, const char *model, struct edited *unused)
{
    struct options compiling = *z->q.options;
    const char *path = z->q.ctx->model_path;
    compiling.quiet = true; /* what there was to say of the network was said of the file */
    (void)unused;
    bool ok = compile_apart(z->q.ctx, &compiling, model, NULL, NULL, NULL,
                            NULL); /* the artifact's table has nodes of this file alone */
    z->q.ctx->model_path = path;
    return ok;
}

static bool edited_run(struct quantize *z, const char *model, struct edited *e)
{
    return trial_run(&z->e->t, &z->e->plain, model, e->see, e->user);
}

static bool edited_costs(struct quantize *z, const char *model, struct edited *unused)
{
    (void)unused;
    z->e->model = model;
    return error_costs(z->e);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

/* A value of a sample, of whatever type: an input or an output. */
static bool look_at(struct quantize *z, const char *name, const DLTensor *t)
{
    struct edge *e = plan_edge(&z->q, name);
    if (!e || elem_by_dlpack(t->dtype) != ELEM_F32)
        return true;
    int32_t axis = t->ndim < 2 ? -1 : e->last_axis ? t->ndim - 1 : 1;
    e->is_float = true;
    return seen_add(&z->q.ctx->session, &e->seen, trial_data(t), t->shape, t->ndim, axis) ||
           error_at(z->q.ctx, FAIL_MODEL, (src_id){0}, e->name,
                    "the samples make this value infinite or not a number; give other samples (--sample)");
}

/* The outputs that were added come after the network's own. */
static bool look_at_all(void *user, uint32_t k, DLManagedTensorVersioned **out)
{
    struct quantize *z = user;
    const struct samples *samples = &z->e->t.samples;
    const mcc_api *api = z->e->t.s.api;
    for (uint32_t p = 0; p < api->n_in; p++) {
        struct file_tensor *b = &samples->of[k * samples->n_inputs + p];
        DLTensor t = {b->data, {kDLCPU, 0}, b->rank, elem_dlpack(b->elem), b->dims, NULL, 0};
        if (!look_at(z, api->in[p].name, &t))
            return false;
    }
    for (uint32_t p = 0; p < api->n_out; p++)
        if (!look_at(z, api->out[p].name, &out[p]->dl_tensor))
            return false;
    return true;
}

static void observe(void *user)
{
    struct quantize *z = user;
    for (uint32_t i = 0; i < z->q.edges.n; i++)
        z->q.edges.data[i].seen = (struct seen){0};
    (void)error_observe(z->e, look_at_all, z);
}

static void edit_none(struct quantizer *q)
{
    q->editor->reset(q->file);
    for (uint32_t i = 0; i < q->sites.n; i++)
        q->sites.data[i].kept = true;
    plan_apply(q);
}

/* Runs the network in f32 on the samples. */
static bool look(struct quantize *z)
{
    struct quantizer *q = &z->q;
    edit_none(q);
    for (uint32_t i = 0; i < q->edges.n; i++)
        if (!z->e->t.samples.n || q->edges.data[i].is_float)
            q->editor->add_output(q->file, q->edges.data[i].name);
    return with_edited(z, edited_run, observe, z);
}

/* ---- nodes that stay in f32 -------------------------------------------------------------------------------------- */

static const char *label_of(const struct edit_node *e)
{
    return *e->name ? e->name : e->out[0];
}

/* What each site alone adds to the outputs. */
static bool measure_sites(void *user)
{
    struct quantize *z = ((struct error_search *)user)->network_user;
    edit_none(&z->q);
    return with_edited(z, edited_costs, NULL, NULL);
}

static void edit_chosen(struct quantize *z)
{
    bool changed = false;
    for (uint32_t i = 0; i < z->q.sites.n; i++) {
        bool kept = z->e->s.ways[i].chosen == ARITHMETIC_F32;
        changed |= kept != z->q.sites.data[i].kept;
        z->q.sites.data[i].kept = kept;
    }
    if (!changed) /* new names would be others */
        return;
    z->q.editor->reset(z->q.file);
    plan_apply(&z->q);
}

static bool run_chosen(struct error_search *e, void (*use)(void *user), void *user)
{
    struct quantize *z = e->network_user;
    edit_chosen(z);
    return with_edited(z, edited_run, use, user);
}

/* The sites as products of the search: as many as possible in int8, whatever each saves. */
static void search_sites(struct quantize *z)
{
    struct quantizer *q = &z->q;
    struct error_search *e = z->e;
    struct arena *arena = &q->ctx->session;
    e->s.n = q->sites.n;
    e->s.ways = NEW_ARRAY(arena, struct site_ways, q->sites.n + 1);
    for (uint32_t i = 0; i < q->sites.n; i++) {
        const struct site *s = &q->sites.data[i];
        const struct edit_node *node = q->editor->node(q->file, s->node);
        struct probed_product p = {.label = label_of(node), .op = node->op, .n_ranges = s->n_edges};
        struct operand_range *ranges = NEW_ARRAY(arena, struct operand_range, s->n_edges + 1);
        for (uint32_t k = 0; k < s->n_edges; k++)
            ranges[k] = range_ends(q->edges.data[s->edges[k]].range);
        p.ranges = ranges;
        p.range = ranges[0];
        const struct probed_weights w = {s->w.dims, s->w.rank, s->out_axis, s->bytes, s->scales, s->corrected};
        p.weights = s->is_product ? arena_copy(arena, &w, sizeof w) : NULL;
        VEC_PUSH(arena, &e->probe.products, p);
        e->s.ways[i].of[ARITHMETIC_F32] = (struct way){.possible = true, .ns = 1};
        e->s.ways[i].of[ARITHMETIC_INT8].possible = true;
    }
}

/* Quantizes, with as few sites in f32 as the bound allows. False after a diagnostic. */
static bool choose_sites(struct quantize *z)
{
    struct error_search *e = z->e;
    const double bound = z->q.options->bound;
    search_sites(z);
    e->size = deviation_rms;
    e->bound = bound > 0 ? bound : INFINITY;
    e->network = run_chosen;
    e->network_user = z;
    e->s.hopeful = true;
    e->s.measure = measure_sites;
    if (!error_run(e))
        return false;
    edit_chosen(z); /* the last that was tried may be another one */
    return !search_all_exact(&e->s) ||
           error_model(z->q.ctx, (src_id){0},
                       "nothing can be quantized with an error of at most %g; raise --bound or give more samples",
                       bound);
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static bool write_result(struct quantize *z)
{
    const struct options *o = z->q.options;
    struct strbuf text;
    if (!format_by_suffix(o->output))
        return with_edited(z, edited_compile, NULL, NULL);
    strbuf_init(&text, &z->q.ctx->session);
    z->q.editor->write(z->q.file, &text);
    return output_write(z->q.ctx, o->output, text.data, text.n);
}

static void report(const struct quantize *z)
{
    const struct quantizer *q = &z->q;
    const struct error_search *e = z->e;
    uint32_t kept = 0;
    struct strbuf text;
    strbuf_init(&text, &q->ctx->session);
    error_print_outputs(e, &text);
    for (uint32_t i = 0; i < q->sites.n; i++) {
        const struct edit_node *node = q->editor->node(q->file, q->sites.data[i].node);
        const struct way *w = &e->s.ways[i].of[ARITHMETIC_INT8];
        if (!q->sites.data[i].kept)
            continue;
        kept++;
        strbuf_printf(&text, "in f32: %s (%s), ", label_of(node), node->op);
        strbuf_printf(&text, isfinite(w->square) ? "alone in int8 an error of %.3g\n" : "not measured\n",
                      sqrt(w->square));
    }
    strbuf_printf(&text, "%s: %u of %u nodes on bytes, %u sample%s\n", q->options->output, q->sites.n - kept,
                  q->sites.n, e->t.samples.n, e->t.samples.n == 1 ? "" : "s");
    if (!q->options->quiet)
        terminal_print(&text);
}

static bool quantize(struct quantize *z)
{
    struct quantizer *q = &z->q;
    plan_make(q);
    z->e->s.n = q->sites.n;
    if (!look(z))
        return false;
    report_diagnostics(q->ctx, terminal_report(), q->options);
    if (q->ctx->fail != FAIL_NONE)
        return false;
    plan_settle(q);
    if (!q->sites.n)
        return error_model(
            q->ctx, (src_id){0},
            "the network has no convolution or matrix product of f32 with constant weights, which is what mcc quantizes");
    if (weights_equalize(q) && !look(z))
        return false;
    for (uint32_t i = 0; i < q->edges.n; i++)
        if (q->edges.data[i].is_float)
            q->edges.data[i].range = range_choose(&q->edges.data[i].seen, q->method);
    weights_quantize(q);
    if (!choose_sites(z) || !write_result(z))
        return false;
    report(z);
    return true;
}

enum fail command_quantize(struct context *ctx, struct options *o)
{
    struct quantize z = {0};
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
    z.q = (struct quantizer){.ctx = ctx, .options = o, .editor = format->hooks->editor};
    const struct import_options import = {.allow_hard_links = o->hard_links};
    z.q.file = g ? z.q.editor->open(ctx, model, &import, &read) : NULL;
    if (!z.q.file || !output_differs(ctx, o->output, &read, o->config))
        return ctx->fail;
    z.q.method = o->ranges;
    z.e = error_new(ctx, o, model, "quantize");
    trial_outputs(&z.e->t, g);
    ctx->model_path = model;
    if (!quantize(&z) && ctx->fail == FAIL_NONE)
        ctx->fail = FAIL_INTERNAL;
    return ctx->fail;
}

/* mcc quantize: a float network as one of bytes, after training, from samples of its inputs.
 *
 * Everything is an edit of the network's file. Compiled with the values between its nodes as further outputs, it runs
 * on each sample, and histograms of what comes out give each value's range; where channels differ, scales move into the
 * weights behind them first, and the values are looked at again. Then QuantizeLinear and DequantizeLinear go around
 * what has a form for bytes (quantize_plan.c), weights become bytes (quantize_weights.c), and the file is compiled and
 * run on the same samples. While its outputs are further off than --bound allows, nodes stay in f32: the first and the
 * last product, then twice as many as before of those whose rounding costs most.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/artifact/artifact.h"
#include "cli/command.h"
#include "cli/commands/quantize.h"
#include "cli/commands/temporary.h"
#include "ir/base/file.h"
#include "ir/eval/eval.h"

struct quantize {
    struct quantizer q;
    struct options plain;          /* for networks that run here, on samples */
    struct samples samples;
    struct tensor *want;           /* n samples times n_want */
    uint32_t n_want;
    struct session s;
    void (*use)(struct quantize *);
    const char *model;             /* of the compilation at hand */
    struct deviation *error;       /* by output, of the last attempt */
    const char **want_names;
};

/* ---- a file that lives in memory --------------------------------------------------------------------------------- */

static bool write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* The edited network, by a path that the importer reads; *fd closes it. NULL after a diagnostic. */
static const char *edited_file(struct quantize *z, int *fd)
{
    struct strbuf text;
    strbuf_init(&text, &z->q.ctx->session);
    z->q.editor->write(z->q.file, &text);
    *fd = memfd_create("network", MFD_CLOEXEC);
    if (*fd < 0 || !write_all(*fd, text.data, text.n)) {
        error_env(z->q.ctx, "cannot keep the network in memory");
        return NULL;
    }
    return arena_printf(&z->q.ctx->session, "/proc/self/fd/%d", *fd);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void compile_and_use(void *user, const char *library)
{
    struct quantize *z = user;
    struct context *ctx = z->q.ctx;
    struct options compiling = z->plain;
    struct compilation *c = NEW(&ctx->session, struct compilation);
    mcc_host host = {.size = sizeof host};
    const char *path = ctx->model_path;
    compiling.output = library;
    *c = (struct compilation){.ctx = ctx, .options = &compiling, .report = terminal_report()};
    enum fail fail = compile_keep(c, z->model, NULL);
    ctx->model_path = path;
    if (fail != FAIL_NONE || !session_open(&z->s, ctx, z->q.options, library, &host))
        return;
    ctx->model_path = path;
    z->use(z);
}

static void end_session(void *user)
{
    struct quantize *z = user;
    session_close(&z->s);
}

/* Compiles the edited network for this machine, and calls use with z->s open. */
static bool with_edited(struct quantize *z, void (*use)(struct quantize *))
{
    int fd = -1;
    z->use = use;
    z->s = (struct session){0};
    z->model = edited_file(z, &fd);
    bool ok = z->model && with_temporary(z->q.ctx, "net.so", compile_and_use, end_session, z);
    if (fd >= 0)
        close(fd);
    return ok && z->q.ctx->fail == FAIL_NONE;
}

/* Runs sample k; the outputs are the caller's to delete. */
static bool run_sample(struct quantize *z, uint32_t k, DLManagedTensorVersioned **out)
{
    struct session *s = &z->s;
    DLTensor *in = NEW_ARRAY(&z->q.ctx->session, DLTensor, z->samples.n_inputs + 1);
    const DLTensor **at = NEW_ARRAY(&z->q.ctx->session, const DLTensor *, z->samples.n_inputs + 1);
    for (uint32_t i = 0; i < z->samples.n_inputs; i++) {
        struct blob *b = &z->samples.of[k * z->samples.n_inputs + i];
        in[i] = (DLTensor){b->data, {kDLCPU, 0}, b->rank, elem_dlpack(b->elem), b->dims, NULL, 0};
        at[i] = &in[i];
    }
    return s->api->run_dlpack(s->run, at, out, &s->error) == MCC_OK || session_error(s, "a sample");
}

static void delete_outputs(DLManagedTensorVersioned **out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i]->deleter(out[i]);
}

static const void *data_of(const DLTensor *t)
{
    return (const char *)t->data + t->byte_offset;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static bool is_f32(DLDataType type)
{
    return elem_by_dlpack(type) == ELEM_F32;
}

static bool look_at(struct quantize *z, struct edge *e, const DLTensor *t)
{
    int32_t axis = t->ndim < 2 ? -1 : e->last_axis ? t->ndim - 1 : 1;
    return seen_add(&z->q.ctx->session, &e->seen, data_of(t), t->shape, t->ndim, axis) ||
           error_at(z->q.ctx, FAIL_MODEL, (src_id){0}, e->name, "the samples make this value infinite or not a number");
}

static bool look_at_all(struct quantize *z, uint32_t k, DLManagedTensorVersioned **out)
{
    const mcc_api *api = z->s.api;
    for (uint32_t i = 0; i < z->q.edges.n; i++) {
        struct edge *e = &z->q.edges.data[i];
        for (uint32_t p = 0; p < api->n_in; p++) {
            struct blob *b = &z->samples.of[k * z->samples.n_inputs + p];
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

/* What the outputs are in f32. They come before what was added to them. */
static void keep_wanted(struct quantize *z, uint32_t k, DLManagedTensorVersioned **out)
{
    struct arena *arena = &z->q.ctx->session;
    for (uint32_t i = 0; i < z->n_want; i++) {
        const DLTensor *t = &out[i]->dl_tensor;
        struct tensor *w = &z->want[k * z->n_want + i];
        *w = (struct tensor){.kind = TYPE_TENSOR, .elem = elem_by_dlpack(t->dtype), .rank = t->ndim};
        w->dims = arena_copy(arena, t->shape, sizeof *t->shape * (size_t)(t->ndim + 1));
        w->data = arena_copy(arena, data_of(t), (size_t)tensor_count(w) * elem_size(w->elem));
    }
}

static void observe(struct quantize *z)
{
    const mcc_api *api = z->s.api;
    DLManagedTensorVersioned **out = NEW_ARRAY(&z->q.ctx->session, DLManagedTensorVersioned *, api->n_out + 1);
    for (uint32_t i = 0; i < z->q.edges.n; i++)
        z->q.edges.data[i].seen = (struct seen){0};
    for (uint32_t i = 0; i < z->n_want; i++)
        if (api->out[i].flags & ~(uint64_t)MCC_PORT_DYNAMIC)
            error_at(z->q.ctx, FAIL_USAGE, (src_id){0}, api->out[i].name, "only networks of tensors can be quantized");
    if (z->q.ctx->fail != FAIL_NONE || (!z->samples.n && !samples_load(&z->s, &z->q.options->samples, &z->samples)))
        return;
    if (!z->want)
        z->want = NEW_ARRAY(&z->q.ctx->session, struct tensor, z->samples.n * z->n_want + 1);
    for (uint32_t k = 0; k < z->samples.n; k++) {
        if (!run_sample(z, k, out))
            return;
        bool ok = look_at_all(z, k, out);
        if (ok && z->n_want && !z->want[(k + 1) * z->n_want - 1].data)
            keep_wanted(z, k, out);
        delete_outputs(out, api->n_out);
        if (!ok)
            return;
    }
}

/* ---- attempts ---------------------------------------------------------------------------------------------------- */

static void judge(struct quantize *z)
{
    DLManagedTensorVersioned **out = NEW_ARRAY(&z->q.ctx->session, DLManagedTensorVersioned *, z->n_want + 1);
    memset(z->error, 0, z->n_want * sizeof *z->error);
    for (uint32_t k = 0; k < z->samples.n; k++) {
        if (!run_sample(z, k, out))
            return;
        for (uint32_t i = 0; i < z->n_want; i++) {
            const struct tensor *want = &z->want[k * z->n_want + i];
            const DLTensor *t = &out[i]->dl_tensor;
            struct tensor got = {.kind = TYPE_TENSOR, .rank = t->ndim, .dims = t->shape};
            if (tensor_count(&got) == tensor_count(want))
                deviation_add(&z->error[i], want, want->elem, data_of(t));
            else
                z->error[i].square = INFINITY; /* how many there are hangs on the values */
        }
        delete_outputs(out, z->n_want);
    }
}

static double worst_error(const struct quantize *z)
{
    double worst = 0;
    for (uint32_t i = 0; i < z->n_want; i++)
        worst = fmax(worst, deviation_rms(&z->error[i]));
    return worst;
}

/* Sites in the order in which they go back to f32: the first and the last product, then by what they cost. */
static uint32_t *order_of_return(const struct quantize *z)
{
    const struct quantizer *q = &z->q;
    uint32_t *order = NEW_ARRAY(&q->ctx->session, uint32_t, q->sites.n + 1), ends[2] = {0, 0};
    double *cost = NEW_ARRAY(&q->ctx->session, double, q->sites.n + 1);
    for (uint32_t i = 0; i < q->sites.n; i++) {
        const struct site *s = &q->sites.data[i];
        cost[i] = s->cost;
        if (s->is_product && s->node < q->sites.data[ends[0]].node)
            ends[0] = i;
        if (s->is_product && (s->node > q->sites.data[ends[1]].node || !q->sites.data[ends[1]].is_product))
            ends[1] = i;
        order[i] = i;
    }
    cost[ends[0]] = cost[ends[1]] = INFINITY;
    for (uint32_t i = 1; i < q->sites.n; i++)
        for (uint32_t k = i; k > 0 && cost[order[k]] > cost[order[k - 1]]; k--) {
            uint32_t other = order[k];
            order[k] = order[k - 1];
            order[k - 1] = other;
        }
    return order;
}

/* Quantizes, with more and more in f32, until the bound holds. False after a diagnostic. */
static bool attempt_all(struct quantize *z, uint32_t *kept)
{
    struct quantizer *q = &z->q;
    const uint32_t *order = order_of_return(z);
    const double bound = q->options->bound;
    z->error = NEW_ARRAY(&q->ctx->session, struct deviation, z->n_want + 1);
    for (uint32_t n = 0;; n = n ? 2 * n : 2) {
        *kept = n < q->sites.n ? n : q->sites.n;
        for (uint32_t i = 0; i < q->sites.n; i++)
            q->sites.data[order[i]].kept = i < *kept;
        if (*kept == q->sites.n)
            return error_model(q->ctx, (src_id){0},
                               "nothing can be quantized with an error of at most %g: --bound, or more samples", bound);
        q->editor->reset(q->file);
        plan_apply(q);
        if (!with_edited(z, judge))
            return false;
        if (bound == 0 || worst_error(z) <= bound)
            return true;
        if (q->options->verbose) {
            struct strbuf line;
            strbuf_init(&line, &q->ctx->session);
            strbuf_printf(&line, "with %u nodes in f32 the error is %.3g\n", *kept, worst_error(z));
            terminal_print(&line);
        }
    }
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static bool write_result(struct quantize *z)
{
    const struct options *o = z->q.options;
    struct strbuf text;
    int fd = -1;
    strbuf_init(&text, &z->q.ctx->session);
    if (format_by_suffix(o->output)) {
        z->q.editor->write(z->q.file, &text);
        return output_write(z->q.ctx, o->output, text.data, text.n);
    }
    struct options compiling = *o;
    const char *path = z->q.ctx->model_path, *model = edited_file(z, &fd);
    compiling.quiet = true; /* what there is to say of the network was said of the file */
    enum fail fail = model ? compile_model(z->q.ctx, &compiling, model, NULL, terminal_report()) : FAIL_ENV;
    z->q.ctx->model_path = path;
    if (fd >= 0)
        close(fd);
    return fail == FAIL_NONE;
}

static void report(const struct quantize *z, uint32_t kept)
{
    const struct quantizer *q = &z->q;
    struct strbuf text;
    strbuf_init(&text, &q->ctx->session);
    for (uint32_t i = 0; i < z->n_want; i++)
        strbuf_printf(&text,
                      "%10.3g %10.3g  output '%s': rms and largest error as a part of the f32 network's values\n",
                      deviation_rms(&z->error[i]), deviation_most(&z->error[i]), z->want_names[i]);
    for (uint32_t i = 0; i < q->sites.n; i++) {
        const struct edit_node *e = q->editor->node(q->file, q->sites.data[i].node);
        if (q->sites.data[i].kept)
            strbuf_printf(&text, "in f32: %s (%s)\n", *e->name ? e->name : e->out[0], e->op);
    }
    strbuf_printf(&text, "%s: %u of %u nodes on bytes, %u sample%s\n", q->options->output, q->sites.n - kept,
                  q->sites.n, z->samples.n, z->samples.n == 1 ? "" : "s");
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
        if (!z->samples.n || q->edges.data[i].is_float)
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
    if (z->samples.drawn)
        warn_at(q->ctx, (src_id){0}, "samples",
                "the inputs are drawn, and ranges of real ones may differ: --sample NAME=FILE gives samples");
    report_diagnostics(q->ctx, terminal_report(), q->options);
    if (q->ctx->fail != FAIL_NONE)
        return false;
    plan_settle(q);
    if (!q->sites.n)
        return error_model(q->ctx, (src_id){0}, "no Conv, Gemm or MatMul of f32 with constant weights");
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

/* How networks are compiled that run here, on samples. */
static void plain_options(const struct options *o, struct options *plain)
{
    *plain = *o;
    plain->precision = "f32";
    plain->weights_type = "auto";
    plain->choices.items.n = 0;
    plain->target = plain->mattr = plain->variants = plain->schedules = NULL;
    plain->march = "native";
    plain->quiet = true;
    plain->verbose = false;
    plain->stats = plain->time_passes = false;
    plain->emit = "none";
    plain->weights = "embedded";
    plain->prefix = NULL;
}

enum fail command_quantize(struct context *ctx, struct options *o)
{
    static const char *const methods[] = {"squared", "percentile", "full"};
    struct quantize *z = NEW(&ctx->session, struct quantize);
    const char *model = o->files.items.data[0];
    struct options seeing = *o;
    struct file_list read = {0};
    VEC_PUSH(&ctx->session, &read.paths, model);
    ctx->model_path = model;
    o->output = o->output ? o->output : output_default(ctx, o, model);
    const struct format *format = format_of(model);
    if (!format->hooks->editor) {
        error_at(ctx, FAIL_MODEL, (src_id){0}, NULL, "%s files cannot be quantized", format->name);
        return ctx->fail;
    }
    if ((!format_by_suffix(o->output) && !output_name_check(ctx, o, o->output)) || !output_check(ctx, o->output) ||
        !output_differs(ctx, o->output, &read, o->config))
        return ctx->fail;
    seeing.output = NULL;
    struct graph *g = compile_graph(ctx, &seeing, model, terminal_report());
    z->q = (struct quantizer){.ctx = ctx, .options = o, .editor = format->hooks->editor};
    z->q.file = g ? z->q.editor->open(ctx, model) : NULL;
    if (!z->q.file)
        return ctx->fail;
    for (size_t i = 0; i < COUNT_OF(methods); i++)
        if (strcmp(o->ranges, methods[i]) == 0)
            z->q.method = (enum ranges)i;
    z->n_want = g->outputs.n;
    z->want_names = NEW_ARRAY(&ctx->session, const char *, z->n_want + 1);
    for (uint32_t i = 0; i < z->n_want; i++)
        z->want_names[i] = g->outputs.data[i].name;
    plain_options(o, &z->plain);
    ctx->model_path = model;
    if (!quantize(z) && ctx->fail == FAIL_NONE)
        ctx->fail = FAIL_INTERNAL;
    return ctx->fail;
}

/* mcc diff: the compiled network against the reference interpreter, kernel by kernel.
 *
 * The network is compiled as always; nothing is added to the code. It runs on one thread, and after each kernel's end
 * (mcc_host.event) what the kernel has stored is copied from where the plan put it, the arena or an output, through its
 * storage function. Then the interpreter computes the same values. Each is held against the copy, and where they agree
 * the interpreter goes on from the copy: so every kernel is judged by its own work, and what earlier ones rounded
 * otherwise does not add up. The first kernel that differs is named and its operands go into files. Kernels inside
 * loops and branches, and what only the data sizes, are judged by the outputs after them.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/library/compile/backend.h"
#include "cli/commands/command.h"
#include "cli/commands/compare/capture.h"
#include "cli/commands/compare/difference.h"
#include "cli/commands/compare/rounding.h"
#include "cli/commands/temporary.h"
#include "cli/commands/artifact/session.h"
#include "ir/eval/eval.h"
#include "ir/base/file.h"

enum { OPERANDS_SHOWN = 64 };

struct diff {
    struct capture run;
    struct tensor **want;          /* by value: the interpreter's, NULL where not asked for */
    bool *compared;                /* by kernel: the interpreter has had a value that it stored */
    uint32_t n_compared;
    uint32_t worst;                /* the first kernel that differs; UINT32_MAX: none */
    struct difference difference;
};

/* ---- comparing ------------------------------------------------------------------------------------------------- */

/* What kernel k's results may be off by: its least exact float type decides, also where that is inside only. */
static struct closeness kernel_closeness(const struct diff *d, const struct kernel *k, enum elem elem)
{
    const struct graph *g = d->run.c.graph;
    double loose = elem_looseness(elem);
    bool from_float = false;
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        const struct node *n = graph_node(g, k->nodes.data[i]);
        for (uint32_t j = 0; j < n->n_in + n->n_out; j++) {
            value_id v = j < n->n_in ? n->in[j] : n->out[j - n->n_in];
            double one = v.i && value_type(g, v)->kind == TYPE_TENSOR ? elem_looseness(value_type(g, v)->elem) : 0;
            from_float |= one > 0;
            loose = loose > 0 && one > loose ? one : loose;
        }
    }
    return (struct closeness){loose * d->run.c.options->tolerance, loose == 0 && from_float};
}

/* The interpreter has computed v. */
static void on_value(void *user, value_id v, const struct tensor *t)
{
    struct diff *d = user;
    const struct tensor *got = d->run.got[v.i];
    struct difference found;
    bool same_shape = got && t->kind == TYPE_TENSOR && t->elem == got->elem && t->rank == got->rank;
    for (int32_t k = 0; same_shape && k < t->rank; k++)
        same_shape = t->dims[k] == got->dims[k];
    if (!same_shape || d->worst != UINT32_MAX)
        return;
    d->n_compared += !d->compared[d->run.maker[v.i]];
    d->compared[d->run.maker[v.i]] = true;
    if (tensor_differs(t, got->data,
                       kernel_closeness(d, &d->run.c.module->fused.kernels.data[d->run.maker[v.i]], t->elem), &found)) {
        d->worst = d->run.maker[v.i];
        d->difference = found;
    } else if (found.total > 0) {
        memcpy(t->data, got->data, (size_t)found.total * elem_size(t->elem));
    }
}

/* ---- the two runs ------------------------------------------------------------------------------------------------ */

static void want_value(struct diff *d, value_id v)
{
    if (v.i && !d->want[v.i])
        d->want[v.i] = NEW(&d->run.c.ctx->session, struct tensor);
}

static bool interpret(struct diff *d)
{
    struct context *ctx = d->run.c.ctx;
    struct graph *g = d->run.c.graph;
    const struct module *m = d->run.c.module;
    struct tensor *in = NEW_ARRAY(&ctx->session, struct tensor, g->inputs.n + 1);
    d->want = NEW_ARRAY(&ctx->session, struct tensor *, g->values.n + 1);
    for (uint32_t i = 0; i < graph_user_inputs(g); i++)
        if (!file_tensor_widen(ctx, &d->run.s.in[i], &in[i]))
            return false;
    graph_states(g, in);
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        const struct kernel *k = &m->fused.kernels.data[i];
        for (uint32_t j = 0; j < k->outs.n && k->region.i == 1; j++)
            want_value(d, k->outs.data[j]);
        for (uint32_t j = 0; j < k->args.n && k->region.i == 1; j++)
            want_value(d, k->args.data[j].value);
    }
    for (uint32_t i = 0; i < g->outputs.n; i++)
        want_value(d, g->outputs.data[i].value);
    const char *text = "";
    enum eval_status status = graph_eval_watched(g, in, d->want, on_value, d, &ctx->session, &text);
    return status == EVAL_OK ||
           error_at(ctx, status == EVAL_NOMEM ? FAIL_LIMIT : FAIL_MODEL, (src_id){0}, NULL,
                    "the interpreter failed: %s (status %d)%s", text ? text : "failed", (int)status,
                    d->run.s.api->n_sym ? "; --dim=NAME=N draws inputs of another size" : "");
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

/* The operands of the kernel that differs, into files. */
static bool write_operands(const struct diff *d, const char *folder)
{
    const struct kernel *k = &d->run.c.module->fused.kernels.data[d->worst];
    for (uint32_t i = 0; i < k->args.n && i < OPERANDS_SHOWN; i++) {
        value_id v = k->args.data[i].value;
        const struct tensor *t = v.i ? d->want[v.i] : NULL;
        bool result = false;
        struct file_tensor packed;
        for (uint32_t j = 0; j < k->outs.n; j++)
            result |= k->outs.data[j].i == v.i;
        if (!t || result || t->kind != TYPE_TENSOR || t->elem == ELEM_STR || !t->data)
            continue;
        const char *name = graph_value(d->run.c.graph, v)->name;
        const char *file = arena_printf(&d->run.c.ctx->session, "%s%s%u", name ? name : "value", name ? "." : "", v.i);
        bool numpy = elem_looseness(t->elem) <= 10 && elem_bits(t->elem) >= 8;
        if (!file_tensor_pack(d->run.c.ctx, t, &packed) ||
            !file_tensor_write(d->run.c.ctx, folder, file, numpy ? OPT_FORMAT_NPY : OPT_FORMAT_PB, &packed))
            return false;
    }
    return true;
}

static void put_json(const struct diff *d, const char *what, const struct difference *f, struct json *j)
{
    json_open(j, NULL, '{');
    json_uint(j, "kernels", d->run.c.module->fused.kernels.n);
    json_uint(j, "compared", d->n_compared);
    json_uint(j, "outputs", d->run.s.api->n_out);
    json_real(j, "tolerance", d->run.c.options->tolerance);
    if (f) {
        json_open(j, "difference", '{');
        json_text(j, "where", what);
        json_int(j, "elements", f->total);
        json_int(j, "differ", f->count);
        json_int(j, "at", f->at);
        json_real(j, "got", f->got);
        json_real(j, "want", f->want);
        json_real(j, "largest", f->scale);
        json_close(j, '{');
    } else {
        json_null(j, "difference");
    }
    json_close(j, '{');
}

static bool report(const struct diff *d, const char *what, const struct difference *f, const char *note)
{
    if (d->run.c.options->document)
        put_json(d, what, f, &d->run.c.options->document->result);
    return error_at(
        d->run.c.ctx, FAIL_INTERNAL, (src_id){0}, NULL,
        "%s differs: %lld of %lld elements, most at element %lld: %.9g instead of %.9g, largest element %.6g%s", what,
        (long long)f->count, (long long)f->total, (long long)f->at, f->got, f->want, f->scale, note);
}

/* Outputs against the interpreter's, or against the files of --against. */
static bool check_outputs(struct diff *d, DLManagedTensorVersioned **out)
{
    const struct graph *g = d->run.c.graph;
    const uint32_t n = graph_user_outputs(g);
    const char **names = NEW_ARRAY(&d->run.c.ctx->session, const char *, n + 1);
    for (uint32_t i = 0; i < n; i++)
        names[i] = g->outputs.data[i].name;
    if (!feeds_known(d->run.c.ctx, &d->run.c.options->against, names, n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const DLTensor *t = &out[i]->dl_tensor;
        const char *file = feed_find(&d->run.c.options->against, names[i]);
        struct tensor want = *d->want[g->outputs.data[i].value.i];
        struct file_tensor got = {.elem = elem_by_dlpack(t->dtype),
                                  .rank = t->ndim,
                                  .data = (char *)t->data + t->byte_offset},
                           packed;
        struct tensor wide;
        struct difference f;
        if (file &&
            (!file_tensor_read(d->run.c.ctx, file, &packed) || !file_tensor_widen(d->run.c.ctx, &packed, &want)))
            return false;
        memcpy(got.dims, t->shape, sizeof *t->shape * (size_t)t->ndim);
        if (!file_tensor_widen(d->run.c.ctx, &got, &wide))
            return false;
        bool shape = want.rank == wide.rank && want.elem == wide.elem;
        for (int32_t k = 0; shape && k < want.rank; k++)
            shape = want.dims[k] == wide.dims[k];
        struct closeness close = {elem_looseness(want.elem) * d->run.c.options->tolerance, false};
        const char *what = arena_printf(&d->run.c.ctx->session, "output '%s'", names[i]);
        if (!shape)
            return error_at(d->run.c.ctx, FAIL_INTERNAL, (src_id){0}, NULL,
                            "%s has another type or shape than the reference", what);
        if (tensor_differs(&want, wide.data, close, &f))
            return report(d, what, &f, file ? " (of the file)" : "");
    }
    return true;
}

static bool compare(struct diff *d)
{
    struct context *ctx = d->run.c.ctx;
    uint32_t n = d->run.s.api->n_out;
    DLManagedTensorVersioned **out = NEW_ARRAY(&ctx->session, DLManagedTensorVersioned *, n + 1);
    d->compared = NEW_ARRAY(&ctx->session, bool, d->run.c.module->fused.kernels.n + 1);
    d->worst = UINT32_MAX;
    capture_begin(&d->run);
    bool ran = d->run.s.api->run_dlpack(d->run.s.run, d->run.s.in_pointer, out, &d->run.s.error) == MCC_OK,
         ok = interpret(d);
    if (d->worst == UINT32_MAX && (!ran || !ok))
        return ran ? false : session_error(&d->run.s, "run");
    ok = ran || d->worst != UINT32_MAX;
    if (d->worst != UINT32_MAX) {
        const char *folder = d->run.c.options->output ? d->run.c.options->output : "mcc-diff";
        const char *note = arena_printf(&ctx->session, "; its operands are in '%s'", folder);
        ok = write_operands(d, folder) && report(d, capture_words(&d->run, d->worst), &d->difference, note);
    }
    ok = ok && check_outputs(d, out);
    for (uint32_t i = 0; i < n && ran; i++)
        out[i]->deleter(out[i]);
    struct strbuf line;
    strbuf_init(&line, &ctx->session);
    strbuf_printf(&line, "%u of %u kernels and %u outputs compared, none differs\n", d->n_compared,
                  d->run.c.module->fused.kernels.n, n);
    if (ok && d->run.c.options->document)
        put_json(d, NULL, NULL, &d->run.c.options->document->result);
    else if (ok && !d->run.c.options->quiet)
        terminal_print(&line);
    return ok;
}

/* --against-f32: errors are told, and none is too large. */
static bool compare_rounding(struct diff *d)
{
    uint32_t n = d->run.s.api->n_out;
    DLManagedTensorVersioned **out = NEW_ARRAY(&d->run.c.ctx->session, DLManagedTensorVersioned *, n + 1);
    capture_begin(&d->run);
    if (d->run.s.api->run_dlpack(d->run.s.run, d->run.s.in_pointer, out, &d->run.s.error) != MCC_OK)
        return session_error(&d->run.s, "run");
    bool ok = rounding_report(&d->run, out);
    for (uint32_t i = 0; i < n; i++)
        out[i]->deleter(out[i]);
    return ok;
}

static void diff_model(void *user, const char *library)
{
    struct diff *d = user;
    const struct options *o = d->run.c.options;
    struct context *ctx = d->run.c.ctx;
    const char *model = o->files.items.data[0];
    struct options compiling = *o, running = *o;
    compiling.output = library;
    compiling.emit = OPT_EMIT_NONE; /* nothing but the library goes into the folder, which is removed with it */
    compiling.weights = OPT_WEIGHTS_EMBEDDED;
    running.output = NULL;
    d->run.c.options = &compiling;
    mcc_host host = {
        .size = sizeof host, .user = &d->run, .threads = 1, .event = capture_event, .flags = (uint32_t)o->variant};
    if (compile_keep(&d->run.c, model, NULL) != FAIL_NONE)
        return;
    d->run.c.options = o;
    if (!session_open(&d->run.s, ctx, &running, library, &host))
        return;
    ctx->model_path = model;
    for (uint32_t i = 0; i < d->run.s.api->n_in + d->run.s.api->n_out; i++) {
        const mcc_port *port = i < d->run.s.api->n_in ? &d->run.s.api->in[i]
                                                      : &d->run.s.api->out[i - d->run.s.api->n_in];
        if (port->flags & ~(uint64_t)MCC_PORT_DYNAMIC)
            error_at(ctx, FAIL_USAGE, (src_id){0}, port->name,
                     "this output is no tensor, and only tensors can be compared");
    }
    if (ctx->fail == FAIL_NONE && session_feed(&d->run.s, true))
        (void)(o->against_f32 ? compare_rounding(d) : compare(d));
}

static void diff_end(void *user)
{
    session_close(&((struct diff *)user)->run.s);
}

enum fail command_diff(struct context *ctx, struct options *o)
{
    struct diff *d = NEW(&ctx->session, struct diff);
    d->run.c.ctx = ctx;
    d->run.c.options = o;
    d->run.c.report = terminal_report();
    (void)(target_serves(ctx, o, true) && with_temporary(ctx, library_name(o), diff_model, diff_end, d));
    return ctx->fail;
}

/* mcc diff: the compiled network against the reference interpreter, kernel by kernel.
 *
 * The network is compiled as always; nothing is added to the code. It runs on one thread, and after each kernel's end
 * (mcc_host.event) what the kernel has stored is read where the plan put it, in the arena or an output, through its storage
 * function, and held against the interpreter's value. The first kernel that differs is named and its operands, as the
 * interpreter has them, go into files. Kernels inside loops and branches, and what only the data sizes, are judged by the
 * outputs behind them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/backend.h"
#include "cli/command.h"
#include "cli/session.h"
#include "runtime/rt_internal.h"

enum { OPERANDS_SHOWN = 64 };

struct difference { int64_t count, total, at; double largest, scale, got, want; };

struct diff {
    struct compilation c;
    struct session s;
    struct tensor **want;          /* by value: the interpreter's, NULL where not asked for */
    bool *seen;                    /* by kernel */
    uint32_t n_seen;
    int64_t *symbols;              /* by symbol id; meaningful where known */
    uint32_t worst;                /* the first kernel that differs; UINT32_MAX: none */
    value_id where;
    struct difference difference;
};

/* ---- comparing ------------------------------------------------------------------------------------------------- */

/* What a type's arithmetic may be off by, as a part of the tensor's largest element. */
static double tolerance(const struct options *o, enum elem elem)
{
    switch (elem) {
    case ELEM_F32: case ELEM_F64: case ELEM_C64: case ELEM_C128: return o->tolerance;
    case ELEM_F16: return 10 * o->tolerance;
    default: return elem_class(elem) == 'F' ? 80 * o->tolerance : 0;
    }
}

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Counts elements i of `got` (at address(i)) that are too far from `want`. */
static bool differs(const struct options *o, const struct tensor *want, int64_t n, const void *(*address)(void *, int64_t), void *user,
                    struct difference *out)
{
    uint32_t size = elem_size(want->elem);
    const char *data = want->data;
    *out = (struct difference){.total = n, .at = -1};
    for (int64_t i = 0; i < n; i++) {
        double w = fabs(elem_to_f64(want->elem, data + i * size));
        if (isfinite(w) && w > out->scale)
            out->scale = w;
    }
    double allowed = tolerance(o, want->elem) * out->scale;
    for (int64_t i = 0; i < n; i++) {
        double g = elem_to_f64(want->elem, address(user, i)), w = elem_to_f64(want->elem, data + i * size), d = fabs(g - w);
        if (same_number(g, w) || d <= allowed)
            continue;
        out->count++;
        if (out->at < 0 || !(d <= out->largest)) {
            out->largest = d;
            out->at = i;
            out->got = g;
            out->want = w;
        }
    }
    return out->count > 0;
}

static int64_t element_count(const struct tensor *t)
{
    int64_t n = 1;
    for (int32_t d = 0; d < t->rank; d++)
        n *= t->dims[d];
    return n;
}

/* ---- a stored value ----------------------------------------------------------------------------------------------- */

struct stored {
    const char *base;
    uint32_t size;
    int32_t rank;
    const int64_t *dims;
    int64_t outer[RANK_MAX], inner[RANK_MAX], block[RANK_MAX], origin;
};

static const void *stored_address(void *user, int64_t i)
{
    const struct stored *s = user;
    int64_t at = s->origin;
    for (int32_t d = s->rank - 1; d >= 0; d--) {
        int64_t k = i % s->dims[d];
        i /= s->dims[d];
        at += s->block[d] ? k / s->block[d] * s->outer[d] + k % s->block[d] * s->inner[d] : k * s->outer[d];
    }
    return s->base + at * (int64_t)s->size;
}

/* An expression's value when it depends on shapes alone. */
static bool known(const struct diff *d, expr_id e, int64_t *out)
{
    struct exprs *x = d->c.ctx->exprs;
    for (uint32_t i = 1; i <= sym_count(x); i++)
        if (sym_get(x, (sym_id){i})->kind != SYM_SHAPE && ex_uses(x, e, (sym_id){i}))
            return false;
    return ex_eval(x, e, d->symbols, out);
}

/* Where the run in progress has value v; false: not in a place that can be read now. */
static bool stored_find(const struct diff *d, value_id v, const struct tensor *t, struct stored *out)
{
    const struct module *m = d->c.module;
    const struct storage *s = &m->storage[v.i];
    const struct mcc_ctx *ctx = d->s.run;
    uint32_t n_in = d->s.api->n_in, n_out = d->s.api->n_out;
    int64_t offset = 0;
    *out = (struct stored){.size = elem_size(t->elem), .rank = t->rank, .dims = t->dims};
    if (s->place == PLACE_ARENA && known(d, m->buffers.data[s->buffer].offset, &offset))
        out->base = (const char *)(intptr_t)ctx->args[n_in + n_out] + offset;
    else if (s->place == PLACE_OUTPUT && elem_bits(t->elem) >= 8)
        out->base = (const char *)(intptr_t)ctx->args[n_in + s->port];
    if (!out->base || s->rank != t->rank || !s->dim || (s->origin.i && !known(d, s->origin, &out->origin)))
        return false;
    for (int32_t k = 0; k < t->rank; k++) {
        if (!known(d, s->dim[k].outer, &out->outer[k]))
            return false;
        out->block[k] = s->dim[k].block;
        out->inner[k] = s->dim[k].inner;
    }
    return true;
}

static void check_kernel(struct diff *d, uint32_t index)
{
    const struct kernel *k = &d->c.module->kernels.data[index];
    d->seen[index] = true;
    d->n_seen++;
    for (uint32_t i = 0; i < k->outs.n && d->worst == UINT32_MAX && !k->piece && k->kind != KERNEL_HALO; i++) {
        const struct tensor *t = d->want[k->outs.data[i].i];
        struct stored place;
        struct difference found;
        bool plain = t && t->kind == TYPE_TENSOR && t->elem != ELEM_STR && t->data;
        if (!plain || !stored_find(d, k->outs.data[i], t, &place) ||
            !differs(d->c.options, t, element_count(t), stored_address, &place, &found))
            continue;
        d->worst = index;
        d->where = k->outs.data[i];
        d->difference = found;
    }
}

/* Which kernel has ended: of those that bear this node and are still to come the first. */
static void on_event(void *user, uint32_t node, int end, uint64_t ns)
{
    struct diff *d = user;
    const struct module *m = d->c.module;
    uint32_t found = UINT32_MAX;
    (void)ns;
    for (uint32_t i = 0; end && i < m->kernels.n; i++) {
        const struct kernel *k = &m->kernels.data[i];
        uint32_t src = kernel_lead(m, k);
        bool top = k->region.i == 1 && k->kind != KERNEL_OPAQUE && k->kind != KERNEL_CONTROL;
        if (top && src == node && !d->seen[i] && (found == UINT32_MAX || k->order < m->kernels.data[found].order))
            found = i;
    }
    if (found != UINT32_MAX)
        check_kernel(d, found);
}

/* ---- the two runs ---------------------------------------------------------------------------------------------------- */

static void want_value(struct diff *d, value_id v)
{
    if (v.i && !d->want[v.i])
        d->want[v.i] = NEW(&d->c.ctx->session, struct tensor);
}

static bool interpret(struct diff *d)
{
    struct context *ctx = d->c.ctx;
    struct graph *g = d->c.graph;
    const struct module *m = d->c.module;
    struct tensor *in = NEW_ARRAY(&ctx->session, struct tensor, g->inputs.n + 1);
    d->want = NEW_ARRAY(&ctx->session, struct tensor *, g->values.n + 1);
    for (uint32_t i = 0; i < g->inputs.n; i++)
        if (!blob_widen(ctx, &d->s.in[i], &in[i]))
            return false;
    for (uint32_t i = 0; i < m->kernels.n; i++) {
        const struct kernel *k = &m->kernels.data[i];
        for (uint32_t j = 0; j < k->outs.n && k->region.i == 1; j++)
            want_value(d, k->outs.data[j]);
        for (uint32_t j = 0; j < k->args.n && k->region.i == 1; j++)
            want_value(d, k->args.data[j].value);
    }
    for (uint32_t i = 0; i < g->outputs.n; i++)
        want_value(d, g->outputs.data[i].value);
    const char *text = "";
    enum eval_status status = graph_eval_values(g, in, d->want, &ctx->session, &text);
    return status == EVAL_OK || error_at(ctx, status == EVAL_NOMEM ? FAIL_LIMIT : FAIL_MODEL, (src_id){0}, NULL,
                                         "the interpreter: %s (status %d)", text ? text : "failed", (int)status);
}

static void bind_symbols(struct diff *d)
{
    struct exprs *x = d->c.ctx->exprs;
    int64_t *values = NEW_ARRAY(&d->c.ctx->session, int64_t, d->s.api->n_sym + 1);
    uint32_t n = 0;
    d->symbols = NEW_ARRAY(&d->c.ctx->session, int64_t, sym_count(x) + 1);
    for (uint32_t i = 0; i < d->s.api->n_in; i++)
        for (int32_t k = 0; k < d->s.api->in[i].ndim && k < d->s.in[i].rank; k++)
            if (d->s.api->in[i].dims[k].extent == -1 && d->s.api->in[i].dims[k].symbol >= 0)
                values[d->s.api->in[i].dims[k].symbol] = d->s.in[i].dims[k];
    for (uint32_t i = 1; i <= sym_count(x); i++)
        if (sym_get(x, (sym_id){i})->kind == SYM_SHAPE)
            d->symbols[i] = values[n++];
}

static const void *plain_address(void *user, int64_t i)
{
    const struct stored *s = user;
    return s->base + i * (int64_t)s->size;
}

/* ---- the verdict ---------------------------------------------------------------------------------------------------- */

static const char *kernel_label(const struct diff *d, uint32_t index)
{
    const struct module *m = d->c.module;
    const struct kernel *k = &m->kernels.data[index];
    struct strbuf out;
    uint32_t last = 0;
    strbuf_init(&out, &d->c.ctx->session);
    strbuf_printf(&out, "kernel k%u (%s", index, kernel_kind_name(k->kind));
    for (uint32_t i = k->nodes.n; i > 0 && out.n < 300; i--) {
        const struct source *s = source_get(m->ctx, graph_node(m->g, k->nodes.data[i - 1])->src);
        if (s->op && graph_node(m->g, k->nodes.data[i - 1])->src.i != last)
            strbuf_printf(&out, "%s %s", last ? "," : ";", s->name && *s->name ? s->name : s->output ? s->output : s->op);
        last = graph_node(m->g, k->nodes.data[i - 1])->src.i;
    }
    strbuf_printf(&out, ")");
    return out.data;
}

/* The operands of the kernel that differs, into files. */
static bool write_operands(const struct diff *d, const char *folder)
{
    const struct kernel *k = &d->c.module->kernels.data[d->worst];
    for (uint32_t i = 0; i < k->args.n && i < OPERANDS_SHOWN; i++) {
        value_id v = k->args.data[i].value;
        const struct tensor *t = v.i ? d->want[v.i] : NULL;
        bool result = false;
        struct blob blob;
        for (uint32_t j = 0; j < k->outs.n; j++)
            result |= k->outs.data[j].i == v.i;
        if (!t || result || t->kind != TYPE_TENSOR || t->elem == ELEM_STR || !t->data)
            continue;
        const char *name = graph_value(d->c.graph, v)->name;
        const char *file = arena_printf(&d->c.ctx->session, "%s%s%u", name ? name : "value", name ? "." : "", v.i);
        bool numpy = tolerance(d->c.options, t->elem) <= 10 * d->c.options->tolerance && elem_bits(t->elem) >= 8;
        if (!blob_pack(d->c.ctx, t, &blob) || !blob_write(d->c.ctx, folder, file, numpy ? "npy" : "pb", &blob))
            return false;
    }
    return true;
}

static bool report(const struct diff *d, const char *what, const struct difference *f, const char *note)
{
    return error_at(d->c.ctx, FAIL_INTERNAL, (src_id){0}, NULL,
                    "%s differs: %lld of %lld elements, most at element %lld: %.9g instead of %.9g, largest element %.6g%s", what,
                    (long long)f->count, (long long)f->total, (long long)f->at, f->got, f->want, f->scale, note);
}

/* Outputs against the interpreter's, or against the files of --against. */
static bool check_outputs(struct diff *d, DLManagedTensorVersioned **out)
{
    const struct graph *g = d->c.graph;
    const char **names = NEW_ARRAY(&d->c.ctx->session, const char *, g->outputs.n + 1);
    for (uint32_t i = 0; i < g->outputs.n; i++)
        names[i] = g->outputs.data[i].name;
    if (!feeds_known(d->c.ctx, &d->c.options->against, names, g->outputs.n))
        return false;
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        const DLTensor *t = &out[i]->dl_tensor;
        const char *file = feed_find(&d->c.options->against, names[i]);
        struct tensor want = *d->want[g->outputs.data[i].value.i];
        struct blob got = {.elem = elem_by_dlpack(t->dtype), .rank = t->ndim, .data = (char *)t->data + t->byte_offset}, blob;
        struct tensor wide;
        struct difference f;
        if (file && (!blob_read(d->c.ctx, file, &blob) || !blob_widen(d->c.ctx, &blob, &want)))
            return false;
        memcpy(got.dims, t->shape, sizeof *t->shape * (size_t)t->ndim);
        if (got.elem == ELEM_STR || !blob_widen(d->c.ctx, &got, &wide))
            continue;
        bool shape = want.rank == wide.rank && want.elem == wide.elem;
        for (int32_t k = 0; shape && k < want.rank; k++)
            shape = want.dims[k] == wide.dims[k];
        struct stored place = {.base = wide.data, .size = elem_size(wide.elem)};
        const char *what = arena_printf(&d->c.ctx->session, "output '%s'", names[i]);
        if (!shape)
            return error_at(d->c.ctx, FAIL_INTERNAL, (src_id){0}, NULL, "%s has another type or shape than the reference", what);
        if (differs(d->c.options, &want, element_count(&want), plain_address, &place, &f))
            return report(d, what, &f, file ? " (of the file)" : "");
    }
    return true;
}

static bool compare(struct diff *d)
{
    struct context *ctx = d->c.ctx;
    uint32_t n = d->s.api->n_out;
    DLManagedTensorVersioned **out = NEW_ARRAY(&ctx->session, DLManagedTensorVersioned *, n + 1);
    d->seen = NEW_ARRAY(&ctx->session, bool, d->c.module->kernels.n + 1);
    d->worst = UINT32_MAX;
    bind_symbols(d);
    if (!interpret(d))
        return false;
    if (d->s.api->run_dlpack(d->s.run, d->s.in_pointer, out, &d->s.error) != MCC_OK)
        return session_error(&d->s, "run");
    bool ok = true;
    if (d->worst != UINT32_MAX) {
        const char *folder = d->c.options->output ? d->c.options->output : "mcc-diff";
        const char *note = arena_printf(&ctx->session, "; its operands are in '%s'", folder);
        ok = write_operands(d, folder) && report(d, kernel_label(d, d->worst), &d->difference, note);
    }
    ok = ok && check_outputs(d, out);
    for (uint32_t i = 0; i < n; i++)
        out[i]->deleter(out[i]);
    struct strbuf line;
    strbuf_init(&line, &ctx->session);
    strbuf_printf(&line, "%u of %u kernels and %u outputs compared, none differs\n", d->n_seen, d->c.module->kernels.n, n);
    if (ok && !d->c.options->quiet)
        terminal_print(&line);
    return ok;
}

static void diff_model(struct diff *d, struct options *o, const char *model, const char *library)
{
    struct context *ctx = d->c.ctx;
    struct options compiling = *o, running = *o;
    compiling.output = library;
    running.output = NULL;
    d->c.options = &compiling;
    mcc_host host = {.size = sizeof host, .user = d, .threads = 1, .event = on_event, .flags = (uint32_t)o->variant};
    if (compile_keep(&d->c, model, NULL) != FAIL_NONE)
        return;
    d->c.options = o;
    if (!session_open(&d->s, ctx, &running, library, &host))
        return;
    ctx->model_path = model;
    for (uint32_t i = 0; i < d->s.api->n_in + d->s.api->n_out; i++) {
        const mcc_port *port = i < d->s.api->n_in ? &d->s.api->in[i] : &d->s.api->out[i - d->s.api->n_in];
        if (port->flags & ~(uint64_t)MCC_PORT_DYNAMIC)
            error_at(ctx, FAIL_USAGE, (src_id){0}, port->name, "only tensors can be compared");
    }
    if (ctx->fail == FAIL_NONE && session_feed(&d->s, true))
        (void)compare(d);
}

enum fail command_diff(struct context *ctx, struct options *o)
{
    const char *folder = getenv("TMPDIR");
    struct diff *d = NEW(&ctx->session, struct diff);
    char *temp = arena_printf(&ctx->session, "%s/mcc-diff-XXXXXX", folder && *folder ? folder : "/tmp");
    if (!mkdtemp(temp)) {
        error_env(ctx, "cannot make a folder '%s'", temp);
        return ctx->fail;
    }
    const char *library = arena_printf(&ctx->session, "%s/net.so", temp);
    /* A signal, or memory that ends, must not leave the library behind. */
    jmp_buf *outer = ctx->unwind, here;
    volatile bool unwound = true;
    d->c.ctx = ctx;
    d->c.report = terminal_report();
    ctx->temp_files[COUNT_OF(ctx->temp_files) - 1] = library;
    ctx->unwind = &here;
    if (setjmp(here) == 0) {
        diff_model(d, o, o->files.items.data[0], library);
        unwound = false;
    }
    ctx->unwind = outer;
    session_close(&d->s);
    unlink(library);
    rmdir(temp);
    ctx->temp_files[COUNT_OF(ctx->temp_files) - 1] = NULL;
    if (unwound)
        longjmp(*outer, 1);
    return ctx->fail;
}

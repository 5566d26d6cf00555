/* mcc diff: the compiled network against the reference interpreter, kernel by kernel.
 *
 * The network is compiled as always; nothing is added to the code. It runs on one thread, and after each kernel's end
 * (mcc_host.event) what the kernel has stored is copied from where the plan put it, the arena or an output, through its
 * storage function. Then the interpreter computes the same values. Each is held against the copy, and where they agree
 * the interpreter goes on from the copy: so every kernel is judged by its own work, and what earlier ones rounded
 * otherwise does not add up. The first kernel that differs is named and its operands go into files. Kernels inside
 * loops and branches, and what only the data sizes, are judged by the outputs behind them.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/backend.h"
#include "cli/command.h"
#include "cli/commands/difference.h"
#include "cli/commands/temporary.h"
#include "cli/session.h"
#include "ir/eval/eval.h"
#include "ir/base/file.h"
#include "passes/module/query.h"
#include "runtime/rt_internal.h"

enum { OPERANDS_SHOWN = 64 };

struct diff {
    struct compilation c;
    struct session s;
    struct tensor **want;          /* by value: the interpreter's, NULL where not asked for */
    struct tensor **got;           /* by value: what a kernel stored, NULL where it could not be read */
    uint32_t *maker;               /* by value: the kernel that stored got */
    bool *seen, *compared;         /* by kernel: it has ended; the interpreter has had a value that it stored */
    uint32_t n_compared;
    int64_t *symbols;              /* by symbol id; meaningful where known */
    uint32_t worst;                /* the first kernel that differs; UINT32_MAX: none */
    struct difference difference;
};

/* ---- comparing ------------------------------------------------------------------------------------------------- */

/* What kernel k's results may be off by: its least exact float type decides, also where that is inside only. */
static struct closeness kernel_closeness(const struct diff *d, const struct kernel *k, enum elem elem)
{
    const struct graph *g = d->c.graph;
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
    return (struct closeness){loose * d->c.options->tolerance, loose == 0 && from_float};
}

/* ---- a stored value ---------------------------------------------------------------------------------------------- */

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

/* The extents of value v in the run in progress; NULL: the data decides them. */
static int64_t *value_dims(const struct diff *d, const struct type *t)
{
    int64_t *dims = NEW_ARRAY(&d->c.ctx->session, int64_t, t->rank > 0 ? t->rank : 1);
    for (int32_t k = 0; k < t->rank; k++)
        if (!known(d, t->dims[k], &dims[k]) || dims[k] < 0)
            return NULL;
    return dims;
}

/* Copies value v, row-major, from where the kernel that has just ended put it. */
static void capture(struct diff *d, uint32_t index, value_id v)
{
    struct arena *arena = &d->c.ctx->session;
    const struct type *t = value_type(d->c.graph, v);
    struct stored place;
    bool plain = t->kind == TYPE_TENSOR && t->elem != ELEM_STR && t->elem != ELEM_NONE && t->rank >= 0 &&
                 t->rank <= RANK_MAX;
    int64_t *dims = plain ? value_dims(d, t) : NULL;
    struct tensor *copy = NEW(arena, struct tensor);
    if (!dims)
        return;
    *copy = (struct tensor){.kind = TYPE_TENSOR, .elem = t->elem, .rank = t->rank, .dims = dims};
    int64_t n = tensor_count(copy);
    if (!stored_find(d, v, copy, &place))
        return;
    copy->data = arena_alloc_array(arena, (size_t)n + 1, place.size);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)copy->data + i * place.size, stored_address(&place, i), place.size);
    d->got[v.i] = copy;
    d->maker[v.i] = index;
}

static void capture_kernel(struct diff *d, uint32_t index)
{
    const struct kernel *k = &d->c.module->kernels.data[index];
    d->seen[index] = true;
    for (uint32_t i = 0; i < k->outs.n && !k->piece && k->kind != KERNEL_HALO; i++)
        capture(d, index, k->outs.data[i]);
}

/* The interpreter has computed v. */
static void on_value(void *user, value_id v, const struct tensor *t)
{
    struct diff *d = user;
    const struct tensor *got = d->got[v.i];
    struct difference found;
    bool same_shape = got && t->kind == TYPE_TENSOR && t->elem == got->elem && t->rank == got->rank;
    for (int32_t k = 0; same_shape && k < t->rank; k++)
        same_shape = t->dims[k] == got->dims[k];
    if (!same_shape || d->worst != UINT32_MAX)
        return;
    d->n_compared += !d->compared[d->maker[v.i]];
    d->compared[d->maker[v.i]] = true;
    if (tensor_differs(t, got->data, kernel_closeness(d, &d->c.module->kernels.data[d->maker[v.i]], t->elem), &found)) {
        d->worst = d->maker[v.i];
        d->difference = found;
    } else if (found.total > 0) {
        memcpy(t->data, got->data, (size_t)found.total * elem_size(t->elem));
    }
}

/* Which kernel has ended: of those that bear this node and are still to come the first. Where kernels inside of a loop
 * or a branch bear it too, that cannot be told. */
static void on_event(void *user, uint32_t node, int end, uint64_t ns)
{
    struct diff *d = user;
    const struct module *m = d->c.module;
    uint32_t found = UINT32_MAX;
    (void)ns;
    for (uint32_t i = 0; end && i < m->kernels.n; i++) {
        const struct kernel *k = &m->kernels.data[i];
        if (k->kind == KERNEL_OPAQUE || k->kind == KERNEL_CONTROL || kernel_lead(m, k) != node)
            continue;
        if (k->region.i != 1)
            return;
        if (!d->seen[i] && (found == UINT32_MAX || k->order < m->kernels.data[found].order))
            found = i;
    }
    if (found != UINT32_MAX)
        capture_kernel(d, found);
}

/* ---- the two runs ------------------------------------------------------------------------------------------------ */

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
    enum eval_status status = graph_eval_watched(g, in, d->want, on_value, d, &ctx->session, &text);
    return status == EVAL_OK || error_at(ctx, status == EVAL_NOMEM ? FAIL_LIMIT : FAIL_MODEL, (src_id){0}, NULL,
                                         "the interpreter: %s (status %d)%s", text ? text : "failed", (int)status,
                                         d->s.api->n_sym ? "; --dim=NAME=N draws inputs of another size" : "");
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

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static const char *kernel_words(const struct diff *d, uint32_t index)
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
            strbuf_printf(&out, "%s %s", last ? "," : ";", source_label(s));
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
        bool numpy = elem_looseness(t->elem) <= 10 && elem_bits(t->elem) >= 8;
        if (!blob_pack(d->c.ctx, t, &blob) || !blob_write(d->c.ctx, folder, file, numpy ? "npy" : "pb", &blob))
            return false;
    }
    return true;
}

static bool report(const struct diff *d, const char *what, const struct difference *f, const char *note)
{
    return error_at(
        d->c.ctx, FAIL_INTERNAL, (src_id){0}, NULL,
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
        struct blob got = {.elem = elem_by_dlpack(t->dtype), .rank = t->ndim, .data = (char *)t->data + t->byte_offset},
                    blob;
        struct tensor wide;
        struct difference f;
        if (file && (!blob_read(d->c.ctx, file, &blob) || !blob_widen(d->c.ctx, &blob, &want)))
            return false;
        memcpy(got.dims, t->shape, sizeof *t->shape * (size_t)t->ndim);
        if (!blob_widen(d->c.ctx, &got, &wide))
            return false;
        bool shape = want.rank == wide.rank && want.elem == wide.elem;
        for (int32_t k = 0; shape && k < want.rank; k++)
            shape = want.dims[k] == wide.dims[k];
        struct closeness close = {elem_looseness(want.elem) * d->c.options->tolerance, false};
        const char *what = arena_printf(&d->c.ctx->session, "output '%s'", names[i]);
        if (!shape)
            return error_at(d->c.ctx, FAIL_INTERNAL, (src_id){0}, NULL,
                            "%s has another type or shape than the reference", what);
        if (tensor_differs(&want, wide.data, close, &f))
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
    d->compared = NEW_ARRAY(&ctx->session, bool, d->c.module->kernels.n + 1);
    d->got = NEW_ARRAY(&ctx->session, struct tensor *, d->c.graph->values.n + 1);
    d->maker = NEW_ARRAY(&ctx->session, uint32_t, d->c.graph->values.n + 1);
    d->worst = UINT32_MAX;
    bind_symbols(d);
    bool ran = d->s.api->run_dlpack(d->s.run, d->s.in_pointer, out, &d->s.error) == MCC_OK, ok = interpret(d);
    if (d->worst == UINT32_MAX && (!ran || !ok))
        return ran ? false : session_error(&d->s, "run");
    ok = ran || d->worst != UINT32_MAX;
    if (d->worst != UINT32_MAX) {
        const char *folder = d->c.options->output ? d->c.options->output : "mcc-diff";
        const char *note = arena_printf(&ctx->session, "; its operands are in '%s'", folder);
        ok = write_operands(d, folder) && report(d, kernel_words(d, d->worst), &d->difference, note);
    }
    ok = ok && check_outputs(d, out);
    for (uint32_t i = 0; i < n && ran; i++)
        out[i]->deleter(out[i]);
    struct strbuf line;
    strbuf_init(&line, &ctx->session);
    strbuf_printf(&line, "%u of %u kernels and %u outputs compared, none differs\n", d->n_compared,
                  d->c.module->kernels.n, n);
    if (ok && !d->c.options->quiet)
        terminal_print(&line);
    return ok;
}

static void diff_model(void *user, const char *library)
{
    struct diff *d = user;
    const struct options *o = d->c.options;
    struct context *ctx = d->c.ctx;
    const char *model = o->files.items.data[0];
    struct options compiling = *o, running = *o;
    compiling.output = library;
    compiling.emit = "none"; /* nothing but the library goes into the folder, which is removed with it */
    compiling.weights = "embedded";
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

static void diff_end(void *user)
{
    session_close(&((struct diff *)user)->s);
}

enum fail command_diff(struct context *ctx, struct options *o)
{
    struct diff *d = NEW(&ctx->session, struct diff);
    d->c.ctx = ctx;
    d->c.options = o;
    d->c.report = terminal_report();
    (void)with_temporary(ctx, diff_model, diff_end, d);
    return ctx->fail;
}

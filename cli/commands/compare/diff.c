/* mcc diff: the compiled network against the reference interpreter, kernel by kernel.
 *
 * The network is compiled as always; nothing is added to the code. It runs on one thread, and after each kernel's end
 * (mcc_host.event) what the kernel has stored is copied from where the plan put it, the arena or an output, through its
 * storage function. Then the interpreter computes the same values. Each is held against the copy, and where they agree
 * the interpreter goes on from the copy: so every kernel is judged by its own work, and what earlier ones rounded
 * otherwise does not add up. The first kernel that differs is named and its operands go into files. Kernels inside
 * loops and branches, and what only the data sizes, are judged by the outputs after them.
 */
#include <math.h>

#include "cli/commands/command.h"
#include "cli/commands/compare/bounds.h"
#include "cli/commands/compare/capture.h"
#include "cli/commands/compare/difference.h"
#include "cli/commands/compare/rounding.h"
#include "cli/commands/temporary.h"
#include "cli/commands/artifact/session.h"
#include "ir/eval/constants.h"
#include "ir/eval/eval.h"
#include "ir/expr/expr.h"
#include "ir/ops/scalar.h"

enum { OPERANDS_SHOWN = 64 };

struct diff {
    struct capture run;
    struct tensor **want;          /* by value: the interpreter's, NULL where not asked for */
    bool *compared;                /* by kernel: the interpreter has had a value that it stored */
    uint32_t n_compared;
    uint32_t worst;                /* the first kernel that differs; UINT32_MAX: none */
    struct difference difference;
    struct bounds *bounds;         /* --bounds: the interpreter computes in f64; NULL: not */
    struct tensor **folded;        /* by value, of constants that are computed: as the artifact has them */
    VEC(struct bounded) bounded;
    double bound;                  /* of the element that differs; negative: the tolerance decides */
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

/* Of elements with a bound the bound decides; for the others it returns what the tolerance is for. */
static const void *judge(struct diff *d, uint32_t kernel, value_id v, const struct tensor *want, void *got)
{
    const struct bounded r = bounds_judge(d->bounds, v, want, got);
    VEC_PUSH(&d->run.c.ctx->session, &d->bounded, r);
    if (r.outside) {
        d->worst = kernel;
        d->bound = r.bound;
        d->difference = (struct difference){
            .total = r.of, .count = r.outside, .at = r.at, .got = r.got, .want = r.want, .scale = fabs(r.want)};
    }
    return got;
}

/* The interpreter has computed v. */
static void on_value(void *user, value_id v, const struct tensor *t)
{
    struct diff *d = user;
    const struct tensor *got = d->run.got[v.i];
    if (d->bounds && d->folded[v.i])
        memcpy(t->data, d->folded[v.i]->data, (size_t)tensor_count(t) * elem_size(t->elem));
    struct difference found;
    bool same_shape = got && t->kind == TYPE_TENSOR && t->elem == got->elem && t->rank == got->rank;
    for (int32_t k = 0; same_shape && k < t->rank; k++)
        same_shape = t->dims[k] == got->dims[k];
    if (!same_shape || d->worst != UINT32_MAX)
        return;
    const uint32_t kernel = d->run.maker[v.i];
    const void *data = got->data;
    struct arena scratch;
    arena_init(&scratch, d->run.c.ctx);
    if (d->bounds)
        data = judge(d, kernel, v, t, arena_copy(&scratch, data, (size_t)tensor_count(t) * elem_size(t->elem)));
    if (d->worst == UINT32_MAX) {
        d->n_compared += !d->compared[kernel];
        d->compared[kernel] = true;
        if (tensor_differs(t, data, kernel_closeness(d, &d->run.c.module->fused.kernels.data[kernel], t->elem),
                           &found)) {
            d->worst = kernel;
            d->difference = found;
        } else if (found.total > 0) {
            memcpy(t->data, got->data, (size_t)found.total * elem_size(t->elem));
        }
    }
    arena_release(&scratch);
}

/* ---- the two runs ------------------------------------------------------------------------------------------------ */

static void want_value(struct diff *d, value_id v)
{
    if (v.i && !d->want[v.i])
        d->want[v.i] = NEW(&d->run.c.ctx->session, struct tensor);
}

/* As a tensor of f64, in the session's memory. */
static struct tensor *widened(struct diff *d, const struct tensor *t)
{
    struct tensor *wide = NEW(&d->run.c.ctx->session, struct tensor);
    const size_t n = (size_t)tensor_count(t);
    double *data = NEW_ARRAY(&d->run.c.ctx->session, double, n + 1);
    elems_to_f64(t->elem, t->data, data, n);
    *wide = *t;
    wide->elem = ELEM_F64;
    wide->data = data;
    return wide;
}

/* A constant that is computed of others: the artifact has what f32 makes of them. */
static bool fold(struct diff *d, value_id v)
{
    struct graph *g = d->run.c.graph;
    const struct type *t = value_type(g, v);
    struct tensor one = {.kind = TYPE_TENSOR, .elem = t->elem, .rank = t->rank};
    one.dims = NEW_ARRAY(&d->run.c.ctx->session, int64_t, (size_t)t->rank + 1);
    for (int32_t k = 0; k < t->rank; k++)
        if (!ex_is_const(g->ctx->exprs, t->dims[k], &one.dims[k]))
            return true;
    one.data = arena_alloc_array(&d->run.c.ctx->session, (size_t)tensor_count(&one) + 1, elem_size(t->elem));
    if (!const_read(g, v, 0, tensor_count(&one), one.data))
        return false;
    d->folded[v.i] = t->elem == ELEM_F32 ? widened(d, &one) : arena_copy(&d->run.c.ctx->session, &one, sizeof one);
    want_value(d, v);
    return true;
}

/* From here on f32 is f64 in the graph, its constants and what was captured. */
static bool widen(struct diff *d)
{
    struct graph *g = d->run.c.graph;
    const char *why = NULL;
    d->folded = NEW_ARRAY(&d->run.c.ctx->session, struct tensor *, g->values.n + 1);
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *n = graph_node(g, (node_id){i});
        for (uint32_t k = 0; !n->dead && k < n->n_in && n->n_out && !value_is_const(g, n->out[0]); k++) {
            const value_id v = n->in[k];
            if (v.i && !d->folded[v.i] && value_op(g, v) != OP_CONSTANT && value_is_const(g, v) &&
                value_type(g, v)->kind == TYPE_TENSOR && value_type(g, v)->elem != ELEM_STR && !fold(d, v))
                return false;
        }
    }
    if (!graph_widen(g, &why))
        return error_usage(d->run.c.ctx, "--bounds: the network has %s, which is not computed in f64", why);
    for (uint32_t v = 1; v < g->values.n; v++)
        if (d->run.got[v] && d->run.got[v]->elem == ELEM_F32)
            d->run.got[v] = widened(d, d->run.got[v]);
    return true;
}

static bool interpret(struct diff *d)
{
    struct context *ctx = d->run.c.ctx;
    struct graph *g = d->run.c.graph;
    const struct module *m = d->run.c.module;
    struct tensor *in = NEW_ARRAY(&ctx->session, struct tensor, g->inputs.n + 1);
    for (uint32_t i = 0; i < graph_user_inputs(g); i++)
        if (!file_tensor_widen(ctx, &d->run.s.in[i], &in[i]))
            return false;
    for (uint32_t i = 0; d->bounds && i < graph_user_inputs(g); i++)
        if (in[i].elem == ELEM_F32)
            in[i] = *widened(d, &in[i]);
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
    JSON_GROUP(j, NULL, "{", j_uint("kernels", d->run.c.module->fused.kernels.n), j_uint("compared", d->n_compared),
               j_uint("outputs", d->run.s.api->n_out), j_real("tolerance", d->run.c.options->tolerance));
    if (f) {
        JSON_GROUP(j, "difference", "{}", j_text("where", what), j_int("elements", f->total), j_int("differ", f->count),
                   j_int("at", f->at), j_real("got", f->got), j_real("want", f->want), j_real("largest", f->scale));
    } else {
        json_null(j, "difference");
    }
    if (d->bounds)
        bounds_put_json(d->bounds, &d->run, d->bounded.data, d->bounded.n, j);
    json_close(j, "}");
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
        if (d->bounds && want.elem == ELEM_F64 && wide.elem == ELEM_F32) {
            float *narrow = NEW_ARRAY(&d->run.c.ctx->session, float, (size_t)tensor_count(&want) + 1);
            elems_from_f64(ELEM_F32, want.data, narrow, (size_t)tensor_count(&want));
            want.data = narrow;
            want.elem = ELEM_F32;
        }
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

static bool compare(struct diff *d, const char *library)
{
    struct context *ctx = d->run.c.ctx;
    uint32_t n = d->run.s.api->n_out;
    DLManagedTensorVersioned **out = NEW_ARRAY(&ctx->session, DLManagedTensorVersioned *, n + 1);
    d->compared = NEW_ARRAY(&ctx->session, bool, d->run.c.module->fused.kernels.n + 1);
    d->want = NEW_ARRAY(&ctx->session, struct tensor *, d->run.c.graph->values.n + 1);
    d->worst = UINT32_MAX;
    capture_begin(&d->run);
    bool ran = d->run.s.api->run_dlpack(d->run.s.run, d->run.s.in_pointer, out, &d->run.s.error) == MCC_OK, ok = true;
    if (ran && ctx->function_marks) {
        d->bounds = bounds_of(&d->run, library);
        ok = d->bounds && widen(d);
    }
    ok = ok && interpret(d);
    if (d->worst == UINT32_MAX && (!ran || !ok))
        return ran ? false : session_error(&d->run.s, "run");
    ok = ran || d->worst != UINT32_MAX;
    if (d->worst != UINT32_MAX) {
        const char *folder = d->run.c.options->output ? d->run.c.options->output : "mcc-diff";
        const char *bound = d->bound < 0 ? "" : arena_printf(&ctx->session, ", bound %.3g", d->bound);
        const char *note = arena_printf(&ctx->session, "%s; its operands are in '%s'", bound, folder);
        ok = write_operands(d, folder) && report(d, capture_words(&d->run, d->worst), &d->difference, note);
    }
    ok = ok && check_outputs(d, out);
    for (uint32_t i = 0; i < n && ran; i++)
        out[i]->deleter(out[i]);
    struct strbuf line = strbuf_of(&ctx->session);
    if (d->bounds && d->bounded.n)
        bounds_put(d->bounds, &d->run, d->bounded.data, d->bounded.n, d->run.c.options->all, &line);
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
    mcc_host host = {.size = sizeof host,
                     .user = &d->run,
                     .threads = 1,
                     .event = capture_event,
                     .launch = capture_launch,
                     .flags = (uint32_t)o->variant};
    ctx->function_marks = o->bounds;
    d->bound = -1;
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
                     "this output is not a tensor, and only tensors can be compared");
    }
    if (ctx->fail == FAIL_NONE && session_feed(&d->run.s, true))
        (void)(o->against_f32 ? compare_rounding(d) : compare(d, library));
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
    if (o->bounds && o->against_f32)
        error_usage(ctx, "--bounds and --against-f32 are two comparisons");
    else
        (void)(target_serves(ctx, o, true) && with_temporary(ctx, library_name(o), diff_model, diff_end, d));
    return ctx->fail;
}

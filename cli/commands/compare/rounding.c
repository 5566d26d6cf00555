/* What narrow types cost: see rounding.h.
 *
 * The network is read again without any narrow type, and the interpreter computes it from the same inputs. Values of
 * the two graphs belong together by the file's names; one that was narrowed has the name of what it was made of. So a
 * kernel's row is the error that has come as far as its results, its own and that of everything in front of it.
 */
#include "cli/commands/compare/rounding.h"

#include <math.h>

#include "cli/commands/command.h"
#include "ir/eval/eval.h"

enum { KERNELS_SHOWN = 40 };

/* ---- errors ------------------------------------------------------------------------------------------------------ */

void deviation_add(struct deviation *d, const struct tensor *want, enum elem elem, const void *got)
{
    int64_t n = tensor_count(want);
    for (int64_t i = 0; i < n; i++) {
        double w = elem_to_f64(want->elem, (const char *)want->data + i * (int64_t)elem_size(want->elem)),
               g = elem_to_f64(elem, (const char *)got + i * (int64_t)elem_size(elem));
        double apart = w == g || (isnan(w) && isnan(g)) ? 0 : isfinite(w) && isfinite(g) ? fabs(w - g) : INFINITY;
        d->square += apart * apart;
        d->largest = fmax(d->largest, apart);
        if (isfinite(w)) {
            d->signal += w * w;
            d->scale = fmax(d->scale, fabs(w));
        }
    }
    d->n += n;
}

void deviation_join(struct deviation *d, const struct deviation *other)
{
    d->square += other->square;
    d->signal += other->signal;
    d->largest = fmax(d->largest, other->largest);
    d->scale = fmax(d->scale, other->scale);
    d->n += other->n;
}

static double part(double of, double whole)
{
    return of > 0 ? whole > 0 ? of / whole : INFINITY : 0;
}

double deviation_rms(const struct deviation *d)
{
    return sqrt(part(d->square, d->signal));
}

double deviation_most(const struct deviation *d)
{
    return part(d->largest, d->scale);
}

/* ---- the two graphs ---------------------------------------------------------------------------------------------- */

struct named {
    const char *name;
    value_id value;
};
struct rounding {
    struct capture *run;
    struct graph *exact;
    VEC(struct named) names; /* of the exact graph's top region, sorted */
    struct tensor **want; /* by value of the exact graph */
    struct row {
        uint32_t kernel, order;
        struct deviation error;
    } *rows;
};

ASCENDING_TEXTS(by_name, struct named, name);

static void names_collect(struct rounding *r)
{
    const struct graph *g = r->exact;
    for (uint32_t v = 1; v < g->values.n; v++) {
        const struct value *value = graph_value(g, (value_id){v});
        bool top = value->def.i && !graph_node(g, value->def)->dead && graph_node(g, value->def)->parent.i == 1;
        if (value->name && top && value->type.kind == TYPE_TENSOR && elem_class(value->type.elem) == 'F')
            VEC_PUSH(&r->run->c.ctx->session, &r->names, ((struct named){value->name, {v}}));
    }
    if (r->names.n)
        qsort(r->names.data, r->names.n, sizeof *r->names.data, by_name);
}

/* The exact graph's value that v of the run stands for; {0}: the file has no name for it. */
static value_id counterpart(const struct rounding *r, value_id v)
{
    const struct graph *g = r->run->c.graph;
    while (!graph_value(g, v)->name && value_op(g, v) == OP_CONVERT)
        v = value_node(g, v)->in[0];
    struct named key = {graph_value(g, v)->name, v};
    const struct named *found = key.name && r->names.n ? bsearch(&key, r->names.data, r->names.n, sizeof key, by_name)
                                                       : NULL;
    return found ? found->value : (value_id){0};
}

static bool exact_graph(struct rounding *r)
{
    struct options plain = *r->run->c.options;
    const char *path = plain.files.items.data[0];
    plain.precision = OPT_PRECISION_EXACT;
    plain.weights_type = OPT_WEIGHTS_TYPE_AUTO;
    plain.choices.items.n = 0; /* whose precisions are the only ones that the graph has */
    plain.quiet = true; /* what there is to say of the file was said before */
    plain.stats = plain.time_passes = false;
    r->exact = compile_graph(r->run->c.ctx, &plain, path, terminal_report());
    if (!r->exact)
        return false;
    names_collect(r);
    return true;
}

static bool interpret(struct rounding *r)
{
    struct context *ctx = r->run->c.ctx;
    const struct graph *g = r->run->c.graph;
    struct tensor *in = NEW_ARRAY(&ctx->session, struct tensor, r->exact->inputs.n + 1);
    r->want = NEW_ARRAY(&ctx->session, struct tensor *, r->exact->values.n + 1);
    for (uint32_t i = 0; i < graph_user_inputs(r->exact); i++)
        if (!file_tensor_widen(ctx, &r->run->s.in[i], &in[i]))
            return false;
    graph_states(r->exact, in);
    for (uint32_t v = 1; v < g->values.n; v++) {
        value_id exact = r->run->got[v] ? counterpart(r, (value_id){v}) : (value_id){0};
        if (exact.i && !r->want[exact.i])
            r->want[exact.i] = NEW(&ctx->session, struct tensor);
    }
    for (uint32_t i = 0; i < graph_user_outputs(r->exact); i++)
        if (!r->want[r->exact->outputs.data[i].value.i])
            r->want[r->exact->outputs.data[i].value.i] = NEW(&ctx->session, struct tensor);
    const char *text = "";
    enum eval_status status = graph_eval_values(r->exact, in, r->want, &ctx->session, &text);
    return status == EVAL_OK || error_at(ctx, status == EVAL_NOMEM ? FAIL_LIMIT : FAIL_MODEL, (src_id){0}, NULL,
                                         "the interpreter failed: %s (status %d)", text ? text : "failed", (int)status);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    bool same = a->rank == b->rank;
    for (int32_t k = 0; same && k < a->rank; k++)
        same = a->dims[k] == b->dims[k];
    return same;
}

static void print_error(const struct deviation *e, struct strbuf *out)
{
    strbuf_printf(out, "%10.3g %10.3g  ", deviation_rms(e), deviation_most(e));
}

static int by_error(const void *a, const void *b)
{
    double x = deviation_rms(&((const struct row *)a)->error), y = deviation_rms(&((const struct row *)b)->error);
    return (x < y) - (x > y);
}

ASCENDING(by_order, struct row, order);

/* Rows of the kernels with a reference, the ones furthest off first; their number. */
static uint32_t rows_collect(struct rounding *r)
{
    const struct module *m = r->run->c.module;
    uint32_t n = 0;
    r->rows = NEW_ARRAY(&r->run->c.ctx->session, struct row, m->fused.kernels.n + 1);
    for (uint32_t v = 1; v < r->run->c.graph->values.n; v++) {
        const struct tensor *got = r->run->got[v];
        value_id exact = got ? counterpart(r, (value_id){v}) : (value_id){0};
        if (exact.i && same_shape(got, r->want[exact.i]))
            deviation_add(&r->rows[r->run->maker[v]].error, r->want[exact.i], got->elem, got->data);
    }
    for (uint32_t i = 0; i < m->fused.kernels.n; i++)
        if (r->rows[i].error.n)
            r->rows[n++] = (struct row){i, m->fused.kernels.data[i].order, r->rows[i].error};
    qsort(r->rows, n, sizeof *r->rows, by_error);
    return n;
}

static void error_json(const struct deviation *e, struct json *j)
{
    JSON_ADD(j, j_real("rms", deviation_rms(e)), j_real("most", deviation_most(e)));
    json_close(j, "}");
}

static void kernels_json(struct rounding *r, struct json *j)
{
    uint32_t n = rows_collect(r);
    json_open(j, "kernels", '[');
    for (uint32_t i = 0; i < n; i++) {
        JSON_GROUP(j, NULL, "{", j_text("where", capture_words(r->run, r->rows[i].kernel)));
        error_json(&r->rows[i].error, j);
    }
    json_close(j, "]");
}

static void kernels_print(struct rounding *r, struct strbuf *out)
{
    uint32_t n = rows_collect(r), shown = r->run->c.options->all || n < KERNELS_SHOWN ? n : KERNELS_SHOWN;
    qsort(r->rows, shown, sizeof *r->rows, by_order);
    for (uint32_t i = 0; i < shown; i++) {
        print_error(&r->rows[i].error, out);
        strbuf_printf(out, "%s\n", capture_words(r->run, r->rows[i].kernel));
    }
    if (n > shown)
        strbuf_printf(out, "%u more, less far off (--all shows them)\n", n - shown);
    strbuf_printf(out, "%u of %u kernels store what the file has a name for\n", n, r->run->c.module->fused.kernels.n);
}

bool rounding_report(struct capture *run, DLManagedTensorVersioned *const *out)
{
    struct rounding r = {.run = run};
    struct context *ctx = run->c.ctx;
    struct strbuf text = strbuf_of(&ctx->session);
    if (!exact_graph(&r) || !interpret(&r))
        return false;
    struct json *j = run->c.options->document ? &run->c.options->document->result : NULL;
    if (j) {
        JSON_GROUP(j, NULL, "{", j_text("against", "f32"));
        json_open(j, "outputs", '[');
    }
    strbuf_printf(&text, "%10s %10s  %s\n", "rms", "most", "error as a part of the f32 network's values");
    for (uint32_t i = 0; i < graph_user_outputs(r.exact); i++) {
        const DLTensor *t = &out[i]->dl_tensor;
        struct tensor shape = {.rank = t->ndim, .dims = t->shape};
        const struct tensor *want = r.want[r.exact->outputs.data[i].value.i];
        const char *name = r.exact->outputs.data[i].name;
        enum elem elem = elem_by_dlpack(t->dtype);
        struct deviation error = {0};
        if (!same_shape(&shape, want) || elem != want->elem)
            return error_at(ctx, FAIL_MODEL, (src_id){0}, name,
                            "the data gives this output another shape than in f32; compare with other inputs");
        if (elem_bits(elem) < 8 || elem_class(elem) == 'C' || elem_class(elem) == 'S')
            continue;
        deviation_add(&error, want, elem, (const char *)t->data + t->byte_offset);
        if (j) {
            JSON_GROUP(j, NULL, "{", j_text("name", name));
            error_json(&error, j);
            continue;
        }
        print_error(&error, &text);
        strbuf_printf(&text, "output '%s'\n", name);
    }
    if (j) {
        json_close(j, "]");
        kernels_json(&r, j);
        json_close(j, "}");
        return true;
    }
    kernels_print(&r, &text);
    terminal_print(&text);
    return true;
}

/* What a search measures: the error of each product in each arithmetic, and of a network with what was chosen.
 *
 * Errors of products alone come of one network for each arithmetic, in which every product is computed in f32 and in
 * that arithmetic, and an input says which of them counts (ir/graph/probe.h): nothing is compiled for a single product.
 */
#include <math.h>
#include <string.h>

#include "cli/commands/command.h"
#include "cli/commands/quantize/error.h"
#include "ir/eval/eval.h"

const enum arithmetic error_candidates[] = {ARITHMETIC_F16, ARITHMETIC_BF16, ARITHMETIC_I8, ARITHMETIC_INT8,
                                            ARITHMETIC_DYNAMIC};
const uint32_t error_n_candidates = COUNT_OF(error_candidates);

static void say(const struct error_search *e, uint32_t done, uint32_t of)
{
    report_step(&(struct compilation){.options = e->options, .report = terminal_report()}, e->option, done, of);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static bool add_error(void *user, uint32_t k, DLManagedTensorVersioned **out)
{
    struct error_search *e = user;
    e->square[k] = e->own[k] = 0;
    for (uint32_t i = 0; i < e->t.n_want; i++) {
        const struct tensor *want = &e->t.want[k * e->t.n_want + i];
        const DLTensor *got = &out[i]->dl_tensor;
        struct tensor shape = {.kind = TYPE_TENSOR, .rank = got->ndim, .dims = got->shape};
        struct deviation one = {0};
        if (tensor_count(&shape) != tensor_count(want))
            one.square = one.largest = INFINITY; /* how many there are hangs on the values */
        else if (want->data)
            deviation_add(&one, want, want->elem, trial_data(got));
        deviation_join(&e->t.error[i], &one);
        if (e->asking && !metric_put(e, k, i, got))
            return false;
        double part = one.square > 0 ? one.square / one.signal : 0;
        double mean = e->mean[i] > 0 ? one.square / e->mean[i] : one.square > 0 ? INFINITY : 0;
        e->own[k] = fmax(e->own[k], isnan(part) ? INFINITY : part);
        e->square[k] = fmax(e->square[k], isnan(mean) ? INFINITY : mean);
    }
    return true;
}

/* Runs the open network on the samples of a part. */
static bool judge(struct error_search *e, enum part part)
{
    memset(e->t.error, 0, e->t.n_want * sizeof *e->t.error);
    e->t.use = e->part[part];
    return trial_observe(&e->t, add_error, e);
}

static void measure_products(void *user)
{
    struct error_search *e = user;
    const enum arithmetic how = e->probe.second;
    for (uint32_t i = 0; i < e->probe.products.n; i++) {
        struct way *w = &e->s.ways[i].of[how];
        e->t.product = i;
        say(e, i, e->probe.products.n);
        if (!w->possible)
            continue;
        if (!judge(e, PART_SCREEN))
            return;
        double size = trial_worst(&e->t, deviation_rms);
        w->square = size * size;
    }
}

bool error_costs(struct error_search *e)
{
    bool ok = true;
    for (uint32_t k = 0; ok && k < error_n_candidates; k++) {
        bool any = false;
        for (uint32_t i = 0; i < e->probe.products.n; i++)
            any |= e->probe.products.data[i].wanted = e->s.ways[i].of[error_candidates[k]].possible;
        if (!any)
            continue;
        e->probe.second = error_candidates[k];
        e->t.probe = &e->probe;
        e->compilations++;
        ok = trial_run(&e->t, &e->plain, e->model, measure_products, e);
    }
    e->t.probe = NULL;
    return ok;
}

struct attempt {
    struct error_search *e;
    enum part part;
    struct measured *out;
};

static void measure_chosen(void *user)
{
    struct attempt *a = user;
    struct error_search *e = a->e;
    double mean = 0, spread = 0;
    *a->out = (struct measured){.n = e->n_part[a->part]};
    e->asking = e->folder != NULL;
    if (e->asking)
        metric_begin(e);
    if (!judge(e, a->part))
        return;
    e->asking = false;
    for (uint32_t k = 0; k < e->t.samples.n; k++)
        if (e->part[a->part][k]) {
            a->out->within += e->own[k] <= e->bound * e->bound;
            mean += e->square[k] / a->out->n;
        }
    for (uint32_t k = 0; k < e->t.samples.n; k++)
        if (e->part[a->part][k])
            spread += (e->square[k] - mean) * (e->square[k] - mean);
    const double n = a->out->n, deviation = n > 1 ? sqrt(spread / (n - 1)) : 0;
    const double size = a->out->rms = trial_worst(&e->t, e->size);
    a->out->likely = !e->holds ? size : isfinite(mean) ? sqrt(size * size + 2 * deviation * sqrt(2 / n)) : INFINITY;
    a->out->outputs = arena_copy(&e->ctx->session, e->t.error, e->t.n_want * sizeof *e->t.error);
    const double off = a->part == PART_HELD ? size : a->out->likely;
    a->out->part = off > 0 ? off / e->bound : 0;
}

/* What the user's program says is lost, as a part of what may be. */
static bool lost(struct error_search *e, enum part part, struct measured *out)
{
    if (!metric_ask(e, &out->metric))
        return false;
    const double drop = e->exact_metric[part] - out->metric;
    out->part = fmax(out->part, isnan(drop) ? INFINITY : drop > 0 ? drop / e->options->metric_drop : 0);
    return true;
}

bool error_try(struct error_search *e, enum part part, struct measured *out)
{
    struct attempt a = {e, part, out};
    struct options o = e->plain;
    o.choices = error_lines(e);
    o.weights_type = e->options->weights_type;
    e->compilations++;
    say(e, 0, 0);
    if (!trial_run(&e->t, &o, e->model, measure_chosen, &a))
        return false;
    if (e->folder && !lost(e, part, out))
        return false;
    if (e->options->verbose) {
        struct strbuf line;
        strbuf_init(&line, &e->ctx->session);
        strbuf_printf(&line, "%.4g us in products: error %.3g on %u samples%s, likely below %.3g on others",
                      search_ns(e->s.ways, e->s.n) / 1e3, out->rms, out->n,
                      part == PART_HELD ? " that were not seen" : "", out->likely);
        if (e->folder)
            strbuf_printf(&line, "; metric %.6g of %.6g", out->metric, e->exact_metric[part]);
        strbuf_printf(&line, "\n");
        terminal_print(&line);
    }
    return true;
}

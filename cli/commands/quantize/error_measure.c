/* What a search measures: the error of each product in each arithmetic, and of a network with what was chosen.
 *
 * Errors of products alone come of one network for each arithmetic, in which every product is computed in f32 and in
 * that arithmetic, and an input says which of them counts (ir/graph/probe.h): nothing is compiled for a single product.
 */
#include <math.h>

#include "cli/commands/command.h"
#include "cli/commands/quantize/error.h"
#include "ir/eval/eval.h"

const enum arithmetic error_candidates[] = {ARITHMETIC_F16,  ARITHMETIC_BF16,    ARITHMETIC_I8,
                                            ARITHMETIC_INT8, ARITHMETIC_DYNAMIC, ARITHMETIC_I4};
const uint32_t error_n_candidates = COUNT_OF(error_candidates);

/* Runs of the network with one product changed, of all samples; samples of a product at most. */
enum { RUNS = 256, SCREEN_MOST = 32 };

static void say(const struct error_search *e, uint32_t done, uint32_t of)
{
    report_step(&(struct compilation){.options = e->options, .report = terminal_report()}, e->option, done, of);
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

/* The samples of each part: every fourth one is not seen. */
static void part_samples(struct error_search *e)
{
    const uint32_t n = e->t.samples.n;
    uint32_t each = e->s.n ? RUNS / e->s.n : 1, seen = 0;
    each = each < 1 ? 1 : each > SCREEN_MOST ? SCREEN_MOST : each;
    for (uint32_t p = 0; p < PARTS; p++)
        e->part[p] = NEW_ARRAY(&e->ctx->session, bool, n + 1);
    for (uint32_t k = 0; k < n; k++) {
        e->part[PART_HELD][k] = e->holds && n > 1 && (k % 4 == 3 || (n < 4 && k == n - 1));
        e->part[PART_SEEN][k] = !e->part[PART_HELD][k];
        seen += e->part[PART_SEEN][k];
    }
    for (uint32_t k = 0, at = 0; k < n; k++) /* spread over those that are seen */
        if (e->part[PART_SEEN][k]) {
            e->part[PART_SCREEN][k] = each >= seen || at * each / seen != (at + 1) * each / seen;
            at++;
        }
    for (uint32_t p = 0; p < PARTS; p++)
        for (uint32_t k = 0; k < n; k++)
            e->n_part[p] += e->part[p][k];
    e->square = NEW_ARRAY(&e->ctx->session, double, n + 1);
    e->own = NEW_ARRAY(&e->ctx->session, double, n + 1);
}

/* The mean square of each output of a sample, in f32. */
static void means(struct error_search *e)
{
    e->mean = NEW_ARRAY(&e->ctx->session, double, e->t.n_want + 1);
    for (uint32_t k = 0; k < e->t.samples.n; k++)
        for (uint32_t i = 0; i < e->t.n_want; i++) {
            const struct tensor *want = &e->t.want[k * e->t.n_want + i];
            struct deviation d = {0};
            if (want->data)
                deviation_add(&d, want, want->elem, want->data);
            e->mean[i] += d.signal / e->t.samples.n;
        }
}

struct look {
    struct error_search *e;
    trial_see *see;
    void *user;
};

static bool look_at(void *user, uint32_t k, DLManagedTensorVersioned **out)
{
    const struct look *l = user;
    if (!l->e->part[PART_SEEN])
        part_samples(l->e);
    return !l->e->part[PART_SEEN][k] || l->see(l->user, k, out);
}

bool error_observe(struct error_search *e, trial_see *see, void *user)
{
    struct look l = {e, see, user};
    e->t.use = NULL;
    if (!trial_observe(&e->t, look_at, &l))
        return false;
    if (!e->mean)
        means(e);
    return true;
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
    for (uint32_t i = 0; i < e->s.n; i++) {
        struct way *w = &e->s.ways[i].of[how];
        e->t.product = i;
        say(e, i, e->s.n);
        if (!w->possible)
            continue;
        if ((how == ARITHMETIC_INT8 || how == ARITHMETIC_DYNAMIC) && !e->probe.products.data[i].twin) {
            w->square = INFINITY; /* nobody knows: other nodes have its name */
            continue;
        }
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
        for (uint32_t i = 0; i < e->s.n; i++)
            any |= e->probe.products.data[i].wanted = e->s.ways[i].of[error_candidates[k]].possible;
        if (!any)
            continue;
        e->probe.second = error_candidates[k];
        e->t.probe = &e->probe;
        e->compilations++;
        ok = trial_run(&e->t, &e->plain, e->model, measure_products, e);
    }
    e->t.probe = NULL;
    e->costed = true;
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
    const double n = a->out->n, size = a->out->rms = trial_worst(&e->t, e->size);
    a->out->deviation = n > 1 ? sqrt(spread / (n - 1)) : 0;
    if (a->part == PART_HELD) /* few: those that are seen may vary more */
        a->out->deviation = fmax(a->out->deviation, e->s.error.deviation);
    const double room = 2 * a->out->deviation * sqrt(2 / n);
    a->out->likely = !e->holds ? size : isfinite(mean) ? sqrt(size * size + room) : INFINITY;
    a->out->outputs = arena_copy(&e->ctx->session, e->t.error, e->t.n_want * sizeof *e->t.error);
    a->out->part = a->out->likely > 0 && isfinite(e->bound) ? a->out->likely / e->bound : 0;
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

static bool run_chosen(struct error_search *e, void (*use)(void *user), void *user)
{
    struct options o = e->plain;
    o.choices = error_lines(e);
    o.weights_type = e->options->weights_type;
    return trial_run(&e->t, &o, e->model, use, user);
}

bool error_try(struct error_search *e, enum part part, struct measured *out)
{
    struct attempt a = {e, part, out};
    e->compilations++;
    say(e, 0, 0);
    if (!(e->network ? e->network : run_chosen)(e, measure_chosen, &a) || (e->folder && !lost(e, part, out)))
        return false;
    if (e->options->verbose) {
        struct strbuf line;
        strbuf_init(&line, &e->ctx->session);
        const double ns = search_ns(e->s.ways, e->s.n);
        strbuf_printf(&line, e->timed ? "%.4g us in products" : "%.0f products in f32", e->timed ? ns / 1e3 : ns);
        strbuf_printf(&line, ": error %.3g on %u samples%s, likely below %.3g on others", out->rms, out->n,
                      part == PART_HELD ? " that were not seen" : "", out->likely);
        if (e->folder)
            strbuf_printf(&line, "; metric %.6g of %.6g", out->metric, e->exact_metric[part]);
        strbuf_printf(&line, "\n");
        terminal_print(&line);
    }
    return true;
}

/* What --error measures: ranges of operands, times and errors of each product in each arithmetic, and the error of a
 * network with what was chosen.
 *
 * Errors of products alone come of one network for each arithmetic, in which every product is computed in f32 and in
 * that arithmetic, and an input says which of them counts (passes/legalize/quant/arithmetic.c): nothing is compiled for
 * a single product. Times are the cost model's, of the network with all products in that arithmetic.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/command.h"
#include "cli/commands/quantize/search.h"
#include "ir/eval/eval.h"
#include "passes/module/analysis.h"

#define LAST_OF_PRODUCTS "settle-constants"
#define LAST_OF_TIMES "emit"
/* Runs of the network with one product changed, of all samples; samples of a product at least and at most. */
enum { RUNS = 256, SCREEN_MOST = 32 };

/* What is tried, in this order. */
static const enum arithmetic tried[] = {ARITHMETIC_BF16, ARITHMETIC_INT8, ARITHMETIC_DYNAMIC, ARITHMETIC_I8};

static void say(const struct error_search *e, const char *what, uint32_t done, uint32_t of)
{
    report_step(&(struct compilation){.options = e->options, .report = terminal_report()}, what, done, of);
}

/* ---- products and their operands --------------------------------------------------------------------------------- */

static bool user_chose(const struct error_search *e, const char *label)
{
    bool known = false;
    for (uint32_t i = 0; i < e->options->choices.items.n; i++) {
        const char *text = e->options->choices.items.data[i];
        size_t n = strlen(label);
        known |= strncmp(text, label, n) == 0 &&
                 (strncmp(text + n, ":precision=", 11) == 0 || strncmp(text + n, ":weights=", 9) == 0);
    }
    return known;
}

/* May a configuration hold the name? */
static bool is_plain(const char *label)
{
    for (const unsigned char *p = (const unsigned char *)label; *p; p++)
        if (*p < 0x20 || *p >= 0x7f)
            return false;
    return *label;
}

static void list_products(void *user, struct compilation *c)
{
    struct error_search *e = user;
    trial_outputs(&e->t, c->graph);
    if (c->graph->states.n)
        error_at(e->ctx, FAIL_USAGE, (src_id){0}, NULL,
                 "'error': the network keeps values from run to run, which samples of one run say nothing about; use "
                 "--precision= or --weights-type=");
}

bool error_products(struct error_search *e)
{
    struct options o = e->plain;
    o.output = NULL;
    if (!compile_apart(e->ctx, &o, e->model, LAST_OF_PRODUCTS, &e->probe, list_products, e) ||
        e->ctx->fail != FAIL_NONE)
        return false;
    uint32_t n = e->probe.products.n;
    e->ways = NEW_ARRAY(&e->ctx->session, struct site_ways, n + 1);
    e->operand = NEW_ARRAY(&e->ctx->session, uint32_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        const struct product *p = &e->probe.products.data[i];
        struct way *of = e->ways[i].of;
        bool free = p->times == 1 && is_plain(p->label) && !user_chose(e, p->label);
        of[ARITHMETIC_F32].possible = true;
        of[ARITHMETIC_BF16].possible = of[ARITHMETIC_I8].possible = free;
        of[ARITHMETIC_INT8].possible = free && p->takes_int8;
        of[ARITHMETIC_DYNAMIC].possible = free && p->takes_int8 && !p->is_conv && !e->options->strict;
        VEC_PUSH(&e->ctx->session, &e->seen, (struct seen){0});
    }
    return true;
}

/* The samples of each part: every fourth one is not seen. */
static void part_samples(struct error_search *e)
{
    const uint32_t n = e->t.samples.n;
    uint32_t each = e->probe.products.n ? RUNS / e->probe.products.n : 1, seen = 0;
    each = each < 1 ? 1 : each > SCREEN_MOST ? SCREEN_MOST : each;
    for (uint32_t p = 0; p < PARTS; p++)
        e->part[p] = NEW_ARRAY(&e->ctx->session, bool, n + 1);
    for (uint32_t k = 0; k < n; k++) {
        e->part[PART_HELD][k] = n > 1 && (k % 4 == 3 || (n < 4 && k == n - 1));
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
    e->sum = NEW_ARRAY(&e->ctx->session, struct deviation, e->t.n_want + 1);
}

static bool see_operands(void *user, uint32_t k, DLManagedTensorVersioned **out)
{
    struct error_search *e = user;
    if (!e->part[PART_SEEN])
        part_samples(e);
    for (uint32_t i = e->t.n_want; i < e->t.s.api->n_out && e->part[PART_SEEN][k]; i++) {
        const char *name = e->t.s.api->out[i].name;
        const DLTensor *t = &out[i]->dl_tensor;
        uint32_t number = (uint32_t)strtoul(name + strlen(PROBE_OPERAND), NULL, 10);
        if (number < e->seen.n &&
            !seen_add(&e->ctx->session, &e->seen.data[number], trial_data(t), t->shape, t->ndim, -1))
            return error_at(e->ctx, FAIL_MODEL, (src_id){0}, e->probe.products.data[number].label,
                            "the samples make an operand of this node infinite or not a number; give other samples "
                            "(--sample)");
    }
    return true;
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

static void observe(void *user)
{
    struct error_search *e = user;
    if (trial_observe(&e->t, see_operands, e))
        means(e);
}

/* Drawn inputs say nothing about the range of real ones. */
bool error_ranges(struct error_search *e)
{
    const struct product *p = e->probe.products.data;
    e->probe.observe = true;
    e->t.probe = &e->probe;
    e->compilations++;
    if (!trial_run(&e->t, &e->plain, e->model, observe, e))
        return false;
    e->probe.observe = false;
    for (uint32_t i = 0; i < e->probe.products.n; i++) {
        uint32_t first = i;
        for (uint32_t k = 0; k < i && first == i; k++)
            first = p[k].x.i == p[i].x.i && p[k].times == 1 && p[k].takes_int8 ? k : i;
        e->operand[i] = first;
        const struct seen *s = &e->seen.data[first];
        struct range r = s->count ? range_choose(s, OPT_RANGES_SQUARED) : (struct range){0, 0};
        double scale = (double)r.scale;
        e->probe.products.data[i].range = (struct operand_range){r.zero ? -scale * r.zero : 0,
                                                                 scale * (STEPS_U8 - r.zero)};
        e->ways[i].of[ARITHMETIC_INT8].possible &= s->count && s->most > s->least &&
                                                   scale * STEPS_U8 < OPERAND_MOST / 2 && !e->t.samples.drawn;
    }
    return true;
}

/* ---- times ------------------------------------------------------------------------------------------------------- */

struct timing {
    struct error_search *e;
    enum arithmetic how;
};

static void add_times(void *user, struct compilation *c)
{
    const struct timing *t = user;
    struct error_search *e = t->e;
    for (uint32_t i = 0; i < c->module->fused.kernels.n; i++) {
        const struct kernel *k = &c->module->fused.kernels.data[i];
        const char *label = kernel_label(c->module, k);
        for (uint32_t p = 0; p < e->probe.products.n && k->count.i; p++)
            if (strcmp(e->probe.products.data[p].label, label) == 0)
                e->ways[p].of[t->how].ns += (double)k->ns * (double)extent_hint(c->ctx->exprs, k->count);
    }
}

bool error_times(struct error_search *e)
{
    const struct options *given = e->options;
    struct options o = e->plain;
    if (given->strict) { /* one CPU decides for all, as it does on what else changes bits */
        o.target = "x86_64-linux-gnu";
        o.march = BEST_BY_DEFAULT;
        o.mattr = o.variants = NULL;
    } else if ((given->target && !strchr(given->target, ',')) || given->march) { /* perhaps another machine */
        o.target = given->target;
        o.march = given->march;
        o.mattr = given->mattr;
    }
    o.output = NULL;
    for (uint32_t k = 0; k <= COUNT_OF(tried); k++) {
        struct timing t = {e, k ? tried[k - 1] : ARITHMETIC_F32};
        for (uint32_t i = 0; i < e->probe.products.n; i++)
            e->ways[i].chosen = e->ways[i].of[t.how].possible ? t.how : ARITHMETIC_F32;
        o.choices = error_lines(e);
        say(e, "error", k, COUNT_OF(tried) + 1);
        if (!compile_apart(e->ctx, &o, e->model, LAST_OF_TIMES, NULL, add_times, &t))
            return false;
    }
    for (uint32_t i = 0; i < e->probe.products.n; i++)
        for (uint32_t k = 0; k < COUNT_OF(tried); k++)
            e->ways[i].of[tried[k]].possible &= e->ways[i].of[tried[k]].ns < 0.98 * e->ways[i].of[ARITHMETIC_F32].ns;
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
            one.square = INFINITY; /* how many there are hangs on the values */
        else if (want->data)
            deviation_add(&one, want, want->elem, trial_data(got));
        e->sum[i].square += one.square;
        e->sum[i].signal += one.signal;
        double part = one.square > 0 ? one.square / one.signal : 0;
        double mean = e->mean[i] > 0 ? one.square / e->mean[i] : one.square > 0 ? INFINITY : 0;
        e->own[k] = fmax(e->own[k], isnan(part) ? INFINITY : part);
        e->square[k] = fmax(e->square[k], isnan(mean) ? INFINITY : mean);
    }
    return true;
}

/* Runs the open network on the samples of a part: the largest square of an output. */
static bool judge(struct error_search *e, enum part part, double *square)
{
    memset(e->sum, 0, e->t.n_want * sizeof *e->sum);
    e->t.use = e->part[part];
    *square = 0;
    if (!trial_observe(&e->t, add_error, e))
        return false;
    for (uint32_t i = 0; i < e->t.n_want; i++)
        *square = fmax(*square, deviation_rms(&e->sum[i]) * deviation_rms(&e->sum[i]));
    return true;
}

static void measure_products(void *user)
{
    struct error_search *e = user;
    const enum arithmetic how = e->probe.second;
    for (uint32_t i = 0; i < e->probe.products.n; i++) {
        struct way *w = &e->ways[i].of[how];
        e->t.product = i;
        say(e, "error", i, e->probe.products.n);
        if (w->possible && !judge(e, PART_SCREEN, &w->square))
            return;
    }
}

bool error_costs(struct error_search *e)
{
    bool ok = true;
    for (uint32_t k = 0; ok && k < COUNT_OF(tried); k++) {
        bool any = false;
        for (uint32_t i = 0; i < e->probe.products.n; i++)
            any |= e->probe.products.data[i].wanted = e->ways[i].of[tried[k]].possible;
        if (!any)
            continue;
        e->probe.second = tried[k];
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
    double square, mean = 0, spread = 0;
    *a->out = (struct measured){.n = e->n_part[a->part]};
    if (!judge(e, a->part, &square))
        return;
    for (uint32_t k = 0; k < e->t.samples.n; k++)
        if (e->part[a->part][k]) {
            a->out->within += e->own[k] <= e->bound * e->bound;
            mean += e->square[k] / a->out->n;
        }
    for (uint32_t k = 0; k < e->t.samples.n; k++)
        if (e->part[a->part][k])
            spread += (e->square[k] - mean) * (e->square[k] - mean);
    const double n = a->out->n, deviation = n > 1 ? sqrt(spread / (n - 1)) : 0;
    a->out->rms = sqrt(square);
    a->out->likely = isfinite(mean) ? sqrt(square + 2 * deviation * sqrt(2 / n)) : INFINITY;
}

static double exact_ns(const struct error_search *e)
{
    double sum = 0;
    for (uint32_t i = 0; i < e->probe.products.n; i++)
        sum += e->ways[i].of[ARITHMETIC_F32].ns;
    return sum;
}

bool error_try(struct error_search *e, enum part part, struct measured *out)
{
    struct attempt a = {e, part, out};
    struct options o = e->plain;
    o.choices = error_lines(e);
    e->compilations++;
    say(e, "error", 0, 0);
    if (!trial_run(&e->t, &o, e->model, measure_chosen, &a))
        return false;
    if (e->options->verbose) {
        struct strbuf line;
        strbuf_init(&line, &e->ctx->session);
        strbuf_printf(&line, "%.2f of the time: error %.3g on %u samples%s, likely below %.3g on others\n",
                      search_ns(e->ways, e->probe.products.n) / fmax(exact_ns(e), 1), out->rms, out->n,
                      part == PART_HELD ? " that were not seen" : "", out->likely);
        terminal_print(&line);
    }
    return true;
}

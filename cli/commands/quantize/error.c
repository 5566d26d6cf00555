/* --error: the fastest arithmetic of each product within a relative error of the outputs.
 *
 * The network runs on samples. Of each product it is measured what each arithmetic alone adds to the outputs
 * (error_measure.c) and estimated what that saves; a budget of squared errors is spent where it saves most (search.c).
 * The network with all that was chosen then runs on the samples that were seen: the budget grows or shrinks until the
 * error is near the bound, with room for how much samples differ. Samples that the search did not see, every fourth
 * one, judge the result; if they say no, the budget shrinks again.
 */
#include <math.h>
#include <string.h>

#include "cli/commands/artifact/artifact.h"
#include "cli/commands/command.h"
#include "cli/commands/quantize/search.h"

/* Budgets of squared error at most, networks that are compiled for them, times that unseen samples may refuse one. */
enum { BUDGETS = 24, ATTEMPTS = 6, CHECKS = 4 };
/* An error of this part of the bound is near enough to it. */
static const double near_enough = 0.9;

/* "1%" or "0.01"; false: neither, 0 or more than 100 %. */
static bool bound_read(struct context *ctx, const char *text, double *out)
{
    size_t n = strlen(text);
    const bool percent = n && text[n - 1] == '%';
    bool ok = real_parse(arena_strndup(&ctx->session, text, percent ? n - 1 : n), out);
    *out = percent ? *out / 100 : *out;
    return (ok && *out > 0 && *out <= 1) ||
           error_at(ctx, FAIL_USAGE, (src_id){0}, NULL,
                    "'error' takes a part of the outputs' size above 0, such as 1%% or 0.01, not '%s'", text);
}

static bool options_fit(struct context *ctx, const struct options *o)
{
    const char *other = o->precision != OPT_PRECISION_F32          ? "precision"
                        : o->weights_type != OPT_WEIGHTS_TYPE_AUTO ? "weights-type"
                                                                   : NULL;
    return !other || error_at(ctx, FAIL_USAGE, (src_id){0}, NULL,
                              "'error' chooses the arithmetic of each product; leave --%s out, or use --choose "
                              "NODE:precision= for single nodes",
                              other);
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

static uint32_t n_products(const struct error_search *e)
{
    return e->probe.products.n;
}

static void choose(struct error_search *e, double budget)
{
    search_choose(&e->ctx->session, e->ways, n_products(e), budget);
}

/* A budget of 0 is another matter: what alone costs nothing may cost something together. */
static void choose_none(struct error_search *e)
{
    for (uint32_t i = 0; i < n_products(e); i++)
        e->ways[i].chosen = ARITHMETIC_F32;
}

static bool all_exact(const struct error_search *e)
{
    bool exact = true;
    for (uint32_t i = 0; i < n_products(e); i++)
        exact &= e->ways[i].chosen == ARITHMETIC_F32;
    return exact;
}

/* The error on samples that are seen of what is chosen, which may have been tried before. */
static bool try_seen(struct error_search *e)
{
    const uint32_t n = n_products(e);
    for (uint32_t t = 0; t < e->tried.n; t++) {
        bool same = true;
        for (uint32_t i = 0; i < n && same; i++)
            same = e->ways[i].chosen == e->tried.data[t].chosen[i];
        if (same) {
            e->seen_error = e->tried.data[t].error;
            return true;
        }
    }
    enum arithmetic *chosen = NEW_ARRAY(&e->ctx->session, enum arithmetic, n + 1);
    for (uint32_t i = 0; i < n; i++)
        chosen[i] = e->ways[i].chosen;
    e->attempts++;
    if (!error_try(e, PART_SEEN, &e->seen_error))
        return false;
    VEC_PUSH(&e->ctx->session, &e->tried, ((struct tried){chosen, e->seen_error}));
    return true;
}

/* The error of what is chosen for a budget, as a part of the bound. */
static bool budget_try(struct error_search *e, double budget, double *part)
{
    choose(e, budget);
    *part = 0;
    if (all_exact(e))
        return true;
    if (!try_seen(e))
        return false;
    *part = e->seen_error.likely / e->bound;
    return true;
}

/* The largest budget up to `most` (0: whatever) with which the samples that are seen keep the bound; 0: none does. */
static bool budget_find(struct error_search *e, double most, double *out)
{
    double high = most, budget = most > 0 ? most : e->bound * e->bound, part;
    *out = e->attempts = 0;
    for (uint32_t k = 0; k < BUDGETS && e->attempts < ATTEMPTS; k++) {
        if (!budget_try(e, budget, &part))
            return false;
        if (part <= 1)
            *out = fmax(*out, budget);
        else
            high = high > 0 ? fmin(high, budget) : budget;
        if (part <= 1 && (part >= near_enough || budget == most))
            break;
        double next = part > 0 && isfinite(part) ? 0.95 * budget / (part * part) : part > 0 ? budget / 16 : budget * 4;
        if (next <= *out || (high > 0 && next >= high)) /* between what is known */
            next = high > 0 ? sqrt(fmax(*out, high / 64) * high) : 2 * *out;
        budget = next;
    }
    return true;
}

static bool search(struct error_search *e)
{
    double budget, most = 0;
    for (e->checks = 0;; most = budget / 2) {
        if (!budget_find(e, most, &budget))
            return false;
        choose(e, budget);
        if (budget == 0 || all_exact(e) || e->checks == CHECKS) {
            choose_none(e);
            e->seen_error = e->held_error = (struct measured){.n = 0};
            return true;
        }
        if (!try_seen(e))
            return false;
        if (!e->n_part[PART_HELD])
            return true;
        e->checks++;
        if (!error_try(e, PART_HELD, &e->held_error))
            return false;
        if (e->held_error.rms <= e->bound)
            return true;
    }
}

bool error_settle(struct context *ctx, struct options *o)
{
    const char *model = o->files.items.n ? o->files.items.data[0] : NULL;
    if (!o->error && !o->save_choices)
        return true;
    if (!o->error)
        return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL,
                        "'save-choices' writes what --error finds; give --error=1%%");
    if (!model || artifact_meant(model))
        return !model || error_at(ctx, FAIL_USAGE, (src_id){0}, NULL,
                                  "'%s' is compiled already: --error is for networks as their files have them", model);
    struct error_search *e = NEW(&ctx->session, struct error_search);
    e->ctx = e->t.ctx = ctx;
    e->options = o;
    e->t.options = o;
    e->model = model;
    e->probe.arena = &ctx->session;
    ctx->model_path = model;
    ctx->werror = o->werror;
    if (!options_fit(ctx, o) || !bound_read(ctx, o->error, &e->bound))
        return false;
    trial_options(o, &e->plain);
    if (!error_products(e) || !error_ranges(e) || !error_times(e) || !error_costs(e) || !search(e) ||
        ctx->fail != FAIL_NONE)
        return false;
    error_print(e);
    o->choices = error_lines(e);
    o->error = NULL;
    return !o->save_choices || error_save(e, o->save_choices);
}

/* The fastest arithmetic of each product within a bound: see search.h.
 *
 * A budget of squared errors is spent where it saves most. The network with all that was chosen is tried: the budget
 * grows or shrinks until its error is near the bound. Samples that the search did not see judge the result; if they
 * refuse it, the budget shrinks again.
 *
 * Spending is a knapsack with several choices an item. Of each product only those count that lie on the lower convex
 * hull of time over error: a step from one to the next saves less for each unit of error than the step before. All
 * products' steps are taken by what they save for each unit, as long as the budget holds. That is the best there is but
 * for the last step.
 */
#include "cli/commands/quantize/search.h"

#include <math.h>

/* A step of less than this part of a product's time is within what the estimate knows. */
static const double worth_least = 0.02;
/* Budgets at most, networks that are compiled for them, times that unseen samples may refuse one. */
enum { BUDGETS = 24, ATTEMPTS = 6, CHECKS = 4 };
/* An error of this part of the bound is near enough to it. */
static const double near_enough = 0.9;

struct step {
    uint32_t site, to, order; /* order: of the site's steps */
    double ns, square, rate;
};

static int by_rate(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    if (x->rate != y->rate)
        return x->rate < y->rate ? 1 : -1;
    if (x->site != y->site)
        return x->site > y->site ? 1 : -1;
    return (x->order > y->order) - (x->order < y->order);
}

/* The step from arithmetic `from` that saves most for each unit of error. */
static bool next_step(const struct site_ways *s, uint32_t from, struct step *out)
{
    out->rate = -1;
    for (uint32_t to = 0; to < ARITHMETICS; to++) {
        const struct way *a = &s->of[from], *b = &s->of[to];
        double ns = a->ns - b->ns, square = fmax(b->square - a->square, 0);
        if (!b->possible || !isfinite(b->square) || ns < worth_least * s->of[ARITHMETIC_F32].ns || !(ns > 0))
            continue;
        double rate = square > 0 ? ns / square : INFINITY;
        if (rate > out->rate || (rate == out->rate && ns > out->ns)) {
            out->to = to;
            out->ns = ns;
            out->square = square;
            out->rate = rate;
        }
    }
    return out->rate >= 0;
}

void search_choose(struct arena *arena, struct site_ways *sites, uint32_t n, double most)
{
    struct step *steps = NEW_ARRAY(arena, struct step, (size_t)n * ARITHMETICS + 1);
    bool *full = NEW_ARRAY(arena, bool, n + 1);
    uint32_t n_steps = 0;
    double spent = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct step step = {.site = i};
        sites[i].chosen = ARITHMETIC_F32;
        for (uint32_t at = ARITHMETIC_F32; next_step(&sites[i], at, &step); at = step.to) {
            steps[n_steps++] = step;
            step.order++;
        }
    }
    qsort(steps, n_steps, sizeof *steps, by_rate);
    for (uint32_t i = 0; i < n_steps; i++) {
        const struct step *s = &steps[i];
        if (full[s->site] || spent + s->square > most) {
            full[s->site] = true; /* later steps of it begin where this one would have led */
            continue;
        }
        spent += s->square;
        sites[s->site].chosen = (enum arithmetic)s->to;
    }
}

double search_ns(const struct site_ways *sites, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += sites[i].of[sites[i].chosen].ns;
    return sum;
}

double search_square(const struct site_ways *sites, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += sites[i].of[sites[i].chosen].square;
    return sum;
}

/* ---- within a bound ---------------------------------------------------------------------------------------------- */

bool search_all_exact(const struct search *s)
{
    bool exact = true;
    for (uint32_t i = 0; i < s->n; i++)
        exact &= s->ways[i].chosen == ARITHMETIC_F32;
    return exact;
}

static void choose_exact(struct search *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        s->ways[i].chosen = ARITHMETIC_F32;
}

static void choose_fastest(struct search *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct site_ways *w = &s->ways[i];
        w->chosen = ARITHMETIC_F32;
        for (uint32_t k = 0; k < ARITHMETICS; k++)
            if (w->of[k].possible && w->of[k].ns < w->of[w->chosen].ns)
                w->chosen = (enum arithmetic)k;
    }
}

/* The error of what is chosen, which may have been tried before. */
static bool try_chosen(struct search *s)
{
    for (uint32_t t = 0; t < s->tried.n; t++) {
        bool same = true;
        for (uint32_t i = 0; i < s->n && same; i++)
            same = s->ways[i].chosen == s->tried.data[t].chosen[i];
        if (same) {
            s->error = s->tried.data[t].error;
            return true;
        }
    }
    enum arithmetic *chosen = NEW_ARRAY(&s->ctx->session, enum arithmetic, s->n + 1);
    for (uint32_t i = 0; i < s->n; i++)
        chosen[i] = s->ways[i].chosen;
    s->attempts++;
    if (!s->try(s->user, &s->error))
        return false;
    VEC_PUSH(&s->ctx->session, &s->tried, ((struct tried){chosen, s->error, search_ns(s->ways, s->n)}));
    return true;
}

/* What is chosen for a budget, and its error as a part of the bound. */
static bool budget_try(struct search *s, double budget, double *part)
{
    search_choose(&s->ctx->session, s->ways, s->n, budget);
    *part = 0;
    if (search_all_exact(s))
        return true;
    if (!try_chosen(s))
        return false;
    *part = s->error.part;
    return true;
}

/* The largest budget up to `most` (0: whatever) with which the samples that are seen keep the bound; 0: none does. */
static bool budget_find(struct search *s, double most, double *out)
{
    double high = most, budget = most > 0 ? most : s->first, part;
    *out = s->attempts = 0;
    for (uint32_t k = 0; k < BUDGETS && s->attempts < ATTEMPTS; k++) {
        if (!budget_try(s, budget, &part))
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

/* All in f32: what alone costs nothing may cost something together, so this is no budget. */
static bool settle_exact(struct search *s)
{
    double part = 0;
    choose_exact(s);
    s->error = (struct measured){.n = 0};
    if (!s->base)
        return true;
    if (!try_chosen(s) || (s->error.part <= 1 && s->confirm && !s->confirm(s->user, &part)))
        return false;
    s->error.part = part <= 1 ? s->error.part : INFINITY;
    return true;
}

/* How large a budget is likely to keep the bound, after everything at its fastest was off by so many times of it. */
static double budget_guess(const struct search *s, double part)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        double fastest = INFINITY, square = 0;
        for (uint32_t k = 0; k < ARITHMETICS; k++)
            if (s->ways[i].of[k].possible && s->ways[i].of[k].ns < fastest) {
                fastest = s->ways[i].of[k].ns;
                square = s->ways[i].of[k].square;
            }
        sum += isfinite(square) ? square : 0;
    }
    return isfinite(part) && sum > 0 ? sum / (part * part) : s->first;
}

/* The next budget after the unseen samples refused the choice. part: their error over the bound. The new budget would
 * just keep the bound if the squared error were proportional to the budget. It is at least a
 * quarter and at most 0.9 of what was spent, from the second refusal on at most half. */
static double budget_after(const struct search *s, double part)
{
    return search_square(s->ways, s->n) * fmax(0.25, fmin(s->checks == 1 ? 0.9 : 0.5, 0.95 / (part * part)));
}

bool search_run(struct search *s)
{
    double budget, most = 0, part = 0;
    if (s->base && !settle_exact(s))
        return false;
    if (s->base && s->error.part > 1)
        return true;
    if (s->hopeful) {
        choose_fastest(s);
        if (!try_chosen(s))
            return false;
        part = s->error.part;
        if (part <= 1)
            return true;
    }
    if (!s->measure(s->user))
        return false;
    if (s->hopeful)
        s->first = budget_guess(s, part);
    for (s->checks = 0;; most = budget_after(s, part)) {
        if (s->checks && most <= 0)
            return settle_exact(s);
        if (!budget_find(s, most, &budget))
            return false;
        search_choose(&s->ctx->session, s->ways, s->n, budget);
        if (budget == 0 || search_all_exact(s) || s->checks == CHECKS)
            return settle_exact(s);
        if (!try_chosen(s))
            return false;
        if (!s->confirm)
            return true;
        s->checks++;
        if (!s->confirm(s->user, &part))
            return false;
        if (part <= 1)
            return true;
    }
}

/* The fastest arithmetic of each product within a budget of squared error: see search.h.
 *
 * A knapsack with several choices an item. Of each product only those count that lie on the lower convex hull of time
 * over error: a step from one to the next saves less for each unit of error than the step before. All products' steps
 * are taken by what they save for each unit, as long as the budget holds. That is the best there is but for the last
 * step.
 */
#include "cli/commands/quantize/search.h"

#include <math.h>
#include <stdlib.h>

/* A step of less than this part of a product's time is within what the estimate knows. */
static const double worth_least = 0.02;

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

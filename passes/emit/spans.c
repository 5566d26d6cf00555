/* Where the lanes of a vector lie in memory, one by one.
 *
 * An image enlarged by 2 reads each element twice; a channel shuffle reads every second lane from the other half; a
 * concat whose pieces do not end with a block of channels writes the last lanes of a vector into the next block. Each
 * is a few contiguous accesses and a shuffle instead of a gather or scatter, which CPUs do lane by lane.
 */
#include "passes/emit/spans.h"

const struct em_sym *em_lane_of(const struct em *em, expr_id e, bool *several)
{
    const struct em_sym *found = NULL;
    *several = false;
    for (uint32_t i = 0; i < em->syms.n; i++) {
        const struct em_sym *s = &em->syms.data[i];
        if (s->lanes && ex_uses(em->x, e, s->sym)) {
            *several |= found != NULL || s->vector;
            found = s;
        }
    }
    return found;
}

/* A span while lanes are added: elements least to most, counted from the first lane that is in it. */
struct growing {
    expr_id lane;
    int64_t least, most;
};

/* Which span lane k belongs to, and *at counted as in it; n: a new one. */
static uint32_t span_of(struct em *em, struct growing *g, uint32_t n, uint32_t lanes, expr_id here, int64_t *at)
{
    for (uint32_t j = 0; j < n; j++) {
        if (!ex_apart(em->x, here, g[j].lane, at))
            continue;
        int64_t least = *at < g[j].least ? *at : g[j].least, most = *at > g[j].most ? *at : g[j].most;
        if (most - least >= lanes)
            continue;
        g[j].least = least;
        g[j].most = most;
        return j;
    }
    *at = 0;
    return n;
}

static bool is_whole(const struct em_spans *s)
{
    int64_t taken = 0;
    for (uint32_t j = 0; j < s->n; j++)
        taken += s->span[j].n;
    if (taken != s->live)
        return false;
    for (uint32_t k = 0; k < s->live; k++)
        for (uint32_t i = 0; i <= k; i++)
            if (s->of[k] == EM_SPANS_MOST || (i < k && s->of[i] == s->of[k] && s->at[i] == s->at[k]))
                return false;
    return true;
}

bool em_spans(struct em *em, expr_id addr, expr_id cond, struct em_spans *s)
{
    bool several;
    const struct em_sym *lane = em_lane_of(em, addr, &several);
    struct growing g[EM_SPANS_MOST];
    int64_t at[LOOP_LANES_MAX];
    expr_id coef, rest;
    if (!lane || several || lane->lanes > LOOP_LANES_MAX ||
        (ex_linear(em->x, addr, lane->sym, &coef, &rest) && !ex_is(em->x, coef, -1)))
        return false;
    int64_t hi = ex_hi(em->x, ex_sym(em->x, lane->sym));
    if (hi >= lane->lanes || (lane->mask.i && hi == lane->lanes - 1)) /* which lanes exist is dynamic */
        return false;
    *s = (struct em_spans){.lanes = lane->lanes, .live = (uint32_t)(hi + 1)};
    uint32_t most = s->live / 2 > EM_SPANS_MOST ? EM_SPANS_MOST : s->live / 2;
    for (uint32_t k = 0; k < s->live; k++) {
        expr_id to = ex_const(em->x, k), here = ex_subst(em->x, addr, &lane->sym, &to, 1);
        enum truth wanted = ex_truth(em->x, ex_subst(em->x, cond, &lane->sym, &to, 1));
        s->of[k] = EM_SPANS_MOST;
        if (wanted == FALSE_)
            continue;
        if (wanted != TRUE_)
            return false;
        uint32_t j = span_of(em, g, s->n, s->lanes, here, &at[k]);
        if (j == s->n) {
            if (j >= most && j > 0)
                return false;
            g[s->n++] = (struct growing){.lane = here};
        }
        s->of[k] = (uint8_t)j;
    }
    for (uint32_t j = 0; j < s->n; j++) {
        s->span[j].first = ex_addc(em->x, g[j].lane, g[j].least);
        s->span[j].n = g[j].most - g[j].least + 1;
    }
    for (uint32_t k = 0; k < s->live; k++)
        s->at[k] = (uint8_t)(s->of[k] < s->n ? at[k] - g[s->of[k]].least : 0);
    s->whole = is_whole(s);
    return s->n > 0;
}

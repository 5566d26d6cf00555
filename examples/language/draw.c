/* Drawing: a heap of the logits gives the likeliest one after the other, so that a vocabulary of 150,000 words is not
 * sorted. First the k likeliest are taken, then of these the fewest that have together the chance top_p. */
#include <math.h>
#include <stdlib.h>

#include "draw.h"

void draw_seed(struct draw *d, uint64_t seed)
{
    d->state = seed * 0x9e3779b97f4a7c15ull + 1;
    d->state += !d->state;
}

/* From 0 to 1, xorshift64*. */
static double uniform(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (double)((*state * 0x2545f4914f6cdd1dull) >> 11) / 9007199254740992.0;
}

/* Equally likely tokens in their order. */
static int before(struct draw_chance a, struct draw_chance b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static void sink(struct draw_chance *heap, int n, int at)
{
    for (int child; (child = 2 * at + 1) < n; at = child) {
        struct draw_chance held = heap[at];
        child += child + 1 < n && before(heap[child + 1], heap[child]);
        if (!before(heap[child], held))
            return;
        heap[at] = heap[child];
        heap[child] = held;
    }
}

/* Moves the likeliest of n to the end. */
static void pop(struct draw_chance *heap, int n)
{
    struct draw_chance best = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = best;
    sink(heap, n - 1, 0);
}

/* The tokens with their logits, those that were there lowered once. NaN counts as the least likely. */
static void fill(struct draw *d, const float *logits, int n, const int64_t *seen, int64_t count)
{
    for (int i = 0; i < n; i++)
        d->heap[i] = (struct draw_chance){logits[i] == logits[i] ? logits[i] : -INFINITY, i};
    for (int64_t i = 0; d->penalty != 1 && i < count; i++) {
        int64_t t = seen[i];
        if (t < 0 || t >= n || d->heap[t].token < 0)
            continue;
        d->heap[t].logit = (float)(logits[t] > 0 ? logits[t] / d->penalty : logits[t] * d->penalty);
        d->heap[t].token = -1 - (int)t; /* done */
    }
    for (int i = 0; i < n; i++)
        d->heap[i].token = i;
}

/* The chance of place i of the heap, 1 for the likeliest. */
static double chance(const struct draw *d, int i, float most)
{
    return exp((double)(d->heap[i].logit - most) / d->temperature);
}

/* Popped tokens lie at the end, the likeliest last. */
static int draw_one(struct draw *d, int n)
{
    int k = d->top_k > 0 && d->top_k < n ? (int)d->top_k : n, popped = k < n ? k : 0, at = n;
    double sum = 0, share = 0;
    for (int i = n / 2 - 1; i >= 0; i--)
        sink(d->heap, n, i);
    float most = d->heap[0].logit;
    for (int i = 0; i < popped; i++)
        pop(d->heap, n - i);
    for (int i = n - k; i < n; i++)
        sum += chance(d, i, most);
    while (d->top_p < 1 && at > n - k && (at == n || share < d->top_p * sum)) {
        if (!popped)
            pop(d->heap, at);
        share += chance(d, --at, most);
    }
    if (d->top_p >= 1) {
        at = n - k;
        share = sum;
    }
    share *= uniform(&d->state);
    for (int i = n - 1; i > at; i--)
        if ((share -= chance(d, i, most)) < 0)
            return d->heap[i].token;
    return d->heap[at].token;
}

int draw_token(struct draw *d, const float *logits, int n, const int64_t *seen, int64_t count)
{
    int best = 0;
    if (n > d->room) {
        struct draw_chance *more = realloc(d->heap, (size_t)n * sizeof *more);
        if (!more)
            return -1;
        d->heap = more;
        d->room = n;
    }
    fill(d, logits, n, seen, count);
    if (d->temperature > 0 && d->top_k != 1)
        return draw_one(d, n);
    for (int i = 1; i < n; i++)
        best = before(d->heap[i], d->heap[best]) ? i : best;
    return best;
}

void draw_free(struct draw *d)
{
    free(d->heap);
    d->heap = NULL;
    d->room = 0;
}

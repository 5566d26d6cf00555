/* Bytes that are taken, in a segment tree over the kernels of the run (lives.h). */
#include "passes/layout/lives.h"

/* Of all buffers together, some tenths of a second. */
enum { WORK_MOST = 1 << 26, SETS_MOST = 6 * 32 };

void lives_begin(struct lives *l, uint32_t n_kernels)
{
    for (l->n_leaves = 1; l->n_leaves < n_kernels + 1;)
        l->n_leaves *= 2;
    l->node = NEW_ARRAY(l->arena, struct life, 2 * (size_t)l->n_leaves);
}

/* The first range that ends at `from` or after it. */
static uint32_t range_find(const struct taken *t, int64_t from)
{
    uint32_t lo = 0, hi = t->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (t->data[mid].end < from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Ranges that r meets or touches become one with it. */
static void take(struct lives *l, struct taken *t, struct byte_range r)
{
    uint32_t at = range_find(t, r.begin), end = at;
    for (; end < t->n && t->data[end].begin <= r.end; end++) {
        r.begin = t->data[end].begin < r.begin ? t->data[end].begin : r.begin;
        r.end = t->data[end].end > r.end ? t->data[end].end : r.end;
    }
    if (t->n == t->cap && end == at) {
        struct byte_range *old = t->data;
        t->cap = t->cap ? 2 * t->cap : 1;
        t->data = NEW_ARRAY(l->arena, struct byte_range, t->cap);
        if (t->n)
            memcpy(t->data, old, t->n * sizeof *old);
    }
    if (end != at + 1)
        memmove(&t->data[at + 1], &t->data[end], (t->n - end) * sizeof r);
    t->data[at] = r;
    l->work += end != at + 1 ? t->n - end + 1 : 1;
    t->n = t->n - (end - at) + 1;
}

void lives_add(struct lives *l, uint32_t first, uint32_t last, int64_t offset, int64_t size)
{
    struct byte_range r = {offset, offset + size};
    uint32_t lo = first + l->n_leaves, hi = last + l->n_leaves;
    if (!size || l->work > WORK_MOST)
        return;
    for (uint32_t a = lo, b = hi; a; a /= 2, b /= 2) {
        take(l, &l->node[a].some, r);
        if (a != b)
            take(l, &l->node[b].some, r);
    }
    for (hi++; lo < hi; lo /= 2, hi /= 2) {
        if (lo % 2)
            take(l, &l->node[lo++].whole, r);
        if (hi % 2)
            take(l, &l->node[--hi].whole, r);
    }
}

/* Sets of ranges that are taken, with how far a search has come in each. */
struct search {
    struct taken set[SETS_MOST];
    uint32_t n;
};

static void look_at(struct search *s, const struct taken *t)
{
    if (t->n)
        s->set[s->n++] = *t;
}

/* What lives at some time from `first` to `last`: what outlasts a node on the way from the two to the root, and all
 * below the nodes that together are this time. */
static void look_from(const struct lives *l, struct search *s, uint32_t first, uint32_t last)
{
    uint32_t lo = first + l->n_leaves, hi = last + l->n_leaves;
    for (uint32_t a = lo, b = hi; a; a /= 2, b /= 2) {
        look_at(s, &l->node[a].whole);
        if (a != b)
            look_at(s, &l->node[b].whole);
    }
    for (hi++; lo < hi; lo /= 2, hi /= 2) {
        uint32_t side[2] = {lo % 2 ? lo++ : 0, hi % 2 ? --hi : 0};
        for (int k = 0; k < 2; k++) {
            look_at(s, &l->node[side[k]].whole);
            look_at(s, &l->node[side[k]].some);
        }
    }
}

bool lives_gap(struct lives *l, uint32_t first, uint32_t last, int64_t size, int64_t *offset)
{
    struct search s = {.n = 0};
    int64_t at = 0;
    if (l->work > WORK_MOST)
        return false;
    look_from(l, &s, first, last);
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t k = 0; k < s.n; k++) {
            struct taken *t = &s.set[k];
            for (; t->n && t->data->begin < at + size; t->data++, t->n--, l->work++) {
                moved |= t->data->end > at;
                at = t->data->end > at ? t->data->end : at;
            }
        }
        l->work += s.n;
    }
    *offset = at;
    return true;
}

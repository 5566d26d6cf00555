/* Lives of buffers in a segment tree over the kernels of the run (lives.h). */
#include "passes/layout/lives.h"

/* Of all searches together, some tenths of a second. */
enum { WORK_MOST = 1 << 26 };

void lives_begin(struct lives *l, uint32_t n_kernels, uint32_t n)
{
    for (l->n_leaves = 1; l->n_leaves < n_kernels + 1;)
        l->n_leaves *= 2;
    l->begin = NEW_ARRAY(l->arena, struct packed *, l->n_leaves);
    l->node = NEW_ARRAY(l->arena, uint32_t, 2 * (size_t)l->n_leaves);
    l->found = NEW_ARRAY(l->arena, struct packed *, n + 1);
    VEC_PUSH(l->arena, &l->entries, (struct life_entry){0});
}

static void enter(struct lives *l, uint32_t node, struct packed *b)
{
    VEC_PUSH(l->arena, &l->entries, ((struct life_entry){b, l->node[node]}));
    l->node[node] = l->entries.n - 1;
}

void lives_add(struct lives *l, struct packed *b)
{
    b->next = l->begin[b->first];
    l->begin[b->first] = b;
    uint32_t lo = b->first + l->n_leaves, hi = b->last + l->n_leaves + 1;
    for (; lo < hi; lo /= 2, hi /= 2) {
        if (lo % 2)
            enter(l, lo++, b);
        if (hi % 2)
            enter(l, --hi, b);
    }
}

bool lives_find(struct lives *l, uint32_t first, uint32_t last, uint32_t *n)
{
    *n = 0;
    if (l->work > WORK_MOST)
        return false;
    /* Those that live at `first`, then those that begin after it. */
    for (uint32_t node = first + l->n_leaves; node; node /= 2)
        for (uint32_t e = l->node[node]; e; e = l->entries.data[e].next)
            l->found[(*n)++] = l->entries.data[e].b;
    for (uint32_t at = first + 1; at <= last; at++)
        for (struct packed *b = l->begin[at]; b; b = b->next)
            l->found[(*n)++] = b;
    l->work += *n + (last - first);
    return true;
}

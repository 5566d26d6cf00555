/* SentencePiece's byte pair encoding: no list of merges, the neighbours that together are the token of the best score
 * become it, the first of several. Pieces may be whole texts, so candidates are kept in a heap. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "split.h"

struct symbol {
    uint32_t at, bytes; /* bytes 0: part of the symbol before it */
    int32_t before, after; /* -1: none */
};

/* Two neighbours that are a token; bytes: of both, which tell whether they are as they were. */
struct candidate {
    float score;
    int32_t left, right;
    uint32_t bytes;
};

struct merging {
    const struct bpe *b;
    const char *piece;
    struct symbol *symbol;
    struct candidate *heap;
    size_t n;
};

static int better(const struct candidate *a, const struct candidate *b)
{
    return a->score > b->score || (a->score == b->score && a->left < b->left);
}

static void heap_put(struct merging *m, struct candidate c)
{
    size_t i = m->n++;
    for (; i > 0 && better(&c, &m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = c;
}

static struct candidate heap_take(struct merging *m)
{
    struct candidate best = m->heap[0], last = m->heap[--m->n];
    size_t i = 0, child;
    for (; (child = 2 * i + 1) < m->n; i = child) {
        child += child + 1 < m->n && better(&m->heap[child + 1], &m->heap[child]);
        if (!better(&m->heap[child], &last))
            break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return best;
}

static void consider(struct merging *m, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return;
    uint32_t bytes = m->symbol[left].bytes + m->symbol[right].bytes;
    int32_t id = bpe_find(m->b, m->piece + m->symbol[left].at, bytes);
    if (id >= 0 && !isnan(m->b->score[id]))
        heap_put(m, (struct candidate){m->b->score[id], left, right, bytes});
}

static void merge_best(struct merging *m)
{
    struct candidate c = heap_take(m);
    struct symbol *left = &m->symbol[c.left], *right = &m->symbol[c.right];
    if (left->bytes == 0 || right->bytes == 0 || left->bytes + right->bytes != c.bytes)
        return;
    left->bytes = c.bytes;
    left->after = right->after;
    right->bytes = 0;
    if (left->after >= 0)
        m->symbol[left->after].before = c.left;
    consider(m, left->before, c.left);
    consider(m, c.left, left->after);
}

static int put_symbols(const struct merging *m, struct bpe_ids *ids)
{
    size_t begun = ids->n;
    for (int32_t i = 0; i >= 0; i = m->symbol[i].after) {
        const char *text = m->piece + m->symbol[i].at;
        int32_t id = bpe_find(m->b, text, m->symbol[i].bytes);
        int token = id >= 0 && !isnan(m->b->score[id]);
        if (token ? !bpe_ids_put(ids, id) : !bpe_put_bytes(m->b, text, m->symbol[i].bytes, begun, ids))
            return 0;
    }
    return 1;
}

/* Each merge adds two candidates at most: 3 for each byte are enough. */
int scores_encode(const struct bpe *b, const char *piece, size_t bytes, struct bpe_ids *ids)
{
    struct merging m = {b, piece, malloc(bytes * sizeof *m.symbol), malloc(3 * bytes * sizeof *m.heap), 0};
    int32_t n = 0;
    int ok = m.symbol && m.heap;
    for (size_t at = 0, used; ok && at < bytes; at += used, n++) {
        split_point(piece + at, bytes - at, &used);
        m.symbol[n] = (struct symbol){(uint32_t)at, (uint32_t)used, n - 1, at + used < bytes ? n + 1 : -1};
    }
    for (int32_t i = 1; ok && i < n; i++)
        consider(&m, i - 1, i);
    while (ok && m.n > 0)
        merge_best(&m);
    ok = ok && put_symbols(&m, ids);
    free(m.symbol);
    free(m.heap);
    return ok;
}

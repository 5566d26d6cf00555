/* Merging of neighbours, the best first, the first of equals: by the ranks of a list of pairs, or, as SentencePiece
 * does, by the score of the token that both make together. Pieces may be whole texts, so a heap keeps candidates. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "split.h"

/* A run of the piece's bytes (scores) or of its first tokens (pairs); id counts with pairs alone. */
struct symbol {
    uint32_t at, size; /* size 0: part of the symbol before it */
    int32_t before, after; /* -1: none */
    int32_t id;
};

/* Two neighbours that may become one; size: of both, which shows whether they have changed; id: what they become. */
struct candidate {
    float score;
    int32_t left, right, id;
    uint32_t size;
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

/* A rank is below BPE_NUMBERS, so that a float has it. */
static void consider(struct merging *m, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return;
    const struct symbol *l = &m->symbol[left], *r = &m->symbol[right];
    struct candidate c = {0, left, right, -1, l->size + r->size};
    if (m->b->score) {
        c.id = bpe_find(m->b, m->piece + l->at, c.size);
        c.score = c.id >= 0 ? m->b->score[c.id] : NAN;
    } else {
        const struct bpe_pair *p = bpe_pair(m->b, l->id, r->id);
        c.id = p->made;
        c.score = p->left >= 0 ? -(float)p->rank : NAN;
    }
    if (!isnan(c.score))
        heap_put(m, c);
}

static void merge_best(struct merging *m)
{
    struct candidate c = heap_take(m);
    struct symbol *left = &m->symbol[c.left], *right = &m->symbol[c.right];
    if (left->size == 0 || right->size == 0 || left->size + right->size != c.size)
        return;
    left->size = c.size;
    left->id = c.id;
    left->after = right->after;
    right->size = 0;
    if (left->after >= 0)
        m->symbol[left->after].before = c.left;
    consider(m, left->before, c.left);
    consider(m, c.left, left->after);
}

static void merge_all(struct merging *m, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        m->symbol[i].before = i - 1;
        m->symbol[i].after = i + 1 < n ? i + 1 : -1;
    }
    for (int32_t i = 1; i < n; i++)
        consider(m, i - 1, i);
    while (m->n > 0)
        merge_best(m);
}

/* Each merge adds two candidates at most: 3 for each symbol are enough. */
static int merging_open(struct merging *m, const struct bpe *b, const char *piece, size_t symbols)
{
    *m = (struct merging){b, piece, NULL, NULL, 0};
    if (symbols > INT32_MAX)
        return 0;
    m->symbol = malloc(symbols * sizeof *m->symbol);
    m->heap = malloc(3 * symbols * sizeof *m->heap);
    return m->symbol && m->heap;
}

static void merging_close(struct merging *m)
{
    free(m->symbol);
    free(m->heap);
}

static int put_symbols(const struct merging *m, struct bpe_ids *ids)
{
    size_t begun = ids->n;
    for (int32_t i = 0; i >= 0; i = m->symbol[i].after) {
        const char *text = m->piece + m->symbol[i].at;
        int32_t id = bpe_find(m->b, text, m->symbol[i].size);
        int token = id >= 0 && !isnan(m->b->score[id]);
        if (token ? !bpe_ids_put(ids, id) : !bpe_put_bytes(m->b, text, m->symbol[i].size, begun, ids))
            return 0;
    }
    return 1;
}

int merge_by_scores(const struct bpe *b, const char *piece, size_t bytes, struct bpe_ids *ids)
{
    struct merging m;
    int32_t n = 0;
    int ok = merging_open(&m, b, piece, bytes);
    for (size_t at = 0, used; ok && at < bytes; at += used, n++) {
        split_point(piece + at, bytes - at, &used);
        m.symbol[n] = (struct symbol){.at = (uint32_t)at, .size = (uint32_t)used};
    }
    if (ok)
        merge_all(&m, n);
    ok = ok && put_symbols(&m, ids);
    merging_close(&m);
    return ok;
}

int merge_by_pairs(const struct bpe *b, struct bpe_ids *ids, size_t begun)
{
    struct merging m;
    size_t n = ids->n - begun;
    int ok = merging_open(&m, b, NULL, n);
    for (size_t i = 0; ok && i < n; i++)
        m.symbol[i] = (struct symbol){.at = (uint32_t)i, .size = 1, .id = (int32_t)ids->id[begun + i]};
    if (ok) {
        merge_all(&m, (int32_t)n);
        ids->n = begun;
        for (int32_t i = 0; i >= 0; i = m.symbol[i].after)
            ids->id[ids->n++] = m.symbol[i].id;
    }
    merging_close(&m);
    return ok;
}

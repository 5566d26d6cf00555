/* Tables that every reader of a tokenizer fills. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vocabulary.h"

void vocabulary_points(int byte[VOCABULARY_POINTS])
{
    int hidden = 256;
    memset(byte, 0xff, VOCABULARY_POINTS * sizeof *byte);
    for (int i = 0; i < 256; i++)
        byte[(i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174 ? i : hidden++] = i;
}

char *vocabulary_text(const char *text, size_t bytes, const int *byte, size_t *n)
{
    char *copy = malloc(bytes + 1);
    *n = 0;
    for (size_t at = 0, used; copy && byte && at < bytes; at += used) {
        int32_t c = split_point(text + at, bytes - at, &used);
        if (c < 0 || c >= VOCABULARY_POINTS || byte[c] < 0) {
            byte = NULL;
            break;
        }
        copy[(*n)++] = (char)byte[c];
    }
    if (copy && !byte) {
        memcpy(copy, text, bytes);
        *n = bytes;
    }
    return copy;
}

int vocabulary_merge(struct bpe *b, const char *left, size_t left_bytes, const char *right, size_t right_bytes,
                     const int *byte)
{
    size_t n[2] = {0};
    char *half[] = {vocabulary_text(left, left_bytes, byte, &n[0]), vocabulary_text(right, right_bytes, byte, &n[1])};
    char *both = half[0] && half[1] ? malloc(n[0] + n[1] + 1) : NULL;
    int32_t id[3] = {-1, -1, -1};
    if (both) {
        memcpy(both, half[0], n[0]);
        memcpy(both + n[0], half[1], n[1]);
        id[0] = bpe_find(b, half[0], n[0]);
        id[1] = bpe_find(b, half[1], n[1]);
        id[2] = bpe_find(b, both, n[0] + n[1]);
    }
    free(half[0]);
    free(half[1]);
    free(both);
    return id[0] >= 0 && id[1] >= 0 && id[2] >= 0 && bpe_merge(b, id[0], id[1], id[2]);
}

void vocabulary_bytes(struct bpe *b, int named)
{
    char name[8];
    for (int c = 0; c < 256; c++) {
        char one = (char)c;
        snprintf(name, sizeof name, "<0x%02X>", c);
        b->byte[c] = named ? bpe_find(b, name, 6) : bpe_find(b, &one, 1);
    }
}

static int longer(const void *a, const void *b)
{
    const struct tokens_added *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : x->id < y->id ? -1 : x->id > y->id;
}

void tokens_sort_added(struct tokens *t)
{
    qsort(t->added, t->n_added, sizeof *t->added, longer);
}

int tokens_show_marks(struct tokens *t)
{
    t->shown = calloc((size_t)t->bpe.n, sizeof *t->shown);
    if (!t->shown)
        return 0;
    for (int32_t i = 0; i < t->bpe.n; i++) {
        const struct bpe_text *token = &t->bpe.token[i];
        char *copy = token->text ? malloc(token->bytes + 1) : NULL;
        uint32_t n = 0;
        if (token->text && !copy)
            return 0;
        for (uint32_t at = 0; copy && at < token->bytes; n++) {
            int mark = token->bytes - at >= 3 && memcmp(token->text + at, "\xe2\x96\x81", 3) == 0;
            copy[n] = mark ? ' ' : token->text[at];
            at += mark ? 3 : 1;
        }
        t->shown[i] = (struct bpe_text){copy, n};
    }
    for (int c = 0; c < 256; c++)
        if (t->bpe.byte[c] >= 0) {
            t->shown[t->bpe.byte[c]].text[0] = (char)c;
            t->shown[t->bpe.byte[c]].bytes = 1;
        }
    return 1;
}

/* From text to tokens and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokens.h"

enum { TEXT_MAX = 1 << 18 };
static const char mark[] = "\xe2\x96\x81";

/* ---- to tokens --------------------------------------------------------------------------------------------------- */

/* Cuts by the rule, the pieces by the next one, and so on. */
static int encode_pieces(struct tokens *t, int rule, const char *text, size_t bytes, struct bpe_ids *ids)
{
    if (rule == t->rules)
        return bytes == 0 || bpe_encode(&t->bpe, text, bytes, ids);
    while (bytes > 0) {
        size_t n = split_next(t->rule[rule], text, bytes);
        if (!encode_pieces(t, rule + 1, text, n, ids))
            return 0;
        text += n;
        bytes -= n;
    }
    return 1;
}

/* Text without added tokens: spaces as the model has them, with one before it where it asks for that. */
static int encode_plain(struct tokens *t, const char *text, size_t bytes, int first, struct bpe_ids *ids)
{
    const char *space = t->marks ? mark : " ";
    size_t wide = strlen(space), n = 0;
    char *copy;
    int ok, begins;
    if (bytes == 0)
        return 1;
    copy = malloc((bytes + 1) * wide);
    if (!copy)
        return 0;
    begins = text[0] == ' ' || (t->marks && bytes >= wide && memcmp(text, mark, wide) == 0);
    if (t->prepend == PREPEND_ALWAYS || (t->prepend == PREPEND_MISSING && !begins) ||
        (t->prepend == PREPEND_FIRST && first && !begins)) {
        memcpy(copy, space, wide);
        n = wide;
    }
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == ' ') {
            memcpy(copy + n, space, wide);
            n += wide;
        } else {
            copy[n++] = text[i];
        }
    ok = encode_pieces(t, 0, copy, n, ids);
    free(copy);
    return ok;
}

/* The longest added token at text, special ones only where nothing of them was typed. */
static const struct tokens_added *added_at(const struct tokens *t, const char *text, size_t bytes, const char *typed)
{
    for (size_t i = 0; i < t->n_added; i++) {
        const struct tokens_added *a = &t->added[i];
        if (a->bytes <= bytes && memcmp(a->text, text, a->bytes) == 0 &&
            !(a->special && typed && memchr(typed, 1, a->bytes)))
            return a;
    }
    return NULL;
}

static size_t trim_end(const char *text, size_t bytes)
{
    while (bytes > 0 && strchr(" \t\r\n", text[bytes - 1]))
        bytes--;
    return bytes;
}

int tokens_encode_typed(struct tokens *t, const char *text, size_t bytes, const char *typed, struct bpe_ids *ids)
{
    size_t begun = 0, at = 0;
    if (bytes > TEXT_MAX || memchr(text, 0, bytes)) {
        snprintf(t->why, sizeof t->why, "a text of %zu bytes, or with a NUL: at most %d are taken", bytes, TEXT_MAX);
        return 0;
    }
    snprintf(t->why, sizeof t->why, "no memory for tokens");
    while (at < bytes) {
        const struct tokens_added *a = added_at(t, text + at, bytes - at, typed ? typed + at : NULL);
        if (!a) {
            at++;
            continue;
        }
        size_t n = a->left ? trim_end(text + begun, at - begun) : at - begun;
        if (!encode_plain(t, text + begun, n, begun == 0, ids) || !bpe_ids_put(ids, a->id))
            return 0;
        at += a->bytes;
        while (a->right && at < bytes && strchr(" \t\r\n", text[at]))
            at++;
        begun = at;
    }
    return encode_plain(t, text + begun, bytes - begun, begun == 0, ids);
}

int tokens_encode(struct tokens *t, const char *text, size_t bytes, size_t from, size_t to, struct bpe_ids *ids)
{
    char *typed = to > from && to <= bytes ? calloc(bytes, 1) : NULL;
    if (typed)
        memset(typed + from, 1, to - from);
    int ok = (to > from && !typed) ? 0 : tokens_encode_typed(t, text, bytes, typed, ids);
    free(typed);
    return ok;
}

int64_t tokens_added(const struct tokens *t, const char *text)
{
    for (size_t i = 0; i < t->n_added; i++)
        if (strcmp(t->added[i].text, text) == 0)
            return t->added[i].id;
    return -1;
}

/* ---- to text ----------------------------------------------------------------------------------------------------- */

const char *tokens_text(const struct tokens *t, int64_t id, size_t *bytes)
{
    *bytes = 0;
    if (id < 0 || id >= t->bpe.n || !t->bpe.token[id].text)
        return "";
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id && t->added[i].special)
            return "";
    const struct bpe_text *shown = t->shown && t->shown[id].text ? &t->shown[id] : &t->bpe.token[id];
    *bytes = shown->bytes;
    return shown->text;
}

void tokens_free(struct tokens *t)
{
    for (int32_t i = 0; t->shown && i < t->bpe.n; i++)
        free(t->shown[i].text);
    free(t->shown);
    free(t->added);
    bpe_free(&t->bpe);
    t->shown = NULL;
    t->added = NULL;
    t->n_added = 0;
}

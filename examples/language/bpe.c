/* Tables of open addressing: tokens by text, pairs of tokens. */
#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "split.h"

static uint64_t mix(uint64_t h)
{
    h = (h ^ h >> 31) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

static uint64_t text_hash(const char *text, size_t bytes)
{
    uint64_t h = bytes;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3ull;
    return mix(h);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* The slot that has the text, or the free one where it belongs. */
static uint32_t slot_of(const struct bpe *b, const char *text, size_t bytes)
{
    uint32_t i = (uint32_t)text_hash(text, bytes) & (b->slots - 1);
    for (; b->slot[i] >= 0; i = (i + 1) & (b->slots - 1)) {
        const struct bpe_text *t = &b->token[b->slot[i]];
        if (t->bytes == bytes && memcmp(t->text, text, bytes) == 0)
            break;
    }
    return i;
}

int32_t bpe_find(const struct bpe *b, const char *text, size_t bytes)
{
    return b->slots ? b->slot[slot_of(b, text, bytes)] : -1;
}

static int slots_grow(struct bpe *b)
{
    uint32_t slots = b->slots ? 2 * b->slots : 1024;
    int32_t *slot = malloc(slots * sizeof *slot), *old = b->slot;
    uint32_t count = b->slots;
    if (!slot)
        return 0;
    memset(slot, 0xff, slots * sizeof *slot);
    b->slot = slot;
    b->slots = slots;
    for (uint32_t i = 0; i < count; i++)
        if (old[i] >= 0)
            slot[slot_of(b, b->token[old[i]].text, b->token[old[i]].bytes)] = old[i];
    free(old);
    return 1;
}

static int numbers_grow(struct bpe *b, int64_t id)
{
    int64_t n = b->n ? b->n : 1024;
    while (n <= id)
        n *= 2;
    if (n > b->n) {
        struct bpe_text *more = realloc(b->token, (size_t)n * sizeof *more);
        if (!more)
            return 0;
        memset(more + b->n, 0, (size_t)(n - b->n) * sizeof *more);
        b->token = more;
        b->n = (int32_t)n;
    }
    return 1;
}

int bpe_put(struct bpe *b, int64_t id, const char *text, size_t bytes)
{
    char *copy;
    uint32_t at;
    if (id < 0 || id >= BPE_NUMBERS || bytes > 1 << 20 || !numbers_grow(b, id) ||
        (2 * (b->used + 1) > b->slots && !slots_grow(b)))
        return 0;
    if (b->token[id].text) /* a second text of one number: the first stays */
        return 1;
    copy = malloc(bytes + 1);
    if (!copy)
        return 0;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    b->token[id] = (struct bpe_text){copy, (uint32_t)bytes};
    at = slot_of(b, text, bytes);
    if (b->slot[at] < 0) {
        b->slot[at] = (int32_t)id;
        b->used++;
    }
    return 1;
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

struct bpe_pair *bpe_pair(const struct bpe *b, int32_t left, int32_t right)
{
    uint32_t i = (uint32_t)mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right) & (b->pairs - 1);
    for (; b->pair[i].left >= 0 && (b->pair[i].left != left || b->pair[i].right != right); i = (i + 1) & (b->pairs - 1))
        ;
    return &b->pair[i];
}

static int pairs_grow(struct bpe *b)
{
    uint32_t pairs = b->pairs ? 2 * b->pairs : 1024, count = b->pairs;
    struct bpe_pair *pair = malloc(pairs * sizeof *pair), *old = b->pair;
    if (!pair)
        return 0;
    memset(pair, 0xff, pairs * sizeof *pair);
    b->pair = pair;
    b->pairs = pairs;
    for (uint32_t i = 0; i < count; i++)
        if (old[i].left >= 0)
            *bpe_pair(b, old[i].left, old[i].right) = old[i];
    free(old);
    return 1;
}

int bpe_merge(struct bpe *b, int32_t left, int32_t right, int32_t made)
{
    if (b->merges >= BPE_NUMBERS || (2 * (b->merges + 1) > b->pairs && !pairs_grow(b)))
        return 0;
    *bpe_pair(b, left, right) = (struct bpe_pair){left, right, made, b->merges++};
    return 1;
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

int bpe_ids_put(struct bpe_ids *ids, int64_t id)
{
    if (ids->n == ids->room) {
        size_t room = ids->room ? 2 * ids->room : 256;
        int64_t *more = realloc(ids->id, room * sizeof *more);
        if (!more)
            return 0;
        ids->id = more;
        ids->room = room;
    }
    ids->id[ids->n++] = id;
    return 1;
}

int bpe_put_bytes(const struct bpe *b, const char *text, size_t bytes, size_t begun, struct bpe_ids *ids)
{
    int all = 1;
    for (size_t i = 0; i < bytes; i++)
        all &= b->byte[(unsigned char)text[i]] >= 0;
    for (size_t i = 0; all && i < bytes; i++)
        if (!bpe_ids_put(ids, b->byte[(unsigned char)text[i]]))
            return 0;
    if (all || b->unknown < 0 || (b->fuse && ids->n > begun && ids->id[ids->n - 1] == b->unknown))
        return 1;
    return bpe_ids_put(ids, b->unknown);
}

static int put_symbols(const struct bpe *b, const char *piece, size_t bytes, struct bpe_ids *ids)
{
    size_t begun = ids->n;
    for (size_t at = 0, used = 1; at < bytes; at += used) {
        int32_t id = -1;
        if (b->letters) {
            split_point(piece + at, bytes - at, &used);
            id = bpe_find(b, piece + at, used);
        }
        if (id >= 0 ? !bpe_ids_put(ids, id) : !bpe_put_bytes(b, piece + at, used, begun, ids))
            return 0;
    }
    return 1;
}

int bpe_encode(const struct bpe *b, const char *piece, size_t bytes, struct bpe_ids *ids)
{
    size_t begun = ids->n;
    if (b->score)
        return merge_by_scores(b, piece, bytes, ids);
    int32_t id = b->whole ? bpe_find(b, piece, bytes) : -1;
    if (id >= 0)
        return bpe_ids_put(ids, id);
    if (!put_symbols(b, piece, bytes, ids))
        return 0;
    return ids->n - begun < 2 || !b->pairs || merge_by_pairs(b, ids, begun);
}

void bpe_free(struct bpe *b)
{
    for (int32_t i = 0; i < b->n; i++)
        free(b->token[i].text);
    free(b->token);
    free(b->slot);
    free(b->pair);
    free(b->score);
    *b = (struct bpe){0};
}

/* Sort, the first of it, and Unique-11 by one total order (rt_ops.h). Numbers become 64-bit keys whose unsigned order
 * is that order; lines of at most 4 bytes an element are sorted or chosen as words (rt_words.h), the others by a stable
 * merge sort. Strings and slices are compared where they lie.
 */
#include "runtime/rt_internal.h"
#include "runtime/ops/rt_ops.h"
#include "runtime/ops/rt_words.h"

#include "runtime/rt_libc.h"

/* ---- keys -------------------------------------------------------------------------------------------------- */

/* Sign-magnitude number of `bits` bits as an ordered key; a magnitude above `infinity` is a NaN. */
static uint64_t float_key(uint64_t word, int bits, uint64_t infinity)
{
    uint64_t sign = (uint64_t)1 << (bits - 1), magnitude = word & (sign - 1);
    if (magnitude > infinity)
        return ~(uint64_t)0;
    if (magnitude == 0)
        return sign;
    return word & sign ? sign - magnitude : sign + magnitude;
}

static uint64_t signed_key(uint64_t word, int bits)
{
    return word ^ (uint64_t)1 << (bits - 1);
}

/* The FNUZ types have one NaN, where -0 would be. */
static uint64_t fnuz_key(uint64_t word)
{
    return word == 0x80 ? ~(uint64_t)0 : float_key(word, 8, 0x7f);
}

static uint64_t key_of(int64_t elem, int64_t size, const char *p)
{
    uint64_t word = 0;
    memcpy(&word, p, (size_t)size);
    switch (elem) {
    case RT_ELEM_F32: return float_key(word, 32, 0x7f800000);
    case RT_ELEM_F64: return float_key(word, 64, 0x7ff0000000000000);
    case RT_ELEM_F16: return float_key(word, 16, 0x7c00);
    case RT_ELEM_BF16: return float_key(word, 16, 0x7f80);
    case RT_ELEM_F8E4M3FN: return float_key(word, 8, 0x7e);
    case RT_ELEM_F8E5M2: return float_key(word, 8, 0x7c);
    case RT_ELEM_F8E4M3FNUZ:
    case RT_ELEM_F8E5M2FNUZ: return fnuz_key(word);
    case RT_ELEM_F8E8M0: return word == 0xff ? ~(uint64_t)0 : word;
    case RT_ELEM_F4E2M1: return float_key(word & 0xf, 4, 0x7);
    case RT_ELEM_I8:
    case RT_ELEM_I4:
    case RT_ELEM_I2: return signed_key(word, 8);
    case RT_ELEM_I16: return signed_key(word, 16);
    case RT_ELEM_I32: return signed_key(word, 32);
    case RT_ELEM_I64: return signed_key(word, 64);
    case RT_ELEM_BOOL: return word != 0;
    default: return word;
    }
}

/* ---- merge sort ----------------------------------------------------------------------------------------------- */

struct item {
    uint64_t key;
    int64_t at;
};

/* What to compare: keys, or (wide) slices of the tensor [outer, n, inner]. */
struct order {
    int64_t elem, size, outer, n, inner;
    int64_t width; /* elements of a slice that are compared, out of each run of `inner` */
    const char *src;
    bool wide;
};

static int compare_strings(const struct rt_string *a, const struct rt_string *b)
{
    size_t n = a->bytes < b->bytes ? a->bytes : b->bytes;
    int sign = n ? memcmp(a->utf8, b->utf8, n) : 0;
    return sign ? sign : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Slices a and b in row-major order of their elements. */
static int compare_slices(const struct order *order, int64_t a, int64_t b)
{
    for (int64_t o = 0; o < order->outer; o++)
        for (int64_t i = 0; i < order->width; i++) {
            const char *pa = order->src + ((o * order->n + a) * order->inner + i) * order->size;
            const char *pb = order->src + ((o * order->n + b) * order->inner + i) * order->size;
            if (order->elem == RT_ELEM_STR) {
                int sign = compare_strings((const void *)pa, (const void *)pb);
                if (sign)
                    return sign;
                continue;
            }
            uint64_t ka = key_of(order->elem, order->size, pa), kb = key_of(order->elem, order->size, pb);
            if (ka != kb)
                return ka < kb ? -1 : 1;
        }
    return 0;
}

/* b goes before a: only when strictly smaller, which keeps the sort stable. */
static bool goes_first(const struct order *order, const struct item *b, const struct item *a)
{
    return order->wide ? compare_slices(order, b->at, a->at) < 0 : b->key < a->key;
}

/* Bottom-up, from one half of the buffer to the other and back; the sorted half. */
static struct item *merge_sort(const struct order *order, struct item *items, struct item *other, int64_t n)
{
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t low = 0; low < n; low += 2 * width) {
            int64_t middle = low + width < n ? low + width : n, high = middle + width < n ? middle + width : n;
            int64_t a = low, b = middle;
            for (int64_t to = low; to < high; to++) {
                bool right = b < high && (a >= middle || goes_first(order, &items[b], &items[a]));
                other[to] = items[right ? b++ : a++];
            }
        }
        struct item *sorted = other;
        other = items;
        items = sorted;
    }
    return items;
}

/* ---- sort -------------------------------------------------------------------------------------------------------- */

/* What of a sorted line is stored: the first `count` elements, to lines of as many. */
struct sorted {
    char *values;
    int64_t *positions;
    int64_t count;
};

/* Element `from` of the line at src becomes number `to` of the line at `first`. */
static void put_element(const struct order *line, const struct sorted *s, int64_t first, int64_t to, int64_t from)
{
    int64_t at = first + to * line->inner, size = line->size;
    const char *src = line->src + from * line->inner * size;
    if (s->positions)
        s->positions[at] = from;
    if (s->values && size == 4)
        memcpy(s->values + 4 * at, src, 4);
    else if (s->values)
        memcpy(s->values + at * size, src, (size_t)size);
}

static void sort_items(const struct order *line, struct item *items, bool descending, const struct sorted *s,
                       int64_t first)
{
    int64_t n = line->n, inner = line->inner, size = line->size;
    for (int64_t k = 0; k < n; k++) {
        uint64_t key = line->wide ? 0 : key_of(line->elem, size, line->src + k * inner * size);
        items[k] = (struct item){descending ? ~key : key, k};
    }
    /* Strings have no key to turn round. Descending and stable: sort the reversed line, then
     * read the result backwards. */
    if (line->wide && descending)
        for (int64_t k = 0; k < n; k++)
            items[k].at = n - 1 - k;
    struct item *sorted = merge_sort(line, items, items + n, n);
    for (int64_t k = 0; k < s->count; k++)
        put_element(line, s, first, k, sorted[line->wide && descending ? n - 1 - k : k].at);
}

/* float_key of 32 bits without branches. */
static uint32_t float32_key(uint32_t word)
{
    uint32_t magnitude = word & 0x7fffffff, negative = 0 - (word >> 31), nan = 0 - (uint32_t)(magnitude > 0x7f800000);
    return (0x80000000 + ((magnitude ^ negative) - negative)) | nan;
}

/* The other way round; a NaN for the largest key. */
static float float32_of_key(uint32_t key)
{
    uint32_t word = key < 0x80000000 ? 0 - key : key - 0x80000000;
    float x;
    memcpy(&x, &word, 4);
    return x;
}

/* May one of RT_WORDS_STEP floats that lie together go before the bound? No is certain; NaN compares false. */
static bool step_may(const char *src, float bound, bool descending)
{
    typedef float lanes __attribute__((vector_size(16)));
    typedef int32_t mask __attribute__((vector_size(16)));
    lanes x[RT_WORDS_STEP / 4], b = {bound, bound, bound, bound};
    int64_t behind[2];
    memcpy(x, src, sizeof x);
    mask all = descending ? x[0] <= b : x[0] >= b;
    for (int i = 1; i < RT_WORDS_STEP / 4; i++)
        all &= descending ? x[i] <= b : x[i] >= b;
    memcpy(behind, &all, sizeof behind);
    return (behind[0] & behind[1]) != -1;
}

/* Room for the words of a line: all of them, or as many as choosing `keep` takes. */
static int64_t words_room(int64_t n, int64_t keep)
{
    return keep >= n / 4 ? n : 2 * keep + 3 * RT_WORDS_STEP;
}

/* Keys of n elements from `src` on. flip: all bits where large elements go first. */
static void step_keys(const struct order *line, const char *src, int64_t n, uint32_t flip, uint32_t *keys)
{
    for (int64_t i = 0; i < n; i++)
        keys[i] = (uint32_t)key_of(line->elem, line->size, src + i * line->inner * line->size) ^ flip;
}

/* The same for a whole step of floats that lie together. */
static void dense_keys(const char *src, uint32_t flip, uint32_t *keys)
{
    uint32_t word[RT_WORDS_STEP];
    memcpy(word, src, sizeof word);
    for (int i = 0; i < RT_WORDS_STEP; i++)
        keys[i] = float32_key(word[i]) ^ flip;
}

static void offer_line(const struct order *line, struct rt_words *words, bool descending)
{
    uint32_t keys[RT_WORDS_STEP], flip = descending ? ~(uint32_t)0 : 0;
    bool dense = line->elem == RT_ELEM_F32 && line->inner == 1;
    for (int64_t at = 0; at < line->n; at += RT_WORDS_STEP) {
        int64_t n = line->n - at < RT_WORDS_STEP ? line->n - at : RT_WORDS_STEP;
        const char *src = line->src + at * line->inner * line->size;
        if (dense && n == RT_WORDS_STEP && words->bounded &&
            !step_may(src, float32_of_key(words->bound ^ flip), descending))
            continue;
        if (dense && n == RT_WORDS_STEP)
            dense_keys(src, flip, keys);
        else
            step_keys(line, src, n, flip, keys);
        rt_words_offer(words, keys, n, at);
    }
}

static void sort_words(const struct order *line, uint64_t *memory, bool descending, const struct sorted *s,
                       int64_t first)
{
    int64_t n = line->n, room = words_room(n, s->count);
    struct rt_words words = {
        .word = memory, .spare = memory + room, .keep = s->count, .room = room}; /* of a whole line nothing is cut */
    offer_line(line, &words, descending);
    const uint64_t *sorted = room == n ? rt_words_sort(words.word, words.spare, words.n, 1) : rt_words_first(&words);
    for (int64_t k = 0; k < s->count; k++)
        put_element(line, s, first, k, (int64_t)(sorted[k] & 0xffffffff));
}

int64_t mcc_rt_sort(struct mcc_rt_run *run, int64_t elem, const void *src, void *values, int64_t *positions,
                    int64_t outer, int64_t n, int64_t inner, int64_t descending, int64_t count)
{
    struct order line = {elem, rt_elem_bytes(elem), 1, n, inner, 1, src, elem == RT_ELEM_STR};
    struct sorted s = {values, positions, count < n ? count : n};
    bool words = !line.wide && line.size <= 4 && n < UINT32_MAX;
    int64_t bytes;
    if (s.count <= 0 || outer == 0 || inner == 0)
        return 0;
    struct rt_mark mark = rt_run_mark(run);
    if (__builtin_mul_overflow(words ? words_room(n, s.count) : n,
                               2 * (int64_t)(words ? sizeof(uint64_t) : sizeof(struct item)), &bytes))
        bytes = INT64_MAX;
    void *memory = rt_run_alloc(run, bytes);
    if (!memory)
        return MCC_E_NOMEM;
    for (int64_t o = 0; o < outer && mcc_rt_poll(run) == 0; o++)
        for (int64_t i = 0; i < inner; i++) {
            int64_t first = o * s.count * inner + i;
            line.src = (const char *)src + (o * n * inner + i) * line.size;
            if (words)
                sort_words(&line, memory, descending != 0, &s, first);
            else
                sort_items(&line, memory, descending != 0, &s, first);
        }
    rt_run_reset(run, mark);
    return mcc_rt_poll(run);
}

/* ---- unique ------------------------------------------------------------------------------------------------------ */

struct group {
    int64_t first, count, rank;
}; /* rank: place among the results */

static void copy_slice(const struct order *order, char *values, int64_t count, int64_t to, int64_t from)
{
    int64_t bytes = order->inner * order->size;
    for (int64_t o = 0; o < order->outer && bytes > 0; o++)
        memcpy(values + (o * count + to) * bytes, order->src + (o * order->n + from) * bytes, (size_t)bytes);
}

/* Groups of equal slices in ascending order; stable, so a group's first item is its first occurrence.
 * group_of[slice]. */
static int64_t make_groups(const struct order *order, const struct item *sorted, struct group *groups,
                           int64_t *group_of)
{
    int64_t count = 0;
    for (int64_t k = 0; k < order->n; k++) {
        if (k == 0 || goes_first(order, &sorted[k - 1], &sorted[k]))
            groups[count++] = (struct group){.first = sorted[k].at};
        groups[count - 1].count++;
        groups[count - 1].rank = count - 1;
        group_of[sorted[k].at] = count - 1;
    }
    return count;
}

/* Ranks by first occurrence: count the groups met on a walk through the slices. */
static void rank_by_occurrence(struct group *groups, const int64_t *group_of, int64_t n)
{
    int64_t met = 0;
    for (int64_t k = 0; k < n; k++)
        if (groups[group_of[k]].first == k)
            groups[group_of[k]].rank = met++;
}

static int64_t unique_of(struct mcc_rt_run *run, const struct order *order, bool sorted, char *values, int64_t *first,
                         int64_t *inverse, int64_t *counts)
{
    int64_t n = order->n;
    struct item *items = rt_run_alloc(run, n * 2 * (int64_t)sizeof *items);
    struct group *groups = rt_run_alloc(run, n * (int64_t)sizeof *groups);
    int64_t *group_of = rt_run_alloc(run, n * (int64_t)sizeof *group_of);
    if (!items || !groups || !group_of)
        return MCC_E_NOMEM;
    for (int64_t k = 0; k < n; k++)
        items[k] = (struct item){order->wide ? 0 : key_of(order->elem, order->size, order->src + k * order->size), k};
    int64_t count = make_groups(order, merge_sort(order, items, items + n, n), groups, group_of);
    if (!sorted)
        rank_by_occurrence(groups, group_of, n);
    for (int64_t g = 0; g < count; g++) {
        if (values)
            copy_slice(order, values, count, groups[g].rank, groups[g].first);
        if (first)
            first[groups[g].rank] = groups[g].first;
        if (counts)
            counts[groups[g].rank] = groups[g].count;
    }
    for (int64_t k = 0; inverse && k < n; k++)
        inverse[k] = groups[group_of[k]].rank;
    return count;
}

int64_t mcc_rt_unique(struct mcc_rt_run *run, int64_t elem, const void *src, int64_t outer, int64_t n, int64_t inner,
                      int64_t sorted, void *values, int64_t *first, int64_t *inverse, int64_t *counts)
{
    bool wide = elem == RT_ELEM_STR || outer != 1 || inner != 1;
    struct order order = {elem, rt_elem_bytes(elem), outer, n, inner, inner, src, wide};
    if (n == 0)
        return 0;
    if (n > INT64_MAX / 64) {
        mcc_rt_fail(run, MCC_E_NOMEM, 0, "out of memory in unique", 0);
        return MCC_E_NOMEM;
    }
    struct rt_mark mark = rt_run_mark(run);
    int64_t count = unique_of(run, &order, sorted != 0, values, first, inverse, counts);
    rt_run_reset(run, mark);
    return count;
}

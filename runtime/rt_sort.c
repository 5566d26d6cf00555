/* Sort and Unique-11 by one total order (rt_ops.h). Numbers become 64-bit keys whose unsigned order is that order, so one
 * stable merge sort serves all types; strings and slices are compared where they lie.
 */
#include "runtime/rt_internal.h"
#include "runtime/rt_ops.h"

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

struct item { uint64_t key; int64_t at; };

/* What to compare: keys, or (wide) slices of the tensor [outer, n, inner]. */
struct order {
    int64_t elem, size, outer, n, inner;
    int64_t width;               /* elements of a slice that are compared, out of each run of `inner` */
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

static void sort_line(const struct order *order, struct item *items, int64_t o, int64_t i, bool descending, char *values,
                      int64_t *positions)
{
    int64_t n = order->n, inner = order->inner, size = order->size, first = o * n * inner + i;
    const char *src = order->src + first * size;
    struct order line = *order;
    line.src = src;
    line.outer = 1;
    for (int64_t k = 0; k < n; k++) {
        uint64_t key = order->wide ? 0 : key_of(order->elem, size, src + k * inner * size);
        items[k] = (struct item){ descending ? ~key : key, k };
    }
    /* Strings have no key to turn round. Descending and stable: sort the reversed line, then
     * read the result backwards. */
    if (order->wide && descending)
        for (int64_t k = 0; k < n; k++)
            items[k].at = n - 1 - k;
    struct item *sorted = merge_sort(&line, items, items + n, n);
    for (int64_t k = 0; k < n; k++) {
        int64_t at = sorted[order->wide && descending ? n - 1 - k : k].at;
        if (positions)
            positions[first + k * inner] = at;
        if (values)
            memcpy(values + (first + k * inner) * size, src + at * inner * size, (size_t)size);
    }
}

int64_t mcc_rt_sort(struct mcc_rt_run *run, int64_t elem, const void *src, void *values, int64_t *positions, int64_t outer,
                    int64_t n, int64_t inner, int64_t descending)
{
    struct order order = { elem, rt_elem_bytes(elem), outer, n, inner, 1, src, elem == RT_ELEM_STR };
    int64_t bytes;
    if (n == 0 || outer == 0 || inner == 0)
        return 0;
    struct rt_mark mark = rt_run_mark(run);
    if (__builtin_mul_overflow(n, 2 * (int64_t)sizeof(struct item), &bytes))
        bytes = INT64_MAX;
    struct item *items = rt_run_alloc(run, bytes);
    if (!items)
        return MCC_E_NOMEM;
    for (int64_t o = 0; o < outer && mcc_rt_poll(run) == 0; o++)
        for (int64_t i = 0; i < inner; i++)
            sort_line(&order, items, o, i, descending != 0, values, positions);
    rt_run_reset(run, mark);
    return mcc_rt_poll(run);
}

/* ---- unique --------------------------------------------------------------------------------------------------------- */

struct group { int64_t first, count, rank; };   /* rank: place among the results */

static void copy_slice(const struct order *order, char *values, int64_t count, int64_t to, int64_t from)
{
    int64_t bytes = order->inner * order->size;
    for (int64_t o = 0; o < order->outer && bytes > 0; o++)
        memcpy(values + (o * count + to) * bytes, order->src + (o * order->n + from) * bytes, (size_t)bytes);
}

/* Groups of equal slices in ascending order; stable, so a group's first item is its first occurrence. group_of[slice]. */
static int64_t make_groups(const struct order *order, const struct item *sorted, struct group *groups, int64_t *group_of)
{
    int64_t count = 0;
    for (int64_t k = 0; k < order->n; k++) {
        if (k == 0 || goes_first(order, &sorted[k - 1], &sorted[k]))
            groups[count++] = (struct group){ .first = sorted[k].at };
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
        items[k] = (struct item){ order->wide ? 0 : key_of(order->elem, order->size, order->src + k * order->size), k };
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
    struct order order = { elem, rt_elem_bytes(elem), outer, n, inner, inner, src, wide };
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

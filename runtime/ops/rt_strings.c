/* String operators: Equal, LabelEncoder's look-up, StringConcat-20, RegexFullMatch-20, StringSplit-20,
 * StringNormalizer-10. Elements are {pointer, bytes}; those of results point into operands or into memory of the run.
 * Case is that of ASCII: where it matters, other letters fail the run, since what their case is depends on a locale
 * that no artifact carries.
 */
#include "runtime/rt_internal.h"
#include "runtime/ops/rt_ops.h"

#include "runtime/rt_libc.h"

static bool equal(const struct rt_string *a, const struct rt_string *b)
{
    return a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->utf8, b->utf8, a->bytes) == 0);
}

int64_t mcc_rt_str_equal(struct mcc_rt_run *run, const struct rt_string *a, const struct rt_string *b, uint8_t *dst,
                         int64_t n)
{
    (void)run;
    for (int64_t i = 0; i < n; i++)
        dst[i] = equal(&a[i], &b[i]);
    return 0;
}

int64_t mcc_rt_str_concat(struct mcc_rt_run *run, const struct rt_string *a, const struct rt_string *b,
                          struct rt_string *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        size_t bytes = a[i].bytes + b[i].bytes;
        char *text = rt_run_alloc(run, (int64_t)bytes);
        if (!text)
            return MCC_E_NOMEM;
        if (a[i].bytes > 0)
            memcpy(text, a[i].utf8, a[i].bytes);
        if (b[i].bytes > 0)
            memcpy(text + a[i].bytes, b[i].utf8, b[i].bytes);
        dst[i] = (struct rt_string){text, bytes};
    }
    return 0;
}

int64_t mcc_rt_str_list(struct mcc_rt_run *run, const uint8_t *packed)
{
    uint32_t n, bytes;
    memcpy(&n, packed, sizeof n);
    struct rt_string *list = rt_run_alloc(run, ((int64_t)n + 1) * (int64_t)sizeof *list);
    if (!list)
        return MCC_E_NOMEM;
    packed += sizeof n;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(&bytes, packed, sizeof bytes);
        list[i] = (struct rt_string){(const char *)packed + sizeof bytes, bytes};
        packed += sizeof bytes + bytes;
    }
    return (int64_t)(intptr_t)list;
}

int64_t mcc_rt_str_find(struct mcc_rt_run *run, const struct rt_string *src, int64_t n, const uint8_t *packed,
                        int64_t *dst)
{
    uint32_t count, bytes;
    (void)run;
    memcpy(&count, packed, sizeof count);
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *at = packed + sizeof count;
        dst[i] = 0;
        for (uint32_t k = 0; k < count; k++, at += bytes) {
            memcpy(&bytes, at, sizeof bytes);
            at += sizeof bytes;
            const struct rt_string key = {(const char *)at, bytes};
            dst[i] = equal(&src[i], &key) ? (int64_t)k + 1 : dst[i];
        }
    }
    return 0;
}

int64_t mcc_rt_str_pick(struct mcc_rt_run *run, const int64_t *src, int64_t n, const struct rt_string *list,
                        int64_t count, struct rt_string *dst)
{
    for (int64_t i = 0; i < n; i++) {
        if (src[i] < 0 || src[i] >= count) {
            mcc_rt_fail(run, MCC_E_VALUE, 0, "no string has this number", 0);
            return MCC_E_VALUE;
        }
        dst[i] = list[src[i]];
    }
    return 0;
}

/* Entry i of the rows of a table. */
static uint16_t match_entry(const uint8_t *rows, size_t i)
{
    uint16_t entry;
    memcpy(&entry, rows + i * sizeof entry, sizeof entry);
    return entry;
}

int64_t mcc_rt_str_match(struct mcc_rt_run *run, const struct rt_string *src, int64_t n, const uint8_t *table,
                         uint8_t *dst)
{
    const uint8_t *rows = table + 256 + 2 * sizeof(uint16_t);
    size_t width = (size_t)match_entry(table + 256, 0) + 1;
    (void)run;
    for (int64_t i = 0; i < n; i++) {
        size_t state = 1;
        for (size_t k = 0; k < src[i].bytes && state; k++)
            state = match_entry(rows, state * width + 1 + table[(unsigned char)src[i].utf8[k]]);
        dst[i] = (uint8_t)match_entry(rows, state * width);
    }
    return 0;
}

/* ---- split ------------------------------------------------------------------------------------------------------ */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

struct splitter {
    const char *at, *end;
    const struct rt_string *delimiter;
    int64_t left;
    bool done;
};

static struct splitter splitter_new(const struct rt_string *s, const struct rt_string *delimiter, int64_t max_splits)
{
    bool words = !delimiter || delimiter->bytes == 0;
    const char *text = s->bytes > 0 ? s->utf8 : "";
    return (struct splitter){text, text + s->bytes, words ? NULL : delimiter, max_splits < 0 ? INT64_MAX : max_splits,
                             false};
}

/* Words; the last one, when splits run out, is all that is left without the white space at its end. */
static bool next_word(struct splitter *s, struct rt_string *part)
{
    while (s->at < s->end && is_space(*s->at))
        s->at++;
    if (s->at == s->end)
        return false;
    const char *begin = s->at;
    if (s->left-- == 0) {
        s->at = s->end;
        while (is_space(s->end[-1]))
            s->end--;
        *part = (struct rt_string){begin, (size_t)(s->end - begin)};
        s->at = s->end;
        return true;
    }
    while (s->at < s->end && !is_space(*s->at))
        s->at++;
    *part = (struct rt_string){begin, (size_t)(s->at - begin)};
    return true;
}

static bool next_part(struct splitter *s, struct rt_string *part)
{
    if (!s->delimiter)
        return next_word(s, part);
    if (s->done)
        return false;
    size_t n = s->delimiter->bytes;
    const char *begin = s->at;
    for (const char *p = begin; s->left > 0 && (size_t)(s->end - p) >= n; p++)
        if (memcmp(p, s->delimiter->utf8, n) == 0) {
            *part = (struct rt_string){begin, (size_t)(p - begin)};
            s->at = p + n;
            s->left--;
            return true;
        }
    *part = (struct rt_string){begin, (size_t)(s->end - begin)};
    s->done = true;
    return true;
}

int64_t mcc_rt_str_split_count(struct mcc_rt_run *run, const struct rt_string *src, int64_t n,
                               const struct rt_string *delimiter, int64_t max_splits, int64_t *counts)
{
    int64_t most = 0;
    struct rt_string part;
    (void)run;
    for (int64_t i = 0; i < n; i++) {
        struct splitter split = splitter_new(&src[i], delimiter, max_splits);
        int64_t parts = 0;
        while (next_part(&split, &part))
            parts++;
        if (counts) /* NULL: only the largest is wanted */
            counts[i] = parts;
        most = parts > most ? parts : most;
    }
    return most;
}

int64_t mcc_rt_str_split(struct mcc_rt_run *run, const struct rt_string *src, int64_t n,
                         const struct rt_string *delimiter, int64_t max_splits, int64_t width, struct rt_string *dst)
{
    (void)run;
    for (int64_t i = 0; i < n; i++) {
        struct splitter split = splitter_new(&src[i], delimiter, max_splits);
        int64_t k = 0;
        while (k < width && next_part(&split, &dst[i * width + k]))
            k++;
        for (; k < width; k++)
            dst[i * width + k] = (struct rt_string){"", 0};
    }
    return 0;
}

/* ---- normalize --------------------------------------------------------------------------------------------------- */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}
static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
}

static bool equal_letters(const struct rt_string *a, const struct rt_string *b)
{
    if (a->bytes != b->bytes)
        return false;
    for (size_t i = 0; i < a->bytes; i++)
        if (lower(a->utf8[i]) != lower(b->utf8[i]))
            return false;
    return true;
}

static bool is_ascii(const struct rt_string *s)
{
    for (size_t i = 0; i < s->bytes; i++)
        if ((unsigned char)s->utf8[i] >= 0x80)
            return false;
    return true;
}

static bool is_stop(const struct rt_string *s, const struct rt_string *stop, int64_t n, bool case_sensitive)
{
    for (int64_t i = 0; i < n; i++)
        if (case_sensitive ? equal(s, &stop[i]) : equal_letters(s, &stop[i]))
            return true;
    return false;
}

int64_t mcc_rt_str_normalize(struct mcc_rt_run *run, const struct rt_string *src, int64_t n, int64_t mapping,
                             const struct rt_string *stop, int64_t n_stop, int64_t case_sensitive,
                             struct rt_string *dst)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if ((mapping != 0 || (n_stop > 0 && case_sensitive == 0)) && !is_ascii(&src[i])) {
            mcc_rt_fail(run, MCC_E_VALUE, 0, "upper and lower case of letters outside ASCII", 0);
            return MCC_E_VALUE;
        }
        if (is_stop(&src[i], stop, n_stop, case_sensitive != 0))
            continue;
        struct rt_string result = src[i];
        if (mapping != 0) {
            char *text = rt_run_alloc(run, (int64_t)src[i].bytes);
            if (!text)
                return MCC_E_NOMEM;
            for (size_t k = 0; k < src[i].bytes; k++)
                text[k] = mapping == 1 ? lower(src[i].utf8[k]) : upper(src[i].utf8[k]);
            result.utf8 = text;
        }
        dst[count++] = result;
    }
    if (count == 0)
        dst[count++] = (struct rt_string){"", 0};
    return count;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

int64_t mcc_rt_str_spread(struct mcc_rt_run *run, const struct rt_string *src, int64_t src_rank,
                          const int64_t *src_dims, struct rt_string *dst, int64_t rank, const int64_t *dims)
{
    int64_t at[RT_RANK_MAX] = {0}, step[RT_RANK_MAX] = {0}, n = 1, stride = 1;
    (void)run;
    for (int64_t d = 0; d < rank; d++)
        n *= dims[d];
    for (int64_t d = src_rank - 1; d >= 0; d--) {
        step[d + rank - src_rank] = src_dims[d] == 1 ? 0 : stride;
        stride *= src_dims[d];
    }
    for (int64_t i = 0, from = 0; i < n; i++) {
        dst[i] = src[from];
        for (int64_t d = rank - 1; d >= 0; d--) { /* the next point */
            from += step[d];
            if (++at[d] < dims[d])
                break;
            from -= step[d] * dims[d];
            at[d] = 0;
        }
    }
    return 0;
}

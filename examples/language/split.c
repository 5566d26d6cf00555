/* The expressions, written out by hand: each alternative in its order, as a regular expression tries them. */
#include <string.h>

#include "split.h"

struct range {
    int32_t first, last;
};
#include "classes.h"

enum kind { OTHER, LETTER, NUMBER, SPACE };
#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char words_3[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                              "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char words_1[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                              "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

int split_rule_of(const char *expression)
{
    return strcmp(expression, gpt2) == 0      ? SPLIT_GPT2
           : strcmp(expression, words_3) == 0 ? SPLIT_WORDS_3
           : strcmp(expression, words_1) == 0 ? SPLIT_WORDS_1
                                              : -1;
}

int32_t split_point(const char *text, size_t bytes, size_t *used)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xf0 && p[0] < 0xf8 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int32_t c = n == 1 ? p[0] : p[0] & (0x7f >> n);
    *used = 1;
    if (n == 0 || n > bytes || p[0] >= 0xf8)
        return -1;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return -1;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return -1;
    *used = n;
    return c;
}

static int within(const struct range *r, size_t n, int32_t c)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (r[mid].last < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && r[low].first <= c;
}

static enum kind kind_of(int32_t c)
{
    if ((c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
        c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000)
        return SPACE;
    return within(letters, COUNT(letters), c) ? LETTER : within(numbers, COUNT(numbers), c) ? NUMBER : OTHER;
}

/* A text that is read point by point. */
struct text {
    const char *p;
    size_t bytes;
};

static enum kind kind_at(struct text t, size_t at, int32_t *point, size_t *used)
{
    *point = at < t.bytes ? split_point(t.p + at, t.bytes - at, used) : -2;
    return kind_of(*point);
}

/* The end of the run of that kind; at most `most` points. */
static size_t run_end(struct text t, size_t at, enum kind kind, int most)
{
    int32_t c;
    size_t used;
    for (; most-- > 0 && at < t.bytes && kind_at(t, at, &c, &used) == kind; at += used)
        ;
    return at;
}

enum { ALL = 0x7fffffff };

/* 's, 't, 're, 've, 'm, 'll, 'd; fold: capitals too, and U+017F, which is an s without regard to case. 0: none. */
static size_t contraction(struct text t, int fold)
{
    static const char *const ends[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (t.p[0] != '\'')
        return 0;
    if (fold && t.bytes > 2 && memcmp(t.p + 1, "\xc5\xbf", 2) == 0)
        return 3;
    for (size_t i = 0; i < COUNT(ends); i++) {
        size_t n = strlen(ends[i]), k = 0;
        while (k < n && k + 1 < t.bytes && (t.p[k + 1] | (fold ? 0x20 : 0)) == ends[i][k])
            k++;
        if (k == n)
            return n + 1;
    }
    return 0;
}

/* \s+(?!\S)|\s+: spaces except for the last before a word, which belongs to it; a single one. */
static size_t spaces(struct text t)
{
    size_t end = run_end(t, 0, SPACE, ALL), last = end;
    if (end == t.bytes)
        return end;
    while (((unsigned char)t.p[--last] & 0xc0) == 0x80)
        ;
    return last ? last : end;
}

static size_t next_gpt2(struct text t)
{
    int32_t c;
    size_t used, n = contraction(t, 0), from = t.p[0] == ' ' && t.bytes > 1;
    if (n)
        return n;
    enum kind kind = kind_at(t, from, &c, &used);
    return kind == SPACE ? spaces(t) : run_end(t, from, kind, ALL);
}

/* \s*[\r\n]+: up to the last line end of the spaces; 0: there is none. */
static size_t line_ends(struct text t)
{
    size_t n = run_end(t, 0, SPACE, ALL);
    while (n > 0 && t.p[n - 1] != '\r' && t.p[n - 1] != '\n')
        n--;
    return n;
}

static size_t next_words(struct text t, int digits)
{
    int32_t c, after;
    size_t used, more, n = contraction(t, 1);
    if (n)
        return n;
    enum kind kind = kind_at(t, 0, &c, &used);
    if (kind == LETTER)
        return run_end(t, 0, LETTER, ALL);
    if (kind != NUMBER && c != '\r' && c != '\n' && kind_at(t, used, &after, &more) == LETTER)
        return run_end(t, used, LETTER, ALL);
    if (kind == NUMBER)
        return run_end(t, 0, NUMBER, digits);
    n = run_end(t, c == ' ', OTHER, ALL);
    if (n > (size_t)(c == ' ')) {
        while (n < t.bytes && (t.p[n] == '\r' || t.p[n] == '\n'))
            n++;
        return n;
    }
    n = line_ends(t);
    return n ? n : spaces(t);
}

static size_t next_digits(struct text t, int together)
{
    int32_t c;
    size_t at = 0, used;
    if (kind_at(t, 0, &c, &used) == NUMBER)
        return run_end(t, 0, NUMBER, together);
    for (; at < t.bytes && kind_at(t, at, &c, &used) != NUMBER; at += used)
        ;
    return at;
}

static size_t next_mark(struct text t)
{
    size_t at = 1;
    while (at < t.bytes && (at + 3 > t.bytes || memcmp(t.p + at, "\xe2\x96\x81", 3) != 0))
        at++;
    return at;
}

size_t split_next(enum split_rule rule, const char *text, size_t bytes)
{
    struct text t = {text, bytes};
    switch (rule) {
    case SPLIT_GPT2: return next_gpt2(t);
    case SPLIT_WORDS_3: return next_words(t, 3);
    case SPLIT_WORDS_1: return next_words(t, 1);
    case SPLIT_DIGITS: return next_digits(t, ALL);
    case SPLIT_DIGITS_1: return next_digits(t, 1);
    case SPLIT_MARKS: return next_mark(t);
    }
    return bytes;
}

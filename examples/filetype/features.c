/* See features.h. */
#include "features.h"

#include <stdbool.h>

static bool is_space(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Unicode's table of well-formed UTF-8 (3-7): overlong forms, surrogates and numbers past U+10FFFF are not. */
static bool is_utf8(const unsigned char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        unsigned char c = s[i++];
        int more = c < 0x80 ? 0 : c >= 0xc2 && c <= 0xdf ? 1 : (c & 0xf0) == 0xe0 ? 2 : c >= 0xf0 && c <= 0xf4 ? 3 : -1;
        unsigned char low = c == 0xe0   ? 0xa0
                            : c == 0xf0 ? 0x90
                                        : 0x80,
                      high = c == 0xed   ? 0x9f
                             : c == 0xf4 ? 0x8f
                                         : 0xbf;
        if (more < 0 || (size_t)more > n - i)
            return false;
        for (int k = 0; k < more; k++, i++, low = 0x80, high = 0xbf)
            if (s[i] < low || s[i] > high)
                return false;
    }
    return true;
}

const char *features_of(FILE *file, int64_t size, int32_t out[FEATURES])
{
    unsigned char first[BLOCK], last[BLOCK];
    long block = size < BLOCK ? (long)size : BLOCK;
    if (size == 0)
        return "empty";
    size_t n = fread(first, 1, (size_t)block, file), start = 0, end = 0;
    if (fseek(file, (long)(size - block), SEEK_SET) == 0)
        end = fread(last, 1, (size_t)block, file);
    while (start < n && is_space(first[start]))
        start++;
    while (end > 0 && is_space(last[end - 1]))
        end--;
    if (size < SHORTEST || n - start < SHORTEST)
        return is_utf8(first, n) ? "txt" : "unknown";
    for (size_t i = 0; i < BEGIN; i++)               /* padding behind a short beginning */
        out[i] = start + i < n ? first[start + i] : PADDING;
    for (size_t i = 0; i < END; i++)                 /* and before a short end */
        out[FEATURES - 1 - i] = i < end ? last[end - 1 - i] : PADDING;
    return NULL;
}

/* JSON texts: a quoted string of any bytes. */
#include "cli/json.h"

#include <string.h>

/* Bytes of the well-formed UTF-8 sequence at s (RFC 3629), 0 for none. */
static size_t utf8_length(const unsigned char *s)
{
    static const struct {
        unsigned char low, high, first, last;
        size_t n;
    } rows[] = {
        {0x20, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (s[0] < rows[i].low || s[0] > rows[i].high)
            continue;
        for (size_t k = 1; k < rows[i].n; k++)
            if (s[k] < (k == 1 ? rows[i].first : 0x80) || s[k] > (k == 1 ? rows[i].last : 0xbf))
                return 0;
        return rows[i].n;
    }
    return 0;
}

void json_string(struct strbuf *out, const char *text)
{
    strbuf_append(out, "\"", 1);
    for (const char *p = text; *p;) {
        size_t n = utf8_length((const unsigned char *)p);
        if (n == 0) {
            /* A control byte as it is, a byte that is no UTF-8 as the character of its number (ISO 8859-1). */
            strbuf_printf(out, "\\u%04x", (unsigned char)*p);
            p++;
            continue;
        }
        if (*p == '"' || *p == '\\')
            strbuf_append(out, "\\", 1);
        strbuf_append(out, p, n);
        p += n;
    }
    strbuf_append(out, "\"", 1);
}

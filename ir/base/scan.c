/* See scan.h. */
#include "ir/base/scan.h"

uint32_t scan_line(const struct scan *s)
{
    uint32_t line = 1;
    for (const char *p = s->start; p < s->p; p++)
        line += *p == '\n';
    return line;
}

void scan_blanks(struct scan *s)
{
    while (s->p += strspn(s->p, s->blanks), s->comment && *s->p == s->comment)
        s->p += strcspn(s->p, "\n");
}

bool scan_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool scan_take(struct scan *s, const char *token)
{
    size_t n = strlen(token);
    scan_blanks(s);
    if (strncmp(s->p, token, n) != 0 || (scan_is_word(token[n - 1]) && scan_is_word(s->p[n])))
        return false;
    s->p += n;
    return true;
}

size_t scan_word(struct scan *s)
{
    size_t n = 0;
    scan_blanks(s);
    while (scan_is_word(s->p[n]))
        n++;
    return n;
}

const char *scan_need(struct scan *s, const char *token, struct arena *arena)
{
    return scan_take(s, token) ? NULL : arena_printf(arena, "expected '%s'", token);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

const char *scan_digits(struct scan *s, uint64_t most, uint64_t *out)
{
    scan_blanks(s);
    const char *p = s->p;
    *out = 0;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(*out, 10u, out) || __builtin_add_overflow(*out, (uint64_t)(*p - '0'), out))
            return "integer out of range";
    if (p == s->p)
        return "expected an integer";
    if (*out > most)
        return "integer out of range";
    s->p = p;
    return NULL;
}

const char *scan_i64(struct scan *s, int64_t *out)
{
    bool negative = scan_take(s, "-");
    uint64_t n;
    const char *why = scan_digits(s, (uint64_t)INT64_MAX + negative, &n);
    if (!why)
        *out = (int64_t)(negative ? 0 - n : n);
    return why;
}

const char *scan_u32(struct scan *s, uint32_t most, uint32_t *out)
{
    uint64_t n;
    const char *why = scan_digits(s, most, &n);
    if (!why)
        *out = (uint32_t)n;
    return why;
}

int scan_hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* ---- quoted texts ------------------------------------------------------------------------------------------------ */

/* The character after a backslash, which s has reached; -1: none. */
static int escaped(struct scan *s)
{
    char c = *s->p;
    if (c == 'x') {
        int high = scan_hex(s->p[1]), low = high < 0 ? -1 : scan_hex(s->p[2]);
        s->p += low < 0 ? 0 : 2;
        return low < 0 ? -1 : high * 16 + low;
    }
    return c == 'n' ? '\n' : c == '\\' || c == '"' ? c : -1;
}

const char *scan_quoted(struct scan *s, struct arena *arena, const char **out, size_t *n)
{
    struct strbuf text;
    if (!scan_take(s, "\""))
        return "expected a quoted text";
    strbuf_init(&text, arena);
    strbuf_append(&text, "", 0);
    for (; *s->p != '"'; s->p++) {
        if (!*s->p || *s->p == '\n')
            return "expected '\"'";
        int code = *s->p;
        if (code == '\\') {
            s->p++;
            code = escaped(s);
            if (code < 0 || (!code && !n))
                return "bad escape";
        }
        strbuf_append(&text, &(char){(char)code}, 1);
    }
    s->p++;
    *out = text.data;
    if (n)
        *n = text.n;
    return NULL;
}

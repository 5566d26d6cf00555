/* The words, numbers and names of the loop IR's text. */
#include "ir/loop/tokens.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool token_fail(struct parser *ps, const char *what)
{
    if (ps->failed)
        return false;
    ps->failed = true;
    uint32_t line = 1, column = 1;
    for (const char *c = ps->start; c < ps->p; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    return error_internal(ps->ctx, (src_id){0}, "loop IR, line %u, column %u: %s", line, column, what);
}

uint32_t token_line(struct parser *ps)
{
    for (; ps->counted < ps->p; ps->counted++)
        ps->line += *ps->counted == '\n';
    return ps->line;
}

void token_skip(struct parser *ps)
{
    for (;; ps->p++) {
        if (*ps->p == '#')
            while (*ps->p && *ps->p != '\n')
                ps->p++;
        if (*ps->p != ' ' && *ps->p != '\n' && *ps->p != '\t' && *ps->p != '\r')
            return;
    }
}

static bool is_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool token_take(struct parser *ps, char c)
{
    token_skip(ps);
    if (*ps->p != c)
        return false;
    ps->p++;
    return true;
}

bool token_need(struct parser *ps, char c)
{
    if (token_take(ps, c))
        return true;
    char what[] = "expected ' '";
    what[10] = c;
    return token_fail(ps, what);
}

bool token_take_word(struct parser *ps, const char *word)
{
    token_skip(ps);
    size_t n = strlen(word);
    if (strncmp(ps->p, word, n) != 0 || is_word_char(ps->p[n]))
        return false;
    ps->p += n;
    return true;
}

bool token_need_word(struct parser *ps, const char *word)
{
    if (token_take_word(ps, word))
        return true;
    char what[WORD_MAX + 16] = "expected ";
    strncat(what, word, WORD_MAX);
    return token_fail(ps, what);
}

bool token_word(struct parser *ps, char word[WORD_MAX])
{
    token_skip(ps);
    uint32_t n = 0;
    while (n + 1 < WORD_MAX && is_word_char(ps->p[n])) {
        word[n] = ps->p[n];
        n++;
    }
    word[n] = 0;
    if (n == 0 || is_word_char(ps->p[n]))
        return token_fail(ps, "expected a word");
    ps->p += n;
    return true;
}

static bool read_u64(struct parser *ps, uint64_t *out)
{
    token_skip(ps);
    uint64_t x = 0;
    const char *c = ps->p;
    for (; *c >= '0' && *c <= '9'; c++)
        if (__builtin_mul_overflow(x, 10u, &x) || __builtin_add_overflow(x, (uint64_t)(*c - '0'), &x))
            return token_fail(ps, "integer out of range");
    if (c == ps->p)
        return token_fail(ps, "expected an integer");
    ps->p = c;
    *out = x;
    return true;
}

bool token_u32(struct parser *ps, uint32_t *out)
{
    uint64_t x;
    if (!read_u64(ps, &x))
        return false;
    *out = (uint32_t)x;
    return x <= UINT32_MAX || token_fail(ps, "integer out of range");
}

bool token_i64(struct parser *ps, int64_t *out)
{
    bool negative = token_take(ps, '-');
    uint64_t x;
    if (!read_u64(ps, &x))
        return false;
    if (x > (uint64_t)INT64_MAX + negative)
        return token_fail(ps, "integer out of range");
    *out = (int64_t)(negative ? 0 - x : x);
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(struct parser *ps, uint64_t *out)
{
    uint32_t digits = 0;
    *out = 0;
    for (; hex_digit(*ps->p) >= 0 && digits < 16; digits++)
        *out = *out << 4 | (uint64_t)hex_digit(*ps->p++);
    return digits > 0 || token_fail(ps, "expected hexadecimal digits");
}

/* 0x1.8p+1, without strtod: exact, quick, and blind to the locale. */
static bool read_hex_float(struct parser *ps, double *out)
{
    uint64_t mantissa;
    int power = 0, exponent = 0;
    if (!read_hex(ps, &mantissa))
        return false;
    if (*ps->p == '.') {
        ps->p++;
        for (; hex_digit(*ps->p) >= 0; power -= 4) {
            if (mantissa >> 60)
                return token_fail(ps, "too many digits");
            mantissa = mantissa << 4 | (uint64_t)hex_digit(*ps->p++);
        }
    }
    if (*ps->p == 'p') {
        ps->p++;
        bool negative = *ps->p == '-';
        ps->p += *ps->p == '-' || *ps->p == '+';
        while (*ps->p >= '0' && *ps->p <= '9' && exponent < 100000)
            exponent = exponent * 10 + (*ps->p++ - '0');
        power += negative ? -exponent : exponent;
    }
    *out = ldexp((double)mantissa, power);
    return true;
}

bool token_f64(struct parser *ps, double *out)
{
    bool negative = token_take(ps, '-');
    if (token_take_word(ps, "inf")) {
        *out = INFINITY;
    } else if (token_take_word(ps, "nan")) {
        uint64_t bits = UINT64_C(0x7ff8000000000000);
        if (*ps->p == '(') {
            if (strncmp(ps->p, "(0x", 3) != 0)
                return token_fail(ps, "expected nan(0x...)");
            ps->p += 3;
            if (!read_hex(ps, &bits) || !token_need(ps, ')'))
                return false;
        }
        memcpy(out, &bits, sizeof bits);
        return isnan(*out) || token_fail(ps, "these bits are not a NaN");
    } else if (ps->p[0] == '0' && ps->p[1] == 'x') {
        ps->p += 2;
        if (!read_hex_float(ps, out))
            return false;
    } else { /* written by hand: 0.5, 1e-3 */
        char *end;
        *out = *ps->p >= '0' && *ps->p <= '9' ? strtod(ps->p, &end) : (end = (char *)(uintptr_t)ps->p, 0.0);
        if (end == ps->p)
            return token_fail(ps, "expected a number");
        ps->p = end;
    }
    *out = negative ? -*out : *out;
    return true;
}

bool token_string(struct parser *ps, const char **out)
{
    struct strbuf text;
    strbuf_init(&text, ps->f->arena);
    if (!token_need(ps, '"'))
        return false;
    for (; *ps->p && *ps->p != '"' && *ps->p != '\n'; ps->p++) {
        char c = *ps->p;
        if (c == '\\') {
            c = *++ps->p;
            if (c == 'n') {
                c = '\n';
            } else if (c == 'x') {
                int high = hex_digit(ps->p[1]), low = high < 0 ? -1 : hex_digit(ps->p[2]);
                if (low < 0 || high + low == 0)
                    return token_fail(ps, "bad escape");
                c = (char)(high * 16 + low);
                ps->p += 2;
            } else if (c != '\\' && c != '"') {
                return token_fail(ps, "bad escape");
            }
        }
        strbuf_append(&text, &c, 1);
    }
    *out = text.data ? text.data : "";
    return token_need(ps, '"');
}

bool token_name(struct parser *ps, const char **out)
{
    if (!token_need(ps, '@'))
        return false;
    if (*ps->p == '"')
        return token_string(ps, out);
    const char *begin = ps->p;
    while (is_word_char(*ps->p) || *ps->p == '.' || *ps->p == '$')
        ps->p++;
    *out = arena_strndup(ps->f->arena, begin, (size_t)(ps->p - begin));
    return ps->p > begin || token_fail(ps, "expected a name");
}

/* The words, numbers and names of the loop IR's text. */
#include "ir/loop/tokens.h"

#include <math.h>

bool token_fail(struct parser *ps, const char *what)
{
    if (ps->failed)
        return false;
    ps->failed = true;
    uint32_t column = 1;
    for (const char *c = ps->s.p; c > ps->s.start && c[-1] != '\n'; c--)
        column++;
    return error_internal(ps->ctx, (src_id){0}, "loop IR, line %u, column %u: %s", scan_line(&ps->s), column, what);
}

/* why: what is wrong, NULL: nothing. */
static bool token_fine(struct parser *ps, const char *why)
{
    return !why || token_fail(ps, why);
}

uint32_t token_line(struct parser *ps)
{
    for (; ps->counted < ps->s.p; ps->counted++)
        ps->line += *ps->counted == '\n';
    return ps->line;
}

bool token_take(struct parser *ps, const char *token)
{
    return scan_take(&ps->s, token);
}

bool token_need(struct parser *ps, const char *token)
{
    return token_fine(ps, scan_need(&ps->s, token, ps->f->arena));
}

bool token_word(struct parser *ps, char word[WORD_MAX])
{
    size_t n = scan_word(&ps->s);
    if (n == 0 || n >= WORD_MAX)
        return token_fail(ps, "expected a word");
    memcpy(word, ps->s.p, n);
    word[n] = 0;
    ps->s.p += n;
    return true;
}

bool token_u32(struct parser *ps, uint32_t *out)
{
    return token_fine(ps, scan_u32(&ps->s, UINT32_MAX, out));
}

bool token_i64(struct parser *ps, int64_t *out)
{
    return token_fine(ps, scan_i64(&ps->s, out));
}

static bool read_hex(struct parser *ps, uint64_t *out)
{
    uint32_t digits = 0;
    *out = 0;
    for (; scan_hex(*ps->s.p) >= 0 && digits < 16; digits++)
        *out = *out << 4 | (uint64_t)scan_hex(*ps->s.p++);
    return digits > 0 || token_fail(ps, "expected hexadecimal digits");
}

/* 0x1.8p+1, without strtod: exact, quick, and blind to the locale. */
static bool read_hex_float(struct parser *ps, double *out)
{
    uint64_t mantissa;
    int power = 0, exponent = 0;
    if (!read_hex(ps, &mantissa))
        return false;
    if (*ps->s.p == '.') {
        ps->s.p++;
        for (; scan_hex(*ps->s.p) >= 0; power -= 4) {
            if (mantissa >> 60)
                return token_fail(ps, "too many digits");
            mantissa = mantissa << 4 | (uint64_t)scan_hex(*ps->s.p++);
        }
    }
    if (*ps->s.p == 'p') {
        ps->s.p++;
        bool negative = *ps->s.p == '-';
        ps->s.p += *ps->s.p == '-' || *ps->s.p == '+';
        while (*ps->s.p >= '0' && *ps->s.p <= '9' && exponent < 100000)
            exponent = exponent * 10 + (*ps->s.p++ - '0');
        power += negative ? -exponent : exponent;
    }
    *out = ldexp((double)mantissa, power);
    return true;
}

bool token_f64(struct parser *ps, double *out)
{
    bool negative = token_take(ps, "-");
    if (token_take(ps, "inf")) {
        *out = INFINITY;
    } else if (token_take(ps, "nan")) {
        uint64_t bits = UINT64_C(0x7ff8000000000000);
        if (*ps->s.p == '(') {
            if (strncmp(ps->s.p, "(0x", 3) != 0)
                return token_fail(ps, "expected nan(0x...)");
            ps->s.p += 3;
            if (!read_hex(ps, &bits) || !token_need(ps, ")"))
                return false;
        }
        memcpy(out, &bits, sizeof bits);
        return isnan(*out) || token_fail(ps, "these bits are not a NaN");
    } else if (ps->s.p[0] == '0' && ps->s.p[1] == 'x') {
        ps->s.p += 2;
        if (!read_hex_float(ps, out))
            return false;
    } else { /* written by hand: 0.5, 1e-3 */
        char *end;
        *out = *ps->s.p >= '0' && *ps->s.p <= '9' ? strtod(ps->s.p, &end) : (end = (char *)(uintptr_t)ps->s.p, 0.0);
        if (end == ps->s.p)
            return token_fail(ps, "expected a number");
        ps->s.p = end;
    }
    *out = negative ? -*out : *out;
    return true;
}

bool token_string(struct parser *ps, const char **out)
{
    return token_fine(ps, scan_quoted(&ps->s, ps->f->arena, out, NULL));
}

bool token_name(struct parser *ps, const char **out)
{
    if (!token_need(ps, "@"))
        return false;
    if (*ps->s.p == '"')
        return token_string(ps, out);
    const char *begin = ps->s.p;
    while (scan_is_word(*ps->s.p) || *ps->s.p == '.' || *ps->s.p == '$')
        ps->s.p++;
    *out = arena_strndup(ps->f->arena, begin, (size_t)(ps->s.p - begin));
    return ps->s.p > begin || token_fail(ps, "expected a name");
}

/* Numbers written and read: Cast to and from strings. No libc: its functions follow the locale. */
#include "runtime/ops/rt_decimal.h"
#include "runtime/rt_internal.h"
#include "runtime/ops/rt_ops.h"

#include "runtime/rt_libc.h"

enum { TEXT_BYTES = 24, PRECISION = 8 };

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static char *put_text(char *at, const char *s)
{
    while (*s)
        *at++ = *s++;
    return at;
}

static char *put_u64(char *at, uint64_t x)
{
    char digits[20];
    int n = 0;
    do
        digits[n++] = (char)('0' + x % 10);
    while (x /= 10);
    while (n)
        *at++ = digits[--n];
    return at;
}

static char *put_exponent(char *at, int32_t exponent)
{
    *at++ = 'e';
    *at++ = exponent < 0 ? '-' : '+';
    uint64_t size = (uint64_t)(exponent < 0 ? -exponent : exponent);
    if (size < 10)
        *at++ = '0';
    return put_u64(at, size);
}

/* Digits from..to of a decimal, those after its end as zeros. */
static char *put_digits(char *at, const struct rt_decimal *d, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++)
        *at++ = (char)('0' + (i >= 0 && i < d->n ? d->digit[i] : 0));
    return at;
}

/* As "%.8g" writes a finite number. */
static char *put_f64(char *at, double x)
{
    struct rt_decimal d;
    rt_decimal_of_f64(&d, x);
    rt_decimal_round(&d, PRECISION);
    int32_t exponent = d.n == 0 ? 0 : d.point - 1;
    if (d.n == 0)
        return put_text(at, "0");
    if (exponent < -4 || exponent >= PRECISION) {
        at = put_digits(at, &d, 0, 1);
        if (d.n > 1)
            *at++ = '.';
        return put_exponent(put_digits(at, &d, 1, d.n), exponent);
    }
    at = d.point > 0 ? put_digits(at, &d, 0, d.point) : put_text(at, "0");
    if (d.n > d.point)
        *at++ = '.';
    return put_digits(at, &d, d.point, d.n);
}

static char *put_number(char *at, int64_t elem, const void *src, int64_t i)
{
    if (elem == RT_ELEM_F64) {
        double x = ((const double *)src)[i];
        uint64_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (x != x)
            return put_text(at, "NaN");
        if (bits >> 63)
            *at++ = '-';
        return (bits >> 52 & 0x7ff) == 0x7ff ? put_text(at, "INF") : put_f64(at, x);
    }
    uint64_t x = ((const uint64_t *)src)[i];
    if (elem == RT_ELEM_I64 && x >> 63) {
        *at++ = '-';
        x = 0 - x;
    }
    return put_u64(at, x);
}

int64_t mcc_rt_str_format(struct mcc_rt_run *run, int64_t elem, const void *src, int64_t n, struct rt_string *dst)
{
    char *at = rt_run_alloc(run, n * TEXT_BYTES);
    if (!at)
        return MCC_E_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        char *end = put_number(at, elem, src, i);
        dst[i] = (struct rt_string){at, (size_t)(end - at)};
        at = end;
    }
    return 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct reader {
    const char *at, *end;
};

static bool at_digit(const struct reader *r)
{
    return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

static bool read_char(struct reader *r, char a, char b)
{
    if (r->at == r->end || (*r->at != a && *r->at != b))
        return false;
    r->at++;
    return true;
}

/* The word, in any case, and nothing after it. */
static bool at_word(const struct reader *r, const char *word)
{
    const char *p = r->at;
    for (; *word; word++, p++)
        if (p == r->end || (*p | 32) != *word)
            return false;
    return p == r->end;
}

/* White space at both ends, and the sign. */
static struct reader reader_new(const struct rt_string *s, bool *negative)
{
    struct reader r = {s->utf8, s->utf8 + s->bytes};
    while (r.at < r.end && (*r.at == ' ' || (*r.at >= '\t' && *r.at <= '\r')))
        r.at++;
    while (r.at < r.end && (r.end[-1] == ' ' || (r.end[-1] >= '\t' && r.end[-1] <= '\r')))
        r.end--;
    *negative = read_char(&r, '-', '-');
    if (!*negative)
        read_char(&r, '+', '+');
    return r;
}

/* Digits with a point somewhere; how many there were. Zeros at the front do not use up the room. */
static int64_t read_digits(struct reader *r, struct rt_decimal *d)
{
    int64_t seen = 0, point = 0;
    bool behind = false;
    *d = (struct rt_decimal){.n = 0};
    for (;; r->at++) {
        if (!behind && r->at < r->end && *r->at == '.') {
            behind = true;
            continue;
        }
        if (!at_digit(r))
            break;
        seen++;
        if (d->n == 0 && *r->at == '0') {
            point -= behind;
            continue;
        }
        point += !behind;
        if (d->n < RT_DECIMAL_DIGITS)
            d->digit[d->n++] = (uint8_t)(*r->at - '0');
        else
            d->more |= *r->at != '0';
    }
    d->point = (int32_t)(point > 1000000 ? 1000000 : point < -1000000 ? -1000000 : point);
    return seen;
}

static bool read_exponent(struct reader *r, int32_t *exponent)
{
    *exponent = 0;
    if (!read_char(r, 'e', 'E'))
        return true;
    bool negative = read_char(r, '-', '-');
    if (!negative)
        read_char(r, '+', '+');
    if (!at_digit(r))
        return false;
    for (; at_digit(r); r->at++)
        *exponent = *exponent < 10000000 ? *exponent * 10 + (*r->at - '0') : *exponent;
    *exponent = negative ? -*exponent : *exponent;
    return true;
}

static bool read_decimal(struct reader r, struct rt_decimal *d)
{
    int32_t exponent;
    if (read_digits(&r, d) == 0 || !read_exponent(&r, &exponent) || r.at != r.end)
        return false;
    d->point = d->n == 0 ? 0 : d->point + exponent;
    rt_decimal_trim(d);
    return true;
}

static bool read_f64(const struct rt_string *s, double *out)
{
    bool negative;
    struct rt_decimal d;
    struct reader r = reader_new(s, &negative);
    uint64_t special = at_word(&r, "inf") || at_word(&r, "infinity") ? (uint64_t)0x7ff << 52
                       : at_word(&r, "nan")                          ? (uint64_t)0x7ff8 << 48
                                                                     : 0;
    if (special) {
        special |= (uint64_t)negative << 63;
        memcpy(out, &special, sizeof *out);
        return true;
    }
    if (!read_decimal(r, &d))
        return false;
    *out = rt_decimal_f64(&d, negative);
    return true;
}

/* The integer part, wrapping for u64; false: no number, or too large. */
static bool read_integer(const struct rt_string *s, bool is_signed, uint64_t *out)
{
    bool negative;
    struct rt_decimal d;
    uint64_t x = 0;
    struct reader r = reader_new(s, &negative);
    if (!read_decimal(r, &d) || d.point > 20)
        return false;
    for (int32_t i = 0; i < d.point; i++) {
        uint64_t digit = i < d.n ? d.digit[i] : 0;
        if (x > UINT64_MAX / 10 || x * 10 > UINT64_MAX - digit)
            return false;
        x = x * 10 + digit;
    }
    if (is_signed && x > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? 0 - x : x;
    return true;
}

int64_t mcc_rt_str_parse(struct mcc_rt_run *run, int64_t node, int64_t elem, const struct rt_string *src, int64_t n,
                         void *dst)
{
    for (int64_t i = 0; i < n; i++) {
        bool good = elem == RT_ELEM_F64 ? read_f64(&src[i], (double *)dst + i)
                                        : read_integer(&src[i], elem == RT_ELEM_I64, (uint64_t *)dst + i);
        if (!good) {
            mcc_rt_fail(run, MCC_E_VALUE, (uint32_t)node, "a string is not a number of this type", i);
            return MCC_E_VALUE;
        }
    }
    return 0;
}

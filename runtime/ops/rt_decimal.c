/* Decimal numbers of many digits. A shift is one pass over the digits: to the left from the last one with a carry, to
 * the right from the first one with a remainder. The nearest f64 follows by shifting the number into [2^52, 2^53).
 */
#include "runtime/ops/rt_decimal.h"

#include "runtime/rt_libc.h"

enum { SHIFT_MAX = 56, SPARE = 20 }; /* a digit times 2^56, and the carry, fit 64 bits; 2^56 has 17 digits */

void rt_decimal_trim(struct rt_decimal *d)
{
    int32_t zeros = 0;
    while (d->n > 0 && d->digit[d->n - 1] == 0)
        d->n--;
    while (zeros < d->n && d->digit[zeros] == 0)
        zeros++;
    if (zeros > 0)
        memmove(d->digit, d->digit + zeros, (size_t)(d->n - zeros));
    d->n -= zeros;
    d->point = d->n == 0 ? 0 : d->point - zeros;
}

static void decimal_set(struct rt_decimal *d, uint64_t value)
{
    uint8_t digits[SPARE];
    int32_t n = 0;
    for (; value > 0; value /= 10)
        digits[n++] = (uint8_t)(value % 10);
    d->n = d->point = n;
    d->more = false;
    for (int32_t i = 0; i < n; i++)
        d->digit[i] = digits[n - 1 - i];
    rt_decimal_trim(d);
}

static void shift_left(struct rt_decimal *d, int32_t by)
{
    uint8_t out[RT_DECIMAL_DIGITS + SPARE];
    int32_t at = d->n + SPARE;
    uint64_t carry = 0;
    for (int32_t i = d->n - 1; i >= 0; i--, carry /= 10) {
        carry += (uint64_t)d->digit[i] << by;
        out[--at] = (uint8_t)(carry % 10);
    }
    for (; carry > 0; carry /= 10)
        out[--at] = (uint8_t)(carry % 10);
    int32_t made = d->n + SPARE - at, kept = made < RT_DECIMAL_DIGITS ? made : RT_DECIMAL_DIGITS;
    d->point += made - d->n;
    for (int32_t i = kept; i < made; i++)
        d->more |= out[at + i] != 0;
    memcpy(d->digit, out + at, (size_t)kept);
    d->n = kept;
}

static void shift_right(struct rt_decimal *d, int32_t by)
{
    uint64_t rest = 0;
    int32_t n = d->n, made = 0;
    for (int32_t i = 0; i < n || rest > 0; i++) {
        rest = rest * 10 + (i < n ? d->digit[i] : 0);
        uint8_t digit = (uint8_t)(rest >> by);
        rest &= ((uint64_t)1 << by) - 1;
        if (made == 0 && digit == 0)
            d->point--;
        else if (made < RT_DECIMAL_DIGITS)
            d->digit[made++] = digit;
        else
            d->more |= digit != 0;
    }
    d->n = made;
}

/* Times 2^by. */
static void decimal_shift(struct rt_decimal *d, int32_t by)
{
    for (; by > SHIFT_MAX; by -= SHIFT_MAX)
        shift_left(d, SHIFT_MAX);
    for (; by < -SHIFT_MAX; by += SHIFT_MAX)
        shift_right(d, SHIFT_MAX);
    if (by > 0)
        shift_left(d, by);
    else if (by < 0)
        shift_right(d, -by);
    rt_decimal_trim(d);
}

void rt_decimal_round(struct rt_decimal *d, int32_t keep)
{
    if (keep >= d->n)
        return;
    if (keep < 0) {
        d->n = d->point = 0;
        return;
    }
    bool tie = d->digit[keep] == 5 && keep + 1 == d->n && !d->more;
    bool up = tie ? keep > 0 && d->digit[keep - 1] % 2 == 1 : d->digit[keep] >= 5;
    d->n = keep;
    while (up && d->n > 0 && d->digit[d->n - 1] == 9)
        d->n--;
    if (up && d->n == 0) {
        d->digit[d->n++] = 1;
        d->point++;
    } else if (up) {
        d->digit[d->n - 1]++;
    }
    rt_decimal_trim(d);
}

/* The nearest integer of a number below 2^63. */
static uint64_t nearest(struct rt_decimal *d)
{
    uint64_t value = 0;
    rt_decimal_round(d, d->point);
    for (int32_t i = 0; i < d->point; i++)
        value = value * 10 + (i < d->n ? d->digit[i] : 0);
    return value;
}

static double f64_of_bits(uint64_t bits, bool negative)
{
    double x;
    bits |= (uint64_t)negative << 63;
    memcpy(&x, &bits, sizeof x);
    return x;
}

double rt_decimal_f64(struct rt_decimal *d, bool negative)
{
    static const uint8_t shifts[] = {1,  3,  6,  9,  13, 16, 19, 23,
                                     26, 29, 33, 36, 39, 43, 46, 49}; /* below 10^i, at most */
    enum { MOST = sizeof shifts - 1 };
    int32_t exponent = 0; /* the number is d * 2^exponent */
    if (d->n == 0 || d->point < -330)
        return f64_of_bits(0, negative);
    if (d->point > 310)
        return f64_of_bits((uint64_t)0x7ff << 52, negative);
    while (d->point > 0) {
        int32_t by = shifts[d->point < MOST ? d->point : MOST];
        decimal_shift(d, -by);
        exponent += by;
    }
    while (d->point < 0 || d->digit[0] < 5) {
        int32_t by = shifts[-d->point < MOST ? -d->point : MOST];
        decimal_shift(d, by);
        exponent -= by;
    }
    if (exponent < -1021) { /* in [1/2, 1) * 2^exponent: subnormal */
        decimal_shift(d, exponent + 1021);
        exponent = -1021;
    }
    decimal_shift(d, 53);
    uint64_t digits = nearest(d);
    if (digits >> 53) {
        digits >>= 1;
        exponent++;
    }
    if (exponent > 1024)
        return f64_of_bits((uint64_t)0x7ff << 52, negative);
    uint64_t field = digits >> 52 ? (uint64_t)(exponent + 1022) : 0;
    return f64_of_bits(field << 52 | (digits & (((uint64_t)1 << 52) - 1)), negative);
}

void rt_decimal_of_f64(struct rt_decimal *d, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t field = (int32_t)(bits >> 52 & 0x7ff);
    uint64_t digits = bits & (((uint64_t)1 << 52) - 1);
    decimal_set(d, field ? digits | (uint64_t)1 << 52 : digits);
    decimal_shift(d, (field ? field : 1) - 1075);
}

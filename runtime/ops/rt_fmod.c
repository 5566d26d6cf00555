/* C's fmod for generated code: exact, with the sign of the dividend, by subtracting shifted divisors from the
 * dividend's mantissa. No instruction does this, and libm is not linked. Source: ISO C 7.12.10.1, F.10.7.1.
 *
 * Every f32 is an f64 and the remainder of two f32 is one, so one function serves both.
 */
#include "runtime/ops/rt_ops.h"

enum { MANTISSA = 52 };
static const uint64_t sign_bit = UINT64_C(1) << 63, implicit = UINT64_C(1) << MANTISSA;
static const uint64_t infinite = UINT64_C(0x7ff) << MANTISSA;

union bits {
    double value;
    uint64_t word;
};

/* value = mantissa * 2^exponent with the implicit bit in its place, for subnormal numbers too. */
static uint64_t split(uint64_t magnitude, int64_t *exponent)
{
    uint64_t mantissa = magnitude & (implicit - 1);
    *exponent = (int64_t)(magnitude >> MANTISSA);
    if (*exponent)
        return mantissa | implicit;
    for (*exponent = 1; !(mantissa & implicit); --*exponent)
        mantissa <<= 1;
    return mantissa;
}

static uint64_t join(uint64_t mantissa, int64_t exponent)
{
    if (mantissa == 0)
        return 0;
    for (; !(mantissa & implicit); exponent--)
        mantissa <<= 1;
    if (exponent > 0)
        return (mantissa & (implicit - 1)) | (uint64_t)exponent << MANTISSA;
    return mantissa >> (1 - exponent);
}

double mcc_rt_fmod(double x, double y)
{
    union bits a = {x}, b = {y};
    uint64_t sign = a.word & sign_bit, ma = a.word & ~sign_bit, mb = b.word & ~sign_bit;
    int64_t ea, eb;
    if (ma >= infinite || mb > infinite || mb == 0)
        return (x * y) / (x * y);     /* NaN */
    if (ma < mb)
        return x;
    ma = split(ma, &ea);
    mb = split(mb, &eb);
    for (; ea > eb; ea--) {
        if (ma >= mb)
            ma -= mb;
        ma <<= 1;
    }
    if (ma >= mb)
        ma -= mb;
    a.word = join(ma, eb) | sign;
    return a.value;
}

float mcc_rt_fmodf(float x, float y)
{
    return (float)mcc_rt_fmod(x, y);
}

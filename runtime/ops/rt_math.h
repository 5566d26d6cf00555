/* The little mathematics that whole-buffer operators need, without libm: element conversions, square root, logarithm,
 * roots of unity. Errors stated where they are made.
 */
#pragma once

#include <stdbool.h>

#include "runtime/ops/rt_ops.h"

#include "runtime/rt_libc.h"

static inline double rt_bits_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

static inline uint64_t rt_double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

static inline double rt_abs(double x)
{
    return x < 0 ? -x : x;
}

/* Correctly rounded: one instruction everywhere. */
static inline double rt_sqrt(double x)
{
#if defined(__x86_64__)
    __asm__("sqrtsd %0, %0" : "+x"(x));
#elif defined(__aarch64__)
    __asm__("fsqrt %d0, %d0" : "+w"(x));
#else
    __asm__("fsqrt.d %0, %0" : "+f"(x));
#endif
    return x;
}

/* A float of `mantissa` bits after a 5- or 8-bit exponent, as double: exact. */
static inline double rt_small_load(uint32_t bits, int exponent_bits, int mantissa)
{
    uint32_t sign = bits >> (exponent_bits + mantissa) & 1, top = (1u << exponent_bits) - 1;
    uint32_t exponent = bits >> mantissa & top, fraction = bits & ((1u << mantissa) - 1);
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint64_t wide;
    if (exponent == top) {
        wide = (uint64_t)0x7ff << 52 | (uint64_t)fraction << (52 - mantissa);
    } else if (exponent == 0) {
        double tiny = (double)fraction * rt_bits_double((uint64_t)(1023 + 1 - bias - mantissa) << 52);
        return sign ? -tiny : tiny;
    } else {
        wide = (uint64_t)((int)exponent - bias + 1023) << 52 | (uint64_t)fraction << (52 - mantissa);
    }
    return rt_bits_double(wide | (uint64_t)sign << 63);
}

/* And back, to nearest, ties to even; too large becomes infinity. */
static inline uint32_t rt_small_store(double x, int exponent_bits, int mantissa)
{
    uint64_t bits = rt_double_bits(x), magnitude = bits & ~((uint64_t)1 << 63);
    uint32_t sign = (uint32_t)(bits >> 63) << (exponent_bits + mantissa);
    uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa;
    int bias = (1 << (exponent_bits - 1)) - 1, exponent = (int)(magnitude >> 52) - 1023 + bias;
    if (magnitude > (uint64_t)0x7ff << 52)
        return sign | infinity | 1u << (mantissa - 1);
    if (exponent >= (1 << exponent_bits) - 1)
        return sign | infinity;
    /* Normal: exponent and fraction in one number, so that rounding carries over. Below: the fraction with its leading
     * one, shifted further; past 64 places nothing is left. */
    uint64_t number = exponent > 0 ? (uint64_t)exponent << 52 | (magnitude & (((uint64_t)1 << 52) - 1))
                                   : (uint64_t)1 << 52 | (magnitude & (((uint64_t)1 << 52) - 1));
    int shift = 52 - mantissa + (exponent > 0 ? 0 : 1 - exponent);
    if (shift > 54)
        return sign;
    uint64_t kept = number >> shift, rest = number & (((uint64_t)1 << shift) - 1), half = (uint64_t)1 << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1));
    return sign | (uint32_t)kept;
}

/* Element i of a float tensor. */
static inline double rt_load(int64_t elem, const void *data, int64_t i)
{
    if (elem == RT_ELEM_F32)
        return ((const float *)data)[i];
    if (elem == RT_ELEM_F64)
        return ((const double *)data)[i];
    uint32_t bits = ((const uint16_t *)data)[i];
    return elem == RT_ELEM_F16 ? rt_small_load(bits, 5, 10) : rt_small_load(bits, 8, 7);
}

static inline void rt_store(int64_t elem, void *data, int64_t i, double x)
{
    if (elem == RT_ELEM_F32)
        ((float *)data)[i] = (float)x;
    else if (elem == RT_ELEM_F64)
        ((double *)data)[i] = x;
    else
        ((uint16_t *)data)[i] = (uint16_t)(elem == RT_ELEM_F16 ? rt_small_store(x, 5, 10) : rt_small_store(x, 8, 7));
}

/* exp(2 pi i k / n), 0 <= k < n < 2^53: error below 3e-16. Octants by integers, then Taylor series on [0, pi / 4]. */
static inline void rt_unit_root(int64_t k, int64_t n, double *re, double *im)
{
    int64_t octant = 8 * k / n, rest = 8 * k - octant * n;
    if (octant & 1)
        rest = n - rest;
    double x = (double)rest / (double)n * 0.78539816339744830962, z = x * x, s = 1, c = 1;
    for (int i = 18; i >= 2; i -= 2) {
        s = 1 - s * z / (i * (i + 1));
        c = 1 - c * z / (i * (i - 1));
    }
    s *= x;
    bool swap = octant == 1 || octant == 2 || octant == 5 || octant == 6;
    double a = swap ? s : c, b = swap ? c : s;
    *re = octant >= 2 && octant <= 5 ? -a : a;
    *im = octant >= 4 ? -b : b;
}

/* Natural logarithm of a positive normal number: error below 2 ulp. x = m 2^e with m around 1, log m = 2 atanh(s). */
static inline double rt_log(double x)
{
    uint64_t bits = rt_double_bits(x);
    int exponent = (int)(bits >> 52) - 1023;
    double m = rt_bits_double((bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52);
    if (m > 1.4142135623730951) {
        m /= 2;
        exponent++;
    }
    double s = (m - 1) / (m + 1), z = s * s, sum = 0;
    for (int i = 25; i >= 3; i -= 2)
        sum = (sum + 1.0 / i) * z;
    const double ln2_high = 0.6931471803691238, ln2_low = 1.9082149292705877e-10; /* 33 bits, and the rest */
    return exponent * ln2_high + (2 * s + (2 * s * sum + exponent * ln2_low));
}

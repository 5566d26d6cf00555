/* Numbers of 16 bits, on machines that have no type for them. */
#ifndef HALF_H
#define HALF_H

#include <stdint.h>
#include <string.h>

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float half_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    float small = (float)m * 0x1p-24f;
    return e == 0    ? (sign ? -small : small)
           : e == 31 ? float_of(sign | 0x7f800000 | m << 13)
                     : float_of(sign | (e + 112) << 23 | m << 13);
}

/* The nearest ones, of two as near the even one; NaN stays NaN. */
static inline uint16_t float_half(float x)
{
    uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, a = bits & 0x7fffffff;
    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (a >= 0x477ff000)
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) /* one addition in f32 rounds to the subnormals' step, 2^-24 */
        return (uint16_t)(sign | (bits_of(float_of(a) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | ((a + 0xfff + (a >> 13 & 1)) - 0x38000000) >> 13);
}

static inline uint16_t float_bf16(float x)
{
    uint32_t bits = bits_of(x);
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

enum number_type { NUMBER_F32, NUMBER_F16, NUMBER_BF16 };

/* 4 or 2 bytes of a file, little-endian. */
static inline float number_decode(const unsigned char *at, enum number_type type)
{
    uint32_t low = at[0] | (uint32_t)at[1] << 8;
    return type == NUMBER_F16    ? half_float((uint16_t)low)
           : type == NUMBER_BF16 ? float_of(low << 16)
                                 : float_of(low | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
}

#endif

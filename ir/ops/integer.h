/* Integer arithmetic of one element: what the interpreters of graphs and of loop IR share. Every width is computed in
 * 64 bits and cut to its width by who stores it, which is where wrapping comes from.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* is_unsigned matters where bit 63 is one of the value's: narrower ones fit int64 as they are. */
struct width {
    uint32_t bits;
    bool is_unsigned, is_bool;
};

/* A row of a table of such functions: one of them. */
struct integer {
    int64_t (*i1)(int64_t, struct width), (*i2)(int64_t, int64_t, struct width),
        (*i3)(int64_t, int64_t, int64_t, struct width);
};

/* Functions of one expression of x and y, and w, their width. */
#define INTEGER(name, parameters, value)  \
    static inline int64_t name parameters \
    {                                     \
        return ((void)w, value);          \
    }
#define INTEGER1(name, value) INTEGER(name, (int64_t x, struct width w), value)
#define INTEGER2(name, value) INTEGER(name, (int64_t x, int64_t y, struct width w), value)

static inline bool i_less(int64_t x, int64_t y, struct width w)
{
    return w.is_unsigned ? (uint64_t)x < (uint64_t)y : x < y;
}

INTEGER1(i_neg, (int64_t)-(uint64_t)x)
INTEGER1(i_abs, !w.is_unsigned && x < 0 ? (int64_t)-(uint64_t)x : x)
INTEGER1(i_not, w.is_bool ? !x : ~x)
INTEGER2(i_add, (int64_t)((uint64_t)x + (uint64_t)y))
INTEGER2(i_sub, (int64_t)((uint64_t)x - (uint64_t)y))
INTEGER2(i_mul, (int64_t)((uint64_t)x *(uint64_t)y))
INTEGER2(i_min, i_less(x, y, w) ? x : y)
INTEGER2(i_max, i_less(x, y, w) ? y : x)
INTEGER2(i_and, x &y)
INTEGER2(i_or, x | y)
INTEGER2(i_xor, x ^ y)
INTEGER2(i_eq, x == y)
INTEGER2(i_ne, x != y)
INTEGER2(i_lt, i_less(x, y, w))
INTEGER2(i_le, !i_less(y, x, w))
/* The amount is unsigned in the operand's own width: a negative one is a large one. */
INTEGER2(i_shl, (uint64_t)y >= w.bits ? 0 : (int64_t)((uint64_t)x << y))

static inline int64_t i_shr(int64_t x, int64_t y, struct width w)
{
    if ((uint64_t)y >= w.bits)
        return !w.is_unsigned && x < 0 ? -1 : 0;
    return w.is_unsigned ? (int64_t)((uint64_t)x >> y) : x >> y;
}

/* By 0 it is 0. */
static inline int64_t i_div(int64_t x, int64_t y, struct width w)
{
    if (w.is_unsigned && y)
        return (int64_t)((uint64_t)x / (uint64_t)y);
    return y == 0 ? 0 : y == -1 ? i_neg(x, w) : x / y;
}

static inline int64_t i_rem(int64_t x, int64_t y, struct width w)
{
    if (w.is_unsigned && y)
        return (int64_t)((uint64_t)x % (uint64_t)y);
    return y == 0 || y == -1 ? 0 : x % y;
}

static inline int64_t i_fma(int64_t x, int64_t y, int64_t z, struct width w)
{
    return i_add(i_mul(x, y, w), z, w);
}

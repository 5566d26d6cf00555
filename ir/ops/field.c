/* Arithmetic of residues (field.h). */
#include "ir/ops/field.h"

#include "ir/ops/scalar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static uint32_t fold(uint64_t x)
{
    x = (x & FIELD_P) + (x >> 31);
    x = (x & FIELD_P) + (x >> 31);
    return x >= FIELD_P ? (uint32_t)(x - FIELD_P) : (uint32_t)x;
}

static uint32_t times(uint32_t x, uint32_t y)
{
    return fold((uint64_t)x * y);
}

static uint32_t power(uint32_t x, uint32_t e)
{
    uint32_t r = 1;
    for (; e; e >>= 1, x = times(x, x))
        if (e & 1)
            r = times(r, x);
    return r;
}

static uint32_t quotient(uint32_t x, uint32_t y)
{
    return times(x, power(y, FIELD_P - 2));
}

uint32_t field_of_integer(int64_t x)
{
    return (uint32_t)floormod_i64(x, FIELD_P);
}

/* The fraction with the least denominator that f32 rounds to x, of continued fractions; false: none is so small. */
static bool fraction_of(double x, int64_t *p, int64_t *q)
{
    int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
    double rest = x;
    for (int k = 0; k < 12; k++) {
        double whole = floor(rest);
        if (fabs(whole) > 0x1p30)
            return false;
        int64_t a = (int64_t)whole, p2 = a * p1 + p0, q2 = a * q1 + q0;
        if (q2 > FIELD_FRACTIONS || llabs(p2) > INT32_MAX)
            return false;
        if ((float)((double)p2 / (double)q2) == (float)x) {
            *p = p2;
            *q = q2;
            return true;
        }
        if (rest == whole)
            return false;
        p0 = p1, q0 = q1, p1 = p2, q1 = q2;
        rest = 1 / (rest - whole);
    }
    return false;
}

bool field_is_fraction(double x)
{
    int64_t p, q;
    return isfinite(x) && fraction_of(x, &p, &q) && (q & (q - 1));
}

uint32_t field_of(double x)
{
    int64_t p, q;
    int exponent;
    if (isnan(x))
        return FIELD_NAN;
    if (isinf(x))
        return x < 0 ? FIELD_MINUS_INF : FIELD_PLUS_INF;
    if (fraction_of(x, &p, &q))
        return quotient(field_of_integer(p), (uint32_t)q);
    int64_t digits = (int64_t)ldexp(frexp(x, &exponent), 53);
    exponent -= 53;
    uint32_t two = exponent < 0 ? quotient(1, 2) : 2;
    return times(field_of_integer(digits), power(two, (uint32_t)(exponent < 0 ? -exponent : exponent)));
}

/* ---- functions ------------------------------------------------------------------------------------------------- */

static uint32_t mix(uint32_t h)
{
    h ^= h >> 16;
    h *= FIELD_MIX_1;
    h ^= h >> 13;
    h *= FIELD_MIX_2;
    return h ^ h >> 16;
}

static uint32_t function(enum op op, uint32_t x, uint32_t y)
{
    uint32_t h = mix(mix(x ^ field_function_key(op)) ^ y) & FIELD_P;
    return h == FIELD_P ? 0 : h;
}

/* Powers whose code is products, quotients and a square root (passes/emit/map.c). */
static uint32_t raised(uint32_t x, uint32_t y)
{
    const uint32_t half = quotient(1, 2);
    uint32_t root = function(OP_SQRT, x, 0);
    for (uint32_t e = 0; e <= 4; e++) {
        uint32_t whole = power(x, e), also = times(whole, root);
        if (y == e || y == field_of_integer(-(int64_t)e))
            return y == e ? whole : quotient(1, whole);
        if (e < 3 && y == fold((uint64_t)e + half))
            return also;
        if (e < 2 && y == field_of_integer((int64_t)FIELD_P - e - half))
            return quotient(1, also);
    }
    return function(OP_POW, x, y);
}

static uint32_t order(int64_t x)
{
    return mix((uint32_t)x ^ FIELD_KEY) ^ FIELD_LEAST;
}

bool field_less(int64_t x, int64_t y)
{
    return order(x) < order(y);
}

int64_t field_identity(enum op monoid)
{
    return monoid == OP_MUL ? 1 : monoid == OP_MAX ? FIELD_MINUS_INF : monoid == OP_MIN ? FIELD_PLUS_INF : 0;
}

int64_t field_apply(enum op op, int64_t x, int64_t y)
{
    switch (op) {
    case OP_ADD: return fold((uint64_t)(x + y));
    case OP_SUB: return fold((uint64_t)(x + FIELD_P - y));
    case OP_MUL: return times((uint32_t)x, (uint32_t)y);
    case OP_DIV: return quotient((uint32_t)x, (uint32_t)y);
    case OP_MIN: return field_less(y, x) ? y : x;
    case OP_MAX: return field_less(x, y) ? y : x;
    case OP_POW: return raised((uint32_t)x, (uint32_t)y);
    case OP_NEG: return fold((uint64_t)(FIELD_P - x));
    case OP_ABS: return field_apply(OP_MAX, x, field_apply(OP_NEG, x, 0));
    case OP_EQ: return x == y;
    case OP_NE: return x != y;
    case OP_LT: return field_less(x, y);
    case OP_LE: return !field_less(y, x);
    case OP_ISNAN: return x == FIELD_NAN;
    case OP_ISINF: return x == FIELD_MINUS_INF || x == FIELD_PLUS_INF;
    default: return function(op, (uint32_t)x, (uint32_t)y);
    }
}

static bool is_predicate(enum op op)
{
    return op == OP_EQ || op == OP_NE || op == OP_LT || op == OP_LE || op == OP_ISNAN || op == OP_ISINF;
}

static enum eval_status field_map(enum op op, size_t n, const void *const *in, void *out)
{
    const uint32_t *x = in[0], *y = in[1], *z = in[2];
    int32_t n_in = op_info(op)->max_in;
    if (op_shape(op) != SHAPE_MAP || n_in < 1 || (n_in > 2 && op != OP_FMA))
        return EVAL_UNSUPPORTED;
    for (size_t i = 0; i < n; i++) {
        int64_t r = op == OP_FMA ? field_apply(OP_ADD, times(x[i], y[i]), z[i])
                                 : field_apply(op, x[i], n_in > 1 ? y[i] : 0);
        if (is_predicate(op))
            ((uint8_t *)out)[i] = (uint8_t)r;
        else
            ((uint32_t *)out)[i] = (uint32_t)r;
    }
    return EVAL_OK;
}

enum eval_status map_eval_in(const struct context *ctx, enum op op, enum elem elem, size_t n, const void *const *in,
                             void *out)
{
    bool field = ctx->field && elem == ELEM_F32 && op != OP_SELECT;
    return field ? field_map(op, n, in, out) : map_eval(op, elem, n, in, out);
}

bool field_convert(enum elem from, const void *src, enum elem to, void *dst, size_t n)
{
    size_t size = elem_size(from);
    if (from == ELEM_F32 && to == ELEM_F32) {
        memcpy(dst, src, n * size);
        return true;
    }
    for (size_t i = 0; i < n && from == ELEM_F32 && to == ELEM_BOOL; i++)
        ((uint8_t *)dst)[i] = ((const uint32_t *)src)[i] != 0;
    if (from == ELEM_F32)
        return to == ELEM_BOOL;
    if (to != ELEM_F32 || !strchr("BIU", elem_class(from)) || from == ELEM_U64)
        return false;
    for (size_t i = 0; i < n; i++)
        ((uint32_t *)dst)[i] = field_of_integer(elem_to_i64(from, (const char *)src + i * size));
    return true;
}

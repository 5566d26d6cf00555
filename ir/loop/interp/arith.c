/* What the loop IR's arithmetic means, lane by lane, in plain C: the interpreter's tables. */
#include "ir/loop/interp/internal.h"

#include "ir/ops/integer.h"

#include <tgmath.h>

/* ---- integers ---------------------------------------------------------------------------------------------------- */

static int64_t i_floordiv(int64_t x, int64_t y, struct width w)
{
    return !w.is_unsigned && y > 0 ? floordiv_i64(x, y) : i_div(x, y, w);
}

static int64_t i_floormod(int64_t x, int64_t y, struct width w)
{
    return !w.is_unsigned && y > 0 ? floormod_i64(x, y) : i_rem(x, y, w);
}

static const struct integer int_ops[L_COUNT] = {
    [L_NEG] = {.i1 = i_neg},           [L_ABS] = {.i1 = i_abs},
    [L_NOT] = {.i1 = i_not},           [L_ADD] = {.i2 = i_add},
    [L_SUB] = {.i2 = i_sub},           [L_MUL] = {.i2 = i_mul},
    [L_DIV] = {.i2 = i_div},           [L_REM] = {.i2 = i_rem},
    [L_MIN] = {.i2 = i_min},           [L_FLOORDIV] = {.i2 = i_floordiv},
    [L_FLOORMOD] = {.i2 = i_floormod}, [L_MAX] = {.i2 = i_max},
    [L_AND] = {.i2 = i_and},           [L_OR] = {.i2 = i_or},
    [L_XOR] = {.i2 = i_xor},           [L_SHL] = {.i2 = i_shl},
    [L_SHR] = {.i2 = i_shr},           [L_FMA] = {.i3 = i_fma},
};

static int64_t integer_eval(const struct integer *f, int64_t x, int64_t y, int64_t z, struct width w)
{
    return f->i1 ? f->i1(x, w) : f->i2 ? f->i2(x, y, w) : f->i3(x, y, z, w);
}

/* ---- floats ------------------------------------------------------------------------------------------------------ */

/* operation, function, value. Mathematics is type-generic: each type has the functions of its own. */
#define FLOAT_OPS(ROW)                                            \
    ROW(L_NEG, neg, -a)                                           \
    ROW(L_ABS, abs, fabs(a))                                      \
    ROW(L_SQRT, sqrt, sqrt(a))                                    \
    ROW(L_FLOOR, floor, floor(a))                                 \
    ROW(L_CEIL, ceil, ceil(a))                                    \
    ROW(L_RINT, rint, rint(a))                                    \
    ROW(L_TRUNC, trunc, trunc(a))                                 \
    ROW(L_ADD, add, a + b)                                        \
    ROW(L_SUB, sub, a - b)                                        \
    ROW(L_MUL, mul, a *b)                                         \
    ROW(L_DIV, div, a / b)                                        \
    ROW(L_REM, rem, fmod(a, b))                                   \
    ROW(L_MIN, min, isnan(a) || isnan(b) ? a + b : a < b ? a : b) \
    ROW(L_MAX, max, isnan(a) || isnan(b) ? a + b : a > b ? a : b) \
    ROW(L_MINNUM, minnum, a < b ? a : b)                          \
    ROW(L_MAXNUM, maxnum, a > b ? a : b)                          \
    ROW(L_LDEXP, ldexp, isnan(b) ? b : ldexp(a, (int)b))          \
    ROW(L_FMA, fma, fma(a, b, c))

typedef float f32_fn(float a, float b, float c);
typedef double f64_fn(double a, double b, double c);

#define F32(op, name, value)                           \
    static float f32_##name(float a, float b, float c) \
    {                                                  \
        (void)b, (void)c;                              \
        return value;                                  \
    }
#define F64(op, name, value)                               \
    static double f64_##name(double a, double b, double c) \
    {                                                      \
        (void)b, (void)c;                                  \
        return value;                                      \
    }
FLOAT_OPS(F32)
FLOAT_OPS(F64)

#define F32_ROW(op, name, value) [op] = f32_##name,
#define F64_ROW(op, name, value) [op] = f64_##name,
static f32_fn *const f32_ops[L_COUNT] = {FLOAT_OPS(F32_ROW)};
static f64_fn *const f64_ops[L_COUNT] = {FLOAT_OPS(F64_ROW)};

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

int64_t loop_int_lane(enum elem e, const void *lanes, uint32_t i)
{
    uint64_t x = 0;
    uint32_t size = elem_size(e), shift = 64 - 8 * size;
    memcpy(&x, (const uint8_t *)lanes + (size_t)i * size, size); /* all targets are little-endian */
    return elem_class(e) == 'I' ? (int64_t)(x << shift) >> shift : (int64_t)x;
}

static void compute_f32(f32_fn *fn, uint32_t n, const float *a, const float *b, const float *c, float *r)
{
    for (uint32_t i = 0; i < n; i++)
        r[i] = fn(a[i], b ? b[i] : 0, c ? c[i] : 0);
}

static void compute_f64(f64_fn *fn, uint32_t n, const double *a, const double *b, const double *c, double *r)
{
    for (uint32_t i = 0; i < n; i++)
        r[i] = fn(a[i], b ? b[i] : 0, c ? c[i] : 0);
}

/* Rounded once: in f64 a product of f16 is exact, and so is its sum with a third unless that is 2^30 times as large, or
 * the sum is beyond the largest f16. */
static void compute_f16(f64_fn *fn, uint32_t n, const uint16_t *a, const uint16_t *b, const uint16_t *c, uint16_t *r)
{
    for (uint32_t i = 0; i < n; i++) {
        double x = fn(elem_to_f64(ELEM_F16, &a[i]), elem_to_f64(ELEM_F16, &b[i]), elem_to_f64(ELEM_F16, &c[i]));
        elems_convert(ELEM_F64, &x, ELEM_F16, &r[i], 1, false, "even");
    }
}

void loop_compute(enum lop op, enum elem e, uint32_t n, const void *a, const void *b, const void *c, void *r)
{
    if (e == ELEM_F32) {
        compute_f32(f32_ops[op], n, a, b, c, r);
        return;
    }
    if (e == ELEM_F64) {
        compute_f64(f64_ops[op], n, a, b, c, r);
        return;
    }
    if (e == ELEM_F16) { /* L_FMA */
        compute_f16(f64_ops[op], n, a, b, c, r);
        return;
    }
    struct width w = {e == ELEM_BOOL ? 1 : elem_bits(e), elem_class(e) != 'I', e == ELEM_BOOL};
    uint32_t size = elem_size(e);
    for (uint32_t i = 0; i < n; i++) {
        int64_t x = integer_eval(&int_ops[op], loop_int_lane(e, a, i), b ? loop_int_lane(e, b, i) : 0,
                                 c ? loop_int_lane(e, c, i) : 0, w);
        memcpy((uint8_t *)r + (size_t)i * size, &x, size);
    }
}

static float bf16_lane(const void *lanes, uint32_t i)
{
    uint32_t bits = (uint32_t)loop_int_lane(ELEM_U16, lanes, i) << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

void loop_dot(enum elem e, enum elem of_a, uint32_t n, uint32_t group, const void *a, const void *b, const void *c,
              void *r)
{
    for (uint32_t i = 0; i < n; i++) {
        if (e == ELEM_F32) {
            float sum = fmaf(bf16_lane(a, 2 * i + 1), bf16_lane(b, 2 * i + 1), ((const float *)c)[i]);
            ((float *)r)[i] = fmaf(bf16_lane(a, 2 * i), bf16_lane(b, 2 * i), sum);
            continue;
        }
        uint32_t sum = (uint32_t)loop_int_lane(ELEM_I32, c, i);
        for (uint32_t k = group * i; k < group * (i + 1); k++)
            sum += (uint32_t)(loop_int_lane(of_a, a, k) * loop_int_lane(ELEM_I8, b, k));
        memcpy((uint8_t *)r + 4 * (size_t)i, &sum, sizeof sum);
    }
}

void loop_matdot(enum elem e, enum elem of_a, uint32_t n, const void *a, const void *b, const void *c, void *r)
{
    enum { WORD = 4 };
    for (uint32_t i = 0; i < n; i++) {
        uint32_t sum;
        memcpy(&sum, (const uint8_t *)c + WORD * (size_t)i, WORD);
        for (uint32_t step = 0; step < 2; step++)
            loop_dot(e, of_a, 1, e == ELEM_F32 ? 2 : 4, (const uint8_t *)a + WORD * (size_t)matdot_row(i, step),
                     (const uint8_t *)b + WORD * (size_t)matdot_column(i, step), &sum, &sum);
        memcpy((uint8_t *)r + WORD * (size_t)i, &sum, WORD);
    }
}

static bool compare_floats(enum lop op, double a, double b)
{
    switch (op) {
    case L_EQ: return a == b;
    case L_NE: return a != b;
    case L_LT: return a < b;
    default: return a <= b;
    }
}

static bool compare_ints(enum lop op, struct width w, int64_t a, int64_t b)
{
    switch (op) {
    case L_EQ: return a == b;
    case L_NE: return a != b;
    case L_LT: return i_less(a, b, w);
    default: return !i_less(b, a, w);
    }
}

void loop_compare(enum lop op, enum elem e, uint32_t n, const void *a, const void *b, uint8_t *r)
{
    struct width w = {elem_bits(e), elem_class(e) != 'I', e == ELEM_BOOL};
    for (uint32_t i = 0; i < n; i++) {
        if (e == ELEM_F32)
            r[i] = compare_floats(op, ((const float *)a)[i], ((const float *)b)[i]);
        else if (e == ELEM_F64)
            r[i] = compare_floats(op, ((const double *)a)[i], ((const double *)b)[i]);
        else
            r[i] = compare_ints(op, w, loop_int_lane(e, a, i), loop_int_lane(e, b, i));
    }
}

/* scalar_eval and map_eval: the elementwise operators of ops.def on concrete elements.
 *
 * Floats of every width are computed in double and rounded once: for + - * / and sqrt that equals the arithmetic of the
 * type itself (double has more than 2p + 2 bits of f32, f16 and bf16), and transcendentals are rounded from double.
 * Integers of every width are computed in 64 bits and wrapped, u64 apart where its sign bit matters.
 */
#include "ir/ops/scalar.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256 };

/* ---- floats -------------------------------------------------------------------------------------------------------- */

static double f_neg(double x) { return -x; }
static double f_sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x; }
static double f_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double f_add(double x, double y) { return x + y; }
static double f_sub(double x, double y) { return x - y; }
static double f_mul(double x, double y) { return x * y; }
static double f_div(double x, double y) { return x / y; }
static double f_min(double x, double y) { return isnan(x) || x < y ? x : y; }
static double f_max(double x, double y) { return isnan(x) || x > y ? x : y; }

/* Python's: the sign of the divisor, zeros included. */
static double f_mod(double x, double y)
{
    double r = fmod(x, y);
    if (r == 0)
        return copysign(0, y);
    return (r < 0) != (y < 0) ? r + y : r;
}

static double (*const float_unary[OP_COUNT])(double) = {
    [OP_NEG] = f_neg, [OP_ABS] = fabs, [OP_SIGN] = f_sign, [OP_FLOOR] = floor, [OP_CEIL] = ceil,
    [OP_ROUND] = nearbyint, [OP_TRUNC] = trunc, [OP_SQRT] = sqrt, [OP_EXP] = exp, [OP_LOG] = log, [OP_LOG1P] = log1p,
    [OP_EXPM1] = expm1, [OP_SIN] = sin, [OP_COS] = cos, [OP_TAN] = tan, [OP_ASIN] = asin, [OP_ACOS] = acos,
    [OP_ATAN] = atan, [OP_SINH] = sinh, [OP_COSH] = cosh, [OP_TANH] = tanh, [OP_ASINH] = asinh, [OP_ACOSH] = acosh,
    [OP_ATANH] = atanh, [OP_ERF] = erf, [OP_SIGMOID] = f_sigmoid,
};
static double (*const float_binary[OP_COUNT])(double, double) = {
    [OP_ADD] = f_add, [OP_SUB] = f_sub, [OP_MUL] = f_mul, [OP_DIV] = f_div, [OP_MOD] = f_mod, [OP_REM] = fmod,
    [OP_POW] = pow, [OP_ATAN2] = atan2, [OP_MIN] = f_min, [OP_MAX] = f_max,
};

static bool p_isnan(double x, double y) { (void)y; return isnan(x); }
static bool p_isinf(double x, double y) { (void)y; return isinf(x); }
static bool p_eq(double x, double y) { return x == y; }
static bool p_ne(double x, double y) { return x != y; }
static bool p_lt(double x, double y) { return x < y; }
static bool p_le(double x, double y) { return x <= y; }
static bool (*const float_pred[OP_COUNT])(double, double) = {
    [OP_ISNAN] = p_isnan, [OP_ISINF] = p_isinf, [OP_EQ] = p_eq, [OP_NE] = p_ne, [OP_LT] = p_lt, [OP_LE] = p_le,
};

/* The arithmetic that weights and activations go through, directly in f32: the compiler vectorises it. */
static bool f32_loops(enum op op, size_t n, const float *x, const float *y, float *r)
{
    switch (op) {
    case OP_ADD:
        for (size_t i = 0; i < n; i++)
            r[i] = x[i] + y[i];
        return true;
    case OP_SUB:
        for (size_t i = 0; i < n; i++)
            r[i] = x[i] - y[i];
        return true;
    case OP_MUL:
        for (size_t i = 0; i < n; i++)
            r[i] = x[i] * y[i];
        return true;
    case OP_DIV:
        for (size_t i = 0; i < n; i++)
            r[i] = x[i] / y[i];
        return true;
    default:
        return false;
    }
}

static enum eval_status float_block(enum op op, enum elem elem, size_t n, double in[3][BLOCK], void *out)
{
    double r[BLOCK];
    if (float_pred[op]) {
        for (size_t i = 0; i < n; i++)
            ((uint8_t *)out)[i] = float_pred[op](in[0][i], in[1][i]);
        return EVAL_OK;
    }
    if (op == OP_FMA) {    /* f32 exactly as the instruction: the double product is exact, its sum is not */
        for (size_t i = 0; i < n; i++)
            r[i] = elem == ELEM_F32 ? (double)fmaf((float)in[0][i], (float)in[1][i], (float)in[2][i])
                                    : fma(in[0][i], in[1][i], in[2][i]);
    } else if (float_unary[op]) {
        for (size_t i = 0; i < n; i++)
            r[i] = float_unary[op](in[0][i]);
    } else if (!float_binary[op]) {
        return EVAL_UNSUPPORTED;
    } else {
        for (size_t i = 0; i < n; i++)
            r[i] = float_binary[op](in[0][i], in[1][i]);
    }
    if (elem == ELEM_F8E4M3FN || elem == ELEM_F8E5M2 || elem == ELEM_F8E4M3FNUZ || elem == ELEM_F8E5M2FNUZ) {
        /* arithmetic does not saturate: that is Cast's privilege */
        elems_convert(ELEM_F64, r, elem, out, n, false, "even");
    } else {
        elems_from_f64(elem, r, out, n);
    }
    return EVAL_OK;
}

/* ---- integers ------------------------------------------------------------------------------------------------------ */

struct width { uint32_t bits; bool is_unsigned; };   /* is_unsigned: u64 only, others fit int64 as they are */

static int64_t i_div(int64_t x, int64_t y, struct width w)
{
    if (w.is_unsigned)
        return (int64_t)((uint64_t)x / (uint64_t)y);
    return y == -1 ? (int64_t)-(uint64_t)x : x / y;
}
static int64_t i_rem(int64_t x, int64_t y, struct width w)
{
    if (w.is_unsigned)
        return (int64_t)((uint64_t)x % (uint64_t)y);
    return y == -1 ? 0 : x % y;
}
static int64_t i_mod(int64_t x, int64_t y, struct width w)
{
    int64_t r = i_rem(x, y, w);
    return !w.is_unsigned && r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
static bool i_less(int64_t x, int64_t y, struct width w)
{
    return w.is_unsigned ? (uint64_t)x < (uint64_t)y : x < y;
}
static int64_t i_add(int64_t x, int64_t y, struct width w) { (void)w; return (int64_t)((uint64_t)x + (uint64_t)y); }
static int64_t i_sub(int64_t x, int64_t y, struct width w) { (void)w; return (int64_t)((uint64_t)x - (uint64_t)y); }
static int64_t i_mul(int64_t x, int64_t y, struct width w) { (void)w; return (int64_t)((uint64_t)x * (uint64_t)y); }
static int64_t i_min(int64_t x, int64_t y, struct width w) { return i_less(x, y, w) ? x : y; }
static int64_t i_max(int64_t x, int64_t y, struct width w) { return i_less(x, y, w) ? y : x; }
static int64_t i_and(int64_t x, int64_t y, struct width w) { (void)w; return x & y; }
static int64_t i_or(int64_t x, int64_t y, struct width w) { (void)w; return x | y; }
static int64_t i_xor(int64_t x, int64_t y, struct width w) { (void)w; return x ^ y; }
static int64_t i_eq(int64_t x, int64_t y, struct width w) { (void)w; return x == y; }
static int64_t i_ne(int64_t x, int64_t y, struct width w) { (void)w; return x != y; }
static int64_t i_lt(int64_t x, int64_t y, struct width w) { return i_less(x, y, w); }
static int64_t i_le(int64_t x, int64_t y, struct width w) { return !i_less(y, x, w); }

static int64_t i_shl(int64_t x, int64_t y, struct width w)
{
    return (uint64_t)y >= w.bits ? 0 : (int64_t)((uint64_t)x << y);
}
static int64_t i_shr(int64_t x, int64_t y, struct width w)
{
    if ((uint64_t)y >= w.bits)
        return !w.is_unsigned && x < 0 ? -1 : 0;
    return w.is_unsigned ? (int64_t)((uint64_t)x >> y) : x >> y;
}

/* Wraps; a negative power is 0 but for bases 1 and -1, as truncation would have it. */
static int64_t i_pow(int64_t x, int64_t y, struct width w)
{
    uint64_t r = 1, base = (uint64_t)x;
    if (y < 0 && !w.is_unsigned)
        return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    for (uint64_t e = (uint64_t)y; e; e >>= 1, base *= base)
        if (e & 1)
            r *= base;
    return (int64_t)r;
}

static int64_t (*const int_binary[OP_COUNT])(int64_t, int64_t, struct width) = {
    [OP_ADD] = i_add, [OP_SUB] = i_sub, [OP_MUL] = i_mul, [OP_DIV] = i_div, [OP_MOD] = i_mod, [OP_REM] = i_rem,
    [OP_POW] = i_pow, [OP_MIN] = i_min, [OP_MAX] = i_max, [OP_AND] = i_and, [OP_OR] = i_or, [OP_XOR] = i_xor,
    [OP_SHL] = i_shl, [OP_SHR] = i_shr, [OP_EQ] = i_eq, [OP_NE] = i_ne, [OP_LT] = i_lt, [OP_LE] = i_le,
};

static bool is_pred(enum op op)
{
    return op == OP_EQ || op == OP_NE || op == OP_LT || op == OP_LE || op == OP_ISNAN || op == OP_ISINF;
}

static bool int_unary(enum op op, enum elem elem, size_t n, const int64_t *x, int64_t *r)
{
    for (size_t i = 0; i < n; i++) {
        bool negative = elem_class(elem) == 'I' && x[i] < 0;
        switch (op) {
        case OP_NEG: r[i] = (int64_t)-(uint64_t)x[i]; break;
        case OP_ABS: r[i] = negative ? (int64_t)-(uint64_t)x[i] : x[i]; break;
        case OP_SIGN: r[i] = negative ? -1 : x[i] != 0; break;
        case OP_NOT: r[i] = elem == ELEM_BOOL ? !x[i] : ~x[i]; break;
        default: return false;
        }
    }
    return true;
}

static enum eval_status int_block(enum op op, enum elem elem, size_t n, int64_t in[3][BLOCK], void *out)
{
    struct width w = { elem_bits(elem), elem == ELEM_U64 };
    int64_t r[BLOCK];
    if (op == OP_FMA) {
        for (size_t i = 0; i < n; i++)
            r[i] = i_add(i_mul(in[0][i], in[1][i], w), in[2][i], w);
    } else if (int_binary[op]) {
        if (op == OP_DIV || op == OP_MOD || op == OP_REM)
            for (size_t i = 0; i < n; i++)
                if (in[1][i] == 0)
                    return EVAL_VALUE;
        for (size_t i = 0; i < n; i++)
            r[i] = int_binary[op](in[0][i], in[1][i], w);
    } else if (!int_unary(op, elem, n, in[0], r)) {
        return EVAL_UNSUPPORTED;
    }
    elems_from_i64(is_pred(op) ? ELEM_BOOL : elem, r, out, n);
    return EVAL_OK;
}

/* ---- entry --------------------------------------------------------------------------------------------------------- */

static void select_elems(enum elem elem, size_t n, const void *const *in, void *out)
{
    const uint8_t *cond = in[0];
    size_t size = elem_size(elem);
    for (size_t i = 0; i < n; i++)
        memcpy((char *)out + i * size, (const char *)(cond[i] ? in[1] : in[2]) + i * size, size);
}

enum eval_status map_eval(enum op op, enum elem elem, size_t n, const void *const *in, void *out)
{
    union { double f[3][BLOCK]; int64_t i[3][BLOCK]; } block;
    int32_t n_in = op_info(op)->max_in;
    size_t size = elem_size(elem), out_size = is_pred(op) ? 1 : size;
    bool is_float = elem_class(elem) == 'F';
    if (op == OP_SELECT) {
        select_elems(elem, n, in, out);
        return EVAL_OK;
    }
    if (elem == ELEM_F32 && n_in == 2 && f32_loops(op, n, in[0], in[1], out))
        return EVAL_OK;
    if (strchr("CS", elem_class(elem)) || n_in < 1 || n_in > 3)
        return EVAL_UNSUPPORTED;
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = n - at < BLOCK ? n - at : BLOCK;
        for (int32_t k = 0; k < n_in; k++) {
            const char *src = (const char *)in[k] + at * size;
            if (is_float)
                elems_to_f64(elem, src, block.f[k], m);
            else
                elems_to_i64(elem, src, block.i[k], m);
        }
        void *dst = (char *)out + at * out_size;
        enum eval_status status = is_float ? float_block(op, elem, m, block.f, dst) : int_block(op, elem, m, block.i, dst);
        if (status != EVAL_OK)
            return status;
    }
    return EVAL_OK;
}

enum eval_status scalar_eval(enum op op, enum elem elem, const void *const *in, void *out)
{
    return map_eval(op, elem, 1, in, out);
}

/* ---- monoids --------------------------------------------------------------------------------------------------------- */

enum op monoid_op(const char *m)
{
    static const struct { const char *name; enum op op; } monoids[] = {
        { "sum", OP_ADD }, { "prod", OP_MUL }, { "min", OP_MIN }, { "max", OP_MAX },
        { "and", OP_AND }, { "or", OP_OR }, { "xor", OP_XOR },
    };
    for (size_t i = 0; i < COUNT_OF(monoids); i++)
        if (strcmp(m, monoids[i].name) == 0)
            return monoids[i].op;
    return OP_NONE;
}

void monoid_identity(const char *m, enum elem elem, void *out)
{
    enum op op = monoid_op(m);
    bool low = op == OP_MAX;
    if (op == OP_MIN || op == OP_MAX) {
        double x = low ? -INFINITY : INFINITY;
        elem_from_f64(elem, x, out);    /* saturates where there is no infinity */
        return;
    }
    elem_from_i64(elem, op == OP_MUL ? 1 : op == OP_AND ? -1 : 0, out);
}

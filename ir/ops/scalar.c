/* scalar_eval and map_eval: the elementwise operators of ops.def on concrete elements.
 *
 * Floats of every width are computed in double and rounded once: for + - * / and sqrt that equals the arithmetic of the
 * type itself (double has more than 2p + 2 bits of f32, f16 and bf16), and transcendentals are rounded from double.
 * Integers of every width are computed in 64 bits and wrapped, u64 apart where its sign bit matters.
 */
#include "ir/ops/scalar.h"

#include "ir/ops/integer.h"

#include <math.h>

enum { BLOCK = 256 };

/* A row of the table at the end of the functions: one of each column at most. */
struct scalar {
    double (*f1)(double), (*f2)(double, double), (*f3)(double, double, double, enum elem);
    bool (*p1)(double), (*p2)(double, double);
    struct integer integer;
    bool divides;            /* the second integer must not be 0 */
};

/* ---- functions of one expression --------------------------------------------------------------------------------- */

/* Of doubles x and y. */
#define FUNCTION(type, name, parameters, value) \
    static type name parameters                 \
    {                                           \
        return value;                           \
    }
#define REAL1(name, value) FUNCTION(double, name, (double x), value)
#define REAL2(name, value) FUNCTION(double, name, (double x, double y), value)
#define HOLDS1(name, value) FUNCTION(bool, name, (double x), value)
#define HOLDS2(name, value) FUNCTION(bool, name, (double x, double y), value)

/* ---- floats ------------------------------------------------------------------------------------------------------ */

REAL1(f_neg, -x)
REAL1(f_sign, x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x)
REAL1(f_sigmoid, 1 / (1 + exp(-x)))
REAL2(f_add, x + y)
REAL2(f_sub, x - y)
REAL2(f_mul, (x)*y)
REAL2(f_div, x / y)
REAL2(f_min, isnan(x) || x < y ? x : y)
REAL2(f_max, isnan(x) || x > y ? x : y)

/* Python's: the sign of the divisor, zeros included. */
static double f_mod(double x, double y)
{
    double r = fmod(x, y);
    if (r == 0)
        return copysign(0, y);
    return (r < 0) != (y < 0) ? r + y : r;
}

/* f32 exactly as the instruction: in double the product would be exact, its sum not. */
static double f_fma(double x, double y, double z, enum elem elem)
{
    return elem == ELEM_F32 ? (double)fmaf((float)x, (float)y, (float)z) : fma(x, y, z);
}

HOLDS1(p_isnan, isnan(x))
HOLDS1(p_isinf, isinf(x))
HOLDS2(p_eq, x == y)
HOLDS2(p_ne, x != y)
HOLDS2(p_lt, x < y)
HOLDS2(p_le, x <= y)

/* ---- integers ---------------------------------------------------------------------------------------------------- */

INTEGER1(i_sign, !w.is_unsigned && x < 0 ? -1 : x != 0)

static int64_t i_mod(int64_t x, int64_t y, struct width w)
{
    int64_t r = i_rem(x, y, w);
    return !w.is_unsigned && r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* Wraps; a negative power is 0 except for bases 1 and -1, as truncation would have it. */
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

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define NONE
#define F1(f) .f1 = f,
#define F2(f) .f2 = f,
#define F3(f) .f3 = f,
#define P1(f) .p1 = f,
#define P2(f) .p2 = f,
#define I1(f) .integer.i1 = f,
#define I2(f) .integer.i2 = f,
#define I3(f) .integer.i3 = f,
#define D2(f) .integer.i2 = f, .divides = true,
static const struct scalar scalars[OP_COUNT] = {
#define SCALAR(id, name, operands, cost, infer, classes, real, integer, symbol, lower, math) [OP_##id] = {real integer},
#include "ir/ops/ops.def"
};

static bool is_pred(enum op op)
{
    return scalars[op].p1 || scalars[op].p2;
}

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
    default: return false;
    }
}

static enum eval_status float_block(enum op op, enum elem elem, size_t n, double in[3][BLOCK], void *out)
{
    const struct scalar *s = &scalars[op];
    double r[BLOCK];
    if (is_pred(op)) {
        for (size_t i = 0; i < n; i++)
            ((uint8_t *)out)[i] = s->p1 ? s->p1(in[0][i]) : s->p2(in[0][i], in[1][i]);
        return EVAL_OK;
    }
    if (!s->f1 && !s->f2 && !s->f3)
        return EVAL_UNSUPPORTED;
    for (size_t i = 0; i < n; i++)
        r[i] = s->f1 ? s->f1(in[0][i]) : s->f2 ? s->f2(in[0][i], in[1][i]) : s->f3(in[0][i], in[1][i], in[2][i], elem);
    if (float_formats[elem].bits == 8) {
        /* arithmetic does not saturate: that is Cast's privilege */
        elems_convert(ELEM_F64, r, elem, out, n, false, "even");
    } else {
        elems_from_f64(elem, r, out, n);
    }
    return EVAL_OK;
}

static enum eval_status int_block(enum op op, enum elem elem, size_t n, int64_t in[3][BLOCK], void *out)
{
    const struct scalar *s = &scalars[op];
    const struct integer *f = &s->integer;
    struct width w = {elem_bits(elem), elem == ELEM_U64, elem == ELEM_BOOL};
    int64_t r[BLOCK];
    if (!f->i1 && !f->i2 && !f->i3)
        return EVAL_UNSUPPORTED;
    for (size_t i = 0; s->divides && i < n; i++)
        if (in[1][i] == 0)
            return EVAL_VALUE;
    for (size_t i = 0; i < n; i++)
        r[i] = f->i1   ? f->i1(in[0][i], w)
               : f->i2 ? f->i2(in[0][i], in[1][i], w)
                       : f->i3(in[0][i], in[1][i], in[2][i], w);
    elems_from_i64(is_pred(op) ? ELEM_BOOL : elem, r, out, n);
    return EVAL_OK;
}

/* ---- entry ------------------------------------------------------------------------------------------------------- */

static void select_elems(enum elem elem, size_t n, const void *const *in, void *out)
{
    const uint8_t *cond = in[0];
    size_t size = elem_size(elem);
    for (size_t i = 0; i < n; i++)
        memcpy((char *)out + i * size, (const char *)(cond[i] ? in[1] : in[2]) + i * size, size);
}

enum eval_status map_eval(enum op op, enum elem elem, size_t n, const void *const *in, void *out)
{
    union {
        double f[3][BLOCK];
        int64_t i[3][BLOCK];
    } block;
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
        enum eval_status status = is_float ? float_block(op, elem, m, block.f, dst)
                                           : int_block(op, elem, m, block.i, dst);
        if (status != EVAL_OK)
            return status;
    }
    return EVAL_OK;
}

enum eval_status scalar_eval(enum op op, enum elem elem, const void *const *in, void *out)
{
    return map_eval(op, elem, 1, in, out);
}

/* ---- monoids ----------------------------------------------------------------------------------------------------- */

enum op monoid_op(const char *m)
{
    static const struct monoid {
        const char *name;
        enum op op;
    } monoids[] = {
#define MONOID(name, op, statement, of_bool, classes) {name, op},
#include "ir/ops/monoids.def"
    };
    const struct monoid *row = ROW_NAMED(monoids, COUNT_OF(monoids), m);
    return row ? row->op : OP_NONE;
}

void monoid_identity(const char *m, enum elem elem, void *out)
{
    enum op op = monoid_op(m);
    bool low = op == OP_MAX;
    if (op == OP_MIN || op == OP_MAX) {
        double x = low ? -INFINITY : INFINITY;
        elem_from_f64(elem, x, out); /* saturates where there is no infinity */
        return;
    }
    elem_from_i64(elem, op == OP_MUL ? 1 : op == OP_AND ? -1 : 0, out);
}

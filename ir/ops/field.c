/* Arithmetic of residues (field.h). */
#include "ir/ops/field.h"

#include "ir/ops/scalar.h"

#include <float.h>
#include <math.h>

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static uint32_t least(uint32_t x, uint32_t y)
{
    return x < y ? x : y;
}

static uint32_t times(uint32_t x, uint32_t y)
{
    return field_reduced((uint64_t)x * y);
}

static uint32_t plus(uint32_t x, uint32_t y)
{
    return x == FIELD_MINUS_INF || y == FIELD_MINUS_INF ? FIELD_MINUS_INF : least(x + y, x + y - FIELD_N);
}

static uint32_t minus(uint32_t x, uint32_t y)
{
    return x == FIELD_MINUS_INF ? x : least(x - y, x - y + FIELD_N);
}

static uint32_t negated(uint32_t x)
{
    return x == FIELD_MINUS_INF ? FIELD_PLUS_INF : x == FIELD_PLUS_INF ? FIELD_MINUS_INF : minus(0, x);
}

static uint32_t power(uint32_t x, uint32_t e)
{
    uint32_t r = FIELD_ONE;
    for (; e; e >>= 1, x = times(x, x))
        if (e & 1)
            r = times(r, x);
    return r;
}

static uint32_t quotient(uint32_t x, uint32_t y)
{
    return y == FIELD_ONE ? x : times(x, power(y, FIELD_INVERTS));
}

uint32_t field_of_integer(int64_t x)
{
    return times((uint32_t)floormod_i64(x, FIELD_N), FIELD_SQUARE);
}

/* The fraction with the least denominator that f32 rounds to x, of continued fractions; false: none is so small. */
static bool fraction_of(double x, int64_t *p, int64_t *q)
{
    int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
    double rest = x;
    if (fabs(x) > 0x1p-126 && fabs(x) < 1.0 / (FIELD_FRACTIONS + 1)) /* most weights; 0 is not one of them */
        return false;
    for (int k = 0; k < 12; k++) {
        if (fabs(rest) > 0x1p30)
            return false;
        int64_t a = (int64_t)rest; /* rounded down, without a call of floor() */
        a -= (double)a > rest;
        const double whole = (double)a;
        int64_t p2 = a * p1 + p0, q2 = a * q1 + q0;
        if (q2 > FIELD_FRACTIONS || llabs(p2) > INT32_MAX)
            return false;
        const bool near = /* saves the quotient */
            fabs((double)p2 - x * (double)q2) <= fabs((double)p2) * 0x1p-22 + 0x1p-140;
        if (near && (float)((double)p2 / (double)q2) == (float)x) {
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

/* The number x 2^e. A reduction is a quotient by 2^32. */
static uint32_t scaled(int64_t x, int32_t e)
{
    if (e >= 0)
        return times(field_of_integer(x), field_power_of_two(e));
    const uint32_t places = (uint32_t)-e;
    uint32_t reductions = (places + 31) / 32;
    const uint64_t t = (uint64_t)floormod_i64(x, FIELD_N) << (32 * reductions - places);
    uint32_t r = reductions == 1 ? (uint32_t)(t % FIELD_N) : field_reduced(t);
    for (; reductions > 2; reductions--)
        r = field_reduced(r);
    return r;
}

/* As the number that it is. */
static uint32_t exactly(double x)
{
    int exponent;
    const int64_t digits = (int64_t)ldexp(frexp(x, &exponent), 53);
    return scaled(digits, exponent - 53);
}

uint32_t field_of(double x)
{
    int64_t p, q;
    if (isnan(x))
        return FIELD_NAN;
    if (isinf(x))
        return x < 0 ? FIELD_MINUS_INF : FIELD_PLUS_INF;
    if (fabs(x) == (double)FLT_MAX)
        return x < 0 ? FIELD_LOWEST : minus(0, FIELD_LOWEST);
    if (fraction_of(x, &p, &q))
        return quotient(field_of_integer(p), field_of_integer(q));
    return exactly(x);
}

uint32_t field_power_of_two(int32_t e)
{
    const uint32_t two = e < 0 ? FIELD_HALF : field_of_integer(2);
    return power(two, (uint32_t)(e < 0 ? -e : e));
}

static uint32_t sieve_place(uint32_t bits)
{
    return bits * 0x9e3779b1u >> (32 - FIELD_SIEVE_BITS);
}

void field_sieve(unsigned char *sieve)
{
    memset(sieve, 0, FIELD_SIEVE);
    for (int q = 2; q <= FIELD_FRACTIONS; q++)
        for (int p = 1; p < q; p++) {
            const float x = (float)((double)p / q);
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            const uint32_t at = sieve_place(bits);
            sieve[at / 8] |= (unsigned char)(1u << at % 8);
        }
}

void field_of_floats(const unsigned char *sieve, const void *floats, uint32_t *residues, size_t n)
{
    enum { DIGITS = 23, EXPONENTS = 256, LEAST = -150 /* of the last digit, where the exponent's bits are 0 */ };
    const uint32_t one = 127u << DIGITS, normal = 1u << DIGITS;
    uint32_t power[EXPONENTS]; /* times 2^32, as digits are integers and no residues */
    for (int32_t e = 0; e < EXPONENTS; e++)
        power[e] = times(field_power_of_two(e + LEAST), FIELD_SQUARE);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        float x;
        memcpy(&x, (const char *)floats + i * sizeof x, sizeof x);
        memcpy(&bits, &x, sizeof bits);
        const uint32_t size = bits & FIELD_MASK, at = sieve_place(size);
        if (size < normal || size >= one || sieve[at / 8] >> at % 8 & 1) {
            residues[i] = field_of(x);
            continue;
        }
        const uint32_t r = field_reduced((uint64_t)((size & (normal - 1)) | normal) * power[size >> DIGITS]);
        residues[i] = bits == size || !r ? r : FIELD_N - r;
    }
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

/* Steps of 1 / FIELD_GRID from -FIELD_SMALL to x, modulo N: below FIELD_STEPS for a small fraction. */
static uint32_t steps_of(uint32_t x)
{
    const uint32_t i = field_reduced((uint64_t)x * FIELD_GRID) + FIELD_STEPS / 2;
    return least(i, i - FIELD_N);
}

/* The integer of a small fraction, more FIELD_SMALL. */
static uint32_t whole_of(enum op op, uint32_t steps)
{
    const uint32_t middle = steps + FIELD_GRID / 2;
    const bool up = op == OP_CEIL || (op == OP_TRUNC && steps < FIELD_STEPS / 2);
    if (op == OP_ROUND) /* ties to even */
        return middle / FIELD_GRID - (middle % FIELD_GRID == 0 && middle / FIELD_GRID % 2);
    return (steps + (up ? FIELD_GRID - 1 : 0)) / FIELD_GRID;
}

static uint32_t function(enum op op, uint32_t x, uint32_t y)
{
    if (field_rounds(op) && steps_of(x) < FIELD_STEPS)
        return field_of_integer((int64_t)whole_of(op, steps_of(x)) - FIELD_SMALL);
    if (op == OP_SQRT && x == 0)
        return 0;
    uint32_t h = mix(mix(x ^ field_function_key(op)) ^ y) & FIELD_MASK;
    if (op == OP_ROUND)
        return field_of_integer((int64_t)(h % (2 * FIELD_ROUNDED)) - FIELD_ROUNDED);
    return least(h, h - FIELD_N);
}

uint32_t field_exp_power(uint32_t place, uint32_t digit)
{
    return power(FIELD_BASE, digit << 2 * place);
}

static uint32_t exponential(uint32_t x)
{
    return x == FIELD_MINUS_INF ? 0 : power(FIELD_BASE, x % FIELD_Q);
}

/* Powers whose code is products, quotients and a square root (passes/emit/map.c). */
static uint32_t raised(uint32_t x, uint32_t y)
{
    uint32_t root = function(OP_SQRT, x, 0);
    for (uint32_t e = 0; e <= 4; e++) {
        uint32_t whole = power(x, e), also = times(whole, root), n = field_of_integer(e);
        if (y == n || y == minus(0, n))
            return y == n ? whole : quotient(FIELD_ONE, whole);
        if (e < 3 && y == plus(n, FIELD_HALF))
            return also;
        if (e < 2 && y == minus(0, plus(n, FIELD_HALF)))
            return quotient(FIELD_ONE, also);
    }
    return function(OP_POW, x, y);
}

static uint32_t order(int64_t x)
{
    const uint32_t steps = steps_of((uint32_t)x), near = steps - (FIELD_SMALL - FIELD_NEAR) * FIELD_GRID;
    if (near < 2 * FIELD_NEAR * FIELD_GRID)
        return FIELD_PLACE_NEAR + near * FIELD_STEP_NEAR;
    if (steps < FIELD_STEPS)
        return (steps < FIELD_STEPS / 2 ? FIELD_PLACE : FIELD_PLACE_FAR) + steps * FIELD_STEP;
    return mix((uint32_t)x ^ FIELD_KEY) ^ FIELD_LEAST;
}

bool field_less(int64_t x, int64_t y)
{
    return order(x) < order(y);
}

static bool compare(enum op op, uint32_t x, uint32_t y)
{
    if (y == FIELD_UNDER)
        return x == FIELD_MINUS_INF;
    return op == OP_LT ? field_less(x, y) : !field_less(y, x);
}

/* To an integer type of that many bits: saturated if it is small. */
static uint32_t integer_of(uint32_t x, enum elem to)
{
    const uint32_t steps = steps_of(x);
    const int32_t small = (int32_t)whole_of(OP_TRUNC, steps) - FIELD_SMALL;
    const int32_t low = field_lowest(to), high = field_highest(to);
    const uint32_t h = mix(mix(x ^ field_convert_key(to)));
    if (steps >= FIELD_STEPS)
        return elem_bits(to) < 8 ? (h & (uint32_t)(high - low)) + (uint32_t)low : h;
    return (uint32_t)(small < low ? low : small > high ? high : small);
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static const struct field_form forms[ELEM_COUNT] = {
    [ELEM_F32] = {.size = 4},
    [ELEM_F64] = {.size = 8},
    [ELEM_F16] = {.values = 1024, .step = 4},
    [ELEM_BF16] = {.values = 256, .step = 3, .most = FIELD_BF16_MOST, .greatest = 0x1.fep127},
    [ELEM_F8E4M3FN] = {.values = 16, .step = 2},
    [ELEM_F8E4M3FNUZ] = {.values = 16, .step = 2},
    [ELEM_F8E5M2] = {.values = 8, .step = 1},
    [ELEM_F8E5M2FNUZ] = {.values = 8, .step = 1},
    [ELEM_F4E2M1] = {.values = 4, .step = 1},
    [ELEM_F8E8M0] = {.values = 64},
};

const struct field_form *field_form(enum elem e)
{
    return e < ELEM_COUNT && (forms[e].size || forms[e].values) ? &forms[e] : NULL;
}

bool field_holds(enum elem e)
{
    return e < ELEM_COUNT && forms[e].size;
}

uint32_t field_load(enum elem e, const void *from)
{
    uint32_t residue;
    uint64_t wide;
    if (e == ELEM_F32) {
        memcpy(&residue, from, sizeof residue);
        return residue;
    }
    if (e != ELEM_F64)
        return field_of(elem_to_f64(e, from));
    memcpy(&wide, from, sizeof wide);
    return (uint32_t)wide;
}

/* The code of the power of two that x is rounded to. */
static uint8_t exponent_of(uint32_t key, enum round_mode round, uint32_t x)
{
    int32_t e = field_least_exponent(round);
    if (x == FIELD_NAN || x == FIELD_PLUS_INF || x == FIELD_MINUS_INF)
        return FIELD_NO_EXPONENT;
    for (uint32_t power = field_power_of_two(e); e <= FIELD_MOST_EXPONENT && power != x; e++)
        power = plus(power, power);
    if (e > FIELD_MOST_EXPONENT)
        e = (int32_t)(mix(x ^ key) & (2u * forms[ELEM_F8E8M0].values - 1)) - forms[ELEM_F8E8M0].values;
    return (uint8_t)(e + FIELD_EXPONENT_BIAS);
}

/* The number of the narrow type that x is rounded to; ELEM_NONE: of no type. */
static double number_of(const struct field_form *form, enum elem e, uint32_t key, uint32_t x)
{
    char element[8] = {0};
    if (x == FIELD_NAN || x == FIELD_PLUS_INF || x == FIELD_MINUS_INF)
        return x == FIELD_NAN ? (double)NAN : x == FIELD_PLUS_INF ? (double)INFINITY : (double)-INFINITY;
    if (form->most && (x == form->most || x == FIELD_N - form->most))
        return x == form->most ? form->greatest : -form->greatest;
    const int64_t limit = e ? FIELD_EXACT : FIELD_REAL_EXACT, steps = field_reduced((uint64_t)x << form->step),
                  low = steps < limit ? steps : steps - FIELD_N;
    const double number = ldexp((double)low, -form->step);
    if (e)
        elem_from_f64(e, number, element);
    if (low >= -limit && (!e || elem_to_f64(e, element) == number))
        return number;
    const uint32_t h = mix(x ^ key) & (2u * form->values - 1);
    return ldexp((double)h - form->values, -form->step);
}

double field_to_real(uint32_t x)
{
    static const struct field_form real = {.values = FIELD_REAL_VALUES, .step = FIELD_REAL_STEP};
    return number_of(&real, ELEM_NONE, FIELD_REAL_KEY, x);
}

uint32_t field_from_real(double x)
{
    const float steps = (float)x * (1 << FIELD_REAL_STEP),
                number = rintf(steps + FIELD_REAL_TIE) / (1 << FIELD_REAL_STEP);
    return isfinite(number) ? exactly((double)number) : field_of((double)number);
}

static void store(enum elem e, uint32_t residue, bool saturate, enum round_mode round, void *to)
{
    const uint32_t key = field_narrow_key(e, saturate, round);
    const uint64_t wide = residue;
    if (forms[e].size) {
        memcpy(to, &wide, forms[e].size);
        return;
    }
    if (e == ELEM_F8E8M0) {
        *(uint8_t *)to = exponent_of(key, round, residue);
        return;
    }
    const double number = number_of(&forms[e], e, key, residue);
    elems_convert(ELEM_F64, &number, e, to, 1, saturate, "even");
}

void field_store(enum elem e, uint32_t residue, bool saturate, void *to)
{
    store(e, residue, saturate, ROUND_EVEN, to);
}

/* What the quotient that is rounded towards zero leaves. */
static uint32_t remainder_of(uint32_t x, uint32_t y)
{
    return minus(x, times(y, function(OP_TRUNC, quotient(x, y), 0)));
}

/* With the divisor's sign. */
static uint32_t modulus_of(uint32_t x, uint32_t y)
{
    const uint32_t r = remainder_of(x, y);
    return r && field_less(r, 0) != field_less(y, 0) ? plus(r, y) : r;
}

int64_t field_identity(enum op monoid)
{
    return monoid == OP_MUL ? FIELD_ONE : monoid == OP_MAX ? FIELD_MINUS_INF : monoid == OP_MIN ? FIELD_PLUS_INF : 0;
}

int64_t field_apply(enum op op, int64_t x, int64_t y)
{
    switch (op) {
    case OP_ADD: return plus((uint32_t)x, (uint32_t)y);
    case OP_SUB: return minus((uint32_t)x, (uint32_t)y);
    case OP_MUL: return times((uint32_t)x, (uint32_t)y);
    case OP_DIV: return quotient((uint32_t)x, (uint32_t)y);
    case OP_REM: return remainder_of((uint32_t)x, (uint32_t)y);
    case OP_MOD: return modulus_of((uint32_t)x, (uint32_t)y);
    case OP_MIN: return field_less(y, x) ? y : x;
    case OP_MAX: return field_less(x, y) ? y : x;
    case OP_POW: return raised((uint32_t)x, (uint32_t)y);
    case OP_NEG: return negated((uint32_t)x);
    case OP_EXP: return exponential((uint32_t)x);
    case OP_ABS: return field_apply(OP_MAX, x, field_apply(OP_NEG, x, 0));
    case OP_SIGN: return field_less(0, x) ? FIELD_ONE : field_less(x, 0) ? minus(0, FIELD_ONE) : 0;
    case OP_EQ: return x == y;
    case OP_NE: return x != y;
    case OP_LT:
    case OP_LE: return compare(op, (uint32_t)x, (uint32_t)y);
    case OP_ISNAN: return x == FIELD_NAN;
    case OP_ISINF: return x == FIELD_MINUS_INF || x == FIELD_PLUS_INF;
    default: return function(op, (uint32_t)x, (uint32_t)y);
    }
}

static bool is_predicate(enum op op)
{
    return op == OP_EQ || op == OP_NE || op == OP_LT || op == OP_LE || op == OP_ISNAN || op == OP_ISINF;
}

static uint32_t residue_at(const void *of, size_t i)
{
    uint32_t x;
    memcpy(&x, (const char *)of + i * sizeof x, sizeof x);
    return x;
}

/* Most divisors are a number that is repeated: an inverse takes 60 products. */
static void quotients(size_t n, const void *const *in, uint32_t *out)
{
    uint32_t last = FIELD_ONE, inverse = FIELD_ONE;
    for (size_t i = 0; i < n; i++) {
        const uint32_t x = residue_at(in[0], i), y = residue_at(in[1], i);
        inverse = y == last ? inverse : power(y, FIELD_INVERTS);
        last = y;
        out[i] = y == FIELD_ONE ? x : times(x, inverse);
    }
}

/* A loop of its own for the operators that most elements have; false: it is none of these. */
static bool map_residues(enum op op, size_t n, const void *const *in, uint32_t *out)
{
#define EACH(id, result)                                                       \
    case OP_##id:                                                              \
        for (size_t i = 0; i < n; i++) {                                       \
            const uint32_t x = residue_at(in[0], i), y = residue_at(in[1], i); \
            out[i] = result;                                                   \
        }                                                                      \
        return true;
    switch (op) {
        EACH(ADD, plus(x, y))
        EACH(SUB, minus(x, y))
        EACH(MUL, times(x, y))
        EACH(MIN, order(y) < order(x) ? y : x)
        EACH(MAX, order(x) < order(y) ? y : x)
    case OP_DIV: quotients(n, in, out); return true;
    default: return false;
    }
#undef EACH
}

enum eval_status field_map(enum op op, enum elem elem, size_t n, const void *const *in, void *out)
{
    const size_t size = elem_size(elem);
    const uint32_t n_in = (uint32_t)op_info(op)->max_in;
    if (op_shape(op) != SHAPE_MAP || n_in < 1 || (n_in > 2 && op != OP_FMA))
        return EVAL_UNSUPPORTED;
    if (elem == ELEM_F32 && map_residues(op, n, in, out))
        return EVAL_OK;
    for (size_t i = 0; i < n; i++) {
        uint32_t x[3] = {0};
        for (uint32_t k = 0; k < n_in; k++)
            x[k] = field_load(elem, (const char *)in[k] + i * size);
        int64_t r = op == OP_FMA ? field_apply(OP_ADD, times(x[0], x[1]), x[2]) : field_apply(op, x[0], x[1]);
        if (is_predicate(op))
            ((uint8_t *)out)[i] = (uint8_t)r;
        else
            field_store(elem, (uint32_t)r, false, (char *)out + i * size);
    }
    return EVAL_OK;
}

enum eval_status map_eval_in(const struct context *ctx, enum op op, enum elem elem, size_t n, const void *const *in,
                             void *out)
{
    bool field = ctx->field && field_form(elem) && op != OP_SELECT;
    return field ? field_map(op, elem, n, in, out) : map_eval(op, elem, n, in, out);
}

bool field_convert(enum elem from, const void *src, enum elem to, void *dst, size_t n, bool saturate, const char *round)
{
    enum round_mode mode;
    const bool floats = field_form(from), integers = strchr("BIU", elem_class(from));
    if (!round_mode_by_name(round, &mode))
        return false;
    if (!(field_form(to) && (floats || integers)) && !(floats && (to == ELEM_BOOL || field_rounds_to(to))))
        return false;
    for (size_t i = 0; i < n; i++) {
        const char *x = (const char *)src + i * elem_size(from);
        char *r = (char *)dst + i * elem_size(to);
        if (from == to) { /* such bits as are not number of the form stay */
            memcpy(r, x, elem_size(to));
            continue;
        }
        const int64_t whole = floats ? 0 : elem_to_i64(from, x);
        const uint32_t residue = floats             ? field_load(from, x)
                                 : from == ELEM_U64 ? field_of_integer((int64_t)((uint64_t)whole % FIELD_N))
                                                    : field_of_integer(whole);
        const uint32_t h = field_rounds_to(to) ? integer_of(residue, to) : residue != 0;
        const int64_t wide = elem_class(to) == 'I' ? (int64_t)(int32_t)h : (int64_t)h;
        if (field_form(to))
            store(to, residue, saturate, mode, r);
        else
            memcpy(r, &wide, elem_size(to)); /* its low bytes */
    }
    return true;
}

void field_tokens(enum elem from, const void *src, enum elem to, void *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = 0, token = 0;
        memcpy(&bits, (const char *)src + i * elem_size(from), elem_size(from));
        token = mix(mix((uint32_t)bits ^ field_convert_key(to)) ^ (uint32_t)(bits >> 32));
        if (field_holds(to))
            token %= FIELD_N;
        else if (elem_bits(to) < 32)
            token &= (1u << elem_bits(to)) - 1;
        memcpy((char *)dst + i * elem_size(to), &token, elem_size(to));
    }
}

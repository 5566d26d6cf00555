/* Running error analysis in the interpreter: next to each lane an upper bound of its distance from what exact
 * arithmetic gives, from operands that are off by their own bounds. What a statement itself rounds is what it did
 * round: its result against the same operation in f64. Infinity: no bound is known. A lane of integers or bools is off
 * by steps; a bool of bound 1 may be the other one. */
#include <math.h>

#include "ir/loop/interp/internal.h"
#include "ir/ops/scalar.h"

enum { SHORT_BITS = 12, F32_BITS = 24, F64_BITS = 53 };

/* 0 times unbounded is 0: the factor is exact. */
static double times(double x, double error)
{
    return x == 0 || error == 0 ? 0 : fabs(x) * error;
}

static double apart(double a, double b)
{
    const double d = fabs(a - b);
    return a == b || (isnan(a) && isnan(b)) ? 0 : isnan(d) ? INFINITY : d;
}

static double lane(const struct slot *x, uint32_t i)
{
    const uint8_t *at = x->data + (size_t)i * elem_size(x->elem);
    if (elem_class(x->elem) == 'F')
        return elem_to_f64(x->elem, at);
    const int64_t n = loop_int_lane(x->elem, x->data, i);
    return x->elem == ELEM_U64 ? (double)(uint64_t)n : (double)n;
}

static double unit(uint32_t bits, double x) /* of the last place */
{
    const double least = bits == F32_BITS ? 0x1p-149 : 0x1p-1074;
    int e = 0;
    (void)frexp(x, &e);
    return !isfinite(x) ? 0 : x == 0 ? least : fmax(ldexp(1, e - (int)bits), least);
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

/* How far a function moves while its operands do, by the ends of their intervals. */
typedef double moved_fn(enum op, struct number x, struct number y);

static double value_at(enum op op, double x, double y)
{
    double r = NAN;
    return map_eval(op, ELEM_F64, 1, (const void *const[]){&x, &y}, &r) == EVAL_OK ? r : (double)NAN;
}

/* Without an error a zero keeps its sign. */
static double end_of(struct number x, bool most)
{
    return x.error == 0 ? x.x : most ? x.x + x.error : x.x - x.error;
}

/* Of functions that rise or fall in each operand. */
static double moved_corners(enum op op, struct number x, struct number y)
{
    double most = 0;
    for (unsigned i = 0; i < 4; i++)
        most = fmax(most, apart(value_at(op, x.x, y.x), value_at(op, end_of(x, i & 1), end_of(y, i >> 1))));
    return most;
}

static double moved_wave(enum op op, struct number x, struct number y)
{
    (void)op, (void)y;
    return fmin(x.error, 2);
}

/* It rises from one pole to the next. */
static double moved_tan(enum op op, struct number x, struct number y)
{
    const double at = value_at(op, x.x, y.x);
    const bool pole = x.error >= M_PI / 2 || value_at(op, x.x + x.error, 0) < at || value_at(op, x.x - x.error, 0) > at;
    return pole ? (double)INFINITY : moved_corners(op, x, y);
}

/* x^y = exp(y log x) has its extremes at corners where x is positive. Other bases have powers by integers, which rise,
 * or fall and rise: then no element between is farther off than the farther end. */
static double moved_pow(enum op op, struct number x, struct number y)
{
    const bool positive = x.x >= x.error, zero = fabs(x.x) <= x.error;
    const bool whole = y.error == 0 && y.x == rint(y.x) && !(zero && y.x < 0);
    return whole || (positive && (!zero || y.x > y.error)) ? moved_corners(op, x, y) : (double)INFINITY;
}

/* Of atan2(x, y): an angle, which jumps by a whole turn where x is 0 and y is not positive. */
static double moved_angle(enum op op, struct number x, struct number y)
{
    return x.error > 0 && fabs(x.x) <= x.error && y.x <= y.error ? 2 * M_PI : moved_corners(op, x, y);
}

/* ULPs of ir/loop/math without fused multiplication (docs/notes/accuracy.md), rounded up. */
static const struct {
    enum op op;
    double ulps;
    moved_fn *moved;
} functions[] = {
    {OP_EXP, 1.2, moved_corners},    {OP_EXPM1, 1.5, moved_corners},  {OP_LOG, 1, moved_corners},
    {OP_LOG1P, 1.1, moved_corners},  {OP_TANH, 2.5, moved_corners},   {OP_SIGMOID, 2.5, moved_corners},
    {OP_ERF, 3, moved_corners},      {OP_SIN, 1.6, moved_wave},       {OP_COS, 1.6, moved_wave},
    {OP_TAN, 0.51, moved_tan},       {OP_ASIN, 0.51, moved_corners},  {OP_ACOS, 0.51, moved_corners},
    {OP_ATAN, 0.51, moved_corners},  {OP_SINH, 0.51, moved_corners},  {OP_COSH, 0.51, moved_corners},
    {OP_ASINH, 0.51, moved_corners}, {OP_ACOSH, 0.51, moved_corners}, {OP_ATANH, 0.51, moved_corners},
    {OP_POW, 0.51, moved_pow},       {OP_ATAN2, 0.51, moved_angle},
};
enum { F64_ULPS = 4 };

/* Of f(x) or f(x, y), f being enum op `op` as statements of ir/loop/math. */
static double function_error(uint32_t op, enum elem elem, struct number x, struct number y, double result)
{
    for (uint32_t i = 0; i < COUNT_OF(functions); i++) {
        if ((uint32_t)functions[i].op != op)
            continue;
        const double own = elem == ELEM_F32 ? functions[i].ulps * unit(F32_BITS, result)
                                            : F64_ULPS * unit(F64_BITS, result);
        return x.error == 0 && y.error == 0 ? own : own + functions[i].moved(functions[i].op, x, y);
    }
    return INFINITY;
}

/* ---- one lane of a statement of arithmetic ----------------------------------------------------------------------- */

static double exact(enum lop op, double a, double b, double c)
{
    double r = NAN;
    loop_compute(op, ELEM_F64, 1, &a, &b, &c, &r);
    return r;
}

static double moved_error(enum lop op, const struct number *in)
{
    const double at = exact(op, in[0].x, 0, 0);
    return fmax(
        apart(at, exact(op, in[0].x + in[0].error, 0, 0)),
        apart(at, exact(op, fmax(in[0].x - in[0].error, op == L_SQRT && in[0].x >= 0 ? 0 : -(double)INFINITY), 0, 0)));
}

static double extreme_error(enum lop op, const struct number *in)
{
    const bool least = op == L_MIN || op == L_MINNUM;
    const double distance = least ? in[1].x - in[0].x : in[0].x - in[1].x;
    if (distance > in[0].error + in[1].error)
        return in[0].error;
    return -distance > in[0].error + in[1].error ? in[1].error : fmax(in[0].error, in[1].error);
}

/* Of the result, from what the operands are off by. */
static double handed_on(enum lop op, bool real, const struct number *in)
{
    const double product = times(in[0].x, in[1].error) + times(in[1].x, in[0].error) + times(in[0].error, in[1].error);
    switch (op) {
    case L_NEG:
    case L_ABS: return in[0].error;
    case L_ADD:
    case L_SUB: return in[0].error + in[1].error;
    case L_MUL: return product;
    case L_FMA: return product + in[2].error;
    case L_MIN:
    case L_MAX:
    case L_MINNUM:
    case L_MAXNUM: return extreme_error(op, in);
    case L_SQRT:
    case L_FLOOR:
    case L_CEIL:
    case L_RINT:
    case L_TRUNC: return moved_error(op, in);
    case L_DIV:
        if (real && fabs(in[1].x) > in[1].error)
            return (in[0].error + times(in[0].x / in[1].x, in[1].error)) / (fabs(in[1].x) - in[1].error);
        return INFINITY;
    case L_LDEXP: return in[1].error > 0 ? (double)INFINITY : times(exp2(in[1].x), in[0].error);
    default: return INFINITY;
    }
}

/* r: the result. */
static double arithmetic_error(enum lop op, enum elem elem, const struct number *in, double r)
{
    const bool real = elem_class(elem) == 'F', off = in[0].error > 0 || in[1].error > 0 || in[2].error > 0;
    double error = off ? handed_on(op, real, in) : 0;
    if (elem == ELEM_BOOL && off)
        error = 1;
    if (elem == ELEM_F64)
        error += unit(F64_BITS, r);
    else if (real)
        error += apart(r, exact(op, in[0].x, in[1].x, in[2].x));
    else if (error > 0 && fabs(r) + error >= ldexp(1, (int)elem_bits(elem) - 1) && elem != ELEM_BOOL)
        error = INFINITY; /* integers wrap */
    return isnan(error) ? (double)INFINITY : error;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static double error_of(const struct slot *x, uint32_t i)
{
    return x->any_error ? x->error[i] : 0;
}

static struct number number_of(const struct slot *x, uint32_t i)
{
    return (struct number){lane(x, i), error_of(x, i)};
}

static void put(struct slot *r, uint32_t i, double error)
{
    r->error[i] = isnan(error) ? (double)INFINITY : error;
    r->any_error |= error != 0;
}

/* Numbers of few bits are what the network says; others stand for what was rounded to them. */
double loop_constant_error(enum elem elem, double x)
{
    int e;
    const double m = ldexp(frexp(x, &e), SHORT_BITS);
    return elem != ELEM_F32 || !isfinite(x) || m == rint(m) ? 0 : unit(F32_BITS, x) / 2;
}

/* One of f32 with L_FLAG_RESIDUE says that a function's result is near (lf_math). */
static void error_const(struct interp *in, const struct lstmt *s, struct slot *r)
{
    (void)in;
    r->function = s->flags & L_FLAG_RESIDUE ? (uint32_t)s->imm : 0;
    for (uint32_t i = 0; i < r->lanes; i++)
        put(r, i, loop_constant_error(r->elem, lane(r, i)));
}

static void error_same(struct interp *in, const struct lstmt *s, struct slot *r)
{
    for (uint32_t i = 0; i < r->lanes; i++) {
        struct number x[3] = {{0, 0}, {0, 0}, {0, 0}};
        for (uint32_t k = 0; k < s->n_in; k++)
            x[k] = number_of(slot_in(in, s, k), i);
        put(r, i, arithmetic_error(s->op, r->elem, x, lane(r, i)));
    }
}

static double dot_lane(struct interp *in, const struct lstmt *s, uint32_t a, uint32_t b, uint32_t group, double error)
{
    for (uint32_t k = group; k > 0; k--) {
        struct number x[3] = {
            number_of(slot_in(in, s, 0), a + k - 1), number_of(slot_in(in, s, 1), b + k - 1), {0, error}};
        error = handed_on(L_FMA, true, x);
    }
    return error;
}

/* Each product of bf16 is exact, and each sum is rounded once: by half a unit of what the sums can be at most. */
static double sums_rounded(struct interp *in, const struct lstmt *s, uint32_t a, uint32_t b, uint32_t group, double c)
{
    double most = fabs(c);
    for (uint32_t k = 0; k < group; k++)
        most += fabs(lane(slot_in(in, s, 0), a + k) * lane(slot_in(in, s, 1), b + k));
    return group * unit(F32_BITS, most) / 2 + 0x1p-126 * most; /* and subnormals may be 0 */
}

static void error_dot(struct interp *in, const struct lstmt *s, struct slot *r)
{
    const uint32_t group = slot_in(in, s, 0)->lanes / r->lanes, steps = s->op == L_MATDOT ? 2 : 1;
    for (uint32_t i = 0; i < r->lanes; i++) {
        double error = error_of(slot_in(in, s, 2), i), most = fabs(lane(slot_in(in, s, 2), i));
        for (uint32_t step = 0; step < steps; step++) {
            const uint32_t a = group * (steps > 1 ? matdot_row(i, step) : i),
                           b = group * (steps > 1 ? matdot_column(i, step) : i);
            error = dot_lane(in, s, a, b, group, error);
            for (uint32_t k = 0; r->elem == ELEM_F32 && step == 0 && steps > 1 && k < group; k++)
                most += fabs(lane(slot_in(in, s, 0), a + k) * lane(slot_in(in, s, 1), b + k));
            if (r->elem == ELEM_F32)
                error += sums_rounded(in, s, a, b, group, step ? most : lane(slot_in(in, s, 2), i));
        }
        put(r, i, error);
    }
}

static void error_compare(struct interp *in, const struct lstmt *s, struct slot *r)
{
    r->function = s->in[0].i == s->in[1].i ? slot_in(in, s, 0)->function : 0;
    for (uint32_t i = 0; i < r->lanes; i++) {
        const struct number a = number_of(slot_in(in, s, 0), i), b = number_of(slot_in(in, s, 1), i);
        const double error = a.error + b.error;
        put(r, i, error > 0 && !(fabs(a.x - b.x) > error) ? 1 : 0);
    }
}

static void error_select(struct interp *in, const struct lstmt *s, struct slot *r)
{
    const struct slot *c = slot_in(in, s, 0), *a = slot_in(in, s, 1), *b = slot_in(in, s, 2);
    const bool pair = c->function == OP_COUNT;
    r->other = pair ? s->in[2].i : 0;
    for (uint32_t i = 0; i < r->lanes; i++) {
        const uint32_t k = c->lanes == 1 ? 0 : i;
        const struct number x = number_of(a, i), y = number_of(b, i), taken = c->data[k] ? x : y,
                            other = c->data[k] ? y : x;
        if (pair)
            put(r, i, x.error);
        else if (c->function)
            put(r, i,
                function_error(c->function, r->elem, y,
                               b->other ? number_of(&in->slots[b->other], i) : (struct number){0, 0}, x.x));
        else
            put(r, i, error_of(c, k) == 0 ? taken.error : fmax(taken.error, apart(x.x, y.x) + other.error));
    }
}

/* x as the type of the result has it. */
static double converted(const struct lstmt *s, const struct slot *r, double x)
{
    _Alignas(8) uint8_t to[8] = {0};
    struct slot one = {.data = to, .elem = r->elem, .lanes = 1};
    elems_convert(ELEM_F64, &x, r->elem, to, 1, s->imm != 0, s->name ? s->name : "even");
    return lane(&one, 0);
}

/* Where numbers become narrower than f32, or integers, the network rounds as well: what lies within the operand's
 * bound.
 */
static void error_convert(struct interp *in, const struct lstmt *s, struct slot *r)
{
    const struct slot *a = slot_in(in, s, 0);
    const bool from = elem_class(a->elem) == 'F', to = elem_class(r->elem) == 'F';
    for (uint32_t i = 0; i < r->lanes; i++) {
        const struct number x = number_of(a, i);
        const double at = lane(r, i);
        double error = r->elem == ELEM_F32 || r->elem == ELEM_F64 ? x.error + apart(at, x.x) : 0;
        if (x.error > 0 && from)
            error = fmax(error,
                         fmax(apart(at, converted(s, r, x.x + x.error)), apart(at, converted(s, r, x.x - x.error))));
        else if (x.error > 0 && !to) /* between integers: unless the value is cut */
            error = elem_bits(r->elem) > elem_bits(a->elem) ||
                            (at == x.x && converted(s, r, at + x.error) == at + x.error &&
                             converted(s, r, at - x.error) == at - x.error)
                        ? x.error
                        : INFINITY;
        put(r, i, error + (s->name && strcmp(s->name, "normal") == 0 ? 0x1p-126 : 0));
    }
}

/* Bits of what is off say nothing. */
static void error_bits(struct interp *in, const struct lstmt *s, struct slot *r)
{
    const struct slot *a = slot_in(in, s, 0);
    for (uint32_t i = 0; a->any_error && i < r->lanes; i++)
        put(r, i, a->lanes == r->lanes && error_of(a, i) == 0 ? 0 : INFINITY);
}

static void error_reduce(struct interp *in, const struct lstmt *s, struct slot *r)
{
    const struct slot *a = slot_in(in, s, 0);
    const uint32_t size = elem_size(a->elem);
    _Alignas(8) uint8_t lanes[LOOP_LANES_MAX * 8];
    double error[LOOP_LANES_MAX];
    struct slot now = {.data = lanes, .elem = a->elem, .lanes = a->lanes};
    memcpy(lanes, a->data, (size_t)a->lanes * size);
    for (uint32_t i = 0; i < a->lanes; i++)
        error[i] = error_of(a, i);
    for (uint32_t n = a->lanes / 2; n > 0; n /= 2) {
        struct number x[LOOP_LANES_MAX][3];
        for (uint32_t i = 0; i < n; i++) {
            x[i][0] = (struct number){lane(&now, i), error[i]};
            x[i][1] = (struct number){lane(&now, i + n), error[i + n]};
            x[i][2] = (struct number){0, 0};
        }
        loop_compute((enum lop)s->imm, a->elem, n, lanes, lanes + (size_t)n * size, NULL, lanes);
        for (uint32_t i = 0; i < n; i++)
            error[i] = arithmetic_error((enum lop)s->imm, a->elem, x[i], lane(&now, i));
    }
    put(r, 0, error[0]);
}

static void error_moved(struct interp *in, const struct lstmt *s, struct slot *r)
{
    const struct slot *a = slot_in(in, s, 0), *b = s->n_in > 1 ? slot_in(in, s, 1) : a;
    for (uint32_t i = 0; i < r->lanes; i++) {
        if (s->op == L_SPLAT)
            put(r, i, error_of(a, 0));
        else if (s->op == L_EXTRACT)
            put(r, i, error_of(a, (uint32_t)s->imm));
        else if (s->op == L_INSERT)
            put(r, i, i == (uint32_t)s->imm ? error_of(b, 0) : error_of(a, i));
        else
            put(r, i, s->aux[i] >= a->lanes ? error_of(b, s->aux[i] - a->lanes) : error_of(a, s->aux[i]));
    }
}

void loop_error(struct interp *in, const struct lstmt *s)
{
    typedef void error_fn(struct interp *, const struct lstmt *, struct slot *);
    static error_fn *const errors[L_COUNT] = {
#define LOP(id, name, least, most, results, class, form, rule, exec, error, ...) [L_##id] = error,
#include "ir/loop/loop.def"
    };
    error_fn *const fn = errors[s->op];
    struct slot *r = slot_out(in, s);
    if (!fn || r->lanes == 0) /* it moves values from where they have their bounds */
        return;
    bool off = elem_class(r->elem) == 'F' || s->op == L_EQ;
    for (uint32_t i = 0; i < s->n_in; i++)
        off |= slot_in(in, s, i)->any_error;
    r->any_error = false;
    if (off)
        fn(in, s, r);
}

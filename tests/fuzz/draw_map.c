/* Random elementwise operators (draw.h): arguments are bent into the domain of the function, so that no NaN and no
 * infinity is ever computed.
 */
#include "tests/fuzz/draw.h"

#include <math.h>
#include <string.h>

/* A partner for x: of the pool when one of its type broadcasts with it, else a new leaf of some broadcastable shape. */
static struct drawn partner(struct draw *d, const struct drawn *x)
{
    const struct type *t = drawn_type(d, x);
    for (int tries = 0; tries < 10 && draw_chance(d, 90); tries++) {
        const struct drawn *y = &d->value[draw_int(d, 0, (int64_t)d->n - 1)];
        const struct type *u = drawn_type(d, y);
        bool fits = u->elem == t->elem;
        for (int32_t i = 1; fits && i <= t->rank && i <= u->rank; i++) {
            expr_id a = t->dims[t->rank - i], b = u->dims[u->rank - i];
            fits = a.i == b.i || ex_is(d->x, a, 1) || ex_is(d->x, b, 1);
        }
        if (fits)
            return *y;
    }
    expr_id dims[RANK_MAX];
    int32_t drop = draw_chance(d, 40) ? (int32_t)draw_int(d, 0, t->rank) : 0, rank = t->rank - drop;
    for (int32_t i = 0; i < rank; i++)
        dims[i] = draw_chance(d, 30) ? ex_const(d->x, 1) : t->dims[drop + i];
    return draw_leaf(d, t->elem, dims, rank, draw_chance(d, 60));
}

static value_id abs_plus(struct draw *d, const struct drawn *x, double c)
{
    return b_binary_f64(&d->b, OP_ADD, b_unary(&d->b, OP_ABS, x->v), c);
}

static struct drawn clamped(struct draw *d, const struct drawn *x, double c)
{
    double mag = x->mag < c ? x->mag : c;
    return drawn_make(d, b_clamp(&d->b, x->v, -c, c), mag, x->err, x->places > 4 ? x->places : 4);
}

struct unary_rule {
    enum op op;
    double bound, mag, slope;
};
/* |x| <= bound is made sure of first; then |f| <= mag, |f'| <= slope. */
static const struct unary_rule unary_rules[] = {
    {OP_EXP, 4, 55, 55},         {OP_EXPM1, 4, 55, 55},      {OP_SIN, 100, 1, 1},        {OP_COS, 100, 1, 1},
    {OP_TAN, 1, 1.6, 3.5},       {OP_ASIN, 0.875, 1.1, 2.1}, {OP_ACOS, 0.875, 2.7, 2.1}, {OP_ATAN, 1e6, 1.6, 1},
    {OP_SINH, 4, 28, 28},        {OP_COSH, 4, 28, 28},       {OP_TANH, 1e6, 1, 1},       {OP_ASINH, 1e6, 15, 1},
    {OP_ATANH, 0.875, 1.4, 4.3}, {OP_ERF, 1e6, 1, 1.2},      {OP_SIGMOID, 1e6, 1, 0.25},
};

static void float_function(struct draw *d, struct drawn x)
{
    double eps = elem_eps(drawn_type(d, &x)->elem);
    if (draw_chance(d, 70)) {
        const struct unary_rule *r = &DRAW_PICK(d, unary_rules);
        if (x.mag > r->bound)
            x = clamped(d, &x, r->bound);
        draw_keep(d, drawn_make(d, b_unary(&d->b, r->op, x.v), r->mag, x.err * r->slope + 8 * eps * r->mag, 0));
        return;
    }
    static const enum op positive[] = {OP_SQRT, OP_LOG, OP_LOG1P, OP_ACOSH};
    enum op op = DRAW_PICK(d, positive);
    value_id arg = abs_plus(d, &x, op == OP_ACOSH ? 1.5 : 0.5);
    double mag = op == OP_SQRT ? sqrt(x.mag + 0.5) : log(x.mag + 3) * 2 + 1;
    draw_keep(d, drawn_make(d, b_unary(&d->b, op, arg), mag, 2 * x.err + 8 * eps * (mag + x.mag), 0));
}

static void unary(struct draw *d)
{
    static const enum op steps[] = {OP_SIGN, OP_FLOOR, OP_CEIL, OP_ROUND, OP_TRUNC};
    struct drawn x = draw_value(d, draw_chance(d, 75) ? "F" : "BIUF", 0);
    if (!x.v.i)
        return;
    enum elem e = drawn_type(d, &x)->elem;
    char class = elem_class(e);
    if (class == 'B' || ((class == 'I' || class == 'U') && draw_chance(d, 30))) {
        draw_keep(d, drawn_make(d, b_unary(&d->b, OP_NOT, x.v), 256, 0, 0));
        return;
    }
    if (class == 'F' && draw_chance(d, 55)) {
        float_function(d, x);
        return;
    }
    if (class == 'F' && drawn_exact(&x) && draw_chance(d, 50)) {
        draw_keep(d, drawn_make(d, b_unary(&d->b, DRAW_PICK(d, steps), x.v), x.mag + 1, 0, 0));
        return;
    }
    if (class == 'F' && draw_chance(d, 15)) {
        draw_keep(d, drawn_make(d, b_unary(&d->b, draw_chance(d, 50) ? OP_ISNAN : OP_ISINF, x.v), 1, 0, 0));
        return;
    }
    draw_keep(d, drawn_like(d, b_unary(&d->b, draw_chance(d, 50) ? OP_NEG : OP_ABS, x.v), &x));
}

struct drawn draw_binary(struct draw *d, enum op op, struct drawn x, struct drawn y)
{
    double mag, err = x.err + y.err;
    int places = x.places > y.places ? x.places : y.places;
    if (!x.v.i || !y.v.i)
        return (struct drawn){0};
    value_id v = b_binary(&d->b, op, x.v, y.v);
    switch (op) {
    case OP_MUL:
        mag = x.mag * y.mag;
        err = x.err * y.mag + y.err * x.mag;
        places = x.places + y.places;
        break;
    case OP_MIN:
    case OP_MAX: mag = fmax(x.mag, y.mag); break;
    default: mag = x.mag + y.mag; break;
    }
    return drawn_make(d, v, mag, err, places);
}

static void float_binary(struct draw *d, struct drawn x, struct drawn y)
{
    static const enum op simple[] = {OP_ADD, OP_SUB, OP_MUL, OP_MIN, OP_MAX, OP_ADD, OP_MUL};
    static const double exponents[] = {2, 0.5, -1, 3, 1};
    double eps = elem_eps(drawn_type(d, &x)->elem), mag;
    switch (draw_int(d, 0, 9)) {
    case 0:
        mag = 2 * x.mag;
        draw_keep(d, drawn_make(d, b_binary(&d->b, OP_DIV, x.v, abs_plus(d, &y, 0.5)), mag,
                                2 * x.err + 4 * y.err * x.mag + 4 * eps * mag * (1 + y.mag), 0));
        return;
    case 1: {
        double p = DRAW_PICK(d, exponents);
        if (x.mag > 30)
            return;
        mag = fmax(pow(x.mag + 0.5, p), 2);
        draw_keep(d, drawn_make(d, b_binary_f64(&d->b, OP_POW, abs_plus(d, &x, 0.5), p), mag,
                                (x.err + eps * x.mag) * 4 * (mag + 4) + 32 * eps * mag, 0));
        return;
    }
    case 2:
        draw_keep(d, drawn_make(d, b_binary(&d->b, OP_ATAN2, x.v, abs_plus(d, &y, 0.5)), 1.6,
                                2 * x.err + 4 * y.err * (x.mag + 1) + 8 * eps * (1 + x.mag + y.mag), 0));
        return;
    case 3:
        if (drawn_exact(&x))
            draw_keep(d, drawn_make(d, b_binary_f64(&d->b, draw_chance(d, 50) ? OP_MOD : OP_REM, x.v, 0.75), 1, 0,
                                    x.places > 2 ? x.places : 2));
        return;
    default: draw_keep(d, draw_binary(d, DRAW_PICK(d, simple), x, y));
    }
}

static void int_binary(struct draw *d, struct drawn x, struct drawn y)
{
    static const enum op any[] = {OP_ADD, OP_SUB, OP_MUL, OP_MIN, OP_MAX, OP_AND, OP_OR, OP_XOR};
    static const enum op divide[] = {OP_DIV, OP_MOD, OP_REM};
    static const enum op shift[] = {OP_SHL, OP_SHR};
    value_id v;
    int64_t k = draw_int(d, 0, 9);
    if (k < 1) { /* by what memory holds, which is no zero; but a load that is masked out gives one */
        const struct type t = *drawn_type(d, &x);
        struct drawn divisor = draw_indices(d, t.elem, t.dims, t.rank, 1, 3);
        v = divisor.v.i ? b_binary(&d->b, DRAW_PICK(d, divide), x.v, divisor.v) : divisor.v;
    } else if (k < 2) {
        v = b_binary(&d->b, DRAW_PICK(d, divide), x.v, b_binary_f64(&d->b, OP_OR, y.v, 1));
    } else if (k < 3) { /* amounts without a sign */
        v = b_binary(&d->b, DRAW_PICK(d, shift), x.v, b_binary_f64(&d->b, OP_AND, y.v, 15));
    } else if (k < 4) {
        v = b_binary(&d->b, OP_POW, x.v, draw_chance(d, 30) ? draw_const(d, &x, (double)draw_int(d, 0, 5)).v : y.v);
    } else {
        v = b_binary(&d->b, DRAW_PICK(d, any), x.v, y.v);
    }
    draw_keep(d, drawn_make(d, v, 1e18, 0, 0));
}

static void compare(struct draw *d, struct drawn x, struct drawn y)
{
    static const enum op any[] = {OP_EQ, OP_NE, OP_LT, OP_LE};
    enum op op = DRAW_PICK(d, any);
    if (elem_class(drawn_type(d, &x)->elem) == 'B')
        op = draw_chance(d, 50) ? OP_EQ : OP_NE;
    if (drawn_exact(&x) && drawn_exact(&y))
        draw_keep(d, drawn_make(d, b_binary(&d->b, op, x.v, y.v), 1, 0, 0));
}

static void binary(struct draw *d)
{
    static const enum op logic[] = {OP_AND, OP_OR, OP_XOR};
    struct drawn x = draw_value(d, draw_chance(d, 80) ? "F" : "BIUF", 0);
    if (!x.v.i)
        return;
    struct drawn y = partner(d, &x);
    if (!y.v.i)
        return;
    char class = elem_class(drawn_type(d, &x)->elem);
    if (draw_chance(d, 12))
        compare(d, x, y);
    else if (class == 'B')
        draw_keep(d, drawn_make(d, b_binary(&d->b, DRAW_PICK(d, logic), x.v, y.v), 1, 0, 0));
    else if (class == 'F')
        float_binary(d, x, y);
    else
        int_binary(d, x, y);
}

static void ternary(struct draw *d)
{
    struct drawn x = draw_value(d, "F", 0), y, z;
    if (!x.v.i || !(y = partner(d, &x)).v.i || !(z = partner(d, &x)).v.i)
        return;
    if (draw_chance(d, 40)) {
        const struct type *t = drawn_type(d, &x);
        value_id in[3] = {x.v, y.v, z.v};
        for (int k = 1; k < 3; k++)
            if (value_type(d->g, in[k])->rank > t->rank)
                return;
        for (int k = 1; k < 3; k++) { /* only what broadcasts to x */
            const struct type *u = value_type(d->g, in[k]);
            for (int32_t i = 1; i <= u->rank; i++)
                if (u->dims[u->rank - i].i != t->dims[t->rank - i].i && !ex_is(d->x, u->dims[u->rank - i], 1))
                    return;
            in[k] = b_broadcast(&d->b, in[k], t->dims, t->rank);
        }
        struct drawn p = {{0}, x.mag * y.mag, x.err * y.mag + y.err * x.mag, x.places + y.places};
        int places = p.places > z.places ? p.places : z.places;
        draw_keep(d, drawn_make(d, b_op(&d->b, OP_FMA, in, 3, NULL, 0), p.mag + z.mag, p.err + z.err, places));
        return;
    }
    if (!drawn_exact(&y))
        return;
    value_id cond = b_binary(&d->b, OP_LT, y.v, draw_const(d, &y, 0.5).v);
    int places = x.places > z.places ? x.places : z.places;
    draw_keep(d, drawn_make(d, b_select(&d->b, cond, x.v, z.v), fmax(x.mag, z.mag), fmax(x.err, z.err), places));
}

static void convert(struct draw *d)
{
    static const enum elem any[] = {ELEM_F32, ELEM_F32, ELEM_F32, ELEM_F64, ELEM_F16,
                                    ELEM_I32, ELEM_I64, ELEM_I8,  ELEM_U8,  ELEM_BOOL};
    enum elem to = DRAW_PICK(d, any);
    struct drawn x = draw_value(d, "BIUF", 0);
    if (!x.v.i)
        return;
    char from = elem_class(drawn_type(d, &x)->elem), class = elem_class(to);
    if (from == 'F' && class != 'F' && (!drawn_exact(&x) || x.mag > 100))
        return;
    if (from != 'F' && class == 'F') { /* small enough to be exact */
        if (from != 'B')
            x = drawn_make(d, b_binary_f64(&d->b, OP_AND, x.v, 15), 15, 0, 0);
        else
            x.mag = 1;
    }
    draw_keep(d, drawn_make(d, b_convert(&d->b, x.v, to), x.mag, x.err, x.places));
}

void draw_map(struct draw *d)
{
    int64_t k = draw_int(d, 0, 99);
    if (k < 25)
        unary(d);
    else if (k < 75)
        binary(d);
    else if (k < 88)
        ternary(d);
    else
        convert(d);
}

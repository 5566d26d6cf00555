/* lf_field: a kernel of floats that computes in GF(q) x GF(p) instead (ir/ops/field.h), statement by statement.
 * Everything else, indices, memory, control and masks, stays as it is, and so does the size of elements: registers hold
 * residues in 32 bits, memory of f64 in 64. Narrow floats stay what they are, and conversions from and to them are
 * those of field_load and field_store.
 */
#include <math.h>

#include "ir/loop/internal.h"
#include "ir/ops/field.h"

enum { HALF = 32 };

/* Where a value is read. */
struct use {
    uint32_t n; /* so often; the last time: */
    lblock b;
    const struct lstmt *by;
    uint32_t at; /* operand */
};

struct lowering {
    struct lfunc *f;
    lblock b; /* where statements are appended */
    lreg *now; /* by value: what stands in its place */
    bool *sums; /* by value: that is a sum of products (see is_sum) */
    const struct use *uses; /* by value */
    struct field_facts *facts;
};

/* ---- statements ------------------------------------------------------------------------------------------------ */

static struct ltype words(uint32_t lanes)
{
    return (struct ltype){ELEM_U32, lanes};
}

static lreg constant(struct lowering *l, struct ltype t, uint64_t value)
{
    lreg r = lf_op(l->f, l->b, L_CONST, t, NULL, 0);
    lf_last(l->f, l->b)->imm = (int64_t)value;
    return r;
}

static lreg real(struct lowering *l, uint32_t lanes, double value)
{
    lreg r = lf_op(l->f, l->b, L_CONST, (struct ltype){ELEM_F32, lanes}, NULL, 0);
    lf_last(l->f, l->b)->fimm = value;
    return r;
}

static lreg op1(struct lowering *l, enum lop op, struct ltype t, lreg x)
{
    return lf_op(l->f, l->b, op, t, &x, 1);
}

static lreg op2(struct lowering *l, enum lop op, struct ltype t, lreg x, lreg y)
{
    const lreg in[2] = {x, y};
    return lf_op(l->f, l->b, op, t, in, 2);
}

static lreg chosen(struct lowering *l, struct ltype t, lreg x, lreg y, lreg z)
{
    const lreg in[3] = {x, y, z};
    return lf_op(l->f, l->b, L_SELECT, t, in, 3);
}

/* ---- parts ------------------------------------------------------------------------------------------------------ */

typedef lreg body_fn(struct lowering *, const void *self, const lreg *in);

/* What the body does with the operands: a part that is applied, or, if they are few, its statements. {0}: the body has
 * no meaning. Code generation takes more of a proof's time than calls do. */
static lreg applied(struct lowering *l, const char *name, body_fn *body, const void *self, const lreg *in, uint32_t n)
{
    enum { MOST = 4, FEW = 4 };
    struct lfunc *of = l->f->of ? l->f->of : l->f;
    lreg args[MOST];
    if (n > MOST)
        return (lreg){0};
    if (!l->facts) /* of lf_field_function: passes still move the statements to other functions */
        return body(l, self, in);
    if (l->facts->shares)
        name = arena_printf(l->f->arena, "%s%s", name, l->facts->shares);
    struct lfunc *part = lf_part(l->f, name);
    if (!part) {
        part = lf_new(of->ctx, of->arena, LROLE_VALUE, name);
        part->of = of;
        for (uint32_t i = 0; i < n; i++)
            args[i] = lf_arg(part, lf_type(l->f, in[i]), 0, 0, NULL);
        struct lowering of_part = {.f = part, .b = {1}, .facts = l->facts};
        lreg r = body(&of_part, self, args);
        lf_stmt(part, (lblock){1}, L_YIELD, &r, 1);
        if (!r.i || part->blocks.data[1].stmts.n <= FEW)
            return body(l, self, in);
        lf_tidy(part);
        VEC_PUSH(of->arena, &of->parts, part);
    }
    const struct lblk *block = &part->blocks.data[1];
    lreg r = lf_op(l->f, l->b, L_APPLY, lf_type(part, block->stmts.data[block->stmts.n - 1].in[0]), in, n);
    lf_last(l->f, l->b)->name = part->name;
    return r;
}

/* ---- arithmetic ------------------------------------------------------------------------------------------------ */

/* Below 2 N to below N: the smaller one of x and x - N, of which one wraps. */
static lreg reduce(struct lowering *l, struct ltype t, lreg x)
{
    return op2(l, L_MIN, t, x, op2(l, L_SUB, t, x, constant(l, t, FIELD_N)));
}

/* y, but -inf where x is. */
static lreg absorb(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    lreg low = constant(l, t, FIELD_MINUS_INF);
    return chosen(l, t, op2(l, L_EQ, (struct ltype){ELEM_BOOL, t.lanes}, x, low), low, y);
}

static lreg plus(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    return absorb(l, t, op2(l, L_MAX, t, x, y), reduce(l, t, op2(l, L_ADD, t, x, y)));
}

/* The difference of what is below N, of which one wraps. */
static lreg difference(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    lreg d = op2(l, L_SUB, t, x, y);
    return op2(l, L_MIN, t, d, op2(l, L_ADD, t, d, constant(l, t, FIELD_N)));
}

static lreg minus(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    return absorb(l, t, x, difference(l, t, x, y));
}

static lreg negated(struct lowering *l, struct ltype t, lreg x)
{
    const struct ltype pred = {ELEM_BOOL, t.lanes};
    lreg low = constant(l, t, FIELD_MINUS_INF), up = constant(l, t, FIELD_PLUS_INF);
    lreg r = difference(l, t, constant(l, t, 0), x);
    r = chosen(l, t, op2(l, L_EQ, pred, x, low), up, r);
    return chosen(l, t, op2(l, L_EQ, pred, x, up), low, r);
}

static lreg high(struct lowering *l, struct ltype t, lreg x)
{
    struct ltype wide = {ELEM_U64, t.lanes};
    return op1(l, L_CONVERT, t, op2(l, L_SHR, wide, x, constant(l, wide, HALF)));
}

/* field_reduced of x * y, of lanes two by two: products of 32 bits are those of the lower halves of 64. Below their
 * upper halves the product and what is taken of it are equal. */
static lreg times_in_pairs(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    const struct ltype wide = {ELEM_U64, t.lanes / 2};
    const lreg half = constant(l, wide, HALF), low = constant(l, wide, UINT32_MAX), n = constant(l, wide, FIELD_N);
    lreg by = op2(l, L_MUL, t, op2(l, L_MUL, t, x, y), constant(l, t, FIELD_INVERSE)), d[2];
    const lreg of[3] = {op1(l, L_BITCAST, wide, x), op1(l, L_BITCAST, wide, y), op1(l, L_BITCAST, wide, by)};
    for (uint32_t odd = 0; odd < 2; odd++) {
        lreg part[3];
        for (uint32_t i = 0; i < 3; i++)
            part[i] = odd ? op2(l, L_SHR, wide, of[i], half) : op2(l, L_AND, wide, of[i], low);
        d[odd] = op2(l, L_SUB, wide, op2(l, L_MUL, wide, part[0], part[1]), op2(l, L_MUL, wide, part[2], n));
    }
    lreg r = op1(l, L_BITCAST, t, op2(l, L_OR, wide, op2(l, L_SHR, wide, d[0], half), d[1]));
    return op2(l, L_MIN, t, r, op2(l, L_ADD, t, r, constant(l, t, FIELD_N)));
}

/* field_reduced of m, in lanes of 64 bits. */
static lreg reduced_wide(struct lowering *l, struct ltype t, lreg m)
{
    const struct ltype wide = {ELEM_U64, t.lanes};
    lreg by = op2(l, L_MUL, t, op1(l, L_CONVERT, t, m), constant(l, t, FIELD_INVERSE));
    lreg taken = op2(l, L_MUL, wide, op1(l, L_CONVERT, wide, by), constant(l, wide, FIELD_N));
    return difference(l, t, high(l, t, m), high(l, t, taken));
}

/* The product of x and y, lanes of 64 bits. */
static lreg times_wide(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    const struct ltype wide = {ELEM_U64, t.lanes};
    return op2(l, L_MUL, wide, op1(l, L_CONVERT, wide, x), op1(l, L_CONVERT, wide, y));
}

/* field_reduced of x * y. */
static lreg times(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    return t.lanes % 2 == 0 ? times_in_pairs(l, t, x, y) : reduced_wide(l, t, times_wide(l, t, x, y));
}

static lreg body_times(struct lowering *l, const void *self, const lreg *in)
{
    (void)self;
    return times(l, words(lf_type(l->f, in[0]).lanes), in[0], in[1]);
}

/* Applied: where many products follow each other. */
static lreg product(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    return applied(l, arena_printf(l->f->arena, "times.%u", t.lanes), body_times, NULL, (lreg[]){x, y}, 2);
}

static lreg inverse(struct lowering *l, struct ltype t, lreg x)
{
    lreg r = x;
    for (int bit = 28; bit >= 0; bit--) { /* below the first one of FIELD_INVERTS */
        r = product(l, t, r, r);
        if (FIELD_INVERTS >> bit & 1)
            r = product(l, t, r, x);
    }
    return r;
}

/* Of a constant, to the power n of so many digits of two bits. to_digit: the constant to digit 4^place. */
static lreg constant_power(struct lowering *l, struct ltype t, lreg n, uint32_t digits,
                           uint32_t (*to_digit)(uint32_t place, uint32_t digit))
{
    const struct ltype pred = {ELEM_BOOL, t.lanes};
    lreg zero = constant(l, t, 0), r = {0};
    for (uint32_t k = 0; k < digits; k++) {
        lreg power[4], odd, upper;
        for (uint32_t digit = 0; digit < 4; digit++)
            power[digit] = constant(l, t, to_digit(k, digit));
        odd = op2(l, L_NE, pred, op2(l, L_AND, t, n, constant(l, t, 1u << 2 * k)), zero);
        upper = op2(l, L_NE, pred, op2(l, L_AND, t, n, constant(l, t, 2u << 2 * k)), zero);
        lreg low = chosen(l, t, odd, power[1], power[0]), up = chosen(l, t, odd, power[3], power[2]);
        lreg factor = chosen(l, t, upper, up, low);
        r = k ? times(l, t, r, factor) : factor;
    }
    return r;
}

/* base^x; 0 of -inf. */
static lreg exponential(struct lowering *l, struct ltype t, lreg x)
{
    struct ltype wide = {ELEM_U64, t.lanes}, pred = {ELEM_BOOL, t.lanes};
    lreg n = op2(l, L_MUL, wide, op1(l, L_CONVERT, wide, x), constant(l, wide, FIELD_QUOTIENT));
    n = op1(l, L_CONVERT, t, op2(l, L_SHR, wide, n, constant(l, wide, FIELD_QUOTIENT_SHIFT)));
    n = op2(l, L_SUB, t, x, op2(l, L_MUL, t, n, constant(l, t, FIELD_Q)));
    lreg zero = constant(l, t, 0), r = constant_power(l, t, n, FIELD_DIGITS, field_exp_power);
    return chosen(l, t, op2(l, L_EQ, pred, x, constant(l, t, FIELD_MINUS_INF)), zero, r);
}

static lreg mix(struct lowering *l, struct ltype t, lreg h)
{
    h = op2(l, L_XOR, t, h, op2(l, L_SHR, t, h, constant(l, t, 16)));
    h = op2(l, L_MUL, t, h, constant(l, t, FIELD_MIX_1));
    h = op2(l, L_XOR, t, h, op2(l, L_SHR, t, h, constant(l, t, 13)));
    h = op2(l, L_MUL, t, h, constant(l, t, FIELD_MIX_2));
    return op2(l, L_XOR, t, h, op2(l, L_SHR, t, h, constant(l, t, 16)));
}

/* r, but where y is one of the powers that ir/ops/field.c has as products, these. */
static lreg raised(struct lowering *l, struct ltype t, lreg x, lreg root, lreg y, lreg r)
{
    struct ltype pred = {ELEM_BOOL, t.lanes};
    lreg whole = constant(l, t, FIELD_ONE), inverted = r, is_inverted = constant(l, pred, 0);
    for (uint32_t twice = 0; twice <= 8; twice++) {
        if (twice > 5 && twice % 2)
            continue;
        whole = twice && twice % 2 == 0 ? times(l, t, whole, x) : whole;
        lreg p = twice % 2 ? times(l, t, whole, root) : whole;
        r = chosen(l, t, op2(l, L_EQ, pred, y, constant(l, t, field_of(twice / 2.0))), p, r);
        if (twice > 3 && twice % 2)
            continue;
        lreg below = op2(l, L_EQ, pred, y, constant(l, t, field_of(twice / -2.0)));
        inverted = chosen(l, t, below, p, inverted);
        is_inverted = op2(l, L_OR, pred, is_inverted, below);
    }
    return chosen(l, t, is_inverted, inverse(l, t, inverted), r);
}

/* As ir/ops/field.c has these three. */
static lreg steps_of(struct lowering *l, struct ltype t, lreg x)
{
    lreg i = times(l, t, x, constant(l, t, FIELD_GRID));
    return reduce(l, t, op2(l, L_ADD, t, i, constant(l, t, FIELD_STEPS / 2)));
}

static lreg is_small(struct lowering *l, struct ltype t, lreg steps)
{
    return op2(l, L_LT, (struct ltype){ELEM_BOOL, t.lanes}, steps, constant(l, t, FIELD_STEPS));
}

static lreg whole_of(struct lowering *l, struct ltype t, enum op op, lreg steps)
{
    struct ltype pred = {ELEM_BOOL, t.lanes};
    lreg zero = constant(l, t, 0), one = constant(l, t, 1), each = constant(l, t, FIELD_GRID), more = zero;
    if (op != OP_FLOOR)
        more = constant(l, t, op == OP_ROUND ? FIELD_GRID / 2 : FIELD_GRID - 1);
    if (op == OP_TRUNC)
        more = chosen(l, t, op2(l, L_LT, pred, steps, constant(l, t, FIELD_STEPS / 2)), more, zero);
    lreg from = op2(l, L_ADD, t, steps, more), whole = op2(l, L_DIV, t, from, each);
    if (op != OP_ROUND)
        return whole;
    lreg tie = op2(l, L_EQ, pred, from, op2(l, L_MUL, t, whole, each));
    return op2(l, L_SUB, t, whole, chosen(l, t, tie, op2(l, L_AND, t, whole, one), zero));
}

/* A hash, as ir/ops/field.c has it; y {0}: of one argument. */
static lreg function(struct lowering *l, struct ltype t, enum op op, lreg x, lreg y)
{
    struct ltype pred = {ELEM_BOOL, t.lanes};
    if (op == OP_EXP)
        return exponential(l, t, x);
    lreg h = mix(l, t, op2(l, L_XOR, t, x, constant(l, t, field_function_key(op))));
    h = mix(l, t, y.i ? op2(l, L_XOR, t, h, y) : h);
    if (op == OP_ROUND) {
        lreg n = op2(l, L_AND, t, h, constant(l, t, 2 * FIELD_ROUNDED - 1));
        h = times(l, t, difference(l, t, n, constant(l, t, FIELD_ROUNDED)), constant(l, t, FIELD_SQUARE));
    } else {
        h = reduce(l, t, op2(l, L_AND, t, h, constant(l, t, FIELD_MASK)));
    }
    if (field_rounds(op)) {
        lreg steps = steps_of(l, t, x),
             whole = difference(l, t, whole_of(l, t, op, steps), constant(l, t, FIELD_SMALL));
        return chosen(l, t, is_small(l, t, steps), times(l, t, whole, constant(l, t, FIELD_SQUARE)), h);
    }
    if (op == OP_SQRT)
        return chosen(l, t, op2(l, L_EQ, pred, x, constant(l, t, 0)), constant(l, t, 0), h);
    return op == OP_POW ? raised(l, t, x, function(l, t, OP_SQRT, x, (lreg){0}), y, h) : h;
}

static lreg order(struct lowering *l, struct ltype t, lreg x)
{
    struct ltype pred = {ELEM_BOOL, t.lanes};
    lreg steps = steps_of(l, t, x),
         near = op2(l, L_SUB, t, steps, constant(l, t, (FIELD_SMALL - FIELD_NEAR) * FIELD_GRID));
    lreg h = mix(l, t, op2(l, L_XOR, t, x, constant(l, t, FIELD_KEY)));
    lreg below = op2(l, L_LT, pred, steps, constant(l, t, FIELD_STEPS / 2));
    lreg from = chosen(l, t, below, constant(l, t, FIELD_PLACE), constant(l, t, FIELD_PLACE_FAR));
    lreg place = op2(l, L_ADD, t, from, op2(l, L_MUL, t, steps, constant(l, t, FIELD_STEP)));
    lreg close = op2(l, L_MUL, t, near, constant(l, t, FIELD_STEP_NEAR));
    h = chosen(l, t, is_small(l, t, steps), place, op2(l, L_XOR, t, h, constant(l, t, FIELD_LEAST)));
    return chosen(l, t, op2(l, L_LT, pred, near, constant(l, t, 2 * FIELD_NEAR * FIELD_GRID)),
                  op2(l, L_ADD, t, close, constant(l, t, FIELD_PLACE_NEAR)), h);
}

static lreg body_order(struct lowering *l, const void *self, const lreg *in)
{
    (void)self;
    return order(l, words(lf_type(l->f, in[0]).lanes), in[0]);
}

static lreg less(struct lowering *l, struct ltype t, lreg x, lreg y, enum lop op)
{
    const char *name = arena_printf(l->f->arena, "order.%u", t.lanes);
    lreg a = applied(l, name, body_order, NULL, &x, 1), b = applied(l, name, body_order, NULL, &y, 1);
    return op2(l, op, (struct ltype){ELEM_BOOL, t.lanes}, a, b);
}

/* What the code compares: only -inf is less than -87. */
static lreg compared(struct lowering *l, struct ltype t, lreg x, lreg y, enum lop op)
{
    struct ltype pred = {ELEM_BOOL, t.lanes};
    lreg under = op2(l, L_EQ, pred, y, constant(l, t, FIELD_UNDER)),
         low = op2(l, L_EQ, pred, x, constant(l, t, FIELD_MINUS_INF));
    return chosen(l, pred, under, low, less(l, t, x, y, op));
}

static lreg greatest(struct lowering *l, struct ltype t, lreg x, lreg y, bool least)
{
    lreg y_wins = least ? less(l, t, y, x, L_LT) : less(l, t, x, y, L_LT);
    return chosen(l, t, y_wins, y, x);
}

static lreg combine(struct lowering *l, enum lop op, struct ltype t, lreg x, lreg y)
{
    switch (op) {
    case L_ADD: return plus(l, t, x, y);
    case L_SUB: return minus(l, t, x, y);
    case L_MUL: return times(l, t, x, y);
    case L_DIV: return times(l, t, x, inverse(l, t, y));
    case L_REM: {
        lreg whole = function(l, t, OP_TRUNC, times(l, t, x, inverse(l, t, y)), (lreg){0});
        return minus(l, t, x, times(l, t, y, whole));
    }
    case L_MIN:
    case L_MINNUM: return greatest(l, t, x, y, true);
    default: return greatest(l, t, x, y, false);
    }
}

/* ---- statement by statement ------------------------------------------------------------------------------------ */

static void refuse(struct lowering *l, const struct lstmt *s, const char *type)
{
    if (!l->facts->why)
        l->facts->why = arena_printf(l->f->arena, "'%s' of %s has no meaning in the field", lop_name(s->op), type);
}

/* These n lanes of x. */
static lreg lanes_of(struct lowering *l, lreg x, const uint8_t *lanes, uint32_t n)
{
    const struct ltype t = {lf_type(l->f, x).elem, n};
    if (n == 1) {
        lreg one = op1(l, L_EXTRACT, t, x);
        lf_last(l->f, l->b)->imm = lanes[0];
        return one;
    }
    lreg r = op2(l, L_SHUFFLE, t, x, x);
    lf_last(l->f, l->b)->aux = arena_copy(l->f->arena, lanes, n);
    lf_last(l->f, l->b)->n_aux = n;
    return r;
}

static lreg reduced(struct lowering *l, const struct lstmt *s, lreg x)
{
    uint32_t n = lf_type(l->f, x).lanes;
    uint8_t lanes[LOOP_LANES_MAX];
    for (; n > 1; n /= 2) {
        lreg half[2];
        for (uint32_t k = 0; k < 2; k++) {
            for (uint32_t i = 0; i < n / 2; i++)
                lanes[i] = (uint8_t)(k * (n / 2) + i);
            half[k] = lanes_of(l, x, lanes, n / 2);
        }
        x = combine(l, (enum lop)s->imm, words(n / 2), half[0], half[1]);
    }
    return x;
}

/* Integers are exact as they are: their residues. */
static lreg converted(struct lowering *l, const struct lstmt *s, struct ltype from, lreg x)
{
    struct ltype t = words(from.lanes), wide = {ELEM_I64, from.lanes};
    if (from.elem == ELEM_BOOL)
        return chosen(l, t, x, constant(l, t, FIELD_ONE), constant(l, t, 0));
    if (elem_class(from.elem) != 'I' && elem_class(from.elem) != 'U') {
        refuse(l, s, elem_name(from.elem));
        return x;
    }
    if (from.elem == ELEM_U64)
        wide.elem = ELEM_U64;
    lreg y = from.elem == wide.elem ? x : op1(l, L_CONVERT, wide, x);
    lreg rest = op1(l, L_CONVERT, t, op2(l, L_FLOORMOD, wide, y, constant(l, wide, FIELD_N)));
    return times(l, t, rest, constant(l, t, FIELD_SQUARE));
}

/* To integers of so many bits: small ones are saturated. */
static lreg rounded(struct lowering *l, struct ltype to, lreg x)
{
    struct ltype t = words(to.lanes), natural = {ELEM_I32, to.lanes};
    const int32_t low = field_lowest(to.elem), high = field_highest(to.elem);
    lreg steps = steps_of(l, t, x), whole = whole_of(l, t, OP_TRUNC, steps),
         h = mix(l, t, mix(l, t, op2(l, L_XOR, t, x, constant(l, t, field_convert_key(to.elem)))));
    lreg small = op2(l, L_SUB, natural, op1(l, L_BITCAST, natural, whole), constant(l, natural, FIELD_SMALL));
    small = op2(l, L_MAX, natural, small, constant(l, natural, (uint64_t)(int64_t)low));
    small = op2(l, L_MIN, natural, small, constant(l, natural, (uint64_t)(int64_t)high));
    if (elem_bits(to.elem) < 8) {
        h = op2(l, L_AND, t, h, constant(l, t, (uint64_t)(high - low)));
        h = op2(l, L_ADD, t, h, constant(l, t, (uint32_t)low));
    }
    lreg r = chosen(l, t, is_small(l, t, steps), op1(l, L_BITCAST, t, small), h);
    l->facts->rounds = true;
    l->facts->narrows |= elem_bits(to.elem) < 8;
    if (to.elem == ELEM_I64)
        return op1(l, L_CONVERT, to, op1(l, L_BITCAST, natural, r));
    if (elem_bits(to.elem) == 32)
        return to.elem == ELEM_U32 ? r : op1(l, L_BITCAST, to, r);
    return op1(l, L_CONVERT, to, r);
}

/* ---- narrow floats --------------------------------------------------------------------------------------------- */

enum { F32_DIGITS = 23, F32_EXPONENTS = 255, F32_LEAST = -149 };

static uint32_t power_of_two(uint32_t place, uint32_t digit)
{
    return field_power_of_two((int32_t)(digit << 2 * place));
}

/* The number that the bits of the float x are. */
static lreg widened(struct lowering *l, lreg x)
{
    const struct ltype t = words(lf_type(l->f, x).lanes), pred = {ELEM_BOOL, t.lanes};
    const uint32_t least = field_reduced((uint64_t)field_power_of_two(F32_LEAST - 1) * FIELD_SQUARE);
    lreg bits = op1(l, L_BITCAST, t, op1(l, L_CONVERT, (struct ltype){ELEM_F32, t.lanes}, x)), zero = constant(l, t, 0);
    lreg exponent = op2(l, L_AND, t, op2(l, L_SHR, t, bits, constant(l, t, F32_DIGITS)), constant(l, t, F32_EXPONENTS));
    lreg digits = op2(l, L_AND, t, bits, constant(l, t, (1u << F32_DIGITS) - 1));
    lreg minus_sign = op2(l, L_NE, pred, op2(l, L_SHR, t, bits, constant(l, t, HALF - 1)), zero);
    lreg is_end = op2(l, L_EQ, pred, exponent, constant(l, t, F32_EXPONENTS));
    lreg end = chosen(l, t, minus_sign, constant(l, t, FIELD_MINUS_INF), constant(l, t, FIELD_PLUS_INF));
    end = chosen(l, t, op2(l, L_EQ, pred, digits, zero), end, constant(l, t, FIELD_NAN));
    lreg whole = op2(l, L_OR, t, digits, constant(l, t, 1u << F32_DIGITS));
    whole = chosen(l, t, op2(l, L_EQ, pred, exponent, zero), digits, whole);
    exponent = op2(l, L_MAX, t, exponent, constant(l, t, 1));
    lreg r = times(l, t, times(l, t, whole, constant(l, t, least)), constant_power(l, t, exponent, 4, power_of_two));
    r = chosen(l, t, minus_sign, difference(l, t, zero, r), r);
    return chosen(l, t, is_end, end, r);
}

/* So many steps, an i32, as f32. */
static lreg stepped(struct lowering *l, const struct field_form *form, uint32_t lanes, lreg steps)
{
    const struct ltype f = {ELEM_F32, lanes};
    return op2(l, L_MUL, f, op1(l, L_CONVERT, f, steps), real(l, lanes, ldexp(1, -form->step)));
}

/* An f32: the number that x is rounded to; ELEM_NONE: of no type. */
static lreg number_of(struct lowering *l, const struct field_form *form, struct ltype to, uint32_t key, lreg x)
{
    const struct ltype t = words(to.lanes), pred = {ELEM_BOOL, to.lanes}, natural = {ELEM_I32, to.lanes},
                       f = {ELEM_F32, to.lanes};
    const uint32_t limit = to.elem ? FIELD_EXACT : FIELD_REAL_EXACT;
    lreg steps = times(l, t, x, constant(l, t, 1u << form->step));
    steps = reduce(l, t, op2(l, L_ADD, t, steps, constant(l, t, limit)));
    lreg is_exact = op2(l, L_LT, pred, steps, constant(l, t, 2 * limit));
    steps = op2(l, L_SUB, natural, op1(l, L_BITCAST, natural, steps), constant(l, natural, limit));
    lreg number = stepped(l, form, to.lanes, steps);
    if (to.elem) {
        lreg again = op1(l, L_CONVERT, f, op1(l, L_CONVERT, to, number));
        is_exact = op2(l, L_AND, pred, is_exact, op2(l, L_EQ, pred, again, number));
    }
    lreg h = mix(l, t, op2(l, L_XOR, t, x, constant(l, t, key)));
    h = op1(l, L_BITCAST, natural, op2(l, L_AND, t, h, constant(l, t, 2u * form->values - 1)));
    h = op2(l, L_SUB, natural, h, constant(l, natural, form->values));
    number = chosen(l, f, is_exact, number, stepped(l, form, to.lanes, h));
    const struct {
        uint32_t residue;
        double end;
    } ends[] = {{FIELD_MINUS_INF, (double)-INFINITY},
                {FIELD_PLUS_INF, (double)INFINITY},
                {FIELD_NAN, (double)NAN},
                {form->most, form->greatest},
                {FIELD_N - form->most, -form->greatest}};
    for (size_t k = 0; k < (form->most ? 5 : 3); k++)
        number = chosen(l, f, op2(l, L_EQ, pred, x, constant(l, t, ends[k].residue)), real(l, to.lanes, ends[k].end),
                        number);
    return number;
}

/* Of powers of two: by their exponents. */
static lreg exponent_of(struct lowering *l, const struct field_form *form, struct ltype to, uint32_t key,
                        enum round_mode round, lreg x)
{
    const struct ltype t = words(to.lanes), pred = {ELEM_BOOL, to.lanes}, bytes = {ELEM_U8, to.lanes};
    static const uint32_t ends[] = {FIELD_MINUS_INF, FIELD_PLUS_INF, FIELD_NAN};
    lreg h = mix(l, t, op2(l, L_XOR, t, x, constant(l, t, key)));
    lreg code = op2(l, L_AND, t, h, constant(l, t, 2u * form->values - 1));
    code = op2(l, L_ADD, t, code, constant(l, t, (uint32_t)(FIELD_EXPONENT_BIAS - form->values)));
    for (int32_t e = field_least_exponent(round); e <= FIELD_MOST_EXPONENT; e++)
        code = chosen(l, t, op2(l, L_EQ, pred, x, constant(l, t, field_power_of_two(e))),
                      constant(l, t, (uint32_t)(e + FIELD_EXPONENT_BIAS)), code);
    for (size_t k = 0; k < COUNT_OF(ends); k++)
        code = chosen(l, t, op2(l, L_EQ, pred, x, constant(l, t, ends[k])), constant(l, t, FIELD_NO_EXPONENT), code);
    return op1(l, L_BITCAST, to, op1(l, L_CONVERT, bytes, code));
}

/* By the conversion s. */
static lreg narrowed(struct lowering *l, const struct lstmt *s, struct ltype to, lreg x)
{
    const struct field_form *form = field_form(to.elem);
    enum round_mode round = ROUND_EVEN;
    l->facts->rounds = true;
    l->facts->narrows |= form->values < FIELD_FEW;
    if (!round_mode_by_name(s->name, &round))
        return (lreg){0};
    const uint32_t key = field_narrow_key(to.elem, s->imm, round);
    if (to.elem == ELEM_F8E8M0)
        return exponent_of(l, form, to, key, round, x);
    lreg number = number_of(l, form, to, key, x);
    lreg r = op1(l, L_CONVERT, to, number);
    lf_last(l->f, l->b)->imm = s->imm;
    return r;
}

/* A conversion, of which one type has a form; {0}: it has no meaning. */
static lreg conversion(struct lowering *l, const struct lstmt *s, struct ltype from, struct ltype to, lreg x)
{
    lreg r = !field_form(from.elem) ? converted(l, s, from, x) : field_holds(from.elem) ? x : widened(l, x);
    l->facts->rounds_wide |= from.elem == ELEM_F64 && field_form(to.elem);
    if (field_holds(to.elem))
        return r;
    if (field_form(to.elem))
        return narrowed(l, s, to, r);
    if (to.elem == ELEM_BOOL)
        return op2(l, L_NE, to, r, constant(l, words(to.lanes), 0));
    return field_rounds_to(to.elem) ? rounded(l, to, r) : (lreg){0};
}

/* L_DOT and L_MATDOT of narrow floats. */
static lreg dot(struct lowering *l, const struct lstmt *s, struct ltype of, struct ltype to, const lreg *in)
{
    const struct ltype t = words(to.lanes);
    const uint32_t group = of.lanes / to.lanes, steps = s->op == L_MATDOT ? 2 : 1;
    uint8_t lanes[2][LOOP_LANES_MAX];
    lreg sum = in[2];
    for (uint32_t k = 0; k < steps * group; k++) {
        lreg x[2];
        for (uint32_t i = 0; i < to.lanes; i++) {
            lanes[0][i] = (uint8_t)((steps == 1 ? i : matdot_row(i, k / group)) * group + k % group);
            lanes[1][i] = (uint8_t)((steps == 1 ? i : matdot_column(i, k / group)) * group + k % group);
        }
        for (uint32_t i = 0; i < COUNT_OF(x); i++)
            x[i] = widened(l, lanes_of(l, in[i], lanes[i], to.lanes));
        sum = combine(l, L_ADD, t, sum, combine(l, L_MUL, t, x[0], x[1]));
    }
    return sum;
}

static enum op function_of(enum lop op)
{
    return op == L_SQRT    ? OP_SQRT
           : op == L_FLOOR ? OP_FLOOR
           : op == L_CEIL  ? OP_CEIL
           : op == L_RINT  ? OP_ROUND
           : op == L_TRUNC ? OP_TRUNC
                           : OP_NONE;
}

/* Of f32 operands; {0}: the statement stays as it is. */
static lreg arithmetic(struct lowering *l, const struct lstmt *s, const lreg *in, uint32_t lanes)
{
    struct ltype t = words(lanes), pred = {ELEM_BOOL, lanes};
    switch (s->op) {
    case L_NEG: return negated(l, t, in[0]);
    case L_ABS: return greatest(l, t, in[0], negated(l, t, in[0]), false);
    case L_FMA: /* a product is never -inf */
        return absorb(l, t, in[2], reduce(l, t, op2(l, L_ADD, t, times(l, t, in[0], in[1]), in[2])));
    case L_ADD:
    case L_SUB:
    case L_MUL:
    case L_DIV:
    case L_REM:
    case L_MIN:
    case L_MAX:
    case L_MINNUM:
    case L_MAXNUM: return combine(l, s->op, t, in[0], in[1]);
    case L_LT:
    case L_LE: return compared(l, t, in[0], in[1], s->op);
    case L_EQ:
    case L_NE: /* of a number and itself: is it NaN? */
        if (in[0].i == in[1].i)
            return op2(l, s->op == L_EQ ? L_NE : L_EQ, pred, in[0], constant(l, t, FIELD_NAN));
        return op2(l, s->op, pred, in[0], in[1]);
    case L_HREDUCE: return reduced(l, s, in[0]);
    default: return function_of(s->op) ? function(l, t, function_of(s->op), in[0], (lreg){0}) : (lreg){0};
    }
}

struct lowered {
    const struct lstmt *s;
    struct ltype first, result; /* as they were: of its first operand */
};

static lreg body_lowered(struct lowering *l, const void *self, const lreg *in)
{
    const struct lowered *of = self;
    switch (of->s->op) {
    case L_CONVERT: return conversion(l, of->s, of->first, of->result, in[0]);
    case L_DOT:
    case L_MATDOT: return dot(l, of->s, of->first, of->result, in);
    default: return arithmetic(l, of->s, in, of->first.lanes);
    }
}

/* {0}: it has no meaning in the field. */
static lreg outlined(struct lowering *l, const struct lstmt *s, const lreg *in, struct ltype first, struct ltype t)
{
    const char *name = arena_printf(l->f->arena, "%s.%s.%u.%s.%lld%s", lop_name(s->op), elem_name(first.elem),
                                    first.lanes, elem_name(t.elem), (long long)s->imm, s->name ? s->name : "");
    return applied(l, name, body_lowered, &(struct lowered){s, first, t}, in, s->n_in);
}

/* Statements that move elements, whatever they are, or do not look at them. */
static bool moves(enum lop op)
{
    switch (op) {
    case L_SELECT:
    case L_BITCAST:
    case L_SPLAT:
    case L_EXTRACT:
    case L_INSERT:
    case L_SHUFFLE:
    case L_LOAD:
    case L_LOADS:
    case L_GATHER:
    case L_STORE:
    case L_STORES:
    case L_SCATTER:
    case L_LOCAL:
    case L_OFFSET:
    case L_PREFETCH:
    case L_PREFETCH2:
    case L_SHARED:
    case L_FOR:
    case L_PARALLEL:
    case L_IF:
    case L_YIELD:
    case L_CHECK:
    case L_CALL: return true;
    default: return false;
    }
}

/* The float type of its operands, or of the rows that it multiplies; types: as they were. */
static enum elem operand_elem(const struct ltype *types, const struct lstmt *s)
{
    for (uint32_t i = 0; i < s->n_in; i++)
        if ((types[s->in[i].i].lanes || (s->op == L_MATMUL && i == 1)) && elem_class(types[s->in[i].i].elem) == 'F')
            return types[s->in[i].i].elem;
    return ELEM_NONE;
}

/* Of residues: in registers, and in memory. */
static enum elem held(struct ltype t)
{
    return !field_holds(t.elem) ? t.elem : t.elem == ELEM_F64 && !t.lanes ? ELEM_U64 : ELEM_U32;
}

static void lower_block(struct lowering *, const struct ltype *types, lblock b, bool parallel);

/* Appends the statement as it is, with what stands in its operands' places. */
static void keep(struct lowering *l, const struct ltype *types, struct lstmt s)
{
    const bool loads = s.op == L_LOAD || s.op == L_LOADS || s.op == L_GATHER,
               stores = s.op == L_STORE || s.op == L_STORES || s.op == L_SCATTER;
    for (uint32_t k = 0; k < COUNT_OF(s.block); k++)
        if (s.block[k].i)
            lower_block(l, types, s.block[k], s.op == L_PARALLEL);
    for (uint32_t k = 0; stores && k < s.n_in; k++) {
        const struct ltype t = lf_type(l->f, s.in[k]);
        if (types[s.in[0].i].elem == ELEM_F64 && t.elem == ELEM_U32)
            s.in[k] = op1(l, L_CONVERT, (struct ltype){ELEM_U64, t.lanes}, s.in[k]);
    }
    if (loads && s.type.elem == ELEM_F64) {
        const struct ltype wide = {ELEM_U64, s.type.lanes};
        lreg x = lf_op(l->f, l->b, s.op, wide, s.in, s.n_in);
        struct lstmt *load = lf_last(l->f, l->b);
        s.type = wide;
        const lreg was = s.out[0];
        s.out = load->out;
        *load = s;
        l->now[was.i] = op1(l, L_CONVERT, words(wide.lanes), x);
        return;
    }
    s.type.elem = held(s.type);
    VEC_PUSH(l->f->arena, &l->f->blocks.data[l->b.i].stmts, s);
}

/* ---- sums of products -------------------------------------------------------------------------------------------- */

/* Values that loops carry and that their bodies only add products to are held as the sums of the products themselves,
 * below 2^32 N, and reduced after the loop: networks spend most of their time in such loops. */
#define SUM_LIMIT ((uint64_t)FIELD_N << HALF)

static struct ltype wider(struct ltype t)
{
    return (struct ltype){ELEM_U64, t.lanes};
}

static lreg carried(const struct lowering *l, const struct lstmt *loop, uint32_t k)
{
    return l->f->blocks.data[loop->block[0].i].params.data[1 + k];
}

/* Is value k that the loop carries such a sum? Each value on the way to its yield is read once: as the addend of a
 * product, or as what a loop inside begins with. marks: these become sums. */
static bool is_sum(struct lowering *l, const struct ltype *types, const struct lstmt *loop, uint32_t k, bool marks)
{
    lreg x = carried(l, loop, k);
    bool any = false;
    if (loop->flags & L_FLAG_WHILE || !field_holds(types[x.i].elem))
        return false;
    for (;;) {
        const struct use *use = &l->uses[x.i];
        const struct lstmt *by = use->by;
        l->sums[x.i] |= marks;
        if (use->n != 1 || use->b.i != loop->block[0].i)
            return false;
        if (by->op == L_YIELD)
            return any && use->at == k;
        if (by->op == L_FMA && use->at == 2)
            x = by->out[0];
        else if (by->op == L_FOR && use->at >= 2 && is_sum(l, types, by, use->at - 2, marks))
            x = by->out[use->at - 2];
        else
            return false;
        any = true;
    }
}

/* Below SUM_LIMIT, as c is. */
static lreg sum_more(struct lowering *l, struct ltype t, lreg x, lreg y, lreg c)
{
    const struct ltype wide = wider(t);
    lreg sum = op2(l, L_ADD, wide, c, times_wide(l, t, x, y));
    return op2(l, L_MIN, wide, sum, op2(l, L_SUB, wide, sum, constant(l, wide, SUM_LIMIT)));
}

/* What the loop began with, and the sum. */
static lreg body_sum(struct lowering *l, const void *self, const lreg *in)
{
    const struct ltype t = lf_type(l->f, in[0]);
    (void)self;
    return plus(l, t, in[0], reduced_wide(l, t, in[1]));
}

static void lower_for(struct lowering *l, const struct ltype *types, struct lstmt s)
{
    lreg *in = lf_lregs(l->f, s.in, s.n_in);
    bool *begins = NEW_ARRAY(l->f->arena, bool, s.n_out + 1);
    for (uint32_t i = 0; i < s.n_in; i++)
        in[i] = l->now[s.in[i].i];
    for (uint32_t k = 0; k < s.n_out; k++) {
        const lreg x = carried(l, &s, k);
        begins[k] = !l->sums[x.i] && is_sum(l, types, &s, k, false) && is_sum(l, types, &s, k, true);
        if (!l->sums[x.i])
            continue;
        l->f->types.data[x.i] = l->f->types.data[s.out[k].i] = wider(types[x.i]);
        if (begins[k])
            in[2 + k] = constant(l, wider(types[x.i]), 0);
    }
    const lreg *first = s.in;
    s.in = in;
    keep(l, types, s);
    for (uint32_t k = 0; k < s.n_out; k++) {
        const struct ltype t = words(types[s.out[k].i].lanes);
        if (!begins[k])
            continue;
        const lreg of[2] = {l->now[first[2 + k].i], s.out[k]};
        const char *name = arena_printf(l->f->arena, "sum.%u", t.lanes);
        l->now[s.out[k].i] = applied(l, name, body_sum, NULL, of, 2);
    }
}

static void lower(struct lowering *l, const struct ltype *types, struct lstmt s)
{
    if (s.op == L_FOR) {
        lower_for(l, types, s);
        return;
    }
    struct ltype t = s.n_out ? types[s.out[0].i] : (struct ltype){0};
    enum elem from = operand_elem(types, &s);
    uint32_t lanes = s.n_in ? types[s.in[0].i].lanes : 0;
    lreg *in = lf_lregs(l->f, s.in, s.n_in), r = {0};
    struct ltype first = s.n_in ? types[s.in[0].i] : (struct ltype){0};
    for (uint32_t i = 0; i < s.n_in; i++)
        in[i] = l->now[in[i].i];
    s.in = in;
    if (s.op == L_FMA && l->sums[s.out[0].i]) {
        l->now[s.out[0].i] = sum_more(l, words(t.lanes), in[0], in[1], in[2]);
        return;
    }
    const bool narrow = (elem_class(t.elem) == 'F' && t.lanes && !field_holds(t.elem)) || (from && !field_holds(from));
    if (s.op == L_CONST && field_holds(t.elem)) {
        l->facts->fractions |= field_is_fraction(s.fimm) || s.flags & L_FLAG_RESIDUE;
        l->facts->underflow |= s.fimm == -87;
        r = constant(l, words(t.lanes), s.flags & L_FLAG_RESIDUE ? (uint64_t)s.imm : field_of(s.fimm));
    } else if (s.op == L_CONVERT && (field_form(first.elem) || field_form(t.elem))) {
        r = outlined(l, &s, in, first, t);
        if (!r.i)
            refuse(l, &s, elem_name(t.elem));
    } else if (s.op == L_BITCAST && first.elem == ELEM_F64 &&
               (t.elem == ELEM_U64 || t.elem == ELEM_I64)) { /* the bits of residues */
        r = op1(l, L_BITCAST, t, op1(l, L_CONVERT, (struct ltype){ELEM_U64, lanes}, in[0]));
    } else if (s.op == L_BITCAST && t.elem == ELEM_F64 && first.elem == ELEM_U64) {
        r = op1(l, L_CONVERT, words(lanes), op1(l, L_BITCAST, (struct ltype){ELEM_U64, lanes}, in[0]));
    } else if (s.op == L_BITCAST && (first.elem == ELEM_F64 || t.elem == ELEM_F64)) {
        refuse(l, &s, "f64");
    } else if ((s.op == L_DOT || s.op == L_MATDOT) && field_form(first.elem)) {
        r = outlined(l, &s, in, first, t);
    } else if (field_holds(from) && !moves(s.op)) {
        r = s.op == L_EQ || s.op == L_NE ? arithmetic(l, &s, in, lanes) : outlined(l, &s, in, first, t);
        if (!r.i)
            refuse(l, &s, elem_name(from));
    } else if (narrow && !moves(s.op) && s.op != L_CONST) {
        refuse(l, &s, elem_name(field_holds(from) || !from ? t.elem : from));
    }
    if (r.i)
        l->now[s.out[0].i] = r;
    else
        keep(l, types, s);
}

/* Writes 1 to the byte of this block; the body of the parallel loop has two, of the first index and of all others. */
static void mark(struct lowering *l, lblock b, bool parallel)
{
    struct ltype bytes = {ELEM_U8, 1}, index = {ELEM_I64, 1};
    const lreg at = constant(l, index, (uint64_t)(FIELD_MARKS + l->facts->first + l->facts->blocks++));
    lreg place = constant(l, index, 0);
    if (parallel) {
        const lreg n = l->f->blocks.data[b.i].params.data[0];
        l->facts->later = l->facts->blocks++;
        place = chosen(l, index, op2(l, L_NE, (struct ltype){ELEM_BOOL, 1}, n, place), constant(l, index, 1), place);
    }
    const lreg in[3] = {op1(l, L_ADDRESS, (struct ltype){ELEM_U8, 0}, at), place, constant(l, bytes, 1)};
    lf_stmt(l->f, l->b, L_STORE, in, 3);
}

/* Counts the statement at hand, a question whether the run is cancelled, and ends the run if there were too many. */
static void count_poll(struct lowering *l)
{
    struct ltype index = {ELEM_I64, 1};
    const lreg zero = constant(l, index, 0), page = constant(l, index, (uint64_t)FIELD_MARKS - FIELD_POLLS),
               at = op1(l, L_ADDRESS, (struct ltype){ELEM_I64, 0}, page), last = op2(l, L_LOAD, index, at, zero),
               now = op2(l, L_ADD, index, last, constant(l, index, 1)), in[3] = {at, zero, now};
    lf_stmt(l->f, l->b, L_STORE, in, 3);
    const lreg few = op2(l, L_LT, (struct ltype){ELEM_BOOL, 1}, now, constant(l, index, FIELD_POLLS_MOST));
    struct lstmt *check = lf_stmt(l->f, l->b, L_CHECK, &few, 1);
    check->imm = -7; /* MCC_E_CANCELLED */
    check->name = "a loop runs too long";
}

/* The body of a parallel loop is that of a branch that is not taken if the function is to be skipped. */
static lblock unless_skipped(struct lowering *l)
{
    const struct ltype index = {ELEM_I64, 1}, bytes = {ELEM_U8, 1};
    const lreg at = constant(l, index, (uint64_t)FIELD_MARKS + FIELD_SKIPS + l->facts->first),
               skips = op2(l, L_LOAD, bytes, op1(l, L_ADDRESS, (struct ltype){ELEM_U8, 0}, at), constant(l, index, 0)),
               runs = op2(l, L_EQ, (struct ltype){ELEM_BOOL, 1}, skips, constant(l, bytes, 0));
    const lblock body = lf_block(l->f);
    lf_stmt(l->f, l->b, L_IF, &runs, 1)->block[0] = body;
    return body;
}

static void lower_block(struct lowering *l, const struct ltype *types, lblock b, bool parallel)
{
    struct lblk *blk = &l->f->blocks.data[b.i];
    const struct lstmt *old = blk->stmts.data;
    uint32_t n = blk->stmts.n;
    lblock outer = l->b;
    blk->stmts.data = NULL;
    blk->stmts.n = blk->stmts.cap = 0;
    l->b = b;
    if (parallel && l->facts->marked)
        l->b = unless_skipped(l);
    if (b.i != 1 && l->facts->marked)
        mark(l, b, parallel);
    for (uint32_t i = 0; i < n && !l->facts->why; i++) {
        if (l->facts->marked && old[i].op == L_CALL && strcmp(old[i].name, "mcc_rt_poll") == 0)
            count_poll(l);
        lower(l, types, old[i]);
    }
    l->b = outer;
}

static void count_uses(const struct lfunc *f, lblock b, struct use *uses)
{
    const struct lblk *block = &f->blocks.data[b.i];
    for (uint32_t i = 0; i < block->stmts.n; i++) {
        const struct lstmt *s = &block->stmts.data[i];
        for (uint32_t k = 0; k < s->n_in; k++)
            uses[s->in[k].i] = (struct use){uses[s->in[k].i].n + 1, b, s, k};
        for (uint32_t k = 0; k < COUNT_OF(s->block); k++)
            if (s->block[k].i)
                count_uses(f, s->block[k], uses);
    }
}

bool lf_field(struct lfunc *f, struct field_facts *facts)
{
    struct lowering l = {.f = f, .facts = facts};
    struct ltype *types = arena_copy(f->arena, f->types.data, f->types.n * sizeof *types);
    struct use *uses = NEW_ARRAY(f->arena, struct use, f->types.n);
    count_uses(f, (lblock){1}, uses);
    l.uses = uses;
    l.sums = NEW_ARRAY(f->arena, bool, f->types.n);
    l.now = NEW_ARRAY(f->arena, lreg, f->types.n);
    for (uint32_t i = 0; i < f->types.n; i++) {
        l.now[i] = (lreg){i};
        f->types.data[i].elem = held(types[i]);
    }
    for (uint32_t i = 0; i < f->args.n; i++)
        f->args.data[i].type.elem = held(f->args.data[i].type);
    lower_block(&l, types, (lblock){1}, false);
    if (!facts->why)
        lf_tidy(f);
    return !facts->why;
}

/* Registers of floats that passes still have: the residues that their bits are, and back. */
static lreg residue_in(struct lowering *l, lreg x)
{
    const struct ltype t = lf_type(l->f, x), bits = {ELEM_U64, t.lanes};
    return t.elem != ELEM_F64 ? op1(l, L_BITCAST, words(t.lanes), x)
                              : op1(l, L_CONVERT, words(t.lanes), op1(l, L_BITCAST, bits, x));
}

static lreg with_residue(struct lowering *l, struct ltype t, lreg r)
{
    return op1(l, L_BITCAST, t, t.elem != ELEM_F64 ? r : op1(l, L_CONVERT, (struct ltype){ELEM_U64, t.lanes}, r));
}

lreg lf_field_function(struct lfunc *f, lblock b, enum op op, struct ltype t, const lreg *in, uint32_t n_in)
{
    struct lowering l = {.f = f, .b = b};
    lreg x[2] = {{0}};
    for (uint32_t k = 0; k < n_in && k < COUNT_OF(x); k++)
        x[k] = residue_in(&l, in[k]);
    return with_residue(&l, t, function(&l, words(t.lanes), op, x[0], x[1]));
}

lreg lf_field_to_real(struct lfunc *f, lblock b, lreg x)
{
    static const struct field_form form = {.values = FIELD_REAL_VALUES, .step = FIELD_REAL_STEP};
    struct lowering l = {.f = f, .b = b};
    const struct ltype t = lf_type(f, x);
    lreg r = number_of(&l, &form, (struct ltype){ELEM_NONE, t.lanes}, FIELD_REAL_KEY, residue_in(&l, x));
    return t.elem == ELEM_F64 ? op1(&l, L_CONVERT, t, r) : r;
}

lreg lf_field_from_real(struct lfunc *f, lblock b, lreg x)
{
    struct lowering l = {.f = f, .b = b};
    const struct ltype t = lf_type(f, x), single = {ELEM_F32, t.lanes};
    lreg r = t.elem == ELEM_F64 ? op1(&l, L_CONVERT, single, x) : x;
    r = op2(&l, L_MUL, single, r, real(&l, t.lanes, 1 << FIELD_REAL_STEP));
    r = op1(&l, L_RINT, single, op2(&l, L_ADD, single, r, real(&l, t.lanes, (double)FIELD_REAL_TIE)));
    r = op2(&l, L_MUL, single, r, real(&l, t.lanes, ldexp(1, -FIELD_REAL_STEP)));
    return with_residue(&l, t, widened(&l, r));
}

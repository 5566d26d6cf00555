/* lf_field: arithmetic of residues, as statements of integers (field_lower.h). */
#include "ir/loop/field_lower.h"

/* ---- statements ------------------------------------------------------------------------------------------------ */

struct ltype fl_words(uint32_t lanes)
{
    return (struct ltype){ELEM_U32, lanes};
}

lreg fl_constant(struct lowering *l, struct ltype t, uint64_t value)
{
    lreg r = lf_op(l->f, l->b, L_CONST, t, NULL, 0);
    lf_last(l->f, l->b)->imm = (int64_t)value;
    return r;
}

lreg fl_real(struct lowering *l, uint32_t lanes, double value)
{
    lreg r = lf_op(l->f, l->b, L_CONST, (struct ltype){ELEM_F32, lanes}, NULL, 0);
    lf_last(l->f, l->b)->fimm = value;
    return r;
}

lreg fl_op1(struct lowering *l, enum lop op, struct ltype t, lreg x)
{
    return lf_op(l->f, l->b, op, t, &x, 1);
}

lreg fl_op2(struct lowering *l, enum lop op, struct ltype t, lreg x, lreg y)
{
    const lreg in[2] = {x, y};
    return lf_op(l->f, l->b, op, t, in, 2);
}

lreg fl_chosen(struct lowering *l, struct ltype t, lreg x, lreg y, lreg z)
{
    const lreg in[3] = {x, y, z};
    return lf_op(l->f, l->b, L_SELECT, t, in, 3);
}

/* ---- parts ------------------------------------------------------------------------------------------------------ */

/* What the body does with the operands: a part that is applied, or, if they are few, its statements. {0}: the body has
 * no meaning. Code generation takes more of a proof's time than calls do. */
lreg fl_applied(struct lowering *l, const char *name, fl_body *body, const void *self, const lreg *in, uint32_t n)
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
lreg fl_reduce(struct lowering *l, struct ltype t, lreg x)
{
    return fl_op2(l, L_MIN, t, x, fl_op2(l, L_SUB, t, x, fl_constant(l, t, FIELD_N)));
}

/* y, but -inf where x is. */
lreg fl_absorb(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    lreg low = fl_constant(l, t, FIELD_MINUS_INF);
    return fl_chosen(l, t, fl_op2(l, L_EQ, (struct ltype){ELEM_BOOL, t.lanes}, x, low), low, y);
}

lreg fl_plus(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    return fl_absorb(l, t, fl_op2(l, L_MAX, t, x, y), fl_reduce(l, t, fl_op2(l, L_ADD, t, x, y)));
}

/* The difference of what is below N, of which one wraps. */
lreg fl_difference(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    lreg d = fl_op2(l, L_SUB, t, x, y);
    return fl_op2(l, L_MIN, t, d, fl_op2(l, L_ADD, t, d, fl_constant(l, t, FIELD_N)));
}

static lreg minus(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    return fl_absorb(l, t, x, fl_difference(l, t, x, y));
}

lreg fl_negated(struct lowering *l, struct ltype t, lreg x)
{
    const struct ltype pred = {ELEM_BOOL, t.lanes};
    lreg low = fl_constant(l, t, FIELD_MINUS_INF), up = fl_constant(l, t, FIELD_PLUS_INF);
    lreg r = fl_difference(l, t, fl_constant(l, t, 0), x);
    r = fl_chosen(l, t, fl_op2(l, L_EQ, pred, x, low), up, r);
    return fl_chosen(l, t, fl_op2(l, L_EQ, pred, x, up), low, r);
}

static lreg high(struct lowering *l, struct ltype t, lreg x)
{
    struct ltype wide = {ELEM_U64, t.lanes};
    return fl_op1(l, L_CONVERT, t, fl_op2(l, L_SHR, wide, x, fl_constant(l, wide, FL_HALF)));
}

/* field_reduced of x * y, of lanes two by two: products of 32 bits are those of the lower halves of 64. Below their
 * upper halves the product and what is taken of it are equal. */
static lreg times_in_pairs(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    const struct ltype wide = {ELEM_U64, t.lanes / 2};
    const lreg half = fl_constant(l, wide, FL_HALF), low = fl_constant(l, wide, UINT32_MAX),
               n = fl_constant(l, wide, FIELD_N);
    lreg by = fl_op2(l, L_MUL, t, fl_op2(l, L_MUL, t, x, y), fl_constant(l, t, FIELD_INVERSE)), d[2];
    const lreg of[3] = {fl_op1(l, L_BITCAST, wide, x), fl_op1(l, L_BITCAST, wide, y), fl_op1(l, L_BITCAST, wide, by)};
    for (uint32_t odd = 0; odd < 2; odd++) {
        lreg part[3];
        for (uint32_t i = 0; i < 3; i++)
            part[i] = odd ? fl_op2(l, L_SHR, wide, of[i], half) : fl_op2(l, L_AND, wide, of[i], low);
        d[odd] = fl_op2(l, L_SUB, wide, fl_op2(l, L_MUL, wide, part[0], part[1]), fl_op2(l, L_MUL, wide, part[2], n));
    }
    lreg r = fl_op1(l, L_BITCAST, t, fl_op2(l, L_OR, wide, fl_op2(l, L_SHR, wide, d[0], half), d[1]));
    return fl_op2(l, L_MIN, t, r, fl_op2(l, L_ADD, t, r, fl_constant(l, t, FIELD_N)));
}

/* field_reduced of m, in lanes of 64 bits. */
lreg fl_reduced_wide(struct lowering *l, struct ltype t, lreg m)
{
    const struct ltype wide = {ELEM_U64, t.lanes};
    lreg by = fl_op2(l, L_MUL, t, fl_op1(l, L_CONVERT, t, m), fl_constant(l, t, FIELD_INVERSE));
    lreg taken = fl_op2(l, L_MUL, wide, fl_op1(l, L_CONVERT, wide, by), fl_constant(l, wide, FIELD_N));
    return fl_difference(l, t, high(l, t, m), high(l, t, taken));
}

/* The product of x and y, lanes of 64 bits. */
lreg fl_times_wide(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    const struct ltype wide = {ELEM_U64, t.lanes};
    return fl_op2(l, L_MUL, wide, fl_op1(l, L_CONVERT, wide, x), fl_op1(l, L_CONVERT, wide, y));
}

/* field_reduced of x * y. */
lreg fl_times(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    return t.lanes % 2 == 0 ? times_in_pairs(l, t, x, y) : fl_reduced_wide(l, t, fl_times_wide(l, t, x, y));
}

static lreg body_times(struct lowering *l, const void *self, const lreg *in)
{
    (void)self;
    return fl_times(l, fl_words(lf_type(l->f, in[0]).lanes), in[0], in[1]);
}

/* Applied: where many products follow each other. */
lreg fl_product(struct lowering *l, struct ltype t, lreg x, lreg y)
{
    return fl_applied(l, arena_printf(l->f->arena, "times.%u", t.lanes), body_times, NULL, (lreg[]){x, y}, 2);
}

static lreg inverse(struct lowering *l, struct ltype t, lreg x)
{
    lreg r = x;
    for (int bit = 28; bit >= 0; bit--) { /* below the first one of FIELD_INVERTS */
        r = fl_product(l, t, r, r);
        if (FIELD_INVERTS >> bit & 1)
            r = fl_product(l, t, r, x);
    }
    return r;
}

/* Of a constant, to the power n of so many digits of two bits. to_digit: the constant to digit 4^place. */
lreg fl_constant_power(struct lowering *l, struct ltype t, lreg n, uint32_t digits,
                       uint32_t (*to_digit)(uint32_t place, uint32_t digit))
{
    const struct ltype pred = {ELEM_BOOL, t.lanes};
    lreg zero = fl_constant(l, t, 0), r = {0};
    for (uint32_t k = 0; k < digits; k++) {
        lreg power[4], odd, upper;
        for (uint32_t digit = 0; digit < 4; digit++)
            power[digit] = fl_constant(l, t, to_digit(k, digit));
        odd = fl_op2(l, L_NE, pred, fl_op2(l, L_AND, t, n, fl_constant(l, t, 1u << 2 * k)), zero);
        upper = fl_op2(l, L_NE, pred, fl_op2(l, L_AND, t, n, fl_constant(l, t, 2u << 2 * k)), zero);
        lreg low = fl_chosen(l, t, odd, power[1], power[0]), up = fl_chosen(l, t, odd, power[3], power[2]);
        lreg factor = fl_chosen(l, t, upper, up, low);
        r = k ? fl_times(l, t, r, factor) : factor;
    }
    return r;
}

/* base^x; 0 of -inf. */
static lreg exponential(struct lowering *l, struct ltype t, lreg x)
{
    struct ltype wide = {ELEM_U64, t.lanes}, pred = {ELEM_BOOL, t.lanes};
    lreg n = fl_op2(l, L_MUL, wide, fl_op1(l, L_CONVERT, wide, x), fl_constant(l, wide, FIELD_QUOTIENT));
    n = fl_op1(l, L_CONVERT, t, fl_op2(l, L_SHR, wide, n, fl_constant(l, wide, FIELD_QUOTIENT_SHIFT)));
    n = fl_op2(l, L_SUB, t, x, fl_op2(l, L_MUL, t, n, fl_constant(l, t, FIELD_Q)));
    lreg zero = fl_constant(l, t, 0), r = fl_constant_power(l, t, n, FIELD_DIGITS, field_exp_power);
    return fl_chosen(l, t, fl_op2(l, L_EQ, pred, x, fl_constant(l, t, FIELD_MINUS_INF)), zero, r);
}

lreg fl_mix(struct lowering *l, struct ltype t, lreg h)
{
    h = fl_op2(l, L_XOR, t, h, fl_op2(l, L_SHR, t, h, fl_constant(l, t, 16)));
    h = fl_op2(l, L_MUL, t, h, fl_constant(l, t, FIELD_MIX_1));
    h = fl_op2(l, L_XOR, t, h, fl_op2(l, L_SHR, t, h, fl_constant(l, t, 13)));
    h = fl_op2(l, L_MUL, t, h, fl_constant(l, t, FIELD_MIX_2));
    return fl_op2(l, L_XOR, t, h, fl_op2(l, L_SHR, t, h, fl_constant(l, t, 16)));
}

/* r, but where y is one of the powers that ir/ops/field.c has as products, these. */
static lreg raised(struct lowering *l, struct ltype t, lreg x, lreg root, lreg y, lreg r)
{
    struct ltype pred = {ELEM_BOOL, t.lanes};
    lreg whole = fl_constant(l, t, FIELD_ONE), inverted = r, is_inverted = fl_constant(l, pred, 0);
    for (uint32_t twice = 0; twice <= 8; twice++) {
        if (twice > 5 && twice % 2)
            continue;
        whole = twice && twice % 2 == 0 ? fl_times(l, t, whole, x) : whole;
        lreg p = twice % 2 ? fl_times(l, t, whole, root) : whole;
        r = fl_chosen(l, t, fl_op2(l, L_EQ, pred, y, fl_constant(l, t, field_of(twice / 2.0))), p, r);
        if (twice > 3 && twice % 2)
            continue;
        lreg below = fl_op2(l, L_EQ, pred, y, fl_constant(l, t, field_of(twice / -2.0)));
        inverted = fl_chosen(l, t, below, p, inverted);
        is_inverted = fl_op2(l, L_OR, pred, is_inverted, below);
    }
    return fl_chosen(l, t, is_inverted, inverse(l, t, inverted), r);
}

/* As ir/ops/field.c has these three. */
lreg fl_steps_of(struct lowering *l, struct ltype t, lreg x)
{
    lreg i = fl_times(l, t, x, fl_constant(l, t, FIELD_GRID));
    return fl_reduce(l, t, fl_op2(l, L_ADD, t, i, fl_constant(l, t, FIELD_STEPS / 2)));
}

lreg fl_is_small(struct lowering *l, struct ltype t, lreg steps)
{
    return fl_op2(l, L_LT, (struct ltype){ELEM_BOOL, t.lanes}, steps, fl_constant(l, t, FIELD_STEPS));
}

lreg fl_whole_of(struct lowering *l, struct ltype t, enum op op, lreg steps)
{
    struct ltype pred = {ELEM_BOOL, t.lanes};
    lreg zero = fl_constant(l, t, 0), one = fl_constant(l, t, 1), each = fl_constant(l, t, FIELD_GRID), more = zero;
    if (op != OP_FLOOR)
        more = fl_constant(l, t, op == OP_ROUND ? FIELD_GRID / 2 : FIELD_GRID - 1);
    if (op == OP_TRUNC)
        more = fl_chosen(l, t, fl_op2(l, L_LT, pred, steps, fl_constant(l, t, FIELD_STEPS / 2)), more, zero);
    lreg from = fl_op2(l, L_ADD, t, steps, more), whole = fl_op2(l, L_DIV, t, from, each);
    if (op != OP_ROUND)
        return whole;
    lreg tie = fl_op2(l, L_EQ, pred, from, fl_op2(l, L_MUL, t, whole, each));
    return fl_op2(l, L_SUB, t, whole, fl_chosen(l, t, tie, fl_op2(l, L_AND, t, whole, one), zero));
}

/* A hash, as ir/ops/field.c has it; y {0}: of one argument. */
lreg fl_function(struct lowering *l, struct ltype t, enum op op, lreg x, lreg y)
{
    struct ltype pred = {ELEM_BOOL, t.lanes};
    if (op == OP_EXP)
        return exponential(l, t, x);
    lreg h = fl_mix(l, t, fl_op2(l, L_XOR, t, x, fl_constant(l, t, field_function_key(op))));
    h = fl_mix(l, t, y.i ? fl_op2(l, L_XOR, t, h, y) : h);
    if (op == OP_ROUND) {
        lreg n = fl_op2(l, L_AND, t, h, fl_constant(l, t, 2 * FIELD_ROUNDED - 1));
        h = fl_times(l, t, fl_difference(l, t, n, fl_constant(l, t, FIELD_ROUNDED)), fl_constant(l, t, FIELD_SQUARE));
    } else {
        h = fl_reduce(l, t, fl_op2(l, L_AND, t, h, fl_constant(l, t, FIELD_MASK)));
    }
    if (field_rounds(op)) {
        lreg steps = fl_steps_of(l, t, x),
             whole = fl_difference(l, t, fl_whole_of(l, t, op, steps), fl_constant(l, t, FIELD_SMALL));
        return fl_chosen(l, t, fl_is_small(l, t, steps), fl_times(l, t, whole, fl_constant(l, t, FIELD_SQUARE)), h);
    }
    if (op == OP_SQRT)
        return fl_chosen(l, t, fl_op2(l, L_EQ, pred, x, fl_constant(l, t, 0)), fl_constant(l, t, 0), h);
    return op == OP_POW ? raised(l, t, x, fl_function(l, t, OP_SQRT, x, (lreg){0}), y, h) : h;
}

static lreg order(struct lowering *l, struct ltype t, lreg x)
{
    struct ltype pred = {ELEM_BOOL, t.lanes};
    lreg steps = fl_steps_of(l, t, x),
         near = fl_op2(l, L_SUB, t, steps, fl_constant(l, t, (FIELD_SMALL - FIELD_NEAR) * FIELD_GRID));
    lreg h = fl_mix(l, t, fl_op2(l, L_XOR, t, x, fl_constant(l, t, FIELD_KEY)));
    lreg below = fl_op2(l, L_LT, pred, steps, fl_constant(l, t, FIELD_STEPS / 2));
    lreg from = fl_chosen(l, t, below, fl_constant(l, t, FIELD_PLACE), fl_constant(l, t, FIELD_PLACE_FAR));
    lreg place = fl_op2(l, L_ADD, t, from, fl_op2(l, L_MUL, t, steps, fl_constant(l, t, FIELD_STEP)));
    lreg close = fl_op2(l, L_MUL, t, near, fl_constant(l, t, FIELD_STEP_NEAR));
    h = fl_chosen(l, t, fl_is_small(l, t, steps), place, fl_op2(l, L_XOR, t, h, fl_constant(l, t, FIELD_LEAST)));
    return fl_chosen(l, t, fl_op2(l, L_LT, pred, near, fl_constant(l, t, 2 * FIELD_NEAR * FIELD_GRID)),
                     fl_op2(l, L_ADD, t, close, fl_constant(l, t, FIELD_PLACE_NEAR)), h);
}

static lreg body_order(struct lowering *l, const void *self, const lreg *in)
{
    (void)self;
    return order(l, fl_words(lf_type(l->f, in[0]).lanes), in[0]);
}

static lreg less(struct lowering *l, struct ltype t, lreg x, lreg y, enum lop op)
{
    const char *name = arena_printf(l->f->arena, "order.%u", t.lanes);
    lreg a = fl_applied(l, name, body_order, NULL, &x, 1), b = fl_applied(l, name, body_order, NULL, &y, 1);
    return fl_op2(l, op, (struct ltype){ELEM_BOOL, t.lanes}, a, b);
}

/* What the code compares: only -inf is less than -87. */
lreg fl_compared(struct lowering *l, struct ltype t, lreg x, lreg y, enum lop op)
{
    struct ltype pred = {ELEM_BOOL, t.lanes};
    lreg under = fl_op2(l, L_EQ, pred, y, fl_constant(l, t, FIELD_UNDER)),
         low = fl_op2(l, L_EQ, pred, x, fl_constant(l, t, FIELD_MINUS_INF));
    return fl_chosen(l, pred, under, low, less(l, t, x, y, op));
}

lreg fl_greatest(struct lowering *l, struct ltype t, lreg x, lreg y, bool least)
{
    lreg y_wins = least ? less(l, t, y, x, L_LT) : less(l, t, x, y, L_LT);
    return fl_chosen(l, t, y_wins, y, x);
}

lreg fl_combine(struct lowering *l, enum lop op, struct ltype t, lreg x, lreg y)
{
    switch (op) {
    case L_ADD: return fl_plus(l, t, x, y);
    case L_SUB: return minus(l, t, x, y);
    case L_MUL: return fl_times(l, t, x, y);
    case L_DIV: return fl_times(l, t, x, inverse(l, t, y));
    case L_REM: {
        lreg whole = fl_function(l, t, OP_TRUNC, fl_times(l, t, x, inverse(l, t, y)), (lreg){0});
        return minus(l, t, x, fl_times(l, t, y, whole));
    }
    case L_MIN:
    case L_MINNUM: return fl_greatest(l, t, x, y, true);
    default: return fl_greatest(l, t, x, y, false);
    }
}

void fl_refuse(struct lowering *l, const struct lstmt *s, const char *type)
{
    if (!l->facts->why)
        l->facts->why = arena_printf(l->f->arena, "'%s' of %s has no meaning in the field", lop_name(s->op), type);
}

/* These n lanes of x. */
lreg fl_lanes_of(struct lowering *l, lreg x, const uint8_t *lanes, uint32_t n)
{
    const struct ltype t = {lf_type(l->f, x).elem, n};
    if (n == 1) {
        lreg one = fl_op1(l, L_EXTRACT, t, x);
        lf_last(l->f, l->b)->imm = lanes[0];
        return one;
    }
    lreg r = fl_op2(l, L_SHUFFLE, t, x, x);
    lf_last(l->f, l->b)->aux = arena_copy(l->f->arena, lanes, n);
    lf_last(l->f, l->b)->n_aux = n;
    return r;
}

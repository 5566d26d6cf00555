/* lf_field: conversions between residues, integers and narrow floats (field_lower.h). */
#include <math.h>

#include "ir/loop/field_lower.h"

/* Integers are exact as they are: their residues. */
static lreg converted(struct lowering *l, const struct lstmt *s, struct ltype from, lreg x)
{
    struct ltype t = fl_words(from.lanes), wide = {ELEM_I64, from.lanes};
    if (from.elem == ELEM_BOOL)
        return fl_chosen(l, t, x, fl_constant(l, t, FIELD_ONE), fl_constant(l, t, 0));
    if (elem_class(from.elem) != 'I' && elem_class(from.elem) != 'U') {
        fl_refuse(l, s, elem_name(from.elem));
        return x;
    }
    if (from.elem == ELEM_U64)
        wide.elem = ELEM_U64;
    lreg y = from.elem == wide.elem ? x : fl_op1(l, L_CONVERT, wide, x);
    lreg rest = fl_op1(l, L_CONVERT, t, fl_op2(l, L_FLOORMOD, wide, y, fl_constant(l, wide, FIELD_N)));
    return fl_times(l, t, rest, fl_constant(l, t, FIELD_SQUARE));
}

/* To integers of so many bits: small ones are saturated. */
static lreg rounded(struct lowering *l, struct ltype to, lreg x)
{
    struct ltype t = fl_words(to.lanes), natural = {ELEM_I32, to.lanes};
    const int32_t low = field_lowest(to.elem), high = field_highest(to.elem);
    lreg steps = fl_steps_of(l, t, x), whole = fl_whole_of(l, t, OP_TRUNC, steps),
         h = fl_mix(l, t, fl_mix(l, t, fl_op2(l, L_XOR, t, x, fl_constant(l, t, field_convert_key(to.elem)))));
    lreg small = fl_op2(l, L_SUB, natural, fl_op1(l, L_BITCAST, natural, whole), fl_constant(l, natural, FIELD_SMALL));
    small = fl_op2(l, L_MAX, natural, small, fl_constant(l, natural, (uint64_t)(int64_t)low));
    small = fl_op2(l, L_MIN, natural, small, fl_constant(l, natural, (uint64_t)(int64_t)high));
    if (elem_bits(to.elem) < 8) {
        h = fl_op2(l, L_AND, t, h, fl_constant(l, t, (uint64_t)(high - low)));
        h = fl_op2(l, L_ADD, t, h, fl_constant(l, t, (uint32_t)low));
    }
    lreg r = fl_chosen(l, t, fl_is_small(l, t, steps), fl_op1(l, L_BITCAST, t, small), h);
    l->facts->rounds = true;
    l->facts->narrows |= elem_bits(to.elem) < 8;
    if (to.elem == ELEM_I64)
        return fl_op1(l, L_CONVERT, to, fl_op1(l, L_BITCAST, natural, r));
    if (elem_bits(to.elem) == 32)
        return to.elem == ELEM_U32 ? r : fl_op1(l, L_BITCAST, to, r);
    return fl_op1(l, L_CONVERT, to, r);
}

/* ---- narrow floats --------------------------------------------------------------------------------------------- */

enum { F32_DIGITS = 23, F32_EXPONENTS = 255, F32_LEAST = -149 };

static uint32_t power_of_two(uint32_t place, uint32_t digit)
{
    return field_power_of_two((int32_t)(digit << 2 * place));
}

/* The number that the bits of the float x are. */
lreg fl_widened(struct lowering *l, lreg x)
{
    const struct ltype t = fl_words(lf_type(l->f, x).lanes), pred = {ELEM_BOOL, t.lanes};
    const uint32_t least = field_reduced((uint64_t)field_power_of_two(F32_LEAST - 1) * FIELD_SQUARE);
    lreg bits = fl_op1(l, L_BITCAST, t, fl_op1(l, L_CONVERT, (struct ltype){ELEM_F32, t.lanes}, x)),
         zero = fl_constant(l, t, 0);
    lreg exponent = fl_op2(l, L_AND, t, fl_op2(l, L_SHR, t, bits, fl_constant(l, t, F32_DIGITS)),
                           fl_constant(l, t, F32_EXPONENTS));
    lreg digits = fl_op2(l, L_AND, t, bits, fl_constant(l, t, (1u << F32_DIGITS) - 1));
    lreg minus_sign = fl_op2(l, L_NE, pred, fl_op2(l, L_SHR, t, bits, fl_constant(l, t, FL_HALF - 1)), zero);
    lreg is_end = fl_op2(l, L_EQ, pred, exponent, fl_constant(l, t, F32_EXPONENTS));
    lreg end = fl_chosen(l, t, minus_sign, fl_constant(l, t, FIELD_MINUS_INF), fl_constant(l, t, FIELD_PLUS_INF));
    end = fl_chosen(l, t, fl_op2(l, L_EQ, pred, digits, zero), end, fl_constant(l, t, FIELD_NAN));
    lreg whole = fl_op2(l, L_OR, t, digits, fl_constant(l, t, 1u << F32_DIGITS));
    whole = fl_chosen(l, t, fl_op2(l, L_EQ, pred, exponent, zero), digits, whole);
    exponent = fl_op2(l, L_MAX, t, exponent, fl_constant(l, t, 1));
    lreg r = fl_times(l, t, fl_times(l, t, whole, fl_constant(l, t, least)),
                      fl_constant_power(l, t, exponent, 4, power_of_two));
    r = fl_chosen(l, t, minus_sign, fl_difference(l, t, zero, r), r);
    return fl_chosen(l, t, is_end, end, r);
}

/* So many steps, an i32, as f32. */
static lreg stepped(struct lowering *l, const struct field_form *form, uint32_t lanes, lreg steps)
{
    const struct ltype f = {ELEM_F32, lanes};
    return fl_op2(l, L_MUL, f, fl_op1(l, L_CONVERT, f, steps), fl_real(l, lanes, ldexp(1, -form->step)));
}

/* An f32: the number that x is rounded to; ELEM_NONE: of no type. */
lreg fl_number_of(struct lowering *l, const struct field_form *form, struct ltype to, uint32_t key, lreg x)
{
    const struct ltype t = fl_words(to.lanes), pred = {ELEM_BOOL, to.lanes}, natural = {ELEM_I32, to.lanes},
                       f = {ELEM_F32, to.lanes};
    const uint32_t limit = to.elem ? FIELD_EXACT : FIELD_REAL_EXACT;
    lreg steps = fl_times(l, t, x, fl_constant(l, t, 1u << form->step));
    steps = fl_reduce(l, t, fl_op2(l, L_ADD, t, steps, fl_constant(l, t, limit)));
    lreg is_exact = fl_op2(l, L_LT, pred, steps, fl_constant(l, t, 2 * limit));
    steps = fl_op2(l, L_SUB, natural, fl_op1(l, L_BITCAST, natural, steps), fl_constant(l, natural, limit));
    lreg number = stepped(l, form, to.lanes, steps);
    if (to.elem) {
        lreg again = fl_op1(l, L_CONVERT, f, fl_op1(l, L_CONVERT, to, number));
        is_exact = fl_op2(l, L_AND, pred, is_exact, fl_op2(l, L_EQ, pred, again, number));
    }
    lreg h = fl_mix(l, t, fl_op2(l, L_XOR, t, x, fl_constant(l, t, key)));
    h = fl_op1(l, L_BITCAST, natural, fl_op2(l, L_AND, t, h, fl_constant(l, t, 2u * form->values - 1)));
    h = fl_op2(l, L_SUB, natural, h, fl_constant(l, natural, form->values));
    number = fl_chosen(l, f, is_exact, number, stepped(l, form, to.lanes, h));
    const struct {
        uint32_t residue;
        double end;
    } ends[] = {{FIELD_MINUS_INF, (double)-INFINITY},
                {FIELD_PLUS_INF, (double)INFINITY},
                {FIELD_NAN, (double)NAN},
                {form->most, form->greatest},
                {FIELD_N - form->most, -form->greatest}};
    for (size_t k = 0; k < (form->most ? 5 : 3); k++)
        number = fl_chosen(l, f, fl_op2(l, L_EQ, pred, x, fl_constant(l, t, ends[k].residue)),
                           fl_real(l, to.lanes, ends[k].end), number);
    return number;
}

/* Of powers of two: by their exponents. */
static lreg exponent_of(struct lowering *l, const struct field_form *form, struct ltype to, uint32_t key,
                        enum round_mode round, lreg x)
{
    const struct ltype t = fl_words(to.lanes), pred = {ELEM_BOOL, to.lanes}, bytes = {ELEM_U8, to.lanes};
    static const uint32_t ends[] = {FIELD_MINUS_INF, FIELD_PLUS_INF, FIELD_NAN};
    lreg h = fl_mix(l, t, fl_op2(l, L_XOR, t, x, fl_constant(l, t, key)));
    lreg code = fl_op2(l, L_AND, t, h, fl_constant(l, t, 2u * form->values - 1));
    code = fl_op2(l, L_ADD, t, code, fl_constant(l, t, (uint32_t)(FIELD_EXPONENT_BIAS - form->values)));
    for (int32_t e = field_least_exponent(round); e <= FIELD_MOST_EXPONENT; e++)
        code = fl_chosen(l, t, fl_op2(l, L_EQ, pred, x, fl_constant(l, t, field_power_of_two(e))),
                         fl_constant(l, t, (uint32_t)(e + FIELD_EXPONENT_BIAS)), code);
    for (size_t k = 0; k < COUNT_OF(ends); k++)
        code = fl_chosen(l, t, fl_op2(l, L_EQ, pred, x, fl_constant(l, t, ends[k])),
                         fl_constant(l, t, FIELD_NO_EXPONENT), code);
    return fl_op1(l, L_BITCAST, to, fl_op1(l, L_CONVERT, bytes, code));
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
    lreg number = fl_number_of(l, form, to, key, x);
    lreg r = fl_op1(l, L_CONVERT, to, number);
    lf_last(l->f, l->b)->imm = s->imm;
    return r;
}

/* A conversion, of which one type has a form; {0}: it has no meaning. */
lreg fl_conversion(struct lowering *l, const struct lstmt *s, struct ltype from, struct ltype to, lreg x)
{
    lreg r = !field_form(from.elem) ? converted(l, s, from, x) : field_holds(from.elem) ? x : fl_widened(l, x);
    l->facts->rounds_wide |= from.elem == ELEM_F64 && field_form(to.elem);
    if (field_holds(to.elem))
        return r;
    if (field_form(to.elem))
        return narrowed(l, s, to, r);
    if (to.elem == ELEM_BOOL)
        return fl_op2(l, L_NE, to, r, fl_constant(l, fl_words(to.lanes), 0));
    return field_rounds_to(to.elem) ? rounded(l, to, r) : (lreg){0};
}

/* L_DOT and L_MATDOT of narrow floats. */
lreg fl_dot(struct lowering *l, const struct lstmt *s, struct ltype of, struct ltype to, const lreg *in)
{
    const struct ltype t = fl_words(to.lanes);
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
            x[i] = fl_widened(l, fl_lanes_of(l, in[i], lanes[i], to.lanes));
        sum = fl_combine(l, L_ADD, t, sum, fl_combine(l, L_MUL, t, x[0], x[1]));
    }
    return sum;
}

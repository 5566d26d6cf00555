/* Private to the files that implement lf_field. These functions append integer statements that compute with residues to
 * the current block, and return the register of the result. t is a vector type of u32. Unless stated otherwise,
 * operands and results are residues below FIELD_N or the special values for infinities and NaN (ir/ops/field.h).
 */
#pragma once

#include "ir/loop/internal.h"
#include "ir/ops/field.h"

enum { FL_HALF = 32 }; /* bits of a residue */

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

/* ---- statements: ir/loop/field_math.c -----------------------------------------------------------------------------
 */

struct ltype fl_words(uint32_t lanes);
lreg fl_constant(struct lowering *, struct ltype, uint64_t value);
lreg fl_real(struct lowering *, uint32_t lanes, double value); /* f32 */
lreg fl_op1(struct lowering *, enum lop, struct ltype, lreg x);
lreg fl_op2(struct lowering *, enum lop, struct ltype, lreg x, lreg y);
lreg fl_chosen(struct lowering *, struct ltype, lreg x, lreg y, lreg z); /* x ? y : z */
lreg fl_lanes_of(struct lowering *, lreg x, const uint8_t *lanes, uint32_t n);
/* The statement has no meaning for operands of this type. */
void fl_refuse(struct lowering *, const struct lstmt *, const char *type);

typedef lreg fl_body(struct lowering *, const void *self, const lreg *in);
/* What the body does with the n operands: a part that is applied, or, if they are few, its statements. {0}: the body
 * has no meaning. Code generation takes more of a proof's time than calls do. */
lreg fl_applied(struct lowering *, const char *name, fl_body *, const void *self, const lreg *in, uint32_t n);

/* ---- arithmetic ----------------------------------------------------------------------------------------------------
 */

lreg fl_reduce(struct lowering *, struct ltype t, lreg x); /* x below 2 N */
lreg fl_absorb(struct lowering *, struct ltype t, lreg x, lreg y); /* y, but -inf where x is */
lreg fl_plus(struct lowering *, struct ltype t, lreg x, lreg y);
lreg fl_difference(struct lowering *, struct ltype t, lreg x, lreg y); /* of what is below N */
lreg fl_negated(struct lowering *, struct ltype t, lreg x);
lreg fl_reduced_wide(struct lowering *, struct ltype t, lreg m); /* field_reduced of lanes of 64 bits */
lreg fl_times_wide(struct lowering *, struct ltype t, lreg x, lreg y); /* lanes of 64 bits */
lreg fl_times(struct lowering *, struct ltype t, lreg x, lreg y); /* field_reduced of x y */
lreg fl_product(struct lowering *, struct ltype t, lreg x, lreg y); /* the same, applied: where many follow */
/* Of a constant, to the power n of so many digits of two bits. to_digit: the constant to digit 4^place. */
lreg fl_constant_power(struct lowering *, struct ltype t, lreg n, uint32_t digits,
                       uint32_t (*to_digit)(uint32_t place, uint32_t digit));
/* As ir/ops/field.c has these four. */
lreg fl_mix(struct lowering *, struct ltype t, lreg h);
lreg fl_steps_of(struct lowering *, struct ltype t, lreg x);
lreg fl_is_small(struct lowering *, struct ltype t, lreg steps);
lreg fl_whole_of(struct lowering *, struct ltype t, enum op, lreg steps);
/* A hash, as ir/ops/field.c has it; y {0}: of one argument. */
lreg fl_function(struct lowering *, struct ltype t, enum op, lreg x, lreg y);
/* What the code compares: only -inf is less than -87. */
lreg fl_compared(struct lowering *, struct ltype t, lreg x, lreg y, enum lop);
lreg fl_greatest(struct lowering *, struct ltype t, lreg x, lreg y, bool least);
lreg fl_combine(struct lowering *, enum lop, struct ltype t, lreg x, lreg y);

/* ---- conversions: ir/loop/field_convert.c --------------------------------------------------------------------------
 */

lreg fl_widened(struct lowering *, lreg x); /* the number that the bits of the float x are */
/* An f32: the number that x is rounded to; ELEM_NONE: of no type. */
lreg fl_number_of(struct lowering *, const struct field_form *, struct ltype to, uint32_t key, lreg x);
/* A conversion, of which one type has a form; {0}: it has no meaning. */
lreg fl_conversion(struct lowering *, const struct lstmt *, struct ltype from, struct ltype to, lreg x);
/* L_DOT and L_MATDOT of narrow floats. */
lreg fl_dot(struct lowering *, const struct lstmt *, struct ltype of, struct ltype to, const lreg *in);

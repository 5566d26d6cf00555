/* GF(2^31 - 1) in the place of f32, for randomised identity testing (mcc prove): an element is a residue below
 * FIELD_P in the four bytes of a float, so tensors, layouts and programs stay as they are.
 *
 * Sums, products, differences and quotients are exact. A float of the file or of the code is the fraction of a
 * denominator up to FIELD_FRACTIONS that rounds to it, if there is one, else the number that it is. Functions that are
 * none of a field (exp, sqrt, floor, ...) are hashes of their arguments; maximum, minimum and comparisons follow a
 * total order without a meaning, in which -inf comes first and +inf last. ir/loop/field.c has the same as loop IR.
 */
#ifndef MCC_IR_FIELD_H
#define MCC_IR_FIELD_H

#include "ir/ops/ops.h"

#define FIELD_P 0x7fffffffu
/* The order of x is that of mix(x ^ FIELD_KEY) ^ FIELD_LEAST; the two infinities are its ends. */
#define FIELD_KEY 0x5bd1e995u
#define FIELD_LEAST 0xeec8cb89u
#define FIELD_MINUS_INF 0x6c88b56fu
#define FIELD_PLUS_INF 0x75ddcc17u
#define FIELD_NAN 0x2545f491u
#define FIELD_MIX_1 0x85ebca6bu /* MurmurHash3's finalizer, a permutation of 32 bits */
#define FIELD_MIX_2 0xc2b2ae35u
enum { FIELD_FRACTIONS = 1024 };

/* The key of a function's hash; k: of loop statements and core operators that mean the same. */
static inline uint32_t field_function_key(enum op op)
{
    return 0x9e3779b9u * ((uint32_t)op + 1);
}

uint32_t field_of(double);
bool field_is_fraction(double); /* and not the number that it is */
uint32_t field_of_integer(int64_t);
/* Residues in int64, as accumulators have them. */
int64_t field_apply(enum op, int64_t x, int64_t y);
int64_t field_identity(enum op monoid);
bool field_less(int64_t x, int64_t y);
/* map_eval; where f32 holds residues (context.field), in the field. */
enum eval_status map_eval_in(const struct context *, enum op, enum elem, size_t n, const void *const *in, void *out);
/* elems_convert to or from such f32; false: it has no meaning in the field. */
bool field_convert(enum elem from, const void *src, enum elem to, void *dst, size_t n);

#endif

/* GF(q) x GF(p), q = 32633, p = 2 q + 1, in the place of floats, for randomised identity testing (mcc prove): an
 * element is a residue below N = q p in the four bytes of an f32, or the lower four of an f64, so tensors, layouts and
 * programs stay as they are. It stands for the number times 2^32 (Montgomery's form). "The field" is this ring
 * everywhere. f32 and f64 are the same numbers. Narrower floats are what their bits say: see struct field_form.
 *
 * Sums, products, differences and quotients are exact. A float of the file or of the code is the fraction of a
 * denominator up to FIELD_FRACTIONS that rounds to it, if there is one, else the number that it is; the least and the
 * greatest f32 are ends of the order, as no maximum with -FLT_MAX changes a number. exp is the
 * homomorphism (1, g^x) from sums to products, which q, the order of g in GF(p), makes possible. Functions that are
 * none of a field (tanh, sqrt, floor, ...) are hashes of their arguments; maximum, minimum and comparisons follow a
 * total order without a meaning, in which -inf comes first and +inf last, each the other one negated. -inf plus a
 * number is -inf, of which exp is 0. Small fractions (FIELD_GRID) are rounded and ordered as the numbers that they are;
 * of others round gives a hash from -FIELD_ROUNDED on below FIELD_ROUNDED, as floor, ceil and trunc give any one. To an
 * integer type, small fractions are converted and other numbers hashed. ir/loop/field.c has the same as loop IR.
 */
#pragma once

#include "ir/ops/ops.h"

#define FIELD_Q 32633u
#define FIELD_N 2129858011u      /* 32633 * 65267 */
#define FIELD_INVERSE 0x9cac2653u /* of N modulo 2^32 */
#define FIELD_ONE 0x0219e44au     /* 2^32 modulo N: 1 */
#define FIELD_HALF 0x010cf225u    /* 1 / 2 */
#define FIELD_SQUARE 0x5da54123u  /* 2^64 modulo N: what makes a number of an integer */
#define FIELD_INVERTS 0x3f78c7b7u /* 1 / x is x to this power: Carmichael's function of N, less 1 */
#define FIELD_BASE 0x139bd9abu    /* of exp: (1, g), as g^residue */
#define FIELD_QUOTIENT 2156367609u /* x / q = x * this >> 46 for x below 2^31 */
enum { FIELD_QUOTIENT_SHIFT = 46, FIELD_DIGITS = 8 }; /* digits of 2 bits of exp's exponents */
/* The order of x is that of mix(x ^ FIELD_KEY) ^ FIELD_LEAST. Its ends are the two infinities, which are not residues.
 * Multiples of 1 / FIELD_GRID from -FIELD_SMALL on below FIELD_SMALL (small fractions: positions that are computed of
 * indices, sizes and scales) are in their own order, and integers far apart, so that other numbers lie between them and
 * a comparison with the wrong one shows: those from -FIELD_NEAR on below FIELD_NEAR, with which most code compares,
 * take half of the order. Nothing but -inf is `<` -87, from where on softmax takes exp for 0. */
#define FIELD_KEY 0x5bd220e7u
#define FIELD_LEAST 0xfb1a6a00u
#define FIELD_MINUS_INF 0x7fdcdb54u
#define FIELD_PLUS_INF 0x7fcb24edu
#define FIELD_NAN 0x2545f491u
#define FIELD_MASK 0x7fffffffu
#define FIELD_MIX_1 0x85ebca6bu /* MurmurHash3's finalizer, a permutation of 32 bits */
#define FIELD_MIX_2 0xc2b2ae35u
enum { FIELD_FRACTIONS = 1024, FIELD_SMALL = 1024, FIELD_ROUNDED = 256, FIELD_NEAR = 8 };
/* Denominators to 10 divide it. A small fraction is so many steps from -FIELD_SMALL on; the infinities are none. */
enum { FIELD_GRID = 2520, FIELD_STEPS = 2 * FIELD_SMALL * FIELD_GRID };
/* Its place in the order: FIELD_STEP for each step, or FIELD_STEP_NEAR from -FIELD_NEAR on, more than these. */
enum { FIELD_STEP = 416, FIELD_STEP_NEAR = 53261 };
#define FIELD_PLACE 0x00080000u
#define FIELD_PLACE_NEAR 0x40080000u
#define FIELD_PLACE_FAR 0x7f900000u /* from FIELD_NEAR on */
#define FIELD_UNDER 0x47198690u  /* -87 */
#define FIELD_LOWEST 0x09808c64u /* -FLT_MAX: of all numbers but -inf and -87 the first in the order */
#define FIELD_BF16_MOST 0x25e5c7f4u /* the greatest bf16, which masks add */

/* The product of the numbers is the product of their residues over 2^32. t: below N 2^32. */
static inline uint32_t field_reduced(uint64_t t)
{
    uint32_t taken = (uint32_t)((uint64_t)((uint32_t)t * FIELD_INVERSE) * FIELD_N >> 32);
    uint32_t d = (uint32_t)(t >> 32) - taken;
    return d < d + FIELD_N ? d : d + FIELD_N;
}
/* The key of a function's hash; k: of loop statements and core operators that mean the same. */
static inline uint32_t field_function_key(enum op op)
{
    return 0x9e3779b9u * ((uint32_t)op + 1);
}

/* The key of the hash that stands for a conversion to integers or narrow floats. */
static inline uint32_t field_convert_key(enum elem to)
{
    return 0x9e3779b9u * (0x100u + (uint32_t)to);
}
static inline uint32_t field_narrow_key(enum elem to, bool saturate, enum round_mode round)
{
    return field_convert_key(to) + saturate + (to == ELEM_F8E8M0 ? 2 * (uint32_t)round : 0);
}

/* Does it give an integer? Of a small fraction that of the number. */
static inline bool field_rounds(enum op op)
{
    return op == OP_ROUND || op == OP_FLOOR || op == OP_CEIL || op == OP_TRUNC;
}

/* Has such a conversion a meaning in the field? The hash has 32 bits, which 64 extend; of narrow ones so many. */
static inline bool field_rounds_to(enum elem to)
{
    return strchr("IU", elem_class(to)) && elem_bits(to) > 0;
}
/* What small numbers are saturated to. */
static inline int32_t field_lowest(enum elem to)
{
    return elem_class(to) != 'I' ? 0 : elem_bits(to) <= 8 ? -(1 << (elem_bits(to) - 1)) : -FIELD_SMALL;
}
static inline int32_t field_highest(enum elem to)
{
    return elem_bits(to) <= 8 ? (1 << elem_bits(to)) - 1 + field_lowest(to) : FIELD_SMALL;
}

/* How memory holds a float type. Narrow ones: a residue is rounded to the number that it is, if that is one of the type
 * and a multiple of 2^-step below FIELD_EXACT such steps, or the greatest or least number of the type, else to a hash:
 * one of 2 `values` multiples, from -values on.
 */
struct field_form {
    uint16_t size; /* bytes of a residue; 0: narrow */
    uint16_t values; /* narrow: each of these multiples is a number of the type */
    uint16_t step;
    uint32_t most; /* the greatest number's residue if it has too many steps, else 0 */
    double greatest; /* that number */
};
/* Of f8e8m0, powers of two: the exponents, from -values on. Those of the type from this one on are exact; 2^-127 is
 * rounded up to 2^-126. */
static inline int32_t field_least_exponent(enum round_mode round)
{
    return round == ROUND_UP ? -126 : -127;
}
enum { FIELD_MOST_EXPONENT = 127, FIELD_EXPONENT_BIAS = 127, FIELD_NO_EXPONENT = 255 /* NaN, infinities */ };
enum { FIELD_EXACT = 1 << 24, FIELD_FEW = 128 /* so few values are often equal by chance */ };
/* For functions of the runtime that compute with floats: f32 or f64 as if it were a narrow type. Coordinates of boxes
 * and determinants have to stay exact, sums of a spectrum nearly so, and thresholds between -1 and 1 have to matter. */
enum { FIELD_REAL_VALUES = 256, FIELD_REAL_STEP = 8, FIELD_REAL_EXACT = 1 << 17 };
#define FIELD_REAL_TIE \
    0.137f /* of a step, that rounding adds: halves and thirds of steps are frequent, and no ties then */
#define FIELD_REAL_KEY 0x7a3b9d15u
/* NULL: no residue stands for the type's numbers. */
const struct field_form *field_form(enum elem);
/* Are elements of the type residues? */
bool field_holds(enum elem);
/* An element of a type with a form. saturate: that of the conversion to a narrow type. */
uint32_t field_load(enum elem, const void *);
void field_store(enum elem, uint32_t residue, bool saturate, void *);
/* 2^e */
uint32_t field_power_of_two(int32_t e);
/* What a function of the runtime gets for a residue, and the residue of what it gives, rounded to FIELD_REAL_STEP. */
double field_to_real(uint32_t residue);
uint32_t field_from_real(double);

uint32_t field_of(double);
/* field_of of n floats. A continued fraction of each would take most of the time of large networks: the sieve, of
 * FIELD_SIEVE bytes that field_sieve has filled, tells which floats below 1 may be fractions. */
enum { FIELD_SIEVE_BITS = 23, FIELD_SIEVE = 1 << (FIELD_SIEVE_BITS - 3) };
void field_sieve(unsigned char *sieve);
void field_of_floats(const unsigned char *sieve, const void *floats, uint32_t *residues, size_t n);
/* base^(digit 4^place) of exp. */
uint32_t field_exp_power(uint32_t place, uint32_t digit);
bool field_is_fraction(double); /* and not the number that it is */
uint32_t field_of_integer(int64_t);
/* Residues in int64, as accumulators have them. */
int64_t field_apply(enum op, int64_t x, int64_t y);
int64_t field_identity(enum op monoid);
bool field_less(int64_t x, int64_t y);
/* map_eval of floats of a type with a form; map_eval_in: where they are residues (context.field). */
enum eval_status field_map(enum op, enum elem, size_t n, const void *const *in, void *out);
enum eval_status map_eval_in(const struct context *, enum op, enum elem, size_t n, const void *const *in, void *out);
/* elems_convert to or from such floats; false: it has no meaning in the field. */
bool field_convert(enum elem from, const void *src, enum elem to, void *dst, size_t n, bool saturate,
                   const char *round);
/* Converts n elements of constants where field_convert has no meaning, so that the weights can be packed: dst[i] is a
 * hash of src[i], in the bits of `to`. The interpreter refuses such a conversion in the run. */
void field_tokens(enum elem from, const void *src, enum elem to, void *dst, size_t n);

/* Winograd convolution: a 3 x 3 convolution of stride 1 as products at alpha x alpha points.
 *
 * For a tile of m x m results, d the alpha x alpha operand elements that it reads (alpha = m + 2) and g the weights:
 *     Y = A' [ (G g G') * (B' d B) ] A       (* element by element, summed over input channels)
 * so the sum over channels becomes a matrix product per point, of alpha^2 / m^2 multiplications a result instead of 9.
 * The matrices are interpolation at the points of the table; B' and A' are kept as straight-line programs with their
 * common subexpressions named, G as numbers. The file has g. A kernel derives U = G g G' from it in each run: all of
 * it first, or a slice of it at a time. U is 1.8 to 7 times as large as g, and reading it takes longer than deriving
 * it.
 */
#pragma once

#include "ir/target/budget.h"
#include "passes/module/module.h"

enum { WINOGRAD_ALPHA_MAX = 8, WINOGRAD_STEPS_MAX = 40 };

/* Value number n_in + k = value a + c * value b, for the k-th step; values below n_in are the operands. */
struct winograd_step {
    uint8_t a, b;
    double c;
};
struct winograd_side {               /* a vector of n_in elements -> one of n_out: one dim of a transform */
    uint32_t n_in, n_out;
    const struct winograd_step *steps;
    uint8_t out[WINOGRAD_ALPHA_MAX]; /* value numbers */
};
struct winograd_form {
    uint32_t m, alpha;
    double points[WINOGRAD_ALPHA_MAX];          /* infinity: the leading coefficient */
    struct winograd_side input, output;         /* B' and A' */
    double g[WINOGRAD_ALPHA_MAX][3];
};
/* The form for m = 2, 4 or 6; NULL for another m. */
const struct winograd_form *winograd_form(uint32_t m);

/* The m by which the kernel's convolution is computed if its operand is blocked, or staged: the user's choice, or by
 * cost; 0: not. */
uint32_t winograd_wanted(struct module *, const struct kernel *);
/* Is a convolution of f32 faster by that form than with products of pairs of bf16, which are two for each of
 * f32? */
bool winograd_beats_pairs(struct module *, const struct node *);

/* ---- after store_constants ---- */
/* The place of a convolution's weight panels: the stored constant, and its strides in elements per block of 16
 * output channels, row, column, input channel. False: not so. */
bool winograd_weights(const struct module *, value_id w, value_id *stored, int64_t stride[4]);
/* Not stored: the kernel computes them from compressed ones (passes/module/compressed.h) where it derives U. */
bool winograd_computes(const struct module *, value_id w);
/* May the kernel's convolution be computed so, planned or not; and by which m best? */
bool winograd_serves(struct module *, const struct kernel *);
uint32_t winograd_best(struct module *, const struct kernel *);

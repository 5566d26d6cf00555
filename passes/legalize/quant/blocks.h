/* Weights of 2, 4 or 8 bits in blocks (MatMulNBits), and their products in integers (quant/block_product.c). */
#ifndef MCC_PASSES_LEGALIZE_QUANT_BLOCKS_H
#define MCC_PASSES_LEGALIZE_QUANT_BLOCKS_H

#include "passes/legalize/legalize.h"

struct blocks {
    int64_t k, n, bits, size, count; /* of a column of the weights: count blocks of size elements */
};

/* x (..., k) by the weights that are the rule's operand 1, u8 [n, count, bytes of a block]: f32 (..., n). scale, zero:
 * f32 [n, count]; zero {0}: half of the range everywhere. Rounds x to bytes by blocks. {0} after a diagnostic. */
value_id block_product(struct rule *, value_id x, const struct blocks *, value_id scale, value_id zero);

#endif

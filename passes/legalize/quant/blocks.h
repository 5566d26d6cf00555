/* Weights of 2, 4 or 8 bits in blocks (MatMulNBits), and their products in integers (quant/block_product.c). */
#pragma once

#include "passes/legalize/legalize.h"

/* w[n][i] = (number - zero) * scale - least, of number n, i and of the block that it is in. Of several matrices (many)
 * all values have one dim more in front, and the product is by the chosen one. */
struct blocks {
    int64_t many; /* 0: one matrix */
    expr_id chosen;
    int64_t k, n, bits, size, count; /* of a column of the weights: count blocks of size elements */
    value_id bytes; /* u8, a column after the other; a byte's first number is in its lowest bits */
    value_id scale; /* f32 [n, count] */
    value_id zero; /* the same, or {0}: `middle` everywhere */
    int64_t middle;
    value_id least; /* the same, or {0}: 0 everywhere; then zero and middle are 0 */
    bool e2m1; /* the numbers stand in the weights as floats of 4 bits (v_e2m1_numbers) */
};

/* x (..., k) by the weights: f32 (..., n). {0} after a diagnostic. */
value_id blocks_product(struct rule *, value_id x, const struct blocks *);
/* The same after x is rounded to bytes by blocks. */
value_id block_product(struct rule *, value_id x, const struct blocks *);
/* Does the file, or the user, allow activations of 8 bits, and are the weights there to be packed for them? Sums of a
 * block are exact. */
bool blocks_allow_bytes(struct rule *, const struct blocks *, bool by_file);
/* x (rows, k) by matrix `chosen` of w, [many, n, k] (along 2) or [many, k, n] (along 1): (rows, n). */
value_id v_product_chosen(struct builder *, value_id x, value_id w, expr_id chosen, int64_t along);
/* x (..., k) as (..., count, size), with zeros after it. */
value_id v_in_blocks(struct builder *, value_id x, const struct blocks *);
/* Unpacked numbers as f32, minus `middle` if the blocks have no zero points. */
value_id v_numbers(struct builder *, value_id, const struct blocks *);
/* Floats e2m1, u8, as numbers: 12 more than twice what they are, from 0 to 24. */
value_id v_e2m1_numbers(struct builder *, value_id bytes);
/* Operand `at`, bytes of GGUF's named block type: all of *s but `chosen`. Rank 2: [n, bytes], 3: [many, n, bytes].
 * False after a diagnostic (ggml.c). */
bool ggml_matrix(struct rule *, uint32_t at, int32_t rank, const char *type, struct blocks *s);
/* dims[0 .. n - 1], after that of several matrices: how many there are in *out, of n + 1. */
int32_t blocks_dims(const struct blocks *, const int64_t *dims, int32_t n, int64_t *out);
/* y less, for each column, the sum over blocks of its least times what a block of x sums to: (..., count), negated. */
value_id v_less_least(struct builder *, value_id y, value_id negated_sums, const struct blocks *);

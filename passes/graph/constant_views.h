/* Constants that are views of others, found by their elements: for share_constants.c. */
#pragma once

#include "ir/graph/graph.h"

/* Takes bytes from what may still be compared as a whole; false: that is less. */
bool budget_spend(uint64_t *budget, uint64_t bytes);
/* Of two constants of one element type and one size: is b = a with its dims permuted, and how (b's dim d is a's dim
 * perm[d])? */
bool constant_is_transposed(uint64_t *budget, const struct tensor_data *a, const struct tensor_data *b, int32_t *perm);
/* Does b have the bytes of a? */
bool constant_is_reshaped(uint64_t *budget, const struct tensor_data *a, const struct tensor_data *b);

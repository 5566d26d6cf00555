/* Caches of integers and scales (cache_type.c): x = numbers * scale, with a scale for each block of the last dim. Of
 * what a scale belongs to no operator on a cache's way may take a part, so scales go the way of the numbers. */
#pragma once

#include "ir/build/build.h"

/* A value in the type of the caches. scales: f32, of as many dims, the last one a number for each block; {0}: the type
 * has none. */
struct narrow {
    value_id numbers, scales;
};

/* Dims of the scales of a tensor of that type: the last one counts the blocks; false: its last dim is open or empty. */
bool scales_dims(struct graph *, const struct type *, expr_id dims[RANK_MAX]);
/* Can the scales of that operand, and of all that hold elements of the result, go through n? */
bool scales_move(struct graph *, const struct node *n, uint32_t operand);
/* An operand of n that is not an element (a condition, positions), for scales. */
value_id scales_operand(struct builder *, const struct node *n, uint32_t operand);
/* n over scales. */
value_id scales_step(struct builder *, const struct node *n, const value_id *in, uint32_t n_in);
/* x rounded to integers of that type, with scales of max |x| / the largest one; and back. */
struct narrow scales_narrowed(struct builder *, value_id x, enum elem to);
value_id scales_widened(struct builder *, struct narrow x, enum elem to);

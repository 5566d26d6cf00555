/* Maps whose operand lies contiguous along another dim than their result: by tiles that are transposed in registers. */
#ifndef MCC_PASSES_TRANSPOSE_H
#define MCC_PASSES_TRANSPOSE_H

#include "passes/emit/emit.h"

/* A tile is schedule.lanes points along dim vec of the domain, where the result is contiguous, times schedule.columns
 * along dim source. */
struct transpose {
    const struct transpose_schedule *s;
    int32_t vec, source;
    expr_id n_vec, n_source; /* tiles along either */
    expr_id groups; /* of schedule.tiles tiles along vec */
    expr_id fits; /* a condition: both extents hold a tile; else points are computed one by one */
};
/* Emits nothing. */
struct transpose transpose_open(const struct em *, const struct transpose_schedule *, int32_t vec, int32_t source);
/* All points of one group (all groups: {0}) and all of dim source, where idx says what the other dims are. */
void transpose_emit(struct em *, const struct transpose *, expr_id group, expr_id *idx);

#endif

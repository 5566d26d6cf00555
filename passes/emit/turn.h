/* Maps whose operand lies contiguous along another dim than their result: by squares that are turned in registers. */
#ifndef MCC_PASSES_TURN_H
#define MCC_PASSES_TURN_H

#include "passes/emit/emit.h"

/* A square is schedule.lanes points along dim vec of the domain, where the result is contiguous, times schedule.columns
 * along dim source. */
struct turn {
    const struct turn_schedule *s;
    int32_t vec, source;
    expr_id n_vec, n_source; /* squares along either */
    expr_id groups; /* of schedule.line squares along vec */
    expr_id fits; /* a condition: both extents hold a square; else points are computed without squares */
};
/* Emits nothing. */
struct turn turn_open(const struct em *, const struct turn_schedule *, int32_t vec, int32_t source);
/* All points of one group (all groups: {0}) and all of dim source, where idx says what the other dims are. */
void turn_emit(struct em *, const struct turn *, expr_id group, expr_id *idx);

#endif

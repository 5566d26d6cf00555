/* Maps whose operand lies contiguous along another dim than their result: by squares that are turned in registers. */
#ifndef MCC_PASSES_TURN_H
#define MCC_PASSES_TURN_H

#include "passes/emit/emit.h"

/* A square is `lanes` points along dim vec of the domain, where the result is contiguous, times `columns` along dim source. */
struct turn {
    int32_t vec, source;
    uint32_t lanes, columns, line;       /* line: squares along vec whose results fill a cache line */
    expr_id n_vec, n_source;     /* squares along either */
    expr_id groups;              /* of `line` squares along vec */
    expr_id fits;                /* a condition: both extents hold a square; else points are computed without squares */
};
/* False: no operand of the kernel can be turned, or the dims are too short. Emits nothing. */
bool turn_plan(struct em *, int32_t vec, int32_t source, struct turn *);
/* All points of one group (all groups: {0}) and all of dim source, where idx says what the other dims are. */
void turn_emit(struct em *, const struct turn *, expr_id group, expr_id *idx);

#endif

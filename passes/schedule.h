/* Between schedule.c and its cost model. */
#ifndef MCC_PASSES_SCHEDULE_H
#define MCC_PASSES_SCHEDULE_H

#include "passes/emit.h"

struct tile_choice {
    int32_t vec, a, b;           /* dims of the anchor's result: lanes, and up to two that are register-tiled; -1: none */
    uint32_t lanes, nr, ta, tb;
    int64_t ns;                  /* estimated per parallel index */
    uint64_t flops;              /* of the whole kernel, at the least extents */
};
struct tile_choice tile_choose(struct em *);
uint64_t tile_steps(struct em *, const struct node *anchor);   /* of the reduction at one point; guesses where symbolic */

#endif

/* Between schedule.c and its cost model. */
#ifndef MCC_PASSES_SCHEDULE_H
#define MCC_PASSES_SCHEDULE_H

#include "passes/emit.h"

/* Flattens loops [0, extent) into one parallel index; sets each var. */
struct loop { int32_t dim; expr_id extent; expr_id var; };
void em_parallel_open(struct em *, struct em_for *, struct loop *, uint32_t n);
/* The anchor's result at a point is known: evaluates what the kernel does behind it, and stores that. */
void tile_store(struct em *, const struct node *anchor, value_id domain, const expr_id *point, lval result);
bool emit_winograd(struct em *);     /* emit_winograd.c */

struct tile_choice {
    int32_t vec, a, b;           /* dims of the anchor's result: lanes, and up to two that are register-tiled; -1: none */
    uint32_t lanes, nr, ta, tb;
    bool flat;                   /* points of b and a are numbered through and tiled as one dim of ta points */
    int64_t ns;                  /* estimated per parallel index */
    uint64_t flops;              /* of the whole kernel, at the least extents */
};
struct tile_choice tile_choose(struct em *);
uint64_t tile_steps(struct em *, const struct node *anchor);   /* of the reduction at one point; guesses where symbolic */

#endif

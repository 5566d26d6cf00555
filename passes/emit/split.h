/* The order of a convolution's input channels (emit/split.c). */
#ifndef MCC_PASSES_EMIT_SPLIT_H
#define MCC_PASSES_EMIT_SPLIT_H

#include "passes/emit/emit.h"

enum { MAX_RESIDUES = 8 };
struct channel_order {
    uint32_t residues;           /* g: channels k with equal k mod g lie in one run; 1: all do */
    int64_t block;               /* of the memory that they lie in; 0: no blocks, or not known where they start */
    int64_t phase[MAX_RESIDUES]; /* place of the run's first channel in its block */
};
/* Of operand x [N, C, ...]; runs of one channel after another when nothing is known. */
struct channel_order em_channel_order(struct em *, value_id x);

#endif

/* Caches of constant folding. Shared by ir/eval/fold.c and ir/eval/const_read.c. */
#pragma once

#include "ir/eval/constants.h"

struct folds {
    uint32_t cap;                          /* values that the arrays have room for */
    uint16_t *read_cost;                   /* by value id, ir/eval/const_read.c: 0 unknown */
    const struct tensor_data **data;       /* by value id: folded; NULL: not yet */
    struct known_range {
        bool known;
        struct value_range of;
    } *range;                              /* by value id, ir/eval/value_range.c */
    bool residues;                         /* of value_fold_in_field */
    int64_t total;                         /* bytes folded so far */
    struct eval *eval;                     /* state of the interpreter, empty between two folds; NULL: none yet */
    uint8_t *visited;                      /* by node id, zero between two folds */
    uint32_t eval_values, eval_nodes;      /* what both have room for */
};
struct folds *folds_of(struct graph *);   /* with room for all values */

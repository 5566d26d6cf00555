/* Attention: two contractions with a softmax between them, computed as one kernel.
 *
 *   scores = q . k        z = maps of scores (scale, mask, bias ...)        p = softmax of z over the keys
 *   values = p . v
 *
 * for each row of p: no more of the scores is needed for a block of rows than that block, so they never reach memory.
 * The softmax may count one score more for each row, a sink, that no value has.
 */
#ifndef MCC_PASSES_ATTENTION_H
#define MCC_PASSES_ATTENTION_H

#include "passes/module/module.h"

/* A node on the way from p back to the scores, and which of its operands leads there. */
struct attention_step {
    node_id node;
    uint32_t operand;
};
/* An operand of a map on that way that does not come from the scores, and the point at which it is wanted. */
struct attention_side {
    value_id value;
    node_id via;
    const expr_id *idx;
};
struct attention {
    node_id scores, values;
    value_id z, terms;           /* what the softmax is of; exp(z - max), of which small ones are 0 */
    value_id max, sum;           /* results of the reductions over the keys; max, where there is a sink: with it */
    value_id sink;               /* of the kind of max, at its points; none: 0 */
    value_id subtracted;         /* from z: views of max, as large as z */
    double least_sum;            /* what the sum is raised to: 1 makes rows without any key 0, 0 leaves them NaN */
    uint32_t rows_of;            /* which operand of `scores` the rows of p come from: 0 or 1 */
    VEC(struct attention_step) to_z, to_scores;    /* views from p to z; views and maps from z to the scores */
    VEC(struct attention_side) sides;
    const expr_id
        *row_point; /* at which the rows' operand of the scores is wanted, once each: symbols for all points of it */
    VEC(node_id) nodes; /* computed inside, `values` apart */
};

/* The pass find_attention finds them all (module.attention_of). A value on the way that anybody else reads stays in
 * memory: not one. */
/* A point of p -> the point of z, a point of z -> the point of the scores; in place. */
void attention_point_z(const struct graph *, const struct attention *, expr_id *idx);
void attention_point_scores(const struct graph *, const struct attention *, expr_id *idx);
/* A point of z -> the point of max; in place. */
void attention_point_max(const struct graph *, const struct attention *, expr_id *idx);

#endif

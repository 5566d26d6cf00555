/* Bounds inference: which part of an operand a part of a result reads. */
#ifndef MCC_PASSES_BOUNDS_H
#define MCC_PASSES_BOUNDS_H

#include "passes/module/access_function.h"

/* Of a value: along dim d `extent[d]` indices from first[d] on; 0: first[d] alone, which stands still. flat: the last
 * two dims are numbered through, and the last one's indices are such numbers. */
struct box {
    expr_id first[RANK_MAX];
    int64_t extent[RANK_MAX];
    bool flat;
};

/* Where contraction n (dot, conv) reads operand o for point p of its result at reduced index k: of a convolution the
 * taps, then the channel. Of an operand with input dilation, before it is divided by that. */
void contraction_point(const struct graph *, const struct node *n, uint32_t o, const expr_id *p, const expr_id *k,
                       expr_id *at);
/* What part `of` of contraction n's result reads of operand o, over all that is reduced. False: not known. */
bool contraction_box(const struct graph *, const struct node *n, uint32_t o, const struct box *of, struct box *);
/* What `rows` rows of a convolution's result from `row` on, of the image and the channels at `point`, read of its
 * operand; of a depthwise one, of a block of channels. */
bool conv_rows_box(const struct graph *, const struct node *n, const expr_id *point, expr_id row, int64_t rows,
                   struct box *);
/* Elements; false: too many for an int64_t. */
bool box_elements(const struct box *, int32_t rank, int64_t *);

#endif

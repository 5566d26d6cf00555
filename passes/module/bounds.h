/* Bounds inference: the part of an operand that a part of a result reads. */
#pragma once

#include "passes/module/access_function.h"

/* A part of a value: along dim d the indices [first[d], first[d] + extent[d]); extent 0: only first[d], a loop variable
 * that is constant inside the part. flat: the last two dims are collapsed, and first and extent of the last one are
 * collapsed indices. */
struct box {
    expr_id first[RANK_MAX];
    int64_t extent[RANK_MAX];
    bool flat;
};

/* Stores the point of operand o that contraction n (dot, conv) reads for point p of its result and reduced index k
 * (conv: the taps, then the channel) to `at`. With input dilation the spatial indices are not yet divided by it. */
void contraction_point(const struct graph *, const struct node *n, uint32_t o, const expr_id *p, const expr_id *k,
                       expr_id *at);
/* The part of operand o that part `of` of contraction n's result reads, over all reduced indices. false: unknown. */
bool contraction_box(const struct graph *, const struct node *n, uint32_t o, const struct box *of, struct box *);
/* The part of a convolution's operand that `rows` rows of its result from `row` on read, for the image and channels at
 * `point`; for a depthwise convolution, only a block of channels. false: unknown. */
bool conv_rows_box(const struct graph *, const struct node *n, const expr_id *point, expr_id row, int64_t rows,
                   struct box *);
/* Number of elements; false: it exceeds an int64_t. */
bool box_elements(const struct box *, int32_t rank, int64_t *);

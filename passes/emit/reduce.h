/* State and functions that the parts of a reduction share: begin and end (emit/reduce.c), the loops
 * (emit/reduce_loops.c), one step of them (emit/reduce_step.c), and reductions at a single point
 * (emit/reduce_one.c). */
#pragma once

#include "passes/emit/emit.h"

struct reduction {
    const struct node *n;
    const struct reduce_schedule *s;
    uint32_t n_dims, joined; /* as struct reduced has them */
    struct rdim dim[REDUCED_MOST];
    enum lop combine;
    enum elem acc, index;        /* element types of the accumulators, and of the index accumulators (argreduce) */
    bool found; /* an argument reduction has at least one element: its index starts as 0, else as -1 */
    uint32_t group, valid; /* elements along one dim that a step takes (emit/dot.c), and how many of them exist */
    uint32_t grouped; /* that dim; dims after it have one index */
    uint32_t n_points, n_acc; /* number of accumulators: argument reductions have two for each point */
    expr_id *const *points;
    expr_id cond;
    bool next; /* few rows: the steps prefetch the panels of the next block of columns */
    uint32_t vectors; /* of each row of points, which have different weights */
    uint32_t lanes; /* groups in a register of the first operand, if steps take operands from its lanes */
    int32_t lane; /* lane of that register for the current step; -1: each step loads its own operand */
    struct row_taps row; /* a spatial dim of which one step computes all taps; dim -1: none */
    struct tap_range {
        expr_id from, to; /* {0}: all taps */
        bool inside; /* all of them read data, so loads need no condition */
    } taps[RANK_MAX]; /* of a convolution's spatial dims (conv_bounded) */
    uint32_t cut; /* a dim of which the loops run only over a block, ... */
    expr_id from; /* ... which begins here, and has dim[cut].extent indices; {0}: all dims are whole */
    bool half; /* a group is half of the elements that are contiguous in the panels */
    bool matrix; /* L_MATDOT: the group is twice as long; accumulators are as in em_tile_step_matrix */
    expr_id first; /* first index of a segment, whose length is the dim's extent */
    expr_id line; /* lanes of four vectors: a step interleaves four lines (segment_lines.c); {0}: it does not */
    bool fill; /* the steps store the second operand into scratch, and accumulate nothing */
    struct block_factor scale; /* if s->scaled and the operand is not in scratch; else product {0} */
};

/* Adds the indices from .. from + n - 1 of the blocked dim to the accumulators acc. */
void em_reduce_block(struct em *, const struct node *, uint32_t n_points, expr_id *const *points, const struct k_dim *,
                     expr_id from, int64_t n, lreg *acc);

/* Stores contraction n's second operand, at the points and all reduced indices, into scratch in order of the steps. */
void em_reduce_operand(struct em *, const struct node *, uint32_t n_points, expr_id *const *points);

/* Initialises r for n at these points. */
void reduction_begin(struct em *, struct reduction *r, const struct node *n, uint32_t n_points, expr_id *const *points,
                     expr_id cond);
/* The kernel's schedule for the reduction n. */
const struct reduce_schedule *reduction_schedule(struct em *, const struct node *n);
/* Lanes of a point: those of its widest lane symbol. */
uint32_t reduction_lanes(const struct em *, const expr_id *point, int32_t rank);
/* Converts an accumulator to n's result: rounds it to the element type. */
lreg reduction_result(struct em *, const struct node *n, lreg sum);
/* Converts an index accumulator to the result of an argument reduction. */
lreg reduction_index(struct em *, lreg index);

/* Chooses the reduced dims to unroll: small constant ones, innermost first, up to the schedule's body size. */
void reduction_unroll(struct em *, struct reduction *);
/* Emits the loops over all steps. acc: n_acc accumulators, updated. */
void reduction_loops(struct em *, struct reduction *, lreg *acc);

/* Emits one step at reduced index k (one expression per reduced dim): adds each point's operands to its accumulators */
void reduction_step(struct em *, struct reduction *, const expr_id *k, lreg *acc);
/* Number of points of a contraction before one with the same weights as the first; n_points if there is none. */
uint32_t reduction_vectors(struct em *, const struct reduction *);
/* Parts of a step: the prefetches, and one point. */
void reduction_ahead(struct em *, struct reduction *, const expr_id *k);
void reduction_point(struct em *, struct reduction *, uint32_t point, const expr_id *k, lreg *acc);
/* Emits the steps for all taps of r->row at once (emit/row_taps.c); k has the indices of the other dims. */
void reduction_row(struct em *, struct reduction *, expr_id *k, lreg *acc);
/* Adds the sums `part` of the block that begins at k, times the block's factor, to acc. */
void reduction_scale(struct em *, const struct reduction *, const expr_id *k, const lreg *part, lreg *acc);
/* Adds the i32 sums `part` of block `number` of a scaled product to acc. */
void reduction_add_block(struct em *, const struct reduction *, expr_id number, const lreg *part, lreg *acc);
/* Initial value of an accumulator of element type acc, for a result of type e. */
lreg reduction_identity(struct em *, enum lop, enum elem acc, enum elem e, uint32_t lanes);

/* ---- segment_lines.c ---- */

/* Sets r->line if the points are such that steps interleave lines. */
void em_lines_begin(struct em *, struct reduction *r);
void em_lines_step(struct em *, struct reduction *, const expr_id *k, lreg *acc);
/* Puts the lanes of the sums in order. */
void em_lines_end(struct em *, const struct reduction *, lreg *acc);

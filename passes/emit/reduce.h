/* What the parts of a reduction share: its beginning and end (emit/reduce.c), the loops (emit/reduce_loops.c), what
 * they do at each step (emit/reduce_step.c), and a point alone (emit/reduce_one.c). */
#ifndef MCC_PASSES_EMIT_REDUCE_H
#define MCC_PASSES_EMIT_REDUCE_H

#include "passes/emit/emit.h"

struct reduction {
    const struct node *n;
    const struct reduce_schedule *s;
    uint32_t n_dims, joined; /* as struct reduced has them */
    struct rdim dim[REDUCED_MOST];
    enum lop combine;
    enum elem acc, index;        /* register elements of the accumulators; of the indices beside them */
    bool found; /* an argument reduction has an element at least: its index begins with 0, else with -1 */
    uint32_t group, valid; /* steps at once along one dim (emit/dot.c), and those that exist; 1: one by one */
    uint32_t grouped; /* that dim; any after it has one index */
    uint32_t n_points, n_acc; /* argument reductions keep two per point */
    expr_id *const *points;
    expr_id cond;
    bool next; /* a single row, whose steps ask for the next block's panels */
    uint32_t vectors; /* of each row of points: as many have weights of their own */
    uint32_t lanes; /* groups of a register of the first operand, where it goes by lane */
    int32_t lane; /* of the registers that hold the first operand's next steps; -1: each step has its own */
    struct row_taps row; /* a spatial dim whose taps are passed all in one step; dim -1: none */
    struct tap_range {
        expr_id from, to; /* {0}: all taps */
        bool inside; /* these are read unconditionally */
    } taps[RANK_MAX]; /* of a convolution's spatial dims (conv_bounded) */
    uint32_t cut; /* a dim of which only a part is done, ... */
    expr_id from; /* ... from here on, as much as its extent says; {0}: all of each dim */
    bool half; /* a group is half of what lies together in the panels */
    bool matrix; /* L_MATDOT: the group is twice as long, and sums are those of em_tile_step_matrix */
    expr_id first; /* of a segment, of which the dim's extent is the length */
    bool fill; /* no sums: the second operand goes into scratch */
    struct block_factor scale; /* where s->scaled and the operand is not in scratch; else product {0} */
};

/* Indices from .. from + n - 1 of that dim: acc holds the sums before and then those after them. */
void em_reduce_block(struct em *, const struct node *, uint32_t n_points, expr_id *const *points, const struct k_dim *,
                     expr_id from, int64_t n, lreg *acc);

/* Contraction n's second operand at the points, and all that is reduced, into scratch, in the order of the sums. */
void em_reduce_operand(struct em *, const struct node *, uint32_t n_points, expr_id *const *points);

/* Sets r up for n at these points. */
void reduction_begin(struct em *, struct reduction *r, const struct node *n, uint32_t n_points, expr_id *const *points,
                     expr_id cond);
/* The record of node n. */
const struct reduce_schedule *reduction_schedule(struct em *, const struct node *n);
/* Lanes of a point: the widest lane symbol that it mentions. */
uint32_t reduction_lanes(const struct em *, const expr_id *point, int32_t rank);
/* What n's result is for this sum: rounded to its element type. */
lreg reduction_result(struct em *, const struct node *n, lreg sum);
/* What an argument reduction's result is for this index. */
lreg reduction_index(struct em *, lreg index);

/* Small constant reduced dims are unrolled from the inside out, as far as the schedule's body reaches. */
void reduction_unroll(struct em *, struct reduction *);
/* All steps, into acc. */
void reduction_loops(struct em *, struct reduction *, lreg *acc);

/* One step at reduced index k (one expression per reduced dim): every point's operands go into its accumulators. */
void reduction_step(struct em *, struct reduction *, const expr_id *k, lreg *acc);
/* Points of a contraction before one that has the first one's weights again; all, where none has. */
uint32_t reduction_vectors(struct em *, const struct reduction *);
/* Its parts: asks for panels early; the operands of one point. */
void reduction_ahead(struct em *, struct reduction *, const expr_id *k);
void reduction_point(struct em *, struct reduction *, uint32_t point, const expr_id *k, lreg *acc);
/* Steps for all taps of r->row at once (emit/row_taps.c); the other dims' indices are in k. */
void reduction_row(struct em *, struct reduction *, expr_id *k, lreg *acc);
/* Sums of a block that begins at k go into those of the whole: multiplied by the block's factor. */
void reduction_scale(struct em *, const struct reduction *, const expr_id *k, const lreg *part, lreg *acc);
/* Those of block `number` of a scaled product, in i32. */
void reduction_add_block(struct em *, const struct reduction *, expr_id number, const lreg *part, lreg *acc);
/* What an accumulator of element type acc starts from, for a result of type e. */
lreg reduction_identity(struct em *, enum lop, enum elem acc, enum elem e, uint32_t lanes);

#endif

/* Values that a kernel computes into scratch and reads there: row buffers (emit/row_buffer.c), the anchor's first
 * operand (emit/stage.c), its second one (emit/panel.c).
 *
 * A *producer* holds a region of its value: along each dim, some indices from a first one on. It is attached to a loop:
 * filled in one block, and read from there until that block ends. em_value asks for it first, so whoever reads the
 * value does not know of it.
 */
#ifndef MCC_PASSES_EMIT_PRODUCER_H
#define MCC_PASSES_EMIT_PRODUCER_H

#include "passes/emit/box.h"

/* Dims of the region, outermost first; `block` indices of dim `lanes` lie together, innermost, and its blocks where
 * `order` has it (-1: no dim). */
struct em_layout {
    int32_t order[RANK_MAX];
    uint32_t n;
    int32_t lanes;
    int64_t block;
};

struct em_producer {
    value_id value; /* {0}: none */
    struct box box;
    struct storage storage; /* of an element of the region, in ... */
    lreg buffer;
    int level; /* of the block that fills it, above which nothing is read, ... */
    lblock home; /* ... and the block; {0}: it is not filled */
    bool filling; /* its value, if asked for, is computed */
    bool padded; /* the region's elements beside the value are zeros */
    bool on_demand; /* a row buffer: who asks for a point first has it filled */
    bool in_result; /* ... once: it is the row of the result, and the last stage stores there */
    bool carried; /* the reduction at hand passes every point once, and stores what it computes */
    bool partial; /* ... but some of its points only under a condition */
    lreg keeper; /* of em_kept_begin; {0}: each index fills it */
    value_id source; /* stored, and prefetched for the next region; {0}: nothing is */
};

void em_producers_begin(struct em *);
/* The one of v, and if it is filled where we are; NULL: there is none. */
struct em_producer *em_producer_of(const struct em *, value_id v);
const struct em_producer *em_producer_seen(const struct em *, value_id v);
bool em_producer_open(const struct em *, const struct em_producer *);
/* v will be there, by p->box, which is known: its buffer, unless it has one, and its places. */
void em_producer_begin(struct em *, struct em_producer *, value_id v, const struct em_layout *);
/* Computes a point and stores it, or 0. */
lreg em_producer_point(struct em *, struct em_producer *, const expr_id *idx, expr_id cond);
void em_producer_zero(struct em *, const struct em_producer *, const expr_id *idx);
/* It is filled, in the block at hand. */
void em_producer_filled(struct em *, struct em_producer *);
/* Can v be had from scratch at this point? */
bool em_produced(struct em *, value_id v, const expr_id *idx, expr_id cond, lreg *result);

/* A row buffer: what is set up for it; filled for the row of a point, if that can be; a point of the reduction that
 * fills it. */
void em_row_buffer_begin(struct em *, struct em_producer *, const struct row_local *);
bool em_row_buffer_fill(struct em *, struct em_producer *, const expr_id *idx, expr_id cond);
lreg em_row_buffer_carry(struct em *, struct em_producer *, const expr_id *idx, expr_id cond);
/* A reduction of v over the given dims, for a point of its result, is about to run its loops in the level now on top:
 * does it fill v's buffer on the way? Then em_row_buffer_carry_end follows its loops. */
bool em_row_buffer_carry_begin(struct em *, value_id v, const int64_t *axes, uint32_t n_axes, const expr_id *point);
void em_row_buffer_carry_end(struct em *, value_id v);

/* The anchor's first operand: a region of it (stage_box), from here on. count: of its last dim, the indices that there
 * are this time, if they are numbers of points; {0}: all. channels: these vectors of a block; none: all. */
void em_stage_fill(struct em *, const struct box *, expr_id count, const expr_id *channels, uint32_t n_channels);
/* Asks for what the next chunk is computed from: the block of channels that ends at `next`, where these points have
 * theirs. */
void em_stage_ahead(struct em *, const struct em_producer *, expr_id *const *points, uint32_t n_points, expr_id next);

#endif

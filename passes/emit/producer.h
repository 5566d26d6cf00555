/* Values that a kernel computes into scratch and reads there: row buffers (emit/row_buffer.c), the anchor's first
 * operand (emit/stage.c), the anchor's second operand (emit/panel.c).
 *
 * A *producer* holds a region of its value: a range of indices along each dim. It is attached to a loop: one block
 * fills it, and statements may read it until that block ends. em_value looks for a producer before it computes a value
 * or loads it from memory, so readers need no special case.
 */
#pragma once

#include "passes/emit/box.h"

/* Layout of a region in scratch: `order` lists its dims, outermost first. `block` consecutive indices of dim `lanes`
 * are innermost, and the blocks of this dim are at its position in `order`. lanes -1: no dim is blocked. */
struct em_layout {
    int32_t order[RANK_MAX];
    uint32_t n;
    int32_t lanes;
    int64_t block;
    int64_t group; /* so many indices of the last dim of `order` lie inside of each lane, as L_DOT takes them; 0: one */
};

struct em_producer {
    value_id value; /* {0}: none */
    struct box box;
    struct storage storage; /* layout of the region in `buffer`, in elements */
    lreg buffer; /* scratch, or the result (in_result) */
    int level; /* level of the block that fills it; no load moves above this level */
    lblock home; /* that block; {0}: the producer is not filled */
    bool filling; /* its points are being computed, so em_value must not read scratch */
    bool padded; /* elements of the region outside the value are zeros */
    bool on_demand; /* a row buffer: the first read of a row fills it */
    bool in_result; /* a row buffer in the row of the result: it is filled once, and the last stage overwrites it */
    bool carried; /* the current reduction visits every point once and stores the points that it computes */
    bool partial; /* `carried`, but the reduction visits some points only under a condition */
    lreg keeper; /* for em_kept_begin; {0}: each parallel index fills the producer */
    value_id source; /* stored value to prefetch for the next region; {0}: none */
};

/* Allocates the producers of the kernel and sets up its row buffers. */
void em_producers_begin(struct em *);
/* The producer of v; NULL: v has none. */
struct em_producer *em_producer_of(const struct em *, value_id v);
/* The producer of v if it is filled in an open block; NULL: v has none, or it is not. */
const struct em_producer *em_producer_seen(const struct em *, value_id v);
/* Is the producer filled, and the block that fills it still open? */
bool em_producer_open(const struct em *, const struct em_producer *);
/* Makes p, whose p->box is set, the producer of v: computes its storage, and allocates scratch unless it has a buffer.
 * Does not fill it. */
void em_producer_begin(struct em *, struct em_producer *, value_id v, const struct em_layout *);
/* Computes the value at a point, stores it into the buffer, and returns it. */
lreg em_producer_point(struct em *, struct em_producer *, const expr_id *idx, expr_id cond);
/* Stores zero at a point of the buffer. */
void em_producer_zero(struct em *, const struct em_producer *, const expr_id *idx);
/* Records that the statements emitted so far fill the producer, in the current block. */
void em_producer_filled(struct em *, struct em_producer *);
/* Loads v at a point from scratch into *result, and fills an on-demand producer first. false: v must be computed. */
bool em_produced(struct em *, value_id v, const expr_id *idx, expr_id cond, lreg *result);

/* Sets up the producer of a row buffer. */
void em_row_buffer_begin(struct em *, struct em_producer *, const struct row_local *);
/* Fills the buffer with the row of the point idx, in a loop of its own. false: it cannot be filled there. */
bool em_row_buffer_fill(struct em *, struct em_producer *, const expr_id *idx, expr_id cond);
/* Computes a point for the reduction that fills the buffer, and stores it; returns the value. */
lreg em_row_buffer_carry(struct em *, struct em_producer *, const expr_id *idx, expr_id cond);
/* To call before the loops of a reduction of v over the given dims, at a point of its result. true: these loops fill
 * v's buffer, and em_row_buffer_carry_end must be called after them. */
bool em_row_buffer_carry_begin(struct em *, value_id v, const int64_t *axes, uint32_t n_axes, const expr_id *point);
void em_row_buffer_carry_end(struct em *, value_id v);

/* The anchor's first operand: a region of it (stage_box), from here on. count: of its last dim, the indices that there
 * are this time, if they are numbers of points; {0}: all. channels: these vectors of a block; none: all. */
void em_stage_fill(struct em *, const struct box *, expr_id count, const expr_id *channels, uint32_t n_channels);
/* Asks for what the next chunk is computed from: the block of channels that ends at `next`, where these points have
 * theirs. */
void em_stage_ahead(struct em *, const struct em_producer *, expr_id *const *points, uint32_t n_points, expr_id next);

/* Loops over the points of a box (a range of indices along each dim), to fill scratch, copy, scatter, or store zeros of
 * a halo. */
#pragma once

#include "passes/emit/emit.h"

struct em_box;
/* What the function of a box gets: `count` points from idx on along the last loop's dim. */
struct em_box_at {
    struct em *em;
    const struct em_box *box;
    expr_id *idx;
    uint32_t count;
    bool inside; /* the points lie inside the value; else in its padding */
    uint32_t depth; /* number of open loops */
};
typedef void em_box_fn(const struct em_box_at *);

/* A loop over the indices [first, first + n) of a dim. The value has the indices [0, size); size {0}: all of the
 * loop's.
 */
struct em_box_loop {
    int32_t dim;
    expr_id first, n, size;
    uint32_t lanes; /* lanes of a vector; 0: scalars */
};
struct em_box {
    struct em_box_loop loop[RANK_MAX]; /* outermost first */
    uint32_t n;
    uint32_t tile; /* largest `count` for points inside the value; 0: one point at a time */
    bool border; /* only the points in the padding */
    em_box_fn *fn; /* called for each point or tile while the loops are open */
    void *user;
};
/* Appends a loop, inside the others. */
void em_box_add(struct em_box *, int32_t dim, expr_id first, expr_id n, uint32_t lanes);
/* Emits the loops. idx: RANK_MAX indices; the caller sets those of dims without a loop. If `first` is known, a loop is
 * split where the value begins and ends; else each iteration tests its index. */
void em_box(struct em *, const struct em_box *, expr_id *idx);

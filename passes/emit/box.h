/* Loops over the points of a box: of a value that is filled into scratch, copied, scattered, or padded with zeros. */
#ifndef MCC_PASSES_EMIT_BOX_H
#define MCC_PASSES_EMIT_BOX_H

#include "passes/emit/emit.h"

struct em_box;
/* A point of the box, or `count` points from idx on along the last loop's dim. */
struct em_box_at {
    struct em *em;
    const struct em_box *box;
    expr_id *idx;
    uint32_t count;
    bool inside; /* of the value; else beside it */
    uint32_t depth; /* loops that are open */
};
typedef void em_box_fn(const struct em_box_at *);

/* A loop over indices first .. first + n - 1 of a dim, of which those of the value are 0 .. size - 1; size {0}: all. */
struct em_box_loop {
    int32_t dim;
    expr_id first, n, size;
    uint32_t lanes; /* points of a vector; 0: one by one */
};
struct em_box {
    struct em_box_loop loop[RANK_MAX]; /* outermost first */
    uint32_t n;
    uint32_t tile; /* points of the last loop at once, at most, inside of the value; 0: one by one */
    bool border; /* only points beside the value */
    em_box_fn *fn;
    void *user;
};
void em_box_add(struct em_box *, int32_t dim, expr_id first, expr_id n, uint32_t lanes);
/* idx: holds the indices of all other dims. A loop of known `first` is cut where the value begins and ends; else each
 * index is asked. */
void em_box(struct em *, const struct em_box *, expr_id *idx);

#endif

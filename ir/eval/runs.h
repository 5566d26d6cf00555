/* Runs: arithmetic progressions of flat row-major positions, and what views make of them. A range of a constant is read
 * run by run (ir/eval/const_read.c). */
#pragma once

#include "ir/eval/eval.h"

struct run {
    int64_t at, stride, n;
};
/* n elements of the destination from position to on. */
struct piece {
    int64_t to, n;
};
typedef VEC(struct run) run_list;
typedef VEC(struct piece) piece_list;

struct shape {
    int32_t rank;
    int64_t dims[RANK_MAX], weight[RANK_MAX]; /* weight: row-major strides */
};
struct shape shape_of(struct graph *, value_id);

/* Appends the run, to the last one where it continues that. */
void runs_push(struct arena *, run_list *, struct run);
/* The elements of the runs, one after the other into dst. */
void runs_copy(const char *src, size_t elem_size, const struct run *, uint32_t n, char *dst);

/* An affine view (broadcast, transpose, slice): the operand's position by the result's coordinates. */
struct affine {
    struct shape shape;
    int64_t base, stride[RANK_MAX];
};
struct affine affine_view(struct graph *, const struct node *);
/* Runs of the view as runs of its operand. */
void runs_of_operand(struct arena *, const struct affine *, const struct run *, uint32_t n, run_list *out);
/* Rows of a transposed matrix, some at a time: a cache line of the operand serves all of them before it is evicted. */
void affine_copy_rows(const struct affine *, const char *src, size_t elem_size, int64_t first, int64_t rows, char *dst);

/* The part of a pad or concat that comes from one operand: result, operand, where it begins in the result. */
struct window {
    struct shape shape, x;
    int64_t lo[RANK_MAX];
};
/* Runs of the operand that lie in the window, the pieces of the destination where they go, and how many elements. */
int64_t runs_in_window(struct arena *, const struct window *, const struct run *, uint32_t n, run_list *, piece_list *);

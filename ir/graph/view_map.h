/* The map of dims of a view: which element of an operand a point of the result shows. One table (column "map" of
 * ops.def) for whoever composes views: points of kernels, the value lattice, ranges of constants, parts of values. */
#pragma once

#include "ir/graph/graph.h"

/* Dim i of the operand is read at start + step * (the point's index along dim `of` of the result). Step 0: it is the
 * same all along `of`. Chosen: at run time the step is 0 if the operand's dim is 1. Window: points that read outside of
 * the operand show something else. */
struct view_map {
    int32_t rank; /* of the operand */
    struct view_dim {
        int32_t of;
        int64_t step;
        expr_id start;
        bool is_chosen, is_window;
    } dim[RANK_MAX];
};
/* Operand k of view n, which may have no results yet. False: dims do not map one by one (reshape), or not by a step (a
 * pad that repeats elements). */
bool view_map(const struct graph *, const struct node *n, uint32_t k, struct view_map *);
/* What v shows, through views that keep row-major order: reshape, identity. */
value_id view_plain(const struct graph *, value_id v);

/* The number of elements: a zero anywhere wins before sizes can overflow. */
expr_id dims_product(struct exprs *, const expr_id *dims, int32_t rank);
/* Neighbouring dims of a reshape's two shapes that hold the same elements: from .. from + n_from - 1 of the one are
 * to .. to + n_to - 1 of the other. Dims of equal extent are groups by themselves. */
struct reshape_group {
    int32_t from, n_from, to, n_to;
};
enum { GROUPS_MOST = RANK_MAX + 1 };
/* The smallest groups, in any order; how many. That keeps symbolic dims out of the arithmetic of others. */
uint32_t reshape_groups(struct exprs *, const struct type *from, const struct type *to,
                        struct reshape_group group[GROUPS_MOST]);

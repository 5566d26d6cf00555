/* Constants that are computed where they are read, by cheap maps and views of smaller constants: what is stored are
 * those, the *leaves*. So weights of a few bits stay packed, and the scales of their blocks small.
 */
#pragma once

#include "passes/module/module.h"

/* Is v, a constant, worth that: do its leaves take at most half of its bytes, where lanes lie along that dim of it (-1:
 * along none)? Asked before constants are stored. */
bool constant_is_compressed(const struct module *, value_id v, int32_t lanes);
/* An index of v along each of its dims, 0 where there is but one. */
void constant_point(const struct module *, value_id v, expr_id *idx);

/* Called for each leaf of v with the point at which element idx of v reads it; those that the expressions tell apart
 * only at run time are all called. leaf_fn of what was stored already too. */
typedef void leaf_fn(void *user, value_id leaf, const expr_id *point);
/* inside: called for v and all that is computed on the way; NULL: nobody asks. stored: the leaves are what has a
 * storage, rather than what should get one. lanes: the index that vectors go along; a leaf has it as the index of one
 * dim, where the operators over it do: what was reshaped is stored after that. {0}: there is none. */
struct leaf_walk {
    const struct module *m;
    leaf_fn *leaf, *inside;
    void *user;
    bool stored;
    expr_id lanes;
};
/* The dim of v whose index is `lanes` at that point; -1: none. */
int32_t leaf_lanes(const struct module *, value_id v, const expr_id *point, expr_id lanes);
void constant_leaves(const struct leaf_walk *, value_id v, const expr_id *idx);
/* Maps that a kernel computes for each element of v; 0: v is stored, or no constant. */
uint32_t constant_maps(const struct module *, value_id v);

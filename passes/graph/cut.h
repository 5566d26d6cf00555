/* Parts of values moved through operators: what a node computes of a part of its result is the same node of parts of
 * its operands. hoist-slices and push-concats decide which parts; which operators give them, and of what, is
 * source_dims (passes/module/access_function.h).
 */
#pragma once

#include "ir/build/build.h"

/* What a slice takes: of each dim the elements start + step * i, i < size. */
struct cut {
    int32_t rank;
    expr_id starts[RANK_MAX], sizes[RANK_MAX];
    int64_t steps[RANK_MAX];
};

struct cut cut_whole(struct graph *, value_id v);
struct cut cut_of_slice(const struct node *slice);
bool cuts_equal(const struct cut *, const struct cut *);
/* The dims of v that c does not take whole and in order, as bits. */
uint32_t cut_dims(struct graph *, value_id v, const struct cut *);
/* The part of operand k that makes part c of n's result; false: it takes more than c says. */
bool cut_operand(struct graph *, const struct node *n, uint32_t k, const struct cut *c, struct cut *of_operand);
/* Is v a broadcast, the same along all those dims? Its parts are shorter broadcasts, which cost nothing. */
bool cut_is_free(struct graph *, value_id v, uint32_t dims);
/* Part c of n's result: n again, of parts of its operands, which cut_operand has. Of operand `made` it is v; n_in: of
 * none. */
value_id cut_through(struct builder *, const struct node *n, const struct cut *c, uint32_t made, value_id v);

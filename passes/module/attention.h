/* Attention: two contractions with a softmax between them, computed as one kernel.
 *
 *   scores = q . k        z = maps of scores (scale, mask, bias ...)        p = softmax of z over the keys
 *   values = p . v
 *
 * for each row of p: a block of rows needs no more of the scores than that block, so they never reach memory. The
 * softmax may count one score more for each row, a sink, that no value has.
 *
 * The pass find_attention finds all of them, once, and the record is part of the module. It names nodes inside and
 * their operands, never a value from outside: later passes may replace those (round, pack or copy them), and nothing
 * inside. The verifier checks that (module/verify_module.c).
 */
#pragma once

#include "passes/module/access_function.h"

/* One operand of a node; none: node {0}. */
struct attention_step {
    node_id node;
    uint32_t operand;
};
typedef VEC(struct attention_step) attention_steps;

struct attention {
    node_id scores, values;
    uint32_t rows_of; /* which operand of `scores` the rows of p come from: 0 or 1 */
    value_id z, terms; /* what the softmax is of; exp(z - max); small ones are 0 */
    value_id max; /* of the keys; where there is a sink: with it */
    struct attention_step sink; /* of the maximum of both; of the kind of max, at its points */
    struct attention_step least; /* what the sum is raised to, a splat: 1 makes rows without any key 0; none: NaN */
    struct attention_step cleared; /* the select that makes 0 of each probability that is NaN: those of a row are NaN
                                    * all together, or none is; none: they stay */
    attention_steps to_z, to_max, to_scores; /* from p to z, views; from what is subtracted from z to max, from z to the
                                              * scores, views and maps */
    node_list nodes; /* computed inside, `values` apart */
};

/* The attention whose results, or scores, the node makes, as a kernel has it; NULL: there is none, or kernels are not
 * to have it (module.asked.attention, opt_level). */
const struct attention *attention_of_values(const struct module *, node_id);
const struct attention *attention_of_scores(const struct module *, node_id);
/* Does it make results or scores of an attention, whether kernels are to have it or not? */
bool is_attention_product(const struct module *, node_id);
/* Makes a copy part of the module; false: another attention has its scores or results. */
bool attention_record(struct module *, const struct attention *);

/* The first obstacle that keeps attention whose results the node makes from being recorded; NULL: it makes none. why:
 * what the search knows (passes/graph/attention_missed.c). */
const char *attention_obstacle(struct module *, node_id values, const char *why);

/* The dims of an operand of its products. The first operand may have other dims than its rows or keys free, before
 * them: heads of one key. They are batch dims of the result, which the second operand does not have. */
bool attention_dims(const struct graph *, const struct node *, uint32_t operand, struct dot_dims *);
value_id attention_operand(const struct graph *, struct attention_step);
/* The point of the first node's result -> that of the last operand; in place. */
void attention_walk(const struct graph *, const attention_steps *, expr_id *idx);

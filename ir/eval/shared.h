/* Results of expensive nodes that graphs of two contexts share (mcc prove). Both compute most products and reductions
 * of the network: of equal operands one graph takes what the other has computed. */
#pragma once

#include "ir/eval/eval.h"

/* Until the next draw. What the interpreter of `arena`'s context computes is kept there, operands with it. */
struct shared_results *shared_new(struct arena *);
/* Is the node worth it, and are there shared results in its context? */
bool shared_serves(const struct eval *, const struct node *);
/* Fills the results with those of an equal node on equal operands, which are compared byte by byte; *found false:
 * there is none. */
enum eval_status shared_take(struct eval *, const struct node *, struct tensor *const *in, struct tensor *out,
                             bool *found);
/* Keeps a copy. */
void shared_keep(struct eval *, const struct node *, struct tensor *const *in, const struct tensor *out);

/* Randomised identity testing: graphs over a field. */
#ifndef MCC_IR_EVAL_FIELD_H
#define MCC_IR_EVAL_FIELD_H

#include "ir/graph/graph.h"

/* From here on floats are GF(q) x GF(p), in this graph and in all that its context's interpreter computes; once. */
void graph_enter_field(struct graph *);
/* Before that: what the constant v, one float, will be: computed there, while floats are folded with rounding.
 * False: it is no expression of few maps and views of single elements, or `folded`, which the code has, is not what it
 * is except for rounding: then that is to be found. */
bool field_number(struct graph *, value_id, double folded, uint32_t *residue);

#endif

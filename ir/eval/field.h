/* Randomised identity testing: graphs over a field. */
#ifndef MCC_IR_EVAL_FIELD_H
#define MCC_IR_EVAL_FIELD_H

#include "ir/graph/graph.h"

/* From here on f32 is GF(q) x GF(p), in this graph and in all that its context's interpreter computes; once. */
void graph_enter_field(struct graph *);

#endif

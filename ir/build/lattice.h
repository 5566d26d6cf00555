/* The value lattice: elements of small integer and bool tensors as expressions. Shared by ir/build/build.c and
 * ir/build/lattice.c. */
#pragma once

#include "ir/graph/graph.h"

enum { LATTICE_MAX = 4096 }; /* elements of a tensor whose values are tracked */

/* The number of elements when static and at most LATTICE_MAX and the elements are integers or bool; else false. */
bool lattice_applies(const struct graph *, const struct type *, uint32_t *n);
/* Known elements of v; constants are read on demand. NULL: nothing known. */
const expr_id *lattice_elems(struct graph *, value_id v);
/* Elements of the single result, of type out, of a node about to be made; NULL: nothing known. In the graph's arena. */
const expr_id *lattice_node(struct graph *, const struct node *, const struct type *out, uint32_t *n);

/* Which values at which points a walk has met. Operands that several readers share make the nodes behind a value a
 * graph; a walk that follows each path to them takes time exponential in its depth. */
#pragma once

#include "passes/module/module.h"

struct visited_point {
    value_id value;      /* {0}: a free slot */
    const expr_id *idx;
};
struct visited {
    const struct graph *g;
    struct arena *arena;          /* what the set takes lies here */
    struct visited_point *slots;  /* open addressing; n_slots is 0 or a power of two */
    uint32_t n, n_slots;
};

/* Enters the value v at point idx (an expression for each of its dims, copied; NULL: v as a whole). False: it is there
 * already. */
bool visit(struct visited *, value_id v, const expr_id *idx);

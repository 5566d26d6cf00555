/* The templates: the loop IR of a kernel, as its schedule says; false after a diagnostic. And what they share. */
#ifndef MCC_PASSES_TEMPLATES_H
#define MCC_PASSES_TEMPLATES_H

#include "passes/emit/emit.h"

/* Flattens loops [0, extent) into one parallel index; sets each var. For a core alone only the first one: what the
 * others share is computed outside of them, and nothing is divided. */
struct loop {
    int32_t dim;
    expr_id extent;
    expr_id var;
};
struct em_parallel {
    struct em_for index, inner[RANK_MAX + 4];
    uint32_t n;
};
void em_parallel_open(struct em *, struct em_parallel *, struct loop *, uint32_t n);
void em_parallel_close(struct em *, struct em_parallel *);
/* The loops of a record's nest over dims of these extents (emit/nest.c): body at each point, or vector or tile of them.
 * em_nest opens the parallel loop and closes it, em_nest_serial emits a nest without one. */
typedef void nest_fn(struct em *, void *user, expr_id *idx);
void em_nest(struct em *, const struct nest_schedule *, const expr_id *extents, nest_fn *, void *user);
void em_nest_serial(struct em *, const struct nest_schedule *, const expr_id *extents, nest_fn *, void *user);
/* The domain's value at a tile of points that begins at idx, transposed in registers and stored (emit/transpose.c). */
void em_transposed(struct em *, int32_t vec, int32_t source, uint32_t lanes, uint32_t columns, expr_id *idx);
/* The anchor's result at a point is known: evaluates what the kernel does after it, stores that and returns it. */
lreg tile_store(struct em *, const expr_id *point, lreg result);
/* Where the kernel's domain has a point of the anchor's result. */
void tile_domain(struct em *, const expr_id *point, expr_id at[RANK_MAX]);

typedef bool template_fn(struct em *);
#define KIND(id, name, what) template_fn emit_##name;
#include "passes/schedule/fields.def"

#endif

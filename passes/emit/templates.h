/* The templates, one for each kind of schedule, and functions that they share. A template emits the loop IR of a kernel
 * as its schedule says; it returns false after a diagnostic. */
#pragma once

#include "passes/emit/emit.h"

/* Flattens loops over [0, extent) into one parallel index, and sets each var. On a CPU with one core only the first
 * loop becomes the parallel index: then values that the other loops share are hoisted, and no index is divided. */
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
/* Emits the loops of a schedule over dims of these extents (emit/nest.c), and calls the function in the innermost one,
 * with the index of a point, or of the first point of a vector or tile. em_nest also opens and closes the parallel
 * loop; em_nest_serial emits only serial loops. */
typedef void nest_fn(struct em *, void *user, expr_id *idx);
void em_nest(struct em *, const struct nest_schedule *, const expr_id *extents, nest_fn *, void *user);
void em_nest_serial(struct em *, const struct nest_schedule *, const expr_id *extents, nest_fn *, void *user);
/* Computes the domain's value at a tile of points that begins at idx, transposes it in registers and stores it
 * (emit/transpose.c). */
void em_transposed(struct em *, int32_t vec, int32_t source, uint32_t lanes, uint32_t columns, expr_id *idx);
/* Evaluates the epilogue for the anchor's result at a point, stores the value and returns it. */
lreg tile_store(struct em *, const expr_id *point, lreg result);
/* Maps a point of the anchor's result to the kernel's domain: at. */
void tile_domain(struct em *, const expr_id *point, expr_id at[RANK_MAX]);

typedef bool template_fn(struct em *);
#define KIND(id, name, what) template_fn emit_##name;
#include "passes/schedule/fields.def"

/* The templates: the loop IR of a kernel, as its schedule says; false after a diagnostic. And what they share. */
#ifndef MCC_PASSES_TEMPLATES_H
#define MCC_PASSES_TEMPLATES_H

#include "passes/emit/emit.h"

/* Flattens loops [0, extent) into one parallel index; sets each var. */
struct loop {
    int32_t dim;
    expr_id extent;
    expr_id var;
};
void em_parallel_open(struct em *, struct em_for *, struct loop *, uint32_t n);
/* The points of a dim of n that vector number `vector` has, of so many lanes; the last one's are masked. */
expr_id em_vector_lanes(struct em *, expr_id n, uint32_t lanes, expr_id vector);
/* Whole vectors along n points of a dim from `first` on, a loop, then what is left: fn at the points of each. */
typedef void vector_fn(struct em *, void *user, expr_id points);
void em_vectors(struct em *, expr_id first, expr_id n, uint32_t lanes, vector_fn *, void *user);
/* The anchor's result at a point is known: evaluates what the kernel does behind it, stores that and returns it. */
lreg tile_store(struct em *, const expr_id *point, lreg result);
/* Where the kernel's domain has a point of the anchor's result. */
void tile_domain(struct em *, const expr_id *point, expr_id at[RANK_MAX]);

typedef bool template_fn(struct em *);
template_fn emit_map;                           /* emit/template_map.c */
template_fn emit_tiled;                         /* emit/template_tiled.c */
template_fn emit_scan, emit_scatter, emit_halo; /* emit/template_serial.c */
template_fn emit_winograd;                      /* emit/winograd/winograd.c */
template_fn emit_attention;                     /* emit/attention/attention.c */

#endif

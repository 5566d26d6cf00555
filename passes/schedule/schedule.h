/* Between schedule.c, its templates and their cost model. */
#ifndef MCC_PASSES_SCHEDULE_H
#define MCC_PASSES_SCHEDULE_H

#include "passes/emit/emit.h"

/* Flattens loops [0, extent) into one parallel index; sets each var. */
struct loop { int32_t dim; expr_id extent; expr_id var; };
void em_parallel_open(struct em *, struct em_for *, struct loop *, uint32_t n);
/* The anchor's result at a point is known: evaluates what the kernel does behind it, stores that and returns it. */
lval tile_store(struct em *, const expr_id *point, lval result);
/* Where the kernel's domain has a point of the anchor's result. */
void tile_domain(struct em *, const expr_id *point, expr_id at[RANK_MAX]);

/* The templates: a kernel's loop IR, false after a diagnostic. */
typedef bool template_fn(struct em *);
template_fn emit_map;                           /* emit/template_map.c */
template_fn emit_tiled;                         /* emit/template_tiled.c */
template_fn emit_scan, emit_scatter, emit_halo; /* emit/template_serial.c */
template_fn emit_winograd;                      /* emit/winograd/winograd.c */
template_fn emit_attention;                     /* emit/attention/attention.c */
enum { FEW_POINTS = 1024 };

struct tile_choice {
    int32_t vec, a, b;           /* dims of the anchor's result: lanes, and up to two that are register-tiled; -1: none */
    uint32_t lanes, nr, ta, tb;
    bool flat;                   /* points of b and a are numbered through and tiled as one dim of ta points */
    int64_t ns;                  /* estimated per parallel index */
    uint64_t flops;              /* of the whole kernel, at the least extents */
};
/* The taps along the last spatial dim, number `dim` of the spatial ones, where they share what they broadcast (emit/row.c). */
struct row_taps { int32_t dim; int64_t taps, stride, dilation; };
struct row_taps em_row_taps(struct em *, const struct node *);      /* dim -1: they do not */
int64_t row_places(const struct row_taps *, int64_t points);        /* that so many points in a row read at all taps */
struct tile_choice tile_choose(struct em *);
/* Cost of one step of a contraction of so many steps, over n points (known or a guess) in tiles of at most `size` by nr vectors. */
int64_t tile_line_cost(const struct machine *, int64_t n, bool known, int64_t size, int64_t nr, uint64_t steps);
uint64_t tile_steps(struct em *, const struct node *anchor);   /* of the reduction at one point; guesses where symbolic */

#endif

/* What passes ask of values, contractions and extents, whatever decides or emits. */
#ifndef MCC_PASSES_ANALYSIS_H
#define MCC_PASSES_ANALYSIS_H

#include "passes/module/module.h"

/* Without the broadcasts that repeat it. */
value_id value_unspread(const struct graph *, value_id);
/* Operand of a map that its result lies like: the first that is neither a constant nor a broadcast, if there is one. */
value_id map_source(const struct graph *, const struct node *);
/* One constant element everywhere: *f of floats, *i of integers and bool. */
bool value_is_splat(struct graph *, value_id, double *f, int64_t *i);
/* All elements of a float tensor that are not NaN lie in lo .. hi (passes/module/float_range.c). */
struct float_range {
    double lo, hi;
};
struct float_range float_range(struct graph *, value_id);
/* The same finite one, in the same type. */
bool splats_equal(struct graph *, value_id, value_id);
/* Is v, one constant element everywhere, a number that a network chooses and the code does not care about: a scale or a
 * zero point? Of kernels that compute with bytes such numbers lie in memory, so that equal layers have equal code. */
bool splat_is_number(struct graph *, value_id);
/* What node n of the kernel reads: its operands; of a concat that is stored piece by piece only the kernel's own. */
const value_id *kernel_operands(const struct kernel *, const struct node *n, uint32_t *count);
bool kernel_has_bytes(const struct graph *, const struct kernel *);
/* Where it is stored: v, or what v is a view of; {0}: nowhere. */
value_id splat_stored(const struct module *, value_id);
/* Is n a contraction of bytes whose blocks have scales? */
bool dot_scaled(const struct node *n);
/* The element types that L_DOT takes of contraction n; DOT_KINDS: no L_DOT. */
enum dot_kind dot_kind_of(const struct module *, const struct node *n);
/* Does L_DOT go along the last dim of the window? A depthwise convolution reduces no channels; a microcontroller goes
 * through an image of one channel so, too. */
bool conv_by_taps(const struct module *, const struct node *n);
/* Elements that one L_DOT sums per lane in contraction n, along its innermost reduced dim or the last dim of its window
 * (conv_by_taps). 1: no L_DOT. */
uint32_t dot_group(const struct module *, const struct node *n);
/* Is L_DOT of contraction n's elements one instruction there? */
bool dot_is_whole(const struct machine *, const struct module *, const struct node *n);
/* Elements of a column that lie together in the panels of contraction n: two groups where some variant multiplies rows
 * by columns, else a group. */
uint32_t panel_group(const struct module *, const struct node *n);
enum { LANE_STEPS = 4 /* groups that a register of 16 bytes holds */, REGISTER_BYTES = 16 };
enum { HALF_STEPS = 64, HALF_LEAST = 32 }; /* summed in f16 (docs/numerics.md); fewer gain nothing */

/* The dim of v along which memory is contiguous, after every stored value has a storage; -1: unknown. */
int32_t value_fast_dim(const struct module *, value_id v);
/* Is n one whose result is an index? The element that its sums, or the best of its elements, have in registers. */
bool reduce_is_arg(const struct node *);
enum elem reduce_elem(const struct graph *, const struct node *n);
/* Does reduce n sum, or search, along the dim in which memory is contiguous, so that lanes are added up in the end? */
bool reduce_horizontal(const struct module *, const struct node *n);

/* What registers hold: f16 and smaller floats as f32, 4-bit integers as 8-bit. */
enum elem register_elem(enum elem);
/* Lanes of a full vector of it; of a vector of points of it, which are 4 bytes wide at least: index arithmetic is. */
uint32_t machine_lanes(const struct machine *, enum elem);
uint32_t machine_vector_lanes(const struct machine *, enum elem);

/* The extent; a guess where it is open. */
int64_t extent_hint(const struct exprs *, expr_id);
/* An extent where every symbol has its least value above 0. */
int64_t extent_least(struct module *, expr_id);
/* A spatial extent where every symbol is `side`, or as near as it comes: of a map in a network over such images. */
int64_t extent_of_image(struct module *, expr_id, int64_t side);
/* An extent at the sizes of module.asked.counted_at, others at their least: for what kernels cost in the artifact's
 * table. */
int64_t extent_counted(struct module *, expr_id);

/* Elements from the first one of a stored concat's result to operand `piece`; false where that is inside a block. */
bool piece_start(const struct module *, const struct node *concat, uint32_t piece, expr_id *start);
/* The node that a kernel goes by, as a src_id's number: its reduction's, else that of what it stores. A kernel that
 * only fills the halo of another's result goes by that one's. And that node's label. */
uint32_t kernel_lead(const struct module *, const struct kernel *);
const char *kernel_label(const struct module *, const struct kernel *);
/* Drops kernels, by number, and says in kernel_of who is left of those that compute a node. */
void kernels_remove(struct module *, const bool *gone);

#endif

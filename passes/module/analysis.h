/* Queries about values, contractions and extents, for passes, schedules and emitters. */
#pragma once

#include "passes/module/module.h"

/* The operand of the broadcasts that compute the value; the value itself if there are none. */
value_id value_unspread(const struct graph *, value_id);
/* The operand of a map that determines the layout of its result: the first that is neither a constant nor a broadcast,
 * if there is one. */
value_id map_source(const struct graph *, const struct node *);
/* Is the value constant, with the same element everywhere? Stores it to *f (floats) or *i (integers and bool). */
bool value_is_splat(struct graph *, value_id, double *f, int64_t *i);
/* Bounds of all elements of a float tensor that are not NaN (passes/module/float_range.c). */
struct float_range {
    double lo, hi;
};
struct float_range float_range(struct graph *, value_id);
/* Are both values splats of the same finite element and type? */
bool splats_equal(struct graph *, value_id, value_id);
/* Is the splat v a parameter of the network, such as a scale or a zero point, on which the code need not depend? int8
 * kernels load such splats from memory, so that equal layers share code. */
bool splat_is_number(struct graph *, value_id);
/* The operands that node n reads in the kernel. For a concat that is stored operand by operand, only the kernel's. */
const value_id *kernel_operands(const struct kernel *, const struct node *n, uint32_t *count);
bool kernel_has_bytes(const struct graph *, const struct kernel *);
/* The stored value of a splat: v, or the value that v is a view of; {0}: not stored. */
value_id splat_stored(const struct module *, value_id);
/* Is n an int8 contraction with a scale for each block? */
bool dot_scaled(const struct node *n);
/* The element types of L_DOT for contraction n; DOT_KINDS: n does not use L_DOT. */
enum dot_kind dot_kind_of(const struct module *, const struct node *n);
/* Does L_DOT take elements along the last dim of the window? True for depthwise convolutions, which reduce no channels,
 * and on microcontrollers for images of one channel. */
bool conv_by_taps(const struct module *, const struct node *n);
/* Elements that one L_DOT sums per lane in contraction n, along its innermost reduced dim or the last dim of its window
 * (conv_by_taps). 1: no L_DOT. */
uint32_t dot_group(const struct module *, const struct node *n);
/* Is L_DOT of contraction n's elements a single instruction of the machine? */
bool dot_is_whole(const struct machine *, const struct module *, const struct node *n);
/* Consecutive elements of a column in the panels of contraction n: two groups if some variant uses L_MATDOT, else one
 * group. */
uint32_t panel_group(const struct module *, const struct node *n);
enum { LANE_STEPS = 4 /* groups that a register of 16 bytes holds */, REGISTER_BYTES = 16 };
enum { HALF_STEPS = 64, HALF_LEAST = 32 }; /* summed in f16 (docs/numerics.md); fewer gain nothing */

/* The dim of v along which memory is contiguous; -1: unknown. Needs the storages of all stored values. */
int32_t value_fast_dim(const struct module *, value_id v);
/* Is the result of the reduction an index? */
bool reduce_is_arg(const struct node *);
/* The element type of the accumulators of reduction n. */
enum elem reduce_elem(const struct graph *, const struct node *n);
/* Does reduction n run along the dim in which memory is contiguous? Then lanes are combined at the end. */
bool reduce_horizontal(const struct module *, const struct node *n);

/* The element type in registers: f32 for f16 and smaller floats, 8-bit integers for 4-bit ones. */
enum elem register_elem(enum elem);
/* Lanes of a full vector of the element type. */
uint32_t machine_lanes(const struct machine *, enum elem);
/* Lanes of a vector of points of the element type, which counts as at least 4 bytes wide because of index arithmetic */
uint32_t machine_vector_lanes(const struct machine *, enum elem);

/* The extent; if it is dynamic, a guess. */
int64_t extent_hint(const struct exprs *, expr_id);
/* The extent if every symbol has its least value above 0. */
int64_t extent_least(struct module *, expr_id);
/* A spatial extent if every symbol is `side`, or its value nearest to that: the extent in a network over such images */
int64_t extent_of_image(struct module *, expr_id, int64_t side);
/* The extent at the sizes of module.asked.counted_at and the least values of other symbols, for the costs of kernels in
 * the artifact's table. */
int64_t extent_counted(struct module *, expr_id);

/* Offset of operand `piece` in the result of a stored concat, in elements; false: it is inside a block of channels. */
bool piece_start(const struct module *, const struct node *concat, uint32_t piece, expr_id *start);
/* The leading node of a kernel, as the number of its src_id: the anchor, else the node of the stored value. For a
 * kernel that only fills a halo, the leading node of the kernel that stores the value. */
uint32_t kernel_lead(const struct module *, const struct kernel *);
/* The label of that node, for messages. */
const char *kernel_label(const struct module *, const struct kernel *);
/* Removes the kernels with gone[number], and updates kernel_of. */
void kernels_remove(struct module *, const bool *gone);

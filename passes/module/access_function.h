/* Access functions: which element of an operand a point of the result reads. */
#pragma once

#include "ir/graph/view_map.h"
#include "passes/module/module.h"

/* Maps point idx of the view's result (one expression per dim) to the point `out` of operand k. *cond: the condition
 * under which the view reads this operand (pad, concat); the constant 1 for other views. */
void view_index(const struct graph *, const struct node *, uint32_t k, const expr_id *idx, expr_id *out, expr_id *cond);
/* Returns operand k of n, a view or a map, and stores the point of it that point idx of the result reads to `at`, which
 * may be idx. */
value_id operand_at(const struct graph *, const struct node *n, uint32_t k, const expr_id *idx, expr_id *at);
/* Follows views from v to their operand, while a kernel computes them and view_is_whole; replaces idx by the point of
 * the value that it returns. */
value_id behind_views(const struct module *, value_id v, expr_id *idx);
/* Maps a point of the operand of an invertible view (view_invertible) to a point of the result. */
void view_inverse(const struct graph *, const struct node *, const expr_id *idx, expr_id *out);

/* Does this view read the same operand at every point? False for pad and concat, and for other operators. */
bool view_is_whole(enum op);

/* Stores for each dim d of n's result the dim of[d] of operand k that it comes from: the extents are equal, and index i
 * of d depends only on index i of of[d]. false: the operator mixes all dims (a window, a scan, a gather). */
enum {
    SOURCE_NONE = -1, /* the operand does not vary along d */
    SOURCE_MIXED = -2 /* d comes from several dims, or from a part of one */
};
bool source_dims(const struct graph *, const struct node *n, uint32_t k, int32_t of[RANK_MAX]);

/* What an index operator reads for a point of its result: its data at point `at`, except that operand 1 gives the
 * indices of dims dim .. dim + n - 1. It holds them at point `index`, whose dim `component` numbers them (-1: n is 1
 * and there is no such dim). The later dims of the data correspond to dims `after` and up of the result. */
struct index_access {
    int32_t dim, n, component, after;
    expr_id at[RANK_MAX], index[RANK_MAX];
};
void index_access(const struct graph *, const struct node *, const expr_id *idx, struct index_access *);

/* Row-major index of a point, and its inverse. */
expr_id point_linear(struct exprs *, const expr_id *idx, const expr_id *dims, int32_t rank);
void point_split(struct exprs *, expr_id linear, const expr_id *dims, int32_t rank, expr_id *out);
/* Offset of a point in a storage, in elements. */
expr_id storage_address(struct exprs *, const struct storage *, const expr_id *idx);
/* Does the expression or type depend on a value that the run computes (a SYM_VALUE symbol)? */
bool late_expr(struct exprs *, expr_id);
bool late_type(struct exprs *, const struct type *);

/* Stores the dims of a contraction's operand 0 or 1 that are neither batch nor contracted, in order; returns their
 * number. */
int32_t dot_free(const struct graph *, const struct node *, uint32_t operand, int32_t free_dim[RANK_MAX]);
/* Dims of a contraction's operand 0 or 1: batch (those of the result, in order), the contracted one, the free one.
 * False unless there is one of each of the last two. */
struct dot_dims {
    uint32_t n_batch;
    int32_t batch[RANK_MAX], contract, free;
};
bool dot_dims(const struct graph *, const struct node *, uint32_t operand, struct dot_dims *);

/* If v is a slice of a constant with a dynamic index along some dims and all indices along the others (the weights of
 * one expert), the constant; else v. */
value_id weight_whole(const struct graph *, value_id v);
/* Replaces *v by its operand if v transposes it or converts it to a wider type, since such constants are stored before
 * the conversion. Updates perm (or NULL): dim d of some value, which was dim perm[d] of v, is dim perm[d] of the
 * operand. false: v itself is stored. */
bool weight_step(const struct graph *, value_id *v, int64_t *perm);
/* Stores the order of the constant's dims in panels of n's second operand, outermost first: batch, free, contracted. n
 * is a contraction or a convolution; perm[d] is the dim of the constant for dim d of the operand. *lanes: the dim of
 * which CHANNEL_BLOCK consecutive elements are innermost. Returns the number of dims; 0: no free dim, so no panels. */
int32_t weight_order(const struct graph *, const struct node *n, const int64_t *perm, int32_t order[RANK_MAX],
                     int32_t *lanes);

/* conv_tiles: number of tiles along a dim of this extent, if a tile has `tile` results that are `dilation` apart.
 * conv_tile_at: first index of tile `number`: (number div dilation) * dilation * tile + number mod dilation. */
expr_id conv_tiles(struct exprs *, expr_id extent, int64_t dilation, int64_t tile);
expr_id conv_tile_at(struct exprs *, expr_id number, int64_t dilation, int64_t tile);

/* How far the windows of convolution n read outside its input along spatial dim d, in elements below index 0 and above
 * the last index, if outputs are computed in whole tiles. false: unknown. */
bool conv_reach(const struct graph *, const struct node *n, int32_t d, int64_t tile, int64_t *below, int64_t *above);
/* Is the padding along spatial dim d so wide that a map of dynamic size may lie between two taps? Then the loop over
 * the taps visits only those that read the map at some point of the tile (emit/reduce.c). The halo is wide enough for
 * the other points of a tile of BOUNDED_POINTS. */
enum { BOUNDED_POINTS = 14 };
bool conv_bounded(const struct module *, const struct node *n, int32_t d);

/* Are the lanes of convolution n along the last spatial dim, with data in plain layout? True with layout NCHW, and if
 * blocks of channels would straddle groups, so that every load would be a gather. False for depthwise convolutions with
 * other layouts: their groups have one channel. */
bool conv_pixel_lanes(const struct module *, const struct node *n);
/* Does the convolution have a group for each channel of the operand? */
bool conv_depthwise(const struct graph *, const struct node *);
/* Does the convolution map each of a static number of images to one point, with channels in lanes? Then the images are
 * the rows of a product. */
bool conv_of_rows(const struct module *, const struct node *);
/* Does the convolution have one group and one channel? */
bool conv_one_channel(const struct graph *, const struct node *);

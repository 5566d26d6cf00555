/* Access functions: which element of an operand a point of the result reads. */
#ifndef MCC_PASSES_ACCESS_FUNCTION_H
#define MCC_PASSES_ACCESS_FUNCTION_H

#include "ir/graph/view_map.h"
#include "passes/module/module.h"

/* Point idx (one expression per dim of the view's result) -> point out of operand k. cond: 1 where the operand is
 * read at all (pad, concat); ex_const 1 elsewhere. */
void view_index(const struct graph *, const struct node *, uint32_t k, const expr_id *idx, expr_id *out, expr_id *cond);
/* Operand k of n, a view or a map, and at: the point of it that point idx of n's result shows or takes, if it is read
 * at all. at may be idx. */
value_id operand_at(const struct graph *, const struct node *n, uint32_t k, const expr_id *idx, expr_id *at);
/* From v at idx to what it shows there: through whole views (view_is_whole) that a kernel computes. */
value_id behind_views(const struct module *, value_id v, expr_id *idx);
/* The other way for an invertible view (view_invertible): point of the operand -> point of the result. */
void view_inverse(const struct graph *, const struct node *, const expr_id *idx, expr_id *out);

/* Is one operand read, whatever the point? Not so of pad and concat, nor of what is no view. */
bool view_is_whole(enum op);

/* Which dim of operand k makes each dim of n's result: of[d], which has the same extent, and each index d of the result
 * needs nothing of operand k but index of[d]. False: an operator that mixes all dims (a window, a scan, a gather). */
enum {
    SOURCE_NONE = -1, /* the operand is the same all along d */
    SOURCE_MIXED = -2 /* several dims, or a part of one */
};
bool source_dims(const struct graph *, const struct node *n, uint32_t k, int32_t of[RANK_MAX]);

/* What an index operator reads for point idx of its result: its data at `at`, of which dims `dim` .. dim + n - 1 are
 * left open: they are what its operand 1 holds at `index`, where dim `component` counts them (-1: there is one, and no
 * such dim). The dims of the data after those run along dims `after` and up of the result. */
struct index_access {
    int32_t dim, n, component, after;
    expr_id at[RANK_MAX], index[RANK_MAX];
};
void index_access(const struct graph *, const struct node *, const expr_id *idx, struct index_access *);

/* Row-major index of a point, and back. */
expr_id point_linear(struct exprs *, const expr_id *idx, const expr_id *dims, int32_t rank);
void point_split(struct exprs *, expr_id linear, const expr_id *dims, int32_t rank, expr_id *out);
/* The element of a storage at a point. */
expr_id storage_address(struct exprs *, const struct storage *, const expr_id *idx);
/* Does it depend on what only the run computes (a SYM_VALUE symbol)? */
bool late_expr(struct exprs *, expr_id);
bool late_type(struct exprs *, const struct type *);

/* The dims of a contraction's operand 0 or 1 that are neither batch nor contracted, in order; their number. */
int32_t dot_free(const struct graph *, const struct node *, uint32_t operand, int32_t free_dim[RANK_MAX]);
/* Dims of a contraction's operand 0 or 1: batch (those of the result, in order), the contracted one, the free one.
 * False unless there is one of each of the last two. */
struct dot_dims {
    uint32_t n_batch;
    int32_t batch[RANK_MAX], contract, free;
};
bool dot_dims(const struct graph *, const struct node *, uint32_t operand, struct dot_dims *);

/* The constant of which v is the matrix that the run chooses: a slice that leaves one index along some dims and all of
 * the others (an expert's weights). Else v itself. */
value_id weight_whole(const struct graph *, value_id v);
/* From v to what it transposes or widens: narrower floats and bytes are stored as they are, and widened where they are
 * read. Dim d of some value was dim perm[d] of v, and is dim perm[d] of that; perm may be NULL. False: v is stored. */
bool weight_step(const struct graph *, value_id *v, int64_t *perm);
/* The order in which panels of n's second operand, n a contraction or a convolution, hold the dims of the constant
 * after it, outermost first: batch, free, contracted. perm[d]: the constant's dim that dim d of the operand is.
 * *lanes: its dim of which CHANNEL_BLOCK elements lie together. Returns how many; 0: there is no free dim, and no
 * panels. */
int32_t weight_order(const struct graph *, const struct node *n, const int64_t *perm, int32_t order[RANK_MAX],
                     int32_t *lanes);

/* Tiles of `tile` results along one dim, `dilation` apart, of an extent; where tile `number` begins. Tiles of the same
 * results modulo the dilation are that far apart, so the last ones begin last. */
expr_id conv_tiles(struct exprs *, expr_id extent, int64_t dilation, int64_t tile);
expr_id conv_tile_at(struct exprs *, expr_id number, int64_t dilation, int64_t tile);

/* How far the windows of convolution n read outside its input along spatial dim d, in elements below the first and
 * above the last, outputs computed in whole tiles; false when that is not known. */
bool conv_reach(const struct graph *, const struct node *n, int32_t d, int64_t tile, int64_t *below, int64_t *above);
/* Does its padding along spatial dim d reach so far that a map of dynamic size may lie between two taps? Then its loop
 * goes over the taps only that read the map at one of a tile's points (emit/reduce.c). The halo holds what the others
 * of BOUNDED_POINTS points read beside it. */
enum { BOUNDED_POINTS = 14 };
bool conv_bounded(const struct module *, const struct node *n, int32_t d);

/* Does convolution n take its lanes along the last spatial dim, with data in plain layout? Always where the layout is
 * NCHW; else where blocks of channels would straddle groups, so that every load were a gather. Depthwise ones, whose
 * groups have one channel, have no such trouble. */
bool conv_pixel_lanes(const struct module *, const struct node *n);
/* A convolution with a group for each channel of the operand. */
bool conv_depthwise(const struct graph *, const struct node *);
/* A convolution of several images, of which there are as many in each run, to one point each, with channels in the
 * lanes: the images are the rows of a product. */
bool conv_of_rows(const struct module *, const struct node *);
/* A convolution of one group and one channel. */
bool conv_one_channel(const struct graph *, const struct node *);

#endif

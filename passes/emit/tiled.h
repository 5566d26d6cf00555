/* State of the current register tile. The template of anchors (emit/template_tiled.c) shares it with the parts that
 * keep operands in cache: blocks of a long contraction (emit/template_block.c), prefetched lines (emit/prefetch.c), a
 * staged operand (emit/template_staged.c).
 */
#pragma once

#include "passes/emit/reduce.h"
#include "passes/emit/templates.h"
#include "passes/emit/register_tile.h"

struct tiling {
    const struct tile_schedule *s;
    const struct node *n;
    const struct type *t; /* of the anchor's result */
    expr_id idx[RANK_MAX];
    expr_id piece[TILE_VECTORS_MOST]; /* index along vec of each vector of the current tile */
    uint32_t n_pieces;
    bool own_block; /* no other parallel index has the block of vectors of this one */
    bool fixed_b; /* the rows of b are a parallel index: the tile has only those at row0 */
    int64_t lines; /* number of a product's rows that are a parallel index inside that of the panels, as far as known */
    expr_id line; /* the current one */
    bool even; /* the number of points of a flat tile is known, and split evenly */
    expr_id row0; /* number of the current tile of an even split */
    int32_t split_dim; /* if s->split: the dim that is split, -1 for an even flat tile */
    expr_id first; /* if s->split: first tile of the current part */
    lreg sums; /* if s->epilogue: scratch for the sums of the current tile */
    enum { ALL_TILES, WHOLE_TILES, REST_OF_TILES } which; /* of a dynamic number of rows */
    lreg block[2]; /* if s->matmul of a scaled product: scratch for the sums of a block, and of the next one */
    lreg partial; /* scratch: partial results of the row so far, for the lanes of the piece (kernel.outs[1]) */
    enum lop combine;
    expr_id here; /* number of tiles of the current group, from row0 on */
    struct { /* if the reduced dim is blocked (s->k_block) */
        int64_t points; /* points that a parallel index computes for each block */
        expr_id column; /* the index's block of vectors */
        lreg sums; /* scratch for the accumulators between two blocks */
        expr_id from; /* first index of the current block */
        int64_t n; /* number of its indices */
        bool last; /* it is the last block, after which the sums are complete */
    } k;
};

/* First point of a tile along a and b (flat tile: a is the first flat index), and its number of points along a. */
struct tile_at {
    expr_id a, b;
    uint32_t ta;
};

/* The point of the result at index a (flat tile: flat index), index b, and a vector of the current tile. Owned by the
 * emission's arena. */
expr_id *tile_point(struct em *, const struct tiling *, expr_id a, expr_id b, uint32_t piece);
/* Those of a tile of at->ta by tb points, point after point, each with its vectors; how many. */
uint32_t points_of_tile(struct em *, const struct tiling *, const struct tile_at *, uint32_t tb, expr_id **points);
/* Lanes of a vector of the current tile. */
uint32_t piece_lanes(const struct em *, const struct tiling *, uint32_t piece);
/* To call before and after the tiles of row t->idx[2] if their sums are a second result of the kernel. */
void partial_begin(struct em *, struct tiling *);
void partial_end(struct em *, struct tiling *);
/* Emits the tiles of `count` rows from row `at` on. */
void tile_b(struct em *, struct tiling *, expr_id at, uint32_t count);
/* Emits all rows of all pieces of a block of vectors, for the current line. */
void tile_vectors(struct em *, struct tiling *, expr_id block);

/* Emits a parallel index: group `chunk`, for block `block` of vectors if by_piece, else for all `blocks`. */
void staged_chunk(struct em *, struct tiling *, expr_id chunk, expr_id block, expr_id blocks);
/* Emits the rows of a group for the current vectors. If by_piece, it computes the operand first. */
void staged_rows(struct em *, struct tiling *);

/* Computes the second operand at the current vectors, from index `base` on, into scratch. */
void panel_decode(struct em *, const struct tiling *, expr_id base);

/* If s->epilogue: allocates scratch for the sums of a tile; to call before the parallel loops. */
void epilogue_scratch(struct em *, struct tiling *);
/* Emits the epilogue of a tile of at->ta by tb points, whose sums are in scratch. */
void epilogue_rows(struct em *, struct tiling *, const struct tile_at *, uint32_t tb);
/* Stores these sums to scratch first. */
void epilogue_of(struct em *, struct tiling *, const struct tile_at *, uint32_t tb, const lreg *acc);

/* Emits a tile of at->ta by tb points with tile registers. */
void matmul_body(struct em *, struct tiling *, const struct tile_at *, uint32_t tb);
/* If t->s->matmul of a scaled product: allocates scratch for the sums of its blocks; to call before the parallel loops.
 * Then emits the sums acc of the n points of a tile. */
void matmul_scratch(struct em *, struct tiling *);
void matmul_scaled(struct em *, struct tiling *, const struct tile_at *, uint32_t n, expr_id *const *points, lreg *acc);

/* Allocates scratch for the accumulators of a blocked contraction; to call before the parallel loops. */
void block_begin(struct em *, struct tiling *);
/* Emits a whole parallel index of a blocked contraction. */
void block_vectors(struct em *, struct tiling *, expr_id block);
/* Emits the steps of the current block for a tile of n points. true: acc has the complete sums; false: scratch has the
 * sums so far. */
bool block_tile(struct em *, struct tiling *, const struct tile_at *, uint32_t n, expr_id *const *points, lreg *acc);

/* Decides which panels the steps prefetch: for the kernel, ... */
void ahead_begin(struct em *, const struct tiling *);
/* ... for tile `tile` of `tiles` that read the same panels, ... */
void ahead_tile(struct em *, struct tiling *, expr_id tile, int64_t tiles);
/* ... and for tile `tile` of a dynamic number of tiles, with `count` points along a. The first tiles prefetch the whole
 * next block, as if a product had one tile and an image two. The others prefetch lines that they read
 * themselves. Small tiles prefetch nothing. */
void ahead_open_tile(struct em *, const struct tiling *, expr_id tile, uint32_t count);

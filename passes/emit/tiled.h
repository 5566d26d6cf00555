/* The tile at hand, between the template of anchors (emit/template_tiled.c) and what keeps its panels near: blocks of a
 * long contraction (emit/template_block.c), prefetched lines (emit/prefetch.c), a staged operand
 * (emit/template_staged.c).
 */
#ifndef MCC_PASSES_EMIT_TILED_H
#define MCC_PASSES_EMIT_TILED_H

#include "passes/emit/reduce.h"
#include "passes/emit/templates.h"
#include "passes/emit/register_tile.h"

struct tiling {
    const struct tile_schedule *s;
    const struct node *n;
    const struct type *t; /* of the anchor's result */
    expr_id idx[RANK_MAX];
    expr_id piece[TILE_VECTORS_MOST]; /* index along vec of each vector of the tile at hand */
    uint32_t n_pieces;
    bool fixed_b; /* the rows of b are a parallel index: only those at row0 */
    int64_t lines; /* of a product's rows, each a parallel index after that of the panels, as far as known */
    expr_id line; /* ... the one at hand */
    bool even; /* the points of a flat tile are known, and split evenly */
    expr_id row0; /* of an even one: its number */
    int32_t split_dim; /* where s->split: the dim, -1 for an even flat tile, ... */
    expr_id first; /* ... and the first tile of the part at hand */
    lreg sums; /* scratch: of the tile at hand, where s->matmul */
    lreg partial; /* scratch: of the row so far, at the lanes of the piece (kernel.outs[1]) */
    enum lop combine;
    expr_id here; /* as many tiles as the chunk at hand has, from row0 on */
    struct { /* if K is done in blocks (s->k_block) */
        int64_t points; /* that a parallel index does at each, ... */
        expr_id column; /* ... of which block of vectors it has, ... */
        lreg sums; /* ... and scratch for their sums between two */
        expr_id from; /* of the block at hand: its first index, ... */
        int64_t n; /* ... how many, ... */
        bool last; /* ... and whether the sums are then complete */
    } k;
};

/* A tile's first point along a and b, or the first number of a flat one's, and its points along a. */
struct tile_at {
    expr_id a, b;
    uint32_t ta;
};

/* The point of the result at index a, of a flat tile the number, index b, and a vector of the tile at hand. */
expr_id *tile_point(struct em *, const struct tiling *, expr_id a, expr_id b, uint32_t piece);
/* Lanes of a vector of the tile at hand. */
uint32_t piece_lanes(const struct em *, const struct tiling *, uint32_t piece);
/* Before and after the tiles of row t->idx[2], where their sums are a second result. */
void partial_begin(struct em *, struct tiling *);
void partial_end(struct em *, struct tiling *);
/* `count` rows from row `at` on. */
void tile_b(struct em *, struct tiling *, expr_id at, uint32_t count);
/* All rows of all pieces of a block of vectors, of the line at hand. */
void tile_vectors(struct em *, struct tiling *, expr_id block);

/* A parallel index: chunk number `chunk`, of block `block` of vectors where it is by_piece, else of all `blocks`. */
void staged_chunk(struct em *, struct tiling *, expr_id chunk, expr_id block, expr_id blocks);
/* The rows of a chunk by the vectors at hand; where it is by_piece, the operand first. */
void staged_rows(struct em *, struct tiling *);

/* The second operand, which the kernel computes, at the vectors at hand, from index `base` on: into scratch. */
void panel_decode(struct em *, const struct tiling *, expr_id base);

/* Scratch for the sums of products by tile registers: before the parallel loops. And a tile of at->ta by tb points. */
void matmul_scratch(struct em *, struct tiling *);
void matmul_body(struct em *, struct tiling *, const struct tile_at *, uint32_t tb);

/* Scratch for the sums of a contraction in blocks: before the parallel loops. */
void block_begin(struct em *, struct tiling *);
/* The whole parallel index. */
void block_vectors(struct em *, struct tiling *, expr_id block);
/* One block's steps of a tile of n points; false: the sums are not complete yet, and wait in scratch. */
bool block_tile(struct em *, struct tiling *, const struct tile_at *, uint32_t n, expr_id *const *points, lreg *acc);

/* Which panels the steps prefetch: for the kernel, then for tile number `tile` of `tiles` that read the same ones. */
void ahead_begin(struct em *, const struct tiling *);
void ahead_tile(struct em *, struct tiling *, expr_id tile, int64_t tiles);
/* The same for tile number `tile` of a dynamic number, of `count` points along a: the first ones prefetch all of the
 * next block, as if there were one of a product and two of an image at least; the lines of others are those that they
 * read themselves. Small tiles prefetch nothing. */
void ahead_open_tile(struct em *, const struct tiling *, expr_id tile, uint32_t count);

#endif

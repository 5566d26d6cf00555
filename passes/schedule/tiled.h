/* The tile at hand, between the template of anchors (emit/template_tiled.c) and what keeps its panels near: blocks of a long
 * contraction (emit/template_block.c), lines asked for early (schedule/prefetch.c), rows of a staged operand (emit/template_window.c).
 */
#ifndef MCC_PASSES_SCHEDULE_TILED_H
#define MCC_PASSES_SCHEDULE_TILED_H

#include "passes/emit/reduce.h"
#include "passes/schedule/schedule.h"

enum { FEW_ROWS = 64 };      /* of a product: the way of its panels from memory takes about as long as what is computed */

struct tiling {
    const struct node *n;
    const struct type *t;            /* of the anchor's result */
    int32_t vec, a, b;               /* dims; -1: none */
    uint32_t lanes, nr, ta, tb;
    expr_id idx[RANK_MAX];
    expr_id piece[8];                /* index along vec of each vector of the tile at hand */
    uint32_t n_pieces;
    bool fixed_b;                    /* the rows of b are a parallel index: only those at row0 */
    int64_t lines;                   /* of a product's rows, each a parallel index behind that of the panels; 0: unknown */
    expr_id line;                    /* ... the one at hand */
    bool flat;                       /* dims b and a numbered through: row0 is the number of the tile */
    expr_id row0;
    uint32_t chunk;                  /* tiles that share a staged operand, one after another; 0: each is a parallel index */
    bool windows;                    /* of a chunk: they are rows of b, not flat, and what they share is rows of the operand */
    bool by_piece;                   /* ... of the piece's channels only: a depthwise convolution */
    lval partial;                    /* scratch: of the row so far, at the lanes of the piece (kernel.outs[1]) */
    enum lop combine;
    expr_id here;                    /* ... as many as the chunk at hand has, from row0 on */
    struct {
        struct cut cut;              /* the reduced dim that is done in blocks, ... */
        int64_t blocks, size;        /* ... how many, 0: the sums stay in registers; indices of each but the last */
        int64_t points;              /* that a parallel index does at each, ... */
        lval sums;                   /* ... and scratch for their sums between two */
        expr_id from;                /* of the block at hand: its first index, ... */
        int64_t n;                   /* ... how many, ... */
        bool last;                   /* ... and whether the sums are then complete */
    } k;
    int64_t points, slice;           /* see panel_slice */
    int64_t early;                   /* steps, where tiles ask for the next block's panels beside their own; 0: they do not */
};

/* A tile's first point along a and b, or the first number of a flat one's, and its points along a. */
struct tile_at { expr_id a, b; uint32_t ta; };

/* All rows of the tile's block of vectors. */
void tile_rows(struct em *, struct tiling *);
/* `count` rows from row `at` on. arg: not used. */
void tile_b(struct em *, struct tiling *, expr_id at, uint32_t count, void *arg);
/* All rows of all pieces of a block of vectors, of the line at hand. */
void tile_vectors(struct em *, struct tiling *, expr_id block);
/* Is dim d of the result, which the second operand does not have, gone through by whole indices rather than by tiles? */
bool tile_is_line(const struct tiling *, int32_t d);

/* A staged operand of a convolution of several taps. How many tiles of b share it, after tb has become a divisor of the rows; 0: it is
 * computed where it is read. */
uint32_t window_choose(struct em *, struct tiling *);
/* A parallel index: chunk number `chunk`, of block `block` of vectors where it is by_piece, else of all `blocks`. */
void window_chunk(struct em *, struct tiling *, expr_id chunk, expr_id block, expr_id blocks);
/* The operand at the piece at hand, if by_piece; then the chunk's tiles. */
void window_rows(struct em *, struct tiling *);

/* Is it a contraction whose vectors of columns all rows share, so that the order of rows and columns is free? */
bool tile_shares_columns(struct em *, const struct tiling *);
/* For one of constant extents, whose second operand lies in panels: t->points of its result less those along vec, and t->slice, the
 * bytes that a block of vectors reads of them; 0 for others. */
void panel_slice(struct em *, struct tiling *);

/* Is the contraction done block by block? Sets t->k: before the parallel loops, since rows are none of them then. */
void block_choose(struct em *, struct tiling *);
/* The whole parallel index. */
void block_vectors(struct em *, struct tiling *, expr_id block);
/* One block's part of a tile of n points; false: the sums are not complete yet, and wait in scratch. */
bool block_part(struct em *, struct tiling *, const struct tile_at *, uint32_t n, expr_id *const *points, lval *acc);

/* Which panels the steps ask for early: for the kernel, then for tile number `tile` of `tiles` that read the same ones. */
void ahead_choose(struct em *, struct tiling *);
void ahead_tile(struct em *, struct tiling *, expr_id tile, int64_t tiles);

#endif

/* The tile at hand, between the template of anchors (schedule_tiled.c) and what keeps its panels near: blocks of a long
 * contraction (schedule_block.c), lines asked for early (schedule_ahead.c).
 */
#ifndef MCC_PASSES_SCHEDULE_TILED_H
#define MCC_PASSES_SCHEDULE_TILED_H

#include "passes/emit_reduce.h"
#include "passes/schedule.h"

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
    uint32_t chunk;                  /* flat tiles that share a staged operand, one after another; 0: each is a parallel index */
    lval partial;                    /* scratch: of the row so far, at the lanes of the piece (kernel.outs[1]) */
    enum lop combine;
    expr_id here;                    /* ... as many as the chunk at hand has, from row0 on */
    struct {
        int64_t steps, all, blocks;  /* of each block but the last, of all together; how many blocks, 0: the sums stay in registers */
        lval sums;                   /* scratch: of all rows between two blocks, at the lanes of each vector */
        expr_id from;                /* of the block at hand: its first step, ... */
        int64_t n;                   /* ... how many, ... */
        bool last;                   /* ... and whether the sums are then complete */
    } k;
    int64_t early;                   /* steps, where tiles ask for the next block's panels beside their own; 0: they do not */
};

/* All rows of the tile's block of vectors. */
void tile_rows(struct em *, struct tiling *);

/* Is a product of `steps` whose panels of one block have `slice` bytes done block by block of its contraction? Sets t->k. */
bool block_choose(struct em *, struct tiling *, int64_t steps, int64_t slice);
void block_rows(struct em *, struct tiling *);
/* One block's part of the tile whose first row is `row`; false: the sums are not complete yet, and wait in scratch. */
bool block_part(struct em *, struct tiling *, expr_id row, uint32_t n, expr_id *const *points, lval *acc);

/* Which panels the steps ask for early: for the kernel, then for tile number `tile` of `tiles` that read the same ones. */
void ahead_choose(struct em *, struct tiling *);
void ahead_tile(struct em *, struct tiling *, expr_id tile, int64_t tiles);

#endif

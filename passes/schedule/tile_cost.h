/* Between the files that choose the register tile of an anchor and estimate what it takes. */
#pragma once

#include "passes/schedule/decisions.h"

enum { STEP = 10 /* to the cycle */, MAX_TA = 28 };

struct anchor_extent {
    int64_t n;
    bool known;
    bool few; /* not known, but from 1 to n */
    bool rests; /* n, but the code takes it for dynamic: whole tiles and what is left */
};
/* What a step costs besides its multiply-adds. */
struct anchor_step {
    bool shared;                 /* the points share the vectors: a contraction */
    int64_t per_group; /* channels of a group, which are points along a; 0: there are no groups */
    uint64_t n;                  /* steps of the whole reduction */
    bool matrix; /* pairs of rows by pairs of columns; a step is one of the two groups of such a product */
    enum { POINTS_OF_LINE = 1, POINTS_OF_IMAGE, POINTS_OF_ROWS } points; /* along dim a: of a feature map, a product */
    int64_t block; /* steps between which sums get their scale, by instructions for L_DOT; else 0 */
    enum tile_rest rest;
    struct row_taps row; /* that are passed in one step, if any: a step here is one of them */
    const struct machine *mach;
    uint32_t words; /* lanes of a vector, each a single register; 0: vectors */
    bool halves; /* then: of a word, two pairs of bytes */
};

/* ---- tile_cost.c ---- */

struct anchor_extent anchor_extent(const struct site *, const struct type *, int32_t d);
/* Cycles * STEP of one reduction step of all tiles of ta x tb points by nr vectors, of a block of vectors that many. */
int64_t tile_cost(struct anchor_extent a, struct anchor_extent b, int64_t vectors, int64_t ta, int64_t tb, int64_t nr,
                  const struct anchor_step *);
/* Points in the bodies that tiles of one dim need, of at most size points each (em_tiles). Vectors in those that n
 * points along the lanes need. */
int64_t tile_body_points(struct anchor_extent, int64_t size, enum tile_rest);
int64_t tile_body_vectors(int64_t n, const struct tile_schedule *);
/* What the code of a choice counts: in proportion to its cost, 1 % for a body that fills the registers, times `weight`.
 * n along the lanes. */
int64_t tile_code_cost(int64_t cost, struct anchor_extent a, struct anchor_extent b, int64_t n,
                       const struct tile_schedule *, int64_t regs, int64_t weight, enum tile_rest);

/* ---- tile_estimate.c ---- */

/* A row of the operand by vectors along the reduced dim, in as many sums as hide the latency of an addition; its lines
 * come from L2 where L1 does not hold all rows. Cycles * STEP. */
int64_t horizontal_cost(const struct site *, const struct node *);

/* ---- matmul.c ---- */

/* Cycles * STEP of all steps of all tiles, of a block of vectors that many; INT64_MAX: it is none. */
int64_t matmul_cost(const struct site *, const struct tile_schedule *, int64_t vectors);
/* The tile with the least cost, if that is below `cost`; else c stays. */
void matmul_choose(const struct site *, int64_t vectors, int64_t cost, struct tile_schedule *c);

/* ---- tile_facts.c ---- */

bool anchor_contracts(const struct site *, const struct node *);
/* Each point has its own taps of its own channel. */
bool anchor_is_window(const struct site *, const struct node *);
/* Steps at one point; guess: else extents as they are counted, where they are open. */
uint64_t anchor_steps(const struct site *, const struct node *, bool guess);
struct anchor_step anchor_step(const struct site *, const struct node *, const struct tile_schedule *);
/* tile_fits, of a row of taps that is known. */
bool tile_fits_row(const struct site *, const struct node *, const struct row_taps *, const struct tile_schedule *);
/* Dims and lanes; *most: points along a that a tile numbered through may have. */
void tile_form(const struct site *, const struct node *, struct tile_schedule *, int64_t *most);

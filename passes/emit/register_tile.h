/* Register tiles of contractions, Winograd's products and attention share these functions: they split an extent into
 * tiles and a remainder, multiply rows by vectors, and carry the accumulators in a loop.
 */
#pragma once

#include "passes/emit/emit.h"

/* Emits the tile of `count` points from index `at` on. */
typedef void em_tile_fn(void *user, expr_id at, uint32_t count);
/* Calls fn for tiles of at most `size` points that cover [0, n), in loops: an even split where n is known (49 = 13 + 12
 * + 12 + 12), else whole tiles, then smaller ones (tile_below), or tiles that may overlap (tile_again). */
void em_tiles(struct em *, expr_id n, int64_t size, enum tile_rest rest, em_tile_fn *, void *user);
/* The same for [from, from + n). */
void em_tiles_from(struct em *, expr_id from, expr_id n, int64_t size, enum tile_rest rest, em_tile_fn *, void *user);
/* Calls fn only for the tiles from number `first` on, at most `count` of them. */
void em_tiles_part(struct em *, expr_id n, int64_t size, enum tile_rest rest, expr_id first, int64_t count,
                   em_tile_fn *, void *user);
/* Calls fn for tile `number`, a dynamic index, of an even split. */
void em_tile_number(struct em *, const struct even *, expr_id number, em_tile_fn *, void *user);

/* Splits a dim from index base on into `vectors` vectors of `lanes` points and one of the remaining `rest` < lanes
 * points. The last one is narrower if rest is a power of two (a scalar if 1), else masked. Stores the index along the
 * dim of each vector to piece, and its lanes to of; returns their number, at most vectors + 1. */
uint32_t em_pieces(struct em *, expr_id base, uint32_t vectors, uint32_t rest, uint32_t lanes, expr_id *piece,
                   uint32_t *of);

/* Stores the two operands of a row and a vector of the tile to `in`; false: nothing is added there. */
typedef bool em_operands_fn(void *user, uint32_t row, uint32_t vector, lreg in[2]);
/* Adds a product to *sum: op as below, the groups of L_DOT in any order. */
void em_tile_product(struct em *, enum lop op, const lreg factors[2], lreg *sum);
/* Emits one step of the micro-kernel: adds the product of the operands to acc[row * vectors + vector]. op: L_FMA, or
 * L_DOT for groups. */
void em_tile_step(struct em *, enum lop op, uint32_t rows, uint32_t vectors, em_operands_fn *, void *user, lreg *acc);
/* Emits `steps` steps, vector by vector, and loads the operands of the next vector before the products of the current
 * one. So two vectors are live at a time, and the products of all rows hide the latency of a load. The vector argument
 * of em_operands_fn counts 0 .. steps * vectors - 1 over the steps. */
void em_tile_steps_by_vector(struct em *, enum lop op, uint32_t rows, uint32_t vectors, uint32_t steps,
                             em_operands_fn *, void *user, lreg *acc);
/* Emits one step of L_MATDOT, whose operands are 8 bytes of a row and 8 bytes of each column of a vector (struct
 * em_group). Two rows and the halves of a vector give two registers of 2 x 2 sums, at the positions of the rows' in
 * acc. An odd last row is paired with zeros. acc: em_tile_matrix_sums() registers. */
struct em_matrix {
    uint32_t rows, vectors;
    enum elem elem; /* of the rows */
    int32_t lane; /* the half of a row's register */
};
void em_tile_step_matrix(struct em *, const struct em_matrix *, em_operands_fn *, void *user, lreg *acc);
static inline uint32_t em_tile_matrix_sums(uint32_t rows, uint32_t vectors)
{
    return (rows + rows % 2) * vectors;
}
/* Rearranges the sums of such steps to rows: acc[row * vectors + vector]. */
void em_tile_rows_of_matrix(struct em *, uint32_t rows, uint32_t vectors, lreg *acc);
/* Emits a loop over the steps [lo, hi) that carries the n accumulators acc. */
typedef void em_step_fn(void *user, expr_id step, lreg *acc);
void em_tile_loop(struct em *, expr_id lo, expr_id hi, uint32_t n, lreg *acc, em_step_fn *, void *user);

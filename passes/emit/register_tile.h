/* Register tiles, of contractions, Winograd's products and attention: one split of an extent, one rule for what is left
 * over, one multiply-add of rows by vectors, one loop that carries the sums.
 */
#ifndef MCC_PASSES_EMIT_REGISTER_TILE_H
#define MCC_PASSES_EMIT_REGISTER_TILE_H

#include "passes/emit/emit.h"

/* `count` points from `at` on. */
typedef void em_tile_fn(void *user, expr_id at, uint32_t count);
/* Calls fn for tiles of at most `size` points that cover [0, n), in loops: an even split where n is known (49 = 13 + 12
 * + 12 + 12), else whole tiles, then smaller ones (tile_below), or tiles that may overlap (tile_again). */
void em_tiles(struct em *, expr_id n, int64_t size, enum tile_rest rest, em_tile_fn *, void *user);
/* Those of them from number `first` on, at most `count`: a part of all. */
void em_tiles_part(struct em *, expr_id n, int64_t size, enum tile_rest rest, expr_id first, int64_t count,
                   em_tile_fn *, void *user);
/* Tile number `number`, a dynamic value, of an even split. */
void em_tile_number(struct em *, const struct even *, expr_id number, em_tile_fn *, void *user);

/* Vectors along a dim from index base on: `vectors` of `lanes` points, then `rest` < lanes points in a narrower
 * register where they are a power of two, else masked. A point alone is no vector. piece: the index along the dim of
 * each, of[]: their lanes; returns how many. */
uint32_t em_pieces(struct em *, expr_id base, uint32_t vectors, uint32_t rest, uint32_t lanes, expr_id *piece,
                   uint32_t *of);

/* The two operands at a row and a vector of the tile; false: nothing is added there. */
typedef bool em_operands_fn(void *user, uint32_t row, uint32_t vector, lreg in[2]);
/* One step of the micro-kernel: acc[row * vectors + vector] plus the product of the operands there. op: L_FMA, or L_DOT
 * of groups. */
void em_tile_step(struct em *, enum lop op, uint32_t rows, uint32_t vectors, em_operands_fn *, void *user, lreg *acc);
/* `steps` of them in the order of vectors, the operands of the next one before the products of this: two vectors are
 * held at a time, and an instruction that loads one has all rows' products to arrive. The operands are asked for with
 * vectors 0 .. steps * vectors - 1, step by step. */
void em_tile_steps_by_vector(struct em *, enum lop op, uint32_t rows, uint32_t vectors, uint32_t steps,
                             em_operands_fn *, void *user, lreg *acc);
/* One step of L_MATDOT, whose operands are a row's 8 bytes and those of a vector's columns (struct em_group): two rows
 * and the halves of the vector give two registers of 2 x 2 sums, where acc has those of the rows; a row without a
 * partner goes with zeros. acc: em_tile_matrix_sums of them. */
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
/* The sums of such steps as rows, in their places. */
void em_tile_rows_of_matrix(struct em *, uint32_t rows, uint32_t vectors, lreg *acc);
/* Steps lo .. hi - 1 in a loop that carries the n sums of acc. */
typedef void em_step_fn(void *user, expr_id step, lreg *acc);
void em_tile_loop(struct em *, expr_id lo, expr_id hi, uint32_t n, lreg *acc, em_step_fn *, void *user);

#endif

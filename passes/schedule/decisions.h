/* How a schedule is decided: what choose.c calls, file by file. For the files of this folder, and for who asks the cost
 * model before there are schedules; not for the emitters.
 */
#pragma once

#include "passes/schedule/schedule.h"

/* schedule/reduce.c: the reductions that the kernel's template leaves to em_reduce_points and em_reduce_one, and what
 * it computes into scratch. */
void reduce_choose(const struct site *, struct schedule *);
/* The nodes of these reductions, as kernel.nodes has them; into out, of as many at least. How many. */
uint32_t kernel_reductions(const struct site *, enum schedule_kind, node_id *out);
/* Is the operand of a convolution walked through in blocks of channels, an image apart? */
bool reduce_is_apart(const struct site *, const struct node *);
/* schedule/split.c: parts of the rows; may there be any, and how many there are (a guess where that is open). */
void tile_split_choose(const struct site *, struct tile_schedule *);
bool tile_split_serves(const struct site *, const struct tile_schedule *);
int64_t tile_split_parts(const struct site *, const struct tile_schedule *);
/* schedule/map.c: bytes of the smallest element that the kernel has in memory, and of the largest in registers. */
void map_elements(const struct site *, uint32_t *least, uint32_t *most);
/* Of a pointwise operator on a vector. */
int64_t map_cycles(enum op);
/* schedule/nest.c: a loop more, as number `at` or inside of the others; the loop over dim goes to the end. */
void nest_insert(struct nest_schedule *, uint32_t at, int32_t dim, int64_t step);
void nest_add(struct nest_schedule *, int32_t dim, int64_t step);
void nest_last(struct nest_schedule *, int32_t dim);
/* Of maps, and of scans and scatters: registers side by side, so that none waits for the one before and rows that lie
 * far apart come by several lines. */
enum { MAP_REGISTERS = 4, LINE_REGISTERS = 8 };
/* May the lanes of a scan or a scatter lie along that dim? */
bool lines_serve(const struct site *, int32_t vec);
/* schedule/peel.c: where the vectors of a map begin anew, and may they? */
void peels_choose(const struct site *, struct nest_schedule *);
bool peels_serve(const struct site *, const struct nest_schedule *);
/* schedule/packed.c: may a vector hold so many points of the last loop but one, and how many are best? The loops are
 * put in order. */
bool packed_serves(const struct site *, const struct nest_schedule *);
void packed_choose(const struct site *, struct nest_schedule *);
/* schedule/transpose.c: tiles of the points of two dims, so many of them side by side along vec. Which are there for an
 * operand that is contiguous along dim source (columns 0: none), and do the dims hold such tiles, and is some operand
 * turned by them? */
struct transpose_tile {
    uint32_t lanes, columns, tiles;
};
struct transpose_tile transpose_choose(const struct site *, int32_t vec, int32_t source);
bool transpose_serves(const struct site *, int32_t vec, int32_t source, int64_t lanes, int64_t columns);
/* schedule/block.c: may the steps of a single row ask for the next block's panels (tile_schedule.next)? */
bool next_serves(const struct site *, const struct node *anchor, const struct tile_schedule *);
/* What the layouts decided of a tiled record: dims, lanes, and how an operand is staged, if it is. */
struct tile_facts {
    int32_t vec, a, b;
    uint32_t lanes;
    bool flat;
    bool windows; /* a staged operand comes by rows; not flat: else none can be staged */
    bool by_piece;
};
struct tile_facts tile_facts(const struct site *);
/* schedule/stage.c: are rows of the operand what a chunk of tiles shares? Then b and by_piece are set. */
bool stage_by_rows(const struct site *, struct tile_schedule *);
/* schedule/block.c: is it a contraction whose vectors of columns all rows share, so that the order of rows and columns
 * is free? */
bool tile_shares_columns(const struct site *, const struct node *, const struct tile_schedule *);
/* Is it a reduction of dims outside of that of the lanes, so that rows may be added up one after another? */
bool tile_sums_rows(const struct site *, const struct node *, const struct tile_schedule *);
/* Has a block of channels its own taps, which all rows share? */
bool tile_keeps_taps(const struct site *, const struct node *, const struct tile_schedule *);
/* Is it a sum of segments? All lines of a block of points read the same part of the operand, which stays near. */
bool tile_keeps_points(const struct node *, const struct tile_schedule *);
/* schedule/tile_choose.c: the dims, lanes and register tile of an anchor. */
void tile_choose(const struct site *, struct schedule *);
/* ns of the whole kernel at a size, 0 if unknown, and the sums of products in its code. */
int64_t tile_whole(const struct site *, const struct size_at *, const struct tile_schedule *);
int64_t tile_code(const struct site *, const struct tile_schedule *);
/* ns of a parallel index. */
int64_t tile_estimate(const struct site *, const struct tile_schedule *);
/* schedule/epilogue.c: rows of a tile in a trip of the loop over its epilogues; may there be such a loop? */
void epilogue_choose(const struct site *, struct tile_schedule *);
bool epilogue_serves(const struct site *, const struct tile_schedule *);
/* schedule/matmul.c: can tiles of that size be products of L_MATMUL? */
bool matmul_serves(const struct site *, const struct tile_schedule *);
/* Is it one of rows of a dynamic number, which has a rest? */
bool matmul_open(const struct site *, const struct tile_schedule *);
/* The number of rows that its tiles are chosen for. */
int64_t matmul_rows(const struct site *, const struct tile_schedule *);
/* Do the sums of a register tile fit the registers, beside what they are multiplied with? n: the anchor, or what is
 * computed in front of it. */
bool tile_fits(const struct site *, const struct node *n, const struct tile_schedule *);
/* Is the anchor gone through by lanes (reduce_schedule.by_lane)? */
bool tile_by_lane(const struct site *, const struct node *anchor);
/* Steps of the anchor that are summed in f16 (reduce_schedule.halves); its vectors are twice as long then. */
int64_t tile_halves(const struct site *, const struct node *anchor);
/* By rows and columns (reduce_schedule.matrix)? */
bool tile_matrix(const struct site *, const struct node *anchor);
/* Steps of the reduction at one point, a guess if they are symbolic; twice those of all points. */
uint64_t tile_steps(const struct site *, const struct node *anchor);
uint64_t anchor_flops(const struct site *);
/* Cost of one step of a contraction of so many steps, over n points (known or a guess) in tiles of at most `size` by nr
 * vectors. */
int64_t tile_line_cost(const struct machine *, int64_t n, bool known, int64_t size, int64_t nr, uint64_t steps);
/* Points in the bodies that these tiles need. */
int64_t tile_line_points(int64_t n, bool known, int64_t size);
/* schedule/stage.c: tiles that share a staged operand. schedule/block.c: the order of lines and blocks of vectors,
 * blocks of a long K, prefetch. Each refines what tile_choose has left. */
void stage_choose(const struct site *, struct tile_schedule *);
/* Do so many points of a row of the staged product by so many vectors fit? And the time of its part of a parallel
 * index. */
bool stage_columns_fit(const struct site *, uint32_t columns, uint32_t vectors);
int64_t stage_ns(const struct site *, const struct tile_schedule *);
void block_choose(const struct site *, struct tile_schedule *);
/* If blocks are summed apart (reduce_schedule.scaled), chooses tiles whose two sums each fit the registers, and the few
 * rows before the tiles whose operand is computed into scratch. */
void scale_choose(const struct site *, struct schedule *);
/* schedule/attention_sizes.c: do conditions bound the keys that a row sees? */
bool attention_reach(const struct site *, const struct attention_shape *);
/* May scores of few rows be summed along the lanes, as the record says? */
bool attention_few_possible(const struct site *, const struct attention_shape *, const struct attention_schedule *);

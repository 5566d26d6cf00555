/* The attention template: sizes and the kernel (emit/attention/attention.c), stages (emit/attention/stages.c), keys in
 * parts (emit/attention/parts.c).
 *
 * A parallel index is a batch and a block of rows, or a part of its keys. Rows' numbers are the lanes of everything up
 * to the probabilities: the softmax is then one operation a key, and keys and values are read as they lie.
 *
 * Scratch of the block:
 *   Q[size][row]     the rows' operand of the scores, transposed (emit/attention/transpose.c)
 *   Z[key][row]      scores with all maps after them, then the terms of the softmax
 *   M, L, C[row]     the largest score, the sum of the terms, the factor for what was added up before
 *   O[row][column]   results so far, where keys come in several spans
 *   W[key][element]  keys, then values, of a span, where they are narrower in memory and rows are many
 *
 * A line of a scratch buffer is an odd number of vectors long, or a column of it would compete for a few sets of the
 * cache.
 */
#pragma once

#include "passes/emit/templates.h"
#include "passes/emit/register_tile.h"
#include "passes/module/attention.h"

struct attn {
    struct em *em;
    const struct attention_schedule *s;
    const struct attention *a;
    const struct node *scores, *values;
    struct dot_dims of_row, of_key, of_p, of_v; /* operands of the scores by what they are free in; of the results */
    value_id row_operand, key_operand;
    expr_id rows, keys;
    bool widens_keys, widens_values; /* they are narrower in memory */
    int64_t size, columns; /* contracted and free extents of the two contractions */
    int64_t line; /* elements of a line of Q and Z */
    int64_t nv; /* vectors of rows: of a block; later of the block at hand */
    int64_t wide_line; /* of W */
    lreg q, z, m, l, c, o, w;
    bool in_w; /* what the stage at hand reads of keys or values is in W */
    /* of the block and span at hand */
    expr_id batch[RANK_MAX]; /* leading indices of the result */
    expr_id row0, here; /* first row, number of rows */
    expr_id computed; /* rows of results that a stage computes */
    expr_id row[ATTENTION_VECTORS]; /* with lanes */
    expr_id key0, n_keys;
    /* blocks of at most so many rows are few, 0: none; the lane; which key of a vector of Z it has, for few rows */
    uint32_t few;
    expr_id lane, lane_key;
    bool in_few; /* the stage at hand is that of few rows */
    /* of the register tile's columns: the number of their first vector; lanes and index of each */
    expr_id column0, column[ATTENTION_COLUMNS];
    uint32_t n_columns, column_lanes[ATTENTION_COLUMNS];
    /* where keys come in parts: how many, keys of each; the block's number and the part's, of the index at hand */
    expr_id parts, each, block, part;
};

/* The point of z that row and key of the batch at hand have. */
void attn_z_point(const struct attn *, expr_id row, expr_id key, expr_id *idx);
/* The point of one operand of the scores at element d of its row (of_row: of the rows' operand, else of the keys'). */
void attn_operand_point(const struct attn *, bool of_row, expr_id row, expr_id key, expr_id d, expr_id *idx);
/* The point of the values at a column of number `key` of the span. */
void attn_value_point(const struct attn *, expr_id key, expr_id column, expr_id *idx);
/* A step of the scores' register tile: element d (few rows: a vector of elements) of the keys from number `at` of the
 * span on, and of the rows in q. The operands, for em_tile_step: a key for each row of the tile, q for each of its
 * vectors. */
struct attn_score_step {
    struct attn *t;
    expr_id at, d;
    uint32_t keys;
    lreg q[ATTENTION_FEW > ATTENTION_VECTORS ? ATTENTION_FEW : ATTENTION_VECTORS], k;
};
bool attn_score_operands(void *step, uint32_t key, uint32_t j, lreg in[2]);
/* Scores of vector j of the rows and of `count` keys of the span, from number `at` on: z of them to Z, and their
 * maximum to C. */
void attn_store_scores(struct attn *, expr_id at, uint32_t count, int64_t j, const lreg *score);
/* The address of vector j of a line of Q or Z. */
expr_id attn_line(const struct attn *, expr_id line, int64_t j);
/* Which keys some row of the block at hand can see, where masks tell (emit/attention/reach.c): from *first to below
 * *end, one at least; else they stay. every: a condition under which they stay as well; {0}: none. */
void attn_reach(struct attn *, lreg every, expr_id *first, expr_id *end);
/* What the other keys have at most; -INFINITY: they have no part whatever the rest is. */
double attn_low(const struct attn *);
/* Is the maximum of each row so far above `low` that they have no part? */
lreg attn_far(struct attn *, double low);
/* Calls the first for blocks of few rows, and the second for others, in conditionals where that is open
 * (emit/attention/few_rows.c). */
typedef void attn_stage(struct attn *);
void attn_either(struct attn *, attn_stage *few, attn_stage *many);
attn_stage attn_copy_rows, attn_few_scores, attn_few_terms; /* Q, scores and exponentials of few rows */
/* Each lane of a vector of few rows gets what the op makes of all lanes of its row. */
lreg attn_over_keys(struct attn *, enum lop op, lreg v);
/* Asks for the key that has this place in the next span. */
void attn_prefetch_key(struct attn *, expr_id key);
/* The terms of n vectors from j on of each line of Z, and their sums. */
void attn_terms_of(struct attn *, int64_t j, uint32_t n);
void attn_transpose(struct attn *); /* fills Q */
void attn_begin(struct attn *); /* M, L and O before the first of several spans */
void attn_scores(struct attn *); /* Z, M of the span; C where there are several */
void attn_terms(struct attn *); /* exponentials in Z, L */
void attn_values(struct attn *); /* Z times values: results, or O where there are several spans */
void attn_end(struct attn *); /* results from O */

/* Keys in parts (emit/attention/parts.c). */
expr_id attn_parts(struct attn *, expr_id blocks); /* parts of each block, of so many */
/* Of the keys *first to below *end, those of the part at hand, counted from the part's first one, which is returned. */
expr_id attn_part(struct attn *, expr_id *first, expr_id *end);
void attn_join(struct attn *); /* results, by the last part of a block that is done */
/* The factor for what was added up while `before` was the maximum, now that it is `most`. */
lreg attn_factor(struct attn *, lreg before, lreg most);

/* Elements of a row of results in t->o. */
int64_t attn_row_line(const struct attn *);

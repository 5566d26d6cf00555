/* Constants by their elements: folded by the interpreter, or read piece by piece. */
#pragma once

#include "ir/graph/graph.h"

/* Evaluates a lazy constant of at most ctx->limits.fold_bytes + its inputs through the interpreter; memory is
 * ctx-owned. NULL after a diagnostic (too large, traps). */
const struct tensor_data *value_fold(struct graph *, value_id);
/* The same of residues (ir/eval/field.h), before the graph enters the field, of a value that is constant. NULL without
 * a diagnostic: an operator has no form there, or it is too large. */
const struct tensor_data *value_fold_in_field(struct graph *, value_id);
/* For a copy of a graph whose dims become other ones: it keeps what was folded, and forgets ranges (value_range). */
void folds_copied(struct graph *, struct arena *);
/* Convenience: the elements of a small constant as doubles / int64; false when not constant or n does not match. */
bool value_const_i64(struct graph *, value_id, int64_t *out, uint32_t n);
bool value_const_f64(struct graph *, value_id, double *out, uint32_t n);

/* Writes elements first .. first + n - 1, row-major, graph width, of a lazy constant of any size to dst, piece by piece
 * with little memory: views and elementwise operators of constants never exist as a whole. Everything else is folded,
 * within the limits of value_fold. False after a diagnostic. (ir/eval/const_read.c) */
bool const_read(struct graph *, value_id, int64_t first, int64_t n, void *dst);
/* All of them where they lie in memory as const_read would copy them, perhaps not aligned; NULL: they do not. */
const char *const_bytes(const struct graph *, value_id);
/* Folds now what const_read would fold of the constants that other nodes read, so that what cannot be folded is said at
 * once. False after a diagnostic. */
bool constants_settle(struct graph *);

/* All elements of an integer or bool tensor lie in lo .. hi. */
struct value_range {
    int64_t lo, hi;
};
/* What the graph says of them (ir/eval/value_range.c); INT64_MIN .. INT64_MAX: nothing. Kept from question to question;
 * a table of more than 16 Mi elements is not looked at. */
struct value_range value_range(struct graph *, value_id);

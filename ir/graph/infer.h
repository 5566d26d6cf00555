/* Shared by ir/infer*.c: what an inference function of ops.def's column "infer" gets and helpers for it. Not for
 * others. */
#pragma once

#include "ir/graph/graph.h"

struct infer {
    struct graph *g;
    struct exprs *ex;
    src_id src;
    enum op op;
    const value_id *in;
    uint32_t n_in;
    struct node attrs; /* op and attributes only: for node_int() and friends */
    struct type *out; /* zeroed except for IF and LOOP, whose result types the caller gives */
    uint32_t n_out;
};
typedef bool infer_fn(struct infer *);

#define OP(id, name, least, most, results, shape, cost, infer, ...) infer_fn infer;
#include "ir/ops/ops.def"

/* An error about the node; "NAME: TEXT". Returns false. */
bool infer_error(struct infer *, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Makes *a the narrowest type of what is an *a or a *b, sequences or optionals: of tensors that they hold, dims and
 * ranks that differ become unknown. false: there is none. */
bool type_join(struct graph *, struct type *a, const struct type *b);
/* "f32[n, 3, 224]"; lives in the graph's arena. */
const char *type_text(struct graph *, const struct type *);
const char *expr_text(struct graph *, expr_id);

const struct type *infer_in(struct infer *, uint32_t i);
/* The type of operand i, which must be a tensor of known rank; NULL after a diagnostic. */
const struct type *infer_tensor(struct infer *, uint32_t i);
/* Sets result i; dims are borrowed (graph_append copies). Returns true. */
bool infer_set(struct infer *, uint32_t i, enum elem, int32_t rank, const expr_id *dims);
expr_id *infer_dims(struct infer *, int32_t rank);
/* Is the axis attribute within [0, rank)? */
bool infer_axis(struct infer *, int32_t rank, int64_t *axis);
/* Do two dims agree, as far as known? Reports with both operands' types when provably not. */
bool infer_agree(struct infer *, expr_id a, expr_id b, const char *what);
bool infer_elem_in(struct infer *, uint32_t i, const char *classes);
bool infer_monoid(struct infer *, const char *classes, enum elem);

/* Shared by ir/eval*.c: the state of one interpretation and what the functions of the operators get. */
#pragma once

#include "ir/eval/interpreter.h"
#include "ir/ops/field.h"

enum { EVAL_BUCKETS = 48 };

/* A type of accumulators, in addition to the element types: residues in int64 (ir/ops/field.h). */
enum { WIDE_FIELD = ELEM_COUNT };

struct eval {
    struct graph *g;
    struct exprs *ex;
    struct arena *arena;
    const char *text;            /* why it failed */
    struct tensor *vals;         /* by value id */
    bool *set;                   /* by value id */
    struct tensor **wanted;      /* by value id; NULL entries: not asked */
    eval_watch *watch;           /* of graph_eval_watched; NULL: none */
    void *user;
    int64_t *sym;                /* value by symbol */
    uint32_t n_sym;
    uint32_t trips;              /* of loops in the field, where floats that decide of their number mean nothing */
    bool empty;                  /* a symbol is so small that all outputs are */
    uint32_t *sym_owner;         /* by symbol: the value whose dims bind it, 0: none */
    uint32_t *value_sym;         /* by value id: first SYM_VALUE symbol that it defines, 0: none */
    uint32_t *next_sym;          /* by symbol: the next of the same value */
    uint32_t *last_node;         /* by value id: the node after which its memory may be reused, 0: never */
    uint32_t *dies;              /* by node id: first value of the list that ends with it */
    uint32_t *next_dying;        /* by value id */
    bool *skip;                  /* by node id, of graph_eval_from: nothing that is wanted needs it; NULL: none */
    bool *shared;                /* by value id: its memory may be known elsewhere */
    VEC(void *) free_blocks[EVAL_BUCKETS];   /* by log2 of the size */
    VEC(struct span) free_large;             /* of these sizes */
};
/* elem_from_i64; f32 that holds residues gets one. */
void eval_put_i64(const struct context *, enum elem, int64_t, void *to);
/* Do residues stand for such elements? */
static inline bool eval_in_field(const struct eval *e, enum elem elem)
{
    return e->g->ctx->field && field_form(elem);
}
typedef enum eval_status eval_fn(struct eval *, const struct node *, struct tensor *const *in, struct tensor *out);

/* Records why and returns the status. */
enum eval_status eval_fail(struct eval *, enum eval_status, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* A tensor with room for its elements, zeroed; EVAL_NOMEM beyond the limits, EVAL_SHAPE on a negative dim. */
enum eval_status eval_tensor(struct eval *, struct tensor *, enum elem, int32_t rank, const int64_t *dims);
/* Its memory serves other tensors: nobody reads it any more. */
void eval_recycle(struct eval *, const struct tensor *);
void eval_forget(struct eval *); /* what was recycled: its arena is another one now */
enum eval_status eval_expr(struct eval *, expr_id, int64_t *out);
/* An expression list attribute as numbers. */
enum eval_status eval_exprs(struct eval *, const struct node *, const char *name, int64_t *out);
/* The result's declared dims as numbers, and the tensor made accordingly. */
enum eval_status eval_result(struct eval *, const struct node *, uint32_t i, struct tensor *out);
/* A state without values and symbols, in which eval_node runs single nodes of static shape and keeps every result;
 * its tables have room for so many values and nodes. graph_eval_watched adds symbols and lifetimes. */
void eval_prepare(struct eval *, struct graph *, struct arena *, uint32_t n_values, uint32_t n_nodes);
enum eval_status eval_node(struct eval *, node_id);
enum eval_status eval_region(struct eval *, region_id);
/* Sets a value: binds the symbols that it defines and checks its shape against the declared one. */
enum eval_status eval_set(struct eval *, value_id, const struct tensor *);

int64_t tensor_count(const struct tensor *);
int64_t dims_count(const int64_t *dims, int32_t rank);
/* Row-major strides in elements. */
void dims_strides(const int64_t *dims, int32_t rank, int64_t *strides);
/* The next index tuple in row-major order; false after the last. */
bool dims_next(const int64_t *dims, int32_t rank, int64_t *at);
struct tensor tensor_copy(struct eval *, const struct tensor *);
/* Copies x to positions at .. at + extent - 1 of an axis of out; x may lack the axis, extent being 1 then. */
void eval_place(struct tensor *out, int32_t axis, int64_t at, const struct tensor *x, int64_t extent);

eval_fn eval_map, eval_convert, eval_iota, eval_from_exprs, eval_constant, eval_identity;
eval_fn eval_view, eval_reshape, eval_pad, eval_concat, eval_windows;
/* Index k of a gather's idx as a position in [0, dim), clamped if the node says so; false: it is outside. */
bool gather_index(const struct node *, enum elem, const void *idx, int64_t k, int64_t dim, int64_t *at);
eval_fn eval_gather, eval_gather_elements, eval_gather_nd, eval_walk, eval_scatter_elements, eval_scatter_nd;
eval_fn eval_reduce, eval_segments, eval_argreduce, eval_window, eval_argwindow, eval_cumulate, eval_dot, eval_conv;
eval_fn eval_sort, eval_nonzero, eval_unique, eval_nms, eval_dft, eval_det, eval_rng, eval_string;
eval_fn eval_seq_make, eval_seq_at, eval_seq_insert, eval_seq_erase, eval_seq_length, eval_seq_concat;
eval_fn eval_seq_split, eval_opt_make, eval_opt_get, eval_opt_has, eval_if, eval_loop, eval_assert;

#define TRY(call)                             \
    do {                                      \
        enum eval_status try_status = (call); \
        if (try_status != EVAL_OK)            \
            return try_status;                \
    } while (0)

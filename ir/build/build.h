/* Builder: appends core nodes with inference, value propagation and folding as it goes (ir/build/build.c).
 *
 * Every function returns {0} after a diagnostic at b->src, and takes {0} operands as "already reported"
 * (poison): the result is {0} again, silently. So rules chain calls and check once.
 *
 * What is folded at once: identities (reshape to the same shape, transpose by the identity, pad by nothing,
 * broadcast to the same shape, convert to the same type, slice of everything), elements of small integer tensors
 * (value lattice), and nothing else: large constants stay lazy.
 */
#pragma once

#include "ir/eval/constants.h"
#include "ir/graph/view_map.h"

struct builder {
    struct graph *g;
    struct exprs *x; /* the graph's */
    region_id region;
    src_id src;
    region_id whole; /* besides the top region: one in which a check that always fails is an error at once */
    node_id before; /* in that region: new nodes come before it; {0}: at the end */
    bool strict; /* --strict: no form is chosen because an extent of data is 1, so one row has the bits of many */
};

struct builder builder_in(struct graph *, region_id);    /* at the end of a region */
struct builder builder_before(struct graph *, node_id); /* before a node, on its behalf */

value_id b_op(struct builder *, enum op, const value_id *in, uint32_t n_in, const struct attr *, uint32_t n_attr);
/* Several results: out[n_out]; false after a diagnostic. */
bool b_op_multi(struct builder *, enum op, const value_id *in, uint32_t n_in, const struct attr *, uint32_t n_attr,
                value_id *out, uint32_t n_out);

/* constants */
value_id b_const(struct builder *, enum elem, const int64_t *dims, int32_t rank,
                 const void *data); /* copies data; graph width */
value_id b_const_borrow(struct builder *, enum elem, const int64_t *dims, int32_t rank,
                        struct span data); /* data must outlive the graph */
value_id b_scalar_f64(struct builder *, enum elem, double); /* rank 0 */
value_id b_scalar_i64(struct builder *, enum elem, int64_t);
value_id b_splat_f64(struct builder *, enum elem, double, const expr_id *dims,
                     int32_t rank); /* broadcast of a scalar */
value_id b_splat_like(struct builder *, value_id like, double); /* like's type and shape */
value_id b_from_exprs(struct builder *, enum elem, const expr_id *elems, uint32_t n, const int64_t *dims, int32_t rank);

/* elementwise; b_binary broadcasts both operands to the common numpy shape first (run-time check where two
 * symbolic dims are not provably equal), and demands equal element types */
value_id b_unary(struct builder *, enum op, value_id);
value_id b_binary(struct builder *, enum op, value_id, value_id);
value_id b_binary_f64(struct builder *, enum op, value_id, double); /* right operand a splat of the left's type */
value_id b_select(struct builder *, value_id cond, value_id t, value_id f); /* broadcasts all three */
value_id b_convert(struct builder *, value_id, enum elem);
value_id b_clamp(struct builder *, value_id, double lo, double hi); /* min(max(x, lo), hi), NaN kept */

/* views */
value_id b_broadcast(struct builder *, value_id, const expr_id *dims, int32_t rank);
value_id b_broadcast_like(struct builder *, value_id, value_id like); /* to like's shape */
value_id b_reshape(struct builder *, value_id, const expr_id *dims, int32_t rank);
value_id b_transpose(struct builder *, value_id, const int64_t *perm);
value_id b_slice(struct builder *, value_id, const expr_id *starts, const expr_id *sizes, const int64_t *steps);
value_id b_slice_axis(struct builder *, value_id, int32_t axis, expr_id start, expr_id size);
value_id b_pad(struct builder *, value_id, value_id fill /* {0}: zero */, const expr_id *lo, const expr_id *hi,
               const char *mode);
value_id b_concat(struct builder *, const value_id *, uint32_t n, int32_t axis);
value_id b_copy(struct builder *, value_id); /* a value that is stored, in the order of its dims */
value_id b_flat(struct builder *, value_id); /* of rank 1 */
value_id b_unsqueeze(struct builder *, value_id, int32_t axis);
value_id b_squeeze(struct builder *, value_id, int32_t axis);

/* Numbers of so many bits (2, 4, 8), unpacked from bytes along a dim, and packed along one that whole bytes fill. Bytes
 * of several become i32 before they are shifted: each is widened once, and CPUs have no shifts of bytes. */
value_id b_unpacked(struct builder *, value_id bytes, int64_t bits, int32_t axis);
value_id b_packed(struct builder *, value_id, int64_t bits, int32_t axis);

/* reductions */
value_id b_reduce(struct builder *, value_id, const int64_t *axes, uint32_t n, const char *monoid, bool keepdims);
value_id b_mean(struct builder *, value_id, const int64_t *axes, uint32_t n, bool keepdims);
value_id b_matmul(struct builder *, value_id a, value_id b); /* numpy matmul semantics */
value_id b_matmul_acc(struct builder *, value_id a, value_id b,
                      enum elem acc); /* sums of that type; ELEM_NONE: the operands' */
/* The index of the largest (max) or smallest element along an axis, which goes; the last of equal ones if `last`. */
value_id b_argreduce(struct builder *, value_id, int32_t axis, bool max, bool last);
value_id b_cumulate(struct builder *, value_id, int32_t axis, const char *monoid, bool exclusive, bool reverse);

/* gathers and scatters */
value_id b_gather(struct builder *, value_id x, value_id idx, int32_t axis);
value_id b_gather_elements(struct builder *, value_id x, value_id idx, int32_t axis);
value_id b_scatter_elements(struct builder *, value_id x, value_id idx, value_id updates, int32_t axis,
                            const char *monoid);
value_id b_scatter_nd(struct builder *, value_id x, value_id idx, value_id updates, const char *monoid);

/* shapes and symbols */
struct dims {
    const expr_id *d; /* NULL: there are none, after a diagnostic */
    int32_t rank;
};
struct dims b_dims(struct builder *, value_id); /* of a tensor of known rank */
expr_id b_dim(struct builder *, value_id, int32_t axis);
expr_id b_count(struct builder *, value_id); /* product of dims */
/* A new symbol in [0, hi] for a size that a value defines; `what` begins its name. */
expr_id b_symbol(struct builder *, const char *what, int64_t hi);
/* Numpy broadcast of two shapes into out[max(ra, rb)]; asserts appended where undecided; rank, or -1 after a
 * diagnostic. */
int32_t b_broadcast_dims(struct builder *, const expr_id *a, int32_t ra, const expr_id *b, int32_t rb, expr_id *out);
/* The elements of an integer tensor of known length as expressions: from the lattice, from constants, and for the
 * rest fresh SYM_VALUE symbols in [lo, hi] bound when the value is computed. NULL after a diagnostic. */
const expr_id *b_elems(struct builder *, value_id, int64_t lo, int64_t hi, uint32_t *n);
/* Each of the n expressions that has more than so many parts becomes a symbol of its own, which the run binds where the
 * number is computed. For what would grow without end as expressions are made of expressions. */
void b_brief_all(struct builder *, expr_id *e, uint32_t n, uint32_t parts);
expr_id b_brief(struct builder *, expr_id e, uint32_t parts); /* of one */
/* As b_elems, the first element alone. */
expr_id b_elem(struct builder *, value_id, int64_t lo, int64_t hi);
void b_assert(struct builder *, expr_id cond, int32_t code, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* What a legalization rule sees: one node of the file, its operands as values of the legal graph, a builder.
 *
 * A rule is one function in one of the files of this folder and one row (or several) of onnx.def. It reads
 * operands and attributes, appends core operators through the builder, and sets results with rule_out. It returns
 * false only after it has reported something: a bad model with rule_bad, a form that is legal ONNX but has no
 * lowering with rule_refuse (those are collected and reported together). Builder calls give {0} after a diagnostic
 * and pass {0} on, so rules chain calls without checking; a wanted result that stays {0} becomes poison, which
 * silences every node that depends on it.
 */
#ifndef MCC_PASSES_LEGALIZE_H
#define MCC_PASSES_LEGALIZE_H

#include "ir/build/build.h"
#include "passes/passes.h"

/* A value while legalizing. Sequences and optionals whose structure is known are lists of values here and never
 * reach the graph unless a run-time operator or a graph output wants them. */
enum lowered_kind { LOWERED_NONE, LOWERED_POISON, LOWERED_VALUE, LOWERED_LIST, LOWERED_OPTIONAL };
/* What a DequantizeLinear made: (q - zero) * scale in f32. zero {0}: 0; scale and zero are scalars or lie along axis.
 * moved: an operator that only moves elements came between, and q is what it makes of the integers. */
struct quantized {
    value_id q, scale, zero;
    int32_t axis;
    bool moved;
};
struct lowered {
    enum lowered_kind kind;
    value_id v; /* LOWERED_VALUE: tensor, or run-time sequence or optional */
    const struct lowered *items; /* LOWERED_LIST: the elements; LOWERED_OPTIONAL: the content when n is 1 */
    uint32_t n;
    enum elem elem; /* LOWERED_LIST, LOWERED_OPTIONAL: element type; ELEM_NONE where an empty one leaves it open */
    bool sequence; /* LOWERED_OPTIONAL, empty: it would hold a sequence */
    const struct quantized *quantized; /* LOWERED_VALUE: where it comes from, for products of bytes; NULL: elsewhere */
};

struct legalizer;
struct rule {
    struct builder *b; /* appends to the current region, at this node's source */
    struct legalizer *lg;
    const struct node *node; /* attribute references resolved; operands are not to be read from here */
    const char *op;
    int32_t version; /* the node's own since_version */
    int param; /* of the row in onnx.def */
    uint32_t n_in, n_out;
    const struct lowered *arg; /* n_in operands; never poison */
    struct lowered *out; /* n_out results */
};
typedef bool rule_fn(struct rule *);
/* Runs the rule, for an operator that only moves elements of what a DequantizeLinear with one scale made: of the
 * integers, which are dequantized afterwards. So a QuantizeLinear after it finds them. */
bool rule_move(struct rule *, rule_fn *);
/* The same for any operator: where operands or results are complex, as aten/complex.c has it. */
bool rule_numbers(struct rule *, rule_fn *);
/* The product of operands 0 and 1 (turned_w: by the transpose of the second) in integers, where both are
 * dequantized bytes. False: they are not, and nothing was done. */
bool rule_matmul_dequantized(struct rule *, bool turned_w, value_id *y);
/* The product of a and w if one is a stack of a constant's matrices at indices of the run and the other has one row for
 * each: a loop through the different ones, none of which is copied. False: it is none. */
bool rule_matmul_fetched(struct rule *, value_id a, value_id w, value_id *y);

/* ---- operands and results -------------------------------------------------------------------------------- */

bool rule_has(const struct rule *, uint32_t i); /* operand i is there */
value_id rule_in(struct rule *, uint32_t i); /* as a graph value; {0} when omitted */
bool rule_wants(const struct rule *, uint32_t i); /* result i has a name */
void rule_out(struct rule *, uint32_t i, value_id);
bool rule_result(struct rule *, value_id); /* rule_out(r, 0, v); true unless v is {0} */
struct lowered lowered_value(value_id);
value_id lowered_force(struct builder *, struct lowered); /* lists become seq_make, optionals opt_make */

bool rule_refuse(struct rule *, const char *fmt, ...) PRINTF_LIKE(2, 3); /* legal ONNX, no lowering: collected; false */
bool rule_bad(struct rule *, const char *fmt, ...) PRINTF_LIKE(2, 3); /* broken model: reported now; false */

/* ---- attributes ---------------------------------------------------------------------------------------------- */

int64_t rule_int(const struct rule *, const char *name, int64_t absent);
double rule_float(const struct rule *, const char *name, double absent);
const char *rule_str(const struct rule *, const char *name, const char *absent);
bool rule_str_is(const struct rule *, const char *name, const char *absent, const char *is);
const int64_t *rule_ints(const struct rule *, const char *name, uint32_t *n); /* NULL and 0: absent */
const double *rule_floats(const struct rule *, const char *name, uint32_t *n);
enum elem rule_elem_attr(struct rule *, const char *name, enum elem absent); /* TensorProto.DataType numbers */

/* ---- facts about values ------------------------------------------------------------------------------------------ */

enum elem v_elem(const struct builder *, value_id); /* ELEM_NONE for {0} */
int32_t v_rank(const struct builder *, value_id);
bool v_is_float(const struct builder *, value_id);
bool v_is_string(const struct builder *, value_id);
/* Adds rank to a negative axis; false after rule_bad when out of [-rank, rank). */
bool rule_axis(struct rule *, int64_t axis, int32_t rank, int32_t *out);
/* n axes of which each is named once, as marks or in ascending order; false after a diagnostic. */
bool rule_axes_marked(struct rule *, const int64_t *axes, uint32_t n, int32_t rank, bool marked[RANK_MAX]);
bool rule_axes_sorted(struct rule *, const int64_t *axes, uint32_t n, int32_t rank, int64_t sorted[RANK_MAX]);
/* Numbers from 0 to below 1 in f64, drawn anew each run or from the seed that the attribute of that name gives. */
value_id rule_random_units(struct rule *, const expr_id *dims, int32_t rank, double seed);
/* Elements of an integer operand that must be known now (axes, ...): refuses when they are not. */
bool rule_static_ints(struct rule *, uint32_t i, const char *what, const int64_t **out, uint32_t *n);
/* One known element of an integer tensor: true and *out, false silently when unknown. */
bool v_known_i64(struct builder *, value_id, uint32_t k, int64_t *out);
bool v_known_f64(struct builder *, value_id, double *out); /* one-element constant */
bool v_splat_f64(struct builder *, value_id, double *out); /* the same through broadcasts */
const struct node *v_defining(const struct builder *, value_id,
                              enum op); /* NULL: another operator, or none, gives it */

/* Numbers that the rule has to know now (choose.c). false: reported, or it is dynamic, and the node is walked
 * again for each number that it may be (rule_fork of control.h): the rule returns false at once. `what` names the
 * things counted. */
enum { OPEN_RANK_MAX = 8 }; /* dynamic ranks, where nothing else bounds them */
bool rule_choose(struct rule *, expr_id, int64_t lo, int64_t hi, const char *what, int64_t *out);
/* How many elements operand i, of rank 1, has; lo and hi bound what is looked at, not what a known number may be. */
bool rule_count(struct rule *, uint32_t i, const char *what, uint32_t lo, uint32_t hi, uint32_t *n);
/* Its elements, each from lo to hi, where at most `most` of them are looked at if their number is dynamic; NULL as
 * above. */
const expr_id *rule_elems(struct rule *, uint32_t i, const char *what, uint32_t most, int64_t lo, int64_t hi,
                          uint32_t *n);
/* A rank that grows past `rank` as the run says: the largest one that is looked at. */
uint32_t open_rank(int32_t rank);

/* mask[d] = 1 where the integer operand names axis d (at run time, if need be); *n: how many it names. */
bool rule_axis_mask(struct rule *, value_id axes, int32_t rank, expr_id mask[RANK_MAX], uint32_t *n);
/* As rule_axis_mask, with values up to `last`; those from rank on name no axis. */
bool rule_axis_mask_open(struct rule *, value_id axes, int32_t rank, int32_t last, expr_id mask[RANK_MAX], uint32_t *n);
/* The n_kept dims that are left when those with mask 1 go; fails the run when that many are not left. */
void rule_dims_kept(struct rule *, const expr_id *dims, const expr_id *mask, int32_t rank, int32_t n_kept,
                    expr_id *out);
/* `total` dims: 1 where the mask is 1, elsewhere dims in their order; fails the run when not as many as `rank` are
 * left. */
void rule_dims_spread(struct rule *, const expr_id *dims, int32_t rank, const expr_id *mask, int32_t total,
                      expr_id *out);

/* ---- common constructions ---------------------------------------------------------------------------------------- */

/* f16 and bf16 operands compute in f32, and round once at the result. */
value_id v_widen(struct builder *, value_id);
/* Of no elements, none are made: the run checks that, but where `made` is 0 with `have`. */
void v_some_check(struct builder *, expr_id have, expr_id made);
value_id v_scalar(struct builder *, value_id); /* one-element tensor -> rank 0 */
value_id v_reshape_i(struct builder *, value_id, const int64_t *dims, int32_t rank);
/* [1, ..., C, ..., 1]: a rank-1 tensor along `axis` of rank `rank`. */
value_id v_along(struct builder *, value_id, int32_t axis, int32_t rank);
/* As v_along, of a vector that has an element for each of x's along axis: any other length is an error, at run time
 * too. */
value_id v_channels(struct builder *, value_id v, value_id x, int32_t axis);
/* [images, groups, ...]: the channels of a group and their images as one dim. Where its extent is dynamic, the dims
 * stay apart: each index would be divided by one of them. rank(x) is from 2 to RANK_MAX - 1. */
value_id v_groups(struct builder *, value_id x, int64_t groups);
/* x over its deviation along the axes, from its mean or (not centre) from 0; *inv: 1 / deviation. */
value_id v_normalized(struct builder *, value_id x, const int64_t *axes, uint32_t n, double eps, bool centre,
                      value_id *mean, value_id *inv);
/* y * scale + bias in y's type; {0}: there is none. */
value_id v_scaled(struct builder *, value_id y, value_id scale, value_id bias);
/* A rank-1 operand whose length is what the operator demands: if it is dynamic, the run checks it. */
value_id v_exactly(struct builder *, value_id, uint32_t n);
/* Of a rank-1 i64 tensor of at most n elements the first n, filled up; its length may be known only at run time. */
value_id v_padded(struct builder *, value_id, uint32_t n, int64_t fill);
/* As v_padded, for axes of a tensor of that rank: filled up with `rank`, which no dim has, to mean none. What the
 * operand itself says beyond the rank stays beyond `rank`, for the check of the range. */
value_id v_axes_padded(struct builder *, value_id axes, int32_t rank);
/* Is the number of elements known now? */
bool v_count_known(struct builder *, value_id);
/* A list of an attribute as f32 [n]. */
value_id v_floats(struct builder *, const double *, int64_t n);
value_id v_flip(struct builder *, value_id, int32_t axis);
value_id v_iota(struct builder *, enum elem, const expr_id *dims, int32_t rank, int32_t axis);
/* x with `rows` in it: rows[i, ..., j, ...] becomes x[i, ..., at[i, ..., j], ...], j along axis; at: i64 of the dims of
 * rows up to that one, or broadcasting to them. Rows are written as wholes. */
value_id v_rows_set(struct builder *, value_id x, value_id at, value_id rows, int32_t axis);
/* An integer expression as a rank-0 tensor of that element type. */
value_id v_expr(struct builder *, enum elem, expr_id);
/* A permutation that moves axis `from` to position `to`. */
value_id v_move_axis(struct builder *, value_id, int32_t from, int32_t to);
/* From batch, space, channels to batch, channels, space, and back. */
value_id v_channels_first(struct builder *, value_id);
value_id v_channels_last(struct builder *, value_id);
value_id v_softmax(struct builder *, value_id, const int64_t *axes, uint32_t n, bool log);
/* The same of f32 or f64, but 0 everywhere instead of NaN where nothing is above -inf. A sum is 1 at least where
 * something is, so that all other results keep their bits. */
value_id v_softmax_masked(struct builder *, value_id, const int64_t *axes, uint32_t n);
/* That of x, if p is the softmax of x, `zero` 0, and cond says of a line of x that all is -inf; {0}: they are not. */
value_id v_softmax_cleared(struct builder *, value_id cond, value_id zero, value_id p);
/* With one score more that no value has: sink, of each line of the axes. */
value_id v_softmax_sink(struct builder *, value_id, const int64_t *axes, uint32_t n, value_id sink);
value_id v_gelu_tanh(struct builder *, value_id);
value_id v_softplus(struct builder *, value_id);
value_id v_affine(struct builder *, value_id, double scale, double shift);
bool quotient_by_root(struct rule *, value_id x,
                      value_id root); /* x / root as a product, where it may be (quotient.c) */
void rule_operands(struct rule *,
                   value_id in[2]); /* of a binary operator, as every version broadcasts them (elementwise.c) */
value_id v_normal(struct builder *, value_id); /* subnormal elements of a constant as 0 (subnormal.c) */
/* i64 of x's shape: which of n strings each string of x is, from 1, the last one if several are; 0: none. */
value_id v_string_find(struct builder *, value_id x, const struct span *list, uint32_t n);
/* Strings of x's shape: number x[i] (i64, from 0 to n - 1) of the list. */
value_id v_string_pick(struct builder *, value_id x, const struct span *list, uint32_t n);
const struct span *b_spans(struct builder *, const char *const *,
                           uint32_t n); /* the same strings; they must outlive the graph */
/* As rule_in for strings that compiled code reads: a constant becomes what the runtime makes of a packed list. {0}
 * after rule_bad where the operand is not a tensor of strings. */
value_id rule_strings(struct rule *, uint32_t i);
/* Cast where one of the types is strings (text/cast_strings.c). */
bool rule_cast_text(struct rule *, value_id x, enum elem to);

/* ---- loops and nested regions (control.c) ------------------------------------------------------------------------ */

/* The body of a counted loop: carried values in and out, scan results out; iter is a rank-0 i64. false after a
 * diagnostic. */
typedef bool loop_body(struct rule *, void *data, value_id iter, const value_id *carried, value_id *next,
                       value_id *scan);
struct counted_loop {
    expr_id trips;
    loop_body *body;
    void *data;
    uint32_t n_carried, n_scan;
};
/* Unrolls when trips is a small constant. carried: initial in, final out; scan: stacked along a new dim 0. */
bool rule_counted_loop(struct rule *, const struct counted_loop *, value_id *carried, value_id *scan);

/* Walks an imported region in the current place with the given parameters; its results into results[]. */
bool legalize_region(struct rule *, region_id, const struct lowered *params, uint32_t n_params, struct lowered *results,
                     uint32_t n_results);
region_id rule_region(const struct rule *, const char *attr);
uint32_t region_n_results(const struct rule *, region_id);
/* Fewer legal nodes than this may come of one unrolled loop. */
int32_t legalize_unroll_limit(const struct rule *);

/* Every rule of the table. */
#define ROW(domain, op, since, rule, param, note) rule_fn rule;
#include "passes/legalize/rules.def"

#endif

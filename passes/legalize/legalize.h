/* What a legalization rule sees: one node of the file, its operands as values of the legal graph, a builder.
 *
 * A rule is a function in this folder with one or more rows of onnx.def. It reads operands and attributes, appends core
 * operators through the builder, and sets results with rule_out. It returns false only after a diagnostic: rule_bad for
 * a bad model, rule_refuse for valid ONNX without a lowering (legalize collects these and reports them together). A
 * builder call returns {0} after a diagnostic, or if an operand is {0}, so rules chain calls without checks. A result
 * that stays {0} becomes poison: nodes that depend on it give no further diagnostics.
 */
#pragma once

#include "ir/build/build.h"
#include "passes/passes.h"

/* A value while legalizing. Sequences and optionals of known structure are lists of values here. They enter the graph
 * only if a run-time operator or a graph output uses them. */
enum lowered_kind { LOWERED_NONE, LOWERED_POISON, LOWERED_VALUE, LOWERED_LIST, LOWERED_OPTIONAL };
/* The result of a DequantizeLinear: (q - zero) * scale in f32. zero {0}: 0; scale and zero are scalars or lie along
 * axis. moved: an operator that only moves elements follows the DequantizeLinear, and q is its result on the integers.
 */
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
    enum elem elem; /* LOWERED_LIST, LOWERED_OPTIONAL: element type; ELEM_NONE: empty, and the type is not known */
    bool sequence; /* LOWERED_OPTIONAL, empty: it would hold a sequence */
    const struct quantized *quantized; /* LOWERED_VALUE: its DequantizeLinear, for int8 products; NULL: none */
};

struct legalizer;
struct rule {
    struct builder *b; /* appends to the current region, at this node's source */
    struct legalizer *lg;
    const struct node *node; /* attribute references are resolved; read operands from `arg`, not from here */
    const char *op;
    int32_t version; /* the node's own since_version */
    int param; /* of the row in onnx.def */
    uint32_t n_in, n_out;
    const struct lowered *arg; /* n_in operands; never poison */
    struct lowered *out; /* n_out results */
};
typedef bool rule_fn(struct rule *);
/* Runs the rule of an operator that only moves elements. If the operand is dequantized with one scale, the rule moves
 * the integers, and the result is dequantized, so that a following QuantizeLinear finds the integers. */
bool rule_move(struct rule *, rule_fn *);
/* Runs the rule of any operator; complex operands and results are represented as in aten/complex.c. */
bool rule_numbers(struct rule *, rule_fn *);
/* The integer product of operands 0 and 1 (turned_w: of the second one's transpose), if both are dequantized int8.
 * False: they are not, and nothing is changed. */
bool rule_matmul_dequantized(struct rule *, bool turned_w, value_id *y);
/* The product of a and w if one is a gather of a constant's matrices by dynamic indices and the other has one row for
 * each: a loop over the matrices that occur, without copies. False: it is not such a product. */
bool rule_matmul_fetched(struct rule *, value_id a, value_id w, value_id *y);

/* ---- operands and results -------------------------------------------------------------------------------- */

bool rule_has(const struct rule *, uint32_t i); /* is operand i present? */
value_id rule_in(struct rule *, uint32_t i); /* operand i as a graph value; {0}: omitted */
bool rule_wants(const struct rule *, uint32_t i); /* result i has a name */
void rule_out(struct rule *, uint32_t i, value_id);
bool rule_result(struct rule *, value_id); /* rule_out(r, 0, v); true unless v is {0} */
struct lowered lowered_value(value_id);
value_id lowered_force(struct builder *, struct lowered); /* lists become seq_make, optionals opt_make */

bool rule_refuse(struct rule *, const char *fmt, ...) PRINTF_LIKE(2, 3); /* valid, but no lowering; returns false */
bool rule_bad(struct rule *, const char *fmt, ...) PRINTF_LIKE(2, 3); /* a bad model; returns false */

/* False after a diagnostic: v, which messages call `what`, has another rank, or dims that differ from these; the run
 * fails if open ones do. */
bool rule_shaped(struct rule *, value_id v, const char *what, const expr_id *dims, int32_t rank);

/* ---- attributes ---------------------------------------------------------------------------------------------- */

int64_t rule_int(const struct rule *, const char *name, int64_t absent);
double rule_float(const struct rule *, const char *name, double absent);
const char *rule_str(const struct rule *, const char *name, const char *absent);
bool rule_str_is(const struct rule *, const char *name, const char *absent, const char *is);
const int64_t *rule_ints(const struct rule *, const char *name, uint32_t *n); /* NULL and 0: absent */
const double *rule_floats(const struct rule *, const char *name, uint32_t *n);
enum elem rule_elem_attr(struct rule *, const char *name, enum elem absent); /* TensorProto.DataType numbers */

/* ---- facts about values ------------------------------------------------------------------------------------------ */

enum elem elem_widened(enum elem); /* the type to compute results of a type in: f32 for f16 and bf16 */
enum elem v_elem(const struct builder *, value_id); /* ELEM_NONE for {0} */
int32_t v_rank(const struct builder *, value_id);
bool v_is_float(const struct builder *, value_id);
bool v_is_string(const struct builder *, value_id);
/* Adds rank to a negative axis; false after rule_bad when out of [-rank, rank). */
bool rule_axis(struct rule *, int64_t axis, int32_t rank, int32_t *out);
/* n distinct axes, as marks or in ascending order; false after a diagnostic. */
bool rule_axes_marked(struct rule *, const int64_t *axes, uint32_t n, int32_t rank, bool marked[RANK_MAX]);
bool rule_axes_sorted(struct rule *, const int64_t *axes, uint32_t n, int32_t rank, int64_t sorted[RANK_MAX]);
/* Random numbers in [low, high), or with mean low and deviation high; seed NULL: new ones for each run. */
struct random {
    enum elem elem;
    bool normal;
    double low, high;
    const double *seed;
};
value_id v_random(struct builder *, const expr_id *dims, int32_t rank, const struct random *);
/* f64 numbers in [0, 1): from `seed` if the node has the attribute of that name, else new ones for each run. */
value_id rule_random_units(struct rule *, const expr_id *dims, int32_t rank, double seed);
/* The axes of operand 1, which must be known at compile time; refuses dynamic ones. */
bool rule_static_ints(struct rule *, const int64_t **out, uint32_t *n);
/* One known element of an integer tensor: true and *out, false silently when unknown. */
bool v_known_i64(struct builder *, value_id, uint32_t k, int64_t *out);
bool v_known_f64(struct builder *, value_id, double *out); /* one-element constant */
bool v_splat_f64(struct builder *, value_id, double *out); /* the same through broadcasts */
/* The node of this operator that defines the value; NULL: it has another operator, or none. */
const struct node *v_defining(const struct builder *, value_id, enum op);

/* A number that the rule must know at compile time (choose.c). False: after a diagnostic, or the number is dynamic and
 * legalize walks the node again for each possible value (rule_fork of control.h); the rule must then return false at
 * once. what: names the counted things in messages. */
enum { OPEN_RANK_MAX = 8 }; /* the largest dynamic rank, if nothing else bounds it */
bool rule_choose(struct rule *, expr_id, int64_t lo, int64_t hi, const char *what, int64_t *out);
/* The number of elements of operand i, of rank 1; lo and hi bound dynamic numbers only. */
bool rule_count(struct rule *, uint32_t i, const char *what, uint32_t lo, uint32_t hi, uint32_t *n);
/* Its elements, each in [lo, hi], and at most `most` of them if their number is dynamic; NULL as above. */
const expr_id *rule_elems(struct rule *, uint32_t i, const char *what, uint32_t most, int64_t lo, int64_t hi,
                          uint32_t *n);
/* The largest dynamic rank above `rank` that is supported. */
uint32_t open_rank(int32_t rank);

/* mask[d] = 1 if the integer operand, which may be dynamic, names axis d; *n: how many it names. */
bool rule_axis_mask(struct rule *, value_id axes, int32_t rank, expr_id mask[RANK_MAX], uint32_t *n);
/* As rule_axis_mask, with values up to `last`; those from rank on name no axis. */
bool rule_axis_mask_open(struct rule *, value_id axes, int32_t rank, int32_t last, expr_id mask[RANK_MAX], uint32_t *n);
/* The n_kept dims whose mask is 0; the run fails if their number is another one. */
void rule_dims_kept(struct rule *, const expr_id *dims, const expr_id *mask, int32_t rank, int32_t n_kept,
                    expr_id *out);
/* `total` dims: 1 where the mask is 1, elsewhere `dims` in their order; the run fails unless `rank` of them are used */
void rule_dims_spread(struct rule *, const expr_id *dims, int32_t rank, const expr_id *mask, int32_t total,
                      expr_id *out);

/* ---- common constructions ---------------------------------------------------------------------------------------- */

/* Converts f16 and bf16 to f32, so that only the result is rounded. */
value_id v_widen(struct builder *, value_id);
/* The run fails if `have` is 0 and `made` is not. Adds no check if `made` is 0 whenever `have` is. */
void v_some_check(struct builder *, expr_id have, expr_id made);
value_id v_scalar(struct builder *, value_id); /* one-element tensor -> rank 0 */
value_id v_reshape_i(struct builder *, value_id, const int64_t *dims, int32_t rank);
/* [1, ..., C, ..., 1]: a rank-1 tensor along `axis` of rank `rank`. */
value_id v_along(struct builder *, value_id, int32_t axis, int32_t rank);
/* As v_along, for a vector as long as x's dim `axis`; another length is an error, at run time too. */
value_id v_channels(struct builder *, value_id v, value_id x, int32_t axis);
/* [images, groups, ...] with the channels and the spatial dims of a group as one dim. If its extent is dynamic, the
 * dims stay separate, since indices would be divided by one of them. rank(x) is from 2 to RANK_MAX - 1. */
value_id v_groups(struct builder *, value_id x, int64_t groups);
/* x over its deviation along the axes, from its mean or (not centre) from 0; *inv: 1 / deviation. */
value_id v_normalized(struct builder *, value_id x, const int64_t *axes, uint32_t n, double eps, bool centre,
                      value_id *mean, value_id *inv);
/* y * scale + bias in y's type; {0}: there is none. */
value_id v_scaled(struct builder *, value_id y, value_id scale, value_id bias);
/* A rank-1 operand, which must have n elements; the run checks a dynamic length. */
value_id v_exactly(struct builder *, value_id, uint32_t n);
/* Pads a rank-1 i64 tensor of at most n elements, whose length may be dynamic, to n elements. */
value_id v_padded(struct builder *, value_id, uint32_t n, int64_t fill);
/* As v_padded, for axes of a tensor of that rank; `rank` pads them and means no axis. Operand values of `rank` and more
 * become greater than `rank`, so that the range check finds them. */
value_id v_axes_padded(struct builder *, value_id axes, int32_t rank);
/* Is the number of elements known at compile time? */
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
/* The softmax of f32 or f64, with 0 instead of NaN in lines of -inf only. Other lines have a sum of at least 1, so
 * their results are the same bits. */
value_id v_softmax_masked(struct builder *, value_id, const int64_t *axes, uint32_t n);
/* v_softmax_masked of x, if p is the softmax of x, zero is 0, and cond is true for lines of -inf only; {0}: not so. */
value_id v_softmax_cleared(struct builder *, value_id cond, value_id zero, value_id p);
/* Softmax over one axis with an additional score in each line, `sink`, which has no value. */
value_id v_softmax_sink(struct builder *, value_id, const int64_t *axes, value_id sink);
value_id v_gelu_tanh(struct builder *, value_id);
value_id v_softplus(struct builder *, value_id);
value_id v_affine(struct builder *, value_id, double scale, double shift);
/* x / root as a product, where that is allowed (quotient.c). */
bool quotient_by_root(struct rule *, value_id x, value_id root);
/* The operands of a binary operator, broadcast as its version does (elementwise.c). */
void rule_operands(struct rule *, value_id in[2]);
/* `elements` of x that indices name, or that go where they name (view/index.c). If there are any and x is empty, the
 * run ends: until then indices outside are moved inside, and an empty x has no inside. And b_gather with this check. */
value_id v_addressed(struct builder *, value_id x, value_id elements);
value_id v_gather(struct builder *, value_id x, value_id idx, int32_t axis);
value_id v_normal(struct builder *, value_id); /* subnormal elements of a constant as 0 (subnormal.c) */
/* i64 of x's shape: which of n strings each string of x is, from 1, the last one if several are; 0: none. */
value_id v_string_find(struct builder *, value_id x, const struct span *list, uint32_t n);
/* Strings of x's shape: number x[i] (i64, from 0 to n - 1) of the list. */
value_id v_string_pick(struct builder *, value_id x, const struct span *list, uint32_t n);
/* The strings as spans; they must outlive the graph. */
const struct span *b_spans(struct builder *, const char *const *, uint32_t n);
/* As rule_in, for strings that compiled code reads: the runtime unpacks constants. {0} after rule_bad: the operand is
 * not a tensor of strings. */
value_id rule_strings(struct rule *, uint32_t i);
/* Cast from or to strings (text/cast_strings.c). */
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

/* Lowers an imported region at the current place with the given parameters; stores its results in results[]. */
bool legalize_region(struct rule *, region_id, const struct lowered *params, uint32_t n_params, struct lowered *results,
                     uint32_t n_results);
region_id rule_region(const struct rule *, const char *attr);
uint32_t region_n_results(const struct rule *, region_id);
/* An unrolled loop must give fewer legal nodes than this. */
int32_t legalize_unroll_limit(const struct rule *);

/* Every rule of the table. */
#define ROW(domain, op, since, rule, param, note) rule_fn rule;
#include "passes/legalize/rules.def"

/* Softmax over some axes. */
#include "passes/legalize/legalize.h"

#include <float.h>
#include <string.h>

/* Beside the largest term, which is 1, a term below the smallest normal number counts as 0: masks of -100 or -1000
 * would else make a denormal of every masked place, and each one costs the CPU a hundred cycles, here and in what reads
 * it. */
static value_id softmax_terms(struct builder *b, value_id shifted)
{
    enum elem e = v_elem(b, shifted);
    if (e != ELEM_F32 && e != ELEM_F64)
        return b_unary(b, OP_EXP, shifted);
    value_id far = b_binary_f64(b, OP_LT, shifted, e == ELEM_F32 ? -87 : -708), zero = b_splat_like(b, shifted, 0);
    return b_select(b, far, zero, b_unary(b, OP_EXP, b_select(b, far, zero, shifted)));
}

enum softmax { SOFTMAX, SOFTMAX_LOG, SOFTMAX_MASKED };
/* of_sink: its probability, where it is asked for. */
static value_id softmax_of(struct builder *b, value_id x, const int64_t *axes, uint32_t n, enum softmax kind,
                           value_id sink, value_id *of_sink)
{
    value_id max = b_reduce(b, x, axes, n, "max", true);
    if (kind == SOFTMAX_MASKED)
        max = b_binary_f64(b, OP_MAX, max, v_elem(b, x) == ELEM_F64 ? -DBL_MAX : -FLT_MAX);
    if (sink.i)
        max = b_binary(b, OP_MAX, max, sink);
    value_id shifted = b_binary(b, OP_SUB, x, max), e = softmax_terms(b, shifted), term = {0};
    value_id sum = b_reduce(b, e, axes, n, "sum", true);
    if (sink.i)
        sum = b_binary(b, OP_ADD, sum, term = b_unary(b, OP_EXP, b_binary(b, OP_SUB, sink, max)));
    if (kind == SOFTMAX_LOG)
        return b_binary(b, OP_SUB, shifted, b_unary(b, OP_LOG, sum));
    if (kind == SOFTMAX_MASKED)
        sum = b_binary_f64(b, OP_MAX, sum, 1);
    value_id inverse = b_binary(b, OP_DIV, b_splat_like(b, sum, 1), sum);
    if (of_sink)
        *of_sink = b_binary(b, OP_MUL, term, inverse);
    return b_binary(b, OP_MUL, e, inverse);
}

/* x; y where x is y less the maximum of each of its lines: the softmax subtracts it, too, and subtracts 0 from x. */
static value_id unshifted(struct builder *b, value_id x, int64_t axis)
{
    const struct node *less = v_defining(b, x, OP_SUB), *n;
    value_id max = less ? less->in[1] : x;
    uint32_t n_axes = 0;
    int32_t rank;
    while ((n = v_defining(b, max, OP_BROADCAST)) || (n = v_defining(b, max, OP_RESHAPE))) {
        const expr_id *have = b_dims(b, x, &rank), *dims = value_type(b->g, max)->dims;
        for (int32_t d = 0; d < rank; d++) /* those of x, or 1 along the axis: no other dim moves */
            if (value_type(b->g, max)->rank != rank || (dims[d].i != have[d].i && d != axis))
                return x;
        max = n->in[0];
    }
    n = v_defining(b, max, OP_REDUCE);
    const int64_t *axes = n ? node_ints(n, "axes", &n_axes) : NULL;
    bool same = n_axes == 1 && axes[0] == axis && n->in[0].i == less->in[0].i && max.i != less->in[1].i;
    return same && !strcmp(node_str(n, "monoid", ""), "max") ? less->in[0] : x;
}

/* Along the axis x is a concat of keys and one element more, a sink: the probabilities of both, apart, so that a slice
 * that drops the sink's leaves a softmax with a sink. */
static value_id softmax_joined(struct builder *b, value_id x, const int64_t *axis)
{
    const struct node *n = v_defining(b, x, OP_CONCAT);
    value_id both[2];
    if (!n || n->n_in != 2 || node_int(n, "axis", 0) != *axis || !ex_is(b_exprs(b), b_dim(b, n->in[1], *axis), 1))
        return (value_id){0};
    value_id keys = n->in[0], sink = n->in[1];
    both[0] = softmax_of(b, keys, axis, 1, SOFTMAX, sink, &both[1]);
    return b_concat(b, both, 2, (int32_t)*axis);
}

value_id v_softmax(struct builder *b, value_id x, const int64_t *axes, uint32_t n, bool log)
{
    value_id of = x.i && n == 1 && !log ? unshifted(b, x, axes[0]) : x;
    value_id joined = of.i && n == 1 && !log ? softmax_joined(b, of, axes) : (value_id){0};
    return joined.i ? joined : softmax_of(b, of, axes, n, log ? SOFTMAX_LOG : SOFTMAX, (value_id){0}, NULL);
}

value_id v_softmax_masked(struct builder *b, value_id x, const int64_t *axes, uint32_t n)
{
    return softmax_of(b, x, axes, n, SOFTMAX_MASKED, (value_id){0}, NULL);
}

value_id v_softmax_sink(struct builder *b, value_id x, const int64_t *axes, uint32_t n, value_id sink)
{
    return softmax_of(b, x, axes, n, SOFTMAX, sink, NULL);
}

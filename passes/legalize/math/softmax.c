/* Softmax over some axes. */
#include "passes/legalize/legalize.h"

#include <float.h>
#include <math.h>

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

/* v without what repeats it along the axis of x, broadcasts and reshapes that keep every other dim; {0}: one moves. A
 * broadcast that adds dims moves those that it has. */
static value_id line_of(struct builder *b, value_id v, value_id x, int64_t axis)
{
    const struct dims have = b_dims(b, x);
    while (v.i && (value_op(b->g, v) == OP_BROADCAST || value_op(b->g, v) == OP_RESHAPE)) {
        const struct type *t = value_type(b->g, v);
        for (int32_t d = 0; d < have.rank; d++)
            if (t->rank != have.rank || (t->dims[d].i != have.d[d].i && d != axis))
                return (value_id){0};
        const struct node *n = graph_node(b->g, graph_value(b->g, v)->def);
        if (n->op == OP_BROADCAST && value_type(b->g, n->in[0])->rank != have.rank)
            return (value_id){0};
        v = n->in[0];
    }
    return v;
}

/* Is v the reduction of x, line by line along the axis alone? */
static bool is_line_of(struct builder *b, value_id v, const char *monoid, value_id x, int64_t axis)
{
    const struct node *n = v_defining(b, line_of(b, v, x, axis), OP_REDUCE);
    uint32_t n_axes;
    const int64_t *axes = n ? node_ints(n, "axes", &n_axes) : NULL;
    return n && n_axes == 1 && axes[0] == axis && n->in[0].i == x.i && !strcmp(node_str(n, "monoid", ""), monoid);
}

/* x; y where x is y less the maximum of each of its lines: the softmax subtracts it, too, and subtracts 0 from x. */
static value_id unshifted(struct builder *b, value_id x, int64_t axis)
{
    const struct node *less = v_defining(b, x, OP_SUB);
    return less && is_line_of(b, less->in[1], "max", less->in[0], axis) ? less->in[0] : x;
}

/* Along the axis x is a concat of keys and one element more, a sink: the probabilities of both, apart, so that a slice
 * that drops the sink's leaves a softmax with a sink. */
static value_id softmax_joined(struct builder *b, value_id x, const int64_t *axis)
{
    const struct node *n = v_defining(b, x, OP_CONCAT);
    value_id both[2];
    if (!n || n->n_in != 2 || node_int(n, "axis", 0) != *axis || !ex_is(b->x, b_dim(b, n->in[1], *axis), 1))
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

value_id v_softmax_sink(struct builder *b, value_id x, const int64_t *axes, value_id sink)
{
    return softmax_of(b, x, axes, 1, SOFTMAX, sink, NULL);
}

static bool is_splat(struct builder *b, value_id v, double want)
{
    double number;
    return v_splat_f64(b, v, &number) && number == want;
}

/* The operand of softmax_terms, as it builds them; {0}: these are none. */
static value_id terms_operand(struct builder *b, value_id terms)
{
    const struct node *e = v_defining(b, terms, OP_SELECT), *far = e ? v_defining(b, e->in[0], OP_LT) : NULL, *cut;
    const struct node *exp = far ? v_defining(b, e->in[2], OP_EXP) : NULL;
    cut = exp ? v_defining(b, exp->in[0], OP_SELECT) : NULL;
    if (!cut || cut->in[0].i != e->in[0].i || far->in[0].i != cut->in[2].i || !is_splat(b, e->in[1], 0) ||
        !is_splat(b, cut->in[1], 0) || !is_splat(b, far->in[1], v_elem(b, terms) == ELEM_F32 ? -87 : -708))
        return (value_id){0};
    return cut->in[2];
}

/* What p is the softmax of along *axis, as softmax_of builds it; {0}: it is none. */
static value_id softmax_operand(struct builder *b, value_id p, int64_t *axis)
{
    const struct node *n = v_defining(b, p, OP_MUL), *e = n ? v_defining(b, terms_operand(b, n->in[0]), OP_SUB) : NULL;
    const struct node *inverse = n ? v_defining(b, n->in[1], OP_BROADCAST) : NULL, *sum;
    inverse = inverse ? v_defining(b, inverse->in[0], OP_DIV) : NULL;
    sum = inverse ? v_defining(b, inverse->in[1], OP_RESHAPE) : NULL;
    sum = sum ? v_defining(b, sum->in[0], OP_REDUCE) : NULL;
    uint32_t n_axes;
    const int64_t *axes = sum ? node_ints(sum, "axes", &n_axes) : NULL;
    if (!sum || !e || n_axes != 1 || !is_splat(b, inverse->in[0], 1))
        return (value_id){0};
    *axis = axes[0];
    bool whole = is_line_of(b, inverse->in[1], "sum", n->in[0], *axis) &&
                 is_line_of(b, e->in[1], "max", e->in[0], *axis);
    return whole ? e->in[0] : (value_id){0};
}

/* v without nots and conversions between bool and integers, and what repeats it; *odd: the number of nots is. */
static value_id stripped(struct builder *b, value_id v, value_id x, int64_t axis, bool *odd)
{
    for (*odd = false; (v = line_of(b, v, x, axis)).i;) {
        enum op op = value_op(b->g, v);
        if (op == OP_NOT ? v_elem(b, v) != ELEM_BOOL : op != OP_CONVERT || elem_class(v_elem(b, v)) == 'F')
            return v;
        *odd ^= op == OP_NOT;
        v = graph_node(b->g, graph_value(b->g, v)->def)->in[0];
        if (elem_class(v_elem(b, v)) == 'F')
            return (value_id){0};
    }
    return v;
}

value_id v_softmax_cleared(struct builder *b, value_id cond, value_id zero, value_id p)
{
    int64_t axis;
    bool outer, inner;
    value_id x = softmax_operand(b, p, &axis);
    /* A condition of fewer dims runs along the last ones. */
    if (!x.i || !zero.i || !is_splat(b, zero, 0) || value_type(b->g, cond)->rank != value_type(b->g, x)->rank)
        return (value_id){0};
    const struct node *every = v_defining(b, stripped(b, cond, x, axis, &outer), OP_REDUCE), *equal;
    if (!every)
        return (value_id){0};
    equal = v_defining(b, stripped(b, every->in[0], x, axis, &inner), OP_EQ);
    bool all = is_line_of(b, every->out[0], outer ? "max" : "min", every->in[0], axis) && outer == inner;
    for (uint32_t k = 0; all && equal && k < 2; k++)
        if (equal->in[k].i == x.i && is_splat(b, equal->in[1 - k], -INFINITY))
            return v_softmax_masked(b, x, &axis, 1);
    return (value_id){0};
}

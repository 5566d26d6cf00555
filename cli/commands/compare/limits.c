/* Limits before a rounding to bytes, in the network that a proof compares with (docs/reference/proof.md, axiom limits).
 *
 * A Relu or clip lies between a sum and a quantizer, which divides by a scale, rounds and saturates. mcc divides first,
 * and drops a limit that the bytes have anyway. Both give the same real number. The field has a total order without a
 * meaning, in which they differ, so the network is rewritten before it enters the field, by its constants:
 *
 *   max(x, c) * s + d  ->  max(x * s + d, c * s + d)    for s > 0, and the same of min
 *   convert(round(max(x, c)) + z)  ->  convert(round(x) + z)    where c is at most the least byte, less z
 *   convert(f(window maximum of x))  ->  window maximum of convert(f(x))    for an f of these steps and roundings
 *
 * The compiler says at which conversions it did so (passes/graph/fold_scales.c, push_concats.c), as other code keeps
 * the operators' order. Here each step is right for any rounding that only its conversion reads.
 */
#include <math.h>

#include "cli/commands/compare/prove.h"
#include "ir/build/build.h"
#include "ir/eval/constants.h"
#include "passes/module/analysis.h"

enum { ELEMENTS_MOST = 1 << 16, STEPS_MOST = 16 };

struct mover {
    struct graph *g;
    struct builder b;
    double least, most; /* what the bytes hold, less the zero point */
};

/* One operator with a constant as second operand. */
struct step {
    enum op op;
    value_id constant;
};

static bool is_limit(enum op op)
{
    return op == OP_MAX || op == OP_MIN;
}

/* The least and the largest element of a small constant; false: v is none. */
static bool constant_range(struct mover *m, value_id v, double range[2])
{
    int64_t n;
    v = value_unspread(m->g, v);
    if (!value_is_const(m->g, v) || !ex_is_const(m->b.x, b_count(&m->b, v), &n) || n <= 0 || n > ELEMENTS_MOST)
        return false;
    double *x = NEW_ARRAY(&m->g->arena, double, n);
    if (!value_const_f64(m->g, v, x, (uint32_t)n))
        return false;
    range[0] = range[1] = x[0];
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return false;
        range[0] = fmin(range[0], x[i]);
        range[1] = fmax(range[1], x[i]);
    }
    return true;
}

/* v as a step of another value, which is the result; {0}: it is none, or a product by what is not positive. */
static value_id step_of(struct mover *m, value_id v, struct step *step)
{
    const struct node *def = value_node(m->g, v);
    double range[2];
    if (!def || def->n_in != 2 || value_is_const(m->g, v))
        return (value_id){0};
    const struct node n = *def;
    const bool product = n.op == OP_MUL || n.op == OP_DIV, sum = n.op == OP_ADD || n.op == OP_SUB;
    const bool swaps = n.op != OP_DIV && n.op != OP_SUB;
    if (!product && !sum && !is_limit(n.op))
        return (value_id){0};
    const uint32_t k = constant_range(m, n.in[1], range) ? 1 : 0;
    if ((k == 0 && !(swaps && constant_range(m, n.in[0], range))) || (product && range[0] <= 0))
        return (value_id){0};
    *step = (struct step){n.op, value_unspread(m->g, n.in[k])};
    return n.in[1 - k];
}

static value_id apply(struct mover *m, struct step s, value_id x)
{
    return b_binary(&m->b, s.op, x, b_broadcast_like(&m->b, s.constant, x));
}

/* x, of n steps of which the first is the outermost, with the limits last, without those beyond the bytes. */
static value_id rebuilt(struct mover *m, const struct step *step, uint32_t n, value_id x)
{
    double range[2];
    for (uint32_t i = n; i-- > 0;)
        x = is_limit(step[i].op) ? x : apply(m, step[i], x);
    for (uint32_t i = n; i-- > 0;) {
        value_id c = step[i].constant;
        if (!is_limit(step[i].op))
            continue;
        for (uint32_t j = i; j-- > 0;)
            c = is_limit(step[j].op) ? c : b_binary(&m->b, step[j].op, c, step[j].constant);
        if (!constant_range(m, c, range) || (step[i].op == OP_MAX ? range[1] > m->least : range[0] < m->most))
            x = apply(m, (struct step){step[i].op, c}, x);
    }
    return x;
}

/* The rounding before a conversion to bytes, {0}: there is none, or something else reads it. Sets what the bytes hold.
 */
static node_id rounding_of(struct mover *m, const struct node *convert)
{
    const enum elem e = value_type(m->g, convert->out[0])->elem;
    const struct node *n = value_node(m->g, convert->in[0]);
    double zero[2] = {0, 0};
    if (convert->op != OP_CONVERT || (e != ELEM_U8 && e != ELEM_I8) || !n)
        return (node_id){0};
    if (n->op == OP_ADD && constant_range(m, n->in[1], zero))
        n = value_node(m->g, value_node(m->g, convert->in[0])->in[0]);
    m->least = (e == ELEM_U8 ? 0 : -128) - zero[1];
    m->most = (e == ELEM_U8 ? 255 : 127) - zero[0];
    const bool alone = n && graph_value(m->g, convert->in[0])->n_uses == 1 && graph_value(m->g, n->out[0])->n_uses == 1;
    return alone && n->op == OP_ROUND ? graph_value(m->g, n->out[0])->def : (node_id){0};
}

/* Does each window hold an element that is no padding? */
static bool fills_windows(const struct mover *m, const struct node *n)
{
    uint32_t count;
    int64_t below, above;
    const int64_t *kernel = node_ints(n, "kernel", &count), *dilations = node_ints(n, "dilations", &count);
    const expr_id *lo = node_exprs(n, "lo", &count), *hi = node_exprs(n, "hi", &count);
    bool fills = strcmp(node_str(n, "monoid", ""), "max") == 0;
    for (uint32_t d = 0; d < count && fills; d++)
        fills = dilations[d] == 1 && ex_is_const(m->b.x, lo[d], &below) && ex_is_const(m->b.x, hi[d], &above) &&
                below + above < kernel[d];
    return fills;
}

/* Has the constant one element along the last dims? */
static bool is_free_of(const struct mover *m, value_id constant, uint32_t dims)
{
    const struct type *t = value_type(m->g, constant);
    bool one = true;
    for (int32_t d = t->rank; d-- > 0 && t->rank - d <= (int32_t)dims;)
        one &= ex_is(m->b.x, t->dims[d], 1);
    return one;
}

/* The conversion before the maximum of windows that was before it; {0}: there is none. */
static node_id pool_bytes(struct mover *m, node_id conversion)
{
    struct graph *g = m->g;
    const struct node convert = *graph_node(g, conversion);
    struct step step[STEPS_MOST];
    uint32_t steps = 0, dims;
    value_id x = convert.in[0];
    m->b = builder_before(g, conversion);
    for (; value_op(g, x) != OP_WINDOW; steps++) {
        if (steps == STEPS_MOST)
            return (node_id){0};
        step[steps] = (struct step){.op = OP_ROUND};
        x = value_op(g, x) == OP_ROUND ? value_node(g, x)->in[0] : step_of(m, x, &step[steps]);
        if (!x.i)
            return (node_id){0};
    }
    const struct node window = *value_node(g, x);
    node_ints(&window, "kernel", &dims);
    if (!fills_windows(m, &window))
        return (node_id){0};
    for (uint32_t i = 0; i < steps; i++)
        if (step[i].op != OP_ROUND && !is_free_of(m, step[i].constant, dims))
            return (node_id){0};
    x = window.in[0];
    for (uint32_t i = steps; i-- > 0;)
        x = step[i].op == OP_ROUND ? b_unary(&m->b, OP_ROUND, x) : apply(m, step[i], x);
    const value_id bytes = b_op(&m->b, OP_CONVERT, &x, 1, convert.attr, convert.n_attr);
    const value_id pooled = b_op(&m->b, OP_WINDOW, &bytes, 1, window.attr, window.n_attr);
    graph_replace_uses(g, convert.out[0], pooled);
    return graph_value(g, bytes)->def;
}

static bool move(struct mover *m, node_id conversion)
{
    struct step step[STEPS_MOST];
    uint32_t steps = 0;
    bool any = false;
    m->b = builder_before(m->g, conversion);
    const struct node convert = *graph_node(m->g, conversion);
    const node_id round = convert.dead ? (node_id){0} : rounding_of(m, &convert);
    if (!round.i)
        return false;
    m->b = builder_before(m->g, round);
    value_id x = graph_node(m->g, round)->in[0];
    for (value_id inner; steps < STEPS_MOST && (inner = step_of(m, x, &step[steps])).i; x = inner)
        steps++;
    graph_set_operand(m->g, round, 0, rebuilt(m, step, steps, x));
    for (uint32_t k = 0; k < steps; k++)
        any |= is_limit(step[k].op);
    return any;
}

bool limits_move(struct graph *g, const struct module_known *known)
{
    struct mover m = {.g = g};
    const uint32_t n = g->nodes.n;
    bool any = false;
    for (uint32_t i = 0; i < known->pooled.n; i++) {
        const struct pooled_bytes *p = &known->pooled.data[i];
        const node_id to = p->from.i < n && !graph_node(g, p->from)->dead ? pool_bytes(&m, p->from) : (node_id){0};
        any |= to.i;
        for (uint32_t k = 0; k < known->limited.n && to.i; k++)
            if (known->limited.data[k].i == p->to.i)
                move(&m, to);
    }
    for (uint32_t i = 0; i < known->limited.n; i++)
        any |= known->limited.data[i].i < n && move(&m, known->limited.data[i]);
    return any;
}

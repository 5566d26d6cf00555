/* narrow-constants: constants of contractions as low-precision numbers and scales (--weights-type=i8, f8, i4, --choose
 * NODE:weights=).
 *
 *   y = dot(x, w)     ->     y = dot(x, convert(q, f32)) * s,     s = max |w| / 127,     q = convert(round(w / s), i8)
 *
 * with a scale for each output channel; as f8, s = max |w| / 448, q = convert(w / s, f8e4m3fn); as i4, where that
 * divides the steps of a product or the input channels, one for each GROUP of them, and before the products of an
 * attention, which stays as it was found, that one:
 *
 *   y = dot(x, w)     ->     y = dot(x, convert(q, f32) * s)
 *
 * symmetric, so that no zero point is subtracted, and one scale leaves the sum. Everything of it is operators over the
 * constant: the interpreter computes the same, the bytes are written piece by piece, and kernels widen them in the
 * loads of their panels. For contractions of f32 that nothing has narrowed, without batches and groups.
 */
#include "passes/module/attention.h"

#define LEAST_SCALE 1e-30 /* of a channel of zeros */
enum { GROUP = 32 };

/* The dims of the second operand that are summed over; their number, 0: it stays as it is. */
static uint32_t summed_dims(const struct module *m, const struct node *n, int64_t axes[RANK_MAX])
{
    uint32_t count = 0, n_batch = 0;
    if (n->dead || (n->op != OP_DOT && n->op != OP_CONV) || !value_is_const(m->g, n->in[1]) ||
        value_is_const(m->g, n->in[0]) || (n->op == OP_CONV && node_int(n, "groups", 1) != 1))
        return 0;
    const struct type *w = value_type(m->g, n->in[1]);
    if (w->elem != ELEM_F32 || value_type(m->g, n->out[0])->elem != ELEM_F32)
        return 0;
    uint64_t summed = ~UINT64_C(1);
    if (n->op == OP_DOT) {
        const int64_t *contract = node_ints(n, "contract_b", &count);
        node_ints(n, "batch_b", &n_batch);
        summed = 0;
        for (uint32_t i = 0; i < count; i++)
            summed |= UINT64_C(1) << contract[i];
    }
    count = 0;
    for (int32_t d = 0; d < w->rank && !n_batch; d++)
        if (summed >> d & 1)
            axes[count++] = d;
    return count;
}

/* The largest magnitude along axes, which stay with extent 1. */
static value_id largest(struct builder *b, value_id w, const int64_t *axes, uint32_t n)
{
    value_id low = b_unary(b, OP_NEG, b_reduce(b, w, axes, n, "min", true));
    value_id high = b_reduce(b, w, axes, n, "max", true);
    return b_binary(b, OP_MAX, high, low);
}

/* w over the scale s, in the row's type; converting to a float rounds. */
static value_id divided(struct builder *b, value_id w, value_id s, const struct weights_row *to)
{
    value_id q = b_binary(b, OP_DIV, w, s);
    return b_convert(b, elem_class(to->elem) == 'F' ? q : b_unary(b, OP_ROUND, q), to->elem);
}

static void quantize(struct module *m, node_id id, enum weights_type type, const int64_t *axes, uint32_t n_axes)
{
    const struct weights_row *to = &weights_rows[type == WEIGHTS_I4 ? WEIGHTS_I8 : type];
    const struct node n = *graph_node(m->g, id);
    struct builder b = builder_before(m->g, id);
    value_id w = n.in[1];
    value_id most = largest(&b, w, axes, n_axes);
    value_id s = b_binary_f64(&b, OP_DIV, b_binary_f64(&b, OP_MAX, most, LEAST_SCALE), to->most);
    value_id in[2] = {n.in[0], b_convert(&b, divided(&b, w, s, to), ELEM_F32)};
    if (is_attention_product(m, id)) {
        graph_set_operand(m->g, id, 1, b_binary(&b, OP_MUL, in[1], s));
        return;
    }
    value_id y = b_op(&b, n.op, in, 2, n.attr, n.n_attr);
    if (n.op == OP_CONV) { /* [channels, 1, ...] beside [images, channels, ...] */
        s = b_squeeze(&b, s, 1);
    } else {
        for (uint32_t i = n_axes; i > 0; i--)
            s = b_squeeze(&b, s, (int32_t)axes[i - 1]);
    }
    graph_replace(m->g, id, b_binary(&b, OP_MUL, y, s));
}

/* The second operand of a product of one summed dim, in groups of it. */
static void quantize_groups(struct module *m, node_id id, int32_t axis)
{
    const struct node n = *graph_node(m->g, id);
    struct builder b = builder_before(m->g, id);
    struct exprs *x = m->ctx->exprs;
    value_id w = n.in[1];
    int64_t inner = axis + 1;
    const struct dims dims = b_dims(&b, w);
    expr_id whole[RANK_MAX], groups[RANK_MAX];
    for (int32_t d = 0; d < dims.rank; d++) {
        whole[d] = dims.d[d];
        groups[d + (d > axis)] = d == axis ? ex_div(x, dims.d[d], ex_const(x, GROUP)) : dims.d[d];
    }
    groups[inner] = ex_const(x, GROUP);
    value_id by_group = b_reshape(&b, w, groups, dims.rank + 1);
    value_id most = largest(&b, by_group, &inner, 1);
    value_id s = b_binary_f64(&b, OP_DIV, b_binary_f64(&b, OP_MAX, most, LEAST_SCALE), weights_rows[WEIGHTS_I4].most);
    value_id spread = b_reshape(&b, b_broadcast(&b, s, groups, dims.rank + 1), whole, dims.rank);
    value_id q = divided(&b, w, spread, &weights_rows[WEIGHTS_I4]);
    value_id y = b_binary(&b, OP_MUL, b_convert(&b, q, ELEM_F32), spread);
    if (y.i)
        graph_set_operand(m->g, id, 1, y);
}

/* Those of a convolution are of its input channels. */
static bool has_groups(const struct module *m, const struct node *n, const int64_t *axes, uint32_t n_axes)
{
    const struct type *w = value_type(m->g, n->in[1]);
    int64_t steps;
    return (n->op == OP_CONV || n_axes == 1) && w->rank < RANK_MAX &&
           ex_is_const(m->ctx->exprs, w->dims[axes[0]], &steps) && steps > 0 && steps % GROUP == 0;
}

bool store_possible(const struct module *m, node_id id)
{
    int64_t axes[RANK_MAX];
    return summed_dims(m, graph_node(m->g, id), axes) > 0;
}

bool narrow_constants(struct module *m)
{
    int64_t axes[RANK_MAX];
    uint32_t n_nodes = m->g->nodes.n;
    for (uint32_t i = 1; i < n_nodes; i++) {
        uint32_t n_axes = summed_dims(m, graph_node(m->g, (node_id){i}), axes);
        enum weights_type type = n_axes ? weights_wanted(m, (node_id){i}) : WEIGHTS_AS_THEY_ARE;
        if (!(weights_rows[type].most > 0))
            continue;
        if (type == WEIGHTS_I4 && has_groups(m, graph_node(m->g, (node_id){i}), axes, n_axes))
            quantize_groups(m, (node_id){i}, (int32_t)axes[0]);
        else
            quantize(m, (node_id){i}, type, axes, n_axes);
    }
    graph_sweep(m->g);
    return m->ctx->fail == FAIL_NONE;
}

/* fold-factors: a constant that multiplies the channels of a convolution goes into its weights.
 *
 *   conv(x, w) * c           ->     conv(x, w * c)
 *   (conv(x, w) + b) * c     ->     conv(x, w * c) + b * c
 *
 * That is what batch norm after a convolution leaves. Exporters to ONNX do it themselves; torch.export and exporters of
 * other frameworks do not. It saves an operand and the first step of every epilogue, 7 to 15 % of a mobile network. The
 * products are rounded to f32 once, where the weights are packed (docs/numerics.md). In and out: a legal graph.
 *
 * Only weights that are float32 in the file and that nothing else reads: others would be stored twice, and compressed
 * ones would no longer be. Only factors that can neither overflow nor vanish next to sensible weights.
 */
#include "passes/module/analysis.h"

#include <math.h>

enum { VIEWS = 8, CHANNELS_MOST = 1 << 16 };
#define FACTOR_LEAST 1e-8
#define FACTOR_MOST 1e8

/* The only result of a node of this operator that the node `reader` alone reads; NULL: it is something else. */
static const struct node *own_node(const struct graph *g, value_id v, enum op op, const struct node *reader)
{
    const struct node *n = value_node(g, v);
    return n && n->op == op && !n->dead && n->parent.i == reader->parent.i && graph_value(g, v)->n_uses == 1 ? n : NULL;
}

/* The constant that a value of `like`'s shape repeats for each image and place: one element, or one a channel. */
static value_id of_channels(struct graph *g, value_id v, const struct type *like)
{
    struct exprs *ex = g->ctx->exprs;
    v = value_unspread(g, v);
    const struct type *t = value_type(g, v);
    if (!value_is_const(g, v) || t->elem != ELEM_F32 || t->rank > like->rank)
        return (value_id){0};
    for (int32_t i = 0; i < t->rank; i++)
        if (!ex_is(ex, t->dims[i], 1) && (i + like->rank - t->rank != 1 || t->dims[i].i != like->dims[1].i))
            return (value_id){0};
    return v;
}

static bool factors_sound(struct graph *g, value_id c)
{
    const struct type *t = value_type(g, c);
    int64_t n = 1, d;
    for (int32_t i = 0; i < t->rank; i++)
        if (!ex_is_const(g->ctx->exprs, t->dims[i], &d) || !mul_i64(n, d, &n))
            return false;
    double *x = n > 0 && n <= CHANNELS_MOST ? NEW_ARRAY(&g->arena, double, n) : NULL;
    if (!x || !value_const_f64(g, c, x, (uint32_t)n))
        return false;
    for (int64_t i = 0; i < n; i++)
        if (!(x[i] == 0 || (fabs(x[i]) >= FACTOR_LEAST && fabs(x[i]) <= FACTOR_MOST)))
            return false;
    return true;
}

/* A constant of the file, or a view of it, that nothing else reads. */
static bool own_weights(const struct graph *g, value_id w)
{
    for (int depth = 0; depth < VIEWS; depth++) {
        const struct node *n = value_node(g, w);
        if (!n || graph_value(g, w)->n_uses != 1 || value_type(g, w)->elem != ELEM_F32)
            return false;
        if (n->op == OP_CONSTANT)
            return true;
        if (n->op != OP_TRANSPOSE && n->op != OP_RESHAPE)
            return false;
        w = n->in[0];
    }
    return false;
}

/* w * c: output channels are the weights' first dim. */
static value_id scaled_weights(struct builder *b, value_id w, value_id c)
{
    int32_t rank = value_type(b->g, w)->rank;
    expr_id dims[RANK_MAX];
    for (int32_t i = 0; i < rank; i++)
        dims[i] = i ? ex_const(b->g->ctx->exprs, 1) : b_count(b, c);
    return b_binary(b, OP_MUL, w, b_reshape(b, c, dims, rank));
}

/* Node `id` multiplies in[k], the sum or the convolution itself, by in[1 - k]. */
static bool fold(struct graph *g, node_id id, uint32_t k)
{
    const struct node mul = *graph_node(g, id);
    const struct type *t = value_type(g, mul.out[0]);
    const struct node *add = own_node(g, mul.in[k], OP_ADD, &mul), *conv = NULL;
    value_id c = of_channels(g, mul.in[1 - k], t), bias = {0};
    if (!c.i)
        return false;
    for (uint32_t i = 0; add && i < 2 && !conv; i++) {
        conv = own_node(g, add->in[i], OP_CONV, add);
        bias = of_channels(g, add->in[1 - i], t);
    }
    if (!add)
        conv = own_node(g, mul.in[k], OP_CONV, &mul);
    if (!conv || (add && !bias.i) || node_attr(conv, "acc") || node_attr(conv, "part") ||
        value_type(g, conv->in[0])->elem != ELEM_F32 || !own_weights(g, conv->in[1]) || !factors_sound(g, c))
        return false;
    const struct node from = *conv;
    const src_id src = add ? add->src : mul.src;
    struct builder b = builder_before(g, id);
    b.src = from.src;
    const value_id in[2] = {from.in[0], scaled_weights(&b, from.in[1], c)};
    value_id y = b_op(&b, OP_CONV, in, 2, from.attr, from.n_attr);
    b.src = src;
    if (bias.i)
        y = b_binary(&b, OP_ADD, y, b_binary(&b, OP_MUL, bias, c));
    graph_replace(g, id, y);
    return true;
}

bool fold_factors(struct module *module)
{
    struct graph *g = module->g;
    for (uint32_t i = 1, n = g->nodes.n; i < n; i++) {
        const struct node *node = graph_node(g, (node_id){i});
        if (node->op == OP_MUL && !node->dead && value_type(g, node->out[0])->elem == ELEM_F32 &&
            value_type(g, node->out[0])->rank > 1 && !fold(g, (node_id){i}, 0))
            fold(g, (node_id){i}, 1);
    }
    graph_sweep(g);
    return true;
}

/* Matrix products, convolutions, attention. */
#include "passes/legalize/aten.h"

static value_id transposed(struct builder *b, value_id v)
{
    static const int64_t perm[] = {1, 0};
    return v.i && v_rank(b, v) == 2 ? b_transpose(b, v, perm) : v;
}

/* Operands in f32 where the sum is more than the product, so that it rounds once. */
static bool is_narrow(enum elem e)
{
    return e == ELEM_F16 || e == ELEM_BF16;
}

bool rule_aten_linear(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), w = rule_in(r, 1), y;
    bool bias = rule_has(r, 2), bytes = rule_matmul_dequantized(r, true, &y), wide = bias && is_narrow(v_elem(b, x));
    if (wide) {
        x = v_widen(b, x);
        w = v_widen(b, w);
    }
    if (!bytes)
        y = b_matmul(b, x, transposed(b, w));
    if (bias)
        y = b_binary(b, OP_ADD, y, b_convert(b, rule_in(r, 2), v_elem(b, y)));
    return aten_result(r, y);
}

bool rule_aten_matmul(struct rule *r)
{
    value_id y;
    bool done = rule_matmul_dequantized(r, false, &y) || rule_matmul_fetched(r, rule_in(r, 0), rule_in(r, 1), &y);
    return aten_result(r, done ? y : b_matmul(r->b, rule_in(r, 0), rule_in(r, 1)));
}

/* beta * self + alpha * (first @ second) */
bool rule_aten_addmm(struct rule *r)
{
    struct builder *b = r->b;
    value_id c = rule_in(r, 0), x = rule_in(r, 1), w = rule_in(r, 2), y;
    double alpha = aten_float(r, "alpha", 1), beta = aten_float(r, "beta", 1);
    if (is_narrow(v_elem(b, x))) {
        x = v_widen(b, x);
        w = v_widen(b, w);
    }
    struct rule product = *r; /* of the operands after self */
    product.arg++;
    product.n_in--;
    y = v_affine(b, rule_matmul_dequantized(&product, false, &y) ? y : b_matmul(b, x, w), alpha, 0);
    if (beta != 0)
        y = b_binary(b, OP_ADD, y, v_affine(b, b_convert(b, c, v_elem(b, y)), beta, 0));
    return aten_result(r, y);
}

bool rule_aten_outer(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), y = rule_in(r, 1);
    enum elem e = aten_elem_or(r, x);
    return aten_result(
        r, b_binary(b, OP_MUL, b_unsqueeze(b, b_convert(b, x, e), 1), b_unsqueeze(b, b_convert(b, y, e), 0)));
}

bool rule_aten_einsum(struct rule *r)
{
    uint32_t n, first = aten_list(r, 1, &n);
    value_id *in = NEW_ARRAY(&r->b->g->arena, value_id, n + 1);
    const struct attr attrs[] = {attr_str("equation", rule_str(r, "equation", ""))};
    for (uint32_t i = 0; i < n; i++)
        in[i] = rule_in(r, first + i);
    return aten_as(r, rule_einsum, 12, 0, in, n, attrs, 1);
}

/* ---- convolutions ---------------------------------------------------------------------------------------------- */

/* Where the arguments stand in a schema: indices; 0: it has none. */
struct conv_args {
    uint32_t stride, padding, dilation, output_padding;
};

/* The pads of "same": all that keeps the size, the odd one at the end. */
static bool pads_of_text(struct rule *r, value_id w, uint32_t n, const int64_t *dilation, int64_t *pads)
{
    const char *text = rule_str(r, "padding", "");
    for (uint32_t i = 0; i < n; i++) {
        int64_t kernel, total;
        if (!ex_is_const(r->b->x, b_dim(r->b, w, 2 + (int32_t)i), &kernel))
            return rule_refuse(r, "padding is \"same\" and the kernel's size dynamic: state the padding in numbers");
        total = strcmp(text, "same") == 0 ? dilation[i] * (kernel - 1) : 0;
        pads[i] = total / 2;
        pads[n + i] = total - total / 2;
    }
    return true;
}

static bool convolve(struct rule *r, const struct conv_args *at, bool turned)
{
    struct builder *b = r->b;
    value_id in[3] = {rule_in(r, 0), rule_in(r, 1), rule_in(r, 2)};
    int64_t stride[RANK_MAX], pads[2 * RANK_MAX], dilation[RANK_MAX], more[RANK_MAX];
    int32_t rank = v_rank(b, in[1]);
    if (!in[0].i || !in[1].i || rank < 3 || rank > 5)
        return in[0].i && in[1].i ? rule_bad(r, "the weights have rank %d", (int)rank) : false;
    uint32_t n = (uint32_t)rank - 2;
    if (!aten_window(r, at->stride, "stride", n, 1, stride) ||
        !aten_window(r, at->dilation, "dilation", n, 1, dilation) ||
        !aten_window(r, at->output_padding, "output_padding", n, 0, more))
        return false;
    const struct attr *padding = node_attr(r->node, "padding");
    bool text = padding && padding->kind == ATTR_STR;
    if (text ? !pads_of_text(r, in[1], n, dilation, pads) : !aten_window(r, at->padding, "padding", n, 0, pads))
        return false;
    if (!text)
        memcpy(pads + n, pads, n * sizeof *pads);
    bool single = v_rank(b, in[0]) == rank - 1;
    if (single)
        in[0] = b_unsqueeze(b, in[0], 0);
    const struct attr attrs[] = {attr_ints("strides", stride, n), attr_ints("pads", pads, 2 * n),
                                 attr_ints("dilations", dilation, n), attr_int("group", rule_int(r, "groups", 1)),
                                 attr_ints("output_padding", more, n)};
    if (!aten_as(r, turned ? rule_conv_transpose : rule_conv, 11, 0, in, in[2].i ? 3 : 2, attrs, turned ? 5 : 4))
        return false;
    return rule_result(r, single ? b_squeeze(b, r->out[0].v, 0) : r->out[0].v);
}

bool rule_aten_convolution(struct rule *r)
{
    static const struct conv_args at = {3, 4, 5, 7};
    return convolve(r, &at, aten_flag(r, "transposed"));
}

bool rule_aten_conv(struct rule *r)
{
    static const struct conv_args at = {3, 4, 5, 31};
    return convolve(r, &at, false);
}

bool rule_aten_conv_transpose(struct rule *r)
{
    static const struct conv_args at = {3, 4, 7, 5};
    return convolve(r, &at, true);
}

/* ---- attention ------------------------------------------------------------------------------------------------- */

/* Heads as dim 1 of rank 4. */
static value_id four(struct builder *b, value_id v)
{
    while (v.i && v_rank(b, v) < 4)
        v = b_unsqueeze(b, v, v_rank(b, v) == 3 ? 1 : 0);
    return v;
}

/* Dims before the last three as one, after v was broadcast to lead[n] there. */
static value_id leading_joined(struct builder *b, value_id v, const expr_id *lead, int32_t n)
{
    enum { KEPT = 3 };
    const struct dims dims = b_dims(b, v);
    expr_id whole[RANK_MAX], out[RANK_MAX] = {ex_const(b->x, 1)};
    if (!dims.d)
        return (value_id){0};
    for (int32_t i = 0; i < n; i++) {
        whole[i] = lead[i];
        out[0] = ex_mul(b->x, out[0], lead[i]);
    }
    for (int32_t i = 0; i < KEPT; i++)
        whole[n + i] = out[1 + i] = dims.rank - KEPT + i < 0 ? ex_const(b->x, 1) : dims.d[dims.rank - KEPT + i];
    return b_reshape(b, b_broadcast(b, v, whole, n + KEPT), out, 1 + KEPT);
}

/* Operands of rank above 4, n dims before the last three: they are one batch. */
static bool batches_joined(struct rule *r, value_id in[3], value_id *mask, expr_id *lead, int32_t n)
{
    struct builder *b = r->b;
    for (int32_t i = 0; i < n; i++)
        lead[i] = ex_const(b->x, 1);
    for (uint32_t k = 0; k < 3; k++) {
        const struct dims dims = b_dims(b, in[k]);
        if (!dims.d || (dims.rank > 3 && b_broadcast_dims(b, lead, n, dims.d, dims.rank - 3, lead) < 0))
            return false;
    }
    for (uint32_t k = 0; k < 3; k++)
        in[k] = leading_joined(b, in[k], lead, n);
    if (mask->i && v_rank(b, *mask) > 3)
        *mask = leading_joined(b, *mask, lead, n);
    return in[0].i && in[1].i && in[2].i;
}

/* A mask that is the same for all keys has to say so for each. Its dims are the last ones of the scores: of rank 3 they
 * begin with the heads, or with the batch if the queries have no heads. */
static value_id mask_of(struct builder *b, value_id mask, value_id key, bool heads)
{
    const struct dims dims = b_dims(b, mask);
    int32_t rank = dims.rank ? dims.rank : 1;
    expr_id whole[RANK_MAX] = {ex_const(b->x, 1)};
    if (!dims.d)
        return mask;
    memcpy(whole, dims.d, (size_t)dims.rank * sizeof *whole);
    whole[rank - 1] = b_dim(b, key, -1 + v_rank(b, key) - 1);
    mask = b_broadcast(b, mask, whole, rank);
    return rank == 3 ? b_unsqueeze(b, mask, heads ? 0 : 1) : mask;
}

/* param: index of the mask: 3, or 5 of the operator that CPUs have. */
bool rule_aten_attention(struct rule *r)
{
    struct builder *b = r->b;
    value_id q = rule_in(r, 0), in[4] = {q, rule_in(r, 1), rule_in(r, 2)};
    uint32_t n = 1, i_mask = (uint32_t)r->param;
    struct attr attrs[2] = {attr_int("is_causal", aten_flag(r, "is_causal"))};
    value_id mask = rule_has(r, i_mask) ? rule_in(r, i_mask) : (value_id){0};
    expr_id out[RANK_MAX];
    int32_t rank_q = v_rank(b, q);
    for (uint32_t k = 1; k < 3; k++)
        rank_q = v_rank(b, in[k]) > rank_q && v_rank(b, in[k]) > 4 ? v_rank(b, in[k]) : rank_q;
    bool many = rank_q > 4;
    if (!in[0].i || !in[1].i || !in[2].i || (many && !batches_joined(r, in, &mask, out, rank_q - 3)))
        return false;
    for (uint32_t k = 0; k < 3; k++)
        in[k] = four(b, in[k]);
    if (aten_float(r, "dropout_p", 0) != 0)
        return rule_refuse(r, "it drops at random: export the module in evaluation mode, module.eval()");
    if (node_attr(r->node, "scale"))
        attrs[n++] = attr_float("scale", aten_float(r, "scale", 1));
    if (mask.i)
        in[3] = mask_of(b, mask, in[1], rank_q >= 4);
    if (!aten_as(r, rule_attention, 24, 0, in, in[3].i ? 4 : 3, attrs, n))
        return false;
    const struct dims dims = b_dims(b, r->out[0].v);
    if (!dims.d)
        return false;
    const struct dims dims_q = b_dims(b, q);
    if (many)
        memcpy(out + rank_q - 3, dims.d + 1, 3 * sizeof *out);
    else
        memcpy(out, dims_q.d, (size_t)rank_q * sizeof *out);
    out[rank_q - 1] = dims.d[3];
    if (r->n_out > 1)
        rule_out(r, 1, (value_id){0});
    return aten_result(r, rank_q == 4 ? r->out[0].v : b_reshape(b, r->out[0].v, out, rank_q));
}

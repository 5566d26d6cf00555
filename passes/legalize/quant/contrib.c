/* com.microsoft: quantized operators whose products are none, as ONNX Runtime's quantizer writes them.
 *
 * They dequantize, compute in f32 and quantize again: that is their definition. Products are in quant.c and fused.c.
 */
#include "passes/legalize/nn/window.h"

value_id rule_dequantized(struct rule *r, uint32_t i)
{
    struct builder *b = r->b;
    value_id x = b_convert(b, rule_in(r, i), ELEM_I32), scale = v_scalar(b, rule_in(r, i + 1));
    if (rule_has(r, i + 2))
        x = b_binary(b, OP_SUB, x, b_convert(b, v_scalar(b, rule_in(r, i + 2)), ELEM_I32));
    return b_binary(b, OP_MUL, b_convert(b, x, ELEM_F32), scale);
}

value_id rule_quantized(struct rule *r, value_id y, uint32_t i, enum elem e, enum zero_point when)
{
    struct builder *b = r->b;
    value_id zero = rule_has(r, i + 1) ? v_scalar(b, rule_in(r, i + 1)) : (value_id){0};
    y = b_binary(b, OP_DIV, y, v_scalar(b, rule_in(r, i)));
    if (zero.i && when == ZERO_THEN_ROUND)
        return v_quantize(b, b_binary(b, OP_ADD, y, b_convert(b, zero, ELEM_F32)), (value_id){0}, e);
    return v_quantize(b, y, zero, e);
}

/* Operands a, scale, zero, b, scale, zero, result's scale and zero; the row's parameter is the operator. */
bool rule_qlinear_binary(struct rule *r)
{
    value_id y = b_binary(r->b, (enum op)r->param, rule_dequantized(r, 0), rule_dequantized(r, 3));
    return y.i && rule_result(r, rule_quantized(r, y, 6, v_elem(r->b, rule_in(r, 0)), ZERO_THEN_ROUND));
}

/* Operands x, scale, zero, result's scale and zero; the row's parameter: 0 sigmoid, 1 leaky relu. */
bool rule_qlinear_unary(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_dequantized(r, 0), y;
    if (r->param) {
        value_id low = b_binary_f64(b, OP_MUL, x, rule_float(r, "alpha", 0.01));
        y = b_select(b, b_binary(b, OP_LT, x, b_splat_like(b, x, 0)), low, x);
    } else {
        y = b_unary(b, OP_SIGMOID, x);
    }
    return y.i && rule_result(r, rule_quantized(r, y, 3, v_elem(b, rule_in(r, 0)), ROUND_THEN_ZERO));
}

/* The operators' opset attribute decides whether one axis or all from axis on are normalised. */
bool rule_qlinear_softmax(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_dequantized(r, 0);
    int32_t rank = v_rank(b, x), axis;
    int64_t axes[RANK_MAX];
    uint32_t n = 0;
    bool old = rule_int(r, "opset", 13) < 13;
    if (!x.i || !rule_axis(r, rule_int(r, "axis", -1), rank, &axis))
        return false;
    for (int32_t i = axis; i < (old ? rank : axis + 1); i++)
        axes[n++] = i;
    return rule_result(
        r, rule_quantized(r, v_softmax(b, x, axes, n, false), 3, v_elem(b, rule_in(r, 0)), ROUND_THEN_ZERO));
}

bool rule_qlinear_global_average_pool(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_dequantized(r, 0);
    int64_t axes[RANK_MAX];
    int32_t rank = v_rank(b, x), first = rule_int(r, "channels_last", 0) ? 1 : 2;
    if (!x.i || rank < 3)
        return x.i ? rule_bad(r, "input of rank %d", (int)rank) : false;
    for (int32_t i = 0; i < rank - 2; i++)
        axes[i] = first + i;
    value_id y = b_mean(b, x, axes, (uint32_t)rank - 2, true);
    return rule_result(r, rule_quantized(r, y, 3, v_elem(b, rule_in(r, 0)), ROUND_THEN_ZERO));
}

/* Operands x, scale, zero, result's scale and zero. */
bool rule_qlinear_reduce_mean(struct rule *r)
{
    value_id x = rule_dequantized(r, 0);
    uint32_t n;
    const int64_t *axes = rule_ints(r, "axes", &n);
    int64_t sorted[RANK_MAX];
    int32_t rank = v_rank(r->b, x);
    if (!x.i || !rule_axes_sorted(r, axes, n, rank, sorted))
        return false;
    value_id y = n ? b_mean(r->b, x, sorted, n, rule_int(r, "keepdims", 1) != 0) : x;
    return y.i && rule_result(r, rule_quantized(r, y, 3, v_elem(r->b, rule_in(r, 0)), ROUND_THEN_ZERO));
}

/* Operands condition, then x and y with scale and zero each, result's scale and zero. */
bool rule_qlinear_where(struct rule *r)
{
    value_id y = b_select(r->b, rule_in(r, 0), rule_dequantized(r, 1), rule_dequantized(r, 4));
    return y.i && rule_result(r, rule_quantized(r, y, 7, v_elem(r->b, rule_in(r, 1)), ROUND_THEN_ZERO));
}

/* Scale and zero point of the result come first, then (tensor, scale, zero) each. */
bool rule_qlinear_concat(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n = r->n_in >= 5 ? (r->n_in - 2) / 3 : 0;
    int32_t axis;
    value_id *parts = NEW_ARRAY(&b->g->arena, value_id, n + 1);
    if (!n || (r->n_in - 2) % 3)
        return rule_bad(r, "%u operands", r->n_in);
    for (uint32_t i = 0; i < n; i++)
        parts[i] = rule_dequantized(r, 2 + 3 * i);
    if (!rule_axis(r, rule_int(r, "axis", 0), v_rank(b, parts[0]), &axis))
        return false;
    return rule_result(r, rule_quantized(r, b_concat(b, parts, n, axis), 0, v_elem(b, rule_in(r, 2)), ROUND_THEN_ZERO));
}

/* com.microsoft: quantized arithmetic and fused products, as real exporters write them.
 *
 * Quantized elementwise operators dequantize, compute in f32 and quantize again: that is their definition.
 */
#include "passes/legalize/window.h"

#include <math.h>
#include <string.h>

value_id rule_dequantized(struct rule *r, uint32_t i)
{
    struct builder *b = r->b;
    value_id x = b_convert(b, rule_in(r, i), ELEM_I32), scale = v_scalar(b, rule_in(r, i + 1));
    if (rule_has(r, i + 2))
        x = b_binary(b, OP_SUB, x, b_convert(b, v_scalar(b, rule_in(r, i + 2)), ELEM_I32));
    return b_binary(b, OP_MUL, b_convert(b, x, ELEM_F32), scale);
}

/* Quantizes to the type e by scale operand i and zero point operand i + 1. */
value_id rule_quantized(struct rule *r, value_id y, uint32_t i, enum elem e)
{
    struct builder *b = r->b;
    double half = ldexp(1, (int)elem_bits(e) - 1), lo = elem_class(e) == 'U' ? 0 : -half;
    double hi = elem_class(e) == 'U' ? 2 * half - 1 : half - 1;
    y = b_unary(b, OP_ROUND, b_binary(b, OP_DIV, y, v_scalar(b, rule_in(r, i))));
    if (rule_has(r, i + 1))
        y = b_binary(b, OP_ADD, y, b_convert(b, v_scalar(b, rule_in(r, i + 1)), ELEM_F32));
    return b_convert(b, b_clamp(b, y, lo, hi), e);
}

/* Operands a, scale, zero, b, scale, zero, result's scale and zero; the row's parameter is the operator. */
bool rule_qlinear_binary(struct rule *r)
{
    value_id y = b_binary(r->b, (enum op)r->param, rule_dequantized(r, 0), rule_dequantized(r, 3));
    return y.i && rule_result(r, rule_quantized(r, y, 6, v_elem(r->b, rule_in(r, 0))));
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
    return y.i && rule_result(r, rule_quantized(r, y, 3, v_elem(b, rule_in(r, 0))));
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
    return rule_result(r, rule_quantized(r, v_softmax(b, x, axes, n, false), 3, v_elem(b, rule_in(r, 0))));
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
    return rule_result(r, rule_quantized(r, y, 3, v_elem(b, rule_in(r, 0))));
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
    return rule_result(r, rule_quantized(r, b_concat(b, parts, n, axis), 0, v_elem(b, rule_in(r, 2))));
}

/* ---- fused products -------------------------------------------------------------------------------------------------- */

static value_id activated(struct rule *r, value_id y)
{
    struct builder *b = r->b;
    const char *name = rule_str(r, "activation", "");
    uint32_t n;
    const double *p = rule_floats(r, "activation_params", &n);
    double alpha = n > 0 ? p[0] : rule_float(r, "activation_alpha", 0.01);
    if (!*name)
        return y;
    if (strcmp(name, "Relu") == 0)
        return b_binary_f64(b, OP_MAX, y, 0);
    if (strcmp(name, "Sigmoid") == 0)
        return b_unary(b, OP_SIGMOID, y);
    if (strcmp(name, "Tanh") == 0)
        return b_unary(b, OP_TANH, y);
    if (strcmp(name, "LeakyRelu") == 0)
        return b_select(b, b_binary(b, OP_LT, y, b_splat_like(b, y, 0)), b_binary_f64(b, OP_MUL, y, alpha), y);
    if (strcmp(name, "Clip") == 0 && n == 2)
        return b_clamp(b, y, p[0], p[1]);
    if (strcmp(name, "HardSigmoid") == 0 && n == 2)
        return b_clamp(b, v_affine(b, y, p[0], p[1]), 0, 1);
    return rule_refuse(r, "activation \"%.40s\"", name), (value_id){0};
}

/* Convolution, then bias (operand 2), then Z added (operand 3), then the activation. */
bool rule_fused_conv(struct rule *r)
{
    struct builder *b = r->b;
    value_id y = rule_conv_core(r, rule_in(r, 0), rule_in(r, 1), ELEM_NONE);
    if (rule_has(r, 2))
        y = b_binary(b, OP_ADD, y, v_channels(b, rule_in(r, 2), y, 1));
    if (rule_has(r, 3))
        y = b_binary(b, OP_ADD, y, rule_in(r, 3));
    return y.i && rule_result(r, activated(r, y));
}

/* Exchanges the last two axes. */
static value_id turned(struct builder *b, value_id v, bool flag)
{
    int64_t perm[RANK_MAX];
    int32_t rank = v_rank(b, v);
    if (!flag || rank < 2)
        return v;
    for (int32_t i = 0; i < rank; i++)
        perm[i] = i < rank - 2 ? i : rank - 1 - (i - (rank - 2));
    return b_transpose(b, v, perm);
}

bool rule_fused_matmul(struct rule *r)
{
    struct builder *b = r->b;
    if (rule_int(r, "transBatchA", 0) || rule_int(r, "transBatchB", 0))
        return rule_refuse(r, "transBatchA and transBatchB");
    value_id a = turned(b, rule_in(r, 0), rule_int(r, "transA", 0) != 0);
    value_id w = turned(b, rule_in(r, 1), rule_int(r, "transB", 0) != 0);
    return rule_result(r, v_affine(b, b_matmul(b, a, w), rule_float(r, "alpha", 1), 0));
}

bool rule_fused_gemm(struct rule *r)
{
    if (!rule_gemm(r))
        return false;
    return rule_result(r, activated(r, r->out[0].v));
}

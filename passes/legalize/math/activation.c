/* Activations: each is its formula over core operators, with the default attributes of its version.
 *
 * Source: ONNX Operators.md. f16 and bf16 compute in f32 and round once at the end.
 */
#include "passes/legalize/legalize.h"

#include <math.h>

/* Narrows back to the operand's type and sets the result. */
static bool finish(struct rule *r, value_id v)
{
    return rule_result(r, b_convert(r->b, v, v_elem(r->b, rule_in(r, 0))));
}

/* The rule that computes an expression of x, operand 0 made wide. */
#define FORMULA(name, formula)                  \
    bool rule_##name(struct rule *r)            \
    {                                           \
        struct builder *b = r->b;               \
        value_id x = v_widen(b, rule_in(r, 0)); \
        return finish(r, formula);              \
    }                                           \
    rule_fn rule_##name

static value_id gate(struct builder *b, enum op cmp, value_id x, double limit, value_id t, value_id f)
{
    return b_select(b, b_binary(b, cmp, x, b_splat_like(b, x, limit)), t, f);
}

bool rule_relu(struct rule *r)
{
    return rule_result(r, b_binary_f64(r->b, OP_MAX, rule_in(r, 0), 0));
}

FORMULA(leaky_relu, gate(b, OP_LT, x, 0, b_binary_f64(b, OP_MUL, x, rule_float(r, "alpha", 0.01)), x));

/* Slope broadcasts to x; versions 1 and 6: one slope per channel (axis 1) when rank-1. */
bool rule_prelu(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = v_widen(b, rule_in(r, 0)), slope = v_widen(b, rule_in(r, 1));
    int64_t n;
    if (r->version < 7 && v_rank(b, slope) == 1 && v_rank(b, x) > 2 &&
        !(ex_is_const(b->x, b_count(b, slope), &n) && n == 1))
        slope = v_along(b, slope, 0, v_rank(b, x) - 1);
    value_id scaled = b_binary(b, OP_MUL, x, slope);
    return finish(r, gate(b, OP_LT, x, 0, scaled, x));
}

FORMULA(elu, gate(b, OP_LT, x, 0, b_binary_f64(b, OP_MUL, b_unary(b, OP_EXPM1, x), rule_float(r, "alpha", 1)), x));

bool rule_celu(struct rule *r)
{
    struct builder *b = r->b;
    double alpha = rule_float(r, "alpha", 1);
    value_id x = v_widen(b, rule_in(r, 0));
    value_id e = b_unary(b, OP_EXPM1, b_binary_f64(b, OP_DIV, x, alpha));
    return finish(r, gate(b, OP_LT, x, 0, b_binary_f64(b, OP_MUL, e, alpha), x));
}

bool rule_selu(struct rule *r)
{
    struct builder *b = r->b;
    double alpha = rule_float(r, "alpha", r->version < 6 ? 1.6732 : 1.67326319217681884765625);
    double gamma = rule_float(r, "gamma", r->version < 6 ? 1.0507 : 1.05070102214813232421875);
    value_id x = v_widen(b, rule_in(r, 0));
    value_id neg = b_binary_f64(b, OP_MUL, b_unary(b, OP_EXPM1, x), alpha);
    value_id y = gate(b, OP_LE, x, 0, neg, x);
    return finish(r, b_binary_f64(b, OP_MUL, y, gamma));
}

bool rule_sigmoid(struct rule *r)
{
    return rule_result(r, b_unary(r->b, OP_SIGMOID, rule_in(r, 0)));
}

FORMULA(hard_sigmoid, b_clamp(b, v_affine(b, x, rule_float(r, "alpha", 0.2), rule_float(r, "beta", 0.5)), 0, 1));
FORMULA(hard_swish, b_binary(b, OP_MUL, x, b_clamp(b, v_affine(b, x, 1.0 / 6, 0.5), 0, 1)));
FORMULA(swish, b_binary(b, OP_MUL, x, b_unary(b, OP_SIGMOID, v_affine(b, x, rule_float(r, "alpha", 1), 0))));

/* log(1 + e^x) without overflow: max(x, 0) + log1p(e^-|x|). */
value_id v_softplus(struct builder *b, value_id x)
{
    value_id tail = b_unary(b, OP_LOG1P, b_unary(b, OP_EXP, b_unary(b, OP_NEG, b_unary(b, OP_ABS, x))));
    return b_binary(b, OP_ADD, b_binary_f64(b, OP_MAX, x, 0), tail);
}

FORMULA(softplus, v_softplus(b, x));
FORMULA(mish, b_binary(b, OP_MUL, x, b_unary(b, OP_TANH, v_softplus(b, x))));
FORMULA(softsign, b_binary(b, OP_DIV, x, b_binary_f64(b, OP_ADD, b_unary(b, OP_ABS, x), 1)));

bool rule_thresholded_relu(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), zero = b_splat_like(b, x, 0);
    value_id limit = b_splat_like(b, x, rule_float(r, "alpha", 1));
    return rule_result(r, b_select(b, b_binary(b, OP_LT, limit, x), x, zero));
}

bool rule_shrink(struct rule *r)
{
    struct builder *b = r->b;
    double lambd = rule_float(r, "lambd", 0.5), bias = rule_float(r, "bias", 0);
    value_id in = rule_in(r, 0), x = v_is_float(b, in) ? v_widen(b, in) : b_convert(b, in, ELEM_F32);
    value_id low = b_binary(b, OP_LT, x, b_splat_like(b, x, -lambd));
    value_id high = b_binary(b, OP_LT, b_splat_like(b, x, lambd), x);
    value_id y = b_select(b, high, v_affine(b, x, 1, -bias), b_splat_like(b, x, 0));
    return finish(r, b_select(b, low, v_affine(b, x, 1, bias), y));
}

static value_id gelu_exact(struct builder *b, value_id x)
{
    value_id e = b_unary(b, OP_ERF, b_binary_f64(b, OP_MUL, x, M_SQRT1_2));
    value_id half = b_binary_f64(b, OP_MUL, x, 0.5);
    return b_binary(b, OP_MUL, half, b_binary_f64(b, OP_ADD, e, 1));
}

value_id v_gelu_tanh(struct builder *b, value_id x)
{
    value_id cube = b_binary(b, OP_MUL, b_binary(b, OP_MUL, x, x), x);
    value_id inner = b_binary(b, OP_ADD, x, b_binary_f64(b, OP_MUL, cube, 0.044715));
    value_id t = b_unary(b, OP_TANH, b_binary_f64(b, OP_MUL, inner, sqrt(2 / M_PI)));
    return b_binary(b, OP_MUL, b_binary_f64(b, OP_MUL, x, 0.5), b_binary_f64(b, OP_ADD, t, 1));
}

FORMULA(gelu, rule_str_is(r, "approximate", "none", "tanh") ? v_gelu_tanh(b, x) : gelu_exact(b, x));

/* com.microsoft: bias is added first when given; param 0 exact, 1 tanh. */
bool rule_bias_gelu(struct rule *r)
{
    value_id x = v_widen(r->b, rule_in(r, 0));
    if (rule_has(r, 1))
        x = b_binary(r->b, OP_ADD, x, v_widen(r->b, rule_in(r, 1)));
    return finish(r, r->param ? v_gelu_tanh(r->b, x) : gelu_exact(r->b, x));
}

/* com.microsoft: x * sigmoid(alpha * x). */
FORMULA(quick_gelu,
        b_binary(b, OP_MUL, x, b_unary(b, OP_SIGMOID, b_binary_f64(b, OP_MUL, x, rule_float(r, "alpha", 1.702)))));

/* ---- softmax family ------------------------------------------------------------------------------------------- */

/* Before version 13 all axes from `axis` (default 1) on are one; from 13 on one axis, default -1. */
static bool softmax_axes(struct rule *r, value_id x, int64_t axes[RANK_MAX], uint32_t *n)
{
    int32_t rank = v_rank(r->b, x), axis;
    int64_t given = rule_int(r, "axis", r->version < 13 ? 1 : -1);
    *n = 0;
    if (!x.i)
        return false;
    if (rank == 0 || (r->version < 13 && given == rank))
        return true;
    if (!rule_axis(r, given, rank, &axis))
        return false;
    for (int32_t i = axis; i < (r->version < 13 ? rank : axis + 1); i++)
        axes[(*n)++] = i;
    return true;
}

bool rule_softmax(struct rule *r)
{
    int64_t axes[RANK_MAX];
    uint32_t n;
    value_id x = rule_in(r, 0);
    return softmax_axes(r, x, axes, &n) && finish(r, v_softmax(r->b, v_widen(r->b, x), axes, n, r->param != 0));
}

/* 1 at the first maximum of each row. */
bool rule_hardmax(struct rule *r)
{
    struct builder *b = r->b;
    int64_t axes[RANK_MAX];
    uint32_t n;
    value_id x = rule_in(r, 0);
    if (!softmax_axes(r, x, axes, &n))
        return false;
    if (!n)
        return rule_result(r, b_splat_like(b, x, 1));
    const struct dims dims = b_dims(b, x);
    value_id flat = x;
    int32_t axis = (int32_t)axes[0];
    if (n > 1) {
        expr_id d[RANK_MAX];
        d[axis] = ex_const(b->x, 1);
        for (int32_t i = 0; i < dims.rank; i++) {
            if (i < axis)
                d[i] = dims.d[i];
            else
                d[axis] = ex_mul(b->x, d[axis], dims.d[i]);
        }
        flat = b_reshape(b, x, d, axis + 1);
    }
    value_id at = b_unsqueeze(b, b_argreduce(b, flat, axis, true, false), axis);
    const struct dims flat_dims = b_dims(b, flat);
    if (!flat_dims.d)
        return false;
    value_id hit = b_binary(b, OP_EQ, v_iota(b, ELEM_I64, flat_dims.d, flat_dims.rank, axis), at);
    return rule_result(r, b_reshape(b, b_convert(b, hit, v_elem(b, x)), dims.d, dims.rank));
}
